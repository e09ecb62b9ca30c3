"""A restricted ensemble as a small factor problem: maximise unary terms plus factors over cells.

Trees that are constant in the box become a number, trees that depend on one feature become unary
terms, the others become factors. Features that occur get *slots*; the cells of a slot are the
finest intervals that any reachable leaf distinguishes. Within a factor, a slot is divided into
*segments*: runs of cells that this factor's leaves do not tell apart.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.cells import NOTHING
from treeproof.kernels.core.compiler import ONE, inlined_kernel, inner_kernel, noalloc_kernel

LOW, HIGH, EDGE = 0, 1, 2
FEATURE, CELL_START = 0, 1
SLOT, FACTOR, SEGMENT_START = 0, 1, 2
LEAF_START, ENTRY_START, PAIR_START, TREE = 0, 1, 2, 3
RANGE_SLOT = 2
BASE, GROSS = 0, 1
"""Columns of the tables of a `Problem`; few tables with columns compile faster than many arrays."""


class Conditions(NamedTuple):
    """What a violation must meet all at once, where that is more than one condition.

    Every condition has terms of its own, relative to its floor, over the same slots and factors.
    The terms of the problem are their sum with some weights, see
    `treeproof.kernels.exact.conditions`. A single condition has no terms here.
    """

    terms: np.ndarray  # (n_conditions, 2) float64; BASE, GROSS, as those of the problem
    unary: np.ndarray  # (n_conditions, n_cells) float64
    gain: np.ndarray  # (n_conditions, n_leaves) float64
    weight: np.ndarray  # (n_conditions,) float64; to begin with
    value: np.ndarray  # (n_conditions,) float64; scratch
    trial: np.ndarray  # (n_conditions,) float64; scratch: weights to be tried


@inner_kernel
def new_conditions(n_conditions, n_cells, n_leaves):
    """Conditions without terms."""
    return Conditions(
        np.zeros((n_conditions, 2), dtype=np.float64),
        np.zeros((n_conditions, n_cells), dtype=np.float64),
        np.zeros((n_conditions, n_leaves), dtype=np.float64),
        np.ones(n_conditions, dtype=np.float64),
        np.zeros(n_conditions, dtype=np.float64),
        np.zeros(n_conditions, dtype=np.float64),
    )


class Problem(NamedTuple):
    """Maximise ``base + sum of unary[z_s] + sum over factors of the gain of the leaf at z``.

    Cells of all slots are numbered through; a point is one cell per slot. Pairs are (factor, slot)
    combinations, numbered through; a factor's entries hold, for each of its leaves and each of its
    pairs in order, the segment range of the leaf, relative to the pair. Tables with starts have one
    row more than things, for the end of the last one. Positions are unsigned, see
    `treeproof.kernels.core.compiler.ONE`.
    """

    # BASE: constant trees and start values; GROSS: sum over all trees of the largest |gain|, which
    # scales rounding
    terms: np.ndarray  # (2,) float64
    n_trees: int
    n_slots: int
    n_factors: int
    n_pairs: int
    slots: np.ndarray  # (n_slots + 1, 3) uint32; FEATURE, CELL_START, PAIR_START (into slot_pair)
    # LOW, HIGH: global cells covered; EDGE: 1 where some one-feature tree changes its leaf at the
    # cell's start
    cells: np.ndarray  # (n_cells, 3) uint32
    unary: np.ndarray  # (n_cells,) float64
    factors: np.ndarray  # (n_factors + 1, 4) uint32; LEAF_START, ENTRY_START, PAIR_START, TREE
    leaf_gain: np.ndarray  # (n_leaves,) float64
    pairs: np.ndarray  # (n_pairs + 1, 3) uint32; SLOT, FACTOR, SEGMENT_START
    segments: np.ndarray  # (n_segments, 2) uint32; LOW, HIGH: cells of a segment
    entries: np.ndarray  # (n_entries, 2) uint32; LOW, HIGH: segments of a leaf in a pair
    slot_pair: np.ndarray  # (n_pairs,) uint32; pairs of each slot
    conditions: Conditions  # of which the terms are a weighted sum


class Draft(NamedTuple):
    """A problem under construction; see `Problem` for what is not described here."""

    slots: np.ndarray
    cells: np.ndarray
    unary: np.ndarray
    factors: np.ndarray
    leaf_gain: np.ndarray
    pairs: np.ndarray
    segments: np.ndarray
    entries: np.ndarray
    ranges: np.ndarray  # (n_ranges, 3) uint32; LOW, HIGH: cells of a leaf's range; RANGE_SLOT
    # Scratch: for each pair of a factor, the number of cells at which segments but the first begin,
    # and these cells, sorted; fewer than leaves, since some leaf holds the slot's first cell
    bounds: np.ndarray  # (n_entries,) uint32
    stamp: np.ndarray  # (n_slots,) uint32; scratch: the last tree that tested a slot
    position: np.ndarray  # (n_slots,) uint32; scratch: the slot's place among those of that tree


@inner_kernel
def find_slots(leaves, n_features, ranges):
    """Number the features that occur in any range, in order of appearance; fills RANGE_SLOT.

    Returns the number of slots, and the table of slots with FEATURE filled in.
    """
    slot_of = np.full(n_features, NOTHING, dtype=np.uint32)
    slots = np.zeros((min(n_features, len(leaves.feature)) + 1, 3), dtype=np.uint32)
    n_slots = np.uint32(0)
    for entry in range(len(leaves.feature)):
        feature = np.uint32(leaves.feature[entry])
        if slot_of[feature] == NOTHING:
            slot_of[feature] = n_slots
            slots[n_slots, FEATURE] = feature
            n_slots = np.uint32(n_slots + ONE)
        ranges[entry, RANGE_SLOT] = slot_of[feature]
    return np.int64(n_slots), slots[: n_slots + ONE]


@inner_kernel
def find_cells(leaves, box, n_slots, slots, ranges):
    """Cut every slot's box range at the bounds of all ranges; returns the cells.

    ranges  uint32 (n_ranges, 3)  RANGE_SLOT; LOW, HIGH filled in: first and last cell
    slots                         CELL_START filled in
    """
    # Global cell g of a slot is at shift + g. Differences of unsigned numbers may pass below zero
    # in between, which does not matter: sums come back.
    shift = np.empty(n_slots, dtype=np.uint64)
    n_positions = np.uint64(0)
    for slot in range(n_slots):
        first = np.uint64(box.low[slots[slot, FEATURE]])
        shift[slot] = n_positions - first
        n_positions += np.uint64(box.high[slots[slot, FEATURE]]) - first + ONE + ONE
    cell_at = np.zeros(np.int64(n_positions), dtype=np.uint32)
    for entry in range(len(ranges)):
        start = shift[ranges[entry, RANGE_SLOT]]
        cell_at[start + np.uint64(leaves.low[entry])] = 1
        cell_at[start + np.uint64(leaves.high[entry]) + ONE] = 1
    cells = np.zeros((np.int64(n_positions), 3), dtype=np.uint32)
    cell = np.uint64(0)
    for slot in range(n_slots):
        first = np.uint64(box.low[slots[slot, FEATURE]])
        begins = first
        cell_at[shift[slot] + first] = 0  # the slot's first cell has begun
        for position in range(first, np.uint64(box.high[slots[slot, FEATURE]]) + ONE):
            # Without a branch: where cells begin cannot be foreseen.
            is_new = cell_at[shift[slot] + position]
            cell += is_new
            begins = position if is_new else begins
            cells[cell, LOW] = begins
            cells[cell, HIGH] = position
            cell_at[shift[slot] + position] = cell
        cell += ONE
        slots[slot + 1, CELL_START] = cell
    for entry in range(len(ranges)):
        start = shift[ranges[entry, RANGE_SLOT]]
        ranges[entry, LOW] = cell_at[start + np.uint64(leaves.low[entry])]
        ranges[entry, HIGH] = cell_at[start + np.uint64(leaves.high[entry])]
    return cells[: np.int64(cell)]


@inlined_kernel
def find_pairs(draft, begin, end, tree, first_pair):
    """Give every slot that a tree's ranges test a pair; returns how many there are."""
    width = np.uint64(0)
    for entry in range(begin, end):
        slot = draft.ranges[entry, RANGE_SLOT]
        if draft.stamp[slot] != tree:
            draft.stamp[slot] = tree
            draft.position[slot] = width
            draft.pairs[first_pair + width, SLOT] = slot
            width += ONE
    return width


