"""Ranges of values as boxes of cells, and cells as values again, for questions about pairs.

Unlike in rank space, a cell may also be a class of categories, or what is missing: what a node does
with a cell is read off the plain meaning of the model, at one value of the cell.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.spaces import space_of
from treeproof.errors import InvalidInput
from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    ZERO_BAND,
    ZERO_IS_MISSING,
    Ensemble,
    FloatArray,
    IntArray,
)
from treeproof.model.evaluate import goes_left
from treeproof.query.axes import runs_of
from treeproof.query.pairs import Ranges


@dataclass(frozen=True, slots=True)
class Column:
    """The cells of one feature.

    Attributes
    ----------
    cuts, ends : float64 (n,)
        Numbers at which cells begin, beside the first, and the largest ones of the cells before
        them; empty for categories.
    codes : tuple of float64 arrays
        For categories: the codes of each cell.
    values : float64 (n_cells,)
        One value of each cell; NaN for the cell of missing values, which is the last.
    """

    cuts: FloatArray
    ends: FloatArray
    codes: tuple[FloatArray, ...]
    values: FloatArray

    @property
    def missing_cell(self) -> int:
        """Cell of missing values; -1 without one."""
        return len(self.values) - 1 if len(self.values) and math.isnan(self.values[-1]) else -1


class PairCells:
    """The cells of every feature for a model over doubles and some ranges.

    Attributes
    ----------
    columns : list of Column
    space : Space
        The trees over these cells.
    low, high, nearest : int32 (n_boxes, n_features)
        Boxes in cells, and the cells of rows, or of readable values of a domain.
    """

    def __init__(self, ensemble: Ensemble, ranges: Ranges, changed: tuple[int, ...]) -> None:
        self.ensemble, self.ranges = ensemble, ranges
        is_categorical = ensemble.is_categorical
        trees = ensemble.trees
        inner = np.flatnonzero(trees.feature >= 0)
        inner = inner[np.argsort(trees.feature[inner], kind="stable")]
        bounds = np.searchsorted(trees.feature[inner], np.arange(ensemble.n_features + 1))
        left = [np.zeros((0, 3), dtype=np.int64)]
        self.columns: list[Column] = []
        shape = ranges.low.shape
        self.low, self.high, self.nearest = (np.zeros(shape, dtype=np.int32) for _ in range(3))
        for feature in range(ensemble.n_features):
            nodes = inner[bounds[feature] : bounds[feature + 1]]
            is_free = ranges.rows is None or feature in changed or feature in ranges.values
            if is_categorical[feature]:
                column = self._categories(feature, nodes, is_free=is_free)
            else:
                column = self._numbers(feature, nodes)
            self.columns.append(column)
            self._place(feature, is_categorical[feature], is_free=is_free)
            is_plain = (trees.flags[nodes] | MISSING_LEFT) == MISSING_LEFT
            is_plain &= not column.codes  # whose cells are in no order
            left.append(_left_of_numbers(ensemble, nodes[is_plain], column.values))
            left.append(_left_cells(ensemble, nodes[~is_plain], column.values))
        runs = np.concatenate(left)
        self.space = space_of(ensemble, trees.feature, runs[:, 0], runs[:, 1:])

    def _numbers(self, feature: int, nodes: NDArray[np.intp]) -> Column:
        """Cut at the thresholds that the ranges reach."""
        trees, ranges = self.ensemble.trees, self.ranges
        cuts = trees.threshold[nodes]
        if (trees.flags[nodes] & ZERO_IS_MISSING).any():
            # The zero band gets cells of its own: [-band, band] is what counts as zero.
            cuts = np.concatenate([cuts, [-ZERO_BAND, np.nextafter(ZERO_BAND, np.inf)]])
        sides = [ranges.low[:, feature], ranges.high[:, feature]]
        if ranges.second is not None:
            pairs = zip(sides, ranges.second, strict=True)
            sides = [np.append(side, other[:, feature]) for side, other in pairs]
        low, high = (side[~np.isnan(side)] for side in sides)
        least, most = low.min(initial=np.inf), high.max(initial=-np.inf)
        cuts = self._first_from(feature, cuts)
        cuts = np.unique(cuts[(cuts > least) & (cuts <= most)])
        ends = self._last_below(feature, cuts)
        first = ends[0] if len(cuts) else least
        if not len(cuts) and not math.isfinite(first):
            # Any number of the ranges stands for all; infinite ends may leave infinity alone.
            first = min(max(0.0, least), most) if least <= most else 0.0
        values = np.concatenate([[first], cuts])
        rows = ranges.rows
        if ranges.missing[feature] or (rows is not None and np.isnan(rows[:, feature]).any()):
            values = np.append(values, np.nan)
        return Column(cuts, ends, (), values)

    def _first_from(self, feature: int, cuts: FloatArray) -> FloatArray:
        """The smallest values that a feature takes from some numbers on; infinite without one.

        Sound: a value that it takes is below a cut if and only if it is below that value.
        """
        allowed = self.ranges.values.get(feature)
        if allowed is not None:
            return np.append(allowed, np.inf)[np.searchsorted(allowed, cuts, side="left")]
        return np.ceil(cuts) if self.ranges.integer[feature] else cuts

    def _last_below(self, feature: int, values: FloatArray) -> FloatArray:
        """The largest values that a feature takes below values that it takes but the smallest."""
        allowed = self.ranges.values.get(feature)
        if allowed is not None:
            return allowed[np.searchsorted(allowed, values, side="left") - 1]
        before = np.nextafter(values, -np.inf)
        return np.floor(before) if self.ranges.integer[feature] else before

    def _categories(self, feature: int, nodes: NDArray[np.intp], *, is_free: bool) -> Column:
        """Put codes that every node treats alike into one cell."""
        ensemble, ranges, rows = self.ensemble, self.ranges, self.ranges.rows
        codes = np.zeros(0)
        if rows is not None:
            codes = np.unique(rows[:, feature][~np.isnan(rows[:, feature])])
        if feature in ranges.values:
            allowed = ranges.values[feature]
            least, most = ranges.low[:, feature].min(), ranges.high[:, feature].max()
            codes = np.union1d(codes, allowed[(allowed >= least) & (allowed <= most)])
        elif is_free:
            known = _last_code(ensemble, feature, nodes)
            least = max(np.ceil(ranges.low[:, feature].min()), 0.0)
            most = np.floor(ranges.high[:, feature].max())
            # Sound: codes beyond those that the model knows are in no set, so one stands for all;
            # a side that is infinite means the codes that there are, of a column that nothing looks
            # at any one.
            most = max(known, least) if np.isinf(most) else min(most, max(least, known + 1.0))
            others = codes[~np.isin(codes, np.arange(least, most + 1.0))]
            if len(others):
                raise InvalidInput(
                    f"Rows must hold codes of the domain where categories change. Got {others[0]}"
                    f" in feature {feature}, which takes {least:.0f} to {most:.0f}."
                )
            codes = np.arange(least, most + 1.0)
            if not len(codes):
                raise InvalidInput(
                    f"The domain must hold a code of feature {feature}, which holds categories."
                    f" Got {ranges.low[0, feature]} to {ranges.high[0, feature]}."
                )
        sides = _sides(ensemble, nodes, codes)
        kinds: dict[bytes, list[float]] = {}
        for number, code in enumerate(codes.tolist()):
            kinds.setdefault(sides[:, number].tobytes(), []).append(code)
        groups = tuple(np.array(group) for group in kinds.values())
        values = np.array([group[0] for group in groups])
        if ranges.missing[feature] or (rows is not None and np.isnan(rows[:, feature]).any()):
            values = np.append(values, np.nan)
        return Column(np.zeros(0), np.zeros(0), groups, values)

    def _place(self, feature: int, is_categorical: bool, *, is_free: bool) -> None:
        """Fill in the boxes of one feature."""
        column, ranges, rows = self.columns[feature], self.ranges, self.ranges.rows
        last = len(column.values) - 1
        low, high = ranges.low[:, feature], ranges.high[:, feature]
        if is_categorical:
            self.low[:, feature], self.high[:, feature] = 0, last
            home = np.zeros(len(low), dtype=np.int32)
            if rows is not None:
                home = self.cell_of(feature, rows[:, feature])
                if not is_free:
                    self.low[:, feature] = self.high[:, feature] = home
        else:
            self.low[:, feature] = np.searchsorted(column.cuts, low, side="right")
            self.high[:, feature] = np.searchsorted(column.cuts, high, side="right")
            if ranges.missing[feature]:
                self.high[:, feature] = last
            value = np.clip(0.0, low, high) if rows is None else rows[:, feature]
            home = self.cell_of(feature, value)
        if rows is not None:
            is_missing = np.isnan(rows[:, feature])
            self.low[is_missing, feature] = self.high[is_missing, feature] = column.missing_cell
        self.nearest[:, feature] = np.clip(home, self.low[:, feature], self.high[:, feature])

    def cell_of(self, feature: int, values: FloatArray) -> IntArray:
        """Cells of values of a feature."""
        column = self.columns[feature]
        if column.codes:
            cells = np.zeros(len(values), dtype=np.int32)
            for number, codes in enumerate(column.codes):
                cells[np.isin(values, codes)] = number
        else:
            cells = np.searchsorted(column.cuts, values, side="right").astype(np.int32)
        return np.where(np.isnan(values), column.missing_cell, cells).astype(np.int32)

    def second_cells(self, changed: list[int]) -> tuple[IntArray, IntArray]:
        """First and last cells of features of second rows."""
        low, high = self.low[:, changed], self.high[:, changed]
        if self.ranges.second is not None:
            for place, feature in enumerate(changed):
                column = self.columns[feature]
                # What is missing or a category has no ends of its own.
                for side, ends in zip((low, high), self.ranges.second, strict=True):
                    is_number = (side[:, place] != column.missing_cell) & (not column.codes)
                    cells = np.searchsorted(column.cuts, ends[:, feature], side="right")
                    side[is_number, place] = cells[is_number]
        return low, high

    def ends(
        self, box: int, feature: int, cell: int, *, is_second: bool = False
    ) -> tuple[float, float]:
        """Smallest and largest double of a numeric cell within a box, of either row."""
        column, sides = self.columns[feature], (self.ranges.low, self.ranges.high)
        if is_second and self.ranges.second is not None:
            sides = self.ranges.second
        low, high = (float(side[box, feature]) for side in sides)
        if cell > 0:
            low = max(low, float(column.cuts[cell - 1]))
        if cell < len(column.cuts):
            high = min(high, float(column.ends[cell]))
        return low, high

    def value_in(self, box: int, feature: int, cell: int, *, is_second: bool = False) -> float:
        """A value of a cell within a box: the row's own, or one with few digits."""
        column, rows = self.columns[feature], self.ranges.rows
        if cell == column.missing_cell:
            return math.nan
        own = math.nan if rows is None else float(rows[box, feature])
        if column.codes:
            codes = column.codes[cell]
            return own if own in codes else float(codes[0])
        low, high = self.ends(box, feature, cell, is_second=is_second)
        if low <= own <= high:
            return own
        # Both ends are values that the feature takes; between whole numbers a short one is whole.
        return low if feature in self.ranges.values else short_number(low, high)


