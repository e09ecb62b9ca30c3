"""Questions at the edges of arithmetic, against what the libraries themselves predict."""

import dataclasses
import sys
from fractions import Fraction

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import treeproof as tp
from tests.oracle import brute_force
from treeproof.engines.base import Budget
from treeproof.engines.exact import ExactEngine
from treeproof.engines.instance import lie_in_set
from treeproof.engines.outcomes import mark_falsified
from treeproof.errors import InternalError
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance
from treeproof.model.links import argmax_labels
from treeproof.prediction import Model
from treeproof.query.build import build_query
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict


def stumps(builder, splits, width):
    """Stumps of (feature, threshold, left leaf, right leaf)."""
    for feature, threshold, left, right in splits:
        builder.add_tree(
            feature=[feature, 0, 0],
            threshold=[threshold, 0, 0],
            left=[1, -1, -1],
            right=[2, -1, -1],
            flags=[0, 0, 0],
            value=[np.zeros(width), np.array(left, float), np.array(right, float)],
            output=-1 if width > 1 else 0,
        )


def classifier(splits, n_features, width, *, precision="float64", **decision):
    builder = TreeBuilder(leaf_width=width)
    stumps(builder, splits, width)
    return Model(
        Ensemble(
            trees=builder.finish(),
            n_features=n_features,
            n_outputs=width,
            input_precision="float64",
            aggregation=Aggregation(precision=precision, start=(0.0,) * width),
            decision=Decision(kind="argmax", **decision),
            classes=tuple(range(width)),
            provenance=Provenance(library="test"),
        )
    )


def test_columns_of_very_different_magnitudes():
    # One float of nanoseconds since 1970 is 256: a witness there lies far outside a ball of 0.5.
    base = 1.7e18
    rng = np.random.default_rng(17)
    n = 300
    X = np.column_stack(
        [
            base + 256.0 * rng.integers(0, 6, n),
            rng.integers(0, 6, n) / 2.0,
            rng.integers(0, 6, n).astype(float),
        ]
    )
    weights = rng.standard_normal(3)
    z = ((X - [base, 0.0, 0.0]) / [256.0, 0.5, 1.0]) @ weights + rng.standard_normal(n)
    model = HistGradientBoostingClassifier(
        max_iter=int(rng.integers(2, 8)), max_depth=3, min_samples_leaf=2, learning_rate=0.3
    ).fit(X, (z > np.median(z)).astype(int))
    results = tp.radius(model, X)
    assert np.all(results.exact)
    labels = model.predict(X)
    for feature, step in ((1, 0.5), (2, 1.0)):
        for sign in (-1.0, 1.0):
            moved = X.copy()
            moved[:, feature] += sign * step
            flips = model.predict(moved) != labels
            assert np.all(results.upper[flips] <= step)
            assert flips.any()


@pytest.mark.parametrize("n_classes", [3, 7, 10, 13])
def test_targets_at_ties_of_many_classes(n_classes):
    # Every class but one has the same number of rows in each leaf: the first of them is predicted.
    X = [[0.0]] * (n_classes + 1) + [[1.0]] * n_classes
    y = [*range(n_classes), 1, *range(n_classes)]
    tree = DecisionTreeClassifier(max_depth=1).fit(X, y)
    assert tree.predict([[0.0], [0.6]]).tolist() == [1, 0]
    for target in range(n_classes):
        results = tp.verify(tree, [[0.0]], perturbation=tp.LInf(1.0), goal=tp.AvoidsTarget(target))
        expected = "falsified" if target in tree.predict([[0.0], [0.6]]) else "verified"
        assert results.verdict.tolist() == [expected]


def test_a_score_just_above_a_bound_of_zero():
    tree = DecisionTreeRegressor().fit([[0], [1], [2], [3]], [-2, 0, 4, 6])
    results = tp.radius(tree, [[0.0], [1.0]], goal=tp.ScoreWithin(-np.inf, 0.0))
    assert results.upper == pytest.approx([1.5, 0.5], abs=1e-6)
    for engine in ("cliques", "single_tree"):
        other = tp.radius(tree, [[0.0], [1.0]], goal=tp.ScoreWithin(-np.inf, 0.0), engine=engine)
        assert other.upper.tolist() == results.upper.tolist()


@pytest.mark.parametrize("bound", [-3.0, -2.0, 0.0, 4.0, 5.0, 2.0**60 + 2.0**40, -(2.0**70)])
def test_bounds_of_scores_on_a_grid(bound):
    tree = DecisionTreeRegressor().fit([[0], [1], [2], [3]], [-2, 0, 4, 6])
    rows = np.array([[0.0], [1.0], [2.0], [3.0]])
    scores = np.array([-2.0, 0.0, 4.0, 6.0])
    for goal, breaks in (
        (tp.ScoreWithin(-np.inf, bound), scores > bound),
        (tp.ScoreWithin(bound, np.inf), scores < bound),
    ):
        results = tp.radius(tree, rows, goal=goal)
        for row in range(4):
            distances = np.abs(np.arange(4) - row) - 0.5
            distances[row] = 0.0
            expected = distances[breaks].min(initial=np.inf)
            assert results.upper[row] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("seed", range(40))
