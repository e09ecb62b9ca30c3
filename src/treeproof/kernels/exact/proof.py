"""Proofs written down: the branching of a box, and rounded multipliers wherever they close it.

The record is what docs/reference/evidence.md describes. Any multipliers give a bound, so they are
rounded first, and what is recorded has been seen to close its box with the rounded ones.
"""

import math
from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arithmetic import ldexp
from treeproof.kernels.core.arrays import copy_into, sorted_order
from treeproof.kernels.core.cells import CellBox, new_box, new_region
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.emulation import AMBIGUOUS, BROKEN, judge
from treeproof.kernels.core.leaves import best_sum, restrict, summation_slack
from treeproof.kernels.core.status import (
    MEMORY_LIMIT,
    NEAR_TIE,
    NODE_LIMIT,
    PROVED,
    TIME_LIMIT,
    UNDECIDED,
)
from treeproof.kernels.exact.branching import eliminate
from treeproof.kernels.exact.conditions import (
    apply_weights,
    weigh,
    with_conditions,
)
from treeproof.kernels.exact.cost_weight import improve_terms, set_cost_weight, weigh_box
from treeproof.kernels.exact.dual import enter_box, marginals, new_state, refresh, sweep
from treeproof.kernels.exact.judging import (
    MOST_PARTS,
    enter_left,
    enter_next,
    find_cut,
    new_division,
)
from treeproof.kernels.exact.nodes import new_stack, pop, push_part, with_room
from treeproof.kernels.exact.objective import LIMIT, cheapest_point, cost_of_slots, free_objective
from treeproof.kernels.exact.pair_judge import PairJudge, is_worthless, relate, split_relation
from treeproof.kernels.exact.primal import new_found
from treeproof.kernels.exact.problem import (
    BASE,
    FACTOR,
    FEATURE,
    HIGH,
    LOW,
    SEGMENT_START,
    SLOT,
    TREE,
    build_problem,
)
from treeproof.kernels.exact.row import claim_of
from treeproof.kernels.exact.search import Budget, choose_cut, judge_point, new_judge

PLAIN, LAMBDA, SPLIT, TRIM, EXACT, WEIGHTS = 80, 76, 83, 84, 69, 87
COST_WEIGHT, DEAR, NOTHING = 65, 68, 78
"""The letters P, L, S, T, E, W, A for the weight of a cost, D where it is too large, and N where no
leaves gain anything."""

LARGEST_WEIGHT = 15.0
"""Weights of conditions are recorded as whole numbers up to this one."""
WEIGHED_SWEEPS, COST_SWEEPS = 4, 8
"""Sweeps after which weights of conditions are settled, and that of a cost."""
COST_WEIGHT_BITS = 16
"""Digits of a recorded weight of a cost."""

ROOM = 1e-6
"""What the checker computes exactly is computed in doubles here: a little room on top of every
slack keeps its verdict the same. What only this room keeps open ends in exact sums."""
MOST_SWEEPS = 60
PATIENCE = 6.0
"""Sweeping ends when that many more sweeps like the last one would not close the box."""


class Tape(NamedTuple):
    """Bytes of a record; ``used`` is overwritten in place."""

    data: np.ndarray  # (capacity,) uint8
    used: np.ndarray  # (1,) int64


class Recorder(NamedTuple):
    """What recording a problem needs beside its state."""

    order: np.ndarray  # (n_pairs,) int64; pairs by tree, then feature
    # Condition whose weight the factor's gains have; -1 for all
    condition: np.ndarray  # (n_factors,) int64
    weight: np.ndarray  # (n_conditions,) float64; named last on the way to the box
    kept: np.ndarray  # (n_segments,) float64; multipliers before rounding
    before: np.ndarray  # (n_slots, 2) int32; box before trimming
    box: np.ndarray  # (n_slots, 2) int32; as the reader knows it, see `note_box`
    exponent: np.ndarray  # (1,) int64; multipliers are multiples of 2**exponent
    least: int  # smallest exponent that may be used


