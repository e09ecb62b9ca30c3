"""Bringing a `State` in line with a new box: what still matters there is listed densely."""

import numpy as np

from treeproof.kernels.compiler import ONE, inlined_kernel, noalloc_kernel
from treeproof.kernels.dual import range_peak, score_factor
from treeproof.kernels.problem import (
    ENTRY_START,
    HIGH,
    LEAF_START,
    LOW,
    PAIR_START,
    SEGMENT_START,
    SLOT,
)


@noalloc_kernel
def enter_box(problem, state):
    """Bring the state in line with its box; returns the bound (our doubles, not yet certified)."""
    rest = state.rest
    box = state.box
    segments = problem.segments
    for pair in range(problem.n_pairs):
        slot = problem.pairs[pair, SLOT]
        start = problem.pairs[pair, SEGMENT_START]
        first = np.uint64(start)
        while segments[first, HIGH] < box[slot, LOW]:
            first += ONE
        last = problem.pairs[pair + 1, SEGMENT_START] - ONE
        while segments[last, LOW] > box[slot, HIGH]:
            last -= ONE
        state.span[pair, LOW] = first - start
        state.span[pair, HIGH] = last - start
        for segment in range(first, last + ONE):
            state.reach[segment, LOW] = max(segments[segment, LOW], box[slot, LOW])
            state.reach[segment, HIGH] = min(segments[segment, HIGH], box[slot, HIGH])
    bound = 0.0
    for factor in range(problem.n_factors):
        list_pairs(problem, state, factor)
        bound += list_leaves(problem, state, factor)
    share_out(problem, state)
    for slot in range(problem.n_slots):
        low = np.uint32(box[slot, LOW])
        high = np.uint32(box[slot, HIGH])
        peak = range_peak(rest, low, high)
        for cell in range(low, high + ONE):
            rest[cell] -= peak
        state.constant[0] += peak
    return bound + state.constant[0]


@noalloc_kernel
def give_back(problem, state, pair):
    """Return the multipliers of a pair to its slot.

    Sound where the factor's living leaves do not tell the segments apart: every point's value is
    the same sum as before.
    """
    start = problem.pairs[pair, SEGMENT_START]
    for segment in range(start + state.span[pair, LOW], start + state.span[pair, HIGH] + ONE):
        value = state.multiplier[segment]
        if value != 0.0:
            for cell in range(state.reach[segment, LOW], state.reach[segment, HIGH] + ONE):
                state.rest[cell] += value
            state.multiplier[segment] = 0.0


@inlined_kernel
def list_pairs(problem, state, factor):
    """List the pairs of a factor that have several segments in the box."""
    first_pair = problem.factors[factor, PAIR_START]
    count = np.uint64(0)
    for pair in range(first_pair, problem.factors[factor + 1, PAIR_START]):
        if state.span[pair, LOW] == state.span[pair, HIGH]:
            give_back(problem, state, pair)
            state.place[pair] = -1
        else:
            state.active[first_pair + count] = pair
            state.place[pair] = count
            count += ONE
    state.n_active[factor] = count


@inlined_kernel
def list_leaves(problem, state, factor):
    """List the leaves of a factor that meet the box; returns the factor's term of the bound."""
    entries = problem.entries
    span = state.span
    first_pair = problem.factors[factor, PAIR_START]
    width = problem.factors[factor + 1, PAIR_START] - first_pair
    n_active = state.n_active[factor]
    first_leaf = problem.factors[factor, LEAF_START]
    first_row = problem.factors[factor, ENTRY_START]
    n_alive = problem.factors[factor + 1, LEAF_START] - first_leaf
    for number in range(n_alive):
        state.alive[number] = number
    for step in range(width):
        pair = first_pair + step
        last = problem.pairs[pair + ONE, SEGMENT_START] - problem.pairs[pair, SEGMENT_START] - ONE
        if span[pair, LOW] > 0 or span[pair, HIGH] < last:
            n_meeting = np.uint64(0)
            for index in range(n_alive):
                # Without a branch: which leaves stay cannot be foreseen.
                number = state.alive[index]
                row = first_row + number * width + step
                state.alive[n_meeting] = number
                n_meeting += np.uint64(
                    (entries[row, LOW] <= span[pair, HIGH])
                    & (entries[row, HIGH] >= span[pair, LOW])
                )
            n_alive = n_meeting
    for index in range(n_alive):
        state.gain[first_leaf + index] = problem.leaf_gain[first_leaf + state.alive[index]]
    state.n_alive[factor] = n_alive
    if n_alive == 1:
        for step in range(n_active):
            pair = state.active[first_pair + step]
            give_back(problem, state, pair)
            state.place[pair] = -1
        state.n_active[factor] = 0
        state.best[factor] = state.gain[first_leaf]
        return state.gain[first_leaf]
    entry = np.uint64(first_row)
    for step in range(n_active):
        pair = state.active[first_pair + step]
        start = problem.pairs[pair, SEGMENT_START]
        column = first_row + pair - first_pair
        for index in range(n_alive):
            row = column + state.alive[index] * width
            state.range_low[entry] = start + max(entries[row, LOW], span[pair, LOW])
            state.range_high[entry] = start + min(entries[row, HIGH], span[pair, HIGH])
            entry += ONE
    return score_factor(problem, state, factor)


@noalloc_kernel
def share_out(problem, state):
    """Settle what part of its marginals a factor hands on.

    A marginal is shared evenly between the factor itself and the factors still to come in this
    direction that test the slot: the last one keeps all, where nothing would take it on.
    """
    count = state.scratch
    for direction in range(2):
        for slot in range(problem.n_slots):
            count[slot] = 0.0
        for turn in range(problem.n_pairs):
            pair = problem.n_pairs - 1 - turn if direction == 0 else turn
            if state.place[pair] >= 0:
                slot = problem.pairs[pair, SLOT]
                state.shares[pair, direction] = count[slot] / (count[slot] + 1.0)
                count[slot] += 1.0
