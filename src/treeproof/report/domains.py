"""Over which inputs a claim about a whole domain holds, in words."""

from collections.abc import Mapping
from typing import Any

from treeproof.results.threat import (
    CHOICES,
    bounds_of,
    limit_of,
    movement,
    stillness,
    threat_of,
    where,
)


def domain_words(header: Mapping[str, Any]) -> dict[str, Any]:
    """The `domain` of a header as a sentence, with `notes`, and `bounds` where they differ.

    All are empty where the domain is of a kind that is not known here.
    """
    threat = threat_of(header)
    if threat is None:
        return {"domain": "", "notes": [], "bounds": []}
    notes = stillness(threat)
    if threat.kind != "Box":
        eps = limit_of(header) or 0.0
        moves = "".join(text for text, _ in movement(threat, eps))
        return {"domain": f"around each row {moves}", "notes": notes, "bounds": []}
    n = len(threat.names)
    bounds = {f: bounds_of(threat, f) for f in range(n) if threat.ways[f] not in CHOICES}
    if len(bounds) == n and len(set(bounds.values())) == 1:
        domain = f"every feature lies {where(set(bounds.values()))}"
        return {"domain": domain, "notes": notes, "bounds": []}
    n_free = sum(not words for words in bounds.values())
    free = f", {n_free:,} {'is' if n_free == 1 else 'are'} free" if n_free else ""
    return {
        "domain": f"{len(bounds) - n_free:,} of {n:,} features lie within bounds{free}",
        "notes": notes,
        "bounds": [
            (name, (bounds[f] or "free") if f in bounds else threat.ways[f])
            for f, name in enumerate(threat.names)
        ],
    }