@inner_kernel
def new_tape(size):
    """Empty tape."""
    return Tape(np.empty(size, dtype=np.uint8), np.zeros(1, dtype=np.int64))


@inner_kernel
def with_bytes(tape, size):
    """The tape, in a larger array where `size` more bytes would not fit."""
    needed = tape.used[0] + size
    if needed <= len(tape.data):
        return tape
    larger = np.empty(max(needed, 2 * len(tape.data)), dtype=np.uint8)
    copy_into(larger, tape.data[: tape.used[0]])
    return Tape(larger, tape.used)


@noalloc_kernel
def put(tape, value, n_bytes):
    """Append an integer, little-endian, in two's complement."""
    position = tape.used[0]
    for _ in range(n_bytes):
        tape.data[position] = value & 255
        value >>= 8
        position += 1
    tape.used[0] = position


@inner_kernel
def new_recorder(problem, n_features, least):
    """Scratch for a problem; pairs are listed by tree and feature."""
    key = np.empty(problem.n_pairs, dtype=np.int64)
    for pair in range(problem.n_pairs):
        tree = problem.factors[problem.pairs[pair, FACTOR], TREE]
        feature = problem.slots[problem.pairs[pair, SLOT], FEATURE]
        key[pair] = np.int64(tree) * n_features + feature
    return Recorder(
        sorted_order(key, True),
        np.full(problem.n_factors, -1, dtype=np.int64),
        np.ones(len(problem.conditions.weight), dtype=np.float64),
        np.zeros(len(problem.segments), dtype=np.float64),
        np.zeros((problem.n_slots, 2), dtype=np.int32),
        np.zeros((problem.n_slots, 2), dtype=np.int32),
        np.zeros(1, dtype=np.int64),
        least,
    )


@noalloc_kernel
def note_conditions(recorder, problem, trees, conditions):
    """Note whose weight the gains of each factor have: a class that must lose is in one condition.

    The class that must win is in all of them, and so are trees that add to several classes.
    """
    for factor in range(problem.n_factors):
        output = trees.tree_output[problem.factors[factor, TREE]]
        for number in range(len(conditions.need)):
            if output >= 0 and conditions.coefficient[number, output] < 0.0:
                recorder.condition[factor] = number


@noalloc_kernel
def round_multipliers(problem, state, recorder, n_bytes):
    """Replace the multipliers by multiples of a power of two that fit into so many bytes.

    The first segment of a pair that meets the box becomes 0, which no bound notices: what all
    segments of a pair have in common only moves between the factor and the slot. Segments outside
    the box do not matter and become 0, too.
    """
    multiplier = state.multiplier
    largest = 0.0
    for pair in range(problem.n_pairs):
        start = problem.pairs[pair, SEGMENT_START]
        stop = problem.pairs[pair + 1, SEGMENT_START]
        first = start + state.span[pair, LOW]
        last = start + state.span[pair, HIGH]
        shift = multiplier[first]
        for segment in range(start, stop):
            if segment <= first or segment > last:
                multiplier[segment] = 0.0
            else:
                multiplier[segment] -= shift
                largest = max(largest, abs(multiplier[segment]))
    exponent = 0
    if largest > 0.0:
        # Sound: the quotient is below 2**exponent, so no multiple exceeds its bytes.
        _, exponent = math.frexp(largest / (2.0 ** (8 * n_bytes - 1) - 1.0))
    exponent = max(exponent, recorder.least)
    recorder.exponent[0] = exponent
    for segment in range(len(multiplier)):
        steps = np.rint(ldexp(multiplier[segment], -exponent))
        multiplier[segment] = ldexp(steps, exponent)


