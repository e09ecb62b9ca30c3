"""The largest value of a `Problem`, by branch and bound.

Boxes are searched best first; after a split the more promising part is worked on at once. A box is
closed when its bound is no better than the best point known. Both bounds of the optimum are known
at any moment: the best point, and the largest bound of a box that is still open.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.core.status import (
    FOUND,
    MEMORY_LIMIT,
    NEAR_TIE,
    NODE_LIMIT,
    PROVED,
    TIME_LIMIT,
)
from treeproof.kernels.exact.branching import best_cut, choose_branch, eliminate
from treeproof.kernels.exact.dual import (
    LOWEST,
    enter_box,
    marginals,
    new_state,
    refresh,
    sweep,
)
from treeproof.kernels.exact.frontier import inherit, leave, with_room_for, write_box
from treeproof.kernels.exact.objective import climb, free_objective
from treeproof.kernels.exact.open_boxes import (
    BOUND,
    CUT_OFF,
    PARENT,
    SIDE,
    add_place,
    load_state,
    new_open_boxes,
    save_state,
    set_part_aside,
    take_place,
    top_bound,
    with_places,
)
from treeproof.kernels.exact.pair_judge import (
    is_worthless,
    relate,
    split_relation,
    write_cells,
)
from treeproof.kernels.exact.primal import NODES, POINTS, SWEEPS, decode, new_found
from treeproof.kernels.exact.problem import FEATURE, LOW

OPTIMAL, BELOW, DECIDED = 0, 1, 2
"""When the search for the largest value ends."""

CLOSED, SPLIT, DECIDING = 0, 1, 2
"""What became of a box: nothing is left, it has to be split, it shows what decides the question."""
NO_BETTER, BETTER, ENOUGH = 0, 1, 2
"""What a point is: no better than the best one known, better, so good that it decides."""
ROOT_SWEEPS, NODE_SWEEPS = 60, 30
WORTH_ANOTHER_TRY = 0.8
PATIENCE, ROOT_PATIENCE = 5.0, 40.0
"""Sweeping ends when that many more sweeps like the last one would not close the box; the second
for the whole of a question."""
ROUNDS = 4
"""Rounds of ascent from each point that is tried."""
LONGEST_REST = 8
"""Boxes in a row in which no point is tried, after points that were no better."""
PART_OF_ALL = 0.02
"""Splits of one side that count as much as the mean of all, as a part of the splits of a side."""
SHRUNK = 3
"""A box with one leaf in that many left is searched with trees of its own."""


class Best(NamedTuple):
    """What is known; arrays of one entry are overwritten in place.

    value    float64 (1,)          gain of the best point, in doubles
    upper    float64 (1,)          no point has a larger gain
    is_found bool    (1,)          whether `cells` hold a point
    cells    int32   (n_columns,)  cells of the best point
    counts   int64   (4,)          nodes, sweeps, points, difference leaves
    learned  float64 (2 * n_columns + 1, 2)  of both sides of splits of each column, and of all of
                                   them: by how much bounds fell, and the boundaries cut off
    tries    int64   (2,)          boxes without a try between points, boxes since the last try
    """

    value: np.ndarray
    upper: np.ndarray
    is_found: np.ndarray
    cells: np.ndarray
    counts: np.ndarray
    learned: np.ndarray
    tries: np.ndarray


@inner_kernel
def new_best(n_columns):
    """Nothing known."""
    return Best(
        np.full(1, -np.inf, dtype=np.float64),
        np.full(1, np.inf, dtype=np.float64),
        np.zeros(1, dtype=np.bool_),
        np.zeros(n_columns, dtype=np.int32),
        np.zeros(4, dtype=np.int64),
        np.zeros((2 * n_columns + 1, 2), dtype=np.float64),
        np.zeros(2, dtype=np.int64),
    )


@noalloc_kernel
def floor_of(aim, best):
    """Gain below which a box is of no interest."""
    if aim.ends[2] > 0.0:
        return aim.ends[0]
    if best.value[0] == -np.inf:
        return LOWEST
    value = best.value[0]
    return max(value + max(aim.gap, aim.share * value), aim.ends[0])


@noalloc_kernel
def propose(problem, state, objective, judge, best, score):
    """Try the best-scored point of the box after some ascent; see `consider`."""
    decode(problem, state, score, objective.cost, objective.point)
    return consider(problem, state, objective, judge, best, np.int64(ROUNDS))


@noalloc_kernel
def consider(problem, state, objective, judge, best, rounds):
    """Keep `objective.point`, after some rounds of ascent, if it is better than the best one known.

    Returns NO_BETTER, BETTER, or ENOUGH where it decides the question.
    """
    value = climb(problem, state, objective, rounds)
    best.counts[POINTS] += 1
    if not value > best.value[0] or not write_cells(judge, problem, objective.point):
        return np.int64(NO_BETTER)
    best.value[0] = value
    best.is_found[0] = True
    copy_into(best.cells, judge.cells)
    return np.int64(ENOUGH if value > judge.aim.ends[1] else BETTER)


@noalloc_kernel
def is_shrunk(problem, state):
    """Whether so few leaves meet the state's box that trees of its own pay."""
    n_alive = 0
    for factor in range(problem.n_factors):
        if state.n_active[factor] > 0:
            n_alive += np.int64(state.n_alive[factor])
    return SHRUNK * n_alive < len(problem.leaf_gain)


