"""An ensemble in cells: thresholds in order, the leaves that boxes of cells meet, integers.

Cell c of a feature holds the values v with exactly c thresholds <= v; a split at its threshold
number j sends v left iff the cell of v is at most j. All functions take many rows at a time.
"""

import math
from bisect import bisect_left
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.checker.arrays import Ints, begins
from treeproof.model import evaluate
from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    ZERO_BAND,
    ZERO_IS_MISSING,
    Ensemble,
    FloatArray,
    cached_per_ensemble,
)
from treeproof.model.sums import grid_exponent, proof_exponent


class Boxes(NamedTuple):
    """First and last cell of each feature, int64 (n_boxes, n_features) each.

    Features that keep the row's value, and those that no node compares, have first 0 and last -1.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]


class Pieces(NamedTuple):
    """Leaves that boxes meet, as products of ranges, sorted by row and tree.

    Entries are the axes that a piece narrows, with the first and last atom that it leaves of the
    box, sorted by piece and axis; those of trees with one piece may be left out.
    """

    row: Ints
    tree: Ints
    leaf: Ints
    entry_piece: Ints
    entry_axis: Ints
    entry_low: Ints
    entry_high: Ints


class Forest:
    """What the checker reads of a model; see the module."""

    tree: NDArray[np.int64]
    feature: NDArray[np.int64]
    parent: NDArray[np.int64]
    cut: NDArray[np.int64]
    least: NDArray[np.int64]
    most: NDArray[np.int64]
    apart: NDArray[np.bool_]
    zero: NDArray[np.int64]
    fixed: NDArray[np.bool_]
    keys: NDArray[np.complex128]
    first_cut: NDArray[np.int64]
    fenced: FloatArray
    last_keys: NDArray[np.complex128]
    last_fenced: FloatArray
    value: FloatArray
    start: FloatArray
    bits: int
    exponent: int
    step: Fraction
    grid: int
    exact_up_to: int
    most_units: int
    down: NDArray[np.int64]
    up: NDArray[np.int64]
    first_sums: dict[tuple[float, bool, int], float]

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble, self.trees = ensemble, ensemble.trees
        self.output, self.n_outputs = ensemble.trees.tree_output, ensemble.n_outputs
        vars(self).update(_tables(ensemble))
        self.unit = Fraction(2) ** self.exponent
        self.most_units = _most_units(ensemble, self.unit, self.bits)

    def cuts(self, feature: int) -> FloatArray:
        """Thresholds of a feature in order."""
        return self.keys.imag[slice(*self.first_cut[feature : feature + 2])]

    def count(
        self, feature: Ints, value: FloatArray, keys: NDArray[np.complex128] | None = None
    ) -> NDArray[np.int64]:
        """Thresholds T <= value of features, or other keys of these."""
        # Complex numbers are ordered by their real part, then by the imaginary one.
        asked = np.empty(np.broadcast_shapes(np.shape(feature), np.shape(value)), complex)
        asked.real, asked.imag = feature, value
        known = self.keys if keys is None else keys
        return np.asarray(known.searchsorted(asked, "right") - self.first_cut[feature])

    def passed(
        self,
        feature: Ints,
        x: FloatArray,
        radius: Any,
        rate: Any,
        is_open: Any = False,
        *,
        by_last: bool = False,
    ) -> NDArray[np.int64]:
        """Thresholds T <= x + radius * rate, or T < that for an open end; exact.

        by_last : instead of a threshold, the last double below it counts
        """
        keys, fenced = (self.last_keys, self.last_fenced) if by_last else (self.keys, self.fenced)
        x, radius, rate, is_open = np.broadcast_arrays(x, radius, rate, is_open)
        stays = (rate == 0.0) | (radius == 0.0) | np.isinf(x)
        with np.errstate(over="ignore", invalid="ignore"):
            step = np.where(stays, 0.0, radius * rate)
            end = x + step
            # Sound: without overflow, `lost` is the exact rounding error of the sum. The exact sum
            # is on the same side of every threshold as the rounded one, if they are not equal.
            moved = end - x
            lost = (x - (end - moved)) + (step - moved)
            # Product and sum are each rounded by at most 2**-53 of their size, or by less than the
            # smallest double; four times that, so that rounding this does not matter.
            error = (abs(x) + abs(step)) * 2.0**-51 + 2.0**-1070
            count = self.count(feature, end, keys)
            place = self.first_cut[feature] + count
            below = np.where(count > 0, fenced[place], -np.inf)
            above = np.where(place < self.first_cut[feature + 1], fenced[place + 1], np.inf)
            near = ~((below < end - error) & (above > end + error))
        known = stays | np.isinf(radius)
        exact = (np.abs(rate) == 1.0) & np.isfinite(end)
        count -= ~known & exact & (below == end) & ((lost < 0.0) | ((lost == 0.0) & is_open))
        for at in zip(*np.nonzero(near & ~known & ~exact), strict=True):
            (a, b), (c, d), (e, f) = (float(n[at]).as_integer_ratio() for n in (x, radius, rate))
            exact_end, is_left = (a * d * f + b * c * e, b * d * f), 0 if is_open[at] else -1
            number = np.broadcast_to(feature, x.shape)[at]
            own = keys.imag[slice(*self.first_cut[number : number + 2])]
            count[at] = bisect_left(own, 1, key=lambda t: compare_ratio(exact_end, t) <= is_left)
        return count

    def boxes(self, claims: Any) -> Boxes:
        """Cells that claimed sets around rows meet; missing and categorical entries do not move.

        Counting thresholds is monotone, so the largest of two ends passes the larger count. A set
        of doubles has one below T iff the last one below T is in it, and so not below its end.
        """
        rows = np.array([claim.row for claim in claims])
        low, high = np.zeros(rows.shape, np.int64), np.full(rows.shape, -1)
        tested = np.flatnonzero((self.first_cut[1:] > self.first_cut[:-1]) & ~self.fixed)
        x = rows[:, tested]
        moves = ~np.isnan(x)
        x[~moves] = 0.0
        down, up, least, most = (
            np.array([getattr(claim, name) for claim in claims])[:, tested]
            for name in ("down", "up", "low", "high")
        )
        first, last = self.count(tested, least), self.count(tested, most)
        radius = np.array([[claim.radius] for claim in claims])
        kind = np.array([[claim.kind] for claim in claims])
        here, ball = self.count(tested, x), kind != "box"
        rate, is_open = np.where(ball, -down, 0.0), kind == "open"
        if self.ensemble.over_reals:
            below = self.passed(tested, x, radius, rate)
        else:
            below = self.passed(tested, x, radius, rate, ~is_open, by_last=True)
        above = self.passed(tested, x, radius, np.where(ball, up, 0.0), is_open)
        first = np.where(ball, np.minimum(np.maximum(below, first), here), first)
        last = np.where(ball, np.maximum(np.minimum(above, last), here), last)
        low[:, tested], high[:, tested] = np.where(moves, first, 0), np.where(moves, last, -1)
        return Boxes(low, high)

    def pieces(self, rows: FloatArray, boxes: Boxes) -> Pieces:
        """Leaves that the box of each row meets.

        Where zero counts as missing, the cells of one leaf may be no range. The box is then cut
        into parts, each with pieces of its own.
        """
        (low, high), n = boxes, rows.shape[1]
        owner = np.arange(len(rows))
        part = np.repeat(owner, self.ensemble.n_trees)
        node = np.tile(self.trees.root[:-1].astype(np.int64), len(rows))
        found: list[tuple[Ints, Ints]] = []
        while len(node):
            feature = self.feature[node]
            inner = feature >= 0
            found.append((part[~inner], node[~inner]))
            part, node, feature = part[inner], node[inner], feature[inner]
            box, cut = part * n + feature, self.cut[node]
            first, last = low.ravel()[box], high.ravel()[box]
            moves = first <= last
            first, last = np.maximum(first, self.least[node]), np.minimum(last, self.most[node])
            left, right = first <= cut, last > cut
            if not moves.all():
                stays = np.flatnonzero(~moves)
                values = rows[owner[part[stays]], feature[stays]]
                left[stays] = evaluate.goes_left(self.ensemble, node[stays], values)
                right[stays] = ~left[stays]
            divided: list[tuple[Ints, Ints]] = []
            cases = np.flatnonzero(self.apart[node] & moves)
            for child, first_cell, last_cell in self._zero_parts(node[cases]) if len(cases) else ():
                begin = np.maximum(first[cases], first_cell)
                end = np.minimum(last[cases], last_cell)
                some = begin <= end
                new, at = part[cases][some], feature[cases][some]
                numbers = len(owner) + np.arange(len(new))
                owner = np.concatenate([owner, owner[new]])
                low, high = np.concatenate([low, low[new]]), np.concatenate([high, high[new]])
                low[numbers, at], high[numbers, at] = begin[some], end[some]
                divided.append((numbers, child[some]))
            left[cases] = right[cases] = False
            steps = [(part[left], node[left] + 1), (part[right], self.trees.right[node[right]])]
            part, node = (np.concatenate(side) for side in zip(*steps, *divided, strict=True))
        part, node = (np.concatenate(side) for side in zip(*found, strict=True))
        tree = owner[part] * self.ensemble.n_trees + self.tree[node]
        order = np.argsort(tree, kind="stable")
        part, node, tree = part[order], node[order], tree[order]
        several = np.append(tree[1:] == tree[:-1], False)
        several[1:] |= several[:-1]
        entries = self._entries(boxes, owner[part], node, Boxes(low, high), part, several)
        return Pieces(owner[part], self.tree[node], self.trees.leaf[node], *entries)

    def _entries(
        self, boxes: Boxes, row: Ints, node: Ints, parts: Boxes, part: Ints, several: Any
    ) -> list[Ints]:
        """Piece, feature, first and last cell of every narrowed range, by piece and feature.

        Sound: a leaf's ranges are what the splits above it leave of the box; a split that the box
        lies on one side of leaves all of it.
        """
        found: list[tuple[Ints, ...]] = []
        n = boxes.low.shape[1]
        (low, high), (part_low, part_high) = ([side.ravel() for side in b] for b in (boxes, parts))
        piece = np.flatnonzero(several)
        at, box = node[piece], row[piece] * n
        while len(piece):
            above = self.parent[at]
            inner = above >= 0
            piece, at, box, above = piece[inner], at[inner], box[inner], above[inner]
            feature, cut = self.feature[above], self.cut[above]
            first, last = low[box + feature], high[box + feature]
            some = (first <= cut) & (cut < last)
            apart = self.apart[above] & (first <= last)
            some = np.flatnonzero(some | apart)
            first, last, cut, apart = first[some], last[some], cut[some], apart[some]
            left = at[some] == above[some] + 1
            # Where zero went against the cut, the part of the box knows what is left.
            own = part[piece[some]] * n + feature[some]
            begin = np.where(apart, part_low[own], np.where(left, first, cut + 1))
            end = np.where(apart, part_high[own], np.where(left, cut, last))
            found.append((piece[some], feature[some], begin, end))
            at = above
        if not found:
            return [piece] * 4
        piece, feature, low_cell, high_cell = map(np.concatenate, zip(*found, strict=True))
        key = piece * n + feature
        order = np.argsort(key, kind="stable")
        start = begins(key[order])
        piece, feature = piece[order][start], feature[order][start]
        if len(start):
            low_cell = np.maximum.reduceat(low_cell[order], start)
            high_cell = np.minimum.reduceat(high_cell[order], start)
        box = row[piece] * n + feature
        narrowed = (low_cell > low[box]) | (high_cell < high[box])
        return [array[narrowed] for array in (piece, feature, low_cell, high_cell)]

    def _zero_parts(self, node: Ints) -> list[tuple[Ints, Ints, Ints]]:
        """Where nodes send ranges of cells if zero goes against the cut: child, first, last cell.

        Cells of zero, those before and those after them are looked at by themselves.
        """
        zero_first, zero_last = self.zero[self.feature[node]].T
        left, right, cut = node + 1, self.trees.right[node].astype(np.int64), self.cut[node]
        start, end = np.zeros_like(cut), np.full_like(cut, len(self.keys))
        own = np.where(self.trees.flags[node] & MISSING_LEFT, left, right)
        return [
            (left, start, np.minimum(cut, zero_first - 1)),
            (right, cut + 1, zero_first - 1),
            (own, zero_first, zero_last),
            (left, zero_last + 1, cut),
            (right, np.maximum(cut, zero_last) + 1, end),
        ]

    def start_of(self, output: int) -> tuple[int, int]:
        """What the sum of an output starts with, in units, rounded down and rounded up."""
        start = Fraction(float(self.start[output])) / self.unit
        return math.floor(start), math.ceil(start)


def compare_ratio(ratio: tuple[int, int], number: float) -> int:
    """-1, 0 or 1: whether a ratio, with a denominator above 0, is below, at or above a double."""
    if math.isinf(number):
        return -1 if number > 0.0 else 1
    n, d = number.as_integer_ratio()
    left, right = ratio[0] * d, n * ratio[1]
    return (left > right) - (left < right)


def _most_units(ensemble: Ensemble, unit: Fraction, bits: int) -> int:
    """Sums below so many units, and the margins that are made of them, do not overflow.

    Sound: the largest number of the model's precision is above this power of two.
    """
    aggregation, rate = ensemble.aggregation, Fraction(1)
    if aggregation.finish == "divide":
        rate = 1 / abs(Fraction(aggregation.divisor))
    elif aggregation.finish == "affine":
        rate = abs(Fraction(aggregation.scale))
    bias = max((abs(Fraction(b)) for b in aggregation.bias), default=Fraction(0))
    rate, divisor = max(rate, Fraction(1)), abs(Fraction(ensemble.decision.link_divisor))
    room = Fraction(2) ** (127 if bits == 24 else 1023) * min(divisor, Fraction(1))
    return math.floor((room - bias) / rate / unit)


@cached_per_ensemble
def _tables(ensemble: Ensemble) -> dict[str, Any]:
    """Everything of a forest but its ensemble, worked out once for each."""
    trees, n_nodes = ensemble.trees, len(ensemble.trees.feature)
    inner = np.flatnonzero(trees.feature >= 0)
    numeric = inner[(trees.flags[inner] & CATEGORICAL) == 0]
    feature = trees.feature[numeric]
    banded = np.unique(feature[(trees.flags[numeric] & ZERO_IS_MISSING) > 0])
    edges = (-ZERO_BAND, np.nextafter(ZERO_BAND, np.inf))
    keys = np.empty(len(numeric) + 2 * len(banded), complex)
    keys.real = np.concatenate([feature, banded, banded])
    keys.imag = np.concatenate(
        [trees.threshold[numeric], *(np.full(len(banded), e) for e in edges)]
    )
    keys, place = np.unique(keys, return_inverse=True)
    first_cut = np.searchsorted(keys.real, np.arange(ensemble.n_features + 1))
    cut = np.full(n_nodes, -1)
    cut[numeric] = place[: len(numeric)] - first_cut[feature]
    zero = np.zeros((ensemble.n_features, 2), np.int64)
    band = place[len(numeric) :].reshape(2, len(banded)) - first_cut[banded]
    zero[banded] = np.stack([band[0] + 1, band[1]], axis=1)
    parent = np.full(n_nodes, -1)
    parent[trees.left[inner]] = parent[trees.right[inner]] = inner
    apart = np.zeros(n_nodes, bool)
    flags, (first, last), own = trees.flags[numeric], zero[feature].T, cut[numeric]
    is_left = (flags & MISSING_LEFT) > 0
    goes_apart = np.where(is_left, last > own, first <= own) & ((flags & ZERO_IS_MISSING) > 0)
    # Where the cells of zero lie beside those of the side that they go to, another cut says it.
    beside = goes_apart & np.where(is_left, own >= first - 1, own <= last)
    cut[numeric[beside]] = np.where(is_left, last, first - 1)[beside]
    apart[numeric] = goes_apart & ~beside
    tree = np.repeat(np.arange(ensemble.n_trees), np.diff(trees.root))
    last_keys = keys.copy()
    with np.errstate(over="ignore"):  # below the smallest double comes minus infinity
        last_keys.imag = np.nextafter(keys.imag, -np.inf)
    return {
        "tree": tree,
        "feature": trees.feature.astype(np.int64),
        "parent": parent,
        "cut": cut,
        "apart": apart,
        "zero": zero,
        "fixed": ensemble.is_categorical,
        "keys": keys,
        "first_cut": first_cut,
        # All thresholds, with one more entry at both ends.
        "fenced": np.concatenate([[np.nan], keys.imag, [np.nan]]),
        "last_keys": last_keys,
        "last_fenced": np.concatenate([[np.nan], last_keys.imag, [np.nan]]),
        "first_sums": {},
        **_ranges_of_nodes(trees, numeric, parent, cut, apart, len(keys)),
        **_integers(ensemble),
    }


def _ranges_of_nodes(
    trees: Any, numeric: Ints, parent: Ints, cut: Ints, apart: Ints, most_cells: int
) -> dict[str, Ints]:
    """First and last cell of the tested feature that nodes above leave, except where zero parts."""
    least, most = np.zeros(len(parent), np.int64), np.full(len(parent), most_cells)
    node, at = numeric, numeric
    while len(node):
        above = parent[at]
        node, at, above = node[above >= 0], at[above >= 0], above[above >= 0]
        same = (trees.feature[above] == trees.feature[node]) & (cut[above] >= 0) & ~apart[above]
        left = same & (at == above + 1)
        right = same & ~left
        most[node[left]] = np.minimum(most[node[left]], cut[above[left]])
        least[node[right]] = np.maximum(least[node[right]], cut[above[right]] + 1)
        at = above
    return {"least": least, "most": most}


def _integers(ensemble: Ensemble) -> dict[str, Any]:
    """Leaf and start values, and leaf values in units, rounded down and up."""
    trees = ensemble.trees
    precision = ensemble.aggregation.precision
    value = trees.leaf_value.astype(precision).astype(np.float64)
    start = np.array(ensemble.aggregation.start, precision).astype(np.float64)
    exponent = proof_exponent(ensemble)
    scaled = np.ldexp(value, -exponent)
    bits = 24 if precision == "float32" else 53
    step = Fraction(2) ** grid_exponent(ensemble)
    steps = step / Fraction(2) ** exponent
    return {
        "value": value,
        "start": start,
        "bits": bits,
        "exponent": exponent,
        "step": step,
        "grid": max(1, math.floor(steps)),
        # Sums up to here that are multiples of the grid are not rounded.
        "exact_up_to": min(math.floor(steps * 2**bits), 1 << 62),
        # Sound: a number that the scaling makes 0 is rounded away from it all the same.
        "down": np.where((scaled == 0.0) & (value < 0.0), -1.0, np.floor(scaled)).astype(np.int64),
        "up": np.where((scaled == 0.0) & (value > 0.0), 1.0, np.ceil(scaled)).astype(np.int64),
    }
