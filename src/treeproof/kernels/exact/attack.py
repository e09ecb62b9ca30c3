"""Where the attack starts: the row itself, points decoded from the dual, and random neighbours."""

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.cells import box_cells, home_cells
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.emulation import BROKEN
from treeproof.kernels.core.leaves import restrict
from treeproof.kernels.exact.dual import enter_box, new_state, sweep
from treeproof.kernels.exact.initial_radius import plan
from treeproof.kernels.exact.primal import (
    NODES,
    RESTRICTIONS,
    SWEEPS,
    cell_distances,
    climb,
    clip_point,
    decode,
    new_target,
    reaches_need,
    shrink_box,
)
from treeproof.kernels.exact.problem import (
    ENTRY_START,
    HIGH,
    LEAF_START,
    LOW,
    PAIR_START,
    SLOT,
    build_problem,
)
from treeproof.kernels.exact.row import (
    ball_cells,
    base_and_floor,
    claim_of,
    covers_everything,
    first_step,
    is_out_of_reach,
    judge_point,
    nearest_cells,
    new_found,
    witness_point,
)

DECODED_AFTER = (1, 4, 12)
"""Numbers of sweeps after which a point is decoded from the dual; the starts after the first."""
DIVE_DEPTH = 6


@noalloc_kernel
def random_below(generator, count):
    """Random whole number from 0 to count - 1 (xorshift).

    generator  uint64 (1,)  state, not 0
    """
    state = generator[0]
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    generator[0] = state
    return np.int64((state >> np.uint64(11)) % np.uint64(count))


@noalloc_kernel
def kick(problem, state, generator, point):
    """Move a point into other leaves of a few random trees, as little as that needs.

    Of two random leaves of a tree the one with more gain is taken.
    """
    factors = problem.factors
    if problem.n_factors == 0:
        return
    for _ in range(1 + random_below(generator, 4)):
        factor = random_below(generator, problem.n_factors)
        first_leaf = factors[factor, LEAF_START]
        n_alive = state.n_alive[factor]
        leaf = random_below(generator, n_alive)
        other = random_below(generator, n_alive)
        if state.gain[first_leaf + other] > state.gain[first_leaf + leaf]:
            leaf = other
        entry = factors[factor, ENTRY_START] + leaf
        first_pair = factors[factor, PAIR_START]
        for index in range(first_pair, first_pair + state.n_active[factor]):
            slot = problem.pairs[state.active[index], SLOT]
            low = state.reach[state.range_low[entry], LOW]
            high = state.reach[state.range_high[entry], HIGH]
            point[slot] = min(max(point[slot], low), high)
            entry += n_alive
    clip_point(problem, state, point)


@noalloc_kernel
def keep_state(problem, state, kept, is_saving):
    """Save what a dive changes of a state, or restore it."""
    position = 0
    for cell in range(len(state.rest)):
        if is_saving:
            kept[position] = state.rest[cell]
        else:
            state.rest[cell] = kept[position]
        position += 1
    for segment in range(len(state.multiplier)):
        if is_saving:
            kept[position] = state.multiplier[segment]
        else:
            state.multiplier[segment] = kept[position]
        position += 1
    for slot in range(problem.n_slots):
        for side in range(2):
            if is_saving:
                kept[position] = state.box[slot, side]
            else:
                state.box[slot, side] = np.int32(kept[position])
            position += 1
    if is_saving:
        kept[position] = state.constant[0]
    else:
        state.constant[0] = kept[position]


@noalloc_kernel
def dive(problem, state, target, bound, kept, generator):
    """Narrow random slots towards the dual's favourites, sweeping in between, and decode.

    The box, and what goes with it in the state, is left as it was; the point lies in the box.

    kept  float64 (n_cells + n_segments + 1 + 2 * n_slots,)  scratch
    """
    keep_state(problem, state, kept, True)
    for turn in range(DIVE_DEPTH):
        slot = random_below(generator, problem.n_slots)
        low, high = state.box[slot, LOW], state.box[slot, HIGH]
        if low == high:
            continue
        best = low
        for cell in range(low + 1, high + 1):
            if state.rest[cell] > state.rest[best]:
                best = cell
        cut = low + random_below(generator, high - low)
        state.box[slot, LOW] = cut + 1 if best > cut else low
        state.box[slot, HIGH] = high if best > cut else cut
        bound = enter_box(problem, state)
        bound = sweep(problem, state, turn % 2 == 0, bound, target.floor)
        target.counts[SWEEPS] += 1
        if bound < target.floor:
            break
    decode(problem, state, state.rest, target.distance, target.point)
    keep_state(problem, state, kept, False)
    enter_box(problem, state)


@noalloc_kernel
def start_point(problem, state, target, start, bound, best, kept, generator):
    """Put the start with the given number into ``target.point``; returns the dual bound."""
    if start == 0:
        for cell in range(len(state.marginal)):
            state.marginal[cell] = 0.0
        decode(problem, state, state.marginal, target.distance, target.point)
        return bound
    if start <= len(DECODED_AFTER):
        done = DECODED_AFTER[start - 2] if start > 1 else 0
        for turn in range(done, DECODED_AFTER[start - 1]):
            bound = sweep(problem, state, turn % 2 == 0, bound, target.floor)
            target.counts[SWEEPS] += 1
            if bound < target.floor:
                return bound
        decode(problem, state, state.rest, target.distance, target.point)
        return bound
    if start % 4 == 2:
        dive(problem, state, target, bound, kept, generator)
        return bound
    if start % 4 == 0:
        bound = sweep(problem, state, start % 8 == 0, bound, target.floor)
        target.counts[SWEEPS] += 1
        decode(problem, state, state.rest, target.distance, target.point)
    else:
        copy_into(target.point, best)
    kick(problem, state, generator, target.point)
    return bound


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
    columns  Columns  out, see `treeproof.kernels.exact.row`; others see `attack_row`
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
