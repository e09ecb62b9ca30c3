"""A whole question as arrays, for kernels that answer many rows in one call."""

from typing import Any, NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import sorted_order
from treeproof.kernels.core.balls import collect_distances, reached_cells
from treeproof.kernels.core.cells import FIXED, cell_of
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel


class Rows(NamedTuple):
    """Rows, and how they may move.

    values      float64 (n_rows, n_features)
    group       int64   (n_rows,)             group of each row
    down, up    float64 (n_features,)         rates of movement
    low, high   float64 (n_rows, n_features)  bounds at any radius
    used        int32   (n_used,)             features that some numeric node tests
    is_ball     bool
    zero_band   float64
    """

    values: np.ndarray
    group: np.ndarray
    down: np.ndarray
    up: np.ndarray
    low: np.ndarray
    high: np.ndarray
    used: np.ndarray
    is_ball: bool
    zero_band: float


class Claims(NamedTuple):
    """The ways to break the claims about each group of rows, and what leaves add to them.

    tree_output        int32   (n_trees,)             as in the trees
    leaf_value         float64 (n_leaves, width)
    group_start        int64   (n_groups + 1,)        alternatives of a group
    alternative_start  int64   (n_alternatives + 1,)  constraints of an alternative
    coefficient        float64 (n_constraints, n_outputs)
    need               float64 (n_constraints,)
    unit               float64 (n_constraints,)       rounding unit of the library's sums
    link_slack         float64 (n_constraints,)
    start              float64 (n_outputs,)           where accumulators start
    group_mask         float64 (n_groups, n_outputs)  1 where an output has a say, else 0
    """

    tree_output: np.ndarray
    leaf_value: np.ndarray
    group_start: np.ndarray
    alternative_start: np.ndarray
    coefficient: np.ndarray
    need: np.ndarray
    unit: np.ndarray
    link_slack: np.ndarray
    start: np.ndarray
    group_mask: np.ndarray


class Question(NamedTuple):
    """All that answers depend on; trees and space are `TreeArrays` and `RankSpace`."""

    trees: Any
    space: Any
    rows: Rows
    claims: Claims


class Radii(NamedTuple):
    """Sorted distinct radii at which a row reaches new cells, as doubles.

    radius     float64 (n,)   smallest double whose closed ball reaches the new cells
    is_beyond  bool    (n,)   whether the distance itself is the double below
    """

    radius: np.ndarray
    is_beyond: np.ndarray


@noalloc_kernel
def set_cells(space, rows, row, radius, low_cell, high_cell):
    """Cells that the closed set of a radius (or the box of the question) reaches.

    radius     float64                 not used for boxes
    low_cell   int32   (n_features,)   out; features that no node tests are FIXED
    high_cell  int32   (n_features,)   out
    """
    for feature in range(len(low_cell)):
        low_cell[feature] = FIXED
        high_cell[feature] = FIXED
    for feature in rows.used:
        value = rows.values[row, feature]
        if np.isnan(value) or space.categorical[feature]:
            continue
        sides = rows.low[row, feature], rows.high[row, feature]
        if rows.is_ball:
            rates = rows.down[feature], rows.up[feature]
            low_cell[feature], high_cell[feature] = reached_cells(
                space, feature, value, rates, sides, radius
            )
        else:
            low_cell[feature] = cell_of(space, feature, sides[0])
            high_cell[feature] = cell_of(space, feature, sides[1])


@inner_kernel
def radii_of_row(space, rows, row):
    """Collect the radii of a row."""
    radius = np.empty(len(space.cut))
    is_beyond = np.empty(len(space.cut), dtype=np.bool_)
    rates = rows.down, rows.up
    sides = rows.low[row], rows.high[row]
    n = collect_distances(space, rows.values[row], rates, sides, radius, is_beyond)
    for i in range(n):
        if is_beyond[i]:
            radius[i] = np.nextafter(radius[i], np.inf)
    sorted_radius = np.empty(n)
    sorted_beyond = np.empty(n, dtype=np.bool_)
    m = 0
    for i in sorted_order(radius[:n], True):
        if m > 0 and sorted_radius[m - 1] == radius[i]:
            # The same ball is reached by both kinds; the lower distance is the claim to keep.
            sorted_beyond[m - 1] = sorted_beyond[m - 1] or is_beyond[i]
        else:
            sorted_radius[m] = radius[i]
            sorted_beyond[m] = is_beyond[i]
            m += 1
    return Radii(sorted_radius[:m], sorted_beyond[:m])
