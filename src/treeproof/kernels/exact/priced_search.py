"""Branch and bound for the cheapest violation: the exact search with a price on every cell.

A violation within a limit L gains at least the floor and costs at most L, so that for any α >= 0

    gain + α (L - cost) >= floor

holds for it. The cost is a sum over axes: α changes only the constant and the unary terms of a
`Problem`, and its bounds, sweeps and branching remain those of any other. Which α bounds best
differs from box to box; with multipliers fixed it is found in passes over the cells alone.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arithmetic import two_sum
from treeproof.kernels.core.arrays import copy_into, grow_table
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import AMBIGUOUS, BROKEN, HOLDS, judge
from treeproof.kernels.core.status import (
    MEMORY_LIMIT,
    NEAR_TIE,
    NODE_LIMIT,
    PROVED,
    TIME_LIMIT,
    UNDECIDED,
)
from treeproof.kernels.exact.conditions import improve_weights, lighten, weigh
from treeproof.kernels.exact.dual import enter_box, marginals
from treeproof.kernels.exact.narrow_dual import enter_narrow, marginals_narrow
from treeproof.kernels.exact.priced_leaves import is_beyond, is_cheaper
from treeproof.kernels.exact.priced_terms import (
    drop_dear,
    improve_price,
    next_limit,
    refresh_priced,
    set_limit,
    set_price,
    shift_price,
    sweep_priced,
)
from treeproof.kernels.exact.primal import (
    ATTEMPT_STEP,
    ATTEMPTS,
    NODES,
    POINTS,
    SWEEPS,
    decode,
    locate,
    meets_conditions,
    move_slot,
    slot_values,
)
from treeproof.kernels.exact.problem import (
    CELL_START,
    FEATURE,
    HIGH,
    LOW,
)
from treeproof.kernels.exact.search import (
    CANDIDATE,
    CLOSED,
    FRESH,
    NODE_SWEEPS,
    PATIENCE,
    QUICK_SWEEPS,
    REJECTED,
    ROOT_SWEEPS,
    SPLIT,
    WITNESSED,
    WORTH_ANOTHER_TRY,
    choose_branch,
    count_boundaries,
    eliminate,
    new_stack,
    peaks_right,
    pop,
    push_part,
    with_room,
)

FAR_CHEAPER, EARLY = 0.7, 8
"""A witness at this share of the limit makes the trees worth restricting anew, in early nodes."""
PRICE_STEP, NODE_PRICE_STEP = 0.8, 0.9
"""By what factor α is changed at roots and at other nodes."""
LARGE, SMALLER = 1 << 15, 8
"""Entries from which a problem is not worth branching in where a box has that many times fewer of
them: the trees are restricted to the box first."""
JUMP = 0.75
"""Part of what may be spent by which prices jump where boxes are split first."""
ROUNDS, DISCOUNTS, DISCOUNT = 3, 8, 0.7
"""Rounds of ascent without prices; before it, how many prices there are, each that part of the one
before."""


class Allowance(NamedTuple):
    """What a search may use."""

    nodes: int  # counted over all searches of the row
    work: float  # sweeps times the entries of the problem, for which a small one counts as `LARGE`
    memory_bytes: float  # for open nodes
    deadline: float  # on `seconds_now`


class Parts(NamedTuple):
    """Boxes that are searched later, each with its trees restricted to it."""

    # First atom of each axis, the last ones, and what each axis does: see `change_sets`
    atoms: np.ndarray  # (capacity, 3 * n_axes) int32
    size: np.ndarray  # (1,) int64


@noalloc_kernel
def point_cost(problem, quest, point):
    """What a point costs in its slots."""
    total = 0.0
    for slot in range(problem.n_slots):
        cost = quest.cost[point[slot]]
        total = max(total, cost) if quest.prices.is_max else total + cost
    return total


@noalloc_kernel
def move_to(problem, state, quest, slot, cell, gain):
    """Move the point in one slot; returns its gain."""
    here = quest.point[slot]
    quest.point[slot] = cell
    gain += quest.pure.unary[cell] - quest.pure.unary[here]
    gain += move_slot(quest.pure, state, quest.holders, slot, cell, quest.is_stale)
    return gain


@noalloc_kernel
def ascend_priced(problem, state, quest, gain, price, rounds):
    """Raise gain - price * cost slot by slot, until the need is reached; returns the gain."""
    values, cost, point = quest.values, quest.cost, quest.point
    for _ in range(rounds):
        is_better = False
        for slot in range(problem.n_slots):
            low = state.box[slot, LOW]
            high = state.box[slot, HIGH]
            if low == high or not quest.is_stale[slot]:
                continue
            quest.is_stale[slot] = False
            slot_values(quest.pure, state, quest.holders, slot, values)
            here = point[slot]
            best = here
            for cell in range(low, high + 1):
                mine = values[cell] - price * cost[cell]
                other = values[best] - price * cost[best]
                if mine > other or (mine == other and cost[cell] < cost[best]):
                    best = cell
            if best != here:
                is_better = True
                gain = move_to(problem, state, quest, slot, best, gain)
                if gain >= quest.need:
                    return gain
        if not is_better:
            break
    return gain


@noalloc_kernel
def make_cheaper(problem, state, quest, gain):
    """Move single slots to cheaper cells, the largest savings first, while the need is met.

    Returns the gain.
    """
    values, cost, point = quest.values, quest.cost, quest.point
    # Ends: each move saves cost, and points are finitely many.
    while True:
        best_slot = -1
        best_cell = np.int32(0)
        best_saving = 0.0
        for slot in range(problem.n_slots):
            here = point[slot]
            if cost[here] <= best_saving:
                continue
            slot_values(quest.pure, state, quest.holders, slot, values)
            for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
                saving = cost[here] - cost[cell]
                if saving > best_saving and gain + values[cell] - values[here] >= quest.need:
                    best_saving = saving
                    best_slot = slot
                    best_cell = np.int32(cell)
        if best_slot < 0:
            return gain
        gain = move_to(problem, state, quest, best_slot, best_cell, gain)


@noalloc_kernel
def climb_priced(problem, state, quest, is_thorough):
    """Gain of the quest's point after some ascent, with lower and lower prices, then without.

    So the changes that gain most for what they cost are made first.
    """
    gain = locate(quest.pure, state, quest.point, quest.holders)
    if not is_thorough:
        return gain
    price = 0.0 if quest.prices.is_max else state.weight[len(state.weight) - 1]
    n_steps = DISCOUNTS if price > 0.0 else 0
    for step in range(n_steps + 1):
        if gain >= quest.need:
            break
        is_last = step == n_steps
        for slot in range(problem.n_slots):
            quest.is_stale[slot] = True
        own = 0.0 if is_last else price * DISCOUNT**step
        gain = ascend_priced(problem, state, quest, gain, own, np.int64(ROUNDS if is_last else 1))
    return gain


@noalloc_kernel
def is_candidate(problem, state, quest, is_thorough):
    """Whether the quest's point, perhaps after small changes, may be a violation within the limit.

    Where several conditions must be met, ascent goes on with more weight on those that are not.
    """
    table = problem.conditions
    has_conditions = len(table.trial) > 1
    if has_conditions:
        copy_into(table.trial, state.weight)
        weigh_claim(quest, table.trial)
    gain = climb_priced(problem, state, quest, is_thorough)
    if has_conditions:
        for _ in range(ATTEMPTS if is_thorough else 0):
            if meets_claim(quest):
                break
            lighten(table.trial, table.value, ATTEMPT_STEP, table.trial)
            weigh_claim(quest, table.trial)
            gain = climb_priced(problem, state, quest, is_thorough)
        if not meets_claim(quest):
            return False
    elif gain < quest.need:
        return False
    copy_into(quest.best, quest.point)
    gain = make_cheaper(problem, state, quest, gain)
    if not meets_claim(quest):
        copy_into(quest.point, quest.best)
    return may_be_dear(quest) or point_cost(problem, quest, quest.point) <= quest.limit[0]


@noalloc_kernel
def may_be_dear(quest):
    """Whether a violation beyond the limit is of use: the first one says what to search below."""
    prices = quest.prices
    return not prices.is_max and not prices.takes_any and quest.found.upper[0] == np.inf


@noalloc_kernel
def weigh_claim(quest, weight):
    """Make the pure problem's terms the weighted sum of the claim's conditions, without cost."""
    if not quest.prices.is_max:
        weight[len(weight) - 1] = 0.0
    weigh(quest.pure, weight)


@noalloc_kernel
def meets_claim(quest):
    """Whether the located point meets all conditions of the claim, whatever it costs."""
    table = quest.pure.conditions
    if meets_conditions(quest.pure, quest):
        return True
    if quest.prices.is_max:
        return False
    for number in range(len(table.value) - 1):
        if table.value[number] < 0.0:
            return False
    table.value[len(table.value) - 1] = 0.0
    return True


@noalloc_kernel
def put_value(atoms, prices, axis, atom, point):
    """Write the values of an atom into a row."""
    first = atoms.column_start[axis]
    if atoms.choice_start[axis] < 0:
        point[atoms.columns[first]] = prices.value[atom]
        return
    width = atoms.column_start[axis + 1] - first
    start = atoms.choice_start[axis] + (atom - atoms.atom_start[axis]) * width
    for index in range(width):
        point[atoms.columns[first + index]] = atoms.choices[start + index]


@noalloc_kernel
def place_of(problem, quest, number):
    """Place of the kept atom of the quest's point in an axis: those of slots, then all others."""
    if number < problem.n_slots:
        return quest.place[quest.point[number]]
    return quest.kept.bottom[quest.others[number - problem.n_slots]]


