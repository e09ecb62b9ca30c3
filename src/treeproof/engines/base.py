"""The interface of engines, and the budget of a run."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from treeproof.errors import InvalidInput
from treeproof.prediction import in_slices, thread_count
from treeproof.query.query import Query
from treeproof.results.results import Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits per row; running out gives `unknown` with the bounds reached.

    Attributes
    ----------
    time_limit_s : float
        Wall-clock seconds per row.
    node_limit : int
        Branching nodes, cliques or other units that the engine counts, per row.
    memory_limit_mb : float
        Memory for the open nodes of a row's search.
    """

    time_limit_s: float = np.inf
    node_limit: int = 2**62
    memory_limit_mb: float = 4096.0

    def __post_init__(self) -> None:
        """Refuse limits that leave nothing to work with."""
        for name in ("time_limit_s", "node_limit", "memory_limit_mb"):
            limit = getattr(self, name)
            if not isinstance(limit, int | float | np.number):
                raise InvalidInput(
                    f"'{name}' must be a number. Got {limit!r}. Leave it out for no limit of yours."
                )
            if not limit > 0:
                raise InvalidInput(f"'{name}' must be positive. Got {limit!r}.")


def asked_budget(time_limit_s: float, node_limit: int, memory_limit_mb: float) -> Budget:
    """Limits as a user asks for them; the first nodes of a search have their place already."""
    budget = Budget(
        time_limit_s=time_limit_s, node_limit=node_limit, memory_limit_mb=memory_limit_mb
    )
    if memory_limit_mb < 1.0:
        raise InvalidInput(f"'memory_limit_mb' must be at least 1. Got {memory_limit_mb!r}.")
    return budget


class Engine(Protocol):
    """Decides whether a fixed set contains a violation."""

    name: ClassVar[str]
    is_complete: ClassVar[bool]
    """Whether the engine always decides when no limit is reached."""

    def refusal(self, query: Query) -> str | None:
        """Return a sentence saying why the question cannot be answered, or None."""

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Decide every row at the query's own radius or box."""


@runtime_checkable
class RadiusEngine(Protocol):
    """An engine with a radius search of its own, better than trying radii one by one."""

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Bound the minimal perturbation of every row."""


def for_each_row(
    query: Query,
    n_jobs: int,
    solve_row: Callable[[int, Results], None],
) -> Results:
    """Run a per-row function that writes its row of the results; rows are timed here."""
    results = Results.empty(len(query), query.rows.shape[1])

    def timed(part: slice) -> None:
        for row in range(part.start, part.stop):
            started = time.perf_counter()
            solve_row(row, results)
            results.seconds[row] = time.perf_counter() - started
            if query.on_answered is not None:
                query.on_answered(1)

    in_slices(range(len(query)), thread_count(n_jobs), timed)
    return results
