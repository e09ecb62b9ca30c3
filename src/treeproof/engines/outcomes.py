"""How an engine that goes row by row writes down what it found.

A verdict at a fixed set says: `verified`, then every smaller distance is safe; `falsified`, then
the witness lies in the set and was replayed here by the model's own arithmetic; or `unknown`, then
there is a reason.
"""

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.instance import distances, lie_in_set
from treeproof.errors import InternalError
from treeproof.model.ensemble import FloatArray
from treeproof.prediction import accumulators
from treeproof.query.constraints import breaks_claim
from treeproof.query.query import Query, categorical_features
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason, Verdict

Rows = int | NDArray[np.int64]


def broken_unchanged(query: Query) -> NDArray[np.bool_]:
    """Rows that break the claim as they are, inside the set that is asked about."""
    if query.reach.is_ball:
        return query.already_broken
    if query.pricing is not None:
        broken = query.already_broken.copy()
        rows = np.flatnonzero(broken)
        broken[rows] = lie_in_set(query, rows, query.rows[rows])
        return broken
    low, high = query.reach.low, query.reach.high
    stays = np.isnan(query.rows) | categorical_features(query.ensemble)
    inside = stays | ((low <= query.rows) & (query.rows <= high))
    return query.already_broken & inside.all(axis=1)


def is_broken_unchanged(query: Query, row: int) -> bool:
    """Whether the row itself lies in its set and breaks the claim."""
    return bool(broken_unchanged(query.take(slice(row, row + 1)))[0])


def mark_broken(query: Query, results: Results, row: Rows) -> None:
    """Write down that unchanged rows break the claim: distance 0, the row is the witness."""
    results.verdict[row] = Verdict.FALSIFIED
    results.reason[row] = UnknownReason.NONE
    results.exact[row] = results.attained[row] = True
    results.witness[row] = query.rows[row]
    results.witness_distance[row] = 0.0
    if query.predicted is not None and results.witness_label is not None:
        results.witness_label[row] = query.class_labels(query.predicted[row])
    _write_bounds(query, results, row, 0.0, 0.0)


def mark_verified(query: Query, results: Results, row: Rows) -> None:
    """Write down that no point of the query's own set breaks the claim."""
    results.verdict[row] = Verdict.VERIFIED
    results.exact[row] = True
    _write_bounds(query, results, row, query.radius_of(row, 0.0), np.inf)


def mark_falsified(query: Query, results: Results, row: int, point: FloatArray) -> bool:
    """Write down a witness in the query's own set; False, with nothing written, if it is none."""
    if not record_witness(query, results, row, point):
        return False
    # Neither verdict may rest on a point outside, and one that breaks the claim is no proof either.
    if not lie_in_set(query, np.array([row]), point[np.newaxis])[0]:
        raise InternalError(
            f"A witness must lie in the set of its row. Got one of row {row} that does not, from an"
            " engine of treeproof. Please report it, and use another engine."
        )
    mark_witnessed(query, results, row)
    return True


def mark_witnessed(query: Query, results: Results, row: Rows) -> None:
    """Write down that the recorded witnesses, which lie in the query's own set, break the claim."""
    results.verdict[row] = Verdict.FALSIFIED
    results.exact[row] = results.attained[row] = True
    # A witness may lie one float outside a set that holds only real numbers of its cell.
    radius = query.radius_of(row, np.inf)
    _write_bounds(query, results, row, 0.0, np.minimum(radius, results.witness_distance[row]))


def mark_unknown(query: Query, results: Results, row: Rows, reason: UnknownReason) -> None:
    """Write down that neither was established, and why."""
    results.verdict[row] = Verdict.UNKNOWN
    results.reason[row] = reason
    _write_bounds(query, results, row, 0.0, np.inf)


def record_witness(query: Query, results: Results, row: int, point: FloatArray) -> bool:
    """Write down a point with its label and distance, if the model's own arithmetic breaks there.

    Nothing is said about the row but that; returns whether the replay confirms the point.
    """
    rows, points = np.array([row]), point[np.newaxis]
    broken, labels = query.replay(points, rows)
    if broken[0]:
        write_witnesses(query, results, rows, points, labels)
    return bool(broken[0])


def write_witnesses(
    query: Query,
    results: Results,
    rows: NDArray[np.int64],
    points: FloatArray,
    labels: NDArray[np.object_],
) -> None:
    """Write down replayed points with the labels that the replay gave, and their distances."""
    results.witness[rows] = points
    results.witness_distance[rows] = distances(query, rows, points)
    if results.witness_label is not None:
        results.witness_label[rows] = labels


def breaks(query: Query, row: int, point: FloatArray) -> bool:
    """Whether a point breaks the claim about one row, by the plain model."""
    return bool(query.is_broken_by(point[np.newaxis], slice(row, row + 1))[0])


def are_broken(query: Query, row: int, points: FloatArray) -> NDArray[np.bool_]:
    """Whether points break the claim about one row, by compiled sums in the model's arithmetic."""
    sums = accumulators(query.ensemble, np.ascontiguousarray(points))
    group = np.full(len(points), query.group[row])
    return breaks_claim(query.ensemble, query.alternatives, group, sums)


def _write_bounds(
    query: Query,
    results: Results,
    row: Rows,
    lower: float | FloatArray,
    upper: float | FloatArray,
) -> None:
    """Boxes have no radius, so their bounds are undefined."""
    results.lower[row] = lower if query.reach.is_ball else np.nan
    results.upper[row] = upper if query.reach.is_ball else np.nan
