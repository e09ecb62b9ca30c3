"""XGBoost's model document (JSON or UBJSON), decoded and checked field by field.

Both encodings end in the same records. The arrays of all trees are joined before anything else
happens, so that later steps work on whole models and not on single trees.
"""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.files import prepare_records
from treeproof.loaders.xgboost.ubjson import decode_ubjson

MAX_FEATURES = 1 << 20
MAX_OUTPUTS = 1 << 16

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class TreeRecord(msgspec.Struct):
    """One tree; its arrays are lists (JSON) or NumPy arrays (UBJSON), checked when joined."""

    left_children: Any
    right_children: Any
    split_indices: Any
    split_conditions: Any
    default_left: Any
    tree_param: dict[str, str]
    id: int = 0
    split_type: Any = ()
    categories: Any = ()
    categories_nodes: Any = ()
    categories_segments: Any = ()
    categories_sizes: Any = ()
    leaf_weights: Any = ()
    base_weights: Any = ()
    loss_changes: Any = ()
    sum_hessian: Any = ()
    parents: Any = ()

    @property
    def leaf_width(self) -> int:
        """Numbers per leaf; 1 for ordinary trees."""
        return max(1, parse_int(self.tree_param, "size_leaf_vector", default=1, most=MAX_OUTPUTS))


class _Encoding(msgspec.Struct):
    values: list[int] = []
    offsets: list[int] | None = None


class _Categories(msgspec.Struct):
    enc: list[_Encoding] = []
    feature_segments: list[int] = []
    sorted_idx: list[int] = []


class _TreeModel(msgspec.Struct):
    # Everything has a default, so that the model of a linear booster is read far enough to be
    # refused by its name.
    tree_info: list[int] = []
    gbtree_model_param: dict[str, str] = {}
    iteration_indptr: list[int] = []
    cats: _Categories = msgspec.field(default_factory=_Categories)


class _TreeBooster(msgspec.Struct):
    model: _TreeModel


class _Booster(msgspec.Struct):
    name: str
    model: _TreeModel | None = None
    gbtree: _TreeBooster | None = None
    weight_drop: list[float] = []


class _Objective(msgspec.Struct):
    name: str


class Learner(msgspec.Struct):
    """Everything but the trees, as XGBoost writes it."""

    gradient_booster: _Booster
    learner_model_param: dict[str, str]
    objective: _Objective
    attributes: dict[str, str] = {}
    feature_names: list[str] = []
    feature_types: list[str] = []


class _Document(msgspec.Struct):
    learner: Learner
    version: list[int] = []


prepare_records(_Document)


@dataclass(frozen=True, slots=True)
class NodeArrays:
    """Nodes of all trees, one after another; children are numbered within their tree."""

    sizes: IntArray
    left: IntArray
    right: IntArray
    feature: IntArray
    condition: FloatArray  # float32 values: threshold, or the value of a scalar leaf
    default_left: NDArray[np.bool_]
    categorical: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class XGBoostDocument:
    """A decoded model document."""

    version: tuple[int, ...]
    learner: Learner
    model: _TreeModel
    trees: list[TreeRecord]
    nodes: NodeArrays
    tree_weight: FloatArray | None  # of dart; float32 values


def parse_json(content: bytes) -> XGBoostDocument:
    """Decode a JSON model document."""
    try:
        try:
            plain = msgspec.json.decode(content)
        except msgspec.DecodeError:
            # XGBoost writes numbers that JSON has no words for. The decoder of the standard library
            # is slower, but takes them.
            if b"NaN" not in content and b"Infinity" not in content:
                raise
            plain = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BrokenModelFile(f"The file is not valid JSON: {error}.") from error
    return _document(plain)


def parse_ubjson(content: bytes) -> XGBoostDocument:
    """Decode a UBJSON model document."""
    return _document(decode_ubjson(content))


def _document(plain: Any) -> XGBoostDocument:
    """Check a document of dicts, lists and arrays; the arrays of trees are kept as they are."""
    booster = _part(_part(plain, "learner"), "gradient_booster")
    is_dart = isinstance(booster.get("name"), str) and booster["name"] == "dart"
    records = _part(_part(booster, "gbtree") if is_dart else booster, "model").pop("trees", [])
    if not isinstance(records, list):
        raise BrokenModelFile("The model must have a list of trees. The file is damaged.")
    try:
        document = msgspec.convert(_with_lists(plain), _Document)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BrokenModelFile(f"The file is no XGBoost model, or damaged: {error}.") from error
    model = _tree_model(document)
    trees = [_record(record, number) for number, record in enumerate(records)]
    if len(model.tree_info) != len(trees):
        raise BrokenModelFile(
            f"'tree_info' must have one entry per tree ({len(trees)})."
            f" Got {len(model.tree_info)}. The file is damaged."
        )
    weights = None
    if is_dart:
        drop = document.learner.gradient_booster.weight_drop
        if len(drop) != len(trees):
            raise BrokenModelFile(
                f"'weight_drop' must have one entry per tree ({len(trees)}). Got {len(drop)}."
                " The file is damaged."
            )
        weights = as_float32(np.array(drop, dtype=np.float64), "'weight_drop'")
    version = tuple(document.version)
    return XGBoostDocument(version, document.learner, model, trees, _joined_nodes(trees), weights)


