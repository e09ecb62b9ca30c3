"""Rows and radii of the multi-level bounds: which radii are tried, and what they prove."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.cells import CellBox
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.leaves import LeafBuffer, restrict_trees
from treeproof.kernels.core.status import PROVED, UNDECIDED
from treeproof.kernels.paper.levels import Options, decide_alternative
from treeproof.kernels.paper.parts import Search, keep_order
from treeproof.kernels.paper.paths import prove_by_paths, prove_nothing
from treeproof.kernels.paper.questions import Question, Radii, radii_of_row, set_cells
from treeproof.kernels.paper.sharing import arrange_by_sharing

_KEEP = 0.45
"""Leaves of a larger box are kept for boxes down to this share of its radius."""

_RADIUS, _PROVED, _REFUSED, _STEP, _NUMBER = 0, 1, 2, 3, 4
"""State of a search: the radius to try, negative at its end; what was proved and refused last, as
radii or as numbers of a list; steps done, or the stride in the list; number of the radius there."""

_FIRST, _STEPS, _LARGEST = 0, 1, 2
"""Entries of a plan."""


class RowAnswers(NamedTuple):
    """Columns that the kernels below write, one entry per row."""

    status: np.ndarray  # int64; PROVED, UNDECIDED or the limit that was reached
    level: np.ndarray  # int64; level that gave the answer
    nodes: np.ndarray  # int64; partial cliques visited
    excess: np.ndarray  # float64; bound of eq. 6 less the floor, at a fixed radius
    lower: np.ndarray  # float64; proved radius
    proved_at_first: np.ndarray  # bool; whether the first radius of the plan was proved
    seconds: np.ndarray  # float64


class Task(NamedTuple):
    """What rows are bounded from, with, and into; room and search are those of `new_search`."""

    question: Question
    options: Options
    room: LeafBuffer
    search: Search
    out: RowAnswers


@kernel
def bound_by_sums(task, first, last):
    """Bound rows first to last by eq. 6, with groups of consecutive trees.

    Returns the first row that needs more room, or `last`.
    """
    return _bound_rows(task, first, last, _bound_row_by_sums)


@kernel
def bound_by_any(task, first, last):
    """As `bound_by_sums`, with shared features or eq. 7 where the options say so.

    Apart, because it takes much longer to compile.
    """
    return _bound_rows(task, first, last, _bound_row_by_any)


@inner_kernel
def _bound_rows(task, first, last, bound_row):
    limits, options = task.search.limits, task.options
    radii = Radii(np.empty(0), np.empty(0, dtype=np.bool_))
    for row in range(first, last):
        begun = seconds_now(limits.clock)
        limits.nodes[0] = 0
        limits.nodes[1] = options.node_limit
        limits.deadline[0] = begun + options.time_limit
        if len(options.plan) == 0:
            radii = radii_of_row(task.question.forest.space, task.question.rows, row)
        if not bound_row(task, row, radii):
            return row
        task.out.nodes[row] = limits.nodes[0]
        task.out.seconds[row] = seconds_now(limits.clock) - begun
    return last


@noalloc_kernel
def _bound_row_by_sums(task, row, radii):
    # Inner kernels are compiled as their callers are: from here on arrays are not counted.
    return _bound_row(task, row, radii, keep_order, prove_nothing)


@inner_kernel
def _bound_row_by_any(task, row, radii):
    return _bound_row(task, row, radii, arrange_by_sharing, prove_by_paths)


@inner_kernel
def _bound_row(task, row, radii, arrange, prove_otherwise):
    """Try radii as the plan says; False when the room is too small.

    arrange          how parts are arranged into groups, as `keep_order`
    prove_otherwise  how an alternative is proved that sums leave open, as `prove_nothing`
    """
    question, options, search, out = task.question, task.options, task.search, task.out
    rows, walk, state, plan = question.rows, search.walk, search.state, options.plan
    for number in range(len(search.proved)):
        search.proved[number] = -1.0
    search.proved[len(search.proved) - 1] = 0.0
    state[_PROVED] = -1.0
    if len(plan) == 0:
        _search_list(state, radii.radius)
    else:
        state[_RADIUS], state[_REFUSED], state[_STEP] = plan[_FIRST], -1.0, 0.0
    # In the list, sums go as far as they can before paths take over.
    with_paths = options.uses_paths and len(plan) > 0
    status = PROVED
    outer = -1.0
    # Ends: the list is bisected, and the steps of a plan are counted.
    while state[_RADIUS] >= 0.0 and status <= UNDECIDED:
        radius = state[_RADIUS]
        set_cells(question.forest.space, rows, row, radius, walk.low_cell, walk.high_cell)
        # The leaves of a box serve all boxes inside it that are not much smaller.
        if not _KEEP * outer <= radius <= outer:
            outer = radius
            if not _restrict_row(question, row, task.room, walk):
                return False
        status, level, out.excess[row] = _prove_radius(
            question.claims, rows.group[row], radius, search, options, with_paths,
            arrange, prove_otherwise,
        )  # fmt: skip
        if status == PROVED:
            out.lower[row] = radius
            out.proved_at_first[row] |= len(plan) > 0 and state[_STEP] == 0.0
        else:
            out.status[row] = status
        if status == PROVED or options.all_bounds:
            out.level[row] = level
        if len(plan) == 0:
            _next_of_list(state, radii.radius, status == PROVED)
        else:
            _next_of_plan(state, plan, status == PROVED)
        if state[_RADIUS] < 0.0 and options.uses_paths and not with_paths:
            with_paths = True
            _search_list(state, radii.radius)
    if len(plan) == 0:
        out.lower[row] = _listed_bound(radii, int(state[_PROVED]))
    return True


@inner_kernel
def _restrict_row(question, row, room, walk):
    """Walk the trees of a row's group down to the leaves that meet the box; False without room."""
    rows, forest = question.rows, question.forest
    mask = question.claims.group_mask[rows.group[row]]
    box = CellBox(walk.low_cell, walk.high_cell)
    return len(forest.trees.tree_output) == restrict_trees(
        forest, rows.values[row], box, None, mask, None, np.int64(0), room
    )


