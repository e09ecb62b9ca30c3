"""The exact engine's rows: verify a box, find the nearest violation, in batches."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into, sorted_order
from treeproof.kernels.core.cells import FIXED, box_cells, cell_from, cell_of, home_cells
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inlined_kernel, inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.emulation import AMBIGUOUS, BROKEN, Claim, judge
from treeproof.kernels.core.leaves import combination_up, restrict, summation_slack
from treeproof.kernels.exact.dual import new_state
from treeproof.kernels.exact.initial_radius import plan
from treeproof.kernels.exact.primal import (
    POINTS,
    RESTRICTIONS,
    SWEEPS,
    accept_point,
    cell_distances,
    new_target,
    take_back,
)
from treeproof.kernels.exact.problem import FEATURE, HIGH, LOW, build_problem
from treeproof.kernels.exact.search import (
    FRESH,
    JUDGE,
    NEAR_TIE,
    PROVED,
    REJECTED,
    SETTLED,
    TIME_LIMIT,
    UNDECIDED,
    WITNESSED,
    new_waiting,
    search,
)

CHEAP_GROWTH, QUICK_GROWTH, GIVEN_UP_GROWTH = 1.3, 1.25, 1.2
"""How a trial radius grows after a cheap bound, after a quick proof, after giving up."""

SURELY_NEARER = 0.9
"""Part of the suggested radius at which best leaves are asked for a proof."""

FAR_CLOSER = 0.5
"""A witness at this share of the radius makes the trees worth restricting to the smaller ball."""


class Alternatives(NamedTuple):
    """The numbers of `treeproof.query.constraints.Alternatives` that kernels read."""

    group_start: np.ndarray
    alternative_start: np.ndarray
    group_label: np.ndarray
    coefficient: np.ndarray
    need: np.ndarray
    unit: np.ndarray
    link_slack: np.ndarray


class Limits(NamedTuple):
    """Budget of one row."""

    time_s: float
    nodes: int
    memory_bytes: float


class Found(NamedTuple):
    """What is known about a row; arrays of one entry are overwritten in place.

    lower      float64 (1,)           no violation nearer
    upper      float64 (1,)           distance of the witness
    is_open    bool    (1,)           the witness only approaches it
    witness    int32   (n_features,)  cells of the witness
    counts     int64   (4,)           nodes, sweeps, points, restrictions
    cheap      float64 (1,)           radius from which the best leaves of all trees break the claim
    """

    lower: np.ndarray
    upper: np.ndarray
    is_open: np.ndarray
    witness: np.ndarray
    counts: np.ndarray
    cheap: np.ndarray


@inner_kernel
def claim_of(alternatives, group, constraint):
    """The constraint as a `Claim`."""
    return Claim(
        alternatives.coefficient[constraint],
        alternatives.need[constraint],
        alternatives.unit[constraint],
        alternatives.link_slack[constraint],
        alternatives.group_label[group],
    )


@noalloc_kernel
def largest_sum(leaf_start, leaf_gain):
    """The paper's eq. 6, every tree takes its best reachable leaf; rounded up.

    Sound: adding n doubles errs by at most n * 2**-53 times the sum of their magnitudes.
    """
    total = 0.0
    gross = 0.0
    for tree in range(len(leaf_start) - 1):
        if leaf_start[tree] < leaf_start[tree + 1]:
            largest = leaf_gain[leaf_start[tree]]
            for leaf in range(leaf_start[tree] + 1, leaf_start[tree + 1]):
                largest = max(largest, leaf_gain[leaf])
            total += largest
            gross += abs(largest)
    return total + (len(leaf_start) + 4) * 2.0**-52 * gross


@noalloc_kernel
def is_out_of_reach(base, floor, leaf_start, leaf_gain):
    """Whether the floor is not reached even if every tree takes its best leaf.

    Sound: `largest_sum` is rounded up, and so is what adding it to the base may lose.
    """
    return base + largest_sum(leaf_start, leaf_gain) + 2.0**-50 * abs(base) < floor


@noalloc_kernel
def base_and_floor(trees, semantics, claim, leaf_start, leaf_row):
    """Gain before any tree, and the gain below which nothing can break a claim in a box.

    leaf_start, leaf_row  from `restrict`
    """
    base = combination_up(claim.coefficient, semantics.start)
    slack = summation_slack(
        trees, claim.coefficient, semantics.start, claim.unit, leaf_start, leaf_row
    )
    return base, claim.need - slack - claim.link_slack


@inlined_kernel
def farthest_move(radius, rate):
    """A move of that radius, rounded up; a rate of 1 rounds nothing."""
    return radius if rate == 1.0 else np.nextafter(radius * rate, np.inf)


@noalloc_kernel
def ball_cells(space, row, row_cell, radius, down, up, low, high, low_cell, high_cell):
    """Cells of a box that holds the closed ball, and perhaps a little more.

    Sound: the move is rounded up before it is taken, since its own rounding error may be much
    larger than a float of the end where the two cancel; then the end is rounded outwards.
    """
    for feature in range(len(row)):
        if row_cell[feature] == FIXED:
            low_cell[feature] = FIXED
            high_cell[feature] = FIXED
            continue
        least = row[feature]
        most = row[feature]
        if down[feature] > 0.0:
            least = np.nextafter(row[feature] - farthest_move(radius, down[feature]), -np.inf)
            least = min(max(least, low[feature]), row[feature])
        if up[feature] > 0.0:
            most = np.nextafter(row[feature] + farthest_move(radius, up[feature]), np.inf)
            most = max(min(most, high[feature]), row[feature])
        low_cell[feature] = cell_from(space, feature, least, row_cell[feature])
        high_cell[feature] = cell_from(space, feature, most, row_cell[feature])


@inner_kernel
def nearest_cells(row_cell, low_cell, high_cell):
    """Cells of a box that are nearest to the row's own."""
    cells = np.empty(len(row_cell), dtype=np.int32)
    for feature in range(len(cells)):
        cells[feature] = min(max(row_cell[feature], low_cell[feature]), high_cell[feature])
    return cells


