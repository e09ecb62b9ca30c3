"""What a search looks for: points of enough gain, the cheaper the better.

The cost of a point is the largest cost of its cells, as in balls, where it is a distance, or the
sum of them. Every cell costs what its cheapest atom does.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arithmetic import two_sum
from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.balls import cell_distance
from treeproof.kernels.core.compiler import inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.exact.conditions import add_up, lighten
from treeproof.kernels.exact.primal import (
    Found,
    Gains,
    Holders,
    gains_of,
    locate,
    meets_conditions,
    move_slot,
    new_holders,
    own_gains,
    slot_values,
)
from treeproof.kernels.exact.problem import BASE, CELL_START, FEATURE, HIGH, LOW

ATOM, DOUBT = 0, 1
LIMIT, STEPS = 0, 1
"""Places in arrays of an `Objective`."""

OPEN, ROUNDED = 1, 2
"""Of a cost: it is only approached; its double was rounded down. Either is beyond the double."""

CLOSER = 2.0**-41
"""Part of a witness's cost by which a cheaper one has to be cheaper, where costs have no grid."""
SMALLEST_NORMAL = 2.0**-1022
"""Doubles below this one are all multiples of the smallest one."""
ATTEMPTS, ATTEMPT_STEP = 12, 0.7
"""Ascents with other weights until all conditions are met, and how far weights change."""
REPAIR_ROUNDS = 2
"""Rounds of ascent after each step closer."""
DISCOUNTS, DISCOUNT = 8, 0.7
"""Before an ascent by gains alone, how many there are in which costs count, each with that part of
the cost weight of the one before."""


class Measure(NamedTuple):
    """How costs add up, and which of them are asked about."""

    is_max: bool  # a point costs its dearest cell, otherwise the sum of its cells
    takes_any: bool  # any violation within the limit will do, otherwise the cheapest is sought
    within: float  # nothing beyond this is asked about
    is_within_exact: bool  # otherwise it was rounded up
    # Of two sums of costs that differ, the difference is at least this; 0 where nothing is known
    grid: float
    # What only approaches a limit is beyond it: any violation within the limit will do, or there is
    # a witness that only approaches its cost, and what attains that is sought
    is_closed: np.ndarray  # (1,) bool


class Elsewhere(NamedTuple):
    """What the axes that are no slots cost together."""

    cost: float
    lost: float  # what rounding took off their sum
    doubt: int  # OPEN, ROUNDED, of those that matter


class Objective(NamedTuple):
    """What is sought in a problem, and the best that was found; scratch of points."""

    need: float  # gain from which a point is worth judging
    floor: float  # no violation has a gain below it
    # Of the claim, and limits of other costs; the cost is one more of the problem's, if it is a sum
    n_conditions: int
    n_limits: int  # the last of them that are limits
    measure: Measure
    gains: Gains  # of points; with costs that are sums other arrays than the problem's terms
    cost: np.ndarray  # (n_cells,) float64; rounded down
    atoms: np.ndarray  # (n_cells, 2) int32; ATOM: the one of that cost, within its axis; DOUBT
    base: np.ndarray  # (n_axes,) int32; the cheapest atom of each axis
    elsewhere: Elsewhere
    most: float  # sum of the largest costs of all slots
    # LIMIT: what slots may cost together, where costs are sums; STEPS: by which the point was moved
    # closer
    live: np.ndarray  # (2,) float64
    found: Found
    point: np.ndarray  # (n_slots,) int32; the point under consideration
    values: np.ndarray  # (n_cells,) float64; scratch
    saved: np.ndarray  # (n_slots, 4) int32; scratch: a box and two points
    multiplier: np.ndarray  # (n_segments,) float64; scratch, where costs are sums
    holders: Holders  # where the point lies
    # Scratch: slots whose best cell may have changed since it was chosen
    is_stale: np.ndarray  # (n_slots,) bool


@inlined_kernel
def is_cheaper(cost, doubt, other_cost, other_doubt):
    """Whether a cost comes before another; an attained one before one that is beyond its double."""
    return cost < other_cost or (cost == other_cost and other_doubt != 0 and doubt == 0)


