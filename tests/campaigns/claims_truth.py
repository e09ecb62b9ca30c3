"""What is true of a row: all cells enumerated, distances as fractions, labels by the plain model.

Shares nothing with the checker: questions are resolved by `treeproof.query`, as engines do.
"""

import itertools
import json
import math
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.model import evaluate
from treeproof.model.domain import accept_float64_rows, accept_real_rows
from treeproof.model.ensemble import ZERO_BAND, ZERO_IS_MISSING, Ensemble
from treeproof.query.goals import AvoidsTarget, KeepsLabel, ScoreChange, ScoreWithin
from treeproof.query.perturbations import Box, LInf, resolve

Level = tuple[Fraction, bool]
NEVER: Level = (Fraction(10) ** 400, True)
GOALS = {g.__name__: g for g in (KeepsLabel, AvoidsTarget, ScoreWithin, ScoreChange)}


class Meaning:
    """A model in one arithmetic: cells and answers at every combination of them."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        trees = ensemble.trees
        self.cuts: dict[int, list[float]] = {}
        self.fixed = set(np.flatnonzero(ensemble.is_categorical).tolist())
        for feature in set(range(ensemble.n_features)) - self.fixed:
            own = trees.feature == feature
            if own.any():
                values = trees.threshold[own].tolist()
                if np.any(trees.flags[own] & ZERO_IS_MISSING):
                    values += [-ZERO_BAND, float(np.nextafter(ZERO_BAND, np.inf))]
                self.cuts[feature] = sorted(set(values))
        self._grids: dict[bytes, Any] = {}

    def answers(self, points: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Label numbers (-1 for scores) and first margins of points."""
        ensemble = self.ensemble
        sums = evaluate.accumulate(ensemble, evaluate.leaf_rows(ensemble, np.array(points)))
        margins = evaluate.finish(ensemble, sums)
        if not ensemble.classes:
            return np.full(len(margins), -1), margins[:, 0].astype(np.float64)
        return evaluate.label_indices(ensemble, margins), margins[:, 0].astype(np.float64)

    def moving(self, values: list[float]) -> list[int]:
        """Features whose cells a set around a row may leave."""
        return [f for f in self.cuts if not math.isnan(values[f])]

    def grid(self, values: list[float]) -> Any:
        """Answers at every combination of cells of the features that move."""
        key = np.array(values).tobytes()
        if key not in self._grids:
            real: Any = np.dtype(self.ensemble.input_precision).type
            columns = []
            for feature in self.moving(values):
                cuts = self.cuts[feature]
                with np.errstate(over="ignore"):
                    first = float(np.nextafter(real(cuts[0]), real(-np.inf)))
                columns.append([first, *cuts])
            points = np.tile(np.array(values), (int(np.prod([len(c) for c in columns])), 1))
            for number, picked in enumerate(itertools.product(*columns)):
                points[number, self.moving(values)] = picked
            if len(self._grids) > 64:
                self._grids.clear()
            self._grids[key] = self.answers(points)
        return self._grids[key]


