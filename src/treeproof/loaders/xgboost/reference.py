"""XGBoost's own answers, for the self-test."""

import re
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile
from treeproof.loaders.base import CannotAnswer, Reference
from treeproof.loaders.xgboost.document import XGBoostDocument, joined, parse_int
from treeproof.loaders.xgboost.objectives import LabelRule
from treeproof.model.ensemble import FloatArray


def booster_reference(
    source: Any, document: XGBoostDocument, rule: LabelRule, *, rounds: int, in_place: bool = False
) -> Reference:
    """Answers of a Booster, or of the Booster in the content of a file, which is loaded late.

    It predicts in place, as estimators do, or on a DMatrix, with so many of its rounds.
    """
    types = document.learner.feature_types or None

    @cache
    def booster() -> Any:
        import xgboost

        if not isinstance(source, bytes):
            return source
        numbers = re.findall(r"\d+", xgboost.__version__)
        _require_loadable(document, tuple(map(int, numbers[:2])))
        return xgboost.Booster(model_file=bytearray(source))

    def predict(rows: FloatArray, *, margin: bool) -> NDArray[np.floating]:
        import xgboost

        how = {"iteration_range": (0, rounds), "validate_features": False}
        if in_place:
            kind = "margin" if margin else "value"
            return np.asarray(booster().inplace_predict(rows, predict_type=kind, **how))
        matrix = xgboost.DMatrix(rows, feature_types=types, enable_categorical=True)
        return np.asarray(booster().predict(matrix, output_margin=margin, **how))

    labels = rule.labels
    return Reference(
        margins=lambda rows: predict(rows, margin=True).reshape(len(rows), -1),
        labels=None if labels is None else lambda rows: labels(predict(rows, margin=False)),
    )


def estimator_reference(
    estimator: Any, rule: LabelRule, *, own_labels: bool, rounds: int
) -> Reference:
    """Answers of an XGB* estimator; labels of `predict`, or made from `predict_proba`."""
    how = {"iteration_range": (0, rounds), "validate_features": False}

    def margins(rows: FloatArray) -> NDArray[np.floating]:
        answers = estimator.predict(rows, output_margin=True, **how)
        return np.asarray(answers).reshape(len(rows), -1)

    def predicted(rows: FloatArray) -> NDArray[np.int64]:
        return np.asarray(estimator.predict(rows, **how)).astype(np.int64)

    def probabilities(rows: FloatArray) -> NDArray[np.floating]:
        answers = np.asarray(estimator.predict_proba(rows, **how))
        return answers if rule.decision.kind == "argmax" else answers[:, 1]

    labels = rule.labels
    if own_labels:
        return Reference(margins=margins, labels=predicted)
    if labels is None or not hasattr(estimator, "predict_proba"):
        return Reference(margins=margins)
    return Reference(margins=margins, labels=lambda rows: labels(probabilities(rows)))


def _require_loadable(document: XGBoostDocument, version: tuple[int, ...]) -> None:
    """Refuse to hand a file to XGBoost that could take the process down.

    XGBoost trusts what it loads, also in fields that this loader has no use for, and in fields that
    one version expects and another did not write.
    """
    start = 0
    for number, tree in enumerate(document.trees):
        n_nodes, width = len(tree.left_children), tree.leaf_width
        is_old_vector = width > 1 and not len(tree.leaf_weights)
        if is_old_vector and version >= (3, 2):
            raise CannotAnswer("XGBoost 3.2 and newer cannot load vector leaves of older versions")
        sizes = {"parents": n_nodes, "base_weights": n_nodes * width}
        if not is_old_vector:
            sizes |= {"loss_changes": n_nodes, "sum_hessian": n_nodes}
        for name, size in sizes.items():
            if len(getattr(tree, name)) != size:
                raise _damaged(number, f"'{name}' must have {size} entries")
        if parse_int(tree.tree_param, "num_nodes", default=0, most=2**31) != n_nodes:
            raise _damaged(number, f"'num_nodes' must be {n_nodes}")
        if not (type(tree.id) is int and 0 <= tree.id < 2**31):
            raise _damaged(number, "'id' must be a number")
        part = slice(start, start + n_nodes)
        left, right = document.nodes.left[part], document.nodes.right[part]
        parents = joined([tree.parents], np.int64, f"Tree {number}: 'parents'")
        inner = np.flatnonzero(left >= 0)
        for child in (left[inner], right[inner]):
            if child.size and (child.max() >= n_nodes or np.any(parents[child] != inner)):
                raise _damaged(number, "'parents' must be those of the children")
        start += n_nodes


def _damaged(tree: int, rule: str) -> BrokenModelFile:
    return BrokenModelFile(f"Tree {tree}: {rule}. The file is damaged.")
