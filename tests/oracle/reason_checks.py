"""What is found about reasons, held against enumeration; every function asserts."""

from typing import Any

import numpy as np

from tests.contract.engine_checks import may_be_near_tie
from tests.oracle.reasons import DomainTruth, Features, RowTruth
from treeproof.query.perturbations import Box
from treeproof.query.query import Query
from treeproof.results.reasons import Reasons
from treeproof.search.reasons import NO_SET, Wanted, in_domain


def check_reasons(
    query: Query, wanted: Wanted, found: Reasons, box: Box | None = None
) -> tuple[int, int]:
    """Hold everything that was found within no limits against the truth; in a `box`, its domain.

    Returns how many rows were compared in all respects, and how many only in what is claimed: those
    in which a near tie, which only the rounding of a softmax decides, may leave something open.
    """
    assert np.array_equal(found.sufficient & query.already_broken, np.zeros(len(query), bool))
    boxed = in_domain(query)
    rows = np.flatnonzero(~query.already_broken).tolist()
    n_open = 0
    for row in rows:
        if box is None:
            truth, is_open = RowTruth(boxed, row, wanted.groups), may_be_near_tie(boxed, row)
        else:
            truth = DomainTruth(query, row, box, wanted.groups)
            if not truth.is_small:
                n_open += 1
                continue
            is_open = query.ensemble.decision.link != "identity"
        use = Preferences(truth, wanted)
        if is_open:
            check_claims(truth, use, found, row)
            n_open += 1
            continue
        assert found.sufficient[row] == bool(use.allowed)
        if not use.allowed:
            assert found.reason[row] == NO_SET
            continue
        _check_sets(truth, use, found, row)
        _check_witnesses(query, truth, use, found, row)
        _check_changes(query, truth, wanted, found, row)
        if found.intervals is not None:
            _check_intervals(boxed, truth, found, row)
    return len(rows) - n_open, n_open


def check_claims(truth: RowTruth, use: "Preferences", found: Reasons, row: int) -> None:
    """Hold what is claimed about a row against the truth, however little that is."""
    assert bool(use.allowed) or not found.sufficient[row]
    sets = [truth.units(features.tolist()) for features in found.sets[row]]
    assert all(map(truth.suffices, sets))
    assert bool(sets) == bool(found.sufficient[row])
    if found.minimal[row]:
        assert sets[0] in use.allowed
    elif found.sufficient[row]:
        assert found.reason[row]
    if sets:
        assert found.size_lower_bound[row] <= min(map(use.weight, use.allowed))
    if found.complete[row]:
        assert set(sets) == use.allowed
    changes = truth.changes()
    known = [truth.units(features.tolist()) for features in found.changes[row]]
    assert all(any(change <= one for change in changes) for one in known)
    if found.changes_minimal[row]:
        assert set(known) <= changes
    if found.all_changes[row]:
        assert set(known) == changes


class Preferences:
    """Minimal sets that keep to what must and must not be used, and the weight of a set."""

    def __init__(self, truth: RowTruth, wanted: Wanted) -> None:
        self.always = truth.units(wanted.always) & frozenset(truth.movable)
        never = truth.units(wanted.never)
        self.weights = {u: float(wanted.weights[u]) for u in truth.movable}
        for feature, unit in truth.first.items():
            if unit in self.weights:
                self.weights[unit] = max(self.weights[unit], float(wanted.weights[feature]))
        rest = [one - self.always for one in truth.sufficient_sets() if not one & never]
        self.allowed = {one | self.always for one in rest if not any(other < one for other in rest)}
        self.is_minimum, self.n_sets = wanted.minimum, wanted.n_sets

    def weight(self, features: Features) -> float:
        """Weight of what a set uses of its own accord."""
        return sum(self.weights[unit] for unit in features - self.always)


def _check_sets(truth: RowTruth, use: Preferences, found: Reasons, row: int) -> None:
    """Sets suffice and are minimal; all of them, and the lightest, where that is said."""
    sets = [truth.units(features.tolist()) for features in found.sets[row]]
    assert found.minimal[row]
    assert sets[0] == truth.units(found.features[row].tolist())
    assert len(set(sets)) == len(sets)
    assert set(sets) <= use.allowed
    assert len(sets) >= min(use.n_sets, len(use.allowed))
    if len(sets) < use.n_sets:
        assert found.complete[row]
    if found.complete[row]:
        assert set(sets) == use.allowed
    if use.is_minimum:
        least = min(map(use.weight, use.allowed))
        assert use.weight(sets[0]) == least == found.size_lower_bound[row]


def _changed(query: Query, row: int, point: Any) -> list[int]:
    assert query.is_broken_by(point[np.newaxis], np.array([row]))[0]
    same = (point == query.rows[row]) | (np.isnan(query.rows[row]) & np.isnan(point))
    if query.pricing is None:
        same |= np.isnan(query.rows[row])
    else:
        assert query.pricing.broken_rule(row, point) is None
    return np.flatnonzero(~same).tolist()


def _check_witnesses(
    query: Query, truth: RowTruth, use: Preferences, found: Reasons, row: int
) -> None:
    """Every feature of the set has a row that breaks the claim without it."""
    kept = truth.units(found.features[row].tolist())
    for feature, point in zip(found.features[row].tolist(), found.witnesses[row], strict=True):
        unit = truth.first.get(feature, feature)
        if unit in use.always and np.isnan(point).all():
            continue
        changed = truth.units(_changed(query, row, point))
        assert not changed & (kept - {unit})
        assert changed <= frozenset(truth.movable)


def _check_changes(query: Query, truth: RowTruth, wanted: Wanted, found: Reasons, row: int) -> None:
    """Changes break the claim and are minimal; all of them, and the lightest, where it is said."""
    if not wanted.n_changes:
        return
    changes, known = truth.changes(), [truth.units(c.tolist()) for c in found.changes[row]]
    assert len(set(known)) == len(known)
    assert found.changes_minimal[row]
    assert set(known) <= changes
    assert len(known) >= min(wanted.n_changes, len(changes))
    if len(known) < wanted.n_changes:
        assert found.all_changes[row]
    if found.all_changes[row]:
        assert set(known) == changes
    for features, point in zip(known, found.change_rows[row], strict=True):
        assert truth.units(_changed(query, row, point)) == features
    # Duality: a sufficient set meets every change.
    assert all(truth.units(one.tolist()) & change for one in found.sets[row] for change in known)
    if wanted.minimum:
        weight = Preferences(truth, wanted).weight
        least = min(map(weight, changes), default=np.inf)
        assert found.change_lower_bound[row] == least
        assert not known or weight(known[0]) == least


def _check_intervals(boxed: Query, truth: RowTruth, found: Reasons, row: int) -> None:
    """Nothing breaks the claim within the intervals, and no end can be moved further out."""
    assert found.widest[row]
    assert found.intervals is not None
    low = [cells[0] for cells in truth.cells]
    high = [cells[-1] for cells in truth.cells]
    for feature, ends in zip(found.features[row].tolist(), found.intervals[row], strict=True):
        low[feature], high[feature] = truth.interval(boxed, feature, ends)
        assert low[feature] <= truth.home[feature] <= high[feature]
    assert truth.is_free(low, high)
    for feature, ends in zip(found.features[row].tolist(), found.intervals[row], strict=True):
        for side, end, step in ((low, ends[0], -1), (high, ends[1], 1)):
            if np.isfinite(end):
                side[feature] += step
                assert not truth.is_free(low, high)
                side[feature] -= step
