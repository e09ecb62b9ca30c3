"""Models as kernels see them: axes of ordered atoms, and which of them each node sends left."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.core.cells import BY_RUNS, CUT, FLAGS, NEXT, NOTHING, TESTED, Atoms, Space
from treeproof.model.cuts import cuts_of
from treeproof.model.ensemble import (
    CATEGORICAL,
    ZERO_IS_MISSING,
    Ensemble,
    IntArray,
    cached_per_ensemble,
)
from treeproof.query.axes import NUMERIC, Axes, Axis, left_runs_of_numbers


@cached_per_ensemble
def rank_space(ensemble: Ensemble) -> Space:
    """The space of plain questions: an axis for each feature, and cells of numbers.

    What is missing or a category stays as it is in them, so that it has no atoms.
    """
    trees, cuts = ensemble.trees, cuts_of(ensemble)
    is_number = (trees.feature >= 0) & ((trees.flags & CATEGORICAL) == 0)
    is_banded = is_number & ((trees.flags & ZERO_IS_MISSING) > 0)
    plain = np.flatnonzero(is_number & ~is_banded)
    node, last = [plain], [np.stack([np.zeros_like(plain), cuts.node_cut[plain]], axis=1)]
    for feature in np.unique(trees.feature[is_banded]).tolist():
        axis = Axis((feature,), np.zeros((0, 1)), False, NUMERIC)
        nodes = np.flatnonzero(is_banded & (trees.feature == feature))
        runs = np.concatenate(left_runs_of_numbers(ensemble, cuts, axis, nodes))
        node.append(runs[:, 0])
        last.append(runs[:, 1:])
    return space_of(ensemble, trees.feature, np.concatenate(node), np.concatenate(last))


def axis_space(ensemble: Ensemble, axes: Axes) -> Space:
    """The space of questions with costs or domains."""
    if axes not in ensemble._cache:  # axes are the same object for all questions with these atoms
        node = np.repeat(np.arange(len(axes.node_axis)), np.diff(axes.left_start))
        ensemble._cache[axes] = space_of(ensemble, axes.node_axis, node, axes.left_runs)
    space: Space = ensemble._cache[axes]
    return space


@lru_cache(maxsize=16)
def atoms_of(axes: Axes) -> Atoms:
    """The atoms of such questions."""
    is_numeric = [axis.kind == NUMERIC for axis in axes.axes]
    pairs = zip(is_numeric, axes.axes, strict=True)
    sizes = [0 if plain else axis.choices.size for plain, axis in pairs]
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    columns = [axis.columns for axis in axes.axes]
    return Atoms(
        atom_start=axes.atom_start,
        twin=_twins(axes),
        column_start=np.cumsum([0, *map(len, columns)]).astype(np.int64),
        columns=np.array([column for own in columns for column in own], dtype=np.int32),
        choice_start=np.where(is_numeric, -1, start),
        choices=np.concatenate([np.zeros(0), *(axis.choices.ravel() for axis in axes.axes)]),
    )


def space_of(
    ensemble: Ensemble, node_axis: IntArray, node: NDArray[np.intp], runs: NDArray[Any]
) -> Space:
    """The space of nodes that test some axes (-1 at leaves), from what they send left.

    node  (n_runs,)    whose run it is
    runs  (n_runs, 2)  first and last atom; those of a node apart
    """
    trees, cuts = ensemble.trees, cuts_of(ensemble)
    order = np.lexsort((runs[:, 0], node))
    node, runs = node[order], runs[order]
    count = np.bincount(node, minlength=len(node_axis))
    first = np.cumsum(count) - count
    is_leaf = trees.feature < 0
    begins_at_0 = np.append(runs[:, 0], -1)[np.minimum(first, len(runs))] == 0
    is_plain = (count == 1) & begins_at_0
    by_runs = np.flatnonzero(~is_leaf & ~is_plain)
    size = count[by_runs]
    # One row before those of a node says how many they are.
    begin = np.cumsum(size + 1) - (size + 1)
    table = np.zeros((int((size + 1).sum()), 2), dtype=np.int32)
    table[begin, 0] = size
    is_run = np.ones(len(table), dtype=bool)
    is_run[begin] = False
    table[is_run] = runs[np.isin(node, by_runs)]
    nodes = np.empty((len(node_axis), 4), dtype=np.uint32)
    nodes[:, TESTED] = node_axis.astype(np.uint32)
    nodes[:, CUT] = np.append(runs[:, 1], 0)[np.minimum(first, len(runs))]
    nodes[by_runs, CUT] = begin
    nodes[:, NEXT] = trees.right
    nodes[:, FLAGS] = trees.flags
    nodes[by_runs, FLAGS] |= BY_RUNS
    nodes[is_leaf, TESTED] = NOTHING
    nodes[is_leaf, NEXT] = trees.leaf[is_leaf]
    with np.errstate(over="ignore"):  # below the smallest double comes minus infinity
        below = cuts.cut if ensemble.over_reals else np.nextafter(cuts.cut, -np.inf)
    return Space(
        nodes=nodes,
        runs=table,
        max_depth=_max_depth(ensemble),
        most_parts=2 * int(size.max(initial=0)) + 2,
        cut_start=cuts.start,
        cut=cuts.cut,
        below=below,
        is_real=ensemble.over_reals,
        categorical=ensemble.is_categorical,
    )


def _max_depth(ensemble: Ensemble) -> int:
    trees = ensemble.trees
    level = trees.root[:-1].astype(np.int64)
    depth = 0
    while True:
        level = level[trees.feature[level] >= 0]
        if level.size == 0:
            return depth
        level = np.concatenate([trees.left[level], trees.right[level]])
        depth += 1


def _twins(axes: Axes) -> NDArray[np.int32]:
    """The first atom that no node tells from each; numbers have no twins, choices may."""
    twin = np.arange(axes.n_atoms, dtype=np.int32)
    node = np.repeat(np.arange(len(axes.node_axis)), np.diff(axes.left_start))
    for number, axis in enumerate(axes.axes):
        if axis.kind == NUMERIC:
            continue
        atoms = axes.atoms_of(number)
        own = axes.node_axis[node] == number
        _, place = np.unique(node[own], return_inverse=True)
        left = np.zeros((place.max(initial=-1) + 1, atoms.stop - atoms.start), dtype=np.int8)
        for row, (first, last) in zip(place.tolist(), axes.left_runs[own].tolist(), strict=True):
            left[row, first : last + 1] = 1
        _, first, inverse = np.unique(left, axis=1, return_index=True, return_inverse=True)
        twin[atoms] = atoms.start + first[inverse.ravel()]
    return twin
