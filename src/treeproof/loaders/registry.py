"""All loaders, in the order in which they are asked; the only list of them.

A loader's module is imported when it is first asked, and no loader imports its library before it
is given something of that library.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from typing import Any

from treeproof.errors import InvalidInput, UnsupportedModel
from treeproof.loaders.base import Loaded, Loader, LoadOptions


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a loader lives below `treeproof.loaders`, and what it understands."""

    module: str
    class_name: str
    kinds: tuple[str, ...]
    """What it loads, as shown to users: objects first, files last."""
    options: frozenset[str]
    """Fields of `LoadOptions` that mean something to it; others are refused, not ignored."""


_THRESHOLD = frozenset({"decision_threshold"})

# Estimators of the boosting libraries inherit from scikit-learn's classes, so scikit-learn comes
# after them, and what stands around models before the models of scikit-learn.
ENTRIES = (
    Entry(
        "xgboost.loader",
        "XGBoostLoader",
        ("XGBoost Booster and XGB* estimators", "XGBoost .json and .ubj files"),
        _THRESHOLD | {"rounds"},
    ),
    Entry(
        "xgboost.dump",
        "XGBoostDumpLoader",
        ("XGBoost text dumps",),
        _THRESHOLD | {"base_score", "n_classes", "n_features"},
    ),
    Entry(
        "lightgbm.loader",
        "LightGBMLoader",
        ("LightGBM Booster and LGBM* estimators", "LightGBM text model files"),
        _THRESHOLD,
    ),
    Entry(
        "catboost.loader",
        "CatBoostLoader",
        ("CatBoost models", "CatBoost .cbm and .json files"),
        _THRESHOLD,
    ),
    Entry(
        "pipelines.loader",
        "PipelineLoader",
        ("scikit-learn and imbalanced-learn pipelines and wrappers around any model",),
        _THRESHOLD | {"rounds"},
    ),
    Entry(
        "sklearn.loader",
        "SklearnLoader",
        ("scikit-learn tree ensembles", "skops files of scikit-learn tree ensembles and pipelines"),
        _THRESHOLD,
    ),
    Entry(
        "treelite.loader",
        "TreeliteLoader",
        ("treelite .tl checkpoints",),
        _THRESHOLD | {"input_precision", "tie", "missing"},
    ),
    Entry(
        "onnx.loader",
        "OnnxLoader",
        ("ONNX models with a tree operator", "ONNX .onnx files"),
        _THRESHOLD | {"n_features"},
    ),
    Entry(
        "ydf.loader",
        "YdfLoader",
        ("YDF models", "directories of YDF models"),
        _THRESHOLD,
    ),
)


@cache
def loader_of(entry: Entry) -> Loader:
    """Return the loader of an entry, importing its module on first use."""
    module = import_module(f"treeproof.loaders.{entry.module}")
    loader: Loader = getattr(module, entry.class_name)()
    return loader


def loaders() -> Iterator[tuple[Entry, Loader]]:
    """Every entry with its loader, in order."""
    for entry in ENTRIES:
        yield entry, loader_of(entry)


def load_object(source: Any, options: LoadOptions) -> Loaded:
    """Translate a live model by the first loader that knows its kind."""
    for entry, loader in loaders():
        if loader.accepts_object(source):
            refuse_options(options, entry.options, entry.kinds[0])
            return loader.load_object(source, options)
    kind = type(source)
    raise UnsupportedModel(
        f"Objects of type {kind.__module__}.{kind.__qualname__} cannot be loaded."
        f" Supported are: {supported_kinds()}."
    )


def refuse_options(
    options: LoadOptions, known: frozenset[str], kind: str, remedy: str = "Leave it out."
) -> None:
    """Refuse an option that would be ignored: it would change nothing, or the wrong thing."""
    for option in fields(options):
        if option.name not in known and getattr(options, option.name) is not None:
            raise InvalidInput(
                f"The option '{option.name}' has no meaning for {kind}, which carries its own"
                f" answer. {remedy}"
            )


def supported_kinds() -> str:
    """Everything that can be loaded, in one sentence fragment."""
    kinds = [kind for entry in ENTRIES for kind in entry.kinds]
    return ", ".join([*kinds, "files written by Model.save"])
