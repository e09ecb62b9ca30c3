"""Reasons in a domain, found in rounds, against the enumeration of all rows of the domain."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

import treeproof as tp
from tests.campaigns.reasons import check_domain_question


@pytest.mark.parametrize("block", range(3))
def test_reasons_in_random_domains_equal_the_enumeration(block):
    for seed in range(50 * block, 50 * (block + 1)):
        check_domain_question(seed, evidence=seed % 5 == 0)


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


def test_minimum_intervals_and_groups_in_a_domain():
    model, rows = people()
    domain = tp.Domain(integer=[0], one_hot=[[1, 2, 3]])
    options = {"minimum": True, "n_changes": 2, "n_sets": 3, "intervals": True}
    found = tp.reasons(model, rows[:10], domain=domain, evidence=True, **options)
    assert found.is_minimum().all()
    assert found.widest.all()
    assert all(texts is not None and None not in texts for texts in found.evidence)
    for features, ends in zip(found.features, found.intervals, strict=True):
        # The columns of a group keep their values, numbers move.
        for feature, interval in zip(features.tolist(), ends, strict=True):
            assert np.isnan(interval).all() == (feature in (1, 2, 3))
    joined = tp.reasons(model, rows[:10], domain=domain, groups=[[3, 4]])
    assert joined.question["groups"] == [[1, 2, 3, 4]]
    assert all(len(np.intersect1d(f, [1, 2, 3, 4])) in (0, 4) for f in joined.features)


def test_what_cannot_be_is_refused():
    model, rows = people()
    with pytest.raises(tp.UnsupportedQuery, match="must be of the Domain"):
        tp.reasons(model, rows[:1], domain=tp.Domain(integer=[0], allow_broken_rows=True))
    with pytest.raises(tp.InvalidInput, match="in both 'always' and 'never'"):
        tp.reasons(model, rows[:1], domain=tp.Domain(one_hot=[[1, 2, 3]]), always=1, never=2)


def test_rules_are_refused():
    _, rows = people()
    frame = pd.DataFrame(rows, columns=["age", "red", "green", "blue", "balance"])
    model = RandomForestClassifier(2, random_state=0).fit(frame, frame.age > 40)
    with pytest.raises(tp.UnsupportedQuery, match="without rules between features"):
        tp.reasons(model, frame[:1], domain=tp.Domain(rules="balance <= age"))
