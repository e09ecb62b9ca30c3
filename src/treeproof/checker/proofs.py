"""Proofs: a tree of boxes, closed by bounds from multipliers, in integers.

For any multipliers λ, and any α >= 0, what a way's sum and α (limit - cost) add up to is, at every
point of a box that costs no more than the limit, at most

    constant + α limit + Σ over trees of max over leaves [gain + Σ over the tree's axes of max λ]
                       + Σ over axes of max over atoms [− Σ over trees of λ − α cost].

All numbers are whole multiples of a unit, gains and what α adds rounded up, floors too: so a bound
that is below the floor is one in real numbers. Bounds of many nodes are computed together.
"""

import struct
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from treeproof.checker.arrays import Ints, begins, largest, ranges, spread
from treeproof.checker.claims import Claim, Way, floor_of, happens, require, with_weights
from treeproof.checker.cliques import Graph, follow
from treeproof.checker.forest import Boxes, Forest
from treeproof.checker.regions import Regions, Sums
from treeproof.errors import CertificateRejected
from treeproof.model import evaluate
from treeproof.model.sums import MOST_WEIGHT

NODES_PER_BYTE = 4
"""Nodes of a proof for each byte of its packed form, at most, and one more for each way."""

MOST_LEAVES, MOST_ENTRIES = 1 << 18, 1 << 15
"""Leaves of the model times rows, and entries times nodes, that are looked at together."""

LARGEST = 1 << 60
"""What multipliers of a node, the largest of each pair, may add up to, and α times the limit."""

Changes = tuple[()] | tuple[int, tuple[int, int], "Changes"]
"""The last change of a box, axis and atoms that are left, and those before it."""

Rate = tuple[int, int]
"""α, as a whole number and an exponent of 2."""


class Node(NamedTuple):
    """A node of a proof; `multipliers` are exponent, size, number and place of its multipliers."""

    row: int
    way: int
    letter: str
    place: str
    changes: Changes
    rate: Rate = (0, 0)
    multipliers: tuple[int, int, int, int] | None = None
    trims: tuple[tuple[int, tuple[int, int]], ...] = ()


class Problem(NamedTuple):
    """The sum of a way over the box of a row: its constant and floor."""

    constant: int
    floor: int


class Record(NamedTuple):
    """The bytes of the proof of a row, and how many nodes it may have."""

    data: bytes
    most_nodes: int


