"""Finding the best splits of a pair of sibling nodes, for all or some of the features."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.compiler import kernel
from treeproof.kernels.training_histograms import (
    complete,
    group_bins,
    group_sorted,
    subtract,
    sum_missing,
)
from treeproof.kernels.training_sampling import draw_features
from treeproof.kernels.training_splits import (
    GRADIENT,
    HESSIAN,
    LOWER,
    MINIMUM_GAIN,
    SPLIT_FEATURE,
    SPLIT_GAIN,
    UPPER,
    NodeSums,
    leaf_score,
    search_missing,
    search_natural,
    search_robust,
)

N_NODES = 0  # places in Work.counters
STACK_SIZE = 1
N_FREE = 2
SMALL = 3
LARGE = 4
SEARCHED = 5
N_COUNTERS = 6

PIECE = 512
"""Rows of a sorted column that are searched at a time."""


class GrowthSettings(NamedTuple):
    """Numbers that rule growth.

    Attributes
    ----------
    reg_lambda, gamma, min_child_weight, learning_rate : float
        As in XGBoost.
    max_depth : int
        Nodes at this depth are leaves.
    features_per_node : int
        How many features, chosen at random, each node may split on.
    seed : uint64
        For that choice.
    parallel_rows : int
        Nodes with so many rows are searched by the caller, in threads.
    """

    reg_lambda: float
    gamma: float
    min_child_weight: float
    learning_rate: float
    max_depth: int
    features_per_node: int
    seed: int
    parallel_rows: int


class Nodes(NamedTuple):
    """Nodes of the tree that is being grown; children have larger numbers than their parent.

    Attributes
    ----------
    split : float64 (n, 6)
        Best split, see `training_splits`.
    left, right : int32
        Children; -1 unless the node was split.
    gradient, hessian : float64
        Sums over the rows.
    low, high : float64
        Bounds of leaf weights from monotone constraints.
    begin, end : int64
        Rows of the node in `Work.rows`.
    depth : int32
    buffer : int32
        Histogram that the node owns; -1 for none.
    """

    split: NDArray[np.float64]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    gradient: NDArray[np.float64]
    hessian: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    depth: NDArray[np.int32]
    buffer: NDArray[np.int32]


class Work(NamedTuple):
    """Memory that growth writes to.

    Attributes
    ----------
    rows : int32 (n_sampled,)
        Rows of the tree; those of a node lie together, in ascending order.
    goes_left : uint8 (n_rows,)
        Side of each row at the split made last.
    order : int32 (n_wide, n_sampled)
        As in `TrainingTable`, only sampled rows, those of a node together.
    histograms : float64 (n_buffers, n_bins, 2)
    free : int32 (n_buffers,)
        Histograms in nobody's hands.
    stack : int32 (n_stack,)
        Nodes to be split or left.
    counters : int64 (N_COUNTERS,)
        Node count, stack size, number of free histograms, the pair of children to be searched
        (-1 for none), and whether that has been done.
    """

    rows: NDArray[np.int32]
    goes_left: NDArray[np.uint8]
    order: NDArray[np.int32]
    histograms: NDArray[np.float64]
    free: NDArray[np.int32]
    stack: NDArray[np.int32]
    counters: NDArray[np.int64]


class Scratch(NamedTuple):
    """Memory of one thread.

    Attributes
    ----------
    groups : float64 (5, n + 2)
        Groups of one feature, see `training_splits`.
    rows : int32 (n_sampled,)
        Rows set aside in a partition.
    keys : uint64 (2, n_features)
        Random keys of features, for either child.
    """

    groups: NDArray[np.float64]
    rows: NDArray[np.int32]
    keys: NDArray[np.uint64]


@kernel
def stable_partition(rows, begin, end, goes_left, spare):
    """Move rows that go left to the front, keeping the order on both sides.

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
    rows[border:end] = spare[:n_right]


@kernel
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


@kernel
def search_bins(bin_lower, bin_upper, histogram, bins, sums, settings, bounds, where, groups, best):
    """Let a narrow feature improve the best split of a node.

    histogram  float64 (n_bins, 2)          of the node, complete
    bins       tuple of 2 ints              first bin of the feature, and first behind it
    sums       tuple of 2 floats            gradient and hessian of the node
    bounds     see `node_sums`
    where      tuple of an int and a float  feature, and how far its values can be moved
    groups     float64 (5, n + 2)           scratch
    best       float64 (6,)                 in/out
    """
    n_groups, missing_gradient, missing_hessian = group_bins(
        bin_lower, bin_upper, histogram, bins[0], bins[1], groups
    )
    node = node_sums(sums, (missing_gradient, missing_hessian), settings, bounds)
    if where[1] > 0.0:
        search_robust(groups, n_groups, node, where[0], where[1], best)
    else:
        search_natural(groups, n_groups, node, where[0], best)
    search_missing(node, where[0], best)


