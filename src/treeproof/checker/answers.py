"""Answers: whether what the record of a row says follows from its evidence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np

from treeproof.checker import schema
from treeproof.checker.claims import Claim, cell_box, margins, read_claim, require, ways_of
from treeproof.checker.forest import Forest
from treeproof.checker.proofs import Met, Reader, check_way
from treeproof.checker.questions import Question, same_label
from treeproof.checker.witnesses import (
    check_in_set,
    distance_of,
    level_of,
    reaches,
    rounded_down,
    same_number,
)
from treeproof.errors import CertificateRejected, InvalidInput
from treeproof.model import evaluate
from treeproof.model.domain import accept_float64_rows
from treeproof.model.ensemble import Ensemble

NODES_PER_BYTE = 4
"""Nodes of a proof for each byte of its packed form, at most, and one more for each way."""


@dataclass(frozen=True, slots=True)
class RowCheck:
    """What came out for a row: 'accepted', 'rejected', 'unproved' or 'claims nothing'; and why."""

    row: int
    status: str
    reason: str = ""


class RunChecker:
    """Checks the rows of a run against a model and the question in the header of the run."""

    def __init__(self, header: dict[str, Any], ensemble: Ensemble) -> None:
        try:
            self.header = msgspec.convert(header, schema.Header)
        except msgspec.ValidationError as error:
            raise InvalidInput(
                f"A run must start with a header record that can be checked. Got: {error}."
            ) from error
        if self.header.model.fingerprint != ensemble.fingerprint:
            raise InvalidInput(
                "The run must be about the model it is checked with. Got another model:"
                f" {self.header.model.fingerprint[:12]}… in the run, {ensemble.fingerprint[:12]}…"
            )
        self.question = Question(self.header, ensemble)
        self.forest = Forest(
            accept_float64_rows(ensemble) if self.question.is_float64 else ensemble
        )

    def check(
        self,
        record: dict[str, Any] | schema.Row,
        values: Sequence[float] | None = None,
        label: schema.Label = None,
    ) -> RowCheck:
        """Check one row.

        Parameters
        ----------
        record : dict or Row
            The record of the row.
        values, label
            Where they are known from elsewhere: what the row must hold, and the label that the run
            must have been given for it.
        """
        number = -1
        try:
            row = msgspec.convert(record, schema.Row)
            number = row.row
            status, reason = self._status(row, values, label)
        except CertificateRejected as error:
            return RowCheck(number, "rejected", str(error))
        except msgspec.ValidationError as error:
            return RowCheck(number, "rejected", f"record: it cannot be read ({error})")
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            # Sound: what cannot be followed is not accepted. No such record is known.
            return RowCheck(number, "rejected", f"record: it cannot be checked ({error!r})")
        return RowCheck(number, status, reason)

    def _status(
        self, row: schema.Row, values: Sequence[float] | None, label: schema.Label
    ) -> tuple[str, str]:
        self.question.check_row_number(row.row)
        kind, radius = self._claimed_set(row)
        has_witness = row.verdict == "falsified" or _number(row.upper) < math.inf
        claim, text = None, "none: no evidence" if row.evidence is None else row.evidence
        if not text.startswith("none: "):
            claim = read_claim(text, self.forest)
        self._check_row(row, claim, values, label)
        if not has_witness:
            nothing = row.witness is None and row.witness_distance is None
            nothing &= row.witness_label in (None, msgspec.UNSET)
            require(nothing, "record: an answer without an upper bound has no witness")
        if kind == "none" and not has_witness:
            require(claim is None, "record: it has evidence, and claims nothing")
            return "claims nothing", ""
        if claim is None:
            return "unproved", text.removeprefix("none: ")
        require(claim.kind == kind, f"claim: the set is {claim.kind}, the answer needs {kind}")
        same = kind == "none" or claim.radius == radius
        require(same, f"claim: the radius is {claim.radius!r}, the answer says {radius!r}")
        self._check_question(claim, row)
        ways = ways_of(self.forest, claim) if kind != "none" else []
        reader = Reader(claim.proof, NODES_PER_BYTE * claim.n_packed + len(ways))
        box = cell_box(self.forest, claim, kind, radius)
        met: Met = {}
        for way in ways:
            check_way(self.forest, claim, way, box, reader, met)
        require(reader.at == len(claim.proof), f"byte {reader.at}: the proof goes on")
        if has_witness:
            self._check_witness(claim, row)
        return "accepted", ""

    def _claimed_set(self, row: schema.Row) -> tuple[str, float]:
        """The set that the answer says is free of violations; its fields must fit together."""
        lower, upper, verdict = _number(row.lower), _number(row.upper), row.verdict
        settled = verdict != "unknown"
        require(row.exact == settled, f"record: 'exact' is {row.exact}, the row is {verdict}")
        nothing = lower == 0.0 and upper == math.inf
        if self.question.is_box:
            no_radius = row.lower is None and row.upper is None
            require(no_radius or (nothing and not settled), "record: a box has no radius")
        else:
            bounds = f"{row.lower!r} and {row.upper!r}"
            require(0.0 <= lower <= upper, f"record: there are no bounds {bounds}")
        if not self.question.asks_radius:
            found = verdict == "falsified"
            require(row.attained == found, f"record: 'attained' is {row.attained}, it is {verdict}")
            kind = "box" if self.question.is_box else "closed"
            if kind == "closed":
                eps = self.question.eps if verdict == "verified" else 0.0
                require(lower == eps, f"record: lower is {lower!r}, shown is {eps!r}")
                require(
                    (upper == math.inf) != found, f"record: upper is {upper!r}, it is {verdict}"
                )
            return (kind, self.question.eps) if verdict == "verified" else ("none", 0.0)
        require(lower == upper or not settled, f"record: an exact radius has bounds {bounds}")
        require(upper < math.inf or not row.attained, "record: nothing attains infinity")
        broken = upper == 0.0 and row.attained
        require(broken == (verdict == "falsified"), "record: 'falsified' is a row of radius 0")
        if settled and not row.attained:
            return "closed", lower
        return ("open", lower) if lower > 0.0 else ("none", 0.0)

    def _check_row(
        self,
        row: schema.Row,
        claim: Claim | None,
        values: Sequence[float] | None,
        label: schema.Label,
    ) -> None:
        """Compare the row's values and labels with each other, the model and the data."""
        question, classes = self.question, self.question.classes
        number = question.class_number(row.label)
        known = number >= 0 if classes else row.label is None
        require(known, f"record: there is no class {row.label!r}")
        if label is not None and not question.own_labels:
            require(same_label(label, row.label), f"record: the label of the data is {label!r}")
        stated = None if row.values is None else [_number(value) for value in row.values]
        own = stated if claim is None else claim.row
        for other in (stated, values):
            same = other is None or (own is not None and _same(own, other))
            require(same, "claim: it is about another row")
        if own is None:
            unsaid = row.predicted in (None, msgspec.UNSET)
            require(unsaid, "record: a prediction needs the values of the row")
            return
        self._check_input(own, "row")
        mine = classes[self._label(own)] if classes else None
        same = row.predicted is msgspec.UNSET or same_label(row.predicted, mine)
        require(same, f"record: the model predicts {mine!r}")
        is_own = not question.own_labels or same_label(row.label, mine)
        require(is_own, f"record: the model's own label is {mine!r}")

    def _check_input(self, point: list[float], what: str) -> None:
        ensemble = self.forest.ensemble
        require(len(point) == ensemble.n_features, f"{what}: one value per feature")
        cast = evaluate.cast_rows(ensemble, np.array([point]))[0].tolist()
        require(_same(cast, point), f"{what}: it is not in the model's input precision")
        missing = not ensemble.missing_allowed and any(map(math.isnan, point))
        require(not missing, f"{what}: the model takes no missing values")

    def _check_question(self, claim: Claim, row: schema.Row) -> None:
        """Compare the claim's set and goal with the question of the run."""
        question, goal = self.question, self.question.goal
        number = question.class_number(row.label)
        for name, numbers in question.reach(row.row, claim.row, number):
            same = getattr(claim, name) == numbers
            require(same, f"claim: '{name}' is not that of the question")
        if isinstance(goal, schema.KeepsLabel):
            wanted: Any = ("keep", number)
        elif isinstance(goal, schema.AvoidsTarget):
            wanted = ("avoid", question.class_number(goal.target))
        elif isinstance(goal, schema.ScoreWithin):
            wanted = tuple(end for side in question.ranges for end in side.of(row.row))
        else:
            wanted = _range_around(self._margins(claim.row)[0], float(goal.delta))
        stated, value = claim.goal
        found = _floats(value) if stated == "within" else (stated, value)
        require(found == wanted, f"claim: the goal is not {wanted}")

    def _margins(self, point: list[float]) -> list[float]:
        """The model's own margins of a point."""
        forest = self.forest
        leaves = [(tree, forest.leaf_of(tree, point)) for tree in range(len(forest.output))]
        return margins(forest.ensemble, forest.rounded_sums(leaves))

    def _label(self, point: list[float]) -> int:
        """Number of the class that the model gives a point."""
        ensemble = self.forest.ensemble
        scores = np.array([self._margins(point)], dtype=ensemble.aggregation.precision)
        return int(evaluate.label_indices(ensemble, scores)[0])

    def _check_witness(self, claim: Claim, row: schema.Row) -> None:
        """Replay the witness, see that it is in the set, and derive the bound that it shows."""
        question, classes = self.question, self.question.classes
        # A row without any value is its own witness, and is written as none.
        stated = [None] * len(claim.row) if row.witness is None else row.witness
        point = [_number(value) for value in stated]
        self._check_input(point, "witness")
        name, value = claim.goal
        label = self._label(point) if classes else -1
        if name == "within":
            least, most = _floats(value)
            inside = least <= self._margins(point)[0] <= most
            require(not inside, "witness: its score is in the range")
        else:
            require((label == value) == (name == "avoid"), f"witness: its label is {label}")
        if row.witness_label is not msgspec.UNSET:
            mine = classes[label] if classes and row.witness is not None else None
            require(same_label(row.witness_label, mine), f"witness: its label is {mine!r}")
        distance = distance_of(claim, point)
        same = _number(row.witness_distance) == distance
        require(same, f"witness: its distance is {distance!r}")
        if question.is_box:
            check_in_set(self.forest, claim, point, distance, math.inf)
            return
        upper, level = _number(row.upper), level_of(self.forest, claim, point)
        if not question.asks_radius:
            nearest = min(question.eps, distance)
            require(upper == nearest, f"witness: it shows an upper bound of {nearest!r}")
        elif not row.attained:
            nearest = rounded_down(level[0])
            require(upper == nearest, f"witness: it shows an upper bound of {nearest!r}")
        attains = reaches(upper, level)
        require(attains == row.attained, f"witness: 'attained' is {attains}")
        require(upper <= distance, f"witness: it is as near as {distance!r}")
        radius = upper if row.attained else math.nextafter(upper, math.inf)
        check_in_set(self.forest, claim, point, distance, radius)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _floats(texts: Any) -> tuple[float, ...]:
    return tuple(float.fromhex(text) for text in texts)


def _same(left: Sequence[float], right: Sequence[float]) -> bool:
    return len(left) == len(right) and all(map(same_number, left, right))


def _range_around(score: float, delta: float) -> tuple[float, float]:
    """Least and largest double that differ from a score by at most delta."""
    if math.isinf(delta):
        return -math.inf, math.inf
    low, high = (rounded_down(sign * Fraction(score) + Fraction(delta)) for sign in (-1, 1))
    return -low, high
