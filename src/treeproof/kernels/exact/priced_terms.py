"""Terms of a problem in which cells have prices: the limit, α, and cells that are too dear.

See `treeproof.kernels.exact.priced_search` for what α is.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.cells import Atoms, Kept
from treeproof.kernels.core.compiler import noalloc_kernel
from treeproof.kernels.core.emulation import Claim, Forest
from treeproof.kernels.exact.conditions import weigh
from treeproof.kernels.exact.dual import refresh, sweep
from treeproof.kernels.exact.narrow_dual import Narrow, refresh_narrow, sweep_narrow
from treeproof.kernels.exact.priced_leaves import PriceList, is_cheaper
from treeproof.kernels.exact.primal import SWEEPS, Holders
from treeproof.kernels.exact.problem import (
    BASE,
    CELL_START,
    FEATURE,
    GROSS,
    HIGH,
    LOW,
    Problem,
)

CLOSER = 2.0**-41
"""Part of a witness's cost by which a cheaper one has to be cheaper, where costs have no grid."""
PRICE_SWEEPS, LEAST_PROGRESS, MOST_PRICE_STEPS = 2, 0.01, 24
"""Sweeps after which another α is judged, the part of the gap it must gain for another step, and
most steps: where the bound falls to just the floor with α, each gains its part for ever."""


SMALLEST_NORMAL = 2.0**-1022
"""Doubles below this one are all multiples of the smallest one."""


class PricedFound(NamedTuple):
    """What is known about a row; arrays of one entry are overwritten in place."""

    lower: np.ndarray  # (1,) float64; no violation costs less
    upper: np.ndarray  # (1,) float64; cost of the witness; infinite without one
    is_open: np.ndarray  # (1,) bool; the witness only approaches it
    values: np.ndarray  # (n_features,) float64; of the witness
    counts: np.ndarray  # (4,) int64; nodes, sweeps, points, restrictions
    way_lower: np.ndarray  # (1,) float64; no violation by the alternative at hand costs less
    # Cost from which the best affordable leaves of all trees break the claim
    eq6_cost: np.ndarray  # (1,) float64


class Quest(NamedTuple):
    """The cheapest violation in a problem, and the best that was found."""

    forest: Forest
    claim: Claim
    atoms: Atoms
    prices: PriceList
    kept: Kept
    found: PricedFound
    pure: Problem  # the problem without prices; its other arrays are those of the priced one
    need: float  # gain from which a point is worth judging
    floor: float  # no violation has a gain below it
    cost: np.ndarray  # (n_cells,) float64; of the cheapest atom of each cell
    place: np.ndarray  # (n_cells,) int32; of that atom among the kept ones
    limit: np.ndarray  # (1,) float64; what slots may cost together
    elsewhere: float  # cost of the axes that are no slots
    others: np.ndarray  # (n_axes - n_slots,) int32; the axes that are no slots
    most: float  # sum of the largest costs of all slots
    point: np.ndarray  # (n_slots,) int32; the point under consideration
    best: np.ndarray  # (n_slots,) int32; scratch: the best point so far
    values: np.ndarray  # (n_cells,) float64; scratch
    saved: np.ndarray  # (n_segments,) float64; scratch: multipliers
    narrow: Narrow
    is_narrow: bool  # whether sweeps visit narrow ranges only; never with several conditions
    holders: Holders
    is_stale: np.ndarray  # (n_slots,) bool; scratch
    witness: np.ndarray  # (n_features,) float64; scratch: values of the point
    fixed: np.ndarray  # (n_features,) int32; FIXED: points are judged by their values
    total: np.ndarray  # (n_outputs,) float64; scratch


@noalloc_kernel
def next_limit(prices, cost):
    """What a violation may cost that is cheaper than a witness, or attains what that approaches."""
    if prices.is_closed[0] and has_steps(prices, cost):
        return cost
    if cost <= 0.0:
        return -1.0
    if not has_steps(prices, cost):
        return cost * (1.0 - CLOSER)
    is_on_grid = prices.grid > 0.0 and not prices.is_max
    return cost - prices.grid if is_on_grid else np.nextafter(cost, 0.0)


