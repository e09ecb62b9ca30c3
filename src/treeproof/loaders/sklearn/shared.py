"""What all families of scikit-learn estimators have in common."""

import copy
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, InvalidInput, UnsupportedModel
from treeproof.loaders.base import Loaded, Reference
from treeproof.loaders.rules import canonical_splits, refuse_threshold
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    MISSING_LEFT,
    Aggregation,
    Decision,
    Ensemble,
    FloatArray,
    Provenance,
)

MAX_FEATURES = 1 << 20
"""More columns than dense rows can have; a damaged file may claim any number."""

LARGEST_CATEGORY = 65_535
"""Largest raw number that is its own code; every split stores one bit per number below it."""

UNKNOWN_TEXT = "\x00 a category that the model has never seen"


def is_nan(value: Any) -> bool:
    """Whether a value of any type is a float that is no number."""
    return isinstance(value, float) and value != value  # noqa: PLR0124 - true for NaN only


def class_names(estimator: Any) -> list[str]:
    """Names of all scikit-learn classes that an object inherits from, itself first."""
    return [
        kind.__name__
        for kind in type(estimator).__mro__
        if kind.__module__.split(".")[0] == "sklearn"
    ]


def require_fitted(estimator: Any, attribute: str) -> None:
    """Refuse an estimator that has not been trained."""
    if not hasattr(estimator, attribute):
        raise InvalidInput(
            f"The {type(estimator).__name__} must be fitted. It has no '{attribute}'."
            " Call fit first."
        )


def require_single_output(estimator: Any) -> None:
    """Refuse estimators that predict several targets at once."""
    n_targets = int(getattr(estimator, "n_outputs_", 1))
    if n_targets != 1:
        raise UnsupportedModel(
            f"A {type(estimator).__name__} must predict one target. Got {n_targets}."
            " Fit one estimator per target."
        )


def feature_count(estimator: Any) -> int:
    """Number of columns of a row."""
    count = int(estimator.n_features_in_)
    if not 1 <= count <= MAX_FEATURES:
        raise UnsupportedModel(f"A model must have 1 to {MAX_FEATURES} features. Got {count}.")
    return count


def class_labels(estimator: Any, threshold: float | None) -> tuple[Any, ...]:
    """Class labels of a classifier as plain Python values; none for a regressor.

    Refuses a decision threshold where there are not two of them.
    """
    if not hasattr(estimator, "classes_"):
        refuse_threshold(threshold, f"a {type(estimator).__name__}")
        return ()
    labels = tuple(np.asarray(estimator.classes_).tolist())
    if len(labels) < 2:
        raise UnsupportedModel(
            f"A classifier must know at least two classes. Got {len(labels)}:"
            " its answer is the same for every row. Train it on rows of several classes."
        )
    if len(labels) > 2:
        refuse_threshold(threshold, f"a {type(estimator).__name__} of {len(labels)} classes")
    return labels


def feature_names(estimator: Any) -> tuple[str, ...]:
    """Column names seen in training, or nothing."""
    return tuple(str(name) for name in getattr(estimator, "feature_names_in_", ()))


def provenance(estimator: Any, objective: str, notes: tuple[str, ...] = ()) -> Provenance:
    """Where the model came from."""
    return Provenance(
        library="scikit-learn",
        library_version=str(sys.modules["sklearn"].__version__),
        source=f"{type(estimator).__name__} object",
        objective=objective,
        notes=notes,
    )


def sequential(estimator: Any) -> Any:
    """Shallow copy that predicts silently, in one thread, so that its sums have one order."""
    twin = copy.copy(estimator)
    for name, value in (("n_jobs", 1), ("verbose", 0)):
        if hasattr(twin, name):
            setattr(twin, name, value)
    return twin


@contextmanager
def plain_rows() -> Iterator[None]:
    """Let estimators that were trained on data frames take plain arrays without complaint."""
    # scikit-learn looks for infinite values by summing, which may overflow on the way.
    with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore"):
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        yield


