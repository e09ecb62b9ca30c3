"""Batches of rows whose claims are proved once more, this time on record."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.clock import seconds_now
from treeproof.kernels.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.dual import new_state
from treeproof.kernels.evidence import (
    PLAIN,
    RECORDED,
    new_recorder,
    new_tape,
    put,
    record_problem,
    with_room,
)
from treeproof.kernels.problem import build_problem
from treeproof.kernels.rank_space import box_cells
from treeproof.kernels.restriction import restrict, summation_slack


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
