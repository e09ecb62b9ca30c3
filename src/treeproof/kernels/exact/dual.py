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

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.compiler import ONE, inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.exact.problem import (
    BASE,
    CELL_START,
    ENTRY_START,
    GROSS,
    HIGH,
    LEAF_START,
    LOW,
    PAIR_START,
    SEGMENT_START,
    SLOT,
)

LOWEST = -1e300
FLAT = 4e-6
"""Part of the mean of all trees' largest gains below which differences of gains do not matter."""


class State(NamedTuple):
    """Where a search stands in a problem; arrays are overwritten in place.

    Leaves that miss the box, factors with one leaf left and pairs with one segment left say nothing
    there; the others are listed densely, so that sweeps visit nothing else.
    """

    rest: np.ndarray  # (n_cells,) float64; U, shifted so that its maximum per slot is 0
    multiplier: np.ndarray  # (n_segments,) float64; λ
    constant: np.ndarray  # (1,) float64; base and everything shifted out of U
    best: np.ndarray  # (n_factors,) float64; the factor's term of the bound
    box: np.ndarray  # (n_slots, 2) int32; LOW, HIGH: first and last cell of each slot
    # LOW, HIGH: segments that meet the box, relative to the pair
    span: np.ndarray  # (n_pairs, 2) uint32
    reach: np.ndarray  # (n_segments, 2) uint32; LOW, HIGH: cells of a segment inside the box
    n_alive: np.ndarray  # (n_factors,) uint32; leaves that meet the box
    n_active: np.ndarray  # (n_factors,) uint32; pairs of the factor that matter
    active: np.ndarray  # (n_pairs,) uint32; those pairs, listed from the factor's first pair on
    place: np.ndarray  # (n_pairs,) int32; position of a pair in that list, or -1
    # Of living leaves, listed from the factor's first leaf on
    gain: np.ndarray  # (n_leaves,) float64
    # First segment of living leaves in active pairs: for each pair all leaves, listed from the
    # factor's first entry on
    range_low: np.ndarray  # (n_entries,) uint32
    range_high: np.ndarray  # (n_entries,) uint32; last segment, likewise
    # Part of a marginal handed on in sweeps forward, backward
    shares: np.ndarray  # (n_pairs, 2) float64
    pulled: np.ndarray  # (n_segments,) float64; scratch: what a factor took from its slots
    marginal: np.ndarray  # (n_cells,) float64; what fixing a cell costs; see `marginals`
    score: np.ndarray  # (n_leaves,) float64; scratch, as `gain`
    # Scratch, as `range_low`: largest multiplier in the range
    peak: np.ndarray  # (n_entries,) float64
    # Numbers of the living leaves within their factor, as `gain`
    alive: np.ndarray  # (n_leaves,) uint32
    scratch: np.ndarray  # (n_cells,) float64
    weight: np.ndarray  # (n_conditions,) float64; of which the problem's terms are the sum


@inner_kernel
def new_state(problem):
    """State at the whole box with all multipliers zero; `enter_box` fills in the rest."""
    n_pairs = problem.n_pairs
    n_leaves = len(problem.leaf_gain)
    box = np.empty((problem.n_slots, 2), dtype=np.int32)
    for slot in range(problem.n_slots):
        box[slot, LOW] = problem.slots[slot, CELL_START]
        box[slot, HIGH] = problem.slots[slot + 1, CELL_START] - 1
    rest = np.empty(len(problem.unary), dtype=np.float64)
    copy_into(rest, problem.unary)
    constant = np.empty(1, dtype=np.float64)
    constant[0] = problem.terms[BASE]
    return State(
        rest,
        np.zeros(len(problem.segments), dtype=np.float64),
        constant,
        np.empty(problem.n_factors, dtype=np.float64),
        box,
        np.empty((n_pairs, 2), dtype=np.uint32),
        np.empty((len(problem.segments), 2), dtype=np.uint32),
        np.empty(problem.n_factors, dtype=np.uint32),
        np.empty(problem.n_factors, dtype=np.uint32),
        np.empty(n_pairs, dtype=np.uint32),
        np.empty(n_pairs, dtype=np.int32),
        np.empty(n_leaves, dtype=np.float64),
        np.empty(len(problem.entries), dtype=np.uint32),
        np.empty(len(problem.entries), dtype=np.uint32),
        np.empty((n_pairs, 2), dtype=np.float64),
        np.empty(len(problem.segments), dtype=np.float64),
        np.zeros(len(problem.unary), dtype=np.float64),
        np.empty(n_leaves, dtype=np.float64),
        np.empty(len(problem.entries), dtype=np.float64),
        np.empty(n_leaves, dtype=np.uint32),
        np.empty(len(problem.unary), dtype=np.float64),
        problem.conditions.weight.copy(),
    )


