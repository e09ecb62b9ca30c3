"""The best witness so far, and how points become one: reaching the need, moving closer."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.compiler import borrowing_kernel, kernel
from treeproof.kernels.primal import ascend, clip_point, count_misses
from treeproof.kernels.problem import HIGH, LOW

NODES, SWEEPS, POINTS, RESTRICTIONS = 0, 1, 2, 3
"""Positions in the array of counts."""


class Target(NamedTuple):
    """What a search looks for, and the best that it has found.

    need        float64               value from which a point is worth judging
    floor       float64               no violation has a value below it
    distance    float64 (n_cells,)    radius at which each cell is reached
    is_beyond   bool    (n_cells,)    the radius is only approached (downward moves)
    lower       float64 (1,)          no violation is nearer
    upper       float64 (1,)          distance of the best witness; infinite without one
    is_open     bool    (1,)          the best witness only approaches `upper`
    counts      int64   (4,)          nodes, sweeps, points, restrictions
    point       int32   (n_slots,)    the point under consideration
    values      float64 (n_cells,)    scratch
    n_steps     int64   (1,)          how often the witness was moved closer without failing
    saved       int32   (n_slots, 3)  scratch: a box and a point
    misses      int16   (n_leaves,)   scratch, see `count_misses`
    is_stale    bool    (n_slots,)    scratch
    """

    need: float
    floor: float
    distance: np.ndarray
    is_beyond: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    is_open: np.ndarray
    counts: np.ndarray
    point: np.ndarray
    values: np.ndarray
    n_steps: np.ndarray
    saved: np.ndarray
    misses: np.ndarray
    is_stale: np.ndarray


@kernel
def new_target(problem, need, floor, distance, is_beyond, found):
    """Target of a search in a problem; ``found`` holds what is known about the row."""
    return Target(
        need,
        floor,
        distance,
        is_beyond,
        found.lower,
        found.upper,
        found.is_open,
        found.counts,
        np.zeros(problem.n_slots, dtype=np.int32),
        np.empty(len(problem.unary), dtype=np.float64),
        np.zeros(1, dtype=np.int64),
        np.empty((problem.n_slots, 3), dtype=np.int32),
        np.empty(len(problem.leaf_gain), dtype=np.int16),
        np.empty(problem.n_slots, dtype=np.bool_),
    )


@borrowing_kernel
def shrink_box(problem, state, target):
    """Keep only cells nearer than the best witness; False when some slot has none left.

    A witness that only approaches its distance leaves room for one that attains it. Distances rise
    outwards from the row's own cell, so what remains of a box is again a box.
    """
    upper = target.upper[0]
    is_open = target.is_open[0]
    distance = target.distance
    for slot in range(problem.n_slots):
        low = state.box[slot, LOW]
        high = state.box[slot, HIGH]
        while low <= high and (
            distance[low] > upper
            or (distance[low] == upper and (target.is_beyond[low] or not is_open))
        ):
            low += 1
        while low <= high and (
            distance[high] > upper
            or (distance[high] == upper and (target.is_beyond[high] or not is_open))
        ):
            high -= 1
        state.box[slot, LOW] = low
        state.box[slot, HIGH] = high
        if low > high:
            return False
    return True


@borrowing_kernel
def accept_point(problem, target):
    """Make the judged point the best witness."""
    largest = 0.0
    is_open = False
    for slot in range(problem.n_slots):
        cell = target.point[slot]
        if target.distance[cell] > largest:
            largest = target.distance[cell]
            is_open = target.is_beyond[cell]
        elif target.distance[cell] == largest and target.is_beyond[cell]:
            is_open = True
    target.upper[0] = largest
    target.is_open[0] = is_open


@borrowing_kernel
def reaches_need(problem, state, target, rounds):
    """Whether `target.point`, after some rounds of ascent in the box, is worth judging."""
    value = count_misses(problem, state, target.point, target.misses)
    if value < target.need:
        value = ascend(
            problem, state, target.distance, target.point, value, target.need, rounds,
            target.misses, target.is_stale, target.values,
        )  # fmt: skip
    return value >= target.need


@borrowing_kernel
def steps_closer(problem, state, target):
    """Whether a point worth judging lies near the witness in what is left of the box.

    The witness is moved just inside. Such steps from threshold to threshold can be many; after a
    few good ones, halfway to the lower bound is tried first.
    """
    target.n_steps[0] += 1
    if target.n_steps[0] % 2 == 0 and leaps_closer(problem, state, target, 0):
        target.n_steps[0] -= 1
        return True
    clip_point(problem, state, target.point)
    if reaches_need(problem, state, target, 0):
        return True
    target.n_steps[0] = 0
    return False


@borrowing_kernel
def leaps_closer(problem, state, target, rounds):
    """Whether a point worth judging is in reach halfway between the bounds; then it is taken.

    The box stays as it was, since the point may yet be rejected.
    """
    middle = 0.5 * (target.lower[0] + target.upper[0])
    if not middle < target.upper[0] or not np.isfinite(middle):
        return False
    is_empty = False
    for slot in range(problem.n_slots):
        low = state.box[slot, LOW]
        high = state.box[slot, HIGH]
        target.saved[slot, 0] = low
        target.saved[slot, 1] = high
        target.saved[slot, 2] = target.point[slot]
        while low <= high and target.distance[low] > middle:
            low += 1
        while low <= high and target.distance[high] > middle:
            high -= 1
        is_empty = is_empty or low > high
        state.box[slot, LOW] = low
        state.box[slot, HIGH] = high
    is_in_reach = False
    if not is_empty:
        clip_point(problem, state, target.point)
        is_in_reach = reaches_need(problem, state, target, rounds)
    for slot in range(problem.n_slots):
        state.box[slot, LOW] = target.saved[slot, 0]
        state.box[slot, HIGH] = target.saved[slot, 1]
        if not is_in_reach:
            target.point[slot] = target.saved[slot, 2]
    return is_in_reach
