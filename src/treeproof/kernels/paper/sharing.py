"""Which trees go into one group, when position does not decide it.

Merging two trees lowers the bound only where their best leaves contradict each other, in a feature
that both test inside the box. Trees that contradict each other most are put side by side. Groups of
every level are consecutive blocks of one order, so they are nested, and bounds only fall from level
to level.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import sorted_order
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.paper.leaves import enter, leave, meets

_PAIRS_PER_TREE = 16
"""Room for contradicting pairs; further pairs are not considered."""


class Pairs(NamedTuple):
    """Parts whose best leaves contradict each other."""

    pair: np.ndarray  # (n, 2) int64; parts
    loss: np.ndarray  # (n,) float64; what merging them takes off the bound


@inner_kernel
def arrange_by_sharing(search, n_parts, options):
    """Where asked, put parts that contradict each other side by side, and leave out constant ones.

    Returns as `keep_order`.
    """
    parts = search.parts
    if not options.shares:
        return n_parts, 0.0
    constant = 0.0
    n = 0
    for part in range(n_parts):
        if parts.end[part] - parts.begin[part] == 1:
            constant += parts.gain[parts.begin[part]]
        else:
            parts.begin[n] = parts.begin[part]
            parts.end[n] = parts.end[part]
            n += 1
    pairs, n_pairs = _contradictions(search, n)
    sorted_pairs = sorted_order(pairs.loss[:n_pairs], False)
    order = np.arange(n)
    width = 1
    for _ in range(options.n_levels):
        if n <= width:
            break
        order = _join_units(order, pairs.pair, sorted_pairs, options.clique_size, width)
        width *= options.clique_size
    begin = np.empty(n, dtype=np.int64)
    end = np.empty(n, dtype=np.int64)
    for place in range(n):
        begin[place] = parts.begin[order[place]]
        end[place] = parts.end[order[place]]
    for place in range(n):
        parts.begin[place] = begin[place]
        parts.end[place] = end[place]
    return n, constant


@inner_kernel
def _contradictions(search, n_parts):
    """Collect pairs of parts whose best leaves do not meet; returns them and their number."""
    parts = search.parts
    capacity = _PAIRS_PER_TREE * len(parts.begin)
    pairs = Pairs(np.empty((capacity, 2), dtype=np.int64), np.empty(capacity))
    n_features = len(search.walk.low_cell)
    # Ranges of the best leaves before, in a list per feature: the part, the range, the next entry.
    head = np.empty(n_features, dtype=np.int64)
    for feature in range(n_features):
        head[feature] = -1
    n_entries = 0
    for part in range(n_parts):
        best = parts.leaf[parts.begin[part]]
        n_entries += parts.range_start[best + 1] - parts.range_start[best]
    entry = np.empty((n_entries, 3), dtype=np.int64)
    n_entries = 0
    n_pairs = 0
    for part in range(n_parts):
        best = parts.leaf[parts.begin[part]]
        first_pair = n_pairs
        for r in range(parts.range_start[best], parts.range_start[best + 1]):
            e = head[parts.feature[r]]
            while e >= 0 and n_pairs < capacity:
                other = entry[e, 0]
                q = entry[e, 1]
                is_new = parts.low[r] > parts.high[q] or parts.high[r] < parts.low[q]
                for k in range(first_pair, n_pairs):
                    is_new = is_new and pairs.pair[k, 0] != other
                if is_new:
                    pairs.pair[n_pairs, 0] = other
                    pairs.pair[n_pairs, 1] = part
                    pairs.loss[n_pairs] = _merging_loss(parts, search.walk, other, part)
                    n_pairs += 1
                e = entry[e, 2]
        for r in range(parts.range_start[best], parts.range_start[best + 1]):
            entry[n_entries, 0] = part
            entry[n_entries, 1] = r
            entry[n_entries, 2] = head[parts.feature[r]]
            head[parts.feature[r]] = n_entries
            n_entries += 1
    return pairs, n_pairs


@noalloc_kernel
def _merging_loss(parts, walk, first, second):
    """Sum of two maxima less the largest gain of a pair of leaves that meet."""
    begin = parts.begin[second]
    largest = parts.gain[parts.begin[first]] + parts.gain[begin]
    best = -np.inf
    walk.trail_start[0] = 0
    for at in range(parts.begin[first], parts.end[first]):
        if parts.gain[at] + parts.gain[begin] <= best:
            break
        enter(parts, walk, parts.leaf[at], 0)
        for other in range(begin, parts.end[second]):
            if parts.gain[at] + parts.gain[other] <= best:
                break
            if meets(parts, parts.leaf[other], walk.low_cell, walk.high_cell):
                best = parts.gain[at] + parts.gain[other]
                break
        leave(walk, 0)
    return largest - best


@inner_kernel
def _join_units(order, pair, sorted_pairs, clique_size, width):
    """Join units of `width` consecutive parts into blocks of up to `clique_size` units.

    Pairs are taken by falling loss, as long as both blocks together are not too large. Full blocks
    come first, so that they stay aligned; an incomplete last unit stays last.
    """
    n = len(order)
    whole = n // width
    unit_of = np.empty(n, dtype=np.int64)
    for place in range(n):
        unit_of[order[place]] = place // width
    block_of = np.arange(whole)
    size = np.ones(whole, dtype=np.int64)
    for k in sorted_pairs:
        a = unit_of[pair[k, 0]]
        b = unit_of[pair[k, 1]]
        if a >= whole or b >= whole:
            continue
        a = block_of[a]
        b = block_of[b]
        if a != b and size[a] + size[b] <= clique_size:
            size[a] += size[b]
            for unit in range(whole):
                if block_of[unit] == b:
                    block_of[unit] = a
    joined = order.copy()
    place = 0
    for wanted in range(clique_size, 0, -1):
        for block in range(whole):
            if block_of[block] != block or size[block] != wanted:
                continue
            for unit in range(whole):
                if block_of[unit] == block:
                    for step in range(width):
                        joined[place] = order[unit * width + step]
                        place += 1
    return joined
