"""Run files: whether every answer of a run follows from its evidence."""

import json
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from treeproof.checker.claims import Claim, cell_box, margins, read_claim, require, ways_of
from treeproof.checker.forest import Forest
from treeproof.checker.proofs import Reader, check_way
from treeproof.errors import CertificateRejected, InvalidInput
from treeproof.model import evaluate
from treeproof.model.domain import accept_float64_rows
from treeproof.model.ensemble import Ensemble
from treeproof.model.inspection import plain_value


@dataclass(frozen=True, slots=True)
class RowCheck:
    """What came out for a row: 'accepted', 'rejected', 'unproved' or 'claims nothing'; and why."""

    row: int
    status: str
    reason: str = ""


class RunChecker:
    """Checks the rows of a run against a model and the question in the header of the run."""

    def __init__(self, header: dict[str, Any], ensemble: Ensemble) -> None:
        self.question: dict[str, Any] = header["question"]
        if header["model"]["fingerprint"] != ensemble.fingerprint:
            raise InvalidInput(
                "The run must be about the model it is checked with. Got another model:"
                f" {header['model']['fingerprint'][:12]}… in the run, {ensemble.fingerprint[:12]}…"
            )
        # Version 0.1.0 called the arithmetic the domain.
        if self.question.get("arithmetic", self.question.get("domain")) == "float64":
            ensemble = accept_float64_rows(ensemble)
        self.forest = Forest(ensemble)
        self.classes = [plain_value(label) for label in ensemble.classes]
        self.asks_radius = self.question["kind"] == "radius"
        self.is_box = self.question["perturbation"]["name"] == "Box"

    def check(self, record: dict[str, Any], values: list[float] | None = None) -> RowCheck:
        """Check one row record; `values`, where given, is the row that it must be about."""
        row, text = _row_number(record), record.get("evidence")
        try:
            require(row >= 0, "record: it has no row number")
            kind, radius = self._claimed_set(record)
            has_witness = _number(record["upper"]) < math.inf or record["verdict"] == "falsified"
            if kind == "none" and not has_witness:
                return RowCheck(row, "claims nothing")
            if not isinstance(text, str) or text.startswith("none: "):
                return RowCheck(row, "unproved", "no evidence" if text is None else str(text)[6:])
            claim = read_claim(text, self.forest)
            require(claim.kind == kind, f"claim: the set is {claim.kind}, the answer needs {kind}")
            same = kind == "none" or claim.radius == radius
            require(same, f"claim: the radius is {claim.radius!r}, the answer says {radius!r}")
            for stated in (values, record.get("values")):
                same = stated is None or _same(claim.row, [_number(v) for v in stated])
                require(same, "claim: it is about another row")
            ways = ways_of(self.forest, claim)
            self._check_question(claim, record)
            reader = Reader(claim.proof)
            box = cell_box(self.forest, claim, kind, radius)
            for way in ways if kind != "none" else []:
                check_way(self.forest, claim, way, box, reader)
            require(reader.at == len(claim.proof), f"byte {reader.at}: the proof goes on")
            if has_witness:
                self._check_witness(claim, record)
        except CertificateRejected as error:
            return RowCheck(row, "rejected", str(error))
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            return RowCheck(row, "rejected", f"record: it cannot be read ({error!r})")
        return RowCheck(row, "accepted")

    def _claimed_set(self, record: dict[str, Any]) -> tuple[str, float]:
        """The set that the answer says is free of violations."""
        verdict, lower = record["verdict"], _number(record["lower"])
        require(verdict in ("verified", "falsified", "unknown"), "record: unknown verdict")
        if not self.asks_radius:
            if verdict != "verified" or self.is_box:
                require(not lower > 0.0, f"record: nothing is said about a distance of {lower!r}")
                return ("box", math.inf) if verdict == "verified" else ("none", 0.0)
            eps = float(self.question["perturbation"]["eps"])
            require(lower == eps, f"record: lower is {lower!r}, verified was {eps!r}")
            return "closed", eps
        upper = _number(record["upper"])
        if verdict != "unknown" or record["exact"]:
            require(lower == upper, f"record: an exact radius has bounds {lower!r}, {upper!r}")
        if verdict == "falsified":
            require(upper == 0.0, "record: a broken row has radius 0")
            return "none", 0.0
        if record["exact"] and not record["attained"]:
            return "closed", lower
        return ("open", lower) if lower > 0.0 else ("none", 0.0)

    def _check_question(self, claim: Claim, record: dict[str, Any]) -> None:
        """Compare the claim's set and goal with the question of the run."""
        row, n = record["row"], len(claim.row)
        stated = self.question["perturbation"]
        goal = self.question["goal"]
        if self.is_box:
            down = up = [math.inf] * n
            low, high = (_wide(stated[side], n, row) for side in ("low", "high"))
        else:
            scale = _wide(1.0 if stated["scale"] is None else stated["scale"], n)
            down, up = (
                [s * r for s, r in zip(scale, _wide(stated[side], n), strict=True)]
                for side in ("below", "above")
            )
            names = list(self.forest.ensemble.feature_names)
            for name in stated["frozen"]:
                feature = names.index(name) if name in names else int(name)
                down[feature] = up[feature] = 0.0
            low, high = (_wide(stated[side], n) for side in ("low", "high"))
        attacker = self.question.get("attacker_class")
        if attacker is not None and record["label"] != attacker:
            low = [-math.inf if math.isnan(x) else x for x in claim.row]
            high = [math.inf if math.isnan(x) else x for x in claim.row]
        for name, numbers in (("down", down), ("up", up), ("low", low), ("high", high)):
            same = getattr(claim, name) == numbers
            require(same, f"claim: '{name}' is not that of the question")
        name, value = claim.goal
        if self.classes and self.question.get("labels") == "the model's own":
            own = self.classes[self._label(claim.row)]
            require(own == record["label"], f"record: the model's own label is {own!r}")
        if goal["name"] in ("KeepsLabel", "AvoidsTarget"):
            wanted = ("keep", record["label"])
            if goal["name"] == "AvoidsTarget":
                wanted = ("avoid", goal["target"])
            same = name != "within" and (name, self.classes[value]) == wanted
            require(same, f"claim: the goal is not {wanted}")
            return
        if goal["name"] == "ScoreWithin":
            ends = [_wide(goal[side], row + 1)[row] for side in ("low", "high")]
        else:
            score, delta = self._margins(claim.row)[0], float(goal["delta"])
            ends = [score - delta, score + delta]
        require(name == "within" and _floats(value) == ends, "claim: another range")

    def _margins(self, point: list[float]) -> list[float]:
        """The model's own margins of a point."""
        totals = self.forest.rounded_sums(point, {}, range(len(self.forest.output)), "point")
        return margins(self.forest.ensemble, totals)

    def _label(self, point: list[float]) -> int:
        """Number of the class that the model gives a point."""
        ensemble = self.forest.ensemble
        scores = np.array([self._margins(point)], dtype=ensemble.aggregation.precision)
        return int(evaluate.label_indices(ensemble, scores)[0])

    def _check_witness(self, claim: Claim, record: dict[str, Any]) -> None:
        """Replay the witness, and see that the set reaches its cells."""
        # A row without any value is its own witness, and is written as none.
        stated = record["witness"] or [None] * len(claim.row)
        point = [_number(value) for value in stated]
        require(len(point) == len(claim.row), "witness: one value per feature")
        ensemble = self.forest.ensemble
        cast = evaluate.cast_rows(ensemble, np.array([point]))[0].tolist()
        require(_same(cast, point), "witness: it is not in the model's input precision")
        name, value = claim.goal
        if name == "within":
            least, most = _floats(value)
            inside = least <= self._margins(point)[0] <= most
            require(not inside, "witness: its score is in the range")
        else:
            label = self._label(point)
            require((label == value) == (name == "avoid"), f"witness: its label is {label}")
        radius, kind = _number(record["upper"]), "box" if self.is_box else "closed"
        if self.asks_radius and not record["attained"]:
            radius = math.nextafter(radius, math.inf)
        elif kind == "closed" and not self.asks_radius:
            within = radius <= float(self.question["perturbation"]["eps"])
            require(within, "witness: it lies beyond the radius of the question")
        box = cell_box(self.forest, claim, kind, radius)
        for feature, (x, w) in enumerate(zip(claim.row, point, strict=True)):
            if feature in box:
                low, high = box[feature]
                cell = bisect_right(self.forest.cuts[feature], w)
                inside = low <= cell <= high and not math.isnan(w)
                require(inside, f"witness: feature {feature} is beyond the set")
            elif math.isnan(x) or feature in self.forest.fixed:
                require(_same([x], [w]), f"witness: feature {feature} must not move")
        if kind == "closed":
            self._check_distance(claim, point, _number(record["witness_distance"]))

    def _check_distance(self, claim: Claim, point: list[float], distance: float) -> None:
        require(distance >= 0.0, "witness: its distance is no number")
        for feature, (x, w) in enumerate(zip(claim.row, point, strict=True)):
            if x == w or math.isnan(x) or math.isinf(distance):
                continue
            rate = claim.up[feature] if w > x else claim.down[feature]
            near = math.isfinite(w - x) and abs(Fraction(w) - Fraction(x)) <= Fraction(
                distance
            ) * Fraction(rate)
            require(near, f"witness: feature {feature} is farther than {distance!r}")


