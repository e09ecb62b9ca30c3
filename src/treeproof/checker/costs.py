"""Proofs about costs: the atoms that a claim looks at, what they cost, and the leaves they reach.

Costs are counted in whole multiples of a power of two, rounded down, with enough digits for the
limit; so what is within the limit in real numbers is so in these.
"""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from treeproof.checker.arrays import Ints, ranges
from treeproof.checker.claims import KEPT, Claim, Way, longest_claim, require
from treeproof.checker.forest import Boxes, Forest, Pieces
from treeproof.checker.prices import Axis, Tariff, same_values
from treeproof.checker.proofs import LARGEST, NODES_PER_BYTE, Prover, Rate, Record
from treeproof.checker.regions import Regions
from treeproof.checker.rules import RuledProof
from treeproof.checker.walks import Range, Walk, pieces_of, runs_of
from treeproof.errors import CertificateRejected
from treeproof.model import evaluate
from treeproof.model.ensemble import FloatArray

COST_BITS = 62
"""Digits of what all axes cost together, each as much as the limit: such sums fit into words."""
MOST_PIECES = 1 << 22
"""Leaves of all trees, each divided where its atoms are no range, at most."""


class KeptAxis(NamedTuple):
    """The atoms of an axis that a proof looks at: values of its columns, and costs."""

    values: list[tuple[float, ...]]
    costs: list[int]


