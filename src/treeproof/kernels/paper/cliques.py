"""Enumerating cliques of leaves: one leaf per tree, all boxes meeting in one cell box.

The paper's Algorithm 1 merges the boxes of tree after tree. Here the same k-cliques are visited
depth first, so the memory is one path instead of all cliques, and a partial clique that cannot
reach the floors any more is dropped with everything above it.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.compiler import kernel, noalloc_kernel
from treeproof.kernels.core.status import FOUND, PROVED
from treeproof.kernels.paper.leaves import count_node, enter, leave


class Order(NamedTuple):
    """In which order leaves are tried, and what they must reach."""

    part_start: np.ndarray  # (n_parts + 1,) int64; a part is a tree with more than one leaf
    leaf: np.ndarray  # (n,) int64; leaves of each part
    floor: np.ndarray  # (n_constraints,) float64; no violation has a total gain below it
    suffix: np.ndarray  # (n_constraints, n_parts + 1) float64; largest gain from a part on
    sure: np.ndarray  # (n_constraints,) float64; totals from which a violation is certain
    n_speaking: int  # parts that have a say; those after them are left out of sure totals


class Path(NamedTuple):
    """Where the search stands; it continues from here on the next call."""

    depth: np.ndarray  # (1,) int64; parts chosen so far
    position: np.ndarray  # (n_parts + 1,) int64; next leaf to try in each part
    total: np.ndarray  # (n_constraints, n_parts + 1) float64; gains before each part
    trail_start: np.ndarray  # (n_parts + 1,) int64; where the narrowings of each part start
    trail: np.ndarray  # (capacity, 3) int32; feature, and its cells before the narrowing
    low_cell: np.ndarray  # (n_features,) int32; cell box of the path
    high_cell: np.ndarray  # (n_features,) int32


@kernel
def next_clique(leaves, order, path, limits):
    """Continue to the next clique whose totals reach all floors, FOUND in the box of the path.

    PROVED when there is none left; nodes are partial cliques.
    """
    n_parts = len(order.part_start) - 1
    depth = path.depth[0]
    status = PROVED
    if n_parts == 0:
        # Every tree is constant in the box: the empty clique is the only outcome.
        if depth > 0:
            return PROVED
        path.depth[0] = 1
        limits.nodes[0] += 1
        return FOUND if _reaches(path, 0, order.floor) else PROVED
    while depth >= 0 and status == PROVED:
        entered = False
        if depth < n_parts:
            at = path.position[depth]
            while at < order.part_start[depth + 1] and not entered:
                leaf = order.leaf[at]
                entered = _can_reach(leaves, order, path, leaf) and enter(leaves, path, leaf, depth)
                at += 1
            path.position[depth] = at
        if entered:
            depth += 1
            if depth < n_parts:
                path.position[depth] = order.part_start[depth]
            status = count_node(limits)
            is_enough = depth == order.n_speaking and _reaches(path, depth, order.sure)
            if depth == n_parts or is_enough:
                status = FOUND
        else:
            # Back to the part before, whose choice is undone.
            depth -= 1
            if depth >= 0:
                leave(path, depth)
        path.depth[0] = max(depth, 0)
    return status


@noalloc_kernel
def _reaches(path, depth, least):
    """Whether all totals of a path are large enough."""
    for c in range(len(least)):
        if path.total[c, depth] < least[c]:
            return False
    return True


@noalloc_kernel
def _can_reach(leaves, order, path, leaf):
    """Whether a clique that goes on with this leaf can still reach all floors."""
    depth = path.depth[0]
    for c in range(len(order.floor)):
        # Sound: the suffix is the sum of the largest gains of all later parts.
        total = path.total[c, depth] + leaves.gain[c, leaf]
        if total + order.suffix[c, depth + 1] < order.floor[c]:
            return False
        path.total[c, depth + 1] = total
    return True
