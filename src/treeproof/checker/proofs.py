"""Proofs: a tree of boxes, closed by bounds from multipliers, in integers.

For any multipliers λ the value of every point of a box is at most

    constant + Σ over trees of max over leaves [gain + Σ over the tree's features of max λ]
             + Σ over features of max over cells [one-feature trees − Σ over trees of λ].
"""

import struct
from bisect import bisect_right

from treeproof.checker.claims import Claim, Way, floor_of, happens, require
from treeproof.checker.forest import Box, Forest

Steps = tuple[list[int], list[int]]
"""A step function: first cells of its steps, and their values."""

Leaf = tuple[int, list[tuple[int, int, int]]]
"""Gain of a leaf, and for each feature that it narrows its place, first and last segment."""


class Factor:
    """A tree with several features in a box: their segments, and leaves as segment ranges."""

    def __init__(self, pieces: list[tuple[int, Box]], features: list[int], box: Box) -> None:
        self.features = features
        self.starts: list[list[int]] = []
        for feature in features:
            own = [ranges[feature] for _, ranges in pieces if feature in ranges]
            low, high = box[feature]
            starts = {low, *(a for a, _ in own), *(b + 1 for _, b in own)} - {high + 1}
            self.starts.append(sorted(starts))
        place = {feature: number for number, feature in enumerate(features)}
        number = [{start: i for i, start in enumerate(starts)} for starts in self.starts]
        self.leaves: list[Leaf] = []
        for gain, ranges in pieces:
            entries = []
            for feature, (low, high) in ranges.items():
                p = place[feature]
                last = number[p].get(high + 1, len(self.starts[p])) - 1
                entries.append((p, number[p][low], last))
            self.leaves.append((gain, entries))

    def scores(self, spans: list[tuple[int, int]], values: list[list[int]]) -> list[int | None]:
        """Gain plus largest multipliers of every leaf; None where it does not meet the box."""
        peaks = [max(v[a : b + 1]) for v, (a, b) in zip(values, spans, strict=True)]
        everything = sum(peaks)
        scores: list[int | None] = []
        for gain, entries in self.leaves:
            score: int | None = gain + everything
            for p, first, last in entries:
                low, high = spans[p]
                low, high = max(low, first), min(high, last)
                if low > high:
                    score = None
                    break
                score += max(values[p][low : high + 1]) - peaks[p]  # type: ignore[operator]
            scores.append(score)
        return scores

    def marginals(
        self, p: int, spans: list[tuple[int, int]], values: list[list[int]]
    ) -> list[int | None]:
        """Per segment of a feature: the best score of a leaf that is held to this segment."""
        best: list[int | None] = [None] * len(self.starts[p])
        low, high = spans[p]
        for (_, entries), score in zip(self.leaves, self.scores(spans, values), strict=True):
            if score is None:
                continue
            first, last = next(((a, b) for q, a, b in entries if q == p), (low, high))
            first, last = max(first, low), min(last, high)
            others = score - max(values[p][first : last + 1])
            for segment in range(first, last + 1):
                held = others + values[p][segment]
                before = best[segment]
                best[segment] = held if before is None else max(before, held)
        return best


def span(starts: list[int], cells: tuple[int, int]) -> tuple[int, int]:
    """First and last step that a range of cells meets."""
    return bisect_right(starts, cells[0]) - 1, bisect_right(starts, cells[1]) - 1


def added(functions: list[Steps], cells: tuple[int, int]) -> Steps:
    """Sum of step functions over a range of cells."""
    changes: dict[int, int] = {cells[0]: 0}
    for starts, values in functions:
        first, last = span(starts, cells)
        before = 0
        for step in range(first, last + 1):
            at = max(starts[step], cells[0])
            changes[at] = changes.get(at, 0) + values[step] - before
            before = values[step]
    places, total, sums = sorted(changes), 0, []
    for at in places:
        total += changes[at]
        sums.append(total)
    return places, sums


class Sums:
    """The sum of one way over a box: a constant, one-feature trees, and factors."""

    def __init__(self, forest: Forest, claim: Claim, way: Way, box: Box) -> None:
        self.factors: list[Factor] = []
        self.single: dict[int, list[Steps]] = {}
        self.constant = sum(w * forest.start[o] for o, w in way.weights.items())
        self.trees = [t for t, o in enumerate(forest.output) if o < 0 or o in way.weights]
        low = {o: forest.start[o] for o in way.weights}
        high, errors, peaks = dict(low), dict.fromkeys(low, 0), dict.fromkeys(low, 0)
        for tree in self.trees:
            found = list(forest.pieces(tree, claim.row, box))
            own = forest.output[tree]
            gains = []
            for leaf, ranges in found:
                values = forest.integers[leaf]
                if own >= 0:
                    gains.append((way.weights[own] * values[0], ranges))
                else:
                    gains.append((sum(w * values[o] for o, w in way.weights.items()), ranges))
            for o in low if own < 0 else (own,):
                values = [forest.integers[leaf][o if own < 0 else 0] for leaf, _ in found]
                low[o] += min(values)
                high[o] += max(values)
                peaks[o] = max(peaks[o], -low[o], high[o])
                # Sound: a sum rounds by at most its 2**-bits, and not at all while partial sums
                # are multiples of the grid that fit into the bits.
                if errors[o] or max(-low[o], high[o]) > forest.grid << forest.bits:
                    errors[o] -= -(errors[o] + max(-low[o], high[o])) >> forest.bits
            self._add(gains, box)
        largest = max(peaks[o] + errors[o] for o in low) * forest.unit
        require(largest < 2 ** (127 if forest.bits == 24 else 1023), f"{way.name}: sums overflow")
        self.floor = floor_of(forest, way, errors, peaks)

    def _add(self, pieces: list[tuple[int, Box]], box: Box) -> None:
        features = sorted({feature for _, ranges in pieces for feature in ranges})
        if not features:
            self.constant += pieces[0][0]
        elif len(features) == 1:
            steps = sorted((ranges[features[0]][0], gain) for gain, ranges in pieces)
            self.single.setdefault(features[0], []).append(
                ([start for start, _ in steps], [gain for _, gain in steps])
            )
        else:
            self.factors.append(Factor(pieces, features, box))

    def n_multipliers(self) -> int:
        """Multipliers that a node carries: all segments of a pair but the first, which has 0."""
        return sum(len(starts) - 1 for factor in self.factors for starts in factor.starts)


