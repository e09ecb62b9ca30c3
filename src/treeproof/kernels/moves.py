"""Exact arithmetic of moves: where a closed ball ends, and at which distance a threshold lies.

The end of a ball, ``x + r * rate``, is a real number; what matters is on which side of every
threshold it lies. As in spec/rounding.py, its value rounded down decides that for both ends. Sums
and products are taken without error as short expansions: sums of doubles that do not overlap, so
that the sign of the largest one is the sign of the whole.
"""

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
    """``(large - small) / rate`` rounded down, and whether that is exact."""
    gap, rest = two_sum(large, -small)
    if gap == 0.0:
        return 0.0, True
    if rate == 1.0:
        if rest < 0.0:
            gap = np.nextafter(gap, -np.inf)
        return gap, rest == 0.0
    if gap < _TINY_MOVE:
        return 0.0, False
    distance = gap / rate
    while True:
        product, error = two_product(distance, rate)
        if sign_of_sum(product, error, small, -large) <= 0:
            break
        distance = np.nextafter(distance, -np.inf)
    while True:
        above = np.nextafter(distance, np.inf)
        product, error = two_product(above, rate)
        if sign_of_sum(product, error, small, -large) > 0:
            break
        distance = above
    product, error = two_product(distance, rate)
    return distance, sign_of_sum(product, error, small, -large) == 0
