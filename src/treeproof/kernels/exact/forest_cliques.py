"""Cliques with classes across trees: exact answers where trees are deep and boxes are large.

A *piece* is a leaf whose gain exceeds the least gain of its tree in the box; its *weight* is the
difference. A point's gain is the sum of the least gains plus the weights of the pieces that hold
it, and pieces are products of cell ranges, which have a common point as soon as each two of them
meet. So the largest gain in a box is that of a heaviest clique in the graph of pieces that meet.
The distance of a clique's nearest point is that of its farthest piece, whatever the radius: pieces
are numbered by their distance, the cliques of a smaller ball are those of a prefix, and the nearest
violation is the clique of sufficient weight whose last piece comes first.

A *class* is a set of pairwise disjoint pieces of any trees: a point lies in at most one of them.
If every piece is covered by classes whose numbers y add up to its weight at least, no point gets
more than the sum of all y. Cliques are searched by branching on the pieces that classes of a sum
just below what is missing leave uncovered, prefix after prefix, so that both bounds of a radius
hold at any moment.

Weights are whole numbers, rounded up, and what they have to reach is rounded down: the search
itself computes without rounding.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.bits import BIT, LAST, SIX, count_bits, highest_bit, lowest_bit
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.core.emulation import AMBIGUOUS, BROKEN
from treeproof.kernels.core.status import (
    FOUND,
    MEMORY_LIMIT,
    NEAR_TIE,
    NODE_LIMIT,
    PROVED,
    TIME_LIMIT,
)
from treeproof.kernels.exact.balls import ball_cells, drop_reached
from treeproof.kernels.exact.judging import (
    Division,
    is_nearer,
    judge_cells,
    judge_tuples,
    keep_leaves,
    new_division,
    point_distance,
)
from treeproof.kernels.exact.piece_graph import (
    CHOSEN,
    CLASSES,
    FRAME,
    LEVEL,
    LIMIT,
    LIST,
    MEMBERS,
    MISSING,
    N_ALIVE,
    NEW,
    OPENED,
    PIECE,
    REST,
    ROOT,
    SIZE,
    START,
    TOP,
    VERTEX,
    WEIGHT,
    WIDTH,
    WORK,
    bytes_of_graph,
    cost_of_frame,
    enter_frame,
    fill_mask,
    find_pieces,
    join_pieces,
    new_state,
)
from treeproof.kernels.exact.primal import NODES


@noalloc_kernel
def cover(state, frame, alive, missing, branch):
    """Cover vertices by classes of a sum below what is missing; `branch` gets what they leave.

    missing  int64   positive

    Sound: the vertices of a class are pairwise no neighbours, so a clique has at most one of them.
    With numbers y of classes that sum to less than `missing`, a clique all of whose vertices are
    covered (the y of the classes of each add up to its weight) weighs less than `missing`. Every
    clique that weighs enough has a vertex in `branch`.

    Returns how many vertices were alive, and whether any is left.
    """
    words, rest, members = state.words, state.scratch[REST], state.scratch[MEMBERS]
    uncovered, free = state.masks[0], state.masks[1]
    width = np.uint64(frame[WIDTH])
    begin = np.uint64(frame[START])
    weight = state.labels[WEIGHT, frame[LIST] :]
    n_alive = 0
    for x in range(width):
        bits = alive[x]
        uncovered[x] = bits
        branch[x] = 0
        while bits != 0:
            vertex = (x << SIX) + lowest_bit(bits)
            rest[vertex] = weight[vertex]
            bits &= bits - BIT
            n_alive += 1
    work = np.uint64(n_alive) + width
    left = missing - 1
    first = np.uint64(0)
    is_left = False
    n_classes = 0
    # Ends: each class lifts the weight that is left of some vertex, or takes all of it.
    while True:
        while first < width and uncovered[first] == 0:
            first += BIT
        if first == width:
            break
        if left == 0:
            is_left = True
            break
        for x in range(first, width):
            free[x] = uncovered[x]
        count = np.uint64(0)
        number = left
        for x in range(first, width):
            while free[x] != 0:
                vertex = (x << SIX) + lowest_bit(free[x])
                free[x] &= free[x] - BIT
                members[count] = vertex
                count += BIT
                number = min(number, rest[vertex])
                row = begin + vertex * width
                for y in range(x, width):
                    free[y] &= ~words[row + y]
        for index in range(count):
            vertex = np.uint64(members[index])
            rest[vertex] -= number
            if rest[vertex] == 0:
                uncovered[vertex >> SIX] &= ~(BIT << (vertex & LAST))
        left -= number
        n_classes += 1
        work += count * (width - first)
    if is_left:
        for x in range(first, width):
            branch[x] = uncovered[x]
    state.numbers[WORK] += np.int64(work)
    state.numbers[CLASSES] = n_classes
    return n_alive, is_left


@noalloc_kernel
def open_prefix(graph, state, n_cleared, n):
    """Begin to search the first n pieces for cliques that are not among the first n_cleared."""
    numbers = state.numbers
    numbers[TOP] = 0
    numbers[LEVEL] = 0
    numbers[NEW] = n_cleared
    numbers[LIMIT] = n
    state.levels[0, MISSING] = graph.required
    fill_mask(state.alive[0], n)
    enter_frame(state, state.alive[0], np.int64(0))
    state.levels[0, FRAME] = 1


WORTH_NEW = 16
"""So many times fewer are far fewer."""


@noalloc_kernel
def branch_on_new(state):
    """At the root of a prefix, branch on the new pieces where these are far fewer.

    They are anywhere in the order, so all their neighbours are alive, and not only those before
    them: one takes as long as a dozen of those that classes left.

    Sound: cliques without a new piece need no search, so every clique that matters has one.
    """
    frame = state.frames[1]
    new = state.masks[0]
    fill_mask(new, 0)
    n_new = 0
    n_left = 0
    for vertex in range(frame[SIZE]):
        if state.labels[PIECE, frame[LIST] + vertex] >= state.numbers[NEW]:
            new[vertex >> 6] |= BIT << (np.uint64(vertex) & LAST)
            n_new += 1
    for x in range(frame[WIDTH]):
        n_left += count_bits(state.branch[0, x])
    if WORTH_NEW * n_new < n_left:
        for x in range(frame[WIDTH]):
            state.branch[0, x] = new[x]


WORTH_FRAME = 0.7
"""A subgraph of at most this share of its frame's vertices may get a frame of its own."""
LEAST_FRAME = 48
"""Smaller ones are not worth it."""
PATIENCE = 2.0
"""A subgraph gets its own frame when it has cost this much more than making one would."""


