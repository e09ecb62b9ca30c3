"""Leaves that each row's box reaches, and what the worst of every tree add up to.

Boxes and trees stay as they are while leaves are fitted, so which leaves a box reaches is looked up
once. The worst leaves of all trees together bound the worst case, and mostly they are it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.core.cells import BY_RUNS, CUT, FLAGS, NEXT, NOTHING, TESTED, Space

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]

_AT_ONCE = 1 << 18
"""Rows times trees that are looked at in one step, so that memory stays small."""


def sides(
    space: Space, node: NDArray[np.intp], low: IntArray, high: IntArray
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether inner nodes send some cell from `low` to `high` of their feature left, and right."""
    cut = space.nodes[node, CUT].astype(np.int64)
    by_runs = (space.nodes[node, FLAGS] & BY_RUNS) > 0
    n_left = np.clip(cut + 1 - low, 0, high - low + 1)
    if by_runs.any():
        cut, low_, high_ = cut[by_runs], low[by_runs], high[by_runs]
        count, inside = space.runs[cut, 0], np.zeros(len(cut), dtype=np.int64)
        for number in range(1, int(count.max()) + 1):
            runs = space.runs[np.minimum(cut + number, len(space.runs) - 1)]
            common = np.minimum(runs[:, 1], high_) - np.maximum(runs[:, 0], low_) + 1
            inside += np.where(number <= count, np.maximum(common, 0), 0)
        n_left[by_runs] = inside
    return n_left > 0, n_left <= high - low


@dataclass(frozen=True, slots=True)
class WorstLeaves:
    """Of some rows and every tree: the least gain of a leaf, and what a point needs to have it.

    Attributes
    ----------
    total : float64 (n_rows,)
        Sum of the least gains: no point of the row's box has less.
    low, high : int32 (n_rows, n_features)
        The cells that all of these leaves ask for, within the row's box. Where no cell is left
        between them, these leaves are not those of one point.
    """

    total: FloatArray
    low: IntArray
    high: IntArray


