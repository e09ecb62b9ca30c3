"""Tiny trained models of every supported kind, each with its library's own way to answer."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.campaigns.data import Data, Random, class_target, number_target, random_data
from tests.oracle.library_models import (
    Deployed,
    catboost_cuts,
    lightgbm_cuts,
    smallest_double_cast_to,
    xgboost_cuts,
)


class NotTrained(Exception):  # noqa: N818 - reads as a statement
    """The library refused the data, or the model would be too large to enumerate."""


def class_count(random: Random) -> int:
    return int(random.choice([2, 2, 2, 3, 3, 4, 5, 7, 10, 12]))


def _names(random: Random, target: Any) -> Any:
    """Classes as numbers from 0, other numbers, or text."""
    kind = random.integers(4)
    if kind == 0:
        return np.array([f"c{number:02d}" for number in range(int(target.max()) + 1)])[target]
    return target * 3 - 4 if kind == 1 else target


def tree_count(random: Random, n_classes: int) -> int:
    """Mostly few; many trees over few cells need more of a search."""
    many = [15, 30] if n_classes <= 3 else [6]
    return int(random.choice([1, 2, 3, 4, 5, 6, *many]))


def _least_gain(random: Random) -> float:
    """Now and then so much that trees are single leaves."""
    return 1e9 if random.random() < 0.03 else 0.0


def own_threshold(random: Random, probability: Callable[[Any], Any], rows: Any) -> dict[str, Any]:
    """Now and then a decision threshold of the user's own, often a probability that occurs."""
    if random.random() > 0.15:
        return {}
    reached = float(random.choice(np.asarray(probability(rows), dtype=np.float64)[:, 1]))
    threshold = float(random.choice([0.5, 0.3, 0.25, 0.9, reached, reached, reached]))
    return {"decision_threshold": threshold} if 0.0 < threshold < 1.0 else {}


def probability_above(
    probability: Callable[[Any], Any], options: dict[str, Any], classes: Any
) -> Any:
    """The library's labels, or its probability compared with the user's threshold."""
    limit = options["decision_threshold"]
    return lambda rows: np.asarray(classes)[(probability(rows)[:, 1] >= limit).astype(np.int64)]


def xgboost_model(random: Random) -> Deployed:
    """XGBoost: classifiers, regressors, forests and DART, with categories and missing values."""
    import xgboost

    categories = random.random() < 0.25
    data = random_data(random, np.float32, categories=categories, missing=random.random() < 0.4)
    n_classes = class_count(random)
    settings: dict[str, Any] = {
        "n_estimators": tree_count(random, n_classes),
        "max_depth": int(random.integers(1, 4)),
        "learning_rate": float(random.choice([1.0, 0.5, 0.3])),
        "reg_lambda": float(random.choice([0.0, 1.0])),
        "min_child_weight": 0.0,
        "gamma": _least_gain(random),
        "tree_method": str(random.choice(["hist", "exact"])),
        "n_jobs": 1,
        "random_state": int(random.integers(100)),
    }
    if data.categories:
        settings["tree_method"] = "hist"
        settings["enable_categorical"] = True
        settings["feature_types"] = [
            "c" if feature in data.categories else "q" for feature in range(len(data.levels))
        ]
        settings["max_cat_to_onehot"] = int(random.choice([1, 4, 10]))
    kind = str(random.choice(["plain", "plain", "plain", "dart", "forest"]))
    if kind == "dart":
        settings |= {"booster": "dart", "rate_drop": 0.5}
    elif kind == "forest":
        settings |= {"num_parallel_tree": 2, "subsample": 0.8, "n_estimators": 2}
    is_classifier = random.random() < 0.7
    options: dict[str, Any] = {}
    label = None
    if is_classifier:
        rows, target = class_target(random, data, n_classes)
        objectives = ["binary:logistic", "binary:logistic", "binary:hinge", "binary:logitraw"]
        if n_classes > 2:
            objectives = ["multi:softprob", "multi:softmax"]
        objective = str(random.choice(objectives))
        model = xgboost.XGBClassifier(objective=objective, **settings).fit(rows, target)
        if objective == "binary:logistic":
            options = own_threshold(random, model.predict_proba, rows)
        classes = tuple(range(n_classes))
        label = model.predict
        if options:
            label = probability_above(model.predict_proba, options, classes)
    else:
        objective = str(
            random.choice(
                ["reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror", "count:poisson"]
            )
        )
        classes = ()
        target = number_target(random, data, positive=objective == "count:poisson")
        model = xgboost.XGBRegressor(objective=objective, **settings).fit(data.rows, target)
    return Deployed(
        library="xgboost",
        kind=f"{objective} {kind}",
        source=model,
        precision=np.float32,
        cuts=xgboost_cuts(model.get_booster(), len(data.levels)),
        score=lambda rows: model.predict(rows, output_margin=True),
        label=label,
        classes=classes,
        categories=number_categories(data),
        missing=missing_columns(random, data),
        options=options,
        n_trees=len(model.get_booster().get_dump()),
        sample=data.rows,
    )


