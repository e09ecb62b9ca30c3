"""A whole question as arrays, for kernels that answer many rows in one call."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import sorted_order
from treeproof.kernels.core.balls import collect_distances, reached_cells
from treeproof.kernels.core.cells import FIXED, cell_of
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import Forest


class Rows(NamedTuple):
    """Rows, and how they may move."""

    values: np.ndarray  # (n_rows, n_features) float64
    group: np.ndarray  # (n_rows,) int64; group of each row
    down: np.ndarray  # (n_features,) float64; rates of movement
    up: np.ndarray  # (n_features,) float64
    low: np.ndarray  # (n_rows, n_features) float64; bounds at any radius
    high: np.ndarray  # (n_rows, n_features) float64
    used: np.ndarray  # (n_used,) int32; features that some numeric node tests
    is_ball: bool


class Claims(NamedTuple):
    """The ways to break the claims about each group of rows, and what leaves add to them."""

    tree_output: np.ndarray  # (n_trees,) int32; as in the trees
    leaf_value: np.ndarray  # (n_leaves, width) float64; the same
    group_start: np.ndarray  # (n_groups + 1,) int64; alternatives of a group
    alternative_start: np.ndarray  # (n_alternatives + 1,) int64; constraints of an alternative
    coefficient: np.ndarray  # (n_constraints, n_outputs) float64
    need: np.ndarray  # (n_constraints,) float64
    unit: np.ndarray  # (n_constraints,) float64; rounding unit of the library's sums
    link_slack: np.ndarray  # (n_constraints,) float64
    start: np.ndarray  # (n_outputs,) float64; where accumulators start
    group_mask: np.ndarray  # (n_groups, n_outputs) float64; 1 where an output has a say, else 0


class Question(NamedTuple):
    """All that answers depend on."""

    forest: Forest
    rows: Rows
    claims: Claims


class Radii(NamedTuple):
    """Sorted distinct radii at which a row reaches new cells, as doubles."""

    radius: np.ndarray  # (n,) float64; smallest double whose closed ball reaches the new cells
    is_beyond: np.ndarray  # (n,) bool; whether the distance itself is the double below


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
