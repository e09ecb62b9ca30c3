"""CatBoost: live models, .cbm and .json files.

Files are read without CatBoost; live models are read through the JSON that CatBoost writes of them,
which carries every number in full.
"""

import importlib.util
import math
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.base import (
    Loaded,
    LoadOptions,
    ModelFile,
    Reference,
    has_base_class,
    read_model_file,
    version_notes,
)
from treeproof.loaders.catboost.binary import MAGIC, parse_binary
from treeproof.loaders.catboost.json import checked_json, parse_json
from treeproof.loaders.catboost.model import CatBoostModel
from treeproof.loaders.catboost.trees import CatBoostTrees, category_key
from treeproof.loaders.decisions import binary_decision, refuse_threshold
from treeproof.model.category_hashes import category_hash, category_with_hash
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, FloatArray, Provenance
from treeproof.model.links import sigmoid_float64

OLDEST_VERSION, NEWEST_VERSION = (1, 2), (1, 2)
"""The range of CatBoost versions that this loader is tested with."""

_JSON_START = re.compile(
    rb'\s*\{\s*"(?:ctr_data|features_info|model_info|oblivious_trees|trees|scale_and_bias)"\s*:'
)


class CatBoostLoader:
    """Loads `catboost.CatBoost` and its subclasses, .cbm files, and .json files."""

    name: ClassVar[str] = "catboost"

    def accepts_object(self, source: Any) -> bool:
        """Whether the object is a model of CatBoost."""
        return has_base_class(source, "catboost", "CatBoost")

    def accepts_file(self, path: Path, head: bytes) -> bool:
        """Whether the file begins as CatBoost's binary or JSON files do."""
        return head.startswith(MAGIC) or _JSON_START.match(head) is not None

    def load_object(self, source: Any, options: LoadOptions) -> Loaded:
        """Translate a live model."""
        return _load_live(source, options)

    def load_file(self, path: Path, options: LoadOptions) -> Loaded:
        """Translate a model file; CatBoost, where importable, serves the self-test only."""
        file = read_model_file(path)
        if file.content.startswith(MAGIC):
            return _load_binary(path, file, options)
        return _load_json(path, file, options)


def _load_live(source: Any, options: LoadOptions) -> Loaded:
    import catboost

    if not source.is_fitted():
        raise UnsupportedModel(f"The {type(source).__name__} is not fitted. Call .fit() first.")
    model = parse_json(_exported(source), as_catboost_reads=False)
    ensemble = _ensemble(
        model,
        options,
        leaf_numbers=_leaf_numbers(source, len(model.trees or ())),
        provenance=_provenance(catboost.__version__, type(source).__name__),
    )
    return Loaded(ensemble, _reference(ensemble, options, lambda: source))


def _load_binary(path: Path, file: ModelFile, options: LoadOptions) -> Loaded:
    model, leaf_numbers = parse_binary(file.content)
    ensemble = _ensemble(
        model,
        options,
        leaf_numbers=leaf_numbers,
        provenance=_provenance(_version(model), path.name, file.sha256),
    )
    return _with_reference(ensemble, options, lambda: _opened(file.content))


def _load_json(path: Path, file: ModelFile, options: LoadOptions) -> Loaded:
    model = parse_json(file.content, as_catboost_reads=True)
    ensemble = _ensemble(
        model,
        options,
        leaf_numbers=None,
        provenance=_provenance(
            _version(model),
            path.name,
            file.sha256,
            "Leaf values are those that CatBoost reads from its JSON; some differ in the last bit"
            " from the model that was saved. The .cbm file carries them exactly.",
        ),
    )
    return _with_reference(ensemble, options, lambda: _reopened(checked_json(file.content)))


def _with_reference(
    ensemble: Ensemble, options: LoadOptions, open_source: Callable[[], Any]
) -> Loaded:
    if importlib.util.find_spec("catboost") is None:
        return Loaded(ensemble, None)
    return Loaded(ensemble, _reference(ensemble, options, open_source))


def _provenance(version: str, source: str, file_sha256: str = "", *notes: str) -> Provenance:
    tested = version_notes("CatBoost", version, oldest=OLDEST_VERSION, newest=NEWEST_VERSION)
    return Provenance(
        library="catboost",
        library_version=version,
        source=source,
        file_sha256=file_sha256,
        notes=(*tested, *notes),
    )


def _version(model: CatBoostModel) -> str:
    """CatBoost's version in the description that it stores with a model."""
    text = str(model.model_info.get("catboost_version_info", ""))[:10_000]
    match = re.search(r"(?:tags/v|release )(\d+(?:\.\d+)+)", text)
    return match[1] if match else "unknown"


def _opened(content: bytes) -> Any:
    """Open a .cbm file that was checked before."""
    import catboost

    try:
        return catboost.CatBoost().load_model(blob=content)
    except Exception as error:  # CatBoost's own parser of its parameters raises anything
        raise BrokenModelFile(
            f"CatBoost itself refuses the model file: {str(error)[:200]}."
        ) from error


