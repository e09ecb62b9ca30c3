"""The cost weight α: costs that are sums, as one more condition of what is bounded.

A violation within a limit L gains at least the floor and costs at most L, so that for any α >= 0

    gain + α (L - cost) >= floor

holds for it. The cost is a sum over axes: α changes only the constant and the unary terms of a
`Problem`, and its bounds, sweeps and branching remain those of any other. Which α bounds best
differs from box to box; with multipliers fixed it is found in passes over the cells alone.
"""

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.compiler import noalloc_kernel
from treeproof.kernels.exact.conditions import improve_weights, weigh
from treeproof.kernels.exact.dual import enter_box, marginals, refresh, sweep
from treeproof.kernels.exact.narrow_dual import (
    enter_narrow,
    marginals_narrow,
    refresh_narrow,
    sweep_narrow,
)
from treeproof.kernels.exact.objective import LIMIT, shrink_box
from treeproof.kernels.exact.primal import SWEEPS
from treeproof.kernels.exact.problem import BASE, GROSS, HIGH, LOW

WEIGHT_SWEEPS, LEAST_PROGRESS, MOST_STEPS = 2, 0.01, 24
"""Sweeps after which another α is judged, the part of the gap it must gain for another step, and
most steps: where the bound falls to just the floor with α, each gains its part for ever."""


@noalloc_kernel
def sweep_once(problem, state, objective, narrow, is_forward, bound):
    """Visit every factor once; returns the new bound."""
    if narrow is None or not narrow.is_used:
        return sweep(problem, state, is_forward, bound, objective.floor)
    return sweep_narrow(problem, state, narrow, is_forward, bound, objective.floor)


@noalloc_kernel
def certified_bound(problem, state, narrow):
    """Bound without the drift of sweeps, and its rounding error."""
    if narrow is None or not narrow.is_used:
        return refresh(problem, state)
    return refresh_narrow(problem, state, narrow)


@noalloc_kernel
def cell_marginals(problem, state, narrow):
    """What fixing each cell costs; must follow `certified_bound`."""
    if narrow is None or not narrow.is_used:
        marginals(problem, state)
    else:
        marginals_narrow(problem, state, narrow)


@noalloc_kernel
def enter(problem, state, objective, narrow):
    """Bring problem and state in line with the state's box, its weights, and what is known.

    Returns the bound (our doubles, not yet certified), or minus infinity where nothing is left.
    """
    if not weigh_box(problem, state, objective):
        return -np.inf
    if narrow is None or not narrow.is_used:
        bound = enter_box(problem, state)
        if objective.measure.is_max:
            return bound
    else:
        enter_narrow(problem, state, narrow)
    # The limit may have fallen since the state's constant was derived: it is derived anew.
    bound, _ = certified_bound(problem, state, narrow)
    return bound


@noalloc_kernel
def weigh_box(problem, state, objective):
    """Bring box and terms in line with what is known and the state's weights.

    Returns False where nothing is left of the box.
    """
    if not shrink_box(problem, state, objective):
        return False
    last = len(state.weight) - 1
    if last > 0:
        weigh(problem, state.weight)
    if not objective.measure.is_max:
        set_cost_weight(problem, state, objective, state.weight[last])
    return True


@noalloc_kernel
def improve_terms(problem, state, objective, bound):
    """Improve the weights of conditions and α; returns the bound."""
    if len(state.weight) > 1:
        bound = improve_weights(problem, state)
    if not objective.measure.is_max:
        bound += improve_cost_weight(problem, state, objective)
    return bound


