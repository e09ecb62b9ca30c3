"""Upper bounds of a `Problem` from multipliers, and the sweeps that improve them.

Factor k has a multiplier λ(k, g) for each segment g of each of its slots; slot s keeps the rest
``U_s(c) = unary(c) - sum over its pairs of λ(k, segment of c)``. For ANY λ

    base + sum_s max_c U_s(c) + sum_k max_leaf [ gain + sum over ALL slots of k of max_g λ(k, g) ]

is an upper bound of the maximum (each point's value is one term of every maximum). Multipliers per
segment lose nothing against multipliers per cell: raising λ(k, c) to its largest value in the
segment leaves the factor's term and can only lower U.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.compiler import borrowing_kernel, kernel
from treeproof.kernels.problem import (
    CELL_START,
    ENTRY_START,
    HIGH,
    LEAF_START,
    LOW,
    PAIR_START,
    SEGMENT_START,
    SLOT,
)

LOWEST = -1e300


class State(NamedTuple):
    """Where a search stands in a problem; arrays are overwritten in place.

    rest        float64 (n_cells,)     U, shifted so that its maximum per slot is 0
    multiplier  float64 (n_segments,)  λ
    constant    float64 (1,)           base and everything shifted out of U
    best        float64 (n_factors,)   the factor's term of the bound
    box         int32   (n_slots, 2)   LOW, HIGH: first and last cell of each slot
    span        int32   (n_pairs, 2)   LOW, HIGH: segments that meet the box, relative to the pair
    alive       int32   (n_leaves,)    leaves that meet the box, listed per factor
    n_alive     int32   (n_factors,)
    shares      float64 (n_pairs, 2)   part of a marginal handed on in sweeps forward, backward
    marginal    float64 (n_cells,)     what fixing a cell costs; see `marginals`
    score       float64 (n_leaves,)    scratch
    peak        float64 (n_entries,)   scratch: largest multiplier in a leaf's range
    scratch     float64 (most segments of a pair,)
    """

    rest: np.ndarray
    multiplier: np.ndarray
    constant: np.ndarray
    best: np.ndarray
    box: np.ndarray
    span: np.ndarray
    alive: np.ndarray
    n_alive: np.ndarray
    shares: np.ndarray
    marginal: np.ndarray
    score: np.ndarray
    peak: np.ndarray
    scratch: np.ndarray


@kernel
def new_state(problem):
    """State at the whole box with all multipliers zero."""
    n_pairs = problem.n_pairs
    most = 1
    for pair in range(n_pairs):
        most = max(
            most, problem.pairs[pair + 1, SEGMENT_START] - problem.pairs[pair, SEGMENT_START]
        )
    # A marginal is shared evenly between the factor itself and the factors still to come in this
    # direction that test the slot: the last one keeps all, where nothing would take it on.
    shares = np.zeros((n_pairs, 2), dtype=np.float64)
    count = np.zeros(problem.n_slots, dtype=np.float64)
    for pair in range(n_pairs - 1, -1, -1):
        slot = problem.pairs[pair, SLOT]
        shares[pair, 0] = count[slot] / (count[slot] + 1.0)
        count[slot] += 1.0
    count[:] = 0.0
    for pair in range(n_pairs):
        slot = problem.pairs[pair, SLOT]
        shares[pair, 1] = count[slot] / (count[slot] + 1.0)
        count[slot] += 1.0
    box = np.empty((problem.n_slots, 2), dtype=np.int32)
    for slot in range(problem.n_slots):
        box[slot, LOW] = problem.slots[slot, CELL_START]
        box[slot, HIGH] = problem.slots[slot + 1, CELL_START] - 1
    return State(
        problem.unary.copy(),
        np.zeros(len(problem.segments), dtype=np.float64),
        np.full(1, problem.base, dtype=np.float64),
        np.zeros(problem.n_factors, dtype=np.float64),
        box,
        np.zeros((n_pairs, 2), dtype=np.int32),
        np.zeros(len(problem.leaf_gain), dtype=np.int32),
        np.zeros(problem.n_factors, dtype=np.int32),
        shares,
        np.zeros(len(problem.unary), dtype=np.float64),
        np.zeros(len(problem.leaf_gain), dtype=np.float64),
        np.zeros(len(problem.entries), dtype=np.float64),
        np.zeros(most, dtype=np.float64),
    )


@borrowing_kernel
def range_peak(values, first, last):
    """Largest of values[first .. last]."""
    largest = values[first]
    for index in range(first + 1, last + 1):
        largest = max(largest, values[index])
    return largest


@borrowing_kernel
def enter_box(problem, state):
    """Bring the state in line with its box; returns the bound (our doubles, not yet certified)."""
    rest = state.rest
    box = state.box
    span = state.span
    multiplier = state.multiplier
    pairs = problem.pairs
    segments = problem.segments
    entries = problem.entries
    factors = problem.factors
    for slot in range(problem.n_slots):
        peak = range_peak(rest, box[slot, LOW], box[slot, HIGH])
        for cell in range(box[slot, LOW], box[slot, HIGH] + 1):
            rest[cell] -= peak
        state.constant[0] += peak
    for pair in range(problem.n_pairs):
        slot = pairs[pair, SLOT]
        start = pairs[pair, SEGMENT_START]
        first = start
        while segments[first, HIGH] < box[slot, LOW]:
            first += 1
        last = pairs[pair + 1, SEGMENT_START] - 1
        while segments[last, LOW] > box[slot, HIGH]:
            last -= 1
        span[pair, LOW] = first - start
        span[pair, HIGH] = last - start
    bound = state.constant[0]
    for factor in range(problem.n_factors):
        first_pair = factors[factor, PAIR_START]
        width = factors[factor + 1, PAIR_START] - first_pair
        first_leaf = factors[factor, LEAF_START]
        count = 0
        best = LOWEST
        for leaf in range(first_leaf, factors[factor + 1, LEAF_START]):
            row = factors[factor, ENTRY_START] + (leaf - first_leaf) * width
            score = problem.leaf_gain[leaf]
            meets = True
            for step in range(width):
                pair = first_pair + step
                low = max(entries[row + step, LOW], span[pair, LOW])
                high = min(entries[row + step, HIGH], span[pair, HIGH])
                if low > high:
                    meets = False
                    break
                start = pairs[pair, SEGMENT_START]
                score += range_peak(multiplier, start + low, start + high)
            if meets:
                state.alive[first_leaf + count] = leaf
                count += 1
                best = max(best, score)
        state.n_alive[factor] = count
        state.best[factor] = best
        bound += best
    return bound


@borrowing_kernel
def sweep(problem, state, is_forward, bound, floor):
    """Visit every factor once; returns the new bound, never above the old one (but for rounding).

    At a factor, what its slots hold is pulled into its multipliers (per segment), its leaves are
    scored, and pair by pair a share of the max-marginals is pushed back to the slot.

    Sound: pulling and pushing move mass between terms of the same point, so the bound stays one.
    After pulling, ``constant + sum of best`` is the bound, because every slot's rest has maximum
    0. Marginals are recomputed pair by pair and are <= best, so pushing any share of them leaves
    the factor's term at its best and the slots' maxima at 0. Stops once the bound is below `floor`.
    """
    rest = state.rest
    box = state.box
    span = state.span
    multiplier = state.multiplier
    scores = state.score
    peaks = state.peak
    scratch = state.scratch
    pairs = problem.pairs
    segments = problem.segments
    entries = problem.entries
    factors = problem.factors
    direction = 0 if is_forward else 1
    for turn in range(problem.n_factors):
        factor = turn if is_forward else problem.n_factors - 1 - turn
        first_pair = factors[factor, PAIR_START]
        width = factors[factor + 1, PAIR_START] - first_pair
        first_leaf = factors[factor, LEAF_START]
        first_entry = factors[factor, ENTRY_START]
        n_alive = state.n_alive[factor]
        for pair in range(first_pair, first_pair + width):
            slot = pairs[pair, SLOT]
            start = pairs[pair, SEGMENT_START]
            for segment in range(start + span[pair, LOW], start + span[pair, HIGH] + 1):
                low = max(segments[segment, LOW], box[slot, LOW])
                high = min(segments[segment, HIGH], box[slot, HIGH])
                peak = range_peak(rest, low, high)
                multiplier[segment] += peak
                for cell in range(low, high + 1):
                    rest[cell] -= peak
        best = LOWEST
        for count in range(first_leaf, first_leaf + n_alive):
            leaf = state.alive[count]
            row = first_entry + (leaf - first_leaf) * width
            score = problem.leaf_gain[leaf]
            for step in range(width):
                pair = first_pair + step
                start = pairs[pair, SEGMENT_START]
                low = max(entries[row + step, LOW], span[pair, LOW])
                high = min(entries[row + step, HIGH], span[pair, HIGH])
                peak = range_peak(multiplier, start + low, start + high)
                peaks[row + step] = peak
                score += peak
            scores[count] = score
            best = max(best, score)
        bound += best - state.best[factor]
        state.best[factor] = best
        for step in range(width):
            pair = first_pair + step
            share = state.shares[pair, direction]
            if share == 0.0:
                continue
            slot = pairs[pair, SLOT]
            start = pairs[pair, SEGMENT_START]
            first = span[pair, LOW]
            last = span[pair, HIGH]
            for segment in range(first, last + 1):
                scratch[segment] = LOWEST
            for count in range(first_leaf, first_leaf + n_alive):
                entry = first_entry + (state.alive[count] - first_leaf) * width + step
                scores[count] -= peaks[entry]
                for segment in range(
                    max(entries[entry, LOW], first), min(entries[entry, HIGH], last) + 1
                ):
                    scratch[segment] = max(scratch[segment], scores[count])
            for segment in range(first, last + 1):
                change = share * (scratch[segment] + multiplier[start + segment] - best)
                multiplier[start + segment] -= change
                for cell in range(
                    max(segments[start + segment, LOW], box[slot, LOW]),
                    min(segments[start + segment, HIGH], box[slot, HIGH]) + 1,
                ):
                    rest[cell] += change
            for count in range(first_leaf, first_leaf + n_alive):
                entry = first_entry + (state.alive[count] - first_leaf) * width + step
                low = max(entries[entry, LOW], first)
                high = min(entries[entry, HIGH], last)
                scores[count] += range_peak(multiplier, start + low, start + high)
        if bound < floor:
            break
    return bound
