"""Messages in the wire format of Protocol Buffers, read without a schema and without its library.

ONNX files and the models of YDF are such messages. A reader asks for fields by their numbers. Every
length is checked against the bytes that are there; nothing is allocated that the bytes do not back.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel

MAX_FIELDS = 1 << 22
"""Fields of one message that are kept one by one; runs of numbers count once."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTH = {_FIXED64: 8, _FIXED32: 4}
_FIRST_WINDOW = 1 << 8

Numbers = NDArray[np.uint64]


class Message:
    """One message: its fields by number, in the order of the file."""

    def __init__(self, content: bytes | memoryview) -> None:
        self._content = memoryview(content)
        self._fields: dict[int, list[tuple[int, Any]]] = {}
        self._read()

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def _read(self) -> None:
        content, at, n_fields = self._content, 0, 0
        while at < len(content):
            tag, start = _varint(content, at)
            number, wire = tag >> 3, tag & 7
            if number == 0:
                raise _damaged("a field has the number 0")
            payload: Any
            if wire == _VARINT:
                payload, at = _varint_run(content, at, start - at)
            elif wire in _WIDTH:
                payload, at = _fixed_run(content, at, start - at, _WIDTH[wire])
            elif wire == _BYTES:
                length, start = _varint(content, start)
                if length > len(content) - start:
                    raise _damaged(f"field {number} is longer than the rest of its message")
                payload, at = content[start : start + length], start + length
            else:
                raise _damaged(f"field {number} has the unknown wire type {wire}")
            n_fields += 1
            if n_fields > MAX_FIELDS:
                raise UnsupportedModel(
                    f"A message of a model file may have at most {MAX_FIELDS:,} fields. Got more."
                )
            self._fields.setdefault(number, []).append((wire, payload))

    def _payloads(self, number: int, wire: int) -> list[Any]:
        entries = self._fields.get(number, [])
        if any(found != wire for found, _ in entries):
            raise _damaged(f"field {number} is of another type than its format says")
        return [payload for _, payload in entries]

    def _only(self, number: int, payloads: Any, default: Any) -> Any:
        # The format takes the last of several, or merges them; no writer writes several.
        if len(payloads) > 1:
            raise _damaged(f"field {number} occurs {len(payloads)} times")
        return payloads[0] if len(payloads) else default

    def raw(self, number: int) -> bytes:
        """The bytes of a field that occurs at most once."""
        return bytes(self._only(number, self._payloads(number, _BYTES), b""))

    def text(self, number: int) -> str:
        """The text of a field that occurs at most once."""
        return _text(self.raw(number))

    def texts(self, number: int) -> list[str]:
        """The texts of a repeated field."""
        return [_text(bytes(payload)) for payload in self._payloads(number, _BYTES)]

    def message(self, number: int) -> "Message":
        """The message in a field that occurs at most once; an empty one where there is none."""
        return Message(self._only(number, self._payloads(number, _BYTES), b""))

    def messages(self, number: int) -> list["Message"]:
        """The messages of a repeated field."""
        return [Message(payload) for payload in self._payloads(number, _BYTES)]

    def integer(self, number: int, default: int = 0) -> int:
        """The signed integer of a field that occurs at most once."""
        return int(self._only(number, self.integers(number), default))

    def real(self, number: int, default: float = 0.0) -> float:
        """The float32 of a field that occurs at most once."""
        return float(self._only(number, self.reals(number), default))

    def integers(self, number: int) -> NDArray[np.int64]:
        """The signed integers of a repeated field, packed or one by one."""
        parts = [
            payload if wire == _VARINT else _varints(np.frombuffer(payload, np.uint8))
            for wire, payload in self._fields.get(number, [])
            if _known(wire, (_VARINT, _BYTES), number)
        ]
        return np.concatenate([np.zeros(0, np.uint64), *parts]).astype(np.int64)

    def reals(self, number: int, dtype: str = "<f4") -> NDArray[Any]:
        """The numbers of a repeated field of floats or doubles, packed or one by one."""
        width = np.dtype(dtype).itemsize
        single = _FIXED32 if width == 4 else _FIXED64
        parts = []
        for wire, payload in self._fields.get(number, []):
            _known(wire, (single, _BYTES), number)
            if len(payload) % width:
                raise _damaged(f"field {number} holds a part of a number")
            parts.append(np.frombuffer(payload, dtype))
        return np.concatenate([np.zeros(0, dtype), *parts])


