"""What was understood of a model, as plain data that a person or a program can read.

The keys are documented in docs/reference/model-file.md; a test keeps both in step.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    ZERO_BAND,
    ZERO_IS_MISSING,
    Ensemble,
    TreeArrays,
)

SCHEMA = 1
"""Rises when a key of `describe` changes its meaning or goes away."""

_MOST_SHOWN = 6

_LINK_WORDS = {
    "identity": "margin",
    "softmax_float32": "softmax of the margins in float32",
    "softmax_float64": "softmax of the margins in float64",
    "sigmoid_float64": "sigmoid of a margin in float64",
}


def describe(ensemble: Ensemble) -> dict[str, Any]:
    """Everything that `treeproof inspect` shows: values that JSON can hold."""
    trees, provenance = ensemble.trees, ensemble.provenance
    numeric = (trees.feature >= 0) & ((trees.flags & CATEGORICAL) == 0)
    depths = tree_depths(trees)
    return {
        "schema": SCHEMA,
        "library": provenance.library,
        "library_version": provenance.library_version,
        "source": provenance.source,
        "file_sha256": provenance.file_sha256,
        "fingerprint": ensemble.fingerprint,
        "objective": provenance.objective,
        "task": _task(ensemble),
        "classes": [plain_value(label) for label in ensemble.classes],
        "n_outputs": ensemble.n_outputs,
        "n_trees": ensemble.n_trees,
        "n_leaves": ensemble.n_leaves,
        "n_nodes": len(trees.feature),
        "depth_max": int(depths.max()),
        "depth_mean": float(depths.mean()),
        "n_features": ensemble.n_features,
        "n_features_used": len(np.unique(trees.feature[trees.feature >= 0])),
        "feature_names": list(ensemble.feature_names),
        "n_distinct_thresholds": _distinct_thresholds(trees, numeric),
        "base_score": [float(value) for value in ensemble.aggregation.start],
        "sum_precision": ensemble.aggregation.precision,
        "sum_rule": sum_rule(ensemble),
        "input_precision": ensemble.input_precision,
        "split_rule": split_rule(ensemble),
        "decision_rule": decision_rule(ensemble),
        "decision_cut": ensemble.decision.cut if ensemble.decision.kind == "threshold" else None,
        "missing_allowed": ensemble.missing_allowed,
        "infinite_allowed": ensemble.infinite_allowed,
        "missing_rule": missing_rule(ensemble),
        "categorical_features": _categorical_features(ensemble),
        "self_test": provenance.self_test,
        "notes": list(provenance.notes),
    }


def summary_lines(described: dict[str, Any]) -> list[tuple[str, str]]:
    """Captions and short texts of what `describe` returned, in the order of reading."""
    depth = f"{described['depth_max']} (mean {described['depth_mean']:.1f})"
    lines = [
        ("library", f"{described['library']} {described['library_version']}"),
        ("source", described["source"]),
        ("file SHA-256", described["file_sha256"]),
        ("fingerprint", described["fingerprint"]),
        ("objective", described["objective"]),
        ("task", described["task"]),
        ("classes", _shortened(described["classes"])),
        ("trees, leaves", f"{described['n_trees']:,} trees, {described['n_leaves']:,} leaves"),
        ("depth", depth),
        ("features", f"{described['n_features_used']} used of {described['n_features']}"),
        ("feature names", _shortened(described["feature_names"])),
        ("distinct thresholds", f"{described['n_distinct_thresholds']:,}"),
        ("base score", _shortened(described["base_score"])),
        ("input precision", described["input_precision"]),
        ("split", described["split_rule"]),
        ("sum", described["sum_rule"]),
        ("decision", described["decision_rule"]),
        ("missing values", described["missing_rule"]),
        ("infinite values", "accepted" if described["infinite_allowed"] else "refused"),
        ("categorical features", _categorical_words(described["categorical_features"])),
        ("self-test", described["self_test"]),
        *(("note", note) for note in described["notes"]),
    ]
    return [(caption, text) for caption, text in lines if text]


def _shortened(values: list[Any]) -> str:
    shown = ", ".join(str(value) for value in values[:_MOST_SHOWN])
    return f"{shown}, … ({len(values)} in all)" if len(values) > _MOST_SHOWN else shown


def _categorical_words(features: list[dict[str, Any]]) -> str:
    def words(feature: dict[str, Any]) -> str:
        name = feature["name"] if feature["name"] is not None else f"feature {feature['feature']}"
        known = feature["categories"]
        return f"{name} ({len(known)} categories)" if known else name

    return _shortened([words(feature) for feature in features]) or "none"


def plain_value(value: Any) -> Any:
    """Return a label or category as JSON can hold it: numbers, strings, booleans, None."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return str(plain)
    return plain if plain is None or isinstance(plain, bool | int | float | str) else str(plain)


