"""Enumerating cliques of leaves: one leaf per tree, all boxes meeting in one cell box.

The paper's Algorithm 1 merges the boxes of tree after tree. Here the same k-cliques are visited
depth first, so the memory is one path instead of all cliques, and a partial clique that cannot
reach the floors any more is dropped with everything above it.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.baselines.narrowing import enter, leave
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import kernel, noalloc_kernel

EXHAUSTED, FOUND, OUT_OF_NODES, OUT_OF_TIME = 0, 1, 2, 3
"""How `next_clique` ended."""


class Parts(NamedTuple):
    """Leaves of the trees to be merged, part after part.

    part_start   int64   (n_parts + 1,)        leaves of each part (tree)
    gain         float64 (n_constraints, n_leaves)
    range_start  int64   (n_leaves + 1,)       ranges of each leaf
    feature      int32   (n_ranges,)           constrained feature
    low, high    int32   (n_ranges,)           first and last cell
    floor        float64 (n_constraints,)      no violation has a total gain below it
    suffix       float64 (n_constraints, n_parts + 1)  largest gain of the parts from here on
    """

    part_start: np.ndarray
    gain: np.ndarray
    range_start: np.ndarray
    feature: np.ndarray
    low: np.ndarray
    high: np.ndarray
    floor: np.ndarray
    suffix: np.ndarray


class Path(NamedTuple):
    """Where the search stands; it continues from here on the next call.

    state        int64   (2,)                  parts chosen so far; partial cliques visited
    position     int64   (n_parts + 1,)        next leaf to try in each part
    total        float64 (n_constraints, n_parts + 1)  gains of the path before each part
    trail_start  int64   (n_parts + 1,)        where the narrowings of each part start
    trail        int32   (capacity, 3)         feature, and its cells before the narrowing
    low_cell     int32   (n_features,)         cell box of the path
    high_cell    int32   (n_features,)
    """

    state: np.ndarray
    position: np.ndarray
    total: np.ndarray
    trail_start: np.ndarray
    trail: np.ndarray
    low_cell: np.ndarray
    high_cell: np.ndarray


@kernel
def next_clique(parts, path, stop_at, sure, node_limit, deadline, clock):
    """Continue the search to the next clique whose totals reach all floors.

    parts       Parts
    path        Path                     in/out; ``position[0]`` starts at the first leaf
    stop_at     int                      after this many parts, totals >= `sure` are enough
    sure        float64 (n_constraints,)
    node_limit  int                      most partial cliques, over all calls
    deadline    float64                  in seconds of `seconds_now`
    clock       int64 (2,)               scratch

    Returns
    -------
    int
        EXHAUSTED, FOUND (``path.state[0]`` parts are chosen, the cell box is the intersection),
        OUT_OF_NODES or OUT_OF_TIME.
    """
    n_parts = len(parts.part_start) - 1
    depth = path.state[0]
    nodes = path.state[1]
    status = EXHAUSTED
    if n_parts == 0:
        # Every tree is constant in the box: the empty clique is the only outcome.
        path.state[1] = 1
        return FOUND if nodes == 0 and _is_sure(path, 0, parts.floor) else EXHAUSTED
    while depth >= 0:
        entered = False
        if depth < n_parts:
            leaf = path.position[depth]
            while leaf < parts.part_start[depth + 1] and not entered:
                entered = _reaches(parts, path, depth, leaf) and enter(parts, path, leaf, depth)
                leaf += 1
            path.position[depth] = leaf
        if not entered:
            # Back to the part before, whose choice is undone.
            depth -= 1
            if depth >= 0:
                leave(path, depth)
            continue
        nodes += 1
        depth += 1
        if depth < n_parts:
            path.position[depth] = parts.part_start[depth]
        if depth == n_parts or (depth == stop_at and _is_sure(path, depth, sure)):
            status = FOUND
        elif nodes >= node_limit:
            status = OUT_OF_NODES
        elif nodes & 1023 == 0 and seconds_now(clock) > deadline:
            status = OUT_OF_TIME
        if status != EXHAUSTED:
            break
    path.state[0] = max(depth, 0)
    path.state[1] = nodes
    return status


@noalloc_kernel
def _is_sure(path, depth, sure):
    """Whether all totals of a path are large enough."""
    for c in range(len(sure)):
        if path.total[c, depth] < sure[c]:
            return False
    return True


@noalloc_kernel
def _reaches(parts, path, depth, leaf):
    """Whether a clique with this leaf can still reach all floors."""
    for c in range(len(parts.floor)):
        # Sound: the suffix is the sum of the largest gains of all later parts.
        total = path.total[c, depth] + parts.gain[c, leaf]
        if total + parts.suffix[c, depth + 1] < parts.floor[c]:
            return False
        path.total[c, depth + 1] = total
    return True


@kernel
def count_cliques(parts, path, sure, clock):
    """Number of cliques of all parts whose totals reach the floors; `path` must be fresh."""
    found = 0
    n_parts = len(parts.part_start) - 1
    while next_clique(parts, path, n_parts, sure, np.int64(2**62), np.inf, clock) == FOUND:
        found += 1
    return found
