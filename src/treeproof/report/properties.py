"""Properties and differences on the report page: domain, verdict, bounds, inputs side by side."""

import math
from collections.abc import Collection, Sequence
from os import PathLike
from typing import Any

from treeproof.checker.property_files import PropertyCheck
from treeproof.errors import listed
from treeproof.report.domains import domain_words
from treeproof.results.numbers import digits_above, digits_below, exactly, number, percent
from treeproof.results.property_file import load_property_records

MOST_SHARED = 40
"""Features that both inputs share, shown below those in which they differ."""


def property_section(
    path: str | PathLike[str],
    known: Collection[str],
    checks: Sequence[PropertyCheck] | None = None,
) -> dict[str, Any]:
    """What the page says of a saved file: of which models and inputs, and each answer.

    `known` are the fingerprints of the models that the rest of the page is about, and `checks` what
    the checker said of each answer.
    """
    records = load_property_records(path)
    if checks is not None:
        answers = zip(records["properties"], checks, strict=True)
        records["properties"] = [_as_checked(record, check) for record, check in answers]
    is_two = "other" in records
    models = [records["model"], records["other"]] if is_two else [records["model"]]
    n_proofs = sum(bool(record.get("evidence")) for record in records["properties"])
    carry = f"{n_proofs:,} of {len(records['properties']):,} answers carry a proof"
    strangers = [m for m in models if m.get("fingerprint") not in known]
    categories = _categories(records["model"])
    names = [str(name) for name in records["model"].get("feature_names") or []]
    return {
        "heading": "Difference of two models" if is_two else "Properties of every input",
        "models": " and ".join(_model(words) for words in models),
        "is_strange": bool(strangers),
        "trees": str(records.get("trees") or ""),
        "cards": [
            _card(record, categories, is_two=is_two)
            | {"around": _around(record, names, categories)}
            for record in records["properties"]
        ],
        "nav": "Difference" if is_two else "Properties",
        "proofs": _proof_words(carry, checks)
        if n_proofs
        else "The answers carry no proofs for others to check.",
    } | domain_words(_header(records))


def _as_checked(record: dict[str, Any], check: PropertyCheck) -> dict[str, Any]:
    """An answer of which nothing is left but the claim, unless the checker accepted it."""
    if check.status == "accepted":
        return record
    reason = f"{check.status}: {check.reason}" if check.reason else check.status
    nothing = dict.fromkeys(("lower", "upper", "witness", "groups"))
    return record | nothing | {"verdict": "unknown", "exact": False, "reason": reason}


def _proof_words(carry: str, checks: Sequence[PropertyCheck] | None) -> str:
    if checks is None:
        return f"{carry}, which was not checked for this page."
    n_accepted = sum(check.status == "accepted" for check in checks)
    return f"{carry}; an independent checker accepted {n_accepted:,}."


def _around(record: dict[str, Any], names: Sequence[str], categories: dict[str, list[Any]]) -> str:
    """The row that an answer is about, with its values; nothing where it is about all inputs."""
    values = record.get("values")
    if values is None:
        return ""
    called = names or [f"feature {at}" for at in range(len(values))]
    shown = [
        f"{name} {_exact(value, categories.get(name))}"
        for name, value in zip(called, values[:MOST_SHARED], strict=False)
    ]
    more = f", and {len(values) - MOST_SHARED} more" if len(values) > MOST_SHARED else ""
    return f"Around row {record.get('row')}: {', '.join(shown)}{more}."


def _header(records: dict[str, Any]) -> dict[str, Any]:
    """Model and domain of a saved file, as headers of runs have them."""
    model, asked = records["model"], dict(records.get("domain") or {})
    known = {
        int(words["feature"]): list(words.get("categories") or [])
        for words in model.get("categorical_features") or []
    }
    if asked.get("name") == "Box":
        # Over a box categories take the codes that the model knows; around rows they stay.
        domain = dict(asked.get("domain") or {})
        given = list(domain.get("categorical") or [])
        listed = {int(entry[0]) for entry in given}
        given += [[f, list(range(len(known[f])))] for f in known if f not in listed]
        asked["domain"] = domain | {"categorical": given}
    names = {str(f): given for f, given in known.items()}
    return {
        "model": model | {"categorical": list(known), "categories": names},
        "question": {"perturbation": asked},
    }


def _categories(model: dict[str, Any]) -> dict[str, list[Any]]:
    """Names of the categories of each feature that holds some, by the feature's name."""
    return {
        str(words.get("name")): list(words.get("categories") or [])
        for words in model.get("categorical_features") or []
    }


def _model(words: dict[str, Any]) -> str:
    """Which model is meant, in a few words."""
    name = words.get("source") or words.get("library")
    return f"{name} ({str(words.get('fingerprint'))[:12]}…)"


def _card(
    record: dict[str, Any], categories: dict[str, list[Any]], *, is_two: bool
) -> dict[str, Any]:
    witness = record.get("witness")
    card: dict[str, Any] = {
        "name": str(record["name"]),
        "verdict": str(record["verdict"]),
        "reason": str(record.get("reason") or ""),
        "claim": claim_sentence(record["claim"]),
        "outcome": _OUTCOMES.get(str(record["verdict"]), ""),
        "bounds": bounds_in_words(record),
        "rows": [],
        "n_hidden": 0,
        "heads": [],
        "sides": [],
        "groups": [_group(own) for own in record.get("groups") or []],
    }
    if witness is not None:
        one, other = witness["rows"]
        changed, is_one = set(witness["changed"]), one == other
        names = [name for name in one if name in changed]
        shared = [name for name in one if name not in changed]
        card["rows"] = [
            (name, [_exact(side[name], categories.get(name)) for side in sides], name in changed)
            for sides in ([one] if is_one else [one, other],)
            for name in names + shared[:MOST_SHARED]
        ]
        card["n_hidden"] = max(len(shared) - MOST_SHARED, 0)
        labels = witness.get("labels") or [None, None]
        shares = witness.get("probabilities") or [None, None]
        sides = ("first model: ", "second model: ") if is_two else ("", "")
        said = [
            side
            + ("" if label is None else f"label {label}, ")
            + f"score {', '.join(_value(value) for value in score if value is not None)}"
            + _likely(likely)
            for side, label, score, likely in zip(
                sides, labels, witness["scores"], shares, strict=True
            )
        ]
        # Two models are asked about one row, and a score is that of one row.
        said = said if is_two else list(dict.fromkeys(said))
        card["heads"], card["sides"] = (["value"], said) if is_one else (said, [])
    return card


