"""The truth about pairs of rows by enumeration: two values of every cell, all pairs of points.

Slow and obvious on purpose: labels, scores and sums of the plain model at every point of a grid
that holds both ends of every cell, and every pair of points that a property is about.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.oracle.brute_force import thresholds
from treeproof.model import evaluate
from treeproof.model.domain import smallest_double_rounding_up_to
from treeproof.model.ensemble import Ensemble

FloatArray = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Grid:
    """Points of a box, one axis for each feature, and what the model says of them."""

    values: list[FloatArray]
    scores: NDArray[np.floating]  # (n_points, n_outputs)
    labels: NDArray[np.int64] | None


def values_of(ensemble: Ensemble, feature: int, low: float, high: float) -> FloatArray:
    """Both ends of every cell of a feature between two doubles."""
    if ensemble.is_categorical[feature]:
        return np.array([code for code in range(3) if low <= code <= high], dtype=np.float64)
    cuts = thresholds(ensemble, feature)
    if ensemble.input_precision == "float32":
        cuts = smallest_double_rounding_up_to(cuts)
    low = low if math.isfinite(low) else min([*cuts.tolist(), 0.0, high]) - 1.0
    high = high if math.isfinite(high) else max([*cuts.tolist(), 0.0, low]) + 1.0
    cuts = cuts[(cuts > low) & (cuts <= high)]
    return np.unique(np.concatenate([[low, high], cuts, np.nextafter(cuts, -np.inf)]))


def whole_values(ensemble: Ensemble, feature: int, low: float, high: float) -> FloatArray:
    """Whole numbers between two doubles, as far as thresholds reach and one more."""
    ends = values_of(ensemble, feature, low, high)
    low, high = max(low, ends.min() - 1.0), min(high, ends.max() + 1.0)
    return np.arange(math.ceil(low), math.floor(high) + 1, dtype=np.float64)


def grid_of(
    ensemble: Ensemble,
    low: FloatArray,
    high: FloatArray,
    missing: Sequence[int] = (),
    taken: Mapping[int, FloatArray] | None = None,
) -> Grid:
    """Points of a box; `taken` has all values of those features that do not take all doubles."""
    values = [
        values_of(ensemble, feature, float(low[feature]), float(high[feature]))
        if taken is None or feature not in taken
        else taken[feature]
        for feature in range(ensemble.n_features)
    ]
    values = [
        np.append(axis, np.nan) if feature in missing else axis
        for feature, axis in enumerate(values)
    ]
    points = np.array(list(itertools.product(*values)))
    scores = evaluate.margins(ensemble, points)
    labels = None
    if ensemble.decision.kind != "score":
        labels = evaluate.label_indices(ensemble, scores)
    return Grid(values, scores, labels)


def by_change(grid: Grid, column: NDArray, changed: Sequence[int]) -> NDArray:
    """A column of the points as a table: rows for what is shared, columns for what changes."""
    shape = [len(axis) for axis in grid.values]
    table = np.moveaxis(column.reshape(shape), list(changed), range(-len(changed), 0))
    return table.reshape(-1, math.prod(shape[feature] for feature in changed))


def allowed(
    grid: Grid,
    changed: Sequence[int],
    relation: str = "",
    widths: Sequence[Fraction] = (),
) -> NDArray[np.bool_]:
    """Which changes go together: (n_changes, n_changes), the first row's first."""
    combinations = list(itertools.product(*(grid.values[feature].tolist() for feature in changed)))
    table = np.ones((len(combinations), len(combinations)), dtype=bool)
    if not relation:
        return table
    for one, other in itertools.product(range(len(combinations)), repeat=2):
        for place, feature in enumerate(changed):
            z, u = combinations[one][place], combinations[other][place]
            if math.isnan(z) or math.isnan(u):
                fits = math.isnan(z) and math.isnan(u)
            elif relation == "rising":
                fits = u >= z
            else:
                fits = abs(Fraction(z) - Fraction(u)) <= widths[feature]
            table[one, other] &= fits
    return table


def largest_difference(
    grid: Grid, output: int, changed: Sequence[int], pairs: NDArray[np.bool_], sign: float = 1.0
) -> Fraction | float:
    """Largest score of the second row minus that of the first one, of pairs that are allowed."""
    score = sign * by_change(grid, grid.scores[:, output].astype(np.float64), changed)
    first, second = np.broadcast_arrays(score[:, :, np.newaxis], score[:, np.newaxis, :])
    return largest_of(first[:, pairs], second[:, pairs])


def largest_of(first: NDArray[Any], second: NDArray[Any]) -> Fraction | float:
    """Largest difference of two doubles each, without rounding; minus infinity of none."""
    difference = second - first
    best = difference.max(initial=-math.inf)
    if not math.isfinite(best):
        return float(best)
    # A difference that is rounded is wrong by less than a step of its last digit.
    near = difference >= best - 2.0 * np.spacing(abs(best))
    found = set(zip(first[near].tolist(), second[near].tolist(), strict=True))
    return max(Fraction(other) - Fraction(one) for one, other in found)


def differs(grid: Grid, changed: Sequence[int]) -> bool:
    """Whether some change alone changes the label."""
    assert grid.labels is not None
    labels = by_change(grid, grid.labels, changed)
    return bool((labels != labels[:, :1]).any())


def crosses(grid: Grid, changed: Sequence[int], is_one: NDArray, is_other: NDArray) -> bool:
    """Whether some change alone leads from a point of one kind to one of another kind."""
    one, other = (by_change(grid, kind, changed).any(axis=1) for kind in (is_one, is_other))
    return bool((one & other).any())
