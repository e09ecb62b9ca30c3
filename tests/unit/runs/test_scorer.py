import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import treeproof as tp


@pytest.fixture(scope="module")
def data():
    return load_breast_cancer(return_X_y=True)


@pytest.fixture(scope="module")
def classifier(data):
    X, y = data
    names = np.array(["malignant", "benign"])
    return GradientBoostingClassifier(n_estimators=5, random_state=0).fit(X, names[y])


def test_batches_and_single_rows_agree_with_the_library(classifier, data):
    X = data[0][:40]
    scorer = tp.RobustnessScorer(classifier, perturbation=tp.LInf(scale=np.std(data[0], axis=0)))
    found = scorer.fit().transform(X)
    expected = tp.radius(classifier, X, None, scorer.perturbation)
    np.testing.assert_array_equal(found[:, 1], expected.lower)
    labels = np.array(scorer.classes_)[found[:, 0].astype(int)]
    np.testing.assert_array_equal(labels, classifier.predict(X))
    assert scorer.get_feature_names_out().tolist() == ["prediction", "certified_radius"]
    for row in (0, 7):
        one = scorer.score_row(X[row])
        assert one.prediction == classifier.predict(X[row : row + 1])[0]
        assert one.certified_radius == expected.lower[row]
        assert one.is_exact
        assert one.seconds >= 0.0


def test_a_latency_budget_gives_certified_bounds(classifier, data):
    X = data[0][:40]
    exact = tp.RobustnessScorer(classifier).fit().transform(X)[:, 1]
    hurried = tp.RobustnessScorer(classifier, latency_s=1e-9).fit()
    bounds = hurried.transform(X)[:, 1]
    assert np.all(bounds <= exact)
    assert not hurried.results(X).exact.all()


def test_it_is_a_transformer(classifier, data):
    scorer = tp.RobustnessScorer(classifier, n_jobs=2, engine="exact")
    copy = clone(scorer)
    assert copy.n_jobs == 2
    with pytest.raises(NotFittedError):
        scorer.transform(data[0][:2])
    steps = make_pipeline(FunctionTransformer(), scorer)
    assert steps.fit_transform(data[0][:5], data[1][:5]).shape == (5, 2)
    frame = scorer.set_output(transform="pandas").transform(data[0][:5])
    assert list(frame.columns) == ["prediction", "certified_radius"]


def test_scores_have_a_range_instead_of_a_label(data):
    X, y = data
    regressor = GradientBoostingRegressor(n_estimators=3, random_state=0).fit(X, y)
    with pytest.raises(tp.InvalidInput, match="Say with 'score_change'"):
        tp.RobustnessScorer(regressor).fit()
    scorer = tp.RobustnessScorer(regressor, score_change=0.1).fit()
    found = scorer.transform(X[:10])
    np.testing.assert_array_equal(found[:, 0], regressor.predict(X[:10]))
    assert scorer.score_row(X[3]).prediction == found[3, 0]


def test_a_model_is_needed():
    with pytest.raises(tp.InvalidInput, match="'model' must be the deployed model"):
        tp.RobustnessScorer().fit()
