"""The path bound (the paper's eq. 7): neighbouring groups must choose cliques that meet.

Only cliques that can lie on a path of at least the floor are stored: the question is whether such a
path exists, and a clique whose gain plus the maxima of all other groups stays below cannot be on
one.
"""

import numpy as np

from treeproof.kernels.arrays import grown, sorted_order
from treeproof.kernels.clock import seconds_now
from treeproof.kernels.compiler import inner_kernel
from treeproof.kernels.group_bounds import LOOSE, OUT_OF_MEMORY, OUT_OF_NODES, OUT_OF_TIME, PROVED
from treeproof.kernels.multilevel import Options, decide_levels, group_suffix
from treeproof.kernels.narrowing import enter, leave
from treeproof.kernels.selection import prepare_parts


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
