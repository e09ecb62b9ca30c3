"""What all families of scikit-learn estimators have in common."""

import copy
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, InvalidInput, UnsupportedModel
from treeproof.loaders.base import Reference
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import MISSING_LEFT, Decision, Ensemble, FloatArray, Provenance
from treeproof.model.links import smallest_true
from treeproof.model.sums import accumulator_grid

SMALLEST_POSITIVE = float(np.nextafter(0.0, 1.0))
"""The cut of the rule ``score > 0``."""

MAX_FEATURES = 1 << 20
"""More columns than dense rows can have; a damaged file may claim any number."""

_WINDOW = 2_000


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


def class_labels(estimator: Any) -> tuple[Any, ...]:
    """Class labels of a classifier as plain Python values."""
    labels = tuple(np.asarray(estimator.classes_).tolist())
    if len(labels) < 2:
        raise UnsupportedModel(
            f"A classifier must know at least two classes. Got {len(labels)}:"
            " its answer is the same for every row. Train it on rows of several classes."
        )
    return labels


def require_no_threshold(estimator: Any, threshold: float | None) -> None:
    """Refuse a decision threshold where there is no probability of class 1."""
    if threshold is not None:
        raise InvalidInput(
            "A decision threshold needs a binary classifier with probabilities."
            f" Got a {type(estimator).__name__}. Leave the threshold out."
        )


def require_two_classes(labels: tuple[Any, ...]) -> None:
    """Refuse a decision threshold for a multi-class model."""
    if len(labels) != 2:
        raise InvalidInput(
            f"A decision threshold needs exactly two classes. Got {len(labels)}."
            " Leave the threshold out."
        )


def feature_names(estimator: Any) -> tuple[str, ...]:
    """Column names seen in training, or nothing."""
    return tuple(str(name) for name in getattr(estimator, "feature_names_in_", ()))


def provenance(estimator: Any, objective: str, notes: tuple[str, ...]) -> Provenance:
    """Where the model came from."""
    return Provenance(
        library="scikit-learn",
        library_version=str(sys.modules["sklearn"].__version__),
        source=f"{type(estimator).__name__} object",
        objective=objective,
        notes=notes,
    )


def order_cautions(estimator: Any, ensemble: Ensemble) -> tuple[str, ...]:
    """Caution where the library itself does not fix the order of a sum that depends on it."""
    if getattr(estimator, "n_jobs", None) in (None, 1):
        return ()
    # Sound: exact sums do not depend on the order of the trees, and neither does the sum of two.
    if accumulator_grid(ensemble) > 0.0 or ensemble.n_trees < 3:
        return ()
    return (
        f"n_jobs={estimator.n_jobs}: scikit-learn adds these trees in the order in which its"
        " threads finish, so the last bits of its scores, and labels that hang on them, vary from"
        " call to call. Answers here are about the trees added in order, as with n_jobs=1. Deploy"
        " the forest with n_jobs=1, by set_params(n_jobs=1), to have exactly that.",
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

    Parameters
    ----------
    estimator : object
        The estimator whose ``predict`` gives the labels.
    margins : callable
        Its raw scores of rows, (n_rows,) or (n_rows, n_outputs).
    threshold : float or None
        When given, labels are ``predict_proba[:, 1] >= threshold`` instead.
    has_labels : bool
        Whether the estimator decides on classes.
    rows : callable
        Turns rows of the model into what the estimator takes.
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

    return Reference(margins=scores, labels=labels if has_labels else None)


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


def probability_decision(
    probability: Callable[[NDArray[np.floating]], NDArray[np.floating]],
    threshold: float,
    *,
    precision: Literal["float32", "float64"] = "float64",
) -> Decision:
    """Rule ``probability(margin) >= threshold`` as a cut of the margin.

    Parameters
    ----------
    probability : callable
        The library's own probability of class 1 for an array of margins.
    threshold : float
        Probability from which on the answer is class 1.
    precision : {"float32", "float64"}
        Precision of the margins.
    """
    check_threshold(threshold)
    dtype = np.dtype(precision)
    with np.errstate(over="ignore"):
        cut = smallest_true(
            lambda margin: bool(probability(np.array([margin], dtype))[0] >= threshold), precision
        )
        # Exponentials are monotone only up to their last bit. The cut is exact if the rule does
        # not flicker around it; this far out, the margin has moved by many of its last bits.
        steps = np.spacing(np.abs(np.array(cut, dtype))) * np.arange(1, _WINDOW, dtype=dtype)
        near = np.concatenate([cut - steps[::-1], np.array([cut], dtype), cut + steps])
        near = near[np.isfinite(near)]
        is_sharp = np.array_equal(probability(near) >= threshold, near >= cut)
    if not is_sharp:
        raise UnsupportedModel(
            f"The probability {threshold!r} has no exact counterpart among the model's margins,"
            " because the library's exponential is not monotone there. Choose a threshold nearby."
        )
    return Decision(kind="threshold", cut=cut)


def check_threshold(threshold: float | None) -> None:
    """Refuse a decision threshold that is no probability."""
    if threshold is not None and not 0.0 < threshold <= 1.0:
        raise InvalidInput(
            f"The decision threshold must be a probability above 0 and up to 1. Got {threshold!r}."
        )


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

    Parameters
    ----------
    builder : TreeBuilder
        Receives the tree.
    tree : Tree
        The library's tree.
    values : float64 (n_nodes,) or (n_nodes, leaf_width)
        What each leaf adds.
    output : int
        Output that the tree adds to, or -1 for vector leaves.
    n_features : int
        Number of features of the model.
    columns : int (n,), optional
        Feature of the model behind each feature of the tree.
    """
    left = np.asarray(tree.children_left)
    right = np.asarray(tree.children_right)
    feature = np.asarray(tree.feature)
    inner = left >= 0
    _check_nodes(left, right, feature, n_features if columns is None else len(columns))
    if columns is not None:
        feature = np.where(inner, np.asarray(columns)[np.where(inner, feature, 0)], -1)
    threshold = np.where(inner, np.asarray(tree.threshold, dtype=np.float64), 0.0)
    missing_left = np.asarray(tree.missing_go_to_left).astype(bool)
    # Training with missing values makes splits with the threshold infinity: all numbers go left.
    # Canonically all numbers go right at minus infinity, so such a node changes its sides.
    swap = inner & np.isposinf(threshold)
    builder.add_tree(
        feature=feature,
        threshold=np.where(swap, -np.inf, next_float32(np.where(swap, 0.0, threshold))),
        left=np.where(swap, right, left),
        right=np.where(swap, left, right),
        flags=np.where(missing_left ^ swap, MISSING_LEFT, 0),
        value=values,
        output=output,
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


def next_float32(threshold: FloatArray) -> FloatArray:
    """Smallest float32 above a threshold: ``f32(x) <= t`` is ``f32(x) < next_float32(t)``."""
    with np.errstate(over="ignore"):
        nearest = threshold.astype(np.float32)
    # The nearest float32 may lie above the threshold, and is then itself the answer.
    above = np.where(
        nearest.astype(np.float64) > threshold, nearest, np.nextafter(nearest, np.float32(np.inf))
    )
    return above.astype(np.float64)
