"""Hard questions about a trained model: rows, perturbations and goals that meet its cells."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

import treeproof as tp
from tests.campaigns.data import FloatArray, Random
from tests.oracle.library_truth import Axis, Ball, Table, exact_distance, exact_rates, round_up

_OPTION = "arithmetic" if hasattr(tp, "InternalError") else "domain"  # the name in 0.1.0


def arithmetic_option(arithmetic: str) -> dict[str, str]:
    """The option of treeproof's functions that says which numbers rows are."""
    return {_OPTION: arithmetic}


@dataclass
class Moves:
    """How rows may move, as treeproof is told and as the oracle counts.

    Attributes
    ----------
    name : str
        Kind of perturbation, for the counts.
    options : dict
        Options of `treeproof.LInf`.
    ball : Ball
        The same in rates and bounds.
    """

    name: str
    options: dict[str, Any]
    ball: Ball


@dataclass
class Claim:
    """What must hold.

    Attributes
    ----------
    name : str
        Name of the goal.
    goal : object
        As treeproof takes it; None for the default.
    broken : bool (n_rows, n_points)
        Whether each point of the table breaks it.
    labels : list or None
        The argument `y`.
    is_tie : bool (n_rows, n_points)
        Whether only the rounding of a link function decides a point.
    """

    name: str
    goal: Any
    broken: NDArray[np.bool_]
    labels: Any = None
    is_tie: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))

    def take(self, chosen: list[int]) -> "Claim":
        """The same claim about some of the rows."""
        goal, labels = self.goal, self.labels
        if isinstance(goal, tp.ScoreWithin) and np.ndim(goal.low):
            goal = tp.ScoreWithin(np.asarray(goal.low)[chosen], np.asarray(goal.high)[chosen])
        if labels is not None:
            labels = [labels[row] for row in chosen]
        tie = self.is_tie[chosen] if self.is_tie.size else self.is_tie
        return Claim(self.name, goal, self.broken[chosen], labels, tie)


