"""From the sums of trees to scores and labels, as onnxruntime computes them.

A classifier's label is decided on the sums before they are transformed, by rules that depend on how
many classes have weights and on their signs; `decide` has them all. What later operators make of
scores is followed as far as it is plain arithmetic.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, InvalidInput, UnsupportedModel
from treeproof.loaders.base import LoadOptions
from treeproof.loaders.onnx.columns import ARITHMETIC, encoder_table
from treeproof.loaders.onnx.format import DOUBLE, FLOAT, INT64, ML, STRING, Node
from treeproof.loaders.onnx.trees import Forest, base_values, leaves_without_weight
from treeproof.loaders.rules import cut_decision, refuse_threshold
from treeproof.model.ensemble import Aggregation, Decision
from treeproof.model.links import exp_float32, log_float32

Margins = NDArray[np.floating]
Shown = Callable[[Margins], NDArray[Any]]

_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
"""In the order of onnxruntime, which is not that of the standard for TreeEnsemble."""


@dataclass(frozen=True)
class Sums:
    """What a tree operator adds up and gives."""

    forest: Forest
    aggregation: Aggregation
    decision: Decision
    shown: Shown
    """Scores that the operator gives for the margins of this model."""
    shown_columns: slice
    """Which of the columns of its scores these are."""
    transform: str
    is_plain: bool = False
    """Whether its scores are the sums themselves, one column per output."""
    classes: tuple[Any, ...] = ()


def read_sums(node: Node, forest: Forest) -> Sums:
    """Aggregation and decision of a tree operator."""
    precision = forest.precision
    transform = _transform(node)
    base = base_values(node, precision)
    if not np.all(np.isfinite(base)):
        raise BrokenModelFile("The base values of the ONNX model must be finite.")
    if node.op == "TreeEnsembleClassifier":
        return _classifier(node, forest, base, transform)
    n = forest.n_outputs
    if n == 1 and leaves_without_weight(forest):
        raise UnsupportedModel(
            "Every leaf of a TreeEnsembleRegressor of one target must have a weight. Got one"
            " without, for which onnxruntime takes the number that the leaf compares with."
        )
    if len(base) not in (0, n):
        raise BrokenModelFile(f"There must be {n} base values, or none. Got {len(base)}.")
    # Older operators give floats, whatever they compute in.
    dtype = np.dtype(precision if node.op == "TreeEnsemble" else "float32")
    # onnxruntime ignores all transforms but one for a single target.
    is_plain = transform == "NONE" or (n == 1 and transform != "PROBIT")

    def shown(margins: Margins) -> NDArray[Any]:
        return (margins if is_plain else _transformed(margins, transform)).astype(dtype)

    return Sums(
        forest=forest,
        aggregation=_aggregation(node, forest, base),
        decision=Decision(kind="score"),
        shown=shown,
        shown_columns=slice(None),
        is_plain=is_plain and dtype == np.dtype(precision),
        transform=transform,
    )


def _transform(node: Node) -> str:
    if node.op == "TreeEnsemble":
        number = node.integer("post_transform", 0)
        name = _TRANSFORMS[number] if 0 <= number < len(_TRANSFORMS) else str(number)
    else:
        name = node.text("post_transform", "NONE")
    if name not in _TRANSFORMS:
        raise BrokenModelFile(
            f"The post_transform must be one of {', '.join(_TRANSFORMS)}. Got {name!r}."
        )
    return name


def _aggregation(node: Node, forest: Forest, base: NDArray[np.float64]) -> Aggregation:
    start, precision = (0.0,) * forest.n_outputs, forest.precision
    function = node.text("aggregate_function", "SUM") if node.op != "TreeEnsemble" else ""
    if node.op == "TreeEnsemble":
        number = node.integer("aggregate_function", 1)
        function = dict(enumerate(("AVERAGE", "SUM", "MIN", "MAX"))).get(number, str(number))
    has_base = bool(np.any(base != 0.0))
    if function == "SUM":
        # The base is added last, and rounded as the sum is.
        # Sound: a double holds the sum of two floats well enough that rounding it again gives the
        # float that a float addition gives (53 bits are more than twice 24 and two).
        if has_base:
            return Aggregation(
                precision=precision, start=start, finish="affine", bias=tuple(base.tolist())
            )
        return Aggregation(precision=precision, start=start)
    if function == "AVERAGE" and not has_base:
        n_trees = float(np.dtype(precision).type(len(forest.sizes)))
        return Aggregation(precision=precision, start=start, finish="divide", divisor=n_trees)
    raise UnsupportedModel(
        "The trees of an ONNX model must be added up, or averaged without base values."
        f" Got aggregate_function {function!r}."
    )


def _labels(node: Node) -> tuple[Any, ...]:
    strings, numbers = node.texts("classlabels_strings"), node.integers("classlabels_int64s")
    if bool(strings) == bool(len(numbers)):
        raise BrokenModelFile("A classifier must have classes that are strings or whole numbers.")
    labels: tuple[Any, ...] = tuple(strings) if strings else tuple(numbers.tolist())
    if len(set(labels)) != len(labels):
        raise BrokenModelFile("The classes of the ONNX model must differ. Got one twice.")
    return labels


def _classifier(node: Node, forest: Forest, base: NDArray[np.float64], transform: str) -> Sums:
    classes = _labels(node)
    if len(classes) == 1:
        raise UnsupportedModel("A classifier must have at least two classes. Got one.")
    if len(classes) == 2:
        return _binary(node, forest, base, transform, classes)
    if len(base) not in (0, len(classes)):
        raise BrokenModelFile(
            f"There must be {len(classes)} base values, or none. Got {len(base)}."
        )
    _require_scores(forest, len(base) > 0)

    def shown(margins: Margins) -> NDArray[Any]:
        return _transformed(margins, transform)

    return Sums(
        forest=forest,
        aggregation=_aggregation(node, forest, base),
        decision=Decision(kind="argmax"),
        classes=classes,
        shown=shown,
        shown_columns=slice(None),
        is_plain=transform == "NONE" and forest.precision == "float32",
        transform=transform,
    )


def _require_scores(forest: Forest, has_base: bool) -> None:
    """Refuse leaves that leave a class without a score where that could decide.

    onnxruntime takes the largest score of the classes that a row gave a weight. Sound: where every
    class always has one this is the largest score; where no weight is negative and some class
    always has a positive one, a class without any has the score 0 here and does not win.
    """
    if has_base or all(forest.always(output) for output in range(forest.n_outputs)):
        return
    if not (forest.weight >= 0.0).all() or not forest.always(None, above=0.0):
        raise UnsupportedModel(
            "Every class must have a weight in every leaf of some tree, or no weight is negative"
            " and every leaf of some tree must have a positive one. Got leaves that leave classes"
            " without a score. Export zeros, too."
        )


def _binary(
    node: Node,
    forest: Forest,
    base: NDArray[np.float64],
    transform: str,
    classes: tuple[Any, ...],
) -> Sums:
    """Two classes: one score that is compared with 0 or 0.5.

    With weights for one class, the sum is that of the second class: positive where it is above 0.5
    if no weight is negative, else above 0. With weights for both, onnxruntime looks at the second
    sum alone, and gives 1 or 0 for a label whatever the classes are called, unless by strings.
    """
    used = np.unique(forest.weight_output).tolist()
    is_single = len(used) == 1
    if len(base) > 1 or (len(base) == 1 and used != [0]):
        raise UnsupportedModel(
            "A binary classifier may have one base value, with weights for its first class only."
            f" Got {len(base)} base values and weights for classes {used}, which onnxruntime does"
            " not add as the standard says. Export the model with its base in the leaves."
        )
    output = used[0] if is_single else 1
    if transform not in ("NONE", "LOGISTIC"):
        raise UnsupportedModel(
            f"A binary classifier must have the post_transform NONE or LOGISTIC. Got {transform}."
        )
    if not forest.always(output):
        raise UnsupportedModel(
            "The score of a binary classifier must have a weight in every leaf of some tree."
            " Got leaves without, for which onnxruntime decides by the other class."
        )
    is_positive = is_single and bool((forest.weight >= 0.0).all())
    limit = np.dtype(forest.precision).type(0.5 if is_positive else 0.0)
    cut = float(np.nextafter(limit, np.dtype(forest.precision).type(1.0)))
    if not is_single and not isinstance(classes[0], str):
        classes = (0, 1)
    alone = forest.only(output)
    # The first column is made of the sum only where the sum is that of the first class.
    columns = slice(0 if output == 0 else 1, 2)

    def shown(margins: Margins) -> NDArray[Any]:
        score = margins[:, 0]
        scores: list[NDArray[Any]]
        if transform == "LOGISTIC":
            scores = [_logistic(-score), _logistic(score)]
        elif is_positive:
            scores = [score.dtype.type(1.0) - score, score]
        else:
            scores = [-score, score]
        return np.stack([part.astype(np.float32) for part in scores], axis=1)[:, columns]

    return Sums(
        forest=alone,
        aggregation=_aggregation(node, alone, base),
        decision=Decision(kind="threshold", cut=cut),
        classes=classes,
        shown=shown,
        shown_columns=columns,
        transform=transform,
    )


def with_threshold(sums: Sums, options: LoadOptions) -> Decision:
    """The decision, or that of a threshold on the probability of the second class."""
    threshold = options.decision_threshold
    if sums.decision.kind != "threshold":
        refuse_threshold(threshold, f"{len(sums.classes)} classes or a score")
    if threshold is None:
        return sums.decision
    if sums.transform == "NONE" and sums.decision.cut < 0.25:
        raise InvalidInput(
            "A decision threshold needs probabilities. Got scores that onnxruntime does not"
            " transform. Leave the threshold out."
        )
    limit = np.float32(threshold)
    return cut_decision(
        lambda margins: sums.shown(margins[:, np.newaxis])[:, -1] >= limit, sums.forest.precision
    )


def _transformed(margins: Margins, transform: str) -> NDArray[np.float32]:
    """Scores of the margins of many outputs, in float32 as onnxruntime computes them."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scores = margins.astype(np.float32)
        if transform == "LOGISTIC":
            return _logistic(scores)
        if transform == "PROBIT":
            return _probit(scores)
        if transform == "SOFTMAX":
            return _softmax(scores, np.ones(scores.shape, dtype=bool))
        if transform == "SOFTMAX_ZERO":
            tiny = np.float32(0.0000001)
            return _softmax(scores, (scores > tiny) | (scores < -tiny))
    return scores


