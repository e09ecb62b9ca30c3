"""`Question`: what a run asks about every row, in a form that can be sent to workers."""

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.prediction import Model
from treeproof.query.arithmetic import Arithmetic
from treeproof.query.goals import Goal
from treeproof.query.perturbations import Box, LInf
from treeproof.results.outcomes import Outcomes
from treeproof.results.results import Results
from treeproof.results.run_file import AS_FINISHED, UNDERWAY, plain

if TYPE_CHECKING:
    from treeproof.engines.base import Budget, Engine
    from treeproof.query.query import Query

_RADIUS_UNIT = 32
"""Rows of one radius question. The engine learns the scale of the later ones from the first, so
that witnesses may depend on who is asked together; with units that never change they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question about rows that come in batches.

    Attributes
    ----------
    kind : {"verify", "radius"}
        Whether a verdict or the minimal perturbation is asked for.
    perturbation : LInf or Box
        How a row may change; the same for every row.
    engine, goal, arithmetic, attacker_class, time_limit_s, node_limit, memory_limit_mb, evidence
        See `treeproof.verify`.
    """

    kind: Literal["verify", "radius"]
    perturbation: LInf | Box
    engine: "str | Engine" = "exact"
    goal: Goal | None = None
    arithmetic: Arithmetic = "float64"
    attacker_class: Any = None
    time_limit_s: float = math.inf
    node_limit: int = 2**62
    memory_limit_mb: float = 4096.0
    evidence: bool = False

    def __post_init__(self) -> None:
        """Refuse what belongs to one row only."""
        parts = (self.perturbation, self.goal)
        sides = [getattr(part, side, 0.0) for part in parts for side in ("low", "high")]
        is_per_row = isinstance(self.perturbation, Box) and any(np.ndim(s) > 1 for s in sides[:2])
        if is_per_row or any(np.ndim(side) > 0 for side in sides[2:]):
            raise InvalidInput(
                "A run asks the same question about every row, so bounds must not be given per"
                " row. Ask treeproof.verify instead."
            )

    def check(self, ensemble: Ensemble, rows: FloatArray, numbers: NDArray[np.int64]) -> None:
        """Refuse rows outside the bounds of the question, under their numbers in the data."""
        from treeproof.search.asking import refuse_outside

        if isinstance(self.perturbation, LInf):
            refuse_outside(ensemble, rows, self.perturbation, numbers)

    @property
    def unit_rows(self) -> int:
        """Rows of a block that is always asked about together; see `Query`."""
        return _RADIUS_UNIT if self.kind == "radius" else 1

    def ask(self, model: Model, rows: FloatArray, labels: NDArray[Any] | None) -> Results:
        """Answer some rows, in this thread.

        Parameters
        ----------
        model : Model
            The model.
        rows : float64 (n_rows, n_features)
            Rows; units follow each other, and all but the last one are whole.
        labels : object (n_rows,) or None
            Labels that they should keep.
        """
        from treeproof.search.asking import results_of
        from treeproof.search.radius import find_radius

        engine, query, budget, words = self._asked(model, rows, labels)
        if self.kind == "radius":
            outcomes = find_radius(engine, query, budget)
        else:
            outcomes = engine.verify(query, budget)
        return results_of(query, outcomes, words, budget if self.evidence else None)

    def unanswered(
        self, model: Model, rows: FloatArray, labels: NDArray[Any] | None, reason: str = ""
    ) -> Results:
        """Results that claim nothing about rows; a question that cannot be asked is refused here.

        Parameters
        ----------
        model : Model
            The model.
        rows : float64 (n_rows, n_features)
            Rows.
        labels : object (n_rows,) or None
            Labels that they should keep.
        reason : str
            Why they are undecided.
        """
        from treeproof.search.asking import results_of

        _, query, _, words = self._asked(model, rows, labels)
        results = results_of(query, Outcomes.empty(len(query), rows.shape[1]), words)
        results.reason = np.full(len(results), reason)
        return results

    def _asked(
        self, model: Model, rows: FloatArray, labels: NDArray[Any] | None
    ) -> "tuple[Engine, Query, Budget, dict[str, Any]]":
        """The question as engines take it, and in words."""
        from treeproof.engines.base import Budget
        from treeproof.engines.registry import engine_named, require_support
        from treeproof.search.asking import ask, describe

        engine = engine_named(self.engine)
        budget = Budget(
            time_limit_s=self.time_limit_s,
            node_limit=self.node_limit,
            memory_limit_mb=self.memory_limit_mb,
        )
        query = ask(
            model.ensemble,
            rows,
            labels,
            self.perturbation,
            goal=self.goal,
            arithmetic=self.arithmetic,
            attacker_class=self.attacker_class,
        )
        require_support(engine, query)
        query = dataclasses.replace(query, unit_rows=self.unit_rows)
        return engine, query, budget, {"kind": self.kind, "engine": describe(engine)}

    def header(self, model: Model, rows: FloatArray, labels: NDArray[Any] | None) -> dict[str, Any]:
        """Header of a run; the rows are only looked at."""
        header = self.unanswered(model, rows, labels).header
        limits = {
            "time_limit_s": None if math.isinf(self.time_limit_s) else float(self.time_limit_s),
            "node_limit": None if self.node_limit >= 2**62 else int(self.node_limit),
            "memory_limit_mb": float(self.memory_limit_mb),
        }
        # Version 0.1.0 called the arithmetic the domain; with its word here its runs are known.
        question = dict(header["question"])
        question["domain"] = question.pop("arithmetic")
        asked: dict[str, Any] = {"question": question, "limits": limits}
        if self.evidence:
            asked["evidence"] = True
        text = msgspec.json.encode(asked, order="sorted")
        return header | {
            "limits": limits,
            "question_hash": hashlib.sha256(text).hexdigest(),
            "order": AS_FINISHED,
            "state": UNDERWAY,
        }


def row_keys(
    header: dict[str, Any], rows: FloatArray, labels: Sequence[Any] | NDArray[Any] | None
) -> NDArray[np.uint64]:
    """Key of each row in a run: a hash of the model, the question, the values and the label."""
    identity = header["model"]["fingerprint"] + header["question_hash"]
    secret = hashlib.sha256(identity.encode()).digest()
    values = np.ascontiguousarray(rows, dtype=np.float64) + 0.0  # -0.0 and 0.0 are one number
    values[np.isnan(values)] = np.nan  # and all kinds of NaN one missing entry
    keys = np.empty(len(values), dtype=np.uint64)
    for i in range(len(values)):
        digest = hashlib.blake2b(values[i].tobytes(), digest_size=8, key=secret)
        if labels is not None:
            digest.update(repr(plain(labels[i])).encode())
        keys[i] = int.from_bytes(digest.digest(), "big")
    return keys


def key_text(key: Any) -> str:
    """A key as run files hold it."""
    return f"{int(key):016x}"
