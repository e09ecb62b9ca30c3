"""Decisions by z3: exact rationals, replayed points, limits."""

import sys

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from xgboost import XGBClassifier

import treeproof as tp
from tests.strategies import Sizes, random_case
from treeproof.comparisons.smt import SmtEngine
from treeproof.engines.base import Budget
from treeproof.results.verdict import UnknownReason


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X, y


def test_radii_of_two_libraries_are_those_of_the_exact_engine(iris):
    X, y = iris
    rows = X[::25]
    forest = RandomForestClassifier(n_estimators=6, max_depth=3, random_state=0).fit(X, y)
    boosted = XGBClassifier(n_estimators=4, max_depth=2).fit(X, y)
    for model in (tp.load(forest), tp.load(boosted)):
        exact = tp.radius(model, rows)
        found = tp.radius(model, rows, engine=tp.smt(), n_jobs=2)
        assert found.exact.all()
        np.testing.assert_array_equal(found.upper, exact.upper)
        assert np.all(model.predict(found.witness) != model.predict(rows))


def test_sums_that_round_are_judged_by_the_model():
    rng = np.random.default_rng(3)
    calls = []
    for _ in range(150):
        query = random_case(rng, Sizes(rows=1, trees=5), ask="ball").query
        calls.append(int(SmtEngine().verify(query, Budget()).statistics["calls"][0]))
    assert max(calls) > len(query.alternatives.alternative_start)


def test_no_time_is_unknown(iris):
    X, y = iris
    model = tp.load(RandomForestClassifier(n_estimators=6, random_state=0).fit(X, y))
    found = tp.verify(model, X[:5], perturbation=tp.LInf(1.0), engine="smt", time_limit_s=1e-9)
    assert set(found.verdict) == {"unknown"}
    assert set(found.reason) == {UnknownReason.TIME_LIMIT.value}


def test_the_missing_solver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "z3", None)
    with pytest.raises(tp.BackendMissing, match=r"pip install .*\[smt\]'"):
        tp.radius(None, None, engine="smt")


def test_thresholds_may_be_infinite():
    # A split at minus infinity only parts missing values from the others.
    X = np.array([[0.0], [1.0], [2.0], [3.0]] * 10)
    X[::3] = np.nan
    y = np.isnan(X[:, 0]).astype(int)
    model = HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=2).fit(X, y)
    loaded = tp.load(model)
    assert np.isinf(loaded.ensemble.trees.threshold).any()
    rows = [[np.inf], [0.0], [np.nan]]
    found, exact = tp.radius(loaded, rows, engine="smt"), tp.radius(loaded, rows)
    assert found.upper.tolist() == exact.upper.tolist()