@noalloc_kernel
def cost_with_others(problem, quest):
    """What the quest's point costs in all axes, and whether it only approaches that."""
    prices, kept = quest.prices, quest.kept
    cost = point_cost(problem, quest, quest.point)
    cost = max(cost, quest.elsewhere) if prices.is_max else cost + quest.elsewhere
    for number in range(len(kept.bottom)):
        place = place_of(problem, quest, number)
        if not prices.is_max:
            if prices.is_open[kept.atom[place]]:
                return cost, True
        elif kept.cost[place] == cost and is_beyond(prices, kept.atom[place]):
            return cost, True
    return cost, False


WITHIN, AT_THE_LIMIT, ABOVE = 0, 1, 2
"""Whether a point is within the limit, too near to it for sums of doubles to tell, or above."""


@noalloc_kernel
def side_of_limit(problem, quest):
    """On which side of the limit the quest's point lies.

    Where any violation within the limit is sought, a price that is only approached makes a point at
    the limit lie above. Sound: sums are taken with their errors; what these or rounded prices leave
    unclear is not decided.
    """
    prices, kept = quest.prices, quest.kept
    if not prices.takes_any:
        cost, is_open = cost_with_others(problem, quest)
        upper = quest.found.upper[0]
        if cost > upper or (cost == upper and (is_open or not quest.found.is_open[0])):
            return ABOVE  # Sound: it is no cheaper than the witness.
    if prices.is_max:
        # Atoms at the limit were kept only if they are within it.
        return WITHIN if point_cost(problem, quest, quest.point) <= quest.limit[0] else ABOVE
    total = 0.0
    error = 0.0
    is_open = False
    is_exact = prices.is_limit_exact
    # A limit below a witness is one of slots, that of a question one of all axes.
    limit = prices.limit if prices.takes_any else quest.limit[0]
    n_axes = len(kept.bottom) if prices.takes_any else problem.n_slots
    for number in range(n_axes):
        place = place_of(problem, quest, number)
        total, lost = two_sum(total, kept.cost[place])
        error += lost
        is_open = is_open or prices.is_open[kept.atom[place]]
        is_exact = is_exact and prices.is_exact[kept.atom[place]]
    excess = (total - limit) + error
    if prices.takes_any:
        # A rounded price is off by less than a unit in its last place, a limit likewise.
        unclear = 0.0 if error == 0.0 else 2.0**-100 * n_axes * n_axes * total
        unclear = unclear if is_exact else 2.0**-50 * n_axes * max(total, limit)
        if unclear > 0.0 and abs(excess) <= unclear:
            return AT_THE_LIMIT
        if excess == 0.0 and is_open:
            return ABOVE
    return ABOVE if excess > 0.0 else WITHIN


