"""Sums of doubles rounded towards minus infinity, exactly.

Why downwards on both ends of an interval: thresholds T are doubles, the tests are ``low < T`` and
``high >= T``, and for the exact real end points both tests have the same outcome on the values
rounded down. (No double lies strictly between a real number and its rounded-down value; so
``real < T`` iff ``rounded < T`` for an inexact real, and ``real >= T`` iff ``rounded >= T``.)
"""

import math
from fractions import Fraction
from functools import partial
from typing import Any

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


def round_up(exact: Fraction) -> float:
    """Smallest double that is not below an exact number."""
    return -round_down(-exact)


def double_below(cost: float) -> float:
    """The largest double below a cost, which is not below 0; 0 itself has none."""
    return max(math.nextafter(cost, -math.inf), 0.0)


def root_rounded_up(exact: Fraction) -> float:
    """Smallest double whose square is not below an exact number."""
    # Whole roots of 64 bits and more: they know no underflow, from which a walk through the
    # doubles would never come back, and no overflow.
    size = exact.numerator.bit_length() - exact.denominator.bit_length()
    shift = max(0, 64 - size // 2)
    whole = math.isqrt((exact.numerator << 2 * shift) // exact.denominator)
    value = round_up(Fraction(whole, 1 << shift))
    # The whole root is less than one unit of its 64 bits too small: at most one step is missing.
    is_below = math.isfinite(value) and Fraction(value) ** 2 < exact
    return math.nextafter(value, math.inf) if is_below else value


def quotient_rounded_down(
    larger: FloatArray, smaller: FloatArray, *factors: FloatArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Largest doubles not above ``(larger - smaller) / rate``, and whether they are exact.

    The rate is the exact product of the factors. For finite numbers with larger >= smaller and
    finite factors > 0; elsewhere nothing is promised.
    """
    larger, smaller, *parts = np.broadcast_arrays(larger, smaller, *factors)
    rate, rest_of_rate, tame = _product_in_two(parts)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        difference = larger - smaller
        lost = _sum_error(larger, -smaller, difference)
        if all(np.all(each == 1.0) for each in parts) and np.all(np.isfinite(difference)):
            is_less = lost < 0.0
            return np.where(is_less, np.nextafter(difference, -np.inf), difference), lost == 0.0
        quotient = np.where(difference == 0.0, 0.0, difference / rate)
    # All products and errors of numbers of such a size are exact, so signs are.
    for number in (difference, quotient):
        tame &= (np.abs(number) > 1e-140) & (np.abs(number) < 1e140)
    tame |= difference == 0.0
    excess_of = partial(_excess, numbers=(rate, rest_of_rate, difference, lost))
    rest = excess_of(quotient, slice(None))
    is_below = rest <= 0.0
    for _ in range(6):
        over = np.nonzero(rest > 0.0)
        if len(over[0]) == 0:
            break
        quotient[over] = np.nextafter(quotient[over], -np.inf)
        rest[over] = excess_of(quotient[over], over)
    # What had to be lowered is the largest; of what is below there may be a larger one.
    below = np.nonzero(is_below)
    for _ in range(6):
        above = np.nextafter(quotient[below], np.inf)
        excess = excess_of(above, below)
        fits = excess <= 0.0
        if not fits.any():
            break
        below = tuple(axis[fits] for axis in below)
        quotient[below], rest[below] = above[fits], excess[fits]
    is_exact = rest == 0.0
    # With nothing lost by difference and product, a sum of two doubles decides: its sign is right.
    with np.errstate(over="ignore", invalid="ignore"):
        small = np.abs(lost) + np.abs(quotient * rest_of_rate)
        unclear = 2.0**-45 * small + np.where(len(parts) > 2, 2.0**-95 * difference, 0.0)
    doubtful = ~tame | ((small != 0.0) & (np.abs(rest) <= unclear))
    doubtful &= np.isfinite(larger) & np.isfinite(smaller)
    for each in parts:
        doubtful &= (each > 0.0) & np.isfinite(each)
    for index in np.flatnonzero(doubtful):
        a, b = (Fraction(float(array.flat[index])) for array in (larger, smaller))
        c = math.prod(Fraction(float(each.flat[index])) for each in parts)
        quotient.flat[index] = round_down((a - b) / c)
        is_exact.flat[index] = Fraction(float(quotient.flat[index])) == (a - b) / c
    # The smallest double times a small rate is 0, too, and would be taken for the quotient of 0.
    is_zero = difference == 0.0
    return np.where(is_zero, 0.0, quotient), is_exact | is_zero


def _product_in_two(
    factors: list[FloatArray],
) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """The product of numbers, and what it lost; and where that may be relied on.

    What two factors lose is exact; of more it is right to some units in its last place.
    """
    product, lost = factors[0], np.zeros(factors[0].shape)
    tame = (np.abs(product) > 1e-140) & (np.abs(product) < 1e140)
    for each in factors[1:]:
        if np.all(each == 1.0):
            continue
        with np.errstate(over="ignore", invalid="ignore"):
            before, product = product, product * each
            lost = _error_of_product(before, each, product) + lost * each
        for number in (each, product):
            tame &= (np.abs(number) > 1e-140) & (np.abs(number) < 1e140)
    return product, lost, tame


def _excess(
    quotient: FloatArray, at: Any, numbers: tuple[FloatArray, FloatArray, FloatArray, FloatArray]
) -> FloatArray:
    """``quotient * rate - (difference + lost)``, with the right sign unless nearly all cancels.

    numbers : the rate, what that lost, the difference and what that lost, of which `at` are meant
    """
    rate, rest_of_rate, difference, lost = (each[at] for each in numbers)
    with np.errstate(over="ignore", invalid="ignore"):
        product = quotient * rate
        error = _error_of_product(quotient, rate, product)
        # The first difference is exact: both are nearly equal.
        return (product - difference) + (error - lost + quotient * rest_of_rate)


def _error_of_product(a: FloatArray, b: FloatArray, product: FloatArray) -> FloatArray:
    split = 2.0**27 + 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        a_high = split * a - (split * a - a)
        b_high = split * b - (split * b - b)
        a_low, b_low = a - a_high, b - b_high
        return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def product_rounded_down(
    a: FloatArray, b: FloatArray, is_exact: NDArray[np.bool_]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Doubles not above the products of numbers >= 0, of which `a` may have been rounded down.

    Returns them and whether each is the exact product; infinite factors stay infinite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.where((a == 0.0) | (b == 0.0), 0.0, a * b)
        error = _error_of_product(a, b, product)
    tame = np.ones(product.shape, dtype=bool)
    for number in np.broadcast_arrays(a, b, product):
        tame &= (number > 1e-140) & (number < 1e140)
    is_nothing = (product == 0.0) & ((a == 0.0) | (b == 0.0))
    is_whole = (error == 0.0) & tame
    below = np.where(tame & (error >= 0.0), product, np.nextafter(product, 0.0))
    unbounded = np.isinf(a) | np.isinf(b)
    product = np.where(is_nothing | unbounded, product, below)
    return product, unbounded | (b == 0.0) | (is_exact & (is_nothing | is_whole))


def sum_rounded_down(
    a: FloatArray, b: FloatArray, is_exact: NDArray[np.bool_]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Doubles not above the sums of numbers, and whether each is the exact sum."""
    with np.errstate(invalid="ignore"):
        total = a + b
        error = np.where(np.isfinite(total), _sum_error(a, b, total), 0.0)
    return np.where(error < 0.0, np.nextafter(total, -np.inf), total), is_exact & (error == 0.0)
