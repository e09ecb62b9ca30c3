"""Which axes change together: the sets of changes that a limit affords, and that may break a claim.

Where every change of an axis costs a good part of the limit, only few axes can change at once. Each
set of them is a problem of its own: axes outside the set keep what is cheapest, axes in it leave
it. Most sets are ruled out by the best leaves of every tree alone, without any problem being built;
in the others, little is left of the trees.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.arrays import grow_table, sorted_order
from treeproof.kernels.core.compiler import inner_kernel, noalloc_kernel
from treeproof.kernels.exact.priced_leaves import leaf_costs

FEW_OF_ALL, FEW_OF_SOME = 0.12, 0.5
"""Part of what may be spent from which on the cheapest change of an axis is dear: where that is so
for all axes, and otherwise."""
MOST_OF_ALL, MOST_OF_SOME = 62, 16
"""Most dear axes in both cases; a mask has a bit for each."""
LEAST_OF_SOME = 0.25
"""Part of the axes that must be dear: a few among many others decide little."""
MOST_SETS, MOST_VISITS, MOST_ROOM = 1 << 14, 1 << 26, 1 << 24
"""Most sets, how often leaves are looked at to find these, and for how many there is room."""
ANY, STAYS, CHANGES = 0, 1, 2
"""What an axis does in a set: whatever it likes, what is cheapest, anything else."""


class DearAxes(NamedTuple):
    """Axes of which few can change together, in the order in which they are decided."""

    axis: np.ndarray  # (n_dear,) int32
    charge: np.ndarray  # (n_dear + 1,) float64; what the cheapest change adds; ends in infinity
    place: np.ndarray  # (n_axes,) int32; in this list, or -1


class Demands(NamedTuple):
    """What leaves ask of dear axes, as masks of their places."""

    leaves_home: np.ndarray  # (n_leaves,) int64; axes that must change
    stays_home: np.ndarray  # (n_leaves,) int64; axes that must not
    cost: np.ndarray  # (n_leaves,) float64; of the cheapest point


class Descent(NamedTuple):
    """Where the enumeration stands: axes before a level are decided."""

    leaves: np.ndarray  # (n_dear + 1, n_leaves) int32; those that the decisions leave
    cost: np.ndarray  # (n_dear + 1, n_leaves) float64; what each costs with the decisions
    ends: np.ndarray  # (n_dear + 1, n_trees + 1) int32; where those of each tree end, from 0
    changing: np.ndarray  # (n_dear + 1,) int64; mask of the axes that change
    spent: np.ndarray  # (n_dear + 1,) float64; what their changes cost at least
    turn: np.ndarray  # (n_dear + 1,) int8; decisions of the level's axis that were tried


@inner_kernel
def dear_axes(kept, limit):
    """Axes whose cheapest change costs a good part of what may be spent; none where too many."""
    n_axes = len(kept.cheapest)
    axes = np.empty(n_axes, dtype=np.int32)
    charge = np.empty(n_axes + 1, dtype=np.float64)
    count = 0
    n_changing = 0
    cheapest = np.inf
    for axis in range(n_axes):
        charge[axis] = np.inf
        for place in range(kept.start[axis], kept.start[axis + 1]):
            if kept.cost[place] > kept.cheapest[axis]:
                charge[axis] = min(charge[axis], kept.cost[place] - kept.cheapest[axis])
        cheapest = min(cheapest, charge[axis])
        n_changing += 1 if charge[axis] < np.inf else 0
    left = limit - kept.total
    is_all = cheapest >= FEW_OF_ALL * left
    least = (FEW_OF_ALL if is_all else FEW_OF_SOME) * left
    for axis in range(n_axes):
        if least <= charge[axis] < np.inf:
            axes[count] = axis
            charge[count] = charge[axis]
            count += 1
    if count > (MOST_OF_ALL if is_all else MOST_OF_SOME) or count < LEAST_OF_SOME * n_changing:
        count = 0
    charge[count] = np.inf
    return DearAxes(axes[:count], charge[: count + 1], np.full(n_axes, -1, dtype=np.int32))


@inner_kernel
def leaf_demands(leaves, kept, dear):
    """`Demands` of all leaves, by the places of the axes."""
    n_changed = np.zeros(len(kept.cost) + 1, dtype=np.int32)
    for axis in range(len(kept.cheapest)):
        for place in range(kept.start[axis], kept.start[axis + 1]):
            is_changed = kept.cost[place] > kept.cheapest[axis]
            n_changed[place + 1] = n_changed[place] + (1 if is_changed else 0)
    n_leaves = len(leaves.leaf_gain)
    leaves_home = np.zeros(n_leaves, dtype=np.int64)
    stays_home = np.zeros(n_leaves, dtype=np.int64)
    for leaf in range(n_leaves):
        for entry in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
            axis = leaves.feature[entry]
            if dear.place[axis] < 0:
                continue
            first = kept.start[axis] + leaves.low[entry]
            last = kept.start[axis] + leaves.high[entry]
            changed = n_changed[last + 1] - n_changed[first]
            bit = np.int64(1) << np.int64(dear.place[axis])
            if changed == last - first + 1:
                leaves_home[leaf] |= bit
            elif changed == 0:
                stays_home[leaf] |= bit
    return Demands(leaves_home, stays_home, leaf_costs(leaves, kept, False))


@inner_kernel
def in_order(leaves, kept, dear):
    """The axes in the order in which they are decided: those first that best leaves need most."""
    n_dear = len(dear.axis)
    for place in range(n_dear):
        dear.place[dear.axis[place]] = place
    demands = leaf_demands(leaves, kept, dear)
    loss = np.zeros(n_dear, dtype=np.float64)
    for tree in range(len(leaves.leaf_start) - 1):
        if leaves.leaf_start[tree] == leaves.leaf_start[tree + 1]:
            continue
        for place in range(n_dear):
            bit = np.int64(1) << np.int64(place)
            best = -np.inf
            at_home = -np.inf
            for leaf in range(leaves.leaf_start[tree], leaves.leaf_start[tree + 1]):
                best = max(best, leaves.leaf_gain[leaf])
                if demands.leaves_home[leaf] & bit == 0:
                    at_home = max(at_home, leaves.leaf_gain[leaf])
            loss[place] += best - at_home
    order = sorted_order(loss, False)
    charge = dear.charge.copy()
    for place in range(n_dear):
        charge[place] = dear.charge[order[place]]
        dear.place[dear.axis[order[place]]] = place
    return DearAxes(dear.axis[order], charge, dear.place)


@noalloc_kernel
def decide(leaves, demands, dear, descent, level, staying, purse):
    """Keep the leaves that agree with the decisions up to a level; returns what they gain at most.

    staying  int64    mask of the axes that keep what is cheapest
    purse    float64  limit, and the part by which sums of prices are shrunk

    Reads the leaves of the level before, and fills those of this one. Minus infinity where some
    tree has none. Sound: a point in a leaf pays for the leaf's cheapest point, and for every axis
    that changes although the leaf does not ask for it; the sum of gains is rounded up.
    """
    limit, shrink = purse
    changing = descent.changing[level]
    bit = np.int64(1) << np.int64(level - 1)
    extra = dear.charge[level - 1] if changing & bit != 0 else 0.0
    before = descent.leaves[level - 1]
    own = descent.leaves[level]
    total = 0.0
    gross = 0.0
    count = 0
    for tree in range(len(leaves.leaf_start) - 1):
        best = -np.inf
        begin = descent.ends[level - 1, tree]
        end = descent.ends[level - 1, tree + 1]
        for index in range(begin, end):
            leaf = before[index]
            asked = demands.leaves_home[leaf]
            if asked & staying != 0 or demands.stays_home[leaf] & changing != 0:
                continue
            cost = descent.cost[level - 1, index]
            if asked & bit == 0:
                cost += extra
            if cost * shrink > limit:
                continue
            own[count] = leaf
            descent.cost[level, count] = cost
            count += 1
            best = max(best, leaves.leaf_gain[leaf])
        descent.ends[level, tree + 1] = count
        if end > begin:
            if best == -np.inf:
                return best
            total += best
            gross += abs(best)
    return total + (len(leaves.leaf_start) + 4) * 2.0**-52 * gross


@inner_kernel
def new_descent(leaves, demands, n_dear, limit):
    """Nothing is decided; the leaves are those within the limit."""
    n_trees = len(leaves.leaf_start) - 1
    descent = Descent(
        np.empty((n_dear + 1, len(leaves.leaf_gain)), dtype=np.int32),
        np.empty((n_dear + 1, len(leaves.leaf_gain)), dtype=np.float64),
        np.zeros((n_dear + 1, n_trees + 1), dtype=np.int32),
        np.zeros(n_dear + 1, dtype=np.int64),
        np.zeros(n_dear + 1, dtype=np.float64),
        np.zeros(n_dear + 1, dtype=np.int8),
    )
    count = 0
    for tree in range(n_trees):
        for leaf in range(leaves.leaf_start[tree], leaves.leaf_start[tree + 1]):
            if demands.cost[leaf] <= limit:
                descent.leaves[0, count] = leaf
                descent.cost[0, count] = demands.cost[leaf]
                count += 1
        descent.ends[0, tree + 1] = count
    return descent


@inner_kernel
def change_sets(leaves, kept, dear, needed, limit):
    """Masks of the sets of dear axes that may change together, and whether these are all.

    needed  float64  gain of all trees from which a claim may break

    Sound: a point changes just one set of dear axes, pays for each of them, and lies in a leaf of
    every tree that agrees with the set. Sums of prices are shrunk by more than their rounding.
    """
    n_dear = len(dear.axis)
    found = np.empty((64, 1), dtype=np.int64)
    if (n_dear + 1) * len(leaves.leaf_gain) > MOST_ROOM:
        return found[:0, 0], False
    demands = leaf_demands(leaves, kept, dear)
    descent = new_descent(leaves, demands, n_dear, limit)
    shrink = 1.0 - (len(kept.cheapest) + n_dear + 8) * 2.0**-52
    n_found = 0
    n_visits = 0
    level = 0
    while level >= 0:
        if n_visits > MOST_VISITS or n_found > MOST_SETS:
            return found[:0, 0], False
        if level == n_dear:
            if n_found == len(found):
                found = grow_table(found, 2 * n_found)
            found[n_found, 0] = descent.changing[level]
            n_found += 1
            level -= 1
            continue
        turn = descent.turn[level]
        descent.turn[level] = turn + 1
        if turn == 2:
            level -= 1
            continue
        changing = descent.changing[level]
        spent = descent.spent[level]
        if turn == 0:
            changing |= np.int64(1) << np.int64(level)
            spent += dear.charge[level]
            if (kept.total + spent) * shrink > limit:
                continue
        n_visits += descent.ends[level, len(leaves.leaf_start) - 1]
        descent.changing[level + 1] = changing
        descent.spent[level + 1] = spent
        descent.turn[level + 1] = 0
        staying = ((np.int64(1) << np.int64(level + 1)) - 1) & ~changing
        if decide(leaves, demands, dear, descent, level + 1, staying, (limit, shrink)) >= needed:
            level += 1
    return found[:n_found, 0], True
