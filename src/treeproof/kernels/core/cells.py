"""Exact geometry in integers: axes of ordered atoms, and which of them each node sends left.

An axis is what can change by itself: a feature, or a group of columns that are one choice. Its
atoms are what no node tells apart. Of numbers they are cells: per feature the distinct canonical
thresholds are sorted, and cell c holds the values v with exactly c thresholds <= v, so that a split
at threshold number j sends v left iff ``cell(v) <= j``. Categories, choices and missing values are
atoms of their own; what a node sends left is a few runs of atoms then. No float is compared after a
row and its box have become atoms.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.compiler import (
    ONE,
    inlined_kernel,
    inner_kernel,
    kernel,
    noalloc_kernel,
)

TESTED, CUT, NEXT, FLAGS = 0, 1, 2, 3
"""Columns of the nodes of a `Space`."""
NOTHING = np.uint32(2**32 - 1)
"""In place of a feature: a leaf tests none."""

FIXED = -1
"""Cell of a feature that keeps the row's own value: missing, categorical, infinite in a ball."""


BY_RUNS = np.uint32(32)
"""Flag of a node whose left side is not simply all atoms up to one, in `FLAGS` beside those of
trees."""
LOW, HIGH = 0, 1


class CellBox(NamedTuple):
    """A box of cells: first and last cell of every feature, or FIXED; int32 (n_features,)."""

    low: np.ndarray
    high: np.ndarray


class Kept(NamedTuple):
    """The atoms that a row can afford, numbered anew within their axes: their places.

    Where all atoms are kept there is None in its place, and a place is an atom.
    """

    atom_start: np.ndarray  # (n_axes + 1,) int64; atoms of each axis, numbered through
    rank: np.ndarray  # (n_atoms + 1,) int32; kept atoms before each
    atom: np.ndarray  # (n_kept,) int32
    cost: np.ndarray  # (n_kept,) float64
    start: np.ndarray  # (n_axes + 1,) int32; where those of an axis begin
    cheapest: np.ndarray  # (n_axes,) float64; cost of the cheapest one
    bottom: np.ndarray  # (n_axes,) int32; place of the cheapest one
    # Costs fall to the cheapest one and rise from there, the axis's last atom left aside
    is_valley: np.ndarray  # (n_axes,) bool
    box: CellBox  # all of them
    total: float  # what the cheapest atoms cost together; infinite where an axis has none


class Space(NamedTuple):
    """The integer view of an ensemble; plain questions have one axis for each feature.

    Few arrays: what takes many is slow to hand over, which every kernel does.
    """

    # TESTED: axis, or NOTHING at a leaf; CUT: last atom that goes left, or with BY_RUNS where its
    # runs are; NEXT: right child, or the leaf's row of values; FLAGS
    nodes: np.ndarray  # (n_nodes, 4) uint32
    # LOW, HIGH: atoms that go left, apart and in order; before those of a node how many they are
    runs: np.ndarray  # (n, 2) int32
    max_depth: int  # longest path, for stack sizes
    most_parts: int  # most parts into which a node divides an axis
    # Of numbers, by features
    cut_start: np.ndarray  # (n_features + 1,) int64; where each feature's thresholds start in `cut`
    cut: np.ndarray  # (n_cuts,) float64; sorted distinct thresholds per feature
    # Last double below each threshold; among real numbers, which have none, the threshold itself
    below: np.ndarray  # (n_cuts,) float64
    is_real: bool  # sets hold all real numbers, otherwise doubles alone
    categorical: np.ndarray  # (n_features,) bool; whether some node tests the feature as a category


class Atoms(NamedTuple):
    """The atoms of all axes of questions with costs or domains, and what they are as values."""

    atom_start: np.ndarray  # (n_axes + 1,) int64; atoms of each axis, numbered through
    twin: np.ndarray  # (n_atoms,) int32; the first atom that no node tells from this one
    column_start: np.ndarray  # (n_axes + 1,) int64; features of each axis
    columns: np.ndarray  # (n_features,) int32
    # Where the choices of an axis begin: for each atom one value per column; -1 for numbers
    choice_start: np.ndarray  # (n_axes,) int64
    choices: np.ndarray  # (n,) float64


