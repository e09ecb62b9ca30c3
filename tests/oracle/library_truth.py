"""The truth by enumeration, asked of the source library: exact radii, sets and witnesses.

One point of every combination of cells is put to the library's own predict, in one call. Distances
are fractions. A cell is ``[cut, next cut)``: from below it is reached at distance ``cut - x``, from
above where rows are doubles at that of the last double below ``next cut``, and among real numbers
at every distance beyond ``x - next cut``. Missing values, categories and infinite numbers never
move within a ball; a box moves infinite numbers.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.oracle.library_models import Deployed, smallest_double_cast_to

FloatArray = NDArray[np.float64]
Level = tuple[Fraction, bool]
"""A distance, and whether it must be exceeded (False: attained)."""

NEVER = 2**14
"""Rank of cells that no radius reaches."""

START: Level = (Fraction(0), False)


@lru_cache(maxsize=2**17)
def exact_distance(x: float, cut: float, rate: Fraction) -> Fraction:
    """``|cut - x| / rate`` without rounding."""
    (a, b), (c, d), (n, m) = (number.as_integer_ratio() for number in (x, cut, rate))
    return Fraction(abs(c * b - a * d) * m, b * d * n)


def exact_rates(scale: FloatArray, multiple: Any) -> list[Fraction]:
    """Products of scales and multiples of them, without rounding."""
    pairs = zip(*np.broadcast_arrays(scale, np.asarray(multiple, dtype=np.float64)), strict=True)
    return [Fraction(float(one)) * Fraction(float(other)) for one, other in pairs]


def round_down(exact: Fraction) -> float:
    """Largest double not above an exact number >= 0."""
    try:
        value = float(exact)
    except OverflowError:
        return float(np.finfo(np.float64).max)
    return value if Fraction(value) <= exact else float(np.nextafter(value, -np.inf))


def round_up(exact: Fraction) -> float:
    """Smallest double not below an exact number >= 0."""
    value = round_down(exact)
    with np.errstate(over="ignore"):
        return value if Fraction(value) == exact else float(np.nextafter(value, np.inf))


@dataclass(frozen=True)
class Ball:
    """Rates and bounds of a ball; at radius r a row x reaches ``[x - r * down, x + r * up]``.

    Rates are exact: products of two doubles need not be doubles.
    """

    down: list[Fraction]
    up: list[Fraction]
    low: FloatArray
    high: FloatArray


class Axis:
    """The states of one feature: cells of numbers, then missing, or categories alone."""

    def __init__(self, model: Deployed, feature: int, arithmetic: str) -> None:
        self.over_reals = arithmetic == "real"
        self.precision = model.precision if self.over_reals else np.float64
        cuts = model.cuts[feature]
        if arithmetic == "float64" and model.precision is np.float32:
            cuts = np.array([smallest_double_cast_to(cut) for cut in cuts])
        elif model.precision is np.float32:
            # What float32 calls infinity begins, among real numbers, where the next float32 would.
            cuts = np.where(np.isposinf(cuts), 2.0**128, cuts)
        self.cuts: FloatArray = np.unique(cuts)
        self.is_categorical = feature in model.categories
        if self.is_categorical:
            self.points = np.arange(len(model.categories[feature]), dtype=np.float64)
            if feature in model.missing:
                self.points = np.append(self.points, np.nan)
            return
        with np.errstate(over="ignore"):  # nothing finite is below a cut at the largest number
            first = (
                float(np.nextafter(self.precision(cuts[0]), self.precision(-np.inf)))
                if len(cuts)
                else 0.0
            )
        points = [first, *self.cuts.tolist()]
        if feature in model.missing:
            points.append(np.nan)
        self.points = np.array(points)

    def state(self, values: FloatArray) -> NDArray[np.int64]:
        """State of each value."""
        if self.is_categorical:
            return np.where(np.isnan(values), len(self.points) - 1, values).astype(np.int64)
        cells = np.searchsorted(self.cuts, values, side="right")
        return np.where(np.isnan(values), len(self.cuts) + 1, cells)

    def stays(self, values: FloatArray) -> NDArray[np.bool_]:
        """Whether each value stays within any ball and any box."""
        return np.full(len(values), True) if self.is_categorical else np.isnan(values)

    def distance_down(self, x: float, cut: float, rate: Fraction) -> Level | None:
        """Level at which a number gets below a cut; None where none can be."""
        if self.over_reals:
            return exact_distance(x, cut, rate), True
        last = float(np.nextafter(cut, -np.inf))
        return (exact_distance(x, last, rate), False) if np.isfinite(last) else None

    def cast(self, values: FloatArray) -> FloatArray:
        """Values in the precision of the question."""
        with np.errstate(over="ignore"):
            return values.astype(self.precision).astype(np.float64)


class Table:
    """What the library says at one point of every combination of states.

    Parameters
    ----------
    model : Deployed
        The model.
    arithmetic : {"real", "float64"}
        Real numbers compared with the model's thresholds, or doubles that the library rounds.
    """

    def __init__(self, model: Deployed, arithmetic: str) -> None:
        self.model, self.arithmetic = model, arithmetic
        self.axes = [Axis(model, feature, arithmetic) for feature in range(model.n_features)]
        self.shape = tuple(len(axis.points) for axis in self.axes)
        mesh = np.meshgrid(*(axis.points for axis in self.axes), indexing="ij")
        points = np.stack([column.ravel() for column in mesh], axis=1)
        self.scores = model.scores(points)
        self.labels = model.labels(points)

    @staticmethod
    def size(model: Deployed) -> int:
        """How many points the table of a model has, at most."""
        sizes = [
            len(model.categories.get(f, range(len(cuts) + 1))) + (f in model.missing)
            for f, cuts in enumerate(model.cuts)
        ]
        return int(np.prod(sizes, dtype=np.float64))

    def cast(self, rows: FloatArray) -> FloatArray:
        """Rows in the precision of the question."""
        return np.stack([a.cast(rows[:, f]) for f, a in enumerate(self.axes)], axis=1)

    def states(self, rows: FloatArray) -> NDArray[np.int64]:
        """State of every value."""
        return np.stack([a.state(rows[:, f]) for f, a in enumerate(self.axes)], axis=1)

    def flat(self, states: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of points in the table."""
        return np.ravel_multi_index(tuple(states.T), self.shape)

    def contradictions(self, rows: FloatArray) -> list[int]:
        """Rows on which the library's own answer is not that of their cells: none, ever."""
        place = self.flat(self.states(self.cast(rows)))
        same = (self.labels[place] == self.model.labels(rows)) & np.all(
            self.scores[place] == self.model.scores(rows), axis=1
        )
        return np.flatnonzero(~same).tolist()


