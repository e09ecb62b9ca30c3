"""`combination`: the direct combination of Törnblom and Nadjm-Tehrani, with input splitting.

The values that each tree can reach in a set are added as if the trees did not know of each other;
this is the paper's multi-level bound without levels. Where the sum does not settle the set, the set
is split at a threshold and the parts are bounded again, until one leaf per tree is left, which the
model's own arithmetic judges.
"""

import time
from dataclasses import dataclass
from typing import ClassVar

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
from treeproof.engines.restricted import restricted_to
from treeproof.errors import InvalidInput
from treeproof.kernels.baselines.combination import (
    EXHAUSTED,
    OUT_OF_TIME,
    SINGLE,
    Leaves,
    Parts,
    combine,
)
from treeproof.model.ensemble import IntArray
from treeproof.query.query import Query
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason


@dataclass(frozen=True, slots=True)
class CombinationEngine:
    """Bounds by adding what each tree can reach; with splits, decisions.

    The budget's nodes are splits, too.

    Parameters
    ----------
    splits : int
        How often a set may be split, over all alternatives of a row; 0 for the direct bound.
    """

    splits: int = 0

    name: ClassVar[str] = "combination"
    is_complete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse negative numbers of splits."""
        if isinstance(self.splits, bool) or int(self.splits) != self.splits or self.splits < 0:
            raise InvalidInput(
                f"'splits' of combination must be a whole number >= 0. Got {self.splits!r}."
            )

    def refusal(self, query: Query) -> str | None:
        """Every question can be asked; without enough splits rows stay unknown."""
        del query
        return None

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Decide every row at the query's own radius or box, as far as the splits go."""
        low, high = query.reach.box(query.rows, query.reach.radius or 0.0)
        splits = np.zeros(len(query), dtype=np.int64)

        def solve_row(row: int, outcomes: Results) -> None:
            if is_broken_unchanged(query, row):
                mark_broken(query, outcomes, row)
                return
            box = cells_of(query, row, low[row], high[row])
            splits[row] = self._solve(query, budget, row, box, outcomes)

        outcomes = for_each_row(query, n_jobs, solve_row)
        outcomes.statistics["splits"] = splits
        return outcomes

    def _solve(
        self,
        query: Query,
        budget: Budget,
        row: int,
        box: tuple[IntArray, IntArray],
        outcomes: Results,
    ) -> int:
        """Bound every alternative, splitting where needed; returns the number of splits."""
        ends = time.perf_counter() + budget.time_limit_s
        most = min(self.splits, budget.node_limit)
        used = 0
        for constraints in query.alternatives.of_group(int(query.group[row])):
            leaves = _leaves_of(query, row, constraints, box)
            parts = Parts(
                np.array([box[0]]),
                np.array([box[1]]),
                np.ones(1, dtype=np.int64),
                np.full(1, used, dtype=np.int64),
            )
            low_cell, high_cell = box[0].copy(), box[1].copy()
            while True:
                status, parts = combine(leaves, parts, most, ends, low_cell, high_cell)
                if status != SINGLE:
                    break
                point = point_in_cells(query, row, low_cell, high_cell)
                if mark_falsified(query, outcomes, row, point):
                    return int(parts.n_splits[0])
            used = int(parts.n_splits[0])
            if status != EXHAUSTED:
                mark_unknown(query, outcomes, row, self._reason(budget, status == OUT_OF_TIME))
                return used
        mark_verified(query, outcomes, row)
        return used

    def _reason(self, budget: Budget, is_late: bool) -> UnknownReason:
        if is_late:
            return UnknownReason.TIME_LIMIT
        is_own_limit = self.splits <= budget.node_limit
        return UnknownReason.LOOSE_BOUND if is_own_limit else UnknownReason.NODE_LIMIT


def _leaves_of(
    query: Query, row: int, constraints: range, box: tuple[IntArray, IntArray]
) -> Leaves:
    restricted = restricted_to(query, row, constraints, *box)
    return Leaves(
        restricted.leaf_start,
        restricted.range_start,
        restricted.feature,
        restricted.low,
        restricted.high,
        restricted.gain,
        restricted.excess,
        # Sound: gains are rounded once when scaled; sums over trees are in the floor's slack.
        1e-12,
    )
