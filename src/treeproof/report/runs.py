"""A saved run as the report sees it: answers, a name, and what follows from them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.checker import RowCheck
from treeproof.errors import InvalidInput
from treeproof.query.description import plain
from treeproof.results.changes import Naming
from treeproof.results.curves import (
    attacked_rows,
    certified_rows,
    changed_features,
    count_broken,
    count_certified,
    has_radii,
)
from treeproof.results.numbers import ColumnFormat, ColumnFormats
from treeproof.results.reasons import Reasons
from treeproof.results.results import Results, withdraw
from treeproof.results.run_file import check_bounds, load_results
from treeproof.results.threat import Threat, feature_name, frozen_numbers, limit_of, threat_of

_ATTACKS = ("attack", "hard_label")
"""Engines that look for breaking changes and prove nothing."""


def id_name(table: Results | Reasons) -> str:
    """Column that rows are known by; empty where they are known by their numbers only."""
    if table.id is None:
        return ""
    return str(dict(table.header.get("data") or {}).get("id") or "id")


def row_name(table: Results | Reasons, i: int) -> str:
    """What a reader knows a row by: its number, and its identifier where there is one."""
    known = None if table.id is None else table.id[i]
    named = "" if known in (None, "") else f" · {id_name(table)} {known}"
    return f"Row {table.row[i]}{named}"


@dataclass(frozen=True, kw_only=True)
class RunView:
    """One run of a report, by the name that the reader knows it by.

    Where `checks` say what the checker found, it is without what was not accepted. Of recourse it
    has the cheapest way of each row; `n_further` are left out.
    """

    results: Results
    name: str
    checks: Sequence[RowCheck] | None = None
    n_further: int = 0

    @property
    def header(self) -> dict[str, Any]:
        """Model, question, data and versions."""
        return self.results.header

    @property
    def question(self) -> dict[str, Any]:
        """What was asked."""
        return dict(self.header.get("question", {}))

    @property
    def arithmetic(self) -> str:
        """Whether rows are real numbers or floats."""
        return str(self.question.get("arithmetic", ""))

    @property
    def model(self) -> dict[str, Any]:
        """Identity of the model."""
        return dict(self.header.get("model", {}))

    @cached_property
    def naming(self) -> Naming:
        """Names of features, groups and categories."""
        return Naming(self.header)

    @cached_property
    def axis_of(self) -> dict[int, tuple[int, ...]]:
        """The group that each feature belongs to, alone where there is none."""
        return {f: axis for axis in self.naming.axes(self.rows.shape[1]) for f in axis}

    @property
    def eps(self) -> float | None:
        """Radius that was verified; None where it was asked for, or each row has its own."""
        return limit_of(self.header)

    @property
    def measure(self) -> str:
        """What distances are called: costs are no radii."""
        return "cost" if self.question.get("perturbation", {}).get("name") == "Cost" else "radius"

    @property
    def is_attack(self) -> bool:
        """Whether an attack answered: it gives distances of what it found, and proves nothing."""
        return dict(self.question.get("engine") or {}).get("name") in _ATTACKS

    @property
    def recourse(self) -> dict[str, Any]:
        """What was wished, where the question was what people can do; else nothing."""
        return dict(self.header.get("recourse") or {})

    @cached_property
    def shown(self) -> NDArray[np.float64]:
        """The witnesses as people are shown them."""
        return self.results.as_shown

    @property
    def shown_radius(self) -> NDArray[np.float64]:
        """The bound that stands for each row: the proved one, of an attack what it found."""
        return self.results.upper if self.is_attack else self.results.lower

    @property
    def has_radii(self) -> bool:
        """Whether the answers are about distances."""
        return has_radii(self.results)

    @cached_property
    def is_settled(self) -> bool:
        """Whether the radius of every attacked row is known."""
        return bool((self.results.exact | ~self.attacked).all())

    @cached_property
    def attacked(self) -> NDArray[np.bool_]:
        """Rows that may change; everything that is counted is counted among them."""
        return attacked_rows(self.results)

    @property
    def n_attacked(self) -> int:
        """Number of attacked rows."""
        return int(self.attacked.sum())

    @property
    def n_broken(self) -> int:
        """Number of attacked rows that break the claim unchanged."""
        return int((self.broken & self.attacked).sum())

    @cached_property
    def broken(self) -> NDArray[np.bool_]:
        """Rows that break the claim unchanged."""
        results = self.results
        if results.asks_radius:
            return np.asarray(results.verdict == "falsified")
        if self.changed is not None:
            return np.asarray((results.verdict == "falsified") & ~self.changed.any(axis=1))
        return np.asarray((results.verdict == "falsified") & (results.witness_distance == 0.0))

    @cached_property
    def has_witness(self) -> NDArray[np.bool_]:
        """Rows with a witness that differs from the row."""
        return ~np.isnan(self.results.witness).all(axis=1) & ~self.broken & self.attacked

    @cached_property
    def changed(self) -> NDArray[np.bool_] | None:
        """Which entries each witness changes; None where rows were not recorded."""
        return changed_features(self.results)

    @cached_property
    def rows(self) -> NDArray[np.float64]:
        """The rows themselves; NaN where they were not recorded."""
        values = self.results.values
        return np.full(self.results.witness.shape, np.nan) if values is None else values

    @cached_property
    def rows_digest(self) -> str:
        """SHA-256 of the rows and labels; empty where rows were not recorded.

        Of each row by number, one after the other: a JSON array of the number, the values so that
        they read back to the same doubles, and the label.
        """
        results, digest = self.results, hashlib.sha256()
        if results.values is None:
            return ""
        for i in np.argsort(results.row, kind="stable").tolist():
            row = [int(results.row[i]), results.values[i].tolist(), results.label[i]]
            digest.update(msgspec.json.encode(plain(row)))
        return digest.hexdigest()

    @cached_property
    def formats(self) -> Sequence[ColumnFormat]:
        """How the values of each feature are written, in the precision of the rows."""
        return ColumnFormats(self.rows)

    @cached_property
    def moves(self) -> NDArray[np.float64]:
        """By how much each witness changes each entry; 0 where nothing changes or is known."""
        if self.changed is None:
            return np.zeros(self.results.witness.shape)
        with np.errstate(invalid="ignore"):
            return np.where(self.changed, self.results.witness - self.rows, 0.0)

    def n_certified(self, radius: float) -> int:
        """Number of attacked rows that are proved to keep their claim within a radius."""
        if not self.has_radii:
            return int(((self.results.verdict == "verified") & self.attacked).sum())
        return int(count_certified(self.results, [radius])[0])

    def n_resisting(self, radius: float) -> int:
        """Number of attacked rows for which no violation is known within a radius."""
        if not self.has_radii:
            return int(((self.results.verdict != "falsified") & self.attacked).sum())
        return self.n_attacked - int(count_broken(self.results, [radius])[0])

    def is_certified(self, radius: float) -> NDArray[np.bool_]:
        """Which attacked rows are proved to keep their claim within a radius."""
        if not self.has_radii:
            return np.asarray((self.results.verdict == "verified") & self.attacked)
        return certified_rows(self.results, radius)

    @property
    def id_name(self) -> str:
        """Column that rows are known by; empty where they are known by their numbers only."""
        return id_name(self.results)

    def feature_name(self, feature: int) -> str:
        """Name of a feature, or its number."""
        return feature_name(self.header, feature)

    @cached_property
    def threat(self) -> Threat | None:
        """What may move; None where the perturbation is of a kind that is not known here."""
        return threat_of(self.header, self.results.values, self.attacked)


def read_run(source: "Results | str | PathLike[str]", name: str | None = None) -> RunView:
    """Take results, or read a run file; by default named as the file, or the model's library."""
    if isinstance(source, Results):
        library = str(source.header.get("model", {}).get("library", "")) or "model"
        run = RunView(results=source, name=name or library)
    else:
        run = RunView(results=load_results(source), name=name or Path(source).stem)
    if run.results.way is not None:
        # A page shows the cheapest way of each row.
        n_further = int((run.results.way > 1).sum())
        run = replace(run, results=run.results.take(run.results.way == 1), n_further=n_further)
    # File names may hold bytes that are no text; a question mark stands for them.
    run = replace(run, name=run.name.encode("utf-8", "replace").decode())
    if len(run.results) == 0:
        raise InvalidInput(f"A report needs at least one row. Got none in the run '{run.name}'.")
    check_bounds(run.results, f"the run '{run.name}'")
    return run


