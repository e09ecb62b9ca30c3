"""Points of a `Problem`: values, coordinate ascent, and moving a witness closer."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.balls import cell_distance
from treeproof.kernels.core.bits import ALL, BIT, LAST, SIX, lowest_bit
from treeproof.kernels.core.compiler import ONE, inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.exact.conditions import lighten, weigh
from treeproof.kernels.exact.problem import (
    BASE,
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
def locate(problem, state, point, holders):
    """Value of a point inside the state's box; fills in where it lies."""
    value = problem.terms[BASE]
    for slot in range(problem.n_slots):
        value += problem.unary[point[slot]]
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
                value += problem.leaf_gain[leaf_in(problem, factor, word, bits)]
    return value


@noalloc_kernel
def meets_conditions(problem, target):
    """Whether the located point meets all conditions, as far as rounding can tell.

    With several of them, their values are left in the table of conditions.
    """
    table, holders = problem.conditions, target.holders
    n_conditions = len(table.value)
    if n_conditions == 1:
        return True
    for number in range(n_conditions):
        value = table.terms[number, BASE]
        for slot in range(problem.n_slots):
            value += table.unary[number, target.point[slot]]
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


@noalloc_kernel
def slot_values(problem, state, holders, slot, values):
    """Part of the value that depends on one slot, for each of its cells, others as they are."""
    low = np.uint32(state.box[slot, LOW])
    high = np.uint32(state.box[slot, HIGH])
    for cell in range(low, high + ONE):
        values[cell] = problem.unary[cell]
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
                    gain = problem.leaf_gain[leaf_in(problem, factor, word, held)]
                    first = max(state.reach[start + segment, LOW], low)
                    last = min(state.reach[start + segment, HIGH], high)
                    for cell in range(first, last + ONE):
                        values[cell] += gain


@noalloc_kernel
def move_slot(problem, state, holders, slot, after, is_stale):
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
                change -= problem.leaf_gain[leaf_in(problem, factor, word, held)]
            held = bits & holders.words[now + word]
            if held != 0:
                change += problem.leaf_gain[leaf_in(problem, factor, word, held)]
        first_pair = problem.factors[factor, PAIR_START]
        for other in range(first_pair, first_pair + state.n_active[factor]):
            is_stale[problem.pairs[state.active[other], SLOT]] = True
    is_stale[slot] = False
    return change


@noalloc_kernel
def ascend(problem, state, target, value, rounds):
    """Improve the point slot by slot inside the box until it reaches the need; returns its value.

    ``holders`` must know the point, ``is_stale`` tell which slots to look at first.
    """
    distance, point, values = target.distance, target.point, target.values
    holders, is_stale = target.holders, target.is_stale
    for _ in range(rounds):
        is_better = False
        for slot in range(problem.n_slots):
            low = state.box[slot, LOW]
            high = state.box[slot, HIGH]
            if low == high or not is_stale[slot]:
                continue
            is_stale[slot] = False
            here = point[slot]
            slot_values(problem, state, holders, slot, values)
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
                move_slot(problem, state, holders, slot, best, is_stale)
                if value >= target.need:
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
def cell_distances(problem, space, region):
    """Radius at which each cell of a problem is reached, rounded down; infinite if never.

    In a box that is no ball every cell is at distance 0; otherwise see `cell_distance`.

    Returns
    -------
    distance   float64 (n_cells,)
    is_beyond  bool    (n_cells,)  the radius is only approached
    """
    distance = np.zeros(len(problem.cells), dtype=np.float64)
    is_beyond = np.zeros(len(problem.cells), dtype=np.bool_)
    if not region.is_ball:
        return distance, is_beyond
    for slot in range(problem.n_slots):
        feature = problem.slots[slot, FEATURE]
        rates = region.down[feature], region.up[feature]
        sides = region.low[feature], region.high[feature]
        for cell in range(problem.slots[slot, CELL_START], problem.slots[slot + 1, CELL_START]):
            distance[cell], is_beyond[cell] = cell_distance(
                space, feature, problem.cells[cell, LOW], problem.cells[cell, HIGH],
                region.home[feature], region.row[feature], rates, sides,
            )  # fmt: skip
    return distance, is_beyond


