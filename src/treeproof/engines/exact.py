"""`exact`: the minimal perturbation itself, by a dual bound, witnesses and branching.

docs/explanation/exact-engine.md tells how it works; the numbers are in kernels/problem.py,
dual.py, primal.py, branching.py and exact.py.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget
from treeproof.engines.instance import distance, rank_space
from treeproof.engines.settling import is_broken_unchanged, settle_broken
from treeproof.kernels.branching import MEMORY_LIMIT, NEAR_TIE, NODE_LIMIT, PROVED, TIME_LIMIT
from treeproof.kernels.emulation import (
    AFFINE,
    DIVIDE,
    IDENTITY,
    NO_FINISH,
    RISING,
    SIGMOID,
    SOFTMAX,
    Semantics,
)
from treeproof.kernels.exact import Alternatives, Limits
from treeproof.kernels.exact_batch import Columns, solve_batch
from treeproof.model.ensemble import ZERO_BAND, Ensemble
from treeproof.prediction import thread_count
from treeproof.query import Query
from treeproof.query_goals import LABEL_IS_TARGET
from treeproof.results.outcomes import Outcomes
from treeproof.results.verdict import UnknownReason, Verdict

CHUNK = 32
"""Rows per compiled call; fixed, so that results do not depend on the number of threads."""

_FINISH = {"none": NO_FINISH, "divide": DIVIDE, "affine": AFFINE, "isolation": RISING}
_LINK = {
    "identity": IDENTITY,
    "softmax_float32": SOFTMAX,
    "softmax_float64": SOFTMAX,
    "sigmoid_float64": SIGMOID,
}
_REASON = {
    NODE_LIMIT: UnknownReason.NODE_LIMIT,
    TIME_LIMIT: UnknownReason.TIME_LIMIT,
    MEMORY_LIMIT: UnknownReason.MEMORY_LIMIT,
    NEAR_TIE: UnknownReason.NEAR_TIE,
}


@dataclass(frozen=True, slots=True)
class ExactEngine:
    """Exact and anytime: both bounds are valid whenever a limit ends the search."""

    name: ClassVar[str] = "exact"
    is_complete: ClassVar[bool] = True

    def refusal(self, query: Query) -> str | None:
        """Every question can be asked."""
        del query
        return None

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Outcomes:
        """Decide every row at the query's own radius or box."""
        radius = 0.0 if query.reach.radius is None else query.reach.radius
        columns, skip = _columns(query), _broken(query)
        run = _runner(query, budget, query.reach.box(query.rows, radius), skip, columns)
        _in_chunks(len(query), n_jobs, lambda part: run(part, False, 0.0))
        return _verify_outcomes(query, columns, skip)

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Outcomes:
        """Find the minimal perturbation of every row."""
        columns, skip = _columns(query), _broken(query)
        run = _runner(query, budget, (query.reach.low, query.reach.high), skip, columns)
        # The first rows tell the scale of the others. They run alone and first, so that the
        # others start the same whatever the number of threads.
        first = min(len(query), CHUNK)
        for row in range(first):
            run(slice(row, row + 1), True, _start_radius(columns.upper[:row]))
        start = _start_radius(columns.upper[:first])
        _in_chunks(len(query), n_jobs, lambda part: run(part, True, start), first)
        return _radius_outcomes(query, columns, skip)


def _runner(
    query: Query,
    budget: Budget,
    sides: tuple[NDArray[np.float64], NDArray[np.float64]],
    skip: NDArray[np.bool_],
    columns: Columns,
) -> Callable[[slice, bool, float], None]:
    """Return a function that solves a slice of the rows into the columns."""
    setting = _setting(query)
    # Copies are writable and contiguous whatever the caller passed: one compiled signature.
    rows, group, skipped = query.rows.copy(), query.group.copy(), skip.copy()
    down, up = query.reach.down.copy(), query.reach.up.copy()
    low, high = (np.array(side, dtype=np.float64, order="C") for side in sides)
    limits = Limits(
        time_s=float(budget.time_limit_s),
        nodes=int(budget.node_limit),
        memory_bytes=float(budget.memory_limit_mb) * 2.0**20,
    )

    def run(part: slice, is_ball: bool, start: float) -> None:
        solve_batch(
            *setting,
            group[part],
            rows[part],
            down,
            up,
            low[part],
            high[part],
            is_ball,
            start,
            skipped[part],
            limits,
            Columns(*(column[part] for column in columns)),
        )

    return run


def _start_radius(radii: NDArray[np.float64]) -> float:
    """Half the median radius of rows already solved; 0 when there are none."""
    known = radii[np.isfinite(radii) & (radii > 0.0)]
    return 0.5 * float(np.median(known)) if known.size else 0.0


def _in_chunks(n_rows: int, n_jobs: int, run: Callable[[slice], None], first: int = 0) -> None:
    parts = [slice(start, start + CHUNK) for start in range(first, n_rows, CHUNK)]
    threads = thread_count(n_jobs)
    if threads == 1 or len(parts) < 2:
        for part in parts:
            run(part)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, parts))


def _setting(query: Query) -> tuple[Any, Any, Semantics, Alternatives, bool]:
    """The model and the claims as kernels take them."""
    ensemble = query.ensemble
    return (
        ensemble.trees,
        rank_space(ensemble),
        _semantics(ensemble, query.alternatives.judgement),
        _single_constraints(query),
        ensemble.input_precision == "float32",
    )


