"""What was found about a property: a verdict, two bounds, and a pair of rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import listed
from treeproof.query.description import plain
from treeproof.results.changes import MISSING
from treeproof.results.groups import GroupDecisions
from treeproof.results.numbers import digits_above, digits_below, plainly
from treeproof.results.verdict import UnknownReason, Verdict

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PropertyResult:
    """The answer to one property over one domain.

    Parameters
    ----------
    claim : dict
        The claim in words, as plain data.
    verdict : Verdict
        'verified', 'falsified' or 'unknown'. Where an optimum is asked for and nothing is claimed:
        'verified' when it was found.
    quantity : str
        What `lower` and `upper` bound, such as "largest change of the score"; empty where the
        property has no such number.
    lower, upper : float
        Bounds of the quantity, for the deployed model: `lower` is that of `witness`, replayed;
        nothing larger than `upper` exists. NaN without a quantity.
    exact : bool
        Whether the search was closed: the bounds differ by no more than the rounding of the model's
        own sums and a trillionth of the largest sum that leaves of all trees could have (a
        ten-millionth with evidence, whose numbers are rounded).
    witness : float64 (2, n_features) or None
        A pair of rows: what breaks the property, or reaches `lower`. Of questions about single
        rows both are the same. None where there is none, or two equal rows would do.
    scores : float64 (2, n_outputs) or None
        Raw scores of the pair.
    labels : tuple or None
        Labels of the pair, for classifiers.
    probabilities : float64 (2, n_classes) or None
        Probabilities of the classes for the pair, where the model's library tells what its scores
        mean.
    categories : dict
        Names of the categories of features that have names, by the features' names.
    reason : UnknownReason
        Why the verdict is 'unknown'.
    row : int
        Number of the row that the domain is around; -1 without rows.
    values : tuple of float or None
        Values of that row, one for each feature.
    domain : dict or None
        Where it was asked, in words as files hold them.
    feature_names : tuple of str
        Names, or numbers as text.
    seconds : float
        Time of the search.
    statistics : dict
        Boxes searched (`nodes`), and pairs of leaves in all difference trees (`leaves`).
    evidence : str or None
        The proof, as text that the checker has accepted; None where it was not asked for, or a
        limit ended the recording.
    groups : tuple of GroupDecisions
        Of a `Fair` claim with `data`: how many of their rows get each label, for each value of the
        protected features. Counts from the data, which prove nothing.
    """

    claim: dict[str, Any]
    verdict: Verdict
    quantity: str = ""
    lower: float = math.nan
    upper: float = math.nan
    exact: bool = False
    witness: FloatArray | None = None
    scores: FloatArray | None = None
    labels: tuple[Any, ...] | None = None
    probabilities: FloatArray | None = None
    categories: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    reason: UnknownReason = UnknownReason.NONE
    row: int = -1
    values: tuple[float, ...] | None = None
    domain: Any = None
    feature_names: tuple[str, ...] = ()
    seconds: float = 0.0
    statistics: dict[str, int] = field(default_factory=dict)
    evidence: str | None = None
    groups: tuple[GroupDecisions, ...] = ()

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the features in which the rows of the witness differ."""
        if self.witness is None:
            return ()
        one, other = self.witness
        differs = (one != other) & ~(np.isnan(one) & np.isnan(other))
        return tuple(self.feature_names[number] for number in np.flatnonzero(differs))

    def record(self) -> dict[str, Any]:
        """Everything but the evidence as plain data, as JSON can hold it."""
        words: dict[str, Any] = {
            "claim": self.claim,
            "verdict": str(self.verdict),
            "reason": str(self.reason),
            "quantity": self.quantity,
            "lower": self.lower,
            "upper": self.upper,
            "exact": self.exact,
            "row": self.row,
            "values": None if self.values is None else list(self.values),
            "seconds": self.seconds,
            "witness": None,
        }
        if self.witness is not None:
            words["witness"] = {
                "changed": list(self.changed),
                "rows": [
                    dict(zip(self.feature_names, row.tolist(), strict=True)) for row in self.witness
                ],
                "scores": None if self.scores is None else self.scores.tolist(),
                "labels": None if self.labels is None else list(self.labels),
            }
            if self.probabilities is not None:
                words["witness"]["probabilities"] = self.probabilities.tolist()
        if self.groups:
            words["groups"] = [group.record() for group in self.groups]
        return dict(plain(words | {"statistics": self.statistics}))

    def summary(self) -> str:
        """The answer in a few lines."""
        name = self.claim.get("name", "property")
        options = ", ".join(
            f"{key}={value}"
            for key, value in self.claim.items()
            if key != "name" and value is not None
        )
        lines = [
            f"{name}({options}): {self.verdict}" + (f" ({self.reason})" if self.reason else "")
        ]
        if self.quantity and not math.isnan(self.upper):
            ends = (digits_below(self.lower, 7), digits_above(self.upper, 7))
            lower, upper = map(plainly, ends)
            bounds = lower if lower == upper else f"{lower} to {upper}"
            if self.upper == math.inf:
                bounds = f"at least {lower}"
            lines.append(f"  {self.quantity}: {bounds}")
        if self.witness is not None and self.scores is not None:
            for number, (row, score) in enumerate(zip(self.witness, self.scores, strict=True)):
                if number and not self.changed:
                    break
                values = self._values(row, self.changed)
                label = "" if self.labels is None else f", label {self.labels[number]}"
                said = ", ".join(f"{value:.7g}" for value in score)
                likely = self._probability(number)
                lines.append(f"  {values or 'row'}: score {said}{likely}{label}")
            rest = [name for name in self.feature_names if name not in self.changed]
            if rest:
                where = "in both" if self.changed else "the row"
                lines.append(f"  {where}: {self._values(self.witness[0], rest)}")
        if self.groups:
            lines.append("  in the data, counted and not proved:")
            lines += [f"    {group}" for group in self.groups]
        return "\n".join(lines)

    def _values(self, row: FloatArray, names: Sequence[str]) -> str:
        """Values of some features, categories by name; nothing of none."""
        if not names:
            return ""
        return listed([f"{name} {self._value(row, name)}" for name in names])

    def _value(self, row: FloatArray, name: str) -> str:
        value, known = float(row[self.feature_names.index(name)]), self.categories.get(name, ())
        if math.isnan(value):
            return MISSING
        is_code = 0 <= value < len(known) and value == math.floor(value)
        return str(known[int(value)]) if is_code else plainly(value)

    def _probability(self, number: int) -> str:
        """The probability of one row of the pair: of the last class, or of each of several."""
        if self.probabilities is None:
            return ""
        shares = self.probabilities[number].tolist()
        said = ", ".join(f"{share:.4g}" for share in (shares[1:] if len(shares) == 2 else shares))
        return f", probability {said}"

    def __repr__(self) -> str:
        return f"<PropertyResult\n{self.summary()}>"


class ScoreBounds(NamedTuple):
    """The smallest and the largest score of a domain, each with both bounds and its row.

    Parameters
    ----------
    minimum, maximum : PropertyResult
        `lower` and `upper` bound the score; `witness` is the input that reaches the nearer one.
    """

    minimum: PropertyResult
    maximum: PropertyResult