NODES, SWEEPS, POINTS, RESTRICTIONS = 0, 1, 2, 3
"""Positions in the array of counts."""


class Found(NamedTuple):
    """What is known about a row; arrays of one entry are overwritten in place."""

    lower: np.ndarray  # (1,) float64; no violation nearer
    upper: np.ndarray  # (1,) float64; distance of the witness
    is_open: np.ndarray  # (1,) bool; the witness only approaches it
    witness: np.ndarray  # (n_features,) int32; cells of the witness
    counts: np.ndarray  # (4,) int64; nodes, sweeps, points, restrictions
    # Radius from which the best leaves of all trees break the claim
    eq6_radius: np.ndarray  # (1,) float64


@inner_kernel
def new_found(n_features):
    """Nothing known: lower 0, upper infinite."""
    upper = np.empty(1, dtype=np.float64)
    upper[0] = np.inf
    return Found(
        np.zeros(1, dtype=np.float64),
        upper,
        np.zeros(1, dtype=np.bool_),
        np.zeros(n_features, dtype=np.int32),
        np.zeros(4, dtype=np.int64),
        np.zeros(1, dtype=np.float64),
    )


ATTEMPTS, ATTEMPT_STEP = 12, 0.7
"""Ascents with other weights until all conditions are met, and how far weights change."""
REPAIR_ROUNDS = 2
"""Rounds of ascent after each step closer."""


class Target(NamedTuple):
    """What a search looks for, and the best that it has found."""

    need: float  # value from which a point is worth judging
    floor: float  # no violation has a value below it
    distance: np.ndarray  # (n_cells,) float64; radius at which each cell is reached
    is_beyond: np.ndarray  # (n_cells,) bool; the radius is only approached (downward moves)
    upper: np.ndarray  # (1,) float64; distance of the best witness; infinite without one
    is_open: np.ndarray  # (1,) bool; the best witness only approaches `upper`
    counts: np.ndarray  # (4,) int64; nodes, sweeps, points, restrictions
    point: np.ndarray  # (n_slots,) int32; the point under consideration
    values: np.ndarray  # (n_cells,) float64; scratch
    n_steps: np.ndarray  # (1,) int64; steps by which the point was moved closer
    saved: np.ndarray  # (n_slots, 4) int32; scratch: a box and two points
    holders: Holders  # where the point lies
    # Scratch: slots whose best cell may have changed since it was chosen
    is_stale: np.ndarray  # (n_slots,) bool


@inner_kernel
def new_target(problem, space, region, need, floor, found):
    """Target of a search in a problem; ``found`` holds what is known about the row."""
    distance, is_beyond = cell_distances(problem, space, region)
    return Target(
        need,
        floor,
        distance,
        is_beyond,
        found.upper,
        found.is_open,
        found.counts,
        np.zeros(problem.n_slots, dtype=np.int32),
        np.empty(len(problem.unary), dtype=np.float64),
        np.zeros(1, dtype=np.int64),
        np.empty((problem.n_slots, 4), dtype=np.int32),
        new_holders(problem),
        np.empty(problem.n_slots, dtype=np.bool_),
    )


@noalloc_kernel
def shrink_box(problem, state, target, upper, is_open):
    """Keep only cells nearer than a witness; False when some slot has none left.

    A witness that only approaches its distance leaves room for one that attains it. Distances rise
    outwards from the row's own cell, so what remains of a box is again a box.
    """
    distance = target.distance
    for slot in range(problem.n_slots):
        low = state.box[slot, LOW]
        high = state.box[slot, HIGH]
        while low <= high and (
            distance[low] > upper
            or (distance[low] == upper and (target.is_beyond[low] or not is_open))
        ):
            low += 1
        while low <= high and (
            distance[high] > upper
            or (distance[high] == upper and (target.is_beyond[high] or not is_open))
        ):
            high -= 1
        state.box[slot, LOW] = low
        state.box[slot, HIGH] = high
        if low > high:
            return False
    return True


