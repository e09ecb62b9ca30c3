"""`RowAnswer`: what was found about one row, as `Results` give it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.results.changes import Change, in_words
from treeproof.results.numbers import ColumnFormats, digits_above, digits_below, number, row_name
from treeproof.results.results import Results

_DIGITS = 6


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RowAnswer:
    """What was found about one row.

    Parameters
    ----------
    results : Results
        The answers that it is one of.
    position : int
        Its place in them.
    """

    results: Results
    position: int

    def __repr__(self) -> str:
        return f"<treeproof.RowAnswer: {self}>"

    def __str__(self) -> str:
        """As in ``row 3: radius 0.1324, age: 41 → 42``."""
        said = [self._in_short()]
        if self.results.values is not None and self.has_witness:
            # A row does not know the precision of its columns, its table does.
            said.append(in_words(self.changes, ColumnFormats(self.results.values)))
        if self.reason:
            said.append(self.reason)
        name = row_name(self.row, self.id)
        return f"row {name}: {', '.join(filter(None, said))}"

    def _in_short(self) -> str:
        if not self.results.asks_radius:
            return self.verdict
        if self.misclassified:
            return "misclassified, radius 0"
        if self.exact:
            return f"radius {number(self.radius, _DIGITS)}"
        ends = digits_below(self.lower, _DIGITS), digits_above(self.upper, _DIGITS)
        return f"radius from {number(ends[0], _DIGITS)} to {number(ends[1], _DIGITS)}"

    @property
    def row(self) -> int:
        """Its number in the data that it came from."""
        return int(self.results.row[self.position])

    @property
    def id(self) -> Any:
        """What the user knows it by; None where that was not said."""
        return None if self.results.id is None else self.results.id[self.position]

    @property
    def index(self) -> Any:
        """Its entry in the index of the data frame that was asked about; else its number."""
        source = self.results.source
        has_index = source is not None and source.index is not None
        return source.index[self.position] if source and has_index else self.row

    @property
    def label(self) -> Any:
        """The label that it should keep; None for scores."""
        return self.results.label[self.position]

    @property
    def predicted(self) -> Any:
        """The label that the model gives it; None for scores."""
        predicted = self.results.predicted
        return None if predicted is None else predicted[self.position]

    @property
    def probability(self) -> float:
        """Probability that the model gives that label; NaN where its library does not tell."""
        return self._number("probability")

    @property
    def verdict(self) -> str:
        """What was decided: 'verified', 'falsified' or 'unknown'; of a radius see `Results`."""
        return str(self.results.verdict[self.position])

    @property
    def lower(self) -> float:
        """No violation at a distance below; NaN for boxes."""
        return float(self.results.lower[self.position])

    @property
    def upper(self) -> float:
        """A violation at this distance, or just beyond; NaN for boxes."""
        return float(self.results.upper[self.position])

    @property
    def exact(self) -> bool:
        """Whether it is settled."""
        return bool(self.results.exact[self.position])

    @property
    def radius(self) -> float:
        """The exact radius or least cost; NaN where it is not exact, or was not asked for."""
        return float(self.results.radius[self.position])

    @property
    def misclassified(self) -> bool:
        """Whether the model gets it wrong as it stands."""
        return bool(self.results.misclassified[self.position])

    @property
    def has_witness(self) -> bool:
        """Whether a changed row that breaks the claim is known."""
        return not np.isnan(self.results.witness[self.position]).all()

    @property
    def witness(self) -> NDArray[np.float64] | None:
        """That changed row, in short numbers that break the claim as they are; or None."""
        if not self.has_witness:
            return None
        results = self.results
        shown = results.witness if results.shown is None else results.shown
        return np.array(shown[self.position])

    @property
    def becomes(self) -> Any:
        """The label that the model gives the changed row; None without one, and for scores."""
        labels = self.results.witness_label
        return None if labels is None else labels[self.position]

    @property
    def witness_probability(self) -> float:
        """Probability of the label `predicted` for the changed row; NaN where it is not known."""
        return self._number("witness_probability")

    @property
    def changes(self) -> list[Change]:
        """What the changed row changes; see `Results.changes`."""
        return self.results.changes(self.position)

    @property
    def cost(self) -> float:
        """Distance or cost of the changed row; NaN without one, and for boxes."""
        return self._number("cost")

    @property
    def seconds(self) -> float:
        """Time that it took."""
        return float(self.results.seconds[self.position])

    @property
    def reason(self) -> str:
        """Why it is undecided; empty otherwise."""
        return str(self.results.reason[self.position])

    def _number(self, name: str) -> float:
        column = getattr(self.results, name)
        return float("nan") if column is None else float(column[self.position])
