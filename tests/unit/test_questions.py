"""`verify` and `radius`: what they take, what they refuse, what they return."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeRegressor

import treeproof as tp

ENGINE = "cliques"


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    forest = RandomForestClassifier(n_estimators=3, max_depth=3, random_state=0).fit(X, names)
    return tp.load(forest), X[::10].astype(np.float32), names[::10]


def test_a_radius_separates_verified_from_falsified(iris):
    model, X, y = iris
    found = tp.radius(model, X, y, engine=ENGINE)
    assert found.exact.all()
    for row in np.flatnonzero(np.isfinite(found.upper) & (found.upper > 0)):
        inside = tp.verify(
            model, X[[row]], y[[row]], tp.LInf(found.lower[row] * 0.999), engine=ENGINE
        )
        beyond = tp.verify(
            model, X[[row]], y[[row]], tp.LInf(found.upper[row] * 1.001), engine=ENGINE
        )
        assert inside.verdict.tolist() == ["verified"]
        assert beyond.verdict.tolist() == ["falsified"]
        assert model.predict(beyond.witness)[0] != y[row]


def test_rows_that_are_wrong_already_have_radius_zero(iris):
    model, X, y = iris
    wrong = np.where(y == "setosa", "virginica", "setosa")
    found = tp.radius(model, X, wrong, engine=ENGINE)
    assert set(found.verdict) == {"falsified"}
    assert found.lower.tolist() == found.upper.tolist() == [0.0] * len(X)
    np.testing.assert_array_equal(found.witness, X)
    assert found.label.tolist() == wrong.tolist()


def test_own_labels_are_the_default(iris):
    model, X, _ = iris
    found = tp.verify(model, X, perturbation=tp.LInf(0.0), engine=ENGINE)
    assert found.label.tolist() == model.predict(X).tolist()
    assert set(found.verdict) == {"verified"}


def test_data_frames_and_untouched_models_are_taken(iris):
    model, X, y = iris
    frame = pd.DataFrame(X)
    first = tp.verify(model, frame, pd.Series(y), tp.LInf(0.1), engine=ENGINE)
    second = tp.verify(model, X, y, tp.LInf(0.1), engine=ENGINE)
    assert first.verdict.tolist() == second.verdict.tolist()
    X_all, y_all = load_iris(return_X_y=True)
    tree = DecisionTreeRegressor(max_depth=2, random_state=0).fit(X_all, y_all)
    change = tp.verify(
        tree, X_all[:3], None, tp.LInf(0.01), goal=tp.ScoreChange(0.1), engine=ENGINE
    )
    assert set(change.verdict) == {"verified"}
    assert change.label.tolist() == [None] * 3


def test_only_rows_of_the_attacker_move(iris):
    model, X, _ = iris
    labels = model.predict(X)
    free = tp.verify(model, X, perturbation=tp.LInf(5.0), engine=ENGINE)
    one = tp.verify(model, X, perturbation=tp.LInf(5.0), engine=ENGINE, attacker_class="setosa")
    assert set(free.verdict) == {"falsified"}
    assert (one.verdict == "falsified").tolist() == (labels == "setosa").tolist()
    radii = tp.radius(model, X, engine=ENGINE, attacker_class="setosa")
    assert np.isinf(radii.lower).tolist() == (labels != "setosa").tolist()


def test_targeted_questions_need_the_target_to_win(iris):
    model, X, _ = iris
    rows = X[model.predict(X) == "setosa"]
    goal = tp.AvoidsTarget("virginica")
    targeted = tp.radius(model, rows, engine=ENGINE, goal=goal)
    untargeted = tp.radius(model, rows, engine=ENGINE)
    assert (targeted.lower >= untargeted.lower).all()
    assert (targeted.lower > untargeted.lower).any()
    assert set(model.predict(targeted.witness)) == {"virginica"}


def test_float64_rows_are_judged_as_deployed(iris):
    model, X, _ = iris
    # The deployed model rounds float64 rows to float32, so thresholds act half a step earlier.
    real = tp.radius(model, X, engine=ENGINE, arithmetic="real")
    deployed = tp.radius(model, X.astype(np.float64), engine=ENGINE)
    np.testing.assert_allclose(real.lower, deployed.lower, atol=1e-6)
    assert (real.lower != deployed.lower).any()
    for results in (real, deployed):  # both are about the model that is deployed
        assert results.header["model"]["fingerprint"] == model.fingerprint
        assert results.header["model"]["input_precision"] == "float32"
        assert results.header["model"]["notes"] == list(model.ensemble.provenance.notes)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"X": np.zeros((2, 3))}, "4 columns"),
        ({"y": ["setosa", "daisy"]}, "among the model's classes"),
        ({"y": ["setosa"]}, "one entry per row"),
        ({"perturbation": None}, "'perturbation' must say how rows may change"),
        ({"perturbation": tp.LInf()}, "LInf must have a radius"),
        (
            {"perturbation": "near"},
            "must be a radius such as 0.1, an LInf, L1, L2, L0, Cost, All",
        ),
        ({"perturbation": -0.1}, "'eps' of LInf must be a number >= 0"),
        ({"y": tp.LInf(0.1)}, "'y' must be the labels of the rows, or None. Got LInf"),
        ({"y": 0.1}, r"Give it by name, as perturbation=0\.1, or after the labels"),
        ({"perturbation": tp.Box([1, 1, 1, 1], [0, 2, 2, 2])}, "must not exceed 'high'"),
        ({"engine": "magic"}, "'engine' must be one of"),
        ({"engine": 3}, "'engine' must be a name or an engine"),
        ({"engine": tp.smt}, "'engine' must be a name or an engine"),
        ({"arithmetic": "float16"}, "'arithmetic' must be"),
        ({"attacker_class": "daisy"}, "'attacker_class' must be one of"),
        ({"goal": tp.AvoidsTarget("daisy")}, "target must be one of the classes"),
        ({"goal": tp.AvoidsTarget}, "'goal' must be a KeepsLabel, AvoidsTarget"),
        ({"goal": "setosa"}, "'goal' must be a KeepsLabel, AvoidsTarget"),
        ({"time_limit_s": 0.0}, "'time_limit_s' must be positive"),
        ({"memory_limit_mb": 1e-6}, "'memory_limit_mb' must be at least 1"),
        ({"time_limit_s": None}, "'time_limit_s' must be a number.*Leave it out"),
        ({"n_jobs": 0}, "'n_jobs' must be"),
        ({"n_jobs": None}, "'n_jobs' must be"),
    ],
)
def test_wrong_use_gets_one_clear_sentence(iris, arguments, sentence):
    model, X, y = iris
    given = {"X": X[:2], "y": y[:2], "perturbation": tp.LInf(0.1), "engine": ENGINE} | arguments
    with pytest.raises(tp.InvalidInput, match=sentence):
        tp.verify(model, given.pop("X"), given.pop("y"), given.pop("perturbation"), **given)


def test_only_the_protocol_of_the_paper_is_another_search(iris):
    model, X, y = iris
    for search in ("paper", tp.PaperProtocol):
        with pytest.raises(tp.InvalidInput, match="'search' must be a PaperProtocol"):
            tp.radius(model, X[:2], y[:2], search=search)


def test_what_is_no_property_is_named_as_the_function_does(iris):
    model, X, _ = iris
    for claim in ("fair", tp.Fair):
        with pytest.raises(tp.InvalidInput, match="'claim' must be a property such as Fair"):
            tp.prove(model, claim, tp.Box(X.min(axis=0), X.max(axis=0)))


def test_negative_radii_are_refused_where_they_are_written():
    with pytest.raises(tp.InvalidInput, match="'eps' of LInf must be a number >= 0"):
        tp.LInf(-0.1)


def test_a_radius_is_not_given_with_the_question(iris):
    model, X, y = iris
    with pytest.raises(tp.InvalidInput, match="without a limit"):
        tp.radius(model, X, y, tp.LInf(0.1), engine=ENGINE)
    with pytest.raises(tp.InvalidInput, match="without a limit"):
        tp.radius(model, X, y, tp.Box(0, 1), engine=ENGINE)


def test_scores_have_no_labels():
    X, y = load_iris(return_X_y=True)
    tree = tp.load(DecisionTreeRegressor(max_depth=2).fit(X, y))
    with pytest.raises(tp.InvalidInput, match="has no labels"):
        tp.verify(tree, X[:2], y[:2], tp.LInf(0.1), engine=ENGINE)
    with pytest.raises(tp.UnsupportedQuery, match="no label to keep"):
        tp.verify(tree, X[:2], None, tp.LInf(0.1), engine=ENGINE)


def test_missing_values_need_a_rule():
    X, y = load_iris(return_X_y=True)
    from sklearn.ensemble import GradientBoostingClassifier

    model = tp.load(GradientBoostingClassifier(n_estimators=2).fit(X, y))
    row = X[:1].copy()
    row[0, 2] = np.nan
    with pytest.raises(tp.InvalidInput, match="no rule for missing values"):
        tp.verify(model, row, None, tp.LInf(0.1), engine=ENGINE)
