"""A white-box search for near violations: descent over leaf tuples, from many starts.

A point is one cell per feature, that is, one leaf per tree. Coordinate ascent raises its gain
inside a box until the claim breaks; then the box shrinks to what lies nearer than the witness and
the descent goes on from there. Where it gets stuck, it starts again, see attack_starts.py. Nothing
is proved here; every violation is judged by the library's own arithmetic.
"""

import numpy as np

from treeproof.kernels.arrays import copy_into
from treeproof.kernels.attack_starts import start_point
from treeproof.kernels.clock import seconds_now
from treeproof.kernels.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.dual import new_state
from treeproof.kernels.emulation import BROKEN
from treeproof.kernels.entering import enter_box
from treeproof.kernels.exact import (
    ball_cells,
    base_and_floor,
    claim_of,
    covers_everything,
    is_out_of_reach,
    judge_point,
    nearest_cells,
)
from treeproof.kernels.exact_batch import first_step, new_found, witness_point
from treeproof.kernels.primal import cell_distances, clip_point
from treeproof.kernels.problem import build_problem
from treeproof.kernels.rank_space import box_cells, home_cells
from treeproof.kernels.restriction import restrict
from treeproof.kernels.starting import plan
from treeproof.kernels.witnesses import (
    NODES,
    RESTRICTIONS,
    climb,
    new_target,
    reaches_need,
    shrink_box,
)

FINISHED, OUT_OF_TIME, OUT_OF_STARTS = 0, 1, 2
NOTHING_THERE, NOTHING_FOUND, FOUND, LIMITED = 0, 1, 2, 3

FIRST_STARTS = 3
"""Starts at a trial radius before any witness is known."""
ROUNDS = 4
FIRST_MARGIN = 1.2
"""The first trial radius over the one from which best leaves could break the claim."""
GROWTH, SMALL_GROWTH = 1.5, 1.4
"""How a trial radius grows when nothing can be there, and when nothing was found."""


@inner_kernel
def attack_box(
    trees, space, semantics, claim, row, row_cell, down, up, low, high, low_cell, high_cell,
    is_ball, n_starts, most_starts, found, generator, deadline,
):  # fmt: skip
    """Search one box of cells; a ball until `n_starts` starts in a row find nothing nearer.

    most_starts  int64  starts of the row in all, counted in ``found.counts[NODES]``

    Returns
    -------
    int
        NOTHING_THERE when a bound tells that no violation (nearer than the witness) is there;
        NOTHING_FOUND or FOUND; LIMITED when time or starts ran out.
    """
    found.counts[RESTRICTIONS] += 1
    leaf_start, leaf_gain, leaf_row, range_start, feature, range_low, range_high = restrict(
        trees, space, row, low_cell, high_cell, claim.coefficient, semantics.zero_band
    )
    base, floor = base_and_floor(trees, semantics, claim, leaf_start, leaf_row)
    if is_out_of_reach(base, floor, leaf_start, leaf_gain):
        return NOTHING_THERE
    problem = build_problem(
        base, leaf_start, leaf_gain, range_start, feature, range_low, range_high, low_cell,
        high_cell,
    )  # fmt: skip
    state = new_state(problem)
    distance, is_beyond = cell_distances(
        problem, space, row, row_cell, down, up, low, high, is_ball
    )
    target = new_target(problem, claim.need, floor, distance, is_beyond, found)
    template = nearest_cells(row_cell, low_cell, high_cell)
    cells = np.empty(len(row), dtype=np.int32)
    total = np.empty(len(semantics.start), dtype=np.float64)
    best = np.zeros(problem.n_slots, dtype=np.int32)
    kept = np.empty(
        len(state.rest) + len(state.multiplier) + 2 * problem.n_slots + 1, dtype=np.float64
    )
    clock = np.empty(2, dtype=np.int64)
    best_value = -np.inf
    status = NOTHING_FOUND
    start = 0
    if not shrink_box(problem, state, target, target.upper[0], target.is_open[0]):
        return NOTHING_THERE
    bound = enter_box(problem, state)
    # Few features in play have few neighbourhoods to search.
    n_starts = min(n_starts, 10 + 3 * problem.n_slots)
    while start < n_starts and problem.n_slots > 0:
        found.counts[NODES] += 1
        if found.counts[NODES] > most_starts or seconds_now(clock) > deadline:
            return LIMITED
        bound = start_point(problem, state, target, start, bound, best, kept, generator)
        if bound < floor:
            return NOTHING_THERE if status == NOTHING_FOUND else status
        start += 1
        value = climb(problem, state, target, ROUNDS)
        if value < target.need:
            if value > best_value:
                best_value = value
                copy_into(best, target.point)
            continue
        verdict = judge_point(
            trees, space, semantics, claim, row, problem, target, template, cells, total, found
        )
        if verdict != BROKEN:
            continue
        status = FOUND
        if not is_ball or not descend_again(
            trees, space, semantics, claim, row, problem, state, target, template, cells, total,
            found,
        ):  # fmt: skip
            return status
        best_value = -np.inf
        bound = enter_box(problem, state)
        start = 1
    return status


