"""Single features (the paper's section 3.4): with one feature free, few outcomes are possible.

Along one feature the model is constant between thresholds, so one point per cell, judged by the
model's own arithmetic, settles every question about that feature exactly; no bound is needed.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.instance import cells_of, point_in_cells, rounded_distances
from treeproof.engines.outcomes import are_broken
from treeproof.errors import UnsupportedQuery, listed
from treeproof.kernels.core.cells import FIXED
from treeproof.model.cuts import cuts_of
from treeproof.prediction import in_slices, thread_count
from treeproof.query.prices import Pricing
from treeproof.query.query import Query
from treeproof.results.features import FeatureResults
from treeproof.search.progress import Progress, telling

_CELLS_AT_ONCE = 2**22
"""Numbers in one block of points, to bound the memory."""


def scan_features(
    query: Query, question: dict[str, Any], *, n_jobs: int = 1, progress: Progress = False
) -> FeatureResults:
    """Find for every row and feature how far the feature alone may move.

    Every feature moves alone, within a ball with or without a radius, or in a box; the others keep
    the row's values.
    """
    if query.pricing is not None and query.pricing.types.rules:
        raise UnsupportedQuery(
            "Single features are looked at in a Domain without rules between features."
            f" Got {listed([rule.text for rule in query.pricing.types.rules])}."
        )
    n_rows, n_features = query.rows.shape
    results = FeatureResults(
        row=np.arange(n_rows, dtype=np.int64),
        label=query.class_labels(query.labels),
        radius=np.full((n_rows, n_features), np.inf if query.reach.is_ball else np.nan),
        attained=np.zeros((n_rows, n_features), dtype=bool),
        breaking_value=np.full((n_rows, n_features), np.nan),
        unimportant=np.ones((n_rows, n_features), dtype=bool),
        examined=~query.never_moved(),
        broken=query.already_broken.copy(),
        feature_names=query.ensemble.feature_names,
        question=question | query.words(),
    )
    results.unimportant &= results.examined

    def scan(part: slice) -> None:
        for row in range(part.start, part.stop):
            if query.already_broken[row]:
                _mark_broken(query, row, results)
            elif query.pricing is None:
                _scan_row(query, row, results)
            else:
                _scan_axes(query, query.pricing, row, results)
            if tell is not None:
                tell(1)

    with telling(progress, n_rows) as tell:
        in_slices(range(n_rows), thread_count(n_jobs), scan)
    return results


_CANDIDATE = np.dtype(
    [("feature", int), ("cell", int), ("value", float), ("distance", float), ("is_beyond", bool)]
)
"""A cell that one feature alone can reach, other than the row's own, and a value in it.

