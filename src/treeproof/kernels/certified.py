"""Bounds that may be relied on: computed afresh, with their rounding error, and per cell."""

from treeproof.kernels.compiler import borrowing_kernel
from treeproof.kernels.dual import LOWEST, range_peak
from treeproof.kernels.problem import (
    ENTRY_START,
    HIGH,
    LEAF_START,
    LOW,
    PAIR_START,
    SEGMENT_START,
    SLOT,
)


@borrowing_kernel
def score_factors(problem, state):
    """Score all living leaves with the present multipliers; returns the sum of the factors' bests.

    Fills ``score`` (in the order of ``alive``), ``peak`` and ``best``.
    """
    span = state.span
    multiplier = state.multiplier
    pairs = problem.pairs
    entries = problem.entries
    factors = problem.factors
    total = 0.0
    for factor in range(problem.n_factors):
        first_pair = factors[factor, PAIR_START]
        width = factors[factor + 1, PAIR_START] - first_pair
        first_leaf = factors[factor, LEAF_START]
        best = LOWEST
        for count in range(first_leaf, first_leaf + state.n_alive[factor]):
            leaf = state.alive[count]
            row = factors[factor, ENTRY_START] + (leaf - first_leaf) * width
            score = problem.leaf_gain[leaf]
            for step in range(width):
                pair = first_pair + step
                start = pairs[pair, SEGMENT_START]
                low = max(entries[row + step, LOW], span[pair, LOW])
                high = min(entries[row + step, HIGH], span[pair, HIGH])
                peak = range_peak(multiplier, start + low, start + high)
                state.peak[row + step] = peak
                score += peak
            state.score[count] = score
            best = max(best, score)
        state.best[factor] = best
        total += best
    return total


@borrowing_kernel
def marginals(problem, state):
    """What fixing each cell costs: bound with the cell fixed = bound + marginal[cell].

    Must follow `refresh`, whose scores it uses.

    Sound: with slot s fixed to cell c, factor k's term is at most its max-marginal of c's segment,
    other factors and slots keep their terms, and slot s contributes U_s(c).
    """
    box = state.box
    span = state.span
    multiplier = state.multiplier
    marginal = state.marginal
    scratch = state.scratch
    pairs = problem.pairs
    segments = problem.segments
    entries = problem.entries
    factors = problem.factors
    for slot in range(problem.n_slots):
        for cell in range(box[slot, LOW], box[slot, HIGH] + 1):
            marginal[cell] = state.rest[cell]
    for factor in range(problem.n_factors):
        if state.n_alive[factor] < 2:
            continue
        first_pair = factors[factor, PAIR_START]
        width = factors[factor + 1, PAIR_START] - first_pair
        first_leaf = factors[factor, LEAF_START]
        for step in range(width):
            pair = first_pair + step
            slot = pairs[pair, SLOT]
            start = pairs[pair, SEGMENT_START]
            first = span[pair, LOW]
            last = span[pair, HIGH]
            for segment in range(first, last + 1):
                scratch[segment] = LOWEST
            for count in range(first_leaf, first_leaf + state.n_alive[factor]):
                leaf = state.alive[count] - first_leaf
                entry = factors[factor, ENTRY_START] + leaf * width + step
                others = state.score[count] - state.peak[entry]
                for segment in range(
                    max(entries[entry, LOW], first), min(entries[entry, HIGH], last) + 1
                ):
                    scratch[segment] = max(scratch[segment], others)
            for segment in range(first, last + 1):
                cost = scratch[segment] + multiplier[start + segment] - state.best[factor]
                for cell in range(
                    max(segments[start + segment, LOW], box[slot, LOW]),
                    min(segments[start + segment, HIGH], box[slot, HIGH]) + 1,
                ):
                    marginal[cell] += cost


@borrowing_kernel
def refresh(problem, state):
    """Derive U afresh from unary terms and multipliers; returns the bound and its rounding error.

    Sound: drift of the sweeps does not enter. No sum here has more than `longest` terms, all
    counted in `magnitude`; n additions of doubles err by at most n * 2**-53 times the sum of
    magnitudes, and the factor 4 covers second-order terms and the marginals computed from this
    state. `gross` covers the sums that formed base and unary.
    """
    rest = state.rest
    box = state.box
    span = state.span
    multiplier = state.multiplier
    slots = problem.slots
    pairs = problem.pairs
    segments = problem.segments
    constant = problem.base
    magnitude = problem.gross
    most_pairs = 0
    for slot in range(problem.n_slots):
        low = box[slot, LOW]
        high = box[slot, HIGH]
        for cell in range(low, high + 1):
            rest[cell] = problem.unary[cell]
        most_pairs = max(most_pairs, slots[slot + 1, PAIR_START] - slots[slot, PAIR_START])
        for index in range(slots[slot, PAIR_START], slots[slot + 1, PAIR_START]):
            pair = problem.slot_pair[index]
            start = pairs[pair, SEGMENT_START]
            largest = 0.0
            for segment in range(start + span[pair, LOW], start + span[pair, HIGH] + 1):
                value = multiplier[segment]
                largest = max(largest, abs(value))
                for cell in range(
                    max(segments[segment, LOW], low), min(segments[segment, HIGH], high) + 1
                ):
                    rest[cell] -= value
            magnitude += 2.0 * largest
        peak = range_peak(rest, low, high)
        for cell in range(low, high + 1):
            rest[cell] -= peak
        constant += peak
    state.constant[0] = constant
    bound = constant + score_factors(problem, state)
    widest = 0
    for factor in range(problem.n_factors):
        widest = max(
            widest, problem.factors[factor + 1, PAIR_START] - problem.factors[factor, PAIR_START]
        )
    longest = 2 * problem.n_trees + problem.n_slots + most_pairs + widest + 8
    return bound, 4.0 * longest * 2.0**-53 * magnitude
