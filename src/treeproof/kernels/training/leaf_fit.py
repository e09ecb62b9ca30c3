"""Leaves of all trees fitted together to the worst cases of rows that are known: a convex problem.

A *cut* is a point that an attacker can make of a row, told by what it makes the margin of: a sum
of leaf values with signs. The margin of a row is the least one of its cuts, and the fit minimises

    penalty / 2 * (sum of squared values) + sum over rows of weight * log(1 + exp(-margin))

by ascent in the dual, where every cut has a multiplier. The values are always what the multipliers
make of them, so that the dual value, and with it a lower bound of the optimum, holds at any time.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.core.compiler import kernel, noalloc_kernel

STEPS = 60
"""Most steps of Newton's method, each with an interval that shrinks."""


@noalloc_kernel
def margin_of(cuts, signs, cut, values):
    """Margin that a cut gives."""
    total = 0.0
    for place in range(cuts.shape[1]):
        total += signs[cut, place] * values[cuts[cut, place]]
    return total


@noalloc_kernel
def move(cuts, signs, cut, step, values):
    """Add a step to the multiplier of a cut, as the values see it."""
    for place in range(cuts.shape[1]):
        values[cuts[cut, place]] += step * signs[cut, place]


@noalloc_kernel
def squared_distance(cuts, signs, one, other, scratch):
    """Squared distance of two cuts as vectors over the values; scratch is zero before and after."""
    for place in range(cuts.shape[1]):
        scratch[cuts[one, place]] += signs[one, place]
        scratch[cuts[other, place]] -= signs[other, place]
    total = 0.0
    for cut in (one, other):
        for place in range(cuts.shape[1]):
            index = cuts[cut, place]
            total += scratch[index] * scratch[index]
            scratch[index] = 0.0
    return total


@noalloc_kernel
def best_step(weight, share, floor, margin, slope):
    """Step of one multiplier that maximises the dual: where its derivative is 0.

    share  float  sum of the multipliers of the row, of at most `weight`
    floor  float  smallest step, which takes the multiplier to 0
    slope  float  by how much the margin rises per step
    """
    low, high = floor, weight - share
    step = 0.5 * (low + high)
    for _ in range(STEPS):
        rest, taken = weight - share - step, share + step
        if rest <= 0.0 or taken <= 0.0:
            return min(max(step, low), high)
        value = math.log(rest / taken) - margin - slope * step
        if value > 0.0:
            low = step
        else:
            high = step
        following = step + value / (1.0 / rest + 1.0 / taken + slope)
        if not low < following < high:
            following = 0.5 * (low + high)
        if abs(following - step) <= 1e-12 * weight:
            return following
        step = following
    return step


class KnownCuts(NamedTuple):
    """Cuts of rows.

    places   int32   (n_cuts, width)  which values a cut adds up, each once
    signs    float64 (n_cuts, width)  with what signs
    start    int64   (n_rows + 1,)    cuts of each row
    weights  float64 (n_rows,)        positive
    """

    places: NDArray[np.int32]
    signs: NDArray[np.float64]
    start: NDArray[np.int64]
    weights: NDArray[np.float64]


@kernel
def fit_leaves(known, order, penalty, limit, tolerance, multipliers, values):
    """Maximise the dual by turns over the rows; returns the turns.

    After a turn of all rows come turns of those that moved, until none does: most rows have found
    their place long before the others. The last turn is one of all.

    known        KnownCuts
    order        int64   (n_rows,)        in which order rows take their turns
    limit        int                      most turns
    tolerance    float                    turns end when no margin changes by more
    multipliers  float64 (n_cuts,)        in/out
    values       float64 (n_values,)      in/out: what the multipliers make of them
    """
    cuts, signs, start, weights = known.places, known.signs, known.start, known.weights
    n_rows = len(weights)
    scratch = np.zeros(len(values), dtype=np.float64)
    share = np.zeros(n_rows, dtype=np.float64)
    for row in range(n_rows):
        for cut in range(start[row], start[row + 1]):
            share[row] += multipliers[cut]
    is_still = np.zeros(n_rows, dtype=np.bool_)
    is_whole = True
    for turn in range(limit):
        largest = 0.0
        for place in range(n_rows):
            row = order[(place + turn * 7919) % n_rows]
            if is_still[row] and not is_whole:
                continue
            worst, best = -1, -1
            least, most = np.inf, -np.inf
            for cut in range(start[row], start[row + 1]):
                margin = margin_of(cuts, signs, cut, values)
                if margin < least:
                    least, worst = margin, cut
                if multipliers[cut] > 0.0 and margin > most:
                    most, best = margin, cut
            if worst < 0:
                continue
            moved = 0.0
            if best >= 0 and best != worst and most > least:
                # The attacker goes from the point that has become harmless to the worst one.
                distance = squared_distance(cuts, signs, worst, best, scratch)
                if distance > 0.0:
                    step = min(multipliers[best], (most - least) * penalty / distance)
                    multipliers[best] -= step
                    multipliers[worst] += step
                    move(cuts, signs, worst, step / penalty, values)
                    move(cuts, signs, best, -step / penalty, values)
                    moved = step * distance / penalty
                    least = margin_of(cuts, signs, worst, values)
            norm = 0.0
            for column in range(cuts.shape[1]):
                norm += signs[worst, column] * signs[worst, column]
            step = best_step(weights[row], share[row], -multipliers[worst], least, norm / penalty)
            multipliers[worst] += step
            share[row] += step
            move(cuts, signs, worst, step / penalty, values)
            moved = max(moved, abs(step) * norm / penalty)
            is_still[row] = moved < tolerance
            largest = max(largest, moved)
        if is_whole and largest < tolerance:
            return turn + 1
        is_whole = not is_whole and largest < tolerance
    return limit
