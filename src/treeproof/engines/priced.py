"""Questions with prices as compiled searches take them, and what their answers cost, exactly."""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.exact.priced_leaves import AtomSpace
from treeproof.kernels.exact.priced_rows import PricedBatch
from treeproof.query.axes import NUMERIC, Axes
from treeproof.query.prices import Pricing
from treeproof.query.query import Query
from treeproof.query.rounding import double_below, round_up
from treeproof.results.results import Results


@lru_cache(maxsize=16)
def atom_space(axes: Axes) -> AtomSpace:
    """The axes of a question as kernels take them."""
    is_numeric = [axis.kind == NUMERIC for axis in axes.axes]
    sizes = [
        0 if plain else axis.choices.size for plain, axis in zip(is_numeric, axes.axes, strict=True)
    ]
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    columns = [axis.columns for axis in axes.axes]
    return AtomSpace(
        atom_start=axes.atom_start,
        node_axis=axes.node_axis,
        left_start=axes.left_start,
        left_runs=axes.left_runs,
        twin=_twins(axes),
        column_start=np.cumsum([0, *map(len, columns)]).astype(np.int64),
        columns=np.array([column for own in columns for column in own], dtype=np.int32),
        choice_start=np.where(is_numeric, -1, start),
        choices=np.concatenate([np.zeros(0), *(axis.choices.ravel() for axis in axes.axes)]),
    )


def _twins(axes: Axes) -> NDArray[np.int32]:
    """The first atom that no node tells from each; numbers have no twins, choices may."""
    twin = np.arange(axes.n_atoms, dtype=np.int32)
    node = np.repeat(np.arange(len(axes.node_axis)), np.diff(axes.left_start))
    for number, axis in enumerate(axes.axes):
        if axis.kind == NUMERIC:
            continue
        atoms = axes.atoms_of(number)
        own = axes.node_axis[node] == number
        _, place = np.unique(node[own], return_inverse=True)
        left = np.zeros((place.max(initial=-1) + 1, atoms.stop - atoms.start), dtype=np.int8)
        for row, (first, last) in zip(place.tolist(), axes.left_runs[own].tolist(), strict=True):
            left[row, first : last + 1] = 1
        _, first, inverse = np.unique(left, axis=1, return_index=True, return_inverse=True)
        twin[atoms] = atoms.start + first[inverse.ravel()]
    return twin


def priced_batch(
    query: Query, pricing: Pricing, skip: NDArray[np.bool_], part: slice, *, asks_radius: bool
) -> PricedBatch:
    """A slice of the rows, with the prices of their atoms, as kernels take them."""
    prices, limit = pricing.prices(part), pricing.limit
    largest = math.inf if asks_radius or limit is None else round_up(limit)
    return PricedBatch(
        space=atom_space(pricing.axes),
        groups=query.group[part].copy(),
        rows=query.rows[part].copy(),
        cost=prices.cost,
        is_open=prices.is_open,
        is_exact=prices.is_exact,
        value=prices.value,
        grid=np.array([prices.grid(row) for row in range(len(prices.rows))]),
        skip=skip[part].copy(),
        is_max=pricing.total == "max",
        limit=np.full(len(prices.rows), largest),
        is_limit_exact=math.isinf(largest) or Fraction(largest) == limit,
    )


def settle_costs(pricing: Pricing, results: Results, confirmed: NDArray[np.bool_]) -> None:
    """Turn totals of prices into costs: roots of those of L2, and witnesses in fractions.

    As for balls, the upper bound is the largest double that is not above the least cost of what the
    witness stands for, and it is attained iff the witness itself has that very cost.
    """
    is_met = results.lower == results.upper
    if pricing.is_square:
        # Sound: a root of doubles is right to half a unit, so the double before is not above it.
        root = np.sqrt(results.lower)
        results.lower[:] = np.where(np.isinf(root), root, np.nextafter(root, -np.inf))
        np.maximum(results.lower, 0.0, out=results.lower)
    for row in np.flatnonzero(confirmed).tolist():
        point = results.witness[row]
        least = pricing.least_cost(row, point)
        upper = pricing.rounded_down(least) + 0.0  # no negative zero
        is_exact = Fraction(upper) ** (2 if pricing.is_square else 1) == least
        results.upper[row] = upper
        results.attained[row] = is_exact and pricing.exact_cost(row, point) == least
        results.lower[row] = upper if is_met[row] else min(results.lower[row], upper)
        if is_exact and not results.attained[row] and pricing.total == "sum":
            # What only approaches its cost is no proof that nothing attains it.
            results.lower[row] = min(results.lower[row], double_below(upper))
