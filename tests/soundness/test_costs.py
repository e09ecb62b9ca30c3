"""The exact search and the attack with prices against the truth by enumeration."""

import dataclasses

import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

import treeproof as tp
from tests.oracle.priced_answers import compare


@pytest.mark.parametrize("block", range(10))
def test_answers_are_those_of_enumeration(block: int) -> None:
    compared = sum(compare(seed) for seed in range(16 * block, 16 * block + 16))
    assert compared > 20


@pytest.mark.parametrize("target", [0, 1, 2])
def test_one_moving_feature_is_a_ball_for_targets_too(target: int) -> None:
    """With one feature that moves, L1 and L∞ are the same distance; a target beats all others."""
    X, y = load_iris(return_X_y=True)
    model = tp.load(RandomForestClassifier(7, max_depth=4, random_state=0).fit(X, y))
    rows, goal = X[::15], tp.AvoidsTarget(target)
    for feature in range(4):
        ball = tp.LInf(moving=[feature])
        known = tp.radius(model, rows, None, ball, goal=goal)
        found = tp.radius(model, rows, None, tp.L1(moving=[feature]), goal=goal)
        assert found.upper.tolist() == pytest.approx(known.upper.tolist(), rel=1e-12)
        for eps in (0.3, 1.0):
            asked = dataclasses.replace(ball, eps=eps), tp.L1(eps, moving=[feature])
            verdicts = [tp.verify(model, rows, None, each, goal=goal).verdict for each in asked]
            assert verdicts[0].tolist() == verdicts[1].tolist()