@noalloc_kernel
def try_point(problem, state, objective, judge, best):
    """`propose`, less and less often while it finds nothing better."""
    best.tries[1] += 1
    if best.tries[1] <= best.tries[0]:
        return np.int64(NO_BETTER)
    verdict = np.int64(propose(problem, state, objective, judge, best, state.marginal))
    best.tries[0] = 0 if verdict == BETTER else min(best.tries[0] + 1, LONGEST_REST)
    best.tries[1] = 0
    return verdict


@noalloc_kernel
def work_on(problem, state, objective, judge, best, patience):
    """Work on the state's box until it is closed, has to be split, or shows what decides.

    Returns CLOSED, SPLIT or DECIDING; a bound of all points of the box as it was, and of those
    that are left in it.
    """
    aim = judge.aim
    floor = floor_of(aim, best)
    if not relate(judge, problem, state):
        return CLOSED, -np.inf, -np.inf
    enter_box(problem, state)
    bound, error = refresh(problem, state)
    dropped = -np.inf
    turn = 0
    is_root = patience == ROOT_PATIENCE
    limit = ROOT_SWEEPS if is_root else NODE_SWEEPS
    # Ends: sweeps are counted, and counted anew only in a box of fewer cells.
    while True:
        if bound < floor:
            # The sweeps' bound drifts with rounding; only the fresh one closes a box.
            bound, error = refresh(problem, state)
            if bound + error < floor:
                return CLOSED, max(bound + error, dropped), -np.inf
        before = bound
        bound = sweep(problem, state, turn % 2 == 0, bound, floor)
        best.counts[SWEEPS] += 1
        turn += 1
        if bound < floor and turn < limit:
            continue
        if is_root and turn in (1, 4, 12):
            if propose(problem, state, objective, judge, best, state.rest) == ENOUGH:
                return DECIDING, np.inf, np.inf
            floor = floor_of(aim, best)
        if turn < limit and (turn < 2 or bound - floor <= patience * (before - bound)):
            continue
        bound, error = refresh(problem, state)
        if bound + error < floor:
            return CLOSED, max(bound + error, dropped), -np.inf
        marginals(problem, state)
        if try_point(problem, state, objective, judge, best) == ENOUGH:
            return DECIDING, np.inf, np.inf
        floor = floor_of(aim, best)
        # Sound: with a cell fixed the bound is bound + marginal, each within error of exact.
        kept = eliminate(problem, state, bound + 2.0 * error, floor)
        if kept < 1.0:
            dropped = floor
        if kept == 0.0 or not relate(judge, problem, state):
            return CLOSED, max(floor, dropped), -np.inf
        if kept > WORTH_ANOTHER_TRY:
            return SPLIT, dropped, bound + 2.0 * error
        enter_box(problem, state)
        bound, error = refresh(problem, state)
        turn = 0


