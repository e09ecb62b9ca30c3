"""From a goal to linear constraints on the accumulators, with the rounding each may hide."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, UnsupportedQuery, listed_values, nearest
from treeproof.model import evaluate
from treeproof.model.ensemble import Ensemble, FloatArray, cached_per_ensemble
from treeproof.model.links import smallest_true
from treeproof.model.score_meaning import require_own_score
from treeproof.model.sums import accumulator_grid, largest_leaves, largest_margin, may_overflow
from treeproof.query.goals import AvoidsTarget, Goal, KeepsLabel, ScoreChange, ScoreWithin
from treeproof.query.rounding import round_up

LABEL_CHANGES, LABEL_IS_TARGET, NEED_IS_MET = 0, 1, 2
"""How a point is judged by the model's own arithmetic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives:
    """The ways in which each group of rows can be broken.

    By its judgement a row is broken, for LABEL_CHANGES, iff its label differs from `group_label`;
    for LABEL_IS_TARGET iff it equals it; for NEED_IS_MET iff some alternative's (single) constraint
    holds. No violation has a gain below ``need - slack``; the slack is 0 when `unit` and
    `link_slack` are, otherwise engines compute the one that their box needs.
    """

    judgement: int
    group_label: NDArray[np.int64]  # (n_groups,) see `judgement`; -1 where unused
    group_start: NDArray[np.int64]  # (n_groups + 1,) alternatives of each group
    alternative_start: NDArray[np.int64]  # (n_alternatives + 1,) constraints that hold together
    coefficient: FloatArray  # (n_constraints, n_outputs) weights of the accumulators in the gain
    need: FloatArray  # (n_constraints,)
    unit: FloatArray  # (n_constraints,) rounding unit of the library's sums; 0 where they are exact
    link_slack: FloatArray  # (n_constraints,) how far the decision's own rounding can shift a gain

    def of_group(self, group: int) -> list[range]:
        """Constraint numbers of each alternative of a group."""
        first, last = int(self.group_start[group]), int(self.group_start[group + 1])
        start = self.alternative_start
        return [range(int(start[a]), int(start[a + 1])) for a in range(first, last)]


def alternatives_of(
    ensemble: Ensemble,
    goal: Goal | None,
    labels: NDArray[np.int64],
    accumulators: NDArray[np.floating],
) -> tuple[Alternatives, NDArray[np.int64]]:
    """Return the alternatives of every group, and the group of each row."""
    if goal is None:
        goal = KeepsLabel()
    if isinstance(goal, ScoreWithin | ScoreChange):
        require_own_score(ensemble)
        return _score_alternatives(ensemble, goal, accumulators)
    if ensemble.decision.kind == "score":
        raise UnsupportedQuery(
            "A model that gives scores has no label to keep."
            " Ask with goal=ScoreWithin(low, high) or goal=ScoreChange(delta)."
        )
    target = None
    if isinstance(goal, AvoidsTarget):
        if goal.target not in ensemble.classes:
            raise InvalidInput(
                f"The target must be one of the classes {listed_values(ensemble.classes)}."
                f" Got {goal.target!r}.{nearest(goal.target, ensemble.classes)}"
            )
        target = ensemble.classes.index(goal.target)
    if ensemble.decision.kind == "threshold":
        group = labels.copy() if target is None else np.full_like(labels, 1 - target)
        return _threshold_table(ensemble), group
    if target is None:
        return _argmax_table(ensemble), labels.copy()
    return _target_table(ensemble, target), np.zeros(len(labels), dtype=np.int64)


def breaks_claim(
    ensemble: Ensemble,
    alternatives: Alternatives,
    group: NDArray[np.int64],
    accumulators: NDArray[np.floating],
) -> NDArray[np.bool_]:
    """Whether accumulators (one row per point) break the claim of their groups."""
    if alternatives.judgement == NEED_IS_MET:
        broken = np.zeros(len(group), dtype=bool)
        for number in set(group.tolist()):
            rows = np.flatnonzero(group == number)
            sums = accumulators[rows].astype(np.float64)
            for constraints in alternatives.of_group(number):
                gain = sums @ alternatives.coefficient[constraints[0]]
                broken[rows] |= gain >= alternatives.need[constraints[0]]
        return broken
    labels = evaluate.label_indices(ensemble, evaluate.finish(ensemble, accumulators))
    if alternatives.judgement == LABEL_IS_TARGET:
        return labels == alternatives.group_label[group]
    return labels != alternatives.group_label[group]


def rounding_unit(ensemble: Ensemble, grid: float) -> float:
    """Rounding unit of the library's sums; 0 where a grid says that they are exact.

    Models whose sums may overflow are refused: what rounding loses is known of finite ones only.
    """
    if may_overflow(ensemble):
        raise UnsupportedQuery(
            f"Scores must fit into {ensemble.aggregation.precision}, whatever leaves are added."
            f" Got leaves of up to {np.abs(ensemble.trees.leaf_value).max():g}."
            " Such a model is damaged, or its leaves must be made smaller."
        )
    if grid > 0.0:
        return 0.0
    return 2.0**-24 if ensemble.aggregation.precision == "float32" else 2.0**-53


