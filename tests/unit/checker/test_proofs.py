import math
from bisect import bisect_right
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.strategies import SMALL
from tests.unit.checker.certificates import (
    DEEP,
    MANY_TREES,
    checker_of,
    claim_of,
    random_run,
)
from tests.unit.checker.dense import DenseSums, cells_of
from tests.unit.checker.provers import (
    bounds_of,
    cell_box,
    cuts_of,
    floor_in_box,
    n_multipliers,
    prover_of,
)
from tests.unit.checker.test_forest import forests, whole
from treeproof.checker.arrays import ranges
from treeproof.checker.claims import Way, ways_of
from treeproof.checker.forest import Forest
from treeproof.checker.proofs import Bounds, Record
from treeproof.checker.regions import rounding_errors
from treeproof.model import evaluate
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    ZERO_IS_MISSING,
    Aggregation,
    Decision,
    Ensemble,
    Provenance,
)
from treeproof.query.query import Query


def sums_of_claims(n: int, sizes: tuple = (SMALL, MANY_TREES, DEEP)):
    """Sums over the boxes of real claims, with the question about the one row."""
    for number in range(n):
        rng = np.random.default_rng([6, number])
        query, header, records = random_run(rng, sizes[number % len(sizes)], "radius")
        checker = checker_of(query, header)
        for record in records:
            if not record["evidence"] or (query.ensemble.trees.flags & ZERO_IS_MISSING).any():
                continue
            claim = claim_of(checker, record)
            # A wide ball around the row: more to bound than the small one that was proved.
            kind, radius = "closed", float(rng.choice([0.1, 0.3, 1.0]))
            box = cell_box(checker.forest, claim, kind, radius)
            one = query.take(slice(record["row"], record["row"] + 1))
            for way in ways_of(checker.forest, claim):
                yield rng, one, checker.forest, claim, way, box, (kind, radius)


def random_multipliers(
    rng: np.random.Generator, prover: Any, part: dict
) -> tuple[list[int], int, list[int]]:
    """Small numbers, one for each multiplier of a node, their exponent, and what they stand for."""
    steps = rng.integers(-5, 6, n_multipliers(prover, part)).tolist()
    shift = max(0, prover.forest.grid.bit_length() - 3)
    return steps, prover.forest.exponent + shift, [step << shift for step in steps]


def random_part(rng: np.random.Generator, box: dict) -> dict:
    part = {}
    for feature, (low, high) in box.items():
        first, last = sorted(rng.integers(low, high + 1, 2).tolist())
        part[feature] = (first, last) if rng.random() < 0.5 else (low, high)
    return part


def listed(box: dict) -> dict:
    return {feature: list(range(low, high + 1)) for feature, (low, high) in box.items()}


def test_bounds_are_those_of_dense_tables():
    compared = 0
    for rng, query, forest, claim, way, box, (kind, radius) in sums_of_claims(60):
        prover = prover_of(forest, claim.row, way, box)
        cells = cells_of(query, kind, radius)
        assert cells == listed(box)
        tables = DenseSums(query, way, cells, forest.unit)
        for _ in range(3):
            part = random_part(rng, box)
            steps, exponent, units = random_multipliers(rng, prover, part)
            assert tables.n_multipliers(listed(part)) == len(steps)
            expected = tables.bound(listed(part), units)
            assert bounds_of(prover, part, steps, exponent).total[0] == expected
            compared += len(steps) > 0
    assert compared > 30


def test_bounds_with_a_cell_held_are_those_of_dense_tables():
    compared = 0
    for rng, query, forest, claim, way, box, (kind, radius) in sums_of_claims(60):
        prover = prover_of(forest, claim.row, way, box)
        tables = DenseSums(query, way, cells_of(query, kind, radius), forest.unit)
        part = random_part(rng, box)
        steps, exponent, units = random_multipliers(rng, prover, part)
        every = {"trims": dict.fromkeys(part, (0, 0))}
        bound = bounds_of(prover, part, steps, exponent, **every)
        for feature, (low, high) in part.items():
            first = int(rng.integers(low, high + 2))
            last = int(rng.integers(first - 1, high + 1))
            outside = [c for c in range(low, high + 1) if not first <= c <= last]
            held = {
                c: tables.bound(listed(part) | {feature: [c]}, units, listed(part))
                for c in range(low, high + 1)
            }
            expected = [held[c] for c in outside]
            if not expected:
                continue
            found = bound.largest_outside(0, feature, first, last)
            # Cells that no tree tells apart may be looked at together, so a cell inside may count.
            assert found in held.values()
            assert found >= max(expected)
            compared += 1
            same_step = [
                c for c in range(first, last + 1)
                if any(_told_apart(bound, feature, c, o) is False for o in outside)
            ]  # fmt: skip
            if expected and not same_step:
                assert found == max(expected)
    assert compared > 60


