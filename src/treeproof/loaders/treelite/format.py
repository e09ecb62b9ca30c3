"""Reads treelite's checkpoint format, version 4, without treelite.

The format is a plain sequence of little-endian scalars and of arrays with their length in front.
Every length is checked against what is left of the file and against the number of nodes, so a
damaged file is refused before anything is allocated for it.
"""

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.rules import Precision

FORMAT_VERSION = 4
"""Major version of treelite that writes this format."""

MAX_FEATURES = 1 << 20
"""More columns than dense rows can have; a damaged file may claim any number."""

LEAF, NUMERIC, CATEGORY = 0, 1, 2
LESS, LESS_EQUAL, GREATER, GREATER_EQUAL = 2, 3, 4, 5
TASKS = ("kBinaryClf", "kRegressor", "kMultiClf", "kLearningToRank", "kIsolationForest")

_FLOATS: dict[int, np.dtype[Any]] = {2: np.dtype("<f4"), 3: np.dtype("<f8")}
_HEAD = struct.Struct("<iiiBB")


@dataclass(frozen=True, slots=True)
class CheckpointTree:
    """One tree, arrays by node; leaf vectors and category lists by their ranges."""

    node_type: NDArray[np.int8]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    feature: NDArray[np.int32]
    default_left: NDArray[np.bool_]
    leaf_value: NDArray[np.floating]
    threshold: NDArray[np.floating]
    comparison: NDArray[np.int8]
    category_right: NDArray[np.bool_]
    leaf_vector: NDArray[np.floating]
    vector_begin: NDArray[np.uint64]
    vector_end: NDArray[np.uint64]
    category: NDArray[np.uint32]
    category_begin: NDArray[np.uint64]
    category_end: NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A whole model as treelite stores it."""

    version: str
    precision: Precision
    n_features: int
    task: str
    is_average: bool
    n_classes: tuple[int, ...]
    leaf_shape: tuple[int, ...]
    target: NDArray[np.int32]
    class_number: NDArray[np.int32]
    postprocessor: str
    sigmoid_alpha: float
    base_scores: NDArray[np.float64]
    trees: list[CheckpointTree] = field(default_factory=list)


def is_checkpoint(head: bytes) -> bool:
    """Whether the first bytes of a file look like a checkpoint of the known version."""
    if len(head) < _HEAD.size:
        return False
    major, minor, patch, threshold, leaf = _HEAD.unpack_from(head)
    return (
        major == FORMAT_VERSION
        and 0 <= minor < 100
        and 0 <= patch < 100
        and threshold == leaf
        and threshold in _FLOATS
    )


def read_checkpoint(content: bytes) -> Checkpoint:
    """Parse a checkpoint; anything that does not add up is a `BrokenModelFile`."""
    reader = _Reader(content)
    major, minor, patch = (reader.scalar("<i") for _ in range(3))
    version = f"{major}.{minor}.{patch}"
    if major != FORMAT_VERSION:
        raise UnsupportedModel(
            f"A treelite checkpoint must be of version {FORMAT_VERSION}. Got {version}."
            " Load it with treelite and serialize it again with a current release."
        )
    threshold_type, leaf_type = reader.scalar("<B"), reader.scalar("<B")
    if threshold_type not in _FLOATS or leaf_type != threshold_type:
        raise BrokenModelFile(
            "Thresholds and leaves of a treelite checkpoint must both be float32 or float64."
            f" Got type codes {threshold_type} and {leaf_type}."
        )
    precision = _FLOATS[int(threshold_type)]
    n_trees = int(reader.scalar("<Q"))
    # A tree takes far more than a byte, so this bounds the loop below by the size of the file.
    if n_trees > len(content):
        raise BrokenModelFile(f"The file is too small for {n_trees} trees.")
    checkpoint = _read_header(reader, version, precision, n_trees)
    for number in range(n_trees):
        checkpoint.trees.append(_read_tree(reader, precision, number))
    reader.finish()
    return checkpoint


def _read_header(
    reader: "_Reader", version: str, precision: np.dtype[Any], n_trees: int
) -> Checkpoint:
    n_features = int(reader.scalar("<i"))
    task = int(reader.scalar("<B"))
    is_average = reader.boolean()
    n_targets = int(reader.scalar("<i"))
    if task >= len(TASKS) or not 1 <= n_features <= MAX_FEATURES or n_targets < 1:
        raise BrokenModelFile(
            f"A checkpoint must have a known task, 1 to {MAX_FEATURES} features, and targets."
            f" Got task {task}, {n_features} features, {n_targets} targets."
        )
    checkpoint = Checkpoint(
        version=version,
        precision="float32" if precision.itemsize == 4 else "float64",
        n_features=n_features,
        task=TASKS[task],
        is_average=is_average,
        n_classes=tuple(reader.array("<i4", (n_targets,)).tolist()),
        leaf_shape=tuple(reader.array("<i4", (2,)).tolist()),
        target=reader.array("<i4", (n_trees,)),
        class_number=reader.array("<i4", (n_trees,)),
        postprocessor=reader.text(),
        sigmoid_alpha=float(reader.scalar("<f")),
        base_scores=reader.array("<f8", None, skip="<f"),
    )
    reader.text()  # attributes, for people
    reader.no_extension()
    return checkpoint


def _read_tree(reader: "_Reader", precision: np.dtype[Any], number: int) -> CheckpointTree:
    n_nodes = int(reader.scalar("<i"))
    if n_nodes < 1:
        raise BrokenModelFile(f"Tree {number} must have at least one node. Got {n_nodes}.")
    reader.boolean()  # whether there are categorical splits; the node types say it, too
    one, any_or_one = (n_nodes,), (0, n_nodes)
    tree = CheckpointTree(
        node_type=reader.array("<i1", one),
        left=reader.array("<i4", one),
        right=reader.array("<i4", one),
        feature=reader.array("<i4", one),
        default_left=reader.booleans(one),
        leaf_value=reader.array(precision, one),
        threshold=reader.array(precision, one),
        comparison=reader.array("<i1", one),
        category_right=reader.booleans(one),
        leaf_vector=reader.array(precision, None),
        vector_begin=reader.array("<u8", one),
        vector_end=reader.array("<u8", one),
        category=reader.array("<u4", None),
        category_begin=reader.array("<u8", one),
        category_end=reader.array("<u8", one),
    )
    for kind in ("<u8", "<f8", "<f8"):  # counts, hessians and gains, each with its presence
        reader.array(kind, any_or_one)
        reader.booleans(any_or_one)
    reader.no_extension()
    reader.no_extension()
    is_leaf = tree.node_type == LEAF
    if np.any(is_leaf != (tree.left == -1)) or np.any(is_leaf != (tree.right == -1)):
        raise BrokenModelFile(f"Tree {number}: exactly the leaves must have no children.")
    return tree


class _Reader:
    """Walks over the bytes of a checkpoint."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def scalar(self, kind: str) -> int | float:
        size = struct.calcsize(kind)
        self._need(size)
        value: int | float = struct.unpack_from(kind, self._content, self._position)[0]
        self._position += size
        return value

    def boolean(self) -> bool:
        value = self.scalar("<B")
        if value not in (0, 1):
            raise BrokenModelFile(
                f"A yes-or-no field of the checkpoint must be 0 or 1. Got {value}."
            )
        return bool(value)

    def array(
        self, kind: DTypeLike, lengths: tuple[int, ...] | None, *, skip: str = ""
    ) -> NDArray[Any]:
        """Array with its length in front, which must be one of `lengths` where given.

        A scalar before it that decides nothing here can be skipped.
        """
        if skip:
            self.scalar(skip)
        dtype = np.dtype(kind)
        length = int(self.scalar("<Q"))
        if lengths is not None and length not in lengths:
            raise BrokenModelFile(
                f"An array of the checkpoint must have length {' or '.join(map(str, lengths))}."
                f" Got {length}."
            )
        self._need(length * dtype.itemsize)
        values = np.frombuffer(self._content, dtype=dtype, count=length, offset=self._position)
        self._position += length * dtype.itemsize
        return values

    def booleans(self, lengths: tuple[int, ...]) -> NDArray[np.bool_]:
        values = self.array("<u1", lengths)
        if np.any(values > 1):
            raise BrokenModelFile("Yes-or-no fields of the checkpoint must be 0 or 1.")
        return values.astype(bool)

    def text(self) -> str:
        try:
            return self.array("<u1", None).tobytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise BrokenModelFile(f"A text of the checkpoint is no UTF-8: {error}.") from error

    def no_extension(self) -> None:
        count = self.scalar("<i")
        if count != 0:
            raise UnsupportedModel(
                "A checkpoint must have no optional fields, whose meaning nobody has defined yet."
                f" Got {count}."
            )

    def finish(self) -> None:
        rest = len(self._content) - self._position
        if rest:
            raise BrokenModelFile(
                f"A checkpoint must end after its last tree. Got {rest} more bytes."
            )

    def _need(self, size: int) -> None:
        if size > len(self._content) - self._position:
            raise BrokenModelFile(
                f"The checkpoint ends too early: {size} bytes are needed at byte"
                f" {self._position}, but there are {len(self._content) - self._position}."
            )
