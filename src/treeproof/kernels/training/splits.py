"""The best split of one feature at one node, by the natural or the robust score.

A node's rows are first gathered into groups of neighbouring values, one row of numbers per kind:

    groups  float64 (6, n + 2)
    groups[LOWER, k], groups[UPPER, k]         smallest and largest value in group k, ascending;
                                               equal unless a bin holds several values
    groups[GRADIENT, k], groups[HESSIAN, k]    sums over the first k groups
    groups[GAIN, k]                            natural gain of a split behind the first k groups
    groups[CEILING, k]                         upper bound of gains of splits inside group k

The searches see nothing else, so histograms and sorted columns share them. Gradients lie on a
grid on which sums are exact (see `training_gradients.py`), so no result depends on the order of
rows. Plain arrays instead of named tuples: numba counts references on every access to a field.

    best    float64 (6,)
    best[SPLIT_GAIN]                                 MINIMUM_GAIN where no split was found
    best[SPLIT_FEATURE]                              -1 where no split was found
    best[SPLIT_THRESHOLD]                            a float32 number; values below it go left
    best[SPLIT_MISSING_LEFT]                         1 where missing values go left
    best[SPLIT_GRADIENT], best[SPLIT_HESSIAN]        sums over the rows that go left, unperturbed
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.compiler import inner_kernel

LOWER, UPPER, GRADIENT, HESSIAN, GAIN, CEILING = range(6)
SPLIT_GAIN, SPLIT_FEATURE, SPLIT_THRESHOLD, SPLIT_MISSING_LEFT = range(4)
SPLIT_GRADIENT, SPLIT_HESSIAN = 4, 5

MINIMUM_GAIN = 1e-6
"""Gains up to this are rounding noise; XGBoost uses the same number."""

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


class NodeSums(NamedTuple):
    """What a search needs to know about a node, and the rules that a split must keep.

    Attributes
    ----------
    gradient, hessian : float
        Sums over all rows of the node.
    missing_gradient, missing_hessian : float
        Sums over the rows whose value of the feature is missing.
    low, high : float
        Bounds of leaf weights below this node, from monotone constraints above it.
    score : float
        Score of the node as a leaf.
    reg_lambda, min_child_weight : float
        Regularisation and smallest sum of hessians of a child.
    monotone : int
        1 or -1 where margins must not fall or rise with the feature, else 0.
    """

    gradient: float
    hessian: float
    missing_gradient: float
    missing_hessian: float
    low: float
    high: float
    score: float
    reg_lambda: float
    min_child_weight: float
    monotone: int


@inner_kernel
def leaf_weight(gradient, hessian, reg_lambda, low, high):
    """Newton step of a leaf, inside the bounds of monotone constraints."""
    if hessian <= 0.0:
        return min(max(0.0, low), high)
    return min(max(-gradient / (hessian + reg_lambda), low), high)


@inner_kernel
def leaf_score(gradient, hessian, reg_lambda, low, high):
    """Twice the fall of the loss when the rows of a leaf take its weight."""
    if hessian <= 0.0:
        return 0.0
    if low == -np.inf and high == np.inf:
        return gradient * gradient / (hessian + reg_lambda)
    weight = leaf_weight(gradient, hessian, reg_lambda, low, high)
    return -(2.0 * gradient * weight + (hessian + reg_lambda) * weight * weight)


@inner_kernel
def node_sums(sums, missing, settings, bounds):
    """Put together what a search needs to know about a node.

    sums     tuple of 2 floats              gradient and hessian of all rows
    missing  tuple of 2 floats              those of the rows whose value is missing
    bounds   tuple of 2 floats and an int   bounds of leaf weights, monotone constraint
    """
    return NodeSums(
        sums[0],
        sums[1],
        missing[0],
        missing[1],
        bounds[0],
        bounds[1],
        leaf_score(sums[0], sums[1], settings.reg_lambda, bounds[0], bounds[1]),
        settings.reg_lambda,
        settings.min_child_weight,
        bounds[2],
    )


@inner_kernel
def split_gain(node, left_gradient, left_hessian):
    """Gain of sending the given sums left and the rest of the node right."""
    left = leaf_score(left_gradient, left_hessian, node.reg_lambda, node.low, node.high)
    right = leaf_score(
        node.gradient - left_gradient,
        node.hessian - left_hessian,
        node.reg_lambda,
        node.low,
        node.high,
    )
    return left + right - node.score


@inner_kernel
def breaks_monotone(node, left_gradient, left_hessian):
    """Whether the children's weights would be ordered against the constraint."""
    if node.monotone == 0:
        return False
    left = leaf_weight(left_gradient, left_hessian, node.reg_lambda, node.low, node.high)
    right = leaf_weight(
        node.gradient - left_gradient,
        node.hessian - left_hessian,
        node.reg_lambda,
        node.low,
        node.high,
    )
    return left > right if node.monotone > 0 else left < right