@noalloc_kernel
def has_steps(prices, cost):
    """Whether costs that are below a given one are so by a step of their grid.

    Sound: sums of the smallest doubles are multiples of the smallest one, and not rounded.
    """
    is_on_grid = prices.grid > 0.0 and prices.grid >= CLOSER * cost
    return prices.is_max or is_on_grid or cost < SMALLEST_NORMAL


@noalloc_kernel
def set_limit(problem, quest, limit, below):
    """Lower what a point may cost; α must be set anew.

    below  float64  what slots cost at the witness, which is no longer within the limit

    Sound: what other axes cost is taken off rounded down. Slots that cost as much as those of the
    witness are no cheaper than it; they may attain what it approaches.
    """
    if not quest.prices.is_max and quest.elsewhere > 0.0:
        limit = np.nextafter(limit - quest.elsewhere * (1.0 - 2.0**-40), np.inf)
    limit = min(limit, below if quest.prices.is_closed[0] else np.nextafter(below, -np.inf))
    quest.limit[0] = limit
    table = problem.conditions
    n_conditions = len(table.weight)
    if n_conditions > len(quest.claim.conditions.need):  # the last one is the price
        table.terms[n_conditions - 1, BASE] = limit


@noalloc_kernel
def price_cells(problem, prices, kept, cost, place):
    """Cost and place of the cheapest atom of every cell; returns the sum of the largest costs."""
    most = 0.0
    for slot in range(problem.n_slots):
        start = kept.start[problem.slots[slot, FEATURE]]
        largest = 0.0
        for cell in range(problem.slots[slot, CELL_START], problem.slots[slot + 1, CELL_START]):
            best = start + problem.cells[cell, LOW]
            for other in range(best + 1, start + problem.cells[cell, HIGH] + 1):
                if is_cheaper(prices, kept.atom[other], kept.atom[best]):
                    best = other
            cost[cell] = kept.cost[best]
            place[cell] = best
            largest = max(largest, cost[cell])
        most += largest
    return most


@noalloc_kernel
def sweep_priced(problem, state, quest, is_forward, bound):
    """Visit every factor once; returns the new bound."""
    if quest.is_narrow:
        return sweep_narrow(problem, state, quest.narrow, is_forward, bound, quest.floor)
    return sweep(problem, state, is_forward, bound, quest.floor)


@noalloc_kernel
def refresh_priced(problem, state, quest):
    """Bound without the drift of sweeps, and its rounding error."""
    if quest.is_narrow:
        return refresh_narrow(problem, state, quest.narrow)
    return refresh(problem, state)


@noalloc_kernel
def set_price(problem, state, quest, price):
    """Make α another one, in the terms of the problem and in what the state has derived from them.

    Sound: the gross covers the rounding of the terms; see `refresh`.
    """
    pure, cost = quest.pure, quest.cost
    last = len(state.weight) - 1
    before = state.weight[last]
    state.weight[last] = price
    if last > 0:
        weigh(problem, state.weight)
    else:
        problem.terms[BASE] = pure.terms[BASE] + price * quest.limit[0]
        problem.terms[GROSS] = pure.terms[GROSS] + 4.0 * price * (abs(quest.limit[0]) + quest.most)
        for cell in range(len(cost)):
            problem.unary[cell] = pure.unary[cell] - price * cost[cell]
    change = price - before
    state.constant[0] += change * quest.limit[0]
    for slot in range(problem.n_slots):
        peak = -np.inf
        for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
            state.rest[cell] -= change * cost[cell]
            peak = max(peak, state.rest[cell])
        for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
            state.rest[cell] -= peak
        state.constant[0] += peak


@noalloc_kernel
def relaxed_change(problem, state, quest, change):
    """How much a change of α changes the bound, and the slope there: limit minus relaxed cost."""
    value = change * quest.limit[0]
    slope = quest.limit[0]
    for slot in range(problem.n_slots):
        peak = -np.inf
        cost = 0.0
        for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
            score = state.rest[cell] - change * quest.cost[cell]
            if score > peak:
                peak = score
                cost = quest.cost[cell]
        value += peak
        slope -= cost
    return value, slope


