"""Features with many distinct values: sorted columns, searched only where it can pay.

A split inside a coarse bin has sums between those at the bin's two ends, give or take the bin's
absolute gradients. The gain is a convex function of the sums, so its largest value over that
rectangle is at a corner: an upper bound. Bins whose bound is below a gain that is already to be had
are passed over; what is found is the best split of all, as if every value had been tried.
"""

import numpy as np

from treeproof.kernels.compiler import inner_kernel
from treeproof.kernels.training_splits import (
    CEILING,
    GAIN,
    GRADIENT,
    HESSIAN,
    LOWER,
    SPLIT_GAIN,
    UPPER,
    natural_gains,
    node_sums,
    search_missing,
    search_natural,
    search_robust,
)

PIECE = 512
"""Rows of a sorted column that are searched at a time, so that their groups stay in the cache."""

SMALL_NODE = 128
"""Nodes with fewer rows are searched as a whole: bounds would cost more."""

SLACK = 1.0 + 1e-10
"""Factor on upper bounds, far above the rounding of the few operations they are made of."""


@inner_kernel
def sum_missing(values, gradients, order, begin, end):
    """Where the missing values of a node begin in a sorted column, and their sums."""
    gradient = hessian = 0.0
    while end > begin and np.isnan(values[order[end - 1]]):
        end -= 1
        gradient += gradients[order[end], 0]
        hessian += gradients[order[end], 1]
    return end, gradient, hessian


@inner_kernel
def group_sorted(values, gradients, order, begin, end, n_groups, groups):
    """Gather rows by distinct values of a wide feature, behind the groups that there are.

    values      float32 (n_rows,)     the column
    gradients   float64 (n_rows, 2)
    order       int32   (n_rows,)     rows at begin <= i < end, by value, none missing
    n_groups    int                   groups so far; the last one may go on
    groups      float64 (6, n + 2)    in/out, see training_splits

    Returns
    -------
    n_groups
    """
    zero, one = np.uint64(0), np.uint64(1)
    lower, upper = groups[LOWER], groups[UPPER]
    gradient_sums, hessian_sums = groups[GRADIENT], groups[HESSIAN]
    count = np.uint64(n_groups)
    gradient, hessian = gradient_sums[count], hessian_sums[count]
    previous = np.float32(np.nan) if n_groups == 0 else np.float32(lower[n_groups - 1])
    for position in range(np.uint64(begin), np.uint64(end)):
        row = np.uint64(order[position])
        value = values[row]
        gradient += gradients[row, zero]
        hessian += gradients[row, one]
        count += np.uint64(value != previous)
        previous = value
        lower[count - one] = value
        gradient_sums[count] = gradient
        hessian_sums[count] = hessian
    upper[n_groups:count] = lower[n_groups:count]
    return np.int64(count)


@inner_kernel
def scan_sorted(values, gradients, order, begin, end, n_groups, node, feature, groups, best):
    """Search rows of a sorted column by the natural gain, behind at most one group before them."""
    for first in range(begin, end, PIECE):
        last = min(first + PIECE, end)
        n_groups = group_sorted(values, gradients, order, first, last, n_groups, groups)
        search_natural(groups, n_groups, node, feature, best)
        # The last group, with which the next rows may go on, is handed on as the first.
        groups[LOWER, 0] = groups[UPPER, 0] = groups[LOWER, n_groups - 1]
        groups[GRADIENT, 1] = groups[GRADIENT, n_groups]
        groups[HESSIAN, 1] = groups[HESSIAN, n_groups]
        n_groups = 1


