"""Branch and bound over boxes of cells: bounds from the dual, points from the primal.

A node is a box with its multipliers. It is closed when its bound falls below the floor or nothing
cheaper than the witness is left in it, and split in two otherwise; on the way it proposes points,
which are judged by the library's own arithmetic.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into, grow_table
from treeproof.kernels.core.cells import CellBox, Region
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import AMBIGUOUS, BROKEN, HOLDS, Claim, Forest, judge
from treeproof.kernels.core.status import (
    FOUND,
    MEMORY_LIMIT,
    NEAR_TIE,
    NODE_LIMIT,
    PROVED,
    TIME_LIMIT,
    UNDECIDED,
)
from treeproof.kernels.exact.branching import (
    any_cut,
    choose_branch,
    choose_jump,
    eliminate,
    peaks_right,
)
from treeproof.kernels.exact.cost_weight import (
    cell_marginals,
    certified_bound,
    enter,
    improve_terms,
    shift_cost_weight,
    sweep_once,
)
from treeproof.kernels.exact.dual import refresh
from treeproof.kernels.exact.judging import judge_tuples, new_division
from treeproof.kernels.exact.nodes import new_stack, pop, push_part, with_room
from treeproof.kernels.exact.objective import (
    ABOVE,
    AT_THE_LIMIT,
    ATOM,
    LIMIT,
    STEPS,
    cheapest_point,
    cost_of_point,
    cost_of_slots,
    exceeds_limits,
    may_cost_more,
    next_limit,
    reaches_need,
    set_limit,
    side_of_limit,
    take_back,
)
from treeproof.kernels.exact.open_boxes import next_box
from treeproof.kernels.exact.pair_judge import judge_rows, relate, split_relation
from treeproof.kernels.exact.primal import NODES, POINTS, SWEEPS, Found, decode
from treeproof.kernels.exact.problem import CELL_START, FEATURE, HIGH, LOW


class Judge(NamedTuple):
    """What decides whether a point breaks the claim, and where it is written down."""

    forest: Forest
    claim: Claim
    region: Region
    box: CellBox  # the searched box
    cells: np.ndarray  # (n_axes,) int32; scratch: atoms of the point
    total: np.ndarray  # (n_outputs,) float64; scratch
    found: Found  # what is known about the row


@inner_kernel
def new_judge(forest, claim, region, box, found):
    """Judge of points in a box of cells."""
    return Judge(
        forest,
        claim,
        region,
        box,
        np.empty(len(box.low), dtype=np.int32),
        np.empty(len(forest.semantics.start), dtype=np.float64),
        found,
    )


@inlined_kernel
def judge_point(judge_of, problem, objective):
    """Judge the point, or what it was before its descent; a violation becomes the witness.

    Points above the limit of a sum are not judged: HOLDS; but a first witness may be above, and
    leaves the limit as it is. Where any violation within the limit is sought, one that is too near
    to it is noted and AMBIGUOUS: who reads what was found decides.
    """
    cells, found = judge_of.cells, objective.found
    side = side_of_limit(problem, objective)
    if side == ABOVE and not may_cost_more(objective):
        objective.live[STEPS] = 0
        return np.int64(HOLDS)
    # Ends: what is taken back is taken back once.
    while True:
        found.counts[POINTS] += 1
        copy_into(cells, objective.base)
        for slot in range(problem.n_slots):
            cells[problem.slots[slot, FEATURE]] = objective.atoms[objective.point[slot], ATOM]
        verdict = judge(judge_of.forest, judge_of.claim, judge_of.region.row, cells, judge_of.total)
        if verdict == BROKEN:
            objective.live[STEPS] = 0
            found.upper[0], found.is_open[0] = cost_of_point(problem, objective)
            copy_into(found.witness, cells)
            if side == AT_THE_LIMIT:
                return np.int64(AMBIGUOUS)
            measure = objective.measure
            # Sound: above the limit it stays, since atoms beyond it were not kept.
            if side != ABOVE and not measure.takes_any:
                measure.is_closed[0] = found.is_open[0]
            if side != ABOVE and not measure.is_max:
                cost, _ = cost_of_slots(problem, objective)
                set_limit(problem, objective, next_limit(measure, found.upper[0]), cost)
            return verdict
        if not take_back(problem, objective) or side_of_limit(problem, objective) == ABOVE:
            return verdict


@inlined_kernel
def judged(judge_of, pairs, problem, state, objective, is_last):
    """What is said of the point by the one of two judges that there is; see `judge_rows`."""
    verdict = np.int64(HOLDS)
    if judge_of is not None:
        verdict = judge_point(judge_of, problem, objective)
    if pairs is not None:
        verdict = judge_rows(pairs, problem, state, objective, is_last)
    return verdict


@inner_kernel
def judge_rest(judge_of, problem, state, gap):
    """Judge what is left of a box where every tree that the claim weighs has one leaf left.

    Only what a softmax rounds to is in question, which the trees of all classes tell.

    Returns as `treeproof.kernels.exact.judging.judge_tuples`.
    """
    division = new_division(len(judge_of.cells))
    box = division.box
    copy_into(box.low, judge_of.box.low)
    copy_into(box.high, judge_of.box.high)
    for slot in range(problem.n_slots):
        low, high = state.box[slot, LOW], state.box[slot, HIGH]
        # Sound: no violation uses a cell beyond the gap, see `choose_branch`.
        while high > low and state.marginal[high] < -gap:
            high -= 1
        box.low[problem.slots[slot, FEATURE]] = problem.cells[low, LOW]
        box.high[problem.slots[slot, FEATURE]] = problem.cells[high, HIGH]
    return judge_tuples(
        judge_of.forest, judge_of.claim, judge_of.region, division, judge_of.cells, judge_of.total,
        judge_of.found,
    )  # fmt: skip


class Budget(NamedTuple):
    """What a search may use."""

    nodes: int  # counted over all searches of the row
    memory_bytes: float  # for open nodes
    deadline: float  # on `seconds_now`


CLOSED, SPLIT, CANDIDATE = 0, 1, 2
"""What became of a box: nothing is left, it has to be split, it shows a point to be judged."""
FRESH, WITNESSED, REJECTED = 0, 1, 2
"""A box that is new, whose last point broke the claim, whose last point did not."""

FAR_CLOSER = 0.5
"""A witness at this share of the radius makes the trees worth restricting to the smaller ball, and
a quick search ends."""
FAR_CHEAPER, EARLY = 0.7, 8
"""The same for sums of costs, in early nodes of any search."""
QUICK_SWEEPS, ROOT_SWEEPS, NODE_SWEEPS = 4, 12, 30
WORTH_ANOTHER_TRY = 0.8
"""Sweeping goes on in a box of which at most this share of cells is left."""
PATIENCE = 5.0
"""Sweeping ends when that many more sweeps like the last one would not close the box."""
NO_POINT = -1
"""Instead of rounds of ascent: no point is proposed."""
CLIMB_ROUNDS, CLIMB_NODES, CLIMB_STEP = 2, 256, 4
"""Rounds of ascent from the points of a row's first nodes, and of every so many later ones: a
witness that is found late has cost the nodes of a larger box."""
ROOT_ROUNDS = 3
"""Rounds of ascent from the first point of a root."""
WEIGHT_STEP, NODE_WEIGHT_STEP = 0.8, 0.9
"""By what factor the cost weight is changed at roots and at other nodes."""
LARGE, SMALLER = 1 << 15, 8
"""Entries from which a problem is not worth branching in where a box has that many times fewer of
them: the trees are restricted to the box first."""


@inlined_kernel
def rounds_at(objective, history):
    """Rounds of ascent from the point that a node proposes before it is split.

    Where costs are sums, points are taken as they are: an ascent with costs takes long.
    """
    node = objective.found.counts[NODES]
    if history == REJECTED:
        return np.int64(NO_POINT)
    is_worth = objective.measure.is_max and (node < CLIMB_NODES or node % CLIMB_STEP == 0)
    return np.int64(CLIMB_ROUNDS if is_worth else 0)


@inlined_kernel
def proposes_at_root(objective, turn, history):
    """Whether a root proposes the point that its sweeps favour after so many of them.

    Of sums the cost weight is settled first.
    """
    if not objective.measure.is_max:
        return history == FRESH and turn == QUICK_SWEEPS
    return history != REJECTED and turn == (1 if history == FRESH else 2)


@inlined_kernel
def choose_cut(problem, state, objective, pairs, gap):
    """Slot and last cell of its left part; slot -1 where all that is left reaches the same leaves.

    gap  float64  how far the bound is above the floor
    """
    slot, cell = np.int64(-1), np.int64(0)
    if not objective.measure.is_max:
        slot, cell = choose_jump(problem, state, objective.cost, objective.live[LIMIT], gap)
    if slot < 0:
        slot, cell = choose_branch(problem, state, gap)
    if pairs is not None and slot < 0:
        slot, cell = split_relation(pairs, problem, state)
    return slot, cell


@inlined_kernel
def enter_related(problem, state, objective, narrow, pairs):
    """As `enter`, where copies of features that are related keep only cells that go together."""
    if pairs is not None and not relate(pairs, problem, state):
        return -np.inf
    bound = enter(problem, state, objective, narrow)
    if pairs is not None and bound > -np.inf:
        bound, _ = refresh(problem, state)  # of open boxes only multipliers are known
    return bound


@inlined_kernel
def close_or_split(problem, state, objective, narrow, pairs, is_root, is_quick, history):
    """Work on the state's box until it is closed, has to be split, or shows a point to be judged.

    history  int   FRESH; WITNESSED: the box shrinks; REJECTED: no more points are proposed

    Returns CLOSED, SPLIT or CANDIDATE, and for SPLIT how far the bound is above the floor, rounding
    included. With several conditions the floor is 0.
    """
    floor, is_max = objective.floor, objective.measure.is_max
    has_terms = len(state.weight) > 1 or not is_max
    bound = enter_related(problem, state, objective, narrow, pairs)
    limit = ROOT_SWEEPS if is_root else NODE_SWEEPS
    turn = 0
    # Ends: sweeps are counted, and counted anew only in a box of fewer cells.
    while bound > -np.inf:
        if bound < floor:
            # The sweeps' bound drifts with rounding; only the fresh one closes a box.
            bound, error = certified_bound(problem, state, narrow)
            if bound + error < floor:
                return CLOSED, 0.0
        before = bound
        bound = sweep_once(problem, state, objective, narrow, turn % 2 == 0, bound)
        objective.found.counts[SWEEPS] += 1
        turn += 1
        if bound < floor and turn < limit:
            continue
        if has_terms and turn & (turn - 1) == 0 and bound >= floor:
            # After 1, 2, 4, 8, ... sweeps, since it costs as much as one or two.
            bound = improve_terms(problem, state, objective, bound)
        if is_root and turn == QUICK_SWEEPS and not is_quick:
            bound = shift_cost_weight(problem, state, objective, narrow, bound, WEIGHT_STEP)
        if is_root and proposes_at_root(objective, turn, history) and (is_max or bound >= floor):
            decode(problem, state, state.rest, objective.cost, objective.point)
            if reaches_need(problem, state, objective, np.int64(ROOT_ROUNDS)):
                return CANDIDATE, 0.0
        if is_root and turn == QUICK_SWEEPS:
            rounds = np.int64(NO_POINT if history == REJECTED else 0)
            outcome, gap, _ = look_closer(problem, state, objective, narrow, rounds)
            if outcome != SPLIT or is_quick:
                return outcome, gap
            bound = enter_related(problem, state, objective, narrow, pairs)
        elif turn == limit or (
            turn >= 2 and not is_root and bound - floor > PATIENCE * (before - bound)
        ):
            # The sweeps will not get there; a smaller box or splitting will.
            step = WEIGHT_STEP if is_root else NODE_WEIGHT_STEP
            bound = shift_cost_weight(problem, state, objective, narrow, bound, step)
            rounds = rounds_at(objective, history)
            outcome, gap, kept = look_closer(problem, state, objective, narrow, rounds)
            if outcome != SPLIT or kept > WORTH_ANOTHER_TRY:
                return outcome, gap
            if not is_max and is_far_smaller(problem, state):
                return outcome, gap
            bound = enter_related(problem, state, objective, narrow, pairs)
            turn = 0
    return CLOSED, 0.0


@noalloc_kernel
def look_closer(problem, state, objective, narrow, rounds):
    """Use the costs of single cells: propose the best point, drop cells that cost too much.

    rounds  int  of ascent from that point, or NO_POINT
    """
    bound, error = certified_bound(problem, state, narrow)
    if bound + error < objective.floor:
        return CLOSED, 0.0, 0.0
    cell_marginals(problem, state, narrow)
    if rounds != NO_POINT:
        decode(problem, state, state.marginal, objective.cost, objective.point)
        if reaches_need(problem, state, objective, rounds):
            return CANDIDATE, 0.0, 1.0
    # Sound: with a cell fixed the bound is bound + marginal, each within error of exact.
    kept = eliminate(problem, state, bound + 2.0 * error, objective.floor)
    if kept == 0.0:
        return CLOSED, 0.0, 0.0
    return SPLIT, bound + 2.0 * error - objective.floor, kept


@noalloc_kernel
def is_far_smaller(problem, state):
    """Whether the trees are worth restricting to the state's box before it is searched further."""
    if len(problem.entries) < LARGE:
        return False
    # The same box would be put aside again and again: entries of a leaf count also where only one
    # of a slot's cells can be afforded.
    is_smaller = False
    for slot in range(problem.n_slots):
        is_smaller |= state.box[slot, LOW] > problem.slots[slot, CELL_START]
        is_smaller |= state.box[slot, HIGH] + 1 < problem.slots[slot + 1, CELL_START]
    if not is_smaller:
        return False
    n_entries = 0
    for factor in range(problem.n_factors):
        n_entries += state.n_alive[factor] * state.n_active[factor]
    return SMALLER * n_entries <= len(problem.entries)


