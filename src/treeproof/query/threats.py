"""Threat models as TOML files: how rows may change, written down once and kept with the model."""

import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, listed, nearest
from treeproof.model.ensemble import FloatArray
from treeproof.model.rows import numeric_rows
from treeproof.model.spread import Spread
from treeproof.query.arithmetic import ARITHMETICS, Arithmetic
from treeproof.query.domain import Domain
from treeproof.query.goals import ScoreChange
from treeproof.query.names import feature_number
from treeproof.query.perturbations import (
    L0,
    L1,
    L2,
    All,
    Ball,
    Cost,
    LInf,
    Part,
    PerRow,
    warn_of_no_effect,
    with_limit,
)

SCALES = ("one", "std", "range")
Rules = dict[str, tuple[Callable[[Any], bool], str]]
"""By key, whether a value is right, and what it must do or be."""
_DIRECTIONS = {"both": (1.0, 1.0), "up": (0.0, 1.0), "down": (1.0, 0.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureThreat:
    """What a threat model says about one feature, in its own units; None where it says nothing."""

    eps: float | None = None
    low: float | None = None
    high: float | None = None
    direction: str = "both"
    frozen: bool = False
    up: float | None = None
    down: float | None = None
    fixed: float | None = None
    table: dict[str, dict[str, float]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreatModel:
    """How rows may change, as options or a file say it; see `load_threat`.

    Parameters
    ----------
    eps : float, PerRow or None
        How far every feature may move, in units of `scale`; or the column of the data that says it
        for each row.
    norm : {"LInf", "L1", "L2", "L0", "cost"}
        What is at most `eps`: every move, their sum, their Euclidean length, their number, or what
        they cost.
    scale : {"one", "std", "range"}
        Unit of all features: 1, or the spread of each over the data.
    frozen : tuple of str or int
        Features that do not move, by name or number.
    moving : tuple of str or int, optional
        The only features that move.
    relative : bool
        Units are multiples of the row's own absolute value.
    low, high : float
        Bounds of every feature.
    arithmetic : {"float64", "real"}
        What rows are, see `verify`.
    attacker_class : object
        Only rows of this class are attacked.
    score_change : float or None
        The claim, where it is that the raw score moves by at most this.
    features : dict of str to FeatureThreat
        What is different for single features, by name or number.
    domain : Domain or None
        Which rows there can be.
    also : tuple of (str, float)
        Other limits that hold besides: a norm and what it is at most, in the same units.
    """

    eps: float | PerRow | None = None
    norm: Literal["LInf", "L1", "L2", "L0", "cost"] = "LInf"
    scale: Literal["one", "std", "range"] = "one"
    frozen: tuple[str | int, ...] = ()
    moving: tuple[str | int, ...] | None = None
    relative: bool = False
    low: float = -math.inf
    high: float = math.inf
    arithmetic: Arithmetic = "float64"
    attacker_class: Any = None
    score_change: float | None = None
    features: dict[str, FeatureThreat] = field(default_factory=dict)
    domain: Domain | None = None
    also: tuple[tuple[Literal["LInf", "L1", "L2", "L0"], float], ...] = ()

    def with_options(self, **given: Any) -> "ThreatModel":
        """Return the same with some parts replaced; frozen features are added to those here.

        Parameters
        ----------
        **given
            Parts by their names.

        Returns
        -------
        ThreatModel
            The other threat model.
        """
        frozen = self.frozen + _as_names(given.pop("frozen", ()))
        moving = _as_names(given.pop("moving", ())) or self.moving
        return replace(self, frozen=frozen, moving=moving, **given)

    def perturbation(self, model: Any, X: Any = None, *, asks_radius: bool = False) -> Ball:
        """Return the perturbation of rows for `verify`, or without a radius for `radius`.

        Parameters
        ----------
        model : Model
            A loaded model, whose features are meant.
        X : array-like or data frame, optional
            Rows whose spread is the unit, for the scales "std" and "range", and whose column says
            how far each may move, where `eps` is one.
        asks_radius : bool
            Leave the radius open.

        Returns
        -------
        LInf, L1, L2, L0, Cost or All
            What may move, and how far or at what cost.
        """
        ensemble = getattr(model, "ensemble", model)
        spread = None
        if self.scale != "one":
            if X is None:
                raise InvalidInput(
                    f"The threat model's scale is {self.scale!r}, so 'X' must be the rows whose"
                    " spread is the unit. Got none."
                )
            units = Spread(ensemble.n_features)
            units.add(numeric_rows(ensemble, X, allow_empty=False))
            spread = units.of(self.scale)
        if not self.has_radius and not asks_radius:
            raise InvalidInput(
                "To verify, a threat model must say how far features move: set 'eps'. Ask"
                " treeproof.radius, with asks_radius=True here, for the radius itself."
            )
        self.warn_of_categories(ensemble.feature_names, ensemble.is_categorical)
        names, n_features = ensemble.feature_names, ensemble.n_features
        ball = self.ball(names, n_features, spread, has_radius=not asks_radius)
        if isinstance(ball.eps, PerRow) and X is not None:
            return with_limit(ball, _column_of(X, ball.eps))
        return ball

    @property
    def options(self) -> dict[str, Any]:
        """What else is asked, as options of `verify` and `radius`."""
        goal = None if self.score_change is None else ScoreChange(self.score_change)
        return {
            "arithmetic": self.arithmetic,
            "attacker_class": self.attacker_class,
            "goal": goal,
        }

    @property
    def has_radius(self) -> bool:
        """Whether it says how far features move: all of them, or some."""
        return self.eps is not None or self._has_own_eps

    @property
    def _has_own_eps(self) -> bool:
        return any(part.eps is not None for part in self.features.values())

    def warn_of_categories(self, names: Sequence[str], is_categorical: NDArray[np.bool_]) -> None:
        """Warn of moves of categorical features, which never move.

        Parameters
        ----------
        names : sequence of str
            Features of the model.
        is_categorical : bool (n_features,)
            Which of them hold categories.
        """

        def number_of(name: str | int) -> int:
            return feature_number(known_feature(name, names), len(is_categorical), names)

        # Those that the domain lets change have a unit.
        domain = self.domain or Domain()
        lists = (domain.categorical, domain.may_miss, domain.may_fill)
        changing = {number_of(name) for given in lists for name in _as_names(given)}
        for name, part in self.features.items():
            number = number_of(name)
            given = [key for key in ("eps", "low", "high") if getattr(part, key) is not None]
            given += [] if part.direction == "both" else ["direction"]
            if given and is_categorical[number] and number not in changing:
                warn_of_no_effect(f"{listed([f'{key!r}' for key in given])} of feature {name!r}")

    def ball(
        self, names: Sequence[str], n_features: int, spread: FloatArray | None, *, has_radius: bool
    ) -> Ball:
        """Return the perturbation around rows of a model, by the names of its features.

        Parameters
        ----------
        names, n_features
            Features of the model.
        spread : float64 (n_features,) or None
            Unit of each feature, for the scales "std" and "range".
        has_radius : bool
            Without one it is what is asked for; other limits stay.

        Returns
        -------
        LInf, L1, L2, L0, Cost or All
            What may move, and how far or at what cost.
        """
        first = self._part(names, n_features, spread, has_radius=has_radius)
        if not self.also:
            return first
        own: dict[str, Any] = dict.fromkeys(("eps", "up", "down", "fixed", "table"))
        plain = {name: replace(part, **own) for name, part in self.features.items()}
        others = [
            replace(self, norm=norm, eps=eps, features=plain)._part(
                names, n_features, None if norm == "L0" else spread, has_radius=True
            )
            for norm, eps in self.also
        ]
        return All(first, *others)

    def _part(
        self, names: Sequence[str], n_features: int, spread: FloatArray | None, *, has_radius: bool
    ) -> Part:
        """The perturbation without other limits."""
        numbers = {
            name: feature_number(known_feature(name, names), n_features, names)
            for name in self.features
        }
        frozen = [known_feature(name, names) for name in self.frozen]
        frozen += [numbers[name] for name, part in self.features.items() if part.frozen]
        shared: dict[str, Any] = {
            "low": self._sides("low", numbers, n_features),
            "high": self._sides("high", numbers, n_features),
            "frozen": tuple(frozen),
        }
        if self.relative:
            shared["relative"] = True
        if self.domain is not None:
            shared["domain"] = with_known_features(self.domain, names)
        if self.moving is not None:
            shared["moving"] = tuple(known_feature(name, names) for name in self.moving)
        if any(part.direction != "both" for part in self.features.values()):
            ways = np.ones((2, n_features))
            for name, part in self.features.items():
                ways[:, numbers[name]] = _DIRECTIONS[part.direction]
            shared |= {"below": ways[0], "above": ways[1]}
        eps = self.eps if has_radius else None
        if self.norm == "cost":
            return self._cost(eps, numbers, n_features, shared)
        self._refuse_prices()
        ball = _NORMS[self.norm]
        if not self._has_own_eps:
            return ball(eps, scale=spread, **shared)
        # Features with an eps of their own: everybody's eps becomes the unit, the radius is 1.
        # Without an eps for all, the others do not move.
        if isinstance(self.eps, PerRow):
            raise InvalidInput(
                f"'eps' of a threat model must be a number where features have an 'eps' of their"
                f" own. Got the column {self.eps.column!r}. Leave out the features' own."
            )
        units = (self.eps or 0.0) * (np.ones(n_features) if spread is None else spread)
        for name, part in self.features.items():
            if part.eps is not None:
                units[numbers[name]] = part.eps
        return ball(1.0 if has_radius else None, scale=units, **shared)

    def _cost(
        self, budget: float | PerRow | None, numbers: dict[str, int], n_features: int, shared: Any
    ) -> Cost:
        if self.scale != "one" or self._has_own_eps:
            raise InvalidInput(
                "A threat model of norm 'cost' has prices instead of 'scale' and 'eps' of features."
                " Set 'up', 'down' and 'fixed' of features."
            )
        prices: dict[str, Any] = {
            name: np.full(n_features, float(name != "fixed")) for name in _PRICES
        }
        table = {}
        for name, part in self.features.items():
            for key, column in prices.items():
                if getattr(part, key) is not None:
                    column[numbers[name]] = getattr(part, key)
            if part.table is not None:
                table[numbers[name]] = part.table
        for key, way in (("down", "below"), ("up", "above")):
            prices[key][shared.pop(way, np.ones(n_features)) == 0.0] = np.inf
        return Cost(budget, **prices, table=table, **shared)

    def _refuse_prices(self) -> None:
        for name, part in self.features.items():
            for key in (*_PRICES, "table"):
                if getattr(part, key) is not None:
                    raise InvalidInput(
                        f"'{key}' of feature {name!r} is a price: the threat model needs"
                        f" norm = 'cost' for it. Got norm = {self.norm!r}."
                    )

    def _sides(self, side: str, numbers: dict[str, int], n_features: int) -> Any:
        common = getattr(self, side)
        if all(getattr(part, side) is None for part in self.features.values()):
            return common
        values = np.full(n_features, float(common))
        for name, part in self.features.items():
            if getattr(part, side) is not None:
                values[numbers[name]] = getattr(part, side)
        return values


_NORMS: dict[str, type[LInf | L1 | L2 | L0]] = {"LInf": LInf, "L1": L1, "L2": L2, "L0": L0}
NORMS = (*_NORMS, "cost")
_PRICES = ("up", "down", "fixed")
_NO_FEATURES = ("rules", "allow_broken_rows")


def with_known_features(domain: Domain, names: Sequence[str]) -> Domain:
    """The same domain; numbers in place of texts that name no feature."""

    def known(value: Any) -> Any:
        if isinstance(value, dict):
            return {known_feature(name, names): item for name, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(known(item) for item in value)
        return known_feature(value, names)

    parts = {part.name: getattr(domain, part.name) for part in fields(domain)}
    named = {name: known(value) for name, value in parts.items() if name not in _NO_FEATURES}
    return replace(domain, **named)


def _as_names(given: Any) -> tuple[Any, ...]:
    """Features as a list, where there may be one alone, or a table of them."""
    return (given,) if isinstance(given, str | int) else tuple(given)


def _column_of(X: Any, eps: PerRow) -> PerRow:
    """The radii of rows in memory."""
    try:
        values = np.asarray(X[eps.column], dtype=np.float64)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"The rows must have a column {eps.column!r} of numbers, which says how far each may"
            f" move. Got {type(X).__name__} without it."
        ) from error
    return replace(eps, values=values)


def known_feature(name: str | int, names: Sequence[str]) -> str | int:
    """A feature by its name, or by its number where no feature has that name."""
    if isinstance(name, str) and name not in names and name.isdecimal():
        return int(name)
    return name


def load_threat(path: str | PathLike[str]) -> ThreatModel:
    """Read a threat model from a TOML file.

    Parameters
    ----------
    path : str or path
        The file; its keys are explained in docs/how-to/threat-models.md.

    Returns
    -------
    ThreatModel
        `ThreatModel.perturbation` gives what `verify` and `radius` take, and
        `ThreatModel.options` what else they are asked.
    """
    content = read_toml(path, "threat model")
    features = content.pop("features", {})
    if not isinstance(features, dict) or not all(isinstance(v, dict) for v in features.values()):
        raise InvalidInput(f"'features' in '{path}' must be tables, such as [features.age].")
    domain = content.pop("domain", None)
    if not isinstance(domain, dict | None):
        raise InvalidInput(f"'domain' in '{path}' must be a table, [domain]. Got {domain!r}.")
    parts = {
        str(name): FeatureThreat(**checked(part, _FEATURE_KEYS, f"features.{name}", path))
        for name, part in features.items()
    }
    if domain is not None:
        domain = Domain(**checked(domain, _DOMAIN_KEYS, "domain", path))
    given = checked(content, _KEYS, "", path)
    given |= {name: _as_names(given[name]) for name in ("frozen", "moving") if name in given}
    if "also" in given:
        given["also"] = tuple(given["also"].items())
    if isinstance(given.get("eps"), dict):
        given["eps"] = PerRow(given["eps"]["column"])
    return ThreatModel(features=parts, domain=domain, **given)


def read_toml(path: str | PathLike[str], what: str) -> dict[str, Any]:
    """Read a TOML file, or say what is wrong with it."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(
            f"The {what} '{path}' cannot be read: {error.strerror or error}."
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"The {what} '{path}' must be TOML. Got: {error}.") from error


def is_number(value: Any) -> bool:
    """Whether a value is a number, and not NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _distance(value: Any) -> bool:
    return is_number(value) and 0.0 <= value < math.inf


def _radius(value: Any) -> bool:
    if isinstance(value, dict):
        return value.keys() == {"column"} and isinstance(value["column"], str)
    return _distance(value)


def _limits(value: Any) -> bool:
    return isinstance(value, dict) and all(
        norm in _NORMS and _distance(eps) for norm, eps in value.items()
    )


def _price(value: Any) -> bool:
    return is_number(value) and bool(value >= 0.0)


def _prices(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(after, dict) and all(map(_price, after.values())) for after in value.values()
    )


def are_groups(value: Any) -> bool:
    """Whether a value is a list of lists of features."""
    return isinstance(value, list) and all(map(are_features, value))


def are_lists(value: Any) -> bool:
    """Whether a value is a table of lists."""
    return isinstance(value, dict) and all(isinstance(item, list) for item in value.values())


def _categories(value: Any) -> bool:
    return are_features(value) or (
        isinstance(value, dict)
        and all(
            isinstance(item, list) or are_lists(item) or item == "all" for item in value.values()
        )
    )


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def are_texts(value: Any) -> bool:
    """Whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def are_features(value: Any) -> bool:
    """Whether a value is a list of names or numbers of features."""
    return isinstance(value, list) and all(
        isinstance(item, str | int) and not isinstance(item, bool) for item in value
    )


def _feature_or_features(value: Any) -> bool:
    return are_features(value if isinstance(value, list) else [value])


_KEYS: Rules = {
    "eps": (_radius, 'be a number >= 0, or a column of the data such as {column = "tolerance"}'),
    "scale": (SCALES.__contains__, f"be one of {', '.join(SCALES)}"),
    "frozen": (_feature_or_features, "be a feature name or number, or a list of them"),
    "moving": (_feature_or_features, "be a feature name or number, or a list of them"),
    "low": (is_number, "be a number"),
    "high": (is_number, "be a number"),
    "arithmetic": (ARITHMETICS.__contains__, f"be one of {', '.join(ARITHMETICS)}"),
    "attacker_class": (lambda value: isinstance(value, str | int | float), "be a class label"),
    "score_change": (_distance, "be a number >= 0"),
    "norm": (NORMS.__contains__, f"be one of {', '.join(NORMS)}"),
    "relative": (_flag, "be true or false"),
    "also": (_limits, "be limits by norm, such as {L0 = 3}"),
}
_FEATURE_KEYS: Rules = {
    "eps": (_distance, "be a number >= 0"),
    "low": (is_number, "be a number"),
    "high": (is_number, "be a number"),
    "direction": (tuple(_DIRECTIONS).__contains__, f"be one of {', '.join(_DIRECTIONS)}"),
    "frozen": (_flag, "be true or false"),
    "up": (_price, "be a number >= 0"),
    "down": (_price, "be a number >= 0"),
    "fixed": (_price, "be a number >= 0"),
    "table": (_prices, "be tables of prices, such as [features.job.table.student]"),
}
_DOMAIN_KEYS: Rules = {
    "integer": (are_features, "be a list of feature names or numbers"),
    "values": (are_lists, "be lists of numbers by feature"),
    "ranges": (are_lists, "be lists of two numbers by feature"),
    "one_hot": (are_groups, "be a list of lists of feature names or numbers"),
    "at_most_one": (are_groups, "be a list of lists of feature names or numbers"),
    "categorical": (_categories, "be a list of features, or lists of categories by feature"),
    "may_miss": (are_features, "be a list of feature names or numbers"),
    "may_fill": (are_features, "be a list of feature names or numbers"),
    "rules": (are_texts, "be a list of texts"),
    "allow_broken_rows": (_flag, "be true or false"),
}


def checked(
    table: dict[str, Any], keys: Rules, where: str, path: Any, what: str = "a threat model"
) -> dict[str, Any]:
    """The values of a table by its keys, lists as tuples; what breaks its rule is refused."""
    values = {}
    for name, value in table.items():
        full = f"{where}.{name}" if where else name
        if name not in keys:
            hint = nearest(name, keys) or f" Known are {', '.join(keys)}."
            raise InvalidInput(f"'{full}' in '{path}' is no key of {what}.{hint}")
        is_valid, rule = keys[name]
        if not is_valid(value):
            raise InvalidInput(f"'{full}' in '{path}' must {rule}. Got {value!r}.")
        values[name] = tuple(value) if isinstance(value, list) else value
    return values
