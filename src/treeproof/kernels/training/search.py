"""Finding the best splits of a pair of sibling nodes, for all or some of the features."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.core.compiler import inner_kernel, kernel
from treeproof.kernels.training.histograms import complete, draw_features, group_bins, subtract
from treeproof.kernels.training.splits import (
    MINIMUM_GAIN,
    SMALL_NODE,
    SPLIT_FEATURE,
    SPLIT_GAIN,
    find_floor,
    node_sums,
    search_column,
    search_missing,
    search_natural,
    search_robust,
    sum_missing,
)

N_NODES = 0  # places in Work.counters
STACK_SIZE = 1
N_FREE = 2
SMALL = 3
LARGE = 4
SEARCHED = 5
N_COUNTERS = 6

BLOCK = 8
"""Features that are prepared and searched at a time."""


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
    key : uint64
        Random number of the node's place in the tree, whatever the order of growth.
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
    key: NDArray[np.uint64]


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
    histograms : float64 (n_buffers, n_bins, 2 or 3)
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
    groups : float64 (6, n + 2)
        Groups of one feature, see `training_splits`.
    rows : int32 (n_sampled,)
        Rows set aside in a partition.
    keys : uint64 (2, n_features)
        Random keys of features, for either child.
    drawn : uint64 (n_features + 1,)
        Some of them, and their limit.
    ceilings : float64 (n_features,)
        Upper bounds of the gains of wide features.
    runs : float64 (n, 4)
        Stretches of a sorted column.
    """

    groups: NDArray[np.float64]
    rows: NDArray[np.int32]
    keys: NDArray[np.uint64]
    drawn: NDArray[np.uint64]
    ceilings: NDArray[np.float64]
    runs: NDArray[np.float64]


@inner_kernel
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


@inner_kernel
def search_bins(bin_lower, bin_upper, histogram, bins, sums, settings, bounds, where, groups, best):
    """Let a narrow feature improve the best split of a node.

    histogram  float64 (n_bins, 2)          of the node, complete
    bins       tuple of 2 ints              first bin of the feature, and first behind it
    sums       tuple of 2 floats            gradient and hessian of the node
    bounds     see `node_sums`
    where      tuple of an int and a float  feature, and how far its values can be moved
    groups     float64 (6, n + 2)           scratch
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


@inner_kernel
def prepare_features(table, nodes, work, features, spare):
    """Derive what the search of the pair reads of some features: bins, and sorted columns.

    features  int32 (n,)
    spare     int32 (n_sampled,)    scratch
    """
    small, large = work.counters[SMALL], work.counters[LARGE]
    part = work.histograms[nodes.buffer[small]]
    rest = work.histograms[nodes.buffer[large if large >= 0 else small]]
    gradient, hessian = nodes.gradient[small], nodes.hessian[small]
    bin_start, usual_bin, wide, order = table.bin_start, table.usual_bin, table.wide, work.order
    for feature in features:
        first, last = bin_start[feature], bin_start[feature + 1]
        if usual_bin[feature] >= 0:
            complete(part, first, last, usual_bin[feature], gradient, hessian)
        if large < 0:
            continue
        subtract(rest, part, first, last)
        if wide[feature] >= 0:
            begin = min(nodes.begin[small], nodes.begin[large])
            end = max(nodes.end[small], nodes.end[large])
            stable_partition(order[wide[feature]], begin, end, work.goes_left, spare)


@inner_kernel
def search_node(table, gradients, settings, nodes, work, node, features, keys, scratch, best):
    """Let some features, which have been prepared, improve the best split of a node.

    features  int32   (n,)
    keys      uint64  (n + 1,)     random keys of the features; the last one is the limit
    scratch   Scratch
    best      float64 (6,)         in/out
    """
    sums, bounds = (nodes.gradient[node], nodes.hessian[node]), (nodes.low[node], nodes.high[node])
    begin, end = nodes.begin[node], nodes.end[node]
    limit, groups, ceilings = keys[len(features)], scratch.groups, scratch.ceilings
    histogram, order, runs = work.histograms[nodes.buffer[node]], work.order, scratch.runs
    bin_start, bin_lower, bin_upper = table.bin_start, table.bin_lower, table.bin_upper
    wide, reach, monotone, values = table.wide, table.reach, table.monotone, table.values
    columns = (bin_start, bin_lower, bin_upper, wide, reach, monotone)
    ceilings[:] = np.inf
    floor = -np.inf
    if len(order) > 0 and end - begin >= SMALL_NODE:
        floor = find_floor(
            columns, histogram, features, keys, limit, sums, settings, bounds, groups, ceilings
        )
    for j in range(len(features)):
        if keys[j] > limit:
            continue
        feature = features[j]
        where = (feature, reach[feature])
        limits = (bounds[0], bounds[1], np.int64(monotone[feature]))
        if wide[feature] < 0:
            bins = (bin_start[feature], bin_start[feature + 1])
            search_bins(
                bin_lower, bin_upper, histogram, bins, sums, settings, limits, where, groups, best
            )
            continue
        line, rows = values[feature], order[wide[feature]]
        last, gradient, hessian = sum_missing(line, gradients, rows, begin, end)
        known = node_sums(sums, (gradient, hessian), settings, limits)
        span, level = (begin, last), (ceilings[j], floor)
        search_column(
            columns, line, gradients, rows, span, histogram, known, where, level, groups, runs, best
        )


@kernel
def search_pair(table, gradients, settings, nodes, work, features, first, last, scratch, found):
    """Find the best splits of the pair of children on ``features[first:last]``.

    The rows of the smaller child must be in its histogram. Everything else is derived here, for
    these features only; so threads with disjoint features do not meet.

    features  int32   (n,)      features that the tree may use, ascending
    scratch   Scratch           of this thread
    found     float64 (2, 6)    out: best splits of the smaller and the larger child
    """
    pair = (work.counters[SMALL], work.counters[LARGE])
    keys, count = scratch.keys, settings.features_per_node
    limits = (
        draw_features(count, nodes.key[pair[0]], features, keys[0]),
        draw_features(count, nodes.key[pair[1]], features, keys[1]),
    )
    found[:, SPLIT_GAIN] = MINIMUM_GAIN
    found[:, SPLIT_FEATURE] = -1
    # Bounds compare all wide features; otherwise a few features at a time stay in the cache.
    step = BLOCK if len(table.order) == 0 else len(features)
    for start in range(first, last, step):
        stop = min(start + step, last)
        prepare_features(table, nodes, work, features[start:stop], scratch.rows)
        for child in range(2):
            node = pair[child]
            if node < 0 or nodes.hessian[node] < 2.0 * settings.min_child_weight:
                continue
            drawn = scratch.drawn[: stop - start + 1]
            drawn[:-1] = keys[child, start:stop]
            drawn[-1] = limits[child]
            search_node(
                table,
                gradients,
                settings,
                nodes,
                work,
                node,
                features[start:stop],
                drawn,
                scratch,
                found[child],
            )
