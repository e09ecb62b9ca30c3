"""Proofs about pairs written down: boxes, and rounded multipliers that close them.

As proof.py, without trimmed boxes; with two needs, a box may change the weight of the first one.
"""

import numpy as np

from treeproof.kernels.core.cells import CellBox
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.status import MEMORY_LIMIT, NODE_LIMIT, PROVED, TIME_LIMIT
from treeproof.kernels.exact.dual import enter_box, marginals, new_state, refresh
from treeproof.kernels.exact.optimum import (
    PARTS_OF_WEIGHT,
    VALUE,
    adapt_weight,
    choose_split,
    is_worthless,
    new_best,
    new_target,
    reweigh,
)
from treeproof.kernels.exact.pairs import pair_leaves
from treeproof.kernels.exact.problem import FEATURE, GROSS, HIGH, LOW
from treeproof.kernels.exact.proof import (
    LAMBDA,
    SPLIT,
    close_box,
    new_recorder,
    new_tape,
    put,
    put_multipliers,
    with_bytes,
)
from treeproof.kernels.exact.property import TOO_LARGE, build_pair, pair_slack
from treeproof.kernels.exact.search import Budget, new_stack, pop, push_part, with_room

NOTHING, WEIGHT = 78, 87
"""The letters N, of a box in which no pair of leaves gains anything, and W."""


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
            return slot, low - 1
        if high < state.box[slot, HIGH]:
            return slot, high
    return np.int64(-1), np.int32(0)


@inner_kernel
def record_boxes(problem, parts, state, recorder, tape, floor, budget, ground):
    """Prove that a problem stays below the floor, and write the proof down.

    ground  PairLeaves and CellBox of the problem, and whether boxes in which no pair of leaves
            gains anything are closed by that

    Returns PROVED, or the limit that was reached, and the tape: boxes in preorder, left ones first.
    """
    clock = np.empty(2, dtype=np.int64)
    target = new_target(problem)
    stack = new_stack(state, np.int64(8))
    inherited = np.empty(64, dtype=np.float64)
    is_mixed = len(parts.base) > 0
    best = new_best(np.int64(0))
    weight = 0.5
    said = 0.5  # the weight that the reader of the tape knows
    leaves, box, is_exact_at_zero = ground
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
        n_bytes = 0 if is_closed else close_box(problem, state, recorder, floor)
        bound, error = refresh(problem, state)
        if n_bytes == 0 and not is_closed:
            marginals(problem, state)
            if is_mixed:
                problem, weight, _, _ = adapt_weight(
                    problem, parts, state, target, best, bound + 2.0 * error, weight
                )
                enter_box(problem, state)
                refresh(problem, state)
                n_bytes = close_box(problem, state, recorder, floor)
                bound, error = refresh(problem, state)
                marginals(problem, state)
        tape = with_bytes(tape, 16)
        if weight != said:
            put(tape, WEIGHT, 1)
            put(tape, np.int64(np.rint(weight * PARTS_OF_WEIGHT)), 2)
            said = weight
        if is_closed:
            put(tape, NOTHING, 1)
        elif n_bytes > 0:
            put(tape, LAMBDA, 1)
            tape = put_multipliers(problem, state, recorder, tape, n_bytes)
        if is_closed or n_bytes > 0:
            if stack.size[0] == 0:
                return PROVED, tape
            pop(stack, state)
            said = inherited[stack.size[0]]
            if weight != said:
                weight = said
                problem = reweigh(problem, parts, weight)
            continue
        gap = bound + 2.0 * error - floor
        slot, cell = np.int64(-1), np.int32(0)
        if is_exact_at_zero:
            # What is left without them may be closed by what its trees are.
            slot, cell = cut_off(problem, state, gap)
        if slot < 0:
            slot, cell, _, _ = choose_split(problem, state, gap, best.learned)
        stack, has_room = with_room(stack, budget.memory_bytes)
        if slot < 0 or not has_room or stack.size[0] >= len(inherited):
            # What only exact sums could close is not recorded.
            return MEMORY_LIMIT, tape
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

    Returns a status, and the bytes.
    """
    clock = np.empty(2, dtype=np.int64)
    budget = Budget(limits.nodes, limits.memory_bytes, seconds_now(clock) + limits.time_s)
    box = CellBox(low, high)
    slack = pair_slack(forest, aim, box)
    leaves, fits = pair_leaves(
        forest.tests, forest.copies, box, aim.first, aim.second, limits.leaves
    )
    tape = new_tape(4096)
    if not fits:
        return TOO_LARGE, tape.data[:0].copy()
    problem, parts = build_pair(forest, aim, box, leaves, slack)
    gross = problem.terms[GROSS]
    if aim.mode != VALUE:
        gross = parts.gross[0] + parts.gross[1]
    # What the checker rounds up, and what is computed in doubles here, leaves its verdict as it is.
    room = 4.0 * (len(forest.tests.trees.tree_output) + 8) * 2.0**unit_exponent + 2.0**-40 * gross
    room += 1e-6 * (slack[0] + slack[1])
    floor = bound - room if aim.mode == VALUE else -room
    recorder = new_recorder(problem, np.int64(len(low)), unit_exponent)
    # Of values that exceed 0 such boxes say nothing.
    is_exact_at_zero = (
        aim.mode == VALUE and forest.copies.is_difference and forest.is_alike and bound <= 0.0
    )
    status, tape = record_boxes(
        problem, parts, new_state(problem), recorder, tape, floor, budget,
        (leaves, box, is_exact_at_zero),
    )  # fmt: skip
    return status, tape.data[: tape.used[0]].copy()
