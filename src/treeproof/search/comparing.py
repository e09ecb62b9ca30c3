"""Whether two models are the same: from two models to questions about pairs, and to results."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from treeproof.engines.pair_cells import PairCells
from treeproof.engines.properties import PairOutcome, solve
from treeproof.errors import InvalidInput, UnsupportedQuery
from treeproof.model.domain import accept_float64_rows
from treeproof.model.ensemble import Ensemble
from treeproof.model.joined import NO_TREE, PairModels, join
from treeproof.query.constraints import link_rounding
from treeproof.query.differences import (
    Compared,
    compared_scores,
    label_pairs,
    label_questions,
    probability_bound,
    refuse_other_classes,
    score_questions,
    score_rounding,
    with_switch,
)
from treeproof.query.pairs import PairQuestion, Ranges
from treeproof.results.differences import DiffResult, TreeDifferences
from treeproof.results.numbers import digits_above
from treeproof.results.properties import PropertyResult
from treeproof.results.verdict import Verdict
from treeproof.search.proving import Inquiry, claimed, feature_names, with_evidence, with_pair

SAME_SCORE, MOST_ROUNDING = 1e-4, 1e-2
"""Scores that are as near are the same, unless users say otherwise; up to the second number where
the rounding of sums is more than the first."""
SAME_CUT = 1e-6
"""Cuts of decisions that are as near are the same rule: libraries' links round that much."""
SCORES_TIME = 0.7
"""Part of the time for scores, where labels may be asked for after them."""
SCORES, LABELS = "SameScores", "SameLabels"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sameness:
    """What counts as the same model.

    Attributes
    ----------
    delta : float or None
        Largest allowed difference of a score; None for `SAME_SCORE`, or the rounding of both
        models' sums where that is more, up to `MOST_ROUNDING`.
    labels : bool or None
        Whether every row must have the same label, however near the decision it is; None where
        that follows from scores up to `delta` and is asked for only otherwise.
    share : float
        By which part of itself the largest difference that is found may miss the largest one.
    """

    delta: float | None = None
    labels: bool | None = None
    share: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no distance, and no part of one."""
        delta = SAME_SCORE if self.delta is None else self.delta
        for name, value, largest in (("delta", delta, math.inf), ("gap", self.share, 1.0)):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0.0 <= value < largest:
                raise InvalidInput(
                    f"'{name}' of diff must be a number from 0 to below {largest}. Got {value!r}."
                )
        if self.labels not in (None, True, False):
            raise InvalidInput(f"'labels' of diff must be True or False. Got {self.labels!r}.")


def compare(
    first: Ensemble, second: Ensemble, sameness: Sameness, inquiry: Inquiry
) -> list[DiffResult]:
    """Decide whether two models are the same over a domain, or around each row."""
    refuse_other_classes(first, second)
    models = join(first, second)
    scores = compared_scores(first, second)
    if not scores.outputs and not first.classes:
        raise UnsupportedQuery(f"The models cannot be compared: {scores.reason}.")
    if sameness.labels and not first.classes:
        raise UnsupportedQuery("Models that give scores have no labels to compare.")
    ranges = with_switch(models, inquiry.ranges(first))
    n_boxes = len(ranges.low)
    cells = PairCells(models.joint, ranges, (models.switch,))
    delta = sameness.delta
    if delta is None:
        rounding = [score_rounding(models, pair) for pair in scores.outputs]
        delta = min(max([SAME_SCORE, *rounding]), MOST_ROUNDING)
    is_asked = bool(first.classes) and sameness.labels is not False
    follows = bool(scores.outputs) and _is_same_rule(models, scores, delta)
    must = is_asked and (bool(sameness.labels) or not follows)
    asked = score_questions(models, scores.outputs, delta) if scores.outputs else []
    score_parts: list[PropertyResult | None] = [None] * n_boxes
    label_parts: list[PropertyResult | None] = [None] * n_boxes
    n_questions = len(asked) + (len(label_pairs(models)) if is_asked else 0)
    with inquiry.telling(n_questions, ranges) as tell:
        comparison = _Comparison(models, ranges, inquiry, cells, tell)
        if asked:
            asked = [replace(question, share=sameness.share) for question in asked]
            words = {"name": SCORES, "delta": delta}
            score_parts = comparison.ask(asked, words, share=SCORES_TIME if is_asked else 1.0)
        is_told = is_asked and any(
            part is not None and part.verdict == Verdict.FALSIFIED for part in score_parts
        )
        if must or is_told:
            label_parts = comparison.ask(label_questions(models), {"name": LABELS}, share=1.0)
    trees = tree_differences(models)
    note = "" if scores.outputs else f"only labels are compared: {scores.reason}"
    results = []
    for score, label in zip(score_parts, label_parts, strict=True):
        said = note
        if score is not None and score.upper < math.inf:
            said = _consequence(models, scores, score.upper, follows=follows)
        deciding = ("scores",) if score is not None else ()
        results.append(
            DiffResult(
                delta=delta,
                scores=score,
                labels=label,
                deciding=(*deciding, "labels") if must else deciding,
                note=said,
                trees=trees,
            )
        )
    return results


def _decision_points(models: PairModels, scores: Compared) -> list[float]:
    """Score at which each model's label changes; NaN where the largest of several scores wins."""
    points = []
    for model in (models.first, models.second):
        if model.decision.kind == "threshold":
            points.append(model.decision.cut)
        else:
            # Of two probabilities of which one is compared, the larger one wins.
            points.append(0.5 if len(scores.outputs) < model.n_outputs else math.nan)
    return points


