"""Points of a `Problem`: what they gain, and which leaves hold them."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.bits import ALL, BIT, LAST, SIX, lowest_bit
from treeproof.kernels.core.compiler import ONE, inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.exact.problem import (
    BASE,
    ENTRY_START,
    FACTOR,
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


class Gains(NamedTuple):
    """What points gain: the terms of a problem, without what their costs take off."""

    terms: np.ndarray  # (2,) float64; as those of the problem
    unary: np.ndarray  # (n_cells,) float64
    leaf: np.ndarray  # (n_leaves,) float64


@inner_kernel
def gains_of(problem):
    """The problem's own terms."""
    return Gains(problem.terms, problem.unary, problem.leaf_gain)


@inner_kernel
def own_gains(problem, has_conditions):
    """A copy of the problem's terms; gains of leaves are shared unless conditions are weighed."""
    leaf = problem.leaf_gain.copy() if has_conditions else problem.leaf_gain
    return Gains(problem.terms.copy(), problem.unary.copy(), leaf)


class Holders(NamedTuple):
    """Which leaves hold each segment, and where a point lies.

    The leaves of a factor share out its points: the one that holds a point is the only one in the
    intersection of the holders of the point's segments, which takes a few instructions.
    """

    start: np.ndarray  # (n_pairs,) uint32; where a pair's words start, for each segment some
    words: np.ndarray  # (n_words,) uint64; a bit per leaf, see `treeproof.kernels.core.bits`
    here: np.ndarray  # (n_pairs,) uint32; where the words start of the point's segment


@inlined_kernel
def word_count(problem, factor):
    """Words that hold one bit for each leaf of a factor."""
    n_leaves = problem.factors[factor + 1, LEAF_START] - problem.factors[factor, LEAF_START]
    return (np.uint64(n_leaves) + LAST) >> SIX


@inner_kernel
def new_holders(problem):
    """`Holders` of a problem, the point nowhere yet."""
    start = np.empty(problem.n_pairs, dtype=np.uint32)
    total = np.uint64(0)
    for factor in range(problem.n_factors):
        width = word_count(problem, factor)
        for pair in range(
            problem.factors[factor, PAIR_START], problem.factors[factor + 1, PAIR_START]
        ):
            start[pair] = total
            total += width * (
                problem.pairs[pair + ONE, SEGMENT_START] - problem.pairs[pair, SEGMENT_START]
            )
    words = np.zeros(np.int64(total), dtype=np.uint64)
    for factor in range(problem.n_factors):
        width = word_count(problem, factor)
        first_pair = problem.factors[factor, PAIR_START]
        last_pair = problem.factors[factor + 1, PAIR_START]
        entry = np.uint64(problem.factors[factor, ENTRY_START])
        for leaf in range(
            problem.factors[factor + 1, LEAF_START] - problem.factors[factor, LEAF_START]
        ):
            word = np.uint64(leaf) >> SIX
            bit = BIT << (np.uint64(leaf) & LAST)
            for pair in range(first_pair, last_pair):
                for segment in range(
                    problem.entries[entry, LOW], problem.entries[entry, HIGH] + ONE
                ):
                    words[start[pair] + segment * width + word] |= bit
                entry += ONE
    return Holders(start, words, np.empty(problem.n_pairs, dtype=np.uint32))


@inlined_kernel
def holders_besides(problem, holders, factor, pair, word):
    """Leaves of a factor, of one word, that hold the point in all pairs but one."""
    bits = ALL
    for other in range(problem.factors[factor, PAIR_START], pair):
        bits &= holders.words[holders.here[other] + word]
    for other in range(pair + ONE, problem.factors[factor + 1, PAIR_START]):
        bits &= holders.words[holders.here[other] + word]
    return bits


@inlined_kernel
def leaf_in(problem, factor, word, bits):
    """The leaf of a factor that is the only one in a word of bits."""
    return problem.factors[factor, LEAF_START] + (word << SIX) + lowest_bit(bits)


@noalloc_kernel
def locate(problem, gains, state, point, holders):
    """Gain of a point inside the state's box; fills in where it lies."""
    value = gains.terms[BASE]
    for slot in range(problem.n_slots):
        value += gains.unary[point[slot]]
    for factor in range(problem.n_factors):
        first_pair = problem.factors[factor, PAIR_START]
        last_pair = problem.factors[factor + 1, PAIR_START]
        width = word_count(problem, factor)
        for pair in range(first_pair, last_pair):
            segment = segment_at(problem, state, pair, point[problem.pairs[pair, SLOT]])
            segment -= problem.pairs[pair, SEGMENT_START]
            holders.here[pair] = holders.start[pair] + segment * width
        for word in range(width):
            bits = holders_besides(problem, holders, factor, last_pair, word)
            if bits != 0:
                value += gains.leaf[leaf_in(problem, factor, word, bits)]
    return value