@inner_kernel
def put_multipliers(problem, state, recorder, tape, n_bytes):
    """Append the rounded multipliers of the segments that meet the recorded box.

    Those of a pair's first one in it are left out: `round_multipliers` has made them 0.
    """
    exponent = recorder.exponent[0]
    tape = with_bytes(tape, 3 + n_bytes * len(state.multiplier))
    put(tape, exponent, 2)
    put(tape, n_bytes, 1)
    for index in range(problem.n_pairs):
        pair = recorder.order[index]
        condition = recorder.condition[problem.pairs[pair, FACTOR]]
        if condition >= 0 and state.weight[condition] == 0.0:
            continue
        slot = problem.pairs[pair, SLOT]
        low, high = recorder.box[slot, LOW], recorder.box[slot, HIGH]
        start = problem.pairs[pair, SEGMENT_START]
        for segment in range(start, problem.pairs[pair + 1, SEGMENT_START]):
            if low < problem.segments[segment, LOW] <= high:
                put(tape, np.int64(ldexp(state.multiplier[segment], -exponent)), n_bytes)
    return tape


@noalloc_kernel
def note_box(problem, state, recorder):
    """Note the box of a node as its reader knows it: what costs too much is still in it."""
    for slot in range(problem.n_slots):
        recorder.box[slot, LOW] = state.box[slot, LOW]
        recorder.box[slot, HIGH] = state.box[slot, HIGH]


@noalloc_kernel
def restore_box(problem, state, recorder):
    """Make the state's box the one that the reader knows."""
    for slot in range(problem.n_slots):
        state.box[slot, LOW] = recorder.box[slot, LOW]
        state.box[slot, HIGH] = recorder.box[slot, HIGH]


@noalloc_kernel
def closes_rounded(problem, state, recorder, floor, margin):
    """Round as coarsely as the margin allows; returns the bytes per multiplier, or 0.

    On success the state holds the rounded multipliers; otherwise those it had.
    """
    for index in range(len(state.multiplier)):
        recorder.kept[index] = state.multiplier[index]
    for n_bytes in (1, 2, 4):
        round_multipliers(problem, state, recorder, n_bytes)
        step = ldexp(1.0, recorder.exponent[0])
        # Rounding errors mostly cancel: a quarter of a step per pair is a fair guess of their sum.
        if n_bytes == 4 or 0.25 * step * problem.n_pairs < margin:
            bound, error = refresh(problem, state)
            if bound + error < floor:
                return n_bytes
        for index in range(len(state.multiplier)):
            state.multiplier[index] = recorder.kept[index]
    refresh(problem, state)
    return 0


@noalloc_kernel
def settle_weights(problem, state, objective):
    """Make weights numbers of few digits, and multipliers as much larger; returns the bound."""
    if not objective.measure.is_max:
        mantissa, exponent = math.frexp(state.weight[0])
        digits = np.rint(ldexp(mantissa, COST_WEIGHT_BITS))
        set_cost_weight(problem, state, objective, ldexp(digits, exponent - COST_WEIGHT_BITS))
        bound, _ = refresh(problem, state)
        return bound
    largest = 0.0
    for number in range(len(state.weight)):
        largest = max(largest, state.weight[number])
    factor = LARGEST_WEIGHT / largest
    for number in range(len(state.weight)):
        state.weight[number] = np.rint(factor * state.weight[number])
    for segment in range(len(state.multiplier)):
        state.multiplier[segment] *= factor
    bound, _ = apply_weights(problem, state)
    return bound


@inner_kernel
def put_weights(state, objective, recorder, tape):
    """Append the weights of conditions, or of the cost, if the reader knows others."""
    is_same = True
    for number in range(len(state.weight)):
        is_same = is_same and state.weight[number] == recorder.weight[number]
    if is_same:
        return tape
    tape = with_bytes(tape, 7 + len(state.weight))
    if objective.measure.is_max:
        put(tape, WEIGHTS, 1)
        for number in range(len(state.weight)):
            put(tape, np.int64(state.weight[number]), 1)
    else:
        mantissa, exponent = math.frexp(state.weight[0])
        put(tape, COST_WEIGHT, 1)
        put(tape, np.int64(np.rint(ldexp(mantissa, COST_WEIGHT_BITS))), 4)
        put(tape, exponent - COST_WEIGHT_BITS, 2)
    copy_into(recorder.weight, state.weight)
    return tape


