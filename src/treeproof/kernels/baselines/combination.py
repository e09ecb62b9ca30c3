"""Sums of each tree's best reachable leaf over a box, and over the parts of a box that is split."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.baselines.narrowing import meets
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel

EXHAUSTED, SINGLE, OUT_OF_SPLITS, OUT_OF_TIME = 0, 1, 2, 3
"""Nothing is left; one leaf per tree is left and has to be judged; a limit was reached."""


class Leaves(NamedTuple):
    """Reachable leaves of one alternative; see `treeproof.engines.restricted.Restricted`.

    leaf_start   int64   (n_trees + 1,)
    range_start  int64   (n_leaves + 1,)
    feature      int32   (n_ranges,)
    low, high    int32   (n_ranges,)
    gain         float64 (n_constraints, n_leaves)
    excess       float64 (n_constraints,)
    slack        float64                            bounds below minus this exclude a violation
    """

    leaf_start: np.ndarray
    range_start: np.ndarray
    feature: np.ndarray
    low: np.ndarray
    high: np.ndarray
    gain: np.ndarray
    excess: np.ndarray
    slack: float


class Parts(NamedTuple):
    """Boxes still to be looked at; a stack.

    low, high  int32 (capacity, n_features)
    n_open     int64 (1,)
    n_splits   int64 (1,)   splits so far
    """

    low: np.ndarray
    high: np.ndarray
    n_open: np.ndarray
    n_splits: np.ndarray


@noalloc_kernel
def largest_margin(leaves, constraint, low, high):
    """Excess of a constraint with each tree's best leaf in a box: the direct combination."""
    total = leaves.excess[constraint]
    for tree in range(len(leaves.leaf_start) - 1):
        best = -np.inf
        for leaf in range(leaves.leaf_start[tree], leaves.leaf_start[tree + 1]):
            if leaves.gain[constraint, leaf] > best and meets(leaves, leaf, low, high):
                best = leaves.gain[constraint, leaf]
        if best > -np.inf:
            total += best
    return total


@noalloc_kernel
def choose_split(leaves, low, high):
    """Range entry of a leaf that cuts the box, of the tree whose leaves differ most; -1 if none.

    The leaf is the tree's best one, or its worst where the best spans the box.
    """
    chosen = -1
    widest = -1.0
    for tree in range(len(leaves.leaf_start) - 1):
        best = -1
        worst = -1
        for leaf in range(leaves.leaf_start[tree], leaves.leaf_start[tree + 1]):
            if meets(leaves, leaf, low, high):
                if best < 0 or leaves.gain[0, leaf] > leaves.gain[0, best]:
                    best = leaf
                if worst < 0 or leaves.gain[0, leaf] <= leaves.gain[0, worst]:
                    worst = leaf
        if best == worst or leaves.gain[0, best] - leaves.gain[0, worst] <= widest:
            continue
        entry = cutting_entry(leaves, best, low, high)
        if entry < 0:
            entry = cutting_entry(leaves, worst, low, high)
        if entry >= 0:
            widest = leaves.gain[0, best] - leaves.gain[0, worst]
            chosen = entry
    return chosen


@noalloc_kernel
def cutting_entry(leaves, leaf, low, high):
    """Range of a leaf that does not span the box; -1 when all do."""
    for entry in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
        tested = leaves.feature[entry]
        if leaves.low[entry] > low[tested] or leaves.high[entry] < high[tested]:
            return entry
    return -1


@inner_kernel
def grow_parts(parts):
    """Parts with room for twice as many boxes."""
    size = len(parts.low)
    low = np.empty((2 * size, parts.low.shape[1]), dtype=np.int32)
    high = np.empty((2 * size, parts.low.shape[1]), dtype=np.int32)
    low[:size] = parts.low
    high[:size] = parts.high
    return Parts(low, high, parts.n_open, parts.n_splits)


@kernel
def combine(leaves, parts, most_splits, deadline, box_low, box_high):
    """Go on with the boxes on the stack until none is left, one is to be judged, or a limit.

    most_splits        int64
    deadline           float64  on `seconds_now`
    box_low, box_high  int32 (n_features,)  out: the box to be judged

    Returns
    -------
    status  int    EXHAUSTED, SINGLE, OUT_OF_SPLITS or OUT_OF_TIME
    parts   Parts  what is left, perhaps in larger arrays
    """
    clock = np.empty(2, dtype=np.int64)
    while parts.n_open[0] > 0:
        parts.n_open[0] -= 1
        number = parts.n_open[0]
        box_low[:] = parts.low[number]
        box_high[:] = parts.high[number]
        is_excluded = False
        for constraint in range(len(leaves.excess)):
            if largest_margin(leaves, constraint, box_low, box_high) < -leaves.slack:
                is_excluded = True
                break
        if is_excluded:
            continue
        entry = choose_split(leaves, box_low, box_high)
        if entry < 0:
            return SINGLE, parts
        if parts.n_splits[0] >= most_splits:
            return OUT_OF_SPLITS, parts
        if seconds_now(clock) > deadline:
            return OUT_OF_TIME, parts
        parts.n_splits[0] += 1
        if number + 2 > len(parts.low):
            parts = grow_parts(parts)
        tested = leaves.feature[entry]
        is_above = leaves.low[entry] > box_low[tested]
        cut = leaves.low[entry] - 1 if is_above else leaves.high[entry]
        parts.low[number] = box_low
        parts.high[number] = box_high
        parts.low[number + 1] = box_low
        parts.high[number + 1] = box_high
        # The part with the leaf is taken first: it lies on the way to a violation.
        inside, outside = number + 1, number
        if is_above:
            parts.low[inside, tested] = cut + 1
            parts.high[outside, tested] = cut
        else:
            parts.high[inside, tested] = cut
            parts.low[outside, tested] = cut + 1
        parts.n_open[0] += 2
    return EXHAUSTED, parts
