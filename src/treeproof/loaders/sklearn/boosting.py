"""scikit-learn's GradientBoosting and HistGradientBoosting."""

import copy
from functools import partial
from typing import Any

import numpy as np

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.base import Loaded
from treeproof.loaders.rules import SMALLEST_POSITIVE, canonical_splits, cut_decision
from treeproof.loaders.sklearn.categories import Columns
from treeproof.loaders.sklearn.shared import (
    add_library_tree,
    class_labels,
    feature_count,
    feature_names,
    loaded_trees,
    plain_rows,
    provenance,
    reference,
    require_fitted,
)
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    NONNEGATIVE_CATEGORY,
    WHOLE_CATEGORY,
    Aggregation,
    Decision,
    Ensemble,
)

_CONSTANT_STRATEGIES = {"prior", "most_frequent", "constant", "mean", "median", "quantile"}


def load_gradient_boosting(
    estimator: Any, threshold: float | None, notes: tuple[str, ...]
) -> Loaded:
    """GradientBoosting: initial score plus learning rate times leaf values, in doubles."""
    require_fitted(estimator, "estimators_")
    n_features = feature_count(estimator)
    stages = np.asarray(estimator.estimators_)
    if stages.ndim != 2 or stages.shape[1] < 1:
        raise BrokenModelFile(f"Stages must form a matrix of trees. Got shape {stages.shape}.")
    n_outputs = stages.shape[1]
    rate = float(estimator.learning_rate)
    builder = TreeBuilder()
    for stage in stages:
        for output, member in enumerate(stage):
            tree = member.tree_
            values = np.asarray(tree.value, dtype=np.float64)
            if values.shape != (tree.node_count, 1, 1):
                raise BrokenModelFile(f"Boosted trees must have scalar leaves. Got {values.shape}.")
            # The library multiplies at every prediction: the product is rounded before it is
            # added, so it may as well be stored.
            add_library_tree(
                builder,
                tree,
                values=rate * values[:, 0, 0],
                output=output,
                n_features=n_features,
            )
    labels = class_labels(estimator, threshold)
    return loaded_trees(
        estimator,
        builder,
        aggregation=Aggregation(
            precision="float64", start=_initial_scores(estimator, n_features, n_outputs)
        ),
        # This library says class 1 at a score of exactly zero; HistGradientBoosting does not.
        decision=_decision(estimator, labels, n_outputs, threshold, cut=0.0),
        margins=estimator.decision_function if labels else estimator.predict,
        objective=_objective(estimator, labels),
        notes=notes,
        classes=labels,
        threshold=threshold,
    )


def _initial_scores(estimator: Any, n_features: int, n_outputs: int) -> tuple[float, ...]:
    """Score before the first tree, which must not depend on the row."""
    initial = estimator.init_
    if not (isinstance(initial, str) and initial == "zero"):
        name = type(initial).__name__
        strategy = getattr(initial, "strategy", None)
        if name not in ("DummyClassifier", "DummyRegressor") or (
            strategy not in _CONSTANT_STRATEGIES
        ):
            raise UnsupportedModel(
                f"The initial estimator of {type(estimator).__name__} must give every row the same"
                f" score. Got init={initial!r}. Train with init=None or init='zero'."
            )
    with plain_rows():
        scores = estimator._raw_predict_init(np.zeros((1, n_features), dtype=np.float32))
    if scores.shape != (1, n_outputs):
        raise BrokenModelFile(f"There must be {n_outputs} initial scores. Got {scores.shape}.")
    return tuple(float(score) for score in scores[0])


def load_hist_gradient_boosting(
    estimator: Any, threshold: float | None, notes: tuple[str, ...]
) -> Loaded:
    """HistGradientBoosting: ``x <= threshold`` in doubles, baseline first, then the trees."""
    require_fitted(estimator, "_predictors")
    n_features = feature_count(estimator)
    baseline = np.asarray(estimator._baseline_prediction, dtype=np.float64).reshape(-1)
    n_outputs = int(estimator.n_trees_per_iteration_)
    if len(baseline) != n_outputs:
        raise BrokenModelFile(f"There must be {n_outputs} baselines. Got {len(baseline)}.")
    columns = Columns.of(estimator)
    _check_compiled_columns(estimator, columns)
    builder = TreeBuilder()
    for iteration in estimator._predictors:
        if len(iteration) != n_outputs:
            raise BrokenModelFile(f"An iteration must have {n_outputs} trees.")
        for output, predictor in enumerate(iteration):
            _add_predictor(builder, predictor, output, columns)
    labels = class_labels(estimator, threshold)
    notes += _link_notes(estimator, labels)
    ensemble = Ensemble(
        trees=builder.finish(),
        n_features=n_features,
        n_outputs=n_outputs,
        input_precision="float64",
        aggregation=Aggregation(
            precision="float64", start=tuple(float(0.0 + score) for score in baseline)
        ),
        decision=_decision(estimator, labels, n_outputs, threshold, cut=SMALLEST_POSITIVE),
        classes=labels,
        feature_names=feature_names(estimator),
        categories=columns.categories,
        categorical=columns.categorical,
        missing_allowed=True,
        infinite_allowed=True,
        provenance=provenance(estimator, _objective(estimator, labels), notes),
    )
    # Starting threads for every tree costs far more than a self-test does in one thread.
    twin = copy.copy(estimator)
    twin._raw_predict = partial(estimator._raw_predict, n_threads=1)
    has_labels = bool(labels)
    answers = reference(
        twin, twin._raw_predict, threshold=threshold, has_labels=has_labels, rows=columns.raw_rows
    )
    return Loaded(ensemble, answers)