def _semantics(ensemble: Ensemble, judgement: int) -> Semantics:
    aggregation = ensemble.aggregation
    bias = np.zeros(ensemble.n_outputs)
    bias[: len(aggregation.bias)] = aggregation.bias
    return Semantics(
        is_single=aggregation.precision == "float32",
        start=np.array(aggregation.start, dtype=np.float64),
        finish=_FINISH[aggregation.finish],
        divisor=float(aggregation.divisor),
        scale=float(aggregation.scale),
        bias=bias,
        link=_LINK[ensemble.decision.link],
        link_divisor=float(ensemble.decision.link_divisor),
        link_scale=float(ensemble.decision.link_scale),
        judgement=judgement,
        zero_band=ZERO_BAND,
    )


def _single_constraints(query: Query) -> Alternatives:
    """Every alternative as one constraint.

    Sound for a target that must beat all other classes at once: wherever all constraints hold,
    their weighted sum holds; and the search judges every remaining leaf tuple by the model's own
    label. All outputs keep a weight, so a tuple fixes the label.
    """
    table = query.alternatives
    start = table.alternative_start[:-1]
    size = np.diff(table.alternative_start)
    coefficient, need = table.coefficient[start], table.need[start]
    if table.judgement == LABEL_IS_TARGET:
        weight = [np.full(n, 1.0 / n) for n in size]
        parts = [slice(a, a + n) for a, n in zip(start, size, strict=True)]
        coefficient = np.array(
            [w @ table.coefficient[p] for w, p in zip(weight, parts, strict=True)]
        )
        need = np.array([w @ table.need[p] for w, p in zip(weight, parts, strict=True)])
    return Alternatives(
        group_start=table.group_start,
        alternative_start=np.arange(len(start), dtype=np.int64),
        group_label=table.group_label,
        coefficient=np.ascontiguousarray(coefficient),
        need=np.ascontiguousarray(need),
        unit=table.unit[start],
        link_slack=table.link_slack[start],
    )


def _columns(query: Query) -> Columns:
    n_rows, n_features = query.rows.shape
    return Columns(
        status=np.zeros(n_rows, dtype=np.int64),
        lower=np.zeros(n_rows),
        upper=np.full(n_rows, np.inf),
        is_open=np.zeros(n_rows, dtype=bool),
        witness=np.full((n_rows, n_features), np.nan),
        seconds=np.zeros(n_rows),
        counts=np.zeros((n_rows, 4), dtype=np.int64),
    )


def _broken(query: Query) -> NDArray[np.bool_]:
    if query.reach.is_ball:
        return query.already_broken
    return np.array([is_broken_unchanged(query, row) for row in range(len(query))], dtype=bool)


def _outcomes(
    query: Query, columns: Columns, skip: NDArray[np.bool_]
) -> tuple[Outcomes, NDArray[np.bool_]]:
    """Columns common to both questions: witnesses that the plain model confirms, counts, times."""
    outcomes = Outcomes.empty(len(query), query.rows.shape[1])
    outcomes.seconds[:] = columns.seconds
    for number, name in enumerate(("nodes", "sweeps", "points", "restrictions")):
        outcomes.statistics[name] = columns.counts[:, number]
    for row in np.flatnonzero(skip):
        settle_broken(query, outcomes, int(row))
    found = np.flatnonzero(~skip & np.isfinite(columns.upper))
    is_confirmed = np.zeros(len(query), dtype=bool)
    is_confirmed[found] = _confirmed(query, columns.witness, found)
    for row in np.flatnonzero(is_confirmed):
        outcomes.witness[row] = columns.witness[row]
        outcomes.witness_distance[row] = distance(query, int(row), columns.witness[row])
    return outcomes, is_confirmed


def _confirmed(
    query: Query, witness: NDArray[np.float64], found: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Replay witnesses with the plain model; falsified is said only of those it confirms."""
    confirmed = np.zeros(len(found), dtype=bool)
    for first in range(0, len(found), 4096):
        part = found[first : first + 4096]
        confirmed[first : first + 4096] = query.take(part).is_broken_by(witness[part])
    return confirmed


def _verify_outcomes(query: Query, columns: Columns, skip: NDArray[np.bool_]) -> Outcomes:
    outcomes, is_confirmed = _outcomes(query, columns, skip)
    radius = query.reach.radius if query.reach.is_ball else np.nan
    outcomes.lower[:] = np.where(skip, outcomes.lower, 0.0 if query.reach.is_ball else np.nan)
    outcomes.upper[:] = np.where(skip, outcomes.upper, np.inf if query.reach.is_ball else np.nan)
    for row in np.flatnonzero(~skip):
        if is_confirmed[row]:
            outcomes.verdict[row] = Verdict.FALSIFIED
            outcomes.exact[row] = outcomes.attained[row] = True
            if query.reach.is_ball:
                outcomes.upper[row] = min(radius or 0.0, outcomes.witness_distance[row])
        elif columns.status[row] == PROVED and not np.isfinite(columns.upper[row]):
            outcomes.verdict[row] = Verdict.VERIFIED
            outcomes.exact[row] = True
            outcomes.lower[row] = radius
        else:
            outcomes.reason[row] = _REASON.get(
                int(columns.status[row]), UnknownReason.SOLVER_FAILED
            )
    return outcomes


def _radius_outcomes(query: Query, columns: Columns, skip: NDArray[np.bool_]) -> Outcomes:
    outcomes, is_confirmed = _outcomes(query, columns, skip)
    for row in np.flatnonzero(~skip):
        outcomes.lower[row] = columns.lower[row]
        if is_confirmed[row]:
            outcomes.upper[row] = columns.upper[row]
            outcomes.attained[row] = not columns.is_open[row]
        if columns.status[row] == PROVED and is_confirmed[row] == np.isfinite(columns.upper[row]):
            outcomes.verdict[row] = Verdict.VERIFIED
            outcomes.exact[row] = True
        else:
            outcomes.reason[row] = _REASON.get(
                int(columns.status[row]), UnknownReason.SOLVER_FAILED
            )
    return outcomes
