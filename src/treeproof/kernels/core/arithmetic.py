"""Exact arithmetic of moves: at which distance a threshold lies.

A distance, ``(T - x) / rate``, is a real number; kept are the largest double not above it, and
whether it is that double. Sums and products are taken without error as short expansions: sums of
doubles that do not overlap, so that the sign of the largest one is the sign of the whole.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from treeproof.kernels.core.compiler import compiled_by, noalloc_kernel

_SPLITTER = 134217729.0  # 2**27 + 1
LARGEST = float(np.finfo(np.float64).max)


def _compiled_ldexp() -> Callable[..., Any]:
    return lambda number, exponent: math.ldexp(number, exponent)  # noqa: PLW0108 - numba's own


def _compiled_exp() -> Callable[..., Any]:
    return lambda exponent: math.exp(exponent)  # noqa: PLW0108 - numba's own


@compiled_by(_compiled_ldexp)
def ldexp(number, exponent):
    """A number times a power of two; what is too large for a double is infinite."""
    return np.float64(np.ldexp(np.float64(number), int(exponent)))


@compiled_by(_compiled_exp)
def exp(exponent):
    """Exponential of a double by the C library; what is too large is infinite."""
    try:
        return np.float64(math.exp(exponent))
    except OverflowError:
        return np.float64(np.inf)


@noalloc_kernel
def two_sum(a, b):
    """Sum of two doubles and its rounding error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@noalloc_kernel
def two_product(a, b):
    """Product of two doubles and its rounding error, unless it over- or underflows."""
    product = a * b
    t = _SPLITTER * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = _SPLITTER * b
    b_high = t - (t - b)
    b_low = b - b_high
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


@noalloc_kernel
def sign_of_sum(a, b, c, d):
    """Sign of ``a + b + c + d``, where a + b is a product and its error."""
    # Growing an expansion by one double keeps its parts from overlapping.
    q, b1 = two_sum(c, b)
    a1, b2 = two_sum(q, a)
    q, c1 = two_sum(d, b1)
    q, c2 = two_sum(q, b2)
    top, c3 = two_sum(q, a1)
    for part in (top, c3, c2, c1):
        if part > 0.0:
            return 1
        if part < 0.0:
            return -1
    return 0


@noalloc_kernel
def quotient_down(larger, smaller, rate):
    """Largest double not above the exact (larger - smaller) / rate, and whether it is that number.

    For larger >= smaller; infinite for a rate of 0, and no distance at all for an infinite one.
    """
    if rate == 0.0:
        return np.inf, True
    if np.isinf(rate):
        return 0.0, False
    difference = larger - smaller
    if difference == 0.0:
        return 0.0, True
    if np.isinf(larger) or np.isinf(smaller):
        return difference, True
    # Halves of numbers whose difference is too large for a double: nothing is lost by that.
    half = 0.5 if np.isinf(difference) else 1.0
    difference, error = two_sum(half * larger, -half * smaller)
    if rate == 1.0:
        if half < 1.0:
            return LARGEST, False
        # Sound: the exact difference is less than half a unit away, so this is the next one down.
        return np.nextafter(difference, -np.inf) if error < 0.0 else difference, error == 0.0
    # Mantissas only, so that no product below under- or overflows.
    difference, difference_exponent = math.frexp(difference)
    # An error that would vanish keeps its sign: it only matters where all else is equal.
    scaled = ldexp(error, -difference_exponent)
    error = math.copysign(max(abs(scaled), 2.0**-1000), error) if error != 0.0 else 0.0
    rate, rate_exponent = math.frexp(rate)
    quotient = difference / rate
    for _ in range(4):
        if _sign_of_excess(quotient, rate, difference, error) <= 0:
            break
        quotient = np.nextafter(quotient, -np.inf)
    for _ in range(4):
        above = np.nextafter(quotient, np.inf)
        if _sign_of_excess(above, rate, difference, error) > 0:
            break
        quotient = above
    is_exact = _sign_of_excess(quotient, rate, difference, error) == 0
    exponent = difference_exponent - rate_exponent + (1 if half < 1.0 else 0)
    scaled = ldexp(quotient, exponent)
    if not np.isfinite(scaled):
        return LARGEST, False
    # The smallest doubles have fewer digits: the scaling itself may have rounded.
    back = ldexp(scaled, -exponent)
    if back > quotient:
        scaled = np.nextafter(scaled, 0.0)
    return scaled, is_exact and back == quotient


@noalloc_kernel
def _sign_of_excess(quotient, rate, difference, error):
    """Sign of ``quotient * rate - (difference + error)``."""
    product, rounding = two_product(quotient, rate)
    return sign_of_sum(product, rounding, -difference, -error)
