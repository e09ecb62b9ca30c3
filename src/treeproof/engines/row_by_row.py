"""What engines that go row by row have in common: limits, alternatives, replays, verdicts."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from treeproof.engines.base import Budget, for_each_row
from treeproof.engines.instance import cells_of, point_in_cells
from treeproof.engines.outcomes import (
    is_broken_unchanged,
    mark_broken,
    mark_falsified,
    mark_unknown,
    mark_verified,
)
from treeproof.engines.restricted import Cells
from treeproof.kernels.core.status import MEMORY_LIMIT, NODE_LIMIT, TIME_LIMIT, UNDECIDED
from treeproof.kernels.paper.leaves import Limits
from treeproof.model.ensemble import FloatArray
from treeproof.query.query import Query
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict

REASONS = {
    UNDECIDED: UnknownReason.LOOSE_BOUND,
    NODE_LIMIT: UnknownReason.NODE_LIMIT,
    TIME_LIMIT: UnknownReason.TIME_LIMIT,
    MEMORY_LIMIT: UnknownReason.MEMORY_LIMIT,
}
"""Why a row is unknown, by the status that a kernel ended with."""


@dataclass(slots=True)
class RowSearch:
    """One row of a query while an engine works on it, and where the answer is written."""

    query: Query
    row: int
    outcomes: Results
    limits: Limits
    excluded: int = 0  # points of a solver that the model does not take for violations
    reason: UnknownReason = UnknownReason.NONE  # why the last question stayed open

    @property
    def alternatives(self) -> list[range]:
        """The ways to break the claim, each as numbers of its constraints."""
        return self.query.alternatives.of_group(int(self.query.group[self.row]))

    @property
    def nodes(self) -> int:
        """What the budget counts, so far."""
        return int(self.limits.nodes[0])

    @property
    def seconds_left(self) -> float:
        """Time until the limit."""
        return float(self.limits.deadline[0]) - time.perf_counter()

    @property
    def limit(self) -> UnknownReason:
        """The limit that is reached, NONE where there is something left."""
        if self.seconds_left <= 0.0:
            return UnknownReason.TIME_LIMIT
        is_spent = self.limits.nodes[0] >= self.limits.nodes[1]
        return UnknownReason.NODE_LIMIT if is_spent else UnknownReason.NONE

    def spend(self) -> bool:
        """Count a call of a solver; False, with the reason, when none is left."""
        limit = self.limit
        if limit is not UnknownReason.NONE:
            self.reason = limit
            return False
        self.limits.nodes[0] += 1
        return True

    def falsify_in(self, cells: Cells) -> bool:
        """Write down a witness in a box of cells, if its replay breaks the claim."""
        return self.falsify(point_in_cells(self.query, self.row, *cells))

    def falsify(self, point: FloatArray) -> bool:
        """Write down a witness, if its replay breaks the claim."""
        return mark_falsified(self.query, self.outcomes, self.row, point)

    def mark_unknown(self) -> None:
        """Write down that the row stays open, and why."""
        mark_unknown(self.query, self.outcomes, self.row, self.reason)

    def mark_verified(self) -> None:
        """Write down that no point of the query's own set breaks the claim."""
        mark_verified(self.query, self.outcomes, self.row)


class RowEngine:
    """Engine that decides the alternatives of one row after the other."""

    __slots__ = ()

    name: ClassVar[str]
    is_complete: ClassVar[bool]
    counted: ClassVar[tuple[str, ...]] = ()
    """Names of the row's counts: what the budget's nodes are, and points that were excluded."""
    search_type: ClassVar[type[RowSearch]] = RowSearch

    def refusal(self, query: Query) -> str | None:
        """Every question can be asked; where the answer is not certain, rows stay unknown."""
        del query
        return None

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Decide every row at the query's own radius or box."""
        low, high = query.reach.box(query.rows, query.reach.radius or 0.0)

        def solve(search: Any) -> None:
            self.decide_row(search, cells_of(query, search.row, low[search.row], high[search.row]))

        return self.each_row(query, budget, n_jobs, solve)

    def each_row(
        self, query: Query, budget: Budget, n_jobs: int, solve: Callable[[Any], None]
    ) -> Results:
        """Search every row that is not broken unchanged."""
        counts = np.zeros((len(self.counted), len(query)), dtype=np.int64)

        def solve_row(row: int, outcomes: Results) -> None:
            if is_broken_unchanged(query, row):
                mark_broken(query, outcomes, row)
                return
            search = self.search_type(query, row, outcomes, self._limits(budget))
            solve(search)
            counts[:, row] = (search.nodes, search.excluded)[: len(counts)]

        outcomes = for_each_row(query, n_jobs, solve_row)
        outcomes.statistics.update(zip(self.counted, counts, strict=True))
        return outcomes

    def node_limit(self, budget: Budget) -> int:
        """Nodes that a row may spend."""
        return int(budget.node_limit)

    def _limits(self, budget: Budget) -> Limits:
        deadline = time.perf_counter() + budget.time_limit_s
        nodes = np.array([0, self.node_limit(budget)], dtype=np.int64)
        return Limits(nodes, np.array([deadline]), np.empty(2, dtype=np.int64))

    def decide_row(self, search: Any, cells: Cells) -> None:
        """Decide the alternatives one by one, as long as there is something to spend."""
        is_open = False
        for constraints in search.alternatives:
            verdict = self.decide(search, constraints, cells)
            if verdict is Verdict.FALSIFIED:
                return
            is_open |= verdict is Verdict.UNKNOWN
            if is_open and search.limit is not UnknownReason.NONE:
                break
        if is_open:
            search.mark_unknown()
        else:
            search.mark_verified()

    def decide(self, search: Any, constraints: range, cells: Cells) -> Verdict:
        """Decide one alternative in a box of cells.

        FALSIFIED with a witness written down, UNKNOWN with the reason in the search.
        """
        raise NotImplementedError
