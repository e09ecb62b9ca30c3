"""Proofs: a tree of boxes, closed by bounds from multipliers, in integers.

For any multipliers λ the sum of a way at every point of a box is at most

    constant + Σ over trees of max over leaves [gain + Σ over the tree's features of max λ]
             + Σ over features of max over cells [− Σ over trees of λ].

Bounds of many nodes are computed together: first in words, with gains rounded up; a node that these
do not settle is looked at alone, in Python's integers, where nothing is rounded.
"""

import struct
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from treeproof.checker.claims import Claim, Way, floor_of, happens, require, with_weights
from treeproof.checker.cliques import Pieces, follow
from treeproof.checker.forest import MOST_WEIGHT, Boxes, Forest, Ints
from treeproof.checker.regions import Regions, Sums, begins, ranges, spread
from treeproof.errors import CertificateRejected
from treeproof.model import evaluate

NODES_PER_BYTE = 4
"""Nodes of a proof for each byte of its packed form, at most, and one more for each way."""

MOST_LEAVES, MOST_ENTRIES = 1 << 18, 1 << 15
"""Leaves of the model times rows, and entries times nodes, that are looked at together."""

Changes = tuple[()] | tuple[int, tuple[int, int], "Changes"]
"""The last change of a box, feature and cells that are left, and those before it."""


class Node(NamedTuple):
    """A node of a proof; `prices` are exponent, size and place of its multipliers."""

    row: int
    way: int
    letter: str
    place: str
    changes: Changes
    prices: tuple[int, int, int] | None = None
    trims: tuple[tuple[int, tuple[int, int]], ...] = ()


class Problem(NamedTuple):
    """The sum of a way over the box of a row: its constant and floor; the number of multipliers."""

    constant: int
    floor: int
    n_prices: int


