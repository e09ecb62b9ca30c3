"""Rows by cliques: the nearest violation, or any in a box, of what the dual search left open.

Compiled apart from `treeproof.kernels.exact.row`: most models never come here.
"""

import numpy as np

from treeproof.kernels.core.cells import FIXED, cell_of, new_box, new_region
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel, kernel, noalloc_kernel
from treeproof.kernels.core.leaves import restrict
from treeproof.kernels.core.status import NEAR_TIE, NODE_LIMIT, PROVED, TIME_LIMIT
from treeproof.kernels.exact.balls import (
    SMALLEST_START,
    ball_cells,
    base_and_floor,
    covers_everything,
    drop_reached,
    is_excluded_by_eq6,
)
from treeproof.kernels.exact.forest_cliques import before, final_status, nearest_clique
from treeproof.kernels.exact.initial_radius import order_alternatives
from treeproof.kernels.exact.piece_walks import approach_by_pieces
from treeproof.kernels.exact.primal import NODES, RESTRICTIONS
from treeproof.kernels.exact.row import claim_of, known_about, status_of_turn, write_columns
from treeproof.kernels.exact.search import Budget, new_judge
from treeproof.kernels.exact.walks import COARSE, attack, new_walk

FIRST, GROWTH = 1.5, 1.3
"""First trial radius over the one of eq. 6, and how it grows."""
CLIMBS = 16
"""Balls of a climb, at most."""
FOR_NODE, MOST_NODES = 3_000, 1 << 14
"""Steps towards a nearer witness for each node of a turn that ended, a third of what a node takes,
and the nodes that count at most: the first steps find nearly all that can be found."""


@noalloc_kernel
def first_radius(found):
    """A trial radius to begin with, from what is known about a row."""
    return max(FIRST * found.eq6_radius[0], GROWTH * found.lower[0], SMALLEST_START)


@inner_kernel
def climb(forest, claim, region, walk, found, deadline):
    """Look for a first witness on whole trees, of one alternative: in a box, or in balls that grow.

    No box is restricted for it, so it takes a part of what the search of a large ball takes.
    """
    clock = np.empty(2, dtype=np.int64)
    box = new_box(forest.space, region)
    radius = first_radius(found)
    for _ in range(CLIMBS):
        if region.is_ball:
            ball_cells(forest.space, region, radius, box)
        attack(forest, claim, region, box, walk, found, COARSE)
        is_last = not region.is_ball or covers_everything(forest.space, region, box)
        if found.upper[0] < np.inf or is_last or seconds_now(clock) > deadline:
            return
        radius *= GROWTH


@inner_kernel
def approach(forest, claim, region, found, work, deadline):
    """Look for nearer witnesses of one alternative among its leaves in the ball of the nearest."""
    box = new_box(forest.space, region)
    ball_cells(forest.space, region, found.upper[0], box)
    found.counts[RESTRICTIONS] += 1
    leaves = restrict(forest, region.row, box, claim.coefficient)
    base, floor = base_and_floor(forest, claim, leaves)
    if not is_excluded_by_eq6(base, floor, leaves):
        judge_of = new_judge(forest, claim, region, box, found)
        approach_by_pieces(judge_of, leaves, box, base, floor, work, deadline)