def _reopened(content: bytes) -> Any:
    """Open JSON with CatBoost, which reads it from files only."""
    import catboost

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.json"
        file.write_bytes(content)
        try:
            return catboost.CatBoost().load_model(str(file), format="json")
        except Exception as error:  # the same
            raise BrokenModelFile(
                f"CatBoost itself refuses the model file: {str(error)[:200]}."
            ) from error


def _exported(source: Any) -> bytes:
    """Return the model as CatBoost's JSON."""
    import catboost

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.json"
        try:
            source.save_model(str(file), format="json")
        except catboost.CatBoostError as error:
            reason = str(error).partition(": ")[2][:200] or str(error)[:200]
            raise UnsupportedModel(
                f"CatBoost cannot describe its trees: {reason}. Train on numeric features and"
                " one-hot categories only."
            ) from error
        return file.read_bytes()


def _leaf_numbers(source: Any, n_trees: int) -> list[list[int]] | None:
    """CatBoost's own numbers of the leaves of trees of any shape, each tree from left to right."""
    inner = source._object
    if not n_trees or not hasattr(inner, "_get_tree_node_to_leaf"):
        return None
    numbers = []
    for tree in range(n_trees):
        steps = inner._get_tree_step_nodes(tree)
        leaf_of = inner._get_tree_node_to_leaf(tree)
        order: list[int] = []
        # A step of 0 is a leaf that belongs to the node itself; both 0 mean that it is one leaf.
        stack = [(0, False)]
        while stack:
            node, is_leaf = stack.pop()
            left, right = steps[node]
            if is_leaf or (left == 0 and right == 0):
                order.append(int(leaf_of[node]))
            else:
                stack.append((node + right, right == 0))
                stack.append((node + left, left == 0))
        numbers.append(order)
    return numbers


def _ensemble(
    model: CatBoostModel,
    options: LoadOptions,
    *,
    leaf_numbers: list[list[int]] | None,
    provenance: Provenance,
) -> Ensemble:
    n_outputs = _n_outputs(model)
    trees = CatBoostTrees(model, n_outputs)
    arrays = trees.arrays(leaf_numbers)
    loss = _loss(model)
    decision, classes = _decision(model, n_outputs, loss, options)
    names = _feature_names(model)
    notes = list(provenance.notes)
    if decision.kind == "score" and loss.startswith(("Poisson", "Tweedie")):
        notes.append("Margins are raw scores x; CatBoostRegressor's predict gives exp(x).")
    for feature, entries in trees.categories.items():
        if entries and entries[0] != "0":
            notes.append(
                f"Feature {feature}{f' ({names[feature]!r})' if names else ''} is categorical: data"
                " frames hold its categories, plain arrays their numbers in the model's list."
            )
    return Ensemble(
        trees=arrays,
        n_features=len(model.float_features) + len(model.categorical_features),
        n_outputs=n_outputs,
        input_precision="float32",
        aggregation=_aggregation(model, n_outputs),
        decision=decision,
        classes=classes,
        feature_names=names,
        categories={feature: tuple(entries) for feature, entries in trees.categories.items()},
        provenance=replace(provenance, objective=loss, notes=tuple(notes)),
    )


def _n_outputs(model: CatBoostModel) -> int:
    """Width of the leaves, by the first tree."""
    if (model.oblivious_trees is None) == (model.trees is None):
        raise BrokenModelFile("A CatBoost model must have 'oblivious_trees' or 'trees', not both.")
    if model.oblivious_trees:
        first = model.oblivious_trees[0]
        return max(len(first.leaf_values) >> len(first.splits or ()), 1)
    if model.trees:
        node = model.trees[0]
        while node.left is not None:
            node = node.left
        return len(node.value) if isinstance(node.value, tuple) else 1
    raise UnsupportedModel("A model must have at least one tree. Got none. Train it first.")


def _aggregation(model: CatBoostModel, n_outputs: int) -> Aggregation:
    scale, bias = model.scale_and_bias[0], tuple(model.scale_and_bias[1] or ())
    if not any(bias):
        bias = (0.0,) * n_outputs
    if len(bias) != n_outputs or not all(map(math.isfinite, (scale, *bias))):
        raise BrokenModelFile(
            f"'scale_and_bias' must hold a finite scale and {n_outputs} finite biases."
            f" Got {len(bias)} biases."
        )
    if scale <= 0.0:
        raise UnsupportedModel(
            f"The scale of a model must be positive. Got {scale}. Change it by set_scale_and_bias."
        )
    start = (0.0,) * n_outputs
    if scale == 1.0 and not any(bias):
        return Aggregation(precision="float64", start=start)
    return Aggregation(precision="float64", start=start, finish="affine", scale=scale, bias=bias)