@noalloc_kernel
def learn(learned, split, bound):
    """Remember once by how much a bound fell on the side of a split where the box at hand lies."""
    for row in (np.int64(split[SIDE]), np.int64(len(learned) - 1)):
        if split[CUT_OFF] > 0.0:
            learned[row, 0] += max(split[PARENT] - bound, 0.0)
            learned[row, 1] += split[CUT_OFF]
    split[CUT_OFF] = 0.0


@noalloc_kernel
def rate_of(learned, side):
    """By how much a bound falls for each boundary that a split cuts off on one side of a column.

    What was learned of the side counts as far as there is enough of it, besides that of all sides.
    """
    last = len(learned) - 1
    if learned[last, 1] == 0.0:
        return 1.0
    some = PART_OF_ALL * learned[last, 1] / last
    mean = learned[last, 0] / learned[last, 1]
    return (learned[side, 0] + some * mean) / (learned[side, 1] + some)


@noalloc_kernel
def choose_split(problem, state, gap, learned):
    """As `choose_branch`, where both bounds can be expected to fall most, by what was learned.

    Returns slot, last cell of its left part, and what is cut off the left and the right part.
    """
    best_slot = -1
    best_cell = 0
    most = 0.0
    off_left = 0.0
    off_right = 0.0
    for slot in range(problem.n_slots):
        cell, left, right = best_cut(problem, state, slot, gap)
        side = np.int64(2 * problem.slots[slot, FEATURE])
        score = rate_of(learned, side) * rate_of(learned, side + 1) * left * right
        if cell >= 0 and score > most:
            most = score
            best_slot = slot
            best_cell = cell
            off_left = left
            off_right = right
    if best_slot < 0:
        slot, cell = choose_branch(problem, state, gap)
        return slot, cell, 0.0, 0.0
    return best_slot, best_cell, off_left, off_right


@noalloc_kernel
def find_cut(problem, state, objective, judge, best, gap):
    """Where to split the state's box; or, where one pair of leaves is left, what it gains.

    Returns the cut (slot, -1 without one; last cell of its left part; what is cut off the left and
    the right part), whether cells beyond the gap have left the box, and what became of the pair.
    """
    slot, cell, off_left, off_right = choose_split(problem, state, gap, best.learned)
    is_trimmed = slot < 0
    answer = np.int64(NO_BETTER)
    if slot < 0:
        slot, cell = split_relation(judge, problem, state)
    if slot < 0:
        # One pair of leaves is left in every tree, and related columns go together.
        for other in range(problem.n_slots):
            objective.point[other] = state.box[other, LOW]
        answer = consider(problem, state, objective, judge, best, np.int64(0))
    return (np.int64(slot), np.int64(cell), off_left, off_right), is_trimmed, answer


@noalloc_kernel
def cut_in_two(boxes, problem, state, split, cut, above):
    """Keep the more promising part of the state's box, and put the other one aside.

    split  float64 (4,)  what is known of the box, with PARENT the bound that its marginals belong
                         to; then what is known of the part that is kept
    cut                  slot, last cell of its left part, what is cut off the left and right part
    above  float64       a bound of the box
    """
    slot, cell, off_left, off_right = cut
    place, is_right = set_part_aside(boxes, state, slot, cell, split[PARENT], above)
    known = boxes.known[place]
    known[PARENT] = split[PARENT]
    side = 2 * np.int64(problem.slots[slot, FEATURE])
    known[SIDE], known[CUT_OFF] = (side, off_left) if is_right else (side + 1, off_right)
    split[SIDE], split[CUT_OFF] = (side + 1, off_right) if is_right else (side, off_left)