def _told_apart(bounds: Any, feature: int, left: int, right: int) -> bool:
    """Whether some tree tells two cells of a feature apart."""
    own = bounds.pair_axis[bounds.segment_pair] == feature
    low, high = sorted((left, right))
    return any(low < start <= high for start in bounds.segment_start[own])


def test_nodes_are_looked_at_together_as_they_are_alone():
    compared = 0
    for rng, _, forest, claim, way, box, _ in sums_of_claims(60):
        prover = prover_of(forest, claim.row, way, box)
        nodes, totals, proof = [], [], b""
        for _ in range(4):
            part = random_part(rng, box)
            steps, exponent, _ = random_multipliers(rng, prover, part)
            alone = bounds_of(prover, part, steps, exponent)
            told = (exponent, 1, len(steps), len(proof))
            nodes.append(alone.nodes[0]._replace(multipliers=told))
            proof += bytes(np.array(steps, dtype=np.int8))
            totals.append(int(alone.total[0]))
        prover.records[0] = Record(proof, 0)
        assert Bounds(prover, nodes).total.tolist() == totals
        compared += len(proof) > 0
    assert compared > 10


def test_multipliers_that_words_do_not_hold_are_refused():
    compared = 0
    for _, _, forest, claim, way, box, _ in sums_of_claims(60):
        prover = prover_of(forest, claim.row, way, box)
        n = n_multipliers(prover, box)
        if not n:
            continue
        n_pairs = len(set(prover.regions.listed.axis.tolist()))
        for exponent, step, overflows in ((0, 1, False), (60, 1, True), (2000, 1, True),
                                          (2000, 0, False), (59, 1, n_pairs > 1)):  # fmt: skip
            found = bounds_of(prover, {}, [step] * n, forest.exponent + exponent)
            if exponent != 59 or n_pairs > 1:
                assert found.overflows[0] == overflows
            node = found.nodes[0]._replace(letter="L", trims=())
            (reason,) = prover.check([node])
            assert ("more than words" in reason) == bool(found.overflows[0])
        compared += 1
    assert compared > 10


def points_of(query: Query, cells: dict) -> np.ndarray:
    from tests.oracle import brute_force

    choices = [cells.get(f, [-1]) for f in range(query.rows.shape[1])]
    return brute_force._points(query, 0, choices)


def exact_sum(forest: Forest, weights: dict[int, int], leaves: list[int]) -> int:
    """The sum of a way, in units and rounded up, of one leaf for each tree."""
    total = sum(w * forest.start_of(o)[w > 0] for o, w in weights.items())
    for tree, leaf in enumerate(leaves):
        own = int(forest.trees.tree_output[tree])
        for o, w in weights.items():
            if own in (-1, o):
                value = Fraction(float(forest.value[leaf, o if own < 0 else 0])) / forest.unit
                total += w * (math.ceil(value) if w > 0 else math.floor(value))
    return total


def test_no_point_below_the_floor_breaks_the_claim():
    broken_points = 0
    for _, query, forest, claim, way, box, (kind, radius) in sums_of_claims(200):
        floor = floor_in_box(forest, claim.row, way, box)
        cells = cells_of(query, kind, radius)
        points = points_of(query, cells)
        leaves = evaluate.leaf_rows(query.ensemble, points)
        rounded = evaluate.accumulate(query.ensemble, leaves)
        labels = None
        if way.winner >= 0:
            finished = evaluate.finish(query.ensemble, rounded)
            labels = evaluate.label_indices(query.ensemble, finished)
        for number, reached in enumerate(leaves.tolist()):
            exact = exact_sum(forest, way.weights, reached)
            if labels is not None:
                happens = labels[number] == way.winner
            else:
                happens = way.weights[0] * float(rounded[number, 0]) >= way.weights[0] * way.cut
            if happens:
                assert exact >= floor
                broken_points += 1
    assert broken_points > 300


