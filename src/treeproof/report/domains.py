"""Over which inputs a claim about a whole domain holds, in words."""

from collections.abc import Mapping
from typing import Any

from treeproof.results.threat import bounds_of, limit_of, movement, stillness, threat_of


def domain_words(header: Mapping[str, Any]) -> dict[str, Any]:
    """The `domain` of a header as a sentence, and `bounds` by feature where they are not the same.

    Both are empty where the domain is of a kind that is not known here.
    """
    threat = threat_of(header)
    if threat is None:
        return {"domain": "", "bounds": []}
    if threat.kind != "Box":
        eps = limit_of(header) or 0.0
        moves = "".join(text for text, _ in movement(threat, eps))
        return {"domain": f"around each row {moves}", "bounds": []} | _said(stillness(threat))
    bounds = [bounds_of(threat, f) for f in range(len(threat.names))]
    if len(set(bounds)) == 1:
        return {"domain": f"every feature lies anywhere {bounds[0] or 'at all'}", "bounds": []}
    n_free = sum(not words for words in bounds)
    free = f", {n_free:,} {'is' if n_free == 1 else 'are'} free" if n_free else ""
    return {
        "domain": f"{len(bounds) - n_free:,} of {len(bounds):,} features lie within bounds{free}",
        "bounds": [
            (name, words or "free") for name, words in zip(threat.names, bounds, strict=True)
        ],
    }


def _said(notes: list[str]) -> dict[str, Any]:
    return {"bounds": [("also", note) for note in notes]}
