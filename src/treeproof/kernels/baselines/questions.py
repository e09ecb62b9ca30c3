"""A whole question as arrays, for kernels that answer many rows in one call."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import sorted_order
from treeproof.kernels.core.balls import reached_cells
from treeproof.kernels.core.cells import FIXED, cell_of
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel


class Question(NamedTuple):
    """Rows, how they may move, and the ways to break each of them.

    rows               float64 (n_rows, n_features)
    group              int64   (n_rows,)           group of each row
    group_start        int64   (n_groups + 1,)     alternatives of a group
    alternative_start  int64   (n_alternatives + 1,)  constraints of an alternative
    coefficient        float64 (n_constraints, n_outputs)
    need               float64 (n_constraints,)
    unit               float64 (n_constraints,)    rounding unit of the library's sums
    link_slack         float64 (n_constraints,)
    start              float64 (n_outputs,)        where accumulators start
    down, up           float64 (n_features,)       rates of movement
    low, high          float64 (n_rows, n_features)  bounds at any radius
    is_ball            bool
    zero_band          float64
    used               int32   (n_used,)           features that some numeric node tests
    group_mask         float64 (n_groups, n_outputs)  1 where an output has a say, else 0
    most_alternatives  int                         largest number of alternatives of a group
    share              bool                        group trees by shared features
    """

    rows: np.ndarray
    group: np.ndarray
    group_start: np.ndarray
    alternative_start: np.ndarray
    coefficient: np.ndarray
    need: np.ndarray
    unit: np.ndarray
    link_slack: np.ndarray
    start: np.ndarray
    down: np.ndarray
    up: np.ndarray
    low: np.ndarray
    high: np.ndarray
    is_ball: bool
    zero_band: float
    used: np.ndarray
    group_mask: np.ndarray
    most_alternatives: int
    share: bool


@noalloc_kernel
def set_cells(space, question, row, radius, low_cell, high_cell):
    """Cells that the closed set of a radius (or the box of the question) reaches.

    radius     float64                 not used for boxes
    low_cell   int32   (n_features,)   out; features that no node tests are FIXED
    high_cell  int32   (n_features,)   out
    """
    for feature in range(len(low_cell)):
        low_cell[feature] = FIXED
        high_cell[feature] = FIXED
    for feature in question.used:
        value = question.rows[row, feature]
        if np.isnan(value) or space.categorical[feature]:
            continue
        sides = question.low[row, feature], question.high[row, feature]
        if question.is_ball:
            rates = question.down[feature], question.up[feature]
            low_cell[feature], high_cell[feature] = reached_cells(
                space, feature, value, rates, sides, radius
            )
        else:
            low_cell[feature] = cell_of(space, feature, sides[0])
            high_cell[feature] = cell_of(space, feature, sides[1])


@inner_kernel
def sort_distances(value, is_beyond, n):
    """Sorted distinct radii of the first n distances, as doubles.

    Returns
    -------
    radius     float64 (m,)   smallest double whose closed ball reaches the new cells
    is_beyond  bool    (m,)   whether the distance itself is the double below
    """
    radius = np.empty(n)
    for i in range(n):
        radius[i] = np.nextafter(value[i], np.inf) if is_beyond[i] else value[i]
    order = sorted_order(radius, True)
    sorted_radius = np.empty(n)
    sorted_beyond = np.empty(n, dtype=np.bool_)
    m = 0
    for i in order:
        if m > 0 and sorted_radius[m - 1] == radius[i]:
            # The same ball is reached by both kinds; the lower distance is the claim to keep.
            sorted_beyond[m - 1] = sorted_beyond[m - 1] or is_beyond[i]
        else:
            sorted_radius[m] = radius[i]
            sorted_beyond[m] = is_beyond[i]
            m += 1
    return sorted_radius[:m], sorted_beyond[:m]
