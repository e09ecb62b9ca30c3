"""Branch and bound for targets: a box is closed by one condition, whichever that is.

A target must beat every other class. Where all conditions hold each of them does, so a box is
closed as soon as one is refuted there. Each condition is a *side*: the problem of its own two
classes in the box that is searched, with multipliers of its own. Parts of the box are kept as cells
of features, which all sides understand.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into, grow_table
from treeproof.kernels.core.cells import CellBox, Region
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import AMBIGUOUS, BROKEN, Claim, Conjunction, Forest
from treeproof.kernels.core.leaves import restrict
from treeproof.kernels.core.status import (
    FOUND,
    MEMORY_LIMIT,
    NEAR_TIE,
    NODE_LIMIT,
    PROVED,
    TIME_LIMIT,
    UNDECIDED,
)
from treeproof.kernels.exact.balls import base_and_floor, drop_reached, is_excluded_by_eq6
from treeproof.kernels.exact.branching import choose_branch, peaks_right
from treeproof.kernels.exact.dual import State, enter_box, new_state, refresh, sweep
from treeproof.kernels.exact.initial_radius import eq6_radius
from treeproof.kernels.exact.judging import judge_cells
from treeproof.kernels.exact.objective import Objective, ball_objective
from treeproof.kernels.exact.primal import (
    NODES,
    RESTRICTIONS,
    SWEEPS,
    Found,
    decode,
)
from treeproof.kernels.exact.problem import CELL_START, FEATURE, HIGH, LOW, Problem, build_problem
from treeproof.kernels.exact.search import (
    CLOSED,
    NO_POINT,
    NODE_SWEEPS,
    PATIENCE,
    SPLIT,
    WORTH_ANOTHER_TRY,
    look_closer,
)
from treeproof.kernels.exact.walks import FINE, Walk, approach, attack, clip, evaluate, rise

ROOT_PATIENCE = 10.0
"""Sweeping the whole box ends when that many more sweeps like the last one would not close it: its
multipliers are those that all parts begin with."""
RISE_ROUNDS, RARER = 3, 4
"""Rounds of the rise of a point that a box proposes; it is done in box 1, 4, 16 and so on."""
WORTH_RESTART = 0.85
"""A witness at this share of the ball's radius makes the trees worth restricting again."""
TIED, NOTHING_LEFT, GIVEN_UP = 3, 4, 5
"""What became of a box, besides CLOSED and SPLIT: only rounding could tell about what is left of
it; nothing is left of the whole box that is searched; a quick search ends."""


class Quest(NamedTuple):
    """What is sought, and where."""

    forest: Forest
    claim: Claim
    region: Region
    whole: CellBox  # the box that is searched
    walk: Walk
    found: Found


class Side(NamedTuple):
    """One condition of a target in the box that is searched."""

    problem: Problem
    state: State
    objective: Objective
    root: np.ndarray  # (n_segments,) float64; multipliers to begin with in any part of the box
    is_known: np.ndarray  # (1,) bool; whether there are such multipliers yet
    is_refuted: bool  # best leaves refute the condition in the whole box


class Nodes(NamedTuple):
    """Parts of the box that are searched later, last in, first out."""

    boxes: np.ndarray  # (capacity, 2 * n_features) int32; first, then last cells
    known: np.ndarray  # (capacity, 3) int64; condition, and where its multipliers begin and end
    values: np.ndarray  # (size, 1) float64; multipliers
    size: np.ndarray  # (1,) int64


@inner_kernel
def condition_of(claim, number):
    """One condition of a claim, as a claim."""
    conditions = claim.conditions
    return Claim(
        conditions.coefficient[number],
        conditions.need[number],
        claim.unit,
        conditions.link_slack[number],
        claim.label,
        Conjunction(
            conditions.coefficient[number : number + 1],
            conditions.need[number : number + 1],
            conditions.link_slack[number : number + 1],
        ),
    )


