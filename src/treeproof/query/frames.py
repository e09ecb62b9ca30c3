"""What the columns of a data frame are, guessed from their names and values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput

_SEPARATOR = re.compile(r"[_=\[.:|/ -]+")
_MOSTLY = 0.5
"""Share of rows with a 1 from which columns with at most one of them are taken for a group."""


def guessed_domain(X: Any) -> dict[str, Any]:
    """Parts of a `Domain` that fit the rows of a data frame; see `Domain.from_frame`."""
    import narwhals as nw

    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame) or len(frame) == 0:
        raise InvalidInput(
            f"Domain.from_frame takes a data frame with at least one row. Got {type(X).__name__}."
        )
    numbers: dict[str, NDArray[np.float64]] = {}
    categorical: list[str] = []
    for name in frame.columns:
        kind = frame[name].dtype
        if kind.is_numeric() or kind == nw.Boolean:
            numbers[name] = np.asarray(frame[name].to_numpy(), dtype=np.float64)
        else:
            categorical.append(name)
    is_binary = {name: bool(np.isin(values, (0.0, 1.0)).all()) for name, values in numbers.items()}
    one_hot, at_most_one = _groups({n: v for n, v in numbers.items() if is_binary[n]})
    grouped = {name for group in one_hot + at_most_one for name in group}
    others = {name: v[np.isfinite(v)] for name, v in numbers.items() if name not in grouped}
    others = {name: values for name, values in others.items() if len(values)}
    whole = [
        name
        for name, values in others.items()
        if not is_binary[name] and np.array_equal(values, np.floor(values))
    ]
    return {
        "integer": whole,
        "values": {name: [0, 1] for name in others if is_binary[name]},
        "ranges": {
            name: _ends(values, is_whole=name in whole)
            for name, values in others.items()
            if not is_binary[name]
        },
        "one_hot": one_hot,
        "at_most_one": at_most_one,
        "categorical": categorical,
    }


def _ends(values: NDArray[np.float64], *, is_whole: bool) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    return (int(low), int(high)) if is_whole else (low, high)


def _groups(binary: dict[str, NDArray[np.float64]]) -> tuple[list[list[str]], list[list[str]]]:
    """Groups of columns with exactly one 1 in each row, and with at most one.

    The shortest start of names that gives a group wins, since values may hold separators too.
    """
    starts: dict[str, list[str]] = {}
    for name in binary:
        for match in _SEPARATOR.finditer(name):
            if match.start() > 0:
                starts.setdefault(name[: match.end()], []).append(name)
    found: tuple[list[list[str]], list[list[str]]] = [], []
    taken: set[str] = set()
    for is_exact, groups in zip((True, False), found, strict=True):
        for start in sorted(starts, key=len):
            names = [name for name in starts[start] if name not in taken]
            if len(names) >= 2 and _is_group([binary[name] for name in names], is_exact):
                groups.append(names)
                taken |= set(names)
    return found


def _is_group(columns: Sequence[NDArray[np.float64]], is_exact: bool) -> bool:
    total = np.sum(columns, axis=0)
    if is_exact:
        return bool(np.all(total == 1.0))
    return bool(np.all(total <= 1.0) and total.mean() >= _MOSTLY)
