"""The exact engine's rows where changes have prices: the cheapest violation, in batches."""

import math
from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arithmetic import exp, two_sum
from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.cells import Atoms, Region
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inlined_kernel, inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.emulation import Forest
from treeproof.kernels.core.leaves import restrict_to
from treeproof.kernels.core.status import FOUND, NEAR_TIE, NODE_LIMIT, PROVED, TIME_LIMIT, UNDECIDED
from treeproof.kernels.exact.balls import base_and_floor, is_excluded_by_eq6
from treeproof.kernels.exact.change_sets import (
    ANY,
    CHANGES,
    STAYS,
    change_sets,
    dear_axes,
    in_order,
)
from treeproof.kernels.exact.conditions import prefer_one, weigh, with_conditions
from treeproof.kernels.exact.cost_weight import set_cost_weight
from treeproof.kernels.exact.dual import new_state, reach_box
from treeproof.kernels.exact.narrow_dual import new_narrow
from treeproof.kernels.exact.objective import (
    ATOM,
    DOUBT,
    LIMIT,
    OPEN,
    ROUNDED,
    Elsewhere,
    Measure,
    cheapest_point,
    has_steps,
    new_objective,
    next_limit,
    set_limit,
)
from treeproof.kernels.exact.priced_leaves import (
    PriceList,
    costs_less,
    keep_affordable,
    leaf_costs,
)
from treeproof.kernels.exact.primal import NODES, RESTRICTIONS, SWEEPS, Found, locate
from treeproof.kernels.exact.problem import (
    BASE,
    CELL_START,
    FEATURE,
    GROSS,
    HIGH,
    LOW,
    build_problem,
    new_conditions,
    of_conditions,
)
from treeproof.kernels.exact.row import Alternatives, claim_of
from treeproof.kernels.exact.search import LARGE, Budget, Parts, new_judge, search

FIRST_WEIGHT = 0.6
"""Part of the cost weight at which the row itself is as good as its best that one begins at."""
GROWTH, PROVED_GROWTH, FASTER = 1.5, 2.0, 0.5
"""How a limit grows after a trial without a witness: one that proved nothing, one that did; and by
how much the power of the first rises while nothing is proved."""
PRECISION = 1.05
"""The cost from which best leaves break a claim is found up to this factor."""
FEW_CHANGES, LARGER_LIMIT, AROUND_GUESS = 4.0, 8.0, 2.0
"""The first limit over the price of one near change, how it grows, and its size over a guess."""
PATIENCE, SWEEP_PATIENCE, LARGEST_STEP, LEAST_STEP = 256, 1024, 1.5, 2.0**-6
"""Nodes after which a search below a witness gives way to ones below smaller limits, and sweeps,
fewer where problems are large; by what these limits exceed what is proved, and their least part of
the witness."""


MANY = 4
"""Entries for each range of a leaf from which on sweeps visit narrow ranges only."""
FEW_STEPS = 16.0
"""Costs of so many steps of the grid of prices are searched step by step."""


class PricedBatch(NamedTuple):
    """Rows that are asked about together, with the prices of all atoms."""

    atoms: Atoms
    groups: np.ndarray  # (n_rows,) int64; group of alternatives of each row
    rows: np.ndarray  # (n_rows, n_features) float64
    cost: np.ndarray  # (n_rows, n_atoms) float64; see `PriceList`
    is_open: np.ndarray  # (n_rows, n_atoms) bool
    is_exact: np.ndarray  # (n_rows, n_atoms) bool
    value: np.ndarray  # (n_rows, n_atoms) float64
    grid: np.ndarray  # (n_rows,) float64
    skip: np.ndarray  # (n_rows,) bool; rows that are left out
    is_max: bool
    limit: np.ndarray  # (n_rows,) float64
    is_limit_exact: bool
    other: np.ndarray  # (n_rows, n_others, n_atoms) float64
    other_limit: np.ndarray  # (n_others,) float64


