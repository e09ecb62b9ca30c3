"""What changes cost and which are allowed, derived from the words of a question, in fractions.

An axis is a number, a category or a group of columns that is one choice. Its *atoms* are what the
model can tell apart there: cells of a number, a missing value, choices. Everything is worked out
from the question of the run; nothing of what evidence says about prices is taken over.
"""

import math
from bisect import bisect_left, bisect_right
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.checker import schema
from treeproof.checker.claims import require
from treeproof.checker.forest import Forest
from treeproof.checker.questions import Floats, Question, require_asked
from treeproof.checker.rules import read_rules
from treeproof.checker.witnesses import rounded_down

Values = tuple[float, ...]


class Axis(NamedTuple):
    """Columns that change together: one number or category, or the columns of a group."""

    columns: tuple[int, ...]
    is_choice: bool
    needs_one: bool = False  # of a group: exactly one column is 1


class Rates(NamedTuple):
    """What moving a feature costs: ``fixed + weight * distance / unit``; None: it must not move."""

    fixed: Fraction
    weight: Fraction
    unit: Fraction


class Tariff:
    """Prices of a question with costs, relative units or a domain.

    Bounds are those of a row: lows and highs by feature, and features whose own value must not
    stay, which it may otherwise do; None where the row must not change.
    """

    def __init__(self, question: Question, asked: Any, forest: Forest) -> None:
        self.question, self.forest, self.n = question, forest, question.n
        self.is_max = isinstance(asked, schema.LInf | schema.Box)
        self.power = 2 if isinstance(asked, schema.L2) else 1
        self.is_box = isinstance(asked, schema.Box)
        self.relative = bool(getattr(asked, "relative", False))
        domain = asked.domain or schema.Domain()
        self.integer, self.may_miss = set(domain.integer), set(domain.may_miss)
        self.may_fill = set(domain.may_fill)
        self.values = {f: sorted(set(map(float, numbers))) for f, numbers in domain.values}
        self.becomes = {f: _changes(codes) for f, codes in domain.categorical}
        self.axes = self._axes(domain)
        self.nodes = [self._nodes(axis) for axis in self.axes]
        self.table = self._table(getattr(asked, "table", ()))
        self.rules = read_rules(domain.rules, question.names, self.n)
        for feature in {feature for rule in self.rules for feature in rule.features}:
            is_choice = bool(forest.fixed[feature]) or feature in self.becomes
            is_plain = not is_choice and feature not in self.may_miss | self.may_fill
            require_asked(is_plain, "rules about numbers that do not go missing", feature)
        self.rates = [[self._rates(asked, f, up) for up in (False, True)] for f in range(self.n)]

    def _axes(self, domain: Any) -> list[Axis]:
        used: set[int] = set()
        groups = {}
        for columns, exactly in domain.groups:
            fits = bool(columns) and not used & set(columns) and len(set(columns)) == len(columns)
            require_asked(fits and max(columns) < self.n, "groups of different columns", columns)
            used |= set(columns)
            groups[columns[0]] = Axis(tuple(columns), is_choice=True, needs_one=exactly)
        axes = []
        for feature in range(self.n):
            if feature in groups:
                axes.append(groups[feature])
            elif feature not in used:
                is_choice = bool(self.forest.fixed[feature]) or feature in self.becomes
                axes.append(Axis((feature,), is_choice=is_choice))
        return axes

    def _nodes(self, axis: Axis) -> tuple[NDArray[np.intp], list[int]]:
        """Nodes that test an axis, and the place of its column that each tests."""
        feature = self.forest.trees.feature
        nodes = np.flatnonzero(np.isin(feature, axis.columns))
        return nodes, [axis.columns.index(f) for f in feature[nodes].tolist()]

    def _table(self, lines: Any) -> dict[tuple[tuple[int, ...], Values, Values], Fraction | None]:
        """Listed prices by columns and by values before and after; None: forbidden."""
        choices = {axis.columns for axis in self.axes if axis.is_choice}
        found = {}
        for columns, before, after, given in lines:
            key = tuple(columns), tuple(map(float, before)), tuple(map(float, after))
            price = float(given)
            fits = key[0] in choices and len(before) == len(after) == len(columns) and price >= 0.0
            require_asked(fits, "a table of prices >= 0 between choices", columns)
            found[key] = None if math.isinf(price) else Fraction(price)
        return found

    def _rates(self, asked: Any, feature: int, up: bool) -> Rates | None:
        question, zero, one = self.question, Fraction(0), Fraction(1)
        if self.is_box:
            return Rates(zero, zero, one)
        unit = (question.up if up else question.down)[feature]
        if isinstance(asked, schema.Cost):
            name = "up" if up else "down"
            weight = question.features(name, getattr(asked, name))[feature]
            fixed = question.features("fixed", asked.fixed)[feature]
            require_asked(weight >= 0.0 and fixed >= 0.0, "prices >= 0", (weight, fixed))
            if math.isinf(weight) or math.isinf(fixed) or unit == 0.0:
                return None
            return Rates(Fraction(fixed), Fraction(weight), one)
        scale = question.features("scale", 1.0 if asked.scale is None else asked.scale)[feature]
        multiple = question.features("side", asked.above if up else asked.below)[feature]
        if feature in question.frozen or scale == 0.0 or multiple == 0.0:
            return None
        if isinstance(asked, schema.L0):
            return Rates(1 / Fraction(scale), zero, one)
        return Rates(zero, one, Fraction(scale) * Fraction(multiple))

    def move(self, feature: int, own: float, end: Fraction, *, up: bool) -> Fraction | None:
        """Cost of moving a number up or down to an end; None where it must not move that way."""
        rates = self.rates[feature][up]
        if rates is None:
            return None
        is_relative = self.relative and not self.is_box
        if is_relative and (own == 0.0 or math.isinf(own)):
            return None
        cost = rates.fixed
        if rates.weight:
            if math.isinf(own):
                return None  # it is as far from all others
            unit = rates.unit * abs(Fraction(own)) if is_relative else rates.unit
            cost += rates.weight * abs(end - Fraction(own)) / unit
        return cost**self.power

    def one_unit(self, feature: int) -> Fraction | None:
        """Cost of a change without a distance: of the cheaper direction."""
        found = [
            rates.fixed + rates.weight / rates.unit
            for rates in self.rates[feature]
            if rates is not None
        ]
        return min(found) ** self.power if found else None

    def choice(self, axis: Axis, own: Values, new: Values, bounds: Any) -> Fraction | None:
        """Cost of another choice; None where the domain or the bounds do not allow it."""
        # A box need not hold the row, unless this must not change.
        if same_values(own, new) and (bounds is None or not self.is_box):
            must_leave = bounds is not None and any(c in bounds[2] for c in axis.columns)
            return None if must_leave else Fraction(0)
        if bounds is None:
            return None
        if len(axis.columns) == 1 and not axis.needs_one and not self._is_group(axis):
            cost = self._category(axis.columns[0], own[0], new[0])
        else:
            cost = self._group(axis, own, new, bounds)
        # A table says what a change costs that is allowed without it, too.
        is_listed = cost is not None and (axis.columns, own, new) in self.table
        return self.table[axis.columns, own, new] if is_listed else cost

    def _group(self, axis: Axis, own: Values, new: Values, bounds: Any) -> Fraction | None:
        ones = sum(value == 1.0 for value in new)
        known = all(value in (0.0, 1.0) for value in new)
        if not known or not int(axis.needs_one) <= ones <= 1:
            return None
        cost = Fraction(0)
        for column, before, after in zip(axis.columns, own, new, strict=True):
            if before == after and not self.is_box and column not in bounds[2]:
                continue
            low, high = bounds[0][column], bounds[1][column]
            if not low <= after <= high:
                return None
            rates = self.rates[column][after > before]
            if before == after:
                continue
            if rates is None:
                return None
            cost = max(cost, rates.fixed + rates.weight / rates.unit)
        return cost**self.power

    def is_group_column(self, feature: int) -> bool:
        """Whether a feature is a column of a group."""
        return any(feature in axis.columns and self._is_group(axis) for axis in self.axes)

    def _is_group(self, axis: Axis) -> bool:
        if not axis.is_choice:
            return False
        column = axis.columns[0]
        return not (self.forest.fixed[column] or column in self.becomes)

    def _category(self, feature: int, own: float, new: float) -> Fraction | None:
        if own == new or (math.isnan(own) and math.isnan(new)):
            return Fraction(0)
        allowed = self.becomes.get(feature)
        if math.isnan(new):
            return self.one_unit(feature) if feature in self.may_miss else None
        if allowed is None:
            return None
        if isinstance(allowed, dict):
            reachable = set(allowed) | {code for codes in allowed.values() for code in codes}
            codes = reachable if math.isnan(own) else allowed.get(own, ())
        else:
            codes = allowed
        if new not in codes or (math.isnan(own) and feature not in self.may_fill):
            return None
        return self.one_unit(feature)

    def choices(self, axis: Axis, own: Values) -> list[Values]:
        """All choices that there are, and the row's own."""
        found: list[Values] = [own]
        if len(axis.columns) > 1 or self._is_group(axis):
            size = len(axis.columns)
            found += [tuple(float(i == j) for j in range(size)) for i in range(size)]
            if not axis.needs_one:
                found.append((0.0,) * size)
        else:
            feature = axis.columns[0]
            allowed = self.becomes.get(feature, ())
            codes = set(allowed)
            if isinstance(allowed, dict):
                codes |= {code for after in allowed.values() for code in after}
            found += [(code,) for code in sorted(codes)]
            if feature in self.may_miss:
                found.append((math.nan,))
        return found

    def cell(self, feature: int, cell: int, own: float, bounds: Any) -> Fraction | None:
        """Least cost of the allowed numbers of a cell; None where there are none.

        Sound: a number is taken as allowed wherever the bounds and the domain allow a real one.
        """
        cuts = self.forest.cuts(feature)
        start = float(cuts[cell - 1]) if cell > 0 else -math.inf
        end = float(cuts[cell]) if cell < len(cuts) else math.inf
        # No threshold ends the last cell, which holds infinity, too.
        is_home = start <= own and (own < end or end == math.inf)
        if bounds is None:
            return Fraction(0) if is_home else None
        low, high = bounds[0][feature], bounds[1][feature]
        if is_home and not self.is_box and feature not in bounds[2]:
            return Fraction(0)
        if not start < end:
            return None
        least, most = max(start, low), min(end, high)
        if most == end and end < math.inf and not self.forest.ensemble.over_reals:
            most = math.nextafter(end, -math.inf)
        listed = self.values.get(feature)
        if listed is not None:
            inside = listed[bisect_left(listed, least) : bisect_right(listed, high)]
            inside = [value for value in inside if value < end]
            if not inside:
                return None
            least, most = inside[0], inside[-1]
        elif feature in self.integer:
            first = -math.inf if math.isinf(least) else math.ceil(least)
            last = math.inf if math.isinf(most) else math.floor(most)
            last = last - 1 if last >= end else last
            if first > last:
                return None
            least, most = first, last
        elif not (least < end and least <= high):
            return None
        if self.is_box and not math.isnan(own):
            return Fraction(0)
        if math.isnan(own):
            return self._filled(feature)
        up = least > own
        target = least if up else most
        return None if math.isinf(target) else self.move(feature, own, Fraction(target), up=up)

    def is_approached(self, feature: int, cell: int, own: float, bounds: Any) -> bool:
        """Whether the least cost of a cell is approached and not attained: it ends below own."""
        cuts, rates = self.forest.cuts(feature), self.rates[feature][False]
        if not self.forest.ensemble.over_reals:
            return False
        if self.is_box or feature in self.values or feature in self.integer or rates is None:
            return False
        if bounds is None:
            return False
        is_below = cell < len(cuts) and cuts[cell] <= min(own, bounds[1][feature])
        return bool(is_below and rates.weight > 0)

    def _filled(self, feature: int) -> Fraction | None:
        """Cost of a number in place of a missing value."""
        if feature not in self.may_fill:
            return None
        return Fraction(0) if self.is_box else self.one_unit(feature)

    def missing(self, feature: int, own: float, bounds: Any) -> Fraction | None:
        """Cost of a missing value."""
        if math.isnan(own):
            return Fraction(0)
        if bounds is None or feature not in self.may_miss:
            return None
        return Fraction(0) if self.is_box else self.one_unit(feature)

    def highest(self, own: Floats, bounds: Any) -> Fraction:
        """What the dearest row costs at most."""
        return self._add(
            [max(self._costs(axis, own, bounds), default=Fraction(0)) for axis in self.axes]
        )

    def least(self, own: Floats, bounds: Any) -> Fraction | None:
        """What the cheapest row costs at least; None where no row is allowed."""
        found = [self._costs(axis, own, bounds) for axis in self.axes]
        return self._add([min(costs) for costs in found]) if all(found) else None

    def _add(self, costs: list[Fraction]) -> Fraction:
        return max(costs, default=Fraction(0)) if self.is_max else sum(costs, Fraction(0))

    def _costs(self, axis: Axis, own: Floats, bounds: Any) -> list[Fraction]:
        """What the atoms of an axis cost that are allowed."""
        before = tuple(own[c] for c in axis.columns)
        if axis.is_choice:
            costs = [self.choice(axis, before, v, bounds) for v in self.choices(axis, before)]
        else:
            feature = axis.columns[0]
            cells = range(len(self.forest.cuts(feature)) + 1)
            costs = [self.cell(feature, cell, own[feature], bounds) for cell in cells]
            costs.append(self.missing(feature, own[feature], bounds))
        return [cost for cost in costs if cost is not None]

    def check_witness(
        self, own: Floats, point: Floats, bounds: Any
    ) -> tuple[Fraction, Fraction, bool]:
        """Cost of a point, the least cost of what it stands for, and whether some of that has it.

        Of a largest cost, axes that only approach theirs do not matter where it is smaller. Rejects
        what may not be.
        """
        total, least, limit = [Fraction(0)], [Fraction(0)], list(point)
        for axis in self.axes:
            before, after = (tuple(row[c] for c in axis.columns) for row in (own, point))
            if same_values(before, after) and (bounds is None or not self.is_box):
                continue
            name = f"witness: feature {axis.columns[0]}"
            require(bounds is not None, f"{name} must not change")
            if axis.is_choice:
                cost = nearest = self.choice(axis, before, after, bounds)
            else:
                feature = axis.columns[0]
                limit[feature] = self._threshold(feature, before[0], after[0], bounds)
                cost = self._number(feature, before[0], after[0], bounds)
                nearest = cost
                if limit[feature] != after[0] and not math.isnan(after[0]):
                    nearest = self.move(feature, before[0], Fraction(limit[feature]), up=False)
            require(cost is not None and nearest is not None, f"{name} must not change like that")
            if cost is not None and nearest is not None:
                total.append(cost)
                least.append(nearest)
        rules = [rule for rule in self.rules if rule.is_about(point)]
        require(
            all(rule.holds_between(point, point) for rule in rules), "witness: it breaks a rule"
        )
        # Numbers up to the threshold count where they obey the rules as the point does.
        obeys = all(rule.holds_between(point, limit) for rule in rules)
        if not obeys:
            least = total
        whole, counts = self._add(least), not self.is_max
        attains = all(c == n for c, n in zip(total, least, strict=True) if counts or n == whole)
        return self._add(total), whole, attains

    def _number(self, feature: int, own: float, new: float, bounds: Any) -> Fraction | None:
        """Cost of a number, or of a missing one."""
        if math.isnan(new):
            return self.missing(feature, own, bounds)
        # A box need not hold the row itself.
        stays = new == own and not self.is_box
        fits = bounds[0][feature] <= new <= bounds[1][feature] or stays
        fits &= math.isfinite(new)
        fits &= feature not in self.values or new in self.values[feature] or stays
        fits &= feature not in self.integer or new == math.floor(new) or stays
        if not fits:
            return None
        if math.isnan(own):
            return self._filled(feature)
        return Fraction(0) if self.is_box else self.move(feature, own, Fraction(new), up=new > own)

    def _threshold(self, feature: int, own: float, new: float, bounds: Any) -> float:
        """The threshold that a number which moved down is just below of; elsewhere the number."""
        if self.is_box or feature in self.values or feature in self.integer:
            return new
        if not self.forest.ensemble.over_reals:
            return new
        cuts = self.forest.cuts(feature)
        at = bisect_right(cuts, new)
        is_below = new < own and at < len(cuts) and cuts[at] <= bounds[1][feature]
        is_next = is_below and next_number(self.forest, new) == cuts[at]
        return float(cuts[at]) if is_next else new