@inner_kernel
def new_side(quest, number):
    """A condition in the whole box.

    Sound: the floor is the condition's need minus all that rounding can hide, as for a claim of a
    single one.
    """
    forest, region, box = quest.forest, quest.region, quest.whole
    quest.found.counts[RESTRICTIONS] += 1
    condition = condition_of(quest.claim, number)
    leaves = restrict(forest, region.row, box, condition.coefficient)
    base, floor = base_and_floor(forest, condition, leaves)
    is_refuted = is_excluded_by_eq6(base, floor, leaves)
    problem = build_problem(base, leaves, box)
    state = new_state(problem)
    objective = ball_objective(
        problem, forest.space, region, box, condition.need, floor, np.int64(1), quest.found
    )
    root = np.zeros(len(state.multiplier), dtype=np.float64)
    return Side(problem, state, objective, root, np.zeros(1, dtype=np.bool_), is_refuted)


@inner_kernel
def side_of(quest, sides, place, number):
    """The side of a condition, which is made when it is first asked for.

    place  int64 (n_conditions,)  where each condition is among the sides, or -1
    """
    if place[number] < 0:
        place[number] = len(sides)
        sides.append(new_side(quest, number))
    return sides[place[number]]


@noalloc_kernel
def enter_cells(problem, state, box):
    """Set the state's box to the cells of the problem that meet a box of cells.

    Sound: a cell of the problem that meets it is kept as a whole.
    """
    for slot in range(problem.n_slots):
        feature = problem.slots[slot, FEATURE]
        low = np.int64(problem.slots[slot, CELL_START])
        high = np.int64(problem.slots[slot + 1, CELL_START]) - 1
        while problem.cells[low, HIGH] < box.low[feature]:
            low += 1
        while problem.cells[high, LOW] > box.high[feature]:
            high -= 1
        state.box[slot, LOW] = low
        state.box[slot, HIGH] = high


@noalloc_kernel
def keep_cells(problem, state, box):
    """Drop the cells of a box that the state's box does not meet."""
    for slot in range(problem.n_slots):
        feature = problem.slots[slot, FEATURE]
        low = np.int32(problem.cells[state.box[slot, LOW], LOW])
        high = np.int32(problem.cells[state.box[slot, HIGH], HIGH])
        box.low[feature] = max(box.low[feature], low)
        box.high[feature] = min(box.high[feature], high)


@noalloc_kernel
def work_on(problem, state, objective, box, is_root):
    """Sweep one condition in a box until it is refuted there, or splitting is better.

    Cells that no violation can use are dropped from the box.

    Returns CLOSED or SPLIT, and for SPLIT how far the bound is above the floor, rounding included.
    """
    floor = objective.floor
    enter_cells(problem, state, box)
    enter_box(problem, state)
    bound, error = refresh(problem, state)
    patience = ROOT_PATIENCE if is_root else PATIENCE
    turn = 0
    # Ends: sweeps are counted, and counted anew only in a box of fewer cells.
    while True:
        if bound < floor:
            # The sweeps' bound drifts with rounding; only the fresh one closes a box.
            bound, error = refresh(problem, state)
            if bound + error < floor:
                return CLOSED, 0.0
        before = bound
        bound = sweep(problem, state, turn % 2 == 0, bound, floor)
        objective.found.counts[SWEEPS] += 1
        turn += 1
        if bound < floor and turn < NODE_SWEEPS:
            continue
        if turn == NODE_SWEEPS or (turn >= 2 and bound - floor > patience * (before - bound)):
            outcome, gap, kept = look_closer(problem, state, objective, None, np.int64(NO_POINT))
            if outcome == SPLIT:
                keep_cells(problem, state, box)
            if outcome != SPLIT or kept > WORTH_ANOTHER_TRY:
                return outcome, gap
            bound = enter_box(problem, state)
            turn = 0


