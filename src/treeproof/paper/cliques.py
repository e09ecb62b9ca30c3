"""`cliques`: exact answers by enumerating cliques of leaf boxes (the paper's Algorithm 1).

Each point of the set lies in one leaf per tree, and leaves with meeting boxes share a point
(Lemmas 1 and 2), so the cliques are exactly the outcomes that the set can have. Leaves that are
not products of ranges (zero as missing) arrive here already cut into ranges.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.restricted import Cells, Restricted, restricted_to
from treeproof.engines.row_by_row import REASONS, RowEngine
from treeproof.kernels.core.status import FOUND, PROVED
from treeproof.kernels.paper.cliques import Order, Path, next_clique
from treeproof.query.query import Query
from treeproof.results.verdict import Verdict


@dataclass(frozen=True, slots=True)
class CliqueEngine(RowEngine):
    """Exact for few trees or few features; `unknown` when the budget runs out.

    The budget's nodes are partial cliques: sets of leaves of the first k trees that meet.
    """

    name: ClassVar[str] = "cliques"
    is_complete: ClassVar[bool] = True
    counted: ClassVar[tuple[str, ...]] = ("cliques",)

    def decide(self, search: Any, constraints: range, cells: Cells) -> Verdict:
        """Look for a clique that satisfies all constraints of an alternative."""
        restricted, order, path = clique_search(search.query, search.row, constraints, cells)
        arguments = (restricted.leaves, order, path, search.limits)
        while (status := next_clique(*arguments)) == FOUND:
            if search.falsify_in((path.low_cell, path.high_cell)):
                return Verdict.FALSIFIED
            # Within the slack only the model's own arithmetic decides; it says no violation.
            order.sure[:] = np.inf
        if status == PROVED:
            return Verdict.VERIFIED
        search.reason = REASONS[status]
        return Verdict.UNKNOWN


def clique_search(
    query: Query, row: int, constraints: range, cells: Cells
) -> tuple[Restricted, Order, Path]:
    """Prepare a search for the cliques of an alternative in a box of cells."""
    restricted = restricted_to(query, row, constraints, cells, fixes_label=True)
    output = query.ensemble.trees.tree_output
    part = slice(constraints.start, constraints.stop)
    has_say = np.any(query.alternatives.coefficient[part] != 0.0, axis=0)
    speaking, silent, constant = _parts_of(restricted, (output < 0) | has_say[output])
    missing = restricted.floor - restricted.base
    # The slack counts upwards as well: twice its size above the floor nothing is left to it.
    sure = missing + 2.0 * (query.alternatives.need[part] - restricted.floor)
    parts, gain = speaking + silent, restricted.leaves.gain
    suffix = np.zeros((len(gain), len(parts) + 1))
    for number in range(len(parts) - 1, -1, -1):
        suffix[:, number] = suffix[:, number + 1] + gain[:, parts[number]].max(axis=1)
    order = Order(
        part_start=np.cumsum([0] + [len(part) for part in parts]).astype(np.int64),
        leaf=np.concatenate([np.zeros(0, dtype=np.int64), *parts]),
        floor=missing - constant,
        suffix=suffix,
        sure=sure - constant,
        n_speaking=len(speaking),
    )
    longest = int(np.diff(restricted.leaves.range_start).max(initial=0))
    path = Path(
        depth=np.zeros(1, dtype=np.int64),
        position=np.zeros(len(parts) + 1, dtype=np.int64),
        total=np.zeros((len(gain), len(parts) + 1)),
        trail_start=np.zeros(len(parts) + 1, dtype=np.int64),
        trail=np.zeros((len(parts) * longest + 1, 3), dtype=np.int32),
        low_cell=cells[0].copy(),
        high_cell=cells[1].copy(),
    )
    return restricted, order, path


def _parts_of(
    restricted: Restricted, says: NDArray[np.bool_]
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]], NDArray[np.float64]]:
    """Leaves of the trees with a say, and without; gain of trees that are constant in the box.

    Leaves of largest gain come first, so that violations are met early.
    """
    leaf_start, gain = restricted.leaves.leaf_start, restricted.leaves.gain
    constant = np.zeros(len(gain))
    speaking: list[NDArray[np.int64]] = []
    silent: list[NDArray[np.int64]] = []
    for tree in np.flatnonzero(np.diff(leaf_start)):
        numbers = np.arange(leaf_start[tree], leaf_start[tree + 1])
        if says[tree] and len(numbers) == 1:
            constant += gain[:, numbers[0]]
        else:
            falling = numbers[np.argsort(-gain[0, numbers], kind="stable")]
            (speaking if says[tree] else silent).append(falling)
    return speaking, silent, constant
