"""The exact engine against enumeration, on ensembles where ties are common on purpose.

A case is a random model with one or two rows and a random question. The slow run holds 21,000
cases; the default one is a sample of other seeds.
"""

import dataclasses
from contextlib import nullcontext
from typing import Any
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
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, FloatArray, Provenance
from treeproof.query.goals import AvoidsTarget
from treeproof.query.perturbations import Box, LInf
from treeproof.query.query import Query, resolve_query
from treeproof.results.results import Results
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

TARGET_BUDGET = Budget(time_limit_s=60.0)
"""Sums alone try a thousand radii and more where features differ by 300 orders of magnitude, which
takes as many seconds in interpreted runs as milliseconds otherwise."""

TURNS: tuple[dict[str, int], ...] = (
    {},
    {"TARGET_PATIENCE": 1, "MORE_PATIENCE": 2},
    {"TARGET_PATIENCE": 6, "MORE_PATIENCE": 3},
)
"""Nodes of the turns of a target: as it is, and so few that searches end and begin again."""


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


def target_query(rng: np.random.Generator, sizes: Sizes, ask: str, least_classes: int) -> Query:
    """A question whether a class is reached."""
    while True:
        case = random_case(rng, sizes, ask=ask, kind="argmax")
        ensemble, rows = case.query.ensemble, case.query.rows
        if ensemble.n_classes >= least_classes:
            break
    goal = AvoidsTarget(ensemble.classes[int(rng.integers(ensemble.n_classes))])
    accumulators = evaluate.accumulate(ensemble, evaluate.leaf_rows(ensemble, rows))
    return resolve_query(ensemble, rows, accumulators, None, case.perturbation, goal=goal)


def check_answers(query: Query, ask: str) -> Results:
    """Compare all answers to a targeted question with the oracle."""
    if ask == "radius":
        outcomes, check = ENGINE.radius(query, TARGET_BUDGET), engine_checks.check_radius
    else:
        outcomes, check = ENGINE.verify(query, TARGET_BUDGET), engine_checks.check_verdict
    for row in range(len(query)):
        check(ENGINE, query, row, outcomes)
    return outcomes


def check_target(rng: np.random.Generator, ask: str, mixes: bool) -> None:
    """Ask whether a class is reached, by single conditions or by sums of them."""
    sizes = (RIVALS_OF_FEW, SMALL)[int(rng.integers(2))]
    query = target_query(rng, sizes, ask, 2)
    kernel = exact.solve_batch if mixes else exact.solve_targets
    with mock.patch.object(exact, "solve_targets", kernel):
        check_answers(query, ask)


def full_tree(
    rng: np.random.Generator, depth: int, features: list[int], width: int, leaves: FloatArray
) -> dict:
    """A tree of that depth on both sides everywhere; features have eight thresholds."""
    nodes: dict[str, list] = {
        name: [] for name in ("feature", "threshold", "left", "right", "flags", "value")
    }

    def grow(level: int) -> int:
        node = len(nodes["feature"])
        is_leaf = level == 0
        nodes["feature"].append(0 if is_leaf else int(rng.choice(features)))
        nodes["threshold"].append(0.0 if is_leaf else float(rng.integers(1, 9)) / 8.0)
        nodes["flags"].append(0)
        nodes["value"].append(rng.choice(leaves, size=width) if is_leaf else np.zeros(width))
        for name in ("left", "right"):
            nodes[name].append(-1)
        for name in ("left", "right") if not is_leaf else ():
            nodes[name][node] = grow(level - 1)
        return node

    grow(depth)
    return nodes


