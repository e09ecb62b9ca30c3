"""The attack: near violations by descent over leaf tuples, from many starts.

It starts from the row itself, from points decoded from the dual, and from random neighbours.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.cells import new_box, new_region
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.emulation import BROKEN
from treeproof.kernels.core.leaves import restrict
from treeproof.kernels.core.status import NODE_LIMIT, TIME_LIMIT, UNDECIDED
from treeproof.kernels.exact.balls import (
    ball_cells,
    base_and_floor,
    covers_everything,
    first_step,
    is_excluded_by_eq6,
)
from treeproof.kernels.exact.dual import enter_box, new_state, sweep
from treeproof.kernels.exact.initial_radius import order_alternatives
from treeproof.kernels.exact.nodes import new_stack, pop, push
from treeproof.kernels.exact.objective import (
    ball_objective,
    climb,
    reaches_need,
    shrink_box,
)
from treeproof.kernels.exact.primal import (
    NODES,
    RESTRICTIONS,
    SWEEPS,
    clip_point,
    decode,
    new_found,
)
from treeproof.kernels.exact.problem import (
    ENTRY_START,
    HIGH,
    LEAF_START,
    LOW,
    PAIR_START,
    SLOT,
    build_problem,
)
from treeproof.kernels.exact.row import claim_of, write_columns
from treeproof.kernels.exact.search import Budget, judge_point, new_judge

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

    The point may end outside the box. Of two random leaves of a tree that with more gain is taken.
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


@noalloc_kernel
def dive(problem, state, objective, bound, stack, generator):
    """Narrow random slots towards the dual's favourites, sweeping in between, and decode.

    The box, and what goes with it in the state, is left as it was; the point lies in the box.

    stack  NodeStack  empty, with room for one node
    """
    push(stack, state)
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
        bound = sweep(problem, state, turn % 2 == 0, bound, objective.floor)
        objective.found.counts[SWEEPS] += 1
        if bound < objective.floor:
            break
    decode(problem, state, state.rest, objective.cost, objective.point)
    pop(stack, state)
    enter_box(problem, state)


@noalloc_kernel
def start_point(problem, state, objective, start, bound, best, stack, generator):
    """Put the start with the given number into ``objective.point``; returns the dual bound.

    The point may lie outside the box.
    """
    if start == 0:
        for cell in range(len(state.marginal)):
            state.marginal[cell] = 0.0
        decode(problem, state, state.marginal, objective.cost, objective.point)
        return bound
    if start <= len(DECODED_AFTER):
        done = DECODED_AFTER[start - 2] if start > 1 else 0
        for turn in range(done, DECODED_AFTER[start - 1]):
            bound = sweep(problem, state, turn % 2 == 0, bound, objective.floor)
            objective.found.counts[SWEEPS] += 1
            if bound < objective.floor:
                return bound
        decode(problem, state, state.rest, objective.cost, objective.point)
        return bound
    if start % 4 == 2:
        dive(problem, state, objective, bound, stack, generator)
        return bound
    if start % 4 == 0:
        bound = sweep(problem, state, start % 8 == 0, bound, objective.floor)
        objective.found.counts[SWEEPS] += 1
        decode(problem, state, state.rest, objective.cost, objective.point)
    else:
        copy_into(objective.point, best)
    kick(problem, state, generator, objective.point)
    return bound


NOTHING_THERE, NOTHING_FOUND, FOUND, LIMITED = 0, 1, 2, 3
"""What became of a box: a bound tells that no violation, nearer than the witness, is there; none
was found; one was found; time or starts ran out."""

FIRST_STARTS = 3
"""Starts at a trial radius before any witness is known."""
ROUNDS = 4
FIRST_MARGIN = 1.2
"""The first trial radius over the one from which best leaves could break the claim."""
GROWTH, SMALL_GROWTH = 1.5, 1.4
"""How a trial radius grows when nothing can be there, and when nothing was found."""


class AttackLimits(NamedTuple):
    """How long a row is attacked."""

    starts: int  # in a row without success after which the search ends
    most_starts: int  # of the row in all, counted in ``found.counts[NODES]``
    time_s: float


@inner_kernel
def attack_box(forest, claim, region, box, n_starts, found, generator, budget):
    """Search one box of cells; a ball until `n_starts` starts in a row find nothing nearer.

    budget  Budget  its nodes are starts of the row in all
    """
    found.counts[RESTRICTIONS] += 1
    leaves = restrict(forest, region.row, box, claim.coefficient)
    base, floor = base_and_floor(forest, claim, leaves)
    if is_excluded_by_eq6(base, floor, leaves):
        return NOTHING_THERE
    problem = build_problem(base, leaves, box)
    state = new_state(problem)
    objective = ball_objective(
        problem, forest.space, region, box, claim.need, floor, np.int64(1), found
    )
    judge = new_judge(forest, claim, region, box, found)
    stack = new_stack(state, np.int64(1))
    best = np.zeros(problem.n_slots, dtype=np.int32)
    clock = np.empty(2, dtype=np.int64)
    best_value = -np.inf
    status = NOTHING_FOUND
    start = 0
    if not shrink_box(problem, state, objective):
        return NOTHING_THERE
    bound = enter_box(problem, state)
    # Few features in play have few neighbourhoods to search.
    n_starts = min(n_starts, 10 + 3 * problem.n_slots)
    while start < n_starts and problem.n_slots > 0:
        found.counts[NODES] += 1
        if found.counts[NODES] > budget.nodes or seconds_now(clock) > budget.deadline:
            return LIMITED
        bound = start_point(problem, state, objective, start, bound, best, stack, generator)
        if bound < floor:
            return NOTHING_THERE if status == NOTHING_FOUND else status
        start += 1
        # What was best before may lie outside by now. The box holds only what is nearer than the
        # witness, so that each new one is nearer and there are finitely many.
        clip_point(problem, state, objective.point)
        value = climb(problem, state, objective, np.int64(ROUNDS))
        if value < objective.need:
            if value > best_value:
                best_value = value
                copy_into(best, objective.point)
            continue
        if judge_point(judge, problem, objective) != BROKEN:
            continue
        status = FOUND
        if not region.is_ball or not descend_again(problem, state, objective, judge):
            return status
        best_value = -np.inf
        bound = enter_box(problem, state)
        start = 1
    return status


@noalloc_kernel
def descend_again(problem, state, objective, judge):
    """Move the witness closer as long as ascent inside the nearer box breaks the claim again.

    Ends with a point of that box which does not; False when no nearer box is left.
    """
    # Ends: each point that breaks the claim lies in a box of what is nearer than the last one.
    while True:
        if not shrink_box(problem, state, objective):
            return False
        clip_point(problem, state, objective.point)
        if not reaches_need(problem, state, objective, np.int64(ROUNDS)):
            return True
        if judge_point(judge, problem, objective) != BROKEN:
            return True


@inner_kernel
def attack_row(forest, alternatives, group, region, found, generator, limits):
    """Look for a near violation of a row, or any in a box; ``found`` is valid at any return.

    Trial radii grow until a witness is found; then every alternative is searched inside the
    nearest witness so far. Returns UNDECIDED, since attacks prove nothing, or the limit reached.
    """
    clock = np.empty(2, dtype=np.int64)
    budget = Budget(limits.most_starts, 0.0, seconds_now(clock) + limits.time_s)
    is_ball = region.is_ball
    box = new_box(forest.space, region)
    order, radius = order_alternatives(
        forest, alternatives, group, region, first_step(forest.space, region)
    )
    radius *= FIRST_MARGIN
    is_first = is_ball
    while True:
        is_anything = False
        is_everything = True
        for number in order:
            if is_ball:
                radius = min(radius, found.upper[0])
                ball_cells(forest.space, region, radius, box)
                is_everything = covers_everything(forest.space, region, box)
            count = FIRST_STARTS if is_first and not is_everything else limits.starts
            claim = claim_of(alternatives, group, number)
            status = attack_box(forest, claim, region, box, count, found, generator, budget)
            if status == LIMITED:
                return TIME_LIMIT if seconds_now(clock) > budget.deadline else NODE_LIMIT
            is_anything = is_anything or status != NOTHING_THERE
            if status == FOUND and (not is_ball or found.upper[0] == 0.0):
                return UNDECIDED
        if not is_first or (is_everything and found.upper[0] == np.inf):
            return UNDECIDED
        if found.upper[0] < np.inf:
            is_first = False
            continue
        radius *= SMALL_GROWTH if is_anything else GROWTH


@kernel
def attack_batch(forest, alternatives, batch, is_ball, seed, limits, columns):
    """Attack every row of a batch but those to skip.

    seed  uint64   random choices of every row; the same row is attacked the same in any batch
    """
    clock = np.empty(2, dtype=np.int64)
    generator = np.empty(1, dtype=np.uint64)
    for number in range(len(batch.rows)):
        if batch.skip[number]:
            continue
        started = seconds_now(clock)
        generator[0] = (np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
        region = new_region(forest.space, batch, number, is_ball)
        found = new_found(len(region.row))
        columns.status[number] = attack_row(
            forest, alternatives, batch.groups[number], region, found, generator, limits
        )
        write_columns(forest, region, found, columns, number)
        columns.seconds[number] = seconds_now(clock) - started