@noalloc_kernel
def reframe(state):
    """Give a costly part of the search a frame of its own; whether it was done.

    Sound: vertices on which branching is done stay removed from the part; the one whose branch is
    broken off comes back, and it and all others are searched anew.
    """
    numbers = state.numbers
    top = numbers[TOP]
    size = state.frames[top, SIZE]
    level = state.frames[top, ROOT] + 1
    while level < numbers[LEVEL] and state.levels[level, N_ALIVE] > WORTH_FRAME * size:
        level += 1
    n = state.levels[level, N_ALIVE]
    if (
        level >= numbers[LEVEL]
        or n < LEAST_FRAME
        or numbers[WORK] - state.levels[level, OPENED] < PATIENCE * cost_of_frame(n)
    ):
        return False
    vertex = np.uint64(state.levels[level, VERTEX])
    state.alive[level, vertex >> SIX] |= BIT << (vertex & LAST)
    if not enter_frame(state, state.alive[level], level):
        state.alive[level, vertex >> SIX] &= ~(BIT << (vertex & LAST))
        return False
    numbers[LEVEL] = level
    state.levels[level, FRAME] = top + 1
    return True


@noalloc_kernel
def count_node(counts, budget, clock):
    """Count a node; PROVED, or the limit that is reached."""
    counts[NODES] += 1
    if counts[NODES] > budget.nodes:
        return NODE_LIMIT
    # The clock takes longer than a small node.
    is_late = counts[NODES] & 31 == 0 and seconds_now(clock) > budget.deadline
    return TIME_LIMIT if is_late else PROVED


