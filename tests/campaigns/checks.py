"""Whether treeproof's answers are those of the library: bounds, verdicts, witnesses, features."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.campaigns.questions import Claim, ceiling
from tests.oracle.library_truth import (
    NEVER,
    Axis,
    Level,
    Reached,
    Table,
    as_double,
    exact_distance,
    is_within,
    round_up,
    smallest_of_largest,
)

FloatArray = NDArray[np.float64]
Problem = tuple[int, str]
"""Number of a row, and what is wrong about its answer."""

NEAR_TIE = "near tie"


@dataclass
class Asked:
    """A question about rows, with all that an answer is compared with.

    Attributes
    ----------
    table : Table
        The library's answers.
    rows, given : float64 (n_rows, n_features)
        In the precision of the question, and as they are given.
    claim : Claim
        What must hold.
    options : dict
        Options of treeproof's functions.
    still : bool (n_rows,)
        Rows that nobody attacks.
    moves, reached, levels
        Of questions about balls: how rows may move, and at which level each is broken.
    """

    table: Table
    rows: FloatArray
    given: FloatArray
    claim: Claim
    options: dict[str, Any]
    still: NDArray[np.bool_]
    moves: Any = None
    reached: Any = None
    levels: list[Level | None] = field(default_factory=list)

    @property
    def broken(self) -> NDArray[np.bool_]:
        """Whether each row breaks the claim as it stands."""
        place = self.table.flat(self.table.states(self.rows))
        return self.claim.broken[np.arange(len(self.rows)), place]

    def take(self, chosen: list[int]) -> "Asked":
        """The same question about some of the rows."""
        return Asked(
            self.table,
            self.rows[chosen],
            self.given[chosen],
            (claim := self.claim.take(chosen)),
            self.options | {"goal": claim.goal},
            self.still[chosen],
            self.moves,
            None if self.reached is None else self.reached.take(chosen),
            [self.levels[row] for row in chosen] if self.levels else [],
        )


def _is_of_precision(axis: Axis, value: float) -> bool:
    """Whether a value is of the input precision; 2**128 stands for what float32 rounds to inf."""
    return float(axis.cast(np.array([value]))[0]) == value or value == 2.0**128


def _is_same(x: float, y: float) -> bool:
    return x == y or (np.isnan(x) and np.isnan(y))


def _witnesses(asked: Asked, found: Any) -> NDArray[np.int64]:
    """Rows with a witness; one that lacks every value is its own, where it is broken."""
    own = np.isnan(asked.rows).all(axis=1) & (found.verdict == "falsified")
    return np.flatnonzero(own | ~np.isnan(found.witness).all(axis=1))


def _breaks(asked: Asked, found: Any, chosen: NDArray[np.int64]) -> dict[int, bool]:
    """Whether the library says that witnesses break the claims of their rows."""
    if not len(chosen):
        return {}
    points = found.witness[chosen].copy()
    for feature in asked.table.model.categories:
        # Codes of categories are treeproof's own; that they stay is tested elsewhere.
        points[:, feature] = asked.rows[chosen, feature]
    missing = np.isnan(asked.rows[chosen])
    points[missing] = np.nan
    points[np.isnan(points) & ~missing] = 0.0
    model, table = asked.table.model, asked.table
    try:
        labels, scores = model.labels(points), model.scores(points)
    except Exception:
        # The library does not take one of them, perhaps; none is a witness then.
        if len(chosen) == 1:
            return {int(chosen[0]): False}
        return {r: b for row in chosen for r, b in _breaks(asked, found, np.array([row])).items()}
    place = table.flat(table.states(points))
    # The library's answer at the witness itself must be that of its cell, too.
    same = (table.labels[place] == labels) & np.all(table.scores[place] == scores, axis=1)
    return {
        int(row): bool(asked.claim.broken[row, place[number]] and same[number])
        for number, row in enumerate(chosen)
    }


def row_problems(asked: Asked, found: Any) -> Iterator[Problem]:
    """Compare rows and labels that results state with the library's."""
    table, classes = asked.table, asked.table.model.classes
    own = table.labels[table.flat(table.states(asked.rows))]
    named = sorted(table.model.categories)
    for row in range(len(asked.rows)):
        values = found.values[row].copy()
        values[named] = asked.rows[row, named]
        if not np.array_equal(values, asked.rows[row], equal_nan=True):
            yield row, f"the row is stated as {values.tolist()}"
        if not classes:
            continue
        label = classes[own[row]] if asked.claim.labels is None else asked.claim.labels[row]
        stated = (found.predicted[row], found.label[row])
        if stated != (classes[own[row]], label):
            yield row, f"labels are stated as {stated}, not {(classes[own[row]], label)}"
        if found.witness_label[row] is None:
            continue
        point = np.where(np.isnan(asked.rows[row]), np.nan, found.witness[row])
        point[named] = asked.rows[row, named]
        place = table.flat(table.states(point[np.newaxis]))[0]
        if found.witness_label[row] != classes[table.labels[place]]:
            yield row, f"the witness is said to be {found.witness_label[row]}"
    if found.shown is not None:
        typed = dataclasses.replace(found, witness=table.cast(found.shown))
        for row, holds in _breaks(asked, typed, _witnesses(asked, typed)).items():
            if not holds:
                yield row, f"what is shown breaks nothing: {found.shown[row].tolist()}"


