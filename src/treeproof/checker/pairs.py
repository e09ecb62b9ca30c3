"""Proofs about pairs of rows: difference trees derived from the model, bounds in integers.

A statement says of all pairs of rows of a box, which agree in all features but some, that a sum of
the one row minus that of the other stays below a bound, or that no pair passes two needs at once.
Nothing of the engine is used: cells, leaves of pairs, rounding and needs are worked out here.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.checker.claims import Amounts, Way, floor_of, require
from treeproof.checker.domains import Domain
from treeproof.checker.forest import Forest
from treeproof.checker.regions import rounding_errors
from treeproof.model import evaluate
from treeproof.model.ensemble import CATEGORICAL, ZERO_BAND, ZERO_IS_MISSING, Ensemble

Range = tuple[int, int]
EXTRA_BITS = 40
"""Errors of rounding are counted in parts of a model's step, of which there are 2 to this."""
WEIGHTS = 256
"""Mixtures of two needs have weights in so many parts."""


class Relation(NamedTuple):
    """How the changed features of two rows are related: "", "rising" or "near", by at most.

    Of "models" the only one that changes tells two models apart, in cells 0 and 1.
    """

    kind: str
    widths: tuple[Fraction, ...] = ()


class Cells:
    """Cells of every feature of a domain, and what each node does with them.

    Of a number: between neighbouring thresholds of the domain. Of a category: codes that no node
    tells apart, in the order of their first codes. What is missing has a cell of its own, the last.
    """

    def __init__(self, ensemble: Ensemble, domain: Domain, changed: tuple[int, ...]) -> None:
        trees = ensemble.trees
        self.trees, self.n_features = trees, ensemble.n_features
        self.starts: list[list[float]] = []
        self.ends: list[list[float]] = []
        self.points: list[list[float]] = []  # one value of each cell
        self.n_numbers: list[int] = []
        self.box: dict[int, Range] = {}
        self.runs: dict[int, list[tuple[int, int, bool]]] = {}
        for feature in range(ensemble.n_features):
            nodes = np.flatnonzero(trees.feature == feature)
            row = math.nan if domain.row is None else float(domain.row[feature])
            is_fixed_missing = domain.row is not None and math.isnan(row)
            if ensemble.is_categorical[feature]:
                is_free = domain.row is None or feature in changed or feature in domain.values
                values = _codes(ensemble, domain, feature, is_free=is_free)
                sides = _sides(ensemble, nodes, np.array(values))
                firsts = [c for c in range(len(values)) if not any(
                    (sides[:, c] == sides[:, d]).all() for d in range(c))]  # fmt: skip
                starts: list[float] = []
                points = [values[c] for c in firsts]
                home = 0
                if domain.row is not None and not is_fixed_missing:
                    own = sides[:, values.index(row)]
                    home = next(n for n, c in enumerate(firsts) if (sides[:, c] == own).all())
                ends = (0, len(points) - 1) if is_free else (home, home)
            else:
                starts = _thresholds(ensemble, nodes, domain, feature)
                least = domain.numbers_from(feature, -math.inf)
                # Sound: without a threshold between any two of its numbers, one stands for all.
                # It is one of them: where both ends are the same infinity, that is the only one.
                first = (
                    least if math.isfinite(least) else min(max(0.0, least), domain.high[feature])
                )
                points = [domain.numbers_below(feature, starts[0]) if starts else first, *starts]
                # All thresholds are above the lower end, and none is above the upper one.
                ends = (0, len(starts))
            self.n_numbers.append(len(points))
            if feature in domain.missing or is_fixed_missing:
                points.append(math.nan)
                ends = (ends[0], len(points) - 1)
            if is_fixed_missing:
                ends = (len(points) - 1, len(points) - 1)
            self.starts.append(starts)
            self.ends.append([domain.numbers_below(feature, start) for start in starts])
            self.box[feature] = ends
            self.points.append(points)
            sides = _sides(ensemble, nodes, np.array(points))
            for place, node in enumerate(nodes.tolist()):
                self.runs[node] = _runs(sides[place].tolist())

    def related(self, feature: int, relation: Relation) -> list[Range]:
        """For each cell of the first row, the cells of the second row that it goes with."""
        n = self.n_numbers[feature]
        table = [(cell, cell) for cell in range(self.box[feature][1] + 1)]
        for cell in range(min(n, len(table))):
            if relation.kind == "rising":
                table[cell] = (cell, n - 1)
            else:
                table[cell] = (
                    min(c for c in range(n) if self._are_near(c, cell, relation, feature)),
                    max(c for c in range(n) if self._are_near(cell, c, relation, feature)),
                )
        return table

    def _are_near(self, lower: int, upper: int, relation: Relation, feature: int) -> bool:
        """Whether some numbers of two cells are near; of the same cell always."""
        if lower >= upper:
            return lower == upper
        start, end = self.starts[feature][upper - 1], self.ends[feature][lower]
        return Fraction(start) - Fraction(end) <= relation.widths[feature]


