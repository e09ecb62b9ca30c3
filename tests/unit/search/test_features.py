"""Single features and anchors against the oracle."""

import dataclasses
import itertools

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier

import treeproof as tp
from tests.oracle import brute_force
from tests.strategies import Sizes, random_case
from treeproof.engines.base import Budget
from treeproof.paper.cliques import CliqueEngine
from treeproof.paper.multilevel import MultilevelEngine
from treeproof.search.anchors import find_anchors
from treeproof.search.features import scan_features
from treeproof.search.reasons import Wanted

SIZES = Sizes(trees=4, depth=3, features=4, rows=2)


def only_feature(query, row, feature):
    """The same question about one row with every other feature frozen."""
    one = query.take(slice(row, row + 1))
    reach, rows = one.reach, one.rows
    frozen = np.arange(rows.shape[1]) != feature
    if reach.is_ball:
        down, up = reach.down.copy(), reach.up.copy()
        down[frozen] = up[frozen] = 0.0
        return dataclasses.replace(one, reach=dataclasses.replace(reach, down=down, up=up))
    values = rows[0]
    low, high = reach.low[0].copy(), reach.high[0].copy()
    low[frozen] = np.where(np.isnan(values), -np.inf, values)[frozen]
    high[frozen] = np.where(np.isnan(values), np.inf, values)[frozen]
    return dataclasses.replace(
        one, reach=dataclasses.replace(reach, low=low[np.newaxis], high=high[np.newaxis])
    )


@pytest.mark.parametrize("seed", range(60))
def test_single_feature_radii_are_those_of_the_oracle(seed):
    query = random_case(np.random.default_rng(seed), SIZES, ask="radius").query
    found = scan_features(query, {})
    for row, feature in itertools.product(range(len(query)), range(query.rows.shape[1])):
        if not found.examined[row, feature]:
            assert not found.unimportant[row, feature]
            continue
        one = only_feature(query, row, feature)
        truth = brute_force.radius(one, 0)
        assert found.radius[row, feature] == truth.value
        assert found.attained[row, feature] == truth.attained
        assert found.unimportant[row, feature] == (truth.value == np.inf)
        value = found.breaking_value[row, feature]
        if np.isfinite(truth.value) and not query.already_broken[row]:
            point = query.rows[row].copy()
            point[feature] = value
            assert brute_force.judge(query, row, point[np.newaxis])[0]


@pytest.mark.parametrize("ask", ["ball", "box"])
@pytest.mark.parametrize("seed", range(40))
def test_unimportant_features_are_those_that_no_value_breaks(seed, ask):
    query = random_case(np.random.default_rng(seed), SIZES, ask=ask, own_labels=True).query
    found = scan_features(query, {})
    for row, feature in itertools.product(range(len(query)), range(query.rows.shape[1])):
        if found.examined[row, feature] and not query.already_broken[row]:
            point = brute_force.violation(only_feature(query, row, feature), 0)
            assert found.unimportant[row, feature] == (point is None)


def with_fixed(query, row, low, high, anchors):
    values = query.rows[row]
    fixed = np.isin(np.arange(len(values)), anchors)
    reach = dataclasses.replace(
        query.reach,
        is_ball=False,
        radius=np.inf,
        low=np.where(fixed, values, low)[np.newaxis],
        high=np.where(fixed, values, high)[np.newaxis],
    )
    return dataclasses.replace(query.take(slice(row, row + 1)), reach=reach)


@pytest.mark.parametrize("ask", ["ball", "box"])
@pytest.mark.parametrize("seed", range(40))
def test_anchors_are_sufficient_and_minimal(seed, ask):
    query = random_case(np.random.default_rng(seed), SIZES, ask=ask, own_labels=True).query
    found = find_anchors(CliqueEngine(), query, Wanted.of(query.ensemble), Budget())
    low, high = query.reach.box(query.rows, query.reach.radius or 0.0)
    low, high = np.fmin(low, query.rows), np.fmax(high, query.rows)
    for row in range(len(query)):
        assert found.sufficient[row] == (not query.already_broken[row])
        if query.already_broken[row]:
            continue
        anchors = found.features[row].tolist()
        whole = with_fixed(query, row, low[row], high[row], anchors)
        assert brute_force.violation(whole, 0) is None
        assert found.minimal[row]
        for left_out in anchors:
            rest = [feature for feature in anchors if feature != left_out]
            smaller = with_fixed(query, row, low[row], high[row], rest)
            assert brute_force.violation(smaller, 0) is not None