def rare_target(rng: np.random.Generator) -> tuple[Ensemble, int]:
    """A model of three to five classes, and one of them that wins in few cells, by nothing or not.

    Trees contradict each other, so that boxes have to be split until little is left of them. Some
    classes test features of their own: their trees go on where those of others have one leaf left.
    """
    n_classes = int(rng.integers(3, 6))
    is_vector = bool(rng.random() < 0.4)
    leaves = np.array(((-1.0, -0.5, 0.0, 0.5, 1.0), (-0.3, -0.1, 0.1, 0.2, 0.3))[rng.integers(2)])
    builder = TreeBuilder(leaf_width=n_classes if is_vector else 1)
    is_apart = not is_vector and bool(rng.random() < 0.5)
    n_trees = int(rng.integers(1 if is_apart else 3, 9))
    for tree in range(n_trees * (1 if is_vector else n_classes)):
        features = [tree % n_classes % 3] if is_apart else [0, 1, 2]
        nodes = full_tree(rng, int(rng.integers(2, 5)), features, builder.leaf_width, leaves)
        builder.add_tree(output=-1 if is_vector else tree % n_classes, **nodes)
    link: Any = rng.choice(["identity", "identity", "softmax_float32"])
    ensemble = Ensemble(
        trees=builder.finish(),
        n_features=3,
        n_outputs=n_classes,
        input_precision="float64",
        aggregation=Aggregation(precision="float64", start=(0.0,) * n_classes),
        decision=Decision(kind="argmax", link=link),
        classes=tuple(range(n_classes)),
        provenance=Provenance(library="random"),
    )
    target = int(rng.integers(n_classes))
    axis = np.arange(9) / 8.0 + 1.0 / 16.0
    points = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    sums = evaluate.accumulate(ensemble, evaluate.leaf_rows(ensemble, points))
    lead = np.sort(sums[:, target] - np.delete(sums, target, axis=1).max(axis=1))
    start = np.zeros(n_classes)
    start[target] = -lead[-int(rng.choice([1, 2, 4, 12]))]
    aggregation = dataclasses.replace(ensemble.aggregation, start=tuple(start.tolist()))
    return dataclasses.replace(ensemble, aggregation=aggregation), target


def check_rare_target(rng: np.random.Generator, number: int) -> bool:
    """Ask about a target that wins in few cells; returns whether boxes were split.

    Single conditions go on to the end, or both searches take turns of few nodes.
    """
    ask, turns = ASKS[number % 3], TURNS[number // 3 % 3]
    ensemble, target = rare_target(rng)
    rows = rng.integers(2, 17, size=(1, 3)) / 16.0
    perturbation: LInf | Box = LInf(None if ask == "radius" else float(rng.integers(4, 15)) / 16.0)
    if ask == "box":
        perturbation = Box(*(rng.integers((0, 12), (8, 20), size=(3, 2)) / 16.0).T)
    sums = evaluate.accumulate(ensemble, evaluate.leaf_rows(ensemble, rows))
    query = resolve_query(ensemble, rows, sums, None, perturbation, goal=AvoidsTarget(target))
    with mock.patch.multiple(exact, **turns) if turns else nullcontext():
        statistics = check_answers(query, ask).statistics
    return bool(np.any(statistics["nodes"] > statistics["restrictions"]))


def check_grid(rng: np.random.Generator) -> None:
    """Ask for the radius of a row on the grid of all thresholds or half way between them.

    Moves up and down then have the same length, of which only one is attained.
    """
    ensemble, _ = rare_target(rng)
    rows = rng.integers(2, 17, size=(1, 3)) / 16.0
    sums = evaluate.accumulate(ensemble, evaluate.leaf_rows(ensemble, rows))
    check_answers(resolve_query(ensemble, rows, sums, None, LInf()), "radius")


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


def test_rare_targets_in_turns_of_any_length():
    n_split = 0
    for number in range(180):
        try:
            n_split += check_rare_target(np.random.default_rng([4_500, number]), number)
        except AssertionError as error:
            raise AssertionError(f"seed [4500, {number}]: {error}") from error
    assert n_split >= 10


@pytest.mark.parametrize("mixes", [False, True])
def test_targets_by_single_conditions_and_by_sums(mixes):
    for number in range(60):
        check_target(np.random.default_rng([4_000, number]), ASKS[number % 3], mixes)