def _known(wire: int, known: tuple[int, ...], number: int) -> bool:
    if wire not in known:
        raise _damaged(f"field {number} is of another type than its format says")
    return True


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits per byte, and the place after it."""
    value = shift = 0
    while True:
        if at >= len(content) or shift > 63:
            raise _damaged("a number has no end")
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & (2**64 - 1), at
        shift += 7


def _varint_run(content: memoryview, at: int, n_tag: int) -> tuple[Numbers, int]:
    """Numbers of a field that repeats without a break, and the place after them.

    Libraries write a repeated field as tag, number, tag, number; these are decoded all at once,
    in windows that grow while the run goes on, so that the work is that of the run.
    """
    tag = bytes(content[at : at + n_tag])
    value, after = _varint(content, at + n_tag)
    parts = [np.array([value], np.uint64)]
    window = _FIRST_WINDOW
    while n_tag == 1 and bytes(content[after : after + 1]) == tag:
        piece = np.frombuffer(content[after : after + window], np.uint8)
        ends = np.flatnonzero(piece < 0x80)
        # Tags and numbers take turns; what the window cuts off is left to the next one.
        ends = ends[: len(ends) // 2 * 2]
        if len(ends) == 0:
            break
        tags = np.concatenate([[0], ends[1:-1:2] + 1])
        wrong = np.flatnonzero((piece[tags] != tag[0]) | (ends[0::2] != tags))
        n = int(wrong[0]) if len(wrong) else len(tags)
        if n == 0:
            break
        # A number of its own begins after each tag: dropping the tags leaves the numbers.
        kept = np.ones(int(ends[2 * n - 1]) + 1, dtype=bool)
        kept[tags[:n]] = False
        parts.append(_varints(piece[: len(kept)][kept]))
        after += len(kept)
        window = min(2 * window, 1 << 26)
        if n < len(tags):
            break
    return np.concatenate(parts), after


def _varints(data: NDArray[np.uint8]) -> Numbers:
    """Decode numbers that lie one after another."""
    if not len(data):
        return np.zeros(0, np.uint64)
    ends = np.flatnonzero(data < 0x80)
    if not len(ends) or ends[-1] != len(data) - 1:
        raise _damaged("a number has no end")
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > 10:
        raise _damaged("a number has no end")
    values = np.zeros(len(ends), np.uint64)
    for place in range(int(lengths.max())):
        has = lengths > place
        bits = (data[starts[has] + place] & 0x7F).astype(np.uint64)
        values[has] |= bits << np.uint64(7 * place)
    return values


def _fixed_run(content: memoryview, at: int, n_tag: int, width: int) -> tuple[bytes, int]:
    """The bytes of numbers of a field that repeats without a break, and the place after them."""
    if at + n_tag + width > len(content):
        raise _damaged("a number lies beyond its end")
    tag = np.frombuffer(content[at : at + n_tag], np.uint8)
    step, parts, window = n_tag + width, [], _FIRST_WINDOW
    while True:
        n = min(window, (len(content) - at) // step)
        rows = np.frombuffer(content[at : at + n * step], np.uint8).reshape(n, step)
        wrong = np.flatnonzero((rows[:, :n_tag] != tag).any(axis=1))
        n_run = int(wrong[0]) if len(wrong) else n
        parts.append(rows[:n_run, n_tag:].tobytes())
        at += n_run * step
        if n_run < window:
            return b"".join(parts), at
        window = min(2 * window, 1 << 22)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _damaged("a text is not UTF-8") from error


def _damaged(what: str) -> BrokenModelFile:
    return BrokenModelFile(f"The model file is damaged: {what}.")
