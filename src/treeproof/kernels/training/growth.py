"""Growing one tree, depth first, by the best split of each node.

Children are searched in pairs: the rows of the smaller one are summed into a histogram, the
larger one's is its parent's minus that. The smaller child is grown first, so that at most
log2(n_rows) + 2 histograms are alive at a time, however deep the tree.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.core.arrays import record_type
from treeproof.kernels.core.compiler import at_once_by, kernel, noalloc_kernel
from treeproof.kernels.training.histograms import add_rows
from treeproof.kernels.training.sampling import random_bits
from treeproof.kernels.training.search import search_pair, stable_partition
from treeproof.kernels.training.splits import leaf_weight

NODE = record_type(
    [
        ("left", np.int64),  # children; -1 unless the node was split
        ("right", np.int64),
        ("begin", np.int64),  # its rows are Growth.rows[begin:end]
        ("end", np.int64),
        ("depth", np.int64),
        ("buffer", np.int64),  # the histogram that it owns; -1 for none
        ("key", np.uint64),  # random number of its place in the tree, whatever the order of growth
        ("gradient", np.float64),  # sums over its rows
        ("hessian", np.float64),
        ("low", np.float64),  # bounds of leaf weights from monotone constraints
        ("high", np.float64),
        ("value", np.float64),  # a float32 number: what a leaf of the complete tree adds to margins
    ]
)
"""A node of a tree that is being grown; children have larger numbers than their parent."""

STATE = record_type(
    [(name, np.int64) for name in ("n_nodes", "stack_size", "n_free", "small", "large", "searched")]
)
"""Where growth stands: `small` and `large` are children to be searched, -1 for none."""


class GrowthSettings(NamedTuple):
    """Numbers that rule growth; the first four as in XGBoost."""

    reg_lambda: float
    gamma: float
    min_child_weight: float
    learning_rate: float
    max_depth: int  # nodes at this depth are leaves
    features_per_node: int  # how many features, chosen at random, each node may split on
    seed: int = 0  # for that choice
    min_samples_leaf: int = 1  # least weight of the rows that can reach a child; under attack
    parallel_rows: int = np.iinfo(np.int64).max  # larger nodes are searched by the caller's threads


class Growth(NamedTuple):
    """A tree that is being grown."""

    gradients: NDArray[np.float64]  # (n_rows, 2) gradients and hessians, on their grid
    features: NDArray[np.int32]  # features that the tree may use, ascending
    rows: NDArray[np.int32]  # (n_sampled,) those of a node lie together, in ascending order
    order: NDArray[np.int32]  # (n_sorted, n_sampled) as in `TrainingTable`, by node
    goes_left: NDArray[np.uint8]  # (n_rows,) side of each row at the split made last
    nodes: NDArray[np.void]  # (capacity,) NODE
    splits: NDArray[np.void]  # (capacity,) SPLIT: the best one of each node
    histograms: NDArray[np.float64]  # (n_buffers, n_bins, 2 or 3)
    free: NDArray[np.int64]  # (n_buffers,) histograms in nobody's hands
    stack: NDArray[np.int64]  # (capacity + 1,) nodes to be split or left
    state: NDArray[np.void]  # (1,) STATE, all zero before the first call of `grow`


class Scratch(NamedTuple):
    """Memory of one thread."""

    groups: NDArray[np.float64]  # (6, n + 2) groups of one feature, see `splits`
    rows: NDArray[np.int32]  # (n_sampled,) rows set aside in a partition
    keys: NDArray[np.uint64]  # (n_features,) random keys of features
    drawn: NDArray[np.uint8]  # (2, n_features) which features may split either child
    ceilings: NDArray[np.float64]  # (n_features,) upper bounds of the gains of sorted features
    runs: NDArray[np.float64]  # (n, 4) stretches of a column: its values, and sums before them
    found: NDArray[np.void]  # (2,) SPLIT: best ones of the smaller and the larger child


@noalloc_kernel
def add_node(growth, begin, end, gradient, hessian):
    """Append a node, at the root's place and without bounds as yet; return its number."""
    state = growth.state[0]
    node = growth.nodes[state.n_nodes]
    node.left = node.right = node.buffer = -1
    node.begin, node.end, node.depth = begin, end, 0
    node.low, node.high = -np.inf, np.inf
    node.gradient, node.hessian = gradient, hessian
    growth.splits[state.n_nodes].feature = -1
    state.n_nodes += 1
    return state.n_nodes - 1


def _clear_at_once(histogram):
    histogram[:] = 0.0


@at_once_by(_clear_at_once)
def clear(histogram):
    """Fill a histogram with zeros."""
    for number in range(histogram.shape[0]):
        for column in range(histogram.shape[1]):
            histogram[number, column] = 0.0


@noalloc_kernel
def take_buffer(growth):
    """Number of a free histogram, filled with zeros."""
    state = growth.state[0]
    state.n_free -= 1
    buffer = growth.free[state.n_free]
    clear(growth.histograms[buffer])
    return buffer


@noalloc_kernel
def release_buffer(growth, node):
    """Give back the histogram of a node."""
    state = growth.state[0]
    growth.free[state.n_free] = node.buffer
    state.n_free += 1
    node.buffer = -1


@noalloc_kernel
def send_rows(table, growth, node, split, spare):
    """Move the rows of a node to their sides, keeping their order; return the border."""
    column, rows, goes_left = table.values[split.feature], growth.rows, growth.goes_left
    threshold, missing_left = split.threshold, np.uint8(split.missing_left)
    for i in range(node.begin, node.end):
        row = np.uint64(rows[i])
        value = column[row]
        goes_left[row] = missing_left if math.isnan(value) else np.uint8(value < threshold)
    return stable_partition(rows, node.begin, node.end, goes_left, spare)