@noalloc_kernel
def set_cost_weight(problem, state, objective, weight):
    """Make α another one, in the terms of the problem and in what the state has derived from them.

    Sound: the gross covers the rounding of the terms; see `refresh`.
    """
    gains, cost, limit = objective.gains, objective.cost, objective.live[LIMIT]
    last = len(state.weight) - 1
    before = state.weight[last]
    state.weight[last] = weight
    if last > 0:
        weigh(problem, state.weight)
    else:
        problem.terms[BASE] = gains.terms[BASE] + weight * limit
        problem.terms[GROSS] = gains.terms[GROSS] + 4.0 * weight * (abs(limit) + objective.most)
        for cell in range(len(cost)):
            problem.unary[cell] = gains.unary[cell] - weight * cost[cell]
    change = weight - before
    state.constant[0] += change * limit
    for slot in range(problem.n_slots):
        peak = -np.inf
        for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
            state.rest[cell] -= change * cost[cell]
            peak = max(peak, state.rest[cell])
        for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
            state.rest[cell] -= peak
        state.constant[0] += peak


@noalloc_kernel
def relaxed_change(problem, state, objective, change):
    """How much a change of α changes the bound, and the slope there: limit minus relaxed cost."""
    value = change * objective.live[LIMIT]
    slope = objective.live[LIMIT]
    for slot in range(problem.n_slots):
        peak = -np.inf
        cost = 0.0
        for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
            score = state.rest[cell] - change * objective.cost[cell]
            if score > peak:
                peak = score
                cost = objective.cost[cell]
        value += peak
        slope -= cost
    return value, slope


@noalloc_kernel
def improve_cost_weight(problem, state, objective):
    """Find a better α for the state's box and multipliers; returns what the bound changed by.

    The bound is convex in α, and with multipliers fixed only slots' terms depend on it: α is
    doubled or halved while that pays, then the last step is halved.

    Sound: any α >= 0 gives a bound.
    """
    weight = state.weight[len(state.weight) - 1]
    if objective.measure.is_max or weight <= 0.0:
        return 0.0
    best = 0.0
    best_weight = weight
    _, slope = relaxed_change(problem, state, objective, 0.0)
    factor = 0.5 if slope > 0.0 else 2.0
    trial = weight
    for _ in range(8):
        trial *= factor
        value, slope = relaxed_change(problem, state, objective, trial - weight)
        if value < best:
            best = value
            best_weight = trial
        if (slope > 0.0) == (factor > 1.0):
            break
    low = min(trial, trial / factor)
    high = max(trial, trial / factor)
    for _ in range(4):
        trial = 0.5 * (low + high)
        value, slope = relaxed_change(problem, state, objective, trial - weight)
        if value < best:
            best = value
            best_weight = trial
        if slope > 0.0:
            high = trial
        else:
            low = trial
    if best_weight != weight:
        set_cost_weight(problem, state, objective, best_weight)
    return best


@noalloc_kernel
def shift_cost_weight(problem, state, objective, narrow, bound, step):
    """Step α down or up with some sweeps after each step, while that pays; returns the bound.

    Sweeps leave slots with several best cells, where any change of α alone makes the bound worse:
    the multipliers have to follow before it can be judged.

    Sound: any α >= 0 and any multipliers give a bound.
    """
    last = len(state.weight) - 1
    is_done = objective.measure.is_max or state.weight[last] <= 0.0
    for direction in range(2):
        factor = step if direction == 0 else 1.0 / step
        has_moved = False
        for _ in range(MOST_STEPS):
            if is_done or bound < objective.floor:
                break
            before = bound
            weight = state.weight[last]
            copy_into(objective.multiplier, state.multiplier)
            change, _ = relaxed_change(problem, state, objective, weight * factor - weight)
            set_cost_weight(problem, state, objective, weight * factor)
            bound += change
            for turn in range(WEIGHT_SWEEPS):
                bound = sweep_once(problem, state, objective, narrow, turn % 2 == 0, bound)
                objective.found.counts[SWEEPS] += 1
                if bound < objective.floor:
                    return bound
            if bound >= before - LEAST_PROGRESS * (before - objective.floor):
                if bound > before:
                    copy_into(state.multiplier, objective.multiplier)
                    set_cost_weight(problem, state, objective, weight)
                    bound, _ = certified_bound(problem, state, narrow)
                break
            has_moved = True
        is_done = is_done or has_moved
    return bound
