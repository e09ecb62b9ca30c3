"""Training against exact worst cases, compared with enumeration and with the libraries."""

import itertools
from typing import Any

import catboost
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from scipy.optimize import minimize
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp
from treeproof.kernels.training.growth import GrowthSettings
from treeproof.kernels.training.leaf_fit import KnownCuts, fit_leaves
from treeproof.kernels.training.losses import GrownTree
from treeproof.query.boxes import RowBoxes, boxes_around
from treeproof.query.conflicts import find_conflicts
from treeproof.training import (
    RobustGBDTClassifier,
    RobustRandomForestClassifier,
    RobustSearchCV,
    least_robust_error,
    robust_refit,
)
from treeproof.training.attacked import AttackedTable
from treeproof.training.refit import fit_against_worst_cases, measure
from treeproof.training.worst_cases import WorstCases

SETTINGS = GrowthSettings(
    reg_lambda=1.0, gamma=0.0, min_child_weight=0.0, min_samples_leaf=1, learning_rate=1.0,
    max_depth=4, features_per_node=10**9, seed=0,
)  # fmt: skip


def problem(
    seed: int = 0, n_rows: int = 80, n_features: int = 3, n_classes: int = 2, grid: float = 0.125
) -> tuple[np.ndarray, np.ndarray]:
    """Rows on a grid, so that ends of boxes and thresholds often tie."""
    random = np.random.default_rng(seed)
    X = np.round(random.random((n_rows, n_features)) / grid) * grid
    noise = 0.3 * random.normal(size=n_rows)
    y = np.digitize(X[:, 0] + 0.5 * X[:, 1] + noise, np.linspace(0.4, 1.1, n_classes + 1)[1:-1])
    return X, y.astype(np.int64)


def leaf_ranges(
    tree: GrownTree,
) -> list[tuple[int, dict[int, tuple[float, float]], dict[int, bool]]]:
    """Every leaf with the half-open ranges of its path, and where missing values go there."""
    found = []

    def walk(node: int, ranges: dict[int, tuple[float, float]], missing: dict[int, bool]) -> None:
        if tree.left[node] < 0:
            found.append((node, ranges, missing))
            return
        feature, cut = int(tree.feature[node]), float(tree.threshold[node])
        low, high = ranges.get(feature, (-np.inf, np.inf))
        goes_left = bool(tree.missing_left[node])
        alive = missing.get(feature, True)
        left, right = (low, min(high, cut)), (max(low, cut), high)
        walk(
            int(tree.left[node]), ranges | {feature: left}, missing | {feature: alive and goes_left}
        )
        walk(
            int(tree.right[node]),
            ranges | {feature: right},
            missing | {feature: alive and not goes_left},
        )

    walk(0, {}, {})
    return found


def can_reach(boxes: RowBoxes, ranges: Any, missing: Any) -> np.ndarray:
    """Rows that can be put into a leaf, feature by feature."""
    reached = np.ones(len(boxes), dtype=bool)
    for feature, (low, high) in ranges.items():
        least, most = boxes.low[:, feature], boxes.high[:, feature]
        with np.errstate(invalid="ignore"):
            inside = (least < high) & (most >= low) & (low < high)
        reached &= np.where(np.isnan(least), missing[feature], inside)
    return reached


def check_counts(boxes: RowBoxes, table: AttackedTable, y: np.ndarray) -> None:
    """Grow a tree, and compare counts and worst leaves with every leaf of every row."""
    gradients = np.stack([0.5 - y, np.full(len(y), 0.25)], axis=1)
    grown, tree = table.grow(
        gradients, np.ones(len(y)), SETTINGS, np.arange(len(y), dtype=np.int32), table.usable
    )
    assert len(grown.left) > 3
    worst = np.zeros(len(y))
    table.add_worst(grown, tree, y == 1, worst)
    expected = np.where(y == 1, np.inf, -np.inf)
    for node, ranges, missing in leaf_ranges(grown):
        reached = can_reach(boxes, ranges, missing)
        assert grown.cover[node] == pytest.approx(0.25 * reached.sum())
        expected[reached & (y == 1)] = np.minimum(expected[reached & (y == 1)], grown.value[node])
        expected[reached & (y == 0)] = np.maximum(expected[reached & (y == 0)], grown.value[node])
    np.testing.assert_array_equal(worst, expected)