@inner_kernel
def threshold_behind(groups, k):
    """Float32 number midway between group k - 1 and group k."""
    below, above = groups[UPPER, k - 1], groups[LOWER, k]
    threshold = np.float64(np.float32(0.5 * (below + above)))
    # Neighbouring float32 numbers have none between them; values below the threshold go left.
    return above if threshold <= below else threshold


@inner_kernel
def keep(best, gain, feature, groups, k, node, missing_left):
    """Replace the best split by the one behind the first k groups."""
    left_hessian = groups[HESSIAN, k] + node.missing_hessian * missing_left
    best[SPLIT_GAIN] = gain
    best[SPLIT_FEATURE] = feature
    best[SPLIT_THRESHOLD] = threshold_behind(groups, k)
    best[SPLIT_MISSING_LEFT] = missing_left
    best[SPLIT_GRADIENT] = groups[GRADIENT, k] + node.missing_gradient * missing_left
    best[SPLIT_HESSIAN] = left_hessian
    if node.missing_hessian == 0.0:  # nothing was missing: with the larger child
        best[SPLIT_MISSING_LEFT] = 1 if 2.0 * left_hessian > node.hessian else 0


@inner_kernel
def natural_gains(groups, n_groups, node, shift_gradient, shift_hessian):
    """Fill in the gains of the splits that leave both children heavy enough.

    Returns
    -------
    first, last : the splits k with ``first <= k < last`` are allowed.
    """
    first = 1
    while first < n_groups and groups[HESSIAN, first] + shift_hessian < node.min_child_weight:
        first += 1
    last = n_groups
    most = node.hessian - shift_hessian
    while last > first and most - groups[HESSIAN, last - 1] < node.min_child_weight:
        last -= 1
    if node.low > -np.inf or node.high < np.inf:
        for k in range(first, last):
            groups[GAIN, k] = split_gain(
                node, groups[GRADIENT, k] + shift_gradient, groups[HESSIAN, k] + shift_hessian
            )
        return first, last
    # The same numbers as `split_gain`, without branches, so that the compiler can vectorise.
    # No hessian is zero: every group has rows, and there is one on either side.
    gradients, hessians, gains = groups[GRADIENT], groups[HESSIAN], groups[GAIN]
    for k in range(np.uint64(first), np.uint64(last)):
        gradient = gradients[k] + shift_gradient
        hessian = hessians[k] + shift_hessian
        left = gradient * gradient / (hessian + node.reg_lambda)
        gradient = node.gradient - gradient
        hessian = node.hessian - hessian
        right = gradient * gradient / (hessian + node.reg_lambda)
        gains[k] = left + right - node.score
    return first, last


@inner_kernel
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


@inner_kernel
def search_natural(groups, n_groups, node, feature, best):
    """Best split by the natural gain; thresholds lie midway between neighbouring groups.

    groups    float64 (6, n + 2)   gains are written
    n_groups  int
    node      NodeSums
    feature   int
    best      float64 (6,)         in/out: replaced only by a strictly larger gain
    """
    gains = groups[GAIN]
    for missing_left in range(2 if node.missing_hessian > 0.0 else 1):
        shift_gradient = node.missing_gradient * missing_left
        shift_hessian = node.missing_hessian * missing_left
        first, last = natural_gains(groups, n_groups, node, shift_gradient, shift_hessian)
        if node.monotone != 0:
            for k in range(first, last):
                if breaks_monotone(
                    node, groups[GRADIENT, k] + shift_gradient, groups[HESSIAN, k] + shift_hessian
                ):
                    gains[k] = -np.inf
        k = first_largest(gains, first, last, best[SPLIT_GAIN])
        if k >= 0:
            keep(best, gains[k], feature, groups, k, node, missing_left)


