"""Reasons in rounds: a question of every row in a call of an engine.

For rows of a `Domain`, whose features are numbers, categories and groups of columns, and for
engines that know nothing of reasons. Plain boxes have a search of their own, in compiled code
(`treeproof.search.reasons`); what both do is the same, and explained in its kernels.
"""

import dataclasses
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget, Engine
from treeproof.engines.outcomes import breaks
from treeproof.errors import InvalidInput, UnsupportedQuery, listed
from treeproof.kernels.core.status import PROVED
from treeproof.kernels.exact.hitting import hitting_set
from treeproof.model.cuts import cuts_of
from treeproof.query.axes import NUMERIC
from treeproof.query.domain import ColumnTypes
from treeproof.query.query import Query
from treeproof.results.reasons import Reasons
from treeproof.results.verdict import UnknownReason, Verdict
from treeproof.search.progress import Progress, telling
from treeproof.search.reasons import (
    NO_SET,
    Wanted,
    describe_reasons,
    in_domain,
    new_reasons,
    record_reasons,
)

Bools = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
Cells = dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Asked:
    """Whether something breaks the claim while some units are free, and others move a little.

    cells : by feature of a unit that is not free, the first and the last of the cells it may be in
    """

    free: Bools
    cells: Cells = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What an engine says of a question about a row."""

    verdict: str
    reason: str
    point: FloatArray


_Search = Generator[_Asked, _Answer, None]
_Trial = Generator[_Asked, _Answer, _Answer]


@dataclass(slots=True, kw_only=True)
class _Row:
    """What is known about the units of a row.

    base : units that are free in any set: they do not move, or must not be used
    points, changed : rows that break the claim, and the units that each of them changes
    sets : units that each sufficient set leaves free
    changes : by number of its point, whether the change is shown to be minimal
    cells : how far the features of the first set may move; widest where no end can go further
    """

    values: FloatArray
    base: Bools
    reason: str = ""
    points: list[FloatArray] = field(default_factory=list)
    changed: list[Bools] = field(default_factory=list)
    sets: list[Bools] = field(default_factory=list)
    is_complete: bool = False
    lower: float = 0.0
    changes: dict[int, bool] = field(default_factory=dict)
    has_all_changes: bool = False
    change_lower: float = 0.0
    cells: Cells = field(default_factory=dict)
    is_widest: bool = True
    seconds: float = 0.0

    def known(self, free: Bools) -> int:
        """Number of a point that changes none but some units, or -1."""
        return next((n for n, units in enumerate(self.changed) if not (units & ~free).any()), -1)


def find_anchors(
    engine: Engine,
    query: Query,
    wanted: Wanted,
    budget: Budget,
    *,
    evidence: bool = False,
    n_jobs: int = 1,
    progress: Progress = False,
) -> Reasons:
    """Find what is wanted about every row.

    A complete engine also shows that sets are minimal. Time counts over all questions about a row,
    nodes in each of them.
    """
    if query.pricing is not None:
        _refuse_relations(query.pricing.types)
    query = in_domain(query)
    search = _Rounds(engine, query, wanted, budget, n_jobs)
    rows = np.flatnonzero(~query.already_broken).tolist()
    with telling(progress, len(query)) as tell:
        search.run(rows, tell)
    results = new_reasons(query)
    if wanted.intervals:
        results.intervals = [np.zeros((0, 2)) for _ in range(len(query))]
    groups = tuple(unit for unit in search.units if len(unit) > 1)
    describe_reasons(query, results, dataclasses.replace(wanted, groups=groups))
    for row in rows:
        search.write(row, results)
    if evidence:
        record_reasons(query, results, budget, n_jobs)
    return results


def _refuse_relations(types: ColumnTypes) -> None:
    """Refuse domains in which a feature cannot be kept or freed by itself."""
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
        self.wanted, self.units = wanted, units_of(query, wanted)
        self._place = np.empty(query.rows.shape[1], dtype=np.int64)
        for number, unit in enumerate(self.units):
            self._place[list(unit)] = number
        self.first, self.last = _reached(query)
        moves = np.zeros((len(query), len(self.units)), dtype=bool)
        np.logical_or.at(moves.T, self._place, (self.first <= self.last).T)
        self.moves = moves
        self.always, self.never = (
            np.array([bool(set(unit) & set(named)) for unit in self.units])
            for named in (wanted.always, wanted.never)
        )
        if (self.always & self.never).any():
            raise InvalidInput(
                "Columns of one group of the Domain must not be in both 'always' and 'never'."
                " Got some that are."
            )
        self.any = ~self.always & ~self.never
        tested = query.ensemble.trees.feature
        counts = np.bincount(self._place[tested[tested >= 0]], minlength=len(self.units))
        self.weight = np.array([wanted.weights[list(unit)].max() for unit in self.units])
        # Heavy units are left out first, then those that few nodes of the trees look at.
        self.order = np.lexsort((counts, -self.weight)).tolist()
        self.rows = [
            _Row(values=values, base=~own | self.never)
            for values, own in zip(query.rows, moves, strict=True)
        ]

    def run(self, rows: list[int], tell: Callable[[int], None] | None = None) -> None:
        """Let all rows search, one question of each at a time; `tell` is told of finished rows."""
        asking = {row: self.explain(row) for row in rows}
        answers: Mapping[int, _Answer | None] = dict.fromkeys(rows)
        questions: dict[int, _Asked] = {}
        while asking:
            for row, answer in answers.items():
                try:
                    # What is sent first starts the search.
                    questions[row] = asking[row].send(answer)  # type: ignore[arg-type]
                except StopIteration:
                    del asking[row]
                    questions.pop(row, None)
                    if tell is not None:
                        tell(1)
            answers = self._answers(questions) if questions else {}

    def _answers(self, questions: dict[int, _Asked]) -> dict[int, _Answer]:
        """Answers to questions about rows; what a short call leaves open is asked again later."""
        nothing = np.full(self.query.rows.shape[1], np.nan)
        late = _Answer(Verdict.UNKNOWN, UnknownReason.TIME_LIMIT, nothing)
        answers = {row: late for row in questions if self._left_s(row) <= 0.0}
        alike: dict[frozenset[int], list[int]] = {}
        for row, asked in questions.items():
            if row not in answers:
                alike.setdefault(self._present(asked), []).append(row)
        for present, rows in alike.items():
            limit = min(map(self._left_s, rows))
            query = self._query(rows, [questions[row] for row in rows], present)
            began = time.perf_counter()
            budget = dataclasses.replace(self.budget, time_limit_s=limit)
            found = self.engine.verify(query, budget, n_jobs=self.n_jobs)
            share = (time.perf_counter() - began) / len(rows)
            for place, row in enumerate(rows):
                self.rows[row].seconds += max(share, float(found.seconds[place]))
                answer = _Answer(
                    str(found.verdict[place]), str(found.reason[place]), found.witness[place]
                )
                is_late = answer.reason == UnknownReason.TIME_LIMIT
                if not is_late or self._left_s(row) <= 0.0:
                    answers[row] = answer
        return answers

    def _left_s(self, row: int) -> float:
        return self.budget.time_limit_s - self.rows[row].seconds

    def _present(self, asked: _Asked) -> frozenset[int]:
        """Features that may move a little, but must not go missing as the domain lets them."""
        if self.query.pricing is None:
            return frozenset()
        may_miss = self.query.pricing.types.may_miss
        return frozenset(feature for feature in asked.cells if may_miss[feature])

    def _query(self, rows: list[int], asked: list[_Asked], present: frozenset[int]) -> Query:
        """Questions about rows as one for an engine."""
        query = self.query.take(np.array(rows))
        free = np.array([one.free for one in asked])[:, self._place]
        reach, pricing = query.reach, query.pricing
        if pricing is None:
            low, high = (np.where(free, side, query.rows) for side in (reach.low, reach.high))
        else:
            low, high = pricing.low.copy(), pricing.high.copy()
        for place, (row, one) in enumerate(zip(rows, asked, strict=True)):
            for feature, cells in one.cells.items():
                low[place, feature], high[place, feature] = self._ends(row, feature, cells)
                free[place, feature] = True
        if pricing is None:
            return dataclasses.replace(query, reach=dataclasses.replace(reach, low=low, high=high))
        types = pricing.types
        if present:
            may_miss = types.may_miss.copy()
            may_miss[list(present)] = False
            types = dataclasses.replace(types, may_miss=may_miss)
        columns = [axis.columns[0] for axis in pricing.axes.axes]
        changed = dataclasses.replace(
            pricing, stays=~free[:, columns], low=low, high=high, types=types
        )
        return dataclasses.replace(query, pricing=changed)

    def _ends(self, row: int, feature: int, cells: tuple[int, int]) -> tuple[float, float]:
        """First and last number of some cells that the domain of a row holds."""
        cuts, source = cuts_of(self.query.ensemble).of(feature), self.query.pricing
        sides = self.query.reach if source is None else source
        low, high = float(sides.low[row, feature]), float(sides.high[row, feature])
        if cells[0] > self.first[row, feature]:
            low = float(cuts[cells[0] - 1])
        if cells[1] < self.last[row, feature]:
            real = np.dtype(self.query.ensemble.input_precision).type
            high = float(np.nextafter(real(cuts[cells[1]]), real(-np.inf)))
        return low, high

    def explain(self, number: int) -> _Search:
        """Find what is wanted about a row."""
        row, wanted = self.rows[number], self.wanted
        answer = yield from self._try(number, row.base)
        if answer.verdict != Verdict.VERIFIED:
            is_broken = answer.verdict == Verdict.FALSIFIED
            row.reason = NO_SET if is_broken else answer.reason
            return
        if wanted.minimum:
            yield from self._lighten(number)
        yield from self._more_sets(number)
        if wanted.n_changes:
            if wanted.minimum:
                yield from self._lightest_change(number)
            yield from self._more_changes(number)
        if wanted.intervals:
            for feature in self._widened(number):
                yield from self._widen(number, feature)

    def _try(self, number: int, free: Bools) -> _Trial:
        """Ask whether the claim holds while some units are free, and learn from the answer.

        Sound: with nothing free that moves only the row is left, which keeps its claim.
        """
        row = self.rows[number]
        answer = _Answer(Verdict.VERIFIED, "", row.values)
        if (free & self.moves[number]).any():
            answer = yield _Asked(free)
        if answer.verdict == Verdict.FALSIFIED:
            self._learn(number, answer)
        elif answer.verdict == Verdict.VERIFIED:
            yield from self._leave_out(number, free)
        return answer

    def _learn(self, number: int, answer: _Answer) -> None:
        """Remember a point that breaks the claim, with as few units changed as it goes."""
        row, point = self.rows[number], answer.point.copy()
        same = (point == row.values) | (np.isnan(point) & np.isnan(row.values))
        changed = np.zeros(len(self.units), dtype=bool)
        changed[self._place[~same]] = True
        for unit in np.flatnonzero(changed).tolist():
            columns, kept = list(self.units[unit]), point.copy()
            point[columns] = row.values[columns]
            if breaks(self.query, number, point):
                changed[unit] = False
            else:
                point = kept
        row.points.append(point)
        row.changed.append(changed)

    def _leave_out(self, number: int, free: Bools) -> _Search:
        """Free more units while the answer stays: many at once, fewer where that fails.

        Sound: freeing more units only enlarges the set, so that a unit without which a point broke
        the claim stays needed.
        """
        row = self.rows[number]
        held = [u for u in self.order if not free[u] and not self.always[u]]
        size = max(len(held) // 2, 1)
        while held:
            tried = free.copy()
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
            answer = yield _Asked(tried)
            if answer.verdict == Verdict.VERIFIED:
                free = tried
                held = [unit for unit in held if not tried[unit]]
                size = 2 * len(chosen)
                continue
            if answer.verdict == Verdict.FALSIFIED:
                self._learn(number, answer)
            elif len(chosen) == 1:
                row.reason = answer.reason
                held.remove(chosen[0])
            size = max(len(chosen) // 2, 1)
        row.sets.append(free)

    def _hit(
        self,
        number: int,
        sets: list[Bools],
        *,
        below: float = np.inf,
        forbidden: list[Bools] | None = None,
    ) -> tuple[bool, float, Bools]:
        """The lightest set of units that hits all sets; or any that holds none that is forbidden.

        Returns whether that is sure, the weight, infinite where there is none, and the units.
        """
        shape = -1, len(self.units)
        tables = [
            np.array(family, dtype=np.int64).reshape(shape) * self.any
            for family in (sets, forbidden or [])
        ]
        left_s = min(max(self._left_s(number), 0.0), 1e9)
        began = time.perf_counter()
        status, weight, members = hitting_set(
            tables[0], tables[1], self.weight, below, forbidden is not None, left_s
        )
        self.rows[number].seconds += time.perf_counter() - began
        return status == PROVED, weight, members == 1

    def _kept(self, number: int) -> list[Bools]:
        """Units that each sufficient set keeps."""
        return [~free for free in self.rows[number].sets]

    def _lightest(self, family: list[Bools]) -> tuple[int, float]:
        """Number and weight of the lightest of some sets of units; infinite without any."""
        weights = [float(self.weight[units & self.any].sum()) for units in family]
        best = int(np.argmin(weights)) if weights else -1
        return best, weights[best] if weights else np.inf

    def _lighten(self, number: int) -> _Search:
        """Make the first set the lightest.

        Sound: a sufficient set hits what every point changes, so no set is lighter than the
        lightest that does.
        """
        row = self.rows[number]
        while True:
            best, least = self._lightest(self._kept(number))
            is_sure, weight, members = self._hit(number, row.changed, below=least)
            if is_sure:
                row.lower = min(weight, least)
            if not is_sure or row.lower == least:
                break
            while True:
                free = (~members & ~self.always) | row.base
                answer = yield from self._try(number, free)
                if answer.verdict != Verdict.FALSIFIED:
                    break
                # Units that this point needs stay for now, so that the next one needs others.
                members = members | (row.changed[-1] & self.any)
            if answer.verdict != Verdict.VERIFIED:
                break
        row.sets.insert(0, row.sets.pop(best))

    def _more_sets(self, number: int) -> _Search:
        """Find further sets: what is freed from the start hits every set known."""
        row = self.rows[number]
        while len(row.sets) < self.wanted.n_sets:
            is_sure, weight, members = self._hit(number, self._kept(number), forbidden=row.changed)
            if not is_sure or weight == np.inf:
                row.is_complete = is_sure
                return
            answer = yield from self._try(number, members | row.base)
            if answer.verdict == Verdict.UNKNOWN:
                return

    def _lightest_change(self, number: int) -> _Search:
        """Find the lightest change, the first of all.

        Sound: units of every sufficient set must change, so no change is lighter than the lightest
        set that hits them all.
        """
        row = self.rows[number]
        while True:
            best, least = self._lightest(row.changed)
            is_sure, weight, members = self._hit(number, self._kept(number), below=least)
            if is_sure:
                row.change_lower = min(weight, least)
            if not is_sure or row.change_lower == least:
                break
            answer = yield from self._try(number, members | row.base)
            if answer.verdict == Verdict.UNKNOWN:
                break
        if best >= 0:
            yield from self._shrink(number, best)

    def _more_changes(self, number: int) -> _Search:
        """Find further minimal changes: what is kept from the start hits every change known."""
        row = self.rows[number]
        while len(row.changes) < self.wanted.n_changes:
            known = [row.changed[point] for point in row.changes]
            is_sure, weight, members = self._hit(number, known, forbidden=self._kept(number))
            if not is_sure or weight == np.inf:
                row.has_all_changes = is_sure
                return
            free = ~members | row.base
            point = row.known(free)
            if point < 0:
                answer = yield from self._try(number, free)
                if answer.verdict == Verdict.UNKNOWN:
                    return
                if answer.verdict == Verdict.VERIFIED:
                    continue
                point = len(row.points) - 1
            yield from self._shrink(number, point)

    def _shrink(self, number: int, point: int) -> _Search:
        """Find a change of which no unit is needless, from what a point changes."""
        row = self.rows[number]
        units, is_minimal = row.changed[point].copy(), True
        for unit in np.flatnonzero(units).tolist():
            if not units[unit]:
                continue
            fewer = units.copy()
            fewer[unit] = False
            found = row.known(fewer | row.base)
            if found < 0 and fewer.any():
                answer = yield _Asked(fewer | row.base)
                if answer.verdict == Verdict.FALSIFIED:
                    self._learn(number, answer)
                    found = len(row.points) - 1
                elif answer.verdict != Verdict.VERIFIED:
                    is_minimal = False
            if found >= 0:
                # Sound: a unit that a larger change could not do without, no smaller one can.
                point = found
                units = row.changed[point].copy()
        row.changes[point] = is_minimal

    def _widened(self, number: int) -> list[int]:
        """Features of the first set that are numbers, and move."""
        row, query = self.rows[number], self.query
        is_number = ~(np.isnan(row.values) | query.ensemble.is_categorical)
        if query.pricing is not None:
            axes = query.pricing.axes
            is_number &= (axes.kind == NUMERIC)[axes.axis_of]
        is_number &= ~row.sets[0][self._place] & (self.first <= self.last)[number]
        for feature in np.flatnonzero(is_number).tolist():
            home = self._cell(feature, row.values)
            row.cells[feature] = home, home
        return list(row.cells)

    def _cell(self, feature: int, point: FloatArray) -> int:
        cuts = cuts_of(self.query.ensemble).of(feature)
        return int(np.searchsorted(cuts, point[feature], side="right"))

    def _widen(self, number: int, feature: int) -> _Search:
        """Move both ends of a feature's cells as far out as nothing breaks the claim.

        Every point that stands in the way says how far an end can go at most, and shows that it can
        go no further; in between, halves of what is left are tried.
        """
        row = self.rows[number]
        for way in (-1, 1):
            end = int((self.first if way < 0 else self.last)[number, feature])
            is_first = True
            while True:
                here = row.cells[feature][way > 0]
                farthest = self._farthest(number, feature, way, end)
                if way * (farthest - here) <= 0:
                    break
                step = abs(farthest - here) if is_first else (abs(farthest - here) + 1) // 2
                is_first = False
                tried = row.cells | {feature: self._moved(number, feature, way, here + way * step)}
                answer = yield _Asked(row.sets[0], tried)
                if answer.verdict == Verdict.VERIFIED:
                    row.cells = tried
                elif answer.verdict == Verdict.FALSIFIED:
                    self._learn(number, answer)
                else:
                    row.is_widest = False
                    break

    def _moved(self, number: int, feature: int, way: int, end: int) -> tuple[int, int]:
        """Cells of a feature with one end elsewhere."""
        low, high = self.rows[number].cells[feature]
        return (end, high) if way < 0 else (low, end)

    def _farthest(self, number: int, feature: int, way: int, end: int) -> int:
        """How far an end can go before a point that breaks the claim is in the way."""
        row = self.rows[number]
        for point, changed in zip(row.points, row.changed, strict=True):
            held = changed & ~row.sets[0]
            others = [f for u in np.flatnonzero(held).tolist() for f in self.units[u]]
            cell = self._cell(feature, point)
            is_beyond = way * (cell - row.cells[feature][way > 0]) > 0
            if not is_beyond or np.isnan(point[feature]):
                continue
            is_in_way = all(
                other == feature
                or point[other] == row.values[other]
                or (np.isnan(point[other]) and np.isnan(row.values[other]))
                or (other in row.cells and self._holds(row.cells[other], other, point))
                for other in others
            )
            if is_in_way and way * (end - cell) >= 0:
                end = cell - way
        return end

    def _holds(self, cells: tuple[int, int], feature: int, point: FloatArray) -> bool:
        is_there = not np.isnan(point[feature])
        return bool(is_there and cells[0] <= self._cell(feature, point) <= cells[1])

    def _features(self, number: int, units: Bools) -> NDArray[np.int64]:
        """Features of some units, rising, but those that stay as they are in any case."""
        values, is_code = self.rows[number].values, self.query.ensemble.is_categorical
        stays = (np.isnan(values) | is_code) & (self.first > self.last)[number]
        return np.flatnonzero(units[self._place] & ~stays)

    def write(self, number: int, results: Reasons) -> None:
        """Write down what was found about a row."""
        row = self.rows[number]
        results.seconds[number] = row.seconds
        results.sufficient[number] = bool(row.sets)
        results.reason[number] = row.reason
        if not row.sets:
            return
        results.sets[number] = [self._features(number, ~free) for free in row.sets]
        features = results.features[number] = results.sets[number][0]
        points = np.full((len(features), len(row.values)), np.nan)
        shown = [self._needed(row, free) for free in row.sets]
        for place, unit in enumerate(self._place[features].tolist()):
            if shown[0][unit] >= 0:
                points[place] = row.points[shown[0][unit]]
        results.witnesses[number] = points
        are_minimal = [all(n >= 0 or self.always[u] for u, n in one.items()) for one in shown]
        results.minimal[number] = are_minimal[0]
        if are_minimal[0]:
            results.reason[number] = ""  # of a unit that was needed, as it turned out
        results.complete[number] = row.is_complete and all(are_minimal)
        results.size_lower_bound[number] = row.lower
        results.change_lower_bound[number] = row.change_lower
        results.changes[number] = [
            self._features(number, row.changed[point]) for point in row.changes
        ]
        results.change_rows[number] = np.array(
            [row.points[point] for point in row.changes]
        ).reshape(len(row.changes), len(row.values))
        results.changes_minimal[number] = all(row.changes.values())
        results.all_changes[number] = row.has_all_changes
        if results.intervals is not None:
            results.widest[number] = row.is_widest
            results.intervals[number] = np.array(
                [self._interval(number, feature) for feature in features.tolist()]
            ).reshape(len(features), 2)

    def _needed(self, row: _Row, free: Bools) -> dict[int, int]:
        """For each unit that a set keeps, a point that breaks the claim without it, or -1."""
        found = {}
        for unit in np.flatnonzero(~free).tolist():
            more = free.copy()
            more[unit] = True
            found[unit] = row.known(more)
        return found

    def _interval(self, number: int, feature: int) -> tuple[float, float]:
        """How far a feature may move; NaN for what keeps its value."""
        cells = self.rows[number].cells.get(feature)
        if cells is None:
            return np.nan, np.nan
        cuts, ends = cuts_of(self.query.ensemble).of(feature), [-np.inf, np.inf]
        if cells[0] > self.first[number, feature]:
            ends[0] = float(cuts[cells[0] - 1])
        if cells[1] < self.last[number, feature]:
            ends[1] = float(cuts[cells[1]])
        return ends[0], ends[1]


def units_of(query: Query, wanted: Wanted) -> list[tuple[int, ...]]:
    """Columns of every unit: what is wanted as one, joined where the domain has it as one."""
    units = wanted.members()
    if query.pricing is None:
        return units
    for axis in query.pricing.axes.axes:
        joined = [unit for unit in units if set(unit) & set(axis.columns)]
        if len(joined) > 1:
            units = [unit for unit in units if unit not in joined]
            units.append(tuple(sorted(column for unit in joined for column in unit)))
    return sorted(units)


def _reached(query: Query) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last cells (n_rows, n_features) that numbers can be in, the row's own included.

    Features that do not move have a first cell after the last one; choices that do move, 0 and 0.
    """
    shape, cuts = query.rows.shape, cuts_of(query.ensemble)
    first, last = np.ones(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    if query.pricing is None:
        stays = np.isnan(query.rows) | query.ensemble.is_categorical
        stays |= (query.reach.low == query.rows) & (query.reach.high == query.rows)
        for feature in range(shape[1]):
            ends = (side[:, feature] for side in (query.reach.low, query.reach.high))
            low, high = (np.searchsorted(cuts.of(feature), end, side="right") for end in ends)
            moves = ~stays[:, feature] & (low < high)
            first[moves, feature], last[moves, feature] = low[moves], high[moves]
        return first, last
    prices = query.pricing.prices()
    for number, axis in enumerate(prices.axes.axes):
        atoms = prices.axes.atoms_of(number)
        allowed = np.isfinite(prices.cost[:, atoms])
        np.put_along_axis(allowed, prices.home[:, [number]].astype(np.int64), True, axis=1)
        moves, columns = allowed.sum(axis=1) > 1, list(axis.columns)
        if axis.kind != NUMERIC:
            first[np.ix_(moves, columns)] = 0
            continue
        cells = allowed[:, : len(cuts.of(columns[0])) + 1]
        first[moves, columns[0]] = cells.argmax(axis=1)[moves]
        last[moves, columns[0]] = cells.shape[1] - 1 - cells[:, ::-1].argmax(axis=1)[moves]
    return first, last