def test_balls_whose_moves_cancel(seed):
    # The row is about radius times rate: the move's own rounding exceeds that of the end.
    rng = np.random.default_rng(seed)
    rate = float(rng.uniform(0.05, 3.0))
    row = float(rng.uniform(0.1, 2.0))
    threshold = float(rng.choice([0.0, 1e-20, -1e-18, 5e-324]))
    model = classifier(
        [(0, threshold, [1.0, 0.0, 0.5], [0.0, 1.0, 0.5]), (0, -5.0, [0.0, 0, 9], [0.0, 0, 0])],
        1,
        3,
    )
    results = tp.radius(model, [[row]], perturbation=tp.LInf(scale=[rate]))
    exact = (Fraction(row) - Fraction(threshold)) / Fraction(rate)
    assert Fraction(float(results.upper[0])) <= exact
    assert exact < Fraction(float(np.nextafter(results.upper[0], np.inf)))
    assert not results.attained[0]


@pytest.mark.parametrize("seed", range(40))
def test_a_cell_just_before_the_first_witness(seed):
    # Class 1 is met at a double; class 2 lies just before it, where row and move nearly cancel.
    rng = np.random.default_rng(seed)
    rate, row, threshold = float(rng.uniform(0.05, 3.0)), float(rng.uniform(0.1, 2.0)), -1e-18
    exact = (Fraction(row) - Fraction(threshold)) / Fraction(rate)
    before = float(exact)
    if Fraction(before) >= exact:
        before = float(np.nextafter(before, 0.0))
    after = float(np.nextafter(before, np.inf))
    model = classifier(
        [
            (0, threshold, [0.0, 0.0, 2.0], [1.0, 0.0, 0.0]),
            (1, after, [0.5, 0.0, 0.0], [0.0, 2.0, 0.0]),
        ],
        2,
        3,
    )
    results = tp.radius(model, [[row, 0.0]], perturbation=tp.LInf(scale=[rate, 1.0]))
    assert (results.upper[0], results.attained[0]) == (before, False)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300])
def test_values_that_never_move(value):
    model = classifier(
        [(0, 0.5, [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]), (1, 0.5, [0.0, 0, 0], [0.0, 0, 2.0])], 2, 3
    )
    results = tp.radius(
        model, [[value, 0.25]], goal=tp.AvoidsTarget(2), engine="exact", time_limit_s=5.0
    )
    assert results.exact[0]
    assert results.upper[0] == 0.25


def test_near_ties_of_two_other_classes_do_not_matter():
    model = classifier(
        [(0, 0.5, [2.0, 0.0, 0.0], [0.5, 1.0, 1.0000000000000002])], 1, 3, link="softmax_float64"
    )
    results = tp.radius(model, [[0.25]])
    assert results.exact[0]
    assert results.upper[0] == 0.25


@pytest.mark.skipif(sys.platform == "win32", reason="its exponentials are not called by name")
@pytest.mark.parametrize(
    ("precision", "unit"), [("float32", 2.0**-24), ("float64", 2.0**-53)], ids=["single", "double"]
)
def test_near_ties_are_decided_as_the_model_decides_them(precision, unit):
    rng = np.random.default_rng(0)
    seen = set()
    for number in range(200):
        # The last two classes are a few units apart, in either order, beside others of all sizes.
        real = np.float32 if precision == "float32" else np.float64
        first = real(rng.choice([0.3, 0.7, 1.0, 1.9, 5.3, 40.0]))
        second = real(first * (1 + rng.integers(-6, 7) * unit / 4))
        other = real(first - rng.choice([0.5, 3.0, 30.0]))
        leaf = [float(other), float(first), float(second)]
        model = classifier(
            [(0, 0.5, [60.0, 0.0, 0.0], leaf)], 1, 3, precision=precision,
            link=f"softmax_{precision}",
        )  # fmt: skip
        label = int(model.predict([[0.75]])[0])
        seen.add((label, first < second, first == second))
        for target in (1, 2):
            found = tp.radius(model, [[0.25]], goal=tp.AvoidsTarget(target))
            assert found.exact[0], number
            assert found.upper[0] == (0.25 if label == target else np.inf)
    assert (1, True, False) in seen  # a class that is behind wins: the softmax merged both
    assert (2, True, False) in seen


