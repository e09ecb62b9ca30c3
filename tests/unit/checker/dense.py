"""A second checker of proofs: tables over all cells of a box instead of leaves, in fractions.

Boxes come from the enumeration oracle, trees are tabled by the plain model, and a bound is the
largest entry of every table. Values are rounded up to the unit of proofs where they are added, and
down where they are taken off. For models without zero bands, whose pieces are told by leaves alone.
"""

import dataclasses
import itertools
import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np

from tests.oracle import brute_force
from tests.unit.checker.provers import floor_in_box
from treeproof.checker.claims import Claim, Way, ways_of
from treeproof.checker.forest import Forest
from treeproof.model import evaluate
from treeproof.model.sums import MOST_WEIGHT
from treeproof.query.query import Query

Cells = dict[int, list[int]]


class NoProof(Exception):  # noqa: N818 - reads as a statement
    """The bytes are not a proof, or a node does not hold."""


def cells_of(query: Query, kind: str, radius: float) -> Cells:
    """Cells of the claimed set around the only row of a query, by exact fractions."""
    cells: Cells = {}
    for feature in range(query.rows.shape[1]):
        tested = len(brute_force.thresholds(query.ensemble, feature)) > 0
        if brute_force.is_fixed(query, 0, feature) or not tested:
            continue
        if kind == "box":
            cuts = brute_force.thresholds(query.ensemble, feature)
            low, high = query.reach.low[0, feature], query.reach.high[0, feature]
            first, last = int(np.sum(cuts <= low)), int(np.sum(cuts <= high))
            cells[feature] = list(range(first, last + 1))
            continue
        levels = brute_force.cell_levels(query, 0, feature)
        cells[feature] = sorted(
            cell
            for cell, (distance, beyond) in levels.items()
            if distance < radius or (distance == radius and not beyond and kind == "closed")
            or cell == int(np.sum(
                brute_force.thresholds(query.ensemble, feature) <= query.rows[0, feature]
            ))
        )  # fmt: skip
    return cells


def leaf_table(query: Query, tree: int, features: list[int], cells: Cells) -> Any:
    """Leaf of a tree at every combination of cells of some features; others as in the row."""
    columns = [
        [
            brute_force.point_of_cell(
                query.ensemble, brute_force.thresholds(query.ensemble, feature), cell
            )
            for cell in cells[feature]
        ]
        for feature in features
    ]
    points = np.repeat(query.rows[:1], int(np.prod([len(c) for c in columns])), axis=0)
    for number, values in enumerate(itertools.product(*columns)):
        points[number, features] = values
    leaves = evaluate.leaf_rows(query.ensemble, points)[:, tree]
    return leaves.reshape([len(column) for column in columns])


class DenseSums:
    """Tables of all trees of a way, and the cells at which each tree changes."""

    def __init__(self, query: Query, way: Way, cells: Cells, unit: Fraction) -> None:
        trees = query.ensemble.trees
        precision = query.ensemble.aggregation.precision
        values = trees.leaf_value.astype(precision).astype(np.float64)
        start = np.array(query.ensemble.aggregation.start, dtype=precision).astype(np.float64)
        self.cells = cells
        self.constant = sum(_units(start[o], w, unit) for o, w in way.weights.items())
        self.factors: list[tuple[list[int], Any, list[list[int]]]] = []
        self.single: list[tuple[int, Any]] = []
        for tree, own in enumerate(trees.tree_output.tolist()):
            if own >= 0 and own not in way.weights:
                continue
            tested = sorted(
                {f for f in trees.feature[trees.root[tree] : trees.root[tree + 1]] if f in cells}
            )
            leaves = leaf_table(query, tree, tested, cells)
            gains = np.array([
                sum(_units(v[o if own < 0 else 0], w, unit) for o, w in way.weights.items()
                    if own < 0 or o == own)
                for v in values
            ], dtype=object)  # fmt: skip
            changes = [
                [i for i in range(1, leaves.shape[axis])
                 if np.any(np.take(leaves, i - 1, axis) != np.take(leaves, i, axis))]
                for axis in range(leaves.ndim)
            ]  # fmt: skip
            kept = [axis for axis, at in enumerate(changes) if at]
            others = tuple(0 for _ in range(leaves.ndim))
            index = tuple(slice(None) if a in kept else others[a] for a in range(leaves.ndim))
            table = gains[leaves[index]]
            features = [tested[axis] for axis in kept]
            if not kept:
                self.constant += table if isinstance(table, int) else table.item()
            elif len(kept) == 1:
                self.single.append((features[0], table))
            else:
                self.factors.append((features, table, [changes[axis] for axis in kept]))

    def n_multipliers(self, node: Cells) -> int:
        """Of the steps of a tree along a feature those inside of the box of a node."""
        return sum(
            self._is_inside(node, feature, step)
            for features, _, changes in self.factors
            for feature, at in zip(features, changes, strict=True)
            for step in at
        )

    def _is_inside(self, node: Cells, feature: int, step: int) -> bool:
        places = self._places(feature, node)
        return places[0] < step <= places[-1]

    def bound(self, box: Cells, multipliers: list[int], node: Cells | None = None) -> int:
        """The bound of a box, within that of a node; multipliers in the order of the format."""
        node = box if node is None else node
        values = iter(multipliers)
        rest = {f: np.zeros(len(c), dtype=object) for f, c in self.cells.items()}
        for feature, table in self.single:
            rest[feature] = rest[feature] + table
        total = self.constant
        for features, table, changes in self.factors:
            scored = table
            for axis, (feature, at) in enumerate(zip(features, changes, strict=True)):
                told = [self._is_inside(node, feature, step) for step in at]
                steps = [0, *(next(values) if is_told else 0 for is_told in told)]
                places = np.searchsorted(at, np.arange(len(self.cells[feature])), side="right")
                row = np.array(steps, dtype=object)[places]
                rest[feature] = rest[feature] - row
                shape = [-1 if a == axis else 1 for a in range(table.ndim)]
                scored = scored + row.reshape(shape)
            total += scored[np.ix_(*(self._places(f, box) for f in features))].max()
        return total + sum(max(r[i] for i in self._places(f, box)) for f, r in rest.items())

    def _places(self, feature: int, box: Cells) -> list[int]:
        return [self.cells[feature].index(cell) for cell in box[feature]]


