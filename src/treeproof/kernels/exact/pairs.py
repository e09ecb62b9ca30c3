"""Two rows in one tree: the leaves that a pair of rows reaches, as products of ranges of cells.

The rows of a pair agree in all features but those that have a *second copy*. A pair of leaves is a
leaf of a tree over the shared features, the changed features and their second copies: the
difference tree. Both rows are followed at once, and as long as they are at the same node they need
one walk only; where nothing below a node tests a changed feature, the rows cannot part any more.
With no feature changed the same walk gives the leaves of single rows.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.cells import HIGH, LOW, NEXT, NOTHING, TESTED, part_of
from treeproof.kernels.core.compiler import inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import Forest
from treeproof.kernels.core.leaves import Leaves, gain_of_leaf

NO_COLUMN = -1


class Copies(NamedTuple):
    """Which features have a second copy, and how both copies are related.

    column          int32 (n_features,)      column of the second copy; the feature itself if shared
    is_below        bool  (n_nodes,)         whether a changed feature is tested at a node or below
    relation_start  int64 (n_features + 1,)  cells of related features in `relation`
    relation        int32 (n, 2)             LOW, HIGH: for each cell of the first copy, the cells
                                             of the second one that it goes with; both rise with
                                             the cell, and every cell goes with itself
    is_difference   bool                     pairs at the same leaf gain nothing, whichever it is
    """

    column: np.ndarray
    is_below: np.ndarray
    relation_start: np.ndarray
    relation: np.ndarray
    is_difference: bool


class PairForest(NamedTuple):
    """The models of both rows as kernels of pairs see them: the same trees over the same space.

    first, second  Forest
    copies         Copies
    is_alike       bool    whether both add and finish their leaves alike, from the same start
    has_all_trees  bool    whether problems have trees of outputs that the question gives no weight
    """

    first: Forest
    second: Forest
    copies: Copies
    is_alike: bool
    has_all_trees: bool


class PairBuffer(NamedTuple):
    """Where leaves are put, and scratch; see `PairLeaves`.

    current  int32 (n_columns, 2)        the box of the path
    stack    int32 (n, 9)                nodes of both rows, length of the path, two narrowings
    path     int32 (4 * depth + 4, 4)    column, its range before, whether that was the whole box
    """

    leaf_start: np.ndarray
    first: np.ndarray
    second: np.ndarray
    range_start: np.ndarray
    column: np.ndarray
    low: np.ndarray
    high: np.ndarray
    current: np.ndarray
    stack: np.ndarray
    path: np.ndarray


class PairLeaves(NamedTuple):
    """Pairs of leaves, tree by tree, as sparse products of ranges of cells.

    leaf_start     int64   (n_trees + 1,)
    first, second  float64 (n_leaves,)     what the leaf of each row adds
    range_start    int64   (n_leaves + 1,)
    column         int32   (n_ranges,)
    low, high      int32   (n_ranges,)     columns without an entry span the whole box
    """

    leaf_start: np.ndarray
    first: np.ndarray
    second: np.ndarray
    range_start: np.ndarray
    column: np.ndarray
    low: np.ndarray
    high: np.ndarray


@inner_kernel
def new_pair_buffer(n_trees, n_columns, space, n_leaves, n_ranges):
    """Empty buffer with the given capacities."""
    # A node has at most one child for each pair of its parts, and no path is longer than two walks.
    pending = 2 * (space.max_depth + 1) * space.most_parts * space.most_parts + 8
    return PairBuffer(
        np.zeros(n_trees + 1, dtype=np.int64),
        np.empty(n_leaves, dtype=np.float64),
        np.empty(n_leaves, dtype=np.float64),
        np.zeros(n_leaves + 1, dtype=np.int64),
        np.empty(n_ranges, dtype=np.int32),
        np.empty(n_ranges, dtype=np.int32),
        np.empty(n_ranges, dtype=np.int32),
        np.empty((n_columns, 2), dtype=np.int32),
        np.empty((pending, 9), dtype=np.int32),
        np.empty((4 * space.max_depth + 4, 4), dtype=np.int32),
    )


@inner_kernel
def grow_pair_buffer(buffer):
    """Buffer of twice the capacity with the same leaves in it."""
    n_leaves = 2 * len(buffer.first)
    n_ranges = 2 * len(buffer.column)
    larger = PairBuffer(
        buffer.leaf_start,
        np.empty(n_leaves, dtype=np.float64),
        np.empty(n_leaves, dtype=np.float64),
        np.zeros(n_leaves + 1, dtype=np.int64),
        np.empty(n_ranges, dtype=np.int32),
        np.empty(n_ranges, dtype=np.int32),
        np.empty(n_ranges, dtype=np.int32),
        buffer.current,
        buffer.stack,
        buffer.path,
    )
    copy_into(larger.first, buffer.first)
    copy_into(larger.second, buffer.second)
    copy_into(larger.range_start, buffer.range_start)
    copy_into(larger.column, buffer.column)
    copy_into(larger.low, buffer.low)
    copy_into(larger.high, buffer.high)
    return larger


@inner_kernel
def pair_leaves(forest, copies, box, first, second, most_leaves, has_all_trees):
    """`PairLeaves` of a box of columns, and whether there are at most that many.

    box            CellBox (n_columns)     of shared and changed features, then of second copies
    first, second  float64 (n_outputs,)    weights of what the first and the second row add
    most_leaves    int                     trees from the one on that exceeds it are left out
    has_all_trees  bool                    also trees of outputs without a weight, that add nothing
    """
    trees = forest.trees
    n_trees = len(trees.tree_output)
    buffer = new_pair_buffer(
        n_trees, len(box.low), forest.space, 1024 + 16 * n_trees, 4096 + 64 * n_trees
    )
    tree = np.int64(0)
    while tree < n_trees and buffer.leaf_start[tree] <= most_leaves:
        output = trees.tree_output[tree]
        is_wanted = output < 0 or first[output] != 0.0 or second[output] != 0.0 or has_all_trees
        n_leaves = buffer.leaf_start[tree]
        if is_wanted and not (copies.is_difference and not copies.is_below[trees.root[tree]]):
            n_leaves = pair_tree(forest, copies, box, first, second, tree, buffer)
        if n_leaves < 0:
            if len(buffer.first) > 4 * most_leaves:
                return finished_leaves(buffer, tree), False
            buffer = grow_pair_buffer(buffer)
            continue
        tree += 1
        buffer.leaf_start[tree] = n_leaves
    return finished_leaves(buffer, tree), tree == n_trees


@inner_kernel
def finished_leaves(buffer, n_trees):
    """What is in a buffer."""
    n_leaves = buffer.leaf_start[n_trees]
    n_ranges = buffer.range_start[n_leaves]
    return PairLeaves(
        buffer.leaf_start[: n_trees + 1],
        buffer.first[:n_leaves],
        buffer.second[:n_leaves],
        buffer.range_start[: n_leaves + 1],
        buffer.column[:n_ranges],
        buffer.low[:n_ranges],
        buffer.high[:n_ranges],
    )


@noalloc_kernel
def are_related(copies, feature, first_low, first_high, second_low, second_high):
    """Whether some cells of two ranges of a feature's copies go together.

    The ends of the cells that go with a cell rise with it, and the cell itself is between them: so
    the cells that go with a range are a range.
    """
    start = copies.relation_start[feature]
    if start == copies.relation_start[feature + 1]:
        return True
    relation = copies.relation
    return (
        relation[start + first_low, LOW] <= second_high
        and relation[start + first_high, HIGH] >= second_low
    )


@inlined_kernel
def push_pair(stack, top, one, other, length, narrowed, also):
    """Remember a pair of nodes and the ranges (column, low, high) that lead to it."""
    stack[top, 0] = one
    stack[top, 1] = other
    stack[top, 2] = length
    stack[top, 3] = narrowed[0]
    stack[top, 4] = narrowed[1]
    stack[top, 5] = narrowed[2]
    stack[top, 6] = also[0]
    stack[top, 7] = also[1]
    stack[top, 8] = also[2]
    return top + 1


@inlined_kernel
def narrow_column(buffer, box, length, column, low, high):
    """Enter a range of a column, remembering how to leave it; the same range is no step."""
    current = buffer.current
    if column == NO_COLUMN or (current[column, LOW] == low and current[column, HIGH] == high):
        return length
    path = buffer.path
    path[length, 0] = column
    path[length, 1] = current[column, LOW]
    path[length, 2] = current[column, HIGH]
    is_whole = current[column, LOW] == box.low[column] and current[column, HIGH] == box.high[column]
    path[length, 3] = 1 if is_whole else 0
    current[column, LOW] = low
    current[column, HIGH] = high
    return length + 1


@inlined_kernel
def next_part(space, node, first, last):
    """The child to which the first of some cells goes, and the last one that goes there with it."""
    goes_left, end = part_of(space, node, np.int64(first), np.int64(last))
    return (node + 1 if goes_left else np.int64(space.nodes[node, NEXT])), end


@noalloc_kernel
def expand(space, copies, buffer, one, other, length, top):
    """Push what follows a pair of nodes that are not both leaves; returns the size of the stack."""
    current, stack = buffer.current, buffer.stack
    nothing = (NO_COLUMN, 0, 0)
    is_joined = one == other
    is_first = space.nodes[one, TESTED] != NOTHING
    node = np.int64(one if is_first else other)
    tested = np.int64(space.nodes[node, TESTED])
    column = np.int64(copies.column[tested])
    here = tested if is_first else column
    low = np.int64(current[here, LOW])
    # Ends: each part begins behind the one before.
    while low <= current[here, HIGH]:
        child, high = next_part(space, node, low, current[here, HIGH])
        if column == tested:
            partner = child if is_joined else (other if is_first else one)
            if is_first:
                top = push_pair(stack, top, child, partner, length, (here, low, high), nothing)
            else:
                top = push_pair(stack, top, partner, child, length, (here, low, high), nothing)
        elif not is_joined:
            if is_first:
                if are_related(
                    copies, tested, low, high, current[column, LOW], current[column, HIGH]
                ):
                    top = push_pair(stack, top, child, other, length, (here, low, high), nothing)
            elif are_related(
                copies, tested, current[tested, LOW], current[tested, HIGH], low, high
            ):
                top = push_pair(stack, top, one, child, length, (here, low, high), nothing)
        else:
            least = np.int64(current[column, LOW])
            # Ends: as above.
            while least <= current[column, HIGH]:
                partner, most = next_part(space, node, least, current[column, HIGH])
                if are_related(copies, tested, low, high, least, most):
                    top = push_pair(
                        stack, top, child, partner, length, (here, low, high),
                        (column, least, most),
                    )  # fmt: skip
                least = most + 1
        low = high + 1
    return top


@noalloc_kernel
def pair_tree(forest, copies, box, first, second, tree, buffer):
    """Append the pairs of leaves of one tree; returns the number of leaves, -1 if they do not fit.

    Sound: children cover the cells of their parents' ranges but for combinations that the relation
    of the copies excludes, so every pair of rows of the box lies in one pair of leaves.
    """
    trees, nodes = forest.trees, forest.space.nodes
    stack, path, current = buffer.stack, buffer.path, buffer.current
    for column in range(len(box.low)):
        current[column, LOW] = box.low[column]
        current[column, HIGH] = box.high[column]
    n_leaves = buffer.leaf_start[tree]
    n_ranges = buffer.range_start[n_leaves]
    nothing = (NO_COLUMN, 0, 0)
    top = push_pair(stack, 0, trees.root[tree], trees.root[tree], 0, nothing, nothing)
    length = 0
    # Ends: each pair of nodes is taken from the stack once.
    while top > 0:
        top -= 1
        one, other = stack[top, 0], stack[top, 1]
        while length > stack[top, 2]:
            length -= 1
            current[path[length, 0], LOW] = path[length, 1]
            current[path[length, 0], HIGH] = path[length, 2]
        length = narrow_column(buffer, box, length, stack[top, 3], stack[top, 4], stack[top, 5])
        length = narrow_column(buffer, box, length, stack[top, 6], stack[top, 7], stack[top, 8])
        is_same = copies.is_difference and one == other and not copies.is_below[one]
        is_open = nodes[one, TESTED] != NOTHING or nodes[other, TESTED] != NOTHING
        if not is_same and is_open:
            top = expand(forest.space, copies, buffer, one, other, length, top)
            continue
        if n_leaves == len(buffer.first) or n_ranges + length > len(buffer.column):
            return -1
        for step in range(length):
            if path[step, 3]:
                buffer.column[n_ranges] = path[step, 0]
                buffer.low[n_ranges] = current[path[step, 0], LOW]
                buffer.high[n_ranges] = current[path[step, 0], HIGH]
                n_ranges += 1
        # Sound: both rows are at the same leaf, whichever of the leaves below it is.
        is_same = is_same or (copies.is_difference and one == other)
        buffer.first[n_leaves] = 0.0 if is_same else leaf_gain(trees, tree, one, first)
        buffer.second[n_leaves] = 0.0 if is_same else leaf_gain(trees, tree, other, second)
        n_leaves += 1
        buffer.range_start[n_leaves] = n_ranges
    return n_leaves


@noalloc_kernel
def leaf_gain(trees, tree, node, weights):
    """What the leaf at a node adds."""
    return gain_of_leaf(trees, tree, trees.leaf[node], weights)


@noalloc_kernel
def gains_nothing(leaves, low, high):
    """Whether no pair of leaves that meets a box of cells gains anything, in any tree.

    low, high  int32 (n_columns,)
    """
    for leaf in range(len(leaves.first)):
        if leaves.first[leaf] + leaves.second[leaf] <= 0.0:
            continue
        is_met = True
        for entry in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
            column = leaves.column[entry]
            if leaves.low[entry] > high[column] or leaves.high[entry] < low[column]:
                is_met = False
                break
        if is_met:
            return False
    return True


@inner_kernel
def with_relations(leaves, copies, box, bonus, first_share, second_share):
    """Leaves of `restrict`'s form: shares of both gains, and one more tree for each relation.

    The tree of a relation is a staircase: a leaf for each cell of the first copy, with the cells of
    the second one that go with it, worth `bonus`. Sound: every pair of the set is in such a leaf,
    so bounds over the leaves bound all of the set; pairs outside of it reach no leaf at all.
    """
    n_features = len(copies.column)
    n_trees = len(leaves.leaf_start) - 1
    n_steps = 0
    n_relations = 0
    for feature in range(n_features):
        if copies.relation_start[feature] < copies.relation_start[feature + 1]:
            n_relations += 1
            n_steps += box.high[feature] - box.low[feature] + 1
    n_leaves = len(leaves.first)
    n_ranges = len(leaves.column)
    result = Leaves(
        np.empty(n_trees + n_relations + 1, dtype=np.int64),
        np.empty(n_leaves + n_steps, dtype=np.float64),
        np.zeros(1, dtype=np.int32),
        np.empty(n_leaves + n_steps + 1, dtype=np.int64),
        np.empty(n_ranges + 2 * n_steps, dtype=np.int32),
        np.empty(n_ranges + 2 * n_steps, dtype=np.int32),
        np.empty(n_ranges + 2 * n_steps, dtype=np.int32),
    )
    copy_into(result.leaf_start, leaves.leaf_start)
    for leaf in range(n_leaves):
        result.leaf_gain[leaf] = first_share * leaves.first[leaf]
        result.leaf_gain[leaf] += second_share * leaves.second[leaf]
    copy_into(result.range_start, leaves.range_start)
    copy_into(result.feature, leaves.column)
    copy_into(result.low, leaves.low)
    copy_into(result.high, leaves.high)
    for feature in range(n_features):
        start = copies.relation_start[feature]
        if start == copies.relation_start[feature + 1]:
            continue
        for cell in range(box.low[feature], box.high[feature] + 1):
            result.leaf_gain[n_leaves] = bonus
            result.feature[n_ranges] = feature
            result.low[n_ranges] = cell
            result.high[n_ranges] = cell
            column = copies.column[feature]
            result.feature[n_ranges + 1] = column
            result.low[n_ranges + 1] = max(copies.relation[start + cell, LOW], box.low[column])
            result.high[n_ranges + 1] = min(copies.relation[start + cell, HIGH], box.high[column])
            n_ranges += 2
            n_leaves += 1
            result.range_start[n_leaves] = n_ranges
        n_trees += 1
        result.leaf_start[n_trees] = n_leaves
    return result


@inner_kernel
def reachable_extremes(forest, box):
    """Least and largest value of the leaves of each tree that meet a box, test by test.

    Returns float64 (n_trees, width) each. Sound: a leaf that some row of the box reaches passes
    every test on its path alone.
    """
    trees, nodes = forest.trees, forest.space.nodes
    n_trees = len(trees.tree_output)
    width = trees.leaf_value.shape[1]
    least = np.full((n_trees, width), np.inf, dtype=np.float64)
    most = np.full((n_trees, width), -np.inf, dtype=np.float64)
    is_met = np.zeros(len(nodes), dtype=np.bool_)
    for tree in range(n_trees):
        is_met[trees.root[tree]] = True
        for node in range(trees.root[tree], trees.root[tree + 1]):
            if not is_met[node]:
                continue
            feature = nodes[node, TESTED]
            if feature == NOTHING:
                for column in range(width):
                    value = trees.leaf_value[trees.leaf[node], column]
                    least[tree, column] = min(least[tree, column], value)
                    most[tree, column] = max(most[tree, column], value)
                continue
            low = np.int64(box.low[feature])
            # Ends: each part begins behind the one before.
            while low <= box.high[feature]:
                child, high = next_part(forest.space, np.int64(node), low, box.high[feature])
                is_met[child] = True
                low = high + 1
    return least, most


@inner_kernel
def rounding_slack(forest, box, weights, unit):
    """How far a weighted sum of the library's rounded sums can be from the exact one in a box.

    Sound: as `summation_slack` in leaves.py; the extremes are over more leaves, not fewer.
    """
    if unit == 0.0:
        return 0.0
    start = forest.semantics.start
    least, most = reachable_extremes(forest, box)
    n_trees = len(forest.trees.tree_output)
    slack = 0.0
    for output in range(len(weights)):
        if weights[output] == 0.0:
            continue
        lowest = start[output]
        highest = start[output]
        error = 0.0
        for tree in range(n_trees):
            owner = forest.trees.tree_output[tree]
            if owner >= 0 and owner != output:
                continue
            column = output if owner < 0 else 0
            if least[tree, column] == 0.0 and most[tree, column] == 0.0:
                continue  # adding nothing is exact
            lowest += least[tree, column]
            highest += most[tree, column]
            error += max(abs(lowest), abs(highest))
        slack += abs(weights[output]) * error
    return slack * unit * (1.0 + 4.0 * n_trees * unit + 1e-9)