@inner_kernel
def new_objective(problem, measure, need, floor, counts, costs, base, elsewhere, found):
    """What is sought in a problem.

    counts n_conditions and n_limits
    costs  cost of each cell, with its atom and doubt, and the sum of the largest costs of all slots
    """
    cost, atoms, most = costs
    n_conditions, n_limits = counts
    n_slots, n_cells, has_conditions = problem.n_slots, len(problem.unary), n_conditions > 1
    gains = gains_of(problem)
    multiplier = problem.unary
    if has_conditions or not measure.is_max:
        gains = own_gains(problem, has_conditions)
        multiplier = np.empty(len(problem.segments), dtype=np.float64)
    live = np.zeros(2, dtype=np.float64)
    live[LIMIT] = measure.within
    return Objective(
        need, floor, n_conditions, n_limits, measure, gains, cost, atoms, base, elsewhere, most,
        live, found, np.zeros(n_slots, dtype=np.int32),
        np.empty(max(n_cells, n_slots), dtype=np.float64),
        np.empty((n_slots, 4), dtype=np.int32), multiplier,
        new_holders(problem), np.empty(n_slots, dtype=np.bool_),
    )  # fmt: skip


@inner_kernel
def nearest_of(takes_any, within, is_closed):
    """How costs of balls and boxes are measured; nobody reads `is_closed` of them."""
    return Measure(np.bool_(True), takes_any, within, np.bool_(True), 0.0, is_closed)


@inner_kernel
def ball_objective(problem, space, region, box, need, floor, n_conditions, found):
    """What is sought in a ball, or in a box: the nearest point, or any."""
    n_cells = len(problem.cells)
    cost, atoms = np.empty(n_cells, dtype=np.float64), np.empty((n_cells, 2), dtype=np.int32)
    measure_cells(problem, space, region, box, cost, atoms)
    base = region.home  # which lies in every box around the row
    if not region.is_ball:
        base = np.empty(len(box.low), dtype=np.int32)
        for feature in range(len(base)):
            base[feature] = min(max(region.home[feature], box.low[feature]), box.high[feature])
    measure = nearest_of(region.takes_any, region.within, found.is_open)
    return new_objective(
        problem, measure, need, floor, (n_conditions, np.int64(0)), (cost, atoms, 0.0), base,
        Elsewhere(0.0, 0.0, np.int64(0)), found,
    )  # fmt: skip


@inner_kernel
def free_objective(problem, need, floor, n_conditions, found):
    """What is sought where nothing costs anything: any point that reaches the need."""
    n_cells = len(problem.unary)
    costs = np.zeros(n_cells, dtype=np.float64), np.zeros((n_cells, 2), dtype=np.int32), 0.0
    return new_objective(
        problem, nearest_of(np.bool_(True), np.inf, found.is_open), need, floor,
        (n_conditions, np.int64(0)), costs, np.empty(0, dtype=np.int32),
        Elsewhere(0.0, 0.0, np.int64(0)), found,
    )  # fmt: skip


@noalloc_kernel
def measure_cells(problem, space, region, box, cost, atoms):
    """Fill in the cost of every cell: the radius at which a ball reaches it; 0 in a box.

    The atom of a cell is the one that is nearest to the row's own.
    """
    for slot in range(problem.n_slots):
        feature = problem.slots[slot, FEATURE]
        home = region.home[feature]
        nearest = min(max(home, box.low[feature]), box.high[feature])
        rates = region.down[feature], region.up[feature]
        sides = region.low[feature], region.high[feature]
        for cell in range(problem.slots[slot, CELL_START], problem.slots[slot + 1, CELL_START]):
            first, last = problem.cells[cell, LOW], problem.cells[cell, HIGH]
            atoms[cell, ATOM] = min(max(nearest, first), last)
            atoms[cell, DOUBT] = 0
            cost[cell] = 0.0
            if region.is_ball:
                cost[cell], is_beyond = cell_distance(
                    space, feature, first, last, home, region.row[feature], rates, sides
                )
                atoms[cell, DOUBT] = OPEN if is_beyond else 0


