"""Anchor features (the paper's section 3.4) with any engine: leave out what it proves needless.

The exact engine finds the same, and more, in compiled code (`treeproof.search.reasons`).
"""

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget, Engine, for_each_row
from treeproof.engines.instance import rank_space
from treeproof.query.query import Query
from treeproof.results.reasons import Reasons
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict
from treeproof.search.radius import RowQuestion
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
            question = RowQuestion(engine, query, row, budget)
            results.sufficient[row] = True
            _leave_out(question, np.flatnonzero(~stays[row]), results, row)

    results.seconds[:] = for_each_row(query, n_jobs, solve_row).seconds
    return results


def _leave_out(
    question: RowQuestion, movable: NDArray[np.int64], results: Reasons, row: int
) -> None:
    """Drop features while the rest is proved; minimal iff every remaining drop is falsified.

    Sound: freeing more features only enlarges the set, so a drop that a witness falsifies stays
    falsified after later drops; and with everything fixed only the row itself is left, which keeps
    its claim.
    """
    rows, reach = question.query.rows, question.query.reach
    kept = set(movable.tolist())
    witnesses = {}
    for feature in movable.tolist():
        is_kept = np.isin(np.arange(rows.shape[1]), sorted(kept - {feature}))
        low, high = (np.where(is_kept, rows, side) for side in (reach.low, reach.high))
        answer = question.ask(low=low, high=high)
        if answer is None:
            results.reason[row] = UnknownReason.TIME_LIMIT
        elif answer.verdict[0] == Verdict.VERIFIED:
            kept.remove(feature)
        elif answer.verdict[0] == Verdict.FALSIFIED:
            witnesses[feature] = answer.witness[0]
        else:
            results.reason[row] = answer.reason[0]
    features = sorted(kept)
    nothing = np.full(rows.shape[1], np.nan)
    results.features[row] = np.array(features, dtype=np.int64)
    results.sets[row] = [results.features[row]]
    results.minimal[row] = all(feature in witnesses for feature in features)
    points = [witnesses.get(feature, nothing) for feature in features]
    results.witnesses[row] = np.array(points).reshape(len(features), len(nothing))
