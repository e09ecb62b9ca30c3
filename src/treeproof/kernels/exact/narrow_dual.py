"""Bounds and sweeps as in `treeproof.kernels.exact.dual`, over the ranges that narrow a leaf alone.

A tree of depth 6 may test thirty slots, of which each of its leaves knows six. Where a leaf's range
is all of a slot, its peak is the pair's largest multiplier, the same for all such leaves: scores
are kept relative to these, and only narrower ranges are visited.

The best leaf of a factor stays its best while shares of its marginals are pushed back. So of the
leaves that do not narrow a pair the best one is known, unless the best leaf itself narrows it.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.compiler import ONE, inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.exact.dual import (
    LOWEST,
    give_back,
    level_slots,
    list_pairs,
    range_peak,
    reach_box,
    refresh_rest,
    rest_peak,
    share_out,
)
from treeproof.kernels.exact.problem import (
    ENTRY_START,
    HIGH,
    LEAF_START,
    LOW,
    PAIR_START,
    SEGMENT_START,
)

RANGE_PAIR = 2


class Narrow(NamedTuple):
    """Ranges of leaves that are narrower than their slot; arrays are overwritten in place."""

    is_used: bool  # otherwise sweeps visit all entries, and there are none
    # Of the problem: for each leaf its ranges
    leaf_start: np.ndarray  # (n_leaves + 1,) uint32
    ranges: np.ndarray  # (n_ranges, 3) uint32; LOW, HIGH: segments of the pair; RANGE_PAIR
    # Of the state's box: for each pair the ranges of living leaves, listed from its own place on
    start: np.ndarray  # (n_pairs,) uint32
    end: np.ndarray  # (n_pairs,) uint32
    leaf: np.ndarray  # (n_ranges,) uint32; the leaf's place in the state's lists
    low: np.ndarray  # (n_ranges,) uint32; first segment
    high: np.ndarray  # (n_ranges,) uint32; last segment
    fall: np.ndarray  # (n_ranges,) float64; largest multiplier in the range, minus the pair's
    top: np.ndarray  # (n_pairs,) float64; largest multiplier of the pair
    best: np.ndarray  # (n_factors,) uint32; place of the best leaf in the state's lists
    aside: np.ndarray  # (n_leaves,) float64; scratch: scores


@inner_kernel
def new_narrow(problem, is_used):
    """The narrow ranges of a problem; `enter_narrow` lists those of a box. None if not used."""
    n_factors = problem.n_factors if is_used else 0
    n_leaves = len(problem.leaf_gain)
    leaf_start = np.zeros(n_leaves + 1, dtype=np.uint32)
    start = np.zeros(problem.n_pairs + 1, dtype=np.uint32)
    ranges = np.empty((len(problem.entries), 3), dtype=np.uint32)
    count = np.uint64(0)
    for factor in range(n_factors):
        first_pair = problem.factors[factor, PAIR_START]
        entry = np.uint64(problem.factors[factor, ENTRY_START])
        for leaf in range(
            problem.factors[factor, LEAF_START], problem.factors[factor + 1, LEAF_START]
        ):
            for pair in range(first_pair, problem.factors[factor + 1, PAIR_START]):
                low = problem.entries[entry, LOW]
                high = problem.entries[entry, HIGH]
                entry += ONE
                # Without a branch: which ranges are narrow cannot be foreseen.
                ranges[count, LOW] = low
                ranges[count, HIGH] = high
                ranges[count, RANGE_PAIR] = pair
                n_segments = (
                    problem.pairs[pair + ONE, SEGMENT_START] - problem.pairs[pair, SEGMENT_START]
                )
                is_narrow = np.uint64(high - low + ONE < n_segments)
                start[pair + ONE] += is_narrow
                count += is_narrow
            leaf_start[leaf + ONE] = count
    for pair in range(problem.n_pairs):
        start[pair + 1] += start[pair]
    size = np.int64(count)
    return Narrow(
        is_used,
        leaf_start,
        ranges[:size],
        start,
        np.empty(problem.n_pairs, dtype=np.uint32),
        np.empty(size, dtype=np.uint32),
        np.empty(size, dtype=np.uint32),
        np.empty(size, dtype=np.uint32),
        np.empty(size, dtype=np.float64),
        np.empty(problem.n_pairs, dtype=np.float64),
        np.zeros(problem.n_factors, dtype=np.uint32),
        np.empty(n_leaves, dtype=np.float64),
    )


@noalloc_kernel
def enter_narrow(problem, state, narrow):
    """Bring the state and its lists of narrow ranges in line with its box."""
    reach_box(problem, state)
    for factor in range(problem.n_factors):
        list_pairs(problem, state, factor)
        list_narrow(problem, state, narrow, factor)
    share_out(problem, state)
    level_slots(problem, state)


@inlined_kernel
def list_narrow(problem, state, narrow, factor):
    """List the leaves of a factor that meet the box, and their ranges that are narrow in it.

    A factor with one leaf left has no multipliers: its term is that leaf's gain.
    """
    ranges, span = narrow.ranges, state.span
    first_pair = problem.factors[factor, PAIR_START]
    n_active = state.n_active[factor]
    for step in range(n_active):
        pair = state.active[first_pair + step]
        narrow.end[pair] = narrow.start[pair]
    first_leaf = problem.factors[factor, LEAF_START]
    place = np.uint64(first_leaf)
    for leaf in range(first_leaf, problem.factors[factor + 1, LEAF_START]):
        is_alive = True
        for index in range(narrow.leaf_start[leaf], narrow.leaf_start[leaf + ONE]):
            pair = ranges[index, RANGE_PAIR]
            is_alive &= ranges[index, LOW] <= span[pair, HIGH]
            is_alive &= ranges[index, HIGH] >= span[pair, LOW]
        if not is_alive:
            continue
        for index in range(narrow.leaf_start[leaf], narrow.leaf_start[leaf + ONE]):
            pair = ranges[index, RANGE_PAIR]
            low = max(ranges[index, LOW], span[pair, LOW])
            high = min(ranges[index, HIGH], span[pair, HIGH])
            if low > span[pair, LOW] or high < span[pair, HIGH]:
                start = problem.pairs[pair, SEGMENT_START]
                at = narrow.end[pair]
                narrow.leaf[at] = place
                narrow.low[at] = start + low
                narrow.high[at] = start + high
                narrow.end[pair] = at + ONE
        state.gain[place] = problem.leaf_gain[leaf]
        state.alive[place] = leaf - first_leaf
        place += ONE
    state.n_alive[factor] = place - first_leaf
    if state.n_alive[factor] == 1:
        for step in range(n_active):
            pair = state.active[first_pair + step]
            give_back(problem, state, pair)
            state.place[pair] = -1
        state.n_active[factor] = 0


@inlined_kernel
def score_narrow(problem, state, narrow, factor):
    """Score the living leaves of a factor with the present multipliers; returns its term.

    Scores are relative to the sum of the largest multipliers of all its pairs.
    """
    multiplier, scores = state.multiplier, state.score
    first_leaf = problem.factors[factor, LEAF_START]
    n_alive = state.n_alive[factor]
    for leaf in range(first_leaf, first_leaf + n_alive):
        scores[leaf] = state.gain[leaf]
    level = 0.0
    first_pair = problem.factors[factor, PAIR_START]
    for step in range(state.n_active[factor]):
        pair = state.active[first_pair + step]
        start = problem.pairs[pair, SEGMENT_START]
        top = range_peak(multiplier, start + state.span[pair, LOW], start + state.span[pair, HIGH])
        narrow.top[pair] = top
        level += top
        for index in range(narrow.start[pair], narrow.end[pair]):
            fall = range_peak(multiplier, narrow.low[index], narrow.high[index]) - top
            narrow.fall[index] = fall
            scores[narrow.leaf[index]] += fall
    best = np.uint64(first_leaf)
    for leaf in range(first_leaf, first_leaf + n_alive):
        best = leaf if scores[leaf] > scores[best] else best
    narrow.best[factor] = best
    state.best[factor] = level + scores[best]
    return state.best[factor]


@inlined_kernel
def narrow_marginals(problem, state, narrow, factor, pair):
    """As `segment_marginals`, relative to the largest multipliers of the factor's other pairs."""
    scores, scratch = state.score, state.scratch
    start = problem.pairs[pair, SEGMENT_START]
    first = start + state.span[pair, LOW]
    last = start + state.span[pair, HIGH]
    begin = narrow.start[pair]
    end = narrow.end[pair]
    best = narrow.best[factor]
    wide = scores[best]
    is_narrow = False
    for segment in range(last - first + ONE):
        scratch[segment] = LOWEST
    for index in range(begin, end):
        leaf = narrow.leaf[index]
        is_narrow |= leaf == best
        others = scores[leaf] - narrow.fall[index]
        for segment in range(narrow.low[index] - first, narrow.high[index] - first + ONE):
            scratch[segment] = max(scratch[segment], others)
    if is_narrow:
        for index in range(begin, end):
            leaf = narrow.leaf[index]
            narrow.aside[leaf] = scores[leaf]
            scores[leaf] = LOWEST
        first_leaf = problem.factors[factor, LEAF_START]
        wide = LOWEST
        for leaf in range(first_leaf, first_leaf + state.n_alive[factor]):
            wide = max(wide, scores[leaf])
        for index in range(begin, end):
            leaf = narrow.leaf[index]
            scores[leaf] = narrow.aside[leaf]
    for segment in range(last - first + ONE):
        scratch[segment] = max(scratch[segment], wide)