class Batch(NamedTuple):
    """Rows that are asked about together."""

    groups: np.ndarray  # (n_rows,) int64; group of alternatives of each row
    rows: np.ndarray  # (n_rows, n_features) float64
    down: np.ndarray  # (n_features,) float64; rates of a ball
    up: np.ndarray  # (n_features,) float64
    low: np.ndarray  # (n_rows, n_features) float64; domain of a ball, or the boxes
    high: np.ndarray  # (n_rows, n_features) float64
    skip: np.ndarray  # (n_rows,) bool; rows that are left out
    # Of balls: the radius of the closed ball in which any violation will do
    within: np.ndarray  # (n_rows,) float64
    takes_any: bool  # any violation will do, as in boxes; otherwise the nearest is wanted


class Region(NamedTuple):
    """The set around one row: a ball in a domain, or a box."""

    row: np.ndarray  # (n_features,) float64
    home: np.ndarray  # (n_features,) int32; cells of the row; FIXED where it never moves
    down: np.ndarray  # (n_features,) float64; rates of a ball
    up: np.ndarray  # (n_features,) float64
    # Domain of a ball, or the box, rounded as in query/rounding.py
    low: np.ndarray  # (n_features,) float64
    high: np.ndarray  # (n_features,) float64
    is_ball: bool
    within: float  # of a ball: nothing farther matters
    takes_any: bool  # any violation will do; otherwise the nearest is wanted


@noalloc_kernel
def part_by_runs(space, node, rank, before, first, last):
    """As `part_of`, for a node with BY_RUNS, among places where only some atoms are kept.

    rank    int32 (n + 1,)  kept atoms before each atom of the axis; None where all are kept
    before  int32           kept atoms before the axis
    """
    number = np.int64(space.nodes[node, CUT])
    end = first - 1
    for run in range(number + 1, number + 1 + space.runs[number, LOW]):
        begin, stop = np.int64(space.runs[run, LOW]), np.int64(space.runs[run, HIGH])
        if rank is not None:
            begin, stop = np.int64(rank[begin] - before), np.int64(rank[stop + 1] - before - 1)
        if stop < first or stop < begin:
            continue
        if begin > end + 1:
            # Runs are in order: what lies between this one and the last goes right.
            return (False, min(begin - 1, last)) if end < first else (True, min(end, last))
        end = stop
    return (False, last) if end < first else (True, min(end, last))


@inlined_kernel
def part_of(space, node, first, last):
    """Side of a node that an atom takes, and the last one up to which all take it, too.

    first, last  int64  atoms of the axis that the node tests
    """
    if space.nodes[node, FLAGS] & BY_RUNS:
        return part_by_runs(space, node, None, np.int32(0), first, last)
    cut = np.int64(space.nodes[node, CUT])
    goes_left = first <= cut
    return goes_left, min(cut, last) if goes_left else last


@inlined_kernel
def kept_part_of(space, kept, node, first, last):
    """As `part_of`, among places."""
    axis = np.int64(space.nodes[node, TESTED])
    before = kept.start[axis]
    rank = kept.rank[kept.atom_start[axis] : kept.atom_start[axis + 1] + 1]
    if space.nodes[node, FLAGS] & BY_RUNS:
        return part_by_runs(space, node, rank, before, first, last)
    cut = np.int64(rank[np.int64(space.nodes[node, CUT]) + 1] - before - 1)
    goes_left = first <= cut
    return goes_left, min(cut, last) if goes_left else last


