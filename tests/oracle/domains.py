"""The truth about costs and domains by enumeration, in fractions, from the plain words of both.

Slow and obvious on purpose: every value that a feature may take (all integers of a range, all
listed values, both ends of cells) and what it costs; then every combination of them, judged by the
plain model. Nothing of `Axes` and `Pricing` is used.
"""

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.oracle.brute_force import judge, thresholds
from tests.random_domains import obeys
from treeproof.model.ensemble import Ensemble
from treeproof.query.perturbations import L0, L2, Ball, Box, Cost, LInf
from treeproof.query.query import Query

FloatArray = NDArray[np.float64]
_FAR = 9
"""Integers of features that rules are about: values of one feature bound those of others."""
_AROUND = 2
"""Integers that are tried beyond the outermost threshold, or beyond the row's own value."""


@dataclass(frozen=True)
class Option:
    """Values of some columns, what they cost, and whether the cost is only approached."""

    columns: tuple[int, ...]
    values: tuple[float, ...]
    cost: Fraction
    is_open: bool = False


@dataclass(frozen=True)
class Cheapest:
    """The least cost of a violation; None where there is none. The point has it, or nearly."""

    cost: Fraction | None
    is_open: bool
    point: FloatArray | None


class Words:
    """A perturbation with numbers in the order of features, and its domain with feature numbers."""

    def __init__(self, perturbation: Ball | Box, ensemble: Ensemble) -> None:
        self.ball, self.ensemble, self.n = perturbation, ensemble, ensemble.n_features
        self.domain = perturbation.domain
        self.is_box = isinstance(perturbation, Box)

    @property
    def related(self) -> set[int]:
        """Features that rules are about."""
        return {
            int(found) for text in self.listed("rules") for found in re.findall(r"x\[(\d+)\]", text)
        }

    def obeys(self, point: FloatArray) -> bool:
        """Whether a point obeys all rules, which are Python but for the arrow."""
        for text in self.listed("rules"):
            features = [int(found) for found in re.findall(r"x\[(\d+)\]", text)]
            if not np.isnan(point[features]).any() and not obeys(text, point):
                return False
        return True

    def number(self, name: str, feature: int, default: float) -> float:
        given = getattr(self.ball, name, None)
        if given is None:
            return default
        array = np.asarray(given, dtype=np.float64)
        return float(array if array.ndim == 0 else array[feature])

    def listed(self, name: str) -> tuple[Any, ...]:
        return tuple(getattr(self.domain, name)) if self.domain is not None else ()

    def side(self, name: str, row: int, feature: int) -> float:
        array = np.asarray(getattr(self.ball, name), dtype=np.float64)
        value = array if array.ndim == 0 else array[..., feature]
        value = value if value.ndim == 0 else value[row]
        if self.domain is not None and feature in self.domain.ranges:
            own = self.domain.ranges[feature]
            value = max(value, own[0]) if name == "low" else min(value, own[1])
        if self.ensemble.input_precision == "float32":
            with np.errstate(over="ignore"):
                return float(np.float32(value))
        return float(value)

    def price(self, feature: int, way: str, moved: Fraction | None, size: float) -> Fraction | None:
        """Cost of moving by some amount up or down; `size` is the row's own absolute value.

        None as an amount is an infinite one, which is possible where amounts do not matter.
        """
        if self.is_box:
            return Fraction(0)
        if feature in self.ball.frozen:  # type: ignore[union-attr]
            return None
        if isinstance(self.ball, Cost):
            per_unit = self.number("up" if way == "up" else "down", feature, 1.0)
            unit = Fraction(1)
            fixed = self.number("fixed", feature, 0.0)
            if math.isinf(per_unit) or math.isinf(fixed):
                return None
        else:
            scale = self.number("scale", feature, 1.0)
            multiple = self.number("above" if way == "up" else "below", feature, 1.0)
            unit = Fraction(scale) * Fraction(multiple)
            per_unit, fixed = 1.0, 0.0
            if isinstance(self.ball, L0) and unit > 0:
                per_unit, fixed = 0.0, 1 / Fraction(scale)
        if unit == 0 or size == 0.0:
            return None
        if moved is None or math.isinf(size):
            return Fraction(fixed) if per_unit == 0.0 and math.isfinite(size) else None
        return Fraction(fixed) + Fraction(per_unit) * moved / (unit * Fraction(size))

    def one_unit(self, feature: int) -> Fraction | None:
        """Cost of a change without a distance: the cheaper direction."""
        found = [self.price(feature, way, Fraction(1), 1.0) for way in ("up", "down")]
        return min((cost for cost in found if cost is not None), default=None)


