"""Proofs written down: the branching of a box, and rounded multipliers wherever they close it.

The record is what docs/reference/evidence.md describes. Any multipliers give a bound, so they are
rounded first, and what is recorded has been seen to close its box with the rounded ones.
"""

import math
from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into, grow_table, sorted_order
from treeproof.kernels.core.cells import box_cells
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.leaves import restrict, summation_slack
from treeproof.kernels.exact.dual import enter_box, marginals, new_state, refresh, sweep
from treeproof.kernels.exact.problem import (
    FACTOR,
    FEATURE,
    HIGH,
    LOW,
    SEGMENT_START,
    SLOT,
    TREE,
    build_problem,
)
from treeproof.kernels.exact.search import (
    OpenBoxes,
    choose_branch,
    eliminate,
    load_open,
    new_waiting,
    save_open,
)

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


class Ways(NamedTuple):
    """The ways to break a claim, each a sum of outputs that must not reach a number.

    start        int64   (n_groups + 1,)   ways of a group of rows
    coefficient  float64 (n_ways, n_outputs)
    need         float64 (n_ways,)         smallest exact sum that breaks the claim
    slack        float64 (n_ways,)         how far links and finishing can shift it
    unit         float64                   rounding unit of the library's sums; 0 if they are exact
    """

    start: np.ndarray
    coefficient: np.ndarray
    need: np.ndarray
    slack: np.ndarray
    unit: float


class RecordLimits(NamedTuple):
    """Budget of one row, and the smallest exponent of its multipliers."""

    time_s: float
    nodes: int
    memory_bytes: float
    least_exponent: int


@noalloc_kernel
def plain_sum(leaf_start, leaf_gain):
    """Sum of each tree's largest gain, and the sum of the largest magnitudes."""
    total = 0.0
    gross = 0.0
    for tree in range(len(leaf_start) - 1):
        if leaf_start[tree] < leaf_start[tree + 1]:
            largest = leaf_gain[leaf_start[tree]]
            magnitude = abs(largest)
            for leaf in range(leaf_start[tree] + 1, leaf_start[tree + 1]):
                largest = max(largest, leaf_gain[leaf])
                magnitude = max(magnitude, abs(leaf_gain[leaf]))
            total += largest
            gross += magnitude
    return total, gross


@inner_kernel
def record_way(trees, space, start, zero_band, ways, way, row, low_cell, high_cell, tape, limits,
               deadline):  # fmt: skip
    """Record the proof of one way to break a claim in a box of cells; see `record_problem`."""
    coefficient = ways.coefficient[way]
    leaf_start, leaf_gain, leaf_row, range_start, feature, range_low, range_high = restrict(
        trees, space, row, low_cell, high_cell, coefficient, zero_band
    )
    base = 0.0
    for output in range(len(coefficient)):
        base += coefficient[output] * start[output]
    slack = summation_slack(trees, coefficient, start, ways.unit, leaf_start, leaf_row)
    total, gross = plain_sum(leaf_start, leaf_gain)
    # What the checker computes exactly is computed in doubles here: a little room on top of every
    # slack keeps its verdict the same. What only this room keeps open ends in exact sums.
    room = 1e-6 * slack + 2.0**-42 * (gross + abs(base))
    floor = ways.need[way] - slack - ways.slack[way] - room
    if base + total < floor:
        tape = with_room(tape, 1)
        put(tape, PLAIN, 1)
        return RECORDED, tape
    problem = build_problem(
        base, leaf_start, leaf_gain, range_start, feature, range_low, range_high, low_cell,
        high_cell,
    )  # fmt: skip
    state = new_state(problem)
    recorder = new_recorder(problem, len(row), limits.least_exponent)
    return record_problem(
        problem, state, recorder, tape, floor, limits.nodes, deadline, limits.memory_bytes
    )


@kernel
def record_batch(trees, space, start, zero_band, ways, groups, rows, low, high, wanted, limits,
                 status, seconds):  # fmt: skip
    """Record proofs for every wanted row of a batch.

    low, high  float64 (n_rows, n_features)  ends such that the thresholds up to each are the ones
                                             that the set passes
    wanted     bool    (n_rows,)
    status     int64   (n_rows,)             out: RECORDED or the limit that was reached
    seconds    float64 (n_rows,)             out

    Returns
    -------
    data  uint8  all records, one after another
    ends  int64 (n_rows,)  where each row's record ends
    """
    clock = np.empty(2, dtype=np.int64)
    low_cell = np.empty(rows.shape[1], dtype=np.int32)
    high_cell = np.empty(rows.shape[1], dtype=np.int32)
    ends = np.zeros(len(rows), dtype=np.int64)
    tape = new_tape(4096)
    for number in range(len(rows)):
        if wanted[number]:
            began = seconds_now(clock)
            box_cells(space, rows[number], low[number], high[number], low_cell, high_cell)
            for way in range(ways.start[groups[number]], ways.start[groups[number] + 1]):
                status[number], tape = record_way(
                    trees, space, start, zero_band, ways, way, rows[number], low_cell, high_cell,
                    tape, limits, began + limits.time_s,
                )  # fmt: skip
                if status[number] != RECORDED:
                    break
            seconds[number] = seconds_now(clock) - began
        ends[number] = tape.used[0]
    return tape.data[: tape.used[0]].copy(), ends
