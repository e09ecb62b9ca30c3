"""XGBoost models of many kinds, trained on generated data; each differs in what it computes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import xgboost as xgb
from numpy.typing import NDArray

Array = NDArray[np.float64]

N = 400


def data(seed: int = 0, n: int = N, n_features: int = 6) -> Array:
    return np.random.default_rng(seed).normal(size=(n, n_features))


def with_missing(X: Array) -> Array:
    holes = np.random.default_rng(1).random(X.shape) < 0.15
    return np.where(holes, np.nan, X)


def two_classes(X: Array) -> NDArray[np.int64]:
    return (np.nan_to_num(X[:, 0]) * np.nan_to_num(X[:, 1]) + np.nan_to_num(X[:, 2]) > 0).astype(
        int
    )


def many_classes(X: Array, n: int) -> NDArray[np.int64]:
    edges = np.quantile(X[:, 0] + X[:, 1] ** 2, np.linspace(0, 1, n + 1)[1:-1])
    return np.searchsorted(edges, X[:, 0] + X[:, 1] ** 2)


def positive(X: Array) -> Array:
    return np.exp(0.5 * X[:, 0]) + np.abs(X[:, 1])


def codes(seed: int, n_codes: int) -> Array:
    """Two numeric columns, two of category codes."""
    X = data(seed, n_features=4)
    random = np.random.default_rng(seed)
    X[:, 2] = random.integers(0, n_codes, size=N)
    X[:, 3] = random.integers(0, 3, size=N)
    return X


def classifier(**options: Any) -> xgb.XGBClassifier:
    options = {"n_estimators": 12, "max_depth": 4, "n_jobs": 1} | options
    return xgb.XGBClassifier(**options)


def regressor(**options: Any) -> xgb.XGBRegressor:
    options = {"n_estimators": 12, "max_depth": 4, "n_jobs": 1} | options
    return xgb.XGBRegressor(**options)


def booster(params: dict[str, Any], matrix: xgb.DMatrix, rounds: int = 12) -> xgb.Booster:
    return xgb.train({"max_depth": 4, "nthread": 1} | params, matrix, rounds)


def _binary(**options: Any) -> Any:
    X = data()
    return classifier(**options).fit(X, two_classes(X))


def _binary_missing_deep() -> Any:
    X = with_missing(data(n=2_000))
    return classifier(max_depth=10, n_estimators=8).fit(X, two_classes(X))


def _classes(n: int, **options: Any) -> Any:
    X = data()
    return classifier(**options).fit(X, many_classes(X, n))


def _regression(objective: str, target: Callable[[Array], Array] = positive, **options: Any) -> Any:
    X = data()
    return regressor(objective=objective, **options).fit(X, target(X))


def _two_targets(**options: Any) -> Any:
    X = data()
    return regressor(**options).fit(X, np.stack([X[:, 0] + X[:, 1], X[:, 2] ** 2], axis=1))


def _labels_per_target() -> Any:
    X = data()
    return classifier().fit(X, np.stack([X[:, 0] > 0, X[:, 1] > 0.5], axis=1).astype(int))


def _ranker(objective: str) -> Any:
    X = data()
    ranker = xgb.XGBRanker(objective=objective, n_estimators=8, max_depth=3, n_jobs=1)
    return ranker.fit(X, many_classes(X, 3), qid=np.repeat(np.arange(8), N // 8))


def _binary_ranker() -> Any:
    X = data()
    ranker = xgb.XGBRanker(objective="rank:map", n_estimators=8, max_depth=3, n_jobs=1)
    return ranker.fit(X, two_classes(X), qid=np.repeat(np.arange(8), N // 8))


def _survival(objective: str) -> Any:
    X = data()
    matrix = xgb.DMatrix(X, positive(X))
    if objective == "survival:aft":
        matrix.set_float_info("label_lower_bound", positive(X))
        matrix.set_float_info("label_upper_bound", positive(X) + 0.5)
    return booster({"objective": objective}, matrix)


def _softprob_booster(n: int, **params: Any) -> Any:
    X = data()
    matrix = xgb.DMatrix(X, many_classes(X, n))
    return booster({"objective": "multi:softprob", "num_class": n} | params, matrix, rounds=6)


def _categorical(n_codes: int, **options: Any) -> Any:
    X = codes(3, n_codes)
    y = ((X[:, 2].astype(int) * 7 % 5 < 2) ^ (X[:, 3] == 1) ^ (X[:, 0] > 0.5)).astype(int)
    X = np.where(np.random.default_rng(2).random(X.shape) < 0.1, np.nan, X)
    model = classifier(
        enable_categorical=True, feature_types=["q", "q", "c", "c"], tree_method="hist", **options
    )
    return model.fit(X, y)


def _categorical_booster() -> Any:
    X = codes(5, 8)
    matrix = xgb.DMatrix(
        X,
        np.isin(X[:, 2], [0, 3, 6]) + X[:, 0],
        feature_types=["q", "q", "c", "c"],
        enable_categorical=True,
    )
    return booster({"objective": "reg:squarederror", "max_cat_to_onehot": 1}, matrix)


def frame() -> pd.DataFrame:
    random = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "age": random.normal(size=N),
            "colour": pd.Categorical(random.choice(["red", "green", "blue"], size=N)),
            "size": pd.Categorical(random.choice([10, 20, 40], size=N)),
        }
    )


def _frame_categories() -> Any:
    X = frame()
    y = ((X["age"] > 0) ^ (X["colour"] == "green") ^ (X["size"] == 20)).astype(int)
    return classifier(enable_categorical=True).fit(X, y)


def early_stopped(**options: Any) -> xgb.XGBClassifier:
    X, V = data(), data(9, n=100)
    model = classifier(n_estimators=60, early_stopping_rounds=5, learning_rate=0.8, **options)
    return model.fit(X, two_classes(X), eval_set=[(V, two_classes(V))], verbose=False)


def _huge_and_tiny() -> Any:
    X = data()
    X[:, 0] *= 1e37
    X[:, 1] *= 1e-41
    X[:, 2] = np.round(X[:, 2]) * 1e-44
    return classifier(tree_method="exact").fit(X, two_classes(data()))


def _custom_objective() -> Any:
    def loss(y: Array, predicted: Array) -> tuple[Array, Array]:
        p = 1 / (1 + np.exp(-predicted))
        return p - y, p * (1 - p)

    return _binary(objective=loss)


CASES: dict[str, Callable[[], Any]] = {
    "binary:logistic": _binary,
    "binary, deep, missing values": _binary_missing_deep,
    "binary, stumps": lambda: _binary(max_depth=1, n_estimators=60),
    "binary, 300 trees": lambda: _binary(n_estimators=300, max_depth=3),
    "binary, leaf-wise": lambda: _binary(grow_policy="lossguide", max_leaves=9, max_depth=0),
    "binary, exact, pruned": lambda: _binary(tree_method="exact", gamma=4.0, max_depth=6),
    "binary, approx": lambda: _binary(tree_method="approx", max_bin=16),
    "binary, only leaves": lambda: _binary(min_child_weight=1e6, n_estimators=3),
    "binary, base_score 0.01": lambda: _binary(base_score=0.01),
    "binary, custom objective": _custom_objective,
    "binary:logitraw": lambda: _binary(objective="binary:logitraw"),
    "binary:hinge": lambda: _binary(objective="binary:hinge", n_estimators=5),
    "binary as multi:softprob": lambda: _softprob_booster(2),
    "classifier for reg:squarederror": lambda: _binary(objective="reg:squarederror"),
    "multi:softprob, 3 classes": lambda: _classes(3),
    "multi:softmax, 5 classes": lambda: _classes(5, objective="multi:softmax"),
    "multi:softprob, parallel trees": lambda: _softprob_booster(3, num_parallel_tree=3),
    "random forest classifier": lambda: xgb.XGBRFClassifier(
        n_estimators=20, max_depth=5, n_jobs=1
    ).fit(data(), two_classes(data())),
    "random forest regressor": lambda: xgb.XGBRFRegressor(
        n_estimators=20, max_depth=5, n_jobs=1
    ).fit(data(), positive(data())),
    "reg:squarederror": lambda: _regression("reg:squarederror"),
    "reg:squarederror, missing values": lambda: regressor().fit(
        with_missing(data()), positive(data())
    ),
    "reg:absoluteerror": lambda: _regression("reg:absoluteerror"),
    "reg:pseudohubererror": lambda: _regression("reg:pseudohubererror"),
    "reg:squaredlogerror": lambda: _regression("reg:squaredlogerror"),
    "reg:logistic": lambda: _regression("reg:logistic", lambda X: 1 / (1 + np.exp(-X[:, 0]))),
    "reg:quantileerror, 3 levels": lambda: _regression(
        "reg:quantileerror", quantile_alpha=np.array([0.1, 0.5, 0.9])
    ),
    "count:poisson": lambda: _regression("count:poisson", lambda X: np.floor(positive(X))),
    "reg:gamma": lambda: _regression("reg:gamma"),
    "reg:tweedie": lambda: _regression("reg:tweedie"),
    "survival:cox": lambda: _survival("survival:cox"),
    "survival:aft": lambda: _survival("survival:aft"),
    "rank:ndcg": lambda: _ranker("rank:ndcg"),
    "rank:map": _binary_ranker,
    "rank:pairwise": lambda: _ranker("rank:pairwise"),
    "dart": lambda: _binary(booster="dart", rate_drop=0.4, n_estimators=20),
    "dart, estimator, 3 classes": lambda: _classes(3, booster="dart", rate_drop=0.5),
    "dart, 3 classes": lambda: _softprob_booster(3, booster="dart", rate_drop=0.5),
    "multi_output_tree": lambda: _two_targets(multi_strategy="multi_output_tree"),
    "multi_output_tree, 4 classes": lambda: _classes(4, multi_strategy="multi_output_tree"),
    "one tree per target": _two_targets,
    "labels per target": _labels_per_target,
    "categories, one against rest": lambda: _categorical(6, max_cat_to_onehot=100),
    "categories, 70 codes in sets": lambda: _categorical(70, max_cat_to_onehot=1),
    "categories, booster": _categorical_booster,
    "categories of a data frame": _frame_categories,
    "early stopping": early_stopped,
    "huge and tiny thresholds": _huge_and_tiny,
}
