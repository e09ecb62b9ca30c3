"""Small scikit-learn models that differ in kind, for the tests of the loaders."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import sklearn
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

VERSION = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
TAKES_MISSING = VERSION >= (1, 6)  # extra trees took NaN from then on
SAMME = {"algorithm": "SAMME"} if VERSION < (1, 6) else {}

N_FEATURES = 6


def _binary() -> tuple[np.ndarray, np.ndarray]:
    return make_classification(
        400, N_FEATURES, n_informative=4, n_redundant=0, flip_y=0.1, random_state=3
    )


def _three() -> np.ndarray:
    return make_classification(
        400, N_FEATURES, n_informative=4, n_redundant=0, n_classes=3, random_state=3
    )[1]


X, Y = _binary()
Y3 = _three()
TARGET = np.round(X[:, 0] * X[:, 1] + np.sin(X[:, 2]), 3)
COUNTS = np.floor(np.abs(TARGET) * 3)


def with_missing(share: float = 0.2) -> np.ndarray:
    """Rows with holes; column 2 is noise but for its holes, which nearly tell the class."""
    rows = X.copy()
    random = np.random.default_rng(5)
    rows[random.random(rows.shape) < share] = np.nan
    rows[:, 2] = np.where((random.random(len(rows)) < 0.1) ^ (Y == 1), np.nan, random.random(400))
    return rows


def with_categories(*, missing: bool = True) -> np.ndarray:
    """Column 1 holds codes 0 to 4, column 4 multiples of 3 up to 60."""
    rows = X.copy()
    random = np.random.default_rng(6)
    rows[:, 1] = (Y + random.integers(0, 4, len(rows))) % 5
    rows[:, 4] = random.integers(0, 21, len(rows)) * 3
    if missing:
        rows[random.random(len(rows)) < 0.1, 1] = np.nan
        rows[(random.random(len(rows)) < 0.3) & (Y == 0), 4] = np.nan
    return rows


@dataclass(frozen=True)
class Case:
    """An estimator, what it is trained on, and the threshold it is loaded with."""

    estimator: Any
    rows: Any
    target: Any
    threshold: float | None = None


def _case(estimator: Any, target: Any, rows: Any = None, threshold: float | None = None) -> Case:
    return Case(estimator, X if rows is None else rows, target, threshold)


CASES: dict[str, Callable[[], Case]] = {
    "tree": lambda: _case(DecisionTreeClassifier(random_state=0), Y),
    "tree, text labels": lambda: _case(
        DecisionTreeClassifier(random_state=0, splitter="random"), np.array(["x", "yy", "z"])[Y3]
    ),
    "tree, pruned and weighted": lambda: _case(
        DecisionTreeClassifier(ccp_alpha=0.01, class_weight={0: 1.0, 1: 3.3}, random_state=0), Y
    ),
    "tree, monotone": lambda: _case(
        DecisionTreeClassifier(monotonic_cst=[1, 0, 0, -1, 0, 0], max_depth=5, random_state=0), Y
    ),
    "tree, missing": lambda: _case(DecisionTreeClassifier(random_state=0), Y, with_missing()),
    "tree, threshold": lambda: _case(
        DecisionTreeClassifier(max_depth=4, random_state=0), Y, threshold=0.25
    ),
    "tree, one leaf": lambda: _case(DecisionTreeClassifier(max_depth=1, min_samples_leaf=200), Y),
    "regression tree": lambda: _case(DecisionTreeRegressor(random_state=0), TARGET),
    "regression tree, absolute error": lambda: _case(
        DecisionTreeRegressor(criterion="absolute_error", max_depth=4, random_state=0), TARGET
    ),
    "regression tree, poisson, missing": lambda: _case(
        DecisionTreeRegressor(
            criterion="poisson" if TAKES_MISSING else "squared_error", random_state=0
        ),
        COUNTS + 1,
        with_missing(),
    ),
    "extra tree": lambda: _case(ExtraTreeClassifier(random_state=0), Y3),
    "extra regression tree": lambda: _case(ExtraTreeRegressor(random_state=0), TARGET),
    "forest": lambda: _case(RandomForestClassifier(15, random_state=0), Y),
    "forest, even and shallow": lambda: _case(
        RandomForestClassifier(4, max_depth=1, bootstrap=False, random_state=0), Y
    ),
    "forest, three classes, missing": lambda: _case(
        RandomForestClassifier(15, criterion="entropy", random_state=0), Y3, with_missing()
    ),
    "forest, balanced, float labels": lambda: _case(
        RandomForestClassifier(
            15, class_weight="balanced_subsample", max_samples=0.5, random_state=0
        ),
        Y3 * 2.0 - 1.0,
    ),
    "forest, threshold": lambda: _case(
        RandomForestClassifier(15, max_depth=4, random_state=0), Y, threshold=0.3
    ),
    "regression forest": lambda: _case(RandomForestRegressor(15, random_state=0), TARGET),
    "extra trees, truth labels": lambda: _case(
        ExtraTreesClassifier(15, random_state=0), Y == 1, with_missing() if TAKES_MISSING else X
    ),
    "extra regression trees": lambda: _case(
        ExtraTreesRegressor(15, max_depth=6, random_state=0), TARGET
    ),
    "boosting": lambda: _case(GradientBoostingClassifier(n_estimators=20, random_state=0), Y),
    "boosting, three classes": lambda: _case(
        GradientBoostingClassifier(n_estimators=8, subsample=0.7, random_state=0), Y3
    ),
    "boosting, exponential": lambda: _case(
        GradientBoostingClassifier(loss="exponential", n_estimators=15, random_state=0), Y
    ),
    "boosting from zero": lambda: _case(
        GradientBoostingClassifier(init="zero", n_estimators=15, max_features=3, random_state=0), Y
    ),
    "boosting from a dummy": lambda: _case(
        GradientBoostingClassifier(
            init=DummyClassifier(strategy="prior"), n_estimators=10, random_state=0
        ),
        Y3,
    ),
    "boosting, early stop": lambda: _case(
        GradientBoostingClassifier(
            n_estimators=300, learning_rate=0.5, n_iter_no_change=3, random_state=0
        ),
        Y,
    ),
    "boosting, threshold": lambda: _case(
        GradientBoostingClassifier(n_estimators=15, random_state=0), Y, threshold=0.7
    ),
    "boosting, exponential, threshold": lambda: _case(
        GradientBoostingClassifier(loss="exponential", n_estimators=9, random_state=0),
        Y,
        threshold=0.2,
    ),
    "boosted regression": lambda: _case(
        GradientBoostingRegressor(n_estimators=20, max_leaf_nodes=9, random_state=0),
        TARGET,
    ),
    "boosted regression, huber": lambda: _case(
        GradientBoostingRegressor(loss="huber", n_estimators=15, random_state=0), TARGET
    ),
    "boosted regression, quantile": lambda: _case(
        GradientBoostingRegressor(loss="quantile", alpha=0.8, n_estimators=15, random_state=0),
        TARGET,
    ),
    "boosted regression, absolute error": lambda: _case(
        GradientBoostingRegressor(
            loss="absolute_error",
            init=DummyRegressor(strategy="median"),
            n_estimators=15,
            random_state=0,
        ),
        TARGET,
    ),
    "histogram boosting": lambda: _case(HistGradientBoostingClassifier(max_iter=15), Y),
    "histogram boosting, three classes": lambda: _case(
        HistGradientBoostingClassifier(max_iter=6, max_leaf_nodes=8), np.array(["a", "b", "c"])[Y3]
    ),
    "histogram boosting, missing": lambda: _case(
        HistGradientBoostingClassifier(max_iter=15, min_samples_leaf=5), Y, with_missing()
    ),
    "histogram boosting, categories": lambda: _case(
        HistGradientBoostingClassifier(
            max_iter=15, min_samples_leaf=5, categorical_features=[1, 4]
        ),
        Y,
        with_categories(),
    ),
    "histogram boosting, categories without missing, three classes": lambda: _case(
        HistGradientBoostingClassifier(max_iter=6, min_samples_leaf=5, categorical_features=[4, 1]),
        Y3,
        with_categories(missing=False),
    ),
    "histogram boosting, early stop": lambda: _case(
        HistGradientBoostingClassifier(
            max_iter=60, early_stopping=True, n_iter_no_change=2, random_state=0
        ),
        Y,
    ),
    "histogram boosting, monotone, threshold": lambda: _case(
        HistGradientBoostingClassifier(max_iter=15, monotonic_cst=[1, 0, 0, -1, 0, 0]),
        Y,
        threshold=0.9,
    ),
    "histogram boosting, few bins, float32 rows": lambda: _case(
        HistGradientBoostingClassifier(max_iter=15, max_bins=8, l2_regularization=1.0),
        Y,
        X.astype(np.float32),
    ),
    "histogram regression": lambda: _case(
        HistGradientBoostingRegressor(max_iter=15, interaction_cst="no_interactions"), TARGET
    ),
    "histogram regression, poisson, missing": lambda: _case(
        HistGradientBoostingRegressor(loss="poisson", max_iter=15, min_samples_leaf=5),
        COUNTS,
        with_missing(),
    ),
    "histogram regression, gamma": lambda: _case(
        HistGradientBoostingRegressor(loss="gamma", max_iter=10), COUNTS + 1
    ),
    "histogram regression, quantile, categories": lambda: _case(
        HistGradientBoostingRegressor(
            loss="quantile", quantile=0.7, max_iter=10, categorical_features=[4]
        ),
        TARGET,
        with_categories(),
    ),
    "adaboost, stumps": lambda: _case(AdaBoostClassifier(n_estimators=20, **SAMME), Y),
    "adaboost, three classes": lambda: _case(
        AdaBoostClassifier(
            DecisionTreeClassifier(max_depth=3), n_estimators=12, random_state=0, **SAMME
        ),
        Y3,
    ),
    "adaboost, threshold": lambda: _case(
        AdaBoostClassifier(ExtraTreeClassifier(max_depth=2), random_state=0, **SAMME),
        Y,
        threshold=0.55,
    ),
    "adaboost, perfect first tree": lambda: _case(
        AdaBoostClassifier(DecisionTreeClassifier(random_state=0), **SAMME), Y
    ),
    "isolation forest": lambda: _case(IsolationForest(n_estimators=20, random_state=0), None),
    "isolation forest, some features": lambda: _case(
        IsolationForest(n_estimators=20, max_features=3, contamination=0.1, random_state=0), None
    ),
    "isolation forest, one row": lambda: _case(
        IsolationForest(n_estimators=3, max_samples=1, random_state=0), None
    ),
    "isolation forest, missing": lambda: _case(
        IsolationForest(n_estimators=20, random_state=0),
        None,
        with_missing() if VERSION >= (1, 8) else X,
    ),
}


@cache
def fitted(name: str) -> tuple[Any, float | None]:
    """Trained estimator of a case, trained once, and the threshold it is loaded with."""
    case = CASES[name]()
    return case.estimator.fit(case.rows, case.target), case.threshold
