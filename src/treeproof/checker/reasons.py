"""Files of reasons: that every set suffices, and that no feature of it can be left out.

A set says that an answer holds in a box: the values or intervals of its features, the domain of the
others. A feature that cannot be left out has a witness in the box without it. So a row of such a
file is one verified and several falsified rows of a run, which are checked as those of any run.
"""

import math
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from treeproof.checker import schema
from treeproof.checker.answers import RowCheck, RunChecker
from treeproof.checker.claims import require
from treeproof.errors import CertificateRejected, InvalidInput
from treeproof.model.ensemble import Ensemble

Floats = list[float]
Ends = tuple[Floats, Floats]

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ReasonsRow(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is found about a row; features are numbers."""

    record: str
    row: schema.Count
    label: schema.Label
    values: list[schema.Real | None]
    features: list[schema.Count]
    kept: list[schema.Count]
    sufficient: bool
    minimal: bool
    intervals: list[tuple[schema.Real | None, schema.Real | None]] | None
    widest: bool
    size_lower_bound: schema.Real
    sets: list[list[schema.Count]]
    complete: bool
    changes: list[list[schema.Count]]
    change_rows: list[list[schema.Real | None]]
    changes_minimal: bool
    all_changes: bool
    change_lower_bound: schema.Real
    witnesses: list[list[schema.Real | None]]
    seconds: float
    reason: str
    evidence: list[str | None] | None
    id: schema.Label = None


msgspec.json.Decoder(ReasonsRow)  # now, in one thread: see the end of schema.py


def reasons_header(path: str | PathLike[str]) -> dict[str, Any] | None:
    """The header of a file of reasons; None where it is some other file."""
    try:
        with Path(path).open("rb") as file:
            header = msgspec.json.decode(file.readline())
        is_one = header["question"]["kind"] == "reasons" and isinstance(header["model"], dict)
    except (OSError, LookupError, TypeError, *_UNREADABLE):
        return None
    return header if is_one else None


def check_reasons(path: str | PathLike[str], ensemble: Ensemble) -> Iterator[RowCheck]:
    """Check a file of reasons, one row at a time.

    What is checked is that the set of each row suffices and, where it says so, that it is minimal;
    not bounds of sizes, other sets, changes, or that intervals are the widest.
    """
    with Path(path).open("rb") as file:
        header = msgspec.json.decode(file.readline())
        n_rows, numbers = header.get("n_rows"), set[int]()
        for line in file:
            check = _checked(line, header, ensemble)
            if check.row in numbers:
                check = RowCheck(check.row, "rejected", f"row {check.row} is here twice")
            numbers.add(check.row)
            yield check
    if n_rows != len(numbers):
        reason = f"file: {n_rows} rows were asked about, {len(numbers)} are here"
        yield RowCheck(-1, "rejected", reason)


def _checked(line: bytes, header: dict[str, Any], ensemble: Ensemble) -> RowCheck:
    try:
        row = msgspec.json.decode(line, type=ReasonsRow)
    except _UNREADABLE as error:
        return RowCheck(-1, "rejected", f"record: this is no row of a file of reasons ({error})")
    if not row.sufficient:
        return RowCheck(row.row, "claims nothing")
    texts = row.evidence or []
    if not texts or texts[0] is None:
        return RowCheck(row.row, "unproved", "no evidence")
    try:
        runs = _expanded(row, header, ensemble)
        checked = [
            (check, record)
            for run, records in runs
            for check, record in zip(
                RunChecker(run, ensemble).check_all(records), records, strict=True
            )
        ]
    except (CertificateRejected, InvalidInput) as error:
        return RowCheck(row.row, "rejected", str(error))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Sound: what cannot be followed is not accepted.
        return RowCheck(row.row, "rejected", f"record: it cannot be checked ({error!r})")
    for check, record in checked:
        if check.status != "accepted":
            what = "" if record["witness"] is None else "a witness that a feature is needed: "
            return RowCheck(row.row, check.status, what + check.reason)
    return RowCheck(row.row, "accepted")


def _expanded(
    row: ReasonsRow, header: dict[str, Any], ensemble: Ensemble
) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Headers and records of the runs that a row stands for: the set, then without each feature.

    In a domain each record has a run, and a domain, of its own.
    """
    size, texts, n_features = len(row.features), row.evidence or [], ensemble.n_features
    require(len(row.values) == n_features, "record: one value per feature")
    require(
        len(set(row.features)) == size and all(f < n_features for f in row.features),
        "record: the features of a set are different features of the model",
    )
    groups = _groups(header, n_features)
    _check_sizes(row, header, groups, n_features)
    require(len(row.witnesses) == size and len(texts) == size + 1, "record: one witness each")
    values = [math.nan if value is None else float(value) for value in row.values]
    domain = header["question"].get("perturbation", {}).get("domain")
    stays = _stays(ensemble, values, domain or {})
    used = set(ensemble.trees.feature.tolist())
    require(set(row.kept) == stays & used, "record: what is kept besides is not all that is")
    require(not stays & set(row.features), "record: what never moves is kept anyway")
    low, high = (_domain(header, side, row.row, n_features) for side in ("low", "high"))
    # Values of the row are always allowed; a missing one is no number to compare with.
    low = [a if math.isnan(v) else min(a, v) for a, v in zip(low, values, strict=True)]
    high = [b if math.isnan(v) else max(b, v) for b, v in zip(high, values, strict=True)]
    before = _number_before(header, ensemble, domain)
    left_out = [frozenset[int]()]
    # Of features that the question wants in every set, nobody asks whether they are needed.
    asked = set(range(n_features)) - set(header["question"].get("always", ()))
    records = [_record(row, 0, texts[0], None)]
    for place, feature in enumerate(row.features):
        if row.minimal and feature in asked:
            left_out.append(groups.get(feature, frozenset([feature])))
            records.append(_record(row, len(records), texts[place + 1], row.witnesses[place]))
    boxes = [_box(row, values, (low, high), without, before) for without in left_out]
    if domain is None:
        return [(_header(header, boxes, row.row), records)]
    return [
        (
            _header(header, [box], row.row, _kept_in(domain, row, values, without)),
            [record | {"row": 0}],
        )
        for without, box, record in zip(left_out, boxes, records, strict=True)
    ]


def _check_sizes(
    row: ReasonsRow, header: dict[str, Any], groups: dict[int, frozenset[int]], n_features: int
) -> None:
    """Reject what contradicts itself, or the set; beside that nobody checks sizes and changes."""
    weights = [float(weight) for weight in header["question"].get("weights", [1.0] * n_features)]
    require(len(weights) == n_features, "header: one weight per feature")
    for listed, least in (
        ([row.features, *row.sets], float(row.size_lower_bound)),
        (row.changes, float(row.change_lower_bound)),
    ):
        for given in listed:
            fits = len(set(given)) == len(given) and all(f < n_features for f in given)
            require(fits, "record: sets and changes hold different features of the model")
            # A group weighs what its heaviest feature does, whichever of them are listed.
            units = {groups.get(feature, frozenset([feature])) for feature in given}
            weight = sum(max(weights[feature] for feature in unit) for unit in units)
            require(weight >= least, "record: a set or change is smaller than its bound")
    require(len(row.change_rows) == len(row.changes), "record: one row for each change")
    for features, after in zip(row.changes, row.change_rows, strict=True):
        require(len(after) == n_features, "record: one value per feature of a change")
        moved = {f for f in range(n_features) if after[f] != row.values[f]}
        require(moved <= set(features), "record: a change moves other features")


def _stays(ensemble: Ensemble, values: Floats, domain: dict[str, Any]) -> set[int]:
    """Categories and missing values that a domain does not let change."""
    changes = {feature for feature, _ in domain.get("categorical", ())}
    changes |= set(domain.get("may_miss", ()))
    fills = set(domain.get("may_fill", ()))
    return {
        feature
        for feature, value in enumerate(values)
        if (feature not in fills if math.isnan(value) else
            bool(ensemble.is_categorical[feature]) and feature not in changes)
    }  # fmt: skip


def _number_before(
    header: dict[str, Any], ensemble: Ensemble, domain: Any
) -> Callable[[float], float]:
    """What gives the last number before one; in a domain, of the precision of its rows."""
    arithmetic = header["question"].get("arithmetic")
    is_double = domain is None or "float64" in (arithmetic, ensemble.input_precision)
    real = np.dtype("float64" if is_double else "float32").type

    def before(end: float) -> float:
        # An end that is no number of the precision may be rounded down: to the last one before it.
        with np.errstate(over="ignore"):
            near = real(end)
        return float(near if float(near) < end else np.nextafter(near, real(-np.inf)))

    return before


def _kept_in(
    domain: dict[str, Any], row: ReasonsRow, values: Floats, without: frozenset[int]
) -> dict[str, Any]:
    """A domain in which features of a set keep their values, or at least do not go missing."""
    kept = {feature for feature in row.features if feature not in without}
    fixed = kept - (_moving(row) if not without else set())
    return domain | {
        "may_miss": [f for f in domain.get("may_miss", ()) if f not in kept],
        "may_fill": [f for f in domain.get("may_fill", ()) if f not in kept],
        "categorical": [
            [f, [values[f]] if f in fixed and not math.isnan(values[f]) else codes]
            for f, codes in domain.get("categorical", ())
        ],
    }


def _moving(row: ReasonsRow) -> set[int]:
    """Features of a set that may move in their intervals."""
    if row.intervals is None:
        return set()
    require(len(row.intervals) == len(row.features), "record: one interval per feature")
    return {
        feature
        for feature, ends in zip(row.features, row.intervals, strict=True)
        if None not in ends
    }


def _groups(header: dict[str, Any], n_features: int) -> dict[int, frozenset[int]]:
    """Features that are left out together with each feature of a group."""
    given = header["question"].get("groups", [])
    members = [feature for group in given for feature in group]
    require(
        len(set(members)) == len(members)
        and all(type(f) is int and 0 <= f < n_features for f in members),
        "header: groups hold different features of the model",
    )
    return {feature: frozenset(group) for group in given for feature in group}


def _box(
    row: ReasonsRow,
    values: Floats,
    ends: Ends,
    without: frozenset[int],
    before: Callable[[float], float],
) -> Ends:
    """Ends of what a set leaves open, without some of its features."""
    least, most = (list(side) for side in ends)
    moving = _moving(row) if not without else set()
    for at, feature in enumerate(row.features):
        value = values[feature]
        if feature in without or math.isnan(value):
            require(feature in without or feature not in moving, "record: no number has intervals")
            continue
        if feature not in moving:
            least[feature] = most[feature] = value
            continue
        first, end = (float(e or 0.0) for e in (row.intervals or [])[at])
        holds = first <= value and (value < end or end == math.inf)
        require(holds, "record: intervals hold the values of the row")
        if math.isfinite(first):
            least[feature] = first
        if math.isfinite(end):
            most[feature] = before(end)
    return least, most


def _record(row: ReasonsRow, number: int, evidence: str | None, witness: Any) -> dict[str, Any]:
    """A row of a run: verified, or falsified by a witness."""
    return {
        "record": "row",
        "row": number,
        "label": row.label,
        "verdict": "verified" if witness is None else "falsified",
        "lower": None,
        "upper": None,
        "exact": True,
        "attained": witness is not None,
        "witness": witness,
        "witness_distance": None if witness is None else _distance(row.values, witness),
        "seconds": 0.0,
        "reason": "",
        "statistics": {},
        "values": row.values,
        "evidence": evidence,
    }


def _distance(values: list[Any], witness: list[Any]) -> float | str:
    """The distance that a run has for a witness in a box: moves are free, if they have a length."""
    moves = (
        float(after) - float(before)
        for before, after in zip(values, witness, strict=True)
        if before is not None and after is not None and float(before) != float(after)
    )
    return 0.0 if all(map(math.isfinite, moves)) else "inf"


def _header(
    header: dict[str, Any], ends: list[Ends], row: int, domain: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The header of a run that a row stands for."""
    asked = {name: header["question"].get(name) for name in ("goal", "labels", "arithmetic")}
    goal = asked["goal"]
    if isinstance(goal, dict):
        # Ranges of scores may be given row by row; here all rows are one.
        sides = {name: end for name, end in goal.items() if isinstance(end, list)}
        require(all(row < len(end) for end in sides.values()), f"header: the goal has no row {row}")
        asked["goal"] = goal | {name: end[row] for name, end in sides.items()}
    low, high = ([_plain(side) for side in sides] for sides in zip(*ends, strict=True))
    asked |= {
        "kind": "verify",
        "engine": {"name": "exact"},
        "perturbation": {"name": "Box", "low": low, "high": high, "domain": domain},
    }
    return {"record": "header", "format": 1, "model": header["model"], "question": asked}


def _domain(header: dict[str, Any], side: str, row: int, n_features: int) -> Floats:
    """Ends of the domain of a row, one per feature."""
    domain = header["question"].get("perturbation", {})
    require(domain.get("name") == "Box", "header: the domain must be a Box")
    value = domain.get(side)
    if isinstance(value, list) and value and isinstance(value[0], list):
        require(row < len(value), f"header: '{side}' has no row {row}")
        value = value[row]
    numbers = value if isinstance(value, list) else [value] * n_features
    require(len(numbers) == n_features, f"header: one number per feature in '{side}'")
    return [float(number) for number in numbers]


def _plain(numbers: Floats) -> list[float | str]:
    return [x if math.isfinite(x) else ("inf" if x > 0 else "-inf") for x in numbers]