def options_of_row(words: Words, rows: FloatArray, row: int) -> list[list[Option]]:
    """For every feature or group, all that it may become."""
    found, grouped = [], set()
    for name in ("one_hot", "at_most_one"):
        for group in words.listed(name):
            found.append(_group_options(words, rows, row, tuple(group), name == "at_most_one"))
            grouped |= set(group)
    for feature in range(words.n):
        if feature in grouped:
            continue
        value = float(rows[row, feature])
        is_category = words.ensemble.is_categorical[feature] or feature in _categorical(words)
        if is_category:
            options = list(_category_options(words, feature, value))
        else:
            options = list(_number_options(words, row, feature, value))
        found.append(options)
    return found


def _categorical(words: Words) -> dict[int, Any]:
    given = words.domain.categorical if words.domain is not None else {}
    return given if isinstance(given, dict) else dict.fromkeys(given)


def _group_options(
    words: Words, rows: FloatArray, row: int, group: tuple[int, ...], may_be_none: bool
) -> list[Option]:
    own = tuple(float(value) for value in rows[row, list(group)])
    targets = [tuple(float(i == j) for j in range(len(group))) for i in range(len(group))]
    if may_be_none:
        targets.append((0.0,) * len(group))
    found = [] if words.is_box else [Option(group, own, Fraction(0))]
    for target in targets:
        costs: list[Fraction | None] = [Fraction(0)]
        for column, before, after in zip(group, own, target, strict=True):
            if before == after and not words.is_box:
                continue
            if not words.side("low", row, column) <= after <= words.side("high", row, column):
                costs.append(None)
            elif before != after:
                way = "up" if after > before else "down"
                costs.append(words.price(column, way, Fraction(1), 1.0))
        if None in costs or (target == own and not words.is_box):
            continue
        cost = max(cost for cost in costs if cost is not None)
        if isinstance(words.ball, Cost) and target != own:
            cost = _listed_price(words.ball, group, own, target, cost)
        found.append(Option(group, target, cost))
    return found


def _listed_price(
    ball: Cost, group: tuple[int, ...], own: Any, target: Any, cost: Fraction
) -> Fraction:
    for column in group:
        table = ball.table.get(column, {})
        if 1.0 in own and 1.0 in target and sum(own) == 1.0:
            price = table.get(group[own.index(1.0)], {}).get(group[target.index(1.0)])
            if price is not None:
                return Fraction(price)
    return cost


def _category_options(words: Words, feature: int, value: float) -> Iterator[Option]:
    yield Option((feature,), (value,), Fraction(0))
    allowed = _categorical(words).get(feature)
    cost = words.one_unit(feature)
    codes: list[float] = []
    if math.isnan(value):
        if feature in words.listed("may_fill") and allowed is not None:
            codes = (
                sorted({*allowed, *itertools.chain(*allowed.values())})
                if isinstance(allowed, dict)
                else list(allowed)
            )
    elif isinstance(allowed, dict):
        codes = list(allowed.get(int(value), ())) if value == int(value) else []
    elif allowed is not None:
        codes = list(allowed)
    for code in codes:
        if float(code) == value:
            continue
        price = cost
        if isinstance(words.ball, Cost) and not math.isnan(value):
            listed = words.ball.table.get(feature, {}).get(value, {}).get(code)
            price = cost if listed is None or cost is None else Fraction(listed)
        if price is not None:
            yield Option((feature,), (float(code),), price)
    if feature in words.listed("may_miss") and not math.isnan(value) and cost is not None:
        yield Option((feature,), (math.nan,), cost)


