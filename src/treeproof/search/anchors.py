"""Sets of features that fix the answer, in rounds: a question of every row in a call of an engine.

For engines that know nothing of reasons, and for rows of a `Domain`, whose features are numbers,
categories and groups of columns. Plain boxes have a search of their own, in compiled code
(`treeproof.search.reasons`), which finds more.
"""

import dataclasses
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget, Engine
from treeproof.engines.instance import rank_space
from treeproof.errors import UnsupportedQuery, listed
from treeproof.query.domain import ColumnTypes
from treeproof.query.query import Query
from treeproof.results.reasons import Reasons
from treeproof.results.verdict import UnknownReason, Verdict
from treeproof.search.reasons import NO_SET, Wanted, describe_reasons, in_domain, new_reasons

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Answer:
    """What an engine says of a row while some units may change."""

    verdict: str
    reason: str
    point: NDArray[np.float64]


_Asking = Generator[Bools, _Answer, None]


@dataclass(slots=True, kw_only=True)
class _Row:
    """What is known about the units of a row.

    free : may change without changing the answer
    points, changed : rows that break the claim, and the units that each of them changes
    """

    values: NDArray[np.float64]
    free: Bools
    is_sufficient: bool = False
    reason: str = ""
    points: list[NDArray[np.float64]] = field(default_factory=list)
    changed: list[Bools] = field(default_factory=list)
    change: int = -1
    change_is_minimal: bool = True
    seconds: float = 0.0

    def known(self, free: Bools) -> int:
        """Number of a point that changes none but some units, or -1."""
        return next((n for n, units in enumerate(self.changed) if not (units & ~free).any()), -1)


def find_anchors(
    engine: Engine, query: Query, wanted: Wanted, budget: Budget, *, n_jobs: int = 1
) -> Reasons:
    """Find a sufficient set of features for every row, and a change where one is wanted.

    A complete engine also shows that sets are minimal. Time counts over all questions about a row,
    nodes in each of them.
    """
    if query.pricing is not None:
        _refuse_wishes(query.pricing.types, wanted)
    search = _Rounds(engine, in_domain(query), wanted, budget, n_jobs)
    rows = np.flatnonzero(~query.already_broken).tolist()
    search.run(rows, search.leave_out)
    if wanted.n_changes:
        search.run([row for row in rows if search.rows[row].changed], search.shrink)
    results = new_reasons(search.query)
    groups = tuple(unit for unit in search.units if len(unit) > 1)
    describe_reasons(query, results, dataclasses.replace(wanted, groups=groups))
    for row in rows:
        search.write(row, results)
    return results


def _refuse_wishes(types: ColumnTypes, wanted: Wanted) -> None:
    """Refuse what is only found in plain boxes."""
    given = {
        "minimum": wanted.minimum,
        "intervals": wanted.intervals,
        "n_sets": wanted.n_sets > 1,
        "n_changes": wanted.n_changes > 1,
        "groups": bool(wanted.groups),
    }
    refused = [name for name, is_given in given.items() if is_given]
    if refused:
        raise UnsupportedQuery(
            "In a Domain, reasons are one minimal set for each row, and one change."
            f" Got {listed(refused)}. Leave it out, or give a Box without a Domain."
        )
    if types.rules:
        raise UnsupportedQuery(
            "Reasons are found in a Domain without rules between features."
            f" Got {listed([rule.text for rule in types.rules])}."
        )
    if types.allow_broken_rows:
        raise UnsupportedQuery(
            "Rows must be of the Domain in which their reasons are found. Got one with"
            " allow_broken_rows=True."
        )


