"""Parts of a box that wait to be searched."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.problem import HIGH, LOW


class OpenBoxes(NamedTuple):
    """Parts that are searched later, and how the current one is to be taken up.

    values  float64 (capacity, n_segments + n_cells + 1)  multipliers, rest, constant
    boxes   int32   (capacity, 2 * n_slots)               lows, then highs
    n_open  int64   (1,)
    """

    values: np.ndarray
    boxes: np.ndarray
    n_open: np.ndarray


@inner_kernel
def new_waiting(problem, state):
    """Room for a few open boxes."""
    size = len(state.multiplier) + len(state.rest) + 1
    return OpenBoxes(
        np.empty((8, size), dtype=np.float64),
        np.empty((8, 2 * problem.n_slots), dtype=np.int32),
        np.zeros(1, dtype=np.int64),
    )


@noalloc_kernel
def save_open(state, values, box):
    """Keep multipliers, rest, constant and box of a part that is searched later."""
    n_segments = len(state.multiplier)
    n_cells = len(state.rest)
    for index in range(n_segments):
        values[index] = state.multiplier[index]
    for index in range(n_cells):
        values[n_segments + index] = state.rest[index]
    values[n_segments + n_cells] = state.constant[0]
    n_slots = len(state.box)
    for slot in range(n_slots):
        box[slot] = state.box[slot, LOW]
        box[n_slots + slot] = state.box[slot, HIGH]


@noalloc_kernel
def load_open(state, values, box):
    """Bring back what `save_open` kept."""
    n_segments = len(state.multiplier)
    n_cells = len(state.rest)
    for index in range(n_segments):
        state.multiplier[index] = values[index]
    for index in range(n_cells):
        state.rest[index] = values[n_segments + index]
    state.constant[0] = values[n_segments + n_cells]
    n_slots = len(state.box)
    for slot in range(n_slots):
        state.box[slot, LOW] = box[slot]
        state.box[slot, HIGH] = box[n_slots + slot]
