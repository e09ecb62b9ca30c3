"""Restricted leaves, boxes of cells that a search narrows leaf by leaf, and what it may spend.

What is passed as leaves has ``range_start``, ``feature``, ``low`` and ``high`` as `Leaves`; what is
passed as walk has the box ``low_cell``, ``high_cell`` and the ``trail`` of its narrowings with
``trail_start``.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import noalloc_kernel
from treeproof.kernels.core.status import NODE_LIMIT, PROVED, TIME_LIMIT


class Leaves(NamedTuple):
    """Leaves of the trees that matter to an alternative, inside a box."""

    leaf_start: np.ndarray  # (n_trees + 1,) int64; leaves of each tree
    range_start: np.ndarray  # (n_leaves + 1,) int64; ranges of each leaf
    feature: np.ndarray  # (n_ranges,) int32; constrained feature
    low: np.ndarray  # (n_ranges,) int32; its first cell
    high: np.ndarray  # (n_ranges,) int32; its last cell
    gain: np.ndarray  # (n_constraints, n_leaves) float64


class Limits(NamedTuple):
    """What a row may spend."""

    nodes: np.ndarray  # (2,) int64; counted so far, and allowed
    deadline: np.ndarray  # (1,) float64; on `seconds_now`
    clock: np.ndarray  # (2,) int64; scratch


@noalloc_kernel
def count_node(limits):
    """Count a node: PROVED, or the limit that is reached with it."""
    limits.nodes[0] += 1
    if limits.nodes[0] >= limits.nodes[1]:
        return NODE_LIMIT
    if limits.nodes[0] & 1023 == 0 and is_late(limits):
        return TIME_LIMIT
    return PROVED


@noalloc_kernel
def is_late(limits):
    """Whether the deadline has passed."""
    return seconds_now(limits.clock) > limits.deadline[0]


@noalloc_kernel
def enter(leaves, walk, leaf, depth):
    """Narrow the cell box to a leaf; undone, and False, when they do not meet."""
    top = walk.trail_start[depth]
    for r in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
        feature = leaves.feature[r]
        low = walk.low_cell[feature]
        high = walk.high_cell[feature]
        if leaves.low[r] > high or leaves.high[r] < low:
            walk.trail_start[depth + 1] = top
            leave(walk, depth)
            return False
        if leaves.low[r] > low or leaves.high[r] < high:
            walk.trail[top, 0] = feature
            walk.trail[top, 1] = low
            walk.trail[top, 2] = high
            top += 1
            walk.low_cell[feature] = max(low, leaves.low[r])
            walk.high_cell[feature] = min(high, leaves.high[r])
    walk.trail_start[depth + 1] = top
    return True


@noalloc_kernel
def leave(walk, depth):
    """Undo the narrowings of the choice at a depth."""
    for t in range(walk.trail_start[depth + 1] - 1, walk.trail_start[depth] - 1, -1):
        feature = walk.trail[t, 0]
        walk.low_cell[feature] = walk.trail[t, 1]
        walk.high_cell[feature] = walk.trail[t, 2]


@noalloc_kernel
def meets(leaves, leaf, low_cell, high_cell):
    """Whether a leaf meets a box of cells."""
    for r in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
        feature = leaves.feature[r]
        if leaves.low[r] > high_cell[feature] or leaves.high[r] < low_cell[feature]:
            return False
    return True
