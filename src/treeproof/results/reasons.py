"""Why answers are what they are: features that suffice, how far they may move, what to change."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from decimal import Decimal
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import listed
from treeproof.files import replacing
from treeproof.model.inspection import plain_value
from treeproof.query.description import plain
from treeproof.results.features import FeatureTable
from treeproof.results.numbers import column_format, counted, decimal_within

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Texts = NDArray[Any]
Sets = list[Ints]
Tables = list[Floats]

_DIGITS = 6
"""Significant digits of the end of an interval that are looked at."""
_SAVED = (
    *("values", "features", "kept", "sufficient", "minimal", "intervals", "widest"),
    *("size_lower_bound", "sets", "complete", "changes", "change_rows", "changes_minimal"),
    *("all_changes", "change_lower_bound", "witnesses", "seconds", "reason", "evidence"),
)
"""Columns of a file, beside row and label."""


@dataclass(slots=True, kw_only=True, repr=False)
class Reasons(FeatureTable):
    """Sets of features that fix the answer of each row, and changes that break it.

    While the features of a set keep the row's values, the answer is proved to stay whatever the
    other features are within the domain. Categories and missing values never move: the answer is
    proved to stay while they stay as they are, too. `kept` names them.

    Parameters
    ----------
    row : int64 (n_rows,)
        Number of each row.
    label : object (n_rows,)
        Label that the row should keep; None for scores.
    features : list of int64 arrays
        The set of each row; all features that are neither in it nor in `kept` may be anything in
        the domain. Of a group, all features are in it or none.
    kept : list of int64 arrays
        Features of each row that stay as they are besides: categories and missing values that the
        model looks at. Nothing is claimed about other values of them.
    sufficient : bool (n_rows,)
        Whether the set is proved to fix the answer. False for rows that are broken as they stand,
        and where no set without the features that must not be used suffices.
    minimal : bool (n_rows,)
        Whether it is also shown that no feature of the set can be left out; of a feature that must
        be used this is not asked.
    seconds : float64 (n_rows,)
        Time spent on each row.
    reason : str (n_rows,)
        Why the set is not sufficient or minimality is not shown; empty otherwise.
    intervals : list of float64 arrays (n, 2), or None
        How far each feature of the set may still move: from the first number, inclusive, to the
        second, exclusive; infinite where the domain ends, NaN for what keeps its value: categories,
        columns of a group, missing values. All may move at once. None where this was not asked for.
    widest : bool (n_rows,)
        Whether it is shown that no end of any interval can be moved further out.
    size_lower_bound : float64 (n_rows,)
        No sufficient set is smaller, or lighter where features have weights; equal to the size
        where that is the minimum. 0 where no minimum was asked for. A group counts as one.
    sets : list of lists of int64 arrays
        All sets found for each row, `features` first.
    complete : bool (n_rows,)
        Whether there are no minimal sets but those in `sets`.
    changes : list of lists of int64 arrays
        Sets of features whose change can break the claim.
    change_rows : list of float64 arrays (n_changes, n_features)
        For each of these a row that breaks the claim, with only those features changed.
    changes_minimal : bool (n_rows,)
        Whether it is shown that no feature of these changes is needless.
    all_changes : bool (n_rows,)
        Whether there are no minimal changes but those in `changes`.
    change_lower_bound : float64 (n_rows,)
        No such set is smaller, or lighter; 0 where no minimum was asked for, infinite where nothing
        breaks the claim.
    witnesses : list of float64 arrays (n, n_features)
        For each feature of `features` a row that breaks the claim, in which only that feature, or
        its group, and those outside the set are changed; NaN where none is known.
    evidence : object (n_rows,), or None
        Proofs that the sets suffice, for ``treeproof check``; see `Results`.
    values : float64 (n_rows, n_features)
        The rows.
    feature_names : tuple of str
        Names of the features, or empty.
    question : dict
        What was asked.
    header : dict
        What a file of these results starts with.
    id : object (n_rows,), optional
        What the user knows each row by: a number or a text.
    """

    row: Ints
    label: Texts
    features: Sets
    kept: Sets
    sufficient: Flags
    minimal: Flags
    seconds: Floats
    reason: Texts
    intervals: Tables | None
    widest: Flags
    size_lower_bound: Floats
    sets: list[Sets]
    complete: Flags
    changes: list[Sets]
    change_rows: Tables
    changes_minimal: Flags
    all_changes: Flags
    change_lower_bound: Floats
    witnesses: Tables
    evidence: Texts | None
    values: Floats
    feature_names: tuple[str, ...] = ()
    question: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    id: Texts | None = None
    _caption: ClassVar[str] = "why"

    @classmethod
    def empty(cls, values: Floats, label: Texts, kept: Sets) -> Reasons:
        """Nothing known yet."""
        n_rows, n_features = values.shape
        return cls(
            row=np.arange(n_rows, dtype=np.int64),
            label=label,
            features=[np.zeros(0, dtype=np.int64) for _ in range(n_rows)],
            kept=kept,
            sufficient=np.zeros(n_rows, dtype=bool),
            minimal=np.zeros(n_rows, dtype=bool),
            seconds=np.zeros(n_rows),
            reason=np.full(n_rows, "", dtype="<U64"),
            intervals=None,
            widest=np.zeros(n_rows, dtype=bool),
            size_lower_bound=np.zeros(n_rows),
            sets=[[] for _ in range(n_rows)],
            complete=np.zeros(n_rows, dtype=bool),
            changes=[[] for _ in range(n_rows)],
            change_rows=[np.zeros((0, n_features)) for _ in range(n_rows)],
            changes_minimal=np.ones(n_rows, dtype=bool),
            all_changes=np.zeros(n_rows, dtype=bool),
            change_lower_bound=np.zeros(n_rows),
            witnesses=[np.zeros((0, n_features)) for _ in range(n_rows)],
            evidence=None,
            values=values,
        )

    def names(self, row: int = 0) -> list[str]:
        """Names (or numbers) of the features of one row's set.

        Parameters
        ----------
        row : int
            Position of the row in these results.
        """
        return [self.name(int(feature)) for feature in self.features[row]]

    def group_of(self, feature: int) -> tuple[int, ...]:
        """Features that are kept or left open together with one; mostly it alone.

        Parameters
        ----------
        feature : int
            Its number.
        """
        groups = self.question.get("groups", ())
        return next((tuple(group) for group in groups if feature in group), (int(feature),))

    def sizes(self) -> Ints:
        """Number of features of each row's set, of which a group is one."""
        return np.array(
            [len(set(map(self.group_of, features.tolist()))) for features in self.features],
            dtype=np.int64,
        )

    def kept_names(self, row: int = 0) -> list[str]:
        """Names (or numbers) of the features of one row that are kept fixed besides its set.

        Parameters
        ----------
        row : int
            Position of the row in these results.
        """
        return [self.name(int(feature)) for feature in self.kept[row]]

    def sentence(self, row: int = 0) -> str:
        """Say in plain words why one row's answer is what it is.

        Numbers have the precision of their column, and never say more than is proved: the ends of
        an interval are rounded inwards.

        Parameters
        ----------
        row : int
            Position of the row in these results.
        """
        said = self._claim(row)
        if not self.sufficient[row]:
            return f"{said} is not fixed by any set: {self.reason[row]}"
        parts = [f"{self.name(f)} {text}".strip() for f, text in self.conditions(row)]
        besides = self.kept_names(row)
        stays = f", while {listed(besides)} stay as they are" if besides else ""
        if not parts:
            text = f"{said} is the same for all values of the features{stays}"
        else:
            text = f"{said} is fixed by {_joined(parts)}{stays}; nothing else matters"
        if not self.minimal[row]:
            text += " (perhaps not all of it is needed)"
        return text + "".join(f"; it changes with {moves}" for moves in self.change_texts(row))

    def change_texts(self, row: int = 0) -> list[str]:
        """What each change of one row gives its features, such as ``age = 45 and income = 12``.

        Parameters
        ----------
        row : int
            Position of the row in these results.
        """
        texts = []
        for features, point in zip(self.changes[row], self.change_rows[row], strict=True):
            same = (point == self.values[row]) | (np.isnan(point) & np.isnan(self.values[row]))
            moved = [f for f in features.tolist() if not same[f] and self._tells(f, point)]
            texts.append(_joined([f"{self.name(f)} {self._is(f, point[f])}" for f in moved]))
        return texts

    def _is(self, feature: int, value: float) -> str:
        """That a feature has a value; a category by its name, where the model has names."""
        names = (self.header.get("model") or {}).get("categories", {}).get(str(feature), ())
        if value in range(len(names)):
            return f"= {names[int(value)]!r}"
        precision = (self.header.get("model") or {}).get("input_precision")
        return _equals(value, is_single=precision == "float32")

    def _tells(self, feature: int, point: Floats) -> bool:
        """Whether a feature says what a group of the domain is: the one that is 1, or the first."""
        domain = (self.question.get("perturbation") or {}).get("domain") or {}
        group = next((g for g, _ in domain.get("groups", ()) if feature in g), None)
        if group is None or point[feature] != 0.0:
            return True
        return not point[group].any() and feature == group[0]

    def conditions(self, row: int = 0) -> list[tuple[int, str]]:
        """What fixes the answer of one row: features, and conditions such as ``in [31, 44]``.

        Of a one-hot group the column that is 1 stands for all.

        Parameters
        ----------
        row : int
            Position of the row in these results.
        """
        parts = []
        for place, feature in enumerate(self.features[row].tolist()):
            value = float(self.values[row, feature])
            ends = None if self.intervals is None else self.intervals[row][place]
            if ends is None or np.isnan(ends).any():
                if self._tells(feature, self.values[row]):
                    parts.append((feature, self._is(feature, value)))
                continue
            decimals = column_format(self.values[:, feature]).decimals
            low, high = (_inwards(end, value, decimals) for end in ends.tolist())
            if low == high:
                parts.append((feature, "" if low is None else f"= {low}"))
            elif low is None or high is None:
                parts.append((feature, f"<= {high}" if low is None else f">= {low}"))
            else:
                parts.append((feature, f"in [{low}, {high}]"))
        return parts

    def _claim(self, row: int) -> str:
        """What is fixed."""
        goal = self.question.get("goal") or {}
        kind = goal.get("name", "KeepsLabel")
        if kind == "AvoidsTarget":
            return f"an answer other than {goal['target']!r}"
        if kind == "ScoreChange":
            return f"a score within {goal['delta']:g} of the row's"
        if kind == "ScoreWithin":
            sides = (goal.get(side) for side in ("low", "high"))
            low, high = (side[row] if isinstance(side, list) else side for side in sides)
            if high == "inf":
                return f"a score >= {low}"
            return f"a score <= {high}" if low == "-inf" else f"a score in [{low}, {high}]"
        return f"the decision {self.label[row]!r}"

    def summary(self) -> str:
        """Say in a few lines what was found."""
        sizes = self.sizes()[self.sufficient]
        besides = " while categories and missing values stay" if any(map(len, self.kept)) else ""
        lines = [
            f"{counted(len(self), 'row')}: {counted(int(self.sufficient.sum()), 'set')} proved to"
            f" fix the answer{besides}"
        ]
        if len(sizes):
            lines.append(
                f"size: mean {np.mean(sizes):.6g}, least {min(sizes)}, largest {max(sizes)};"
                f" {int(self.minimal.sum())} proved minimal"
            )
        if self.size_lower_bound.any():
            lines.append(f"of minimum size: {counted(int(self.is_minimum().sum()), 'row')}")
        return self._summary(lines, ~self.sufficient, list(map(self.kept_names, range(len(self)))))

    def is_minimum(self) -> Flags:
        """Rows whose set is proved to be of minimum size, or weight."""
        weights = self.question.get("weights")
        known: Any = self.sizes()
        if weights is not None:
            groups = [set(map(self.group_of, features.tolist())) for features in self.features]
            known = np.array([sum(max(weights[f] for f in g) for g in found) for found in groups])
        is_asked = bool(self.question.get("minimum"))
        return self.sufficient & is_asked & (known <= self.size_lower_bound)

    def _words(self, row: int) -> str:
        return self.sentence(row)

    def records(self) -> list[dict[str, Any]]:
        """One record per row, as plain data."""
        is_minimum, sizes = self.is_minimum(), self.sizes()
        return [
            self.known(i)
            | {
                "label": self.label[i],
                "size": int(sizes[i]),
                "features": self.names(i),
                "kept_fixed": self.kept_names(i),
                "sufficient": bool(self.sufficient[i]),
                "minimal": bool(self.minimal[i]),
                "minimum": bool(is_minimum[i]),
                "seconds": float(self.seconds[i]),
                "reason": str(self.reason[i]),
            }
            for i in range(len(self))
        ]

    def save(self, path: str | PathLike[str]) -> None:
        """Write a file of JSON lines, the question first, that ``treeproof check`` reads.

        Parameters
        ----------
        path : str or path
            The file.
        """
        header = self.header | {"n_rows": len(self)}
        lines = [header, *({"record": "row"} | record for record in self.full_records())]
        with replacing(path, "The file") as file:
            for line in lines:
                file.write(json.dumps(plain(line)).encode("utf-8") + b"\n")

    def full_records(self) -> list[dict[str, Any]]:
        """All that was found about each row, features by their numbers."""
        return [
            self.known(i)
            | {"label": plain_value(self.label[i])}
            | {name: _listed(getattr(self, name), i) for name in _SAVED}
            for i in range(len(self))
        ]


