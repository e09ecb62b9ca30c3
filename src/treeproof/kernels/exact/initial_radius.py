"""A radius to begin with: where the best leaves of all trees together could first break a claim.

A leaf is reached at the largest distance of the splits on its path. When every tree may take its
best leaf within a radius, whatever the others take (the paper's eq. 6), a claim can break from
some radius on. The answer is seldom much larger, so the search begins there. In plain doubles: the
radius is only a suggestion, and no proof rests on it.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import grow_table, sorted_order
from treeproof.kernels.core.cells import FLAGS, NEXT, NOTHING, TESTED, box_cells
from treeproof.kernels.core.compiler import ONE, inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import accumulate_cells
from treeproof.kernels.core.leaves import gain_of_leaf
from treeproof.kernels.core.trees import CATEGORICAL, MISSING_LEFT, is_left

LEAST = 0.05
"""Part of the first guess below which nothing is suggested: trial radii must be able to grow."""
SHIFT = 47
"""Distances that agree in all but these last bits of a double share a bucket: 32 to an octave."""
PRECISION = 2.0 ** (SHIFT - 52)
"""Relative width of a bucket; a suggestion need not be better."""
N_BUCKETS = 320
"""Ten octaves; the last bucket holds all that is farther."""
FARTHER = 2.0**8
"""By what factor to begin farther out when the buckets do not suffice."""
BEYOND, CROWDED = -1.0, -2.0


class Frontier(NamedTuple):
    """Branches not yet taken, in buckets of rising distance."""

    head: np.ndarray  # (N_BUCKETS,) uint32; first branch of each bucket, or NOTHING
    branches: np.ndarray  # (capacity, 3) uint32; NODE, TREE, AFTER: the next one of the same bucket


NODE, TREE, AFTER = 0, 1, 2


@inlined_kernel
def far_distance(region, feature, threshold, goes_left):
    """Distance to the side of a split where a row is not; infinite if it cannot get there."""
    rate = region.up[feature] if goes_left else region.down[feature]
    is_outside = threshold > region.high[feature] if goes_left else threshold <= region.low[feature]
    if rate == 0.0 or is_outside:
        return np.inf
    return abs(threshold - region.row[feature]) / rate


@inlined_kernel
def bucket_of(distance, lowest):
    """Number of the bucket that holds a distance."""
    key = (np.float64(distance).view(np.int64) >> SHIFT) - lowest
    return min(max(key, 0), N_BUCKETS - 1)


@noalloc_kernel
def bucket_end(bucket, lowest):
    """Upper end of the distances of a bucket."""
    return np.int64((lowest + bucket + 1) << SHIFT).view(np.float64)


@inlined_kernel
def walk_down(forest, region, node, tree, bucket, lowest, frontier, count):
    """Follow the row from a node to a leaf; the branches it does not take join the frontier.

    Returns
    -------
    leaf   int  its row of values
    count  int  branches so far
    """
    branches = frontier.branches
    trees, nodes = forest.trees, forest.space.nodes
    while nodes[node, TESTED] != NOTHING:
        feature = nodes[node, TESTED]
        value = region.row[feature]
        threshold = trees.threshold[node]
        far = np.inf
        if nodes[node, FLAGS] <= MISSING_LEFT and not np.isnan(value):
            goes_left = value < threshold
            far = far_distance(region, feature, threshold, goes_left)
        else:
            goes_left = is_left(trees, node, value, forest.semantics.zero_band)
            if not (np.isnan(value) or nodes[node, FLAGS] & CATEGORICAL):
                far = far_distance(region, feature, threshold, goes_left)
        left = node + ONE
        right = np.uint64(nodes[node, NEXT])
        if far < np.inf:
            other = max(bucket_of(far, lowest), bucket)
            branches[count, NODE] = right if goes_left else left
            branches[count, TREE] = tree
            branches[count, AFTER] = frontier.head[other]
            frontier.head[other] = count
            count += ONE
        node = left if goes_left else right
    return nodes[node, NEXT], count


@inner_kernel
def eq6_radius(forest, region, coefficient, missing, radius, limit):
    """Radius from which the best leaves of all trees reach a gain.

    missing  float64  the gain
    radius   float64  first guess
    limit    float64  larger radii do not matter: infinity stands for them

    Without any such radius, one within which all leaves are.
    """
    n_trees = len(forest.trees.tree_output)
    head = np.empty(N_BUCKETS, dtype=np.uint32)
    frontier = Frontier(
        head, np.empty((16 * (n_trees + forest.space.max_depth), 3), dtype=np.uint32)
    )
    best = np.empty(n_trees, dtype=np.float64)
    while radius < 1e300:
        nearest = nearest_sum(forest, region, coefficient, missing, radius, limit, frontier, best)
        if nearest == CROWDED:
            frontier = Frontier(head, grow_table(frontier.branches, np.int64(0)))
        elif nearest == BEYOND:
            radius *= FARTHER
        else:
            return nearest
    return 1e300


@noalloc_kernel
def nearest_sum(forest, region, coefficient, missing, radius, limit, frontier, best):
    """As `eq6_radius`; BEYOND when that lies in the last bucket, CROWDED for want of room.

    Branches are taken bucket by bucket, each leaf is met once, and nothing farther is looked at.

    frontier, best  scratch
    """
    trees = forest.trees
    n_trees = len(trees.tree_output)
    room = len(frontier.branches) - forest.space.max_depth
    lowest = np.float64(LEAST * radius).view(np.int64) >> SHIFT
    for bucket in range(N_BUCKETS):
        frontier.head[bucket] = NOTHING
    count = np.uint64(0)
    for tree in range(n_trees):
        output = trees.tree_output[tree]
        if output < 0 or coefficient[output] != 0.0:
            if count > room:
                return CROWDED
            leaf, count = walk_down(
                forest, region, np.uint64(trees.root[tree]), np.uint32(tree), np.int64(0), lowest,
                frontier, count,
            )  # fmt: skip
            best[tree] = gain_of_leaf(trees, tree, leaf, coefficient)
            missing -= best[tree]
    farthest = np.int64(0)
    for bucket in range(N_BUCKETS - 1):
        if missing <= 0.0:
            break
        if frontier.head[bucket] != NOTHING:
            if bucket_end(bucket, lowest) >= limit:
                return np.inf
            farthest = bucket
        # Ends: each branch is taken once.
        while frontier.head[bucket] != NOTHING:
            branch = frontier.head[bucket]
            frontier.head[bucket] = frontier.branches[branch, AFTER]
            tree = frontier.branches[branch, TREE]
            if count > room:
                return CROWDED
            leaf, count = walk_down(
                forest, region, np.uint64(frontier.branches[branch, NODE]), tree, bucket, lowest,
                frontier, count,
            )  # fmt: skip
            gain = gain_of_leaf(trees, tree, leaf, coefficient)
            if gain > best[tree]:
                missing -= gain - best[tree]
                best[tree] = gain
                if missing <= 0.0:
                    break
    if missing > 0.0 and frontier.head[N_BUCKETS - 1] != NOTHING:
        return BEYOND
    return bucket_end(farthest, lowest)


@inner_kernel
def order_alternatives(forest, alternatives, group, region, radius):
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
        missing = missing_gains(forest, alternatives, group, region.row)
        order = sorted_order(missing, True)
    if not region.is_ball:
        for index in range(count):
            order[index] += first
        return order, radius
    nearest = region.within
    first_radius = np.empty(count, dtype=np.float64)
    start = forest.semantics.start
    conditions = alternatives.conditions
    for index in order:
        first_radius[index] = 0.0
        # All conditions of an alternative have to hold, so the farthest of them tells.
        for number in range(
            alternatives.condition_start[first + index],
            alternatives.condition_start[first + index + 1],
        ):
            gain = conditions.need[number]
            for output in range(len(start)):
                gain -= conditions.coefficient[number, output] * start[output]
            radius_of = eq6_radius(
                forest, region, conditions.coefficient[number], gain, radius, nearest
            )
            first_radius[index] = max(first_radius[index], radius_of)
        nearest = min(nearest, first_radius[index])
    order = sorted_order(first_radius, True)
    for index in range(count):
        order[index] += first
    return order, nearest


@inner_kernel
def missing_gains(forest, alternatives, group, row):
    """How much gain each alternative of a group lacks at the row."""
    first = alternatives.group_start[group]
    missing = np.zeros(alternatives.group_start[group + 1] - first, dtype=np.float64)
    total = np.zeros(len(forest.semantics.start), dtype=np.float64)
    cells = np.empty(len(row), dtype=np.int32)
    box_cells(forest.space, row, row, row, cells, cells)
    accumulate_cells(forest, row, cells, total)
    for index in range(len(missing)):
        constraint = alternatives.alternative_start[first + index]
        missing[index] = alternatives.need[constraint]
        for output in range(len(total)):
            missing[index] -= alternatives.coefficient[constraint, output] * total[output]
    return missing