class Asked:
    """A header's question about one row; raises where treeproof would not ask it."""

    is_outside = False

    def __init__(self, header: dict[str, Any], meaning: Meaning, row: int, values: Any) -> None:
        question = dict(header["question"])
        self.meaning, self.values = meaning, values
        self.asks_radius = {"radius": True, "verify": False}[question["kind"]]
        words = dict(question["perturbation"])
        kind = {"LInf": LInf, "Box": Box}[words.pop("name")]
        for name in ("low", "high"):
            side = _floats(words[name])
            words[name] = np.array(side[row] if np.ndim(side) == 2 else side, dtype=np.float64)
        for name in ("scale", "below", "above"):
            if words.get(name) is not None:
                words[name] = np.array(_floats(words[name]), dtype=np.float64)
        if words.get("eps") is not None:
            words["eps"] = float(words["eps"])
        names = meaning.ensemble.feature_names
        words["frozen"] = [item if item in names else int(item) for item in words.pop("frozen", ())]
        if kind is Box:
            del words["frozen"]
        self.perturbation = kind(**words)
        self.is_box = kind is Box
        assert self.asks_radius == (not self.is_box and self.perturbation.eps is None)
        self.reach = resolve(self.perturbation, np.array([values]), names)
        if not self.is_box:
            self._refuse_outside()
        words = dict(question["goal"])
        goal = GOALS[words.pop("name")]
        for name in ("low", "high", "delta"):
            if name in words:
                side = words[name]
                words[name] = float(side[row] if isinstance(side, list) else side)
        self.goal = goal(**words)
        self.classes = [json.loads(json.dumps(_plain(c))) for c in meaning.ensemble.classes]
        self.attacked = question["attacker_class"]
        assert self.attacked is None or _number(self.classes, self.attacked) >= 0

    def _refuse_outside(self) -> None:
        """A row outside the bounds of what moves is not asked about."""
        own = np.array(self.values)
        low, high = (
            evaluate.cast_rows(self.meaning.ensemble, side)[0]
            for side in (self.reach.low, self.reach.high)
        )
        moves = ((self.reach.down > 0.0) | (self.reach.up > 0.0)).reshape(-1)
        self.is_outside = bool(
            (((own < low) | (own > high)) & moves & ~self.meaning.ensemble.is_categorical).any()
        )

    @cached_property
    def own(self) -> tuple[int, float]:
        """Label number and margin of the row as it stands."""
        labels, margins = self.meaning.answers([self.values])
        return int(labels[0]), float(margins[0])

    def breaks(self, labels: Any, margins: Any, label: Any) -> Any:
        """Which answers break the goal, for a row of a label."""
        if isinstance(self.goal, KeepsLabel):
            number = _number(self.classes, label)
            assert number >= 0
            return labels != number
        if isinstance(self.goal, AvoidsTarget):
            number = _number(self.classes, self.goal.target)
            assert number >= 0
            return labels == number
        if isinstance(self.goal, ScoreWithin):
            return (margins < self.goal.low) | (margins > self.goal.high)
        if math.isinf(self.goal.delta):
            return np.zeros(len(margins), dtype=bool)
        own, delta = Fraction(self.own[1]), Fraction(self.goal.delta)
        far = {margin: abs(Fraction(margin) - own) > delta for margin in set(margins.tolist())}
        return np.array([far[margin] for margin in margins.tolist()])

    def bounds(self, feature: int, label: Any) -> tuple[float, float]:
        """Least and largest value of a feature; a row that is not attacked stays."""
        x = self.values[feature]
        if self.attacked is not None and not _same(label, self.attacked):
            return x, x
        return float(self.reach.low[0, feature]), float(self.reach.high[0, feature])

    def levels(self, feature: int, label: Any) -> list[Level]:
        """At which distance each cell of a feature is reached."""
        x, cuts = self.values[feature], self.meaning.cuts[feature]
        low, high = self.bounds(feature, label)
        home = sum(cut <= x for cut in cuts)
        if self.is_box:
            first, last = (sum(cut <= end for cut in cuts) for end in (low, high))
            return [(Fraction(0), False) if first <= c <= last else NEVER
                    for c in range(len(cuts) + 1)]  # fmt: skip
        levels = []
        for cell in range(len(cuts) + 1):
            rises = cell > home
            cut = cuts[cell - 1] if rises else cuts[min(cell, len(cuts) - 1)]
            rate = float((self.reach.up if rises else self.reach.down)[feature])
            if cell == home:
                levels.append((Fraction(0), False))
                continue
            is_approached = not rises and self.meaning.ensemble.over_reals
            # Where sets hold doubles, the last one below a threshold attains its distance.
            end = cut if rises or is_approached else math.nextafter(cut, -math.inf)
            if not (rate > 0.0 and math.isfinite(x) and math.isfinite(end)) or not (
                cut <= high if rises else cut > low
            ):
                levels.append(NEVER)
            else:
                levels.append((abs(Fraction(end) - Fraction(x)) / Fraction(rate), is_approached))
        return levels

    def nearest(self, label: Any) -> Level:
        """The level of the nearest violation; NEVER where there is none."""
        broken = self.breaks(*self.meaning.grid(self.values), label)
        by_feature = [self.levels(f, label) for f in self.meaning.moving(self.values)]
        order = sorted({(Fraction(0), False)}.union(*by_feature))
        rank = {level: number for number, level in enumerate(order)}
        highest = np.zeros(1, dtype=np.int64)
        for levels in by_feature:
            own = np.array([rank[level] for level in levels])
            highest = np.maximum(highest[..., np.newaxis], own)
        found = highest.reshape(-1)[np.asarray(broken).reshape(-1)]
        return order[int(found.min())] if found.size else NEVER


def falsehoods(
    genuine: dict[str, Any], header: dict[str, Any], record: dict[str, Any], meanings: Any
) -> list[str]:
    """What is false in a record and its header; an empty list where all is true."""
    question = header["question"]
    arithmetic = question.get("arithmetic", question.get("domain"))
    for name in ("fingerprint", "classes", "n_trees", "n_features", "input_precision", "decision"):
        if header["model"][name] != genuine["model"][name]:
            return [f"model: {name}"]
    for name in ("categorical", "decision_rule", "decision_cut", "objective"):
        if header["model"].get(name) not in (None, "", genuine["model"].get(name)):
            return [f"model: {name}"]
    if arithmetic not in ("real", "float64") or question["labels"] not in (
        "given",
        "the model's own",
    ):
        return ["question: arithmetic or labels"]
    meaning = meanings[arithmetic]
    if record.get("values") is None:
        return [] if record["verdict"] == "unknown" else ["row: nobody knows which"]
    values = values_of(record)
    cast = evaluate.cast_rows(meaning.ensemble, np.array([values]))
    if not np.array_equal(cast[0], values, equal_nan=True):
        return ["row: precision"]
    try:
        asked = Asked(header, meaning, record["row"], values)
        nearest = asked.nearest(record["label"])
        is_attacked = asked.attacked is None or _same(record["label"], asked.attacked)
        bounds = [math.nan if record[n] is None else float(record[n]) for n in ("lower", "upper")]
        says_nothing = record["verdict"] == "unknown" and not (
            bounds[0] > 0.0 or bounds[1] < math.inf
        )
        if is_attacked and asked.is_outside and not says_nothing:
            return ["row: it is outside of its bounds"]
    except (KeyError, ValueError, TypeError, IndexError, AssertionError) as error:
        return [f"question: nobody asks it ({error!r})"]
    return [what for what, is_true in _statements(asked, question, record, nearest) if not is_true]


