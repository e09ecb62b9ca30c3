"""Proofs by cliques written down: leaves in order with their weights, and what branching leaves.

The record is what docs/reference/evidence.md describes. The checker fills classes in the same order
and has to find the same pieces left, so a node takes three bytes.
"""

import numpy as np

from treeproof.kernels.core.bits import BIT, count_bits, highest_bit
from treeproof.kernels.core.cells import new_box, new_region
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.status import (
    MEMORY_LIMIT,
    NODE_LIMIT,
    PROVED,
    TIME_LIMIT,
    UNDECIDED,
)
from treeproof.kernels.exact.forest_cliques import cover, open_prefix
from treeproof.kernels.exact.piece_graph import (
    CLASSES,
    LEVEL,
    LIST,
    MISSING,
    PIECE,
    START,
    WEIGHT,
    WIDTH,
    bytes_of_graph,
    find_pieces,
    join_pieces,
    new_state,
)
from treeproof.kernels.exact.primal import new_found
from treeproof.kernels.exact.proof import PLAIN, new_tape, put, restricted, with_bytes
from treeproof.kernels.exact.search import Budget

CLIQUES, CLOSED, BRANCHED = 67, 75, 66
"""The letters C, K, B."""


@inner_kernel
def put_graph(graph, state, tape):
    """Write the pieces in the order of the first frame, and what their weights stand for."""
    n = len(graph.leaf)
    first = state.frames[1, LIST]
    tape = with_bytes(tape, 23 + 12 * n)
    put(tape, CLIQUES, 1)
    put(tape, graph.exponent, 2)
    put(tape, graph.unit, 8)
    put(tape, graph.required, 8)
    put(tape, n, 4)
    for vertex in range(n):
        put(tape, graph.leaves.leaf_row[graph.leaf[state.labels[PIECE, first + vertex]]], 4)
    for vertex in range(n):
        put(tape, state.labels[WEIGHT, first + vertex], 8)
    return tape


@noalloc_kernel
def cover_level(state, tape, level):
    """Cover the pieces of a level, and write down what classes left of them."""
    _, is_left = cover(
        state, state.frames[1], state.alive[level], state.levels[level, MISSING],
        state.branch[level],
    )  # fmt: skip
    count = state.numbers[CLASSES]
    if is_left:
        count = 0
        for x in range(state.frames[1, WIDTH]):
            count += count_bits(state.branch[level, x])
    put(tape, BRANCHED if is_left else CLOSED, 1)
    put(tape, count, 2)


@inner_kernel
def record_graph(graph, state, tape, budget):
    """Prove that no clique weighs enough, and write the proof down, in preorder.

    As `treeproof.kernels.exact.forest_cliques.search_cliques`, in one frame. Returns PROVED, the
    limit that was reached, or UNDECIDED where there is such a clique, and the tape.
    """
    clock = np.empty(2, dtype=np.int64)
    open_prefix(graph, state, np.int64(0), len(graph.leaf))
    tape = put_graph(graph, state, tape)
    frame = state.frames[1]
    alive, branch, width = state.alive, state.branch, frame[WIDTH]
    n_nodes = 0
    is_fresh = True
    while state.numbers[LEVEL] >= 0:
        level = state.numbers[LEVEL]
        if is_fresh:
            n_nodes += 1
            if n_nodes > budget.nodes:
                return NODE_LIMIT, tape
            if n_nodes & 31 == 0 and seconds_now(clock) > budget.deadline:
                return TIME_LIMIT, tape
            tape = with_bytes(tape, 3)
            cover_level(state, tape, level)
            is_fresh = False
        x = width - 1
        while x >= 0 and branch[level, x] == 0:
            x -= 1
        if x < 0:
            state.numbers[LEVEL] -= 1
            continue
        bit = highest_bit(branch[level, x])
        vertex = (x << 6) + np.int64(bit)
        branch[level, x] &= ~(BIT << bit)
        alive[level, x] &= ~(BIT << bit)
        missing = state.levels[level, MISSING] - state.labels[WEIGHT, frame[LIST] + vertex]
        if missing <= 0:
            return UNDECIDED, tape
        row = frame[START] + vertex * width
        for y in range(width):
            alive[level + 1, y] = alive[level, y] & state.words[row + y]
        state.levels[level + 1, MISSING] = missing
        state.numbers[LEVEL] = level + 1
        is_fresh = True
    return PROVED, tape


@inner_kernel
def record_alternative(forest, alternatives, number, region, box, tape, budget, least_exponent):
    """Record the proof that an alternative happens nowhere in a box; see `record_graph`."""
    leaves, base, floor, is_plain = restricted(
        forest, alternatives, number, region.row, box, least_exponent
    )
    if is_plain:
        tape = with_bytes(tape, 1)
        put(tape, PLAIN, 1)
        return PROVED, tape
    found = new_found(len(region.row))
    graph, beyond = find_pieces(forest.space, region, leaves, box, base, floor, found)
    n = len(graph.leaf)
    if beyond < np.inf or bytes_of_graph(n, graph.most) > budget.memory_bytes:
        return MEMORY_LIMIT, tape
    if graph.required <= 0 or n == 0:
        return UNDECIDED, tape
    state = new_state(graph)
    join_pieces(graph, state)
    return record_graph(graph, state, tape, budget)


@kernel
def record_by_cliques(forest, alternatives, batch, limits, status, seconds):
    """As `treeproof.kernels.exact.proof.record_batch`; UNDECIDED is left to multipliers."""
    clock = np.empty(2, dtype=np.int64)
    ends = np.zeros(len(batch.rows), dtype=np.int64)
    tape = new_tape(4096)
    for number in range(len(batch.rows)):
        if not batch.skip[number]:
            began = seconds_now(clock)
            region = new_region(forest.space, batch, number, np.bool_(False))
            box = new_box(forest.space, region)
            group = batch.groups[number]
            budget = Budget(limits.nodes, limits.memory_bytes, began + limits.time_s)
            for alternative in range(
                alternatives.group_start[group], alternatives.group_start[group + 1]
            ):
                status[number], tape = record_alternative(
                    forest, alternatives, alternative, region, box, tape, budget,
                    limits.least_exponent,
                )  # fmt: skip
                if status[number] != PROVED:
                    break
            seconds[number] += seconds_now(clock) - began
        ends[number] = tape.used[0]
    return tape.data[: tape.used[0]].copy(), ends
