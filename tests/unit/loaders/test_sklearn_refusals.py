"""What is no representable scikit-learn model is refused by a sentence that helps."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    RandomTreesEmbedding,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LinearRegression
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeRegressor
from threadpoolctl import threadpool_limits

from tests.unit.loaders.sklearn_cases import SAMME, TARGET, Y3, X, Y
from treeproof.errors import InvalidInput, SelfTestFailed, TreeproofError, UnsupportedModel
from treeproof.loaders import load_ensemble
from treeproof.loaders.base import LoadOptions
from treeproof.loaders.pipelines import wrappers
from treeproof.loaders.registry import load_object
from treeproof.loaders.sklearn.loader import SklearnLoader
from treeproof.prediction import Model

SMALL_FOREST = RandomForestClassifier(3, max_depth=2, random_state=0)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Thread teams cost far more than these small models, above all on busy machines."""
    with threadpool_limits(1, user_api="openmp"):
        yield


def load(estimator, threshold=None):
    return load_object(estimator, LoadOptions(decision_threshold=threshold))


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeClassifier(),
        ExtraTreeRegressor(),
        RandomForestClassifier(),
        ExtraTreesClassifier(),
        GradientBoostingRegressor(),
        HistGradientBoostingClassifier(),
        AdaBoostClassifier(**SAMME),
        IsolationForest(),
        GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1]}),
        FixedThresholdClassifier(DecisionTreeClassifier()),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_unfitted_estimators(estimator):
    with pytest.raises(InvalidInput, match=r"must be fitted.*Call fit first"):
        load(estimator)


def test_several_targets():
    targets = np.column_stack([Y, Y3])
    for estimator in (DecisionTreeClassifier(), RandomForestClassifier(2)):
        with pytest.raises(UnsupportedModel, match=r"one target. Got 2. Fit one estimator"):
            load(estimator.fit(X, targets))
    for estimator in (DecisionTreeRegressor(), RandomForestRegressor(2)):
        with pytest.raises(UnsupportedModel, match=r"one target. Got 2. Fit one estimator"):
            load(estimator.fit(X, targets * 1.5))


def test_a_single_class():
    for estimator in (DecisionTreeClassifier(), RandomForestClassifier(2)):
        with pytest.raises(UnsupportedModel, match="at least two classes"):
            load(estimator.fit(X, np.zeros(len(X))))


@pytest.mark.parametrize(
    "initial",
    [GaussianNB(), DummyClassifier(strategy="stratified", random_state=0)],
    ids=["a model", "a random guess"],
)
def test_boosting_from_an_estimator(initial):
    estimator = GradientBoostingClassifier(init=initial, n_estimators=2).fit(X, Y)
    with pytest.raises(UnsupportedModel, match=r"same score.*init=None or init='zero'"):
        load(estimator)


def test_boosted_regression_from_an_estimator():
    estimator = GradientBoostingRegressor(init=LinearRegression(), n_estimators=2).fit(X, TARGET)
    with pytest.raises(UnsupportedModel, match="LinearRegression"):
        load(estimator)