def radius_problems(asked: Asked, found: Any, *, complete: bool = True) -> Iterator[Problem]:
    """Compare answers of `treeproof.radius` with exact levels."""
    reached, levels = asked.reached, asked.levels
    broken = asked.broken
    has_witness = _witnesses(asked, found)
    breaks = _breaks(asked, found, has_witness)
    for row, level in enumerate(levels):
        lower, upper = float(found.lower[row]), float(found.upper[row])
        value, attained = as_double(level)
        says = f"{found.verdict[row]} [{lower!r}, {upper!r}] attained={found.attained[row]}"
        truth = f"the radius is {value!r} attained={attained}"
        if found.verdict[row] == "unknown":
            if complete and not _may_be_unknown(asked, reached, row, level, found):
                yield row, f"unknown: {found.reason[row]}; {truth}"
            elif lower > value or upper < value:
                yield row, f"bounds: {says}; {truth}"
        elif broken[row]:
            if found.verdict[row] != "falsified" or (lower, upper) != (0.0, 0.0):
                yield row, f"broken as it stands: {says}"
        elif found.verdict[row] != "verified" or not found.exact[row]:
            yield row, f"radius: {says}; {truth}"
        elif (lower, upper, bool(found.attained[row])) != (value, value, attained):
            kind = "radius"
            if _first_broken(upper, bool(found.attained[row])) == _first_broken(value, attained):
                kind = "radius by another name"
            elif lower > value or (lower == value and attained and not found.attained[row]):
                kind = "radius too large"
            yield row, f"{kind}: {says}; {truth}"
        if row in breaks:
            problem = (
                None if breaks[row] else "the library refuses it, or says that it breaks nothing"
            )
            first = _first_broken(value, attained)
            limit = (Fraction(first), False) if np.isfinite(first) else None
            if problem is None and found.exact[row]:
                problem = outside_ball(reached, row, found.witness[row], limit)
            if problem is None:
                problem = _distance_problem(reached, row, found)
            if problem:
                yield row, f"witness: {problem}; {says}; {truth}"
        elif upper < np.inf and level is not None:
            yield row, f"witness: there is none; {says}"


def _first_broken(value: float, attained: bool) -> float:
    with np.errstate(over="ignore"):
        return value if attained else float(np.nextafter(value, np.inf))


def _may_be_unknown(
    asked: Asked, reached: Reached, row: int, level: Level | None, found: Any
) -> bool:
    """Near ties are a documented reason, where there is one that the label takes part in."""
    if NEAR_TIE not in str(found.reason[row]) or not asked.claim.is_tie.size:
        return False
    tie = reached.nearest(asked.claim.is_tie)[row]
    return tie is not None and (level is None or tie <= level)


