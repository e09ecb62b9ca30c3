"""Reasons by enumeration: which features the points that break a claim change, and no search."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tests.oracle import brute_force
from tests.oracle.domains import Words, n_points, options_of_row
from treeproof.query.perturbations import Box
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

    def interval(self, query: Query, feature: int, ends: NDArray[np.float64]) -> tuple[int, int]:
        """First and last cell that an interval covers; infinite ends are those of the domain."""
        cuts, cells = brute_force.thresholds(query.ensemble, feature), self.cells[feature]
        low = cells[0] if np.isinf(ends[0]) else int(np.searchsorted(cuts, ends[0], "right"))
        high = cells[-1] if np.isinf(ends[1]) else int(np.searchsorted(cuts, ends[1], "left"))
        return low, high

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


MOST_POINTS = 20_000
MISSING = -1
"""In place of the cell of a missing value."""


class DomainTruth(RowTruth):
    """The same of a row of a domain: one point for each combination of what features may become.

    Cells of categories and of columns of groups are 0 for the row's own value and 1 for any other;
    `numbers` has the cells of numbers without that of a missing value. Not `is_small`: nothing is
    known.
    """

    def __init__(
        self, query: Query, row: int, box: Box, groups: Iterable[Sequence[int]] = ()
    ) -> None:
        options = options_of_row(Words(box, query.ensemble), query.rows, row)
        self.is_small = n_points(options) <= MOST_POINTS
        if not self.is_small:
            return
        n, values = query.rows.shape[1], query.rows[row]
        points = np.tile(values, (n_points(options), 1))
        for number, chosen in enumerate(itertools.product(*options)):
            for option in chosen:
                points[number, list(option.columns)] = option.values
        points = np.unique(np.vstack([values, points]), axis=0)
        together = [tuple(own[0].columns) for own in options]
        is_choice = query.ensemble.is_categorical.copy()
        is_choice[[f for own in together if len(own) > 1 for f in own]] = True
        is_choice[list(box.domain.categorical) if box.domain is not None else []] = True
        for group in (box.domain.one_hot, box.domain.at_most_one) if box.domain is not None else ():
            is_choice[[f for own in group for f in own]] = True
        codes = self._codes(query, values, points, is_choice)
        self.home = self._codes(query, values, values[np.newaxis], is_choice)[0].tolist()
        self.cells = [sorted(set(codes[:, f].tolist())) for f in range(n)]
        self.numbers = [
            []
            if is_choice[f] or np.isnan(values[f])
            else [c for c in self.cells[f] if c != MISSING]
            for f in range(n)
        ]
        self.broken = codes[brute_force.judge(query, row, points)]
        changed = self.broken != np.array(self.home)
        self.first = firsts([*together, *map(tuple, groups)])
        self.conflicts = {self.units(np.flatnonzero(entry).tolist()) for entry in changed}
        moving = (feature for feature in range(n) if len(self.cells[feature]) > 1)
        self.movable = sorted(self.units(moving))

    def _codes(
        self,
        query: Query,
        values: NDArray[np.float64],
        points: NDArray[np.float64],
        is_choice: NDArray[np.bool_],
    ) -> NDArray[np.int64]:
        codes = np.zeros(points.shape, dtype=np.int64)
        for feature in range(points.shape[1]):
            column = points[:, feature]
            if is_choice[feature]:
                own = values[feature]
                codes[:, feature] = ~((column == own) | (np.isnan(column) & np.isnan(own)))
            else:
                cuts = brute_force.thresholds(query.ensemble, feature)
                cells = np.searchsorted(cuts, column, side="right")
                codes[:, feature] = np.where(np.isnan(column), MISSING, cells)
        return codes

    def interval(self, query: Query, feature: int, ends: NDArray[np.float64]) -> tuple[int, int]:
        """Cells of an interval; of what keeps its value, that of the row."""
        if np.isnan(ends).any():
            assert not self.numbers[feature] or len(self.cells[feature]) == 1
            return self.home[feature], self.home[feature]
        cuts, cells = brute_force.thresholds(query.ensemble, feature), self.numbers[feature]
        low = cells[0] if np.isinf(ends[0]) else int(np.searchsorted(cuts, ends[0], "right"))
        high = cells[-1] if np.isinf(ends[1]) else int(np.searchsorted(cuts, ends[1], "left"))
        return low, high


def firsts(groups: list[tuple[int, ...]]) -> dict[int, int]:
    """For each feature of groups, the first of all that it is together with."""
    joined: list[set[int]] = []
    for group in groups:
        met = [one for one in joined if one & set(group)]
        joined = [one for one in joined if one not in met] + [set(group).union(*met)]
    return {feature: min(one) for one in joined for feature in one}


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
