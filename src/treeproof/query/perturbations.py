"""`LInf`, `L1`, `L2`, `L0`, `Cost`, `All` and `Box`: how a row may change."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeproof.errors import InvalidInput, NoEffectWarning, listed
from treeproof.query.domain import Domain, Features
from treeproof.query.names import feature_number, in_feature_order, numbers_of
from treeproof.query.prices import Tariff
from treeproof.query.rounding import FloatArray, move_rounded_down


@dataclass(frozen=True, slots=True)
class PerRow:
    """A radius or budget of each row's own.

    Parameters
    ----------
    column : str or None
        Column of the data that holds it; None where the values were given themselves.
    values : float64 (n_rows,) or None
        The values; None until the rows of the data are read.
    """

    column: str | None = None
    # Rows tell theirs in their own records.
    values: FloatArray | None = field(default=None, compare=False, metadata={"described": False})


PerFeature = ArrayLike | Mapping[Any, Any]
"""One number, or one for each feature: in the model's order, or by name."""
Limit = float | ArrayLike | PerRow | None
"""A radius or budget for all rows or for each; None where it is what is asked for."""


@dataclass(frozen=True, slots=True)
class _Ball:
    """What `LInf`, `L1`, `L2` and `L0` have in common: moves in units of each feature's scale."""

    eps: Limit = None
    scale: PerFeature | None = None
    below: PerFeature = 1.0
    above: PerFeature = 1.0
    frozen: Features = ()
    low: PerFeature = -np.inf
    high: PerFeature = np.inf
    # Another word for frozen, which is what questions are described and known by.
    moving: Features | None = field(default=None, metadata={"described": False})
    relative: bool = False
    domain: Domain | None = None

    def __post_init__(self) -> None:
        """Refuse radii that are no distance; one feature is a sequence of one."""
        _check_limit(self, "eps")
        _list_features(self)


@dataclass(frozen=True, slots=True)
class LInf(_Ball):
    """Every feature may move by at most eps, in units of its scale.

    Parameters
    ----------
    eps : float, array-like of shape (n_rows,) or None
        Radius of the ball, or of each row's own; None where the radius is what is asked for.
    scale : dict, Series or array-like of shape (n_features,), optional
        Unit of each feature (for example its standard deviation); default 1.
    below, above : float, bool, dict, Series or array-like, optional
        How far a feature may go down and up, as a multiple of ``eps * scale``; 0 or False forbids
        that direction.
    frozen : str, int or sequence of them, optional
        Features that do not move, by name or number.
    low, high : float, dict, Series or array-like of shape (n_features,), optional
        Bounds of the data's domain; no feature leaves them, and rows outside of them are refused.
    moving : str, int or sequence of them, optional
        The only features that move, by name or number: all others are frozen.
    relative : bool
        Whether scales are multiples of the row's own absolute value: ``LInf(0.1, relative=True)``
        is 10 % up or down, and a value of 0 does not move. Categories, groups and missing values
        have no size: for them the scale itself is the unit.
    domain : Domain, optional
        Which rows there can be. A change of a category, of a group, or from or to a missing value
        counts as a move by 1: in units of a scale, as ``1 / scale``.

    Notes
    -----
    A Series (or a frame of one row) must name every feature of the model, in any order; one whose
    index only counts from 0 has no names. A dict may leave features out. Arrays, lists and Series
    without an index are in the order of the model's features.
    """


@dataclass(frozen=True, slots=True)
class L1(_Ball):
    """The moves of all features may add up to at most eps, in units of their scales.

    Parameters
    ----------
    eps : float, array-like of shape (n_rows,) or None
        Largest sum of moves; None where the least one is what is asked for.
    scale, below, above, frozen, low, high, moving, relative, domain
        See `LInf`; a move costs its size divided by the unit of its feature and direction.
    """


@dataclass(frozen=True, slots=True)
class L2(_Ball):
    """The Euclidean length of all moves is at most eps, in units of their scales.

    Parameters
    ----------
    eps : float, array-like of shape (n_rows,) or None
        Largest root of the sum of squares; None where the least one is what is asked for.
    scale, below, above, frozen, low, high, moving, relative, domain
        See `LInf`.
    """


