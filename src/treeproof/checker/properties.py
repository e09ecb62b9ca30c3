"""Evidence about properties: whether it proves its claim about every input of a domain."""

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.checker.claims import Way, check_overflow, happens, margins, opened, require
from treeproof.checker.domains import Asked, Domain, read_domain
from treeproof.checker.forest import Forest
from treeproof.checker.pairs import (
    Cells,
    PairProver,
    PairSpace,
    PairTrees,
    Weights,
    known_codes,
    need_of,
    sum_errors,
)
from treeproof.checker.property_claims import Part, parts_of
from treeproof.errors import CertificateRejected, TreeproofError
from treeproof.model import evaluate
from treeproof.model.domain import accept_float64_rows
from treeproof.model.ensemble import Ensemble
from treeproof.model.folded import choices_of, fold, fold_rows
from treeproof.model.joined import PairModels, join, one_model
from treeproof.model.sums import largest_leaves, largest_margin

LARGEST_EXPONENT = 2048
"""Exponents of units are nearer to 0; those of doubles are."""
CLOSE = Fraction(1, 1 << 21)
"""Part of what trees add by which bounds that are called exact may differ, beside rounding."""


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is proved of one part of a property, by `size` bytes, in multiples of 2**exponent.

    `whole`: they are about trees of all outputs, also those that the part gives no weight.
    """

    exponent: int
    bound: str
    size: int
    whole: bool = False


class Evidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the text of evidence holds; numbers are hexadecimal.

    `other` is the second one of two models that are compared. Nothing is said of the domain.
    """

    model: str
    claim: dict[str, Any]
    verdict: str
    lower: str
    upper: str
    witness: list[list[str]] | None
    statements: list[Statement]
    other: str | None = None


_EVIDENCE = msgspec.json.Decoder(Evidence)
"""Made now, in one thread: see the end of schema.py."""


class Checked(NamedTuple):
    """Evidence that was accepted, and the models of its claim.

    `is_exact`: its bounds differ by no more than rounding.
    """

    evidence: Evidence
    models: PairModels
    is_exact: bool


def check_property(
    ensemble: Ensemble, text: str, asked: Asked, other: Ensemble | None = None
) -> Checked:
    """Return what evidence proves, or raise CertificateRejected with the reason why it does not.

    `asked` says of which inputs; `other` is the second model of evidence about two.
    """
    try:
        evidence, proofs = _read(text)
        require(evidence.model == ensemble.fingerprint, "claim: it is about another model")
        require((evidence.other is None) == (other is None), "claim: it is about one model, or two")
        models = one_model(ensemble) if other is None else join(ensemble, other)
        if other is not None:
            require(
                evidence.other in (other.fingerprint, models.second.fingerprint),
                "claim: the second model is another one",
            )
        return _check(models, evidence, proofs, asked)
    except CertificateRejected:
        raise
    except (
        ArithmeticError, LookupError, MemoryError, StopIteration, TypeError, ValueError,
        TreeproofError,
    ) as error:  # fmt: skip
        # Sound: what cannot be followed is not accepted.
        raise CertificateRejected(f"evidence: it cannot be checked ({error!r})") from error


def _read(text: str) -> tuple[Evidence, list[bytes]]:
    """The claim of evidence, and the proof of each of its statements."""
    found = opened(text)
    try:
        evidence = _EVIDENCE.decode(found.claim)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CertificateRejected(f"evidence: it cannot be read ({error!r})") from error
    sizes = [statement.size for statement in evidence.statements]
    ends = np.cumsum([0, *sizes], dtype=object).tolist()
    fits = all(size >= 0 for size in sizes) and ends[-1] == len(found.proof)
    require(fits, "evidence: proofs of other sizes")
    return evidence, [found.proof[a:b] for a, b in pairwise(ends)]


