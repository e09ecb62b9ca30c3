"""Points on whole trees: what is seen along a feature is what the trees give there."""

import numpy as np
import pytest

from tests.kernels import called
from tests.strategies import Sizes, random_case
from treeproof.engines.batches import forest_of
from treeproof.kernels.core.cells import CellBox, Region
from treeproof.kernels.core.emulation import Conjunction
from treeproof.kernels.exact.walks import evaluate, look_along, move, new_walk, rise

evaluate, look_along, move = map(called, (evaluate, look_along, move))
new_walk, rise = map(called, (new_walk, rise))

SIZES = Sizes(trees=9, depth=4, features=3, outputs=4, rows=1)


def walk_of(seed):
    """A forest, conditions, a row, a box of all cells, and a walk at a random point of it."""
    rng = np.random.default_rng([seed, 31])
    while True:
        query = random_case(rng, SIZES, kind="argmax", plain=True).query
        forest = forest_of(query)
        counts = np.diff(forest.space.cut_start)
        if not np.isnan(query.rows[0]).any() and not forest.space.categorical.any():
            break
    n_outputs = query.ensemble.n_outputs
    n_conditions = n_outputs - 1
    coefficient = np.zeros((n_conditions, n_outputs))
    coefficient[:, 0] = 1.0
    coefficient[np.arange(n_conditions), np.arange(1, n_conditions + 1)] = -1.0
    need = rng.choice([0.0, 0.25, 0.5], size=n_conditions)
    conditions = Conjunction(coefficient, need, np.zeros(n_conditions))
    box = CellBox(np.zeros(len(counts), dtype=np.int32), counts.astype(np.int32))
    walk = new_walk(forest, len(counts), n_conditions)
    walk.cells[:] = rng.integers(0, counts + 1)
    return forest, conditions, query.rows[0].copy(), box, walk


@pytest.mark.parametrize("seed", range(20))
def test_along_a_feature_values_are_those_of_the_points(seed):
    forest, conditions, row, box, walk = walk_of(seed)
    evaluate(forest, conditions, row, walk, box)
    point, value = walk.cells.copy(), walk.value.copy()
    for feature in range(len(point)):
        low, high = int(box.low[feature]), int(box.high[feature])
        if not walk.testing[feature].any():
            seen = np.tile(value, (high + 1, 1))
        else:
            look_along(forest, conditions, row, walk, feature, low, high)
            seen = walk.here + np.cumsum(walk.change[: high + 1], axis=0)
        for cell in range(low, high + 1):
            walk.cells[feature] = cell
            evaluate(forest, conditions, row, walk, box)
            np.testing.assert_allclose(seen[cell], walk.value, rtol=1e-9, atol=1e-12)
        walk.cells[:] = point
        evaluate(forest, conditions, row, walk, box)


def rounding(forest):
    """What sums that were changed often may be off by."""
    return 1e-12 * (1.0 + np.abs(forest.trees.leaf_value).max())


@pytest.mark.parametrize("seed", range(20))
def test_a_move_leaves_what_evaluation_finds(seed):
    forest, conditions, row, box, walk = walk_of(seed)
    rng = np.random.default_rng([seed, 32])
    evaluate(forest, conditions, row, walk, box)
    other = new_walk(forest, len(walk.cells), len(walk.value))
    for _ in range(30):
        feature = int(rng.integers(len(walk.cells)))
        cell = int(rng.integers(box.low[feature], box.high[feature] + 1))
        lacks = move(forest, conditions, row, walk, box, feature, cell)
        other.cells[:] = walk.cells
        lacking = evaluate(forest, conditions, row, other, box)
        assert lacks == pytest.approx(lacking, rel=1e-9, abs=rounding(forest))
        np.testing.assert_array_equal(walk.testing, other.testing)
        np.testing.assert_array_equal(walk.leaf, other.leaf)
        for tree, length in enumerate(other.length):
            np.testing.assert_array_equal(walk.path[tree, :length], other.path[tree, :length])


@pytest.mark.parametrize("seed", range(20))
def test_a_rise_stays_in_its_box_and_lacks_no_more_than_before(seed):
    forest, conditions, row, box, walk = walk_of(seed)
    home = walk.cells.copy()
    before = evaluate(forest, conditions, row, walk, box)
    rates, sides = np.ones(len(row)), np.full(len(row), np.inf)
    region = Region(row, home, rates, rates, -sides, sides, True, np.inf, False)
    after = rise(forest, conditions, region, box, walk, 3)
    assert after >= before
    assert np.all((walk.cells >= box.low) & (walk.cells <= box.high))
    lacking = evaluate(forest, conditions, row, walk, box)
    assert after == pytest.approx(lacking, rel=1e-9, abs=rounding(forest))
