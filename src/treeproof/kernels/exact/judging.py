"""Judging points and boxes by the library's own arithmetic: what breaks a claim, and how near."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.balls import cell_distance
from treeproof.kernels.core.cells import (
    FIXED,
    NEXT,
    NOTHING,
    TESTED,
    CellBox,
    part_of,
    sends_left,
    stretch_around,
)
from treeproof.kernels.core.compiler import ONE, inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import AMBIGUOUS, BROKEN, HOLDS, judge, verdict_at
from treeproof.kernels.core.trees import is_left
from treeproof.kernels.exact.primal import POINTS


@noalloc_kernel
def point_distance(forest, region, cells):
    """Distance of a point given in cells, and whether it is only approached."""
    farthest = 0.0
    is_beyond = False
    for feature in range(len(cells)):
        home = region.home[feature]
        if cells[feature] == home or not region.is_ball:
            continue
        distance, beyond = cell_distance(
            forest.space, feature, cells[feature], cells[feature], home, region.row[feature],
            (region.down[feature], region.up[feature]), (region.low[feature], region.high[feature]),
        )  # fmt: skip
        if distance > farthest or (distance == farthest and beyond):
            farthest = distance
            is_beyond = beyond
    return farthest, is_beyond


@inlined_kernel
def is_nearer(distance, is_beyond, other, is_other_beyond):
    """Whether a distance comes before another; an attained one before an approached one."""
    return distance < other or (distance == other and is_other_beyond and not is_beyond)


@noalloc_kernel
def keep_violation(forest, region, cells, found):
    """Make a violation the witness, if it is nearer than any before."""
    distance, is_beyond = point_distance(forest, region, cells)
    if is_nearer(distance, is_beyond, found.upper[0], found.is_open[0]):
        found.upper[0] = distance
        found.is_open[0] = is_beyond
        copy_into(found.witness, cells)


@noalloc_kernel
def judge_cells(forest, claim, region, cells, total, found):
    """Judge a point by the library's own arithmetic; a violation nearer than any before is kept.

    total  float64 (n_outputs,)  scratch

    Returns the verdict.
    """
    found.counts[POINTS] += 1
    verdict = judge(forest, claim, region.row, cells, total)
    if verdict == BROKEN:
        keep_violation(forest, region, cells, found)
    return verdict


MOST_PARTS = 1 << 13
"""Parts of a box that are looked at to judge its leaf tuples: those of 4,096 tuples."""
FEATURE, FIRST, LAST, CUT_AFTER, FROM_TREE = 0, 1, 2, 3, 4
"""Columns of a division: the feature, its cells before, the last cell of its left part, and the
first tree that may have several leaves."""


class Division(NamedTuple):
    """A box of cells that is divided until every tree has one leaf in it."""

    box: CellBox  # the present part
    path: np.ndarray  # (MOST_PARTS, 5) int32; the divisions that lead to it


@inner_kernel
def new_division(n_features):
    """Room to divide a box, which is up to the caller."""
    box = CellBox(np.empty(n_features, dtype=np.int32), np.empty(n_features, dtype=np.int32))
    return Division(box, np.empty((MOST_PARTS, 5), dtype=np.int32))


@noalloc_kernel
def find_cut(forest, row, box, tree):
    """The first tree, from a given one on, that has several leaves in a box.

    Returns it, a feature that tells its leaves apart, and the last cell of the left part; feature
    -1 where each of these trees has one leaf.
    """
    trees, space = forest.trees, forest.space
    nodes = space.nodes
    while tree < len(trees.tree_output):
        node = np.uint64(trees.root[tree])
        while nodes[node, TESTED] != NOTHING:
            feature = np.int64(nodes[node, TESTED])
            first, last = np.int64(box.low[feature]), np.int64(box.high[feature])
            if first == FIXED:
                value = row[trees.feature[node]]
                goes_left = is_left(trees, node, value, forest.semantics.zero_band)
            else:
                goes_left, end = part_of(space, node, first, last)
                if end < last:
                    return tree, feature, end
            node = node + ONE if goes_left else np.uint64(nodes[node, NEXT])
        tree += 1
    return tree, np.int64(-1), np.int64(0)


@noalloc_kernel
def enter_left(division, depth, tree, feature, cut):
    """Go on with the left part of the present one."""
    box, step = division.box, division.path[depth]
    step[FEATURE], step[CUT_AFTER], step[FROM_TREE] = feature, cut, tree
    step[FIRST], step[LAST] = box.low[feature], box.high[feature]
    box.high[feature] = cut


@noalloc_kernel
def enter_next(division, depth):
    """Go on with the right part of the last division whose left part is done, once it is.

    Returns the number of divisions that lead to it, -1 where nothing is left, and the first tree
    that may have several leaves there.
    """
    box = division.box
    while depth > 0:
        step = division.path[depth - 1]
        feature = step[FEATURE]
        is_left_done = box.low[feature] == step[FIRST]
        box.low[feature] = step[CUT_AFTER] + 1 if is_left_done else step[FIRST]
        box.high[feature] = step[LAST]
        if is_left_done:
            return depth, np.int64(step[FROM_TREE])
        depth -= 1
    return np.int64(-1), np.int64(0)


@noalloc_kernel
def keep_leaves(forest, claim, row, cells, box):
    """Keep the part of a box in which the trees that a claim weighs have a point's leaves.

    Of an axis of which a node sends several runs left it is the one around the point's atom, as
    `treeproof.kernels.core.leaves.restrict` has it.
    """
    trees, space = forest.trees, forest.space
    nodes = space.nodes
    for tree in range(len(trees.tree_output)):
        output = trees.tree_output[tree]
        if output >= 0 and claim.coefficient[output] == 0.0:
            continue
        node = np.uint64(trees.root[tree])
        while nodes[node, TESTED] != NOTHING:
            feature = np.int64(nodes[node, TESTED])
            cell = np.int64(cells[feature])
            if cell == FIXED:
                value = row[trees.feature[node]]
                goes_left = is_left(trees, node, value, forest.semantics.zero_band)
            else:
                goes_left = sends_left(space, node, cell)
                last = np.int64(box.high[feature])
                first, last = stretch_around(space, node, cell, last)
                box.low[feature] = max(np.int64(box.low[feature]), first)
                box.high[feature] = min(np.int64(box.high[feature]), last)
            node = node + ONE if goes_left else np.uint64(nodes[node, NEXT])


@noalloc_kernel
def judge_tuples(forest, claim, region, division, cells, total, found):
    """Judge all leaf tuples of all classes in a box, wherever they are nearer than the witness.

    division  Division               holds the box; overwritten
    cells     int32   (n_features,)  scratch
    total     float64 (n_outputs,)   scratch

    Sound: the parts divide the box, and in a part in which every tree has one leaf all points have
    the verdict of the one that is judged, the nearest. Other parts are left out only where their
    nearest point is no nearer than a violation.

    Returns HOLDS where nothing nearer than the witness is left of the box, BROKEN where any
    violation will do and there is one, AMBIGUOUS where there are too many tuples.
    """
    box = division.box
    depth, tree = np.int64(0), np.int64(0)
    for _ in range(MOST_PARTS):
        for feature in range(len(cells)):
            cells[feature] = min(max(region.home[feature], box.low[feature]), box.high[feature])
        distance, is_beyond = point_distance(forest, region, cells)
        if is_nearer(distance, is_beyond, found.upper[0], found.is_open[0]):
            tree, feature, cut = find_cut(forest, region.row, box, tree)
            if feature >= 0:
                enter_left(division, depth, tree, feature, cut)
                depth += 1
                continue
            found.counts[POINTS] += 1
            verdict = verdict_at(forest, claim, region.row, cells, total)
            if verdict == AMBIGUOUS:
                return verdict
            if verdict == BROKEN:
                keep_violation(forest, region, cells, found)
                if not region.is_ball:
                    return verdict
        depth, tree = enter_next(division, depth)
        if depth < 0:
            return HOLDS
    return AMBIGUOUS
