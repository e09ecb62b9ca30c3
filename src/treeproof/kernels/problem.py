"""A restricted ensemble as a small factor problem: maximise unary terms plus factors over cells.

Trees that are constant in the box become a number, trees that depend on one feature become unary
terms, the others become factors. Features that occur get *slots*; the cells of a slot are the
finest intervals that any reachable leaf distinguishes. Within a factor, a slot is divided into
*segments*: runs of cells that this factor's leaves do not tell apart.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.compiler import borrowing_kernel, kernel

LOW, HIGH, EDGE = 0, 1, 2
FEATURE, CELL_START = 0, 1
SLOT, FACTOR, SEGMENT_START = 0, 1, 2
LEAF_START, ENTRY_START, PAIR_START, TREE = 0, 1, 2, 3
"""Columns of the tables of a `Problem`; few tables with columns compile faster than many arrays."""


class Problem(NamedTuple):
    """Maximise ``base + sum of unary[z_s] + sum over factors of the gain of the leaf at z``.

    Cells of all slots are numbered through; a point is one cell per slot. Pairs are (factor, slot)
    combinations, numbered through; a factor's entries hold, for each of its leaves and each of its
    pairs in order, the segment range of the leaf, relative to the pair. Tables with starts have one
    row more than things, for the end of the last one.

    base       float64                    constant trees and start values
    gross      float64                    sum over all trees of the largest |gain|; scales rounding
    n_trees, n_slots, n_factors, n_pairs  int
    slots      int32   (n_slots + 1, 3)   FEATURE, CELL_START, PAIR_START (into slot_pair)
    cells      int32   (n_cells, 3)       LOW, HIGH: global cells covered; EDGE: 1 where some
                                          one-feature tree changes its leaf at the cell's start
    unary      float64 (n_cells,)
    factors    int32   (n_factors + 1, 4) LEAF_START, ENTRY_START, PAIR_START, TREE
    leaf_gain  float64 (n_leaves,)
    pairs      int32   (n_pairs + 1, 3)   SLOT, FACTOR, SEGMENT_START
    segments   int32   (n_segments, 2)    LOW, HIGH: cells of a segment
    entries    int32   (n_entries, 2)     LOW, HIGH: segments of a leaf in a pair
    slot_pair  int32   (n_pairs,)         pairs of each slot
    """

    base: float
    gross: float
    n_trees: int
    n_slots: int
    n_factors: int
    n_pairs: int
    slots: np.ndarray
    cells: np.ndarray
    unary: np.ndarray
    factors: np.ndarray
    leaf_gain: np.ndarray
    pairs: np.ndarray
    segments: np.ndarray
    entries: np.ndarray
    slot_pair: np.ndarray


@kernel
def grow_table(array, n_rows):
    """Copy of a two-dimensional array with room for at least `n_rows` rows."""
    larger = np.empty((max(n_rows, 2 * array.shape[0]), array.shape[1]), dtype=array.dtype)
    larger[: array.shape[0]] = array
    return larger


@kernel
def find_slots(feature, n_features):
    """Number the features that occur in any range, in order of appearance.

    Returns
    -------
    slot_of  int32 (n_features,)      slot of a feature, or -1
    n_slots  int
    slots    int32 (n_slots + 1, 3)   with FEATURE filled in
    """
    slot_of = np.full(n_features, -1, dtype=np.int32)
    slots = np.zeros((min(n_features, len(feature)) + 1, 3), dtype=np.int32)
    n_slots = 0
    for entry in range(len(feature)):
        if slot_of[feature[entry]] < 0:
            slot_of[feature[entry]] = n_slots
            slots[n_slots, FEATURE] = feature[entry]
            n_slots += 1
    return slot_of, n_slots, slots[: n_slots + 1]


@kernel
def find_cells(feature, low, high, low_cell, high_cell, slot_of, n_slots, slots):
    """Cut every slot's box range at the bounds of all ranges; fills CELL_START.

    Returns
    -------
    offset  int64 (n_slots + 1,)  where a slot's global cells start in `local`
    local   int32                 cell of each global cell of a slot's box range
    cells   int32 (n_cells, 3)
    """
    offset = np.zeros(n_slots + 1, dtype=np.int64)
    for slot in range(n_slots):
        tested = slots[slot, FEATURE]
        offset[slot + 1] = offset[slot] + high_cell[tested] - low_cell[tested] + 2
    local = np.zeros(offset[n_slots], dtype=np.int32)
    for entry in range(len(feature)):
        shift = offset[slot_of[feature[entry]]] - low_cell[feature[entry]]
        local[shift + low[entry]] = 1
        local[shift + high[entry] + 1] = 1
    cells = np.zeros((offset[n_slots], 3), dtype=np.int32)
    n_cells = 0
    for slot in range(n_slots):
        first = low_cell[slots[slot, FEATURE]]
        width = high_cell[slots[slot, FEATURE]] - first + 1
        for step in range(width):
            position = offset[slot] + step
            if step == 0 or local[position]:
                if step > 0:
                    cells[n_cells - 1, HIGH] = first + step - 1
                cells[n_cells, LOW] = first + step
                n_cells += 1
            local[position] = n_cells - 1
        cells[n_cells - 1, HIGH] = first + width - 1
        slots[slot + 1, CELL_START] = n_cells
    return offset, local, cells[:n_cells]


@borrowing_kernel
def mark_segments(pairs, first_pair, last_pair, slots, segment_of, segments):
    """Number the segments of a factor's pairs; `segment_of` holds marks in, numbers out."""
    n_segments = pairs[first_pair, SEGMENT_START]
    for pair in range(first_pair, last_pair):
        start = slots[pairs[pair, SLOT], CELL_START]
        stop = slots[pairs[pair, SLOT] + 1, CELL_START]
        before = n_segments
        for cell in range(start, stop):
            if cell == start or segment_of[cell]:
                if cell > start:
                    segments[n_segments - 1, HIGH] = cell - 1
                segments[n_segments, LOW] = cell
                n_segments += 1
            segment_of[cell] = n_segments - 1 - before
        segments[n_segments - 1, HIGH] = stop - 1
        pairs[pair + 1, SEGMENT_START] = n_segments


