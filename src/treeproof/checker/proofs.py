"""Proofs: a tree of boxes, closed by bounds from multipliers, in integers.

For any multipliers λ the sum of a way at every point of a box is at most

    constant + Σ over trees of max over leaves [gain + Σ over the tree's features of max λ]
             + Σ over features of max over cells [− Σ over trees of λ].
"""

import struct
from bisect import bisect_right
from itertools import accumulate, islice

from treeproof.checker.claims import Claim, Way, floor_of, happens, require
from treeproof.checker.forest import Box, Forest

Multipliers = list[list[int]]
"""Of one tree: for each of its features, one multiplier per segment."""

Spans = list[tuple[int, int]]
"""First and last segment of each feature that a box meets."""

Met = dict[int, list[tuple[int, Box]]]
"""Of each tree the leaves that a box meets."""

Changes = tuple[()] | tuple[int, tuple[int, int], "Changes"]
"""The last change of a box, feature and cells that are left, and those before it."""


class Factor:
    """A tree in a box: its features, their segments by first cell, its leaves in segments."""

    def __init__(self, pieces: list[tuple[int, Box]], features: list[int], box: Box) -> None:
        self.features = features
        self.starts: list[list[int]] = []
        for feature in features:
            own = [ranges[feature] for _, ranges in pieces if feature in ranges]
            low, high = box[feature]
            starts = {low, *(a for a, _ in own), *(b + 1 for _, b in own)} - {high + 1}
            self.starts.append(sorted(starts))
        self.leaves: list[tuple[int, list[tuple[int, int, int]]]] = []
        for gain, ranges in pieces:
            entries = [
                (p, *span(self.starts[p], ranges[feature]))
                for p, feature in enumerate(features)
                if feature in ranges
            ]
            self.leaves.append((gain, entries))
        # A tree with one feature is a term of its cells: each segment's multiplier is minus the
        # gain of the leaf that holds it. Such multipliers are not part of a proof.
        self.implied: Multipliers | None = None
        if len(features) == 1:
            gains = {s: gain for gain, ((_, a, b),) in self.leaves for s in range(a, b + 1)}
            self.implied = [[-gains[segment] for segment in sorted(gains)]]

    def scores(self, box: Box, values: Multipliers) -> tuple[Spans, list[int | None]]:
        """Gain plus multipliers of each leaf, None where it does not meet a box; and the spans."""
        spans = [span(s, box[f]) for s, f in zip(self.starts, self.features, strict=True)]
        peaks = [max(v[a : b + 1]) for v, (a, b) in zip(values, spans, strict=True)]
        everything, scores = sum(peaks), []
        for gain, entries in self.leaves:
            # Features that the leaf does not narrow count with their largest multiplier, too.
            score: int | None = gain + everything
            for p, first, last in entries:
                low, high = max(spans[p][0], first), min(spans[p][1], last)
                if low > high:
                    score = None
                    break
                score += max(values[p][low : high + 1]) - peaks[p]  # type: ignore[operator]
            scores.append(score)
        return spans, scores

    def best(self, box: Box, values: Multipliers) -> int:
        """Largest gain plus multipliers over the leaves that meet a box."""
        return max(score for score in self.scores(box, values)[1] if score is not None)

    def held(self, feature: int, box: Box, values: Multipliers) -> dict[int, int]:
        """As `best`, with a feature held to each of its segments in the box, by first cell."""
        p = self.features.index(feature)
        spans, scores = self.scores(box, values)
        best: dict[int, int] = {}
        for (_, entries), score in zip(self.leaves, scores, strict=True):
            if score is None:
                continue
            first, last = next(((a, b) for q, a, b in entries if q == p), spans[p])
            first, last = max(first, spans[p][0]), min(last, spans[p][1])
            others = score - max(values[p][first : last + 1])
            for segment in range(first, last + 1):
                at, new = self.starts[p][segment], others + values[p][segment]
                best[at] = max(best.get(at, new), new)
        return best


def span(starts: list[int], cells: tuple[int, int]) -> tuple[int, int]:
    """First and last segment that a range of cells meets."""
    return bisect_right(starts, cells[0]) - 1, bisect_right(starts, cells[1]) - 1


