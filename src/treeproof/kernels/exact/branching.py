"""Where boxes are cut in two, and which of their cells cannot matter."""

import numpy as np

from treeproof.kernels.core.compiler import ONE, noalloc_kernel
from treeproof.kernels.exact.problem import (
    EDGE,
    FACTOR,
    GROSS,
    HIGH,
    LEAF_START,
    LOW,
    PAIR_START,
    SEGMENT_START,
)

SMALL = 0.01
"""Spread and jump of a boundary that has none, which counts when nothing else is left."""
JUMP = 0.75
"""Part of what may be spent by which costs jump where boxes are split first."""


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
def gain_spread(problem, state, factor):
    """How far the gains of a factor are apart."""
    first = problem.factors[factor, LEAF_START]
    least = np.inf
    most = -np.inf
    for leaf in range(first, first + state.n_alive[factor]):
        least = min(least, state.gain[leaf])
        most = max(most, state.gain[leaf])
    return most - least


@noalloc_kernel
def count_boundaries(problem, state, slot, low, high):
    """How much is decided by cutting a slot after each of its cells from low to high - 1.

    Fills ``scratch``: boundaries of living factors there, and far less for one-feature trees. A
    boundary counts by the spread of its factor's gains and by the jump of its multipliers, in
    geometric mean, both over the mean of the largest gains of all trees: where multipliers jump,
    the factor wants another side than others do, and only a cut makes it give way.
    """
    boundaries = state.scratch
    for cell in range(low, high):
        boundaries[cell] = 1.0 if problem.cells[cell + 1, EDGE] else 0.0
    scale = problem.n_trees / (problem.terms[GROSS] + 1e-300)
    for index in range(problem.slots[slot, PAIR_START], problem.slots[slot + 1, PAIR_START]):
        pair = problem.slot_pair[index]
        if state.n_alive[problem.pairs[pair, FACTOR]] < 2:
            continue
        spread = SMALL + scale * gain_spread(problem, state, problem.pairs[pair, FACTOR])
        start = problem.pairs[pair, SEGMENT_START]
        for segment in range(start + state.span[pair, LOW], start + state.span[pair, HIGH]):
            cell = problem.segments[segment, HIGH]
            if low <= cell < high:
                jump = abs(state.multiplier[segment] - state.multiplier[segment + ONE])
                boundaries[cell] += 1024.0 * np.sqrt(spread * (SMALL + scale * jump))


@noalloc_kernel
def best_cut(problem, state, slot, gap):
    """Where to cut a slot, so that both parts lose as many boundaries as possible.

    Only cells whose marginal is within the gap can belong to a violation, and the dual cannot
    choose between them; boundaries count between such cells.

    Returns
    -------
    cell                 int      last cell of the left part, -1 without any boundary
    off_left, off_right  float64  boundaries that are cut off the left and the right part; the cut
                                  itself counts for both
    """
    low = state.box[slot, LOW]
    high = state.box[slot, HIGH]
    while low < high and state.marginal[low] < -gap:
        low += 1
    while high > low and state.marginal[high] < -gap:
        high -= 1
    count_boundaries(problem, state, slot, low, high)
    total = 0.0
    for cell in range(low, high):
        total += state.scratch[cell]
    best_cell = -1
    off_left = 0.0
    off_right = 0.0
    left = 0.0
    for cell in range(low, high):
        here = state.scratch[cell]
        left += here
        # Sound: no boundary is overlooked, whatever overflow makes of its weight.
        if here != 0.0 and (best_cell < 0 or (total - left + here) * left > off_left * off_right):
            best_cell = cell
            off_left = total - left + here
            off_right = left
    return best_cell, off_left, off_right


@noalloc_kernel
def choose_branch(problem, state, gap):
    """Slot and last cell of its left part; slot -1 when all remaining points reach the same leaves.

    The cut that takes most boundaries off both parts decides most, see `best_cut`. With slot -1,
    the first cell within the gap of every slot is left in `state.box`.
    """
    best_slot = -1
    best_cell = 0
    most = 0.0
    for slot in range(problem.n_slots):
        cell, off_left, off_right = best_cut(problem, state, slot, gap)
        if cell >= 0 and (best_slot < 0 or off_left * off_right > most):
            most = off_left * off_right
            best_slot = slot
            best_cell = cell
    if best_slot < 0:
        for slot in range(problem.n_slots):
            while (
                state.box[slot, LOW] < state.box[slot, HIGH]
                and state.marginal[state.box[slot, LOW]] < -gap
            ):
                state.box[slot, LOW] += 1
    return best_slot, best_cell


@noalloc_kernel
def choose_jump(problem, state, cost, limit, gap):
    """Slot and last cell of its left part where the cost jumps by most of what may still be spent.

    Beyond such a jump hardly anything is left for other slots, before it the slot hardly counts;
    together they are a mixture that no cost weight bounds well. Of slots with one, that with most
    factor boundaries is cut, as elsewhere; slot -1 where there is none.

    Sound: any slot may be cut after any of its cells.
    """
    left = limit
    for slot in range(problem.n_slots):
        least = np.inf
        for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
            least = min(least, cost[cell])
        left -= least
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
        largest = max(JUMP * left, 0.0)
        cut = -1
        for cell in range(low, high):
            jump = abs(cost[cell + 1] - cost[cell])
            if jump > largest:
                largest = jump
                cut = cell
        if cut >= 0:
            count_boundaries(problem, state, slot, low, high)
            weight = 0.0
            for cell in range(low, high):
                weight += state.scratch[cell]
            if weight > best_weight:
                best_weight = weight
                best_slot = slot
                best_cell = cut
    return best_slot, best_cell


@noalloc_kernel
def any_cut(problem, state):
    """A slot with several cells, and the last cell of its left part; slot -1 without one."""
    for slot in range(problem.n_slots):
        low, high = state.box[slot, LOW], state.box[slot, HIGH]
        if low < high:
            return slot, np.int64((low + high) // 2)
    return np.int64(-1), np.int64(0)


@noalloc_kernel
def peaks_right(state, slot, cell):
    """Whether the best cell of a slot lies right of a cut; that part is searched first."""
    best = state.box[slot, LOW]
    for other in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
        if state.marginal[other] > state.marginal[best]:
            best = other
    return best > cell
