"""`exact`: the minimal perturbation itself, by a dual bound, witnesses and branching.

docs/explanation/exact-engine.md tells how it works; the numbers are in kernels/exact: problem.py,
dual.py, primal.py, search.py and row.py, for targets target_search.py and walks.py,
and for cliques piece_graph.py, forest_cliques.py, forest_rows.py and piece_walks.py.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from treeproof.engines.base import Budget
from treeproof.engines.batches import CHUNK, BatchSearch
from treeproof.engines.outcomes import mark_unknown, mark_verified, mark_witnessed
from treeproof.kernels.core.status import (
    MEMORY_LIMIT,
    NEAR_TIE,
    NODE_LIMIT,
    PROVED,
    TIME_LIMIT,
    UNDECIDED,
)
from treeproof.kernels.exact.forest_rows import solve_by_cliques
from treeproof.kernels.exact.priced_rows import solve_priced
from treeproof.kernels.exact.row import FirstGuess, Limits, solve_batch, solve_targets
from treeproof.query.query import Query
from treeproof.results.results import FloatArray, Results
from treeproof.results.verdict import UnknownReason, Verdict

STAGES = (4, 16)
"""Rows after which the others learn anew where to look first."""
WORTH_THREADS_S = 2e-3
"""Threads take half a millisecond to begin; less work is done sooner without them."""
CALL_S, LARGEST_CHUNK = 20e-3, 64
"""What a compiled call may take, by the rows before it, and most rows of one: making it takes as
long as a small model's row."""
FIRST_MARGIN, LEAST_MARGIN, LARGEST_MARGIN = 1.2, 1.02, 2.0
"""First trial radius over the suggested one: before anything is learned, at least, at most."""
MOST = 0.65
"""The share of rows that a first trial radius should suffice for."""
PATIENCE, FOREST_PATIENCE, CLIQUE_PATIENCE = 1 << 12, 1 << 2, 1 << 13
"""Nodes of the first turn of the dual search, where trees are added up and where they are averaged,
and of the first turn of cliques, whose nodes are smaller. Where trees are averaged cliques begin:
leaves count alike there, and classes across trees bound far better than multipliers, in nodes that
take a thousandth of the time; elsewhere their first turn is smaller."""
TARGET_PATIENCE = 1 << 12
"""Nodes of the first turn of a targeted radius, with single conditions; few rows take more."""
MORE_PATIENCE = 8
"""By what factor a turn may take more nodes than the same search took before."""
WORTH_STAYING = 1.02
"""Where trees are averaged the dual search has no turn after one of cliques that raised the lower
bound by this factor, unless its own last turn did so too: in large boxes it seldom does."""
UNTARGETED_SHARE = 0.25
"""Part of the time that is left for finding the untargeted radius."""

