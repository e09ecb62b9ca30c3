"""Questions about pairs of rows, in batches: their leaves, the rounding, the search."""

import math
from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arithmetic import ldexp
from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.cells import CellBox
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.leaves import combination_up
from treeproof.kernels.core.status import FOUND, NEAR_TIE, PROVED
from treeproof.kernels.exact.conditions import weigh
from treeproof.kernels.exact.dual import new_state
from treeproof.kernels.exact.frontier import new_frontier, take
from treeproof.kernels.exact.objective import free_objective
from treeproof.kernels.exact.open_boxes import new_open_boxes, top_bound
from treeproof.kernels.exact.optimum import (
    BELOW,
    DECIDED,
    floor_of,
    maximise,
    new_best,
)
from treeproof.kernels.exact.pair_judge import VALUE, PairJudge
from treeproof.kernels.exact.pairs import (
    PairForest,
    gains_nothing,
    pair_leaves,
    rounding_slack,
    with_relations,
)
from treeproof.kernels.exact.primal import RESTRICTIONS, new_found
from treeproof.kernels.exact.problem import (
    BASE,
    FEATURE,
    GROSS,
    build_problem,
    new_conditions,
    of_conditions,
)
from treeproof.kernels.exact.search import Budget, search

FAR = 0.35
"""Part of the way from the value to the first bound of what has shrunk; what is above is far."""
TOO_LARGE = 7
"""The trees of pairs have more leaves than are allowed."""


@inner_kernel
def with_all_trees(forest):
    """The same models, of which no tree is left out."""
    return PairForest(forest.first, forest.second, forest.copies, forest.is_alike, np.bool_(True))


class PairBatch(NamedTuple):
    """Boxes that are asked about.

    low, high  int32 (n_rows, n_columns)  shared and changed features, then second copies
    nearest    int32 (n_rows, n_columns)  cells to prefer where nothing else is asked for
    """

    low: np.ndarray
    high: np.ndarray
    nearest: np.ndarray


class PairLimits(NamedTuple):
    """Limits of one box; leaves of all its trees of pairs."""

    time_s: float
    nodes: int
    memory_bytes: float
    leaves: int


class PairColumns(NamedTuple):
    """Results of a batch, one row each; see `Best` of optimum.py.

    slack  float64 (n_rows,)  rounding by which a deployed gain may exceed the exact one
    """

    status: np.ndarray
    value: np.ndarray
    upper: np.ndarray
    is_found: np.ndarray
    cells: np.ndarray
    counts: np.ndarray
    slack: np.ndarray
    seconds: np.ndarray


@noalloc_kernel
def largest_sum(leaves):
    """Sum over all trees of the largest gain of a pair, whatever its sign."""
    total = 0.0
    for tree in range(len(leaves.leaf_start) - 1):
        largest = 0.0
        for leaf in range(leaves.leaf_start[tree], leaves.leaf_start[tree + 1]):
            largest = max(largest, abs(leaves.first[leaf]) + abs(leaves.second[leaf]))
        total += largest
    return total


@noalloc_kernel
def start_gain(weights, start, need, slack):
    """Gain before any tree over a need, slack included, rounded up."""
    gain = combination_up(weights, start)
    return gain - need + slack + (abs(gain) + abs(need) + slack) * 2.0**-50


@inner_kernel
def linked_slots(problem, copies):
    """Slots of both copies of every related feature, and the feature: int64 (n, 3)."""
    n_features = len(copies.column)
    link = np.empty((n_features, 3), dtype=np.int64)
    count = 0
    for feature in range(n_features):
        if copies.relation_start[feature] == copies.relation_start[feature + 1]:
            continue
        link[count, 0] = -1
        link[count, 1] = -1
        link[count, 2] = feature
        for slot in range(problem.n_slots):
            if problem.slots[slot, FEATURE] == feature:
                link[count, 0] = slot
            if problem.slots[slot, FEATURE] == copies.column[feature]:
                link[count, 1] = slot
        # A feature with one cell has no range to tell: its relation always holds.
        if link[count, 0] >= 0 and link[count, 1] >= 0:
            count += 1
    return link[:count]


@inner_kernel
def build_pair(forest, aim, box, leaves, slack):
    """The problem of a box; of two needs it has the gains as conditions."""
    copies = forest.copies
    n_relations = 0
    for feature in range(len(copies.column)):
        if copies.relation_start[feature] < copies.relation_start[feature + 1]:
            n_relations += 1
    # A power of two is subtracted again without error; pairs outside of the set then lose more
    # than any pair can gain.
    bonus = ldexp(1.0, 2 + math.frexp(largest_sum(leaves))[1]) if n_relations else 0.0
    offset = n_relations * bonus
    if aim.mode == VALUE:
        joint = with_relations(leaves, copies, box, bonus, 1.0, 1.0)
        return build_problem(aim.offset - offset, joint, box)
    first = start_gain(aim.first, forest.first.semantics.start, aim.need[0], slack[0])
    second = start_gain(aim.second, forest.second.semantics.start, aim.need[1], slack[1])
    joint = with_relations(leaves, copies, box, bonus, 1.0, 0.0)
    problem = build_problem(first - offset, joint, box)
    table = new_conditions(np.int64(2), len(problem.unary), len(problem.leaf_gain))
    fill_condition(table, 0, problem)
    joint = with_relations(leaves, copies, box, bonus, 0.0, 1.0)
    # Only the gains differ.
    fill_condition(table, 1, build_problem(second - offset, joint, box))
    return of_conditions(problem, table)


