"""Exact geometry in integers: values become cells.

Per feature the distinct canonical thresholds are sorted; cell c holds the values v with exactly c
thresholds <= v. A split at threshold number j sends v left iff ``cell(v) <= j``. No float is
compared after a row and its box have become cells.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.compiler import ONE, inlined_kernel, kernel, noalloc_kernel

TESTED, CUT, NEXT, FLAGS = 0, 1, 2, 3
"""Columns of the nodes of a `RankSpace`."""
NOTHING = np.uint32(2**32 - 1)
"""In place of a feature: a leaf tests none."""

FIXED = -1
"""Cell of a feature that keeps the row's own value: missing, categorical, infinite in a ball."""


class RankSpace(NamedTuple):
    """The integer view of an ensemble.

    cut_start    int64   (n_features + 1,)  where each feature's thresholds start in `cut`
    cut          float64 (n_cuts,)          sorted distinct thresholds per feature
    nodes        uint32  (n_nodes, 4)       TESTED: feature, or NOTHING at a leaf; CUT: number of
                                            the node's threshold within its feature; NEXT: right
                                            child, or the leaf's row of values; FLAGS
    zero_low     int32   (n_features,)      first cell of the zero band; -1 where zero is ordinary
    zero_high    int32   (n_features,)      last cell of the zero band
    categorical  bool    (n_features,)      whether some node tests the feature as a category
    max_depth    int                        longest path, for stack sizes
    """

    cut_start: np.ndarray
    cut: np.ndarray
    nodes: np.ndarray
    zero_low: np.ndarray
    zero_high: np.ndarray
    categorical: np.ndarray
    max_depth: int


@noalloc_kernel
def cell_of(space, feature, value):
    """Number of thresholds of a feature that are <= value."""
    low = space.cut_start[feature]
    first = low
    high = space.cut_start[feature + 1]
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


@noalloc_kernel
def home_cells(space, row, is_ball, cells):
    """Cells of the row itself; FIXED where it never moves.

    In a ball infinite values never move: what is at an infinite distance from everything stays.
    """
    box_cells(space, row, row, row, cells, cells)
    if is_ball:
        for feature in range(len(row)):
            if np.isinf(row[feature]):
                cells[feature] = FIXED


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
