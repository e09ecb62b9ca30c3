"""Points of a `Problem`: values, coordinate ascent, and moving a witness closer."""

import numpy as np

from treeproof.kernels.compiler import ONE, inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.distances import cell_distance
from treeproof.kernels.problem import (
    CELL_START,
    ENTRY_START,
    FACTOR,
    FEATURE,
    HIGH,
    LEAF_START,
    LOW,
    PAIR_START,
    SEGMENT_START,
    SLOT,
)


@inlined_kernel
def segment_at(problem, state, pair, cell):
    """Segment of a pair that holds a cell of the box."""
    segment = problem.pairs[pair, SEGMENT_START] + state.span[pair, LOW]
    while cell > state.reach[segment, HIGH]:
        segment += ONE
    return segment


@noalloc_kernel
def count_misses(problem, state, point, misses):
    """Value of a point inside the state's box.

    misses  int16 (n_leaves,)  filled in: pairs in which a living leaf does not hold the point
    """
    value = problem.base
    for slot in range(problem.n_slots):
        value += problem.unary[point[slot]]
    for factor in range(problem.n_factors):
        first_leaf = problem.factors[factor, LEAF_START]
        last_leaf = first_leaf + state.n_alive[factor]
        for leaf in range(first_leaf, last_leaf):
            misses[leaf] = 0
        first_pair = problem.factors[factor, PAIR_START]
        entry = np.uint64(problem.factors[factor, ENTRY_START])
        for step in range(state.n_active[factor]):
            pair = state.active[first_pair + step]
            here = segment_at(problem, state, pair, point[problem.pairs[pair, SLOT]])
            for leaf in range(first_leaf, last_leaf):
                is_outside = (here < state.range_low[entry]) | (here > state.range_high[entry])
                misses[leaf] += np.int16(is_outside)
                entry += ONE
        for leaf in range(first_leaf, last_leaf):
            if misses[leaf] == 0:
                value += state.gain[leaf]
    return value


@noalloc_kernel
def slot_values(problem, state, cell_now, slot, misses, values):
    """Part of the value that depends on one slot, for each of its cells, others as they are."""
    low = np.uint32(state.box[slot, LOW])
    high = np.uint32(state.box[slot, HIGH])
    for cell in range(low, high + ONE):
        values[cell] = problem.unary[cell]
    for index in range(problem.slots[slot, PAIR_START], problem.slots[slot + 1, PAIR_START]):
        pair = problem.slot_pair[index]
        step = state.place[pair]
        if step < 0:
            continue
        here = segment_at(problem, state, pair, cell_now)
        factor = problem.pairs[pair, FACTOR]
        n_alive = state.n_alive[factor]
        first_leaf = problem.factors[factor, LEAF_START]
        entry = problem.factors[factor, ENTRY_START] + np.uint64(step) * n_alive
        for leaf in range(first_leaf, first_leaf + n_alive):
            is_outside = (here < state.range_low[entry]) | (here > state.range_high[entry])
            if misses[leaf] == np.int16(is_outside):
                first = max(state.reach[state.range_low[entry], LOW], low)
                last = min(state.reach[state.range_high[entry], HIGH], high)
                for cell in range(first, last + ONE):
                    values[cell] += state.gain[leaf]
            entry += ONE


