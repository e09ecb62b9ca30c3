"""Nearer witnesses among pieces: a point that moves along features, with random kicks.

A point has the pieces that hold it, and its gain is the sum of their weights. Along a feature only
those count that hold the point in all others, so a look takes a visit of the pieces that the
feature bounds: a thousandth of what it takes on whole trees. Pieces are numbered by distance; those
that are no nearer than the best witness do not count, so every point of enough weight is nearer.

What is found is judged by the library's own arithmetic: nothing here has to be sound.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.exact.attack import random_below
from treeproof.kernels.exact.forest_cliques import HIGH, LOW, judge_nearest, n_nearer, narrow
from treeproof.kernels.exact.piece_graph import Entries, entries_by_feature, find_pieces

VALUE, NEAR, CLOSE, WORK = 0, 1, 2, 3
"""Numbers of a `Stand`: weight of the pieces that hold the point; pieces from here on are too far;
how many of `close` are listed; steps so far."""


class Stand(NamedTuple):
    """A point, and the pieces around it.

    entries  Entries                ranges of the pieces, feature by feature
    cells    int32 (n_features,)    the point
    missed   int32 (n_pieces,)      in how many features the point is outside; of the near ones
    kept     int32 (n_features + n_pieces,)  cells and missed before a kick
    close    int32 (n_pieces,)      pieces that the point misses in one feature at most
    chances  int32 (n_features,)    how many of those it misses in each feature alone
    ranges   int32 (n_pieces, 3)    scratch: pieces that change along a feature: piece, low, high
    numbers  int64 (4,)             VALUE, NEAR, CLOSE, WORK
    """

    entries: Entries
    cells: np.ndarray
    missed: np.ndarray
    kept: np.ndarray
    close: np.ndarray
    chances: np.ndarray
    ranges: np.ndarray
    numbers: np.ndarray


@inner_kernel
def new_stand(graph, start, near):
    """Stand at the cells of a graph's box that are nearest to those given."""
    box = graph.box
    n = len(graph.leaf)
    cells = start.copy()
    for feature in range(len(cells)):
        cells[feature] = min(max(cells[feature], box.low[feature]), box.high[feature])
    stand = Stand(
        entries_by_feature(graph),
        cells,
        np.zeros(n, dtype=np.int32),
        np.empty(len(cells) + n, dtype=np.int32),
        np.empty(n, dtype=np.int32),
        np.empty(len(cells), dtype=np.int32),
        np.empty((n, 3), dtype=np.int32),
        np.zeros(4, dtype=np.int64),
    )
    entries = stand.entries
    for feature in range(len(cells)):
        for entry in range(entries.start[feature], entries.start[feature + 1]):
            if not entries.low[entry] <= cells[feature] <= entries.high[entry]:
                stand.missed[entries.piece[entry]] += 1
    come_closer(graph, stand, near)
    return stand


@noalloc_kernel
def come_closer(graph, stand, near):
    """Let only the first pieces count from now on."""
    stand.numbers[NEAR] = near
    stand.numbers[VALUE] = 0
    for piece in range(near):
        if stand.missed[piece] == 0:
            stand.numbers[VALUE] += graph.weight[piece]


@noalloc_kernel
def move(graph, stand, feature, cell):
    """Move the point to another cell of a feature."""
    entries, missed, numbers = stand.entries, stand.missed, stand.numbers
    before = stand.cells[feature]
    value = numbers[VALUE]
    first, last = entries.start[feature], entries.start[feature + 1]
    for entry in range(first, last):
        piece = entries.piece[entry]
        if piece >= numbers[NEAR]:
            break
        was_in = entries.low[entry] <= before <= entries.high[entry]
        is_in = entries.low[entry] <= cell <= entries.high[entry]
        if is_in and not was_in:
            missed[piece] -= 1
            value += graph.weight[piece] if missed[piece] == 0 else 0
        elif was_in and not is_in:
            value -= graph.weight[piece] if missed[piece] == 0 else 0
            missed[piece] += 1
    numbers[VALUE] = value
    numbers[WORK] += last - first
    stand.cells[feature] = cell


@inlined_kernel
def is_inside(leaves, entry, cells):
    """Whether a point is inside a range."""
    return leaves.low[entry] <= cells[leaves.feature[entry]] <= leaves.high[entry]


@noalloc_kernel
def list_close(graph, stand):
    """List the pieces that one move could reach, or leave."""
    leaves, missed = graph.leaves, stand.missed
    for feature in range(len(stand.chances)):
        stand.chances[feature] = 0
    count = 0
    for piece in range(stand.numbers[NEAR]):
        if missed[piece] > 1:
            continue
        stand.close[count] = piece
        count += 1
        if missed[piece] == 1:
            leaf = graph.leaf[piece]
            entry = leaves.range_start[leaf]
            while is_inside(leaves, entry, stand.cells):
                entry += 1
            stand.chances[leaves.feature[entry]] += 1
    stand.numbers[CLOSE] = count
    stand.numbers[WORK] += stand.numbers[NEAR]


