"""The atoms that a row can afford, and what leaves over them cost.

A row prices every atom, and keeps those that it can afford; they are numbered anew, so that what
was a run of atoms is a range of kept ones.
"""

from typing import NamedTuple

import numpy as np

from treeproof.kernels.core.cells import CellBox, Kept
from treeproof.kernels.core.compiler import inlined_kernel, inner_kernel
from treeproof.kernels.core.leaves import range_cost
from treeproof.kernels.exact.objective import Measure


class PriceList(NamedTuple):
    """What the atoms cost one row."""

    row: np.ndarray  # (n_features,) float64
    cost: np.ndarray  # (n_atoms,) float64; rounded down, infinite where not allowed
    is_open: np.ndarray  # (n_atoms,) bool; only approached
    is_exact: np.ndarray  # (n_atoms,) bool; that double is the price, or its infimum
    value: np.ndarray  # (n_atoms,) float64; of the witness, on numeric axes
    measure: Measure
    # Of other costs, whose sums have limits: what atoms cost, rounded down; limits, rounded up
    other: np.ndarray  # (n_others, n_atoms) float64
    other_limit: np.ndarray  # (n_others,) float64


@inlined_kernel
def is_beyond(prices, atom):
    """Whether an atom costs more than its double, or only approaches it."""
    return prices.is_open[atom] or not prices.is_exact[atom]


@inlined_kernel
def costs_less(prices, atom, other):
    """Whether an atom costs less than another, or as much without being beyond it."""
    cost = prices.cost[atom]
    return cost < prices.cost[other] or (
        cost == prices.cost[other] and is_beyond(prices, other) and not is_beyond(prices, atom)
    )


@inlined_kernel
def is_dominated(prices, atom, other):
    """Whether another atom, which is no dearer, costs no more in other costs, either."""
    if atom == other:
        return False
    for number in range(len(prices.other_limit)):
        if prices.other[number, atom] < prices.other[number, other]:
            return False
    return True


@inner_kernel
def keep_affordable(atoms, prices, limit):
    """Keep the atoms that points within a limit can use.

    Sound: what is left out costs more, together with the cheapest atoms of all other axes, than
    the limit, rounding included; or there is an atom that no node tells from it and that costs no
    more, whichever cost is looked at, which is kept.
    """
    n_axes = len(atoms.atom_start) - 1
    n_atoms = len(prices.cost)
    cheapest = np.empty(n_axes, dtype=np.float64)
    total = 0.0
    for axis in range(n_axes):
        least = np.inf
        for atom in range(atoms.atom_start[axis], atoms.atom_start[axis + 1]):
            least = min(least, prices.cost[atom])
        cheapest[axis] = least
        total = max(total, least) if prices.measure.is_max else total + least
    best = np.full(n_atoms, -1, dtype=np.int32)
    for atom in range(n_atoms):
        twin = atoms.twin[atom]
        if best[twin] < 0 or costs_less(prices, atom, best[twin]):
            best[twin] = atom
    shrink = 1.0 if prices.measure.is_max else 1.0 - (n_axes + 4) * 2.0**-52
    # What costs a little more than its double is not within a limit that is meant as it is. Other
    # limits below a witness are rounded, and leave room for that little.
    is_closed = prices.measure.is_closed[0]
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
        others = 0.0 if prices.measure.is_max or np.isinf(total) else total - cheapest[axis]
        last = atoms.atom_start[axis + 1] - 1
        is_rising = False
        bottom[axis] = count
        for atom in range(atoms.atom_start[axis], last + 1):
            rank[atom] = count
            price = prices.cost[atom]
            if (
                price < np.inf
                and not is_dominated(prices, atom, best[atoms.twin[atom]])
                and (price + others) * shrink <= limit
                and not (is_closed and price == limit and is_beyond(prices, atom))
            ):
                if count > start[axis] and atom < last and price != cost[count - 1]:
                    is_valley[axis] = is_valley[axis] and (price > cost[count - 1] or not is_rising)
                    is_rising = price > cost[count - 1]
                kept[count] = atom
                cost[count] = price
                if costs_less(prices, atom, kept[bottom[axis]]):
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
        atoms.atom_start, rank, kept[:count], cost[:count], start, cheapest, bottom, is_valley,
        CellBox(low, high), total,
    )  # fmt: skip


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
