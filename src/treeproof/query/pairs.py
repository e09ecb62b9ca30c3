"""Properties in numbers: what is sought in pairs of rows, and which rows there are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, UnsupportedQuery, listed_values, nearest
from treeproof.model import evaluate
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.model.folded import Group, choices_of, fold_rows
from treeproof.model.joined import PairModels
from treeproof.model.rows import numeric_rows
from treeproof.model.score_meaning import float_below, sure_scores
from treeproof.model.sums import accumulator_grid
from treeproof.query.constraints import (
    alternatives_of,
    finish_rounding,
    link_rounding,
    needs_around,
    rising_cut,
    rounding_unit,
)
from treeproof.query.domain import ColumnTypes, Features, column_types, feature_name
from treeproof.query.names import feature_number, in_feature_order, numbers_of
from treeproof.query.perturbations import Box, LInf, in_order, resolve
from treeproof.query.properties import (
    Fair,
    HighConfidence,
    Monotone,
    Property,
    Redundant,
    ScoreRange,
    SmallNeighbourhood,
    Stable,
)
from treeproof.query.rounding import move_rounded_down, round_down, round_up
from treeproof.query.rules import Comparison, Rule, refuse_broken_rules


@dataclass(frozen=True, slots=True, kw_only=True)
class PairQuestion:
    """What is sought among pairs of rows that agree in all features but some.

    Attributes
    ----------
    kind : {"value", "both", "labels"}
        The largest gain; a pair in which both gains reach their needs; a pair with two labels.
    changed : tuple of int
        Features in which the rows may differ; none for questions about single rows.
    relation : {"", "rising", "near", "models"}
        How the changed features of the rows are related: not at all; the second row's are not
        smaller; they differ by at most `widths`; the one feature that changes is the switch between
        two models.
    widths : tuple of Fraction
        See `relation`; one for each feature, or none at all.
    first, second : float64 (n_outputs,)
        Weights of the sums of the first and the second row in their gains; a value is the sum of
        both gains.
    scores : (float, float) or None
        For values: weights of both rows' scores in what the value stands for; None where it is the
        sum itself that counts.
    rate : float
        For values of scores: what a sum counts for in its score.
    outputs : (int, int)
        Outputs of both rows whose scores are meant; -1 where several are.
    offset : float
        For values: what the value of sums is before any tree, or the next float above it.
    need : (float, float)
        For "both" and "labels": smallest gain of each row, up to rounding.
    labels : (int, int)
        For "labels": classes that go with these needs.
    slack : (float, float)
        Rounding that each gain may hide beside that of sums.
    unit : (float, float)
        Rounding unit of each row's sums; 0 where they are exact.
    limit : float
        For values: the claim is that no value exceeds it; minus infinity where the optimum itself
        is asked for, infinite where nothing is claimed.
    ends_when : {"optimal", "below", "decided"}
        For values: whether the search ends with the optimum only; or when no value exceeds the
        limit; or as soon as the claim is decided, by a value that exceeds it, too.
    share : float
        For values: by which part of itself a value may miss the optimum.
    step : float
        For values: the grid on which all values lie; 0 without one.
    """

    kind: Literal["value", "both", "labels"]
    changed: tuple[int, ...]
    first: FloatArray
    second: FloatArray
    relation: Literal["", "rising", "near", "models"] = ""
    widths: tuple[Fraction, ...] = ()
    scores: tuple[float, float] | None = None
    rate: float = 1.0
    outputs: tuple[int, int] = (-1, -1)
    offset: float = 0.0
    need: tuple[float, float] = (0.0, 0.0)
    labels: tuple[int, int] = (-1, -1)
    slack: tuple[float, float] = (0.0, 0.0)
    unit: tuple[float, float] = (0.0, 0.0)
    limit: float = math.inf
    ends_when: Literal["optimal", "below", "decided"] = "optimal"
    share: float = 0.0
    step: float = 0.0

    def is_found(self, models: PairModels, sums: Sequence[NDArray[np.floating]]) -> bool:
        """Whether sums of both rows, (1, n_outputs) each, are what is sought; in plain meaning."""
        if self.kind == "labels":
            one, other = models.label_numbers(sums)
            return one != other
        if self.kind == "both":
            gains = [float(total[0].astype(np.float64) @ weights) for total, weights in
                     zip(sums, (self.first, self.second), strict=True)]  # fmt: skip
            return gains[0] >= self.need[0] and gains[1] >= self.need[1]
        return self.value_of(models, sums) > self.limit

    def value_of(
        self, models: PairModels, sums: Sequence[NDArray[np.floating]]
    ) -> Fraction | float:
        """The deployed value of a pair, exactly where both scores are finite."""
        if self.scores is None:
            return float(sums[0][0].astype(np.float64) @ self.first)
        one, other = (
            float(evaluate.finish(model, total)[0, output])
            for model, total, output in zip(
                (models.first, models.second), sums, self.outputs, strict=True
            )
        )
        if math.isfinite(one) and math.isfinite(other):
            return Fraction(self.scores[0]) * Fraction(one) + Fraction(self.scores[1]) * Fraction(
                other
            )
        return self.scores[0] * one + self.scores[1] * other


def ends_of(value: Fraction | float) -> tuple[float, float]:
    """Largest double that is not above a value, and smallest one not below it."""
    return (round_down(value), round_up(value)) if isinstance(value, Fraction) else (value, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """The rows that are asked about: for each box, between which doubles every feature lies.

    Attributes
    ----------
    low, high : float64 (n_boxes, n_features)
        Smallest and largest double of each feature; codes of categories are whole numbers.
    rows : float64 (n_boxes, n_features) or None
        The rows around which the boxes are; None for a domain.
    missing : bool (n_features,)
        Features that may be missing, too.
    integer : bool (n_features,)
        Features whose values are whole numbers.
    values : dict
        By feature, the only values that it takes, rising; of categories, codes. Around rows, other
        categories than these stay as they are unless they are what changes.
    groups : tuple of Group
        Groups of columns that are folded, see `treeproof.model.folded`.
    unfolded : (low, high, rows) or None
        The same ends and rows before that.
    rules : tuple of Rule
        Relations between features that every row obeys; also those of groups that rules are about.
    ruled : tuple of Group
        These groups, whose columns are not folded.
    second : (low, high) or None
        For parts of boxes: the ends of second rows, where they are not those of the first ones.
    """

    low: FloatArray
    high: FloatArray
    rows: FloatArray | None
    missing: NDArray[np.bool_]
    integer: NDArray[np.bool_]
    values: dict[int, FloatArray]
    groups: tuple[Group, ...] = ()
    unfolded: tuple[FloatArray, FloatArray, FloatArray | None] | None = None
    rules: tuple[Rule, ...] = ()
    ruled: tuple[Group, ...] = ()
    second: tuple[FloatArray, FloatArray] | None = None

    def only(self, box: int) -> "Ranges":
        """The ranges of one box."""
        low, high, rows = _only(box, self.low, self.high, self.rows)
        unfolded = None if self.unfolded is None else _only(box, *self.unfolded)
        return replace(self, low=low, high=high, rows=rows, unfolded=unfolded)

    @property
    def given(self) -> tuple[FloatArray, FloatArray, FloatArray | None]:
        """Ends and rows over the columns of the model."""
        return self.unfolded or (self.low, self.high, self.rows)

    def row(self, box: int) -> tuple[float, ...] | None:
        """The row that a box is around, over the columns of the model."""
        rows = self.given[2]
        return None if rows is None else tuple(rows[box].tolist())

    def folded(self, question: "PairQuestion", ensemble: Ensemble) -> "PairQuestion":
        """A question about these ranges, or an error where it takes a group of columns apart."""
        for columns, _ in (*self.groups, *self.ruled):
            inside = sorted(set(columns) & set(question.changed))
            names = feature_name(ensemble, *columns)
            if question.relation == "near" and inside:
                if any(question.widths[feature] >= 1 for feature in inside):
                    raise UnsupportedQuery(
                        "Rows that are near each other must have the same choice in every group."
                        f" Got a width of 1 or more for one of {names}; give it a scale of 0."
                    )
                changed = tuple(f for f in question.changed if f not in inside)
                question = replace(question, changed=changed)
            elif inside and (len(inside) < len(columns) or question.relation):
                own = feature_name(ensemble, *inside)
                raise InvalidInput(
                    f"Columns of a group change together, and in no order. Got {own} of {names}."
                )
            elif inside and self.rows is not None and columns[0] not in self.values:
                raise UnsupportedQuery(
                    f"Around rows, a group that changes must be free to. Got {names}, which the"
                    " radius or the bounds keep from some choices."
                )
        return question


def _only(
    box: int, low: FloatArray, high: FloatArray, rows: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    part = slice(box, box + 1)
    return low[part], high[part], None if rows is None else rows[part]


def resolve_ranges(
    ensemble: Ensemble,
    domain: Box | LInf,
    X: Any,
    missing: Features,
    *,
    takes_groups: bool = False,
) -> Ranges:
    """Resolve a domain, or the sets around rows, into ranges of doubles.

    `ensemble` is the model over doubles. Groups of columns are folded where that is taken; rules
    are taken then, too.
    """
    n_features, names = ensemble.n_features, ensemble.feature_names
    may_miss = np.zeros(n_features, dtype=bool)
    may_miss[list(feature_numbers(ensemble, missing, "'missing'"))] = True
    if may_miss.any() and not ensemble.missing_allowed:
        raise InvalidInput(
            "'missing' must be left out: the model's library takes no missing values."
        )
    if not isinstance(domain, LInf | Box):
        raise InvalidInput(f"'domain' must be a Box, or an LInf around rows. Got {domain!r}.")
    if isinstance(domain, LInf) and domain.relative:
        raise UnsupportedQuery(
            "Properties are proved in plain units. Leave 'relative' out of LInf."
        )
    types = column_types(domain.domain, ensemble)
    domain = in_order(replace(domain, domain=None), names, n_features)
    rows = None
    if X is not None:
        rows = numeric_rows(ensemble, X, allow_empty=False).astype(np.float64)
    if rows is None and not isinstance(domain, Box):
        raise InvalidInput(
            "Without rows, 'domain' must be a Box. Got an LInf."
            " Pass the rows that it is around as X."
        )
    if isinstance(domain, LInf) and domain.eps is None:
        raise InvalidInput("LInf must have a radius here, such as LInf(0.1). Got none.")
    low, high = _reached(ensemble, domain, rows)
    if rows is not None and ((rows < types.low) | (rows > types.high)).any():
        raise InvalidInput("Rows must lie within 'ranges' of the Domain. Got one that does not.")
    listed = list(types.may_become)  # bounds of numbers say nothing about codes that are listed
    low[:, listed], high[:, listed] = -np.inf, np.inf
    low, high = np.maximum(low, types.low), np.minimum(high, types.high)
    if (low > high).any():
        raise InvalidInput("The box and 'ranges' of its Domain must have inputs in common.")
    ranges = Ranges(
        low=low,
        high=high,
        rows=rows,
        missing=may_miss | types.may_miss,
        integer=types.integer,
        values=_listed(types, takes_groups=takes_groups),
    )
    if types.rules:
        ranges = _within_rules(ensemble, ranges, types)
    for feature in np.flatnonzero(ranges.integer).tolist() + list(ranges.values):
        _keep_to_domain(ensemble, ranges, feature)
    groups = tuple(group for group in types.groups if group not in ranges.ruled)
    return _folded(ensemble, ranges, groups) if groups else ranges


def _reached(
    ensemble: Ensemble, domain: Box | LInf, rows: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest double of each feature in a box, or in the ball around each row."""
    given = np.zeros((1, ensemble.n_features)) if rows is None else rows
    reach = resolve(domain, given, ensemble.feature_names)
    low, high = np.array(reach.low), np.array(reach.high)
    if reach.is_ball and rows is not None:
        radius = float(reach.radius or 0.0)
        # Sound: rows are doubles, and these are the smallest and the largest double of the ball.
        low = np.maximum(-move_rounded_down(-rows, radius, reach.down, +1), low)
        high = np.minimum(move_rounded_down(rows, radius, reach.up, +1), high)
        low, high = np.minimum(low, rows), np.maximum(high, rows)
        codes = ensemble.is_categorical  # are no numbers, so that no distance bounds them
        low[:, codes], high[:, codes] = -np.inf, np.inf
    return low, high


