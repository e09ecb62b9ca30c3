"""`attack`: near violations by descent over leaf tuples; upper bounds with replayed witnesses."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from treeproof.engines.base import Budget
from treeproof.engines.batches import BatchSearch
from treeproof.engines.outcomes import mark_unknown, mark_witnessed
from treeproof.errors import check_integer
from treeproof.kernels.core.status import NODE_LIMIT, TIME_LIMIT
from treeproof.kernels.exact.attack import AttackLimits, attack_batch
from treeproof.kernels.exact.priced_rows import solve_priced
from treeproof.kernels.exact.row import FirstGuess, Limits
from treeproof.query.query import Query
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason

FIRST_MARGIN = 1.5
"""First limit of costs over that from which the best leaves of all trees break a claim."""
_REASONS = {TIME_LIMIT: UnknownReason.TIME_LIMIT, NODE_LIMIT: UnknownReason.NODE_LIMIT}


@dataclass(frozen=True, slots=True)
class AttackEngine:
    """Engine 'attack' with its options: white-box, falsifies rows and never proves them.

    To be passed as ``engine=``; the limit on nodes counts starts. Where changes have prices, starts
    are boxes of the exact search, and there is nothing random.

    Parameters
    ----------
    starts : int
        Starts in a row without success after which the search ends.
    random_state : int
        Seed of the random starts; equal seeds give equal answers.
    """

    starts: int = 150
    random_state: int = 0

    name: ClassVar[str] = "attack"
    is_complete: ClassVar[bool] = False
    answers_prices: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse options that describe no search."""
        check_integer("starts", self.starts, low=1, of="attack")
        check_integer("random_state", self.random_state, low=0, high=2**32 - 1, of="attack")

    def refusal(self, query: Query) -> str | None:
        """Every question can be asked; rows without a violation stay unknown."""
        del query
        return None

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Look for any violation in the query's own ball or box."""
        search = self._attacked(query, budget, n_jobs, asks_radius=False)
        mark_witnessed(query, search.results, np.flatnonzero(search.confirmed))
        for row in np.flatnonzero(~search.skip & ~search.confirmed):
            mark_unknown(query, search.results, int(row), _reason(search, row))
        return search.results

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Find a near violation of every row; the upper bound is its distance."""
        search = self._attacked(query, budget, n_jobs, asks_radius=True)
        # Where something was found there is no reason to give, though attacks prove nothing.
        for row in np.flatnonzero(~search.skip & ~search.confirmed):
            search.results.reason[row] = _reason(search, row)
        return search.results

    def _attacked(
        self, query: Query, budget: Budget, n_jobs: int, *, asks_radius: bool
    ) -> BatchSearch:
        search = BatchSearch(query, asks_radius=asks_radius)
        # Rows start from their own scale, not from that of others: answers must not depend on
        # how rows are cut into blocks.
        limits = AttackLimits(int(self.starts), int(budget.node_limit), float(budget.time_limit_s))
        if query.pricing is None:
            search.run(attack_batch, np.uint64(self.random_state + 1), limits, n_jobs=n_jobs)
        else:
            # The ascents of the exact search, in as many of its boxes as there may be starts.
            boxes = min(self.starts, budget.node_limit)
            few = Limits(budget.time_limit_s, boxes, 2.0**20 * budget.memory_limit_mb, boxes)
            search.run(solve_priced, FirstGuess(0.0, FIRST_MARGIN), few, n_jobs=n_jobs)
        search.finish()
        search.results.lower[~search.skip] = 0.0  # an attack proves nothing
        return search


def _reason(search: BatchSearch, row: np.int64) -> UnknownReason:
    return _REASONS.get(int(search.columns.status[row]), UnknownReason.NO_WITNESS)