def two_stumps():
    return classifier([(0, 0.5, [1.0, 0.0], [0.0, 1.0]), (1, 0.5, [0.5, 0.0], [0.0, 0.5])], 2, 2)


def test_a_witness_outside_its_set_is_never_written_down():
    query = build_query(two_stumps().ensemble, [[0.25, 0.25]], None, tp.LInf(0.3))
    outcomes = Results.empty(1, 2)
    with pytest.raises(InternalError, match="must lie in the set"):
        mark_falsified(query, outcomes, 0, np.array([0.75, 0.75]))
    assert outcomes.verdict[0] is not Verdict.FALSIFIED
    assert mark_falsified(query, outcomes, 0, np.array([0.5, 0.5]))


def test_points_in_sets():
    model = two_stumps().ensemble
    inside = [[0.5, 0.25], [0.54, 0.0], [0.25, 0.25]]
    outside = [[0.5500001, 0.25], [np.nan, 0.25], [0.25, -0.1]]
    points = np.array(inside + outside)
    query = build_query(model, np.full((6, 2), 0.25), None, tp.LInf(0.3))
    assert lie_in_set(query, np.arange(6), points).tolist() == [True] * 3 + [False] * 3
    box = build_query(model, np.full((6, 2), 0.25), None, tp.Box([0.25, 0.0], [0.55, 0.25]))
    assert lie_in_set(box, np.arange(6), points).tolist() == [True] * 3 + [False] * 3
    frozen = build_query(model, np.full((6, 2), 0.25), None, tp.LInf(0.3, frozen=[0]))
    assert lie_in_set(frozen, np.arange(6), points).tolist() == [False, False, True] + [False] * 3


def test_real_numbers_of_a_cell_without_a_float_are_stood_for_by_the_nearest_one():
    # The ball passes 0.5 downwards by less than one float.
    radius = float(np.nextafter(0.7 - 0.5, 1.0))
    ball, below = tp.LInf(radius), np.nextafter(0.5, 0.0)
    query = build_query(two_stumps().ensemble, [[0.7, 0.0]], None, ball, arithmetic="real")
    assert lie_in_set(query, np.array([0]), np.array([[below, 0.0]])).tolist() == [True]
    farther = np.nextafter(below, 0.0)
    assert lie_in_set(query, np.array([0]), np.array([[farther, 0.0]])).tolist() == [False]
    # A ball of doubles holds only doubles that are near enough.
    doubles = build_query(two_stumps().ensemble, [[0.7, 0.0]], None, ball)
    assert lie_in_set(doubles, np.array([0]), np.array([[below, 0.0]])).tolist() == [False]
    assert lie_in_set(doubles, np.array([0]), np.array([[0.5, 0.0]])).tolist() == [True]


def test_boxes_leave_categories_that_no_tree_tests():
    model = two_stumps().ensemble
    named = Ensemble(
        **{
            name: getattr(model, name)
            for name in ("trees", "n_outputs", "input_precision", "aggregation", "decision")
        },
        n_features=3,
        classes=model.classes,
        categories={2: ("red", "green")},
        provenance=model.provenance,
    )
    query = build_query(
        named, np.array([[0.25, 0.25, 1.0]]), None, tp.Box([0.0] * 3, [1.0, 1.0, 0.5])
    )
    outcomes = ExactEngine().verify(query, Budget())
    assert outcomes.witness[0, 2] == 1.0


def test_a_part_of_a_question_begins_where_the_whole_does():
    query = build_query(two_stumps().ensemble, np.full((4, 2), 0.25), None, tp.LInf())
    guessed = dataclasses.replace(query, first_guess=(0.5, 1.1))
    assert guessed.take(slice(0, 3)).first_guess == (0.5, 1.1)


@pytest.mark.parametrize("seed", range(30))
def test_listed_distances_one_float_apart(seed):
    # One feature is passed just beyond r, another reached at the next float: two answers.
    rng = np.random.default_rng(seed)
    row = float(rng.uniform(0.5, 1.0))
    radius = float(rng.uniform(0.05, 0.3))
    below = row - radius
    exact = Fraction(row) - Fraction(below)
    passed = float(exact)
    assert Fraction(passed) == exact
    reached = float(np.nextafter(passed, 1.0))
    for breaking in (0, 1):
        leaf = ([0.0, 1.0], [1.0, 0.0]) if breaking == 0 else ([1.0, 0.0], [1.0, 0.0])
        other = ([1.0, 0.0], [0.0, 1.0]) if breaking == 1 else ([1.0, 0.0], [1.0, 0.0])
        model = classifier([(0, below, *leaf), (1, reached, *other)], 2, 2)
        query = build_query(model.ensemble, [[row, 0.0]], [0], tp.LInf())
        if query.already_broken[0]:
            continue
        truth = brute_force.radius(query, 0)
        for engine in ("cliques", "exact"):
            results = tp.radius(model, [[row, 0.0]], [0], engine=engine)
            assert results.exact[0]
            assert (results.upper[0], results.attained[0]) == (truth.value, truth.attained)


