"""Whole rows answered by cliques alone: what the exact engine could do with them."""

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.cells import box_cells, home_cells
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel
from treeproof.kernels.exact.forest_cliques import (
    CLEARED,
    IN_DOUBT,
    OUT_OF_NODES,
    OUT_OF_TIME,
    TOO_LARGE,
    Nearest,
    Surroundings,
    explore_cliques,
)
from treeproof.kernels.exact.initial_radius import plan
from treeproof.kernels.exact.row import (
    SMALLEST_START,
    ball_cells,
    claim_of,
    covers_everything,
    first_step,
    witness_point,
)
from treeproof.kernels.exact.search import MEMORY_LIMIT, NEAR_TIE, NODE_LIMIT, PROVED, TIME_LIMIT

FIRST, GROWTH = 1.5, 1.3


@inner_kernel
def status_of(status):
    """The exact engine's name of a status."""
    if status == OUT_OF_NODES:
        return NODE_LIMIT
    if status == OUT_OF_TIME:
        return TIME_LIMIT
    if status == TOO_LARGE:
        return MEMORY_LIMIT
    return NEAR_TIE if status == IN_DOUBT else PROVED


@inner_kernel
def clique_row(
    trees, space, semantics, alternatives, group, row, down, up, low, high, is_ball, start_radius,
    nearest, lower, cheap, limits,
):  # fmt: skip
    """As `treeproof.kernels.exact.row.search_row`; ``lower`` and ``nearest`` hold at any return."""
    n_features = len(row)
    clock = np.empty(2, dtype=np.int64)
    deadline = seconds_now(clock) + limits.time_s
    row_cell = np.empty(n_features, dtype=np.int32)
    low_cell = np.empty(n_features, dtype=np.int32)
    high_cell = np.empty(n_features, dtype=np.int32)
    home_cells(space, row, is_ball, row_cell)
    around = Surroundings(row, row_cell, down, up, low, high, is_ball)
    if not is_ball:
        box_cells(space, row, low, high, low_cell, high_cell)
    order, radius = plan(
        trees, space, semantics, alternatives, group, row, down, up, low, high, is_ball,
        start_radius,
    )  # fmt: skip
    if len(order) == 0:
        lower[0] = np.inf
        return PROVED
    cheap[0] = radius
    radius *= FIRST
    while True:
        cleared = np.inf
        worst = CLEARED
        for number in order:
            if is_ball:
                radius = min(radius, nearest.upper[0])
                ball_cells(space, row, row_cell, radius, down, up, low, high, low_cell, high_cell)
            claim = claim_of(alternatives, group, alternatives.alternative_start[number])
            status, distance = explore_cliques(
                trees, space, semantics, claim, around, low_cell, high_cell, nearest, limits.nodes,
                deadline, limits.memory_bytes,
            )  # fmt: skip
            cleared = min(cleared, distance)
            worst = max(worst, status)
            if not is_ball and nearest.upper[0] < np.inf:
                return PROVED
            if worst not in (CLEARED, IN_DOUBT):
                cleared = 0.0 if number != order[-1] else cleared
                break
        bound = min(min(radius, cleared), min(nearest.upper[0], nearest.doubt[0]))
        lower[0] = max(lower[0], bound)
        is_all = covers_everything(space, low_cell, high_cell, row_cell, down, up, low, high)
        if worst != CLEARED or nearest.upper[0] <= radius:
            return status_of(worst)
        if not is_ball or (is_all and nearest.upper[0] == np.inf):
            lower[0] = np.inf
            return PROVED
        radius = nearest.upper[0] if nearest.upper[0] < np.inf else radius * GROWTH


@kernel
def clique_batch(
    trees, space, semantics, alternatives, is_input_single, groups, rows, down, up, low, high,
    is_ball, start_radius, margin, skip, limits, columns,
):  # fmt: skip
    """As `treeproof.kernels.exact.row.solve_batch`."""
    clock = np.empty(2, dtype=np.int64)
    for number in range(len(rows)):
        if skip[number]:
            continue
        started = seconds_now(clock)
        nearest = Nearest(
            np.full(1, np.inf), np.zeros(1, dtype=np.bool_),
            np.zeros(rows.shape[1], dtype=np.int32), np.full(2, np.inf),
            np.zeros(3, dtype=np.int64),
        )  # fmt: skip
        radius = start_radius
        if not radius > 0.0:
            radius = first_step(space, rows[number], down, up)
        radius = max(radius, SMALLEST_START)
        columns.status[number] = clique_row(
            trees, space, semantics, alternatives, groups[number], rows[number], down, up,
            low[number], high[number], is_ball, radius, nearest, columns.lower[number : number + 1],
            columns.cheap[number : number + 1], limits,
        )  # fmt: skip
        columns.upper[number] = nearest.upper[0]
        columns.is_open[number] = nearest.is_open[0]
        copy_into(columns.counts[number], nearest.counts)
        if nearest.upper[0] < np.inf:
            witness_point(
                space, rows[number], nearest.witness, is_input_single, low[number], high[number],
                is_ball, columns.witness[number],
            )  # fmt: skip
        columns.seconds[number] = seconds_now(clock) - started
