"""What may move: the threat model of a question, in one sentence and feature by feature."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import listed
from treeproof.results.numbers import digits_above, digits_below, exactly, number

FloatArray = NDArray[np.float64]
Parts = list[tuple[str, float | None]]
"""Pieces of a sentence; one with a factor is that many radii, and follows the reader's radius."""

_FEW = 4
"""So many features are named, each with its own distance."""

FIXED, CATEGORY = "fixed", "category, never moves"
STILL = {FIXED: 1, CATEGORY: 2}
"""Ways in which nothing moves, in the order of tables."""

CHANGES, GROUP = "category, may change", "one of a group"
CHOICES = {CHANGES, GROUP}
"""Ways of changing that are no distances."""

OWN_BOUNDS = "within bounds of its own row"
_MISSING_NOTES = {"may_miss": "May go missing", "may_fill": "May be filled in"}
_VERBS = {"up and down": "move", "up only": "rise", "down only": "fall", "between bounds": "lie"}
_ROUNDED = 2.0**-51
"""Relative distance of a product of doubles to the number that it stands for."""

_CLOSE = 1e-6
"""Relative distance at which a side of a box is the value of its row, rounded by a model."""


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
    down, up : float64 (n_features,)
        Largest distances at radius 1; 0 for what does not move that way, infinite where there is no
        such distance.
    unit_words : list of str
        The same for readers; of costs the prices.
    low, high : float64 (1 or n_rows, n_features)
        Bounds that hold at any radius.
    notes : list of str
        What the domain adds to it, and what never moves although the model may look at it.
    is_relative : bool
        Whether units are multiples of the row's own value.
    n_missing : int64 (n_features,)
        Attacked rows in which a feature is missing.
    groups : list of list of int
        Columns that change together, as one feature.
    own_limit : str
        What the radius or budget of each row is called, where each has its own; else empty.
    also : list of str
        Other limits that hold besides.
    """

    kind: str
    names: list[str]
    ways: list[str]
    down: FloatArray
    up: FloatArray
    unit_words: list[str]
    low: FloatArray
    high: FloatArray
    notes: list[str]
    is_relative: bool
    n_missing: NDArray[np.int64]
    groups: list[list[int]]
    own_limit: str = ""
    also: list[str] = field(default_factory=list)

    def reach(self, feature: int) -> tuple[float, float]:
        """How far a feature goes down and up at radius 1; twice the same where one way only."""
        down, up = float(self.down[feature]), float(self.up[feature])
        return (down or up), (up or down)

    @property
    def movers(self) -> list[int]:
        """Features that may move."""
        return [f for f, way in enumerate(self.ways) if way not in STILL]

    @property
    def n_moving(self) -> int:
        """Number of features that may move; the columns of a group are one."""
        grouped = {f for group in self.groups for f in group}
        n_groups = sum(self.ways[group[0]] not in STILL for group in self.groups)
        return n_groups + sum(f not in grouped for f in self.movers)

    @property
    def fixed(self) -> list[str]:
        """Names of the features that may not move."""
        return [name for name, way in zip(self.names, self.ways, strict=True) if way == FIXED]


def threat_of(
    header: Mapping[str, Any],
    rows: FloatArray | None = None,
    attacked: NDArray[np.bool_] | None = None,
) -> Threat | None:
    """The threat model of a header; None where it is of a kind that is not known here.

    `rows` are those that were asked about, where they are known, and `attacked` says which of them
    may change: what is missing in them stays so.
    """
    asked, n_features = header["question"].get("perturbation") or {}, _n_features(header)
    kind, domain = str(asked.get("name")), asked.get("domain") or {}
    low, high = (_table(asked.get(side), n_features) for side in ("low", "high"))
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    if kind == "Box":
        down = up = np.where(_stays_in_box(low, high, rows), 0.0, np.inf)
        unit_words = ["–"] * n_features
    elif kind == "Cost":
        down, up, unit_words = _prices(header)
    elif kind in ("LInf", "L1", "L2", "L0"):
        down, up, unit_words = _distances(header)
    else:
        return None
    frozen = frozen_numbers(header)
    down[frozen] = up[frozen] = 0.0
    for feature, least, most in domain.get("ranges", []):
        low[:, feature] = np.maximum(low[:, feature], float(least))
        high[:, feature] = np.minimum(high[:, feature], float(most))
    ways = _ways(header, kind, down, up, domain)
    still = [way in STILL for way in ways]
    missing = np.zeros(n_features, dtype=np.int64)
    if rows is not None:
        missing = np.isnan(rows if attacked is None else rows[attacked]).sum(axis=0)
    return Threat(
        kind=kind,
        names=[feature_name(header, f) for f in range(n_features)],
        ways=ways,
        down=np.where(still, 0.0, down),
        up=np.where(still, 0.0, up),
        unit_words=["–" if s else words for s, words in zip(still, unit_words, strict=True)],
        low=low,
        high=high,
        notes=_notes(header, ways, domain, missing),
        is_relative=bool(asked.get("relative")),
        n_missing=missing,
        groups=[[int(f) for f in group] for group, _ in domain.get("groups", [])],
        own_limit=own_limit(header),
        also=[_other_limit(part) for part in asked.get("also", [])],
    )


_LIMITS = {
    "LInf": "no move is larger than {by}",
    "L1": "all moves add up to at most {by}",
    "L2": "the Euclidean length of all moves is at most {by}",
    "L0": "at most {by} features change",
    "Cost": "all changes cost at most {by}",
}


def _other_limit(part: Mapping[str, Any]) -> str:
    """A limit that holds besides the first one."""
    by = reach_words(float(part["budget" if part["name"] == "Cost" else "eps"]))
    said = _LIMITS[part["name"]].format(by=by)
    plain = {
        "scale": (None, 1.0),
        "below": (1.0,),
        "above": (1.0,),
        "low": ("-inf",),
        "high": ("inf",),
    }
    has_own = any(part.get(name, usual[0]) not in usual for name, usual in plain.items())
    return f"{said}, in units, directions or bounds of its own" if has_own else said


def _stays_in_box(low: FloatArray, high: FloatArray, rows: FloatArray | None) -> NDArray[np.bool_]:
    """Which features a box leaves as they are in the rows; other points of a box move them."""
    is_point = (low == high).all(axis=0)
    if rows is None or len(low) not in (1, len(rows)):
        # One point for all rows is what they are set to; one for each is its own value.
        return is_point & (len(low) > 1)
    same = np.isclose(rows, low, rtol=_CLOSE, atol=0.0) | np.isnan(rows)
    return np.asarray(is_point & same.all(axis=0))


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
    # A name may look like a number, so that names come first; numbers are numbers.
    return [names.index(item) if item in names else int(item) for item in frozen]


def _table(value: Any, n_features: int) -> FloatArray:
    """Numbers of a description, one line for all rows or one for each."""
    lines = np.atleast_2d(np.asarray(np.nan if value is None else value, dtype=np.float64))
    return np.array(np.broadcast_to(lines, (len(lines), n_features)))


def _distances(header: Mapping[str, Any]) -> tuple[FloatArray, FloatArray, list[str]]:
    """How far each feature goes down and up at radius 1, and the same in words."""
    asked, scale = header["question"]["perturbation"], units_of(header)
    down, up = (_table(asked.get(way, 1.0), len(scale))[0] * scale for way in ("below", "above"))
    if asked["name"] == "L0":
        # It does not matter how far a feature goes, only which way: it counts as one change.
        reach = [np.where(side > 0.0, scale, 0.0) for side in (down, up)]
        said = [f"counts {number(1.0 / unit)}" if unit else "–" for unit in scale.tolist()]
        return reach[0], reach[1], said
    return down, up, [_unit(*sides) for sides in zip(down.tolist(), up.tolist(), strict=True)]


def _unit(down: float, up: float) -> str:
    """How far a feature goes at radius 1, in words; of one way the other column says which."""
    if down in (up, 0.0) or up == 0.0:
        return number(digits_below(max(down, up), 6), 6)
    return f"{number(digits_below(down, 6), 6)} down, {number(digits_below(up, 6), 6)} up"


def _prices(header: Mapping[str, Any]) -> tuple[FloatArray, FloatArray, list[str]]:
    """Whether each feature goes down and up at any price, and the prices in words.

    Of another choice there is one price, or a list of them.
    """
    asked, n_features = header["question"]["perturbation"], _n_features(header)
    down, up, once = (
        _table(asked.get(name, default), n_features)[0]
        for name, default in (("down", 1.0), ("up", 1.0), ("fixed", 0.0))
    )
    domain = asked.get("domain") or {}
    choices = {int(entry[0]) for entry in domain.get("categorical", [])}
    choices |= {int(f) for group, _ in domain.get("groups", []) for f in group}
    in_table = {int(f) for line in asked.get("table") or [] for f in line[0]}
    said = []
    for feature, prices in enumerate(zip(down.tolist(), up.tolist(), once.tolist(), strict=True)):
        words = _price(*prices)
        if feature in choices:
            words = f"{number(prices[2] + min(prices[:2]))} per change"
        said.append(f"as listed, else {words}" if feature in in_table else words)
    # A price has no largest distance; one that nobody can pay forbids.
    reach = [np.where(np.isinf(price), 0.0, np.inf) for price in (down, up)]
    return reach[0], reach[1], said


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
            words[feature] = CHANGES
    roles = [(int(entry[0]), "one of listed values") for entry in domain.get("values", [])]
    roles += [(int(f), "whole numbers") for f in domain.get("integer", [])]
    for feature, role in roles:
        if words[feature] != FIXED:
            words[feature] = f"{words[feature]}, {role}"
    for feature in (int(f) for group, _ in domain.get("groups", []) for f in group):
        if words[feature] != FIXED:
            words[feature] = GROUP
    return words


def _notes(
    header: Mapping[str, Any], ways: list[str], domain: dict[str, Any], missing: NDArray[np.int64]
) -> list[str]:
    """What never moves although the model may look at it, and what the domain allows besides."""

    def those(features: Iterable[Any]) -> list[str]:
        return [feature_name(header, int(f)) for f in features if ways[int(f)] != FIXED]

    said = []
    if "categorical" not in header["model"]:
        said.append("The run does not say which features are categories; those never move.")
    categories = [f for f, way in enumerate(ways) if way == CATEGORY]
    if len(categories) == 1:
        said.append(f"A category never moves: {those(categories)[0]}.")
    elif categories:
        said.append(f"Categories never move: {listed(those(categories))}.")
    said += _choice_notes(header, ways, domain)
    if whole := those(domain.get("integer", [])):
        said.append(f"Whole numbers only: {listed(whole)}.")
    values = [
        f"{feature_name(header, int(f))} ({listed([exactly(value) for value in given])})"
        for f, given in domain.get("values", [])
        if ways[int(f)] != FIXED
    ]
    if values:
        said.append(f"Listed values only: {listed(values)}.")
    for key, words in _MISSING_NOTES.items():
        if features := those(domain.get(key, [])):
            said.append(f"{words}: {listed(features)}.")
    if domain.get("rules"):
        said.append(f"Rows must keep {listed(domain['rules'])}.")
    if domain.get("allow_broken_rows"):
        said.append("Rows that are not of the domain themselves were asked about, too.")
    staying = [
        f"{feature_name(header, f)} (in {missing[f]:,} row{'s' if missing[f] > 1 else ''})"
        for f, way in enumerate(ways)
        if way not in STILL and missing[f] and f not in domain.get("may_fill", [])
    ]
    if staying:
        said.append(f"What is missing stays missing: {listed(staying)}.")
    return said


def _choice_notes(header: Mapping[str, Any], ways: list[str], domain: dict[str, Any]) -> list[str]:
    """Which categories and groups may change, to what, and how much that counts."""
    asked = header["question"]["perturbation"]
    said = []
    changing = [
        feature_name(header, int(entry[0])) + _transitions(header, *entry)
        for entry in domain.get("categorical", [])
        if ways[int(entry[0])] == CHANGES
    ]
    if changing:
        said.append(f"Categories may change: {listed(changing)}.")
    groups = [
        " or ".join(feature_name(header, int(f)) for f in group)
        for group, _ in domain.get("groups", [])
        if ways[int(group[0])] == GROUP
    ]
    if groups:
        said.append(f"Of each group of columns one changes place with another: {listed(groups)}.")
    if prices := price_words(header):
        said.append(f"Prices: {listed(prices)}.")
    kinds = [words for words, any_of in _jumps(changing, groups, domain) if any_of]
    if kinds and asked["name"] in ("LInf", "L1", "L2"):
        by = "the value itself" if asked.get("relative") else "1"
        verb = "counts" if len(kinds) == 1 else "count"
        said.append(f"{' and '.join(kinds).capitalize()} {verb} as a move by {by}.")
    return said


def _jumps(
    changing: list[str], groups: list[str], domain: dict[str, Any]
) -> list[tuple[str, bool]]:
    """Changes without a distance, and whether there are any."""
    may_miss = bool(domain.get("may_miss") or domain.get("may_fill"))
    return [
        ("another category", bool(changing)),
        ("another column of a group", bool(groups)),
        ("from or to missing", may_miss),
    ]


def _category(header: Mapping[str, Any], feature: int, code: float) -> str:
    """Name of a category, or its code."""
    names = (header["model"].get("categories") or {}).get(str(feature)) or []
    return str(names[int(code)]) if 0 <= code < len(names) else exactly(float(code))


def _transitions(header: Mapping[str, Any], feature: int, codes: list[Any]) -> str:
    """To what a category may change, in brackets; nothing where that is any that there is."""
    known = (header["model"].get("categories") or {}).get(str(feature)) or []
    if not codes or not isinstance(codes[0], list):
        names = [_category(header, feature, code) for code in codes]
        return "" if len(names) == len(known) else f" (to {listed(names)})"
    steps = [
        f"{_category(header, feature, before)} → "
        + " or ".join(_category(header, feature, code) for code in after)
        for before, after in codes
        if after
    ]
    return f" ({listed(steps)})"


def price_words(header: Mapping[str, Any]) -> list[str]:
    """The lines of a table of prices in words; none where there is no table."""
    return [
        _listed_price(header, *line)
        for line in header["question"]["perturbation"].get("table") or []
    ]


def _listed_price(
    header: Mapping[str, Any],
    features: list[int],
    before: list[float],
    after: list[float],
    price: Any,
) -> str:
    """One line of a table of prices in words."""

    def chosen(codes: list[float]) -> str:
        if len(features) == 1:
            return _category(header, features[0], codes[0])
        columns = [feature_name(header, f) for f, c in zip(features, codes, strict=True) if c]
        return " and ".join(columns) or "none"

    name = f"{feature_name(header, features[0])} " if len(features) == 1 else ""
    return f"{name}{chosen(before)} → {chosen(after)} {number(float(price))}"


def movement(threat: Threat, start: float, *, is_attack: bool = False) -> Parts:
    """Say what may move, and how much of the rest does not, after the word 'however'.

    Distances are rounded down, so that no more is said than was proved; for an attack, which shows
    what breaks, up.
    """
    movers, n = threat.movers, len(threat.names)
    if not movers:
        return [("nothing moves: no feature may", None)]
    is_box = threat.kind == "Box"
    sliders = [f for f in movers if threat.ways[f] not in CHOICES]
    verbs = {_verb(threat.ways[f]) for f in sliders}
    treatments = {bounds_of(threat, f) if is_box else threat.reach(f) for f in sliders}
    is_mixed = len(verbs) > 1 or len(treatments) > 1
    parts: Parts = []
    if threat.kind not in ("Box", "LInf"):
        parts += _together(threat, start, is_attack)
    elif len(movers) <= _FEW and (is_mixed or len(movers) < n):
        for k, feature in enumerate(movers):
            joint = "" if k == 0 else " and " if k == len(movers) - 1 else ", "
            reach = _reach(threat, feature, start, is_attack)
            parts += [(f"{joint}{threat.names[feature]} ", None), *reach]
    else:
        if sliders:
            verb = min(verbs) if len(verbs) == 1 else "move"
            parts.append((f"{_subject(threat, sliders, verb)} ", None))
            whose = "its" if len(sliders) in (1, n) else "their"
            if is_box:
                parts.append((where(treatments), None))
            else:
                parts += _by_up_to(threat, treatments, start, whose, is_attack)
            if len(verbs) > 1:
                parts.append((", some one way only", None))
        if choices := [f for f in movers if threat.ways[f] in CHOICES]:
            joint = " and " if sliders else ""
            parts.append((f"{joint}{_subject(threat, choices, 'change')}", None))
    if threat.fixed:
        few = len(threat.fixed) < 3
        words = " and ".join(threat.fixed) if few else f"{len(threat.fixed):,} of {n:,} features"
        parts.append((f", with {words} fixed", None))
    parts += [(f", and {limit}", None) for limit in threat.also]
    return parts


def _subject(threat: Threat, features: list[int], verb: str) -> str:
    """Features, and what they do."""
    n = len(threat.names)
    if len(features) == n:
        return f"every feature {_third_person(verb)}"
    if len(features) == 1:
        return f"{threat.names[features[0]]} {_third_person(verb)}"
    if len(features) <= _FEW:
        return f"{', '.join(threat.names[f] for f in features)} {verb}"
    return f"{len(features):,} of {n:,} features {verb}"


def _together(threat: Threat, start: float, is_attack: bool) -> Parts:
    """The sentence where only all moves together are limited."""
    at_most = _amount(threat, start, is_attack=is_attack)
    who = _subject(threat, threat.movers, "change")
    if threat.kind == "L0":
        if {threat.reach(f) for f in threat.movers} == {(1.0, 1.0)}:
            return [("at most ", None), at_most, (f" of {threat.n_moving:,} features change", None)]
        return [(f"{who}, counting at most ", None), at_most, (" together", None)]
    if threat.kind == "Cost":
        return [(f"{who} at a cost of at most ", None), at_most]
    what = (
        "moves that add up to at most " if threat.kind == "L1" else "moves of a length of at most "
    )
    units = {threat.reach(f) for f in threat.movers}
    own = "" if units == {(1.0, 1.0)} and not threat.is_relative else " of their own units"
    return [(f"{who}, by {what}", None), at_most, (own, None)]


def _reach(threat: Threat, feature: int, start: float, is_attack: bool) -> Parts:
    verb = _verb(threat.ways[feature])
    if verb == "change":
        return [("changes", None)]
    if threat.kind == "Box":
        return [(f"{_third_person(verb)} {where([bounds_of(threat, feature)])}", None)]
    distance = _by_up_to(threat, [threat.reach(feature)], start, "its", is_attack)
    return [(f"{_third_person(verb)} ", None), *distance]


def _by_up_to(
    threat: Threat, units: Iterable[Any], start: float, whose: str, is_attack: bool
) -> Parts:
    """The distance at the radius: one that all have, or in units of each."""
    given = list(units)
    own = "value" if threat.is_relative else "unit"
    own += "s" if whose == "their" else ""
    if len(given) > 1:
        amount = _amount(threat, start, is_attack=is_attack)
        return [("by up to ", None), amount, (f" of {whose} own {own}", None)]
    rest = f" times {whose} own {own}" if threat.is_relative else ""
    down, up = (_amount(threat, start, side, is_attack=is_attack) for side in given[0])
    if down == up:
        return [("by up to ", None), up, (rest, None)]
    return [("by up to ", None), down, (" down and ", None), up, (f" up{rest}", None)]


def _amount(
    threat: Threat, start: float, factor: float = 1.0, *, is_attack: bool
) -> tuple[str, float | None]:
    """A multiple of the radius, which readers may change, or of each row's own."""
    if not threat.own_limit:
        return reach_words(start * factor, is_attack=is_attack), factor
    times = "" if factor == 1.0 else f"{number(digits_below(factor))} times "
    name = "budget" if threat.kind == "Cost" else "eps"
    return f"{times}the row’s own {name}", None


