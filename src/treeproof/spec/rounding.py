"""Sums of doubles rounded towards minus infinity, exactly.

Why downwards on both ends of an interval: thresholds T are doubles, the tests are ``low < T`` and
``high >= T``, and for the exact real end points both tests have the same outcome on the values
rounded down. (No double lies strictly between a real number and its rounded-down value; so
``real < T`` iff ``rounded < T`` for an inexact real, and ``real >= T`` iff ``rounded >= T``.)
"""

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
    # TwoSum and Dekker's product give the rounding errors of both operations; only where one of
    # them is not zero can the result need a step down, and those few are settled with fractions.
    inexact = np.flatnonzero(np.isfinite(moved) & (_sum_error(start, sign * step, moved) != 0.0))
    odd_rates = np.flatnonzero(np.isfinite(moved) & (rate != 0.0) & (rate != 1.0))
    result = moved.copy()
    for index in np.union1d(inexact, odd_rates):
        result.flat[index] = round_down(
            Fraction(float(start.flat[index]))
            + sign * Fraction(radius) * Fraction(float(rate.flat[index]))
        )
    return result


def round_down(exact: Fraction) -> float:
    """Largest double not above an exact number."""
    try:
        # Correctly rounded to nearest, so at most one step too high, also where terms cancel.
        value = float(exact)
    except OverflowError:
        return float(np.finfo(np.float64).max) if exact > 0 else -np.inf
    return value if Fraction(value) <= exact else float(np.nextafter(value, -np.inf))


def difference_error(a: FloatArray, b: FloatArray, difference: FloatArray) -> FloatArray:
    """Exact rounding error of ``a - b``: the true difference is ``difference`` plus this."""
    return _sum_error(a, np.negative(b), difference)


def _sum_error(a: FloatArray, b: FloatArray, total: FloatArray) -> FloatArray:
    """Knuth's TwoSum: the exact rounding error of ``a + b`` where everything is finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        part = total - a
        error = (a - (total - part)) + (b - part)
    return np.where(np.isfinite(error), error, 0.0)