@noalloc_kernel
def fill_condition(table, number, problem):
    """Make the terms of a problem those of a condition.

    Sound: the magnitude covers the rounding of weighted sums of two of them.
    """
    table.terms[number, BASE] = problem.terms[BASE]
    table.terms[number, GROSS] = 5.0 * problem.terms[GROSS]
    copy_into(table.unary[number], problem.unary)
    copy_into(table.gain[number], problem.leaf_gain)


@inner_kernel
def new_pair_judge(forest, aim, box, leaves, nearest, problem):
    """What judges pairs of a box; see `PairJudge`."""
    n_columns = len(nearest)
    inside = np.empty(n_columns, dtype=np.int32)
    for column in range(n_columns):
        inside[column] = min(max(nearest[column], box.low[column]), box.high[column])
    return PairJudge(
        forest, aim, inside, leaves, linked_slots(problem, forest.copies),
        np.empty(n_columns, dtype=np.int32),
        np.empty(len(forest.copies.column), dtype=np.int32),
        np.empty((2, max(len(aim.first), len(aim.second))), dtype=np.float64),
        np.empty(0, dtype=np.float64),
    )  # fmt: skip


@inner_kernel
def second_box(copies, box):
    """The box of the second row's features."""
    low = np.empty(len(copies.column), dtype=np.int32)
    high = np.empty(len(copies.column), dtype=np.int32)
    for feature in range(len(copies.column)):
        low[feature] = box.low[copies.column[feature]]
        high[feature] = box.high[copies.column[feature]]
    return CellBox(low, high)


@inner_kernel
def pair_slack(forest, aim, box):
    """Rounding that the gains of the first and the second row may hide: float64 (2,).

    Sound: the difference of two deployed sums has the slack of both.
    """
    slack = np.empty(2, dtype=np.float64)
    slack[0] = rounding_slack(forest.first, box, aim.first, aim.unit[0]) + aim.slack[0]
    second = second_box(forest.copies, box)
    slack[1] = rounding_slack(forest.second, second, aim.second, aim.unit[1]) + aim.slack[1]
    return slack


@inner_kernel
def solve_pair(forest, aim, box, nearest, best, limits):
    """Answer the question about one box; ``best`` is valid at any return.

    Returns a status, and the slack of the gain.
    """
    clock = np.empty(2, dtype=np.int64)
    budget = Budget(limits.nodes, limits.memory_bytes, seconds_now(clock) + limits.time_s)
    slack = pair_slack(forest, aim, box)
    total = slack[0] + slack[1]
    if aim.mode == VALUE and forest.copies.is_difference:
        best.value[0] = 0.0  # two equal rows
    # Sound: with the slack of both sums on either side, and room for the rounding of these ends.
    room = total + 2.0**-40 * (abs(aim.limit) + total)
    aim.ends[0] = aim.limit - room if aim.ends_when >= BELOW else -np.inf
    aim.ends[1] = aim.limit + room if aim.ends_when == DECIDED else np.inf
    aim.ends[2] = 0.0
    is_exact_at_zero = aim.mode == VALUE and forest.copies.is_difference and forest.is_alike
    # Ends: the trees of all outputs are added once.
    while True:
        leaves, fits = pair_leaves(
            forest.first, forest.copies, box, aim.first, aim.second, limits.leaves,
            forest.has_all_trees,
        )  # fmt: skip
        best.counts[3] = len(leaves.first)
        if not fits:
            return TOO_LARGE, total
        if is_exact_at_zero and gains_nothing(leaves, box.low, box.high):
            best.upper[0] = below_zero(total)  # as `settle_tie`, which has nothing left to search
            return PROVED, total
        if aim.mode == VALUE:
            status, best.upper[0] = search_boxes(
                forest, aim, box, leaves, nearest, best, budget, slack
            )
            break
        status = search_needs(forest, aim, box, leaves, nearest, best, budget, slack)
        best.upper[0] = -np.inf if status == PROVED else np.inf
        if status != NEAR_TIE or forest.has_all_trees:
            break
        # Only where each of two classes beats the other one in some row do other classes matter.
        forest = with_all_trees(forest)
    upper = best.upper[0] + total
    is_tie = best.value[0] <= total and upper > 0.0 and (aim.limit < upper or aim.limit == np.inf)
    if is_exact_at_zero and status == PROVED and is_tie:
        best.upper[0] = settle_tie(forest, aim, box, leaves, nearest, best, budget, slack)
    return status, total


@noalloc_kernel
def below_zero(slack):
    """A value that slack does not lift to 0, not even the checker's, which may be larger."""
    return -1.001 * slack