@noalloc_kernel
def place_point(problem, state, objective, box, home, walk):
    """Put the point that the costs of single cells favour into the walk, as near as cells allow."""
    clip(walk, box, home)
    decode(problem, state, state.marginal, objective.cost, objective.point)
    for slot in range(problem.n_slots):
        feature = problem.slots[slot, FEATURE]
        cell = objective.point[slot]
        low = max(np.int32(problem.cells[cell, LOW]), box.low[feature])
        high = min(np.int32(problem.cells[cell, HIGH]), box.high[feature])
        walk.cells[feature] = min(max(home[feature], low), high)


@noalloc_kernel
def is_empty(box):
    """Whether some feature has no cell left."""
    for feature in range(len(box.low)):
        if box.low[feature] > box.high[feature]:
            return True
    return False


@inner_kernel
def new_nodes(n_features):
    """No parts yet."""
    return Nodes(
        np.empty((8, 2 * n_features), dtype=np.int32),
        np.empty((8, 3), dtype=np.int64),
        np.empty((0, 1), dtype=np.float64),
        np.zeros(1, dtype=np.int64),
    )


@inner_kernel
def with_room(nodes, n_values, memory_bytes):
    """The parts, in larger arrays when they are full, and whether the memory allows one more."""
    size = nodes.size[0]
    used = nodes.known[size - 1, 2] if size > 0 else 0
    boxes, known, values = nodes.boxes, nodes.known, nodes.values
    if size == len(known) or used + n_values > len(values):
        if 16.0 * (used + n_values) + 8.0 * size * boxes.shape[1] > memory_bytes:
            return nodes, False
        if size == len(known):
            boxes, known = grow_table(boxes, 2 * size), grow_table(known, 2 * size)
        if used + n_values > len(values):
            values = grow_table(values, 2 * (used + n_values))
    return Nodes(boxes, known, values, nodes.size), True


@noalloc_kernel
def push_part(nodes, box, number, multiplier, feature, cut, is_right):
    """Put the part of a box left or right of a cut aside, and keep the other one."""
    top = nodes.size[0]
    first = nodes.known[top - 1, 2] if top > 0 else 0
    n_features = len(box.low)
    for other in range(n_features):
        nodes.boxes[top, other] = box.low[other]
        nodes.boxes[top, n_features + other] = box.high[other]
    if is_right:
        nodes.boxes[top, feature] = cut + 1
        box.high[feature] = cut
    else:
        nodes.boxes[top, n_features + feature] = cut
        box.low[feature] = cut + 1
    nodes.known[top, 0] = number
    nodes.known[top, 1] = first
    nodes.known[top, 2] = first + len(multiplier)
    for index in range(len(multiplier)):
        nodes.values[first + index, 0] = multiplier[index]
    nodes.size[0] = top + 1


@noalloc_kernel
def pop_part(nodes, box):
    """Bring back the part that was put aside last, but for its multipliers.

    Returns its condition, and where its multipliers begin.
    """
    top = nodes.size[0] - 1
    n_features = len(box.low)
    for feature in range(n_features):
        box.low[feature] = nodes.boxes[top, feature]
        box.high[feature] = nodes.boxes[top, n_features + feature]
    nodes.size[0] = top
    return nodes.known[top, 0], nodes.known[top, 1]


@noalloc_kernel
def worst_condition(value):
    """The condition that is farthest from being met."""
    worst = 0
    for number in range(len(value)):
        worst = number if value[number] < value[worst] else worst
    return worst


@inner_kernel
def propose(quest, box, may_rise):
    """Look at the walk's point, and at one above it if asked to; a violation is moved closer.

    Returns the condition that the point fails most, and whether the witness is new.
    """
    forest, claim, region = quest.forest, quest.claim, quest.region
    walk, found = quest.walk, quest.found
    lacks = evaluate(forest, claim.conditions, region.row, walk, box)
    worst = worst_condition(walk.value)
    if lacks < 0.0 and may_rise:
        lacks = rise(forest, claim.conditions, region, box, walk, np.int64(RISE_ROUNDS))
    if lacks < 0.0:
        return worst, False
    if judge_cells(forest, claim, region, walk.cells, walk.total, found) != BROKEN:
        return worst, False
    if region.is_ball:
        approach(forest, claim, region, walk, found, FINE)
    return worst, True