@noalloc_kernel
def judge_priced(problem, quest):
    """Judge the quest's point by its values; a violation becomes the witness, and lowers the limit.

    Points above the limit are not judged: HOLDS; but a first witness may be above, and leaves the
    limit as it is. Where any violation within the limit is sought, one that is too near to it is
    noted and AMBIGUOUS: who reads what was found decides.
    """
    found, kept, atoms = quest.found, quest.kept, quest.atoms
    side = side_of_limit(problem, quest)
    if side == ABOVE and not may_be_dear(quest):
        return np.int64(HOLDS)
    found.counts[POINTS] += 1
    point = quest.witness
    copy_into(point, quest.prices.row)
    for axis in range(len(kept.bottom)):
        put_value(atoms, quest.prices, axis, kept.atom[kept.bottom[axis]], point)
    for slot in range(problem.n_slots):
        axis = problem.slots[slot, FEATURE]
        put_value(atoms, quest.prices, axis, kept.atom[quest.place[quest.point[slot]]], point)
    verdict = judge(quest.forest, quest.claim, point, quest.fixed, quest.total)
    if verdict == BROKEN:
        cost = point_cost(problem, quest, quest.point)
        found.upper[0], found.is_open[0] = cost_with_others(problem, quest)
        copy_into(found.values, point)
        if side == AT_THE_LIMIT:
            return np.int64(AMBIGUOUS)
        if side == ABOVE:
            return verdict  # Sound: the limit stays, since atoms beyond it were not kept.
        if not quest.prices.takes_any:
            quest.prices.is_closed[0] = found.is_open[0]
        set_limit(problem, quest, next_limit(quest.prices, found.upper[0]), cost)
    return verdict


