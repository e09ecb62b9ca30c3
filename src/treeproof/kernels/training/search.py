"""Finding the best splits of a pair of sibling nodes, for all or some of the features."""

import numpy as np

from treeproof.kernels.core.compiler import kernel, noalloc_kernel
from treeproof.kernels.training.columns import SortedColumn, find_floor, search_column, sum_missing
from treeproof.kernels.training.histograms import complete, group_bins, has_missing_bin, subtract
from treeproof.kernels.training.sampling import draw_features
from treeproof.kernels.training.splits import (
    MINIMUM_GAIN,
    candidate_of,
    search_missing,
    search_natural,
    search_robust,
)

BLOCK = 8
"""Features that are prepared and searched at a time."""

SMALL_NODE = 128
"""Sorted columns of nodes with fewer rows are searched as a whole: bounds would cost more."""


@noalloc_kernel
def stable_partition(rows, begin, end, goes_left, spare):
    """Move rows that go left to the front, keeping the order on both sides; return the border.

    rows       int32 (n,)         in/out
    goes_left  uint8 (n_rows,)
    spare      int32 (n,)         scratch
    """
    border = begin
    n_right = 0
    for i in range(begin, end):
        row = rows[i]
        # Without a branch: what does not belong here is overwritten by the next row.
        left = np.int64(goes_left[np.uint64(row)])
        rows[border] = row
        spare[n_right] = row
        border += left
        n_right += 1 - left
    for i in range(n_right):
        rows[border + i] = spare[i]
    return border


@noalloc_kernel
def search_bins(table, settings, node, number, histogram, groups, best):
    """Let a binned feature improve the best split of a node.

    histogram  float64 (n_bins, 2)    of the node, complete
    groups     float64 (6, n + 2)     scratch
    """
    feature = table.features[number]
    n_groups = group_bins(table, feature, histogram, groups)
    missing_gradient = missing_hessian = 0.0
    if has_missing_bin(table, feature):
        missing_gradient = histogram[feature.end_bin - 1, 0]
        missing_hessian = histogram[feature.end_bin - 1, 1]
    candidate = candidate_of(table, settings, node, number, missing_gradient, missing_hessian)
    if feature.reach > 0.0:
        search_robust(groups, n_groups, candidate, best)
    else:
        search_natural(groups, n_groups, candidate, best)
    search_missing(candidate, best)


@noalloc_kernel
def prepare_features(table, growth, features, spare):
    """Derive what the search of the pair reads of some features: bins, and sorted columns.

    features  int32 (n,)
    spare     int32 (n_sampled,)    scratch
    """
    state = growth.state[0]
    small = growth.nodes[state.small]
    large = growth.nodes[state.large if state.large >= 0 else state.small]
    part, rest = growth.histograms[small.buffer], growth.histograms[large.buffer]
    begin, end = min(small.begin, large.begin), max(small.end, large.end)
    for number in features:
        feature = table.features[number]
        if feature.usual_bin >= 0:
            complete(part, feature, small.gradient, small.hessian)
        if state.large < 0:
            continue
        subtract(rest, part, feature)
        if feature.place >= 0:
            stable_partition(growth.order[feature.place], begin, end, growth.goes_left, spare)


@noalloc_kernel
def search_node(table, settings, growth, node, features, drawn, scratch, best):
    """Let some features, which have been prepared, improve the best split of a node.

    node      NODE
    features  int32 (n,)
    drawn     uint8 (n,)    whether each of them may split the node
    best      SPLIT         in/out
    """
    histogram, gradients = growth.histograms[node.buffer], growth.gradients
    is_bounded = len(growth.order) > 0 and node.end - node.begin >= SMALL_NODE
    floor, ceiling = -np.inf, np.inf
    if is_bounded:
        floor = find_floor(table, settings, node, histogram, features, drawn, scratch)
    for j in range(len(features)):
        if not drawn[j]:
            continue
        number = features[j]
        place = table.features[number].place
        if place < 0:
            search_bins(table, settings, node, number, histogram, scratch.groups, best)
            continue
        values, order = table.values[number], growth.order[place]
        end, gradient, hessian = sum_missing(values, gradients, order, node.begin, node.end)
        column = SortedColumn(values, gradients, order, node.begin, end)
        candidate = candidate_of(table, settings, node, number, gradient, hessian)
        if is_bounded:
            ceiling = scratch.ceilings[j]
        search_column(table, column, histogram, candidate, ceiling, floor, scratch, best)


@noalloc_kernel
def search_pair(table, settings, growth, first, last, scratch):
    """Find the best splits of the pair of children on ``growth.features[first:last]``.

    The rows of the smaller child must be in its histogram. Everything else is derived here, for
    these features only; so threads with disjoint features do not meet. The best splits of the
    smaller and the larger child are left in ``scratch.found``.
    """
    state, features = growth.state[0], growth.features
    for child in range(2):
        best = scratch.found[child]
        best.gain, best.feature = MINIMUM_GAIN, -1
        number = state.large if child else state.small
        if number >= 0:
            key = growth.nodes[number].key
            draw_features(
                settings.features_per_node, key, features, scratch.keys, scratch.drawn[child]
            )
    # Bounds compare all sorted features; otherwise a few features at a time stay in the cache.
    step = BLOCK if len(table.order) == 0 else len(features)
    for start in range(first, last, step):
        stop = min(start + step, last)
        prepare_features(table, growth, features[start:stop], scratch.rows)
        for child in range(2):
            number = state.large if child else state.small
            if number < 0 or growth.nodes[number].hessian < 2.0 * settings.min_child_weight:
                continue
            search_node(
                table,
                settings,
                growth,
                growth.nodes[number],
                features[start:stop],
                scratch.drawn[child, start:stop],
                scratch,
                scratch.found[child],
            )


@kernel
def search_in_thread(table, settings, growth, first, last, scratch):
    """`search_pair`, for Python."""
    search_pair(table, settings, growth, first, last, scratch)