def check_run(
    path: str | PathLike[str], ensemble: Ensemble, rows: dict[int, list[float]] | None = None
) -> Iterator[RowCheck]:
    """Check a run file of JSON lines row by row, reading one line at a time.

    Parameters
    ----------
    path : str or path
        The run file.
    ensemble : Ensemble
        The model as loaded.
    rows : dict of int to list of float, optional
        The data, in the model's input precision, by row number; a row that is missing is rejected.
    """
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        header = _decoded(file.readline())
        try:
            checker = RunChecker(header, ensemble)
            counts = (header.get("data", {}).get("n_asked"), header.get("n_rows"))
            n_asked = max((count for count in counts if isinstance(count, int)), default=0)
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(
                f"The run file '{path}' must be JSON lines and start with a header record."
                " `treeproof merge` makes JSON lines of a Parquet file."
            ) from error
        seen = set()
        for number, line in enumerate(file, start=2):
            record = _decoded(line)
            if not isinstance(record, dict) or record.get("record") != "row":
                yield RowCheck(-1, "rejected", f"line {number}: this is no row record")
                continue
            row = _row_number(record)
            check = checker.check(record, None if rows is None else rows.get(row, []))
            twice = RowCheck(row, "rejected", f"line {number}: row {row} is here twice")
            yield twice if row in seen else check
            seen.add(row)
    if header.get("state") == "underway":
        yield RowCheck(-1, "rejected", f"run: it is not complete, {len(seen)} rows are here")
    elif len(seen) < n_asked:
        reason = f"run: {n_asked} rows were asked about, {len(seen)} are here"
        yield RowCheck(-1, "rejected", reason)


def _decoded(line: str) -> Any:
    """The record in a line; None where it is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _row_number(record: dict[str, Any]) -> int:
    row = record.get("row")
    return row if type(row) is int and row >= 0 else -1


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _floats(texts: Any) -> list[float]:
    return [float.fromhex(text) for text in texts]


def _same(left: list[float], right: list[float]) -> bool:
    return len(left) == len(right) and all(
        a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(left, right, strict=True)
    )


def _wide(value: Any, n: int, row: int = 0) -> list[float]:
    """One number per feature, of a number, a list, or a list of rows."""
    if not isinstance(value, list):
        return [float(value)] * n
    values = value[row] if isinstance(value[0], list) else value
    return [float(number) for number in values]