def _is_same_rule(models: PairModels, scores: Compared, delta: float) -> bool:
    """Whether both models would decide alike if their scores were the same, up to rounding."""
    one, other = _decision_points(models, scores)
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return abs(one - other) <= max(delta, SAME_CUT)


def _consequence(models: PairModels, scores: Compared, upper: float, *, follows: bool) -> str:
    """What a bound of the difference of scores says about probabilities and labels."""
    parts = []
    bound = probability_bound(models.first, models.second, upper)
    if bound is not None:
        parts.append(f"probabilities differ by at most {digits_above(bound, 3):.3g}")
    if follows and models.first.classes:
        if upper == 0.0 and models.first.decision == models.second.decision:
            return "; ".join([*parts, "labels are the same"])
        one, other = _decision_points(models, scores)
        if math.isnan(one):
            far = 2.0 * upper + link_rounding(models.first) + link_rounding(models.second)
            where = f"the first two scores are farther apart than {digits_above(far, 3):.3g}"
        else:
            rounding = 0.0 if models.first.n_outputs == models.second.n_outputs else SAME_CUT
            far = upper + abs(one - other) + rounding
            where = f"the score is farther than {digits_above(far, 3):.3g} from the decision"
        parts.append(f"labels are the same wherever {where}")
    return "; ".join(parts)


