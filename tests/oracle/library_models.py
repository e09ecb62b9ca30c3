"""Trained models as their own libraries tell of them: thresholds from dumps, answers from predict.

Nothing here knows treeproof. A threshold becomes a *cut*: the smallest number of the precision in
which the library compares that goes the other way, so that cells are ``[cut, next cut)``.
"""

import json
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

ZERO_BAND = float(np.float32(1e-35))
"""LightGBM takes numbers up to this size for zero."""


@dataclass(frozen=True)
class Deployed:
    """A trained model and how its library is asked.

    Attributes
    ----------
    library, kind : str
        What it is, for reports.
    source : object
        What is given to treeproof.
    precision : type
        np.float32 or np.float64: what the library rounds rows to before it compares.
    cuts : list of float64 arrays
        Per feature, sorted.
    score, label : callable
        Margins (n, n_outputs) and labels (n,) of rows, by the library; `label` is None for scores.
    classes : tuple
        The labels in the library's order; empty for scores.
    categories : dict of int to list
        Columns of categories: what the codes 0, 1, ... stand for.
    missing : frozenset of int
        Columns in which rows may lack a value.
    unread : frozenset of int
        Columns that never reach the model: they may hold anything, and stay as they are.
    options : dict
        Options of `treeproof.load`.
    n_trees : int
        How many trees there are.
    sample : float64 (n, n_features)
        Rows that it was trained on.
    """

    library: str
    kind: str
    source: Any
    precision: Any
    cuts: list[FloatArray]
    score: Callable[[Any], NDArray[Any]]
    label: Callable[[Any], NDArray[Any]] | None = None
    classes: tuple[Any, ...] = ()
    categories: dict[int, list[Any]] = field(default_factory=dict)
    missing: frozenset[int] = frozenset()
    unread: frozenset[int] = frozenset()
    options: dict[str, Any] = field(default_factory=dict)
    n_trees: int = 1
    sample: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def n_features(self) -> int:
        """Width of a row."""
        return len(self.cuts)

    def native(self, rows: FloatArray) -> Any:
        """Rows as the library (and treeproof) take them: categories instead of their codes."""
        if not any(isinstance(c, str) for named in self.categories.values() for c in named):
            return np.array(rows)
        table = rows.astype(object)
        for feature, named in self.categories.items():
            table[:, feature] = [named[int(code)] for code in rows[:, feature]]
        return table

    def scores(self, rows: FloatArray) -> FloatArray:
        """Margins of rows, (n, n_outputs)."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = np.asarray(self.score(self.native(rows)))
        return found.astype(np.float64).reshape(len(rows), -1)

    def labels(self, rows: FloatArray) -> NDArray[np.int64]:
        """Positions in `classes` of the labels of rows; -1 for scores."""
        if self.label is None:
            return np.full(len(rows), -1, dtype=np.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = np.asarray(self.label(self.native(rows))).ravel().tolist()
        position = {label: number for number, label in enumerate(self.classes)}
        return np.array([position[label] for label in found], dtype=np.int64)

    def accepts(self, value: float) -> bool:
        """Whether the library answers rows with such a value in every column of numbers."""
        row = np.full((1, self.n_features), value)
        row[:, list(self.categories)] = 0.0
        try:
            self.scores(row)
            self.labels(row)
        except Exception:
            return False
        return True


def _sorted_cuts(found: list[list[float]]) -> list[FloatArray]:
    """Distinct cuts that part some numbers from others."""
    return [
        np.unique(np.array([cut for cut in cuts if cut > -np.inf], dtype=np.float64))
        for cuts in found
    ]


def _after(threshold: float, precision: Any) -> float:
    """Smallest number of a precision above a threshold: where ``x <= threshold`` turns."""
    with np.errstate(over="ignore"):
        near = precision(threshold)
        if float(near) > threshold:
            return float(near)
        return float(np.nextafter(near, precision(np.inf)))


def xgboost_cuts(booster: Any, n_features: int) -> list[FloatArray]:
    """Cuts of an XGBoost booster: ``float32(x) < t`` goes left."""
    found: list[list[float]] = [[] for _ in range(n_features)]
    names = booster.feature_names or [f"f{number}" for number in range(n_features)]

    def walk(node: dict[str, Any]) -> None:
        if "split" in node:
            condition = node["split_condition"]
            if not isinstance(condition, list):
                found[names.index(node["split"])].append(float(np.float32(condition)))
            for child in node["children"]:
                walk(child)

    for text in booster.get_dump(dump_format="json"):
        walk(json.loads(text))
    return _sorted_cuts(found)


def lightgbm_cuts(booster: Any, n_features: int) -> list[FloatArray]:
    """Cuts of a LightGBM booster: ``x <= t`` goes left, after what is near zero became zero.

    From the text of the model: `dump_model` states no threshold beyond 1e300.
    """
    found: list[list[float]] = [[] for _ in range(n_features)]
    text = booster.model_to_string()
    columns = [
        " ".join(re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)).split()
        for name in ("split_feature", "threshold", "decision_type")
    ]
    for feature, threshold, kind in zip(*columns, strict=True):
        is_categorical, zero_is_missing = int(kind) & 1, (int(kind) >> 2) & 3 == 1
        if is_categorical:
            continue
        cuts = found[int(feature)]
        cuts.append(_after(float(threshold), np.float64))
        if zero_is_missing or abs(float(threshold)) <= ZERO_BAND:
            cuts.extend([-ZERO_BAND, _after(ZERO_BAND, np.float64)])
    return _sorted_cuts(found)


def catboost_cuts(model: Any, n_features: int) -> list[FloatArray]:
    """Cuts of a CatBoost model: ``float32(x) > border`` goes right."""
    borders = model.get_borders()
    return _sorted_cuts(
        [
            [_after(float(np.float32(b)), np.float32) for b in borders.get(feature, ())]
            for feature in range(n_features)
        ]
    )


def sklearn_cuts(trees: list[Any], columns: list[Any], n_features: int) -> list[FloatArray]:
    """Cuts of scikit-learn's ``tree_`` objects: ``float32(x) <= t`` goes left."""
    found: list[list[float]] = [[] for _ in range(n_features)]
    for tree, column in zip(trees, columns, strict=True):
        for node in np.flatnonzero(tree.children_left >= 0):
            # An infinite threshold parts numbers from missing values only.
            if np.isfinite(tree.threshold[node]):
                cut = _after(float(tree.threshold[node]), np.float32)
                if np.isfinite(cut):
                    found[int(column[tree.feature[node]])].append(cut)
    return _sorted_cuts(found)