def _within_rules(ensemble: Ensemble, ranges: Ranges, types: ColumnTypes) -> Ranges:
    """Ranges with the rules of a domain; a group that these are about is written as rules, too."""
    named = {feature for rule in types.rules for feature in rule.features}
    for feature in sorted(named):
        if ranges.missing[feature]:
            raise UnsupportedQuery(
                "Rules must be about features that do not go missing."
                f" Got {feature_name(ensemble, feature)}."
            )
    ruled = tuple(group for group in types.groups if named & set(group[0]))
    rules, values = list(types.rules), dict(ranges.values)
    for columns, exactly in ruled:
        values |= {column: np.array([0.0, 1.0]) for column in columns}
        for sign in (1, -1) if exactly else (1,):
            weights = tuple((column, Fraction(sign)) for column in sorted(columns))
            part = Comparison(weights, Fraction(-sign), is_strict=False)
            rules.append(Rule("one of a group", (part,), tuple(sorted(columns))))
    if ranges.rows is not None:
        refuse_broken_rules(rules, ranges.rows)
    return replace(ranges, rules=tuple(rules), ruled=ruled, values=values)


def _listed(types: ColumnTypes, *, takes_groups: bool) -> dict[int, FloatArray]:
    """The values that features may take, of a domain that properties know."""
    codes = types.may_become
    listed = {feature: after for feature, after in codes.items() if not isinstance(after, dict)}
    others = types.may_fill.any() or types.allow_broken_rows
    others |= bool(types.groups or types.rules) and not takes_groups
    if others or len(listed) < len(codes):
        taken, rest = (", groups, rules", "") if takes_groups else ("", "groups, rules, ")
        raise UnsupportedQuery(
            "Of a Domain, this question takes 'integer', 'values', 'ranges', lists of 'categorical'"
            f"{taken} and 'may_miss'. Leave out {rest}transitions, 'may_fill' and"
            " 'allow_broken_rows'."
        )
    return types.values | listed