@inlined_kernel
def rescore_narrow(problem, state, narrow, pair):
    """Bring the scores of a factor in line with new multipliers of one of its pairs."""
    multiplier = state.multiplier
    start = problem.pairs[pair, SEGMENT_START]
    top = range_peak(multiplier, start + state.span[pair, LOW], start + state.span[pair, HIGH])
    for index in range(narrow.start[pair], narrow.end[pair]):
        fall = range_peak(multiplier, narrow.low[index], narrow.high[index]) - top
        state.score[narrow.leaf[index]] += fall - narrow.fall[index]


@noalloc_kernel
def sweep_narrow(problem, state, narrow, is_forward, bound, floor):
    """As `sweep`, and sound for the same reasons; the best leaf stays the best but for rounding.

    With a share of its marginals taken, a multiplier becomes a mean of what it was and of what the
    best leaf has there: no segment passes the peak of the best leaf's range.
    """
    rest, reach, multiplier = state.rest, state.reach, state.multiplier
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
                peak = rest_peak(rest, reach[segment, LOW], reach[segment, HIGH])
                multiplier[segment] += peak
                state.pulled[segment] = peak
        before = state.best[factor]
        bound += score_narrow(problem, state, narrow, factor) - before
        if bound < floor:
            break
        for step in range(state.n_active[factor]):
            pair = state.active[first_pair + step]
            share = state.shares[pair, direction]
            first = problem.pairs[pair, SEGMENT_START] + state.span[pair, LOW]
            last = problem.pairs[pair, SEGMENT_START] + state.span[pair, HIGH]
            best = 0.0
            if share != 0.0:
                narrow_marginals(problem, state, narrow, factor, pair)
                best = narrow.top[pair] + state.score[narrow.best[factor]]
            for segment in range(first, last + ONE):
                change = -state.pulled[segment]
                if share != 0.0:
                    pushed = share * (state.scratch[segment - first] + multiplier[segment] - best)
                    multiplier[segment] -= pushed
                    change += pushed
                for cell in range(reach[segment, LOW], reach[segment, HIGH] + ONE):
                    rest[cell] += change
            if share != 0.0 and step < last_step:
                rescore_narrow(problem, state, narrow, pair)
    return bound


