"""The white-box attack: its upper bounds beside the exact radii, its options and limits."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import RandomForestClassifier
from xgboost import XGBClassifier

import treeproof as tp
from treeproof.engines.attack import AttackEngine
from treeproof.engines.base import Budget
from treeproof.query.build import build_query


@pytest.fixture(scope="module")
def boosted():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X / X.max(axis=0)).astype(np.float32)
    return tp.load(XGBClassifier(n_estimators=40, max_depth=4).fit(X, y)), X[:60]


@pytest.fixture(scope="module")
def many_classes():
    X, y = load_digits(return_X_y=True)
    forest = RandomForestClassifier(n_estimators=15, max_depth=6, random_state=0).fit(X, y)
    return tp.load(forest), X[:20].astype(np.float64)


@pytest.mark.parametrize("name", ["boosted", "many_classes"])
def test_most_rows_are_broken_at_the_exact_radius(request, name):
    model, X = request.getfixturevalue(name)
    exact = tp.radius(model, X)
    found = tp.radius(model, X, engine="attack")
    assert np.all(found.upper >= exact.upper)
    assert np.mean(found.upper == exact.upper) >= 0.8
    assert not found.exact.any()
    assert np.all(found.lower == 0.0)
    assert np.all(model.predict(found.witness) != model.predict(X))
    # One float beyond a threshold that is only approached.
    np.testing.assert_allclose(found.witness_distance, found.upper, rtol=1e-5, atol=1e-6)


def test_a_ball_that_holds_a_violation_is_falsified_and_a_smaller_one_unknown(boosted):
    model, X = boosted
    radius = tp.radius(model, X, engine="attack").upper
    beyond = tp.verify(model, X, perturbation=tp.LInf(float(radius.max()) * 1.01), engine="attack")
    assert np.all(beyond.verdict == "falsified")
    inside = tp.verify(model, X, perturbation=tp.LInf(float(radius.min()) / 2), engine="attack")
    assert np.all(inside.verdict == "unknown")
    assert np.all(inside.reason == "no witness found")


def test_equal_seeds_give_equal_answers(boosted):
    model, X = boosted
    first = tp.radius(model, X, engine=tp.attack(8, random_state=5))
    again = tp.radius(model, X, engine=tp.attack(8, random_state=5), n_jobs=2)
    np.testing.assert_array_equal(first.upper, again.upper)
    np.testing.assert_array_equal(first.witness, again.witness)


def test_more_starts_do_not_end_farther(boosted):
    model, X = boosted
    few = tp.radius(model, X, engine=tp.attack(1)).upper
    many = tp.radius(model, X, engine=tp.attack(200)).upper
    assert many.mean() <= few.mean()


def test_limits_are_kept_and_named(boosted):
    model, X = boosted
    query = build_query(model.ensemble, X, None, tp.LInf())
    found = AttackEngine().radius(query, Budget(node_limit=1))
    assert np.all(found.statistics["nodes"] <= 2)
    none = ~np.isfinite(found.upper)
    assert none.any()
    assert {reason.value for reason in found.reason[none]} == {"node limit"}


@pytest.mark.parametrize("options", [{"starts": 0}, {"starts": 1.5}, {"random_state": -1}])
def test_options_that_describe_no_search_are_refused(options):
    with pytest.raises(tp.InvalidInput, match="of attack must be a whole number"):
        AttackEngine(**options)
