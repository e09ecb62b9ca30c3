"""Parts of a box that wait to be searched."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import grow_table
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.exact.dual import enter_box, marginals, refresh, sweep
from treeproof.kernels.exact.primal import NODES, SWEEPS, decode, reaches_need, shrink_box
from treeproof.kernels.exact.problem import EDGE, FACTOR, HIGH, LOW, PAIR_START, SEGMENT_START


class OpenBoxes(NamedTuple):
    """Parts that are searched later, and how the current one is to be taken up.

    values  float64 (capacity, n_segments + n_cells + 1)  multipliers, rest, constant
    boxes   int32   (capacity, 2 * n_slots)               lows, then highs
    n_open  int64   (1,)
    """

    values: np.ndarray
    boxes: np.ndarray
    n_open: np.ndarray


@inner_kernel
def new_waiting(problem, state):
    """Room for a few open boxes."""
    size = len(state.multiplier) + len(state.rest) + 1
    return OpenBoxes(
        np.empty((8, size), dtype=np.float64),
        np.empty((8, 2 * problem.n_slots), dtype=np.int32),
        np.zeros(1, dtype=np.int64),
    )


@noalloc_kernel
def save_open(state, values, box):
    """Keep multipliers, rest, constant and box of a part that is searched later."""
    n_segments = len(state.multiplier)
    n_cells = len(state.rest)
    for index in range(n_segments):
        values[index] = state.multiplier[index]
    for index in range(n_cells):
        values[n_segments + index] = state.rest[index]
    values[n_segments + n_cells] = state.constant[0]
    n_slots = len(state.box)
    for slot in range(n_slots):
        box[slot] = state.box[slot, LOW]
        box[n_slots + slot] = state.box[slot, HIGH]


@noalloc_kernel
def load_open(state, values, box):
    """Bring back what `save_open` kept."""
    n_segments = len(state.multiplier)
    n_cells = len(state.rest)
    for index in range(n_segments):
        state.multiplier[index] = values[index]
    for index in range(n_cells):
        state.rest[index] = values[n_segments + index]
    state.constant[0] = values[n_segments + n_cells]
    n_slots = len(state.box)
    for slot in range(n_slots):
        state.box[slot, LOW] = box[slot]
        state.box[slot, HIGH] = box[n_slots + slot]


PROVED, UNDECIDED, NODE_LIMIT, TIME_LIMIT, MEMORY_LIMIT, NEAR_TIE, JUDGE = 0, 1, 2, 3, 4, 5, 6
"""Nothing nearer exists; a quick search gave up; a limit was reached; a link's rounding decides; a
point has to be judged."""

CLOSED, SPLIT, CANDIDATE = 0, 1, 2
FRESH, WITNESSED, REJECTED, SETTLED = 0, 1, 2, 3

QUICK_SWEEPS, ROOT_SWEEPS, NODE_SWEEPS = 4, 12, 30
WORTH_ANOTHER_TRY = 0.8
"""Sweeping goes on in a box of which at most this share of cells is left."""
PATIENCE = 5.0
"""Sweeping ends when that many more sweeps like the last one would not close the box."""


@noalloc_kernel
def eliminate(problem, state, bound, floor):
    """Drop end cells that no violation can use; returns the share kept, 0 when a slot has none."""
    n_before = 1  # so that a problem without slots keeps all of nothing
    n_after = 1
    for slot in range(problem.n_slots):
        low = state.box[slot, LOW]
        high = state.box[slot, HIGH]
        while low <= high and bound + state.marginal[low] < floor:
            low += 1
        while low <= high and bound + state.marginal[high] < floor:
            high -= 1
        n_before += state.box[slot, HIGH] - state.box[slot, LOW] + 1
        n_after += high - low + 1
        state.box[slot, LOW] = low
        state.box[slot, HIGH] = high
        if low > high:
            return 0.0
    return n_after / n_before


@noalloc_kernel
def count_boundaries(problem, state, slot, low, high):
    """How much is decided by cutting a slot after each of its cells from low to high - 1.

    Fills ``scratch``: boundaries of living factors there, and far less for one-feature trees.
    """
    boundaries = state.scratch
    for cell in range(low, high):
        boundaries[cell] = 1.0 if problem.cells[cell + 1, EDGE] else 0.0
    for index in range(problem.slots[slot, PAIR_START], problem.slots[slot + 1, PAIR_START]):
        pair = problem.slot_pair[index]
        if state.n_alive[problem.pairs[pair, FACTOR]] < 2:
            continue
        start = problem.pairs[pair, SEGMENT_START]
        for segment in range(start + state.span[pair, LOW], start + state.span[pair, HIGH]):
            cell = problem.segments[segment, HIGH]
            if low <= cell < high:
                boundaries[cell] += 1024.0


@noalloc_kernel
def choose_branch(problem, state, gap):
    """Slot and last cell of its left part; slot -1 when all remaining points reach the same leaves.

    Only cells whose marginal is within the gap can belong to a violation, and the dual cannot
    choose between them. The slot with most factor boundaries between such cells decides most;
    boundaries of one-feature trees matter only when nothing else is left. With slot -1, the first
    cell within the gap of every slot is left in `state.box`.
    """
    best_slot = -1
    best_cell = 0
    best_weight = 0.0
    for slot in range(problem.n_slots):
        low = state.box[slot, LOW]
        high = state.box[slot, HIGH]
        while low < high and state.marginal[low] < -gap:
            low += 1
        while high > low and state.marginal[high] < -gap:
            high -= 1
        count_boundaries(problem, state, slot, low, high)
        weight = 0.0
        most = 0.0
        middle = low
        for cell in range(low, high):
            weight += state.scratch[cell]
            balance = state.scratch[cell] * (1 + min(cell - low, high - 1 - cell))
            if balance > most:
                most = balance
                middle = cell
        if weight > best_weight:
            best_weight = weight
            best_slot = slot
            best_cell = middle
    if best_slot < 0:
        for slot in range(problem.n_slots):
            while (
                state.box[slot, LOW] < state.box[slot, HIGH]
                and state.marginal[state.box[slot, LOW]] < -gap
            ):
                state.box[slot, LOW] += 1
    return best_slot, best_cell


@noalloc_kernel
def close_or_split(problem, state, target, is_root, is_quick, taken_up):
    """Work on the state's box until it is closed, has to be split, or shows a point to be judged.

    taken_up  int   FRESH: a new box; WITNESSED: the last point broke the claim, so the box
                    shrinks; REJECTED: it did not, so no more points of this box are proposed

    Returns
    -------
    outcome  int      CLOSED, SPLIT or CANDIDATE
    gap      float64  for SPLIT: how far the bound is above the floor, rounding included
    """
    floor = target.floor
    if not shrink_box(problem, state, target, target.upper[0], target.is_open[0]):
        return CLOSED, 0.0
    bound = enter_box(problem, state)
    limit = ROOT_SWEEPS if is_root else NODE_SWEEPS
    turn = 0
    while True:
        if bound < floor:
            # The sweeps' bound drifts with rounding; only the fresh one closes a box.
            bound, error = refresh(problem, state)
            if bound + error < floor:
                return CLOSED, 0.0
        before = bound
        bound = sweep(problem, state, turn % 2 == 0, bound, floor)
        target.counts[SWEEPS] += 1
        turn += 1
        if bound < floor and turn < limit:
            continue
        if is_root:
            if turn == (1 if taken_up == FRESH else 2) and taken_up != REJECTED:
                decode(problem, state, state.rest, target.distance, target.point)
                if reaches_need(problem, state, target, np.int64(3)):
                    return CANDIDATE, 0.0
            elif turn == QUICK_SWEEPS:
                outcome, gap, _ = look_closer(problem, state, target, taken_up != REJECTED)
                if outcome != SPLIT or is_quick:
                    return outcome, gap
                bound = enter_box(problem, state)
        if turn == limit or (
            turn >= 2 and not is_root and bound - floor > PATIENCE * (before - bound)
        ):
            # The sweeps will not get there; a smaller box or splitting will.
            outcome, gap, kept = look_closer(problem, state, target, taken_up != REJECTED)
            if outcome != SPLIT or kept > WORTH_ANOTHER_TRY:
                return outcome, gap
            bound = enter_box(problem, state)
            turn = 0


@noalloc_kernel
def look_closer(problem, state, target, may_propose):
    """Use the costs of single cells: propose the cheapest point, drop cells that cost too much."""
    bound, error = refresh(problem, state)
    if bound + error < target.floor:
        return CLOSED, 0.0, 0.0
    marginals(problem, state)
    if may_propose:
        decode(problem, state, state.marginal, target.distance, target.point)
        if reaches_need(problem, state, target, np.int64(0)):
            return CANDIDATE, 0.0, 1.0
    # Sound: with a cell fixed the bound is bound + marginal, each within error of exact.
    kept = eliminate(problem, state, bound + 2.0 * error, target.floor)
    if kept == 0.0:
        return CLOSED, 0.0, 0.0
    return SPLIT, bound + 2.0 * error - target.floor, kept


@inner_kernel
def search(problem, state, target, waiting, is_root, is_quick, taken_up, node_limit, deadline,
           memory_limit):  # fmt: skip
    """Go on with a search until a point has to be judged or the search ends.

    waiting     OpenBoxes  parts still to be searched
    is_root     bool       the current box is the first
    is_quick    bool       root only, a few sweeps; ends UNDECIDED when not proved
    taken_up    int        see `close_or_split`; SETTLED: nothing is left of the current box
    node_limit  int64      counted over all searches of the row
    deadline    float64    on `seconds_now`
    memory_limit  float64  bytes for open boxes

    Returns
    -------
    status   int        PROVED: nothing nearer than ``target.upper`` is left; JUDGE: decide
                        ``target.point`` and come again; or why the search ended
    waiting  OpenBoxes  the parts, perhaps in larger arrays
    is_tuple bool       the point stands for all that is left of the current box
    """
    n_slots = problem.n_slots
    clock = np.empty(2, dtype=np.int64)
    while True:
        if taken_up == FRESH:
            target.counts[NODES] += 1
            if target.counts[NODES] > node_limit:
                return NODE_LIMIT, waiting, False
            if not is_root and seconds_now(clock) > deadline:
                return TIME_LIMIT, waiting, False
        outcome = CLOSED
        gap = 0.0
        if taken_up != SETTLED:
            outcome, gap = close_or_split(problem, state, target, is_root, is_quick, taken_up)
        if outcome == CANDIDATE:
            return JUDGE, waiting, False
        if outcome == SPLIT:
            if is_quick:
                return UNDECIDED, waiting, False
            slot, cell = choose_branch(problem, state, gap)
            if slot < 0:
                # One leaf tuple is left, within the slack: only the library's own sum can tell.
                for other in range(n_slots):
                    target.point[other] = state.box[other, LOW]
                return JUDGE, waiting, True
            number = waiting.n_open[0]
            if number == len(waiting.values):
                if 16.0 * number * (waiting.values.shape[1] + n_slots) > memory_limit:
                    return MEMORY_LIMIT, waiting, False
                waiting = OpenBoxes(
                    grow_table(waiting.values, 2 * number),
                    grow_table(waiting.boxes, 2 * number),
                    waiting.n_open,
                )
            save_open(state, waiting.values[number], waiting.boxes[number])
            if peaks_right(state, slot, cell):
                waiting.boxes[number, n_slots + slot] = cell
                state.box[slot, LOW] = cell + 1
            else:
                waiting.boxes[number, slot] = cell + 1
                state.box[slot, HIGH] = cell
            waiting.n_open[0] += 1
        elif waiting.n_open[0] == 0:
            return PROVED, waiting, False
        else:
            waiting.n_open[0] -= 1
            number = waiting.n_open[0]
            load_open(state, waiting.values[number], waiting.boxes[number])
        is_root = False
        taken_up = FRESH


@noalloc_kernel
def peaks_right(state, slot, cell):
    """Whether the best cell of a slot lies right of a cut; that part is searched first."""
    best = state.box[slot, LOW]
    for other in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
        if state.marginal[other] > state.marginal[best]:
            best = other
    return best > cell
