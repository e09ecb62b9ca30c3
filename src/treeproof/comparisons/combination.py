"""`combination`: the direct combination of Törnblom and Nadjm-Tehrani, with input splitting.

The values that each tree can reach in a set are added as if the trees did not know of each other;
this is the paper's multi-level bound without levels. Where the sum does not settle the set, the set
is split at a threshold and the parts are bounded again, until one leaf per tree is left, which the
model's own arithmetic judges.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from treeproof.engines.base import Budget
from treeproof.engines.restricted import Cells, restricted_to
from treeproof.engines.row_by_row import REASONS, RowEngine
from treeproof.errors import check_integer
from treeproof.kernels.core.status import FOUND, NODE_LIMIT, PROVED
from treeproof.kernels.paper.combination import Boxes, combine
from treeproof.results.verdict import UnknownReason, Verdict


@dataclass(frozen=True, slots=True)
class CombinationEngine(RowEngine):
    """The engine 'combination': bounds by adding what each tree can reach; with splits, decisions.

    To be passed as ``engine=``. The budget's nodes are splits, too.

    Parameters
    ----------
    splits : int
        How often a set may be split, over all alternatives of a row; 0 for the direct bound.
    """

    splits: int = 0

    name: ClassVar[str] = "combination"
    is_complete: ClassVar[bool] = False
    counted: ClassVar[tuple[str, ...]] = ("splits",)

    def __post_init__(self) -> None:
        """Refuse negative numbers of splits."""
        check_integer("splits", self.splits, low=0, of="combination")

    def node_limit(self, budget: Budget) -> int:
        """Splits that a row may spend."""
        return min(int(self.splits), int(budget.node_limit))

    def decide(self, search: Any, constraints: range, cells: Cells) -> Verdict:
        """Bound an alternative, splitting where needed."""
        restricted = restricted_to(search.query, search.row, constraints, cells, fixes_label=True)
        missing = restricted.floor - restricted.base
        boxes = Boxes(
            np.array([cells[0]]),
            np.array([cells[1]]),
            np.ones(1, dtype=np.int64),
            cells[0].copy(),
            cells[1].copy(),
        )
        while True:
            status, boxes = combine(restricted.leaves, missing, boxes, search.limits)
            if status != FOUND:
                break
            if search.falsify_in((boxes.low_cell, boxes.high_cell)):
                return Verdict.FALSIFIED
        if status == PROVED:
            return Verdict.VERIFIED
        is_own_limit = status == NODE_LIMIT and search.nodes >= self.splits
        search.reason = UnknownReason.LOOSE_BOUND if is_own_limit else REASONS[status]
        return Verdict.UNKNOWN
