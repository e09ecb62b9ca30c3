"""Groups of rows: how a model decides about them in data, and what is proved of each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput
from treeproof.query.description import plain
from treeproof.query.names import feature_number
from treeproof.results.changes import MISSING, Naming
from treeproof.results.curves import (
    attacked_rows,
    certified_share,
    clean_share,
    has_radii,
    resisting_share,
)
from treeproof.results.numbers import counted, number, percent
from treeproof.results.threat import limit_of

if TYPE_CHECKING:
    from treeproof.results.results import Results

_MOST_VALUES = 12
"""A feature with more values than this is counted in quarters of the rows."""

Parts = list[tuple[str, NDArray[np.bool_]]]


class GroupDecisions(NamedTuple):
    """Decisions about the rows in which a feature has a value, or lies in a range.

    `decisions` is how many rows get each label, in the order of the model's classes.
    """

    feature: str
    value: str
    rows: int
    decisions: tuple[tuple[Any, int], ...]

    def __str__(self) -> str:
        """As in ``62.0 % of 410 rows with sex = female get the decision 1``."""
        said = self.decisions[1:] if len(self.decisions) == 2 else self.decisions
        where = f"of {counted(self.rows, 'row')} with {self.feature} = {self.value}"
        (first, n_first), *others = said
        verb = "gets" if self.rows == 1 else "get"
        words = f"{percent(n_first / self.rows)} {where} {verb} the decision {first}"
        return words + "".join(f", {percent(n / self.rows)} {label}" for label, n in others)

    def record(self) -> dict[str, Any]:
        """All of it as plain data."""
        decisions = [{"label": label, "rows": n} for label, n in self.decisions]
        return dict(plain(self._asdict() | {"decisions": decisions}))


def count_decisions(
    header: Mapping[str, Any],
    features: Sequence[int],
    rows: NDArray[np.float64],
    decided: NDArray[np.int64],
    classes: Sequence[Any],
) -> tuple[GroupDecisions, ...]:
    """Count decisions by the values of each feature, columns of a group together.

    `decided` are the numbers of the classes that the rows get. Features and categories are called
    as the `header` of results calls them.
    """
    naming, found = Naming(header), []
    axes = {axis for axis in naming.axes(rows.shape[1]) if set(axis) & set(features)}
    for axis in sorted(axes):
        for value, chosen in _parts(naming, axis, rows[:, list(axis)]):
            counts = Counter(decided[chosen].tolist())
            decisions = tuple((label, counts[at]) for at, label in enumerate(classes))
            found.append(GroupDecisions(naming.axis(axis[0]), value, int(chosen.sum()), decisions))
    return tuple(found)


def _parts(naming: Naming, axis: tuple[int, ...], values: NDArray[np.float64]) -> Parts:
    """Values of a feature or group in words, each with its rows; ranges where there are many."""
    is_group = len(axis) > 1
    # Missing values are one value in a list of numbers only, and columns of a group have none.
    found = values if is_group else values[:, 0]
    known, place = np.unique(found, axis=0 if is_group else None, return_inverse=True)
    known = known.reshape(-1, len(axis))
    if is_group or len(known) <= _MOST_VALUES or naming.is_named(axis[0]):
        words = [_words(naming.change(axis, side, side, side).before) for side in known.tolist()]
        return [(said, place.ravel() == at) for at, said in enumerate(words)]
    return _ranges(values[:, 0])


def _ranges(column: NDArray[np.float64]) -> Parts:
    """Quarters of the rows by a number, those of one value together, and rows without it."""
    missing = np.isnan(column)
    ends = np.unique(np.quantile(column[~missing], [0.25, 0.5, 0.75, 1.0], method="lower"))
    at = np.searchsorted(ends, column)
    parts = [at == k for k in range(len(ends))]
    ranges = [
        (f"{number(column[part].min())} to {number(column[part].max())}", part) for part in parts
    ]
    return [*ranges, (MISSING, missing)] if missing.any() else ranges


def _words(value: Any) -> str:
    return MISSING if value is None else value if isinstance(value, str) else number(value)


def grouped(results: Results, groups: Any) -> list[tuple[str, Results]]:
    """Answers by group: of a feature by name or number, or of an entry for each row."""
    if isinstance(groups, str | int | np.integer):
        if results.values is None:
            raise InvalidInput(
                "The rows are not in these results, so groups must be a list with an entry for each"
                f" row. Got {groups!r}."
            )
        naming, n_features = Naming(results.header), results.values.shape[1]
        names = (results.header.get("model") or {}).get("feature_names") or []
        feature = feature_number(
            groups if isinstance(groups, str) else int(groups), n_features, names
        )
        axis = next(axis for axis in naming.axes(n_features) if feature in axis)
        parts = _parts(naming, axis, results.values[:, list(axis)])
    else:
        given = np.asarray(groups)
        if given.shape != (len(results),):
            raise InvalidInput(
                "Groups must be the name of a feature, or a list with an entry for each of the"
                f" {len(results)} rows. Got shape {given.shape}."
            )
        parts = _parts_of_list(given)
    return [(name, results.take(chosen)) for name, chosen in parts if chosen.any()]


def _parts_of_list(given: NDArray[Any]) -> Parts:
    if given.dtype.kind in "iuf" and len(np.unique(given)) > _MOST_VALUES:
        return _ranges(given.astype(np.float64))
    # What is missing, in any library's words, is not the same as itself or has no order.
    entries = [None if _is_missing(value) else value for value in given.tolist()]
    known = {value for value in entries if value is not None}
    try:
        order = sorted(known)
    except TypeError:
        order = sorted(known, key=str)
    at = {value: place for place, value in enumerate(order)} | {None: len(order)}
    place = np.array([at[value] for value in entries])
    names = [number(v) if isinstance(v, float) else str(v) for v in order]
    return [(name, place == k) for k, name in enumerate([*names, MISSING])]


def _is_missing(value: Any) -> bool:
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def group_columns(results: Results, groups: Any, eps: float | None) -> dict[str, list[Any]]:
    """Columns of the table of groups by name; `Results.by_group` explains them."""
    if eps is None:
        eps = limit_of(results.header)
        if results.asks_radius:
            raise InvalidInput(
                "'eps' must say at which radius or cost groups are compared, since these results"
                " hold those of all rows. Got none: use by_group(groups, eps=0.1), for example."
            )
    elif not eps >= 0.0:
        raise InvalidInput(f"'eps' must be a number >= 0. Got {eps!r}.")
    elif not has_radii(results):
        raise InvalidInput(
            "'eps' goes with answers of which each tells about the same radius: not with boxes, nor"
            f" with rows that have an eps of their own. Got {eps!r}. Leave it out."
        )
    columns: dict[str, list[Any]] = {
        name: [] for name in ("group", "rows", "correct", "verified", "resisting")
    }
    for name, part in grouped(results, groups):
        attacked = attacked_rows(part)
        if not (n := int(attacked.sum())):
            shares = [np.nan] * 2
        elif eps is None or not has_radii(results):
            verdicts = part.verdict[attacked]
            shares = [
                float(np.mean(verdicts == "verified")),
                float(np.mean(verdicts != "falsified")),
            ]
        else:
            shares = [float(share(part, [eps])[0]) for share in (certified_share, resisting_share)]
        clean = clean_share(part)
        for column, entry in zip(
            columns.values(), [name, n, np.nan if clean is None else clean, *shares], strict=True
        ):
            column.append(entry)
    return columns
