"""The comparison with the oracle is itself tested: bugs planted in a copy of the engine are caught.

Each bug is a change of text in the sources, applied to a temporary copy of the package. The copy
runs interpreted (TREEPROOF_PLAIN=always), so nothing is compiled, on cases as in `test_exact`.
"""

import pytest

from tests.soundness.planting import Bug, assert_all_have_a_place, assert_caught, assert_passes

RUN = """
import sys
from unittest import mock
import numpy as np
from tests.soundness.test_exact import ASKS, SIZES, check_case, check_rare_target, check_target
from tests.unit.engines import test_exact_arithmetic
from tests.unit.kernels import test_dual, test_leaves, test_narrow_dual, test_target_rows
from treeproof.kernels.exact import target_search

def only_look(quest, box, may_rise):
    conditions, walk = quest.claim.conditions, quest.walk
    target_search.evaluate(quest.forest, conditions, quest.region.row, walk, box)
    return target_search.worst_condition(walk.value), False

try:
    test_leaves.test_gains_are_never_below_the_exact_ones_also_where_they_cancel()
    test_exact_arithmetic.test_a_score_just_above_a_bound_of_zero()
    for turn in ("first", "later"):
        test_target_rows.test_a_lower_bound_does_not_say_that_nothing_attains_it(turn)
except AssertionError as error:
    sys.exit(f"CAUGHT by arithmetic: {error}")
for seed in range(40):
    try:
        test_exact_arithmetic.test_a_cell_just_before_the_first_witness(seed)
    except AssertionError as error:
        sys.exit(f"CAUGHT by moves that cancel {seed}: {error}")
for seed in test_dual.SEEDS:
    try:
        test_dual.test_the_bound_holds_for_any_multipliers_in_any_box(seed, 1.0)
        test_dual.test_sweeps_never_raise_the_bound_and_never_pass_the_maximum(seed)
        test_dual.test_marginals_bound_every_cell(seed)
        test_dual.test_a_smaller_box_inherits_a_valid_bound(seed)
        test_narrow_dual.test_the_error_covers_the_rounding_of_the_bound(seed, 1.0)
        test_narrow_dual.test_sweeps_and_marginals_are_the_plain_ones(seed)
    except AssertionError as error:
        sys.exit(f"CAUGHT by dual problem {seed}: {error}")
for number in range(int(sys.argv[1]) // 16):
    try:
        # Without points on the way, what is lost of a box is lost for good.
        with (
            mock.patch.object(target_search, "propose", only_look),
            mock.patch.object(target_search, "attack", lambda *_: None),
        ):
            check_rare_target(np.random.default_rng([4_500, number]), number)
    except AssertionError as error:
        sys.exit(f"CAUGHT by rare target {number}: {error}")
for number in range(int(sys.argv[1]) // 2):
    try:
        check_target(np.random.default_rng([3_000, number]), ASKS[number % 3], number // 3 % 2 == 1)
    except OverflowError:
        continue
    except AssertionError as error:
        sys.exit(f"CAUGHT by target {number}: {error}")
for number in range(int(sys.argv[1])):
    try:
        check_case(np.random.default_rng([2_000, number]), SIZES[number // 3 % 4], ASKS[number % 3])
    except OverflowError:
        continue  # interpreted exponentials raise where compiled ones give infinity
    except AssertionError as error:
        sys.exit(f"CAUGHT by case {number}: {error}")
print("PASSED")
"""

N_CASES = 5_000