@noalloc_kernel
def best_cell(graph, stand, feature):
    """The cell of a feature with most weight; the present one where none has more.

    Going away from the present cell, weight is gained only where a piece begins.
    """
    leaves, ranges, missed = graph.leaves, stand.ranges, stand.missed
    here = stand.cells[feature]
    count = 0
    for index in range(stand.numbers[CLOSE]):
        piece = stand.close[index]
        leaf = graph.leaf[piece]
        for entry in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
            if leaves.feature[entry] == feature:
                if missed[piece] == (0 if is_inside(leaves, entry, stand.cells) else 1):
                    ranges[count, 0] = piece
                    ranges[count, 1], ranges[count, 2] = leaves.low[entry], leaves.high[entry]
                    count += 1
                break
    best = here
    most = np.int64(0)
    for chance in range(count):
        if missed[ranges[chance, 0]] == 0:
            continue
        cell = ranges[chance, 1] if ranges[chance, 1] > here else ranges[chance, 2]
        total = np.int64(0)
        for index in range(count):
            is_held = missed[ranges[index, 0]] == 0
            if is_held != (ranges[index, 1] <= cell <= ranges[index, 2]):
                weight = graph.weight[ranges[index, 0]]
                total += -weight if is_held else weight
        if total > most:
            most = total
            best = cell
    stand.numbers[WORK] += 4 * stand.numbers[CLOSE] + stand.chances[feature] * count
    return best


@noalloc_kernel
def rise(graph, stand, first):
    """Move along one feature after the other, from some feature on, while the weight grows."""
    n_features = len(stand.cells)
    list_close(graph, stand)
    idle = 0
    feature = first
    # Ends: each move raises the weight.
    while idle < n_features and stand.numbers[VALUE] < graph.required:
        idle += 1
        if stand.chances[feature] > 0:
            cell = best_cell(graph, stand, feature)
            if cell != stand.cells[feature]:
                move(graph, stand, feature, cell)
                list_close(graph, stand)
                idle = 0
        feature = (feature + 1) % n_features


DRAWS, MOST_KICKS = 6, 3
"""Pieces among which a kick takes the one that the point misses least, and kicks at once."""


@noalloc_kernel
def kick(graph, stand, generator):
    """Move the point into a few random pieces that do not hold it."""
    leaves = graph.leaves
    for _ in range(1 + random_below(generator, MOST_KICKS)):
        chosen = np.int64(-1)
        for _ in range(DRAWS):
            piece = random_below(generator, stand.numbers[NEAR])
            if stand.missed[piece] > 0 and (
                chosen < 0 or stand.missed[piece] < stand.missed[chosen]
            ):
                chosen = piece
        if chosen < 0:
            return
        leaf = graph.leaf[chosen]
        for entry in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
            feature = leaves.feature[entry]
            here = stand.cells[feature]
            cell = min(max(here, leaves.low[entry]), leaves.high[entry])
            if cell != here:
                move(graph, stand, feature, cell)


@noalloc_kernel
def keep(stand):
    """Remember where the point stands."""
    n_features = len(stand.cells)
    copy_into(stand.kept[:n_features], stand.cells)
    copy_into(stand.kept[n_features:], stand.missed)


@noalloc_kernel
def step_back(stand, value):
    """Return to what was remembered, and its weight."""
    n_features = len(stand.cells)
    copy_into(stand.cells, stand.kept[:n_features])
    copy_into(stand.missed, stand.kept[n_features:])
    stand.numbers[VALUE] = value


@noalloc_kernel
def judge_stand(judge_of, graph, stand, shared):
    """Judge the nearest point that the pieces that hold the point share; whether it is nearer."""
    found = judge_of.found
    before, was_open = found.upper[0], found.is_open[0]
    for feature in range(len(graph.box.low)):
        shared[LOW, feature] = graph.box.low[feature]
        shared[HIGH, feature] = graph.box.high[feature]
    for piece in range(stand.numbers[NEAR]):
        if stand.missed[piece] == 0:
            narrow(graph.leaves, np.int64(graph.leaf[piece]), shared)
    judge_nearest(judge_of, shared)
    return found.upper[0] < before or found.is_open[0] != was_open


@inner_kernel
def approach_by_pieces(judge_of, leaves, box, base, floor, work, deadline):
    """Look for nearer witnesses than the one that is known, in the box of its ball.

    work  int64   steps, of a few nanoseconds
    """
    found, region = judge_of.found, judge_of.region
    clock = np.empty(2, dtype=np.int64)
    graph, _ = find_pieces(judge_of.forest.space, region, leaves, box, base, floor, found)
    near = n_nearer(graph, np.int64(len(graph.leaf)), found)
    if graph.required <= 0:
        return
    shared = np.empty((2, len(box.low)), dtype=np.int32)
    generator = np.full(1, 88172645463325252, dtype=np.uint64)
    stand = new_stand(graph, found.witness, near)
    rise(graph, stand, np.int64(0))
    numbers = stand.numbers
    while numbers[NEAR] > 0 and numbers[WORK] < work and seconds_now(clock) < deadline:
        is_enough = numbers[VALUE] >= graph.required
        if is_enough and judge_stand(judge_of, graph, stand, shared):
            come_closer(graph, stand, n_nearer(graph, numbers[NEAR], found))
            rise(graph, stand, np.int64(0))
            continue
        before = numbers[VALUE]
        keep(stand)
        kick(graph, stand, generator)
        rise(graph, stand, random_below(generator, len(stand.cells)))
        # What weighs enough, but is no violation for rounding, is left.
        if numbers[VALUE] < before and not is_enough:
            step_back(stand, before)
