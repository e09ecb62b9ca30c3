"""Proofs with prices written down: as `treeproof.kernels.exact.proof`, with α and boxes too dear.

What a checker computes exactly is computed in doubles here: limits are a little larger than what is
claimed, and floors a little lower, so that the checker never drops less than was dropped here.
"""

import math

import numpy as np

from treeproof.kernels.core.arithmetic import ldexp
from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.emulation import BROKEN
from treeproof.kernels.core.leaves import best_sum, restrict_to, summation_slack
from treeproof.kernels.core.status import (
    MEMORY_LIMIT,
    NEAR_TIE,
    NODE_LIMIT,
    PROVED,
    TIME_LIMIT,
)
from treeproof.kernels.exact.branching import choose_branch, choose_jump
from treeproof.kernels.exact.cost_weight import improve_cost_weight, set_cost_weight, weigh_box
from treeproof.kernels.exact.dual import enter_box, new_state, refresh, sweep
from treeproof.kernels.exact.nodes import new_stack, pop, push_part, with_room
from treeproof.kernels.exact.objective import (
    LIMIT,
    Measure,
    cheapest_point,
    cost_of_slots,
    set_limit,
)
from treeproof.kernels.exact.priced_leaves import (
    PriceList,
    keep_affordable,
    leaf_costs,
)
from treeproof.kernels.exact.priced_rows import (
    first_weight,
    lower_dear_leaves,
    priced_judge,
    priced_objective,
)
from treeproof.kernels.exact.primal import new_found
from treeproof.kernels.exact.problem import FEATURE, HIGH, build_problem
from treeproof.kernels.exact.proof import (
    EXACT,
    LAMBDA,
    MOST_SWEEPS,
    PATIENCE,
    PLAIN,
    ROOM,
    SPLIT,
    closes_rounded,
    new_recorder,
    new_tape,
    note_box,
    put,
    put_multipliers,
    put_trims,
    restore_box,
    rounding_room,
    trim,
    with_bytes,
)
from treeproof.kernels.exact.row import claim_of
from treeproof.kernels.exact.search import Budget, judge_point

PRICE, DEAR = 65, 68
"""The letters A, for α, and D, for boxes too dear."""
PRICE_BITS, PRICED_SWEEPS = 16, 8
"""Digits of a recorded α, and the sweeps after which it is settled."""
MARGIN = 2.0**-43
"""By what part a limit is larger here than what is claimed."""


@noalloc_kernel
def settle_price(problem, state, objective):
    """Make α a number of few digits; returns the bound."""
    mantissa, exponent = math.frexp(state.weight[0])
    digits = np.rint(ldexp(mantissa, PRICE_BITS))
    set_cost_weight(problem, state, objective, ldexp(digits, exponent - PRICE_BITS))
    bound, _ = refresh(problem, state)
    return bound


@inner_kernel
def put_price(state, recorder, tape):
    """Append α where it is not the one that was named last on the way to the box."""
    price = state.weight[0]
    if price == recorder.weight[0]:
        return tape
    tape = with_bytes(tape, 7)
    mantissa, exponent = math.frexp(price)
    put(tape, PRICE, 1)
    put(tape, np.int64(np.rint(ldexp(mantissa, PRICE_BITS))), 4)
    put(tape, exponent - PRICE_BITS, 2)
    recorder.weight[0] = price
    return tape


