"""What witnesses change, in words."""

import math

import pytest

from treeproof.results.changes import changes_between

NAMES = ["hour", "amount", "job_clerk", "job_no_work", "job_other", "country", "a", "b"]
HEADER = {
    "model": {"feature_names": NAMES, "categories": {"5": ["de", "fr"]}},
    "question": {
        "perturbation": {"domain": {"groups": [[[2, 3, 4], True], [[6, 7], False]]}},
    },
}
ROW = [14.0, 120.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({0: 15.0, 1: 126.0}, "hour: 14 → 15, amount: 120 → 126"),
        ({2: 0.0, 3: 1.0}, "job: clerk → no_work"),
        ({5: 1.0}, "country: de → fr"),
        ({5: 7.0}, "country: de → 7"),
        ({1: math.nan}, "amount: 120 → missing"),
        ({7: 0.0}, "a, b: b → none"),
        ({}, ""),
    ],
)
def test_changes_are_said_by_group_and_category(changed: dict[int, float], said: str) -> None:
    witness = [changed.get(feature, value) for feature, value in enumerate(ROW)]
    assert ", ".join(map(str, changes_between(HEADER, ROW, witness))) == said


def test_features_without_names_have_numbers() -> None:
    assert str(changes_between({}, [1.0], [2.5])[0]) == "feature 0: 1 → 2.5"
