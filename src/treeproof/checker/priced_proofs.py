"""Proofs about costs: boxes of atoms, closed by prices, bounds from multipliers, or exact sums.

Within a limit every point meets, for any α >= 0,

    sum of a way + α (limit - cost) <= α limit + Σ over trees of max over leaves [gain + Σ max λ]
                                     + Σ over axes of max over atoms [- Σ λ - α price],

in integers: prices are rounded down to a multiple of a power of two, α times a price is rounded so
that the bound can only rise. Leaves and atoms that cost more than the limit do not count.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np

from treeproof.checker.claims import (
    KEPT,
    Claim,
    Way,
    floor_of,
    happens,
    longest_claim,
    require,
)
from treeproof.checker.forest import Forest
from treeproof.checker.prices import Axis, Tariff, same_values
from treeproof.checker.proofs import NODES_PER_BYTE, Reader
from treeproof.checker.regions import rounding_errors
from treeproof.checker.rules import RuledProof
from treeproof.errors import CertificateRejected
from treeproof.model import evaluate
from treeproof.model.ensemble import FloatArray

PRICE_BITS = 60
"""Digits of a limit in whole prices."""
MOST_PIECES = 1 << 22
"""Leaves of all trees, each divided where its atoms are no range, at most."""

Range = tuple[int, int]
Trim = tuple[int, ...]
Multipliers = dict[int, list[int]]
"""Of a factor: for each of its axes, those of its segments."""


class KeptAxis(NamedTuple):
    """The atoms of an axis that a proof looks at: values of its columns, and prices."""

    values: list[tuple[float, ...]]
    prices: list[int]


class Piece(NamedTuple):
    """A leaf, or a part of it, with the atoms of the axes that it narrows."""

    leaf: int
    ranges: dict[int, Range]


def whole_prices(limit: Fraction) -> int:
    """The exponent K: prices are counted in 2**-K."""
    return PRICE_BITS - (math.frexp(float(limit))[1] if limit > 0 else 0)


class PricedProver:
    """Follows the proof of one claim about costs."""

    def __init__(
        self, forest: Forest, tariff: Tariff, claim: Any, bounds: Any, limit: Fraction | None
    ) -> None:
        self.forest, self.tariff, self.claim = forest, tariff, claim
        self.row, self.limits = claim.row.tolist(), bounds
        self.is_everything = limit is None
        if limit is None:
            limit = tariff.highest(self.row, bounds)
        self.scale = whole_prices(limit)
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
        known = [p for axis in self.axes for p in axis.prices if 0 < p <= self.limit]
        step = math.gcd(*known) if known else 1
        # Sound: sums of multiples of a number are multiples of it. Only now, since prices of what
        # is left out need not be.
        self.limit = self.limit // max(step, 1) * max(step, 1)
        self.cheapest = [min(axis.prices, default=self.limit + 1) for axis in self.axes]
        self.goes_left = self._sides()

    def _price(self, cost: Fraction | None, *, is_open: bool = False) -> int:
        """A cost in whole prices, rounded down; more than the limit where it is not allowed."""
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
        prices: list[int] = []
        own = tuple(self.row[c] for c in axis.columns)
        if axis.is_choice:
            for given in entry:
                value = _choice(given, len(axis.columns))
                values.append(value)
                prices.append(self._price(self.tariff.choice(axis, own, value, self.limits)))
            return KeptAxis(values, prices)
        feature = axis.columns[0]
        cuts = self.forest.cuts(feature)
        after = -1
        for given in entry:
            first, last = _cells(given)
            require(after < first <= last <= len(cuts) + 1, "claim: kept cells in order")
            after = last
            for cell in range(first, last + 1):
                values.append((_representative(cuts, cell),))
                prices.append(self._cell_price(feature, cell, own[0], len(cuts)))
        return KeptAxis(values, prices)

    def _cell_price(self, feature: int, cell: int, own: float, n_cuts: int) -> int:
        if cell > n_cuts:
            return self._price(self.tariff.missing(feature, own, self.limits))
        is_open = self.tariff.is_approached(feature, cell, own, self.limits)
        return self._price(self.tariff.cell(feature, cell, own, self.limits), is_open=is_open)

    def _check_left_out(self) -> None:
        """What is not kept costs too much, or looks to every node like something no dearer.

        Sound: whatever is chosen of other axes costs no less than the cheapest of all that there
        is, kept or not. So a point within the limit has a twin of kept atoms that costs no more.
        """
        left_out = [self._left_out(number) for number in range(len(self.axes))]
        least = [
            min([*kept.prices, *(price for _, price in missing)], default=self.limit + 1)
            for kept, missing in zip(self.axes, left_out, strict=True)
        ]
        for number, (axis, kept) in enumerate(zip(self.tariff.axes, self.axes, strict=True)):
            others = 0 if self.tariff.is_max else sum(least) - least[number]
            for value, price in left_out[number]:
                if price + others > self.limit:
                    continue
                sides = self._sides_of(axis, [value])
                twins = self._sides_of(axis, kept.values)
                same = (twins == sides).all(axis=0) & (np.array(kept.prices, dtype=object) <= price)
                require(
                    bool(same.any()), f"claim: axis {number} leaves out what is within the limit"
                )

    def _left_out(self, number: int) -> list[tuple[tuple[float, ...], int]]:
        """Values and prices of the atoms of an axis that are not kept."""
        axis, kept = self.tariff.axes[number], self.axes[number]
        own = tuple(self.row[c] for c in axis.columns)
        if axis.is_choice:
            return [
                (value, self._price(self.tariff.choice(axis, own, value, self.limits)))
                for value in self.tariff.choices(axis, own)
                if not any(same_values(value, other) for other in kept.values)
            ]
        feature, entry = axis.columns[0], self.claim.kept[number]
        cuts = self.forest.cuts(feature)
        there = {c for first, last in map(_cells, entry) for c in range(first, last + 1)}
        return [
            ((_representative(cuts, c),), self._cell_price(feature, c, own[0], len(cuts)))
            for c in range(len(cuts) + 2)
            if c not in there
        ]

    def _sides_of(self, axis: Axis, values: list[tuple[float, ...]]) -> Any:
        """Whether each node that tests the axis sends atoms left: (n_nodes, n_atoms)."""
        trees = self.forest.trees
        nodes = np.flatnonzero(np.isin(trees.feature, axis.columns))
        place = [axis.columns.index(f) for f in trees.feature[nodes].tolist()]
        table = np.array(values, dtype=np.float64).reshape(len(values), len(axis.columns))
        asked = table[:, place].T
        left = evaluate.goes_left(
            self.forest.ensemble, np.repeat(nodes, len(values)), np.ascontiguousarray(asked).ravel()
        )
        return left.reshape(len(nodes), len(values))

    def _sides(self) -> dict[int, Any]:
        """By node: its axis, and which kept atoms of that it sends left."""
        found, trees = {}, self.forest.trees
        for number, (axis, kept) in enumerate(zip(self.tariff.axes, self.axes, strict=True)):
            nodes = np.flatnonzero(np.isin(trees.feature, axis.columns))
            left = self._sides_of(axis, kept.values)
            for node, sides in zip(nodes.tolist(), left, strict=True):
                found[node] = (number, sides.tolist())
        return found

    def follow(self, ways: list[Way], most_nodes: int) -> int:
        """Follow the proof for every way to break the claim; rejects it where it does not hold.

        Returns how many nodes more there might be.
        """
        reader = Reader(self.claim.proof, most_nodes)
        for way in ways:
            PricedWay(self, way).follow(reader)
        require(reader.at == len(self.claim.proof), f"byte {reader.at}: the proof goes on")
        return reader.most_nodes


class PricedWay:
    """One way to break a claim, over the kept atoms."""

    def __init__(self, prover: PricedProver, way: Way) -> None:
        self.prover, self.way, self.forest = prover, way, prover.forest
        self.box = [(0, len(axis.prices) - 1) for axis in prover.axes]
        self.is_empty, self.n_prices = any(last < 0 for _, last in self.box), 0
        if self.is_empty:
            return
        trees = [self._pieces(tree) for tree in range(self.forest.ensemble.n_trees)]
        output = self.forest.trees.tree_output
        self.own = [t for t in range(len(trees)) if output[t] < 0 or int(output[t]) in way.weights]
        self._floor(trees)
        self._problem(trees)

    def _pieces(self, tree: int) -> list[Piece]:
        """Parts of leaves that kept atoms reach, each a product of ranges."""
        trees, found = self.forest.trees, []
        pending: list[tuple[int, dict[int, Range]]] = [(int(trees.root[tree]), {})]
        while pending:
            node, narrowed = pending.pop()
            if trees.feature[node] < 0:
                found.append(Piece(int(trees.leaf[node]), narrowed))
                require(len(found) < MOST_PIECES, "proof: too many parts of leaves")
                continue
            axis, sides = self.prover.goes_left[node]
            first, last = narrowed.get(axis, self.box[axis])
            at = first
            while at <= last:
                end, left = at, sides[at]
                while end < last and sides[end + 1] == left:
                    end += 1
                child = node + 1 if left else int(trees.right[node])
                part = narrowed
                if (at, end) != (first, last):
                    part = {**narrowed, axis: (at, end)}
                pending.append((child, part))
                at = end + 1
        return found

    def _is_dear(self, piece: Piece) -> bool:
        """Whether every point of a piece costs more than the limit."""
        prover = self.prover
        costs = [
            (min(prover.axes[axis].prices[first : last + 1]), prover.cheapest[axis])
            for axis, (first, last) in piece.ranges.items()
        ]
        if prover.tariff.is_max:
            return any(cost > prover.limit for cost, _ in costs)
        return sum(prover.cheapest) + sum(cost - least for cost, least in costs) > prover.limit

    def _floor(self, trees: list[list[Piece]]) -> None:
        """The floor of the way, by what leaves there are; see `treeproof.checker.regions.Sums`."""
        forest, errors, peaks = self.forest, {}, {}
        output = forest.trees.tree_output
        for number in self.way.weights:
            own = [t for t in range(len(trees)) if output[t] in (-1, number)]
            column = number if forest.value.shape[1] > 1 else 0
            low, high = [], []
            for tree in own:
                leaves = np.array([piece.leaf for piece in trees[tree]])
                values = forest.integers(leaves, column, exact=True)[0].tolist()
                low.append(min(values))
                high.append(max(values))
            start = forest.start_of(number, exact=True)[0]
            lows = np.cumsum(np.array([start, *low], dtype=object))[1:]
            highs = np.cumsum(np.array([start, *high], dtype=object))[1:]
            largest = np.maximum(-lows, highs).reshape(1, -1)
            peaks[number] = int(max([abs(start), *largest[0].tolist()]))
            bits = forest.grid << forest.bits
            errors[number] = (
                int(rounding_errors(largest, bits, forest.bits)[0]) if largest.size else 0
            )
        self.floor = floor_of(forest, self.way, errors, peaks)

    def _gain(self, tree: int, leaf: int) -> int:
        """What a leaf adds to the sum of the way, in units."""
        forest, output = self.forest, int(self.forest.trees.tree_output[tree])
        pairs = [(output, 0)] if output >= 0 else [(o, o) for o in self.way.weights]
        return sum(
            self.way.weights[o] * int(forest.integers(np.array([leaf]), c, exact=True)[0][0])
            for o, c in pairs
        )

    def _problem(self, trees: list[list[Piece]]) -> None:
        """Constant, terms of single axes, and factors: trees of several axes."""
        self.constant = sum(
            weight * self.forest.start_of(output, exact=True)[0]
            for output, weight in self.way.weights.items()
        )
        self.unary = [[0] * len(axis.prices) for axis in self.prover.axes]
        self.leaves: list[list[tuple[Piece, int, bool]]] = []
        self.factors: list[Factor] = []
        self.best_sum = self.constant
        for tree in self.own:
            found = [
                (piece, self._gain(tree, piece.leaf), self._is_dear(piece)) for piece in trees[tree]
            ]
            near = [gain for _, gain, dear in found if not dear]
            if not near:
                # Nothing is within the limit, but what a proof says about it is read.
                self.is_empty, near = True, [gain for _, gain, _ in found]
            found = [(piece, min(near) if dear else gain, dear) for piece, gain, dear in found]
            self.leaves.append(found)
            self.best_sum += max(near)
            tested = sorted({axis for piece, _, _ in found for axis in piece.ranges})
            if len(found) == 1:
                self.constant += found[0][1]
            elif len(tested) == 1:
                for piece, gain, _ in found:
                    first, last = piece.ranges.get(tested[0], self.box[tested[0]])
                    for place in range(first, last + 1):
                        self.unary[tested[0]][place] += gain
            else:
                self.factors.append(Factor(found, tested, self.box))
        self.n_prices = sum(factor.n_prices for factor in self.factors)

    def follow(self, reader: Reader) -> None:
        """Follow the nodes of the way."""
        pending: list[tuple[dict[int, Range], Fraction]] = [({}, Fraction(0))]
        while pending:
            changes, price = pending.pop()
            place = f"{self.way.name}, byte {reader.at}"
            letter = reader.letter()
            if letter == "A":
                mantissa, exponent = reader.take("Ih")
                require(-2000 < exponent < 2000, f"{place}: no such α")
                pending.append((changes, mantissa * Fraction(2) ** exponent))
                continue
            box = self._affordable(changes)
            if letter == "D":
                require(box is None, f"{place}: a point is within the limit")
                continue
            if letter in "LT":
                exponent, size, at = reader.prices(self.n_prices, self.forest.exponent)
            if box is None:
                # Sound: nothing is left, whatever the node says; but what it says is read.
                require(letter in "LTPES", f"{place}: unknown node {letter!r}")
                if letter == "T" and _goes_on(_trims(reader, place)):
                    pending.append((changes, price))
                if letter == "S":
                    # What was taken for a box is divided: its parts hold nothing, either.
                    reader.take("ii")
                    pending += [(changes, price), (changes, price)]
                continue
            if letter == "P":
                require(self.best_sum < self.floor, f"{place}: best leaves reach the floor")
            elif letter == "L":
                bound = Bound(self, box, price, (exponent, size, at), reader.data)
                require(bound.total < self.floor, f"{place}: the bound reaches the floor")
            elif letter == "E":
                self._check_sums(box, place)
            elif letter == "S":
                axis, cut = reader.take("ii")
                require(0 <= axis < len(box), f"{place}: no axis {axis}")
                first, last = changes.get(axis, self.box[axis])
                require(first <= cut < last, f"{place}: cut {cut} is not inside axis {axis}")
                first, last = box[axis]
                pending.append(({**changes, axis: (max(cut + 1, first), last)}, price))
                pending.append(({**changes, axis: (first, min(cut, last))}, price))
            else:
                require(letter == "T", f"{place}: unknown node {letter!r}")
                bound = Bound(self, box, price, (exponent, size, at), reader.data)
                trims = _trims(reader, place)
                changes = self._trimmed(trims, box, bound, changes, place)
                if _goes_on(trims):
                    pending.append((changes, price))

    def _affordable(self, changes: dict[int, Range]) -> list[Range] | None:
        """The box without end atoms that points within the limit cannot use; None: nothing left."""
        if self.is_empty:
            return None
        box = [changes.get(axis, whole) for axis, whole in enumerate(self.box)]
        prover = self.prover
        if any(first > last for first, last in box):
            return None
        least = [
            min(axis.prices[first : last + 1])
            for axis, (first, last) in zip(prover.axes, box, strict=True)
        ]
        total = sum(least)
        for number, axis in enumerate(prover.axes):
            first, last = box[number]
            others = 0 if prover.tariff.is_max else total - least[number]
            while first <= last and axis.prices[first] + others > prover.limit:
                first += 1
            while first <= last and axis.prices[last] + others > prover.limit:
                last -= 1
            if first > last:
                return None
            box[number] = (first, last)
        return box

    def _check_sums(self, box: list[Range], place: str) -> None:
        """One leaf of every tree is left: add up as the model does."""
        trees = self.forest.trees
        # Whatever other trees hold: none of their outputs matters.
        found = [int(trees.leaf[first:last].max()) for first, last in pairwise(trees.root.tolist())]
        for tree, leaves in zip(self.own, self.leaves, strict=True):
            met = {piece.leaf for piece, _, dear in leaves if not dear and _meets(piece, box)}
            require(len(met) <= 1, f"{place}: tree {tree} has {len(met)} leaves here")
            if not met:
                return
            found[tree] = met.pop()
        sums = evaluate.accumulate(self.forest.ensemble, np.array([found]))[0]
        breaks = happens(self.forest, self.way, sums.astype(float).tolist())
        require(not breaks, f"{place}: the model's own sums break it")

    def _trimmed(
        self, trims: list[Trim], box: list[Range], bound: "Bound", changes: Any, place: str
    ) -> dict[int, Range]:
        """What a node leaves of axes, perhaps nothing; what it drops must stay below the floor."""
        left = dict(changes)
        for axis, first, last in trims:
            require(0 <= axis < len(box), f"{place}: no axis {axis}")
            low, high = box[axis]
            for atom in (*range(low, min(first, high + 1)), *range(max(last + 1, low), high + 1)):
                held = bound.held(axis, atom)
                require(held < self.floor, f"{place}: axis {axis}, atom {atom} reaches the floor")
            left[axis] = (max(first, low), min(last, high))
            # Otherwise nodes without an end would cost a bound each, and say nothing.
            is_less = left[axis] != changes.get(axis, self.box[axis])
            require(is_less, f"{place}: axis {axis} loses nothing")
        return left


def _trims(reader: Reader, place: str) -> list[Trim]:
    """Axes that a node trims, with the first and last atom that it leaves."""
    (count,) = reader.take("I")
    require(count > 0, f"{place}: nothing is trimmed")
    return [reader.take("iii") for _ in range(count)]


def _goes_on(trims: list[Trim]) -> bool:
    """Whether a node follows: the trimmed one left something, though perhaps of nothing here.

    Rounded prices are below the exact ones, so a box may be empty here that was not so there.
    """
    return all(first <= last for _, first, last in trims)


class Factor:
    """A tree of several axes: its pieces, and the segments of each of its axes."""

    def __init__(self, found: Any, tested: list[int], box: list[Range]) -> None:
        self.gain = [gain for _, gain, _ in found]
        self.axes = tested
        self.starts = {
            axis: sorted(
                {piece.ranges.get(axis, box[axis])[0] for piece, _, _ in found} | {box[axis][0]}
            )
            for axis in tested
        }
        self.ranges = [piece.ranges for piece, _, _ in found]
        self.n_prices = sum(len(starts) - 1 for starts in self.starts.values())


class Bound:
    """The bound of a box with recorded multipliers and α."""

    def __init__(
        self, way: PricedWay, box: list[Range], price: Fraction, listed: Any, data: bytes
    ) -> None:
        prover, forest = way.prover, way.forest
        exponent, size, at = listed
        shift = exponent - forest.exponent
        numbers = np.frombuffer(data, f"<i{size}", way.n_prices, at).tolist()
        # α in units of the model per whole price.
        rate = price / forest.unit / Fraction(2) ** prover.scale
        self.rest = [
            [
                unary - (math.floor(rate * cost) if rate else 0)
                for unary, cost in zip(own, axis.prices, strict=True)
            ]
            for own, axis in zip(way.unary, prover.axes, strict=True)
        ]
        multipliers: list[Multipliers] = []
        used = 0
        for factor in way.factors:
            own = {}
            for axis in factor.axes:
                starts = factor.starts[axis]
                values = [0] + [n << shift for n in numbers[used : used + len(starts) - 1]]
                used += len(starts) - 1
                own[axis] = values
                for place, value in enumerate(values):
                    end = starts[place + 1] if place + 1 < len(starts) else len(self.rest[axis])
                    if value:
                        for atom in range(starts[place], end):
                            self.rest[axis][atom] -= value
            multipliers.append(own)
        self.scored = [
            Scored(factor, own, box) for factor, own in zip(way.factors, multipliers, strict=True)
        ]
        self.peak = [
            max(rest[first : last + 1]) for rest, (first, last) in zip(self.rest, box, strict=True)
        ]
        limit = math.ceil(rate * prover.limit) if rate else 0
        self.total = way.constant + limit + sum(each.best for each in self.scored) + sum(self.peak)

    def held(self, axis: int, atom: int) -> int:
        """The bound with one axis held to an atom."""
        total = self.total - self.peak[axis] + self.rest[axis][atom]
        for scored in self.scored:
            if axis in scored.factor.starts:
                total += scored.held(axis, atom) - scored.best
        return total


class Scored:
    """The pieces of a factor that meet a box, with the best score that each reaches there."""

    def __init__(self, factor: Factor, multipliers: Multipliers, box: list[Range]) -> None:
        self.factor, self.multipliers = factor, multipliers
        self.whole = {axis: self._peak(axis, *box[axis]) for axis in factor.axes}
        everything = sum(self.whole.values())
        # Score, and of the axes that the piece tests: first atom, last atom, peak between them.
        self.pieces: list[tuple[int, dict[int, tuple[int, int, int]]]] = []
        known: dict[tuple[int, int, int], int] = {}
        for gain, ranges in zip(factor.gain, factor.ranges, strict=True):
            score, parts = gain + everything, {}
            for axis, (first, last) in ranges.items():
                key = axis, max(first, box[axis][0]), min(last, box[axis][1])
                if key[1] > key[2]:
                    break
                if key not in known:
                    known[key] = self._peak(*key)
                parts[axis] = (*key[1:], known[key])
                score += known[key] - self.whole[axis]
            else:
                self.pieces.append((score, parts))
        self.best = _largest(score for score, _ in self.pieces)

    def held(self, axis: int, atom: int) -> int:
        """The best score with an axis held to an atom: its multiplier takes the place of a peak."""
        others = (
            score - parts[axis][2] if axis in parts else score - self.whole[axis]
            for score, parts in self.pieces
            if axis not in parts or parts[axis][0] <= atom <= parts[axis][1]
        )
        return _largest(others) + self._peak(axis, atom, atom)

    def _peak(self, axis: int, first: int, last: int) -> int:
        """The largest multiplier of an axis between two atoms."""
        starts = self.factor.starts[axis]
        own = self.multipliers[axis]
        return max(own[bisect_right(starts, first) - 1 : bisect_right(starts, last)])


def _largest(scores: Iterable[int]) -> int:
    best = max(scores, default=None)
    require(best is not None, "proof: a tree has no leaf in a box")
    return best if best is not None else 0


def _meets(piece: Piece, box: list[Range]) -> bool:
    return all(
        first <= box[a][1] and last >= box[a][0] for a, (first, last) in piece.ranges.items()
    )


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
        return PricedProver(forest, tariff, own, bounds, limit).follow(ways, most_nodes)

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