@dataclass(slots=True)
class _Comparison:
    """Two models, the rows that are asked about, who is told of answers, and the time spent."""

    models: PairModels
    ranges: Ranges
    inquiry: Inquiry
    cells: PairCells
    tell: Callable[[int], None] | None
    spent_s: float = 0.0

    def ask(
        self, questions: list[PairQuestion], words: dict[str, object], *, share: float
    ) -> list[PropertyResult | None]:
        """Answer all questions of a claim within a share of the time that is left."""
        n_boxes = len(self.ranges.low)
        budget = self.inquiry.budget
        ends_s = self.spent_s + share * (budget.time_limit_s * n_boxes - self.spent_s)
        answers: list[list[PairOutcome]] = []
        for number, question in enumerate(questions):
            left_s = (ends_s - self.spent_s) / (len(questions) - number)
            part = replace(budget, time_limit_s=max(left_s / n_boxes, 1e-3))
            found = solve(
                self.models,
                self.ranges,
                question,
                part,
                n_jobs=self.inquiry.n_jobs,
                cells=self.cells,
                leaves_room=self.inquiry.evidence,
                on_progress=self.tell,
            )
            self.spent_s += sum(outcome.seconds for outcome in found)
            answers.append(found)
            is_value = question.kind == "value"
            if not is_value and all(
                any(part[box].verdict == Verdict.FALSIFIED for part in answers)
                for box in range(n_boxes)
            ):
                break
        return [
            self._result(box, questions, [part[box] for part in answers], words)
            for box in range(n_boxes)
        ]

    def _result(
        self,
        box: int,
        questions: list[PairQuestion],
        parts: list[PairOutcome],
        words: dict[str, object],
    ) -> PropertyResult:
        is_value, own = questions[0].kind == "value", self.ranges.row(box)
        result = claimed(
            questions, parts, quantity="largest difference of a score" if is_value else ""
        )
        result = replace(
            result,
            claim=dict(words),
            row=-1 if self.ranges.rows is None else box,
            domain=self.inquiry.words(self.models.first),
            values=None if own is None else own[: self.models.first.n_features],
            feature_names=feature_names(self.models.first),
        )
        result = with_pair(self.models, result)
        return with_evidence(self.models, self.ranges, box, questions, parts, self.inquiry, result)


def tree_differences(models: PairModels) -> TreeDifferences:
    """Which trees of two models differ, and since when."""
    one, other = accept_float64_rows(models.first), accept_float64_rows(models.second)
    rounds = _rounds(one), _rounds(other)
    different: list[tuple[int | None, int | None, str]] = []
    since: list[int] = []
    for mine, theirs in models.partners:
        what = _difference(one, other, mine, theirs)
        if what:
            different.append((None if mine == NO_TREE else mine,
                              None if theirs == NO_TREE else theirs, what))  # fmt: skip
            since += [rounds[0][mine]] if mine != NO_TREE else []
            since += [rounds[1][theirs]] if theirs != NO_TREE else []
    return TreeDifferences(
        n_first=one.n_trees,
        n_second=other.n_trees,
        n_same=len(models.partners) - len(different),
        since_round=min(since, default=None),
        different=tuple(different),
    )


def _rounds(ensemble: Ensemble) -> list[int]:
    """Round of each tree: how many trees of its output come before it."""
    seen: dict[int, int] = {}
    rounds = []
    for output in ensemble.trees.tree_output.tolist():
        rounds.append(seen.get(output, 0))
        seen[output] = rounds[-1] + 1
    return rounds


def _difference(one: Ensemble, other: Ensemble, mine: int, theirs: int) -> str:
    if NO_TREE in (mine, theirs):
        return "only in the second" if mine == NO_TREE else "only in the first"
    parts = []
    for model, tree in ((one, mine), (other, theirs)):
        trees = model.trees
        nodes = slice(int(trees.root[tree]), int(trees.root[tree + 1]))
        sets = [
            trees.set_words[trees.set_offset[number] : trees.set_offset[number + 1]].tobytes()
            for number in trees.category_set[nodes].tolist()
            if number >= 0
        ]
        leaves = trees.leaf_value[trees.leaf[nodes][trees.feature[nodes] < 0]]
        parts.append((trees.feature[nodes], trees.threshold[nodes], trees.flags[nodes], sets,
                      leaves))  # fmt: skip
    (shape, cuts, flags, sets, leaves), (shape2, cuts2, flags2, sets2, leaves2) = parts
    if not np.array_equal(shape, shape2):
        return "shape"
    is_split_same = np.array_equal(cuts, cuts2) and np.array_equal(flags, flags2) and sets == sets2
    is_leaf_same = np.array_equal(leaves, leaves2)
    words = [] if is_split_same else ["splits"]
    return " and ".join(words + ([] if is_leaf_same else ["leaves"]))
