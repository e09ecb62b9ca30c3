"""Bugs planted in a copy of what compares two models are caught by the enumeration of all cells."""

import pytest

from tests.soundness.planting import Bug, assert_all_have_a_place, assert_caught, assert_passes
from tests.soundness.test_planted_property_bugs import N_CASES, RUN

PROGRAM = RUN.replace("test_properties", "test_differences").replace(", check_rounding", "")
PROGRAM = PROGRAM.replace("        check_rounding(seed)\n", "")

BUGS = [
    Bug(
        "both models add as the first one does",
        "accumulate_cells(second, judge.row, judge.second, total[1])",
        "accumulate_cells(first, judge.row, judge.second, total[1])",
    ),
    Bug(
        "what models begin with is forgotten",
        "return build_problem(aim.offset - offset, joint, box)",
        "return build_problem(-offset, joint, box)",
    ),
    Bug(
        "trees without a partner are forgotten",
        "    for mine, theirs in partners:\n        left",
        "    for mine, theirs in partners:\n"
        "        if NO_TREE in (mine, theirs) and builder._n_trees > 0:\n"
        "            continue\n        left",
    ),
    Bug(
        "thresholds of float32 rows are those of doubles",
        "one, other = accept_float64_rows(first), accept_float64_rows(second)\n    partners",
        "one, other = first, second\n    partners",
    ),
    Bug(
        "all models add alike",
        "        is_alike=one == other,",
        "        is_alike=True,",
    ),
    Bug(
        "what finishing adds is forgotten",
        "            begin += Fraction(aggregation.bias[output])",
        "            begin += 0",
    ),
    Bug(
        "the second model is asked for the class of the first one",
        "theirs = _preference(models.second, other, one)",
        "theirs = _preference(models.second, one, other)",
    ),
    Bug(
        "other classes are not looked at",
        "    if verdict == HOLDS and is_last and not judge.forest.has_all_trees:",
        "    if verdict == HOLDS and is_last and False:",
    ),
    Bug(
        "only one side is asked about",
        "for pair in outputs for sign in (1.0, -1.0)",
        "for pair in outputs for sign in (1.0, 1.0)",
    ),
]


@pytest.mark.slow
def test_differences_as_they_are_pass(tmp_path):
    assert_passes(PROGRAM, tmp_path, N_CASES)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug, tmp_path):
    assert_caught(bug, PROGRAM, tmp_path, N_CASES)


def test_every_bug_still_finds_its_place():
    assert_all_have_a_place(BUGS)
