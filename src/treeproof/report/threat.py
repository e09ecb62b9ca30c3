"""The table of what may move: one line for features that are treated alike."""

from typing import Any

import numpy as np

from treeproof.errors import listed
from treeproof.report.runs import RunView
from treeproof.results.threat import STILL, Threat, bounds_of

THREAT_LINES = 24
"""Lines of the table that are open."""

_LISTED = 1000
"""Most lines of the table."""


def threat_table(run: RunView, threat: Threat) -> list[dict[str, Any]]:
    """One line for features that are treated alike: what moves comes first."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for feature, way in enumerate(threat.ways):
        unit, words = float(threat.unit[feature]), threat.unit_words[feature]
        groups.setdefault((way, unit, words, bounds_of(threat, feature)), []).append(feature)
    order = sorted(groups.items(), key=lambda item: (STILL.get(item[0][0], 0), item[1][0]))
    lines = []
    for (way, unit, words, bounds), features in order[:_LISTED]:
        n_missing = int(threat.n_missing[features].sum())
        lines.append(
            {
                "names": listed([threat.names[f] for f in features]),
                "n": len(features),
                "way": way,
                "unit": f"{words} × value" if threat.is_relative and unit else words,
                "factor": unit if 0.0 < unit < np.inf and not threat.is_relative else None,
                "bounds": bounds or ("none" if unit else "–"),
                # Of features that have nothing but stillness in common, a range says nothing.
                "range": _range(run, features) if unit or len(features) == 1 else "–",
                "missing": f"{n_missing:,}" if n_missing else "–",
            }
        )
    n_more = sum(len(features) for _, features in order[_LISTED:])
    if n_more:
        rest = {"names": f"{n_more:,} more features are in the run", "n": 1, "factor": None}
        lines.append(dict.fromkeys(lines[0], "–") | rest)
    return lines


def _range(run: RunView, features: list[int]) -> str:
    """Least and largest value of some features among the rows."""
    values = run.rows[:, features]
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        return "–"
    written = run.formats[features[0]]
    return f"{written.text(float(finite.min()))} to {written.text(float(finite.max()))}"
