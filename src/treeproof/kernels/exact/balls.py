"""Balls in cells of features, and what best leaves exclude in a box."""

import numpy as np

from treeproof.kernels.core.arrays import sorted_order
from treeproof.kernels.core.balls import cell_distance
from treeproof.kernels.core.cells import FIXED, cell_from, cell_of
from treeproof.kernels.core.compiler import inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.core.leaves import best_sum, combination_up, summation_slack

SMALLEST_START = 1e-300
"""Trial radii begin here at least: the smallest doubles times a factor may not grow at all."""


@noalloc_kernel
def base_and_floor(forest, claim, leaves):
    """Gain before any tree, and the gain below which nothing can break a claim in a box."""
    start = forest.semantics.start
    slack = summation_slack(
        forest.trees, claim.coefficient, start, claim.unit, leaves.leaf_start, leaves.leaf_row
    )
    return combination_up(claim.coefficient, start), claim.need - slack - claim.link_slack


@noalloc_kernel
def is_excluded_by_eq6(base, floor, leaves):
    """Whether the floor is not reached even if every tree takes its best leaf.

    Sound: the sum is rounded up, and so is what adding it to the base may lose.
    """
    total, gross = best_sum(leaves)
    total += (len(leaves.leaf_start) + 4) * 2.0**-52 * gross
    return base + total + 2.0**-50 * abs(base) < floor


@inlined_kernel
def farthest_move(radius, rate):
    """A move of that radius, rounded up; a rate of 1 rounds nothing."""
    return radius if rate == 1.0 else np.nextafter(radius * rate, np.inf)


@noalloc_kernel
def ball_cells(space, region, radius, box):
    """Cells of a box that holds the closed ball, and perhaps a little more.

    Sound: the move is rounded up before it is taken, since its own rounding error may be much
    larger than a float of the end where the two cancel; then the end is rounded outwards.
    """
    for feature in range(len(region.row)):
        home = region.home[feature]
        if home == FIXED:
            box.low[feature] = FIXED
            box.high[feature] = FIXED
            continue
        value = region.row[feature]
        least = value
        most = value
        if region.down[feature] > 0.0:
            least = np.nextafter(value - farthest_move(radius, region.down[feature]), -np.inf)
            least = min(max(least, region.low[feature]), value)
        if region.up[feature] > 0.0:
            most = np.nextafter(value + farthest_move(radius, region.up[feature]), np.inf)
            most = max(min(most, region.high[feature]), value)
        box.low[feature] = cell_from(space, feature, least, home)
        box.high[feature] = cell_from(space, feature, most, home)


@noalloc_kernel
def drop_reached(space, region, found, box):
    """Drop the outer cells of a ball that are no nearer than the witness, or outside the region.

    Sound: no point there is nearer, and distances rise outwards from the row's own cell. Cells in
    which only the witness's own distance is attained may hold most of a box: flags change all at
    once.
    """
    upper, is_open = found.upper[0], found.is_open[0]
    if upper == np.inf:
        # What attains the radius is within the closed ball, what only approaches it is not.
        upper, is_open = region.within, True
    if upper == np.inf:
        return
    for feature in range(len(region.row)):
        home = region.home[feature]
        if home == FIXED:
            continue
        while box.low[feature] < home and is_reached(
            space, region, feature, box.low[feature], upper, is_open
        ):
            box.low[feature] += 1
        while box.high[feature] > home and is_reached(
            space, region, feature, box.high[feature], upper, is_open
        ):
            box.high[feature] -= 1


@noalloc_kernel
def is_reached(space, region, feature, cell, upper, is_open):
    """Whether a cell is no nearer than a distance, which may be open: only approached."""
    distance, is_beyond = cell_distance(
        space, feature, cell, cell, region.home[feature], region.row[feature],
        (region.down[feature], region.up[feature]), (region.low[feature], region.high[feature]),
    )  # fmt: skip
    return distance > upper or (distance == upper and (is_beyond or not is_open))


@noalloc_kernel
def covers_everything(space, region, box):
    """Whether a box of cells holds everything that the row can ever reach."""
    for feature in range(len(box.low)):
        if box.low[feature] == FIXED:
            continue
        home = region.home[feature]
        if region.down[feature] > 0.0:
            least = cell_of(space, feature, region.low[feature])
            if box.low[feature] > min(least, home):
                return False
        if region.up[feature] > 0.0:
            most = space.cut_start[feature + 1] - space.cut_start[feature]
            if region.high[feature] < np.inf:
                most = cell_of(space, feature, region.high[feature])
            if box.high[feature] < max(most, home):
                return False
    return True


@inner_kernel
def first_step(space, region):
    """A part of the distance to the nearest threshold that a tenth of the features have.

    A radius to begin with: few features move by small steps where others are flags, and too small
    a radius costs little, too large a one much.
    """
    steps = np.empty(len(region.row), dtype=np.float64)
    count = 0
    for feature in range(len(steps)):
        value = region.row[feature]
        rate = max(region.down[feature], region.up[feature])
        first = space.cut_start[feature]
        last = space.cut_start[feature + 1]
        if rate == 0.0 or first == last or np.isnan(value) or space.categorical[feature]:
            continue
        cell = first + cell_of(space, feature, value)
        nearest = np.inf
        if cell < last:
            nearest = space.cut[cell] - value
        if cell > first:
            nearest = min(nearest, value - space.cut[cell - 1])
        if 0.0 < nearest < np.inf:
            steps[count] = nearest / rate
            count += 1
    if count == 0:
        return 1.0
    order = sorted_order(steps[:count], True)
    return max(0.125 * steps[order[count // 10]], SMALLEST_START)