@noalloc_kernel
def meets_conditions(problem, point, holders, n_conditions):
    """Whether a located point meets the first conditions, as far as rounding can tell.

    With several of them, their values are left in the table of conditions.
    """
    table = problem.conditions
    if n_conditions == 1:
        return True
    for number in range(n_conditions):
        value = table.terms[number, BASE]
        for slot in range(problem.n_slots):
            value += table.unary[number, point[slot]]
        table.value[number] = value
    for factor in range(problem.n_factors):
        last_pair = problem.factors[factor + 1, PAIR_START]
        for word in range(word_count(problem, factor)):
            bits = holders_besides(problem, holders, factor, last_pair, word)
            if bits != 0:
                leaf = leaf_in(problem, factor, word, bits)
                for number in range(n_conditions):
                    table.value[number] += table.gain[number, leaf]
    least = np.inf
    for number in range(n_conditions):
        least = min(least, table.value[number])
    return least >= 0.0


@inlined_kernel
def slot_values(problem, gains, state, holders, slot, values):
    """Part of the value that depends on one slot, for each of its cells, others as they are."""
    low = np.uint32(state.box[slot, LOW])
    high = np.uint32(state.box[slot, HIGH])
    for cell in range(low, high + ONE):
        values[cell] = gains.unary[cell]
    for index in range(problem.slots[slot, PAIR_START], problem.slots[slot + 1, PAIR_START]):
        pair = problem.slot_pair[index]
        if state.span[pair, LOW] == state.span[pair, HIGH]:
            continue
        factor = problem.pairs[pair, FACTOR]
        width = word_count(problem, factor)
        start = problem.pairs[pair, SEGMENT_START]
        for word in range(width):
            bits = holders_besides(problem, holders, factor, pair, word)
            for segment in range(state.span[pair, LOW], state.span[pair, HIGH] + ONE):
                held = bits & holders.words[holders.start[pair] + segment * width + word]
                if held != 0:
                    gain = gains.leaf[leaf_in(problem, factor, word, held)]
                    first = max(state.reach[start + segment, LOW], low)
                    last = min(state.reach[start + segment, HIGH], high)
                    for cell in range(first, last + ONE):
                        values[cell] += gain


@noalloc_kernel
def move_slot(problem, gains, state, holders, slot, after, is_stale):
    """Account for a slot's new cell; returns what its factors add to the value.

    Marks the slots to which the move may matter.
    """
    change = 0.0
    for index in range(problem.slots[slot, PAIR_START], problem.slots[slot + 1, PAIR_START]):
        pair = problem.slot_pair[index]
        if state.span[pair, LOW] == state.span[pair, HIGH]:
            continue
        factor = problem.pairs[pair, FACTOR]
        width = word_count(problem, factor)
        segment = segment_at(problem, state, pair, after) - problem.pairs[pair, SEGMENT_START]
        before = np.uint64(holders.here[pair])
        now = holders.start[pair] + segment * width
        if before == now:
            continue
        holders.here[pair] = now
        for word in range(width):
            bits = holders_besides(problem, holders, factor, pair, word)
            held = bits & holders.words[before + word]
            if held != 0:
                change -= gains.leaf[leaf_in(problem, factor, word, held)]
            held = bits & holders.words[now + word]
            if held != 0:
                change += gains.leaf[leaf_in(problem, factor, word, held)]
        first_pair = problem.factors[factor, PAIR_START]
        for other in range(first_pair, first_pair + state.n_active[factor]):
            is_stale[problem.pairs[state.active[other], SLOT]] = True
    is_stale[slot] = False
    return change


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


NODES, SWEEPS, POINTS, RESTRICTIONS = 0, 1, 2, 3
"""Positions in the array of counts."""


class Found(NamedTuple):
    """What is known about a row; arrays of one entry are overwritten in place."""

    lower: np.ndarray  # (1,) float64; no violation is nearer, or costs less
    upper: np.ndarray  # (1,) float64; of the witness; infinite without one
    is_open: np.ndarray  # (1,) bool; the witness only approaches it
    witness: np.ndarray  # (n_axes,) int32; atoms of the witness
    counts: np.ndarray  # (4,) int64; nodes, sweeps, points, restrictions
    # Radius from which the best leaves of all trees break the claim
    eq6_radius: np.ndarray  # (1,) float64
    way_lower: np.ndarray  # (1,) float64; no violation by the alternative at hand costs less


@inner_kernel
def new_found(n_axes):
    """Nothing known: lower 0, upper infinite."""
    upper = np.empty(1, dtype=np.float64)
    upper[0] = np.inf
    return Found(
        np.zeros(1, dtype=np.float64),
        upper,
        np.zeros(1, dtype=np.bool_),
        np.zeros(n_axes, dtype=np.int32),
        np.zeros(4, dtype=np.int64),
        np.zeros(1, dtype=np.float64),
        np.zeros(1, dtype=np.float64),
    )