def reach_words(distance: float, *, is_attack: bool = False) -> str:
    """How far something goes, with a few digits: what is proved for it holds for what is said."""
    said = digits_above(distance) if is_attack else digits_below(distance)
    # A product of a radius and a unit is rounded itself: 1e-7 times 1,000 is a bit below 0.0001.
    near = digits_below(digits_above(distance, 15))
    return number(near if abs(near - distance) <= _ROUNDED * distance else said)


def where(bounds: Iterable[Any]) -> str:
    """Where features of a box lie, after that verb."""
    given = list(bounds)
    if len(given) > 1:
        return "anywhere within the bounds in the table"
    return given[0] if given[0].startswith("at ") else f"anywhere {given[0] or 'at all'}"


def _verb(way: str) -> str:
    return _VERBS.get(way.split(", ", maxsplit=1)[0], "change")


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
        return OWN_BOUNDS
    if low[0] == high[0]:
        return f"at {exactly(float(low[0]))}"
    # Rounded inwards: what is proved between bounds is proved between nearer ones.
    ends = number(digits_above(float(low[0]), 6), 6), number(digits_below(float(high[0]), 6), 6)
    if np.isinf(low[0]):
        return f"up to {ends[1]}"
    return f"from {ends[0]}" if np.isinf(high[0]) else f"from {ends[0]} to {ends[1]}"


