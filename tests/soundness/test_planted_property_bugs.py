"""Bugs planted in a copy of what answers properties are caught by the enumeration of all pairs."""

import pytest

from tests.soundness.planting import Bug, assert_all_have_a_place, assert_caught, assert_passes

RUN = """
import contextlib
import sys
from unittest.mock import patch

from tests.soundness.test_properties import check_case, check_rounding
from tests.unit.kernels.test_open_boxes import (
    test_boxes_leave_in_the_order_of_their_bounds_and_none_is_lost as check_heap,
)
from treeproof.kernels.exact import cost_weight, optimum, search


@contextlib.contextmanager
def nothing_but_branching():
    # Small models are mostly decided by good bounds and lucky points before a box is split.
    with (
        patch.object(optimum, "sweep", lambda problem, state, is_forward, bound, floor: bound),
        patch.object(optimum, "propose", lambda *given: optimum.NO_BETTER),
        patch.object(cost_weight, "sweep", lambda problem, state, is_forward, bound, floor: bound),
        patch.object(search, "reaches_need", lambda *given: False),
    ):
        yield


for seed in range(int(sys.argv[1])):
    try:
        if seed == 0:
            check_heap()  # small models rarely have so many open boxes that it grows
        check_case(seed)
        check_rounding(seed)
        with nothing_but_branching():
            check_case(seed)
    except OverflowError:
        continue  # interpreted exponentials raise where compiled ones give infinity
    except AssertionError as error:
        sys.exit(f"CAUGHT by case {seed}: {error}")
print("PASSED")
"""

N_CASES = 60

BUGS = [
    Bug(
        "a tree that does not cancel is forgotten",
        "        if not is_same and is_open:",
        "        is_same = is_same or (copies.is_difference and one == other)\n"
        "        if not is_same and is_open:",
    ),
    Bug(
        "the first row counts with the wrong sign",
        "result.leaf_gain[leaf] = first_share * leaves.first[leaf]",
        "result.leaf_gain[leaf] = -first_share * leaves.first[leaf]",
    ),
    Bug(
        "the order is off by one",
        "        table[:n_numbers, 1] = n_numbers - 1\n",
        "        table[:n_numbers, 1] = np.minimum(np.arange(n_numbers) + 1, n_numbers - 1)\n",
    ),
    Bug(
        "a box is closed at any bound near the best pair",
        "    return max(value + max(aim.gap, aim.share * value), aim.ends[0])",
        "    return max(1.3 * value + aim.gap + 0.1, aim.ends[0])",
    ),
    Bug(
        "one side of a split is lost",
        "    place = add_place(boxes, min(above, bound + other))",
        "    place = add_place(boxes, -1e300)",
    ),
    Bug(
        "a part of a search for two needs is lost",
        "        set_part_aside(boxes, state, slot, cell, bound, np.inf)",
        "        set_part_aside(boxes, state, slot, cell, bound, np.inf)\n"
        "        take_place(boxes)",
    ),
    Bug(
        "the second need is bounded by the gains of the first",
        "    joint = with_relations(leaves, copies, box, bonus, 0.0, 1.0)",
        "    joint = with_relations(leaves, copies, box, bonus, 1.0, 0.0)",
    ),
    Bug(
        "a box that is handed over is lost",
        "place = add_place(frontier.boxes, bound)",
        "place = add_place(frontier.boxes, -1e300)",
    ),
    Bug(
        "two open boxes share a place",
        "    for place in range(len(boxes.heap), len(heap)):",
        "    for place in range(size, len(heap)):",
    ),
    Bug(
        "a tie is settled where a tree gains something",
        "        if leaves.first[leaf] + leaves.second[leaf] <= 0.0:",
        "        if leaves.first[leaf] + leaves.second[leaf] <= 0.3:",
    ),
    Bug(
        "the rounding of sums is forgotten",
        "        slack += abs(weights[output]) * error",
        "        slack += 0.0 * error",
    ),
    Bug(
        "a column that does not matter in a box leaves it",
        "        inside[column] = min(max(nearest[column], box.low[column]), box.high[column])",
        "        inside[column] = nearest[column]",
    ),
    Bug(
        "codes of a category share a cell",
        "            kinds.setdefault(sides[:, number].tobytes(), []).append(code)",
        '            kinds.setdefault(b"", []).append(code)',
    ),
    Bug(
        "near cells are those that touch",
        "<= width:\n            upper += 1",
        "<= 0:\n            upper += 1",
    ),
    Bug(
        "one need is enough",
        "return BROKEN if one >= aim.need[0] and other >= aim.need[1] else HOLDS",
        "return HOLDS",
    ),
]


@pytest.mark.slow
def test_properties_as_they_are_pass(tmp_path):
    assert_passes(RUN, tmp_path, N_CASES)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug, tmp_path):
    assert_caught(bug, RUN, tmp_path, N_CASES)


def test_every_bug_still_finds_its_place():
    assert_all_have_a_place(BUGS)
