"""Loader for YDF: gradient boosted trees, random forests and single trees (CART).

YDF rounds rows to float32. Which of its engines predicts decides whether the first prediction is
added first or last; YDF takes the fastest that can, and so does the loader.
"""

import contextlib
import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.base import (
    CannotAnswer,
    Loaded,
    Loader,
    LoadOptions,
    Reference,
    class_numbers,
    has_base_class,
)
from treeproof.loaders.protobuf import Message
from treeproof.loaders.rules import cut_decision, refuse_threshold
from treeproof.loaders.ydf.format import (
    BOOLEAN,
    CATEGORICAL,
    DISCRETIZED,
    GRADIENT_BOOSTED,
    NUMERICAL,
    Column,
    Directory,
    is_directory,
    read_directory,
)
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    CATEGORICAL as CATEGORICAL_FLAG,
)
from treeproof.model.ensemble import (
    MISSING_LEFT,
    WHOLE_CATEGORY,
    Aggregation,
    Decision,
    Ensemble,
    FloatArray,
    Provenance,
)
from treeproof.model.links import exp_float32

_CLASSIFICATION, _REGRESSION, _RANKING = 1, 2, 3
_BINOMIAL, _SQUARED, _MULTINOMIAL, _FOCAL, _POISSON = 1, 2, 3, 6, 7
_LOSSES = {
    _BINOMIAL: "binomial log likelihood",
    _SQUARED: "squared error",
    4: "LambdaMART, NDCG@5",
    5: "cross entropy of NDCG",
    _FOCAL: "binary focal",
    _POISSON: "Poisson",
    8: "mean absolute error",
    9: "LambdaMART, NDCG",
}
_QUICK_SCORER_LEAVES = 64
"""Leaves of a tree up to which YDF's fastest engines take a model; they add the base first."""

_KINDS = (NUMERICAL, CATEGORICAL, BOOLEAN, DISCRETIZED)

Shown = Callable[[NDArray[np.floating]], NDArray[np.floating]]


