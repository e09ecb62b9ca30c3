"""The exported model is the trained one, bit for bit."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.base import clone
from sklearn.datasets import make_classification

import treeproof
from tests.stress_rows import stress_rows
from treeproof.errors import BackendMissing, InvalidInput
from treeproof.model import evaluate
from treeproof.training import RobustGBDTClassifier, RobustRandomForestClassifier

ESTIMATORS = [
    RobustGBDTClassifier(n_estimators=15),
    RobustGBDTClassifier(n_estimators=15, eps=0.2, tree_method="exact", subsample=0.7),
    RobustGBDTClassifier(n_estimators=5, base_score=0.123, max_depth=None),
    RobustRandomForestClassifier(n_estimators=15, eps=0.2, random_state=0),
]


@cache
def fitted(estimator: Any, n_classes: int) -> tuple[Any, np.ndarray]:
    """An estimator trained on rows with missing values, and rows that stress its thresholds."""
    X, y = make_classification(300, 8, n_informative=5, n_classes=n_classes, random_state=1)
    X[np.random.default_rng(0).random(X.shape) < 0.05] = np.nan
    model = clone(estimator).set_params(random_state=0).fit(X, y)
    return model, stress_rows(model.to_ensemble(), 3_000)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_boosters_and_files_hold_the_same_model(
    estimator: Any, n_classes: int, tmp_path: Path
) -> None:
    model, rows = fitted(estimator, n_classes)
    expected = model.decision_function(rows)
    assert expected.dtype == np.float32
    assert np.array_equal(evaluate.margins(model.to_ensemble(), rows).squeeze(), expected)
    boosters = [model.to_xgboost()]
    for path in (tmp_path / "model.json", tmp_path / "model.ubj"):
        model.save_xgboost(path)
        boosters.append(xgb.Booster(model_file=path))
        loaded = treeproof.load(path)
        assert loaded.fingerprint == model.to_ensemble().fingerprint
        assert np.array_equal(loaded.predict(rows), model.predict(rows))
    for booster in boosters:
        assert np.array_equal(booster.predict(xgb.DMatrix(rows), output_margin=True), expected)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_xgboost_gives_the_same_probabilities_and_labels(n_classes: int, tmp_path: Path) -> None:
    model, rows = fitted(ESTIMATORS[0], n_classes)
    model.save_xgboost(tmp_path / "model.ubj")
    classifier = xgb.XGBClassifier()
    classifier.load_model(tmp_path / "model.ubj")
    assert np.array_equal(classifier.predict_proba(rows), model.predict_proba(rows))
    assert np.array_equal(classifier.predict(rows), model.predict(rows))


def test_names_of_columns_are_exported(tmp_path: Path) -> None:
    X, y = make_classification(100, 3, n_informative=3, n_redundant=0, random_state=0)
    frame = pd.DataFrame(X, columns=["age", "income", "rent"])
    model = RobustGBDTClassifier(n_estimators=2).fit(frame, y)
    assert model.to_xgboost().feature_names == ["age", "income", "rent"]
    assert model.to_ensemble().feature_names == ("age", "income", "rent")
    model.save_xgboost(tmp_path / "model.json")
    assert treeproof.load(tmp_path / "model.json").feature_names == ("age", "income", "rent")


def test_names_that_xgboost_refuses_are_left_out() -> None:
    X, y = make_classification(100, 3, n_informative=3, n_redundant=0, random_state=0)
    frame = pd.DataFrame(X, columns=["age", "income [k]", "rent"])
    model = RobustGBDTClassifier(n_estimators=2).fit(frame, y)
    assert model.to_xgboost().feature_names is None


def test_labels_of_the_ensemble_are_those_of_the_estimator() -> None:
    X, y = make_classification(100, 3, n_informative=3, n_redundant=0, random_state=0)
    words = np.array(["no", "yes"])[y]
    model = RobustGBDTClassifier(n_estimators=2).fit(X, words)
    assert model.to_ensemble().classes == ("no", "yes")
    assert set(model.predict(X)) == {"no", "yes"}


def test_the_file_must_have_a_suffix_that_xgboost_knows(tmp_path: Path) -> None:
    model, _ = fitted(ESTIMATORS[0], 2)
    with pytest.raises(InvalidInput, match=r"\.json or \.ubj.*'model\.txt'"):
        model.save_xgboost(tmp_path / "model.txt")
    assert not list(tmp_path.iterdir())


def test_files_need_no_xgboost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = fitted(ESTIMATORS[0], 2)
    monkeypatch.setitem(__import__("sys").modules, "xgboost", None)
    model.save_xgboost(tmp_path / "model.json")
    with pytest.raises(BackendMissing, match="pip install"):
        model.to_xgboost()


@pytest.mark.parametrize(
    "names", [[0, 1], ["no", "yes"], [0, 1, 2], ["a", "b", "c"], [False, True]]
)
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_the_onnx_model_has_the_same_labels_and_probabilities(
    names: list[Any], eps: float, tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    random = np.random.default_rng(0)
    X = random.random((120, 4)).astype(np.float32)
    y = np.array(names)[np.digitize(X[:, 0] + 0.2 * X[:, 1], [0.4, 0.8][: len(names) - 1])]
    X[random.random(X.shape) < 0.1] = np.nan
    model = RobustGBDTClassifier(eps=eps, n_estimators=5, max_depth=3).fit(X, y)
    path = tmp_path / "model.onnx"
    model.save_onnx(path)
    session = onnxruntime.InferenceSession(path)
    labels, probabilities = session.run(None, {"X": X})
    expected = model.predict(X)
    if isinstance(names[0], bool):  # ONNX knows whole numbers and texts
        expected = np.searchsorted(model.classes_, expected)
    np.testing.assert_array_equal(labels, expected)
    np.testing.assert_allclose(probabilities, model.predict_proba(X), atol=1e-6)
    loaded = treeproof.load(path)
    assert "bit-equal" in loaded.ensemble.provenance.self_test
    np.testing.assert_array_equal(loaded.predict(X), expected)
