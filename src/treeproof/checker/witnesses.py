"""Witnesses: how far away a point is, and its cells; that it lies in the set; all in fractions.

A ball reaches the cells of a point at a *level*: at a distance, or, downwards, only beyond it. Next
to thresholds a set may hold real numbers of a cell, but no float of the model's input precision; a
witness may then lie outside of it, by one float.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from treeproof.checker.claims import Claim, require
from treeproof.checker.forest import Forest
from treeproof.model.ensemble import FloatArray

Level = tuple[Fraction, bool]
"""A distance, and whether it must be exceeded."""


def same_numbers(one: FloatArray, other: FloatArray) -> NDArray[np.bool_]:
    """Whether values are equal, or both missing."""
    return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))


def _moves(claim: Claim, point: FloatArray) -> Iterator[tuple[int, float, float]]:
    """Features that differ, with the value of the row and of the point."""
    for feature in np.flatnonzero(~same_numbers(claim.row, point)).tolist():
        yield feature, float(claim.row[feature]), float(point[feature])


def _of(numbers: float | list[float], feature: int) -> float:
    return numbers if isinstance(numbers, float) else numbers[feature]


def level_of(forest: Forest, claim: Claim, point: FloatArray) -> Level:
    """The level at which balls reach the cells of a point."""
    level: Level = (Fraction(0), False)
    for feature, x, w in _moves(claim, point):
        cuts = forest.cuts(feature).tolist()
        here, there = bisect_right(cuts, x), bisect_right(cuts, w)
        if here == there:
            continue
        rises = there > here
        cut = cuts[there - 1] if rises else cuts[there]
        rate = _of(claim.up if rises else claim.down, feature)
        high, low = _of(claim.high, feature), _of(claim.low, feature)
        allowed = cut <= high if rises else cut > low
        allowed &= rate > 0.0 and math.isfinite(x) and math.isfinite(cut)
        require(allowed, f"witness: feature {feature} is beyond the set")
        level = max(level, (abs(Fraction(cut) - Fraction(x)) / Fraction(rate), not rises))
    return level


def reaches(radius: float, level: Level) -> bool:
    """Whether a closed ball reaches the cells of a level."""
    distance, beyond = level
    return distance < radius if beyond else distance <= radius


def distance_of(claim: Claim, point: FloatArray) -> float:
    """Smallest double whose closed ball holds a point; infinite where no double's does."""
    farthest = Fraction(0)
    for feature, x, w in _moves(claim, point):
        rate = _of(claim.up if w > x else claim.down, feature)
        if rate == 0.0 or not math.isfinite(w - x):
            return math.inf
        if rate < math.inf:  # in a box, moves are free
            farthest = max(farthest, abs(Fraction(w) - Fraction(x)) / Fraction(rate))
    return 0.0 - rounded_down(-farthest)


def rounded_down(exact: Fraction) -> float:
    """Largest double not above a number."""
    try:
        value = float(exact)
    except OverflowError:
        value = math.inf if exact > 0 else -math.inf
    return value if value <= exact else math.nextafter(value, -math.inf)


def check_in_ball(
    forest: Forest, claim: Claim, point: FloatArray, distance: float, radius: float
) -> None:
    """Reject a point that is not in a ball; each value may be the first float beyond."""
    for feature, x, w in _moves(claim, point):
        stays = math.isnan(x) or forest.fixed[feature]
        require(not stays, f"witness: feature {feature} must not move")
        rate, near = _of(claim.up if w > x else claim.down, feature), _next(forest, w, x)
        low, high = _of(claim.low, feature), _of(claim.high, feature)
        inside = rate > 0.0 and math.isfinite(x) and min(low, x) <= near <= max(high, x)
        if inside and distance > radius:
            move = abs(Fraction(near) - Fraction(x)) if math.isfinite(near) else math.inf
            inside = move <= Fraction(radius) * Fraction(rate)
        require(inside, f"witness: feature {feature} is beyond the set")


def check_in_box(forest: Forest, claim: Claim, point: FloatArray) -> None:
    """Reject a point that is not in a box; each value may be the first float beyond."""
    stays = np.isnan(claim.row) | forest.fixed
    for feature in np.flatnonzero(stays & ~same_numbers(claim.row, point)).tolist():
        require(False, f"witness: feature {feature} must not move")
    within = (np.asarray(claim.low) <= point) & (point <= np.asarray(claim.high))
    for feature in np.flatnonzero(~stays & ~within).tolist():
        low, w, high = _of(claim.low, feature), float(point[feature]), _of(claim.high, feature)
        near = _next(forest, w, math.inf) >= low if w < low else _next(forest, w, -math.inf) <= high
        cells = forest.count(np.array([feature]), np.array([low, w, high])).tolist()
        inside = near and cells[0] <= cells[1] <= cells[2]
        require(inside, f"witness: feature {feature} is beyond the set")


def _next(forest: Forest, value: float, end: float) -> float:
    """The next float of the input precision on the way from a value to another."""
    real = np.dtype(forest.ensemble.input_precision).type
    with np.errstate(over="ignore"):
        return float(np.nextafter(real(value), real(end)))