@noalloc_kernel
def close_box(problem, state, objective, recorder, floor):
    """Sweep until rounded multipliers close the box.

    Weights, of several conditions or of a cost that is a sum, are improved in the first sweeps, and
    have few digits in the end.

    Returns the bytes of multipliers, 0 if they do not close it, and -1 if it costs too much.
    """
    is_sum = not objective.measure.is_max
    is_settled = len(state.weight) == 1 and not is_sum
    if not weigh_box(problem, state, objective):
        return -1
    bound = enter_box(problem, state)
    if is_sum:
        bound, _ = refresh(problem, state)
    settled_at = COST_SWEEPS if is_sum else WEIGHED_SWEEPS
    turn = 0
    # Ends: sweeps are counted.
    while True:
        if not is_settled and (bound < floor or turn == settled_at):
            bound = settle_weights(problem, state, objective)
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
            if bound >= floor and (not is_sum or turn & (turn - 1) == 0):
                bound = improve_terms(problem, state, objective, bound)
        elif bound >= floor and turn >= 2 and bound - floor > PATIENCE * (before - bound):
            return 0


@noalloc_kernel
def trim(problem, state, recorder, floor):
    """Drop end cells by rounded multipliers.

    Returns
    -------
    n_trimmed  int      slots that lost cells
    is_open    bool     False when a slot has none left
    gap        float64  how far the bound is above the floor
    """
    round_multipliers(problem, state, recorder, 4)
    bound, error = refresh(problem, state)
    marginals(problem, state)
    for slot in range(problem.n_slots):
        recorder.before[slot, LOW] = state.box[slot, LOW]
        recorder.before[slot, HIGH] = state.box[slot, HIGH]
    is_open = eliminate(problem, state, bound + 2.0 * error, floor) > 0.0
    n_trimmed = 0
    for slot in range(problem.n_slots):
        if (
            recorder.before[slot, LOW] != state.box[slot, LOW]
            or recorder.before[slot, HIGH] != state.box[slot, HIGH]
        ):
            n_trimmed += 1
    return n_trimmed, is_open, bound + 2.0 * error - floor


@inner_kernel
def put_trims(problem, state, recorder, tape, n_trimmed):
    """Append multipliers, and what is left of every slot that lost cells."""
    tape = with_bytes(tape, 1)
    put(tape, TRIM, 1)
    tape = put_multipliers(problem, state, recorder, tape, 4)
    tape = with_bytes(tape, 4 + 12 * n_trimmed)
    put(tape, n_trimmed, 4)
    cells = problem.cells
    for slot in range(problem.n_slots):
        low = state.box[slot, LOW]
        high = state.box[slot, HIGH]
        last = recorder.before[slot, HIGH]
        if recorder.before[slot, LOW] == low and last == high:
            continue
        first_left = cells[low, LOW] if low <= last else cells[last, HIGH] + 1
        put(tape, problem.slots[slot, FEATURE], 4)
        put(tape, first_left, 4)
        put(tape, cells[high, HIGH] if low <= high else first_left - 1, 4)
        recorder.box[slot, LOW], recorder.box[slot, HIGH] = low, high
    return tape