class Ways(NamedTuple):
    """How the claim about a row can break, and what is known about it."""

    forest: Forest
    atoms: Atoms
    alternatives: Alternatives
    group: int  # of the row's alternatives
    first: int  # the first of them
    lowest: np.ndarray  # (n_ways,) float64; no violation by each costs less
    prices: PriceList
    found: Found


class Outlook(NamedTuple):
    """What is known of an alternative before it is searched."""

    lower: float  # no violation costs less
    first: float  # cost from which the best leaves of all trees break the claim, roughly


@noalloc_kernel
def lower_dear_leaves(leaves, costs, limit):
    """Give leaves that no point within the limit reaches the least gain of their tree.

    Sound: such leaves may be given any gain. Leaves that remain decide the least one.
    """
    for tree in range(len(leaves.leaf_start) - 1):
        least = np.inf
        for leaf in range(leaves.leaf_start[tree], leaves.leaf_start[tree + 1]):
            if costs[leaf] <= limit:
                least = min(least, leaves.leaf_gain[leaf])
        for leaf in range(leaves.leaf_start[tree], leaves.leaf_start[tree + 1]):
            if costs[leaf] > limit:
                leaves.leaf_gain[leaf] = least


@noalloc_kernel
def may_reach(leaves, costs, base, floor, limit):
    """Whether best leaves within a limit may reach the floor.

    Sound: the sum is rounded up, and so is what adding it to the base may lose.
    """
    total = base
    gross = abs(base)
    for tree in range(len(leaves.leaf_start) - 1):
        if leaves.leaf_start[tree] == leaves.leaf_start[tree + 1]:
            continue
        best = -np.inf
        for leaf in range(leaves.leaf_start[tree], leaves.leaf_start[tree + 1]):
            if costs[leaf] <= limit and leaves.leaf_gain[leaf] > best:
                best = leaves.leaf_gain[leaf]
        if best == -np.inf:
            return False
        total += best
        gross += abs(best)
    return total + (len(leaves.leaf_start) + 4) * 2.0**-52 * gross >= floor


@noalloc_kernel
def next_price(prices, limit):
    """Smallest price above a limit; the limit itself where there is none."""
    least = np.inf
    for atom in range(len(prices.cost)):
        if limit < prices.cost[atom] < least:
            least = prices.cost[atom]
    return least if least < np.inf else limit


@noalloc_kernel
def first_limit(atoms, prices):
    """A few times what the nearest changes of axes typically cost; a limit to look at first."""
    total = 0.0
    count = 0
    for axis in range(len(atoms.atom_start) - 1):
        least = np.inf
        for atom in range(atoms.atom_start[axis], atoms.atom_start[axis + 1]):
            if 0.0 < prices.cost[atom] < least:
                least = prices.cost[atom]
        if least < np.inf:
            total += math.log(least)
            count += 1
    return FEW_CHANGES * exp(total / count) if count > 0 else np.inf


@inner_kernel
def outlook_of(forest, claim, atoms, prices, limit, most):
    """`Outlook` of an alternative up to the largest cost that there is, from best leaves alone.

    limit  float64  where to look first: trees are restricted to what it affords, then to more
    most   float64  nothing costs more

    Sound: best leaves that do not reach the floor within a limit say that violations cost more.
    """
    low = 0.0
    # Ends: the limit grows by a factor, and everything is within the largest.
    while True:
        limit = min(limit, most)
        kept = keep_affordable(atoms, prices, limit)
        largest = np.inf if prices.measure.is_max else limit
        if not np.isinf(kept.total):
            leaves = restrict_to(forest, prices.row, kept, claim.coefficient, largest)
            base, floor = base_and_floor(forest, claim, leaves)
            costs = leaf_costs(leaves, kept, prices.measure.is_max)
            if may_reach(leaves, costs, base, floor, limit):
                break
        if limit >= most:
            return Outlook(np.inf, np.inf)
        low = limit
        limit = max(LARGER_LIMIT * limit, next_price(prices, limit))
    high = limit
    for _ in range(80):
        if high <= PRECISION * low or high <= 1e-300:
            break
        middle = 0.5 * high if low == 0.0 else np.sqrt(low) * np.sqrt(high)
        if may_reach(leaves, costs, base, floor, middle):
            high = middle
        else:
            low = middle
    return Outlook(low, high)


