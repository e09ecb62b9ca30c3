"""The minimal perturbation of a single tree in one walk (the paper's last algorithm).

The walk keeps, per feature, the cells that the path allows, and the distance at which the path is
reached so far; every node costs a constant number of steps. Against the printed algorithm: the
minimum starts at infinity, and a branch is entered only when its cells are not empty.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.balls import cell_distance
from treeproof.kernels.core.cells import BY_RUNS, FIXED, FLAGS, cell_of, part_of
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import kernel, noalloc_kernel
from treeproof.kernels.core.trees import is_left
from treeproof.kernels.paper.questions import set_cells


class NearestLeaves(NamedTuple):
    """Nearest leaf that breaks each row."""

    distance: np.ndarray  # (n_rows,) float64; rounded down; infinite when no leaf breaks the row
    attained: np.ndarray  # (n_rows,) bool; whether the ball of that very radius reaches the leaf
    low: np.ndarray  # (n_rows, n_features) int32; cells of the leaf
    high: np.ndarray  # (n_rows, n_features) int32
    seconds: np.ndarray  # (n_rows,) float64


class TreeWalk(NamedTuple):
    """Scratch of one walk; stack, level and path have room for 3 * max_depth + 4 entries.

    A distance is rounded down, and followed by 1 where it must be exceeded.
    """

    low: np.ndarray  # (n_features,) int32; cells of the path
    high: np.ndarray  # (n_features,) int32
    home: np.ndarray  # (n_features,) int32; cell of the row
    stack: np.ndarray  # (size, 5) int64; node, path length, feature and its cells
    level: np.ndarray  # (size, 2) float64; distance of a postponed branch
    path: np.ndarray  # (size, 3) int32; feature, and its cells before
    size: np.ndarray  # (2,) int64; of the stack, and of the path
    here: np.ndarray  # (2,) float64; distance of the current branch


_STACK, _PATH = 0, 1


@noalloc_kernel
def is_farther(distance, beyond, other, other_beyond):
    """Whether a level is larger: the distance first, then whether it must be exceeded."""
    return distance > other or (distance == other and beyond > other_beyond)


@noalloc_kernel
def nearest_leaf(question, is_breaking, row, walk, best_low, best_high):
    """Nearest leaf that breaks a row, within the cells in ``walk.low`` and ``walk.high``.

    is_breaking          bool  (n_leaves,)     leaves that break its claim
    best_low, best_high  int32 (n_features,)   out: cells of that leaf

    Returns its distance, infinite when there is none, as in `TreeWalk`.
    """
    best = np.inf
    best_beyond = 1.0
    root = np.int64(question.forest.trees.root[0])
    _push(walk, root, np.int64(-1), np.int64(0), np.int64(0), 0.0, 0.0)
    while walk.size[_STACK] > 0:
        walk.size[_STACK] -= 1
        top = walk.size[_STACK]
        _back(walk, walk.stack[top, 1])
        copy_into(walk.here, walk.level[top])
        if not is_farther(best, best_beyond, walk.here[0], walk.here[1]):
            continue
        if walk.stack[top, 2] >= 0:
            _forward(walk, walk.stack[top, 2], walk.stack[top, 3], walk.stack[top, 4])
        leaf = _descend(question, row, walk, walk.stack[top, 0])
        if leaf >= 0 and is_breaking[leaf]:
            best = walk.here[0]
            best_beyond = walk.here[1]
            copy_into(best_low, walk.low)
            copy_into(best_high, walk.high)
    _back(walk, np.int64(0))
    return best, best_beyond


@noalloc_kernel
def _descend(question, row, walk, node):
    """Follow the row from a node; branches away from it are postponed.

    Returns the leaf, or -1 where a node divides a range into many parts and all are postponed.
    """
    (trees, space, semantics), rows = question.forest, question.rows
    while trees.feature[node] >= 0:
        tested = np.int64(trees.feature[node])
        left, right = node + 1, np.int64(trees.right[node])
        first = np.int64(walk.low[tested])
        last = np.int64(walk.high[tested])
        if first == FIXED:
            goes_left = is_left(trees, node, rows.values[row, tested], semantics.zero_band)
            node = left if goes_left else right
            continue
        goes_left, end = part_of(space, node, first, last)
        if end == last:
            node = left if goes_left else right
        elif space.nodes[node, FLAGS] & BY_RUNS:
            # Ends: each part begins behind the one before.
            while first <= last:
                goes_left, end = part_of(space, node, first, last)
                _postpone(question, row, walk, left if goes_left else right, tested, first, end)
                first = end + 1
            return -1
        elif walk.home[tested] > end:
            # The side of the row itself costs nothing and comes first.
            _postpone(question, row, walk, left, tested, first, end)
            _forward(walk, tested, end + 1, last)
            node = right
        else:
            _postpone(question, row, walk, right, tested, end + 1, last)
            _forward(walk, tested, first, end)
            node = left
    return trees.leaf[node]


@noalloc_kernel
def _postpone(question, row, walk, node, feature, low, high):
    """Remember a branch with the distance at which it is reached, unless nothing reaches it."""
    rows = question.rows
    distance, is_beyond = 0.0, False
    if rows.is_ball and low <= high:
        distance, is_beyond = cell_distance(
            question.forest.space, feature, low, high, walk.home[feature],
            rows.values[row, feature], (rows.down[feature], rows.up[feature]),
            (rows.low[row, feature], rows.high[row, feature]),
        )  # fmt: skip
    if distance == np.inf or low > high:
        return
    beyond = 1.0 if is_beyond else 0.0
    if is_farther(walk.here[0], walk.here[1], distance, beyond):
        distance = walk.here[0]
        beyond = walk.here[1]
    _push(walk, node, feature, low, high, distance, beyond)


@noalloc_kernel
def _push(walk, node, feature, low, high, distance, beyond):
    top = walk.size[_STACK]
    walk.stack[top, 0] = node
    walk.stack[top, 1] = walk.size[_PATH]
    walk.stack[top, 2] = feature
    walk.stack[top, 3] = low
    walk.stack[top, 4] = high
    walk.level[top, 0] = distance
    walk.level[top, 1] = beyond
    walk.size[_STACK] += 1


@noalloc_kernel
def _forward(walk, feature, low, high):
    """Enter a range of cells."""
    length = walk.size[_PATH]
    walk.path[length, 0] = feature
    walk.path[length, 1] = walk.low[feature]
    walk.path[length, 2] = walk.high[feature]
    walk.low[feature] = low
    walk.high[feature] = high
    walk.size[_PATH] += 1


@noalloc_kernel
def _back(walk, length):
    """Leave ranges until the path has a given length."""
    # Ends: the path gets shorter.
    while walk.size[_PATH] > length:
        walk.size[_PATH] -= 1
        step = walk.size[_PATH]
        walk.low[walk.path[step, 0]] = walk.path[step, 1]
        walk.high[walk.path[step, 0]] = walk.path[step, 2]


def new_walk(n_features: int, max_depth: int) -> TreeWalk:
    """Scratch; not compiled, because a call for many rows needs it once."""
    size = 3 * max_depth + 4
    return TreeWalk(
        low=np.empty(n_features, dtype=np.int32),
        high=np.empty(n_features, dtype=np.int32),
        home=np.zeros(n_features, dtype=np.int32),
        stack=np.empty((size, 5), dtype=np.int64),
        level=np.empty((size, 2)),
        path=np.empty((size, 3), dtype=np.int32),
        size=np.zeros(2, dtype=np.int64),
        here=np.empty(2),
    )


@kernel
def single_tree_rows(question, is_breaking, radius, walk, first, last, out):
    """Nearest breaking leaf of rows first to last.

    is_breaking  bool (n_groups, n_leaves)  leaves that break the claim of each group
    radius       float64                    largest one; infinite for the minimal perturbation
    walk         TreeWalk                   scratch
    out          NearestLeaves              out
    """
    space, rows = question.forest.space, question.rows
    clock = np.empty(2, dtype=np.int64)
    for row in range(first, last):
        begun = seconds_now(clock)
        set_cells(space, rows, row, radius, walk.low, walk.high)
        for feature in rows.used:
            walk.home[feature] = cell_of(space, feature, rows.values[row, feature])
        out.distance[row], beyond = nearest_leaf(
            question, is_breaking[rows.group[row]], row, walk, out.low[row], out.high[row]
        )
        out.attained[row] = beyond == 0.0
        out.seconds[row] = seconds_now(clock) - begun
