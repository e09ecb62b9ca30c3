"""Proofs about pairs written down: boxes, and rounded multipliers that close them.

As proof.py, without trimmed boxes. With two needs, a box may change the weight of the first one;
and one in which every tree that counts has a single pair of leaves is left to the reader's sums.
"""

import math
from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import grown
from treeproof.kernels.core.cells import CellBox
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.status import (
    MEMORY_LIMIT,
    NODE_LIMIT,
    PROVED,
    TIME_LIMIT,
    UNDECIDED,
)
from treeproof.kernels.exact.branching import choose_branch
from treeproof.kernels.exact.dual import enter_box, marginals, new_state, refresh
from treeproof.kernels.exact.nodes import new_stack, pop, push_part, with_room
from treeproof.kernels.exact.optimum import (
    PARTS_OF_WEIGHT,
    VALUE,
    adapt_weight,
    choose_split,
    free_objective,
    is_worthless,
    new_best,
    relate,
    reweigh,
)
from treeproof.kernels.exact.pairs import pair_leaves
from treeproof.kernels.exact.problem import FEATURE, GROSS, HIGH, LOW
from treeproof.kernels.exact.proof import (
    EXACT,
    LAMBDA,
    NOTHING,
    SPLIT,
    WEIGHTS,
    close_box,
    new_recorder,
    new_tape,
    note_box,
    put,
    put_multipliers,
    with_bytes,
)
from treeproof.kernels.exact.property import (
    TOO_LARGE,
    build_pair,
    linked_slots,
    pair_slack,
    with_all_trees,
)
from treeproof.kernels.exact.search import Budget

SLACKS = 1.0
"""Boxes with two needs are closed with so much more room than rounding takes, in parts of it: what
the checker allows for rounding may be a little more."""


@noalloc_kernel
def cut_off(problem, state, gap):
    """Where to split cells off that cost more than the gap; slot -1 if there are none."""
    for slot in range(problem.n_slots):
        low, high = state.box[slot, LOW], state.box[slot, HIGH]
        while low < high and state.marginal[low] < -gap:
            low += 1
        while high > low and state.marginal[high] < -gap:
            high -= 1
        if low > state.box[slot, LOW]:
            return slot, np.int64(low - 1)
        if high < state.box[slot, HIGH]:
            return slot, np.int64(high)
    return np.int64(-1), np.int64(0)


class Related(NamedTuple):
    """Which cells of related columns go together, as `relate` wants to know it.

    copies  Copies
    link    int64 (n, 3)  see `PairJudge`
    """

    copies: NamedTuple
    link: np.ndarray


@noalloc_kernel
def cut_unrelated(problem, state, recorder, related):
    """Where to split cells off that go with no cell of their copy; slot -1 if there are none.

    What is split off has no step of the staircase left, which closes it, and so has a box in which
    no cells go together at all. Sweeps would give a segment without a step a multiplier beyond all
    numbers of a proof.
    """
    box, before = state.box, recorder.before
    for slot in range(problem.n_slots):
        before[slot, LOW], before[slot, HIGH] = box[slot, LOW], box[slot, HIGH]
    has_pairs = relate(related.copies, related.link, problem, state)
    found, cell = np.int64(-1), np.int64(0)
    for slot in range(problem.n_slots):
        if has_pairs and box[slot, LOW] > before[slot, LOW]:
            found, cell = np.int64(slot), np.int64(box[slot, LOW] - 1)
        elif has_pairs and box[slot, HIGH] < before[slot, HIGH]:
            found, cell = np.int64(slot), np.int64(box[slot, HIGH])
        box[slot, LOW], box[slot, HIGH] = before[slot, LOW], before[slot, HIGH]
    return found, cell


@noalloc_kernel
def split_in_record(problem, state, recorder, gap, best):
    """Where to split a box; slot -1 when all its points reach the same leaves.

    A search goes on with the cells whose marginals are within the gap alone, which a proof does not
    tell of: where these need no split, the others are split off.
    """
    for place in range(problem.n_slots):
        recorder.before[place, LOW] = state.box[place, LOW]
    slot, cell, _, _ = choose_split(problem, state, gap, best.learned)
    if slot < 0:
        for place in range(problem.n_slots):
            state.box[place, LOW] = recorder.before[place, LOW]
        slot, cell = choose_branch(problem, state, np.inf)
    return slot, cell