def test_floors_are_not_lower_than_the_engine_needs():
    # What an engine closes must be closed for the checker, too.
    from treeproof.engines.batches import forest_of
    from treeproof.engines.evidence import _alternatives
    from treeproof.kernels.core.leaves import restrict_box, slack_of_sums
    from treeproof.kernels.exact.proof import rounding_room

    compared = 0
    for _, query, forest, claim, way, box, _ in sums_of_claims(150):
        forest_of_kernels = forest_of(query)
        trees, _, semantics = forest_of_kernels
        ways = _alternatives(query)
        group = int(query.group[0])
        numbers = range(int(ways.group_start[group]), int(ways.group_start[group + 1]))
        weights = [way.weights.get(o, 0) for o in range(query.ensemble.n_outputs)]
        number = next(n for n in numbers if ways.coefficient[n].tolist() == weights)
        low = np.full(query.rows.shape[1], -1, dtype=np.int32)
        high = low.copy()
        for feature, (first, last) in box.items():
            low[feature], high[feature] = first, last
        tested = cuts_of(forest)
        untested = [f for f in range(len(low)) if f not in tested and not forest.fixed[f]]
        for feature in untested:
            if query.rows[0, feature] == query.rows[0, feature]:
                low[feature] = high[feature] = 0
        coefficient, unit = ways.coefficient[number], ways.unit[number]
        start = semantics.start
        found = restrict_box(forest_of_kernels, query.rows[0], low, high, coefficient)
        slack = slack_of_sums(trees, coefficient, start, unit, found[0], found[2])
        if abs(ways.need[number]) > 1e300:  # no sum reaches it
            continue
        floor = ways.need[number] - slack * (1 + 1e-6) - ways.link_slack[number]
        mine = float(floor_in_box(forest, claim.row, way, box) * forest.unit)
        room = 2.0**-42 * (1.0 + abs(floor))
        room += rounding_room(forest_of_kernels, coefficient, forest.exponent)
        assert mine >= floor - room
        compared += 1
    assert compared > 60


def test_one_cell_of_every_feature_gives_the_sum_itself():
    # With all features held to one cell the multipliers cancel; also where zero is missing.
    compared, with_bands = 0, 0
    for forest, ensemble, rows in forests(120):
        rng = np.random.default_rng(compared)
        row = rows[0].tolist()
        weights = {0: 1} if ensemble.n_outputs == 1 else {0: -1, 1: 1}
        box = whole(forest, row)
        prover = prover_of(forest, row, Way("sum", weights, 0.0), box)
        cuts = cuts_of(forest)
        moved = rows.copy()
        for feature in range(len(row)):
            if feature in box:
                missing = np.isnan(moved[:, feature])
                moved[missing, feature] = row[feature]
            else:
                moved[:, feature] = row[feature]
        leaves = evaluate.leaf_rows(ensemble, moved).tolist()
        for point, reached in zip(moved.tolist(), leaves, strict=True):
            cells = {f: (bisect_right(cuts[f], point[f]),) * 2 for f in box}
            exact = exact_sum(forest, weights, reached)
            steps, exponent, _ = random_multipliers(rng, prover, cells)
            assert bounds_of(prover, cells, steps, exponent).total[0] == exact
            compared += 1
            with_bands += bool(forest.zero.any())
    assert compared > 500
    assert with_bands > 100


def test_a_feature_that_no_tree_of_the_sum_tests_is_not_trimmed_for_nothing():
    builder = TreeBuilder(leaf_width=1)
    for output in range(3):
        builder.add_tree(
            feature=[output, -1, -1], threshold=[0.5, 0.0, 0.0], left=[1, -1, -1],
            right=[2, -1, -1], flags=[0, 0, 0], value=np.array([[0.0], [1.0], [2.0]]),
            output=output, category_set=[-1, -1, -1],
        )  # fmt: skip
    forest = Forest(
        Ensemble(
            trees=builder.finish(),
            n_features=3,
            n_outputs=3,
            input_precision="float64",
            aggregation=Aggregation(precision="float64", start=(0.0,) * 3),
            decision=Decision(kind="argmax"),
            classes=(0, 1, 2),
            provenance=Provenance(library="test"),
        )
    )
    box = dict.fromkeys(range(3), (0, 1))
    prover = prover_of(forest, [0.0] * 3, Way("class 1", {1: 1, 0: -1}, 0.0, 1, (0,)), box)
    bound = bounds_of(prover, {}, [], forest.exponent, trims=dict.fromkeys(box, (0, 0)))
    assert bound.total[0] * forest.unit == 1
    for kept in ((0, 0), (1, 1), (1, 0)):
        assert bound.largest_outside(0, 2, *kept) == bound.total[0]


def test_ranges_follow_each_other():
    assert ranges(np.array([3, 9, 5]), np.array([2, 0, 3])).tolist() == [3, 4, 5, 6, 7]
    assert ranges(np.array([], int), np.array([], int)).tolist() == []


@pytest.mark.parametrize("bits", [2, 5, 24])
def test_errors_follow_from_those_before(bits):
    rng = np.random.default_rng(bits)
    for _ in range(50):
        largest = rng.integers(0, 2 ** int(rng.integers(1, 40)), (3, int(rng.integers(0, 9))))
        limit = int(rng.integers(0, largest.max(initial=1) + 1))
        expected = []
        for row in largest.tolist():
            error = 0
            for total in row:
                if error or total > limit:
                    error += -(-(error + total) // 2**bits)
            expected.append(error)
        assert rounding_errors(largest, limit, bits).tolist() == expected
