import math
from bisect import bisect_right
from fractions import Fraction

import numpy as np
import pytest

from tests.random_ensembles import random_ensemble, random_rows
from tests.unit.checker.provers import boxes_of, cuts_of, pieces_of
from treeproof.checker.forest import Boxes, Forest
from treeproof.checker.regions import Regions
from treeproof.model import evaluate
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    CATEGORICAL,
    NONNEGATIVE_CATEGORY,
    WHOLE_CATEGORY,
    ZERO_BAND,
    Aggregation,
    Decision,
    Ensemble,
    Provenance,
)


def forests(n: int):
    for seed in range(n):
        rng = np.random.default_rng([5, seed])
        ensemble = random_ensemble(rng)
        rows = evaluate.cast_rows(ensemble, random_rows(rng, ensemble, 5))
        yield Forest(ensemble), ensemble, rows


def whole(forest: Forest, row: list[float]):
    """Every cell of every feature that may move."""
    return {
        feature: (0, len(cuts))
        for feature, cuts in cuts_of(forest).items()
        if not forest.fixed[feature] and row[feature] == row[feature]
    }


def leaves_holding(pieces: list, cells: dict) -> list[int]:
    """Leaves with a piece that holds a cell of every feature."""
    return [
        leaf
        for leaf, ranges in pieces
        if all(low <= cells[f] <= high for f, (low, high) in ranges.items())
    ]


def test_a_row_reaches_the_leaves_that_the_plain_model_gives():
    for forest, ensemble, rows in forests(150):
        expected = evaluate.leaf_rows(ensemble, rows)
        for row, leaves in zip(rows.tolist(), expected.tolist(), strict=True):
            assert pieces_of(forest, row, {}) == [[(leaf, {})] for leaf in leaves]


def test_pieces_of_a_tree_divide_the_box():
    for forest, ensemble, rows in forests(150):
        cuts = cuts_of(forest)
        expected = evaluate.leaf_rows(ensemble, rows)
        for row, leaves in zip(rows.tolist(), expected.tolist(), strict=True):
            cells = {f: bisect_right(cuts[f], row[f]) for f in cuts}
            found = pieces_of(forest, row, whole(forest, row))
            assert [leaves_holding(pieces, cells) for pieces in found] == [[n] for n in leaves]


