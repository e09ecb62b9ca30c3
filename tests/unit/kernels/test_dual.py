"""The dual bound: above the maximum for any multipliers, lowered by sweeps, tight where it must be.

Problems are built from random ensembles with few cells, so that every point can be tried; exact
fractions take the part of the rounded sums.
"""

import itertools
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from tests.kernels import called
from tests.strategies import Sizes, random_case
from treeproof.engines.batches import forest_of
from treeproof.engines.spaces import rank_space
from treeproof.kernels.core.cells import FIXED, CellBox, cells_of_box
from treeproof.kernels.core.leaves import restrict_box
from treeproof.kernels.exact.dual import enter_box, marginals, new_state, refresh, sweep
from treeproof.kernels.exact.primal import gains_of, locate, new_holders
from treeproof.kernels.exact.problem import (
    BASE,
    CELL_START,
    ENTRY_START,
    FEATURE,
    GROSS,
    HIGH,
    LEAF_START,
    LOW,
    PAIR_START,
    SEGMENT_START,
    SLOT,
    build_problem,
)
from treeproof.model import evaluate

build_problem, new_state = map(called, (build_problem, new_state))
locate, new_holders = map(called, (locate, new_holders))
enter_box, sweep, refresh, marginals = map(called, (enter_box, sweep, refresh, marginals))

SIZES = Sizes(trees=7, depth=3, features=3, outputs=3, rows=1)
SEEDS = range(30)


def problem_of(seed):
    """A problem with two factors or more, the question it comes from, and a generator."""
    return *_problem_of(seed), np.random.default_rng([seed, 78])


@cache
def _problem_of(seed):
    rng = np.random.default_rng([seed, 77])
    while True:
        query = random_case(rng, SIZES, ask="box", kind="threshold", plain=seed % 2 == 0).query
        ensemble = query.ensemble
        space = rank_space(ensemble)
        low_cell = np.empty(ensemble.n_features, dtype=np.int32)
        high_cell = np.empty(ensemble.n_features, dtype=np.int32)
        low, high = query.reach.box(query.rows, 0.0)
        sides = (np.array(low[0]), np.array(high[0]))
        cells_of_box(space, query.rows[0], *sides, low_cell, high_cell)
        leaves = restrict_box(forest_of(query), query.rows[0], low_cell, high_cell, np.ones(1))
        base = ensemble.aggregation.start[0]
        problem = build_problem(base, leaves, CellBox(low_cell, high_cell))
        if problem.n_factors >= 2:
            return problem, query, space, low_cell


def cells_in_box(problem, state):
    return [
        range(state.box[slot, LOW], state.box[slot, HIGH] + 1) for slot in range(problem.n_slots)
    ]


def exact_value(problem, point):
    """Value of a point as a fraction, read from the problem's tables alone."""
    total = Fraction(problem.terms[BASE])
    for slot in range(problem.n_slots):
        total += Fraction(problem.unary[point[slot]])
    for factor in range(problem.n_factors):
        total += Fraction(problem.leaf_gain[leaf_at(problem, factor, point)])
    return total


def leaf_at(problem, factor, point):
    """The one leaf of a factor that holds a point."""
    first_pair, last_pair = problem.factors[factor : factor + 2, PAIR_START]
    width = last_pair - first_pair
    first_leaf = problem.factors[factor, LEAF_START]
    holding = []
    for leaf in range(first_leaf, problem.factors[factor + 1, LEAF_START]):
        row = problem.factors[factor, ENTRY_START] + (leaf - first_leaf) * width
        inside = True
        for step in range(width):
            slot, _, start = problem.pairs[first_pair + step]
            low = problem.segments[start + problem.entries[row + step, LOW], LOW]
            high = problem.segments[start + problem.entries[row + step, HIGH], HIGH]
            inside = inside and low <= point[slot] <= high
        if inside:
            holding.append(leaf)
    assert len(holding) == 1, "the leaves of a factor must part its box"
    return holding[0]


def exact_maximum(problem, state):
    return max(exact_value(problem, point) for point in points_of(problem, state))


def points_of(problem, state):
    return list(itertools.product(*cells_in_box(problem, state)))


