"""What may move: the threat model of a run, in one sentence and feature by feature."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.query.names import listed
from treeproof.report.runs import Run, frozen_numbers
from treeproof.results.numbers import number

FloatArray = NDArray[np.float64]
Parts = list[tuple[str, float | None]]
"""Pieces of a sentence; one with a factor is that many radii, and follows the reader's radius."""

_FEW = 4
"""So many features are named, each with its own distance."""

THREAT_LINES = 24
"""Lines of the table that are open."""

_LISTED = 1000
"""Most lines of the table."""

FIXED, CATEGORY = "fixed", "category, never moves"
_ORDER = {FIXED: 1, CATEGORY: 2}
_VERBS = {"up and down": "move", "up only": "rise", "down only": "fall"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Threat:
    """How far each feature of a run may go.

    Attributes
    ----------
    names : list of str
        Features.
    ways : list of str
        In which way each of them moves: up, down, anywhere between bounds, or not.
    unit : float64 (n_features,)
        Largest distance at radius 1; 0 for what is fixed, infinite for boxes.
    low, high : float64 (1 or n_rows, n_features)
        Bounds that hold at any radius.
    n_missing : int64 (n_features,)
        Rows in which a feature is missing, and stays so.
    is_ball : bool
        Whether there is a radius.
    knows_categories : bool
        Whether the run says which features are categories; those of version 0.1 do not.
    """

    names: list[str]
    ways: list[str]
    unit: FloatArray
    low: FloatArray
    high: FloatArray
    n_missing: NDArray[np.int64]
    is_ball: bool
    knows_categories: bool

    @property
    def movers(self) -> list[int]:
        """Features that may move."""
        return [f for f, way in enumerate(self.ways) if way not in (FIXED, CATEGORY)]

    def of_kind(self, way: str) -> list[str]:
        """Names of the features that move in one way."""
        return [name for name, other in zip(self.names, self.ways, strict=True) if other == way]


def threat_of(run: Run) -> Threat | None:
    """The threat model of a run; None where it is of a kind that has no reach by feature."""
    asked = run.question.get("perturbation", {})
    n_features = run.results.witness.shape[1]
    is_category = np.zeros(n_features, dtype=bool)
    is_category[run.model.get("categorical") or []] = True
    low, high = (_table(asked.get(side), n_features) for side in ("low", "high"))
    low, high = np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
    if asked.get("name") == "Box":
        is_fixed = (low == high).all(axis=0)
        ways = np.where(is_fixed, FIXED, "between bounds")
        unit = np.where(is_fixed, 0.0, np.inf)
    elif asked.get("name") == "LInf":
        scale = run.scale
        down, up = (
            _table(asked.get(way, 1.0), n_features)[0] * scale for way in ("below", "above")
        )
        frozen = frozen_numbers(run)
        down[frozen] = up[frozen] = 0.0
        ways = np.select(
            [(down == 0.0) & (up == 0.0), down == 0.0, up == 0.0],
            [FIXED, "up only", "down only"],
            "up and down",
        )
        unit = np.maximum(down, up)
    else:
        return None
    ways = np.where(is_category, CATEGORY, ways)
    attacked = run.rows[run.attacked]
    return Threat(
        names=[run.feature_name(f) for f in range(n_features)],
        ways=ways.tolist(),
        unit=np.where(is_category, 0.0, unit),
        low=low,
        high=high,
        n_missing=np.isnan(attacked).sum(axis=0) * (run.results.values is not None),
        is_ball=asked.get("name") == "LInf",
        knows_categories="categorical" in run.model,
    )


def _table(value: Any, n_features: int) -> FloatArray:
    """Numbers of a description, one line for all rows or one for each."""
    given = np.asarray(np.nan if value is None else value, dtype=np.float64)
    return np.array(
        np.broadcast_to(np.atleast_2d(given), (max(1, len(np.atleast_2d(given))), n_features))
    )


def movement(threat: Threat, start: float) -> Parts:
    """Say what may move, and how much of the rest does not, after the word 'however'."""
    movers, n = threat.movers, len(threat.names)
    if not movers:
        return [("nothing moves: every feature is fixed", None)]
    units, bounds = {float(threat.unit[f]) for f in movers}, {_bounds(threat, f) for f in movers}
    parts: Parts = []
    ways = {threat.ways[f] for f in movers}
    is_mixed = len(ways) > 1 or len(units if threat.is_ball else bounds) > 1
    if len(movers) <= _FEW and (is_mixed or len(movers) < n):
        for k, feature in enumerate(movers):
            joint = "" if k == 0 else " and " if k == len(movers) - 1 else ", "
            parts += [(f"{joint}{threat.names[feature]} ", None), *_reach(threat, feature, start)]
    else:
        subject = "every feature" if len(movers) == n else f"{len(movers):,} of {n:,} features"
        verb = _VERBS.get(min(ways), "lie") if len(ways) == 1 else "move"
        verb = _third_person(verb) if len(movers) == n else verb
        parts.append((f"{subject} {verb} ", None))
        if not threat.is_ball:
            where = bounds.pop() if len(bounds) == 1 else "within the bounds in the table"
            parts.append((f"anywhere {where or 'at all'}", None))
        elif len(units) == 1:
            parts += _by_up_to(units.pop(), start)
        else:
            whose = "its own unit" if len(movers) == n else "their own units"
            parts += [*_by_up_to(1.0, start), (f" of {whose}", None)]
        if len(ways) > 1:
            parts.append((", some one way only", None))
    n_fixed = len(threat.of_kind(FIXED))
    if n_fixed:
        fixed = threat.of_kind(FIXED)
        words = " and ".join(fixed) if n_fixed < 3 else f"{n_fixed:,} of {n:,} features"
        parts.append((f", with {words} fixed", None))
    return parts


def _reach(threat: Threat, feature: int, start: float) -> Parts:
    if threat.is_ball:
        verb = _third_person(_VERBS[threat.ways[feature]])
        return [(f"{verb} ", None), *_by_up_to(float(threat.unit[feature]), start)]
    return [(f"lies anywhere {_bounds(threat, feature) or 'at all'}", None)]


def _by_up_to(unit: float, start: float) -> Parts:
    return [("by up to ", None), (number(start * unit), unit)]


def _third_person(verb: str) -> str:
    return {"lie": "lies"}.get(verb, f"{verb}s")


def stillness(threat: Threat) -> list[str]:
    """Say what never moves although the model may look at it, and what stops what moves."""
    said = []
    if not threat.knows_categories:
        said.append("The run does not say which features are categories; those never move.")
    categories = threat.of_kind(CATEGORY)
    if categories:
        many = len(categories) > 1
        said.append(
            f"{'Categories never move' if many else 'A category never moves'}:"
            f" {listed(categories)}."
        )
    n_missing = int(threat.n_missing[threat.movers].sum())
    if n_missing:
        entries = f"{n_missing:,} missing value{'s' if n_missing > 1 else ''}"
        said.append(
            f"{entries} of what moves elsewhere stay{'' if n_missing > 1 else 's'} missing."
        )
    bounded = [f for f in threat.movers if _bounds(threat, f)]
    if threat.is_ball and bounded:
        which = "No feature" if len(bounded) == len(threat.movers) else "Some features never"
        said.append(f"{which} leave{'s' if which == 'No feature' else ''} the bounds in the table.")
    return said


def _bounds(threat: Threat, feature: int) -> str:
    """Bounds of a feature in words; empty where there are none."""
    low, high = threat.low[:, feature], threat.high[:, feature]
    if np.isinf(low).all() and np.isinf(high).all():
        return ""
    if np.ptp(low[np.isfinite(low)]) if np.isfinite(low).any() else 0.0:
        return "within bounds of its own row"
    if np.ptp(high[np.isfinite(high)]) if np.isfinite(high).any() else 0.0:
        return "within bounds of its own row"
    ends = [number(float(side[0]), 6) for side in (low, high)]
    if np.isinf(low[0]):
        return f"up to {ends[1]}"
    return f"from {ends[0]}" if np.isinf(high[0]) else f"from {ends[0]} to {ends[1]}"


def threat_table(run: Run, threat: Threat) -> list[dict[str, Any]]:
    """One line for features that are treated alike: what moves comes first."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for feature, way in enumerate(threat.ways):
        key = (way, float(threat.unit[feature]), _bounds(threat, feature))
        groups.setdefault(key, []).append(feature)
    order = sorted(groups.items(), key=lambda item: (_ORDER.get(item[0][0], 0), item[1][0]))
    lines = []
    for (way, unit, bounds), features in order[:_LISTED]:
        n_missing = int(threat.n_missing[features].sum())
        lines.append(
            {
                "names": listed([threat.names[f] for f in features]),
                "n": len(features),
                "way": way,
                "unit": number(unit, 6) if unit and threat.is_ball else "–",
                "factor": unit if threat.is_ball and unit else None,
                "bounds": bounds or ("none" if unit else "–"),
                # Of features that have nothing but stillness in common, a range says nothing.
                "range": _range(run, features) if unit or len(features) == 1 else "–",
                "missing": f"{n_missing:,}" if n_missing else "–",
            }
        )
    n_more = sum(len(features) for _, features in order[_LISTED:])
    if n_more:
        lines.append(
            dict.fromkeys(lines[0], "–")
            | {"names": f"{n_more:,} more features are in the run", "n": 1, "factor": None}
        )
    return lines


def _range(run: Run, features: list[int]) -> str:
    """Least and largest value of some features among the rows."""
    values = run.rows[:, features]
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        return "–"
    written = run.formats[features[0]]
    return f"{written.text(float(finite.min()))} to {written.text(float(finite.max()))}"
