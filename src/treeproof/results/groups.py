"""How a model decides about groups of rows, counted in data: beside a proof, and no part of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.query.description import plain
from treeproof.results.changes import MISSING, Naming
from treeproof.results.numbers import counted, number, percent

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
    column = values[:, 0]
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
