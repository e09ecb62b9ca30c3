"""treelite checkpoints (``.tl``) and live ``treelite.Model`` objects.

treelite stores what trees compute, but not everything that decides a prediction: whether the
original library rounds rows to float32, what its missing values mean, and which class wins a tie.
These must be given. The model is the one that treelite's own inference library (GTIL) runs: trees
are summed in order, then averaged where that is asked for, then the base score is added. It may
differ from the original in the last bits, and where LightGBM takes ``|x| <= 1e-35`` for zero.
"""

import math
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, InvalidInput, UnsupportedModel
from treeproof.loaders.base import (
    CannotAnswer,
    Loaded,
    Loader,
    LoadOptions,
    Reference,
    has_base_class,
    read_model_file,
    version_notes,
)
from treeproof.loaders.rules import (
    Precision,
    canonical_splits,
    cut_decision,
    elementwise,
    refuse_threshold,
)
from treeproof.loaders.treelite.format import (
    CATEGORY,
    GREATER,
    GREATER_EQUAL,
    LEAF,
    LESS,
    LESS_EQUAL,
    NUMERIC,
    Checkpoint,
    CheckpointTree,
    is_checkpoint,
    read_checkpoint,
)
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    NONNEGATIVE_CATEGORY,
    Aggregation,
    Decision,
    Ensemble,
    FloatArray,
    Provenance,
)
from treeproof.model.links import exp_float32, sigmoid_float64

OLDEST_VERSION = (4, 0)
NEWEST_VERSION = (4, 8)
"""Releases of treelite whose checkpoints are tested, first and last."""

_CLASSIFIERS = {"kBinaryClf", "kMultiClf"}


class TreeliteLoader(Loader):
    """treelite models, from files (without treelite) or in memory."""

    def accepts_object(self, source: Any) -> bool:
        """Whether an object is a treelite model."""
        return has_base_class(source, "treelite", "Model")

    def accepts_file(self, path: Path, head: bytes) -> bool:
        """Whether a file is a checkpoint, by its name or its first bytes."""
        return path.suffix.lower() in (".tl", ".treelite") or is_checkpoint(head)

    def load_object(self, source: Any, options: LoadOptions) -> Loaded:
        """Translate a live model."""
        if source.handle is None:
            raise InvalidInput("The treelite model must be loaded. Got an empty one.")
        return _load(source.serialize_bytes(), options, source="treelite.Model object", sha256="")

    def load_file(self, path: Path, options: LoadOptions) -> Loaded:
        """Translate a checkpoint."""
        file = read_model_file(path)
        return _load(file.content, options, source=str(path), sha256=file.sha256)


def _load(content: bytes, options: LoadOptions, *, source: str, sha256: str) -> Loaded:
    checkpoint = read_checkpoint(content)
    if len(checkpoint.n_classes) != 1:
        raise UnsupportedModel(
            f"A treelite model must have one target. Got {len(checkpoint.n_classes)}."
            " Export one model per target."
        )
    n_outputs = checkpoint.n_classes[0]
    if n_outputs < 1 or len(checkpoint.base_scores) != n_outputs:
        raise BrokenModelFile(
            f"There must be one base score per class. Got {n_outputs} classes and"
            f" {len(checkpoint.base_scores)} base scores."
        )
    input_precision = _input_precision(options, checkpoint.precision)
    missing = _missing(options)
    decision, classes = _decision(checkpoint, options, n_outputs)
    width = math.prod(checkpoint.leaf_shape)
    if width not in (1, n_outputs):
        raise BrokenModelFile(f"Leaves must have one value or one per class. Got {width}.")
    builder = TreeBuilder(leaf_width=width)
    # Damaged numbers may be signalling NaN or overflow when cast; the validation names them.
    with np.errstate(invalid="ignore", over="ignore"):
        for number in range(len(checkpoint.trees)):
            _add_tree(builder, checkpoint, number, width, input_precision, missing)
    ensemble = Ensemble(
        trees=builder.finish(),
        n_features=checkpoint.n_features,
        n_outputs=n_outputs,
        input_precision=input_precision,
        aggregation=_aggregation(checkpoint, n_outputs),
        decision=decision,
        classes=classes,
        provenance=Provenance(
            library="treelite",
            library_version=checkpoint.version,
            source=source,
            file_sha256=sha256,
            objective=f"{checkpoint.task}, {checkpoint.postprocessor}",
            notes=_notes(checkpoint),
        ),
    )
    return Loaded(ensemble, _reference(ensemble, content, missing))


