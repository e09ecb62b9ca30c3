"""What claims about properties say, part by part; what nobody could have asked is rejected."""

import math
from fractions import Fraction
from itertools import combinations, permutations
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from treeproof.checker.claims import Way, crossing, first_sum, float_before, require, winning
from treeproof.checker.forest import Forest
from treeproof.checker.pairs import Relation
from treeproof.checker.questions import same_label
from treeproof.checker.schema import Label, Real
from treeproof.errors import CertificateRejected
from treeproof.model.ensemble import Ensemble
from treeproof.model.inspection import plain_value
from treeproof.model.joined import PairModels
from treeproof.model.score_meaning import sure_scores

SAME_SCORE = 1e-12
"""Part of itself by which a logarithm may differ between machines."""

Feature = int | str
Features = Feature | list[Feature]
Distance = Annotated[float, msgspec.Meta(ge=0.0)]
Confidence = Annotated[float, msgspec.Meta(ge=0.5, lt=1.0)]


class _Claim(msgspec.Struct, forbid_unknown_fields=True, tag_field="name"):
    """A property with its options, and nothing else: another one might change its meaning."""


class LargestChange(_Claim, tag="largest_change"):
    """See `treeproof.largest_change`."""

    features: Features
    label: Label = None


class Stable(_Claim, tag="Stable"):
    """See `treeproof.Stable`."""

    features: Features
    delta: Distance
    label: Label


class Monotone(_Claim, tag="Monotone"):
    """See `treeproof.Monotone`."""

    features: Features
    direction: Literal["increasing", "decreasing"]
    tolerance: Distance
    label: Label


class SmallNeighbourhood(_Claim, tag="SmallNeighbourhood"):
    """See `treeproof.SmallNeighbourhood`."""

    eps: Annotated[float, msgspec.Meta(gt=0.0)]
    factor: Distance
    scale: list[Distance] | Distance | None
    label: Label


class ScoreRange(_Claim, tag="ScoreRange"):
    """See `treeproof.ScoreRange`."""

    low: Real
    high: Real
    label: Label


class Fair(_Claim, tag="Fair"):
    """See `treeproof.Fair`; `scores` are those that a confidence stands for."""

    protected: Features
    confidence: Confidence | None
    margin: Distance | None
    scores: tuple[float, float] | None = None


class HighConfidence(_Claim, tag="HighConfidence"):
    """See `treeproof.HighConfidence`."""

    features: Features
    confidence: Confidence | None
    margin: Distance | None
    label: Label
    scores: tuple[float, float] | None = None


class Redundant(_Claim, tag="Redundant"):
    """See `treeproof.Redundant`."""

    groups: list[Features]
    confidence: Confidence | None
    margin: Distance | None
    label: Label
    scores: tuple[float, float] | None = None


class SameScores(_Claim, tag="SameScores"):
    """Scores of two models differ by at most `delta`."""

    delta: Distance


class SameLabels(_Claim, tag="SameLabels"):
    """Two models give the same labels."""


Change = LargestChange | Stable | Monotone | SmallNeighbourhood
Sure = Fair | HighConfidence | Redundant
Claim = Change | ScoreRange | Sure | SameScores | SameLabels

# Now, in one thread: see the end of schema.py.
msgspec.json.Decoder(Claim)


class Part(NamedTuple):
    """One thing that has to be shown: of a value, that it has a bound; else, that no pair exists.

    `ways` are those in which the first and the second row would have to happen. Of two models
    `others` is the second one's output; -1 where it is the same. A `limit` of minus infinity is
    none: nothing is claimed but the bounds.
    """

    changed: tuple[int, ...]
    relation: Relation
    output: int = -1
    sign: int = 0
    ways: tuple[Way, Way] | None = None
    limit: float = math.inf
    others: int = -1

    @property
    def outputs(self) -> tuple[int, int]:
        """Outputs of the first and of the second row."""
        return self.output, self.output if self.others < 0 else self.others

    @property
    def is_range(self) -> bool:
        """Whether it is about the scores of single rows."""
        return self.relation.kind == "range"

    @property
    def is_difference(self) -> bool:
        """Whether it is about the difference of two scores."""
        return self.ways is None and not self.is_range


