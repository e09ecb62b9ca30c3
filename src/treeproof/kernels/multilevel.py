"""The paper's Algorithm 2, level by level: whether a constraint can hold in a box."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.compiler import noalloc_kernel
from treeproof.kernels.group_bounds import (
    LOOSE,
    OUT_OF_NODES,
    OUT_OF_TIME,
    PROVED,
    group_maximum,
)
from treeproof.kernels.selection import prepare_parts


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