@noalloc_kernel
def point_cells(problem, point, template, cells):
    """Global cells of a point: nearest to the template inside the point's cells."""
    for feature in range(len(template)):
        cells[feature] = template[feature]
    for slot in range(problem.n_slots):
        feature = problem.slots[slot, FEATURE]
        cell = point[slot]
        low = problem.cells[cell, LOW]
        cells[feature] = min(max(template[feature], low), problem.cells[cell, HIGH])


@noalloc_kernel
def judge_point(
    trees, space, semantics, claim, row, problem, target, template, cells, total, found
):
    """Judge `target.point`, or what it was before its descent; a violation becomes the witness."""
    while True:
        found.counts[POINTS] += 1
        point_cells(problem, target.point, template, cells)
        verdict = judge(trees, space, semantics, claim, row, cells, total)
        if verdict == BROKEN:
            accept_point(problem, target)
            for feature in range(len(cells)):
                found.witness[feature] = cells[feature]
            return verdict
        if not take_back(problem, target):
            return verdict


@inner_kernel
def explore(
    trees, space, semantics, claim, row, row_cell, down, up, low, high, low_cell, high_cell,
    is_ball, is_quick, radius, found, limits, deadline,
):  # fmt: skip
    """Restrict, bound cheaply, and search one box of cells; returns a status of `search`.

    For balls the nearest violation is sought, and what is found is proved nearest unless
    `is_quick`; a quick search also ends when a violation is so much nearer than the ball's radius
    that a smaller ball pays. For other boxes any violation will do.
    """
    found.counts[RESTRICTIONS] += 1
    leaf_start, leaf_gain, leaf_row, range_start, feature, range_low, range_high = restrict(
        trees, space, row, low_cell, high_cell, claim.coefficient, semantics.zero_band
    )
    base, floor = base_and_floor(trees, semantics, claim, leaf_start, leaf_row)
    if is_out_of_reach(base, floor, leaf_start, leaf_gain):
        return PROVED
    problem = build_problem(
        base,
        leaf_start,
        leaf_gain,
        range_start,
        feature,
        range_low,
        range_high,
        low_cell,
        high_cell,
    )
    state = new_state(problem)
    distance, is_beyond = cell_distances(
        problem, space, row, row_cell, down, up, low, high, is_ball
    )
    template = nearest_cells(row_cell, low_cell, high_cell)
    target = new_target(problem, claim.need, floor, distance, is_beyond, found)
    waiting = new_waiting(problem, state)
    cells = np.empty(len(row), dtype=np.int32)
    total = np.empty(len(semantics.start), dtype=np.float64)
    is_near_tie = False
    # Variables, not literals: search would be compiled once for each.
    is_root = np.bool_(True)
    taken_up = np.int64(FRESH)
    while True:
        nodes = found.counts[0]
        status, waiting, is_tuple = search(
            problem, state, target, waiting, is_root, is_quick, taken_up, limits.nodes, deadline,
            limits.memory_bytes,
        )  # fmt: skip
        if status != JUDGE:
            return NEAR_TIE if status == PROVED and is_near_tie else status
        is_root = is_root and found.counts[0] <= nodes + 1
        verdict = judge_point(
            trees, space, semantics, claim, row, problem, target, template, cells, total, found
        )
        taken_up = REJECTED
        if verdict == BROKEN:
            taken_up = WITNESSED
            if not is_ball or (found.upper[0] == 0.0 and not found.is_open[0]):
                return PROVED
            if is_quick and found.upper[0] < FAR_CLOSER * radius:
                return UNDECIDED
        elif is_tuple:
            # Sound: all that is left of the box reaches the leaves just judged.
            is_near_tie = is_near_tie or verdict == AMBIGUOUS
            taken_up = SETTLED


