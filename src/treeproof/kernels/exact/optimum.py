"""The largest value of a `Problem`, or a point that passes two needs at once, by branch and bound.

Boxes are searched best first; after a split the more promising part is worked on at once. A box is
closed when its bound is no better than the best point known, or below the need. Both bounds of the
optimum are known at any moment: the best point, and the largest bound of a box that is still open.

Two needs (`first >= 0` and `second >= 0`) are bounded by their mixtures: wherever both hold, every
``weight * first + (1 - weight) * second`` is at least 0, so one weight that makes it negative
everywhere in a box closes it. Multipliers stay valid whatever the weight is.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import (
    AMBIGUOUS,
    BROKEN,
    HOLDS,
    NO,
    YES,
    accumulate_cells,
    divided,
    finished,
    tie_slack,
    wins,
)
from treeproof.kernels.core.status import (
    FOUND,
    MEMORY_LIMIT,
    NEAR_TIE,
    NODE_LIMIT,
    PROVED,
    TIME_LIMIT,
)
from treeproof.kernels.exact.branching import best_cut, choose_branch, eliminate, peaks_right
from treeproof.kernels.exact.dual import (
    LOWEST,
    enter_box,
    marginals,
    new_state,
    refresh,
    sweep,
)
from treeproof.kernels.exact.frontier import inherit, leave, with_room_for, write_box
from treeproof.kernels.exact.objective import Elsewhere, climb, nearest_of, new_objective
from treeproof.kernels.exact.open_boxes import (
    BOUND,
    CUT_OFF,
    PARENT,
    SIDE,
    WEIGHT,
    add_place,
    load_state,
    new_open_boxes,
    save_state,
    take_place,
    top_bound,
    with_places,
)
from treeproof.kernels.exact.pairs import PairForest, gains_nothing
from treeproof.kernels.exact.primal import decode, new_found
from treeproof.kernels.exact.problem import BASE, FEATURE, GROSS, HIGH, LOW

VALUE, BOTH, LABELS = 0, 1, 2
"""What is sought: the largest value; a pair that passes both needs; two labels that differ."""

OPTIMAL, BELOW, DECIDED = 0, 1, 2
"""When the search for the largest value ends."""

CLOSED, SPLIT, VIOLATED = 0, 1, 2
BETTER = 3
"""Beside the verdicts of `judge_pair`: a point that is better than the best one known."""
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
PARTS_OF_WEIGHT = 256
"""Weights are written down in so many parts."""
WEIGHT_STEPS, NODE_WEIGHT_STEPS = 7, 4
"""Weights that are tried at the root and in every other box."""


class Aim(NamedTuple):
    """What is sought.

    mode           int
    first, second  float64 (n_outputs,)  weights of the sums of both rows in their gains
    offset         float64               VALUE: what the gain is before any tree, rounded up
    need           float64 (2,)          BOTH, LABELS: least gain of the first and the second row
    label          int64   (2,)          LABELS: class that goes with the need of each row
    slack          float64 (2,)          rounding that each gain may hide beside that of sums
    unit           float64 (2,)          rounding unit of each row's sums; 0 when exact
    gap            float64               VALUE: how near to the optimum is near enough
    share          float64               VALUE: the same, as a part of the best value known
    limit          float64               VALUE: the value that is claimed not to be exceeded
    ends_when      int                   VALUE: OPTIMAL; BELOW: or the limit is; DECIDED: or passed
    ends           float64 (3,)          VALUE: what is below the first is of no interest, and more
                                         than the second one decides; the third is 1 where all that
                                         is not below the first is; written by `solve_pair`
    """

    mode: int
    first: np.ndarray
    second: np.ndarray
    offset: float
    need: np.ndarray
    label: np.ndarray
    slack: np.ndarray
    unit: np.ndarray
    gap: float
    share: float
    limit: float
    ends_when: int
    ends: np.ndarray


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


class Parts(NamedTuple):
    """The two gains of a problem with two needs, in its own order; empty with one gain.

    leaf_gain  float64 (2, n_leaves)
    unary      float64 (2, n_cells)
    base       float64 (2,)
    gross      float64 (2,)
    """

    leaf_gain: np.ndarray
    unary: np.ndarray
    base: np.ndarray
    gross: np.ndarray


class PairJudge(NamedTuple):
    """What decides whether a pair of rows is what is sought.

    forest         PairForest
    aim            Aim
    nearest        int32   (n_columns,)  cells that a point takes where nothing else is asked for
    leaves         PairLeaves            of the problem
    link           int64   (n, 3)        slots of both copies of related features, and the feature
    cells          int32   (n_columns,)  scratch
    second         int32   (n_features,) scratch: cells of the second row
    total          float64 (2, n_outputs)  scratch
    row            float64 (0,)            of which nothing is fixed
    """

    forest: PairForest
    aim: Aim
    nearest: np.ndarray
    leaves: NamedTuple
    link: np.ndarray
    cells: np.ndarray
    second: np.ndarray
    total: np.ndarray
    row: np.ndarray


@noalloc_kernel
def gain_of_sums(weights, total):
    """Gain of the sums of one row."""
    gain = 0.0
    for output in range(len(weights)):
        gain += weights[output] * total[output]
    return gain


@noalloc_kernel
def has_label(judge, row, semantics, label):
    """Whether a row, whose sums are in ``judge.total``, has a label: YES, NO or MAYBE."""
    aim, total = judge.aim, judge.total[row]
    if len(semantics.start) == 1:
        # One sum, two classes: its need is what decides for the class of the question.
        weights = aim.second if row == 1 else aim.first
        is_met = gain_of_sums(weights, total) >= aim.need[row]
        return YES if is_met == (label == aim.label[row]) else NO
    return wins(total, label, tie_slack(total, semantics), semantics)


@noalloc_kernel
def finish_row(total, semantics):
    """Turn the sums of several outputs into what the link is applied to, in place."""
    if len(semantics.start) > 1:
        for output in range(len(semantics.start)):
            total[output] = divided(finished(total, output, semantics), semantics)


@noalloc_kernel
def judge_pair(judge):
    """Whether the rows in ``judge.cells`` are what is sought (BROKEN), or not, or AMBIGUOUS.

    In the library's own arithmetic, rounding included.
    """
    aim, total = judge.aim, judge.total
    first, second = judge.forest.first, judge.forest.second
    accumulate_cells(first, judge.row, judge.cells, total[0])
    for feature in range(len(judge.forest.copies.column)):
        judge.second[feature] = judge.cells[judge.forest.copies.column[feature]]
    accumulate_cells(second, judge.row, judge.second, total[1])
    if aim.mode == BOTH:
        one, other = gain_of_sums(aim.first, total[0]), gain_of_sums(aim.second, total[1])
        return BROKEN if one >= aim.need[0] and other >= aim.need[1] else HOLDS
    finish_row(total[0], first.semantics)
    finish_row(total[1], second.semantics)
    answer = HOLDS
    for label in range(max(total.shape[1], 2)):
        one = has_label(judge, 0, first.semantics, label)
        other = has_label(judge, 1, second.semantics, label)
        if (one == YES and other == NO) or (one == NO and other == YES):
            return BROKEN
        if one != other:
            answer = AMBIGUOUS
    return answer


@noalloc_kernel
def write_cells(judge, problem, point):
    """Cells of all columns at a point; False when related columns do not go together."""
    cells, nearest, column = judge.cells, judge.nearest, judge.forest.copies.column
    copy_into(cells, nearest)
    for slot in range(problem.n_slots):
        at = problem.slots[slot, FEATURE]
        low = problem.cells[point[slot], LOW]
        cells[at] = min(max(nearest[at], low), problem.cells[point[slot], HIGH])
    for number in range(len(judge.link)):
        feature = judge.link[number, 2]
        start = judge.forest.copies.relation_start[feature] + cells[feature]
        other = cells[column[feature]]
        if (
            not judge.forest.copies.relation[start, LOW]
            <= other
            <= judge.forest.copies.relation[start, HIGH]
        ):
            return False
    return True


@noalloc_kernel
def relate(copies, link, problem, state):
    """Drop end cells of each copy that go with no cell of the other; False when none is left."""
    box, cells, relation = state.box, problem.cells, copies.relation
    for number in range(len(link)):
        one, other = link[number, 0], link[number, 1]
        start = copies.relation_start[link[number, 2]]
        least = relation[start + cells[box[one, LOW], LOW], LOW]
        most = relation[start + cells[box[one, HIGH], HIGH], HIGH]
        while box[other, LOW] <= box[other, HIGH] and cells[box[other, LOW], HIGH] < least:
            box[other, LOW] += 1
        while box[other, LOW] <= box[other, HIGH] and cells[box[other, HIGH], LOW] > most:
            box[other, HIGH] -= 1
        if box[other, LOW] > box[other, HIGH]:
            return False
        least = cells[box[other, LOW], LOW]
        most = cells[box[other, HIGH], HIGH]
        while (
            box[one, LOW] <= box[one, HIGH]
            and relation[start + cells[box[one, LOW], HIGH], HIGH] < least
        ):
            box[one, LOW] += 1
        while (
            box[one, LOW] <= box[one, HIGH]
            and relation[start + cells[box[one, HIGH], LOW], LOW] > most
        ):
            box[one, HIGH] -= 1
        if box[one, LOW] > box[one, HIGH]:
            return False
    return True


@noalloc_kernel
def floor_of(aim, best):
    """Gain below which a box is of no interest; see `maximise` for the gain of needs."""
    if aim.mode != VALUE:
        return 0.0
    if aim.ends[2] > 0.0:
        return aim.ends[0]
    if best.value[0] == -np.inf:
        return LOWEST
    value = best.value[0]
    return max(value + max(aim.gap, aim.share * value), aim.ends[0])


@noalloc_kernel
def propose(problem, state, objective, judge, best, score):
    """Try the best-scored point of the box after some ascent; returns what `judge_pair` says."""
    decode(problem, state, score, objective.cost, objective.point)
    return consider(problem, state, objective, judge, best, np.int64(ROUNDS))


@noalloc_kernel
def consider(problem, state, objective, judge, best, rounds):
    """Judge `objective.point` after some rounds of ascent; what is sought, or better, is kept."""
    value = climb(problem, state, objective, rounds)
    best.counts[2] += 1
    if judge.aim.mode == VALUE:
        if not value > best.value[0]:
            return HOLDS
    elif value < 0.0:
        return HOLDS
    if not write_cells(judge, problem, objective.point):
        return HOLDS
    verdict = np.int64(BROKEN)
    if judge.aim.mode != VALUE:
        verdict = np.int64(judge_pair(judge))
    if verdict == BROKEN:
        best.value[0] = value
        best.is_found[0] = True
        copy_into(best.cells, judge.cells)
        if judge.aim.mode == VALUE and value <= judge.aim.ends[1]:
            verdict = np.int64(BETTER)
    return verdict


@inner_kernel
def reweigh(problem, parts, weight):
    """The problem of a mixture of both gains; arrays are overwritten in place.

    Sound: each product and sum errs by a part of the magnitudes, which are counted in `gross`.
    """
    rest = 1.0 - weight
    for leaf in range(len(problem.leaf_gain)):
        problem.leaf_gain[leaf] = (
            weight * parts.leaf_gain[0, leaf] + rest * parts.leaf_gain[1, leaf]
        )
    for cell in range(len(problem.unary)):
        problem.unary[cell] = weight * parts.unary[0, cell] + rest * parts.unary[1, cell]
    problem.terms[BASE] = weight * parts.base[0] + rest * parts.base[1]
    problem.terms[GROSS] = weight * parts.gross[0] + rest * parts.gross[1]
    return problem


@noalloc_kernel
def is_first_ahead(problem, parts, state, objective):
    """Whether the first gain is the larger one at the point that the present bound prefers.

    Then less weight for it lowers the bound. A guess only: the weight is free.
    """
    decode(problem, state, state.marginal, objective.cost, objective.point)
    ahead = parts.base[0] - parts.base[1]
    for slot in range(problem.n_slots):
        ahead += parts.unary[0, objective.point[slot]] - parts.unary[1, objective.point[slot]]
    for factor in range(problem.n_factors):
        ahead += factor_lead(problem, parts, objective, factor)
    return ahead > 0.0


@noalloc_kernel
def factor_lead(problem, parts, objective, factor):
    """First gain minus second gain of a factor's leaf at `objective.point`."""
    first = problem.factors[factor, 0]
    last = problem.factors[factor + 1, 0]
    width = problem.factors[factor + 1, 2] - problem.factors[factor, 2]
    entry = problem.factors[factor, 1]
    for leaf in range(first, last):
        is_here = True
        for step in range(width):
            pair = problem.factors[factor, 2] + step
            cell = objective.point[problem.pairs[pair, 0]]
            start = problem.pairs[pair, 2]
            low = problem.segments[start + problem.entries[entry + step, LOW], LOW]
            high = problem.segments[start + problem.entries[entry + step, HIGH], HIGH]
            if cell < low or cell > high:
                is_here = False
                break
        entry += width
        if is_here:
            return parts.leaf_gain[0, leaf] - parts.leaf_gain[1, leaf]
    return 0.0


