"""How an engine that goes row by row writes down what it found.

A verdict at a fixed set says: `verified`, then every smaller distance is safe; `falsified`, then
the witness lies in the set and was replayed here by the model's own arithmetic; or `unknown`, then
there is a reason.
"""

import numpy as np
from numpy.typing import NDArray

from treeproof.engines.instance import distance, lie_in_set, rank_space
from treeproof.errors import InternalError
from treeproof.model.ensemble import FloatArray
from treeproof.query.query import Query
from treeproof.results.outcomes import Outcomes
from treeproof.results.verdict import UnknownReason, Verdict


def is_broken_unchanged(query: Query, row: int) -> bool:
    """Whether the row itself lies in its set and breaks the claim."""
    if not query.already_broken[row]:
        return False
    if query.reach.is_ball:
        return True
    values = query.rows[row]
    low, high = query.reach.low[row], query.reach.high[row]
    stays = np.isnan(values) | rank_space(query.ensemble).categorical
    return bool(np.all(stays | ((low <= values) & (values <= high))))


def settle_broken(query: Query, outcomes: Outcomes, row: int | NDArray[np.int64]) -> None:
    """Write down that unchanged rows break the claim: distance 0, the row is the witness."""
    outcomes.verdict[row] = Verdict.FALSIFIED
    outcomes.reason[row] = UnknownReason.NONE
    outcomes.exact[row] = outcomes.attained[row] = True
    outcomes.witness[row] = query.rows[row]
    outcomes.witness_distance[row] = 0.0
    _write_bounds(query, outcomes, row, 0.0, 0.0)


def settle_verified(query: Query, outcomes: Outcomes, row: int) -> None:
    """Write down that no point of the query's own set breaks the claim."""
    outcomes.verdict[row] = Verdict.VERIFIED
    outcomes.exact[row] = True
    radius = query.reach.radius
    _write_bounds(query, outcomes, row, 0.0 if radius is None else radius, np.inf)


def settle_falsified(query: Query, outcomes: Outcomes, row: int, point: FloatArray) -> bool:
    """Write down a witness in the query's own set, if the replay confirms it.

    Returns
    -------
    bool
        False, with nothing written, when the model's own arithmetic does not break the claim.
    """
    if not breaks(query, row, point):
        return False
    # Neither verdict may rest on a point outside, and one that breaks the claim is no proof either.
    if not lie_in_set(query, np.array([row]), point[np.newaxis])[0]:
        raise InternalError(
            f"A witness must lie in the set of its row. Got one of row {row} that does not, from an"
            " engine of treeproof. Please report it, and use another engine."
        )
    outcomes.verdict[row] = Verdict.FALSIFIED
    outcomes.exact[row] = outcomes.attained[row] = True
    outcomes.witness[row] = point
    outcomes.witness_distance[row] = distance(query, row, point)
    # The witness may lie one float outside a set that holds only real numbers of its cell.
    radius = np.inf if query.reach.radius is None else query.reach.radius
    upper = min(radius, outcomes.witness_distance[row])
    _write_bounds(query, outcomes, row, 0.0, upper)
    return True


def settle_unknown(query: Query, outcomes: Outcomes, row: int, reason: UnknownReason) -> None:
    """Write down that neither was established, and why."""
    outcomes.verdict[row] = Verdict.UNKNOWN
    outcomes.reason[row] = reason
    _write_bounds(query, outcomes, row, 0.0, np.inf)


def breaks(query: Query, row: int, point: FloatArray) -> bool:
    """Whether a point breaks the claim about one row, by the plain model."""
    return bool(query.is_broken_by(point[np.newaxis], slice(row, row + 1))[0])


def _write_bounds(
    query: Query, outcomes: Outcomes, row: int | NDArray[np.int64], lower: float, upper: float
) -> None:
    """Boxes have no radius, so their bounds are undefined."""
    outcomes.lower[row] = lower if query.reach.is_ball else np.nan
    outcomes.upper[row] = upper if query.reach.is_ball else np.nan