@noalloc_kernel
def descend_again(
    trees, space, semantics, claim, row, problem, state, target, template, cells, total, found
):
    """Move the witness closer as long as ascent inside the nearer box breaks the claim again.

    Ends with a point of that box which does not; False when no nearer box is left.
    """
    while True:
        if not shrink_box(problem, state, target, target.upper[0], target.is_open[0]):
            return False
        clip_point(problem, state, target.point)
        if not reaches_need(problem, state, target, ROUNDS):
            return True
        verdict = judge_point(
            trees, space, semantics, claim, row, problem, target, template, cells, total, found
        )
        if verdict != BROKEN:
            return True


@inner_kernel
def attack_row(
    trees, space, semantics, alternatives, group, row, down, up, low, high, is_ball, start_radius,
    n_starts, most_starts, found, generator, time_limit,
):  # fmt: skip
    """Look for a near violation of a row, or any in a box; ``found`` is valid at any return.

    Trial radii grow until a witness is found; then every alternative is searched inside the
    nearest witness so far.
    """
    clock = np.empty(2, dtype=np.int64)
    deadline = seconds_now(clock) + time_limit
    row_cell = np.empty(len(row), dtype=np.int32)
    low_cell = np.empty(len(row), dtype=np.int32)
    high_cell = np.empty(len(row), dtype=np.int32)
    home_cells(space, row, is_ball, row_cell)
    if not is_ball:
        box_cells(space, row, low, high, low_cell, high_cell)
    order, radius = plan(
        trees, space, semantics, alternatives, group, row, down, up, low, high, is_ball,
        start_radius,
    )  # fmt: skip
    radius *= FIRST_MARGIN
    is_first = is_ball
    while True:
        is_anything = False
        is_everything = True
        for number in order:
            if is_ball:
                radius = min(radius, found.upper[0])
                ball_cells(space, row, row_cell, radius, down, up, low, high, low_cell, high_cell)
                is_everything = covers_everything(
                    space, low_cell, high_cell, row_cell, down, up, low, high
                )
            count = FIRST_STARTS if is_first and not is_everything else n_starts
            claim = claim_of(alternatives, group, alternatives.alternative_start[number])
            status = attack_box(
                trees, space, semantics, claim, row, row_cell, down, up, low, high, low_cell,
                high_cell, is_ball, count, most_starts, found, generator, deadline,
            )  # fmt: skip
            if status == LIMITED:
                return OUT_OF_TIME if seconds_now(clock) > deadline else OUT_OF_STARTS
            is_anything = is_anything or status != NOTHING_THERE
            if status == FOUND and (not is_ball or found.upper[0] == 0.0):
                return FINISHED
        if not is_first or (is_everything and found.upper[0] == np.inf):
            return FINISHED
        if found.upper[0] < np.inf:
            is_first = False
            continue
        radius *= SMALL_GROWTH if is_anything else GROWTH


@kernel
def attack_batch(
    trees, space, semantics, alternatives, is_input_single, groups, rows, down, up, low, high,
    is_ball, n_starts, most_starts, seed, skip, time_limit, columns,
):  # fmt: skip
    """Attack every row of a batch but those in `skip`.

    seed     uint64   random choices of every row; the same row is attacked the same in any batch
    columns  Columns  out, see `treeproof.kernels.exact_batch`; others see `attack_row`
    """
    clock = np.empty(2, dtype=np.int64)
    generator = np.empty(1, dtype=np.uint64)
    for number in range(len(rows)):
        if skip[number]:
            continue
        started = seconds_now(clock)
        generator[0] = (np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
        found = new_found(rows.shape[1])
        radius = first_step(space, rows[number], down, up)
        columns.status[number] = attack_row(
            trees, space, semantics, alternatives, groups[number], rows[number], down, up,
            low[number], high[number], is_ball, radius, n_starts, most_starts, found, generator,
            time_limit,
        )  # fmt: skip
        columns.upper[number] = found.upper[0]
        columns.is_open[number] = found.is_open[0]
        copy_into(columns.counts[number], found.counts)
        if found.upper[0] < np.inf:
            witness_point(
                space, rows[number], found.witness, is_input_single, low[number], high[number],
                is_ball, columns.witness[number],
            )  # fmt: skip
        columns.seconds[number] = seconds_now(clock) - started
