"""Products and sums without error."""

from fractions import Fraction

import numpy as np
import pytest

from tests.kernels import called
from treeproof.kernels.core.arithmetic import sign_of_sum, two_product
from treeproof.query.rounding import move_rounded_down, round_down

sign_of_sum, two_product = called(sign_of_sum), called(two_product)

POOL = [0.0, 0.1, 0.2, 0.25, 0.3, 1.0, -0.5, 1e-20, 1e6, float(np.float32(0.1)), 3.0, 1 / 3]


def test_signs_of_sums_that_nearly_cancel():
    product, error = two_product(0.1, 3.0)
    assert Fraction(product) + Fraction(error) == Fraction(0.1) * 3
    assert sign_of_sum(product, error, 0.0, -0.3) == 1  # 3 * 0.1 is a little more than 0.3
    assert sign_of_sum(product, error, -product, -error) == 0
    assert sign_of_sum(product, error, -0.3, -1e-16) == -1


def moves(rng, is_wild):
    if is_wild:
        return (rng.normal(size=3) * 10.0 ** rng.integers(-8, 8, 3)).tolist()
    return rng.choice(POOL, 3).tolist()


@pytest.mark.parametrize("is_wild", [False, True])
def test_ends_of_boxes_are_rounded_down_exactly(is_wild):
    rng = np.random.default_rng(0)
    for trial in range(3000):
        x, radius, rate = moves(rng, is_wild)
        radius, rate = abs(radius), abs(rate)
        if trial % 5 == 0:
            x = radius * rate  # cancels to almost nothing
        for sign in (-1, 1):
            exact = Fraction(x) + sign * Fraction(radius) * Fraction(rate)
            moved = move_rounded_down(np.array([x]), radius, np.array([rate]), sign)
            assert moved[0] == round_down(exact)
