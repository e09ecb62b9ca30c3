"""What the parameters of gradient boosting do."""

import itertools
import logging
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.preprocessing import minmax_scale

from treeproof.errors import InvalidInput
from treeproof.training import RobustGBDTClassifier, growing


@pytest.fixture(scope="module")
def scaled() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_breast_cancer(return_X_y=True)
    return minmax_scale(X).astype(np.float32), y


def flat_radius(model: RobustGBDTClassifier, x: np.ndarray) -> float:
    """Smallest change of a row of two features that changes its label, over all cells."""
    trees = model.to_ensemble().trees
    sides = []
    for feature in range(2):
        cuts = np.unique(trees.threshold[trees.feature == feature])
        edges = np.concatenate([[-np.inf], cuts, [np.inf]])
        low, high = edges[:-1], edges[1:]
        distance = np.maximum(np.maximum(low - x[feature], x[feature] - high), 0.0)
        inside = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 1.0, 0.0))
        sides.append(list(zip(distance, inside, strict=True)))
    cells = list(itertools.product(*sides))
    points = np.array([[a[1], b[1]] for a, b in cells])
    labels = model.predict(points)
    distances = np.array([max(a[0], b[0]) for a, b in cells])
    return float(distances[labels != model.predict(x[None])].min(initial=np.inf))


def test_robust_training_makes_the_model_robust() -> None:
    # The first feature tells the classes apart with a narrow margin, the second with a wide one
    # and some errors: only the attacker makes the second one the better choice.
    random = np.random.default_rng(0)
    y = random.integers(2, size=400)
    X = np.empty((400, 2))
    X[:, 0] = 0.5 + np.where(y == 1, 0.01, -0.01) + random.uniform(-0.009, 0.009, 400)
    X[:, 1] = np.where(y == 1, 0.8, 0.2) + random.uniform(-0.1, 0.1, 400)
    wrong = random.random(400) < 0.05
    X[wrong, 1] = 1.0 - X[wrong, 1]
    options: dict[str, Any] = {"n_estimators": 5, "max_depth": 2}
    natural = RobustGBDTClassifier(**options).fit(X, y)
    robust = RobustGBDTClassifier(eps=0.2, method="chen2019", **options).fit(X, y)
    assert natural.score(X, y) == 1.0
    assert robust.score(X, y) >= 0.9
    weak = np.mean([flat_radius(natural, row) for row in X[:40]])
    strong = np.mean([flat_radius(robust, row) for row in X[:40]])
    assert weak < 0.03
    assert strong > 0.2
    frozen = RobustGBDTClassifier(eps=0.2, method="chen2019", frozen_features=[0], **options).fit(
        X, y
    )
    assert frozen.score(X, y) == 1.0
    assert frozen.reach_.tolist() == [0.0, 0.2]


