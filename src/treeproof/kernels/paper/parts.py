"""The parts of one constraint in a box: trees with a say, and the leaves that each can take."""

from typing import Any, NamedTuple

import numpy as np

from treeproof.kernels.core.compiler import noalloc_kernel
from treeproof.kernels.core.leaves import (
    LeafBuffer,
    gain_of_leaf,
    new_buffer,
    summation_slack,
)
from treeproof.kernels.core.status import FOUND, PROVED
from treeproof.kernels.paper.leaves import Limits, count_node, enter, leave, meets


class Parts(NamedTuple):
    """Trees with a say in group order; in each the leaves that meet the box, largest gain first."""

    begin: np.ndarray  # (n_trees + 2,) int64; first leaf of each part
    end: np.ndarray  # (n_trees + 2,) int64; its last leaf, excluded
    gain: np.ndarray  # (capacity,) float64
    leaf: np.ndarray  # (capacity,) int64; number among the restricted leaves
    row: np.ndarray  # (capacity,) int32; rows of trees.leaf_value, tree by tree, in any order
    tree_start: np.ndarray  # (n_trees + 1,) int64; where the rows of each tree start
    leaf_start: np.ndarray  # the restricted leaves, from here on: see `LeafBuffer`
    leaf_row: np.ndarray
    range_start: np.ndarray
    feature: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Walk(NamedTuple):
    """Scratch of the depth-first search through a group of parts.

    Between searches its box is that of the question.
    """

    low_cell: np.ndarray  # (n_features,) int32; cell box of the path
    high_cell: np.ndarray  # (n_features,) int32
    trail: np.ndarray  # (capacity, 3) int32; narrowings of the path
    trail_start: np.ndarray  # (n_trees + 2,) int64
    position: np.ndarray  # (n_trees + 2,) int64; next leaf to try in each part
    total: np.ndarray  # (n_trees + 2,) float64; gain of the path before each part
    suffix: np.ndarray  # (n_trees + 2,) float64; bound of what the parts from here on can add
    depth: np.ndarray  # (1,) int64; parts chosen so far


class Search(NamedTuple):
    """What rows are bounded with.

    The last entry of `proved` is the number of the alternative that failed last.
    """

    parts: Parts
    walk: Walk
    limits: Limits
    maxima: np.ndarray  # (3, n_trees + 2) float64; maxima of two levels, lower bounds of one
    proved: np.ndarray  # (most_alternatives + 1,) float64; radius to which each is proved
    state: np.ndarray  # (5,) float64; of the search for a radius


def new_search(question: Any, n_leaves: int) -> tuple[LeafBuffer, Search]:
    """Room for so many leaves, and a search in it.

    Not compiled: it is needed once for many rows.
    """
    n_features = question.rows.values.shape[1]
    n_trees, depth = len(question.forest.trees.tree_output), question.forest.space.max_depth
    room = new_buffer(n_trees, n_features, depth, n_leaves, 4 * n_leaves)
    n = n_trees + 2
    parts = Parts(
        begin=np.zeros(n, dtype=np.int64),
        end=np.zeros(n, dtype=np.int64),
        gain=np.empty(n_leaves),
        leaf=np.empty(n_leaves, dtype=np.int64),
        row=np.empty(n_leaves, dtype=np.int32),
        tree_start=np.zeros(n, dtype=np.int64),
        leaf_start=room.leaf_start,
        leaf_row=room.leaf_row,
        range_start=room.range_start,
        feature=room.feature,
        low=room.low,
        high=room.high,
    )
    walk = Walk(
        low_cell=np.empty(n_features, dtype=np.int32),
        high_cell=np.empty(n_features, dtype=np.int32),
        trail=np.empty((n * len(room.path) + 1, 3), dtype=np.int32),
        trail_start=np.zeros(n, dtype=np.int64),
        position=np.zeros(n, dtype=np.int64),
        total=np.empty(n),
        suffix=np.empty(n),
        depth=np.zeros(1, dtype=np.int64),
    )
    limits = Limits(np.zeros(2, dtype=np.int64), np.zeros(1), np.empty(2, dtype=np.int64))
    most_alternatives = int(np.diff(question.claims.group_start).max(initial=0))
    proved = np.empty(most_alternatives + 1)
    return room, Search(parts, walk, limits, np.empty((3, n)), proved, np.empty(5))