@noalloc_kernel
def has_steps(measure, cost):
    """Whether costs that are below a given one are so by a step of their grid.

    Sound: sums of the smallest doubles are multiples of the smallest one, and not rounded.
    """
    is_on_grid = measure.grid > 0.0 and measure.grid >= CLOSER * cost
    return measure.is_max or is_on_grid or cost < SMALLEST_NORMAL


@noalloc_kernel
def next_limit(measure, cost):
    """What a violation may cost that is cheaper than a witness, or attains what that approaches."""
    if measure.is_closed[0] and has_steps(measure, cost):
        return cost
    if cost <= 0.0:
        return -1.0
    if not has_steps(measure, cost):
        return cost * (1.0 - CLOSER)
    is_on_grid = measure.grid > 0.0 and not measure.is_max
    return cost - measure.grid if is_on_grid else np.nextafter(cost, 0.0)


@noalloc_kernel
def drop_beyond(problem, state, objective, upper, is_open):
    """Keep only cells below a largest cost; False when some slot has none left.

    A witness that only approaches its cost leaves room for one that attains it.

    Sound: end cells alone are dropped, so what remains of a box is a box, and no cell of it that is
    cheap enough is lost.
    """
    cost, atoms = objective.cost, objective.atoms
    for slot in range(problem.n_slots):
        low = state.box[slot, LOW]
        high = state.box[slot, HIGH]
        while low <= high and (
            cost[low] > upper or (cost[low] == upper and (atoms[low, DOUBT] != 0 or not is_open))
        ):
            low += 1
        while low <= high and (
            cost[high] > upper or (cost[high] == upper and (atoms[high, DOUBT] != 0 or not is_open))
        ):
            high -= 1
        state.box[slot, LOW] = low
        state.box[slot, HIGH] = high
        if low > high:
            return False
    return True


@noalloc_kernel
def drop_over_limit(problem, state, objective):
    """Keep only cells that points within the limit of a sum can use; False when some slot has none.

    Sound: a point costs at least the cell and the cheapest cells of all other slots; sums are
    shrunk by more than their rounding.
    """
    cost, limit, cheapest = objective.cost, objective.live[LIMIT], objective.values
    shrink = 1.0 - (problem.n_slots + 4) * 2.0**-52
    total = 0.0
    for slot in range(problem.n_slots):
        least = np.inf
        for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
            least = min(least, cost[cell])
        cheapest[slot] = least
        total += least
    if total * shrink > limit:
        return False
    for slot in range(problem.n_slots):
        low = state.box[slot, LOW]
        high = state.box[slot, HIGH]
        others = total - cheapest[slot]
        while low <= high and (others + cost[low]) * shrink > limit:
            low += 1
        while low <= high and (others + cost[high]) * shrink > limit:
            high -= 1
        state.box[slot, LOW] = low
        state.box[slot, HIGH] = high
        if low > high:
            return False
    return True


@noalloc_kernel
def shrink_box(problem, state, objective):
    """Drop end cells that nothing cheaper than the witness can use; False when nothing is left."""
    found = objective.found
    if objective.measure.is_max:
        return drop_beyond(problem, state, objective, found.upper[0], found.is_open[0])
    return drop_over_limit(problem, state, objective)


@noalloc_kernel
def set_limit(problem, objective, limit, below):
    """Lower what a point may cost as a sum; the cost weight must be set anew.

    below  float64  what slots cost at the witness, which is no longer within the limit

    Sound: what other axes cost is taken off rounded down. Slots that cost as much as those of the
    witness are no cheaper than it; they may attain what it approaches.
    """
    elsewhere = objective.elsewhere.cost
    if elsewhere > 0.0:
        limit = np.nextafter(limit - elsewhere * (1.0 - 2.0**-40), np.inf)
    limit = min(limit, below if objective.measure.is_closed[0] else np.nextafter(below, -np.inf))
    objective.live[LIMIT] = limit
    table = problem.conditions
    if len(table.weight) > objective.n_conditions:
        table.terms[objective.n_conditions, 0] = limit