@inner_kernel
def with_limits(problem, cost, limit):
    """The problem with one more condition for each limit, that a point costs no more; weight 0.

    cost   float64 (n_limits, n_cells)
    limit  float64 (n_limits,)
    """
    before = problem.conditions
    n_before, n_conditions = len(before.weight), len(before.weight) + len(limit)
    table = new_conditions(n_conditions, len(problem.unary), len(problem.leaf_gain))
    for number in range(n_before):
        # Sound: covers the rounding of the weighted sum with more terms.
        table.terms[number, BASE] = before.terms[number, BASE]
        table.terms[number, GROSS] = (1.0 + len(limit)) * before.terms[number, GROSS]
        copy_into(table.unary[number], before.unary[number])
        copy_into(table.gain[number], before.gain[number])
        table.weight[number] = before.weight[number]
    for place in range(len(limit)):
        number, most = n_before + place, abs(limit[place])
        for slot in range(problem.n_slots):
            largest = 0.0
            for cell in range(problem.slots[slot, CELL_START], problem.slots[slot + 1, CELL_START]):
                table.unary[number, cell] = -cost[place, cell]
                largest = max(largest, cost[place, cell])
            most += largest
        table.terms[number, BASE] = limit[place]
        table.terms[number, GROSS] = (n_conditions + 3) * most
        table.weight[number] = 0.0
    return of_conditions(problem, table)


@inner_kernel
def with_other_limits(problem, prices, kept):
    """The problem with the limits of other costs as conditions.

    Sound: a point costs at least the cheapest atom of each cell and of each axis that is no slot.
    """
    cost = np.full((len(prices.other_limit), len(problem.unary)), np.inf, dtype=np.float64)
    limit = prices.other_limit.copy()
    is_slot = np.zeros(len(kept.cheapest), dtype=np.bool_)
    for slot in range(problem.n_slots):
        axis = problem.slots[slot, FEATURE]
        is_slot[axis] = True
        start = kept.start[axis]
        for cell in range(problem.slots[slot, CELL_START], problem.slots[slot + 1, CELL_START]):
            for place in range(
                start + problem.cells[cell, LOW], start + problem.cells[cell, HIGH] + 1
            ):
                for number in range(len(limit)):
                    price = prices.other[number, kept.atom[place]]
                    cost[number, cell] = min(cost[number, cell], price)
    for axis in range(len(is_slot)):
        if not is_slot[axis]:
            for number in range(len(limit)):
                least = np.inf
                for place in range(kept.start[axis], kept.start[axis + 1]):
                    least = min(least, prices.other[number, kept.atom[place]])
                if least > 0.0:
                    limit[number] = np.nextafter(limit[number] - least, np.inf)
    return with_limits(problem, cost, limit)


@inlined_kernel
def doubt_of(prices, atom):
    """OPEN and ROUNDED, of the cost of an atom."""
    doubt = np.int64(OPEN if prices.is_open[atom] else 0)
    return doubt | np.int64(0 if prices.is_exact[atom] else ROUNDED)


@noalloc_kernel
def price_cells(problem, prices, kept, cost, atoms):
    """Fill in the cheapest atom of every cell; returns the sum of all slots' largest costs."""
    most = 0.0
    for slot in range(problem.n_slots):
        axis = problem.slots[slot, FEATURE]
        start = kept.start[axis]
        largest = 0.0
        for cell in range(problem.slots[slot, CELL_START], problem.slots[slot + 1, CELL_START]):
            best = kept.atom[start + problem.cells[cell, LOW]]
            for place in range(
                start + problem.cells[cell, LOW] + 1, start + problem.cells[cell, HIGH] + 1
            ):
                if costs_less(prices, kept.atom[place], best):
                    best = kept.atom[place]
            cost[cell] = prices.cost[best]
            atoms[cell, ATOM] = best - kept.atom_start[axis]
            atoms[cell, DOUBT] = doubt_of(prices, best)
            largest = max(largest, cost[cell])
        most += largest
    return most