@inner_kernel
def choose_cut(quest, sides, place, tried, box, best, gap):
    """Where to split a box: as the best condition says, or any other one that was tried.

    gap  float64  how far the best condition's bound is above its floor

    Returns the condition, its slot, or -1 where trees of all that were tried have one leaf left,
    and the last cell of the left part.
    """
    side = side_of(quest, sides, place, best)
    enter_cells(side.problem, side.state, box)
    slot, cell = choose_branch(side.problem, side.state, gap)
    number = best
    for other in range(len(tried)):
        if slot < 0 and tried[other]:
            # Sound: nothing is beyond this gap, so that no boundary of leaves is passed over.
            side = side_of(quest, sides, place, np.int64(other))
            enter_cells(side.problem, side.state, box)
            slot, cell = choose_branch(side.problem, side.state, np.inf)
            number = np.int64(other)
    return number, np.int64(slot), np.int64(cell)


@inner_kernel
def judge_tuple(quest, box):
    """Judge what is left of a box where every tree has one leaf left.

    Sound: conditions weigh the trees of all classes, so all points of the box have the label of the
    one that is judged, the nearest.

    Returns CLOSED; TIED; or NOTHING_LEFT where any violation will do.
    """
    walk = quest.walk
    clip(walk, box, quest.region.home)
    verdict = judge_cells(
        quest.forest, quest.claim, quest.region, walk.cells, walk.total, quest.found
    )
    if verdict == BROKEN and not quest.region.is_ball:
        return NOTHING_LEFT
    return TIED if verdict == AMBIGUOUS else CLOSED


@inner_kernel
def look_at(quest, sides, place, box, number, is_quick, may_rise):
    """Work on a box until a condition is refuted there or it has to be split.

    number  int  the condition to begin with, which has multipliers of this box

    A box that one condition does not close is tried with the one that its best point fails most.

    Returns what became of the box, and of a split the condition, its slot and its cell.
    """
    region, found = quest.region, quest.found
    tried = np.zeros(len(place), dtype=np.bool_)
    n_tried = 0
    best, least_gap, rival = number, np.inf, number
    nowhere = (number, np.int64(-1), np.int64(0))
    # Ends: each witness is nearer, and each condition is tried once more.
    while True:
        # Points no nearer than the witness are of no use.
        drop_reached(quest.forest.space, region, found, box)
        if is_empty(box):
            return CLOSED, nowhere
        side = side_of(quest, sides, place, rival)
        if side.is_refuted:
            return NOTHING_LEFT, nowhere
        if rival != number and not tried[rival]:
            copy_into(side.state.multiplier, side.root)
        n_tried += 0 if tried[rival] else 1
        tried[rival] = True
        outcome, gap = work_on(side.problem, side.state, side.objective, box, not side.is_known[0])
        if not side.is_known[0]:
            copy_into(side.root, side.state.multiplier)
            side.is_known[0] = True
        if outcome == CLOSED or is_empty(box):
            return CLOSED, (rival, np.int64(-1), np.int64(0))
        if gap < least_gap:
            best, least_gap = rival, gap
        if n_tried <= 2:
            place_point(side.problem, side.state, side.objective, box, region.home, quest.walk)
            worst, is_new = propose(quest, box, may_rise)
            if is_new:
                if not region.is_ball or (found.upper[0] == 0.0 and not found.is_open[0]):
                    return NOTHING_LEFT, nowhere
                least_gap = np.inf
                continue
            if is_quick:
                return GIVEN_UP, nowhere
            if n_tried == 1 and not tried[worst]:
                rival = np.int64(worst)
                continue
        cut = choose_cut(quest, sides, place, tried, box, best, least_gap)
        if cut[1] >= 0:
            return SPLIT, cut
        rival = np.int64(-1)
        for other in range(len(tried)):
            rival = rival if tried[other] else np.int64(other)
        if rival < 0:
            return judge_tuple(quest, box), nowhere