def _part(holder: dict[str, Any], name: str) -> dict[str, Any]:
    part = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(part, dict):
        raise BrokenModelFile(f"The document must have an object '{name}'. It is no XGBoost model.")
    return part


def _with_lists(value: Any) -> Any:
    """The same document with lists in the place of arrays."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _with_lists(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_lists(item) for item in value]
    return value


def _record(tree: Any, number: int) -> TreeRecord:
    """Record of one tree from a dict; the arrays are checked when they are joined."""
    if not isinstance(tree, dict) or not isinstance(tree.get("tree_param"), dict):
        raise BrokenModelFile(f"Tree {number} must be an object with 'tree_param'. It is damaged.")
    try:
        fields = {name: tree[name] for name in TreeRecord.__struct_fields__ if name in tree}
        fields["tree_param"] = msgspec.convert(tree["tree_param"], dict[str, str])
        for name, value in fields.items():
            if name not in ("tree_param", "id") and not isinstance(value, (list, np.ndarray)):
                raise TypeError(f"'{name}' must be an array")
        return TreeRecord(**fields)
    except (TypeError, msgspec.ValidationError) as error:
        raise BrokenModelFile(f"Tree {number}: {error}. The file is damaged.") from error


def _tree_model(document: _Document) -> _TreeModel:
    booster = document.learner.gradient_booster
    if booster.name == "gblinear":
        raise UnsupportedModel(
            "The booster must be gbtree or dart. Got gblinear, a linear model without trees."
        )
    if booster.name == "dart" and booster.gbtree is not None:
        return booster.gbtree.model
    if booster.name == "gbtree" and booster.model is not None:
        return booster.model
    raise BrokenModelFile(
        f"The booster must be gbtree or dart with its trees. Got {booster.name!r} without them."
    )


def _joined_nodes(trees: list[TreeRecord]) -> NodeArrays:
    sizes = np.array([len(tree.left_children) for tree in trees], dtype=np.int64)

    def column(name: str, dtype: Any) -> Any:
        parts = [getattr(tree, name) for tree in trees]
        for number, part in enumerate(parts):
            if len(part) != sizes[number]:
                raise BrokenModelFile(
                    f"Tree {number}: '{name}' must have one entry per node ({sizes[number]})."
                    f" Got {len(part)}. The file is damaged."
                )
        return joined(parts, dtype, f"'{name}'")

    def switch(name: str) -> NDArray[np.bool_]:
        values = column(name, np.int64)
        if values.size and (values.min() < 0 or values.max() > 1):
            raise BrokenModelFile(f"'{name}' must hold 0 and 1 only. The file is damaged.")
        answers: NDArray[np.bool_] = values == 1
        return answers

    has_types = any(len(tree.split_type) for tree in trees)
    left = column("left_children", np.int64)
    if left.size and left.min() < -1:
        raise BrokenModelFile(f"A left child must be -1 or a node. Got {left.min()}.")
    return NodeArrays(
        sizes=sizes,
        left=left,
        right=column("right_children", np.int64),
        feature=column("split_indices", np.int64),
        condition=as_float32(column("split_conditions", np.float64), "'split_conditions'"),
        default_left=switch("default_left"),
        categorical=switch("split_type") if has_types else np.zeros(len(left), bool),
    )


def joined(parts: Sequence[Any], dtype: Any, name: str) -> Any:
    """One array of many lists or arrays of numbers."""
    try:
        if parts and all(isinstance(part, np.ndarray) for part in parts):
            whole = np.concatenate(parts)
        else:
            whole = np.array([*itertools.chain.from_iterable(parts)])
        if whole.size == 0:
            return np.zeros(0, dtype)
        if whole.ndim == 1 and np.can_cast(whole.dtype, dtype, "safe"):
            return whole.astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise BrokenModelFile(f"{name} must hold numbers: {error}. The file is damaged.") from error
    raise BrokenModelFile(f"{name} must hold {np.dtype(dtype)}. The file is damaged.")


def as_float32(values: FloatArray, name: str) -> FloatArray:
    """Round numbers from a file to float32, as float64, exactly as reading their text would.

    A decimal that lies next to the middle of two float32 values could be rounded to that middle
    first, and then to the wrong side. XGBoost writes no such number; one is refused.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        single = values.astype(np.float32)
        rounded = single.astype(np.float64)
        # The middle has one bit more than a float32, so all lower bits of the double are zero.
        suspect = np.flatnonzero((values.view(np.int64) & 0x0FFFFFFF == 0) & (values != rounded))
        towards = np.where(values[suspect] > rounded[suspect], np.inf, -np.inf)
        other = np.nextafter(single[suspect], towards.astype(np.float32)).astype(np.float64)
        middle = (rounded[suspect] + other) / 2 == values[suspect]
    if middle.any():
        raise BrokenModelFile(
            f"{name} holds {values[suspect][middle][0]!r}, which lies between two float32"
            " numbers. Save the model with XGBoost itself."
        )
    return rounded


def parse_int(params: dict[str, str], name: str, *, default: int, most: int) -> int:
    """Whole number from one of XGBoost's tables of strings, between 0 and `most`."""
    text = params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BrokenModelFile(
            f"'{name}' must be a whole number. Got {text[:40]!r}. The file is damaged."
        )
    if int(text) > most:
        raise UnsupportedModel(f"'{name}' may be at most {most}. Got {text}.")
    return int(text)
