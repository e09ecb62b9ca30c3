"""Gains of leaves against fractions."""

from fractions import Fraction

import numpy as np

from tests.kernels import called
from treeproof.kernels.core.leaves import combination_up


def test_gains_are_never_below_the_exact_ones_also_where_they_cancel() -> None:
    combination = called(combination_up)
    rng = np.random.default_rng(0)
    n_rounded = 0
    for _ in range(2000):
        values = rng.choice([0.1, 0.3, 1.0 / 3.0, -0.2, 1e-300, 1e16, -1e16, 2.0], 6)
        coefficient = rng.choice([1.0, -1.0, 0.0, 5.0, 0.1, -1.0 / 3.0], 6)
        exact = sum(
            (
                Fraction(float(c)) * Fraction(float(v))
                for c, v in zip(coefficient, values, strict=True)
            ),
            Fraction(0),
        )
        gain = float(combination(coefficient, values))
        assert Fraction(gain) >= exact
        n_rounded += Fraction(gain) > exact
    assert 1000 < n_rounded < 2000