def _table(
    judgement: int,
    group_label: list[int],
    alternatives: list[list[list[tuple[FloatArray, float]]]],
    unit: float,
    link_slack: float,
) -> Alternatives:
    """Flatten groups of alternatives of (coefficient, need) pairs."""
    flat = [alternative for group in alternatives for alternative in group]
    constraints = [constraint for alternative in flat for constraint in alternative]
    n = len(constraints)
    width = len(constraints[0][0]) if constraints else 1
    return Alternatives(
        judgement=judgement,
        group_label=np.array(group_label, dtype=np.int64),
        group_start=np.cumsum([0] + [len(group) for group in alternatives]).astype(np.int64),
        alternative_start=np.cumsum([0] + [len(item) for item in flat]).astype(np.int64),
        coefficient=np.array([c for c, _ in constraints], dtype=np.float64).reshape(n, width),
        need=np.array([need for _, need in constraints], dtype=np.float64),
        unit=np.full(n, unit),
        link_slack=np.full(n, link_slack),
    )


def rising_cut(ensemble: Ensemble, score_cut: float, *, strict: bool, output: int = 0) -> float:
    """Smallest accumulator whose finished margin is >= (or >) a score; finishing is monotone."""
    aggregation = ensemble.aggregation
    if aggregation.finish == "none" and not strict:
        real = np.dtype(aggregation.precision).type
        with np.errstate(over="ignore"):
            nearest = real(score_cut)
        # Sums are floats of that precision, and a bound of a score need not be one.
        return float(
            nearest if float(nearest) >= score_cut else np.nextafter(nearest, real(np.inf))
        )

    def holds(accumulator: float) -> bool:
        total = np.full((1, ensemble.n_outputs), accumulator, dtype=aggregation.precision)
        with np.errstate(over="ignore"):
            margin = float(evaluate.finish(ensemble, total)[0, output])
        return margin > score_cut if strict else margin >= score_cut

    return smallest_true(holds, aggregation.precision)


def needs_around(ensemble: Ensemble, cut: float, grid: float) -> tuple[float, float]:
    """Smallest violating gains for "accumulator >= cut" and for "accumulator < cut".

    On a grid, only multiples of the grid occur, so both move to the nearest one that violates.
    """
    if grid > 0.0 and np.isfinite(cut):
        number = math.ceil(Fraction(cut) / Fraction(grid))
        return round_up(number * Fraction(grid)), round_up((1 - number) * Fraction(grid))
    dtype = np.dtype(ensemble.aggregation.precision).type
    with np.errstate(over="ignore"):  # below the lowest float nothing is left to fall to
        return cut, -float(np.nextafter(dtype(cut), dtype(-np.inf)))


@cached_per_ensemble
def _threshold_table(ensemble: Ensemble) -> Alternatives:
    """One output: label 0 breaks by rising to the cut, label 1 by falling below it."""
    grid = accumulator_grid(ensemble)
    cut = rising_cut(ensemble, ensemble.decision.cut, strict=False)
    rise, fall = needs_around(ensemble, cut, grid)
    up, down = np.array([1.0]), np.array([-1.0])
    return _table(
        NEED_IS_MET,
        [-1, -1],
        [[[(up, rise)]], [[(down, fall)]]],
        rounding_unit(ensemble, grid),
        0.0,
    )


def _score_alternatives(
    ensemble: Ensemble, goal: ScoreWithin | ScoreChange, accumulators: NDArray[np.floating]
) -> tuple[Alternatives, NDArray[np.int64]]:
    """Every row has its own range; leaving it upwards or downwards are the two alternatives."""
    if ensemble.n_outputs != 1:
        raise UnsupportedQuery(
            f"A score range needs a model with one output. Got {ensemble.n_outputs} outputs."
        )
    n_rows = len(accumulators)
    if isinstance(goal, ScoreChange):
        score = evaluate.finish(ensemble, accumulators)[:, 0].astype(np.float64)
        low, high = goal.range_around(score)
    else:
        low = np.broadcast_to(np.asarray(goal.low, dtype=np.float64), (n_rows,))
        high = np.broadcast_to(np.asarray(goal.high, dtype=np.float64), (n_rows,))
    grid = accumulator_grid(ensemble)
    up, down = np.array([1.0]), np.array([-1.0])
    groups = []
    for least, most in zip(low.tolist(), high.tolist(), strict=True):
        ways = []
        if most < np.inf:
            rise = rising_cut(ensemble, most, strict=True)
            ways.append([(up, needs_around(ensemble, rise, grid)[0])])
        if least > -np.inf:
            inside = rising_cut(ensemble, least, strict=False)
            ways.append([(down, needs_around(ensemble, inside, grid)[1])])
        groups.append(ways)
    table = _table(NEED_IS_MET, [-1] * n_rows, groups, rounding_unit(ensemble, grid), 0.0)
    return table, np.arange(n_rows, dtype=np.int64)


