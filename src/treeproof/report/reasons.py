"""Reasons on the report page and in pictures: each feature of a set, and how far it may move."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from treeproof.checker.reasons import ReasonsRow, reasons_header
from treeproof.errors import InvalidInput
from treeproof.model.rows import objects
from treeproof.report.domains import domain_words
from treeproof.report.images import change_image, check_shape, grey_image, set_image
from treeproof.report.runs import id_name, row_name
from treeproof.results.numbers import number
from treeproof.results.reasons import Reasons

CARDS, BARS, LINES = 9, 12, 1000
"""Rows with a card of their own, features with a bar, and rows in the table of all."""

_CELLS = (
    *("sufficient", "minimal", "reason", "widest", "seconds", "complete", "changes_minimal"),
    *("all_changes", "size_lower_bound", "change_lower_bound"),
)
_MARGIN = 0.08
"""Part of a track beyond the values that are known, where an interval has no end."""


class Span(NamedTuple):
    """A feature of a set on a track from 0 to 1: its interval, and the row's own value."""

    name: str
    condition: str
    low: float
    high: float
    value: float
    has_low: bool  # False where the interval goes on to the end of the domain
    has_high: bool


def spans(found: Reasons, row: int) -> list[Span]:
    """Intervals and values of the features of a row's set; without intervals, the values alone."""
    result = []
    places = {feature: place for place, feature in enumerate(found.features[row].tolist())}
    for feature, text in found.conditions(row):
        name, value = found.name(feature), float(found.values[row, feature])
        if math.isnan(value):
            result.append(Span(name, text, 0.0, 0.0, 0.0, True, True))
            continue
        ends = [value, value]
        if found.intervals is not None:
            ends = found.intervals[row][places[feature]].tolist()
        first, last = _known_range(found, feature)

        def at(position: float, first: float = first, last: float = last) -> float:
            share = (position - first) / (last - first) if last > first else 0.5
            return min(max(_MARGIN + (1.0 - 2.0 * _MARGIN) * share, 0.0), 1.0)

        has_low, has_high = (math.isfinite(end) for end in ends)
        low, high = at(ends[0]) if has_low else 0.0, at(ends[1]) if has_high else 1.0
        result.append(Span(name, text, low, high, at(value), has_low, has_high))
    return result


def _known_range(found: Reasons, feature: int) -> tuple[float, float]:
    """Least and largest finite value of a feature that is known: rows, and ends of intervals."""
    known = [found.values[:, feature]]
    if found.intervals is not None:
        known += [
            ends[features == feature].ravel()
            for features, ends in zip(found.features, found.intervals, strict=True)
        ]
    numbers = np.concatenate(known)
    numbers = numbers[np.isfinite(numbers)]
    return (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 0.0)


def load_reasons(path: str | PathLike[str]) -> Reasons:
    """Read what `Reasons.save` wrote."""
    header = reasons_header(path)
    if header is None:
        raise InvalidInput(f"'{path}' must be a file of `treeproof reasons --out`.")
    try:
        with Path(path).open("rb") as file:
            file.readline()
            rows = [msgspec.json.decode(line, type=ReasonsRow) for line in file]
        return _assembled(header, rows)
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError, ValueError) as error:
        raise InvalidInput(f"The file '{path}' of reasons cannot be read: {error}.") from error


