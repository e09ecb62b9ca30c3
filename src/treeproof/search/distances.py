"""The finitely many distances at which the reachable cells of a row change.

Upwards a threshold T is reached at distance (T - x) / rate. Downwards it is passed at that of the
last number before it, or among real numbers at every distance beyond (x - T) / rate. The minimal
perturbation is one of these numbers, so searching the sorted list is exact; no interval is halved.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.instance import rounded_distances
from treeproof.engines.spaces import rank_space
from treeproof.kernels.core.balls import row_distances
from treeproof.query.query import Query

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Distances:
    """Sorted distinct distances of one row, rounded down to doubles.

    Where one is attained, the closed ball of that radius reaches the new cell; otherwise only every
    larger double does. At one value, attained comes first.
    """

    value: FloatArray
    attained: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.value)

    def radius(self, number: int) -> float:
        """Smallest double radius whose closed ball reaches the cells of a distance."""
        value = float(self.value[number])
        return value if self.attained[number] else math.nextafter(value, math.inf)

    def last_within(self, radius: float) -> int:
        """Number of the last distance whose cells a closed ball reaches."""
        with np.errstate(over="ignore"):
            beyond = np.where(self.attained, self.value, np.nextafter(self.value, np.inf))
        return int(np.searchsorted(beyond, radius, side="right")) - 1


def distances_of(query: Query, row: int) -> Distances:
    """Collect the distances of all cells that some radius reaches."""
    space, reach = rank_space(query.ensemble), query.reach
    value, is_beyond = np.empty(len(space.cut)), np.empty(len(space.cut), dtype=bool)
    count = row_distances(
        space,
        query.rows[row].copy(),
        (reach.down.copy(), reach.up.copy()),
        (reach.low[row].copy(), reach.high[row].copy()),
        value,
        is_beyond,
    )
    distinct = np.unique(np.array([value[:count], is_beyond[:count]]), axis=1)
    return Distances(distinct[0], distinct[1] == 0.0)


def ball_of(query: Query, distances: Distances, number: int) -> dict[str, Any]:
    """Radius and bounds of a closed ball around one row: the cells of a distance, and none beyond.

    A distance that is only approached has the next double for a radius. What lies at exactly that
    radius is farther: bounds keep it out.
    """
    reach, radius = query.reach, distances.radius(number)
    if distances.last_within(radius) == number:
        return {"radius": radius, "low": reach.low, "high": reach.high}
    row, low, high = query.rows[0], reach.low.copy(), reach.high.copy()
    space = rank_space(query.ensemble)
    for feature in np.flatnonzero(np.isfinite(row) & ~query.ensemble.is_categorical).tolist():
        cuts = slice(*space.cut_start[feature : feature + 2].tolist())
        cut, below = space.cut[cuts], space.below[cuts]
        found, is_exact = rounded_distances(row[feature], cut, float(reach.up[feature]))
        for end in cut[(cut > row[feature]) & (found == radius) & is_exact]:
            high[0, feature] = min(high[0, feature], np.nextafter(end, -np.inf))
        if space.is_real:
            continue  # there the end of a cell is only approached
        found, is_exact = rounded_distances(row[feature], below, float(reach.down[feature]))
        for end in cut[(below < row[feature]) & (found == radius) & is_exact]:
            low[0, feature] = max(low[0, feature], end)
    return {"radius": radius, "low": low, "high": high}