@noalloc_kernel
def search_cliques(state, counts, budget, clock, is_fresh):
    """Go on until a clique of enough weight is found, nothing is left, or a limit is reached.

    is_fresh  bool   the present level has not been covered yet

    Sound: a level's cliques extend the chosen pieces by vertices alive there. It is closed when all
    that weigh enough have a vertex in its `branch` (`cover`, `branch_on_new`) and each of these
    was searched; a vertex leaves `alive` when branching on it begins.

    FOUND: the pieces CHOSEN up to the present level; the next call counts them as searched.
    """
    numbers = state.numbers
    alive, branch = state.alive, state.branch
    while numbers[LEVEL] >= 0:
        level = numbers[LEVEL]
        if is_fresh:
            status = count_node(counts, budget, clock)
            if status != PROVED:
                return status
            if reframe(state):
                level = numbers[LEVEL]
            state.levels[level, OPENED] = numbers[WORK]
            n_alive, is_left = cover(
                state, state.frames[numbers[TOP]], alive[level], state.levels[level, MISSING],
                branch[level],
            )  # fmt: skip
            state.levels[level, N_ALIVE] = n_alive
            if is_left and level == 0:
                branch_on_new(state)
            is_fresh = False
        frame = state.frames[numbers[TOP]]
        width = frame[WIDTH]
        x = width - 1
        while x >= 0 and branch[level, x] == 0:
            x -= 1
        if x < 0:
            if frame[ROOT] == level:
                numbers[TOP] -= 1
            numbers[LEVEL] -= 1
            continue
        bit = highest_bit(branch[level, x])
        vertex = (x << 6) + np.int64(bit)
        branch[level, x] &= ~(BIT << bit)
        alive[level, x] &= ~(BIT << bit)
        state.levels[level, VERTEX] = vertex
        state.levels[level, CHOSEN] = state.labels[PIECE, frame[LIST] + vertex]
        missing = state.levels[level, MISSING] - state.labels[WEIGHT, frame[LIST] + vertex]
        if missing <= 0:
            return FOUND
        row = frame[START] + vertex * width
        for y in range(width):
            alive[level + 1, y] = alive[level, y] & state.words[row + y]
        state.levels[level + 1, MISSING] = missing
        state.levels[level + 1, FRAME] = numbers[TOP]
        numbers[LEVEL] = level + 1
        is_fresh = True
    return PROVED


@noalloc_kernel
def retract(state, limit):
    """Go on among nearer pieces only: those before `limit`.

    Sound: a clique with another piece has no point nearer than the violation just found.
    """
    numbers = state.numbers
    numbers[LIMIT] = limit
    near = state.masks[0]
    known = -1
    for level in range(numbers[LEVEL] + 1):
        number = state.levels[level, FRAME]
        frame = state.frames[number]
        if number != known:
            known = number
            fill_mask(near, 0)
            for vertex in range(frame[SIZE]):
                if state.labels[PIECE, frame[LIST] + vertex] < limit:
                    near[vertex >> 6] |= BIT << (np.uint64(vertex) & LAST)
        for x in range(frame[WIDTH]):
            state.alive[level, x] &= near[x]
            state.branch[level, x] &= near[x]
        if state.levels[level, CHOSEN] >= limit:
            numbers[LEVEL] = level
            numbers[TOP] = number
            break


LOW, HIGH = 0, 1


@inlined_kernel
def before(distance, is_beyond):
    """Largest radius whose closed ball does not reach a distance."""
    return distance if is_beyond else max(np.nextafter(distance, -np.inf), 0.0)


class Room(NamedTuple):
    """Scratch of the judgement of cliques.

    boxes  int32 (n_trees + 2, 2, n_features)   LOW and HIGH: first and last cells
    turns  int64 (n_trees + 2, 2)               tree of a level, its next leaf
    clock  int64 (2,)

    division  where trees of all classes are to be judged
    """

    boxes: np.ndarray
    turns: np.ndarray
    clock: np.ndarray
    division: Division


