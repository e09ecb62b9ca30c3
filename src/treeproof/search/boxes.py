"""Boxes of values in which rules hold: tightened, and split at rules that a point breaks.

Questions with rules are asked without them, in a box. Where the answer obeys the rules, it is the
answer; otherwise the box is split at a rule that it breaks, and what no row within rules can have
is cut off. Sound: every point that obeys the rules lies in one of the parts.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from treeproof.engines.base import Budget
from treeproof.model.ensemble import FloatArray
from treeproof.query.rounding import round_down, round_up
from treeproof.query.rules import Comparison, Rule
from treeproof.results.verdict import UnknownReason

AT_ONCE = 16
"""Parts that are asked about together."""
MOST_PARTS = 2_000
"""Parts of a question, where no limit of nodes is given."""
_ROUNDS = 20
"""How often the ends of a box are tightened by all rules, at most."""


class Steps(NamedTuple):
    """Values that are apart: some listed ones, and all whole numbers or none."""

    listed: tuple[float, ...]  # in order
    has_whole: bool = False

    def floor(self, side: Fraction | float, *, is_strict: bool = False) -> float:
        """The largest value up to a number, or below it; a double that is not below that value."""
        find = bisect.bisect_left if is_strict else bisect.bisect_right
        count = find(self.listed, side)
        largest = self.listed[count - 1] if count else -math.inf
        if not self.has_whole or side in (math.inf, -math.inf):
            return max(largest, float(side)) if self.has_whole else largest
        whole = math.ceil(side) - 1 if is_strict else math.floor(side)
        return max(largest, round_up(Fraction(whole)))

    def ceil(self, side: Fraction | float, *, is_strict: bool = False) -> float:
        """The least value from a number on, or above it; a double that is not above that value."""
        mirrored = Steps(tuple(-value for value in reversed(self.listed)), self.has_whole)
        return -mirrored.floor(-side, is_strict=is_strict)


class Split(NamedTuple):
    """How a part was divided; parts in which no point obeys the rules are None."""

    children: list[Part | None]
    rule: Rule | None = None  # of which each child has one comparison to hold
    feature: int = -1  # or: this feature is at most `below`, or at least `above`
    below: float = math.nan
    above: float = math.nan


@dataclass(order=True, slots=True)
class Part:
    """A box of values, and comparisons that were chosen to hold in it."""

    bound: float  # what is sought in it is no less; the part with the least comes first
    number: int
    low: FloatArray = field(compare=False)
    high: FloatArray = field(compare=False)
    chosen: tuple[Comparison, ...] = field(compare=False, default=())
    proved: float = field(compare=False, default=-math.inf)  # the bound that was found in it
    is_impossible: bool = field(compare=False, default=False)  # known without any question
    split: Split | None = field(compare=False, default=None)

    @property
    def ends(self) -> dict[int, tuple[float, float]]:
        """Least and largest value of every feature that is bounded."""
        bounded = np.flatnonzero(np.isfinite(self.low) | np.isfinite(self.high))
        return {f: (float(self.low[f]), float(self.high[f])) for f in bounded.tolist()}


class BoxSearch(ABC):
    """One question while its box is split.

    Parameters
    ----------
    rules : sequence of Rule
        Rules about the values of points; none of their features is ever missing.
    steps : dict
        By feature of a rule, its values where these are apart, and None elsewhere.
    precision : str
        In which precision the values of points are.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        steps: Mapping[int, Steps | None],
        precision: str,
        budget: Budget,
    ) -> None:
        self.rules, self.steps = rules, steps
        self._real = np.dtype(precision).type
        self.budget = budget
        self.deadline = time.perf_counter() + budget.time_limit_s
        self.most_parts = min(int(budget.node_limit), MOST_PARTS)
        self.root: Part | None = None
        # Nothing that is sought is less than this.
        self.lower = math.inf
        self.reason = UnknownReason.NONE
        self._count = itertools.count()

    @abstractmethod
    def is_settled(self, bound: float) -> bool:
        """Whether nothing from a bound on matters any more."""

    @abstractmethod
    def ask(self, parts: list[Part]) -> list[Part]:
        """Ask about parts without rules; returns what they are split into."""

    def run(self, low: FloatArray, high: FloatArray, bound: float) -> None:
        """Split a box until nothing is left that matters; nothing in it is below the bound."""
        self.root = self.tightened(Part(bound, 0, low, high))
        parts = [] if self.root is None else [self.root]
        n_asked = 0
        while parts:
            if self.is_settled(parts[0].bound):
                break
            if time.perf_counter() >= self.deadline or n_asked >= self.most_parts:
                is_late = n_asked < self.most_parts
                self.reason = UnknownReason.TIME_LIMIT if is_late else UnknownReason.NODE_LIMIT
                break
            some = [heapq.heappop(parts) for _ in range(min(AT_ONCE, len(parts)))]
            n_asked += len(some)
            for part in self.ask(some):
                if self.is_settled(part.bound):
                    self.lower = min(self.lower, part.bound)
                else:
                    heapq.heappush(parts, part)
        self.lower = min([self.lower, *(part.bound for part in parts)])

    def broken_rule(self, point: FloatArray) -> int:
        """Number of the first rule that a point breaks; -1 where it obeys all."""
        for number, rule in enumerate(self.rules):
            if not rule.holds(point):
                return number
        return -1

    def split_at(self, part: Part, point: FloatArray, number: int) -> list[Part]:
        """Divide a part at a rule that a point of it breaks; returns the parts that are left.

        Nothing is divided where that is not possible: `part.split` is None then.
        """
        rule = self.rules[number]
        possible = [c for c in rule.either if _is_possible(c, part.low, part.high)]
        chosen = [c for c in rule.either if c in part.chosen]
        if len(possible) > 1 and not chosen:
            children = [
                self.tightened(Part(part.bound, 0, part.low, part.high, (*part.chosen, c)))
                for c in rule.either
            ]
            part.split = Split(children, rule=rule)
        else:
            best = self._farthest(part, point, (chosen or possible or list(rule.either))[0])
            if best is not None:
                part.split = self._halves(part, *best)
        return [] if part.split is None else [c for c in part.split.children if c is not None]

    def _farthest(
        self, part: Part, point: FloatArray, comparison: Comparison
    ) -> tuple[int, float] | None:
        """The feature that would have to move farthest for a comparison, and half the way."""
        excess = comparison.value(point)
        best: tuple[float, int, float] | None = None
        for feature, weight in comparison.weights:
            low, high, own = part.low[feature], part.high[feature], float(point[feature])
            if not low < high or (self.steps[feature] is None and not self._is_wide(low, high)):
                continue
            # Where the feature would have to be, if all others stayed.
            needed = min(max(own - float(excess / weight), low), high)
            width = abs(needed - own) * abs(float(weight))
            if best is None or width > best[0]:
                best = width, feature, own + (needed - own) / 2.0
        return None if best is None else best[1:]

    def _is_wide(self, low: float, high: float) -> bool:
        """Whether a number of the precision lies between two of them."""
        return float(np.nextafter(self._real(low), self._real(math.inf))) < high

    def _halves(self, part: Part, feature: int, middle: float) -> Split:
        low, high = float(part.low[feature]), float(part.high[feature])
        steps = self.steps[feature]
        if steps is not None:
            # Both parts have a value: the ends are allowed ones, and differ.
            below = min(max(steps.floor(middle), low), steps.floor(high, is_strict=True))
            above = steps.ceil(below, is_strict=True)
        else:
            below = above = float(self._real(middle))
            if not low < below < high and math.isfinite(low) and math.isfinite(high):
                below = above = float(self._real(low / 2.0 + high / 2.0))
                if not low < below < high:
                    below = above = float(np.nextafter(self._real(low), self._real(high)))
        most, least = part.high.copy(), part.low.copy()
        most[feature], least[feature] = below, above
        children = [
            self.tightened(Part(part.bound, 0, *ends, part.chosen))
            for ends in ((part.low, most), (least, part.high))
        ]
        return Split(children, feature=feature, below=below, above=above)

    def tightened(self, part: Part) -> Part | None:
        """The part with what no point within rules can have cut off; None where none is left."""
        low, high = part.low.copy(), part.high.copy()
        for _ in range(_ROUNDS):
            before = low.copy(), high.copy()
            for comparison in self._certain(part, low, high):
                if comparison is None or not self._tighten(comparison, low, high):
                    return None
            if np.array_equal(before[0], low) and np.array_equal(before[1], high):
                break
        return Part(part.bound, next(self._count), low, high, part.chosen)

    def _certain(self, part: Part, low: FloatArray, high: FloatArray) -> list[Comparison | None]:
        """Comparisons that must hold in a box; None among them where a rule cannot hold."""
        found = [c if _is_possible(c, low, high) else None for c in part.chosen]
        for rule in self.rules:
            possible = [c for c in rule.either if _is_possible(c, low, high)]
            if not possible:
                found.append(None)
            elif len(possible) == 1:
                found.append(possible[0])
        return found

    def _tighten(self, comparison: Comparison, low: FloatArray, high: FloatArray) -> bool:
        """Cut off values of features with which a comparison cannot hold; False if none is left."""
        ends = {f: float(low[f] if w > 0 else high[f]) for f, w in comparison.weights}
        for feature, weight in comparison.weights:
            others = [(f, w) for f, w in comparison.weights if f != feature]
            if any(math.isinf(ends[f]) for f, _ in others):
                continue
            rest = comparison.constant + sum(
                (w * Fraction(ends[f]) for f, w in others), Fraction(0)
            )
            side, steps = -rest / weight, self.steps[feature]
            # Rounded outwards: nothing that is allowed is cut off.
            if weight > 0:
                most = (
                    self._outwards(side, math.inf)
                    if steps is None
                    else steps.floor(side, is_strict=comparison.is_strict)
                )
                high[feature] = min(high[feature], most)
            else:
                least = (
                    self._outwards(side, -math.inf)
                    if steps is None
                    else steps.ceil(side, is_strict=comparison.is_strict)
                )
                low[feature] = max(low[feature], least)
            if low[feature] > high[feature]:
                return False
        return True

    def _outwards(self, side: Fraction, end: float) -> float:
        """The nearest number of the precision in a direction, or a number itself if it is one."""
        real = self._real
        value = round_up(side) if end > 0 else round_down(side)
        with np.errstate(over="ignore"):
            rounded = real(value)
        if (float(rounded) < value) if end > 0 else (float(rounded) > value):
            rounded = np.nextafter(rounded, real(end))
        return float(rounded)

    def repaired(
        self,
        point: FloatArray,
        cell_of: Callable[[int, float], tuple[float, float]],
        price_of: Callable[[int], Fraction],
    ) -> FloatArray | None:
        """The point with values moved within their cells until all rules hold; None if they do not.

        The cell of a feature's value is given by its ends, and cheap features move first.
        """
        point = point.copy()
        for rule in self.rules:
            if rule.holds(point):
                continue
            for comparison in rule.either:
                trial = self._pushed(point, comparison, cell_of, price_of)
                if rule.holds(trial):
                    point = trial
                    break
        return point if self.broken_rule(point) < 0 else None

    def _pushed(
        self,
        point: FloatArray,
        comparison: Comparison,
        cell_of: Callable[[int, float], tuple[float, float]],
        price_of: Callable[[int], Fraction],
    ) -> FloatArray:
        """The point with features moved within their cells until a comparison holds."""
        pushed = point.copy()
        order = sorted(comparison.weights, key=lambda pair: price_of(pair[0]) / abs(pair[1]))
        for feature, weight in order:
            excess = comparison.value(pushed)
            if excess < 0 or (excess == 0 and not comparison.is_strict):
                break
            least, most = cell_of(feature, float(point[feature]))
            target = Fraction(float(pushed[feature])) - excess / weight
            steps, away = self.steps[feature], -math.inf if weight > 0 else math.inf
            if steps is not None and steps.has_whole:
                whole = math.floor(target) if weight > 0 else math.ceil(target)
                value = float(whole)
                if comparison.is_strict and whole == target:
                    value += math.copysign(1.0, away)
            else:
                value = self._outwards(target, away)
                if comparison.is_strict and value == target:
                    value = float(np.nextafter(self._real(value), self._real(away)))
            pushed[feature] = min(max(value, least), most)
        return pushed


def _is_possible(comparison: Comparison, low: FloatArray, high: FloatArray) -> bool:
    """Whether a comparison holds somewhere in a box."""
    total = comparison.constant
    for feature, weight in comparison.weights:
        end = float(low[feature] if weight > 0 else high[feature])
        if math.isinf(end):
            return True
        total += weight * Fraction(end)
    return total < 0 or (total == 0 and not comparison.is_strict)
