"""`hard_label`: the attack of Cheng et al. (2019), which only asks the model for its answers.

Along a direction the distance at which the answer changes is a number that can be found by asking,
and the attack minimises it over directions by random differences. It sees neither trees nor
margins; it is the upper bound that the paper reports as Cheng's attack, here in L∞. What it
finds is a broken row, and the distance of that row is the upper bound.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget, for_each_row
from treeproof.engines.hard_label_questions import Oracle
from treeproof.engines.instance import distance
from treeproof.engines.settling import (
    is_broken_unchanged,
    settle_broken,
    settle_falsified,
    settle_unknown,
)
from treeproof.errors import InvalidInput
from treeproof.model.ensemble import FloatArray
from treeproof.query import Query
from treeproof.results.outcomes import Outcomes
from treeproof.results.verdict import UnknownReason

_DIRECTIONS = 64
"""Random directions at each trial length before anything is broken."""
_DIFFERENCES = 20
"""Directions in one estimate of the slope."""
_HALVINGS = 14
"""Steps of the search along a direction."""
_SMOOTHING, _FIRST_STEP = 0.005, 0.2
_PATIENCE = 5
"""Estimates in a row without a better direction after which the attack starts anew."""


@dataclass(frozen=True, slots=True)
class HardLabelEngine:
    """Query-only attack; falsifies rows, never proves them.

    The budget's nodes are queries, too.

    Parameters
    ----------
    queries : int
        How often the model is asked about a row, at most.
    random_state : int
        Seed of the random directions; equal seeds give equal answers.
    """

    queries: int = 20_000
    random_state: int = 0

    name: ClassVar[str] = "hard_label"
    is_complete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse options that describe no attack."""
        if isinstance(self.queries, bool) or int(self.queries) != self.queries or self.queries < 1:
            raise InvalidInput(
                f"'queries' of hard_label must be a whole number >= 1. Got {self.queries!r}."
            )
        if self.random_state < 0:
            raise InvalidInput(
                f"'random_state' of hard_label must be >= 0. Got {self.random_state!r}."
            )

    def refusal(self, query: Query) -> str | None:
        """Every question can be asked; rows without a violation stay unknown."""
        del query
        return None

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Outcomes:
        """Look for a violation in the query's own ball or box."""
        asked = np.zeros(len(query), dtype=np.int64)

        def solve_row(row: int, outcomes: Outcomes) -> None:
            if is_broken_unchanged(query, row):
                settle_broken(query, outcomes, row)
                return
            oracle = self._oracle(query, row, budget)
            rng = np.random.default_rng(self.random_state)
            if query.reach.is_ball:
                search = _Search(oracle, rng, good_enough=query.reach.radius or 0.0)
                search.run()
                point = search.point if search.best <= search.good_enough else None
            else:
                point = _sample_box(oracle, rng)
            asked[row] = oracle.asked
            if point is None or not settle_falsified(query, outcomes, row, point):
                settle_unknown(query, outcomes, row, _reason(oracle))

        outcomes = for_each_row(query, n_jobs, solve_row)
        outcomes.statistics["queries"] = asked
        return outcomes

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Outcomes:
        """Find a near violation of every row; the upper bound is its distance."""
        asked = np.zeros(len(query), dtype=np.int64)

        def solve_row(row: int, outcomes: Outcomes) -> None:
            if query.already_broken[row]:
                settle_broken(query, outcomes, row)
                return
            oracle = self._oracle(query, row, budget)
            search = _Search(oracle, np.random.default_rng(self.random_state))
            search.run()
            asked[row] = oracle.asked
            outcomes.reason[row] = _reason(oracle)
            if search.point is not None:
                outcomes.upper[row] = outcomes.witness_distance[row] = search.best
                outcomes.attained[row] = True
                outcomes.witness[row] = search.point
                outcomes.reason[row] = UnknownReason.NONE  # found; attacks prove nothing

        outcomes = for_each_row(query, n_jobs, solve_row)
        outcomes.statistics["queries"] = asked
        return outcomes

    def _oracle(self, query: Query, row: int, budget: Budget) -> Oracle:
        most = min(self.queries, budget.node_limit)
        return Oracle(query, row, most, budget.time_limit_s)


def _reason(oracle: Oracle) -> UnknownReason:
    return UnknownReason.TIME_LIMIT if oracle.is_late else UnknownReason.NO_WITNESS


def _sample_box(oracle: Oracle, rng: np.random.Generator) -> FloatArray | None:
    """A broken point of a box among random ones, half of them at its corners."""
    while not oracle.is_finished:
        points = oracle.points_of_box(rng, 4 * _DIRECTIONS)
        broken = np.flatnonzero(oracle.ask(points) & oracle.is_in_box(points))
        if broken.size:
            return np.array(points[broken[0]])
    return None


@dataclass(slots=True)
class _Search:
    """The search over directions for one row.

    Attributes
    ----------
    oracle : Oracle
        Answers, and counts the questions.
    rng : Generator
        Random directions.
    good_enough : float
        Distance at which the search may end.
    best : float
        Distance of the nearest broken point.
    point : float64 (n_features,) or None
        That point, in the model's input precision.
    """

    oracle: Oracle
    rng: np.random.Generator
    good_enough: float = 0.0
    best: float = np.inf
    point: FloatArray | None = None
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
        n_features = self.oracle.n_features
        normal = self.rng.normal(size=(count, n_features))
        corners = np.sign(normal)
        few = corners * (self.rng.random((count, n_features)) < 2.0 / max(n_features, 2))
        kind = self.rng.integers(3, size=count)[:, np.newaxis]
        return _unit(np.where(kind == 0, normal, np.where(kind == 1, corners, few)))

    def _descend(self, direction: FloatArray) -> None:
        """Follow random differences of the length as long as they lead nearer."""
        step, failures = _FIRST_STEP, 0
        while not self.is_finished and failures < _PATIENCE:
            noise = _unit(self.rng.normal(size=(_DIFFERENCES, self.oracle.n_features)))
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
        for point in points[self.oracle.is_nearer(points, self.best)]:
            found = distance(self.oracle.query, self.oracle.row, point)
            if found < self.best:
                self.best, self.point = found, np.array(point)


def _unit(directions: FloatArray) -> FloatArray:
    """Directions of length 1 in L∞; zero ones stay zero."""
    size = np.abs(directions).max(axis=-1, keepdims=True, initial=0.0)
    unit: NDArray[np.float64] = directions / np.where(size > 0.0, size, 1.0)
    return unit


def hard_label(queries: int = 20_000, *, random_state: int = 0) -> HardLabelEngine:
    """Options of the engine 'hard_label', to be passed as ``engine=``.

    Parameters
    ----------
    queries : int
        How often the model is asked about a row, at most.
    random_state : int
        Seed of the random directions; equal seeds give equal answers.

    Returns
    -------
    HardLabelEngine
        The engine with these options.
    """
    return HardLabelEngine(queries=queries, random_state=random_state)
