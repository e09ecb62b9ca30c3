"""Open boxes of a search for an optimum, as a heap by their bounds."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import grow_table, grown
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.core.status import MEMORY_LIMIT, PROVED, UNDECIDED
from treeproof.kernels.exact.branching import peaks_right
from treeproof.kernels.exact.problem import HIGH, LOW

BOUND, PARENT, SIDE, CUT_OFF = 0, 1, 2, 3
"""What is known of a box: its bound, and the split that made it: the bound before it, twice the
column plus 1 for the right part, and the boundaries that it cut off."""


class OpenBoxes(NamedTuple):
    """Boxes that are not closed yet.

    multiplier  float32 (capacity, n)           of segments, and weights of conditions; any numbers
                                                give a bound: half the digits will do
    box         int32   (capacity, 2 * n)       first, then last cells of all slots or columns
    known       float64 (capacity, 4)           BOUND, PARENT, SIDE, CUT_OFF
    heap        int64   (capacity,)             places, the largest bound first
    size        int64   (1,)                    open boxes; the places of heap beyond are free
    """

    multiplier: np.ndarray
    box: np.ndarray
    known: np.ndarray
    heap: np.ndarray
    size: np.ndarray


@inner_kernel
def new_open_boxes(n_multipliers, n_slots):
    """No boxes, of some slots, each with some multipliers and weights."""
    capacity = 8
    heap = np.empty(capacity, dtype=np.int64)
    for place in range(capacity):
        heap[place] = place
    return OpenBoxes(
        np.empty((capacity, n_multipliers), dtype=np.float32),
        np.empty((capacity, 2 * n_slots), dtype=np.int32),
        np.zeros((capacity, 4), dtype=np.float64),
        heap,
        np.zeros(1, dtype=np.int64),
    )


@inner_kernel
def with_places(boxes, memory_bytes):
    """The boxes, in larger arrays when full, and whether the memory allows for two more."""
    size = boxes.size[0]
    if size + 2 <= len(boxes.heap):
        return boxes, True
    if 8.0 * size * (boxes.multiplier.shape[1] + boxes.box.shape[1] + 12) > memory_bytes:
        return boxes, False
    heap = grown(boxes.heap, 2 * size)
    # Places that are free already stay as they are: they need not be the last ones.
    for place in range(len(boxes.heap), len(heap)):
        heap[place] = place
    larger = OpenBoxes(
        grow_table(boxes.multiplier, 2 * size), grow_table(boxes.box, 2 * size),
        grow_table(boxes.known, 2 * size), heap, boxes.size,
    )  # fmt: skip
    return larger, True


@noalloc_kernel
def top_bound(boxes):
    """The largest bound of an open box; minus infinity without one."""
    return boxes.known[boxes.heap[0], BOUND] if boxes.size[0] > 0 else -np.inf


@noalloc_kernel
def add_place(boxes, bound):
    """A place for one more box, where there is room; its contents are up to the caller."""
    at = boxes.size[0]
    place = boxes.heap[at]
    boxes.known[place, BOUND] = bound
    boxes.size[0] = at + 1
    # Ends: the place moves up the heap.
    while at > 0:
        above = (at - 1) // 2
        if boxes.known[boxes.heap[above], BOUND] >= bound:
            break
        boxes.heap[at] = boxes.heap[above]
        boxes.heap[above] = place
        at = above
    return place


@noalloc_kernel
def take_place(boxes):
    """Take the box with the largest bound out; its place holds it until another one is added."""
    place = boxes.heap[0]
    size = boxes.size[0] - 1
    boxes.size[0] = size
    moved = boxes.heap[size]
    boxes.heap[size] = place
    at = 0
    # Ends: the place moves down the heap.
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and (
            boxes.known[boxes.heap[below + 1], BOUND] > boxes.known[boxes.heap[below], BOUND]
        ):
            below += 1
        if boxes.known[boxes.heap[below], BOUND] <= boxes.known[moved, BOUND]:
            break
        boxes.heap[at] = boxes.heap[below]
        at = below
    if size > 0:
        boxes.heap[at] = moved
    return place


@noalloc_kernel
def save_state(boxes, place, state):
    """Write the state's box, multipliers and weights to a place."""
    n_segments = len(state.multiplier)
    for index in range(n_segments):
        boxes.multiplier[place, index] = state.multiplier[index]
    for number in range(len(state.weight)):
        boxes.multiplier[place, n_segments + number] = state.weight[number]
    n_slots = len(state.box)
    for slot in range(n_slots):
        boxes.box[place, slot] = state.box[slot, LOW]
        boxes.box[place, n_slots + slot] = state.box[slot, HIGH]


@noalloc_kernel
def load_state(boxes, place, state):
    """Bring back what was saved at a place."""
    n_segments = len(state.multiplier)
    for index in range(n_segments):
        state.multiplier[index] = boxes.multiplier[place, index]
    for number in range(len(state.weight)):
        state.weight[number] = boxes.multiplier[place, n_segments + number]
    n_slots = len(state.box)
    for slot in range(n_slots):
        state.box[slot, LOW] = boxes.box[place, slot]
        state.box[slot, HIGH] = boxes.box[place, n_slots + slot]


@noalloc_kernel
def part_peak(state, slot, cell, is_right):
    """Largest marginal of the cells of a slot right of a cut, or left of it."""
    low = cell + 1 if is_right else state.box[slot, LOW]
    high = state.box[slot, HIGH] if is_right else cell
    peak = state.marginal[low]
    for other in range(low + 1, high + 1):
        peak = max(peak, state.marginal[other])
    return peak


@noalloc_kernel
def set_part_aside(boxes, state, slot, cell, bound, above):
    """Keep the more promising part of the state's box, and put the other one aside.

    bound  float64  that the marginals belong to
    above  float64  a bound of the box

    Returns the place of the part, and whether the other one is right of the cut.
    """
    is_right = peaks_right(state, slot, cell)
    # Sound: the part without the best cell costs at least what its own best cell does.
    other = min(part_peak(state, slot, cell, not is_right), 0.0)
    place = add_place(boxes, min(above, bound + other))
    save_state(boxes, place, state)
    if is_right:
        boxes.box[place, len(state.box) + slot] = cell
        state.box[slot, LOW] = cell + 1
    else:
        boxes.box[place, slot] = cell + 1
        state.box[slot, HIGH] = cell
    return place, is_right


@inner_kernel
def next_box(boxes, state, slot, cell, bound, memory_bytes):
    """Go on with a part of the state's box, or without a cut with the box of the largest bound.

    slot, cell  int  where the state's box is cut, see `set_part_aside`; -1 where it is closed

    Returns the boxes, and UNDECIDED; PROVED where none is left; or MEMORY_LIMIT.
    """
    boxes, has_room = with_places(boxes, memory_bytes)
    if not has_room:
        return boxes, MEMORY_LIMIT
    if slot >= 0:
        set_part_aside(boxes, state, slot, cell, bound, np.inf)
    elif boxes.size[0] > 0:
        load_state(boxes, take_place(boxes), state)
    else:
        return boxes, PROVED
    return boxes, UNDECIDED
