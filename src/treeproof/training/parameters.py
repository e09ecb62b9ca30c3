"""Checks of what users pass to the estimators, and its translation into arrays."""

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, check_choice, check_integer, check_real

MAX_BINS = 1 << 16
UNLIMITED_DEPTH = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Shares of rows per round and of features per tree."""

    subsample: float = 1.0
    colsample_bytree: float = 1.0


def tree_depth(max_depth: Any) -> int:
    """Depth at which trees end; None is no limit."""
    return UNLIMITED_DEPTH if max_depth is None else check_integer("max_depth", max_depth, low=1)


def feature_number(name: str, item: Any, names: Sequence[str] | None, n_features: int) -> int:
    """Column of a feature that is given by number or by name; `name` is the parameter's."""
    if isinstance(item, str) and names is not None and item in names:
        return list(names).index(item)
    if isinstance(item, numbers.Integral) and 0 <= int(item) < n_features:
        return int(item)
    known = "" if names is None else " or column names"
    raise InvalidInput(
        f"'{name}' must name features by numbers from 0 to {n_features - 1}{known}. Got {item!r}."
    )


def feature_reach(
    X: NDArray[np.float32],
    names: Sequence[str] | None,
    *,
    eps: Any,
    feature_scale: Any,
    frozen_features: Any,
) -> NDArray[np.float64]:
    """How far an attacker may move a value of each feature, from the estimators' parameters."""
    size = check_real("eps", eps, low=0.0)
    n_features = X.shape[1]
    reach = size * _scales(X, feature_scale)
    for item in [] if frozen_features is None else list(frozen_features):
        reach[feature_number("frozen_features", item, names, n_features)] = 0.0
    return reach


def _scales(X: NDArray[np.float32], feature_scale: Any) -> NDArray[np.float64]:
    n_features = X.shape[1]
    if feature_scale is None:
        return np.ones(n_features)
    if isinstance(feature_scale, str):
        check_choice("feature_scale", feature_scale, ("range", "std"))
        return np.array([_spread(column, feature_scale) for column in X.T])
    try:
        scales = np.array(feature_scale, dtype=np.float64)
    except (TypeError, ValueError):
        scales = np.empty(0)
    if scales.shape != (n_features,) or not np.all(np.isfinite(scales)) or np.any(scales < 0.0):
        raise InvalidInput(
            f"'feature_scale' must be None, 'range', 'std' or {n_features} finite numbers, none of"
            f" them negative, one per feature. Got {feature_scale!r}."
        )
    return scales


def _spread(column: NDArray[np.float32], kind: str) -> float:
    values = column[~np.isnan(column)].astype(np.float64)
    if values.size == 0:
        return 0.0
    return float(np.ptp(values) if kind == "range" else np.std(values))


def monotone_directions(
    constraints: Any, names: Sequence[str] | None, n_features: int
) -> NDArray[np.int8]:
    """Direction of each feature: 1 where margins must not fall with it, -1 not rise, else 0."""
    directions = np.zeros(n_features, dtype=np.int8)
    if constraints is None:
        return directions
    if isinstance(constraints, Mapping):
        pairs = [
            (feature_number("monotone_constraints", item, names, n_features), direction)
            for item, direction in constraints.items()
        ]
    elif isinstance(constraints, Sequence | np.ndarray) and len(constraints) == n_features:
        pairs = list(enumerate(constraints))
    else:
        raise InvalidInput(
            "'monotone_constraints' must be a mapping from features to directions, or one direction"
            f" for each of the {n_features} features. Got {constraints!r}."
        )
    for feature, direction in pairs:
        if direction not in (-1, 0, 1):
            raise InvalidInput(
                f"A direction in 'monotone_constraints' must be -1, 0 or 1. Got {direction!r}."
            )
        directions[feature] = direction
    return directions
