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

from treeproof.kernels.core.arrays import copy_into, grow_table, grown
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import (
    AMBIGUOUS,
    BROKEN,
    HOLDS,
    NO,
    YES,
    add,
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
from treeproof.kernels.exact.dual import LOWEST, enter_box, marginals, refresh, sweep
from treeproof.kernels.exact.pairs import child_of
from treeproof.kernels.exact.primal import Target, climb, decode, new_holders
from treeproof.kernels.exact.problem import BASE, FEATURE, GROSS, HIGH, LOW
from treeproof.kernels.exact.search import (
    choose_branch,
    count_boundaries,
    eliminate,
    peaks_right,
)

VALUE, BOTH, LABELS = 0, 1, 2
"""What is sought: the largest value; a pair that passes both needs; two labels that differ."""

OPTIMAL, BELOW, DECIDED = 0, 1, 2
"""When the search for the largest value ends."""

CLOSED, SPLIT, VIOLATED = 0, 1, 2
BETTER = 3
"""Beside the verdicts of `judge_pair`: a point that is better than the best one known."""
ROOT_SWEEPS, NODE_SWEEPS = 60, 30
WORTH_ANOTHER_TRY = 0.8
PATIENCE = 5.0
ROOT_PATIENCE = 40.0
"""Sweeping ends when that many more sweeps like the last one would not close the box."""
ROUNDS = 4
"""Rounds of ascent from each point that is tried."""
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
    ends           float64 (2,)          VALUE: what is below the first is of no interest, and more
                                         than the second one decides; written by `solve_pair`
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
    """

    value: np.ndarray
    upper: np.ndarray
    is_found: np.ndarray
    cells: np.ndarray
    counts: np.ndarray


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


class Pool(NamedTuple):
    """Open boxes, as a heap by bound.

    multiplier  float32 (capacity, n_segments)   any numbers give a bound: half the digits will do
    box         int32   (capacity, 2 * n_slots)
    bound       float64 (capacity, 2)            bound, weight of the first gain
    heap        int64   (capacity,)              places, the largest bound first
    size        int64   (1,)                     open boxes; the places of heap beyond are free
    """

    multiplier: np.ndarray
    box: np.ndarray
    bound: np.ndarray
    heap: np.ndarray
    size: np.ndarray


@inner_kernel
def new_pool(state, capacity):
    """Empty pool."""
    heap = np.empty(capacity, dtype=np.int64)
    for place in range(capacity):
        heap[place] = place
    return Pool(
        np.empty((capacity, len(state.multiplier)), dtype=np.float32),
        np.empty((capacity, 2 * len(state.box)), dtype=np.int32),
        np.empty((capacity, 2), dtype=np.float64),
        heap,
        np.zeros(1, dtype=np.int64),
    )


@inner_kernel
def with_place(pool, memory_bytes):
    """The pool, in larger arrays when it is full, and whether the memory allows for one more."""
    size = pool.size[0]
    if size < len(pool.heap):
        return pool, True
    if 8.0 * size * (pool.multiplier.shape[1] + pool.box.shape[1] + 6) > memory_bytes:
        return pool, False
    heap = grown(pool.heap, 2 * size)
    for place in range(size, len(heap)):
        heap[place] = place
    larger = Pool(
        grow_table(pool.multiplier, 2 * size), grow_table(pool.box, 2 * size),
        grow_table(pool.bound, 2 * size), heap, pool.size,
    )  # fmt: skip
    return larger, True


@noalloc_kernel
def put_box(pool, state, bound, weight):
    """Add the state's box and multipliers to a pool that has room; returns its place."""
    at = pool.size[0]
    place = pool.heap[at]
    for index in range(len(state.multiplier)):
        pool.multiplier[place, index] = state.multiplier[index]
    n_slots = len(state.box)
    for slot in range(n_slots):
        pool.box[place, slot] = state.box[slot, LOW]
        pool.box[place, n_slots + slot] = state.box[slot, HIGH]
    pool.bound[place, 0] = bound
    pool.bound[place, 1] = weight
    pool.size[0] = at + 1
    while at > 0:
        above = (at - 1) // 2
        if pool.bound[pool.heap[above], 0] >= bound:
            break
        pool.heap[at] = pool.heap[above]
        pool.heap[above] = place
        at = above
    return place


@noalloc_kernel
def take_box(pool, state):
    """Take the box with the largest bound out of a pool; returns its bound and weight."""
    place = pool.heap[0]
    size = pool.size[0] - 1
    pool.size[0] = size
    moved = pool.heap[size]
    pool.heap[size] = place
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and (
            pool.bound[pool.heap[below + 1], 0] > pool.bound[pool.heap[below], 0]
        ):
            below += 1
        if pool.bound[pool.heap[below], 0] <= pool.bound[moved, 0]:
            break
        pool.heap[at] = pool.heap[below]
        at = below
    if size > 0:
        pool.heap[at] = moved
    for index in range(len(state.multiplier)):
        state.multiplier[index] = pool.multiplier[place, index]
    n_slots = len(state.box)
    for slot in range(n_slots):
        state.box[slot, LOW] = pool.box[place, slot]
        state.box[slot, HIGH] = pool.box[place, n_slots + slot]
    return pool.bound[place, 0], pool.bound[place, 1]


class PairJudge(NamedTuple):
    """What decides whether a pair of rows is what is sought.

    tests, copies  see pairs.py
    semantics      Semantics of the first and of the second row's model
    aim            Aim
    nearest        int32   (n_columns,)  cells that a point takes where nothing else is asked for
    link           int64   (n, 3)        slots of both copies of related features, and the feature
    cells          int32   (n_columns,)  scratch
    total          float64 (2, n_outputs)  scratch
    """

    tests: NamedTuple
    copies: NamedTuple
    semantics: tuple[NamedTuple, NamedTuple]
    aim: Aim
    nearest: np.ndarray
    link: np.ndarray
    cells: np.ndarray
    total: np.ndarray


@noalloc_kernel
def sum_of_leaves(tests, copies, semantics, cells, is_second, total):
    """Sum the leaves of one row of a pair, in tree order and the library's precision."""
    trees = tests.trees
    n_outputs = len(semantics.start)
    for output in range(n_outputs):
        total[output] = semantics.start[output]
    for tree in range(len(trees.tree_output)):
        node = np.int64(trees.root[tree])
        while trees.feature[node] >= 0:
            column = trees.feature[node]
            if is_second:
                column = copies.column[column]
            run = tests.run_start[node]
            while tests.runs[run, HIGH] < cells[column]:
                run += 1
            node = np.int64(child_of(tests, node, run))
        leaf = trees.leaf[node]
        output = trees.tree_output[tree]
        if output >= 0:
            total[output] = add(total[output], trees.leaf_value[leaf, 0], semantics.is_single)
        else:
            for other in range(n_outputs):
                value = trees.leaf_value[leaf, other]
                total[other] = add(total[other], value, semantics.is_single)


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
    first, second = judge.semantics
    sum_of_leaves(judge.tests, judge.copies, first, judge.cells, False, total[0])
    sum_of_leaves(judge.tests, judge.copies, second, judge.cells, True, total[1])
    if aim.mode == BOTH:
        one, other = gain_of_sums(aim.first, total[0]), gain_of_sums(aim.second, total[1])
        return BROKEN if one >= aim.need[0] and other >= aim.need[1] else HOLDS
    finish_row(total[0], first)
    finish_row(total[1], second)
    answer = HOLDS
    for label in range(max(total.shape[1], 2)):
        one = has_label(judge, 0, first, label)
        other = has_label(judge, 1, second, label)
        if (one == YES and other == NO) or (one == NO and other == YES):
            return BROKEN
        if one != other:
            answer = AMBIGUOUS
    return answer


@noalloc_kernel
def write_cells(judge, problem, point):
    """Cells of all columns at a point; False when related columns do not go together."""
    cells, nearest, column = judge.cells, judge.nearest, judge.copies.column
    copy_into(cells, nearest)
    for slot in range(problem.n_slots):
        at = problem.slots[slot, FEATURE]
        low = problem.cells[point[slot], LOW]
        cells[at] = min(max(nearest[at], low), problem.cells[point[slot], HIGH])
    for number in range(len(judge.link)):
        feature = judge.link[number, 2]
        start = judge.copies.relation_start[feature] + cells[feature]
        other = cells[column[feature]]
        if not judge.copies.relation[start, LOW] <= other <= judge.copies.relation[start, HIGH]:
            return False
    return True


@noalloc_kernel
def relate(judge, problem, state):
    """Drop end cells of each copy that go with no cell of the other; False when none is left."""
    box, cells, relation = state.box, problem.cells, judge.copies.relation
    for number in range(len(judge.link)):
        one, other = judge.link[number, 0], judge.link[number, 1]
        start = judge.copies.relation_start[judge.link[number, 2]]
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
    if best.value[0] == -np.inf:
        return LOWEST
    value = best.value[0]
    return max(value + max(aim.gap, aim.share * value), aim.ends[0])


@noalloc_kernel
def propose(problem, state, target, judge, best, score):
    """Try the best-scored point of the box after some ascent; returns what `judge_pair` says."""
    decode(problem, state, score, target.distance, target.point)
    return consider(problem, state, target, judge, best, np.int64(ROUNDS))


@noalloc_kernel
def consider(problem, state, target, judge, best, rounds):
    """Judge `target.point` after some rounds of ascent; what is sought, or better, is kept."""
    value = climb(problem, state, target, rounds)
    best.counts[2] += 1
    if judge.aim.mode == VALUE:
        if not value > best.value[0]:
            return HOLDS
    elif value < 0.0:
        return HOLDS
    if not write_cells(judge, problem, target.point):
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
def is_first_ahead(problem, parts, state, target):
    """Whether the first gain is the larger one at the point that the present bound prefers.

    Then less weight for it lowers the bound. A guess only: the weight is free.
    """
    decode(problem, state, state.marginal, target.distance, target.point)
    ahead = parts.base[0] - parts.base[1]
    for slot in range(problem.n_slots):
        ahead += parts.unary[0, target.point[slot]] - parts.unary[1, target.point[slot]]
    for factor in range(problem.n_factors):
        ahead += factor_lead(problem, parts, target, factor)
    return ahead > 0.0


@noalloc_kernel
def factor_lead(problem, parts, target, factor):
    """First gain minus second gain of a factor's leaf at `target.point`."""
    first = problem.factors[factor, 0]
    last = problem.factors[factor + 1, 0]
    width = problem.factors[factor + 1, 2] - problem.factors[factor, 2]
    entry = problem.factors[factor, 1]
    for leaf in range(first, last):
        is_here = True
        for step in range(width):
            pair = problem.factors[factor, 2] + step
            cell = target.point[problem.pairs[pair, 0]]
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
def weigh_root(problem, parts, state, target, judge, best):
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
        if propose(problem, state, target, judge, best, state.marginal) == BROKEN:
            return weight, problem, True
        if is_first_ahead(problem, parts, state, target):
            high = weight
        else:
            low = weight
        weight = 0.5 * (low + high)
    problem = reweigh(problem, parts, least_weight)
    return least_weight, problem, False


@inner_kernel
def adapt_weight(problem, parts, state, target, best, above, weight):
    """Look for a weight with a smaller bound in the state's box, from that of the last one on.

    Returns the problem with the best weight seen, the weight, the smallest bound seen, and the one
    that ``marginal`` belongs to.
    """
    step = 0.5
    for _ in range(NODE_WEIGHT_STEPS):
        towards = 0.0 if is_first_ahead(problem, parts, state, target) else 1.0
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
def work_on(problem, state, target, judge, best, is_root):
    """Work on the state's box until it is closed, has to be split, or shows what is sought.

    Returns CLOSED, SPLIT or VIOLATED; a bound of all points of the box as it was, and of those
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
    limit = ROOT_SWEEPS if is_root else NODE_SWEEPS
    patience = ROOT_PATIENCE if is_root else PATIENCE
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
            if propose(problem, state, target, judge, best, state.rest) == BROKEN:
                return VIOLATED, np.inf, np.inf
            floor = floor_of(aim, best)
        if turn < limit and (turn < 2 or bound - floor <= patience * (before - bound)):
            continue
        bound, error = refresh(problem, state)
        if bound + error < floor:
            return CLOSED, max(bound + error, dropped), -np.inf
        marginals(problem, state)
        if propose(problem, state, target, judge, best, state.marginal) == BROKEN:
            return VIOLATED, np.inf, np.inf
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


@inner_kernel
def new_target(problem):
    """Scratch of points; nothing is near or far, and ascent goes on to the top."""
    n_cells = len(problem.unary)
    return Target(
        np.inf,
        0.0,
        np.zeros(n_cells, dtype=np.float64),
        np.zeros(n_cells, dtype=np.bool_),
        np.zeros(1, dtype=np.float64),
        np.zeros(1, dtype=np.bool_),
        np.zeros(4, dtype=np.int64),
        np.zeros(problem.n_slots, dtype=np.int32),
        np.empty(n_cells, dtype=np.float64),
        np.zeros(1, dtype=np.int64),
        np.empty((problem.n_slots, 4), dtype=np.int32),
        new_holders(problem),
        np.empty(problem.n_slots, dtype=np.bool_),
    )


@noalloc_kernel
def choose_split(problem, state, gap):
    """As `choose_branch`, cut in the middle of the boundaries of the slot that has most of them."""
    best_slot = -1
    best_cell = 0
    most = 0.0
    for slot in range(problem.n_slots):
        low = state.box[slot, LOW]
        high = state.box[slot, HIGH]
        while low < high and state.marginal[low] < -gap:
            low += 1
        while high > low and state.marginal[high] < -gap:
            high -= 1
        count_boundaries(problem, state, slot, low, high)
        total = 0.0
        for cell in range(low, high):
            total += state.scratch[cell]
        left = 0.0
        for cell in range(low, high):
            here = state.scratch[cell]
            left += here
            if here > 0.0 and min(left, total - left + here) > most:
                most = min(left, total - left + here)
                best_slot = slot
                best_cell = cell
    if best_slot < 0:
        return choose_branch(problem, state, gap)
    return best_slot, best_cell


@noalloc_kernel
def split_relation(judge, problem, state):
    """Where to split related columns of which not all cells go together; slot -1 if all do.

    A staircase tells cells apart only where its steps begin.
    """
    box, cells, relation = state.box, problem.cells, judge.copies.relation
    for number in range(len(judge.link)):
        one, other = judge.link[number, 0], judge.link[number, 1]
        start = judge.copies.relation_start[judge.link[number, 2]]
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
def maximise(problem, parts, state, judge, best, budget):
    """Search a problem for its largest value, or for what is sought; ``best`` is always valid.

    With needs, the gain is what exceeds them, slack included, so that what is sought has a gain of
    at least 0.

    Returns PROVED when `best.upper` bounds everything and, without needs, is within the gap of the
    value; FOUND with what is sought; or the limit that was reached.
    """
    clock = np.empty(2, dtype=np.int64)
    aim = judge.aim
    target = new_target(problem)
    pool = new_pool(state, np.int64(8))
    ceiling = -np.inf
    is_near_tie = False
    is_mixed = len(parts.base) > 0
    weight = 0.5
    if is_mixed:
        weight, problem, is_found = weigh_root(problem, parts, state, target, judge, best)
        if is_found:
            return FOUND
    above = np.inf  # a bound of the box at hand
    is_root = np.bool_(True)
    while True:
        best.counts[0] += 1
        status = PROVED
        if best.counts[0] > budget.nodes:
            status = NODE_LIMIT
        elif not is_root and seconds_now(clock) > budget.deadline:
            status = TIME_LIMIT
        if status != PROVED:
            if pool.size[0] > 0:
                above = max(above, pool.bound[pool.heap[0], 0])
            best.upper[0] = min(best.upper[0], max(above, ceiling, best.value[0]))
            return status
        outcome, closed, left = work_on(problem, state, target, judge, best, is_root)
        if outcome == VIOLATED:
            return FOUND
        ceiling = max(ceiling, min(closed, above))
        above = min(above, left)
        is_root = np.bool_(False)
        slot = np.int64(-1)
        cell = np.int64(0)
        here = left  # the bound that the marginals belong to; that of the box may be smaller
        if outcome == SPLIT and is_mixed:
            problem, weight, left, here = adapt_weight(
                problem, parts, state, target, best, left, weight
            )
            # Sound: below 0 with some weight, no point of the box passes both needs.
            outcome = CLOSED if left < 0.0 else SPLIT
            above = min(above, left)
        if outcome == SPLIT:
            slot, cell = choose_split(problem, state, here - floor_of(aim, best))
            if slot < 0:
                # Sound: cells that cost too much are below the floor, and no longer in the box.
                ceiling = max(ceiling, min(above, floor_of(aim, best)))
                slot, cell = split_relation(judge, problem, state)
            if slot < 0:
                # One pair of leaves is left in every tree, and related columns go together.
                for other in range(problem.n_slots):
                    target.point[other] = state.box[other, LOW]
                verdict = consider(problem, state, target, judge, best, np.int64(0))
                if verdict == BROKEN:
                    return FOUND
                # Sound: all points left have the value just considered; with needs, no tree is left
                # out, so that they have the very sums just judged.
                ceiling = max(ceiling, min(above, floor_of(aim, best)))
                is_near_tie = is_near_tie or verdict == AMBIGUOUS
        if slot >= 0:
            pool, has_room = with_place(pool, budget.memory_bytes)
            if not has_room:
                above = max(above, pool.bound[pool.heap[0], 0])
                best.upper[0] = min(best.upper[0], max(above, ceiling, best.value[0]))
                return MEMORY_LIMIT
            is_right = peaks_right(state, slot, cell)
            # Sound: the part without the best cell costs at least what its own best cell does.
            other = min(part_peak(state, slot, cell, not is_right), 0.0)
            place = put_box(pool, state, min(above, here + other), weight)
            box = pool.box[place]
            if is_right:
                box[len(state.box) + slot] = cell
                state.box[slot, LOW] = cell + 1
            else:
                box[slot] = cell + 1
                state.box[slot, HIGH] = cell
            if is_mixed or above >= pool.bound[pool.heap[0], 0]:
                continue
            pool, has_room = with_place(pool, budget.memory_bytes)
            if not has_room:
                above = max(above, pool.bound[pool.heap[0], 0])
                best.upper[0] = min(best.upper[0], max(above, ceiling, best.value[0]))
                return MEMORY_LIMIT
            put_box(pool, state, above, weight)
        if pool.size[0] > 0:
            above, weight = take_box(pool, state)
            if is_mixed:
                problem = reweigh(problem, parts, weight)
            if above >= floor_of(aim, best):
                continue
            ceiling = max(ceiling, above)  # Sound: no other open box has a larger bound
        best.upper[0] = min(best.upper[0], max(ceiling, best.value[0]))
        return NEAR_TIE if is_near_tie else PROVED
