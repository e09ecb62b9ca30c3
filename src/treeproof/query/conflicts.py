"""Rows of different classes that can be made the same: what no classifier can get right."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, UnsupportedQuery, require_backend
from treeproof.query.boxes import RowBoxes, boxes_around
from treeproof.query.perturbations import L0, L1, L2, Ball, Box, ball_reach, in_order

_PAIRS_AT_ONCE = 1 << 22
MOST_ROWS = 10_000
"""Rows whose conflicts training looks for on its own: the pairs grow with their square."""


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Pairs of rows of different classes whose boxes meet.

    Attributes
    ----------
    cover : bool (n_rows,)
        Rows of which every pair has one, as few as possible with two classes: without them no two
        rows are in conflict.
    least_error : float
        Share of the rows that every classifier gets wrong somewhere in their boxes.
    """

    cover: NDArray[np.bool_]
    least_error: float


class Moves(NamedTuple):
    """What the moves from one row to another add up to, where their sets just meet.

    The sum of powers of distances in units; power 0 counts features that differ.
    """

    units: NDArray[np.float64]  # (n_features,) 0 for those that do not move
    power: int
    limit: float


def find_conflicts(
    boxes: RowBoxes, targets: NDArray[np.int64], moves: Moves | None = None
) -> Conflicts:
    """Find a largest set of disjoint pairs in conflict, and a cover of all pairs.

    Sound: where two boxes meet, both rows have a point in common, which has one label; so of every
    pair at least one row is wrong there, and of disjoint pairs at least as many rows as pairs. With
    two classes a largest matching has as many pairs as the smallest cover has rows (König), so that
    the error is reached by a function that gives all other boxes their labels; with more classes it
    is a lower bound, the best of those between one class and all others.
    """
    require_backend("scipy", "sklearn")
    n_rows = len(targets)
    classes = np.unique(targets)
    best: Conflicts | None = None
    cover_of_all = np.zeros(n_rows, dtype=bool)
    for number in classes[1:] if len(classes) == 2 else classes:
        own, other = np.flatnonzero(targets == number), np.flatnonzero(targets != number)
        if len(own) == 0 or len(other) == 0:
            continue
        cover, size = _cover(_meeting(boxes, own, other, moves), own, other, n_rows)
        cover_of_all |= cover
        if best is None or size > best.least_error * n_rows:
            best = Conflicts(cover, size / n_rows)
    if best is None:
        return Conflicts(np.zeros(n_rows, dtype=bool), 0.0)
    return Conflicts(best.cover if len(classes) <= 2 else cover_of_all, best.least_error)


def least_robust_error(X: Any, y: Any, perturbation: Ball | Box) -> float:
    """The robust error below which no classifier whatever can come on these rows.

    Two rows of different classes whose sets meet cannot both be right everywhere in their sets. The
    answer is the size of a largest matching of such pairs, as a share of the rows: with two classes
    it is the least error of any function (König's theorem); with more it is a lower bound of that,
    the best of the matchings between one class and all others.

    Parameters
    ----------
    X : array-like or data frame of shape (n_rows, n_features)
        Rows; NaN is missing.
    y : array-like of shape (n_rows,)
        Labels.
    perturbation : LInf, L1, L2, L0, All or Box
        How rows may move, with a limit. Whether sets meet is decided for boxes, so for what says of
        each feature alone how far it moves, and for `L1`, `L2` and `L0` in which both directions
        count the same and no domain is named.

    Returns
    -------
    float
        Between 0 and the share of all classes but the largest.
    """
    names = [str(name) for name in getattr(X, "columns", ())]
    rows, labels = np.asarray(X, dtype=np.float64), np.asarray(y)
    if rows.ndim != 2 or len(rows) == 0 or labels.shape != (len(rows),):
        raise InvalidInput(
            "There must be a matrix of at least one row, and one label for each."
            f" Got shapes {rows.shape} and {labels.shape}."
        )
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise InvalidInput("Labels must be known. Got NaN.")
    _, targets = np.unique(labels, return_inverse=True)
    boxes = boxes_around(rows, perturbation, names)
    moves = _moves_between(perturbation, names, rows.shape[1]) if boxes.holds_more else None
    return find_conflicts(boxes, targets, moves).least_error


