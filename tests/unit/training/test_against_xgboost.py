"""Natural training finds XGBoost's own trees."""

import json
from typing import Any

import numpy as np
import pytest
import xgboost as xgb
from sklearn.datasets import load_breast_cancer, make_classification

from treeproof.training import RobustGBDTClassifier


def rows(n_classes: int, *, missing: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(600, 8, n_informative=5, n_classes=n_classes, random_state=2)
    X = X.astype(np.float32)
    X[np.random.default_rng(0).random(X.shape) < missing] = np.nan
    return X, y


def shapes(booster: xgb.Booster) -> list[Any]:
    """Trees as nested tuples of features and thresholds; leaves as rounded values."""
    document = json.loads(booster.save_raw("json"))

    def shape(tree: dict[str, Any], node: int) -> Any:
        number = tree["split_conditions"][node]
        if tree["left_children"][node] < 0:
            return round(number, 4)
        sides = [shape(tree, tree[side][node]) for side in ("left_children", "right_children")]
        return tree["split_indices"][node], np.float32(number), *sides

    trees = document["learner"]["gradient_booster"]["model"]["trees"]
    return [shape(tree, 0) for tree in trees]


def both(X: Any, y: Any, **options: Any) -> tuple[RobustGBDTClassifier, xgb.XGBClassifier]:
    ours = RobustGBDTClassifier(tree_method="exact", n_estimators=8, **options).fit(X, y)
    theirs = xgb.XGBClassifier(tree_method="exact", n_estimators=8, **options).fit(X, y)
    return ours, theirs


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_depth": 3, "learning_rate": 0.05},
        {"min_child_weight": 5.0, "reg_lambda": 0.3},
        {"gamma": 2.0, "max_depth": 4},
    ],
    ids=str,
)
def test_exact_training_grows_the_same_trees(n_classes: int, options: dict[str, Any]) -> None:
    X, y = rows(n_classes)
    ours, theirs = both(X, y, base_score=0.5, **options)
    expected = shapes(theirs.get_booster())
    found = shapes(ours.to_xgboost())
    # XGBoost sums gradients in float32; a tree whose two best gains nearly agree may differ.
    same = sum(a == b for a, b in zip(found, expected, strict=True))
    assert same >= 0.85 * len(expected)
    margins = theirs.predict(X, output_margin=True)
    np.testing.assert_allclose(ours.decision_function(X), margins, atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("options", [{}, {"min_child_weight": 5.0}], ids=str)
def test_missing_values_are_sent_where_xgboost_sends_them(
    n_classes: int, options: dict[str, Any]
) -> None:
    X, y = rows(n_classes, missing=0.1)
    ours, theirs = both(X, y, base_score=0.5, **options)
    margins = theirs.predict(X, output_margin=True)
    np.testing.assert_allclose(ours.decision_function(X), margins, atol=1e-5)


def test_two_classes_start_from_the_same_share() -> None:
    X, y = rows(2)
    weights = np.where(y == 1, 3.0, 1.0)
    ours = RobustGBDTClassifier(tree_method="exact", n_estimators=3).fit(X, y, weights)
    theirs = xgb.XGBClassifier(tree_method="exact", n_estimators=3).fit(X, y, sample_weight=weights)
    margins = theirs.predict(X, output_margin=True)
    np.testing.assert_allclose(ours.decision_function(X), margins, atol=1e-5)


def test_constraints_of_two_classes_are_kept_in_the_same_way() -> None:
    X, y = rows(2)
    ours, theirs = both(X, y, base_score=0.5, monotone_constraints=(1, -1, 0, 0, 0, 0, 0, 0))
    margins = theirs.predict(X, output_margin=True)
    np.testing.assert_allclose(ours.decision_function(X), margins, atol=1e-5)


def test_binned_training_is_as_good_on_held_out_rows() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = X.astype(np.float32)
    train, test = slice(0, None, 2), slice(1, None, 2)
    scores = []
    for method in ("hist", "exact"):
        ours = RobustGBDTClassifier(tree_method=method, n_estimators=30, max_bin=64)
        scores.append(ours.fit(X[train], y[train]).score(X[test], y[test]))
    theirs = xgb.XGBClassifier(tree_method="exact", n_estimators=30).fit(X[train], y[train])
    expected = theirs.score(X[test], y[test])
    assert scores[1] == expected
    assert scores[0] >= expected - 0.01
