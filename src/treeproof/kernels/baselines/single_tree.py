"""The minimal perturbation of a single tree in one walk (the paper's last algorithm).

The walk keeps, per feature, the cells that the path allows, and the distance at which the path is
reached so far; every node costs a constant number of steps. Against the printed algorithm: the
minimum starts at infinity, and a branch is entered only when its cells are not empty.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.baselines.questions import set_cells
from treeproof.kernels.core.balls import cell_distance
from treeproof.kernels.core.cells import CUT, FIXED, cell_of
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import kernel, noalloc_kernel
from treeproof.kernels.core.trees import is_left


class LeafMeaning(NamedTuple):
    """What each leaf does, in the library's own arithmetic.

    accumulator  float64 (n_leaves, n_outputs)  exact values of the rounded sums
    label        int64   (n_leaves,)            class index; -1 for scores
    judgement    int                            0: broken iff the label differs from the group's,
                                                1: iff it equals it, 2: iff a need is met
    group_label  int64   (n_groups,)
    """

    accumulator: np.ndarray
    label: np.ndarray
    judgement: int
    group_label: np.ndarray


class TreeWalk(NamedTuple):
    """Scratch of one walk.

    low, high  int32   (n_features,)            cells of the path
    home       int32   (n_features,)            cell of the row
    stack      int32   (2 * max_depth + 4, 5)   node, path length, feature and its cells
    distance   float64 (2 * max_depth + 4,)     distance of a postponed branch, rounded down
    beyond     bool    (2 * max_depth + 4,)     whether it must be exceeded
    path       int32   (3 * max_depth + 4, 3)   feature, and its cells before
    """

    low: np.ndarray
    high: np.ndarray
    home: np.ndarray
    stack: np.ndarray
    distance: np.ndarray
    beyond: np.ndarray
    path: np.ndarray


@noalloc_kernel
def leaf_breaks(question, meaning, group, leaf):
    """Whether reaching a leaf breaks the claim of a group."""
    if meaning.judgement == 0:
        return meaning.label[leaf] != meaning.group_label[group]
    if meaning.judgement == 1:
        return meaning.label[leaf] == meaning.group_label[group]
    for alternative in range(question.group_start[group], question.group_start[group + 1]):
        constraint = question.alternative_start[alternative]
        gain = 0.0
        for output in range(question.coefficient.shape[1]):
            gain += question.coefficient[constraint, output] * meaning.accumulator[leaf, output]
        if gain >= question.need[constraint]:
            return True
    return False


@noalloc_kernel
def is_farther(distance, beyond, other, other_beyond):
    """Whether a level is larger: the distance first, then whether it must be exceeded."""
    return distance > other or (distance == other and beyond and not other_beyond)


@noalloc_kernel
def range_level(space, question, row, feature, home, low, high):
    """Distance at which a row reaches a range of cells in one feature, and whether beyond it."""
    if not question.is_ball:
        return 0.0, False
    return cell_distance(
        space, feature, low, high, home, question.rows[row, feature],
        (question.down[feature], question.up[feature]),
        (question.low[row, feature], question.high[row, feature]),
    )  # fmt: skip


@noalloc_kernel
def nearest_leaf(trees, space, question, meaning, row, walk, best_low, best_high):
    """Nearest leaf that breaks a row, within the cells in ``walk.low`` and ``walk.high``.

    best_low, best_high  int32 (n_features,)   out: cells of that leaf

    Returns
    -------
    float64, bool
        Its distance rounded down, infinite when there is none; whether it must be exceeded.
    """
    group = question.group[row]
    best = np.inf
    best_beyond = True
    top = 1
    length = 0
    walk.stack[0, 0] = trees.root[0]
    walk.stack[0, 1] = 0
    walk.stack[0, 2] = -1
    walk.distance[0] = 0.0
    walk.beyond[0] = False
    while top > 0:
        top -= 1
        distance = walk.distance[top]
        beyond = walk.beyond[top]
        length = _back(walk, length, walk.stack[top, 1])
        if not is_farther(best, best_beyond, distance, beyond):
            continue
        node = walk.stack[top, 0]
        if walk.stack[top, 2] >= 0:
            length = _forward(
                walk, length, walk.stack[top, 2], walk.stack[top, 3], walk.stack[top, 4]
            )
        while trees.feature[node] >= 0:
            tested = trees.feature[node]
            first = walk.low[tested]
            last = walk.high[tested]
            if first == FIXED:
                value = question.rows[row, tested]
                left = is_left(trees, node, value, question.zero_band)
                node = node + 1 if left else trees.right[node]
                continue
            cut = np.int64(space.nodes[node, CUT])
            flags = trees.flags[node]
            if flags & 2:
                zero_low = space.zero_low[tested]
                zero_high = space.zero_high[tested]
                zero_side = node + 1 if flags & 1 else trees.right[node]
                if first >= zero_low and last <= zero_high:
                    node = zero_side
                    continue
                if last >= zero_low and first <= zero_high:
                    # Zero is on a side of its own: the range is cut in up to three.
                    if first < zero_low:
                        top = _postpone(
                            space, question, row, walk, top, node, length, tested, first,
                            zero_low - 1, distance, beyond,
                        )  # fmt: skip
                    if last > zero_high:
                        top = _postpone(
                            space, question, row, walk, top, node, length, tested, zero_high + 1,
                            last, distance, beyond,
                        )  # fmt: skip
                    top = _postpone(
                        space, question, row, walk, top, zero_side, length, tested,
                        max(first, zero_low), min(last, zero_high), distance, beyond,
                    )  # fmt: skip
                    node = -1
                    break
            if last <= cut:
                node += 1
            elif first > cut:
                node = trees.right[node]
            else:
                # The side of the row itself costs nothing and comes first.
                away, stay = trees.right[node], node + 1
                away_first, away_last, stay_first, stay_last = cut + 1, last, first, cut
                if walk.home[tested] > cut:
                    away, stay = stay, away
                    away_first, away_last, stay_first, stay_last = first, cut, cut + 1, last
                top = _postpone(
                    space, question, row, walk, top, away, length, tested, away_first, away_last,
                    distance, beyond,
                )  # fmt: skip
                length = _forward(walk, length, tested, stay_first, stay_last)
                node = stay
        if node >= 0 and leaf_breaks(question, meaning, group, trees.leaf[node]):
            best = distance
            best_beyond = beyond
            for feature in range(len(best_low)):
                best_low[feature] = walk.low[feature]
                best_high[feature] = walk.high[feature]
    _back(walk, length, 0)
    return best, best_beyond


@noalloc_kernel
def _postpone(
    space, question, row, walk, top, node, length, feature, low, high, distance, beyond
):  # fmt: skip
    """Remember a branch with the distance at which it is reached; unreachable ones are dropped."""
    other, other_beyond = range_level(space, question, row, feature, walk.home[feature], low, high)
    if other == np.inf:
        return top
    if is_farther(other, other_beyond, distance, beyond):
        distance = other
        beyond = other_beyond
    walk.stack[top, 0] = node
    walk.stack[top, 1] = length
    walk.stack[top, 2] = feature
    walk.stack[top, 3] = low
    walk.stack[top, 4] = high
    walk.distance[top] = distance
    walk.beyond[top] = beyond
    return top + 1


@noalloc_kernel
def _forward(walk, length, feature, low, high):
    walk.path[length, 0] = feature
    walk.path[length, 1] = walk.low[feature]
    walk.path[length, 2] = walk.high[feature]
    walk.low[feature] = low
    walk.high[feature] = high
    return length + 1


@noalloc_kernel
def _back(walk, length, target):
    while length > target:
        length -= 1
        walk.low[walk.path[length, 0]] = walk.path[length, 1]
        walk.high[walk.path[length, 0]] = walk.path[length, 2]
    return length


@kernel
def single_tree_rows(
    trees, space, question, meaning, radius, first, last, distance, attained, low, high, seconds
):
    """Nearest breaking leaf of every row.

    radius       float64               largest radius; infinite for the minimal perturbation
    first, last  int                   which rows
    distance     float64 (n_rows,)     out: rounded down; infinite when no leaf breaks the row
    attained     bool    (n_rows,)     out: whether the ball of that very radius reaches the leaf
    low, high    int32   (n_rows, n_features)  out: cells of the leaf
    seconds      float64 (n_rows,)     out
    """
    n_features = question.rows.shape[1]
    depth = space.max_depth
    walk = TreeWalk(
        np.empty(n_features, dtype=np.int32),
        np.empty(n_features, dtype=np.int32),
        np.zeros(n_features, dtype=np.int32),
        np.empty((3 * depth + 4, 5), dtype=np.int32),
        np.empty(3 * depth + 4),
        np.empty(3 * depth + 4, dtype=np.bool_),
        np.empty((3 * depth + 4, 3), dtype=np.int32),
    )
    clock = np.empty(2, dtype=np.int64)
    for row in range(first, last):
        begun = seconds_now(clock)
        set_cells(space, question, row, radius, walk.low, walk.high)
        for feature in question.used:
            walk.home[feature] = cell_of(space, feature, question.rows[row, feature])
        distance[row], beyond = nearest_leaf(
            trees, space, question, meaning, row, walk, low[row], high[row]
        )
        attained[row] = not beyond
        seconds[row] = seconds_now(clock) - begun
