"""A row and a box in rank space, and points as rows again."""

import math

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.spaces import rank_space
from treeproof.kernels.core.balls import Sets, ball_distances, lie_in_sets, threshold_distances
from treeproof.kernels.core.cells import FIXED, cells_of_box
from treeproof.model.cuts import cuts_of
from treeproof.model.ensemble import FloatArray, IntArray
from treeproof.query.query import Query


def cells_of(
    query: Query, row: int, low: FloatArray, high: FloatArray
) -> tuple[IntArray, IntArray]:
    """Cells that a closed box around a row reaches; FIXED for features that keep their value."""
    low_cell = np.empty(query.ensemble.n_features, dtype=np.int32)
    high_cell = np.empty(query.ensemble.n_features, dtype=np.int32)
    cells_of_box(rank_space(query.ensemble), query.rows[row], low, high, low_cell, high_cell)
    return low_cell, high_cell


def point_in_cells(query: Query, row: int, low_cell: IntArray, high_cell: IntArray) -> FloatArray:
    """Row of the model's input precision nearest to a row inside a box of cells.

    Upwards, the nearest value of a cell is its lower threshold; downwards, the last float below
    its upper threshold. Cells of the set may hold real numbers but no float of that precision;
    then the point lies outside the set by one step.
    """
    ensemble, reach = query.ensemble, query.reach
    point = query.rows[row].copy()
    real = np.dtype(ensemble.input_precision).type
    home, _ = cells_of(query, row, point, point)
    moves = home != FIXED  # boxes may also move features that no node tests
    if reach.is_ball:
        moves &= (low_cell != FIXED) & ((home < low_cell) | (home > high_cell))
    for feature in np.flatnonzero(moves).tolist():
        cuts = cuts_of(ensemble).of(feature)
        value = float(point[feature])
        if not reach.is_ball:
            bounds = float(reach.low[row, feature]), float(reach.high[row, feature])
            value = _clipped(value, *bounds, cuts, max(int(high_cell[feature]), 0), real)
            if low_cell[feature] == FIXED:
                point[feature] = value
                continue
        cell = int(np.searchsorted(cuts, value, side="right"))
        if cell < low_cell[feature]:
            value = float(cuts[low_cell[feature] - 1])
        elif cell > high_cell[feature]:
            # Minus infinity stands for the numbers below the smallest float.
            below = math.nextafter(float(cuts[high_cell[feature]]), -math.inf)
            value = _rounded(below, real, upwards=False)
        point[feature] = value
    return point


def _clipped(
    value: float, low: float, high: float, cuts: FloatArray, high_cell: int, real: type[np.floating]
) -> float:
    """Value nearest to a given one in an interval, in the input precision, in an allowed cell."""
    if low <= value <= high:
        return value
    if value > high:
        return _rounded(high, real, upwards=False)
    inside = _rounded(low, real, upwards=True)
    if inside <= high and np.searchsorted(cuts, inside, side="right") <= high_cell:
        return inside
    # Sound: no threshold lies between a number and the next float of the precision below it.
    return _rounded(low, real, upwards=False)


def _rounded(value: float, real: type[np.floating], *, upwards: bool) -> float:
    with np.errstate(over="ignore"):
        near = float(real(value))
        if near < value and upwards:
            return float(np.nextafter(real(near), real(np.inf)))
        if near > value and not upwards:
            return float(np.nextafter(real(near), real(-np.inf)))
    return near


def distances(query: Query, rows: NDArray[np.int64], points: FloatArray) -> FloatArray:
    """Smallest double radius whose closed ball around the point's row holds it, for each point.

    Where changes have prices: what the point costs, rounded up.
    """
    found = np.empty(len(rows))
    if query.pricing is not None:
        for index, (row, point) in enumerate(zip(rows.tolist(), points, strict=True)):
            found[index] = query.pricing.distance(row, point)
        return found
    # Copies are writable and contiguous whatever the caller passed: one compiled signature.
    reach = query.reach
    ball_distances(query.rows[rows], np.array(points), reach.down.copy(), reach.up.copy(), found)
    return found


def lie_in_set(
    query: Query,
    rows: NDArray[np.int64],
    points: FloatArray,
    upper: FloatArray | None = None,
    is_open: NDArray[np.bool_] | None = None,
) -> NDArray[np.bool_]:
    """Whether each point lies in the set around the row of the query that it belongs to.

    By default the query's own closed ball or box; otherwise balls of the radii `upper`, or every
    larger one where `is_open`. Where changes have prices, the whole domain within the budget.
    """
    if query.pricing is not None:
        rules = [
            query.pricing.broken_rule(row, point)
            for row, point in zip(rows.tolist(), points, strict=True)
        ]
        return np.array([rule is None for rule in rules], dtype=bool)
    reach = query.reach
    if upper is None or is_open is None:
        upper = np.full(len(rows), query.radius_of(rows, np.inf))
        is_open = np.zeros(len(rows), dtype=bool)
    sets = Sets(
        query.rows[rows],
        reach.down.copy(),
        reach.up.copy(),
        # One compiled signature, also where bounds are one row for all.
        np.array(reach.low[rows], order="C"),
        np.array(reach.high[rows], order="C"),
        upper,
        is_open,
        reach.is_ball,
    )
    is_single = query.ensemble.input_precision == "float32"
    inside: NDArray[np.bool_] = lie_in_sets(
        rank_space(query.ensemble), sets, np.array(points), is_single
    )
    return inside


def rounded_distances(
    x: float, cuts: FloatArray, rate: float
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Distances to thresholds, rounded down, and whether each is a double exactly."""
    distances, is_exact = np.empty(len(cuts)), np.empty(len(cuts), dtype=bool)
    threshold_distances(float(x), cuts.copy(), rate, distances, is_exact)
    return distances, is_exact
