"""CatBoost's binary format (.cbm), read without CatBoost.

A magic word, a length, and a FlatBuffers table. CatBoost trusts the numbers in it and crashes on
many damaged files, so everything that it uses is checked here first.
"""

import json
import struct
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.catboost.model import (
    MAX_TREE_DEPTH,
    CatBoostModel,
    CategoricalFeature,
    FeaturesInfo,
    FloatFeature,
    Node,
    ObliviousTree,
    Split,
    check_features,
    split_table,
)

MAGIC = b"CBM1"

_MAX_FREE_DEPTH = 256
"""Nested nodes are walked by Python's own memory management, which must not go too deep."""

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


def parse_binary(content: bytes) -> tuple[CatBoostModel, list[list[int]] | None]:
    """Read and check a model.

    Returns
    -------
    CatBoostModel
        The model.
    list of list of int or None
        CatBoost's numbers of the leaves of trees of any shape, each tree from left to right.
    """
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
    dimension = int(trees.number(_DIMENSION, "<i", 0))
    bias = trees.array(_MULTI_BIAS, "<f8").tolist() or [trees.number(_BIAS, "<d", 0.0)]
    model = CatBoostModel(
        features_info=_features(trees),
        scale_and_bias=(float(trees.number(_SCALE, "<d", 1.0)), tuple(bias)),
        model_info=_information(core),
    )
    check_features(model)
    splits = _splits(model)
    _check_unread_parts(core, trees, model)
    if len(trees.array(_STEPS, "<u4")) == 0:
        oblivious = _oblivious_trees(trees, splits, dimension)
        return msgspec.structs.replace(model, oblivious_trees=oblivious), None
    free, numbers = _free_trees(trees, splits, dimension)
    return msgspec.structs.replace(model, trees=free), numbers


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


def _splits(model: CatBoostModel) -> list[Split]:
    """Every entry of the list of splits that trees refer to by number."""
    found = []
    for number, (kind, index, value) in enumerate(split_table(model)):
        if kind == "OneHotFeature":
            found.append(Split(kind, number, cat_feature_index=index, value=int(value)))
        else:
            found.append(Split(kind, number, float_feature_index=index, border=value))
    return found


def _check_unread_parts(core: _Table, trees: _Table, model: CatBoostModel) -> None:
    """Refuse damage to what CatBoost uses beside the tables that are read here."""
    if len(core.array(_CORE_PARTS, "<u4")) or len(trees.array(_CTR, "<u4")):
        raise UnsupportedModel(
            "The .cbm file holds statistics of categories (CTR) or of texts, which cannot be"
            " represented. Train with one_hot_max_size above the number of categories of every"
            " feature, or encode categories before training."
        )
    if (len(trees.array(_STEPS, "<u4")) == 0) != (len(trees.array(_LEAF_OF_NODE, "<u4")) == 0):
        raise _damaged("its arrays of nodes differ in length")
    n_leaves = len(trees.array(_LEAVES, "<f8")) // max(int(trees.number(_DIMENSION, "<i", 0)), 1)
    if len(trees.array(_WEIGHTS, "<f8")) not in (0, n_leaves):
        raise _damaged("its weights do not fit its leaves")
    packed = np.array(_packed_splits(model) or [(0, 0, 0)], dtype="<u2,u1,u1")
    asked = trees.array(_SPLITS, "<i4")
    if np.any((asked < 0) | (asked >= len(packed))):
        raise _damaged("a tree asks a split that does not exist")
    stored = trees.array(_PACKED, "<u2,u1,u1")
    if len(stored) and not np.array_equal(stored, packed[asked]):
        raise _damaged("its packed splits differ from its splits")