@noalloc_kernel
def close_priced(problem, state, objective, recorder):
    """Sweep until rounded multipliers close the box; returns their bytes, or 0 if they do not.

    A box that is too dear gives -1.
    """
    floor, is_settled = objective.floor, objective.measure.is_max
    if not weigh_box(problem, state, objective):
        return -1
    enter_box(problem, state)
    bound, _ = refresh(problem, state)
    turn = 0
    # Ends: sweeps are counted.
    while True:
        if not is_settled and (bound < floor or turn == PRICED_SWEEPS):
            bound = settle_price(problem, state, objective)
            is_settled = True
        if bound < floor:
            bound, error = refresh(problem, state)
            if bound + error < floor:
                n_bytes = closes_rounded(problem, state, recorder, floor, floor - bound - error)
                if n_bytes > 0:
                    return n_bytes
        if turn == MOST_SWEEPS:
            return 0
        before = bound
        bound = sweep(problem, state, turn % 2 == 0, bound, floor)
        turn += 1
        if not is_settled:
            if bound >= floor and turn & (turn - 1) == 0:
                bound += improve_cost_weight(problem, state, objective)
        elif bound >= floor and turn >= 2 and bound - floor > PATIENCE * (before - bound):
            return 0


@inner_kernel
def record_priced_problem(problem, state, objective, judge_of, recorder, tape, budget):
    """Prove that nothing within the limit reaches the floor, and write the proof down.

    Returns PROVED, or the limit that was reached, and the tape with the nodes of the proof in
    preorder, left parts first.
    """
    clock = np.empty(2, dtype=np.int64)
    stack = new_stack(state, np.int64(8))
    n_nodes = 0
    while True:
        n_nodes += 1
        if n_nodes > budget.nodes:
            return NODE_LIMIT, tape
        if n_nodes > 1 and seconds_now(clock) > budget.deadline:
            return TIME_LIMIT, tape
        if n_nodes > 1:
            copy_into(recorder.weight, state.weight)
        note_box(problem, state, recorder)
        is_open = False
        slot = np.int64(-1)
        cell = np.int64(0)
        n_bytes = close_priced(problem, state, objective, recorder)
        if n_bytes < 0:
            tape = with_bytes(tape, 1)
            put(tape, DEAR, 1)
        else:
            tape = put_price(state, recorder, tape)
            if n_bytes > 0:
                tape = with_bytes(tape, 1)
                put(tape, LAMBDA, 1)
                tape = put_multipliers(problem, state, recorder, tape, n_bytes)
            else:
                n_trimmed, is_open, gap = trim(problem, state, recorder, objective.floor)
                if n_trimmed > 0:
                    tape = put_trims(problem, state, recorder, tape, n_trimmed)
        if is_open:
            if not objective.measure.is_max:
                limit = objective.live[LIMIT]
                slot, cell = choose_jump(problem, state, objective.cost, limit, gap)
            if slot < 0:
                slot, cell = choose_branch(problem, state, gap)
            tape = with_bytes(tape, 9)
            if slot < 0:
                cheapest_point(problem, state, objective)
                cost, _ = cost_of_slots(problem, objective)
                is_dear = cost > objective.live[LIMIT]
                if not is_dear and judge_point(judge_of, problem, objective) == BROKEN:
                    return NEAR_TIE, tape  # within the margin of the limit, there is a violation
                put(tape, DEAR if is_dear else EXACT, 1)
                is_open = False
            else:
                put(tape, SPLIT, 1)
                put(tape, problem.slots[slot, FEATURE], 4)
                put(tape, problem.cells[cell, HIGH], 4)
                restore_box(problem, state, recorder)
        if is_open:
            stack, has_room = with_room(stack, budget.memory_bytes)
            if not has_room:
                return MEMORY_LIMIT, tape
            push_part(stack, state, slot, cell, True)
        elif stack.size[0] == 0:
            return PROVED, tape
        else:
            pop(stack, state)


