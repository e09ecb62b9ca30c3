"""Gradients lie on a grid on which sums are exact."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treeproof.kernels.training.losses import (
    logistic_gradients,
    round_to_grid,
    softmax_gradients,
)


def exact_sum(values: np.ndarray) -> Fraction:
    return sum((Fraction(value) for value in values.tolist()), Fraction(0))


@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.sampled_from([1e-12, 1.0, 1e9]))
@settings(max_examples=200, deadline=None)
def test_sums_in_any_order_are_exact(seed: int, n: int, size: float) -> None:
    random = np.random.default_rng(seed)
    gradients = random.normal(size=(n, 2)) * size * 10.0 ** random.uniform(-8, 0, size=(n, 1))
    gradients[:, 1] = np.abs(gradients[:, 1]) + 1e-16
    before = gradients.copy()
    round_to_grid(gradients, np.ones(n))
    for column in gradients.T:
        total = exact_sum(column)
        for order in (np.arange(n), np.arange(n)[::-1], random.permutation(n)):
            running = 0.0
            for value in column[order]:
                running += value
            assert Fraction(running) == total
    assert np.all(gradients[:, 1] > 0.0)
    # A step is tiny against the total: 2**-50 of it at most.
    assert np.all(np.abs(gradients - before) <= np.abs(before).sum(axis=0) * 2.0**-50)


@given(st.integers(0, 2**32 - 1), st.integers(1, 50))
@settings(max_examples=100, deadline=None)
def test_whole_weights_are_copies(seed: int, n: int) -> None:
    random = np.random.default_rng(seed)
    gradients = random.normal(size=(n, 2))
    gradients[:, 1] = np.abs(gradients[:, 1]) + 1e-3
    weights = random.integers(1, 5, size=n)
    copies = np.repeat(gradients, weights, axis=0)
    round_to_grid(gradients, weights.astype(np.float64))
    round_to_grid(copies, np.ones(len(copies)))
    assert exact_sum(gradients[:, 0]) == exact_sum(copies[:, 0])
    assert exact_sum(gradients[:, 1]) == exact_sum(copies[:, 1])


def test_nothing_to_sum_stays_zero() -> None:
    gradients = np.array([[0.0, 0.25], [0.0, 0.25]])
    round_to_grid(gradients, np.ones(2))
    assert gradients.tolist() == [[0.0, 0.25], [0.0, 0.25]]


def test_logistic_gradients_are_derivatives_of_the_loss() -> None:
    margins = np.array([[-3.0, 0.0, 2.5, 100.0]], dtype=np.float32)
    targets = np.array([1, 0, 1, 1])
    gradients = np.empty((1, 4, 2))
    logistic_gradients(margins, targets, gradients)
    for row, margin in enumerate(margins[0].astype(float)):
        p = 1.0 / (1.0 + math.exp(-margin))
        assert gradients[0, row, 0] == pytest.approx(p - targets[row], abs=1e-15)
        assert gradients[0, row, 1] == pytest.approx(max(p * (1 - p), 1e-16), rel=1e-12)


def test_softmax_gradients_are_derivatives_of_the_loss() -> None:
    random = np.random.default_rng(0)
    margins = random.normal(size=(4, 10)).astype(np.float32) * 3
    targets = random.integers(4, size=10)
    gradients = np.empty((4, 10, 2))
    softmax_gradients(margins, targets, gradients)
    odds = np.exp(margins.astype(np.float64))
    p = odds / odds.sum(axis=0)
    np.testing.assert_allclose(gradients[:, :, 0], p - (np.arange(4)[:, None] == targets), 1e-6)
    np.testing.assert_allclose(gradients[:, :, 1], 2 * p * (1 - p), 1e-6)