def _runs(sides: list[bool]) -> list[tuple[int, int, bool]]:
    runs: list[tuple[int, int, bool]] = []
    for cell, side in enumerate(sides):
        if runs and runs[-1][2] == side:
            runs[-1] = (runs[-1][0], cell, side)
        else:
            runs.append((cell, cell, side))
    return runs


def _sides(
    ensemble: Ensemble, nodes: NDArray[np.intp], values: NDArray[np.float64]
) -> NDArray[np.bool_]:
    repeated = np.repeat(nodes, len(values))
    left = evaluate.goes_left(ensemble, repeated, np.tile(values, len(nodes)))
    return left.reshape(len(nodes), len(values))


def _thresholds(
    ensemble: Ensemble, nodes: NDArray[np.intp], domain: Domain, feature: int
) -> list[float]:
    trees = ensemble.trees
    if math.isnan(domain.low[feature]):
        return []  # what is missing stays missing
    found = set(trees.threshold[nodes].tolist())
    if (trees.flags[nodes] & ZERO_IS_MISSING).any():
        found |= {-ZERO_BAND, math.nextafter(ZERO_BAND, math.inf)}
    least = domain.numbers_from(feature, -math.inf)
    require(least < math.inf, "claim: the domain holds no number of a feature")
    # Sound: a number that the feature takes is below a threshold if and only if it is below the
    # first such number from there on.
    starts = {domain.numbers_from(feature, cut) for cut in found}
    return sorted(start for start in starts if least < start < math.inf)


def known_codes(ensemble: Ensemble, feature: int) -> int:
    """The largest code of a category that the model knows; -1 without any."""
    trees = ensemble.trees
    nodes = np.flatnonzero(trees.feature == feature)
    sets = trees.category_set[nodes[(trees.flags[nodes] & CATEGORICAL) > 0]]
    named = len(ensemble.categories.get(feature, ())) - 1
    return int(trees.categories_in(np.unique(sets)).max(initial=named))


def _codes(ensemble: Ensemble, domain: Domain, feature: int, *, is_free: bool) -> list[float]:
    """Codes of a category; those beyond all that the model knows are represented by the first."""
    codes = set()
    if domain.row is not None and not math.isnan(domain.row[feature]):
        codes.add(float(domain.row[feature]))
    if feature in domain.values:
        low, high = domain.low[feature], domain.high[feature]
        codes |= {code for code in domain.values[feature] if low <= code <= high}
    elif is_free:
        known = known_codes(ensemble, feature)
        least = max(math.ceil(domain.low[feature]) if math.isfinite(domain.low[feature]) else 0, 0)
        high = float(domain.high[feature])
        most = (
            max(known, least) if math.isinf(high) else min(math.floor(high), max(least, known + 1))
        )
        codes |= {float(code) for code in range(least, most + 1)}
    require(bool(codes), "claim: the domain holds no code of a category")
    return sorted(codes)


class Pair(NamedTuple):
    """A leaf of each row, as nodes, and the cells of the columns that lead there."""

    one: int
    other: int
    ranges: dict[int, Range]