@noalloc_kernel
def price_box(problem, state, quest):
    """Bring box and problem in line with the limit and the state's weights.

    Returns False where nothing is left of the box.
    """
    if not drop_dear(problem, state, quest):
        return False
    last = len(state.weight) - 1
    if last > 0:
        weigh(problem, state.weight)
    if not quest.prices.is_max:
        set_price(problem, state, quest, state.weight[last])
    return True


@noalloc_kernel
def enter_priced(problem, state, quest):
    """Bring problem and state in line with the state's box, weights and the limit.

    Returns the bound (our doubles, not yet certified), or minus infinity where nothing is left.
    """
    if not price_box(problem, state, quest):
        return -np.inf
    # The limit may have fallen since the state's constant was derived: it is derived anew.
    if quest.is_narrow:
        enter_narrow(problem, state, quest.narrow)
    else:
        enter_box(problem, state)
    bound, _ = refresh_priced(problem, state, quest)
    return bound


@noalloc_kernel
def improve_terms(problem, state, quest, bound):
    """Improve the weights of conditions and α; returns the bound."""
    if len(state.weight) > 1:
        bound = improve_weights(problem, state)
    if not quest.prices.is_max:
        bound += improve_price(problem, state, quest)
    return bound


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


@noalloc_kernel
def close_or_split_priced(problem, state, quest, is_root, is_quick, history):
    """Work on the state's box until it is closed, has to be split, or shows a point to be judged.

    As `treeproof.kernels.exact.search.close_or_split`; the floor of several conditions is 0.
    """
    floor = quest.floor
    bound = enter_priced(problem, state, quest)
    if bound == -np.inf:
        return CLOSED, 0.0
    limit = ROOT_SWEEPS if is_root else NODE_SWEEPS
    turn = 0
    # Ends: sweeps are counted, and counted anew only in a box of fewer cells.
    while True:
        if bound < floor:
            # The sweeps' bound drifts with rounding; only the fresh one closes a box.
            bound, error = refresh_priced(problem, state, quest)
            if bound + error < floor:
                return CLOSED, 0.0
        before = bound
        bound = sweep_priced(problem, state, quest, turn % 2 == 0, bound)
        quest.found.counts[SWEEPS] += 1
        turn += 1
        if bound < floor and turn < limit:
            continue
        if turn & (turn - 1) == 0 and bound >= floor:
            bound = improve_terms(problem, state, quest, bound)
        if is_root and turn == QUICK_SWEEPS:
            if not is_quick:
                bound = shift_price(problem, state, quest, bound, PRICE_STEP)
            if history == FRESH and bound >= floor:
                decode(problem, state, state.rest, quest.cost, quest.point)
                if is_candidate(problem, state, quest, True):
                    return CANDIDATE, 0.0
            outcome, gap, _ = look_closer_priced(problem, state, quest, history != REJECTED)
            if outcome != SPLIT or is_quick:
                return outcome, gap
            bound = enter_priced(problem, state, quest)
            if bound == -np.inf:
                return CLOSED, 0.0
        if turn == limit or (
            turn >= 2 and not is_root and bound - floor > PATIENCE * (before - bound)
        ):
            bound = shift_price(
                problem, state, quest, bound, PRICE_STEP if is_root else NODE_PRICE_STEP
            )
            outcome, gap, kept = look_closer_priced(problem, state, quest, history != REJECTED)
            if outcome == SPLIT and is_far_smaller(problem, state):
                return outcome, gap
            if outcome != SPLIT or kept > WORTH_ANOTHER_TRY:
                return outcome, gap
            bound = enter_priced(problem, state, quest)
            if bound == -np.inf:
                return CLOSED, 0.0
            turn = 0