class CostSpace:
    """The kept atoms of one claim about costs, and the leaves that they reach.

    costs, first_atom   of all atoms, and where those of each axis begin
    is_dear             which pieces cost more than the limit
    """

    def __init__(
        self, forest: Forest, tariff: Tariff, claim: Any, bounds: Any, limit: Fraction | None
    ) -> None:
        self.forest, self.tariff, self.claim = forest, tariff, claim
        self.row, self.limits = claim.row.tolist(), bounds
        self.is_everything = limit is None
        if limit is None:
            limit = tariff.highest(self.row, bounds)
        bits = COST_BITS - len(tariff.axes).bit_length()
        self.scale = bits - (math.frexp(float(limit))[1] if limit > 0 else 0)
        self.is_closed = claim.kind != "open" or self.is_everything
        scaled = limit * Fraction(2) ** self.scale
        self.limit = math.floor(scaled) if self.is_closed else math.ceil(scaled) - 1
        self.largest = limit
        if tariff.is_max:
            self.limit = 0  # what is within the limit is free, and everything else is not
        require(len(claim.kept) == len(tariff.axes), "claim: kept atoms of every axis")
        self.axes = [
            self._kept(axis, entry) for axis, entry in zip(tariff.axes, claim.kept, strict=True)
        ]
        self._check_left_out()
        known = [c for axis in self.axes for c in axis.costs if 0 < c <= self.limit]
        step = math.gcd(*known) if known else 1
        # Sound: sums of multiples of a number are multiples of it. Only now, since costs of what is
        # left out need not be.
        self.limit = self.limit // max(step, 1) * max(step, 1)
        self.is_empty = not all(axis.costs for axis in self.axes)
        if self.is_empty:
            return
        self.costs = np.array([c for axis in self.axes for c in axis.costs], dtype=np.int64)
        sizes = [len(axis.costs) for axis in self.axes]
        self.first_atom = np.cumsum([0, *sizes])
        boxes = Boxes(np.zeros((1, len(sizes)), np.int64), np.array([sizes]) - 1)
        pieces = self._pieces()
        self.regions = Regions(boxes, pieces, forest.output)
        self.is_dear = self._dear(pieces)
        near = np.bincount(pieces.tree[~self.is_dear], minlength=len(forest.output))
        self.has_nothing = bool((near == 0).any())  # of some tree, within the limit

    def _whole(self, cost: Fraction | None, *, is_open: bool = False) -> int:
        """A cost in whole numbers, rounded down; more than the limit where it is not allowed."""
        over = self.limit + 1
        if cost is None:
            return over
        if self.tariff.is_max:
            # Costs that are only approached are above the largest one; of everything they are part.
            is_met = cost == self.largest and self.is_closed and not is_open
            return 0 if cost < self.largest or is_met or self.is_everything else over
        # Sound: no change costs less than one of its parts, however little is left of it here.
        is_dear = cost > self.largest
        is_dear |= cost == self.largest and (is_open or not self.is_closed)
        return over if is_dear else min(math.floor(cost * Fraction(2) ** self.scale), over)

    def _kept(self, axis: Axis, entry: Any) -> KeptAxis:
        values: list[tuple[float, ...]] = []
        costs: list[int] = []
        own = tuple(self.row[c] for c in axis.columns)
        if axis.is_choice:
            for given in entry:
                value = _choice(given, len(axis.columns))
                values.append(value)
                costs.append(self._whole(self.tariff.choice(axis, own, value, self.limits)))
            return KeptAxis(values, costs)
        feature = axis.columns[0]
        cuts = self.forest.cuts(feature)
        after = -1
        for given in entry:
            first, last = _cells(given)
            require(after < first <= last <= len(cuts) + 1, "claim: kept cells in order")
            after = last
            for cell in range(first, last + 1):
                values.append((_representative(cuts, cell),))
                costs.append(self._cell_cost(feature, cell, own[0], len(cuts)))
        return KeptAxis(values, costs)

    def _cell_cost(self, feature: int, cell: int, own: float, n_cuts: int) -> int:
        if cell > n_cuts:
            return self._whole(self.tariff.missing(feature, own, self.limits))
        is_open = self.tariff.is_approached(feature, cell, own, self.limits)
        return self._whole(self.tariff.cell(feature, cell, own, self.limits), is_open=is_open)

    def _check_left_out(self) -> None:
        """What is not kept costs too much, or looks to every node like something no dearer.

        Sound: whatever is chosen of other axes costs no less than the cheapest of all that there
        is, kept or not. So a point within the limit has a twin of kept atoms that costs no more.
        """
        left_out = [self._left_out(number) for number in range(len(self.axes))]
        least = [
            min([*kept.costs, *(cost for _, cost in missing)], default=self.limit + 1)
            for kept, missing in zip(self.axes, left_out, strict=True)
        ]
        for number, kept in enumerate(self.axes):
            others = 0 if self.tariff.is_max else sum(least) - least[number]
            for value, cost in left_out[number]:
                if cost + others > self.limit:
                    continue
                sides, twins = self._sides_of([(number, [value]), (number, kept.values)])
                same = (twins == sides).all(axis=0) & (np.array(kept.costs) <= cost)
                require(
                    bool(same.any()), f"claim: axis {number} leaves out what is within the limit"
                )

    def _left_out(self, number: int) -> list[tuple[tuple[float, ...], int]]:
        """Values and costs of the atoms of an axis that are not kept."""
        axis, kept = self.tariff.axes[number], self.axes[number]
        own = tuple(self.row[c] for c in axis.columns)
        if axis.is_choice:
            return [
                (value, self._whole(self.tariff.choice(axis, own, value, self.limits)))
                for value in self.tariff.choices(axis, own)
                if not any(same_values(value, other) for other in kept.values)
            ]
        feature, entry = axis.columns[0], self.claim.kept[number]
        cuts = self.forest.cuts(feature)
        there = {c for first, last in map(_cells, entry) for c in range(first, last + 1)}
        return [
            ((_representative(cuts, c),), self._cell_cost(feature, c, own[0], len(cuts)))
            for c in range(len(cuts) + 2)
            if c not in there
        ]

    def _sides_of(self, asked: list[tuple[int, list[tuple[float, ...]]]]) -> list[Any]:
        """Whether nodes that test axes send values left: of each axis (n_nodes, n_values)."""
        nodes, numbers = [], []
        for number, values in asked:
            own, place = self.tariff.nodes[number]
            columns = len(self.tariff.axes[number].columns)
            table = np.array(values, dtype=np.float64).reshape(len(values), columns)
            nodes.append(np.repeat(own, len(values)))
            numbers.append(table.T[place].ravel())
        left = evaluate.goes_left(
            self.forest.ensemble, np.concatenate(nodes), np.concatenate(numbers)
        )
        parts = np.split(left, np.cumsum([len(own) for own in nodes])[:-1])
        return [
            part.reshape(len(self.tariff.nodes[number][0]), len(values))
            for part, (number, values) in zip(parts, asked, strict=True)
        ]

    def _pieces(self) -> Pieces:
        """Parts of leaves that kept atoms reach, each a product of ranges, tree by tree."""
        trees = self.forest.trees
        axis_of, runs = [-1] * len(trees.feature), {}
        kept = [(number, axis.values) for number, axis in enumerate(self.axes)]
        for (number, _), left in zip(kept, self._sides_of(kept), strict=True):
            for node, sides in zip(
                self.tariff.nodes[number][0].tolist(), left.tolist(), strict=True
            ):
                axis_of[node], runs[node] = number, runs_of(sides)
        box = {number: (0, len(axis.costs) - 1) for number, axis in enumerate(self.axes)}
        walk = Walk(trees, axis_of, runs, box)
        found, n_left = [], MOST_PIECES
        for tree in range(len(trees.root) - 1):
            leaves = islice(walk.leaves(tree), n_left)
            found.append([(int(trees.leaf[leaf.one]), leaf.ranges) for leaf in leaves])
            n_left -= len(found[-1])
            require(n_left > 0, "proof: too many parts of leaves")
        return pieces_of(found)

    def _dear(self, pieces: Pieces) -> Any:
        """Which pieces cost more than the limit, together with the cheapest of all other axes.

        Of a tree of which all do, nothing is within the limit.
        """
        first = self.first_atom[pieces.entry_axis] + pieces.entry_low
        count = pieces.entry_high - pieces.entry_low + 1
        costs = np.zeros(0, np.int64)
        if len(first):
            costs = np.minimum.reduceat(self.costs[ranges(first, count)], np.cumsum(count) - count)
        n = len(pieces.leaf)
        if self.tariff.is_max:
            return np.bincount(pieces.entry_piece, costs > 0, n) > 0
        cheapest = np.minimum.reduceat(self.costs, self.first_atom[:-1])
        total = np.full(n, cheapest.sum())
        np.add.at(total, pieces.entry_piece, costs - cheapest[pieces.entry_axis])
        return total > self.limit

    def affordable(self, low: Ints, high: Ints) -> tuple[Ints, Ints, Any]:
        """Boxes without end atoms that points within the limit cannot use, and which have none.

        Sound: with an atom that costs more than the limit leaves over for its axis, beside the
        cheapest atoms of all others in the box, no point is within the limit.
        """
        axis = np.repeat(np.arange(low.shape[1]), np.diff(self.first_atom))
        atom = np.arange(len(self.costs)) - self.first_atom[axis]
        inside = (low[:, axis] <= atom) & (atom <= high[:, axis])
        costs = np.where(inside, self.costs, self.limit + 1)
        least = np.minimum.reduceat(costs, self.first_atom[:-1], axis=1)
        others = 0 if self.tariff.is_max else least.sum(axis=1, keepdims=True) - least
        room = np.broadcast_to(self.limit - others, least.shape)
        fits = inside & (costs <= room[:, axis])
        first = np.minimum.reduceat(np.where(fits, atom, len(atom)), self.first_atom[:-1], axis=1)
        last = np.maximum.reduceat(np.where(fits, atom, -1), self.first_atom[:-1], axis=1)
        is_void = np.asarray((first > last).any(axis=1) | self.has_nothing)
        keep = is_void[:, np.newaxis]
        return np.where(keep, low, first), np.where(keep, high, last), is_void

    def weighted(self, rate: Rate, exponent: int) -> tuple[int, Ints | None]:
        """α times the limit, rounded up, and α times every cost, rounded down, in units.

        None where these need more than words.
        """
        factor, shift = rate[0], rate[1] - exponent - self.scale
        if shift >= 0:
            limit = factor * self.limit << min(shift, 4096)
        else:
            limit = -(-factor * self.limit >> -shift)
        costs = self.costs.astype(object) * factor
        costs = costs << min(shift, 64) if shift >= 0 else costs >> -shift
        # Atoms beyond the limit are in no box but between others, and are no better than at it.
        return limit, np.minimum(costs, limit).astype(np.int64) if limit < LARGEST else None