@dataclass(frozen=True, slots=True)
class L0(_Ball):
    """At most eps features change, by any amount.

    Parameters
    ----------
    eps : float, array-like of shape (n_rows,) or None
        Largest number of changed features; None where the least one is what is asked for. A group
        of one-hot columns is one feature.
    scale : dict, Series or array-like of shape (n_features,), optional
        A change of a feature counts ``1 / scale``; default 1.
    below, above, frozen, low, high, moving, relative, domain
        See `LInf`; of the directions only whether they are 0 matters.
    """


@dataclass(frozen=True, slots=True)
class Cost:
    """Changes may cost at most a budget: prices per feature and direction, charges and tables.

    Parameters
    ----------
    budget : float, array-like of shape (n_rows,) or None
        Largest cost; None where the least one is what is asked for.
    up, down : float, dict, Series or array-like of shape (n_features,), optional
        Price of moving a feature by 1 upwards and downwards; infinite forbids it, 0 is free.
    fixed : float, dict, Series or array-like of shape (n_features,), optional
        Charge for changing a feature at all, added once.
    table : dict, optional
        Prices of other categories, ``{feature: {before: {after: price}}}``. In a group the feature
        is any column of it, and categories are columns. What is not listed costs as much as a move
        by 1.
    frozen, low, high, moving
        See `LInf`.
    relative : bool
        Whether `up` and `down` are prices of moving by the row's own absolute value, so that 0.01
        of them is the price of one per cent.
    domain : Domain, optional
        Which rows there can be.
    """

    budget: Limit = None
    up: PerFeature = 1.0
    down: PerFeature = 1.0
    fixed: PerFeature = 0.0
    table: Mapping[Any, Any] = field(default_factory=dict)
    frozen: Features = ()
    low: PerFeature = -np.inf
    high: PerFeature = np.inf
    # Another word for frozen, which is what questions are described and known by.
    moving: Features | None = field(default=None, metadata={"described": False})
    relative: bool = False
    domain: Domain | None = None

    def __post_init__(self) -> None:
        """Refuse budgets that are no cost; one feature is a sequence of one."""
        _check_limit(self, "budget")
        _list_features(self)

    @property
    def eps(self) -> Limit:
        """The budget, by the name that it has in the other perturbations."""
        return self.budget


def _list_features(perturbation: Any) -> None:
    if not isinstance(perturbation.relative, bool | np.bool_):
        raise InvalidInput(
            f"'relative' of {type(perturbation).__name__} must be True or False."
            f" Got {perturbation.relative!r}."
        )
    for name in ("frozen", "moving"):
        given = getattr(perturbation, name)
        if isinstance(given, str | int | np.integer):
            object.__setattr__(perturbation, name, (given,))
        elif given is not None and not isinstance(given, Iterable):
            raise InvalidInput(
                f"'{name}' of {type(perturbation).__name__} must be features by name or number."
                f" Got {given!r}."
            )


def _check_limit(perturbation: Any, name: str) -> None:
    """Refuse what is no limit; several numbers become those of each row."""
    limit = getattr(perturbation, name)
    if limit is None or isinstance(limit, PerRow):
        return
    if np.ndim(limit) == 1 and not isinstance(limit, Mapping):
        values = np.array(limit, dtype=np.float64)
        if np.all(values >= 0.0):
            object.__setattr__(perturbation, name, PerRow(values=values))
            return
    elif np.ndim(limit) == 0 and np.asarray(limit).dtype.kind in "biuf" and limit >= 0.0:
        return
    raise InvalidInput(
        f"'{name}' of {type(perturbation).__name__} must be a number >= 0, or one for each row."
        f" Got {limit!r}."
    )


@dataclass(frozen=True, slots=True)
class Box:
    """Every feature may take any value between two bounds.

    Parameters
    ----------
    low, high : dict, Series, frame or array-like of shape (n_features,) or (n_rows, n_features)
        Bounds, inclusive; infinite sides are allowed. Missing and categorical entries of a row
        stay as they are, unless the domain lets them change, and so do columns that a pipeline
        drops. Names are matched as those of `LInf` are; rows of frames are those of the question
        in their order.
    domain : Domain, optional
        Which rows there can be.
    """

    low: PerFeature
    high: PerFeature
    domain: Domain | None = None


Part = LInf | L1 | L2 | L0 | Cost
"""Perturbations with one limit."""


