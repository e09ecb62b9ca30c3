"""From a row's box to the parts of one constraint, with little work when the box changes a little.

Trees are walked once for a generous box; a smaller box inside it only selects among those leaves.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.group_bounds import Parts, Walk
from treeproof.kernels.grouping import Sharing, new_sharing, order_by_contradiction
from treeproof.kernels.narrowing import meets
from treeproof.kernels.restriction import gain_of_leaf, restrict_trees


class Restricted(NamedTuple):
    """Leaves of all trees that matter for a row, inside some box, and scratch for them.

    leaf_start  int64   (n_trees + 1,)   leaves of each tree; trees without a say have none
    leaf_row    int32   (n_leaves,)      row of trees.leaf_value
    parts       Parts                    room for the parts of one constraint
    reordered   Parts                    room for the same parts in another order
    part_tree   int64   (n_trees,)       tree of each part
    walk        Walk
    maximum     float64 (3, n_trees)     maxima of two levels, and lower bounds of one
    sharing     Sharing                  scratch of the reordering
    """

    leaf_start: np.ndarray
    leaf_row: np.ndarray
    parts: Parts
    reordered: Parts
    part_tree: np.ndarray
    walk: Walk
    maximum: np.ndarray
    sharing: Sharing


@inner_kernel
def new_restricted(room, n_features, low_cell, high_cell, nodes, clock, share):
    """Scratch that fits the capacity of a room."""
    n = len(room.leaf_start) + 1
    capacity = len(room.leaf_gain)
    spare = capacity if share else 0
    longest = len(room.path)
    ranges = (room.range_start, room.feature, room.low, room.high)
    walk = Walk(
        low_cell,
        high_cell,
        np.empty((n * longest + 1, 3), dtype=np.int32),
        np.zeros(n, dtype=np.int64),
        np.zeros(n, dtype=np.int64),
        np.empty(n),
        np.empty(n),
        nodes,
        clock,
    )
    return Restricted(
        room.leaf_start,
        room.leaf_row,
        Parts(
            np.zeros(n, dtype=np.int64), np.empty(capacity), np.empty(capacity, np.int64), *ranges
        ),
        Parts(np.zeros(n, dtype=np.int64), np.empty(spare), np.empty(spare, np.int64), *ranges),
        np.empty(n, dtype=np.int64),
        walk,
        np.empty((3, n)),
        new_sharing(share, n, longest, n_features),
    )


@noalloc_kernel
def restrict_row(trees, space, question, row, low_cell, high_cell, room):
    """Walk the trees of a row's group down to the leaves that meet a box; False without room."""
    mask = question.group_mask[question.group[row]]
    n_trees = len(trees.tree_output)
    return n_trees == restrict_trees(
        trees, space, question.rows[row], low_cell, high_cell, mask, question.zero_band,
        np.int64(0), room,
    )  # fmt: skip


@noalloc_kernel
def select_parts(trees, question, constraint, restricted, low_cell, high_cell):
    """Fill the parts of one constraint: leaves that meet a box, sorted by falling gain.

    Returns
    -------
    int
        Number of parts.
    """
    parts = restricted.parts
    coefficient = question.coefficient[constraint]
    n_parts = 0
    n = 0
    for tree in range(len(restricted.leaf_start) - 1):
        output = trees.tree_output[tree]
        if output >= 0 and coefficient[output] == 0.0:
            continue
        begin = n
        for leaf in range(restricted.leaf_start[tree], restricted.leaf_start[tree + 1]):
            if not meets(parts, leaf, low_cell, high_cell):
                continue
            gain = gain_of_leaf(trees, tree, restricted.leaf_row[leaf], coefficient)
            # Insertion: parts are small, and equal gains keep their order.
            at = n
            while at > begin and parts.gain[at - 1] < gain:
                parts.gain[at] = parts.gain[at - 1]
                parts.leaf[at] = parts.leaf[at - 1]
                at -= 1
            parts.gain[at] = gain
            parts.leaf[at] = leaf
            n += 1
        restricted.part_tree[n_parts] = tree
        n_parts += 1
        parts.part_start[n_parts] = n
    return n_parts


@noalloc_kernel
def floor_of(trees, question, constraint, restricted, n_parts):
    """Total gain of the parts below which no violation lies.

    Sound: the library's recursive sums err by at most one rounding unit of the magnitude of every
    partial sum, and partial sums lie between the sums of least and largest values (see
    `summation_slack`). Our own sums of n doubles of total magnitude m, taken in any order and
    compared with each other, err by at most 2 * n * 2**-53 * m each.
    """
    parts = restricted.parts
    coefficient = question.coefficient[constraint]
    base = 0.0
    error = 0.0
    for output in range(len(coefficient)):
        weight = coefficient[output]
        if weight == 0.0:
            continue
        least = weight * question.start[output]
        most = least
        base += least
        for part in range(n_parts):
            tree = restricted.part_tree[part]
            first = parts.part_start[part]
            last = parts.part_start[part + 1] - 1
            if trees.tree_output[tree] == output:
                least += parts.gain[last]
                most += parts.gain[first]
            elif trees.tree_output[tree] < 0:
                smallest = np.inf
                largest = -np.inf
                for at in range(first, last + 1):
                    row = restricted.leaf_row[parts.leaf[at]]
                    value = weight * trees.leaf_value[row, output]
                    smallest = min(smallest, value)
                    largest = max(largest, value)
                least += smallest
                most += largest
            else:
                continue
            error += max(abs(least), abs(most))
    magnitude = abs(base)
    for part in range(n_parts):
        largest = parts.gain[parts.part_start[part]]
        smallest = parts.gain[parts.part_start[part + 1] - 1]
        magnitude += max(abs(largest), abs(smallest))
    unit = question.unit[constraint]
    slack = error * unit * (1.0 + 4.0 * len(trees.tree_output) * unit + 1e-9)
    own_rounding = (2 * n_parts + 16) * 2.0**-52 * magnitude
    return question.need[constraint] - slack - question.link_slack[constraint] - own_rounding - base


@noalloc_kernel
def prepare_parts(trees, question, constraint, restricted, low_cell, high_cell, options):
    """Select, and where asked reorder, the parts of one constraint.

    Returns
    -------
    int, float64
        The number of parts, and the total gain below which no violation lies.
    """
    n_parts = select_parts(trees, question, constraint, restricted, low_cell, high_cell)
    floor = floor_of(trees, question, constraint, restricted, n_parts)
    if question.share:
        n_parts, constant = reorder_parts(
            restricted, n_parts, options.clique_size, options.n_levels
        )
        floor -= constant
    return n_parts, floor


@noalloc_kernel
def reorder_parts(restricted, n_parts, clique_size, n_levels):
    """Put parts that contradict each other side by side; constant parts are left out.

    Returns
    -------
    int, float64
        The number of parts in ``restricted.reordered``, and the gain of the parts left out.
    """
    parts = restricted.parts
    reordered = restricted.reordered
    constant = 0.0
    n_moving = order_by_contradiction(
        parts, n_parts, clique_size, n_levels, restricted.walk, restricted.sharing
    )
    order = restricted.sharing.order
    for part in range(n_parts):
        if parts.part_start[part + 1] - parts.part_start[part] == 1:
            constant += parts.gain[parts.part_start[part]]
    n = 0
    for place in range(n_moving):
        for at in range(parts.part_start[order[place]], parts.part_start[order[place] + 1]):
            reordered.gain[n] = parts.gain[at]
            reordered.leaf[n] = parts.leaf[at]
            n += 1
        reordered.part_start[place + 1] = n
    return n_moving, constant
