"""LightGBM: boosters, estimators and text model files.

LightGBM sends a row left iff ``x <= t`` in double, and takes every ``|x| <= 1e-35`` for zero before
it looks at a tree. Both become one canonical threshold. Text files are read without LightGBM; live
models are read through their own text, which carries every number in full.
"""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.base import (
    Loaded,
    Loader,
    LoadOptions,
    Reference,
    class_numbers,
    read_model_file,
    version_notes,
)
from treeproof.loaders.lightgbm.text import TextModel, TextTree, parse_model
from treeproof.loaders.rules import canonical_splits, cut_decision, elementwise, refuse_threshold
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    ZERO_BAND,
    ZERO_IS_MISSING,
    Aggregation,
    Decision,
    Ensemble,
    FloatArray,
    Provenance,
    ones_in,
)
from treeproof.model.links import sigmoid_float64

OLDEST_VERSION, NEWEST_VERSION = (4, 0), (4, 7)
"""The range of LightGBM versions that this loader is tested with."""

_MISSING_NONE, _MISSING_ZERO = 0, 1  # the third kind, 2, is NaN
_SIGMOID = ("binary", "cross_entropy", "xentropy")
_SOFTMAX, _ONE_VERSUS_ALL = "multiclass", "multiclassova"
_OUTPUT_RULE = {
    "poisson": "exp(x)",
    "gamma": "exp(x)",
    "tweedie": "exp(x)",
    "cross_entropy_lambda": "log(1 + exp(x))",
    "xentlambda": "log(1 + exp(x))",
}
_REGRESSION = ("regression", "regression_l1", "huber", "fair", "quantile", "mape")
_RANKING = ("lambdarank", "rank_xendcg")


class LightGBMLoader(Loader):
    """Loads `lightgbm.Booster`, the LGBM estimators, and text model files."""

    def accepts_object(self, source: Any) -> bool:
        """Whether the object's class, or one it derives from, is LightGBM's."""
        return any(c.__module__.partition(".")[0] == "lightgbm" for c in type(source).__mro__)

    def accepts_file(self, path: Path, head: bytes) -> bool:
        """Whether the file begins as LightGBM's text files do."""
        return re.match(rb"tree\r?\nversion=", head) is not None

    def load_object(self, source: Any, options: LoadOptions) -> Loaded:
        """Translate a booster or estimator as its own ``predict`` uses it."""
        import lightgbm

        estimator = source if isinstance(source, lightgbm.LGBMModel) else None
        booster = _booster_of(source)
        text = booster.model_to_string()
        used = text.count("\nTree=")
        version = lightgbm.__version__
        notes = [*version_notes("LightGBM", version, OLDEST_VERSION, NEWEST_VERSION)]
        if used < booster.num_trees():
            notes.append(
                f"Only the {used} trees up to the best iteration are used, of"
                f" {booster.num_trees()}, as LightGBM's predict does."
            )
        model = parse_model(text)
        classifier = isinstance(source, lightgbm.LGBMClassifier)
        classes = tuple(source.classes_.tolist()) if classifier else None
        if classifier and callable(source.objective_):
            classes = None
            notes.append(
                "The objective is a Python function, so LightGBM's predict gives scores, no labels."
            )
        provenance = Provenance(
            library="lightgbm",
            library_version=version,
            source=type(source).__name__,
            notes=tuple(notes),
        )
        ensemble = _ensemble(model, options, classes, provenance)
        return Loaded(ensemble, _reference(ensemble, options, lambda: booster, estimator))

    def load_file(self, path: Path, options: LoadOptions) -> Loaded:
        """Translate a text model file; LightGBM, where importable, serves the self-test only."""
        file = read_model_file(path)
        try:
            text = file.content.decode()
        except UnicodeDecodeError as error:
            raise BrokenModelFile(f"'{path.name}' must be UTF-8 text: {error}.") from error
        model = parse_model(text)
        old = (
            f"The file has LightGBM 3's format {model.version}; it is read by the rules of"
            " LightGBM 4, which sends a missing category right at every split."
        )
        provenance = Provenance(
            library="lightgbm",
            library_version=f"format {model.version}",
            source=path.name,
            file_sha256=file.sha256,
            notes=() if model.version == "v4" else (old,),
        )
        ensemble = _ensemble(model, options, None, provenance)
        open_booster = cache(lambda: _read_booster(model.checked_text))
        return Loaded(ensemble, _reference(ensemble, options, open_booster, None))