@inner_kernel
def cost_elsewhere(problem, prices, kept):
    """What the cheapest atoms of the axes that are no slots cost together."""
    is_slot = np.zeros(len(kept.cheapest), dtype=np.bool_)
    for slot in range(problem.n_slots):
        is_slot[problem.slots[slot, FEATURE]] = True
    cost, lost, doubt = 0.0, 0.0, np.int64(0)
    for axis in range(len(is_slot)):
        if is_slot[axis]:
            continue
        own, here = kept.cheapest[axis], doubt_of(prices, kept.atom[kept.bottom[axis]])
        if not prices.measure.is_max:
            cost, error = two_sum(cost, own)
            lost += error
            doubt |= here
        elif own > cost:
            cost, doubt = own, here
        elif own == cost:
            doubt |= here
    return Elsewhere(cost, lost, doubt)


@inner_kernel
def priced_objective(problem, claim, prices, kept, floor, found):
    """What is sought among atoms with prices, the limit still that of the prices."""
    n_cells, n_limits = len(problem.unary), len(prices.other_limit)
    n_conditions = len(claim.conditions.need) + n_limits
    cost, atoms = np.empty(n_cells, dtype=np.float64), np.empty((n_cells, 2), dtype=np.int32)
    most = price_cells(problem, prices, kept, cost, atoms)
    base = np.empty(len(kept.bottom), dtype=np.int32)
    for axis in range(len(base)):
        base[axis] = kept.atom[kept.bottom[axis]] - kept.atom_start[axis]
    return new_objective(
        problem, prices.measure, 0.0 if n_conditions > 1 else claim.need, floor,
        (n_conditions, n_limits), (cost, atoms, most), base,
        cost_elsewhere(problem, prices, kept), found,
    )  # fmt: skip


@inner_kernel
def priced_judge(forest, claim, prices, kept, found):
    """Judge of points among atoms with prices."""
    nowhere = prices.cost[:0]
    region = Region(
        prices.row, kept.box.low, nowhere, nowhere, nowhere, nowhere, np.bool_(True),
        prices.measure.within, prices.measure.takes_any,
    )  # fmt: skip
    return new_judge(forest, claim, region, kept.box, found)


@noalloc_kernel
def first_weight(problem, state, objective):
    """The cost weight to begin with.

    Part of that at which the cheapest point is as good as a violation that costs the limit.
    """
    reach_box(problem, state)
    cheapest_point(problem, state, objective)
    gains = objective.gains
    missing = objective.need - locate(problem, gains, state, objective.point, objective.holders)
    if not missing > 0.0:
        missing = 1e-3 * gains.terms[GROSS] + 1e-300
    return FIRST_WEIGHT * missing / max(objective.live[LIMIT], 1e-300)


