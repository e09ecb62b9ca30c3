"""Rules between features: boxes are split at values that there are, and a row's own is one."""

import math
from fractions import Fraction

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp
from treeproof.search.boxes import Steps


def stump(feature: int) -> tp.Model:
    """A model of two features that says 1 where one of them is above a half."""
    X = np.zeros((2, 2))
    X[1, feature] = 1.0
    return tp.load(DecisionTreeClassifier(max_depth=1, random_state=0).fit(X, [0, 1]))


@pytest.mark.parametrize(
    ("listed", "side", "floor", "below", "ceil", "above"),
    [
        ((0.25,), Fraction(5, 2), 2.0, 2.0, 3.0, 3.0),
        ((0.25,), Fraction(1, 2), 0.25, 0.25, 1.0, 1.0),
        ((0.25,), 0.25, 0.25, 0.0, 0.25, 1.0),
        ((2.0,), 2.0, 2.0, 1.0, 2.0, 3.0),
        ((2.0,), -math.inf, -math.inf, -math.inf, -math.inf, -math.inf),
        ((0.0, 0.5), 0.5, 0.5, 0.0, 0.5, math.inf),
        ((0.0, 0.5), Fraction(1, 3), 0.0, 0.0, 0.5, 0.5),
        ((0.0, 0.5), -1.0, -math.inf, -math.inf, 0.0, 0.0),
        ((0.0, 0.5), math.inf, 0.5, 0.5, math.inf, math.inf),
    ],
)
def test_steps_are_the_nearest_values(
    listed: tuple[float, ...],
    side: float | Fraction,
    floor: float,
    below: float,
    ceil: float,
    above: float,
) -> None:
    steps = Steps(listed, has_whole=len(listed) == 1)
    assert (steps.floor(side), steps.floor(side, is_strict=True)) == (floor, below)
    assert (steps.ceil(side), steps.ceil(side, is_strict=True)) == (ceil, above)


def test_a_rule_about_listed_values_is_settled() -> None:
    """No value lies strictly between two listed ones, however often a box is halved."""
    rules = ["x[0] > 0 => x[1] > 0", "x[0] <= x[1]"]
    domain = tp.Domain(integer=[0], values={1: [0.0, 0.5]}, rules=rules)
    results = tp.radius(stump(0), [[0.0, 0.0]], None, tp.L0(domain=domain))
    assert results.exact.tolist() == [True]
    assert results.upper.tolist() == [np.inf]


@pytest.mark.parametrize(
    ("budget", "verdict"), [(1.5, "falsified"), (math.nextafter(1.5, 0.0), "verified")]
)
def test_what_a_rule_forces_counts_exactly(budget: float, verdict: str) -> None:
    """No tree tests the feature that has to move; its price is still compared with the budget."""
    rules = "x[0] > 0 => x[1] > 0"
    domain = tp.Domain(integer=[0], values={1: [0.0, 0.5]}, rules=rules)
    results = tp.verify(stump(0), [[0.0, 0.0]], None, tp.L1(budget, domain=domain))
    assert results.verdict.tolist() == [verdict]


def test_no_integer_lies_just_above_another_one() -> None:
    """The row is no integer itself, so its values are whole numbers and its own one."""
    domain = tp.Domain(integer=[0], rules="x[1] > 0 => x[0] > 0", allow_broken_rows=True)
    results = tp.radius(stump(1), [[-0.25, 0.0]], None, tp.L1(domain=domain))
    assert results.exact.tolist() == [True]
    assert results.upper.tolist() == pytest.approx([1.75])


def test_the_own_value_of_a_broken_row_may_stay_within_rules() -> None:
    """A row that is no integer where it should be one obeys a rule as it is."""
    domain = tp.Domain(
        integer=[0], values={1: [0.0, 0.75]}, rules="x[0] + x[1] <= 1", allow_broken_rows=True
    )
    results = tp.radius(stump(1), [[0.25, 0.0]], None, tp.L1(domain=domain))
    assert results.witness.tolist() == [[0.25, 0.75]]
    assert results.upper.tolist() == [0.75]
