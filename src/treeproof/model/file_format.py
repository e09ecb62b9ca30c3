"""treeproof's own model file: versioned, safe to open, compact, bit-exact.

Layout, all numbers little-endian (docs/reference/model-file.md):

=============  =====  ==========================================================================
offset         bytes  content
=============  =====  ==========================================================================
0              16     magic bytes
16             4      format version
20             4      length of the header, h
24             8      length of the arrays, a
32             h      header: JSON with the semantics, the provenance and a table of arrays
32 + h         a      the arrays, one zlib stream each, bytes of equal weight side by side
32 + h + a     32     SHA-256 of everything before
=============  =====  ==========================================================================

The magic bytes, the version and the closing hash keep their places in every future version, so that
a damaged file can always be told from a newer one. Nothing in a file is ever executed.
"""

import hashlib
import math
import os
import struct
import zlib
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, InvalidInput
from treeproof.files import prepare_records, replacing
from treeproof.model.builder import MAX_DEPTH
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance, TreeArrays
from treeproof.model.inspection import tree_depths

MAGIC = b"\x89treeproof\r\n\x1a\n\x00\x00"
"""Begins every file; the line ends show a transfer in text mode at once."""

VERSION = 1

_FIXED = struct.Struct("<16sIIQ")
_HASH_BYTES = 32
_FREE_BYTES = 64 * 2**20
_MAX_RATIO = 64
"""Arrays may grow to `_FREE_BYTES`, or to this multiple of what is stored: no bombs."""

_DTYPES = {
    "root": "<i4",
    "feature": "<i4",
    "threshold": "<f8",
    "right": "<i4",  # as distance from the node, 0 at leaves: small numbers compress well
    "flags": "|u1",
    "category_set": "<i4",
    "set_offset": "<i8",
    "set_words": "<u4",
    "leaf_value": "<f8",
    "leaf_source": "<i4",
    "tree_output": "<i4",
}
"""What is stored; `left` and `leaf` follow from the preorder."""

_PLAIN = ("n_features", "n_outputs", "input_precision", "missing_allowed", "infinite_allowed")
"""Fields of an ensemble that the header has as they are."""