def has_prices(asked: Any) -> bool:
    """Whether a question is about costs, relative units or a domain."""
    if isinstance(asked, schema.Box):
        return asked.domain is not None
    if isinstance(asked, schema.LInf):
        is_plain = asked.domain is None and not asked.relative
        return not is_plain or _has_rounded_rates(asked)
    return True


def _has_rounded_rates(asked: schema.LInf) -> bool:
    """Whether some product of a scale and a multiple of it is no double."""
    scale = 1.0 if asked.scale is None else asked.scale
    for side in (asked.below, asked.above):
        sides = [each if isinstance(each, list) else [each] for each in (scale, side)]
        n = max(map(len, sides))
        columns = [[*map(float, each * n if len(each) == 1 else each)] for each in sides]
        for one, other in zip(*columns, strict=False):
            if math.isfinite(one * other) and Fraction(one) * Fraction(other) != one * other:
                return True
    return False


def root(exact: Fraction, power: int, *, up: bool) -> float:
    """Smallest double not below, or largest not above, the root of a fraction."""
    # 64 bits of the root in whole numbers, which neither underflow nor overflow; cut off, so the
    # largest double not above them is the one not above the root, or the one before it.
    size = exact.numerator.bit_length() - exact.denominator.bit_length()
    shift = max(0, 64 - size // power)
    whole = (exact.numerator << power * shift) // exact.denominator
    found = rounded_down((math.isqrt(whole) if power == 2 else whole, 1 << shift))
    above = math.nextafter(found, math.inf)
    if math.isfinite(above) and Fraction(above) ** power <= exact:
        found, above = above, math.nextafter(above, math.inf)
    return above if up and Fraction(found) ** power != exact else found


def next_number(forest: Forest, value: float) -> float:
    """The next number of the model's input precision."""
    real = np.dtype(forest.ensemble.input_precision).type
    return float(np.nextafter(real(value), real(np.inf)))


def _changes(codes: Any) -> Any:
    """Codes that there are, or by code those that it may become."""
    if codes and isinstance(codes[0], list | tuple):
        return {float(code): [float(other) for other in after] for code, after in codes}
    return [float(code) for code in codes]


def same_values(one: Values, other: Values) -> bool:
    """Whether values are equal, or missing in both."""
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(one, other, strict=True))
