"""Anchor features: a set that, once fixed, provably fixes the answer (the paper's section 3.4).

Every witness against a set names features outside it that must not all stay free, so a sufficient
set hits the changes of every witness. Sets that hit all witnesses so far are proposed, smallest
first by a greedy rule, and put to the engine, until one is proved. Then features are left out one
by one as long as the engine proves the rest; what remains is minimal by inclusion.
"""

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.base import Budget, Engine, for_each_row
from treeproof.engines.instance import rank_space
from treeproof.engines.outcomes import are_broken
from treeproof.query.query import Query
from treeproof.results.features import AnchorResults
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict
from treeproof.search.radius import RowQuestion

Features = frozenset[int]


def find_anchors(
    engine: Engine, query: Query, question: dict[str, Any], budget: Budget, *, n_jobs: int = 1
) -> AnchorResults:
    """Find a small sufficient set of features for every row; limits count over all sets tried.

    The query is a box, or a ball with a radius: how features outside the set may move. A complete
    engine also proves that sets are minimal.
    """
    n_rows = len(query)
    results = AnchorResults(
        row=np.arange(n_rows, dtype=np.int64),
        label=query.class_labels(query.labels),
        features=[np.zeros(0, dtype=np.int64) for _ in range(n_rows)],
        kept=[np.flatnonzero(entries) for entries in query.never_moved()],
        sufficient=~query.already_broken,
        minimal=np.zeros(n_rows, dtype=bool),
        seconds=np.zeros(n_rows),
        reason=np.full(n_rows, "", dtype="<U64"),
        feature_names=query.ensemble.feature_names,
        question=question | query.words(),
    )
    low, high = query.reach.box(query.rows, query.reach.radius or 0.0)
    # A fixed feature keeps the row's own value, so that value is always allowed.
    low, high = np.fmin(low, query.rows), np.fmax(high, query.rows)

    def solve_row(row: int, _: Results) -> None:
        if query.already_broken[row]:
            return
        question = RowQuestion(engine, query, row, budget)
        row_question = _AnchorQuestion(question, low[row], high[row])
        anchors, is_minimal = _search(row_question)
        results.features[row] = np.array(sorted(anchors), dtype=np.int64)
        results.minimal[row] = is_minimal
        if not is_minimal:
            results.reason[row] = row_question.reason

    results.seconds[:] = for_each_row(query, n_jobs, solve_row).seconds
    return results


class _AnchorQuestion:
    """Asks whether fixing a set of features fixes the answer of one row."""

    def __init__(
        self, question: RowQuestion, low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> None:
        self._question, self._query = question, question.query
        self._values = self._query.rows[0]
        self._low, self._high = low, high
        space = rank_space(self._query.ensemble)
        stays = np.isnan(self._values) | space.categorical | (np.diff(space.cut_start) == 0)
        stays |= (low == self._values) & (high == self._values)
        self.movable: Features = frozenset(np.flatnonzero(~stays).tolist())
        self.reason = UnknownReason.NONE

    def ask(self, anchors: Features) -> tuple[Verdict, Features]:
        """Verdict with the set fixed, and for a falsified one the features its witness changes."""
        fixed = sorted(anchors)
        box = np.array([self._low, self._high])
        box[:, fixed] = self._values[fixed]
        rates = np.full(len(self._values), np.inf)
        answer = self._question.ask(
            down=rates, up=rates, low=box[:1], high=box[1:], radius=np.inf, is_ball=False
        )
        if answer is None:
            self.reason = UnknownReason.TIME_LIMIT
            return Verdict.UNKNOWN, frozenset()
        verdict = answer.verdict[0]
        if verdict == Verdict.UNKNOWN:
            self.reason = answer.reason[0]
        if verdict != Verdict.FALSIFIED:
            return verdict, frozenset()
        return verdict, self._needed_changes(answer.witness[0])

    def _needed_changes(self, witness: NDArray[np.float64]) -> Features:
        """Features of a witness that cannot be put back without losing it."""
        point = witness.copy()
        changed = np.flatnonzero((witness != self._values) & ~np.isnan(self._values))
        for feature in changed:
            before = point[feature]
            point[feature] = self._values[feature]
            if not are_broken(self._query, 0, point[np.newaxis])[0]:
                point[feature] = before
        needed = np.flatnonzero((point != self._values) & ~np.isnan(self._values))
        return frozenset(needed.tolist())


def _hitting_set(conflicts: list[Features]) -> Features:
    """Hit every set, taking the feature that hits most of what is left, lowest number first."""
    left, chosen = conflicts, set()
    while left:
        counts = Counter(feature for conflict in left for feature in conflict)
        best = max(sorted(counts), key=counts.__getitem__)
        chosen.add(best)
        left = [conflict for conflict in left if best not in conflict]
    return frozenset(chosen)


def _search(question: _AnchorQuestion) -> tuple[Features, bool]:
    """Return a sufficient set, and whether its minimality is proved."""
    conflicts: list[Features] = []  # each of which a sufficient set must hit
    while True:
        anchors = _hitting_set(conflicts)
        verdict, changed = question.ask(anchors)
        if verdict == Verdict.VERIFIED:
            break
        if verdict == Verdict.UNKNOWN:
            # Sound: with everything fixed only the row itself is left, which keeps its claim.
            anchors = question.movable
            break
        conflicts.append(changed)
    return _leave_out(question, anchors, conflicts)


def _leave_out(
    question: _AnchorQuestion, anchors: Features, conflicts: list[Features]
) -> tuple[Features, bool]:
    """Drop features while the rest is proved; minimal iff every remaining drop is falsified.

    Sound: freeing more features only enlarges the set, so a drop that a witness falsifies stays
    falsified after later drops.
    """
    is_minimal = True
    kept = anchors
    for feature in sorted(anchors, key=lambda f: (sum(f in c for c in conflicts), f)):
        rest = kept - {feature}
        if any(not (conflict & rest) for conflict in conflicts):
            continue
        verdict, changed = question.ask(rest)
        if verdict == Verdict.VERIFIED:
            kept = rest
        elif verdict == Verdict.FALSIFIED:
            conflicts.append(changed)
        else:
            is_minimal = False
    return kept, is_minimal