class PairTrees:
    """Leaves of pairs of every tree of a model over a domain.

    Columns are the features, and from `n_features` on the second copies of those that change.
    """

    def __init__(
        self, cells: Cells, changed: tuple[int, ...], relation: Relation, *, is_difference: bool
    ) -> None:
        self.cells, self.is_difference = cells, is_difference
        n = cells.n_features
        self.column = {feature: n + place for place, feature in enumerate(changed)}
        self.relation = {
            feature: cells.related(feature, relation)
            for feature in changed
            if relation.kind in ("rising", "near")
        }
        self.box = dict(cells.box)
        self.box.update({n + place: cells.box[f] for place, f in enumerate(changed)})
        if relation.kind == "models":
            self.box.update({changed[0]: (0, 0), n: (1, 1)})
        trees = cells.trees
        self.is_below = np.isin(trees.feature, changed)
        for node in range(len(trees.feature) - 1, -1, -1):
            if trees.feature[node] >= 0:
                self.is_below[node] |= self.is_below[node + 1] or self.is_below[trees.right[node]]

    def only_pair(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.float64]:
        """Two rows in a box of cells in which every tree has one leaf for each row.

        Sound: what reaches the same leaves has the same sums, rounding included, so that these two
        rows, (2, n_features), stand for all pairs of rows in the box. Others are rejected.
        """
        cells, trees = self.cells, self.cells.trees
        rows = np.empty((2, cells.n_features))
        place = {column: number for number, column in enumerate(sorted(self.box))}
        for side in range(2):
            column = {f: self.column.get(f, f) if side else f for f in range(cells.n_features)}
            box = {f: (int(low[place[c]]), int(high[place[c]])) for f, c in column.items()}
            rows[side] = [cells.points[f][box[f][0]] for f in range(cells.n_features)]
            for root in trees.root[:-1].tolist():
                node = root
                while trees.feature[node] >= 0:
                    first, last = box[int(trees.feature[node])]
                    sides = {left for a, b, left in cells.runs[node] if a <= last and b >= first}
                    require(len(sides) == 1, "proof: trees tell a box with exact sums apart")
                    node = node + 1 if sides.pop() else int(trees.right[node])
        return rows

    def leaves(self, tree: int) -> Iterator[Pair]:
        """Pairs of leaves of a tree; together they hold every pair of rows."""
        trees = self.cells.trees
        waiting: list[Pair] = [Pair(int(trees.root[tree]), int(trees.root[tree]), {})]
        while waiting:
            pair = waiting.pop()
            is_same = pair.one == pair.other and self.is_difference
            is_end = trees.feature[pair.one] < 0 and trees.feature[pair.other] < 0
            if is_end or (is_same and not self.is_below[pair.one]):
                yield pair
            else:
                waiting += self._children(pair)

    def _children(self, pair: Pair) -> Iterator[Pair]:
        trees = self.cells.trees
        moves_one = trees.feature[pair.one] >= 0
        node = pair.one if moves_one else pair.other
        feature = int(trees.feature[node])
        second = self.column.get(feature, feature)
        is_joined = pair.one == pair.other
        for low, high, left in self.cells.runs[node]:
            child = node + 1 if left else int(trees.right[node])
            column = feature if moves_one else second
            ranges = self._narrowed(pair.ranges, column, low, high)
            if ranges is None:
                continue
            if not is_joined or second == feature:
                one = child if moves_one else pair.one
                other = child if is_joined or not moves_one else pair.other
                if self._are_related(feature, ranges):
                    yield Pair(one, other, ranges)
                continue
            for least, most, is_left in self.cells.runs[node]:
                both = self._narrowed(ranges, second, least, most)
                if both is not None and self._are_related(feature, both):
                    yield Pair(child, node + 1 if is_left else int(trees.right[node]), both)

    def _narrowed(
        self, ranges: dict[int, Range], column: int, low: int, high: int
    ) -> dict[int, Range] | None:
        first, last = ranges.get(column, self.box[column])
        low, high = max(low, first), min(high, last)
        if low > high:
            return None
        return ranges if (low, high) == (first, last) else ranges | {column: (low, high)}

    def _are_related(self, feature: int, ranges: dict[int, Range]) -> bool:
        """Whether some cells of both copies go together; the ends of what does rise."""
        if feature not in self.relation:
            return True
        table = self.relation[feature]
        one = ranges.get(feature, self.box[feature])
        other = ranges.get(self.column[feature], self.box[self.column[feature]])
        return table[one[0]][0] <= other[1] and table[one[1]][1] >= other[0]


Weights = tuple[Mapping[int, int | Fraction], Mapping[int, int | Fraction]]
"""Weights of the sums of the first and of the second row, by output."""


class Gains(NamedTuple):
    """What both leaves of a pair add, in units, rounded up."""

    first: int
    second: int


