"""The paper's Algorithm 2, level by level: sums of the groups' best cliques (eq. 6)."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.core.status import FOUND, PROVED, UNDECIDED
from treeproof.kernels.paper.parts import leave_all, next_clique, select_parts, start_group


class Options(NamedTuple):
    """How groups are formed, which radii are tried, and what may be spent on a row.

    The plan is the paper's search: first radius, number of steps, largest radius; one step is a
    question at a fixed radius. It is empty for the exact search in the list of distances.
    """

    plan: np.ndarray  # (3,) or (0,) float64
    clique_size: int  # T, trees or groups merged per level
    n_levels: int  # L
    shares: bool  # group trees by shared features
    uses_paths: bool  # eq. 7 at the last level, where eq. 6 does not prove it
    all_bounds: bool  # finish every sum, for its value, instead of stopping once decided
    node_limit: int
    store_limit: int  # cliques and ranges that a path bound may hold
    time_limit: float  # seconds


@noalloc_kernel
def group_suffix(search, first, count, child_size, child_maximum):
    """Bound what the parts from each depth on can add: maxima of parts and of whole children."""
    parts, walk = search.parts, search.walk
    walk.suffix[count] = 0.0
    after_child = 0.0
    for depth in range(count - 1, -1, -1):
        part = first + depth
        walk.suffix[depth] = walk.suffix[depth + 1] + parts.gain[parts.begin[part]]
        if part % child_size == 0:
            # Sound: the parts of a child add no more than its own maximum.
            after_child += child_maximum[part // child_size]
            walk.suffix[depth] = min(walk.suffix[depth], after_child)


@noalloc_kernel
def first_gain(search, first, count):
    """Gain of any clique of consecutive parts, and the status of the search for it."""
    start_group(search.parts, search.walk, first)
    status = next_clique(search, first, count, -np.inf)
    if status != FOUND:
        return -np.inf, status
    leave_all(search.walk, search.walk.depth[0])
    return search.walk.total[count], PROVED


@noalloc_kernel
def largest_gain(search, first, count, best):
    """Largest gain of the cliques of consecutive parts, or `best` where none is larger.

    The status is PROVED when the search was finished within its limits.
    """
    start_group(search.parts, search.walk, first)
    status = next_clique(search, first, count, best)
    # Ends: each clique has more gain than the one before, and there are finitely many.
    while status == FOUND:
        best = search.walk.total[count]
        status = next_clique(search, first, count, best)
    return best, status


@noalloc_kernel
def sum_level(search, n_parts, size, child_size, floor, all_bounds):
    """Maxima of the groups of one level; their sum is the bound of eq. 6.

    size        int   parts per group; groups start at multiples of it
    child_size  int   parts per group of the level below, whose maxima are row 0 of ``maxima``; out,
                      in row 1, the maximum of each group, or an upper bound of it

    Returns PROVED when the sum is below the floor, UNDECIDED when not, or the limit that was
    reached; and the sum, or where it was not finished an upper bound of it.
    """
    maxima = search.maxima
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
        group_suffix(search, first, count, child_size, maxima[0])
        maxima[2, group], status = first_gain(search, first, count)
        if status != PROVED:
            return status, total
        total_least += maxima[2, group]
    for group in range(n_groups):
        # Sound: the sum is at least total_least, so it cannot fall below the floor any more.
        if total_least >= floor and not all_bounds:
            return UNDECIDED, total
        least = maxima[2, group]
        if least < maxima[1, group]:
            first = group * size
            count = min(size, n_parts - first)
            group_suffix(search, first, count, child_size, maxima[0])
            exact, status = largest_gain(search, first, count, least)
            if status != PROVED:
                return status, total
            total += exact - maxima[1, group]
            total_least += exact - least
            maxima[1, group] = exact
        if total < floor and not all_bounds:
            break
    return PROVED if total < floor else UNDECIDED, total


@noalloc_kernel
def decide_levels(search, n_parts, floor, options, all_bounds):
    """Merge level by level until the bound falls below the floor.

    Returns the status; the level that proved it, or the last one finished; and how far the bound of
    eq. 6 lies above the floor (negative: proved).
    """
    parts, maxima = search.parts, search.maxima
    excess = -floor
    for part in range(n_parts):
        maxima[0, part] = parts.gain[parts.begin[part]]
        excess += maxima[0, part]
    size = np.int64(1)
    level = np.int64(0)
    # Ends: levels are counted.
    while excess >= 0.0:
        if level == options.n_levels or size >= n_parts:
            return UNDECIDED, level, excess
        child_size = size
        size *= options.clique_size
        status, bound = sum_level(search, n_parts, size, child_size, floor, all_bounds)
        if status > UNDECIDED:
            return status, level, excess
        level += 1
        for group in range((n_parts + size - 1) // size):
            maxima[0, group] = maxima[1, group]
        excess = bound - floor
    return PROVED, level, excess


@inner_kernel
def decide_alternative(claims, alternative, search, options, arrange):
    """Try to prove that the constraints of an alternative cannot all hold in the box.

    Returns as `decide_levels`, of the constraint that proved it, or of the best one.
    """
    outcome = UNDECIDED
    reached = np.int64(0)
    least = np.inf
    for constraint in range(
        claims.alternative_start[alternative], claims.alternative_start[alternative + 1]
    ):
        n_parts, floor = select_parts(claims, constraint, search)
        n_parts, constant = arrange(search, n_parts, options)
        status, level, excess = decide_levels(
            search, n_parts, floor - constant, options, options.all_bounds
        )
        least = min(least, excess)
        if status == PROVED:
            return PROVED, level, least
        reached = max(reached, level)
        if status != UNDECIDED:
            outcome = status
    return outcome, reached, least
