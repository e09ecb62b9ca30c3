"""CatBoost's categories: it stores and compares only a 32-bit hash of each category's text.

The hash is the lower half of CityHash64 in its first version. Whole numbers are hashed as their
decimal digits, so the category 7 is the category "7".
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from treeproof.errors import InvalidInput
from treeproof.model.ensemble import FloatArray

_MASK = 2**64 - 1
_PRIME_0, _PRIME_1 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273
_PRIME_2, _PRIME_3 = 0x9AE16A3B2F90404F, 0xC949D7C7509E6557
_MIX = 0x9DDFEA08EB382D69


def category_hash(category: str | bytes) -> int:
    """CatBoost's hash of a category, between 0 and 2**32 - 1."""
    return city_hash(category.encode() if isinstance(category, str) else category) % 2**32


def category_codes(raw: Sequence[str | int], cells: Sequence[Any], *, name: str) -> FloatArray:
    """Codes of cells that hold categories as CatBoost takes them: strings, bytes, whole numbers.

    `raw` is what each code stands for: the category's text, or where no one recorded it, its hash.
    Every other category has the code ``len(raw)``, which is in no set.
    """
    code: dict[int, float] = {}
    for position, category in enumerate(raw):
        number = category if isinstance(category, int) else category_hash(category)
        code.setdefault(number, float(position))
    other = float(len(raw))
    known: dict[str | bytes, float] = {}
    codes = np.empty(len(cells), dtype=np.float64)
    for row, cell in enumerate(cells):
        text = str(int(cell)) if isinstance(cell, int | np.integer | np.bool_) else cell
        if not isinstance(text, str | bytes):
            raise InvalidInput(
                f"Column {name!r} must hold strings or whole numbers, as CatBoost demands of"
                f" categories. Got {cell!r} in row {row}."
            )
        if text not in known:
            known[text] = code.get(category_hash(text), other)
        codes[row] = known[text]
    return codes


def city_hash(data: bytes) -> int:
    """CityHash64, version 1."""
    n = len(data)
    if n > 64:
        return _long(data)
    if n > 32:
        return _up_to_64(data)
    if n > 16:
        a, b = _word(data, 0) * _PRIME_1, _word(data, 8)
        c, d = _word(data, n - 8) * _PRIME_2, _word(data, n - 16) * _PRIME_0
        first = _rotate((a - b) & _MASK, 43) + _rotate(c & _MASK, 30) + d
        return _mixed(first, a + _rotate(b ^ _PRIME_3, 20) - c + n)
    if n > 8:
        a, b = _word(data, 0), _word(data, n - 8)
        return _mixed(a, _rotate((b + n) & _MASK, n)) ^ b
    if n >= 4:
        first = int.from_bytes(data[:4], "little")
        return _mixed(n + (first << 3), int.from_bytes(data[-4:], "little"))
    if n > 0:
        y = data[0] + (data[n >> 1] << 8)
        z = n + (data[-1] << 2)
        return _folded(y * _PRIME_2 ^ z * _PRIME_3) * _PRIME_2 & _MASK
    return _PRIME_2


def category_with_hash(wanted: int) -> bytes:
    """Some 16 bytes whose category hash is the given one; the text behind a hash is not known.

    Sixteen bytes are hashed by steps that can each be undone, so the first eight bytes follow from
    the last eight and the hash.
    """
    last = int.from_bytes(b"treeproo", "little")
    second = _rotate((last + 16) & _MASK, 16)
    inverse = pow(_MIX, -1, 2**64)
    b = _folded((wanted ^ last) * inverse & _MASK)
    a = _folded((b * inverse & _MASK) ^ second)
    first = (a * inverse & _MASK) ^ second
    return first.to_bytes(8, "little") + last.to_bytes(8, "little")


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _rotate(value: int, by: int) -> int:
    return (value >> by | value << (64 - by)) & _MASK


def _folded(value: int) -> int:
    """Fold the top 17 bits into the lowest ones; doing it twice changes nothing."""
    value &= _MASK
    return value ^ value >> 47


def _mixed(first: int, second: int) -> int:
    """Hash of two words, each taken modulo 2**64."""
    second &= _MASK
    a = _folded(((first & _MASK) ^ second) * _MIX)
    return _folded((second ^ a) * _MIX) * _MIX & _MASK


def _up_to_64(data: bytes) -> int:
    n = len(data)
    z = _word(data, 24)
    a = _word(data, 0) + (n + _word(data, n - 16)) * _PRIME_0
    first_a, first_b = _quarter(a, z, _word(data, 8), _word(data, 16))
    a = _word(data, 16) + _word(data, n - 32)
    last_a, last_b = _quarter(a, _word(data, n - 8), _word(data, n - 24), _word(data, n - 16))
    r = _folded((first_a + last_b) * _PRIME_2 + (last_a + first_b) * _PRIME_0)
    return _folded(r * _PRIME_0 + first_b) * _PRIME_2 & _MASK


def _quarter(a: int, z: int, x: int, y: int) -> tuple[int, int]:
    a &= _MASK
    b = _rotate((a + z) & _MASK, 52)
    c = _rotate(a, 37)
    a = (a + x) & _MASK
    c += _rotate(a, 7)
    a = (a + y) & _MASK
    return a + z, b + _rotate(a, 31) + c


def _weak(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_word(data, at + 8 * number) for number in range(4))
    a += w
    b = _rotate((b + a + z) & _MASK, 21)
    c = a
    a += x + y
    b += _rotate(a & _MASK, 44)
    return (a + z) & _MASK, (b + c) & _MASK


def _long(data: bytes) -> int:
    n = len(data)
    x, y = _word(data, 0), _word(data, n - 16) ^ _PRIME_1
    z = _word(data, n - 56) ^ _PRIME_0
    v = _weak(data, n - 64, n, y)
    w = _weak(data, n - 32, n * _PRIME_1, _PRIME_0)
    z = (z + _folded(v[1]) * _PRIME_1) & _MASK
    x = _rotate((z + x) & _MASK, 39) * _PRIME_1 & _MASK
    y = _rotate(y, 33) * _PRIME_1 & _MASK
    for at in range(0, (n - 1) // 64 * 64, 64):
        x = _rotate((x + y + v[0] + _word(data, at + 16)) & _MASK, 37) * _PRIME_1 & _MASK
        y = _rotate((y + v[1] + _word(data, at + 48)) & _MASK, 42) * _PRIME_1 & _MASK
        x ^= w[1]
        y ^= v[0]
        z = _rotate(z ^ w[0], 33)
        v = _weak(data, at, v[1] * _PRIME_1, x + w[0])
        w = _weak(data, at + 32, z + w[1], y)
        z, x = x, z
    return _mixed(
        _mixed(v[0], w[0]) + _folded(y) * _PRIME_1 + z,
        _mixed(v[1], w[1]) + x,
    )
