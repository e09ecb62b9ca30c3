"""Claims: what evidence says it proves, its set in cells, and the sums that must stay below.

A claim is broken at a point iff some *way* to break it happens there: a sum of outputs, formed in
real numbers, then is at least the way's floor. The floor allows for every rounding of the deployed
model; docs/explanation/evidence.md derives it.
"""

import base64
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from treeproof.checker.forest import Forest
from treeproof.errors import CertificateRejected
from treeproof.model import evaluate
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.model.links import argmax_labels, sigmoid_float64, smallest_true
from treeproof.model.rows import row_hash

PREFIX = "E1:"
"""The version of the format, with which the text of evidence begins."""
LARGEST_RATIO = 128
"""Bytes of evidence for each byte of its packed form, at most, and 4096 more; no bombs."""


Amounts = Mapping[int, int] | Mapping[int, Fraction]
"""By output, sums in units."""


def require(condition: bool, message: str) -> None:
    """Reject unless a condition holds."""
    if not condition:
        raise CertificateRejected(message)


@dataclass(frozen=True, slots=True)
class Claim:
    """The set around a row, and what must hold there.

    How features of balls and boxes move, in arrays, is the question's, and the row the record's.
    """

    row: FloatArray
    kind: str
    radius: float
    goal: tuple[str, Any]
    proof: bytes
    n_packed: int
    moves: str | None = None
    kept: list[Any] | None = None
    down: Any = None
    up: Any = None
    low: Any = None
    high: Any = None


Kept = list[list[list[int | str] | int]]
"""By axis, the atoms that a proof looks at: of a number ranges of cells, of a choice the place of
the column that is 1, or values."""
KEPT = msgspec.json.Decoder(Kept)
"""Made now, in one thread: see the end of schema.py."""


class _Fields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A claim as it is written: of a row, and of how far it may move, only a hash.

    Where changes cost something, or are bound by a domain, it lists the atoms that the proof looks
    at, unless rules divide these into parts.
    """

    model: str
    row: str
    moves: str | None = None
    set: Literal["none", "open", "closed", "box"]
    radius: str
    keep: int | None = None
    avoid: int | None = None
    within: tuple[str, str] | None = None
    kept: Kept | None = None


_FIELDS = msgspec.json.Decoder(_Fields)


class Opened(NamedTuple):
    """What the text of evidence holds: a claim, as JSON, and a proof."""

    claim: bytes
    proof: bytes
    n_packed: int


def opened(text: str) -> Opened:
    """Open the text of evidence."""
    require(text.startswith(PREFIX), f"evidence: the version is not {PREFIX[:-1]}")
    try:
        packed = base64.b64decode(text[len(PREFIX) :], validate=True)
        unpacker = zlib.decompressobj()
        payload = unpacker.decompress(packed, LARGEST_RATIO * len(packed) + 4096)
        whole = unpacker.eof and not unpacker.unused_data
        require(whole, "evidence: the text is cut off, continued, or packed too tightly")
        end = 4 + struct.unpack_from("<I", payload)[0]
    except (zlib.error, struct.error, ValueError) as error:
        raise CertificateRejected(f"evidence: it cannot be read ({error!r})") from error
    require(end <= len(payload), "evidence: the claim is cut off")
    return Opened(payload[4:end], payload[end:], len(packed))


def read_claim(text: str, forest: Forest, row: FloatArray) -> Claim:
    """Open evidence and check that it speaks of this model, its arithmetic, and a row."""
    evidence = opened(text)
    is_short = len(evidence.claim) <= longest_claim(forest)
    require(is_short, "evidence: the claim is too long for this model")
    try:
        fields = _FIELDS.decode(evidence.claim)
        goals = [(g, getattr(fields, g)) for g in ("keep", "avoid", "within")]
        goals = [(name, value) for name, value in goals if value is not None]
        require(len(goals) == 1, "claim: there must be one property")
        claim = Claim(
            row=row,
            kind=fields.set,
            radius=float.fromhex(fields.radius),
            goal=goals[0],
            proof=evidence.proof,
            n_packed=evidence.n_packed,
            moves=fields.moves,
            kept=fields.kept,
        )
    except (ValueError, OverflowError, RecursionError) as error:
        raise CertificateRejected(f"evidence: it cannot be read ({error!r})") from error
    require(fields.model == forest.ensemble.fingerprint, "claim: it is about another model")
    require(len(row) == forest.ensemble.n_features, "record: one value per feature")
    require(fields.row == row_hash(row), "claim: it is about another row")
    require(claim.radius >= 0.0, "claim: the radius must be a number >= 0")
    return claim


def longest_claim(forest: Forest) -> int:
    """Bytes of a claim that lists atoms, at most."""
    return 4096 + 256 * forest.ensemble.n_features + 64 * len(forest.keys)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to break a claim.

    A rise of the only output to `cut` (sign 1), a fall to it (sign -1), or class `winner` winning
    against all `losers`, of which those with a weight are added up.
    """

    name: str
    weights: dict[int, int]
    cut: float = math.nan
    winner: int = -1
    losers: tuple[int, ...] = ()