@inner_kernel
def weigh_root(problem, parts, state, objective, judge, best):
    """A weight that makes the root's bound small, by bisection of the slope.

    Returns the weight, the problem with it, and whether what is sought was found on the way.
    """
    low = 0.0
    high = 1.0
    weight = 0.5
    least_weight = 0.5
    least = np.inf
    for _ in range(WEIGHT_STEPS):
        problem = reweigh(problem, parts, weight)
        enter_box(problem, state)
        bound, error = refresh(problem, state)
        for turn in range(6):
            bound = sweep(problem, state, turn % 2 == 0, bound, LOWEST)
            best.counts[1] += 1
        bound, error = refresh(problem, state)
        if bound + error < least:
            least = bound + error
            least_weight = weight
        if least < 0.0:
            break
        marginals(problem, state)
        if propose(problem, state, objective, judge, best, state.marginal) == BROKEN:
            return weight, problem, True
        if is_first_ahead(problem, parts, state, objective):
            high = weight
        else:
            low = weight
        weight = 0.5 * (low + high)
    problem = reweigh(problem, parts, least_weight)
    return least_weight, problem, False


@inner_kernel
def adapt_weight(problem, parts, state, objective, best, above, weight):
    """Look for a weight with a smaller bound in the state's box, from that of the last one on.

    Returns the problem with the best weight seen, the weight, the smallest bound seen, and the one
    that ``marginal`` belongs to.
    """
    step = 0.5
    for _ in range(NODE_WEIGHT_STEPS):
        towards = 0.0 if is_first_ahead(problem, parts, state, objective) else 1.0
        tried = np.rint(PARTS_OF_WEIGHT * (weight + step * (towards - weight))) / PARTS_OF_WEIGHT
        if tried == weight:
            break
        problem = reweigh(problem, parts, tried)
        enter_box(problem, state)
        bound, error = refresh(problem, state)
        for turn in range(2):
            bound = sweep(problem, state, turn == 0, bound, LOWEST)
            best.counts[1] += 1
        bound, error = refresh(problem, state)
        if bound + 2.0 * error < above:
            above = bound + 2.0 * error
            weight = tried
            if above < 0.0:
                return problem, weight, above, above
        else:
            step *= 0.5
        marginals(problem, state)
    problem = reweigh(problem, parts, weight)
    enter_box(problem, state)
    bound, error = refresh(problem, state)
    marginals(problem, state)
    here = bound + 2.0 * error
    return problem, weight, min(above, here), here


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
    if judge.aim.mode == VALUE and best.tries[1] <= best.tries[0]:
        return np.int64(HOLDS)
    verdict = np.int64(propose(problem, state, objective, judge, best, state.marginal))
    best.tries[0] = 0 if verdict == BETTER else min(best.tries[0] + 1, LONGEST_REST)
    best.tries[1] = 0
    return verdict


