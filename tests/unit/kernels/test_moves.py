"""Ends of balls and distances to thresholds, against exact fractions."""

from fractions import Fraction

import numpy as np
import pytest

from treeproof.kernels.moves import ball_end, distance_down, sign_of_sum, two_product
from treeproof.spec.rounding import move_rounded_down, round_down

POOL = [0.0, 0.1, 0.2, 0.25, 0.3, 1.0, -0.5, 1e-20, 1e6, float(np.float32(0.1)), 3.0, 1 / 3]


def numbers(rng, is_wild):
    if is_wild:
        return (rng.normal(size=3) * 10.0 ** rng.integers(-8, 8, 3)).tolist()
    return rng.choice(POOL, 3).tolist()


@pytest.mark.parametrize("is_wild", [False, True])
def test_ends_are_rounded_down_exactly(is_wild):
    rng = np.random.default_rng(0)
    for trial in range(3000):
        x, radius, rate = numbers(rng, is_wild)
        radius, rate = abs(radius), abs(rate)
        if trial % 5 == 0:
            x = radius * rate  # cancels to almost nothing
        for sign in (-1, 1):
            exact = Fraction(x) + sign * Fraction(radius) * Fraction(rate)
            assert ball_end(x, radius, rate, float(sign)) == round_down(exact)
            slow = move_rounded_down(np.array([x]), radius, np.array([rate]), sign)
            assert slow[0] == round_down(exact)


@pytest.mark.parametrize("is_wild", [False, True])
def test_distances_are_rounded_down_and_know_when_they_are_exact(is_wild):
    rng = np.random.default_rng(1)
    for _ in range(3000):
        first, second, rate = numbers(rng, is_wild)
        small, large = min(first, second), max(first, second)
        rate = abs(rate) or 1.0
        exact = (Fraction(large) - Fraction(small)) / Fraction(rate)
        distance, is_exact = distance_down(small, large, rate)
        assert distance == round_down(exact)
        assert is_exact == (Fraction(distance) == exact)


def test_tiny_moves_are_never_overlooked():
    # 5e-324 * 0.5 is 0.0 in doubles; the ball must still pass a threshold that the row lies on.
    tiny = 5e-324
    assert ball_end(0.3, tiny, 0.5, -1.0) < 0.3
    assert ball_end(0.3, tiny, 0.5, -1.0) == np.nextafter(0.3, 0.0)
    assert ball_end(0.3, tiny, 0.5, 1.0) == 0.3
    assert ball_end(0.0, tiny, 0.5, -1.0) < 0.0
    assert distance_down(0.0, 1e-300, 0.5) == (0.0, False)
    assert ball_end(0.0, tiny, 0.5, 1.0) >= 1e-300


def test_infinite_values_and_radii():
    assert ball_end(np.inf, 1.0, 1.0, -1.0) == np.inf
    assert ball_end(0.5, np.inf, 2.0, -1.0) == -np.inf
    assert ball_end(0.5, np.inf, 0.0, -1.0) == 0.5


def test_signs_of_sums_that_nearly_cancel():
    product, error = two_product(0.1, 3.0)
    assert Fraction(product) + Fraction(error) == Fraction(0.1) * 3
    assert sign_of_sum(product, error, 0.0, -0.3) == 1  # 3 * 0.1 is a little more than 0.3
    assert sign_of_sum(product, error, -product, -error) == 0
    assert sign_of_sum(product, error, -0.3, -1e-16) == -1
