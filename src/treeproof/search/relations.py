"""Rules between features, for questions with prices: branching around any engine.

See `treeproof.search.boxes`. Sound: no violation in a part costs less than the engine's lower bound
for it, and every row that obeys the rules lies in one of the parts.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
import time
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

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
from treeproof.engines.priced_evidence import Division, within
from treeproof.model.ensemble import FloatArray
from treeproof.query.query import Query
from treeproof.query.rounding import double_below
from treeproof.query.rules import Rule
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict
from treeproof.search.boxes import BoxSearch, Part, Steps

_NEAR = 1.0 - 2.0**-40
"""What bounds may be apart and count as equal, relatively."""


def answer_within_rules(
    engine: Any,
    query: Query,
    budget: Budget,
    *,
    asks_radius: bool,
    n_jobs: int = 1,
    roots: dict[int, Part | None] | None = None,
) -> Results:
    """Answer a question whose domain has rules, with any engine that answers for prices.

    Where `roots` are given, the box of each row that was searched is added, as it was split.
    """

    def solve_row(row: int, results: Results) -> None:
        if is_broken_unchanged(query, row):
            mark_broken(query, results, row)
            return
        search = RuleSearch(engine, query.take(np.array([row])), budget, asks_radius=asks_radius)
        search.run(*search.ends(), 0.0)
        search.write(results, row, query, asks_radius)
        if roots is not None:
            roots[row] = search.root

    return for_each_row(query, n_jobs, solve_row)


def division_of(root: Part | None, rules: Sequence[Rule], lower: float) -> Division:
    """The parts in which a lower bound was proved, and the nodes of a proof around them."""
    nodes, ends = [b""], []
    pending = [root]
    while pending:
        part = pending.pop()
        if part is None:
            nodes[-1] += b"N"
        elif part.is_impossible:
            nodes[-1] += b"U"
        elif part.proved >= lower or part.split is None:
            ends.append(part.ends)
            nodes.append(b"")
        else:
            split = part.split
            if split.rule is not None:
                nodes[-1] += struct.pack("<cI", b"C", rules.index(split.rule))
            else:
                cut = split.feature, split.below, split.above
                nodes[-1] += struct.pack("<cidd", b"H", *cut)
            pending += reversed(split.children)
    return Division(nodes, ends)


class RuleSearch(BoxSearch):
    """One row while its box is split; bounds are costs, squared for L2."""

    def __init__(self, engine: Any, query: Query, budget: Budget, *, asks_radius: bool) -> None:
        pricing = query.pricing
        if pricing is None:
            raise ValueError("Rules are part of a domain.")
        self.engine, self.query, self.pricing = engine, query, pricing
        self.asks_radius = asks_radius
        self.best: FloatArray | None = None
        self.total: tuple[Fraction, bool] | None = None
        row = query.rows[0]
        # Sound: what is missing stays so, and nothing is said of rows that miss a feature.
        rules = [
            rule for rule in pricing.types.rules if not np.isnan(row[list(rule.features)]).any()
        ]
        steps = {f: self._steps_of(f) for rule in rules for f in rule.features}
        super().__init__(rules, steps, pricing.ensemble.input_precision, budget)

    def is_settled(self, bound: float) -> bool:
        """Whether nothing from a bound on matters any more."""
        if self.total is None:
            return False
        return not self.asks_radius or bound >= float(self.total[0]) * _NEAR

    def ask(self, parts: list[Part]) -> list[Part]:
        """Ask the engine about parts; returns what is left to ask."""
        for part in parts:
            part.is_impossible = not self._is_affordable(part)
        parts = [part for part in parts if not part.is_impossible]
        if not parts:
            return []
        found = self._answers(parts)
        left = []
        power = 2 if self.pricing.is_square else 1
        for number, part in enumerate(parts):
            lower = float(found.lower[number]) if self.asks_radius else 0.0
            is_safe = found.verdict[number] == Verdict.VERIFIED and not self.asks_radius
            part.proved = math.inf if is_safe else lower
            if math.isinf(part.proved):
                continue
            # Rounded down: squares of doubles are no doubles.
            bound = math.nextafter(lower**power, 0.0) if power == 2 else lower
            part.bound = max(part.bound, bound)
            is_found = np.isfinite(found.upper[number]) if self.asks_radius else True
            if not is_found or found.verdict[number] == Verdict.UNKNOWN:
                self.reason = found.reason[number] or UnknownReason.SOLVER_FAILED
            witness = found.witness[number]
            broken = self.broken_rule(witness) if is_found else -1
            if is_found:
                self._offer(witness)
            if broken >= 0:
                cell_of = functools.partial(self._cell, part)
                repaired = self.repaired(witness, cell_of, self._price_of)
                if repaired is not None:
                    self._offer(repaired)
                left += self.split_at(part, witness, broken)
            if part.split is None:
                if broken >= 0:
                    # No number lies between those at which the rule holds and breaks.
                    self.reason = self.reason or UnknownReason.RULE_TIE
                # The cheapest of this part, or all that there is to know about it.
                self.lower = min(self.lower, part.bound)
        return left

    def _is_affordable(self, part: Part) -> bool:
        """Whether the cheapest values of a box, claim or not, are allowed and within the budget.

        Sound: prices are rounded down, and their sum is exact.
        """
        prices = within(self.pricing, np.zeros(1, dtype=np.int64), [part.ends]).prices()
        axes = self.pricing.axes
        least = [prices.cost[0, axes.atoms_of(axis)].min() for axis in range(axes.n_axes)]
        if not np.isfinite(least).all():
            return False
        exact = [Fraction(float(cost)) for cost in least]
        total = max(exact) if self.pricing.total == "max" else sum(exact, Fraction(0))
        limit = None if self.asks_radius else self.pricing.limit
        return limit is None or total <= limit

    def _answers(self, parts: list[Part]) -> Results:
        """Answers without rules, in the boxes of parts."""
        same = np.zeros(len(parts), dtype=np.int64)
        pricing = within(self.pricing, same, [part.ends for part in parts])
        query = dataclasses.replace(self.query.take(same), pricing=pricing)
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
        total = (least, least != exact)
        if self.total is None or total < self.total:
            self.best, self.total = point.copy(), total

    def _cell(self, part: Part, feature: int, own: float) -> tuple[float, float]:
        """The values that a feature may move to within its cell; only its own where they are apart.

        Whole numbers move, and so do all that are not listed.
        """
        steps = self.steps[feature]
        if steps is not None and not steps.has_whole:
            return own, own
        cuts = self.pricing.axes.cuts.of(feature)
        cell = int(np.searchsorted(cuts, own, side="right"))
        real = np.dtype(self.pricing.ensemble.input_precision).type
        least = max(part.low[feature], cuts[cell - 1] if cell > 0 else -math.inf)
        before = np.nextafter(real(cuts[cell]), real(-np.inf)) if cell < len(cuts) else math.inf
        most = min(part.high[feature], float(before))
        if steps is not None:
            least, most = np.ceil(least), np.floor(most)
        return float(least), float(most)

    def _price_of(self, feature: int) -> Fraction:
        tariff = self.pricing.tariff
        multiple = float(max(tariff.below[feature], tariff.above[feature]))
        unit = multiple * float(tariff.scale[feature])
        weight = float(min(tariff.weight_down[feature], tariff.weight_up[feature]))
        return Fraction(10**9) if unit == 0.0 or math.isinf(weight) else Fraction(weight / unit)

    def _steps_of(self, feature: int) -> Steps | None:
        """The values of a feature, where these are apart; a row's own is always one of them."""
        types, own = self.pricing.types, float(self.query.rows[0, feature])
        axis = self.pricing.axes.axes[int(self.pricing.axes.axis_of[feature])]
        if axis.is_group or feature in types.values:
            listed = [0.0, 1.0] if axis.is_group else types.values[feature].tolist()
            return Steps(tuple(sorted({*listed, own})))
        return Steps((own,), has_whole=True) if types.integer[feature] else None

    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Between which values the features of rules lie; nothing is said of all others."""
        low, high = (np.full(len(self.query.rows[0]), end) for end in (-np.inf, np.inf))
        pricing = self.pricing
        for feature, steps in self.steps.items():
            own = self.query.rows[0, feature]
            ends = float(pricing.low[0, feature]), float(pricing.high[0, feature])
            if steps is not None:
                ends = steps.ceil(ends[0]), steps.floor(ends[1])
            if pricing.stays[0, pricing.axes.axis_of[feature]]:
                ends = own, own
            elif not pricing.is_box:
                # Values that do not change are allowed, whatever the bounds say.
                ends = min(ends[0], own), max(ends[1], own)
            low[feature], high[feature] = ends
        return low, high

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
            is_exact = Fraction(upper) ** power == total[0]
            results.attained[row] = is_exact and not total[1]
            lower = min(lower, upper)
            if not results.attained[row]:
                # Nothing is below the bound of a part, but that itself may be attained.
                lower = double_below(lower)
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
