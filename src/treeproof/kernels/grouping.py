"""Which trees go into one group, when position does not decide it.

Merging two trees lowers the bound only where their best leaves contradict each other, in a feature
that both test inside the box. Trees that contradict each other most are put side by side. Groups of
every level are consecutive blocks of one order, so they are nested, and bounds only fall from level
to level.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.narrowing import enter, leave, meets

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
