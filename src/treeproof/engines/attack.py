"""`attack`: near violations by descent over leaf tuples; upper bounds with replayed witnesses."""

from dataclasses import dataclass
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
from treeproof.errors import InvalidInput
from treeproof.kernels.core.status import NODE_LIMIT, TIME_LIMIT
from treeproof.kernels.exact.attack import AttackLimits, attack_batch
from treeproof.kernels.exact.row import Columns
from treeproof.query.query import Query
from treeproof.results.outcomes import Outcomes
from treeproof.results.verdict import UnknownReason, Verdict

_REASONS = {TIME_LIMIT: UnknownReason.TIME_LIMIT, NODE_LIMIT: UnknownReason.NODE_LIMIT}


@dataclass(frozen=True, slots=True)
class AttackEngine:
    """White-box attack; falsifies rows, never proves them.

    The budget's nodes are starts.

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

    def __post_init__(self) -> None:
        """Refuse options that describe no search."""
        if isinstance(self.starts, bool) or int(self.starts) != self.starts or self.starts < 1:
            raise InvalidInput(
                f"'starts' of attack must be a whole number >= 1. Got {self.starts!r}."
            )
        if not 0 <= self.random_state < 2**32:
            raise InvalidInput(
                "'random_state' of attack must be a whole number from 0 to 2**32 - 1."
                f" Got {self.random_state!r}."
            )

    def refusal(self, query: Query) -> str | None:
        """Every question can be asked; rows without a violation stay unknown."""
        del query
        return None

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Outcomes:
        """Look for any violation in the query's own ball or box."""
        sides = query.reach.box(query.rows, query.reach.radius or 0.0)
        columns, skip, is_confirmed = self._attack(query, budget, sides, n_jobs, is_ball=False)
        outcomes = common_outcomes(query, columns, skip, is_confirmed)
        is_ball = query.reach.is_ball
        outcomes.lower[~skip] = 0.0 if is_ball else np.nan
        outcomes.upper[~skip] = np.inf if is_ball else np.nan
        for row in np.flatnonzero(~skip):
            if is_confirmed[row]:
                outcomes.verdict[row] = Verdict.FALSIFIED
                outcomes.exact[row] = outcomes.attained[row] = True
                if is_ball:
                    # The witness may lie one float outside a ball of real numbers.
                    radius = query.reach.radius or 0.0
                    outcomes.upper[row] = min(radius, outcomes.witness_distance[row])
            else:
                outcomes.reason[row] = _reason(columns, int(row))
        return outcomes

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Outcomes:
        """Find a near violation of every row; the upper bound is its distance."""
        sides = query.reach.low, query.reach.high
        columns, skip, is_confirmed = self._attack(query, budget, sides, n_jobs, is_ball=True)
        outcomes = common_outcomes(query, columns, skip, is_confirmed)
        for row in np.flatnonzero(~skip):
            outcomes.reason[row] = _reason(columns, int(row))
            if is_confirmed[row]:
                outcomes.upper[row] = columns.upper[row]
                outcomes.attained[row] = not columns.is_open[row]
                outcomes.reason[row] = UnknownReason.NONE  # found; attacks prove nothing
        return outcomes

    def _attack(
        self,
        query: Query,
        budget: Budget,
        sides: Sides,
        n_jobs: int,
        *,
        is_ball: bool,
    ) -> tuple[Columns, NDArray[np.bool_], NDArray[np.bool_]]:
        columns, skip = empty_columns(query), broken_rows(query)
        forest, alternatives = forest_of(query), single_constraints(query)
        batch = batch_of(query, sides, skip)
        limits = AttackLimits(int(self.starts), int(budget.node_limit), float(budget.time_limit_s))
        seed = np.uint64(self.random_state + 1)

        def run(part: slice) -> None:
            rows, found = part_of_batch(batch, part), part_of(columns, part)
            attack_batch(forest, alternatives, rows, is_ball, seed, limits, found)

        # Rows start from their own scale, not from that of others: answers must not depend on
        # how rows are cut into blocks.
        replays = Replays(query, columns, skip, asks_radius=is_ball)
        in_batches(len(query), n_jobs, replays.after(run))
        return columns, skip, replays.finished()


def _reason(columns: Columns, row: int) -> UnknownReason:
    return _REASONS.get(int(columns.status[row]), UnknownReason.NO_WITNESS)


def attack(starts: int = 150, *, random_state: int = 0) -> AttackEngine:
    """Options of the engine 'attack', to be passed as ``engine=``.

    Parameters
    ----------
    starts : int
        Starts in a row without success after which the search ends.
    random_state : int
        Seed of the random starts; equal seeds give equal answers.

    Returns
    -------
    AttackEngine
        The engine with these options.
    """
    return AttackEngine(starts=starts, random_state=random_state)
