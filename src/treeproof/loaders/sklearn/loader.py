"""scikit-learn estimators, live or in .skops files: their families, and what is refused."""

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from treeproof.errors import UnsupportedModel, require_backend
from treeproof.loaders.base import Loaded, Loader, LoadOptions, read_model_file, version_notes
from treeproof.loaders.registry import load_object
from treeproof.loaders.sklearn.boosting import (
    load_gradient_boosting,
    load_hist_gradient_boosting,
)
from treeproof.loaders.sklearn.shared import class_names
from treeproof.loaders.sklearn.skops import guarded, read_estimator
from treeproof.loaders.sklearn.trees import (
    load_adaboost,
    load_forest,
    load_isolation_forest,
    load_single_tree,
)

OLDEST_VERSION = (1, 5)
NEWEST_VERSION = (1, 9)
"""Releases of scikit-learn that the loader is tested with, first and last."""

Family = Callable[[Any, float | None], Loaded]

_FAMILIES: dict[str, Family] = {
    "HistGradientBoostingClassifier": load_hist_gradient_boosting,
    "HistGradientBoostingRegressor": load_hist_gradient_boosting,
    "GradientBoostingClassifier": load_gradient_boosting,
    "GradientBoostingRegressor": load_gradient_boosting,
    "AdaBoostClassifier": load_adaboost,
    "IsolationForest": load_isolation_forest,
    "ForestClassifier": load_forest,
    "ForestRegressor": load_forest,
    "DecisionTreeClassifier": load_single_tree,
    "DecisionTreeRegressor": load_single_tree,
}

_MEMBERS = "Pass one of its members"
_FOREST = "Train a RandomForest or ExtraTrees estimator"
_REMEDIES = {
    "ColumnTransformer": "Pass the pipeline that it is a step of",
    "AdaBoostRegressor": (
        "It answers with a weighted median, which is no sum of leaves; use gradient boosting"
    ),
    "RandomTreesEmbedding": _FOREST,
    **dict.fromkeys(("StackingClassifier", "StackingRegressor"), _MEMBERS),
    **dict.fromkeys(("MultiOutputClassifier", "ClassifierChain", "RegressorChain"), _MEMBERS),
}

# Every estimator inherits from these, those of other libraries included.
_SHARED_BASES = ("sklearn.base", "sklearn.utils")


class SklearnLoader(Loader):
    """scikit-learn estimators in memory, and their ``.skops`` files."""

    def accepts_object(self, source: Any) -> bool:
        """Whether an object is a scikit-learn estimator or inherits from a concrete one."""
        return any(
            kind.__module__.startswith("sklearn.") and not kind.__module__.startswith(_SHARED_BASES)
            for kind in type(source).__mro__
        )

    def accepts_file(self, path: Path, head: bytes) -> bool:
        """Whether a file is called ``.skops``; pickles are never opened."""
        return path.suffix.lower() == ".skops"

    def load_object(self, source: Any, options: LoadOptions) -> Loaded:
        """Translate a fitted estimator."""
        notes = _version_notes()
        names = class_names(source)
        for name, family in _FAMILIES.items():
            if name in names:
                loaded = family(source, options.decision_threshold)
                notes += loaded.ensemble.provenance.notes
                return replace(loaded, ensemble=loaded.ensemble.with_provenance(notes=notes))
        raise _refusal(source, names)

    def load_file(self, path: Path, options: LoadOptions) -> Loaded:
        """Translate a file in which only known types are allowed."""
        require_backend("skops.io", "skops")
        file = read_model_file(path)
        estimator, notes = read_estimator(file.content, path)
        if not self.accepts_object(estimator):
            raise UnsupportedModel(
                f"The file '{path}' must hold a scikit-learn estimator."
                f" Got {type(estimator).__name__}. Save the estimator itself."
            )
        loaded = guarded(lambda: load_object(estimator, options), path)
        known = loaded.ensemble.provenance
        ensemble = loaded.ensemble.with_provenance(
            source=str(path), file_sha256=file.sha256, notes=notes + known.notes
        )
        return replace(loaded, ensemble=ensemble)


def _version_notes() -> tuple[str, ...]:
    version = str(sys.modules["sklearn"].__version__)
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST_VERSION:
        raise UnsupportedModel(
            f"scikit-learn must be {'.'.join(map(str, OLDEST_VERSION))} or newer, because older"
            f" releases store trees differently. Got {version}. Upgrade it and train again."
        )
    return version_notes("scikit-learn", version, OLDEST_VERSION, NEWEST_VERSION)


def _refusal(estimator: Any, names: list[str]) -> UnsupportedModel:
    name = type(estimator).__name__
    remedy = next((_REMEDIES[kind] for kind in names if kind in _REMEDIES), None)
    if remedy is not None:
        return UnsupportedModel(f"A {name} is no sum of trees as it stands. {remedy}.")
    return UnsupportedModel(
        f"A {name} is not a tree ensemble that can be represented. Supported are decision trees,"
        " random forests, extra trees, (hist) gradient boosting, AdaBoost classifiers and"
        " isolation forests."
    )
