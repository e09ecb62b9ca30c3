"""The truth by enumeration: one point of every cell of a box, judged by the plain model.

Slow and obvious on purpose; exact fractions instead of rounded distances, no kernels, no engines.

A split sends ``x < T`` left with a canonical threshold T, a box is closed, so a feature that starts
at x reaches T upwards at distance T - x. Among real numbers it passes T downwards at every distance
beyond x - T (an infimum that is not attained), among doubles at that of the double before T.
"""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from treeproof.model import evaluate
from treeproof.model.ensemble import CATEGORICAL, ZERO_BAND, ZERO_IS_MISSING, Ensemble
from treeproof.query.query import Query

FloatArray = NDArray[np.float64]
Level = tuple[Fraction, bool]
"""A distance, and whether it must be exceeded (False: attained)."""

START: Level = (Fraction(0), False)


@dataclasses.dataclass(frozen=True)
class Radius:
    """The minimal perturbation of a row.

    ``value`` is the largest double not above the exact distance; ``attained`` says whether the
    closed ball of that very radius already holds a violation. Infinite when nothing breaks the row.
    """

    value: float
    attained: bool
    exact: Fraction | None

    def is_same(self, value: float, *, attained: bool) -> bool:
        """Whether a stated radius describes the same balls.

        "Beyond r" and "at the double after r" are broken by the same doubles: they are two names
        of one answer when distances of two features lie one double apart.
        """
        return bool(_first_broken(value, attained) == _first_broken(self.value, self.attained))


def _first_broken(value: float, attained: bool) -> float:
    return value if attained else math.nextafter(value, math.inf)


def thresholds(ensemble: Ensemble, feature: int) -> FloatArray:
    """Sorted distinct canonical thresholds of a feature, with the edges of LightGBM's zero band."""
    trees = ensemble.trees
    nodes = (trees.feature == feature) & ((trees.flags & CATEGORICAL) == 0)
    values = trees.threshold[nodes].tolist()
    if np.any(trees.flags[nodes] & ZERO_IS_MISSING):
        values += [-ZERO_BAND, float(np.nextafter(ZERO_BAND, np.inf))]
    return np.unique(np.array(values, dtype=np.float64))


def is_fixed(query: Query, row: int, feature: int) -> bool:
    """Missing and categorical entries are never perturbed."""
    is_category = query.ensemble.is_categorical[feature]
    return bool(np.isnan(query.rows[row, feature]) or is_category)


def point_of_cell(ensemble: Ensemble, cuts: FloatArray, cell: int) -> float:
    """A value of the model's input precision in a cell: its lower threshold, or just below all."""
    if cell > 0:
        return float(cuts[cell - 1])
    real = np.dtype(ensemble.input_precision).type
    return float(np.nextafter(real(cuts[0]), real(-np.inf))) if len(cuts) else 0.0


def _down_level(value: float, cut: float, rate: float, *, over_reals: bool) -> Level | None:
    if rate == 0.0 or not np.isfinite(value):
        return None
    if np.isinf(rate):
        return (Fraction(0), True)
    if not over_reals:
        cut = math.nextafter(cut, -math.inf)
        if math.isinf(cut):
            return None
    return ((Fraction(value) - Fraction(float(cut))) / Fraction(float(rate)), over_reals)


def _up_level(value: float, cut: float, rate: float) -> Level | None:
    if rate == 0.0 or not np.isfinite(value):
        return None
    if np.isinf(rate):
        return (Fraction(0), True)
    return ((Fraction(float(cut)) - Fraction(value)) / Fraction(float(rate)), False)


def cell_levels(query: Query, row: int, feature: int) -> dict[int, Level]:
    """Cells that a feature can reach at any radius, with the level at which each is reached."""
    value = float(query.rows[row, feature])
    if is_fixed(query, row, feature):
        return {-1: START}
    cuts = thresholds(query.ensemble, feature)
    reach = query.reach
    least = min(float(reach.low[row, feature]), value)
    most = max(float(reach.high[row, feature]), value)
    home = int(np.sum(cuts <= value))
    levels: dict[int, Level] = {home: START}
    for cell in range(home):
        over_reals = query.ensemble.over_reals
        level = _down_level(value, cuts[cell], reach.down[feature], over_reals=over_reals)
        if level is not None and least < cuts[cell]:
            levels[cell] = level
    for cell in range(home + 1, len(cuts) + 1):
        level = _up_level(value, cuts[cell - 1], reach.up[feature])
        if level is not None and most >= cuts[cell - 1]:
            levels[cell] = level
    return levels