def _number_options(words: Words, row: int, feature: int, value: float) -> Iterator[Option]:
    low, high = words.side("low", row, feature), words.side("high", row, feature)
    if not words.is_box or math.isnan(value):
        yield Option((feature,), (value,), Fraction(0))
    if math.isnan(value) and feature not in words.listed("may_fill"):
        return
    if feature in words.listed("may_miss") and not math.isnan(value):
        cost = words.one_unit(feature)
        if cost is not None:
            yield Option((feature,), (math.nan,), cost)
    for target, cost_at, is_end in _targets(words, feature, value, low, high):
        if not (low <= target <= high) or (target == value and not words.is_box):
            continue
        if words.is_box:
            yield Option((feature,), (target,), Fraction(0))
            continue
        if math.isnan(value):
            cost, is_open = words.one_unit(feature), False
        else:
            way = "up" if target > value else "down"
            size = abs(value) if words.ball.relative else 1.0  # type: ignore[union-attr]
            moved, exact = (
                abs(Fraction(end) - Fraction(value)) if math.isfinite(value) else None
                for end in (cost_at, target)
            )
            cost = words.price(feature, way, moved, size)
            # Where the distance does not count, the float just below costs the same.
            exactly = words.price(feature, way, exact, size)
            is_open = is_end and exactly != cost
        if cost is not None:
            yield Option((feature,), (target,), cost, is_open)


def _targets(
    words: Words, feature: int, value: float, low: float, high: float
) -> Iterator[tuple[float, float, bool]]:
    """Values that are tried, the number whose distance counts, and whether it is only approached.

    For numbers: both ends of every cell, of the bounds and the value itself.
    """
    cuts = [float(cut) for cut in thresholds(words.ensemble, feature) if math.isfinite(cut)]
    known = [number for number in (*cuts, value, low, high) if math.isfinite(number)] or [0.0]
    over_reals = words.ensemble.over_reals
    listed = dict(words.domain.values).get(feature) if words.domain is not None else None
    if listed is not None:
        for given in listed:
            number = float(np.float32(given)) if _is_single(words) else float(given)
            yield number, number, False
        return
    if feature in words.listed("integer"):
        first, last = math.floor(min(known)) - _AROUND, math.ceil(max(known)) + _AROUND
        if feature in words.related:
            first, last = min(first, -_FAR), max(last, _FAR)
        for whole in range(first, last + 1):
            yield float(whole), float(whole), False
        return
    real = np.float32 if _is_single(words) else np.float64
    for number in known:
        yield number, number, False
        below = float(np.nextafter(real(number), real(-np.inf)))
        # Just below a threshold: real numbers between, which are no floats, are allowed too.
        is_end = over_reals and number <= high
        yield below, number if is_end else below, is_end
    yield min(known) - 1.0, min(known) - 1.0, False


def _is_single(words: Words) -> bool:
    return words.ensemble.input_precision == "float32"


def n_points(options: list[list[Option]]) -> int:
    """How many combinations there are."""
    return math.prod(len(choices) for choices in options)


def cheapest(query: Query, perturbation: Ball | Box, row: int) -> Cheapest:
    """The least cost of a violation of a row, squared for L2."""
    words = Words(perturbation, query.ensemble)
    options = distinct_options(query, words, row)
    combinations = list(itertools.product(*options))
    points = np.tile(query.rows[row], (len(combinations), 1))
    for number, combination in enumerate(combinations):
        for option in combination:
            points[number, list(option.columns)] = option.values
    best: tuple[Fraction, bool] | None = None
    best_point = None
    for number in np.flatnonzero(judge(query, row, points)) if len(points) else ():
        if not words.obeys(points[number]):
            continue
        found = _total(words, combinations[number])
        if best is None or found < best:
            best, best_point = found, points[number]
    if best is None:
        return Cheapest(None, False, None)
    return Cheapest(best[0], best[1], best_point)