def _listed(column: Any, row: int) -> Any:
    """What a column says of a row, without arrays; None where there is no such column."""
    value = None if column is None else column[row]
    if isinstance(value, list):
        return [_listed(value, place) for place in range(len(value))]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _joined(parts: list[str]) -> str:
    """Parts of a sentence: commas, and an 'and' before the last."""
    if len(parts) < 2:
        return "".join(parts)
    return ", ".join(parts[:-1]) + " and " + parts[-1]


def _equals(value: float, *, is_single: bool) -> str:
    """That a feature has a value, in as few digits as tell it from all others of its precision."""
    if math.isnan(value):
        return "is missing"
    with np.errstate(over="ignore"):
        single = np.float32(value)
    # A model that rounds its input reads the digits of a float32 as that very float32.
    text = str(single if is_single and float(single) == value else float(value))
    return f"= {text.removesuffix('.0')}"


def _inwards(end: float, value: float, decimals: int | None) -> str | None:
    """An end of an interval as a number inside it, no further in than the row's value; or None.

    The number has the decimals of its column, or of the end but one: a threshold lies half-way
    between two values of a column. Sound: what the text says is part of what the interval says.
    """
    if math.isinf(end):
        return None
    exponent = Decimal(f"{end:.{_DIGITS}g}").normalize().as_tuple().exponent
    places = max(-int(exponent) - 1, decimals or 0, 0)
    # The lower end belongs to the interval, the upper one does not.
    low, high = (end, math.nextafter(value, math.inf)) if end <= value else (value, end)
    shown = decimal_within(end, low, high, places)
    if shown is not None:
        text = f"{shown:f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return "0" if text == "-0" else text
    return repr(value).removesuffix(".0")