class Parts(NamedTuple):
    """Boxes that are searched later, each with its trees restricted to it."""

    # First atom of each axis, the last ones, and what each axis does: see `change_sets`
    atoms: np.ndarray  # (capacity, 3 * n_axes) int32
    size: np.ndarray  # (1,) int64


@inner_kernel
def with_part(parts, problem, state, kept):
    """The boxes with one more: the state's, in atoms; what axes do is filled in by the caller."""
    size = parts.size[0]
    atoms = parts.atoms
    if size == len(atoms):
        atoms = grow_table(atoms, 2 * size)
    n_axes = len(kept.bottom)
    for axis in range(n_axes):
        atoms[size, axis] = kept.atom[kept.start[axis]]
        atoms[size, n_axes + axis] = kept.atom[kept.start[axis + 1] - 1]
    for slot in range(problem.n_slots):
        axis = problem.slots[slot, FEATURE]
        start = kept.start[axis]
        atoms[size, axis] = kept.atom[start + problem.cells[state.box[slot, LOW], LOW]]
        atoms[size, n_axes + axis] = kept.atom[start + problem.cells[state.box[slot, HIGH], HIGH]]
    parts.size[0] = size + 1
    return Parts(atoms, parts.size)


@noalloc_kernel
def note_lower(state, objective, gap):
    """Note what violations cost at least, from how far the bound at the limit is above the floor.

    Sound: with the cost weight and multipliers as they are, the bound falls by that weight for each
    unit that the limit falls by; below a limit at which it is under the floor there is nothing.
    Costs of all axes are sums of doubles that were rounded down, and the result is shrunk by more
    than all rounding.
    """
    weight = state.weight[len(state.weight) - 1]
    if objective.measure.is_max or objective.measure.takes_any or weight <= 0.0:
        return
    total = objective.live[LIMIT] + objective.elsewhere.cost
    lower = total - gap / weight - 2.0**-40 * (total + gap / weight)
    objective.found.way_lower[0] = max(objective.found.way_lower[0], lower)