def _likely(shares: list[float] | None) -> str:
    """The probability of a row: of the second class, or of each of several."""
    if not shares:
        return ""
    return f", probability {', '.join(map(_value, shares[1:] if len(shares) == 2 else shares))}"


def _group(own: dict[str, Any]) -> tuple[str, int, list[tuple[str, str]]]:
    """A group of rows, their number, and the share of them that gets each decision."""
    shares = [
        (str(part["label"]), percent(part["rows"] / own["rows"])) for part in own["decisions"]
    ]
    return f"{own['feature']} = {own['value']}", int(own["rows"]), shares


_OUTCOMES = {
    "verified": "It holds for every such input.",
    "falsified": "It does not hold.",
    "unknown": "Whether it holds is not known.",
}


def claim_sentence(claim: dict[str, Any]) -> str:
    """A claim as a sentence; one that is not known here with its options."""
    said = {name: value for name, value in claim.items() if name != "name" and value is not None}
    sentence = _SENTENCES.get(str(claim["name"]))
    if claim["name"] == "SameScores" and "delta" not in said:
        return "How far the scores of both models are apart."
    if sentence is not None:
        return sentence.format(**_parts(said))
    options = ", ".join(f"{name} {value}" for name, value in said.items())
    return f"{claim['name']}: {options}" if options else str(claim["name"])


_SENTENCES = {
    "largest_change": "How far the score{of_label} moves when nothing but {features} changes.",
    "score_range": "Between which numbers the score lies.",
    "Stable": "The score{of_label} moves by at most {delta} when nothing but {features} changes.",
    "Fair": "The decision never depends on {features} alone{where_sure}.",
    "Monotone": "The score{of_label} never {falls}{beyond} when {features} alone rises.",
    "HighConfidence": "A decision{for_label} that is {sure} is never changed by {features} alone.",
    "Redundant": "A decision{for_label} that is {sure} is never changed by one of these groups"
    " alone: {groups}.",
    "SmallNeighbourhood": "Rows that differ by at most {eps} in every feature{in_units} have scores"
    "{of_label} that differ by at most {reach}.",
    "SameLabels": "Both models decide alike.",
    "SameScores": "The scores of both models differ by at most {delta}.",
    "ScoreRange": "The score{of_label} is always from {low} to {high}.",
}


def _parts(said: dict[str, Any]) -> dict[str, str]:
    """Options of a claim in words: features by name, numbers as readers know them."""
    label, tolerance = said.get("label"), said.get("tolerance", 0.0)
    sure = ""
    if "confidence" in said:
        sure = f"at least {100.0 * float(said['confidence']):g} % sure"
    elif "margin" in said:
        sure = f"{_value(said['margin'])} or more of the score away from changing"
    return {
        "features": _features(said.get("features", said.get("protected", []))),
        "groups": "; ".join(_features(group) for group in said.get("groups", [])),
        "of_label": "" if label is None else f" of class {label}",
        "for_label": "" if label is None else f" for class {label}",
        "sure": sure,
        "where_sure": f", where both decisions are {sure}" if sure else "",
        "falls": "rises" if said.get("direction") == "decreasing" else "falls",
        "beyond": f" by more than {_value(tolerance)}" if tolerance else "",
        "in_units": ", in its own unit," if "scale" in said else "",
        "reach": _value(float(said.get("factor", 0.0)) * float(said.get("eps", 0.0))),
        **{name: _value(said.get(name, 0.0)) for name in ("delta", "eps")},
        "low": _value(float(said.get("low", -math.inf))),
        "high": _value(float(said.get("high", math.inf))),
    }


def _features(given: Any) -> str:
    names = given if isinstance(given, list | tuple) else [given]
    words = [f"feature {name}" if isinstance(name, int) else str(name) for name in names]
    return " and ".join(words) if len(words) == 2 else listed(words)


def bounds_in_words(record: dict[str, Any]) -> str:
    """What an answer says of its quantity; nothing where it has none."""
    lower, upper = record.get("lower"), record.get("upper")
    if not record.get("quantity") or upper is None or lower is None:
        return ""
    # An exact search still leaves the rounding of sums between its bounds.
    if record.get("exact") and _value(lower) == _value(upper):
        return f"{record['quantity']}: {_value(lower)}"
    ends = number(digits_below(float(lower))), number(digits_above(float(upper)))
    if float(upper) == math.inf:
        return f"{record['quantity']}: at least {ends[0]}"
    return f"{record['quantity']}: {ends[0]} to {ends[1]}"


def _exact(value: Any, categories: list[Any] | None = None) -> str:
    """A value of an input, with every digit: models may tell it from its neighbours."""
    if categories and isinstance(value, int | float) and value in range(len(categories)):
        return str(categories[int(value)])
    return _value(value) if value is None or isinstance(value, str) else exactly(float(value))


def _value(value: Any) -> str:
    if value is None:
        return "missing"
    return str(value) if isinstance(value, str) else number(float(value))