@pytest.mark.parametrize(
    ("estimator", "remedy"),
    [
        (make_pipeline(PCA(), SMALL_FOREST), r"Step 'pca' \(PCA\) mixes columns"),
        (CalibratedClassifierCV(SMALL_FOREST, cv=2), "ensemble=False"),
        (VotingClassifier([("a", SMALL_FOREST)]), "voting='soft'"),
        (StackingClassifier([("a", SMALL_FOREST)], GaussianNB(), cv=2), "one of its members"),
        (BaggingClassifier(SMALL_FOREST, n_estimators=2), "Train one forest"),
        (AdaBoostRegressor(n_estimators=2), "weighted median"),
        (RandomTreesEmbedding(2), "RandomForest"),
        (GaussianNB(), "Supported are decision trees"),
        (StandardScaler(), "Supported are decision trees"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_estimators(estimator, remedy):
    assert SklearnLoader().accepts_object(estimator)
    with pytest.raises(UnsupportedModel, match=remedy):
        load(estimator.fit(X, Y))


def test_boosting_of_something_else_than_trees():
    estimator = AdaBoostClassifier(GaussianNB(), n_estimators=3, **SAMME).fit(X, Y)
    with pytest.raises(UnsupportedModel, match=r"must be a decision tree. Got GaussianNB"):
        load(estimator)


def test_real_boosting():
    estimator = AdaBoostClassifier(n_estimators=3, **SAMME).fit(X, Y)
    estimator.algorithm = "SAMME.R"  # as in a model of scikit-learn before 1.6
    with pytest.raises(UnsupportedModel, match="algorithm='SAMME'"):
        load(estimator)


@pytest.mark.parametrize(
    ("estimator", "target"),
    [
        (DecisionTreeRegressor(max_depth=2), TARGET),
        (RandomForestRegressor(2, max_depth=2), TARGET),
        (GradientBoostingRegressor(n_estimators=2), TARGET),
        (HistGradientBoostingRegressor(max_iter=2), TARGET),
        (IsolationForest(n_estimators=2), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_threshold_for_something_without_probabilities(estimator, target):
    with pytest.raises(InvalidInput, match="needs a binary classifier"):
        load(estimator.fit(X, target), 0.5)


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeClassifier(max_depth=2),
        RandomForestClassifier(2, max_depth=2),
        GradientBoostingClassifier(n_estimators=2),
        HistGradientBoostingClassifier(max_iter=2),
        AdaBoostClassifier(n_estimators=2, **SAMME),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_a_threshold_for_three_classes(estimator):
    with pytest.raises(InvalidInput, match=r"needs a binary classifier .* of 3 classes"):
        load(estimator.fit(X, Y3), 0.5)


@pytest.mark.parametrize("threshold", [0.0, -0.1, 1.5, float("nan"), float("inf")])
def test_a_threshold_that_is_no_probability(threshold):
    with pytest.raises(InvalidInput, match="must be a probability"):
        load(SMALL_FOREST.fit(X, Y), threshold)


def test_threshold_classifiers_on_other_scores_or_for_the_first_class():
    boosting = GradientBoostingClassifier(n_estimators=2)
    by_score = FixedThresholdClassifier(
        boosting, threshold=0.1, response_method="decision_function"
    ).fit(X, Y)
    with pytest.raises(UnsupportedModel, match="predict_proba"):
        load(by_score)
    reverse = FixedThresholdClassifier(boosting, threshold=0.1, pos_label=0).fit(X, Y)
    with pytest.raises(UnsupportedModel, match=r"the last one, 1\. Got 0.*one minus the threshold"):
        load(reverse)


def test_a_threshold_tuned_for_the_first_class():
    labels = np.where(Y == 1, "good", "bad")
    boosting = GradientBoostingClassifier(n_estimators=2, random_state=0)
    for positive in ("good", "bad"):
        scorer = make_scorer(f1_score, pos_label=positive)
        tuned = TunedThresholdClassifierCV(boosting, scoring=scorer, cv=2).fit(X, labels)
        if positive == "good":
            assert np.array_equal(Model(load(tuned).ensemble).predict(X), tuned.predict(X))
            continue
        with pytest.raises(UnsupportedModel, match=r"the last one, 'good'. Got 'bad'"):
            load(tuned)


def test_the_labels_of_a_threshold_classifier_are_compared_with_its_own(monkeypatch):
    fixed = FixedThresholdClassifier(SMALL_FOREST, threshold=0.3).fit(X, Y)
    monkeypatch.setattr(wrappers, "_own_threshold", lambda source, inner: 0.7)
    with pytest.raises(SelfTestFailed):
        load_ensemble(fixed)


def test_a_search_that_keeps_no_estimator():
    search = GridSearchCV(DecisionTreeClassifier(), {"max_depth": [2]}, refit=False).fit(X, Y)
    with pytest.raises(InvalidInput, match="must be fitted with refit=True"):
        load(search)


@pytest.mark.parametrize("category", [-1.0, 0.5, 70_000.0])
def test_categories_that_are_no_small_whole_numbers(category):
    rows = X.copy()
    rows[:, 0] = np.where(Y == 1, category, 2.0)
    estimator = HistGradientBoostingClassifier(max_iter=2, categorical_features=[0]).fit(rows, Y)
    with pytest.raises(UnsupportedModel, match="feature 0 must be text or whole numbers"):
        load(estimator)


def test_an_old_library(monkeypatch):
    estimator = SMALL_FOREST.fit(X, Y)
    monkeypatch.setattr(sys.modules["sklearn"], "__version__", "1.2.2")
    with pytest.raises(UnsupportedModel, match=r"1\.5 or newer.*Got 1\.2\.2.*train again"):
        load(estimator)


def test_damaged_objects_are_refused_before_they_predict():
    estimator = IsolationForest(n_estimators=2, max_features=2, random_state=0).fit(X)
    estimator.estimators_features_ = [np.array([0, 99]), np.array([0, 1])]
    with pytest.raises(TreeproofError, match="features below 6"):
        load(estimator)
    estimator = RandomForestClassifier(2, random_state=0).fit(X, Y)
    estimator.n_features_in_ = 1
    with pytest.raises(TreeproofError, match="one of the 1 features"):
        load(estimator)


def test_objects_of_other_libraries_are_left_to_them():
    class Foreign(ClassifierMixin, BaseEstimator):
        pass

    class Derived(RandomForestClassifier):
        pass

    loader = SklearnLoader()
    assert not loader.accepts_object(Foreign())
    assert not loader.accepts_object(object())
    assert not loader.accepts_object("sklearn")
    assert loader.accepts_object(Derived())
    search = GridSearchCV(DummyClassifier(), {"strategy": ["prior"]}).fit(X, Y)
    search.best_estimator_ = Foreign()
    with pytest.raises(UnsupportedModel, match=r"Objects of type .*Foreign cannot be loaded"):
        load(search)


def test_loaders_import_no_library():
    script = (
        "import sys; import treeproof.loaders.sklearn.loader, treeproof.loaders.sklearn.skops,"
        " treeproof.loaders.treelite.loader;"
        " print({'sklearn', 'skops', 'treelite', 'numba'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
