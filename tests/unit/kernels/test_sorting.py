import numpy as np
import pytest

from treeproof.kernels.sorting import falling_order


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 1000])
def test_values_fall_and_equal_ones_keep_their_order(n):
    values = np.random.default_rng(n).choice([-np.inf, -1.0, 0.0, 0.5, 2.0], n)
    expected = np.argsort(-values, kind="stable")
    np.testing.assert_array_equal(falling_order(values), expected)
