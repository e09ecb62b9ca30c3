"""Branch and bound over boxes of cells: bounds from the dual, points from the primal.

A node is a box with its multipliers. It is closed when its bound falls below the floor or no cell
nearer than the witness is left, and split in two otherwise; on the way it proposes points, which
are judged by the library's own arithmetic.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into, grow_table
from treeproof.kernels.core.cells import CellBox, Region
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import ONE, inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import AMBIGUOUS, BROKEN, Claim, Forest, judge
from treeproof.kernels.core.status import (
    MEMORY_LIMIT,
    NEAR_TIE,
    NODE_LIMIT,
    PROVED,
    TIME_LIMIT,
    UNDECIDED,
)
from treeproof.kernels.exact.conditions import improve_weights, weigh
from treeproof.kernels.exact.dual import enter_box, marginals, refresh, sweep
from treeproof.kernels.exact.judging import judge_tuples, new_division
from treeproof.kernels.exact.primal import (
    NODES,
    POINTS,
    SWEEPS,
    Found,
    accept_point,
    decode,
    reaches_need,
    shrink_box,
    take_back,
)
from treeproof.kernels.exact.problem import (
    EDGE,
    FACTOR,
    FEATURE,
    GROSS,
    HIGH,
    LEAF_START,
    LOW,
    PAIR_START,
    SEGMENT_START,
)


class NodeStack(NamedTuple):
    """Nodes that are searched later."""

    # Multipliers, rest, constant, weights
    values: np.ndarray  # (capacity, n_segments + n_cells + 1 + n_conditions) float64
    boxes: np.ndarray  # (capacity, 2 * n_slots) int32; lows, then highs
    size: np.ndarray  # (1,) int64


@inner_kernel
def new_stack(state, capacity):
    """Empty stack with room for some nodes."""
    width = len(state.multiplier) + len(state.rest) + 1 + len(state.weight)
    return NodeStack(
        np.empty((capacity, width), dtype=np.float64),
        np.empty((capacity, 2 * len(state.box)), dtype=np.int32),
        np.zeros(1, dtype=np.int64),
    )


@inner_kernel
def with_room(stack, memory_bytes):
    """The stack, in larger arrays when it is full, and whether the memory allows for one more."""
    size = stack.size[0]
    if size < len(stack.values):
        return stack, True
    if 16.0 * size * (stack.values.shape[1] + stack.boxes.shape[1] // 2) > memory_bytes:
        return stack, False
    larger = NodeStack(
        grow_table(stack.values, 2 * size), grow_table(stack.boxes, 2 * size), stack.size
    )
    return larger, True


@noalloc_kernel
def push(stack, state):
    """Put multipliers, rest, constant, weights and box of a state onto a stack that has room."""
    top = stack.size[0]
    values, box = stack.values[top], stack.boxes[top]
    n_segments = len(state.multiplier)
    n_cells = len(state.rest)
    for index in range(n_segments):
        values[index] = state.multiplier[index]
    for index in range(n_cells):
        values[n_segments + index] = state.rest[index]
    values[n_segments + n_cells] = state.constant[0]
    for number in range(len(state.weight)):
        values[n_segments + n_cells + 1 + number] = state.weight[number]
    n_slots = len(state.box)
    for slot in range(n_slots):
        box[slot] = state.box[slot, LOW]
        box[n_slots + slot] = state.box[slot, HIGH]
    stack.size[0] = top + 1


@noalloc_kernel
def pop(stack, state):
    """Bring back what was pushed last."""
    top = stack.size[0] - 1
    values, box = stack.values[top], stack.boxes[top]
    n_segments = len(state.multiplier)
    n_cells = len(state.rest)
    for index in range(n_segments):
        state.multiplier[index] = values[index]
    for index in range(n_cells):
        state.rest[index] = values[n_segments + index]
    state.constant[0] = values[n_segments + n_cells]
    for number in range(len(state.weight)):
        state.weight[number] = values[n_segments + n_cells + 1 + number]
    n_slots = len(state.box)
    for slot in range(n_slots):
        state.box[slot, LOW] = box[slot]
        state.box[slot, HIGH] = box[n_slots + slot]
    stack.size[0] = top


@noalloc_kernel
def push_part(stack, state, slot, cell, is_right):
    """Push the part of the box left or right of a cut, and keep the other one."""
    push(stack, state)
    box = stack.boxes[stack.size[0] - 1]
    if is_right:
        box[slot] = cell + 1
        state.box[slot, HIGH] = cell
    else:
        box[len(state.box) + slot] = cell
        state.box[slot, LOW] = cell + 1


class Judge(NamedTuple):
    """What decides whether a point breaks the claim, and where it is written down."""

    forest: Forest
    claim: Claim
    region: Region
    box: CellBox  # the searched box
    # Cells of the searched box that are nearest to the row's own
    nearest: np.ndarray  # (n_features,) int32
    cells: np.ndarray  # (n_features,) int32; scratch: cells of the point
    total: np.ndarray  # (n_outputs,) float64; scratch
    found: Found  # what is known about the row


@inner_kernel
def new_judge(forest, claim, region, box, found):
    """Judge of points in a box of cells."""
    nearest = np.empty(len(box.low), dtype=np.int32)
    for feature in range(len(nearest)):
        nearest[feature] = min(max(region.home[feature], box.low[feature]), box.high[feature])
    return Judge(
        forest,
        claim,
        region,
        box,
        nearest,
        np.empty(len(nearest), dtype=np.int32),
        np.empty(len(forest.semantics.start), dtype=np.float64),
        found,
    )


@noalloc_kernel
def judge_point(judge_of, problem, target):
    """Judge `target.point`, or what it was before its descent; a violation becomes the witness."""
    cells, nearest, found = judge_of.cells, judge_of.nearest, judge_of.found
    # Ends: what is taken back is taken back once.
    while True:
        found.counts[POINTS] += 1
        for feature in range(len(cells)):
            cells[feature] = nearest[feature]
        for slot in range(problem.n_slots):
            feature = problem.slots[slot, FEATURE]
            cell = target.point[slot]
            low = problem.cells[cell, LOW]
            cells[feature] = min(max(nearest[feature], low), problem.cells[cell, HIGH])
        verdict = judge(judge_of.forest, judge_of.claim, judge_of.region.row, cells, judge_of.total)
        if verdict == BROKEN:
            accept_point(problem, target)
            for feature in range(len(cells)):
                found.witness[feature] = cells[feature]
            return verdict
        if not take_back(problem, target):
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
"""A witness at this share of the radius makes the trees worth restricting to the smaller ball."""
QUICK_SWEEPS, ROOT_SWEEPS, NODE_SWEEPS = 4, 12, 30
WORTH_ANOTHER_TRY = 0.8
"""Sweeping goes on in a box of which at most this share of cells is left."""
SMALL = 0.01
"""Spread and jump of a boundary that has none, which counts when nothing else is left."""
PATIENCE = 5.0
"""Sweeping ends when that many more sweeps like the last one would not close the box."""
NO_POINT = -1
"""Instead of rounds of ascent: no point is proposed."""
CLIMB_ROUNDS, CLIMB_NODES, CLIMB_STEP = 2, 256, 4
"""Rounds of ascent from the points of a row's first nodes, and of every so many later ones: a
witness that is found late has cost the nodes of a larger box."""


@inlined_kernel
def rounds_at(node):
    """Rounds of ascent from the point that a node proposes before it is split."""
    return np.int64(CLIMB_ROUNDS if node < CLIMB_NODES or node % CLIMB_STEP == 0 else 0)


@noalloc_kernel
def eliminate(problem, state, bound, floor):
    """Drop end cells that no violation can use; returns the share kept, 0 when a slot has none."""
    n_before = 1  # so that a problem without slots keeps all of nothing
    n_after = 1
    for slot in range(problem.n_slots):
        low = state.box[slot, LOW]
        high = state.box[slot, HIGH]
        while low <= high and bound + state.marginal[low] < floor:
            low += 1
        while low <= high and bound + state.marginal[high] < floor:
            high -= 1
        n_before += state.box[slot, HIGH] - state.box[slot, LOW] + 1
        n_after += high - low + 1
        state.box[slot, LOW] = low
        state.box[slot, HIGH] = high
        if low > high:
            return 0.0
    return n_after / n_before


@noalloc_kernel
def gain_spread(problem, state, factor):
    """How far the gains of a factor are apart."""
    first = problem.factors[factor, LEAF_START]
    least = np.inf
    most = -np.inf
    for leaf in range(first, first + state.n_alive[factor]):
        least = min(least, state.gain[leaf])
        most = max(most, state.gain[leaf])
    return most - least


@noalloc_kernel
def count_boundaries(problem, state, slot, low, high):
    """How much is decided by cutting a slot after each of its cells from low to high - 1.

    Fills ``scratch``: boundaries of living factors there, and far less for one-feature trees. A
    boundary counts by the spread of its factor's gains and by the jump of its multipliers, in
    geometric mean, both over the mean of the largest gains of all trees: where multipliers jump,
    the factor wants another side than others do, and only a cut makes it give way.
    """
    boundaries = state.scratch
    for cell in range(low, high):
        boundaries[cell] = 1.0 if problem.cells[cell + 1, EDGE] else 0.0
    scale = problem.n_trees / (problem.terms[GROSS] + 1e-300)
    for index in range(problem.slots[slot, PAIR_START], problem.slots[slot + 1, PAIR_START]):
        pair = problem.slot_pair[index]
        if state.n_alive[problem.pairs[pair, FACTOR]] < 2:
            continue
        spread = SMALL + scale * gain_spread(problem, state, problem.pairs[pair, FACTOR])
        start = problem.pairs[pair, SEGMENT_START]
        for segment in range(start + state.span[pair, LOW], start + state.span[pair, HIGH]):
            cell = problem.segments[segment, HIGH]
            if low <= cell < high:
                jump = abs(state.multiplier[segment] - state.multiplier[segment + ONE])
                boundaries[cell] += 1024.0 * np.sqrt(spread * (SMALL + scale * jump))


@noalloc_kernel
def best_cut(problem, state, slot, gap):
    """Where to cut a slot, so that both parts lose as many boundaries as possible.

    Only cells whose marginal is within the gap can belong to a violation, and the dual cannot
    choose between them; boundaries count between such cells.

    Returns
    -------
    cell                 int      last cell of the left part, -1 without any boundary
    off_left, off_right  float64  boundaries that are cut off the left and the right part; the cut
                                  itself counts for both
    """
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
    best_cell = -1
    off_left = 0.0
    off_right = 0.0
    left = 0.0
    for cell in range(low, high):
        here = state.scratch[cell]
        left += here
        # Sound: no boundary is overlooked, whatever overflow makes of its weight.
        if here != 0.0 and (best_cell < 0 or (total - left + here) * left > off_left * off_right):
            best_cell = cell
            off_left = total - left + here
            off_right = left
    return best_cell, off_left, off_right


@noalloc_kernel
def choose_branch(problem, state, gap):
    """Slot and last cell of its left part; slot -1 when all remaining points reach the same leaves.

    The cut that takes most boundaries off both parts decides most, see `best_cut`. With slot -1,
    the first cell within the gap of every slot is left in `state.box`.
    """
    best_slot = -1
    best_cell = 0
    most = 0.0
    for slot in range(problem.n_slots):
        cell, off_left, off_right = best_cut(problem, state, slot, gap)
        if cell >= 0 and (best_slot < 0 or off_left * off_right > most):
            most = off_left * off_right
            best_slot = slot
            best_cell = cell
    if best_slot < 0:
        for slot in range(problem.n_slots):
            while (
                state.box[slot, LOW] < state.box[slot, HIGH]
                and state.marginal[state.box[slot, LOW]] < -gap
            ):
                state.box[slot, LOW] += 1
    return best_slot, best_cell


@noalloc_kernel
def close_or_split(problem, state, target, is_root, is_quick, history):
    """Work on the state's box until it is closed, has to be split, or shows a point to be judged.

    history  int   FRESH; WITNESSED: the box shrinks; REJECTED: no more points are proposed

    Returns CLOSED, SPLIT or CANDIDATE, and for SPLIT how far the bound is above the floor, rounding
    included.
    """
    floor = target.floor
    if not shrink_box(problem, state, target, target.upper[0], target.is_open[0]):
        return CLOSED, 0.0
    if len(state.weight) > 1:
        weigh(problem, state.weight)
    bound = enter_box(problem, state)
    limit = ROOT_SWEEPS if is_root else NODE_SWEEPS
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
        target.counts[SWEEPS] += 1
        turn += 1
        if bound < floor and turn < limit:
            continue
        if len(state.weight) > 1 and turn & (turn - 1) == 0:
            # After 1, 2, 4, 8, ... sweeps, since it costs as much as one or two.
            bound = improve_weights(problem, state)
        if is_root:
            if turn == (1 if history == FRESH else 2) and history != REJECTED:
                decode(problem, state, state.rest, target.distance, target.point)
                if reaches_need(problem, state, target, np.int64(3)):
                    return CANDIDATE, 0.0
            elif turn == QUICK_SWEEPS:
                rounds = np.int64(NO_POINT if history == REJECTED else 0)
                outcome, gap, _ = look_closer(problem, state, target, rounds)
                if outcome != SPLIT or is_quick:
                    return outcome, gap
                bound = enter_box(problem, state)
        if turn == limit or (
            turn >= 2 and not is_root and bound - floor > PATIENCE * (before - bound)
        ):
            # The sweeps will not get there; a smaller box or splitting will.
            rounds = np.int64(NO_POINT)
            if history != REJECTED:
                rounds = rounds_at(target.counts[NODES])
            outcome, gap, kept = look_closer(problem, state, target, rounds)
            if outcome != SPLIT or kept > WORTH_ANOTHER_TRY:
                return outcome, gap
            bound = enter_box(problem, state)
            turn = 0


@noalloc_kernel
def look_closer(problem, state, target, rounds):
    """Use the costs of single cells: propose the cheapest point, drop cells that cost too much.

    rounds  int  of ascent from that point, or NO_POINT
    """
    bound, error = refresh(problem, state)
    if bound + error < target.floor:
        return CLOSED, 0.0, 0.0
    marginals(problem, state)
    if rounds != NO_POINT:
        decode(problem, state, state.marginal, target.distance, target.point)
        if reaches_need(problem, state, target, rounds):
            return CANDIDATE, 0.0, 1.0
    # Sound: with a cell fixed the bound is bound + marginal, each within error of exact.
    kept = eliminate(problem, state, bound + 2.0 * error, target.floor)
    if kept == 0.0:
        return CLOSED, 0.0, 0.0
    return SPLIT, bound + 2.0 * error - target.floor, kept


@inner_kernel
def search(problem, state, target, judge_of, is_quick, radius, budget):
    """Search a box of cells; what is found is written into ``judge_of.found`` at once.

    The nearest violation is sought, or any where the region says so. A quick search looks at the
    root only, a few sweeps, and ends UNDECIDED when nothing is proved, or when a witness is so much
    nearer than the radius that a smaller ball pays.

    Returns
    -------
    int
        PROVED: nothing nearer than the witness is left, if there is one; or why the search ended.
    """
    found = judge_of.found
    clock = np.empty(2, dtype=np.int64)
    stack = new_stack(state, np.int64(8))
    is_root = np.bool_(True)  # a variable, not a literal: kernels are compiled once for each
    is_near_tie = False
    while True:
        found.counts[NODES] += 1
        if found.counts[NODES] > budget.nodes:
            return NODE_LIMIT
        if not is_root and seconds_now(clock) > budget.deadline:
            return TIME_LIMIT
        history = np.int64(FRESH)
        slot = np.int64(-1)
        cell = np.int64(0)
        # Ends: each witness is nearer, and what is no witness ends proposals.
        while True:
            outcome, gap = close_or_split(problem, state, target, is_root, is_quick, history)
            if outcome == CLOSED:
                break
            if outcome == SPLIT:
                if is_quick:
                    return UNDECIDED
                slot, cell = choose_branch(problem, state, gap)
                if slot >= 0:
                    break
                # One leaf tuple is left, within the slack: only the library's own sum can tell.
                for other in range(problem.n_slots):
                    target.point[other] = state.box[other, LOW]
            verdict = judge_point(judge_of, problem, target)
            history = np.int64(REJECTED)
            if verdict == BROKEN:
                history = np.int64(WITNESSED)
                is_nearest = found.upper[0] == 0.0 and not found.is_open[0]
                if judge_of.region.takes_any or is_nearest:
                    return PROVED
                if is_quick and found.upper[0] < FAR_CLOSER * radius:
                    return UNDECIDED
            elif outcome == SPLIT:
                # Sound: all that is left of the box reaches the leaves just judged. A tie that
                # stays undecided decides the search, and others need not be looked at.
                if verdict == AMBIGUOUS and not is_near_tie:
                    verdict = judge_rest(judge_of, problem, state, gap)
                    if verdict == BROKEN:
                        return PROVED  # any violation will do
                is_near_tie = is_near_tie or verdict == AMBIGUOUS
                break
        is_root = np.bool_(False)
        if slot >= 0:
            stack, has_room = with_room(stack, budget.memory_bytes)
            if not has_room:
                return MEMORY_LIMIT
            push_part(stack, state, slot, cell, not peaks_right(state, slot, cell))
        elif stack.size[0] > 0:
            pop(stack, state)
        else:
            return NEAR_TIE if is_near_tie else PROVED


@noalloc_kernel
def peaks_right(state, slot, cell):
    """Whether the best cell of a slot lies right of a cut; that part is searched first."""
    best = state.box[slot, LOW]
    for other in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
        if state.marginal[other] > state.marginal[best]:
            best = other
    return best > cell
