"""Asking engines about rows, within a budget, and keeping every finished row."""

import sys
import time
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

import treeproof
from experiments.paper.printed import FIRST_EPS
from experiments.paper.store import Store
from experiments.paper.subjects import Subject
from treeproof.results.verdict import UnknownReason

ROWS = Store("rows")


NOT_ASKED = "not asked"
UNFINISHED = (
    UnknownReason.TIME_LIMIT,
    UnknownReason.MEMORY_LIMIT,
    UnknownReason.SOLVER_FAILED,
    NOT_ASKED,
)
"""Reasons that more time could change; the others are a method's own last word."""


@dataclass(frozen=True)
class Budget:
    """How much is asked.

    A method is asked row after row, up to `rows`, until it has worked for `seconds` on a model.
    Those of the first `equal` rows that it did not come to are open. A row has `row_seconds`; one
    that did not finish is asked again when it gets more.
    """

    rows: int = 500
    equal: int = 20
    seconds: float = 60.0
    row_seconds: float = 60.0


@dataclass(frozen=True)
class Measured:
    """Bounds and processor seconds of the rows that were asked and that the model gets right."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    seconds: NDArray[np.float64]
    number: NDArray[np.int64]
    reason: NDArray[np.object_]  # why a row is not exact, if it is not

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def is_open(self) -> NDArray[np.bool_]:
        """Whether each row ended before the method was through with it."""
        return np.isin(self.reason, UNFINISHED)

    def text(self, bound: str) -> str:
        """Mean bound of all the rows, as far as it is known; a dash without rows.

        An open row counts with the bound that it has, which is what makes the mean a bound itself:
        0 and infinity where there is none.
        """
        values = getattr(self, bound)
        if not len(values):
            return "–"
        n_open = int(np.sum(self.is_open))
        if not n_open:
            return f"{values.mean():.4g}"
        ends = [f"{self.lower.mean():.4g}"]
        if bound == "upper" and np.all(np.isfinite(self.upper)):
            ends.append(f"{self.upper.mean():.4g}")
        sign = "" if len(ends) == 2 else "≥ "
        return f"{sign}{' to '.join(ends)}, {n_open} of {len(self)} open"

    def closed(self) -> "Measured":
        """Only the rows whose bounds meet."""
        return self._kept((self.lower == self.upper) & np.isfinite(self.upper))

    def at(self, numbers: NDArray[np.int64]) -> "Measured":
        """Only the given rows."""
        return self._kept(np.isin(self.number, numbers))

    def _kept(self, kept: NDArray[np.bool_]) -> "Measured":
        return Measured(*(getattr(self, each.name)[kept] for each in fields(self)))


def exact(subject: Subject, budget: Budget) -> Measured:
    return measured(subject, "exact", {"engine": "exact"}, budget, block=50)


def multilevel(subject: Subject, budget: Budget, T: int, L: int, bound: str = "sum") -> Measured:
    """The paper's method with the paper's search."""
    options = {
        "engine": treeproof.multilevel(T, L, bound=bound),
        "search": treeproof.PaperProtocol(first_eps=FIRST_EPS[subject.dataset]),
    }
    return measured(subject, f"multilevel {T} {L} {bound}", options, budget, block=10)


def milp(subject: Subject, budget: Budget) -> Measured:
    return measured(subject, "milp", {"engine": "milp"}, budget)


def lp(subject: Subject, budget: Budget) -> Measured:
    return measured(subject, "lp distance", {"engine": treeproof.lp(relaxation="distance")}, budget)


def hard_label(subject: Subject, budget: Budget) -> Measured:
    return measured(subject, "hard_label", {"engine": "hard_label"}, budget)


def measured(
    subject: Subject, what: str, options: dict[str, Any], budget: Budget, block: int = 1
) -> Measured:
    """Ask block by block within the budget; finished rows are kept and not asked again."""
    key = f"{subject.model.fingerprint[:16]} {what}"
    right = np.asarray(subject.model.predict(subject.X)) == subject.y
    rows = np.flatnonzero(right)[: budget.rows].tolist()
    kept = ROWS.of(key)
    is_warm = False
    for first in range(0, len(rows), block):
        todo = [row for row in rows[first : first + block] if needs_asking(kept.get(row), budget)]
        spent = sum(record["seconds"] for record in kept.values())
        if not todo or spent >= budget.seconds:
            continue
        options["time_limit_s"] = budget.row_seconds
        if not is_warm:
            # Kernels are compiled or loaded on their first call, which is nobody's time per row.
            warm_up = (subject.model, subject.X[todo[:1]], subject.y[todo[:1]])
            treeproof.radius(*warm_up, arithmetic="real", **options | {"time_limit_s": 1.0})
            is_warm = True
        began = time.process_time()
        question = (subject.model, subject.X[todo], subject.y[todo])
        found = treeproof.radius(*question, arithmetic="real", **options)
        # Of the processor, since the machine may have other work.
        each = (time.process_time() - began) / len(todo)
        for number, row in enumerate(todo):
            bounds = {"lower": float(found.lower[number]), "upper": float(found.upper[number])}
            limit = {"reason": str(found.reason[number]), "limit": budget.row_seconds}
            ROWS.add(key, row, seconds=each, **bounds, **limit)
        kept = ROWS.of(key)
        print(f"{subject.name}, {what}: up to row {todo[-1]}", file=sys.stderr, flush=True)
    missing = {"lower": 0.0, "upper": np.inf, "seconds": np.nan, "reason": NOT_ASKED}
    equal = {row: missing | {"row": row} for row in rows[: budget.equal]}
    records = [(equal | kept)[row] for row in rows if row in kept or row in equal]
    return Measured(
        *(np.array([record[name] for record in records]) for name in ("lower", "upper", "seconds")),
        np.array([record["row"] for record in records], dtype=np.int64),
        np.array([record["reason"] for record in records], dtype=object),
    )


def needs_asking(record: dict[str, Any] | None, budget: Budget) -> bool:
    """Whether a row is new, or was left open and now has more time."""
    if record is None:
        return True
    return record["reason"] in UNFINISHED and record["limit"] < budget.row_seconds