def test_a_change_of_a_score_is_measured_exactly():
    # 0.1 + 0.2 is farther from 0.1 than 0.2 is long, by less than a float of the sum.
    tree = DecisionTreeRegressor().fit([[0], [1]], [0.1, 0.1 + 0.2])
    assert Fraction(0.1 + 0.2) - Fraction(0.1) > Fraction(0.2)
    results = tp.verify(tree, [[0.0]], perturbation=tp.LInf(1.0), goal=tp.ScoreChange(0.2))
    assert results.verdict.tolist() == ["falsified"]
    exact = tp.ScoreChange(float(np.nextafter(0.2, 1.0)))
    assert Fraction(0.1 + 0.2) - Fraction(0.1) == Fraction(exact.delta)
    wide = tp.verify(tree, [[0.0]], perturbation=tp.LInf(1.0), goal=exact)
    assert wide.verdict.tolist() == ["verified"]


def test_a_score_one_subnormal_below_its_bound():
    tree = DecisionTreeRegressor().fit([[0], [1]], [0, 4])
    goal = tp.ScoreWithin(5e-324, 4.0)
    everything = tp.Box(-np.inf, np.inf)
    assert tp.verify(tree, [[1.0]], perturbation=everything, goal=goal).verdict == ["falsified"]
    assert tp.radius(tree, [[0.0]], goal=goal).upper.tolist() == [0.0]


def softmax_of_three(rng):
    """Two classes that nearly tie, and a third that decides how their softmax rounds.

    The label is 0 below 0.5, where both round to the same, and 1 above.
    """
    while True:
        first = second = float(rng.random())
        for _ in range(int(rng.integers(1, 4))):
            second = float(np.nextafter(second, 9.0))
        third = rng.uniform(-2.0, 0.0, 20)
        scores = np.column_stack([np.full(20, first), np.full(20, second), third])
        labels = argmax_labels(scores, "softmax_float64")
        if 0 in labels and 1 in labels:
            break
    builder = TreeBuilder(leaf_width=1)
    leaf = {"feature": [0], "threshold": [0.0], "left": [-1], "right": [-1], "flags": [0]}
    for output, value in enumerate((first, second)):
        builder.add_tree(**leaf, value=[np.array([value])], output=output)
    builder.add_tree(
        feature=[0, 0, 0],
        threshold=[0.5, 0.0, 0.0],
        left=[1, -1, -1],
        right=[2, -1, -1],
        flags=[0, 0, 0],
        value=[np.zeros(1), third[[labels.tolist().index(0)]], third[[labels.tolist().index(1)]]],
        output=2,
    )
    return Model(
        Ensemble(
            trees=builder.finish(),
            n_features=1,
            n_outputs=3,
            input_precision="float64",
            aggregation=Aggregation(precision="float64", start=(0.0,) * 3),
            decision=Decision(kind="argmax", link="softmax_float64"),
            classes=(0, 1, 2),
            provenance=Provenance(library="test"),
        )
    )


@pytest.mark.parametrize("engine", ["exact", "cliques", "milp", "smt", "combination"])
def test_what_a_softmax_rounds_to_depends_on_trees_of_all_classes(engine):
    rng = np.random.default_rng(5)
    row, other = np.array([[0.0]]), np.array([[1.0]])
    # With prices trees of a third class are not searched, and bounds alone may be loose.
    undecided = {"exact": UnknownReason.NEAR_TIE, "combination": UnknownReason.LOOSE_BOUND}
    for _ in range(10):
        model = softmax_of_three(rng)
        assert model.predict(np.concatenate([row, other])).tolist() == [0, 1]
        answers = [
            tp.verify(model, row, perturbation=tp.LInf(2.0), engine=engine),
            tp.verify(model, row, perturbation=tp.Box([0.0], [1.0]), engine=engine),
            tp.verify(model, row, perturbation=tp.L1(2.0)) if engine == "exact" else None,
            tp.radius(model, row, engine=engine),
        ]
        for found in filter(None, answers):
            assert found.verdict[0] != Verdict.VERIFIED or found.upper[0] == 0.5
            assert found.lower[0] <= 0.5 or np.isnan(found.lower[0])
            if found.verdict[0] == Verdict.UNKNOWN:
                assert found.reason[0] == undecided[engine]
        if engine != "combination":
            found = tp.radius(model, row, goal=tp.AvoidsTarget(1), engine=engine)
            assert found.upper.tolist() == [0.5]