@kernel
def search_sorted(values, gradients, order, span, sums, settings, bounds, where, groups, best):
    """Let a wide feature improve the best split of a node.

    values     float32 (n_rows,)            the column
    gradients  float64 (n_rows, 2)
    order      int32   (n_rows,)            rows by value
    span       tuple of 2 ints              where those of the node begin and end in `order`
    sums, bounds, where, groups, best       as in `search_bins`
    """
    begin = span[0]
    end, missing_gradient, missing_hessian = sum_missing(values, gradients, order, begin, span[1])
    node = node_sums(sums, (missing_gradient, missing_hessian), settings, bounds)
    groups[GRADIENT, 0] = groups[HESSIAN, 0] = 0.0
    if where[1] > 0.0:
        n_groups = group_sorted(values, gradients, order, begin, end, 0, groups)
        search_robust(groups, n_groups, node, where[0], where[1], best)
        search_missing(node, where[0], best)
        return
    # In pieces that stay in the cache; the last group of a piece, which the next one may go on
    # with, is handed on as its first.
    n_groups = 0
    for first in range(begin, end, PIECE):
        n_groups = group_sorted(
            values, gradients, order, first, min(first + PIECE, end), n_groups, groups
        )
        search_natural(groups, n_groups, node, where[0], best)
        groups[LOWER, 0] = groups[UPPER, 0] = groups[LOWER, n_groups - 1]
        groups[GRADIENT, 1] = groups[GRADIENT, n_groups]
        groups[HESSIAN, 1] = groups[HESSIAN, n_groups]
        n_groups = 1
    search_missing(node, where[0], best)


@kernel
def search_pair(table, gradients, settings, nodes, work, features, first, last, scratch, found):
    """Find the best splits of the pair of children on ``features[first:last]``.

    The rows of the smaller child must be in its histogram. Everything else is derived here, for
    these features only; so threads with disjoint features do not meet.

    features  int32   (n,)      features that the tree may use, ascending
    scratch   Scratch           of this thread
    found     float64 (2, 6)    out: best splits of the smaller and the larger child
    """
    small, large = work.counters[SMALL], work.counters[LARGE]
    n_children = 1 if large < 0 else 2
    pair = (small, large if large >= 0 else small)
    begin = min(nodes.begin[pair[0]], nodes.begin[pair[1]])
    end = max(nodes.end[pair[0]], nodes.end[pair[1]])
    histograms = (work.histograms[nodes.buffer[pair[0]]], work.histograms[nodes.buffer[pair[1]]])
    keys, groups, spare = scratch.keys, scratch.groups, scratch.rows
    limits = (
        draw_features(settings.features_per_node, settings.seed, features, pair[0], keys[0]),
        draw_features(settings.features_per_node, settings.seed, features, pair[1], keys[1]),
    )
    found[:, SPLIT_GAIN] = MINIMUM_GAIN
    found[:, SPLIT_FEATURE] = -1
    values, bin_start, bin_lower, bin_upper = (
        table.values,
        table.bin_start,
        table.bin_lower,
        table.bin_upper,
    )
    wide, order, goes_left, usual = table.wide, work.order, work.goes_left, table.usual_bin
    monotone, reach = table.monotone, table.reach
    for j in range(first, last):
        feature = features[j]
        low, high, column = bin_start[feature], bin_start[feature + 1], wide[feature]
        if column < 0:
            gradient, hessian = nodes.gradient[small], nodes.hessian[small]
            complete(histograms[0], low, high, usual[feature], gradient, hessian)
            if n_children == 2:
                subtract(histograms[1], histograms[0], low, high)
        elif n_children == 2:
            stable_partition(order[column], begin, end, goes_left, spare)
        for child in range(n_children):
            node = pair[child]
            if keys[child, j] > limits[child]:
                continue
            if nodes.hessian[node] < 2.0 * settings.min_child_weight:
                continue
            sums = (nodes.gradient[node], nodes.hessian[node])
            bounds = (nodes.low[node], nodes.high[node], np.int64(monotone[feature]))
            where = (feature, reach[feature])
            best = found[child]
            if column < 0:
                part, bins = histograms[child], (low, high)
                search_bins(
                    bin_lower, bin_upper, part, bins, sums, settings, bounds, where, groups, best
                )
            else:
                rows, span = order[column], (nodes.begin[node], nodes.end[node])
                line = values[feature]
                search_sorted(
                    line, gradients, rows, span, sums, settings, bounds, where, groups, best
                )
