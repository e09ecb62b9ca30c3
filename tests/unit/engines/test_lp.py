"""Linear relaxations: valid bounds, however bad the solver's multipliers are."""

import dataclasses

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from xgboost import XGBClassifier

import treeproof as tp
from tests.oracle import brute_force
from tests.strategies import Sizes, random_case
from treeproof.comparisons import lp as engine
from treeproof.comparisons import programs as module
from treeproof.comparisons.lp import LpEngine
from treeproof.comparisons.programs import ProgramSearch, solve
from treeproof.engines.base import Budget
from treeproof.search.radius import find_radius


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


def test_a_class_at_the_first_distance_settles_a_row(monkeypatch):
    """No other class can be nearer, so the programs of the others need not be solved."""
    X, y = load_digits(n_class=4, return_X_y=True)
    classifier = XGBClassifier(n_estimators=10, max_depth=4, tree_method="exact")
    question = (tp.load(classifier.fit(X, y)), X[:8])
    options = {"engine": tp.lp("distance"), "arithmetic": "real"}
    n_programs = 0

    def counted(*arguments, **options):
        nonlocal n_programs
        n_programs += 1
        return solve(*arguments, **options)

    monkeypatch.setattr(module, "solve", counted)
    together = tp.radius(*question, **options).lower
    n_together, n_programs = n_programs, 0
    alternatives = ProgramSearch.alternatives.fget
    each = []
    for number in range(3):
        only = property(lambda search, number=number: alternatives(search)[number : number + 1])
        monkeypatch.setattr(ProgramSearch, "alternatives", only)
        each.append(tp.radius(*question, **options).lower)
    np.testing.assert_array_equal(together, np.min(each, axis=0))
    assert np.unique(together).tolist() == [0.5, 1.0]  # thresholds are between whole numbers
    assert n_together < n_programs


@pytest.mark.parametrize("n_classes", [3, 5])
def test_classes_that_the_trees_rule_out_one_by_one_have_nothing_nearer(monkeypatch, n_classes):
    X, y = make_classification(600, 8, n_informative=6, n_classes=n_classes, random_state=0)
    model = tp.load(XGBClassifier(n_estimators=5, max_depth=4).fit(X, y))
    is_beyond, ruled_out = engine._is_beyond, []
    monkeypatch.setattr(engine, "_is_beyond", lambda *_: False)
    every = tp.radius(model, X[:10], engine=tp.lp("distance")).lower

    def counted(*arguments):
        ruled_out.append(is_beyond(*arguments))
        return ruled_out[-1]

    monkeypatch.setattr(engine, "_is_beyond", counted)
    found = tp.radius(model, X[:10], engine=tp.lp("distance")).lower
    np.testing.assert_array_equal(found, every)
    assert len(np.unique(found)) > 2
    assert 0 < sum(ruled_out) < len(ruled_out)


def test_what_trees_rule_out_one_by_one_is_ruled_out_on_ties(monkeypatch):
    is_beyond, n_ruled_out = engine._is_beyond, 0

    def counted(*arguments):
        nonlocal n_ruled_out
        found = is_beyond(*arguments)
        n_ruled_out += found
        return found

    monkeypatch.setattr(engine, "_is_beyond", counted)
    sizes = Sizes(trees=7, depth=2, features=2, outputs=4, rows=1)
    for number in range(800):
        rng = np.random.default_rng([902, number])
        query = random_case(rng, sizes, ask="radius", kind="argmax").query
        lower = find_radius(tp.lp("distance"), query, Budget(time_limit_s=60.0)).lower[0]
        assert lower <= brute_force.radius(query, 0).value, number
    assert n_ruled_out > 3


def test_a_program_that_shows_nothing_leaves_the_first_distance_that_means_something(monkeypatch):
    """A row on thresholds has cells at distance 0, which the best leaves of all trees exclude."""
    X, y = load_digits(n_class=2, return_X_y=True)
    model = tp.load(XGBClassifier(n_estimators=10, tree_method="hist").fit(X, y))

    def shows_nothing(*arguments, **options):
        answer = solve(*arguments, **options)
        return dataclasses.replace(answer, row_multiplier=np.zeros_like(answer.row_multiplier))

    trees = model.ensemble.trees
    X[:8, trees.feature[0]] = trees.threshold[0]
    radius = tp.radius(model, X[:8], arithmetic="real").upper
    assert set(np.minimum(radius, 1.0)) == {0.0, 1.0}  # thresholds are whole numbers
    monkeypatch.setattr(module, "solve", shows_nothing)
    found = tp.radius(model, X[:8], engine=tp.lp("distance"), arithmetic="real")
    np.testing.assert_array_equal(found.lower, np.minimum(radius, 1.0))


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


def test_a_large_program_that_does_not_end_is_solved_in_its_other_form(boosted, monkeypatch):
    model, X, radius = boosted
    monkeypatch.setattr(module, "_LARGE", 0)
    solve_with, forms = module._solve_with, []

    def fails_once(options, *arguments):
        forms.append(options["ipx_dualize_strategy"])
        if forms[-1]:
            return module.Answer(-np.inf)
        return solve_with(options, *arguments)

    expected = tp.radius(model, X, engine=tp.lp("distance"))
    monkeypatch.setattr(module, "_solve_with", fails_once)
    found = tp.radius(model, X, engine=tp.lp("distance"))
    assert set(forms) == {0, 1}
    assert set(found.reason) == set(expected.reason)
    np.testing.assert_allclose(found.lower, expected.lower, rtol=0.01)
    assert np.all(found.lower <= radius)


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
