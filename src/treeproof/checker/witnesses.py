"""Witnesses: how far away a point is, and its cells; that it lies in the set; all in fractions.

A ball reaches the cells of a point at a *level*: at a distance, or, downwards, only beyond it. Next
to thresholds a set may hold real numbers of a cell, but no float of the model's input precision; a
witness may then lie outside of it, by one float.
"""

import math
from bisect import bisect_right
from fractions import Fraction

import numpy as np

from treeproof.checker.claims import Claim, require
from treeproof.checker.forest import Forest

Level = tuple[Fraction, bool]
"""A distance, and whether it must be exceeded."""


def same_number(one: float, other: float) -> bool:
    """Whether two values are equal, or both missing."""
    return one == other or (math.isnan(one) and math.isnan(other))


def level_of(forest: Forest, claim: Claim, point: list[float]) -> Level:
    """The level at which balls reach the cells of a point."""
    level: Level = (Fraction(0), False)
    for feature, cuts in forest.cuts.items():
        x, w = claim.row[feature], point[feature]
        here, there = bisect_right(cuts, x), bisect_right(cuts, w)
        if same_number(x, w) or here == there:
            continue
        rises = there > here
        cut = cuts[there - 1] if rises else cuts[there]
        rate = claim.up[feature] if rises else claim.down[feature]
        allowed = cut <= claim.high[feature] if rises else cut > claim.low[feature]
        allowed &= rate > 0.0 and math.isfinite(x) and math.isfinite(cut)
        require(allowed, f"witness: feature {feature} is beyond the set")
        level = max(level, (abs(Fraction(cut) - Fraction(x)) / Fraction(rate), not rises))
    return level


def reaches(radius: float, level: Level) -> bool:
    """Whether a closed ball reaches the cells of a level."""
    distance, beyond = level
    return distance < radius if beyond else distance <= radius


def distance_of(claim: Claim, point: list[float]) -> float:
    """Smallest double whose closed ball holds a point; infinite where no double's does."""
    farthest = Fraction(0)
    for x, w, down, up in zip(claim.row, point, claim.down, claim.up, strict=True):
        rate = up if w > x else down
        if same_number(x, w):
            continue
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


def check_in_set(
    forest: Forest, claim: Claim, point: list[float], distance: float, radius: float
) -> None:
    """Reject a point that is not in a ball or a box; each value may be the first float beyond."""
    for feature, (x, w) in enumerate(zip(claim.row, point, strict=True)):
        low, high = claim.low[feature], claim.high[feature]
        if math.isnan(x) or feature in forest.fixed:
            require(same_number(x, w), f"witness: feature {feature} must not move")
        elif claim.down[feature] == math.inf:  # a box
            inside = (w >= low or _next(forest, w, math.inf) >= low) and (
                w <= high or _next(forest, w, -math.inf) <= high
            )
            first, cell, last = (
                bisect_right(forest.cuts.get(feature, []), value) for value in (low, w, high)
            )
            inside &= first <= cell <= last
            require(inside, f"witness: feature {feature} is beyond the set")
        elif x != w:
            rate, near = claim.up[feature] if w > x else claim.down[feature], _next(forest, w, x)
            inside = rate > 0.0 and math.isfinite(x) and min(low, x) <= near <= max(high, x)
            if inside and distance > radius:
                move = abs(Fraction(near) - Fraction(x)) if math.isfinite(near) else math.inf
                inside = move <= Fraction(radius) * Fraction(rate)
            require(inside, f"witness: feature {feature} is beyond the set")


def _next(forest: Forest, value: float, end: float) -> float:
    """The next float of the input precision on the way from a value to another."""
    real = np.dtype(forest.ensemble.input_precision).type
    with np.errstate(over="ignore"):
        return float(np.nextafter(real(value), real(end)))