def _cells_of_box(query: Query, row: int, feature: int) -> list[int]:
    """Cells that the closed set of the query's own radius or box meets."""
    if is_fixed(query, row, feature):
        return [-1]
    reach = query.reach
    if reach.is_ball:
        assert reach.radius is not None
        limit = reach.radius
        return [
            cell
            for cell, (distance, beyond) in cell_levels(query, row, feature).items()
            if (distance < limit if beyond else distance <= limit)
        ]
    cuts = thresholds(query.ensemble, feature)
    low, high = reach.low[row, feature], reach.high[row, feature]
    return list(range(int(np.sum(cuts <= low)), int(np.sum(cuts <= high)) + 1))


def _points(query: Query, row: int, cells: list[list[int]]) -> FloatArray:
    ensemble = query.ensemble
    columns = []
    for feature, choices in enumerate(cells):
        cuts = thresholds(ensemble, feature)
        home = float(query.rows[row, feature])
        columns.append([home if c == -1 else point_of_cell(ensemble, cuts, c) for c in choices])
    return np.array(list(itertools.product(*columns)), dtype=np.float64)


def judge(query: Query, row: int, points: FloatArray) -> NDArray[np.bool_]:
    """Whether each point breaks the claim about one row."""
    many = dataclasses.replace(query, group=np.full(len(points), query.group[row]))
    return many.is_broken_by(points)


def has_near_tie(query: Query, row: int) -> bool:
    """Whether at some point the label nearly ties with another class, before the link."""
    label = query.alternatives.group_label[query.group[row]]
    levels = [cell_levels(query, row, f) for f in range(query.rows.shape[1])]
    cells = [list(choices) for choices in levels]
    if query.reach.radius is not None:
        cells = [_cells_of_box(query, row, f) for f in range(query.rows.shape[1])]
    points = _points(query, row, cells)
    ensemble = query.ensemble
    sums = evaluate.accumulate(ensemble, evaluate.leaf_rows(ensemble, points))
    margins = evaluate.finish(ensemble, sums).astype(np.float64)
    apart = np.abs(margins - margins[:, [label]]) / ensemble.decision.link_divisor
    slack = max(1e-12, float(query.alternatives.link_slack.max()))
    return bool(np.any((apart > 0.0) & (apart <= slack)))


def n_points(query: Query, row: int) -> int:
    """How many points `radius` tries for a row."""
    counts = [len(cell_levels(query, row, f)) for f in range(query.rows.shape[1])]
    return int(np.prod(counts, dtype=np.float64))


def violation(query: Query, row: int) -> FloatArray | None:
    """A point of the query's own set that breaks the claim about a row, or None."""
    cells = [_cells_of_box(query, row, f) for f in range(query.rows.shape[1])]
    points = _points(query, row, cells)
    broken = np.flatnonzero(judge(query, row, points))
    return points[broken[0]] if broken.size else None


def radius(query: Query, row: int) -> Radius:
    """The exact minimal perturbation of a row, over all points that any radius reaches."""
    levels = [cell_levels(query, row, f) for f in range(query.rows.shape[1])]
    points = _points(query, row, [list(choices) for choices in levels])
    broken = judge(query, row, points)
    reached = itertools.product(*(choices.values() for choices in levels))
    best = min(
        (max(level) for level, bad in zip(reached, broken, strict=True) if bad), default=None
    )
    if best is None:
        return Radius(np.inf, False, None)
    distance, beyond = best
    value = _double_not_above(distance)
    return Radius(value, not beyond and Fraction(value) == distance, distance)


def _double_not_above(exact: Fraction) -> float:
    try:
        value = float(exact)
    except OverflowError:
        return float(np.finfo(np.float64).max)
    while Fraction(value) > exact:
        value = float(np.nextafter(value, -np.inf))
    return value
