"""Exact geometry in integers: values become cells.

Per feature the distinct canonical thresholds are sorted; cell c holds the values v with exactly c
thresholds <= v. A split at threshold number j sends v left iff ``cell(v) <= j``. No float is
compared after a row and its box have become cells.
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
"""Columns of the nodes of a `RankSpace`."""
NOTHING = np.uint32(2**32 - 1)
"""In place of a feature: a leaf tests none."""

FIXED = -1
"""Cell of a feature that keeps the row's own value: missing, categorical, infinite in a ball."""


class RankSpace(NamedTuple):
    """The integer view of an ensemble."""

    cut_start: np.ndarray  # (n_features + 1,) int64; where each feature's thresholds start in `cut`
    cut: np.ndarray  # (n_cuts,) float64; sorted distinct thresholds per feature
    # Last double below each threshold; among real numbers, which have none, the threshold itself
    below: np.ndarray  # (n_cuts,) float64
    is_real: bool  # sets hold all real numbers, otherwise doubles alone
    # TESTED: feature, or NOTHING at a leaf; CUT: number of the node's threshold within its feature;
    # NEXT: right child, or the leaf's row of values; FLAGS
    nodes: np.ndarray  # (n_nodes, 4) uint32
    # First cell of the zero band; -1 where zero is ordinary
    zero_low: np.ndarray  # (n_features,) int32
    zero_high: np.ndarray  # (n_features,) int32; last cell of the zero band
    categorical: np.ndarray  # (n_features,) bool; whether some node tests the feature as a category
    max_depth: int  # longest path, for stack sizes


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


class CellBox(NamedTuple):
    """A box of cells: first and last cell of every feature, or FIXED; int32 (n_features,)."""

    low: np.ndarray
    high: np.ndarray


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