def _booster_of(source: Any) -> Any:
    """Return the booster of an estimator, or the booster itself; refuses what cannot predict."""
    import lightgbm

    if isinstance(source, lightgbm.Booster):
        return source
    if not isinstance(source, lightgbm.LGBMModel):
        raise UnsupportedModel(
            "A LightGBM model must be a Booster or an LGBM estimator."
            f" Got {type(source).__name__}. Pass one of its boosters."
        )
    if hasattr(source, "to_local"):
        raise UnsupportedModel(
            f"A {type(source).__name__} predicts on Dask collections. Call .to_local() first."
        )
    if not source.__sklearn_is_fitted__():
        raise UnsupportedModel(f"The {type(source).__name__} is not fitted. Call .fit() first.")
    if source.get_params().get("pred_early_stop"):
        raise UnsupportedModel(
            "pred_early_stop=True skips trees depending on the row, so the model is no sum of"
            " trees. Set it to False."
        )
    return source.booster_


def _read_booster(text: str) -> Any:
    import lightgbm

    try:
        return lightgbm.Booster(model_str=text)
    except lightgbm.basic.LightGBMError as error:
        raise BrokenModelFile(f"LightGBM itself refuses the model file: {error}.") from error


def _reference(
    ensemble: Ensemble, options: LoadOptions, booster: Callable[[], Any], estimator: Any
) -> Reference:
    """LightGBM's own margins and labels."""
    decision = ensemble.decision

    def predict(rows: FloatArray, **kind: bool) -> NDArray[Any]:
        predictor = booster() if estimator is None else estimator
        with warnings.catch_warnings():
            # Rows of the self-test are plain arrays, whatever the model was fitted on.
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            return np.asarray(predictor.predict(rows, **kind))

    def margins(rows: FloatArray) -> NDArray[np.floating]:
        return predict(rows, raw_score=True).reshape(len(rows), -1)

    def labels(rows: FloatArray) -> NDArray[np.int64]:
        if estimator is not None and options.decision_threshold is None:
            return class_numbers(ensemble.classes, predict(rows))
        probability = np.asarray(booster().predict(rows))
        if decision.kind == "argmax":
            return np.argmax(probability, axis=1)
        if options.decision_threshold is not None:
            return (probability >= options.decision_threshold).astype(np.int64)
        return np.argmax(np.stack([1.0 - probability, probability], axis=1), axis=1)

    return Reference(margins=margins, labels=None if decision.kind == "score" else labels)


@dataclass(frozen=True, slots=True)
class _Objective:
    """The objective line of a model: a name, and the factor inside its sigmoid."""

    name: str
    sigmoid: float
    squared: bool


def _objective(model: TextModel) -> _Objective:
    name, *words = model.objective.split(" ")
    if words and not name:
        raise BrokenModelFile(f"The objective must have a name. Got {model.objective[:60]!r}.")
    values = dict(word.partition(":")[::2] for word in words)
    if name in (_SOFTMAX, _ONE_VERSUS_ALL) and values.get("num_class") != str(model.n_outputs):
        raise BrokenModelFile(
            f"Objective '{name}' must have one class per output ({model.n_outputs})."
            f" Got {model.objective[:60]!r}."
        )
    sigmoid = 1.0
    if name in ("binary", _ONE_VERSUS_ALL):
        sigmoid = _sigmoid_parameter(values.get("sigmoid", ""))
    return _Objective(name, sigmoid, "sqrt" in words)


def _sigmoid_parameter(text: str) -> float:
    """Read the factor as LightGBM reads it: whole part plus digits divided by a power of ten.

    That is not always the nearest double, and it decides the last bit of probabilities.
    """
    match = re.fullmatch(r"([0-9]{1,15})(?:\.([0-9]{1,15}))?(?:e([-+][0-9]{1,2}))?", text)
    if match is None:
        raise BrokenModelFile(f"The sigmoid of the objective must be a number. Got {text[:40]!r}.")
    whole, digits, exponent = match.groups()
    value = float(whole) + (float(digits) / 10.0 ** len(digits) if digits else 0.0)
    power = int(exponent or 0)
    value = value / 10.0**-power if power < 0 else value * 10.0**power
    if not value > 0.0:
        raise BrokenModelFile(f"The sigmoid of the objective must be positive. Got {text}.")
    return value