@noalloc_kernel
def improve_price(problem, state, quest):
    """Find a better α for the state's box and multipliers; returns what the bound changed by.

    The bound is convex in α, and with multipliers fixed only slots' terms depend on it: α is
    doubled or halved while that pays, then the last step is halved.

    Sound: any α >= 0 gives a bound.
    """
    price = state.weight[len(state.weight) - 1]
    if quest.prices.is_max or price <= 0.0:
        return 0.0
    best = 0.0
    best_price = price
    _, slope = relaxed_change(problem, state, quest, 0.0)
    factor = 0.5 if slope > 0.0 else 2.0
    trial = price
    for _ in range(8):
        trial *= factor
        value, slope = relaxed_change(problem, state, quest, trial - price)
        if value < best:
            best = value
            best_price = trial
        if (slope > 0.0) == (factor > 1.0):
            break
    low = min(trial, trial / factor)
    high = max(trial, trial / factor)
    for _ in range(4):
        trial = 0.5 * (low + high)
        value, slope = relaxed_change(problem, state, quest, trial - price)
        if value < best:
            best = value
            best_price = trial
        if slope > 0.0:
            high = trial
        else:
            low = trial
    if best_price != price:
        set_price(problem, state, quest, best_price)
    return best


@noalloc_kernel
def shift_price(problem, state, quest, bound, step):
    """Step α down or up with some sweeps after each step, while that pays; returns the bound.

    Sweeps leave slots with several best cells, where any change of α alone makes the bound worse:
    the multipliers have to follow before it can be judged.

    Sound: any α >= 0 and any multipliers give a bound.
    """
    last = len(state.weight) - 1
    is_done = quest.prices.is_max or state.weight[last] <= 0.0
    for direction in range(2):
        factor = step if direction == 0 else 1.0 / step
        has_moved = False
        for _ in range(MOST_PRICE_STEPS):
            if is_done or bound < quest.floor:
                break
            before = bound
            price = state.weight[last]
            copy_into(quest.saved, state.multiplier)
            change, _ = relaxed_change(problem, state, quest, price * factor - price)
            set_price(problem, state, quest, price * factor)
            bound += change
            for turn in range(PRICE_SWEEPS):
                bound = sweep_priced(problem, state, quest, turn % 2 == 0, bound)
                quest.found.counts[SWEEPS] += 1
                if bound < quest.floor:
                    return bound
            if bound >= before - LEAST_PROGRESS * (before - quest.floor):
                if bound > before:
                    copy_into(state.multiplier, quest.saved)
                    set_price(problem, state, quest, price)
                    bound, _ = refresh_priced(problem, state, quest)
                break
            has_moved = True
        is_done = is_done or has_moved
    return bound


@noalloc_kernel
def drop_dear(problem, state, quest):
    """Drop end cells that points within the limit cannot use; False when some slot has none left.

    Sound: a point costs at least the cell and the cheapest cells of all other slots; sums are
    shrunk by more than their rounding.
    """
    cost, limit = quest.cost, quest.limit[0]
    shrink = 1.0 if quest.prices.is_max else 1.0 - (problem.n_slots + 4) * 2.0**-52
    total = 0.0
    if not quest.prices.is_max:
        for slot in range(problem.n_slots):
            least = np.inf
            for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
                least = min(least, cost[cell])
            quest.values[slot] = least
            total += least
        if total * shrink > limit:
            return False
    for slot in range(problem.n_slots):
        low = state.box[slot, LOW]
        high = state.box[slot, HIGH]
        others = 0.0 if quest.prices.is_max else total - quest.values[slot]
        while low <= high and (others + cost[low]) * shrink > limit:
            low += 1
        while low <= high and (others + cost[high]) * shrink > limit:
            high -= 1
        state.box[slot, LOW] = low
        state.box[slot, HIGH] = high
        if low > high:
            return False
    return True
