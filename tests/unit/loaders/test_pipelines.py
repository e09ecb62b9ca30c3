"""Pipelines and wrappers, bit for bit in raw columns, and what is refused with which sentence."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tests.stress_rows import stress_rows
from tests.unit.loaders.pipeline_cases import CASES, Case, fitted
from treeproof.loaders.base import LoadOptions
from treeproof.loaders.registry import load_object
from treeproof.model.ensemble import Ensemble
from treeproof.prediction import Model

# Rows of plain numbers for models that were trained on data frames, unknown categories, …
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with threadpool_limits(1, user_api="openmp"):
        yield


def raw_rows(ensemble: Ensemble, case: Case, rows: NDArray[np.float64]) -> Any:
    """Rows as the deployed object takes them, made without the loader."""
    columns: list[Any] = []
    for feature, values in enumerate(rows.T):
        known = ensemble.categories.get(feature)
        if known is None:
            columns.append(values)
            continue
        text = dict(enumerate(known))
        columns.append(np.array([text.get(value, "mauve") for value in values], dtype=object))
    if isinstance(case.rows, pd.DataFrame):
        return pd.DataFrame(dict(zip(case.rows.columns, columns, strict=True)))
    return np.column_stack(columns)


def rows_for(ensemble: Ensemble, case: Case, n: int) -> NDArray[np.float64]:
    rows = stress_rows(ensemble, n)
    numeric = [f for f in range(ensemble.n_features) if f not in ensemble.categorical]
    rows[:, numeric] = np.clip(rows[:, numeric], case.smallest, case.largest)
    return rows


def deployed_scores(model: Any, rows: Any, *, one: bool = False) -> NDArray[np.floating]:
    """Raw scores, asked of the model behind all steps and wrappers; one of a forest if needed."""
    inside = (
        ("best_estimator_", one),
        ("regressor_", one),
        ("calibrated_classifiers_", True),
    )
    for attribute, as_one in inside:
        if hasattr(model, attribute):
            found = getattr(model, attribute)
            found = found[0].estimator if isinstance(found, list) else found
            return deployed_scores(found, rows, one=as_one)
    kind = type(model).__name__
    if hasattr(model, "steps"):
        for _, step in model.steps[:-1]:
            if hasattr(step, "transform"):
                rows = step.transform(rows)
        return deployed_scores(model.steps[-1][1], rows, one=one)
    if kind in ("FixedThresholdClassifier", "TunedThresholdClassifierCV"):
        return deployed_scores(model.estimator_, rows, one=True)
    if kind == "FrozenEstimator":
        return deployed_scores(model.estimator, rows, one=one)
    if kind == "OneVsRestClassifier":
        parts = [deployed_scores(e, rows, one=True) for e in model.estimators_]
        return np.column_stack(parts)
    if kind.startswith("XGB"):
        return model.predict(rows, output_margin=True)
    if kind.startswith("LGBM"):
        return model.predict(rows, raw_score=True)
    if kind.startswith("CatBoost"):
        return model.predict(rows, prediction_type="RawFormulaVal")
    if hasattr(model, "decision_function"):
        return model.decision_function(rows)
    if hasattr(model, "predict_proba"):
        probability = model.predict_proba(rows)
        return probability[:, 1] if one else probability
    return model.predict(rows)


def assert_bit_equal(ours: NDArray[np.floating], theirs: NDArray[np.floating]) -> None:
    theirs = np.ascontiguousarray(np.asarray(theirs).reshape(len(ours), -1))
    ours = np.ascontiguousarray(ours.reshape(len(ours), -1))
    assert ours.dtype == theirs.dtype
    bits = np.int32 if ours.dtype == np.float32 else np.int64
    wrong = np.flatnonzero((ours.view(bits) != theirs.view(bits)).any(axis=1))
    assert not wrong.size, (wrong[:5], ours[wrong[:5]], theirs[wrong[:5]])


def compare(name: str, n: int) -> None:
    deployed, case = fitted(name)
    loaded = load_object(deployed, LoadOptions())
    model = Model(loaded.ensemble)
    rows = rows_for(loaded.ensemble, case, n)
    raw = raw_rows(loaded.ensemble, case, rows)
    # Libraries sum rows to look for infinite values, and take logarithms of any number.
    with np.errstate(all="ignore"):
        assert_bit_equal(model.margins(rows), deployed_scores(deployed, raw))
        # What users have are raw rows; a text that no category is has no code.
        assert_bit_equal(model.margins(raw), model.margins(rows))
        if model.classes and len(model.classes) > 1:
            expected = np.asarray(deployed.predict(raw)).ravel()
            assert np.array_equal(model.predict(rows), expected)
            assert len(np.unique(expected)) > 1


@pytest.mark.parametrize("name", CASES)
def test_scores_and_labels_are_those_of_the_deployed_object(name):
    compare(name, 600)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_scores_and_labels_on_ten_thousand_rows(name):
    compare(name, 10_000)
