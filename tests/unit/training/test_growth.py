"""Grown trees are exactly those of the slow and obvious search."""

from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.training.naive_trees import NaiveNode, NaiveRules, grow
from treeproof.kernels.training.growth import GrowthSettings
from treeproof.kernels.training.losses import GrownTree, round_to_grid
from treeproof.training import binning, growing
from treeproof.training.binning import training_table
from treeproof.training.growing import TreeGrower, TreeTask, usable_features


@st.composite
def problems(draw):
    """Small tables full of ties, with and without missing values, attackers and constraints."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, n_features = draw(st.integers(2, 40)), draw(st.integers(1, 4))
    n_values = draw(st.sampled_from([2, 3, 8, 1000]))
    X = (random.integers(n_values, size=(n_rows, n_features)) / n_values).astype(np.float32)
    if draw(st.booleans()):
        X[random.random(X.shape) < 0.2] = np.nan
    # Few different gradients, so that equal gains are common.
    choices = draw(st.sampled_from([2, 5, 1000]))
    gradients = np.empty((n_rows, 2))
    gradients[:, 0] = random.normal(size=choices)[random.integers(choices, size=n_rows)]
    gradients[:, 1] = random.uniform(0.1, 1.0, size=choices)[random.integers(choices, size=n_rows)]
    round_to_grid(gradients, random.integers(1, 3, size=n_rows).astype(np.float64))
    # Sixteenths take values exactly to the thresholds between eighths.
    reach = random.choice([0.0, 0.05, 0.3, 1 / 16, 3 / 16], size=n_features)
    monotone = random.choice([0, 0, 1, -1], size=n_features)
    rules = NaiveRules(
        reg_lambda=draw(st.sampled_from([0.0, 1.0])),
        gamma=draw(st.sampled_from([0.0, 0.3])),
        min_child_weight=draw(st.sampled_from([0.0, 0.2, 1.0])),
        max_depth=draw(st.integers(1, 5)),
        reach=tuple(reach.tolist()),
        monotone=tuple(monotone.tolist()) if draw(st.booleans()) else (0,) * n_features,
    )
    return X, gradients, rules


def grown(X, gradients, rules: NaiveRules, *, wide: bool, n_threads: int = 1) -> GrownTree:
    table = training_table(
        X,
        np.ones(len(X)),
        tree_method="exact",
        max_bin=256,
        reach=np.array(rules.reach),
        monotone=np.array(rules.monotone, dtype=np.int8),
    )
    features = usable_features(table)
    assert np.all((table.features["place"][features] >= 0) == wide)
    settings = GrowthSettings(
        reg_lambda=rules.reg_lambda,
        gamma=rules.gamma,
        min_child_weight=rules.min_child_weight,
        learning_rate=1.0,
        max_depth=rules.max_depth,
        features_per_node=len(features) + 1,
    )
    rows = np.arange(len(X), dtype=np.int32)
    task = TreeTask(gradients=gradients, rows=rows, order=table.order, features=features, seed=0)
    margins = np.zeros(len(X), dtype=np.float32)
    with TreeGrower(table, settings, n_threads) as grower:
        tree = grower.grow(task, margins)
    assert np.array_equal(margins, predicted(tree, X))
    return tree


def predicted(tree: GrownTree, X) -> np.ndarray:
    values = np.empty(len(X), dtype=np.float32)
    for number, row in enumerate(X):
        node = 0
        while tree.left[node] >= 0:
            value = row[tree.feature[node]]
            left = tree.missing_left[node] if np.isnan(value) else value < tree.threshold[node]
            node = tree.left[node] if left else tree.right[node]
        values[number] = tree.value[node]
    return values


def assert_same(tree: GrownTree, node: int, expected: NaiveNode) -> None:
    assert tree.feature[node] == expected.feature
    if expected.feature < 0:
        assert tree.left[node] == tree.right[node] == -1
        assert tree.value[node] == np.float32(expected.value)
        return
    assert tree.threshold[node] == np.float32(expected.threshold)
    assert tree.missing_left[node] == expected.missing_left
    assert tree.gain[node] == np.float32(expected.gain)
    assert_same(tree, int(tree.left[node]), expected.children[0])
    assert_same(tree, int(tree.right[node]), expected.children[1])


@given(problems())
@settings(max_examples=150, deadline=None)
def test_histograms_find_the_same_trees(problem) -> None:
    X, gradients, rules = problem
    assert_same(grown(X, gradients, rules, wide=False), 0, grow(X, gradients, rules))


@contextmanager
def sorted_columns(coarse_bins: int = 4):
    """Keep every column sorted, instead of a bin per distinct value."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binning, "EXACT_BINS", 0)
        patch.setattr(binning, "EXACT_ROWS_PER_BIN", 1 << 20)
        patch.setattr(binning, "COARSE_BINS", coarse_bins)
        yield