def _loss(model: CatBoostModel) -> str:
    parameters = model.model_info.get("params")
    loss = parameters.get("loss_function") if isinstance(parameters, dict) else None
    name = loss.get("type") if isinstance(loss, dict) else loss
    return str(name)[:100] if name else "unknown"


def _decision(
    model: CatBoostModel, n_outputs: int, loss: str, options: LoadOptions
) -> tuple[Decision, tuple[Any, ...]]:
    """How CatBoostClassifier labels; models without classes give scores.

    One output: class 1 iff the margin is above the logit of the probability threshold. Several:
    the first largest margin, also where probabilities are sigmoids of their own.
    """
    parameters = model.model_info.get("class_params")
    if not isinstance(parameters, dict) or (n_outputs > 1 and not loss.startswith("MultiClass")):
        refuse_threshold(options, f"loss '{loss}'")
        return Decision(kind="score"), ()
    names = parameters.get("class_names") or parameters.get("class_to_label")
    expected = max(n_outputs, 2)
    if not isinstance(names, list) or not all(isinstance(n, str | int | float) for n in names):
        raise BrokenModelFile("'class_params' must list the names of the classes.")
    if len(names) != expected or parameters.get("class_to_label") != list(range(expected)):
        raise UnsupportedModel(
            f"A classifier with {n_outputs} outputs must have {expected} classes that all occur in"
            f" the training data. Got {len(names)}: {str(names)[:60]}. Train with those only."
        )
    if n_outputs > 1:
        refuse_threshold(options, f"a model of {n_outputs} classes")
        return Decision(kind="argmax"), tuple(names)
    logit = _logit(model.model_info.get("binclass_probability_threshold", "0.5"))
    decision = binary_decision(
        options, probability=sigmoid_float64, is_one=lambda margin: margin > logit
    )
    return decision, tuple(names)


def _logit(text: Any) -> float:
    """Margin that CatBoost compares with, of a probability threshold as it stores it."""
    try:
        threshold = float(text)
    except (TypeError, ValueError, OverflowError):
        threshold = math.nan
    if not 0.0 < threshold < 1.0:
        raise UnsupportedModel(
            "The probability threshold of a model must lie between 0 and 1, or one class is never"
            f" given. Got {str(text)[:40]}. Change it by set_probability_threshold."
        )
    return -math.log(1.0 / threshold - 1.0)


def _feature_names(model: CatBoostModel) -> tuple[str, ...]:
    names: dict[int, str] = {}
    for number in model.float_features:
        names[number.flat_feature_index] = number.feature_id or number.feature_name
    for category in model.categorical_features:
        names[category.flat_feature_index] = category.feature_id or category.feature_name
    if not any(names.values()):
        return ()
    return tuple(names[place] or str(place) for place in range(len(names)))


def _reference(
    ensemble: Ensemble, options: LoadOptions, open_source: Callable[[], Any]
) -> Reference:
    """CatBoost's own margins and labels; a JSON model is opened when it is first asked."""
    source = cache(open_source)

    def predict(rows: FloatArray, prediction_type: str) -> NDArray[Any]:
        import catboost

        model, table = source(), _catboost_rows(ensemble, rows)
        try:
            # Rankers and regressors hide the kind of prediction; the base class offers all kinds.
            result = catboost.CatBoost.predict(model, table, prediction_type=prediction_type)
        except Exception as error:  # CatBoost reads damaged names of classes only now
            raise BrokenModelFile(f"CatBoost cannot use the model: {str(error)[:200]}.") from error
        return np.asarray(result).reshape(len(rows), -1)

    def margins(rows: FloatArray) -> NDArray[np.floating]:
        return predict(rows, "RawFormulaVal")

    def labels(rows: FloatArray) -> NDArray[np.int64]:
        if options.decision_threshold is not None:
            probability = predict(rows, "Probability")[:, 1]
            return (probability >= options.decision_threshold).astype(np.int64)
        number = {label: index for index, label in enumerate(ensemble.classes)}
        found = predict(rows, "Class")[:, 0].tolist()
        return np.array([number[label] for label in found], dtype=np.int64)

    return Reference(margins=margins, labels=None if ensemble.decision.kind == "score" else labels)


def _catboost_rows(ensemble: Ensemble, rows: FloatArray) -> NDArray[Any]:
    """Rows as CatBoost takes them: codes of categories become categories again."""
    if not ensemble.categories:
        return rows.copy()  # CatBoost makes the arrays that it is given read-only.
    table: NDArray[Any] = rows.astype(object)
    for feature, entries in ensemble.categories.items():
        hashes = {category_key(entry) for entry in entries}
        other = next(
            text
            for text in (f"no category {number}" for number in range(len(hashes) + 1))
            if category_hash(text) not in hashes
        )
        categories = [
            category_with_hash(entry) if isinstance(entry, int) else entry for entry in entries
        ]
        for row, code in enumerate(rows[:, feature]):
            known = 0 <= code < len(categories) and float(code).is_integer()
            table[row, feature] = categories[int(code)] if known else other
    return table