@inner_kernel
def record_tuples(problem, state, judge_of, tape, most):
    """Write down what is left of a box where every tree that the claim weighs has one leaf left.

    Where only what a softmax rounds to tells, and that the trees of all classes do, the box is
    split until each of them has one leaf, too.

    most  int  nodes that may be written, at most MOST_PARTS

    Returns the number of nodes, one more than that where they do not suffice, and the tape.
    """
    division = new_division(len(judge_of.cells))
    box, home, cells = division.box, judge_of.region.home, judge_of.cells
    copy_into(box.low, judge_of.box.low)
    copy_into(box.high, judge_of.box.high)
    for slot in range(problem.n_slots):
        box.low[problem.slots[slot, FEATURE]] = problem.cells[state.box[slot, LOW], LOW]
        box.high[problem.slots[slot, FEATURE]] = problem.cells[state.box[slot, HIGH], HIGH]
    for feature in range(len(cells)):
        cells[feature] = min(max(home[feature], box.low[feature]), box.high[feature])
    forest, row = judge_of.forest, judge_of.region.row
    is_tied = judge(forest, judge_of.claim, row, cells, judge_of.total) == AMBIGUOUS
    depth, tree, n_nodes = np.int64(0), np.int64(0), np.int64(0)
    # Ends: nodes are counted.
    while depth >= 0:
        n_nodes += 1
        if n_nodes > most:
            break
        feature, cut = np.int64(-1), np.int64(0)
        if is_tied:
            tree, feature, cut = find_cut(forest, row, box, tree)
        tape = with_bytes(tape, 9)
        if feature >= 0:
            put(tape, SPLIT, 1)
            put(tape, feature, 4)
            put(tape, cut, 4)
            enter_left(division, depth, tree, feature, cut)
            depth += 1
        else:
            put(tape, EXACT, 1)
            depth, tree = enter_next(division, depth)
    return n_nodes, tape


class PairProof(NamedTuple):
    """What is to be proved about pairs, beside their gains."""

    judge: PairJudge
    box: CellBox  # of the problem
    may_gain_nothing: bool  # boxes in which no pair of leaves gains anything are closed by that
    has_points: bool  # the reader's sums settle boxes with one pair of leaves in every tree


@inner_kernel
def gains_nothing_in(pairs, problem, state):
    """Whether the state's box is closed by that no pair of leaves gains anything in it."""
    return pairs.may_gain_nothing and is_worthless(problem, state, pairs.judge, pairs.box)


@noalloc_kernel
def cut_unrelated(problem, state, recorder, pairs):
    """Where to split cells off that go with no cell of their copy; slot -1 if there are none.

    What is split off has no step of the staircase left, which closes it, and so has a box in which
    no cells go together at all. Sweeps would give a segment without a step a multiplier beyond all
    numbers of a proof.
    """
    box, before = state.box, recorder.before
    for slot in range(problem.n_slots):
        before[slot, LOW], before[slot, HIGH] = box[slot, LOW], box[slot, HIGH]
    has_pairs = relate(pairs.judge, problem, state)
    found, cell = np.int64(-1), np.int64(0)
    for slot in range(problem.n_slots):
        if has_pairs and box[slot, LOW] > before[slot, LOW]:
            found, cell = np.int64(slot), np.int64(box[slot, LOW] - 1)
        elif has_pairs and box[slot, HIGH] < before[slot, HIGH]:
            found, cell = np.int64(slot), np.int64(box[slot, HIGH])
        box[slot, LOW], box[slot, HIGH] = before[slot, LOW], before[slot, HIGH]
    return found, cell