def _link_notes(estimator: Any, labels: tuple[Any, ...]) -> tuple[str, ...]:
    link = type(getattr(estimator._loss, "link", None)).__name__
    if labels or link == "IdentityLink":
        return ()
    return (f"predict() is the inverse {link} of the margins, which are raw scores.",)


def _check_compiled_columns(estimator: Any, columns: Columns) -> None:
    """Check what the library's compiled prediction relies on without a look.

    It finds the known categories of a column by the number of the column, and takes for granted
    that preprocessing gives as many columns as there are features.
    """
    if not columns.codes:
        return
    if estimator._preprocessor.n_jobs is not None:
        # The library leaves it out; a tampered file could start any number of processes with it.
        raise BrokenModelFile("Preprocessing must not ask for processes of its own.")
    categorical = np.asarray(estimator._bin_mapper.is_categorical_)
    with plain_rows():
        encoded = estimator._preprocess_X(
            columns.raw_rows(np.zeros((1, len(columns.feature)))), reset=False
        )
    if (
        categorical.shape != columns.feature.shape
        or np.flatnonzero(categorical).tolist() != sorted(columns.codes)
        or encoded.shape != (1, len(columns.feature))
    ):
        raise BrokenModelFile("Preprocessing and trees disagree about the categorical columns.")


def _add_predictor(builder: TreeBuilder, predictor: Any, output: int, columns: Columns) -> None:
    nodes = np.asarray(predictor.nodes)
    inner = nodes["is_leaf"] == 0
    column = np.where(inner, nodes["feature_idx"], 0)
    if np.any((column < 0) | (column >= len(columns.feature))):
        raise BrokenModelFile(f"A split must test one of {len(columns.feature)} features.")
    missing_left = nodes["missing_go_to_left"] > 0
    categorical = inner & (nodes["is_categorical"] > 0)
    limit = np.where(inner & ~categorical, nodes["num_threshold"], 0.0)
    threshold, only_missing = canonical_splits(limit, "float64")
    # An unknown category goes where a missing value goes. Canonically both go right, so the set
    # lists the known categories of the other side.
    swap = only_missing | (categorical & missing_left)
    sets = np.full(len(nodes), -1, dtype=np.int64)
    for node in np.flatnonzero(categorical):
        sets[node] = columns.add_set(
            builder,
            int(column[node]),
            _left_words(predictor, int(nodes["bitset_idx"][node])),
            known_side_is_left=not missing_left[node],
        )
    flags = np.where(categorical, CATEGORICAL + WHOLE_CATEGORY + NONNEGATIVE_CATEGORY, 0)
    builder.add_tree(
        feature=columns.feature[column],
        threshold=threshold,
        left=np.where(inner, nodes["left"].astype(np.int64), -1),
        right=np.where(inner, nodes["right"].astype(np.int64), -1),
        flags=flags + np.where(missing_left, MISSING_LEFT, 0),
        value=nodes["value"],
        output=output,
        category_set=sets,
        swap=swap,
    )


def _left_words(predictor: Any, number: int) -> Any:
    bitsets = np.asarray(predictor.raw_left_cat_bitsets)
    if bitsets.ndim != 2 or bitsets.shape[1] != 8 or not 0 <= number < len(bitsets):
        raise BrokenModelFile(f"A categorical split refers to the unknown category set {number}.")
    return bitsets[number]


def _decision(
    estimator: Any, labels: tuple[Any, ...], n_outputs: int, threshold: float | None, cut: float
) -> Decision:
    if not labels:
        return Decision(kind="score")
    if threshold is not None:
        probabilities = estimator._loss.predict_proba
        return cut_decision(lambda margins: probabilities(margins)[:, 1] >= threshold)
    expected = 1 if len(labels) == 2 else len(labels)
    if n_outputs != expected:
        raise BrokenModelFile(f"{len(labels)} classes need {expected} scores. Got {n_outputs}.")
    if n_outputs == 1:
        return Decision(kind="threshold", cut=cut)
    return Decision(kind="argmax")


def _objective(estimator: Any, labels: tuple[Any, ...]) -> str:
    return f"{'classification' if labels else 'regression'}, {estimator.loss}"