@noalloc_kernel
def work_on(problem, state, objective, judge, best, patience):
    """Work on the state's box until it is closed, has to be split, or shows what is sought.

    Returns CLOSED, SPLIT or VIOLATED; a bound of all points of the box as it was, and of those
    that are left in it.
    """
    aim = judge.aim
    floor = floor_of(aim, best)
    if not relate(judge.forest.copies, judge.link, problem, state):
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
        best.counts[1] += 1
        turn += 1
        if bound < floor and turn < limit:
            continue
        if is_root and turn in (1, 4, 12):
            if propose(problem, state, objective, judge, best, state.rest) == BROKEN:
                return VIOLATED, np.inf, np.inf
            floor = floor_of(aim, best)
        if turn < limit and (turn < 2 or bound - floor <= patience * (before - bound)):
            continue
        bound, error = refresh(problem, state)
        if bound + error < floor:
            return CLOSED, max(bound + error, dropped), -np.inf
        marginals(problem, state)
        if try_point(problem, state, objective, judge, best) == BROKEN:
            return VIOLATED, np.inf, np.inf
        floor = floor_of(aim, best)
        # Sound: with a cell fixed the bound is bound + marginal, each within error of exact.
        kept = eliminate(problem, state, bound + 2.0 * error, floor)
        if kept < 1.0:
            dropped = floor
        if kept == 0.0 or not relate(judge.forest.copies, judge.link, problem, state):
            return CLOSED, max(floor, dropped), -np.inf
        if kept > WORTH_ANOTHER_TRY:
            return SPLIT, dropped, bound + 2.0 * error
        enter_box(problem, state)
        bound, error = refresh(problem, state)
        turn = 0