def _ensemble(
    model: TextModel,
    options: LoadOptions,
    classes: tuple[Any, ...] | None,
    provenance: Provenance,
) -> Ensemble:
    """Translate a parsed model; `classes` are those of an LGBMClassifier."""
    objective = _objective(model)
    builder = TreeBuilder()
    for tree in model.trees:
        _add_tree(builder, tree, tree.number % model.n_outputs)
    divisor = len(model.trees) / model.n_outputs if model.averaged else 1.0
    decision = _decision(model, objective, divisor, options, classes)
    if decision.kind == "score":
        classes = ()
    elif classes is None:
        classes = tuple(range(max(model.n_outputs, 2)))
    notes = (*provenance.notes, *_notes(objective, decision, divisor))
    words = [model.objective or "custom", *([f"averaged:{divisor:g}"] if divisor != 1.0 else [])]
    return Ensemble(
        trees=builder.finish(),
        n_features=len(model.feature_names),
        n_outputs=model.n_outputs,
        input_precision="float64",
        aggregation=Aggregation(precision="float64", start=(0.0,) * model.n_outputs),
        decision=decision,
        classes=classes,
        feature_names=model.feature_names,
        categories=_raw_categories(model),
        # A constant column has no description, but the parameters name it.
        categorical=tuple(sorted(model.categorical_parameter.union(_coded_features(model)))),
        provenance=replace(provenance, objective=" ".join(words), notes=notes),
    )


def _decision(
    model: TextModel,
    objective: _Objective,
    divisor: float,
    options: LoadOptions,
    classes: tuple[Any, ...] | None,
) -> Decision:
    """How LGBMClassifier labels, also for boosters and files, which give only probabilities.

    It takes the first largest of [1 - p, p], so p = 0.5 means class 0, and small positive margins
    do have p = 0.5.
    """
    name, threshold = objective.name, options.decision_threshold
    if name in (_SOFTMAX, _ONE_VERSUS_ALL):
        refuse_threshold(threshold, f"a model of {model.n_outputs} classes")
        link: Literal["softmax_float64", "sigmoid_float64"]
        link = "softmax_float64" if name == _SOFTMAX else "sigmoid_float64"
        scale = objective.sigmoid
        return Decision(kind="argmax", link=link, link_divisor=divisor, link_scale=scale)
    if model.n_outputs != 1 and name:
        raise BrokenModelFile(f"Objective '{name}' has one output. Got {model.n_outputs}.")
    if name in _SIGMOID:
        probability = elementwise(lambda x: sigmoid_float64(x / divisor, objective.sigmoid))
        if threshold is not None:
            return cut_decision(lambda margins: probability(margins) >= threshold)
        return cut_decision(lambda margins: probability(margins) > 1.0 - probability(margins))
    if name and name not in (*_REGRESSION, *_RANKING, *_OUTPUT_RULE):
        raise UnsupportedModel(f"LightGBM's objective '{name[:40]}' is not known to treeproof.")
    if classes is not None:
        raise UnsupportedModel(
            f"An LGBMClassifier with objective '{name}' gives no probabilities."
            " Train it with 'binary' or 'multiclass', or pass its booster_ for its scores."
        )
    refuse_threshold(threshold, f"objective '{name or 'custom'}'")
    return Decision(kind="score")


def _notes(objective: _Objective, decision: Decision, divisor: float) -> list[str]:
    notes = []
    if divisor != 1.0:
        notes.append(
            f"Margins of this averaged forest are sums over {divisor:.0f} iterations, as LightGBM's"
            " raw_score gives them; its predictions divide them first."
        )
    rule = "sign(x) * x * x" if objective.squared else _OUTPUT_RULE.get(objective.name)
    if rule and decision.kind == "score":
        notes.append(f"Margins are raw scores x; LightGBM's predict gives {rule}.")
    return notes