def _units(number: float, weight: int, unit: Fraction) -> int:
    """A number times its weight, in units, not less than it is."""
    units = Fraction(float(number)) / unit
    return weight * (math.ceil(units) if weight > 0 else math.floor(units))


def proves(query: Query, forest: Forest, claim: Claim, box: dict[int, tuple[int, int]]) -> bool:
    """Whether the proof of a claim about the only row of a query is one."""
    cells = cells_of(query, claim.kind, claim.radius)
    data = [claim.proof, 0]
    try:
        for way in ways_of(forest, claim):
            _walk(query, forest, claim, way, cells, box, data)
    except (NoProof, struct.error):
        return False
    return data[1] == len(claim.proof)


def _walk(query: Query, forest: Forest, claim: Claim, way: Way, cells: Cells,
          box: dict[int, tuple[int, int]], data: list[Any]) -> None:  # fmt: skip
    pending = [(cells, way)]
    while pending:
        here, own = pending.pop()
        sums = DenseSums(query, own, cells, forest.unit)
        floor = floor_in_box(forest, claim.row, own, box)  # tested by itself against all points
        (letter,) = _take(data, "c")
        if letter == b"W":
            weights = _take(data, f"{len(way.losers)}B")
            _hold(len(weights) > 1 and 0 < max(weights) <= MOST_WEIGHT)
            losing = {j: -w for j, w in zip(way.losers, weights, strict=True) if w}
            own = dataclasses.replace(way, weights=losing | {way.winner: sum(weights)})
            pending.append((here, own))
            continue
        if letter == b"P":
            _hold(sums.bound(here, [0] * sums.n_multipliers(here)) < floor)
        elif letter == b"L":
            _hold(sums.bound(here, _multipliers(sums, here, forest, data)) < floor)
        elif letter == b"S":
            feature, cut = _take(data, "ii")
            _hold(feature in here and here[feature][0] <= cut < here[feature][-1])
            pending.append((here | {feature: [c for c in here[feature] if c > cut]}, own))
            pending.append((here | {feature: [c for c in here[feature] if c <= cut]}, own))
        elif letter == b"T":
            left = _trimmed(sums, here, floor, _multipliers(sums, here, forest, data), data)
            if all(left.values()):
                pending.append((left, own))
        else:
            _hold(letter == b"E")
            _hold(all(loser in own.weights for loser in own.losers))
            _hold(not _breaks(query, own, here))


def _trimmed(sums: DenseSums, box: Cells, floor: int, multipliers: list[int],
             data: list[Any]) -> Cells:  # fmt: skip
    left: Cells = {}
    for _ in range(*_take(data, "I")):
        feature, low, high = _take(data, "iii")
        _hold(feature in box and feature not in left)
        _hold(box[feature][0] <= low <= high + 1 <= box[feature][-1] + 1)
        for cell in box[feature]:
            if not low <= cell <= high:
                _hold(sums.bound(box | {feature: [cell]}, multipliers, box) < floor)
        left[feature] = [cell for cell in box[feature] if low <= cell <= high]
        _hold(len(left[feature]) < len(box[feature]))
    _hold(bool(left))
    return box | left


def _breaks(query: Query, way: Way, box: Cells) -> bool:
    """Whether a way happens somewhere in a box in which all its trees are constant."""
    features = sorted(box)
    points = []
    for tree, own in enumerate(query.ensemble.trees.tree_output.tolist()):
        if own < 0 or own in way.weights:
            _hold(len(np.unique(leaf_table(query, tree, features, box))) == 1)
    cuts = {f: brute_force.thresholds(query.ensemble, f) for f in features}
    point = query.rows[0].copy()
    for feature in features:
        point[feature] = brute_force.point_of_cell(query.ensemble, cuts[feature], box[feature][0])
    points = point[np.newaxis]
    sums = evaluate.accumulate(query.ensemble, evaluate.leaf_rows(query.ensemble, points))
    if way.winner >= 0:
        labels = evaluate.label_indices(query.ensemble, evaluate.finish(query.ensemble, sums))
        return int(labels[0]) == way.winner
    return bool(way.weights[0] * float(sums[0, 0]) >= way.weights[0] * way.cut)


def _multipliers(sums: DenseSums, node: Cells, forest: Forest, data: list[Any]) -> list[int]:
    exponent, size = _take(data, "hB")
    _hold(forest.exponent <= exponent < 2048 and size in (1, 2, 4))
    numbers = _take(data, f"{sums.n_multipliers(node)}{' bh i'[size]}")
    return [number << (exponent - forest.exponent) for number in numbers]


def _take(data: list[Any], form: str) -> tuple[Any, ...]:
    numbers = struct.unpack_from("<" + form, data[0], data[1])
    data[1] += struct.calcsize("<" + form)
    return numbers


def _hold(condition: bool) -> None:
    if not condition:
        raise NoProof