@noalloc_kernel
def select_parts(claims, constraint, search):
    """Fill the parts of a constraint: leaves that meet the box, sorted by falling gain.

    Returns the number of parts, and the total gain below which no violation lies.
    """
    parts, walk = search.parts, search.walk
    coefficient = claims.coefficient[constraint]
    n_parts = 0
    n = 0
    for tree in range(len(parts.leaf_start) - 1):
        output = claims.tree_output[tree]
        if output < 0 or coefficient[output] != 0.0:
            parts.begin[n_parts] = n
            for leaf in range(parts.leaf_start[tree], parts.leaf_start[tree + 1]):
                if not meets(parts, leaf, walk.low_cell, walk.high_cell):
                    continue
                parts.row[n] = parts.leaf_row[leaf]
                gain = gain_of_leaf(claims, tree, parts.leaf_row[leaf], coefficient)
                # Insertion: parts are small, and equal gains keep their order.
                at = n
                while at > parts.begin[n_parts] and parts.gain[at - 1] < gain:
                    parts.gain[at] = parts.gain[at - 1]
                    parts.leaf[at] = parts.leaf[at - 1]
                    at -= 1
                parts.gain[at] = gain
                parts.leaf[at] = leaf
                n += 1
            parts.end[n_parts] = n
            n_parts += 1
        parts.tree_start[tree + 1] = n
    return n_parts, floor_of(claims, constraint, parts, n_parts)


@noalloc_kernel
def floor_of(claims, constraint, parts, n_parts):
    """Total gain of the parts below which no violation lies.

    Sound: `summation_slack` bounds the error of the library's sums. Our own sums of n doubles of
    total magnitude m, taken in any order and compared with each other, err by at most
    2 * n * 2**-53 * m each.
    """
    coefficient = claims.coefficient[constraint]
    slack = summation_slack(
        claims, coefficient, claims.start, claims.unit[constraint], parts.tree_start, parts.row
    )
    base = 0.0
    for output in range(len(coefficient)):
        base += coefficient[output] * claims.start[output]
    magnitude = abs(base)
    for part in range(n_parts):
        largest = parts.gain[parts.begin[part]]
        smallest = parts.gain[parts.end[part] - 1]
        magnitude += max(abs(largest), abs(smallest))
    own_rounding = (2 * n_parts + 16) * 2.0**-52 * magnitude
    return claims.need[constraint] - slack - claims.link_slack[constraint] - own_rounding - base


@noalloc_kernel
def keep_order(search, n_parts, options):
    """Arrange parts in the order of the trees, as the paper does.

    Returns the number of parts that are left, and the gain of those left out.
    """
    return n_parts, 0.0


@noalloc_kernel
def start_group(parts, walk, first):
    """Begin a search through the parts from a given one on."""
    walk.depth[0] = 0
    walk.total[0] = 0.0
    walk.trail_start[0] = 0
    walk.position[0] = parts.begin[first]


@noalloc_kernel
def next_clique(search, first, count, least):
    """Go on to the next clique of consecutive parts with a gain above `least`.

    When it is FOUND, its gain is ``walk.total[count]``, and the box is that of all its leaves but
    the last, the one before ``walk.position[count - 1]``. PROVED when there is none left.
    """
    parts, walk = search.parts, search.walk
    depth = walk.depth[0]
    while depth >= 0:
        at = walk.position[depth]
        end = parts.end[first + depth]
        is_last = depth == count - 1
        entered = False
        # Ends: the place moves on.
        while at < end and not entered:
            total = walk.total[depth] + parts.gain[at]
            # Sound: gains fall from here on, and the suffix bounds every continuation.
            if total + walk.suffix[depth + 1] <= least:
                at = end
                break
            if is_last:
                entered = meets(parts, parts.leaf[at], walk.low_cell, walk.high_cell)
            else:
                entered = enter(parts, walk, parts.leaf[at], depth)
            walk.total[depth + 1] = total
            at += 1
        walk.position[depth] = at
        if entered and is_last:
            walk.depth[0] = depth
            return FOUND
        if entered:
            depth += 1
            walk.position[depth] = parts.begin[first + depth]
            status = count_node(search.limits)
            if status != PROVED:
                leave_all(walk, depth)
                return status
        else:
            depth -= 1
            if depth >= 0:
                leave(walk, depth)
    return PROVED


@noalloc_kernel
def leave_all(walk, depth):
    """Undo the narrowings of all choices before a depth."""
    for d in range(depth - 1, -1, -1):
        leave(walk, d)
