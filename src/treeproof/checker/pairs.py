"""Proofs about pairs of rows: difference trees derived from the model, bounds in integers.

A statement says of all pairs of rows of a box, which agree in all features but some, that a sum of
the one row minus that of the other stays below a bound, or that no pair passes two needs at once.
Nothing of the engine is used: cells, leaves of pairs, rounding and needs are worked out here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.checker.arrays import Ints
from treeproof.checker.claims import Amounts, Way, floor_of, require
from treeproof.checker.domains import Domain
from treeproof.checker.forest import Boxes, Forest
from treeproof.checker.proofs import LARGEST, Node, Prover, Record
from treeproof.checker.regions import Regions, rounding_errors
from treeproof.checker.walks import Pair, Range, Run, Walk, pieces_of, runs_of
from treeproof.errors import CertificateRejected
from treeproof.model import evaluate
from treeproof.model.ensemble import CATEGORICAL, ZERO_BAND, ZERO_IS_MISSING, Ensemble
from treeproof.model.sums import MOST_WEIGHT

EXTRA_BITS = 40
"""Errors of rounding are counted in parts of a model's step, of which there are 2 to this."""


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
        self.runs: dict[int, list[Run]] = {}
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
                self.runs[node] = runs_of(sides[place].tolist())

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


class PairTrees(Walk):
    """Leaves of pairs of every tree of a model over a domain.

    Columns are the features, and from `n_features` on the second copies of those that change.
    """

    def __init__(
        self, cells: Cells, changed: tuple[int, ...], relation: Relation, *, is_difference: bool
    ) -> None:
        super().__init__(cells.trees, cells.trees.feature.tolist(), cells.runs, dict(cells.box))
        self.cells, self.is_difference = cells, is_difference
        n = cells.n_features
        self.column = {feature: n + place for place, feature in enumerate(changed)}
        self.relation = {
            feature: cells.related(feature, relation)
            for feature in changed
            if relation.kind in ("rising", "near")
        }
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


Weights = tuple[Mapping[int, int | Fraction], Mapping[int, int | Fraction]]
"""Weights of the sums of the first and of the second row, by output."""


class PairSpace:
    """The columns of a box as axes, the pairs of leaves that it holds, and what they gain.

    `weights` are those of both rows' sums, by output; `exponent` is that of the unit, a power of 2.
    Gains are one number for each pair, or with two needs one for each row; `lone` are those of
    trees with one pair. Trees of outputs without a weight add nothing, and multipliers tell of them
    only with `has_all_trees`.

    What a `Prover` reads of a model is here: `up`, `output`, `n_outputs`, `exponent`.
    """

    def __init__(
        self,
        trees: PairTrees,
        ensemble: Ensemble,
        weights: Weights,
        exponent: int,
        *,
        has_two_needs: bool,
        has_all_trees: bool = False,
    ) -> None:
        self.trees, self.exponent, self.unit = trees, exponent, Fraction(2) ** exponent
        self.n_outputs = 2 if has_two_needs else 1
        box = np.array([trees.box[column] for column in sorted(trees.box)], dtype=np.int64)
        gains: list[tuple[int, ...]] = []
        found: list[list[tuple[int, dict[int, Range]]]] = []
        self.lone = [0] * self.n_outputs
        largest_sum = 0  # of all trees' largest gains, whatever their signs
        for tree, output in enumerate(ensemble.trees.tree_output.tolist()):
            is_idle = output >= 0 and all(output not in part for part in weights)
            is_same = trees.is_difference and not trees.is_below[ensemble.trees.root[tree]]
            if is_same or (is_idle and not has_all_trees):
                continue
            known: dict[tuple[int, int], tuple[int, ...]] = {}
            first = len(gains)
            found.append([])
            for pair in trees.leaves(tree):
                key = pair.one, pair.other
                if key not in known:
                    known[key] = self._gains_of(ensemble, weights, output, pair)
                found[-1].append((len(gains), pair.ranges))
                gains.append(known[key])
            if len(gains) == first + 1:
                self.lone = [a + b for a, b in zip(self.lone, gains[first], strict=True)]
            largest_sum += max(abs(part) for own in gains[first:] for part in own)
        # Sound: with weights, gains of all trees together take as many bits as `Bounds` allows.
        fits = self.n_outputs * MOST_WEIGHT * largest_sum < LARGEST
        require(fits, "proof: the unit is too small for the model")
        gains.append((0,) * self.n_outputs)  # of relations
        for feature, table in trees.relation.items():
            second = trees.column[feature]
            low, high = trees.box[feature]
            found.append([
                (len(gains) - 1,
                 {feature: (c, c), second: (max(table[c][0], low), min(table[c][1], high))})
                for c in range(low, high + 1)
            ])  # fmt: skip
        self.up = self.down = np.array(gains, dtype=np.int64)
        self.output = np.full(max(len(found), 1), -1)
        boxes = Boxes(box[np.newaxis, :, 0], box[np.newaxis, :, 1])
        self.regions = Regions(boxes, pieces_of(found), self.output)

    def _gains_of(
        self, ensemble: Ensemble, weights: Weights, output: int, pair: Pair
    ) -> tuple[int, ...]:
        """What both leaves add, rounded up."""
        if self.trees.is_difference and pair.one == pair.other:
            return (0,) * self.n_outputs
        exact = []
        for part, node in zip(weights, (pair.one, pair.other), strict=True):
            values = ensemble.trees.leaf_value[ensemble.trees.leaf[node]].tolist()
            own = {output: values[0]} if output >= 0 else dict(enumerate(values))
            exact.append(sum((part.get(o, 0) * Fraction(v) for o, v in own.items()), Fraction(0)))
        if self.n_outputs == 1:
            exact = [exact[0] + exact[1]]
        return tuple(math.ceil(part / self.unit) for part in exact)