class _Special(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A float that JSON has no number for."""

    float: Literal["nan", "inf", "-inf"]


_Scalar = None | bool | int | float | str | _Special


class _Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    stored: int


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    writer: str
    n_features: int
    n_outputs: int
    input_precision: Literal["float32", "float64"]
    aggregation: dict[str, Any]
    decision: dict[str, Any]
    classes: tuple[_Scalar, ...]
    feature_names: tuple[str, ...]
    categories: tuple[tuple[int, tuple[_Scalar, ...]], ...]
    categorical: tuple[int, ...] = ()
    required: tuple[tuple[int, tuple[int, ...]], ...] = ()
    missing_allowed: bool
    infinite_allowed: bool
    provenance: dict[str, Any]
    arrays: tuple[_Array, ...]


prepare_records(_Header, Aggregation, Decision, Provenance)


def is_saved(head: bytes) -> bool:
    """Whether the first bytes of a file are those of this format."""
    return head.startswith(MAGIC)


def save_ensemble(ensemble: Ensemble, path: str | os.PathLike[str]) -> None:
    """Write an ensemble so that `load_saved` gives back the same bits, provenance included.

    An existing file is replaced in one step, or left alone when writing fails.
    """
    content = encode_ensemble(ensemble)
    with replacing(path, "The model file") as file:
        file.write(content)


def load_saved(path: str | os.PathLike[str]) -> Ensemble:
    """Read an ensemble that `save_ensemble` wrote."""
    source = Path(path)
    try:
        with source.open("rb") as stream:
            head = stream.read(len(MAGIC))
            # Sound: only a file that claims to be ours is read to its end.
            content = head + stream.read() if is_saved(head) else head
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"The model file '{source}' cannot be read: {reason}.") from error
    try:
        return decode_ensemble(content)
    except BrokenModelFile as error:
        raise BrokenModelFile(f"{source.name}: {error}") from error


def encode_ensemble(ensemble: Ensemble) -> bytes:
    """An ensemble as the bytes of its file."""
    stored = _stored_arrays(ensemble.trees)
    streams = [zlib.compress(_shuffle(array), 6) for array in stored.values()]
    raw_bytes = sum(array.nbytes for array in stored.values())
    if raw_bytes > _allowed_bytes(sum(map(len, streams))):
        # So regular that a reader would take it for a bomb: store it plainly.
        streams = [zlib.compress(_shuffle(array), 0) for array in stored.values()]
    header = _Header(
        writer=_writer(),
        **{name: getattr(ensemble, name) for name in _PLAIN},
        aggregation=_plain_fields(ensemble.aggregation),
        decision=_plain_fields(ensemble.decision),
        classes=tuple(_plain_scalar(value, "class label") for value in ensemble.classes),
        feature_names=tuple(str(name) for name in ensemble.feature_names),
        categories=tuple(
            (int(feature), tuple(_plain_scalar(value, "category") for value in values))
            for feature, values in sorted(ensemble.categories.items())
        ),
        categorical=tuple(int(feature) for feature in ensemble.categorical),
        required=tuple(sorted(ensemble.required.items())),
        provenance=_plain_provenance(ensemble.provenance),
        arrays=tuple(
            _Array(name, _DTYPES[name], array.shape, len(stream))
            for (name, array), stream in zip(stored.items(), streams, strict=True)
        ),
    )
    try:
        text = msgspec.json.encode(header)
    except UnicodeEncodeError as error:
        raise InvalidInput(f"Names in a saved model must be valid Unicode: {error}.") from error
    fixed = _FIXED.pack(MAGIC, VERSION, len(text), sum(map(len, streams)))
    content = b"".join([fixed, text, *streams])
    return content + hashlib.sha256(content).digest()


def _writer() -> str:
    try:
        return metadata.version("treeproof")
    except metadata.PackageNotFoundError:
        return "unknown"


_LATER = ("options", "own_classes")


def _plain_provenance(provenance: Provenance) -> dict[str, Any]:
    """Fields of a provenance; what is empty is left out."""
    plain = _plain_fields(provenance)
    return {name: value for name, value in plain.items() if value or name not in _LATER}


def _plain_fields(value: Any) -> dict[str, Any]:
    plain = {}
    for field in fields(value):
        item = getattr(value, field.name)
        if isinstance(item, tuple):
            item = tuple(x.item() if isinstance(x, np.generic) else x for x in item)
        plain[field.name] = item.item() if isinstance(item, np.generic) else item
    return plain


def _plain_scalar(value: Any, what: str) -> _Scalar:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and not math.isfinite(plain):
        return _Special("nan" if math.isnan(plain) else "inf" if plain > 0 else "-inf")
    if isinstance(plain, int) and not -(2**63) <= plain < 2**63:
        raise InvalidInput(f"A {what} in a saved model must fit into 64 bits. Got {plain}.")
    if plain is None or isinstance(plain, bool | int | float | str):
        return plain
    raise InvalidInput(
        f"A {what} in a saved model must be a number, a string, a boolean or None."
        f" Got {type(value).__name__}."
    )


def _scalar_value(value: _Scalar) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise BrokenModelFile("labels and categories must fit into 64 bits.")
    return float(value.float) if isinstance(value, _Special) else value


def _stored_arrays(trees: TreeArrays) -> dict[str, NDArray[Any]]:
    arrays = {name: getattr(trees, name) for name in _DTYPES}
    nodes = np.arange(len(trees.right), dtype=np.int32)
    arrays["right"] = np.where(trees.right >= 0, trees.right - nodes, 0)
    return {name: array.astype(_DTYPES[name]) for name, array in arrays.items()}


def _shuffle(array: NDArray[Any]) -> bytes:
    """Bytes of equal weight side by side: signs and exponents repeat, so they compress well."""
    matrix = np.frombuffer(array.tobytes(), dtype=np.uint8).reshape(-1, array.itemsize)
    return matrix.T.tobytes()


def _allowed_bytes(stored_bytes: int) -> int:
    return max(_FREE_BYTES, _MAX_RATIO * stored_bytes)


def decode_ensemble(content: bytes) -> Ensemble:
    """The ensemble of `encode_ensemble`, bit for bit; a `BrokenModelFile` for other bytes."""
    if not is_saved(content):
        raise BrokenModelFile(
            "a treeproof model must begin with its magic bytes; this is another kind of file."
        )
    body, seal = content[:-_HASH_BYTES], content[-_HASH_BYTES:]
    if len(body) < _FIXED.size or hashlib.sha256(body).digest() != seal:
        raise BrokenModelFile(
            "the content does not match its SHA-256, so the file is damaged or cut off."
            " Copy or convert the model again."
        )
    _, version, header_bytes, array_bytes = _FIXED.unpack_from(body)
    if version != VERSION:
        raise BrokenModelFile(
            f"format version {version} is not known, this treeproof reads up to {VERSION}."
            " Update treeproof."
        )
    if _FIXED.size + header_bytes + array_bytes != len(body):
        raise BrokenModelFile("the lengths of header and arrays do not add up to the file.")
    header = _read_header(body[_FIXED.size : _FIXED.size + header_bytes])
    arrays = _read_arrays(header, memoryview(body)[_FIXED.size + header_bytes :])
    ensemble = Ensemble(
        trees=_restore_trees(arrays),
        **{name: getattr(header, name) for name in _PLAIN},
        aggregation=_restore(Aggregation, header.aggregation),
        decision=_restore(Decision, header.decision),
        classes=tuple(map(_scalar_value, header.classes)),
        feature_names=header.feature_names,
        categories={
            feature: tuple(map(_scalar_value, values)) for feature, values in header.categories
        },
        categorical=header.categorical,
        required=dict(header.required),
        provenance=_restore(Provenance, header.provenance),
    )
    if tree_depths(ensemble.trees, stop=MAX_DEPTH + 1).max() > MAX_DEPTH:
        raise BrokenModelFile(f"a tree must not be deeper than {MAX_DEPTH} levels.")
    return ensemble


def _read_header(text: bytes) -> _Header:
    try:
        header = msgspec.json.decode(text, type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenModelFile(f"the header is not of this format: {error}.") from error
    if not 1 <= header.n_features < 2**31:
        raise BrokenModelFile(f"the number of features must be positive. Got {header.n_features}.")
    listed = ([feature for feature, _ in part] for part in (header.categories, header.required))
    for features in (*listed, header.categorical):
        if len(set(features)) != len(features) or any(
            not 0 <= feature < header.n_features for feature in features
        ):
            raise BrokenModelFile("categories must belong to different features of the model.")
    return header


def _restore(kind: Any, values: dict[str, Any]) -> Any:
    """Build a semantics record; a field that this version does not know must not be ignored."""
    unknown = set(values) - {field.name for field in fields(kind)}
    if unknown:
        raise BrokenModelFile(f"the header has an unknown field {sorted(unknown)[0]!r}.")
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise BrokenModelFile(f"the header is not of this format: {error}.") from error


def _read_arrays(header: _Header, data: memoryview) -> dict[str, NDArray[Any]]:
    if [(entry.name, entry.dtype) for entry in header.arrays] != list(_DTYPES.items()):
        raise BrokenModelFile("the table of arrays must list every array once, with its type.")
    raw_bytes = 0
    for entry in header.arrays:
        axes = 2 if entry.name == "leaf_value" else 1
        if len(entry.shape) != axes or min(entry.shape) < 0 or entry.stored < 0:
            raise BrokenModelFile(f"array '{entry.name}' has an impossible shape {entry.shape}.")
        raw_bytes += math.prod(entry.shape) * np.dtype(entry.dtype).itemsize
    # Sound: nothing is unpacked before its whole size is known to be in proportion to the file.
    if raw_bytes > _allowed_bytes(len(data)):
        raise BrokenModelFile(f"the arrays claim {raw_bytes} bytes, out of proportion to the file.")
    if sum(entry.stored for entry in header.arrays) != len(data):
        raise BrokenModelFile("the stored lengths of the arrays do not add up.")
    arrays, first = {}, 0
    for entry in header.arrays:
        arrays[entry.name] = _read_array(entry, data[first : first + entry.stored])
        first += entry.stored
    return arrays


def _read_array(entry: _Array, stream: memoryview) -> NDArray[Any]:
    dtype = np.dtype(entry.dtype)
    expected = math.prod(entry.shape) * dtype.itemsize
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(stream, expected + 1)
    except zlib.error as error:
        raise BrokenModelFile(f"array '{entry.name}' cannot be unpacked: {error}.") from error
    if len(raw) != expected or not unpacker.eof or unpacker.unused_data:
        raise BrokenModelFile(f"array '{entry.name}' does not have the length of its shape.")
    matrix = np.frombuffer(raw, dtype=np.uint8).reshape(dtype.itemsize, -1)
    array = np.frombuffer(matrix.T.tobytes(), dtype=dtype).reshape(entry.shape)
    return array.astype(dtype.newbyteorder("="))


def _restore_trees(arrays: dict[str, NDArray[Any]]) -> TreeArrays:
    feature, distance = arrays["feature"], arrays.pop("right")
    n_nodes = len(feature)
    if len(distance) != n_nodes or distance.min(initial=0) < 0:
        raise BrokenModelFile("array 'right' must have one distance, not below 0, per node.")
    nodes = np.arange(n_nodes, dtype=np.int64)
    right = np.where(distance > 0, nodes + distance, -1)
    if right.max(initial=-1) >= n_nodes:
        raise BrokenModelFile("array 'right' points beyond the last node.")
    inner = feature >= 0
    return TreeArrays(
        **arrays,
        left=np.where(inner, nodes + 1, -1).astype(np.int32),
        right=right.astype(np.int32),
        leaf=np.where(inner, -1, np.cumsum(~inner) - 1).astype(np.int32),
    )