def values_of(record: dict[str, Any]) -> list[float]:
    """The row of a record."""
    return [math.nan if v is None else float(v) for v in record["values"]]


def _statements(asked: Asked, question: Any, record: Any, nearest: Level) -> Any:
    """Everything that a record says, and whether it is so."""
    own = asked.classes[asked.own[0]] if asked.classes else None
    verdict = record["verdict"]
    lower, upper = (math.nan if record[n] is None else float(record[n]) for n in ("lower", "upper"))
    yield "predicted", "predicted" not in record or _same(record["predicted"], own)
    yield "own label", question["labels"] == "given" or _same(record["label"], own)
    yield "verdict", verdict in ("verified", "falsified", "unknown")
    yield "exact", record["exact"] == (verdict != "unknown")
    has_witness = verdict == "falsified" or upper < math.inf
    if has_witness:
        yield from _witness_statements(asked, record)
    else:
        yield "no witness", record["witness"] is None and record.get("witness_label") is None
    if asked.is_box:
        yield "no radius", math.isnan(lower) or (verdict == "unknown" and lower == 0.0)
    else:
        yield "bounds", 0.0 <= lower <= upper
    if not asked.asks_radius:
        eps = math.inf if asked.is_box else asked.perturbation.eps
        inside = nearest != NEVER and _reaches(eps, nearest)
        yield "set", verdict == "unknown" or inside == (verdict == "falsified")
        if not asked.is_box:
            yield "lower", lower == (eps if verdict == "verified" else 0.0)
            shown = nearest != NEVER and upper <= eps and _reaches(upper, nearest)
            yield "upper", shown if verdict == "falsified" else upper == math.inf
        return
    distance, beyond = nearest
    if verdict != "unknown":
        rounded = math.inf if nearest == NEVER else _rounded_down(distance)
        attained = nearest != NEVER and not beyond and distance == rounded
        yield "exact radius", (lower, upper, record["attained"]) == (rounded, rounded, attained)
        yield "broken", (verdict == "falsified") == (nearest == (Fraction(0), False))
        return
    yield "lower bound", nearest == NEVER or (lower < math.inf and distance >= Fraction(lower))
    if upper < math.inf:
        radius = upper if record["attained"] else math.nextafter(upper, math.inf)
        yield "upper bound", nearest != NEVER and _reaches(radius, nearest)


def _witness_statements(asked: Asked, record: Any) -> Any:
    values, n = asked.values, len(asked.values)
    witness = [math.nan if v is None else float(v) for v in record["witness"] or [None] * n]
    labels, margins = asked.meaning.answers([witness])
    yield "witness breaks", bool(asked.breaks(labels, margins, record["label"])[0])
    label = asked.classes[int(labels[0])] if asked.classes and record["witness"] else None
    yield "witness label", "witness_label" not in record or _same(record["witness_label"], label)
    farthest: Any = Fraction(0)
    for feature, (x, w) in enumerate(zip(values, witness, strict=True)):
        if x == w or (math.isnan(x) and math.isnan(w)):
            continue
        yield "witness moves", not math.isnan(x) and feature not in asked.meaning.fixed
        rate = float((asked.reach.up if w > x else asked.reach.down)[feature])
        if rate == 0.0 or not math.isfinite(w - x):
            farthest = math.inf
        elif rate < math.inf:
            farthest = max(farthest, abs(Fraction(w) - Fraction(x)) / Fraction(rate))
        low, high = asked.bounds(feature, record["label"])
        step = float(np.spacing(np.dtype(asked.meaning.ensemble.input_precision).type(abs(w))))
        near = w >= min(low, x) - step and w <= max(high, x) + step
        yield "witness in bounds", math.isinf(w) or near
    said = record["witness_distance"]
    exact = said is not None and (
        float(said) == farthest
        if math.isinf(farthest)
        else float(said) >= farthest > math.nextafter(float(said), -1.0) or farthest == float(said)
    )
    yield "witness distance", exact


def _reaches(radius: float, level: Level) -> bool:
    return level[0] < radius if level[1] else level[0] <= radius


def _rounded_down(exact: Fraction) -> float:
    value = float(exact)
    while Fraction(value) > exact:
        value = math.nextafter(value, -math.inf)
    return value


def _number(classes: list[Any], label: Any) -> int:
    return next((k for k, known in enumerate(classes) if _same(known, label)), -1)


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _floats(value: Any) -> Any:
    return [_floats(v) for v in value] if isinstance(value, list) else float(value)


def meanings_of(ensemble: Ensemble) -> dict[str, Meaning]:
    """The model in both arithmetics."""
    return {
        "real": Meaning(accept_real_rows(ensemble)),
        "float64": Meaning(accept_float64_rows(ensemble)),
    }