class YdfLoader(Loader):
    """YDF models, from directories (without YDF) or in memory."""

    def accepts_object(self, source: Any) -> bool:
        """Whether an object is a model of YDF."""
        return has_base_class(source, "ydf", "GenericModel")

    def accepts_directory(self, path: Path) -> bool:
        """Whether a directory holds a model."""
        return is_directory(path)

    def load_object(self, source: Any, options: LoadOptions) -> Loaded:
        """Translate a live model."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            source.save(str(path))
            directory = read_directory(path)
        return _load(directory, options, f"{type(source).__name__} object", lambda: source)

    def load_file(self, path: Path, options: LoadOptions) -> Loaded:
        """Translate a directory."""

        @cache
        def opened() -> Any:
            import ydf

            try:
                # It announces what it opens on standard output.
                with contextlib.redirect_stdout(io.StringIO()):
                    return ydf.load_model(str(path))
            except Exception as error:
                raise CannotAnswer(f"YDF refuses the model: {str(error)[:200]}") from error

        return _load(read_directory(path), options, str(path), opened)


@dataclass(frozen=True)
class _Meaning:
    """How sums become scores and labels."""

    n_outputs: int
    aggregation: Aggregation
    decision: Decision
    classes: tuple[Any, ...]
    shown: Shown
    leaf_value: Callable[[Message], list[float]]
    objective: str


def _load(
    directory: Directory, options: LoadOptions, source: str, opened: Callable[[], Any]
) -> Loaded:
    for column in directory.columns:
        if column.kind not in _KINDS:
            raise UnsupportedModel(
                f"The columns of a YDF model must be numbers, categories or booleans. Got type"
                f" {column.kind} of column {column.name[:60]!r}."
            )
    grown = _Trees(directory)
    meaning = _meaning(directory, options)
    width = meaning.n_outputs
    builder = TreeBuilder(leaf_width=width)
    # Damaged numbers may overflow; the validation names them.
    with np.errstate(over="ignore", invalid="ignore"):
        for number in range(directory.n_trees):
            grown.add(builder, number, -1 if width > 1 else 0, meaning.leaf_value)
    ensemble = Ensemble(
        trees=builder.finish(),
        n_features=len(directory.columns),
        n_outputs=width,
        input_precision="float32",
        aggregation=meaning.aggregation,
        decision=meaning.decision,
        classes=meaning.classes,
        feature_names=tuple(column.name for column in directory.columns),
        categories={
            place: column.names
            for place, column in enumerate(directory.columns)
            if column.kind == CATEGORICAL
        },
        provenance=Provenance(
            library="ydf",
            source=source,
            file_sha256=directory.sha256,
            objective=meaning.objective,
        ),
    )
    if directory.name == GRADIENT_BOOSTED:
        # Only now may YDF be asked: it stops the process on some damaged files.
        ensemble = _as_deployed(ensemble, _is_quick(grown, opened))
    return Loaded(ensemble, _reference(ensemble, directory, options, meaning, opened))


def _as_deployed(ensemble: Ensemble, quick: bool) -> Ensemble:
    """Boosted trees with the first prediction where the engine that predicts adds it."""
    note = (
        "YDF adds the first prediction before the trees in its QuickScorer engines, and after them"
        f" in others; here it is added {'first' if quick else 'last'}."
    )
    ensemble = ensemble.with_provenance(notes=(note,))
    if quick:
        return ensemble
    # Sound: a double holds the sum of two floats well enough for the same rounding.
    zeros, start = (0.0,) * ensemble.n_outputs, ensemble.aggregation.start
    last = Aggregation(precision="float32", start=zeros, finish="affine", bias=start)
    return replace(ensemble, aggregation=last)


def _is_quick(grown: "_Trees", opened: Callable[[], Any]) -> bool:
    """Whether YDF predicts with an engine that adds the first prediction first."""
    try:
        return "QuickScorer" in opened().list_compatible_engines()[0]
    except (ImportError, CannotAnswer, AttributeError, IndexError):
        return grown.largest <= _QUICK_SCORER_LEAVES


def _meaning(directory: Directory, options: LoadOptions) -> _Meaning:
    if directory.name == GRADIENT_BOOSTED:
        return _boosted(directory, options)
    return _forest(directory, options)


def _boosted(directory: Directory, options: LoadOptions) -> _Meaning:
    header, loss = directory.header, directory.header.integer(3)
    if loss not in _LOSSES:
        raise UnsupportedModel(
            f"The loss of a YDF model must be one of {', '.join(_LOSSES.values())}."
            f" Got loss {loss}, whose ties between classes rounded probabilities decide."
        )
    start = header.reals(4).astype(np.float64)
    if len(start) != 1 or header.integer(5, 1) != 1 or not np.isfinite(start[0]):
        raise BrokenModelFile("A YDF model of one score must have one finite first prediction.")
    aggregation = Aggregation(precision="float32", start=(float(start[0]),))
    is_classifier = directory.task == _CLASSIFICATION
    if is_classifier != (loss in (_BINOMIAL, _FOCAL)):
        raise BrokenModelFile(f"The loss {_LOSSES[loss]} does not fit the task of the YDF model.")
    shown: Shown = _as_they_are
    if not header.integer(9, 0) and loss in (_BINOMIAL, _FOCAL):
        shown = _sigmoid
    elif not header.integer(9, 0) and loss == _POISSON:
        shown = _exponential
    decision, classes = _binary(directory, options, shown, is_classifier)
    return _Meaning(1, aggregation, decision, classes, shown, _regressor_value, _LOSSES[loss])


def _binary(
    directory: Directory, options: LoadOptions, shown: Shown, is_classifier: bool
) -> tuple[Decision, tuple[Any, ...]]:
    """Class 1 from a probability of one half on, ties included, as `predict_class` labels."""
    if not is_classifier:
        refuse_threshold(options.decision_threshold, "a score")
        return Decision(kind="score"), ()
    classes = directory.label.names[1:]
    if directory.label.kind != CATEGORICAL or len(classes) != 2:
        raise BrokenModelFile(
            f"A YDF classifier of one score must have two classes. Got {len(classes)}."
        )
    threshold = 0.5 if options.decision_threshold is None else options.decision_threshold
    limit = np.float32(threshold)
    rule = cut_decision(lambda margins: shown(margins[:, np.newaxis])[:, 0] >= limit, "float32")
    return rule, classes


def _forest(directory: Directory, options: LoadOptions) -> _Meaning:
    n_trees = directory.n_trees
    if directory.task == _REGRESSION:
        refuse_threshold(options.decision_threshold, "a score")

        def mean(node: Message) -> list[float]:
            return [float(np.float32(_regressor_value(node)[0]) / np.float32(n_trees))]

        plain = Aggregation(precision="float32", start=(0.0,))
        return _Meaning(1, plain, Decision(kind="score"), (), _as_they_are, mean, "regression")
    if directory.task != _CLASSIFICATION or directory.label.kind != CATEGORICAL:
        raise UnsupportedModel(
            f"A YDF forest must be for classification or regression. Got task {directory.task}."
        )
    classes = directory.label.names[1:]
    wins = bool(directory.header.integer(3, 1))

    def votes(node: Message) -> list[float]:
        """What a leaf adds to each class: its share, or all of it to the largest."""
        shares = _shares(node, len(classes), wins) / n_trees
        with np.errstate(under="ignore"):
            found: list[float] = shares.astype(np.float32).astype(np.float64).tolist()
        return found[1:] if len(classes) == 2 else found

    if len(classes) < 2:
        raise UnsupportedModel(f"A classifier must have two classes or more. Got {len(classes)}.")
    if len(classes) == 2:
        decision, _ = _binary(directory, options, _as_they_are, True)
        n_outputs = 1
    else:
        refuse_threshold(options.decision_threshold, f"a model of {len(classes)} classes")
        decision, n_outputs = Decision(kind="argmax"), len(classes)
    aggregation = Aggregation(precision="float32", start=(0.0,) * n_outputs)
    words = "votes" if wins else "probabilities"
    return _Meaning(
        n_outputs, aggregation, decision, classes, _as_they_are, votes, f"classification by {words}"
    )


def _shares(node: Message, n_classes: int, wins: bool) -> FloatArray:
    output = node.message(1)
    if wins:
        shares = np.zeros(n_classes)
        top = output.integer(1)
        if not 1 <= top <= n_classes:
            raise BrokenModelFile(f"A leaf votes for class {top}, which does not exist.")
        shares[top - 1] = 1.0
        return shares
    distribution = output.message(2)
    counts, total = distribution.reals(1, "<f8"), distribution.reals(2, "<f8")
    if len(counts) != n_classes + 1 or len(total) != 1 or not total[0] > 0.0:
        raise BrokenModelFile("A leaf must have a weight for every class, and a positive sum.")
    result: FloatArray = counts[1:] / total[0]
    return result


def _regressor_value(node: Message) -> list[float]:
    if 2 not in node:
        raise BrokenModelFile("A leaf of the YDF model has no value.")
    return [node.message(2).real(1)]


def _as_they_are(margins: NDArray[np.floating]) -> NDArray[np.floating]:
    return margins


def _exponential(margins: NDArray[np.floating]) -> NDArray[np.floating]:
    found = [exp_float32(value) for value in margins.ravel().tolist()]
    return np.array(found, dtype=np.float32).reshape(margins.shape)


def _sigmoid(margins: NDArray[np.floating]) -> NDArray[np.floating]:
    one = np.float32(1.0)
    with np.errstate(over="ignore"):
        return one / (one + _exponential(-margins.astype(np.float32)))


class _Trees:
    """The trees of a directory: a node, all nodes below its negative side, then the others."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._nodes = [Message(node) for node in directory.nodes]
        self._conditions = [
            node.message(3) if 3 in node and 3 in node.message(3) else None for node in self._nodes
        ]
        self._first = self._starts()
        sizes = np.diff(self._first)
        # A binary tree of n nodes has (n + 1) / 2 leaves.
        self.largest = int((sizes.max() + 1) // 2)

    def _starts(self) -> list[int]:
        """First node of each tree, and the number of nodes."""
        starts, at = [0], 0
        for number in range(self._directory.n_trees):
            wanted = 1
            while wanted:
                if at == len(self._nodes):
                    raise BrokenModelFile(f"The nodes of tree {number} are not complete.")
                wanted += 1 if self._conditions[at] is not None else -1
                at += 1
            starts.append(at)
        if at != len(self._nodes):
            raise BrokenModelFile("The YDF model has nodes that belong to no tree.")
        return starts

    def add(
        self,
        builder: TreeBuilder,
        number: int,
        output: int,
        leaf_value: Callable[[Message], list[float]],
    ) -> None:
        """Hand one tree to the builder."""
        first, end = self._first[number], self._first[number + 1]
        n = end - first
        columns: dict[str, Any] = {name: np.zeros(n) for name in ("feature", "threshold", "flags")}
        sides = {"left": np.full(n, -1), "right": np.full(n, -1), "category_set": np.full(n, -1)}
        value = np.zeros((n, builder.leaf_width))
        swap = np.zeros(n, dtype=bool)
        waiting: list[int] = []
        for node in range(n):
            condition = self._conditions[first + node]
            if condition is None:
                value[node] = leaf_value(self._nodes[first + node])
                # A leaf ends the negative side of the innermost node that waits for its other one.
                if waiting:
                    sides["right"][waiting.pop()] = node + 1
                continue
            sides["left"][node] = node + 1
            waiting.append(node)
            test = self._test(condition, f"Tree {number}, node {node}", builder)
            columns["feature"][node] = test.feature
            columns["threshold"][node] = test.threshold
            columns["flags"][node] = test.flags
            sides["category_set"][node] = test.category_set
            swap[node] = test.swap
        builder.add_tree(output=output, value=value, swap=swap, **columns, **sides)

    def _test(self, message: Message, place: str, builder: TreeBuilder) -> "_Test":
        """A condition in canonical form: left is the negative side."""
        attribute, condition = message.integer(2), message.message(3)
        feature = self._directory.position.get(attribute)
        if feature is None:
            raise BrokenModelFile(f"{place} tests column {attribute}, which is not read.")
        column = self._directory.columns[feature]
        # A missing value goes to the positive side, the right one, where the file says so.
        missing = 0 if message.integer(1) else MISSING_LEFT
        if 2 in condition and column.kind == NUMERICAL:
            threshold = condition.message(2).real(1)
            return _Test(feature, threshold, missing)
        if 6 in condition and column.kind == DISCRETIZED:
            step = condition.message(6).integer(1)
            if not 1 <= step <= len(column.boundaries):
                raise BrokenModelFile(f"{place} tests step {step}, which does not exist.")
            return _Test(feature, float(column.boundaries[step - 1]), missing)
        if 3 in condition and column.kind == BOOLEAN:
            return _Test(feature, 0.5, missing)
        if 1 in condition:
            # Numbers go to the negative side, which changes sides for it; none is below minus
            # infinity.
            return _Test(feature, -np.inf, 0, swap=True)
        if column.kind == CATEGORICAL and (4 in condition or 5 in condition):
            codes = _set_of(condition, len(column.names), place)
            flags = CATEGORICAL_FLAG | WHOLE_CATEGORY | missing
            # Canonical is "in the set goes left", which is the positive side here.
            return _Test(feature, 0.0, flags, builder.add_category_set(codes), swap=True)
        raise UnsupportedModel(
            f"{place} must compare one column with a number, a set or a boolean. Got another"
            " condition, such as one on many columns. Train without sparse oblique splits."
        )


@dataclass(frozen=True, slots=True)
class _Test:
    """The test of one node."""

    feature: int
    threshold: float
    flags: int
    category_set: int = -1
    swap: bool = False


def _set_of(condition: Message, n: int, place: str) -> NDArray[np.int64]:
    """Numbers of the categories on the positive side."""
    if 4 in condition:
        codes = condition.message(4).integers(1)
    else:
        bitmap = np.frombuffer(condition.message(5).raw(1), np.uint8)
        codes = np.flatnonzero(np.unpackbits(bitmap, bitorder="little"))
    if len(codes) and (codes.min() < 0 or codes.max() >= n):
        raise BrokenModelFile(f"{place} lists a category that does not exist.")
    return codes.astype(np.int64)


def _reference(
    ensemble: Ensemble,
    directory: Directory,
    options: LoadOptions,
    meaning: _Meaning,
    opened: Callable[[], Any],
) -> Reference:
    """YDF's own scores and labels."""

    def feedable(rows: FloatArray) -> FloatArray:
        rows = rows.copy()
        for place, column in enumerate(directory.columns):
            values = rows[:, place]
            if column.kind == BOOLEAN:
                rows[:, place] = np.nan_to_num(values) >= 0.5
            elif column.kind == CATEGORICAL:
                known = (values >= 0) & (values < len(column.names)) & (values == np.floor(values))
                rows[:, place] = np.where(known, values, np.where(np.isnan(values), np.nan, 0.0))
        return rows

    def table(rows: FloatArray) -> dict[str, NDArray[Any]]:
        return {
            column.name: _fed(column, rows[:, place])
            for place, column in enumerate(directory.columns)
        }

    def margins(rows: FloatArray) -> NDArray[np.floating]:
        return np.asarray(opened().predict(table(rows))).reshape(len(rows), -1)

    def labels(rows: FloatArray) -> NDArray[np.int64]:
        if options.decision_threshold is not None:
            limit = np.float32(options.decision_threshold)
            return (margins(rows)[:, 0] >= limit).astype(np.int64)
        return class_numbers(ensemble.classes, opened().predict_class(table(rows)))

    return Reference(
        margins=margins,
        labels=None if ensemble.decision.kind == "score" else labels,
        shown=meaning.shown,
        feedable=feedable,
    )


def _fed(column: Column, values: FloatArray) -> NDArray[Any]:
    """A column as YDF takes it."""
    if column.kind == BOOLEAN:
        return values >= 0.5
    if column.kind != CATEGORICAL:
        with np.errstate(over="ignore"):
            return values.astype(np.float32)
    other = "?" + max(column.names, key=len)
    names = ["" if np.isnan(v) else column.names[int(v)] if v else other for v in values.tolist()]
    return np.array(names)
