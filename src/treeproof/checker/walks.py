"""Leaves of trees as products of runs of atoms, of rows and of pairs of rows."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from treeproof.checker.forest import Pieces

Range = tuple[int, int]
Run = tuple[int, int, bool]
"""First and last atom, and whether a node sends them left."""


def runs_of(sides: list[bool]) -> list[Run]:
    """The runs of atoms that a node sends to the same side, from the side of every atom."""
    ends = [atom for atom in range(1, len(sides)) if sides[atom] != sides[atom - 1]]
    return [
        (first, end - 1, sides[first])
        for first, end in zip([0, *ends], [*ends, len(sides)], strict=True)
    ]


def pieces_of(found: list[list[tuple[int, dict[int, Range]]]]) -> Pieces:
    """Leaves with their ranges, tree by tree, as pieces of one row."""
    tree = np.repeat(np.arange(len(found)), [len(leaves) for leaves in found])
    leaf = np.array([number for leaves in found for number, _ in leaves], dtype=np.int64)
    ranges = [ranges for leaves in found for _, ranges in leaves]
    entries = [
        (n, axis, *part) for n, own in enumerate(ranges) for axis, part in sorted(own.items())
    ]
    table = np.array(entries, dtype=np.int64).reshape(-1, 4).T
    return Pieces(np.zeros_like(tree), tree, leaf, *table)


class Pair(NamedTuple):
    """A leaf of each row, as nodes, and the cells of the columns that lead there."""

    one: int
    other: int
    ranges: dict[int, Range]


class Walk:
    """Walks down trees with one row, or with two that have some axes in common.

    axis, runs   of each node, what it tests, and the runs of atoms that it sends to either side
    box          first and last atom of each axis
    column       by axis, that of the second row where it has its own
    relation     by axis and atom of the first row, the range of those of the second one
    """

    def __init__(
        self, trees: Any, axis: list[int], runs: dict[int, list[Run]], box: dict[int, Range]
    ) -> None:
        self.trees, self.axis, self.runs, self.box = trees, axis, runs, box
        self.column: dict[int, int] = {}
        self.relation: dict[int, list[Range]] = {}
        self.is_difference = False  # equal leaves of both rows add nothing
        self.is_below = np.ones(len(axis), dtype=bool)  # nodes below which the rows may part

    def leaves(self, tree: int) -> Iterator[Pair]:
        """Pairs of leaves of a tree; together they hold every pair of rows."""
        trees = self.trees
        waiting: list[Pair] = [Pair(int(trees.root[tree]), int(trees.root[tree]), {})]
        while waiting:
            pair = waiting.pop()
            is_same = pair.one == pair.other and self.is_difference
            is_end = trees.feature[pair.one] < 0 and trees.feature[pair.other] < 0
            if is_end or (is_same and not self.is_below[pair.one]):
                yield pair
            else:
                waiting += self._children(pair)

    def _children(self, pair: Pair) -> Iterator[Pair]:
        trees = self.trees
        moves_one = trees.feature[pair.one] >= 0
        node = pair.one if moves_one else pair.other
        feature = self.axis[node]
        second = self.column.get(feature, feature)
        is_joined = pair.one == pair.other
        for low, high, left in self.runs[node]:
            child = node + 1 if left else int(trees.right[node])
            column = feature if moves_one else second
            ranges = self._narrowed(pair.ranges, column, low, high)
            if ranges is None:
                continue
            if not is_joined or second == feature:
                one = child if moves_one else pair.one
                other = child if is_joined or not moves_one else pair.other
                if self._are_related(feature, ranges):
                    yield Pair(one, other, ranges)
                continue
            for least, most, is_left in self.runs[node]:
                both = self._narrowed(ranges, second, least, most)
                if both is not None and self._are_related(feature, both):
                    yield Pair(child, node + 1 if is_left else int(trees.right[node]), both)

    def _narrowed(
        self, ranges: dict[int, Range], column: int, low: int, high: int
    ) -> dict[int, Range] | None:
        first, last = ranges.get(column, self.box[column])
        low, high = max(low, first), min(high, last)
        if low > high:
            return None
        return ranges if (low, high) == (first, last) else ranges | {column: (low, high)}

    def _are_related(self, feature: int, ranges: dict[int, Range]) -> bool:
        """Whether some cells of both copies go together; the ends of what does rise."""
        if feature not in self.relation:
            return True
        table = self.relation[feature]
        one = ranges.get(feature, self.box[feature])
        other = ranges.get(self.column[feature], self.box[self.column[feature]])
        return table[one[0]][0] <= other[1] and table[one[1]][1] >= other[0]