def prove(forest: Forest, claims: list[Claim], ways: list[list[Way]]) -> list[str]:
    """Why the proof of each claim does not hold, for all ways to break it; empty where it does."""
    reasons: list[str] = []
    step = max(1, MOST_LEAVES // forest.ensemble.n_leaves)
    for first in range(0, len(claims), step):
        own, own_ways = claims[first : first + step], ways[first : first + step]
        try:
            reasons += prover_of(forest, own, own_ways, forest.boxes(own)).reasons()
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            # Sound: what cannot be followed is not accepted. No such proof is known; the others
            # must not suffer from it.
            if len(claims) > 1:
                alone = zip(own, own_ways, strict=True)
                reasons += [prove(forest, [claim], [ways])[0] for claim, ways in alone]
            else:
                reasons.append(f"record: it cannot be checked ({error!r})")
    return reasons


def prover_of(forest: Forest, claims: list[Claim], ways: list[list[Way]], boxes: Boxes) -> "Prover":
    """What follows the proofs of claims about boxes around rows."""
    rows = np.array([claim.row for claim in claims])
    records = [
        Record(claim.proof, NODES_PER_BYTE * claim.n_packed + len(own))
        for claim, own in zip(claims, ways, strict=True)
    ]
    return Prover(forest, Regions(boxes, forest.pieces(rows, boxes), forest.output), records, ways)


class Prover:
    """Follows the proofs of rows, each for all its ways.

    What leaves add is the forest's, or that of what stands for one, as pairs of leaves do: `up` and
    `down`, by leaf and column, `output` of each tree, `n_outputs`, and the `exponent` of the unit.
    """

    def __init__(
        self,
        forest: Any,
        regions: Regions,
        records: list[Record],
        ways: list[list[Way]],
        costs: Any = None,
    ) -> None:
        self.forest, self.regions, self.records, self.costs = forest, regions, records, costs
        self.ways = [list(own) for own in ways]  # and those with other weights, as they come
        self.problems: dict[tuple[int, int], Problem] = {}
        self.weighted: dict[tuple[int, int, tuple[int, ...]], int] = {}
        self.has_cliques = costs is None
        self.nodes_left = 0  # of the row that was read last

    @cached_property
    def sums(self) -> Sums:
        """What the sums of outputs can be."""
        return Sums(self.forest, self.regions)

    def reasons(self) -> list[str]:
        """Why the proof of each row does not hold; empty where it does."""
        found, waiting, size = [""] * len(self.records), [], 0
        regions = self.regions
        entries = regions.piece_entries[regions.tree_pieces[:: regions.n_trees]]
        sizes = np.diff(entries) + regions.boxes.low.shape[1]
        sizes += 0 if self.costs is None else len(self.costs.costs)
        for row in range(len(self.records)):
            try:
                for node in self.nodes(row):
                    waiting.append(node)
                    size += int(sizes[row])
                    if size > MOST_ENTRIES:
                        self._settle(waiting, found)
                        waiting, size = [], 0
                        if found[row]:
                            break
            except CertificateRejected as error:
                found[row] = str(error)
        self._settle(waiting, found)
        return found

    def _settle(self, nodes: list[Node], reasons: list[str]) -> None:
        """Note the first node of each row that does not hold."""
        failed: set[int] = set()
        for node, reason in zip(nodes, self.check(nodes), strict=True):
            if reason and node.row not in failed:
                # Nodes come in order, and what could not be read comes after them.
                reasons[node.row] = reason
                failed.add(node.row)

    def problem(self, row: int, number: int) -> Problem:
        """The sum of a way, by its number, over the box of a row."""
        if (row, number) not in self.problems:
            way = self.ways[row][number]
            constant, floor = self.ends_of(row, way)
            self.problems[row, number] = Problem(constant, floor)
        return self.problems[row, number]

    def ends_of(self, row: int, way: Way) -> tuple[int, int]:
        """Constant and floor of a way's sum over the box of a row."""
        sums = self.sums
        errors, peaks = (
            {o: each[o][row] for o in way.weights} for each in (sums.errors, sums.peaks)
        )
        constant = sum(w * sums.lone[o][w > 0][row] for o, w in way.weights.items())
        return constant, floor_of(self.forest, way, errors, peaks)

    def nodes(self, row: int) -> Iterator[Node]:
        """Read the proof of a row; whether its nodes hold is not known yet."""
        record, ways, boxes = self.records[row], list(self.ways[row]), self.regions.boxes
        reader = Reader(*record)
        low, high = boxes.low[row], boxes.high[row]
        for first, way in enumerate(ways):
            # Boxes wait as what was changed on the way to them, which they share; with the way that
            # their sums are of, and α.
            pending: list[tuple[Changes, int, Rate]] = [((), first, (0, 0))]
            while pending:
                (changes, number, rate), place = pending.pop(), f"{way.name}, byte {reader.at}"
                node = Node(row, number, letter := reader.letter(), place, changes, rate)
                self.problem(row, number)  # which may be none that can be followed
                if letter == "W":
                    pending.append((changes, self._weighted(row, first, reader, place), rate))
                    continue
                if letter == "A":
                    require(self.costs is not None, f"{place}: there are no costs")
                    rate = reader.take("Ih")
                    require(abs(rate[1]) < 2048, f"{place}: no such α")
                    pending.append((changes, number, rate))
                    continue
                if letter in "LT":
                    box = changed(low, high, changes)
                    count = self.n_multipliers(row, self.ways[row][number], *box)
                    told = reader.multipliers(count, self.forest.exponent)
                    node = node._replace(multipliers=told)
                if letter == "C":
                    self._follow_cliques(reader, node)
                    continue
                if letter == "S":
                    axis, cut = reader.take("ii")
                    begin, last = _range(low, high, changes, axis)
                    inside = begin <= cut < last
                    require(inside, f"{place}: cut {cut} is not inside feature {axis}")
                    pending.append(((axis, (cut + 1, last), changes), number, rate))
                    pending.append(((axis, (begin, cut), changes), number, rate))
                    continue
                if letter == "T":
                    trims = _trims(reader, low, high, changes, place)
                    node = node._replace(trims=tuple(trims.items()))
                    if all(low_atom <= high_atom for low_atom, high_atom in trims.values()):
                        for axis, atoms in trims.items():
                            changes = (axis, atoms, changes)
                        pending.append((changes, number, rate))
                else:
                    require(letter in "PLEDN", f"{place}: unknown node {letter!r}")
                yield node
        require(reader.at == len(record.data), f"byte {reader.at}: the proof goes on")
        self.nodes_left = reader.most_nodes

    def n_multipliers(self, row: int, way: Way, low: Ints, high: Ints) -> int:
        """How many segments of a way's trees begin inside of a box, above its first atoms."""
        first, last = self.regions.row_listed[row : row + 2]
        axis, start, output = (part[first:last] for part in self.regions.listed)
        inside = (low[axis] < start) & (start <= high[axis])
        if len(way.weights) < self.forest.n_outputs:
            inside &= np.isin(output, [-1, *way.weights])
        return int(np.count_nonzero(inside))

    def _weighted(self, row: int, first: int, reader: "Reader", place: str) -> int:
        """Read weights of a way's losers; returns the number of the way with these."""
        way = self.ways[row][first]
        require(len(way.losers) > 1, f"{place}: weights of one condition")
        weights = reader.take(f"{len(way.losers)}B")
        require(0 < max(weights) <= MOST_WEIGHT, f"{place}: no such weights")
        known = self.weighted.setdefault((row, first, weights), len(self.ways[row]))
        if known == len(self.ways[row]):
            self.ways[row].append(self.mixed(way, weights))
        return known

    def mixed(self, way: Way, weights: tuple[int, ...]) -> Way:
        """The same way with other weights of its losers."""
        return with_weights(way, weights)

    def check(self, nodes: list[Node]) -> list[str]:
        """Why each node does not hold; empty where it does."""
        if not nodes:
            return []
        bounds, reasons = Bounds(self, nodes), []
        for number, (node, total) in enumerate(zip(nodes, bounds.total.tolist(), strict=True)):
            floor, reason = self.problem(node.row, node.way).floor, ""
            if bounds.is_void[number]:
                pass
            elif node.letter == "D":
                reason = "a point is within the limit"
            elif node.letter == "N":
                reason = self.gains_something(node, bounds.low[number], bounds.high[number])
            elif node.letter == "E":
                reason = self.breaks(node, bounds.low[number], bounds.high[number])
            elif bounds.overflows[number]:
                reason = "its multipliers need more than words"
            elif node.letter == "T":
                for axis, (low, high) in node.trims:
                    worst = bounds.largest_outside(number, axis, low, high)
                    if worst >= floor:
                        reason = f"feature {axis}, {worst} >= {floor}"
                        break
            elif total >= floor:
                reason = f"bound {total} is not below {floor}"
            reasons.append(f"{node.place}: {reason}" if reason else "")
        return reasons

    def gains_something(self, node: Node, low: Ints, high: Ints) -> str:
        """Why a box in which nothing is gained is not closed by that: it does not matter here."""
        return "what no tree gains says nothing of this claim"

    def breaks(self, node: Node, low: Ints, high: Ints) -> str:
        """Why a box with one leaf of every tree does not hold: add up as the model does."""
        forest, way, regions = self.forest, self.ways[node.row][node.way], self.regions
        if any(loser not in way.weights for loser in way.losers):
            return "some classes have no weight"  # and their trees were not looked at
        piece = regions.met(node.row, low, high)
        if self.costs is not None:
            piece = piece[~self.costs.is_dear[piece]]
        leaf, at = np.unique(regions.leaf[piece], return_index=True)
        tree = regions.tree[piece[at]]
        count = np.bincount(tree, minlength=len(forest.output))
        own = np.isin(forest.output, [-1, *way.weights])
        if (count[own] == 0).any():
            return ""  # no point within the limit is here
        for number in np.flatnonzero(own & (count > 1))[:1].tolist():
            return f"tree {number} has {count[number]} leaves here"
        leaves = forest.trees.leaf[forest.trees.root[1:] - 1]
        leaves[tree] = leaf
        totals = evaluate.accumulate(forest.ensemble, leaves[np.newaxis])[0].astype(float).tolist()
        # What a softmax rounds to depends on all classes: it tells where every tree has one leaf.
        if not happens(forest, way, totals) or (
            (count == 1).all() and not happens(forest, way, totals, every=True)
        ):
            return ""
        return "the model's own sums break it"

    def _follow_cliques(self, reader: "Reader", node: Node) -> None:
        """Follow a proof by cliques of leaves, whose graph comes next."""
        require(self.has_cliques, f"{node.place}: there are no cliques")
        regions, forest, way = self.regions, self.forest, self.ways[node.row][node.way]
        low, high = (side[node.row] for side in regions.boxes)
        low, high = changed(low, high, node.changes)
        piece = regions.met(node.row, low, high)
        tree = regions.tree[piece]
        factor = np.diff(regions.tree_pieces)[node.row * len(forest.output) + tree] > 1
        piece = piece[factor & np.isin(forest.output[tree], [-1, *way.weights])]
        place, entry = spread(regions.piece_entries, piece)
        axis, problem = regions.entry_axis[entry], self.problem(node.row, node.way)
        graph = Graph(
            leaf=regions.leaf[piece],
            tree=regions.tree[piece],
            gain=gains_of(forest, regions.leaf[piece], regions.tree[piece], way.weights),
            piece=place,
            axis=axis,
            low=np.maximum(regions.entry_low[entry], low[axis]),
            high=np.minimum(regions.entry_high[entry], high[axis]),
        )
        follow(reader, graph, problem.floor - problem.constant, forest.exponent, node.place)


def gains_of(forest: Forest, leaf: Ints, tree: Ints, weights: dict[int, int]) -> Ints:
    """What leaves add to the sum of a way, rounded up."""
    table = np.zeros((len(leaf), forest.n_outputs), dtype=np.int64)
    table[:, list(weights)] = list(weights.values())
    return weighted_gains(forest, leaf, tree, table)


def weighted_gains(forest: Forest, leaf: Ints, tree: Ints, weights: Ints) -> Ints:
    """What leaves of trees add to sums with weights, (n_leaves, n_outputs), rounded up."""
    output, gain = forest.output[tree], np.zeros(len(leaf), dtype=np.int64)
    is_vector = forest.up.shape[1] > 1
    for column in range(forest.up.shape[1]):
        if is_vector and not weights[:, column].any():
            continue
        own = np.full(len(leaf), column) if is_vector else np.maximum(output, 0)
        weight = weights[np.arange(len(leaf)), own]
        gain += weight * np.where(weight > 0, forest.up[leaf, column], forest.down[leaf, column])
    return gain


class Bounds:
    """Bounds of the boxes of nodes; names are those of `Regions`, of each node's own copy.

    `is_void` where no point within the limit is in the box.

    Sound: words never overflow. Gains of all trees together take 60 bits, see
    `treeproof.model.sums.proof_exponent`; nodes whose multipliers, the largest of each pair, add up
    to 2**60 or more are not held, nor such whose α times the limit is. An axis's best atom is no
    worse than its cheapest one, and all of these cost no more than the limit, or the box is void.
    So no score, sum or difference below exceeds 2**62.
    """

    def __init__(self, prover: Prover, nodes: list[Node]) -> None:
        regions = prover.regions
        self.prover, self.nodes, self.costs = prover, nodes, prover.costs
        rows = np.array([node.row for node in nodes])
        self.low, self.high = regions.boxes.low[rows], regions.boxes.high[rows]
        for number, node in enumerate(nodes):
            for axis, atoms in _last_changes(node.changes).items():
                self.low[number, axis], self.high[number, axis] = atoms
        self.is_void = np.zeros(len(nodes), dtype=bool)
        self._copy_factors(rows)
        self._copy_pairs()
        self.gain = self._gains()
        self.multiplier = self._multipliers()
        self._score_leaves()
        self.total = np.array(
            [prover.problem(node.row, node.way).constant for node in nodes], dtype=np.int64
        )
        self._add_costs()
        np.add.at(self.total, self.factor_node, self.best)
        inside = ranges(self.first, self.last - self.first + 1)
        key, value = self._sums_over_atoms(inside, -self.multiplier)
        group = key // self.n_atoms
        start = begins(group)
        self.axis_key = group[start]
        self.axis_peak = np.maximum.reduceat(value, start) if len(start) else value
        np.add.at(self.total, self.axis_key // self.low.shape[1], self.axis_peak)

    def _copy_factors(self, rows: Ints) -> None:
        """Factors of each node's way, and their pieces."""
        regions, forest = self.prover.regions, self.prover.forest
        node, factor = spread(regions.row_factors, rows)
        self.weight = np.zeros((len(rows), forest.n_outputs), dtype=np.int64)
        for number, entry in enumerate(self.nodes):
            weights = self.prover.ways[entry.row][entry.way].weights
            self.weight[number, list(weights)] = list(weights.values())
        output = forest.output[regions.factor_tree[factor]]
        own = (output < 0) | (self.weight[node, output] != 0)
        self.factor, self.factor_node = factor[own], node[own]
        self.piece_factor, self.piece = spread(regions.tree_pieces, regions.factor[self.factor])

    def _copy_pairs(self) -> None:
        """Pairs, segments and entries, and what of their ranges is in each node's box."""
        regions, factor = self.prover.regions, self.factor
        self.pair_factor, pair = spread(regions.factor_pairs, factor)
        self.segment_pair, segment = spread(regions.pair_segments, pair)
        self.entry_piece, entry = spread(regions.piece_entries, self.piece)
        self.factor_pairs, self.pair_segments = begins(self.pair_factor), begins(self.segment_pair)
        self.is_single = np.bincount(self.pair_factor, minlength=len(factor)) == 1
        self.segment_start = regions.segment_start[segment]
        self.pair_axis = regions.pair_axis[pair]
        self.n_atoms = regions.n_atoms
        at = (self.factor_node[self.pair_factor], self.pair_axis)
        is_listed = ~self.is_single[self.pair_factor[self.segment_pair]]
        is_listed &= self.segment_start > self.low[at][self.segment_pair]
        is_listed &= self.segment_start <= self.high[at][self.segment_pair]
        self.is_listed = is_listed
        if self.costs is not None:
            self.low, self.high, self.is_void = self.costs.affordable(self.low, self.high)
        self.pair_low = self.low[at]
        self.first, self.last = (
            np.add.reduceat(self.segment_start <= end[self.segment_pair], self.pair_segments,
                            dtype=np.int64) - 1 + self.pair_segments
            if len(pair) else pair
            for end in (self.pair_low, self.high[at])
        )  # fmt: skip
        factor_of = self.piece_factor[self.entry_piece]
        shift = self.factor_pairs[factor_of] - regions.factor_pairs[factor[factor_of]]
        own = self.entry_pair = regions.entry_pair[entry] + shift
        start = self.pair_segments[own]
        self.entry_first = np.maximum(start + regions.entry_first[entry], self.first[own])
        self.entry_last = np.minimum(start + regions.entry_last[entry], self.last[own])

    def _gains(self) -> Ints:
        """What each piece adds to the sum of its node's way, rounded up.

        Sound: no point within the limit is in a piece that costs more, so that it may count with
        the least gain of its tree's others.
        """
        prover, regions = self.prover, self.prover.regions
        weights = self.weight[self.factor_node[self.piece_factor]]
        leaf, tree = regions.leaf[self.piece], regions.tree[self.piece]
        gain = weighted_gains(prover.forest, leaf, tree, weights)
        if self.costs is not None and len(gain):
            is_dear = self.costs.is_dear[self.piece]
            start = begins(self.piece_factor)
            least = np.minimum.reduceat(np.where(is_dear, gain.max(), gain), start)
            gain = np.where(is_dear, least[self.piece_factor], gain)
        return gain

    def _multipliers(self) -> Ints:
        """One number for each segment: those of the proof, or those that gains imply."""
        unit = self.prover.forest.exponent
        found = np.zeros(len(self.segment_pair), dtype=np.int64)
        self.overflows = np.zeros(len(self.nodes), dtype=bool)
        told = np.array([node.multipliers is not None for node in self.nodes])
        values = [np.zeros(0, dtype=np.int64)]
        for number, node in enumerate(self.nodes):
            if node.multipliers is None:
                continue
            exponent, size, count, at = node.multipliers
            data = self.prover.records[node.row].data
            numbers = np.frombuffer(data, f"<i{size}", count, at).astype(np.int64)
            most = int(np.abs(numbers).max(initial=0))
            if most << min(exponent - unit, 62) >= LARGEST:
                self.overflows[number], most = True, 0
            values.append(numbers << exponent - unit if most else numbers * 0)
        node_of = self.factor_node[self.pair_factor]
        found[self.is_listed & told[node_of[self.segment_pair]]] = np.concatenate(values)
        # Segments of trees with one axis that lie in the box are held by one leaf each.
        single = self.is_single[self.pair_factor[self.entry_pair]]
        single &= self.entry_first <= self.entry_last
        first, gain = self.entry_first[single], self.gain[self.entry_piece[single]]
        count = self.entry_last[single] - first + 1
        found[ranges(first, count)] = np.repeat(-gain, count)
        if len(found):
            peaks = np.maximum.reduceat(np.abs(found), self.pair_segments).astype(np.float64)
            self.overflows |= np.bincount(node_of, peaks, len(self.nodes)) >= LARGEST
            found[self.overflows[node_of[self.segment_pair]]] = 0
        return found

    def _add_costs(self) -> None:
        """What α adds: to the totals, and to single atoms of nodes' boxes, as keys and changes."""
        self.cost_key = self.cost_change = np.zeros(0, dtype=np.int64)
        for number, node in enumerate(self.nodes):
            if not node.rate[0] or self.is_void[number] or self.overflows[number]:
                continue
            limit, atom_costs = self.costs.weighted(node.rate, self.prover.forest.exponent)
            if atom_costs is None:
                self.overflows[number] = True
                continue
            self.total[number] += limit
            low, high = self.low[number], self.high[number]
            axis, atom = np.repeat(np.arange(len(low)), high - low + 1), ranges(low, high - low + 1)
            value = -atom_costs[self.costs.first_atom[axis] + atom]
            value[1:] -= np.where(axis[1:] == axis[:-1], value[:-1], 0)
            key = (number * len(low) + axis) * self.n_atoms + atom
            self.cost_key = np.append(self.cost_key, key)
            self.cost_change = np.append(self.cost_change, value)

    def _score_leaves(self) -> None:
        """Gain plus multipliers of each piece that meets its node's box, and each factor's best."""
        self.meets = np.ones(len(self.piece), dtype=bool)
        self.meets[self.entry_piece[self.entry_first > self.entry_last]] = False
        self.pair_peak = largest(self.multiplier, self.first, self.last)
        some = np.flatnonzero(self.meets[self.entry_piece])
        self.entry_peak = np.zeros(len(self.entry_piece), dtype=np.int64)
        first, last = self.entry_first[some], self.entry_last[some]
        self.entry_peak[some] = largest(self.multiplier, first, last)
        # Axes that a leaf does not narrow count with their largest multiplier, too.
        everything = np.zeros(len(self.factor), dtype=np.int64)
        np.add.at(everything, self.pair_factor, self.pair_peak)
        self.score = self.gain + everything[self.piece_factor]
        more = self.entry_peak[some] - self.pair_peak[self.entry_pair[some]]
        np.add.at(self.score, self.entry_piece[some], more)
        met = np.flatnonzero(self.meets)
        start = begins(self.piece_factor[met])
        self.best = np.zeros(len(self.factor), dtype=np.int64)
        if len(start):
            own = self.piece_factor[met[start]]
            self.best[own] = np.maximum.reduceat(self.score[met], start)
        if len(start) < len(self.factor):
            # Sound: every point of a box is in a piece of each tree, so there is none.
            is_met = np.bincount(self.piece_factor[met], minlength=len(self.factor)) > 0
            self.is_void[self.factor_node[~is_met]] = True

    def _sums_over_atoms(self, segment: Ints, value: Ints) -> tuple[Ints, Ints]:
        """Sums over the pairs of an axis of a value per segment, less costs, where they change.

        Returns node * n_axes + axis, times n_atoms, plus the first atom of each stretch, in order;
        and the sum there.
        """
        pair = self.segment_pair[segment]
        atom = np.maximum(self.segment_start[segment], self.pair_low[pair])
        axis = self.factor_node[self.pair_factor[pair]] * self.low.shape[1]
        key = (axis + self.pair_axis[pair]) * self.n_atoms + atom
        change = value[segment]
        change[1:] -= np.where(pair[1:] == pair[:-1], value[segment[:-1]], 0)
        if len(self.cost_key):
            key, change = np.append(key, self.cost_key), np.append(change, self.cost_change)
        order = np.argsort(key)
        key, change = key[order], change[order]
        start = begins(key // self.n_atoms)
        if len(start):
            # Each axis's sums begin anew: what those before it add up to is taken off.
            change[start[1:]] -= np.add.reduceat(change, start)[:-1]
        last = np.append(begins(key)[1:], len(key)) - 1 if len(key) else start
        return key[last], np.cumsum(change)[last]

    def largest_outside(self, number: int, axis: int, low: int, high: int) -> int:
        """Largest bound with an axis held to one atom, over its atoms outside a range."""
        total, group = int(self.total[number]), number * self.low.shape[1] + axis
        at = np.searchsorted(self.axis_key, group)
        if at == len(self.axis_key) or self.axis_key[at] != group:
            return total
        key, value = self._held
        first, last = np.searchsorted(key, [group * self.n_atoms, (group + 1) * self.n_atoms])
        start = key[first:last] - group * self.n_atoms
        end = np.append(start[1:] - 1, self.high[number, axis])
        outside = value[first:last][(start < low) | (end > high)]
        # Nothing is outside where all that is costs too much.
        return total - int(self.axis_peak[at]) + int(outside.max(initial=-LARGEST * 2))

    @cached_property
    def _held(self) -> tuple[Ints, Ints]:
        """What an axis and the trees that test it add with the axis held to each atom.

        Minus the multipliers, plus by how much the best of each tree falls; only of axes that nodes
        trim; as `_sums_over_atoms` gives it.
        """
        trimmed = np.zeros(self.low.shape, dtype=bool)
        for number, node in enumerate(self.nodes):
            trimmed[number, [axis for axis, _ in node.trims]] = True
        pair = np.flatnonzero(trimmed[self.factor_node[self.pair_factor], self.pair_axis])
        pieces = np.searchsorted(self.piece_factor, np.arange(len(self.factor) + 1))
        place, piece = spread(pieces, self.pair_factor[pair])
        piece, pair = piece[self.meets[piece]], pair[place][self.meets[piece]]
        # Entries are in order of pieces and pairs.
        n_pairs = len(self.pair_factor)
        key, wanted = self.entry_piece * n_pairs + self.entry_pair, piece * n_pairs + pair
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        narrows = key[at] == wanted
        first = np.where(narrows, self.entry_first[at], self.first[pair])
        last = np.where(narrows, self.entry_last[at], self.last[pair])
        others = self.score[piece] - np.where(narrows, self.entry_peak[at], self.pair_peak[pair])
        segment = ranges(first, last - first + 1)
        held = np.repeat(others, last - first + 1) + self.multiplier[segment]
        order = np.argsort(segment, kind="stable")
        start = begins(segment[order])
        held, segment = np.maximum.reduceat(held[order], start), segment[order][start]
        value = -self.multiplier
        value[segment] += held - self.best[self.pair_factor[self.segment_pair[segment]]]
        return self._sums_over_atoms(segment, value)


def _last_changes(changes: Changes) -> dict[int, tuple[int, int]]:
    """The atoms that are left of each changed axis; the last change of an axis counts."""
    last: dict[int, tuple[int, int]] = {}
    while changes:
        axis, atoms, changes = changes
        last.setdefault(axis, atoms)
    return last


def changed(low: Ints, high: Ints, changes: Changes) -> tuple[Ints, Ints]:
    """A box with changes."""
    if changes:
        low, high = low.copy(), high.copy()
        for axis, atoms in _last_changes(changes).items():
            low[axis], high[axis] = atoms
    return low, high


def _range(low: Ints, high: Ints, changes: Changes, axis: int) -> tuple[int, int]:
    """The atoms of an axis in a changed box; 0 and -1 where it does not move."""
    while changes:
        if changes[0] == axis:
            return changes[1]
        changes = changes[2]
    return (int(low[axis]), int(high[axis])) if 0 <= axis < len(low) else (0, -1)


class Reader:
    """Reads the nodes of a proof, of which there may only be so many."""

    def __init__(self, data: bytes, most_nodes: int) -> None:
        self.data, self.at = data, 0
        self.most_nodes = most_nodes

    def letter(self) -> str:
        """Read the letter of the next node."""
        self.most_nodes -= 1
        require(self.most_nodes >= 0, f"byte {self.at}: more nodes than its packed form may hold")
        return chr(*self.take("B"))

    def take(self, form: str) -> tuple[Any, ...]:
        """Read numbers of a struct format."""
        at = self.at
        self.skip(struct.calcsize("<" + form))
        return struct.unpack_from("<" + form, self.data, at)

    def skip(self, size: int) -> None:
        """Go on by a number of bytes."""
        require(self.at + size <= len(self.data), f"byte {self.at}: the proof is cut off")
        self.at += size

    def multipliers(self, count: int, unit_exponent: int) -> tuple[int, int, int, int]:
        """Exponent, size, number and place of multipliers, multiples of the unit."""
        exponent, size = self.take("hB")
        require(exponent >= unit_exponent, f"byte {self.at}: multipliers finer than the unit")
        require(exponent < 2048 and size in (1, 2, 4), f"byte {self.at}: no such multipliers")
        place = self.at
        self.skip(count * size)
        return exponent, size, count, place


def _trims(
    reader: Reader, low: Ints, high: Ints, changes: Changes, place: str
) -> dict[int, tuple[int, int]]:
    """Read what a trimmed node leaves of axes, each of which must lose an atom."""
    left: dict[int, tuple[int, int]] = {}
    (count,) = reader.take("I")
    require(count > 0, f"{place}: nothing is trimmed")
    for _ in range(count):
        axis, begin, end = reader.take("iii")
        first, last = _range(low, high, changes, axis)
        require(first <= last, f"{place}: feature {axis} does not move")
        fewer = first <= begin <= end + 1 <= last + 1 and (begin, end) != (first, last)
        require(fewer and axis not in left, f"{place}: feature {axis} does not shrink")
        left[axis] = (begin, end)
    return left