class Reached:
    """For rows and a ball: at which level every state of every feature is reached."""

    def __init__(self, table: Table, rows: FloatArray, ball: Ball, still: Sequence[bool]) -> None:
        self.table, self.rows, self.ball = table, rows, ball
        self.home = table.states(rows)
        self.levels: list[list[dict[int, Level]]] = []
        self.order: list[list[Level]] = []
        for row in range(len(rows)):
            levels = [
                self._of_feature(row, feature, still=bool(still[row]))
                for feature in range(rows.shape[1])
            ]
            self.levels.append(levels)
            self.order.append(sorted({level for states in levels for level in states.values()}))
        self.ranks = [np.full((len(rows), size), NEVER, dtype=np.int16) for size in table.shape]
        for row, levels in enumerate(self.levels):
            number = {level: rank for rank, level in enumerate(self.order[row])}
            for feature, states in enumerate(levels):
                for state, level in states.items():
                    self.ranks[feature][row, state] = number[level]

    def _of_feature(self, row: int, feature: int, *, still: bool) -> dict[int, Level]:
        axis, ball = self.table.axes[feature], self.ball
        x, home = float(self.rows[row, feature]), int(self.home[row, feature])
        levels: dict[int, Level] = {home: START}
        if still or axis.is_categorical or not np.isfinite(x):
            return levels
        down, up = ball.down[feature], ball.up[feature]
        least, most = min(float(ball.low[feature]), x), max(float(ball.high[feature]), x)
        for state, cut in enumerate(axis.cuts.tolist()):
            if state < home:
                passed = axis.distance_down(x, cut, down) if down > 0 and least < cut else None
                if passed is not None:
                    levels[state] = passed
            elif up > 0 and cut <= most and cut < np.inf:
                levels[state + 1] = (exact_distance(x, cut, up), False)
        return levels

    def take(self, chosen: list[int]) -> "Reached":
        """The same for some of the rows."""
        part = copy.copy(self)
        part.rows, part.home = self.rows[chosen], self.home[chosen]
        part.levels = [self.levels[row] for row in chosen]
        part.order = [self.order[row] for row in chosen]
        part.ranks = [rank[chosen] for rank in self.ranks]
        return part

    def nearest(self, broken: NDArray[np.bool_]) -> list[Level | None]:
        """Level at which each row is broken; None where no radius breaks it.

        Parameters
        ----------
        broken : bool (n_rows, n_points)
            Whether each point of the table breaks the claim about each row.
        """
        ranks = smallest_of_largest(self.table, broken, self.ranks)
        return [
            None if rank >= NEVER else self.order[row][rank]
            for row, rank in enumerate(ranks.tolist())
        ]

    def nearest_alone(self, broken: NDArray[np.bool_], feature: int) -> list[Level | None]:
        """Level at which each row is broken when one feature moves and all others stay."""
        alone = [
            self.ranks[f] if f == feature else np.where(self._is_home(f), 0, NEVER)
            for f in range(len(self.ranks))
        ]
        ranks = smallest_of_largest(self.table, broken, alone)
        return [
            None if rank >= NEVER else self.order[row][rank]
            for row, rank in enumerate(ranks.tolist())
        ]

    def _is_home(self, feature: int) -> NDArray[np.bool_]:
        states = np.arange(self.table.shape[feature])
        return self.home[:, feature, np.newaxis] == states


