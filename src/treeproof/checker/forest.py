"""An ensemble in integers: cells between thresholds, leaf values in one unit, pieces of trees.

Cell c of a feature holds the values v with exactly c thresholds <= v; a split at its threshold
number j sends v left iff the cell of v is at most j.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from treeproof.model.ensemble import (
    CATEGORICAL,
    MISSING_LEFT,
    NONNEGATIVE_CATEGORY,
    WHOLE_CATEGORY,
    ZERO_BAND,
    ZERO_IS_MISSING,
    Ensemble,
    cached_per_ensemble,
)

EXTRA_BITS = 40
"""The unit of all integers is so many bits finer than the model's own numbers."""

Box = dict[int, tuple[int, int]]
"""First and last cell per feature; features that are not listed keep the row's value."""


class Forest:
    """What the checker reads of a model; see the module."""

    root: list[int]
    feature: list[int]
    right: list[int]
    flags: list[int]
    threshold: list[float]
    leaf: list[int]
    category_set: list[int]
    set_offset: list[int]
    words: list[int]
    output: list[int]
    value: list[list[float]]
    fixed: set[int]
    cuts: dict[int, list[float]]
    cut: list[int]
    zero: dict[int, tuple[int, int]]
    bits: int
    exponent: int
    unit: Fraction
    integers: list[list[int]]
    start: list[int]
    first_sums: dict[tuple[float, bool], float]
    grid = 1 << EXTRA_BITS

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        vars(self).update(_tables(ensemble))

    def goes_left(self, node: int, value: float) -> bool:
        """Where a single value goes at an inner node."""
        flags = self.flags[node]
        if math.isnan(value) or (flags & ZERO_IS_MISSING and abs(value) <= ZERO_BAND):
            return bool(flags & MISSING_LEFT)
        if not flags & CATEGORICAL:
            return bool(value < self.threshold[node])
        number = self.category_set[node]
        words = self.words[self.set_offset[number] : self.set_offset[number + 1]]
        if not words or not -1.0 < value < 32.0 * len(words):
            return False
        if (flags & NONNEGATIVE_CATEGORY and value < 0.0) or (
            flags & WHOLE_CATEGORY and value != math.floor(value)
        ):
            return False
        return bool(words[int(value) // 32] >> int(value) % 32 & 1)

    def pieces(self, tree: int, row: list[float], box: Box) -> Iterator[tuple[int, Box]]:
        """Leaves of a tree that a box meets, as products of ranges; other features span the box.

        Where zero counts as missing, the values of one leaf may be no range; it then comes in
        several pieces.
        """
        pending: list[tuple[int, Box]] = [(self.root[tree], {})]
        while pending:
            node, ranges = pending.pop()
            while (feature := self.feature[node]) >= 0:
                if feature not in box:
                    left = self.goes_left(node, row[feature])
                    node = node + 1 if left else self.right[node]
                    continue
                low, high = ranges.get(feature) or box[feature]
                cut = self.cut[node]
                if self.flags[node] & ZERO_IS_MISSING:
                    first, last = self.zero[feature]
                    zero_left = bool(self.flags[node] & MISSING_LEFT)
                    own = node + 1 if zero_left else self.right[node]
                    apart = last > cut if zero_left else first <= cut
                    if first <= low and high <= last:
                        node = own
                        continue
                    if apart and first <= high and low <= last:
                        if low < first:
                            pending.append((node, {**ranges, feature: (low, first - 1)}))
                        if high > last:
                            pending.append((node, {**ranges, feature: (last + 1, high)}))
                        ranges = {**ranges, feature: (max(low, first), min(high, last))}
                        node = own
                        continue
                if low > cut:
                    node = self.right[node]
                elif high <= cut:
                    node += 1
                else:
                    pending.append((self.right[node], {**ranges, feature: (cut + 1, high)}))
                    ranges = {**ranges, feature: (low, cut)}
                    node += 1
            yield self.leaf[node], ranges

    def leaf_of(self, tree: int, row: list[float]) -> int:
        """The leaf of a tree that a row reaches."""
        node = self.root[tree]
        while (feature := self.feature[node]) >= 0:
            node = node + 1 if self.goes_left(node, row[feature]) else self.right[node]
        return self.leaf[node]

    def rounded_sums(self, leaves: Iterable[tuple[int, int]]) -> list[float]:
        """Sums of leaves, given with their trees in order, rounded as the model rounds them."""
        real = np.dtype(self.ensemble.aggregation.precision).type
        totals = [real(start) for start in self.ensemble.aggregation.start]
        for tree, leaf in leaves:
            own = self.output[tree]
            for output, value in enumerate(self.value[leaf]):
                totals[output if own < 0 else own] += real(value)
        return [float(total) for total in totals]

    def passed(
        self, feature: int, x: float, radius: float, rate: float, *, is_open: bool = False
    ) -> int:
        """Thresholds T <= x + radius * rate, or T < that for an open end; exact."""
        cuts = self.cuts[feature]
        if rate == 0.0 or radius == 0.0 or math.isinf(x):
            return bisect_right(cuts, x)
        if math.isinf(radius):
            return bisect_right(cuts, math.copysign(math.inf, rate))
        step = radius * rate
        # Sound: product and sum are each rounded by at most 2**-53 of their size, or by less than
        # the smallest double; four times that, so that rounding this bound does not matter.
        error = (abs(x) + abs(step)) * 2.0**-51 + 2.0**-1070
        first, last = 0, len(cuts)
        if math.isfinite(error):
            first = bisect_left(cuts, x + step - error)
            last = bisect_right(cuts, x + step + error)
        if first == last:
            return first
        exact = Fraction(x) + Fraction(radius) * Fraction(rate)
        return (bisect_left if is_open else bisect_right)(cuts, exact, first, last)


@cached_per_ensemble
def _tables(ensemble: Ensemble) -> dict[str, Any]:
    """Everything of a forest but its ensemble, worked out once for each."""
    trees, precision = ensemble.trees, ensemble.aggregation.precision
    names = ("root", "feature", "right", "flags", "threshold", "leaf", "category_set", "set_offset")
    found: dict[str, Any] = {name: getattr(trees, name).tolist() for name in names}
    numeric: dict[int, set[float]] = {}
    banded: set[int] = set()
    nodes = list(zip(found["feature"], found["flags"], found["threshold"], strict=True))
    for feature, flags, threshold in nodes:
        if feature >= 0 and not flags & CATEGORICAL:
            numeric.setdefault(feature, set()).add(threshold)
            if flags & ZERO_IS_MISSING:
                banded.add(feature)
                numeric[feature] |= {-ZERO_BAND, math.nextafter(ZERO_BAND, math.inf)}
    cuts = {feature: sorted(values) for feature, values in sorted(numeric.items())}
    value = trees.leaf_value.astype(precision).astype(float).tolist()
    start = np.array(ensemble.aggregation.start, precision).astype(float).tolist()
    numbers = [v for row in [*value, start] for v in row if v]
    exponents = [
        (n & -n).bit_length() - d.bit_length() for n, d in map(float.as_integer_ratio, numbers)
    ]
    exponent = min(exponents, default=0) - EXTRA_BITS
    unit = Fraction(2) ** exponent

    def count(number: float) -> int:
        """Units in one of the model's own numbers."""
        n, d = number.as_integer_ratio()
        return n * unit.denominator // (d * unit.numerator)

    return found | {
        "words": trees.set_words.tolist(),
        "output": trees.tree_output.tolist(),
        "value": value,
        "fixed": set(np.flatnonzero(ensemble.is_categorical).tolist()),
        "cuts": cuts,
        "cut": [
            -1 if f < 0 or flags & CATEGORICAL else bisect_left(cuts[f], threshold)
            for f, flags, threshold in nodes
        ],
        "zero": {
            f: tuple(bisect_right(cuts[f], end) for end in (-ZERO_BAND, ZERO_BAND)) for f in banded
        },
        "bits": 24 if precision == "float32" else 53,
        "exponent": exponent,
        "unit": unit,
        "integers": [[count(v) for v in row] for row in value],
        "start": [count(s) for s in start],
        "first_sums": {},
    }