def test_pieces_stay_inside_a_smaller_box():
    for forest, _, rows in forests(60):
        row = rows[0].tolist()
        box = {f: (b // 3, b - b // 4) for f, (_, b) in whole(forest, row).items()}
        for pieces in pieces_of(forest, row, box):
            for _, ranges in pieces:
                for feature, (low, high) in ranges.items():
                    assert box[feature][0] <= low <= high <= box[feature][1]
                    assert (low, high) != box[feature]


def test_rows_are_looked_at_together_as_they_are_alone():
    for forest, ensemble, rows in forests(60):
        boxes = [boxes_of(forest, whole(forest, row)) for row in rows.tolist()]
        joined = Boxes(*(np.concatenate(sides) for sides in zip(*boxes, strict=True)))
        found = Regions(joined, forest.pieces(rows, joined), forest.output)
        n_trees = ensemble.n_trees
        for row, box in enumerate(boxes):
            alone = Regions(box, forest.pieces(rows[row : row + 1], box), forest.output)
            first, last = found.tree_pieces[[row * n_trees, (row + 1) * n_trees]]
            assert sorted(found.leaf[first:last]) == sorted(alone.leaf)
            own = slice(*found.row_listed[row : row + 2])
            for together, by_itself in zip(found.listed, alone.listed, strict=True):
                assert together[own].tolist() == by_itself.tolist()


EDGES = [
    value
    for end in (-ZERO_BAND, 0.0, ZERO_BAND, 1e-36, -1e-36, 0.5, -0.5)
    for value in (np.nextafter(end, -1.0), end, np.nextafter(end, 1.0))
]


def scores_of(builder: TreeBuilder, n_features: int) -> Ensemble:
    return Ensemble(
        trees=builder.finish(),
        n_features=n_features,
        n_outputs=1,
        input_precision="float64",
        aggregation=Aggregation(precision="float64", start=(0.0,)),
        decision=Decision(kind="score"),
        provenance=Provenance(library="test"),
    )


def test_the_zero_band_is_divided_at_its_edges():
    every = [[a, b] for a in EDGES for b in EDGES[::4]]
    for seed in range(40):
        rng = np.random.default_rng([8, seed])
        rows = every[seed % 4 :: 4]  # of ten trees each
        builder = TreeBuilder(leaf_width=1)
        n = 7
        builder.add_tree(
            feature=[*rng.integers(0, 2, 3), -1, -1, -1, -1],
            threshold=[*rng.choice([*EDGES, -np.inf], 3), 0.0, 0.0, 0.0, 0.0],
            left=[1, 3, 5, *[-1] * 4],
            right=[2, 4, 6, *[-1] * 4],
            flags=[*rng.choice([0, 1, 2, 3, 2, 3], 3), 0, 0, 0, 0],
            value=np.arange(n, dtype=float).reshape(n, 1),
            output=0,
            category_set=[-1] * n,
        )
        ensemble = scores_of(builder, 2)
        forest = Forest(ensemble)
        for row, (leaf,) in zip(rows, evaluate.leaf_rows(ensemble, np.array(rows)), strict=True):
            assert pieces_of(forest, row, {}) == [[(leaf, {})]]
            cuts = cuts_of(forest)
            cells = {f: bisect_right(cuts[f], row[f]) for f in cuts}
            single = {f: (c, c) for f, c in cells.items()}
            part = {
                f: (int(rng.integers(0, c + 1)), int(rng.integers(c, len(cuts[f]) + 1)))
                for f, c in cells.items()
            }
            zero = {f: tuple(forest.zero[f].tolist()) for f in cuts if forest.zero[f].any()}
            for box in (whole(forest, row), single, part, zero):
                if any(not low <= cells[f] <= high for f, (low, high) in box.items()):
                    continue
                (found,) = pieces_of(forest, row, box)
                assert leaves_holding(found, cells) == [leaf]
                assert all(
                    box[f][0] <= low <= high <= box[f][1] and (low, high) != box[f]
                    for _, ranges in found
                    for f, (low, high) in ranges.items()
                )


@pytest.mark.parametrize("rule", [0, WHOLE_CATEGORY, NONNEGATIVE_CATEGORY])
def test_categories_at_the_edges_of_their_sets(rule):
    values = [-33.0, -32.0, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 30.5, 31.0, 31.5, 32.0, 63.0, 64.0,
              95.0, np.inf, -np.inf, np.nan, *np.nextafter(-1.0, [-2.0, 0.0])]  # fmt: skip
    for members in ([], [0], [31], [32], [0, 63], [0, 31, 32, 63], list(range(64))):
        builder = TreeBuilder(leaf_width=1)
        builder.add_tree(
            feature=[0, -1, -1], threshold=[0.0, 0.0, 0.0], left=[1, -1, -1], right=[2, -1, -1],
            flags=[CATEGORICAL | rule, 0, 0], value=np.array([[0.0], [1.0], [2.0]]), output=0,
            category_set=[builder.add_category_set(members), -1, -1],
        )  # fmt: skip
        ensemble = scores_of(builder, 1)
        expected = evaluate.leaf_rows(ensemble, np.array([values]).T)[:, 0].tolist()
        forest = Forest(ensemble)
        found = [pieces_of(forest, [value], {}) for value in values]
        assert found == [[[(leaf, {})]] for leaf in expected]


def test_categories_are_fixed():
    seen = unused = 0
    for forest, ensemble, _ in forests(60):
        trees = ensemble.trees
        inner = trees.feature >= 0
        expected = set(trees.feature[inner & ((trees.flags & CATEGORICAL) > 0)].tolist())
        # A category that no tree asks for stays as well; a number that is called one moves.
        also = {*ensemble.categories, *ensemble.categorical} - cuts_of(forest).keys()
        assert set(np.flatnonzero(forest.fixed).tolist()) == expected | also
        seen += len(expected)
        unused += len(also - expected)
    assert seen > 10
    assert unused > 2


def test_values_are_rounded_to_units_up_and_down():
    for forest, ensemble, _ in forests(60):
        precision = ensemble.aggregation.precision
        values = ensemble.trees.leaf_value.astype(precision).astype(np.float64)
        start = np.array(ensemble.aggregation.start, dtype=precision).astype(np.float64)
        assert forest.unit == Fraction(2) ** forest.exponent
        told = [*zip(forest.down.ravel(), forest.up.ravel(), values.ravel().tolist(), strict=True)]
        told += [(*forest.start_of(output), value) for output, value in enumerate(start.tolist())]
        for down, up, value in told:
            units = Fraction(value) / forest.unit
            assert (down, up) == (math.floor(units), math.ceil(units))
        numbers = [Fraction(v) / forest.step for v in (*values.ravel().tolist(), *start.tolist())]
        assert all(n.denominator == 1 for n in numbers)
        # The grid is as coarse as it can be: some number is no multiple of twice the grid.
        assert any(n % 2 for n in numbers) or not any(numbers)
        assert forest.grid == max(1, forest.step / forest.unit)
        assert forest.bits == (24 if precision == "float32" else 53)
        assert forest.exact_up_to == min(forest.step / forest.unit * 2**forest.bits, 2**62)


def passed(forest: Forest, feature: int, x: float, *args: float, is_open: bool = False) -> int:
    return int(forest.passed(np.array([feature]), np.array([[x]]), *args, is_open)[0, 0])


@pytest.mark.parametrize("rate", [1.0, -1.0, 0.1, -0.3, 0.0])
@pytest.mark.parametrize("radius", [0.0, 0.1, 0.30000000000000004, 1.0, 1e300, np.inf])
@pytest.mark.parametrize("is_open", [False, True])
def test_thresholds_are_counted_exactly(rate, radius, is_open):
    for forest, _, _ in forests(8):
        for feature, cuts in cuts_of(forest).items():
            for x in [0.0, 0.1, -0.2, 0.5, *cuts, *(c - 0.1 for c in cuts), np.inf, -np.inf]:
                found = passed(forest, feature, x, radius, rate, is_open=is_open)
                if rate == 0.0 or radius == 0.0 or np.isinf(x):
                    assert found == sum(c <= x for c in cuts)
                elif np.isinf(radius):
                    assert found == (len(cuts) if rate > 0 else sum(c == -np.inf for c in cuts))
                else:
                    end = Fraction(x) + Fraction(radius) * Fraction(rate)
                    assert found == sum(c < end if is_open else c <= end for c in cuts)


@pytest.mark.parametrize("radius", [0.1, 0.3, 0.7, 1.1])
@pytest.mark.parametrize("rate", [0.3, -0.3, 0.9])
def test_ends_that_cancel_are_exact(radius, rate):
    # The product is rounded, and the sum that is left is nothing but that rounding.
    x = -(radius * rate)
    end = Fraction(x) + Fraction(radius) * Fraction(rate)
    assert end != 0
    builder = TreeBuilder(leaf_width=1)
    builder.add_tree(
        feature=[0, -1, -1], threshold=[float(end / 2), 0.0, 0.0], left=[1, -1, -1],
        right=[2, -1, -1], flags=[0, 0, 0], value=np.array([[0.0], [1.0], [2.0]]), output=0,
        category_set=[-1, -1, -1],
    )  # fmt: skip
    forest = Forest(scores_of(builder, 1))
    assert passed(forest, 0, x, radius, rate) == (end > 0)
    assert passed(forest, 0, x, radius, rate, is_open=True) == (end > 0)


@pytest.mark.parametrize("threshold", [1.65e308, 1.75e308])
def test_a_product_may_overflow_where_the_end_does_not(threshold):
    builder = TreeBuilder(leaf_width=1)
    builder.add_tree(
        feature=[0, -1, -1], threshold=[threshold, 0.0, 0.0], left=[1, -1, -1],
        right=[2, -1, -1], flags=[0, 0, 0], value=np.array([[0.0], [1.0], [2.0]]), output=0,
        category_set=[-1, -1, -1],
    )  # fmt: skip
    forest = Forest(scores_of(builder, 1))
    assert passed(forest, 0, -1.7e308, 1.7e308, 2.0) == (threshold < 1.7e308)