def quantity_of(claim: dict[str, Any]) -> str:
    """What the bounds of an answer to a claim are those of; empty where it has none."""
    quantities = {
        "largest_change": "largest change of the score",
        "Stable": "largest change of the score",
        "SmallNeighbourhood": "largest change of the score",
        "Monotone": "largest violation",
        "ScoreRange": "range of the score",
        "SameScores": "largest difference of a score",
    }
    return quantities.get(str(claim.get("name")), "")


def parts_of(models: PairModels, claim: dict[str, Any]) -> list[Part]:
    """What a claim says, part by part."""
    try:
        said: Claim = msgspec.convert(claim, Claim)
    except msgspec.ValidationError as error:
        raise CertificateRejected(f"claim: it cannot be asked ({error})") from error
    for model in (models.first, models.second):
        aggregation = model.aggregation
        is_rising = aggregation.divisor > 0.0 and aggregation.scale > 0.0
        require(is_rising, "claim: scores that fall when sums rise are not supported")
    if models.partners:
        require(isinstance(said, SameScores | SameLabels), "claim: an unknown one of two models")
        return _difference_parts(models, said)
    ensemble = models.first
    if isinstance(said, ScoreRange):
        return _range_parts(ensemble, said)
    if isinstance(said, Fair | HighConfidence | Redundant):
        return _sure_parts(ensemble, said)
    require(not isinstance(said, SameScores | SameLabels), "claim: there is no second model")
    return _change_parts(ensemble, said)  # type: ignore[arg-type]


def _difference_parts(models: PairModels, said: Claim) -> list[Part]:
    """What a claim about two models says."""
    changed, relation = (models.switch,), Relation("models")
    first, second = models.first, models.second
    require(first.classes == second.classes, "claim: the models have other classes")
    if isinstance(said, SameScores):
        outputs = [(output, output) for output in range(first.n_outputs)]
        if first.n_outputs != second.n_outputs:
            # One probability for two classes, or one for each: that of the second class.
            require(len(first.classes) == 2, "claim: the models give other scores")
            outputs = [(first.n_outputs - 1, second.n_outputs - 1)]
        return [
            Part(changed, relation, one, sign, limit=said.delta, others=other)
            for one, other in outputs
            for sign in (1, -1)
        ]
    require(bool(first.classes), "claim: the models have no labels")
    return [
        Part(changed, relation, ways=(_preferring(first, one, two), _preferring(second, two, one)))
        for one, two in permutations(range(len(first.classes)), 2)
    ]


def _preferring(ensemble: Ensemble, winner: int, loser: int) -> Way:
    """The way in which a model prefers a class to another."""
    if ensemble.decision.kind == "argmax":
        return winning(winner, loser)
    require(ensemble.decision.kind == "threshold", "claim: the model has no labels")
    forest = Forest(ensemble)
    return crossing(forest, first_sum(forest, ensemble.decision.cut), up=winner == 1)


def _change_parts(ensemble: Ensemble, said: Change) -> list[Part]:
    """By how much scores of pairs may differ."""
    outputs, sign, limit = _outputs(ensemble, said.label), 1, -math.inf
    if isinstance(said, SmallNeighbourhood):
        eps, n = Fraction(said.eps), ensemble.n_features
        scale = 1.0 if said.scale is None else said.scale
        units = scale if isinstance(scale, list) else [scale] * n
        require(len(units) == n, "claim: one unit per feature")
        widths = tuple(
            0 * eps if ensemble.is_categorical[f] else eps * Fraction(units[f]) for f in range(n)
        )
        changed = tuple(f for f in range(n) if widths[f] > 0)
        relation, limit = Relation("near", widths), said.factor * said.eps
    else:
        changed, relation = _features(ensemble, said.features), Relation("")
    if isinstance(said, Stable):
        limit = said.delta
    if isinstance(said, Monotone):
        limit, relation = said.tolerance, Relation("rising")
        require(not ensemble.is_categorical[list(changed)].any(), "claim: no numbers")
        sign = -1 if said.direction == "increasing" else 1
    return [Part(changed, relation, output, sign, limit=limit) for output in outputs]


