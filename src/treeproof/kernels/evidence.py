"""Proofs written down: the branching of a box, and rounded multipliers wherever they close it.

The record is what docs/reference/evidence.md describes. Any multipliers give a bound, so they are
rounded first, and what is recorded has been seen to close its box with the rounded ones.
"""

import math
from typing import NamedTuple

import numpy as np

from treeproof.kernels.arrays import copy_into, grow_table, sorted_order
from treeproof.kernels.branching import choose_branch, eliminate
from treeproof.kernels.certified import marginals, refresh
from treeproof.kernels.clock import seconds_now
from treeproof.kernels.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.dual import sweep
from treeproof.kernels.entering import enter_box
from treeproof.kernels.problem import (
    FACTOR,
    FEATURE,
    HIGH,
    LOW,
    SEGMENT_START,
    SLOT,
    TREE,
)
from treeproof.kernels.waiting import OpenBoxes, load_open, new_waiting, save_open

RECORDED, NODE_LIMIT, TIME_LIMIT, MEMORY_LIMIT = 0, 1, 2, 3
PLAIN, LAMBDA, SPLIT, TRIM, EXACT = 80, 76, 83, 84, 69
"""The letters P, L, S, T, E."""

MOST_SWEEPS = 60
PATIENCE = 6.0
"""Sweeping ends when that many more sweeps like the last one would not close the box."""


class Tape(NamedTuple):
    """Bytes of a record; ``used`` is overwritten in place.

    data  uint8 (capacity,)
    used  int64 (1,)
    """

    data: np.ndarray
    used: np.ndarray


class Recorder(NamedTuple):
    """What recording a problem needs beside its state.

    order     int64   (n_pairs,)     pairs by tree, then feature
    kept      float64 (n_segments,)  multipliers before rounding
    before    int32   (n_slots, 2)   box before trimming
    exponent  int64   (1,)           multipliers are multiples of 2**exponent
    least     int                    smallest exponent that may be used
    """

    order: np.ndarray
    kept: np.ndarray
    before: np.ndarray
    exponent: np.ndarray
    least: int


@inner_kernel
def new_tape(size):
    """Empty tape."""
    return Tape(np.empty(size, dtype=np.uint8), np.zeros(1, dtype=np.int64))


@inner_kernel
def with_room(tape, size):
    """The tape, in a larger array where `size` more bytes would not fit."""
    needed = tape.used[0] + size
    if needed <= len(tape.data):
        return tape
    larger = np.empty(max(needed, 2 * len(tape.data)), dtype=np.uint8)
    copy_into(larger, tape.data[: tape.used[0]])
    return Tape(larger, tape.used)


@noalloc_kernel
def put(tape, value, n_bytes):
    """Append an integer, little-endian, in two's complement."""
    position = tape.used[0]
    for _ in range(n_bytes):
        tape.data[position] = value & 255
        value >>= 8
        position += 1
    tape.used[0] = position


@inner_kernel
def new_recorder(problem, n_features, least):
    """Scratch for a problem; pairs are listed by tree and feature."""
    key = np.empty(problem.n_pairs, dtype=np.int64)
    for pair in range(problem.n_pairs):
        tree = problem.factors[problem.pairs[pair, FACTOR], TREE]
        feature = problem.slots[problem.pairs[pair, SLOT], FEATURE]
        key[pair] = np.int64(tree) * n_features + feature
    return Recorder(
        sorted_order(key, True),
        np.zeros(len(problem.segments), dtype=np.float64),
        np.zeros((problem.n_slots, 2), dtype=np.int32),
        np.zeros(1, dtype=np.int64),
        least,
    )