@inlined_kernel
def range_peak(values, first, last):
    """Largest of values[first .. last]."""
    largest = values[first]
    for index in range(first + ONE, last + ONE):
        largest = max(largest, values[index])
    return largest


LONG = np.uint32(48)
"""Cells from which on `rest_peak` compares eight at a time."""


@noalloc_kernel
def rest_peak(rest, first, last):
    """As `range_peak`, for ranges of cells, which may be long.

    One comparison would wait for the one before it, so eight go on side by side.
    """
    if last - first < LONG:
        return range_peak(rest, first, last)
    a = b = c = d = e = f = g = h = rest[first]
    cell = np.uint64(first)
    while cell + np.uint64(8) <= last:
        a = max(a, rest[cell])
        b = max(b, rest[cell + np.uint64(1)])
        c = max(c, rest[cell + np.uint64(2)])
        d = max(d, rest[cell + np.uint64(3)])
        e = max(e, rest[cell + np.uint64(4)])
        f = max(f, rest[cell + np.uint64(5)])
        g = max(g, rest[cell + np.uint64(6)])
        h = max(h, rest[cell + np.uint64(7)])
        cell += np.uint64(8)
    largest = max(a, b, c, d, e, f, g, h)
    return max(largest, range_peak(rest, cell, np.uint64(last)))


@noalloc_kernel
def score_factor(problem, state, factor):
    """Score the living leaves of a factor with the present multipliers; returns the best.

    Fills ``score``, ``peak`` and ``best``.
    """
    multiplier = state.multiplier
    scores = state.score
    first_leaf = problem.factors[factor, LEAF_START]
    n_alive = state.n_alive[factor]
    for leaf in range(first_leaf, first_leaf + n_alive):
        scores[leaf] = state.gain[leaf]
    entry = np.uint64(problem.factors[factor, ENTRY_START])
    first_pair = problem.factors[factor, PAIR_START]
    for step in range(state.n_active[factor]):
        pair = state.active[first_pair + step]
        if state.span[pair, HIGH] == state.span[pair, LOW] + 1:
            # Nearly all pairs: no range is longer than its two ends.
            for leaf in range(n_alive):
                peak = max(
                    multiplier[state.range_low[entry + leaf]],
                    multiplier[state.range_high[entry + leaf]],
                )
                state.peak[entry + leaf] = peak
                scores[first_leaf + leaf] += peak
        else:
            for leaf in range(n_alive):
                peak = range_peak(
                    multiplier, state.range_low[entry + leaf], state.range_high[entry + leaf]
                )
                state.peak[entry + leaf] = peak
                scores[first_leaf + leaf] += peak
        entry += n_alive
    best = LOWEST
    for leaf in range(first_leaf, first_leaf + n_alive):
        best = max(best, scores[leaf])
    state.best[factor] = best
    return best


@noalloc_kernel
def segment_marginals(problem, state, factor, step):
    """Best score of a factor with a slot in each segment, without that segment's multiplier.

    Fills the first entries of ``scratch``; must follow `score_factor`.
    """
    scratch = state.scratch
    first_leaf = problem.factors[factor, LEAF_START]
    n_alive = state.n_alive[factor]
    entry = problem.factors[factor, ENTRY_START] + step * n_alive
    pair = state.active[problem.factors[factor, PAIR_START] + step]
    first = problem.pairs[pair, SEGMENT_START] + state.span[pair, LOW]
    last = problem.pairs[pair, SEGMENT_START] + state.span[pair, HIGH]
    if last == first + ONE:
        left = LOWEST
        right = LOWEST
        for leaf in range(n_alive):
            others = state.score[first_leaf + leaf] - state.peak[entry + leaf]
            left = max(left, others if state.range_low[entry + leaf] == first else LOWEST)
            right = max(right, others if state.range_high[entry + leaf] == last else LOWEST)
        scratch[0] = left
        scratch[1] = right
        return
    for segment in range(last - first + ONE):
        scratch[segment] = LOWEST
    for leaf in range(n_alive):
        others = state.score[first_leaf + leaf] - state.peak[entry + leaf]
        for segment in range(
            state.range_low[entry + leaf] - first, state.range_high[entry + leaf] - first + ONE
        ):
            scratch[segment] = max(scratch[segment], others)


