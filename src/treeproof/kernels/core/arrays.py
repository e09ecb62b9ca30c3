"""Copying, growing and sorting of arrays in plain loops.

NumPy's own assignments to slices and sorts do the same, but take seconds to compile.
"""

from typing import Any

import numpy as np

from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel


def record_type(fields: list[tuple[str, Any]]) -> np.dtype[Any]:
    """Type of structures whose fields are attributes, in plain Python as in machine code."""
    return np.dtype((np.record, fields))


@noalloc_kernel
def copy_into(target, source):
    """Copy a one-dimensional array into the beginning of another."""
    for index in range(len(source)):
        target[index] = source[index]


@inner_kernel
def grown(array, size):
    """Copy of a one-dimensional array with room for at least `size` entries."""
    larger = np.empty(max(size, 2 * len(array)), dtype=array.dtype)
    copy_into(larger, array)
    return larger


@inner_kernel
def grow_table(table, n_rows):
    """Copy of a two-dimensional array with room for at least `n_rows` rows."""
    larger = np.empty((max(n_rows, 2 * table.shape[0]), table.shape[1]), dtype=table.dtype)
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            larger[row, column] = table[row, column]
    return larger


@inner_kernel
def sorted_order(values, is_rising):
    """Positions that sort values, without NaN, up or down; equal values keep their order."""
    n = len(values)
    order = np.empty(n, dtype=np.int64)
    for index in range(n):
        order[index] = index
    buffer = np.empty(n, dtype=np.int64)
    width = 1
    while width < n:
        for begin in range(0, n, 2 * width):
            middle = min(begin + width, n)
            end = min(begin + 2 * width, n)
            left = begin
            right = middle
            for at in range(begin, end):
                takes_left = right >= end
                if left < middle and right < end:
                    one = values[order[left]]
                    other = values[order[right]]
                    takes_left = one <= other if is_rising else one >= other
                if takes_left:
                    buffer[at] = order[left]
                    left += 1
                else:
                    buffer[at] = order[right]
                    right += 1
        order, buffer = buffer, order
        width *= 2
    return order