def winning(winner: int, loser: int) -> Way:
    """The way in which a class wins against another one."""
    weights = {winner: 1, loser: -1}
    return Way(f"class {winner}", weights, winner=winner, losers=(loser,))


def crossing(forest: Forest, first: float, *, up: bool) -> Way:
    """A rise of the only output to the first sum that is meant, or a fall below it."""
    if up:
        return Way("rise", {0: 1}, first)
    return Way("fall", {0: -1}, float_before(forest, first))


def ways_of(forest: Forest, claim: Claim) -> list[Way]:
    """Every way in which the claim can be broken."""
    decision, (goal, value) = forest.ensemble.decision, claim.goal
    aggregation = forest.ensemble.aggregation
    rising = aggregation.divisor > 0.0 and aggregation.scale > 0.0
    require(rising, "claim: scores that fall when sums rise are not supported")
    if goal == "within":
        require(forest.ensemble.n_outputs == 1, "claim: a range needs one output")
        least, most = (float.fromhex(text) for text in value)
        rise = crossing(forest, first_sum(forest, most, strict=True), up=True)
        fall = crossing(forest, first_sum(forest, least), up=False)
        return [rise] * (most < math.inf) + [fall] * (least > -math.inf)
    n_labels = {"threshold": 2, "argmax": forest.ensemble.n_outputs}.get(decision.kind, 0)
    require(0 <= value < n_labels, f"claim: there is no class {value}")
    if decision.kind == "threshold":
        rises = (goal == "keep") == (value == 0)
        return [crossing(forest, first_sum(forest, decision.cut), up=rises)]
    if goal == "keep":
        return [winning(other, value) for other in range(n_labels) if other != value]
    losers = tuple(j for j in range(n_labels) if j != value)
    weights = dict.fromkeys(losers, -1) | {value: len(losers)}
    return [Way(f"class {value}", weights, winner=value, losers=losers)]


def with_weights(way: Way, weights: tuple[int, ...]) -> Way:
    """The same way, its losers added up with other weights."""
    others = {j: -w for j, w in zip(way.losers, weights, strict=True) if w}
    return replace(way, weights=others | {way.winner: sum(weights)})


def first_sum(forest: Forest, score: float, *, strict: bool = False, output: int = 0) -> float:
    """Smallest sum, in the model's precision, whose score is at least (or above) a number."""
    ensemble, known, key = forest.ensemble, forest.first_sums, (score, strict, output)

    def reaches(total: float) -> bool:
        with np.errstate(over="ignore"):
            found = margins(ensemble, [total] * ensemble.n_outputs)[output]
        return found > score if strict else found >= score

    if key not in known:
        if len(known) > 100:  # rows with ranges of their own
            known.clear()
        known[key] = smallest_true(reaches, ensemble.aggregation.precision)
    return known[key]


def float_before(forest: Forest, number: float) -> float:
    """The float before a number of the model's precision."""
    real = np.dtype(forest.ensemble.aggregation.precision).type
    with np.errstate(over="ignore"):
        return float(np.nextafter(real(number), real(-np.inf)))


def margins(ensemble: Ensemble, totals: list[float]) -> list[float]:
    """Margins of rounded sums, in the model's own arithmetic."""
    sums = np.array([totals], dtype=ensemble.aggregation.precision)
    scores: list[float] = evaluate.finish(ensemble, sums)[0].astype(np.float64).tolist()
    return scores


def check_overflow(forest: Forest, name: str, errors: Amounts, peaks: Amounts) -> None:
    """Reject sums that may overflow: what rounding loses is known of finite ones only."""
    fits = all(peaks[output] + errors[output] < forest.most_units for output in errors)
    require(fits, f"{name}: sums overflow")