def _check(models: PairModels, evidence: Evidence, proofs: list[bytes], asked: Asked) -> Checked:
    given, own = models, evidence
    domain = read_domain(models, asked)
    if domain.groups:
        models, evidence, domain = _folded(models, evidence, domain)
    lower, upper = float.fromhex(evidence.lower), float.fromhex(evidence.upper)
    parts = [_kept_whole(part, domain) for part in parts_of(models, evidence.claim)]
    require(bool(parts), "claim: nothing is claimed")
    is_difference, verdict = parts[0].is_difference, evidence.verdict
    if evidence.witness is not None:
        _check_witness(models, evidence, parts, domain, lower)
    elif is_difference:
        require(lower <= 0.0, "claim: a lower bound needs a witness")
    require(verdict in ("verified", "falsified", "unknown"), "claim: unknown verdict")
    if verdict == "falsified":
        require(evidence.witness is not None, "claim: what is falsified needs a witness")
        require(parts[0].limit > -math.inf, "claim: there is nothing to falsify")
    if not is_difference:
        _check_ends(verdict, parts, lower, upper)
    if verdict != "verified" and not (is_difference and upper < math.inf):
        require(not evidence.statements, "claim: a proof of nothing")
        return Checked(own, given, is_exact=False)
    require(len(evidence.statements) == len(parts), "claim: one proof for each part")
    room = Fraction(0)
    for part, statement, proof in zip(parts, evidence.statements, proofs, strict=True):
        if part.ways is not None and not np.isin(part.changed, models.joint.trees.feature).any():
            # Sound: no tree tells the rows of such a pair apart, so both get the same decision.
            require(not proof, "proof: no tree tests what changes")
            continue
        reached, own_room = _reached(models, domain, part, statement, proof)
        room = max(room, own_room)
        if part.is_range:
            _check_range(models.first, part, reached, lower, upper)
        elif is_difference:
            require(reached <= Fraction(upper), "claim: the proved bound is above the stated one")
            if verdict == "verified" and part.limit > -math.inf:
                require(reached <= part.limit, "claim: the proved bound does not decide it")
    is_exact = is_difference and Fraction(upper) - Fraction(lower) <= room
    if is_difference and parts[0].limit == -math.inf and verdict == "verified":
        require(is_exact, "claim: the bounds are not exact")
    return Checked(own, given, is_exact)


def _check_ends(verdict: str, parts: list[Part], lower: float, upper: float) -> None:
    """Ends of a range are stated where they are proved; claims about pairs of labels have none."""
    if parts[0].ways is not None:
        require(math.isnan(lower) and math.isnan(upper), "claim: bounds of what has no value")
        return
    proved = {part.sign for part in parts} if verdict == "verified" else set()
    is_told = (-1 in proved or lower == -math.inf) and (1 in proved or upper == math.inf)
    require(is_told, "claim: an end of the range that nothing is proved of")


def _folded(
    models: PairModels, evidence: Evidence, domain: Domain
) -> tuple[PairModels, Evidence, Domain]:
    """The model, the witness and the domain with each group as one category."""
    require(not models.partners, "domain: groups of two models")
    ensemble = models.first
    groups = domain.groups
    columns = [column for group, _ in groups for column in group]
    require(all(group for group, _ in groups), "domain: a group without columns")
    require(len(set(columns)) == len(columns), "domain: a column in two groups")
    require(all(0 <= c < ensemble.n_features for c in columns), "domain: a column does not exist")
    require(not ensemble.is_categorical[columns].any(), "domain: a group of categories")
    named = {*domain.missing, *domain.integer, *domain.values}
    require(not named & set(columns), "domain: a column of a group is something else, too")
    low, high, values = domain.low.copy(), domain.high.copy(), dict(domain.values)
    row = None if domain.row is None else fold_rows(domain.row[np.newaxis], groups)[0]
    for group in groups:
        own, choices = list(group[0]), choices_of(group)
        is_inside = (choices >= domain.low[own]) & (choices <= domain.high[own])
        allowed = np.flatnonzero(is_inside.all(axis=1)).astype(np.float64).tolist()
        low[own] = high[own] = 0.0
        high[own[0]] = len(choices) - 1
        if row is None or len(allowed) == len(choices):
            values[own[0]] = allowed
        else:
            require(allowed == [row[own[0]]], "domain: a group with some choices around a row")
    witness = evidence.witness
    if witness is not None:
        pair = np.stack([numbers_of(own, ensemble.n_features) for own in witness])
        witness = [[float(v).hex() for v in own] for own in fold_rows(pair, groups).tolist()]
    return (
        one_model(fold(ensemble, groups)),
        msgspec.structs.replace(evidence, witness=witness),
        domain._replace(low=low, high=high, values=values, row=row),
    )


def _kept_whole(part: Part, domain: Domain) -> Part:
    """A part that takes no group apart: of near rows, all have the same choices."""
    for columns, _ in domain.groups:
        inside = [column for column in columns if column in part.changed]
        if part.relation.kind == "near":
            is_kept = all(part.relation.widths[column] < 1 for column in columns)
            require(is_kept, "claim: near rows with other choices")
            part = part._replace(changed=tuple(f for f in part.changed if f not in columns))
        elif inside:
            is_whole = len(inside) == len(columns) and not part.relation.kind
            require(is_whole and columns[0] in domain.values, "claim: a part of a group changes")
    return part