@inlined_kernel
def find_segments(draft, begin, end, n_leaves, first_pair, width):
    """Cut the slots of a factor where its leaves begin; fills ``bounds`` for the entries."""
    bounds, segments, slots = draft.bounds, draft.segments, draft.slots
    for step in range(width):
        bounds[step * n_leaves] = 0
    for entry in range(begin, end):
        slot = draft.ranges[entry, RANGE_SLOT]
        cell = draft.ranges[entry, LOW]
        if cell == slots[slot, CELL_START]:
            continue
        # Insertion: the lists are short.
        start = draft.position[slot] * n_leaves
        at = start + bounds[start]
        while at > start and bounds[at] > cell:
            at -= ONE
        if at > start and bounds[at] == cell:
            continue
        bounds[start] += ONE
        other = start + bounds[start]
        while other > at + ONE:
            bounds[other] = bounds[other - ONE]
            other -= ONE
        bounds[at + ONE] = cell
    n_segments = np.uint64(draft.pairs[first_pair, SEGMENT_START])
    for step in range(width):
        slot = draft.pairs[first_pair + step, SLOT]
        start = step * n_leaves
        segments[n_segments, LOW] = slots[slot, CELL_START]
        for index in range(start + ONE, start + ONE + bounds[start]):
            segments[n_segments, HIGH] = bounds[index] - ONE
            n_segments += ONE
            segments[n_segments, LOW] = bounds[index]
        segments[n_segments, HIGH] = slots[slot + ONE, CELL_START] - ONE
        n_segments += ONE
        draft.pairs[first_pair + step + ONE, SEGMENT_START] = n_segments


