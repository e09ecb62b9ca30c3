"""Points on whole trees: what conditions lack at a point, and how that changes along a feature.

Trees are walked as they are, without any box being restricted, so a look along a feature costs as
much as a few predictions, however large the box is. All in plain doubles: what is found is judged
by the library's own arithmetic before it counts.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.cells import CUT, FIXED, FLAGS, NEXT, NOTHING, TESTED, new_box
from treeproof.kernels.core.compiler import ONE, inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import BROKEN
from treeproof.kernels.core.leaves import gain_of_leaf
from treeproof.kernels.core.trees import MISSING_LEFT, ZERO_IS_MISSING, is_left
from treeproof.kernels.exact.judging import judge_cells
from treeproof.kernels.exact.row import ball_cells, drop_reached


class Walk(NamedTuple):
    """A point given in cells, what each condition has to spare there, and scratch.

    The trees that test a feature on the way to the point's leaf, and could go elsewhere within the
    box, are listed: no others change along the feature.
    """

    cells: np.ndarray  # (n_features,) int32
    value: np.ndarray  # (n_conditions,) float64; gain minus need, below 0 where it is not met
    head: np.ndarray  # (n_features,) int64; the first entry of a feature's list, or -1
    after: np.ndarray  # (n_trees * max_depth, 2) int32; entries: TREE, and the next one or -1
    change: np.ndarray  # (most cells + 1, n_conditions) float64; scratch: along a feature
    here: np.ndarray  # (n_conditions,) float64; scratch: the value along a feature
    stack: np.ndarray  # (max_depth + 2, 3) uint32; scratch: node, first and last cell
    total: np.ndarray  # (n_outputs,) float64; scratch


TREE, AFTER = 0, 1


@inner_kernel
def new_walk(forest, n_features, n_conditions):
    """Room for a point of a model."""
    space = forest.space
    most = np.int64(0)
    for feature in range(n_features):
        most = max(most, space.cut_start[feature + 1] - space.cut_start[feature])
    return Walk(
        np.empty(n_features, dtype=np.int32),
        np.empty(n_conditions, dtype=np.float64),
        np.empty(n_features, dtype=np.int64),
        np.empty((len(forest.trees.tree_output) * space.max_depth, 2), dtype=np.int32),
        np.empty((most + 2, n_conditions), dtype=np.float64),
        np.empty(n_conditions, dtype=np.float64),
        np.empty((space.max_depth + 2, 3), dtype=np.uint32),
        np.empty(len(forest.semantics.start), dtype=np.float64),
    )


@inlined_kernel
def next_node(forest, row, cells, node):
    """The child of an inner node to which a point goes."""
    nodes = forest.space.nodes
    feature = nodes[node, TESTED]
    cell = cells[feature]
    flags = nodes[node, FLAGS]
    if cell == FIXED:
        goes_left = is_left(forest.trees, node, row[feature], forest.semantics.zero_band)
    elif (
        flags & ZERO_IS_MISSING
        and forest.space.zero_low[feature] <= cell <= forest.space.zero_high[feature]
    ):
        goes_left = flags & MISSING_LEFT == 1
    else:
        goes_left = cell <= nodes[node, CUT]
    return node + ONE if goes_left else np.uint64(nodes[node, NEXT])


@noalloc_kernel
def evaluate(forest, conditions, row, walk, box):
    """What each condition has to spare at the walk's point; returns what is lacking in all.

    Lists the trees that change along each feature within a box that holds the point.
    """
    trees, nodes = forest.trees, forest.space.nodes
    value, head, after = walk.value, walk.head, walk.after
    for number in range(len(value)):
        value[number] = -conditions.need[number]
        for output in range(len(forest.semantics.start)):
            start = forest.semantics.start[output]
            value[number] += conditions.coefficient[number, output] * start
    for feature in range(len(head)):
        head[feature] = -1
    count = 0
    for tree in range(len(trees.tree_output)):
        node = np.uint64(trees.root[tree])
        while nodes[node, TESTED] != NOTHING:
            feature = nodes[node, TESTED]
            if box.low[feature] <= np.int64(nodes[node, CUT]) < box.high[feature] and (
                head[feature] < 0 or after[head[feature], TREE] != tree
            ):
                after[count, TREE], after[count, AFTER] = tree, head[feature]
                head[feature] = count
                count += 1
            node = next_node(forest, row, walk.cells, node)
        for number in range(len(value)):
            value[number] += gain_of_leaf(
                trees, tree, nodes[node, NEXT], conditions.coefficient[number]
            )
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
    changes up to the cell. Zeros that count as missing are taken for numbers: a guess.
    """
    trees, nodes = forest.trees, forest.space.nodes
    change, here, stack = walk.change, walk.here, walk.stack
    copy_into(here, walk.value)
    for cell in range(low, high + 2):
        for number in range(len(here)):
            change[cell, number] = 0.0
    entry = walk.head[feature]
    while entry >= 0:
        tree = np.int64(walk.after[entry, TREE])
        entry = np.int64(walk.after[entry, AFTER])
        stack[0, 0], stack[0, 1], stack[0, 2] = trees.root[tree], low, high
        top = np.uint64(1)
        while top > 0:
            top -= ONE
            node = np.uint64(stack[top, 0])
            first, last = np.int64(stack[top, 1]), np.int64(stack[top, 2])
            while nodes[node, TESTED] != NOTHING:
                if nodes[node, TESTED] != feature:
                    node = next_node(forest, row, walk.cells, node)
                    continue
                cut = np.int64(nodes[node, CUT])
                if first > cut:
                    node = np.uint64(nodes[node, NEXT])
                    continue
                if last > cut:
                    stack[top, 0], stack[top, 1], stack[top, 2] = nodes[node, NEXT], cut + 1, last
                    top += ONE
                    last = cut
                node += ONE
            is_here = first <= walk.cells[feature] <= last
            for number in range(len(here)):
                gain = gain_of_leaf(trees, tree, nodes[node, NEXT], conditions.coefficient[number])
                change[first, number] += gain
                change[last + 1, number] -= gain
                here[number] -= gain if is_here else 0.0


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
            if walk.head[feature] < 0:
                continue
            low, high = np.int64(box.low[feature]), np.int64(box.high[feature])
            look_along(forest, conditions, region.row, walk, feature, low, high)
            best = best_along(walk, feature, low, high, region.home[feature], least)
            if best != walk.cells[feature]:
                walk.cells[feature] = best
                least = evaluate(forest, conditions, region.row, walk, box)
        if least <= before:
            break
    return least


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
