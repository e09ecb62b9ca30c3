from bisect import bisect_right
from typing import Any

import numpy as np

from tests.strategies import SMALL
from tests.unit.checker.certificates import DEEP, MANY_TREES, checker_of, random_run
from tests.unit.checker.dense import DenseSums, cells_of
from tests.unit.checker.test_forest import forests, whole
from treeproof.checker.claims import Way, cell_box, read_claim, ways_of
from treeproof.checker.forest import EXTRA_BITS, Forest
from treeproof.checker.proofs import Bound, Sums, span
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
            claim = read_claim(record["evidence"], checker.forest)
            # A wide ball around the row: more to bound than the small one that was proved.
            kind, radius = "closed", float(rng.choice([0.1, 0.3, 1.0]))
            box = cell_box(checker.forest, claim, kind, radius)
            one = query.take(slice(record["row"], record["row"] + 1))
            for way in ways_of(checker.forest, claim):
                yield rng, one, checker.forest, claim, way, box, (kind, radius)


def random_multipliers(rng: np.random.Generator, sums: Sums) -> list[list[list[int]]]:
    unit = 1 << EXTRA_BITS - 2
    return [
        factor.implied
        or [[0, *(unit * int(n) for n in rng.integers(-5, 6, len(s) - 1))] for s in factor.starts]
        for factor in sums.factors
    ]


def flat(sums: Sums, multipliers: list[list[list[int]]]) -> list[int]:
    """Multipliers in the order of the format, without those that are not part of it."""
    return [
        value
        for factor, values in zip(sums.factors, multipliers, strict=True)
        if factor.implied is None
        for row in values
        for value in row[1:]
    ]


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
        sums = Sums(forest, claim, way, box)
        cells = cells_of(query, kind, radius)
        assert cells == listed(box)
        tables = DenseSums(query, way, cells, forest.unit)
        for _ in range(3):
            values = random_multipliers(rng, sums)
            assert tables.n_multipliers() == len(flat(sums, values))
            part = random_part(rng, box)
            expected = tables.bound(listed(part), flat(sums, values))
            assert Bound(sums, part, values).total == expected
            compared += len(flat(sums, values)) > 0
    assert compared > 30


def test_bounds_with_a_cell_held_are_those_of_dense_tables():
    compared = 0
    for rng, query, forest, claim, way, box, (kind, radius) in sums_of_claims(60):
        sums = Sums(forest, claim, way, box)
        tables = DenseSums(query, way, cells_of(query, kind, radius), forest.unit)
        values = random_multipliers(rng, sums)
        part = random_part(rng, box)
        bound = Bound(sums, part, values)
        for feature, (low, high) in part.items():
            first = int(rng.integers(low, high + 2))
            last = int(rng.integers(first - 1, high + 1))
            outside = [c for c in range(low, high + 1) if not first <= c <= last]
            expected = [
                tables.bound(listed(part) | {feature: [c]}, flat(sums, values)) for c in outside
            ]
            if not expected:
                continue
            found = bound.largest_outside(feature, first, last)
            # Cells that no tree tells apart may be looked at together, so a cell inside may count.
            assert found in [
                tables.bound(listed(part) | {feature: [c]}, flat(sums, values))
                for c in range(low, high + 1)
            ]
            assert found >= max(expected)
            compared += 1
            same_step = [
                c for c in range(first, last + 1)
                if any(_told_apart(sums, feature, c, o) is False for o in outside)
            ]  # fmt: skip
            if expected and not same_step:
                assert found == max(expected)
    assert compared > 60


def _told_apart(sums: Sums, feature: int, left: int, right: int) -> bool:
    """Whether some tree tells two cells of a feature apart."""
    starts: list[int] = []
    for factor in sums.factors:
        if feature in factor.features:
            starts += factor.starts[factor.features.index(feature)]
    low, high = sorted((left, right))
    return any(low < start <= high for start in starts)


def points_of(query: Query, cells: dict) -> np.ndarray:
    from tests.oracle import brute_force

    choices = [cells.get(f, [-1]) for f in range(query.rows.shape[1])]
    return brute_force._points(query, 0, choices)


