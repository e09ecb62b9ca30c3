"""Walking rows down trees, and summing leaves as the libraries do."""

import numpy as np

from treeproof.kernels.compiler import kernel, noalloc_kernel


@noalloc_kernel
def is_left(trees, node, value, zero_band):
    """Whether a value goes left at an inner node; see `TreeArrays` for the flags."""
    flags = trees.flags[node]
    if flags <= 1:  # the common case: numeric, only NaN is missing
        if np.isnan(value):
            return flags == 1
        return value < trees.threshold[node]
    if np.isnan(value) or (flags & 2 and abs(value) <= zero_band):
        return flags & 1 == 1
    if flags & 4:
        number = trees.category_set[node]
        start = trees.set_offset[number]
        stop = trees.set_offset[number + 1]
        # Sound: the comparisons come before the conversion, so no infinite or huge value is cast.
        # An empty set has no word at all, which -1 < value < 0 would otherwise read.
        if start == stop or value <= -1.0 or value >= 32.0 * (stop - start):
            return False
        if (flags & 16 and value < 0.0) or (flags & 8 and value != np.floor(value)):
            return False
        code = np.int64(value)
        return (trees.set_words[start + code // 32] >> np.uint32(code % 32)) & np.uint32(1) == 1
    return value < trees.threshold[node]


@kernel
def reach_leaves(trees, rows, zero_band, leaves):
    """Leaf reached in each tree.

    trees      TreeArrays
    rows       float64 (n_rows, n_features)  values in the model's input precision
    zero_band  float64                       |x| up to this counts as zero for zero-missing nodes
    leaves     int32   (n_rows, n_trees)     out: row of leaf_value
    """
    # Trees outside, rows inside: one tree stays in the cache for a whole block of rows.
    block = 64
    for first in range(0, rows.shape[0], block):
        last = min(first + block, rows.shape[0])
        for tree in range(len(trees.tree_output)):
            for row in range(first, last):
                node = trees.root[tree]
                while trees.feature[node] >= 0:
                    value = rows[row, trees.feature[node]]
                    if is_left(trees, node, value, zero_band):
                        node += 1  # preorder: the left child follows its parent
                    else:
                        node = trees.right[node]
                leaves[row, tree] = trees.leaf[node]


@kernel
def accumulate(trees, rows, zero_band, total):
    """Add leaf values in tree order; every addition is rounded to the type of `total`.

    trees      TreeArrays
    rows       float64 (n_rows, n_features)
    zero_band  float64
    total      float32 or float64 (n_rows, n_outputs)   in: start values, out: accumulators
    """
    n_outputs = total.shape[1]
    block = 64
    for first in range(0, rows.shape[0], block):
        last = min(first + block, rows.shape[0])
        for tree in range(len(trees.tree_output)):
            output = trees.tree_output[tree]
            for row in range(first, last):
                node = trees.root[tree]
                while trees.feature[node] >= 0:
                    value = rows[row, trees.feature[node]]
                    if is_left(trees, node, value, zero_band):
                        node += 1
                    else:
                        node = trees.right[node]
                leaf = trees.leaf[node]
                if output >= 0:
                    total[row, output] += total.dtype.type(trees.leaf_value[leaf, 0])
                else:
                    for other in range(n_outputs):
                        total[row, other] += total.dtype.type(trees.leaf_value[leaf, other])
