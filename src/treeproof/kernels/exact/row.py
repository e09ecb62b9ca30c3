"""The exact engine's rows: verify a box, find the nearest violation, in batches."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import copy_into
from treeproof.kernels.core.cells import FIXED, cell_of, new_box, new_region
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.emulation import Claim, Conjunction
from treeproof.kernels.core.leaves import restrict
from treeproof.kernels.core.status import FOUND, NEAR_TIE, NODE_LIMIT, PROVED, TIME_LIMIT, UNDECIDED
from treeproof.kernels.exact.balls import (
    SMALLEST_START,
    ball_cells,
    base_and_floor,
    covers_everything,
    drop_reached,
    first_step,
    is_excluded_by_eq6,
)
from treeproof.kernels.exact.conditions import prefer_one, weigh, with_conditions
from treeproof.kernels.exact.dual import new_state
from treeproof.kernels.exact.initial_radius import order_alternatives
from treeproof.kernels.exact.objective import ball_objective
from treeproof.kernels.exact.primal import NODES, RESTRICTIONS, SWEEPS, new_found
from treeproof.kernels.exact.problem import build_problem
from treeproof.kernels.exact.search import FAR_CLOSER, Budget, new_judge, search
from treeproof.kernels.exact.target_search import begin_walk, explore_target
from treeproof.kernels.exact.walks import new_walk

EQ6_GROWTH, QUICK_GROWTH, GIVEN_UP_GROWTH = 1.3, 1.25, 1.2
"""How a trial radius grows after a proof by best leaves, after a quick proof, after giving up."""

FAR_GROWTH = 1.5
"""How it grows where best leaves are known to say little."""

SURELY_NEARER = 0.9
"""Part of the suggested radius at which best leaves are asked for a proof."""


class Alternatives(NamedTuple):
    """The numbers of `treeproof.query.constraints.Alternatives` that kernels read.

    Each alternative is one constraint, the sum of its conditions, which are kept beside it.
    """

    group_start: np.ndarray
    alternative_start: np.ndarray
    group_label: np.ndarray
    coefficient: np.ndarray
    need: np.ndarray
    unit: np.ndarray
    link_slack: np.ndarray
    condition_start: np.ndarray  # (n_alternatives + 1,) int64
    conditions: Conjunction  # of all alternatives


class Limits(NamedTuple):
    """Limits of one row, over all turns at it.

    patience  int64  nodes of this turn: a row that takes more is left to the other search
    """

    time_s: float
    nodes: int
    memory_bytes: float
    patience: int


class FirstGuess(NamedTuple):
    """Where to look first."""

    radius: float  # near the answers; not positive: taken from the rows themselves
    # First trial radius over the one from which the best leaves of all trees break the claim
    margin: float


class Columns(NamedTuple):
    """Results of a batch, one row each; see `treeproof.results.outcomes.Outcomes`."""

    status: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    is_open: np.ndarray
    witness: np.ndarray
    seconds: np.ndarray
    counts: np.ndarray
    eq6_radius: np.ndarray


@inner_kernel
def claim_of(alternatives, group, number):
    """An alternative of a group as a `Claim`."""
    constraint = alternatives.alternative_start[number]
    conditions = alternatives.conditions
    first = alternatives.condition_start[number]
    last = alternatives.condition_start[number + 1]
    return Claim(
        alternatives.coefficient[constraint],
        alternatives.need[constraint],
        alternatives.unit[constraint],
        alternatives.link_slack[constraint],
        alternatives.group_label[group],
        Conjunction(
            conditions.coefficient[first:last],
            conditions.need[first:last],
            conditions.link_slack[first:last],
        ),
    )


@inner_kernel
def explore(forest, claim, region, box, radius, is_quick, found, budget):
    """Restrict the trees to one box of cells, bound cheaply, and `search` it."""
    found.counts[RESTRICTIONS] += 1
    leaves = restrict(forest, region.row, box, claim.coefficient)
    base, floor = base_and_floor(forest, claim, leaves)
    if is_excluded_by_eq6(base, floor, leaves):
        return PROVED
    problem = build_problem(base, leaves, box)
    need = claim.need
    n_conditions = len(claim.conditions.need)
    if n_conditions > 1:
        problem = with_conditions(problem, forest, claim, leaves, box, 0.0)
        prefer_one(problem)
        weigh(problem, problem.conditions.weight)
        need = 0.0
        floor = 0.0
    objective = ball_objective(problem, forest.space, region, box, need, floor, n_conditions, found)
    status, _ = search(
        problem, new_state(problem), objective, None, new_judge(forest, claim, region, box, found),
        None, None, None, None, (is_quick, np.bool_(False)), (radius, np.inf), budget,
    )  # fmt: skip
    return status


@inner_kernel
def is_proved_by_eq6(forest, alternatives, group, region, radius):
    """Whether no alternative can happen in a ball even if every tree takes its best leaf.

    Sound: the cells of `ball_cells` hold the closed ball, and in them no alternative reaches its
    floor. That the radius was only suggested does not matter.
    """
    box = new_box(forest.space, region)
    ball_cells(forest.space, region, radius, box)
    for number in range(alternatives.group_start[group], alternatives.group_start[group + 1]):
        claim = claim_of(alternatives, group, number)
        leaves = restrict(forest, region.row, box, claim.coefficient)
        base, floor = base_and_floor(forest, claim, leaves)
        if not is_excluded_by_eq6(base, floor, leaves):
            return False
    return True


CLOSE = 0.97
"""Share of the upper bound from which on a lower bound is not tried to be raised."""
FOR_LOWER, FOR_TRIAL = 8, 4
"""Nodes and seconds of a turn over those for raising the lower bound at its end, and nodes of that
over those of one trial radius."""


@inner_kernel
def raise_lower(forest, alternatives, group, region, ways, plan, found, budget):
    """Prove balls between both bounds, with what nodes and time are left.

    A proof that does not end in time says nothing; a ball half as far from the lower bound is far
    easier. One that is not proved soon is not tried again, nor are larger ones.
    """
    box = new_box(forest.space, region)
    end = budget.nodes
    too_hard = found.upper[0]
    # Ends: the gap between both radii is halved.
    while found.lower[0] < CLOSE * too_hard and found.counts[NODES] < end:
        radius = 0.5 * (found.lower[0] + too_hard)
        nodes = found.counts[NODES] + (end - found.counts[NODES] + FOR_TRIAL - 1) // FOR_TRIAL
        ball_cells(forest.space, region, radius, box)
        trial = Budget(nodes, budget.memory_bytes, budget.deadline)
        status = PROVED
        for number in range(alternatives.group_start[group], alternatives.group_start[group + 1]):
            claim = claim_of(alternatives, group, number)
            if ways is not None:
                status = explore(forest, claim, region, box, radius, np.bool_(False), found, trial)
            if plan is not None:
                status = explore_target(
                    forest, claim, region, box, np.bool_(False), plan, found, trial
                )
            if status != PROVED:
                break
        if status == NODE_LIMIT:
            found.counts[NODES] -= 1  # it was not looked at
        if status == PROVED:
            # Sound: as in `search_row`.
            found.lower[0] = max(found.lower[0], min(radius, found.upper[0]))
        elif status == TIME_LIMIT:
            return
        too_hard = min(too_hard if status == PROVED else radius, found.upper[0])


@inner_kernel
def without_part(found, budget):
    """A budget without the last part of its limits, which is for the lower bound."""
    nodes = budget.nodes - (budget.nodes - found.counts[NODES]) // FOR_LOWER
    deadline = budget.deadline
    if deadline < np.inf:
        deadline -= (deadline - seconds_now(np.empty(2, dtype=np.int64))) / FOR_LOWER
    return Budget(nodes, budget.memory_bytes, deadline)


@inner_kernel
def search_row(forest, alternatives, group, region, guess, ways, plan, found, budget):
    """Find the nearest violation of a row, or any in a region; ``found`` is valid at any return.

    ways  True or None  each alternative is a sum of its conditions, see `explore`; or
    plan  tuple or None  its conditions are bounded one by one, see `explore_target`

    Returns PROVED when bounds meet (infinite when nothing can break the row), or the limit reached.
    Trial radii grow until a witness is found; then every alternative is searched inside the
    nearest witness so far. Where any will do, they grow up to the region: so a near one is found as
    soon as its radius would be.
    """
    clock = np.empty(2, dtype=np.int64)
    is_ball = region.is_ball
    box = new_box(forest.space, region)
    first = alternatives.group_start[group]
    order, radius = np.full(1, first, dtype=np.int64), guess.radius
    if ways is not None:
        order, radius = order_alternatives(forest, alternatives, group, region, radius)
    if plan is not None:
        claim = claim_of(alternatives, group, first)
        radius = begin_walk(forest, claim, region, plan, radius)
    if len(order) == 0:  # nothing could break the claim
        found.lower[0] = np.inf
        return PROVED
    is_quick = is_ball
    starts = alternatives.condition_start[order[0] :]
    is_joint = starts[1] - starts[0] > 1
    found.eq6_radius[0] = radius
    if found.counts[NODES] >= budget.nodes:
        found.counts[NODES] += 1
        return NODE_LIMIT
    # With several conditions, or where another search has got farther, best leaves say little.
    is_far = is_joint or found.lower[0] > radius
    radius = max(radius * guess.margin, (FAR_GROWTH if is_far else QUICK_GROWTH) * found.lower[0])
    if found.upper[0] < np.inf:  # the row was searched before
        if found.lower[0] == found.upper[0] and not found.is_open[0]:
            # Sound: nothing is nearer than this, and the witness is no farther.
            return PROVED
        is_quick = False
        radius = found.upper[0]
    while True:
        worst = PROVED
        sweeps = found.counts[SWEEPS]
        searched = np.inf
        for number in order:
            if is_ball:
                radius = min(radius, found.upper[0], region.within)
                searched = radius
                ball_cells(forest.space, region, radius, box)
                drop_reached(forest.space, region, found, box)
                is_quick = is_quick and radius < region.within
            claim = claim_of(alternatives, group, number)
            status = np.int64(PROVED)
            if ways is not None:
                status = explore(forest, claim, region, box, radius, is_quick, found, budget)
            if plan is not None:
                status = explore_target(forest, claim, region, box, is_quick, plan, found, budget)
            if status == FOUND:
                return PROVED
            worst = max(worst, status)
            if status > UNDECIDED:
                return status
        if worst == PROVED:
            # Sound: every alternative was proved in a ball of at least this radius, but for points
            # no nearer than the witness. What was searched, and nothing else, bounds the answer: a
            # witness may lie beyond the ball, since the cells searched may hold more than the ball.
            found.lower[0] = max(found.lower[0], min(searched, found.upper[0]))
            if found.lower[0] == found.upper[0] or radius >= region.within:
                return PROVED
        if found.upper[0] < np.inf:
            is_quick = ways is not None and found.upper[0] < FAR_CLOSER * radius
            radius = found.upper[0]
        elif covers_everything(forest.space, region, box):
            if worst == PROVED:
                found.lower[0] = np.inf
                return PROVED
            is_quick = False
        elif is_far:
            radius *= FAR_GROWTH
        elif found.counts[SWEEPS] == sweeps:
            radius *= EQ6_GROWTH
        else:
            radius *= QUICK_GROWTH if worst == PROVED else GIVEN_UP_GROWTH
        if seconds_now(clock) > budget.deadline:
            return TIME_LIMIT


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
def witness_point(forest, region, cells, point):
    """Nearest row of the model's input precision in the given cells.

    Upwards a cell starts at a threshold, which is a number of that precision; downwards the last
    number below the cell's end is taken. Where a set holds real numbers of the cell but none of
    that precision, the point lies one step outside the set.
    """
    space, is_single = forest.space, forest.semantics.is_input_single
    for feature in range(len(cells)):
        value = region.row[feature]
        if cells[feature] != FIXED:
            low, high = region.low[feature], region.high[feature]
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
            if not region.is_ball:
                inside = into_box(value, low, high, is_single)
                if cell_of(space, feature, inside) != cells[feature]:
                    # The cell and the box share real numbers but none of float32; the nearest
                    # float32 of the cell is the one just outside the box.
                    away = np.float32(-np.inf if value < low else np.inf)
                    inside = np.float64(np.nextafter(np.float32(inside), away))
                value = inside
        point[feature] = value


@inner_kernel
def known_about(columns, number):
    """What was found about a row before, but for its witness: nothing, or in an earlier turn."""
    found = new_found(columns.witness.shape[1])
    found.lower[0] = columns.lower[number]
    found.upper[0] = columns.upper[number]
    found.is_open[0] = columns.is_open[number]
    copy_into(found.counts, columns.counts[number])
    found.eq6_radius[0] = columns.eq6_radius[number]
    return found


@noalloc_kernel
def status_of_turn(status, found, limits):
    """UNDECIDED where patience rather than a limit ended a turn."""
    return UNDECIDED if status == NODE_LIMIT and found.counts[NODES] < limits.nodes else status


@noalloc_kernel
def write_columns(forest, region, found, columns, number):
    """Write down what was found about a row, and its witness if it is a new one."""
    is_new = found.upper[0] < columns.upper[number] or (
        found.is_open[0] != columns.is_open[number] and found.upper[0] < np.inf
    )
    columns.lower[number] = found.lower[0]
    columns.upper[number] = found.upper[0]
    columns.is_open[number] = found.is_open[0]
    copy_into(columns.counts[number], found.counts)
    columns.eq6_radius[number] = found.eq6_radius[0]
    if is_new:
        witness_point(forest, region, found.witness, columns.witness[number])


@kernel
def solve_batch(forest, alternatives, batch, is_ball, guess, limits, columns):
    """Solve every row of a batch but those to skip; in balls the nearest violation is sought.

    Columns hold what earlier turns found.
    """
    solve_rows(forest, alternatives, batch, is_ball, guess, limits, columns, True, None)


@kernel
def solve_targets(forest, alternatives, batch, is_ball, guess, limits, columns):
    """As `solve_batch`, where violations meet several conditions, each of which is bounded alone.

    Every group has one alternative: all conditions of its target.
    """
    walk = new_walk(forest, batch.rows.shape[1], alternatives.condition_start[1])
    plan = (walk, np.zeros(1, dtype=np.int64))
    solve_rows(forest, alternatives, batch, is_ball, guess, limits, columns, None, plan)


@inner_kernel
def solve_rows(forest, alternatives, batch, is_ball, guess, limits, columns, ways, plan):
    """Solve every row of a batch but those to skip; see `search_row` for the ways to do so."""
    clock = np.empty(2, dtype=np.int64)
    for number in range(len(batch.rows)):
        if batch.skip[number]:
            continue
        started = seconds_now(clock)
        group = batch.groups[number]
        region = new_region(forest.space, batch, number, is_ball)
        found = known_about(columns, number)
        nodes = min(limits.nodes, found.counts[NODES] + limits.patience)
        deadline = started + limits.time_s - columns.seconds[number]
        budget = Budget(nodes, limits.memory_bytes, deadline)
        radius = guess.radius
        if not radius > 0.0:
            radius = first_step(forest.space, region)
        first = FirstGuess(max(radius, SMALLEST_START), guess.margin)
        part = budget if region.takes_any else without_part(found, budget)
        status = search_row(forest, alternatives, group, region, first, ways, plan, found, part)
        has_rest = UNDECIDED < status < NEAR_TIE and found.upper[0] < np.inf
        if has_rest and not region.takes_any:
            found.counts[NODES] -= 1 if status == NODE_LIMIT else 0  # it was not looked at
            raise_lower(forest, alternatives, group, region, ways, plan, found, budget)
            found.counts[NODES] += 1 if status == NODE_LIMIT else 0
        radius = SURELY_NEARER * found.eq6_radius[0]
        # A search that ended too early for a lower bound gets a cheap one.
        is_wanted = status != PROVED and not region.takes_any
        is_wanted = is_wanted and found.lower[0] == 0.0 and 0.0 < radius < np.inf
        if is_wanted and is_proved_by_eq6(forest, alternatives, group, region, radius):
            found.lower[0] = radius
        if status == NODE_LIMIT:
            found.counts[NODES] -= 1  # it was not looked at
        columns.status[number] = status_of_turn(status, found, limits)
        write_columns(forest, region, found, columns, number)
        columns.seconds[number] += seconds_now(clock) - started