PointCheck = Callable[[Ints, Ints], None]
"""Rejects a box, by its first and last cells, unless its only pair of leaves meets no two needs."""


class PairProver(Prover):
    """Follows the proof of a statement about a box of pairs.

    Closed is a box in which the gain is below the floor; or, with two needs, one in which a mixture
    of both is below that of their floors, or which `check_point` does not reject. With one gain,
    boxes in which no tree gains anything are closed, too, and counted in `n_worthless`.
    """

    def __init__(
        self,
        space: PairSpace,
        data: bytes,
        floors: list[int],
        check_point: PointCheck | None = None,
    ) -> None:
        self.space, self.floors, self.check_point, self.n_worthless = space, floors, check_point, 0
        numbers = tuple(range(space.n_outputs))
        way = Way("proof", dict.fromkeys(numbers, 1), losers=numbers)
        # A node takes a byte at least, so that there are no more than these.
        super().__init__(space, space.regions, [Record(data, len(data))], [[way]])
        self.has_cliques = False

    def follow(self) -> None:
        """Reject the proof unless every box is closed."""
        (reason,) = self.reasons()
        require(not reason, reason)

    def ends_of(self, row: int, way: Way) -> tuple[int, int]:
        """Constant and floor of the mixture of a way."""
        lone, floors = self.space.lone, self.floors
        constant, floor = (
            sum(w * each[o] for o, w in way.weights.items()) for each in (lone, floors)
        )
        return constant, floor

    def mixed(self, way: Way, weights: tuple[int, ...]) -> Way:
        """The same way with other weights of both needs."""
        return replace(way, weights={o: w for o, w in enumerate(weights) if w})

    def gains_something(self, node: Node, low: Ints, high: Ints) -> str:
        """Why a box in which nothing is gained is not closed by that."""
        if self.check_point is not None:
            return super().gains_something(node, low, high)
        piece = self.regions.met(0, low, high)
        if (self.space.up[self.regions.leaf[piece]] > 0).any():
            return "a tree gains something"
        self.n_worthless += 1
        return ""

    def breaks(self, node: Node, low: Ints, high: Ints) -> str:
        """Why the only pair of leaves of a box does not settle it."""
        if self.check_point is None:
            return "exact sums have no meaning here"
        try:
            self.check_point(low, high)
        except CertificateRejected as error:
            return str(error)
        return ""


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
