"""XGBoost's own answers, for the self-test."""

import importlib.metadata
import importlib.util
import re
import sys
from functools import cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.model.ensemble import FloatArray
from treeproof.model.loaders.base import Reference
from treeproof.model.loaders.xgboost_document import XGBoostDocument, parse_int
from treeproof.model.loaders.xgboost_objectives import LabelRule


def booster_reference(source: Any, document: XGBoostDocument, rule: LabelRule) -> Reference:
    """Answers of a Booster, or of the Booster that a file holds.

    Parameters
    ----------
    source : Booster or bytes
        The model, or the content of a file, which is loaded when the first answer is wanted.
    document : XGBoostDocument
        What was read.
    rule : LabelRule
        How the library's predictions become labels.
    """
    types = document.learner.feature_types or None

    @cache
    def booster() -> Any:
        import xgboost

        is_file = isinstance(source, bytes)
        return xgboost.Booster(model_file=bytearray(source)) if is_file else source

    def predict(rows: FloatArray, *, margin: bool) -> NDArray[np.floating]:
        import xgboost

        matrix = xgboost.DMatrix(rows, feature_types=types, enable_categorical=True)
        answers = booster().predict(matrix, output_margin=margin, validate_features=False)
        return np.asarray(answers)

    labels = rule.labels
    return Reference(
        margins=lambda rows: predict(rows, margin=True).reshape(len(rows), -1),
        labels=None if labels is None else lambda rows: labels(predict(rows, margin=False)),
    )


def estimator_reference(estimator: Any, rule: LabelRule, *, own_labels: bool) -> Reference:
    """Answers of an XGB* estimator.

    Parameters
    ----------
    estimator : XGBModel
        The estimator.
    rule : LabelRule
        How the library's probabilities become labels.
    own_labels : bool
        Whether `predict` gives the labels; otherwise they are made from `predict_proba`.
    """

    def margins(rows: FloatArray) -> NDArray[np.floating]:
        answers = estimator.predict(rows, output_margin=True, validate_features=False)
        return np.asarray(answers).reshape(len(rows), -1)

    def predicted(rows: FloatArray) -> NDArray[np.int64]:
        return np.asarray(estimator.predict(rows, validate_features=False)).astype(np.int64)

    def probabilities(rows: FloatArray) -> NDArray[np.floating]:
        answers = np.asarray(estimator.predict_proba(rows, validate_features=False))
        return answers if rule.decision.kind == "argmax" else answers[:, 1]

    labels = rule.labels
    if own_labels:
        return Reference(margins=margins, labels=predicted)
    if labels is None or not hasattr(estimator, "predict_proba"):
        return Reference(margins=margins)
    return Reference(margins=margins, labels=lambda rows: labels(probabilities(rows)))


def why_not_reloaded(document: XGBoostDocument) -> str | None:
    """Reason not to hand a file to the installed XGBoost, or None.

    XGBoost trusts what it loads: fields that this loader has no use for, and fields that a version
    expects and another did not write, can take the whole process down.
    """
    version = installed_version()
    if version is None:
        return "xgboost cannot be imported"
    is_old_vector = any(
        tree.leaf_width > 1 and not _length(tree.leaf_weights) for tree in document.trees
    )
    if is_old_vector and version >= (3, 2):
        return "XGBoost 3.2 and newer cannot load vector leaves of older versions"
    for number, tree in enumerate(document.trees):
        n_nodes = len(tree.left_children)
        sizes = {
            "base_weights": n_nodes * tree.leaf_width,
            "parents": n_nodes,
            "loss_changes": n_nodes,
            "sum_hessian": n_nodes,
        }
        is_optional = tree.leaf_width > 1
        for name, size in sizes.items():
            length = _length(getattr(tree, name))
            if length != size and not (is_optional and length == 0):
                return f"'{name}' of tree {number} has another length than its tree"
        if parse_int(tree.tree_param, "num_nodes", default=-1, most=2**31) != n_nodes:
            return f"'num_nodes' of tree {number} is not its number of nodes"
    return None


def installed_version() -> tuple[int, ...] | None:
    """Version of the installed XGBoost without importing it; None where there is none."""
    if "xgboost" in sys.modules:
        text = str(getattr(sys.modules["xgboost"], "__version__", ""))
    else:
        if importlib.util.find_spec("xgboost") is None:
            return None
        text = ""
        for name in ("xgboost", "xgboost-cpu"):
            try:
                text = text or importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def _length(value: Any) -> int:
    """Number of entries of a list that may not be decoded yet."""
    if not isinstance(value, msgspec.Raw):
        return len(value)
    text = bytes(value)
    return text.count(b",") + 1 if text.strip(b" \t\r\n[]") else 0