@dataclass(frozen=True, slots=True, init=False)
class All:
    """Changes that are within several limits at once.

    ``All(L0(3), LInf(0.1))`` allows at most three features to change, each by at most 0.1. At most
    one part may be without a limit: that one is what is asked for, such as the fewest features in
    ``All(L0(), LInf(0.1))``.

    Parameters
    ----------
    *parts : LInf, L1, L2, L0 or Cost
        What changes must lie in, each with units, directions, bounds and frozen features of its
        own. A domain holds for all parts, whichever names it.
    """

    parts: tuple[Part, ...]

    def __init__(self, *parts: Part) -> None:
        """Refuse what is no ball, limits of each row's own, and several parts without a limit."""
        for part in parts:
            if not isinstance(part, Part):
                raise InvalidInput(f"'All' takes LInf, L1, L2, L0 and Cost. Got {part!r}.")
            if isinstance(part.eps, PerRow):
                raise InvalidInput(
                    f"A part of 'All' must have one limit for all rows, or none. Got {part!r}."
                )
        open_parts = [part for part in parts if part.eps is None]
        if not parts or len(open_parts) > 1:
            raise InvalidInput(
                "'All' must have parts, at most one of them without a limit."
                f" Got {listed([repr(part) for part in open_parts]) or 'none'}."
            )
        domains = [part.domain for part in parts if part.domain is not None]
        if any(domain != domains[0] for domain in domains):
            raise InvalidInput("The parts of 'All' must have the same domain. Got several.")
        domain = domains[0] if domains else None
        # What is asked for comes first; otherwise what adds up, which others only bound.
        rank = [(part.eps is not None, isinstance(part, LInf)) for part in parts]
        order = sorted(range(len(parts)), key=rank.__getitem__)
        whole = tuple(replace(parts[place], domain=domain) for place in order)
        object.__setattr__(self, "parts", whole)

    @property
    def eps(self) -> Limit:
        """The limit of the part that costs are told of, which is the first."""
        return self.parts[0].eps

    @property
    def domain(self) -> Domain | None:
        """Which rows there can be."""
        return self.parts[0].domain


Ball = Part | All
"""Perturbations with a radius or budget, or without where it is what is asked for."""

AnyBall = TypeVar("AnyBall", bound=Ball)


def with_limit(ball: AnyBall, limit: Limit) -> AnyBall:
    """Return the same ball with another radius or budget."""
    if isinstance(ball, All):
        return All(with_limit(ball.parts[0], limit), *ball.parts[1:])  # type: ignore[return-value]
    changed: Any = {"budget" if isinstance(ball, Cost) else "eps": limit}
    return replace(ball, **changed)


def require_perturbation(value: object) -> None:
    """Refuse what says nothing about how rows may change."""
    if not isinstance(value, Ball | Box):
        raise InvalidInput(
            "'perturbation' must be a radius such as 0.1, an LInf, L1, L2, L0, Cost, All or Box."
            f" Got {value!r}."
        )


def as_perturbation(given: Any) -> Any:
    """A number as the ball of that radius, in which every feature moves; all else as it is."""
    return LInf(float(given)) if _is_number(given) else given


def refuse_as_labels(y: object) -> None:
    """Refuse a perturbation, or a radius, in the place of labels."""
    if isinstance(y, Ball | Box | Domain) or _is_number(y):
        raise InvalidInput(
            f"'y' must be the labels of the rows, or None. Got {y!r}, which says how rows may"
            f" change. Give it by name, as perturbation={y!r}, or after the labels."
        )


def _is_number(given: object) -> bool:
    return type(given) is not bool and isinstance(given, int | float | np.integer | np.floating)


def asks_radius(perturbation: Ball | Box) -> bool:
    """Whether the least radius or budget is what is asked for, rather than a verdict."""
    return isinstance(perturbation, Ball) and perturbation.eps is None


def is_priced(perturbation: Ball | Box) -> bool:
    """Whether a question is asked over axes with prices, rather than in cells of an L∞ ball."""
    if isinstance(perturbation, Box):
        return perturbation.domain is not None
    if isinstance(perturbation, LInf):
        is_plain = perturbation.domain is None and not perturbation.relative
        return not is_plain or _has_rounded_rates(perturbation)
    return True