@inner_kernel
def explore_part(ways, claim, prices, limit, is_quick, is_part, parts, budget, work):
    """Restrict the trees to what a limit affords, bound cheaply, and search it.

    Returns the status, the work that was done, and the parts.
    """
    forest, atoms, found = ways.forest, ways.atoms, ways.found
    found.counts[RESTRICTIONS] += 1
    kept = keep_affordable(atoms, prices, limit)
    if np.isinf(kept.total):
        return PROVED, 0.0, parts
    largest = np.inf if prices.measure.is_max else limit
    leaves = restrict_to(forest, prices.row, kept, claim.coefficient, largest)
    base, floor = base_and_floor(forest, claim, leaves)
    if not prices.measure.is_max:
        lower_dear_leaves(leaves, leaf_costs(leaves, kept, prices.measure.is_max), limit)
    if is_excluded_by_eq6(base, floor, leaves):
        return PROVED, 0.0, parts
    problem = build_problem(base, leaves, kept.box)
    has_conditions = len(claim.conditions.need) + len(prices.other_limit) > 1
    if has_conditions:
        problem = with_conditions(problem, forest, claim, leaves, kept.box, 0.0)
        if len(prices.other_limit) > 0:
            problem = with_other_limits(problem, prices, kept)
        prefer_one(problem)
        weigh(problem, problem.conditions.weight)
        floor = 0.0
    objective = priced_objective(problem, claim, prices, kept, floor, found)
    if not prices.measure.is_max:
        set_limit(problem, objective, limit, np.inf)
    state = new_state(problem)
    if not prices.measure.is_max:
        weight = first_weight(problem, state, objective)
        if has_conditions:
            # All conditions in units in which the cost weight is 1: their floors are 0.
            table = problem.conditions
            for number in range(len(table.weight)):
                for index in range(2):
                    table.terms[number, index] /= weight
                for cell in range(len(problem.unary)):
                    table.unary[number, cell] /= weight
                for leaf in range(len(problem.leaf_gain)):
                    table.gain[number, leaf] /= weight
            weight = 1.0
            own_limit = np.full(1, objective.live[LIMIT], dtype=np.float64)
            problem = with_limits(
                problem, objective.cost.reshape((1, len(objective.cost))), own_limit
            )
            weigh(problem, problem.conditions.weight)
            objective = priced_objective(problem, claim, prices, kept, floor, found)
            set_limit(problem, objective, limit, np.inf)
            state = new_state(problem)
        state.weight[len(state.weight) - 1] = 0.0
        set_cost_weight(problem, state, objective, weight)
    sweeps = found.counts[SWEEPS]
    is_narrow = np.bool_(not has_conditions and MANY * len(leaves.feature) <= len(problem.entries))
    status, parts = search(
        problem, state, objective, new_narrow(problem, is_narrow),
        priced_judge(forest, claim, prices, kept, found), None, None, kept, parts,
        (is_quick, is_part), (limit, work), budget,
    )  # fmt: skip
    done = np.float64(found.counts[SWEEPS] - sweeps) * max(len(problem.entries), LARGE)
    return status, done, parts


@inner_kernel
def within_part(prices, cheapest, parts, number):
    """The prices with those of a part alone; other atoms are not allowed.

    cheapest  float64 (n_axes,)  what each axis costs at least
    """
    n_axes = parts.atoms.shape[1] // 3
    cost = np.full(len(prices.cost), np.inf, dtype=np.float64)
    for axis in range(n_axes):
        choice = parts.atoms[number, 2 * n_axes + axis]
        for atom in range(parts.atoms[number, axis], parts.atoms[number, n_axes + axis] + 1):
            price = prices.cost[atom]
            if choice == ANY or (price > cheapest[axis]) == (choice == CHANGES):
                cost[atom] = price
    return PriceList(
        prices.row,
        cost,
        prices.is_open,
        prices.is_exact,
        prices.value,
        prices.measure,
        prices.other,
        prices.other_limit,
    )


@inner_kernel
def first_parts(ways, claim, kept, limit, is_quick):
    """What is searched: all that the limit affords, or one part for each set of dear changes.

    Sound: a point changes just one set of dear axes; sets that are left out break no claim. Atoms
    that are not kept matter to nobody: see `keep_affordable`.
    """
    atoms, prices = ways.atoms, ways.prices
    n_axes = len(kept.cheapest)
    masks = np.zeros(1, dtype=np.int64)
    dear = dear_axes(kept, limit)
    has_sets = not is_quick and not prices.measure.is_max and len(dear.axis) > 0
    if has_sets:
        leaves = restrict_to(ways.forest, prices.row, kept, claim.coefficient, limit)
        base, floor = base_and_floor(ways.forest, claim, leaves)
        needed = floor - base - 2.0**-50 * (abs(floor) + abs(base))
        dear = in_order(leaves, kept, dear)
        masks, has_sets = change_sets(leaves, kept, dear, needed, limit)
    if not has_sets:
        masks = np.zeros(1, dtype=np.int64)
    table = np.empty((max(len(masks), 8), 3 * n_axes), dtype=np.int32)
    for number in range(len(masks)):
        for axis in range(n_axes):
            table[number, axis] = atoms.atom_start[axis]
            table[number, n_axes + axis] = atoms.atom_start[axis + 1] - 1
            place = dear.place[axis]
            choice = ANY
            if place >= 0 and has_sets:
                # What is taken out first is last here: sets of most changes leave least to search.
                mask = masks[len(masks) - 1 - number]
                choice = CHANGES if mask >> np.int64(place) & 1 != 0 else STAYS
            table[number, 2 * n_axes + axis] = choice
    size = np.empty(1, dtype=np.int64)
    size[0] = len(masks)
    return Parts(table, size)


