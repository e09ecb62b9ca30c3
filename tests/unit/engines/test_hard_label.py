"""The query-only attack: it sees answers alone, counts them, and repeats itself."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

import treeproof as tp
from tests.contract import engine_checks
from tests.strategies import SMALL, random_case
from treeproof.comparisons import hard_label as module
from treeproof.comparisons.hard_label import HardLabelEngine
from treeproof.engines.base import Budget


@pytest.fixture(scope="module")
def boosted():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X / X.max(axis=0)).astype(np.float32)
    model = tp.load(XGBClassifier(n_estimators=12, max_depth=3).fit(X, y))
    return model, X[:8], tp.radius(model, X[:8]).upper


def test_upper_bounds_with_witnesses(boosted):
    model, X, radius = boosted
    found = tp.radius(model, X, engine=tp.hard_label(5000))
    assert np.all(found.upper >= radius)
    assert np.all(np.isfinite(found.upper))
    assert found.upper.mean() < 2.0 * radius.mean()
    assert np.all(model.predict(found.witness) != model.predict(X))
    largest = np.abs(found.witness - X.astype(np.float64)).max(axis=1)
    np.testing.assert_allclose(found.upper, largest, rtol=1e-12)


def test_the_number_of_questions_is_counted_and_limited(boosted, monkeypatch):
    model, X, _ = boosted
    asked = []
    real = module.are_broken
    monkeypatch.setattr(
        module,
        "are_broken",
        lambda query, row, points: asked.append(len(points)) or real(query, row, points),
    )
    found = tp.radius(model, X[:2], engine=tp.hard_label(777))
    assert found.statistics["queries"].sum() == sum(asked)
    assert np.all(found.statistics["queries"] <= 777)


def test_more_questions_lead_nearer(boosted):
    model, X, _ = boosted
    few = tp.radius(model, X, engine=tp.hard_label(500)).upper
    many = tp.radius(model, X, engine=tp.hard_label(8000)).upper
    assert np.all(many <= few)
    assert many.mean() < few.mean()


def test_equal_seeds_give_equal_answers(boosted):
    model, X, _ = boosted
    first = tp.radius(model, X, engine=tp.hard_label(1000, random_state=3))
    again = tp.radius(model, X, engine=tp.hard_label(1000, random_state=3), n_jobs=2)
    other = tp.radius(model, X, engine=tp.hard_label(1000, random_state=4))
    np.testing.assert_array_equal(first.witness, again.witness)
    assert not np.array_equal(first.witness, other.witness)


def test_frozen_features_and_bounds_are_kept(boosted):
    model, X, _ = boosted
    ball = tp.LInf(frozen=(0, 7), low=0.0, high=1.0)
    found = tp.radius(model, X, perturbation=ball, engine=tp.hard_label(2000))
    broken = np.isfinite(found.upper)
    assert broken.any()
    witness = found.witness[broken]
    np.testing.assert_array_equal(witness[:, [0, 7]], X[broken][:, [0, 7]])
    assert witness.min() >= 0.0
    assert witness.max() <= 1.0


def test_nothing_between_a_value_and_the_domain_is_a_witness():
    # The row has a value below the domain, 0.2 and 0.25: it may stay, or go into the domain.
    query = random_case(np.random.default_rng([613, 176]), SMALL, ask="ball").query
    assert query.rows[0, 0] < query.reach.low[0, 0]
    outcomes = HardLabelEngine(200).verify(query, Budget())
    for row in range(len(query)):
        engine_checks.check_verdict(HardLabelEngine(), query, row, outcomes)


@pytest.mark.parametrize("options", [{"queries": 0}, {"random_state": -1}])
def test_options_that_describe_no_attack_are_refused(options):
    with pytest.raises(tp.InvalidInput, match="of hard_label must be"):
        HardLabelEngine(**options)


def test_no_point_is_beyond_what_the_library_reads():
    """With a rate of 1e40 the other feature passes all numbers of float32 on the way to a flip."""
    X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]])
    trees = DecisionTreeClassifier(random_state=0).fit(X, [0, 0, 1, 1])
    model, ball, n_found = tp.load(trees), tp.LInf(below=1e40, above=[0.1, 0.0]), 0
    for seed in range(8):
        engine = tp.hard_label(2000, random_state=seed)
        found = tp.radius(model, [[0.0, 1.0]], None, ball, engine=engine)
        if np.isfinite(found.upper[0]):
            n_found += 1
            assert np.abs(found.witness).max() <= np.finfo(np.float32).max
            assert trees.predict(found.witness) == [1]
    assert n_found > 0
