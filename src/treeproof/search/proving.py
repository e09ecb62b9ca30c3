"""Properties over domains: from claims to questions about pairs, and from answers to results."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treeproof.checker.domains import Asked
from treeproof.engines.base import Budget
from treeproof.engines.exact import ExactEngine
from treeproof.engines.properties import PairOutcome, solve
from treeproof.errors import InvalidInput, UnsupportedQuery
from treeproof.model import evaluate
from treeproof.model.domain import accept_float64_rows
from treeproof.model.ensemble import Ensemble
from treeproof.model.folded import fold, unfold_rows
from treeproof.model.inspection import plain_value
from treeproof.model.joined import PairModels, one_model
from treeproof.model.rows import numeric_rows
from treeproof.model.score_meaning import probabilities, require_own_score, sure_scores
from treeproof.prediction import Model
from treeproof.query.build import build_query
from treeproof.query.description import describe
from treeproof.query.domain import Features
from treeproof.query.goals import ScoreWithin
from treeproof.query.pairs import (
    PairQuestion,
    Ranges,
    change_question,
    extreme_question,
    feature_numbers,
    outputs_of,
    questions_of,
    resolve_ranges,
)
from treeproof.query.perturbations import Box, LInf
from treeproof.query.properties import (
    Fair,
    Monotone,
    Property,
    ScoreRange,
    SmallNeighbourhood,
    Stable,
)
from treeproof.results.groups import GroupDecisions, count_decisions
from treeproof.results.properties import PropertyResult, ScoreBounds
from treeproof.results.property_file import words_of_domain
from treeproof.results.verdict import UnknownReason, Verdict
from treeproof.search.pair_rules import solve_within_rules
from treeproof.search.progress import Progress, telling

_QUANTITY = {
    Stable: "largest change of the score",
    SmallNeighbourhood: "largest change of the score",
    Monotone: "largest violation",
    ScoreRange: "range of the score",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """Where a property is asked about, and how long that may take.

    `progress` is about the questions that the property consists of, each about the domain or about
    every row.
    """

    domain: Box | LInf
    X: Any = None
    missing: Features = ()
    budget: Budget
    n_jobs: int = 1
    evidence: bool = False
    progress: Progress = False

    def telling(
        self, n_questions: int, ranges: Ranges
    ) -> AbstractContextManager[Callable[[int], None] | None]:
        """Give what is told how many more questions, each about one set, are answered."""
        return telling(self.progress, n_questions * len(ranges.low), "question")

    def words(self, ensemble: Ensemble) -> dict[str, Any]:
        """The domain as files hold it."""
        return words_of_domain(self.domain, ensemble, self.missing)

    def ranges(self, ensemble: Ensemble) -> Ranges:
        """The rows that are asked about."""
        return resolve_ranges(accept_float64_rows(ensemble), self.domain, self.X, self.missing)

    def subject(self, ensemble: Ensemble) -> tuple[Ranges, Ensemble]:
        """The rows that are asked about, with groups folded, and the model over them."""
        require_own_score(ensemble)
        inner = accept_float64_rows(ensemble)
        ranges = resolve_ranges(inner, self.domain, self.X, self.missing, takes_groups=True)
        if self.evidence and ranges.rules:
            raise UnsupportedQuery(
                "Evidence about properties is recorded for domains without rules between features."
                " Leave out 'evidence', or the rules."
            )
        return ranges, fold(ensemble, ranges.groups) if ranges.groups else ensemble


def prove_property(ensemble: Ensemble, claim: Property, inquiry: Inquiry) -> list[PropertyResult]:
    """Decide a property over a domain, or around each row."""
    ranges, subject = inquiry.subject(ensemble)
    questions = [ranges.folded(question, ensemble) for question in questions_of(ensemble, claim)]
    answers = []
    with inquiry.telling(len(questions), ranges) as tell:
        for question in questions:
            answers.append(_answer(subject, ranges, question, inquiry, tell))
            if isinstance(claim, ScoreRange):
                _judge_ends(ensemble, claim, ranges, question, inquiry, answers[-1])
            if all(any(part[box].verdict == Verdict.FALSIFIED for part in answers)
                   for box in range(len(ranges.low))):  # fmt: skip
                break
    words = describe(claim)
    if getattr(claim, "confidence", None) is not None:
        # What is proved is about scores; of a confidence they are the log-odds.
        words["scores"] = list(sure_scores(ensemble, words["confidence"], None))
    results = []
    for box in range(len(ranges.low)):
        parts = [part[box] for part in answers]
        result = _combined(ensemble, claim, words, questions, parts, box, ranges)
        result = replace(result, domain=inquiry.words(ensemble))
        results.append(
            with_evidence(one_model(ensemble), ranges, box, questions, parts, inquiry, result)
        )
    return results


def count_groups(
    model: Model, claim: Property, inquiry: Inquiry, data: Any
) -> tuple[GroupDecisions, ...]:
    """How rows are decided, by the values of the features that a claim protects."""
    if not isinstance(claim, Fair):
        raise InvalidInput(
            "'data' are counted by the features that Fair protects."
            f" Got {type(claim).__name__}. Leave them out."
        )
    ensemble = model.ensemble
    rows = numeric_rows(accept_float64_rows(ensemble), data, allow_empty=False)
    words: dict[str, Any] = {
        "feature_names": list(ensemble.feature_names),
        "categories": {str(feature): known for feature, known in ensemble.categories.items()},
    }
    header = {"model": words, "question": {"perturbation": inquiry.words(ensemble)}}
    protected = feature_numbers(ensemble, claim.protected, "'protected' of Fair")
    return count_decisions(header, protected, rows, model.label_indices(data), model.classes)


def find_largest_change(
    ensemble: Ensemble, features: Features, label: object, inquiry: Inquiry
) -> list[PropertyResult]:
    """How far some features alone can move the score."""
    changed = feature_numbers(ensemble, features, "'features'")
    ranges, subject = inquiry.subject(ensemble)
    questions = [
        ranges.folded(change_question(ensemble, output, changed), ensemble)
        for output in outputs_of(ensemble, label)
    ]
    names = ensemble.feature_names or range(ensemble.n_features)
    moved = [names[number] for number in changed]
    words: dict[str, Any] = {"name": "largest_change", "features": moved}
    words |= {} if label is None else {"label": plain_value(label)}
    with inquiry.telling(len(questions), ranges) as tell:
        answers = [_answer(subject, ranges, question, inquiry, tell) for question in questions]
    results = []
    for box in range(len(ranges.low)):
        parts = [part[box] for part in answers]
        result = _optimum(ensemble, words, parts, "largest change of the score", box, ranges)
        result = replace(result, domain=inquiry.words(ensemble))
        results.append(
            with_evidence(one_model(ensemble), ranges, box, questions, parts, inquiry, result)
        )
    return results


def with_evidence(
    models: PairModels,
    ranges: Ranges,
    box: int,
    questions: list[PairQuestion],
    parts: list[PairOutcome],
    inquiry: Inquiry,
    result: PropertyResult,
) -> PropertyResult:
    """The result with its proof on record, where that is asked for and the checker accepts it."""
    if not inquiry.evidence:
        return result
    from treeproof.engines import pair_evidence

    subject = one_model(fold(models.first, ranges.groups)) if ranges.groups else models
    statements: list[dict[str, Any]] = []
    is_optimum = all(question.kind == "value" and question.changed for question in questions)
    if result.verdict == Verdict.VERIFIED or (is_optimum and result.upper < math.inf):
        for question, part in zip(questions, parts, strict=True):
            found = pair_evidence.record(
                subject, ranges, box, question, part.proved, inquiry.budget
            )
            if found is None:
                return result
            statements.append(found)
    record = result.record()
    asked = Asked(result.domain, result.row, record["values"])
    answer = {
        "claim": result.claim,
        "verdict": result.verdict,
        "lower": result.lower,
        "upper": result.upper,
        "witness": result.witness,
    }
    return replace(result, evidence=pair_evidence.write(models, asked, answer, statements))


def find_score_range(ensemble: Ensemble, label: object, inquiry: Inquiry) -> list[ScoreBounds]:
    """The smallest and the largest score."""
    outputs = outputs_of(ensemble, label)
    if len(outputs) != 1:
        raise InvalidInput(
            f"'label' must name the class whose score is meant, for a model with {len(outputs)}."
        )
    (ranges, subject), words = inquiry.subject(ensemble), {"name": "score_range"}
    sides, ends = ((-1.0, "smallest score"), (1.0, "largest score")), []
    with inquiry.telling(len(sides), ranges) as tell:
        for sign, quantity in sides:
            question = extreme_question(ensemble, outputs[0], sign, math.inf)
            parts = _answer(subject, ranges, question, inquiry, tell)
            ends.append(
                [
                    _as_score(
                        ensemble, question, _optimum(ensemble, words, [part], quantity, box, ranges)
                    )
                    for box, part in enumerate(parts)
                ]
            )
    return [ScoreBounds(*pair) for pair in zip(*ends, strict=True)]


def _answer(
    subject: Ensemble,
    ranges: Ranges,
    question: PairQuestion,
    inquiry: Inquiry,
    tell: Callable[[int], None] | None,
) -> list[PairOutcome]:
    """Answer a question about all sets; `tell` is told of each."""
    models = one_model(subject)
    if ranges.rules:
        outcomes = solve_within_rules(models, ranges, question, inquiry.budget, on_progress=tell)
    else:
        outcomes = solve(
            models, ranges, question, inquiry.budget, n_jobs=inquiry.n_jobs,
            leaves_room=inquiry.evidence, on_progress=tell,
        )  # fmt: skip
    for outcome in outcomes:
        if outcome.witness is not None:
            outcome.witness = unfold_rows(outcome.witness, ranges.groups)
    return outcomes


def _judge_ends(
    ensemble: Ensemble,
    claim: ScoreRange,
    ranges: Ranges,
    question: PairQuestion,
    inquiry: Inquiry,
    parts: list[PairOutcome],
) -> None:
    """Decide, in place, ends of a range that are nearer to a score than sums round.

    Difference trees bound sums in real numbers. The exact engine takes the last boxes apart until
    it adds up leaves as the model does; it answers for rows of plain numbers.
    """
    is_tested = np.isin(np.arange(ensemble.n_features), ensemble.trees.feature)
    others = bool(ranges.rules or ranges.groups or ranges.values) or ranges.integer.any()
    others |= ((ranges.missing | ensemble.is_categorical) & is_tested).any()
    if (
        others
        or ensemble.n_outputs > 1
        or (ranges.rows is not None and np.isnan(ranges.rows).any())
    ):
        return
    is_top = question.first[question.outputs[0]] > 0.0
    goal = ScoreWithin(high=claim.high) if is_top else ScoreWithin(low=claim.low)
    for box in [b for b, part in enumerate(parts) if part.reason == UnknownReason.ROUNDING]:
        low, high = ranges.low[box], ranges.high[box]
        row = np.clip(0.0, low, high)[np.newaxis]
        query = build_query(ensemble, row, None, Box(low, high), goal=goal, arithmetic="float64")
        found = ExactEngine().verify(query, inquiry.budget)
        part = parts[box]
        part.seconds += float(found.seconds[0])
        part.verdict, part.reason = Verdict(found.verdict[0]), UnknownReason(found.reason[0])
        if part.verdict == Verdict.VERIFIED:
            # Sound: every sum that the model gives is within the limit, which is one of its floats.
            part.upper = min(part.upper, question.limit)
        elif part.verdict == Verdict.FALSIFIED:
            part.witness = np.repeat(found.witness, 2, axis=0)


def feature_names(ensemble: Ensemble) -> tuple[str, ...]:
    """Names of features, or their numbers as text."""
    return ensemble.feature_names or tuple(map(str, range(ensemble.n_features)))


def _optimum(
    ensemble: Ensemble,
    words: dict[str, Any],
    parts: list[PairOutcome],
    quantity: str,
    box: int,
    ranges: Ranges,
) -> PropertyResult:
    """Results of a question without a claim: the largest of all parts."""
    best = max(parts, key=lambda part: part.lower)
    upper = max(part.upper for part in parts)
    exact = all(part.exact or part.upper <= best.lower for part in parts)
    unsure = [part for part in parts if not part.exact]
    return with_pair(
        one_model(ensemble),
        PropertyResult(
            claim=words,
            verdict=Verdict.VERIFIED if exact else Verdict.UNKNOWN,
            quantity=quantity,
            lower=best.lower,
            upper=upper,
            exact=exact,
            witness=best.witness,
            reason=UnknownReason.NONE if exact else unsure[0].reason,
            row=-1 if ranges.rows is None else box,
            values=ranges.row(box),
            feature_names=feature_names(ensemble),
            seconds=sum(part.seconds for part in parts),
            statistics=_statistics(parts),
        ),
    )


def _combined(
    ensemble: Ensemble,
    claim: Property,
    words: dict[str, Any],
    questions: list[PairQuestion],
    parts: list[PairOutcome],
    box: int,
    ranges: Ranges,
) -> PropertyResult:
    """One result of the answers to all questions about one box."""
    result = claimed(questions, parts, quantity=_QUANTITY.get(type(claim), ""))
    if isinstance(claim, ScoreRange):
        lower, upper = -math.inf, math.inf
        if result.verdict == Verdict.VERIFIED:
            lower, upper = _enclosure(ensemble, questions, parts)
        result = replace(result, lower=lower, upper=upper)
    result = replace(
        result,
        claim=words,
        row=-1 if ranges.rows is None else box,
        values=ranges.row(box),
        feature_names=feature_names(ensemble),
    )
    return with_pair(one_model(ensemble), result)


def claimed(
    questions: list[PairQuestion], parts: list[PairOutcome], *, quantity: str
) -> PropertyResult:
    """What follows for a claim from the answers to its questions, as far as they were asked."""
    broken = [part for part in parts if part.verdict == Verdict.FALSIFIED]
    unsure = [part for part in parts if part.verdict == Verdict.UNKNOWN]
    is_whole = len(parts) == len(questions)
    verdict, reason = Verdict.VERIFIED, UnknownReason.NONE
    if broken:
        verdict = Verdict.FALSIFIED
    elif unsure or not is_whole:
        verdict, reason = Verdict.UNKNOWN, unsure[0].reason if unsure else reason
    chosen, exact, lower, upper = (broken or parts)[0], False, math.nan, math.nan
    if questions[0].kind == "value" and questions[0].changed:
        chosen = max(parts, key=lambda part: part.lower)
        upper = max(part.upper for part in parts) if is_whole else math.inf
        lower = chosen.lower
        exact = is_whole and all(part.exact or part.upper <= lower for part in parts)
    return PropertyResult(
        claim={},
        verdict=verdict,
        quantity=quantity,
        lower=lower,
        upper=upper,
        exact=exact,
        witness=chosen.witness,
        reason=reason,
        seconds=sum(part.seconds for part in parts),
        statistics=_statistics(parts),
    )


def _statistics(parts: list[PairOutcome]) -> dict[str, int]:
    return {
        "nodes": sum(part.nodes for part in parts),
        "leaves": max(part.leaves for part in parts),
    }


def _enclosure(
    ensemble: Ensemble, questions: list[PairQuestion], parts: list[PairOutcome]
) -> tuple[float, float]:
    """A range that holds all scores that were asked about."""
    ends: dict[bool, list[float]] = {True: [], False: []}
    for question, part in zip(questions, parts, strict=True):
        output = question.outputs[0]
        is_top = question.first[output] > 0.0
        sums = part.upper if is_top else -part.upper
        ends[is_top].append(_finished(ensemble, output, sums, upwards=is_top))
    return min(ends[False], default=-math.inf), max(ends[True], default=math.inf)


def _finished(ensemble: Ensemble, output: int, total: float, *, upwards: bool) -> float:
    """The score of a sum, rounded outwards to the sums' precision first.

    Sound: finishing is monotone, rounding included, so the score of a bound bounds all scores.
    """
    if not math.isfinite(total):
        return total
    real = np.dtype(ensemble.aggregation.precision).type
    nearest = real(total)
    if upwards and float(nearest) < total:
        nearest = np.nextafter(nearest, real(np.inf))
    elif not upwards and float(nearest) > total:
        nearest = np.nextafter(nearest, real(-np.inf))
    sums = np.full((1, ensemble.n_outputs), nearest, dtype=ensemble.aggregation.precision)
    return float(evaluate.finish(ensemble, sums)[0, output])


def _as_score(ensemble: Ensemble, question: PairQuestion, result: PropertyResult) -> PropertyResult:
    """Bounds of sums as bounds of scores; the least of something is minus the largest of minus."""
    output = question.outputs[0]
    is_top = question.first[output] > 0.0
    upper = _finished(ensemble, output, result.upper if is_top else -result.upper, upwards=is_top)
    lower = math.nan if result.scores is None else float(result.scores[0, output])
    lower, upper = (lower, upper) if is_top else (upper, lower)
    return replace(result, lower=lower, upper=upper)


def with_pair(models: PairModels, result: PropertyResult) -> PropertyResult:
    """The result with the scores and labels of its pair."""
    if result.witness is None:
        return result
    sums = models.sums(result.witness)
    n_outputs = max(total.shape[1] for total in sums)
    scores = np.full((2, n_outputs), np.nan)
    for row, (model, total) in enumerate(zip((models.first, models.second), sums, strict=True)):
        scores[row, : total.shape[1]] = evaluate.finish(model, total)[0]
    labels = None
    if models.first.decision.kind != "score":
        classes = models.first.classes
        labels = tuple(classes[number] for number in models.label_numbers(sums))
    first = models.first
    shares = [
        probabilities(model, evaluate.finish(model, total))
        for model, total in zip((models.first, models.second), sums, strict=True)
    ]
    known = [share[0] for share in shares if share is not None]
    return replace(
        result,
        scores=scores,
        labels=labels,
        probabilities=np.array(known) if len(known) == len(shares) else None,
        categories={
            name: first.categories[number]
            for number, name in enumerate(feature_names(first))
            # Two models count the categories of a feature each in its own order.
            if models.first is models.second and first.categories.get(number)
        },
    )
