"""Asking engines about rows, within a budget, and keeping every finished row."""

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import treeproof
from experiments.paper.printed import FIRST_EPS
from experiments.paper.store import Store
from experiments.paper.subjects import Subject

ROWS = Store("rows")


@dataclass(frozen=True)
class Budget:
    """How many rows are asked at most, and how long one engine works on one model."""

    rows: int
    seconds: float


@dataclass(frozen=True)
class Measured:
    """Bounds and seconds of the rows that were asked and that the model gets right."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    seconds: NDArray[np.float64]
    number: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.seconds)

    def text(self, bound: str) -> str:
        """Mean bound of the rows, and how many these were; a dash where none was finished."""
        values = getattr(self, bound)
        values = values[np.isfinite(values)]
        return f"{values.mean():.4g}" if len(values) else "–"

    def closed(self) -> "Measured":
        """Only the rows whose bounds meet."""
        kept = (self.lower == self.upper) & np.isfinite(self.upper)
        return Measured(self.lower[kept], self.upper[kept], self.seconds[kept], self.number[kept])

    def at(self, numbers: NDArray[np.int64]) -> "Measured":
        """Only the given rows."""
        kept = np.isin(self.number, numbers)
        return Measured(self.lower[kept], self.upper[kept], self.seconds[kept], self.number[kept])


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
    """Ask block by block until rows or time run out; finished rows are kept and not asked again."""
    key = f"{subject.model.fingerprint[:16]} {what}"
    right = np.asarray(subject.model.predict(subject.X)) == subject.y
    rows = np.flatnonzero(right)[: budget.rows].tolist()
    spent = sum(record["seconds"] for record in ROWS.of(key).values())
    is_warm = bool(ROWS.of(key))
    while spent < budget.seconds:
        todo = [row for row in rows if row not in ROWS.of(key)][:block]
        if not todo:
            break
        question = (subject.model, subject.X[todo], subject.y[todo])
        limit = max((budget.seconds - spent) / len(todo), 1.0)
        if not is_warm:
            # Kernels compile on their first call, which is nobody's time per row.
            warm_up = (subject.model, subject.X[todo[:1]], subject.y[todo[:1]])
            treeproof.radius(*warm_up, time_limit_s=limit, arithmetic="real", **options)
            is_warm = True
        found = treeproof.radius(*question, time_limit_s=limit, arithmetic="real", **options)
        spent += float(found.seconds.sum())
        for number, row in enumerate(todo):
            bounds = {"lower": float(found.lower[number]), "upper": float(found.upper[number])}
            ROWS.add(key, row, seconds=float(found.seconds[number]), **bounds)
        print(f"{subject.name}, {what}: up to row {todo[-1]}", file=sys.stderr, flush=True)
    records = [ROWS.of(key)[row] for row in rows if row in ROWS.of(key)]
    return Measured(
        np.array([record["lower"] for record in records]),
        np.array([record["upper"] for record in records]),
        np.array([record["seconds"] for record in records]),
        np.array([record["row"] for record in records], dtype=np.int64),
    )
