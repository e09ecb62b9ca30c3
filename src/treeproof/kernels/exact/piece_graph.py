"""Leaves as the vertices of a graph: whole weights, distances, who meets whom, and its subgraphs.

A *piece* is a leaf whose gain exceeds the least gain of its tree in a box; its *weight* is the
difference, in whole steps. Two pieces are neighbours if they share cells. What is done with the
graph is in `treeproof.kernels.exact.forest_cliques`.
"""

import math
from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arithmetic import ldexp
from treeproof.kernels.core.arrays import sorted_order
from treeproof.kernels.core.balls import cell_distance
from treeproof.kernels.core.bits import BIT, LAST, SIX, count_bits, lowest_bit
from treeproof.kernels.core.cells import CellBox
from treeproof.kernels.core.compiler import inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.core.leaves import Leaves

PRECISION = 46
"""Bits of the sum of all magnitudes that weights keep."""


@inner_kernel
def weigh(leaves, base, floor):
    """Whole weights of all leaves, and the sum of weights that every violation reaches.

    base   float64   gain before any tree, rounded up
    floor  float64   no violation in the box has less gain

    Sound: with least gains m, value <= base + sum of m + sum of (gain - m). Each weight is
    (gain - m) / step rounded up, and `required` is (floor - base - sum of m - margin) / step
    rounded down, so a point that reaches the floor reaches `required` in weights. The margin covers
    the rounding of products, of differences, of the sum of the n numbers m, and of itself: less
    than n + 8 units of the sum of all magnitudes. Steps are powers of two, by which nothing is
    lost. All sums of weights are multiples of their greatest common divisor, so what they have to
    reach is rounded up to one.

    Returns
    -------
    weight    int64 (n_leaves,)   0 for the leaves of least gain
    required  int64
    unit      int64               a weight of 1 stands for unit * 2**exponent
    exponent  int
    """
    weight = np.zeros(len(leaves.leaf_gain), dtype=np.int64)
    n_trees = len(leaves.leaf_start) - 1
    least = np.zeros(n_trees, dtype=np.float64)
    total = base
    gross = abs(base) + abs(floor)
    for tree in range(n_trees):
        largest = 0.0
        if leaves.leaf_start[tree] < leaves.leaf_start[tree + 1]:
            least[tree] = np.inf
        for leaf in range(leaves.leaf_start[tree], leaves.leaf_start[tree + 1]):
            least[tree] = min(least[tree], leaves.leaf_gain[leaf])
            largest = max(largest, abs(leaves.leaf_gain[leaf]))
        total += least[tree]
        gross += largest
    _, exponent = math.frexp(gross)
    margin = (n_trees + 8) * 2.0**-52 * gross
    missing = ldexp(floor - total - margin, PRECISION - exponent)
    divisor = np.int64(0)
    for tree in range(n_trees):
        for leaf in range(leaves.leaf_start[tree], leaves.leaf_start[tree + 1]):
            difference = excess(leaves.leaf_gain[leaf], least[tree], exponent)
            weight[leaf] = np.int64(math.ceil(ldexp(difference, PRECISION - exponent)))
            rest = weight[leaf]
            # Ends: Euclid's rests fall.
            while rest != 0:
                divisor, rest = rest, divisor % rest
    required = np.int64(math.floor(missing))
    divisor = max(divisor, 1)
    for leaf in range(len(weight)):
        weight[leaf] //= divisor
    required = -(-required // divisor)
    exponent -= PRECISION
    while divisor % 2 == 0:
        divisor //= 2
        exponent += 1
    return weight, required, divisor, exponent


COARSE = 20
"""Gains that are multiples of so many bits of the sum of all magnitudes were not rounded."""


@inlined_kernel
def excess(gain, least, exponent):
    """How much a gain exceeds the least one of its tree, rounded up unless both are exact.

    That search and record are sound does not depend on it, but the checker, which knows the leaves'
    own values, rejects weights that are too small.
    """
    if gain == least:
        return 0.0
    one = ldexp(gain, COARSE - exponent)
    other = ldexp(least, COARSE - exponent)
    if one == math.floor(one) and other == math.floor(other):
        return gain - least
    return gain - least + 2.0**-50 * (abs(gain) + abs(least))


class Graph(NamedTuple):
    """Pieces nearer than the nearest violation, numbered by distance.

    leaves       Leaves
    box          CellBox        in which they were sought
    leaf_weight  int64   (n_leaves,)   see `weigh`
    required     int64          weight that every violation reaches
    unit         int64          what a weight stands for, see `weigh`
    exponent     int64
    reach        int64          no clique weighs more: the heaviest piece of each tree
    most         int64          no clique has more pieces: one of each tree
    leaf         int32   (n,)   leaf of each piece
    distance     float64 (n,)   rounded down; rises
    is_beyond    bool    (n,)   the distance is only approached; False comes first among equals
    weight       int64   (n,)
    """

    leaves: Leaves
    box: CellBox
    leaf_weight: np.ndarray
    required: int
    unit: int
    exponent: int
    reach: int
    most: int
    leaf: np.ndarray
    distance: np.ndarray
    is_beyond: np.ndarray
    weight: np.ndarray


@noalloc_kernel
def leaf_distance(space, region, leaves, leaf):
    """Distance at which a row reaches a leaf, and whether it is only approached.

    Distances are compared as pairs: what is attained at a distance is nearer than what is only
    approached.
    """
    farthest = 0.0
    is_beyond = False
    if not region.is_ball:
        return farthest, is_beyond
    for entry in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
        feature = np.int64(leaves.feature[entry])
        distance, beyond = cell_distance(
            space, feature, leaves.low[entry], leaves.high[entry], region.home[feature],
            region.row[feature], (region.down[feature], region.up[feature]),
            (region.low[feature], region.high[feature]),
        )  # fmt: skip
        if distance > farthest or (distance == farthest and beyond):
            farthest = distance
            is_beyond = beyond
    return farthest, is_beyond


MOST_PIECES = 8_000
"""Pieces of a graph, at most; those beyond are left out. Twice as many are worth their time where
all are nearer than a violation."""


@inner_kernel
def find_pieces(space, region, leaves, box, base, floor, found):
    """List the pieces nearer than a violation in the order of their distances.

    found  Found   holds the violation

    Sound: a clique with another piece has no point nearer than the violation.

    Returns the graph, and the distance of the nearest piece that is left out for their number, or
    infinity.
    """
    weight, required, unit, exponent = weigh(leaves, base, floor)
    upper, is_open = found.upper[0], found.is_open[0]
    n_leaves = len(weight)
    leaf_of = np.empty(n_leaves, dtype=np.int32)
    distance = np.empty(n_leaves, dtype=np.float64)
    is_beyond = np.empty(n_leaves, dtype=np.bool_)
    n_pieces = 0
    n_beyond = 0
    most = 0
    reach = np.int64(0)
    for tree in range(len(leaves.leaf_start) - 1):
        heaviest = np.int64(0)
        for leaf in range(leaves.leaf_start[tree], leaves.leaf_start[tree + 1]):
            if weight[leaf] == 0:
                continue
            far, beyond = leaf_distance(space, region, leaves, leaf)
            if far > upper or far == np.inf or (far == upper and (beyond or not is_open)):
                continue
            heaviest = max(heaviest, weight[leaf])
            # Attained ones from the front and approached ones from the back: the sort is stable.
            at = n_pieces
            if beyond:
                n_beyond += 1
                at = n_leaves - n_beyond
            else:
                n_pieces += 1
            leaf_of[at] = leaf
            distance[at] = far
            is_beyond[at] = beyond
        most += 1 if heaviest > 0 else 0
        reach += heaviest
    for index in range(n_leaves - n_beyond, n_leaves):
        leaf_of[n_pieces] = leaf_of[index]
        distance[n_pieces] = distance[index]
        is_beyond[n_pieces] = True
        n_pieces += 1
    order = sorted_order(distance[:n_pieces], True)
    left_out = np.inf
    most_pieces = MOST_PIECES if upper == np.inf else 2 * MOST_PIECES
    if n_pieces > most_pieces:
        n_pieces = most_pieces
        left_out = distance[order[n_pieces]]
    graph = Graph(
        leaves,
        box,
        weight,
        required,
        unit,
        np.int64(exponent),
        reach,
        most,
        np.empty(n_pieces, dtype=np.int32),
        np.empty(n_pieces, dtype=np.float64),
        np.empty(n_pieces, dtype=np.bool_),
        np.empty(n_pieces, dtype=np.int64),
    )
    for vertex in range(n_pieces):
        graph.leaf[vertex] = leaf_of[order[vertex]]
        graph.distance[vertex] = distance[order[vertex]]
        graph.is_beyond[vertex] = is_beyond[order[vertex]]
        graph.weight[vertex] = weight[graph.leaf[vertex]]
    return graph, left_out


START, SIZE, WIDTH, LIST, ROOT = 0, 1, 2, 3, 4
"""Columns of frames: where its rows of words start, vertices, words per row, where its vertices are
listed, level at which it was entered."""
MISSING, CHOSEN, FRAME, OPENED, N_ALIVE, VERTEX = 0, 1, 2, 3, 4, 5
"""Columns of levels: weight that its clique lacks; piece that is branched on; frame; WORK when the
level was opened, and how many vertices were alive then; the piece's number in the frame."""
LEVEL, TOP, LIMIT, NEW, WORK, IS_PLAIN, CLASSES = 0, 1, 2, 3, 4, 5, 6
"""Numbers of a `State`: present level, or -1; present frame; pieces from here on are too far; those
before this one need no search among themselves; steps so far; all weights are 1; classes of the
last cover."""
PIECE, WEIGHT = 0, 1
"""Rows of labels."""
REST, MEMBERS, PLACE = 0, 1, 2
"""Rows of scratch: weight not yet covered; lists of vertices."""


class State(NamedTuple):
    """Where a search stands. The present subproblem is a level; levels lie in frames.

    A *frame* is a subgraph whose vertices are numbered anew: those with light neighbourhoods come
    last, so that branching, which begins with the last, makes small parts. Frame 0 is the whole
    graph, numbered by distance.

    words    uint64  (capacity,)          rows of all frames: masks of the neighbours
    labels   int64   (2, capacity)        PIECE and WEIGHT of the vertices of all frames
    frames   int64   (N_FRAMES, 5)        START, SIZE, WIDTH, LIST, ROOT
    alive    uint64  (most + 1, n_words)  vertices that may extend a level's clique
    branch   uint64  (most + 1, n_words)  those that still have to be branched on
    levels   int64   (most + 1, 6)        MISSING, CHOSEN, FRAME, OPENED, N_ALIVE, VERTEX
    numbers  int64   (7,)                 LEVEL, TOP, LIMIT, NEW, WORK, IS_PLAIN, CLASSES
    scratch  int64   (3, n)               REST, MEMBERS, PLACE
    burden   float64 (n,)                 scratch: weight of a vertex and its neighbours
    masks    uint64  (2, n_words)         scratch
    block    uint64  (64,)                scratch
    """

    words: np.ndarray
    labels: np.ndarray
    frames: np.ndarray
    alive: np.ndarray
    branch: np.ndarray
    levels: np.ndarray
    numbers: np.ndarray
    scratch: np.ndarray
    burden: np.ndarray
    masks: np.ndarray
    block: np.ndarray


ROOM = 2.0
"""Rows of words of all frames but the first, over those of the first."""
N_FRAMES = 24


@noalloc_kernel
def bytes_of_graph(n, most):
    """Memory that a search takes."""
    n_words = (n + 63) / 64.0
    return 8.0 * n_words * ((1.0 + ROOM) * n + 2.0 * most + 4.0) + 100.0 * n


@inner_kernel
def new_state(graph):
    """State with room for a graph, and nothing in frame 0 yet."""
    n = len(graph.leaf)
    n_words = (n + 63) // 64
    levels = graph.most + 1
    state = State(
        np.zeros(np.int64((1.0 + ROOM) * n * n_words) + n_words + 64, dtype=np.uint64),
        np.empty((2, 5 * n + 64), dtype=np.int64),
        np.zeros((N_FRAMES, 5), dtype=np.int64),
        np.zeros((levels, n_words), dtype=np.uint64),
        np.zeros((levels, n_words), dtype=np.uint64),
        np.zeros((levels, 6), dtype=np.int64),
        np.zeros(7, dtype=np.int64),
        np.empty((3, n), dtype=np.int64),
        np.empty(n, dtype=np.float64),
        np.empty((2, n_words), dtype=np.uint64),
        np.empty(64, dtype=np.uint64),
    )
    state.frames[0, SIZE] = n
    state.frames[0, WIDTH] = n_words
    state.frames[0, ROOT] = -1
    state.numbers[LEVEL] = -1
    state.numbers[LIMIT] = n
    state.numbers[IS_PLAIN] = 1
    for vertex in range(n):
        state.labels[PIECE, vertex] = vertex
        state.labels[WEIGHT, vertex] = graph.weight[vertex]
        if graph.weight[vertex] != 1:
            state.numbers[IS_PLAIN] = 0
    return state


@noalloc_kernel
def fill_mask(mask, n):
    """Set the first n bits of a mask and no others."""
    for x in range(len(mask)):
        left = n - (x << 6)
        mask[x] = ~np.uint64(0) if left >= 64 else (BIT << np.uint64(max(left, 0))) - BIT


class Entries(NamedTuple):
    """Ranges of all pieces, feature by feature.

    start  int64   (n_features + 1,)  where the entries of each feature start
    piece  int32   (n_entries,)       rises in each feature
    low    float64 (n_entries,)       first and last cell
    high   float64 (n_entries,)
    """

    start: np.ndarray
    piece: np.ndarray
    low: np.ndarray
    high: np.ndarray


@inner_kernel
def entries_by_feature(graph):
    """List the ranges of all pieces."""
    leaves = graph.leaves
    n = len(graph.leaf)
    n_features = len(graph.box.low)
    start = np.zeros(n_features + 1, dtype=np.int64)
    for vertex in range(n):
        leaf = graph.leaf[vertex]
        for entry in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
            start[leaves.feature[entry] + 1] += 1
    for feature in range(n_features):
        start[feature + 1] += start[feature]
    piece = np.empty(start[n_features], dtype=np.int32)
    # As doubles, which are sorted elsewhere anyway: the sort is compiled once.
    low = np.empty(start[n_features], dtype=np.float64)
    high = np.empty(start[n_features], dtype=np.float64)
    fill = start.copy()
    for vertex in range(n):
        leaf = graph.leaf[vertex]
        for entry in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
            at = fill[leaves.feature[entry]]
            fill[leaves.feature[entry]] += 1
            piece[at] = vertex
            low[at] = leaves.low[entry]
            high[at] = leaves.high[entry]
    return Entries(start, piece, low, high)


@inner_kernel
def join_pieces(graph, state):
    """Fill frame 0: pieces that meet in every feature are neighbours.

    Two pieces miss each other in a feature iff one ends before the other begins. With the pieces
    of a feature sorted by both, one mask of those that begin later (end earlier) grows along.
    """
    n = len(graph.leaf)
    n_words = state.frames[0, WIDTH]
    n_features = len(graph.box.low)
    for vertex in range(n):
        fill_mask(state.words[vertex * n_words : (vertex + 1) * n_words], n)
        state.words[vertex * n_words + (vertex >> 6)] &= ~(BIT << (np.uint64(vertex) & LAST))
    entries = entries_by_feature(graph)
    start, piece, low, high = entries.start, entries.piece, entries.low, entries.high
    for feature in range(n_features):
        part = slice(start[feature], start[feature + 1])
        by_low = sorted_order(low[part], True)
        by_high = sorted_order(high[part], True)
        separate(state, n_words, piece[part], low[part], high[part], by_low, by_high)


@noalloc_kernel
def separate(state, n_words, piece, low, high, by_low, by_high):
    """Take the neighbours from each other that miss each other in one feature."""
    words, mask = state.words, state.masks[0]
    count = len(piece)
    fill_mask(mask, 0)
    at = 0
    for index in by_low:
        while at < count and high[by_high[at]] < low[index]:
            ended = np.uint64(piece[by_high[at]])
            mask[ended >> SIX] |= BIT << (ended & LAST)
            at += 1
        if at > 0:
            row = piece[index] * n_words
            for x in range(n_words):
                words[row + x] &= ~mask[x]
    fill_mask(mask, 0)
    at = count - 1
    for step in range(count - 1, -1, -1):
        index = by_high[step]
        while at >= 0 and low[by_low[at]] > high[index]:
            begins = np.uint64(piece[by_low[at]])
            mask[begins >> SIX] |= BIT << (begins & LAST)
            at -= 1
        if at < count - 1:
            row = piece[index] * n_words
            for x in range(n_words):
                words[row + x] &= ~mask[x]


@noalloc_kernel
def order_members(state, frame, alive, n):
    """Order the vertices of a mask: again and again the lightest with its neighbours goes last.

    Reads and fills MEMBERS.
    """
    words, members, burden = state.words, state.scratch[MEMBERS], state.burden
    width = frame[WIDTH]
    weight = state.labels[WEIGHT, frame[LIST] :]
    left = state.masks[0]
    for index in range(n):
        vertex = members[index]
        row = frame[START] + vertex * width
        total = np.float64(weight[vertex])
        for x in range(width):
            bits = words[row + x] & alive[x]
            if state.numbers[IS_PLAIN]:
                total += count_bits(bits)
            else:
                while bits != 0:
                    total += weight[(x << 6) + np.int64(lowest_bit(bits))]
                    bits &= bits - BIT
        burden[vertex] = total
    for x in range(width):
        left[x] = alive[x]
    for last in range(n - 1, -1, -1):
        best = 0
        lightest = burden[members[0]]
        for index in range(1, last + 1):
            if burden[members[index]] < lightest:
                lightest = burden[members[index]]
                best = index
        vertex = members[best]
        members[best] = members[last]
        members[last] = vertex
        left[vertex >> 6] &= ~(BIT << (np.uint64(vertex) & LAST))
        row = frame[START] + vertex * width
        for x in range(width):
            bits = words[row + x] & left[x]
            while bits != 0:
                burden[(x << 6) + np.int64(lowest_bit(bits))] -= weight[vertex]
                bits &= bits - BIT


@noalloc_kernel
def transpose(block):
    """Swap rows and columns of 64 words of 64 bits: halves first, then halves of these."""
    size = np.uint64(32)
    mask = ~np.uint64(0) >> size
    while size > 0:
        for row in range(64):
            if np.uint64(row) & size == 0:
                other = row + np.int64(size)
                change = (block[row] >> size ^ block[other]) & mask
                block[other] ^= change
                block[row] ^= change << size
        size >>= BIT
        mask ^= mask << size


@noalloc_kernel
def put_block(state, frame, alive, start, width, n, x, y):
    """Write word x of those rows of a new frame whose vertices are in word y of the old one.

    Being neighbours is mutual: bit j of word x of vertex v's new row is bit v of the old row of the
    vertex that has place 64 x + j.
    """
    words, block = state.words, state.block
    members, place = state.scratch[MEMBERS], state.scratch[PLACE]
    for j in range(64):
        index = (x << 6) + j
        block[j] = 0
        if index < n:
            block[j] = words[frame[START] + members[index] * frame[WIDTH] + y]
    transpose(block)
    bits = alive[y]
    while bits != 0:
        bit = np.int64(lowest_bit(bits))
        words[start + place[(y << 6) + bit] * width + x] = block[bit]
        bits &= bits - BIT


@noalloc_kernel
def enter_frame(state, alive, level):
    """Give the vertices of a mask a frame of their own; False for want of room.

    alive  uint64 (n_words,)  in numbers of the present frame; out: all vertices of the new one
    """
    top = state.numbers[TOP]
    frame = state.frames[top]
    words, members, place = state.words, state.scratch[MEMBERS], state.scratch[PLACE]
    n = np.int64(0)
    for x in range(frame[WIDTH]):
        bits = alive[x]
        while bits != 0:
            members[n] = (x << 6) + np.int64(lowest_bit(bits))
            bits &= bits - BIT
            n += 1
    width = (n + 63) >> 6
    start = frame[START] + frame[SIZE] * frame[WIDTH]
    first = frame[LIST] + frame[SIZE]
    has_room = top + 1 < N_FRAMES and first + n <= state.labels.shape[1]
    if not has_room or start + n * width > len(words):
        return False
    order_members(state, frame, alive, n)
    for index in range(n):
        place[members[index]] = index
    for index in range(n):
        vertex = members[index]
        state.labels[PIECE, first + index] = state.labels[PIECE, frame[LIST] + vertex]
        state.labels[WEIGHT, first + index] = state.labels[WEIGHT, frame[LIST] + vertex]
    for x in range(width):
        for y in range(frame[WIDTH]):
            if alive[y] != 0:
                put_block(state, frame, alive, start, width, n, x, y)
    state.numbers[TOP] = top + 1
    state.frames[top + 1, START] = start
    state.frames[top + 1, SIZE] = n
    state.frames[top + 1, WIDTH] = width
    state.frames[top + 1, LIST] = first
    state.frames[top + 1, ROOT] = level
    fill_mask(alive, n)
    state.numbers[WORK] += cost_of_frame(n)
    return True


@inlined_kernel
def cost_of_frame(n):
    """Work of making a frame, in the steps of `cover`."""
    return n * n // 4