def _add_tree(builder: TreeBuilder, tree: TextTree, output: int) -> None:
    """Add a tree; inner nodes keep their numbers, leaf l becomes node ``n_inner + l``."""
    n_inner, n_leaves = len(tree.feature), len(tree.leaf_value)
    categorical = (tree.decision_type & 1) == 1
    left, right = (np.where(c >= 0, c, n_inner - 1 - c) for c in (tree.left, tree.right))
    threshold, flags, swap = _splits(tree, ~categorical)
    sets = np.full(n_inner + n_leaves, -1)
    for node in np.flatnonzero(categorical):
        words = tree.category_words[int(tree.threshold[node])]
        sets[node] = builder.add_category_set(ones_in(words))
    no_child, no_number = np.full(n_leaves, -1), np.zeros(n_leaves)
    builder.add_tree(
        feature=np.concatenate([tree.feature, no_child]),
        threshold=np.concatenate([threshold, no_number]),
        left=np.concatenate([left, no_child]),
        right=np.concatenate([right, no_child]),
        flags=np.concatenate([flags, np.zeros(n_leaves, dtype=np.int64)]),
        value=np.concatenate([np.zeros(n_inner), tree.leaf_value]),
        output=output,
        source=np.concatenate([np.zeros(n_inner, dtype=np.int64), np.arange(n_leaves)]),
        category_set=sets,
        swap=np.concatenate([swap, np.zeros(n_leaves, dtype=bool)]),
    )


def _splits(
    tree: TextTree, numeric: NDArray[np.bool_]
) -> tuple[FloatArray, NDArray[np.int64], NDArray[np.bool_]]:
    """Canonical thresholds, flags, and the nodes that change sides for them."""
    given = np.where(numeric, tree.threshold, 0.0)
    largest = np.flatnonzero(given == np.finfo(np.float64).max)
    if largest.size:
        raise UnsupportedModel(
            f"Tree {tree.number}, node {largest[0]} splits at the largest double, which leaves no"
            " number for its right side. Scale the feature."
        )
    threshold, swap = canonical_splits(given, "float64")
    # Rows are cleaned of |x| <= ZERO_BAND first, so thresholds inside the band move to its edge.
    edge = np.where(given >= 0.0, np.nextafter(ZERO_BAND, np.inf), -ZERO_BAND)
    threshold = np.where(np.abs(given) <= ZERO_BAND, edge, threshold)
    missing_type = tree.decision_type >> 2
    missing_left = np.where(
        missing_type == _MISSING_NONE, given >= 0.0, (tree.decision_type & 2) > 0
    )
    flags = np.where(missing_left, MISSING_LEFT, 0)
    flags |= np.where(missing_type == _MISSING_ZERO, ZERO_IS_MISSING, 0)
    return threshold, np.where(numeric, flags, CATEGORICAL), swap


def _raw_categories(model: TextModel) -> dict[int, tuple[Any, ...]]:
    """Raw categories of pandas columns, by feature.

    The file lists the categories of each categorical column, in order, but not which columns those
    were. Unordered ones are categorical features (their description lists codes, not a range),
    unless they are constant; ordered ones are numeric features over codes.
    """
    columns = model.pandas_categories
    if not columns:
        return {}
    coded = _coded_features(model)
    if len(columns) == len(coded):
        return dict(zip(coded, columns, strict=True))
    others = [f for f, info in enumerate(model.feature_infos) if _may_be_codes(info)]
    wanted = len(columns) - len(coded)
    if wanted > 0 and len(others) == wanted:
        return dict(zip(sorted([*coded, *others]), columns, strict=True))
    raise UnsupportedModel(
        f"The model was trained on a data frame with {len(columns)} categorical columns, but the"
        " text does not tell which features they are, since some are constant, ordered, or not"
        " used as categories. Replace them by integer codes before training."
    )


def _coded_features(model: TextModel) -> list[int]:
    """Features whose description lists codes: those that LightGBM was told to be categorical."""
    return [f for f, info in enumerate(model.feature_infos) if re.match(r"-?\d+(:|$)", info)]


def _may_be_codes(info: str) -> bool:
    """Whether a feature that is not categorical may hold codes of an ordered or constant column."""
    match = re.fullmatch(r"\[([^:]*):([^:]*)\]", info)
    return info == "none" or (match is not None and all(map(str.isdigit, match.groups())))
