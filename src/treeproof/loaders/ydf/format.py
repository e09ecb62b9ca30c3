"""The directory of a YDF model: headers, the columns of its data, and the nodes of its trees."""

import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, InvalidInput, UnsupportedModel
from treeproof.loaders.protobuf import Message

NUMERICAL, CATEGORICAL, BOOLEAN, DISCRETIZED = 1, 4, 7, 9
GRADIENT_BOOSTED, RANDOM_FOREST = "GRADIENT_BOOSTED_TREES", "RANDOM_FOREST"
_HEADERS = {
    GRADIENT_BOOSTED: "gradient_boosted_trees_header.pb",
    RANDOM_FOREST: "random_forest_header.pb",
}
_COLUMNS_FILE = "data_spec.pb"

MAX_BYTES = 4 * 2**30
MAX_UNPACKED = 2**30
"""Bytes of nodes after decompression; a bomb is stopped there."""


@dataclass(frozen=True)
class Column:
    """A column of the data that a model was trained on."""

    kind: int
    name: str
    names: tuple[str, ...]
    """Categories by their numbers; the first stands for all that are not in the dictionary."""
    boundaries: NDArray[np.float32]


@dataclass(frozen=True)
class Directory:
    """A model as it is stored."""

    name: str
    task: int
    label: Column
    columns: tuple[Column, ...]
    """The columns that it reads, in their order."""
    position: dict[int, int]
    """Place among them of each column by its number in the data."""
    header: Message
    """That of the kind of model."""
    nodes: tuple[bytes, ...]
    n_trees: int
    sha256: str


def is_directory(path: Path) -> bool:
    """Whether a directory holds a YDF model."""
    return any(path.glob(f"*{_COLUMNS_FILE}"))


def read_directory(path: Path) -> Directory:
    """Read every part of a model; all of it is checked as it is used."""
    found = sorted(path.glob(f"*{_COLUMNS_FILE}"))
    if len(found) != 1:
        raise BrokenModelFile(f"The directory '{path}' must hold one YDF model. Got {len(found)}.")
    prefix = found[0].name.removesuffix(_COLUMNS_FILE)
    digest = hashlib.sha256()

    def content(name: str) -> bytes:
        file = path / f"{prefix}{name}"
        try:
            if file.stat().st_size > MAX_BYTES:
                raise BrokenModelFile(f"The file '{file}' is larger than any model.")
            data = file.read_bytes()
        except OSError as error:
            raise InvalidInput(
                f"The model file '{file}' cannot be read: {error.strerror or error}."
            ) from error
        digest.update(f"{name} {len(data)}\n".encode())
        digest.update(data)
        return data

    main = Message(content("header.pb"))
    columns = [_column(found) for found in Message(content(_COLUMNS_FILE)).messages(1)]
    name, inputs = main.text(1), main.integers(5).tolist()
    if name not in _HEADERS:
        raise UnsupportedModel(
            f"A YDF model must be one of {', '.join(_HEADERS)}. Got {name[:60]!r}."
        )
    if 16 in main:
        raise UnsupportedModel(
            "A YDF model must not calibrate its scores after the trees. Got a postprocessor."
        )
    label = main.integer(3)
    if not all(0 <= number < len(columns) for number in (label, *inputs)) or not inputs:
        raise BrokenModelFile("The YDF model reads columns that its data does not have.")
    if len(set(inputs)) != len(inputs):
        raise BrokenModelFile("The YDF model reads a column twice.")
    header = Message(content(_HEADERS[name]))
    n_shards, n_trees = header.integer(1, 1), header.integer(2)
    if not 0 < n_shards < 10_000 or n_trees < 1:
        raise BrokenModelFile(f"The YDF model has {n_trees} trees in {n_shards} files.")
    words = header.text(7)
    nodes: list[bytes] = []
    for shard in range(n_shards):
        nodes += _blobs(content(f"nodes-{shard:05d}-of-{n_shards:05d}"), words)
    return Directory(
        name=name,
        task=main.integer(2),
        label=columns[label],
        columns=tuple(columns[number] for number in inputs),
        position={number: place for place, number in enumerate(inputs)},
        header=header,
        nodes=tuple(nodes),
        n_trees=n_trees,
        sha256=digest.hexdigest(),
    )


def _column(message: Message) -> Column:
    kind, name = message.integer(1), message.text(2)
    names: tuple[str, ...] = ()
    boundaries = message.message(8).reals(1)
    if kind == CATEGORICAL:
        names = _dictionary(message.message(6), name)
    if kind == DISCRETIZED and np.any(np.diff(boundaries) <= 0):
        raise BrokenModelFile(f"The boundaries of column {name!r} must rise.")
    return Column(kind, name, names, boundaries)


def _dictionary(message: Message, name: str) -> tuple[str, ...]:
    """Categories by their numbers."""
    n = message.integer(2)
    if message.integer(5):
        # Whole numbers that are their own codes.
        return tuple(map(str, range(min(max(n, 0), 1 << 20))))
    found = {entry.message(2).integer(1): entry.text(1) for entry in message.messages(7)}
    if not found or sorted(found) != list(range(len(found))) or n != len(found):
        raise BrokenModelFile(f"The categories of column {name!r} must be numbered from 0.")
    return tuple(found[number] for number in range(n))


def _blobs(content: bytes, words: str) -> Iterator[bytes]:
    """The nodes in a file: a short head, then lengths and messages."""
    if words not in ("BLOB_SEQUENCE", "BLOB_SEQUENCE_GZIP") or content[:2] != b"BS":
        raise UnsupportedModel(
            f"The nodes of a YDF model must be a BLOB_SEQUENCE. Got {words[:40]!r}. Save the model"
            " with a current YDF."
        )
    data = content[8:]
    if len(content) > 4 and content[4] == 1:
        unpacker = zlib.decompressobj(wbits=47)
        try:
            data = unpacker.decompress(data, MAX_UNPACKED)
        except zlib.error as error:
            raise BrokenModelFile("The nodes of the YDF model cannot be unpacked.") from error
        if unpacker.unconsumed_tail:
            raise UnsupportedModel("The nodes of the YDF model unpack to more than 1 GB.")
    at = 0
    while at < len(data):
        if at + 4 > len(data):
            raise BrokenModelFile("The nodes of the YDF model end in the middle.")
        (length,) = struct.unpack_from("<I", data, at)
        if length > len(data) - at - 4:
            raise BrokenModelFile("The nodes of the YDF model end in the middle.")
        yield data[at + 4 : at + 4 + length]
        at += 4 + length
