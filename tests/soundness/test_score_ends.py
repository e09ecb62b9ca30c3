"""Ends of ranges that scores reach, and bounds of changes that no float holds: judged exactly."""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingClassifier
from xgboost import XGBRegressor

import treeproof as tp

GRID = np.stack([axis.ravel() for axis in np.meshgrid([0.0, 1, 2, 3], [0.0, 1, 2, 3])], axis=1)
BOX = tp.Box(0.0, 3.0, tp.Domain(integer=[0, 1]))


@pytest.mark.parametrize("kind", ["boosting", "xgboost"])
def test_ranges_are_decided_at_the_scores_that_are_reached(kind: str) -> None:
    counts = {"verified": 0, "falsified": 0}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        rows = rng.integers(0, 4, (60, 2)).astype(float)
        y = rows[:, 0] * rows[:, 1] + rng.normal(size=60)
        source = {
            "boosting": GradientBoostingRegressor(n_estimators=4, max_depth=2, random_state=0),
            "xgboost": XGBRegressor(n_estimators=4, max_depth=2),
        }[kind].fit(rows, y)
        model = tp.load(source)
        scores = np.unique(model.margins(GRID)).astype(np.float64)
        least, most = float(scores[0]), float(scores[-1])
        for low, high in [
            (-np.inf, most),
            (least, np.inf),
            (least, most),
            (-np.inf, float(np.nextafter(model.margins(GRID).max(), -np.inf))),
            (float(np.nextafter(model.margins(GRID).min(), np.inf)), np.inf),
        ]:
            claim = tp.ScoreRange(low=low, high=high)
            for box in (BOX, tp.Box(-1.0, 4.0)):
                found = tp.prove(model, claim, box)
                expected = "verified" if low <= least and most <= high else "falsified"
                if box is BOX and found.verdict == "unknown":
                    continue  # whole numbers are not handed on
                assert found.verdict == expected
                counts[expected] += 1
                if found.verdict == "verified":
                    assert found.lower <= least
                    assert most <= found.upper <= high
    assert min(counts.values()) > 10


def test_changes_are_bounded_by_what_they_are_in_real_numbers() -> None:
    n_between = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        rows = rng.integers(0, 3, (int(rng.integers(20, 60)), 1)).astype(float)
        y = rng.integers(0, 2, len(rows))
        if len(set(y)) < 2:
            continue
        source = HistGradientBoostingClassifier(
            max_iter=1, max_depth=1, min_samples_leaf=1, learning_rate=0.5
        ).fit(rows, y)
        scores = [Fraction(s) for s in source.decision_function([[0.0], [1.0], [2.0]]).tolist()]
        largest = max(scores) - min(scores)
        near = float(largest)
        if Fraction(near) == largest:
            continue
        n_between += 1
        model, box = tp.load(source), tp.Box(-1.0, 2.0)
        change = tp.largest_change(model, 0, box)
        assert change.lower <= largest <= change.upper
        assert change.upper - change.lower <= 1e-12
        # Half a step of the last digit is told apart where a pair shows it, never proved wrongly.
        expected = ("verified", "unknown") if largest <= Fraction(near) else ("falsified",)
        assert tp.prove(model, tp.Stable(0, near), box).verdict in expected
    assert n_between > 2