class Bound:
    """The bound of a box with given multipliers, per factor, feature and segment."""

    def __init__(self, sums: Sums, box: Box, multipliers: list[list[list[int]]]) -> None:
        self.sums, self.box, self.multipliers = sums, box, multipliers
        self.rest = {feature: list(steps) for feature, steps in sums.single.items()}
        self.spans, self.best = [], []
        total = sums.constant
        for factor, values in zip(sums.factors, multipliers, strict=True):
            spans = [span(s, box[f]) for s, f in zip(factor.starts, factor.features, strict=True)]
            best = max(score for score in factor.scores(spans, values) if score is not None)
            for feature, starts, row in zip(factor.features, factor.starts, values, strict=True):
                self.rest.setdefault(feature, []).append((starts, [-value for value in row]))
            self.spans.append(spans)
            self.best.append(best)
            total += best
        self.peak = {f: max(added(steps, box[f])[1]) for f, steps in self.rest.items()}
        self.total = total + sum(self.peak.values())

    def largest_outside(self, feature: int, low: int, high: int) -> int | None:
        """Largest bound with a feature held to one cell, over its cells outside a range."""
        functions = list(self.rest.get(feature, []))
        for factor, values, spans, best in zip(
            self.sums.factors, self.multipliers, self.spans, self.best, strict=True
        ):
            if feature in factor.features:
                p = factor.features.index(feature)
                held = factor.marginals(p, spans, values)
                functions.append((factor.starts[p], [0 if m is None else m - best for m in held]))
        starts, values_ = added(functions, self.box[feature])
        ends = [*starts[1:], self.box[feature][1] + 1]
        outside = [
            value
            for start, end, value in zip(starts, ends, values_, strict=True)
            if start < low or end - 1 > high
        ]
        base = self.total - self.peak.get(feature, 0)
        return base + max(outside) if outside else None


class Reader:
    """Reads the nodes of a proof."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> tuple[int, ...]:
        """Read numbers of a struct format."""
        size = struct.calcsize("<" + form)
        require(self.at + size <= len(self.data), f"byte {self.at}: the proof is cut off")
        numbers: tuple[int, ...] = struct.unpack_from("<" + form, self.data, self.at)
        self.at += size
        return numbers

    def multipliers(self, sums: Sums, unit_exponent: int) -> list[list[list[int]]]:
        """Read one multiplier per factor, feature and segment, as units."""
        exponent, size = self.take("hB")
        require(exponent >= unit_exponent, f"byte {self.at}: multipliers finer than the unit")
        require(exponent < 2048 and size in (1, 2, 4), f"byte {self.at}: no such multipliers")
        form = f"{sums.n_multipliers()}{' bh i'[size]}"
        shift = exponent - unit_exponent
        values = iter([value << shift for value in self.take(form)])
        return [
            [[0, *(next(values) for _ in range(len(starts) - 1))] for starts in factor.starts]
            for factor in sums.factors
        ]


def check_way(forest: Forest, claim: Claim, way: Way, box: Box, reader: Reader) -> None:
    """Read the proof of one way over a box; reject it unless it is one."""
    sums = Sums(forest, claim, way, box)
    zero = [[[0] * len(starts) for starts in factor.starts] for factor in sums.factors]
    pending = [box]
    while pending:
        box, place = pending.pop(), f"{way.name}, byte {reader.at}"
        letter = chr(*reader.take("B"))
        if letter in "PL":
            values = zero if letter == "P" else reader.multipliers(sums, forest.exponent)
            bound = Bound(sums, box, values).total
            require(bound < sums.floor, f"{place}: bound {bound} is not below {sums.floor}")
        elif letter == "S":
            feature, cut = reader.take("ii")
            low, high = box.get(feature, (0, -1))
            require(low <= cut < high, f"{place}: cut {cut} is not inside feature {feature}")
            pending += [{**box, feature: (cut + 1, high)}, {**box, feature: (low, cut)}]
        elif letter == "T":
            left = _trim(Bound(sums, box, reader.multipliers(sums, forest.exponent)), reader, place)
            pending += [] if left is None else [left]
        else:
            require(letter == "E", f"{place}: unknown node {letter!r}")
            totals = forest.rounded_sums(claim.row, box, sums.trees, place)
            require(not happens(forest, way, totals), f"{place}: the model's own sums break it")


def _trim(bound: Bound, reader: Reader, place: str) -> Box | None:
    """Take cells off that the bound excludes one by one; None when a feature has none left."""
    left = dict(bound.box)
    (count,) = reader.take("I")
    is_closed = False
    for _ in range(count):
        feature, low, high = reader.take("iii")
        require(feature in left, f"{place}: feature {feature} does not move")
        first, last = bound.box[feature]
        require(first <= low <= high + 1 <= last + 1, f"{place}: feature {feature} grows")
        worst = bound.largest_outside(feature, low, high)
        floor = bound.sums.floor
        require(worst is None or worst < floor, f"{place}: feature {feature}, {worst} >= {floor}")
        left[feature] = (low, high)
        is_closed |= low > high
    return None if is_closed else left
