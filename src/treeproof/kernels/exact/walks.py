"""Points on whole trees: what conditions lack at a point, and how that changes along a feature.

Trees are walked as they are, without any box being restricted, so a look along a feature costs as
much as a few predictions, however large the box is. All in plain doubles: what is found is judged
by the library's own arithmetic before it counts.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.bits import BIT, LAST, SIX, lowest_bit
from treeproof.kernels.core.cells import (
    FIXED,
    NEXT,
    NOTHING,
    TESTED,
    new_box,
    part_of,
    sends_left,
)
from treeproof.kernels.core.compiler import ONE, inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import BROKEN
from treeproof.kernels.core.leaves import combination_up
from treeproof.kernels.core.trees import is_left
from treeproof.kernels.exact.balls import ball_cells, drop_reached
from treeproof.kernels.exact.judging import judge_cells


class Walk(NamedTuple):
    """A point given in cells, what each condition has to spare there, and scratch.

    The way to the point's leaf of every tree is kept as far as it could go elsewhere within the
    box, and so is which trees test a feature on it: no others change along the feature, and these
    only from their first such test on.
    """

    cells: np.ndarray  # (n_features,) int32
    value: np.ndarray  # (n_conditions,) float64; gain minus need, below 0 where it is not met
    # Tests on the way to the leaf: FEATURE and NODE, as many as length says
    path: np.ndarray  # (n_trees, max_depth, 2) uint32
    length: np.ndarray  # (n_trees,) uint32
    leaf: np.ndarray  # (n_trees,) uint32; row of the leaf's values
    # Trees whose way tests a feature, see `treeproof.kernels.core.bits`
    testing: np.ndarray  # (n_features, n_words) uint64
    change: np.ndarray  # (most cells + 1, n_conditions) float64; scratch: along a feature
    here: np.ndarray  # (n_conditions,) float64; scratch: the value along a feature
    stack: np.ndarray  # (max_depth + 2, 3) uint32; scratch: node, first and last cell
    total: np.ndarray  # (n_outputs,) float64; scratch


FEATURE, NODE = 0, 1


@inner_kernel
def new_walk(forest, n_features, n_conditions):
    """Room for a point of a model."""
    space = forest.space
    n_trees = len(forest.trees.tree_output)
    most = np.int64(0)
    for feature in range(n_features):
        most = max(most, space.cut_start[feature + 1] - space.cut_start[feature])
    return Walk(
        np.empty(n_features, dtype=np.int32),
        np.empty(n_conditions, dtype=np.float64),
        np.empty((n_trees, max(space.max_depth, 1), 2), dtype=np.uint32),
        np.zeros(n_trees, dtype=np.uint32),
        np.zeros(n_trees, dtype=np.uint32),
        np.zeros((n_features, (n_trees + 63) >> 6), dtype=np.uint64),
        np.empty((most + 2, n_conditions), dtype=np.float64),
        np.empty(n_conditions, dtype=np.float64),
        np.empty((space.max_depth + 2, 3), dtype=np.uint32),
        np.empty(len(forest.semantics.start), dtype=np.float64),
    )


@inlined_kernel
def next_node(forest, row, cells, node):
    """The child of an inner node to which a point goes."""
    nodes = forest.space.nodes
    cell = cells[nodes[node, TESTED]]
    if cell == FIXED:
        value = row[forest.trees.feature[node]]
        goes_left = is_left(forest.trees, node, value, forest.semantics.zero_band)
    else:
        goes_left = sends_left(forest.space, node, cell)
    return node + ONE if goes_left else np.uint64(nodes[node, NEXT])


@inlined_kernel
def add_gains(trees, conditions, tree, leaf, sign, values):
    """Add what a leaf gives to all conditions, or take it away."""
    output = trees.tree_output[tree]
    if output >= 0:
        value = sign * trees.leaf_value[leaf, 0]
        for number in range(len(values)):
            values[number] += conditions.coefficient[number, output] * value
    else:
        for number in range(len(values)):
            gain = combination_up(conditions.coefficient[number], trees.leaf_value[leaf])
            values[number] += sign * gain


@noalloc_kernel
def follow(forest, row, walk, box, tree, node, kept):
    """Follow a tree from a node on to the leaf of the walk's point, after so many tests that stay.

    Tests on which the box lies on one side only are passed over.
    """
    nodes, path = forest.space.nodes, walk.path
    word, bit = np.uint64(tree) >> SIX, BIT << (np.uint64(tree) & LAST)
    for step in range(kept, walk.length[tree]):
        walk.testing[path[tree, step, FEATURE], word] &= ~bit
    length = np.uint64(kept)
    while nodes[node, TESTED] != NOTHING:
        feature = nodes[node, TESTED]
        low, high = np.int64(box.low[feature]), np.int64(box.high[feature])
        if low < high and part_of(forest.space, node, low, high)[1] < high:
            path[tree, length, FEATURE], path[tree, length, NODE] = feature, node
            length += ONE
        node = next_node(forest, row, walk.cells, node)
    # A feature before the tests that stay may be one of those that went.
    for step in range(length):
        walk.testing[path[tree, step, FEATURE], word] |= bit
    walk.length[tree] = length
    walk.leaf[tree] = nodes[node, NEXT]


@noalloc_kernel
def evaluate(forest, conditions, row, walk, box):
    """What each condition has to spare at the walk's point; returns what is lacking in all.

    Notes the way to the point's leaf of every tree, within a box that holds the point.
    """
    trees, value = forest.trees, walk.value
    for number in range(len(value)):
        value[number] = -conditions.need[number]
        for output in range(len(forest.semantics.start)):
            start = forest.semantics.start[output]
            value[number] += conditions.coefficient[number, output] * start
    for feature in range(len(walk.cells)):
        for word in range(walk.testing.shape[1]):
            walk.testing[feature, word] = 0
    for tree in range(len(trees.tree_output)):
        walk.length[tree] = 0
        follow(forest, row, walk, box, tree, np.uint64(trees.root[tree]), 0)
        add_gains(trees, conditions, tree, np.int64(walk.leaf[tree]), 1.0, value)
    return lacking(value)


@inlined_kernel
def first_test(walk, tree, feature):
    """Which test on the way to a tree's leaf is the first one of a feature; there must be one."""
    step = np.uint64(0)
    while walk.path[tree, step, FEATURE] != feature:
        step += ONE
    return step