def _folded(ensemble: Ensemble, ranges: Ranges, groups: tuple[Group, ...]) -> Ranges:
    """Ranges over choices: those that lie within the bounds of all columns of their group."""
    low, high = ranges.low.copy(), ranges.high.copy()
    rows = None if ranges.rows is None else fold_rows(ranges.rows, groups)
    values = dict(ranges.values)
    for group in groups:
        columns, choices = group[0], choices_of(group)
        names = feature_name(ensemble, *columns)
        if ranges.missing[list(columns)].any():
            raise InvalidInput(f"'missing' must name no column of a group. Got one of {names}.")
        ends = ranges.low[:, np.newaxis, columns], ranges.high[:, np.newaxis, columns]
        is_inside = np.all((ends[0] <= choices) & (choices <= ends[1]), axis=2)
        low[:, columns] = high[:, columns] = 0.0
        high[:, columns[0]] = len(choices) - 1
        if rows is None:
            values[columns[0]] = np.flatnonzero(is_inside[0]).astype(np.float64)
            if not is_inside.any():
                raise InvalidInput(f"The domain must hold a choice of the group {names}. Got none.")
        elif is_inside.all():
            values[columns[0]] = np.arange(len(choices), dtype=np.float64)
        elif (is_inside.sum(axis=1) > 1).any():
            raise UnsupportedQuery(
                f"Around rows, the group {names} must be free to take every choice, or keep to its"
                " own. Got a radius or bounds that allow for some choices only."
            )
    given = (ranges.low, ranges.high, ranges.rows)
    return replace(
        ranges, low=low, high=high, rows=rows, values=values, groups=groups, unfolded=given
    )