def test_eps_is_counted_in_units_of_the_scale(scaled: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = scaled
    units = np.array([2.0 ** (i % 5) for i in range(X.shape[1])], dtype=np.float32)
    plain = RobustGBDTClassifier(eps=0.1, n_estimators=5).fit(X, y)
    stretched = RobustGBDTClassifier(eps=0.1, n_estimators=5, feature_scale=units)
    stretched.fit(X * units, y)
    assert np.array_equal(stretched.decision_function(X * units), plain.decision_function(X))
    by_range = RobustGBDTClassifier(eps=0.1, n_estimators=5, feature_scale="range")
    by_range.fit(X * units, y)
    np.testing.assert_allclose(by_range.reach_, 0.1 * units, rtol=1e-6)
    by_deviation = RobustGBDTClassifier(eps=2.0, n_estimators=5, feature_scale="std").fit(X, y)
    np.testing.assert_allclose(by_deviation.reach_, 2.0 * X.std(axis=0), rtol=1e-5)


def test_features_may_be_named() -> None:
    X, y = make_classification(200, 4, random_state=0)
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = RobustGBDTClassifier(
        eps=0.1,
        method="chen2019",
        n_estimators=2,
        frozen_features=["b", "d"],
        monotone_constraints={"a": 1},
    )
    assert model.fit(frame, y).reach_.tolist() == [0.1, 0.0, 0.1, 0.0]


@pytest.mark.parametrize("eps", [0.0, 0.3])
@pytest.mark.parametrize("method", ["hist", "exact"])
@pytest.mark.parametrize("direction", [1, -1])
def test_monotone_constraints_hold_everywhere(eps: float, method: str, direction: int) -> None:
    random = np.random.default_rng(1)
    X = random.normal(size=(600, 3))
    y = (direction * X[:, 0] + np.sin(3 * X[:, 0]) + X[:, 1] + 0.3 * random.normal(size=600)) > 0
    model = RobustGBDTClassifier(
        eps=eps,
        method="chen2019",
        n_estimators=30,
        tree_method=method,
        monotone_constraints=[direction, 0, 0],
    ).fit(X, y)
    rows = random.normal(size=(50, 3))
    steps = np.linspace(-4, 4, 200)
    margins = np.empty((50, 200))
    for number, step in enumerate(steps):
        rows[:, 0] = step
        margins[:, number] = model.decision_function(rows)
    assert np.all(direction * np.diff(margins, axis=1) >= -1e-6)
    free = RobustGBDTClassifier(
        eps=eps, method="chen2019", n_estimators=30, tree_method=method
    ).fit(X, y)
    rows[:, 0] = 0.0
    assert not np.array_equal(free.decision_function(rows), model.decision_function(rows))


def test_early_stopping_keeps_the_best_rounds() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(600, 5))
    y = (X[:, 0] + random.normal(size=600) > 0).astype(int)
    seen: list[tuple[int, int, dict[str, float]]] = []
    model = RobustGBDTClassifier(
        n_estimators=200, early_stopping_rounds=5, progress=lambda *news: seen.append(news)
    ).fit(X[:400], y[:400], eval_set=[(X[400:], y[400:])])
    scores = model.evals_result_["validation_0"]["logloss"]
    assert model.best_iteration_ == int(np.argmin(scores))
    assert model.best_score_ == min(scores)
    assert len(scores) == model.best_iteration_ + 6
    assert model.n_estimators_ == model.best_iteration_ + 1 == model.to_ensemble().n_trees
    assert [news[0] for news in seen] == list(range(1, len(scores) + 1))
    assert seen[-1] == (len(scores), 200, {"validation_0": scores[-1]})
    p = model.predict_proba(X[400:])[np.arange(200), y[400:]].astype(float)
    assert model.best_score_ == pytest.approx(-np.log(p).mean(), rel=1e-5)


@pytest.mark.parametrize("metric", ["logloss", "error"])
def test_early_stopping_holds_rows_out_by_itself(metric: str) -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(900, 5))
    y = np.digitize(X[:, 0] + 0.3 * random.normal(size=900), [-0.5, 0.5])
    model = RobustGBDTClassifier(
        n_estimators=100,
        early_stopping_rounds=4,
        validation_fraction=0.3,
        eval_metric=metric,
        random_state=0,
    ).fit(X[:600], y[:600])
    assert model.n_estimators_ < 100
    assert model.to_ensemble().n_trees == 3 * model.n_estimators_
    assert model.score(X[600:], y[600:]) > 0.7


def test_progress_can_stop_training(scaled: tuple[np.ndarray, np.ndarray]) -> None:
    model = RobustGBDTClassifier(n_estimators=50, progress=lambda done, _total, _scores: done == 3)
    assert model.fit(*scaled).n_estimators_ == 3


