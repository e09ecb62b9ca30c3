"""What may move: the threat model of a question, in one sentence and feature by feature."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import listed
from treeproof.results.numbers import number

FloatArray = NDArray[np.float64]
Parts = list[tuple[str, float | None]]
"""Pieces of a sentence; one with a factor is that many radii, and follows the reader's radius."""

_FEW = 4
"""So many features are named, each with its own distance."""

FIXED, CATEGORY = "fixed", "category, never moves"
STILL = {FIXED: 1, CATEGORY: 2}
"""Ways in which nothing moves, in the order of tables."""

_DOMAIN_NOTES = {
    "integer": "Whole numbers only",
    "values": "Listed values only",
    "may_miss": "May go missing",
    "may_fill": "May be filled in",
}
_VERBS = {"up and down": "move", "up only": "rise", "down only": "fall", "between bounds": "lie"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Threat:
    """How far each feature of a question may go.

    Attributes
    ----------
    kind : str
        Name of the perturbation: how moves of several features count together.
    names : list of str
        Features.
    ways : list of str
        In which way each of them moves: up, down, anywhere between bounds, or not.
    unit : float64 (n_features,)
        Largest distance at radius 1; 0 for what is fixed, infinite where there is no such distance.
    unit_words : list of str
        The same for readers; of costs the prices.
    low, high : float64 (1 or n_rows, n_features)
        Bounds that hold at any radius.
    notes : list of str
        What the domain adds to it, and what never moves although the model may look at it.
    is_relative : bool
        Whether units are multiples of the row's own value.
    n_missing : int64 (n_features,)
        Rows in which a feature is missing.
    own_limit : str
        What the radius or budget of each row is called, where each has its own; else empty.
    """

    kind: str
    names: list[str]
    ways: list[str]
    unit: FloatArray
    unit_words: list[str]
    low: FloatArray
    high: FloatArray
    notes: list[str]
    is_relative: bool
    n_missing: NDArray[np.int64]
    own_limit: str = ""

    @property
    def movers(self) -> list[int]:
        """Features that may move."""
        return [f for f, way in enumerate(self.ways) if way not in STILL]

    @property
    def fixed(self) -> list[str]:
        """Names of the features that may not move."""
        return [name for name, way in zip(self.names, self.ways, strict=True) if way == FIXED]


def threat_of(
    header: Mapping[str, Any], n_missing: NDArray[np.int64] | None = None
) -> Threat | None:
    """The threat model of a header; None where it is of a kind that is not known here.

    `n_missing` are the rows in which each feature is missing, where that is known.
    """
    asked, n_features = header["question"].get("perturbation") or {}, _n_features(header)
    kind = str(asked.get("name"))
    low, high = (_table(asked.get(side), n_features) for side in ("low", "high"))
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    if kind == "Box":
        down = up = np.where((low == high).all(axis=0), 0.0, np.inf)
        unit_words = ["–"] * n_features
    elif kind == "Cost":
        down, up = (_table(asked.get(way, 1.0), n_features)[0] for way in ("down", "up"))
        once = _table(asked.get("fixed", 0.0), n_features)[0]
        unit_words = [_price(*prices) for prices in zip(down, up, once, strict=True)]
        # A price has no largest distance; one that nobody can pay forbids.
        down, up = (np.where(np.isinf(price), 0.0, np.inf) for price in (down, up))
    elif kind in ("LInf", "L1", "L2", "L0"):
        scale = units_of(header)
        down, up = (
            _table(asked.get(way, 1.0), n_features)[0] * scale for way in ("below", "above")
        )
        unit_words = [number(unit, 6) for unit in np.maximum(down, up).tolist()]
    else:
        return None
    frozen = frozen_numbers(header)
    down[frozen] = up[frozen] = 0.0
    domain = asked.get("domain") or {}
    ways = _ways(header, kind, down, up, domain)
    unit = np.maximum(down, up)
    if kind == "L0":
        unit = np.where(unit > 0.0, np.inf, 0.0)
    still = [way in STILL for way in ways]
    missing = np.zeros(n_features, dtype=np.int64) if n_missing is None else n_missing
    return Threat(
        kind=kind,
        names=[feature_name(header, f) for f in range(n_features)],
        ways=ways,
        unit=np.where(still, 0.0, unit),
        unit_words=["–" if s else words for s, words in zip(still, unit_words, strict=True)],
        low=low,
        high=high,
        notes=_notes(header, ways, domain, missing),
        is_relative=bool(asked.get("relative")),
        n_missing=missing,
        own_limit=own_limit(header),
    )


def own_limit(header: Mapping[str, Any]) -> str:
    """What the radius or budget of each row is called, where each has its own; empty otherwise."""
    asked = header.get("question", {}).get("perturbation") or {}
    name = "budget" if "budget" in asked else "eps"
    limit = asked.get(name)
    if not isinstance(limit, dict):
        return ""
    column = limit.get("column")
    return f"its own {name}" + ("" if column is None else f" (column {column})")


def limit_of(header: Mapping[str, Any]) -> float | None:
    """The radius or budget of a question; None where it is asked for, or each row has its own."""
    asked = header.get("question", {}).get("perturbation") or {}
    limit = asked.get("eps", asked.get("budget"))
    return None if limit is None or isinstance(limit, dict) else float(limit)


def _n_features(header: Mapping[str, Any]) -> int:
    return int(header["model"]["n_features"])


def feature_name(header: Mapping[str, Any], feature: int) -> str:
    """Name of a feature, or its number."""
    names = header["model"].get("feature_names") or []
    return str(names[feature]) if feature < len(names) else f"feature {feature}"


def units_of(header: Mapping[str, Any]) -> FloatArray:
    """Unit of each feature in a radius."""
    given = (header["question"].get("perturbation") or {}).get("scale")
    scale = np.asarray(1.0 if given is None else given, dtype=np.float64)
    return np.broadcast_to(scale, (_n_features(header),))


def frozen_numbers(header: Mapping[str, Any]) -> list[int]:
    """Numbers of the features that a question freezes."""
    names = [str(name) for name in header["model"].get("feature_names") or []]
    frozen = (header["question"].get("perturbation") or {}).get("frozen") or []
    # A name may look like a number, so names come first, as where the question was asked.
    return [names.index(str(item)) if str(item) in names else int(item) for item in frozen]


def _table(value: Any, n_features: int) -> FloatArray:
    """Numbers of a description, one line for all rows or one for each."""
    lines = np.atleast_2d(np.asarray(np.nan if value is None else value, dtype=np.float64))
    return np.array(np.broadcast_to(lines, (len(lines), n_features)))


def _price(down: float, up: float, once: float) -> str:
    """Prices of one feature in words."""
    if up == down or math.inf in (up, down):
        # What cannot move in one direction says so in another column.
        words = f"{number(min(up, down))} per 1"
    else:
        words = f"up {number(up)}, down {number(down)} per 1"
    return f"{number(once)}, then {words}" if once else words


def _ways(
    header: Mapping[str, Any],
    kind: str,
    down: FloatArray,
    up: FloatArray,
    domain: dict[str, Any],
) -> list[str]:
    """In which way each feature moves, in words."""
    if kind == "Box":
        ways = np.where(up > 0.0, "between bounds", FIXED)
    else:
        ways = np.select(
            [(down == 0.0) & (up == 0.0), down == 0.0, up == 0.0],
            [FIXED, "up only", "down only"],
            "up and down",
        )
    words = [str(way) for way in ways]
    may_change = {int(entry[0]) for entry in domain.get("categorical", [])}
    for feature in header["model"].get("categorical") or []:
        if feature not in may_change:
            words[feature] = CATEGORY
        elif words[feature] != FIXED:
            words[feature] = "category, may change"
    roles = [(int(entry[0]), "one of listed values") for entry in domain.get("values", [])]
    roles += [(int(f), "whole numbers") for f in domain.get("integer", [])]
    roles += [(int(f), "one of a group") for group, _ in domain.get("groups", []) for f in group]
    for feature, role in roles:
        if words[feature] != FIXED:
            words[feature] = f"{words[feature]}, {role}" if role == "whole numbers" else role
    return words


def _notes(
    header: Mapping[str, Any], ways: list[str], domain: dict[str, Any], missing: NDArray[np.int64]
) -> list[str]:
    """What never moves although the model may look at it, and what the domain allows besides."""

    def those(way: str) -> list[str]:
        return [feature_name(header, f) for f, other in enumerate(ways) if other == way]

    said = []
    if "categorical" not in header["model"]:
        said.append("The run does not say which features are categories; those never move.")
    categories, changing = those(CATEGORY), those("category, may change")
    if len(categories) == 1:
        said.append(f"A category never moves: {categories[0]}.")
    elif categories:
        said.append(f"Categories never move: {listed(categories)}.")
    if changing:
        said.append(f"Categories may change: {listed(changing)}.")
    if domain.get("groups"):
        said.append("Of each group of columns one changes place with another.")
    for key, words in _DOMAIN_NOTES.items():
        # Numbers of features, alone or first of what is said of them.
        numbers = [entry[0] if isinstance(entry, list) else entry for entry in domain.get(key, [])]
        features = [feature_name(header, int(f)) for f in numbers if ways[int(f)] != FIXED]
        if features:
            said.append(f"{words}: {listed(features)}.")
    if domain.get("rules"):
        said.append(f"Rows must keep {listed(domain['rules'])}.")
    if domain.get("allow_broken_rows"):
        said.append("Rows that are not of the domain themselves were asked about, too.")
    moving = [f for f, way in enumerate(ways) if way not in STILL]
    n_still = int(missing[[f for f in moving if f not in domain.get("may_fill", [])]].sum())
    if n_still:
        said.append(f"Where it is missing ({n_still:,} times), what moves stays missing.")
    return said


def movement(threat: Threat, start: float) -> Parts:
    """Say what may move, and how much of the rest does not, after the word 'however'."""
    movers, n = threat.movers, len(threat.names)
    if not movers:
        return [("nothing moves: no feature may", None)]
    verbs = {_verb(threat.ways[f]) for f in movers}
    is_box = threat.kind == "Box"
    treatments = {bounds_of(threat, f) if is_box else float(threat.unit[f]) for f in movers}
    is_mixed = len(verbs) > 1 or len(treatments) > 1
    parts: Parts = []
    if threat.kind not in ("Box", "LInf"):
        parts += _together(threat, start)
    elif len(movers) <= _FEW and (is_mixed or len(movers) < n):
        for k, feature in enumerate(movers):
            joint = "" if k == 0 else " and " if k == len(movers) - 1 else ", "
            parts += [(f"{joint}{threat.names[feature]} ", None), *_reach(threat, feature, start)]
    else:
        verb = min(verbs) if len(verbs) == 1 else "move"
        verb = _third_person(verb) if len(movers) == n else verb
        parts.append((f"{_subject(threat)} {verb} ", None))
        if is_box:
            parts.append((f"anywhere {_where(treatments)}", None))
        else:
            parts += _by_up_to(threat, treatments, start, "its" if len(movers) == n else "their")
        if len(verbs) > 1:
            parts.append((", some one way only", None))
    if threat.fixed:
        few = len(threat.fixed) < 3
        words = " and ".join(threat.fixed) if few else f"{len(threat.fixed):,} of {n:,} features"
        parts.append((f", with {words} fixed", None))
    return parts


def _subject(threat: Threat) -> str:
    movers, n = threat.movers, len(threat.names)
    if len(movers) == n:
        return "every feature"
    if len(movers) <= _FEW:
        return ", ".join(threat.names[f] for f in movers)
    return f"{len(movers):,} of {n:,} features"


def _together(threat: Threat, start: float) -> Parts:
    """The sentence where only all moves together are limited."""
    at_most = _amount(threat, start)
    if threat.kind == "L0":
        return [("at most ", None), at_most, (f" of {len(threat.movers):,} features change", None)]
    who = "every feature changes" if len(threat.movers) == len(threat.names) else None
    who = who or f"{_subject(threat)} change"
    if threat.kind == "Cost":
        return [(f"{who} at a cost of at most ", None), at_most]
    what = (
        "moves that add up to at most " if threat.kind == "L1" else "moves of a length of at most "
    )
    units = {float(threat.unit[f]) for f in threat.movers}
    own = "" if units == {1.0} and not threat.is_relative else " of their own units"
    return [(f"{who}, by {what}", None), at_most, (own, None)]


def _reach(threat: Threat, feature: int, start: float) -> Parts:
    verb = _verb(threat.ways[feature])
    if threat.kind == "Box":
        return [(f"lies anywhere {_where([bounds_of(threat, feature)])}", None)]
    if verb == "change":
        return [("changes", None)]
    distance = _by_up_to(threat, [float(threat.unit[feature])], start, "its")
    return [(f"{_third_person(verb)} ", None), *distance]


def _by_up_to(threat: Threat, units: Iterable[Any], start: float, whose: str) -> Parts:
    """The distance at the radius: one that all have, or in units of each."""
    given = list(units)
    own = "value" if threat.is_relative else "unit"
    own += "s" if whose == "their" else ""
    if len(given) == 1:
        rest = f" times {whose} own {own}" if threat.is_relative else ""
        return [("by up to ", None), _amount(threat, start, given[0]), (rest, None)]
    return [("by up to ", None), _amount(threat, start), (f" of {whose} own {own}", None)]


def _amount(threat: Threat, start: float, factor: float = 1.0) -> tuple[str, float | None]:
    """A multiple of the radius, which readers may change, or of each row's own."""
    if not threat.own_limit:
        return number(start * factor), factor
    times = "" if factor == 1.0 else f"{number(factor)} times "
    name = "budget" if threat.kind == "Cost" else "eps"
    return f"{times}the row’s own {name}", None


def _where(bounds: Iterable[Any]) -> str:
    given = list(bounds)
    return (given[0] or "at all") if len(given) == 1 else "within the bounds in the table"


def _verb(way: str) -> str:
    return _VERBS.get(way.removesuffix(", whole numbers"), "change")


def _third_person(verb: str) -> str:
    return f"{verb}s"


def stillness(threat: Threat) -> list[str]:
    """Say what the sentence leaves out: what never moves, what may happen besides, and bounds."""
    bounded = {f: words for f in threat.movers if (words := bounds_of(threat, f))}
    if threat.kind == "Box" or not bounded:
        return threat.notes
    if len(bounded) == len(threat.movers) and len(set(bounded.values())) == 1:
        said = f"what moves stays {min(bounded.values())}"
    elif len(bounded) <= _FEW:
        said = ", ".join(f"{threat.names[f]} {words}" for f, words in bounded.items())
    else:
        said = f"those of {len(bounded):,} features are in the table"
    return [*threat.notes, f"Bounds: {said}."]


def bounds_of(threat: Threat, feature: int) -> str:
    """Bounds of a feature in words; empty where there are none."""
    low, high = threat.low[:, feature], threat.high[:, feature]
    if np.isinf(low).all() and np.isinf(high).all():
        return ""
    if np.any(low != low[0]) or np.any(high != high[0]):
        return "within bounds of its own row"
    ends = [number(float(side[0]), 6) for side in (low, high)]
    if np.isinf(low[0]):
        return f"up to {ends[1]}"
    return f"from {ends[0]}" if np.isinf(high[0]) else f"from {ends[0]} to {ends[1]}"


def threat_lines(header: Mapping[str, Any]) -> list[str]:
    """Lines of a summary that say what may move; none where it is everything by the radius."""
    if not {"question", "model"} <= header.keys() or not header["question"].get("perturbation"):
        return []
    threat = threat_of(header)
    if threat is None:
        return []
    limit = limit_of(header)
    start = 1.0 if limit is None else limit
    said = stillness(threat)
    is_plain = threat.kind == "LInf" and set(threat.ways) == {"up and down"}
    is_plain &= not threat.is_relative and not threat.own_limit
    if is_plain and not said and np.all(threat.unit == 1.0):
        return []
    measure = "cost" if threat.kind == "Cost" else "radius"
    within = f"within {measure} {number(start)}"
    if threat.own_limit or threat.kind == "Box":
        within = f"each row within {threat.own_limit}" if threat.own_limit else "in the box"
    sentence = "".join(text for text, _ in movement(threat, start))
    return [f"{within}: {sentence}", *(text.rstrip(".") for text in said)]
