"""`hard_label`: the attack of Cheng et al. (2019), which only sees whether points break the claim.

The length of a direction is where the answer changes along it, found by halving; random differences
of that length lead to shorter directions.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget
from treeproof.engines.instance import distances
from treeproof.engines.outcomes import are_broken, record_witness
from treeproof.engines.restricted import Cells
from treeproof.engines.row_by_row import RowEngine, RowSearch
from treeproof.engines.spaces import rank_space
from treeproof.errors import check_integer
from treeproof.model import evaluate
from treeproof.model.ensemble import FloatArray
from treeproof.query.query import Query
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason

_FARTHEST = 1e30
"""Values beyond this are not tried in boxes without an end."""
_DIRECTIONS = 64
"""Random directions at each trial length before anything is broken."""
_DIFFERENCES = 20
"""Directions in one estimate of the slope."""
_HALVINGS = 14
"""Steps of the search along a direction."""
_SMOOTHING, _FIRST_STEP = 0.005, 0.2
_PATIENCE = 5
"""Estimates in a row without a better direction after which the attack starts anew."""


@dataclass(slots=True)
class Oracle(RowSearch):
    """Says which points around a row break the claim, and counts the questions."""

    values: FloatArray = field(init=False)  # (n_features,); the row
    scale: float = field(init=False)  # a length to begin with, from the row's own numbers
    _moves: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        """Missing and categorical entries never move."""
        self.values = self.query.rows[self.row]
        self._moves = ~np.isnan(self.values) & ~rank_space(self.query.ensemble).categorical
        finite = np.abs(self.values[np.isfinite(self.values)])
        self.scale = float(max(1e-3, min(finite.max(initial=0.0), 1e6)))

    @property
    def is_finished(self) -> bool:
        """Whether no more questions are allowed."""
        return self.limit is not UnknownReason.NONE

    def ask(self, points: FloatArray) -> NDArray[np.bool_]:
        """Whether each point breaks the claim; points beyond the limit are answered no."""
        broken = np.zeros(len(points), dtype=bool)
        asked, most = self.limits.nodes
        count = min(len(points), int(most - asked))
        if count > 0 and self.seconds_left > 0.0:
            self.limits.nodes[0] += count
            broken[:count] = are_broken(self.query, self.row, points[:count])
        return broken

    def points(self, directions: FloatArray, lengths: FloatArray) -> FloatArray:
        """Points at given lengths along directions, within the domain, in the input precision."""
        reach = self.query.reach
        rate = np.where(directions > 0.0, reach.up, reach.down)
        low, high = reach.low[self.row], reach.high[self.row]
        moved = self.values + lengths[:, np.newaxis] * directions * rate
        # A value outside the domain may stay, but what lies between the two is not allowed.
        moved = np.clip(moved, np.minimum(low, self.values), np.maximum(high, self.values))
        # No library reads a number that is beyond the precision of its inputs.
        deployed = self.query.deployed or self.query.ensemble
        most = float(np.finfo(deployed.input_precision).max)
        moved = np.where(np.isfinite(self.values), np.clip(moved, -most, most), moved)
        return self._cast(moved, low, high)

    def points_of_box(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Random points of a box; an infinite side is tried at random lengths from the row."""
        low, high = self.query.reach.low[self.row], self.query.reach.high[self.row]
        near = np.clip(np.where(np.isnan(self.values), 0.0, self.values), low, high)
        near = np.clip(near, -_FARTHEST, _FARTHEST)
        size = count, len(self.values)
        far = self.scale * 2.0 ** rng.uniform(-10.0, 10.0, size=size)
        least = np.where(np.isfinite(low), low, near - far)
        most = np.where(np.isfinite(high), high, near + far)
        least, most = np.maximum(least, -_FARTHEST), np.minimum(most, _FARTHEST)
        inside = least + rng.random(size) * (most - least)
        kind = rng.integers(4, size=size)
        mixed = np.choose(kind, [inside, least, most, np.broadcast_to(near, inside.shape)])
        half = np.arange(count)[:, np.newaxis] % 2 == 0
        return self._cast(np.clip(np.where(half, inside, mixed), low, high), low, high)

    def is_in_box(self, points: FloatArray) -> NDArray[np.bool_]:
        """Whether each point lies in the box; the row's own values may not."""
        low, high = self.query.reach.low[self.row], self.query.reach.high[self.row]
        return np.asarray(np.all(~self._moves | ((low <= points) & (points <= high)), axis=1))

    def _cast(self, points: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
        """Round to the input precision, towards the row where rounding would leave the bounds."""
        real = np.dtype(self.query.ensemble.input_precision).type
        cast: FloatArray = evaluate.cast_rows(self.query.ensemble, points)
        with np.errstate(over="ignore"):
            below = np.nextafter(cast.astype(real), real(-np.inf)).astype(np.float64)
            above = np.nextafter(cast.astype(real), real(np.inf)).astype(np.float64)
        cast = np.where(cast > high, below, np.where(cast < low, above, cast))
        # Bounds may hold no number of that precision; then the row's own value has to do.
        is_inside = self._moves & (low <= cast) & (cast <= high)
        return np.where(is_inside, cast, self.values)


@dataclass(frozen=True, slots=True)
class HardLabelEngine(RowEngine):
    """The engine 'hard_label': an attack that only asks for answers.

    To be passed as ``engine=``. It falsifies rows, and never proves them. The budget's nodes are
    queries, too.

    Parameters
    ----------
    queries : int
        How often the model is asked about a row, at most.
    random_state : int
        Seed of the random directions; equal seeds give equal answers.
    """

    queries: int = 20_000
    random_state: int = field(default=0, kw_only=True)

    name: ClassVar[str] = "hard_label"
    is_complete: ClassVar[bool] = False
    counted: ClassVar[tuple[str, ...]] = ("queries",)
    search_type: ClassVar[type[RowSearch]] = Oracle

    def __post_init__(self) -> None:
        """Refuse options that describe no attack."""
        check_integer("queries", self.queries, low=1, of="hard_label")
        check_integer("random_state", self.random_state, low=0, of="hard_label")

    def node_limit(self, budget: Budget) -> int:
        """Queries that a row may spend."""
        return min(int(self.queries), int(budget.node_limit))

    def decide_row(self, search: Any, cells: Cells) -> None:
        """Look for a violation in the query's own ball or box."""
        del cells
        reach, rng = search.query.reach, np.random.default_rng(self.random_state)
        if reach.is_ball:
            descent = _Descent(search, rng, good_enough=reach.radius or 0.0)
            descent.run()
            point = descent.point if descent.best <= descent.good_enough else None
        else:
            point = _sample_box(search, rng)
        if point is None or not search.falsify(point):
            search.reason = _reason(search)
            search.mark_unknown()

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Find a near violation of every row; the upper bound is its distance."""

        def solve(search: Oracle) -> None:
            descent = _Descent(search, np.random.default_rng(self.random_state))
            descent.run()
            row, outcomes = search.row, search.outcomes
            point = descent.point
            if point is not None and record_witness(query, outcomes, row, point):
                # Found, with no reason left: attacks prove nothing.
                outcomes.upper[row], outcomes.attained[row] = descent.best, True
            else:
                outcomes.reason[row] = _reason(search)

        return self.each_row(query, budget, n_jobs, solve)


def _reason(oracle: Oracle) -> UnknownReason:
    is_late = oracle.seconds_left <= 0.0
    return UnknownReason.TIME_LIMIT if is_late else UnknownReason.NO_WITNESS


def _sample_box(oracle: Oracle, rng: np.random.Generator) -> FloatArray | None:
    """A broken point of a box among random ones, half of them at its corners."""
    while not oracle.is_finished:
        points = oracle.points_of_box(rng, 4 * _DIRECTIONS)
        broken = np.flatnonzero(oracle.ask(points) & oracle.is_in_box(points))
        if broken.size:
            return np.array(points[broken[0]])
    return None


@dataclass(slots=True)
class _Descent:
    """The search over directions for one row."""

    oracle: Oracle
    rng: np.random.Generator
    good_enough: float = 0.0  # distance at which the search may end
    best: float = np.inf  # distance of the nearest broken point
    point: FloatArray | None = None  # that point, in the model's input precision
    _length: float = field(default=np.inf, init=False)

    @property
    def is_finished(self) -> bool:
        """Whether nothing more is wanted or allowed."""
        return self.best <= self.good_enough or self.oracle.is_finished

    def run(self) -> None:
        """Start and descend, again and again, until the questions are used up."""
        while not self.is_finished:
            direction = self._start()
            if direction is None:
                return
            self._descend(direction)

    def _start(self) -> FloatArray | None:
        """A direction along which the answer changes, among random ones of growing length."""
        for power in range(-10, 40):
            if self.oracle.is_finished:
                return None
            directions = self._random(_DIRECTIONS)
            length = self.oracle.scale * 2.0**power
            broken = self.oracle.ask(
                self.oracle.points(directions, np.full(len(directions), length))
            )
            if broken.any():
                lengths = self._lengths(directions[broken], np.full(int(broken.sum()), length))
                chosen = int(np.argmin(lengths))
                self._length = float(lengths[chosen])
                direction: FloatArray = directions[broken][chosen]
                return direction
        return None

    def _random(self, count: int) -> FloatArray:
        """Random directions of length 1 in L∞: normal ones, corners, and a few features only."""
        n_features = len(self.oracle.values)
        normal = self.rng.normal(size=(count, n_features))
        corners = np.sign(normal)
        few = corners * (self.rng.random((count, n_features)) < 2.0 / max(n_features, 2))
        kind = self.rng.integers(3, size=count)[:, np.newaxis]
        return _unit(np.where(kind == 0, normal, np.where(kind == 1, corners, few)))

    def _descend(self, direction: FloatArray) -> None:
        """Follow random differences of the length as long as they lead nearer."""
        step, failures = _FIRST_STEP, 0
        while not self.is_finished and failures < _PATIENCE:
            noise = _unit(self.rng.normal(size=(_DIFFERENCES, len(self.oracle.values))))
            nearby = _unit(direction + _SMOOTHING * noise)
            lengths = self._lengths(nearby, np.full(len(nearby), 1.2 * self._length))
            known = np.isfinite(lengths)
            slope = np.where(known, lengths, 1.2 * self._length) - self._length
            gradient = (slope[:, np.newaxis] * noise).mean(axis=0) / _SMOOTHING
            candidates = [nearby[int(np.argmin(lengths))]]
            size = float(np.abs(gradient).max())
            if size > 0.0:
                steps = step * 2.0 ** np.arange(-4.0, 5.0)
                candidates += list(_unit(direction - steps[:, np.newaxis] * gradient / size))
            ends = self._lengths(np.array(candidates), np.full(len(candidates), self._length))
            chosen = int(np.argmin(ends))
            if ends[chosen] < self._length:
                direction, self._length = candidates[chosen], float(ends[chosen])
                step, failures = (step if chosen == 0 else float(steps[chosen - 1])), 0
            else:
                step, failures = step / 4.0, failures + 1

    def _lengths(self, directions: FloatArray, most: FloatArray) -> FloatArray:
        """Length at which the answer changes along each direction; infinite where not within most.

        Every broken point on the way is a candidate for the best.
        """
        low, high = np.zeros(len(directions)), most.copy()
        points = self.oracle.points(directions, high)
        broken = self.oracle.ask(points)
        self._remember(points[broken])
        result = np.where(broken, high, np.inf)
        live = np.flatnonzero(broken)
        for _ in range(_HALVINGS):
            if live.size == 0 or self.oracle.is_finished:
                break
            middle = 0.5 * (low[live] + high[live])
            points = self.oracle.points(directions[live], middle)
            broken = self.oracle.ask(points)
            self._remember(points[broken])
            high[live] = np.where(broken, middle, high[live])
            low[live] = np.where(broken, low[live], middle)
        result[live] = high[live]
        return result

    def _remember(self, points: FloatArray) -> None:
        if len(points) == 0:
            return
        found = distances(self.oracle.query, np.full(len(points), self.oracle.row), points)
        nearest = int(np.argmin(found))
        if found[nearest] < self.best:
            self.best, self.point = float(found[nearest]), points[nearest].copy()


def _unit(directions: FloatArray) -> FloatArray:
    """Directions of length 1 in L∞; zero ones stay zero."""
    size = np.abs(directions).max(axis=-1, keepdims=True, initial=0.0)
    unit: NDArray[np.float64] = directions / np.where(size > 0.0, size, 1.0)
    return unit
