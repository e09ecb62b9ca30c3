"""The best split of one feature at one node, by the natural or the robust score.

A node's rows are first gathered into groups of neighbouring values, one row of numbers per kind:

    groups  float64 (6, n + 2)
    groups[LOWER, k], groups[UPPER, k]         smallest and largest value in group k, ascending;
                                               equal unless a bin holds several values
    groups[GRADIENT, k], groups[HESSIAN, k]    sums over the first k groups
    groups[GAIN, k]                            natural gain of a split behind the first k groups
    groups[CEILING, k]                         upper bound of gains of splits inside group k

The searches see nothing else, so histograms and sorted columns share them. Gradients lie on a
grid on which sums are exact (see `losses`), so no result depends on the order of rows.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import record_type
from treeproof.kernels.core.compiler import at_once_by, noalloc_kernel

LOWER, UPPER, GRADIENT, HESSIAN, GAIN, CEILING = range(6)

SPLIT = record_type(
    [
        ("gain", np.float64),  # MINIMUM_GAIN where no split was found
        ("threshold", np.float64),  # a float32 number; values below it go left
        ("gradient", np.float64),  # sums over the rows that go left, unperturbed
        ("hessian", np.float64),
        ("feature", np.int64),  # -1 where no split was found
        ("missing_left", np.int64),  # 1 where missing values go left
    ]
)
"""A split of a node; searches replace the best one only by one with a strictly larger gain."""

MINIMUM_GAIN = 1e-6
"""Gains up to this are rounding noise; XGBoost uses the same number."""

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


class Candidate(NamedTuple):
    """A feature as a candidate to split a node, and the rules that the split must keep."""

    feature: int
    monotone: int  # as in FEATURE
    reach: float
    gradient: float  # sums over all rows of the node
    hessian: float
    missing_gradient: float  # sums over the rows whose value of the feature is missing
    missing_hessian: float
    low: float  # bounds of leaf weights below this node, from monotone constraints above it
    high: float
    score: float  # score of the node as a leaf
    reg_lambda: float
    min_child_weight: float


@noalloc_kernel
def leaf_weight(gradient, hessian, reg_lambda, low, high):
    """Newton step of a leaf, inside the bounds of monotone constraints."""
    if hessian <= 0.0:
        return min(max(0.0, low), high)
    return min(max(-gradient / (hessian + reg_lambda), low), high)


@noalloc_kernel
def leaf_score(gradient, hessian, reg_lambda, low, high):
    """Twice the fall of the loss when the rows of a leaf take its weight."""
    if hessian <= 0.0:
        return 0.0
    if low == -np.inf and high == np.inf:
        return gradient * gradient / (hessian + reg_lambda)
    weight = leaf_weight(gradient, hessian, reg_lambda, low, high)
    return -(2.0 * gradient * weight + (hessian + reg_lambda) * weight * weight)


@noalloc_kernel
def candidate_of(table, settings, node, number, missing_gradient, missing_hessian):
    """Put together what a search needs to know about feature `number` at a node."""
    feature = table.features[number]
    score = leaf_score(node.gradient, node.hessian, settings.reg_lambda, node.low, node.high)
    return Candidate(
        np.int64(number),
        feature.monotone,
        feature.reach,
        node.gradient,
        node.hessian,
        missing_gradient,
        missing_hessian,
        node.low,
        node.high,
        score,
        settings.reg_lambda,
        settings.min_child_weight,
    )


@noalloc_kernel
def split_gain(candidate, left_gradient, left_hessian):
    """Gain of sending the given sums left and the rest of the node right."""
    reg_lambda, low, high = candidate.reg_lambda, candidate.low, candidate.high
    right_gradient = candidate.gradient - left_gradient
    right_hessian = candidate.hessian - left_hessian
    left = leaf_score(left_gradient, left_hessian, reg_lambda, low, high)
    right = leaf_score(right_gradient, right_hessian, reg_lambda, low, high)
    return left + right - candidate.score


@noalloc_kernel
def breaks_monotone(candidate, left_gradient, left_hessian):
    """Whether the children's weights would be ordered against the constraint."""
    if candidate.monotone == 0:
        return False
    reg_lambda, low, high = candidate.reg_lambda, candidate.low, candidate.high
    right_gradient = candidate.gradient - left_gradient
    right_hessian = candidate.hessian - left_hessian
    left = leaf_weight(left_gradient, left_hessian, reg_lambda, low, high)
    right = leaf_weight(right_gradient, right_hessian, reg_lambda, low, high)
    return left > right if candidate.monotone > 0 else left < right