def _check_range(
    ensemble: Ensemble, part: Part, reached: Fraction, lower: float, upper: float
) -> None:
    """Whether a bound of sums is within the limit, and its score within the stated range."""
    require(reached <= part.limit, "claim: the proved bound does not decide it")
    # Sound: finishing is monotone, rounding included, so the score of a bound bounds all scores.
    real = np.dtype(ensemble.aggregation.precision).type
    total = real(float(part.sign * reached))
    while part.sign * Fraction(float(total)) < reached:
        total = np.nextafter(total, real(part.sign * np.inf))
    score = margins(ensemble, [float(total)] * ensemble.n_outputs)[part.output]
    require(lower <= score <= upper, "claim: the proved range is wider than the stated one")


def numbers_of(texts: list[str], n: int) -> NDArray[np.float64]:
    """Hexadecimal numbers, one for each feature."""
    require(len(texts) == n, "claim: one number per feature")
    return np.array([float.fromhex(text) for text in texts])


class Sums(NamedTuple):
    """The deployed sums of one row of a pair, over a domain.

    `weights` are those of its sums in what is bounded, by output; `errors` and `peaks`, in units of
    the forest, say by how much they round and how large they become.
    """

    model: Ensemble
    forest: Forest
    weights: Mapping[int, int | Fraction]
    errors: dict[int, Fraction]
    peaks: dict[int, Fraction]

    @property
    def begins(self) -> Fraction:
        """What they add before any tree."""
        start = self.model.aggregation.start
        return sum((w * Fraction(start[o]) for o, w in self.weights.items()), start=Fraction(0))

    @property
    def magnitude(self) -> Fraction:
        """What all trees add at most, whatever its sign."""
        largest = largest_leaves(self.model)
        own = self.model.trees.tree_output
        return sum(
            (
                abs(Fraction(w)) * Fraction(float(largest[own == o, 0].sum()))
                if largest.shape[1] == 1
                else abs(Fraction(w)) * Fraction(float(largest[:, o].sum()))
                for o, w in self.weights.items()
            ),
            start=Fraction(0),
        )

    @property
    def finished(self) -> Fraction:
        """Some units in the last place of the largest score, where scores are finished sums."""
        aggregation = self.model.aggregation
        bits = 24 if aggregation.precision == "float32" else 53
        is_plain = aggregation.finish == "none"
        return Fraction(0 if is_plain else largest_margin(self.model)) / 2 ** (bits - 6)

    @property
    def error(self) -> Fraction:
        """By how much their rounding moves what is bounded."""
        lost = (abs(Fraction(w)) * self.errors[o] for o, w in self.weights.items())
        return sum(lost, start=Fraction(0)) * self.forest.unit


def _reached(
    models: PairModels, domain: Domain, part: Part, statement: Statement, data: bytes
) -> tuple[Fraction, Fraction]:
    """Follow the proof of a part; returns what no deployed value exceeds, and its room.

    The room is by how much it may exceed the largest value where it is called exact.
    """
    if models.partners:
        row = None if domain.row is None else np.append(domain.row, 0.0)
        domain = domain._replace(
            low=np.append(domain.low, 0.0), high=np.append(domain.high, 1.0), row=row
        )
    cells = Cells(models.joint, domain, part.changed)
    is_difference = part.is_difference
    trees = PairTrees(cells, part.changed, part.relation, is_difference=is_difference)
    weights, rate = _weights(models, part, is_difference=is_difference)
    require(abs(statement.exponent) < LARGEST_EXPONENT, "proof: the unit is out of range")
    space = PairSpace(
        trees, models.joint, weights, statement.exponent,
        has_two_needs=part.ways is not None, has_all_trees=statement.whole,
    )  # fmt: skip
    sums = []
    for side, model in enumerate((models.first, models.second)):
        fixed = {models.switch: (side, side)} if models.partners else {}
        forest, own = Forest(accept_float64_rows(model)), weights[side]
        errors, peaks = sum_errors(forest, cells, set(own), fixed)
        check_overflow(forest, "proof", errors, peaks)
        sums.append(Sums(model, forest, own, errors, peaks))
    if part.ways is not None:
        _follow_needs(models, space, sums, part.ways, data)
        return Fraction(0), Fraction(0)
    bound = Fraction(float.fromhex(statement.bound))
    constant, finishing = _finishing(sums, part, rate) if is_difference else (Fraction(0),) * 2
    begin = sums[0].begins + sums[1].begins + constant
    prover = PairProver(space, data, [math.floor((bound - begin) / space.unit)])
    prover.follow()
    error = sums[0].error + sums[1].error
    is_plain = all(own.model.aggregation.finish == "none" for own in sums)
    if error == 0 and (is_plain or not models.partners):
        # Sound: sums that are not rounded are multiples of their model's grid, and so is what they
        # begin with, unless it comes from finishing the one and the other in two ways.
        step = min(own.forest.step for own in sums)
        bound = (math.ceil(bound / step) - 1) * step
    reached = (bound + error) * rate + finishing
    magnitude = sum((own.magnitude for own in sums), start=Fraction(0))
    finished = sum((own.finished for own in sums), start=Fraction(0))
    room = 4 * error * rate + 4 * finishing + finished + CLOSE * magnitude * rate
    if not prover.n_worthless:
        return reached, room
    # Sound: adding, rounding and finishing are monotone, so that where no tree adds more to the one
    # sum than to the other, no score is above the other one.
    is_alike = models.first.aggregation == models.second.aggregation
    require(is_difference and is_alike, "proof: boxes without gains close nothing here")
    return max(reached, Fraction(0)), room


