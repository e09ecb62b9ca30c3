"""Batches of rows for the exact engine: start radii, concrete witnesses, columns of results."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.arrays import copy_into, sorted_order
from treeproof.kernels.clock import seconds_now
from treeproof.kernels.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.exact import Found, solve_row
from treeproof.kernels.rank_space import FIXED, cell_of


@noalloc_kernel
def into_box(value, low, high, is_single):
    """Nearest number of the input precision inside a closed interval, if it has one."""
    if value < low:
        value = low
        if is_single and np.float64(np.float32(value)) < low:
            value = np.float64(np.nextafter(np.float32(value), np.float32(np.inf)))
    elif value > high:
        value = high
        if is_single and np.float64(np.float32(value)) > high:
            value = np.float64(np.nextafter(np.float32(value), np.float32(-np.inf)))
    return np.float64(np.float32(value)) if is_single else value


@noalloc_kernel
def witness_point(space, row, cells, is_single, low, high, is_ball, point):
    """Nearest row of the model's input precision in the given cells.

    Upwards a cell starts at a threshold, which is a number of that precision; downwards the last
    number below the cell's end is taken. Where a set holds real numbers of the cell but none of
    that precision, the point lies one step outside the set.
    """
    for feature in range(len(row)):
        value = row[feature]
        if cells[feature] != FIXED:
            cuts = space.cut_start[feature]
            here = cell_of(space, feature, value)
            if cells[feature] > here:
                value = space.cut[cuts + cells[feature] - 1]
            elif cells[feature] < here:
                value = space.cut[cuts + cells[feature]]
                if is_single:
                    value = np.float64(np.nextafter(np.float32(value), np.float32(-np.inf)))
                else:
                    value = np.nextafter(value, -np.inf)
            if not is_ball:
                inside = into_box(value, low[feature], high[feature], is_single)
                if cell_of(space, feature, inside) != cells[feature]:
                    # The cell and the box share real numbers but none of float32; the nearest
                    # float32 of the cell is the one just outside the box.
                    away = np.float32(-np.inf if value < low[feature] else np.inf)
                    inside = np.float64(np.nextafter(np.float32(inside), away))
                value = inside
        point[feature] = value


SMALLEST_START = 1e-300
"""Trial radii begin here at least: the smallest doubles times a factor may not grow at all."""


class Columns(NamedTuple):
    """Results of a batch, one row each; see `treeproof.results.outcomes.Outcomes`."""

    status: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    is_open: np.ndarray
    witness: np.ndarray
    seconds: np.ndarray
    counts: np.ndarray
    cheap: np.ndarray


@inner_kernel
def new_found(n_features):
    """Nothing known: lower 0, upper infinite."""
    upper = np.empty(1, dtype=np.float64)
    upper[0] = np.inf
    return Found(
        np.zeros(1, dtype=np.float64),
        upper,
        np.zeros(1, dtype=np.bool_),
        np.zeros(n_features, dtype=np.int32),
        np.zeros(4, dtype=np.int64),
        np.zeros(1, dtype=np.float64),
    )


@kernel
def solve_batch(
    trees, space, semantics, alternatives, is_input_single, groups, rows, down, up, low, high,
    is_ball, start_radius, margin, skip, limits, columns,
):  # fmt: skip
    """Solve every row of a batch but those in `skip`.

    down, up       float64 (n_features,)         rates of a ball
    low, high      float64 (n_rows, n_features)  domain of a ball, or the boxes
    is_ball        bool                          nearest violation; otherwise any in the box
    start_radius   float64   near the answers; not positive: taken from the rows themselves
    margin         float64   see `search_row`
    """
    clock = np.empty(2, dtype=np.int64)
    for number in range(len(rows)):
        if skip[number]:
            continue
        started = seconds_now(clock)
        found = new_found(rows.shape[1])
        radius = start_radius
        if not radius > 0.0:
            radius = first_step(space, rows[number], down, up)
        radius = max(radius, SMALLEST_START)
        columns.status[number] = solve_row(
            trees, space, semantics, alternatives, groups[number], rows[number], down, up,
            low[number], high[number], is_ball, radius, margin, found,
            limits,
        )  # fmt: skip
        columns.lower[number] = found.lower[0]
        columns.upper[number] = found.upper[0]
        columns.is_open[number] = found.is_open[0]
        copy_into(columns.counts[number], found.counts)
        columns.cheap[number] = found.cheap[0]
        if found.upper[0] < np.inf:
            witness_point(
                space, rows[number], found.witness, is_input_single, low[number], high[number],
                is_ball, columns.witness[number],
            )  # fmt: skip
        columns.seconds[number] = seconds_now(clock) - started


@inner_kernel
def first_step(space, row, down, up):
    """A part of the distance to the nearest threshold that a tenth of the features have.

    A radius to begin with: few features move by small steps where others are flags, and too small
    a radius costs little, too large a one much.
    """
    steps = np.empty(len(row), dtype=np.float64)
    count = 0
    for feature in range(len(row)):
        rate = max(down[feature], up[feature])
        first = space.cut_start[feature]
        last = space.cut_start[feature + 1]
        if rate == 0.0 or first == last or np.isnan(row[feature]) or space.categorical[feature]:
            continue
        cell = first + cell_of(space, feature, row[feature])
        nearest = np.inf
        if cell < last:
            nearest = space.cut[cell] - row[feature]
        if cell > first:
            nearest = min(nearest, row[feature] - space.cut[cell - 1])
        if 0.0 < nearest < np.inf:
            steps[count] = nearest / rate
            count += 1
    if count == 0:
        return 1.0
    order = sorted_order(steps[:count], True)
    return max(0.125 * steps[order[count // 10]], SMALLEST_START)