@inlined_kernel
def cost_of_slots(problem, objective):
    """What the point costs in its slots, and what is beyond that: OPEN, ROUNDED."""
    total = 0.0
    doubt = np.int64(0)
    for slot in range(problem.n_slots):
        cell = objective.point[slot]
        cost = objective.cost[cell]
        if not objective.measure.is_max:
            total += cost
            doubt |= np.int64(objective.atoms[cell, DOUBT])
        elif cost > total:
            total, doubt = cost, np.int64(objective.atoms[cell, DOUBT])
        elif cost == total:
            doubt |= np.int64(objective.atoms[cell, DOUBT])
    return total, doubt


@noalloc_kernel
def cost_of_point(problem, objective):
    """What the point costs in all axes, and whether it only approaches that.

    What was rounded in a sum is not looked at: who reads the witness adds up in fractions.
    """
    total, doubt = cost_of_slots(problem, objective)
    elsewhere = objective.elsewhere
    if not objective.measure.is_max:
        return total + elsewhere.cost, (doubt | elsewhere.doubt) & OPEN != 0
    if elsewhere.cost > total:
        return elsewhere.cost, elsewhere.doubt != 0
    if elsewhere.cost == total:
        doubt |= elsewhere.doubt
    return total, doubt != 0


WITHIN, AT_THE_LIMIT, ABOVE = 0, 1, 2
"""Whether a point is within the limit, too near to it for sums of doubles to tell, or above."""


@inlined_kernel
def side_of_limit(problem, objective):
    """On which side of what is asked about, and of the witness, the point lies.

    Sound: sums are taken with their errors; what these or rounded costs leave unclear is not
    decided. Of largest costs, what is beyond the limit is in no box that is searched.
    """
    measure, found = objective.measure, objective.found
    if not measure.takes_any:
        cost, is_open = cost_of_point(problem, objective)
        upper = found.upper[0]
        if cost > upper or (cost == upper and (is_open or not found.is_open[0])):
            return ABOVE  # Sound: it is no cheaper than the witness.
    if measure.is_max:
        return WITHIN
    total = 0.0
    error = 0.0
    doubt = np.int64(0)
    # A limit below a witness is one of slots, that of a question one of all axes.
    limit = measure.within if measure.takes_any else objective.live[LIMIT]
    if measure.takes_any:
        elsewhere = objective.elsewhere
        total, error, doubt = elsewhere.cost, elsewhere.lost, elsewhere.doubt
    for slot in range(problem.n_slots):
        cell = objective.point[slot]
        total, lost = two_sum(total, objective.cost[cell])
        error += lost
        doubt |= np.int64(objective.atoms[cell, DOUBT])
    excess = (total - limit) + error
    if measure.takes_any:
        # A rounded cost is off by less than a unit in its last place, a limit likewise.
        n_axes = len(objective.base)
        unclear = 0.0 if error == 0.0 else 2.0**-100 * n_axes * n_axes * total
        if doubt & ROUNDED != 0 or not measure.is_within_exact:
            unclear = 2.0**-50 * n_axes * max(total, limit)
        if unclear > 0.0 and abs(excess) <= unclear:
            return AT_THE_LIMIT
        if excess == 0.0 and doubt & OPEN != 0:
            return ABOVE
    return ABOVE if excess > 0.0 else WITHIN


@noalloc_kernel
def may_cost_more(objective):
    """Whether a violation beyond the limit is of use: the first one says what to search below."""
    measure = objective.measure
    return not measure.is_max and not measure.takes_any and objective.found.upper[0] == np.inf


@noalloc_kernel
def ascend(problem, state, objective, value, weight, rounds):
    """Raise gain - weight * cost slot by slot inside the box until the need; returns the gain.

    ``holders`` must know the point, ``is_stale`` tell which slots to look at first.
    """
    cost, point, values = objective.cost, objective.point, objective.values
    for _ in range(rounds):
        is_better = False
        for slot in range(problem.n_slots):
            low = state.box[slot, LOW]
            high = state.box[slot, HIGH]
            if low == high or not objective.is_stale[slot]:
                continue
            objective.is_stale[slot] = False
            here = point[slot]
            slot_values(problem, objective.gains, state, objective.holders, slot, values)
            best = here
            most = values[here] - weight * cost[here]
            for cell in range(low, high + 1):
                score = values[cell] - weight * cost[cell]
                if score > most or (score == most and cost[cell] < cost[best]):
                    best = cell
                    most = score
            if best != here:
                is_better = is_better or weight > 0.0 or values[best] > values[here]
                value += values[best] - values[here]
                point[slot] = best
                move_slot(
                    problem, objective.gains, state, objective.holders, slot, best,
                    objective.is_stale,
                )  # fmt: skip
                if value >= objective.need:
                    return value
        if not is_better:
            break
    return value


