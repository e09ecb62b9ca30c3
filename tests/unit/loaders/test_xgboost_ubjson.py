import struct
from typing import Any

import numpy as np
import pytest

from treeproof.errors import BrokenModelFile
from treeproof.loaders.xgboost.ubjson import MAX_NESTING, decode_ubjson


def text(value: str) -> bytes:
    return b"L" + struct.pack(">q", len(value.encode())) + value.encode()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"Z", None),
        (b"T", True),
        (b"F", False),
        (b"NNT", True),
        (b"i\xff", -1),
        (b"U\xff", 255),
        (b"I\x01\x00", 256),
        (b"l\x00\x01\x00\x00", 65536),
        (b"L" + struct.pack(">q", -(2**40)), -(2**40)),
        (b"d" + struct.pack(">f", 0.1), float(np.float32(0.1))),
        (b"D" + struct.pack(">d", 0.1), 0.1),
        (b"Cx", "x"),
        (b"S" + text("grün"), "grün"),
        (b"SU\x02ab", "ab"),
        (b"[]", []),
        (b"[i\x01Si\x01aZ]", [1, "a", None]),
        (b"[#i\x02TF", [True, False]),
        (b"[$S#i\x02i\x01ai\x01b", ["a", "b"]),
        (b"{}", {}),
        (b"{i\x01aTi\x01b{}}", {"a": True, "b": {}}),
        (b"{#i\x01i\x01aT", {"a": True}),
        (b"{$i#i\x02i\x01a\x05i\x01b\x06", {"a": 5, "b": 6}),
    ],
)
def test_values(content: bytes, expected: Any) -> None:
    assert decode_ubjson(content) == expected


@pytest.mark.parametrize(
    ("marker", "dtype"),
    [
        ("i", ">i1"),
        ("U", ">u1"),
        ("I", ">i2"),
        ("l", ">i4"),
        ("L", ">i8"),
        ("d", ">f4"),
        ("D", ">f8"),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_arrays_of_numbers(marker: str, dtype: str, inside: bool) -> None:
    numbers = np.array([0, 1, 7, 100], dtype=dtype)
    content = f"[${marker}#L".encode() + struct.pack(">q", 4) + numbers.tobytes()
    if inside:
        found = decode_ubjson(b"{" + text("a") + content + text("b") + b"T}")
        assert found["b"] is True
        array = found["a"]
    else:
        array = decode_ubjson(content)
    assert array.dtype == np.dtype(dtype)
    assert array.tolist() == numbers.tolist()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cut off"),
        (b"i", "cut off"),
        (b"D\x00\x00", "cut off"),
        (b"SU\x05abc", "beyond the end"),
        (b"SL" + struct.pack(">q", 2**62) + b"abc", "beyond the end"),
        (b"Si\xff", "beyond the end"),
        (b"SD" + struct.pack(">d", 1.0), "length must be an integer"),
        (b"SU\x02\xff\xfe", "UTF-8"),
        (b"[$d#L" + struct.pack(">q", 2**60), "beyond the end"),
        (b"[$d#i\x02" + bytes(7), "cut off"),
        (b"{i\x01a[$d#L" + struct.pack(">q", 2) + bytes(7) + b"}", "cut off"),
        (b"{i\x01a[$d#L" + struct.pack(">q", -2) + bytes(7) + b"}", "beyond the end"),
        (b"[$T#L" + struct.pack(">q", 3) + b"xxxx", "constants"),
        (b"[$N#L" + struct.pack(">q", 3) + b"xxxx", "constants"),
        (b"[$d]", "must declare its count"),
        (b"[i\x01", "cut off"),
        (b"{i\x01aT", "cut off"),
        (b"{i\x01aTi\x01aT}", "occurs twice"),
        (b"TT", "must end with its first value"),
        (b"x", "type marker b'x'"),
        (b"H", "type marker b'H'"),
        (b"[" * 10_000, "nested"),
        (b"{i\x01a" * 10_000, "nested"),
        (b"[#i\x01" * 10_000, "nested"),
    ],
)
def test_damage_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(BrokenModelFile, match=message):
        decode_ubjson(content)


def test_nesting_up_to_the_limit() -> None:
    value = decode_ubjson(b"[" * MAX_NESTING + b"]" * MAX_NESTING)
    for _ in range(MAX_NESTING - 1):
        (value,) = value
    assert value == []
