"""Where the attack starts: the row itself, points decoded from the dual, and random neighbours."""

import numpy as np

from treeproof.kernels.arrays import copy_into
from treeproof.kernels.compiler import noalloc_kernel
from treeproof.kernels.dual import sweep
from treeproof.kernels.entering import enter_box
from treeproof.kernels.primal import clip_point, decode
from treeproof.kernels.problem import ENTRY_START, HIGH, LEAF_START, LOW, PAIR_START, SLOT
from treeproof.kernels.witnesses import SWEEPS

DECODED_AFTER = (1, 4, 12)
"""Numbers of sweeps after which a point is decoded from the dual; the starts after the first."""
DIVE_DEPTH = 6


@noalloc_kernel
def random_below(generator, count):
    """Random whole number from 0 to count - 1 (xorshift).

    generator  uint64 (1,)  state, not 0
    """
    state = generator[0]
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    generator[0] = state
    return np.int64((state >> np.uint64(11)) % np.uint64(count))


@noalloc_kernel
def kick(problem, state, generator, point):
    """Move a point into other leaves of a few random trees, as little as that needs.

    Of two random leaves of a tree the one with more gain is taken.
    """
    factors = problem.factors
    if problem.n_factors == 0:
        return
    for _ in range(1 + random_below(generator, 4)):
        factor = random_below(generator, problem.n_factors)
        first_leaf = factors[factor, LEAF_START]
        n_alive = state.n_alive[factor]
        leaf = random_below(generator, n_alive)
        other = random_below(generator, n_alive)
        if state.gain[first_leaf + other] > state.gain[first_leaf + leaf]:
            leaf = other
        entry = factors[factor, ENTRY_START] + leaf
        first_pair = factors[factor, PAIR_START]
        for index in range(first_pair, first_pair + state.n_active[factor]):
            slot = problem.pairs[state.active[index], SLOT]
            low = state.reach[state.range_low[entry], LOW]
            high = state.reach[state.range_high[entry], HIGH]
            point[slot] = min(max(point[slot], low), high)
            entry += n_alive
    clip_point(problem, state, point)


@noalloc_kernel
def keep_state(problem, state, kept, is_saving):
    """Save what a dive changes of a state, or restore it."""
    position = 0
    for cell in range(len(state.rest)):
        if is_saving:
            kept[position] = state.rest[cell]
        else:
            state.rest[cell] = kept[position]
        position += 1
    for segment in range(len(state.multiplier)):
        if is_saving:
            kept[position] = state.multiplier[segment]
        else:
            state.multiplier[segment] = kept[position]
        position += 1
    for slot in range(problem.n_slots):
        for side in range(2):
            if is_saving:
                kept[position] = state.box[slot, side]
            else:
                state.box[slot, side] = np.int32(kept[position])
            position += 1
    if is_saving:
        kept[position] = state.constant[0]
    else:
        state.constant[0] = kept[position]


@noalloc_kernel
def dive(problem, state, target, bound, kept, generator):
    """Narrow random slots towards the dual's favourites, sweeping in between, and decode.

    The box, and what goes with it in the state, is left as it was; the point lies in the box.

    kept  float64 (n_cells + n_segments + 1 + 2 * n_slots,)  scratch
    """
    keep_state(problem, state, kept, True)
    for turn in range(DIVE_DEPTH):
        slot = random_below(generator, problem.n_slots)
        low, high = state.box[slot, LOW], state.box[slot, HIGH]
        if low == high:
            continue
        best = low
        for cell in range(low + 1, high + 1):
            if state.rest[cell] > state.rest[best]:
                best = cell
        cut = low + random_below(generator, high - low)
        state.box[slot, LOW] = cut + 1 if best > cut else low
        state.box[slot, HIGH] = high if best > cut else cut
        bound = enter_box(problem, state)
        bound = sweep(problem, state, turn % 2 == 0, bound, target.floor)
        target.counts[SWEEPS] += 1
        if bound < target.floor:
            break
    decode(problem, state, state.rest, target.distance, target.point)
    keep_state(problem, state, kept, False)
    enter_box(problem, state)


@noalloc_kernel
def start_point(problem, state, target, start, bound, best, kept, generator):
    """Put the start with the given number into ``target.point``; returns the dual bound."""
    if start == 0:
        for cell in range(len(state.marginal)):
            state.marginal[cell] = 0.0
        decode(problem, state, state.marginal, target.distance, target.point)
        return bound
    if start <= len(DECODED_AFTER):
        done = DECODED_AFTER[start - 2] if start > 1 else 0
        for turn in range(done, DECODED_AFTER[start - 1]):
            bound = sweep(problem, state, turn % 2 == 0, bound, target.floor)
            target.counts[SWEEPS] += 1
            if bound < target.floor:
                return bound
        decode(problem, state, state.rest, target.distance, target.point)
        return bound
    if start % 4 == 2:
        dive(problem, state, target, bound, kept, generator)
        return bound
    if start % 4 == 0:
        bound = sweep(problem, state, start % 8 == 0, bound, target.floor)
        target.counts[SWEEPS] += 1
        decode(problem, state, state.rest, target.distance, target.point)
    else:
        copy_into(target.point, best)
    kick(problem, state, generator, target.point)
    return bound