@inner_kernel
def put_kept(atoms, kept, tape):
    """Append which atoms are kept: a bit for each, those of every axis in whole bytes."""
    for axis in range(len(kept.bottom)):
        first = atoms.atom_start[axis]
        last = atoms.atom_start[axis + 1]
        tape = with_bytes(tape, (last - first + 7) // 8)
        for start in range(first, last, 8):
            bits = 0
            for atom in range(start, min(start + 8, last)):
                if kept.rank[atom + 1] > kept.rank[atom]:
                    bits |= 1 << (atom - start)
            put(tape, bits, 1)
    return tape


@inner_kernel
def record_priced_way(forest, claim, atoms, prices, tape, limits, deadline):
    """Record the proof that an alternative does not happen within the prices' limit."""
    kept = keep_affordable(atoms, prices, prices.measure.within)
    if np.isinf(kept.total):  # nothing at all is within the limit
        tape = with_bytes(tape, 1)
        put(tape, DEAR, 1)
        return PROVED, tape
    start = forest.semantics.start
    leaves = restrict_to(forest, prices.row, kept, claim.coefficient, np.inf)
    base = 0.0
    for output in range(len(start)):
        base += claim.coefficient[output] * start[output]
    slack = summation_slack(
        forest.trees, claim.coefficient, start, claim.unit, leaves.leaf_start, leaves.leaf_row
    )
    if not prices.measure.is_max:
        lower_dear_leaves(
            leaves, leaf_costs(leaves, kept, prices.measure.is_max), prices.measure.within
        )
    total, gross = best_sum(leaves)
    room = ROOM * (slack + 2.0**-22 * (gross + abs(base)))
    room += rounding_room(forest, claim.coefficient, limits.least_exponent)
    floor = claim.need - slack - claim.link_slack - room
    if base + total < floor:
        tape = with_bytes(tape, 1)
        put(tape, PLAIN, 1)
        return PROVED, tape
    problem = build_problem(base, leaves, kept.box)
    found = new_found(len(kept.bottom))
    objective = priced_objective(problem, claim, prices, kept, floor, found)
    if not prices.measure.is_max:
        set_limit(problem, objective, prices.measure.within, np.inf)
    recorder = new_recorder(problem, len(kept.bottom), limits.least_exponent)
    state = new_state(problem)
    recorder.weight[0] = 0.0
    if prices.measure.is_max:
        recorder.weight[0] = state.weight[0]
    else:
        price = first_weight(problem, state, objective)
        state.weight[0] = 0.0
        set_cost_weight(problem, state, objective, price)
    budget = Budget(limits.nodes, limits.memory_bytes, deadline)
    judge_of = priced_judge(forest, claim, prices, kept, found)
    return record_priced_problem(problem, state, objective, judge_of, recorder, tape, budget)


@kernel
def record_priced(forest, alternatives, batch, limits, status, seconds):
    """Record proofs for every row of a `PricedBatch` but those to skip.

    status     int64   (n_rows,)             out: PROVED or the limit that was reached
    seconds    float64 (n_rows,)             out

    Returns
    -------
    data  uint8  all records, one after another: kept atoms, then each alternative
    ends  int64 (n_rows,)  where each row's record ends
    """
    clock = np.empty(2, dtype=np.int64)
    ends = np.zeros(len(batch.rows), dtype=np.int64)
    tape = new_tape(4096)
    for number in range(len(batch.rows)):
        if not batch.skip[number]:
            began = seconds_now(clock)
            limit = batch.limit[number]
            if not batch.is_max:
                limit *= 1.0 + MARGIN
            measure = Measure(
                batch.is_max, batch.is_max, limit, batch.is_limit_exact, batch.grid[number],
                np.full(1, True),
            )  # fmt: skip
            prices = PriceList(
                batch.rows[number], batch.cost[number], batch.is_open[number],
                batch.is_exact[number], batch.value[number], measure, batch.other[number],
                batch.other_limit,
            )  # fmt: skip
            tape = put_kept(batch.atoms, keep_affordable(batch.atoms, prices, limit), tape)
            group = batch.groups[number]
            for way in range(alternatives.group_start[group], alternatives.group_start[group + 1]):
                claim = claim_of(alternatives, group, way)
                status[number], tape = record_priced_way(
                    forest, claim, batch.atoms, prices, tape, limits, began + limits.time_s
                )  # fmt: skip
                if status[number] != PROVED:
                    break
            seconds[number] += seconds_now(clock) - began
        ends[number] = tape.used[0]
    return tape.data[: tape.used[0]].copy(), ends