@inner_kernel
def explore_priced(ways, claim, limit, is_quick, patience, budget):
    """Search an alternative up to a limit, then the boxes that became small on the way.

    patience  float64  by what factor the search may take more than the usual before it is cut short

    Returns the status, and whether the search was cut short.
    """
    clock = np.empty(2, dtype=np.int64)
    prices, found = ways.prices, ways.found
    n_axes = len(ways.atoms.atom_start) - 1
    kept = keep_affordable(ways.atoms, prices, limit)
    if np.isinf(kept.total):
        return PROVED, False
    parts = first_parts(ways, claim, kept, limit, is_quick)
    is_part = np.bool_(parts.size[0] > 1)
    is_near_tie = False
    work = patience * SWEEP_PATIENCE * LARGE * max(1, parts.size[0] // 16)
    nodes = found.counts[NODES] + patience * PATIENCE + parts.size[0]
    nodes = np.int64(min(nodes, np.float64(budget.nodes)))
    while parts.size[0] > 0:
        if is_part and seconds_now(clock) > budget.deadline:
            return TIME_LIMIT, False
        if found.upper[0] < np.inf and not prices.measure.takes_any:
            limit = min(limit, next_limit(prices.measure, found.upper[0]))
        parts.size[0] -= 1
        number = parts.size[0]
        own = within_part(prices, kept.cheapest, parts, number)
        choice = parts.atoms[number, 2 * n_axes :].copy()
        turn = Budget(nodes, budget.memory_bytes, budget.deadline)
        status, done, parts = explore_part(
            ways, claim, own, limit, is_quick, is_part, parts, turn, work
        )  # fmt: skip
        for added in range(number, parts.size[0]):
            copy_into(parts.atoms[added, 2 * n_axes :], choice)
        work -= done
        if status == NODE_LIMIT and found.counts[NODES] <= budget.nodes:
            found.counts[NODES] -= 1  # it was not looked at
            return UNDECIDED, True
        if status == NEAR_TIE:
            is_near_tie = True
        elif status != PROVED:
            return status, False
        is_part = np.bool_(True)
    return NEAR_TIE if is_near_tie else PROVED, False


@noalloc_kernel
def on_grid(prices, limit):
    """A limit moved up to the grid of prices."""
    return (
        np.ceil(limit / prices.measure.grid) * prices.measure.grid
        if prices.measure.grid > 0.0
        else limit
    )


@noalloc_kernel
def highest_total(atoms, prices):
    """More than what the dearest point costs.

    Sound: a limit of just a price does not afford atoms that cost a little more than their double.
    """
    total = 0.0
    for axis in range(len(atoms.atom_start) - 1):
        largest = 0.0
        for atom in range(atoms.atom_start[axis], atoms.atom_start[axis + 1]):
            if prices.cost[atom] < np.inf:
                largest = max(largest, prices.cost[atom])
        total = max(total, largest) if prices.measure.is_max else total + largest
    # A product alone would leave 0 and the smallest numbers as they are.
    return np.nextafter(total * (1.0 + (len(atoms.atom_start) + 4) * 2.0**-52), np.inf)


@inner_kernel
def look_ahead(ways, guess, most):
    """Fill in what each alternative costs at least; returns a limit to search first.

    most  float64  nothing costs more
    """
    prices, found = ways.prices, ways.found
    near = AROUND_GUESS * guess.radius if guess.radius > 0.0 else first_limit(ways.atoms, prices)
    if prices.measure.takes_any:
        near = most
    least = np.inf
    trial = np.inf
    for way in range(len(ways.lowest)):
        claim = claim_of(ways.alternatives, ways.group, ways.first + way)
        outlook = outlook_of(ways.forest, claim, ways.atoms, prices, near, most)
        ways.lowest[way] = outlook.lower
        least = min(least, outlook.lower)
        trial = min(trial, outlook.first)
    found.lower[0] = least
    found.eq6_radius[0] = trial
    return most if prices.measure.takes_any else min(trial * guess.margin, most)


@inner_kernel
def search_ways(ways, limit, is_quick, patience, budget):
    """Search every alternative up to a limit, or below a witness that is cheaper.

    patience  float64  as for `explore_priced`

    Returns the worst status, up to what was searched, and whether a search was cut short.
    """
    prices, found = ways.prices, ways.found
    worst = PROVED
    is_cut = False
    for way in range(len(ways.lowest)):
        if found.upper[0] < np.inf and not prices.measure.takes_any:
            limit = min(limit, next_limit(prices.measure, found.upper[0]))
        if ways.lowest[way] > limit:
            continue
        claim = claim_of(ways.alternatives, ways.group, ways.first + way)
        found.way_lower[0] = ways.lowest[way]
        status, was_cut = explore_priced(ways, claim, limit, is_quick, patience, budget)
        ways.lowest[way] = found.way_lower[0]
        is_cut = is_cut or was_cut
        is_found = status == FOUND
        is_over = is_found or (status > UNDECIDED and status != NEAR_TIE)
        worst = status if is_over else max(worst, status)
        if is_over:
            break
    if found.upper[0] < np.inf and not prices.measure.takes_any:
        limit = min(limit, next_limit(prices.measure, found.upper[0]))
    return worst, limit, is_cut


@inner_kernel
def search_priced_row(ways, guess, budget):
    """Find the cheapest violation of a row, or any within its limit; ``found`` is always valid.

    Returns PROVED when bounds meet (infinite when nothing can break the row), or the limit reached.
    Limits grow until a witness is found; then every alternative is searched below its cost, or
    where that takes long, below limits that grow anew from what is proved.
    """
    clock = np.empty(2, dtype=np.int64)
    prices, found = ways.prices, ways.found
    most = min(highest_total(ways.atoms, prices), prices.measure.within)
    found.lower[0] = np.inf
    if np.isinf(keep_affordable(ways.atoms, prices, prices.measure.within).total):
        return PROVED
    trial = look_ahead(ways, guess, most)
    if found.lower[0] == np.inf or found.lower[0] > prices.measure.within:
        return PROVED
    is_quick = np.bool_(not prices.measure.takes_any)
    patience = 1.0
    step = LARGEST_STEP
    is_stepping = False
    proved = -np.inf
    power = 1.0
    while True:
        trial = min(on_grid(prices, trial), most)
        sweeps = found.counts[SWEEPS]
        is_capped = found.upper[0] < np.inf and not prices.measure.takes_any
        worst, searched, is_cut = search_ways(
            ways, trial, is_quick, patience if is_capped else np.inf, budget
        )
        # Sound: every violation is one by some alternative.
        least = np.inf
        for way in range(len(ways.lowest)):
            least = min(least, ways.lowest[way])
        found.lower[0] = max(found.lower[0], least)
        if worst > UNDECIDED:
            return worst
        if worst == FOUND:
            return PROVED
        if worst == PROVED and prices.measure.takes_any:
            found.upper[0] = np.inf  # of what seemed to lie at the limit, nothing is within it
        if worst == PROVED:
            # Sound: every alternative was proved to cost more than this, but for what is no cheaper
            # than the witness, to which `searched` was lowered.
            if found.upper[0] < np.inf and searched >= next_limit(prices.measure, found.upper[0]):
                # On a grid, and between dearest atoms, nothing lies between the two.
                is_met = has_steps(prices.measure, found.upper[0])
                found.lower[0] = found.upper[0] if is_met else max(found.lower[0], searched)
                return PROVED
            found.lower[0] = max(found.lower[0], searched)
            proved = searched
        if is_cut:
            # Far below a poor witness a search is smaller; it proves more, or finds better.
            patience *= 2.0
            step = LARGEST_STEP if not is_stepping else np.sqrt(step)
            is_stepping = True
        else:
            step = min(step * step, LARGEST_STEP)
        if found.upper[0] < np.inf:
            is_quick = np.bool_(False)
            trial = found.upper[0]
            if is_stepping:
                trial = min(trial, step * max(found.lower[0], LEAST_STEP * trial))
            elif trial <= FEW_STEPS * prices.measure.grid:
                # Each step takes many times the time of the one before, and a witness may be poor.
                trial = min(trial, max(found.lower[0], proved + prices.measure.grid))
        elif trial >= most:
            if worst == PROVED:
                found.lower[0] = np.inf if prices.measure.within == np.inf else found.lower[0]
                return PROVED
            is_quick = np.bool_(False)
        else:
            growth = PROVED_GROWTH if worst == PROVED else GROWTH**power
            power = 1.0 if worst == PROVED else power + FASTER
            if found.counts[SWEEPS] == sweeps:
                growth *= 1.2
            # A limit of 0 does not grow by a factor: at least one more atom is to be within it, or
            # what is only approached.
            above = max(next_price(prices, trial), np.nextafter(trial, np.inf))
            trial = max(trial * growth, trial + prices.measure.grid, above)
        if seconds_now(clock) > budget.deadline:
            return TIME_LIMIT


@noalloc_kernel
def realise(atoms, prices, chosen, point):
    """Write a row with an atom of every axis.

    chosen  int32 (n_axes,)  within its axis
    """
    copy_into(point, prices.row)
    for axis in range(len(chosen)):
        first = atoms.column_start[axis]
        if atoms.choice_start[axis] < 0:
            point[atoms.columns[first]] = prices.value[atoms.atom_start[axis] + chosen[axis]]
            continue
        width = atoms.column_start[axis + 1] - first
        start = atoms.choice_start[axis] + chosen[axis] * width
        for index in range(width):
            point[atoms.columns[first + index]] = atoms.choices[start + index]


@kernel
def solve_priced(forest, alternatives, batch, is_cheapest, guess, limits, columns):
    """Solve every row of a `PricedBatch` but those to skip.

    is_cheapest  bool        the cheapest violation is sought, otherwise any within the limit
    guess        FirstGuess  its radius is a cost near the answers; not positive: none is known
    """
    clock = np.empty(2, dtype=np.int64)
    for number in range(len(batch.rows)):
        if batch.skip[number]:
            continue
        started = seconds_now(clock)
        measure = Measure(
            batch.is_max, not is_cheapest, batch.limit[number], batch.is_limit_exact,
            batch.grid[number], np.full(1, not is_cheapest),
        )  # fmt: skip
        prices = PriceList(
            batch.rows[number], batch.cost[number], batch.is_open[number],
            batch.is_exact[number], batch.value[number], measure, batch.other[number],
            batch.other_limit,
        )  # fmt: skip
        found = Found(
            columns.lower[number : number + 1], columns.upper[number : number + 1],
            columns.is_open[number : number + 1],
            np.zeros(len(batch.atoms.choice_start), dtype=np.int32), columns.counts[number],
            columns.eq6_radius[number : number + 1], np.zeros(1, dtype=np.float64),
        )  # fmt: skip
        budget = Budget(limits.nodes, limits.memory_bytes, started + limits.time_s)
        group = batch.groups[number]
        first = alternatives.group_start[group]
        lowest = np.zeros(alternatives.group_start[group + 1] - first, dtype=np.float64)
        ways = Ways(forest, batch.atoms, alternatives, group, first, lowest, prices, found)
        status = search_priced_row(ways, guess, budget)
        if status == NODE_LIMIT:
            found.counts[NODES] -= 1  # it was not looked at
        if found.upper[0] < np.inf:
            realise(batch.atoms, prices, found.witness, columns.witness[number])
        columns.status[number] = status
        columns.seconds[number] += seconds_now(clock) - started
