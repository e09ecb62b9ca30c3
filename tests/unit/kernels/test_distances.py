"""Distances are exact numbers rounded down, to the ends of the double range."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels import called
from treeproof.kernels.core.arithmetic import quotient_down

quotient_down = called(quotient_down)

VALUES = st.floats(allow_nan=False, allow_infinity=False)
RATES = st.floats(min_value=0.0, exclude_min=True, allow_infinity=False)
LARGEST = np.finfo(np.float64).max


@settings(max_examples=2_000, deadline=None)
@given(first=VALUES, second=VALUES, rate=RATES)
def test_quotients_are_the_largest_doubles_not_above(first, second, rate):
    smaller, larger = sorted((first, second))
    found, is_exact = quotient_down(larger, smaller, rate)
    truth = (Fraction(larger) - Fraction(smaller)) / Fraction(rate)
    assert Fraction(found) <= truth
    assert is_exact == (Fraction(found) == truth)
    if found < LARGEST:
        assert Fraction(float(np.nextafter(found, np.inf))) > truth


def test_small_steps_and_slow_rates():
    tiny = 5e-324
    assert quotient_down(0.75, 0.75, 0.5) == (0.0, True)
    assert quotient_down(tiny, 0.0, 1.0) == (tiny, True)
    assert quotient_down(tiny, 0.0, 2.0) == (0.0, False)
    assert quotient_down(3 * tiny, 0.0, 2.0) == (tiny, False)
    assert quotient_down(1.0, 0.0, tiny) == (LARGEST, False)
    assert quotient_down(1.0, 0.0, 0.0) == (np.inf, True)
    assert quotient_down(1.0, 0.0, np.inf) == (0.0, False)
