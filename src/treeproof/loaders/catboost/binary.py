"""CatBoost's binary format (.cbm), read without CatBoost.

A magic word, a length, and a FlatBuffers table. CatBoost trusts the numbers in it and crashes on
many damaged files, so everything that it uses is checked here first.
"""

import json
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.catboost.model import (
    CTR_REFUSAL,
    MAX_TREE_DEPTH,
    CatBoostModel,
    CategoricalFeature,
    FeaturesInfo,
    FloatFeature,
    IntArray,
    Tree,
    check_features,
    oblivious_tree,
)
from treeproof.model.ensemble import FloatArray

MAGIC = b"CBM1"

# Fields of the tables, by their numbers in CatBoost's schema.
_CORE_TREES, _CORE_INFO, _CORE_PARTS, _CORE_FIELDS = 1, 2, 3, 4
_DIMENSION, _SPLITS, _SIZES, _STARTS, _CATEGORICAL, _FLOAT, _ONE_HOT, _CTR = range(8)
_LEAVES, _WEIGHTS, _STEPS, _LEAF_OF_NODE, _TEXT, _ESTIMATED = range(8, 14)
_SCALE, _BIAS, _MULTI_BIAS, _PACKED, _EMBEDDING, _TREES_FIELDS = range(14, 20)

_VALUES_PER_BIN = 254
"""CatBoost packs borders in groups of so many."""


class _Buffer:
    """Bytes that are read with every access checked, and not much more often than there are bytes.

    The second rule keeps files out whose many tables all point to the same large array.
    """

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._remaining = 16 * len(content) + 2**20

    def number(self, at: int, code: str) -> Any:
        """One number in the notation of `struct`."""
        if at < 0 or at + struct.calcsize(code) > len(self._content):
            raise _damaged("a number lies beyond its end")
        return struct.unpack_from(code, self._content, at)[0]

    def array(self, at: int, dtype: str, count: int) -> NDArray[Any]:
        """Numbers in a row."""
        size = count * np.dtype(dtype).itemsize
        self._remaining -= size
        if at < 0 or at + size > len(self._content) or self._remaining < 0:
            raise _damaged("an array reaches beyond its end, or is used too often")
        return np.frombuffer(self._content, dtype, count, at)


