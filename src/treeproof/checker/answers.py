"""Answers: whether what the record of a row says follows from its evidence."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec
import numpy as np

from treeproof.checker import schema
from treeproof.checker.claims import Claim, Way, read_claim, require, ways_of
from treeproof.checker.costs import prove_priced
from treeproof.checker.forest import Forest
from treeproof.checker.prices import Tariff, has_prices, root
from treeproof.checker.proofs import prove
from treeproof.checker.questions import Question, same_label
from treeproof.checker.witnesses import Moves, rounded_down, same_numbers
from treeproof.errors import CertificateRejected, InvalidInput
from treeproof.model import evaluate
from treeproof.model.domain import accept_float64_rows, accept_real_rows
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.model.rows import row_hash
from treeproof.model.score_meaning import probabilities

EXACT_WITHIN = 2.0**-39
"""Part of a cost by which bounds that are called exact may differ."""
SAME_WITHIN = 2.0**-20
"""Part of a probability by which those of two machines may differ; labels depend on scores."""
MOST_ROWS, MOST_CELLS = 256, 1 << 20
"""Rows, and rows times features, that are looked at together."""


@dataclass(frozen=True, slots=True)
class RowCheck:
    """What came out for a row: 'accepted', 'rejected', 'unproved' or 'claims nothing'; and why."""

    row: int
    status: str
    reason: str = ""


class _Found(NamedTuple):
    """What the plain model says of a point: why it is no row of it, label, and first margin.

    And the probability of each class, where the model's library tells it.
    """

    wrong: str
    label: int
    score: float
    shares: list[float] | None


class _Sides(NamedTuple):
    """How features move, which many rows share: as the question tells it, in arrays, as a hash."""

    told: list[Any]
    arrays: dict[str, Any]
    name: str


class _Case:
    """A record on its way through the checks; it has a status when it is settled."""

    row: schema.Row
    kind: str
    radius: float
    has_witness = False
    claim: Claim | None = None
    own: FloatArray | None = None
    point: FloatArray | None = None
    short: FloatArray | None = None
    unproved = ""

    def __init__(self, record: Any, values: Any, label: schema.Label) -> None:
        self.record, self.values, self.label = record, values, label
        self.number, self.status, self.reason = -1, "", ""
        self.ways: list[Way] = []
        self.found: dict[str, _Found] = {}
        self.moves: dict[str, tuple[Moves, int]] = {}

    def settle(self, status: str, reason: str = "") -> None:
        self.status, self.reason = status, reason

    def point_found(self, name: str, what: str) -> _Found:
        """What the model says of the row ('own'), the witness ('point') or what is shown ('short').

        It must be a row of the model.
        """
        require(name in self.found, f"{what}: one value per feature")
        require(not self.found[name].wrong, f"{what}: {self.found[name].wrong}")
        return self.found[name]


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
        self.tariff: Tariff | None = None
        self.sides = _Sides([None] * 4, {}, "")
        asked = self.header.question.perturbation
        try:
            self.question = Question(self.header, ensemble)
            accept = accept_float64_rows if self.question.is_float64 else accept_real_rows
            self.forest = Forest(accept(ensemble))
            self.places = {str(feature): feature for feature in range(ensemble.n_features)}
            if has_prices(asked):
                self.tariff = Tariff(self.question, asked, self.forest)
        except (ArithmeticError, CertificateRejected, LookupError, TypeError, ValueError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(
                f"The header of a run must ask what can be followed. Got: {error!r}."
            ) from error

    def check(
        self,
        record: dict[str, Any] | schema.Row,
        values: Sequence[float] | None = None,
        label: schema.Label = None,
    ) -> RowCheck:
        """Check one row; see `check_all`."""
        return self.check_all([record], [values], [label])[0]

    def check_all(
        self,
        records: Sequence[dict[str, Any] | schema.Row],
        values: Sequence[Sequence[float] | None] | None = None,
        labels: Sequence[schema.Label] | None = None,
    ) -> list[RowCheck]:
        """Check rows; many at a time take much less time than one by one.

        values, labels : where they are known from elsewhere, what each row must hold, and the label
        that the run must have been given for it.
        """
        n = len(records)
        given = list(zip(records, values or [None] * n, labels or [None] * n, strict=True))
        step = max(1, min(MOST_ROWS, MOST_CELLS // self.question.n))
        return [
            check
            for first in range(0, n, step)
            for check in self._check(given[first : first + step])
        ]

    def _check(self, given: list[Any]) -> list[RowCheck]:
        cases = [_Case(*entry) for entry in given]
        self._each(cases, self._read)
        self._evaluate(cases)
        self._each(cases, self._compare)
        proved = [case for case in cases if not case.status and case.ways]
        if self.tariff is None:
            claims = [case.claim for case in proved if case.claim is not None]
            reasons = prove(self.forest, claims, [case.ways for case in proved])
            for case, reason in zip(proved, reasons, strict=True):
                if reason:
                    case.settle("rejected", reason)
        else:
            self._each(proved, self._prove_priced)
        for name in ("point", "short") if self.tariff is None else ():
            witnessed = [c for c in cases if not c.status and c.has_witness and name in c.found]
            if witnessed:
                points = np.array([getattr(case, name) for case in witnessed])
                claims = [case.claim for case in witnessed if case.claim is not None]
                moves = Moves(self.forest, claims, points)
                for number, case in enumerate(witnessed):
                    case.moves[name] = moves, number
        self._each(cases, self._check_witness)
        return [RowCheck(case.number, case.status, case.reason) for case in cases]

    def _each(self, cases: list[_Case], step: Callable[[_Case], None]) -> None:
        """Take a step with every case that is open; errors reject it."""
        for case in cases:
            if case.status:
                continue
            try:
                step(case)
            except CertificateRejected as error:
                case.settle("rejected", str(error))
            except msgspec.ValidationError as error:
                case.settle("rejected", f"record: it cannot be read ({error})")
            except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
                # Sound: what cannot be followed is not accepted. No such record is known.
                case.settle("rejected", f"record: it cannot be checked ({error!r})")

    def _read(self, case: _Case) -> None:
        """Read a record and its claim, and the points whose labels must be known."""
        row = case.row = msgspec.convert(case.record, schema.Row)
        case.number = row.row
        self.question.check_row_number(row.row)
        case.kind, case.radius = self._claimed_set(row)
        case.has_witness = row.verdict == "falsified" or _number(row.upper) < math.inf
        stated = row.values if row.values is not None else case.values
        own = case.own = None if stated is None else np.array(stated, dtype=np.float64)
        same = case.values is None or (own is not None and _same(own, np.asarray(case.values)))
        require(same, "claim: it is about another row")
        text = "none: no evidence" if row.evidence is None else row.evidence
        if text.startswith("none: "):
            case.unproved = text.removeprefix("none: ")
        elif own is None:
            raise CertificateRejected("record: evidence needs the values of the row")
        else:
            case.claim = read_claim(text, self.forest, own)
        if row.witness is not None:
            case.point = np.array(row.witness, dtype=np.float64)
        elif case.claim is not None:
            # A row without any value is its own witness, and is written as none.
            case.point = np.full(len(case.claim.row), np.nan)
        if row.shown and case.point is not None:
            case.short = case.point.copy()
            require(len(case.point) == len(self.places), "witness: one value per feature")
            for feature, value in row.shown.items():
                require(feature in self.places, f"shown: {feature[:40]!r} is no feature")
                case.short[self.places[feature]] = value
            # Whoever types it in meets the rounding of the model's input.
            case.short = evaluate.cast_rows(self.forest.ensemble, case.short)

    def _evaluate(self, cases: list[_Case]) -> None:
        """Let the plain model evaluate all rows and witnesses that are rows of it."""
        ensemble, n = self.forest.ensemble, self.forest.ensemble.n_features
        for name in ("own", "point", "short"):
            used = [c for c in cases if not c.status and (name == "own" or c.has_witness)]
            used = [c for c in used if getattr(c, name) is not None and len(getattr(c, name)) == n]
            if not used:
                continue
            points = np.array([getattr(c, name) for c in used])
            fits = np.all(same_numbers(evaluate.cast_rows(ensemble, points), points), axis=1)
            with np.errstate(over="ignore", invalid="ignore"):
                scores = evaluate.margins(ensemble, points)
            labels = [-1] * len(used)
            if self.question.classes:
                labels = evaluate.label_indices(ensemble, scores).tolist()
            wrong = np.where(fits, "", "it is not in the model's input precision")
            if not ensemble.missing_allowed:
                wrong[np.isnan(points).any(axis=1)] = "the model takes no missing values"
            required = sorted(ensemble.required)
            wrong[np.isnan(points[:, required]).any(axis=1)] = "the model needs a value there"
            shares = probabilities(ensemble, scores)
            found = zip(
                wrong.tolist(),
                labels,
                scores[:, 0].astype(float).tolist(),
                [None] * len(used) if shares is None else shares.tolist(),
                strict=True,
            )
            for case, entry in zip(used, found, strict=True):
                case.found[name] = _Found(*entry)

    def _compare(self, case: _Case) -> None:
        """Compare a row with its claim, the model, the question and the data."""
        row, claim, kind = case.row, case.claim, case.kind
        self._check_labels(case)
        if not case.has_witness:
            nothing = row.witness is None and row.witness_distance is None
            nothing &= row.witness_label in (None, msgspec.UNSET)
            nothing &= not row.shown and row.cost is row.witness_probability is None
            require(nothing, "record: an answer without an upper bound has no witness")
        if kind == "none" and not case.has_witness:
            require(claim is None, "record: it has evidence, and claims nothing")
            case.settle("claims nothing")
        elif claim is None:
            case.settle("unproved", case.unproved)
        else:
            require(claim.kind == kind, f"claim: the set is {claim.kind}, the answer needs {kind}")
            same = kind == "none" or claim.radius == case.radius
            require(same, f"claim: the radius is {claim.radius!r}, the answer says {case.radius!r}")
            self._check_question(claim, case)
            label = self.question.class_number(row.label)
            self.question.check_inside(self.forest.ensemble, row.row, claim.row, label)
            case.ways = ways_of(self.forest, claim) if kind != "none" else []
            require(bool(case.ways) or not claim.proof, "byte 0: the proof goes on")

    def _prove_priced(self, case: _Case) -> None:
        """Follow the proof of a claim about costs."""
        if self.tariff is None or case.claim is None:
            raise CertificateRejected("claim: it is not about costs")
        prove_priced(self.forest, self.tariff, case.claim, self._bounds(case), case.ways)

    def _bounds(self, case: _Case) -> tuple[Any, Any, frozenset[int]] | None:
        """Bounds of a row, in the model's input precision, with no value that it must leave.

        None where it must not change.
        """
        question, row = self.question, case.row
        number = question.class_number(row.label)
        if question.attacked not in (-1, number):
            return None
        reach = dict(question.reach(row.row, [], number))
        sides = [np.array([reach[name]], dtype=np.float64) for name in ("low", "high")]
        domain = self.header.question.perturbation.domain
        for feature, low, high in domain.ranges if domain is not None else ():
            sides[0][0, feature] = max(sides[0][0, feature], float(low))
            sides[1][0, feature] = min(sides[1][0, feature], float(high))
        least, most = (
            evaluate.cast_bounds(self.forest.ensemble, side)[0].tolist() for side in sides
        )
        return least, most, frozenset()

    def _claimed_set(self, row: schema.Row) -> tuple[str, float]:
        """The set that the answer says is free of violations; its fields must fit together."""
        lower, upper, verdict = _number(row.lower), _number(row.upper), row.verdict
        limit = self.question.eps_of(row)
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
                eps = limit if verdict == "verified" else 0.0
                require(lower == eps, f"record: lower is {lower!r}, shown is {eps!r}")
                require(
                    (upper == math.inf) != found, f"record: upper is {upper!r}, it is {verdict}"
                )
            return (kind, limit) if verdict == "verified" else ("none", 0.0)
        # Costs are sums, and sums of prices that differ may differ by less than rounding.
        nearly = lower if self.tariff is None else lower / (1.0 - EXACT_WITHIN)
        exactly = lower == upper or nearly >= upper
        require(exactly or not settled, f"record: an exact radius has bounds {bounds}")
        require(upper < math.inf or not row.attained, "record: nothing attains infinity")
        broken = upper == 0.0 and row.attained
        fits = broken or verdict != "falsified"
        require(fits, "record: 'falsified' is a row of radius 0")
        if settled and not row.attained:
            return "closed", lower  # curves count it as proved at that very radius
        return ("open", lower) if lower > 0.0 else ("none", 0.0)

    def _check_labels(self, case: _Case) -> None:
        """Compare the row's labels with the classes, the model and the data."""
        question, classes, row = self.question, self.question.classes, case.row
        number = question.class_number(row.label)
        known = number >= 0 if classes else row.label is None
        require(known, f"record: there is no class {row.label!r}")
        if case.label is not None and not question.own_labels:
            same = same_label(case.label, row.label)
            require(same, f"record: the label of the data is {case.label!r}")
        if case.own is None:
            unsaid = row.predicted in (None, msgspec.UNSET)
            unsaid &= row.probability is row.witness_probability is None
            require(unsaid, "record: a prediction needs the values of the row")
            return
        found = case.point_found("own", "row")
        mine = classes[found.label] if classes else None
        same = row.predicted is msgspec.UNSET or same_label(row.predicted, mine)
        require(same, f"record: the model predicts {mine!r}")
        is_own = not question.own_labels or same_label(row.label, mine)
        require(is_own, f"record: the model's own label is {mine!r}")
        self._check_probability(row.probability, found, found.label)

    def _check_probability(self, said: float | None, found: _Found, label: int) -> None:
        """Compare a probability that is said of a point with that of the label."""
        if said is None:
            return
        require(found.shares is not None, "record: the model tells no probabilities")
        share = 0.0 if found.shares is None else found.shares[label]
        require(abs(said - share) <= SAME_WITHIN, f"record: a probability is {share!r}")

    def _check_question(self, claim: Claim, case: _Case) -> None:
        """Complete the claim by the question of the run, and compare its goal with it."""
        question, goal, row = self.question, self.question.goal, case.row
        number = question.class_number(row.label)
        is_listed = self.tariff is not None and not self.tariff.rules
        fits = (claim.kept is not None) == is_listed
        require(fits, "claim: it is not about this kind of question")
        if self.tariff is None:
            reach = dict(question.reach(row.row, claim.row.tolist(), number))
            if any(a is not b for a, b in zip(reach.values(), self.sides.told, strict=True)):
                arrays = {name: np.array(side) for name, side in reach.items()}
                self.sides = _Sides([*reach.values()], arrays, row_hash(*arrays.values()))
            require(claim.moves == self.sides.name, "claim: it is about another question")
            case.claim = replace(claim, **self.sides.arrays)
        else:
            require(claim.moves is None, "claim: it is about another question")
        if isinstance(goal, schema.KeepsLabel):
            wanted: Any = ("keep", number)
        elif isinstance(goal, schema.AvoidsTarget):
            wanted = ("avoid", question.class_number(goal.target))
        elif isinstance(goal, schema.ScoreWithin):
            wanted = tuple(end for side in question.ranges for end in side.of(row.row))
        else:
            wanted = _range_around(case.found["own"].score, float(goal.delta))
        name, value = claim.goal
        found = _floats(value) if name == "within" else (name, value)
        require(found == wanted, f"claim: the goal is not {wanted}")

    def _check_witness(self, case: _Case) -> None:
        """Judge the witness, see that it is in the set, and derive the bound that it shows.

        And what is said of it besides: what it costs as it is shown, and its probability.
        """
        self._check_bound(case)
        row, shown = case.row, "point" if case.short is None else "short"
        if row.witness_probability is not None:
            label = case.point_found("own", "row").label
            self._check_probability(row.witness_probability, case.found[shown], label)
        if row.cost is None or case.claim is None:
            return
        if self.tariff is None:
            moves, at = case.moves[shown]
            cost = moves.distance(at)
        else:
            own, point = ([] if v is None else v.tolist() for v in (case.own, getattr(case, shown)))
            total, _, _ = self.tariff.check_witness(own, point, self._bounds(case))
            cost = root(total, self.tariff.power, up=True)
        require(_number(row.cost) == cost, f"shown: it costs {cost!r}")

    def _check_bound(self, case: _Case) -> None:
        """Judge the witness, see that it is in the set, and derive the bound that it shows."""
        question, row, claim = self.question, case.row, case.claim
        if not case.has_witness or claim is None:
            case.settle("accepted")
            return
        found = self._judge(case, claim, "point", "witness")
        if question.asks_radius:
            # A change may cost nothing; only a row that breaks the claim itself is falsified.
            is_broken = _breaks(claim, case.point_found("own", "row"))
            fits = is_broken == (row.verdict == "falsified")
            require(fits, "record: 'falsified' is a row that breaks the claim as it stands")
        if row.witness_label is not msgspec.UNSET:
            is_named = bool(question.classes) and row.witness is not None
            mine = question.classes[found.label] if is_named else None
            # A witness without any value is written as none, and may have its label all the same.
            own = question.classes[found.label] if question.classes else None
            same = same_label(row.witness_label, mine)
            same |= self.tariff is not None and same_label(row.witness_label, own)
            require(same, f"witness: its label is {mine!r}")
        if self.tariff is not None:
            self._check_cost(self.tariff, case)
            return
        self._check_shown(case, claim)
        moves, at = case.moves["point"]
        distance = moves.distance(at)
        same = _number(row.witness_distance) == distance
        require(same, f"witness: its distance is {distance!r}")
        if question.is_box:
            moves.check_in_box(at, claim)
            case.settle("accepted")
            return
        upper, level = _number(row.upper), moves.level(at)
        if not question.asks_radius:
            nearest = min(question.eps_of(row), distance)
            require(upper == nearest, f"witness: it shows an upper bound of {nearest!r}")
        elif not row.attained:
            nearest = rounded_down(level.distance)
            require(upper == nearest, f"witness: it shows an upper bound of {nearest!r}")
        attains = level.reached_by(upper)
        require(attains == row.attained, f"witness: 'attained' is {attains}")
        require(upper <= distance, f"witness: it is as near as {distance!r}")
        radius = upper if row.attained else math.nextafter(upper, math.inf)
        moves.check_in_ball(at, distance, radius)
        case.settle("accepted")

    def _judge(self, case: _Case, claim: Claim, name: str, what: str) -> _Found:
        """Reject a point that does not break the claim; return what the model says of it."""
        found = case.point_found(name, what)
        said = "score is in the range" if claim.goal[0] == "within" else f"label is {found.label}"
        require(_breaks(claim, found), f"{what}: its {said}")
        return found

    def _check_shown(self, case: _Case, claim: Claim) -> None:
        """Reject short numbers that break nothing when they are typed in, or lie outside the set.

        Of a radius, which is asked for, only bounds and directions matter to them.
        """
        if case.short is None:
            return
        label = self._judge(case, claim, "short", "shown").label
        require(label == case.found["point"].label, f"shown: its label is {label}")
        question, own = self.question, case.own
        radius = math.inf if question.asks_radius else question.eps_of(case.row)
        if self.tariff is not None:
            require(own is not None, "shown: one value per feature")
            values = [] if own is None else own.tolist()
            cost, least, _ = self.tariff.check_witness(
                values, case.short.tolist(), self._bounds(case)
            )
            if not question.is_box and radius < math.inf:
                budget = Fraction(radius) ** self.tariff.power
                require(cost <= budget or least < budget, "shown: it costs too much")
        elif question.is_box:
            moves, at = case.moves["short"]
            moves.check_in_box(at, claim)
        else:
            moves, at = case.moves["short"]
            moves.check_in_ball(at, moves.distance(at), radius)

    def _check_cost(self, tariff: Tariff, case: _Case) -> None:
        """Derive what a witness costs, and the bound that it shows."""
        question, row = self.question, case.row
        require(case.own is not None and case.point is not None, "witness: one value per feature")
        if case.claim is not None:
            self._check_shown(case, case.claim)
        own, point = ([] if v is None else v.tolist() for v in (case.own, case.point))
        cost, least, attains = tariff.check_witness(own, point, self._bounds(case))
        distance = root(cost, tariff.power, up=True)
        require(_number(row.witness_distance) == distance, f"witness: it costs {distance!r}")
        if question.is_box:
            case.settle("accepted")
            return
        upper = _number(row.upper)
        if question.asks_radius:
            nearest = root(least, tariff.power, up=False)
            attains = attains and least == Fraction(nearest) ** tariff.power
            require(attains == row.attained, f"witness: 'attained' is {attains}")
        else:
            nearest = min(question.eps_of(row), distance)
            if question.eps_of(row) < math.inf:
                budget = Fraction(question.eps_of(row)) ** tariff.power
                require(cost <= budget or least < budget, "witness: it costs too much")
        require(upper == nearest, f"witness: it shows an upper bound of {nearest!r}")
        case.settle("accepted")


def _breaks(claim: Claim, found: _Found) -> bool:
    """Whether a point breaks the claim."""
    name, value = claim.goal
    if name == "within":
        least, most = _floats(value)
        return not least <= found.score <= most
    return (found.label == value) == (name == "avoid")


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _floats(texts: Any) -> tuple[float, ...]:
    return tuple(float.fromhex(text) for text in texts)


def _same(left: FloatArray, right: FloatArray) -> bool:
    return len(left) == len(right) and (
        left.tobytes() == right.tobytes() or bool(same_numbers(left, right).all())
    )


def _range_around(score: float, delta: float) -> tuple[float, float]:
    """Least and largest double that differ from a score by at most delta."""
    if math.isinf(delta):
        return -math.inf, math.inf
    ends = [sign * Fraction(score) + Fraction(delta) for sign in (-1, 1)]
    low, high = (rounded_down(end.as_integer_ratio()) for end in ends)
    return -low, high