def test_verbose_writes_to_the_log(
    scaled: tuple[np.ndarray, np.ndarray], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="treeproof.training"):
        RobustGBDTClassifier(n_estimators=6, verbose=2).fit(*scaled)
    assert [record.args[:2] for record in caplog.records] == [(2, 6), (4, 6), (6, 6)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tree_method": "exact", "eps": 0.05},
        {"subsample": 0.6, "colsample_bytree": 0.5, "max_bin": 20},
    ],
    ids=str,
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_model_does_not_depend_on_threads_or_the_order_of_rows(
    options: dict[str, Any], n_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = make_classification(400, 10, n_informative=6, n_classes=n_classes, random_state=0)
    model = RobustGBDTClassifier(n_estimators=4, random_state=7, **options)
    expected = clone(model).fit(X, y).to_ensemble().fingerprint
    assert clone(model).fit(X, y).to_ensemble().fingerprint == expected
    monkeypatch.setattr(growing, "_PARALLEL_WORK", 0)
    for n_jobs in (2, 5, -1):
        threaded = clone(model).set_params(n_jobs=n_jobs).fit(X, y)
        assert threaded.to_ensemble().fingerprint == expected
    if "subsample" not in options:
        order = np.random.default_rng(0).permutation(len(X))
        assert clone(model).fit(X[order], y[order]).to_ensemble().fingerprint == expected


def test_another_seed_samples_other_rows(scaled: tuple[np.ndarray, np.ndarray]) -> None:
    found = {
        RobustGBDTClassifier(n_estimators=2, subsample=0.5, random_state=seed)
        .fit(*scaled)
        .to_ensemble()
        .fingerprint
        for seed in (0, 1)
    }
    assert len(found) == 2


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_few_values_are_binned_without_loss(eps: float) -> None:
    random = np.random.default_rng(0)
    X = random.integers(200, size=(500, 4)) / 200
    X[random.random(X.shape) < 0.05] = np.nan
    y = np.nan_to_num(X).sum(axis=1) + random.normal(size=500) > 1.5
    models = [
        RobustGBDTClassifier(
            eps=eps, method="chen2019", n_estimators=5, gamma=0.5, tree_method=method
        ).fit(X, y)
        for method in ("hist", "exact")
    ]
    assert models[0].to_ensemble().fingerprint == models[1].to_ensemble().fingerprint


def test_a_missing_value_can_be_a_reason_of_its_own() -> None:
    X = np.full((100, 1), 3.0)
    X[:50] = np.nan
    y = np.repeat([0, 1], 50)
    for method in ("hist", "exact"):
        for eps in (0.0, 5.0):
            model = RobustGBDTClassifier(
                eps=eps, method="chen2019", n_estimators=3, tree_method=method
            ).fit(X, y)
            assert model.score(X, y) == 1.0
            # No number is treated as missing, however far an attacker moves it.
            assert model.predict([[1e30], [-1e30], [np.nan]]).tolist() == [1, 1, 0]


def test_importances_point_to_the_features_that_matter() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 4))
    model = RobustGBDTClassifier(n_estimators=5).fit(X, X[:, 2] > 0)
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert int(np.argmax(model.feature_importances_)) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": -0.1}, r"'eps' must be a number at least 0\. Got -0\.1"),
        ({"eps": float("nan")}, "'eps' must be a number"),
        ({"n_estimators": 0}, "'n_estimators' must be a whole number, at least 1"),
        ({"n_estimators": 2.5}, "'n_estimators' must be a whole number"),
        ({"max_depth": 0}, "'max_depth'"),
        ({"learning_rate": 0.0}, "'learning_rate' must be a number above 0"),
        ({"reg_lambda": -1.0}, "'reg_lambda'"),
        ({"gamma": -1.0}, "'gamma'"),
        ({"min_child_weight": "1"}, "'min_child_weight'"),
        ({"subsample": 1.5}, "'subsample' must be a number above 0 and at most 1"),
        ({"colsample_bytree": 0.0}, "'colsample_bytree'"),
        ({"tree_method": "approx"}, "'tree_method' must be 'hist' or 'exact'. Got 'approx'"),
        ({"max_bin": 1}, "'max_bin'"),
        ({"feature_scale": [1.0]}, "'feature_scale' must be None, 'range', 'std' or 30 finite"),
        ({"feature_scale": "mad"}, "'feature_scale' must be 'range' or 'std'"),
        ({"frozen_features": [30]}, "'frozen_features' must name features by numbers from 0 to 29"),
        ({"frozen_features": ["age"]}, "'frozen_features'"),
        ({"monotone_constraints": [1]}, "'monotone_constraints' must be a mapping"),
        ({"monotone_constraints": {0: 2}}, "must be -1, 0 or 1. Got 2"),
        ({"base_score": 1.0}, "'base_score'"),
        ({"early_stopping_rounds": 0}, "'early_stopping_rounds'"),
        ({"early_stopping_rounds": 3, "validation_fraction": 1.0}, "'validation_fraction'"),
        ({"eval_metric": "auc"}, "'eval_metric' must be 'logloss' or 'error'"),
        ({"n_jobs": 0}, "'n_jobs'"),
        ({"n_jobs": 1.5}, "'n_jobs'"),
        ({"verbose": -1}, "'verbose'"),
    ],
    ids=str,
)
def test_wrong_parameters_are_named(
    scaled: tuple[np.ndarray, np.ndarray], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        RobustGBDTClassifier(**options).fit(*scaled)


def test_wrong_rows_are_named(scaled: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = scaled
    model = RobustGBDTClassifier(n_estimators=1)
    large = X.astype(np.float64)
    large[3, 1] = 1e39
    with pytest.raises(InvalidInput, match=r"fit into float32.*1e\+39 in row 3, column 1"):
        model.fit(large, y)
    with pytest.raises(InvalidInput, match="only one class"):
        model.fit(X, np.zeros(len(X)))
    with pytest.raises(InvalidInput, match="'sample_weight' must not be negative"):
        model.fit(X, y, -np.ones(len(X)))
    with pytest.raises(ValueError, match=r"[Ww]eight"):
        model.fit(X, y, np.zeros(len(X)))
    with pytest.raises(InvalidInput, match="one per row"):
        model.fit(X, y, eval_set=[(X, y[:-1])])
    with pytest.raises(InvalidInput, match="occur among those of the training rows"):
        model.fit(X, y, eval_set=[(X, np.full(len(X), 7))])
