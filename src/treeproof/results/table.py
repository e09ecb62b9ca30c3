"""Answers as the columns of one table: of data frames, CSV files and spreadsheets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.results.changes import Change, Naming
from treeproof.results.columns import array_of
from treeproof.results.curves import attacked_rows
from treeproof.results.results import Results

_ALWAYS = {"radius": ("radius", "exact", "misclassified"), "verify": ("verdict", "misclassified")}
_INTERNAL = ("verdict", "exact", "attained", "witness_distance")
Columns = dict[str, Any]
CHANGED = (" before", " after")
"""Ends of the names of columns that say what a feature was and became."""


def answer_columns(
    results: Results,
    *,
    changes: bool = False,
    witness: bool = False,
    internal: bool = False,
    axes: Iterable[tuple[int, ...]] | None = None,
) -> Columns:
    """Columns of the table of answers by name; `Results.to_frame` explains them.

    With `axes`, there are columns before and after of these features and groups, instead of those
    that some row changes.
    """
    said = [results.changes(position) for position in range(len(results))]
    columns: Columns = {"id": _known(results, "id"), "row": results.row}
    for name in ("way", "label", "predicted", "probability", "eps"):
        columns[name] = _known(results, name)
    for name in _ALWAYS["radius" if results.asks_radius else "verify"]:
        columns[name] = getattr(results, name)
    if results.header.get("question", {}).get("attacker_class") is not None:
        columns["attacked"] = attacked_rows(results)
    has_bounds = not (np.isnan(results.lower).all() and len(results))
    for name in ("lower", "upper"):
        columns[name] = getattr(results, name) if has_bounds else None
    columns["becomes"] = _known(results, "witness_label")
    columns["probability_after"] = _known(results, "witness_probability")
    columns["changes"] = ["; ".join(map(str, row)) for row in said]
    columns["cost"] = _known(results, "cost" if results.cost is not None else "witness_distance")
    columns |= {"seconds": results.seconds, "reason": results.reason}
    if changes:
        columns |= before_and_after(results, said, axes)
    if witness:
        columns |= witness_columns(results)
    if internal:
        columns |= {name: getattr(results, name) for name in _INTERNAL}
        columns |= results.statistics
    return {name: _plain(column) for name, column in columns.items() if column is not None}


def changed_axes(results: Results) -> set[tuple[int, ...]]:
    """Features, and groups of features, that some witness changes."""
    return {
        change.features for position in range(len(results)) for change in results.changes(position)
    }


def before_and_after(
    results: Results, said: Sequence[list[Change]], axes: Iterable[tuple[int, ...]] | None = None
) -> Columns:
    """Two columns for every feature or group that changes: empty where a row keeps it."""
    by_axis = [{change.features: change for change in row} for row in said]
    chosen = {axis for row in by_axis for axis in row} if axes is None else set(axes)
    naming, columns = Naming(results.header), Columns()
    for axis in sorted(chosen):
        changes = [row.get(axis) for row in by_axis]
        name = naming.axis(axis[0])
        sides = ([c and c.before for c in changes], [c and c.shown for c in changes])
        for end, entries in zip(CHANGED, sides, strict=True):
            columns[f"{name}{end}"] = _values(entries)
    return columns


def witness_columns(results: Results) -> Columns:
    """A column for every feature of the witnesses, as they are shown; categories by name."""
    naming, shown = Naming(results.header), results.as_shown
    return {
        f"witness.{naming.feature(f)}": _values([naming.value(f, value) for value in column])
        for f, column in enumerate(shown.T.tolist())
    }


def _known(results: Results, name: str) -> Any:
    """A column, if any row has an entry there."""
    column = getattr(results, name)
    if column is None:
        return None
    values = array_of(column)
    if values.dtype.kind == "f":
        return None if np.isnan(values).all() else values
    return None if all(value is None for value in values.tolist()) else values


def _values(entries: list[Any]) -> Any:
    """Numbers as an array, with NaN for none; texts, or both, as they are."""
    if any(isinstance(entry, str) for entry in entries):
        return entries
    return np.array([np.nan if entry is None else entry for entry in entries], dtype=np.float64)


def _plain(column: Any) -> Any:
    is_object = isinstance(column, np.ndarray) and column.dtype == object
    return column.tolist() if is_object else _copied(column)


def _copied(column: Any) -> NDArray[Any] | list[Any]:
    # Frames may share the memory of arrays, and what is done to one must not reach the other.
    return column.copy() if isinstance(column, np.ndarray) else column
