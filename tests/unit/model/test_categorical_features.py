"""Features that a library knows as categorical never move, whether a tree tests them or not."""

import lightgbm
import numpy as np
import pytest
import xgboost
from sklearn.ensemble import HistGradientBoostingClassifier

import treeproof as tp


def data():
    """Two columns of codes and one number, which alone decides the label."""
    rng = np.random.default_rng(0)
    # A constant column, which LightGBM does not describe.
    X = np.column_stack([rng.integers(0, 3, 200), rng.normal(size=200), np.full(200, 3)])
    return X.astype(float), (X[:, 1] > 0.0).astype(int)


def fitted(library):
    X, y = data()
    if library == "xgboost":
        types = ["c", "q", "c"]
        matrix = xgboost.DMatrix(X, y, feature_types=types, enable_categorical=True)
        return xgboost.train({"objective": "binary:logistic", "max_depth": 1}, matrix, 3)
    if library == "lightgbm":
        matrix = lightgbm.Dataset(X, y, categorical_feature=[0, 2])
        return lightgbm.train({"objective": "binary", "num_leaves": 2, "verbose": -1}, matrix, 3)
    return HistGradientBoostingClassifier(
        categorical_features=[0, 2], max_iter=3, max_leaf_nodes=2
    ).fit(X, y)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "sklearn"])
def test_witnesses_of_boxes_leave_categories_that_no_tree_tests(library, tmp_path):
    model = tp.load(fitted(library))
    assert model.ensemble.is_categorical.tolist() == [True, False, True]
    assert set(model.ensemble.trees.feature.tolist()) <= {-1, 1}
    box = tp.Box([0.0, -9.0, 0.0], [0.0, 9.0, 0.0])
    results = tp.verify(model, [[2.0, 0.5, 3.0]], perturbation=box, evidence=True)
    assert results.verdict.tolist() == ["falsified"]
    assert results.witness[0, [0, 2]].tolist() == [2.0, 3.0]
    model.save(tmp_path / "model.treeproof")
    again = tp.load(tmp_path / "model.treeproof")
    assert again.ensemble.categorical == model.ensemble.categorical == (0, 2)
