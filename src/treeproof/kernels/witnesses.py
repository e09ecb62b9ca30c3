"""The best witness so far, and how points become one: reaching the need, moving closer."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.primal import ascend, count_misses, move_slot
from treeproof.kernels.problem import HIGH, LOW

NODES, SWEEPS, POINTS, RESTRICTIONS = 0, 1, 2, 3
"""Positions in the array of counts."""

REPAIR_ROUNDS = 2
"""Rounds of ascent after each step closer."""


class Target(NamedTuple):
    """What a search looks for, and the best that it has found.

    need        float64               value from which a point is worth judging
    floor       float64               no violation has a value below it
    distance    float64 (n_cells,)    radius at which each cell is reached
    is_beyond   bool    (n_cells,)    the radius is only approached (downward moves)
    upper       float64 (1,)          distance of the best witness; infinite without one
    is_open     bool    (1,)          the best witness only approaches `upper`
    counts      int64   (4,)          nodes, sweeps, points, restrictions
    point       int32   (n_slots,)    the point under consideration
    values      float64 (n_cells,)    scratch
    n_steps     int64   (1,)          steps by which the point was moved closer
    saved       int32   (n_slots, 4)  scratch: a box and two points
    misses      int16   (n_leaves,)   scratch, see `count_misses`
    is_stale    bool    (n_slots,)    scratch
    """

    need: float
    floor: float
    distance: np.ndarray
    is_beyond: np.ndarray
    upper: np.ndarray
    is_open: np.ndarray
    counts: np.ndarray
    point: np.ndarray
    values: np.ndarray
    n_steps: np.ndarray
    saved: np.ndarray
    misses: np.ndarray
    is_stale: np.ndarray


@inner_kernel
def new_target(problem, need, floor, distance, is_beyond, found):
    """Target of a search in a problem; ``found`` holds what is known about the row."""
    return Target(
        need,
        floor,
        distance,
        is_beyond,
        found.upper,
        found.is_open,
        found.counts,
        np.zeros(problem.n_slots, dtype=np.int32),
        np.empty(len(problem.unary), dtype=np.float64),
        np.zeros(1, dtype=np.int64),
        np.empty((problem.n_slots, 4), dtype=np.int32),
        np.empty(len(problem.leaf_gain), dtype=np.int16),
        np.empty(problem.n_slots, dtype=np.bool_),
    )


@noalloc_kernel
def shrink_box(problem, state, target, upper, is_open):
    """Keep only cells nearer than a witness; False when some slot has none left.

    A witness that only approaches its distance leaves room for one that attains it. Distances rise
    outwards from the row's own cell, so what remains of a box is again a box.
    """
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


@noalloc_kernel
def point_distance(problem, target):
    """Distance of `target.point`, and whether it is only approached."""
    largest = 0.0
    is_open = False
    for slot in range(problem.n_slots):
        cell = target.point[slot]
        if target.distance[cell] > largest:
            largest = target.distance[cell]
            is_open = target.is_beyond[cell]
        elif target.distance[cell] == largest and target.is_beyond[cell]:
            is_open = True
    return largest, is_open


@noalloc_kernel
def accept_point(problem, target):
    """Make the judged point the best witness."""
    target.n_steps[0] = 0
    target.upper[0], target.is_open[0] = point_distance(problem, target)


@noalloc_kernel
def climb(problem, state, target, rounds):
    """Value of `target.point` after at most that many rounds of ascent in the box."""
    for slot in range(problem.n_slots):
        target.is_stale[slot] = True
    value = count_misses(problem, state, target.point, target.misses)
    if value < target.need:
        value = ascend(
            problem, state, target.distance, target.point, value, target.need, rounds,
            target.misses, target.is_stale, target.values,
        )  # fmt: skip
    return value


@noalloc_kernel
def reaches_need(problem, state, target, rounds):
    """Whether `target.point`, after some rounds of ascent in the box, is worth judging.

    Then it is moved as near as small changes take it; `take_back` undoes that.
    """
    value = climb(problem, state, target, rounds)
    target.n_steps[0] = 0
    if value < target.need:
        return False
    descend(problem, state, target, value)
    return True


@noalloc_kernel
def descend(problem, state, target, value):
    """Move a point that reaches the need closer, threshold by threshold, while it still does.

    The farthest slots are moved inwards, and what that spoils is repaired by ascent among the slots
    concerned. The box stays as it was, since the point may yet be rejected.
    """
    saved = target.saved
    for slot in range(problem.n_slots):
        saved[slot, 0] = state.box[slot, LOW]
        saved[slot, 1] = state.box[slot, HIGH]
        saved[slot, 2] = target.point[slot]
    while True:
        for slot in range(problem.n_slots):
            saved[slot, 3] = target.point[slot]
        upper, is_open = point_distance(problem, target)
        if (upper == 0.0 and not is_open) or not shrink_box(problem, state, target, upper, is_open):
            break
        for slot in range(problem.n_slots):
            here = target.point[slot]
            nearer = min(max(here, state.box[slot, LOW]), state.box[slot, HIGH])
            if nearer != here:
                target.point[slot] = nearer
                value += move_slot(
                    problem, state, slot, here, nearer, target.misses, target.is_stale
                )
                target.is_stale[slot] = True
        if value < target.need:
            value = ascend(
                problem, state, target.distance, target.point, value, target.need,
                np.int64(REPAIR_ROUNDS), target.misses, target.is_stale, target.values,
            )  # fmt: skip
            if value < target.need:
                break
        target.n_steps[0] += 1
    for slot in range(problem.n_slots):
        state.box[slot, LOW] = saved[slot, 0]
        state.box[slot, HIGH] = saved[slot, 1]
        target.point[slot] = saved[slot, 3]


@noalloc_kernel
def take_back(problem, target):
    """Undo the descent of `target.point`; False when there was none."""
    if target.n_steps[0] == 0:
        return False
    target.n_steps[0] = 0
    for slot in range(problem.n_slots):
        target.point[slot] = target.saved[slot, 2]
    return True
