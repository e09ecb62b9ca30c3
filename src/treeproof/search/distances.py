"""The finitely many distances at which the reachable cells of a row change.

Upwards a threshold T is reached at distance (T - x) / rate; downwards it is passed at every
distance beyond (x - T) / rate. The minimal perturbation is one of these numbers, so searching the
sorted list is exact; no interval is halved.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.instance import rank_space
from treeproof.query import Query
from treeproof.spec.rounding import difference_error, round_down

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Distances:
    """Sorted distinct distances of one row.

    Attributes
    ----------
    value : float64 (n,)
        Largest double not above the exact distance.
    attained : bool (n,)
        Whether the closed ball of radius `value` reaches the new cell; otherwise only every larger
        double does. At one value, attained comes first.
    """

    value: FloatArray
    attained: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.value)

    def radius(self, number: int) -> float:
        """Smallest double radius whose closed ball reaches the cells of a distance."""
        value = float(self.value[number])
        return value if self.attained[number] else float(np.nextafter(value, np.inf))

    def last_within(self, radius: float) -> int:
        """Number of the last distance whose cells a closed ball reaches."""
        beyond = np.where(self.attained, self.value, np.nextafter(self.value, np.inf))
        return int(np.searchsorted(beyond, radius, side="right")) - 1


def distances_of(query: Query, row: int) -> Distances:
    """Collect the distances of all thresholds that some radius reaches."""
    space, reach = rank_space(query.ensemble), query.reach
    values: list[FloatArray] = []
    kinds: list[NDArray[np.bool_]] = []
    free = ~np.isnan(query.rows[row]) & np.isfinite(query.rows[row]) & ~space.categorical
    for feature in np.flatnonzero(free):
        cuts = space.cut[space.cut_start[feature] : space.cut_start[feature + 1]]
        x = float(query.rows[row, feature])
        above = cuts[(cuts > x) & (cuts <= reach.high[row, feature])]
        below = cuts[(cuts <= x) & (cuts > reach.low[row, feature])]
        for side, rate, upwards in ((above, reach.up, True), (below, reach.down, False)):
            if rate[feature] > 0.0 and side.size:
                distance, exact = rounded_distances(x, side, float(rate[feature]))
                values.append(distance)
                kinds.append(exact & upwards)
    if not values:
        return Distances(np.zeros(0), np.zeros(0, dtype=bool))
    value, attained = np.concatenate(values), np.concatenate(kinds)
    order = np.lexsort((~attained, value))
    value, attained = value[order], attained[order]
    new = np.ones(len(value), dtype=bool)
    new[1:] = (value[1:] != value[:-1]) | (attained[1:] != attained[:-1])
    return Distances(value[new], attained[new])


def rounded_distances(
    x: float, cuts: FloatArray, rate: float
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Distances to thresholds, rounded down, and whether each is a double exactly."""
    if rate == 1.0:
        larger, smaller = np.maximum(cuts, x), np.minimum(cuts, x)
        moved = larger - smaller
        error = difference_error(larger, smaller, moved)
        return np.where(error < 0.0, np.nextafter(moved, -np.inf), moved), error == 0.0
    exact_distances = [abs(Fraction(float(cut)) - Fraction(x)) / Fraction(rate) for cut in cuts]
    rounded = np.array([round_down(distance) for distance in exact_distances])
    exact = [Fraction(r) == d for r, d in zip(rounded.tolist(), exact_distances, strict=True)]
    return rounded, np.array(exact)