@noalloc_kernel
def nearest_point(judge_of, box):
    """Move to the cells of a box that are nearest to the row; returns their distance."""
    home, cells = judge_of.region.home, judge_of.cells
    for feature in range(len(cells)):
        cells[feature] = min(max(home[feature], box[LOW, feature]), box[HIGH, feature])
    return point_distance(judge_of.forest, judge_of.region, cells)


@noalloc_kernel
def judge_nearest(judge_of, box):
    """Judge the nearest point of a box by the library's own arithmetic; a violation is kept.

    Returns BROKEN also where the point is no nearer than the violation that is known.
    """
    found = judge_of.found
    distance, is_beyond = nearest_point(judge_of, box)
    if not is_nearer(distance, is_beyond, found.upper[0], found.is_open[0]):
        return np.int64(BROKEN)
    return np.int64(
        judge_cells(
            judge_of.forest, judge_of.claim, judge_of.region, judge_of.cells, judge_of.total, found
        )
    )


@noalloc_kernel
def judge_tuple(judge_of, doubt, box, division):
    """Judge a box where every tree that the claim weighs has one leaf left.

    Where only what a softmax rounds to is in question, the trees of all classes are looked at,
    wherever the others have these leaves. Sound: what is cleared within a radius is not searched
    again within larger ones.
    """
    forest, claim, region = judge_of.forest, judge_of.claim, judge_of.region
    if judge_nearest(judge_of, box) != AMBIGUOUS:
        return
    if region.is_ball:
        ball_cells(forest.space, region, region.within, division.box)
        if region.takes_any:
            drop_reached(forest.space, region, judge_of.found, division.box)
    else:
        copy_into(division.box.low, judge_of.box.low)
        copy_into(division.box.high, judge_of.box.high)
    keep_leaves(forest, claim, region.row, judge_of.cells, division.box)
    verdict = judge_tuples(
        forest, claim, region, division, judge_of.cells, judge_of.total, judge_of.found
    )
    distance, is_beyond = nearest_point(judge_of, box)
    if verdict == AMBIGUOUS and is_nearer(distance, is_beyond, doubt[0], doubt[1] > 0.0):
        doubt[0] = distance
        doubt[1] = 1.0 if is_beyond else 0.0


@inlined_kernel
def meets(leaves, leaf, box):
    """Whether a leaf shares cells with a box."""
    for entry in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
        feature = leaves.feature[entry]
        if leaves.low[entry] > box[HIGH, feature] or leaves.high[entry] < box[LOW, feature]:
            return False
    return True


@noalloc_kernel
def narrow(leaves, leaf, box):
    """Keep what a box shares with a leaf."""
    for entry in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
        feature = leaves.feature[entry]
        box[LOW, feature] = max(box[LOW, feature], leaves.low[entry])
        box[HIGH, feature] = min(box[HIGH, feature], leaves.high[entry])


@noalloc_kernel
def undecided_tree(graph, box):
    """Tree with fewest leaves, but two at least, that meet a box; -1 if there is none.

    -2 when the box holds no violation. Sound: a point gets at most the heaviest leaf of each tree.
    """
    leaves, weight = graph.leaves, graph.leaf_weight
    fewest = np.int64(len(weight) + 1)
    best = -1
    total = np.int64(0)
    for tree in range(len(leaves.leaf_start) - 1):
        count = 0
        heaviest = np.int64(0)
        for leaf in range(leaves.leaf_start[tree], leaves.leaf_start[tree + 1]):
            if meets(leaves, leaf, box):
                count += 1
                heaviest = max(heaviest, weight[leaf])
        total += heaviest
        if 1 < count < fewest:
            fewest = count
            best = tree
    return best if total >= graph.required else -2