def _moves_between(perturbation: Ball | Box, names: list[str], n_features: int) -> Moves:
    """When sets that are no boxes meet.

    Sound: half-way between two rows is within what both may move where it costs the same both ways;
    of features that differ, each row may take half of them from the other.
    """
    if isinstance(perturbation, L0 | L1 | L2):
        reach = ball_reach(in_order(perturbation, names, n_features), n_features, names)
        is_plain = perturbation.domain is None and not perturbation.relative
        radius = reach.radius
        if is_plain and isinstance(radius, float) and np.array_equal(reach.down, reach.up):
            if not isinstance(perturbation, L0):
                power = 1 if isinstance(perturbation, L1) else 2
                return Moves(reach.down, power, (2.0 * radius) ** power)
            if np.isin(reach.down, (0.0, 1.0)).all():
                return Moves(reach.down, 0, 2.0 * math.floor(radius))
    raise UnsupportedQuery(
        "The least error is known where sets are boxes, and for L1, L2 and L0 with the same scale"
        " in both directions and no domain. Ask about the LInf within the set, whose least error"
        f" holds for the set, too. Got {type(perturbation).__name__}."
    )


def _meeting(
    boxes: RowBoxes, own: NDArray[np.intp], other: NDArray[np.intp], moves: Moves | None
) -> Any:
    """Which boxes of one class meet which of the others: sparse (len(own), len(other))."""
    low, high, missing = boxes.low[other], boxes.high[other], np.isnan(boxes.low[other])
    from scipy.sparse import csr_matrix

    step = max(1, _PAIRS_AT_ONCE // max(len(other), 1))
    found_own, found_other = [], []
    for first in range(0, len(own), step):
        part = own[first : first + step]
        meets = np.ones((len(part), len(other)), dtype=bool)
        total = np.zeros(meets.shape if moves else 0)
        for feature in range(low.shape[1]):
            least, most = boxes.low[part, feature], boxes.high[part, feature]
            with np.errstate(invalid="ignore"):
                here = (least[:, None] <= high[:, feature]) & (low[:, feature] <= most[:, None])
            # What is missing meets what is missing, too, and nothing else.
            here |= np.isnan(least)[:, None] & missing[:, feature]
            meets &= here
            if not meets.any():
                break  # most pairs are apart in the first features
            if moves is not None and moves.units[feature] > 0.0:
                away = np.abs(boxes.rows[part, feature][:, None] - boxes.rows[other, feature])
                away = np.where(np.isnan(away), 0.0, away) / moves.units[feature]
                total += away**moves.power if moves.power else away != 0.0
        if moves is not None:
            # Sound: less than the limit by more than what rounding adds up to; counts are exact.
            meets &= total <= moves.limit * (1.0 - 2.0**-40 * (moves.power > 0))
        one, two = np.nonzero(meets)
        found_own.append(one + first)
        found_other.append(two)
    one, two = np.concatenate(found_own), np.concatenate(found_other)
    return csr_matrix((np.ones(len(one), dtype=np.int8), (one, two)), shape=(len(own), len(other)))


def _cover(
    meets: Any, own: NDArray[np.intp], other: NDArray[np.intp], n_rows: int
) -> tuple[NDArray[np.bool_], int]:
    """A smallest cover of a bipartite graph and its size, from a largest matching (König)."""
    from scipy.sparse.csgraph import maximum_bipartite_matching

    partner = maximum_bipartite_matching(meets, perm_type="column")
    back = np.full(len(other), -1)
    matched = np.flatnonzero(partner >= 0)
    back[partner[matched]] = matched
    is_reached, is_other_reached = partner < 0, np.zeros(len(other), dtype=bool)
    waiting = np.flatnonzero(is_reached).tolist()
    while waiting:
        row = waiting.pop()
        for column in meets.indices[meets.indptr[row] : meets.indptr[row + 1]].tolist():
            if not is_other_reached[column]:
                is_other_reached[column] = True
                following = int(back[column])
                if following >= 0 and not is_reached[following]:
                    is_reached[following] = True
                    waiting.append(following)
    cover = np.zeros(n_rows, dtype=bool)
    cover[own[~is_reached]] = True
    cover[other[is_other_reached]] = True
    return cover, len(matched)