def _follow_needs(
    models: PairModels, space: PairSpace, sums: list[Sums], ways: tuple[Way, Way], data: bytes
) -> None:
    """Follow a proof that no pair happens in two ways at once."""
    unit = space.unit
    floors = [
        need_of(own.forest, way, own.errors, own.peaks, unit) - math.ceil(own.begins / unit)
        for own, way in zip(sums, ways, strict=True)
    ]
    winning = [_winning(own.forest, way) for own, way in zip(sums, ways, strict=True)]

    def check_point(low: NDArray[np.int64], high: NDArray[np.int64]) -> None:
        totals = models.sums(space.trees.only_pair(low, high)[:, : models.first.n_features])
        is_met = all(
            happens(own.forest, way, total[0].tolist())
            for own, way, total in zip(sums, winning, totals, strict=True)
        )
        require(not is_met, "proof: the only pair of leaves of a box meets both needs")

    PairProver(space, data, floors, check_point).follow()


def _weights(models: PairModels, part: Part, *, is_difference: bool) -> tuple[Weights, Fraction]:
    """Weights of both rows' sums in what is bounded, and what that counts for in scores.

    Where a sum counts the same for both rows, values are counted in sums.
    """
    if part.ways is not None:
        return (part.ways[0].weights, part.ways[1].weights), Fraction(1)
    if not is_difference:
        return ({part.output: part.sign}, {}), Fraction(1)
    rates = [_rate_of(model) for model in (models.first, models.second)]
    rate = rates[0] if rates[0] == rates[1] else Fraction(1)
    one, other = part.outputs
    return ({one: -part.sign * rates[0] / rate}, {other: part.sign * rates[1] / rate}), rate


def _finishing(sums: list[Sums], part: Part, rate: Fraction) -> tuple[Fraction, Fraction]:
    """What finishing adds to the difference of two sums, and by how much it rounds their scores."""
    constant = rounding = Fraction(0)
    for own, output, way in zip(sums, part.outputs, (-part.sign, part.sign), strict=True):
        added, error = _finish_of(own.model, output, own.peaks[output] * own.forest.unit)
        constant += way * added / rate
        rounding += error
    return constant, rounding


def _rate_of(ensemble: Ensemble) -> Fraction:
    """What a sum counts for in its score."""
    aggregation = ensemble.aggregation
    require(aggregation.finish in ("none", "divide", "affine"), "claim: the score is no sum")
    rate = Fraction(1)
    if aggregation.finish == "divide":
        rate = 1 / Fraction(aggregation.divisor)
    elif aggregation.finish == "affine":
        rate = Fraction(aggregation.scale)
    require(rate > 0, "claim: scores that fall when sums rise are not supported")
    return rate


def _finish_of(ensemble: Ensemble, output: int, peak: Fraction) -> tuple[Fraction, Fraction]:
    """What finishing adds to a sum that counts for its score, and by how much it rounds.

    Sound: finishing a row's sum rounds at most three times, each by half a unit of a number that is
    no larger than this.
    """
    aggregation = ensemble.aggregation
    if aggregation.finish == "none":
        return Fraction(0), Fraction(0)
    bias = [Fraction(b) for b in aggregation.bias]
    largest = 2 * peak * _rate_of(ensemble) + max(map(abs, bias), default=0)
    bits = 24 if aggregation.precision == "float32" else 53
    return bias[output] if bias else Fraction(0), 3 * largest / 2**bits