@noalloc_kernel
def threshold_behind(groups, k):
    """Float32 number midway between group k - 1 and group k."""
    below, above = groups[UPPER, k - 1], groups[LOWER, k]
    threshold = np.float64(np.float32(0.5 * (below + above)))
    # Neighbouring float32 numbers have none between them; values below the threshold go left.
    return above if threshold <= below else threshold


@noalloc_kernel
def keep(best, gain, candidate, groups, k, missing_left):
    """Replace the best split by the one behind the first k groups."""
    best.gain = gain
    best.feature = candidate.feature
    best.threshold = threshold_behind(groups, k)
    best.missing_left = missing_left
    best.gradient = groups[GRADIENT, k] + candidate.missing_gradient * missing_left
    best.hessian = groups[HESSIAN, k] + candidate.missing_hessian * missing_left
    if candidate.missing_hessian == 0.0:  # nothing was missing: with the larger child
        best.missing_left = np.int64(2.0 * best.hessian > candidate.hessian)


def _fill_gains_at_once(groups, first, last, shift_gradient, shift_hessian, candidate):
    gradient = groups[GRADIENT, first:last] + shift_gradient
    hessian = groups[HESSIAN, first:last] + shift_hessian
    left = gradient * gradient / (hessian + candidate.reg_lambda)
    gradient, hessian = candidate.gradient - gradient, candidate.hessian - hessian
    right = gradient * gradient / (hessian + candidate.reg_lambda)
    groups[GAIN, first:last] = left + right - candidate.score


@at_once_by(_fill_gains_at_once)
def fill_gains(groups, first, last, shift_gradient, shift_hessian, candidate):
    """The same numbers as `split_gain`, without its branches.

    No hessian is zero: every group has rows, and there is one on either side.
    """
    gradients, hessians, gains = groups[GRADIENT], groups[HESSIAN], groups[GAIN]
    for k in range(np.uint64(first), np.uint64(last)):
        gradient = gradients[k] + shift_gradient
        hessian = hessians[k] + shift_hessian
        left = gradient * gradient / (hessian + candidate.reg_lambda)
        gradient = candidate.gradient - gradient
        hessian = candidate.hessian - hessian
        right = gradient * gradient / (hessian + candidate.reg_lambda)
        gains[k] = left + right - candidate.score


@noalloc_kernel
def natural_gains(groups, n_groups, candidate, missing_left):
    """Fill in the gains of the splits that leave both children heavy enough.

    Returns first and last: the splits k with ``first <= k < last`` are allowed.
    """
    shift_gradient = candidate.missing_gradient * missing_left
    shift_hessian = candidate.missing_hessian * missing_left
    first, last = 1, n_groups
    while first < n_groups and groups[HESSIAN, first] + shift_hessian < candidate.min_child_weight:
        first += 1
    most = candidate.hessian - shift_hessian
    while last > first and most - groups[HESSIAN, last - 1] < candidate.min_child_weight:
        last -= 1
    if candidate.low > -np.inf or candidate.high < np.inf:
        for k in range(first, last):
            groups[GAIN, k] = split_gain(
                candidate, groups[GRADIENT, k] + shift_gradient, groups[HESSIAN, k] + shift_hessian
            )
        return first, last
    fill_gains(groups, first, last, shift_gradient, shift_hessian, candidate)
    return first, last


@noalloc_kernel
def first_largest(gains, first, last, floor):
    """Where the largest of ``gains[first:last]`` stands first; -1 if none is above `floor`."""
    place = -1
    block = 16  # most blocks hold nothing new, and their maximum is found without branches
    for start in range(first, last, block):
        stop = min(start + block, last)
        largest = gains[start]
        if stop - start == block:
            for i in range(1, block):
                gain = gains[start + i]
                largest = gain if gain > largest else largest
            if largest <= floor:
                continue
        for k in range(start, stop):
            if gains[k] > floor:
                floor = gains[k]
                place = k
    return place


