"""Pipelines and wrappers, bit for bit in raw columns, and what is refused with which sentence."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import treeproof as tp
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


QUICK = (
    "reversed by a negative range, forest",
    "min-max clipped, catboost",
    "imputer with indicator, scaler, xgboost",
    "imputer of zero with indicator, forest",
    "bins one-hot, sparse, xgboost takes zero for missing",
    "uniform quantiles, lightgbm",
    "log with negative numbers, histogram",
    "one-hot, known categories only, lightgbm",
    "one-hot, dropped and infrequent, catboost",
    "imputed and encoded by branches, boosting",
    "ordinal with unknown as missing, histogram categories",
    "number categories that are numbers elsewhere, lightgbm",
    "text left to histogram boosting",
    "selected after encoding, forest",
    "nested pipelines, unions, nothing",
    "fixed threshold around a pipeline, xgboost",
    "calibrated by a sigmoid, boosting",
    "weighted soft votes of trees, text labels",
    "bagged trees on some columns, three classes",
    "one against the rest, forest, ties",
    "several targets, boosting",
)


@pytest.mark.parametrize("name", QUICK)
def test_scores_and_labels_are_those_of_the_deployed_object(name):
    compare(name, 600)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_scores_and_labels_on_ten_thousand_rows(name):
    compare(name, 10_000)


def check_radii(name: str, n: int) -> int:
    """Witnesses flip the deployed object, and nothing tried inside a radius does.

    Returns how many witnesses there were.
    """
    deployed, case = fitted(name)
    ensemble = tp.load(deployed, self_test=False).ensemble
    rows = rows_for(ensemble, case, 2_000)
    # Rows without infinities and huge numbers, around which nothing is near.
    rows = rows[(np.nan_to_num(np.abs(rows)) < 1e6).all(axis=1)][:n]
    labels = Model(ensemble).predict(rows)
    results = tp.radius(Model(ensemble), rows, labels, time_limit_s=5.0)
    random = np.random.default_rng(0)
    numeric = [f for f in range(ensemble.n_features) if not ensemble.is_categorical[f]]
    n_witnesses = 0
    for number, row in enumerate(rows):
        witness = results.witness[number]
        with np.errstate(all="ignore"):
            if np.isfinite(results.witness_distance[number]):
                n_witnesses += 1
                answer = deployed.predict(raw_rows(ensemble, case, witness[None, :]))
                assert np.ravel(answer)[0] != labels[number]
                moved = np.abs(witness - row)[numeric]
                assert np.nanmax(moved, initial=0.0) <= np.nextafter(
                    results.witness_distance[number], np.inf
                )
            lower = min(results.lower[number], 1e6)
            near = np.repeat(row[None, :], 40, axis=0)
            step = random.uniform(-1, 1, (40, len(numeric)))
            step[::2] = np.sign(step[::2])
            near[:, numeric] += step * lower * (1 - 1e-9)
            near[:, numeric] = np.clip(near[:, numeric], case.smallest, case.largest)
            # Sums are rounded, and near a radius of one step of the floats may leave the ball.
            near = np.where(np.abs(near - row) < lower, near, row)
            answers = np.ravel(deployed.predict(raw_rows(ensemble, case, near)))
        assert (answers == labels[number]).all()
    trees = ensemble.trees
    is_number = (trees.feature >= 0) & (trees.category_set < 0) & np.isfinite(trees.threshold)
    # Codes of categories and what is missing never move, and may be all that is looked at.
    assert n_witnesses > n // 2 or not is_number.any()
    return n_witnesses


@pytest.mark.parametrize(
    "name", ["imputer with indicator, scaler, xgboost", "one-hot, known categories only, lightgbm"]
)
def test_radii_hold_and_witnesses_flip_the_pipeline(name):
    check_radii(name, 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in CASES if "regression" not in name and "target" not in name]
)
def test_radii_hold_and_witnesses_flip_every_deployed_object(name):
    check_radii(name, 12)
