"""How far points lie from rows, exactly, and whether they lie in the sets around them."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arithmetic import quotient_down
from treeproof.kernels.core.cells import cell_of
from treeproof.kernels.core.compiler import kernel, noalloc_kernel


@kernel
def ball_distances(rows, points, down, up, distances):
    """Smallest double radius whose closed ball around a row holds its point.

    rows       float64 (n_rows, n_features)  NaN stays, whatever the point says
    points     float64 (n_rows, n_features)
    down, up   float64 (n_features,)         rates of the ball; infinite: any move costs nothing
    distances  float64 (n_rows,)             out: infinite where no ball holds the point
    """
    for number in range(len(rows)):
        farthest = 0.0
        for feature in range(rows.shape[1]):
            value = rows[number, feature]
            point = points[number, feature]
            if point == value or np.isnan(value):
                continue
            rate = up[feature] if point > value else down[feature]
            if rate == 0.0 or np.isinf(point) or np.isinf(value):
                farthest = np.inf
                break
            if rate < np.inf:
                distance, is_exact = quotient_down(max(point, value), min(point, value), rate)
                # Sound: no double lies between a number and its value rounded down.
                if not is_exact:
                    distance = np.nextafter(distance, np.inf)
                farthest = max(farthest, distance)
        distances[number] = farthest


@noalloc_kernel
def cell_distance(space, feature, first, last, home, value, rates, sides):
    """Distance at which a row reaches a range of cells of a feature, rounded down.

    home   int                     cell of the row's own value
    rates  float64, twice          down and up
    sides  float64, twice          low and high: bounds at any radius

    A cell above the row's is reached at its lower threshold (attained), a cell below at its last
    number; among real numbers that is just beyond its upper threshold (approached). The open ball
    of a radius holds a point of the cells iff the exact distance is smaller.

    Returns
    -------
    distance   float64  infinite if no radius reaches the cells
    is_beyond  bool     only larger radii reach them
    """
    start = space.cut_start[feature]
    if first > home:
        threshold = space.cut[start + first - 1]
        if threshold > sides[1]:
            return np.inf, False
        distance, is_exact = quotient_down(threshold, value, rates[1])
        return distance, not is_exact
    if last < home:
        threshold = space.cut[start + last]
        if threshold <= sides[0]:
            return np.inf, True
        distance, is_exact = quotient_down(value, space.below[start + last], rates[0])
        return distance, space.is_real or not is_exact
    return 0.0, False


@noalloc_kernel
def is_cell_reached(space, feature, cell, home, value, rates, sides, radius):
    """Whether a closed ball reaches a cell."""
    distance, is_beyond = cell_distance(space, feature, cell, cell, home, value, rates, sides)
    return distance < np.inf and (distance < radius or (distance == radius and not is_beyond))


@noalloc_kernel
def reached_cells(space, feature, value, rates, sides, radius):
    """First and last cell of a feature that a closed ball reaches, exactly."""
    home = cell_of(space, feature, value)
    first = home
    last = home
    if np.isinf(value):
        return first, last
    # Ends in plain doubles are right but for a few units in the last place.
    if rates[0] > 0.0:
        first = min(cell_of(space, feature, max(value - radius * rates[0], sides[0])), home)
        while first < home and not is_cell_reached(
            space, feature, first, home, value, rates, sides, radius
        ):
            first += 1
        while first > 0 and is_cell_reached(
            space, feature, first - 1, home, value, rates, sides, radius
        ):
            first -= 1
    if rates[1] > 0.0:
        n_cuts = space.cut_start[feature + 1] - space.cut_start[feature]
        last = max(cell_of(space, feature, min(value + radius * rates[1], sides[1])), home)
        while last > home and not is_cell_reached(
            space, feature, last, home, value, rates, sides, radius
        ):
            last -= 1
        while last < n_cuts and is_cell_reached(
            space, feature, last + 1, home, value, rates, sides, radius
        ):
            last += 1
    return first, last


@noalloc_kernel
def collect_distances(space, row, rates, sides, distances, is_beyond):
    """Distances at which a row reaches new cells; returns how many there are.

    row          float64 (n_features,)
    rates        float64 (n_features,), twice
    sides        float64 (n_features,), twice
    distances    float64 (n_cuts,)   out, see `cell_distance`
    is_beyond    bool    (n_cuts,)   out
    """
    count = 0
    for feature in range(len(row)):
        value = row[feature]
        n_cuts = space.cut_start[feature + 1] - space.cut_start[feature]
        if n_cuts == 0 or not np.isfinite(value) or space.categorical[feature]:
            continue
        home = cell_of(space, feature, value)
        for cell in range(n_cuts + 1):
            if cell != home:
                distances[count], is_beyond[count] = cell_distance(
                    space, feature, cell, cell, home, value,
                    (rates[0][feature], rates[1][feature]), (sides[0][feature], sides[1][feature]),
                )  # fmt: skip
                if distances[count] < np.inf:
                    count += 1
    return count


@kernel
def row_distances(space, row, rates, sides, distances, is_beyond):
    """`collect_distances`, for Python."""
    return collect_distances(space, row, rates, sides, distances, is_beyond)


@kernel
def threshold_distances(value, thresholds, rate, distances, is_exact):
    """Distances to thresholds, rounded down, and whether each is that double exactly.

    thresholds, distances  float64 (n,)   in, out
    is_exact               bool    (n,)   out
    """
    for index in range(len(thresholds)):
        threshold = thresholds[index]
        distances[index], is_exact[index] = quotient_down(
            max(value, threshold), min(value, threshold), rate
        )


@noalloc_kernel
def next_float(value, towards, is_single):
    """The next number of the input precision."""
    if is_single:
        return np.float64(np.nextafter(np.float32(value), np.float32(towards)))
    return np.nextafter(value, towards)


@noalloc_kernel
def is_reached(distance, is_exact, is_beyond, radius, is_open):
    """Whether a ball holds what lies at a distance, rounded down, or (is_beyond) just past it.

    is_open  bool  every larger ball is meant, instead of the closed one itself
    """
    return distance < radius or (distance == radius and (is_open or (is_exact and not is_beyond)))


class Sets(NamedTuple):
    """A set around each of some rows."""

    rows: np.ndarray  # (n_rows, n_features) float64
    down: np.ndarray  # (n_features,) float64; rates of balls
    up: np.ndarray  # (n_features,) float64
    low: np.ndarray  # (n_rows, n_features) float64; domain of balls, or the boxes
    high: np.ndarray  # (n_rows, n_features) float64
    radius: np.ndarray  # (n_rows,) float64; of balls
    is_open: np.ndarray  # (n_rows,) bool; see `is_reached`
    is_ball: bool


class Reach(NamedTuple):
    """One feature of one of the `Sets`."""

    down: float
    up: float
    low: float
    high: float
    radius: float
    is_open: bool
    is_ball: bool


@noalloc_kernel
def may_take(space, feature, value, point, reach, is_single):
    """Whether a feature may take a value in the set around a row.

    Sound: a set of real numbers may share some with a cell but none of the input precision. Then,
    and only then, the cell's nearest such number outside the set stands for them: the model cannot
    tell it from numbers of the set.
    """
    low, high, is_ball = reach.low, reach.high, reach.is_ball
    first = space.cut_start[feature]
    cell = cell_of(space, feature, point)
    is_above = point > value if is_ball else point > high
    is_reachable = True
    rate = reach.up if is_above else reach.down
    if is_ball:
        distance, is_exact = quotient_down(max(point, value), min(point, value), rate)
        is_reachable = is_reached(distance, is_exact, False, reach.radius, reach.is_open)
    if is_reachable and low <= point <= high:
        return True
    if not space.is_real:
        return False
    inwards = next_float(point, -np.inf if is_above else np.inf, is_single)
    if is_above:
        end = space.cut[first + cell - 1] if cell > 0 else -np.inf
        is_reachable = end <= high and (inwards < end or inwards < low)
    else:
        end = space.cut[first + cell] if first + cell < space.cut_start[feature + 1] else np.inf
        is_reachable = low < end and (inwards >= end or inwards > high)
    if is_ball and is_reachable:
        distance, is_exact = quotient_down(max(end, value), min(end, value), rate)
        is_reachable = is_reached(distance, is_exact, not is_above, reach.radius, reach.is_open)
    return is_reachable


@kernel
def lie_in_sets(space, sets, points, is_single):
    """Whether each point lies in the set around its row, up to what no model can tell apart.

    points     float64 (n_rows, n_features)
    is_single  bool    rows are float32
    """
    rows = sets.rows
    inside = np.empty(len(rows), dtype=np.bool_)
    for number in range(len(rows)):
        inside[number] = True
        for feature in range(rows.shape[1]):
            value = rows[number, feature]
            point = points[number, feature]
            if np.isnan(value) or space.categorical[feature] or (sets.is_ball and np.isinf(value)):
                is_inside = point == value or (np.isnan(value) and np.isnan(point))
            elif np.isnan(point) or (sets.is_ball and point == value):
                is_inside = point == value
            else:
                low, high = sets.low[number, feature], sets.high[number, feature]
                if sets.is_ball:  # a value beyond its bounds may stay, or come nearer
                    low, high = min(low, value), max(high, value)
                reach = Reach(
                    sets.down[feature], sets.up[feature], low, high, sets.radius[number],
                    sets.is_open[number], sets.is_ball,
                )  # fmt: skip
                is_inside = may_take(space, feature, value, point, reach, is_single)
            if not is_inside:
                inside[number] = False
                break
    return inside