@inner_kernel
def is_proved_by_best_leaves(
    trees, space, semantics, alternatives, group, row, down, up, low, high, radius
):
    """Whether no alternative can happen in a ball even if every tree takes its best leaf."""
    row_cell = np.empty(len(row), dtype=np.int32)
    low_cell = np.empty(len(row), dtype=np.int32)
    high_cell = np.empty(len(row), dtype=np.int32)
    home_cells(space, row, np.bool_(True), row_cell)
    ball_cells(space, row, row_cell, radius, down, up, low, high, low_cell, high_cell)
    for number in range(alternatives.group_start[group], alternatives.group_start[group + 1]):
        claim = claim_of(alternatives, group, alternatives.alternative_start[number])
        leaf_start, leaf_gain, leaf_row, _, _, _, _ = restrict(
            trees, space, row, low_cell, high_cell, claim.coefficient, semantics.zero_band
        )
        base, floor = base_and_floor(trees, semantics, claim, leaf_start, leaf_row)
        if not is_out_of_reach(base, floor, leaf_start, leaf_gain):
            return False
    return True


@inner_kernel
def solve_row(
    trees, space, semantics, alternatives, group, row, down, up, low, high, is_ball, start_radius,
    margin, found, limits,
):  # fmt: skip
    """As `search_row`; a search that ends too early for a lower bound gets a cheap one.

    Sound: the cells of `ball_cells` hold the closed ball, and in them no alternative reaches its
    floor. That the radius was only suggested does not matter.
    """
    status = search_row(
        trees, space, semantics, alternatives, group, row, down, up, low, high, is_ball,
        start_radius, margin, found, limits,
    )  # fmt: skip
    radius = SURELY_NEARER * found.cheap[0]
    is_wanted = is_ball and status != PROVED and found.lower[0] == 0.0 and 0.0 < radius < np.inf
    if is_wanted and is_proved_by_best_leaves(
        trees, space, semantics, alternatives, group, row, down, up, low, high, radius
    ):
        found.lower[0] = radius
    return status