@inner_kernel
def settle_tie(forest, aim, box, leaves, nearest, best, budget, slack):
    """Whether no deployed value is above 0, where real ones are not but for rounding.

    A pair of equal rows has the value 0, so the slack of the sums would leave every such question
    open. Sound: parts of the box are closed by a bound that the slack cannot lift to 0; or because
    no tree adds more to the one sum than to the other, and sums of the same order keep that,
    rounding included, since adding and rounding are monotone. So do the scores made of them.

    Returns what all values stay below that are not at most 0 for the second reason; if there is
    none to tell, what was known before.
    """
    aim.ends[0] = below_zero(slack[0] + slack[1])
    aim.ends[1] = np.inf
    aim.ends[2] = 1.0
    status, _ = search_boxes(forest, aim, box, leaves, nearest, best, budget, slack)
    return aim.ends[0] if status == PROVED else best.upper[0]


@inner_kernel
def search_needs(forest, aim, box, leaves, nearest, best, budget, slack):
    """Search a box for a pair that passes both needs, and is what is sought; returns a status.

    Wherever both pass, each mixture of what exceeds them is at least 0: they are conditions of a
    violation like those of a target.
    """
    problem = build_pair(forest, aim, box, leaves, slack)
    weigh(problem, problem.conditions.weight)
    found = new_found(len(nearest))
    copy_into(found.counts[:RESTRICTIONS], best.counts[:RESTRICTIONS])
    # Points climb to the top: what exceeds both needs most is the least likely to lose its labels
    # to other classes.
    objective = free_objective(problem, np.inf, 0.0, np.int64(2), found)
    state = new_state(problem)
    is_whole = np.bool_(False), np.bool_(False)
    status, _ = search(
        problem, state, objective, None, None,
        new_pair_judge(forest, aim, box, leaves, nearest, problem),
        new_open_boxes(len(state.multiplier) + len(state.weight), problem.n_slots), None, None,
        is_whole, (np.inf, np.inf), budget,
    )  # fmt: skip
    copy_into(best.counts[:RESTRICTIONS], found.counts[:RESTRICTIONS])
    best.is_found[0] = status == FOUND
    copy_into(best.cells, found.witness)
    return status


@inner_kernel
def search_boxes(forest, aim, whole, leaves, nearest, best, budget, slack):
    """Search a box, and what has shrunk in it again, each time with trees of its own.

    The trees of a box have few leaves in a small part of it, and to look at the others takes most
    of the time; so such parts wait until they have the largest bound, and get trees of their own.
    Bounds far above the value are first brought down everywhere: time may not suffice for more.

    Returns a status, and a bound of all points.
    """
    n_columns, most_leaves = len(nearest), np.int64(len(leaves.first))
    frontier = new_frontier(np.int64(n_columns))
    box, above, ceiling, goal, far = whole, np.inf, -np.inf, -np.inf, np.inf
    status = np.int64(PROVED)
    # Ends: parts shrink, and nodes and time of the searches in them are counted.
    while True:
        problem = build_pair(forest, aim, box, leaves, slack)
        judge = new_pair_judge(forest, aim, box, leaves, nearest, problem)
        ended, upper, frontier = maximise(
            problem, box, judge, best, budget, frontier, (above, goal)
        )
        ceiling = max(ceiling, upper, best.value[0])
        if ended == NEAR_TIE and aim.ends[2] == 0.0:
            status = np.int64(NEAR_TIE)
        elif ended != PROVED:
            return ended, max(ceiling, top_bound(frontier.boxes))
        # Sound: what waits has bounds of its own, and the largest of them is the first to go.
        above = top_bound(frontier.boxes)
        floor = floor_of(aim, best)
        if above < floor:
            return status, max(ceiling, above)
        if far == np.inf:
            far = floor + FAR * (above - floor)
        goal = 0.5 * (above + floor) if above > far else -np.inf
        row = frontier.boxes.box[take(frontier)]
        box = CellBox(row[:n_columns].copy(), row[n_columns:].copy())
        # A part has no more leaves than the whole.
        leaves, _ = pair_leaves(
            forest.first, forest.copies, box, aim.first, aim.second, most_leaves,
            forest.has_all_trees,
        )  # fmt: skip


@kernel
def solve_pairs(forest, aim, batch, limits, columns):
    """Answer the question about every box of a batch."""
    clock = np.empty(2, dtype=np.int64)
    n_columns = batch.low.shape[1]
    for number in range(len(batch.low)):
        started = seconds_now(clock)
        best = new_best(n_columns)
        box = CellBox(batch.low[number], batch.high[number])
        columns.status[number], columns.slack[number] = solve_pair(
            forest, aim, box, batch.nearest[number], best, limits
        )
        columns.value[number] = best.value[0]
        columns.upper[number] = best.upper[0]
        columns.is_found[number] = best.is_found[0]
        copy_into(columns.cells[number], best.cells)
        copy_into(columns.counts[number], best.counts)
        columns.seconds[number] = seconds_now(clock) - started