@noalloc_kernel
def settle(judge_of, doubt, graph, room, budget):
    """Judge every leaf tuple in the first box that may be a violation nearer than what is known.

    Sound: the leaves of a tree divide the box, and where every tree has one leaf left, all points
    reach the leaves just judged.
    """
    found, boxes, turns = judge_of.found, room.boxes, room.turns
    leaves = graph.leaves
    depth = 0
    is_fresh = True
    while depth >= 0:
        box = boxes[depth]
        if is_fresh:
            status = count_node(found.counts, budget, room.clock)
            if status != PROVED:
                return status
            distance, is_beyond = nearest_point(judge_of, box)
            tree = -2
            if is_nearer(distance, is_beyond, found.upper[0], found.is_open[0]):
                tree = undecided_tree(graph, box)
            if tree == -1:
                judge_tuple(judge_of, doubt, box, room.division)
            if tree < 0:
                depth -= 1
                is_fresh = False
                continue
            turns[depth, 0] = tree
            turns[depth, 1] = leaves.leaf_start[tree]
        tree = turns[depth, 0]
        leaf = turns[depth, 1]
        while leaf < leaves.leaf_start[tree + 1] and not meets(leaves, leaf, box):
            leaf += 1
        is_fresh = leaf < leaves.leaf_start[tree + 1]
        if is_fresh:
            turns[depth, 1] = leaf + 1
            for feature in range(box.shape[1]):
                boxes[depth + 1, LOW, feature] = box[LOW, feature]
                boxes[depth + 1, HIGH, feature] = box[HIGH, feature]
            depth += 1
            narrow(leaves, leaf, boxes[depth])
        else:
            depth -= 1
    return PROVED


@noalloc_kernel
def judge_clique(judge_of, doubt, graph, state, room, budget):
    """Judge all points that the chosen pieces share; returns PROVED or the limit reached.

    Sound: where the nearest of them is a violation, none of the others is nearer. Otherwise, within
    the slack of rounding or with a claim that asks for more, each leaf tuple is judged.
    """
    shared = room.boxes[0]
    for feature in range(len(graph.box.low)):
        shared[LOW, feature] = graph.box.low[feature]
        shared[HIGH, feature] = graph.box.high[feature]
    for level in range(state.numbers[LEVEL] + 1):
        narrow(graph.leaves, np.int64(graph.leaf[state.levels[level, CHOSEN]]), shared)
    if judge_nearest(judge_of, shared) == BROKEN:
        return PROVED
    return settle(judge_of, doubt, graph, room, budget)


@noalloc_kernel
def cleared_at_root(graph, state, cleared, deadline, clock):
    """How many of the nearest pieces classes alone show to hold no violation; some are known."""
    n = len(graph.leaf)
    state.numbers[TOP] = 0
    fill_mask(state.alive[0], n)
    enter_frame(state, state.alive[0], np.int64(0))
    frame = state.frames[1]
    mask = state.alive[0]
    open_from = n + 1
    trial = n
    while True:
        fill_mask(mask, 0)
        for vertex in range(n):
            if state.labels[PIECE, frame[LIST] + vertex] < trial:
                mask[vertex >> 6] |= BIT << (np.uint64(vertex) & LAST)
        _, is_left = cover(state, frame, mask, graph.required, state.branch[0])
        if is_left:
            open_from = trial
        else:
            cleared = trial
        if open_from - cleared <= 1 + n // 64 or seconds_now(clock) > deadline:
            return cleared
        trial = (cleared + open_from) // 2


FIRST_STEP, SMALL_STEP, LARGE_STEP = 1.15, 1.07, 1.3
"""By how much a prefix grows: at first, after a costly one, after a cheap one."""
LEAST_STEP = 16


@noalloc_kernel
def next_prefix(state, n_cleared, work, step):
    """End of the next prefix to be searched, from what the last one cost."""
    spent = state.numbers[WORK] - work
    cost = 2 * cost_of_frame(n_cleared)
    if work > 0:
        step = LARGE_STEP if spent < cost else SMALL_STEP if spent > 8 * cost else step
    return max(n_cleared + LEAST_STEP, np.int64(n_cleared * step)), step