@inlined_kernel
def segment_in(bounds, start, cell):
    """Number of a pair's segment that holds a cell, from the list of `find_segments`."""
    segment = np.uint64(0)
    for index in range(start + ONE, start + ONE + bounds[start]):
        segment += np.uint64(bounds[index] <= cell)
    return segment


@inlined_kernel
def fill_entries(draft, leaves, first, last, width, start):
    """Segment ranges of a factor's leaves in each of its pairs."""
    ranges, bounds, entries = draft.ranges, draft.bounds, draft.entries
    n_leaves = last - first
    row = np.uint64(start)
    for leaf in range(first, last):
        for step in range(width):
            entries[row + step, LOW] = 0
            entries[row + step, HIGH] = bounds[step * n_leaves]
        for entry in range(
            np.uint64(leaves.range_start[leaf]), np.uint64(leaves.range_start[leaf + ONE])
        ):
            step = np.uint64(draft.position[ranges[entry, RANGE_SLOT]])
            entries[row + step, LOW] = segment_in(bounds, step * n_leaves, ranges[entry, LOW])
            entries[row + step, HIGH] = segment_in(bounds, step * n_leaves, ranges[entry, HIGH])
        row += width


@inlined_kernel
def add_unary(draft, leaves, first, last):
    """Add a tree of one slot to the unary terms."""
    for leaf in range(first, last):
        entry = np.uint64(leaves.range_start[leaf])
        draft.cells[draft.ranges[entry, LOW], EDGE] = 1
        for cell in range(draft.ranges[entry, LOW], draft.ranges[entry, HIGH] + ONE):
            draft.unary[cell] += leaves.leaf_gain[leaf]


@noalloc_kernel
def add_trees(draft, leaves, base):
    """Sort trees into constants, unary terms and factors.

    Returns
    -------
    base, gross  float64
    n_factors    int
    has_room     bool     False when entries or bounds do not suffice
    """
    factors = draft.factors
    gross = abs(base)
    n_factors = np.uint64(0)
    for tree in range(len(leaves.leaf_start) - 1):
        first = np.uint64(leaves.leaf_start[tree])
        last = np.uint64(leaves.leaf_start[tree + 1])
        if first == last:
            continue
        largest = 0.0
        for leaf in range(first, last):
            largest = max(largest, abs(leaves.leaf_gain[leaf]))
        gross += largest
        n_leaves = last - first
        if n_leaves == 1:
            base += leaves.leaf_gain[first]
            continue
        begin = np.uint64(leaves.range_start[first])
        end = np.uint64(leaves.range_start[last])
        first_pair = factors[n_factors, PAIR_START]
        width = find_pairs(draft, begin, end, tree, first_pair)
        if width == 1:
            add_unary(draft, leaves, first, last)
            continue
        first_leaf = factors[n_factors, LEAF_START]
        start = factors[n_factors, ENTRY_START]
        stop = start + n_leaves * width
        if stop > len(draft.entries) or n_leaves * width > len(draft.bounds):
            return base, gross, n_factors, False
        find_segments(draft, begin, end, n_leaves, first_pair, width)
        fill_entries(draft, leaves, first, last, width, start)
        for leaf in range(n_leaves):
            draft.leaf_gain[first_leaf + leaf] = leaves.leaf_gain[first + leaf]
        for step in range(width):
            draft.pairs[first_pair + step, FACTOR] = n_factors
        factors[n_factors, TREE] = tree
        n_factors += ONE
        factors[n_factors, LEAF_START] = first_leaf + n_leaves
        factors[n_factors, PAIR_START] = first_pair + width
        factors[n_factors, ENTRY_START] = stop
    return base, gross, n_factors, True


