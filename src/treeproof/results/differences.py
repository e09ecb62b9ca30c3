"""What was found about two models: whether they are the same, or how far apart they can be."""

import math
from dataclasses import dataclass
from typing import Any

from treeproof.query.description import plain
from treeproof.results.numbers import digits_above, digits_below, plainly
from treeproof.results.properties import FloatArray, PropertyResult
from treeproof.results.verdict import UnknownReason, Verdict

MOST_VALUES = 16
"""Values of a row that a summary shows."""


@dataclass(frozen=True, slots=True)
class TreeDifferences:
    """How the trees of two models differ, whatever that means for their scores.

    Parameters
    ----------
    n_first, n_second : int
        Trees of both models.
    n_same : int
        Trees that have the same splits and leaves in both.
    since_round : int or None
        First round, from 0 on, in which the trees of some output differ; None where all are the
        same.
    different : tuple of (int or None, int or None, str)
        Trees of the first and of the second model that go together, and what is not the same:
        'splits', 'leaves', 'splits and leaves', 'shape', 'only in the first' or 'only in
        the second'.
    """

    n_first: int
    n_second: int
    n_same: int
    since_round: int | None
    different: tuple[tuple[int | None, int | None, str], ...]

    def summary(self) -> str:
        """One line."""
        if not self.different:
            return (
                "the only tree is the same"
                if self.n_same == 1
                else f"all {self.n_same} trees are the same"
            )
        kinds: dict[str, int] = {}
        for _, _, what in self.different:
            kinds[what] = kinds.get(what, 0) + 1
        said = ", ".join(f"{count} in {kind}" if not kind.startswith("only") else f"{count} {kind}"
                         for kind, count in kinds.items())  # fmt: skip
        return (
            f"{self.n_same} of {self.n_first} and {self.n_second} trees have the same splits and"
            f" leaves, the others from round {self.since_round} on do not: {said}"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiffResult:
    """Whether two models are the same over one domain, and how far apart they can be.

    Parameters
    ----------
    delta : float
        Scores that differ by no more are the same.
    scores : PropertyResult or None
        The largest difference of a score; None where scores mean different things.
    labels : PropertyResult or None
        Whether some row gets two labels; None where that was not asked.
    deciding : tuple of str
        Which of 'scores' and 'labels' make the verdict.
    note : str
        What follows for labels, or why scores were not compared.
    trees : TreeDifferences
        Which trees differ.
    """

    delta: float
    scores: PropertyResult | None
    labels: PropertyResult | None
    deciding: tuple[str, ...]
    note: str
    trees: TreeDifferences

    @property
    def parts(self) -> tuple[PropertyResult, ...]:
        """What was asked about scores and labels."""
        return tuple(part for part in (self.scores, self.labels) if part is not None)

    @property
    def _decided(self) -> tuple[PropertyResult, ...]:
        return tuple(getattr(self, name) for name in self.deciding)

    @property
    def verdict(self) -> Verdict:
        """'verified': proved the same; 'falsified': `witness` tells them apart; or 'unknown'."""
        verdicts = [part.verdict for part in self._decided]
        for verdict in (Verdict.FALSIFIED, Verdict.UNKNOWN):
            if verdict in verdicts:
                return verdict
        return Verdict.VERIFIED

    @property
    def reason(self) -> UnknownReason:
        """Why the verdict is 'unknown'."""
        unknown = [part.reason for part in self._decided if part.verdict == Verdict.UNKNOWN]
        return unknown[0] if unknown and self.verdict == Verdict.UNKNOWN else UnknownReason.NONE

    @property
    def lower(self) -> float:
        """Difference of the scores of `witness`, replayed; NaN where scores were not compared."""
        return float("nan") if self.scores is None else self.scores.lower

    @property
    def upper(self) -> float:
        """No row has scores that differ by more; NaN where scores were not compared."""
        return float("nan") if self.scores is None else self.scores.upper

    @property
    def exact(self) -> bool:
        """Whether `lower` and `upper` differ by no more than the rounding of the models' sums."""
        return self.scores is not None and self.scores.exact

    @property
    def row(self) -> int:
        """Number of the row that the domain is around; -1 without rows."""
        return self.parts[0].row

    @property
    def witness(self) -> FloatArray | None:
        """The row, (n_features,), whose scores differ most; without scores, one with two labels."""
        found = self.parts[0].witness
        return None if found is None else found[0]

    def record(self) -> dict[str, Any]:
        """Everything but the evidence as plain data, as JSON can hold it."""
        return dict(
            plain(
                {
                    "verdict": str(self.verdict),
                    "reason": str(self.reason),
                    "delta": self.delta,
                    "lower": self.lower,
                    "upper": self.upper,
                    "exact": self.exact,
                    "row": self.row,
                    "deciding": list(self.deciding),
                    "note": self.note,
                    "scores": None if self.scores is None else self.scores.record(),
                    "labels": None if self.labels is None else self.labels.record(),
                    "trees": {
                        "first": self.trees.n_first,
                        "second": self.trees.n_second,
                        "same": self.trees.n_same,
                        "since_round": self.trees.since_round,
                        "different": [list(item) for item in self.trees.different],
                    },
                }
            )
        )

    def summary(self) -> str:
        """The answer in a few lines."""
        words = {
            Verdict.VERIFIED: "the same: proved for every row of the domain",
            Verdict.FALSIFIED: "not the same",
            Verdict.UNKNOWN: f"unknown ({self.reason})",
        }
        lines = [words[self.verdict]]
        if self.scores is not None:
            ends = (digits_below(self.lower, 7), digits_above(self.upper, 7))
            lower, upper = map(plainly, ends)
            bounds = lower if lower == upper else f"between {lower} and {upper}"
            lines.append(f"  largest difference of a score: {bounds} (allowed: {self.delta:.3g})")
            lines += _told(self.scores)
        if self.labels is not None:
            said = {
                Verdict.VERIFIED: "the same everywhere",
                Verdict.FALSIFIED: "two labels for one row",
                Verdict.UNKNOWN: f"unknown ({self.labels.reason})",
            }
            lines.append(f"  labels: {said[self.labels.verdict]}")
            lines += _told(self.labels)
        lines += [f"  {self.note}"] if self.note else []
        return "\n".join([*lines, f"  trees: {self.trees.summary()}"])

    def __repr__(self) -> str:
        return f"<DiffResult\n{self.summary()}>"


def _told(part: PropertyResult) -> list[str]:
    """The row of a part, and what both models make of it."""
    if part.witness is None or part.scores is None:
        return []
    names = part.feature_names
    values = ", ".join(
        f"{name} {value!r}" for name, value in zip(names, part.witness[0].tolist(), strict=True)
        if names.index(name) < MOST_VALUES
    )  # fmt: skip
    more = f", and {len(names) - MOST_VALUES} more" if len(names) > MOST_VALUES else ""
    lines = [f"    row: {values}{more}"]
    for number, name in enumerate(("first", "second")):
        score = ", ".join(f"{value:.9g}" for value in part.scores[number] if not math.isnan(value))
        label = "" if part.labels is None else f", label {part.labels[number]}"
        lines.append(f"    {name}: score {score}{label}")
    return lines
