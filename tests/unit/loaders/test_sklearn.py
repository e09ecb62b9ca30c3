"""Every scikit-learn family, bit for bit, on rows that provoke its rounding and tie rules."""

import dataclasses
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from tests.stress_rows import stress_rows
from tests.unit.loaders.sklearn_cases import CASES, N_FEATURES, X, Y, fitted, with_categories
from treeproof.errors import ModelWarning
from treeproof.loaders import load_ensemble
from treeproof.loaders.base import Loaded, LoadOptions
from treeproof.loaders.registry import load_object
from treeproof.loaders.self_test import run_self_test
from treeproof.model import evaluate
from treeproof.prediction import Model

# scikit-learn sums rows to look for infinite values, which overflows on huge ones.
quiet = np.errstate(over="ignore", invalid="ignore")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Thread teams cost far more than these small models, above all on busy machines."""
    with threadpool_limits(1, user_api="openmp"):
        yield


def load(estimator: Any, threshold: float | None = None) -> Loaded:
    return load_object(estimator, LoadOptions(decision_threshold=threshold))


@quiet
def library_margins(estimator: Any, rows: Any, threshold: float | None) -> NDArray[np.floating]:
    """The library's own scores, asked without the loader."""
    if hasattr(estimator, "_raw_predict") and not hasattr(estimator, "estimators_"):
        return estimator._raw_predict(rows)
    if hasattr(estimator, "decision_function"):
        return estimator.decision_function(rows)
    if hasattr(estimator, "predict_proba"):
        probabilities = estimator.predict_proba(rows)
        return probabilities if threshold is None else probabilities[:, 1]
    return estimator.predict(rows)


@quiet
def library_labels(estimator: Any, rows: Any, threshold: float | None) -> NDArray[Any]:
    if threshold is None:
        return estimator.predict(rows)
    return estimator.classes_[(estimator.predict_proba(rows)[:, 1] >= threshold).astype(int)]


def assert_bit_equal(ours: NDArray[np.floating], theirs: NDArray[np.floating]) -> None:
    theirs = np.asarray(theirs).reshape(len(ours), -1)
    ours = ours.reshape(len(ours), -1)
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    assert np.array_equal(ours.view(np.int64), np.ascontiguousarray(theirs).view(np.int64))


def rows_for(estimator: Any, loaded: Loaded, n: int = 10_000) -> NDArray[np.float64]:
    """Stress rows; scikit-learn refuses infinite categories, so they become unknown ones."""
    rows = stress_rows(loaded.ensemble, n)
    categorical = getattr(estimator, "is_categorical_", None)
    if categorical is not None:
        part = rows[:, categorical]
        rows[:, categorical] = np.where(np.isinf(part), 77_777.0, part)
    return rows


@pytest.mark.parametrize("name", CASES)
def test_margins_and_labels_are_the_librarys_own(name):
    estimator, threshold = fitted(name)
    loaded = load(estimator, threshold)
    rows = rows_for(estimator, loaded)
    model = Model(loaded.ensemble)

    assert_bit_equal(model.margins(rows), library_margins(estimator, rows, threshold))
    if model.classes:
        labels = library_labels(estimator, rows, threshold)
        assert np.array_equal(model.predict(rows), labels)
        assert len(np.unique(labels)) > 1 or "one" in name


@pytest.mark.parametrize("name", ["tree", "forest", "boosting, three classes", "isolation forest"])
def test_leaves_are_numbered_as_in_the_library(name):
    estimator = fitted(name)[0]
    rows = np.ascontiguousarray(X[:50])
    leaves = Model(load(estimator).ensemble).leaf_indices(rows)
    members = getattr(estimator, "estimators_", [estimator])
    expected = [member.apply(rows) for member in np.ravel(members)]
    assert np.array_equal(leaves, np.column_stack(expected))


@pytest.mark.parametrize("name", CASES)
def test_the_self_test_passes_and_the_plain_meaning_agrees(name):
    estimator, threshold = fitted(name)
    loaded = load(estimator, threshold)
    ensemble = run_self_test(loaded)
    assert ensemble.provenance.self_test.startswith("passed")
    rows = rows_for(estimator, loaded, 300)
    ours = evaluate.margins(ensemble, rows)
    assert_bit_equal(ours, Model(ensemble).margins(rows))


def test_missing_and_infinite_values_are_allowed_where_the_library_takes_them():
    allowed = {
        name: (loaded.ensemble.missing_allowed, loaded.ensemble.infinite_allowed)
        for name in ("forest", "boosting", "histogram boosting", "adaboost, stumps")
        for loaded in [load(fitted(name)[0])]
    }
    assert allowed == {
        "forest": (True, False),
        "boosting": (False, False),
        "histogram boosting": (True, True),
        "adaboost, stumps": (False, False),
    }