def _assembled(header: dict[str, Any], rows: list[ReasonsRow]) -> Reasons:
    n_features = int(header["model"]["n_features"])
    found = Reasons.empty(
        _table([row.values for row in rows], n_features),
        np.array([row.label for row in rows] + [None], dtype=object)[:-1],
        [_numbers(row.kept, n_features) for row in rows],
    )
    found.question, found.header = header["question"], header
    if any(row.id is not None for row in rows):
        found.id = objects([row.id for row in rows])
    found.feature_names = tuple(map(str, header["model"].get("feature_names", ())))
    if any(row.intervals is not None for row in rows):
        found.intervals = [
            np.array(row.intervals or [], dtype=float).reshape(-1, 2) for row in rows
        ]
    if any(row.evidence for row in rows):
        found.evidence = np.array([*[row.evidence for row in rows], None], dtype=object)[:-1]
    for at, row in enumerate(rows):
        found.row[at] = row.row
        found.features[at] = _numbers(row.features, n_features)
        for name in _CELLS:
            getattr(found, name)[at] = getattr(row, name)
        for name in ("sets", "changes"):
            getattr(found, name)[at] = [_numbers(f, n_features) for f in getattr(row, name)]
        for name in ("change_rows", "witnesses"):
            getattr(found, name)[at] = _table(getattr(row, name), n_features)
        if found.intervals is not None and len(found.intervals[at]) != len(row.features):
            raise ValueError(f"row {row.row} must have one interval per feature")
    return found


def _numbers(features: list[Any], n_features: int) -> Any:
    numbers = np.array(features, dtype=np.int64)
    if np.any(numbers >= n_features):
        raise ValueError(f"features must be below {n_features}")
    return numbers


def _table(rows: list[Any], n_features: int) -> Any:
    cells = [[math.nan if value is None else float(value) for value in row] for row in rows]
    return np.array(cells, dtype=np.float64).reshape(len(rows), n_features)


def reasons_context(
    path: str | PathLike[str], shape: tuple[int, int] | None, known: Collection[str]
) -> dict[str, Any]:
    """What the page says of a saved file of reasons.

    `known` are the fingerprints of the models that the rest of the page is about.
    """
    found = load_reasons(path)
    if shape is not None:
        check_shape(shape, found.values.shape[1])
    fixed = np.flatnonzero(found.sufficient).tolist()
    sizes = found.sizes()
    counts = Counter(f for row in fixed for f in found.features[row].tolist())
    header = reasons_header(path) or {}
    return domain_words(header) | {
        "is_strange": str(header.get("model", {}).get("fingerprint")) not in known,
        "n": len(found),
        "n_fixed": len(fixed),
        "n_minimal": int(found.minimal.sum()),
        "n_minimum": int(found.is_minimum().sum()),
        "n_proofs": sum(bool(text) for text in found.evidence) if found.evidence is not None else 0,
        "mean_size": number(float(sizes[fixed].mean())) if fixed else "–",
        "has_intervals": found.intervals is not None,
        "used": [
            {"name": found.name(f), "count": count, "share": count / len(fixed)}
            for f, count in counts.most_common(BARS)
        ],
        "cards": [
            _card(found, row, shape) | {"size": int(sizes[row])}
            for row in range(min(CARDS, len(found)))
        ],
        "id_name": id_name(found),
        "lines": [
            (found.known(row).values(), found.sentence(row))
            for row in range(min(LINES, len(found)))
        ],
        "n_hidden": max(len(found) - LINES, 0),
    }


def _card(found: Reasons, row: int, shape: tuple[int, int] | None) -> dict[str, Any]:
    features, label = found.features[row], found.label[row]
    card: dict[str, Any] = {
        "name": row_name(found, row),
        "label": "" if label is None else str(label),
        "is_fixed": bool(found.sufficient[row]),
        "is_minimal": bool(found.minimal[row]),
        "reason": str(found.reason[row]),
        "spans": spans(found, row) if shape is None else [],
        "kept": found.kept_names(row),
        "changes": found.change_texts(row) if shape is None else [],
        "images": [],
    }
    if shape is not None:
        values = found.values[row]
        low, high = float(np.nanmin(found.values)), float(np.nanmax(found.values))
        is_kept = np.zeros(len(values), dtype=bool)
        is_kept[features] = True
        card["images"] = [
            (grey_image(values, shape, low, high), "the row"),
            (set_image(values, shape, low, high, is_kept), "pixels that fix it"),
        ]
        card["images"] += [
            (change_image(point - values, shape), "what would change it")
            for point in found.change_rows[row][:1]
        ]
    return card