@inner_kernel
def nearest_clique(judge_of, doubt, leaves, box, base, floor, budget):
    """Find the nearest violation in a box, or show that there is none nearer than what is known.

    judge_of     Judge          ``found`` holds what is known, and is valid at any return
    doubt        float64 (2,)   distance of the nearest point that only a link's rounding can judge,
                                infinite without one; 1 where it is only approached
    leaves, box  Leaves, CellBox
    base, floor  float64        see `treeproof.kernels.exact.piece_graph.weigh`

    Returns
    -------
    status   int      PROVED, NEAR_TIE, or the limit that ended the search
    cleared  float64  no violation in the box is at this distance or nearer, but for those at
                      ``found.upper`` and ``doubt`` or beyond; infinite when all was searched
    """
    found = judge_of.found
    space = judge_of.forest.space
    graph, beyond = find_pieces(space, judge_of.region, leaves, box, base, floor, found)
    if graph.reach < graph.required:
        return final_status(found, doubt, PROVED), np.inf
    if beyond == 0.0 or bytes_of_graph(len(graph.leaf), graph.most) > budget.memory_bytes:
        return MEMORY_LIMIT, 0.0
    state = new_state(graph)
    room = Room(
        np.empty((len(leaves.leaf_start) + 1, 2, len(box.low)), dtype=np.int32),
        np.empty((len(leaves.leaf_start) + 1, 2), dtype=np.int64),
        np.empty(2, dtype=np.int64),
        new_division(len(box.low)),
    )
    if graph.required <= 0:
        # The leaves of least gain suffice: without a choice, the whole box is to be judged.
        status = judge_clique(judge_of, doubt, graph, state, room, budget)
        return final_status(found, doubt, status), np.inf if status == PROVED else 0.0
    join_pieces(graph, state)
    n_cleared = cleared_at_root(
        graph, state, n_within(graph, found.lower[0]), budget.deadline, room.clock
    )
    step = FIRST_STEP
    work = np.int64(0)
    limit = np.int64(len(graph.leaf))
    # Ends: prefixes grow.
    while n_cleared < limit:
        end, step = next_prefix(state, n_cleared, work, step)
        end = min(end, limit)
        work = state.numbers[WORK]
        open_prefix(graph, state, n_cleared, end)
        status = search_prefix(judge_of, doubt, graph, state, room, budget)
        if status != PROVED:
            # Sound: cliques of the pieces before this one were searched, others are as far as it.
            return status, before(graph.distance[n_cleared], graph.is_beyond[n_cleared])
        limit = n_nearer(graph, limit, found)
        n_cleared = end
    if beyond < np.inf and is_nearer(beyond, False, found.upper[0], found.is_open[0]):
        return MEMORY_LIMIT, before(beyond, False)
    return final_status(found, doubt, PROVED), np.inf


@noalloc_kernel
def search_prefix(judge_of, doubt, graph, state, room, budget):
    """Search a prefix to its end, judging what is found; returns PROVED or the limit reached."""
    found = judge_of.found
    is_fresh = True
    # Ends: each call goes on from the clique before, and counts its nodes.
    while True:
        status = search_cliques(state, found.counts, budget, room.clock, is_fresh)
        if status == FOUND:
            status = judge_clique(judge_of, doubt, graph, state, room, budget)
            if judge_of.region.takes_any and found.upper[0] < np.inf:
                return PROVED
            limit = n_nearer(graph, state.numbers[LIMIT], found)
            if limit < state.numbers[LIMIT]:
                retract(state, limit)
        elif status == PROVED:
            return status
        if status != PROVED:
            return status
        is_fresh = False


@noalloc_kernel
def n_within(graph, radius):
    """How many of the first pieces are nearer than a radius.

    Sound: the points that cliques of these alone have in common are nearer than the radius.
    """
    n = 0
    while n < len(graph.leaf) and graph.distance[n] < radius:
        n += 1
    return n


@noalloc_kernel
def n_nearer(graph, limit, found):
    """How many of the first pieces are nearer than the nearest violation."""
    while limit > 0 and not is_nearer(
        graph.distance[limit - 1], graph.is_beyond[limit - 1], found.upper[0], found.is_open[0]
    ):
        limit -= 1
    return limit


@noalloc_kernel
def final_status(found, doubt, status):
    """Status of a search that is done: NEAR_TIE where a nearer point could not be judged."""
    is_in_doubt = is_nearer(doubt[0], doubt[1] > 0.0, found.upper[0], found.is_open[0])
    return NEAR_TIE if status == PROVED and is_in_doubt else status
