from fractions import Fraction

import numpy as np
import pytest

from treeproof.checker.prices import root
from treeproof.query.rounding import move_rounded_down, root_rounded_up, round_down


def test_a_move_is_the_largest_double_not_above_the_exact_sum():
    rng = np.random.default_rng(0)
    pool = np.array([0.0, 0.1, 0.2, 0.25, 0.3, 1.0, -0.5, 1e-20, 1e6, float(np.float32(0.1))])
    for _ in range(3000):
        start, rate = rng.choice(pool, 2)
        radius, sign = abs(float(rng.choice(pool))), int(rng.choice([-1, 1]))
        rate = abs(rate)
        moved = float(move_rounded_down(np.array([start]), radius, np.array([rate]), sign)[0])
        exact = Fraction(float(start)) + sign * Fraction(radius) * Fraction(float(rate))
        assert Fraction(moved) <= exact
        assert Fraction(float(np.nextafter(moved, np.inf))) > exact


@pytest.mark.parametrize("exponents", [2, 12, 60, 300])
def test_whole_tables_of_moves_are_rounded_down_exactly(exponents):
    rng = np.random.default_rng(exponents)

    def numbers(n):
        values = rng.standard_normal(n) * 2.0 ** rng.integers(-exponents, exponents, n)
        short = (rng.random(n) < 0.3) & (np.abs(values) < 1e30)
        values[short] = values[short].astype(np.float32)
        return values

    for sign in (-1, 1):
        radius, rate = abs(float(numbers(1)[0])), np.abs(numbers(40))
        rate[::7] = 1.0
        start = np.concatenate([numbers(800), -sign * radius * rate]).reshape(21, 40)
        moved = move_rounded_down(start, radius, rate, sign)
        for place, value in np.ndenumerate(moved):
            exact = Fraction(float(start[place])) + sign * Fraction(radius) * Fraction(
                float(rate[place[1]])
            )
            assert Fraction(float(value)) <= exact < Fraction(float(np.nextafter(value, np.inf)))


def test_terms_that_cancel_need_no_walk_through_the_smallest_floats():
    # 0.2 - 2 * 0.1 rounds to 0.0, while the exact difference is a few 1e-17.
    moved = move_rounded_down(np.array([0.3]), 0.1, np.array([3.0]), -1)
    assert Fraction(float(moved[0])) == Fraction(0.3) - 3 * Fraction(0.1)


def test_infinite_radii_move_everything_but_features_of_rate_zero():
    moved = move_rounded_down(np.array([0.5, 0.5]), np.inf, np.array([1.0, 0.0]), 1)
    assert moved.tolist() == [np.inf, 0.5]


@pytest.mark.parametrize("number", [Fraction(1, 3), Fraction(-1, 3), Fraction(1, 4), Fraction(0)])
def test_round_down_never_exceeds_and_is_the_largest(number):
    value = round_down(number)
    assert Fraction(value) <= number < Fraction(float(np.nextafter(value, np.inf)))


@pytest.mark.parametrize("exponent", [-1100, -1074, -600, -537, -50, 0, 1, 53, 500, 1023])
def test_roots_are_the_nearest_doubles_on_either_side_however_small_and_large(exponent):
    # Squares below the smallest double once made a walk from 0 upwards that did not end.
    rng = np.random.default_rng(exponent + 2000)
    scale = Fraction(2) ** exponent
    numbers = [Fraction(float(number)) * scale for number in rng.uniform(0.5, 1.0, 50)]
    exact_squares = [Fraction(float(number)) ** 2 for number in numbers]
    for square in [*exact_squares, *(number**2 for number in numbers), *numbers]:
        for up in (root_rounded_up(square), root(square, 2, up=True)):
            below = Fraction(float(np.nextafter(up, 0.0)))
            assert square <= Fraction(up) ** 2
            assert up == 0.0 or below**2 < square
        down = root(square, 2, up=False)
        assert Fraction(down) ** 2 <= square < Fraction(float(np.nextafter(down, np.inf))) ** 2


def test_roots_beyond_the_doubles_are_infinite_or_the_largest_of_them():
    most = float(np.finfo(np.float64).max)
    square = (Fraction(most) * 3) ** 2
    assert root_rounded_up(square) == root(square, 2, up=True) == np.inf
    assert root(square, 2, up=False) == root(Fraction(most) * 2, 1, up=False) == most
    assert root_rounded_up(Fraction(0)) == root(Fraction(0), 2, up=True) == 0.0