@inner_kernel
def search_sorted(values, gradients, order, begin, end, node, feature, reach, groups, best):
    """Let the whole sorted column improve the best split of a node.

    values      float32 (n_rows,)     the column
    gradients   float64 (n_rows, 2)
    order       int32   (n_rows,)     rows of the node at begin <= i < end, none missing
    node        NodeSums
    reach       float                 how far a value can be moved
    groups      float64 (6, n + 2)    scratch
    best        float64 (6,)          in/out
    """
    groups[GRADIENT, 0] = groups[HESSIAN, 0] = 0.0
    if reach > 0.0:
        n_groups = group_sorted(values, gradients, order, begin, end, 0, groups)
        search_robust(groups, n_groups, node, feature, reach, best)
    else:
        scan_sorted(values, gradients, order, begin, end, 0, node, feature, groups, best)
    search_missing(node, feature, best)


@inner_kernel
def corner(node, gradient, hessian):
    """Score of a split with the given sums on the left; infinite where a side has no weight."""
    left = hessian + node.reg_lambda
    right = node.hessian - hessian + node.reg_lambda
    if left <= 0.0 or right <= 0.0:
        return np.inf
    rest = node.gradient - gradient
    return gradient * gradient / left + rest * rest / right


@inner_kernel
def coarse_groups(bin_lower, bin_upper, histogram, first, last, node, groups):
    """Gather the coarse bins of a feature, with upper bounds of the gains inside of them.

    bin_lower, bin_upper               see TrainingTable
    histogram    float64 (n_bins, 3)   of the node
    first, last  int                   bins of the feature: first <= bin < last
    node         NodeSums              none of its values missing
    groups       float64 (6, n + 2)    out

    Returns
    -------
    n_groups, and the largest upper bound.
    """
    n_groups = 0
    gradient = hessian = 0.0
    groups[GRADIENT, 0] = groups[HESSIAN, 0] = 0.0
    largest = -np.inf
    for number in range(first, last):
        if histogram[number, 1] == 0.0:
            continue
        rise = 0.5 * (histogram[number, 2] + histogram[number, 0])
        fall = 0.5 * (histogram[number, 2] - histogram[number, 0])
        after = hessian + histogram[number, 1]
        score = max(corner(node, gradient + rise, hessian), corner(node, gradient + rise, after))
        score = max(score, corner(node, gradient - fall, hessian))
        score = max(score, corner(node, gradient - fall, after))
        groups[CEILING, n_groups] = score * SLACK - node.score
        largest = max(largest, groups[CEILING, n_groups])
        groups[LOWER, n_groups] = bin_lower[number]
        groups[UPPER, n_groups] = bin_upper[number]
        gradient += histogram[number, 0]
        hessian = after
        n_groups += 1
        groups[GRADIENT, n_groups] = gradient
        groups[HESSIAN, n_groups] = hessian
    return n_groups, largest


@inner_kernel
def coarse_gain(groups, n_groups, node):
    """Largest gain of a split between coarse bins, which is to be had; -inf where there is none."""
    if node.monotone != 0:
        return -np.inf
    first, last = natural_gains(groups, n_groups, node, 0.0, 0.0)
    largest = -np.inf
    for k in range(first, last):
        largest = max(largest, groups[GAIN, k])
    return largest


@inner_kernel
def lower_place(values, order, begin, end, value):
    """First place in a sorted stretch whose value is at least `value`."""
    while begin < end:
        middle = (begin + end) // 2
        if values[order[middle]] < value:
            begin = middle + 1
        else:
            end = middle
    return begin


