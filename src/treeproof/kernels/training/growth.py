"""Growing one tree, depth first, by the best split of each node.

Children are searched in pairs: the rows of the smaller one are summed into a histogram, the
larger one's is its parent's minus that. The smaller child is grown first, so that at most
log2(n_rows) + 2 histograms are alive at a time, however deep the tree.
"""

import numpy as np

from treeproof.kernels.core.compiler import inner_kernel, kernel
from treeproof.kernels.training.histograms import add_rows, random_bits
from treeproof.kernels.training.search import (
    LARGE,
    N_FREE,
    N_NODES,
    SEARCHED,
    SMALL,
    STACK_SIZE,
    search_pair,
)
from treeproof.kernels.training.splits import (
    SPLIT_FEATURE,
    SPLIT_GAIN,
    SPLIT_GRADIENT,
    SPLIT_HESSIAN,
    SPLIT_MISSING_LEFT,
    SPLIT_THRESHOLD,
    leaf_weight,
)

DONE = 0
SEARCH_WANTED = 1


@inner_kernel
def add_node(nodes, work, begin, end, depth, low, high, gradient, hessian, key):
    """Append a node that is a leaf as yet; return its number."""
    node = work.counters[N_NODES]
    work.counters[N_NODES] += 1
    nodes.split[node] = 0.0
    nodes.split[node, SPLIT_FEATURE] = -1
    nodes.left[node] = nodes.right[node] = nodes.buffer[node] = -1
    nodes.begin[node], nodes.end[node], nodes.depth[node] = begin, end, depth
    nodes.low[node], nodes.high[node] = low, high
    nodes.gradient[node], nodes.hessian[node] = gradient, hessian
    nodes.key[node] = key
    return node


@inner_kernel
def take_buffer(work):
    """Number of a free histogram, filled with zeros."""
    work.counters[N_FREE] -= 1
    buffer = work.free[work.counters[N_FREE]]
    work.histograms[buffer] = 0.0
    return buffer


@inner_kernel
def release_buffer(nodes, work, node):
    """Give back the histogram of a node."""
    work.free[work.counters[N_FREE]] = nodes.buffer[node]
    work.counters[N_FREE] += 1
    nodes.buffer[node] = -1


@inner_kernel
def send_rows(table, nodes, work, node, spare):
    """Move the rows of a node to their sides, keeping their order; return the border."""
    split = nodes.split[node]
    column = table.values[np.int64(split[SPLIT_FEATURE])]
    threshold, missing_left = split[SPLIT_THRESHOLD], np.int64(split[SPLIT_MISSING_LEFT])
    rows, goes_left = work.rows, work.goes_left
    border = nodes.begin[node]
    n_right = 0
    for i in range(nodes.begin[node], nodes.end[node]):
        row = np.uint64(rows[i])
        value = column[row]
        left = missing_left if np.isnan(value) else np.int64(value < threshold)
        goes_left[row] = left
        # Without a branch: what does not belong here is overwritten by the next row.
        rows[border] = row
        spare[n_right] = row
        border += left
        n_right += 1 - left
    rows[border : nodes.end[node]] = spare[:n_right]
    return border


@inner_kernel
def child_bounds(table, settings, nodes, node):
    """Bounds of leaf weights (low and high, left then right) below the children of a split."""
    low, high = nodes.low[node], nodes.high[node]
    monotone = table.monotone[np.int64(nodes.split[node, SPLIT_FEATURE])]
    if monotone == 0:
        return low, high, low, high
    gradient, hessian = nodes.split[node, SPLIT_GRADIENT], nodes.split[node, SPLIT_HESSIAN]
    left = leaf_weight(gradient, hessian, settings.reg_lambda, low, high)
    gradient, hessian = nodes.gradient[node] - gradient, nodes.hessian[node] - hessian
    right = leaf_weight(gradient, hessian, settings.reg_lambda, low, high)
    middle = 0.5 * (left + right)
    if monotone > 0:
        return low, middle, middle, high
    return middle, high, low, middle


@inner_kernel
def split_node(table, settings, nodes, work, node, spare):
    """Make the two children of a node and, unless they are at full depth, a pair to be searched."""
    border = send_rows(table, nodes, work, node, spare)
    gradient, hessian = nodes.split[node, SPLIT_GRADIENT], nodes.split[node, SPLIT_HESSIAN]
    begin, end, depth = nodes.begin[node], nodes.end[node], nodes.depth[node] + 1
    bounds = child_bounds(table, settings, nodes, node)
    keys = (random_bits(nodes.key[node], 1), random_bits(nodes.key[node], 2))
    low, high = bounds[0], bounds[1]
    left = add_node(nodes, work, begin, border, depth, low, high, gradient, hessian, keys[0])
    low, high = bounds[2], bounds[3]
    gradient, hessian = nodes.gradient[node] - gradient, nodes.hessian[node] - hessian
    right = add_node(nodes, work, border, end, depth, low, high, gradient, hessian, keys[1])
    nodes.left[node], nodes.right[node] = left, right
    if depth >= settings.max_depth:
        release_buffer(nodes, work, node)
        return
    small, large = (left, right) if border - begin <= end - border else (right, left)
    nodes.buffer[large] = nodes.buffer[node]
    nodes.buffer[node] = -1
    nodes.buffer[small] = take_buffer(work)
    work.counters[SMALL], work.counters[LARGE] = small, large