@noalloc_kernel
def move(forest, conditions, row, walk, box, feature, cell):
    """Move the walk's point along a feature, inside the box; returns what is lacking there."""
    trees, value = forest.trees, walk.value
    walk.cells[feature] = cell
    for word in range(walk.testing.shape[1]):
        bits = walk.testing[feature, word]
        while bits != 0:
            tree = np.int64((np.uint64(word) << SIX) + lowest_bit(bits))
            bits &= bits - BIT
            add_gains(trees, conditions, tree, np.int64(walk.leaf[tree]), -1.0, value)
            kept = first_test(walk, tree, feature)
            follow(forest, row, walk, box, tree, np.uint64(walk.path[tree, kept, NODE]), kept)
            add_gains(trees, conditions, tree, np.int64(walk.leaf[tree]), 1.0, value)
    return lacking(value)


@inlined_kernel
def lacking(value):
    """What conditions that are not met lack, as a number that is 0 at most."""
    total = 0.0
    for number in range(len(value)):
        total += min(value[number], 0.0)
    return total


@noalloc_kernel
def look_along(forest, conditions, row, walk, feature, low, high):
    """Fill ``change`` with how the values of all conditions change along a feature.

    The value of a condition in a cell, the other features as they are, is that of ``here`` plus all
    changes up to the cell.
    """
    change, here = walk.change, walk.here
    copy_into(here, walk.value)
    for cell in range(low, high + 2):
        for number in range(len(here)):
            change[cell, number] = 0.0
    for word in range(walk.testing.shape[1]):
        bits = walk.testing[feature, word]
        while bits != 0:
            tree = np.int64((np.uint64(word) << SIX) + lowest_bit(bits))
            bits &= bits - BIT
            add_gains(forest.trees, conditions, tree, np.int64(walk.leaf[tree]), -1.0, here)
            look_into(forest, conditions, row, walk, tree, feature, low, high)


@inlined_kernel
def look_into(forest, conditions, row, walk, tree, feature, low, high):
    """Add what one tree gives along a feature to ``change``."""
    trees, nodes, stack = forest.trees, forest.space.nodes, walk.stack
    stack[0, 0] = walk.path[tree, first_test(walk, tree, feature), NODE]
    stack[0, 1], stack[0, 2] = low, high
    top = np.uint64(1)
    while top > 0:
        top -= ONE
        node = np.uint64(stack[top, 0])
        first, last = np.int64(stack[top, 1]), np.int64(stack[top, 2])
        while nodes[node, TESTED] != NOTHING:
            if nodes[node, TESTED] != feature:
                node = next_node(forest, row, walk.cells, node)
                continue
            goes_left, end = part_of(forest.space, node, first, last)
            if end < last:
                stack[top, 0], stack[top, 1], stack[top, 2] = node, end + 1, last
                top += ONE
                last = end
            node = node + ONE if goes_left else np.uint64(nodes[node, NEXT])
        leaf = np.int64(nodes[node, NEXT])
        add_gains(trees, conditions, tree, leaf, 1.0, walk.change[first])
        add_gains(trees, conditions, tree, leaf, -1.0, walk.change[last + 1])