@inner_kernel
def record_problem(problem, state, objective, recorder, judge_of, pairs, tape, floor, budget):
    """Prove that nothing that is sought reaches the floor, and write the proof down.

    objective  Objective, of whose costs only limits count: those of balls and boxes cost nothing
    pairs      PairProof or None  instead of a judge, where points are pairs of rows

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
        gap = 0.0
        slot, cell = np.int64(-1), np.int64(0)
        n_bytes = 0
        is_idle = pairs is not None and gains_nothing_in(pairs, problem, state)
        if pairs is not None and not is_idle:
            slot, cell = cut_unrelated(problem, state, recorder, pairs)
            is_open = slot >= 0
        if not is_idle and not is_open:
            n_bytes = close_box(problem, state, objective, recorder, floor)
        if is_idle or n_bytes < 0:
            tape = with_bytes(tape, 1)
            put(tape, NOTHING if is_idle else DEAR, 1)
        elif not is_open:
            tape = put_weights(state, objective, recorder, tape)
            if n_bytes > 0:
                tape = with_bytes(tape, 1)
                put(tape, LAMBDA, 1)
                tape = put_multipliers(problem, state, recorder, tape, n_bytes)
            else:
                n_trimmed, is_open, gap = trim(problem, state, recorder, floor)
                if n_trimmed > 0:
                    tape = put_trims(problem, state, recorder, tape, n_trimmed)
                if pairs is not None and is_open and gains_nothing_in(pairs, problem, state):
                    is_open = False
                    tape = with_bytes(tape, 1)
                    put(tape, NOTHING, 1)
        if is_open:
            if slot < 0:
                slot, cell = choose_cut(problem, state, objective, None, gap)
            if pairs is not None and slot < 0:
                slot, cell = split_relation(pairs.judge, problem, state)
            if slot < 0:
                is_open = False
                if pairs is not None:
                    # What is left without trimmed cells may be one pair of leaves in every tree.
                    n_bytes = close_box(problem, state, objective, recorder, floor)
                    if n_bytes == 0 and not pairs.has_points:
                        return UNDECIDED, tape
                    tape = put_weights(state, objective, recorder, tape)
                    tape = with_bytes(tape, 1)
                    put(tape, LAMBDA if n_bytes > 0 else EXACT, 1)
                    if n_bytes > 0:
                        tape = put_multipliers(problem, state, recorder, tape, n_bytes)
                if judge_of is not None:
                    most = min(budget.nodes - n_nodes + 1, MOST_PARTS)
                    status, n_written, tape = record_point(
                        problem, state, objective, recorder, judge_of, tape, most
                    )
                    if status != PROVED:
                        return status, tape
                    n_nodes += n_written - 1
            else:
                tape = with_bytes(tape, 9)
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
def record_point(problem, state, objective, recorder, judge_of, tape, most):
    """Write down a box in which every tree that is weighed has one leaf.

    Returns PROVED, or why that does not close it, the number of nodes, and the tape.
    """
    if len(objective.base) > 0:
        tape = with_bytes(tape, 1)
        cheapest_point(problem, state, objective)
        cost, _ = cost_of_slots(problem, objective)
        is_dear = cost > objective.live[LIMIT]
        if not is_dear and judge_point(judge_of, problem, objective) == BROKEN:
            return NEAR_TIE, np.int64(1), tape  # within the margin of the limit
        put(tape, DEAR if is_dear else EXACT, 1)
        return PROVED, np.int64(1), tape
    # What one leaf of every tree says is asked of all classes.
    for number in range(len(state.weight)):
        state.weight[number] = 1.0
    tape = put_weights(state, objective, recorder, tape)
    n_written, tape = record_tuples(problem, state, judge_of, tape, most)
    return PROVED if n_written <= most else NODE_LIMIT, n_written, tape


class RecordLimits(NamedTuple):
    """Budget of one row, and the smallest exponent of its multipliers."""

    time_s: float
    nodes: int
    memory_bytes: float
    least_exponent: int


@noalloc_kernel
def rounding_room(forest, coefficient, least_exponent):
    """What rounding gains up to multiples of the proofs' unit may add to a sum of outputs."""
    total = 0.0
    for weight in coefficient:
        total += abs(weight)
    return 2.0 * total * (len(forest.trees.tree_output) + 8) * ldexp(1.0, least_exponent)