def lightgbm_model(random: Random) -> Deployed:
    """LightGBM: classifiers and regressors, DART and forests, zeros that are missing."""
    import lightgbm

    categories = random.random() < 0.25
    data = random_data(random, np.float64, categories=categories, missing=random.random() < 0.4)
    kind = str(random.choice(["gbdt", "gbdt", "gbdt", "dart", "rf"]))
    n_classes = class_count(random)
    settings: dict[str, Any] = {
        "boosting_type": kind,
        "n_estimators": tree_count(random, n_classes),
        "max_depth": int(random.integers(1, 4)),
        "learning_rate": float(random.choice([1.0, 0.5, 0.3])),
        "min_child_samples": 1,
        "min_child_weight": 0.0,
        "min_split_gain": _least_gain(random),
        "min_data_in_bin": 1,
        "min_data_per_group": 1,
        "cat_smooth": 0.0,
        "max_cat_to_onehot": int(random.choice([1, 4])),
        "zero_as_missing": bool(random.random() < 0.2),
        "use_missing": bool(random.random() < 0.9),
        "boost_from_average": bool(random.random() < 0.5),
        "verbose": -1,
        "n_jobs": 1,
        "random_state": int(random.integers(100)),
    }
    if kind == "rf":
        settings |= {"subsample": 0.7, "subsample_freq": 1}
    options: dict[str, Any] = {}
    label, classes = None, ()
    fitting = {"categorical_feature": sorted(data.categories)} if data.categories else {}
    if random.random() < 0.7:
        rows, target = class_target(random, data, n_classes)
        objective = (
            "binary" if n_classes == 2 else str(random.choice(["multiclass", "multiclassova"]))
        )
        target = _names(random, target)
        model = lightgbm.LGBMClassifier(objective=objective, **settings)
        model.fit(rows, target, **fitting)
        if n_classes == 2:
            options = own_threshold(random, model.predict_proba, rows)
        classes = tuple(model.classes_.tolist())
        label = model.predict
        if options:
            label = probability_above(model.predict_proba, options, classes)
    else:
        objective = str(random.choice(["regression", "l1", "huber", "quantile", "poisson"]))
        target = number_target(random, data, positive=objective == "poisson")
        model = lightgbm.LGBMRegressor(objective=objective, **settings)
        model.fit(data.rows, target, **fitting)
    return Deployed(
        library="lightgbm",
        kind=f"{objective} {kind}",
        source=model,
        precision=np.float64,
        cuts=lightgbm_cuts(model.booster_, len(data.levels)),
        score=lambda rows: model.predict(rows, raw_score=True),
        label=label,
        classes=classes,
        categories=number_categories(data),
        missing=missing_columns(random, data),
        options=options,
        n_trees=model.booster_.num_trees(),
        sample=data.rows,
    )


