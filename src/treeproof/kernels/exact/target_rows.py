"""Rows of targets: the nearest point where several conditions hold at once, or any in a box.

Compiled apart from `treeproof.kernels.exact.row`: most questions have no target.
"""

import numpy as np

from treeproof.kernels.core.cells import CellBox, new_box, new_region
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel
from treeproof.kernels.core.status import NEAR_TIE, NODE_LIMIT, PROVED, TIME_LIMIT, UNDECIDED
from treeproof.kernels.exact.initial_radius import eq6_radius
from treeproof.kernels.exact.primal import NODES
from treeproof.kernels.exact.row import (
    CLOSE,
    FOR_LOWER,
    FOR_TRIAL,
    SMALLEST_START,
    ball_cells,
    claim_of,
    covers_everything,
    drop_reached,
    first_step,
    known_about,
    status_of_turn,
    write_columns,
)
from treeproof.kernels.exact.search import Budget
from treeproof.kernels.exact.target_search import Quest, search_target, worst_condition
from treeproof.kernels.exact.walks import FINE, attack, clip, evaluate, new_walk

GROWTH = 1.8
"""How trial radii grow: a witness that is too far is soon moved closer."""


@inner_kernel
def first_look(forest, claim, region, walk, guess):
    """A radius to begin with, and the condition to begin with, as an array of one.

    Of several conditions the one that is farthest from being met at the row tells most.
    """
    home = CellBox(region.home, region.home)
    clip(walk, home, region.home)
    evaluate(forest, claim.conditions, region.row, walk, home)
    hardest = np.full(1, worst_condition(walk.value), dtype=np.int64)
    if not region.is_ball:
        return 0.0, hardest
    coefficient = claim.conditions.coefficient[hardest[0]]
    gain = claim.conditions.need[hardest[0]]
    for output in range(len(coefficient)):
        gain -= coefficient[output] * forest.semantics.start[output]
    return eq6_radius(forest, region, coefficient, gain, guess, np.inf), hardest


@inner_kernel
def search_set(forest, claim, region, radius, plan, found, budget):
    """Search a ball, what of it is nearer than the witness, or a box.

    plan  walk, the condition to begin with, whether only the whole ball is looked at

    Where nothing is left, the lower bound rises to the radius.
    """
    walk, hardest, is_quick = plan
    box = new_box(forest.space, region)
    if region.is_ball:
        radius = min(radius, found.upper[0])
        ball_cells(forest.space, region, radius, box)
        drop_reached(forest.space, region, found, box)
    if found.upper[0] == np.inf:
        attack(forest, claim, region, box, walk, found, FINE)
        if found.upper[0] < np.inf:
            return UNDECIDED if region.is_ball else PROVED
    whole = CellBox(box.low.copy(), box.high.copy())
    quest = Quest(forest, claim, region, whole, walk, found)
    status = search_target(quest, box, hardest, is_quick, budget)
    if status == PROVED and region.is_ball:
        # Sound: nothing in a ball of this radius is nearer than the witness. The witness may lie
        # beyond the ball, since the cells searched may hold more than the ball.
        found.lower[0] = max(found.lower[0], min(radius, found.upper[0]))
    return status


@inner_kernel
def search_row(forest, claim, region, plan, radius, found, budget):
    """As `treeproof.kernels.exact.row.search_row`, from a trial radius, for targets."""
    clock = np.empty(2, dtype=np.int64)
    walk, hardest, _ = plan
    box = new_box(forest.space, region)
    while True:
        is_everything = not region.is_ball
        if region.is_ball and found.upper[0] == np.inf:
            ball_cells(forest.space, region, radius, box)
            is_everything = covers_everything(forest.space, region, box)
        is_quick = found.upper[0] == np.inf and not is_everything
        if found.upper[0] < np.inf:
            radius = found.upper[0]
        status = search_set(
            forest, claim, region, radius, (walk, hardest, is_quick), found, budget
        )  # fmt: skip
        if status > UNDECIDED or (status == PROVED and not region.is_ball):
            return status
        if found.upper[0] < np.inf:
            # Sound: a lower bound says that nothing is nearer, not that nothing attains it, as a
            # witness might that only approaches it; the search of a ball says both.
            if found.lower[0] == found.upper[0] and (status == PROVED or not found.is_open[0]):
                return PROVED
        elif is_everything and status == PROVED:
            found.lower[0] = np.inf
            return PROVED
        else:
            radius *= GROWTH
        if seconds_now(clock) > budget.deadline:
            return TIME_LIMIT


@inner_kernel
def raise_lower(forest, claim, region, plan, found, budget):
    """As `treeproof.kernels.exact.row.raise_lower`, for targets."""
    end = budget.nodes
    too_hard = found.upper[0]
    while found.lower[0] < CLOSE * too_hard and found.counts[NODES] < end:
        radius = 0.5 * (found.lower[0] + too_hard)
        nodes = found.counts[NODES] + (end - found.counts[NODES] + FOR_TRIAL - 1) // FOR_TRIAL
        trial = Budget(nodes, budget.memory_bytes, budget.deadline)
        status = search_set(forest, claim, region, radius, plan, found, trial)
        if status == NODE_LIMIT:
            found.counts[NODES] -= 1  # it was not looked at
        if status == TIME_LIMIT:
            return
        too_hard = min(too_hard if status == PROVED else radius, found.upper[0])


@kernel
def solve_targets(forest, alternatives, batch, is_ball, guess, limits, columns):
    """As `treeproof.kernels.exact.row.solve_batch`, where violations meet several conditions.

    Every group has one alternative: all conditions of its target.
    """
    clock = np.empty(2, dtype=np.int64)
    walk = new_walk(forest, batch.rows.shape[1], alternatives.condition_start[1])
    for number in range(len(batch.rows)):
        if batch.skip[number]:
            continue
        started = seconds_now(clock)
        group = batch.groups[number]
        claim = claim_of(alternatives, group, alternatives.group_start[group])
        region = new_region(forest.space, batch, number, is_ball)
        found = known_about(columns, number)
        end = min(limits.nodes, found.counts[NODES] + limits.patience)
        deadline = started + limits.time_s - columns.seconds[number]
        radius = guess.radius
        if not radius > 0.0:
            radius = first_step(forest.space, region)
        found.eq6_radius[0], hardest = first_look(
            forest, claim, region, walk, max(radius, SMALLEST_START)
        )
        plan = (walk, hardest, np.bool_(False))
        # The last part of a limit is for the lower bound.
        nodes = end - (end - found.counts[NODES]) // FOR_LOWER if is_ball else end
        late = deadline
        if is_ball and deadline < np.inf:
            late -= (deadline - started) / FOR_LOWER
        radius = max(found.eq6_radius[0] * guess.margin, GROWTH * found.lower[0])
        status = search_row(
            forest, claim, region, plan, radius, found, Budget(nodes, limits.memory_bytes, late)
        )  # fmt: skip
        if is_ball and UNDECIDED < status < NEAR_TIE and found.upper[0] < np.inf:
            found.counts[NODES] -= 1 if status == NODE_LIMIT else 0  # it was not looked at
            raise_lower(
                forest, claim, region, plan, found, Budget(end, limits.memory_bytes, deadline)
            )  # fmt: skip
            found.counts[NODES] += 1 if status == NODE_LIMIT else 0
        if status == NODE_LIMIT:
            found.counts[NODES] -= 1  # it was not looked at
        columns.status[number] = status_of_turn(status, found, limits)
        write_columns(forest, region, found, columns, number)
        columns.seconds[number] += seconds_now(clock) - started