@inner_kernel
def begin_walk(forest, claim, region, plan, radius):
    """Begin with the condition that is farthest from being met at the row, which tells most.

    Returns the radius from which it may be met, or outside of balls the one given.
    """
    walk, first = plan
    home = CellBox(region.home, region.home)
    clip(walk, home, region.home)
    evaluate(forest, claim.conditions, region.row, walk, home)
    first[0] = worst_condition(walk.value)
    if not region.is_ball:
        return radius
    coefficient = claim.conditions.coefficient[first[0]]
    gain = claim.conditions.need[first[0]]
    for output in range(len(coefficient)):
        gain -= coefficient[output] * forest.semantics.start[output]
    return eq6_radius(forest, region, coefficient, gain, radius, np.inf)


@inner_kernel
def explore_target(forest, claim, region, box, is_quick, plan, found, budget):
    """As `explore` of row.py, where each condition of a claim is bounded by itself.

    box   CellBox  overwritten
    plan  Walk, and the condition to begin with: int64 (1,)
    """
    walk, first = plan
    if found.upper[0] == np.inf:
        attack(forest, claim, region, box, walk, found, FINE)
        if found.upper[0] < np.inf:
            return UNDECIDED if region.is_ball else FOUND
    whole = CellBox(box.low.copy(), box.high.copy())
    quest = Quest(forest, claim, region, whole, walk, found)
    status = search_target(quest, box, first, is_quick, budget)
    return FOUND if not region.is_ball and found.upper[0] < np.inf else status


@inner_kernel
def search_target(quest, box, first, is_quick, budget):
    """Search a box of cells for the nearest point where all conditions hold, or any if no ball.

    box       CellBox    overwritten
    first     int64 (1,) the condition to begin with; out: the one that closed the whole box, if any
    is_quick  bool       only the whole box is looked at, with one condition

    Returns PROVED: nothing nearer than the witness is left, if there is one; UNDECIDED where a
    smaller ball pays, or a quick search did not suffice; or why the search ended.
    """
    found = quest.found
    clock = np.empty(2, dtype=np.int64)
    place = np.full(len(quest.claim.conditions.need), -1, dtype=np.int64)
    worth = WORTH_RESTART * found.upper[0]
    number = first[0]
    sides = [new_side(quest, number)]
    place[number] = 0
    nodes = new_nodes(len(box.low))
    is_near_tie = False
    count, next_rise = 0, 1
    while True:
        found.counts[NODES] += 1
        if found.counts[NODES] > budget.nodes:
            return NODE_LIMIT
        if count > 0 and seconds_now(clock) > budget.deadline:
            return TIME_LIMIT
        if found.upper[0] < worth:
            return UNDECIDED
        count += 1
        next_rise *= RARER if count > next_rise else 1
        outcome, cut = look_at(quest, sides, place, box, number, is_quick, count == next_rise)
        number, slot, cell = cut
        if outcome == NOTHING_LEFT:
            return PROVED
        if outcome == GIVEN_UP:
            return UNDECIDED
        is_near_tie = is_near_tie or outcome == TIED
        if outcome == SPLIT:
            side = sides[place[number]]
            nodes, has_room = with_room(nodes, len(side.state.multiplier), budget.memory_bytes)
            if not has_room:
                return MEMORY_LIMIT
            push_part(
                nodes, box, number, side.state.multiplier,
                np.int64(side.problem.slots[slot, FEATURE]),
                np.int32(side.problem.cells[cell, HIGH]), not peaks_right(side.state, slot, cell),
            )  # fmt: skip
            continue
        if count == 1:
            first[0] = number
        if nodes.size[0] == 0:
            return NEAR_TIE if is_near_tie else PROVED
        number, start = pop_part(nodes, box)
        multiplier = sides[place[number]].state.multiplier
        for index in range(len(multiplier)):
            multiplier[index] = nodes.values[start + index, 0]
