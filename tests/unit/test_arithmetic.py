"""What rows are: by default doubles, which the deployed model rounds before it compares them."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from xgboost import XGBClassifier

import treeproof as tp
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import CATEGORICAL, Aggregation, Decision, Ensemble, Provenance


@pytest.fixture(scope="module")
def stump() -> XGBClassifier:
    """One split at float32(0.1): label 0 below it, label 1 from there on."""
    return XGBClassifier(
        n_estimators=1, max_depth=1, tree_method="exact", min_child_weight=0, reg_lambda=0
    ).fit(np.array([[0.0], [0.2]]), [0, 1])


@pytest.fixture(scope="module")
def boosted() -> tuple[XGBClassifier, Any]:
    rng = np.random.default_rng(5)
    X = rng.random((300, 4))
    y = (X.sum(axis=1) + 0.3 * rng.standard_normal(300) > 2.0).astype(int)
    return XGBClassifier(n_estimators=12, max_depth=3).fit(X, y), X[:40]


def test_a_verified_ball_of_float64_rows_never_flips_the_deployed_model(stump):
    threshold = np.float32(0.1)
    # The next double beyond the midpoint rounds to the threshold, and lies below it.
    midpoint = (float(threshold) + float(np.nextafter(threshold, np.float32(0.0)))) / 2.0
    inside = float(np.nextafter(midpoint, np.inf))
    assert inside < float(threshold)
    assert stump.predict(np.array([[0.0], [inside]])).tolist() == [0, 1]
    model = tp.load(stump)
    literature = tp.verify(model, [[0.0]], None, tp.LInf(inside), arithmetic="real")
    assert literature.verdict[0] == "verified"
    deployed = tp.verify(model, [[0.0]], None, tp.LInf(inside))
    assert deployed.verdict[0] == "falsified"
    assert stump.predict(deployed.witness)[0] == 1
    assert tp.radius(model, [[0.0]]).upper[0] <= inside < tp.radius(
        model, [[0.0]], arithmetic="real"
    ).lower[0]  # fmt: skip


def test_doubles_within_the_radius_keep_their_label(boosted):
    classifier, X = boosted
    found = tp.radius(tp.load(classifier), X)
    rng = np.random.default_rng(0)
    within = np.where(found.attained, np.nextafter(found.lower, 0.0), found.lower)[:, np.newaxis]
    labels = classifier.predict(X)
    for _ in range(50):
        # Corners of the ball, and points inside of it.
        share = rng.choice([-1.0, 1.0, rng.uniform(-1.0, 1.0)], size=X.shape)
        moved = X + share * within
        outside = np.abs(moved - X) > within
        moved[outside] = X[outside]
        np.testing.assert_array_equal(classifier.predict(moved), labels)
    assert (classifier.predict(found.witness) != labels).all()
    assert (found.witness != found.witness.astype(np.float32)).any()


def test_a_scorer_asks_as_it_was_told(stump):
    rows = np.array([[0.0], [0.2]])
    for arithmetic in ("float64", "real"):
        scorer = tp.RobustnessScorer(tp.load(stump), arithmetic=arithmetic).fit()
        expected = tp.radius(tp.load(stump), rows, arithmetic=arithmetic)
        np.testing.assert_array_equal(scorer.transform(rows)[:, 1], expected.lower)


def test_models_that_take_doubles_differ_by_the_last_double_below_a_threshold():
    rng = np.random.default_rng(2)
    X = rng.random((60, 3))
    model = tp.load(HistGradientBoostingClassifier(max_iter=5).fit(X, X[:, 0] > 0.5))
    deployed, real = (tp.radius(model, X[:10], arithmetic=a) for a in ("float64", "real"))
    # Real numbers come nearer to a threshold than the double before it, which both name.
    np.testing.assert_allclose(deployed.lower, real.lower, rtol=1e-12)
    assert np.all(deployed.lower >= real.lower)
    assert np.any(deployed.lower > real.lower)
    assert np.all(deployed.witness_distance <= np.nextafter(deployed.upper, np.inf))
    np.testing.assert_array_equal(deployed.witness, real.witness)
    assert "arithmetic: float64 rows, which the deployed model takes as they are" in (
        deployed.summary()
    )
    assert "arithmetic: real numbers, of which float64 rows are some" in real.summary()


def test_every_summary_says_it(stump):
    model = tp.load(stump)
    said = "arithmetic: float64 rows, rounded as the deployed model does"
    left_out = "arithmetic: real numbers; how the deployed model rounds float64 rows is left out"
    for ask in (tp.radius, tp.run, tp.feature_radius, tp.unimportant_features, tp.anchor_features):
        assert said in ask(model, [[0.0]]).summary().splitlines()
        assert left_out in ask(model, [[0.0]], arithmetic="real").summary().splitlines()
    assert said in tp.radius(model, [[0.0]])._repr_html_()


def test_codes_of_categories_are_rounded_as_the_model_rounds_them():
    builder = TreeBuilder()
    builder.add_tree(
        feature=[0, -1, -1],
        threshold=[0.0, 0.0, 0.0],
        left=[1, -1, -1],
        right=[2, -1, -1],
        flags=[CATEGORICAL, 0, 0],
        category_set=[builder.add_category_set([3]), -1, -1],
        value=[0.0, 1.0, -1.0],
        output=0,
    )
    model = tp.Model(
        Ensemble(
            trees=builder.finish(),
            n_features=1,
            n_outputs=1,
            input_precision="float32",
            aggregation=Aggregation(precision="float64", start=(0.0,)),
            decision=Decision(kind="threshold"),
            classes=(0, 1),
            provenance=Provenance(library="test"),
        )
    )
    row = [[np.nextafter(3.0, 0.0)]]  # float32 knows it as 3
    assert model.predict(row).tolist() == [1]
    assert tp.radius(model, row).predicted.tolist() == [1]


def test_bounds_at_the_lowest_float_warn_of_nothing(stump):
    moves = tp.LInf(low=float(np.finfo(np.float32).min), domain=tp.Domain())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = tp.radius(tp.load(stump), [[0.0]], None, moves, arithmetic="real")
    assert found.exact.all()