def short_number(low: float, high: float) -> float:
    """A double between two, with few digits: whole where that is possible."""
    if low <= 0.0 <= high:
        return 0.0
    if low == high:
        return low
    if not (math.isfinite(low) and math.isfinite(high)):
        end = low if math.isfinite(low) else high
        whole = math.ceil(end) if end == low else math.floor(end)
        return float(whole) if low <= whole <= high else end
    middle = low / 2.0 + high / 2.0
    first = -math.floor(math.log10(max(abs(low), abs(high), 1e-300)))
    for digits in range(min(0, first), first + 18):
        candidate = round(middle, digits)
        if low <= candidate <= high:
            return float(candidate)
    return low


def _last_code(ensemble: Ensemble, feature: int, nodes: NDArray[np.intp]) -> float:
    """Largest code of a category that the model knows."""
    trees = ensemble.trees
    last = len(ensemble.categories.get(feature, ())) - 1
    for node in nodes[(trees.flags[nodes] & CATEGORICAL) > 0]:
        number = trees.category_set[node]
        words = trees.set_words[trees.set_offset[number] : trees.set_offset[number + 1]]
        used = np.flatnonzero(words)
        if len(used):
            word = int(words[used[-1]])
            last = max(last, 32 * int(used[-1]) + word.bit_length() - 1)
    return float(last)


