"""Linear relaxations: valid bounds, however bad the solver's multipliers are."""

import dataclasses

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from xgboost import XGBClassifier

import treeproof as tp
from treeproof.engines.baselines import programs as module
from treeproof.engines.baselines.lp import LpEngine
from treeproof.engines.baselines.programs import solve


@pytest.fixture(scope="module")
def boosted():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X / X.max(axis=0)).astype(np.float32)
    model = tp.load(XGBClassifier(n_estimators=12, max_depth=3).fit(X, y))
    return model, X[:12], tp.radius(model, X[:12]).upper


def test_bounds_are_below_the_radius_and_of_the_decision_tighter(boosted):
    model, X, radius = boosted
    decision = tp.radius(model, X, engine="lp")
    distance = tp.radius(model, X, engine=tp.lp("distance"))
    for found in (decision, distance):
        assert np.all(found.lower <= radius)
        assert np.all(found.upper == np.inf)
        assert np.all(found.lower > 0.0)
    assert np.all(distance.lower <= decision.lower)
    assert distance.lower.mean() < 0.9 * decision.lower.mean()
    assert decision.lower.mean() > 0.98 * radius.mean()


def test_the_decision_beats_the_sum_of_best_leaves(boosted):
    model, X, _ = boosted
    direct = tp.radius(model, X, engine="combination").lower
    relaxed = tp.radius(model, X, engine="lp").lower
    assert np.all(direct <= relaxed)
    assert direct.mean() < relaxed.mean()


@pytest.mark.parametrize("relaxation", ["decision", "distance"])
def test_radius_and_verify_say_the_same(boosted, relaxation):
    model, X, _ = boosted
    lower = tp.radius(model, X, engine=tp.lp(relaxation)).lower
    eps = float(np.median(lower))
    verdict = tp.verify(model, X, perturbation=tp.LInf(eps), engine=tp.lp(relaxation)).verdict
    assert np.all(verdict[lower > eps] == "verified")
    assert np.all(verdict[lower < eps] == "unknown")


def test_bad_multipliers_give_weak_bounds_never_wrong_ones(boosted, monkeypatch):
    model, X, radius = boosted
    rng = np.random.default_rng(0)

    def disturbed(*arguments, **options):
        answer = solve(*arguments, **options)
        if answer.row_multiplier is None:
            return answer
        noise = rng.normal(scale=0.1, size=len(answer.row_multiplier))
        return dataclasses.replace(answer, row_multiplier=answer.row_multiplier + noise)

    good = tp.radius(model, X, engine="lp").lower
    monkeypatch.setattr(module, "solve", disturbed)
    bad = tp.radius(model, X, engine="lp").lower
    assert np.all(bad <= radius)
    assert bad.mean() < good.mean()


def test_no_multipliers_no_proof(boosted, monkeypatch):
    model, X, _ = boosted

    def fails(*arguments, **options):
        return dataclasses.replace(solve(*arguments, **options), row_multiplier=None)

    direct = tp.radius(model, X, engine="combination").lower
    monkeypatch.setattr(module, "solve", fails)
    found = tp.radius(model, X, engine="lp")
    np.testing.assert_array_equal(found.lower, direct)
    assert set(found.reason) == {"solver failed"}


def test_unknown_programs_are_refused():
    with pytest.raises(tp.InvalidInput, match="'relaxation' of lp"):
        LpEngine(relaxation="other")  # type: ignore[arg-type]


def test_the_old_name_of_the_relaxation_is_read():
    with pytest.warns(DeprecationWarning, match="called 'relaxation' now") as caught:
        engine = tp.lp(of="distance")
    assert engine == tp.lp("distance")
    assert caught[0].filename == __file__