def _range_parts(ensemble: Ensemble, said: ScoreRange) -> list[Part]:
    """Largest sums, then smallest ones, of every output that is meant."""
    forest, parts, relation = Forest(ensemble), [], Relation("range")
    low, high = float(said.low), float(said.high)
    require(low <= high, "claim: a range that is none")
    for output in _outputs(ensemble, said.label):
        if high < math.inf:
            limit = float_before(forest, first_sum(forest, high, strict=True, output=output))
            parts.append(Part((), relation, output, 1, limit=limit))
        if low > -math.inf:
            least = first_sum(forest, low, output=output)
            parts.append(Part((), relation, output, -1, limit=-least))
    return parts


def _sure_parts(ensemble: Ensemble, said: Sure) -> list[Part]:
    """Pairs with decisions that may not be, as far as they are sure."""
    decision = ensemble.decision
    require(decision.kind != "score", "claim: the model has no labels")
    is_sure = said.confidence is not None or said.margin is not None
    both = said.confidence is not None and said.margin is not None
    require(not both, "claim: a confidence and a margin")
    if isinstance(said, Fair):
        changed = _features(ensemble, said.protected)
        if decision.kind == "argmax":
            require(not is_sure, "claim: confidence of several classes")
            return [
                Part(changed, Relation(""), ways=(winning(one, other), winning(other, one)))
                for one, other in combinations(range(ensemble.n_outputs), 2)
            ]
        low, high = _sure(ensemble, said)
        return [_crossing(ensemble, changed, low, high)]
    require(is_sure, "claim: neither a confidence nor a margin")
    require(decision.kind == "threshold", "claim: one score is needed")
    parts = []
    low, high = _sure(ensemble, said)
    label = -1 if said.label is None else _class_number(ensemble, said.label)
    for group in said.groups if isinstance(said, Redundant) else [said.features]:
        changed = _features(ensemble, group)
        if label != 0:
            parts.append(_crossing(ensemble, changed, None, high))
        if label != 1:
            parts.append(_crossing(ensemble, changed, low, decision.cut))
    return parts


def _sure(ensemble: Ensemble, said: Sure) -> tuple[float | None, float]:
    """Largest score of a sure class 0, and least of a sure class 1.

    Of a confidence they are those that the claim names: a logarithm may round in two ways.
    """
    low, high = sure_scores(ensemble, said.confidence, said.margin)
    require((said.scores is None) == (said.confidence is None), "claim: scores of no confidence")
    if said.scores is None:
        return low, high
    is_same = all(
        own is not None and math.isclose(own, told, rel_tol=SAME_SCORE, abs_tol=0.0)
        for own, told in zip((low, high), said.scores, strict=True)
    )
    require(is_same, "claim: the scores are not those of the confidence")
    return said.scores


def _crossing(ensemble: Ensemble, changed: tuple[int, ...], low: float | None, high: float) -> Part:
    """No pair with a first score up to `low` (None: below the cut) and a second from `high` on."""
    forest = Forest(ensemble)
    start = ensemble.decision.cut if low is None else low
    fall = crossing(forest, first_sum(forest, start, strict=low is not None), up=False)
    rise = crossing(forest, first_sum(forest, high), up=True)
    return Part(changed, Relation(""), ways=(fall, rise))


def _features(ensemble: Ensemble, given: Features) -> tuple[int, ...]:
    names = list(ensemble.feature_names)
    given = given if isinstance(given, list) else [given]
    numbers = sorted({names.index(name) if isinstance(name, str) else name for name in given})
    require(all(0 <= number < ensemble.n_features for number in numbers), "claim: no such feature")
    require(bool(numbers), "claim: no feature changes")
    return tuple(numbers)


def _outputs(ensemble: Ensemble, label: Label) -> list[int]:
    if label is None:
        return list(range(ensemble.n_outputs))
    require(ensemble.n_outputs > 1, "claim: the class of a model with one score")
    return [_class_number(ensemble, label)]


def _class_number(ensemble: Ensemble, label: Label) -> int:
    classes = [plain_value(own) for own in ensemble.classes]
    found = [number for number, own in enumerate(classes) if same_label(own, label)]
    require(bool(found), "claim: a label that does not exist")
    return found[0]