def _keep_to_domain(ensemble: Ensemble, ranges: Ranges, feature: int) -> None:
    """Move both ends of a feature's ranges to values that it takes, in place."""
    low, high = ranges.low[:, feature], ranges.high[:, feature]
    is_number, own = ~np.isnan(low), np.zeros(0)
    if ranges.rows is not None:
        own = ranges.rows[:, feature]
    allowed = ranges.values.get(feature)
    if allowed is None:
        low[:], high[:] = np.ceil(low), np.floor(high)
        is_empty, is_other = low > high, own != np.floor(own)
        what = "whole numbers"
    else:
        first = np.searchsorted(allowed, low, side="left")
        last = np.searchsorted(allowed, high, side="right") - 1
        is_empty, is_other = first > last, ~np.isin(own, allowed)
        low[is_number] = allowed[np.clip(first, 0, len(allowed) - 1)][is_number]
        high[is_number] = allowed[np.clip(last, 0, len(allowed) - 1)][is_number]
        what = "listed values"
    name = feature_name(ensemble, feature)
    for row in np.flatnonzero(is_other & ~np.isnan(own))[:1].tolist():
        raise InvalidInput(f"Rows must be of the domain: {name} takes {what}. Got {own[row]}.")
    if (is_empty & is_number).any():
        raise InvalidInput(f"The domain must hold {what} of {name} within its bounds. Got none.")


