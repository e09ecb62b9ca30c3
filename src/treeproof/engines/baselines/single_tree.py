"""`single_tree`: exact answers for models of one tree, one walk per row (the paper's section 3.1).

Classification with any number of classes, vector leaves, and scores alike: a leaf fixes the whole
outcome, so the model's own arithmetic decides beforehand which leaves break which claim.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from treeproof.engines.base import Budget
from treeproof.engines.instance import point_in_cells, rank_space
from treeproof.engines.outcomes import (
    is_broken_unchanged,
    mark_broken,
    mark_falsified,
    mark_verified,
)
from treeproof.engines.questions import in_chunks, question_of
from treeproof.kernels.baselines.single_tree import LeafMeaning, single_tree_rows
from treeproof.model import evaluate
from treeproof.model.ensemble import CATEGORICAL, Ensemble, FloatArray, IntArray
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
        found = _nearest_leaves(query, query.reach.radius or 0.0, n_jobs)
        outcomes = Results.empty(len(query), query.rows.shape[1])
        outcomes.seconds[:] = found.seconds
        for row in range(len(query)):
            if is_broken_unchanged(query, row):
                mark_broken(query, outcomes, row)
            elif found.distance[row] == np.inf:
                mark_verified(query, outcomes, row)
            else:
                _settle_leaf(query, outcomes, row, found)
        return outcomes

    def radius(self, query: Query, budget: Budget, *, n_jobs: int = 1) -> Results:
        """Find the minimal perturbation of every row."""
        del budget
        found = _nearest_leaves(query, np.inf, n_jobs)
        outcomes = Results.empty(len(query), query.rows.shape[1])
        outcomes.seconds[:] = found.seconds
        for row in range(len(query)):
            if query.already_broken[row]:
                mark_broken(query, outcomes, row)
                continue
            if np.isfinite(found.distance[row]):
                _settle_leaf(query, outcomes, row, found)
            outcomes.lower[row] = outcomes.upper[row] = found.distance[row]
            outcomes.attained[row] = found.attained[row] and np.isfinite(found.distance[row])
            outcomes.exact[row] = True
            outcomes.verdict[row] = Verdict.VERIFIED
        return outcomes


@dataclass(slots=True)
class _NearestLeaves:
    """Nearest breaking leaf of each row; see `single_tree_rows`."""

    distance: FloatArray
    attained: np.ndarray
    low: IntArray
    high: IntArray
    seconds: FloatArray


def _nearest_leaves(query: Query, radius: float, n_jobs: int) -> _NearestLeaves:
    n_rows, n_features = query.rows.shape
    found = _NearestLeaves(
        distance=np.empty(n_rows),
        attained=np.empty(n_rows, dtype=bool),
        low=np.empty((n_rows, n_features), dtype=np.int32),
        high=np.empty((n_rows, n_features), dtype=np.int32),
        seconds=np.empty(n_rows),
    )
    question, meaning = question_of(query), _meaning_of(query)
    space, trees = rank_space(query.ensemble), query.ensemble.trees
    columns = (found.distance, found.attained, found.low, found.high, found.seconds)
    in_chunks(
        n_rows,
        n_jobs,
        lambda a, b: single_tree_rows(
            trees, space, question, meaning, float(radius), a, b, *columns
        ),
    )
    return found


def _settle_leaf(query: Query, outcomes: Results, row: int, found: _NearestLeaves) -> None:
    point = point_in_cells(query, row, found.low[row], found.high[row])
    if not mark_falsified(query, outcomes, row, point):
        raise AssertionError(f"Row {row}: the replay does not confirm the leaf that breaks it.")


def _meaning_of(query: Query) -> LeafMeaning:
    """Outcome of every leaf, summed and finished as the library does."""
    ensemble = query.ensemble
    leaves = np.arange(ensemble.n_leaves, dtype=np.int32)[:, np.newaxis]
    accumulators = evaluate.accumulate(ensemble, leaves)
    label = np.full(ensemble.n_leaves, -1, dtype=np.int64)
    if ensemble.decision.kind != "score":
        label[:] = evaluate.label_indices(ensemble, evaluate.finish(ensemble, accumulators))
    return LeafMeaning(
        accumulator=accumulators.astype(np.float64),
        label=label,
        judgement=query.alternatives.judgement,
        group_label=query.alternatives.group_label,
    )


def leaf_boxes(ensemble: Ensemble, tree: int = 0) -> tuple[FloatArray, FloatArray]:
    """Box of every leaf of a tree: the values x with low <= x < high in each feature.

    This is the paper's O(nd) construction. A leaf behind contradicting splits has an empty box
    (low >= high in some feature). Only numeric splits without zero-as-missing give boxes.

    Returns
    -------
    low, high : float64 (n_leaves, n_features)
        In the order of the tree's leaves.
    """
    trees = ensemble.trees
    first, last = int(trees.root[tree]), int(trees.root[tree + 1])
    if np.any(trees.flags[first:last] & (CATEGORICAL | 2)):
        raise ValueError("Leaves behind categorical or zero-as-missing splits are no boxes.")
    low = np.full((last - first, ensemble.n_features), -np.inf)
    high = np.full((last - first, ensemble.n_features), np.inf)
    for node in range(first, last):
        feature = trees.feature[node]
        if feature < 0:
            continue
        left, right = trees.left[node] - first, trees.right[node] - first
        for child in (left, right):
            low[child], high[child] = low[node - first], high[node - first]
        high[left, feature] = min(high[left, feature], trees.threshold[node])
        low[right, feature] = max(low[right, feature], trees.threshold[node])
    leaves = trees.feature[first:last] < 0
    return low[leaves], high[leaves]