@inner_kernel
def free_objective(problem):
    """Scratch of points; nothing costs anything, and ascent goes on to the top."""
    n_cells, found = len(problem.unary), new_found(0)
    costs = np.zeros(n_cells, dtype=np.float64), np.zeros((n_cells, 2), dtype=np.int32), 0.0
    return new_objective(
        problem, nearest_of(np.bool_(True), np.inf, found.is_open), np.inf, 0.0,
        (np.int64(1), np.int64(0)), costs,
        np.empty(0, dtype=np.int32), Elsewhere(0.0, 0.0, np.int64(0)), found,
    )  # fmt: skip


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
def split_relation(copies, link, problem, state):
    """Where to split related columns of which not all cells go together; slot -1 if all do.

    A staircase tells cells apart only where its steps begin.
    """
    box, cells, relation = state.box, problem.cells, copies.relation
    for number in range(len(link)):
        one, other = link[number, 0], link[number, 1]
        start = copies.relation_start[link[number, 2]]
        if (
            relation[start + cells[box[one, LOW], LOW], HIGH] >= cells[box[other, HIGH], HIGH]
            and relation[start + cells[box[one, HIGH], HIGH], LOW] <= cells[box[other, LOW], LOW]
        ):
            continue
        slot = one if box[one, LOW] < box[one, HIGH] else other
        if box[slot, LOW] < box[slot, HIGH]:
            return slot, np.int64((box[slot, LOW] + box[slot, HIGH]) // 2)
    return np.int64(-1), np.int64(0)


@noalloc_kernel
def part_peak(state, slot, cell, is_right):
    """Largest marginal of the cells of a slot right of a cut, or left of it."""
    low = cell + 1 if is_right else state.box[slot, LOW]
    high = state.box[slot, HIGH] if is_right else cell
    peak = state.marginal[low]
    for other in range(low + 1, high + 1):
        peak = max(peak, state.marginal[other])
    return peak


@inner_kernel
def is_worthless(problem, state, leaves, box):
    """Whether no pair of leaves that meets the state's box gains anything; see `settle_tie`."""
    row = np.empty(2 * len(box.low), dtype=np.int32)
    write_box(problem, state, box, row)
    return gains_nothing(leaves, row[: len(box.low)], row[len(box.low) :])


@noalloc_kernel
def find_cut(problem, state, objective, judge, best, gap):
    """Where to split the state's box; or, where one pair of leaves is left, what it shows.

    Returns the cut (slot, -1 without one; last cell of its left part; what is cut off the left and
    the right part), whether cells beyond the gap have left the box, and the verdict about the pair.
    """
    slot, cell, off_left, off_right = choose_split(problem, state, gap, best.learned)
    is_trimmed = slot < 0
    verdict = np.int64(HOLDS)
    if slot < 0:
        slot, cell = split_relation(judge.forest.copies, judge.link, problem, state)
    if slot < 0:
        # One pair of leaves is left in every tree, and related columns go together.
        for other in range(problem.n_slots):
            objective.point[other] = state.box[other, LOW]
        verdict = np.int64(consider(problem, state, objective, judge, best, np.int64(0)))
        # Sound: the point is one of many, since trees of other classes may tell the box apart; it
        # stands for all of them only where the needs of these two classes are not met.
        is_partial = judge.aim.mode == LABELS and not judge.forest.has_all_trees
        if verdict == HOLDS and is_partial and climb(problem, state, objective, np.int64(0)) >= 0.0:
            verdict = np.int64(AMBIGUOUS)
    return (np.int64(slot), np.int64(cell), off_left, off_right), is_trimmed, verdict


@noalloc_kernel
def cut_in_two(boxes, problem, state, split, cut, above):
    """Keep the more promising part of the state's box, and put the other one aside.

    split  float64 (5,)  what is known of the box, with PARENT the bound that its marginals belong
                         to; then what is known of the part that is kept
    cut                  slot, last cell of its left part, what is cut off the left and right part
    above  float64       a bound of the box
    """
    slot, cell, off_left, off_right = cut
    is_right = peaks_right(state, slot, cell)
    # Sound: the part without the best cell costs at least what its own best cell does.
    other = min(part_peak(state, slot, cell, not is_right), 0.0)
    place = add_place(boxes, min(above, split[PARENT] + other))
    save_state(boxes, place, state)
    known = boxes.known[place]
    known[WEIGHT], known[PARENT] = split[WEIGHT], split[PARENT]
    side = 2 * np.int64(problem.slots[slot, FEATURE])
    if is_right:
        boxes.box[place, len(state.box) + slot] = cell
        state.box[slot, LOW] = cell + 1
        known[SIDE], known[CUT_OFF] = side, off_left
        split[SIDE], split[CUT_OFF] = side + 1, off_right
    else:
        boxes.box[place, slot] = cell + 1
        state.box[slot, HIGH] = cell
        known[SIDE], known[CUT_OFF] = side + 1, off_right
        split[SIDE], split[CUT_OFF] = side, off_left


@inner_kernel
def count_box(best, budget, has_room):
    """Count one more box; returns PROVED, or the limit that is reached with it."""
    clock = np.empty(2, dtype=np.int64)
    best.counts[0] += 1
    if not has_room:
        return MEMORY_LIMIT
    if best.counts[0] > budget.nodes:
        return NODE_LIMIT
    if best.counts[0] > 1 and seconds_now(clock) > budget.deadline:
        return TIME_LIMIT
    return PROVED


@inner_kernel
def maximise(problem, parts, box, judge, best, budget, frontier, bounds):
    """Search a problem for its largest value, or for what is sought; ``best`` is always valid.

    With needs, the gain is what exceeds them, slack included, so that what is sought has a gain of
    at least 0.

    box       CellBox           of the problem
    frontier  Frontier          receives boxes that have shrunk so much that trees of their own pay;
                                the box that was taken last is that of the problem
    bounds    float64, float64  one that is known, infinite for the whole question; and one below
                                which boxes are left to the frontier as well

    Returns a status: PROVED when the bound below is within the gap of the value, or below all
    needs, FOUND with what is sought, NEAR_TIE, or the limit that was reached; a bound of all points
    but those handed over; and the frontier.
    """
    aim = judge.aim
    state = new_state(problem)
    inherit(frontier, problem, state)
    objective = free_objective(problem)
    boxes = new_open_boxes(len(state.multiplier), problem.n_slots)
    ceiling = -np.inf
    is_near_tie = False
    is_mixed = len(parts.base) > 0
    weight = 0.5
    if is_mixed:
        weight, problem, is_found = weigh_root(problem, parts, state, objective, judge, best)
        if is_found:
            return FOUND, np.inf, frontier
    above, goal = bounds
    patience = ROOT_PATIENCE if above == np.inf else PATIENCE
    is_inner = False
    split = np.zeros(5, dtype=np.float64)  # what is known of the box at hand
    while True:
        boxes, has_room = with_places(boxes, budget.memory_bytes)
        if has_room:
            frontier, has_room = with_room_for(frontier, problem, budget.memory_bytes)
        status = count_box(best, budget, has_room)
        if status != PROVED:
            return status, max(above, ceiling, top_bound(boxes)), frontier
        outcome, closed, left = work_on(problem, state, objective, judge, best, patience)
        if outcome == VIOLATED:
            return FOUND, np.inf, frontier
        ceiling = max(ceiling, min(closed, above))
        above = min(above, left)
        learn(best.learned, split, left if outcome == SPLIT else floor_of(aim, best))
        here = left  # the bound that the marginals belong to; that of the box may be smaller
        if outcome == SPLIT and is_mixed:
            problem, weight, left, here = adapt_weight(
                problem, parts, state, objective, best, left, weight
            )
            # Sound: below 0 with some weight, no point of the box passes both needs.
            outcome = CLOSED if left < 0.0 else SPLIT
            above = min(above, left)
        elif (
            outcome == SPLIT
            and aim.ends[2] > 0.0
            and is_worthless(problem, state, judge.leaves, box)
        ):
            outcome = CLOSED
        elif outcome == SPLIT and is_inner and (above < goal or is_shrunk(problem, state)):
            # It is searched with trees of its own.
            place = leave(frontier, problem, state, above)
            write_box(problem, state, box, frontier.boxes.box[place])
            outcome = CLOSED
        patience, is_inner = PATIENCE, True
        cut = (np.int64(-1), np.int64(0), 0.0, 0.0)
        if outcome == SPLIT:
            gap = here - floor_of(aim, best)
            cut, is_trimmed, verdict = find_cut(problem, state, objective, judge, best, gap)
            if verdict == BROKEN:
                return FOUND, np.inf, frontier
            is_near_tie = is_near_tie or verdict == AMBIGUOUS
            if cut[0] < 0 and aim.ends[2] > 0.0:
                # Trees that cancel are left out, so that rounding differs from point to point.
                return NEAR_TIE, above, frontier
            if is_trimmed:
                # Sound: cells that cost too much are below the floor, and no longer in the box. All
                # points left of a single pair of leaves have the value just considered; with needs,
                # no tree is left out, so that they have the very sums just judged.
                ceiling = max(ceiling, min(above, floor_of(aim, best)))
            if cut[0] < 0:
                outcome = CLOSED
        if outcome == SPLIT:
            split[WEIGHT], split[PARENT] = weight, here
            cut_in_two(boxes, problem, state, split, cut, above)
            if is_mixed or above >= top_bound(boxes):
                continue
            place = add_place(boxes, above)
            save_state(boxes, place, state)
            split[BOUND] = above
            copy_into(boxes.known[place], split)
        if boxes.size[0] > 0:
            place = take_place(boxes)
            load_state(boxes, place, state)
            copy_into(split, boxes.known[place])
            above, weight = split[BOUND], split[WEIGHT]
            if is_mixed:
                problem = reweigh(problem, parts, weight)
            if above >= floor_of(aim, best):
                continue
            ceiling = max(ceiling, above)  # Sound: no other open box has a larger bound
        return NEAR_TIE if is_near_tie else PROVED, ceiling, frontier
