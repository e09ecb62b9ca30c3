"""Queries as arrays for kernels that answer many rows in one call."""

from collections.abc import Callable

import numpy as np

from treeproof.engines.batches import forest_over_cells
from treeproof.kernels.paper.questions import Claims, Question, Rows
from treeproof.prediction import in_slices, thread_count
from treeproof.query.query import Query

_CHUNK = 256
"""Most rows of a compiled call: scratch is made for each, and it can be interrupted in between."""


def question_of(query: Query) -> Question:
    """Return a query as arrays for kernels."""
    ensemble, alternatives, reach = query.ensemble, query.alternatives, query.reach
    forest = forest_over_cells(query)
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
        used=np.flatnonzero(np.diff(forest.space.cut_start)).astype(np.int32),
        is_ball=reach.is_ball,
    )
    claims = Claims(
        tree_output=ensemble.trees.tree_output,
        leaf_value=ensemble.trees.leaf_value,
        group_start=alternatives.group_start,
        alternative_start=alternatives.alternative_start,
        coefficient=alternatives.coefficient,
        need=alternatives.need,
        unit=alternatives.unit,
        link_slack=alternatives.link_slack,
        start=np.array(ensemble.aggregation.start, dtype=np.float64),
        group_mask=mask,
    )
    return Question(forest, rows, claims)


def in_chunks(query: Query, n_jobs: int, run: Callable[[slice], None]) -> None:
    """Call with slices of the rows, in threads when asked; every call writes its own rows."""
    in_slices(range(0, len(query), _CHUNK), thread_count(n_jobs), run)