def _wins(ensemble: Ensemble, winner: int, loser: int) -> tuple[FloatArray, float]:
    """What a class needs to win over another one; the largest finished margin wins.

    A tie goes to the first.
    """
    aggregation, n_classes = ensemble.aggregation, ensemble.n_outputs
    is_affine = aggregation.finish == "affine"
    scale = aggregation.scale if is_affine else 1.0
    bias = np.array(aggregation.bias) if is_affine else np.zeros(n_classes)
    coefficient = np.zeros(n_classes)
    coefficient[winner], coefficient[loser] = scale, -scale
    # All outputs are finished by one rising function, so a strict win needs strictly more; on a
    # grid a whole step.
    is_strict = bool(np.all(bias == bias[0])) and winner > loser
    step = accumulator_grid(ensemble) * scale if is_strict else 0.0
    return coefficient, float(bias[loser] - bias[winner]) + step


def _label_table(ensemble: Ensemble, judgement: int, labels: list[int], ways: Any) -> Alternatives:
    unit = rounding_unit(ensemble, accumulator_grid(ensemble))
    return _table(judgement, labels, ways, unit, link_rounding(ensemble))


@cached_per_ensemble
def _argmax_table(ensemble: Ensemble) -> Alternatives:
    """Several outputs: a label breaks where any other class wins over it."""
    classes = list(range(ensemble.n_outputs))
    ways = [[[_wins(ensemble, one, own)] for one in classes if one != own] for own in classes]
    return _label_table(ensemble, LABEL_CHANGES, classes, ways)


def _target_table(ensemble: Ensemble, target: int) -> Alternatives:
    """Several outputs: the target has to win over all others at once."""
    others = [other for other in range(ensemble.n_outputs) if other != target]
    conjunction = [_wins(ensemble, target, other) for other in others]
    return _label_table(ensemble, LABEL_IS_TARGET, [target], [[conjunction]])


@cached_per_ensemble
def link_rounding(ensemble: Ensemble) -> float:
    """How far from a tie two accumulators can be and still be decided otherwise by rounding.

    Sound: division and affine finishing are monotone in each accumulator up to a relative rounding
    of 2**-52 of the margin, and margins are at most `largest`. A softmax maps the leading score
    to exp(0) = 1 and merges a score below it only if exp of the gap and the division by the sum
    both round together, which needs a gap below 8 units of the precision.
    """
    decision, largest = ensemble.decision, largest_margin(ensemble)
    slack = finish_rounding(ensemble)
    if decision.link_divisor != 1.0:
        slack += _lost(ensemble)
    if decision.link == "softmax_float32":
        slack += 8.0 * 2.0**-23 * max(decision.link_divisor, largest)
    elif decision.link == "softmax_float64":
        slack += 8.0 * 2.0**-52 * max(decision.link_divisor, largest)
    elif decision.link == "sigmoid_float64":
        slack += 8.0 * 2.0**-52 * largest + _sigmoid_slack(ensemble)
    return float(slack)


def finish_rounding(ensemble: Ensemble) -> float:
    """How far a finished sum can be from the same linear function in real numbers.

    Sound: finishing takes at most two operations, each of which errs by at most half a unit of its
    result, the weight errs as much, and no margin is larger than this.
    """
    return 0.0 if ensemble.aggregation.finish == "none" else _lost(ensemble)


def _lost(ensemble: Ensemble) -> float:
    unit = 2.0**-23 if ensemble.aggregation.precision == "float32" else 2.0**-52
    return float(8.0 * unit * largest_margin(ensemble))


def _sigmoid_slack(ensemble: Ensemble) -> float:
    """How far apart two margins can be and still have the same rounded sigmoid.

    Sound: with z = scale * margin / divisor, sigmoids are computed to a relative 2**-50, and the
    relative slope of the sigmoid, 1 / (1 + exp(z)), falls with z; so equal sigmoids need a gap of
    z below 2**-49 * (1 + exp(z)) at the largest z that the trees can reach. Beyond |z| = 700
    sigmoids may saturate, and then the whole range is taken.
    """
    trees, decision = ensemble.trees, ensemble.decision
    largest = largest_leaves(ensemble)
    extreme = np.abs(np.array(ensemble.aggregation.start))
    if trees.tree_output[0] >= 0:
        np.add.at(extreme, trees.tree_output, largest[:, 0])
    else:
        extreme += largest.sum(axis=0)
    factor = decision.link_scale / decision.link_divisor
    reach = float(extreme.max()) * max(abs(ensemble.aggregation.scale), 1.0)
    reach += max((abs(b) for b in ensemble.aggregation.bias), default=0.0)
    reach *= 1.0 + 2.0**-20  # covers the rounding of these sums themselves
    largest_z = factor * reach
    merged = 2.0 * largest_z
    if largest_z < 700.0:
        merged = min(merged, 2.0**-49 * (1.0 + np.exp(largest_z)))
    return float(merged / factor)
