"""What a witness changes, as people say it: groups as one feature, categories by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from treeproof.results.numbers import ColumnFormat, ShownChange, plainly

MISSING = "missing"
_SEPARATORS = "_=[.:|/ -"
_MOST_SAID = 3


class Change(NamedTuple):
    """One feature, or group of features, that a witness changes.

    `after` is the witness's own value, `shown` what people read: a short number near it. All
    changes of a row, typed in as shown, break the claim as the witness does.
    """

    name: str
    features: tuple[int, ...]
    before: Any  # a number, a text for categories and groups, None where it is missing
    after: Any
    shown: Any

    def __str__(self) -> str:
        """As in ``age: 41 → 42``."""
        before, shown = _figure(self.before), _in_full(self.shown)
        if before == shown and self.before != self.shown:
            before = _in_full(self.before)
        return f"{self.name}: {before} → {shown}"

    def written(self, column: ColumnFormat) -> ShownChange:
        """Both values as they are written in a column, and by how much they differ."""
        if isinstance(self.before, float) and isinstance(self.shown, float):
            return column.change(self.before, self.shown)
        before = column.text(self.before) if isinstance(self.before, float) else self.before
        shown = column.in_full(self.shown) if isinstance(self.shown, float) else self.shown
        return ShownChange(before or MISSING, shown or MISSING, "")


def changes_between(
    header: Mapping[str, Any],
    values: Sequence[float],
    witness: Sequence[float],
    shown: Sequence[float] | None = None,
) -> list[Change]:
    """What differs between a row and its witness, in the order of features.

    `shown` is the witness in short numbers; without it, those of the witness are written in full.
    """
    naming = Naming(header)
    rows = values, witness, witness if shown is None else shown
    found = []
    for features in naming.axes(len(values)):
        before, after, short = ([float(row[f]) for f in features] for row in rows)
        if any(map(_differ, before, after)):
            found.append(naming.change(features, before, after, short))
    return found


class Naming:
    """Names of features, groups and categories, from the header of results."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        model = header.get("model") or {}
        self._names = [str(name) for name in model.get("feature_names") or []]
        self._categories = model.get("categories") or {}
        domain = (header.get("question") or {}).get("perturbation", {}).get("domain") or {}
        groups = domain.get("groups") or []
        self._group_of = {f: tuple(columns) for columns, _ in groups for f in columns}

    def axes(self, n_features: int) -> list[tuple[int, ...]]:
        """Features and groups of features, each once, in the order of their first feature."""
        found = (self._group_of.get(f, (f,)) for f in range(n_features))
        return list(dict.fromkeys(found))

    def feature(self, feature: int) -> str:
        """Name of a feature, or its number."""
        return self._names[feature] if feature < len(self._names) else f"feature {feature}"

    def is_named(self, feature: int) -> bool:
        """Whether the categories of a feature have names."""
        return self.n_categories(feature) > 0

    def n_categories(self, feature: int) -> int:
        """Number of the categories that have names."""
        return len(self._categories.get(str(feature)) or [])

    def change(self, features: tuple[int, ...], *sides: Sequence[float]) -> Change:
        """Say what a feature or a group was and became, and how that is shown."""
        if features[0] not in self._group_of:
            values = (self.value(features[0], side[0]) for side in sides)
            return Change(self.feature(features[0]), features, *values)
        name, choices = self._group(features)
        return Change(name, features, *(_chosen(choices, side) for side in sides))

    def axis(self, feature: int) -> str:
        """Name of a feature, or of the group that it belongs to."""
        group = self._group_of.get(feature)
        return self.feature(feature) if group is None else self._group(group)[0]

    def _group(self, features: tuple[int, ...]) -> tuple[str, list[str]]:
        """Name of a group and of its choices: the start that all names share, and their rests."""
        names = [self.feature(f) for f in features]
        n_shared = next(
            (n for n, letters in enumerate(zip(*names, strict=False)) if len(set(letters)) > 1),
            min(map(len, names)),
        )
        while n_shared and names[0][n_shared - 1] not in _SEPARATORS:
            n_shared -= 1
        start = names[0][:n_shared].rstrip(_SEPARATORS)
        if not start or min(map(len, names)) == n_shared:
            return ", ".join(names), names
        return start, [name[n_shared:].rstrip("]") for name in names]

    def value(self, feature: int, value: float) -> Any:
        """A value of a feature: a number, the name of a category, None where it is missing."""
        if math.isnan(value):
            return None
        named = self._categories.get(str(feature)) or []
        is_code = value == math.floor(value) and 0 <= value < len(named)
        return str(named[int(value)]) if is_code else value


def in_words(changes: Sequence[Change], formats: Sequence[ColumnFormat]) -> str:
    """Say what is changed, numbers in the precision of their columns; of many the first."""
    said = []
    for change in changes[:_MOST_SAID]:
        shown = change.written(formats[change.features[0]])
        by = f" ({shown.difference})" if shown.difference else ""
        said.append(f"{change.name}: {shown.before} → {shown.after}{by}")
    more = len(changes) - _MOST_SAID
    return ", ".join(said) + (f", … and {more} more" if more > 0 else "")


def _chosen(names: Sequence[str], values: Sequence[float]) -> str:
    return " and ".join(n for n, value in zip(names, values, strict=True) if value) or "none"


def _differ(before: float, after: float) -> bool:
    return before != after and not (math.isnan(before) and math.isnan(after))


def _figure(value: Any) -> str:
    if value is None:
        return MISSING
    return value if isinstance(value, str) else f"{value:.7g}"


def _in_full(value: Any) -> str:
    """A value with every digit that tells it from others."""
    return plainly(value) if isinstance(value, float) else _figure(value)
