"""Exact geometry in integers: values become cells, trees are restricted to boxes of cells.

Per feature the distinct canonical thresholds are sorted; cell c holds the values v with exactly c
thresholds <= v. A split at threshold number j sends v left iff ``cell(v) <= j``. No float is
compared after a row and its box have become cells.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.compiler import kernel
from treeproof.kernels.prediction import is_left

FIXED = -1
"""Cell of a feature that keeps the row's own value: missing, or categorical."""


class RankSpace(NamedTuple):
    """The integer view of an ensemble.

    cut_start    int64   (n_features + 1,)  where each feature's thresholds start in `cut`
    cut          float64 (n_cuts,)          sorted distinct thresholds per feature
    node_cut     int32   (n_nodes,)         number of the node's threshold within its feature
    zero_low     int32   (n_features,)      first cell of the zero band; -1 where zero is ordinary
    zero_high    int32   (n_features,)      last cell of the zero band
    categorical  bool    (n_features,)      whether some node tests the feature as a category
    max_depth    int                        longest path, for stack sizes
    """

    cut_start: np.ndarray
    cut: np.ndarray
    node_cut: np.ndarray
    zero_low: np.ndarray
    zero_high: np.ndarray
    categorical: np.ndarray
    max_depth: int


@kernel
def cell_of(space, feature, value):
    """Number of thresholds of a feature that are <= value."""
    low = space.cut_start[feature]
    first = low
    high = space.cut_start[feature + 1]
    while low < high:
        middle = (low + high) >> 1
        if space.cut[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low - first


@kernel
def box_cells(space, row, low, high, low_cell, high_cell):
    """Cells that a closed box reaches, per feature.

    row        float64 (n_features,)   the row; NaN entries and categories stay fixed
    low, high  float64 (n_features,)   box, rounded as in spec/rounding.py
    low_cell   int32   (n_features,)   out: first reachable cell, or FIXED
    high_cell  int32   (n_features,)   out: last reachable cell, or FIXED
    """
    for feature in range(len(row)):
        if np.isnan(row[feature]) or space.categorical[feature]:
            low_cell[feature] = FIXED
            high_cell[feature] = FIXED
        else:
            low_cell[feature] = cell_of(space, feature, low[feature])
            high_cell[feature] = cell_of(space, feature, high[feature])


@kernel
def grow_int(array, size):
    """Copy of an int32 array with room for at least `size` entries."""
    larger = np.empty(max(size, 2 * len(array)), dtype=np.int32)
    larger[: len(array)] = array
    return larger


@kernel
def grow_float(array, size):
    """Copy of a float64 array with room for at least `size` entries."""
    larger = np.empty(max(size, 2 * len(array)), dtype=np.float64)
    larger[: len(array)] = array
    return larger


@kernel
def restrict(trees, space, row, low_cell, high_cell, coefficient, zero_band):
    """Leaves of every relevant tree that meet a box, as sparse products of cell ranges.

    trees        TreeArrays
    space        RankSpace
    row          float64 (n_features,)  decides fixed features
    low_cell     int32   (n_features,)  box in cells, or FIXED
    high_cell    int32   (n_features,)
    coefficient  float64 (n_outputs,)   gain of a leaf = coefficient · value; trees of outputs with
                                        coefficient 0 are left out (no leaves)
    zero_band    float64

    Returns
    -------
    leaf_start   int64   (n_trees + 1,)  leaves of tree k
    leaf_gain    float64 (n_leaves,)     gain of each leaf
    leaf_row     int32   (n_leaves,)     row of trees.leaf_value
    range_start  int64   (n_leaves + 1,) constraints of each leaf
    feature      int32   (n_ranges,)     constrained feature, at most once per leaf
    low, high    int32   (n_ranges,)     first and last cell of the leaf in that feature; features
                                         without an entry span the whole box
    """
    n_trees = len(trees.tree_output)
    n_outputs = len(coefficient)
    leaf_start = np.zeros(n_trees + 1, dtype=np.int64)
    leaf_gain = np.empty(256, dtype=np.float64)
    leaf_row = np.empty(256, dtype=np.int32)
    range_end = np.empty(256, dtype=np.int32)
    feature = np.empty(1024, dtype=np.int32)
    low = np.empty(1024, dtype=np.int32)
    high = np.empty(1024, dtype=np.int32)
    current_low = low_cell.copy()
    current_high = high_cell.copy()
    # One pending branch per level and split in three at most (zero bands), hence 2 per level.
    stack = np.empty((2 * space.max_depth + 4, 5), dtype=np.int32)
    path = np.empty((3 * space.max_depth + 4, 4), dtype=np.int32)
    n_leaves = 0
    n_ranges = 0
    for tree in range(n_trees):
        output = trees.tree_output[tree]
        if output >= 0 and coefficient[output] == 0.0:
            leaf_start[tree + 1] = n_leaves
            continue
        top = 1
        stack[0, 0] = trees.root[tree]
        stack[0, 1] = 0
        stack[0, 2] = -1
        length = 0
        while top > 0:
            top -= 1
            node = stack[top, 0]
            while length > stack[top, 1]:
                length -= 1
                current_low[path[length, 0]] = path[length, 1]
                current_high[path[length, 0]] = path[length, 2]
            if stack[top, 2] >= 0:
                length = _narrow(
                    path, length, current_low, current_high, low_cell, high_cell,
                    stack[top, 2], stack[top, 3], stack[top, 4],
                )  # fmt: skip
            while trees.feature[node] >= 0:
                tested = trees.feature[node]
                first = current_low[tested]
                last = current_high[tested]
                if first == FIXED:
                    node = (
                        node + 1
                        if is_left(trees, node, row[tested], zero_band)
                        else trees.right[node]
                    )
                    continue
                cut = space.node_cut[node]
                flags = trees.flags[node]
                if flags & 2:
                    zero_low = space.zero_low[tested]
                    zero_high = space.zero_high[tested]
                    zero_left = flags & 1 == 1
                    apart = zero_high > cut if zero_left else zero_low <= cut
                    if first >= zero_low and last <= zero_high:
                        node = node + 1 if zero_left else trees.right[node]
                        continue
                    if apart and last >= zero_low and first <= zero_high:
                        # Zero goes to the other side than its neighbours: the node is a set, not a
                        # range, so the box is cut into pieces in which it is a plain range again.
                        before = length
                        if first < zero_low:
                            stack[top, 0] = node
                            stack[top, 1] = before
                            stack[top, 2] = tested
                            stack[top, 3] = first
                            stack[top, 4] = zero_low - 1
                            top += 1
                        if last > zero_high:
                            stack[top, 0] = node
                            stack[top, 1] = before
                            stack[top, 2] = tested
                            stack[top, 3] = zero_high + 1
                            stack[top, 4] = last
                            top += 1
                        length = _narrow(
                            path, length, current_low, current_high, low_cell, high_cell,
                            tested, max(first, zero_low), min(last, zero_high),
                        )  # fmt: skip
                        node = node + 1 if zero_left else trees.right[node]
                        continue
                if last <= cut:
                    node += 1
                elif first > cut:
                    node = trees.right[node]
                else:
                    stack[top, 0] = trees.right[node]
                    stack[top, 1] = length
                    stack[top, 2] = tested
                    stack[top, 3] = cut + 1
                    stack[top, 4] = last
                    top += 1
                    length = _narrow(
                        path, length, current_low, current_high, low_cell, high_cell,
                        tested, first, cut,
                    )  # fmt: skip
                    node += 1
            if n_leaves == len(leaf_gain):
                leaf_gain = grow_float(leaf_gain, n_leaves + 1)
                leaf_row = grow_int(leaf_row, n_leaves + 1)
                range_end = grow_int(range_end, n_leaves + 1)
            if n_ranges + length > len(feature):
                feature = grow_int(feature, n_ranges + length)
                low = grow_int(low, n_ranges + length)
                high = grow_int(high, n_ranges + length)
            for step in range(length):
                if path[step, 3]:
                    feature[n_ranges] = path[step, 0]
                    low[n_ranges] = current_low[path[step, 0]]
                    high[n_ranges] = current_high[path[step, 0]]
                    n_ranges += 1
            leaf = trees.leaf[node]
            gain = 0.0
            if output >= 0:
                gain = coefficient[output] * trees.leaf_value[leaf, 0]
            else:
                for other in range(n_outputs):
                    if coefficient[other] != 0.0:
                        gain += coefficient[other] * trees.leaf_value[leaf, other]
            leaf_gain[n_leaves] = gain
            leaf_row[n_leaves] = leaf
            range_end[n_leaves] = n_ranges
            n_leaves += 1
        while length > 0:
            length -= 1
            current_low[path[length, 0]] = path[length, 1]
            current_high[path[length, 0]] = path[length, 2]
        leaf_start[tree + 1] = n_leaves
    range_start = np.zeros(n_leaves + 1, dtype=np.int64)
    for leaf in range(n_leaves):
        range_start[leaf + 1] = range_end[leaf]
    return (
        leaf_start,
        leaf_gain[:n_leaves].copy(),
        leaf_row[:n_leaves].copy(),
        range_start,
        feature[:n_ranges].copy(),
        low[:n_ranges].copy(),
        high[:n_ranges].copy(),
    )


@kernel
def _narrow(path, length, current_low, current_high, low_cell, high_cell, feature, low, high):
    """Enter a cell range, remembering how to leave it; marks a feature's first narrowing."""
    path[length, 0] = feature
    path[length, 1] = current_low[feature]
    path[length, 2] = current_high[feature]
    is_first = (
        current_low[feature] == low_cell[feature] and current_high[feature] == high_cell[feature]
    )
    path[length, 3] = 1 if is_first else 0
    current_low[feature] = low
    current_high[feature] = high
    return length + 1


@kernel
def summation_slack(trees, coefficient, start, unit, leaf_start, leaf_row):
    """How far the library's rounded sums can be from the exact ones, over a restricted box.

    Sound: recursive summation errs by at most `unit` times the magnitude of every partial sum, and
    each partial sum lies in the interval of sums of the reachable leaves' extremes. The factor
    covers the growth of the partial sums by the errors themselves and our own rounding.

    coefficient  float64 (n_outputs,)
    start        float64 (n_outputs,)   where the accumulators start
    unit         float64                rounding unit of the sums; 0 when they are exact
    leaf_start   int64   (n_trees + 1,) from `restrict`
    leaf_row     int32   (n_leaves,)
    """
    if unit == 0.0:
        return 0.0
    slack = 0.0
    n_trees = len(trees.tree_output)
    for output in range(len(coefficient)):
        if coefficient[output] == 0.0:
            continue
        least = start[output]
        most = start[output]
        error = 0.0
        for tree in range(n_trees):
            owner = trees.tree_output[tree]
            if (owner >= 0 and owner != output) or leaf_start[tree] == leaf_start[tree + 1]:
                continue
            column = output if owner < 0 else 0
            smallest = np.inf
            largest = -np.inf
            for leaf in range(leaf_start[tree], leaf_start[tree + 1]):
                value = trees.leaf_value[leaf_row[leaf], column]
                smallest = min(smallest, value)
                largest = max(largest, value)
            least += smallest
            most += largest
            error += max(abs(least), abs(most))
        slack += abs(coefficient[output]) * error
    return slack * unit * (1.0 + 4.0 * n_trees * unit + 1e-9)
