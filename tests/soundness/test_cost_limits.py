"""What lies beyond a limit: first witnesses, and branches for which one leaf stands."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingClassifier

import treeproof as tp
from tests.kernels import called
from tests.oracle.priced_answers import EXACT
from treeproof.engines.base import Budget
from treeproof.engines.batches import forest_of
from treeproof.engines.priced import priced_batch
from treeproof.kernels.core.leaves import restrict_to
from treeproof.kernels.exact.objective import Measure
from treeproof.kernels.exact.priced_leaves import (
    PriceList,
    keep_affordable,
    leaf_costs,
)
from treeproof.query.build import build_query

SCALE = np.array([1, 2, 4, 1, 2, 4, 1, 2, 4, 1, 2, 4]) / 4
"""Units of features: prices are whole numbers, and many points cost the same."""


def _rows_and_model(depth: int) -> tuple[NDArray[np.float64], tp.Model]:
    """Rows of twelve numbers that are 0 or 1, and a boosted model of them."""
    rng = np.random.default_rng(6)
    X = rng.integers(0, 2, (3000, 12)).astype(float)
    score = X[:, :6].sum(axis=1) - X[:, 6:].sum(axis=1) + X[:, 0] * X[:, 7] - X[:, 1] * X[:, 8]
    y = (score + rng.normal(0, 1, len(X)) > 0).astype(int)
    trees = GradientBoostingClassifier(n_estimators=40, max_depth=depth, random_state=0)
    return X[:200], tp.load(trees.fit(X, y))


def _perturbation(norm: Any) -> Any:
    domain = tp.Domain(values={feature: [0, 1] for feature in range(12)})
    return norm(domain=domain) if norm is tp.L0 else norm(domain=domain, scale=SCALE)


@pytest.mark.parametrize("norm", [tp.L1, tp.L2, tp.L0])
def test_first_witnesses_beyond_their_limit_leave_the_answer_as_it_is(norm: Any) -> None:
    """One node is one limit: what it finds may cost more, and what is proved must stay true."""
    rows, model = _rows_and_model(3)
    points = np.array(list(itertools.product((0.0, 1.0), repeat=12)))
    labels = model.predict(points)
    query = build_query(model.ensemble, rows, None, _perturbation(norm))
    # Without a guess the first limit is the cost from which best leaves break the claim.
    query = replace(query, first_guess=(0.0, 1.0))
    first, whole = EXACT.radius(query, Budget(node_limit=1)), EXACT.radius(query, Budget())
    assert whole.exact.all()
    limit = np.ceil(first.statistics["eq6_radius"])  # all prices are whole numbers
    price = {tp.L0: SCALE**0, tp.L1: 1 / SCALE, tp.L2: 1 / SCALE**2}[norm]
    root = 0.5 if norm is tp.L2 else 1.0
    n_beyond = n_at_the_limit = 0
    for row, label in enumerate(model.predict(rows)):
        totals = (points[labels != label] != rows[row]) @ price
        least = totals.min() ** root
        assert whole.upper[row] == pytest.approx(least, rel=1e-15)
        assert first.lower[row] <= least <= first.upper[row] * (1 + 1e-15)
        is_beyond = np.isfinite(first.upper[row]) and first.upper[row] > limit[row] ** root
        n_beyond += is_beyond
        n_at_the_limit += is_beyond and totals.min() == limit[row]

    assert n_beyond > 5
    assert n_at_the_limit > 0


@pytest.mark.parametrize("norm", [tp.L1, tp.L2, tp.L0])
def test_leaves_that_stand_for_dear_branches_hold_no_point_within_the_limit(norm: Any) -> None:
    keep, restrict, priced = map(called, (keep_affordable, restrict_to, leaf_costs))
    rows, model = _rows_and_model(6)
    query = build_query(model.ensemble, rows[:20], None, _perturbation(norm))
    assert query.pricing is not None
    none = np.zeros(len(query), dtype=bool)
    batch = priced_batch(query, query.pricing, none, slice(0, len(query)), asks_radius=True)
    forest = forest_of(query)
    ones, no = np.ones(len(forest.semantics.start)), np.zeros(1, dtype=bool)
    n_collapsed = n_ties = 0
    for row, limit in itertools.product(range(len(query)), (1.0, 2.0, 4.0)):
        measure = Measure(False, False, np.inf, True, batch.grid[row], no)
        prices = PriceList(
            batch.rows[row], batch.cost[row], batch.is_open[row], batch.is_exact[row],
            batch.value[row], measure, batch.other[row], batch.other_limit,
        )  # fmt: skip
        kept = keep(batch.atoms, prices, limit)
        short = restrict(forest, prices.row, kept, ones, limit)
        plain = restrict(forest, prices.row, kept, ones, np.inf)
        n_collapsed += len(short.leaf_gain) < len(plain.leaf_gain)
        costs = priced(short, kept, False)
        for point in itertools.product(*map(range, np.diff(kept.start).tolist())):
            cost = kept.cost[kept.start[:-1] + np.array(point)].sum()
            if cost <= limit:
                n_ties += cost == limit
                reached = _leaves_of(short, np.array(point))
                expected = plain.leaf_row[_leaves_of(plain, np.array(point))]
                assert short.leaf_row[reached].tolist() == expected.tolist()
                assert (costs[reached] <= limit).all()

    assert n_collapsed > 20
    assert n_ties > 20


def _leaves_of(leaves: Any, point: NDArray[np.int64]) -> NDArray[np.int64]:
    """The leaf of every tree that a point is in; there is just one."""
    mine = point[leaves.feature]
    is_out = np.append((mine < leaves.low) | (mine > leaves.high), False)
    n_out = np.add.reduceat(is_out, leaves.range_start[:-1]) * (np.diff(leaves.range_start) > 0)
    reached = np.flatnonzero(n_out == 0)
    tree = np.searchsorted(leaves.leaf_start, reached, side="right") - 1
    assert tree.tolist() == list(range(len(leaves.leaf_start) - 1))
    return reached
