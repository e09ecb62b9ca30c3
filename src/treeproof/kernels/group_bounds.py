"""Upper bounds of the total gain from groups of trees (the paper's section 3.3).

A group's maximum is the largest gain of its cliques: one leaf per tree, all boxes meeting. The sum
over groups bounds every clique of all trees (eq. 6); the best path through groups whose neighbours
meet is a tighter bound (eq. 7). The pseudo nodes of Algorithm 2 are visited depth first instead of
being stored, since only the maximum of a group enters the sum; levels are nested, so the maxima of
one level bound the search of the next.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.clock import seconds_now
from treeproof.kernels.compiler import noalloc_kernel
from treeproof.kernels.narrowing import enter, leave, meets

PROVED, LOOSE, OUT_OF_NODES, OUT_OF_TIME, OUT_OF_MEMORY = 0, 1, 2, 3, 4
"""How a row, one constraint of it, or one step ended."""


class Parts(NamedTuple):
    """Trees with a say in group order; in each the leaves that meet the box, largest gain first.

    part_start   int64   (n_parts + 1,)
    gain         float64 (n_leaves,)
    leaf         int64   (n_leaves,)     its number among the restricted leaves
    range_start  int64   (n_all + 1,)    ranges of the restricted leaves
    feature      int32   (n_ranges,)
    low, high    int32   (n_ranges,)
    """

    part_start: np.ndarray
    gain: np.ndarray
    leaf: np.ndarray
    range_start: np.ndarray
    feature: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Walk(NamedTuple):
    """Scratch of the depth-first search, and what it may spend.

    low_cell, high_cell  int32 (n_features,)   cell box of the path; the box of the question between
                                               searches
    trail                int32 (capacity, 3)   narrowings of the path
    trail_start          int64 (n_trees + 2,)
    position             int64 (n_trees + 1,)
    total                float64 (n_trees + 1,)
    suffix               float64 (n_trees + 1,)
    nodes                int64 (2,)            partial cliques visited, and allowed
    clock                int64 (2,)
    """

    low_cell: np.ndarray
    high_cell: np.ndarray
    trail: np.ndarray
    trail_start: np.ndarray
    position: np.ndarray
    total: np.ndarray
    suffix: np.ndarray
    nodes: np.ndarray
    clock: np.ndarray


@noalloc_kernel
def group_maximum(parts, walk, first_part, n_parts, best, stop_at_first, deadline):
    """Largest gain of the cliques of consecutive parts; ``walk.suffix`` bounds what is to come.

    first_part, n_parts  int       the group
    best                 float64   only larger gains are looked for; returned when there is none
    stop_at_first        bool      return the first clique found: a lower bound, quickly
    deadline             float64

    Returns
    -------
    float64, bool
        The maximum, and whether the search was finished within its limits.
    """
    depth = np.int64(0)
    walk.total[0] = 0.0
    walk.trail_start[0] = 0
    walk.position[0] = parts.part_start[first_part]
    is_finished = True
    while depth >= 0:
        end = parts.part_start[first_part + depth + 1]
        at = walk.position[depth]
        is_last = depth == n_parts - 1
        entered = False
        while at < end and not entered:
            total = walk.total[depth] + parts.gain[at]
            # Sound: gains fall from here on, and the suffix bounds every continuation.
            if total + walk.suffix[depth + 1] <= best:
                at = end
            elif not is_last:
                entered = enter(parts, walk, parts.leaf[at], depth)
                walk.total[depth + 1] = total
                at += 1
            elif meets(parts, parts.leaf[at], walk.low_cell, walk.high_cell):
                best = total
                at = end
                is_finished = not stop_at_first
            else:
                at += 1
        walk.position[depth] = at
        if entered:
            depth += 1
            walk.position[depth] = parts.part_start[first_part + depth]
            walk.nodes[0] += 1
            if walk.nodes[0] >= walk.nodes[1] or (
                walk.nodes[0] & 1023 == 0 and seconds_now(walk.clock) > deadline
            ):
                _leave_all(walk, depth)
                return best, False
        elif not is_finished:
            _leave_all(walk, depth)
            return best, True
        else:
            depth -= 1
            if depth >= 0:
                leave(walk, depth)
    return best, True


@noalloc_kernel
def _leave_all(walk, depth):
    for d in range(depth - 1, -1, -1):
        leave(walk, d)