@inner_kernel
def _prove_radius(claims, group, radius, search, options, with_paths, arrange, prove_otherwise):
    """Try to prove a radius whose cells are set, with leaves of a box that holds it.

    Returns the status; the highest level needed, or the one that failed; the largest excess.
    """
    proved = search.proved
    begin = claims.group_start[group]
    n = claims.group_start[group + 1] - begin
    highest = np.int64(0)
    largest = -np.inf
    failed = len(proved) - 1
    for turn in range(n + 1 if n > 0 else 0):
        # The alternative that failed last is the likeliest to fail again.
        number = int(proved[failed]) if turn == 0 else turn - 1
        if radius <= proved[number]:
            continue
        alternative = begin + number
        status, level, excess = decide_alternative(claims, alternative, search, options, arrange)
        if status == UNDECIDED and with_paths:
            status = prove_otherwise(claims, alternative, search, options, arrange)
        largest = max(largest, excess)
        if status != PROVED:
            proved[failed] = number
            return status, level, largest
        highest = max(highest, level)
        proved[number] = radius
    return PROVED, highest, largest


@noalloc_kernel
def _search_list(state, radii):
    """Look at the list from the last proved radius on."""
    state[_REFUSED] = len(radii)
    state[_STEP] = 1.0
    state[_NUMBER] = state[_PROVED]
    _next_of_list(state, radii, True)


@noalloc_kernel
def _next_of_list(state, radii, is_proved):
    """Next radius of the exact search."""
    state[_PROVED if is_proved else _REFUSED] = state[_NUMBER]
    proved = int(state[_PROVED])
    refused = int(state[_REFUSED])
    if refused - proved <= 1:
        state[_RADIUS] = -1.0
        return
    number = (proved + refused) // 2
    if refused == len(radii):
        # Radii grow with the number, and the work with the radius: start small.
        number = min(proved + int(state[_STEP]), refused - 1)
        state[_STEP] *= 4.0
    state[_NUMBER] = number
    state[_RADIUS] = radii[number]


@noalloc_kernel
def _next_of_plan(state, plan, is_proved):
    """Next radius of the paper's search."""
    radius = state[_RADIUS]
    state[_STEP] += 1.0
    state[_PROVED if is_proved else _REFUSED] = radius
    if state[_STEP] >= plan[_STEPS]:
        state[_RADIUS] = -1.0
    elif state[_PROVED] < 0.0:
        state[_RADIUS] = 0.5 * radius
    elif state[_REFUSED] >= 0.0:
        state[_RADIUS] = 0.5 * (state[_PROVED] + state[_REFUSED])
    elif radius >= plan[_LARGEST]:
        state[_RADIUS] = -1.0
    else:
        state[_RADIUS] = min(2.0 * radius, plan[_LARGEST])


@noalloc_kernel
def _listed_bound(radii, proved):
    """Lower bound of the radius when the list is proved up to a number.

    Sound: between two distances of the list no new cell is reached.
    """
    if proved + 1 >= len(radii.radius):
        return np.inf
    radius = radii.radius[proved + 1]
    return np.nextafter(radius, -np.inf) if radii.is_beyond[proved + 1] else radius