def histogram_cuts(estimator: Any, n_features: int, categorical: list[int]) -> list[FloatArray]:
    """Cuts of HistGradientBoosting: ``x <= t`` goes left; categorical columns come first."""
    found: list[list[float]] = [[] for _ in range(n_features)]
    order = [*categorical, *(f for f in range(n_features) if f not in categorical)]
    for iteration in estimator._predictors:
        for predictor in iteration:
            for node in predictor.nodes:
                if not node["is_leaf"] and not node["is_categorical"]:
                    threshold = float(node["num_threshold"])
                    if threshold < np.inf:
                        found[order[int(node["feature_idx"])]].append(_after(threshold, np.float64))
    return _sorted_cuts(found)


def smallest_double_cast_to(cut: float) -> float:
    """Smallest double that a cast to float32 takes to a float32 number or above, by bisection."""
    target = np.float32(cut)
    with np.errstate(over="ignore"):
        low, high = float(np.nextafter(target, np.float32(-np.inf))), float(target)
        if np.isinf(high):
            high = float(np.finfo(np.float64).max)
        if np.isinf(low):
            low = -float(np.finfo(np.float64).max)
        while True:
            middle = low + (high - low) / 2.0
            if middle in (low, high):
                return high
            if np.float32(middle) >= target:
                high = middle
            else:
                low = middle