@noalloc_kernel
def is_worth_restricting(objective, is_quick, is_part, n_nodes, began_at):
    """Whether a new witness makes the trees worth restricting anew before the search goes on.

    began_at  float64  where costs are largest ones, the radius, otherwise the first limit
    """
    found = objective.found
    if objective.measure.is_max:
        return is_quick and found.upper[0] < FAR_CLOSER * began_at
    if is_quick and found.upper[0] > objective.live[LIMIT] + objective.elsewhere.cost:
        return True
    return n_nodes <= EARLY and objective.live[LIMIT] < FAR_CHEAPER * began_at and not is_part


@inner_kernel
def search(
    problem, state, objective, narrow, judge_of, pairs, open_boxes, kept, parts, modes, extent,
    budget,
):  # fmt: skip
    """Search a box of cells; what is found is written into ``objective.found`` at once.

    The cheapest violation is sought, or any where the measure says so. A quick search looks at the
    root only, a few sweeps, and ends UNDECIDED when nothing is proved. Any search ends so where the
    trees are worth restricting anew.

    narrow  Narrow or None  never used with several conditions
    judge_of, pairs  Judge, PairJudge or None  one of them, by what points are
    open_boxes  OpenBoxes or None  of pairs: nodes are searched best first, others depth first
    kept    Kept or None    of which atoms cells are made, where these have prices
    modes   bool, bool  whether the search is quick; whether this is a part of what is searched
    extent  float64, float64  radius of the ball that the box holds, where costs are largest ones;
                        sweeps times entries of the problem, of which a small one counts as `LARGE`

    Returns
    -------
    status  int
        PROVED: nothing cheaper than the witness is left, if there is one, but for what was added to
        the parts; FOUND: one, where any will do; or why the search ended.
    parts   Parts or None
        Those given and what is left of boxes that became small.
    """
    is_quick, is_part = modes
    radius, work = extent
    found, measure = objective.found, objective.measure
    clock = np.empty(2, dtype=np.int64)
    stack = new_stack(state, np.int64(8))
    boxes = open_boxes
    is_root = np.bool_(True)  # a variable, not a literal: kernels are compiled once for each
    is_near_tie = False
    began_at = radius if measure.is_max else objective.live[LIMIT]
    most_sweeps = found.counts[SWEEPS] + work / max(len(problem.entries), LARGE)
    n_nodes = 0
    while True:
        found.counts[NODES] += 1
        n_nodes += 1
        if found.counts[NODES] > budget.nodes or (
            not is_root and found.counts[SWEEPS] > most_sweeps
        ):
            return NODE_LIMIT, parts
        if not is_root and seconds_now(clock) > budget.deadline:
            return TIME_LIMIT, parts
        history = np.int64(FRESH)
        slot, cell = np.int64(-1), np.int64(0)
        # Ends: each witness is nearer, and what is no witness ends proposals.
        while True:
            outcome, gap = close_or_split(
                problem, state, objective, narrow, pairs, is_root, is_quick, history
            )
            if outcome == CLOSED:
                break
            if outcome == SPLIT:
                if is_root and not is_part:
                    note_lower(state, objective, gap)
                if is_quick:
                    return UNDECIDED, parts
                if kept is not None and not measure.is_max and is_far_smaller(problem, state):
                    if parts.atoms.nbytes > budget.memory_bytes:
                        return MEMORY_LIMIT, parts
                    parts = with_part(parts, problem, state, kept)
                    break
                slot, cell = choose_cut(problem, state, objective, pairs, gap)
                if slot >= 0:
                    break
                # One leaf tuple is left, within the slack: only the library's own sum can tell. All
                # that is left reaches the same leaves: the cheapest of it is judged.
                cheapest_point(problem, state, objective)
                if kept is not None and exceeds_limits(problem, objective):
                    # What costs more may be within the limits of other costs.
                    slot, cell = any_cut(problem, state)
                    is_near_tie = is_near_tie or slot < 0
                    break
            verdict = judged(judge_of, pairs, problem, state, objective, outcome == SPLIT)
            history = np.int64(REJECTED)
            if verdict == BROKEN:
                history = np.int64(WITNESSED)
                is_nearest = found.upper[0] == 0.0 and not found.is_open[0]
                if measure.takes_any:
                    return FOUND, parts
                if measure.is_max and is_nearest:
                    return PROVED, parts
                if is_worth_restricting(objective, is_quick, is_part, n_nodes, began_at):
                    return UNDECIDED, parts
            if outcome == SPLIT:
                # Sound: all that is left of the box reaches the leaves just judged, and costs no
                # less than the point. A tie that stays undecided decides the search of a ball, and
                # others need not be looked at.
                is_tie = verdict == AMBIGUOUS and not is_near_tie
                if judge_of is not None and kept is None and is_tie:
                    verdict = judge_rest(judge_of, problem, state, gap)
                    if verdict == BROKEN:
                        return FOUND, parts  # any violation will do
                is_near_tie = is_near_tie or verdict == AMBIGUOUS
                break
        is_root = np.bool_(False)
        if pairs is not None:
            boxes, status = next_box(boxes, state, slot, cell, gap, budget.memory_bytes)
            if status != UNDECIDED:
                return NEAR_TIE if status == PROVED and is_near_tie else status, parts
        elif slot >= 0:
            stack, has_room = with_room(stack, budget.memory_bytes)
            if not has_room:
                return MEMORY_LIMIT, parts
            push_part(stack, state, slot, cell, not peaks_right(state, slot, cell))
        elif stack.size[0] > 0:
            pop(stack, state)
        else:
            return NEAR_TIE if is_near_tie else PROVED, parts