def _input_precision(options: LoadOptions, precision: Precision) -> Precision:
    chosen = options.input_precision
    if precision == "float32":
        if chosen == "float64":
            raise InvalidInput(
                "The 'input_precision' of a treelite model with float32 thresholds must be"
                " 'float32', because treelite rounds its rows. Got 'float64'."
            )
        return "float32"
    if chosen is None:
        raise InvalidInput(
            "A treelite checkpoint does not say whether rows are rounded to float32. Give"
            " 'input_precision': 'float32' for models of scikit-learn's trees, forests and"
            " GradientBoosting, 'float64' for LightGBM and HistGradientBoosting."
        )
    return chosen


def _missing(options: LoadOptions) -> Literal["nan", "none"]:
    if options.missing is None:
        raise InvalidInput(
            "A treelite checkpoint does not say what a missing value is. Give 'missing': 'nan' if"
            " NaN takes the default direction (XGBoost, scikit-learn, most LightGBM models), 'none'"
            " if NaN counts as 0 (LightGBM with use_missing=false)."
        )
    if options.missing == "zero":
        # treelite's import of LightGBM replaces the direction of every split that takes zero for
        # missing by the side of zero, so the checkpoint no longer holds the model.
        raise UnsupportedModel(
            "A treelite checkpoint of a LightGBM model with zero_as_missing has lost where missing"
            " values go. Load the LightGBM model itself."
        )
    return options.missing


def _decision(
    checkpoint: Checkpoint, options: LoadOptions, n_outputs: int
) -> tuple[Decision, tuple[int, ...]]:
    is_classifier = checkpoint.task in _CLASSIFIERS
    threshold = options.decision_threshold
    if not is_classifier or n_outputs != 1 or checkpoint.postprocessor != "sigmoid":
        what = f"{checkpoint.task} of {n_outputs} scores with {checkpoint.postprocessor}"
        refuse_threshold(threshold, f"treelite's {what}")
    elif threshold is not None:
        probability = elementwise(_sigmoid(checkpoint))
        decision = cut_decision(
            lambda margins: probability(margins) >= threshold, checkpoint.precision
        )
        return decision, (0, 1)
    if not is_classifier:
        return Decision(kind="score"), ()
    if options.tie is None:
        raise InvalidInput(
            "A treelite checkpoint does not say which class wins a tie. Give 'tie': 'lower' for the"
            " lower class (XGBoost, LightGBM, forests, HistGradientBoosting), 'upper' for the upper"
            " one (scikit-learn's GradientBoosting)."
        )
    if n_outputs == 1:
        zero, one = np.array([0, 1], dtype=checkpoint.precision)
        smallest = float(np.nextafter(zero, one))
        cut = smallest if options.tie == "lower" else 0.0
        return Decision(kind="threshold", cut=cut), (0, 1)
    if options.tie == "upper":
        raise InvalidInput(
            f"The 'tie' of a treelite model with {n_outputs} scores must be 'lower'. Got 'upper'."
        )
    return Decision(kind="argmax"), tuple(range(n_outputs))


def _sigmoid(checkpoint: Checkpoint) -> Callable[[float], float]:
    """Treelite's sigmoid of a margin, in its own precision."""
    alpha = checkpoint.sigmoid_alpha

    def of_float(margin: float) -> float:
        one = np.float32(1.0)
        exponential = exp_float32(float(np.float32(-alpha) * np.float32(margin)))
        return float(one / (one + np.float32(exponential)))

    is_single = checkpoint.precision == "float32"
    return of_float if is_single else lambda margin: sigmoid_float64(margin, alpha)


