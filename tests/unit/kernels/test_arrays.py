import numpy as np
import pytest

from tests.kernels import called
from treeproof.kernels.core.arrays import sorted_order

sorted_order = called(sorted_order)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 1000])
def test_values_are_sorted_and_equal_ones_keep_their_order(n):
    values = np.random.default_rng(n).choice([-np.inf, -1.0, 0.0, 0.5, 2.0], n)
    falling, rising = np.argsort(-values, kind="stable"), np.argsort(values, kind="stable")
    np.testing.assert_array_equal(sorted_order(values, False), falling)
    np.testing.assert_array_equal(sorted_order(values, True), rising)
