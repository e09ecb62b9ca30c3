"""Witnesses as people are shown them: short numbers that break the claim when they are typed in."""

from __future__ import annotations  # those of inner functions would be made anew in each call

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.instance import distances, lie_in_set
from treeproof.model import evaluate
from treeproof.model.cuts import cuts_of
from treeproof.model.ensemble import FloatArray
from treeproof.model.score_meaning import probabilities
from treeproof.prediction import accumulators
from treeproof.query.query import Query, categorical_features
from treeproof.results.columns import LaterColumn
from treeproof.results.numbers import MOST_PLACES, ColumnFormat, ColumnFormats, decimal_within

_FURTHER = (0, 1, 2, 4, 8, MOST_PLACES)
"""Decimals beyond those that cells need, tried where a point leaves its set, such as a budget."""


def shown_columns(
    query: Query, witness: FloatArray, formats: Sequence[ColumnFormat] | None = None
) -> dict[str, LaterColumn]:
    """Columns of `Results` that say what people are shown, worked out row by row when it is read.

    Those are witnesses in the `formats` of their columns, what they cost, and probabilities.
    """
    n_rows = len(witness)
    formats = ColumnFormats(query.rows) if formats is None else formats

    def is_there(rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.asarray(~np.isnan(witness[rows]).all(axis=1))

    def points(rows: NDArray[np.int64]) -> FloatArray:
        found, there = witness[rows], is_there(rows)
        if there.any():
            found[there] = shown_points(query, rows[there], found[there], formats)
        return found

    shown = LaterColumn(witness.shape, points)

    def cost(rows: NDArray[np.int64]) -> FloatArray:
        found, there = np.full(len(rows), np.nan), is_there(rows)
        if there.any():
            read = evaluate.cast_rows(query.ensemble, shown[rows[there]])
            found[there] = distances(query, rows[there], read)
        return found

    def after(rows: NDArray[np.int64]) -> FloatArray:
        found, there = np.full(len(rows), np.nan), is_there(rows)
        if there.any():
            found[there] = _probability(query, rows[there], shown[rows[there]])
        return found

    return {
        "shown": shown,
        "cost": LaterColumn((n_rows,), cost),
        "probability": LaterColumn((n_rows,), lambda rows: _probability(query, rows)),
        "witness_probability": LaterColumn((n_rows,), after),
    }


def _probability(
    query: Query, rows: NDArray[np.int64], points: FloatArray | None = None
) -> FloatArray:
    """Probability of the label that the model gives each row, at the row or at its point."""
    if query.predicted is None:
        return np.full(len(rows), np.nan)
    read = evaluate.cast_rows(query.ensemble, query.rows[rows] if points is None else points)
    scores = evaluate.finish(query.ensemble, accumulators(query.ensemble, read))
    known = probabilities(query.ensemble, scores)
    if known is None:
        return np.full(len(rows), np.nan)
    return known[np.arange(len(rows)), query.predicted[rows]]


def shown_points(
    query: Query,
    owners: NDArray[np.int64],
    points: FloatArray,
    formats: Sequence[ColumnFormat],
) -> FloatArray:
    """Points of the claims about rows of the query, with numbers as short as their columns have.

    Whole numbers and cents stay such where that breaks the claim; otherwise values have as many
    decimals more as their cells need. Every point is replayed by the plain model, gets the
    label of the given one and lies in the set of its row; where no shorter one does, it stays.
    """
    shown, waiting = points.copy(), np.arange(len(points))
    labels = query.replay(points, owners)[1]
    for attempt, more in enumerate((None, *_FURTHER)):
        if not waiting.size:
            break
        tried = np.array(
            [_shorter(query, owners[i], points[i], formats, more) for i in waiting]
        ).reshape(len(waiting), -1)
        is_new = attempt == 0 or (tried != points[waiting]).any(axis=1)
        # Sound: what is shown is judged as the witness itself was, after the rounding of the
        # model's input, which whoever types it in meets as well.
        read = evaluate.cast_rows(query.ensemble, tried)
        rows = owners[waiting]
        is_broken, becomes = query.replay(read, rows)
        holds = is_new & is_broken & (becomes == labels[waiting])
        holds[holds] = lie_in_set(query, rows[holds], read[holds])
        shown[waiting[holds]] = tried[holds]
        waiting = waiting[~holds]
    return shown


def _shorter(
    query: Query, row: int, point: FloatArray, formats: Sequence[ColumnFormat], more: int | None
) -> FloatArray:
    """A point whose changed numbers are short; they leave their cells where `more` is None.

    Of the values of a cell the one that is nearest to the row's own is taken. The columns of a grid
    keep it, if need be beyond the cell, on the side away from the row; whether the point still
    breaks the claim is for the caller to see.
    """
    own, result = query.rows[row], point.copy()
    bounds = query.reach if query.pricing is None else query.pricing
    numeric = np.isfinite(own) & np.isfinite(point) & (own != point) & ~_choices(query)
    for feature in np.flatnonzero(numeric).tolist():
        value, home, column = float(point[feature]), float(own[feature]), formats[feature]
        cuts = cuts_of(query.ensemble).of(feature)
        cell = int(np.searchsorted(cuts, value, side="right"))
        first = float(cuts[cell - 1]) if cell else -math.inf
        end = float(cuts[cell]) if cell < len(cuts) else math.inf
        first = max(first, float(bounds.low[row, feature]))
        end = min(end, math.nextafter(float(bounds.high[row, feature]), math.inf))
        # A change within the row's own cell is one of the set, not of the model: it stays near.
        near = min(max(home, first), end) if not first <= home < end else value
        places = column.places(near)
        if more is None and column.has_grid:
            low, high = (near, math.inf) if near > home else (-math.inf, near)
            is_on_grid = first <= round(near, places) < end
            short = None if is_on_grid else decimal_within(near, low, high, places)
            if short is not None:
                result[feature] = float(short)
                continue
        short = decimal_within(near, first, end, places + (more or 0))
        if short is not None:
            result[feature] = float(short)
    return result


def _choices(query: Query) -> NDArray[np.bool_]:
    """Features whose values are choices already: categories, listed and whole numbers, groups."""
    are_choices = categorical_features(query.ensemble).copy()
    if query.pricing is not None:
        types = query.pricing.types
        are_choices |= types.integer
        listed = [
            *types.values,
            *types.may_become,
            *(f for group, _ in types.groups for f in group),
        ]
        are_choices[listed] = True
    return are_choices
