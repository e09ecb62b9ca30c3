"""Properties on the report page: verdict, bounds, and the pair of inputs side by side."""

from os import PathLike
from typing import Any

from treeproof.results.numbers import number
from treeproof.results.property_file import load_property_records

MOST_SHARED = 40
"""Features that both inputs share, shown below those in which they differ."""


def property_cards(path: str | PathLike[str]) -> list[dict[str, Any]]:
    """What the page says of each property of a saved file."""
    return [_card(record) for record in load_property_records(path)["properties"]]


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
        one, other = witness["rows"]
        changed = set(witness["changed"])
        names = [name for name in one if name in changed]
        shared = [name for name in one if name not in changed]
        card["rows"] = [
            (name, _value(one[name]), _value(other[name]), name in changed)
            for name in names + shared[:MOST_SHARED]
        ]
        card["n_hidden"] = max(len(shared) - MOST_SHARED, 0)
        labels = witness.get("labels") or [None, None]
        card["heads"] = [
            ("" if label is None else f"label {label}, ")
            + f"score {', '.join(_value(value) for value in score)}"
            for label, score in zip(labels, witness["scores"], strict=True)
        ]
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
