"""Walking rows down trees, and summing leaves as the libraries do."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.core.compiler import kernel, noalloc_kernel

MISSING_LEFT, ZERO_IS_MISSING, CATEGORICAL, WHOLE_CATEGORY, NONNEGATIVE_CATEGORY = 1, 2, 4, 8, 16
"""Flags of nodes, as `treeproof.model.ensemble` documents them."""


@noalloc_kernel
def is_left(trees, node, value, zero_band):
    """Whether a value goes left at an inner node; see `TreeArrays` for the flags."""
    flags = trees.flags[node]
    if flags <= MISSING_LEFT:  # the common case: numeric, only NaN is missing
        if np.isnan(value):
            return flags == MISSING_LEFT
        return value < trees.threshold[node]
    if np.isnan(value) or (flags & ZERO_IS_MISSING and abs(value) <= zero_band):
        return flags & MISSING_LEFT == 1
    if flags & CATEGORICAL:
        number = trees.category_set[node]
        start = trees.set_offset[number]
        stop = trees.set_offset[number + 1]
        # Sound: the comparisons come before the conversion, so no infinite or huge value is cast.
        # An empty set has no word at all, which -1 < value < 0 would otherwise read.
        if start == stop or value <= -1.0 or value >= 32.0 * (stop - start):
            return False
        if flags & NONNEGATIVE_CATEGORY and value < 0.0:
            return False
        if flags & WHOLE_CATEGORY and value != np.floor(value):
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


BLOCK = 64
"""Rows that are walked together; a multiple of eight."""


class PackedTrees(NamedTuple):
    """Flat arrays of all trees; column 0 of the buffer is zero and belongs to the leaves."""

    root: NDArray[np.uint32]  # (n_trees,) packed root of each tree
    depth: NDArray[np.int32]  # (n_trees,) steps that bring every row to a leaf
    is_plain: NDArray[np.uint8]  # (n_trees,) whether the tree can be walked in this layout
    child: NDArray[np.uint32]  # (n_nodes,) left child, which the right one follows; a leaf's own
    column: NDArray[np.uint32]  # (n_nodes,) column of the buffer that a node tests
    threshold: NDArray[np.float64]  # (n_nodes,) canonical threshold; 1.0 at leaves
    leaf: NDArray[np.int32]  # (n_nodes,) row of leaf_value; -1 at inner nodes
    column_feature: NDArray[np.int32]  # (n_columns,) feature in each column; -1 in column 0
    column_missing: NDArray[np.float64]  # (n_columns,) what NaN becomes in each column


def room_for(trees: Any, n_features: int) -> PackedTrees:
    """Arrays for the layout of trees (TreeArrays), which `pack_trees` fills."""
    n_nodes, n_trees = len(trees.feature), len(trees.tree_output)
    most = min(2 * n_features, n_nodes) + 1
    return PackedTrees(
        root=np.empty(n_trees, np.uint32),
        depth=np.empty(n_trees, np.int32),
        is_plain=np.empty(n_trees, np.uint8),
        child=np.empty(n_nodes, np.uint32),
        column=np.zeros(n_nodes, np.uint32),
        threshold=np.ones(n_nodes, np.float64),
        leaf=np.empty(n_nodes, np.int32),
        column_feature=np.full(most, -1, np.int32),
        column_missing=np.zeros(most, np.float64),
    )


def pack_trees(trees: Any, n_features: int) -> PackedTrees:
    """Lay out trees (TreeArrays) for `accumulate_packed` and `reach_packed`."""
    packed, n_nodes = room_for(trees, n_features), len(trees.feature)
    column_of = np.full(2 * n_features, -1, np.int32)
    place = np.empty(n_nodes, np.uint32)
    level = np.zeros(n_nodes, np.int32)
    n_columns = _pack(trees, column_of, place, level, packed)
    return packed._replace(
        column_feature=packed.column_feature[:n_columns].copy(),
        column_missing=packed.column_missing[:n_columns].copy(),
    )


def buffer_for(packed: PackedTrees) -> NDArray[np.float64]:
    """Scratch memory for one call of a kernel below."""
    return np.zeros(BLOCK * len(packed.column_feature))


@kernel
def _pack(trees, column_of, place, level, packed):
    """Fill `packed`; return the number of columns.

    trees      TreeArrays
    column_of  int32  (2 * n_features,)  scratch, -1
    place      uint32 (n_nodes,)         scratch
    level      int32  (n_nodes,)         scratch, 0
    packed     PackedTrees               out
    """
    n_columns = 1
    for tree in range(len(trees.tree_output)):
        first, stop = trees.root[tree], trees.root[tree + 1]
        packed.root[tree] = first
        packed.depth[tree] = 0
        packed.is_plain[tree] = 1
        place[first] = first
        free = first + 1
        for node in range(first, stop):  # preorder: parents come before their children
            here = place[node]
            packed.leaf[here] = trees.leaf[node]
            if trees.feature[node] < 0:
                packed.child[here] = here
                packed.depth[tree] = max(packed.depth[tree], level[node])
                continue
            # A threshold of minus infinity leaves no room for a missing value below it.
            if trees.flags[node] > 1 or trees.threshold[node] == -np.inf:
                packed.is_plain[tree] = 0
            pair = 2 * trees.feature[node] + (trees.flags[node] & 1)
            if column_of[pair] < 0:
                column_of[pair] = n_columns
                packed.column_feature[n_columns] = trees.feature[node]
                packed.column_missing[n_columns] = -np.inf if trees.flags[node] & 1 else np.inf
                n_columns += 1
            packed.column[here] = column_of[pair]
            packed.threshold[here] = trees.threshold[node]
            packed.child[here] = free
            place[node + 1] = free
            place[trees.right[node]] = free + 1
            level[node + 1] = level[trees.right[node]] = level[node] + 1
            free += 2
    return n_columns


@noalloc_kernel
def _fill(packed, rows, first, n_rows, buffer):
    """Copy a block of rows into the buffer, a missing value as each column wants it."""
    width = len(packed.column_feature)
    for row in range(n_rows):
        for column in range(1, width):
            value = rows[first + row, packed.column_feature[column]]
            buffer[row * width + column] = (
                packed.column_missing[column] if np.isnan(value) else value
            )


@noalloc_kernel
def _step(packed, node, start, buffer):
    """Next node of one row; unsigned numbers spare the check for negative indices."""
    here = np.uintp(node)
    value = buffer[start + np.uintp(packed.column[here])]
    return packed.child[here] + np.uint32(value >= packed.threshold[here])


@noalloc_kernel
def _walk(packed, tree, n_rows, buffer, reached):
    """Leaf (row of leaf_value) of each row of a block in one plain tree.

    packed   PackedTrees
    tree     int
    n_rows   int                       rows in the block; up to seven more are walked for nothing
    buffer   float64 (BLOCK * width,)
    reached  int32 (BLOCK,)            out
    """
    width = np.uintp(len(packed.column_feature))
    depth = packed.depth[tree]
    for row in range(0, n_rows, 8):
        s0 = np.uintp(row) * width
        s1, s2, s3 = s0 + width, s0 + np.uintp(2) * width, s0 + np.uintp(3) * width
        s4, s5 = s0 + np.uintp(4) * width, s0 + np.uintp(5) * width
        s6, s7 = s0 + np.uintp(6) * width, s0 + np.uintp(7) * width
        a = b = c = d = e = f = g = h = packed.root[tree]
        done = 0
        while done < depth:
            for _ in range(min(4, depth - done)):
                a = _step(packed, a, s0, buffer)
                b = _step(packed, b, s1, buffer)
                c = _step(packed, c, s2, buffer)
                d = _step(packed, d, s3, buffer)
                e = _step(packed, e, s4, buffer)
                f = _step(packed, f, s5, buffer)
                g = _step(packed, g, s6, buffer)
                h = _step(packed, h, s7, buffer)
            done += 4
            # In lopsided trees most rows are at their leaves long before the deepest one.
            if done < depth and (
                (packed.leaf[np.uintp(a)] >= 0)
                & (packed.leaf[np.uintp(b)] >= 0)
                & (packed.leaf[np.uintp(c)] >= 0)
                & (packed.leaf[np.uintp(d)] >= 0)
                & (packed.leaf[np.uintp(e)] >= 0)
                & (packed.leaf[np.uintp(f)] >= 0)
                & (packed.leaf[np.uintp(g)] >= 0)
                & (packed.leaf[np.uintp(h)] >= 0)
            ):
                break
        reached[row], reached[row + 1] = packed.leaf[np.uintp(a)], packed.leaf[np.uintp(b)]
        reached[row + 2], reached[row + 3] = packed.leaf[np.uintp(c)], packed.leaf[np.uintp(d)]
        reached[row + 4], reached[row + 5] = packed.leaf[np.uintp(e)], packed.leaf[np.uintp(f)]
        reached[row + 6], reached[row + 7] = packed.leaf[np.uintp(g)], packed.leaf[np.uintp(h)]


@noalloc_kernel
def _walk_any(trees, packed, tree, rows, zero_band, buffer, reached):
    """Leaf of each row of a block in one tree of any kind."""
    n_rows = len(rows)
    if packed.is_plain[tree]:
        _walk(packed, tree, n_rows, buffer, reached)
        return
    for row in range(n_rows):
        node = trees.root[tree]
        while trees.feature[node] >= 0:
            value = rows[row, trees.feature[node]]
            node = node + 1 if is_left(trees, node, value, zero_band) else trees.right[node]
        reached[row] = trees.leaf[node]


@kernel
def reach_packed(trees, packed, rows, zero_band, buffer, leaves):
    """Leaf reached in each tree.

    trees      TreeArrays
    packed     PackedTrees
    rows       float64 (n_rows, n_features)  values in the model's input precision
    zero_band  float64
    buffer     float64 (BLOCK * n_columns,)  scratch, zero in column 0
    leaves     int32   (n_rows, n_trees)     out: row of leaf_value
    """
    reached = np.empty(BLOCK, np.int32)
    for first in range(0, rows.shape[0], BLOCK):
        n_rows = min(BLOCK, rows.shape[0] - first)
        block = rows[first : first + n_rows]
        _fill(packed, rows, first, n_rows, buffer)
        for tree in range(len(trees.tree_output)):
            _walk_any(trees, packed, tree, block, zero_band, buffer, reached)
            for row in range(n_rows):
                leaves[first + row, tree] = reached[row]


@kernel
def accumulate_packed(trees, packed, rows, zero_band, buffer, total):
    """Add leaf values in tree order; every addition is rounded to the type of `total`.

    trees      TreeArrays
    packed     PackedTrees
    rows       float64 (n_rows, n_features)
    zero_band  float64
    buffer     float64 (BLOCK * n_columns,)             scratch, zero in column 0
    total      float32 or float64 (n_rows, n_outputs)   in: start values, out: accumulators
    """
    reached = np.empty(BLOCK, np.int32)
    for first in range(0, rows.shape[0], BLOCK):
        n_rows = min(BLOCK, rows.shape[0] - first)
        block = rows[first : first + n_rows]
        _fill(packed, rows, first, n_rows, buffer)
        for tree in range(len(trees.tree_output)):
            _walk_any(trees, packed, tree, block, zero_band, buffer, reached)
            output = trees.tree_output[tree]
            for row in range(n_rows):
                if output >= 0:
                    value = trees.leaf_value[reached[row], 0]
                    total[first + row, output] += total.dtype.type(value)
                else:
                    for other in range(total.shape[1]):
                        value = trees.leaf_value[reached[row], other]
                        total[first + row, other] += total.dtype.type(value)