class ReachedLeaves:
    """The leaves of every tree that boxes of cells reach.

    Sound: each test of a path is passed by some cell of the box. Of a path that contradicts itself
    the leaf may be among them, though no point reaches it.

    Parameters
    ----------
    space : Space
    root : int32 (n_trees + 1,)
    low, high : int32 (n_rows, n_features)
    """

    def __init__(self, space: Space, root: IntArray, low: IntArray, high: IntArray) -> None:
        self._space, self._low, self._high = space, low, high
        self.n_rows, self.n_trees = len(low), len(root) - 1
        inner = np.flatnonzero(space.nodes[:, TESTED] != NOTHING)
        self._parent = np.full(len(space.nodes), -1, dtype=np.intp)
        self._parent[inner + 1] = self._parent[space.nodes[inner, NEXT]] = inner
        parts = [self._reach(rows, root[:-1].astype(np.intp)) for rows in self._parts()]
        # Place row * n_trees + tree has the leaves from start[place] to start[place + 1].
        self.node = np.concatenate([node for _, node in parts])
        counts = np.concatenate([count for count, _ in parts])
        self._start = np.concatenate([[0], np.cumsum(counts)])

    def _parts(self) -> Iterator[slice]:
        step = max(1, _AT_ONCE // self.n_trees)
        for first in range(0, self.n_rows, step):
            yield slice(first, min(first + step, self.n_rows))

    def _reach(
        self, rows: slice, root: NDArray[np.intp]
    ) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """How many leaves of each tree each row reaches, and which."""
        n_rows, nodes = rows.stop - rows.start, self._space.nodes
        low, high = self._low[rows], self._high[rows]
        place, node = np.arange(n_rows * self.n_trees), np.tile(root, n_rows)
        places, leaves = [], []
        while len(node):
            is_leaf = nodes[node, TESTED] == NOTHING
            places.append(place[is_leaf])
            leaves.append(node[is_leaf])
            place, node = place[~is_leaf], node[~is_leaf]
            row, feature = place // self.n_trees, nodes[node, TESTED].astype(np.intp)
            left, right = sides(self._space, node, low[row, feature], high[row, feature])
            after = nodes[node[right], NEXT].astype(np.intp)
            place = np.concatenate([place[left], place[right]])
            node = np.concatenate([node[left] + 1, after])
        place = np.concatenate(places)
        order = np.argsort(place, kind="stable")
        counts = np.bincount(place, minlength=n_rows * self.n_trees)
        return counts, np.concatenate(leaves)[order].astype(np.int32)

    def worst(self, gains: "Gains", rivals: NDArray[np.intp], *, points: bool) -> WorstLeaves:
        """The leaves with the least gain of a row's own class over a rival.

        rivals  (n_rows,)  a class for each row
        points  bool       whether cells are asked for; otherwise there are none
        """
        low, high = (self._low.copy(), self._high.copy()) if points else (self._low, self._high)
        total = np.empty(self.n_rows)
        for rows in self._parts():
            places = slice(rows.start * self.n_trees, rows.stop * self.n_trees)
            first = self._start[places]
            leaves = slice(first[0], self._start[places.stop])
            counts = np.diff(self._start[places.start : places.stop + 1])
            place = np.repeat(np.arange(len(first)), counts)
            row, tree = np.divmod(place, self.n_trees)
            node = self.node[leaves]
            gain = gains.of(node, tree, row + rows.start, rivals[row + rows.start])
            least = np.minimum.reduceat(gain, first - leaves.start)
            total[rows] = least.reshape(-1, self.n_trees).sum(axis=1)
            if points:
                most = np.maximum.reduceat(gain, first - leaves.start)
                chosen = np.flatnonzero((gain == least[place]) & (most > least)[place])
                _, earliest = np.unique(place[chosen], return_index=True)
                chosen = chosen[earliest]
                self._meet(node[chosen], row[chosen] + rows.start, low, high)
        return WorstLeaves(total, low, high)

    def _meet(
        self, node: NDArray[np.intp], row: NDArray[np.intp], low: IntArray, high: IntArray
    ) -> None:
        """Let rows' cells meet what paths to leaves ask for, in place; runs ask for nothing."""
        nodes = self._space.nodes
        while len(node):
            above = self._parent[node]
            node, row, above = node[above >= 0], row[above >= 0], above[above >= 0]
            feature, cut = nodes[above, TESTED], nodes[above, CUT].astype(np.int32)
            is_plain = (nodes[above, FLAGS] & BY_RUNS) == 0
            goes_left = node == above + 1
            left, right = is_plain & goes_left, is_plain & ~goes_left
            np.minimum.at(high, (row[left], feature[left]), cut[left])
            np.maximum.at(low, (row[right], feature[right]), cut[right] + 1)
            node = above


@dataclass(frozen=True, slots=True)
class Gains:
    """What leaves add to the margin of a row's own class over another one.

    Attributes
    ----------
    table : float64 (n_leaves, width)
    leaf : int32 (n_nodes,)
        Rows of the table, for leaves.
    tree_output : int32 (n_trees,)
        Which sum a tree counts for, where leaves have one value.
    own : int64 (n_rows,)
        The classes of the rows.
    is_signed : bool
        Whether one sum decides between two classes.
    """

    table: FloatArray
    leaf: IntArray
    tree_output: IntArray
    own: NDArray[np.int64]
    is_signed: bool

    def of(
        self,
        node: NDArray[np.intp],
        tree: NDArray[np.intp],
        row: NDArray[np.intp],
        rival: NDArray[np.intp],
    ) -> FloatArray:
        """Gains of leaves, each for a row with a rival."""
        leaf, own = self.leaf[node], self.own[row]
        if self.is_signed:
            return np.where(own == 1, 1.0, -1.0) * self.table[leaf, 0]
        if self.table.shape[1] > 1:
            gain: FloatArray = self.table[leaf, own] - self.table[leaf, rival]
            return gain
        output = self.tree_output[tree]
        return ((output == own) * 1.0 - (output == rival) * 1.0) * self.table[leaf, 0]