def _each(function: Callable[[float], float], values: NDArray[Any]) -> NDArray[np.float32]:
    """A function of the C library of each value."""
    found = [function(value) for value in values.ravel().tolist()]
    return np.array(found, dtype=np.float32).reshape(values.shape)


def _logistic(margins: NDArray[Any]) -> NDArray[np.float32]:
    values = margins.astype(np.float32)
    one = np.float32(1.0)
    upper = one / (one + _each(exp_float32, -np.abs(values)))
    return np.where(values < 0.0, one - upper, upper).astype(np.float32)


def _softmax(scores: NDArray[np.float32], counts: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Exponentials over their sum; those that do not count are scaled only."""
    largest = scores.max(axis=1, keepdims=True)
    terms = _each(exp_float32, scores - largest)
    total = np.zeros(len(scores), dtype=np.float32)
    for column, counted in zip(terms.T, counts.T, strict=True):
        total = np.where(counted, total + column, total)
    scaled = np.where(counts, terms, scores * _each(exp_float32, -largest))
    return (scaled / total[:, np.newaxis]).astype(np.float32)


def _probit(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """The approximation of the inverse of the normal distribution that onnxruntime has."""
    f = np.float32
    x = f(2) * scores - f(1)
    sign = np.where(x < 0.0, f(-1), f(1))
    logarithm = _each(_log, (f(1) - x) * (f(1) + x))
    v = f(2) / (f(np.pi) * f(0.147)) + f(0.5) * logarithm
    inner = np.sqrt(v * v - f(1) / f(0.147) * logarithm)
    return (f(np.sqrt(2.0)) * (sign * np.sqrt(inner - v))).astype(np.float32)


def _log(value: float) -> float:
    if value > 0.0:
        return log_float32(value)
    return -np.inf if value == 0.0 else np.nan


@dataclass(frozen=True)
class Score:
    """Scores in the graph: how they come from the margins, where that is plain arithmetic."""

    of_margins: Shown | None
    is_plain: bool
    """Whether they have the order of the sums, one column per class."""
    words: tuple[str, ...] = ()
    """Operators on the way that are not followed."""
    steps: tuple[str, ...] = ()
    """All operators on the way that change values."""


@dataclass(frozen=True)
class Label:
    """Labels in the graph: names of the classes, and where they are chosen, by what."""

    classes: tuple[Any, ...]
    chosen_by: Score | None = None
    """Scores whose largest is chosen; None for the label of the tree operator."""


_SHAPES = ("Reshape", "Squeeze", "Flatten")


def follow_score(
    node: Node, values: dict[str, Score | Label], constants: dict[str, NDArray[Any]]
) -> Score | Label:
    """The output of an operator after the trees."""
    operands = [values.get(name, constants.get(name)) for name in filter(None, node.inputs)]
    label = next((found for found in operands if isinstance(found, Label)), None)
    if label is not None:
        return _follow_label(node, label, constants)
    scores = [found for found in operands if isinstance(found, Score)]
    first = scores[0]
    if (node.domain, node.op) in ((ML, "ZipMap"), ("", "Identity")):
        return first
    if node.op == "ArgMax":
        if node.integer("axis", 0) not in (1, -1) or node.integer("select_last_index", 0):
            raise UnsupportedModel("ArgMax after the trees must take the first largest column.")
        return Label((), first)
    if node.op == "Cast" and node.integer("to", 0) in (FLOAT, DOUBLE):
        return first
    computed = _arithmetic(node, operands)
    words = first.words if computed is not None else (*first.words, node.op)
    steps = first.steps if node.op in _SHAPES else (*first.steps, node.op)
    return Score(computed, False, words, steps)


def _arithmetic(node: Node, operands: list[Any]) -> Shown | None:
    """What an operator makes of scores, as a function of the margins; None if it is not known."""
    parts: list[Shown] = []
    for found in operands:
        if isinstance(found, Score) and found.of_margins is not None:
            parts.append(found.of_margins)
        elif isinstance(found, np.ndarray) and found.size == 1 and found.dtype.kind in "fi":
            parts.append(partial(_constant, found.ravel()))
        else:
            return None
    if node.op in ARITHMETIC and len(parts) == 2:
        compute = ARITHMETIC[node.op]
        return lambda margins: compute(parts[0](margins), parts[1](margins))
    if node.op == "Concat" and node.integer("axis", 0) in (1, -1):
        return lambda margins: np.concatenate([part(margins) for part in parts], axis=1)
    if node.op == "ArrayFeatureExtractor" and len(parts) == 2:
        chosen = np.asarray(operands[1]).ravel().astype(np.int64)
        return lambda margins: parts[0](margins)[:, chosen]
    return None


def _constant(value: NDArray[Any], margins: Margins) -> NDArray[Any]:
    return value


def _follow_label(node: Node, label: Label, constants: dict[str, NDArray[Any]]) -> Label:
    """Labels after an operator that renames or reshapes them."""
    if node.op in ("Identity", *_SHAPES):
        return label
    if node.op == "Cast":
        if node.integer("to", INT64) == STRING or isinstance(next(iter(label.classes), 0), str):
            raise UnsupportedModel("A cast of labels must be between numbers.")
        return label
    if node.op in ("ArrayFeatureExtractor", "Gather") and node.inputs[0] in constants:
        if label.chosen_by is None or label.classes:
            raise UnsupportedModel("Labels are looked up in a way that is not known.")
        return Label(tuple(constants[node.inputs[0]].ravel().tolist()), label.chosen_by)
    if (node.domain, node.op) == (ML, "LabelEncoder"):
        dtype = STRING if isinstance(next(iter(label.classes), 0), str) else INT64
        keys, found, default, _ = encoder_table(node, dtype)
        table = dict(zip(keys, found.tolist(), strict=True))
        return Label(tuple(table.get(name, default) for name in label.classes), label.chosen_by)
    raise UnsupportedModel(f"The operator {node.op} on labels is not supported.")


def chosen(sums: Sums, label: Label) -> tuple[Decision, tuple[Any, ...]]:
    """Decision and classes of labels that are given by the graph."""
    if label.chosen_by is None:
        return sums.decision, label.classes
    score = label.chosen_by
    n = max(sums.forest.n_outputs, 2)
    classes = label.classes or tuple(range(n))
    if len(classes) < n:
        raise BrokenModelFile(f"The labels must be {n}, one per score. Got {len(classes)}.")
    classes = classes[:n]
    if sums.forest.n_outputs > 1 and score.is_plain:
        return Decision(kind="argmax"), classes
    compute = score.of_margins
    if sums.forest.n_outputs > 1 or compute is None:
        raise UnsupportedModel(
            "The label must be that of the largest sum of the trees. Got the largest of what"
            f" {', '.join(score.words) or sums.transform} makes of them, which rounds, so that ties"
            " are decided by it. Export the model with its sums."
        )

    def is_one(margins: NDArray[Any]) -> NDArray[np.bool_]:
        found = np.asarray(compute(margins[:, np.newaxis]))
        if found.ndim != 2 or found.shape[1] != 2:
            raise UnsupportedModel("The label must be chosen among two scores.")
        return np.argmax(found, axis=1) == 1

    return cut_decision(is_one, sums.forest.precision), classes
