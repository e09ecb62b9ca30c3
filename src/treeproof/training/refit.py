"""Leaves of a given structure fitted together against exact worst cases.

Cutting planes: leaves are fitted to the worst points that are known, the exact engine finds the
worst points of these leaves, and so on, until the two agree. The robust loss of the leaves at hand
is then known from above, by the engine's bounds, and that of the best leaves from below, by the
dual of the fit.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treeproof.kernels.training.leaf_fit import KnownCuts, fit_leaves
from treeproof.training.worst_cases import Cuts, WorstCases

FloatArray = NDArray[np.float64]

MOST_TURNS, TURN_TOLERANCE = 400, 1e-3
"""Turns over the rows of a fit, and by what margins may still change at its end."""
OPEN_SHARE = 0.3
"""Part of the tolerance that rows without a search may take: nearly all of most objectives is in
rows whose worst case is known without one."""
AGE = 4
"""Rounds after which a point that no longer counts is forgotten."""


@dataclass(slots=True)
class LeafFit:
    """Leaves, and what is known of them.

    Attributes
    ----------
    values : float64 (n_values,)
        As `WorstCases` takes them.
    margins : float64 (n_rows,)
        Worst margin of each row that was found.
    loss : float
        Weighted sum of the robust logistic loss, by the engine's bounds of the worst margins.
    objective, bound : float
        The loss with its penalty, and below what no leaves come; minus infinity where no fit was
        made.
    cuts : Cuts
        The points that the fit has seen, with `multipliers`.
    """

    values: FloatArray
    margins: FloatArray
    loss: float
    objective: float
    bound: float
    cuts: Cuts
    multipliers: FloatArray

    def broken(self, weights: FloatArray) -> float:
        """Weight of the rows for which a point with another label was found, ties included."""
        return float(weights @ (self.margins <= 0.0))


@dataclass(frozen=True, slots=True)
class _Open:
    """Which rows are worth a search: those that leave the objective open, most first.

    Attributes
    ----------
    known : float64 (n_rows,)
        Margin of the worst point of each row that the fit knows.
    weights : float64 (n_rows,)
    squares : float
        What the objective has beside the loss.
    share : float
        Part of the objective that may stay open.
    """

    known: FloatArray
    weights: FloatArray
    squares: float
    share: float

    def __call__(self, lower: FloatArray, margins: FloatArray) -> NDArray[np.bool_]:
        least = self.weights * np.logaddexp(0.0, -np.minimum(margins, self.known))
        gap = self.weights * np.logaddexp(0.0, -lower) - least
        order = np.argsort(gap, kind="stable")  # what is left out comes first
        allowed = self.share * (float(least.sum()) + self.squares)
        is_open = np.empty(len(gap), dtype=bool)
        is_open[order] = np.cumsum(gap[order]) > allowed
        return is_open


def robust_loss(margins: FloatArray, weights: FloatArray) -> float:
    """Weighted sum of the logistic loss."""
    return float(np.logaddexp(0.0, -margins) @ weights)


def measure(worst: WorstCases, values: FloatArray, weights: FloatArray) -> LeafFit:
    """What leaves come to that were not fitted here."""
    cuts, bounds = worst.find(values)
    loss = robust_loss(bounds, weights)
    margins = cuts.margins(values)
    return LeafFit(values, margins, loss, np.inf, -np.inf, cuts, np.zeros(len(cuts)))


def fit_against_worst_cases(
    worst: WorstCases,
    weights: FloatArray,
    penalty: float,
    *,
    known: LeafFit | None = None,
    rounds: int = 12,
    tolerance: float = 0.01,
    seed: int = 0,
) -> LeafFit:
    """Fit the values of all leaves together.

    Parameters
    ----------
    worst : WorstCases
        The structure, the rows and their boxes.
    weights : float64 (n_rows,)
        Rows of weight 0 are left out.
    penalty : float
        Factor of half the sum of squared values; above 0.
    known : LeafFit, optional
        An earlier fit of the same structure and rows, whose points are not looked for again.
    rounds : int
        Most rounds of fitting and finding.
    tolerance : float
        Rounds end where the objective is within this part of the best that is possible.
    seed : int
        For the order of rows.
    """
    rows = np.flatnonzero(weights > 0.0)
    cuts, multipliers = worst.home().taken(rows), np.zeros(len(rows))
    if known is not None:
        used = weights[known.cuts.rows] > 0.0
        cuts = cuts.joined(known.cuts.taken(used))
        multipliers = np.concatenate([multipliers, known.multipliers[used]])
    ages = np.zeros(len(cuts), dtype=np.int64)
    order = np.random.default_rng(seed).permutation(len(rows)).astype(np.int64)
    best: LeafFit | None = None
    bound = -np.inf
    for _ in range(rounds):
        # Every row keeps a point, the first one that it had; and a row's points lie together.
        at = np.argsort(cuts.rows, kind="stable")
        is_first = np.diff(cuts.rows[at], prepend=-1) != 0
        at = at[is_first | (ages[at] < AGE) | (multipliers[at] > 0.0)]
        cuts, multipliers, ages = cuts.taken(at), multipliers[at], ages[at]
        values, lower = _solve(worst, cuts, rows, weights[rows], order, penalty, multipliers)
        bound = max(bound, lower)
        ages = np.where(multipliers > 0.0, 0, ages + 1)
        least, squares = np.full(len(worst), np.inf), 0.5 * penalty * float(values @ values)
        np.minimum.at(least, cuts.rows, cuts.margins(values))
        is_open = _Open(least[rows], weights[rows], squares, OPEN_SHARE * tolerance)
        found, bounds = worst.find(values, rows, is_open=is_open)
        margins = found.margins(values)
        loss = robust_loss(bounds, weights[rows])
        objective = loss + squares
        new = np.flatnonzero(margins < least[rows] - 1e-6 * (1.0 + np.abs(margins)))
        if best is None or objective < best.objective:
            all_margins = np.full(len(worst), np.nan)
            all_margins[rows] = margins
            best = LeafFit(values, all_margins, loss, objective, bound, cuts, multipliers)
        if len(new) == 0 or best.objective - bound <= tolerance * best.objective:
            break
        cuts = cuts.joined(found.taken(new))
        multipliers = np.concatenate([multipliers, np.zeros(len(new))])
        ages = np.concatenate([ages, np.zeros(len(new), dtype=np.int64)])
    assert best is not None  # noqa: S101 - there is at least one round
    best.bound = bound
    best.cuts, best.multipliers = cuts, multipliers
    return best


def _solve(
    worst: WorstCases,
    cuts: Cuts,
    rows: NDArray[np.intp],
    weights: FloatArray,
    order: NDArray[np.int64],
    penalty: float,
    multipliers: FloatArray,
) -> tuple[FloatArray, float]:
    """Values that fit the points best, and the dual value; multipliers are changed in place."""
    values = np.zeros(worst.n_values + worst.ensemble.n_outputs + 1)
    np.add.at(values, cuts.index, cuts.signs * (multipliers / penalty)[:, None])
    start = np.searchsorted(cuts.rows, np.append(rows, len(worst))).astype(np.int64)
    known = KnownCuts(
        np.ascontiguousarray(cuts.index),
        np.ascontiguousarray(cuts.signs),
        start,
        np.ascontiguousarray(weights),
    )
    fit_leaves(known, order, float(penalty), MOST_TURNS, TURN_TOLERANCE, multipliers, values)
    # Fresh, since what many small steps add up to drifts with rounding.
    values[:] = 0.0
    np.add.at(values, cuts.index, cuts.signs * (multipliers / penalty)[:, None])
    share = np.clip(np.add.reduceat(multipliers, start[:-1]) / weights, 0.0, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(share > 0.0, share * np.log(share), 0.0)
        entropy -= np.where(share < 1.0, (1.0 - share) * np.log1p(-share), 0.0)
    # Sound: weak duality; the dual value of any multipliers is below every objective.
    dual = float(entropy @ weights) - 0.5 * penalty * float(values @ values)
    return values, dual