@noalloc_kernel
def rescore(problem, state, factor, step):
    """Bring the scores of a factor in line with new multipliers of one of its pairs."""
    multiplier = state.multiplier
    first_leaf = problem.factors[factor, LEAF_START]
    n_alive = state.n_alive[factor]
    entry = problem.factors[factor, ENTRY_START] + step * n_alive
    pair = state.active[problem.factors[factor, PAIR_START] + step]
    if state.span[pair, HIGH] == state.span[pair, LOW] + 1:
        for leaf in range(n_alive):
            peak = max(
                multiplier[state.range_low[entry + leaf]],
                multiplier[state.range_high[entry + leaf]],
            )
            state.score[first_leaf + leaf] += peak - state.peak[entry + leaf]
    else:
        for leaf in range(n_alive):
            peak = range_peak(
                multiplier, state.range_low[entry + leaf], state.range_high[entry + leaf]
            )
            state.score[first_leaf + leaf] += peak - state.peak[entry + leaf]


@noalloc_kernel
def sweep(problem, state, is_forward, bound, floor):
    """Visit every factor once; returns the new bound, never above the old one (but for rounding).

    At a factor, what its slots hold is pulled into its multipliers (per segment), its leaves are
    scored, and pair by pair a share of the max-marginals is pushed back to the slot.

    Sound: pulling and pushing move mass between terms of the same point, so the bound stays one.
    After pulling, ``constant + sum of best`` is the bound, because every slot's rest has maximum
    0. Marginals are recomputed pair by pair and are <= best, so pushing any share of them leaves
    the factor's term at its best and the slots' maxima at 0. Stops once the bound is below `floor`,
    and then leaves ``rest`` to `refresh`.
    """
    rest = state.rest
    reach = state.reach
    multiplier = state.multiplier
    direction = 0 if is_forward else 1
    for turn in range(problem.n_factors):
        factor = turn if is_forward else problem.n_factors - 1 - turn
        if state.n_active[factor] == 0:
            continue
        first_pair = problem.factors[factor, PAIR_START]
        last_step = np.uint64(0)
        for step in range(state.n_active[factor]):
            pair = state.active[first_pair + step]
            if state.shares[pair, direction] != 0.0:
                last_step = step
            start = problem.pairs[pair, SEGMENT_START]
            for segment in range(
                start + state.span[pair, LOW], start + state.span[pair, HIGH] + ONE
            ):
                low = reach[segment, LOW]
                high = reach[segment, HIGH]
                peak = rest_peak(rest, low, high)
                multiplier[segment] += peak
                state.pulled[segment] = peak
        before = state.best[factor]
        best = score_factor(problem, state, factor)
        bound += best - before
        if bound < floor:
            break
        for step in range(state.n_active[factor]):
            pair = state.active[first_pair + step]
            share = state.shares[pair, direction]
            first = problem.pairs[pair, SEGMENT_START] + state.span[pair, LOW]
            last = problem.pairs[pair, SEGMENT_START] + state.span[pair, HIGH]
            if share != 0.0:
                segment_marginals(problem, state, factor, step)
            for segment in range(first, last + ONE):
                change = -state.pulled[segment]
                if share != 0.0:
                    pushed = share * (state.scratch[segment - first] + multiplier[segment] - best)
                    multiplier[segment] -= pushed
                    change += pushed
                for cell in range(reach[segment, LOW], reach[segment, HIGH] + ONE):
                    rest[cell] += change
            if share != 0.0 and step < last_step:
                rescore(problem, state, factor, step)
    return bound


@noalloc_kernel
def reach_box(problem, state):
    """Fill in which segments meet the state's box, and with which of their cells."""
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


@noalloc_kernel
def level_slots(problem, state):
    """Shift every slot's rest so that its maximum in the box is 0."""
    rest = state.rest
    for slot in range(problem.n_slots):
        low = np.uint32(state.box[slot, LOW])
        high = np.uint32(state.box[slot, HIGH])
        peak = rest_peak(rest, low, high)
        for cell in range(low, high + ONE):
            rest[cell] -= peak
        state.constant[0] += peak