@pytest.mark.parametrize("seed", range(20))
def test_without_budget_anchors_are_still_sufficient(seed):
    query = random_case(np.random.default_rng(seed), SIZES, ask="box", own_labels=True).query
    engine = MultilevelEngine() if seed % 2 else CliqueEngine()
    budget = Budget() if seed % 2 else Budget(node_limit=1, time_limit_s=1e-6)
    found = find_anchors(engine, query, Wanted.of(query.ensemble), budget)
    low, high = query.reach.box(query.rows, 0.0)
    low, high = np.fmin(low, query.rows), np.fmax(high, query.rows)
    for row in np.flatnonzero(~query.already_broken):
        whole = with_fixed(query, int(row), low[row], high[row], found.features[row])
        assert brute_force.violation(whole, 0) is None
        assert found.minimal[row] == (found.reason[row] == "")


@pytest.fixture(scope="module")
def wine():
    data = load_wine()
    forest = RandomForestClassifier(n_estimators=8, max_depth=4, random_state=0)
    forest.fit(data.data, data.target)
    model = tp.load(forest)
    return model, data.data[::20], data.target[::20]


def test_public_functions_agree_with_each_other(wine):
    model, X, y = wine
    radii = tp.feature_radius(model, X, y)
    free = tp.unimportant_features(model, X, y)
    near = tp.unimportant_features(model, X, y, tp.LInf(0.05))
    assert (free.unimportant == np.isinf(radii.radius)).all()
    assert (near.unimportant >= free.unimportant).all()
    inside = (radii.radius > 0.05) | ((radii.radius == 0.05) & ~radii.attained)
    assert (near.unimportant == (inside & ~radii.broken[:, np.newaxis])).all()
    whole = tp.radius(model, X, y, engine="cliques")
    assert (radii.radius.min(axis=1) >= whole.lower).all()
    assert "features" in radii.summary()
    assert len(radii.to_frame()) == radii.examined.sum()
    anchors = tp.anchor_features(model, X, y, engine="cliques")
    assert anchors.minimal[anchors.sufficient].all()
    assert "proved minimal" in anchors.summary()
    assert anchors.to_frame()["size"].tolist() == [len(f) for f in anchors.features]
    # What is unimportant alone may matter together, but an anchor set never needs unused features.
    used = np.unique(model.ensemble.trees.feature)
    assert all(set(f) <= set(used.tolist()) for f in anchors.features)


def test_names_are_used_where_there_are_some():
    import xgboost as xgb

    X, y = load_digits(return_X_y=True)
    names = [f"pixel {i // 8},{i % 8}" for i in range(64)]
    data = xgb.DMatrix(X, y == 3, feature_names=names)
    booster = xgb.train({"max_depth": 3, "objective": "binary:logistic"}, data, 5)
    model = tp.load(booster)
    anchors = tp.anchor_features(model, X[:1], engine="cliques")
    assert all(name.startswith("pixel") for name in anchors.names(0))
    radii = tp.feature_radius(model, X[:1])
    assert radii.name(0) == "pixel 0,0"


def test_radii_are_not_given_with_the_question(wine):
    model, X, _ = wine
    with pytest.raises(tp.InvalidInput, match="without a limit"):
        tp.feature_radius(model, X, None, tp.LInf(0.1))
    with pytest.raises(tp.InvalidInput, match="must have a radius"):
        tp.unimportant_features(model, X, None, tp.LInf())
    with pytest.raises(tp.InvalidInput, match="must have a radius"):
        tp.anchor_features(model, X, None, tp.LInf(), engine="cliques")
