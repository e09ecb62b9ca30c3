"""`multilevel`: lower bounds of the radius, level by level (the paper's Algorithm 2).

T trees, then T groups, and so on are merged into one group; after L levels the maxima of all groups
are added (eq. 6), or the best path through them is taken (eq. 7). A bound below the floor proves
the row. The lists of merged boxes are never stored for the sum, see kernels/baselines/groups.py.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from treeproof.engines.base import Budget
from treeproof.engines.instance import rank_space
from treeproof.engines.outcomes import (
    is_broken_unchanged,
    mark_broken,
    mark_unknown,
    mark_verified,
)
from treeproof.engines.questions import in_chunks, question_of
from treeproof.errors import InvalidInput
from treeproof.kernels.baselines.groups import (
    LOOSE,
    OUT_OF_MEMORY,
    OUT_OF_NODES,
    OUT_OF_TIME,
    PROVED,
)
from treeproof.kernels.baselines.multilevel import Options, RowAnswers, search_rows, verify_rows
from treeproof.query.paper_protocol import PaperProtocol
from treeproof.query.query import Query
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict

_REASONS = {
    LOOSE: UnknownReason.LOOSE_BOUND,
    OUT_OF_NODES: UnknownReason.NODE_LIMIT,
    OUT_OF_TIME: UnknownReason.TIME_LIMIT,
    OUT_OF_MEMORY: UnknownReason.MEMORY_LIMIT,
}
_BYTES_PER_STORED = 24  # a stored clique or range: value or cells, and its place in the lists


@dataclass(frozen=True, slots=True)
class MultilevelEngine:
    """Bounds by merging trees level by level; proves rows, never falsifies them.

    Parameters
    ----------
    T : int
        Trees (or groups of the level below) that are merged into one group, at least 2.
    L : int
        Number of levels, at least 1.
    bound : {"sum", "path"}
        How the groups of the last level are combined: eq. 6 or eq. 7 of the paper.
    grouping : {"order", "shared"}
        Consecutive trees, as in the paper, or trees that share features.
    """

    T: int = 2
    L: int = 1
    bound: Literal["sum", "path"] = "sum"
    grouping: Literal["order", "shared"] = "order"

    name: ClassVar[str] = "multilevel"
    is_complete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse options that describe no levels."""
        if isinstance(self.T, bool) or int(self.T) != self.T or self.T < 2:
            raise InvalidInput(f"'T' of multilevel must be a whole number >= 2. Got {self.T!r}.")
        if isinstance(self.L, bool) or int(self.L) != self.L or self.L < 1:
            raise InvalidInput(f"'L' of multilevel must be a whole number >= 1. Got {self.L!r}.")
        if self.bound not in ("sum", "path"):
            raise InvalidInput(
                f"'bound' of multilevel must be 'sum' or 'path'. Got {self.bound!r}."
            )
        if self.grouping not in ("order", "shared"):
            raise InvalidInput(
                f"'grouping' of multilevel must be 'order' or 'shared'. Got {self.grouping!r}."
            )

    def refusal(self, query: Query) -> str | None:
        """Every question can be asked; rows that a point does break stay unknown."""
        del query
        return None

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Prove every row that the bound of some level up to L proves."""
        answers = _empty_answers(len(query))
        call = (
            query.ensemble.trees,
            rank_space(query.ensemble),
            question_of(query, share=self.grouping == "shared"),
        )
        radius = query.reach.radius or 0.0
        options = self._options(budget, all_bounds=True)
        in_chunks(
            len(query), n_jobs, lambda a, b: verify_rows(*call, radius, a, b, options, answers)
        )
        outcomes = _outcomes(query, answers)
        for row in range(len(query)):
            if is_broken_unchanged(query, row):
                mark_broken(query, outcomes, row)
            elif answers.status[row] == PROVED:
                mark_verified(query, outcomes, row)
            else:
                reason = _REASONS[int(answers.status[row])]
                mark_unknown(query, outcomes, row, reason)
        outcomes.statistics["excess"] = answers.excess
        return outcomes

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Largest distance of the finite list that some level up to L proves."""
        answers = _empty_answers(len(query))
        call = (
            query.ensemble.trees,
            rank_space(query.ensemble),
            question_of(query, share=self.grouping == "shared"),
        )
        options = self._options(budget, all_bounds=False)
        in_chunks(
            len(query), n_jobs, lambda a, b: search_rows(*call, np.zeros(0), a, b, options, answers)
        )
        return _radius_outcomes(query, answers)

    def protocol_radius(
        self, query: Query, budget: Budget, protocol: PaperProtocol, *, n_jobs: int = 1
    ) -> Results:
        """Search as the paper does."""
        answers = _empty_answers(len(query))
        call = (
            query.ensemble.trees,
            rank_space(query.ensemble),
            question_of(query, share=self.grouping == "shared"),
        )
        options = self._options(budget, all_bounds=False)
        search = np.array([protocol.first_eps, protocol.steps, protocol.cap], dtype=np.float64)
        in_chunks(
            len(query),
            n_jobs,
            lambda a, b: search_rows(*call, search, a, b, options, answers),
        )
        outcomes = _radius_outcomes(query, answers)
        outcomes.statistics["proved_at_first_eps"] = answers.proved_at_first
        return outcomes

    def _options(self, budget: Budget, *, all_bounds: bool) -> Options:
        return Options(
            clique_size=int(self.T),
            n_levels=int(self.L),
            use_path=self.bound == "path",
            all_bounds=all_bounds,
            node_limit=int(budget.node_limit),
            store_limit=int(budget.memory_limit_mb * 2**20 / _BYTES_PER_STORED),
            time_limit=float(budget.time_limit_s),
        )


def _empty_answers(n_rows: int) -> RowAnswers:
    return RowAnswers(
        status=np.zeros(n_rows, dtype=np.int64),
        level=np.zeros(n_rows, dtype=np.int64),
        nodes=np.zeros(n_rows, dtype=np.int64),
        excess=np.full(n_rows, np.nan),
        lower=np.zeros(n_rows),
        proved_at_first=np.zeros(n_rows, dtype=bool),
        seconds=np.zeros(n_rows),
    )


def _outcomes(query: Query, answers: RowAnswers) -> Results:
    outcomes = Results.empty(len(query), query.rows.shape[1])
    outcomes.seconds[:] = answers.seconds
    outcomes.statistics["level"] = answers.level
    outcomes.statistics["cliques"] = answers.nodes
    return outcomes


def _radius_outcomes(query: Query, answers: RowAnswers) -> Results:
    outcomes = _outcomes(query, answers)
    outcomes.lower[:] = np.where(query.already_broken, 0.0, answers.lower)
    closed = outcomes.lower == np.inf
    outcomes.verdict[closed] = Verdict.VERIFIED
    outcomes.exact[closed] = True
    for status, reason in _REASONS.items():
        outcomes.reason[answers.status == status] = reason
    outcomes.reason[closed] = UnknownReason.NONE
    for row in np.flatnonzero(query.already_broken):
        mark_broken(query, outcomes, int(row))
    return outcomes
