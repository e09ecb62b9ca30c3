"""Two models in numbers: what is sought among rows that both models answer."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from treeproof.errors import InvalidInput, UnsupportedQuery
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.model.joined import PairModels
from treeproof.model.rows import numeric_rows
from treeproof.model.score_meaning import LOG_ODDS, PROBABILITY, later_steps, score_meaning
from treeproof.model.sums import accumulator_grid, largest_leaves
from treeproof.query.constraints import (
    alternatives_of,
    finish_rounding,
    link_rounding,
    needs_around,
    rising_cut,
    rounding_unit,
)
from treeproof.query.pairs import PairQuestion, Ranges
from treeproof.query.rounding import round_down, round_up


def with_switch(models: PairModels, ranges: Ranges) -> Ranges:
    """Ranges of the first model's features as those of the joint model; refuses other rows."""
    if ranges.missing.any() and not models.joint.missing_allowed:
        raise InvalidInput("'missing' must be left out: one of the models takes no missing values.")
    if ranges.rows is not None:
        numeric_rows(models.second, ranges.rows)
    ones = np.ones((len(ranges.low), 1))
    return replace(
        ranges,
        low=np.hstack([ranges.low, 0.0 * ones]),
        high=np.hstack([ranges.high, ones]),
        rows=None if ranges.rows is None else np.hstack([ranges.rows, 0.0 * ones]),
        missing=np.append(ranges.missing, False),
        integer=np.append(ranges.integer, False),
    )


def refuse_other_classes(first: Ensemble, second: Ensemble) -> None:
    """Raise InvalidInput unless two models give labels of the same classes, or both scores."""
    one, other = first.classes, second.classes
    kinds = ["a score" if not classes else f"the classes {list(classes)}"
             for classes in (one, other)]  # fmt: skip
    if one != other or [type(c) is str for c in one] != [type(c) is str for c in other]:
        raise InvalidInput(
            "Both models must give the same classes, in the same order, or both a score."
            f" Got {kinds[0]} and {kinds[1]}. Name the classes of a model with load(..., classes=)."
        )
    if not one and first.n_outputs != second.n_outputs:
        raise InvalidInput(
            f"Both models must give as many scores. Got {first.n_outputs} and {second.n_outputs}."
        )


class Compared(NamedTuple):
    """Which scores of two models mean the same, as pairs of outputs; and why none does."""

    outputs: tuple[tuple[int, int], ...]
    reason: str = ""


def compared_scores(first: Ensemble, second: Ensemble) -> Compared:
    """Scores that can be subtracted from each other."""
    one, other = score_meaning(first), score_meaning(second)
    if "isolation" in (first.aggregation.finish, second.aggregation.finish):
        return Compared((), "the score of an isolation forest is no sum over its trees")
    steps = next(filter(None, map(later_steps, (first, second))), "")
    if steps:
        return Compared(
            (), f"scores of an ONNX model are its sums after {steps}, which is not followed"
        )
    if one.name and other.name and one != other:
        return Compared((), f"scores of the first model are {one}, those of the second {other}")
    if first.n_outputs == second.n_outputs:
        return Compared(tuple((output, output) for output in range(first.n_outputs)))
    # One probability for two classes, or one for each: that of the second class is in both.
    if one == other and one.name == PROBABILITY and len(first.classes) == 2:
        return Compared(((first.n_outputs - 1, second.n_outputs - 1),))
    return Compared((), f"the models give {first.n_outputs} and {second.n_outputs} scores")


def score_questions(
    models: PairModels, outputs: tuple[tuple[int, int], ...], delta: float
) -> list[PairQuestion]:
    """By how much the second model's scores can be above the first one's, and below them."""
    return [_score_question(models, pair, sign, delta) for pair in outputs for sign in (1.0, -1.0)]


def rate_of(ensemble: Ensemble) -> Fraction:
    """What a sum counts for in its score."""
    aggregation = ensemble.aggregation
    rates = {
        "none": Fraction(1),
        "divide": 1 / Fraction(aggregation.divisor),
        "affine": Fraction(aggregation.scale),
    }
    return rates[aggregation.finish]


def _score_question(
    models: PairModels, outputs: tuple[int, int], sign: float, delta: float
) -> PairQuestion:
    pair = models.first, models.second
    rates = [rate_of(model) for model in pair]
    if min(rates) <= 0:
        raise UnsupportedQuery(f"Scores must rise with the sum of leaves. Got {min(rates)}.")
    # Where a sum counts the same for both, values are counted in sums, which keeps them exact.
    rate = rates[0] if rates[0] == rates[1] else Fraction(1)
    weights: list[FloatArray] = []
    offset = Fraction(0)
    slack = []
    for model, output, own, way in zip(pair, outputs, rates, (-sign, sign), strict=True):
        weight = np.zeros(model.n_outputs)
        # Sound: a rate that is rounded is made up for by the rounding of finishing.
        weight[output] = way * float(own / rate)
        weights.append(weight)
        aggregation = model.aggregation
        begin = own * Fraction(aggregation.start[output])
        if aggregation.finish == "affine":
            begin += Fraction(aggregation.bias[output])
        offset += Fraction(way) * begin / rate
        slack.append(finish_rounding(model) / float(rate))
    grids = [accumulator_grid(model) for model in pair]
    return PairQuestion(
        kind="value",
        changed=(models.switch,),
        relation="models",
        first=weights[0],
        second=weights[1],
        scores=(-sign, sign),
        rate=float(rate),
        outputs=outputs,
        offset=round_up(offset),
        slack=(slack[0], slack[1]),
        unit=(rounding_unit(pair[0], grids[0]), rounding_unit(pair[1], grids[1])),
        limit=delta,
        ends_when="below",
        step=_common_step(models, grids) if max(slack) == 0.0 else 0.0,
    )