def _sides(ensemble: Ensemble, nodes: NDArray[np.intp], values: FloatArray) -> NDArray[np.bool_]:
    """Whether each node sends each value left: bool (n_nodes, n_values)."""
    repeated = np.repeat(nodes, len(values))
    return goes_left(ensemble, repeated, np.tile(values, len(nodes))).reshape(
        len(nodes), len(values)
    )


def _left_of_numbers(
    ensemble: Ensemble, nodes: NDArray[np.intp], values: FloatArray
) -> NDArray[np.int64]:
    """As `_left_cells`, for nodes that compare numbers: cells below their threshold.

    Sound: one value of each cell decides for all of it, and values rise.
    """
    trees = ensemble.trees
    n = len(values) - int(len(values) > 0 and math.isnan(values[-1]))
    count = np.searchsorted(values[:n], trees.threshold[nodes], side="left")
    missing_left = (trees.flags[nodes] & MISSING_LEFT) > 0
    # What is missing continues the cells below where all of them are.
    goes_on = missing_left & (n < len(values)) & (count == n)
    below = np.stack([nodes, np.zeros_like(count), count - 1 + goes_on], axis=1)
    gone = nodes[missing_left & (n < len(values)) & ~goes_on]
    missing = np.stack([gone, np.full_like(gone, n), np.full_like(gone, n)], axis=1)
    return np.concatenate([below[below[:, 2] >= 0], missing])


def _left_cells(
    ensemble: Ensemble, nodes: NDArray[np.intp], values: FloatArray
) -> NDArray[np.int64]:
    """Runs of cells that nodes send left, as (node, first, last)."""
    found = [np.zeros((0, 3), dtype=np.int64)]
    step = max(1, (1 << 21) // max(len(values), 1))
    for first in range(0, len(nodes), step):
        some = nodes[first : first + step]
        found.append(runs_of(some, _sides(ensemble, some, values)))
    return np.concatenate(found)
