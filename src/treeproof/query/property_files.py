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
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from os import PathLike
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
from treeproof.query.threats import (
    Rules,
    are_features,
    are_groups,
    are_lists,
    are_texts,
    checked,
    is_number,
    known_feature,
    read_toml,
    with_known_features,
)

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


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_table, value))


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_number, value))


_GROUPS = (are_groups, "list groups of features, such as [['red', 'green']]")
_LISTS = (are_lists, "be a table with a list for each feature")
_FEATURES = (are_features, "list features")
_TYPES: Rules = {
    "integer": _FEATURES,
    "values": _LISTS,
    "categorical": _LISTS,
    "one_hot": _GROUPS,
    "at_most_one": _GROUPS,
    "rules": (are_texts, "be a list of texts"),
}
_KEYS: Rules = _TYPES | {
    "domain": (_is_table, "be a table of features"),
    "missing": _FEATURES,
    "property": (_are_tables, "have a [[property]] for each claim"),
}
_NAMES = {"features", "protected"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyFile:
    """What a file of properties says."""

    claims: tuple[tuple[str, Property], ...] = ()
    """Names and properties, in the order of the file."""
    domain: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Ends of features; of all others by the name '*'."""
    missing: tuple[str | int, ...] = ()
    types: Domain = field(default_factory=Domain)

    def box(self, names: Sequence[str], n_features: int) -> Box:
        """The domain of a model, by the names of its features."""
        low, high = np.empty(n_features), np.empty(n_features)
        low[:], high[:] = self.domain.get("*", (-math.inf, math.inf))
        for name, ends in self.domain.items():
            if name != "*":
                number = feature_number(known_feature(name, names), n_features, names)
                low[number], high[number] = ends
        types = replace(self.types, may_miss=self.missing)
        is_plain = types == Domain()
        return Box(low, high, None if is_plain else with_known_features(types, names))


def load_properties(path: str | PathLike[str]) -> PropertyFile:
    """Read a file of properties, or say what is wrong with it."""
    file, tables = _read(path)
    if not tables:
        raise InvalidInput(f"'{path}' must have a [[property]] for each claim. Got none.")
    claims = tuple(_claim(dict(table), number, path) for number, table in enumerate(tables))
    return replace(file, claims=claims)


def load_domain(path: str | PathLike[str] | None) -> PropertyFile:
    """Read the domain of a file that need not have properties; without a file, every row."""
    return PropertyFile() if path is None else _read(path)[0]


def _read(path: str | PathLike[str]) -> tuple[PropertyFile, Sequence[dict[str, Any]]]:
    """What a file says of rows, and its tables of properties."""
    document = checked(read_toml(path, "property file"), _KEYS, "", path, "a property file")
    ends: Rules = dict.fromkeys(
        document.get("domain", {}), (_is_pair, "be two numbers, such as [0, 1]")
    )
    domain = checked(document.get("domain", {}), ends, "domain", path)
    file = PropertyFile(
        domain={name: (float(low), float(high)) for name, (low, high) in domain.items()},
        missing=document.get("missing", ()),
        types=Domain(**{key: document[key] for key in _TYPES if key in document}),
    )
    return file, document.get("property", ())


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