def feature_values(random: Random, table: Table, feature: int, *, infinite: bool) -> FloatArray:
    """Values of a feature worth asking about: cuts, floats beside them, zeros, far away."""
    model, axis = table.model, table.axes[feature]
    if axis.is_categorical:
        return axis.points
    cuts = axis.cuts[np.isfinite(axis.cuts)]
    values = [0.0, -0.0, 1.0, float(random.normal())]
    if len(cuts):
        # A sum of halves does not overflow.
        middles = cuts[:-1] / 2.0 + cuts[1:] / 2.0
        near = [cuts, middles, np.nextafter(cuts, -np.inf), np.nextafter(cuts, np.inf)]
        with np.errstate(over="ignore"):
            single = cuts.astype(np.float32)
        near += [np.nextafter(single, np.float32(s)).astype(np.float64) for s in (-np.inf, np.inf)]
        span = min(float(cuts[-1]) / 2 - float(cuts[0]) / 2, 1e307)
        near.append(np.array([cuts[0] - span, cuts[-1] + span, cuts[0] - 1.0, cuts[-1] + 1.0]))
        near.append(-cuts)
        # Common cases stay common.
        values += np.concatenate(near).tolist() + cuts.tolist() * 2 + middles.tolist() * 3
    values += random.choice([1e-30, 5e-324, 1e-40, -1e-45, 1.7e18, 2.0**53 + 2], size=2).tolist()
    largest = 1.7e308 if model.precision is np.float64 else float(np.finfo(np.float32).max)
    values += [largest, -largest] if random.random() < 0.3 else []
    if infinite:
        values += [np.inf, -np.inf, 1e300, -1e300, 4e38]
    kept = np.array([v for v in values if infinite or abs(v) <= largest])
    if feature in model.missing:
        kept = np.append(kept, [np.nan] * max(1, len(kept) // 5))
    return kept


def random_rows(random: Random, table: Table, n: int, *, infinite: bool) -> FloatArray:
    """Rows of such values, every column by itself, and as many that the model was trained on."""
    columns = [
        random.choice(feature_values(random, table, f, infinite=infinite), size=n)
        for f in range(table.model.n_features)
    ]
    rows = np.stack(columns, axis=1)
    sample = random.choice(table.model.sample, size=n)
    keep = np.isnan(sample) | (random.random(rows.shape) < 0.15)
    return np.where((random.random((n, 1)) < 0.5) | keep, rows, sample)


def aligned_rows(
    random: Random, table: Table, ball: Ball, rows: FloatArray, radius: float
) -> FloatArray:
    """Rows whose cuts all lie at nearly the same distance, in units of the ball.

    One feature comes first, and the radius that reaches its cut is what the others are aligned to,
    up to the rounding of ``cut ± radius * rate``: so the order of the distances is decided by what
    a sloppy evaluation of that formula loses.
    """
    rows = rows.copy()
    for row in rows:
        nearest = radius
        for feature in random.permutation(len(row)).tolist():
            axis = table.axes[feature]
            cuts = axis.cuts[np.isfinite(axis.cuts)]
            if not len(cuts) or not np.isfinite(row[feature]):
                continue
            cut, upwards = float(random.choice(cuts)), bool(random.random() < 0.5)
            if not upwards and not axis.over_reals:
                cut = float(np.nextafter(cut, -np.inf))  # the double that is reached
            rate = ball.up[feature] if upwards else ball.down[feature]
            step = nearest * float(rate)
            value = _beside_at(random, table, axis, cut, -step if upwards else step)
            if value is None:
                continue
            row[feature] = value
            if nearest is radius and rate > 0 and np.isfinite(cut):
                nearest = round_up(exact_distance(value, cut, rate))
    return rows


def _beside_at(random: Random, table: Table, axis: Axis, cut: float, step: float) -> float | None:
    """``cut + step`` as the model can take it, now and then one float beside; None if it cannot."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = axis.precision(cut + step)
        if random.random() < 0.2:
            value = np.nextafter(value, axis.precision(random.choice([-np.inf, np.inf])))
    largest = float(np.finfo(table.model.precision).max)
    return float(value) if abs(float(value)) <= largest else None


def rows_within(table: Table, rows: FloatArray, ball: Ball) -> FloatArray:
    """Rows moved into the bounds of a ball, where numbers of the precision lie between them."""
    rows = rows.copy()
    for feature, axis in enumerate(table.axes):
        if axis.is_categorical:
            continue
        low, high = float(ball.low[feature]), float(ball.high[feature])
        least, most = ceiling(low, axis.precision), -ceiling(-high, axis.precision)
        if least > most:
            # No row can lie there: the bounds are left out on this side and that.
            ball.low[feature], ball.high[feature] = -np.inf, np.inf
            continue
        values = axis.cast(rows[:, feature])
        outside = (values < low) | (values > high)
        rows[:, feature] = np.where(outside, np.clip(values, least, most), rows[:, feature])
    return rows


def ceiling(value: float, precision: Any) -> float:
    """Smallest number of a precision not below a value."""
    with np.errstate(over="ignore"):
        near = precision(value)
        if float(near) < value:
            near = np.nextafter(near, precision(np.inf))
    return float(near)


RATES = (0.0, 1.0, 0.5, 2.0, 3.0, 0.1, 0.7, 1e-40, 1e40, 1e-5, 1 / 3)


def random_moves(random: Random, table: Table, *, infinite: bool) -> Moves:
    """An LInf without a radius: scales, rates, frozen features, bounds, alone and together."""
    n = table.model.n_features
    names: list[str] = []
    options: dict[str, Any] = {}
    scale = np.ones(n)
    if random.random() < 0.5:
        kind = random.integers(4)
        if kind == 0:
            scale = 10.0 ** random.uniform(-40, 40, size=n)
        elif kind == 1:
            scale = random.choice([0.1, 0.3, 3.0, 7.0, 1 / 3, 1.7, 1e-3], size=n)
        elif kind == 2:
            scale = np.array([_unit(axis.cuts) for axis in table.axes])
            scale = np.minimum(scale * random.choice([1.0, 0.1, 1 / 3], size=n), 1e300)
        else:
            scale = 2.0 ** random.integers(-60, 60, size=n)
        options["scale"] = scale if random.random() < 0.8 else scale.tolist()
        names.append("scale")
    multiples: dict[str, Any] = {"below": 1.0, "above": 1.0}
    for name in multiples:
        if random.random() < 0.2:
            value: Any = random.choice(RATES, size=n)
            shape = random.integers(3)
            if shape == 0:
                value = float(value[0])
            elif shape == 1:
                value = bool(random.random() < 0.5)
            with np.errstate(over="ignore", under="ignore"):
                product = scale * np.asarray(value, dtype=np.float64)
            if np.all(np.isfinite(product)):
                multiples[name] = options[name] = value
                names.append("rates")
    down, up = (exact_rates(scale, multiple) for multiple in multiples.values())
    if n > 1 and random.random() < 0.2:
        frozen = np.flatnonzero(random.random(n) < 0.4).tolist()
        options["frozen"] = frozen
        for feature in frozen:
            down[feature] = up[feature] = Fraction(0)
        names.append("frozen")
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    if random.random() < 0.25:
        low, high = _bounds(random, table, infinite=infinite)
        options["low"], options["high"] = low, high
        names.append("bounds")
    name = "LInf " + ("+".join(sorted(set(names))) or "plain")
    return Moves(name, options, Ball(down, up, low, high))


def _unit(cuts: FloatArray) -> float:
    """A unit in which the cells of a feature are neither huge nor tiny."""
    finite = cuts[np.isfinite(cuts)]
    gaps = np.diff(finite[np.abs(finite) < 1e300])
    gap = float(np.median(gaps)) if len(gaps) else 1.0
    return gap if 1e-300 < gap < 1e290 else 1.0


def _bounds(random: Random, table: Table, *, infinite: bool) -> tuple[FloatArray, FloatArray]:
    """Bounds of the data's domain: on cuts, beside them, or none."""
    sides = []
    for feature, axis in enumerate(table.axes):
        values = feature_values(random, table, feature, infinite=infinite)
        values = values[~np.isnan(values)]
        pair = np.sort(random.choice(values, size=2))
        if axis.is_categorical:
            pair = np.array([-np.inf, np.inf])
        if random.random() < 0.3:
            pair[0] = -np.inf
        if random.random() < 0.3:
            pair[1] = np.inf
        sides.append(pair)
    both = np.array(sides)
    return both[:, 0].copy(), both[:, 1].copy()


def random_box(
    random: Random, table: Table, rows: FloatArray, *, infinite: bool
) -> tuple[dict[str, Any], FloatArray, FloatArray]:
    """Options of a Box, and its sides for every row."""
    n_rows, n_features = rows.shape
    if random.random() < 0.3:
        low, high = _bounds(random, table, infinite=infinite)
        options = {"low": low, "high": high}
        return options, np.tile(low, (n_rows, 1)), np.tile(high, (n_rows, 1))
    low, high = np.empty(rows.shape), np.empty(rows.shape)
    for feature in range(n_features):
        values = feature_values(random, table, feature, infinite=infinite)
        values = values[~np.isnan(values)]
        if not len(values):
            values = np.zeros(1)
        pairs = np.sort(random.choice(values, size=(n_rows, 2)), axis=1)
        low[:, feature], high[:, feature] = pairs.T
    around = random.random(rows.shape) < 0.6
    own = np.nan_to_num(rows, posinf=np.inf, neginf=-np.inf)
    low = np.where(around, np.minimum(low, own), low)
    high = np.where(around, np.maximum(high, own), high)
    low = np.where(random.random(rows.shape) < 0.1, -np.inf, low)
    high = np.where(random.random(rows.shape) < 0.1, np.inf, high)
    fixed = random.random(rows.shape) < 0.15
    low, high = np.where(fixed, own, low), np.where(fixed, own, high)
    return {"low": low, "high": high}, low, high


def random_claim(random: Random, table: Table, rows: FloatArray) -> Claim:
    """A goal about rows, on reachable scores and one float beside them."""
    model, place = table.model, table.flat(table.states(rows))
    own = table.labels[place]
    kinds = []
    if model.classes:
        kinds += ["KeepsLabel", "KeepsLabel", "AvoidsTarget"]
    if table.scores.shape[1] == 1:
        kinds += ["ScoreWithin", "ScoreChange"]
    kind = str(random.choice(kinds))
    if kind == "KeepsLabel":
        return _keeps_label(random, table, own)
    if kind == "AvoidsTarget":
        target = int(random.choice(np.unique(table.labels)))
        if random.random() < 0.1:
            target = int(random.integers(len(model.classes)))
        broken = np.broadcast_to(table.labels == target, (len(rows), len(table.labels)))
        tie = np.broadcast_to(_nearly_tied(table, target), broken.shape)
        return Claim(kind, tp.AvoidsTarget(model.classes[target]), broken, is_tie=tie)
    return _score_claim(random, table, kind, table.scores[place, 0])


def _keeps_label(random: Random, table: Table, own: NDArray[np.int64]) -> Claim:
    classes, labels, given = table.model.classes, own, None
    if random.random() < 0.3:
        wrong = random.integers(len(classes), size=len(own))
        labels = np.where(random.random(len(own)) < 0.2, wrong, own)
        given = [classes[number] for number in labels]
    broken = table.labels[np.newaxis] != labels[:, np.newaxis]
    ties = np.stack([_nearly_tied(table, number) for number in range(len(classes))])
    goal = None if random.random() < 0.7 else tp.KeepsLabel()
    return Claim("KeepsLabel", goal, broken, given, ties[labels])


def _nearly_tied(table: Table, label: int) -> NDArray[np.bool_]:
    """Points at which a label and the best other one are apart by no more than rounding."""
    scores = table.scores
    if scores.shape[1] == 1:
        return np.zeros(len(scores), dtype=bool)
    others = np.delete(scores, label, axis=1).max(axis=1)
    size = np.maximum(np.abs(scores).max(axis=1), 1.0)
    return np.abs(scores[:, label] - others) <= 64 * 2.0**-23 * size


def _score_claim(random: Random, table: Table, kind: str, own: FloatArray) -> Claim:
    scores, n_rows = table.scores[:, 0], len(own)
    finite = scores[np.isfinite(scores)]
    if kind == "ScoreChange":
        moves = np.abs(finite - float(random.choice(own)))
        delta = _beside(random, float(random.choice(moves)))
        goal: Any = tp.ScoreChange(max(delta, 0.0))
        broken = _moves_more(scores, own, goal.delta)
        return Claim(kind, goal, broken)

    def bound() -> float:
        return 0.0 if random.random() < 0.3 else _beside(random, float(random.choice(finite)))

    if random.random() < 0.3:
        pairs = np.sort([[bound(), bound()] for _ in range(n_rows)], axis=1)
        low, high = pairs[:, 0], pairs[:, 1]
        goal = tp.ScoreWithin(low, high)
    else:
        least, most = sorted([bound(), bound()])
        side = random.integers(3)
        least, most = (-np.inf if side == 0 else least), (np.inf if side == 1 else most)
        goal = tp.ScoreWithin(least, most)
        low, high = np.full(n_rows, least), np.full(n_rows, most)
    broken = (scores < low[:, np.newaxis]) | (scores > high[:, np.newaxis])
    return Claim(kind, goal, broken)


def _moves_more(scores: FloatArray, own: FloatArray, delta: float) -> NDArray[np.bool_]:
    """Whether each score is farther than delta from each row's own, without rounding."""
    broken = np.abs(scores[np.newaxis] - own[:, np.newaxis]) > delta
    exact = {float(s): Fraction(float(s)) for s in np.unique(np.concatenate([scores, own]))}
    with np.errstate(over="ignore"):
        gap = np.abs(np.abs(scores[np.newaxis] - own[:, np.newaxis]) - delta)
        near = gap <= 1e-12 * (delta + np.abs(own[:, np.newaxis]) + np.abs(scores[np.newaxis]))
    pairs: dict[tuple[float, float], bool] = {}
    for row, point in np.argwhere(near):
        pair = float(own[row]), float(scores[point])
        if pair not in pairs:
            pairs[pair] = abs(exact[pair[0]] - exact[pair[1]]) > Fraction(delta)
        broken[row, point] = pairs[pair]
    return broken


def _beside(random: Random, value: float) -> float:
    """The value, or a float beside it, of either precision."""
    kind = random.integers(6)
    towards = -np.inf if kind % 2 else np.inf
    if kind in (2, 3):
        return float(np.nextafter(value, towards))
    if kind in (4, 5):
        with np.errstate(over="ignore"):
            return float(np.nextafter(np.float32(value), np.float32(towards)))
    return value
