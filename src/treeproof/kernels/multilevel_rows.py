"""Many rows in one call: a fixed set, the paper's search, and the exact search of radii."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.clock import seconds_now
from treeproof.kernels.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.distances import collect_distances
from treeproof.kernels.group_bounds import LOOSE, PROVED
from treeproof.kernels.multilevel import decide_alternative
from treeproof.kernels.path_bounds import prove_by_paths
from treeproof.kernels.questions import set_cells, sort_distances
from treeproof.kernels.restriction import larger_room, new_room
from treeproof.kernels.selection import new_restricted, restrict_row

_LEAVES = 4096
"""Leaves that there is room for at first; larger rooms are made when they are needed."""

_KEEP = 0.45
"""Leaves of a larger box are kept for boxes down to this share of its radius."""


class RowAnswers(NamedTuple):
    """Columns that the kernels below write, one entry per row.

    status           int64     PROVED, LOOSE or the limit that was reached
    level            int64     level that gave the answer
    nodes            int64     partial cliques visited
    excess           float64   how far the bound of eq. 6 lies above the floor
    lower            float64   proved radius
    proved_at_first  bool      whether the first radius of the paper's search was proved
    seconds          float64
    """

    status: np.ndarray
    level: np.ndarray
    nodes: np.ndarray
    excess: np.ndarray
    lower: np.ndarray
    proved_at_first: np.ndarray
    seconds: np.ndarray


@noalloc_kernel
def _begin_row(out, row, nodes, options, clock):
    """Start the row's clock and counter; return its deadline."""
    nodes[0] = 0
    nodes[1] = options.node_limit
    out.seconds[row] = -seconds_now(clock)
    return options.time_limit - out.seconds[row]


@noalloc_kernel
def _end_row(out, row, nodes, clock):
    out.nodes[row] = nodes[0]
    out.seconds[row] += seconds_now(clock)


@kernel
def verify_rows(trees, space, question, radius, first, last, options, out):
    """Decide rows at the question's own radius or box.

    radius       float64             not used for boxes
    first, last  int                 which rows
    out          RowAnswers          out
    """
    low_cell = np.empty(question.rows.shape[1], dtype=np.int32)
    high_cell = np.empty(question.rows.shape[1], dtype=np.int32)
    nodes = np.zeros(2, dtype=np.int64)
    clock = np.empty(2, dtype=np.int64)
    n_features = len(low_cell)
    room = new_room(len(trees.tree_output), n_features, space.max_depth, _LEAVES, 4 * _LEAVES)
    restricted = new_restricted(room, n_features, low_cell, high_cell, nodes, clock, question.share)
    for row in range(first, last):
        deadline = _begin_row(out, row, nodes, options, clock)
        set_cells(space, question, row, radius, low_cell, high_cell)
        while not restrict_row(trees, space, question, row, low_cell, high_cell, room):
            room = larger_room(room)
            restricted = new_restricted(
                room, n_features, low_cell, high_cell, nodes, clock, question.share
            )
        group = question.group[row]
        out.excess[row] = -np.inf
        for alternative in range(question.group_start[group], question.group_start[group + 1]):
            status, level, excess = decide_alternative(
                trees, question, alternative, restricted, low_cell, high_cell, options, deadline
            )
            if status == LOOSE and options.use_path:
                status = prove_by_paths(
                    trees, question, alternative, restricted, low_cell, high_cell, options, deadline
                )
            out.level[row] = max(out.level[row], level)
            out.excess[row] = max(out.excess[row], excess)
            if status != PROVED:
                out.status[row] = status
                out.level[row] = level
                break
        _end_row(out, row, nodes, clock)


@noalloc_kernel
def _prove_radius(
    trees, question, row, radius, restricted, proved, low_cell, high_cell, options, deadline
):
    """Try to prove a radius whose cells are set, with leaves of a box that holds it.

    proved  float64 (most_alternatives + 1,)   in/out: radius to which each alternative is proved
                                               and, at the end, the alternative that failed last
    """
    group = question.group[row]
    begin = question.group_start[group]
    n = question.group_start[group + 1] - begin
    highest = np.int64(0)
    failed = len(proved) - 1
    for turn in range(n + 1 if n > 0 else 0):
        # The alternative that failed last is the likeliest to fail again.
        number = int(proved[failed]) if turn == 0 else turn - 1
        if radius <= proved[number]:
            continue
        status, level, _ = decide_alternative(
            trees, question, begin + number, restricted, low_cell, high_cell, options, deadline
        )
        highest = max(highest, level)
        if status != PROVED:
            proved[failed] = number
            return status, highest
        proved[number] = radius
    return PROVED, highest


@inner_kernel
def _prove_by_paths(
    trees, question, row, radius, restricted, proved, low_cell, high_cell, options, deadline
):
    """As `_prove_radius`, after it did not: paths for the alternatives that sums leave open."""
    begin = question.group_start[question.group[row]]
    status = LOOSE
    level = np.int64(0)
    while status == LOOSE:
        number = int(proved[len(proved) - 1])
        status = prove_by_paths(
            trees, question, begin + number, restricted, low_cell, high_cell, options, deadline
        )
        if status != PROVED:
            return status, level
        proved[number] = radius
        status, level = _prove_radius(
            trees, question, row, radius, restricted, proved, low_cell, high_cell, options, deadline
        )
    return status, level