def feature_numbers(ensemble: Ensemble, features: Features, what: str) -> tuple[int, ...]:
    """Numbers of features, each once, in order."""
    given = (features,) if isinstance(features, str | int | np.integer) else tuple(features)
    numbers = [
        feature_number(feature, ensemble.n_features, ensemble.feature_names) for feature in given
    ]
    if len(set(numbers)) < len(numbers):
        raise InvalidInput(f"{what} must name each feature once. Got {list(given)}.")
    return tuple(sorted(numbers))


def questions_of(ensemble: Ensemble, claim: Property) -> list[PairQuestion]:
    """What would break a property, as questions of which none may be answered by a pair."""
    if isinstance(claim, Stable):
        changed = _some(ensemble, claim.features, "'features' of Stable")
        return [
            change_question(ensemble, output, changed, limit=claim.delta, ends_when="decided")
            for output in outputs_of(ensemble, claim.label)
        ]
    if isinstance(claim, SmallNeighbourhood):
        return _near_questions(ensemble, claim)
    if isinstance(claim, Monotone):
        return [_monotone_question(ensemble, claim)]
    if isinstance(claim, ScoreRange):
        return [
            question
            for output in outputs_of(ensemble, claim.label)
            for question in _range_questions(ensemble, output, claim)
        ]
    if isinstance(claim, Fair):
        return _fair_questions(ensemble, claim)
    if isinstance(claim, HighConfidence):
        return _confidence_questions(ensemble, claim)
    if isinstance(claim, Redundant):
        return [
            question
            for group in claim.groups
            for question in _confidence_questions(
                ensemble, HighConfidence(group, claim.confidence, claim.margin, claim.label)
            )
        ]
    raise InvalidInput(f"'claim' must be a property such as Fair('sex'). Got {claim!r}.")


def outputs_of(ensemble: Ensemble, label: object) -> range:
    """Outputs whose scores are meant by a label; all without one."""
    if label is None:
        return range(ensemble.n_outputs)
    if label not in ensemble.classes or ensemble.n_outputs == 1:
        raise InvalidInput(
            "'label' must be a class of a model with a score for each class."
            f" Got {label!r}; the model has {ensemble.n_outputs} scores"
            f" and the classes {listed_values(ensemble.classes)}."
        )
    number = ensemble.classes.index(label)
    return range(number, number + 1)