@noalloc_kernel
def round_multipliers(problem, state, recorder, n_bytes):
    """Replace the multipliers by multiples of a power of two that fit into so many bytes.

    The first segment of a pair that meets the box becomes 0, which no bound notices: what all
    segments of a pair have in common only moves between the factor and the slot. Segments outside
    the box do not matter and become 0, too.
    """
    multiplier = state.multiplier
    largest = 0.0
    for pair in range(problem.n_pairs):
        start = problem.pairs[pair, SEGMENT_START]
        stop = problem.pairs[pair + 1, SEGMENT_START]
        first = start + state.span[pair, LOW]
        last = start + state.span[pair, HIGH]
        shift = multiplier[first]
        for segment in range(start, stop):
            if segment <= first or segment > last:
                multiplier[segment] = 0.0
            else:
                multiplier[segment] -= shift
                largest = max(largest, abs(multiplier[segment]))
    exponent = 0
    if largest > 0.0:
        # Sound: the quotient is below 2**exponent, so no multiple exceeds its bytes.
        _, exponent = math.frexp(largest / (2.0 ** (8 * n_bytes - 1) - 1.0))
    exponent = max(exponent, recorder.least)
    recorder.exponent[0] = exponent
    for segment in range(len(multiplier)):
        steps = np.rint(math.ldexp(multiplier[segment], -exponent))
        multiplier[segment] = math.ldexp(steps, exponent)


@inner_kernel
def put_multipliers(problem, state, recorder, tape, n_bytes):
    """Append the rounded multipliers of all pairs but for each pair's first segment."""
    exponent = recorder.exponent[0]
    tape = with_room(tape, 3 + n_bytes * len(state.multiplier))
    put(tape, exponent, 2)
    put(tape, n_bytes, 1)
    for index in range(problem.n_pairs):
        pair = recorder.order[index]
        start = problem.pairs[pair, SEGMENT_START]
        stop = problem.pairs[pair + 1, SEGMENT_START]
        # The first segment is 0 by convention; where it lies outside the box, so it is already.
        for segment in range(start + 1, stop):
            put(tape, np.int64(math.ldexp(state.multiplier[segment], -exponent)), n_bytes)
    return tape


@noalloc_kernel
def closes_rounded(problem, state, recorder, floor, margin):
    """Round as coarsely as the margin allows; returns the bytes per multiplier, or 0.

    On success the state holds the rounded multipliers; otherwise those it had.
    """
    for index in range(len(state.multiplier)):
        recorder.kept[index] = state.multiplier[index]
    for n_bytes in (1, 2, 4):
        round_multipliers(problem, state, recorder, n_bytes)
        step = math.ldexp(1.0, recorder.exponent[0])
        # Rounding errors mostly cancel: a quarter of a step per pair is a fair guess of their sum.
        if n_bytes == 4 or 0.25 * step * problem.n_pairs < margin:
            bound, error = refresh(problem, state)
            if bound + error < floor:
                return n_bytes
        for index in range(len(state.multiplier)):
            state.multiplier[index] = recorder.kept[index]
    refresh(problem, state)
    return 0


@noalloc_kernel
def close_box(problem, state, recorder, floor):
    """Sweep until rounded multipliers close the box; returns their bytes, or 0 if they do not."""
    bound = enter_box(problem, state)
    turn = 0
    while True:
        if bound < floor:
            bound, error = refresh(problem, state)
            if bound + error < floor:
                n_bytes = closes_rounded(problem, state, recorder, floor, floor - bound - error)
                if n_bytes > 0:
                    return n_bytes
        if turn == MOST_SWEEPS:
            return 0
        before = bound
        bound = sweep(problem, state, turn % 2 == 0, bound, floor)
        turn += 1
        if bound >= floor and turn >= 2 and bound - floor > PATIENCE * (before - bound):
            return 0