def random_multipliers(problem, state, rng, size=1.0):
    state.multiplier[:] = rng.choice([-1.0, -0.3, 0.0, 0.1, 0.7, 1.0], len(state.multiplier))
    state.multiplier[:] *= size
    enter_box(problem, state)
    return refresh(problem, state)


def random_sub_box(problem, state, rng):
    for slot in range(problem.n_slots):
        low, high = state.box[slot]
        first, last = np.sort(rng.integers(low, high + 1, size=2))
        state.box[slot] = first, last


@pytest.mark.parametrize("seed", SEEDS)
def test_a_problem_has_the_values_of_the_model(seed):
    problem, query, space, low_cell, _ = problem_of(seed)
    state = new_state(problem)
    enter_box(problem, state)
    ensemble = query.ensemble
    cells = np.array(low_cell)
    for point in points_of(problem, state)[:200]:
        row = query.rows[0].copy()
        for slot in range(problem.n_slots):
            cells[problem.slots[slot, FEATURE]] = problem.cells[point[slot], LOW]
        for feature in np.flatnonzero(cells != FIXED):
            cuts = space.cut[space.cut_start[feature] : space.cut_start[feature + 1]]
            if cells[feature] > 0:
                row[feature] = cuts[cells[feature] - 1]
            elif len(cuts):
                real = np.dtype(ensemble.input_precision).type
                row[feature] = np.nextafter(real(cuts[0]), real(-np.inf))
        leaves = evaluate.leaf_rows(ensemble, row[np.newaxis])[0]
        expected = Fraction(ensemble.aggregation.start[0]) + sum(
            Fraction(ensemble.trees.leaf_value[leaf, 0]) for leaf in leaves.tolist()
        )
        scale = 1e-12 * problem.terms[GROSS]
        assert abs(exact_value(problem, point) - expected) <= scale
        value = locate(
            problem, gains_of(problem), state, np.array(point, np.int32), new_holders(problem)
        )
        assert abs(Fraction(value) - expected) <= scale


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_the_bound_holds_for_any_multipliers_in_any_box(seed, size):
    problem, _, _, _, rng = problem_of(seed)
    state = new_state(problem)
    random_sub_box(problem, state, rng)
    bound, error = random_multipliers(problem, state, rng, size)
    assert error >= 0.0
    assert Fraction(bound) + Fraction(error) >= exact_maximum(problem, state)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_error_covers_the_rounding_of_the_bound(seed):
    problem, _, _, _, rng = problem_of(seed)
    state = new_state(problem)
    random_sub_box(problem, state, rng)
    bound, error = random_multipliers(problem, state, rng)
    assert abs(exact_bound(problem, state) - Fraction(bound)) <= Fraction(error)
    # An error that swallows the bound would make every proof fail.
    assert error <= 1e-11 * (problem.terms[GROSS] + len(state.multiplier))


def exact_bound(problem, state):
    """The formula of the module's first lines, over all cells and all slots, as a fraction."""
    multiplier = [Fraction(value) for value in state.multiplier]
    total = Fraction(problem.terms[BASE])
    for cells in cells_in_box(problem, state):
        total += max(exact_rest(problem, multiplier, cell) for cell in cells)
    for factor in range(problem.n_factors):
        total += max(exact_scores(problem, state, multiplier, factor).values())
    return total


def exact_rest(problem, multiplier, cell):
    rest = Fraction(problem.unary[cell])
    for pair in range(problem.n_pairs):
        start, end = problem.pairs[pair, SEGMENT_START], problem.pairs[pair + 1, SEGMENT_START]
        for segment in range(start, end):
            if problem.segments[segment, LOW] <= cell <= problem.segments[segment, HIGH]:
                rest -= multiplier[segment]
    return rest


