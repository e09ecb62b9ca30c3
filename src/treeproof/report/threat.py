"""The table of what may move: one line for features that are treated alike."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import listed
from treeproof.report.runs import RunView
from treeproof.results.numbers import number
from treeproof.results.threat import CHANGES, CHOICES, OWN_BOUNDS, STILL, Threat, bounds_of

THREAT_LINES = 24
"""Lines of the table that are open."""

_LISTED = 1000
"""Most lines of the table."""


def threat_table(run: RunView, threat: Threat) -> list[dict[str, Any]]:
    """One line for features that are treated alike: what moves comes first."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for feature, way in enumerate(threat.ways):
        words, reach = threat.unit_words[feature], threat.reach(feature)
        bounds = "–" if way in STILL else _bounds(run, threat, feature)
        groups.setdefault((way, words, reach, bounds), []).append(feature)
    order = sorted(groups.items(), key=lambda item: (STILL.get(item[0][0], 0), item[1][0]))
    lines = []
    for (way, words, reach, bounds), features in order[:_LISTED]:
        n_missing = int(threat.n_missing[features].sum())
        moves = way not in STILL
        lines.append(
            {
                "names": listed([threat.names[f] for f in features]),
                "n": len(features),
                "way": way,
                "unit": f"{words} × value" if threat.is_relative and moves else words,
                "factors": [] if way in CHOICES else _factors(threat, reach),
                "bounds": bounds,
                # Of features that have nothing but stillness in common, a range says nothing.
                "range": _range(run, features) if moves or len(features) == 1 else "–",
                "missing": f"{n_missing:,}" if n_missing else "–",
            }
        )
    n_more = sum(len(features) for _, features in order[_LISTED:])
    if n_more:
        rest = {"names": f"{n_more:,} more features are in the run", "n": 1, "factors": []}
        lines.append(dict.fromkeys(lines[0], "–") | rest)
    return lines


def _factors(threat: Threat, reach: tuple[float, float]) -> list[tuple[float, str]]:
    """How many radii features go, and which way where that is not the same; none if unlimited."""
    down, up = reach
    if threat.is_relative or threat.kind == "L0" or not 0.0 < max(down, up) < np.inf:
        return []
    return [(up, "")] if down == up else [(down, " down, "), (up, " up")]


def _bounds(run: RunView, threat: Threat, feature: int) -> str:
    """Bounds of a feature in words; where each row has its own, how far from its value."""
    n_categories = run.naming.n_categories(feature)
    if n_categories and threat.ways[feature] == CHANGES:
        low, high = threat.low[:, feature], threat.high[:, feature]
        codes = [code for code in range(n_categories) if ((low <= code) & (code <= high)).any()]
        return "none" if len(codes) == n_categories else _names(run, feature, codes)
    words, values = bounds_of(threat, feature), run.rows[:, feature]
    if words != OWN_BOUNDS or len(threat.low) != len(values):
        return words or "none"
    known = np.isfinite(values)
    below, above = values - threat.low[:, feature], threat.high[:, feature] - values
    if not known.any():
        return words
    return f"{words}: {_extent(below[known])} below to {_extent(above[known])} above its value"


def _is_category(run: RunView, feature: int) -> bool:
    return feature in (run.model.get("categorical") or [])


def _names(run: RunView, feature: int, codes: Sequence[float]) -> str:
    """Categories by name, or by their codes where they have none."""
    found = [run.naming.value(feature, code) for code in codes]
    return listed([name if isinstance(name, str) else f"code {number(name)}" for name in found])


def _extent(distances: NDArray[np.float64]) -> str:
    least, most = (number(float(end)) for end in (distances.min(), distances.max()))
    return least if least == most else f"{least}–{most}"


def _range(run: RunView, features: list[int]) -> str:
    """Least and largest value of some features among the rows; categories by name."""
    values = run.rows[:, features]
    finite = values[np.isfinite(values)]
    categories = [_is_category(run, feature) for feature in features]
    if len(finite) == 0 or (any(categories) and len(features) > 1):
        return "–"
    if categories[0]:
        return _names(run, features[0], np.unique(finite).tolist())
    ends = float(finite.min()), float(finite.max())
    text = run.formats[features[0]].text if len(features) == 1 else number
    return f"{text(ends[0])} to {text(ends[1])}"