@noalloc_kernel
def trim(problem, state, recorder, floor):
    """Drop end cells by rounded multipliers.

    Returns
    -------
    n_trimmed  int      slots that lost cells
    is_open    bool     False when a slot has none left
    gap        float64  how far the bound is above the floor
    """
    round_multipliers(problem, state, recorder, 4)
    bound, error = refresh(problem, state)
    marginals(problem, state)
    for slot in range(problem.n_slots):
        recorder.before[slot, LOW] = state.box[slot, LOW]
        recorder.before[slot, HIGH] = state.box[slot, HIGH]
    is_open = eliminate(problem, state, bound + 2.0 * error, floor) > 0.0
    n_trimmed = 0
    for slot in range(problem.n_slots):
        if (
            recorder.before[slot, LOW] != state.box[slot, LOW]
            or recorder.before[slot, HIGH] != state.box[slot, HIGH]
        ):
            n_trimmed += 1
    return n_trimmed, is_open, bound + 2.0 * error - floor


@inner_kernel
def put_trims(problem, state, recorder, tape, n_trimmed):
    """Append multipliers, and what is left of every slot that lost cells."""
    tape = with_room(tape, 1)
    put(tape, TRIM, 1)
    tape = put_multipliers(problem, state, recorder, tape, 4)
    tape = with_room(tape, 4 + 12 * n_trimmed)
    put(tape, n_trimmed, 4)
    cells = problem.cells
    for slot in range(problem.n_slots):
        low = state.box[slot, LOW]
        high = state.box[slot, HIGH]
        last = recorder.before[slot, HIGH]
        if recorder.before[slot, LOW] == low and last == high:
            continue
        first_left = cells[low, LOW] if low <= last else cells[last, HIGH] + 1
        put(tape, problem.slots[slot, FEATURE], 4)
        put(tape, first_left, 4)
        put(tape, cells[high, HIGH] if low <= high else first_left - 1, 4)
    return tape


@inner_kernel
def record_problem(problem, state, recorder, tape, floor, node_limit, deadline, memory_limit):
    """Prove that a problem stays below the floor, and write the proof down.

    Returns
    -------
    status  int   RECORDED, or the limit that was reached
    tape    Tape  with the nodes of the proof in preorder, left parts first
    """
    n_slots = problem.n_slots
    clock = np.empty(2, dtype=np.int64)
    waiting = new_waiting(problem, state)
    n_nodes = 0
    while True:
        n_nodes += 1
        if n_nodes > node_limit:
            return NODE_LIMIT, tape
        if n_nodes > 1 and seconds_now(clock) > deadline:
            return TIME_LIMIT, tape
        is_open = False
        n_bytes = close_box(problem, state, recorder, floor)
        if n_bytes > 0:
            tape = with_room(tape, 1)
            put(tape, LAMBDA, 1)
            tape = put_multipliers(problem, state, recorder, tape, n_bytes)
        else:
            n_trimmed, is_open, gap = trim(problem, state, recorder, floor)
            if n_trimmed > 0:
                tape = put_trims(problem, state, recorder, tape, n_trimmed)
        if is_open:
            slot, cell = choose_branch(problem, state, gap)
            tape = with_room(tape, 9)
            if slot < 0:
                put(tape, EXACT, 1)
                is_open = False
            else:
                put(tape, SPLIT, 1)
                put(tape, problem.slots[slot, FEATURE], 4)
                put(tape, problem.cells[cell, HIGH], 4)
        if is_open:
            number = waiting.n_open[0]
            if number == len(waiting.values):
                if 16.0 * number * (waiting.values.shape[1] + n_slots) > memory_limit:
                    return MEMORY_LIMIT, tape
                waiting = OpenBoxes(
                    grow_table(waiting.values, 2 * number),
                    grow_table(waiting.boxes, 2 * number),
                    waiting.n_open,
                )
            save_open(state, waiting.values[number], waiting.boxes[number])
            waiting.boxes[number, slot] = cell + 1
            waiting.n_open[0] += 1
            state.box[slot, HIGH] = cell
        elif waiting.n_open[0] == 0:
            return RECORDED, tape
        else:
            waiting.n_open[0] -= 1
            number = waiting.n_open[0]
            load_open(state, waiting.values[number], waiting.boxes[number])