def exact_scores(problem, state, multiplier, factor):
    """Best score of each leaf of a factor that meets the box."""
    pairs = range(*problem.factors[factor : factor + 2, PAIR_START])
    slots = [problem.pairs[pair, SLOT] for pair in pairs]
    scores = {}
    template = [cells[0] for cells in cells_in_box(problem, state)]
    for choice in itertools.product(*(cells_in_box(problem, state)[slot] for slot in slots)):
        point = list(template)
        score = Fraction(0)
        for slot, cell, pair in zip(slots, choice, pairs, strict=True):
            point[slot] = cell
            start, end = problem.pairs[pair : pair + 2, SEGMENT_START]
            for segment in range(start, end):
                if problem.segments[segment, LOW] <= cell <= problem.segments[segment, HIGH]:
                    score += multiplier[segment]
        leaf = leaf_at(problem, factor, point)
        score += Fraction(problem.leaf_gain[leaf])
        scores[leaf] = max(score, scores.get(leaf, score))
    return scores


@pytest.mark.parametrize("seed", SEEDS)
def test_sweeps_never_raise_the_bound_and_never_pass_the_maximum(seed):
    problem, _, _, _, rng = problem_of(seed)
    state = new_state(problem)
    random_sub_box(problem, state, rng)
    bound, error = random_multipliers(problem, state, rng)
    maximum = exact_maximum(problem, state)
    tolerance = 1e-9 * (1.0 + problem.terms[GROSS])
    for turn in range(8):
        swept = sweep(problem, state, turn % 2 == 0, bound, -np.inf)
        assert swept <= bound + tolerance
        fresh, error = refresh(problem, state)
        assert abs(fresh - swept) <= tolerance, "the bound that sweeps keep has come apart"
        assert Fraction(fresh) + Fraction(error) >= maximum
        bound = fresh


def test_sweeps_improve_on_the_best_leaf_of_every_tree():
    # Without progress the tests above would pass with sweeps that do nothing.
    closed = improved = 0
    for seed in SEEDS:
        problem, *_ = problem_of(seed)
        state = new_state(problem)
        first = bound = enter_box(problem, state)
        for turn in range(30):
            bound = sweep(problem, state, turn % 2 == 0, bound, -np.inf)
        maximum = float(exact_maximum(problem, state))
        improved += bound < first - 1e-6
        closed += bound <= maximum + 1e-6 * (1.0 + problem.terms[GROSS])
    assert improved >= len(SEEDS) // 3
    assert closed >= len(SEEDS) // 2


@pytest.mark.parametrize("seed", SEEDS)
def test_marginals_bound_every_cell(seed):
    problem, _, _, _, rng = problem_of(seed)
    state = new_state(problem)
    random_sub_box(problem, state, rng)
    bound, _ = random_multipliers(problem, state, rng)
    for turn in range(int(rng.integers(0, 4))):
        bound = sweep(problem, state, turn % 2 == 0, bound, -np.inf)
    bound, error = refresh(problem, state)
    marginals(problem, state)
    best = {}
    for point in points_of(problem, state):
        value = exact_value(problem, point)
        for cell in point:
            best[cell] = max(value, best.get(cell, value))
    for cell, value in best.items():
        # Engines eliminate a cell at bound + 2 * error + marginal < floor.
        assert Fraction(bound) + 2 * Fraction(error) + Fraction(state.marginal[cell]) >= value
        assert state.marginal[cell] <= error


@pytest.mark.parametrize("seed", SEEDS)
def test_a_smaller_box_inherits_a_valid_bound(seed):
    # What a child of a branching takes over: multipliers and rest of the parent, and a part box.
    problem, _, _, _, rng = problem_of(seed)
    state = new_state(problem)
    parent = enter_box(problem, state)
    for turn in range(3):
        parent = sweep(problem, state, turn % 2 == 0, parent, -np.inf)
    random_sub_box(problem, state, rng)
    child = enter_box(problem, state)
    tolerance = 1e-9 * (1.0 + problem.terms[GROSS])
    assert child <= parent + tolerance
    assert child >= float(exact_maximum(problem, state)) - tolerance


def test_cells_part_every_slot():
    for seed in SEEDS:
        problem, *_ = problem_of(seed)
        for slot in range(problem.n_slots):
            first, last = problem.slots[slot : slot + 2, CELL_START]
            ranges = problem.cells[first:last]
            assert np.all(ranges[:, LOW] <= ranges[:, HIGH])
            np.testing.assert_array_equal(ranges[1:, LOW], ranges[:-1, HIGH] + 1)