def change_question(
    ensemble: Ensemble, output: int, changed: tuple[int, ...], **options: Any
) -> PairQuestion:
    """By how much the score of an output can rise from the first to the second row of a pair."""
    aggregation = ensemble.aggregation
    if aggregation.finish == "isolation":
        raise UnsupportedQuery(
            "The score of an isolation forest is no sum over its trees, so changes of it cannot be"
            " bounded. Ask for its range with score_range."
        )
    rates = {"none": 1.0, "divide": 1.0 / aggregation.divisor, "affine": aggregation.scale}
    rate = rates[aggregation.finish]
    if not rate > 0.0:
        raise UnsupportedQuery(f"Scores must rise with the sum of leaves. Got a factor of {rate}.")
    first = np.zeros(ensemble.n_outputs)
    first[output] = -1.0
    sign = options.pop("sign", 1.0)
    grid = accumulator_grid(ensemble)
    finishing = finish_rounding(ensemble) / rate
    return PairQuestion(
        kind="value",
        changed=changed,
        first=sign * first,
        second=-sign * first,
        scores=(-sign, sign),
        rate=rate,
        outputs=(output, output),
        slack=(finishing, finishing),
        unit=(rounding_unit(ensemble, grid),) * 2,
        step=grid if aggregation.finish == "none" else 0.0,
        **options,
    )


def _monotone_question(ensemble: Ensemble, claim: Monotone) -> PairQuestion:
    changed = _some(ensemble, claim.features, "'features' of Monotone")
    outputs = outputs_of(ensemble, claim.label)
    if len(outputs) != 1:
        raise InvalidInput(
            f"Monotone must name the class whose margin is meant, by 'label', for a model with"
            f" {len(outputs)} scores."
        )
    if ensemble.is_categorical[list(changed)].any():
        raise InvalidInput("A feature of Monotone must be a number. Got one that holds categories.")
    sign = -1.0 if claim.direction == "increasing" else 1.0
    return change_question(
        ensemble, outputs[0], changed, sign=sign, relation="rising", limit=claim.tolerance
    )


def _near_questions(ensemble: Ensemble, claim: SmallNeighbourhood) -> list[PairQuestion]:
    scale = in_feature_order(
        "'scale' of SmallNeighbourhood",
        claim.scale,
        ensemble.feature_names,
        ensemble.n_features,
        1.0,
    )
    scale = numbers_of("'scale' of SmallNeighbourhood", 1.0 if scale is None else scale)
    if scale.shape not in ((), (ensemble.n_features,)) or not (
        np.isfinite(scale).all() and (scale >= 0.0).all()
    ):
        raise InvalidInput(
            "'scale' of SmallNeighbourhood must be one number >= 0 for each feature"
            f" ({ensemble.n_features}). Got {claim.scale!r}."
        )
    scale = np.where(ensemble.is_categorical, 0.0, scale)
    widths = tuple(Fraction(float(claim.eps)) * Fraction(unit) for unit in scale.tolist())
    changed = tuple(np.flatnonzero(scale > 0.0).tolist())
    if not changed:
        raise InvalidInput("'scale' of SmallNeighbourhood must be above 0 for some feature.")
    return [
        change_question(
            ensemble, output, changed, relation="near", widths=widths,
            limit=claim.factor * claim.eps, ends_when="decided",
        )
        for output in outputs_of(ensemble, claim.label)
    ]  # fmt: skip


def extreme_question(ensemble: Ensemble, output: int, sign: float, limit: float) -> PairQuestion:
    """The largest sum of an output, or the smallest one with its sign turned."""
    first = np.zeros(ensemble.n_outputs)
    first[output] = sign
    grid = accumulator_grid(ensemble)
    return PairQuestion(
        kind="value",
        changed=(),
        first=first,
        second=np.zeros(ensemble.n_outputs),
        outputs=(output, output),
        offset=sign * ensemble.aggregation.start[output],
        unit=(rounding_unit(ensemble, grid),) * 2,
        limit=limit,
        ends_when="decided" if math.isfinite(limit) else "optimal",
        step=grid,
    )


def _range_questions(ensemble: Ensemble, output: int, claim: ScoreRange) -> list[PairQuestion]:
    questions = []
    if claim.high < math.inf:
        above = rising_cut(ensemble, claim.high, strict=True, output=output)
        largest = float_below(ensemble, above)
        questions.append(extreme_question(ensemble, output, 1.0, largest))
    if claim.low > -math.inf:
        inside = rising_cut(ensemble, claim.low, strict=False, output=output)
        questions.append(extreme_question(ensemble, output, -1.0, -inside))
    return questions


