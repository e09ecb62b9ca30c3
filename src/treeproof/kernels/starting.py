"""A radius to begin with: where the best leaves of all trees together could first break a claim.

A leaf is reached at the largest distance of the splits on its path. When every tree may take its
best leaf within a radius, whatever the others take (the paper's eq. 6), a claim can break from
some radius on. The answer is seldom much larger, so the search begins there. In plain doubles: the
radius is only a suggestion, and no proof rests on it.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.compiler import borrowing_kernel, kernel
from treeproof.kernels.emulation import accumulate_cells
from treeproof.kernels.prediction import is_left
from treeproof.kernels.rank_space import box_cells, gain_of_leaf, grow_float

GROWTH, ACCELERATION = 1.5, 1.1
"""How the radius grows in which leaves are collected, and how its growth does."""
LEAST = 0.05
"""Part of the first guess below which nothing is suggested: trial radii must be able to grow."""
PRECISION = 0.02
"""Relative; a suggestion need not be better."""


class NearLeaves(NamedTuple):
    """Leaves within a radius that are better than the row's own.

    start     int64   (n_trees + 1,)  leaves of tree k
    distance  float64 (n_leaves,)     where each is reached
    gain      float64 (n_leaves,)     how much better it is than the row's own
    own       float64                 gain of the row's own leaves
    is_all    bool                    no other leaf is ever reached
    """

    start: np.ndarray
    distance: np.ndarray
    gain: np.ndarray
    own: float
    is_all: bool


@borrowing_kernel
def far_distance(trees, node, value, goes_left, down, up, low, high):
    """Distance to the side of a split where a row is not; infinite if it cannot get there."""
    feature = trees.feature[node]
    if np.isnan(value) or trees.flags[node] & 4:
        return np.inf
    threshold = trees.threshold[node]
    rate = up[feature] if goes_left else down[feature]
    is_outside = threshold > high[feature] if goes_left else threshold <= low[feature]
    if rate == 0.0 or is_outside:
        return np.inf
    return abs(threshold - value) / rate


@kernel
def near_leaves(trees, row, down, up, low, high, coefficient, zero_band, max_depth, radius):
    """Collect the leaves of all trees within a radius that are better than the row's own."""
    n_trees = len(trees.tree_output)
    start = np.zeros(n_trees + 1, dtype=np.int64)
    distance = np.empty(4 * n_trees + 64, dtype=np.float64)
    gain = np.empty(4 * n_trees + 64, dtype=np.float64)
    node_stack = np.empty(max_depth + 2, dtype=np.int32)
    distance_stack = np.empty(max_depth + 2, dtype=np.float64)
    count = 0
    own = 0.0
    is_all = True
    for tree in range(n_trees):
        output = trees.tree_output[tree]
        if output < 0 or coefficient[output] != 0.0:
            node_stack[0] = trees.root[tree]
            distance_stack[0] = 0.0
            top = 1
            here_gain = np.nan  # of the row's own leaf, which is reached first
            while top > 0:
                top -= 1
                node = node_stack[top]
                here = distance_stack[top]
                while trees.feature[node] >= 0:
                    value = row[trees.feature[node]]
                    goes_left = is_left(trees, node, value, zero_band)
                    far = max(
                        here, far_distance(trees, node, value, goes_left, down, up, low, high)
                    )
                    left = node + 1
                    right = trees.right[node]
                    if far <= radius:
                        node_stack[top] = right if goes_left else left
                        distance_stack[top] = far
                        top += 1
                    elif far < np.inf:
                        is_all = False
                    node = left if goes_left else right
                leaf_gain = gain_of_leaf(trees, tree, trees.leaf[node], coefficient)
                if np.isnan(here_gain):
                    here_gain = leaf_gain
                    own += leaf_gain
                elif leaf_gain > here_gain:
                    if count == len(gain):
                        distance = grow_float(distance, 0)
                        gain = grow_float(gain, 0)
                    distance[count] = here
                    gain[count] = leaf_gain - here_gain
                    count += 1
        start[tree + 1] = count
    return NearLeaves(start, distance, gain, own, is_all)


@borrowing_kernel
def best_sum(leaves, radius):
    """Sum over all trees of the best gain within a radius."""
    total = leaves.own
    for tree in range(len(leaves.start) - 1):
        best = 0.0
        for leaf in range(leaves.start[tree], leaves.start[tree + 1]):
            best = max(best, leaves.gain[leaf] if leaves.distance[leaf] <= radius else 0.0)
        total += best
    return total


@kernel
def cheap_radius(trees, row, down, up, low, high, coefficient, zero_band, max_depth, missing,
                 radius, limit):  # fmt: skip
    """Radius from which the best leaves of all trees reach a gain.

    missing  float64  the gain
    radius   float64  first guess
    limit    float64  larger radii do not matter: infinity stands for them

    Without any such radius, one within which all leaves are.
    """
    least = LEAST * radius
    growth = GROWTH
    while True:
        radius = min(radius, limit)
        leaves = near_leaves(
            trees, row, down, up, low, high, coefficient, zero_band, max_depth, radius
        )
        if best_sum(leaves, radius) >= missing:
            break
        if leaves.is_all:
            return radius
        if radius == limit:
            return np.inf
        least = radius
        radius *= growth
        growth *= ACCELERATION
    while radius - least > PRECISION * radius:
        middle = 0.5 * (least + radius)
        if best_sum(leaves, middle) >= missing:
            radius = middle
        else:
            least = middle
    return radius


@kernel
def plan(trees, space, semantics, alternatives, group, row, down, up, low, high, is_ball, radius):
    """Where to look first.

    radius  float64  of a ball: a first guess

    Returns
    -------
    order   int64 (n_alternatives,)  alternatives of the group, the one nearest to happening first
    radius  float64                  from which on the first of them may happen
    """
    first = alternatives.group_start[group]
    count = alternatives.group_start[group + 1] - first
    order = np.zeros(count, dtype=np.int64)
    if count > 1:
        order = np.argsort(missing_gains(trees, space, semantics, alternatives, group, row))
    if not is_ball:
        return first + order, radius
    nearest = np.inf
    cheap = np.empty(count, dtype=np.float64)
    for index in order:
        constraint = alternatives.alternative_start[first + index]
        gain = alternatives.need[constraint]
        for output in range(len(semantics.start)):
            gain -= alternatives.coefficient[constraint, output] * semantics.start[output]
        cheap[index] = cheap_radius(
            trees, row, down, up, low, high, alternatives.coefficient[constraint],
            semantics.zero_band, space.max_depth, gain, radius, nearest,
        )  # fmt: skip
        nearest = min(nearest, cheap[index])
    return first + np.argsort(cheap), nearest


@kernel
def missing_gains(trees, space, semantics, alternatives, group, row):
    """How much gain each alternative of a group lacks at the row."""
    first = alternatives.group_start[group]
    missing = np.zeros(alternatives.group_start[group + 1] - first, dtype=np.float64)
    total = np.zeros(len(semantics.start), dtype=np.float64)
    cells = np.empty(len(row), dtype=np.int32)
    box_cells(space, row, row, row, cells, cells)
    accumulate_cells(trees, space, semantics, row, cells, total)
    for index in range(len(missing)):
        constraint = alternatives.alternative_start[first + index]
        missing[index] = alternatives.need[constraint]
        for output in range(len(total)):
            missing[index] -= alternatives.coefficient[constraint, output] * total[output]
    return missing