@noalloc_kernel
def _next_of_protocol(state, search, is_proved):
    """Next radius of the paper's search; negative at its end.

    state   float64 (4,)   in/out: last radius, largest proved, last refused, steps done
    search  float64 (3,)   first radius, number of steps, largest radius
    """
    radius = state[0]
    state[3] += 1.0
    if is_proved:
        state[1] = radius
    else:
        state[2] = radius
    if state[3] >= search[1]:
        state[0] = -1.0
    elif state[1] < 0.0:
        state[0] = 0.5 * radius
    elif state[2] >= 0.0:
        state[0] = 0.5 * (state[1] + state[2])
    elif radius >= search[2]:
        state[0] = -1.0
    else:
        state[0] = min(2.0 * radius, search[2])


@noalloc_kernel
def _next_of_list(state, radii, is_proved):
    """Next radius of the exact search; negative at its end.

    state  float64 (4,)   in/out: last radius, number of the last proved and of the first refused
                          radius, stride
    """
    proved = int(state[1])
    refused = int(state[2])
    middle = int(np.searchsorted(radii, state[0]))
    if state[0] >= 0.0:
        if is_proved:
            proved = middle
        else:
            refused = middle
    state[1] = proved
    state[2] = refused
    if refused - proved <= 1:
        state[0] = -1.0
    elif refused < len(radii):
        state[0] = radii[(proved + refused) // 2]
    else:
        # Radii grow with the number, and the work with the radius: start small.
        state[0] = radii[min(proved + int(state[3]), refused - 1)]
        state[3] *= 4.0


@noalloc_kernel
def _listed_bound(radii, is_beyond, proved):
    """Lower bound of the radius when the list is proved up to a number.

    Sound: between two distances of the list no new cell is reached.
    """
    if proved + 1 >= len(radii):
        return np.inf
    if is_beyond[proved + 1]:
        return np.nextafter(radii[proved + 1], -np.inf)
    return radii[proved + 1]


@kernel
def search_rows(trees, space, question, search, first, last, options, out):
    """Largest radius that is proved, row by row.

    search  float64 (3,)   the paper's search: first radius, number of steps, largest radius; or
                           empty for the exact search in the list of distances
    """
    low_cell = np.empty(question.rows.shape[1], dtype=np.int32)
    high_cell = np.empty(question.rows.shape[1], dtype=np.int32)
    is_listed = len(search) == 0
    value = np.empty(len(space.cut) if is_listed else 0)
    beyond = np.empty(len(value), dtype=np.bool_)
    nodes = np.zeros(2, dtype=np.int64)
    clock = np.empty(2, dtype=np.int64)
    n_features = len(low_cell)
    room = new_room(len(trees.tree_output), n_features, space.max_depth, _LEAVES, 4 * _LEAVES)
    restricted = new_restricted(room, n_features, low_cell, high_cell, nodes, clock, question.share)
    proved_to = np.empty(question.most_alternatives + 1)
    state = np.empty(4)
    for row in range(first, last):
        deadline = _begin_row(out, row, nodes, options, clock)
        proved_to[:] = -1.0
        proved_to[len(proved_to) - 1] = 0.0
        n = 0
        if is_listed:
            rates = question.down, question.up
            sides = question.low[row], question.high[row]
            n = collect_distances(space, question.rows[row], rates, sides, value, beyond)
        radii, is_beyond = sort_distances(value, beyond, n)
        state[:] = -1.0
        if is_listed:
            state[2] = len(radii)
            state[3] = 1.0
            _next_of_list(state, radii, False)
        else:
            state[0] = search[0]
            state[3] = 0.0
        status = PROVED
        # In the list, sums go as far as they can before paths take over.
        use_path = options.use_path and not is_listed
        while state[0] >= 0.0 and status <= LOOSE:
            outer = state[0]
            set_cells(space, question, row, outer, low_cell, high_cell)
            while not restrict_row(trees, space, question, row, low_cell, high_cell, room):
                room = larger_room(room)
                restricted = new_restricted(
                    room, n_features, low_cell, high_cell, nodes, clock, question.share
                )
            # The leaves of this box serve all boxes inside it that are not much smaller.
            while _KEEP * outer <= state[0] <= outer and status <= LOOSE:
                radius = state[0]
                set_cells(space, question, row, radius, low_cell, high_cell)
                status, level = _prove_radius(
                    trees, question, row, radius, restricted, proved_to, low_cell, high_cell,
                    options, deadline,
                )  # fmt: skip
                if status == LOOSE and use_path:
                    status, level = _prove_by_paths(
                        trees, question, row, radius, restricted, proved_to, low_cell, high_cell,
                        options, deadline,
                    )  # fmt: skip
                if status == PROVED:
                    out.lower[row] = radius
                    out.level[row] = level
                    out.proved_at_first[row] |= not is_listed and state[3] == 0.0
                else:
                    out.status[row] = status
                if is_listed:
                    _next_of_list(state, radii, status == PROVED)
                else:
                    _next_of_protocol(state, search, status == PROVED)
                if state[0] < 0.0 and options.use_path and not use_path:
                    use_path = True
                    state[2] = len(radii)
                    state[3] = 1.0
                    _next_of_list(state, radii, False)
        if is_listed:
            out.lower[row] = _listed_bound(radii, is_beyond, int(state[1]))
        _end_row(out, row, nodes, clock)
