"""Axes and prices against the plain words of costs and domains."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp
from tests.oracle import domains
from tests.oracle.brute_force import judge
from tests.random_domains import random_case
from treeproof.query.build import build_query


@pytest.mark.parametrize("seed", range(150))
def test_cheapest_atoms_are_the_cheapest_values(seed: int) -> None:
    rng = np.random.default_rng([22, seed])
    case = random_case(rng)
    arithmetic = "real" if rng.random() < 0.3 else "float64"
    query = build_query(case.ensemble, case.rows, None, case.perturbation, arithmetic=arithmetic)
    pricing = query.pricing
    assert pricing is not None
    for row in range(len(query)):
        words = domains.Words(case.perturbation, query.ensemble)
        if domains.n_points(domains.options_of_row(words, query.rows, row)) > 10**7:
            continue
        truth = domains.cheapest(query, case.perturbation, row)
        prices = pricing.prices([row])
        axes = pricing.axes
        atoms = [
            np.flatnonzero(np.isfinite(prices.cost[0, axes.atoms_of(axis)]))
            for axis in range(axes.n_axes)
        ]
        if np.prod([float(len(choices)) for choices in atoms]) > 20_000:
            continue
        tuples = np.array(list(itertools.product(*atoms)), dtype=np.int64).reshape(-1, axes.n_axes)
        points = np.array([prices.point(0, each) for each in tuples]).reshape(len(tuples), -1)
        broken = judge(query, row, points) if len(points) else np.zeros(0, dtype=bool)
        best = None
        for each, point in zip(tuples[broken], points[broken], strict=True):
            assert pricing.broken_rule(row, point) is None
            places = axes.atom_start[:-1] + each
            levels = [
                (Fraction(cost), is_open)
                for cost, is_open in zip(
                    prices.cost[0, places], prices.is_open[0, places], strict=True
                )
            ]
            if pricing.total == "max":
                found = max(levels)
            else:
                found = sum(cost for cost, _ in levels), any(is_open for _, is_open in levels)
            best = found if best is None or found < best else best
            exact = pricing.exact_cost(row, point)
            assert exact is not None
            assert exact >= found[0]
            said = domains.breaks_domain(case.perturbation, query.ensemble, query.rows, row, point)
            assert said is None, said
        assert (best is None) == (truth.cost is None)
        if best is not None and truth.cost is not None:
            assert best[0] <= truth.cost
            assert float(best[0]) == pytest.approx(float(truth.cost), rel=1e-12, abs=1e-300)
            if prices.is_exact.all():
                assert best == (truth.cost, truth.is_open)


@pytest.mark.parametrize("cost", [tp.L0(), tp.Cost(fixed=1.0, up=0.5, down=0.5)])
def test_a_move_to_below_the_rows_own_value_costs_its_charge(cost: tp.L0 | tp.Cost) -> None:
    """The row lies on the threshold: the move is as short as one likes, but still a change."""
    model = DecisionTreeClassifier(max_depth=1).fit([[0.0], [1.0]], [0, 1])
    threshold = np.nextafter(np.float32(model.tree_.threshold[0]), np.float32(np.inf))
    results = tp.radius(model, [[float(threshold)]], [1], cost, arithmetic="real")
    assert results.exact.tolist() == [True]
    assert results.upper.tolist() == [1.0]


@pytest.mark.parametrize("eps", [0.1, 5e-324])
def test_a_row_on_a_threshold_breaks_where_all_that_may_move_is_free(eps: float) -> None:
    """The dearest move costs 0, but is only approached: no budget above 0 is too small for it."""
    model = DecisionTreeClassifier(max_depth=1).fit([[0.0], [1.0]], [0, 1])
    threshold = np.nextafter(np.float32(model.tree_.threshold[0]), np.float32(np.inf))
    ball = tp.LInf(eps, domain=tp.Domain())
    results = tp.verify(model, [[float(threshold)]], [1], ball, arithmetic="real")
    assert results.verdict.tolist() == ["falsified"]