REASON = {
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
    stages: ClassVar[tuple[int, ...]] = STAGES
    answers_prices: ClassVar[bool] = True
    takes_radii_of_rows: ClassVar[bool] = True
    """Rows may have radii of their own in one query, where changes have no prices."""

    def refusal(self, query: Query) -> str | None:
        """Every question can be asked."""
        del query
        return None

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Decide every row at the query's own radius or box."""
        # Near violations come first: so no verdict takes longer than the radius of its row. Those
        # of targets are tried in whole trees, before anything else.
        in_balls = query.pricing is None and query.reach.is_ball and not _has_conditions(query)
        search = BatchSearch(query, asks_radius=False, in_balls=in_balls)
        limits, guess = limits_of(query, budget), FirstGuess(0.0, FIRST_MARGIN)
        search.run(_kernel(query), guess, limits, n_jobs=n_jobs)
        if query.pricing is None:
            _take_turns(search, query, guess, limits, n_jobs)
        proved = (
            ~search.skip & (search.columns.status == PROVED) & ~np.isfinite(search.results.upper)
        )
        # With prices, what was found within rounding of the budget is for the replay to decide.
        is_cost_tie = (search.columns.status == NEAR_TIE) & np.isfinite(search.results.upper)
        results = search.finish()
        mark_witnessed(query, results, np.flatnonzero(search.confirmed))
        mark_verified(query, results, np.flatnonzero(proved))
        for row in np.flatnonzero(~search.skip & ~search.confirmed & ~proved):
            reason = UnknownReason.COST_TIE if is_cost_tie[row] else _reason(search, row)
            mark_unknown(query, results, int(row), reason)
        return results

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Find the minimal perturbation of every row."""
        search, limits = BatchSearch(query, asks_radius=True), limits_of(query, budget)
        if query.first_guess is None:
            self._search_in_stages(search, limits, query, n_jobs)
        else:
            rows = range(0, len(query), LARGEST_CHUNK)
            guess = FirstGuess(*query.first_guess)
            search.run(_kernel(query), guess, limits, rows, n_jobs)
        if query.pricing is None:
            if _has_conditions(query):
                self._bound_by_untargeted(search, query, budget, n_jobs)
            _take_turns(search, query, FirstGuess(0.0, FIRST_MARGIN), limits, n_jobs)
        is_found = np.isfinite(search.results.upper)
        results = search.finish()
        is_proved = ~search.skip & (search.columns.status == PROVED)
        is_proved &= search.confirmed == is_found
        results.verdict[is_proved] = Verdict.VERIFIED
        results.exact[is_proved] = True
        for row in np.flatnonzero(~search.skip & ~is_proved):
            results.reason[row] = _reason(search, row)
        eq6_radius = search.columns.eq6_radius
        results.statistics["eq6_radius"] = np.where(np.isfinite(eq6_radius), eq6_radius, 0.0)
        return results

    def _search_in_stages(
        self, search: BatchSearch, limits: Limits, query: Query, n_jobs: int
    ) -> None:
        """Learn the scale of later rows from the first ones.

        Each stage learns from all rows before it, and from nothing else, so that results do not
        depend on the number of threads.
        """
        first, n_rows = 0, len(query)
        for last in (*(stage for stage in STAGES if stage < n_rows), n_rows):
            before = search.part_of(slice(0, first))
            expected_s = before.seconds.sum() / max(first, 1) * (last - first)
            threads = n_jobs if first == 0 or expected_s > WORTH_THREADS_S else 1
            step = CHUNK if expected_s == 0.0 else int(CALL_S / expected_s * (last - first))
            rows = range(first, last, min(max(step, CHUNK), LARGEST_CHUNK))
            guess = self.first_guess(before.upper, before.eq6_radius)
            search.run(_kernel(query), FirstGuess(*guess), limits, rows, threads)
            first = last

    def first_guess(self, radius: FloatArray, eq6_radius: FloatArray) -> tuple[float, float]:
        """Where to look first, from rows already solved: a radius, and a margin over that of eq. 6.

        The radius is the median of theirs, 0 when there is none; the margin is the factor by which
        most radii exceed those of eq. 6.
        """
        known = np.isfinite(radius) & (radius > 0.0) & (eq6_radius > 0.0)
        if not known.any():
            return 0.0, FIRST_MARGIN
        with np.errstate(over="ignore"):
            ratio = np.sort(radius[known] / eq6_radius[known])
        median = float(np.sort(radius[known])[len(ratio) // 2])
        margin = float(ratio[int(MOST * len(ratio))])
        return median, min(max(margin, LEAST_MARGIN), LARGEST_MARGIN)

    def _bound_by_untargeted(
        self, search: BatchSearch, query: Query, budget: Budget, n_jobs: int
    ) -> None:
        """Raise the lower bounds of open targeted radii to the untargeted ones.

        Sound: where the target is reached, the label is no longer the row's own.
        """
        columns = search.columns
        rows = np.flatnonzero(~search.skip & (columns.status == UNDECIDED))
        if len(rows) == 0:
            return
        seconds_left = budget.time_limit_s - float(columns.seconds[rows].max())
        part = Budget(
            time_limit_s=max(UNTARGETED_SHARE * seconds_left, 1e-9),
            node_limit=CLIQUE_PATIENCE,
            memory_limit_mb=budget.memory_limit_mb,
        )
        # No row learns from another: which ones are open must not matter.
        plain = replace(query.take(rows).without_target(), first_guess=(0.0, FIRST_MARGIN))
        found = self.radius(plain, part, n_jobs=n_jobs)
        columns.lower[rows] = np.maximum(columns.lower[rows], found.lower)
        columns.seconds[rows] += found.seconds


def _has_conditions(query: Query) -> bool:
    """Whether a violation has to meet several conditions at once, as a target of many classes."""
    start = query.alternatives.alternative_start
    return int(start[-1]) > len(start) - 1  # each has at least one


def _kernel(query: Query) -> Any:
    """The search of a question: in balls and boxes of cells, or over atoms with prices."""
    if query.pricing is not None:
        return solve_priced
    return solve_targets if _has_conditions(query) else solve_batch


def _take_turns(
    search: BatchSearch, query: Query, guess: FirstGuess, limits: Limits, n_jobs: int
) -> None:
    """Search what is open in two ways in turn, with more patience each time.

    One is the dual search, the other one are cliques; for targets, which are no single sum, the
    dual of sums of conditions that are weighed against each other, which closes other rows.

    Nodes and not seconds end a turn, so that results do not depend on the machine. A search that
    memory ended has no further turn until a nearer witness leaves less to search.
    """
    status, upper = search.columns.status, search.columns.upper
    if (search.skip | (status == PROVED)).all():
        return
    is_forest = limits.patience == 0
    turns: list[tuple[Any, FirstGuess, int]] = [
        (solve_batch, guess, FOREST_PATIENCE if is_forest else MORE_PATIENCE * limits.patience),
        (solve_by_cliques, guess, max(CLIQUE_PATIENCE // (1 if is_forest else MORE_PATIENCE), 1)),
    ]
    if _has_conditions(query):
        turns[0] = solve_targets, *turns[0][1:]
        turns[1] = solve_batch, guess, limits.patience
    ended_at = [np.where(status == MEMORY_LIMIT, upper, np.nan), np.full(len(status), np.nan)]
    lower = search.columns.lower
    has_raised = [np.zeros(len(status), dtype=bool)] * 2  # in the last turn of each
    kind = 0
    while True:
        is_open = ~search.skip & ((status == UNDECIDED) | (status == MEMORY_LIMIT))
        is_open &= ~((upper >= ended_at[0]) & (upper >= ended_at[1]))
        if not is_open.any():
            return
        kind = 1 - kind
        kernel, option, patience = turns[kind]
        turns[kind] = kernel, option, patience * MORE_PATIENCE
        is_open &= ~(upper >= ended_at[kind])
        if is_forest and kind == 0:
            is_open &= has_raised[0] | ~has_raised[1]
        before = lower.copy()
        turn = limits._replace(patience=min(patience, limits.nodes))
        if is_open.any():
            search.run(kernel, option, turn, n_jobs=n_jobs, skip=~is_open)
        has_raised[kind] = is_open & (lower / WORTH_STAYING > before)
        is_ended = is_open & (status == MEMORY_LIMIT)
        ended_at[kind][is_ended] = upper[is_ended]


def limits_of(query: Query, budget: Budget) -> Limits:
    """Limits as kernels take them."""
    patience = 0 if query.ensemble.aggregation.finish == "divide" else PATIENCE
    if _has_conditions(query):
        patience = TARGET_PATIENCE if query.pricing is None else int(budget.node_limit)
    return Limits(
        time_s=float(budget.time_limit_s),
        nodes=int(budget.node_limit),
        memory_bytes=float(budget.memory_limit_mb) * 2.0**20,
        patience=patience,
    )


def _reason(search: BatchSearch, row: np.int64) -> UnknownReason:
    return REASON.get(int(search.columns.status[row]), UnknownReason.SOLVER_FAILED)