@noalloc_kernel
def move_slot(problem, state, slot, before, after, misses, is_stale):
    """Account for a slot's new cell; returns what that adds to the value.

    Marks the slots to which the move may matter.
    """
    change = problem.unary[after] - problem.unary[before]
    for index in range(problem.slots[slot, PAIR_START], problem.slots[slot + 1, PAIR_START]):
        pair = problem.slot_pair[index]
        step = state.place[pair]
        if step < 0:
            continue
        old = segment_at(problem, state, pair, before)
        new = segment_at(problem, state, pair, after)
        if old == new:
            continue
        factor = problem.pairs[pair, FACTOR]
        n_alive = state.n_alive[factor]
        first_leaf = problem.factors[factor, LEAF_START]
        entry = problem.factors[factor, ENTRY_START] + np.uint64(step) * n_alive
        for leaf in range(first_leaf, first_leaf + n_alive):
            was_outside = (old < state.range_low[entry]) | (old > state.range_high[entry])
            is_outside = (new < state.range_low[entry]) | (new > state.range_high[entry])
            if misses[leaf] == 0:
                change -= state.gain[leaf]
            misses[leaf] += np.int16(is_outside) - np.int16(was_outside)
            if misses[leaf] == 0:
                change += state.gain[leaf]
            entry += ONE
        first_pair = problem.factors[factor, PAIR_START]
        for other in range(first_pair, first_pair + state.n_active[factor]):
            is_stale[problem.pairs[state.active[other], SLOT]] = True
    is_stale[slot] = False
    return change


@noalloc_kernel
def ascend(problem, state, distance, point, value, need, rounds, misses, is_stale, values):
    """Improve a point slot by slot inside the box until it reaches `need`; returns its value.

    misses    int16 (n_leaves,)  from `count_misses`
    is_stale  bool  (n_slots,)   slots whose best cell may have changed since it was chosen
    """
    for _ in range(rounds):
        is_better = False
        for slot in range(problem.n_slots):
            low = state.box[slot, LOW]
            high = state.box[slot, HIGH]
            if low == high or not is_stale[slot]:
                continue
            is_stale[slot] = False
            here = point[slot]
            slot_values(problem, state, here, slot, misses, values)
            best = here
            for cell in range(low, high + 1):
                if values[cell] > values[best] or (
                    values[cell] == values[best] and distance[cell] < distance[best]
                ):
                    best = cell
            if best != here:
                is_better = is_better or values[best] > values[here]
                value += values[best] - values[here]
                point[slot] = best
                move_slot(problem, state, slot, here, best, misses, is_stale)
                if value >= need:
                    return value
        if not is_better:
            break
    return value


@noalloc_kernel
def decode(problem, state, score, distance, point):
    """Point that takes the best-scored cell of every slot, the nearest among equals."""
    for slot in range(problem.n_slots):
        best = state.box[slot, LOW]
        for cell in range(best + 1, state.box[slot, HIGH] + 1):
            if score[cell] > score[best] or (
                score[cell] == score[best] and distance[cell] < distance[best]
            ):
                best = cell
        point[slot] = best


@noalloc_kernel
def clip_point(problem, state, point):
    """Move a point into the state's box."""
    for slot in range(problem.n_slots):
        point[slot] = min(max(point[slot], state.box[slot, LOW]), state.box[slot, HIGH])


@inner_kernel
def cell_distances(problem, space, row, row_cell, down, up, domain_low, domain_high, is_ball):
    """Radius at which each cell of a problem is reached, rounded down; infinite if never.

    In a box that is no ball every cell is at distance 0; otherwise see `cell_distance`.

    Returns
    -------
    distance   float64 (n_cells,)
    is_beyond  bool    (n_cells,)  the radius is only approached
    """
    distance = np.zeros(len(problem.cells), dtype=np.float64)
    is_beyond = np.zeros(len(problem.cells), dtype=np.bool_)
    if not is_ball:
        return distance, is_beyond
    for slot in range(problem.n_slots):
        feature = problem.slots[slot, FEATURE]
        rates = down[feature], up[feature]
        sides = domain_low[feature], domain_high[feature]
        for cell in range(problem.slots[slot, CELL_START], problem.slots[slot + 1, CELL_START]):
            distance[cell], is_beyond[cell] = cell_distance(
                space, feature, problem.cells[cell, LOW], problem.cells[cell, HIGH],
                row_cell[feature], row[feature], rates, sides,
            )  # fmt: skip
    return distance, is_beyond
