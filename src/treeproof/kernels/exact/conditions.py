"""Several conditions at once: bounds of their weighted sums, with weights that are improved.

A target must beat every other class. Where all conditions hold, their gains are at or above their
floors, and so is any sum of them with weights >= 0. A box is closed by whatever weights bring such
a sum below its floor; which ones do differs from box to box.
"""

import numpy as np

from treeproof.kernels.core.arithmetic import exp
from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.compiler import ONE, inner_kernel, noalloc_kernel
from treeproof.kernels.core.leaves import combination_up, gain_of_leaf, summation_slack
from treeproof.kernels.exact.dual import refresh
from treeproof.kernels.exact.problem import (
    BASE,
    CELL_START,
    FEATURE,
    GROSS,
    HIGH,
    LEAF_START,
    LOW,
    TREE,
    new_conditions,
    of_conditions,
)

LEAST = 2.0**-20
"""Smallest part of all weights together that one has. They stay positive, so that points that reach
the same leaf of every weighted tree have the same label."""
OTHERS = 0.1
"""Part of the first weights that is not on the condition that is farthest from holding."""
ALL_THE_WAY, FIRST_STEP, LONGER, SHORTER = 50.0, 1.0, 2.0, 0.2
"""A change of weights that leaves one, the first smaller one, and how it grows and shrinks."""
MOST_FAILED, WORTH_MORE, MOST_CHANGES = 2, 0.02, 64
"""Changes in a row that do not pay, what part of the bound is worth another one, and most changes:
where conditions tie, a bound that falls to just the floor gains its part for ever."""


@inner_kernel
def with_conditions(problem, forest, claim, leaves, box, room):
    """The problem with terms of each condition of a claim; the floor of their sums is 0.

    room  float64  by what part of slacks, and 2**-22 of magnitudes, floors are lowered further

    Sound: each floor is the condition's need minus all that rounding can hide, as for a single one.
    """
    trees, start = forest.trees, forest.semantics.start
    n_conditions = len(claim.conditions.need)
    table = new_conditions(n_conditions, len(problem.unary), len(problem.leaf_gain))
    slot_of = np.zeros(len(box.low), dtype=np.int64)
    for slot in range(problem.n_slots):
        slot_of[problem.slots[slot, FEATURE]] = slot
    for number in range(n_conditions):
        coefficient = claim.conditions.coefficient[number]
        slack = summation_slack(
            trees, coefficient, start, claim.unit, leaves.leaf_start, leaves.leaf_row
        )
        base = combination_up(coefficient, start)
        table.terms[number, BASE] = base
        largest = add_gains(problem, trees, coefficient, leaves, slot_of, number, table)
        gross = 2.0 * abs(base) + largest
        floor = claim.conditions.need[number] - slack - claim.conditions.link_slack[number]
        floor -= room * (slack + 2.0**-22 * gross)
        table.terms[number, BASE] -= floor
        # Sound: covers the rounding of the difference, and of the weighted sums of these terms.
        table.terms[number, GROSS] = (n_conditions + 3) * (gross + abs(floor))
    return of_conditions(problem, table)


@noalloc_kernel
def add_gains(problem, trees, coefficient, leaves, slot_of, number, table):
    """Add the gains of one condition where `build_problem` put their trees.

    slot_of  int64 (n_features,)

    Returns the sum over all trees of the largest magnitude.
    """
    gross = 0.0
    factor = 0
    for tree in range(len(leaves.leaf_start) - 1):
        first = leaves.leaf_start[tree]
        last = leaves.leaf_start[tree + 1]
        is_factor = factor < problem.n_factors and problem.factors[factor, TREE] == tree
        output = trees.tree_output[tree]
        if output < 0 or coefficient[output] != 0.0:
            largest = 0.0
            for leaf in range(first, last):
                gain = gain_of_leaf(trees, tree, leaves.leaf_row[leaf], coefficient)
                largest = max(largest, abs(gain))
                if is_factor:
                    table.gain[number, problem.factors[factor, LEAF_START] + leaf - first] = gain
                elif last - first == 1:
                    table.terms[number, BASE] += gain
                else:
                    entry = leaves.range_start[leaf]
                    cell = problem.slots[slot_of[leaves.feature[entry]], CELL_START]
                    while problem.cells[cell, LOW] < leaves.low[entry]:
                        cell += ONE
                    end = problem.slots[slot_of[leaves.feature[entry]] + 1, CELL_START]
                    while cell < end and problem.cells[cell, HIGH] <= leaves.high[entry]:
                        table.unary[number, cell] += gain
                        cell += ONE
            gross += largest
        factor += 1 if is_factor else 0
    return gross