def _packed_splits(model: CatBoostModel) -> list[tuple[int, int, int]]:
    """Each split as CatBoost's evaluation takes it: a group of values, a mask, and a place."""
    found: list[tuple[int, int, int]] = []
    group = 0
    for kind, lengths in (
        ("border", [len(feature.borders or ()) for feature in model.float_features]),
        ("value", [len(feature.values or ()) for feature in model.categorical_features]),
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


def _oblivious_trees(
    trees: _Table, splits: list[Split], dimension: int
) -> tuple[ObliviousTree, ...]:
    asked = trees.array(_SPLITS, "<i4")
    leaves = trees.array(_LEAVES, "<f8")
    found, first = [], 0
    for start, depth in _tree_ranges(trees, len(asked)):
        last = first + dimension * 2 ** min(depth, MAX_TREE_DEPTH + 1)
        if depth > MAX_TREE_DEPTH or dimension < 1 or last > len(leaves):
            raise _damaged("its leaf values do not fit its trees")
        values = tuple(leaves[first:last].tolist())
        tree_splits = tuple(splits[number] for number in asked[start : start + depth].tolist())
        found.append(ObliviousTree(leaf_values=values, splits=tree_splits))
        first = last
    if first != len(leaves):
        raise _damaged("its leaf values do not fit its trees")
    return tuple(found)


def _free_trees(
    trees: _Table, splits: list[Split], dimension: int
) -> tuple[tuple[Node, ...], list[list[int]]]:
    steps = trees.array(_STEPS, "<u2,<u2")
    left, right = steps["f0"].astype(np.int64), steps["f1"].astype(np.int64)
    asked = trees.array(_SPLITS, "<i4")
    leaf_of = trees.array(_LEAF_OF_NODE, "<u4").astype(np.int64)
    leaves = trees.array(_LEAVES, "<f8")
    inner = (left > 0) | (right > 0)
    if not len(steps) == len(asked) == len(leaf_of) or dimension < 1:
        raise _damaged("its arrays of nodes differ in length")
    if len(splits) == 0 and inner.any():
        raise _damaged("a tree asks a split that does not exist")
    ends = (left == 0) | (right == 0)
    if np.any(ends & ((leaf_of % dimension != 0) | (leaf_of + dimension > len(leaves)))):
        raise _damaged("a leaf has no value")
    found, numbers = [], []
    for start, size in _tree_ranges(trees, len(steps)):
        part = slice(start, start + size)
        _check_tree(left[part], right[part])
        nodes: list[Node | None] = [None] * size
        for node in reversed(range(size)):
            place = start + node
            first = int(leaf_of[place])
            value = tuple(leaves[first : first + dimension].tolist())
            own = Node(value=value if dimension > 1 else value[0]) if ends[place] else None
            nodes[node] = own
            if inner[place]:
                nodes[node] = Node(
                    split=splits[int(asked[place])],
                    left=nodes[node + int(left[place])] if left[place] else own,
                    right=nodes[node + int(right[place])] if right[place] else own,
                )
        root = nodes[0]
        if root is None:
            raise _damaged("a tree has no nodes")
        found.append(root)
        numbers.append(_leaf_numbers(left[part], right[part], leaf_of[part] // dimension))
    return tuple(found), numbers


def _check_tree(left: NDArray[np.int64], right: NDArray[np.int64]) -> None:
    """Children come after their parent, so one parent for every node but the first is a tree."""
    nodes = np.arange(len(left))
    children = np.concatenate([(nodes + left)[left > 0], (nodes + right)[right > 0]])
    if len(left) == 0 or not np.array_equal(np.sort(children), nodes[1:]):
        raise _damaged("its nodes do not form trees")
    depth = [0] * len(left)
    for node, steps in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        for step in steps:
            if step:
                depth[node + step] = depth[node] + 1
    if max(depth) > _MAX_FREE_DEPTH:
        raise _damaged(f"a tree is deeper than {_MAX_FREE_DEPTH} levels")


def _leaf_numbers(
    left: NDArray[np.int64], right: NDArray[np.int64], leaf_of: NDArray[np.int64]
) -> list[int]:
    """Numbers of a tree's leaves from left to right, counted from its first one."""
    order: list[int] = []
    # A step of 0 is a leaf that belongs to the node itself; both 0 mean that it is one leaf.
    stack = [(0, False)]
    while stack:
        node, is_leaf = stack.pop()
        step_left, step_right = int(left[node]), int(right[node])
        if is_leaf or step_left == step_right == 0:
            order.append(int(leaf_of[node]))
        else:
            stack.append((node + step_right, step_right == 0))
            stack.append((node + step_left, step_left == 0))
    smallest = min(order)
    return [number - smallest for number in order]
