"""Boxes that training takes for the sets of perturbations, and where such sets meet."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import treeproof as tp
from treeproof.errors import UnsupportedQuery
from treeproof.query.boxes import boxes_around, columns_only
from treeproof.query.perturbations import resolve
from treeproof.query.prices import Pricing
from treeproof.query.pricing import pricing_of
from treeproof.training import RobustGBDTClassifier, least_robust_error

ROW = np.array([[0.5, 3.0, 1.0, 0.0, 2.0]])


def ends(perturbation: Any, feature: int, rows: np.ndarray = ROW) -> tuple[float, float]:
    boxes = boxes_around(rows, perturbation)
    return float(boxes.low[0, feature]), float(boxes.high[0, feature])


@pytest.mark.parametrize(
    ("perturbation", "feature", "expected"),
    [
        (tp.L1(0.25, scale=[2, 1, 1, 1, 1]), 0, (0.0, 1.0)),
        (tp.L2(0.25), 0, (0.25, 0.75)),
        (tp.L0(1, low=0.0, high=4.0), 1, (0.0, 4.0)),
        (tp.L0(1, low=0.0, frozen=[1]), 1, (3.0, 3.0)),
        (tp.L0(0, low=0.0), 1, (3.0, 3.0)),
        (tp.Cost(3.0, up=2.0, down=np.inf, fixed=1.0), 1, (3.0, 4.0)),
        (tp.Cost(3.0, up=0.0, high=9.0), 1, (0.0, 9.0)),
        (tp.Cost(0.5, fixed=1.0), 1, (3.0, 3.0)),
        (tp.LInf(0.5, relative=True), 1, (1.5, 4.5)),
        (tp.LInf(0.5, relative=True), 3, (0.0, 0.0)),
        (tp.LInf(1.7, domain=tp.Domain(integer=[1])), 1, (2.0, 4.0)),
        (tp.LInf(1.7, domain=tp.Domain(values={1: [1.0, 2.5, 3.0, 3.5, 7.0]})), 1, (2.5, 3.5)),
        (tp.LInf(1.7, domain=tp.Domain(ranges={1: (2.0, 9.0)})), 1, (2.0, 4.7)),
        (tp.LInf(0.5, domain=tp.Domain(one_hot=[[2, 3]])), 3, (0.0, 0.0)),
        (tp.LInf(1.0, domain=tp.Domain(one_hot=[[2, 3]])), 3, (0.0, 1.0)),
        (tp.LInf(2.0, domain=tp.Domain(categorical={4: [0, 1, 2, 5]})), 4, (0.0, 5.0)),
        (tp.LInf(0.5, domain=tp.Domain(categorical={4: [0, 1, 2, 5]})), 4, (2.0, 2.0)),
        (tp.LInf(2.0, domain=tp.Domain(categorical={4: {2: [1], 1: [9]}})), 4, (1.0, 2.0)),
        (tp.All(tp.L0(1), tp.LInf(0.25)), 0, (0.25, 0.75)),
    ],
)  # fmt: skip
def test_each_feature_gets_as_far_as_it_can_alone(
    perturbation: Any, feature: int, expected: tuple[float, float]
) -> None:
    assert ends(perturbation, feature) == pytest.approx(expected, abs=1e-9)


def test_missing_values_stay_and_do_not_hide_their_neighbours() -> None:
    rows = np.array([[np.nan, 1.0], [0.5, np.nan]])
    boxes = boxes_around(rows, tp.Cost(1.0, domain=tp.Domain(integer=[1])))
    np.testing.assert_array_equal(boxes.low, [[np.nan, 0.0], [boxes.low[1, 0], np.nan]])
    assert boxes.low[1, 0] == pytest.approx(-0.5)
    with pytest.raises(UnsupportedQuery, match="may_miss"):
        boxes_around(rows, tp.LInf(0.1, domain=tp.Domain(may_miss=[0])))


def candidates(pricing: Pricing, grid: list[np.ndarray]) -> list[np.ndarray]:
    """Points of a grid that the question itself allows, by exact costs and rules."""
    found = []
    for values in itertools.product(*grid):
        point = np.array(values)
        cost = pricing.exact_cost(0, point)
        if cost is None or pricing.broken_rule(0, point) is not None:
            continue
        if pricing.limit is None or cost <= pricing.limit:
            found.append(point)
    return found


@pytest.mark.parametrize(
    "perturbation",
    [
        tp.L1(1.0, scale=[0.5, 2.0, 1.0, 1.0], domain=tp.Domain(one_hot=[[2, 3]])),
        tp.L2(1.5, domain=tp.Domain(integer=[1])),
        tp.L0(2, low=0.0, high=4.0, domain=tp.Domain(one_hot=[[2, 3]])),
        tp.Cost(2.0, up=[1, 4, 1, 1], down=[np.inf, 1, 1, 1], fixed=0.25),
        tp.Cost(
            1.0, up=9.0, down=9.0, table={2: {2: {3: 0.5}}}, domain=tp.Domain(one_hot=[[2, 3]])
        ),
        tp.LInf(1.0, relative=True, domain=tp.Domain(values={1: [0.0, 3.5, 4.0]},
                                                    allow_broken_rows=True)),
    ],
)  # fmt: skip
def test_no_allowed_change_leaves_the_box(perturbation: Any) -> None:
    row = np.array([[0.5, 3.0, 1.0, 0.0]])
    columns = columns_only(4, ())
    pricing = pricing_of(perturbation, columns, row, resolve(perturbation, row))
    axis = np.arange(-1.0, 5.25, 0.25)
    allowed = candidates(pricing, [axis, axis, np.array([0.0, 1.0]), np.array([0.0, 1.0])])
    assert len(allowed) > 3 or perturbation.eps < 2.0
    boxes = boxes_around(row, perturbation)
    points = np.array(allowed)
    assert np.all((boxes.low <= points) & (points <= boxes.high))


@pytest.mark.parametrize(
    "perturbation",
    [
        tp.L1(0.1),
        tp.Cost(0.1, up=[1, 2, 1], down=1.0),
        tp.LInf(0.1, domain=tp.Domain(rules="x[0] <= x[1] + 1")),
    ],
)
def test_a_row_that_training_calls_safe_is_verified_against_the_set_itself(
    perturbation: Any,
) -> None:
    random = np.random.default_rng(0)
    X = random.random((150, 3))
    y = (X[:, 0] + X[:, 1] > 1.0).astype(int)
    model = RobustGBDTClassifier(perturbation=perturbation, n_estimators=8, max_depth=2).fit(X, y)
    assert not model.is_constant_
    found = tp.verify(tp.load(model), X, y, perturbation)
    itself = np.mean(found.verdict != "verified")
    assert 0.0 < itself <= model.robust_error(X, y)


def can_meet(one: np.ndarray, other: np.ndarray, kind: str, radius: float) -> bool:
    """Whether two sets have a point in common, by another way."""
    if kind == "L0":
        return bool(np.sum(one != other) <= 2 * int(radius))
    n = len(one)
    if kind == "L2":
        return bool(np.linalg.norm(one - other) <= 2.0 * radius - 1e-9)
    # A point z, and how far it is from each row in each feature.
    cost = np.zeros(3 * n)
    rows = []
    limits = []
    for start, row in ((n, one), (2 * n, other)):
        for feature in range(n):
            for sign in (1.0, -1.0):
                line = np.zeros(3 * n)
                line[feature], line[start + feature] = sign, -1.0
                rows.append(line)
                limits.append(sign * row[feature])
        line = np.zeros(3 * n)
        line[start : start + n] = 1.0
        rows.append(line)
        limits.append(radius - 1e-9)
    return bool(linprog(cost, np.array(rows), limits, bounds=(None, None)).success)


@pytest.mark.parametrize("kind", ["L1", "L2", "L0"])
def test_the_least_error_of_sets_that_are_no_boxes(kind: str) -> None:
    random = np.random.default_rng(1)
    X, y = random.integers(0, 8, size=(24, 3)) / 8.0, random.integers(0, 2, size=24)
    radius = 1.0 if kind == "L0" else 0.2
    own, other = X[y == 0], X[y == 1]
    meets = np.array([[can_meet(one, two, kind, radius) for two in other] for one in own])
    assert 0 < meets.sum() < meets.size
    partner = np.full(len(other), -1)

    def place(row: int, seen: set[int]) -> bool:
        """Augmenting paths, the plainest way to a largest matching."""
        for column in np.flatnonzero(meets[row]).tolist():
            if column not in seen:
                seen.add(column)
                if partner[column] < 0 or place(int(partner[column]), seen):
                    partner[column] = row
                    return True
        return False

    size = sum(place(row, set()) for row in range(len(own)))
    assert least_robust_error(X, y, getattr(tp, kind)(radius)) == pytest.approx(size / len(X))


def test_the_least_error_is_refused_where_it_is_not_known() -> None:
    X, y = np.random.default_rng(0).random((10, 2)), np.arange(10) % 2
    for perturbation in (
        tp.L1(0.1, below=0.0),
        tp.Cost(1.0),
        tp.LInf(0.1, domain=tp.Domain(rules="x[0] - 2 * x[1] <= 0", allow_broken_rows=True)),
    ):
        with pytest.raises(UnsupportedQuery, match="LInf within"):
            least_robust_error(X, y, perturbation)


def test_categories_of_a_model_stay_unless_a_domain_lets_them_change() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    random = np.random.default_rng(0)
    X = np.column_stack([random.random(200), random.integers(0, 4, size=200)])
    y = ((X[:, 1] == 2) ^ (X[:, 0] > 0.8)).astype(int)
    model = lightgbm.LGBMClassifier(n_estimators=5, min_child_samples=5, verbosity=-1)
    model.fit(X, y, categorical_feature=[1])
    ensemble = tp.load(model).ensemble
    kept = boxes_around(X, tp.LInf(1.5), model=ensemble)
    np.testing.assert_array_equal(kept.low[:, 1], X[:, 1])
    np.testing.assert_array_equal(kept.high[:, 1], X[:, 1])
    assert np.all(kept.low[:, 0] < X[:, 0])
    some = tp.Domain(categorical={1: [0, 1, 3]})
    moved = boxes_around(X, tp.LInf(1.5, domain=some), model=ensemble)
    np.testing.assert_array_equal(moved.low[:, 1], 0.0)
    np.testing.assert_array_equal(moved.high[:, 1], 3.0)
    again = tp.robust_refit(model, X, y, tp.LInf(0.05), leaf_penalty=1.0)
    before, after = (
        np.sum(tp.verify(one, X, y, tp.LInf(0.05)).verdict != "verified") for one in (model, again)
    )
    assert after <= before