@noalloc_kernel
def search_natural(groups, n_groups, candidate, best):
    """Best split by the natural gain; thresholds lie midway between neighbouring groups."""
    gains = groups[GAIN]
    for missing_left in range(2 if candidate.missing_hessian > 0.0 else 1):
        first, last = natural_gains(groups, n_groups, candidate, missing_left)
        if candidate.monotone != 0:
            for k in range(first, last):
                gradient = groups[GRADIENT, k] + candidate.missing_gradient * missing_left
                hessian = groups[HESSIAN, k] + candidate.missing_hessian * missing_left
                if breaks_monotone(candidate, gradient, hessian):
                    gains[k] = -np.inf
        k = first_largest(gains, first, last, best.gain)
        if k >= 0:
            keep(best, gains[k], candidate, groups, k, missing_left)


@noalloc_kernel
def robust_gain(groups, candidate, missing_left, a, k, b):
    """Smallest gain over four placements of the groups a, …, b - 1 that can cross the threshold.

    Chen et al. (ICML 2019), section 4.2: as they are, all left, all right, each on the wrong side.
    """
    gain = groups[GAIN, k]
    if a == b:
        return gain
    # Missing values are not perturbed, so they stay on their side in every placement.
    shift_gradient = candidate.missing_gradient * missing_left
    shift_hessian = candidate.missing_hessian * missing_left
    before, after = groups[GRADIENT, a] + shift_gradient, groups[GRADIENT, b] + shift_gradient
    before_hessian = groups[HESSIAN, a] + shift_hessian
    after_hessian = groups[HESSIAN, b] + shift_hessian
    gain = min(gain, split_gain(candidate, after, after_hessian))
    gain = min(gain, split_gain(candidate, before, before_hessian))
    swapped = before + (groups[GRADIENT, b] - groups[GRADIENT, k])
    swapped_hessian = before_hessian + (groups[HESSIAN, b] - groups[HESSIAN, k])
    return min(gain, split_gain(candidate, swapped, swapped_hessian))


@noalloc_kernel
def search_robust(groups, n_groups, candidate, best):
    """Best split by the robust gain, when every value may move by up to ``candidate.reach > 0``.

    A group is certainly left of t iff ``upper + reach < t`` and certainly right iff
    ``lower - reach >= t`` (values below t go left); the groups between can cross.
    """
    reach = candidate.reach
    for missing_left in range(2 if candidate.missing_hessian > 0.0 else 1):
        first, last = natural_gains(groups, n_groups, candidate, missing_left)
        a = b = 0  # groups below a are certainly left, groups from b on certainly right
        for k in range(first, last):
            gradient = groups[GRADIENT, k] + candidate.missing_gradient * missing_left
            hessian = groups[HESSIAN, k] + candidate.missing_hessian * missing_left
            # The robust gain is at most the natural one, so nothing is lost by skipping.
            if groups[GAIN, k] <= best.gain or breaks_monotone(candidate, gradient, hessian):
                continue
            threshold = threshold_behind(groups, k)
            while groups[UPPER, a] + reach < threshold:
                a += 1
            while b < n_groups and groups[LOWER, b] - reach < threshold:
                b += 1
            gain = robust_gain(groups, candidate, missing_left, a, k, b)
            if gain > best.gain:
                keep(best, gain, candidate, groups, k, missing_left)


@noalloc_kernel
def search_missing(candidate, best):
    """Let missing values part from all others, by a threshold that no value passes."""
    if candidate.missing_hessian <= 0.0:
        return
    gradient = candidate.gradient - candidate.missing_gradient
    hessian = candidate.hessian - candidate.missing_hessian
    if hessian <= 0.0 or min(hessian, candidate.missing_hessian) < candidate.min_child_weight:
        return
    gain = split_gain(candidate, gradient, hessian)
    if gain > best.gain and not breaks_monotone(candidate, gradient, hessian):
        best.gain = gain
        best.feature = candidate.feature
        best.threshold = LARGEST_FLOAT32
        best.missing_left = 0
        best.gradient = gradient
        best.hessian = hessian
