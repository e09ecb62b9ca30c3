"""Leaves that boxes reach, and whole arrays in place of loops: the same as one by one."""

import itertools
from typing import Any

import lightgbm
import numpy as np
import pytest
import xgboost

import treeproof as tp
from tests import modes
from treeproof.model.evaluate import leaf_rows
from treeproof.query.boxes import boxes_around
from treeproof.training import RobustGBDTClassifier
from treeproof.training.worst_cases import WorstCases


def problem(seed: int, n_classes: int, n_rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    X = np.round(random.random((n_rows, 3)), 2)
    X[random.random(X.shape) < 0.2] = 0.0
    score = X @ [1.0, -1.0, 0.5] + 0.1 * random.standard_normal(n_rows)
    return X, np.digitize(score, np.quantile(score, np.arange(1, n_classes) / n_classes))


MODELS = {
    "xgboost": lambda: xgboost.XGBClassifier(n_estimators=6, max_depth=3),
    # Zero as missing: what goes left is several runs of cells.
    "lightgbm": lambda: lightgbm.LGBMClassifier(
        n_estimators=6, max_depth=3, min_child_samples=3, zero_as_missing=True, verbosity=-1
    ),
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", MODELS)
def test_leaves_are_reached_that_some_point_reaches(kind: str, n_classes: int) -> None:
    X, y = problem(3, n_classes, n_rows=30)
    ensemble = tp.load(MODELS[kind]().fit(X, y)).ensemble
    boxes = boxes_around(X, tp.LInf(0.3))
    worst = WorstCases(ensemble, boxes, y)
    values = worst.values_of(ensemble.trees.leaf_value)
    _, bounds = worst.find(values)
    table = values[: worst.n_values].reshape(-1, worst.width)
    bias = values[worst.n_values : -1] * 3.0
    _, lower = worst._rivals(table, bias)
    joint, reached = worst._models.joint, worst._reached
    n_reached = n_found = 0
    for row in range(len(X)):
        axes = []
        for feature, (low, high) in enumerate(zip(boxes.low[row], boxes.high[row], strict=True)):
            cuts = np.append(np.unique(joint.trees.threshold[joint.trees.feature == feature]), 0.0)
            inside = [low, high, *cuts[(cuts >= low) & (cuts <= high)]]
            inside += [value for cut in inside for value in (cut - 1e-9, cut + 1e-9)]
            axes.append([value for value in inside if low <= value <= high])
        found = leaf_rows(joint, np.array(list(itertools.product(*axes))))
        for tree in range(ensemble.n_trees):
            place = row * ensemble.n_trees + tree
            nodes = reached.node[reached._start[place] : reached._start[place + 1]]
            leaves = set(ensemble.trees.leaf[nodes].tolist())
            assert leaves >= set(found[:, tree].tolist())
            n_reached += len(leaves)
            n_found += len(set(found[:, tree].tolist()))
    # Paths that contradict themselves, which some libraries have, are all that is too much.
    assert n_reached <= 1.05 * n_found
    # What the worst leaves of all trees add up to is a bound of what searches find.
    assert (lower[:, 0] <= bounds + 1e-9).all()


def test_rows_that_nobody_wants_searched_keep_their_bound() -> None:
    X, y = problem(4, 3)
    ensemble = tp.load(MODELS["xgboost"]().fit(X, y)).ensemble
    worst = WorstCases(ensemble, boxes_around(X, tp.LInf(0.15)), y)
    values = worst.values_of(ensemble.trees.leaf_value)
    asked: list[Any] = []

    def nobody(lower: np.ndarray, margins: np.ndarray) -> np.ndarray:
        asked.append((lower, margins))
        return np.zeros(len(lower), dtype=bool)

    cuts, bounds = worst.find(values, is_open=nobody)
    ((lower, margins),) = asked
    np.testing.assert_array_equal(bounds, lower)
    np.testing.assert_allclose(cuts.margins(values), margins)
    exact_cuts, exact = worst.find(values)
    assert (bounds <= exact + 1e-9).all()
    assert (bounds < exact - 1e-9).any()
    assert (cuts.margins(values) >= exact - 1e-9).all()
    assert (exact_cuts.margins(values) <= cuts.margins(values) + 1e-9).all()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("eps", [0.0, 0.05])
def test_plain_python_trains_the_models_of_machine_code(eps: float, n_classes: int) -> None:
    X, y = problem(5, n_classes, n_rows=150)
    X[::7, 1] = np.nan
    options: dict[str, Any] = {"eps": eps, "n_estimators": 3, "max_depth": 3, "subsample": 0.8}

    def fingerprint() -> str:
        model = RobustGBDTClassifier(**options, random_state=0, min_samples_leaf=3).fit(X, y)
        return str(model.to_ensemble().fingerprint)

    with modes.plain():
        plain = fingerprint()
    with modes.machine_code():
        assert fingerprint() == plain
