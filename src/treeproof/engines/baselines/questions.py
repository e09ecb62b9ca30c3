"""Queries as arrays for kernels that answer many rows in one call."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from treeproof.engines.instance import rank_space
from treeproof.kernels.baselines.questions import Claims, Question, Rows
from treeproof.model.ensemble import ZERO_BAND
from treeproof.prediction import thread_count
from treeproof.query.query import Query


def question_of(query: Query) -> Question:
    """Return a query as arrays for kernels."""
    ensemble, alternatives, reach = query.ensemble, query.alternatives, query.reach
    space = rank_space(ensemble)
    mask = np.zeros((len(alternatives.group_label), ensemble.n_outputs))
    for group in range(len(mask)):
        for constraints in alternatives.of_group(group):
            for constraint in constraints:
                mask[group, alternatives.coefficient[constraint] != 0.0] = 1.0
    rows = Rows(
        # Copies of what may be read-only, which numba takes for another type and compiles anew.
        values=np.array(query.rows),
        group=np.array(query.group),
        down=np.array(reach.down),
        up=np.array(reach.up),
        low=np.array(reach.low, order="C"),
        high=np.array(reach.high, order="C"),
        used=np.flatnonzero(np.diff(space.cut_start)).astype(np.int32),
        is_ball=reach.is_ball,
        zero_band=ZERO_BAND,
    )
    claims = Claims(
        group_start=alternatives.group_start,
        alternative_start=alternatives.alternative_start,
        coefficient=alternatives.coefficient,
        need=alternatives.need,
        unit=alternatives.unit,
        link_slack=alternatives.link_slack,
        start=np.array(ensemble.aggregation.start, dtype=np.float64),
        group_mask=mask,
    )
    return Question(ensemble.trees, space, rows, claims)


def in_chunks(n_rows: int, n_jobs: int, run: Callable[[int, int], Any]) -> None:
    """Call with ranges of rows, in threads when asked; every call writes its own rows."""
    threads = thread_count(n_jobs)
    if threads == 1 or n_rows == 1:
        run(0, n_rows)
        return
    size = max(1, n_rows // (8 * threads))
    with ThreadPoolExecutor(threads) as pool:
        starts = range(0, n_rows, size)
        list(pool.map(lambda first: run(first, min(first + size, n_rows)), starts))
