"""`exact`: the minimal perturbation itself, by a dual bound, witnesses and branching.

docs/explanation/exact-engine.md tells how it works; the numbers are in kernels/exact/problem.py,
dual.py, primal.py, search.py and row.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget
from treeproof.engines.batches import (
    Replays,
    Sides,
    batch_of,
    broken_rows,
    common_outcomes,
    empty_columns,
    forest_of,
    in_batches,
    part_of,
    part_of_batch,
    single_constraints,
)
from treeproof.kernels.core.status import MEMORY_LIMIT, NEAR_TIE, NODE_LIMIT, PROVED, TIME_LIMIT
from treeproof.kernels.exact.row import Columns, FirstGuess, Limits, solve_batch
from treeproof.query.query import Query
from treeproof.results.outcomes import Outcomes
from treeproof.results.verdict import UnknownReason, Verdict

STAGES = (4, 16)
"""Rows after which the others learn anew where to look first."""
WORTH_THREADS_S = 2e-3
"""Threads take half a millisecond to begin; less work is done sooner without them."""
FIRST_MARGIN, LEAST_MARGIN, LARGEST_MARGIN = 1.2, 1.02, 2.0
"""First trial radius over the suggested one: before anything is learned, at least, at most."""
MOST = 0.65
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
        replays = Replays(query, columns, skip, asks_radius=False)
        in_batches(len(query), n_jobs, replays.after(partial(run, False, FirstGuess(0.0, 1.0))))
        return _verify_outcomes(query, columns, skip, replays.finished())

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Outcomes:
        """Find the minimal perturbation of every row."""
        columns, skip = empty_columns(query), broken_rows(query)
        run = _runner(query, budget, (query.reach.low, query.reach.high), skip, columns)
        # The first rows tell the scale of the others: each stage learns from all rows before it,
        # and from nothing else, so that results do not depend on the number of threads.
        replays = Replays(query, columns, skip, asks_radius=True)
        unit = query.unit_rows or len(query)
        for start in range(0, len(query), unit):
            end = min(start + unit, len(query))
            first = start
            for last in (*(start + stage for stage in STAGES if start + stage < end), end):
                before = part_of(columns, slice(start, first))
                expected_s = before.seconds.sum() / max(first - start, 1) * (last - first)
                threads = n_jobs if first == 0 or expected_s > WORTH_THREADS_S else 1
                search = partial(run, True, _first_guess(before))
                in_batches(last, threads, replays.after(search), first)
                first = last
        return _radius_outcomes(query, columns, skip, replays.finished())


def _runner(
    query: Query,
    budget: Budget,
    sides: Sides,
    skip: NDArray[np.bool_],
    columns: Columns,
) -> Callable[[bool, FirstGuess, slice], None]:
    """Return a function that solves a slice of the rows into the columns."""
    forest, alternatives = forest_of(query), single_constraints(query)
    batch = batch_of(query, sides, skip)
    limits = Limits(
        time_s=float(budget.time_limit_s),
        nodes=int(budget.node_limit),
        memory_bytes=float(budget.memory_limit_mb) * 2.0**20,
    )

    def run(is_ball: bool, guess: FirstGuess, part: slice) -> None:
        rows, found = part_of_batch(batch, part), part_of(columns, part)
        solve_batch(forest, alternatives, rows, is_ball, guess, limits, found)

    return run


def _first_guess(before: Columns) -> FirstGuess:
    """Where to look first, from the rows already solved.

    The median radius, 0 when there is none; and by what factor most radii exceed those of eq. 6.
    """
    radius, eq6_radius = before.upper, before.eq6_radius
    known = np.isfinite(radius) & (radius > 0.0) & (eq6_radius > 0.0)
    if not known.any():
        return FirstGuess(0.0, FIRST_MARGIN)
    with np.errstate(over="ignore"):
        ratio = np.sort(radius[known] / eq6_radius[known])
    solved = np.sort(radius[known])
    margin = float(ratio[int(MOST * len(ratio))])
    return FirstGuess(
        float(solved[len(solved) // 2]), min(max(margin, LEAST_MARGIN), LARGEST_MARGIN)
    )


def _verify_outcomes(
    query: Query, columns: Columns, skip: NDArray[np.bool_], is_confirmed: NDArray[np.bool_]
) -> Outcomes:
    outcomes = common_outcomes(query, columns, skip, is_confirmed)
    if not query.reach.is_ball:
        outcomes.lower[:] = outcomes.upper[:] = np.nan
    outcomes.verdict[is_confirmed] = Verdict.FALSIFIED
    outcomes.exact[is_confirmed] = outcomes.attained[is_confirmed] = True
    is_proved = ~skip & (columns.status == PROVED) & ~np.isfinite(columns.upper)
    outcomes.verdict[is_proved] = Verdict.VERIFIED
    outcomes.exact[is_proved] = True
    if query.reach.is_ball:
        radius = query.reach.radius or 0.0
        nearest = np.minimum(radius, outcomes.witness_distance[is_confirmed])
        outcomes.upper[is_confirmed] = nearest
        outcomes.lower[is_proved] = radius
    _write_reasons(outcomes, columns, ~skip & ~is_confirmed & ~is_proved)
    return outcomes


def _radius_outcomes(
    query: Query, columns: Columns, skip: NDArray[np.bool_], is_confirmed: NDArray[np.bool_]
) -> Outcomes:
    outcomes = common_outcomes(query, columns, skip, is_confirmed)
    outcomes.lower[~skip] = columns.lower[~skip]
    outcomes.upper[is_confirmed] = columns.upper[is_confirmed]
    outcomes.attained[is_confirmed] = ~columns.is_open[is_confirmed]
    is_proved = ~skip & (columns.status == PROVED) & (is_confirmed == np.isfinite(columns.upper))
    outcomes.verdict[is_proved] = Verdict.VERIFIED
    outcomes.exact[is_proved] = True
    _write_reasons(outcomes, columns, ~skip & ~is_proved)
    return outcomes


def _write_reasons(outcomes: Outcomes, columns: Columns, is_unknown: NDArray[np.bool_]) -> None:
    for row in np.flatnonzero(is_unknown):
        outcomes.reason[row] = _REASON.get(int(columns.status[row]), UnknownReason.SOLVER_FAILED)