@inner_kernel
def build_problem(base, leaves, box):
    """The `Problem` of the `Leaves` of a `CellBox`; base is the gain before any tree."""
    n_trees = len(leaves.leaf_start) - 1
    n_ranges = len(leaves.feature)
    ranges = np.empty((n_ranges, 3), dtype=np.uint32)
    n_slots, slots = find_slots(leaves, len(box.low), ranges)
    cells = find_cells(leaves, box, n_slots, slots, ranges)
    factors = np.zeros((n_trees + 1, 4), dtype=np.uint32)
    gain = np.empty(len(leaves.leaf_gain), dtype=np.float64)
    pairs = np.zeros((n_ranges + 2, 3), dtype=np.uint32)
    segments = np.empty((2 * n_ranges + 2, 2), dtype=np.uint32)
    position = np.empty(n_slots, dtype=np.uint32)
    n_entries = 3 * n_ranges + 64
    # Ends: the room doubles until the entries fit.
    while True:
        unary = np.zeros(len(cells), dtype=np.float64)
        entries = np.empty((n_entries, 2), dtype=np.uint32)
        draft = Draft(
            slots, cells, unary, factors, gain, pairs, segments, entries, ranges,
            np.empty(n_entries, dtype=np.uint32), np.full(n_slots, NOTHING, dtype=np.uint32),
            position,
        )  # fmt: skip
        own, gross, count, has_room = add_trees(draft, leaves, base)
        if has_room:
            break
        n_entries *= 2
    n_factors = np.int64(count)
    n_pairs = np.int64(factors[n_factors, PAIR_START])
    terms = np.empty(2, dtype=np.float64)
    terms[BASE] = own
    terms[GROSS] = gross
    return Problem(
        terms, n_trees, n_slots, n_factors, n_pairs, slots, cells, unary,
        factors[: n_factors + 1], gain[: factors[n_factors, LEAF_START]], pairs[: n_pairs + 1],
        segments[: pairs[n_pairs, SEGMENT_START]], entries[: factors[n_factors, ENTRY_START]],
        index_pairs(n_slots, n_pairs, slots, pairs),
        new_conditions(np.int64(1), np.int64(0), np.int64(0)),
    )  # fmt: skip


@inner_kernel
def of_conditions(problem, table):
    """The problem of several conditions, whose sum its terms are once weights are applied."""
    return Problem(
        problem.terms, problem.n_trees, problem.n_slots, problem.n_factors, problem.n_pairs,
        problem.slots, problem.cells, problem.unary, problem.factors, problem.leaf_gain,
        problem.pairs, problem.segments, problem.entries, problem.slot_pair, table,
    )  # fmt: skip


@inner_kernel
def index_pairs(n_slots, n_pairs, slots, pairs):
    """List the pairs of each slot; fills PAIR_START of the slots."""
    for pair in range(n_pairs):
        slots[pairs[pair, SLOT] + ONE, PAIR_START] += ONE
    for slot in range(n_slots):
        slots[slot + 1, PAIR_START] += slots[slot, PAIR_START]
    slot_pair = np.empty(n_pairs, dtype=np.uint32)
    fill = np.empty(n_slots + 1, dtype=np.uint32)
    for slot in range(n_slots + 1):
        fill[slot] = slots[slot, PAIR_START]
    for pair in range(n_pairs):
        slot_pair[fill[pairs[pair, SLOT]]] = pair
        fill[pairs[pair, SLOT]] += ONE
    return slot_pair
