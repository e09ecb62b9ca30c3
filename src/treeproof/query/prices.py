"""What changes cost: `Pricing` for all rows of a question, `Prices` of the atoms of some rows.

A feature that moves by d costs ``fixed + weight * d / unit``, squared for L2; another choice counts
as a move by 1, or costs what a table says. The cost of a point is the sum over its axes, for L∞ the
maximum. All numbers are doubles with an exact meaning: `Pricing.exact_cost` computes in fractions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InternalError, InvalidInput
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.query.axes import NUMERIC, Axes
from treeproof.query.description import plain
from treeproof.query.domain import ColumnTypes, feature_name
from treeproof.query.rounding import (
    product_rounded_down,
    quotient_rounded_down,
    root_rounded_up,
    round_down,
    round_up,
    sum_rounded_down,
)
from treeproof.query.rules import refuse_broken_rules

Bools = NDArray[np.bool_]

_AT_ONCE = 1 << 17
"""Cells of rows that are priced together: arrays of so many stay in caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of the atoms of some rows; see `Axes` for the numbers of atoms.

    Attributes
    ----------
    cost : float64 (n_rows, n_atoms)
        Least cost of an allowed value of the atom, rounded down to a double; squared for L2.
        Infinite where no value is allowed. The budget is not looked at.
    is_exact : bool (n_rows, n_atoms)
        Whether the least cost is that double exactly.
    is_open : bool (n_rows, n_atoms)
        Whether the least cost is only approached: the move is downwards, to below a threshold.
    value : float64 (n_rows, n_atoms)
        Of numeric axes: the cheapest value of the atom in the input precision of the model, NaN
        where it is missing. Unused at other axes, whose atoms are choices.
    home : int32 (n_rows, n_axes)
        The row's own atom.
    """

    axes: Axes
    rows: FloatArray
    cost: FloatArray
    is_exact: Bools
    is_open: Bools
    value: FloatArray
    home: NDArray[np.int32]

    @property
    def is_beyond(self) -> Bools:
        """Whether a budget of just `cost` does not reach the atom, but every larger double does."""
        return self.is_open | ~self.is_exact

    def grid(self, row: int) -> float:
        """A power of two that divides every finite price of a row exactly; 0 where there is none.

        Costs that are sums of such prices and differ then differ by as much, and have no rounding.
        """
        finite = np.isfinite(self.cost[row])
        costs = self.cost[row][finite]
        if not self.is_exact[row][finite].all():
            return 0.0
        costs = costs[costs > 0.0]
        mantissa, exponent = np.frexp(costs)
        whole = (mantissa * 2.0**53).astype(np.int64)
        lowest = np.ldexp((whole & -whole).astype(np.float64), exponent - 53)
        grid = float(lowest.min()) if len(lowest) else 1.0
        return grid if float(costs.max(initial=0.0)) * self.axes.n_axes < grid * 2.0**52 else 0.0

    def point(self, row: int, atoms: NDArray[np.integer[Any]]) -> FloatArray:
        """The cheapest row at atoms (n_axes,), each counted from the first of its axis."""
        point = self.rows[row].copy()
        for number, atom in enumerate(atoms.tolist()):
            axis = self.axes.axes[number]
            if axis.kind == NUMERIC:
                place = int(self.axes.atom_start[number]) + atom
                point[axis.columns[0]] = self.value[row, place]
            elif atom != self.home[row, number]:
                point[list(axis.columns)] = axis.choices[atom]
        return point


class Tariff(NamedTuple):
    """What moving a feature costs: ``fixed + weight * distance / unit``; float64 (n_features,).

    The unit of a direction is the exact product of the scale and the multiple of that direction. A
    unit of 0 forbids the direction, an infinite weight or charge too.
    """

    fixed: FloatArray
    weight_down: FloatArray
    weight_up: FloatArray
    below: FloatArray
    above: FloatArray
    scale: FloatArray
    is_count: bool = False  # any change counts as a move by 1, however far it goes

    def allows(self, feature: int, *, up: bool) -> bool:
        """Whether a feature may move up or down."""
        multiple, weight = (self.above, self.weight_up) if up else (self.below, self.weight_down)
        return bool(
            multiple[feature] > 0.0
            and self.scale[feature] > 0.0
            and np.isfinite(weight[feature])
            and np.isfinite(self.fixed[feature])
        )

    def is_free_of_distance(self, feature: int, *, up: bool) -> bool:
        """Whether a change costs the same however far it goes."""
        return self.is_count or bool((self.weight_up if up else self.weight_down)[feature] == 0.0)


class ChoiceTable(NamedTuple):
    """Prices between the atoms of a choice, from rows to columns; before squaring."""

    cost: FloatArray  # (n_atoms, n_atoms), rounded down; infinite where it is not allowed
    is_exact: Bools  # (n_atoms, n_atoms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """What changes of the rows of a question cost, and which are allowed.

    Attributes
    ----------
    total : {"sum", "max"}
        How prices of axes add up.
    is_square : bool
        Prices are squares, and the root of their sum is the cost (L2).
    budget : float or None
        Largest cost that is allowed, as the user gave it; None where the least one is asked for.
    low, high : float64 (n_rows, n_features)
        Bounds of values, in the input precision of the model.
    is_relative : bool
        Units of numbers are multiples of the row's own absolute value.
    tables : dict of int to ChoiceTable
        Prices of the axes that are choices.
    listed : dict of int to dict of (int, int) to float
        By axis, what a cost table lists: prices from an atom to another.
    stays : bool (n_rows, n_axes)
        Axes of rows that do not change at all; the row's own values are allowed there.
    leaves : bool (n_rows, n_features)
        Features whose own value must not stay, since a part of the set is asked about in which it
        is not; it otherwise stays allowed, within bounds or not.
    is_box : bool
        There is no cost: what lies within bounds is free, and the row itself need not be allowed.
    others : tuple of Pricing
        Other costs of the same atoms, each with a budget that changes must keep to as well.
    """

    ensemble: Ensemble
    axes: Axes
    types: ColumnTypes
    rows: FloatArray
    total: Literal["sum", "max"]
    is_square: bool
    is_box: bool
    budget: float | None
    low: FloatArray
    high: FloatArray
    tariff: Tariff
    is_relative: bool
    tables: dict[int, ChoiceTable]
    listed: dict[int, dict[tuple[int, int], float]]
    stays: Bools
    leaves: Bools
    others: tuple[Pricing, ...] = ()

    def words(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Domain and cost table as plain data, where a description of the perturbation has them.

        A line of the table has the features of an axis, their values before and after, the price.
        """
        found: dict[str, Any] = {}
        if "domain" in said:
            found["domain"] = self.types.words()
        if "table" in said:
            found["table"] = [
                [list(axis.columns), *(axis.choices[atom].tolist() for atom in pair), plain(price)]
                for number, prices in self.listed.items()
                for pair, price in prices.items()
                for axis in (self.axes.axes[number],)
            ]
        return found

    def take(self, selection: Any) -> Pricing:
        """Return the same for a selection of the rows."""
        return replace(
            self,
            rows=self.rows[selection],
            low=self.low[selection],
            high=self.high[selection],
            stays=self.stays[selection],
            leaves=self.leaves[selection],
            others=tuple(other.take(selection) for other in self.others),
        )

    @property
    def limit(self) -> Fraction | None:
        """The budget in units of the prices, exactly; None where there is none."""
        if self.budget is None or math.isinf(self.budget):
            return None
        return Fraction(self.budget) ** (2 if self.is_square else 1)

    def prices(self, selection: Any = slice(None)) -> Prices:
        """Prices of the atoms of a selection of the rows."""
        part, axes = self.take(selection), self.axes
        shape = len(part.rows), axes.n_atoms
        cost, value = np.full(shape, np.inf), np.full(shape, np.nan)
        is_exact, is_open = np.ones(shape, dtype=bool), np.zeros(shape, dtype=bool)
        home = np.empty((len(part.rows), axes.n_axes), dtype=np.int32)
        home[:, axes.cells.axis] = axes.cells.homes(part.rows)
        step = max(_AT_ONCE // max(len(axes.cells.atom), 1), 1)
        for first in range(0, len(part.rows), step):
            rows = slice(first, first + step)
            found = _cell_prices(part.take(rows), home[rows, axes.cells.axis])
            for table, prices in zip((cost, is_exact, is_open, value), found, strict=True):
                table[rows, axes.cells.atom] = prices
        self._price_missing(part, cost, is_exact)
        for number, choices in self.tables.items():
            atoms = axes.atoms_of(number)
            own = axes.atom_of(number, part.rows[:, list(axes.axes[number].columns)])
            home[:, number] = own
            is_inside = _within_bounds(part, number, own)
            cost[:, atoms] = np.where(is_inside, choices.cost[own], np.inf)
            is_exact[:, atoms] = choices.is_exact[own]
        if self.is_square:
            cost, is_exact = product_rounded_down(cost, cost, is_exact)
        if part.stays.any():
            cost[np.repeat(part.stays, np.diff(axes.atom_start), axis=1)] = np.inf
            row, kept = np.nonzero(part.stays)
            place = home[row, kept] + axes.atom_start[kept]
            is_out = np.zeros(part.stays.shape, dtype=bool)
            outside = np.nonzero(part.leaves)
            is_out[outside[0], axes.axis_of[outside[1]]] = True
            cost[row, place] = np.where(is_out[row, kept], np.inf, 0.0)
            is_exact[row, place], is_open[row, place] = True, False
            column = np.array([axis.columns[0] for axis in axes.axes])
            value[row, place] = part.rows[row, column[kept]]
        for other in part.others:
            cost[other.exceeds(other.prices())] = np.inf
        return Prices(
            axes=axes,
            rows=part.rows,
            cost=cost,
            is_exact=is_exact,
            is_open=is_open,
            value=value,
            home=home,
        )

    def exceeds(self, prices: Prices) -> Bools:
        """Which atoms surely cost more than the budget by themselves."""
        if self.limit is None:
            return np.zeros_like(prices.is_open)
        limit = round_up(self.limit)
        is_over: Bools = prices.cost > limit
        if Fraction(limit) == self.limit:
            is_over |= (prices.cost == limit) & prices.is_beyond
        return is_over

    def _price_missing(self, part: Pricing, cost: FloatArray, is_exact: Bools) -> None:
        """Fill in the prices of missing numbers."""
        cells = self.axes.cells
        for place in np.flatnonzero(cells.missing >= 0).tolist():
            feature = int(cells.column[place])
            atom = int(self.axes.atom_start[cells.axis[place]] + cells.missing[place])
            gone, exact = self._price_of_unit(feature)
            gone = gone if self.types.may_miss[feature] else math.inf
            own = np.isnan(part.rows[:, feature])
            cost[:, atom], is_exact[:, atom] = np.where(own, 0.0, gone), own | exact

    def _price_of_unit(self, feature: int) -> tuple[float, bool]:
        """Price of going missing or being filled in, where it is allowed, and whether exactly."""
        return (0.0, True) if self.is_box else _rounded(one_unit(self.tariff, feature))

    def exact_cost(self, row: int, point: FloatArray) -> Fraction | None:
        """Cost of a concrete row, exactly and squared for L2; None where something is forbidden.

        Which values are allowed is not looked at; see `broken_rule`.
        """
        changed = self._changed_axes(row, point)
        return self._total([self._axis_cost(row, number, point) for number in changed])

    def distance(self, row: int, point: FloatArray) -> float:
        """Smallest double that is not below the cost of a point; infinite where it is forbidden."""
        exact = self.exact_cost(row, point)
        return math.inf if exact is None else self.rounded_up(exact)

    def least_cost(self, row: int, point: FloatArray) -> Fraction:
        """Least cost of the real numbers that a point stands for, exactly and squared for L2.

        Values just below a threshold stand for all numbers up to it, if these obey the rules as the
        point does; the point must have a price.
        """
        changed, moved = self._changed_axes(row, point), self._least_of(row, point)
        least = self._total([self._axis_cost(row, number, moved) for number in changed])
        if least is None:
            raise InternalError(
                f"A point of row {row} must have a price. Got none. Please report it."
            )
        return least

    def attains(self, row: int, point: FloatArray) -> bool:
        """Whether some of the real numbers that a point stands for cost no more than all of them.

        Of a largest cost that is so where axes that only approach theirs cost less than it.
        """
        moved = self._least_of(row, point)
        pairs = [
            (self._axis_cost(row, number, moved), self._axis_cost(row, number, point))
            for number in self._changed_axes(row, point)
        ]
        if self.total == "sum":
            return all(least == own for least, own in pairs)
        total = self._total([least for least, _ in pairs])
        return all(least == own for least, own in pairs if least == total)

    def _least_of(self, row: int, point: FloatArray) -> FloatArray:
        """The ends of the real numbers that a point stands for, where these cost least."""
        # Axes that the point changes, also where the threshold is the row's own value.
        moved = self._thresholds_of(row, point)
        # Sound: what is compared is linear, so that a comparison which holds at both holds between.
        return moved if all(r.holds_between(point, moved) for r in self.types.rules) else point

    def rounded_down(self, exact: Fraction) -> float:
        """Largest double that is not above a cost, from its exact total; the root for L2."""
        up = self.rounded_up(exact)
        is_met = math.isfinite(up) and Fraction(up) ** (2 if self.is_square else 1) == exact
        return up if is_met else math.nextafter(up, -math.inf)

    def rounded_up(self, exact: Fraction) -> float:
        """Smallest double that is not below a cost, from its exact total; the root for L2."""
        return root_rounded_up(exact) if self.is_square else round_up(exact)

    def broken_rule(self, row: int, point: FloatArray) -> str | None:
        """Which rule forbids a point as a change of a row, in words; None where none does.

        A point may cost more than the budget where it stands for real numbers that do not: some of
        its values are just below a threshold, and no float of the input precision lies between.
        """
        changed = range(self.axes.n_axes) if self.is_box else self._changed_axes(row, point)
        for number in changed:
            rule = self._broken_axis(row, number, point)
            if rule is not None:
                return rule
        for relation in self.types.rules:
            if not relation.holds(point):
                return f"the rule {relation.text!r} must hold"
        for other in self.others:
            rule = other.broken_rule(row, point)
            if rule is not None:
                return rule
        exact = self.exact_cost(row, point)
        if exact is None:
            return "the change must have a price, and it is forbidden"
        limit = self.limit
        if limit is None or exact <= limit:
            return None
        if self.least_cost(row, point) < limit:
            return None
        return f"the cost must not exceed {self.budget}, and it is {self.rounded_up(exact)}"

    def refuse_broken_rows(self, numbers: NDArray[np.int64]) -> None:
        """Refuse rows that are not of the domain themselves, unless it allows them.

        `numbers` are those of the rows in their data.
        """
        types, rows = self.types, self.rows
        attacked = ~self.stays.all(axis=1)  # nothing is asked of the others
        refuse_broken_rules(types.rules, rows[attacked], numbers[attacked])
        if types.allow_broken_rows:
            return
        broken = np.zeros(rows.shape, dtype=bool)
        is_number = np.isfinite(rows)
        broken[:, types.integer] = (is_number & (rows != np.floor(rows)))[:, types.integer]
        for feature, values in types.values.items():
            broken[:, feature] = is_number[:, feature] & ~np.isin(rows[:, feature], values)
        for feature, codes in types.may_become.items():
            if not isinstance(codes, dict):
                broken[:, feature] = is_number[:, feature] & ~np.isin(rows[:, feature], codes)
        for number, axis in enumerate(self.axes.axes):
            if axis.is_group:
                own = self.axes.atom_of(number, rows[:, list(axis.columns)])
                broken[:, axis.columns[0]] = own >= axis.n_known
        is_outside = (rows < types.low) | (rows > types.high)
        broken |= is_outside
        broken[~attacked] = False
        if not broken.any():
            return
        row, feature = (int(index) for index in np.argwhere(broken)[0])
        axis = self.axes.axes[int(self.axes.axis_of[feature])]
        name = feature_name(self.ensemble, *axis.columns)
        rule = "must be one of the values that the domain lists"
        if axis.is_group:
            rule = "must have a single 1, as a group of the domain"
        elif is_outside[row, feature]:
            rule = f"must lie from {types.low[feature]} to {types.high[feature]}"
        elif types.integer[feature]:
            rule = "must be an integer"
        n_more = int(broken.any(axis=1).sum()) - 1
        raise InvalidInput(
            f"Row {numbers[row]} breaks its own domain: {name} {rule}."
            f" Got {', '.join(map(str, rows[row, list(axis.columns)].tolist()))}"
            + (f"; {n_more} more rows break it" if n_more else "")
            + ". Correct the rows or the Domain, or allow them with allow_broken_rows=True."
        )

    def _total(self, costs: list[Fraction | None]) -> Fraction | None:
        known = [cost for cost in costs if cost is not None]
        if len(known) < len(costs):
            return None
        return max(known, default=Fraction(0)) if self.total == "max" else sum(known, Fraction(0))

    def _changed_axes(self, row: int, point: FloatArray) -> list[int]:
        """Axes with another value than the row's; the others cost nothing and break no rule."""
        own = self.rows[row]
        changed = (own != point) & ~(np.isnan(own) & np.isnan(point))
        axes: list[int] = np.unique(self.axes.axis_of[changed]).tolist()
        return axes

    def _axis_cost(self, row: int, number: int, point: FloatArray) -> Fraction | None:
        """Cost of an axis that changes, be it by a distance of 0: to below the row's own value."""
        axis = self.axes.axes[number]
        columns = list(axis.columns)
        own, new = self.rows[row, columns], point[columns]
        if self.stays[row, number]:
            return None
        if self.is_box:
            return Fraction(0)
        if axis.kind != NUMERIC:
            cost = self._choice_cost(number, own, new)
        elif np.isnan(own[0]) or np.isnan(new[0]):
            cost = one_unit(self.tariff, columns[0])
        else:
            cost = self._number_cost(columns[0], float(own[0]), float(new[0]))
        return cost**2 if self.is_square and cost is not None else cost

    def _number_cost(self, feature: int, own: float, new: float) -> Fraction | None:
        is_up = new > own
        if not math.isfinite(new):
            return None  # what is typed in beyond the largest float is no number any more
        if not math.isfinite(own):
            # An infinite value is as far from all others: it moves where that does not matter.
            is_free = self.tariff.is_free_of_distance(feature, up=is_up) and not self.is_relative
            return _move_cost(self.tariff, feature, 1 if is_up else -1) if is_free else None
        size = abs(own) if self.is_relative else 1.0
        return _move_cost(self.tariff, feature, Fraction(new) - Fraction(own), size)

    def _choice_cost(self, number: int, own: FloatArray, new: FloatArray) -> Fraction | None:
        before, after = (int(self.axes.atom_of(number, v[np.newaxis])[0]) for v in (own, new))
        if min(before, after) < 0 or not np.isfinite(self.tables[number].cost[before, after]):
            return None
        listed = self.listed.get(number, {}).get((before, after))
        if listed is not None:
            return Fraction(listed)
        return change_of_choice(self.tariff, self.axes, number, before, after)

    def _thresholds_of(self, row: int, point: FloatArray) -> FloatArray:
        """The point with values just below a threshold, that moved down, replaced by it.

        Where rows are doubles, a point stands for itself alone.
        """
        moved = point.copy()
        if not self.ensemble.over_reals:
            return moved
        real = np.dtype(self.ensemble.input_precision).type
        for feature in np.flatnonzero(point < self.rows[row]).tolist():
            if self.axes.axes[int(self.axes.axis_of[feature])].kind != NUMERIC:
                continue
            if self.types.integer[feature] or feature in self.types.values:
                continue
            cuts = self.axes.cuts.of(feature)
            cell = int(np.searchsorted(cuts, point[feature], side="right"))
            above = np.nextafter(real(point[feature]), real(np.inf))
            in_reach = cell < len(cuts) and cuts[cell] <= self.high[row, feature]
            if in_reach and float(above) == cuts[cell]:
                moved[feature] = cuts[cell]
        return moved

    def _broken_axis(self, row: int, number: int, point: FloatArray) -> str | None:
        """Which rule about the values of an axis a point breaks; a row's own values break none."""
        axis = self.axes.axes[number]
        columns = list(axis.columns)
        own, new = self.rows[row, columns], point[columns]
        if self.stays[row, number]:
            is_same = np.array_equal(own, new, equal_nan=True)
            return (
                None if is_same else f"{feature_name(self.ensemble, *columns)} must stay as it is"
            )
        if axis.kind == NUMERIC:
            return self._broken_number(row, columns[0], float(new[0]))
        if np.array_equal(own, new, equal_nan=True) and not self.is_box:
            return None
        before, after = (int(self.axes.atom_of(number, v[np.newaxis])[0]) for v in (own, new))
        is_allowed = min(before, after) >= 0 and np.isfinite(
            self.tables[number].cost[before, after]
        )
        if is_allowed and _within_bounds(self.take([row]), number, np.array([before]))[0, after]:
            return None
        name = feature_name(self.ensemble, *columns)
        return f"{name} must not change from {own.tolist()} to {new.tolist()}"

    def _broken_number(self, row: int, feature: int, value: float) -> str | None:
        name, types = feature_name(self.ensemble, feature), self.types
        own = float(self.rows[row, feature])
        if math.isnan(value):
            is_allowed = math.isnan(own) or types.may_miss[feature]
            return None if is_allowed else f"{name} must not go missing"
        if value == own and not self.is_box:
            return None
        if math.isnan(own) and not types.may_fill[feature]:
            return f"{name} is missing and must not be filled in"
        if not math.isfinite(value):
            return f"{name} must be finite"
        if types.integer[feature] and value != math.floor(value):
            return f"{name} must be an integer"
        if feature in types.values and value not in types.values[feature]:
            return f"{name} must be one of its allowed values"
        low, high = self.low[row, feature], self.high[row, feature]
        return None if low <= value <= high else f"{name} must lie from {low} to {high}"


def one_unit(tariff: Tariff, feature: int) -> Fraction | None:
    """Price of a change without a distance: of a move by 1 in the cheaper direction."""
    found = [cost for step in (-1, 1) if (cost := _move_cost(tariff, feature, step)) is not None]
    return min(found) if found else None


def _move_cost(
    tariff: Tariff, feature: int, moved: Fraction | int, size: float = 1.0
) -> Fraction | None:
    """Price of moving a feature, in units times a size; None where it is forbidden."""
    is_up = moved > 0
    if size == 0.0 or not tariff.allows(feature, up=is_up):
        return None
    weight = float((tariff.weight_up if is_up else tariff.weight_down)[feature])
    multiple = float((tariff.above if is_up else tariff.below)[feature])
    scale = Fraction(float(tariff.scale[feature]))
    if tariff.is_count:
        return 1 / scale
    unit = scale * Fraction(multiple) * Fraction(size)
    return Fraction(float(tariff.fixed[feature])) + Fraction(weight) * abs(Fraction(moved)) / unit


def change_of_choice(
    tariff: Tariff, axes: Axes, number: int, before: int, after: int
) -> Fraction | None:
    """Price of another choice that no table lists; None where it is forbidden.

    A category counts as a move by 1. In a group, columns that change go up or down by 1 each, and
    the dearest of them is the price.
    """
    axis = axes.axes[number]
    if before == after:
        return Fraction(0)
    if not axis.is_group:
        return one_unit(tariff, axis.columns[0])
    own, new = axis.choices[before], axis.choices[after]
    costs = [
        _move_cost(tariff, column, 1 if new[place] > own[place] else -1)
        for place, column in enumerate(axis.columns)
        if new[place] != own[place]
    ]
    known = [cost for cost in costs if cost is not None]
    return max(known) if len(known) == len(costs) else None


def choice_table(
    tariff: Tariff,
    axes: Axes,
    types: ColumnTypes,
    number: int,
    listed: dict[tuple[int, int], float],
    *,
    is_box: bool,
) -> ChoiceTable:
    """Prices between the atoms of a choice; infinite where the domain does not allow a change.

    Every choice may stay, but for groups in a box: as for numbers, a box need not hold the row.
    """
    axis = axes.axes[number]
    n_atoms = len(axis.choices)
    if axis.is_group:
        cost, is_exact = _group_costs(tariff, axis.columns, axis.choices)
    else:
        unit, exact = _rounded(one_unit(tariff, axis.columns[0]))
        cost, is_exact = np.full((n_atoms, n_atoms), unit), np.full((n_atoms, n_atoms), exact)
    for (before, after), price in listed.items():
        if np.isfinite(cost[before, after]):  # what is frozen has no price
            cost[before, after], is_exact[before, after] = price, True
    cost[~_allowed_changes(axes, types, number)] = np.inf
    if not (is_box and axis.is_group):
        np.fill_diagonal(cost, 0.0)
    np.fill_diagonal(is_exact, True)
    return ChoiceTable(cost, is_exact)


def _rounded(exact: Fraction | None) -> tuple[float, bool]:
    if exact is None:
        return math.inf, True
    value = round_down(exact)
    return value, Fraction(value) == exact


def _group_costs(
    tariff: Tariff, columns: tuple[int, ...], choices: FloatArray
) -> tuple[FloatArray, Bools]:
    n_atoms = len(choices)
    cost, is_exact = np.zeros((n_atoms, n_atoms)), np.ones((n_atoms, n_atoms), dtype=bool)
    for place, column in enumerate(columns):
        step = choices[:, place][np.newaxis, :] - choices[:, place][:, np.newaxis]
        for way in (-1, 1):
            price, exact = _rounded(_move_cost(tariff, column, way))
            changes = step * way > 0.0
            dearer = changes & (price > cost)
            # Of two prices that round to the same double the exact one is smaller.
            is_exact = np.where(changes & (price == cost), is_exact & exact, is_exact)
            cost, is_exact = np.where(dearer, price, cost), np.where(dearer, exact, is_exact)
    return cost, is_exact


def _allowed_changes(axes: Axes, types: ColumnTypes, number: int) -> Bools:
    """Which changes from an atom (row) to another (column) the domain allows."""
    axis = axes.axes[number]
    values = axis.choices[:, 0]
    n_atoms = len(values)
    if axis.is_group:
        # Choices that only rows of another domain have come last, and nobody may take them.
        return np.broadcast_to(np.arange(n_atoms) < axis.n_known, (n_atoms, n_atoms))
    feature, is_missing = axis.columns[0], np.isnan(values)
    may_become = types.may_become.get(feature)
    allowed = np.zeros((n_atoms, n_atoms), dtype=bool)
    if isinstance(may_become, dict):
        for before, after in may_become.items():
            allowed[np.ix_(values == before, np.isin(values, after))] = True
        reachable = np.isin(values, np.concatenate([np.zeros(0), *may_become.values()]))
        reachable |= np.isin(values, list(may_become))
    else:
        reachable = np.isin(values, [] if may_become is None else may_become)
        allowed[:] = reachable
    allowed[:, is_missing] = types.may_miss[feature]
    allowed[is_missing] = reachable & types.may_fill[feature]
    return allowed


def _within_bounds(part: Pricing, number: int, own: NDArray[np.int64]) -> Bools:
    """Whether the columns that another choice changes stay within bounds: (n_rows, n_atoms)."""
    axis = part.axes.axes[number]
    columns = list(axis.columns)
    low, high = part.low[:, columns], part.high[:, columns]
    shape = len(part.rows), len(axis.choices)
    if not axis.is_group or (np.isneginf(low).all() and np.isposinf(high).all()):
        return np.ones(shape, dtype=bool)
    inside = np.ones(shape, dtype=bool)
    for place in range(len(columns)):
        value = axis.choices[:, place]
        fits = (low[:, place, np.newaxis] <= value) & (value <= high[:, place, np.newaxis])
        stays = value == axis.choices[own, place][:, np.newaxis]
        may_stay = ~part.leaves[:, columns[place], np.newaxis] & (not part.is_box)
        inside &= fits | (stays & may_stay)
    return inside


class _Allowed(NamedTuple):
    """Allowed values of all cells of numeric axes; arrays (n_rows, n_cells)."""

    first: FloatArray  # least allowed value of the input precision
    last: FloatArray  # largest allowed value of the input precision
    top: FloatArray  # least number that is not below any allowed number
    is_open: Bools  # whether the top itself is not allowed, but all real numbers below it
    is_any: Bools  # whether there is an allowed value


def _allowed_cells(part: Pricing) -> _Allowed:
    cells, types = part.axes.cells, part.types
    start, end = cells.start, cells.end
    low, high = part.low[:, cells.feature], part.high[:, cells.feature]
    real = np.dtype(part.ensemble.input_precision).type
    with np.errstate(over="ignore"):
        before = np.nextafter(end.astype(real), real(-np.inf)).astype(np.float64)
    first, last = np.maximum(start, low), np.minimum(before, high)
    if part.ensemble.over_reals:
        # Beyond the largest float there are real numbers, too; the least of them stands for them.
        is_beyond = np.isposinf(end) & np.isfinite(start) & (start > before) & (first <= high)
        last = np.where(is_beyond, first, last)
    # Of numbers of the input precision the last one is the top.
    is_open = (end <= high) & part.ensemble.over_reals
    top = np.where(is_open, end, np.minimum(before, high))
    is_any = (first <= last) & (start < end)
    whole = np.flatnonzero(types.integer[cells.feature])
    if len(whole):
        # Floats beyond 2**24 and doubles beyond 2**53 are whole, so these are of the precision.
        first[:, whole], last[:, whole] = np.ceil(first[:, whole]), np.floor(last[:, whole])
        top[:, whole], is_open[:, whole] = last[:, whole], False
        is_any[:, whole] = (first <= last)[:, whole] & (first[:, whole] < end[whole])
    for feature, values in types.values.items():
        own = cells.of(feature)
        number = np.searchsorted(values, np.maximum(start[own], low[:, own]), side="left")
        last_number = np.minimum(
            np.searchsorted(values, end[own], side="left"),
            np.searchsorted(values, high[:, own], side="right"),
        )
        is_any[:, own], is_open[:, own] = number < last_number, False
        first[:, own] = values[np.minimum(number, len(values) - 1)]
        top[:, own] = last[:, own] = values[np.maximum(last_number - 1, 0)]
    return _Allowed(first, last, top, is_open, is_any)


def _cell_prices(
    part: Pricing, home: NDArray[np.int32]
) -> tuple[FloatArray, Bools, Bools, FloatArray]:
    """Cost, exactness, openness and value of the cells of all numeric axes."""
    cells, tariff = part.axes.cells, part.tariff
    own, home = part.rows[:, cells.feature], home[:, cells.owner]
    allowed = _allowed_cells(part)
    is_up, is_down, is_home = cells.number > home, cells.number < home, cells.number == home
    if part.leaves.any():
        # A home cell whose own value must not stay is moved within bounds, as any other.
        leaves = is_home & part.leaves[:, cells.feature]
        is_up |= leaves & (own < part.low[:, cells.feature])
        is_down |= leaves & (own > part.high[:, cells.feature])
        is_home &= ~is_up & ~is_down
    target = np.where(is_up, allowed.first, np.where(is_down, allowed.top, own))
    value = np.where(is_up, allowed.first, np.where(is_down, allowed.last, own))
    is_any = allowed.is_any
    if part.is_box:
        value = np.where(is_home, _nearest_in_cell(part, allowed, own), value)
        is_open = np.zeros(own.shape, dtype=bool)
        cost, is_exact = np.zeros(own.shape), np.ones(own.shape, dtype=bool)
    else:
        # What costs as much at any distance is not approached, but attained.
        is_far = (tariff.weight_down > 0.0)[cells.feature] & (not tariff.is_count)
        is_open = is_down & allowed.is_open & is_far
        cost, is_exact = _move_costs(part, own, target, is_up)
        cost, is_exact = np.where(is_home, 0.0, cost), is_exact | is_home
        is_any |= is_home
    for feature in np.flatnonzero(np.isnan(part.rows).any(axis=0)).tolist():
        filled = cells.of(feature)
        gaps = np.isnan(own[:, filled])
        price, exact = part._price_of_unit(feature)
        price = price if part.types.may_fill[feature] else np.inf
        first, last = allowed.first[:, filled], allowed.last[:, filled]
        some = np.where(np.isfinite(first), first, last)
        some = np.where(np.isfinite(some), some, 0.0)
        value[:, filled] = np.where(gaps, some, value[:, filled])
        cost[:, filled] = np.where(gaps, price, cost[:, filled])
        is_exact[:, filled] = np.where(gaps, exact, is_exact[:, filled])
        is_open[:, filled] &= ~gaps
    is_any &= np.isfinite(value) | is_home
    return np.where(is_any, cost, np.inf), is_exact, is_open, value


def _nearest_in_cell(part: Pricing, allowed: _Allowed, own: FloatArray) -> FloatArray:
    """Of a box, where any allowed value will do: the row's own one, or the nearest."""
    cells, types = part.axes.cells, part.types
    inside = (allowed.first <= own) & (own <= np.where(allowed.is_open, np.inf, allowed.top))
    whole = types.integer[cells.feature]
    inside &= ~whole | (own == np.floor(own))
    for feature, values in types.values.items():
        listed = cells.of(feature)
        inside[:, listed] &= np.isin(own[:, listed], values)
    inside &= np.isfinite(own)  # what points are made of is finite
    near = np.where(own < allowed.first, allowed.first, allowed.last)
    # Only listed values and integers lie around an own one that is not allowed.
    is_between = (own > allowed.first) & (own < allowed.last)
    near = np.where(is_between, np.where(whole, np.floor(own), allowed.first), near)
    return np.where(inside, own, near)


def _move_costs(
    part: Pricing, own: FloatArray, target: FloatArray, is_up: Bools
) -> tuple[FloatArray, Bools]:
    """Cost of moving from own values to others, rounded down, and whether it is exact."""
    tariff, feature = part.tariff, part.axes.cells.feature
    multiple = np.where(is_up, tariff.above[feature], tariff.below[feature])
    weight = np.where(is_up, tariff.weight_up[feature], tariff.weight_down[feature])
    moves = (multiple > 0.0) & (tariff.scale > 0.0)[feature] & np.isfinite(target)
    if part.is_relative:
        moves &= (own != 0.0) & np.isfinite(own)
    # An infinite value is as far from all others: it moves where that does not matter.
    is_far = (weight > 0.0) & (not tariff.is_count)
    moves &= np.isfinite(own) | ~is_far
    larger = np.where(moves & is_far, np.maximum(own, target), 0.0)
    smaller = np.where(moves & is_far, np.minimum(own, target), 0.0)
    if tariff.is_count:
        larger = np.ones_like(larger)
    factors = [np.where(moves, tariff.scale[feature], 1.0)]
    if not tariff.is_count:
        factors.append(np.where(moves, multiple, 1.0))
        if part.is_relative:
            factors.append(np.where(moves, np.abs(own), 1.0))
    cost, is_exact = quotient_rounded_down(larger, smaller, *factors)
    if np.any(weight != 1.0):
        cost, is_exact = product_rounded_down(cost, weight, is_exact)
    if np.any(tariff.fixed != 0.0):
        fixed = np.broadcast_to(tariff.fixed[feature], cost.shape)
        cost, is_exact = sum_rounded_down(cost, fixed, is_exact)
    forbidden = ~moves | np.isinf(weight)
    return np.where(forbidden, np.inf, cost), is_exact | forbidden