@inner_kernel
def restricted(forest, alternatives, number, row, box, least_exponent):
    """Leaves of an alternative in a box, their base and floor, and whether eq. 6 excludes it.

    alternatives  Alternatives of row.py, of plain outputs
    """
    coefficient = alternatives.coefficient[number]
    start = forest.semantics.start
    leaves = restrict(forest, row, box, coefficient)
    base = 0.0
    for output in range(len(coefficient)):
        base += coefficient[output] * start[output]
    slack = summation_slack(
        forest.trees, coefficient, start, alternatives.unit[number], leaves.leaf_start,
        leaves.leaf_row,
    )  # fmt: skip
    total, gross = best_sum(leaves)
    room = ROOM * (slack + 2.0**-22 * (gross + abs(base)))
    room += rounding_room(forest, coefficient, least_exponent)
    floor = alternatives.need[number] - slack - alternatives.link_slack[number] - room
    return leaves, base, floor, base + total < floor


@inner_kernel
def record_objective(problem):
    """Of what is recorded only conditions count: nothing costs anything, no point is sought."""
    n_conditions = np.int64(len(problem.conditions.weight))
    return free_objective(problem, np.inf, 0.0, n_conditions, new_found(0))


@inner_kernel
def record_alternative(judge_of, alternatives, number, tape, limits, deadline):
    """Record the proof that an alternative happens nowhere in a box; see `record_problem`."""
    forest, claim, box = judge_of.forest, judge_of.claim, judge_of.box
    row = judge_of.region.row
    leaves, base, floor, is_plain = restricted(
        forest, alternatives, number, row, box, limits.least_exponent
    )
    if is_plain:
        tape = with_bytes(tape, 1)
        put(tape, PLAIN, 1)
        return PROVED, tape
    problem = build_problem(base, leaves, box)
    if len(claim.conditions.need) > 1:
        problem = with_conditions(problem, forest, claim, leaves, box, ROOM)
        for condition in range(len(claim.conditions.need)):
            coefficient = claim.conditions.coefficient[condition]
            room = rounding_room(forest, coefficient, limits.least_exponent)
            problem.conditions.terms[condition, BASE] += room
        weigh(problem, problem.conditions.weight)
        floor = 0.0
    recorder = new_recorder(problem, len(row), limits.least_exponent)
    if len(claim.conditions.need) > 1:
        note_conditions(recorder, problem, forest.trees, claim.conditions)
    budget = Budget(limits.nodes, limits.memory_bytes, deadline)
    return record_problem(
        problem, new_state(problem), record_objective(problem), recorder, judge_of, None, tape,
        floor, budget,
    )  # fmt: skip


@kernel
def record_batch(forest, alternatives, batch, limits, status, seconds):
    """Record proofs for every row of a batch but those to skip.

    The batch's low and high are ends such that the thresholds up to each are the ones that the set
    passes.

    status     int64   (n_rows,)             out: PROVED or the limit that was reached
    seconds    float64 (n_rows,)             out

    Returns
    -------
    data  uint8  all records, one after another
    ends  int64 (n_rows,)  where each row's record ends
    """
    clock = np.empty(2, dtype=np.int64)
    ends = np.zeros(len(batch.rows), dtype=np.int64)
    tape = new_tape(4096)
    for number in range(len(batch.rows)):
        if not batch.skip[number]:
            began = seconds_now(clock)
            region = new_region(forest.space, batch, number, np.bool_(False))
            box = new_box(forest.space, region)
            found = new_found(len(region.row))
            group = batch.groups[number]
            for alternative in range(
                alternatives.group_start[group], alternatives.group_start[group + 1]
            ):
                claim = claim_of(alternatives, group, alternative)
                judge_of = new_judge(forest, claim, region, box, found)
                status[number], tape = record_alternative(
                    judge_of, alternatives, alternative, tape, limits, began + limits.time_s
                )
                if status[number] != PROVED:
                    break
            seconds[number] += seconds_now(clock) - began
        ends[number] = tape.used[0]
    return tape.data[: tape.used[0]].copy(), ends