@pytest.mark.parametrize("has_missing", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_row_counts_in_every_leaf_that_it_can_be_put_into(seed: int, has_missing: bool) -> None:
    X, y = problem(seed)
    random = np.random.default_rng(seed)
    if has_missing:
        X[random.random(X.shape) < 0.2] = np.nan
    boxes = boxes_around(X, tp.LInf(0.125, below=[1, 0, 1], frozen=[2]))
    check_counts(boxes, AttackedTable.of(boxes, 256), y)


def test_a_row_that_counts_on_one_side_only_is_noticed() -> None:
    X, y = problem(0)
    boxes = boxes_around(X, tp.LInf(0.125))
    table = AttackedTable.of(boxes, 256)
    planted = table.codes.copy()
    # Rows that can cross go where their own values send them, as if they could not.
    for feature, cuts in enumerate(table.cuts):
        planted[feature] = np.searchsorted(cuts, X[:, feature], side="right")[:, None]
    assert (planted != table.codes).any()
    with pytest.raises(AssertionError):
        check_counts(boxes, AttackedTable(table.cuts, planted), y)


def best_attacked_split(boxes: RowBoxes, y: np.ndarray, reg_lambda: float) -> float:
    """Gain of the best first split: of both cases, those that the leaves then agree with."""
    gradient, hessian = 0.5 - y, 0.25

    def side(rows: np.ndarray) -> tuple[float, float]:
        total, weight = gradient[rows].sum(), hessian * rows.sum() + reg_lambda
        return total * total / weight, -total / weight

    best = 0.0
    for feature in range(boxes.rows.shape[1]):
        low, high = boxes.low[:, feature], boxes.high[:, feature]
        for cut in np.unique(np.concatenate([low, high]))[1:]:
            left, right = low < cut, high >= cut
            both = left & right
            if not left.any() or not right.any():
                continue
            for lower_is_left in (True, False):
                to_left = (y == 1) == lower_is_left
                one, one_value = side((left & ~both) | (both & to_left))
                two, two_value = side((right & ~both) | (both & ~to_left))
                if (one_value <= two_value) if lower_is_left else (one_value >= two_value):
                    best = max(best, one + two - side(np.ones(len(y), dtype=bool))[0])
    return best


@pytest.mark.parametrize("seed", range(6))
def test_the_first_split_is_the_best_against_the_attacker(seed: int) -> None:
    X, y = problem(seed, n_rows=40)
    boxes = boxes_around(X, tp.LInf(0.125))
    table = AttackedTable.of(boxes, 256)
    gradients = np.stack([0.5 - y, np.full(len(y), 0.25)], axis=1)
    settings = SETTINGS._replace(max_depth=1)
    grown, _ = table.grow(
        gradients, np.ones(len(y)), settings, np.arange(len(y), dtype=np.int32), table.usable
    )
    assert grown.gain[0] == pytest.approx(best_attacked_split(boxes, y, 1.0), rel=1e-6)


def points_of(ensemble: Any, boxes: RowBoxes, row: int) -> np.ndarray:
    """A point of every cell of a row's box: its low end, and each threshold inside of it."""
    axes = []
    for feature in range(ensemble.n_features):
        low, high = boxes.low[row, feature], boxes.high[row, feature]
        cuts = np.unique(ensemble.trees.threshold[ensemble.trees.feature == feature])
        inside = cuts[(cuts > low) & (cuts <= high)]
        axes.append([low, *inside])
    return np.array(list(itertools.product(*axes)))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_worst_cases_are_those_of_enumeration(n_classes: int) -> None:
    X, y = problem(1, n_classes=n_classes)
    model = xgboost.XGBClassifier(n_estimators=6, max_depth=3, random_state=0).fit(X, y)
    ensemble = tp.load(model).ensemble
    boxes = boxes_around(X, tp.LInf(0.25))
    worst = WorstCases(ensemble, boxes, y)
    values = worst.values_of(ensemble.trees.leaf_value)
    cuts, bounds = worst.find(values)
    found = cuts.margins(values)
    for row in range(len(X)):
        margins = np.asarray(tp.Model(ensemble).margins(points_of(ensemble, boxes, row)), float)
        if n_classes == 2:
            expected = (margins if y[row] else -margins).min()
        else:
            others = np.delete(margins, y[row], axis=1).max(axis=1)
            expected = (margins[:, y[row]] - others).min()
        assert found[row] == pytest.approx(expected, abs=1e-4)
        assert bounds[row] <= expected + 1e-5


def test_points_that_leaves_were_fitted_to_lie_in_the_boxes() -> None:
    X, y = problem(2)
    trained = RobustGBDTClassifier(eps=0.1, n_estimators=8, max_depth=3, leaf_penalty=None).fit(
        X, y
    )
    boxes = boxes_around(X.astype(np.float32), tp.LInf(0.1))
    ensemble = trained.to_ensemble()
    worst = WorstCases(ensemble, boxes, y)
    fitted = fit_against_worst_cases(worst, np.ones(len(y)), 1.0)
    leaves = ensemble.trees.leaf
    by_tree = [{node: rest for node, *rest in leaf_ranges(tree)} for tree in trained._trained.trees]
    assert len(fitted.cuts) > len(y)
    for row, index in zip(fitted.cuts.rows, fitted.cuts.index[:, :-1], strict=True):
        ranges: dict[int, tuple[float, float]] = {}
        for tree, leaf in enumerate(index):
            assert (
                ensemble.trees.root[tree]
                <= np.flatnonzero(leaves == leaf)[0]
                < ensemble.trees.root[tree + 1]
            )
            for feature, (low, high) in by_tree[tree][int(ensemble.trees.leaf_source[leaf])][
                0
            ].items():
                before = ranges.get(feature, (-np.inf, np.inf))
                ranges[feature] = max(before[0], low), min(before[1], high)
        for feature, (low, high) in ranges.items():
            # A value that every one of these leaves takes, in the box up to rounding to float32.
            assert max(low, boxes.low[row, feature] - 1e-6) < high
            assert low <= boxes.high[row, feature] + 1e-6


def test_leaves_are_the_optimum_of_a_general_solver() -> None:
    random = np.random.default_rng(0)
    n_rows, n_values, width = 15, 8, 3
    cuts = np.array([random.choice(n_values, width, replace=False) for _ in range(3 * n_rows)])
    signs = np.repeat(random.choice([-1.0, 1.0], n_rows), 3)[:, None] * np.ones((1, width))
    start = np.arange(0, 3 * n_rows + 1, 3)
    weights = random.random(n_rows) + 0.5
    multipliers, values = np.zeros(3 * n_rows), np.zeros(n_values)
    known = KnownCuts(cuts.astype(np.int32), np.ascontiguousarray(signs), start, weights)
    fit_leaves(known, np.arange(n_rows), 0.7, 5000, 1e-9, multipliers, values)

    def objective(values: np.ndarray) -> float:
        margins = (signs * values[cuts]).sum(axis=1).reshape(n_rows, 3).min(axis=1)
        return float(np.logaddexp(0.0, -margins) @ weights + 0.35 * values @ values)

    best = min(
        minimize(
            objective,
            start,
            method="Nelder-Mead",
            options={"maxiter": 40000, "xatol": 1e-9, "fatol": 1e-11},
        ).fun
        for start in (values, np.zeros(n_values))
    )
    assert objective(values) <= best + 1e-6


def test_the_objective_is_bounded_and_later_rounds_never_lose() -> None:
    X, y = problem(3, n_rows=120)
    trained = RobustGBDTClassifier(eps=0.1, n_estimators=10, max_depth=3, leaf_penalty=None).fit(
        X, y
    )
    worst = WorstCases(trained.to_ensemble(), boxes_around(X.astype(np.float32), tp.LInf(0.1)), y)
    weights = np.ones(len(y))
    short = fit_against_worst_cases(worst, weights, 2.0, rounds=2)
    tolerance = 1e-4
    full = fit_against_worst_cases(worst, weights, 2.0, rounds=20, tolerance=tolerance)
    assert short.bound <= full.objective + 1e-9
    assert full.bound <= full.objective <= short.objective + 1e-9
    assert full.objective - full.bound <= 2e-3 * full.objective
    as_deployed = measure(worst, worst.values_of(worst.leaf_values(full.values)), weights)
    # Rows that matter less than the tolerance were not searched.
    assert as_deployed.loss <= full.loss * (1.0 + 1e-6)
    assert full.loss - as_deployed.loss <= tolerance * full.objective


MODELS = [
    xgboost.XGBClassifier(n_estimators=10, max_depth=3),
    lightgbm.LGBMClassifier(n_estimators=10, max_depth=3, verbosity=-1, min_child_samples=5),
    RandomForestClassifier(10, max_depth=4, random_state=0),
    ExtraTreesClassifier(10, max_depth=4, random_state=0),
    DecisionTreeClassifier(max_depth=4, random_state=0),
    catboost.CatBoostClassifier(iterations=10, depth=3, verbose=False, allow_writing_files=False),
    GradientBoostingClassifier(n_estimators=10, max_depth=2, random_state=0),
    HistGradientBoostingClassifier(max_iter=10, max_depth=3, min_samples_leaf=5),
    RobustGBDTClassifier(n_estimators=10, max_depth=3),
]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_refitted_model_is_safer_and_stays_one_of_its_library(model: Any, n_classes: int) -> None:
    X, y = problem(4, n_rows=150, n_classes=n_classes)
    model.fit(X, y)
    before = tp.load(model)
    again = robust_refit(model, X, y, tp.LInf(0.1), leaf_penalty=1.0)
    assert type(again) is type(model)
    after = tp.load(again)
    assert tp.load(model).fingerprint == before.fingerprint
    if not isinstance(model, RobustGBDTClassifier):
        assert "bit-equal" in after.ensemble.provenance.self_test
    np.testing.assert_array_equal(after.predict(X), np.ravel(again.predict(X)))

    def loss(ensemble: Any) -> float:
        worst = WorstCases(ensemble, boxes_around(X, tp.LInf(0.1)), y)
        return measure(worst, worst.values_of(ensemble.trees.leaf_value), np.ones(len(y))).loss

    def broken(of: tp.Model) -> int:
        return int(np.sum(tp.verify(of, X, y, tp.LInf(0.1)).verdict != "verified"))

    if not isinstance(
        model, RandomForestClassifier | ExtraTreesClassifier | DecisionTreeClassifier
    ):
        # Shares of classes are margins on another scale, so that only their order counts.
        assert loss(after.ensemble) <= loss(before.ensemble)
    assert broken(after) < broken(before) if n_classes == 2 else broken(after) <= broken(before)


def test_a_refit_that_gains_nothing_changes_nothing() -> None:
    X, y = problem(5)
    model = tp.load(xgboost.XGBClassifier(n_estimators=4, max_depth=2).fit(X, y))
    once = robust_refit(model, X, y, tp.LInf(0.1), leaf_penalty=1e-3)
    again = robust_refit(once, X, y, tp.LInf(0.1), leaf_penalty=100.0)
    assert again.fingerprint == once.fingerprint


@pytest.mark.parametrize("seed", range(5))
def test_the_least_error_is_that_of_enumeration(seed: int) -> None:
    X, y = problem(seed, n_rows=11, n_features=2, grid=0.25)
    boxes = boxes_around(X, tp.LInf(0.125))
    meets = [
        (one, two)
        for one, two in itertools.combinations(range(len(y)), 2)
        if y[one] != y[two]
        and np.all(boxes.low[one] <= boxes.high[two])
        and np.all(boxes.low[two] <= boxes.high[one])
    ]
    least = min(
        sum(wrong)
        for wrong in itertools.product([0, 1], repeat=len(y))
        if all(wrong[one] or wrong[two] for one, two in meets)
    )
    assert least_robust_error(X, y, tp.LInf(0.125)) == least / len(y)
    cover = find_conflicts(boxes, y).cover
    assert cover.sum() == least
    assert all(cover[one] or cover[two] for one, two in meets)


def test_missing_values_meet_missing_values_only() -> None:
    X = np.array([[np.nan], [np.nan], [0.0], [0.5]])
    assert least_robust_error(X, [0, 1, 0, 1], tp.LInf(0.1)) == 0.25
    assert least_robust_error(X[1:3], [1, 0], tp.LInf(10.0)) == 0.0


@pytest.mark.parametrize("kind", [RobustGBDTClassifier, RobustRandomForestClassifier])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_no_model_is_worse_than_a_constant_answer(kind: Any, n_classes: int) -> None:
    random = np.random.default_rng(0)
    X, y = random.random((60, 2)), random.integers(0, n_classes, 60)
    model = kind(eps=0.4, n_estimators=5, random_state=0).fit(X, y)
    constant = 1.0 - np.bincount(y).max() / len(y)
    assert model.robust_error_ <= constant
    results = tp.verify(model, X.astype(np.float32), y, tp.LInf(0.4))
    assert np.mean(results.verdict != "verified") == pytest.approx(model.robust_error_)


@pytest.mark.parametrize("kind", [RobustGBDTClassifier, RobustRandomForestClassifier])
def test_training_against_worst_cases_beats_the_method_of_chen(kind: Any) -> None:
    X, y = make_classification(400, 6, n_informative=4, random_state=0)
    X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    errors = {}
    for method in ("exact", "chen2019"):
        model = kind(eps=0.1, method=method, n_estimators=15, max_depth=3, random_state=0).fit(
            X[:200], y[:200]
        )
        results = tp.verify(model, X[200:], y[200:], tp.LInf(0.1))
        errors[method] = np.mean(results.verdict != "verified")
    assert errors["exact"] < errors["chen2019"]


def test_pruning_makes_models_smaller_and_raises_no_loss() -> None:
    X, y = problem(9, n_rows=200)
    options: dict[str, Any] = {"eps": 0.1, "n_estimators": 15, "max_depth": 3, "leaf_penalty": 3.0}
    whole, pruned = (
        RobustGBDTClassifier(prune=prune, **options).fit(X, y).to_ensemble()
        for prune in (False, True)
    )
    assert pruned.n_leaves < whole.n_leaves
    objectives = []
    for ensemble in (whole, pruned):
        worst = WorstCases(ensemble, boxes_around(X.astype(np.float32), tp.LInf(0.1)), y)
        fitted = fit_against_worst_cases(worst, np.ones(len(y)), 3.0, rounds=30, tolerance=1e-3)
        objectives.append(fitted.objective)
    assert objectives[1] <= objectives[0] * 1.01


def test_directions_and_frozen_features_are_used() -> None:
    random = np.random.default_rng(0)
    X = random.random((200, 2))
    y = (X[:, 0] > 0.5).astype(int)
    frozen = RobustGBDTClassifier(
        perturbation=tp.LInf(0.3, frozen=[0]), n_estimators=5, max_depth=2
    ).fit(X, y)
    assert frozen.reach_.tolist() == pytest.approx([0.0, 0.3], abs=1e-6)
    assert frozen.robust_error_ == 0.0
    one_way = RobustGBDTClassifier(
        perturbation=tp.LInf(0.3, below={"a": 0.0}), n_estimators=5, max_depth=2
    ).fit(pd.DataFrame(X, columns=["a", "b"]), y)
    both_ways = RobustGBDTClassifier(eps=0.3, n_estimators=5, max_depth=2).fit(X, y)
    assert one_way.robust_error_ < both_ways.robust_error_


def test_the_same_model_from_any_number_of_threads_and_weights_as_copies() -> None:
    X, y = problem(6, n_rows=100)
    options: dict[str, Any] = {"eps": 0.1, "n_estimators": 5, "max_depth": 3, "conflicts": "keep"}
    one, two = (RobustGBDTClassifier(n_jobs=jobs, **options).fit(X, y) for jobs in (1, 2))
    assert one.to_ensemble().fingerprint == two.to_ensemble().fingerprint
    mixed = np.random.default_rng(0).permutation(len(y))
    shuffled = RobustGBDTClassifier(**options).fit(X[mixed], y[mixed])
    assert shuffled.to_ensemble().fingerprint == one.to_ensemble().fingerprint
    by_columns = RobustGBDTClassifier(**options).fit(np.asfortranarray(X), y)
    assert by_columns.to_ensemble().fingerprint == one.to_ensemble().fingerprint
    weighted = RobustGBDTClassifier(**options).fit(X, y, np.full(len(y), 2.0))
    copied = RobustGBDTClassifier(**options).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    assert weighted.to_ensemble().fingerprint == copied.to_ensemble().fingerprint


def test_early_stopping_watches_the_exact_robust_error() -> None:
    X, y = problem(7, n_rows=200)
    seen: list[dict[str, float]] = []
    model = RobustGBDTClassifier(
        eps=0.1, n_estimators=30, max_depth=2, early_stopping_rounds=4, leaf_penalty=None,
        progress=lambda done, planned, scores: seen.append(scores),
    )  # fmt: skip
    model.fit(X[:120], y[:120], eval_set=[(X[120:], y[120:])])
    curve = model.evals_result_["validation_0"]["robust_error"]
    assert len(seen) == len(curve)
    assert model.best_iteration_ == int(np.argmin(curve))
    results = tp.verify(model, X[120:].astype(np.float32), y[120:], tp.LInf(0.1))
    if not model.is_constant_:
        assert np.mean(results.verdict != "verified") == pytest.approx(min(curve))


def test_the_search_chooses_by_held_out_rows_and_says_what_it_saw() -> None:
    X, y = make_classification(150, 4, n_informative=3, n_redundant=0, random_state=1)
    X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    grid = {"max_depth": [1, 2], "n_estimators": [8]}
    options: dict[str, Any] = {"param_grid": grid, "leaf_penalties": (1.0, 5.0), "cv": 3}
    search = RobustSearchCV(RobustGBDTClassifier(eps=0.05), **options).fit(X, y)
    results = search.cv_results_
    assert len(results["params"]) == 5
    assert results["params"][-1] == {}
    assert search.best_score_ == results["robust_error"].min()
    assert np.all(results["robust_error"] >= results["error"] - 1e-12)
    again = RobustSearchCV(RobustGBDTClassifier(eps=0.05), **options).fit(X, y)
    assert again.to_ensemble().fingerprint == search.to_ensemble().fingerprint
    assert search.predict_proba(X).shape == (150, 2)
    front = search.trade_off()
    for part in front:
        better = (results["error"] <= part["error"]) & (
            results["robust_error"] <= part["robust_error"]
        )
        same = results["robust_error"][better] == part["robust_error"]
        assert np.all(same & (results["error"][better] == part["error"]))
    assert front[-1]["robust_error"] == search.best_score_
    axes = search.plot_trade_off()
    assert axes.get_ylabel() == "robust error, exact"


def test_the_search_gives_a_constant_answer_where_nothing_is_better() -> None:
    random = np.random.default_rng(0)
    X, y = random.random((80, 2)), np.arange(80) % 4 == 0
    search = RobustSearchCV(
        RobustGBDTClassifier(eps=0.3), {"max_depth": [2], "n_estimators": [5]}, cv=3
    ).fit(X, y)
    assert search.is_constant_
    assert not search.predict(X).any()
    assert search.best_params_ == {}


ROWS, LABELS = problem(0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: RobustGBDTClassifier(eps=-0.1).fit(ROWS, LABELS), "'eps'"),
        (lambda: RobustGBDTClassifier(eps=0.1, method="best").fit(ROWS, LABELS), "'method'"),
        (lambda: RobustGBDTClassifier(eps=0.1).fit(ROWS, np.zeros(len(ROWS))), "one class"),
        (lambda: RobustGBDTClassifier(eps=0.1).fit(ROWS, np.full(len(ROWS), np.nan)), "NaN"),
        (lambda: RobustGBDTClassifier(eps=0.1).fit(ROWS[:0], LABELS[:0]), "0 sample"),
        (
            lambda: RobustGBDTClassifier(eps=0.1, frozen_features=["age"]).fit(ROWS, LABELS),
            "frozen_features",
        ),
        (lambda: RobustGBDTClassifier(perturbation=tp.L1()).fit(ROWS, LABELS), "radius"),
        (
            lambda: RobustGBDTClassifier(eps=1.0, perturbation=tp.LInf(1.0)).fit(ROWS, LABELS),
            "'perturbation'",
        ),
        (
            lambda: RobustGBDTClassifier(eps=0.1, monotone_constraints=[1, 0, 0]).fit(ROWS, LABELS),
            "chen2019",
        ),
        (lambda: RobustGBDTClassifier(eps=0.1, leaf_penalty=0.0).fit(ROWS, LABELS), "_penalty'"),
        (lambda: RobustGBDTClassifier(eps=0.1, conflicts="no").fit(ROWS, LABELS), "'conflicts'"),
        (lambda: least_robust_error(ROWS[:0], LABELS[:0], tp.LInf(0.1)), "at least one row"),
        (lambda: least_robust_error(ROWS, LABELS, tp.LInf()), "radius"),
        (lambda: least_robust_error(ROWS, LABELS, tp.LInf(-1.0)), "'eps'"),
        (
            lambda: robust_refit(
                xgboost.XGBRegressor(n_estimators=2).fit(ROWS, LABELS), ROWS, LABELS, tp.LInf(0.1)
            ),
            "scores",
        ),
        (
            lambda: RobustSearchCV(RobustGBDTClassifier(method="chen2019")).fit(ROWS, LABELS),
            "'exact'",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_in_a_sentence(call: Any, said: str) -> None:
    with pytest.raises((ValueError, tp.TreeproofError), match=said):
        call()
