"""Properties on the report page: verdict, bounds, and the pair of inputs side by side."""

import math
from os import PathLike
from typing import Any

from treeproof.results.numbers import number
from treeproof.results.property_file import load_property_records

MOST_SHARED = 40
"""Features that both inputs share, shown below those in which they differ."""


def property_section(path: str | PathLike[str]) -> dict[str, Any]:
    """What the page says of the properties of a saved file, and of the domain they are about."""
    document = load_property_records(path)
    domain = _domain(document["domain"])
    return {
        "domain": domain,
        "n_free": len(document["domain"]["features"]) - len(domain),
        "cards": [_card(record) for record in document["properties"]],
    }


def _domain(domain: dict[str, Any]) -> list[tuple[str, str]]:
    """Features with what they take; those that take all numbers are left out."""
    listed = dict(domain["values"])
    said = []
    for feature, name in enumerate(domain["features"]):
        low, high = (float(domain[side][feature]) for side in ("low", "high"))
        words = f"{_value(low)} to {_value(high)}"
        if math.isinf(low) or math.isinf(high):
            words = f"from {_value(low)} on" if math.isfinite(low) else f"up to {_value(high)}"
        if math.isinf(low) and math.isinf(high):
            words = ""
        if feature in listed:
            words = ", ".join(map(_value, listed[feature]))
        if feature in domain["integer"]:
            words = f"whole numbers {words}".strip()
        if feature in domain["missing"]:
            words = f"{words or 'any number'}, or missing"
        if words:
            said.append((str(name), words))
    return said


def _card(record: dict[str, Any]) -> dict[str, Any]:
    witness = record.get("witness")
    card: dict[str, Any] = {
        "name": str(record["name"]),
        "verdict": str(record["verdict"]),
        "reason": str(record.get("reason") or ""),
        "claim": _words(record["claim"]),
        "bounds": _bounds(record),
        "rows": [],
        "n_hidden": 0,
        "heads": [],
    }
    if witness is not None:
        changed = set(witness["changed"])
        # Of questions about single inputs both are the same.
        inputs = witness["rows"] if changed else witness["rows"][:1]
        names = [name for name in inputs[0] if name in changed]
        shared = [name for name in inputs[0] if name not in changed]
        card["rows"] = [
            (name, name in changed, [_value(one[name]) for one in inputs])
            for name in names + shared[:MOST_SHARED]
        ]
        card["n_hidden"] = max(len(shared) - MOST_SHARED, 0)
        labels = witness.get("labels") or [None, None]
        card["heads"] = [
            ("" if label is None else f"label {label}, ")
            + f"score {', '.join(_value(value) for value in score)}"
            for label, score in zip(labels, witness["scores"], strict=True)
        ][: len(inputs)]
    return card


def _words(claim: dict[str, Any]) -> str:
    options = ", ".join(
        f"{name} {value}" for name, value in claim.items() if name != "name" and value is not None
    )
    return f"{claim['name']}: {options}" if options else str(claim["name"])


def _bounds(record: dict[str, Any]) -> str:
    lower, upper = record.get("lower"), record.get("upper")
    if not record.get("quantity") or upper is None or lower is None:
        return ""
    ends = _value(lower) if record.get("exact") else f"{_value(lower)} to {_value(upper)}"
    return f"{record['quantity']}: {ends}"


def _value(value: Any) -> str:
    if value is None:
        return "missing"
    return str(value) if isinstance(value, str) else number(float(value))