@noalloc_kernel
def prefer_one(problem):
    """Set first weights: most of it on the condition whose best leaves reach least."""
    table = problem.conditions
    least = np.inf
    best = 0
    for number in range(len(table.weight)):
        reached = table.terms[number, BASE]
        for slot in range(problem.n_slots):
            largest = -np.inf
            for cell in range(problem.slots[slot, CELL_START], problem.slots[slot + 1, CELL_START]):
                largest = max(largest, table.unary[number, cell])
            reached += largest
        for factor in range(problem.n_factors):
            largest = -np.inf
            first, last = (
                problem.factors[factor, LEAF_START],
                problem.factors[factor + 1, LEAF_START],
            )
            for leaf in range(first, last):
                largest = max(largest, table.gain[number, leaf])
            reached += largest
        if reached < least:
            least = reached
            best = number
    for number in range(len(table.weight)):
        table.weight[number] = 1.0 - OTHERS if number == best else OTHERS / (len(table.weight) - 1)


@noalloc_kernel
def weigh(problem, weight):
    """Make the problem's terms the weighted sum of those of its conditions."""
    add_up(problem.conditions, weight, problem.terms, problem.unary, problem.leaf_gain)


@noalloc_kernel
def add_up(table, weight, terms, unary, leaf_gain):
    """Fill in the weighted sum of the terms of conditions."""
    terms[BASE] = 0.0
    terms[GROSS] = 0.0
    for cell in range(len(unary)):
        unary[cell] = 0.0
    for leaf in range(len(leaf_gain)):
        leaf_gain[leaf] = 0.0
    for number in range(len(weight)):
        terms[BASE] += weight[number] * table.terms[number, BASE]
        terms[GROSS] += weight[number] * table.terms[number, GROSS]
        for cell in range(len(unary)):
            unary[cell] += weight[number] * table.unary[number, cell]
        for leaf in range(len(leaf_gain)):
            leaf_gain[leaf] += weight[number] * table.gain[number, leaf]


@noalloc_kernel
def apply_weights(problem, state):
    """Bring problem and state in line with the state's weights; returns the bound and its error."""
    weigh(problem, state.weight)
    for factor in range(problem.n_factors):
        first = problem.factors[factor, LEAF_START]
        for leaf in range(first, first + state.n_alive[factor]):
            state.gain[leaf] = problem.leaf_gain[first + state.alive[leaf]]
    return refresh(problem, state)


@noalloc_kernel
def relaxed_values(problem, state):
    """Value of each condition where the bound's maxima are taken; must follow `refresh`.

    That is how fast the bound rises with each weight.
    """
    table = problem.conditions
    for number in range(len(table.value)):
        table.value[number] = table.terms[number, BASE]
    for slot in range(problem.n_slots):
        best = state.box[slot, LOW]
        for cell in range(state.box[slot, LOW], state.box[slot, HIGH] + 1):
            if state.rest[cell] > state.rest[best]:
                best = cell
        for number in range(len(table.value)):
            table.value[number] += table.unary[number, best]
    for factor in range(problem.n_factors):
        first = problem.factors[factor, LEAF_START]
        best = first
        for leaf in range(first, first + state.n_alive[factor]):
            if state.score[leaf] > state.score[best]:
                best = leaf
        for number in range(len(table.value)):
            table.value[number] += table.gain[number, first + state.alive[best]]


@noalloc_kernel
def total_weight(weight):
    """Sum of weights."""
    total = 0.0
    for number in range(len(weight)):
        total += weight[number]
    return total


@noalloc_kernel
def lighten(weight, value, step, new_weight):
    """Weights, as much in all, moved from conditions with large values to those with small ones."""
    before = total_weight(weight)
    mean = 0.0
    for number in range(len(weight)):
        mean += weight[number] * value[number]
    mean /= before
    farthest = 1e-300
    for number in range(len(weight)):
        farthest = max(farthest, abs(value[number] - mean))
    total = 0.0
    for number in range(len(weight)):
        factor = exp(-step * (value[number] - mean) / farthest)
        new_weight[number] = weight[number] * factor
        total += new_weight[number]
    for number in range(len(weight)):
        new_weight[number] = before * max(new_weight[number] / total, LEAST)


@noalloc_kernel
def improve_weights(problem, state):
    """Find better weights for the state's box and multipliers; returns the bound.

    All weight is tried on the condition with the least value where the bound's maxima are; then
    weights go against the bound's slope, in steps that grow while they pay and shrink otherwise.

    Sound: any weights >= 0 give a bound.
    """
    table = problem.conditions
    step = ALL_THE_WAY
    n_failed = 0
    bound, _ = refresh(problem, state)
    copy_into(table.trial, state.weight)
    for _ in range(MOST_CHANGES):
        if n_failed == MOST_FAILED or bound < 0.0:
            break
        if n_failed == 0:
            relaxed_values(problem, state)
        lighten(table.trial, table.value, step, state.weight)
        found, _ = apply_weights(problem, state)
        # Bounds of sums with different weights are compared for one unit of weight.
        gained = bound - found * total_weight(table.trial) / total_weight(state.weight)
        if gained <= 0.0:
            n_failed += 1
            step = FIRST_STEP if step == ALL_THE_WAY else SHORTER * step
            continue
        n_failed = 0
        step = min(LONGER * step, ALL_THE_WAY)
        copy_into(table.trial, state.weight)
        is_worth_more = gained > WORTH_MORE * bound
        bound = found
        if not is_worth_more:
            break
    if n_failed > 0:
        copy_into(state.weight, table.trial)
        bound, _ = apply_weights(problem, state)
    return bound