@noalloc_kernel
def climb(problem, state, objective, rounds):
    """Gain of the point after some rounds of ascent in the box.

    Where costs are a sum, lower and lower cost weights come first: so the changes that gain most
    for what they cost are made first.
    """
    value = locate(problem, objective.gains, state, objective.point, objective.holders)
    weight = 0.0 if objective.measure.is_max else state.weight[len(state.weight) - 1]
    n_discounts = DISCOUNTS if weight > 0.0 and rounds > 0 else 0
    for step in range(n_discounts + 1):
        for slot in range(problem.n_slots):
            objective.is_stale[slot] = True
        if value >= objective.need:
            break
        is_last = step == n_discounts
        own = 0.0 if is_last else weight * DISCOUNT**step
        value = ascend(problem, state, objective, value, own, np.int64(rounds if is_last else 1))
    return value


@noalloc_kernel
def reaches_need(problem, state, objective, rounds):
    """Whether the point, after some rounds of ascent in the box, is worth judging.

    Then it is made as cheap as small changes make it; `take_back` undoes that for largest costs.
    Where several conditions must be met, ascent goes on with more weight on those that are not.
    """
    table, n_conditions = problem.conditions, objective.n_conditions
    objective.live[STEPS] = 0
    if n_conditions > 1:
        copy_into(table.trial, state.weight)
        weigh_claim(objective, table)
    value = climb(problem, state, objective, rounds)
    is_reached = value >= objective.need and meets_claim(problem, objective)
    if n_conditions > 1 and rounds > 0 and not is_reached:
        for _ in range(ATTEMPTS):
            if meets_claim(problem, objective):
                is_reached = True
                break
            lighten(table.trial, table.value, ATTEMPT_STEP, table.trial)
            weigh_claim(objective, table)
            value = climb(problem, state, objective, rounds)
    if not is_reached:
        return False
    if objective.measure.is_max:
        descend(problem, state, objective, value)
        return True
    make_cheaper(problem, state, objective, value)
    return may_cost_more(objective) or cost_of_slots(problem, objective)[0] <= objective.live[LIMIT]


@noalloc_kernel
def weigh_claim(objective, table):
    """Make gains the sum of the claim's conditions by the trial weights, without costs."""
    if len(table.trial) > objective.n_conditions:
        table.trial[objective.n_conditions] = 0.0
    gains = objective.gains
    add_up(table, table.trial, gains.terms, gains.unary, gains.leaf)


@noalloc_kernel
def meets_claim(problem, objective):
    """Whether the located point meets all conditions of the claim, whatever it costs."""
    table, n_conditions = problem.conditions, objective.n_conditions
    is_met = meets_conditions(problem, objective.point, objective.holders, n_conditions)
    if len(table.value) > n_conditions:
        table.value[n_conditions] = 0.0
    return is_met


@inlined_kernel
def move_to(problem, state, objective, slot, cell, value):
    """Move the point in one slot; returns its gain."""
    gains, here = objective.gains, objective.point[slot]
    objective.point[slot] = cell
    value += gains.unary[cell] - gains.unary[here]
    value += move_slot(problem, gains, state, objective.holders, slot, cell, objective.is_stale)
    return value