@noalloc_kernel
def look_closer_priced(problem, state, quest, may_propose):
    """Use the costs of single cells: propose the best point, drop cells that cost too much."""
    bound, error = refresh_priced(problem, state, quest)
    if bound + error < quest.floor:
        return CLOSED, 0.0, 0.0
    if quest.is_narrow:
        marginals_narrow(problem, state, quest.narrow)
    else:
        marginals(problem, state)
    if may_propose:
        decode(problem, state, state.marginal, quest.cost, quest.point)
        if is_candidate(problem, state, quest, False):
            return CANDIDATE, 0.0, 1.0
    # Sound: with a cell fixed the bound is bound + marginal, each within error of exact.
    kept = eliminate(problem, state, bound + 2.0 * error, quest.floor)
    if kept == 0.0:
        return CLOSED, 0.0, 0.0
    return SPLIT, bound + 2.0 * error - quest.floor, kept


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
def note_lower(state, quest, gap):
    """Note what violations cost at least, from how far the bound at the limit is above the floor.

    Sound: with α and multipliers as they are, the bound falls by α for each unit that the limit
    falls by; below a limit at which it is under the floor there is nothing. Costs of all axes are
    sums of doubles that were rounded down, and the result is shrunk by more than all rounding.
    """
    price = state.weight[len(state.weight) - 1]
    if quest.prices.is_max or quest.prices.takes_any or price <= 0.0:
        return
    total = quest.limit[0] + quest.elsewhere
    lower = total - gap / price - 2.0**-40 * (total + gap / price)
    quest.found.way_lower[0] = max(quest.found.way_lower[0], lower)