@inner_kernel
def count_box(best, budget, has_room):
    """Count one more box; returns PROVED, or the limit that is reached with it."""
    clock = np.empty(2, dtype=np.int64)
    best.counts[NODES] += 1
    if not has_room:
        return MEMORY_LIMIT
    if best.counts[NODES] > budget.nodes:
        return NODE_LIMIT
    if best.counts[NODES] > 1 and seconds_now(clock) > budget.deadline:
        return TIME_LIMIT
    return PROVED


@inner_kernel
def maximise(problem, box, judge, best, budget, frontier, bounds):
    """Search a problem for its largest value; ``best`` is always valid.

    box       CellBox           of the problem
    frontier  Frontier          receives boxes that have shrunk so much that trees of their own pay;
                                the box that was taken last is that of the problem
    bounds    float64, float64  one that is known, infinite for the whole question; and one below
                                which boxes are left to the frontier as well

    Returns a status: PROVED when the bound below is within the gap of the value, FOUND with one
    that decides, NEAR_TIE where only rounding could tell, or the limit that was reached; a bound of
    all points but those handed over; and the frontier.
    """
    aim = judge.aim
    state = new_state(problem)
    inherit(frontier, problem, state)
    objective = free_objective(problem, np.inf, 0.0, np.int64(1), new_found(0))
    boxes = new_open_boxes(len(state.multiplier) + 1, problem.n_slots)
    ceiling = -np.inf
    above, goal = bounds
    patience = ROOT_PATIENCE if above == np.inf else PATIENCE
    is_inner = False
    split = np.zeros(4, dtype=np.float64)  # what is known of the box at hand
    while True:
        boxes, has_room = with_places(boxes, budget.memory_bytes)
        if has_room:
            frontier, has_room = with_room_for(frontier, problem, budget.memory_bytes)
        status = count_box(best, budget, has_room)
        if status != PROVED:
            return status, max(above, ceiling, top_bound(boxes)), frontier
        outcome, closed, left = work_on(problem, state, objective, judge, best, patience)
        if outcome == DECIDING:
            return FOUND, np.inf, frontier
        ceiling = max(ceiling, min(closed, above))
        above = min(above, left)
        learn(best.learned, split, left if outcome == SPLIT else floor_of(aim, best))
        if outcome == SPLIT and aim.ends[2] > 0.0 and is_worthless(problem, state, judge, box):
            outcome = CLOSED
        elif outcome == SPLIT and is_inner and (above < goal or is_shrunk(problem, state)):
            # It is searched with trees of its own.
            place = leave(frontier, problem, state, above)
            write_box(problem, state, box, frontier.boxes.box[place])
            outcome = CLOSED
        patience, is_inner = PATIENCE, True
        if outcome == SPLIT:
            gap = left - floor_of(aim, best)
            cut, is_trimmed, answer = find_cut(problem, state, objective, judge, best, gap)
            if answer == ENOUGH:
                return FOUND, np.inf, frontier
            if cut[0] < 0 and aim.ends[2] > 0.0:
                # Trees that cancel are left out, so that rounding differs from point to point.
                return NEAR_TIE, above, frontier
            if is_trimmed:
                # Sound: cells that cost too much are below the floor, and no longer in the box. All
                # points left of a single pair of leaves have the value just considered.
                ceiling = max(ceiling, min(above, floor_of(aim, best)))
            if cut[0] >= 0:
                split[PARENT] = left
                cut_in_two(boxes, problem, state, split, cut, above)
                if above >= top_bound(boxes):
                    continue
                place = add_place(boxes, above)
                save_state(boxes, place, state)
                split[BOUND] = above
                copy_into(boxes.known[place], split)
        if boxes.size[0] > 0:
            place = take_place(boxes)
            load_state(boxes, place, state)
            copy_into(split, boxes.known[place])
            above = split[BOUND]
            if above >= floor_of(aim, best):
                continue
            ceiling = max(ceiling, above)  # Sound: no other open box has a larger bound
        return PROVED, ceiling, frontier