class Bounder:
    """Upper bounds of the sum over boxes of columns, from multipliers, in integers of 64 bits.

    `weights` are those of both rows' sums, by output; `unit` is what the integers count; trees of
    outputs without a weight add nothing, and multipliers tell of them only with `has_all_trees`.
    """

    def __init__(
        self,
        trees: PairTrees,
        ensemble: Ensemble,
        weights: Weights,
        unit: Fraction,
        *,
        has_all_trees: bool = False,
    ) -> None:
        self.box, self.unit, self.has_all_trees = trees.box, unit, has_all_trees
        columns = sorted(trees.box)
        self.place = {column: number for number, column in enumerate(columns)}
        self.sizes = np.array([trees.box[c][1] + 1 for c in columns], dtype=np.int64)
        self.cell_start = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self._gainful: list[dict[int, Range]] = []
        self.constant = [0, 0]
        self.largest_sum = 0  # of all trees' largest gains, whatever their signs
        self.unary = np.zeros((2, int(self.cell_start[-1])), dtype=np.int64)
        self._gain: list[Gains] = []
        self._leaf_low: list[NDArray[np.int64]] = []
        self._leaf_high: list[NDArray[np.int64]] = []
        self.leaf_start = [0]
        self.pairs: list[tuple[int, int]] = []  # number of a factor, place of a column
        self.segments: list[list[int]] = []
        for tree in range(len(ensemble.trees.tree_output)):
            self._add_tree(trees, ensemble, weights, tree)
        for feature, table in trees.relation.items():
            second = trees.column[feature]
            low, high = trees.box[feature]
            steps = [
                ({feature: (c, c), second: (max(table[c][0], low), min(table[c][1], high))},
                 Gains(0, 0))
                for c in range(low, high + 1)
            ]  # fmt: skip
            self._add(steps)
        self._finish()

    def _add_tree(
        self,
        trees: PairTrees,
        ensemble: Ensemble,
        weights: Weights,
        tree: int,
    ) -> None:
        output = int(ensemble.trees.tree_output[tree])
        is_idle = output >= 0 and all(output not in part for part in weights)
        if is_idle and not self.has_all_trees:
            return
        if trees.is_difference and not trees.is_below[ensemble.trees.root[tree]]:
            return
        known: dict[tuple[int, int], tuple[Gains, bool]] = {}
        leaves = []
        for pair in trees.leaves(tree):
            key = pair.one, pair.other
            if key not in known:
                known[key] = self._gains(trees, ensemble, weights, output, pair)
            gains, is_gainful = known[key]
            leaves.append((pair.ranges, gains))
            if is_gainful:
                self._gainful.append(pair.ranges)
        self._add(leaves)

    def _gains(
        self,
        trees: PairTrees,
        ensemble: Ensemble,
        weights: Weights,
        output: int,
        pair: Pair,
    ) -> tuple[Gains, bool]:
        """What both leaves add, and whether that is more than 0 in all."""
        if trees.is_difference and pair.one == pair.other:
            return Gains(0, 0), False
        exact = []
        for part, node in zip(weights, (pair.one, pair.other), strict=True):
            values = ensemble.trees.leaf_value[ensemble.trees.leaf[node]].tolist()
            if output >= 0:
                exact.append(part.get(output, 0) * Fraction(values[0]))
            else:
                exact.append(
                    sum((w * Fraction(values[o]) for o, w in part.items()), start=Fraction(0))
                )
        total = exact[0] + exact[1]
        if trees.is_difference:
            return Gains(0, math.ceil(total / self.unit)), total > 0
        return Gains(*(math.ceil(part / self.unit) for part in exact)), total > 0

    def _add(self, leaves: list[tuple[dict[int, Range], Gains]]) -> None:
        """Add a tree: a constant, a term of one column, or a factor with multipliers."""
        columns = sorted({column for ranges, _ in leaves for column in ranges})
        if len(leaves) == 1:
            self.constant[0] += leaves[0][1].first
            self.constant[1] += leaves[0][1].second
            return
        # Sound: no sum of 64 bits overflows. With weights, a cell has at most the gains of all
        # trees of one column, below 2**61, and a multiplier of each pair, which a proof keeps below
        # 2**62 in all; a leaf has one gain, and a multiplier of each of its tree's pairs.
        self.largest_sum += max(abs(part) for _, gains in leaves for part in gains)
        require(WEIGHTS * self.largest_sum < 1 << 61, "proof: the unit is too small for the model")
        if len(columns) == 1:
            start = int(self.cell_start[self.place[columns[0]]])
            for ranges, gains in leaves:
                low, high = ranges[columns[0]]
                self.unary[0, start + low : start + high + 1] += gains.first
                self.unary[1, start + low : start + high + 1] += gains.second
            return
        for ranges, gains in leaves:
            self._gain.append(gains)
            ends = np.stack([np.zeros_like(self.sizes), self.sizes - 1])
            for column, own in ranges.items():
                ends[:, self.place[column]] = own
            self._leaf_low.append(ends[0])
            self._leaf_high.append(ends[1])
        self.leaf_start.append(len(self._gain))
        for column in columns:
            whole = self.box[column]
            starts = sorted({whole[0]} | {ranges.get(column, whole)[0] for ranges, _ in leaves})
            self.pairs.append((len(self.leaf_start) - 2, self.place[column]))
            self.segments.append(starts)

    def _finish(self) -> None:
        """Lay out factors, pairs and segments in arrays."""
        n = len(self._gain)
        self.gain = np.array(self._gain, dtype=np.int64).reshape(n, 2)
        width = len(self.sizes)
        self.leaf_low = np.array(self._leaf_low, dtype=np.int64).reshape(n, width)
        self.leaf_high = np.array(self._leaf_high, dtype=np.int64).reshape(n, width)
        self.leaf_factor = np.repeat(np.arange(len(self.leaf_start) - 1), np.diff(self.leaf_start))
        counts = [len(starts) for starts in self.segments]
        self.segment_start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        # The segment of every cell of a pair's column, pair after pair. At first those of columns
        # that a factor does not test: one segment, the last of all, whose price is 0.
        tables = [np.full(self.sizes.max(initial=0), self.segment_start[-1], dtype=np.int64)]
        self.table_start = np.zeros((len(self.leaf_start) - 1, width), dtype=np.int64)
        self.pair_table, self.pair_place = np.zeros((2, len(self.pairs)), dtype=np.int64)
        position = len(tables[0])
        for number, (factor, place) in enumerate(self.pairs):
            cells = np.arange(self.sizes[place])
            ordinal = np.searchsorted(np.array(self.segments[number]), cells, side="right") - 1
            tables.append(self.segment_start[number] + np.maximum(ordinal, 0))
            self.table_start[factor, place] = position
            self.pair_table[number], self.pair_place[number] = position, place
            position += len(cells)
        self.segment_at = np.concatenate(tables)

    def gains_nothing(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> bool:
        """Whether no pair of leaves that meets a box adds more than 0, in any tree."""
        return not any(
            all(
                first <= high[self.place[column]] and last >= low[self.place[column]]
                for column, (first, last) in ranges.items()
            )
            for ranges in self._gainful
        )

    def segments_met(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.int64]:
        """Segments that have multipliers in a box: of each pair all that meet it but the first."""
        first = self.segment_at[self.pair_table + low[self.pair_place]]
        counts = self.segment_at[self.pair_table + high[self.pair_place]] - first
        ends = np.cumsum(counts)
        return np.repeat(first + 1 - (ends - counts), counts) + np.arange(counts.sum())

    def bound(
        self,
        low: NDArray[np.int64],
        high: NDArray[np.int64],
        leaves: NDArray[np.int64],
        prices: NDArray[np.int64],
        weights: tuple[int, int],
    ) -> int | None:
        """A bound of ``weights · gains`` over a box of cells; None where no pair is in it.

        `leaves` are those that meet the box, in order, and `prices` those of all segments.

        Sound: a pair of rows takes one leaf of each tree and one cell of each column, and what
        multipliers add to the one they take from the other. Gains are rounded up.
        """
        total = weights[0] * self.constant[0] + weights[1] * self.constant[1]
        factor = self.leaf_factor[leaves]
        tables = self.table_start[factor]
        begin = self.segment_at[tables + np.maximum(self.leaf_low[leaves], low)]
        end = self.segment_at[tables + np.minimum(self.leaf_high[leaves], high)]
        score = self.gain[leaves] @ np.array(weights, dtype=np.int64)
        score += _range_peaks(prices, begin, end).sum(axis=1)
        is_met = np.zeros(len(self.table_start), dtype=bool)
        is_met[factor] = True
        if not is_met.all():
            return None
        best = np.full(len(self.table_start), np.iinfo(np.int64).min)
        np.maximum.at(best, factor, score)
        total += sum(best.tolist())
        for place, start in enumerate(self.cell_start[:-1].tolist()):
            inside = slice(start + low[place], start + high[place] + 1)
            rest = np.array(weights, dtype=np.int64) @ self.unary[:, inside]
            cells = np.arange(low[place], high[place] + 1)
            own = self.pair_table[self.pair_place == place]
            rest -= prices[self.segment_at[own[:, None] + cells]].sum(axis=0)
            total += int(rest.max())
        return total


def _range_peaks(
    prices: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Largest price of the segments from one to another, for many of them."""
    peaks = np.maximum(prices[begin], prices[end])
    table, width = prices, 1
    while (longer := end - begin >= 2 * width).any():
        # Two ranges of a length that is a power of two hold all between two ends.
        table, width = np.maximum(table[:-width], table[width:]), 2 * width
        first, last = begin[longer], end[longer] - (width - 1)
        peaks[longer] = np.maximum(table[first], table[last])
    return peaks


PointCheck = Callable[[NDArray[np.int64], NDArray[np.int64]], None]
"""Rejects a box, by its first and last cells, unless its only pair of leaves meets no two needs."""


class Proof:
    """Follows the bytes of a proof: a tree of boxes, closed by multipliers."""

    def __init__(self, bounder: Bounder, data: bytes, unit_exponent: int) -> None:
        self.bounder, self.data, self.at = bounder, data, 0
        self.exponent = unit_exponent
        self.n_nodes = self.n_worthless = 0

    def _take(self, n_bytes: int, *, signed: bool = True) -> int:
        require(self.at + n_bytes <= len(self.data), "proof: it is cut off")
        value = int.from_bytes(self.data[self.at : self.at + n_bytes], "little", signed=signed)
        self.at += n_bytes
        return value

    def _prices(
        self, low: NDArray[np.int64], high: NDArray[np.int64], weight: int
    ) -> NDArray[np.int64]:
        """Weighted prices of all segments; what no multiplier tells of is 0."""
        exponent, size = self._take(2), self._take(1, signed=False)
        require(size in (1, 2, 4), "proof: multipliers have 1, 2 or 4 bytes")
        shift = exponent - self.exponent
        require(shift >= 0, "proof: the exponent of multipliers is too small")
        met = self.bounder.segments_met(low, high)
        require(self.at + size * len(met) <= len(self.data), "proof: it is cut off")
        kind = {1: "<i1", 2: "<i2", 4: "<i4"}[size]
        found = np.frombuffer(self.data, dtype=kind, count=len(met), offset=self.at)
        self.at += size * len(met)
        largest = int(np.abs(found.astype(np.int64)).max(initial=0)) << min(shift, 64)
        in_all = largest * weight * len(self.bounder.pairs)
        require(in_all < 1 << 62, "proof: a multiplier is too large")
        prices = np.zeros(int(self.bounder.segment_start[-1]) + 1, dtype=np.int64)
        prices[met] = (found.astype(np.int64) << (shift if largest else 0)) * weight
        return prices

    def follow(self, floors: tuple[int, int], check_point: PointCheck | None = None) -> None:
        """Reject the proof unless every box is closed.

        Closed is a box in which the gain is below the first floor; or, with two needs, one in which
        a mixture of what exceeds both floors is below 0, or that `check_point` does not reject.
        With one gain, boxes in which no tree gains anything are closed, too, and counted in
        `n_worthless`.
        """
        is_mixed = check_point is not None
        bounder = self.bounder
        columns = sorted(bounder.box)
        low = np.array([bounder.box[c][0] for c in columns], dtype=np.int64)
        high = np.array([bounder.box[c][1] for c in columns], dtype=np.int64)
        # Sound: leaves that meet a part of a box meet the box.
        waiting = [(low, high, np.arange(len(bounder.gain)), WEIGHTS // 2)]
        number_of = {column: place for place, column in enumerate(columns)}
        while waiting:
            low, high, leaves, weight = waiting.pop()
            self.n_nodes += 1
            letter = self._take(1, signed=False)
            if letter == ord("W"):
                require(is_mixed, "proof: a weight has no meaning here")
                weight = self._take(2)
                require(0 <= weight <= WEIGHTS, "proof: a weight is out of range")
                letter = self._take(1, signed=False)
            if letter == ord("N"):
                is_closed = not is_mixed and bounder.gains_nothing(low, high)
                require(is_closed, f"proof: a tree gains something in box {self.n_nodes}")
                self.n_worthless += 1
                continue
            if letter == ord("L"):
                prices = self._prices(low, high, WEIGHTS if is_mixed else 1)
                weights, floor = (1, 1), floors[0]
                if is_mixed:
                    weights = (weight, WEIGHTS - weight)
                    floor = weight * floors[0] + (WEIGHTS - weight) * floors[1]
                bound = bounder.bound(low, high, leaves, prices, weights)
                is_closed = bound is None or bound < floor
                require(is_closed, f"proof: box {self.n_nodes} is not closed by its multipliers")
                continue
            if letter == ord("E"):
                require(check_point is not None, "proof: exact sums have no meaning here")
                if check_point is not None:
                    check_point(low, high)
                continue
            require(letter == ord("S"), "proof: an unknown letter")
            column, cut = self._take(4), self._take(4)
            require(column in number_of, "proof: a split names no column")
            place = number_of[column]
            require(low[place] <= cut < high[place], "proof: a split is outside of its box")
            left, right = high.copy(), low.copy()
            left[place], right[place] = cut, cut + 1
            in_left = leaves[bounder.leaf_low[leaves, place] <= cut]
            in_right = leaves[bounder.leaf_high[leaves, place] > cut]
            waiting += [(right, high, in_right, weight), (low, left, in_left, weight)]
        require(self.at == len(self.data), "proof: something follows it")


def sum_errors(
    forest: Forest, cells: Cells, outputs: set[int], fixed: dict[int, Range]
) -> tuple[dict[int, Fraction], dict[int, Fraction]]:
    """How far each rounded sum can be from the real one over a box, and how large sums can become.

    In units of the forest, whose trees those of the cells hold; some features are in fixed cells.
    """
    trees, box = cells.trees, cells.box | fixed
    is_met = np.zeros(len(trees.feature), dtype=bool)
    is_met[trees.root[:-1]] = True
    for node in range(len(is_met)):
        if is_met[node] and trees.feature[node] >= 0:
            low, high = box[int(trees.feature[node])]
            for first, last, left in cells.runs[node]:
                if first <= high and last >= low:
                    is_met[node + 1 if left else trees.right[node]] = True
    errors, peaks = {}, {}
    owner = np.repeat(np.arange(len(trees.tree_output)), np.diff(trees.root))
    leaves = np.flatnonzero(is_met & (trees.feature < 0))
    # Of what is counted exactly, ends of errors are rounded up to a part of the model's own step.
    part = forest.step / 2**EXTRA_BITS
    for output in outputs:
        start = Fraction(forest.ensemble.aggregation.start[output])
        lowest = highest = start
        largest = [math.ceil(abs(start) / part)]
        for tree in np.flatnonzero(np.isin(trees.tree_output, (-1, output))).tolist():
            own = leaves[owner[leaves] == tree]
            column = output if trees.tree_output[tree] < 0 else 0
            values = [Fraction(v) for v in trees.leaf_value[trees.leaf[own], column].tolist()]
            if not any(values):
                continue  # adding nothing is exact
            lowest, highest = lowest + min(values), highest + max(values)
            largest.append(math.ceil(max(-lowest, highest) / part))
        table = np.array([largest[1:]], dtype=object)
        exact_up_to = 1 << EXTRA_BITS + forest.bits
        peaks[output] = max(largest) * part / forest.unit
        error = int(rounding_errors(table, exact_up_to, forest.bits)[0]) if table.size else 0
        errors[output] = error * part / forest.unit
    return errors, peaks


def need_of(forest: Forest, way: Way, errors: Amounts, peaks: Amounts, unit: Fraction) -> int:
    """Smallest sum at which a way may happen, rounding included, in a unit, rounded down."""
    return math.floor(floor_of(forest, way, errors, peaks) * forest.unit / unit)
