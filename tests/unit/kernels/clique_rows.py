"""Whole rows answered by cliques alone, in place of `treeproof.kernels.exact.row.solve_batch`."""

import numpy as np
from numba import njit

from treeproof.kernels.core.cells import new_box, new_region
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import inner_kernel
from treeproof.kernels.core.leaves import restrict
from treeproof.kernels.core.status import NEAR_TIE, PROVED
from treeproof.kernels.exact.forest_cliques import final_status, nearest_clique
from treeproof.kernels.exact.initial_radius import order_alternatives
from treeproof.kernels.exact.primal import new_found
from treeproof.kernels.exact.row import (
    SMALLEST_START,
    ball_cells,
    base_and_floor,
    claim_of,
    covers_everything,
    first_step,
    write_columns,
)
from treeproof.kernels.exact.search import Budget, new_judge

FIRST, GROWTH = 1.5, 1.3
"""First trial radius over the one of eq. 6, and how it grows."""


@inner_kernel
def clique_row(forest, alternatives, group, region, start, found, limits):
    """As `treeproof.kernels.exact.row.search_row`, by cliques alone."""
    clock = np.empty(2, dtype=np.int64)
    budget = Budget(limits.nodes, limits.memory_bytes, seconds_now(clock) + limits.time_s)
    box = new_box(forest.space, region)
    order, radius = order_alternatives(forest, alternatives, group, region, start)
    found.eq6_radius[0] = radius
    radius = FIRST * radius if region.is_ball else np.inf
    doubt = np.full(2, np.inf)
    while len(order) > 0:
        searched = np.inf
        for number in order:
            if region.is_ball:
                radius = min(radius, found.upper[0])
                ball_cells(forest.space, region, radius, box)
            claim = claim_of(alternatives, group, number)
            leaves = restrict(
                forest.trees, forest.space, region.row, box.low, box.high, claim.coefficient,
                forest.semantics.zero_band,
            )  # fmt: skip
            base, floor = base_and_floor(forest, claim, leaves)
            judge_of = new_judge(forest, claim, region, box, found)
            status, cleared = nearest_clique(judge_of, doubt, leaves, box, base, floor, budget)
            searched = min(searched, cleared)
            if not region.is_ball and found.upper[0] < np.inf:
                return PROVED
            if status not in (PROVED, NEAR_TIE):
                if number == order[-1]:
                    bound = min(searched, radius, found.upper[0], doubt[0])
                    found.lower[0] = max(found.lower[0], bound)
                return status
        found.lower[0] = max(found.lower[0], min(radius, found.upper[0], doubt[0]))
        if final_status(found, doubt, PROVED) == NEAR_TIE:
            return NEAR_TIE
        if found.upper[0] <= radius:
            return PROVED
        if found.upper[0] == np.inf and (
            not region.is_ball or covers_everything(forest.space, region, box)
        ):
            break
        radius = found.upper[0] if found.upper[0] < np.inf else radius * GROWTH
    found.lower[0] = np.inf
    return PROVED


@njit
def clique_batch(forest, alternatives, batch, is_ball, guess, limits, columns):
    """As `treeproof.kernels.exact.row.solve_batch`."""
    clock = np.empty(2, dtype=np.int64)
    for number in range(len(batch.rows)):
        if batch.skip[number]:
            continue
        started = seconds_now(clock)
        region = new_region(forest.space, batch, number, is_ball)
        found = new_found(len(region.row))
        radius = guess.radius
        if not radius > 0.0:
            radius = first_step(forest.space, region)
        columns.status[number] = clique_row(
            forest, alternatives, batch.groups[number], region, max(radius, SMALLEST_START), found,
            limits,
        )  # fmt: skip
        write_columns(forest, region, found, columns, number)
        columns.seconds[number] = seconds_now(clock) - started