def prove(forest: Forest, claims: list[Claim], ways: list[list[Way]]) -> list[str]:
    """Why the proof of each claim does not hold, for all ways to break it; empty where it does."""
    reasons: list[str] = []
    step = max(1, MOST_LEAVES // forest.ensemble.n_leaves)
    for first in range(0, len(claims), step):
        part = slice(first, first + step)
        try:
            boxes = forest.boxes(claims[part])
            reasons += Prover(forest, claims[part], ways[part], boxes).reasons()
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            # Sound: what cannot be followed is not accepted. No such proof is known; the others
            # must not suffer from it.
            if len(claims) > 1:
                alone = zip(claims[part], ways[part], strict=True)
                reasons += [prove(forest, [claim], [own])[0] for claim, own in alone]
            else:
                reasons.append(f"record: it cannot be checked ({error!r})")
    return reasons


class Prover:
    """Follows the proofs of claims, in words or exactly."""

    def __init__(
        self,
        forest: Forest,
        claims: list[Claim],
        ways: list[list[Way]],
        boxes: Boxes,
        *,
        exact: bool = False,
    ) -> None:
        self.forest, self.claims, self.exact = forest, claims, exact
        self.ways = [list(own) for own in ways]  # and those with other weights, as they come
        self.regions = Regions(forest, np.array([claim.row for claim in claims]), boxes)
        self.sums = Sums(forest, self.regions, exact=exact)
        self.problems: dict[tuple[int, int], Problem] = {}
        self.weighted: dict[tuple[int, tuple[int, ...]], int] = {}
        self._alone: Prover | None = None

    def reasons(self) -> list[str]:
        """As `prove`, in words wherever they settle a node."""
        found, waiting, size = [""] * len(self.claims), [], 0
        regions = self.regions
        entries = regions.piece_entries[regions.tree_pieces[:: self.forest.ensemble.n_trees]]
        sizes = np.diff(entries) + regions.boxes.low.shape[1]
        for row in range(len(self.claims)):
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
            if not reason or node.row in failed:
                continue
            (exact_reason,) = self._exactly(node.row).check([node._replace(row=0)])
            if exact_reason:
                # Nodes come in order, and what could not be read comes after them.
                reasons[node.row] = exact_reason
                failed.add(node.row)

    def _exactly(self, row: int) -> "Prover":
        """One row alone, in integers that are not rounded."""
        if self._alone is None or self._alone.claims[0] is not self.claims[row]:
            part = slice(row, row + 1)
            boxes = Boxes(*(side[part] for side in self.regions.boxes))
            claims, ways = self.claims[part], self.ways[part]
            self._alone = Prover(self.forest, claims, ways, boxes, exact=True)
        return self._alone

    def follow_cliques(self, reader: "Reader", node: Node) -> None:
        """Follow a proof by cliques of leaves, whose graph comes next; of one row, exactly."""
        problem, bounds = self.problem(0, node.way), Bounds(self, [node])
        missing = problem.floor - problem.constant
        follow(reader, bounds.pieces_met(), missing, self.forest.exponent, node.place)

    def problem(self, row: int, number: int) -> Problem:
        """The sum of a way, by its number, over the box of a row."""
        if (row, number) in self.problems:
            return self.problems[row, number]
        forest, way, sums = self.forest, self.ways[row][number], self.sums
        shift = 0 if self.exact else forest.shift
        errors = {o: sums.errors[o][row] << shift for o in way.weights}
        peaks = {o: sums.peaks[o][row] << shift for o in way.weights}
        # Sound: a whole number is below the floor iff it is below the floor rounded up.
        floor = -(-floor_of(forest, way, errors, peaks) >> shift)
        constant = sum(w * sums.lone[o][w > 0][row] for o, w in way.weights.items())
        columns = list(way.weights) if forest.value.shape[1] == 1 else [0]
        n_prices = int(self.regions.n_prices[row, columns].sum())
        self.problems[row, number] = Problem(constant, floor, n_prices)
        return self.problems[row, number]

    def nodes(self, row: int) -> Iterator[Node]:
        """Read the proof of a row; whether its nodes hold is not known yet."""
        claim, ways, boxes = self.claims[row], list(self.ways[row]), self.regions.boxes
        reader = Reader(claim.proof, NODES_PER_BYTE * claim.n_packed + len(ways))
        low, high = boxes.low[row], boxes.high[row]
        for first, way in enumerate(ways):
            # Boxes wait as what was changed on the way to them, which they share, and the way that
            # their sums are of.
            pending: list[tuple[Changes, int]] = [((), first)]
            while pending:
                (changes, number), place = pending.pop(), f"{way.name}, byte {reader.at}"
                letter, n_prices = reader.letter(), self.problem(row, number).n_prices
                node = Node(row, number, letter, place, changes)
                if letter == "W":
                    require(claim.version >= 2, f"{place}: version 1 knows no weights")
                    pending.append((changes, self._weighted(row, way, reader, place)))
                    continue
                if letter in "LT":
                    node = node._replace(prices=reader.prices(n_prices, self.forest.exponent))
                if letter == "C":
                    require(claim.version >= 2, f"{place}: version 1 knows no cliques")
                    self._exactly(row).follow_cliques(reader, node._replace(row=0))
                    continue
                if letter == "S":
                    feature, cut = reader.take("ii")
                    begin, last = _range(low, high, changes, feature)
                    inside = begin <= cut < last
                    require(inside, f"{place}: cut {cut} is not inside feature {feature}")
                    pending.append(((feature, (cut + 1, last), changes), number))
                    pending.append(((feature, (begin, cut), changes), number))
                    continue
                if letter == "T":
                    trims = _trims(reader, low, high, changes, place)
                    node = node._replace(trims=tuple(trims.items()))
                    if all(low_cell <= high_cell for low_cell, high_cell in trims.values()):
                        for feature, cells in trims.items():
                            changes = (feature, cells, changes)
                        pending.append((changes, number))
                else:
                    require(letter in "PLE", f"{place}: unknown node {letter!r}")
                yield node
        require(reader.at == len(claim.proof), f"byte {reader.at}: the proof goes on")

    def _weighted(self, row: int, way: Way, reader: "Reader", place: str) -> int:
        """Read weights of a way's losers; returns the number of the way with these."""
        require(len(way.losers) > 1, f"{place}: weights of one condition")
        weights = reader.take(f"{len(way.losers)}B")
        require(0 < max(weights) <= MOST_WEIGHT, f"{place}: no such weights")
        known = self.weighted.setdefault((row, weights), len(self.ways[row]))
        if known == len(self.ways[row]):
            self.ways[row].append(with_weights(way, weights))
        return known

    def check(self, nodes: list[Node]) -> list[str]:
        """Why each node does not hold; empty where it does."""
        if not nodes:
            return []
        bounds, reasons = Bounds(self, nodes), []
        for number, (node, total) in enumerate(zip(nodes, bounds.total.tolist(), strict=True)):
            floor, reason = self.problem(node.row, node.way).floor, ""
            if node.letter == "E":
                reason = self._breaks(node, bounds, number)
            elif bounds.overflows[number]:
                reason = "its multipliers need more than words"
            elif node.letter == "T":
                for feature, (low, high) in node.trims:
                    worst = bounds.largest_outside(number, feature, low, high)
                    if worst >= floor:
                        reason = f"feature {feature}, {worst} >= {floor}"
                        break
            elif total >= floor:
                reason = f"bound {total} is not below {floor}"
            reasons.append(f"{node.place}: {reason}" if reason else "")
        return reasons

    def _breaks(self, node: Node, bounds: "Bounds", number: int) -> str:
        """Why a box with one leaf of every tree does not hold: add up as the model does."""
        ensemble, n_trees = self.forest.ensemble, self.forest.ensemble.n_trees
        way = self.ways[node.row][node.way]
        if any(loser not in way.weights for loser in way.losers):
            return "some classes have no weight"  # and their trees were not looked at
        leaves = self.regions.leaf[self.regions.tree_pieces[node.row * n_trees :][:n_trees]]
        trees, found = bounds.leaves_met(number)
        for tree, count in enumerate(np.bincount(trees).tolist()):
            if count > 1:
                return f"tree {tree} has {count} leaves here"
        leaves[trees] = found
        totals = evaluate.accumulate(ensemble, leaves[np.newaxis])[0].astype(float).tolist()
        if not happens(self.forest, way, totals):
            return ""
        # What a softmax rounds to depends on all classes: it tells where every tree has one leaf.
        box = Boxes(bounds.low[[number]], bounds.high[[number]])
        nodes = np.unique(self.forest.pieces(self.claims[node.row].row[np.newaxis], box).node)
        if len(nodes) == n_trees:
            leaves = ensemble.trees.leaf[nodes]
            totals = evaluate.accumulate(ensemble, leaves[np.newaxis])[0].astype(float).tolist()
            if not happens(self.forest, way, totals, every=True):
                return ""
        return "the model's own sums break it"


class Bounds:
    """Bounds of the boxes of nodes; names are those of `Regions`, of each node's own copy.

    Sound: words never overflow. Gains of all trees together take WORD_BITS bits; nodes whose
    multipliers, the largest of each pair, add up to more than 2**60 are left to exact integers.
    So no score, sum or difference below exceeds 2**62.
    """

    def __init__(self, prover: Prover, nodes: list[Node]) -> None:
        regions = prover.regions
        self.prover, self.nodes = prover, nodes
        rows = np.array([node.row for node in nodes])
        self.low, self.high = regions.boxes.low[rows], regions.boxes.high[rows]
        for number, node in enumerate(nodes):
            for feature, cells in _last_changes(node.changes).items():
                self.low[number, feature], self.high[number, feature] = cells
        self._copy_factors(rows)
        self._copy_pairs()
        self.gain = self._gains()
        self.multiplier = self._multipliers()
        self._score_leaves()
        self.total = np.array(
            [prover.problem(node.row, node.way).constant for node in nodes], dtype=self.gain.dtype
        )
        np.add.at(self.total, self.factor_node, self.best)
        inside = ranges(self.first, self.last - self.first + 1)
        key, value = self._sums_over_cells(inside, -self.multiplier)
        group = key // self.n_cells
        start = begins(group)
        self.feature_key = group[start]
        self.feature_peak = np.maximum.reduceat(value, start) if len(start) else value
        np.add.at(self.total, self.feature_key // self.low.shape[1], self.feature_peak)

    def _copy_factors(self, rows: Ints) -> None:
        """Factors of each node's way, and their pieces."""
        regions, forest = self.prover.regions, self.prover.forest
        node, factor = spread(regions.row_factors, rows)
        self.weight = np.zeros((len(rows), forest.ensemble.n_outputs), dtype=np.int64)
        for number, entry in enumerate(self.nodes):
            weights = self.prover.ways[entry.row][entry.way].weights
            self.weight[number, list(weights)] = list(weights.values())
        output = forest.trees.tree_output[regions.factor_tree[factor]]
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
        self.segment_cell = regions.segment_cell[segment]
        self.pair_feature = regions.pair_feature[pair]
        self.n_cells = len(self.prover.forest.keys) + 1
        at = (self.factor_node[self.pair_factor], self.pair_feature)
        self.pair_low = self.low[at]
        self.first, self.last = (
            np.add.reduceat(self.segment_cell <= end[self.segment_pair], self.pair_segments,
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
        """What each piece adds to the sum of its node's way, rounded up."""
        forest, exact = self.prover.forest, self.prover.exact
        leaf, weights = self.prover.regions.leaf[self.piece], self.weight[self.factor_node]
        tree = self.prover.regions.factor_tree[self.factor][self.piece_factor]
        is_vector = forest.value.shape[1] > 1
        outputs = np.flatnonzero(self.weight.any(axis=0)).tolist() if is_vector else [0]
        gain = np.zeros(len(leaf), dtype=object if exact else np.int64)
        for output in outputs:
            own = output if is_vector else np.maximum(forest.trees.tree_output[tree], 0)
            weight = weights[self.piece_factor, own]
            down, up = forest.integers(leaf, output, exact=exact)
            gain = gain + weight * np.where(weight > 0, up, down)
        return gain

    def _multipliers(self) -> Ints:
        """One number for each segment: those of the proof, or those that gains imply."""
        forest, exact = self.prover.forest, self.prover.exact
        unit = forest.exponent + (0 if exact else forest.shift)
        found = np.zeros(len(self.segment_pair), dtype=self.gain.dtype)
        self.overflows = np.zeros(len(self.nodes), dtype=bool)
        priced = np.array([node.prices is not None for node in self.nodes])
        factor = self.pair_factor[self.segment_pair]
        listed = priced[self.factor_node[factor]] & ~self.is_single[factor]
        listed[self.pair_segments] = False
        values = [np.zeros(0, dtype=np.int64)]
        for number, node in enumerate(self.nodes):
            if node.prices is None:
                continue
            exponent, size, at = node.prices
            count = self.prover.problem(node.row, node.way).n_prices
            proof = self.prover.claims[node.row].proof
            numbers = np.frombuffer(proof, f"<i{size}", count, at).astype(found.dtype)
            largest = int(np.abs(numbers).max(initial=0))
            if not exact and (exponent < unit or largest << min(exponent - unit, 62) >= 1 << 60):
                self.overflows[number], largest = True, 0
            values.append(numbers << exponent - unit if largest else numbers * 0)
        found[listed] = np.concatenate(values)
        # Segments of trees with one feature that lie in the box are held by one leaf each.
        single = self.is_single[self.pair_factor[self.entry_pair]]
        single &= self.entry_first <= self.entry_last
        first, gain = self.entry_first[single], self.gain[self.entry_piece[single]]
        count = self.entry_last[single] - first + 1
        found[ranges(first, count)] = np.repeat(-gain, count)
        if not exact and len(found):
            node = self.factor_node[self.pair_factor]
            peaks = np.maximum.reduceat(np.abs(found), self.pair_segments).astype(np.float64)
            self.overflows |= np.bincount(node, peaks, len(self.nodes)) >= 2.0**60
            found[self.overflows[node[self.segment_pair]]] = 0
        return found

    def _score_leaves(self) -> None:
        """Gain plus multipliers of each piece that meets its node's box, and each factor's best."""
        self.meets = np.ones(len(self.piece), dtype=bool)
        self.meets[self.entry_piece[self.entry_first > self.entry_last]] = False
        self.pair_peak = _largest(self.multiplier, self.first, self.last)
        some = np.flatnonzero(self.meets[self.entry_piece])
        self.entry_peak = np.zeros(len(self.entry_piece), dtype=self.gain.dtype)
        first, last = self.entry_first[some], self.entry_last[some]
        self.entry_peak[some] = _largest(self.multiplier, first, last)
        # Features that a leaf does not narrow count with their largest multiplier, too.
        everything = np.zeros(len(self.factor), dtype=self.gain.dtype)
        np.add.at(everything, self.pair_factor, self.pair_peak)
        self.score = self.gain + everything[self.piece_factor]
        more = self.entry_peak[some] - self.pair_peak[self.entry_pair[some]]
        np.add.at(self.score, self.entry_piece[some], more)
        met = np.flatnonzero(self.meets)
        start = begins(self.piece_factor[met])
        # Sound: the pieces of a factor divide its box, so every factor has one that meets it.
        require(len(start) == len(self.factor), "proof: a tree has no leaf in a box")
        self.best = np.maximum.reduceat(self.score[met], start) if len(start) else self.gain

    def _sums_over_cells(self, segment: Ints, value: Ints) -> tuple[Ints, Ints]:
        """Sums over the pairs of a feature of a value per segment, wherever they change.

        Returns node * n_features + feature, times n_cells, plus the first cell of each stretch, in
        order; and the sum there.
        """
        pair = self.segment_pair[segment]
        cell = np.maximum(self.segment_cell[segment], self.pair_low[pair])
        feature = self.factor_node[self.pair_factor[pair]] * self.low.shape[1]
        key = (feature + self.pair_feature[pair]) * self.n_cells + cell
        change = value[segment]
        change[1:] -= np.where(pair[1:] == pair[:-1], value[segment[:-1]], 0)
        order = np.argsort(key)
        key, change = key[order], change[order]
        start = begins(key // self.n_cells)
        if len(start):
            # Each feature's sums begin anew: what those before it add up to is taken off.
            change[start[1:]] -= np.add.reduceat(change, start)[:-1]
        last = np.append(begins(key)[1:], len(key)) - 1 if len(key) else start
        return key[last], np.cumsum(change)[last]

    def largest_outside(self, number: int, feature: int, low: int, high: int) -> int:
        """Largest bound with a feature held to one cell, over its cells outside a range."""
        total, group = self.total[number], number * self.low.shape[1] + feature
        at = np.searchsorted(self.feature_key, group)
        if at == len(self.feature_key) or self.feature_key[at] != group:
            return int(total)
        key, value = self._held
        first, last = np.searchsorted(key, [group * self.n_cells, (group + 1) * self.n_cells])
        start = key[first:last] - group * self.n_cells
        end = np.append(start[1:] - 1, self.high[number, feature])
        outside = (start < low) | (end > high)
        return int(total - self.feature_peak[at] + value[first:last][outside].max())

    @cached_property
    def _held(self) -> tuple[Ints, Ints]:
        """What a feature and the trees that test it add with the feature held to each cell.

        Minus the multipliers, plus by how much the best of each tree falls; only of features that
        nodes trim; as `_sums_over_cells` gives it.
        """
        trimmed = np.zeros(self.low.shape, dtype=bool)
        for number, node in enumerate(self.nodes):
            trimmed[number, [feature for feature, _ in node.trims]] = True
        pair = np.flatnonzero(trimmed[self.factor_node[self.pair_factor], self.pair_feature])
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
        return self._sums_over_cells(segment, value)

    def pieces_met(self) -> Pieces:
        """Leaves that the box of the only node meets, with what their ranges leave of it."""
        met = np.flatnonzero(self.meets)
        place = np.cumsum(self.meets) - 1
        entry = np.flatnonzero(self.meets[self.entry_piece])
        pair, last = self.entry_pair[entry], self.entry_last[entry]
        feature = self.pair_feature[pair]
        after = np.minimum(last + 1, len(self.segment_cell) - 1)
        high = np.where(
            last == self.last[pair], self.high[0, feature], self.segment_cell[after] - 1
        )
        return Pieces(
            leaf=self.prover.regions.leaf[self.piece[met]],
            tree=self.piece_factor[met],
            gain=self.gain[met],
            piece=place[self.entry_piece[entry]],
            feature=feature,
            low=np.maximum(self.segment_cell[self.entry_first[entry]], self.pair_low[pair]),
            high=high,
        )

    def leaves_met(self, number: int) -> tuple[Ints, Ints]:
        """Trees of a node's way that had several leaves at first, with those that its box meets."""
        met = np.flatnonzero(self.meets & (self.factor_node[self.piece_factor] == number))
        tree = self.prover.regions.factor_tree[self.factor[self.piece_factor[met]]]
        return tree, self.prover.regions.leaf[self.piece[met]]


def _largest(values: Ints, first: Ints, last: Ints) -> Ints:
    """Largest value of each range, which has at least one."""
    count = last - first + 1
    if not len(count) or count.max() == 1:
        return values[first]
    return np.maximum.reduceat(values[ranges(first, count)], np.cumsum(count) - count)


def _last_changes(changes: Changes) -> dict[int, tuple[int, int]]:
    """The cells that are left of each changed feature; the last change of a feature counts."""
    last: dict[int, tuple[int, int]] = {}
    while changes:
        feature, cells, changes = changes
        last.setdefault(feature, cells)
    return last


def _range(low: Ints, high: Ints, changes: Changes, feature: int) -> tuple[int, int]:
    """The cells of a feature in a changed box; 0 and -1 where it does not move."""
    while changes:
        if changes[0] == feature:
            return changes[1]
        changes = changes[2]
    return (int(low[feature]), int(high[feature])) if 0 <= feature < len(low) else (0, -1)


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

    def take(self, form: str) -> tuple[int, ...]:
        """Read numbers of a struct format."""
        at = self.at
        self.skip(struct.calcsize("<" + form))
        return struct.unpack_from("<" + form, self.data, at)

    def skip(self, size: int) -> None:
        """Go on by so many bytes."""
        require(self.at + size <= len(self.data), f"byte {self.at}: the proof is cut off")
        self.at += size

    def prices(self, count: int, unit_exponent: int) -> tuple[int, int, int]:
        """Exponent, size and place of multipliers; they are in units of the model or coarser."""
        exponent, size = self.take("hB")
        require(exponent >= unit_exponent, f"byte {self.at}: multipliers finer than the unit")
        require(exponent < 2048 and size in (1, 2, 4), f"byte {self.at}: no such multipliers")
        place = self.at
        self.skip(count * size)
        return exponent, size, place


def _trims(
    reader: Reader, low: Ints, high: Ints, changes: Changes, place: str
) -> dict[int, tuple[int, int]]:
    """Read what a trimmed node leaves of features, each of which must lose a cell."""
    left: dict[int, tuple[int, int]] = {}
    (count,) = reader.take("I")
    require(count > 0, f"{place}: nothing is trimmed")
    for _ in range(count):
        feature, begin, end = reader.take("iii")
        first, last = _range(low, high, changes, feature)
        require(first <= last, f"{place}: feature {feature} does not move")
        fewer = first <= begin <= end + 1 <= last + 1 and (begin, end) != (first, last)
        require(fewer and feature not in left, f"{place}: feature {feature} does not shrink")
        left[feature] = (begin, end)
    return left