def ball_problems(
    asked: Asked, eps: float, found: Any, *, complete: bool = True
) -> Iterator[Problem]:
    """Compare answers of `treeproof.verify` in a ball with exact levels."""
    reached, levels = asked.reached, asked.levels
    has_witness = _witnesses(asked, found)
    breaks = _breaks(asked, found, has_witness)
    for row, level in enumerate(levels):
        value, attained = as_double(level)
        lower, upper = float(found.lower[row]), float(found.upper[row])
        truth = "falsified" if is_within(level, eps) else "verified"
        says = f"{found.verdict[row]} at {eps!r} [{lower!r}, {upper!r}]"
        words = f"the radius is {value!r} attained={attained}"
        if found.verdict[row] == "unknown":
            if complete and not _may_be_unknown(asked, reached, row, level, found):
                yield row, f"unknown: {found.reason[row]} at {eps!r}; {words}"
            continue
        if found.verdict[row] != truth:
            yield row, f"false {says}; {words}"
            continue
        if lower > value or upper < value:
            yield row, f"bounds: {says}; {words}"
        if truth == "falsified":
            problem = "there is none" if row not in breaks else None
            if problem is None and not breaks[row]:
                problem = "the library refuses it, or says that it breaks nothing"
            if problem is None:
                limit = None if np.isinf(eps) else (Fraction(eps), False)
                problem = outside_ball(reached, row, found.witness[row], limit)
            if problem is None:
                problem = _distance_problem(reached, row, found)
            if problem:
                yield row, f"witness: {problem}; {says}; {words}"
        elif row in breaks:
            yield row, f"witness of a verified row; {says}"


def _distance_problem(reached: Reached, row: int, found: Any) -> str | None:
    """Whether the stated distance of a witness is the smallest double that is not below it."""
    ball, farthest = reached.ball, Fraction(0)
    for feature, (x, w) in enumerate(zip(reached.rows[row], found.witness[row], strict=True)):
        if reached.table.axes[feature].is_categorical or _is_same(x, w):
            continue
        rate = ball.up[feature] if w > x else ball.down[feature]
        if rate > 0 and np.isfinite(x) and np.isinf(w):
            # It stands for real numbers, see `outside_ball`, and is at no finite distance itself.
            return None if np.isinf(found.witness_distance[row]) else "a finite distance"
        if rate == 0 or not np.isfinite(x):
            return f"feature {feature} moves from {x!r} to {w!r} at rate {rate!r}"
        farthest = max(farthest, exact_distance(float(x), float(w), rate))
    stated = float(found.witness_distance[row])
    if stated != round_up(farthest):
        return f"its distance is {round_up(farthest)!r}, not {stated!r}"
    return None


def outside_ball(
    reached: Reached, row: int, witness: FloatArray, limit: Level | None
) -> str | None:
    """Where a witness leaves the closed ball, as fractions; None where it does not.

    Among real numbers, where the ball holds some of a cell but none of the input precision, the one
    beside it is meant: the last number below a cut. Where rows are doubles, none is excepted.
    """
    table, ball = reached.table, reached.ball
    for feature, axis in enumerate(table.axes):
        x, w = float(reached.rows[row, feature]), float(witness[feature])
        if axis.is_categorical or _is_same(x, w):
            continue
        if np.isnan(x) or np.isinf(x) or np.isnan(w):
            return f"feature {feature} moves from {x!r} to {w!r}"
        if not _is_of_precision(axis, w):
            return f"feature {feature} is {w!r}, which is not of the input precision"
        rate = ball.up[feature] if w > x else ball.down[feature]
        within = rate > 0 and np.isfinite(w)
        within &= min(ball.low[feature], x) <= w <= max(ball.high[feature], x)
        if within and (limit is None or exact_distance(x, w, rate) <= limit[0]):
            continue
        if not axis.over_reals:
            return f"feature {feature} at {w!r} lies outside the ball around {x!r}"
        state = int(axis.state(np.array([w]))[0])
        level = reached.levels[row][feature].get(state)
        if state < int(reached.home[row, feature]) and level is not None:
            last = np.nextafter(axis.precision(axis.cuts[state]), axis.precision(-np.inf))
            if float(last) == w and (limit is None or level <= limit):
                continue
        if np.isinf(w) and level is not None and (limit is None or level <= limit):
            continue  # infinity stands for the real numbers beyond the largest float
        return f"feature {feature} at {w!r} lies outside the ball around {x!r}"
    return None


