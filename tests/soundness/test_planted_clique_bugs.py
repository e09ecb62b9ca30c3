"""Bugs planted in the search of cliques are caught, as in `test_planted_bugs`.

Every row is answered by cliques alone, and every part of a search gets a frame of its own: small
cases would not be worth one.
"""

import pytest

from tests.soundness.planting import Bug, assert_all_have_a_place, assert_caught, assert_passes

RUN = """
import sys
from unittest import mock
import numpy as np
from treeproof.kernels.exact import forest_cliques, forest_rows, judging, piece_graph

judging.MOST_PARTS = 1  # near ties stay undecided; test_near_ties.py decides them
piece_graph.MOST_PIECES = int(sys.argv[2])
forest_cliques.LEAST_FRAME, forest_cliques.PATIENCE, forest_cliques.WORTH_FRAME = 2, 0.0, 1.0
forest_cliques.WORTH_NEW = 1

from tests.soundness.test_exact import ASKS, check_case, check_grid
from tests.strategies import Sizes
from tests.unit.engines import test_exact_arithmetic
from tests.unit.kernels import test_forest_cliques as unit
from treeproof.engines import exact

exact.PATIENCE, exact.CLIQUE_PATIENCE = 0, 2**40
try:
    for gains in unit.GAINS:
        unit.test_weights_lose_no_violation(gains)
    for seed in range(12):
        unit.test_neighbours_are_the_pieces_that_meet(seed)
        unit.test_every_clique_that_weighs_enough_has_an_uncovered_piece(seed)
    unit.test_what_is_attained_is_nearer_than_what_is_approached()
    test_exact_arithmetic.test_what_a_softmax_rounds_to_depends_on_trees_of_all_classes("exact")
    for n_nodes in (1, 2, 3, 4, 5, 8, 20):
        unit.test_both_bounds_hold_when_a_limit_ends_the_search(exact.ExactEngine(), n_nodes)
except AssertionError as error:
    sys.exit(f"CAUGHT by its parts: {error}")
for number in range(int(sys.argv[1]) // 10):
    try:
        # In a ball that holds everything farther violations are found before nearer ones.
        with mock.patch.multiple(forest_rows, FIRST=1e3, GROWTH=1e3):
            check_grid(np.random.default_rng([77, number]))
    except AssertionError as error:
        sys.exit(f"CAUGHT by distances that tie {number}: {error}")
SIZES = (Sizes(), Sizes(trees=9, depth=3, features=3, rows=1), Sizes(trees=14, depth=2, features=4))
for number in range(int(sys.argv[1])):
    try:
        check_case(np.random.default_rng([9_000, number]), SIZES[number // 3 % 3], ASKS[number % 3])
    except OverflowError:
        continue  # interpreted exponentials raise where compiled ones give infinity
    except AssertionError as error:
        sys.exit(f"CAUGHT by case {number}: {error}")
print("PASSED")
"""

N_CASES = 3_000

BUGS = [
    Bug(
        "a piece whose branch is broken off is forgotten",
        "state.alive[level, vertex >> SIX] |= BIT << (vertex & LAST)",
        "state.alive[level, vertex >> SIX] |= np.uint64(0)",
    ),
    Bug(
        "a class holds pieces that meet",
        "free[y] &= ~words[row + y]",
        "free[y] &= ~np.uint64(0)",
    ),
    Bug("classes may reach what is missing", "left = missing - 1", "left = missing"),
    Bug("weights are rounded down", "math.ceil(ldexp", "math.floor(ldexp"),
    Bug(
        "a step more than what is missing is asked for",
        "required = -(-required // divisor)",
        "required = -(-required // divisor) + 1",
    ),
    Bug(
        "pieces that touch miss each other",
        "low[by_low[at]] > high[index]",
        "low[by_low[at]] >= high[index]",
    ),
    Bug(
        "nothing at the witness's own distance is nearer",
        "(distance == other and is_other_beyond and not is_beyond)",
        "False",
    ),
    Bug(
        "a rejected point settles the box around it",
        "return settle(judge_of, doubt, graph, room, budget)",
        "return PROVED",
    ),
    Bug(
        "the first new piece counts as searched",
        ">= state.numbers[NEW]",
        "> state.numbers[NEW]",
    ),
    Bug(
        "a prefix that was not searched counts as cleared",
        "return status, before(graph.distance[n_cleared], graph.is_beyond[n_cleared])",
        "return status, graph.distance[end - 1] if end < limit else np.inf",
    ),
    Bug(
        "pieces keep their weights while they are numbered anew",
        "state.labels[WEIGHT, first + index] = state.labels[WEIGHT, frame[LIST] + vertex]",
        "state.labels[WEIGHT, first + index] = state.labels[WEIGHT, frame[LIST] + index]",
    ),
    Bug(
        "neighbours are those of another piece while they are numbered anew",
        "words[start + place[(y << 6) + bit] * width + x] = block[bit]",
        "words[start + place[(y << 6) + bit] * width + x] = block[bit ^ 1]",
    ),
    Bug(
        "pieces as far as a new witness stay away from what is nearer",
        "if state.levels[level, CHOSEN] >= limit:",
        "if state.levels[level, CHOSEN] >= limit // 2:",
    ),
    Bug("a near tie is no violation", "if verdict == AMBIGUOUS and is_nearer(", "if False and ("),
    Bug(
        "the moves to a leaf add up",
        "            farthest = distance\n"
        "            is_beyond = beyond\n    return farthest, is_beyond\n\n\nMOST_PIECES",
        "            farthest += distance\n"
        "            is_beyond = beyond\n    return farthest, is_beyond\n\n\nMOST_PIECES",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("n_pieces", [8_000, 5])
def test_cliques_as_they_are_pass(tmp_path, n_pieces):
    assert_passes(RUN, tmp_path, N_CASES, n_pieces)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug, tmp_path):
    assert_caught(bug, RUN, tmp_path, N_CASES, 8_000)


def test_every_bug_still_finds_its_place():
    assert_all_have_a_place(BUGS)