def distinct_options(query: Query, words: Words, row: int) -> list[list[Option]]:
    """For every feature or group what it may become, without what cannot make a difference."""
    return [
        choices
        if words.related & set(choices[0].columns if choices else ())
        else undominated(query, choices)
        for choices in options_of_row(words, query.rows, row)
    ]


def undominated(query: Query, options: list[Option]) -> list[Option]:
    """The cheapest of options that no node tells apart."""
    from treeproof.model import evaluate

    trees = query.ensemble.trees
    kept: dict[bytes, Option] = {}
    for option in options:
        sides = []
        for column, value in zip(option.columns, option.values, strict=True):
            nodes = np.flatnonzero(trees.feature == column)
            sides.append(
                evaluate.goes_left(query.ensemble, nodes, np.full(len(nodes), value)).tobytes()
            )
        key = b"|".join(sides)
        known = kept.get(key)
        if known is None or (option.cost, option.is_open) < (known.cost, known.is_open):
            kept[key] = option
    return list(kept.values())


def _total(words: Words, combination: tuple[Option, ...]) -> tuple[Fraction, bool]:
    if isinstance(words.ball, LInf | Box):
        levels = [(option.cost, option.is_open) for option in combination]
        return max(levels, default=(Fraction(0), False))
    power = 2 if isinstance(words.ball, L2) else 1
    total = sum((option.cost**power for option in combination), Fraction(0))
    return total, any(option.is_open for option in combination)


def breaks_domain(
    perturbation: Ball | Box, ensemble: Ensemble, rows: FloatArray, row: int, point: FloatArray
) -> str | None:
    """Which part of a domain a witness breaks, by its plain words; None where it breaks none."""
    words = Words(perturbation, ensemble)
    own = rows[row]
    if not words.obeys(point):
        return "a rule"
    groups = set()
    for name, least in (("one_hot", 1), ("at_most_one", 0)):
        for group in words.listed(name):
            groups |= set(group)
            now = point[list(group)]
            if np.array_equal(now, own[list(group)]) and not words.is_box:
                continue
            if not set(now.tolist()) <= {0.0, 1.0} or not least <= now.sum() <= 1:
                return f"group {group} is {now}"
    for feature in range(words.n):
        before, after = float(own[feature]), float(point[feature])
        is_same = before == after or (math.isnan(before) and math.isnan(after))
        if is_same and (not words.is_box or math.isnan(after)):
            continue
        if not words.is_box and feature in words.ball.frozen:  # type: ignore[union-attr]
            return f"{feature} is frozen"
        if math.isnan(after):
            if feature not in words.listed("may_miss"):
                return f"{feature} went missing"
            continue
        if math.isnan(before) and feature not in words.listed("may_fill"):
            return f"{feature} was filled in"
        is_category = ensemble.is_categorical[feature] or feature in _categorical(words)
        if is_category:
            allowed = _categorical(words).get(feature)
            if before == after:
                continue
            if allowed is None:
                return f"category {feature} changed"
            if isinstance(allowed, dict) and not math.isnan(before):
                allowed = allowed.get(before, ())
            elif isinstance(allowed, dict):
                allowed = {*allowed, *itertools.chain(*allowed.values())}
            if after not in [float(code) for code in allowed]:
                return f"category {feature} became {after}"
            continue
        if feature in words.listed("integer") and after != int(after):
            return f"{feature} is no integer"
        listed = dict(words.domain.values).get(feature) if words.domain is not None else None
        if listed is not None and after not in [
            float(np.float32(v)) if _is_single(words) else float(v) for v in listed
        ]:
            return f"{feature} is not listed"
        if not words.side("low", row, feature) <= after <= words.side("high", row, feature):
            return f"{feature} left its bounds"
        if not words.is_box and feature not in groups:
            way = "up" if after > before else "down"
            size = abs(before) if words.ball.relative and not math.isnan(before) else 1.0  # type: ignore[union-attr]
            moved = Fraction(1) if math.isfinite(before) else None
            if not math.isnan(before) and words.price(feature, way, moved, size) is None:
                return f"{feature} moved {way}, which is forbidden"
    return None