@kernel
def build_problem(base, leaf_start, leaf_gain, range_start, feature, low, high, low_cell,
                  high_cell):  # fmt: skip
    """Turn the output of `restrict` into a `Problem`.

    base         float64                gain before any tree
    others       see `treeproof.kernels.rank_space.restrict`
    """
    n_trees = len(leaf_start) - 1
    n_ranges = len(feature)
    slot_of, n_slots, slots = find_slots(feature, len(low_cell))
    offset, local, cells = find_cells(
        feature, low, high, low_cell, high_cell, slot_of, n_slots, slots
    )
    unary = np.zeros(len(cells), dtype=np.float64)
    factors = np.zeros((n_trees + 1, 4), dtype=np.int32)
    gain = np.empty(len(leaf_gain), dtype=np.float64)
    pairs = np.zeros((n_ranges + 2, 3), dtype=np.int32)
    segments = np.empty((2 * n_ranges + 2, 2), dtype=np.int32)
    entries = np.empty((2 * n_ranges + 16, 2), dtype=np.int32)
    stamp = np.full(n_slots, -1, dtype=np.int32)
    position = np.empty(n_slots, dtype=np.int32)
    segment_of = np.zeros(len(cells), dtype=np.int32)
    gross = abs(base)
    n_factors = 0
    for tree in range(n_trees):
        first = leaf_start[tree]
        last = leaf_start[tree + 1]
        if first == last:
            continue
        largest = 0.0
        for leaf in range(first, last):
            largest = max(largest, abs(leaf_gain[leaf]))
        gross += largest
        if last - first == 1:
            base += leaf_gain[first]
            continue
        first_pair = factors[n_factors, PAIR_START]
        width = 0
        for entry in range(range_start[first], range_start[last]):
            slot = slot_of[feature[entry]]
            if stamp[slot] != tree:
                stamp[slot] = tree
                position[slot] = width
                pairs[first_pair + width, SLOT] = slot
                width += 1
        if width == 1:
            shift = offset[slot] - low_cell[slots[slot, FEATURE]]
            for leaf in range(first, last):
                entry = range_start[leaf]
                cells[local[shift + low[entry]], EDGE] = 1
                for cell in range(local[shift + low[entry]], local[shift + high[entry]] + 1):
                    unary[cell] += leaf_gain[leaf]
            continue
        for entry in range(range_start[first], range_start[last]):
            shift = offset[slot_of[feature[entry]]] - low_cell[feature[entry]]
            segment_of[local[shift + low[entry]]] = 1
        mark_segments(pairs, first_pair, first_pair + width, slots, segment_of, segments)
        start = factors[n_factors, ENTRY_START]
        end = start + (last - first) * width
        if end > len(entries):
            entries = grow_table(entries, end)
        for leaf in range(first, last):
            row = start + (leaf - first) * width
            for step in range(width):
                pair = first_pair + step
                entries[row + step, LOW] = 0
                entries[row + step, HIGH] = (
                    pairs[pair + 1, SEGMENT_START] - pairs[pair, SEGMENT_START] - 1
                )
            for entry in range(range_start[leaf], range_start[leaf + 1]):
                slot = slot_of[feature[entry]]
                shift = offset[slot] - low_cell[feature[entry]]
                entries[row + position[slot], LOW] = segment_of[local[shift + low[entry]]]
                entries[row + position[slot], HIGH] = segment_of[local[shift + high[entry]]]
            gain[factors[n_factors, LEAF_START] + leaf - first] = leaf_gain[leaf]
        for pair in range(first_pair, first_pair + width):
            pairs[pair, FACTOR] = n_factors
            slot = pairs[pair, SLOT]
            for cell in range(slots[slot, CELL_START], slots[slot + 1, CELL_START]):
                segment_of[cell] = 0
        factors[n_factors, TREE] = tree
        factors[n_factors + 1, LEAF_START] = factors[n_factors, LEAF_START] + last - first
        factors[n_factors + 1, PAIR_START] = first_pair + width
        factors[n_factors + 1, ENTRY_START] = end
        n_factors += 1
    n_pairs = factors[n_factors, PAIR_START]
    return Problem(
        base, gross, n_trees, n_slots, n_factors, n_pairs, slots, cells, unary,
        factors[: n_factors + 1], gain[: factors[n_factors, LEAF_START]], pairs[: n_pairs + 1],
        segments[: pairs[n_pairs, SEGMENT_START]], entries[: factors[n_factors, ENTRY_START]],
        index_pairs(n_slots, n_pairs, slots, pairs),
    )  # fmt: skip


@kernel
def index_pairs(n_slots, n_pairs, slots, pairs):
    """List the pairs of each slot; fills PAIR_START of the slots."""
    for pair in range(n_pairs):
        slots[pairs[pair, SLOT] + 1, PAIR_START] += 1
    for slot in range(n_slots):
        slots[slot + 1, PAIR_START] += slots[slot, PAIR_START]
    slot_pair = np.empty(n_pairs, dtype=np.int32)
    fill = slots[:, PAIR_START].copy()
    for pair in range(n_pairs):
        slot_pair[fill[pairs[pair, SLOT]]] = pair
        fill[pairs[pair, SLOT]] += 1
    return slot_pair