Its distance is rounded down, and 0 for boxes; beyond, where only larger distances reach it.
"""


def _mark_broken(query: Query, row: int, results: FeatureResults) -> None:
    # Every other feature keeps the row's value, whether that lies in a box or not.
    results.unimportant[row] = False
    if query.reach.is_ball:
        results.radius[row] = np.where(results.examined[row], 0.0, np.inf)
        results.attained[row] = results.examined[row]


def _scan_axes(query: Query, pricing: Pricing, row: int, results: FeatureResults) -> None:
    """The same where changes have prices: every axis changes alone, a group as one feature."""
    prices, axes = pricing.prices([row]), pricing.axes
    limit = pricing.limit
    for number, axis in enumerate(axes.axes):
        place = axes.atoms_of(number)
        atoms = np.flatnonzero(np.isfinite(prices.cost[0, place]))
        atoms = atoms[atoms != prices.home[0, number]]
        chosen = np.tile(prices.home[0], (len(atoms), 1))
        chosen[:, number] = atoms
        points = np.array([prices.point(0, each) for each in chosen])
        points = points.reshape(len(atoms), query.rows.shape[1])
        columns = list(axis.columns)
        # A box need not hold the row itself: all else keeps its own values.
        points[:, np.setdiff1d(np.arange(points.shape[1]), columns)] = np.delete(
            query.rows[row], columns
        )
        broken = are_broken(query, row, points) if len(points) else np.zeros(0, dtype=bool)
        level = [
            (float(prices.cost[0, place][atom]), bool(prices.is_beyond[0, place][atom]), index)
            for index, atom in enumerate(atoms.tolist())
            if broken[index]
        ]
        if limit is not None:
            level = [each for each in level if (Fraction(each[0]), each[1]) <= (limit, False)]
        if not level:
            continue
        _, _, index = min(level)
        results.unimportant[row, columns] = False
        results.breaking_value[row, columns] = points[index, columns]
        if not pricing.is_box:
            least = pricing.least_cost(row, points[index])
            radius = pricing.rounded_down(least)
            is_exact = Fraction(radius) ** (2 if pricing.is_square else 1) == least
            results.radius[row, columns] = radius
            results.attained[row, columns] = is_exact and (pricing.attains(row, points[index]))


def _scan_row(query: Query, row: int, results: FeatureResults) -> None:
    found = _candidates(query, row)
    broken = _judge(query, row, found)
    # Nearest first; at one distance what is attained comes before what lies beyond.
    for candidate in np.sort(found[broken], order=["distance", "is_beyond"], kind="stable"):
        feature = int(candidate["feature"])
        if not np.isnan(results.breaking_value[row, feature]):
            continue
        value = _value_in_cell(query, row, feature, int(candidate["cell"]))
        results.breaking_value[row, feature] = value
        if query.reach.is_ball:
            results.radius[row, feature] = candidate["distance"]
            results.attained[row, feature] = not candidate["is_beyond"]
        results.unimportant[row, feature] = False


def _candidates(query: Query, row: int) -> NDArray[Any]:
    """Cells within the query's own set; at any radius where it has none."""
    reach = query.reach
    radius = np.inf if reach.radius is None else reach.radius
    low, high = reach.take(slice(row, row + 1)).box(query.rows[[row]], radius)
    low_cell, high_cell = cells_of(query, row, low[0], high[0])
    home, _ = cells_of(query, row, query.rows[row], query.rows[row])
    moves = (home != FIXED) & ((low_cell != home) | (high_cell != home))
    parts = [
        _cells_of_feature(query, row, int(f), int(home[f]), int(low_cell[f]), int(high_cell[f]))
        for f in np.flatnonzero(moves)
    ]
    return np.concatenate([np.zeros(0, dtype=_CANDIDATE), *parts])


def _cells_of_feature(
    query: Query, row: int, feature: int, home: int, first: int, last: int
) -> NDArray[Any]:
    """The cells of a feature from first to last other than home, as `_CANDIDATE`."""
    cuts, reach = cuts_of(query.ensemble).of(feature), query.reach
    cells = np.arange(first, last + 1)
    cells = cells[cells != home]
    upwards = cells > home
    # The nearest edge of a cell: its lower threshold from below, its upper one from above.
    edges = cuts[np.where(upwards, cells - 1, cells)]
    real = np.dtype(query.ensemble.input_precision).type
    with np.errstate(over="ignore"):
        below = np.nextafter(edges.astype(real), real(-np.inf)).astype(np.float64)
    distance, exact = np.zeros(len(cells)), np.ones(len(cells), dtype=bool)
    if reach.is_ball:
        x = float(query.rows[row, feature])
        last = edges if reach.holds_reals else below
        ends = np.where(upwards, edges, last)
        for side, rate in ((upwards, reach.up[feature]), (~upwards, reach.down[feature])):
            if side.any():
                distance[side], exact[side] = rounded_distances(x, ends[side], float(rate))
        exact &= upwards | (not reach.holds_reals)
    found = np.empty(len(cells), dtype=_CANDIDATE)
    found["feature"], found["cell"] = feature, cells
    found["value"] = np.where(upwards, edges, below)
    found["distance"], found["is_beyond"] = distance, ~exact
    return found


def _judge(query: Query, row: int, found: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each candidate breaks the claim, by the model's own arithmetic."""
    n_features = query.rows.shape[1]
    broken = np.zeros(len(found), dtype=bool)
    size = max(1, _CELLS_AT_ONCE // n_features)
    for first in range(0, len(broken), size):
        part = slice(first, min(first + size, len(broken)))
        points = np.tile(query.rows[row], (part.stop - part.start, 1))
        points[np.arange(len(points)), found["feature"][part]] = found["value"][part]
        broken[part] = are_broken(query, row, points)
    return broken


def _value_in_cell(query: Query, row: int, feature: int, cell: int) -> float:
    """Value of a cell nearest to the row's own, within the query's set."""
    low_cell = np.full(query.rows.shape[1], FIXED, dtype=np.int32)
    high_cell = low_cell.copy()
    low_cell[feature] = high_cell[feature] = cell
    return float(point_in_cells(query, row, low_cell, high_cell)[feature])
