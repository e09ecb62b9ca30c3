"""Columns become bins without losing what splits need."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treeproof.kernels.training.histograms import TrainingTable
from treeproof.training.binning import training_table
from treeproof.training.growing import usable_features


def table(X, *, method="hist", max_bin=16, reach=0.0, weights=None) -> TrainingTable:
    X = np.asarray(X, dtype=np.float32)
    return training_table(
        X,
        np.ones(len(X)) if weights is None else weights,
        tree_method=method,
        max_bin=max_bin,
        reach=np.full(X.shape[1], reach),
        monotone=np.zeros(X.shape[1], dtype=np.int8),
    )


def n_bins(made: TrainingTable) -> np.ndarray:
    return made.features["end_bin"] - made.features["first_bin"]


def bins_of_rows(made: TrainingTable) -> np.ndarray:
    """Bin of each row and feature, with the usual ones put back; -1 without bins."""
    n_rows = made.values.shape[1]
    bins = np.tile(made.features["usual_bin"], (n_rows, 1))
    for row in range(n_rows):
        for number in made.entries[made.entry_start[row] : made.entry_start[row + 1]]:
            feature = np.searchsorted(made.features["end_bin"], number, side="right")
            bins[row, feature] = number
    return bins


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 300),
    st.sampled_from([1, 2, 10, 10_000]),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([0.0, 0.1]),
)
@settings(max_examples=200, deadline=None)
def test_every_value_lies_in_its_bin(seed, n, n_values, missing, reach) -> None:
    random = np.random.default_rng(seed)
    X = (random.integers(n_values, size=(n, 3)) ** 3 / 7.0).astype(np.float32)
    X[random.random(X.shape) < missing] = np.nan
    made = table(X, reach=reach)
    assert np.all(n_bins(made) <= 16)
    bins = bins_of_rows(made)
    for feature in range(3):
        distinct = np.unique(X[:, feature])  # NaN counts once
        if len(distinct) < 2:
            assert feature not in usable_features(made)
            continue
        lower, upper = made.bin_lower[bins[:, feature]], made.bin_upper[bins[:, feature]]
        column = X[:, feature]
        absent = np.isnan(column)
        assert np.array_equal(np.isnan(lower), absent)
        assert np.all((lower <= column)[~absent] & (column <= upper)[~absent])
        first, last = made.features[feature][["first_bin", "end_bin"]]
        last -= int(absent.any())
        assert np.all(made.bin_upper[first : last - 1] < made.bin_lower[first + 1 : last])
        if len(distinct) <= 15:
            assert last - first == len(distinct) - int(absent.any())


def test_the_usual_bin_takes_no_entries() -> None:
    X = np.zeros((100, 2))
    X[:7, 0] = 1.0
    made = table(X)
    assert len(made.entries) == 7
    assert usable_features(made).tolist() == [0]


def test_heavy_values_stand_alone_and_the_rest_is_shared_out() -> None:
    rest = np.arange(1, 1001)
    X = np.concatenate([np.zeros(9_000), rest])[:, None]
    made = table(X, max_bin=11)
    assert made.bin_lower[0] == made.bin_upper[0] == 0.0
    sizes = np.searchsorted(rest, made.bin_upper[1:], side="right") - np.searchsorted(
        rest, made.bin_lower[1:]
    )
    assert len(sizes) == 10
    assert sizes.min() >= 90
    assert sizes.max() <= 110


def test_weights_move_the_quantiles() -> None:
    X = np.arange(1_000.0)[:, None]
    weights = np.where(np.arange(1_000) < 500, 9.0, 1.0)
    made = table(X, max_bin=10, weights=weights)
    assert np.count_nonzero(made.bin_upper < 500) == 9


def test_under_attack_no_bin_is_wide() -> None:
    # Nearly all values lie in a hundredth of the range; quantiles alone would leave the rest.
    X = np.concatenate([np.linspace(0.0, 0.01, 10_000), np.linspace(0.01, 1.0, 100)])[:, None]
    natural, robust = table(X, max_bin=64), table(X, max_bin=64, reach=0.1)
    assert (natural.bin_upper - natural.bin_lower).max() > 0.5
    assert (robust.bin_upper - robust.bin_lower).max() < 0.05


def test_exact_training_keeps_many_values_sorted() -> None:
    random = np.random.default_rng(0)
    X = np.stack([random.normal(size=600), random.integers(9, size=600)], 1).astype(np.float32)
    X[::50, 0] = np.nan
    made = table(X, method="exact")
    assert made.features["place"].tolist() == [0, -1]
    column = X[made.order[0], 0]
    assert np.isnan(column[-12:]).all()
    assert np.all(np.diff(column[:-12]) >= 0)
    assert n_bins(made).tolist() == [256, 9]


@pytest.mark.parametrize("method", ["hist", "exact"])
def test_both_zeros_are_one_value(method: str) -> None:
    made = table([[0.0], [-0.0], [1.0]], method=method)
    assert made.bin_lower.tolist() == [0.0, 1.0]
