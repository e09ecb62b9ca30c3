"""Genuine runs with evidence to forge: trained models of four libraries, and random ensembles."""

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import treeproof
from tests.strategies import Sizes, random_ball, random_rows, random_tree_ensemble
from treeproof.model.ensemble import CATEGORICAL, ZERO_IS_MISSING, Ensemble
from treeproof.prediction import Model
from treeproof.results.run_file import row_records

FloatArray = NDArray[np.float64]
Record = dict[str, Any]

MOST_CELLS = 3000
"""Combinations of cells that are enumerated to know the truth."""


@dataclass
class GenuineRun:
    """A run as a file holds it, with its model and its data."""

    name: str
    ensemble: Ensemble
    header: Record
    records: list[Record]
    rows: FloatArray
    labels: list[Any] | None


def training_data(rng: np.random.Generator, *, missing: bool, category: bool) -> tuple[Any, Any]:
    """Rows on a coarse grid, so that thresholds repeat, and labels of two or three classes."""
    n, n_features = 60, int(rng.integers(1, 4))
    X = rng.integers(0, 7, (n, n_features)) / float(rng.choice([1.0, 8.0, 10.0]))
    X *= rng.choice([1.0, 1.0, 1e-3, 1e4], n_features)
    z = X @ rng.standard_normal(n_features) / np.abs(X).max(axis=0).clip(1e-9).sum()
    z += 0.3 * rng.standard_normal(n)
    if category:
        X[:, -1] = rng.integers(0, 4, n)
        z += (X[:, -1] == 2) * 0.5
    y = np.digitize(z, np.quantile(z, [0.5] if rng.random() < 0.6 else [0.4, 0.7]))
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


def _xgboost(rng: np.random.Generator) -> Any:
    from xgboost import XGBClassifier, XGBRegressor

    X, y = training_data(rng, missing=bool(rng.random() < 0.4), category=False)
    kind = XGBRegressor if rng.random() < 0.25 else XGBClassifier
    options = {"n_estimators": int(rng.integers(1, 4)), "max_depth": 2, "n_jobs": 1}
    return kind(**options, min_child_weight=0.1, base_score=0.5).fit(X, y), X


def _lightgbm(rng: np.random.Generator) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    category = bool(rng.random() < 0.4)
    X, y = training_data(rng, missing=bool(rng.random() < 0.4), category=category)
    kind = LGBMRegressor if rng.random() < 0.25 else LGBMClassifier
    options: dict[str, Any] = {"n_estimators": int(rng.integers(1, 4)), "num_leaves": 4,
                               "min_child_samples": 2, "verbose": -1, "n_jobs": 1,
                               "min_data_per_group": 2, "cat_smooth": 1.0,
                               "zero_as_missing": bool(rng.random() < 0.3)}  # fmt: skip
    names = [X.shape[1] - 1] if category else "auto"
    return kind(**options).fit(X, y, categorical_feature=names), X


def _catboost(rng: np.random.Generator) -> Any:
    from catboost import CatBoostClassifier, CatBoostRegressor

    X, y = training_data(rng, missing=False, category=False)
    kind = CatBoostRegressor if rng.random() < 0.25 else CatBoostClassifier
    options = {"iterations": int(rng.integers(1, 4)), "depth": 2, "verbose": False,
               "allow_writing_files": False, "thread_count": 1}  # fmt: skip
    return kind(**options).fit(X, y), X


def _sklearn(rng: np.random.Generator) -> Any:
    from sklearn import ensemble, tree

    category = bool(rng.random() < 0.2)
    missing = bool(rng.random() < 0.2)
    X, y = training_data(rng, missing=missing, category=category)
    if category or missing:
        names = [X.shape[1] - 1] if category else None
        return ensemble.HistGradientBoostingClassifier(
            max_iter=2, max_leaf_nodes=4, min_samples_leaf=2, categorical_features=names
        ).fit(X, y), X  # fmt: skip
    makers: list[Callable[[], Any]] = [
        lambda: tree.DecisionTreeClassifier(max_depth=3),
        lambda: tree.DecisionTreeRegressor(max_depth=3),
        lambda: ensemble.RandomForestClassifier(3, max_depth=2),
        lambda: ensemble.ExtraTreesClassifier(3, max_depth=2),
        lambda: ensemble.RandomForestRegressor(3, max_depth=2),
        lambda: ensemble.GradientBoostingClassifier(n_estimators=2, max_depth=2),
    ]
    model = makers[int(rng.integers(len(makers)))]()
    names = np.array(["ham", "spam", "eggs"]) if rng.random() < 0.5 else np.arange(3)
    is_label = hasattr(model, "predict_proba")
    return model.set_params(random_state=0).fit(X, names[y] if is_label else y), X


LIBRARIES: dict[str, Callable[[np.random.Generator], Any]] = {
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "catboost": _catboost,
    "sklearn": _sklearn,
}