def box_problems(
    asked: Asked, truth: NDArray[np.bool_], low: FloatArray, high: FloatArray, found: Any
) -> Iterator[Problem]:
    """Compare answers of `treeproof.verify` in boxes."""
    has_witness = _witnesses(asked, found)
    breaks = _breaks(asked, found, has_witness)
    for row in range(len(truth)):
        expected = "falsified" if truth[row] else "verified"
        if found.verdict[row] == "unknown":
            if not (NEAR_TIE in str(found.reason[row]) and asked.claim.is_tie[row].any()):
                yield row, f"unknown: {found.reason[row]} in a box; the truth is {expected}"
        elif found.verdict[row] != expected:
            yield row, f"false {found.verdict[row]} in a box"
        elif expected == "falsified":
            problem = "there is none" if row not in breaks else None
            if problem is None and not breaks[row]:
                problem = "the library refuses it, or says that it breaks nothing"
            problem = problem or outside_box(asked, row, low[row], high[row], found)
            if problem:
                yield row, f"witness: {problem} in a box"


def outside_box(
    asked: Asked, row: int, low: FloatArray, high: FloatArray, found: Any
) -> str | None:
    """Where a witness leaves a box, with the same exception as in `outside_ball`."""
    for feature, axis in enumerate(asked.table.axes):
        x, w = float(asked.rows[row, feature]), float(found.witness[row, feature])
        if axis.is_categorical or np.isnan(x) or feature in asked.table.model.unread:
            own = float(found.values[row, feature])
            if not _is_same(own, w):
                return f"feature {feature}, which stays, moves from {own!r} to {w!r}"
            continue
        if np.isnan(w) or not _is_of_precision(axis, w):
            return f"feature {feature} is {w!r}, which is not of the input precision"
        least, most = float(low[feature]), float(high[feature])
        if least <= w <= most:
            continue
        if not axis.over_reals:
            return f"feature {feature} at {w!r} lies outside [{least!r}, {most!r}]"
        if np.isinf(w) and max(abs(least), abs(most)) > float(np.finfo(axis.precision).max):
            continue  # infinity stands for the real numbers beyond the largest float
        # Numbers of the precision within the box and the cell of w: if there is one, w is wrong.
        state = int(axis.state(np.array([w]))[0])
        start = float(axis.cuts[state - 1]) if state > 0 else -np.inf
        end = float(axis.cuts[state]) if state < len(axis.cuts) else np.inf
        first = ceiling(max(least, start), axis.precision)
        if first <= most and (first < end or end == np.inf):
            return f"feature {feature} at {w!r} lies outside [{least!r}, {most!r}]"
        beside = (ceiling(least, axis.precision), _floor(most, axis.precision))
        last = _floor(min(most, float(np.nextafter(end, -np.inf))), axis.precision)
        if w not in (*beside, last, _floor(least, axis.precision)):
            return f"feature {feature} at {w!r} lies far outside [{least!r}, {most!r}]"
    return None


def _floor(value: float, precision: Any) -> float:
    return -ceiling(-value, precision)


def feature_problems(asked: Asked, eps: float | None, found: Any) -> Iterator[Problem]:
    """Compare answers of `treeproof.feature_radius` and `unimportant_features` in balls."""
    broken, reached = asked.broken, asked.reached
    levels = [
        reached.nearest_alone(asked.claim.broken, feature) for feature in range(asked.rows.shape[1])
    ]
    for row in range(len(asked.rows)):
        for feature, axis in enumerate(asked.table.axes):
            stays = axis.is_categorical or bool(np.isnan(asked.rows[row, feature]))
            level = levels[feature][row]
            if eps is not None and not is_within(level, eps):
                level = None
            value, attained = (np.inf, False) if stays else as_double(level)
            expected = (value, attained, not stays and level is None and not broken[row])
            stated = (
                float(found.radius[row, feature]),
                bool(found.attained[row, feature]),
                bool(found.unimportant[row, feature]),
            )
            if stays and asked.table.model.cuts[feature].size == 0:
                stated = expected  # whether a column that no tree uses is examined is open
            if stated != expected:
                yield row, f"feature {feature}: {stated}; the truth is {expected}"
            elif value < np.inf and not broken[row]:
                yield from _value_problem(asked, reached, row, feature, eps, found)