@noalloc_kernel
def bound_children(monotone, reg_lambda, node, left, right):
    """Bound the leaf weights below the two children of a split."""
    left.low = right.low = node.low
    left.high = right.high = node.high
    if monotone == 0:
        return
    left_weight = leaf_weight(left.gradient, left.hessian, reg_lambda, node.low, node.high)
    right_weight = leaf_weight(right.gradient, right.hessian, reg_lambda, node.low, node.high)
    middle = 0.5 * (left_weight + right_weight)
    if monotone > 0:
        left.high = right.low = middle
    else:
        left.low = right.high = middle


@noalloc_kernel
def split_node(table, settings, growth, number, spare):
    """Make the two children of a node and, unless they are at full depth, a pair to be searched."""
    state, nodes = growth.state[0], growth.nodes
    node, split = nodes[number], growth.splits[number]
    border = send_rows(table, growth, node, split, spare)
    node.left = add_node(growth, node.begin, border, split.gradient, split.hessian)
    gradient, hessian = node.gradient - split.gradient, node.hessian - split.hessian
    node.right = add_node(growth, border, node.end, gradient, hessian)
    left, right = nodes[node.left], nodes[node.right]
    left.depth = right.depth = node.depth + 1
    left.key = random_bits(node.key, np.uint64(1))
    right.key = random_bits(node.key, np.uint64(2))
    monotone = table.features[split.feature].monotone
    bound_children(monotone, settings.reg_lambda, node, left, right)
    if left.depth >= settings.max_depth:
        release_buffer(growth, node)
        return
    left_is_small = border - node.begin <= node.end - border
    state.small = node.left if left_is_small else node.right
    state.large = node.right if left_is_small else node.left
    nodes[state.large].buffer = node.buffer
    node.buffer = -1
    nodes[state.small].buffer = take_buffer(growth)


@noalloc_kernel
def begin_tree(settings, growth):
    """Make the root from all rows and ask for its search."""
    state = growth.state[0]
    gradient = hessian = 0.0
    for row in growth.rows:
        gradient += growth.gradients[row, 0]
        hessian += growth.gradients[row, 1]
    for buffer in range(len(growth.free)):
        growth.free[buffer] = buffer
    state.n_free = len(growth.free)
    root = growth.nodes[add_node(growth, np.int64(0), len(growth.rows), gradient, hessian)]
    root.key = random_bits(np.uint64(settings.seed), np.uint64(0))
    root.buffer = take_buffer(growth)
    state.small, state.large = 0, -1


@noalloc_kernel
def finish_tree(settings, growth, margins):
    """Prune, then write the values of all leaves and add them to the margins of their rows."""
    nodes, n_nodes = growth.nodes, growth.state[0].n_nodes
    # Splits of leaves whose gain is below gamma are undone, from the bottom up, as in XGBoost.
    for number in range(n_nodes - 1, -1, -1):
        node = nodes[number]
        if node.left < 0 or growth.splits[number].gain >= settings.gamma:
            continue
        if nodes[node.left].left < 0 and nodes[node.right].left < 0:
            node.left = node.right = -1
    growth.stack[0] = 0
    size = 1
    while size > 0:
        size -= 1
        node = nodes[growth.stack[size]]
        node.value = 0.0
        if node.left >= 0:
            growth.stack[size] = node.left
            growth.stack[size + 1] = node.right
            size += 2
            continue
        reg_lambda = settings.reg_lambda
        weight = leaf_weight(node.gradient, node.hessian, reg_lambda, node.low, node.high)
        value = np.float32(weight * settings.learning_rate)
        node.value = value
        for i in range(node.begin, node.end):
            margins[growth.rows[i]] += value


@noalloc_kernel
def grow_further(table, settings, growth, scratch, margins):
    """Do what `grow` says."""
    state = growth.state[0]
    if state.n_nodes == 0:
        begin_tree(settings, growth)
    # Ends: each node is taken from the stack once.
    while state.small >= 0 or state.stack_size > 0:
        if state.small >= 0:
            small = growth.nodes[state.small]
            if state.searched == 0:
                if small.end - small.begin >= settings.parallel_rows:
                    return False
                histogram = growth.histograms[small.buffer]
                add_rows(table, growth.gradients, growth.rows, small.begin, small.end, histogram)
                search_pair(table, settings, growth, 0, len(growth.features), scratch)
            for child in (1, 0):
                number = state.large if child else state.small
                if number >= 0:
                    growth.splits[number] = scratch.found[child]
                    growth.stack[state.stack_size] = number
                    state.stack_size += 1
            state.small = state.large = -1
            state.searched = 0
        state.stack_size -= 1
        number = growth.stack[state.stack_size]
        if growth.splits[number].feature < 0:
            release_buffer(growth, growth.nodes[number])
        else:
            split_node(table, settings, growth, number, scratch.rows)
    finish_tree(settings, growth, margins)
    return True


@kernel
def grow(table, settings, growth, scratch, margins):
    """Grow until the tree is complete, or a large pair of nodes waits for the caller's threads.

    Where it returns False, the caller adds the rows of the smaller child to its histogram, searches
    the pair (`search_in_thread`), leaves the best splits in ``scratch.found``, sets
    ``state.searched`` to 1, and calls again. When the tree is complete, its leaves are added to the
    margins of its rows.

    margins  float32 (n_rows,)    in/out
    """
    return grow_further(table, settings, growth, scratch, margins)