def _aggregation(checkpoint: Checkpoint, n_outputs: int) -> Aggregation:
    precision = checkpoint.precision
    start = (0.0,) * n_outputs
    base = tuple(float(score) for score in checkpoint.base_scores)
    if not checkpoint.is_average:
        return Aggregation(precision=precision, start=start, finish="affine", bias=base)
    if any(base):
        raise UnsupportedModel(
            f"A treelite model that averages its trees must have base scores of zero. Got {base}."
        )
    counts = np.zeros(n_outputs, dtype=np.int64)
    for number in checkpoint.class_number:
        counts[slice(None) if number < 0 else number] += 1
    if np.any(counts != counts[0]):
        raise UnsupportedModel(f"Every class must have as many trees as the others. Got {counts}.")
    return Aggregation(precision=precision, start=start, finish="divide", divisor=float(counts[0]))


def _add_tree(
    builder: TreeBuilder,
    checkpoint: Checkpoint,
    number: int,
    width: int,
    input_precision: Precision,
    missing: Literal["nan", "none"],
) -> None:
    tree = checkpoint.trees[number]
    n_outputs = checkpoint.n_classes[0]
    output = int(checkpoint.class_number[number])
    target = int(checkpoint.target[number])
    is_vector = width == n_outputs and output == -1
    if target not in (-1, 0) or not (is_vector or (width == 1 and 0 <= output < n_outputs)):
        raise BrokenModelFile(
            f"Tree {number} must add to one of {n_outputs} classes, or to all of them."
            f" Got target {target}, class {output}, leaves of {width} values."
        )
    inner = tree.node_type != LEAF
    kinds = tree.node_type[inner]
    if np.any((kinds != NUMERIC) & (kinds != CATEGORY)):
        raise BrokenModelFile(f"Tree {number} has a node of an unknown type.")
    if np.any((tree.feature[inner] < 0) | (tree.feature[inner] >= checkpoint.n_features)):
        raise BrokenModelFile(f"Tree {number} tests a feature beyond {checkpoint.n_features}.")
    numeric, categorical = tree.node_type == NUMERIC, tree.node_type == CATEGORY
    threshold, swap = _thresholds(tree, numeric, number, input_precision)
    swap |= categorical & tree.category_right
    missing_left = tree.default_left.copy()
    if missing == "none":
        # NaN counts as 0.0 in numeric splits, so its direction is the direction of zero.
        zero_left = (threshold > 0.0) ^ swap
        missing_left = np.where(numeric, zero_left, missing_left)
    flags = np.where(missing_left, MISSING_LEFT, 0)
    flags[categorical] |= CATEGORICAL | NONNEGATIVE_CATEGORY
    builder.add_tree(
        feature=np.where(inner, tree.feature, -1),
        threshold=threshold,
        left=np.where(inner, tree.left, -1),
        right=np.where(inner, tree.right, -1),
        flags=flags,
        value=_leaf_values(tree, number, width),
        output=-1 if is_vector and width > 1 else 0 if is_vector else output,
        category_set=_category_sets(builder, tree, categorical, number),
        swap=swap,
    )