class Sums:
    """The sum of one way over a box: a constant and factors; and its floor."""

    def __init__(
        self, forest: Forest, claim: Claim, way: Way, box: Box, met: Met | None = None
    ) -> None:
        met = {} if met is None else met
        self.factors: list[Factor] = []
        self.constant = sum(w * forest.start[o] for o, w in way.weights.items())
        self.trees = [t for t, o in enumerate(forest.output) if o < 0 or o in way.weights]
        low = {o: forest.start[o] for o in way.weights}
        high, errors = dict(low), dict.fromkeys(low, 0)
        peaks = {o: abs(start) for o, start in low.items()}
        every, largest_exact = [(o, o) for o in low], forest.grid << forest.bits
        for tree in self.trees:
            own = forest.output[tree]
            if tree not in met:
                met[tree] = list(forest.pieces(tree, claim.row, box))
            found = met[tree]
            gains = [0] * len(found)
            for o, column in every if own < 0 else [(own, 0)]:
                values = [forest.integers[leaf][column] for leaf, _ in found]
                low[o] += min(values)
                high[o] += max(values)
                largest = max(-low[o], high[o])
                peaks[o] = max(peaks[o], largest)
                # Sound: a sum rounds by at most its 2**-bits, and not at all while partial sums
                # are multiples of the grid that fit into the bits.
                if errors[o] or largest > largest_exact:
                    errors[o] -= -(errors[o] + largest) >> forest.bits
                weight = way.weights[o]
                gains = [gain + weight * v for gain, v in zip(gains, values, strict=True)]
            features = sorted(set().union(*(ranges for _, ranges in found)))
            if features:
                pieces = [(gain, ranges) for gain, (_, ranges) in zip(gains, found, strict=True)]
                self.factors.append(Factor(pieces, features, box))
            else:
                self.constant += gains[0]
        most = max(peaks[o] + errors[o] for o in low) * forest.unit
        require(most < 2 ** (127 if forest.bits == 24 else 1023), f"{way.name}: sums overflow")
        self.floor = floor_of(forest, way, errors, peaks)


class Bound:
    """The bound of a box with given multipliers, one list per factor."""

    def __init__(self, sums: Sums, box: Box, multipliers: list[Multipliers]) -> None:
        self.box = box
        self.users: dict[int, list[tuple[Factor, Multipliers, int]]] = {}
        self.total = sums.constant
        for factor, values in zip(sums.factors, multipliers, strict=True):
            best = factor.best(box, values)
            for feature in factor.features:
                self.users.setdefault(feature, []).append((factor, values, best))
            self.total += best
        self.changes = {feature: self._changes(feature) for feature in self.users}
        self.peak = {
            feature: max(accumulate(changes[at] for at in sorted(changes)))
            for feature, changes in self.changes.items()
        }
        self.total += sum(self.peak.values())

    def _changes(self, feature: int) -> dict[int, int]:
        """Minus the sum of all multipliers of a feature, as its changes at cells of the box."""
        low, high = self.box[feature]
        changes = {low: 0}
        for factor, values, _ in self.users[feature]:
            p = factor.features.index(feature)
            first, last = span(factor.starts[p], (low, high))
            before = 0
            for segment in range(first, last + 1):
                at = max(factor.starts[p][segment], low)
                changes[at] = changes.get(at, 0) - values[p][segment] + before
                before = values[p][segment]
        return changes

    def largest_outside(self, feature: int, low: int, high: int) -> int:
        """Largest bound with a feature held to one cell, over its cells outside a range."""
        changes = dict(self.changes.get(feature, {self.box[feature][0]: 0}))
        for factor, values, best in self.users.get(feature, []):
            before = best
            for start, held in sorted(factor.held(feature, self.box, values).items()):
                at = max(start, self.box[feature][0])
                changes[at] += held - before
                before = held
        base = self.total - self.peak.get(feature, 0)
        starts = sorted(changes)
        ends = [start - 1 for start in starts[1:]] + [self.box[feature][1]]
        bounds = zip(starts, ends, accumulate(changes[at] for at in starts), strict=True)
        return max(base + value for start, end, value in bounds if start < low or end > high)


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
        size = struct.calcsize("<" + form)
        require(self.at + size <= len(self.data), f"byte {self.at}: the proof is cut off")
        numbers: tuple[int, ...] = struct.unpack_from("<" + form, self.data, self.at)
        self.at += size
        return numbers

    def multipliers(self, factors: list[Factor], unit_exponent: int) -> list[Multipliers]:
        """Read multipliers, in units; the first of each feature is 0, implied ones are not read."""
        exponent, size = self.take("hB")
        require(exponent >= unit_exponent, f"byte {self.at}: multipliers finer than the unit")
        require(exponent < 2048 and size in (1, 2, 4), f"byte {self.at}: no such multipliers")
        count = sum(len(s) - 1 for f in factors if not f.implied for s in f.starts)
        shift = exponent - unit_exponent
        numbers = iter([n << shift for n in self.take(f"{count}{' bh i'[size]}")])
        return [f.implied or [[0, *islice(numbers, len(s) - 1)] for s in f.starts] for f in factors]