def floor_of(forest: Forest, way: Way, errors: Amounts, peaks: Amounts) -> int:
    """Smallest sum, in units, at which a way may happen.

    errors, peaks : per output, how far a rounded sum can be from the real one, and how large any
    partial sum can become.
    """
    check_overflow(forest, way.name, errors, peaks)
    error = sum(abs(weight) * errors[output] for output, weight in way.weights.items())
    if way.winner >= 0:
        # Sound: where the class wins against all others, every need is met, so that any sum of
        # them with weights >= 0 is.
        weighted = [(j, -way.weights[j]) for j in way.losers if j in way.weights]
        need = sum(w * _pair_need(forest, way.winner, j, errors, peaks) for j, w in weighted)
    elif math.isinf(way.cut):
        # Nothing falls to minus infinity: the floor lies above every sum.
        need = math.ceil(peaks[0] + errors[0]) + 1
    else:
        n, d = (way.weights[0] * way.cut).as_integer_ratio()
        need = -(-n * forest.unit.denominator // (d * forest.unit.numerator))
        need = need if error else _on_grid(forest, need)
    return math.floor(need - error)


def _on_grid(forest: Forest, need: int) -> int:
    """Sums that were not rounded are multiples of the model's grid."""
    return -(-need // forest.grid) * forest.grid


def _pair_need(forest: Forest, winner: int, loser: int, errors: Amounts, peaks: Amounts) -> int:
    """Smallest difference of two rounded sums, in units, with which a class may win."""
    aggregation, decision = forest.ensemble.aggregation, forest.ensemble.decision
    require(aggregation.finish != "isolation", "claim: isolation scores have no classes")
    scale, bias = Fraction(1), [Fraction(0)] * forest.ensemble.n_outputs
    if aggregation.finish == "divide":
        scale = 1 / Fraction(aggregation.divisor)
    elif aggregation.finish == "affine":
        scale, bias = Fraction(aggregation.scale), [Fraction(b) for b in aggregation.bias]
    if winner > loser and bias[winner] == bias[loser]:
        # A tie goes to the first, and all that follows the sums is monotone: more is needed.
        return 1 if errors[winner] or errors[loser] else forest.grid
    largest = max(peaks[o] + errors[o] for o in (winner, loser)) * forest.unit * scale
    largest += max(abs(b) for b in bias)
    lost = Fraction(0)
    for rounds in (aggregation.finish != "none", decision.link_divisor != 1.0):
        lost += 8 * largest / 2**forest.bits if rounds else 0
    divisor = Fraction(decision.link_divisor)
    if decision.link.startswith("softmax"):
        lost += divisor * Fraction(1, 2 ** (20 if decision.link == "softmax_float32" else 49))
    elif decision.link == "sigmoid_float64":
        factor = Fraction(decision.link_scale) / divisor
        z = float(factor * largest) * (1.0 + 2.0**-20)
        merged = (1 + Fraction(math.exp(min(z, 700.0)))) / 2**49 / factor + 8 * largest / 2**52
        # Where it may saturate, any two margins of these sizes may have one sigmoid.
        lost += 2 * largest if z >= 700.0 else merged
    need = math.ceil((bias[loser] - bias[winner] - lost) / scale / forest.unit)
    return need if errors[winner] or errors[loser] else _on_grid(forest, need)


def happens(forest: Forest, way: Way, totals: list[float], *, every: bool = False) -> bool:
    """Whether a way may happen at given rounded sums; entries without a weight are not read.

    every  whether all sums are known, also those without a weight
    """
    if way.winner < 0:
        total = totals[0] * way.weights[0]
        return total >= way.cut * way.weights[0]
    decision = forest.ensemble.decision
    real = np.dtype(forest.ensemble.aggregation.precision).type
    scores = [
        float(real(score) / real(decision.link_divisor))
        for score in margins(forest.ensemble, totals)
    ]
    near = 0.0
    if decision.link == "sigmoid_float64":
        scores = [sigmoid_float64(score, decision.link_scale) for score in scores]
    elif decision.link.startswith("softmax"):
        outputs = set(forest.ensemble.trees.tree_output.tolist()) - {-1}
        if every or outputs <= set(way.weights):
            # Sound: the leaves of all trees are known, and with them every sum, so that the model's
            # own softmax tells.
            own = np.array([scores], dtype=real)
            return bool(argmax_labels(own, decision.link)[0] == way.winner)
        near = 2.0 ** (-20 if decision.link == "softmax_float32" else -49)
    mine = scores[way.winner]
    for loser in way.losers:
        lead = Fraction(scores[loser]) - Fraction(mine)
        if lead > near or (lead >= 0 and loser < way.winner):
            return False
    return True