def _winning(forest: Forest, way: Way) -> Way:
    """A way in which a class wins against all others, not only against one of them."""
    others = tuple(k for k in range(forest.ensemble.n_outputs) if k != way.winner)
    return replace(way, losers=others) if way.winner >= 0 else way


def _check_witness(
    models: PairModels, evidence: Evidence, parts: list[Part], domain: Domain, lower: float
) -> None:
    """The pair lies in the domain, differs as it may, and does what is said of it."""
    ensemble = models.first
    require(evidence.witness is not None and len(evidence.witness) == 2, "witness: no pair")
    pair = np.stack([numbers_of(row, ensemble.n_features) for row in evidence.witness or []])
    changed = {feature for part in parts for feature in part.changed}
    for row in pair:
        _check_row(models.joint, domain, row, changed)
    fits = [part for part in parts if _may_differ(part, pair)]
    require(bool(fits), "witness: the rows differ where they must not")
    both = models.sums(pair)
    scores = [
        evaluate.finish(model, total)[0].astype(np.float64)
        for model, total in zip((models.first, models.second), both, strict=True)
    ]
    if parts[0].ways is None:
        if parts[0].is_range:
            breaks = any(p.sign * float(both[0][0, p.output]) > p.limit for p in fits)
            require(evidence.verdict != "falsified" or breaks, "witness: it breaks nothing")
            return
        values = [
            p.sign * (Fraction(scores[1][p.outputs[1]]) - Fraction(scores[0][p.outputs[0]]))
            for p in fits
        ]
        require(lower <= max(values), "witness: it does not reach the lower bound")
        if evidence.verdict == "falsified":
            require(max(values) > parts[0].limit, "witness: it does not break the property")
        return
    require(evidence.verdict == "falsified", "witness: nothing is falsified")
    if ensemble.decision.kind == "argmax" or models.partners:
        one, other = models.label_numbers(both)
        require(one != other, "witness: both rows have the same label")
        return
    breaks = any(
        p.ways is not None
        and float(both[0][0, 0]) <= p.ways[0].cut
        and float(both[1][0, 0]) >= p.ways[1].cut
        for p in fits
    )
    require(breaks, "witness: it does not break the property")


def _may_differ(part: Part, pair: NDArray[np.float64]) -> bool:
    for feature in range(pair.shape[1]):
        one, other = float(pair[0, feature]), float(pair[1, feature])
        is_same = one == other or (math.isnan(one) and math.isnan(other))
        if is_same:
            continue
        if feature not in part.changed:
            return False
        if part.relation.kind and (math.isnan(one) or math.isnan(other)):
            return False
        if part.relation.kind == "rising" and other < one:
            return False
        if part.relation.kind == "near":
            apart = abs(Fraction(one) - Fraction(other))
            if apart > part.relation.widths[feature]:
                return False
    return True


def _check_row(
    ensemble: Ensemble, domain: Domain, row: NDArray[np.float64], changed: set[int]
) -> None:
    """Reject a row that is not of a domain; around a row, categories stay unless they change."""
    for feature, value in enumerate(row.tolist()):
        home = math.nan if domain.row is None else float(domain.row[feature])
        is_around = domain.row is not None
        if math.isnan(value):
            may_miss = feature in domain.missing or (is_around and math.isnan(home))
            require(may_miss, "witness: a value is missing")
            continue
        require(not (is_around and math.isnan(home)), "witness: what is missing stays missing")
        if ensemble.is_categorical[feature]:
            if is_around and feature not in changed and feature not in domain.values:
                require(value == home, "witness: a category has changed")
            if value == home:
                continue
            is_code = value >= 0.0 and value == math.floor(value)
            require(is_code, "witness: no code of a category")
            if feature not in domain.values and math.isinf(domain.high[feature]):
                # Without an end, proofs are about the codes that the model knows.
                known = known_codes(ensemble, feature)
                require(value <= max(known, 0), "witness: the model does not know a category")
        if feature in domain.integer:
            require(value == math.floor(value), "witness: it holds no whole number")
        if feature in domain.values:
            require(value in domain.values[feature], "witness: it holds a value that is not listed")
        inside = domain.low[feature] <= value <= domain.high[feature]
        require(bool(inside), "witness: it lies outside of the domain")