@inner_kernel
def put_mixture(tape, weight):
    """Append the weights of both needs, whole numbers without a common divisor."""
    one = np.int64(np.rint(weight * PARTS_OF_WEIGHT))
    parts = parts_of_weight(weight)
    put(tape, WEIGHTS, 1)
    put(tape, one * parts // PARTS_OF_WEIGHT, 1)
    put(tape, parts - one * parts // PARTS_OF_WEIGHT, 1)


@noalloc_kernel
def parts_of_weight(weight):
    """What the recorded weights of both needs add up to, a power of 2."""
    parts, one = np.int64(PARTS_OF_WEIGHT), np.int64(np.rint(weight * PARTS_OF_WEIGHT))
    # Ends: 0 and all parts are divided until one is left.
    while parts > 1 and one % 2 == 0:
        parts //= 2
        one //= 2
    return parts


@inner_kernel
def record_boxes(problem, parts, state, recorder, tape, floor, budget, ground):
    """Prove that a problem stays below the floor, and write the proof down.

    ground  PairLeaves, CellBox and Related of the problem; whether boxes in which no pair of leaves
            gains anything are closed by that; whether those with one pair of leaves in every tree
            may be left to the reader

    Returns PROVED, UNDECIDED where a box of the last kind may not, or the limit that was reached;
    and the tape: boxes in preorder, left ones first.
    """
    clock = np.empty(2, dtype=np.int64)
    objective = free_objective(problem)
    stack = new_stack(state, np.int64(8))
    inherited = np.empty(64, dtype=np.float64)
    is_mixed = len(parts.base) > 0
    best = new_best(np.int64(0))
    weight = 0.5
    said = 0.5  # the weight that the reader of the tape knows
    leaves, box, related, is_exact_at_zero, has_points = ground
    if is_mixed:
        problem = reweigh(problem, parts, weight)
    n_nodes = 0
    while True:
        n_nodes += 1
        if n_nodes > budget.nodes:
            return NODE_LIMIT, tape
        if n_nodes > 1 and seconds_now(clock) > budget.deadline:
            return TIME_LIMIT, tape
        enter_box(problem, state)
        refresh(problem, state)
        is_closed = is_exact_at_zero and is_worthless(problem, state, leaves, box)
        slot, cell = np.int64(-1), np.int64(0)
        if not is_closed:
            slot, cell = cut_unrelated(problem, state, recorder, related)
        is_settled = is_closed or slot >= 0
        n_bytes = 0 if is_settled else close_box(problem, state, objective, recorder, floor)
        bound, error = refresh(problem, state)
        if n_bytes == 0 and not is_settled:
            marginals(problem, state)
            if is_mixed:
                problem, weight, _, _ = adapt_weight(
                    problem, parts, state, objective, best, bound + 2.0 * error, weight
                )
                enter_box(problem, state)
                refresh(problem, state)
                n_bytes = close_box(problem, state, objective, recorder, floor)
                bound, error = refresh(problem, state)
                marginals(problem, state)
        gap = bound + 2.0 * error - floor
        if n_bytes == 0 and not is_settled:
            if is_exact_at_zero:
                # What is left without them may be closed by what its trees are.
                slot, cell = cut_off(problem, state, gap)
            if slot < 0:
                slot, cell = split_in_record(problem, state, recorder, gap, best)
            if slot < 0 and not has_points:
                return UNDECIDED, tape
        tape = with_bytes(tape, 16)
        if weight != said:
            put_mixture(tape, weight)
            said = weight
        if slot < 0:
            if is_closed:
                put(tape, NOTHING, 1)
            elif n_bytes > 0:
                put(tape, LAMBDA, 1)
                if is_mixed:
                    # The reader adds up the needs with whole weights.
                    recorder.scale[0] = round(math.log2(parts_of_weight(weight)))
                note_box(problem, state, recorder)
                tape = put_multipliers(problem, state, recorder, tape, n_bytes)
            else:
                put(tape, EXACT, 1)
            if stack.size[0] == 0:
                return PROVED, tape
            pop(stack, state)
            said = inherited[stack.size[0]]
            if weight != said:
                weight = said
                problem = reweigh(problem, parts, weight)
            continue
        stack, has_room = with_room(stack, budget.memory_bytes)
        if not has_room:
            return MEMORY_LIMIT, tape
        if stack.size[0] >= len(inherited):
            inherited = grown(inherited, stack.size[0] + 1)
        put(tape, SPLIT, 1)
        put(tape, problem.slots[slot, FEATURE], 4)
        put(tape, problem.cells[cell, HIGH], 4)
        inherited[stack.size[0]] = weight
        push_part(stack, state, slot, cell, True)


@kernel
def record_pair(forest, aim, low, high, bound, limits, unit_exponent):
    """Record the proof of a statement about one box.

    bound          float64  of values: what they stay below
    limits         PairLimits
    unit_exponent  int      multipliers are multiples of 2**unit_exponent

    Returns a status, the bytes, and whether these are about trees of all outputs.
    """
    clock = np.empty(2, dtype=np.int64)
    budget = Budget(limits.nodes, limits.memory_bytes, seconds_now(clock) + limits.time_s)
    box = CellBox(low, high)
    slack = pair_slack(forest, aim, box)
    # Of values that exceed 0, boxes in which nothing is gained say nothing.
    is_exact_at_zero = (
        aim.mode == VALUE and forest.copies.is_difference and forest.is_alike and bound <= 0.0
    )
    # Ends: the trees of all outputs are added once.
    while True:
        has_all_trees = forest.has_all_trees
        leaves, fits = pair_leaves(
            forest.first, forest.copies, box, aim.first, aim.second, limits.leaves, has_all_trees
        )
        tape = new_tape(4096)
        if not fits:
            return TOO_LARGE, tape.data[:0].copy(), has_all_trees
        problem, parts = build_pair(forest, aim, box, leaves, slack)
        gross = problem.terms[GROSS]
        if aim.mode != VALUE:
            gross = parts.gross[0] + parts.gross[1]
        # What the checker rounds up, and what is computed in doubles here, leaves its verdict as it
        # is.
        n_trees = len(forest.first.trees.tree_output)
        room = 4.0 * (n_trees + 8) * 2.0**unit_exponent + 2.0**-40 * gross
        room += (1e-6 if aim.mode == VALUE else SLACKS) * (slack[0] + slack[1])
        floor = bound - room if aim.mode == VALUE else -room
        recorder = new_recorder(problem, np.int64(len(low)), unit_exponent)
        related = Related(forest.copies, linked_slots(problem, forest.copies))
        has_points = aim.mode != VALUE and has_all_trees
        ground = (leaves, box, related, is_exact_at_zero, has_points)
        status, tape = record_boxes(
            problem, parts, new_state(problem), recorder, tape, floor, budget, ground
        )
        if status != UNDECIDED or has_all_trees or aim.mode == VALUE:
            return status, tape.data[: tape.used[0]].copy(), has_all_trees
        forest = with_all_trees(forest)