def threat_lines(
    header: Mapping[str, Any],
    rows: FloatArray | None = None,
    attacked: NDArray[np.bool_] | None = None,
) -> list[str]:
    """Lines of a summary that say what may move; none where a radius says it."""
    if not {"question", "model"} <= header.keys() or not header["question"].get("perturbation"):
        return []
    threat = threat_of(header, rows, attacked)
    if threat is None:
        return []
    limit = limit_of(header)
    start = 1.0 if limit is None else limit
    said = stillness(threat)
    is_plain = threat.kind == "LInf" and set(threat.ways) == {"up and down"}
    is_plain &= not threat.is_relative and not threat.own_limit and not threat.also
    is_plain &= not said and bool(np.all(threat.down == 1.0) and np.all(threat.up == 1.0))
    if is_plain and limit is None:
        return []
    measure = "cost" if threat.kind == "Cost" else "radius"
    within = (
        f"a {measure} of 1 allows" if limit is None else f"within {measure} {reach_words(start)}"
    )
    if threat.own_limit or threat.kind == "Box":
        within = f"each row within {threat.own_limit}" if threat.own_limit else "in the box"
    sentence = "".join(text for text, _ in movement(threat, start))
    return [f"{within}: {sentence}", *(text.rstrip(".") for text in said)]
