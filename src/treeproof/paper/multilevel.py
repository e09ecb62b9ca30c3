"""`multilevel`: lower bounds of the radius, level by level (the paper's Algorithm 2).

T trees, then T groups, and so on are merged into one group; after L levels the maxima of all groups
are added (eq. 6), or the best path through them is taken (eq. 7). A bound below the floor proves
the row. The lists of merged boxes are never stored for the sum, see kernels/paper/parts.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget
from treeproof.engines.outcomes import (
    is_broken_unchanged,
    mark_broken,
    mark_unknown,
    mark_verified,
)
from treeproof.engines.row_by_row import REASONS
from treeproof.engines.row_questions import in_chunks, question_of
from treeproof.errors import check_choice, check_integer
from treeproof.kernels.core.plain import turns
from treeproof.kernels.core.status import PROVED
from treeproof.kernels.paper.levels import Options
from treeproof.kernels.paper.multilevel import RowAnswers, Task, bound_by_any, bound_by_sums
from treeproof.kernels.paper.parts import new_search
from treeproof.query.paper_protocol import PaperProtocol
from treeproof.query.query import Query
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict

_LEAVES = 4096
"""Leaves that there is room for at first; more is made when a row needs it."""
_BYTES_PER_STORED = 24  # a stored clique or range: value or cells, and its place in the lists


@dataclass(frozen=True, slots=True)
class MultilevelEngine:
    """The engine 'multilevel': bounds by merging trees level by level.

    To be passed as ``engine=``. It proves rows, and never falsifies them.

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
    bound: Literal["sum", "path"] = field(default="sum", kw_only=True)
    grouping: Literal["order", "shared"] = field(default="order", kw_only=True)

    name: ClassVar[str] = "multilevel"
    is_complete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse options that describe no levels."""
        check_integer("T", self.T, low=2, of="multilevel")
        check_integer("L", self.L, low=1, of="multilevel")
        check_choice("bound", self.bound, ("sum", "path"), of="multilevel")
        check_choice("grouping", self.grouping, ("order", "shared"), of="multilevel")

    def refusal(self, query: Query) -> str | None:
        """Every question can be asked; rows that a point does break stay unknown."""
        del query
        return None

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Prove every row that the bound of some level up to L proves."""
        plan = np.array([query.reach.radius or 0.0, 1.0, np.inf])
        outcomes, answers = self._bounds(query, budget, plan, n_jobs, all_bounds=True)
        for row in range(len(query)):
            if is_broken_unchanged(query, row):
                mark_broken(query, outcomes, row)
            elif answers.status[row] == PROVED:
                mark_verified(query, outcomes, row)
            else:
                mark_unknown(query, outcomes, row, REASONS[int(answers.status[row])])
        outcomes.statistics["excess"] = answers.excess
        return outcomes

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Largest distance of the finite list that some level up to L proves."""
        return self._radii(query, budget, np.zeros(0), n_jobs)

    def protocol_radius(
        self, query: Query, budget: Budget, protocol: PaperProtocol, *, n_jobs: int = 1
    ) -> Results:
        """Search as the paper does."""
        plan = np.array([protocol.first_eps, protocol.steps, protocol.cap], dtype=np.float64)
        return self._radii(query, budget, plan, n_jobs)

    def _radii(
        self, query: Query, budget: Budget, plan: NDArray[np.float64], n_jobs: int
    ) -> Results:
        outcomes, answers = self._bounds(query, budget, plan, n_jobs, all_bounds=False)
        outcomes.lower[:] = answers.lower
        is_proved = answers.lower == np.inf
        outcomes.verdict[is_proved] = Verdict.VERIFIED
        outcomes.exact[is_proved] = True
        for status, reason in REASONS.items():
            outcomes.reason[answers.status == status] = reason
        outcomes.reason[is_proved] = UnknownReason.NONE
        if len(plan):
            outcomes.statistics["proved_at_first_eps"] = answers.proved_at_first
        mark_broken(query, outcomes, np.flatnonzero(query.already_broken))
        return outcomes

    def _bounds(
        self,
        query: Query,
        budget: Budget,
        plan: NDArray[np.float64],
        n_jobs: int,
        *,
        all_bounds: bool,
    ) -> tuple[Results, RowAnswers]:
        """Bound every row; `plan` says which radii are tried (kernels/paper/multilevel.py)."""
        n_rows = len(query)
        answers = RowAnswers(
            status=np.zeros(n_rows, dtype=np.int64),
            level=np.zeros(n_rows, dtype=np.int64),
            nodes=np.zeros(n_rows, dtype=np.int64),
            excess=np.full(n_rows, np.nan),
            lower=np.zeros(n_rows),
            proved_at_first=np.zeros(n_rows, dtype=bool),
            seconds=np.zeros(n_rows),
        )
        options = Options(
            plan=plan,
            clique_size=int(self.T),
            n_levels=int(self.L),
            shares=self.grouping == "shared",
            uses_paths=self.bound == "path",
            all_bounds=all_bounds,
            node_limit=int(budget.node_limit),
            store_limit=int(budget.memory_limit_mb * 2**20 / _BYTES_PER_STORED),
            time_limit=float(budget.time_limit_s),
        )
        question = question_of(query)
        is_plain = not (options.shares or options.uses_paths)
        bound: Callable[..., int] = bound_by_sums if is_plain else bound_by_any

        def run(part: slice) -> None:
            for turn in turns(bound, part):
                row, n_leaves = turn.start, _LEAVES
                while row < turn.stop:
                    task = Task(question, options, *new_search(question, n_leaves), answers)
                    row = bound(task, row, turn.stop)
                    n_leaves *= 2

        in_chunks(query, n_jobs, run)
        outcomes = Results.empty(n_rows, query.rows.shape[1])
        outcomes.seconds[:] = answers.seconds
        outcomes.statistics |= {"level": answers.level, "cliques": answers.nodes}
        return outcomes, answers
