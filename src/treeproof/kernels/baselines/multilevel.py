"""The paper's Algorithm 2, level by level: whether a constraint can hold in a box."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.baselines.groups import (
    LOOSE,
    OUT_OF_MEMORY,
    OUT_OF_NODES,
    OUT_OF_TIME,
    PROVED,
    group_maximum,
    new_restricted,
    prepare_parts,
    restrict_row,
)
from treeproof.kernels.baselines.narrowing import enter, leave
from treeproof.kernels.baselines.questions import set_cells, sort_distances
from treeproof.kernels.core.arrays import grown, sorted_order
from treeproof.kernels.core.balls import collect_distances
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.leaves import grow_buffer, new_buffer


class Options(NamedTuple):
    """How groups are formed and what may be spent on a row.

    clique_size   int       T, trees or groups merged per level
    n_levels      int       L
    use_path      bool      eq. 7 at the last level, where eq. 6 does not prove it
    all_bounds    bool      finish every sum, for its value, instead of stopping once decided
    node_limit    int
    store_limit   int       cliques and ranges that a path bound may hold
    time_limit    float64   seconds
    """

    clique_size: int
    n_levels: int
    use_path: bool
    all_bounds: bool
    node_limit: int
    store_limit: int
    time_limit: float


@noalloc_kernel
def group_suffix(parts, walk, first_part, n_parts, child_size, child_maximum):
    """Bound what the parts from each depth on can add: maxima of parts and of whole children."""
    walk.suffix[n_parts] = 0.0
    after_child = 0.0
    for depth in range(n_parts - 1, -1, -1):
        part = first_part + depth
        walk.suffix[depth] = walk.suffix[depth + 1] + parts.gain[parts.part_start[part]]
        if part % child_size == 0:
            # Sound: the parts of a child add no more than its own maximum.
            after_child += child_maximum[part // child_size]
            walk.suffix[depth] = min(walk.suffix[depth], after_child)


@noalloc_kernel
def sum_level(parts, n_parts, walk, size, child_size, maxima, floor, options, deadline):
    """Maxima of the groups of one level; their sum is the bound of eq. 6.

    size        int                   parts per group; groups start at multiples of it
    child_size  int                   parts per group of the level below
    maxima      float64 (3, n_parts)  in: maxima of the level below in row 0; out: in row 1 the
                                      maximum of each group, or an upper bound of it
    floor       float64

    Returns
    -------
    int, float64
        PROVED when the sum is below the floor, LOOSE when not, or the limit that was reached; and
        the sum, or where it was not finished an upper bound of it.
    """
    n_groups = (n_parts + size - 1) // size
    n_children = (n_parts + child_size - 1) // child_size
    children = size // child_size
    total = 0.0
    total_least = 0.0
    for group in range(n_groups):
        first = group * size
        count = min(size, n_parts - first)
        most = 0.0
        for child in range(group * children, min((group + 1) * children, n_children)):
            most += maxima[0, child]
        maxima[1, group] = most
        total += most
        group_suffix(parts, walk, first, count, child_size, maxima[0])
        maxima[2, group], finished = group_maximum(
            parts, walk, first, count, -np.inf, np.bool_(True), deadline
        )
        if not finished:
            return _limit_reached(walk), total
        total_least += maxima[2, group]
    for group in range(n_groups):
        # Sound: the sum is at least total_least, so it cannot fall below the floor any more.
        if total_least >= floor and not options.all_bounds:
            return LOOSE, total
        least = maxima[2, group]
        if least < maxima[1, group]:
            first = group * size
            count = min(size, n_parts - first)
            group_suffix(parts, walk, first, count, child_size, maxima[0])
            exact, finished = group_maximum(
                parts, walk, first, count, least, np.bool_(False), deadline
            )
            if not finished:
                return _limit_reached(walk), total
            total += exact - maxima[1, group]
            total_least += exact - least
            maxima[1, group] = exact
        if total < floor and not options.all_bounds:
            break
    return PROVED if total < floor else LOOSE, total


@noalloc_kernel
def _limit_reached(walk):
    return OUT_OF_NODES if walk.nodes[0] >= walk.nodes[1] else OUT_OF_TIME


@noalloc_kernel
def decide_constraint(
    trees, question, constraint, restricted, low_cell, high_cell, options, deadline
):
    """Try to prove that one constraint cannot hold anywhere in a box of cells.

    restricted  Restricted             leaves of a box that holds this one
    low_cell, high_cell  int32 (n_features,)   the box; the arrays of ``restricted.walk``

    Returns
    -------
    int, int, float64
        Status; the level that proved it, or the last one finished; how far the bound of eq. 6 lies
        above the floor (negative: proved).
    """
    n_parts, floor = prepare_parts(
        trees, question, constraint, restricted, low_cell, high_cell, options
    )
    # Without sharing the reordered parts are empty: the parts stay as they are.
    return decide_levels(
        restricted.reordered if question.share else restricted.parts,
        n_parts, restricted.walk, restricted.maximum, floor, options, deadline,
    )  # fmt: skip


@noalloc_kernel
def decide_levels(parts, n_parts, walk, maxima, floor, options, deadline):
    """Merge level by level until the bound falls below the floor; returns as above."""
    excess = -floor
    for part in range(n_parts):
        maxima[0, part] = parts.gain[parts.part_start[part]]
        excess += maxima[0, part]
    size = np.int64(1)
    level = np.int64(0)
    while excess >= 0.0:
        if level == options.n_levels or size >= n_parts:
            return LOOSE, level, excess
        child_size = size
        size *= options.clique_size
        status, bound = sum_level(
            parts, n_parts, walk, size, child_size, maxima, floor, options, deadline
        )
        if status not in (PROVED, LOOSE):
            return status, level, excess
        level += 1
        for group in range((n_parts + size - 1) // size):
            maxima[0, group] = maxima[1, group]
        excess = bound - floor
    return PROVED, level, excess


@noalloc_kernel
def decide_alternative(
    trees, question, alternative, restricted, low_cell, high_cell, options, deadline
):
    """Try to prove that the constraints of an alternative cannot all hold in a box of cells.

    Returns
    -------
    int, int, float64
        As `decide_constraint`, of the constraint that proved it, or of the best one.
    """
    outcome = LOOSE
    reached = np.int64(0)
    least = np.inf
    for constraint in range(
        question.alternative_start[alternative], question.alternative_start[alternative + 1]
    ):
        status, level, excess = decide_constraint(
            trees, question, constraint, restricted, low_cell, high_cell, options, deadline
        )
        least = min(least, excess)
        if status == PROVED:
            return PROVED, level, least
        reached = max(reached, level)
        if status != LOOSE:
            outcome = status
    return outcome, reached, least


@inner_kernel
def collect_cliques(parts, walk, box_low, box_high, first_part, n_parts, least, limit, deadline):
    """Cliques of a group whose gain is at least `least`, as sparse boxes.

    box_low, box_high  int32 (n_features,)   the box of the question in cells
    first_part         int
    n_parts            int
    least              float64
    limit              int                   most ranges and cliques to store
    deadline           float64

    Returns
    -------
    status (PROVED when all were stored), value (n,), range_end (n,), feature, low, high
    """
    value = np.empty(64)
    range_end = np.empty(64, dtype=np.int32)
    feature = np.empty(256, dtype=np.int32)
    low = np.empty(256, dtype=np.int32)
    high = np.empty(256, dtype=np.int32)
    n = 0
    n_ranges = 0
    status = PROVED
    depth = np.int64(0)
    walk.total[0] = 0.0
    walk.trail_start[0] = 0
    walk.position[0] = parts.part_start[first_part]
    while depth >= 0:
        end = parts.part_start[first_part + depth + 1]
        at = walk.position[depth]
        entered = False
        while at < end and not entered:
            total = walk.total[depth] + parts.gain[at]
            if total + walk.suffix[depth + 1] < least:
                at = end
                break
            entered = enter(parts, walk, parts.leaf[at], depth)
            walk.total[depth + 1] = total
            at += 1
        walk.position[depth] = at
        if not entered:
            depth -= 1
            if depth >= 0:
                leave(walk, depth)
            continue
        depth += 1
        walk.nodes[0] += 1
        if walk.nodes[0] >= walk.nodes[1]:
            status = OUT_OF_NODES
        elif n + n_ranges > limit:
            status = OUT_OF_MEMORY
        elif walk.nodes[0] & 1023 == 0 and seconds_now(walk.clock) > deadline:
            status = OUT_OF_TIME
        if status != PROVED:
            for d in range(depth - 1, -1, -1):
                leave(walk, d)
            break
        if depth < n_parts:
            walk.position[depth] = parts.part_start[first_part + depth]
            continue
        if n == len(value):
            value = grown(value, n + 1)
            range_end = grown(range_end, n + 1)
        top = walk.trail_start[depth]
        if n_ranges + top > len(feature):
            feature = grown(feature, n_ranges + top)
            low = grown(low, n_ranges + top)
            high = grown(high, n_ranges + top)
        for t in range(top):
            # A feature narrowed twice is written once, at its first narrowing.
            f = walk.trail[t, 0]
            if walk.trail[t, 1] == box_low[f] and walk.trail[t, 2] == box_high[f]:
                feature[n_ranges] = f
                low[n_ranges] = walk.low_cell[f]
                high[n_ranges] = walk.high_cell[f]
                n_ranges += 1
        value[n] = walk.total[depth]
        range_end[n] = n_ranges
        n += 1
        depth -= 1
        leave(walk, depth)
    return status, value[:n], range_end[:n], feature, low, high


@inner_kernel
def best_continuations(walk, before, after, least, deadline):
    """Best path value ending in each clique of a group: eq. 7.

    before  cliques of the group before, with their best path values, sorted by falling value
    after   cliques of this group, as `collect_cliques` returned them
    least   float64   paths below are dropped
    deadline  float64

    Returns
    -------
    int, float64 (n,)
        Status; path values, minus infinity where no path of at least `least` ends.
    """
    _, value, range_end, feature, low, high = after
    _, old_value, old_end, old_feature, old_low, old_high = before
    best = np.full(len(value), -np.inf)
    order = sorted_order(old_value, False)
    begin = 0
    for i in range(len(value)):
        if i & 255 == 255 and seconds_now(walk.clock) > deadline:
            return OUT_OF_TIME, best
        for r in range(begin, range_end[i]):
            walk.trail[r - begin, 0] = feature[r]
            walk.trail[r - begin, 1] = walk.low_cell[feature[r]]
            walk.trail[r - begin, 2] = walk.high_cell[feature[r]]
            walk.low_cell[feature[r]] = low[r]
            walk.high_cell[feature[r]] = high[r]
        for j in order:
            if value[i] + old_value[j] < least:
                break
            does_meet = True
            for r in range(old_end[j - 1] if j > 0 else 0, old_end[j]):
                f = old_feature[r]
                if old_low[r] > walk.high_cell[f] or old_high[r] < walk.low_cell[f]:
                    does_meet = False
                    break
            if does_meet:
                best[i] = value[i] + old_value[j]
                break
        for r in range(begin, range_end[i]):
            walk.low_cell[feature[r]] = walk.trail[r - begin, 1]
            walk.high_cell[feature[r]] = walk.trail[r - begin, 2]
        begin = range_end[i]
    return PROVED, best


@inner_kernel
def path_level(parts, n_parts, walk, size, maxima, floor, options, deadline):
    """Whether a path of at least the floor runs through the groups of one level (eq. 7).

    A clique can be on such a path only if it lies within the excess (the sum of the maxima less the
    floor) of its group's maximum. Cliques much nearer to it are tried first: a path through them is
    found with little work, where there is one.

    maxima  float64 (3, n_parts)   row 0: maxima of the groups, or upper bounds of them
    """
    n_groups = (n_parts + size - 1) // size
    remaining = np.zeros(n_groups + 1)
    for group in range(n_groups - 1, -1, -1):
        remaining[group] = remaining[group + 1] + maxima[0, group]
    excess = remaining[0] - floor
    status = LOOSE
    for reach in (excess / 16.0, excess / 4.0, excess):
        status = _path_within(
            parts, n_parts, walk, size, maxima, remaining, reach, floor, options, deadline
        )
        if status != PROVED:
            break
    return status


@inner_kernel
def _path_within(parts, n_parts, walk, size, maxima, remaining, reach, floor, options, deadline):
    """LOOSE when cliques within a reach of their maxima form a path of at least the floor."""
    part_maximum = parts.gain[parts.part_start[:n_parts]]
    box_low = walk.low_cell.copy()
    box_high = walk.high_cell.copy()
    nothing = np.zeros(0, dtype=np.int32)
    before = (PROVED, np.zeros(1), np.zeros(1, dtype=np.int32), nothing, nothing, nothing)
    stored = 0
    for group in range(len(remaining) - 1):
        first = group * size
        count = min(size, n_parts - first)
        group_suffix(parts, walk, first, count, np.int64(1), part_maximum)
        after = collect_cliques(
            parts, walk, box_low, box_high, first, count, maxima[0, group] - reach,
            options.store_limit - stored, deadline,
        )  # fmt: skip
        if after[0] != PROVED:
            return after[0]
        stored = len(after[1]) + len(after[3])
        status, best = best_continuations(
            walk, before, after, floor - remaining[group + 1], deadline
        )
        if status != PROVED:
            return status
        if len(best) == 0 or np.max(best) == -np.inf:
            return PROVED
        before = (PROVED, best, after[2], after[3], after[4], after[5])
    return LOOSE


@inner_kernel
def prove_by_paths(
    trees, question, alternative, restricted, low_cell, high_cell, options, deadline
):
    """Try to prove an alternative by eq. 7 on the last level, after eq. 6 did not."""
    outcome = LOOSE
    for constraint in range(
        question.alternative_start[alternative], question.alternative_start[alternative + 1]
    ):
        n_parts, floor = prepare_parts(
            trees, question, constraint, restricted, low_cell, high_cell, options
        )
        parts = restricted.reordered if question.share else restricted.parts
        # Fills the maxima of the last level, which bound the paths; all of them are finished.
        finishing = Options(
            options.clique_size, options.n_levels, True, True, options.node_limit,
            options.store_limit, options.time_limit,
        )  # fmt: skip
        status, level, _ = decide_levels(
            parts, n_parts, restricted.walk, restricted.maximum, floor, finishing, deadline
        )
        if status == LOOSE:
            size = options.clique_size**level
            status = path_level(
                parts, n_parts, restricted.walk, size, restricted.maximum, floor, options, deadline
            )
        if status == PROVED:
            return PROVED
        if status != LOOSE:
            outcome = status
    return outcome


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
    room = new_buffer(len(trees.tree_output), n_features, space.max_depth, _LEAVES, 4 * _LEAVES)
    restricted = new_restricted(room, n_features, low_cell, high_cell, nodes, clock, question.share)
    for row in range(first, last):
        deadline = _begin_row(out, row, nodes, options, clock)
        set_cells(space, question, row, radius, low_cell, high_cell)
        while not restrict_row(trees, space, question, row, low_cell, high_cell, room):
            room = grow_buffer(room)
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
    room = new_buffer(len(trees.tree_output), n_features, space.max_depth, _LEAVES, 4 * _LEAVES)
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
                room = grow_buffer(room)
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
