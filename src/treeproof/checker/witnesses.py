"""Witnesses: how far away a point is, and its cells; that it lies in the set; all in integers.

A ball reaches the cells of a point at a *level*: at a distance, or, downwards, only beyond it. Next
to thresholds a set of real numbers may hold some of a cell, but no float of the model's input
precision; a witness may then lie outside of it, by one float. Where rows are doubles, it may not.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.checker.claims import Claim, require
from treeproof.checker.forest import Forest, compare_ratio
from treeproof.model.ensemble import FloatArray

Ratio = tuple[int, int]
"""Numerator and denominator, which is above 0; finding the lowest terms would take long."""


class Level(NamedTuple):
    """A distance, and whether it must be exceeded."""

    distance: Ratio = (0, 1)
    is_beyond: bool = False

    def reached_by(self, radius: float) -> bool:
        """Whether a closed ball reaches the cells of this level."""
        below = compare_ratio(self.distance, radius)
        return below < 0 if self.is_beyond else below <= 0


def rounded_down(ratio: Ratio) -> float:
    """Largest double not above a ratio."""
    try:
        value = ratio[0] / ratio[1]
    except OverflowError:
        value = math.inf if ratio[0] > 0 else -math.inf
    return value if compare_ratio(ratio, value) >= 0 else math.nextafter(value, -math.inf)


def same_numbers(one: FloatArray, other: FloatArray) -> NDArray[np.bool_]:
    """Whether values are equal, or both missing."""
    return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))


class Moves:
    """Which features the witnesses of claims move, how far, and at what level.

    Arrays have an entry for each moved feature, by row and feature. Which moves of a row may be the
    farthest is found in doubles; these are then compared in integers.
    """

    def __init__(self, forest: Forest, claims: list[Claim], points: FloatArray) -> None:
        self.forest, self.points = forest, points
        rows = np.array([claim.row for claim in claims])
        self.row, self.feature = at = np.nonzero(~same_numbers(rows, points))
        low, high, down, up = (
            np.array([getattr(claim, name) for claim in claims])[at]
            for name in ("low", "high", "down", "up")
        )
        x, w = rows[at], points[at]
        rate = np.where(w > x, up, down)
        here, there = forest.count(self.feature, x), forest.count(self.feature, w)
        rises = there > here
        place = forest.first_cut[self.feature] + np.where(rises, there - 1, there)
        # Where a cell does not change, the place may be behind the last threshold.
        over_reals = forest.ensemble.over_reals
        # Downwards the last number below a threshold is in reach, or just what lies beyond it.
        ends = forest.fenced if over_reals else forest.last_fenced
        cut = np.where(rises, forest.fenced[place + 1], ends[place + 1])
        precision = forest.ensemble.input_precision
        with np.errstate(over="ignore", invalid="ignore"):
            near = np.nextafter(w.astype(precision), x.astype(precision)).astype(np.float64)
            near = near if over_reals else w
            is_far = (rate == 0.0) | ~np.isfinite(w - x)
        allowed = np.where(rises, cut <= high, (cut > low) | ((cut == low) & (not over_reals)))
        allowed &= (rate > 0.0) & np.isfinite(x) & np.isfinite(cut)
        stays = np.isnan(x) | forest.fixed[self.feature]
        self.stays = self._first_features(stays)
        self.beyond_levels = self._first_features((here != there) & ~allowed & ~stays)
        inside = (rate > 0.0) & np.isfinite(x) & ~stays
        inside &= (np.minimum(low, x) <= near) & (near <= np.maximum(high, x))
        self.beyond_bounds = self._first_features(~inside)
        self.far = self._first_features(is_far)
        self.x, self.rate = x.tolist(), rate.tolist()
        self.cut, self.w, self.near = (
            self._farthest(ends, x, rate, counts)
            for ends, counts in ((cut, here != there), (w, ~is_far), (near, inside))
        )

    def _first_features(self, which: NDArray[np.bool_]) -> dict[int, int]:
        """The first feature, of those that are marked, of each row that has one."""
        rows, features = self.row[which].tolist(), self.feature[which].tolist()
        return dict(zip(rows[::-1], features[::-1], strict=True))

    def _farthest(
        self, ends: FloatArray, x: FloatArray, rate: FloatArray, counts: NDArray[np.bool_]
    ) -> dict[int, tuple[Ratio, bool, int]]:
        """The farthest distance of each row: as a ratio, whether downwards, and its feature.

        Sound: differences and quotients of doubles are wrong by at most 2**-53 of their size, or by
        less than the smallest normal double; so one that is clearly smaller is not the farthest.
        """
        # In a box, where rates are infinite, moves are free.
        counts = counts & (rate > 0.0) & np.isfinite(rate) & np.isfinite(x) & np.isfinite(ends)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            moved = np.where(counts, np.abs(ends - x) / rate, 0.0)
            largest = np.zeros(len(self.points))
            np.maximum.at(largest, self.row, moved)
            small = moved < largest[self.row] * (1.0 - 2.0**-50) - 2.0**-1000
        found: dict[int, tuple[Ratio, bool, int]] = {}
        for at in np.flatnonzero(counts & ~small).tolist():
            end, row = float(ends[at]), int(self.row[at])
            (a, b), (c, d) = end.as_integer_ratio(), self.x[at].as_integer_ratio()
            e, f = self.rate[at].as_integer_ratio()
            ratio, down = (abs(a * d - c * b) * f, b * d * e), end <= self.x[at]
            down &= self.forest.ensemble.over_reals
            known = found.get(row, ((-1, 1), False, -1))
            farther = ratio[0] * known[0][1] - known[0][0] * ratio[1]
            if farther > 0 or (farther == 0 and down):
                found[row] = (ratio, down, int(self.feature[at]))
        return found

    def level(self, row: int) -> Level:
        """The level at which balls reach the cells of a witness."""
        _refuse(self.beyond_levels, row, "is beyond the set")
        return Level(*self.cut[row][:2]) if row in self.cut else Level()

    def distance(self, row: int) -> float:
        """Smallest double whose closed ball holds a witness; infinite where no double's does."""
        if row in self.far:
            return math.inf
        n, d = self.w[row][0] if row in self.w else (0, 1)
        return 0.0 - rounded_down((-n, d))

    def check_in_ball(self, row: int, distance: float, radius: float) -> None:
        """Reject a witness that is not in a ball; each value may be the first float beyond."""
        _refuse(self.stays, row, "must not move")
        _refuse(self.beyond_bounds, row, "is beyond the set")
        if distance > radius and row in self.near:
            ratio, _, feature = self.near[row]
            require(
                compare_ratio(ratio, radius) <= 0, f"witness: feature {feature} is beyond the set"
            )

    def check_in_box(self, row: int, claim: Claim) -> None:
        """Reject a witness that is not in a box.

        A value may be the first float beyond where none of its cell lies in the box.
        """
        _refuse(self.stays, row, "must not move")
        point, low, high = self.points[row], np.array(claim.low), np.array(claim.high)
        outside = ~np.isnan(claim.row) & ~self.forest.fixed & ~((low <= point) & (point <= high))
        real = np.dtype(self.forest.ensemble.input_precision).type
        for feature in np.flatnonzero(outside).tolist():
            least, w, most = ends = np.array([low[feature], point[feature], high[feature]])
            with np.errstate(over="ignore"):
                near = float(np.nextafter(real(w), real(math.inf if w < least else -math.inf)))
            near = near if self.forest.ensemble.over_reals else float(w)
            values = np.append(ends, near)
            first, cell, last, by = self.forest.count(np.array([feature]), values).tolist()
            inside = near >= least if w < least else near <= most
            inside &= first <= cell <= last
            inside &= not (least <= near <= most and by == cell)
            require(inside, f"witness: feature {feature} is beyond the set")


def _refuse(features: dict[int, int], row: int, why: str) -> None:
    require(row not in features, f"witness: feature {features.get(row)} {why}")
