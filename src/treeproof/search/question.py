"""`Question`: one question about any rows; whoever asks, in this process or another, asks by it."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget, Engine
from treeproof.engines.registry import engine_named, require_support
from treeproof.errors import InvalidInput
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.prediction import Model
from treeproof.query.arithmetic import Arithmetic
from treeproof.query.goals import Goal
from treeproof.query.paper_protocol import PaperProtocol
from treeproof.query.perturbations import Box, LInf
from treeproof.query.query import Query
from treeproof.results.outcomes import Outcomes
from treeproof.results.results import Results
from treeproof.search.asking import ask, describe, refuse_outside, results_of
from treeproof.search.radius import find_radius

_RADIUS_UNIT = 32
"""Rows of one radius question. The engine learns the scale of the later ones from the first, so
that witnesses may depend on who is asked together; with units that never change they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A verdict or a radius for every row; the fields are the options of `treeproof.verify`."""

    kind: Literal["verify", "radius"]
    perturbation: LInf | Box
    engine: str | Engine = "exact"
    search: PaperProtocol | None = None
    goal: Goal | None = None
    arithmetic: Arithmetic = "float64"
    attacker_class: Any = None
    time_limit_s: float = math.inf
    node_limit: int = 2**62
    memory_limit_mb: float = 4096.0
    evidence: bool = False

    def __post_init__(self) -> None:
        """Refuse a perturbation that does not fit what is asked for."""
        ball = self.perturbation
        if self.kind == "radius":
            if not isinstance(ball, LInf) or ball.eps is not None:
                raise InvalidInput(
                    "A radius is searched with an LInf without eps, such as LInf(scale=...)."
                    f" Got {ball!r}."
                )
        elif ball is None:
            raise InvalidInput("'perturbation' must say how rows may change, such as LInf(0.1).")
        elif isinstance(ball, LInf) and ball.eps is None:
            raise InvalidInput(
                "To verify, LInf must have a radius, such as LInf(0.1). Got none."
                " Ask treeproof.radius for the radius itself."
            )

    @property
    def unit_rows(self) -> int:
        """Rows of a block that is always asked about together in a run; see `Query`."""
        return _RADIUS_UNIT if self.kind == "radius" else 1

    def check(self, ensemble: Ensemble, rows: FloatArray, numbers: NDArray[np.int64]) -> None:
        """Refuse rows outside the bounds of the question, under their numbers in the data."""
        if isinstance(self.perturbation, LInf):
            refuse_outside(ensemble, rows, self.perturbation, numbers)

    def answer(
        self, model: Model, X: Any, y: Any = None, *, in_units: bool = False, n_jobs: int = 1
    ) -> Results:
        """Answer some rows; with `in_units` they are whole units, but for the last one."""
        engine, query, budget, words = self._resolve(model, X, y, n_jobs)
        if in_units:
            query = dataclasses.replace(query, unit_rows=self.unit_rows)
        if self.kind == "radius":
            outcomes = find_radius(engine, query, budget, protocol=self.search, n_jobs=n_jobs)
        else:
            outcomes = engine.verify(query, budget, n_jobs=n_jobs)
        return results_of(query, outcomes, words, budget if self.evidence else None, n_jobs)

    def undecided(self, model: Model, X: Any, y: Any, reason: str = "") -> Results:
        """Results that claim nothing about rows; a question that cannot be asked is refused."""
        _, query, _, words = self._resolve(model, X, y, 1)
        results = results_of(query, Outcomes.empty(len(query), query.rows.shape[1]), words)
        results.reason = np.full(len(results), reason)
        return results

    def _resolve(
        self, model: Model, X: Any, y: Any, n_jobs: int
    ) -> tuple[Engine, Query, Budget, dict[str, Any]]:
        """The question as engines take it, and what run files say of it."""
        engine = engine_named(self.engine)
        budget = Budget(
            time_limit_s=self.time_limit_s,
            node_limit=self.node_limit,
            memory_limit_mb=self.memory_limit_mb,
        )
        query = ask(
            model.ensemble,
            X,
            y,
            self.perturbation,
            goal=self.goal,
            arithmetic=self.arithmetic,
            attacker_class=self.attacker_class,
            n_jobs=n_jobs,
        )
        require_support(engine, query)
        words: dict[str, Any] = {"kind": self.kind, "engine": describe(engine)}
        if self.search is not None:
            words["search"] = describe(self.search)
        return engine, query, budget, words
