"""Threat models as TOML files: how rows may change, written down once and kept with the model."""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from treeproof.errors import InvalidInput
from treeproof.model.ensemble import FloatArray
from treeproof.query.arithmetic import ARITHMETICS, Arithmetic
from treeproof.query.names import feature_number
from treeproof.query.perturbations import LInf

SCALES = ("one", "std", "range")
_DIRECTIONS = {"both": (1.0, 1.0), "up": (0.0, 1.0), "down": (1.0, 0.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureThreat:
    """What a threat model says about one feature, in its own units; None where it says nothing."""

    eps: float | None = None
    low: float | None = None
    high: float | None = None
    direction: str = "both"
    frozen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreatModel:
    """How rows may change, as options or a file say it."""

    eps: float | None = None
    """How far every feature may move, in units of `scale`: 1, or each feature's spread."""
    scale: Literal["one", "std", "range"] = "one"
    frozen: tuple[str | int, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    arithmetic: Arithmetic = "float64"
    attacker_class: Any = None
    """Only rows of this class are attacked."""
    score_change: float | None = None
    """The claim, where it is that the raw score moves by at most this."""
    features: dict[str, FeatureThreat] = field(default_factory=dict)
    """What is different for single features, by name or number."""

    def with_options(self, **given: Any) -> "ThreatModel":
        """Return the same with some parts replaced; frozen features are added to those here."""
        frozen = self.frozen + tuple(given.pop("frozen", ()))
        return replace(self, frozen=frozen, **given)

    def ball(
        self, names: Sequence[str], n_features: int, spread: FloatArray | None, *, has_radius: bool
    ) -> LInf:
        """Return the perturbation around rows of a model, by the names of its features.

        `spread` is the unit of each feature, for the scales "std" and "range". Without a radius it
        is what is asked for.
        """
        numbers = {
            name: feature_number(known_feature(name, names), n_features, names)
            for name in self.features
        }
        frozen = [known_feature(name, names) for name in self.frozen]
        frozen += [numbers[name] for name, part in self.features.items() if part.frozen]
        shared = {
            "low": self._sides("low", numbers, n_features),
            "high": self._sides("high", numbers, n_features),
            "frozen": tuple(frozen),
        }
        if any(part.direction != "both" for part in self.features.values()):
            ways = np.ones((2, n_features))
            for name, part in self.features.items():
                ways[:, numbers[name]] = _DIRECTIONS[part.direction]
            shared |= {"below": ways[0], "above": ways[1]}
        if all(part.eps is None for part in self.features.values()):
            return LInf(self.eps if has_radius else None, scale=spread, **shared)
        # Features with an eps of their own: everybody's eps becomes the unit, the radius is 1.
        if self.eps is None:
            raise InvalidInput(
                "A threat model with an 'eps' for single features must have one for all others,"
                " too. Set 'eps' (0 freezes the others)."
            )
        units = self.eps * (np.ones(n_features) if spread is None else spread)
        for name, part in self.features.items():
            if part.eps is not None:
                units[numbers[name]] = part.eps
        return LInf(1.0 if has_radius else None, scale=units, **shared)

    def _sides(self, side: str, numbers: dict[str, int], n_features: int) -> Any:
        common = getattr(self, side)
        if all(getattr(part, side) is None for part in self.features.values()):
            return common
        values = np.full(n_features, float(common))
        for name, part in self.features.items():
            if getattr(part, side) is not None:
                values[numbers[name]] = getattr(part, side)
        return values


def known_feature(name: str | int, names: Sequence[str]) -> str | int:
    """A feature by its name, or by its number where no feature has that name."""
    if isinstance(name, str) and name not in names and name.isdecimal():
        return int(name)
    return name


def load_threat(path: str | PathLike[str]) -> ThreatModel:
    """Read a threat model from a TOML file, see docs/how-to/threat-models-file.md."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(
            f"The threat model '{path}' cannot be read: {error.strerror or error}."
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput(f"The threat model '{path}' must be TOML. Got: {error}.") from error
    features = content.pop("features", {})
    if not isinstance(features, dict) or not all(isinstance(v, dict) for v in features.values()):
        raise InvalidInput(f"'features' in '{path}' must be tables, such as [features.age].")
    if "domain" in content:  # as version 0.1.0 called it
        if "arithmetic" in content:
            raise InvalidInput(
                f"'{path}' must have 'arithmetic' or its old name 'domain'. Got both."
            )
        content["arithmetic"] = content.pop("domain")
    checked = {
        str(name): FeatureThreat(**_checked(part, _FEATURE_KEYS, f"features.{name}", path))
        for name, part in features.items()
    }
    return ThreatModel(features=checked, **_checked(content, _KEYS, "", path))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _distance(value: Any) -> bool:
    return _number(value) and 0.0 <= value < math.inf


def _features(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, str | int) and not isinstance(item, bool) for item in value
    )


_KEYS: dict[str, tuple[Any, str]] = {
    "eps": (_distance, "a number >= 0"),
    "scale": (SCALES.__contains__, f"one of {', '.join(SCALES)}"),
    "frozen": (_features, "a list of feature names or numbers"),
    "low": (_number, "a number"),
    "high": (_number, "a number"),
    "arithmetic": (ARITHMETICS.__contains__, f"one of {', '.join(ARITHMETICS)}"),
    "attacker_class": (lambda value: isinstance(value, str | int | float), "a class label"),
    "score_change": (_distance, "a number >= 0"),
}
_FEATURE_KEYS: dict[str, tuple[Any, str]] = {
    "eps": (_distance, "a number >= 0"),
    "low": (_number, "a number"),
    "high": (_number, "a number"),
    "direction": (_DIRECTIONS.__contains__, f"one of {', '.join(_DIRECTIONS)}"),
    "frozen": (lambda value: isinstance(value, bool), "true or false"),
}


def _checked(
    table: dict[str, Any], keys: dict[str, tuple[Any, str]], where: str, path: Any
) -> dict[str, Any]:
    values = {}
    for name, value in table.items():
        full = f"{where}.{name}" if where else name
        if name not in keys:
            near = get_close_matches(name, keys, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else f" Known are {', '.join(keys)}."
            raise InvalidInput(f"'{full}' in '{path}' is no key of a threat model.{hint}")
        is_valid, rule = keys[name]
        if isinstance(value, dict | list) is not (name == "frozen" and not where) or not is_valid(
            value
        ):
            raise InvalidInput(f"'{full}' in '{path}' must be {rule}. Got {value!r}.")
        values[name] = tuple(value) if isinstance(value, list) else value
    return values