def test_no_point_below_the_floor_breaks_the_claim():
    broken_points = 0
    for _, query, forest, claim, way, box, (kind, radius) in sums_of_claims(200):
        sums = Sums(forest, claim, way, box)
        cells = cells_of(query, kind, radius)
        points = points_of(query, cells)
        leaves = evaluate.leaf_rows(query.ensemble, points)
        rounded = evaluate.accumulate(query.ensemble, leaves)
        labels = None
        if way.winner >= 0:
            finished = evaluate.finish(query.ensemble, rounded)
            labels = evaluate.label_indices(query.ensemble, finished)
        output = query.ensemble.trees.tree_output.tolist()
        for number, reached in enumerate(leaves.tolist()):
            exact = sum(w * forest.start[o] for o, w in way.weights.items())
            for tree, leaf in enumerate(reached):
                for o, w in way.weights.items():
                    if output[tree] in (-1, o):
                        exact += w * forest.integers[leaf][o if output[tree] < 0 else 0]
            if labels is not None:
                happens = labels[number] == way.winner
            else:
                happens = way.weights[0] * float(rounded[number, 0]) >= way.weights[0] * way.cut
            if happens:
                assert exact >= sums.floor
                broken_points += 1
    assert broken_points > 300


def test_floors_are_not_lower_than_the_engine_needs():
    # What an engine closes must be closed for the checker, too.
    from treeproof.engines.batches import forest_of
    from treeproof.engines.evidence import _alternatives
    from treeproof.kernels.core.leaves import restrict_box, slack_of_sums

    compared = 0
    for _, query, forest, claim, way, box, _ in sums_of_claims(150):
        trees, space, semantics = forest_of(query)
        ways = _alternatives(query)
        group = int(query.group[0])
        numbers = range(int(ways.group_start[group]), int(ways.group_start[group + 1]))
        weights = [way.weights.get(o, 0) for o in range(query.ensemble.n_outputs)]
        number = next(n for n in numbers if ways.coefficient[n].tolist() == weights)
        low = np.full(query.rows.shape[1], -1, dtype=np.int32)
        high = low.copy()
        for feature, (first, last) in box.items():
            low[feature], high[feature] = first, last
        untested = [f for f in range(len(low)) if f not in forest.cuts and f not in forest.fixed]
        for feature in untested:
            if query.rows[0, feature] == query.rows[0, feature]:
                low[feature] = high[feature] = 0
        coefficient, unit = ways.coefficient[number], ways.unit[number]
        band, start = semantics.zero_band, semantics.start
        found = restrict_box(trees, space, query.rows[0], low, high, coefficient, band)
        slack = slack_of_sums(trees, coefficient, start, unit, found[0], found[2])
        if abs(ways.need[number]) > 1e300:  # no sum reaches it
            continue
        floor = ways.need[number] - slack * (1 + 1e-6) - ways.link_slack[number]
        mine = float(Sums(forest, claim, way, box).floor * forest.unit)
        assert mine >= floor - 2.0**-42 * (1.0 + abs(floor))
        compared += 1
    assert compared > 60


def test_one_cell_of_every_feature_gives_the_sum_itself():
    # With all features held to one cell the multipliers cancel; also where zero is missing.
    compared, with_bands = 0, 0
    for forest, ensemble, rows in forests(120):
        rng = np.random.default_rng(compared)
        row = rows[0].tolist()
        claim: Any = type("Row", (), {"row": row})()
        weights = {0: 1} if ensemble.n_outputs == 1 else {0: -1, 1: 1}
        box = whole(forest, row)
        sums = Sums(forest, claim, Way("sum", weights, 0.0), box)
        moved = rows.copy()
        for feature in range(len(row)):
            if feature in box:
                missing = np.isnan(moved[:, feature])
                moved[missing, feature] = row[feature]
            else:
                moved[:, feature] = row[feature]
        leaves = evaluate.leaf_rows(ensemble, moved).tolist()
        for point, reached in zip(moved.tolist(), leaves, strict=True):
            cells = {f: (bisect_right(forest.cuts[f], point[f]),) * 2 for f in box}
            exact = sum(w * forest.start[o] for o, w in weights.items())
            for tree, leaf in enumerate(reached):
                own = forest.output[tree]
                for o, w in weights.items():
                    if own in (-1, o):
                        exact += w * forest.integers[leaf][o if own < 0 else 0]
            assert Bound(sums, cells, random_multipliers(rng, sums)).total == exact
            compared += 1
            with_bands += len(forest.zero) > 0
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
    claim: Any = type("Row", (), {"row": [0.0] * 3})()
    box = dict.fromkeys(range(3), (0, 1))
    sums = Sums(forest, claim, Way("class 1", {1: 1, 0: -1}, 0.0, 1, (0,)), box)
    bound = Bound(sums, box, [factor.implied or [] for factor in sums.factors])
    assert bound.total * forest.unit == 1
    assert [bound.largest_outside(2, *kept) for kept in ((0, 0), (1, 1), (1, 0))] == [
        bound.total
    ] * 3


def test_segments_that_a_range_meets():
    assert span([2, 4, 7], (4, 6)) == (1, 1)
    assert span([2, 4, 7], (3, 7)) == (0, 2)
    assert span([2, 4, 7], (9, 9)) == (2, 2)