@inner_kernel
def robust_gain(groups, node, shift_gradient, shift_hessian, a, k, b):
    """Smallest gain over four placements of the groups a, …, b - 1 that can cross the threshold.

    Chen et al. (ICML 2019), section 4.2: as they are, all left, all right, each on the wrong side.
    """
    gain = groups[GAIN, k]
    if a == b:
        return gain
    before, after = groups[GRADIENT, a] + shift_gradient, groups[GRADIENT, b] + shift_gradient
    before_hessian = groups[HESSIAN, a] + shift_hessian
    after_hessian = groups[HESSIAN, b] + shift_hessian
    gain = min(gain, split_gain(node, after, after_hessian))
    gain = min(gain, split_gain(node, before, before_hessian))
    swapped = before + (groups[GRADIENT, b] - groups[GRADIENT, k])
    swapped_hessian = before_hessian + (groups[HESSIAN, b] - groups[HESSIAN, k])
    return min(gain, split_gain(node, swapped, swapped_hessian))


@inner_kernel
def search_robust(groups, n_groups, node, feature, reach, best):
    """Best split by the robust gain when every value may move by up to `reach`.

    A group is certainly left of t iff ``upper + reach < t`` and certainly right iff
    ``lower - reach >= t`` (values below t go left); the groups between can cross.

    groups    float64 (6, n + 2)   natural gains are written
    n_groups  int
    node      NodeSums
    feature   int
    reach     float                > 0
    best      float64 (6,)         in/out: replaced only by a strictly larger gain
    """
    for missing_left in range(2 if node.missing_hessian > 0.0 else 1):
        # Missing values are not perturbed, so they stay on their side in every placement.
        shift_gradient = node.missing_gradient * missing_left
        shift_hessian = node.missing_hessian * missing_left
        first, last = natural_gains(groups, n_groups, node, shift_gradient, shift_hessian)
        a = b = 0  # groups below a are certainly left, groups from b on certainly right
        for k in range(first, last):
            # The robust gain is at most the natural one, so nothing is lost by skipping.
            if groups[GAIN, k] <= best[SPLIT_GAIN] or breaks_monotone(
                node, groups[GRADIENT, k] + shift_gradient, groups[HESSIAN, k] + shift_hessian
            ):
                continue
            threshold = threshold_behind(groups, k)
            while groups[UPPER, a] + reach < threshold:
                a += 1
            while b < n_groups and groups[LOWER, b] - reach < threshold:
                b += 1
            gain = robust_gain(groups, node, shift_gradient, shift_hessian, a, k, b)
            if gain > best[SPLIT_GAIN]:
                keep(best, gain, feature, groups, k, node, missing_left)


@inner_kernel
def search_missing(node, feature, best):
    """Let missing values part from all others, by a threshold that no value passes.

    node  NodeSums
    best  float64 (6,)    in/out: replaced only by a strictly larger gain
    """
    if node.missing_hessian <= 0.0:
        return
    left_gradient = node.gradient - node.missing_gradient
    left_hessian = node.hessian - node.missing_hessian
    if left_hessian <= 0.0 or min(left_hessian, node.missing_hessian) < node.min_child_weight:
        return
    gain = split_gain(node, left_gradient, left_hessian)
    if gain > best[SPLIT_GAIN] and not breaks_monotone(node, left_gradient, left_hessian):
        best[SPLIT_GAIN] = gain
        best[SPLIT_FEATURE] = feature
        best[SPLIT_THRESHOLD] = LARGEST_FLOAT32
        best[SPLIT_MISSING_LEFT] = 0
        best[SPLIT_GRADIENT] = left_gradient
        best[SPLIT_HESSIAN] = left_hessian


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
