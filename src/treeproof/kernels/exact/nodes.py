"""Nodes that are searched later: boxes with their multipliers."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import grow_table
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.exact.problem import HIGH, LOW


class NodeStack(NamedTuple):
    """Nodes that are searched later."""

    # Multipliers, rest, constant, weights
    values: np.ndarray  # (capacity, n_segments + n_cells + 1 + n_conditions) float64
    boxes: np.ndarray  # (capacity, 2 * n_slots) int32; lows, then highs
    size: np.ndarray  # (1,) int64


@inner_kernel
def new_stack(state, capacity):
    """Empty stack with room for some nodes."""
    width = len(state.multiplier) + len(state.rest) + 1 + len(state.weight)
    return NodeStack(
        np.empty((capacity, width), dtype=np.float64),
        np.empty((capacity, 2 * len(state.box)), dtype=np.int32),
        np.zeros(1, dtype=np.int64),
    )


@inner_kernel
def with_room(stack, memory_bytes):
    """The stack, in larger arrays when it is full, and whether the memory allows for one more."""
    size = stack.size[0]
    if size < len(stack.values):
        return stack, True
    if 16.0 * size * (stack.values.shape[1] + stack.boxes.shape[1] // 2) > memory_bytes:
        return stack, False
    larger = NodeStack(
        grow_table(stack.values, 2 * size), grow_table(stack.boxes, 2 * size), stack.size
    )
    return larger, True


@noalloc_kernel
def push(stack, state):
    """Put multipliers, rest, constant, weights and box of a state onto a stack that has room."""
    top = stack.size[0]
    values, box = stack.values[top], stack.boxes[top]
    n_segments = len(state.multiplier)
    n_cells = len(state.rest)
    for index in range(n_segments):
        values[index] = state.multiplier[index]
    for index in range(n_cells):
        values[n_segments + index] = state.rest[index]
    values[n_segments + n_cells] = state.constant[0]
    for number in range(len(state.weight)):
        values[n_segments + n_cells + 1 + number] = state.weight[number]
    n_slots = len(state.box)
    for slot in range(n_slots):
        box[slot] = state.box[slot, LOW]
        box[n_slots + slot] = state.box[slot, HIGH]
    stack.size[0] = top + 1


@noalloc_kernel
def pop(stack, state):
    """Bring back what was pushed last."""
    top = stack.size[0] - 1
    values, box = stack.values[top], stack.boxes[top]
    n_segments = len(state.multiplier)
    n_cells = len(state.rest)
    for index in range(n_segments):
        state.multiplier[index] = values[index]
    for index in range(n_cells):
        state.rest[index] = values[n_segments + index]
    state.constant[0] = values[n_segments + n_cells]
    for number in range(len(state.weight)):
        state.weight[number] = values[n_segments + n_cells + 1 + number]
    n_slots = len(state.box)
    for slot in range(n_slots):
        state.box[slot, LOW] = box[slot]
        state.box[slot, HIGH] = box[n_slots + slot]
    stack.size[0] = top


@noalloc_kernel
def push_part(stack, state, slot, cell, is_right):
    """Push the part of the box left or right of a cut, and keep the other one."""
    push(stack, state)
    box = stack.boxes[stack.size[0] - 1]
    if is_right:
        box[slot] = cell + 1
        state.box[slot, HIGH] = cell
    else:
        box[len(state.box) + slot] = cell
        state.box[slot, LOW] = cell + 1