def reference(
    estimator: Any,
    margins: Callable[[FloatArray], NDArray[np.floating]],
    *,
    threshold: float | None = None,
    has_labels: bool = True,
    rows: Callable[[FloatArray], Any] = lambda rows: rows,
) -> Reference:
    """Answers of a live estimator.

    `margins` gives raw scores, and `rows` turns rows of the model into what the estimator takes.
    Labels are those of ``predict``, or with a threshold ``predict_proba[:, 1] >= threshold``.
    """

    def scores(values: FloatArray) -> NDArray[np.floating]:
        with plain_rows():
            answer = margins(rows(values))
        return answer.reshape(len(values), -1)

    def labels(values: FloatArray) -> NDArray[np.int64]:
        with plain_rows():
            if threshold is not None:
                return (estimator.predict_proba(rows(values))[:, 1] >= threshold).astype(np.int64)
            answer = estimator.predict(rows(values))
        known = getattr(estimator, "classes_", np.array([-1, 1]))
        return np.searchsorted(known, answer).astype(np.int64)

    return Reference(margins=scores, labels=labels if has_labels else None, rows=rows)


def accepts(predict: Callable[[FloatArray], Any], value: float, n_features: int) -> bool:
    """Whether the library answers a row that holds such a value.

    Which estimators take NaN changed with nearly every release, so the library is asked.
    """
    try:
        with plain_rows():
            predict(np.full((1, n_features), value))
    except ValueError:
        return False
    return True


def loaded_trees(
    estimator: Any,
    builder: TreeBuilder,
    *,
    aggregation: Aggregation,
    decision: Decision,
    margins: Callable[[FloatArray], NDArray[np.floating]],
    objective: str,
    classes: tuple[Any, ...] = (),
    threshold: float | None = None,
) -> Loaded:
    """Model of an estimator over ``sklearn.tree._tree.Tree``, whose rows are cast to float32."""
    n_features = feature_count(estimator)
    ensemble = Ensemble(
        trees=builder.finish(),
        n_features=n_features,
        n_outputs=len(aggregation.start),
        input_precision="float32",
        aggregation=aggregation,
        decision=decision,
        classes=classes,
        feature_names=feature_names(estimator),
        missing_allowed=accepts(estimator.predict, np.nan, n_features),
        infinite_allowed=accepts(estimator.predict, np.inf, n_features),
        provenance=provenance(estimator, objective),
    )
    answers = reference(estimator, margins, threshold=threshold, has_labels=bool(classes))
    return Loaded(ensemble, answers)


def add_library_tree(
    builder: TreeBuilder,
    tree: Any,
    *,
    values: NDArray[np.floating],
    output: int,
    n_features: int,
    columns: NDArray[np.integer] | None = None,
) -> None:
    """Add a ``sklearn.tree._tree.Tree``, whose rule is ``float32(x) <= threshold`` goes left.

    `values` is what each node adds where it is a leaf, `columns` the feature of the model behind
    each feature of the tree, by default the same.
    """
    left = np.asarray(tree.children_left)
    right = np.asarray(tree.children_right)
    feature = np.asarray(tree.feature)
    inner = left >= 0
    _check_nodes(left, right, feature, n_features if columns is None else len(columns))
    if columns is not None:
        feature = np.where(inner, np.asarray(columns)[np.where(inner, feature, 0)], -1)
    # Training with missing values makes splits with the threshold infinity: all numbers go left.
    threshold, swap = canonical_splits(
        np.where(inner, np.asarray(tree.threshold, dtype=np.float64), 0.0), "float32"
    )
    builder.add_tree(
        feature=feature,
        threshold=threshold,
        left=left,
        right=right,
        flags=np.where(np.asarray(tree.missing_go_to_left) > 0, MISSING_LEFT, 0),
        value=values,
        output=output,
        swap=swap,
    )


def _check_nodes(
    left: NDArray[np.integer],
    right: NDArray[np.integer],
    feature: NDArray[np.integer],
    n_columns: int,
) -> None:
    """Refuse numbers that the library's compiled code would follow out of its memory."""
    # The library takes -1 alone for "no child".
    if np.any(left < -1) or np.any(right < -1):
        raise BrokenModelFile("A node of a tree must have children, or -1 for none.")
    tested = feature[left >= 0]
    if np.any((tested < 0) | (tested >= n_columns)):
        raise BrokenModelFile(f"A split must test one of the {n_columns} features of its tree.")
