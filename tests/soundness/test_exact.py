"""The exact engine against enumeration, on ensembles where ties are common on purpose.

A case is a random model with one or two rows and a random question. The slow run holds 21,000
cases; the default one is a sample of other seeds.
"""

import dataclasses
from unittest import mock

import numpy as np
import pytest

from tests.contract import engine_checks
from tests.oracle import brute_force
from tests.strategies import SMALL, Sizes, random_case, random_rows, random_tree_ensemble
from treeproof.engines import exact
from treeproof.engines.base import Budget
from treeproof.engines.exact import ExactEngine
from treeproof.model import evaluate
from treeproof.query.goals import AvoidsTarget
from treeproof.query.perturbations import LInf
from treeproof.query.query import Query, resolve_query
from treeproof.results.verdict import Verdict

ENGINE = ExactEngine()
ASKS = ("ball", "box", "radius")
CASES_PER_SEED = 500

MANY_TREES = Sizes(trees=9, depth=2, features=2, outputs=3, rows=1)
"""More trees that share features than cells: the dual has to pass messages, and rarely closes."""

DEEP = Sizes(trees=3, depth=5, features=3, outputs=3, rows=1)
"""Factors with several features, and leaves that leave some of them free."""


BUDGET = Budget(time_limit_s=20.0)
"""A search that does not end becomes a failure; these models take milliseconds."""

CROWDED = Sizes(trees=20, depth=3, features=3, outputs=2, rows=1)
"""Trees that contradict each other: bounds at the root do not suffice, boxes have to be split."""

SIZES = (SMALL, MANY_TREES, DEEP, CROWDED)

RIVALS = Sizes(trees=40, depth=4, features=4, outputs=4, rows=1)
"""Targets that have to beat several classes at once, none of them alone far from it."""

RIVALS_OF_FEW = Sizes(trees=16, depth=3, features=2, outputs=4, rows=1)
"""Likewise, with few cells."""


def check_case(rng: np.random.Generator, sizes: Sizes, ask: str) -> None:
    case = random_case(rng, sizes, ask=ask)
    if ask == "radius":
        outcomes = ENGINE.radius(case.query, BUDGET)
        for row in range(len(case.query)):
            engine_checks.check_radius(ENGINE, case.query, row, outcomes)
    else:
        outcomes = ENGINE.verify(case.query, BUDGET)
        for row in range(len(case.query)):
            engine_checks.check_verdict(ENGINE, case.query, row, outcomes)


def check_target(rng: np.random.Generator, ask: str, mixes: bool) -> None:
    """Ask whether a class is reached, by single conditions or by sums of them."""
    sizes = (RIVALS_OF_FEW, SMALL)[int(rng.integers(2))]
    case = random_case(rng, sizes, ask=ask, kind="argmax")
    query = case.query
    goal = AvoidsTarget(query.ensemble.classes[int(rng.integers(query.ensemble.n_classes))])
    accumulators = evaluate.accumulate(
        query.ensemble, evaluate.leaf_rows(query.ensemble, query.rows)
    )
    query = resolve_query(
        query.ensemble, query.rows, accumulators, None, case.perturbation, goal=goal
    )
    kernel = exact.solve_batch if mixes else exact.solve_targets
    with mock.patch.object(exact, "solve_targets", kernel):
        if ask == "radius":
            outcomes, check = ENGINE.radius(query, BUDGET), engine_checks.check_radius
        else:
            outcomes, check = ENGINE.verify(query, BUDGET), engine_checks.check_verdict
    for row in range(len(query)):
        # Sums alone need not decide every row: single conditions come first in the engine.
        if not mixes or outcomes.exact[row] or outcomes.verdict[row] != Verdict.UNKNOWN:
            check(ENGINE, query, row, outcomes)


def has_alternatives(query: Query) -> bool:
    """Whether there is any way to break the claim about each row."""
    first = query.alternatives.group_start
    return bool(np.all(first[query.group + 1] > first[query.group]))


def check_cases(seed: int, ask: str, n_cases: int) -> None:
    for number in range(n_cases):
        # One generator per case, so that a failure names a case that can be run alone.
        sizes = SIZES[number % 4]
        try:
            check_case(np.random.default_rng([seed, number]), sizes, ask)
        except AssertionError as error:
            raise AssertionError(f"seed [{seed}, {number}], {ask}: {error}") from error


@pytest.mark.parametrize("ask", ASKS)
def test_a_sample_agrees_with_the_oracle(ask):
    check_cases(1_000, ask, 120)