@noalloc_kernel
def refresh_narrow(problem, state, narrow):
    """As `refresh`: U afresh; returns the bound and its rounding error.

    Sound: as there, but a pair counts twice in a factor's sum, with its largest multiplier and with
    how far a range falls below it, which may be twice as large and is rounded itself. So there are
    `widest` more terms, and all of them at most three halves of what is counted.
    """
    magnitude, most_pairs = refresh_rest(problem, state)
    total = 0.0
    widest = np.uint32(0)
    for factor in range(problem.n_factors):
        total += score_narrow(problem, state, narrow, factor)
        widest = max(widest, state.n_active[factor])
    longest = 2 * problem.n_trees + problem.n_slots + most_pairs + 2 * widest + 8
    return state.constant[0] + total, 8.0 * longest * 2.0**-53 * magnitude


@noalloc_kernel
def marginals_narrow(problem, state, narrow):
    """As `marginals`; must follow `refresh_narrow`, whose scores it uses."""
    for slot in range(problem.n_slots):
        for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
            state.marginal[cell] = state.rest[cell]
    for factor in range(problem.n_factors):
        for step in range(state.n_active[factor]):
            pair = state.active[problem.factors[factor, PAIR_START] + step]
            narrow_marginals(problem, state, narrow, factor, pair)
            best = narrow.top[pair] + state.score[narrow.best[factor]]
            start = problem.pairs[pair, SEGMENT_START]
            first = start + state.span[pair, LOW]
            for segment in range(first, start + state.span[pair, HIGH] + ONE):
                cost = state.scratch[segment - first] + state.multiplier[segment] - best
                for cell in range(state.reach[segment, LOW], state.reach[segment, HIGH] + ONE):
                    state.marginal[cell] += cost
