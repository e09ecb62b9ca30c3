"""Distances of points from rows, against fractions, over the whole range of doubles."""

from fractions import Fraction

import numpy as np
import pytest

from treeproof.kernels.core.balls import ball_distances
from treeproof.query.rounding import round_down


def numbers(rng, n):
    """Doubles of every size: zero, the smallest, the largest, ordinary ones, short and long."""
    exponent = np.choose(
        rng.integers(4, size=n),
        [
            rng.integers(-1074, 1023, n),
            rng.integers(-4, 4, n),
            -1074 + rng.integers(60, size=n),
            1023 - rng.integers(3, size=n),
        ],
    )
    mantissa = 1.0 + np.where(rng.random(n) < 0.5, rng.integers(16, size=n) / 16, rng.random(n))
    return np.where(rng.random(n) < 0.1, 0.0, np.ldexp(mantissa, exponent))


def expected(value, point, rate):
    if np.isnan(value) or point == value:
        return 0.0
    if rate == 0.0 or np.isinf(point):
        return np.inf
    if np.isinf(rate):
        return 0.0
    return -round_down(-abs(Fraction(point) - Fraction(value)) / Fraction(rate))


@pytest.mark.parametrize("seed", range(4))
def test_distances_equal_fractions(seed):
    rng = np.random.default_rng(seed)
    n = 4000
    value = numbers(rng, n) * rng.choice([-1.0, 1.0], n)
    value[rng.random(n) < 0.02] = np.nan
    with np.errstate(over="ignore"):
        point = np.choose(
            rng.integers(3, size=n),
            [np.nextafter(value, np.inf), value + numbers(rng, n), -numbers(rng, n)],
        )
    down, up = (
        np.where(rng.random(n) < 0.3, rng.choice([0.0, 1.0, np.inf], n), numbers(rng, n))
        for _ in range(2)
    )
    found = np.empty(1)
    for i in range(n):
        part = slice(i, i + 1)
        pair = value[part, np.newaxis].copy(), point[part, np.newaxis].copy()
        ball_distances(*pair, down[part].copy(), up[part].copy(), found)
        rate = up[i] if point[i] > value[i] else down[i]
        assert found[0] == expected(value[i], point[i], rate)


def test_the_farthest_feature_decides():
    rows = np.zeros((3, 3))
    points = np.array([[0.1, 0.4, -0.2], [0.0, 0.0, 0.0], [0.1, 0.0, 0.3]])
    found = np.empty(3)
    ball_distances(rows, points, np.array([1.0, 1.0, 0.5]), np.array([1.0, 2.0, 0.0]), found)
    assert found.tolist() == [0.4, 0.0, np.inf]