@noalloc_kernel
def best_along(walk, feature, low, high, home, before):
    """The cell of a feature where least is lacking, the nearest among equals.

    Must follow `look_along`.

    before  float64  what is lacking at the point; a change has to be better by a little, since
                     values are rounded
    """
    best = np.int64(walk.cells[feature])
    least = before + 1e-9 * abs(before)
    for cell in range(low, high + 1):
        total = 0.0
        for number in range(len(walk.here)):
            walk.here[number] += walk.change[cell, number]
            total += min(walk.here[number], 0.0)
        if total > least or (total == least and abs(cell - home) < abs(best - home)):
            least = total
            best = np.int64(cell)
    return best


NEARLY = 1e-6
"""What is lacking by less than this is added up anew."""


@inlined_kernel
def is_tested(walk, feature):
    """Whether anything changes along a feature within the box."""
    found = np.uint64(0)
    for word in range(walk.testing.shape[1]):
        found |= walk.testing[feature, word]
    return found != 0


@noalloc_kernel
def rise(forest, conditions, region, box, walk, rounds):
    """Move the point feature by feature inside a box of cells while less is lacking.

    Returns what is lacking in the end: 0 where all conditions are met, as far as doubles can tell.
    """
    least = evaluate(forest, conditions, region.row, walk, box)
    for _ in range(rounds):
        before = least
        for feature in range(len(walk.cells)):
            if least >= 0.0:
                return least
            if not is_tested(walk, feature):
                continue
            low, high = np.int64(box.low[feature]), np.int64(box.high[feature])
            look_along(forest, conditions, region.row, walk, feature, low, high)
            best = best_along(walk, feature, low, high, region.home[feature], least)
            if best != walk.cells[feature]:
                least = move(forest, conditions, region.row, walk, box, feature, best)
        if least <= before:
            break
    # Moves add up to a little more or less than the sum of all trees.
    return evaluate(forest, conditions, region.row, walk, box) if least > -NEARLY else least


@noalloc_kernel
def clip(walk, box, cells):
    """Move the point to the cells of a box that are nearest to those given; False if none is."""
    for feature in range(len(cells)):
        if box.low[feature] > box.high[feature]:
            return False
        walk.cells[feature] = min(max(cells[feature], box.low[feature]), box.high[feature])
    return True


FINE = (0.8, 0.93, 0.98, 1.0)
COARSE = (0.8, 0.93, 0.98, 0.995)
"""Parts of a witness's distance at which a nearer one is sought, one after the other. With 1 at the
end a witness comes down threshold by threshold, which finds the nearest targets and takes a
thousand steps in a huge forest."""
ROUNDS, REPAIRS = 6, 2
"""Rounds of a rise to a first witness, and of one that repairs a step closer."""


@inner_kernel
def approach(forest, claim, region, walk, found, steps):
    """Move the nearest witness of a ball closer as long as small repairs break the claim again.

    steps  FINE or COARSE
    """
    box = new_box(forest.space, region)
    step = 0
    while step < len(steps) and found.upper[0] > 0.0:
        radius = max(steps[step] * found.upper[0], found.lower[0])
        ball_cells(forest.space, region, radius, box)
        drop_reached(forest.space, region, found, box)
        before, was_open = found.upper[0], found.is_open[0]
        if not clip(walk, box, found.witness):
            break
        if rise(forest, claim.conditions, region, box, walk, np.int64(REPAIRS)) >= 0.0:
            judge_cells(forest, claim, region, walk.cells, walk.total, found)
        if found.upper[0] == before and found.is_open[0] == was_open:
            step += 1


@inner_kernel
def attack(forest, claim, region, box, walk, found, steps):
    """Rise from the nearest point of a box of cells; a violation is moved closer."""
    if not clip(walk, box, region.home):
        return
    if rise(forest, claim.conditions, region, box, walk, np.int64(ROUNDS)) < 0.0:
        return
    verdict = judge_cells(forest, claim, region, walk.cells, walk.total, found)
    if verdict == BROKEN and region.is_ball:
        approach(forest, claim, region, walk, found, steps)