def _thresholds(
    tree: CheckpointTree, numeric: NDArray[np.bool_], number: int, input_precision: Precision
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Canonical thresholds, and which nodes change their sides for them."""
    comparison = tree.comparison
    known = np.isin(comparison, (LESS, LESS_EQUAL, GREATER, GREATER_EQUAL))
    if np.any(numeric & ~known):
        node = int(np.flatnonzero(numeric & ~known)[0])
        raise UnsupportedModel(
            f"Tree {number}, node {node} must compare by <, <=, > or >=."
            f" Got operator {int(comparison[node])}."
        )
    limit = np.where(numeric, tree.threshold.astype(np.float64), 0.0)
    # "x > t" goes left where "x <= t" does not, and likewise for "x >= t" and "x < t".
    swap = numeric & ((comparison == GREATER) | (comparison == GREATER_EQUAL))
    is_closed = numeric & ((comparison == LESS_EQUAL) | (comparison == GREATER))
    canonical, always = canonical_splits(limit, input_precision, is_closed)
    return canonical, swap ^ always


def _leaf_values(tree: CheckpointTree, number: int, width: int) -> FloatArray:
    leaf = tree.node_type == LEAF
    begin, end = tree.vector_begin.astype(np.float64), tree.vector_end.astype(np.float64)
    is_vector = leaf & (tree.vector_begin != tree.vector_end)
    if width == 1 and not is_vector.any():
        return tree.leaf_value.astype(np.float64)
    # Compared as floats: as integers, a hostile offset could wrap around.
    if np.any(leaf & ((end - begin != width) | (end > len(tree.leaf_vector)))):
        raise BrokenModelFile(f"Tree {number}: every leaf must have {width} values.")
    first = np.where(leaf, tree.vector_begin, 0).astype(np.int64)
    positions = first[:, None] + np.where(leaf[:, None], np.arange(width), 0)
    if len(tree.leaf_vector) == 0:
        raise BrokenModelFile(f"Tree {number} has no leaf values.")
    return tree.leaf_vector.astype(np.float64)[positions]


def _category_sets(
    builder: TreeBuilder, tree: CheckpointTree, categorical: NDArray[np.bool_], number: int
) -> NDArray[np.int64]:
    sets = np.full(len(tree.node_type), -1, dtype=np.int64)
    for node in np.flatnonzero(categorical):
        begin, end = int(tree.category_begin[node]), int(tree.category_end[node])
        if not 0 <= begin <= end <= len(tree.category):
            raise BrokenModelFile(f"Tree {number}, node {node}: its categories do not exist.")
        sets[node] = builder.add_category_set(tree.category[begin:end])
    return sets


def _notes(checkpoint: Checkpoint) -> tuple[str, ...]:
    notes = version_notes("treelite", checkpoint.version, OLDEST_VERSION, NEWEST_VERSION)
    notes += (
        "Margins are summed as treelite's GTIL sums them; the library that trained the model may"
        " differ in the last bits.",
    )
    if any(np.any(tree.node_type == CATEGORY) for tree in checkpoint.trees):
        notes += (
            "treelite takes no value between -1 and 0 for a category, LightGBM takes it for 0.",
        )
    return notes


def _reference(ensemble: Ensemble, content: bytes, missing: Literal["nan", "none"]) -> Reference:
    """Answers of treelite, which the bytes cannot lead astray: they have been checked in full."""
    trees = ensemble.trees
    inner = trees.feature >= 0
    is_category = (trees.flags & CATEGORICAL) > 0
    numeric = np.setdiff1d(trees.feature[inner & ~is_category], trees.feature[is_category])

    @cache
    def model() -> Any:
        import treelite

        try:
            with warnings.catch_warnings():
                # About versions newer than the installed one; the notes say it already.
                warnings.simplefilter("ignore")
                return treelite.Model.deserialize_bytes(content)
        except treelite.TreeliteError as error:
            raise CannotAnswer(f"treelite refuses the checkpoint: {str(error)[:200]}") from error

    def margins(rows: FloatArray) -> NDArray[np.floating]:
        import treelite

        with np.errstate(over="ignore"):
            values = rows.astype(ensemble.input_precision).astype(np.float64)
            # What the checkpoint cannot say about missing values is done to the rows.
            if missing == "none":
                values[:, numeric] = np.nan_to_num(
                    values[:, numeric], posinf=np.inf, neginf=-np.inf
                )
            scores = treelite.gtil.predict(model(), values, nthread=1, pred_margin=True)
        return np.asarray(scores).reshape(len(rows), -1)

    return Reference(margins=margins)