def tree_depths(trees: TreeArrays, *, stop: int | None = None) -> NDArray[np.int64]:
    """Longest path of each tree in splits: int64 (n_trees,); counting ends at `stop`."""
    depths = np.zeros(len(trees.tree_output), dtype=np.int64)
    owner = np.arange(len(depths))
    node = trees.root[:-1].astype(np.int64)
    level = 0
    while stop is None or level < stop:
        inner = trees.feature[node] >= 0
        if not inner.any():
            break
        level += 1
        parent = node[inner]
        owner = np.concatenate([owner[inner], owner[inner]])
        node = np.concatenate([trees.left[parent], trees.right[parent]])
        depths[owner] = level
    return depths


def _task(ensemble: Ensemble) -> str:
    if ensemble.decision.kind == "score":
        return "scores"
    return "binary classification" if ensemble.n_classes == 2 else "multi-class classification"


def _distinct_thresholds(trees: TreeArrays, numeric: NDArray[np.bool_]) -> int:
    features, thresholds = trees.feature[numeric], trees.threshold[numeric]
    order = np.lexsort((thresholds, features))
    features, thresholds = features[order], thresholds[order]
    repeated = (features[1:] == features[:-1]) & (thresholds[1:] == thresholds[:-1])
    return len(features) - int(repeated.sum())


def split_rule(ensemble: Ensemble) -> str:
    """One sentence on how a numeric split sends a value left or right."""
    if ensemble.input_precision == "float32":
        return "left iff float32(x) < T; a value equal to T goes right"
    return "left iff x < T in float64; a value equal to T goes right"


def sum_rule(ensemble: Ensemble) -> str:
    """One sentence on how leaf values become margins."""
    aggregation = ensemble.aggregation
    steps = f"base score, then trees in order, in {aggregation.precision}"
    if aggregation.finish == "divide":
        return f"{steps}; divided by {aggregation.divisor:g}"
    if aggregation.finish == "affine":
        return f"{steps}; times {aggregation.scale!r} plus a bias"
    if aggregation.finish == "isolation":
        return f"{steps}; -2 ** (-sum / {aggregation.divisor!r}) minus the offset"
    return steps


def decision_rule(ensemble: Ensemble) -> str:
    """One sentence on how margins become a label, ties included."""
    decision = ensemble.decision
    if decision.kind == "score":
        return "none: the margins are the answer"
    if decision.kind == "threshold":
        low, high = ensemble.classes[0], ensemble.classes[1]
        return (
            f"{plain_value(high)!r} iff margin >= {decision.cut!r}, otherwise {plain_value(low)!r}"
        )
    return f"largest {_LINK_WORDS[decision.link]}; the first class wins ties"


def missing_rule(ensemble: Ensemble) -> str:
    """One sentence on where missing values go."""
    trees = ensemble.trees
    inner = trees.feature >= 0
    if not ensemble.missing_allowed:
        return "refused: rows must not contain NaN"
    if not inner.any():
        return "accepted: there are no splits"
    n_left = int(((trees.flags[inner] & MISSING_LEFT) > 0).sum())
    n_zero = int(((trees.flags[inner] & ZERO_IS_MISSING) > 0).sum())
    total = int(inner.sum())
    rule = f"by each split: NaN goes left at {n_left} of {total} splits, right at the others"
    if n_zero:
        rule += f"; |x| <= {ZERO_BAND:.0e} counts as missing at {n_zero} splits"
    return rule


def _categorical_features(ensemble: Ensemble) -> list[dict[str, Any]]:
    trees = ensemble.trees
    tested = trees.feature[(trees.flags & CATEGORICAL) > 0]
    numbers = sorted({int(number) for number in tested} | set(ensemble.categories))
    return [
        {
            "feature": number,
            "name": ensemble.feature_names[number] if ensemble.feature_names else None,
            "n_splits": int((tested == number).sum()),
            "categories": [plain_value(value) for value in ensemble.categories[number]]
            if number in ensemble.categories
            else None,
        }
        for number in numbers
    ]
