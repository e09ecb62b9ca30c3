"""Bounds that may be relied on: computed afresh, with their rounding error, and per cell."""

import numpy as np

from treeproof.kernels.compiler import ONE, noalloc_kernel
from treeproof.kernels.dual import range_peak, score_factor, segment_marginals
from treeproof.kernels.problem import HIGH, LOW, PAIR_START, SEGMENT_START


@noalloc_kernel
def marginals(problem, state):
    """What fixing each cell costs: bound with the cell fixed = bound + marginal[cell].

    Must follow `refresh`, whose scores it uses.

    Sound: with slot s fixed to cell c, factor k's term is at most its max-marginal of c's segment,
    other factors and slots keep their terms, and slot s contributes U_s(c).
    """
    for slot in range(problem.n_slots):
        for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
            state.marginal[cell] = state.rest[cell]
    for factor in range(problem.n_factors):
        if state.n_alive[factor] < 2:
            continue
        for step in range(state.n_active[factor]):
            segment_marginals(problem, state, factor, step)
            pair = state.active[problem.factors[factor, PAIR_START] + step]
            start = problem.pairs[pair, SEGMENT_START]
            first = start + state.span[pair, LOW]
            for segment in range(first, start + state.span[pair, HIGH] + ONE):
                cost = state.scratch[segment - first] + state.multiplier[segment]
                cost -= state.best[factor]
                for cell in range(state.reach[segment, LOW], state.reach[segment, HIGH] + ONE):
                    state.marginal[cell] += cost


@noalloc_kernel
def refresh(problem, state):
    """Derive U afresh from unary terms and multipliers; returns the bound and its rounding error.

    Sound: drift of the sweeps does not enter. No sum here has more than `longest` terms, all
    counted in `magnitude`; n additions of doubles err by at most n * 2**-53 times the sum of
    magnitudes, and the factor 4 covers second-order terms and the marginals computed from this
    state. `gross` covers the sums that formed base and unary.
    """
    rest = state.rest
    box = state.box
    slots = problem.slots
    pairs = problem.pairs
    constant = problem.base
    magnitude = problem.gross
    most_pairs = np.uint64(0)
    for slot in range(problem.n_slots):
        low = np.uint32(box[slot, LOW])
        high = np.uint32(box[slot, HIGH])
        for cell in range(low, high + ONE):
            rest[cell] = problem.unary[cell]
        most_pairs = max(most_pairs, slots[slot + 1, PAIR_START] - slots[slot, PAIR_START])
        for index in range(slots[slot, PAIR_START], slots[slot + 1, PAIR_START]):
            pair = problem.slot_pair[index]
            if state.place[pair] < 0:
                continue
            start = pairs[pair, SEGMENT_START]
            largest = 0.0
            for segment in range(
                start + state.span[pair, LOW], start + state.span[pair, HIGH] + ONE
            ):
                value = state.multiplier[segment]
                largest = max(largest, abs(value))
                for cell in range(state.reach[segment, LOW], state.reach[segment, HIGH] + ONE):
                    rest[cell] -= value
            magnitude += 2.0 * largest
        peak = range_peak(rest, low, high)
        for cell in range(low, high + ONE):
            rest[cell] -= peak
        constant += peak
    state.constant[0] = constant
    total = 0.0
    widest = np.uint32(0)
    for factor in range(problem.n_factors):
        total += score_factor(problem, state, factor)
        widest = max(widest, state.n_active[factor])
    longest = 2 * problem.n_trees + problem.n_slots + most_pairs + widest + 8
    return constant + total, 4.0 * longest * 2.0**-53 * magnitude
