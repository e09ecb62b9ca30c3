"""The minimal perturbation of each row, by asking an engine at chosen radii.

Two ways: exact search in the finite list of distances (the default), and the ten-step protocol of
the paper, kept so that its tables can be repeated.
"""

import dataclasses
import time
from typing import Any, cast

import numpy as np

from treeproof.engines.base import Budget, Engine, RadiusEngine, for_each_row
from treeproof.engines.outcomes import mark_broken
from treeproof.query.paper_protocol import PaperProtocol
from treeproof.query.query import Query
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict
from treeproof.search.distances import Distances, ball_of, distances_of


def find_radius(
    engine: Engine,
    query: Query,
    budget: Budget,
    *,
    protocol: PaperProtocol | None = None,
    n_jobs: int = 1,
) -> Results:
    """Bound the minimal perturbation of every row with any engine; limits count over all radii.

    Engines with a search of their own are asked to use it. The query is about balls, without a
    radius.
    """
    if protocol is not None:
        own = getattr(engine, "protocol_radius", None)
        if own is not None:
            results: Results = own(query, budget, protocol, n_jobs=n_jobs)
            return results
    elif hasattr(engine, "radius"):  # asking for the protocol takes longer than a small row
        return cast("RadiusEngine", engine).radius(query, budget, n_jobs=n_jobs)
    proved_at_first = np.zeros(len(query), dtype=bool)

    def solve_row(row: int, results: Results) -> None:
        if query.already_broken[row]:
            mark_broken(query, results, row)
            return
        question = RowQuestion(engine, query, row, budget)
        if protocol is None:
            _search_list(question, distances_of(query, row), results, row)
        else:
            proved_at_first[row] = _follow_protocol(question, protocol, results, row)

    results = for_each_row(query, n_jobs, solve_row)
    if protocol is not None:
        results.statistics["proved_at_first_eps"] = proved_at_first
    return results


class RowQuestion:
    """Asks an engine about one row in many sets, within one budget."""

    def __init__(self, engine: Engine, query: Query, row: int, budget: Budget) -> None:
        self.query = query.take(slice(row, row + 1))
        self._engine = engine
        self._budget = budget
        self._deadline = time.perf_counter() + budget.time_limit_s

    def ask(self, **reach: Any) -> Results | None:
        """Outcome of the row within a changed reach; None when no time is left."""
        left = self._deadline - time.perf_counter()
        if left <= 0.0:
            return None
        changed = dataclasses.replace(self.query.reach, **reach)
        query = dataclasses.replace(self.query, reach=changed)
        return self._engine.verify(query, dataclasses.replace(self._budget, time_limit_s=left))


def _search_list(question: RowQuestion, distances: Distances, results: Results, row: int) -> None:
    """Find the largest distance that the engine proves, and the smallest that it breaks.

    The cells of distance i are proved or broken by a question at its radius. Doubling the number
    of the distance first keeps the questions small: the work of a question grows with its radius.
    """
    proved, refused, broken = -1, len(distances), len(distances)
    reason = UnknownReason.LOOSE_BOUND
    step = 1
    while refused - proved > 1:
        is_open = refused == len(distances)
        middle = min(proved + step, refused - 1) if is_open else (proved + refused) // 2
        answer = question.ask(**ball_of(question.query, distances, middle))
        if answer is None:
            reason = UnknownReason.TIME_LIMIT
            break
        if answer.verdict[0] == Verdict.VERIFIED:
            proved = middle
            step *= 2
            continue
        if answer.verdict[0] == Verdict.FALSIFIED:
            # The witness may lie nearer than the radius that was asked for.
            middle = min(middle, distances.last_within(answer.upper[0]))
            if middle < broken:
                broken = middle
                _copy_witness(answer, results, row)
        elif answer.reason[0] != UnknownReason.NONE:
            reason = answer.reason[0]
        refused = middle
    n = len(distances)
    # Sound: up to the next distance no new cell is reached.
    results.lower[row] = distances.value[proved + 1] if proved + 1 < n else np.inf
    results.upper[row] = distances.value[broken] if broken < n else np.inf
    results.attained[row] = broken < n and bool(distances.attained[broken])
    results.exact[row] = broken == proved + 1
    if results.exact[row]:
        results.verdict[row] = Verdict.VERIFIED
    else:
        results.reason[row] = reason


def _copy_witness(answer: Results, results: Results, row: int) -> None:
    for name in ("witness", "witness_distance", "witness_label"):
        getattr(results, name)[row] = getattr(answer, name)[0]


def _follow_protocol(
    question: RowQuestion, protocol: PaperProtocol, results: Results, row: int
) -> bool:
    """Try the paper's radii; return whether the first one was proved."""
    radius = protocol.first_eps
    proved, refused = None, None
    proved_at_first = False
    reason = UnknownReason.LOOSE_BOUND
    for step in range(protocol.steps):
        answer = question.ask(radius=radius)
        if answer is None:
            reason = UnknownReason.TIME_LIMIT
            break
        if answer.verdict[0] == Verdict.VERIFIED:
            proved = radius
            proved_at_first |= step == 0
        else:
            refused = radius
            if answer.verdict[0] == Verdict.FALSIFIED:
                results.upper[row] = answer.upper[0]
                results.attained[row] = answer.attained[0]
                _copy_witness(answer, results, row)
        if proved is None:
            radius *= 0.5
        elif refused is not None:
            radius = 0.5 * (proved + refused)
        elif radius >= protocol.cap:
            break
        else:
            radius = min(2.0 * radius, protocol.cap)
    results.lower[row] = 0.0 if proved is None else proved
    results.reason[row] = reason
    return proved_at_first