@contextmanager
def binned_columns():
    """Give every distinct value a bin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binning, "EXACT_BINS", 1 << 20)
        yield


@given(problems())
@settings(max_examples=100, deadline=None)
def test_sorted_columns_find_the_same_trees(problem) -> None:
    X, gradients, rules = problem
    X[0] = 0.0  # so that no column is missing as a whole
    with sorted_columns():
        tree = grown(X, gradients, rules, wide=True)
    assert_same(tree, 0, grow(X, gradients, rules))


@given(problems(), st.integers(2, 5), st.booleans())
@settings(max_examples=50, deadline=None)
def test_threads_find_the_same_trees(problem, n_threads: int, wide: bool) -> None:
    X, gradients, rules = problem
    X[0] = 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing, "_PARALLEL_WORK", 0)
        with sorted_columns() if wide else nullcontext():
            tree = grown(X, gradients, rules, wide=wide, n_threads=n_threads)
    assert_same(tree, 0, grow(X, gradients, rules))


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 16, 100]),
    st.sampled_from([7, 1_000, 1_000_000]),
    st.sampled_from([(0.0, 0.0, 0.0), (0.0, 0.01, 0.0), (0.05, 0.05, 0.05)]),
    st.sampled_from([(0, 0, 0), (1, 0, -1)]),
    st.sampled_from([0.0, 0.02]),
)
@settings(max_examples=80, deadline=None)
def test_bounds_hide_no_split(seed, coarse_bins, n_values, reach, monotone, missing) -> None:
    """Nodes large enough for bounds on coarse bins, against a bin per distinct value."""
    random = np.random.default_rng(seed)
    X = (random.integers(n_values, size=(900, 3)) / n_values).astype(np.float32)
    X[random.random(X.shape) < missing] = np.nan
    signal = np.nan_to_num(X) @ random.normal(size=3) + 0.2 * np.sin(30 * np.nan_to_num(X[:, 0]))
    gradients = np.empty((900, 2))
    gradients[:, 0] = signal - signal.mean() + random.normal(size=900)
    gradients[:, 1] = random.choice([0.25, 1e-9], size=900)
    round_to_grid(gradients, np.ones(900))
    rules = NaiveRules(
        reg_lambda=float(random.choice([0.0, 1.0])), max_depth=6, reach=reach, monotone=monotone
    )
    with sorted_columns(coarse_bins):
        found = grown(X, gradients, rules, wide=True)
    with binned_columns():
        expected = grown(X, gradients, rules, wide=False)
    for name in GrownTree._fields:
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


@pytest.mark.parametrize("reach", [0.0, 0.02])
def test_long_sorted_columns_are_searched_across_pieces(reach: float) -> None:
    random = np.random.default_rng(0)
    X = random.random((1_100, 2)).astype(np.float32)
    X[:, 1] = np.round(X[:, 1], 2)  # runs of equal values end inside pieces
    X[::7, 0] = np.nan
    gradients = np.stack([np.sin(9 * np.nan_to_num(X[:, 0])) - X[:, 1], np.full(1_100, 0.25)], 1)
    round_to_grid(gradients, np.ones(1_100))
    rules = NaiveRules(max_depth=1, reach=(reach, reach), monotone=(0, 0))
    with sorted_columns():
        tree = grown(X, gradients, rules, wide=True)
    assert_same(tree, 0, grow(X, gradients, rules))


def test_a_tree_may_be_as_deep_as_it_has_rows() -> None:
    # The signs alternate and the sizes fall, so one row parts from the rest at every node.
    n_rows = 60
    X = np.arange(n_rows, dtype=np.float32)[:, None]
    gradients = np.ones((n_rows, 2))
    gradients[:, 0] = (-2.0) ** -np.arange(n_rows // 2).repeat(2)
    rules = NaiveRules(
        max_depth=200, reg_lambda=0.0, min_child_weight=0.0, reach=(0.0,), monotone=(0,)
    )
    tree = grown(X, gradients, rules, wide=False)
    assert_same(tree, 0, grow(X, gradients, rules))
    assert depth(tree) > 10


def depth(tree: GrownTree) -> int:
    depths = np.zeros(len(tree.left), dtype=int)
    for node in np.flatnonzero(tree.left >= 0):
        depths[[tree.left[node], tree.right[node]]] = depths[node] + 1
    return int(depths.max())
