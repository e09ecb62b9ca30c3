"""Properties and differences on the report page: domain, verdict, bounds, inputs side by side."""

from collections.abc import Collection
from os import PathLike
from typing import Any

from treeproof.report.domains import domain_words
from treeproof.results.numbers import number
from treeproof.results.property_file import load_property_records

MOST_SHARED = 40
"""Features that both inputs share, shown below those in which they differ."""


def property_section(path: str | PathLike[str], known: Collection[str]) -> dict[str, Any]:
    """What the page says of a saved file: of which models and inputs, and each answer.

    `known` are the fingerprints of the models that the rest of the page is about.
    """
    records = load_property_records(path)
    is_two = "other" in records
    models = [records["model"], records["other"]] if is_two else [records["model"]]
    n_proofs = sum(bool(record.get("evidence")) for record in records["properties"])
    carry = f"{n_proofs:,} of {len(records['properties']):,} answers carry a proof"
    strangers = [m for m in models if m.get("fingerprint") not in known]
    return {
        "heading": "Difference of two models" if is_two else "Properties of every input",
        "models": " and ".join(_model(words) for words in models),
        "is_strange": bool(strangers),
        "trees": str(records.get("trees") or ""),
        "cards": [_card(record, is_two=is_two) for record in records["properties"]],
        "proofs": f"{carry}, which was not checked for this page."
        if n_proofs
        else "The answers carry no proofs for others to check.",
    } | domain_words(_header(records))


def _header(records: dict[str, Any]) -> dict[str, Any]:
    """Model and domain of a saved file, as headers of runs have them."""
    model = records["model"]
    categorical = [words["feature"] for words in model.get("categorical_features") or []]
    return {
        "model": model | {"categorical": categorical},
        "question": {"perturbation": records.get("domain") or {}},
    }


def _model(words: dict[str, Any]) -> str:
    """Which model is meant, in a few words."""
    name = words.get("source") or words.get("library")
    return f"{name} ({str(words.get('fingerprint'))[:12]}…)"


def _card(record: dict[str, Any], *, is_two: bool) -> dict[str, Any]:
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
        sides = ("first model: ", "second model: ") if is_two else ("", "")
        card["heads"] = [
            side
            + ("" if label is None else f"label {label}, ")
            + f"score {', '.join(_value(value) for value in score if value is not None)}"
            for side, label, score in zip(sides, labels, witness["scores"], strict=True)
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
    # An exact search still leaves the rounding of sums between its bounds.
    ends = list(dict.fromkeys([_value(lower), _value(upper)]))
    return f"{record['quantity']}: {' to '.join(ends)}"


def _value(value: Any) -> str:
    if value is None:
        return "missing"
    return str(value) if isinstance(value, str) else number(float(value))
