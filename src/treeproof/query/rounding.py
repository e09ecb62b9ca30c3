"""Sums of doubles rounded towards minus infinity, exactly.

Why downwards on both ends of an interval: thresholds T are doubles, the tests are ``low < T`` and
``high >= T``, and for the exact real end points both tests have the same outcome on the values
rounded down. (No double lies strictly between a real number and its rounded-down value; so
``real < T`` iff ``rounded < T`` for an inexact real, and ``real >= T`` iff ``rounded >= T``.)
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def move_rounded_down(start: FloatArray, radius: float, rate: FloatArray, sign: int) -> FloatArray:
    """Return ``start + sign * radius * rate`` rounded down, elementwise and exactly.

    Infinite rates and radii behave as limits; infinite starts and zero rates never move.
    """
    start, rate = np.broadcast_arrays(np.asarray(start, float), np.asarray(rate, float))
    with np.errstate(over="ignore", invalid="ignore"):
        step = np.where(rate == 0.0, 0.0, radius * rate)
        moved = np.where(np.isinf(start), start, start + sign * step)
    if radius == 0.0 or not np.isfinite(radius):
        return moved
    # The true end is moved + error, exactly: TwoSum gives what the sum lost, Dekker's product what
    # the step lost, and a sum of two doubles has the sign of the true sum. Where |error| stays
    # below half the distance to either neighbour, the sign decides; all else takes fractions.
    lost, is_exact = _product_error(radius, rate, step)
    with np.errstate(over="ignore", invalid="ignore"):
        error = _sum_error(start, sign * step, moved) + sign * lost
        below = np.nextafter(moved, -np.inf)
        gap = np.minimum(moved - below, np.nextafter(moved, np.inf) - moved)
        decided = is_exact & (2.0 * np.abs(error) < gap)
        result = np.where(error < 0.0, below, moved)
    moves = np.isfinite(moved) & (rate != 0.0)
    result = np.where(moves, result, moved)
    for index in np.flatnonzero(moves & ~decided):
        result.flat[index] = round_down(
            Fraction(float(start.flat[index]))
            + sign * Fraction(radius) * Fraction(float(rate.flat[index]))
        )
    return result


def _product_error(
    radius: float, rate: FloatArray, product: FloatArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Dekker's product: the exact rounding error of ``radius * rate``, and where it holds.

    The halves of Veltkamp's splitting multiply without error unless something over- or underflows,
    which factors and products between 1e-140 and 1e140 rule out.
    """
    unit = rate == 1.0
    split = 2.0**27 + 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        radius_high = split * radius - (split * radius - radius)
        rate_high = split * rate - (split * rate - rate)
        radius_low, rate_low = radius - radius_high, rate - rate_high
        error = radius_low * rate_low - (
            ((product - radius_high * rate_high) - radius_low * rate_high) - radius_high * rate_low
        )
    tame = np.ones(rate.shape, dtype=bool)
    for number in (np.float64(radius), rate, product):
        tame &= (np.abs(number) > 1e-140) & (np.abs(number) < 1e140)
    return np.where(unit, 0.0, error), unit | tame


def round_down(exact: Fraction) -> float:
    """Largest double not above an exact number."""
    try:
        # Correctly rounded to nearest, so at most one step too high, also where terms cancel.
        value = float(exact)
    except OverflowError:
        return float(np.finfo(np.float64).max) if exact > 0 else -np.inf
    return value if Fraction(value) <= exact else math.nextafter(value, -math.inf)


def _sum_error(a: FloatArray, b: FloatArray, total: FloatArray) -> FloatArray:
    """Knuth's TwoSum: the exact rounding error of ``a + b`` where everything is finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        part = total - a
        error = (a - (total - part)) + (b - part)
    return np.where(np.isfinite(error), error, 0.0)
