"""`Outcomes`: what an engine found for many rows, one array per column."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.results.verdict import UnknownReason, Verdict

FloatArray = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class Outcomes:
    """Columns of results; row i of every array belongs to row i of the query.

    Attributes
    ----------
    verdict : object (n_rows,)
        `Verdict` members. For radius questions: VERIFIED when the radius is exact, FALSIFIED when
        the row is broken unchanged, UNKNOWN when bounds are apart.
    lower, upper : float64 (n_rows,)
        No violation at a distance below `lower`; a violation at `upper` (or, when not attained, at
        every distance beyond it). NaN for boxes, which have no radius.
    exact : bool (n_rows,)
        Whether the question is settled: lower == upper, or a verdict at a fixed set.
    attained : bool (n_rows,)
        Whether the violation lies at distance `upper` itself (otherwise only beyond it).
    witness : float64 (n_rows, n_features)
        A violating row in the model's input precision, replayed; NaN where there is none.
    witness_distance : float64 (n_rows,)
        Its distance; exceeds `upper` by at most one step of the input precision.
    seconds : float64 (n_rows,)
        Time spent on the row.
    reason : object (n_rows,)
        `UnknownReason` members.
    statistics : dict of str to array
        What the engine counted, per row (nodes, sweeps, level, …).
    evidence : list
        Certificates, where asked for; otherwise empty.
    """

    verdict: NDArray[Any]
    lower: FloatArray
    upper: FloatArray
    exact: NDArray[np.bool_]
    attained: NDArray[np.bool_]
    witness: FloatArray
    witness_distance: FloatArray
    seconds: FloatArray
    reason: NDArray[Any]
    statistics: dict[str, NDArray[Any]] = field(default_factory=dict)
    evidence: list[Any] = field(default_factory=list)

    @classmethod
    def empty(cls, n_rows: int, n_features: int) -> "Outcomes":
        """Return columns that claim nothing: unknown, lower 0, upper infinite, no witness."""
        return cls(
            verdict=np.full(n_rows, Verdict.UNKNOWN, dtype=object),
            lower=np.zeros(n_rows),
            upper=np.full(n_rows, np.inf),
            exact=np.zeros(n_rows, dtype=bool),
            attained=np.zeros(n_rows, dtype=bool),
            witness=np.full((n_rows, n_features), np.nan),
            witness_distance=np.full(n_rows, np.nan),
            seconds=np.zeros(n_rows),
            reason=np.full(n_rows, UnknownReason.NONE, dtype=object),
        )

    def __len__(self) -> int:
        return len(self.lower)
