"""Grown trees as an `Ensemble`, as a model document that XGBoost reads, and as an ONNX graph."""

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, require_backend
from treeproof.files import replacing
from treeproof.kernels.training.losses import GrownTree
from treeproof.loaders.xgboost.objectives import (
    binary_rule,
    class_rule,
    objective_named,
    starting_margin,
)
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import MISSING_LEFT, Aggregation, Ensemble, Provenance

FORMAT_VERSION = (2, 1, 0)
"""XGBoost version whose document format is written; newer ones read it, too."""

_NO_PARENT = 2147483647


def objective_of(n_outputs: int) -> str:
    """Name in XGBoost of what is trained."""
    return "binary:logistic" if n_outputs == 1 else "multi:softprob"


def starting_margins(n_outputs: int, base_score: float) -> tuple[float, ...]:
    """Margins before the first tree, one per output."""
    name = objective_of(n_outputs)
    return (starting_margin(name, objective_named(name), base_score, FORMAT_VERSION),) * n_outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedTrees:
    """A trained model: trees of round 0 for each output, then those of round 1, and so on.

    The base score is a float32 number: the probability of class 1 before the first tree, or with
    more than two classes the margin of every class.
    """

    trees: tuple[GrownTree, ...]
    n_features: int
    n_outputs: int  # 1 for two classes, else one per class
    base_score: float
    classes: tuple[Any, ...]
    feature_names: tuple[str, ...]
    attributes: dict[str, str]  # notes for the model document

    @property
    def objective(self) -> str:
        """Name of the objective in XGBoost."""
        return objective_of(self.n_outputs)

    @property
    def start(self) -> tuple[float, ...]:
        """Margins before the first tree."""
        return starting_margins(self.n_outputs, self.base_score)


def to_ensemble(model: TrainedTrees) -> Ensemble:
    """Canonical form, equal in all but names to what `treeproof.load` makes of the document."""
    builder = TreeBuilder()
    for number, tree in enumerate(model.trees):
        builder.add_tree(
            feature=tree.feature,
            threshold=tree.threshold,
            left=tree.left,
            right=tree.right,
            flags=np.where(tree.missing_left, MISSING_LEFT, 0),
            value=tree.value,
            output=number % model.n_outputs,
        )
    objective = objective_named(model.objective)
    if model.n_outputs == 1:
        rule = binary_rule(model.objective, objective, by_estimator=True, threshold=None)
    else:
        rule = class_rule(objective)
    return Ensemble(
        trees=builder.finish(),
        n_features=model.n_features,
        n_outputs=model.n_outputs,
        input_precision="float32",
        aggregation=Aggregation(precision="float32", start=model.start),
        decision=rule.decision,
        classes=model.classes,
        feature_names=model.feature_names,
        infinite_allowed=False,
        provenance=Provenance(
            library="treeproof",
            source="trained here",
            objective=model.objective,
            self_test="not needed: the trees were grown in this form",
        ),
    )


def save_document(model: TrainedTrees, path: str | PathLike[str]) -> None:
    """Write a file that XGBoost loads; the suffix, .json or .ubj, decides on the encoding."""
    target = Path(path)
    encoders: dict[str, Callable[[TrainedTrees], bytes]] = {".json": to_json, ".ubj": to_ubjson}
    if target.suffix not in encoders:
        raise InvalidInput(
            "An XGBoost model file must end in .json or .ubj, by which XGBoost knows the format."
            f" Got '{target.name}'."
        )
    write_file(encoders[target.suffix](model), target)


def write_file(content: bytes, path: str | PathLike[str]) -> None:
    """Write a model file in one step."""
    with replacing(Path(path), "The model file") as file:
        file.write(content)


def to_onnx(model: TrainedTrees) -> bytes:
    """A TreeEnsembleClassifier of ONNX: labels, and probabilities as XGBoost's converter has them.

    Thresholds and leaves are the same numbers; runtimes may add leaves up in another order.
    """
    require_backend("onnx", "onnx")
    from onnx import TensorProto, helper

    sizes = [len(tree.left) for tree in model.trees]
    number = np.concatenate([np.arange(size) for size in sizes])
    owner = np.repeat(np.arange(len(sizes)), sizes)

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(tree, name) for tree in model.trees])

    is_leaf, value = joined("left") < 0, joined("value").astype(np.float64)
    output = owner % model.n_outputs
    is_text = all(isinstance(label, str) for label in model.classes)
    labels = list(model.classes)
    if not is_text and not all(type(label) is int for label in labels):
        labels = list(range(len(labels)))
    transform = "LOGISTIC" if model.n_outputs == 1 else "SOFTMAX"
    classes: dict[str, Any] = {"classlabels_strings" if is_text else "classlabels_int64s": labels}
    node = helper.make_node(
        "TreeEnsembleClassifier", ["X"], ["label", "probabilities"], domain="ai.onnx.ml",
        nodes_treeids=owner.tolist(), nodes_nodeids=number.tolist(),
        nodes_featureids=np.where(is_leaf, 0, joined("feature")).tolist(),
        nodes_modes=np.where(is_leaf, "LEAF", "BRANCH_LT").tolist(),
        nodes_values=joined("threshold").astype(np.float64).tolist(),
        nodes_truenodeids=np.where(is_leaf, 0, joined("left")).tolist(),
        nodes_falsenodeids=np.where(is_leaf, 0, joined("right")).tolist(),
        nodes_missing_value_tracks_true=joined("missing_left").astype(int).tolist(),
        class_treeids=owner[is_leaf].tolist(), class_nodeids=number[is_leaf].tolist(),
        class_ids=output[is_leaf].tolist(), class_weights=value[is_leaf].tolist(),
        base_values=list(model.start), post_transform=transform,
        **classes,
    )  # fmt: skip
    kind = TensorProto.STRING if is_text else TensorProto.INT64
    graph = helper.make_graph(
        [node],
        "treeproof",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, model.n_features])],
        [
            helper.make_tensor_value_info("label", kind, [None]),
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, len(labels)]),
        ],
    )
    versions = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 17)]
    document = helper.make_model(graph, opset_imports=versions, ir_version=8)
    return bytes(document.SerializeToString())


