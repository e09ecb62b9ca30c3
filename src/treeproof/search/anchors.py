"""Anchor features (the paper's section 3.4) with any engine: leave out what it proves needless.

The exact engine finds the same, and more, in compiled code (`treeproof.search.reasons`).
"""

import dataclasses
import time

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget, Engine, for_each_row
from treeproof.engines.instance import rank_space
from treeproof.query.query import Query
from treeproof.results.reasons import Reasons
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict
from treeproof.search.reasons import in_domain, new_reasons


def find_anchors(engine: Engine, query: Query, budget: Budget, *, n_jobs: int = 1) -> Reasons:
    """Find a sufficient set of features for every row; limits count over all sets tried.

    A complete engine also shows that sets are minimal.
    """
    query = in_domain(query)
    results = new_reasons(query)
    space = rank_space(query.ensemble)
    stays = np.isnan(query.rows) | space.categorical | (np.diff(space.cut_start) == 0)
    stays |= (query.reach.low == query.rows) & (query.reach.high == query.rows)

    def solve_row(row: int, _: Results) -> None:
        if not query.already_broken[row]:
            question = _RowQuestion(engine, query.take(slice(row, row + 1)), budget)
            results.sufficient[row] = True
            _leave_out(question, np.flatnonzero(~stays[row]), results, row)

    results.seconds[:] = for_each_row(query, n_jobs, solve_row).seconds
    return results


class _RowQuestion:
    """Asks whether fixing a set of features fixes the answer of one row."""

    def __init__(self, engine: Engine, query: Query, budget: Budget) -> None:
        self._engine, self._budget, self.query = engine, budget, query
        self._deadline = time.perf_counter() + budget.time_limit_s

    def ask(self, kept: set[int]) -> tuple[str, UnknownReason, NDArray[np.float64]]:
        """Verdict with a set fixed, why it is unknown, and the witness of a falsified one."""
        left = self._deadline - time.perf_counter()
        if left <= 0.0:
            return Verdict.UNKNOWN, UnknownReason.TIME_LIMIT, self.query.rows[0]
        is_kept = np.isin(np.arange(self.query.rows.shape[1]), sorted(kept))
        low, high = (
            np.where(is_kept, self.query.rows, side)
            for side in (self.query.reach.low, self.query.reach.high)
        )
        reach = dataclasses.replace(self.query.reach, low=low, high=high)
        asked = dataclasses.replace(self.query, reach=reach)
        answer = self._engine.verify(asked, dataclasses.replace(self._budget, time_limit_s=left))
        return answer.verdict[0], answer.reason[0], answer.witness[0]


def _leave_out(
    question: _RowQuestion, movable: NDArray[np.int64], results: Reasons, row: int
) -> None:
    """Drop features while the rest is proved; minimal iff every remaining drop is falsified.

    Sound: freeing more features only enlarges the set, so a drop that a witness falsifies stays
    falsified after later drops; and with everything fixed only the row itself is left, which keeps
    its claim.
    """
    kept = set(movable.tolist())
    witnesses = {}
    for feature in movable.tolist():
        verdict, reason, witness = question.ask(kept - {feature})
        if verdict == Verdict.VERIFIED:
            kept.remove(feature)
            continue
        if verdict == Verdict.FALSIFIED:
            witnesses[feature] = witness
        else:
            results.reason[row] = reason
    features = sorted(kept)
    nothing = np.full(question.query.rows.shape[1], np.nan)
    results.features[row] = np.array(features, dtype=np.int64)
    results.sets[row] = [results.features[row]]
    results.minimal[row] = all(feature in witnesses for feature in features)
    points = [witnesses.get(feature, nothing) for feature in features]
    results.witnesses[row] = np.array(points).reshape(len(features), len(nothing))