class _Rounds:
    """Asks an engine about units of many rows; a unit is a feature, or a group of columns."""

    def __init__(
        self, engine: Engine, query: Query, wanted: Wanted, budget: Budget, n_jobs: int
    ) -> None:
        self.engine, self.query, self.budget, self.n_jobs = engine, query, budget, n_jobs
        self.units = units_of(query, wanted)
        self._place = np.empty(query.rows.shape[1], dtype=np.int64)
        for number, unit in enumerate(self.units):
            self._place[list(unit)] = number
        self.moves = _moves(query, self._place, len(self.units))
        self.always, self.never = (
            np.array([bool(set(unit) & set(named)) for unit in self.units])
            for named in (wanted.always, wanted.never)
        )
        tested = query.ensemble.trees.feature
        counts = np.bincount(self._place[tested[tested >= 0]], minlength=len(self.units))
        weight = np.array([wanted.weights[list(unit)].max() for unit in self.units])
        # Heavy units are left out first, then those that few nodes of the trees look at.
        self.order = np.lexsort((counts, -weight)).tolist()
        self.rows = [
            _Row(values=values, free=~moves | self.never)
            for values, moves in zip(query.rows, self.moves, strict=True)
        ]

    def run(self, rows: list[int], search: Callable[[int], _Asking]) -> None:
        """Let all rows search, one question of each at a time."""
        asking = {row: search(row) for row in rows}
        answers: Mapping[int, _Answer | None] = dict.fromkeys(rows)
        questions: dict[int, Bools] = {}
        while asking:
            for row, answer in answers.items():
                try:
                    # What is sent first starts the search.
                    questions[row] = asking[row].send(answer)  # type: ignore[arg-type]
                except StopIteration:
                    del asking[row]
                    questions.pop(row, None)
            answers = self._answers(questions) if questions else {}

    def _answers(self, questions: dict[int, Bools]) -> dict[int, _Answer]:
        """Answers to questions about rows; what a short call leaves open is asked again later."""
        left = {row: self.budget.time_limit_s - self.rows[row].seconds for row in questions}
        nothing = np.full(self.query.rows.shape[1], np.nan)
        late = _Answer(Verdict.UNKNOWN, UnknownReason.TIME_LIMIT, nothing)
        answers = {row: late for row in questions if left[row] <= 0.0}
        rows = [row for row in questions if left[row] > 0.0]
        if not rows:
            return answers
        limit = min(left[row] for row in rows)
        asked = self._asked(np.array(rows), np.array([questions[row] for row in rows]))
        began = time.perf_counter()
        budget = dataclasses.replace(self.budget, time_limit_s=limit)
        found = self.engine.verify(asked, budget, n_jobs=self.n_jobs)
        share = (time.perf_counter() - began) / len(rows)
        for place, row in enumerate(rows):
            self.rows[row].seconds += max(share, float(found.seconds[place]))
            answer = _Answer(
                str(found.verdict[place]), str(found.reason[place]), found.witness[place]
            )
            is_late = answer.reason == UnknownReason.TIME_LIMIT
            if not is_late or self.rows[row].seconds >= self.budget.time_limit_s:
                answers[row] = answer
        return answers

    def _asked(self, rows: NDArray[np.int64], free: Bools) -> Query:
        """The question whether some units of each row can break its claim."""
        query = self.query.take(rows)
        if query.pricing is not None:
            pricing = dataclasses.replace(query.pricing, stays=~free)
            return dataclasses.replace(query, pricing=pricing)
        is_free = free[:, self._place]
        low, high = (
            np.where(is_free, side, query.rows) for side in (query.reach.low, query.reach.high)
        )
        return dataclasses.replace(
            query, reach=dataclasses.replace(query.reach, low=low, high=high)
        )

    def _learn(self, row: _Row, answer: _Answer) -> None:
        """Remember a point that breaks the claim."""
        same = (answer.point == row.values) | (np.isnan(answer.point) & np.isnan(row.values))
        changed = np.zeros(len(self.units), dtype=bool)
        changed[self._place[~same]] = True
        row.points.append(answer.point)
        row.changed.append(changed)

    def leave_out(self, number: int) -> _Asking:
        """Free units while the answer stays: many at once, fewer where that fails.

        Sound: freeing more units only enlarges the set, so that a unit without which a point broke
        the claim stays needed; and with nothing free only the row is left, which keeps its claim.
        """
        row = self.rows[number]
        if (row.free & self.moves[number]).any():
            answer = yield row.free
            if answer.verdict != Verdict.VERIFIED:
                is_broken = answer.verdict == Verdict.FALSIFIED
                row.reason = NO_SET if is_broken else answer.reason
                return
        row.is_sufficient = True
        held = [u for u in self.order if not row.free[u] and not self.always[u]]
        size = max(len(held) // 2, 1)
        while held:
            tried = row.free.copy()
            chosen: list[int] = []
            for unit in list(held):
                tried[unit] = True
                if row.known(tried) < 0:
                    chosen.append(unit)
                else:
                    tried[unit] = False
                    if not chosen:
                        held.remove(unit)  # it is needed
                if len(chosen) == size:
                    break
            if not chosen:
                continue
            answer = yield tried
            if answer.verdict == Verdict.VERIFIED:
                row.free = tried
                held = [unit for unit in held if not tried[unit]]
                size = 2 * len(chosen)
                continue
            if answer.verdict == Verdict.FALSIFIED:
                self._learn(row, answer)
            elif len(chosen) == 1:
                row.reason = answer.reason
                held.remove(chosen[0])
            size = max(len(chosen) // 2, 1)

    def shrink(self, number: int) -> _Asking:
        """Find a change of which no unit is needless, from the point that changes fewest."""
        row = self.rows[number]
        row.change = min(range(len(row.changed)), key=lambda n: int(row.changed[n].sum()))
        units = row.changed[row.change].copy()
        for unit in np.flatnonzero(units).tolist():
            if not units[unit]:
                continue
            fewer = units.copy()
            fewer[unit] = False
            point = row.known(fewer)
            if point < 0 and fewer.any():
                answer = yield fewer
                if answer.verdict == Verdict.FALSIFIED:
                    self._learn(row, answer)
                    point = len(row.points) - 1
                elif answer.verdict != Verdict.VERIFIED:
                    row.change_is_minimal = False
            if point >= 0:
                # Sound: a unit that a larger change could not do without, no smaller one can.
                row.change = point
                units = row.changed[point].copy()

    def write(self, number: int, results: Reasons) -> None:
        """Write down what was found about a row."""
        row = self.rows[number]
        results.seconds[number] = row.seconds
        results.sufficient[number] = row.is_sufficient
        results.reason[number] = row.reason
        if not row.is_sufficient:
            return
        entries = sorted(
            (feature, unit)
            for unit in np.flatnonzero(~row.free).tolist()
            for feature in self.units[unit]
        )
        features = np.array([feature for feature, _ in entries], dtype=np.int64)
        results.features[number], results.sets[number] = features, [features]
        points = np.full((len(features), len(row.values)), np.nan)
        is_shown = self.always[[unit for _, unit in entries]]
        for place, (_, unit) in enumerate(entries):
            free = row.free.copy()
            free[unit] = True
            point = row.known(free)
            if point >= 0:
                points[place] = row.points[point]
                is_shown[place] = True
        results.witnesses[number] = points
        results.minimal[number] = bool(is_shown.all())
        if is_shown.all():
            results.reason[number] = ""  # of a unit that was needed, as it turned out
        if row.change >= 0:
            units = np.flatnonzero(row.changed[row.change]).tolist()
            changed = sorted(feature for unit in units for feature in self.units[unit])
            results.changes[number] = [np.array(changed, dtype=np.int64)]
            results.change_rows[number] = row.points[row.change][np.newaxis]
            results.changes_minimal[number] = row.change_is_minimal


def units_of(query: Query, wanted: Wanted) -> list[tuple[int, ...]]:
    """Columns of every feature: those of a group of the domain, or of one that is wanted."""
    if query.pricing is None:
        return wanted.members()
    return [axis.columns for axis in query.pricing.axes.axes]


def _moves(query: Query, place: NDArray[np.int64], n_units: int) -> Bools:
    """Units (n_rows, n_units) that have another value than the row's, as far as models can see."""
    moves = np.zeros((len(query), n_units), dtype=bool)
    if query.pricing is not None:
        prices = query.pricing.prices()
        start = prices.axes.atom_start
        allowed = np.isfinite(prices.cost)
        np.put_along_axis(allowed, prices.home + start[:-1], False, axis=1)
        return np.asarray(np.logical_or.reduceat(allowed, start[:-1], axis=1))
    space = rank_space(query.ensemble)
    stays = np.isnan(query.rows) | space.categorical | (np.diff(space.cut_start) == 0)
    stays |= (query.reach.low == query.rows) & (query.reach.high == query.rows)
    np.logical_or.at(moves.T, place, ~stays.T)
    return moves