def test_splits_on_missing_values_alone_take_infinite_values_for_numbers():
    estimator, _ = fitted("histogram boosting, missing")
    loaded = load(estimator)
    assert np.isneginf(loaded.ensemble.trees.threshold).any()
    rows = np.array([[value] * N_FEATURES for value in (np.inf, -np.inf, np.nan, 1.7e308)])
    assert_bit_equal(Model(loaded.ensemble).margins(rows), estimator.decision_function(rows))


def test_a_score_of_zero_is_class_1_for_boosting_and_class_0_for_histogram_boosting():
    rows = np.zeros((40, 2))
    target = np.arange(40) % 2
    boosting = GradientBoostingClassifier(init="zero", n_estimators=1, learning_rate=0.0)
    boosting.fit(np.arange(80.0).reshape(40, 2), target)
    histogram = HistGradientBoostingClassifier(max_iter=1).fit(rows, target)
    for estimator, label in ((boosting, 1), (histogram, 0)):
        model = Model(load(estimator).ensemble)
        assert model.margins(rows)[0] == 0.0
        assert model.predict(rows)[0] == label == estimator.predict(rows)[0]


def test_even_forests_break_ties_for_the_first_class():
    estimator = fitted("forest, even and shallow")[0]
    loaded = load(estimator)
    rows = rows_for(estimator, loaded)
    margins = Model(loaded.ensemble).margins(rows)
    assert np.array_equal(
        Model(loaded.ensemble).predict(rows), estimator.classes_[np.argmax(margins, axis=1)]
    )


def test_a_threshold_is_met_exactly_at_the_cut():
    estimator = fitted("boosting")[0]
    for threshold in (1e-9, 0.1, 0.5, 0.9, 1.0):
        cut = load(estimator, threshold).ensemble.decision.cut
        below = np.nextafter(cut, -np.inf)
        probability = estimator._loss.predict_proba(np.array([below, cut]))[:, 1]
        assert probability[0] < threshold <= probability[1]


@pytest.mark.parametrize(
    "kind",
    [RandomForestClassifier, RandomForestRegressor, ExtraTreesClassifier, ExtraTreesRegressor],
)
def test_sums_in_no_fixed_order_are_warned_of_unless_they_are_exact(kind):
    def forest(**options):
        return kind(n_estimators=15, n_jobs=2, random_state=0, **options).fit(X, Y)

    rounded = forest(max_depth=3)
    with pytest.warns(ModelWarning, match=r"n_jobs=2: .* Deploy the forest with n_jobs=1"):
        ensemble = load_ensemble(rounded)
    assert ensemble.provenance.notes[0].startswith("n_jobs=2: ")
    assert ensemble.fingerprint == load_ensemble(rounded.set_params(n_jobs=1)).fingerprint
    assert load_ensemble(rounded.set_params(n_jobs=None)).provenance.notes == ()
    # Zeros and ones, and whole numbers, have the same sum in every order; so have two numbers.
    pure = forest(max_depth=None, bootstrap=False)
    assert load_ensemble(pure).provenance.notes == ()
    two = kind(n_estimators=2, n_jobs=2, max_depth=3, random_state=0).fit(X, Y)
    assert load_ensemble(two).provenance.notes == ()


def test_the_model_adds_in_order_whatever_the_jobs():
    estimator = RandomForestClassifier(15, max_depth=3, n_jobs=2, random_state=0).fit(X, Y)
    loaded = load(estimator)
    assert estimator.n_jobs == 2
    rows = rows_for(estimator, loaded)
    margins = Model(loaded.ensemble).margins(rows)
    # Two threads add in any order, so the library itself promises no more than this.
    assert np.allclose(margins, library_margins(estimator, rows, None), rtol=1e-14, atol=0.0)
    assert_bit_equal(margins, library_margins(estimator.set_params(n_jobs=1), rows, None))


def test_a_search_gives_its_best_estimator():
    search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [2, 5]}).fit(X, Y)
    loaded = load(search)
    rows = rows_for(search, loaded, 500)
    assert np.array_equal(Model(loaded.ensemble).predict(rows), library_labels(search, rows, None))
    assert "best_estimator_ of GridSearchCV." in loaded.ensemble.provenance.notes