def _some(ensemble: Ensemble, features: Features, what: str) -> tuple[int, ...]:
    numbers = feature_numbers(ensemble, features, what)
    if not numbers:
        raise InvalidInput(f"{what} must name a feature. Got none.")
    return numbers


def _fair_questions(ensemble: Ensemble, claim: Fair) -> list[PairQuestion]:
    changed = _some(ensemble, claim.protected, "'protected' of Fair")
    _refuse_scores(ensemble, "Fair")
    if ensemble.decision.kind == "argmax":
        if claim.confidence is not None or claim.margin is not None:
            raise UnsupportedQuery(
                "'confidence' and 'margin' of Fair need a model with one score for two classes."
                f" Got {ensemble.n_outputs} scores."
            )
        return _label_questions(ensemble, changed)
    low, high = sure_scores(ensemble, claim.confidence, claim.margin)
    return [_both_question(ensemble, changed, low, high)]


def _label_questions(ensemble: Ensemble, changed: tuple[int, ...]) -> list[PairQuestion]:
    """One question for each two classes: whichever row has which, the rows may be swapped."""
    k = ensemble.n_outputs
    table, _ = alternatives_of(ensemble, None, np.arange(k), np.zeros((k, k)))
    slack = link_rounding(ensemble)
    questions = []
    for one in range(k):
        for other in range(one + 1, k):
            # Group g lists the other classes in order: which of them beats g.
            other_wins = int(table.group_start[one]) + other - 1
            one_wins = int(table.group_start[other]) + one
            questions.append(
                PairQuestion(
                    kind="labels",
                    changed=changed,
                    first=table.coefficient[one_wins],
                    second=table.coefficient[other_wins],
                    need=(float(table.need[one_wins]), float(table.need[other_wins])),
                    labels=(one, other),
                    slack=(slack, slack),
                    unit=(float(table.unit[one_wins]),) * 2,
                )
            )
    return questions


def _confidence_questions(ensemble: Ensemble, claim: HighConfidence) -> list[PairQuestion]:
    what = "HighConfidence"
    changed = _some(ensemble, claim.features, "'features' of HighConfidence")
    _refuse_scores(ensemble, what)
    if ensemble.decision.kind == "argmax":
        raise UnsupportedQuery(
            f"{what} needs a model with one score for two classes. Got {ensemble.n_outputs} scores."
        )
    if claim.label is not None and claim.label not in ensemble.classes:
        raise InvalidInput(
            f"'label' of {what} must be one of the classes {listed_values(ensemble.classes)}."
            f" Got {claim.label!r}.{nearest(claim.label, ensemble.classes)}"
        )
    low, high = sure_scores(ensemble, claim.confidence, claim.margin)
    cut = ensemble.decision.cut
    questions = []
    if claim.label is None or claim.label == ensemble.classes[1]:
        questions.append(_both_question(ensemble, changed, None, high))
    if claim.label is None or claim.label == ensemble.classes[0]:
        questions.append(_both_question(ensemble, changed, low, cut))
    return questions


def _refuse_scores(ensemble: Ensemble, what: str) -> None:
    if ensemble.decision.kind == "score":
        raise UnsupportedQuery(
            f"{what} is about decisions, and the model gives scores."
            " Ask with Stable(features, delta)."
        )


def _both_question(
    ensemble: Ensemble, changed: tuple[int, ...], low: float | None, high: float
) -> PairQuestion:
    """A first row with a score up to `low` (None: below the cut), and a second from `high` on."""
    grid = accumulator_grid(ensemble)
    strict = low is not None
    start = ensemble.decision.cut if low is None else low
    falling = needs_around(ensemble, rising_cut(ensemble, start, strict=strict), grid)[1]
    rising = needs_around(ensemble, rising_cut(ensemble, high, strict=False), grid)[0]
    return PairQuestion(
        kind="both",
        changed=changed,
        first=np.array([-1.0]),
        second=np.array([1.0]),
        need=(falling, rising),
        unit=(rounding_unit(ensemble, grid),) * 2,
    )
