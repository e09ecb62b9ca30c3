"""Sums of each tree's best reachable leaf over a box, and over the parts of a box that is split."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into, grow_table
from treeproof.kernels.core.compiler import kernel, noalloc_kernel
from treeproof.kernels.core.status import FOUND, NODE_LIMIT, PROVED, TIME_LIMIT
from treeproof.kernels.paper.leaves import is_late, meets


class Boxes(NamedTuple):
    """Boxes still to be looked at, as a stack, and the one that is."""

    low: np.ndarray  # (capacity, n_features) int32
    high: np.ndarray  # (capacity, n_features) int32
    n_open: np.ndarray  # (1,) int64
    low_cell: np.ndarray  # (n_features,) int32; the box that is looked at
    high_cell: np.ndarray  # (n_features,) int32


@noalloc_kernel
def is_excluded_by_sums(leaves, missing, low, high):
    """Whether some constraint fails even with each tree's best leaf in a box (eq. 6, unmerged).

    missing  float64 (n_constraints,)   what the leaves must add to

    Sound: the floor in what is missing allows for the rounding of these sums.
    """
    for constraint in range(len(missing)):
        total = 0.0
        for tree in range(len(leaves.leaf_start) - 1):
            best = -np.inf
            for leaf in range(leaves.leaf_start[tree], leaves.leaf_start[tree + 1]):
                if leaves.gain[constraint, leaf] > best and meets(leaves, leaf, low, high):
                    best = leaves.gain[constraint, leaf]
            if best > -np.inf:
                total += best
        if total < missing[constraint]:
            return True
    return False


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


@kernel
def combine(leaves, missing, boxes, limits):
    """Go on with the boxes on the stack until none is left, one is to be judged, or a limit.

    missing  float64 (n_constraints,)   what the leaves must add to
    limits   Limits                     nodes are splits

    Returns the status, where FOUND says that one leaf per tree is left in the current box, and the
    boxes that are left, perhaps in larger arrays.
    """
    low, high = boxes.low_cell, boxes.high_cell
    # Ends: each box is split into smaller ones, and counted.
    while boxes.n_open[0] > 0:
        boxes.n_open[0] -= 1
        number = boxes.n_open[0]
        copy_into(low, boxes.low[number])
        copy_into(high, boxes.high[number])
        if is_excluded_by_sums(leaves, missing, low, high):
            continue
        entry = choose_split(leaves, low, high)
        if entry < 0:
            return FOUND, boxes
        if limits.nodes[0] >= limits.nodes[1]:
            return NODE_LIMIT, boxes
        if is_late(limits):
            return TIME_LIMIT, boxes
        limits.nodes[0] += 1
        if number + 2 > len(boxes.low):
            rows = np.int64(number + 2)
            boxes = Boxes(
                grow_table(boxes.low, rows), grow_table(boxes.high, rows), boxes.n_open, low, high
            )
        # The part with the leaf is taken first: it lies on the way to a violation.
        for part in range(number, number + 2):
            copy_into(boxes.low[part], low)
            copy_into(boxes.high[part], high)
        tested = leaves.feature[entry]
        if leaves.low[entry] > low[tested]:
            boxes.low[number + 1, tested] = leaves.low[entry]
            boxes.high[number, tested] = leaves.low[entry] - 1
        else:
            boxes.high[number + 1, tested] = leaves.high[entry]
            boxes.low[number, tested] = leaves.high[entry] + 1
        boxes.n_open[0] += 2
    return PROVED, boxes