def _has_rounded_rates(ball: LInf) -> bool:
    """Whether some product of a scale and a multiple of it is no double: prices are exact."""
    if ball.scale is None:
        return False
    with np.errstate(all="ignore"):
        for side in (ball.below, ball.above):
            if isinstance(ball.scale, Mapping) or isinstance(side, Mapping):
                return False  # names are put in order before a question is asked
            pairs = np.broadcast_arrays(
                *(np.asarray(s, dtype=np.float64) for s in (ball.scale, side))
            )
            for one, other in set(zip(*(pair.ravel().tolist() for pair in pairs), strict=True)):
                if (
                    np.isfinite(one)
                    and np.isfinite(other)
                    and (Fraction(one) * Fraction(other) != Fraction(one * other))
                ):
                    return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """A perturbation in numbers.

    At radius r, feature f of a row x may take any real value in
    ``[max(low, x - r * down), min(high, x + r * up)]``.

    Attributes
    ----------
    down, up : float64 (n_features,)
        Rates of movement; infinite for a box.
    low, high : float64 (n_rows, n_features)
        Bounds that hold at any radius.
    radius : float, float64 (n_rows,) or None
        The radius of the question, or of each row; None when it is what is asked for.
    is_ball : bool
        False for boxes, which have no radius.
    holds_reals : bool
        Whether sets hold all real numbers; otherwise doubles alone.
    """

    down: FloatArray
    up: FloatArray
    low: FloatArray
    high: FloatArray
    radius: float | FloatArray | None
    is_ball: bool
    holds_reals: bool = True

    def box(self, rows: FloatArray, radius: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        """Closed box around each row at a radius, as doubles that decide ``x < T`` exactly.

        A set of real numbers has one below T iff its end does, which rounding down keeps; one of
        doubles, iff its first double is.

        A value of the row outside the domain bounds stays allowed as it is. NaN stays NaN.
        """
        if not self.is_ball:
            return self.low, self.high
        if isinstance(radius, np.ndarray):
            alone = range(len(rows))
            boxes = [self.take([row]).box(rows[[row]], float(radius[row])) for row in alone]
            low, high = (np.concatenate(side) for side in zip(*boxes, strict=True))
            return low, high
        if self.holds_reals:
            low = move_rounded_down(rows, radius, self.down, -1)
        else:
            low = -move_rounded_down(-rows, radius, self.down, +1)  # the first double of the set
        low = np.maximum(low, self.low)
        high = np.minimum(move_rounded_down(rows, radius, self.up, +1), self.high)
        return np.minimum(low, rows), np.maximum(high, rows)

    def for_all(self, n_rows: int) -> Reach:
        """The reach of a number of rows with one row of bounds, which is not written out."""
        if len(self.low) == n_rows:
            return self
        shape = (n_rows, self.low.shape[1])
        low, high = np.broadcast_to(self.low, shape), np.broadcast_to(self.high, shape)
        return replace(self, low=low, high=high)

    def within(self, other: Reach) -> Reach:
        """The same rates and radius, in the directions and bounds that another reach allows."""
        down = np.where(other.down > 0.0, self.down, 0.0)
        up = np.where(other.up > 0.0, self.up, 0.0)
        return replace(self, down=down, up=up, low=other.low, high=other.high)

    def take(self, selection: Any) -> Reach:
        """Return the reach of a selection of rows."""
        radius = self.radius
        if isinstance(radius, np.ndarray):
            radius = radius[selection]
        return replace(self, low=self.low[selection], high=self.high[selection], radius=radius)


_LEFT_OUT = {
    "scale": 1.0,
    "below": 1.0,
    "above": 1.0,
    "up": 1.0,
    "down": 1.0,
    "fixed": 0.0,
    "low": -np.inf,
    "high": np.inf,
}
"""Fields that may name features, and the value of those that a dict leaves out."""

Perturbation = TypeVar("Perturbation", bound=Ball | Box)


def in_order(perturbation: Perturbation, names: Sequence[str], n_features: int) -> Perturbation:
    """Return the same perturbation with numbers in the order of a model's features, not names."""
    if isinstance(perturbation, All):
        return All(*(in_order(part, names, n_features) for part in perturbation.parts))  # type: ignore[return-value]
    what, given = type(perturbation).__name__, {}
    for part in fields(perturbation):
        value = getattr(perturbation, part.name)
        if part.name in _LEFT_OUT:
            default = _LEFT_OUT[part.name]
            said = f"'{part.name}' of {what}"
            given[part.name] = in_feature_order(said, value, names, n_features, default)
        elif part.name == "frozen":  # by the model's own spelling of their names
            given["frozen"] = [
                names[feature_number(item, n_features, names)] if isinstance(item, str) else item
                for item in value
            ]
        elif part.name == "moving" and value is not None:
            moving = {feature_number(item, n_features, names) for item in value}
            for item in perturbation.frozen:  # type: ignore[union-attr]
                if feature_number(item, n_features, names) in moving:
                    raise InvalidInput(
                        f"'moving' and 'frozen' of {what} must name different features."
                        f" Got {item!r} in both."
                    )
            given["frozen"] += [
                names[number] if names else number
                for number in range(n_features)
                if number not in moving
            ]
            given["moving"] = None
    return replace(perturbation, **given)


def warn_of_categories(
    perturbation: Ball | Box, names: Sequence[str], is_categorical: NDArray[np.bool_]
) -> None:
    """Warn where moves of a categorical feature are given by its name, since it never moves."""
    for part in fields(perturbation):
        value = getattr(perturbation, part.name)
        said = list(value) if isinstance(value, Mapping) else []
        if part.name == "moving":
            said = list(value or ())
        numbers = [feature_number(item, len(is_categorical), names) for item in said]
        stay = [said[at] for at, number in enumerate(numbers) if is_categorical[number]]
        if stay:
            where = f"'{part.name}' of {type(perturbation).__name__}"
            warn_of_no_effect(f"{where} has no effect on {listed(stay)}", stacklevel=4)


def warn_of_no_effect(what: str, stacklevel: int = 3) -> None:
    """Warn of moves of categorical features."""
    warnings.warn(
        f"{what}: categories never move. Proofs are about the categories that rows have.",
        NoEffectWarning,
        stacklevel=stacklevel,
    )


def resolve(perturbation: Ball | Box, rows: FloatArray, names: Sequence[str] = ()) -> Reach:
    """Return the reach of a perturbation around rows in the model's input precision.

    Of one with prices these are the bounds, and units of 0 where a direction is forbidden.
    """
    if isinstance(perturbation, Box):
        return _box_reach(in_order(perturbation, names, rows.shape[1]), rows)
    n_rows, n_features = rows.shape
    return ball_reach(in_order(perturbation, names, n_features), n_features, names).for_all(n_rows)


_LEAST = float(np.nextafter(0.0, 1.0))


def ball_reach(ball: Ball, n_features: int, names: Sequence[str]) -> Reach:
    """The reach of a ball that is `in_order`, with one row of bounds."""
    if isinstance(ball, All):
        return _common_reach([_part_reach(part, n_features, names) for part in ball.parts])
    return _part_reach(ball, n_features, names)


def _part_reach(ball: Part, n_features: int, names: Sequence[str]) -> Reach:
    what = type(ball).__name__
    if isinstance(ball, Cost):
        weights = (_per_feature(what, name, getattr(ball, name), n_features) for name in _WEIGHTS)
        fixed, down, up = weights
        for name, price in (("fixed", fixed), ("down", down), ("up", up)):
            if not np.all(price >= 0.0):
                raise InvalidInput(f"'{name}' of Cost must be numbers >= 0. Got {price!r}.")
        down, up = (
            (np.isfinite(fixed) & np.isfinite(price)).astype(np.float64) for price in (down, up)
        )
    else:
        scale = _per_feature(what, "scale", 1.0 if ball.scale is None else ball.scale, n_features)
        below = _per_feature(what, "below", ball.below, n_features)
        above = _per_feature(what, "above", ball.above, n_features)
        down, up = scale * below, scale * above
        for name, rate in (("scale", scale), ("below", down), ("above", up)):
            if not (np.all(np.isfinite(rate)) and np.all(rate >= 0.0)):
                raise InvalidInput(f"'{name}' of {what} must be finite and >= 0. Got {rate!r}.")
        # A product that no double holds is not 0, which would forbid the direction; its exact
        # value is for prices to take.
        down, up = (
            np.where((rate == 0.0) & (scale > 0.0) & (multiple > 0.0), _LEAST, rate)
            for rate, multiple in ((down, below), (up, above))
        )
    for feature in cast("Sequence[int | str]", ball.frozen):
        number = feature_number(feature, n_features, names)
        down[number] = up[number] = 0.0
    low = _per_feature(what, "low", ball.low, n_features)
    high = _per_feature(what, "high", ball.high, n_features)
    for wrong in np.flatnonzero(~(low <= high))[:1].tolist():  # of NaN, too
        where = repr(names[wrong]) if names else f"feature {wrong}"
        raise InvalidInput(
            f"'low' of {what} must not exceed 'high', and neither may be NaN. Got {low[wrong]} and"
            f" {high[wrong]} of {where}."
        )
    low, high = low[np.newaxis], high[np.newaxis]
    if isinstance(ball.eps, PerRow):
        raise InvalidInput(
            f"A radius or budget of each row's own is for 'verify' and attacks. Give {what} one"
            " number, or none where it is what is asked for."
        )
    radius = None if ball.eps is None else float(cast("float", ball.eps))
    return Reach(down=down, up=up, low=low, high=high, radius=radius, is_ball=True)


def _common_reach(reaches: list[Reach]) -> Reach:
    """The first of some reaches, in the directions and bounds that all of them allow."""
    one, *others = reaches
    for other in others:
        low, high = np.maximum(one.low, other.low), np.minimum(one.high, other.high)
        if np.any(low > high):
            raise InvalidInput("'low' of a part of 'All' must not exceed 'high' of another one.")
        one = one.within(replace(other, low=low, high=high))
    return one


_WEIGHTS = ("fixed", "down", "up")


def tariff_of(perturbation: Part | Box, reach: Reach, names: Sequence[str]) -> Tariff:
    """What moving each feature costs, in numbers; the reach is that of the perturbation."""
    n_features = len(reach.down)
    nothing, one = np.zeros(n_features), np.ones(n_features)
    if isinstance(perturbation, Box):
        return Tariff(nothing, nothing, nothing, one, one, one)
    ball = in_order(perturbation, names, n_features)
    if isinstance(ball, Cost):
        fixed, down, up = (
            _per_feature("Cost", name, getattr(ball, name), n_features) for name in _WEIGHTS
        )
        return Tariff(fixed, down, up, reach.down, reach.up, one)
    what = type(ball).__name__
    below, above = (
        np.where(rate > 0.0, _per_feature(what, name, value, n_features), 0.0)
        for name, value, rate in (
            ("below", ball.below, reach.down),
            ("above", ball.above, reach.up),
        )
    )
    scale = _per_feature(what, "scale", 1.0 if ball.scale is None else ball.scale, n_features)
    return Tariff(nothing, one, one, below, above, scale, is_count=isinstance(ball, L0))


def _box_reach(box: Box, rows: FloatArray) -> Reach:
    low, high = (_box_side(side, rows) for side in (box.low, box.high))
    if np.any(low > high):
        row, feature = np.argwhere(low > high)[0]
        raise InvalidInput(
            "'low' of Box must not exceed 'high'."
            f" Got {low[row, feature]} > {high[row, feature]} in row {row}, feature {feature}."
        )
    rates = np.full(rows.shape[1], np.inf)
    return Reach(down=rates, up=rates, low=low, high=high, radius=np.inf, is_ball=False)


def _per_feature(what: str, name: str, value: PerFeature, n_features: int) -> FloatArray:
    array = numbers_of(f"'{name}' of {what}", value)
    if array.ndim > 1 or (array.ndim == 1 and array.shape[0] != n_features):
        raise InvalidInput(
            f"'{name}' must be one number or one per feature ({n_features})."
            f" Got shape {array.shape}."
        )
    return np.array(np.broadcast_to(array, (n_features,)))


def _box_side(side: PerFeature, rows: FloatArray) -> NDArray[np.float64]:
    array = numbers_of("A side of Box", side)
    if array.shape not in ((), rows.shape[1:], rows.shape):
        raise InvalidInput(
            f"A side of Box must have shape {rows.shape[1:]} or {rows.shape}. Got {array.shape}."
        )
    if np.isnan(array).any():
        raise InvalidInput("A side of Box must not contain NaN. Use -inf or inf for a free side.")
    return np.broadcast_to(array, rows.shape)
