"""A reader of Universal Binary JSON (draft 12), for hostile input.

XGBoost writes the arrays of its trees with a type and a length in front, so each becomes one NumPy
array without a loop; a length is believed only as far as the file reaches.
"""

import struct
from typing import Any

import numpy as np

from treeproof.errors import BrokenModelFile

MAX_NESTING = 64
"""Model files nest about eight levels deep."""

_DTYPES: dict[int | None, np.dtype[Any]] = {
    ord(marker): np.dtype(code)
    for marker, code in zip("iUIlLdD", ("i1", "u1", ">i2", ">i4", ">i8", ">f4", ">f8"), strict=True)
}
_NUMBERS = {
    ord(marker): struct.Struct(code)
    for marker, code in zip("iUIlLdD", (">b", ">B", ">h", ">i", ">q", ">f", ">d"), strict=True)
}
_LENGTHS = frozenset(b"iUIlL")
_CONSTANTS = {ord("Z"): None, ord("T"): True, ord("F"): False}
_STRING, _CHARACTER, _NO_OPERATION = ord("S"), ord("C"), ord("N")
_ARRAY, _ARRAY_END, _OBJECT, _OBJECT_END = ord("["), ord("]"), ord("{"), ord("}")
_TYPE, _COUNT = ord("$"), ord("#")


def decode_ubjson(content: bytes) -> Any:
    """Decode a document, nothing after it.

    Arrays with a declared number type become one-dimensional, read-only, big-endian arrays.
    """
    reader = _Reader(content)
    try:
        value = reader.value(reader.marker(), 0)
    except (IndexError, struct.error) as error:
        raise BrokenModelFile(
            f"The UBJSON data ends in the middle of a value, after {len(content)} bytes."
            " The file is cut off."
        ) from error
    if reader.position != len(content):
        raise BrokenModelFile(
            f"The UBJSON data must end with its first value, at byte {reader.position}."
            f" Got {len(content)} bytes."
        )
    return value


class _Reader:
    """A position in the data; running off the end raises IndexError or struct.error."""

    __slots__ = ("content", "position")

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.position = 0

    def marker(self) -> int:
        """Type marker of the next value."""
        marker = self.content[self.position]
        self.position += 1
        while marker == _NO_OPERATION:
            marker = self.content[self.position]
            self.position += 1
        return marker

    def value(self, marker: int, depth: int) -> Any:
        """Value that follows a type marker."""
        number = _NUMBERS.get(marker)
        if number is not None:
            (value,) = number.unpack_from(self.content, self.position)
            self.position += number.size
            return value
        if marker == _STRING:
            return self.text(self.length())
        if marker == _OBJECT:
            return self.object(depth + 1)
        if marker == _ARRAY:
            return self.array(depth + 1)
        if marker in _CONSTANTS:
            return _CONSTANTS[marker]
        if marker == _CHARACTER:
            return self.text(1)
        raise self.error(f"the type marker {bytes([marker])!r} is not known")

    def length(self) -> int:
        """Length or count: an integer with its own type marker, within what is left."""
        marker = self.content[self.position]
        number = _NUMBERS.get(marker)
        if number is None or marker not in _LENGTHS:
            raise self.error("a length must be an integer")
        (length,) = number.unpack_from(self.content, self.position + 1)
        self.position += 1 + number.size
        # Every string byte and every array element takes at least one byte.
        if not 0 <= length <= len(self.content) - self.position:
            raise self.error(f"the length {length} reaches beyond the end of the data")
        return int(length)

    def text(self, length: int) -> str:
        """Text of so many bytes."""
        start, self.position = self.position, self.position + length
        if self.position > len(self.content):
            raise IndexError
        try:
            return self.content[start : self.position].decode()
        except UnicodeDecodeError as error:
            raise self.error("text must be UTF-8") from error

    def object(self, depth: int) -> dict[str, Any]:
        """Key-value pairs up to the closing brace, or of a declared count and type."""
        kind, count = self.declared(depth)
        found: dict[str, Any] = {}
        while count is None or len(found) < count:
            if count is None:
                if self.marker() == _OBJECT_END:
                    break
                self.position -= 1
            key = self.text(self.length())
            if key in found:
                raise self.error(f"the key {key!r} occurs twice in one object")
            found[key] = self.value(self.marker() if kind is None else kind, depth)
        return found

    def array(self, depth: int) -> Any:
        """Values up to the closing bracket, or of a declared count and type."""
        kind, count = self.declared(depth)
        if count is not None and kind in _DTYPES:
            dtype = _DTYPES[kind]
            start, self.position = self.position, self.position + count * dtype.itemsize
            if self.position > len(self.content):
                raise IndexError
            return np.frombuffer(self.content, dtype=dtype, count=count, offset=start)
        if count is not None:
            return [
                self.value(self.marker() if kind is None else kind, depth) for _ in range(count)
            ]
        values = []
        while (marker := self.marker()) != _ARRAY_END:
            values.append(self.value(marker, depth))
        return values

    def declared(self, depth: int) -> tuple[int | None, int | None]:
        """Type and count in front of a container, where they are given."""
        if depth > MAX_NESTING:
            raise self.error(f"values may be nested at most {MAX_NESTING} deep")
        kind = None
        if self.content[self.position] == _TYPE:
            kind = self.content[self.position + 1]
            self.position += 2
            if self.content[self.position] != _COUNT:
                raise self.error("a container with a type must declare its count")
            # Constants take no bytes, so a declared count of them could be as large as it likes.
            if kind in _CONSTANTS or kind == _NO_OPERATION:
                raise self.error("containers of constants are not accepted")
        if self.content[self.position] == _COUNT:
            self.position += 1
            return kind, self.length()
        return kind, None

    def error(self, what: str) -> BrokenModelFile:
        """Error that names the place."""
        return BrokenModelFile(
            f"UBJSON data, byte {self.position}: {what}. The file is damaged or of another kind."
        )
