"""The direct combination: sums of best leaves, and splits that make it exact."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from xgboost import XGBClassifier

import treeproof as tp
from tests.oracle import brute_force
from tests.strategies import Sizes, random_case
from treeproof.comparisons.combination import CombinationEngine
from treeproof.engines.base import Budget
from treeproof.results.verdict import UnknownReason, Verdict


@pytest.fixture(scope="module")
def boosted():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X / X.max(axis=0)).astype(np.float32)
    model = tp.load(XGBClassifier(n_estimators=12, max_depth=3).fit(X, y))
    return model, X[:15], tp.radius(model, X[:15]).upper


def test_levels_and_splits_only_raise_the_direct_bound(boosted):
    model, X, radius = boosted
    direct = tp.radius(model, X, engine="combination").lower
    levels = tp.radius(model, X, engine=tp.multilevel(T=2, L=1)).lower
    split = tp.radius(model, X, engine=tp.combination(50)).lower
    assert np.all(direct <= levels)
    assert np.all(direct <= split)
    assert np.all(split <= radius)
    assert direct.mean() < split.mean()


def test_enough_splits_decide(boosted):
    model, X, radius = boosted
    found = tp.radius(model, X, engine=tp.combination(1_000_000))
    assert found.exact.all()
    np.testing.assert_array_equal(found.upper, radius)
    assert np.all(model.predict(found.witness) != model.predict(X))


@pytest.mark.parametrize("ask", ["ball", "box"])
def test_enough_splits_agree_with_the_oracle(ask):
    rng = np.random.default_rng(8)
    seen = set()
    for _ in range(150):
        query = random_case(rng, Sizes(rows=1), ask=ask).query
        found = CombinationEngine(splits=10**6).verify(query, Budget())
        is_broken = brute_force.violation(query, 0) is not None
        assert found.verdict[0] is (Verdict.FALSIFIED if is_broken else Verdict.VERIFIED)
        seen.add(found.verdict[0])
    assert len(seen) == 2


def test_limits_are_named(boosted):
    model, X, _ = boosted
    wide = tp.LInf(0.3)
    few = tp.verify(model, X, perturbation=wide, engine=tp.combination(1))
    assert UnknownReason.LOOSE_BOUND.value in set(few.reason)
    limited = tp.verify(model, X, perturbation=wide, engine=tp.combination(10**6), node_limit=1)
    assert UnknownReason.NODE_LIMIT.value in set(limited.reason)


def test_negative_splits_are_refused():
    with pytest.raises(tp.InvalidInput, match="'splits' of combination"):
        CombinationEngine(splits=-1)
