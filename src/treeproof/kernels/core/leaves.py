"""Trees restricted to a box of atoms: leaves that meet it, as sparse products of ranges."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arithmetic import two_product, two_sum
from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.cells import (
    BY_RUNS,
    FIXED,
    FLAGS,
    HIGH,
    LOW,
    NEXT,
    NOTHING,
    TESTED,
    CellBox,
    kept_part_of,
    part_of,
)
from treeproof.kernels.core.compiler import (
    ONE,
    inlined_kernel,
    inner_kernel,
    kernel,
    noalloc_kernel,
)
from treeproof.kernels.core.trees import is_left


class Leaves(NamedTuple):
    """Leaves of every relevant tree that meet a box, as sparse products of cell ranges."""

    leaf_start: np.ndarray  # (n_trees + 1,) int64; leaves of tree k
    leaf_gain: np.ndarray  # (n_leaves,) float64; gain of each leaf
    leaf_row: np.ndarray  # (n_leaves,) int32; row of trees.leaf_value
    range_start: np.ndarray  # (n_leaves + 1,) int64; constraints of each leaf
    feature: np.ndarray  # (n_ranges,) int32; constrained feature, at most once per leaf
    # First and last cell of the leaf in that feature; features without an entry span the whole box
    low: np.ndarray  # (n_ranges,) int32
    high: np.ndarray  # (n_ranges,) int32


class LeafBuffer(NamedTuple):
    """Where `restrict_trees` puts leaves, and its scratch."""

    leaf_start: np.ndarray  # (n_trees + 1,) int64
    leaf_gain: np.ndarray  # (leaf capacity,) float64
    leaf_row: np.ndarray  # (leaf capacity,) int32
    range_start: np.ndarray  # (leaf capacity + 1,) int64
    feature: np.ndarray  # (range capacity,) int32
    low: np.ndarray  # (range capacity,) int32
    high: np.ndarray  # (range capacity,) int32
    current: np.ndarray  # (n_features, 2) int32; scratch: the box of the path
    stack: np.ndarray  # (2 * max_depth + 4, 5) uint32
    path: np.ndarray  # (3 * max_depth + 4, 4) uint32


@inner_kernel
def new_buffer(n_trees, n_features, max_depth, n_leaves, n_ranges):
    """Empty buffer with the given capacities."""
    return LeafBuffer(
        np.zeros(n_trees + 1, dtype=np.int64),
        np.empty(n_leaves, dtype=np.float64),
        np.empty(n_leaves, dtype=np.int32),
        np.zeros(n_leaves + 1, dtype=np.int64),
        np.empty(n_ranges, dtype=np.int32),
        np.empty(n_ranges, dtype=np.int32),
        np.empty(n_ranges, dtype=np.int32),
        np.empty((n_features, 2), dtype=np.int32),
        # One pending branch per level; a level is entered and narrowed.
        np.empty((2 * max_depth + 4, 5), dtype=np.uint32),
        np.empty((path_length(max_depth), 4), dtype=np.uint32),
    )


@inlined_kernel
def path_length(max_depth):
    """Most narrowings on the way to a leaf."""
    return 3 * max_depth + 4


@inner_kernel
def grow_buffer(buffer):
    """Buffer of twice the capacity with the same leaves in it."""
    n_leaves = len(buffer.leaf_gain)
    n_ranges = len(buffer.feature)
    larger = LeafBuffer(
        buffer.leaf_start,
        np.empty(2 * n_leaves, dtype=np.float64),
        np.empty(2 * n_leaves, dtype=np.int32),
        np.zeros(2 * n_leaves + 1, dtype=np.int64),
        np.empty(2 * n_ranges, dtype=np.int32),
        np.empty(2 * n_ranges, dtype=np.int32),
        np.empty(2 * n_ranges, dtype=np.int32),
        buffer.current,
        buffer.stack,
        buffer.path,
    )
    copy_into(larger.leaf_gain, buffer.leaf_gain)
    copy_into(larger.leaf_row, buffer.leaf_row)
    copy_into(larger.range_start, buffer.range_start)
    copy_into(larger.feature, buffer.feature)
    copy_into(larger.low, buffer.low)
    copy_into(larger.high, buffer.high)
    return larger


@noalloc_kernel
def range_cost(kept, axis, low, high):
    """Cost of the cheapest atom in a range of kept ones."""
    first = kept.start[axis] + low
    last = kept.start[axis] + high
    if kept.is_valley[axis]:
        if first <= kept.bottom[axis] <= last:
            return kept.cheapest[axis]
        return min(kept.cost[first], kept.cost[last])
    least = kept.cost[first]
    for place in range(first + 1, last + 1):
        least = min(least, kept.cost[place])
    return least


class Purse(NamedTuple):
    """What points may cost, and what the branch at hand costs at least."""

    limit: float  # infinite where costs are no sums
    shrink: float  # by which costs of branches are shrunk
    spent: np.ndarray  # (longest path + 1,) float64; by the length of the path so far


@inner_kernel
def restrict(forest, row, box, coefficient):
    """`Leaves` of a box of atoms."""
    return leaves_of(forest, row, box, None, coefficient, None)


@inner_kernel
def restrict_to(forest, row, kept, coefficient, limit):
    """`Leaves` of the kept atoms: features are axes, cells are places.

    limit  float64  a branch in which every point costs more, as a sum, becomes a single leaf

    Sound: no point within the limit is in such a leaf, whatever its gain. Costs of branches are
    shrunk by more than the rounding of their sums, to which each step adds two terms.
    """
    spent = np.empty(path_length(forest.space.max_depth) + 1, dtype=np.float64)
    shrink = 1.0 - (len(kept.box.low) + 4 * len(spent)) * 2.0**-52
    spent[0] = kept.total * shrink
    return leaves_of(forest, row, kept.box, kept, coefficient, Purse(limit, shrink, spent))


@inner_kernel
def leaves_of(forest, row, box, kept, coefficient, purse):
    """`Leaves` of a box, of all atoms or of the kept ones.

    row          float64 (n_features,)  decides fixed axes
    kept         Kept or None           None where all atoms are kept
    coefficient  float64 (n_outputs,)   gain of a leaf = coefficient · value; trees of outputs with
                                        coefficient 0 are left out (no leaves)
    purse        Purse or None          None where nothing costs anything
    """
    n_trees, n_axes = len(forest.trees.tree_output), len(box.low)
    # Runs of atoms make about twice as many leaves.
    room = 4 if kept is None else 8
    buffer = new_buffer(
        n_trees, n_axes, forest.space.max_depth, 256 + room * n_trees, 1024 + 2 * room * n_trees
    )
    tree = np.int64(0)
    # Ends: the buffer doubles until the trees fit.
    while tree < n_trees:
        tree = restrict_trees(forest, row, box, kept, coefficient, purse, tree, buffer)
        if tree < n_trees:
            buffer = grow_buffer(buffer)
    n_leaves = buffer.leaf_start[n_trees]
    n_ranges = buffer.range_start[n_leaves]
    return Leaves(
        buffer.leaf_start,
        buffer.leaf_gain[:n_leaves],
        buffer.leaf_row[:n_leaves],
        buffer.range_start[: n_leaves + 1],
        buffer.feature[:n_ranges],
        buffer.low[:n_ranges],
        buffer.high[:n_ranges],
    )


@kernel
def restrict_box(forest, row, low_cell, high_cell, coefficient):
    """`restrict`, for Python."""
    return restrict(forest, row, CellBox(low_cell, high_cell), coefficient)


@kernel
def slack_of_sums(trees, coefficient, start, unit, leaf_start, leaf_row):
    """`summation_slack`, for Python."""
    return summation_slack(trees, coefficient, start, unit, leaf_start, leaf_row)


@noalloc_kernel
def restrict_trees(forest, row, box, kept, coefficient, purse, tree, buffer):
    """As `leaves_of`, from a given tree on, into a buffer that may be too small.

    Returns the first tree whose leaves did not fit, which is left out; the number of trees at the
    end.
    """
    trees = forest.trees
    for axis in range(len(box.low)):
        buffer.current[axis, LOW] = box.low[axis]
        buffer.current[axis, HIGH] = box.high[axis]
    n_leaves = buffer.leaf_start[tree]
    while tree < len(trees.tree_output):
        output = trees.tree_output[tree]
        if output < 0 or coefficient[output] != 0.0:
            n_leaves = _restrict_tree(forest, row, box, kept, coefficient, purse, tree, buffer)
            if n_leaves < 0:
                return tree
        buffer.leaf_start[tree + 1] = n_leaves
        tree += 1
    return tree


@inlined_kernel
def _restrict_tree(forest, row, box, kept, coefficient, purse, tree, buffer):
    """Append the leaves of one tree; returns the number of leaves, or -1 when they do not fit."""
    trees, space = forest.trees, forest.space
    nodes = space.nodes
    stack, path, current = buffer.stack, buffer.path, buffer.current
    n_leaves = np.uint64(buffer.leaf_start[tree])
    n_ranges = np.uint64(buffer.range_start[n_leaves])
    top = np.uint64(1)
    stack[0, 0] = trees.root[tree]
    stack[0, 1] = 0
    stack[0, 2] = NOTHING
    length = np.uint64(0)
    has_room = True
    # Ends: each node is taken from the stack once for each of its parts.
    while top > 0:
        top -= ONE
        node = np.uint64(stack[top, 0])
        while length > stack[top, 1]:
            length -= ONE
            current[path[length, 0], LOW] = path[length, 1]
            current[path[length, 0], HIGH] = path[length, 2]
        if stack[top, 2] != NOTHING:
            length = _narrow(
                path, length, current, box, kept, purse, np.uint32(stack[top, 2]),
                np.int64(stack[top, 3]), np.int64(stack[top, 4]),
            )  # fmt: skip
        while nodes[node, TESTED] != NOTHING:
            if purse is not None and purse.spent[length] > purse.limit:
                break
            tested = nodes[node, TESTED]
            first = current[tested, LOW]
            last = current[tested, HIGH]
            if first == FIXED:
                value = row[trees.feature[node]]
                is_near = is_left(trees, node, value, forest.semantics.zero_band)
                node = node + ONE if is_near else np.uint64(nodes[node, NEXT])
                continue
            if kept is None:
                goes_left, end = part_of(space, node, np.int64(first), np.int64(last))
            else:
                goes_left, end = kept_part_of(space, kept, node, np.int64(first), np.int64(last))
            if end < last:
                # With two parts the rest is on the other side; otherwise the node divides it anew.
                rest = np.uint64(nodes[node, NEXT])
                if nodes[node, FLAGS] & BY_RUNS:
                    rest = node
                top = _postpone(stack, top, rest, length, tested, end + 1, last)
                length = _narrow(
                    path, length, current, box, kept, purse, tested, np.int64(first), end
                )
            node = node + ONE if goes_left else np.uint64(nodes[node, NEXT])
        if n_leaves == len(buffer.leaf_gain) or n_ranges + length > len(buffer.feature):
            has_room = False
            break
        for step in range(length):
            if path[step, 3]:
                buffer.feature[n_ranges] = path[step, 0]
                buffer.low[n_ranges] = current[path[step, 0], LOW]
                buffer.high[n_ranges] = current[path[step, 0], HIGH]
                n_ranges += ONE
        while nodes[node, TESTED] != NOTHING:
            node += ONE  # all that is below costs too much: one leaf stands for it
        leaf = nodes[node, NEXT]
        buffer.leaf_gain[n_leaves] = gain_of_leaf(trees, tree, leaf, coefficient)
        buffer.leaf_row[n_leaves] = leaf
        n_leaves += ONE
        buffer.range_start[n_leaves] = n_ranges
    while length > 0:
        length -= ONE
        current[path[length, 0], LOW] = path[length, 1]
        current[path[length, 0], HIGH] = path[length, 2]
    return np.int64(n_leaves) if has_room else -1


@noalloc_kernel
def gain_of_leaf(trees, tree, leaf, coefficient):
    """What a leaf adds to the gain: coefficient · value.

    Sound: a product errs by a part of itself, which bounds allow for; a sum of several may cancel
    and is rounded up.
    """
    output = trees.tree_output[tree]
    if output >= 0:
        return coefficient[output] * trees.leaf_value[leaf, 0]
    return combination_up(coefficient, trees.leaf_value[leaf])


@noalloc_kernel
def combination_up(coefficient, values):
    """Coefficient · values: the number itself where nothing is rounded, otherwise one above it.

    Sound: sums and products are taken with their errors, twice the errors cover the rounding of
    their own sum, and one float covers the last addition.
    """
    total = 0.0
    lost = 0.0
    for index in range(len(coefficient)):
        factor = coefficient[index]
        if factor == 0.0:
            continue
        product = factor * values[index]
        if abs(factor) != 1.0 and values[index] != 0.0:
            product, error = two_product(factor, values[index])
            # The error of a tiny product may itself underflow.
            lost += abs(error) if abs(product) > 1e-280 else 1e-290
        total, error = two_sum(total, product)
        lost += abs(error)
    return total if lost == 0.0 else np.nextafter(total + 2.0 * lost, np.inf)


@inlined_kernel
def _postpone(stack, top, node, length, feature, low, high):
    """Remember a branch: where it starts and the range it enters there."""
    stack[top, 0] = node
    stack[top, 1] = length
    stack[top, 2] = feature
    stack[top, 3] = low
    stack[top, 4] = high
    return top + ONE


@inlined_kernel
def _narrow(path, length, current, box, kept, purse, axis, low, high):
    """Enter a range of places, remembering how to leave it; marks an axis's first narrowing."""
    path[length, 0] = axis
    path[length, 1] = current[axis, LOW]
    path[length, 2] = current[axis, HIGH]
    is_first = current[axis, LOW] == box.low[axis] and current[axis, HIGH] == box.high[axis]
    path[length, 3] = 1 if is_first else 0
    if purse is not None and purse.limit < np.inf:
        before = range_cost(kept, axis, current[axis, LOW], current[axis, HIGH])
        now = range_cost(kept, axis, low, high)
        purse.spent[length + ONE] = purse.spent[length] + (now - before) * purse.shrink
    current[axis, LOW] = low
    current[axis, HIGH] = high
    return length + ONE


@noalloc_kernel
def best_sum(leaves):
    """The paper's eq. 6: every tree takes its best reachable leaf.

    Returns the sum of the largest gains, and the sum of the largest magnitudes, which bounds its
    rounding: adding n doubles errs by at most n * 2**-53 times the sum of their magnitudes.
    """
    total = 0.0
    gross = 0.0
    for tree in range(len(leaves.leaf_start) - 1):
        if leaves.leaf_start[tree] < leaves.leaf_start[tree + 1]:
            largest = leaves.leaf_gain[leaves.leaf_start[tree]]
            magnitude = abs(largest)
            for leaf in range(leaves.leaf_start[tree] + 1, leaves.leaf_start[tree + 1]):
                largest = max(largest, leaves.leaf_gain[leaf])
                magnitude = max(magnitude, abs(leaves.leaf_gain[leaf]))
            total += largest
            gross += magnitude
    return total, gross


@noalloc_kernel
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
