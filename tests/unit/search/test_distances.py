"""The finite list of distances against the oracle's exact levels."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.kernels import called
from tests.oracle import brute_force
from tests.strategies import random_case
from treeproof.engines.row_questions import question_of
from treeproof.engines.spaces import rank_space
from treeproof.kernels.core.balls import row_distances
from treeproof.kernels.paper.questions import radii_of_row, set_cells
from treeproof.search.distances import distances_of

set_cells, radii_of_row = called(set_cells), called(radii_of_row)


def oracle_levels(query, row):
    found = set()
    for feature in range(query.rows.shape[1]):
        for distance, beyond in brute_force.cell_levels(query, row, feature).values():
            if (distance, beyond) != brute_force.START:
                value = brute_force._double_not_above(distance)
                found.add((value, not beyond and Fraction(value) == distance))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_the_list_holds_every_level_and_nothing_else(seed):
    query = random_case(np.random.default_rng(seed), ask="radius").query
    for row in range(len(query)):
        distances = distances_of(query, row)
        listed = list(zip(distances.value.tolist(), distances.attained.tolist(), strict=True))
        assert len(set(listed)) == len(listed)
        assert set(listed) == oracle_levels(query, row)
        assert listed == sorted(listed, key=lambda level: (level[0], not level[1]))


@pytest.mark.parametrize("seed", range(60))
def test_sorted_radii_reach_what_the_list_says(seed):
    query = random_case(np.random.default_rng(seed), ask="radius").query
    rows, space = question_of(query).rows, rank_space(query.ensemble)
    value, beyond = np.empty(len(space.cut)), np.empty(len(space.cut), dtype=bool)
    for row in range(len(query)):
        sides = rows.low[row], rows.high[row]
        n = row_distances(space, rows.values[row], (rows.down, rows.up), sides, value, beyond)
        found = set(zip(value[:n].tolist(), (~beyond[:n]).tolist(), strict=True))
        expected = sorted({v if a else math.nextafter(v, math.inf) for v, a in found})
        assert radii_of_row(space, rows, row).radius.tolist() == expected


@pytest.mark.parametrize("seed", range(40))
def test_compiled_cells_are_those_of_the_exact_ball(seed):
    query = random_case(np.random.default_rng(seed), ask="ball").query
    rows, space = question_of(query).rows, rank_space(query.ensemble)
    n_features = query.rows.shape[1]
    low, high = np.empty(n_features, dtype=np.int32), np.empty(n_features, dtype=np.int32)
    for row in range(len(query)):
        set_cells(space, rows, row, query.reach.radius, low, high)
        for feature in rows.used:
            cells = sorted(brute_force._cells_of_box(query, row, int(feature)))
            assert [low[feature], high[feature]] == [cells[0], cells[-1]]
