"""One alternative of a row over a box of cells, and the exact distances of cells.

What the engines on foreign solvers, and the direct combination, have in common.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.instance import base_and_floor, rank_space
from treeproof.kernels.core.cells import FIXED
from treeproof.kernels.core.leaves import restrict_box
from treeproof.model.ensemble import ZERO_BAND, FloatArray, IntArray
from treeproof.query.query import Query

Level = tuple[Fraction, bool]
"""A distance, and whether it must be exceeded (False: attained)."""

HERE: Level = (Fraction(0), False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restricted:
    """Reachable leaves of one alternative (constraints that must hold together) over one box.

    Attributes
    ----------
    low_cell, high_cell : int32 (n_features,)
        The box.
    leaf_start, leaf_row, range_start, feature, low, high
        See `treeproof.kernels.core.leaves.restrict`.
    gain : float64 (n_constraints, n_leaves)
        Gain of each leaf in each constraint, divided by the constraint's scale.
    excess : float64 (n_constraints,)
        Gain before any tree less the floor, divided by the scale: no violation unless this and the
        leaves' gains add up to 0 or more.
    floor : float64 (n_constraints,)
        The need of each constraint less every slack, not divided.
    """

    low_cell: IntArray
    high_cell: IntArray
    leaf_start: NDArray[np.int64]
    leaf_row: IntArray
    range_start: NDArray[np.int64]
    feature: IntArray
    low: IntArray
    high: IntArray
    gain: FloatArray
    excess: FloatArray
    floor: FloatArray

    @property
    def n_trees(self) -> int:
        """Number of trees, with those that have no say."""
        return len(self.leaf_start) - 1

    def leaves_at(self, cells: IntArray) -> list[int]:
        """The leaf of every tree at a point given in cells."""
        at = cells[self.feature]
        inside = (self.low <= at) & (at <= self.high)
        misses = np.zeros(len(self.range_start) - 1, dtype=np.int64)
        leaf_of_range = np.repeat(np.arange(len(misses)), np.diff(self.range_start))
        np.add.at(misses, leaf_of_range[~inside], 1)
        return np.flatnonzero(misses == 0).tolist()

    def is_hopeless(self) -> bool:
        """Whether some constraint fails even with the best leaf of every tree.

        Sound: the floor allows for the rounding of sums of doubles; scaling adds one rounding per
        term, which the small number covers.
        """
        occupied = self.leaf_start[:-1][np.diff(self.leaf_start) > 0]
        if occupied.size == 0:
            return bool(np.any(self.excess < -1e-12))
        most = np.maximum.reduceat(self.gain, occupied, axis=1).sum(axis=1) + self.excess
        return bool(np.any(most < -1e-12))


def restricted_to(
    query: Query, row: int, constraints: range, low_cell: IntArray, high_cell: IntArray
) -> Restricted:
    """Restrict the trees that matter to some constraints to a box of cells."""
    ensemble, table = query.ensemble, query.alternatives
    coefficient = table.coefficient[list(constraints)]
    # One walk for all constraints: a weight of 1 for every output that one of them uses.
    matters = np.any(coefficient != 0.0, axis=0).astype(np.float64)
    leaf_start, _, leaf_row, range_start, feature, low, high = restrict_box(
        ensemble.trees,
        rank_space(ensemble),
        query.rows[row],
        low_cell,
        high_cell,
        matters,
        ZERO_BAND,
    )
    gain = np.empty((len(constraints), len(leaf_row)))
    excess, floors = np.empty(len(constraints)), np.empty(len(constraints))
    tree = np.repeat(np.arange(ensemble.n_trees), np.diff(leaf_start))
    output = ensemble.trees.tree_output[tree]
    value = ensemble.trees.leaf_value[leaf_row]
    for number, constraint in enumerate(constraints):
        own = coefficient[number]
        gain[number] = value @ own if np.any(output < 0) else own[output] * value[:, 0]
        base, floor = base_and_floor(query, constraint, leaf_start, leaf_row, gain[number])
        scale = abs(base) + abs(floor) + _gross(leaf_start, gain[number])
        scale = scale if scale > 0.0 and np.isfinite(scale) else 1.0
        gain[number] /= scale
        excess[number] = (base - floor) / scale
        floors[number] = floor
    return Restricted(
        low_cell=low_cell,
        high_cell=high_cell,
        leaf_start=leaf_start,
        leaf_row=leaf_row,
        range_start=range_start,
        feature=feature,
        low=low,
        high=high,
        gain=gain,
        excess=excess,
        floor=floors,
    )


def _gross(leaf_start: NDArray[np.int64], gain: FloatArray) -> float:
    occupied = leaf_start[:-1][np.diff(leaf_start) > 0]
    return float(np.maximum.reduceat(np.abs(gain), occupied).sum()) if occupied.size else 0.0


def home_cells(query: Query, row: int) -> IntArray:
    """Cells of the row itself; FIXED for features that keep their value."""
    space, values = rank_space(query.ensemble), query.rows[row]
    cells = np.full(len(values), FIXED, dtype=np.int32)
    for feature in np.flatnonzero(~np.isnan(values) & ~space.categorical):
        cuts = space.cut[space.cut_start[feature] : space.cut_start[feature + 1]]
        cells[feature] = np.searchsorted(cuts, values[feature], side="right")
    return cells


def level_of(query: Query, row: int, feature: int, cell: int) -> Level:
    """Distance at which a feature reaches a cell other than its own."""
    space, reach = rank_space(query.ensemble), query.reach
    start = space.cut_start[feature]
    value = Fraction(float(query.rows[row, feature]))
    own = float(query.rows[row, feature])
    if cell > 0 and space.cut[start + cell - 1] > own:
        moved = Fraction(float(space.cut[start + cell - 1])) - value
        return moved / Fraction(float(reach.up[feature])), False
    moved = value - Fraction(float(space.cut[start + cell]))
    return moved / Fraction(float(reach.down[feature])), True


def level_of_cells(query: Query, row: int, cells: IntArray, home: IntArray) -> Level:
    """Distance at which all features have reached their cells."""
    moved = np.flatnonzero((cells != home) & (home != FIXED))
    return max((level_of(query, row, int(f), int(cells[f])) for f in moved), default=HERE)
