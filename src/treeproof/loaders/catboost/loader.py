"""CatBoost: live models, .cbm and .json files.

Files are read without CatBoost; live models are read through the .cbm file that CatBoost writes of
them, which carries every number in full.
"""

import math
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.base import (
    Loaded,
    Loader,
    LoadOptions,
    Reference,
    class_numbers,
    has_base_class,
    read_model_file,
    version_notes,
)
from treeproof.loaders.catboost.binary import MAGIC, parse_binary
from treeproof.loaders.catboost.json import checked_json, loss_and_classes, parse_json
from treeproof.loaders.catboost.model import (
    CatBoostModel,
    category_key,
    raw_categories,
    tree_arrays,
)
from treeproof.loaders.rules import cut_decision, elementwise, refuse_threshold
from treeproof.model.category_hashes import category_hash, category_with_hash
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, FloatArray, Provenance
from treeproof.model.links import sigmoid_float64

OLDEST_VERSION, NEWEST_VERSION = (1, 2), (1, 2)
"""The range of CatBoost versions that this loader is tested with."""

_JSON_START = re.compile(
    rb'\s*\{\s*"(?:ctr_data|features_info|model_info|oblivious_trees|trees|scale_and_bias)"\s*:'
)

_JSON_NOTE = (
    "Leaf values are those that CatBoost reads from its JSON; some differ in the last bit from the"
    " model that was saved. The .cbm file carries them exactly."
)


_CLASSIFYING = ("Logloss", "CrossEntropy", "MultiClass", "MultiClassOneVsAll")


class CatBoostLoader(Loader):
    """Loads `catboost.CatBoost` and its subclasses, .cbm files, and .json files."""

    def accepts_object(self, source: Any) -> bool:
        """Whether the object is a model of CatBoost."""
        return has_base_class(source, "catboost", "CatBoost")

    def accepts_file(self, path: Path, head: bytes) -> bool:
        """Whether the file begins as CatBoost's binary or JSON files do."""
        return head.startswith(MAGIC) or _JSON_START.match(head) is not None

    def load_object(self, source: Any, options: LoadOptions) -> Loaded:
        """Translate a live model."""
        import catboost

        if not source.is_fitted():
            raise UnsupportedModel(f"The {type(source).__name__} is not fitted. Call .fit() first.")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.cbm"
            source.save_model(str(file), format="cbm")
            model = parse_binary(file.read_bytes())
        provenance = _provenance(catboost.__version__, type(source).__name__)
        ensemble = _ensemble(model, options, provenance)
        return Loaded(ensemble, _reference(ensemble, options, lambda: source))

    def load_file(self, path: Path, options: LoadOptions) -> Loaded:
        """Translate a model file; CatBoost, where importable, serves the self-test only."""
        file = read_model_file(path)
        content = file.content
        is_binary = content.startswith(MAGIC)
        model = parse_binary(content) if is_binary else parse_json(content)
        notes = () if is_binary else (_JSON_NOTE,)
        provenance = _provenance(_version(model), path.name, file.sha256, *notes)
        ensemble = _ensemble(model, options, provenance)
        opened = cache(lambda: _opened(content if is_binary else checked_json(content), is_binary))
        return Loaded(ensemble, _reference(ensemble, options, opened))


def _provenance(version: str, source: str, file_sha256: str = "", *notes: str) -> Provenance:
    tested = version_notes("CatBoost", version, OLDEST_VERSION, NEWEST_VERSION)
    return Provenance(
        library="catboost",
        library_version=version,
        source=source,
        file_sha256=file_sha256,
        notes=(*tested, *notes),
    )


def _version(model: CatBoostModel) -> str:
    """CatBoost's version in the description that it stores with a model."""
    text = str(model.info.get("catboost_version_info", ""))[:10_000]
    match = re.search(r"(?:tags/v|release )(\d+(?:\.\d+)+)", text)
    return match[1] if match else "unknown"


def _opened(content: bytes, is_binary: bool) -> Any:
    """Open the content of a file that was checked before; CatBoost reads JSON from files only."""
    import catboost

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model"
        file.write_bytes(content)
        try:
            return catboost.CatBoost().load_model(str(file), "cbm" if is_binary else "json")
        except Exception as error:  # CatBoost's own parser of its parameters raises anything
            raise BrokenModelFile(
                f"CatBoost itself refuses the model file: {str(error)[:200]}."
            ) from error


def _ensemble(model: CatBoostModel, options: LoadOptions, provenance: Provenance) -> Ensemble:
    categories = raw_categories(model)
    loss = _loss(model)
    decision, classes = _decision(model, loss, options)
    names = _feature_names(model)
    notes = list(provenance.notes)
    if decision.kind == "score" and loss.startswith(("Poisson", "Tweedie")):
        notes.append("Margins are raw scores x; CatBoostRegressor's predict gives exp(x).")
    for feature, entries in categories.items():
        if entries and entries[0] != "0":
            notes.append(
                f"Feature {feature}{f' ({names[feature]!r})' if names else ''} is categorical: data"
                " frames hold its categories, plain arrays their numbers in the model's list."
            )
    return Ensemble(
        trees=tree_arrays(model, categories),
        n_features=len(model.features),
        n_outputs=model.n_outputs,
        input_precision="float32",
        aggregation=_aggregation(model),
        decision=decision,
        classes=classes,
        feature_names=names,
        categories=dict(categories),
        provenance=replace(provenance, objective=loss, notes=tuple(notes)),
    )


def _aggregation(model: CatBoostModel) -> Aggregation:
    n_outputs, scale = model.n_outputs, model.scale
    bias = model.bias if any(model.bias) else (0.0,) * n_outputs
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
    return loss_and_classes(model.info.get("params"))[0] or "unknown"


def _decision(
    model: CatBoostModel, loss: str, options: LoadOptions
) -> tuple[Decision, tuple[Any, ...]]:
    """How CatBoostClassifier labels; models without classes give scores.

    One output: class 1 iff the margin is above the logit of the probability threshold. Several:
    the first largest margin, also where probabilities are sigmoids of their own. Files that do not
    name their classes are classifiers by their loss; CatBoost takes the names from the parameters
    of training, or numbers the classes.
    """
    parameters, n_outputs = model.info.get("class_params"), model.n_outputs
    threshold = options.decision_threshold
    if parameters is None and loss in _CLASSIFYING:
        known = loss_and_classes(model.info.get("params"))[1]
        parameters = {"class_names": known, "class_to_label": list(range(max(n_outputs, 2)))}
    if not isinstance(parameters, dict) or (n_outputs > 1 and not loss.startswith("MultiClass")):
        refuse_threshold(threshold, f"loss '{loss}'")
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
        refuse_threshold(threshold, f"a model of {n_outputs} classes")
        return Decision(kind="argmax"), tuple(names)
    if threshold is not None:
        probability = elementwise(sigmoid_float64)
        return cut_decision(lambda margins: probability(margins) >= threshold), tuple(names)
    logit = _logit(model.info.get("binclass_probability_threshold", "0.5"))
    return Decision(kind="threshold", cut=math.nextafter(logit, math.inf)), tuple(names)


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
    names = {
        feature.flat_feature_index: feature.feature_id or feature.feature_name
        for feature in model.features
    }
    if not any(names.values()):
        return ()
    return tuple(names[place] or str(place) for place in range(len(names)))


def _reference(ensemble: Ensemble, options: LoadOptions, source: Callable[[], Any]) -> Reference:
    """CatBoost's own margins and labels."""

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
        return class_numbers(ensemble.classes, predict(rows, "Class")[:, 0])

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