def check_way(
    forest: Forest, claim: Claim, way: Way, root: Box, reader: Reader, met: Met | None = None
) -> None:
    """Read the proof of one way over a box; reject it unless it is one.

    met : the leaves of trees that the box meets, so far as they are known from other ways.
    """
    sums = Sums(forest, claim, way, root, met)
    zero = [f.implied or [[0] * len(starts) for starts in f.starts] for f in sums.factors]
    # Boxes wait as what was changed on the way to them, which they share.
    pending: list[Changes] = [()]
    while pending:
        changes, place = pending.pop(), f"{way.name}, byte {reader.at}"
        box, letter = _changed(root, changes), reader.letter()
        if letter in "PL":
            values = reader.multipliers(sums.factors, forest.exponent) if letter == "L" else zero
            bound = Bound(sums, box, values).total
            require(bound < sums.floor, f"{place}: bound {bound} is not below {sums.floor}")
        elif letter == "S":
            feature, cut = reader.take("ii")
            inside = feature in box and box[feature][0] <= cut < box[feature][1]
            require(inside, f"{place}: cut {cut} is not inside feature {feature}")
            low, high = box[feature]
            pending += [(feature, (cut + 1, high), changes), (feature, (low, cut), changes)]
        elif letter == "T":
            values = reader.multipliers(sums.factors, forest.exponent)
            left = _trim(Bound(sums, box, values), sums.floor, reader, place)
            if all(low <= high for low, high in left.values()):
                for feature, cells in left.items():
                    changes = (feature, cells, changes)
                pending.append(changes)
        else:
            require(letter == "E", f"{place}: unknown node {letter!r}")
            leaves = [_only_leaf(forest, tree, claim, box, place) for tree in sums.trees]
            totals = forest.rounded_sums(leaves)
            require(not happens(forest, way, totals), f"{place}: the model's own sums break it")


def _only_leaf(forest: Forest, tree: int, claim: Claim, box: Box, place: str) -> tuple[int, int]:
    found = [leaf for leaf, _ in forest.pieces(tree, claim.row, box)]
    require(len(found) == 1, f"{place}: tree {tree} has {len(found)} leaves here")
    return tree, found[0]


def _changed(box: Box, changes: Changes) -> Box:
    """The box after changes, of which the last of a feature counts."""
    last: Box = {}
    while changes:
        feature, cells, changes = changes
        last.setdefault(feature, cells)
    return {**box, **last}


def _trim(bound: Bound, floor: int, reader: Reader, place: str) -> Box:
    """What is left of features after cells that the bound excludes one by one are taken off."""
    left: Box = {}
    (count,) = reader.take("I")
    require(count > 0, f"{place}: nothing is trimmed")
    for _ in range(count):
        feature, low, high = reader.take("iii")
        require(feature in bound.box, f"{place}: feature {feature} does not move")
        first, last = bound.box[feature]
        fewer = first <= low <= high + 1 <= last + 1 and (low, high) != (first, last)
        require(fewer and feature not in left, f"{place}: feature {feature} does not shrink")
        worst = bound.largest_outside(feature, low, high)
        require(worst < floor, f"{place}: feature {feature}, {worst} >= {floor}")
        left[feature] = (low, high)
    return left