@inner_kernel
def search_priced(problem, state, quest, is_quick, is_part, parts, budget):
    """Search the kept atoms for violations within the limit; what is found is noted at once.

    A quick search looks at the root only. With a witness the search ends UNDECIDED where any will
    do, where points cost their dearest atom, and where it is far cheaper than the limit: the trees
    are worth restricting anew, unless this is only a part of what is searched.

    Returns
    -------
    status  int
        PROVED: nothing cheaper than the witness is left, if there is one, but for what was added to
        the parts; or why the search ended.
    parts   Parts
        Those given and what is left of boxes that became small.
    """
    found, prices = quest.found, quest.prices
    clock = np.empty(2, dtype=np.int64)
    stack = new_stack(state, np.int64(8))
    is_root = np.bool_(True)  # a variable, not a literal: kernels are compiled once for each
    is_near_tie = False
    began_at = quest.limit[0]
    most_sweeps = found.counts[SWEEPS] + budget.work / max(len(problem.entries), LARGE)
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
        slot = np.int64(-1)
        cell = np.int64(0)
        # Ends: each witness is nearer, and what is no witness ends proposals.
        while True:
            outcome, gap = close_or_split_priced(
                problem, state, quest, is_root, is_quick, history
            )  # fmt: skip
            if outcome == CLOSED:
                break
            if outcome == SPLIT:
                if is_root and not is_part:
                    note_lower(state, quest, gap)
                if is_quick:
                    return UNDECIDED, parts
                if is_far_smaller(problem, state):
                    if parts.atoms.nbytes > budget.memory_bytes:
                        return MEMORY_LIMIT, parts
                    parts = with_part(parts, problem, state, quest.kept)
                    break
                slot, cell = choose_priced(problem, state, quest, gap)
                if slot >= 0:
                    break
                # All that is left reaches the same leaves: the cheapest of it is judged.
                decode_cheapest(problem, state, quest)
            verdict = judge_priced(problem, quest)
            history = np.int64(REJECTED)
            if verdict == BROKEN:
                history = np.int64(WITNESSED)
                if prices.takes_any:
                    return UNDECIDED, parts
                if is_quick and found.upper[0] > quest.limit[0] + quest.elsewhere:
                    return UNDECIDED, parts
                if prices.is_max or (
                    n_nodes <= EARLY and quest.limit[0] < FAR_CHEAPER * began_at and not is_part
                ):
                    return UNDECIDED, parts
            if outcome == SPLIT:
                # Sound: all that is left of the box reaches the leaves just judged, and costs no
                # less than the point.
                is_near_tie = is_near_tie or verdict == AMBIGUOUS
                break
        is_root = np.bool_(False)
        if slot >= 0:
            stack, has_room = with_room(stack, budget.memory_bytes)
            if not has_room:
                return MEMORY_LIMIT, parts
            push_part(stack, state, slot, cell, not peaks_right(state, slot, cell))
        elif stack.size[0] > 0:
            pop(stack, state)
        else:
            return NEAR_TIE if is_near_tie else PROVED, parts


@noalloc_kernel
def choose_priced(problem, state, quest, gap):
    """As `choose_branch`, but first where the price jumps by most of what may still be spent.

    Beyond such a jump hardly anything is left for other slots, before it the slot hardly counts;
    together they are a mixture that no α bounds well. Of slots with one, that with most factor
    boundaries is cut, as elsewhere.

    Sound: any slot may be cut after any of its cells.
    """
    cost = quest.cost
    left = quest.limit[0]
    for slot in range(problem.n_slots):
        least = np.inf
        for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
            least = min(least, cost[cell])
        left -= least
    best_slot = -1
    best_cell = 0
    best_weight = 0.0
    for slot in range(problem.n_slots if not quest.prices.is_max else 0):
        low = state.box[slot, LOW]
        high = state.box[slot, HIGH]
        while low < high and state.marginal[low] < -gap:
            low += 1
        while high > low and state.marginal[high] < -gap:
            high -= 1
        largest = max(JUMP * left, 0.0)
        cut = -1
        for cell in range(low, high):
            jump = abs(cost[cell + 1] - cost[cell])
            if jump > largest:
                largest = jump
                cut = cell
        if cut >= 0:
            count_boundaries(problem, state, slot, low, high)
            weight = 0.0
            for cell in range(low, high):
                weight += state.scratch[cell]
            if weight > best_weight:
                best_weight = weight
                best_slot = slot
                best_cell = cut
    if best_slot < 0:
        return choose_branch(problem, state, gap)
    return best_slot, best_cell


@noalloc_kernel
def decode_cheapest(problem, state, quest):
    """Point that takes the cheapest cell of every slot.

    Of cells that cost the same double, one that costs no more than it: a limit may be just that.
    """
    prices, kept, place = quest.prices, quest.kept, quest.place
    for slot in range(problem.n_slots):
        best = state.box[slot, LOW]
        for cell in range(best + 1, state.box[slot, HIGH] + 1):
            if is_cheaper(prices, kept.atom[place[cell]], kept.atom[place[best]]):
                best = cell
        quest.point[slot] = best
