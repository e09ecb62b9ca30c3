"""The best path through the groups of a level, instead of the sum of their maxima (eq. 7)."""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import grown, sorted_order
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.core.status import FOUND, MEMORY_LIMIT, PROVED, TIME_LIMIT, UNDECIDED
from treeproof.kernels.paper.leaves import count_node, enter, is_late, leave, meets
from treeproof.kernels.paper.levels import decide_levels, group_suffix
from treeproof.kernels.paper.parts import leave_all, next_clique, select_parts, start_group


class Cliques(NamedTuple):
    """Cliques of a group as sparse boxes."""

    value: np.ndarray  # (n,) float64; gain of the clique, or of the best path that ends in it
    range_start: np.ndarray  # (n + 1,) int32; ranges of each clique
    feature: np.ndarray  # (n_ranges,) int32
    low: np.ndarray  # (n_ranges,) int32
    high: np.ndarray  # (n_ranges,) int32


@inner_kernel
def collect_cliques(search, box, first, count, least, most):
    """Cliques of consecutive parts whose gain is at least `least`.

    box   int32 (n_features,), twice   the box of the question
    most  int                          cliques and ranges to store

    Returns the status, PROVED when all were stored, and the cliques.
    """
    parts, walk = search.parts, search.walk
    value = np.empty(64)
    range_start = np.zeros(65, dtype=np.int32)
    feature = np.empty(256, dtype=np.int32)
    low = np.empty(256, dtype=np.int32)
    high = np.empty(256, dtype=np.int32)
    n = 0
    n_ranges = 0
    below = np.nextafter(least, -np.inf)
    start_group(parts, walk, first)
    status = next_clique(search, first, count, below)
    while status == FOUND:
        last = count - 1
        enter(parts, walk, parts.leaf[walk.position[last] - 1], last)
        status = count_node(search.limits)
        if status == PROVED and n + n_ranges > most:
            status = MEMORY_LIMIT
        if status != PROVED:
            leave_all(walk, count)
            break
        if n == len(value):
            value = grown(value, n + 1)
            range_start = grown(range_start, n + 2)
        top = walk.trail_start[count]
        if n_ranges + top > len(feature):
            feature = grown(feature, n_ranges + top)
            low = grown(low, n_ranges + top)
            high = grown(high, n_ranges + top)
        for t in range(top):
            # A feature narrowed twice is written once, at its first narrowing.
            f = walk.trail[t, 0]
            if walk.trail[t, 1] == box[0][f] and walk.trail[t, 2] == box[1][f]:
                feature[n_ranges] = f
                low[n_ranges] = walk.low_cell[f]
                high[n_ranges] = walk.high_cell[f]
                n_ranges += 1
        value[n] = walk.total[count]
        n += 1
        range_start[n] = n_ranges
        leave(walk, last)
        status = next_clique(search, first, count, below)
    return status, Cliques(value[:n], range_start[: n + 1], feature, low, high)


@inner_kernel
def best_continuations(search, box, before, after, least):
    """Best path value ending in each clique of a group: eq. 7.

    before  Cliques   of the group before, with the values of their best paths
    after   Cliques   of this group
    least   float64   paths below are dropped

    Returns the status, and the path values, minus infinity where no path of at least `least` ends.
    """
    low_cell, high_cell = search.walk.low_cell, search.walk.high_cell
    best = np.empty(len(after.value))
    order = sorted_order(before.value, False)
    for i in range(len(best)):
        best[i] = -np.inf
        if i & 255 == 255 and is_late(search.limits):
            return TIME_LIMIT, best
        begin, end = after.range_start[i], after.range_start[i + 1]
        for r in range(begin, end):
            low_cell[after.feature[r]] = after.low[r]
            high_cell[after.feature[r]] = after.high[r]
        for j in order:
            if after.value[i] + before.value[j] < least:
                break
            if meets(before, j, low_cell, high_cell):
                best[i] = after.value[i] + before.value[j]
                break
        for r in range(begin, end):
            low_cell[after.feature[r]] = box[0][after.feature[r]]
            high_cell[after.feature[r]] = box[1][after.feature[r]]
    return PROVED, best


@inner_kernel
def path_level(search, n_parts, size, floor, store_limit):
    """Whether a path of at least the floor runs through the groups of one level (eq. 7).

    A clique can be on such a path only if it lies within the excess (the sum of the maxima less the
    floor) of its group's maximum. Cliques much nearer to it are tried first: a path through them is
    found with little work, where there is one.

    Row 0 of ``search.maxima`` holds the maxima of the groups, or upper bounds of them.
    """
    n_groups = (n_parts + size - 1) // size
    remaining = np.zeros(n_groups + 1)
    for group in range(n_groups - 1, -1, -1):
        remaining[group] = remaining[group + 1] + search.maxima[0, group]
    excess = remaining[0] - floor
    status = UNDECIDED
    for reach in (excess / 16.0, excess / 4.0, excess):
        status = _path_within(search, n_parts, size, remaining, reach, floor, store_limit)
        if status != PROVED:
            break
    return status


@inner_kernel
def _path_within(search, n_parts, size, remaining, reach, floor, store_limit):
    """UNDECIDED when cliques within a reach of their maxima form a path of at least the floor."""
    parts, walk, maxima = search.parts, search.walk, search.maxima
    for part in range(n_parts):
        maxima[1, part] = parts.gain[parts.begin[part]]
    box = walk.low_cell.copy(), walk.high_cell.copy()
    nothing = np.zeros(0, dtype=np.int32)
    before = Cliques(np.zeros(1), np.zeros(2, dtype=np.int32), nothing, nothing, nothing)
    stored = 0
    for group in range(len(remaining) - 1):
        first = group * size
        count = min(size, n_parts - first)
        group_suffix(search, first, count, np.int64(1), maxima[1])
        status, after = collect_cliques(
            search, box, first, count, maxima[0, group] - reach, store_limit - stored
        )
        if status != PROVED:
            return status
        stored = len(after.value) + len(after.feature)
        status, best = best_continuations(search, box, before, after, floor - remaining[group + 1])
        if status != PROVED:
            return status
        largest = -np.inf
        for value in best:
            largest = max(largest, value)
        if largest == -np.inf:
            return PROVED
        before = Cliques(best, after.range_start, after.feature, after.low, after.high)
    return UNDECIDED


@inner_kernel
def prove_by_paths(claims, alternative, search, options, arrange):
    """Try to prove an alternative by eq. 7 on the last level, after eq. 6 did not."""
    outcome = UNDECIDED
    for constraint in range(
        claims.alternative_start[alternative], claims.alternative_start[alternative + 1]
    ):
        n_parts, floor = select_parts(claims, constraint, search)
        n_parts, constant = arrange(search, n_parts, options)
        floor -= constant
        # Fills the maxima of the last level, which bound the paths; all of them are finished.
        status, level, _ = decide_levels(search, n_parts, floor, options, True)
        if status == UNDECIDED:
            size = options.clique_size**level
            status = path_level(search, n_parts, size, floor, options.store_limit)
        if status == PROVED:
            return PROVED
        if status != UNDECIDED:
            outcome = status
    return outcome


@noalloc_kernel
def prove_nothing(claims, alternative, search, options, arrange):
    """Stand in for `prove_by_paths` where only sums are wanted."""
    return UNDECIDED
