"""Boxes that wait for trees of their own, with the multipliers that they have in others.

A box of a search is left here once trees of its own pay. Its trees have fewer leaves then, and
start from the multipliers that brought its bound down so far, not from 0.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import grow_table
from treeproof.kernels.core.compiler import ONE, inner_kernel, noalloc_kernel
from treeproof.kernels.exact.open_boxes import (
    OpenBoxes,
    add_place,
    new_open_boxes,
    take_place,
    with_places,
)
from treeproof.kernels.exact.problem import (
    FEATURE,
    HIGH,
    LOW,
    PAIR_START,
    SEGMENT_START,
    SLOT,
    TREE,
)

BYTES_PER_ENTRY = 16.0
"""Of multipliers, while they are copied to a larger table."""


class Frontier(NamedTuple):
    """Boxes, and what is kept of their multipliers.

    For each tree and each column that it tests there are entries: the number of the tree as
    ``-1 - tree``, the column, and the first cell of each segment, with its multiplier.

    boxes  OpenBoxes              of columns, without multipliers
    kept   int64   (capacity, 2)  LOW, HIGH: the first entry of each place, and that after the last
    key    int32   (n_entries,)
    value  float32 (n_entries,)   any numbers give a bound: half the digits will do
    used   int64   (3,)           entries in use; of the box taken last, as `kept`
    """

    boxes: OpenBoxes
    kept: np.ndarray
    key: np.ndarray
    value: np.ndarray
    used: np.ndarray


@inner_kernel
def new_frontier(n_columns):
    """No boxes, of that many columns."""
    return Frontier(
        new_open_boxes(np.int64(0), n_columns),
        np.zeros((8, 2), dtype=np.int64),
        np.empty(0, dtype=np.int32),
        np.empty(0, dtype=np.float32),
        np.zeros(3, dtype=np.int64),
    )


@inner_kernel
def with_room_for(frontier, problem, memory_bytes):
    """The frontier, larger where it is full, and whether the memory allows for one more box.

    Where it does not allow for the multipliers of a box of the problem, there is no room for those.
    """
    boxes, has_room = with_places(frontier.boxes, memory_bytes)
    kept, key, value = frontier.kept, frontier.key, frontier.value
    if len(kept) < len(boxes.heap):
        kept = grow_table(kept, len(boxes.heap))
    n_entries = most_entries(problem)
    if frontier.used[0] + n_entries > len(key):
        n_kept = np.int64(0)
        for at in range(boxes.size[0]):
            n_kept += kept[boxes.heap[at], HIGH] - kept[boxes.heap[at], LOW]
        size = 2 * (n_kept + n_entries)
        if BYTES_PER_ENTRY * size <= memory_bytes:
            # Entries of boxes that are gone are left behind.
            key, value = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.float32)
            used = np.int64(0)
            for at in range(boxes.size[0]):
                place = boxes.heap[at]
                first = used
                for entry in range(kept[place, LOW], kept[place, HIGH]):
                    key[used] = frontier.key[entry]
                    value[used] = frontier.value[entry]
                    used += 1
                kept[place, LOW], kept[place, HIGH] = first, used
            frontier.used[0] = used
    return Frontier(boxes, kept, key, value, frontier.used), has_room


@noalloc_kernel
def most_entries(problem):
    """Most entries that a box of a problem can need."""
    return np.int64(2 * problem.n_pairs + len(problem.segments))


@noalloc_kernel
def leave(frontier, problem, state, bound):
    """Leave the state's box to the frontier; returns its place, where its cells are to be written.

    Multipliers are left as well if there is room.
    """
    place = add_place(frontier.boxes, bound)
    used = frontier.used[0]
    key, value = frontier.key, frontier.value
    frontier.kept[place, LOW] = used
    n_factors = problem.n_factors if used + most_entries(problem) <= len(key) else 0
    for factor in range(n_factors):
        first_pair = problem.factors[factor, PAIR_START]
        for step in range(state.n_active[factor]):
            pair = state.active[first_pair + step]
            key[used] = -1 - np.int64(problem.factors[factor, TREE])
            key[used + 1] = problem.slots[problem.pairs[pair, SLOT], FEATURE]
            used += 2
            start = problem.pairs[pair, SEGMENT_START]
            for segment in range(
                start + state.span[pair, LOW], start + state.span[pair, HIGH] + ONE
            ):
                key[used] = problem.cells[state.reach[segment, LOW], LOW]
                value[used] = state.multiplier[segment]
                used += 1
    frontier.kept[place, HIGH] = used
    frontier.used[0] = used
    return place


@noalloc_kernel
def write_box(problem, state, box, row):
    """Write the first, then the last cells of all columns in the state's box to a row.

    box  CellBox  of the problem, for columns that do not matter in it
    """
    n_columns = len(box.low)
    for column in range(n_columns):
        row[column] = box.low[column]
        row[n_columns + column] = box.high[column]
    for slot in range(problem.n_slots):
        column = problem.slots[slot, FEATURE]
        row[column] = problem.cells[state.box[slot, LOW], LOW]
        row[n_columns + column] = problem.cells[state.box[slot, HIGH], HIGH]


@noalloc_kernel
def take(frontier):
    """Take the box with the largest bound out; returns its place, as `take_place`."""
    place = take_place(frontier.boxes)
    frontier.used[1], frontier.used[2] = frontier.kept[place, LOW], frontier.kept[place, HIGH]
    return place


@noalloc_kernel
def inherit(frontier, problem, state):
    """Give the state the multipliers of the box that was taken last; none for the first problem.

    The problem has the trees of that box, numbered as those of the problem that left it. Sound: any
    multipliers give a bound. It is no larger than the one left: fewer leaves are left in a segment,
    never others, so that segments that have become one are ends of the same leaves.
    """
    key = frontier.key
    at, end = frontier.used[1], frontier.used[2]
    for factor in range(problem.n_factors):
        tree = -1 - np.int64(problem.factors[factor, TREE])
        # Both are in the order of trees; keys of trees are below 0, and fall.
        while at < end and (key[at] >= 0 or key[at] > tree):
            at += 1
        # Ends: the place moves on.
        while at < end and key[at] == tree:
            last = at + 2
            while last < end and key[last] >= 0:
                last += 1
            for pair in range(
                problem.factors[factor, PAIR_START], problem.factors[factor + 1, PAIR_START]
            ):
                if problem.slots[problem.pairs[pair, SLOT], FEATURE] == key[at + 1]:
                    fill_pair(frontier, problem, state, pair, at + 2, last)
            at = last


@noalloc_kernel
def fill_pair(frontier, problem, state, pair, at, last):
    """Set the multipliers of a pair to the largest that were kept of each segment's cells.

    at, last  int  the first entry of a segment, and the one after the last
    """
    key, value = frontier.key, frontier.value
    for segment in range(
        problem.pairs[pair, SEGMENT_START], problem.pairs[pair + 1, SEGMENT_START]
    ):
        low = np.int64(problem.cells[problem.segments[segment, LOW], LOW])
        high = np.int64(problem.cells[problem.segments[segment, HIGH], HIGH])
        while at + 1 < last and key[at + 1] <= low:
            at += 1
        largest = value[at]
        other = at + 1
        while other < last and key[other] <= high:
            largest = max(largest, value[other])
            other += 1
        state.multiplier[segment] = largest
