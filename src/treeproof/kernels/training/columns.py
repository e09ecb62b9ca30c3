"""The best split of a column that is kept sorted, for exact training.

Such a column has coarse bins as well. At large nodes they bound the gains of all splits inside of
them, so that only the stretches of the column that promise more than is to be had elsewhere are
searched row by row.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.core.compiler import noalloc_kernel
from treeproof.kernels.training.histograms import has_missing_bin
from treeproof.kernels.training.splits import (
    CEILING,
    GAIN,
    GRADIENT,
    HESSIAN,
    LOWER,
    UPPER,
    candidate_of,
    natural_gains,
    search_missing,
    search_natural,
    search_robust,
)

PIECE = 512
"""Rows of a sorted column that are searched at a time, so that their groups stay in the cache."""

SLACK = 1.0 + 1e-10
"""Factor on upper bounds, far above the rounding of the few operations they are made of."""


class SortedColumn(NamedTuple):
    """Rows of a node, by the value of a feature: ``order[begin:end]``, without missing values."""

    values: NDArray[np.float32]  # (n_rows,)
    gradients: NDArray[np.float64]  # (n_rows, 2)
    order: NDArray[np.int32]  # (n_sampled,)
    begin: int
    end: int


@noalloc_kernel
def sum_missing(values, gradients, order, begin, end):
    """Where the missing values of a node begin in a sorted column, and their sums."""
    gradient = hessian = 0.0
    while end > begin and math.isnan(values[order[end - 1]]):
        end -= 1
        gradient += gradients[order[end], 0]
        hessian += gradients[order[end], 1]
    return end, gradient, hessian


@noalloc_kernel
def group_sorted(column, begin, end, n_groups, groups):
    """Gather ``column.order[begin:end]`` by distinct values, behind the groups that there are.

    The last group so far may go on. Returns the number of groups.
    """
    zero, one = np.uint64(0), np.uint64(1)
    values, gradients, order = column.values, column.gradients, column.order
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
    for k in range(np.uint64(n_groups), count):
        upper[k] = lower[k]
    return np.int64(count)


@noalloc_kernel
def scan_sorted(column, begin, end, n_groups, candidate, groups, best):
    """Search ``column.order[begin:end]`` by the natural gain, behind at most one group."""
    for first in range(begin, end, PIECE):
        n_groups = group_sorted(column, first, min(first + PIECE, end), n_groups, groups)
        search_natural(groups, n_groups, candidate, best)
        # The last group, with which the next rows may go on, is handed on as the first.
        groups[LOWER, 0] = groups[UPPER, 0] = groups[LOWER, n_groups - 1]
        groups[GRADIENT, 1] = groups[GRADIENT, n_groups]
        groups[HESSIAN, 1] = groups[HESSIAN, n_groups]
        n_groups = 1


@noalloc_kernel
def search_sorted(column, candidate, groups, best):
    """Let the whole sorted column improve the best split of a node."""
    groups[GRADIENT, 0] = groups[HESSIAN, 0] = 0.0
    nothing = np.int64(0)  # a plain 0 is a type of its own to numba, and would be compiled again
    if candidate.reach > 0.0:
        n_groups = group_sorted(column, column.begin, column.end, nothing, groups)
        search_robust(groups, n_groups, candidate, best)
    else:
        scan_sorted(column, column.begin, column.end, nothing, candidate, groups, best)
    search_missing(candidate, best)


@noalloc_kernel
def corner(candidate, gradient, hessian):
    """Score of a split with the given sums on the left; infinite where a side has no weight."""
    left = hessian + candidate.reg_lambda
    right = candidate.hessian - hessian + candidate.reg_lambda
    if left <= 0.0 or right <= 0.0:
        return np.inf
    rest = candidate.gradient - gradient
    return gradient * gradient / left + rest * rest / right


@noalloc_kernel
def coarse_groups(table, histogram, candidate, groups):
    """Gather the coarse bins of a feature, with upper bounds of the gains inside of them.

    histogram  float64 (n_bins, 3)    of the node; none of its values is missing
    groups     float64 (6, n + 2)     out

    Returns the number of groups, and the largest upper bound.
    """
    feature = table.features[candidate.feature]
    n_groups = 0
    gradient = hessian = 0.0
    groups[GRADIENT, 0] = groups[HESSIAN, 0] = 0.0
    largest = -np.inf
    for number in range(feature.first_bin, feature.end_bin):
        if histogram[number, 1] == 0.0:
            continue
        # Sound: for splits inside the bin, the sums on the left lie in the rectangle between these
        # corners, and the score is convex in them, so that it is largest at a corner.
        rise = 0.5 * (histogram[number, 2] + histogram[number, 0])
        fall = 0.5 * (histogram[number, 2] - histogram[number, 0])
        after = hessian + histogram[number, 1]
        score = corner(candidate, gradient + rise, hessian)
        score = max(score, corner(candidate, gradient + rise, after))
        score = max(score, corner(candidate, gradient - fall, hessian))
        score = max(score, corner(candidate, gradient - fall, after))
        groups[CEILING, n_groups] = score * SLACK - candidate.score
        largest = max(largest, groups[CEILING, n_groups])
        groups[LOWER, n_groups] = table.bin_lower[number]
        groups[UPPER, n_groups] = table.bin_upper[number]
        gradient += histogram[number, 0]
        hessian = after
        n_groups += 1
        groups[GRADIENT, n_groups] = gradient
        groups[HESSIAN, n_groups] = hessian
    return n_groups, largest


@noalloc_kernel
def find_floor(table, settings, node, histogram, features, drawn, scratch):
    """Bound the gains of sorted features at a node, and find a gain that is to be had.

    histogram  float64 (n_bins, 3)    of the node
    features   int32   (n,)           skipped unless sorted and drawn
    drawn      uint8   (n,)

    Writes ``scratch.ceilings``: upper bounds, infinite where values are missing. Returns the gain.
    """
    floor = -np.inf
    for j in range(len(features)):
        number = features[j]
        feature = table.features[number]
        if feature.place < 0 or not drawn[j]:
            continue
        scratch.ceilings[j] = np.inf
        if has_missing_bin(table, feature) and histogram[feature.end_bin - 1, 1] > 0.0:
            continue
        candidate = candidate_of(table, settings, node, number, 0.0, 0.0)
        groups = scratch.groups
        n_groups, scratch.ceilings[j] = coarse_groups(table, histogram, candidate, groups)
        # Splits between coarse bins are to be had, unless an attacker or a constraint objects.
        if feature.reach == 0.0 and feature.monotone == 0:
            first, last = natural_gains(groups, n_groups, candidate, np.int64(0))
            for k in range(first, last):
                floor = max(floor, groups[GAIN, k])
    return floor


@noalloc_kernel
def place_of(column, begin, end, value, behind):
    """First place in ``column.order[begin:end]`` with at least a value; behind it if that is 1."""
    # Ends: the range is halved.
    while begin < end:
        middle = (begin + end) // 2
        here = column.values[column.order[middle]]
        if here < value or (behind == 1 and here == value):
            begin = middle + 1
        else:
            end = middle
    return begin


@noalloc_kernel
def search_promising(column, candidate, floor, n_groups, scratch, best):
    """Search a sorted column by the natural gain, where coarse bins promise more than `floor`.

    The coarse bins are the groups of `scratch`, which are overwritten.
    """
    groups, runs = scratch.groups, scratch.runs
    floor = max(floor, best.gain)
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
        first = place_of(column, column.begin, column.end, runs[run, 0], np.int64(0))
        # Sound: a split behind the last bin of a run is within the bounds of the next bin, too, and
        # those were too low for it; a split before the first bin likewise, but that row is at hand.
        last = place_of(column, first, column.end, runs[run, 1], np.int64(1))
        n_before = 0
        if first > column.begin:
            n_before = 1
            groups[LOWER, 0] = groups[UPPER, 0] = column.values[column.order[first - 1]]
        groups[GRADIENT, n_before] = runs[run, 2]
        groups[HESSIAN, n_before] = runs[run, 3]
        scan_sorted(column, first, last, n_before, candidate, groups, best)


@noalloc_kernel
def search_column(table, column, histogram, candidate, ceiling, floor, scratch, best):
    """Let one sorted feature improve the best split of a node.

    histogram  float64 (n_bins, 3)    of the node
    ceiling    float                  upper bound of the feature's gains
    floor      float                  a gain that is to be had elsewhere
    """
    if ceiling < max(floor, best.gain):
        return
    if candidate.reach > 0.0 or ceiling == np.inf:
        search_sorted(column, candidate, scratch.groups, best)
        return
    n_groups, _ = coarse_groups(table, histogram, candidate, scratch.groups)
    search_promising(column, candidate, floor, n_groups, scratch, best)