def only_accepted(run: RunView, checks: Sequence[RowCheck]) -> RunView:
    """The run without what the checker did not accept: such rows are undecided."""
    said = {check.row: check for check in checks}
    results = run.results.take(np.arange(len(run.results)))
    positions, reasons = [], []
    for position, row in enumerate(results.row.tolist()):
        check = said.get(row, RowCheck(row, "rejected", "it was not checked"))
        if check.status not in ("accepted", "claims nothing"):
            positions.append(position)
            reasons.append(f"{check.status} by the checker: {check.reason}")
            if results.predicted is not None and check.status == "rejected":
                results.predicted[position] = None
    withdraw(results, positions, reasons)
    return replace(run, results=results, checks=checks)


def differences(one: RunView, other: RunView, *, but: Sequence[str] = ()) -> list[str]:
    """Why two runs cannot be compared, in sentences; none where they ask the same.

    With radii it does not matter at which of them rows were verified: bounds hold at all. `but` are
    parts of the perturbation that may differ.
    """

    def changes(run: RunView) -> Any:
        limits = ("eps", "budget") if run.has_radii else ()
        asked = dict(run.question.get("perturbation") or {})
        eps = None if run.results.eps is None else run.results.eps.tolist()
        return {name: asked[name] for name in asked if name not in (*limits, *but)}, eps

    said = []
    if changes(one) != changes(other):
        with_radii = one.has_radii and other.has_radii
        rest = (
            "their radii are not in the same unit" if with_radii else "they do not prove the same"
        )
        said.append(f"The two runs allow different changes, so {rest}.")
    if one.question.get("attacker_class") != other.question.get("attacker_class"):
        said.append("The two runs attack rows of different classes.")
    if one.question.get("goal") != other.question.get("goal"):
        said.append("The two runs are about different claims.")
    elif one.question.get("labels") != other.question.get("labels"):
        said.append(
            "One run asks whether rows stay correct, the other whether the model keeps its own"
            " answers, right or wrong."
        )
    if one.arithmetic != other.arithmetic:
        said.append("One run is about doubles, the other about real numbers.")
    return said