@inlined_kernel
def descend(problem, state, objective, value):
    """Move a point that reaches the need closer, threshold by threshold, while it still does.

    The farthest slots are moved inwards, and what that spoils is repaired by ascent among the slots
    concerned. The box stays as it was, since the point may yet be rejected.
    """
    saved, point = objective.saved, objective.point
    cost, atoms = objective.cost, objective.atoms
    for slot in range(problem.n_slots):
        saved[slot, 0] = state.box[slot, LOW]
        saved[slot, 1] = state.box[slot, HIGH]
        saved[slot, 2] = point[slot]
    upper, doubt = cost_of_slots(problem, objective)
    # Ends: each step makes the point cheaper.
    while True:
        for slot in range(problem.n_slots):
            saved[slot, 3] = point[slot]
        if (upper == 0.0 and doubt == 0) or not drop_beyond(
            problem, state, objective, upper, doubt != 0
        ):
            break
        for slot in range(problem.n_slots):
            here = point[slot]
            nearer = np.int32(min(max(here, state.box[slot, LOW]), state.box[slot, HIGH]))
            if not is_cheaper(cost[nearer], atoms[nearer, DOUBT], upper, doubt):
                nearer = state.box[slot, LOW]  # dear cells may lie between cheap ones
            if nearer != here:
                value = move_to(problem, state, objective, slot, nearer, value)
                objective.is_stale[slot] = True
        if value < objective.need:
            value = ascend(problem, state, objective, value, 0.0, np.int64(REPAIR_ROUNDS))
            if value < objective.need:
                break
        after, doubt_after = cost_of_slots(problem, objective)
        if not is_cheaper(after, doubt_after, upper, doubt) or not meets_claim(problem, objective):
            break
        upper, doubt = after, doubt_after
        objective.live[STEPS] += 1
    for slot in range(problem.n_slots):
        state.box[slot, LOW] = saved[slot, 0]
        state.box[slot, HIGH] = saved[slot, 1]
        point[slot] = saved[slot, 3]


@noalloc_kernel
def take_back(problem, objective):
    """Undo the descent of the point; False when there was none."""
    if objective.live[STEPS] == 0:
        return False
    objective.live[STEPS] = 0
    for slot in range(problem.n_slots):
        objective.point[slot] = objective.saved[slot, 2]
    return True


@noalloc_kernel
def make_cheaper(problem, state, objective, value):
    """Move single slots to cheaper cells, the largest savings first, while the need is met.

    What conditions do not allow is undone as a whole.
    """
    values, cost, point = objective.values, objective.cost, objective.point
    for slot in range(problem.n_slots):
        objective.saved[slot, 3] = point[slot]
    # Ends: each move saves cost, and points are finitely many.
    while True:
        best_slot = -1
        best_cell = np.int32(0)
        best_saving = 0.0
        for slot in range(problem.n_slots):
            here = point[slot]
            if cost[here] <= best_saving:
                continue
            slot_values(problem, objective.gains, state, objective.holders, slot, values)
            for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
                saving = cost[here] - cost[cell]
                is_enough = value + values[cell] - values[here] >= objective.need
                if saving > best_saving and is_enough:
                    best_saving = saving
                    best_slot = slot
                    best_cell = np.int32(cell)
        if best_slot < 0:
            break
        value = move_to(problem, state, objective, best_slot, best_cell, value)
    if not meets_claim(problem, objective):
        for slot in range(problem.n_slots):
            point[slot] = objective.saved[slot, 3]


@noalloc_kernel
def cheapest_point(problem, state, objective):
    """Point that takes the cheapest cell of every slot.

    Of cells that cost the same double, one that costs no more than it: a limit may be just that.
    """
    cost, atoms = objective.cost, objective.atoms
    for slot in range(problem.n_slots):
        best = state.box[slot, LOW]
        for cell in range(best + 1, state.box[slot, HIGH] + 1):
            if is_cheaper(cost[cell], atoms[cell, DOUBT], cost[best], atoms[best, DOUBT]):
                best = cell
        objective.point[slot] = best


@noalloc_kernel
def exceeds_limits(problem, objective):
    """Whether the point costs more than a limit of another cost, as far as rounding can tell."""
    table, last = problem.conditions, objective.n_conditions
    for number in range(last - objective.n_limits, last):
        left = table.terms[number, BASE]
        for slot in range(problem.n_slots):
            left += table.unary[number, objective.point[slot]]
        if left < 0.0:
            return True
    return False
