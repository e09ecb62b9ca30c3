"""The distance of a point from its row, against fractions, and points in cells."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from xgboost import XGBClassifier

import treeproof as tp
from tests.strategies import random_case
from tests.unit.checker.test_nodes import model as model_of
from tests.unit.checker.test_nodes import stump
from treeproof.checker import RunChecker
from treeproof.engines.instance import distances, point_in_cells
from treeproof.model.ensemble import Decision
from treeproof.prediction import Model
from treeproof.query.build import build_query
from treeproof.query.rounding import round_down
from treeproof.results.run_file import row_records


def distance_over_all_features(query, row, point):
    farthest = 0.0
    for feature in np.flatnonzero((point != query.rows[row]) & ~np.isnan(query.rows[row])):
        gap = Fraction(float(point[feature])) - Fraction(float(query.rows[row, feature]))
        rate = float((query.reach.up if gap > 0 else query.reach.down)[feature])
        if rate == 0.0:
            return np.inf
        if np.isfinite(rate):
            farthest = max(farthest, -round_down(-abs(gap) / Fraction(rate)))
    return farthest


@pytest.mark.parametrize("seed", range(60))
def test_distances_are_those_of_the_farthest_feature(seed):
    rng = np.random.default_rng([seed, 11])
    query = random_case(rng, ask="radius").query
    for row in range(len(query)):
        values = query.rows[row]
        # Steps that are equal, equal but for rounding, tiny, or not taken at all.
        steps = rng.choice([0.0, 0.1, -0.1, 0.1 + 1e-17, 1 / 3, 5e-324, 1e-300, 7.0], len(values))
        point = values + steps * np.where(rng.random(len(values)) < 0.5, 1.0, query.reach.up)
        point = np.where(np.isfinite(point), point, values)
        (found,) = distances(query, np.array([row]), point[np.newaxis])
        assert found == distance_over_all_features(query, row, point)


def test_a_point_below_a_threshold_beyond_float32_is_the_largest_float32():
    # A model of float32 rows whose split only infinite values pass: its threshold is no float32.
    model = XGBClassifier(n_estimators=1, max_depth=1).fit([[0.0], [1.0]] * 20, [0, 1] * 20)
    ensemble = tp.load(model).ensemble
    largest = float(np.finfo(np.float32).max)
    beyond = np.where(ensemble.trees.feature >= 0, 2.0**128, 0.0)
    ensemble = replace(ensemble, trees=ensemble.trees._replace(threshold=beyond))
    query = build_query(
        ensemble, np.array([[0.0]]), None, tp.Box([-1.0], [np.inf]), arithmetic="real"
    )
    point_above = replace(query, rows=np.array([[np.inf]]))
    cells = np.zeros(1, dtype=np.int32)
    assert point_in_cells(point_above, 0, cells, cells).tolist() == [largest]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("engine", ["exact", "milp"])
def test_infinity_stands_for_the_numbers_below_the_smallest_double(engine):
    """Some real number is near enough to break the claim, and no double: its distance tells."""
    largest = float(np.finfo(np.float64).max)
    tree = stump(0, -1.0, 1.0) | {"threshold": [-largest, 0.0, 0.0]}
    decision = Decision(kind="threshold", cut=0.0)
    ensemble = replace(model_of(tree), decision=decision, classes=(0, 1))
    rows = np.zeros((1, 4))
    rows[0, 0] = -(2.0**1023)
    # Of doubles, none but minus infinity is below the threshold, and no ball holds that.
    found = tp.radius(Model(ensemble), rows, None, tp.LInf(), engine=engine)
    assert (found.lower[0], found.upper[0], found.exact[0]) == (np.inf, np.inf, True)
    found = tp.radius(
        Model(ensemble), rows, None, tp.LInf(), engine=engine, arithmetic="real",
        evidence=engine == "exact",
    )  # fmt: skip
    assert (found.lower[0], found.upper[0]) == (largest - 2.0**1023,) * 2
    assert not found.attained[0]
    assert found.witness[0, 0] == -np.inf
    assert found.witness_distance[0] == np.inf
    if engine == "exact":
        (check,) = RunChecker(found.header, ensemble).check_all(list(row_records(found)))
        assert check.status == "accepted"