def _cells(given: Any) -> Range:
    """First and last cell of a range."""
    is_range = isinstance(given, list) and len(given) == 2
    require(is_range and all(isinstance(n, int) for n in given), "claim: kept cells are ranges")
    return given[0], given[1]


def _choice(given: Any, n_columns: int) -> tuple[float, ...]:
    """Values of a choice: as they are, or the place of the column that is 1; -1: of none."""
    if isinstance(given, int):
        require(-1 <= given < n_columns, "claim: no such choice")
        return tuple(float(place == given) for place in range(n_columns))
    fits = len(given) == n_columns and all(isinstance(text, str) for text in given)
    require(fits, "claim: one value per column")
    return tuple(float.fromhex(text) for text in given)


def _representative(cuts: FloatArray, cell: int) -> float:
    """A number of a cell: all of them go the same way everywhere; missing comes last."""
    if cell > len(cuts):
        return math.nan
    if cell > 0:
        return float(cuts[cell - 1])
    return math.nextafter(float(cuts[0]), -math.inf) if len(cuts) else 0.0


def prove_priced(
    forest: Forest, tariff: Tariff, claim: Claim, bounds: Any, ways: list[Way]
) -> None:
    """Follow the proof of a claim about costs; rejects it where it does not hold."""
    limit = None if math.isinf(claim.radius) else Fraction(claim.radius) ** tariff.power
    limit = Fraction(0) if tariff.is_box else limit

    def prove(kept: list[Any], proof: bytes, bounds: Any, most_nodes: int) -> int:
        own = replace(claim, kept=kept, proof=proof)
        space = CostSpace(forest, tariff, own, bounds, limit)
        if space.is_empty:
            # Sound: what is left out of the axis costs too much, so that nothing is left to prove.
            require(proof == b"D" * len(ways), "proof: nothing is within the limit")
            return most_nodes
        prover = Prover(forest, space.regions, [Record(proof, most_nodes)], [ways], space)
        (reason,) = prover.reasons()
        require(not reason, reason)
        return prover.nodes_left

    def prove_leaf(kept: bytes, *rest: Any) -> int:
        require(len(kept) <= longest_claim(forest), "proof: kept atoms are too long for this model")
        try:
            return prove(KEPT.decode(kept), *rest)
        except msgspec.DecodeError as error:
            raise CertificateRejected(f"proof: kept atoms cannot be read ({error})") from error

    if tariff.rules:
        RuledProof(tariff, claim, bounds).follow(prove_leaf, ways)
    else:
        most_nodes = NODES_PER_BYTE * claim.n_packed + len(ways)
        prove(claim.kept or [], claim.proof, bounds, most_nodes)