def n_cells(ensemble: Ensemble) -> int:
    """Combinations of cells of all numeric features."""
    trees, total = ensemble.trees, 1
    for feature in range(ensemble.n_features):
        own = (trees.feature == feature) & ((trees.flags & CATEGORICAL) == 0)
        banded = 2 * bool(np.any(trees.flags[own] & ZERO_IS_MISSING))
        total *= len(np.unique(trees.threshold[own])) + banded + 1
    return total


def some_model(rng: np.random.Generator) -> tuple[str, Ensemble, FloatArray]:
    """A small model, and rows that it was made from."""
    while True:
        if rng.random() < 0.35:
            name, sizes = "random", Sizes(trees=5, depth=3, features=3, outputs=3, rows=4)
            ensemble = random_tree_ensemble(rng, sizes)
            rows = random_rows(rng, ensemble, 12)
        else:
            name = str(rng.choice(list(LIBRARIES)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model, rows = LIBRARIES[name](rng)
                ensemble = treeproof.load(model, self_test=False).ensemble
        if n_cells(ensemble) <= MOST_CELLS:
            return name, ensemble, rows


def some_rows(rng: np.random.Generator, ensemble: Ensemble, rows: FloatArray) -> FloatArray:
    """A few rows; values are often moved onto thresholds, or next to them."""
    picked = rows[rng.integers(len(rows), size=int(rng.integers(2, 5)))].copy()
    trees = ensemble.trees
    for feature in range(ensemble.n_features):
        own = (trees.feature == feature) & ((trees.flags & CATEGORICAL) == 0)
        cuts = trees.threshold[own & np.isfinite(trees.threshold)]
        for row in range(len(picked)):
            if len(cuts) and rng.random() < 0.4:
                cut = float(rng.choice(cuts))
                picked[row, feature] = rng.choice([cut, np.nextafter(cut, -np.inf), cut + 0.05])
    if not ensemble.missing_allowed:
        picked = np.nan_to_num(picked)
    return picked


def some_question(
    rng: np.random.Generator, ensemble: Ensemble, rows: FloatArray
) -> tuple[str, Any, dict[str, Any]]:
    """What to ask of a model: kind, perturbation and options."""
    options: dict[str, Any] = {"arithmetic": str(rng.choice(["real", "float64"]))}
    spread = float(np.nanmax(np.abs(rows), initial=0.1)) or 1.0
    if ensemble.n_outputs == 1 and (not ensemble.classes or rng.random() < 0.15):
        scores = Model(ensemble).margins(rows)
        if rng.random() < 0.5:
            options["goal"] = treeproof.ScoreChange(float(rng.choice([0.0, 0.1, 0.5])))
        else:
            middle, width = float(np.mean(scores)), float(np.ptp(scores)) + 0.1
            high = rng.choice([np.inf, middle + width])
            options["goal"] = treeproof.ScoreWithin(middle - width, float(high))
    elif rng.random() < 0.25:
        target = ensemble.classes[int(rng.integers(len(ensemble.classes)))]
        options["goal"] = treeproof.AvoidsTarget(target)
    if ensemble.classes and rng.random() < 0.2:
        options["attacker_class"] = ensemble.classes[int(rng.integers(len(ensemble.classes)))]
    kind = str(rng.choice(["radius", "radius", "ball", "box"]))
    if kind == "box":
        shape = rows.shape if rng.random() < 0.5 else rows.shape[1:]
        sides = np.nan_to_num(rows if len(shape) == 2 else rows[0])
        width = spread * rng.choice([0.0, 0.1, 0.5, np.inf], size=shape)
        return "verify", treeproof.Box(sides - width, sides + width), options
    eps = None if kind == "radius" else spread * float(rng.choice([0.0, 0.05, 0.125, 0.5]))
    return (
        ("radius" if eps is None else "verify"),
        random_ball(rng, rows.shape[1], eps=eps),
        options,
    )


def genuine_run(rng: np.random.Generator, model: Any = None) -> GenuineRun:
    """A run with evidence, as a file gives it back."""
    name, ensemble, source = some_model(rng) if model is None else model
    while True:
        rows = some_rows(rng, ensemble, source)
        kind, perturbation, options = some_question(rng, ensemble, rows)
        labels = None
        if ensemble.classes and rng.random() < 0.5:
            numbers = rng.integers(len(ensemble.classes), size=len(rows))
            labels = [ensemble.classes[number] for number in numbers]
        options["engine"] = "attack" if rng.random() < 0.1 else "exact"
        ask = treeproof.radius if kind == "radius" else treeproof.verify
        options |= {"evidence": True, "time_limit_s": 5.0}
        try:
            found = ask(Model(ensemble), rows, labels, perturbation, **options)
        except treeproof.InvalidInput:  # a row outside the bounds that were drawn
            continue
        break
    found.header |= {"n_rows": len(found), "state": "complete", "data": {"n_asked": len(found)}}
    header, *records = json.loads(json.dumps([found.header, *row_records(found)]))
    return GenuineRun(
        name=f"{name} {kind}",
        ensemble=ensemble,
        header=header,
        records=records,
        rows=np.array(found.values),
        labels=None if labels is None else json.loads(json.dumps(found.label.tolist())),
    )