class _Table:
    """A FlatBuffers table: fields by number, each of which may be absent."""

    def __init__(self, buffer: _Buffer, at: int, n_known: int) -> None:
        self._buffer, self._at = buffer, at
        layout = at - buffer.number(at, "<i")
        size = max(buffer.number(layout, "<H"), 4)
        self._offsets = buffer.array(layout + 4, "<u2", (size - 4) // 2).tolist()
        # A field that is not known could change the meaning of the others.
        if any(self._offsets[n_known:]):
            raise UnsupportedModel(
                "The .cbm file has parts that this treeproof does not know, so CatBoost is newer."
                " Update treeproof, or save the model as JSON."
            )

    def _place(self, field: int) -> int:
        offset = self._offsets[field] if field < len(self._offsets) else 0
        return self._at + offset if offset else 0

    def number(self, field: int, code: str, default: Any) -> Any:
        """Value of a scalar field."""
        place = self._place(field)
        return self._buffer.number(place, code) if place else default

    def _target(self, field: int) -> int:
        place = self._place(field)
        return place + int(self._buffer.number(place, "<I")) if place else 0

    def table(self, field: int, n_known: int) -> "_Table | None":
        """Another table."""
        target = self._target(field)
        return _Table(self._buffer, target, n_known) if target else None

    def array(self, field: int, dtype: str) -> NDArray[Any]:
        """Vector of numbers; empty where it is absent."""
        target = self._target(field)
        if not target:
            return np.zeros(0, dtype=dtype)
        return self._buffer.array(target + 4, dtype, int(self._buffer.number(target, "<I")))

    def tables(self, field: int, n_known: int) -> list["_Table"]:
        """Vector of tables."""
        target = self._target(field)
        offsets = self.array(field, "<u4").tolist()
        return [
            _Table(self._buffer, target + 4 + 4 * place + offset, n_known)
            for place, offset in enumerate(offsets)
        ]

    def text(self, field: int) -> str:
        """String field; empty where it is absent."""
        try:
            return bytes(self.array(field, "u1")).decode()
        except UnicodeDecodeError as error:
            raise _damaged("a text is no UTF-8") from error


def _damaged(reason: str) -> BrokenModelFile:
    return BrokenModelFile(f"The .cbm file is damaged: {reason}. Save the model again.")


def parse_binary(content: bytes) -> CatBoostModel:
    """Read and check a model."""
    start = len(MAGIC) + 4
    size = int(_Buffer(content).number(len(MAGIC), "<I"))
    if not content.startswith(MAGIC) or start + size > len(content):
        raise _damaged("it is cut off")
    buffer = _Buffer(content[start : start + size])
    core = _Table(buffer, int(buffer.number(0, "<I")), _CORE_FIELDS)
    trees = core.table(_CORE_TREES, _TREES_FIELDS)
    if trees is None:
        raise _damaged("it has no trees")
    for word, field in (("text", _TEXT), ("embedding", _EMBEDDING), ("estimated", _ESTIMATED)):
        if len(trees.array(field, "<u4")):
            raise UnsupportedModel(
                f"Models with {word} features cannot be represented. Train without them."
            )
    features = _features(trees)
    check_features(features)
    information = _information(core)
    _check_unread_parts(core, trees, features)
    dimension = int(trees.number(_DIMENSION, "<i", 0))
    if dimension < 1:
        raise _damaged("its leaf values do not fit its trees")
    is_oblivious = len(trees.array(_STEPS, "<u4")) == 0
    return CatBoostModel(
        features_info=features,
        n_outputs=dimension,
        trees=(_oblivious_trees if is_oblivious else _free_trees)(trees, dimension),
        scale=float(trees.number(_SCALE, "<d", 1.0)),
        bias=tuple(trees.array(_MULTI_BIAS, "<f8").tolist() or [trees.number(_BIAS, "<d", 0.0)]),
        info=information,
    )


def _features(trees: _Table) -> FeaturesInfo:
    treatments = ("AsIs", "AsFalse", "AsTrue")
    numeric = []
    for table in trees.tables(_FLOAT, 6):
        treatment = int(table.number(5, "<b", 0))
        if not 0 <= treatment < len(treatments):
            raise _damaged("the treatment of missing values is unknown")
        numeric.append(
            FloatFeature(
                feature_index=int(table.number(1, "<i", -1)),
                flat_feature_index=int(table.number(2, "<i", -1)),
                has_nans=bool(table.number(0, "<B", 0)),
                nan_value_treatment=treatments[treatment],  # type: ignore[arg-type]
                borders=tuple(table.array(3, "<f4").astype(np.float64).tolist()),
                feature_id=table.text(4),
            )
        )
    one_hot = {
        int(table.number(0, "<i", -1)): tuple(table.array(1, "<i4").tolist())
        for table in trees.tables(_ONE_HOT, 3)
    }
    categorical = tuple(
        CategoricalFeature(
            feature_index=int(table.number(0, "<i", -1)),
            flat_feature_index=int(table.number(1, "<i", -1)),
            values=one_hot.get(int(table.number(0, "<i", -1)), ()),
            feature_id=table.text(2),
        )
        for table in trees.tables(_CATEGORICAL, 4)
    )
    unused = [not table.number(3, "<B", 1) for table in trees.tables(_CATEGORICAL, 4)]
    if any(no and feature.values for no, feature in zip(unused, categorical, strict=True)):
        raise _damaged("a feature that is marked as unused is used")
    indices = [feature.feature_index for feature in categorical if feature.values]
    if indices != list(one_hot):
        raise _damaged("one-hot values must belong to categorical features, in order")
    return FeaturesInfo(float_features=tuple(numeric), categorical_features=categorical)


def _information(core: _Table) -> dict[str, Any]:
    """Key-value pairs; those that hold JSON become objects, as in CatBoost's JSON files."""
    found: dict[str, Any] = {}
    for pair in core.tables(_CORE_INFO, 2):
        key, value = pair.text(0), pair.text(1)
        try:
            found[key] = json.loads(value) if key in ("params", "class_params") and value else value
        except (ValueError, RecursionError) as error:
            raise _damaged(f"its '{key}' is no JSON") from error
    return found


def _check_unread_parts(core: _Table, trees: _Table, features: FeaturesInfo) -> None:
    """Refuse damage to what CatBoost uses beside the tables that are read here."""
    splits = _packed_splits(features)
    asked = trees.array(_SPLITS, "<i4")
    if len(core.array(_CORE_PARTS, "<u4")) or len(trees.array(_CTR, "<u4")):
        raise UnsupportedModel(f"{_first_beyond(trees, len(splits))} {CTR_REFUSAL}")
    if (len(trees.array(_STEPS, "<u4")) == 0) != (len(trees.array(_LEAF_OF_NODE, "<u4")) == 0):
        raise _damaged("its arrays of nodes differ in length")
    n_leaves = len(trees.array(_LEAVES, "<f8")) // max(int(trees.number(_DIMENSION, "<i", 0)), 1)
    if len(trees.array(_WEIGHTS, "<f8")) not in (0, n_leaves):
        raise _damaged("its weights do not fit its leaves")
    packed = np.array(splits or [(0, 0, 0)], dtype="<u2,u1,u1")
    if np.any((asked < 0) | (asked >= len(packed))):
        raise _damaged("a tree asks a split that does not exist")
    stored = trees.array(_PACKED, "<u2,u1,u1")
    if len(stored) and not np.array_equal(stored, packed[asked]):
        raise _damaged("its packed splits differ from its splits")


def _first_beyond(trees: _Table, n_splits: int) -> str:
    """Place of the first split that is numbered after those of numbers and categories."""
    beyond = np.flatnonzero(trees.array(_SPLITS, "<i4") >= n_splits)
    starts = trees.array(_STARTS, "<i4")
    tree = int(np.searchsorted(starts, beyond[0], side="right")) - 1 if beyond.size else -1
    return "The model" if tree < 0 else f"Tree {tree}, split {beyond[0] - starts[tree]}"


def _packed_splits(features: FeaturesInfo) -> list[tuple[int, int, int]]:
    """Each split as CatBoost's evaluation takes it: a group of values, a mask, and a place."""
    found: list[tuple[int, int, int]] = []
    group = 0
    for kind, lengths in (
        ("border", [len(feature.borders or ()) for feature in features.float_features or ()]),
        ("value", [len(feature.values or ()) for feature in features.categorical_features or ()]),
    ):
        for length in lengths:
            for number in range(length):
                at, place = group + number // _VALUES_PER_BIN, number % _VALUES_PER_BIN + 1
                found.append((at, 0, place) if kind == "border" else (at, 255 - place, 255))
            group += -(-length // _VALUES_PER_BIN)
    return found


def _tree_ranges(trees: _Table, n_entries: int) -> list[tuple[int, int]]:
    """First entry and number of entries of each tree, one tree after another."""
    sizes, starts = trees.array(_SIZES, "<i4"), trees.array(_STARTS, "<i4")
    ends = np.cumsum(sizes.astype(np.int64))
    fits = int(sizes.sum(dtype=np.int64)) == n_entries
    if np.any(sizes < 0) or not np.array_equal(starts, ends - sizes) or not fits:
        raise _damaged("the sizes of its trees do not add up")
    return list(zip(starts.tolist(), sizes.tolist(), strict=True))


def _oblivious_trees(trees: _Table, dimension: int) -> list[Tree]:
    asked = trees.array(_SPLITS, "<i4").astype(np.int64)
    leaves = trees.array(_LEAVES, "<f8")
    found, first = [], 0
    for start, depth in _tree_ranges(trees, len(asked)):
        last = first + dimension * 2 ** min(depth, MAX_TREE_DEPTH + 1)
        if depth > MAX_TREE_DEPTH or last > len(leaves):
            raise _damaged("its leaf values do not fit its trees")
        values = leaves[first:last].reshape(-1, dimension)
        found.append(oblivious_tree(asked[start : start + depth], values))
        first = last
    if first != len(leaves):
        raise _damaged("its leaf values do not fit its trees")
    return found


def _free_trees(trees: _Table, dimension: int) -> list[Tree]:
    steps = trees.array(_STEPS, "<u2,<u2")
    left, right = steps["f0"].astype(np.int64), steps["f1"].astype(np.int64)
    asked = trees.array(_SPLITS, "<i4").astype(np.int64)
    leaf_of = trees.array(_LEAF_OF_NODE, "<u4").astype(np.int64)
    leaves = trees.array(_LEAVES, "<f8")
    if not len(steps) == len(asked) == len(leaf_of):
        raise _damaged("its arrays of nodes differ in length")
    ends = (left == 0) | (right == 0)
    if np.any(ends & ((leaf_of % dimension != 0) | (leaf_of + dimension > len(leaves)))):
        raise _damaged("a leaf has no value")
    found = []
    for start, size in _tree_ranges(trees, len(steps)):
        part = slice(start, start + size)
        found.append(
            _free_tree(left[part], right[part], asked[part], leaf_of[part], leaves, dimension)
        )
    return found


def _free_tree(
    left: IntArray,
    right: IntArray,
    asked: IntArray,
    leaf_of: IntArray,
    leaves: FloatArray,
    dimension: int,
) -> Tree:
    """Tree of nodes that count the steps to their children.

    Two steps of 0 make a leaf. One of them is a leaf that belongs to the node itself; it becomes a
    node of its own behind the others.
    """
    nodes = np.arange(len(left))
    # Children come after their parent, so one parent for every node but the first is a tree.
    children = np.concatenate([(nodes + left)[left > 0], (nodes + right)[right > 0]])
    if len(nodes) == 0 or not np.array_equal(np.sort(children), nodes[1:]):
        raise _damaged("its nodes do not form trees")
    inner = (left > 0) | (right > 0)
    own = np.flatnonzero(inner & ((left == 0) | (right == 0)))
    place = np.zeros(len(nodes), dtype=np.int64)
    place[own] = len(nodes) + np.arange(len(own))
    none = np.full(len(own), -1)
    sides = [
        np.concatenate([np.where(inner, np.where(step > 0, nodes + step, place), -1), none])
        for step in (left, right)
    ]
    first = np.concatenate([np.where(inner, -1, leaf_of), leaf_of[own]])
    leaf = first >= 0
    value = np.zeros((len(first), dimension))
    value[leaf] = leaves[first[leaf][:, np.newaxis] + np.arange(dimension)]
    number = np.where(leaf, (first - first[leaf].min()) // dimension, 0)
    split = np.concatenate([np.where(inner, asked, 0), np.zeros(len(own), dtype=np.int64)])
    return Tree(sides[0], sides[1], split, value, number)