@inner_kernel
def clique_turn(forest, alternatives, group, region, walk, found, limits, deadline):
    """As `treeproof.kernels.exact.row.search_row`, by cliques.

    Each alternative gets its share of the nodes, and of those that the ones before it left.

    Returns PROVED, NEAR_TIE, or the limit reached.
    """
    box = new_box(forest.space, region)
    order, _ = order_alternatives(
        forest, alternatives, group, region, max(found.eq6_radius[0], SMALLEST_START)
    )
    if found.upper[0] < np.inf:
        # The nearest one is the hardest: it gets what all others leave, and when time ends in it
        # these were searched, so that there is a bound. A first witness is sought there first.
        order = order[::-1].copy()
    end = min(limits.nodes, found.counts[NODES] + limits.patience)
    radius = first_radius(found) if region.is_ball else np.inf
    doubt = np.full(2, np.inf)
    is_left = np.zeros(len(order), dtype=np.bool_)
    # Ends: balls grow until they hold everything, or nodes end a turn.
    while True:
        worst = PROVED
        searched = np.inf
        is_left[:] = False
        for index in range(len(order)):
            if region.is_ball:
                radius = min(radius, found.upper[0], region.within)
                ball_cells(forest.space, region, radius, box)
                if region.takes_any:
                    drop_reached(forest.space, region, found, box)
            claim = claim_of(alternatives, group, order[index])
            found.counts[RESTRICTIONS] += 1
            leaves = restrict(forest, region.row, box, claim.coefficient)
            base, floor = base_and_floor(forest, claim, leaves)
            if is_excluded_by_eq6(base, floor, leaves):
                continue
            judge_of = new_judge(forest, claim, region, box, found)
            share = max((end - found.counts[NODES]) // (len(order) - index), 1)
            nodes = min(limits.nodes, found.counts[NODES] + share)
            budget = Budget(nodes, limits.memory_bytes, deadline)
            status, cleared = nearest_clique(judge_of, doubt, leaves, box, base, floor, budget)
            searched = min(searched, cleared)
            is_left[index] = status == NODE_LIMIT
            if region.takes_any and found.upper[0] < np.inf:
                return PROVED
            if status == TIME_LIMIT and index < len(order) - 1:
                return status
            if status == NODE_LIMIT:
                found.counts[NODES] -= 1  # it was not looked at
            if status != NEAR_TIE:  # what is in doubt is told at the end
                worst = max(worst, status)
        # Sound: every alternative was searched up to the least of these distances, in a ball that
        # is no smaller. What is in doubt no nearer than the witness does not matter.
        is_in_doubt = final_status(found, doubt, PROVED) == NEAR_TIE
        bound = min(searched, radius, found.upper[0])
        if is_in_doubt:
            bound = min(bound, before(doubt[0], doubt[1] > 0.0))
        if region.is_ball:
            found.lower[0] = max(found.lower[0], bound)
        if worst != PROVED:
            if found.upper[0] == np.inf:
                # The alternative that best leaves reach first is the nearest as a rule.
                claim = claim_of(alternatives, group, order[0])
                climb(forest, claim, region, walk, found, deadline)
            if not region.takes_any and found.upper[0] < np.inf:
                n_left = max(np.sum(is_left), 1)
                work = FOR_NODE * min(limits.patience, MOST_NODES) // n_left
                for index in range(len(order)):
                    if is_left[index]:
                        claim = claim_of(alternatives, group, order[index])
                        approach(forest, claim, region, found, work, deadline)
            # Sound: where any violation is an answer, this is one.
            return PROVED if found.upper[0] < np.inf and region.takes_any else worst
        if is_in_doubt:
            return NEAR_TIE
        if found.upper[0] <= radius and found.upper[0] < np.inf:
            return PROVED
        is_whole = region.is_ball and radius >= region.within
        if is_whole or not region.is_ball or covers_everything(forest.space, region, box):
            # Sound: all was searched. A witness may lie beyond the ball, whose cells hold more.
            found.lower[0] = found.upper[0]
            return PROVED
        radius *= GROWTH


@noalloc_kernel
def recall_witness(space, region, point, found):
    """Cells of what earlier turns found, as a place to look from; those of the row without it."""
    for feature in range(len(point)):
        cell = region.home[feature]
        if found.upper[0] < np.inf and cell != FIXED:
            cell = cell_of(space, feature, point[feature])
        found.witness[feature] = cell


@kernel
def solve_by_cliques(forest, alternatives, batch, is_ball, option, limits, columns):
    """As `treeproof.kernels.exact.row.solve_batch`, from what the columns know; no option."""
    clock = np.empty(2, dtype=np.int64)
    walk = new_walk(forest, batch.rows.shape[1], np.int64(1))
    for number in range(len(batch.rows)):
        if batch.skip[number]:
            continue
        started = seconds_now(clock)
        region = new_region(forest.space, batch, number, is_ball)
        found = known_about(columns, number)
        recall_witness(forest.space, region, columns.witness[number], found)
        status = clique_turn(
            forest, alternatives, batch.groups[number], region, walk, found, limits,
            started + limits.time_s - columns.seconds[number],
        )  # fmt: skip
        columns.status[number] = status_of_turn(status, found, limits)
        write_columns(forest, region, found, columns, number)
        columns.seconds[number] += seconds_now(clock) - started