def check_targets(seed: int, n_cases: int) -> int:
    """Targeted questions about crowded models; returns how many searches had to split boxes."""
    n_split = 0
    for number in range(n_cases):
        rng = np.random.default_rng([seed, number])
        ensemble = random_tree_ensemble(rng, RIVALS, kind="argmax")
        rows = random_rows(rng, ensemble, 1)
        sums = evaluate.accumulate(ensemble, evaluate.leaf_rows(ensemble, rows))
        goal = AvoidsTarget(ensemble.classes[int(rng.integers(ensemble.n_classes))])
        query = resolve_query(ensemble, rows, sums, None, LInf(), goal=goal)
        try:
            outcomes = ENGINE.radius(query, BUDGET)
            engine_checks.check_radius(ENGINE, query, 0, outcomes)
        except AssertionError as error:
            raise AssertionError(f"seed [{seed}, {number}]: {error}") from error
        n_split += outcomes.statistics["nodes"][0] > outcomes.statistics["restrictions"][0]
    return n_split


def test_targets_that_beat_every_class_agree_with_the_oracle():
    assert check_targets(5_000, 150) > 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_many_targets_agree_with_the_oracle(seed):
    check_targets(6_000 + seed, 1_000)


@pytest.mark.slow
@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("seed", range(14))
def test_random_questions_agree_with_the_oracle(seed, ask):
    check_cases(seed, ask, CASES_PER_SEED)


def test_the_sample_holds_what_it_is_meant_to_hold():
    # Ties, rows on thresholds and both kinds of radius must occur, or agreement says little.
    attained = approached = zero = unbounded = 0
    for number in range(120):
        case = random_case(np.random.default_rng([1_000, number]), SMALL, ask="radius")
        for row in range(len(case.query)):
            truth = brute_force.radius(case.query, row)
            is_own = not case.query.already_broken[row]
            attained += truth.attained and is_own
            approached += not truth.attained and np.isfinite(truth.value)
            zero += truth.value == 0.0 and is_own
            unbounded += np.isinf(truth.value)
    assert min(attained, approached, unbounded) >= 10
    assert zero >= 3


def test_verdicts_turn_exactly_at_the_radius():
    n_asked = 0
    for seed in range(80):
        case = random_case(np.random.default_rng(seed), MANY_TREES, ask="radius", own_labels=True)
        query = case.query
        truth = brute_force.radius(query, 0)
        if not 0.0 < truth.value < np.inf:
            continue
        n_asked += 1
        for radius, is_broken in (
            (np.nextafter(truth.value, 0.0), False),
            (truth.value, truth.attained),
            (2.0 * truth.value, True),
        ):
            reach = dataclasses.replace(query.reach, radius=float(radius))
            outcomes = ENGINE.verify(dataclasses.replace(query, reach=reach), BUDGET)
            expected = Verdict.FALSIFIED if is_broken else Verdict.VERIFIED
            assert outcomes.verdict[0] is expected, (seed, radius)
    assert n_asked >= 15


def test_a_claim_that_nothing_can_break():
    case = random_case(np.random.default_rng([1_000, 198]), SMALL, ask="radius")
    assert not has_alternatives(case.query)
    outcomes = ENGINE.radius(case.query, Budget(time_limit_s=0.2))
    for row in range(len(case.query)):
        engine_checks.check_radius(ENGINE, case.query, row, outcomes)


def test_a_box_that_ends_between_two_floats():
    case = random_case(np.random.default_rng([1_000, 44]), DEEP, ask="box")
    outcomes = ENGINE.verify(case.query, BUDGET)
    engine_checks.check_verdict(ENGINE, case.query, 0, outcomes)


def test_a_radius_in_thirds_is_the_largest_double():
    # (1 - 0.3) / 3 is itself a double, but (1 - 0.3) is not: rounding it first loses a step.
    case = random_case(np.random.default_rng([1_000, 613]), MANY_TREES, ask="radius")
    outcomes = ENGINE.radius(case.query, BUDGET)
    assert outcomes.upper[0] == brute_force.radius(case.query, 0).value


@pytest.mark.parametrize("seed", range(4))
def test_searches_that_end_early_keep_bounds_that_hold(seed):
    n_positive = 0
    for number in range(200):
        rng = np.random.default_rng([3_000 + seed, number])
        query = random_case(rng, SIZES[number % 4], ask="radius").query
        outcomes = ENGINE.radius(query, Budget(node_limit=1 + number % 3))
        for row in np.flatnonzero(outcomes.verdict == Verdict.UNKNOWN):
            truth, lower = brute_force.radius(query, row), outcomes.lower[row]
            # A proved ball is closed: it may end at a radius that is only approached.
            assert lower < truth.value or (lower == truth.value and not truth.attained)
            assert truth.value <= outcomes.upper[row]
            n_positive += lower > 0.0
    assert n_positive > 5


@pytest.mark.parametrize("mixes", [False, True])
def test_targets_by_single_conditions_and_by_sums(mixes):
    for number in range(60):
        check_target(np.random.default_rng([4_000, number]), ASKS[number % 3], mixes)
