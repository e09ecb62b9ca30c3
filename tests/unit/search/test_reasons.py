"""Reasons against enumeration: sufficient, minimal, minimum, complete, widest, least changes."""

import dataclasses

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import treeproof as tp
from tests.campaigns.reasons import SIZES, random_question
from tests.oracle.reason_checks import Preferences, check_claims, check_reasons
from tests.oracle.reasons import RowTruth
from tests.strategies import random_case
from treeproof.engines.base import Budget
from treeproof.errors import InvalidInput
from treeproof.query.build import build_query
from treeproof.search.reasons import ALREADY_BROKEN, Wanted, find_reasons, in_domain


def asked(seed, ask="box"):
    """A random question."""
    return random_case(np.random.default_rng(seed), SIZES, ask=ask, own_labels=True).query


def wanted(query, **options):
    return Wanted(weights=np.ones(query.rows.shape[1]), **options)


@pytest.mark.parametrize("seed", range(300))
def test_all_that_is_found_is_true(seed):
    query, wishes = random_question(seed)
    found = find_reasons(query, wishes, Budget())
    assert np.all(found.reason[query.already_broken] == ALREADY_BROKEN)
    check_reasons(query, wishes, found)


@pytest.mark.parametrize("seed", range(60))
def test_all_sets_and_all_changes_are_found(seed):
    query = asked(seed)
    wishes = wanted(query, n_sets=1000, n_changes=1000, minimum=True, intervals=True)
    found = find_reasons(query, wishes, Budget())
    check_reasons(query, wishes, found)
    assert np.array_equal(found.complete, ~query.already_broken)


def _one_too_few(found, row):
    found.features[row] = found.features[row][1:]
    found.sets[row][0] = found.features[row]
    found.witnesses[row] = found.witnesses[row][1:]


def _one_too_many(found, row):
    extra = next(f for f in range(found.values.shape[1]) if f not in found.features[row])
    found.features[row] = np.append(found.features[row], extra)
    found.sets[row][0] = found.features[row]


def _too_wide(found, row):
    place = next(p for p, ends in enumerate(found.intervals[row]) if np.isfinite(ends).any())
    found.intervals[row][place] = [-np.inf, np.inf]


def _too_narrow(found, row):
    place, feature = next(
        (p, f)
        for p, f in enumerate(found.features[row].tolist())
        if np.isfinite(found.intervals[row][p]).any()
    )
    value = found.values[row, feature]
    found.intervals[row][place] = [value, np.nextafter(value, np.inf)]


def _needless_change(found, row):
    found.changes[row][0] = np.union1d(found.changes[row][0], [0, 1, 2, 3])


def _other_witness(found, row):
    found.witnesses[row][0] = found.values[row]


def _bound_too_high(found, row):
    found.size_lower_bound[row] += 1


def _bound_too_low(found, row):
    found.size_lower_bound[row] -= 1


def _set_forgotten(found, row):
    found.sets[row].pop()


def _change_forgotten(found, row):
    found.changes[row].pop()
    found.change_rows[row] = found.change_rows[row][:-1]


PLANTED = [
    _one_too_few, _one_too_many, _too_wide, _too_narrow, _needless_change, _other_witness,
    _bound_too_high, _bound_too_low, _set_forgotten, _change_forgotten,
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED)
def test_the_oracle_notices_planted_errors(plant):
    X = np.random.default_rng(0).random((60, 4))
    model = RandomForestClassifier(5, max_depth=3, random_state=0)
    ensemble = tp.load(model.fit(X, X[:, 0] + X[:, 1] ** 2 > 0.7)).ensemble
    query = build_query(ensemble, X[:6], None, tp.Box(0.0, 1.0))
    wishes = wanted(query, n_sets=1000, n_changes=1000, minimum=True, intervals=True)
    found = find_reasons(query, wishes, Budget())
    check_reasons(query, wishes, found)
    row = next(r for r in range(6) if 0 < len(found.features[r]) < 4 and len(found.sets[r]) > 1)
    plant(found, row)
    with pytest.raises(AssertionError):
        check_reasons(query, wishes, found)


@pytest.mark.parametrize("seed", range(30))
def test_with_limits_sets_still_suffice(seed):
    query = asked(seed)
    budget = Budget(node_limit=1 + seed % 3) if seed % 2 else Budget(time_limit_s=1e-9)
    options = {"n_sets": 3, "n_changes": 3, "minimum": bool(seed % 4 < 2), "intervals": True}
    wishes = wanted(query, **options)
    found = find_reasons(query, wishes, budget)
    boxed = in_domain(query)
    for row in np.flatnonzero(~query.already_broken):
        truth = RowTruth(boxed, row)
        check_claims(truth, Preferences(truth, wishes), found, row)


def test_threads_give_the_same_sets():
    query = asked(5)
    rows = np.repeat(np.arange(len(query)), 20)
    many = dataclasses.replace(query.take(rows), reach=query.reach.take(rows))
    one, two = (find_reasons(many, wanted(query), Budget(), n_jobs=n) for n in (1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one.features, two.features, strict=True))


@pytest.mark.parametrize("groups", ["ab", ["ab"], [0], [[0, 1], [1, 2]]])
def test_groups_that_are_none_are_refused(groups):
    query = asked(3)
    with pytest.raises(InvalidInput, match=r"groups|feature number"):
        Wanted.of(query.ensemble, groups=groups)


def test_no_set_is_found_twice():
    n_several = 0
    for seed in range(4):
        rng = np.random.default_rng(99003 + seed)
        rows, y = rng.integers(0, 4, (40, 3)).astype(float), rng.integers(0, 2, 40)
        model = RandomForestClassifier(5, max_depth=3, random_state=3).fit(rows, y)
        for n_sets in (2, 5):
            found = tp.reasons(tp.load(model), rows, minimum=True, n_sets=n_sets, n_changes=2)
            for sets in (*found.sets, *found.changes):
                assert len({tuple(features) for features in sets}) == len(sets)
                n_several += len(sets) > 1
    assert n_several > 100