def smallest_of_largest(
    table: Table, broken: NDArray[np.bool_], ranks: list[NDArray[Any]]
) -> NDArray[np.int16]:
    """For each row: over all points that break it, the smallest of the largest rank of a state."""
    best = np.where(broken, 0, NEVER).astype(np.int16).reshape(len(broken), *table.shape)
    for rank in reversed(ranks):
        kept = rank.astype(np.int16).reshape(len(broken), *([1] * (best.ndim - 2)), -1)
        best = np.maximum(best, kept).min(axis=-1)
    return best


def box_ranks(
    table: Table, rows: FloatArray, low: FloatArray, high: FloatArray
) -> list[NDArray[np.int16]]:
    """0 for states that a box meets, NEVER for all others; what is missing or a category stays."""
    home, ranks = table.states(rows), []
    for feature, axis in enumerate(table.axes):
        states = np.arange(table.shape[feature])
        own = home[:, feature, np.newaxis] == states
        first = np.searchsorted(axis.cuts, low[:, feature], side="right")
        last = np.searchsorted(axis.cuts, high[:, feature], side="right")
        met = (first[:, np.newaxis] <= states) & (states <= last[:, np.newaxis])
        stays = axis.stays(rows[:, feature])[:, np.newaxis]
        ranks.append(np.where(np.where(stays, own, met), 0, NEVER).astype(np.int16))
    return ranks


def is_within(level: Level | None, radius: float) -> bool:
    """Whether a closed ball reaches a level."""
    if level is None:
        return False
    return bool(np.isinf(radius)) or level <= (Fraction(radius), False)


def as_double(level: Level | None) -> tuple[float, bool]:
    """A level as results state it: the distance rounded down, and whether it is attained."""
    if level is None:
        return np.inf, False
    value = round_down(level[0])
    return value, not level[1] and Fraction(value) == level[0]
