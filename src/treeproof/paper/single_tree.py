"""`single_tree`: exact answers for models of one tree, one walk per row (the paper's section 3.1).

Classification with any number of classes, vector leaves, and scores alike: a leaf fixes the whole
outcome, so the model's own arithmetic decides beforehand which leaves break which claim.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget
from treeproof.engines.instance import point_in_cells
from treeproof.engines.outcomes import (
    is_broken_unchanged,
    mark_broken,
    mark_falsified,
    mark_verified,
)
from treeproof.engines.row_questions import in_chunks, question_of
from treeproof.errors import InternalError
from treeproof.kernels.core.plain import turns
from treeproof.kernels.paper.single_tree import NearestLeaves, new_walk, single_tree_rows
from treeproof.model import evaluate
from treeproof.query.constraints import breaks_claim
from treeproof.query.query import Query
from treeproof.results.results import Results
from treeproof.results.verdict import Verdict


@dataclass(frozen=True, slots=True)
class SingleTreeEngine:
    """Exact verdicts and radii of a single tree; every other model is refused."""

    name: ClassVar[str] = "single_tree"
    is_complete: ClassVar[bool] = True

    def refusal(self, query: Query) -> str | None:
        """Say why a model of several trees is not for this engine."""
        if query.ensemble.n_trees == 1:
            return None
        return (
            f"The engine 'single_tree' answers for models of one tree."
            f" Got {query.ensemble.n_trees} trees. Use 'exact', 'cliques' or 'multilevel'."
        )

    def verify(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Decide every row at the query's own radius or box."""
        del budget  # linear time: there is nothing to limit
        outcomes, found = _settled(query, float(query.reach.radius or 0.0), n_jobs)
        for row in np.flatnonzero((found.distance == np.inf) & ~outcomes.exact):
            mark_verified(query, outcomes, int(row))
        return outcomes

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Find the minimal perturbation of every row."""
        del budget
        outcomes, found = _settled(query, np.inf, n_jobs)
        rows = ~query.already_broken
        outcomes.lower[rows] = outcomes.upper[rows] = found.distance[rows]
        outcomes.attained[rows] = found.attained[rows] & np.isfinite(found.distance[rows])
        outcomes.exact[rows] = True
        outcomes.verdict[rows] = Verdict.VERIFIED
        return outcomes


def _settled(query: Query, radius: float, n_jobs: int) -> tuple[Results, NearestLeaves]:
    """Find the nearest leaf that breaks each row, and write down rows that one breaks."""
    n_rows, n_features = query.rows.shape
    found = NearestLeaves(
        distance=np.empty(n_rows),
        attained=np.empty(n_rows, dtype=bool),
        low=np.empty((n_rows, n_features), dtype=np.int32),
        high=np.empty((n_rows, n_features), dtype=np.int32),
        seconds=np.empty(n_rows),
    )
    question, is_breaking = question_of(query), _breaking_leaves(query)

    def run(part: slice) -> None:
        walk = new_walk(n_features, question.forest.space.max_depth)
        for rows in turns(single_tree_rows, part):
            limits = float(radius), walk, rows.start, rows.stop
            single_tree_rows(question, is_breaking, *limits, found)

    in_chunks(query, n_jobs, run)
    outcomes = Results.empty(n_rows, n_features)
    outcomes.seconds[:] = found.seconds
    for row in range(n_rows):
        if is_broken_unchanged(query, row):
            mark_broken(query, outcomes, row)
        elif found.distance[row] < np.inf:
            point = point_in_cells(query, row, found.low[row], found.high[row])
            if not mark_falsified(query, outcomes, row, point):
                raise InternalError(
                    "A leaf that breaks a row must be confirmed by its replay. Got one of row"
                    f" {row} that is not, from the engine 'single_tree'. Please report it, and use"
                    " another engine."
                )
    return outcomes, found


def _breaking_leaves(query: Query) -> NDArray[np.bool_]:
    """Leaves that break the claim of each group, summed and finished as the library does."""
    ensemble, alternatives = query.ensemble, query.alternatives
    leaves = np.arange(ensemble.n_leaves, dtype=np.int32)[:, np.newaxis]
    sums = evaluate.accumulate(ensemble, leaves)
    n_groups = len(alternatives.group_label)
    groups = np.repeat(np.arange(n_groups)[:, np.newaxis], len(leaves), axis=1)
    found = [breaks_claim(ensemble, alternatives, group, sums) for group in groups]
    return np.array(found, dtype=bool).reshape(groups.shape)