@inner_kernel
def search_row(
    trees, space, semantics, alternatives, group, row, down, up, low, high, is_ball, start_radius,
    margin, found, limits,
):  # fmt: skip
    """Find the nearest violation of a row, or any in a box; ``found`` is valid at any return.

    low, high  float64 (n_features,)  the domain of a ball; or the box, rounded as in
                                      query/rounding.py
    start_radius  float64             of a ball: a first guess
    margin        float64             first trial radius over the one from which the best leaves of
                                      all trees break the claim

    Returns PROVED when bounds meet (infinite when nothing can break the row), or the limit reached.
    Trial radii grow until a witness is found; then every alternative is searched inside the
    nearest witness so far.
    """
    n_features = len(row)
    clock = np.empty(2, dtype=np.int64)
    deadline = seconds_now(clock) + limits.time_s
    row_cell = np.empty(n_features, dtype=np.int32)
    low_cell = np.empty(n_features, dtype=np.int32)
    high_cell = np.empty(n_features, dtype=np.int32)
    home_cells(space, row, is_ball, row_cell)
    if not is_ball:
        box_cells(space, row, low, high, low_cell, high_cell)
    order, radius = plan(
        trees, space, semantics, alternatives, group, row, down, up, low, high, is_ball,
        start_radius,
    )  # fmt: skip
    if len(order) == 0:  # nothing could break the claim
        found.lower[0] = np.inf
        return PROVED
    is_quick = is_ball
    found.cheap[0] = radius
    radius *= margin
    while True:
        worst = PROVED
        sweeps = found.counts[SWEEPS]
        searched = np.inf
        for number in order:
            if is_ball:
                radius = min(radius, found.upper[0])
                searched = radius
                ball_cells(space, row, row_cell, radius, down, up, low, high, low_cell, high_cell)
            claim = claim_of(alternatives, group, alternatives.alternative_start[number])
            status = explore(
                trees, space, semantics, claim, row, row_cell, down, up, low, high, low_cell,
                high_cell, is_ball, is_quick, radius, found, limits, deadline,
            )  # fmt: skip
            worst = max(worst, status)
            if status > UNDECIDED:
                return status
            if found.upper[0] < np.inf and not is_ball:
                return PROVED
        if worst == PROVED:
            # Sound: every alternative was proved in a ball of at least this radius, but for points
            # no nearer than the witness. What was searched, and nothing else, bounds the answer: a
            # witness may lie beyond the ball, since the cells searched may hold more than the ball.
            found.lower[0] = max(found.lower[0], min(searched, found.upper[0]))
            if found.lower[0] == found.upper[0]:
                return PROVED
        if found.upper[0] < np.inf:
            is_quick = found.upper[0] < FAR_CLOSER * radius
            radius = found.upper[0]
        elif covers_everything(space, low_cell, high_cell, row_cell, down, up, low, high):
            if worst == PROVED:
                found.lower[0] = np.inf
                return PROVED
            is_quick = False
        elif found.counts[SWEEPS] == sweeps:
            radius *= CHEAP_GROWTH
        else:
            radius *= QUICK_GROWTH if worst == PROVED else GIVEN_UP_GROWTH
        if seconds_now(clock) > deadline:
            return TIME_LIMIT


@noalloc_kernel
def covers_everything(space, low_cell, high_cell, row_cell, down, up, low, high):
    """Whether a box of cells holds everything that the row can ever reach."""
    for feature in range(len(low_cell)):
        if low_cell[feature] == FIXED:
            continue
        n_cuts = space.cut_start[feature + 1] - space.cut_start[feature]
        if down[feature] > 0.0:
            least = cell_of(space, feature, low[feature])
            if low_cell[feature] > min(least, row_cell[feature]):
                return False
        if up[feature] > 0.0:
            most = cell_of(space, feature, high[feature]) if high[feature] < np.inf else n_cuts
            if high_cell[feature] < max(most, row_cell[feature]):
                return False
    return True


@noalloc_kernel
def into_box(value, low, high, is_single):
    """Nearest number of the input precision inside a closed interval, if it has one."""
    if value < low:
        value = low
        if is_single and np.float64(np.float32(value)) < low:
            value = np.float64(np.nextafter(np.float32(value), np.float32(np.inf)))
    elif value > high:
        value = high
        if is_single and np.float64(np.float32(value)) > high:
            value = np.float64(np.nextafter(np.float32(value), np.float32(-np.inf)))
    return np.float64(np.float32(value)) if is_single else value


