"""The exact search and the attack with prices against the truth by enumeration."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier
from xgboost import XGBClassifier

import treeproof as tp
from tests.oracle.priced_answers import compare
from tests.soundness.planting import Bug, assert_passes_with
from tests.unit.engines.test_exact import model_of
from treeproof.model.builder import TreeBuilder


@pytest.mark.parametrize("block", range(10))
def test_answers_are_those_of_enumeration(block: int) -> None:
    compared = sum(compare(seed) for seed in range(16 * block, 16 * block + 16))
    assert compared > 20


@pytest.mark.parametrize("target", [0, 1, 2])
def test_one_moving_feature_is_a_ball_for_targets_too(target: int) -> None:
    """With one feature that moves, L1 and L∞ are the same distance; a target beats all others."""
    X, y = load_iris(return_X_y=True)
    model = tp.load(RandomForestClassifier(7, max_depth=4, random_state=0).fit(X, y))
    rows, goal = X[::15], tp.AvoidsTarget(target)
    for feature in range(4):
        ball = tp.LInf(moving=[feature])
        known = tp.radius(model, rows, None, ball, goal=goal)
        found = tp.radius(model, rows, None, tp.L1(moving=[feature]), goal=goal)
        assert found.upper.tolist() == pytest.approx(known.upper.tolist(), rel=1e-12)
        for eps in (0.3, 1.0):
            asked = dataclasses.replace(ball, eps=eps), tp.L1(eps, moving=[feature])
            verdicts = [tp.verify(model, rows, None, each, goal=goal).verdict for each in asked]
            assert verdicts[0].tolist() == verdicts[1].tolist()


def test_a_budget_that_is_just_enough_is_enough_on_a_threshold() -> None:
    """The other number lies on a threshold: going below costs as good as nothing, staying nothing.

    Where the model does not look at it any more, only staying is within the budget.
    """
    X = [[0, 0], [0, 0], [0, 0], [0, 1], [0, 1], [1, 0], [1, 1], [1, 1]]
    tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, [0, 0, 1, 0, 0, 1, 1, 1])
    model = tp.load(tree)
    rows = [[0.0, float(np.nextafter(np.float32(0.5), np.float32(1.0)))]]
    assert rows[0][1] in model.ensemble.trees.threshold.tolist()
    cost = tp.L1(1.0, domain=tp.Domain(integer=[0]))
    for arithmetic in ("real", "float64"):
        results = tp.verify(model, rows, None, cost, arithmetic=arithmetic)
        assert results.verdict.tolist() == ["falsified"]


def test_large_models_have_the_least_cost_of_all_points() -> None:
    """Models so large that boxes are put aside and searched with the trees restricted to them."""
    rng = np.random.default_rng(5)
    X = rng.integers(0, 4, (3000, 8)).astype(float)
    score = X[:, :4].sum(axis=1) - X[:, 4:].sum(axis=1) + X[:, 0] * X[:, 5]
    y = (score + rng.normal(0, 2, len(X)) > 2).astype(int)
    trees = GradientBoostingClassifier(n_estimators=250, max_depth=5, random_state=0).fit(X, y)
    model = tp.load(trees)
    points = np.stack(np.meshgrid(*[np.arange(4.0)] * 8, indexing="ij"), axis=-1).reshape(-1, 8)
    labels = model.predict(points)
    domain = tp.Domain(values={feature: [0, 1, 2, 3] for feature in range(8)})
    rows = X[:6]
    for cost, power in ((tp.L1(domain=domain), 1), (tp.L2(domain=domain), 2)):
        results = tp.radius(model, rows, None, cost)
        assert results.exact.all()
        for row, label, upper in zip(rows, model.predict(rows), results.upper, strict=True):
            totals = (np.abs(points[labels != label] - row) ** power).sum(axis=1)
            assert upper == pytest.approx(totals.min() ** (1 / power), rel=1e-12)


@pytest.mark.parametrize("kind", ["every change is dear", "some changes are dear"])
def test_sets_of_dear_changes_have_the_least_cost_of_all_points(kind: str) -> None:
    """Answers that need several changes at once, each of which costs a good part of the whole."""
    rng = np.random.default_rng(8)
    is_all = kind == "every change is dear"
    sizes = np.array([2] * 9 if is_all else [2] * 5 + [4] * 3)
    price = np.ones(9) if is_all else np.array([1.0, 0.9, 1.1, 1.0, 1.2, 0.02, 0.03, 0.01])
    X = rng.integers(0, sizes, (4000, len(sizes))).astype(float)
    score = X @ (price * rng.choice([-1.0, 1.0], len(sizes)))
    y = (score + rng.normal(0, 1.0, len(X)) > np.quantile(score, 0.7)).astype(int)
    library_model = RandomForestClassifier(25, max_depth=6, random_state=0).fit(X, y)
    grids = np.meshgrid(*[np.arange(size) for size in sizes])
    points = np.stack([grid.ravel() for grid in grids], axis=1).astype(float)
    label = library_model.predict(points)
    rows = X[:24]
    domain = tp.Domain(values={column: list(range(size)) for column, size in enumerate(sizes)})
    cost = np.abs(points - rows[:, None]) @ price
    cost[label == library_model.predict(rows)[:, None]] = np.inf
    model = tp.load(library_model)
    results = tp.radius(model, rows, None, tp.L1(scale=1.0 / price, domain=domain))
    assert results.exact.all()
    assert results.upper.tolist() == pytest.approx(cost.min(axis=1).tolist(), rel=1e-9)
    assert (cost.min(axis=1) > 2.0).any()  # several changes
    for factor, verdict in ((0.99, "verified"), (1.01, "falsified")):
        for row, least in enumerate(cost.min(axis=1).tolist()):
            asked = tp.L1(factor * least, scale=1.0 / price, domain=domain)
            assert tp.verify(model, rows[row : row + 1], None, asked).verdict.tolist() == [verdict]


ALWAYS_NARROW = Bug("sweeps always visit narrow ranges only", "MANY = 4\n", "MANY = 0\n")
RUN = """
import sys
from tests.oracle.priced_answers import compare
assert sum(compare(seed) for seed in range(int(sys.argv[1]))) > 0
print("PASSED")
"""


def test_sweeps_over_narrow_ranges_give_the_same_answers(tmp_path: Path) -> None:
    """Trees with few axes are swept over all entries, unless the sources are told otherwise."""
    assert_passes_with(ALWAYS_NARROW, RUN, tmp_path, 24)


@pytest.mark.parametrize("seed", range(12))
def test_ties_of_what_is_attained_and_approached_are_those_of_plain_balls(seed: int) -> None:
    """Rows on a grid of thresholds: down a change approaches its distance, up it attains it.

    Features that hardly go down are on thresholds, too: just below costs as good as nothing.
    """
    rng = np.random.default_rng([38, 3, seed])
    n_features, n_outputs, builder = 4, 1 if seed % 2 else 3, TreeBuilder()
    for number in range(9):
        feature, threshold = rng.integers(n_features, size=3), rng.integers(0, 5, size=3) / 4
        builder.add_tree(
            feature=[feature[0], feature[1], 0, 0, feature[2], 0, 0],
            threshold=[threshold[0], threshold[1], 0, 0, threshold[2], 0, 0],
            left=[1, 2, -1, -1, 5, -1, -1],
            right=[4, 3, -1, -1, 6, -1, -1],
            flags=[0] * 7,
            value=[0, 0, *rng.choice([-1.0, 0.0, 1.0], 2), 0, *rng.choice([-1.0, 0.0, 1.0], 2)],
            output=number % n_outputs,
        )
    kind = "threshold" if n_outputs == 1 else "argmax"
    model = model_of(builder, n_features, kind=kind, n_outputs=n_outputs)
    rows = rng.integers(0, 5, (40, n_features)) / 4
    below = [1.0, 1.0, 1e-40, 1e-40] if seed % 4 < 2 else 1.0
    balls = tp.LInf(below=below), tp.LInf(below=below, domain=tp.Domain())
    # With evidence: the checker agrees about what is attained.
    plain, priced = (
        tp.radius(model, rows, None, ball, arithmetic="real", evidence=True) for ball in balls
    )
    assert priced.exact.all()
    assert priced.upper.tolist() == plain.upper.tolist()
    assert priced.attained.tolist() == plain.attained.tolist()
    assert not plain.attained[np.isfinite(plain.upper)].all()


def test_bounds_between_numbers_of_the_input_precision_hold_for_real_numbers() -> None:
    """A bound just below a threshold leaves real numbers between them, though no float32."""
    rng = np.random.default_rng(4)
    X = rng.integers(0, 8, (200, 3)).astype(np.float32) / 3
    y = (X @ [1.0, -1.0, 0.5] + rng.normal(0, 0.3, len(X)) > 0.4).astype(int)
    model = tp.load(XGBClassifier(n_estimators=6, max_depth=3, n_jobs=1).fit(X, y))
    thresholds = np.unique(model.ensemble.trees.threshold)
    rows = rng.choice(thresholds, (30, 3)).astype(np.float32).astype(np.float64)
    n_open = 0
    for row in rows:
        low, high = row - abs(row) * 1e-12, row + abs(row) * 1e-12
        for bounds in ({"low": low}, {"high": high}, {"low": low, "high": high}):
            balls = tp.LInf(**bounds), tp.LInf(**bounds, domain=tp.Domain())
            plain, priced = (
                tp.radius(model, [row], None, b, arithmetic="real", evidence=True) for b in balls
            )
            assert priced.upper.tolist() == plain.upper.tolist()
            assert priced.attained.tolist() == plain.attained.tolist()
            n_open += bool(np.isfinite(plain.upper[0]) and not plain.attained[0])
    assert n_open > 0
