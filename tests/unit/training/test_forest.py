"""Random forests: shares of classes, sampling, robustness."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier

from treeproof.errors import InvalidInput
from treeproof.training import RobustRandomForestClassifier


def leaf_shares(model: RobustRandomForestClassifier, X, y, k: int) -> np.ndarray:
    """Mean over the trees of class k of its share among the rows of the leaf, row by row."""
    trees = model._trained.trees[k :: model.n_outputs_]
    shares = np.zeros(len(X))
    for tree in trees:
        leaves = np.zeros(len(X), dtype=int)
        for row, x in enumerate(X.astype(np.float32)):
            node = 0
            while tree.left[node] >= 0:
                left = x[tree.feature[node]] < tree.threshold[node]
                node = tree.left[node] if left else tree.right[node]
            leaves[row] = node
        shares += [(y[leaves == leaf] == k).mean() for leaf in leaves]
    return shares / len(trees)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_are_mean_shares(n_classes: int) -> None:
    X, y = make_classification(150, 6, n_informative=4, n_classes=n_classes, random_state=0)
    model = RobustRandomForestClassifier(
        n_estimators=5, max_depth=3, bootstrap=False, random_state=0
    ).fit(X, y)
    if n_classes == 2:
        expected = leaf_shares(model, X, 1 - y, 0)
        np.testing.assert_allclose(model.predict_proba(X)[:, 1], expected, atol=1e-6)
        return
    shares = np.stack([leaf_shares(model, X, y, k) for k in range(n_classes)], 1)
    expected = shares / shares.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-6)


def test_a_forest_is_as_good_as_scikit_learns() -> None:
    X, y = load_digits(return_X_y=True)
    train, test = slice(0, 1_200), slice(1_200, None)
    ours = RobustRandomForestClassifier(n_estimators=50, max_depth=None, random_state=0)
    theirs = RandomForestClassifier(n_estimators=50, random_state=0)
    score = ours.fit(X[train], y[train]).score(X[test], y[test])
    assert score >= theirs.fit(X[train], y[train]).score(X[test], y[test]) - 0.02


@pytest.mark.parametrize(
    "options", [{}, {"bootstrap": False, "max_features": 0.5}, {"max_samples": 0.3}], ids=str
)
def test_the_forest_does_not_depend_on_threads_or_the_order_of_rows(
    options: dict[str, Any],
) -> None:
    X, y = make_classification(300, 9, n_informative=6, n_classes=3, random_state=0)
    model = RobustRandomForestClassifier(n_estimators=7, random_state=3, **options)
    expected = clone(model).fit(X, y).to_ensemble().fingerprint
    for n_jobs in (2, 4):
        threaded = clone(model).set_params(n_jobs=n_jobs).fit(X, y)
        assert threaded.to_ensemble().fingerprint == expected
    order = np.random.default_rng(0).permutation(len(X))
    assert clone(model).fit(X[order], y[order]).to_ensemble().fingerprint == expected


def test_members_differ() -> None:
    X, y = make_classification(300, 9, n_informative=6, random_state=0)
    for options in ({"max_features": None}, {"bootstrap": False}):
        model = RobustRandomForestClassifier(n_estimators=10, random_state=0, **options).fit(X, y)
        roots = {(int(t.feature[0]), float(t.threshold[0])) for t in model._trained.trees}
        assert len(roots) > 3


def test_each_node_sees_few_features() -> None:
    X, y = make_classification(400, 16, n_informative=2, n_redundant=0, random_state=0)
    few = RobustRandomForestClassifier(n_estimators=40, max_depth=1, random_state=0).fit(X, y)
    roots = [int(tree.feature[0]) for tree in few._trained.trees]
    assert len(set(roots)) > 8
    every = clone(few).set_params(max_features=None).fit(X, y)
    assert len({int(tree.feature[0]) for tree in every._trained.trees}) <= 3


def test_leaves_hold_enough_rows() -> None:
    X, y = make_classification(400, 5, random_state=0)
    model = RobustRandomForestClassifier(
        n_estimators=3, max_depth=None, min_samples_leaf=20, bootstrap=False, random_state=0
    ).fit(X, y)
    for tree in model._trained.trees:
        assert tree.cover[tree.left < 0].min() >= 20 * 0.25


def test_an_attacker_turns_the_forest_to_wide_margins() -> None:
    random = np.random.default_rng(0)
    y = random.integers(2, size=400)
    X = np.empty((400, 2))
    X[:, 0] = 0.5 + np.where(y == 1, 0.01, -0.01)
    X[:, 1] = np.where(y == 1, 0.8, 0.2) + random.uniform(-0.1, 0.1, 400)
    X[random.random(400) < 0.05, 1] = 0.5
    options: dict[str, Any] = {"n_estimators": 10, "max_depth": 1, "max_features": None}
    natural = RobustRandomForestClassifier(random_state=0, **options).fit(X, y)
    robust = RobustRandomForestClassifier(eps=0.2, random_state=0, **options).fit(X, y)
    assert {int(tree.feature[0]) for tree in natural._trained.trees} == {0}
    assert {int(tree.feature[0]) for tree in robust._trained.trees} == {1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_features": "log2"}, "'max_features' must be 'sqrt'"),
        ({"max_features": 2.0}, "'max_features'"),
        ({"max_samples": 0.0}, "'max_samples'"),
        ({"min_samples_leaf": 0.0}, "'min_samples_leaf'"),
        ({"n_estimators": 0}, "'n_estimators'"),
        ({"max_depth": 0}, "'max_depth'"),
    ],
    ids=str,
)
def test_wrong_parameters_are_named(options: dict[str, Any], message: str) -> None:
    X, y = make_classification(50, 4, random_state=0)
    with pytest.raises(InvalidInput, match=message):
        RobustRandomForestClassifier(**options).fit(X, y)
