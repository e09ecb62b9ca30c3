"""Which trees go into one group, when position does not decide it.

Merging two trees lowers the bound only where their best leaves contradict each other, in a feature
that both test inside the box. Trees that contradict each other most are put side by side. Groups of
every level are consecutive blocks of one order, so they are nested, and bounds only fall from level
to level.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.baselines.narrowing import enter, leave, meets
from treeproof.kernels.core.cells import CellBox
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.core.leaves import gain_of_leaf, restrict_trees

_PAIRS_PER_TREE = 16
"""Room for contradicting pairs; further pairs are not considered."""


class Sharing(NamedTuple):
    """Scratch of `order_by_contradiction`.

    order     int64   (n_trees,)      out: parts in their new order
    previous  int64   (n_trees,)      the order before a level
    pair      int64   (capacity, 2)   contradicting parts, by part number
    loss      float64 (capacity,)     what merging a pair takes off the bound
    sorted    int64   (capacity,)     pairs by falling loss
    buffer    int64   (capacity,)
    block     int64   (n_trees,)      block of a unit; a unit is a part, then a group of parts
    size      int64   (n_trees,)      units of a block
    unit      int64   (n_trees,)      unit of a part
    next_of   int64   (n_entries,)    next entry with the same feature
    head      int64   (n_features,)   last entry of a feature
    entry     int64   (n_entries, 2)  part and range of an entry
    """

    order: np.ndarray
    previous: np.ndarray
    pair: np.ndarray
    loss: np.ndarray
    sorted: np.ndarray
    buffer: np.ndarray
    block: np.ndarray
    size: np.ndarray
    unit: np.ndarray
    next_of: np.ndarray
    head: np.ndarray
    entry: np.ndarray


@inner_kernel
def new_sharing(is_used, n_trees, max_ranges, n_features):
    """Scratch of the right size; empty when it is not used."""
    n = n_trees if is_used else 0
    pairs = _PAIRS_PER_TREE * n
    entries = n * max_ranges
    return Sharing(
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.empty((pairs, 2), dtype=np.int64),
        np.empty(pairs),
        np.empty(pairs, dtype=np.int64),
        np.empty(pairs, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.empty(entries, dtype=np.int64),
        np.empty(n_features if is_used else 0, dtype=np.int64),
        np.empty((entries, 2), dtype=np.int64),
    )


@noalloc_kernel
def order_by_contradiction(parts, n_parts, clique_size, n_levels, walk, sharing):
    """Order the parts that can move; returns their number."""
    n = 0
    for part in range(n_parts):
        if parts.part_start[part + 1] - parts.part_start[part] > 1:
            sharing.order[n] = part
            n += 1
    n_pairs = _contradictions(parts, n, walk, sharing)
    _sort_pairs(sharing, n_pairs)
    width = 1
    for _ in range(n_levels):
        if n <= width:
            break
        _join_units(sharing, n, n_pairs, clique_size, width)
        width *= clique_size
    return n


@noalloc_kernel
def _contradictions(parts, n, walk, sharing):
    """Collect pairs of parts whose best leaves do not meet, with what merging them takes off."""
    for feature in range(len(sharing.head)):
        sharing.head[feature] = -1
    n_entries = 0
    n_pairs = 0
    for place in range(n):
        part = sharing.order[place]
        best = parts.leaf[parts.part_start[part]]
        first_pair = n_pairs
        for r in range(parts.range_start[best], parts.range_start[best + 1]):
            e = sharing.head[parts.feature[r]]
            while e >= 0 and n_pairs < len(sharing.loss):
                other = sharing.entry[e, 0]
                q = sharing.entry[e, 1]
                is_new = parts.low[r] > parts.high[q] or parts.high[r] < parts.low[q]
                for k in range(first_pair, n_pairs):
                    is_new = is_new and sharing.pair[k, 0] != other
                if is_new:
                    sharing.pair[n_pairs, 0] = other
                    sharing.pair[n_pairs, 1] = part
                    sharing.loss[n_pairs] = _merging_loss(parts, other, part, walk)
                    n_pairs += 1
                e = sharing.next_of[e]
        for r in range(parts.range_start[best], parts.range_start[best + 1]):
            sharing.entry[n_entries, 0] = part
            sharing.entry[n_entries, 1] = r
            sharing.next_of[n_entries] = sharing.head[parts.feature[r]]
            sharing.head[parts.feature[r]] = n_entries
            n_entries += 1
    return n_pairs


@noalloc_kernel
def _merging_loss(parts, first, second, walk):
    """Sum of two maxima less the largest gain of a pair of leaves that meet."""
    begin = parts.part_start[second]
    end = parts.part_start[second + 1]
    largest = parts.gain[parts.part_start[first]] + parts.gain[begin]
    best = -np.inf
    walk.trail_start[0] = 0
    for at in range(parts.part_start[first], parts.part_start[first + 1]):
        if parts.gain[at] + parts.gain[begin] <= best:
            break
        enter(parts, walk, parts.leaf[at], 0)
        for other in range(begin, end):
            if parts.gain[at] + parts.gain[other] <= best:
                break
            if meets(parts, parts.leaf[other], walk.low_cell, walk.high_cell):
                best = parts.gain[at] + parts.gain[other]
                break
        leave(walk, 0)
    return largest - best


@noalloc_kernel
def _sort_pairs(sharing, n_pairs):
    """Sort pairs by falling loss; equal ones keep their order."""
    for k in range(n_pairs):
        sharing.sorted[k] = k
    width = 1
    while width < n_pairs:
        for begin in range(0, n_pairs, 2 * width):
            left = begin
            middle = min(begin + width, n_pairs)
            right = middle
            end = min(begin + 2 * width, n_pairs)
            for at in range(begin, end):
                take_left = left < middle and (
                    right >= end
                    or sharing.loss[sharing.sorted[left]] >= sharing.loss[sharing.sorted[right]]
                )
                if take_left:
                    sharing.buffer[at] = sharing.sorted[left]
                    left += 1
                else:
                    sharing.buffer[at] = sharing.sorted[right]
                    right += 1
        for at in range(n_pairs):
            sharing.sorted[at] = sharing.buffer[at]
        width *= 2


@noalloc_kernel
def _join_units(sharing, n, n_pairs, clique_size, width):
    """Join units of `width` consecutive parts into blocks of up to `clique_size` units.

    Pairs are taken by falling loss, as long as both blocks together are not too large. Full blocks
    come first, so that they stay aligned; an incomplete last unit stays last.
    """
    whole = n // width
    for place in range(n):
        sharing.previous[place] = sharing.order[place]
        sharing.unit[sharing.order[place]] = place // width
    for unit in range(whole):
        sharing.block[unit] = unit
        sharing.size[unit] = 1
    for k in range(n_pairs):
        a = sharing.unit[sharing.pair[sharing.sorted[k], 0]]
        b = sharing.unit[sharing.pair[sharing.sorted[k], 1]]
        if a >= whole or b >= whole:
            continue
        a = sharing.block[a]
        b = sharing.block[b]
        if a != b and sharing.size[a] + sharing.size[b] <= clique_size:
            sharing.size[a] += sharing.size[b]
            for unit in range(whole):
                if sharing.block[unit] == b:
                    sharing.block[unit] = a
    place = 0
    for size in range(clique_size, 0, -1):
        for block in range(whole):
            if sharing.block[block] != block or sharing.size[block] != size:
                continue
            for unit in range(whole):
                if sharing.block[unit] == block:
                    for step in range(width):
                        sharing.order[place] = sharing.previous[unit * width + step]
                        place += 1


PROVED, LOOSE, OUT_OF_NODES, OUT_OF_TIME, OUT_OF_MEMORY = 0, 1, 2, 3, 4
"""How a row, one constraint of it, or one step ended."""


class Parts(NamedTuple):
    """Trees with a say in group order; in each the leaves that meet the box, largest gain first.

    part_start   int64   (n_parts + 1,)
    gain         float64 (n_leaves,)
    leaf         int64   (n_leaves,)     its number among the restricted leaves
    range_start  int64   (n_all + 1,)    ranges of the restricted leaves
    feature      int32   (n_ranges,)
    low, high    int32   (n_ranges,)
    """

    part_start: np.ndarray
    gain: np.ndarray
    leaf: np.ndarray
    range_start: np.ndarray
    feature: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Walk(NamedTuple):
    """Scratch of the depth-first search, and what it may spend.

    low_cell, high_cell  int32 (n_features,)   cell box of the path; the box of the question between
                                               searches
    trail                int32 (capacity, 3)   narrowings of the path
    trail_start          int64 (n_trees + 2,)
    position             int64 (n_trees + 1,)
    total                float64 (n_trees + 1,)
    suffix               float64 (n_trees + 1,)
    nodes                int64 (2,)            partial cliques visited, and allowed
    clock                int64 (2,)
    """

    low_cell: np.ndarray
    high_cell: np.ndarray
    trail: np.ndarray
    trail_start: np.ndarray
    position: np.ndarray
    total: np.ndarray
    suffix: np.ndarray
    nodes: np.ndarray
    clock: np.ndarray


@noalloc_kernel
def group_maximum(parts, walk, first_part, n_parts, best, stop_at_first, deadline):
    """Largest gain of the cliques of consecutive parts; ``walk.suffix`` bounds what is to come.

    first_part, n_parts  int       the group
    best                 float64   only larger gains are looked for; returned when there is none
    stop_at_first        bool      return the first clique found: a lower bound, quickly
    deadline             float64

    Returns
    -------
    float64, bool
        The maximum, and whether the search was finished within its limits.
    """
    depth = np.int64(0)
    walk.total[0] = 0.0
    walk.trail_start[0] = 0
    walk.position[0] = parts.part_start[first_part]
    is_finished = True
    while depth >= 0:
        end = parts.part_start[first_part + depth + 1]
        at = walk.position[depth]
        is_last = depth == n_parts - 1
        entered = False
        while at < end and not entered:
            total = walk.total[depth] + parts.gain[at]
            # Sound: gains fall from here on, and the suffix bounds every continuation.
            if total + walk.suffix[depth + 1] <= best:
                at = end
            elif not is_last:
                entered = enter(parts, walk, parts.leaf[at], depth)
                walk.total[depth + 1] = total
                at += 1
            elif meets(parts, parts.leaf[at], walk.low_cell, walk.high_cell):
                best = total
                at = end
                is_finished = not stop_at_first
            else:
                at += 1
        walk.position[depth] = at
        if entered:
            depth += 1
            walk.position[depth] = parts.part_start[first_part + depth]
            walk.nodes[0] += 1
            if walk.nodes[0] >= walk.nodes[1] or (
                walk.nodes[0] & 1023 == 0 and seconds_now(walk.clock) > deadline
            ):
                _leave_all(walk, depth)
                return best, False
        elif not is_finished:
            _leave_all(walk, depth)
            return best, True
        else:
            depth -= 1
            if depth >= 0:
                leave(walk, depth)
    return best, True


@noalloc_kernel
def _leave_all(walk, depth):
    for d in range(depth - 1, -1, -1):
        leave(walk, d)


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
        trees, space, question.rows[row], CellBox(low_cell, high_cell), mask, question.zero_band,
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
