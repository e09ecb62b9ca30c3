"""The suggested first radius: where the best leaves of all trees first reach what is missing."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier

import treeproof
from tests.kernels import called
from tests.strategies import Sizes, random_case
from treeproof.engines.batches import semantics_of
from treeproof.engines.spaces import rank_space
from treeproof.kernels.core import leaves
from treeproof.kernels.core.cells import CellBox, Region, cells_of_box
from treeproof.kernels.core.emulation import Forest
from treeproof.kernels.exact.balls import ball_cells
from treeproof.kernels.exact.initial_radius import LEAST, PRECISION, eq6_radius
from treeproof.query.constraints import LABEL_CHANGES

ball_cells, sum_of_best = called(ball_cells), called(leaves.best_sum)
eq6_radius = called(eq6_radius)

SIZES = Sizes(trees=7, depth=3, features=3, outputs=3, rows=1)
GUESS = 0.1


def question(ensemble, row):
    """Functions of a row: its suggested radius, and the best sum within a radius."""
    trees = ensemble.trees
    space = rank_space(ensemble)
    forest = Forest(trees, space, semantics_of(ensemble, LABEL_CHANGES))
    rates = np.ones(len(row))
    home, low, high = np.empty((3, len(row)), dtype=np.int32)
    cells_of_box(space, row, row, row, home, home)
    ends = np.full(len(row), -np.inf), np.full(len(row), np.inf)
    region = Region(row, home, rates, rates, *ends, True, np.inf, False)

    def suggested(missing, limit):
        return eq6_radius(forest, region, np.ones(1), missing, GUESS, limit)

    def best_sum(radius):
        ball_cells(space, region, radius, CellBox(low, high))
        reached = leaves.restrict_box(forest, row, low, high, np.ones(1))
        return sum_of_best(reached)[0]

    return suggested, best_sum


@pytest.fixture(scope="module")
def trained():
    X, y = make_classification(200, 6, random_state=0)
    estimator = GradientBoostingClassifier(n_estimators=20, random_state=0).fit(X, y)
    return treeproof.load(estimator).ensemble, X.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("missing", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("number", range(10))
def test_best_leaves_reach_the_gain_at_the_radius_and_not_much_before(trained, number, missing):
    ensemble, X = trained
    suggested, best_sum = question(ensemble, X[number].copy())
    missing += best_sum(0.0)
    radius = suggested(missing, np.inf)
    if best_sum(1e300) < missing:
        assert best_sum(radius) == best_sum(1e300)  # nothing more is ever reached
        return
    assert best_sum(radius) >= missing - 1e-9
    least = radius * (1.0 - 2.0 * PRECISION)
    assert least <= LEAST * GUESS or best_sum(least) < missing + 1e-9


@pytest.mark.parametrize("seed", range(40))
def test_it_is_never_far_beyond_the_radius_where_leaves_are_reached(seed):
    # Leaves that nothing reaches, which random trees have, may make it too small.
    rng = np.random.default_rng([seed, 5])
    query = random_case(rng, SIZES, ask="radius", kind="threshold", plain=True).query
    suggested, best_sum = question(query.ensemble, query.rows[0].copy())
    missing = best_sum(0.0) + float(rng.choice([0.3, 0.7, 1.0]))
    radius = suggested(missing, np.inf)
    least = radius * (1.0 - 2.0 * PRECISION)
    assert radius > 0.0
    assert least <= LEAST * GUESS or best_sum(least) < missing + 1e-9


@pytest.mark.parametrize("number", range(10))
def test_radii_beyond_the_limit_do_not_matter(trained, number):
    ensemble, X = trained
    suggested, best_sum = question(ensemble, X[number].copy())
    missing = best_sum(0.0) + 0.5
    radius = suggested(missing, np.inf)
    assert suggested(missing, 0.5 * radius) == np.inf or radius < 1.1 * LEAST * GUESS
