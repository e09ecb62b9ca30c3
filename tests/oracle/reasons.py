"""Reasons by enumeration: which features the points that break a claim change, and no search."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tests.oracle import brute_force
from treeproof.query.query import Query

Features = frozenset[int]


class RowTruth:
    """All points of a row's box, one for each combination of cells, that break its claim.

    cells : per feature, the cells that its box reaches; one alone where it does not move
    home : cell of the row's own value, per feature
    broken : cells (n_points, n_features) of the points that break the claim
    conflicts : sets of features that those points change; the first of a group stands for it
    """

    def __init__(self, query: Query, row: int, groups: Iterable[Sequence[int]] = ()) -> None:
        n = query.rows.shape[1]
        values = query.rows[row]
        cuts = [brute_force.thresholds(query.ensemble, feature) for feature in range(n)]
        self.home, self.cells, choices = [], [], []
        for feature in range(n):
            home = int(np.searchsorted(cuts[feature], values[feature], side="right"))
            cells = [home]
            if not brute_force.is_fixed(query, row, feature):
                ends = query.reach.low[row, feature], query.reach.high[row, feature]
                first, last = (int(np.searchsorted(cuts[feature], e, side="right")) for e in ends)
                cells = list(range(first, last + 1))
            self.home.append(home)
            self.cells.append(cells)
            choices.append(
                [
                    values[feature]
                    if cell == home
                    else brute_force.point_of_cell(query.ensemble, cuts[feature], cell)
                    for cell in cells
                ]
            )
        points = np.array(list(itertools.product(*choices)))
        combinations = np.array(list(itertools.product(*self.cells)))
        self.broken = combinations[brute_force.judge(query, row, points)]
        changed = self.broken != np.array(self.home)
        self.first = {feature: group[0] for group in groups for feature in group}
        self.conflicts = {self.units(np.flatnonzero(entry).tolist()) for entry in changed}
        moving = (feature for feature in range(n) if len(self.cells[feature]) > 1)
        self.movable = sorted(self.units(moving))

    def units(self, features: Iterable[int]) -> Features:
        """Features, of which those of a group are one: the first of it."""
        return frozenset(self.first.get(feature, feature) for feature in features)

    def suffices(self, kept: Features) -> bool:
        """Whether no point breaks the claim while some features keep their values."""
        return all(conflict & kept for conflict in self.conflicts)

    def sufficient_sets(self) -> set[Features]:
        """All sets of features that suffice and of which none can be left out."""
        return _minimal(filter(self.suffices, _subsets(self.movable)))

    def changes(self) -> set[Features]:
        """All sets of features whose change can break the claim, none of them needless."""
        return _minimal(sorted(self.conflicts, key=len))

    def is_free(self, low: list[int], high: list[int]) -> bool:
        """Whether a box of cells holds no point that breaks the claim."""
        inside = (self.broken >= np.array(low)) & (self.broken <= np.array(high))
        return not bool(inside.all(axis=1).any())


def _subsets(features: list[int]) -> list[Features]:
    """All subsets, smallest first."""
    sizes = range(len(features) + 1)
    return [frozenset(chosen) for k in sizes for chosen in itertools.combinations(features, k)]


def _minimal(sets: Iterable[Features]) -> set[Features]:
    """Sets, given smallest first, that hold no other one."""
    found: set[Features] = set()
    for one in sets:
        if not any(other <= one for other in found):
            found.add(one)
    return found


def interval_cells(
    query: Query, feature: int, interval: NDArray[np.float64], cells: list[int]
) -> tuple[int, int]:
    """First and last cell that an interval covers; infinite ends are those of the domain."""
    cuts = brute_force.thresholds(query.ensemble, feature)
    low = cells[0] if np.isinf(interval[0]) else int(np.searchsorted(cuts, interval[0], "right"))
    high = cells[-1] if np.isinf(interval[1]) else int(np.searchsorted(cuts, interval[1], "left"))
    return low, high
