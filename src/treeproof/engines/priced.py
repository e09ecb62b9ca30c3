"""Questions with prices as compiled searches take them, and what their answers cost, exactly."""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.spaces import atoms_of
from treeproof.kernels.exact.priced_rows import PricedBatch
from treeproof.query.prices import Pricing
from treeproof.query.query import Query
from treeproof.query.rounding import double_below, round_up
from treeproof.results.results import Results


def priced_batch(
    query: Query, pricing: Pricing, skip: NDArray[np.bool_], part: slice, *, asks_radius: bool
) -> PricedBatch:
    """A slice of the rows, with the prices of their atoms, as kernels take them."""
    prices = pricing.prices(part)
    largest = math.inf if asks_radius else _limit_up(pricing)
    sums = [other for other in pricing.others if other.total == "sum" and other.limit is not None]
    return PricedBatch(
        atoms=atoms_of(pricing.axes),
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
        is_limit_exact=math.isinf(largest) or Fraction(largest) == pricing.limit,
        other=np.stack([other.prices(part).cost for other in sums], axis=1)
        if sums
        else np.zeros((len(prices.rows), 0, prices.cost.shape[1])),
        other_limit=np.array([_limit_up(other) for other in sums]),
    )


def _limit_up(pricing: Pricing) -> float:
    """The smallest double that is not below a limit; infinite without one."""
    return math.inf if pricing.limit is None else round_up(pricing.limit)


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
        results.attained[row] = is_exact and pricing.attains(row, point)
        results.lower[row] = upper if is_met[row] else min(results.lower[row], upper)
        if is_exact and not results.attained[row] and pricing.total == "sum":
            # What only approaches its cost is no proof that nothing attains it.
            results.lower[row] = min(results.lower[row], double_below(upper))
