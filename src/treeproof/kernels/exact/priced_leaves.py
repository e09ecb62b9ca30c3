"""Trees along axes: leaves as products of runs of atoms, filtered by what a row can afford.

An axis is a feature or a one-hot group, its atoms are what the model can tell apart there (see
`treeproof.query.axes`). A row prices every atom, and keeps those that it can afford; they are
numbered anew, so that what was a run of atoms is a range of kept ones. Where a node sends several
runs to one side, its subtree is entered once for each, so that every leaf is a product of ranges.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.cells import NEXT, NOTHING, TESTED, CellBox
from treeproof.kernels.core.compiler import inlined_kernel, inner_kernel, noalloc_kernel
from treeproof.kernels.core.leaves import (
    HIGH,
    LOW,
    Leaves,
    gain_of_leaf,
    grow_buffer,
    new_buffer,
)


class AtomSpace(NamedTuple):
    """The axes of an ensemble as kernels see them."""

    atom_start: np.ndarray  # (n_axes + 1,) int64; atoms of each axis, numbered through
    node_axis: np.ndarray  # (n_nodes,) int32; axis that a node tests; -1 at leaves
    left_start: np.ndarray  # (n_nodes + 1,) int64; runs of each node
    left_runs: np.ndarray  # (n_runs, 2) int32; first and last atom, within the axis, that go left
    twin: np.ndarray  # (n_atoms,) int32; the first atom that no node tells from this one
    column_start: np.ndarray  # (n_axes + 1,) int64; features of each axis
    columns: np.ndarray  # (n_features,) int32
    # Where the choices of an axis begin: for each atom one value per column; -1 for numbers
    choice_start: np.ndarray  # (n_axes,) int64
    choices: np.ndarray  # (n,) float64


class PriceList(NamedTuple):
    """What the atoms cost one row."""

    row: np.ndarray  # (n_features,) float64
    cost: np.ndarray  # (n_atoms,) float64; rounded down, infinite where not allowed
    is_open: np.ndarray  # (n_atoms,) bool; only approached
    is_exact: np.ndarray  # (n_atoms,) bool; that double is the price, or its infimum
    value: np.ndarray  # (n_atoms,) float64; of the witness, on numeric axes
    # Of two sums of prices that differ, the difference is at least this; 0 where nothing is known
    grid: float
    is_max: bool  # a point costs its dearest atom, otherwise the sum of its atoms
    takes_any: bool  # any violation within the limit will do, otherwise the cheapest is sought
    limit: float  # no point beyond this is asked about
    is_limit_exact: bool  # otherwise it was rounded up
    # What only approaches a limit is beyond it: any violation within the limit will do, or there is
    # a witness that only approaches its cost, and what attains that is sought
    is_closed: np.ndarray  # (1,) bool


class Kept(NamedTuple):
    """The atoms that a row can afford, numbered anew within their axes."""

    rank: np.ndarray  # (n_atoms + 1,) int32; kept atoms before each
    atom: np.ndarray  # (n_kept,) int32
    cost: np.ndarray  # (n_kept,) float64
    start: np.ndarray  # (n_axes + 1,) int32; where those of an axis begin
    cheapest: np.ndarray  # (n_axes,) float64; cost of the cheapest one
    bottom: np.ndarray  # (n_axes,) int32; place of the cheapest one
    # Costs fall to the cheapest one and rise from there, the axis's last atom left aside
    is_valley: np.ndarray  # (n_axes,) bool
    box: CellBox  # all of them
    total: float  # what the cheapest atoms cost together; infinite where an axis has none


class Purse(NamedTuple):
    """What points may cost, and what the branch at hand costs at least."""

    limit: float
    shrink: float  # by which costs of branches are shrunk
    spent: np.ndarray  # (longest path + 1,) float64; by the length of the path so far


@inlined_kernel
def is_beyond(prices, atom):
    """Whether an atom costs more than its double, or only approaches it."""
    return prices.is_open[atom] or not prices.is_exact[atom]


@inlined_kernel
def is_cheaper(prices, atom, other):
    """Whether an atom costs less than another, or as much without being beyond it."""
    cost = prices.cost[atom]
    return cost < prices.cost[other] or (
        cost == prices.cost[other] and is_beyond(prices, other) and not is_beyond(prices, atom)
    )


@inner_kernel
def keep_affordable(space, prices, limit):
    """Keep the atoms that points within a limit can use.

    Sound: what is left out costs more, together with the cheapest atoms of all other axes, than
    the limit, rounding included; or there is an atom that no node tells from it and that costs no
    more, which is kept.
    """
    n_axes = len(space.atom_start) - 1
    n_atoms = len(prices.cost)
    cheapest = np.empty(n_axes, dtype=np.float64)
    total = 0.0
    for axis in range(n_axes):
        least = np.inf
        for atom in range(space.atom_start[axis], space.atom_start[axis + 1]):
            least = min(least, prices.cost[atom])
        cheapest[axis] = least
        total = max(total, least) if prices.is_max else total + least
    best = np.full(n_atoms, -1, dtype=np.int32)
    for atom in range(n_atoms):
        twin = space.twin[atom]
        if best[twin] < 0 or is_cheaper(prices, atom, best[twin]):
            best[twin] = atom
    shrink = 1.0 if prices.is_max else 1.0 - (n_axes + 4) * 2.0**-52
    # What costs a little more than its double is not within a limit that is meant as it is. Other
    # limits below a witness are rounded, and leave room for that little.
    is_closed = prices.is_closed[0]
    rank = np.empty(n_atoms + 1, dtype=np.int32)
    kept = np.empty(n_atoms, dtype=np.int32)
    cost = np.empty(n_atoms, dtype=np.float64)
    start = np.zeros(n_axes + 1, dtype=np.int32)
    bottom = np.zeros(n_axes, dtype=np.int32)
    is_valley = np.ones(n_axes, dtype=np.bool_)
    low = np.zeros(n_axes, dtype=np.int32)
    high = np.empty(n_axes, dtype=np.int32)
    count = 0
    for axis in range(n_axes):
        others = 0.0 if prices.is_max or np.isinf(total) else total - cheapest[axis]
        last = space.atom_start[axis + 1] - 1
        is_rising = False
        bottom[axis] = count
        for atom in range(space.atom_start[axis], last + 1):
            rank[atom] = count
            price = prices.cost[atom]
            if (
                price < np.inf
                and best[space.twin[atom]] == atom
                and (price + others) * shrink <= limit
                and not (is_closed and price == limit and is_beyond(prices, atom))
            ):
                if count > start[axis] and atom < last and price != cost[count - 1]:
                    is_valley[axis] = is_valley[axis] and (price > cost[count - 1] or not is_rising)
                    is_rising = price > cost[count - 1]
                kept[count] = atom
                cost[count] = price
                if is_cheaper(prices, atom, kept[bottom[axis]]):
                    bottom[axis] = count
                count += 1
        if count > start[axis] and kept[bottom[axis]] == last:
            is_valley[axis] = is_valley[axis] and not is_rising
        start[axis + 1] = count
        high[axis] = count - start[axis] - 1
        if high[axis] < 0:
            total = np.inf
    rank[n_atoms] = count
    return Kept(
        rank, kept[:count], cost[:count], start, cheapest, bottom, is_valley, CellBox(low, high),
        total,
    )  # fmt: skip


@inlined_kernel
def _piece(space, kept, node, axis, first, last):
    """Side of a node that a kept atom takes, and the last one up to which all take it, too."""
    offset = space.atom_start[axis]
    before = kept.start[axis]
    end = first - 1
    for run in range(space.left_start[node], space.left_start[node + 1]):
        begin = kept.rank[offset + space.left_runs[run, LOW]] - before
        stop = kept.rank[offset + space.left_runs[run, HIGH] + 1] - before - 1
        if stop < first or stop < begin:
            continue
        if begin > end + 1:
            # Runs are in order: what lies between this one and the last goes right.
            return (False, min(begin - 1, last)) if end < first else (True, min(end, last))
        end = stop
    return (False, last) if end < first else (True, min(end, last))


@noalloc_kernel
def range_cost(kept, axis, low, high):
    """Cost of the cheapest atom in a range of kept ones."""
    first = kept.start[axis] + low
    last = kept.start[axis] + high
    if kept.is_valley[axis]:
        if first <= kept.bottom[axis] <= last:
            return kept.cheapest[axis]
        return min(kept.cost[first], kept.cost[last])
    least = kept.cost[first]
    for place in range(first + 1, last + 1):
        least = min(least, kept.cost[place])
    return least


@noalloc_kernel
def _restrict_along(forest, space, kept, coefficient, purse, tree, buffer):
    """Append the leaves of trees from a given one on; returns the first that did not fit."""
    trees, nodes, spent = forest.trees, forest.space.nodes, purse.spent
    stack, path, current, box = buffer.stack, buffer.path, buffer.current, kept.box
    for axis in range(len(box.low)):
        current[axis, LOW] = box.low[axis]
        current[axis, HIGH] = box.high[axis]
    while tree < len(trees.tree_output):
        n_leaves = buffer.leaf_start[tree]
        n_ranges = buffer.range_start[n_leaves]
        output = trees.tree_output[tree]
        has_room = True
        top = 0
        if output < 0 or coefficient[output] != 0.0:
            stack[0, 0] = trees.root[tree]
            stack[0, 1] = 0
            stack[0, 2] = NOTHING
            top = 1
        length = np.int64(0)
        while top > 0:
            top -= 1
            node = np.int64(stack[top, 0])
            while length > stack[top, 1]:
                length -= 1
                current[path[length, 0], LOW] = path[length, 1]
                current[path[length, 0], HIGH] = path[length, 2]
            begins_at = NOTHING if stack[top, 2] == NOTHING else stack[top, 3]
            while nodes[node, TESTED] != NOTHING and spent[length] <= purse.limit:
                axis = space.node_axis[node]
                first = current[axis, LOW]
                last = current[axis, HIGH]
                if begins_at != NOTHING:
                    first = np.int32(begins_at)
                    begins_at = NOTHING
                goes_left, end = _piece(space, kept, node, axis, first, last)
                if end < last:
                    stack[top, 0] = node
                    stack[top, 1] = length
                    stack[top, 2] = axis
                    stack[top, 3] = end + 1
                    top += 1
                if end < last or first > current[axis, LOW]:
                    path[length, 0] = axis
                    path[length, 1] = current[axis, LOW]
                    path[length, 2] = last
                    is_whole = current[axis, LOW] == box.low[axis] and last == box.high[axis]
                    path[length, 3] = 1 if is_whole else 0
                    before = range_cost(kept, axis, current[axis, LOW], last)
                    current[axis, LOW] = first
                    current[axis, HIGH] = end
                    length += 1
                    now = range_cost(kept, axis, first, end)
                    spent[length] = spent[length - 1] + (now - before) * purse.shrink
                node = node + 1 if goes_left else np.int64(nodes[node, NEXT])
            if n_leaves == len(buffer.leaf_gain) or n_ranges + length > len(buffer.feature):
                has_room = False
                break
            for step in range(length):
                if path[step, 3]:
                    buffer.feature[n_ranges] = path[step, 0]
                    buffer.low[n_ranges] = current[path[step, 0], LOW]
                    buffer.high[n_ranges] = current[path[step, 0], HIGH]
                    n_ranges += 1
            while nodes[node, TESTED] != NOTHING:
                node += 1  # all that is below is too dear: one leaf stands for it
            leaf = nodes[node, NEXT]
            buffer.leaf_gain[n_leaves] = gain_of_leaf(trees, tree, leaf, coefficient)
            buffer.leaf_row[n_leaves] = leaf
            n_leaves += 1
            buffer.range_start[n_leaves] = n_ranges
        while length > 0:
            length -= 1
            current[path[length, 0], LOW] = path[length, 1]
            current[path[length, 0], HIGH] = path[length, 2]
        if not has_room:
            return tree
        buffer.leaf_start[tree + 1] = n_leaves
        tree += 1
    return tree


@inner_kernel
def restrict_along(forest, space, kept, coefficient, limit):
    """`Leaves` of the kept atoms: features are axes, cells are kept atoms within their axis.

    limit  float64  a branch in which every point costs more, as a sum, becomes a single leaf

    Sound: no point within the limit is in such a leaf, whatever its gain. Costs of branches are
    shrunk by more than the rounding of their sums, to which each step adds two terms.
    """
    n_trees = len(forest.trees.tree_output)
    n_axes = len(kept.box.low)
    depth = forest.space.max_depth
    buffer = new_buffer(n_trees, n_axes, depth, 256 + 8 * n_trees, 1024 + 24 * n_trees)
    spent = np.empty(len(buffer.path) + 1, dtype=np.float64)
    shrink = 1.0 - (n_axes + 4 * len(spent)) * 2.0**-52
    spent[0] = kept.total * shrink
    purse = Purse(limit, shrink, spent)
    tree = np.int64(0)
    # Ends: the buffer doubles until the trees fit.
    while tree < n_trees:
        tree = _restrict_along(forest, space, kept, coefficient, purse, tree, buffer)
        if tree < n_trees:
            buffer = grow_buffer(buffer)
    n_leaves = buffer.leaf_start[n_trees]
    n_ranges = buffer.range_start[n_leaves]
    return Leaves(
        buffer.leaf_start,
        buffer.leaf_gain[:n_leaves],
        buffer.leaf_row[:n_leaves],
        buffer.range_start[: n_leaves + 1],
        buffer.feature[:n_ranges],
        buffer.low[:n_ranges],
        buffer.high[:n_ranges],
    )


@inner_kernel
def leaf_costs(leaves, kept, is_max):
    """What the cheapest point of every leaf costs, rounded down.

    Sound: a point of a leaf has an atom in each of its ranges, and atoms of all other axes.
    """
    costs = np.empty(len(leaves.leaf_gain), dtype=np.float64)
    shrink = 1.0 if is_max else 1.0 - (len(kept.cheapest) + 4) * 2.0**-52
    for leaf in range(len(costs)):
        total = kept.total
        for entry in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
            axis = leaves.feature[entry]
            least = range_cost(kept, axis, leaves.low[entry], leaves.high[entry])
            if is_max:
                total = max(total, least)
            else:
                total += least - kept.cheapest[axis]
        costs[leaf] = total * shrink
    return costs
