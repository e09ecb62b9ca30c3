"""What was found about single features, and what all tables about features have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import listed
from treeproof.model.inspection import plain_value
from treeproof.query.arithmetic import summary_lines
from treeproof.query.description import plain
from treeproof.results.columns import frame_of
from treeproof.results.numbers import counted, number

FloatArray = NDArray[np.float64]

KEPT_FIXED = "kept fixed (categories and missing values never move)"


class FeatureTable:
    """What tables about features have in common."""

    __slots__ = ()

    row: NDArray[np.int64]
    label: NDArray[Any]
    feature_names: tuple[str, ...]
    question: dict[str, Any]
    id: NDArray[Any] | None
    _caption: ClassVar[str]

    def __len__(self) -> int:
        return len(self.row)

    def __repr__(self) -> str:
        return f"<treeproof.{type(self).__name__}: {self.summary().splitlines()[0]}>"

    def _repr_html_(self) -> str:
        from treeproof.results.display import ROWS_SHOWN, table_html

        shown = range(min(len(self), ROWS_SHOWN))
        begin = [self.known(i) | {"label": self.label[i]} for i in shown]
        texts = [["" if cell is None else str(cell) for cell in b.values()] for b in begin]
        rows = [[*texts[i], self._words(i)] for i in shown]
        columns = [*(begin[0] if begin else ("row", "label")), self._caption]
        return table_html(self.summary(), columns, rows, len(self))

    def known(self, row: int = 0) -> dict[str, Any]:
        """What one row is known by: its number, and its identifier where there is one.

        Parameters
        ----------
        row : int
            Position of the row in these results.
        """
        names = {} if self.id is None else {"id": plain_value(plain(self.id[row]))}
        return {"row": int(self.row[row])} | names

    def name(self, feature: int) -> str:
        """Name of a feature, or its number.

        Parameters
        ----------
        feature : int
            Its number.
        """
        return self.feature_names[feature] if self.feature_names else f"f{feature}"

    def to_frame(self) -> Any:
        """What `records` lists, a line each, as a data frame of pandas or polars."""
        return frame_of(self.records())

    def records(self) -> list[dict[str, Any]]:
        """The table as plain data."""
        raise NotImplementedError

    def summary(self) -> str:
        """Say in a few lines what was found."""
        raise NotImplementedError

    def _words(self, row: int) -> str:
        """What was found about a row, under the caption of notebooks."""
        raise NotImplementedError

    def _summary(self, lines: list[str], broken: NDArray[np.bool_], kept: list[list[str]]) -> str:
        """Lines of a summary, with what is already broken and what no proof is about."""
        if broken.any():
            lines.append(f"already broken: {counted(int(broken.sum()), 'row')}")
        names = dict.fromkeys(name for row in kept for name in row)
        if names:
            where = counted(sum(map(bool, kept)), "row")
            lines.append(f"{KEPT_FIXED} in {where}: {listed(list(names))}")
        return "\n".join(lines + summary_lines({"question": self.question, "model": self.question}))


@dataclass(slots=True, kw_only=True, repr=False)
class FeatureResults(FeatureTable):
    """How far each feature alone may move, for every row; all of it exact.

    Parameters
    ----------
    row : int64 (n_rows,)
        Number of each row.
    label : object (n_rows,)
        Label that the row should keep; None for scores.
    radius : float64 (n_rows, n_features)
        Smallest movement of the feature alone that breaks the claim; infinite where none does. NaN
        for boxes, which have no radius.
    attained : bool (n_rows, n_features)
        Whether that very movement breaks it, or only every larger one.
    breaking_value : float64 (n_rows, n_features)
        A value of the feature that breaks the claim, in the model's precision; NaN where none does.
    unimportant : bool (n_rows, n_features)
        Whether the feature alone, moved as the question allows, is proved to keep the claim.
    examined : bool (n_rows, n_features)
        False for missing and categorical entries that the model looks at: they are never moved,
        and nothing is claimed about other values of them.
    broken : bool (n_rows,)
        Rows that break the claim unchanged; nothing is unimportant for them.
    feature_names : tuple of str
        Names of the features, or empty.
    question : dict
        What was asked.
    id : object (n_rows,), optional
        What the user knows each row by: a number or a text.
    """

    row: NDArray[np.int64]
    label: NDArray[Any]
    radius: FloatArray
    attained: NDArray[np.bool_]
    breaking_value: FloatArray
    unimportant: NDArray[np.bool_]
    examined: NDArray[np.bool_]
    broken: NDArray[np.bool_]
    feature_names: tuple[str, ...] = ()
    question: dict[str, Any] = field(default_factory=dict)
    id: NDArray[Any] | None = None
    _caption: ClassVar[str] = "what breaks the claim alone"

    def kept_names(self, row: int = 0) -> list[str]:
        """Names of the features that were kept fixed: categories and missing values never move.

        Parameters
        ----------
        row : int
            Position of the row in these results.
        """
        return [self.name(int(feature)) for feature in np.flatnonzero(~self.examined[row])]

    def summary(self) -> str:
        """Say in a few lines what was found."""
        counts = self.unimportant.sum(axis=1)
        examined = self.examined.sum(axis=1)
        lines = [
            f"{counted(len(self), 'row')}, {counted(self.radius.shape[1], 'feature')}:"
            f" on average {np.mean(counts):.6g} of {np.mean(examined):.6g} features cannot break"
            " the claim alone"
        ]
        finite = np.isfinite(self.radius)
        if finite.any():
            nearest = np.where(finite, self.radius, np.inf).min(axis=1)
            lines.append(
                f"smallest single-feature radius: median over rows {np.median(nearest):.6g}"
            )
        return self._summary(lines, self.broken, list(map(self.kept_names, range(len(self)))))

    def _words(self, row: int) -> str:
        if self.broken[row]:
            return "already broken"
        found = np.flatnonzero(self.examined[row] & ~self.unimportant[row])
        nearest = found[np.argsort(self.radius[row, found], kind="stable")]
        sizes = [self.radius[row, feature] for feature in nearest]
        texts = [
            self.name(int(feature)) + (f" by {number(size, 6)}" if np.isfinite(size) else "")
            for feature, size in zip(nearest, sizes, strict=True)
        ]
        return listed(texts) if texts else "no feature that moves"

    def records(self) -> list[dict[str, Any]]:
        """One record per row and examined feature, as plain data."""
        return [
            self.known(i)
            | {
                "label": self.label[i],
                "feature": self.name(int(feature)),
                "unimportant": bool(self.unimportant[i, feature]),
                "radius": float(self.radius[i, feature]),
                "attained": bool(self.attained[i, feature]),
                "breaking_value": float(self.breaking_value[i, feature]),
            }
            for i, feature in np.argwhere(self.examined)
        ]