def catboost_model(random: Random) -> Deployed:
    """CatBoost: classifiers and regressors of all growing policies, categories as one-hot."""
    import catboost

    categories = random.random() < 0.25
    data = random_data(random, np.float32, categories=categories, missing=random.random() < 0.4)
    policy = str(random.choice(["SymmetricTree", "Depthwise", "Lossguide"]))
    n_classes = class_count(random)
    settings: dict[str, Any] = {
        "iterations": tree_count(random, n_classes),
        "depth": int(random.integers(1, 4)),
        "learning_rate": float(random.choice([1.0, 0.5, 0.3])),
        "l2_leaf_reg": float(random.choice([0.0, 3.0])),
        "grow_policy": policy,
        "min_data_in_leaf": 1,
        "nan_mode": str(random.choice(["Min", "Max"])),
        "random_strength": 0.0,
        "bootstrap_type": "No",
        "leaf_estimation_iterations": 1,
        "thread_count": 1,
        "verbose": False,
        "allow_writing_files": False,
        "random_seed": int(random.integers(100)),
        "one_hot_max_size": 10,
        "cat_features": sorted(data.categories) or None,
    }
    if policy == "Lossguide":
        settings["max_leaves"] = 6
    named = {f: [f"v{code}" for code in range(n + 1)] for f, n in data.categories.items()}

    def table(rows: Any) -> Any:
        cells = rows.astype(object) if named else rows
        for feature, names in named.items():
            cells[:, feature] = [names[int(code)] for code in rows[:, feature]]
        return cells

    options: dict[str, Any] = {}
    label, classes = None, ()
    if random.random() < 0.7:
        rows, target = class_target(random, data, n_classes)
        loss = (
            "Logloss"
            if n_classes == 2
            else str(random.choice(["MultiClass", "MultiClassOneVsAll"]))
        )
        model = catboost.CatBoostClassifier(loss_function=loss, **settings)
        model.fit(table(rows), _names(random, target))
        if n_classes == 2:
            options = own_threshold(random, model.predict_proba, table(rows))
        classes = tuple(np.asarray(model.classes_).tolist())
        label = lambda rows: model.predict(rows, thread_count=1)  # noqa: E731
        if options:
            label = probability_above(
                lambda r: model.predict_proba(r, thread_count=1), options, classes
            )
    else:
        loss = str(random.choice(["RMSE", "MAE", "Quantile:alpha=0.7", "Poisson"]))
        target = number_target(random, data, positive=loss == "Poisson")
        model = catboost.CatBoostRegressor(loss_function=loss, **settings)
        model.fit(table(data.rows), target)
    return Deployed(
        library="catboost",
        kind=f"{loss} {policy}",
        source=model,
        precision=np.float32,
        cuts=catboost_cuts(model, len(data.levels)),
        score=lambda rows: catboost.CatBoost.predict(
            model, rows, prediction_type="RawFormulaVal", thread_count=1
        ),
        label=label,
        classes=classes,
        categories=named,
        missing=frozenset(data.missing),
        options=options,
        n_trees=model.tree_count_,
        sample=data.rows,
    )


def number_categories(data: Data) -> dict[int, list[Any]]:
    """Categories that are numbers, one more of them than training saw."""
    return {feature: list(range(n + 1)) for feature, n in data.categories.items()}


def missing_columns(random: Random, data: Data) -> frozenset[int]:
    """Columns in which rows may lack a value: those of training, now and then one more."""
    more = {int(random.integers(len(data.levels)))} if random.random() < 0.15 else set()
    return frozenset(data.missing | more)


def behind_columns(random: Random, model: Deployed) -> Deployed:
    """The model in a pipeline that drops a column and may put the others in another order."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline

    refuses = (
        model.library == "sklearn" and model.precision is np.float32
    )  # what floats cannot hold
    if refuses or model.categories or model.missing or not hasattr(model.source, "get_params"):
        return model
    n = model.n_features
    kept = random.permutation(n + 1)[:n] if random.random() < 0.5 else np.arange(1, n + 1)
    place = {int(column): number for number, column in enumerate(kept)}
    rows = np.zeros((len(model.sample), n + 1))
    rows[:, kept] = model.sample
    columns = ColumnTransformer([("kept", "passthrough", kept.tolist())], remainder="drop")
    label, cuts = model.label, model.cuts
    if model.precision is np.float32:  # columns are doubles, which the model rounds after them
        cuts = [np.array([smallest_double_cast_to(cut) for cut in own]) for own in cuts]
    return replace(
        model,
        precision=np.float64,
        kind=f"{model.kind} behind columns",
        source=Pipeline([("columns", columns.fit(rows)), ("model", model.source)]),
        cuts=[cuts[place[f]] if f in place else np.zeros(0) for f in range(n + 1)],
        score=lambda given: model.score(given[:, kept]),
        label=None if label is None else lambda given: label(given[:, kept]),
        unread=frozenset(range(n + 1)) - place.keys(),
        sample=rows,
    )


TRAINERS: dict[str, Callable[[Random], Deployed]] = {
    "xgboost": xgboost_model,
    "lightgbm": lightgbm_model,
    "catboost": catboost_model,
}


def trained_model(random: Random, library: str) -> Deployed:
    """A random trained model of a library.

    Raises
    ------
    NotTrained
        The library refused the data.
    """
    from tests.campaigns.training_sklearn import sklearn_model

    trainer = TRAINERS.get(library, sklearn_model)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model = trainer(random)
            return behind_columns(random, model) if random.random() < 0.12 else model
        except NotTrained:
            raise
        except Exception as error:
            raise NotTrained(f"{type(error).__name__}: {error}") from error
