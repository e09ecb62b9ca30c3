"""Exact arithmetic of moves: where a closed ball ends, and at which distance a threshold lies.

The end of a ball, ``x + r * rate``, is a real number; what matters is on which side of every
threshold it lies. As in spec/rounding.py, its value rounded down decides that for both ends. Sums
and products are taken without error as short expansions: sums of doubles that do not overlap, so
that the sign of the largest one is the sign of the whole.
"""

import math

import numpy as np

from treeproof.kernels.compiler import borrowing_kernel

_SPLITTER = 134217729.0  # 2**27 + 1
_TINY_RADIUS = 1e-200
_TINY_MOVE = 1e-140
"""Products below these lose digits to underflow. With rates other than 0 and 1, smaller moves are
not told apart: a threshold nearer than the tiny move is at distance 0, and every radius reaches it.
"""


@borrowing_kernel
def two_sum(a, b):
    """Sum of two doubles and its rounding error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@borrowing_kernel
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


@borrowing_kernel
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


@borrowing_kernel
def ball_end(x, radius, rate, sign):
    """``x + sign * radius * rate`` rounded down, exactly."""
    if rate == 0.0 or radius == 0.0 or not np.isfinite(x):
        return x
    if not np.isfinite(radius):
        return sign * radius
    product = radius
    error = 0.0
    if rate != 1.0:
        if radius < _TINY_RADIUS:
            # Sound: a larger set than was asked for, unless x absorbs the move.
            end = x + sign * _TINY_MOVE
            return x if sign > 0.0 and end == x else np.nextafter(end, sign * np.inf)
        product, error = two_product(radius, rate)
    end, rest = two_sum(x, sign * product)
    if error == 0.0:
        return np.nextafter(end, -np.inf) if rest < 0.0 else end
    end = end + (rest + sign * error)
    while sign_of_sum(sign * product, sign * error, x, -end) < 0:
        end = np.nextafter(end, -np.inf)
    while sign_of_sum(sign * product, sign * error, x, -np.nextafter(end, np.inf)) >= 0:
        end = np.nextafter(end, np.inf)
    return end


@borrowing_kernel
def distance_down(small, large, rate):
    """As `quotient_down`, but for moves that `ball_end` does not tell apart: these are 0."""
    if rate != 1.0 and 0.0 < large - small < _TINY_MOVE:
        return 0.0, False
    return quotient_down(large, small, rate)


@borrowing_kernel
def quotient_down(larger, smaller, rate):
    """Largest double not above the exact (larger - smaller) / rate, and whether it is that number.

    For larger >= smaller; infinite for a rate of 0, and no distance at all for an infinite one.
    """
    if rate == 0.0:
        return np.inf, True
    if np.isinf(rate):
        return 0.0, False
    difference = larger - smaller
    if not np.isfinite(difference):
        return difference, True
    if difference == 0.0:
        return 0.0, True
    difference, error = two_sum(larger, -smaller)
    if rate == 1.0:
        # Sound: the exact difference is less than half a unit away, so this is the next one down.
        return np.nextafter(difference, -np.inf) if error < 0.0 else difference, error == 0.0
    # Mantissas only, so that no product below under- or overflows.
    difference, difference_exponent = math.frexp(difference)
    # An error that would vanish keeps its sign: it only matters where all else is equal.
    scaled = math.ldexp(error, -difference_exponent)
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
    exponent = difference_exponent - rate_exponent
    scaled = math.ldexp(quotient, exponent)
    if not np.isfinite(scaled):
        return np.finfo(np.float64).max, False
    # The smallest doubles have fewer digits: the scaling itself may have rounded.
    back = math.ldexp(scaled, -exponent)
    if back > quotient:
        scaled = np.nextafter(scaled, 0.0)
    return scaled, is_exact and back == quotient


@borrowing_kernel
def _sign_of_excess(quotient, rate, difference, error):
    """Sign of ``quotient * rate - (difference + error)``."""
    product, rounding = two_product(quotient, rate)
    return sign_of_sum(product, rounding, -difference, -error)