BUGS = [
    Bug(
        "a value on a threshold goes left",
        "space.cut[middle] <= value",
        "space.cut[middle] < value",
    ),
    Bug(
        "a box is closed at a tie",
        "        if bound < floor:\n            # The sweeps'",
        "        if bound <= floor:\n            return CLOSED, 0.0\n            # The sweeps'",
    ),
    Bug(
        "the dual forgets features that a leaf does not test",
        "state.peak[entry + leaf] = peak\n                scores[first_leaf + leaf] += peak\n",
        "state.peak[entry + leaf] = peak\n"
        "                if state.range_low[entry + leaf] == state.range_high[entry + leaf]:\n"
        "                    scores[first_leaf + leaf] += peak\n",
    ),
    Bug(
        "what a settled tree has is not handed back",
        "state.rest[cell] += value",
        "state.rest[cell] += 0.0 * value",
    ),
    Bug(
        "one part of a split is forgotten",
        "push_part(stack, state, slot, cell, not peaks_right(state, slot, cell))",
        "push_part(stack, state, slot, cell, not peaks_right(state, slot, cell))\n"
        "            stack.size[0] -= 1",
    ),
    Bug(
        "light boundaries are overlooked, and boxes judged by one of their points",
        "if here != 0.0 and (",
        "if here > 100.0 and (",
    ),
    Bug("the slack is dropped", "claim.need - slack - claim.link_slack", "claim.need"),
    Bug(
        "the last of equal classes wins",
        "ahead == 0 and other < label",
        "ahead == 0 and other > label",
    ),
    Bug("a need is met only beyond it", "if gain >= claim.need", "if gain > claim.need"),
    Bug(
        "elimination keeps the wrong side",
        "state.marginal[high] < floor",
        "state.marginal[high] > floor",
    ),
    Bug(
        "the cost of a cell counts twice", "marginal[cell] += cost", "marginal[cell] += 2.0 * cost"
    ),
    Bug(
        "downward radii count as attained",
        "return distance, space.is_real or not is_exact",
        "return distance, False",
    ),
    Bug(
        "among doubles a threshold is reached from above",
        "quotient_down(value, space.below[start + last], rates[0])",
        "quotient_down(value, threshold, rates[0])",
    ),
    Bug(
        "a witness beyond the ball closes what lies between",
        "min(searched, found.upper[0])",
        "found.upper[0]",
    ),
    Bug(
        "moves are rounded to nearest",
        "return radius if rate == 1.0 else np.nextafter(radius * rate, np.inf)",
        "return radius * rate",
    ),
    Bug(
        "gains that cancel are rounded to nearest",
        "return total if lost == 0.0 else np.nextafter(total + 2.0 * lost, np.inf)",
        "return total",
    ),
    Bug(
        "infinite values move as the largest number does",
        "                home[feature] = FIXED\n    return Region(\n",
        "                row = np.nan_to_num(row, nan=np.nan)\n    return Region(\n",
    ),
    Bug("the last of equal shares wins", "if share > best:", "if share >= best:"),
    Bug(
        "a score just above a bound counts as the bound",
        "math.ceil(Fraction(cut) / Fraction(grid))",
        "math.ceil(cut / grid)",
    ),
    Bug(
        "quotients are rounded to nearest",
        "quotient = np.nextafter(quotient, -np.inf)",
        "break",
    ),
    Bug(
        "nothing at the witness's own distance is searched",
        "(atoms[high, DOUBT] != 0 or not is_open)",
        "True",
    ),
    Bug(
        "nothing at the witness's own distance is kept of a ball",
        "distance == upper and (is_beyond or not is_open)",
        "distance == upper",
    ),
    Bug(
        "one-feature trees miss their last cell in conditions",
        "problem.cells[cell, HIGH] <= leaves.high[entry]",
        "problem.cells[cell, HIGH] < leaves.high[entry]",
    ),
    Bug("float32 sums are kept in float64", "np.float64(np.float32(left + right))", "left + right"),
    Bug(
        "categories move",
        "if np.isnan(row[feature]) or space.categorical[feature]:",
        "if np.isnan(row[feature]):",
    ),
    Bug("only the likeliest class is searched", "for number in order:", "for number in order[:1]:"),
    Bug(
        "only the last one-feature tree counts",
        "unary[cell] += leaves.leaf_gain[leaf]",
        "unary[cell] = leaves.leaf_gain[leaf]",
    ),
    Bug(
        "weights of conditions fall below zero",
        "new_weight[number] = before * max(new_weight[number] / total, LEAST)",
        "new_weight[number] = before * max(new_weight[number] / total - 0.5, -0.3)",
    ),
    Bug(
        "only the last condition has a base",
        "terms[BASE] += weight[number] * table.terms[number, BASE]",
        "terms[BASE] = weight[number] * table.terms[number, BASE]",
    ),
    Bug(
        "parts right of a cut lack their first cell",
        "feature] = cut + 1",
        "feature] = cut + 2",
    ),
    Bug(
        "parts left of a cut are not put aside",
        "    nodes.size[0] = top + 1",
        "    nodes.size[0] = top + (1 if is_right else 0)",
    ),
    Bug(
        "all conditions of a target have the floor of the first",
        "base, floor = base_and_floor(forest, condition, leaves)",
        "base, floor = base_and_floor(forest, condition_of(quest.claim, 0), leaves)",
    ),
    Bug(
        "a box is closed by the leaves of the box before it",
        "    enter_box(problem, state)\n    bound, error",
        "    if is_root:\n        enter_box(problem, state)\n    bound, error",
    ),
    Bug(
        "one cell too many is dropped beside those that are reached",
        "            box.high[feature] -= 1",
        "            box.high[feature] = max(box.high[feature] - 2, home)",
    ),
    Bug(
        "a condition that is refuted in a part counts as refuted everywhere",
        "return CLOSED, (rival, np.int64(-1), np.int64(0))",
        "return NOTHING_LEFT, (rival, np.int64(-1), np.int64(0))",
    ),
    Bug(
        "only the first cell is kept of cells that a condition takes together",
        "problem.cells[state.box[slot, HIGH], HIGH]",
        "problem.cells[state.box[slot, HIGH], LOW]",
    ),
    Bug(
        "a range that its box cuts short counts as all of the slot",
        "if low > span[pair, LOW] or high < span[pair, HIGH]:",
        "if low > span[pair, LOW]:",
    ),
    Bug(
        "the best leaf is the best of those that narrow nothing, too",
        "is_narrow |= leaf == best",
        "is_narrow |= False",
    ),
    Bug(
        "a lower bound is taken to say that nothing attains it",
        "if found.lower[0] == found.upper[0] and not found.is_open[0]:",
        "if found.lower[0] == found.upper[0]:",
    ),
]


@pytest.mark.slow
def test_the_engine_as_it_is_passes(tmp_path):
    assert_passes(RUN, tmp_path, N_CASES)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug, tmp_path):
    assert_caught(bug, RUN, tmp_path, N_CASES)


def test_every_bug_still_finds_its_place():
    assert_all_have_a_place(BUGS)
