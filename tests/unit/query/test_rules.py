"""Relations between features: how they are read, and when they hold."""

import math

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp
from treeproof.query.rules import read_rules

X = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
ENSEMBLE = tp.load(DecisionTreeClassifier().fit(X, [0, 1])).ensemble


@pytest.mark.parametrize(
    ("text", "row", "holds"),
    [
        ("x[0] <= x[1] + x[2]", [3, 1, 2], True),
        ("x[0] <= x[1] + x[2]", [3.5, 1, 2], False),
        ("x[0] < x[1] + x[2]", [3, 1, 2], False),
        ("2 * x[0] - x[1] >= -3", [0, 3, 0], True),
        ("2 * x[0] - x[1] >= -3", [0, 3.5, 0], False),
        ("x[0] > 0 => x[1] > 0", [0, 0, 0], True),
        ("x[0] > 0 => x[1] > 0", [1, 0, 0], False),
        ("x[0] > 0 => x[1] > 0", [1, 1, 0], True),
        ("x[0] == x[1]", [1, 1, 0], True),
        ("x[0] == x[1]", [1, 2, 0], False),
        ("x[0] == x[1]", [2, 1, 0], False),
        ("x[0] <= 0.1 * 3 * x[1]", [0.3, 1, 0], True),  # in fractions: the double is below 3/10
        ("x[0] - - x[1] <= 1e1", [5, 5, 0], True),
        ("x[0] <= x[1]", [math.nan, -1, 0], True),
        ("x[1] <= x[0] + x[1]", [-1, math.nan, 0], True),  # it names what is missing
        ("x[1] <= x[0] + x[1]", [-1, 1, 0], False),
    ],
)
def test_rules_hold_exactly(text: str, row: list[float], holds: bool) -> None:
    assert all(rule.holds(row) for rule in read_rules(text, ENSEMBLE)) is holds


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x[0]", "a comparison .* is missing"),
        ("x[0] <", "a number or one feature is missing"),
        ("x[0] * x[1] <= 2", "a number or one feature"),
        ("x[0] <= 1 x[1]", "it goes on after its end"),
        ("x[0] <= 1 => x[1] == 2", "no place in an implication"),
        ("1 <= 2", "about no feature"),
        ("x[0] <= $", "cannot be read"),
        ("x[7] <= 1", "A feature number must be from 0 to 2"),
        (3, "must be texts"),
    ],
)
def test_what_is_no_rule_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(tp.InvalidInput, match=sentence):
        read_rules([text], ENSEMBLE)