def score_rounding(models: PairModels, outputs: tuple[int, int]) -> float:
    """By how much rounding can move the difference of two scores of the same trees, anywhere.

    A figure for what counts as the same; bounds are added up anew for the rows that are asked
    about, which have no more.
    """
    total = 0.0
    for model, output in zip((models.first, models.second), outputs, strict=True):
        trees, unit = model.trees, rounding_unit(model, accumulator_grid(model))
        is_added = (trees.tree_output == output) | (trees.tree_output < 0)
        column = trees.leaf_value[:, output if trees.leaf_value.shape[1] > 1 else 0]
        first_leaf = np.searchsorted(np.flatnonzero(trees.feature < 0), trees.root[:-1])
        ends = [
            model.aggregation.start[output]
            + np.cumsum(extreme.reduceat(column, first_leaf)[is_added])
            for extreme in (np.minimum, np.maximum)
        ]
        largest = np.maximum(np.abs(ends[0]), np.abs(ends[1]))
        rounding = unit * float(largest.sum()) * (1.0 + 1e-6) * float(rate_of(model))
        total += rounding + finish_rounding(model)
    return 1.25 * total


def _common_step(models: PairModels, grids: list[float]) -> float:
    """Grid of differences of exact sums, where doubles hold all of them; else 0."""
    step = min(grids)
    largest = largest_leaves(models.joint).max(axis=1)
    starts = [np.abs(model.aggregation.start).max() for model in (models.first, models.second)]
    total = 2.0 * float(largest.sum()) + float(sum(starts))
    return step if step > 0.0 and total < 2.0**51 * step else 0.0


def label_pairs(models: PairModels) -> list[tuple[int, int]]:
    """Labels that differ: the first model says the one, the second the other."""
    return list(itertools.permutations(range(len(models.first.classes)), 2))


def label_questions(models: PairModels) -> list[PairQuestion]:
    """One question for each two labels that differ."""
    return [_label_question(models, *pair) for pair in label_pairs(models)]


class _Need(NamedTuple):
    """When a model prefers one class to another, as a need of its sums."""

    weights: FloatArray
    need: float
    slack: float
    unit: float


def _preference(ensemble: Ensemble, winner: int, loser: int) -> _Need:
    grid = accumulator_grid(ensemble)
    if ensemble.decision.kind == "threshold":
        cut = rising_cut(ensemble, ensemble.decision.cut, strict=False)
        rise, fall = needs_around(ensemble, cut, grid)
        weights, need = (np.array([1.0]), rise) if winner == 1 else (np.array([-1.0]), fall)
        return _Need(weights, need, 0.0, rounding_unit(ensemble, grid))
    k = ensemble.n_outputs
    table, _ = alternatives_of(ensemble, None, np.arange(k), np.zeros((k, k)))
    # Group g lists the other classes in order: which of them beats g.
    number = int(table.group_start[loser]) + (winner if winner < loser else winner - 1)
    weights = table.coefficient[number]
    # Counted in sums, as proofs do, so that needs of two models can be mixed.
    rate = Fraction(float(np.abs(weights).max()))
    # Sound: the need is rounded down, and what rounding may hide is rounded up.
    return _Need(
        np.sign(weights),
        round_down(Fraction(float(table.need[number])) / rate),
        round_up(Fraction(link_rounding(ensemble)) / rate),
        float(table.unit[number]),
    )


def _label_question(models: PairModels, one: int, other: int) -> PairQuestion:
    mine = _preference(models.first, one, other)
    theirs = _preference(models.second, other, one)
    return PairQuestion(
        kind="labels",
        changed=(models.switch,),
        relation="models",
        first=mine.weights,
        second=theirs.weights,
        need=(mine.need, theirs.need),
        labels=(one, other),
        slack=(mine.slack, theirs.slack),
        unit=(mine.unit, theirs.unit),
    )


def probability_bound(first: Ensemble, second: Ensemble, difference: float) -> float | None:
    """Largest difference of probabilities that a difference of log-odds allows; None without any.

    Sound: of all log-odds that are so far apart, those around 0 have probabilities farthest apart.
    """
    one, other = score_meaning(first), score_meaning(second)
    if one != other or one.name not in (LOG_ODDS, PROBABILITY):
        return None
    if one.name == PROBABILITY:
        return min(difference, 1.0)
    return math.tanh(one.rate * difference / 4.0)
