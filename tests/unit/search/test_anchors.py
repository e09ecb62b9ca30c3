"""Reasons in a domain, found in rounds, against the enumeration of all rows of the domain."""

import itertools

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

import treeproof as tp
from tests import random_domains
from tests.oracle.brute_force import judge
from tests.oracle.domains import Words, n_points, options_of_row
from treeproof.engines.base import Budget
from treeproof.engines.exact import ExactEngine
from treeproof.query.build import build_query
from treeproof.query.perturbations import Box
from treeproof.search.anchors import find_anchors
from treeproof.search.reasons import Wanted

MOST_POINTS = 20_000


def minimal(sets):
    found = []
    for one in sorted(set(sets), key=len):
        if not any(other <= one for other in found):
            found.append(one)
    return set(found)


class Truth:
    """Sets of units whose change can break the claim, from all rows of the domain."""

    def __init__(self, query, box, row):
        options = options_of_row(Words(box, query.ensemble), query.rows, row)
        self.is_small = n_points(options) <= MOST_POINTS
        if not self.is_small:
            return
        self.units = [options_of_unit[0].columns for options_of_unit in options]
        values = query.rows[row]
        points = []
        for chosen in itertools.product(*options):
            point = values.copy()
            for option in chosen:
                point[list(option.columns)] = option.values
            points.append(point)
        points = np.unique(np.array(points), axis=0)
        broken = points[judge(query, row, points)]
        same = (broken == values) | (np.isnan(broken) & np.isnan(values))
        self.changes = minimal(
            frozenset(
                number for number, unit in enumerate(self.units) if not entry[list(unit)].all()
            )
            for entry in same
        )

    def numbers(self, features):
        units = {number for number, unit in enumerate(self.units) if set(unit) & set(features)}
        assert sorted(f for number in units for f in self.units[number]) == sorted(features)
        return frozenset(units)

    def suffices(self, kept):
        return all(change & kept for change in self.changes)


def asked(seed):
    rng = np.random.default_rng(seed)
    case = random_domains.random_case(rng, kinds=("Box",))
    box = case.perturbation
    low, high = np.fmin(box.low, case.rows), np.fmax(box.high, case.rows)
    box = Box(low, high, box.domain)
    query = build_query(case.ensemble, case.rows, None, box)
    return query, box, rng


@pytest.mark.parametrize("seed", range(150))
def test_sets_and_changes_of_rows_of_a_domain(seed):
    query, box, rng = asked(seed)
    n = query.rows.shape[1]
    wanted = Wanted(weights=np.ones(n), n_changes=int(rng.integers(2)))
    found = find_anchors(ExactEngine(), query, wanted, Budget())
    for row in np.flatnonzero(~query.already_broken).tolist():
        truth = Truth(query, box, row)
        if not truth.is_small:
            continue
        kept = truth.numbers(found.features[row].tolist())
        assert found.sufficient[row]
        assert truth.suffices(kept)
        if not found.minimal[row]:
            assert query.ensemble.decision.link != "identity"
            continue
        assert not any(truth.suffices(kept - {unit}) for unit in kept)
        for feature, point in zip(found.features[row].tolist(), found.witnesses[row], strict=True):
            assert query.is_broken_by(point[np.newaxis], np.array([row]))[0]
            assert query.pricing.broken_rule(row, point) is None
            same = (point == query.rows[row]) | (np.isnan(point) & np.isnan(query.rows[row]))
            changed = {u for u, unit in enumerate(truth.units) if not same[list(unit)].all()}
            assert changed & kept <= truth.numbers(found.group_of(feature))
        if wanted.n_changes and found.changes_minimal[row]:
            known = [truth.numbers(features.tolist()) for features in found.changes[row]]
            assert len(known) == bool(kept)
            assert set(known) <= truth.changes


def people():
    rng = np.random.default_rng(0)
    rows = np.zeros((200, 5))
    rows[:, 0] = rng.integers(18, 80, 200)
    rows[np.arange(200), 1 + rng.integers(0, 3, 200)] = 1.0
    rows[:, 4] = rng.normal(size=200).round(2)
    labels = (rows[:, 0] > 40) & (rows[:, 2] == 0) | (rows[:, 4] > 1)
    model = RandomForestClassifier(8, max_depth=4, random_state=0).fit(rows, labels)
    return tp.load(model), rows


def test_groups_are_one_feature_and_no_impossible_row_counts():
    model, rows = people()
    domain = tp.Domain(integer=[0], one_hot=[[1, 2, 3]])
    found = tp.reasons(model, rows[:20], domain=domain, n_changes=1)
    assert found.minimal.all()
    for features in found.features:
        assert len(np.intersect1d(features, [1, 2, 3])) in (0, 3)
    for points in (*found.witnesses, *found.change_rows):
        assert np.all(points[:, 1:4].sum(axis=1) == 1.0)
        assert np.all(points[:, 0] == np.round(points[:, 0]))
    assert np.all(found.sizes() <= [len(f) for f in found.features])
    assert found.question["groups"] == [[1, 2, 3]]
    # What suffices among all numbers suffices in the domain.
    free = tp.reasons(model, rows[:20], groups=[[1, 2, 3]])
    assert found.sizes().mean() <= free.sizes().mean()
    anchors = tp.anchor_features(model, rows[:5], perturbation=tp.Box(-np.inf, np.inf, domain))
    assert anchors.minimal.all()


def test_preferences_and_limits_in_a_domain():
    model, rows = people()
    domain = tp.Domain(one_hot=[[1, 2, 3]])
    always = tp.reasons(model, rows[:5], domain=domain, always=1)
    assert all({1, 2, 3} <= set(features.tolist()) for features in always.features)
    never = tp.reasons(model, rows[:5], domain=domain, never=0)
    assert all(0 not in features for features in never.features)
    late = tp.reasons(model, rows[:5], domain=domain, time_limit_s=1e-9)
    assert late.sufficient.all()
    assert not late.minimal.any()
    assert np.all(late.reason != "")


@pytest.mark.parametrize(
    "wish",
    [{"minimum": True}, {"intervals": True}, {"n_sets": 2}, {"n_changes": 2}, {"groups": [[0, 4]]}],
)
def test_what_is_only_found_in_plain_boxes_is_refused(wish):
    model, rows = people()
    domain = tp.Domain(one_hot=[[1, 2, 3]])
    with pytest.raises(tp.UnsupportedQuery, match=r"In a Domain, .* Got"):
        tp.reasons(model, rows[:1], domain=domain, **wish)
    with pytest.raises(tp.UnsupportedQuery, match="no evidence yet"):
        tp.reasons(model, rows[:1], domain=domain, evidence=True)
    with pytest.raises(tp.UnsupportedQuery, match="must be of the Domain"):
        tp.reasons(model, rows[:1], domain=tp.Domain(integer=[0], allow_broken_rows=True))


def test_rules_are_refused():
    _, rows = people()
    frame = pd.DataFrame(rows, columns=["age", "red", "green", "blue", "balance"])
    model = RandomForestClassifier(2, random_state=0).fit(frame, frame.age > 40)
    with pytest.raises(tp.UnsupportedQuery, match="without rules between features"):
        tp.reasons(model, frame[:1], domain=tp.Domain(rules="balance <= age"))