@inner_kernel
def search_promising(
    values, gradients, order, begin, end, node, feature, floor, n_groups, groups, runs, best
):
    """Search a sorted column by the natural gain, where coarse bins promise more than `floor`.

    values, gradients, order, begin, end, node, best   as in `search_sorted`
    floor     float                  a gain that is to be had elsewhere
    n_groups  int                    coarse bins in `groups`
    groups    float64 (6, n + 2)     in: coarse bins; overwritten
    runs      float64 (n, 4)         scratch
    """
    floor = max(floor, best[SPLIT_GAIN])
    n_runs = 0
    inside = False
    for k in range(n_groups):
        if groups[CEILING, k] < floor:
            inside = False
            continue
        if not inside:
            runs[n_runs, 0] = groups[LOWER, k]
            runs[n_runs, 2] = groups[GRADIENT, k]
            runs[n_runs, 3] = groups[HESSIAN, k]
            n_runs += 1
            inside = True
        runs[n_runs - 1, 1] = groups[UPPER, k]
    for run in range(n_runs):
        first = lower_place(values, order, begin, end, runs[run, 0])
        # A split behind the last bin of a run is within the bounds of the next bin, too, and those
        # were too low for it; a split before the first bin likewise, but that row is at hand.
        last = lower_place(values, order, first, end, np.nextafter(runs[run, 1], np.inf))
        n_before = 0
        if first > begin:
            n_before = 1
            groups[LOWER, 0] = groups[UPPER, 0] = values[order[first - 1]]
        groups[GRADIENT, n_before] = runs[run, 2]
        groups[HESSIAN, n_before] = runs[run, 3]
        scan_sorted(values, gradients, order, first, last, n_before, node, feature, groups, best)


@inner_kernel
def find_floor(columns, histogram, features, keys, limit, sums, settings, bounds, groups, ceilings):
    """Bound the gains of wide features at a node, and find a gain that is to be had.

    columns    tuple of bin_start, bin_lower, bin_upper, wide, reach, monotone of TrainingTable
    histogram  float64 (n_bins, 3)    of the node
    features   int32   (n,)           narrow ones are skipped, and those with keys above the limit
    sums       tuple of 2 floats      gradient and hessian of the node
    bounds     tuple of 2 floats      bounds of leaf weights
    groups     float64 (6, n + 2)     scratch
    ceilings   float64 (n,)           out: upper bounds, infinite where values are missing
    """
    bin_start, bin_lower, bin_upper, wide, reach, monotone = columns
    floor = -np.inf
    for j in range(len(features)):
        feature = features[j]
        if wide[feature] < 0 or keys[j] > limit:
            continue
        first, last = bin_start[feature], bin_start[feature + 1]
        ceilings[j] = np.inf
        if np.isnan(bin_lower[last - 1]) and histogram[last - 1, 1] > 0.0:
            continue
        limits = (bounds[0], bounds[1], np.int64(monotone[feature]))
        node = node_sums(sums, (0.0, 0.0), settings, limits)
        n_groups, ceilings[j] = coarse_groups(
            bin_lower, bin_upper, histogram, first, last, node, groups
        )
        if reach[feature] == 0.0:
            floor = max(floor, coarse_gain(groups, n_groups, node))
    return floor


@inner_kernel
def search_column(
    columns, values, gradients, order, span, histogram, node, where, level, groups, runs, best
):
    """Let one wide feature improve the best split of a node.

    columns    as in `find_floor`
    values     float32 (n_rows,)            the column
    order      int32   (n_rows,)            rows by value
    span       tuple of 2 ints              rows of the node in `order` whose value is not missing
    histogram  float64 (n_bins, 3)          of the node
    node       NodeSums
    where      tuple of an int and a float  feature, and how far its values can be moved
    level      tuple of 2 floats            upper bound of its gains, and a gain to be had elsewhere
    groups, runs                            scratch
    best       float64 (6,)                 in/out
    """
    begin, end = span
    feature, reach = where
    ceiling, floor = level
    if ceiling < max(floor, best[SPLIT_GAIN]):
        return
    if reach > 0.0 or ceiling == np.inf:
        search_sorted(values, gradients, order, begin, end, node, feature, reach, groups, best)
        return
    bin_start, bin_lower, bin_upper, _, _, _ = columns
    first, last = bin_start[feature], bin_start[feature + 1]
    n_groups, _ = coarse_groups(bin_lower, bin_upper, histogram, first, last, node, groups)
    search_promising(
        values, gradients, order, begin, end, node, feature, floor, n_groups, groups, runs, best
    )
