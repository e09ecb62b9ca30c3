"""Properties as TOML files: a domain and claims about it, written down once and kept with a model.

```toml
missing = ["income"]    # may be missing
integer = ["age"]       # whole numbers
one_hot = [["red", "green", "blue"]]    # exactly one column is 1; or at_most_one
rules = ["open <= total"]    # relations that every row obeys

[domain]                # low and high of features; "*" for all others
"*" = [0.0, 1.0]
age = [18, 90]

[values]                # the only values of a feature; of categories, [categorical]
term = [36, 60]

[[property]]
kind = "Fair"
name = "sex does not decide"
protected = "sex"
```
"""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from treeproof.errors import InvalidInput, nearest
from treeproof.query.domain import Domain
from treeproof.query.names import feature_number
from treeproof.query.perturbations import Box
from treeproof.query.properties import (
    Fair,
    HighConfidence,
    Monotone,
    Property,
    Redundant,
    ScoreRange,
    SmallNeighbourhood,
    Stable,
)
from treeproof.query.threats import known_feature

KINDS: dict[str, type[Property]] = {
    kind.__name__: kind
    for kind in (
        Fair,
        Monotone,
        Stable,
        HighConfidence,
        Redundant,
        SmallNeighbourhood,
        ScoreRange,
    )
}
_GROUPS = ("one_hot", "at_most_one")
_KEYS = ("domain", "missing", "integer", "values", "categorical", *_GROUPS, "rules", "property")
_NAMES = {"features", "protected"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyFile:
    """What a file of properties says."""

    claims: tuple[tuple[str, Property], ...]
    """Names and properties, in the order of the file."""
    domain: dict[str, tuple[float, float]]
    missing: tuple[str | int, ...] = ()
    integer: tuple[str | int, ...] = ()
    values: dict[str, list[Any]] = field(default_factory=dict)
    categorical: dict[str, list[Any]] = field(default_factory=dict)
    one_hot: tuple[tuple[str | int, ...], ...] = ()
    at_most_one: tuple[tuple[str | int, ...], ...] = ()
    rules: tuple[str, ...] = ()

    def box(self, names: Sequence[str], n_features: int) -> Box:
        """The domain of a model, by the names of its features."""
        low, high = np.empty(n_features), np.empty(n_features)
        low[:], high[:] = self.domain.get("*", (-math.inf, math.inf))
        for name, ends in self.domain.items():
            if name != "*":
                number = feature_number(known_feature(name, names), n_features, names)
                low[number], high[number] = ends
        known = partial(known_feature, names=names)

        def numbers(listed: tuple[str | int, ...]) -> list[str | int]:
            return [known(name) if isinstance(name, str) else name for name in listed]

        types = Domain(
            integer=numbers(self.integer),
            values={known(name): values for name, values in self.values.items()},
            categorical={known(name): codes for name, codes in self.categorical.items()},
            one_hot=[numbers(group) for group in self.one_hot],
            at_most_one=[numbers(group) for group in self.at_most_one],
            rules=self.rules,
        )
        is_plain = types == Domain(integer=[], one_hot=[], at_most_one=[])
        return Box(low, high, domain=None if is_plain else types)


def load_properties(path: str | PathLike[str]) -> PropertyFile:
    """Read a file of properties, or say what is wrong with it."""
    document = _read(path)
    tables = document.get("property")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InvalidInput(f"'{path}' must have a [[property]] for each claim. Got none.")
    claims = tuple(_claim(dict(table), number, path) for number, table in enumerate(tables))
    return PropertyFile(claims=claims, **_rows(document, path))


def load_domain(path: str | PathLike[str] | None) -> PropertyFile:
    """Read the domain of a file that need not have properties; without a file, every row."""
    if path is None:
        return PropertyFile(claims=(), domain={})
    return PropertyFile(claims=(), **_rows(_read(path), path))


def _read(path: str | PathLike[str]) -> dict[str, Any]:
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(
            f"The property file '{path}' cannot be read: {error.strerror}."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The property file '{path}' is not valid TOML: {error}.") from error
    for key in document:
        if key not in _KEYS:
            raise InvalidInput(
                f"'{key}' in '{path}' is no key of a property file.{_near(key, _KEYS)}"
            )
    return document


def _rows(document: dict[str, Any], path: Any) -> dict[str, Any]:
    """Which rows a file is about."""
    return {
        "domain": _domain(document.get("domain", {}), path),
        "missing": _features(document, "missing", path),
        "integer": _features(document, "integer", path),
        "values": _lists(document, "values", path),
        "categorical": _lists(document, "categorical", path),
        **{key: _groups(document, key, path) for key in _GROUPS},
        "rules": _rules(document, path),
    }


def _rules(document: dict[str, Any], path: Any) -> tuple[str, ...]:
    listed = document.get("rules", [])
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise InvalidInput(f"'rules' in '{path}' must be a list of texts. Got {listed!r}.")
    return tuple(listed)


def _groups(document: dict[str, Any], key: str, path: Any) -> tuple[tuple[str | int, ...], ...]:
    listed = document.get(key, [])
    if not isinstance(listed, list) or not all(isinstance(group, list) for group in listed):
        raise InvalidInput(
            f"'{key}' in '{path}' must list groups of features, such as [['red', 'green']]."
            f" Got {listed!r}."
        )
    return tuple(_features({key: group}, key, path) for group in listed)


def _features(document: dict[str, Any], key: str, path: Any) -> tuple[str | int, ...]:
    listed = document.get(key, [])
    if not isinstance(listed, list) or not all(isinstance(name, str | int) for name in listed):
        raise InvalidInput(f"'{key}' in '{path}' must list features. Got {listed!r}.")
    return tuple(listed)


def _lists(document: dict[str, Any], key: str, path: Any) -> dict[str, list[Any]]:
    table = document.get(key, {})
    if not isinstance(table, dict) or not all(isinstance(v, list) for v in table.values()):
        raise InvalidInput(
            f"'{key}' in '{path}' must be a table with a list for each feature. Got {table!r}."
        )
    return table


def _domain(table: Any, path: Any) -> dict[str, tuple[float, float]]:
    if not isinstance(table, dict):
        raise InvalidInput(f"'domain' in '{path}' must be a table of features. Got {table!r}.")
    domain = {}
    for name, ends in table.items():
        is_pair = isinstance(ends, list) and len(ends) == 2
        if not is_pair or not all(
            isinstance(end, int | float) and not isinstance(end, bool) for end in ends
        ):
            raise InvalidInput(
                f"'domain.{name}' in '{path}' must be two numbers, such as [0, 1]. Got {ends!r}."
            )
        domain[name] = float(ends[0]), float(ends[1])
    return domain


def _claim(table: dict[str, Any], number: int, path: Any) -> tuple[str, Property]:
    where = f"property {number + 1} in '{path}'"
    kind = table.pop("kind", None)
    if kind not in KINDS:
        near = _near(str(kind), KINDS)
        raise InvalidInput(f"'kind' of {where} must be one of {', '.join(KINDS)}.{near}")
    known = {item.name: item for item in fields(KINDS[kind])}
    name = str(table.pop("name", ""))
    for key in table:
        if key not in known:
            raise InvalidInput(f"'{key}' of {where} is no option of {kind}.{_near(key, known)}")
    for key, item in known.items():
        if key not in table and item.default is MISSING:
            raise InvalidInput(f"'{key}' of {where} is missing; {kind} needs it.")
    options = {key: _plain(value) if key in _NAMES else value for key, value in table.items()}
    try:
        claim = KINDS[kind](**options)
    except InvalidInput as error:
        raise InvalidInput(f"{where[0].upper()}{where[1:]}: {error}") from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"The options of {where} have the wrong type: {error}.") from error
    return name or f"{number + 1} {kind}", claim


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _near(word: str, known: Any) -> str:
    return nearest(word, known) or f" Known are {', '.join(known)}."
