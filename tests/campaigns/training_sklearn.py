"""Tiny trained models of scikit-learn."""

from typing import Any

import numpy as np
from sklearn import ensemble, tree
from threadpoolctl import ThreadpoolController

from tests.campaigns.data import Data, Random, class_target, number_target, random_data
from tests.campaigns.training import (
    class_count,
    missing_columns,
    number_categories,
    own_threshold,
    probability_above,
    tree_count,
)
from tests.oracle.library_models import Deployed, histogram_cuts, sklearn_cuts

_THREADS = ThreadpoolController()
"""Starting threads costs these models far more than what the threads do."""

CLASSIFIERS = (
    *("DecisionTreeClassifier", "DecisionTreeClassifier", "DecisionTreeClassifier"),
    "ExtraTreeClassifier",
    *("RandomForestClassifier", "ExtraTreesClassifier", "GradientBoostingClassifier"),
    *("HistGradientBoostingClassifier", "HistGradientBoostingClassifier", "AdaBoostClassifier"),
)
REGRESSORS = (
    *("DecisionTreeRegressor", "DecisionTreeRegressor", "DecisionTreeRegressor"),
    *("ExtraTreeRegressor", "RandomForestRegressor"),
    *("ExtraTreesRegressor", "GradientBoostingRegressor", "HistGradientBoostingRegressor"),
    "IsolationForest",
)


def _settings(random: Random, kind: str, n_classes: int) -> dict[str, Any]:
    seed = int(random.integers(1000))
    depth = int(random.integers(1, 4))
    trees = tree_count(random, n_classes) if "Extra" not in kind else int(random.integers(1, 6))
    if kind.startswith("Hist"):
        settings: dict[str, Any] = {
            "max_iter": trees,
            "max_depth": depth,
            "min_samples_leaf": int(random.choice([1, 2])),
            "learning_rate": float(random.choice([1.0, 0.3, 0.1])),
            "early_stopping": False,
        }
        if kind == "HistGradientBoostingRegressor":
            losses = ["squared_error", "absolute_error", "poisson", "quantile"]
            settings |= {"loss": str(random.choice(losses)), "quantile": 0.7}
        return settings
    if kind.startswith("Gradient"):
        settings = {
            "n_estimators": trees,
            "max_depth": depth,
            "learning_rate": float(random.choice([1.0, 0.5, 0.1])),
            "random_state": seed,
        }
        if kind.endswith("Classifier") and n_classes == 2 and random.random() < 0.3:
            settings["loss"] = "exponential"
        if random.random() < 0.3:
            settings["init"] = "zero"
        return settings
    if kind == "AdaBoostClassifier":
        member = tree.DecisionTreeClassifier(max_depth=depth, random_state=seed)
        return {"estimator": member, "n_estimators": trees, "random_state": seed}
    if kind == "IsolationForest":
        return {"n_estimators": trees, "max_samples": 6, "random_state": seed, "n_jobs": 1}
    settings = {"max_depth": depth, "random_state": seed}
    if "Trees" in kind or "Forest" in kind:
        settings |= {"n_estimators": trees, "n_jobs": 1}
        if random.random() < 0.4:
            settings["bootstrap"] = False
    elif random.random() < 0.3:
        settings["max_depth"] = None
    return settings


def sklearn_model(random: Random) -> Deployed:
    """scikit-learn: trees, forests, boosting of both kinds, AdaBoost and isolation forests."""
    with _THREADS.limit(limits=1):
        return _sklearn_model(random)


def _labels(model: Any) -> Any:
    def predict(rows: Any) -> Any:
        with _THREADS.limit(limits=1):
            return model.predict(rows)

    return predict


def _sklearn_model(random: Random) -> Deployed:
    is_classifier = random.random() < 0.7
    kind = str(random.choice(CLASSIFIERS if is_classifier else REGRESSORS))
    is_histogram = kind.startswith("Hist")
    takes_missing = not kind.startswith(("Gradient", "Ada", "Isolation"))
    data = random_data(
        random,
        np.float64 if is_histogram else np.float32,
        categories=is_histogram and random.random() < 0.3,
        missing=takes_missing and random.random() < 0.4,
    )
    n_classes = class_count(random) if is_classifier else 0
    settings = _settings(random, kind, n_classes)
    if data.categories:
        settings["categorical_features"] = sorted(data.categories)
    maker = getattr(tree, kind, None) or getattr(ensemble, kind)
    model = maker(**settings)
    options: dict[str, Any] = {}
    label, classes = None, ()
    if is_classifier:
        rows, target = class_target(random, data, n_classes)
        if random.random() < 0.3:
            target = np.array([f"c{number:02d}" for number in range(n_classes)])[target]
        model.fit(rows, target)
        classes = tuple(model.classes_.tolist())
        label = _labels(model)
        if n_classes == 2:
            options = own_threshold(random, model.predict_proba, rows)
        if options:
            label = probability_above(model.predict_proba, options, model.classes_)
    elif kind == "IsolationForest":
        model.fit(data.rows)
        classes, label = (-1, 1), model.predict
    else:
        positive = settings.get("loss") == "poisson"
        model.fit(data.rows, number_target(random, data, positive=positive))
    return Deployed(
        library="sklearn",
        kind=kind,
        source=model,
        precision=np.float64 if is_histogram else np.float32,
        cuts=_cuts(model, kind, data),
        score=_score(model, kind, options),
        label=label,
        classes=classes,
        categories=number_categories(data),
        missing=missing_columns(random, data) if is_histogram else frozenset(data.missing),
        options=options,
        n_trees=_n_trees(model, kind),
        sample=data.rows,
    )


def _score(model: Any, kind: str, options: dict[str, Any]) -> Any:
    """What the library adds up, before labels are made of it."""
    if kind.startswith("Hist"):
        return lambda rows: model._raw_predict(rows, n_threads=1)
    if kind in ("GradientBoostingClassifier", "AdaBoostClassifier", "IsolationForest"):
        return model.decision_function
    if kind.endswith("Classifier"):
        if options:
            return lambda rows: model.predict_proba(rows)[:, 1]
        return model.predict_proba
    return model.predict


def _members(model: Any, kind: str) -> list[Any]:
    if hasattr(model, "tree_"):
        return [model]
    return list(np.ravel(np.asarray(model.estimators_, dtype=object)))


def _n_trees(model: Any, kind: str) -> int:
    if kind.startswith("Hist"):
        return sum(len(iteration) for iteration in model._predictors)
    return len(_members(model, kind))


def _cuts(model: Any, kind: str, data: Data) -> Any:
    n_features = len(data.levels)
    if kind.startswith("Hist"):
        return histogram_cuts(model, n_features, sorted(data.categories))
    members = _members(model, kind)
    columns = getattr(model, "estimators_features_", None)
    if columns is None or kind != "IsolationForest":
        columns = [np.arange(n_features)] * len(members)
    return sklearn_cuts([member.tree_ for member in members], columns, n_features)
