"""Relations between features: branching over the values of the features that rules are about.

Without its rules a question is answered by an engine, in a box of values around the row. Where that
answer obeys the rules, it is the answer; otherwise the box is split at a rule that it breaks, and
what no row within rules can have is cut off. Sound: every row that obeys the rules lies in one of
the parts, and no violation in a part costs less than the engine's lower bound for it.
"""

from __future__ import annotations

import bisect
import dataclasses
import heapq
import itertools
import math
import time
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from treeproof.engines.base import Budget, for_each_row
from treeproof.engines.outcomes import (
    is_broken_unchanged,
    mark_broken,
    mark_falsified,
    mark_unknown,
    mark_verified,
    record_witness,
)
from treeproof.model.ensemble import FloatArray
from treeproof.query.query import Query
from treeproof.query.rounding import round_down, round_up
from treeproof.query.rules import Comparison, Rule
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict

_AT_ONCE = 16
"""Parts that are asked about together."""
_MOST_PARTS = 2_000
"""Parts of a row, where no limit of nodes is given."""
_NEAR = 1.0 - 2.0**-40
"""What bounds may be apart and count as equal, relatively."""


@dataclass(order=True, slots=True)
class Part:
    """A box of values around a row, and comparisons that were chosen to hold in it."""

    bound: float  # no violation in it costs less; squared for L2
    number: int
    low: FloatArray = field(compare=False)
    high: FloatArray = field(compare=False)
    chosen: tuple[Comparison, ...] = field(compare=False, default=())


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


def answer_within_rules(
    engine: Any, query: Query, budget: Budget, *, asks_radius: bool, n_jobs: int = 1
) -> Results:
    """Answer a question whose domain has rules, with any engine that answers for prices."""

    def solve_row(row: int, results: Results) -> None:
        if is_broken_unchanged(query, row):
            mark_broken(query, results, row)
            return
        search = RuleSearch(engine, query.take(np.array([row])), budget)
        search.run(asks_radius)
        search.write(results, row, query, asks_radius)

    return for_each_row(query, n_jobs, solve_row)