@noalloc_kernel
def enter_box(problem, state):
    """Bring the state in line with its box; returns the bound (our doubles, not yet certified)."""
    reach_box(problem, state)
    bound = 0.0
    flat = -1.0
    if len(state.weight) > 1:
        flat = FLAT * problem.terms[GROSS] / problem.n_trees
    for factor in range(problem.n_factors):
        list_pairs(problem, state, factor)
        bound += list_leaves(problem, state, factor, flat)
    share_out(problem, state)
    level_slots(problem, state)
    return bound + state.constant[0]


@noalloc_kernel
def give_back(problem, state, pair):
    """Return the multipliers of a pair to its slot: they become 0, and any multipliers will do."""
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
def list_leaves(problem, state, factor, flat):
    """List the leaves of a factor that meet the box; returns the factor's term of the bound.

    flat  float64  a factor whose gains differ by no more is not worth multipliers
    """
    entries = problem.entries
    span = state.span
    first_pair = problem.factors[factor, PAIR_START]
    width = problem.factors[factor + 1, PAIR_START] - first_pair
    n_active = state.n_active[factor]
    first_leaf = problem.factors[factor, LEAF_START]
    first_row = problem.factors[factor, ENTRY_START]
    n_alive = problem.factors[factor + 1, LEAF_START] - first_leaf
    alive = state.alive[first_leaf:]
    for number in range(n_alive):
        alive[number] = number
    for step in range(width):
        pair = first_pair + step
        last = problem.pairs[pair + ONE, SEGMENT_START] - problem.pairs[pair, SEGMENT_START] - ONE
        if span[pair, LOW] > 0 or span[pair, HIGH] < last:
            n_meeting = np.uint64(0)
            for index in range(n_alive):
                # Without a branch: which leaves stay cannot be foreseen.
                number = alive[index]
                row = first_row + number * width + step
                alive[n_meeting] = number
                n_meeting += np.uint64(
                    (entries[row, LOW] <= span[pair, HIGH])
                    & (entries[row, HIGH] >= span[pair, LOW])
                )
            n_alive = n_meeting
    least = np.inf
    most = -np.inf
    for index in range(n_alive):
        gain = problem.leaf_gain[first_leaf + alive[index]]
        state.gain[first_leaf + index] = gain
        least = min(least, gain)
        most = max(most, gain)
    state.n_alive[factor] = n_alive
    # Sound: without multipliers a factor's term is its largest gain, whatever the others are.
    if n_alive == 1 or most - least <= flat:
        for step in range(n_active):
            pair = state.active[first_pair + step]
            give_back(problem, state, pair)
            state.place[pair] = -1
        state.n_active[factor] = 0
        state.best[factor] = most
        return most
    entry = np.uint64(first_row)
    for step in range(n_active):
        pair = state.active[first_pair + step]
        start = problem.pairs[pair, SEGMENT_START]
        column = first_row + pair - first_pair
        for index in range(n_alive):
            row = column + alive[index] * width
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
        if state.n_active[factor] == 0:
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
def refresh_rest(problem, state):
    """Derive U afresh from unary terms and multipliers.

    Returns the magnitude of all terms of the bound, counted twice, and most pairs of a slot.
    """
    rest = state.rest
    box = state.box
    slots = problem.slots
    pairs = problem.pairs
    constant = problem.terms[BASE]
    magnitude = problem.terms[GROSS]
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
        peak = rest_peak(rest, low, high)
        for cell in range(low, high + ONE):
            rest[cell] -= peak
        constant += peak
    state.constant[0] = constant
    return magnitude, most_pairs


@noalloc_kernel
def refresh(problem, state):
    """Derive U afresh from unary terms and multipliers; returns the bound and its rounding error.

    Sound: drift of the sweeps does not enter. No sum here has more than `longest` terms, all
    counted in `magnitude`; n additions of doubles err by at most n * 2**-53 times the sum of
    magnitudes, and the factor 4 covers second-order terms and the marginals computed from this
    state. `gross` covers the sums that formed base and unary.
    """
    magnitude, most_pairs = refresh_rest(problem, state)
    total = 0.0
    widest = np.uint32(0)
    for factor in range(problem.n_factors):
        total += score_factor(problem, state, factor)
        widest = max(widest, state.n_active[factor])
    longest = 2 * problem.n_trees + problem.n_slots + most_pairs + widest + 8
    return state.constant[0] + total, 4.0 * longest * 2.0**-53 * magnitude
