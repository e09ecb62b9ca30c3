"""scikit-learn's GradientBoosting and HistGradientBoosting."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.base import Loaded
from treeproof.loaders.rules import SMALLEST_POSITIVE, canonical_splits, cut_decision
from treeproof.loaders.sklearn.shared import (
    LARGEST_CATEGORY,
    UNKNOWN_TEXT,
    add_library_tree,
    class_labels,
    feature_count,
    feature_names,
    is_nan,
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
    FloatArray,
)

_UNKNOWN = -1.0
_CONSTANT_STRATEGIES = {"prior", "most_frequent", "constant", "mean", "median", "quantile"}


@dataclass(frozen=True, slots=True)
class Columns:
    """How columns of a row become the columns that the trees see."""

    feature: NDArray[np.int64]
    """Feature of the model behind each column of the trees."""
    codes: dict[int, Sequence[int]] = field(default_factory=dict)
    """Per categorical column of the trees: category in rows of the model, by the library's code."""
    categories: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """Raw values in code order for features of the model whose categories are not numbers."""
    _sets: dict[tuple[int, ...], int] = field(default_factory=dict)

    @property
    def categorical(self) -> tuple[int, ...]:
        """Features of the model that hold categories."""
        return tuple(sorted(int(self.feature[column]) for column in self.codes))

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Read the preprocessor of a fitted HistGradientBoosting estimator."""
        n_features = feature_count(estimator)
        if getattr(estimator, "_preprocessor", None) is None:
            return cls(np.arange(n_features))
        mask = np.asarray(estimator.is_categorical_, dtype=bool)
        encoder = estimator._preprocessor.named_transformers_["encoder"]
        categorical = np.flatnonzero(mask)
        if mask.shape != (n_features,) or len(encoder.categories_) != len(categorical):
            raise BrokenModelFile("Every categorical column must have its list of categories.")
        columns = cls(np.concatenate([categorical, np.flatnonzero(~mask)]))
        for column, raw in enumerate(encoder.categories_):
            feature = int(categorical[column])
            known = [value for value in np.asarray(raw).tolist() if not is_nan(value)]
            if all(isinstance(value, Real) for value in known):
                columns.codes[column] = _whole_numbers(known, feature)
            else:
                columns.codes[column] = range(len(known))
                columns.categories[feature] = tuple(known)
        return columns

    def add_set(
        self,
        builder: TreeBuilder,
        column: int,
        left_words: NDArray[np.uint32],
        *,
        known_side_is_left: bool,
    ) -> int:
        """Store the categories of one side of a split; return the number of the set.

        Bit c of `left_words`, uint32 (8,), is set iff the library's code c goes left. Equal sets
        are stored once.
        """
        if column not in self.codes:
            raise BrokenModelFile(f"Column {column} has a categorical split but no categories.")
        chosen = tuple(
            category
            for code, category in enumerate(self.codes[column])
            if bool(int(left_words[code // 32]) >> (code % 32) & 1) == known_side_is_left
        )
        if chosen not in self._sets:
            self._sets[chosen] = builder.add_category_set(chosen)
        return self._sets[chosen]

    def raw_rows(self, rows: FloatArray) -> Any:
        """Rows of the model as the estimator takes them, with raw categories."""
        if not self.codes:
            return rows
        features = [int(self.feature[column]) for column in self.codes]
        plain = rows.copy()
        # The library refuses an infinite category outright; here it is one it does not know.
        plain[:, features] = np.where(np.isinf(rows[:, features]), _UNKNOWN, rows[:, features])
        if not self.categories:
            return plain
        raw = plain.astype(object)
        for feature, known in self.categories.items():
            raw[:, feature] = [_raw_value(known, value) for value in plain[:, feature]]
        return raw


def _raw_value(known: tuple[Any, ...], code: float) -> Any:
    if np.isnan(code):
        return np.nan
    if code.is_integer() and 0 <= code < len(known):
        return known[int(code)]
    return UNKNOWN_TEXT


def _whole_numbers(known: list[Any], feature: int) -> list[int]:
    for value in known:
        if value < 0 or value > LARGEST_CATEGORY or value != int(value):
            raise UnsupportedModel(
                f"Categories of feature {feature} must be text or whole numbers from 0 to"
                f" {LARGEST_CATEGORY}. Got {value!r}. Encode the column with small numbers, or as"
                " text, and train again."
            )
    codes = [int(value) for value in known]
    if sorted(set(codes)) != codes:
        raise BrokenModelFile(f"Categories of feature {feature} must rise, each listed once.")
    return codes


def load_gradient_boosting(estimator: Any, threshold: float | None) -> Loaded:
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


def load_hist_gradient_boosting(estimator: Any, threshold: float | None) -> Loaded:
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
        provenance=provenance(
            estimator, _objective(estimator, labels), _link_notes(estimator, labels)
        ),
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