@noalloc_kernel
def point_distance(problem, target):
    """Distance of `target.point`, and whether it is only approached."""
    largest = 0.0
    is_open = False
    for slot in range(problem.n_slots):
        cell = target.point[slot]
        if target.distance[cell] > largest:
            largest = target.distance[cell]
            is_open = target.is_beyond[cell]
        elif target.distance[cell] == largest and target.is_beyond[cell]:
            is_open = True
    return largest, is_open


@noalloc_kernel
def accept_point(problem, target):
    """Make the judged point the best witness."""
    target.n_steps[0] = 0
    target.upper[0], target.is_open[0] = point_distance(problem, target)


@noalloc_kernel
def climb(problem, state, target, rounds):
    """Value of `target.point` after at most that many rounds of ascent in the box."""
    for slot in range(problem.n_slots):
        target.is_stale[slot] = True
    value = locate(problem, state, target.point, target.holders)
    if value < target.need:
        value = ascend(problem, state, target, value, rounds)
    return value


@noalloc_kernel
def reaches_need(problem, state, target, rounds):
    """Whether `target.point`, after some rounds of ascent in the box, is worth judging.

    Then it is moved as near as small changes take it; `take_back` undoes that. Where several
    conditions must be met, ascent goes on with more weight on those that are not.
    """
    value = climb(problem, state, target, rounds)
    target.n_steps[0] = 0
    table = problem.conditions
    is_reached = value >= target.need and meets_conditions(problem, target)
    if len(table.trial) > 1 and not is_reached and rounds > 0:
        for number in range(len(table.trial)):
            table.trial[number] = state.weight[number]
        for _ in range(ATTEMPTS):
            if meets_conditions(problem, target):
                is_reached = True
                break
            lighten(table.trial, table.value, ATTEMPT_STEP, table.trial)
            weigh(problem, table.trial)
            value = climb(problem, state, target, rounds)
    if is_reached:
        descend(problem, state, target, value)
    if len(table.trial) > 1:
        weigh(problem, state.weight)
    return is_reached


@noalloc_kernel
def descend(problem, state, target, value):
    """Move a point that reaches the need closer, threshold by threshold, while it still does.

    The farthest slots are moved inwards, and what that spoils is repaired by ascent among the slots
    concerned. The box stays as it was, since the point may yet be rejected.
    """
    saved = target.saved
    for slot in range(problem.n_slots):
        saved[slot, 0] = state.box[slot, LOW]
        saved[slot, 1] = state.box[slot, HIGH]
        saved[slot, 2] = target.point[slot]
    # Ends: each step moves the point nearer.
    while True:
        for slot in range(problem.n_slots):
            saved[slot, 3] = target.point[slot]
        upper, is_open = point_distance(problem, target)
        if (upper == 0.0 and not is_open) or not shrink_box(problem, state, target, upper, is_open):
            break
        for slot in range(problem.n_slots):
            here = target.point[slot]
            nearer = np.int32(min(max(here, state.box[slot, LOW]), state.box[slot, HIGH]))
            if nearer != here:
                target.point[slot] = nearer
                value += problem.unary[nearer] - problem.unary[here]
                value += move_slot(problem, state, target.holders, slot, nearer, target.is_stale)
                target.is_stale[slot] = True
        if value < target.need:
            value = ascend(problem, state, target, value, np.int64(REPAIR_ROUNDS))
            if value < target.need:
                break
        if not meets_conditions(problem, target):
            break
        target.n_steps[0] += 1
    for slot in range(problem.n_slots):
        state.box[slot, LOW] = saved[slot, 0]
        state.box[slot, HIGH] = saved[slot, 1]
        target.point[slot] = saved[slot, 3]


@noalloc_kernel
def take_back(problem, target):
    """Undo the descent of `target.point`; False when there was none."""
    if target.n_steps[0] == 0:
        return False
    target.n_steps[0] = 0
    for slot in range(problem.n_slots):
        target.point[slot] = target.saved[slot, 2]
    return True
