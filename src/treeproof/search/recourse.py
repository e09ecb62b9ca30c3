"""Recourse: the cheapest ways to another decision, several that differ in what they change."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any, cast

import numpy as np

from treeproof.errors import InvalidInput, check_real, listed_values, nearest
from treeproof.model.cuts import cuts_of
from treeproof.model.ensemble import Ensemble
from treeproof.model.rows import numeric_rows
from treeproof.prediction import Model
from treeproof.query.build import build_query
from treeproof.query.description import plain
from treeproof.query.domain import Domain
from treeproof.query.goals import AvoidsTarget
from treeproof.query.names import feature_number
from treeproof.query.perturbations import Ball, in_order, with_limit
from treeproof.query.query import Query
from treeproof.results.changes import Naming
from treeproof.results.curves import changed_features
from treeproof.results.numbers import ColumnFormats
from treeproof.results.results import FloatArray, Results
from treeproof.search.progress import Progress, telling
from treeproof.search.question import Question

Frozen = frozenset[int]
_MOST_VALUES = 100_000
"""Round values of a feature that are looked at, one for each cell at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a way must lead to, how many there shall be, and in which steps features move."""

    wanted: Any
    n_ways: int = 1
    step: Mapping[Any, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Branch:
    """The best that was found for a row while some features stay, one row of results."""

    frozen: Frozen
    found: Results

    @property
    def changed(self) -> Frozen:
        """Features that its way changes."""
        changed = changed_features(self.found)
        return frozenset() if changed is None else frozenset(np.flatnonzero(changed[0]).tolist())

    @property
    def cost(self) -> float:
        return float(self.found.upper[0])

    @property
    def has_way(self) -> bool:
        return not np.isnan(self.found.witness[0]).all()


def find_recourse(
    model: Model,
    X: Any,
    question: Question,
    wishes: Wishes,
    *,
    n_jobs: int = 1,
    progress: Progress = False,
) -> Results:
    """Answer for every row that is not decided as wished; see `treeproof.recourse`.

    Of a row, each next way is the cheapest that leaves some feature of each earlier one as it is.
    """
    ensemble = model.ensemble
    _refuse(ensemble, wishes)
    rows = numeric_rows(ensemble, X, allow_empty=False)
    others = np.flatnonzero(np.asarray(model.predict(rows, n_jobs=n_jobs)) != wishes.wanted)
    if len(others) == 0:
        raise InvalidInput(
            f"Recourse is for rows that are not decided as wished. Got {len(rows):,} rows, all of"
            f" class {wishes.wanted!r}."
        )
    ball = in_order(cast(Any, question.perturbation), ensemble.feature_names, ensemble.n_features)
    budget = ball.eps
    if budget is not None and np.ndim(budget) > 0:
        raise InvalidInput("A budget of recourse must be one number for all rows.")
    goal = AvoidsTarget(wishes.wanted) if ensemble.n_classes > 2 else None
    # Costs are asked for, so that what is beyond a budget is known to be, and by how much.
    question = replace(question, perturbation=with_limit(ball, None), kind="radius", goal=goal)
    question = replace(question, formats=ColumnFormats(rows))
    steps = _steps(ensemble, wishes.step)
    finder = _Finder(model, rows[others], question, steps, n_jobs)
    with telling(progress, len(others)) as tell:
        ways = finder.ways(wishes.n_ways)
        if tell is not None:
            tell(len(others))
    found = Results.join([way for row in ways for way in row])
    places = np.repeat(np.arange(len(others)), [len(row) for row in ways])
    found.row = others[places]
    found.way = np.concatenate([np.arange(1, len(row) + 1) for row in ways])
    if budget is not None:
        # What people can afford is shown as it is where short numbers would cost more than that.
        shown, cost = np.array(found.shown), np.array(found.cost)
        dear = (found.upper <= cast(float, budget)) & (cost > cast(float, budget))
        shown[dear], cost[dear] = found.witness[dear], found.witness_distance[dear]
        found.shown, found.cost = shown, cost
    found.header = finder.header | {
        "recourse": {
            "wanted": plain(wishes.wanted),
            "budget": None if budget is None else float(cast(float, budget)),
            "n_rows": len(rows),
            "n_ways": wishes.n_ways,
            "step": {str(feature): step for feature, step in steps.items()},
        }
    }
    return found


def _refuse(ensemble: Ensemble, wishes: Wishes) -> None:
    if not ensemble.classes:
        raise InvalidInput("Recourse is about decisions. Got a model that gives scores.")
    if wishes.wanted not in ensemble.classes:
        raise InvalidInput(
            f"'wanted' must be one of the classes {listed_values(ensemble.classes)}."
            f" Got {wishes.wanted!r}.{nearest(wishes.wanted, ensemble.classes)}"
        )
    if not isinstance(wishes.n_ways, int | np.integer) or wishes.n_ways < 1:
        raise InvalidInput(f"'n_ways' must be a whole number from 1 on. Got {wishes.n_ways!r}.")


def _steps(ensemble: Ensemble, given: Mapping[Any, float]) -> dict[int, float]:
    """Steps by the number of their feature."""
    if not isinstance(given, Mapping):
        raise InvalidInput(f"'step' must be a dict of features and steps. Got {given!r}.")
    steps = {}
    for name, step in given.items():
        number = feature_number(name, ensemble.n_features, ensemble.feature_names)
        if ensemble.is_categorical[number]:
            raise InvalidInput(f"'step' is for numbers. Got the category {name!r}.")
        steps[number] = check_real(f"step of {name!r}", step, low=0.0, open_low=True)
    return steps


class _Finder:
    """Asks about the rows again and again, with other features frozen, until ways differ."""

    def __init__(
        self,
        model: Model,
        rows: FloatArray,
        question: Question,
        steps: dict[int, float],
        n_jobs: int,
    ) -> None:
        self._model, self._rows, self._question = model, rows, question
        self._steps, self._n_jobs = steps, n_jobs
        self.header = question.unanswered(model, rows[:1]).header
        self._axes = {
            f: frozenset(axis) for axis in Naming(self.header).axes(rows.shape[1]) for f in axis
        }
        self._query = _asked(model.ensemble, rows, question) if steps else None

    def ways(self, n_ways: int) -> list[list[Results]]:
        """Ways of every row, cheapest first; of a row without any the answer that says so."""
        every = np.arange(len(self._rows))
        first = self._ask({row: [frozenset[int]()] for row in every.tolist()})
        leaves = {row: {b.frozen: b for b in branches} for row, branches in first.items()}
        ways = {row: [branches[0].found] for row, branches in first.items()}
        sets = {row: [b[0].changed] if b[0].has_way else [] for row, b in first.items()}
        for _ in range(n_ways - 1):
            self._split(leaves, sets)
            for row in every.tolist():
                best = min(leaves[row].values(), key=lambda b: b.cost, default=None)
                # A way that changes nothing is no other one, and where there is none, none follows.
                if not sets[row] or best is None or not best.has_way or not best.changed:
                    leaves[row] = {}
                    continue
                way = best.found
                # Sound: every further way is in one of the branches.
                least = min(float(branch.found.lower[0]) for branch in leaves[row].values())
                way.exact[:] = way.exact & (least >= float(way.lower[0]))
                way.lower[:] = min(least, float(way.lower[0]))
                ways[row].append(way)
                sets[row].append(best.changed)
        return [ways[row] for row in every.tolist()]

    def _split(
        self, leaves: dict[int, dict[Frozen, _Branch]], sets: dict[int, list[Frozen]]
    ) -> None:
        """Part branches until the best of no one changes all that an earlier way does."""
        while True:
            wanted: dict[int, list[Frozen]] = {}
            for row, branches in leaves.items():
                for branch in list(branches.values()):
                    known = [s for s in sets[row] if s <= branch.changed] if branch.has_way else []
                    if not known:
                        continue
                    del branches[branch.frozen]
                    # Sound: another way leaves some feature of that one as it is.
                    parts = {branch.frozen | self._axes[f] for f in known[0]}
                    wanted.setdefault(row, []).extend(parts - branches.keys())
            if not wanted:
                return
            for row, found in self._ask(wanted).items():
                leaves[row] |= {branch.frozen: branch for branch in found}

    def _ask(self, wanted: dict[int, list[Frozen]]) -> dict[int, list[_Branch]]:
        """Answers for rows with some features frozen; rows of one question are asked together."""
        rows_of: dict[Frozen, list[int]] = {}
        for row, kinds in wanted.items():
            for frozen in dict.fromkeys(kinds):
                rows_of.setdefault(frozen, []).append(row)
        found: dict[int, list[_Branch]] = {}
        for frozen, rows in rows_of.items():
            for row, answer in zip(rows, self._answers(rows, frozen), strict=True):
                found.setdefault(row, []).append(_Branch(frozen, answer))
        return found

    def _answers(self, rows: list[int], frozen: Frozen) -> Iterator[Results]:
        ball = cast(Any, self._question.perturbation)
        ball = replace(ball, frozen=[*ball.frozen, *sorted(frozen)])
        if not self._steps:
            question = replace(self._question, perturbation=ball)
            answers = question.answer(self._model, self._rows[rows], n_jobs=self._n_jobs)
            yield from (answers.take([place]) for place in range(len(rows)))
            return
        for row in rows:
            stepped = replace(ball, domain=self._round_domain(row, ball))
            question = replace(self._question, perturbation=stepped)
            yield question.answer(self._model, self._rows[[row]], n_jobs=1)

    def _round_domain(self, row: int, ball: Ball) -> Domain:
        """The domain with the values of stepped features that are worth a look from a row."""
        domain = ball.domain or Domain()
        names, n = self._model.ensemble.feature_names, self._rows.shape[1]
        listed = {feature_number(f, n, names): v for f, v in domain.values.items()}
        whole = {feature_number(f, n, names) for f in _listed(domain.integer)}
        for feature, step in self._steps.items():
            if math.isnan(self._rows[row, feature]):
                continue
            known = listed.get(feature)
            values = self._round_values(row, feature, step)
            if known is not None:
                own = float(self._rows[row, feature])
                values = [v for v in values if v in set(map(float, known)) or v == own]
            if feature in whole:
                values = [v for v in values if v == math.floor(v)]
            listed[feature] = values
        rest = sorted(whole - listed.keys())
        return dataclasses.replace(domain, values=listed, integer=rest)

    def _round_values(self, row: int, feature: int, step: float) -> list[float]:
        """The row's own value and, of each cell of the model, the nearest multiple of the step.

        Sound: of values that no tree tells apart, the nearest costs least.
        """
        query = cast(Query, self._query)
        bounds = query.reach if query.pricing is None else query.pricing
        own = float(self._rows[row, feature])
        least, most = float(bounds.low[row, feature]), float(bounds.high[row, feature])
        cuts = cuts_of(query.ensemble).of(feature)
        ends = [-math.inf, *cuts.tolist(), math.inf]
        values = {own}
        for first, end in pairwise(ends):
            low, high = max(first, least), min(math.nextafter(end, -math.inf), most)
            if low > high:
                continue
            near = min(max(own, low), high)
            values |= _multiples_near(near, step, low, high)
        if len(values) > _MOST_VALUES:
            raise InvalidInput(
                f"A step is for features with at most {_MOST_VALUES:,} thresholds."
                f" Got feature {feature} with {len(cuts):,}."
            )
        return sorted(values)


def _listed(features: Any) -> list[Any]:
    return [features] if isinstance(features, str | int) else list(features)


def _multiples_near(near: float, step: float, low: float, high: float) -> set[float]:
    """The nearest multiples of a step below and above a number, within bounds.

    They are the doubles that people mean when they type them in: 0.3, not three times 0.1.
    """
    if not math.isfinite(near):
        return set()
    exact = Decimal(repr(float(step)))
    count = int((Decimal(near) / exact).to_integral_value())
    found = {float(exact * (count + shift)) for shift in (-1, 0, 1)}
    inside = {value for value in found if low <= value <= high}
    sides = ([v for v in inside if v <= near], [v for v in inside if v >= near])
    return {max(sides[0])} | {min(sides[1])} if all(sides) else inside


def _asked(ensemble: Ensemble, rows: FloatArray, question: Question) -> Query:
    """The question in numbers, for the bounds of each row."""
    return build_query(
        ensemble,
        rows,
        None,
        cast(Any, question.perturbation),
        goal=question.goal,
        arithmetic=question.arithmetic,
    )