def box_feature_problems(
    asked: Asked, ranks: list[NDArray[np.int16]], found: Any
) -> Iterator[Problem]:
    """Compare answers of `treeproof.unimportant_features` in boxes."""
    table, broken = asked.table, asked.broken
    home = table.states(asked.rows)
    own = [
        np.where(home[:, f, np.newaxis] == np.arange(size), 0, NEVER)
        for f, size in enumerate(table.shape)
    ]
    for feature, axis in enumerate(table.axes):
        alone = [ranks[f] if f == feature else own[f] for f in range(len(own))]
        breaks = smallest_of_largest(table, asked.claim.broken, alone) < NEVER
        stays = axis.stays(asked.rows[:, feature])
        expected = ~breaks & ~broken & ~stays
        stated = np.asarray(found.unimportant[:, feature])
        # Whether an entry that stays is examined where no tree uses its column is left open.
        is_open = stays & (asked.table.model.cuts[feature].size == 0)
        for row in np.flatnonzero((stated != expected) & ~is_open).tolist():
            kind = "broken as it stands, " if broken[row] else ""
            truth = f"{stated[row]}; the truth is {expected[row]}"
            yield row, f"{kind}feature {feature} in a box: {truth}"


def _value_problem(
    asked: Asked, reached: Reached, row: int, feature: int, eps: float | None, found: Any
) -> Iterator[Problem]:
    """Whether the value that a feature alone breaks a claim with does so, within the ball."""
    point = asked.rows[row].copy()
    point[feature] = found.breaking_value[row, feature]
    place = asked.table.flat(asked.table.states(point[np.newaxis]))[0]
    limit = None if eps is None or np.isinf(eps) else (Fraction(eps), False)
    problem = outside_ball(reached, row, point, limit)
    if not asked.claim.broken[row, place]:
        problem = "it breaks nothing"
    if problem:
        yield row, f"breaking value of feature {feature}: {problem}"


def anchor_problems(asked: Asked, eps: float, found: Any) -> Iterator[Problem]:
    """Compare answers of `treeproof.anchor_features` in balls: sufficient, and minimal."""
    table, reached = asked.table, asked.reached
    for row in range(len(asked.rows)):
        if asked.broken[row]:
            if found.sufficient[row]:
                yield row, "anchors of a row that is broken as it stands"
            continue
        home = reached.home[row]
        free = [
            {s for s, level in states.items() if is_within(level, eps)}
            for states in reached.levels[row]
        ]
        anchors = {int(feature) for feature in found.features[row]}
        kept = [{int(home[f])} if f in anchors else free[f] for f in range(len(free))]
        if _any_broken(table, asked.claim.broken[row], kept):
            yield row, f"anchors {sorted(anchors)} are not sufficient"
        elif found.minimal[row]:
            for feature in sorted(anchors):
                fewer = [free[f] if f == feature else kept[f] for f in range(len(free))]
                if not _any_broken(table, asked.claim.broken[row], fewer):
                    yield row, f"anchors {sorted(anchors)} do not need {feature}"
        elif not asked.claim.is_tie.size or not asked.claim.is_tie[row].any():
            yield row, f"anchors {sorted(anchors)} are not minimal: {found.reason[row]}"


def _any_broken(table: Table, broken: NDArray[np.bool_], states: list[set[int]]) -> bool:
    """Whether some point of a product of states is broken."""
    return bool(broken.reshape(table.shape)[np.ix_(*(sorted(chosen) for chosen in states))].any())