@kernel
def begin_tree(gradients, settings, nodes, work):
    """Make the root from all rows of ``work.rows`` and ask for its search."""
    gradient = hessian = 0.0
    for row in work.rows:
        gradient += gradients[row, 0]
        hessian += gradients[row, 1]
    work.counters[:] = 0
    work.counters[N_FREE] = len(work.free)
    for buffer in range(len(work.free)):
        work.free[buffer] = buffer
    key = random_bits(settings.seed, 0)
    root = add_node(nodes, work, 0, len(work.rows), 0, -np.inf, np.inf, gradient, hessian, key)
    work.counters[SMALL] = work.counters[LARGE] = -1
    if settings.max_depth > 0:
        nodes.buffer[root] = take_buffer(work)
        work.counters[SMALL] = root


@kernel
def store_pair(nodes, work, found):
    """Give the children of the pair the splits that were found; float64 (2, 6)."""
    nodes.split[work.counters[SMALL]] = found[0]
    if work.counters[LARGE] >= 0:
        nodes.split[work.counters[LARGE]] = found[1]
    work.counters[SEARCHED] = 1


@kernel
def grow(table, gradients, settings, nodes, work, features, scratch):
    """Grow until the tree is complete (DONE) or a large pair waits for the caller.

    After SEARCH_WANTED the caller adds the rows of the smaller child to its histogram, searches
    the pair (`search_pair`), stores what was found (`store_pair`), and calls again.
    """
    found = np.empty((2, 6))
    while True:
        small, large = work.counters[SMALL], work.counters[LARGE]
        if small >= 0:
            if work.counters[SEARCHED] == 0:
                n_rows = nodes.end[small] - nodes.begin[small]
                if n_rows >= settings.parallel_rows:
                    return SEARCH_WANTED
                histogram = work.histograms[nodes.buffer[small]]
                add_rows(
                    table.entry_start,
                    table.entries,
                    gradients,
                    work.rows,
                    nodes.begin[small],
                    nodes.end[small],
                    histogram,
                )
                n_features = len(features)
                search_pair(
                    table, gradients, settings, nodes, work, features, 0, n_features, scratch, found
                )
                store_pair(nodes, work, found)
            for node in (large, small):
                if node >= 0:
                    work.stack[work.counters[STACK_SIZE]] = node
                    work.counters[STACK_SIZE] += 1
            work.counters[SMALL] = work.counters[LARGE] = -1
            work.counters[SEARCHED] = 0
        if work.counters[STACK_SIZE] == 0:
            return DONE
        work.counters[STACK_SIZE] -= 1
        node = work.stack[work.counters[STACK_SIZE]]
        if nodes.split[node, SPLIT_FEATURE] < 0:
            release_buffer(nodes, work, node)
        else:
            split_node(table, settings, nodes, work, node, scratch.rows)


@inner_kernel
def prune(nodes, n_nodes, gamma):
    """Undo splits of leaves whose gain is below gamma, from the bottom up, as XGBoost does."""
    for node in range(n_nodes - 1, -1, -1):
        left = nodes.left[node]
        if left < 0:
            continue
        right = nodes.right[node]
        if nodes.left[left] < 0 and nodes.left[right] < 0 and nodes.split[node, SPLIT_GAIN] < gamma:
            nodes.left[node] = nodes.right[node] = -1


@kernel
def finish_tree(settings, nodes, work, values, margins):
    """Write the values of all leaves, and add them to the margins of the rows of the tree.

    values   float32 (n_nodes,)    out: 0 at inner nodes
    margins  float32 (n_rows,)     in/out
    """
    n_nodes = work.counters[N_NODES]
    prune(nodes, n_nodes, settings.gamma)
    work.stack[0] = 0
    size = 1
    while size > 0:
        size -= 1
        node = work.stack[size]
        if nodes.left[node] >= 0:
            values[node] = 0.0
            work.stack[size] = nodes.left[node]
            work.stack[size + 1] = nodes.right[node]
            size += 2
            continue
        weight = leaf_weight(
            nodes.gradient[node],
            nodes.hessian[node],
            settings.reg_lambda,
            nodes.low[node],
            nodes.high[node],
        )
        values[node] = np.float32(weight * settings.learning_rate)
        for row in work.rows[nodes.begin[node] : nodes.end[node]]:
            margins[row] += values[node]
