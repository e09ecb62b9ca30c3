"""`smt`: exact decisions by an SMT solver (z3) in rational arithmetic.

Features are real numbers, thresholds, leaf values and floors are the exact rational values of their
doubles. z3's "unsat" proves the set. A point that it finds is replayed by the model's own
arithmetic; where that says no (the library's sums round), its leaves are excluded and z3 goes on.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from treeproof.engines.restricted import Cells, Restricted, restricted_to
from treeproof.engines.row_by_row import RowEngine
from treeproof.errors import require_backend
from treeproof.model.cuts import cuts_of
from treeproof.model.ensemble import IntArray
from treeproof.query.query import Query
from treeproof.results.verdict import UnknownReason, Verdict


@dataclass(frozen=True, slots=True)
class SmtEngine(RowEngine):
    """The engine 'smt': exact for small boxes; `unknown` when the budget runs out.

    To be passed as ``engine=``; it has no options. The budget's nodes are calls of z3.
    """

    name: ClassVar[str] = "smt"
    is_complete: ClassVar[bool] = True
    counted: ClassVar[tuple[str, ...]] = ("calls",)

    def __post_init__(self) -> None:
        """Name the package that brings the solver."""
        require_backend("z3", "smt")

    def decide(self, search: Any, constraints: range, cells: Cells) -> Verdict:
        """Ask z3 for violations until it says that there is none, or one is confirmed."""
        restricted = restricted_to(search.query, search.row, constraints, cells, fixes_label=True)
        if restricted.is_excluded_by_eq6():
            return Verdict.VERIFIED
        formula = _Formula(search.query, constraints, restricted)
        while search.spend():
            answer = formula.check(search.seconds_left)
            if answer == "unsat":
                return Verdict.VERIFIED
            if answer == "unknown":
                search.reason = formula.reason
                break
            point = formula.cells()
            if search.falsify_in((point, point)):
                return Verdict.FALSIFIED
            # Sound: the leaves fix the library's sums and its label, and those break nothing.
            formula.forbid(restricted.leaves_at(point))
        return Verdict.UNKNOWN


class _Formula:
    """A violation of one alternative in a box, as a formula for z3."""

    def __init__(self, query: Query, constraints: range, restricted: Restricted) -> None:
        import z3

        self._z3 = z3
        self._restricted = restricted
        self._cuts = cuts_of(query.ensemble)
        # Contexts of their own keep rows apart when they run in threads.
        self._context = z3.Context()
        self._solver = z3.Solver(ctx=self._context)
        self._solver.set("random_seed", 0)
        self._value: dict[int, Any] = {}
        self._condition = [self._leaf_condition(i) for i in range(len(restricted.leaf_row))]
        self._add_sums(query, constraints)
        self.reason = UnknownReason.NONE

    def check(self, seconds: float) -> str:
        """Return 'sat', 'unsat' or 'unknown'."""
        milliseconds = min(max(1, int(seconds * 1000.0)), 2**31) if np.isfinite(seconds) else 2**31
        self._solver.set("timeout", min(milliseconds, 2**32 - 2))
        answer = str(self._solver.check())
        if answer == "unknown":
            why = self._solver.reason_unknown()
            is_late = any(word in why for word in ("timeout", "canceled", "resource"))
            self.reason = UnknownReason.TIME_LIMIT if is_late else UnknownReason.SOLVER_FAILED
        return answer

    def cells(self) -> IntArray:
        """Cells of the point that z3 found."""
        model, restricted = self._solver.model(), self._restricted
        # Features that no leaf of the box tests may stay anywhere in it.
        least, most = restricted.cells
        cells = least.copy()
        for feature, variable in self._value.items():
            number = model.eval(variable, model_completion=True).as_fraction()
            cell = sum(1 for cut in self._cuts.of(feature) if _exact(cut) <= number)
            cells[feature] = min(max(cell, int(least[feature])), int(most[feature]))
        return cells

    def forbid(self, leaves: list[int]) -> None:
        """Exclude one combination of leaves."""
        z3 = self._z3
        always = z3.BoolVal(True, ctx=self._context)
        self._solver.add(z3.Not(z3.And(always, *(self._condition[leaf] for leaf in leaves))))

    def _number(self, value: Fraction) -> Any:
        return self._z3.Q(value.numerator, value.denominator, ctx=self._context)

    def _leaf_condition(self, leaf: int) -> Any:
        z3, leaves = self._z3, self._restricted.leaves
        least, most = self._restricted.cells
        tests = []
        for entry in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
            feature = int(leaves.feature[entry])
            value = self._value.setdefault(feature, z3.Real(f"x{feature}", ctx=self._context))
            cuts = self._cuts.of(feature)
            low, high = int(leaves.low[entry]), int(leaves.high[entry])
            if low > least[feature]:
                tests.append(value >= self._number(_exact(cuts[low - 1])))
            if high < most[feature]:
                tests.append(value < self._number(_exact(cuts[high])))
        return z3.And(tests) if tests else z3.BoolVal(True, ctx=self._context)

    def _add_sums(self, query: Query, constraints: range) -> None:
        """Every constraint: exact gains of the leaves add up to at least its floor."""
        z3, restricted = self._z3, self._restricted
        start = [Fraction(value) for value in query.ensemble.aggregation.start]
        for constraint, floor in zip(constraints, restricted.floor.tolist(), strict=True):
            if floor == -np.inf:
                continue
            weights = [Fraction(w) for w in query.alternatives.coefficient[constraint].tolist()]
            missing = Fraction(floor) - _dot(weights, start)
            terms = []
            for tree in range(restricted.n_trees):
                first, last = (int(i) for i in restricted.leaves.leaf_start[tree : tree + 2])
                if first == last:
                    continue
                gains = [
                    _gain(query, weights, tree, int(i)) for i in restricted.leaf_row[first:last]
                ]
                missing -= gains[-1]
                term = self._number(Fraction(0))
                for leaf, gain in zip(range(first, last - 1), gains[:-1], strict=True):
                    term = z3.If(self._condition[leaf], self._number(gain - gains[-1]), term)
                terms.append(term)
            total = z3.Sum(terms) if terms else self._number(Fraction(0))
            self._solver.add(total >= self._number(missing))


def _exact(cut: float) -> Fraction:
    """A threshold as a fraction; only the order counts, so infinite ones become larger than all."""
    return Fraction(float(cut)) if np.isfinite(cut) else Fraction(int(np.sign(cut)) * 2**1100)


def _gain(query: Query, weights: list[Fraction], tree: int, leaf_row: int) -> Fraction:
    """Exact gain of a leaf."""
    values = [Fraction(value) for value in query.ensemble.trees.leaf_value[leaf_row].tolist()]
    output = int(query.ensemble.trees.tree_output[tree])
    return _dot(weights, values) if output < 0 else weights[output] * values[0]


def _dot(left: list[Fraction], right: list[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))