@inlined_kernel
def sends_left(space, node, atom):
    """Whether a node sends an atom of its axis left."""
    cut = np.int64(space.nodes[node, CUT])
    if not space.nodes[node, FLAGS] & BY_RUNS:
        return atom <= cut
    goes_left = False
    for run in range(cut + 1, cut + 1 + space.runs[cut, LOW]):
        goes_left |= space.runs[run, LOW] <= atom <= space.runs[run, HIGH]
    return goes_left


@noalloc_kernel
def stretch_around(space, node, atom, last):
    """First and last atom of the stretch around one, in an axis, that a node sends the same way.

    last  int64  last atom of the axis
    """
    cut = np.int64(space.nodes[node, CUT])
    if not space.nodes[node, FLAGS] & BY_RUNS:
        return (np.int64(0), cut) if atom <= cut else (cut + 1, last)
    first = np.int64(0)
    for run in range(cut + 1, cut + 1 + space.runs[cut, LOW]):
        begin, stop = np.int64(space.runs[run, LOW]), np.int64(space.runs[run, HIGH])
        if atom < begin:
            return first, begin - 1
        if atom <= stop:
            return begin, stop
        first = stop + 1
    return first, last


@noalloc_kernel
def cell_of(space, feature, value):
    """Number of thresholds of a feature that are <= value."""
    low = space.cut_start[feature]
    first = low
    high = space.cut_start[feature + 1]
    # Ends: the range is halved.
    while low < high:
        middle = (low + high) >> 1
        if space.cut[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low - first


@inlined_kernel
def cell_from(space, feature, value, cell):
    """As `cell_of`, sought outwards from a cell that is likely near."""
    first = np.uint64(space.cut_start[feature])
    n_cuts = np.uint64(space.cut_start[feature + 1]) - first
    here = np.uint64(cell)
    while here < n_cuts and space.cut[first + here] <= value:
        here += ONE
    while here > 0 and space.cut[first + here - ONE] > value:
        here -= ONE
    return np.int32(here)


@inner_kernel
def new_region(space, batch, number, is_ball):
    """The set around one row of a `Batch`.

    In a ball infinite values never move: what is at an infinite distance from everything stays.
    """
    row = batch.rows[number]
    home = np.empty(len(row), dtype=np.int32)
    box_cells(space, row, row, row, home, home)
    if is_ball:
        for feature in range(len(row)):
            if np.isinf(row[feature]):
                home[feature] = FIXED
    return Region(
        row, home, batch.down, batch.up, batch.low[number], batch.high[number], is_ball,
        batch.within[number], batch.takes_any or not is_ball,
    )  # fmt: skip


@inner_kernel
def new_box(space, region):
    """Cells of a box; for a ball, room for those of `ball_cells`."""
    n_features = len(region.row)
    box = CellBox(np.empty(n_features, dtype=np.int32), np.empty(n_features, dtype=np.int32))
    if not region.is_ball:
        box_cells(space, region.row, region.low, region.high, box.low, box.high)
    return box


@noalloc_kernel
def box_cells(space, row, low, high, low_cell, high_cell):
    """Cells that a closed box reaches, per feature.

    row        float64 (n_features,)   the row; NaN entries and categories stay fixed
    low, high  float64 (n_features,)   box, rounded as in query/rounding.py
    low_cell   int32   (n_features,)   out: first reachable cell, or FIXED
    high_cell  int32   (n_features,)   out: last reachable cell, or FIXED
    """
    for feature in range(len(row)):
        if np.isnan(row[feature]) or space.categorical[feature]:
            low_cell[feature] = FIXED
            high_cell[feature] = FIXED
        else:
            cell = cell_of(space, feature, low[feature])
            low_cell[feature] = cell
            is_point = high[feature] == low[feature]
            high_cell[feature] = cell if is_point else cell_of(space, feature, high[feature])


@kernel
def cells_of_box(space, row, low, high, low_cell, high_cell):
    """`box_cells`, for Python."""
    box_cells(space, row, low, high, low_cell, high_cell)