@pytest.mark.parametrize("threshold", [0.2, 0.8, "auto"])
def test_a_fixed_threshold_classifier_brings_its_threshold(threshold):
    forest = RandomForestClassifier(10, max_depth=3, random_state=0)
    estimator = FixedThresholdClassifier(forest, threshold=threshold).fit(X, Y)
    loaded = load(estimator)
    rows = rows_for(estimator, loaded, 2_000)
    assert np.array_equal(
        Model(loaded.ensemble).predict(rows), library_labels(estimator, rows, None)
    )


def test_a_tuned_threshold_classifier_brings_its_threshold():
    boosting = GradientBoostingClassifier(n_estimators=5, random_state=0)
    estimator = TunedThresholdClassifierCV(boosting, scoring="f1", random_state=0).fit(X, Y)
    loaded = load(estimator)
    rows = rows_for(estimator, loaded, 2_000)
    assert np.array_equal(
        Model(loaded.ensemble).predict(rows), library_labels(estimator, rows, None)
    )


def test_a_threshold_of_the_user_overrides_the_wrapper():
    forest = RandomForestClassifier(10, max_depth=3, random_state=0)
    estimator = FixedThresholdClassifier(forest, threshold=0.9).fit(X, Y)
    assert load(estimator, 0.25).ensemble.decision.cut == 0.25


def test_data_frames_match_by_name_and_text_categories_become_codes():
    pandas = pytest.importorskip("pandas")
    rows = with_categories()
    frame = pandas.DataFrame(rows, columns=list("abcdef"))
    words = np.array([f"level {number}" for number in range(61)], dtype=object)
    for column in ("b", "e"):
        known = frame[column].notna()
        values = np.full(len(frame), None, dtype=object)
        values[known] = words[frame[column][known].astype(int)]
        frame[column] = pandas.Series(values, dtype="category")
    estimator = HistGradientBoostingClassifier(
        max_iter=15, min_samples_leaf=5, categorical_features=["b", "e"]
    ).fit(frame, Y)
    loaded = load(estimator)
    model = Model(loaded.ensemble)
    assert model.feature_names == tuple("abcdef")
    assert set(loaded.ensemble.categories) == {1, 4}
    assert_bit_equal(model.margins(frame[list("fedcba")]), estimator.decision_function(frame))
    stress = stress_rows(loaded.ensemble)
    assert_bit_equal(model.margins(stress), loaded.reference.margins(stress))
    assert np.array_equal(model.label_indices(stress), loaded.reference.labels(stress))
    assert run_self_test(loaded).provenance.self_test.startswith("passed")


def test_unknown_text_categories_go_where_missing_values_go():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    frame["b"] = np.array(["low", "mid", "high"], dtype=object)[
        (Y + np.arange(len(Y)) % 3 // 2) % 3
    ]
    estimator = HistGradientBoostingClassifier(
        max_iter=10, min_samples_leaf=5, categorical_features=["b"]
    ).fit(frame, Y)
    model = Model(load(estimator).ensemble)
    odd = frame.head(60).copy()
    odd["b"] = ["low", "unheard of", None] * 20
    assert_bit_equal(model.margins(odd), estimator.decision_function(odd))


def test_a_frame_trained_estimator_answers_plain_rows_in_the_self_test():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"column {number}" for number in range(N_FEATURES)])
    for estimator in (RandomForestClassifier(5, random_state=0), DecisionTreeClassifier()):
        loaded = load(estimator.fit(frame, Y))
        assert run_self_test(loaded).provenance.self_test.startswith("passed")
        assert loaded.ensemble.feature_names == tuple(frame.columns)


def test_a_newer_library_leaves_a_note(monkeypatch):
    estimator = fitted("tree")[0]
    monkeypatch.setattr(sys.modules["sklearn"], "__version__", "99.1.dev0")
    notes = load(estimator).ensemble.provenance.notes
    assert any("newer" in note and "99.1" in note for note in notes)


def test_a_wrong_translation_fails_the_self_test():
    loaded = load(fitted("boosting")[0])
    trees = loaded.ensemble.trees
    shifted = np.nextafter(trees.threshold, np.inf, dtype=np.float64)
    inner = trees.feature >= 0
    threshold = np.where(inner, shifted.astype(np.float32).astype(np.float64), 0.0)
    threshold[inner] = np.nextafter(threshold[inner].astype(np.float32), np.float32(np.inf))
    wrong = dataclasses.replace(
        loaded.ensemble, trees=trees._replace(threshold=threshold.astype(np.float64))
    )
    with pytest.raises(Exception, match="disagree"):
        run_self_test(Loaded(wrong, loaded.reference))