def frozen_features(base: RunView, frozen: RunView) -> list[int]:
    """Numbers of the features that a run of the same rows froze beyond those of another."""
    if not np.array_equal(base.results.row, frozen.results.row):
        raise InvalidInput(
            f"A run with frozen features must be about the rows of the report. Got '{frozen.name}',"
            " which is about others."
        )
    unlike = differences(base, frozen, but=("frozen",))
    if unlike or not (base.results.asks_radius and frozen.results.asks_radius):
        reason = unlike[0] if unlike else "One of the runs asks for no radii."
        raise InvalidInput(
            "A run with frozen features must ask for radii as the run of the report does, but for"
            f" what is frozen. Got '{frozen.name}'. {reason}"
        )
    added = set(frozen_numbers(frozen.header)) - set(frozen_numbers(base.header))
    if not added:
        raise InvalidInput(
            "A run with frozen features must freeze some that the run of the report does not."
            f" Got '{frozen.name}', which freezes no others."
        )
    return sorted(added)


def renamed(runs: list[RunView]) -> list[RunView]:
    """Give runs of one name a number each, so that a reader can tell them apart."""
    names = [run.name for run in runs]
    if len(set(names)) == len(names):
        return runs
    return [replace(run, name=f"{run.name} {k}") for k, run in enumerate(runs, start=1)]