def to_json(model: TrainedTrees) -> bytes:
    """The document as JSON."""
    return json.dumps(_document(model, _shortest), separators=(",", ":")).encode()


def to_ubjson(model: TrainedTrees) -> bytes:
    """The document as Universal Binary JSON, with the bits of every number."""
    parts: list[bytes] = []
    _encode(_document(model, np.asarray), parts)
    return b"".join(parts)


def _shortest(values: NDArray[Any]) -> list[Any]:
    """Numbers whose decimal text is as short as their own type allows, as XGBoost writes them."""
    if values.dtype == np.float32:
        return [float(str(value)) for value in values]
    return list(values.tolist())


def _document(model: TrainedTrees, numbers: Callable[[NDArray[Any]], Any]) -> dict[str, Any]:
    n_rounds = len(model.trees) // model.n_outputs
    objective: dict[str, Any] = {"name": model.objective}
    if model.n_outputs == 1:
        objective["reg_loss_param"] = {"scale_pos_weight": "1"}
    else:
        objective["softmax_multiclass_param"] = {"num_class": str(model.n_outputs)}
    return {
        "learner": {
            "attributes": model.attributes,
            "feature_names": list(model.feature_names),
            "feature_types": ["float"] * len(model.feature_names),
            "gradient_booster": {
                "model": {
                    "gbtree_model_param": {
                        "num_parallel_tree": "1",
                        "num_trees": str(len(model.trees)),
                    },
                    "iteration_indptr": list(range(0, len(model.trees) + 1, model.n_outputs)),
                    "tree_info": list(range(model.n_outputs)) * n_rounds,
                    "trees": [
                        _tree_record(number, tree, model.n_features, numbers)
                        for number, tree in enumerate(model.trees)
                    ],
                },
                "name": "gbtree",
            },
            "learner_model_param": {
                "base_score": str(np.float32(model.base_score)),
                "boost_from_average": "1",
                "num_class": str(model.n_outputs if model.n_outputs > 1 else 0),
                "num_feature": str(model.n_features),
                "num_target": "1",
            },
            "objective": objective,
        },
        "version": list(FORMAT_VERSION),
    }


def _tree_record(
    number: int, tree: GrownTree, n_features: int, numbers: Callable[[NDArray[Any]], Any]
) -> dict[str, Any]:
    n_nodes = len(tree.left)
    inner = np.flatnonzero(tree.left >= 0)
    parents = np.full(n_nodes, _NO_PARENT, dtype=np.int32)
    parents[tree.left[inner]] = inner
    parents[tree.right[inner]] = inner
    is_leaf = tree.left < 0
    nothing = np.empty(0, dtype=np.int32)
    return {
        "base_weights": numbers(tree.value),
        "categories": numbers(nothing),
        "categories_nodes": numbers(nothing),
        "categories_segments": numbers(nothing.astype(np.int64)),
        "categories_sizes": numbers(nothing.astype(np.int64)),
        "default_left": numbers(tree.missing_left.astype(np.uint8)),
        "id": number,
        "left_children": numbers(tree.left),
        "loss_changes": numbers(tree.gain),
        "parents": numbers(parents),
        "right_children": numbers(tree.right),
        "split_conditions": numbers(np.where(is_leaf, tree.value, tree.threshold)),
        "split_indices": numbers(np.where(is_leaf, 0, tree.feature).astype(np.int32)),
        "split_type": numbers(np.zeros(n_nodes, dtype=np.uint8)),
        "sum_hessian": numbers(tree.cover),
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(n_features),
            "num_nodes": str(n_nodes),
            "size_leaf_vector": "1",
        },
    }


_MARKERS = {
    np.dtype(np.uint8): (b"U", ">u1"),
    np.dtype(np.int32): (b"l", ">i4"),
    np.dtype(np.int64): (b"L", ">i8"),
    np.dtype(np.float32): (b"d", ">f4"),
}


def _encode(value: Any, parts: list[bytes]) -> None:
    """Append the encoding of a value; lengths are int64, as XGBoost writes them."""
    if isinstance(value, dict):
        parts.append(b"{")
        for key, item in value.items():
            parts.append(_text(key))
            _encode(item, parts)
        parts.append(b"}")
    elif isinstance(value, np.ndarray):
        marker, code = _MARKERS[value.dtype]
        parts += [b"[$", marker, b"#", _length(value), value.astype(code).tobytes()]
    elif isinstance(value, list):
        parts += [b"[#", _length(value)]
        for item in value:
            _encode(item, parts)
    elif isinstance(value, int):
        parts += [b"L", struct.pack(">q", value)]
    else:
        parts += [b"S", _text(value)]


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _length(encoded) + encoded


def _length(items: Sequence[Any] | NDArray[Any]) -> bytes:
    return b"L" + struct.pack(">q", len(items))