class RuleSearch:
    """One row while its box is split."""

    def __init__(self, engine: Any, query: Query, budget: Budget) -> None:
        pricing = query.pricing
        if pricing is None:
            raise ValueError("Rules are part of a domain.")
        self.engine, self.query, self.pricing = engine, query, pricing
        self.rules: tuple[Rule, ...] = pricing.types.rules
        free = dataclasses.replace(pricing.types, rules=())
        self.relaxed = dataclasses.replace(pricing, types=free, binds_row=True)
        self.deadline = time.perf_counter() + budget.time_limit_s
        self.budget = budget
        self.most_parts = min(int(budget.node_limit), _MOST_PARTS)
        self.best: FloatArray | None = None
        self.total: tuple[Fraction, bool] | None = None
        # No violation costs less than this and what is still to be asked about; squared for L2.
        self.lower = math.inf
        self.reason = UnknownReason.NONE
        self._count = itertools.count()
        self._steps = {
            feature: self._steps_of(feature) for rule in self.rules for feature in rule.features
        }

    def run(self, asks_radius: bool) -> None:
        """Split until the cheapest violation within rules, or whether there is one, is known."""
        self.asks_radius = asks_radius
        parts = self._children(Part(0.0, 0, *self._ends()))
        n_asked = 0
        heapq.heapify(parts)
        while parts:
            if self._is_settled(parts[0].bound):
                break
            if time.perf_counter() >= self.deadline or n_asked >= self.most_parts:
                is_late = n_asked < self.most_parts
                self.reason = UnknownReason.TIME_LIMIT if is_late else UnknownReason.NODE_LIMIT
                break
            some = [heapq.heappop(parts) for _ in range(min(_AT_ONCE, len(parts)))]
            n_asked += len(some)
            for part in self._split(some):
                heapq.heappush(parts, part)
        self.lower = min([self.lower, *(part.bound for part in parts)])

    def _is_settled(self, bound: float) -> bool:
        """Whether nothing above a bound matters any more."""
        if self.total is None:
            return False
        return not self.asks_radius or bound >= float(self.total[0]) * _NEAR

    def _split(self, parts: list[Part]) -> list[Part]:
        """Ask the engine about parts; returns what is left to ask."""
        parts = [part for part in parts if self._is_affordable(part)]
        if not parts:
            return []
        found = self._ask(parts)
        left = []
        power = 2 if self.pricing.is_square else 1
        for number, part in enumerate(parts):
            lower = float(found.lower[number]) if self.asks_radius else 0.0
            is_safe = found.verdict[number] == Verdict.VERIFIED and not self.asks_radius
            if is_safe or math.isinf(lower):
                continue
            # Rounded down: squares of doubles are no doubles.
            bound = max(part.bound, math.nextafter(lower**power, 0.0) if power == 2 else lower)
            is_found = np.isfinite(found.upper[number]) if self.asks_radius else True
            if not is_found or found.verdict[number] == Verdict.UNKNOWN:
                self.reason = found.reason[number] or UnknownReason.SOLVER_FAILED
            witness = found.witness[number]
            broken = [rule for rule in self.rules if not rule.holds(witness)]
            if is_found:
                self._offer(witness)
            if is_found and broken:
                self._repair(part, witness)
                changed = dataclasses.replace(part, bound=bound)
                left += self._branch(changed, witness, broken[0])
            else:
                # The cheapest of this part, or all that there is to know about it.
                self.lower = min(self.lower, bound)
        for part in left:
            if self._is_settled(part.bound):
                self.lower = min(self.lower, part.bound)
        return [part for part in left if not self._is_settled(part.bound)]

    def _is_affordable(self, part: Part) -> bool:
        """Whether the cheapest values of a box, claim or not, are allowed and within the budget.

        Sound: prices are rounded down, and their sum is exact.
        """
        prices = dataclasses.replace(
            self.relaxed, low=part.low[np.newaxis], high=part.high[np.newaxis]
        ).prices()
        axes = self.pricing.axes
        least = [prices.cost[0, axes.atoms_of(axis)].min() for axis in range(axes.n_axes)]
        if not np.isfinite(least).all():
            return False
        exact = [Fraction(float(cost)) for cost in least]
        total = max(exact) if self.pricing.total == "max" else sum(exact, Fraction(0))
        limit = None if self.asks_radius else self.pricing.limit
        return limit is None or total <= limit

    def _ask(self, parts: list[Part]) -> Results:
        """Answers without rules, in the boxes of parts."""
        same = self.query.take(np.zeros(len(parts), dtype=np.int64))
        pricing = dataclasses.replace(
            self.relaxed.take(np.zeros(len(parts), dtype=np.int64)),
            low=np.array([part.low for part in parts]),
            high=np.array([part.high for part in parts]),
        )
        query = dataclasses.replace(same, pricing=pricing)
        left = max(self.deadline - time.perf_counter(), 1e-3)
        budget = dataclasses.replace(self.budget, time_limit_s=left)
        ask = self.engine.radius if self.asks_radius else self.engine.verify
        results: Results = ask(query, budget)
        return results

    def _offer(self, point: FloatArray) -> None:
        """Take a point for the best, if it is of the domain, breaks the claim and is cheaper."""
        if self.pricing.broken_rule(0, point) is not None:
            return
        if not self.query.is_broken_by(point[np.newaxis])[0]:
            return
        exact = self.pricing.exact_cost(0, point)
        if exact is None:
            return
        least = self.pricing.least_cost(0, point)
        # What a value just below a threshold stands for must obey the rules as well.
        total = (
            (least, least != exact)
            if self.pricing.obeys_at_thresholds(0, point)
            else (exact, False)
        )
        if self.total is None or total < self.total:
            self.best, self.total = point.copy(), total

    def _repair(self, part: Part, witness: FloatArray) -> None:
        """Move values within their cells until rules hold, cheapest features first."""
        point = witness.copy()
        for rule in self.rules:
            if rule.holds(point):
                continue
            for comparison in rule.either:
                trial = self._pushed(part, point, comparison)
                if rule.holds(trial):
                    point = trial
                    break
        if all(rule.holds(point) for rule in self.rules):
            self._offer(point)

    def _pushed(self, part: Part, point: FloatArray, comparison: Comparison) -> FloatArray:
        """The point with features moved within their cells until a comparison holds."""
        pushed = point.copy()
        order = sorted(comparison.weights, key=lambda pair: self._price_of(pair[0]) / abs(pair[1]))
        for feature, weight in order:
            excess = comparison.value(pushed)
            if excess < 0 or (excess == 0 and not comparison.is_strict):
                break
            axis = self.pricing.axes.axes[int(self.pricing.axes.axis_of[feature])]
            if axis.is_group or feature in self.pricing.types.values:
                continue
            target = Fraction(float(pushed[feature])) - excess / weight
            is_whole = bool(self.pricing.types.integer[feature])
            if weight > 0:
                value = float(math.floor(target)) if is_whole else round_down(target)
                value -= float(is_whole and comparison.is_strict and value == target)
            else:
                value = float(math.ceil(target)) if is_whole else round_up(target)
                value += float(is_whole and comparison.is_strict and value == target)
            pushed[feature] = self._in_cell(part, feature, point[feature], value)
        return pushed

    def _in_cell(self, part: Part, feature: int, own: float, value: float) -> float:
        """A value clipped to the cell of another one, and to bounds."""
        cuts = self.pricing.axes.cuts.of(feature)
        cell = int(np.searchsorted(cuts, own, side="right"))
        least = max(part.low[feature], cuts[cell - 1] if cell > 0 else -math.inf)
        before = np.nextafter(cuts[cell], -np.inf) if cell < len(cuts) else math.inf
        most = min(part.high[feature], float(before))
        if self.pricing.types.integer[feature]:
            least, most = np.ceil(least), np.floor(most)
        return float(min(max(value, least), most))

    def _price_of(self, feature: int) -> Fraction:
        tariff = self.pricing.tariff
        unit = float(max(tariff.unit_down[feature], tariff.unit_up[feature]))
        weight = float(min(tariff.weight_down[feature], tariff.weight_up[feature]))
        return Fraction(10**9) if unit == 0.0 or math.isinf(weight) else Fraction(weight / unit)

    def _branch(self, part: Part, witness: FloatArray, rule: Rule) -> list[Part]:
        """Split a part at a rule that the witness breaks."""
        open_sides = [c for c in rule.either if self._least(c, part.low, part.high) is not None]
        chosen = [c for c in rule.either if c in part.chosen]
        if len(open_sides) > 1 and not chosen:
            found = []
            for comparison in open_sides:
                found += self._children(
                    dataclasses.replace(part, chosen=(*part.chosen, comparison))
                )
            return found
        comparison = (chosen or open_sides or list(rule.either))[0]
        excess = comparison.value(witness)
        best: tuple[float, int, float] | None = None
        for feature, weight in comparison.weights:
            low, high, own = part.low[feature], part.high[feature], float(witness[feature])
            if not low < high:
                continue
            # Where the feature would have to be, if all others stayed.
            needed = own - float(excess / weight)
            needed = min(max(needed, low), high)
            width = abs(needed - own) * abs(float(weight))
            middle = own + (needed - own) / 2.0
            if best is None or width > best[0]:
                best = width, feature, middle
        if best is None:
            return []
        return self._halves(part, best[1], best[2])

    def _halves(self, part: Part, feature: int, middle: float) -> list[Part]:
        below, above = part.high.copy(), part.low.copy()
        steps = self._steps[feature]
        if steps is not None:
            # Both parts have a value: the ends are allowed ones, and differ.
            at = max(steps.floor(middle), float(part.low[feature]))
            at = min(at, steps.floor(float(part.high[feature]), is_strict=True))
            below[feature], above[feature] = at, steps.ceil(at, is_strict=True)
        else:
            if not part.low[feature] < middle < part.high[feature]:
                ends = [v for v in (part.low[feature], part.high[feature]) if math.isfinite(v)]
                middle = sum(ends) / len(ends) if len(ends) == 2 else middle
            below[feature] = above[feature] = middle
        return [
            child
            for low, high in ((part.low, below), (above, part.high))
            for child in self._children(dataclasses.replace(part, low=low, high=high))
        ]

    def _steps_of(self, feature: int) -> Steps | None:
        """The values of a feature, where these are apart; a row's own is always one of them."""
        types, own = self.pricing.types, float(self.query.rows[0, feature])
        axis = self.pricing.axes.axes[int(self.pricing.axes.axis_of[feature])]
        if math.isnan(own):
            return None
        if axis.is_group or feature in types.values:
            listed = [0.0, 1.0] if axis.is_group else types.values[feature].tolist()
            return Steps(tuple(sorted({*listed, own})))
        return Steps((own,), has_whole=True) if types.integer[feature] else None

    def _ends(self) -> tuple[FloatArray, FloatArray]:
        """Bounds of the row, tightened to values that there are."""
        low, high = self.pricing.low[0].copy(), self.pricing.high[0].copy()
        for feature, steps in self._steps.items():
            if steps is not None:
                low[feature] = steps.ceil(float(low[feature]))
                high[feature] = steps.floor(float(high[feature]))
        return low, high

    def _children(self, part: Part) -> list[Part]:
        """The part with what no row within rules can have cut off; nothing where none is left."""
        low, high = part.low.copy(), part.high.copy()
        for _ in range(20):
            before = low.copy(), high.copy()
            for comparison in self._certain(part, low, high):
                if comparison is None:
                    return []
                if not self._tighten(comparison, low, high):
                    return []
            if np.array_equal(before[0], low) and np.array_equal(before[1], high):
                break
        return [Part(part.bound, next(self._count), low, high, part.chosen)]

    def _certain(self, part: Part, low: FloatArray, high: FloatArray) -> list[Comparison | None]:
        """Comparisons that must hold in a box; None among them where a rule cannot hold."""
        found: list[Comparison | None] = list(part.chosen)
        for rule in self.rules:
            if any(np.isnan(self.query.rows[0, feature]) for feature in rule.features):
                continue
            possible = [c for c in rule.either if self._least(c, low, high) is not None]
            if not possible:
                found.append(None)
            elif len(possible) == 1:
                found.append(possible[0])
        return found

    def _least(self, comparison: Comparison, low: FloatArray, high: FloatArray) -> Fraction | None:
        """Least value of a comparison's left side in a box; None where it cannot hold there.

        Infinite ends give no bound: the least number that there is then.
        """
        total = comparison.constant
        for feature, weight in comparison.weights:
            end = float(low[feature] if weight > 0 else high[feature])
            if math.isinf(end):
                return Fraction(-(10**400))
            total += weight * Fraction(end)
        return total if total < 0 or (total == 0 and not comparison.is_strict) else None

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
            side = -rest / weight
            steps, is_strict = self._steps[feature], comparison.is_strict
            # Rounded outwards: nothing that is allowed is cut off.
            if weight > 0:
                most = round_up(side) if steps is None else steps.floor(side, is_strict=is_strict)
                high[feature] = min(high[feature], most)
            else:
                least = round_down(side) if steps is None else steps.ceil(side, is_strict=is_strict)
                low[feature] = max(low[feature], least)
            if low[feature] > high[feature]:
                return False
        return True

    def write(self, results: Results, row: int, query: Query, asks_radius: bool) -> None:
        """Write down what was found."""
        if not asks_radius:
            self._write_verdict(results, row, query)
            return
        pricing, total = self.pricing, self.total
        lower = self.lower
        if pricing.is_square and math.isfinite(lower):
            lower = max(math.nextafter(math.sqrt(lower), -math.inf), 0.0)
        if total is not None and self.best is not None:
            upper = pricing.rounded_down(total[0])
            record_witness(query, results, row, self.best)
            results.upper[row] = upper
            power = 2 if pricing.is_square else 1
            results.attained[row] = Fraction(upper) ** power == total[0] and not total[1]
            lower = min(lower, upper)
            results.exact[row] = lower >= upper * _NEAR
        else:
            results.exact[row] = math.isinf(lower)
        results.lower[row] = lower
        if results.exact[row]:
            results.verdict[row] = Verdict.VERIFIED
        else:
            results.reason[row] = self.reason or UnknownReason.NODE_LIMIT

    def _write_verdict(self, results: Results, row: int, query: Query) -> None:
        if self.best is not None and mark_falsified(query, results, row, self.best):
            return
        if math.isinf(self.lower):  # every part was proved
            mark_verified(query, results, row)
        else:
            mark_unknown(query, results, row, self.reason or UnknownReason.SOLVER_FAILED)
