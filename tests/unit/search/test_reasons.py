"""Reasons against enumeration: sufficient, minimal, minimum, complete, widest, least changes."""

import dataclasses

import numpy as np
import pytest

from tests.oracle.reasons import RowTruth, interval_cells
from tests.strategies import Sizes, random_case
from treeproof.engines.base import Budget
from treeproof.search.reasons import ALREADY_BROKEN, NO_SET, Wanted, find_reasons, in_domain

SIZES = Sizes(trees=5, depth=3, features=4, rows=2)


def asked(seed, ask="box"):
    """A random question, and the generator that made it."""
    rng = np.random.default_rng(seed)
    return random_case(rng, SIZES, ask=ask, own_labels=True).query, rng


def wanted(query, **options):
    return Wanted(weights=np.ones(query.rows.shape[1]), **options)


def truths(query):
    """What enumeration says of each row that is not broken as it stands."""
    boxed = in_domain(query)
    return [(row, RowTruth(boxed, row)) for row in np.flatnonzero(~query.already_broken)]


def as_sets(arrays):
    return [frozenset(array.tolist()) for array in arrays]


def check_witnesses(query, found, row, truth):
    """Every feature of the set has a row that breaks the claim without it."""
    kept = frozenset(found.features[row].tolist())
    for feature, point in zip(found.features[row], found.witnesses[row], strict=True):
        assert query.is_broken_by(point[np.newaxis], np.array([row]))[0]
        same = (point == query.rows[row]) | np.isnan(query.rows[row])
        changed = frozenset(np.flatnonzero(~same).tolist())
        assert not changed & (kept - {feature})
        assert changed <= frozenset(truth.movable)


@pytest.mark.parametrize("ask", ["ball", "box"])
@pytest.mark.parametrize("seed", range(60))
def test_sets_suffice_and_are_minimal(seed, ask):
    query, _ = asked(seed, ask)
    found = find_reasons(query, wanted(query), Budget())
    assert np.all(found.reason[query.already_broken] == ALREADY_BROKEN)
    assert np.array_equal(found.sufficient, ~query.already_broken)
    for row, truth in truths(query):
        assert found.minimal[row]
        assert frozenset(found.features[row].tolist()) in truth.sufficient_sets()
        check_witnesses(query, found, row, truth)


@pytest.mark.parametrize("seed", range(60))
def test_all_sets_and_all_changes_are_found(seed):
    query, _ = asked(seed)
    options = {"n_sets": 1000, "n_changes": 1000, "minimum": True}
    found = find_reasons(query, wanted(query, **options), Budget())
    for row, truth in truths(query):
        sets, changes = truth.sufficient_sets(), truth.changes()
        assert found.complete[row]
        assert len(found.sets[row]) == len(sets)
        assert set(as_sets(found.sets[row])) == sets
        assert len(found.features[row]) == found.size_lower_bound[row] == min(map(len, sets))
        assert len(found.changes[row]) == len(changes)
        assert set(as_sets(found.changes[row])) == changes
        least = min(map(len, changes), default=np.inf)
        assert found.change_lower_bound[row] == least
        if changes:
            assert len(found.changes[row][0]) == least
        for features, point in zip(found.changes[row], found.change_rows[row], strict=True):
            assert query.is_broken_by(point[np.newaxis], np.array([row]))[0]
            same = (point == query.rows[row]) | np.isnan(query.rows[row])
            assert np.flatnonzero(~same).tolist() == features.tolist()


@pytest.mark.parametrize("seed", range(60))
def test_intervals_are_safe_and_cannot_be_wider(seed):
    query, _ = asked(seed, "box" if seed % 2 else "ball")
    found = find_reasons(query, wanted(query, intervals=True), Budget())
    boxed = in_domain(query)
    for row, truth in truths(query):
        assert found.widest[row]
        low = [cells[0] for cells in truth.cells]
        high = [cells[-1] for cells in truth.cells]
        for feature, interval in zip(found.features[row], found.intervals[row], strict=True):
            ends = interval_cells(boxed, feature, interval, truth.cells[feature])
            low[feature], high[feature] = ends
            assert low[feature] <= truth.home[feature] <= high[feature]
        assert truth.is_free(low, high)
        for feature in found.features[row]:
            for side, end, step in ((low, 0, -1), (high, -1, 1)):
                if side[feature] != truth.cells[feature][end]:
                    side[feature] += step
                    assert not truth.is_free(low, high)
                    side[feature] -= step


@pytest.mark.parametrize("seed", range(60))
def test_preferences_are_kept(seed):
    query, rng = asked(seed)
    n = query.rows.shape[1]
    use = rng.choice(3, size=n, p=[0.6, 0.2, 0.2])
    always, never = np.flatnonzero(use == 1), np.flatnonzero(use == 2)
    weights = rng.integers(1, 4, size=n).astype(float)
    found = find_reasons(
        query,
        Wanted(
            weights=weights,
            always=tuple(always.tolist()),
            never=tuple(never.tolist()),
            minimum=True,
        ),
        Budget(),
    )
    for row, truth in truths(query):
        must = frozenset(always.tolist()) & frozenset(truth.movable)
        allowed = [
            one | must for one in truth.sufficient_sets() if not one & frozenset(never.tolist())
        ]
        assert found.sufficient[row] == bool(allowed)
        if not allowed:
            assert found.reason[row] == NO_SET
            continue
        features = frozenset(found.features[row].tolist())
        assert truth.suffices(features)
        assert must <= features
        assert not features & frozenset(never.tolist())
        lightest = min(weights[sorted(one - must)].sum() for one in allowed)
        assert weights[sorted(features - must)].sum() == lightest == found.size_lower_bound[row]


@pytest.mark.parametrize("seed", range(30))
def test_with_limits_sets_still_suffice(seed):
    query, _ = asked(seed)
    budget = Budget(node_limit=1 + seed % 3) if seed % 2 else Budget(time_limit_s=1e-9)
    options = {"n_sets": 3, "n_changes": 3, "minimum": bool(seed % 4 < 2), "intervals": True}
    found = find_reasons(query, wanted(query, **options), budget)
    for row, truth in truths(query):
        assert truth.suffices(frozenset(found.features[row].tolist()))
        assert all(map(truth.suffices, as_sets(found.sets[row])))
        sets = truth.sufficient_sets()
        assert found.size_lower_bound[row] <= min(map(len, sets))
        if found.minimal[row]:
            assert frozenset(found.features[row].tolist()) in sets
        else:
            assert found.reason[row]


def test_threads_give_the_same_sets():
    query, _ = asked(5)
    rows = np.repeat(np.arange(len(query)), 20)
    many = dataclasses.replace(query.take(rows), reach=query.reach.take(rows))
    one, two = (find_reasons(many, wanted(query), Budget(), n_jobs=n) for n in (1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one.features, two.features, strict=True))
