"""Tests of one column, and how they are pulled back through a fitted step.

A test of a column is a set of floats: those that go left. It is stored by the floats at which it
changes, so that exclusive or is a union of such lists, and a test of what a step gives becomes a
test of what the step takes, float by float: every change is found by bisection over the ordered
floats, through the fitted step itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import UnsupportedModel
from treeproof.model.ensemble import FloatArray

LARGEST = float(np.finfo(np.float64).max)
_CELLS = 1 << 21
"""Numbers that a step transforms in one call while splits are searched."""

_MOST_DOUBTFUL = 1 << 15
"""Floats around one split that may be tried one by one."""

_END_UNITS = 256.0
"""Distance from a cut, in units in the last place, that the end of a function's piece must have."""

_HUGE = 1e300
"""Cuts beyond only tell what is infinite, of which the last bits decide nothing."""

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
Apply = Callable[[NDArray[Any]], NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Sides:
    """Tests of one column, each a set of floats and what becomes of a missing value.

    Attributes
    ----------
    first : bool (n_tests,)
        Whether the lowest floats are in the set.
    missing : bool (n_tests,)
        Whether a missing value is.
    owner : int64 (n_changes,)
        Test of each change, rising.
    cut : float64 (n_changes,)
        Float from which on (inclusive) membership is the other way round, rising within a test.
    """

    first: BoolArray
    missing: BoolArray
    owner: IntArray
    cut: FloatArray

    @classmethod
    def of(cls, first: BoolArray, missing: BoolArray, owner: IntArray, cut: FloatArray) -> "Sides":
        """Tests from changes in any order; two at the same float undo each other."""
        cut = cut + 0.0  # minus zero is zero in every comparison
        order = np.lexsort((cut, owner))
        owner, cut = owner[order], cut[order]
        is_new = np.ones(len(cut), dtype=bool)
        is_new[1:] = (owner[1:] != owner[:-1]) | (cut[1:] != cut[:-1])
        starts = np.flatnonzero(is_new)
        odd = np.diff(np.append(starts, len(cut))) % 2 == 1
        return cls(first, missing, owner[starts[odd]], cut[starts[odd]])

    @classmethod
    def below(cls, cut: FloatArray, missing: BoolArray) -> "Sides":
        """The tests ``x < cut``; below minus infinity there is nothing."""
        some = np.flatnonzero(cut > -np.inf)
        return cls.of(cut > -np.inf, missing, some, cut[some])

    def at(self, value: float) -> BoolArray:
        """Whether each set holds a number: bool (n_tests,)."""
        passed = np.bincount(self.owner[self.cut <= value], minlength=len(self.first))
        return self.first ^ (passed % 2 == 1)

    def changes(self, test: int) -> FloatArray:
        """Where one test changes."""
        low, high = np.searchsorted(self.owner, [test, test + 1])
        return self.cut[low:high]

    def within(self, low: float, high: float) -> "Sides":
        """The same between two numbers (inclusive), without changes anywhere else."""
        inside = (self.cut > low) & (self.cut <= high)
        return Sides(self.at(low), self.missing, self.owner[inside], self.cut[inside])

    def where(self, chosen: BoolArray, other: "Sides") -> "Sides":
        """These tests, the chosen ones by exclusive or with a single other test."""
        picked = np.flatnonzero(chosen)
        return Sides.of(
            self.first ^ (chosen & bool(other.first[0])),
            self.missing,
            np.concatenate([self.owner, np.repeat(picked, len(other.cut))]),
            np.concatenate([self.cut, np.tile(other.cut, len(picked))]),
        )


def joined(parts: list[Sides]) -> Sides:
    """All tests of several lists, one after another."""
    sizes = np.cumsum([0, *(len(part.first) for part in parts)])
    return Sides(
        np.concatenate([part.first for part in parts]),
        np.concatenate([part.missing for part in parts]),
        np.concatenate([part.owner + start for part, start in zip(parts, sizes, strict=False)]),
        np.concatenate([part.cut for part in parts]),
    )


@dataclass(frozen=True, slots=True)
class Output:
    """A column that a step makes out of one of its own columns.

    Sound: within `low` and `high`, and between two neighbouring knots, what the step computes for
    the column never falls, never rises, or is NaN throughout, in floats. Who makes an `Output`
    says why.
    """

    source: int
    """Place among the columns that the step takes."""
    knots: FloatArray
    """First floats of the pieces after the first one, rising."""
    low: float = -LARGEST
    high: float = LARGEST
    """Numbers that the step accepts."""
    is_plain: bool = False
    """Whether every number is left as it is."""
    doubt: Callable[[FloatArray, FloatArray], FloatArray] | None = None
    """Where the column is monotone only up to the last bits of a function: by places and the cuts
    that it passes there, how many floats to either side may be on the wrong side of the cut."""


@dataclass(frozen=True, slots=True)
class Request:
    """Tests of an output, which become tests of the column behind it."""

    output: Output
    place: int
    """Place of the output among those of the step."""
    sides: Sides
    of_missing: float
    """What the step makes of a missing value; NaN where it stays missing."""


def pull_back(name: str, apply: Apply, base: NDArray[Any], requests: list[Request]) -> list[Sides]:
    """Tests of what a step takes, one for each test of what it gives.

    `apply` is the step's own transform, and `base` a row that it accepts.
    """
    search = _Search(name, apply, base)
    plain = [request.output.is_plain for request in requests]
    rising = iter(search.changes([request for request in requests if not request.output.is_plain]))
    pulled = []
    for request, is_plain in zip(requests, plain, strict=True):
        sides = request.sides
        missing = (
            sides.missing if np.isnan(request.of_missing) else sides.at(float(request.of_missing))
        )
        if is_plain:
            pulled.append(Sides(sides.first, missing, sides.owner, sides.cut))
        else:
            pulled.append(_composed(sides, missing, *next(rising)))
    return pulled


def _composed(
    sides: Sides, missing: BoolArray, cuts: FloatArray, reaches: Sides, is_missing: Sides
) -> Sides:
    """Tests of an output as tests of its source.

    `reaches` says for each of the rising `cuts` where the output is at least that large, and
    `is_missing` where it is NaN.
    """
    n_tests = len(sides.first)
    place = np.searchsorted(cuts, sides.cut)
    flips = np.bincount(sides.owner[reaches.first[place]], minlength=n_tests) % 2 == 1
    bounds = np.searchsorted(reaches.owner, np.arange(len(cuts) + 1))
    count = np.diff(bounds)[place]
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    composed = Sides.of(
        sides.first ^ flips,
        missing,
        np.repeat(sides.owner, count),
        reaches.cut[np.repeat(bounds[:-1][place], count) + within],
    )
    # Sound: NaN is not at least as large as any cut, so the tests say there what they say of the
    # lowest floats; where a missing value is on the other side, that is turned round.
    return composed.where(sides.missing != sides.first, is_missing)


class _Search:
    """Finds where what a step gives passes the cuts of its outputs."""

    def __init__(self, name: str, apply: Apply, base: NDArray[Any]) -> None:
        self._name, self._apply, self._base = name, apply, base

    def changes(self, requests: list[Request]) -> list[tuple[FloatArray, Sides, Sides]]:
        """For each request its cuts, where its output reaches them, and where it is NaN."""
        if not requests:
            return []
        pieces = [_pieces(request.output) for request in requests]
        cuts = [np.unique(request.sides.cut) for request in requests]
        low = self._values(requests, [piece[0] for piece in pieces])
        high = self._values(requests, [piece[1] for piece in pieces])
        reached: list[tuple[BoolArray, BoolArray]] = []
        tasks: list[tuple[IntArray, IntArray]] = []
        for number, (at_low, at_high) in enumerate(zip(low, high, strict=True)):
            self._require_pieces(at_low, at_high)
            is_low = at_low[:, None] >= cuts[number]
            is_high = at_high[:, None] >= cuts[number]
            piece, cut = np.nonzero(is_low != is_high)
            tasks.append((piece, cut))
            reached.append((is_low, is_high))
        found = self._bisect(requests, pieces, cuts, tasks, [part[0] for part in reached])
        self._resolve(requests, pieces, cuts, tasks, found, (low, high))
        results = []
        for number, (is_low, is_high) in enumerate(reached):
            starts, n_cuts = pieces[number][0], len(cuts[number])
            jump, owner = np.nonzero(is_low[1:] != is_high[:-1])
            nothing = np.zeros(n_cuts, dtype=bool)
            reaches = Sides.of(
                is_low[0] if n_cuts else nothing,
                nothing,
                np.concatenate([owner, tasks[number][1]]),
                np.concatenate([starts[1:][jump], found[number]]),
            )
            results.append((cuts[number], reaches, _missing_pieces(starts, low[number])))
        return results

    def _require_pieces(self, at_low: FloatArray, at_high: FloatArray) -> None:
        if np.any(np.isnan(at_low) != np.isnan(at_high)):
            raise UnsupportedModel(
                f"{self._name} gives NaN for some numbers and not for others in a way that is not"
                " understood. Fit it again, or leave it out."
            )

    def _resolve(
        self,
        requests: list[Request],
        pieces: list[tuple[FloatArray, FloatArray]],
        cuts: list[FloatArray],
        tasks: list[tuple[IntArray, IntArray]],
        found: list[FloatArray],
        ends: tuple[list[FloatArray], list[FloatArray]],
    ) -> None:
        """Put every change near those found in their place, where functions flicker."""
        doubtful = [k for k, request in enumerate(requests) if request.output.doubt is not None]
        ranks, changes = {}, {}
        for k in doubtful:
            self._require_sure_ends(cuts[k], ends[0][k], ends[1][k])
            piece, cut = tasks[k]
            reach = self._reach(requests[k], found[k], cuts[k][cut])
            size = 2 * reach + 1
            change = np.repeat(np.arange(len(reach)), size)
            within = np.arange(len(change)) - np.repeat(np.cumsum(size) - size, size)
            first, last = (_rank(end[piece])[change] for end in pieces[k])
            near = _rank(found[k])[change] + within - reach[change]
            ranks[k], changes[k] = np.clip(near, first, last), change
        points = [_number(ranks[k]) for k in doubtful]
        given = self._values([requests[k] for k in doubtful], points)
        for k, values in zip(doubtful, given, strict=True):
            (piece, cut), change = tasks[k], changes[k]
            is_reached = values >= cuts[k][cut][change]
            is_next = (is_reached[1:] != is_reached[:-1]) & (change[1:] == change[:-1])
            place = np.flatnonzero(is_next) + 1
            tasks[k] = piece[change[place]], cut[change[place]]
            found[k] = _number(ranks[k][place])

    def _require_sure_ends(self, cuts: FloatArray, low: FloatArray, high: FloatArray) -> None:
        """Refuse a cut that a function may or may not reach at the end of a piece."""
        cuts = cuts[np.abs(cuts) < _HUGE]
        for ends in (low, high):
            with np.errstate(all="ignore"):
                near = np.abs(ends[:, None] - cuts) <= _END_UNITS * np.spacing(np.abs(cuts))
            if np.any(near):
                raise self._too_flat(float(cuts[np.nonzero(near)[1][0]]))

    def _reach(self, request: Request, found: FloatArray, cut: FloatArray) -> IntArray:
        """How many floats to either side of each change found have to be tried."""
        if request.output.doubt is None or not len(found):
            return np.zeros(len(found), dtype=np.int64)
        floats = np.where(np.abs(cut) < _HUGE, request.output.doubt(found, cut), 0.0)
        floats = np.nan_to_num(floats, nan=np.inf)
        worst = int(np.argmax(floats))
        if floats[worst] > _MOST_DOUBTFUL:
            raise self._too_flat(float(cut[worst]))
        return np.ceil(floats).astype(np.int64) + 1

    def _too_flat(self, cut: float) -> UnsupportedModel:
        return UnsupportedModel(
            f"{self._name} is too flat where it passes {cut!r} for its splits to be found exactly:"
            " the rounding of its function decides there. Scale the column first, or leave the step"
            " out, since trees do not need it."
        )

    def _bisect(
        self,
        requests: list[Request],
        pieces: list[tuple[FloatArray, FloatArray]],
        cuts: list[FloatArray],
        tasks: list[tuple[IntArray, IntArray]],
        is_low: list[BoolArray],
    ) -> list[FloatArray]:
        """First float of each change inside a piece; the changes of all columns at once."""
        low = [_rank(pieces[k][0][piece]) for k, (piece, _) in enumerate(tasks)]
        high = [_rank(pieces[k][1][piece]) for k, (piece, _) in enumerate(tasks)]
        limit = [cuts[k][cut] for k, (_, cut) in enumerate(tasks)]
        start = [is_low[k][task] for k, task in enumerate(tasks)]
        while any(np.any(h != lo + 1) for lo, h in zip(low, high, strict=True)):
            # Halves first: sums and differences of two ranks may not fit.
            middle = [(lo >> 1) + (h >> 1) + (lo & h & 1) for lo, h in zip(low, high, strict=True)]
            values = self._values(requests, [_number(rank) for rank in middle])
            for k, rank in enumerate(middle):
                is_before = (values[k] >= limit[k]) == start[k]
                low[k] = np.where(is_before, rank, low[k])
                high[k] = np.where(is_before, high[k], rank)
        return [_number(rank) for rank in high]

    def _values(self, requests: list[Request], points: list[FloatArray]) -> list[FloatArray]:
        """What each request's output is at points of its own column."""
        results = [np.empty(len(part)) for part in points]
        # Outputs that share a column take turns; different columns share rows.
        turns: list[list[int]] = []
        taken: list[set[int]] = []
        for number, request in enumerate(requests):
            source = request.output.source
            turn = next((k for k, used in enumerate(taken) if source not in used), len(taken))
            if turn == len(taken):
                taken.append(set())
                turns.append([])
            taken[turn].add(source)
            turns[turn].append(number)
        for numbers in turns:
            self._fill(requests, points, numbers, results)
        return results

    def _fill(
        self,
        requests: list[Request],
        points: list[FloatArray],
        numbers: list[int],
        results: list[FloatArray],
    ) -> None:
        n_rows = max(len(points[number]) for number in numbers)
        step = max(1, _CELLS // max(len(self._base), 1))
        for first in range(0, n_rows, step):
            part = slice(first, first + step)
            rows = np.tile(self._base, (min(step, n_rows - first), 1))
            for number in numbers:
                chosen = points[number][part]
                rows[: len(chosen), requests[number].output.source] = chosen
            try:
                given = self._apply(rows)
            except (ValueError, TypeError) as error:
                raise UnsupportedModel(
                    f"{self._name} must accept every number, so that its splits can be found."
                    f" Got {str(error).splitlines()[0][:120]!r}. Let an encoder ignore unknown"
                    " categories, and all steps compute in float64."
                ) from error
            for number in numbers:
                n = len(points[number][part])
                results[number][part] = given[:n, requests[number].place]


def _pieces(output: Output) -> tuple[FloatArray, FloatArray]:
    """First and last float of every piece."""
    knots = np.unique(output.knots + 0.0)
    knots = knots[(knots > output.low) & (knots <= output.high)]
    return (
        np.concatenate([[output.low], knots]),
        np.concatenate([np.nextafter(knots, -np.inf), [output.high]]),
    )


def _missing_pieces(starts: FloatArray, at_low: FloatArray) -> Sides:
    is_nan = np.isnan(at_low)
    jump = np.flatnonzero(is_nan[1:] != is_nan[:-1])
    none = np.zeros(1, dtype=bool)
    return Sides.of(is_nan[:1], none, np.zeros(len(jump), dtype=np.int64), starts[1:][jump])


def _rank(values: FloatArray) -> IntArray:
    """Whole numbers in the order of the floats; both zeros have rank 0."""
    return np.where(values < 0.0, -1, 1) * np.abs(values).view(np.int64)


def _number(rank: IntArray) -> FloatArray:
    return np.copysign(np.abs(rank).view(np.float64), np.where(rank < 0, -1.0, 1.0))