@noalloc_kernel
def witness_point(space, row, cells, is_single, low, high, is_ball, point):
    """Nearest row of the model's input precision in the given cells.

    Upwards a cell starts at a threshold, which is a number of that precision; downwards the last
    number below the cell's end is taken. Where a set holds real numbers of the cell but none of
    that precision, the point lies one step outside the set.
    """
    for feature in range(len(row)):
        value = row[feature]
        if cells[feature] != FIXED:
            cuts = space.cut_start[feature]
            here = cell_of(space, feature, value)
            if cells[feature] > here:
                value = space.cut[cuts + cells[feature] - 1]
            elif cells[feature] < here:
                value = space.cut[cuts + cells[feature]]
                if is_single:
                    value = np.float64(np.nextafter(np.float32(value), np.float32(-np.inf)))
                else:
                    value = np.nextafter(value, -np.inf)
            if not is_ball:
                inside = into_box(value, low[feature], high[feature], is_single)
                if cell_of(space, feature, inside) != cells[feature]:
                    # The cell and the box share real numbers but none of float32; the nearest
                    # float32 of the cell is the one just outside the box.
                    away = np.float32(-np.inf if value < low[feature] else np.inf)
                    inside = np.float64(np.nextafter(np.float32(inside), away))
                value = inside
        point[feature] = value


SMALLEST_START = 1e-300
"""Trial radii begin here at least: the smallest doubles times a factor may not grow at all."""


class Columns(NamedTuple):
    """Results of a batch, one row each; see `treeproof.results.outcomes.Outcomes`."""

    status: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    is_open: np.ndarray
    witness: np.ndarray
    seconds: np.ndarray
    counts: np.ndarray
    cheap: np.ndarray


@inner_kernel
def new_found(n_features):
    """Nothing known: lower 0, upper infinite."""
    upper = np.empty(1, dtype=np.float64)
    upper[0] = np.inf
    return Found(
        np.zeros(1, dtype=np.float64),
        upper,
        np.zeros(1, dtype=np.bool_),
        np.zeros(n_features, dtype=np.int32),
        np.zeros(4, dtype=np.int64),
        np.zeros(1, dtype=np.float64),
    )


@kernel
def solve_batch(
    trees, space, semantics, alternatives, is_input_single, groups, rows, down, up, low, high,
    is_ball, start_radius, margin, skip, limits, columns,
):  # fmt: skip
    """Solve every row of a batch but those in `skip`.

    down, up       float64 (n_features,)         rates of a ball
    low, high      float64 (n_rows, n_features)  domain of a ball, or the boxes
    is_ball        bool                          nearest violation; otherwise any in the box
    start_radius   float64   near the answers; not positive: taken from the rows themselves
    margin         float64   see `search_row`
    """
    clock = np.empty(2, dtype=np.int64)
    for number in range(len(rows)):
        if skip[number]:
            continue
        started = seconds_now(clock)
        found = new_found(rows.shape[1])
        radius = start_radius
        if not radius > 0.0:
            radius = first_step(space, rows[number], down, up)
        radius = max(radius, SMALLEST_START)
        columns.status[number] = solve_row(
            trees, space, semantics, alternatives, groups[number], rows[number], down, up,
            low[number], high[number], is_ball, radius, margin, found,
            limits,
        )  # fmt: skip
        columns.lower[number] = found.lower[0]
        columns.upper[number] = found.upper[0]
        columns.is_open[number] = found.is_open[0]
        copy_into(columns.counts[number], found.counts)
        columns.cheap[number] = found.cheap[0]
        if found.upper[0] < np.inf:
            witness_point(
                space, rows[number], found.witness, is_input_single, low[number], high[number],
                is_ball, columns.witness[number],
            )  # fmt: skip
        columns.seconds[number] = seconds_now(clock) - started


@inner_kernel
def first_step(space, row, down, up):
    """A part of the distance to the nearest threshold that a tenth of the features have.

    A radius to begin with: few features move by small steps where others are flags, and too small
    a radius costs little, too large a one much.
    """
    steps = np.empty(len(row), dtype=np.float64)
    count = 0
    for feature in range(len(row)):
        rate = max(down[feature], up[feature])
        first = space.cut_start[feature]
        last = space.cut_start[feature + 1]
        if rate == 0.0 or first == last or np.isnan(row[feature]) or space.categorical[feature]:
            continue
        cell = first + cell_of(space, feature, row[feature])
        nearest = np.inf
        if cell < last:
            nearest = space.cut[cell] - row[feature]
        if cell > first:
            nearest = min(nearest, row[feature] - space.cut[cell - 1])
        if 0.0 < nearest < np.inf:
            steps[count] = nearest / rate
            count += 1
    if count == 0:
        return 1.0
    order = sorted_order(steps[:count], True)
    return max(0.125 * steps[order[count // 10]], SMALLEST_START)
