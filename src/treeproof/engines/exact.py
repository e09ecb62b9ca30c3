"""`exact`: the minimal perturbation itself, by a dual bound, witnesses and branching.

docs/explanation/exact-engine.md tells how it works; the numbers are in kernels/problem.py,
dual.py, primal.py, branching.py and exact.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget
from treeproof.engines.batches import (
    broken_rows,
    common_outcomes,
    empty_columns,
    in_fixed_chunks,
    setting_of,
)
from treeproof.kernels.branching import MEMORY_LIMIT, NEAR_TIE, NODE_LIMIT, PROVED, TIME_LIMIT
from treeproof.kernels.exact import Limits
from treeproof.kernels.exact_batch import Columns, solve_batch
from treeproof.query import Query
from treeproof.results.outcomes import Outcomes
from treeproof.results.verdict import UnknownReason, Verdict

FIRST_ROWS = 16
"""Rows of a batch from which the others learn where to look first."""
FIRST_MARGIN, LEAST_MARGIN, LARGEST_MARGIN = 1.2, 1.02, 2.0
"""First trial radius over the suggested one: before anything is learned, at least, at most."""
MOST = 0.75
"""The share of rows that a first trial radius should suffice for."""

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
        columns, skip = empty_columns(query), broken_rows(query)
        run = _runner(query, budget, query.reach.box(query.rows, radius), skip, columns)
        in_fixed_chunks(len(query), n_jobs, lambda part: run(part, False, 0.0, 1.0))
        return _verify_outcomes(query, columns, skip)

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Outcomes:
        """Find the minimal perturbation of every row."""
        columns, skip = empty_columns(query), broken_rows(query)
        run = _runner(query, budget, (query.reach.low, query.reach.high), skip, columns)
        # The first rows tell the scale of the others. They run alone and first, so that the
        # others start the same whatever the number of threads.
        first = min(len(query), FIRST_ROWS)
        for row in range(first):
            run(slice(row, row + 1), True, *_first_guess(columns, row))
        guess = _first_guess(columns, first)
        in_fixed_chunks(len(query), n_jobs, lambda part: run(part, True, *guess), first)
        return _radius_outcomes(query, columns, skip)


def _runner(
    query: Query,
    budget: Budget,
    sides: tuple[NDArray[np.float64], NDArray[np.float64]],
    skip: NDArray[np.bool_],
    columns: Columns,
) -> Callable[[slice, bool, float, float], None]:
    """Return a function that solves a slice of the rows into the columns."""
    setting = setting_of(query)
    # Copies are writable and contiguous whatever the caller passed: one compiled signature.
    rows, group, skipped = query.rows.copy(), query.group.copy(), skip.copy()
    down, up = query.reach.down.copy(), query.reach.up.copy()
    low, high = (np.array(side, dtype=np.float64, order="C") for side in sides)
    limits = Limits(
        time_s=float(budget.time_limit_s),
        nodes=int(budget.node_limit),
        memory_bytes=float(budget.memory_limit_mb) * 2.0**20,
    )

    def run(part: slice, is_ball: bool, start: float, margin: float) -> None:
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
            margin,
            skipped[part],
            limits,
            Columns(*(column[part] for column in columns)),
        )

    return run


def _first_guess(columns: Columns, n_rows: int) -> tuple[float, float]:
    """Where to look first, from the rows already solved.

    Returns
    -------
    radius, margin : float
        The median radius, 0 when there is none; by what factor most radii exceed the cheap ones.
    """
    radius, cheap = columns.upper[:n_rows], columns.cheap[:n_rows]
    known = np.isfinite(radius) & (radius > 0.0) & (cheap > 0.0)
    if not known.any():
        return 0.0, FIRST_MARGIN
    ratio = radius[known] / cheap[known]
    margin = float(np.clip(np.quantile(ratio, MOST), LEAST_MARGIN, LARGEST_MARGIN))
    return float(np.median(radius[known])), margin


def _verify_outcomes(query: Query, columns: Columns, skip: NDArray[np.bool_]) -> Outcomes:
    outcomes, is_confirmed = common_outcomes(query, columns, skip)
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
    outcomes, is_confirmed = common_outcomes(query, columns, skip)
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
