"""Rules between features, for questions about pairs: both rows of a pair must obey them.

See `treeproof.search.boxes`. A point is a pair, the values of the first row and then those of the
second: features that do not change are shared, so that rules of the second row are about the first
one's values there. Sound: without rules there are only more pairs, so that the upper bound of a
part holds for its pairs within rules; and every such pair lies in one of the parts.
"""

import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from treeproof.engines.base import Budget
from treeproof.engines.pair_cells import PairCells
from treeproof.engines.properties import PairOutcome, solve
from treeproof.errors import InvalidInput
from treeproof.model.ensemble import FloatArray
from treeproof.model.joined import PairModels
from treeproof.query.pairs import PairQuestion, Ranges, ends_of
from treeproof.query.rules import Comparison, Rule
from treeproof.results.verdict import UnknownReason, Verdict
from treeproof.search.boxes import BoxSearch, Part, Steps


def solve_within_rules(
    models: PairModels,
    ranges: Ranges,
    question: PairQuestion,
    budget: Budget,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> list[PairOutcome]:
    """Answer a question about every box whose rows obey rules; as `solve` does without them."""
    outcomes = []
    for box in range(len(ranges.low)):
        search = PairSearch(models, ranges.only(box), question, budget)
        outcomes.append(search.outcome())
        if on_progress is not None:
            on_progress(1)
    return outcomes


def rules_of_pairs(ranges: Ranges, question: PairQuestion) -> list[Rule]:
    """Rules of both rows over the values of a pair, and how the changed features are related."""
    n_features = ranges.low.shape[1]
    second = list(range(n_features))
    for feature in question.changed:
        second[feature] += n_features
    rows = ranges.rows
    said = [
        rule
        for rule in ranges.rules
        if rows is None or not np.isnan(rows[0, list(rule.features)]).any()
    ]
    found = list(said)
    found += [_renamed(rule, second) for rule in said if set(rule.features) & set(question.changed)]
    for feature in sorted({feature for rule in said for feature in rule.features}):
        if feature in question.changed:
            found += _related(question, feature, second[feature])
    return found


def _renamed(rule: Rule, places: Sequence[int]) -> Rule:
    either = tuple(
        replace(part, weights=tuple((places[f], weight) for f, weight in part.weights))
        for part in rule.either
    )
    return replace(rule, either=either, features=tuple(places[f] for f in rule.features))


def _related(question: PairQuestion, one: int, other: int) -> list[Rule]:
    """The relation of a changed feature's two values, as rules about them."""
    names, unit = (one, other), Fraction(1)
    if question.relation == "rising":
        falls = Comparison(((one, unit), (other, -unit)), Fraction(0), is_strict=False)
        return [Rule("", (falls,), names)]
    if question.relation != "near":
        return []
    width = question.widths[one]
    return [
        Rule("", (Comparison(((one, sign), (other, -sign)), -width, is_strict=False),), names)
        for sign in (unit, -unit)
    ]


class PairSearch(BoxSearch):
    """One box of pairs while it is split; bounds are values with their sign turned."""

    def __init__(
        self, models: PairModels, ranges: Ranges, question: PairQuestion, budget: Budget
    ) -> None:
        self.models, self.ranges, self.question = models, ranges, question
        self.n_features = ranges.low.shape[1]
        self.is_value = question.kind == "value"
        self.best: FloatArray | None = None
        # Two equal rows have a value of 0.
        self.value: Fraction | float = 0.0 if question.changed else -math.inf
        self.gap = 0.0
        self.is_found = False
        self.is_open = False
        self.nodes, self.leaves, self.began = 0, 0, time.perf_counter()
        rules = rules_of_pairs(ranges, question)
        features = {feature for rule in rules for feature in rule.features}
        super().__init__(rules, {f: self._steps_of(f) for f in features}, "float64", budget)

    def _steps_of(self, place: int) -> Steps | None:
        feature, ranges = place % self.n_features, self.ranges
        if feature in ranges.values:
            return Steps(tuple(ranges.values[feature].tolist()))
        return Steps((), has_whole=True) if ranges.integer[feature] else None

    def is_settled(self, bound: float) -> bool:
        """Whether nothing from a bound on matters any more."""
        if self.is_found or not self.is_value:
            return self.is_found
        # As near as the bounds of a closed part, where that does not leave a claim undecided.
        is_near = -bound <= self.value + self.gap
        return -bound <= self.value or (is_near and not self.value <= self.question.limit < -bound)

    def ask(self, parts: list[Part]) -> list[Part]:
        """Ask about parts without rules; returns what they are split into."""
        question, n = self.question, self.n_features
        low, high = (np.array([getattr(part, side) for part in parts]) for side in ("low", "high"))
        rows = self.ranges.rows
        ranges = replace(
            self.ranges,
            low=low[:, :n],
            high=high[:, :n],
            second=(low[:, n:], high[:, n:]),
            rows=None if rows is None else np.repeat(rows, len(parts), axis=0),
        )
        left = max(self.deadline - time.perf_counter(), 1e-3)
        cells = PairCells(self.models.joint, ranges, question.changed)
        budget = replace(self.budget, time_limit_s=left)
        found = solve(self.models, ranges, question, budget, cells=cells, leaves_room=False)
        return [
            child
            for number, (part, outcome) in enumerate(zip(parts, found, strict=True))
            for child in self._settle(part, outcome, functools.partial(self._cell, cells, number))
        ]

    def _settle(
        self,
        part: Part,
        outcome: PairOutcome,
        cell_of: Callable[[int, float], tuple[float, float]],
    ) -> list[Part]:
        """Take over what was found about a part; returns what it is split into."""
        self.nodes += outcome.nodes
        self.leaves = max(self.leaves, outcome.leaves)
        is_excluded = outcome.verdict == Verdict.VERIFIED
        if self.is_value:
            part.bound = max(part.bound, -outcome.upper)
            if outcome.exact and math.isfinite(outcome.lower):
                self.gap = max(self.gap, outcome.upper - outcome.lower)
        elif is_excluded:
            return []
        # A claim about values is decided below its limit, whatever the largest one is.
        is_decided = is_excluded and self.question.ends_when != "optimal"
        witness, broken = outcome.witness, -1
        if witness is not None:
            point = self._point(witness)
            broken = self.broken_rule(point)
            repaired = self.repaired(point, cell_of, lambda place: Fraction(1))
            if repaired is not None:
                self._offer(repaired)
                broken = -1
            elif not is_decided:
                left = self.split_at(part, point, broken)
                if part.split is not None:
                    return left
        # Sound: where a pair is sought, a part without one is closed by a proof only.
        is_closed = outcome.exact if self.is_value else self.is_found
        if not (is_closed or is_decided) or broken >= 0:
            self.is_open = True
            self.reason = outcome.reason or UnknownReason.RULE_TIE
        self.lower = min(self.lower, part.bound)
        return []

    def _point(self, pair: FloatArray) -> FloatArray:
        return np.concatenate(list(pair))

    def _pair(self, point: FloatArray) -> FloatArray:
        first, second = point[: self.n_features], point[: self.n_features].copy()
        changed = list(self.question.changed)
        second[changed] = point[self.n_features :][changed]
        return np.stack([first, second])

    def _cell(self, cells: PairCells, number: int, place: int, own: float) -> tuple[float, float]:
        """The values that one may move to within its cell; only itself where these are listed."""
        feature = place % self.n_features
        if feature in self.ranges.values:
            return own, own
        cell = int(cells.cell_of(feature, np.array([own]))[0])
        return cells.ends(number, feature, cell, is_second=place >= self.n_features)

    def _offer(self, point: FloatArray) -> None:
        """Take a pair that obeys the rules for the best, if replaying it shows that it is."""
        pair, question = self._pair(point), self.question
        if not self._is_allowed(pair):
            return
        sums = self.models.sums(pair)
        if not self.is_value:
            if question.is_found(self.models, sums):
                self.best, self.is_found = pair, True
            return
        value = question.value_of(self.models, sums)
        if value > self.value:
            self.best, self.value = pair, value
            decides = question.ends_when == "decided" and value > question.limit
            self.is_found |= decides

    def _is_allowed(self, pair: FloatArray) -> bool:
        """Whether both rows are of the domain, as far as numbers go."""
        ranges = self.ranges
        is_inside = np.isnan(pair) | ((ranges.low <= pair) & (pair <= ranges.high))
        is_inside |= self.models.joint.is_categorical
        is_whole = ~ranges.integer | np.isnan(pair) | (pair == np.floor(pair))
        listed = all(
            np.isin(pair[:, feature], values).all()
            for feature, values in ranges.values.items()
            if any(feature in rule.features for rule in ranges.rules)
        )
        return bool(is_inside.all() and is_whole.all() and listed)

    def outcome(self) -> PairOutcome:
        """Split the box, and say what follows."""
        low, high = (
            np.concatenate([side[0], side[0]]) for side in (self.ranges.low, self.ranges.high)
        )
        self.run(low, high, -math.inf)
        is_late = self.reason in (UnknownReason.TIME_LIMIT, UnknownReason.NODE_LIMIT)
        if self.root is None or (self.is_value and math.isinf(self.lower) and self.lower > 0):
            raise InvalidInput("Some input of the domain must obey its rules. Got none that does.")
        question, lower, upper = self.question, math.nan, math.nan
        if self.is_value:
            lower, least_upper = ends_of(self.value)
            upper = max(-self.lower, least_upper)
            is_sought, is_excluded = self.value > question.limit, upper <= question.limit
        else:
            is_sought, is_excluded = self.is_found, not (self.is_open or is_late)
        # Where all parts are closed, only rounding is left between a value and its limit.
        verdict, reason = Verdict.UNKNOWN, self.reason or UnknownReason.ROUNDING
        if is_sought or is_excluded:
            verdict = Verdict.FALSIFIED if is_sought else Verdict.VERIFIED
            reason = UnknownReason.NONE
        return PairOutcome(
            verdict=verdict,
            reason=reason,
            lower=lower,
            upper=upper,
            exact=self.is_value and not (self.is_open or is_late or self.is_found),
            witness=self.best,
            seconds=time.perf_counter() - self.began,
            nodes=self.nodes,
            leaves=self.leaves,
            proved=math.inf,
        )
