"""What a file of answers about properties says, held against the enumeration of all pairs of rows.

Read from the plain words of the file: its domain, the claim, the verdict, both bounds and the
witness. Slow and obvious on purpose; nothing of the checker is used.
"""

import itertools
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

import treeproof as tp
from tests.oracle.brute_force import thresholds
from tests.oracle.pairs import largest_of
from tests.random_domains import obeys
from treeproof.errors import TreeproofError
from treeproof.model import evaluate
from treeproof.model.domain import smallest_double_rounding_up_to
from treeproof.model.ensemble import Ensemble
from treeproof.model.score_meaning import sure_scores

MOST_POINTS = 6_000
MOST_CHANGES = 700
"""Combinations of what changes, where every pair of them is looked at."""
FAR = 12
"""Codes of categories up to here are told apart."""

PROPERTIES: dict[str, Any] = {
    "Stable": tp.Stable,
    "Fair": tp.Fair,
    "Monotone": tp.Monotone,
    "HighConfidence": tp.HighConfidence,
    "Redundant": tp.Redundant,
    "SmallNeighbourhood": tp.SmallNeighbourhood,
    "ScoreRange": tp.ScoreRange,
}
Table = NDArray[Any]


class TooLarge(Exception):  # noqa: N818
    """There are too many rows to look at all of them."""


class Meaningless(Exception):  # noqa: N818
    """Nothing that anybody can ask."""


def number(value: Any) -> float:
    """A number as files hold it."""
    if isinstance(value, bool) or not (isinstance(value, int | float) or value in ("inf", "-inf")):
        raise Meaningless(f"{value!r} is no number")
    return float(value)


class Rows:
    """All rows of a domain, one for each combination of cells, and what the models say of them.

    `home` is the row that the domain is around, if any; of categories only those in `changed` move
    then, unless their codes are listed.
    """

    def __init__(
        self, models: list[Ensemble], words: Any, home: list[float] | None, changed: list[int]
    ) -> None:
        self.models, self.n, self.home = models, models[0].n_features, home
        self.is_category = np.any([model.is_categorical for model in models], axis=0)
        self.types = words.get("domain") or {}
        self.low, self.high = self._ends(words)
        self.listed: dict[int, set[float]] = {}
        for feature, values in [*self.types.get("values", ()), *self.types.get("categorical", ())]:
            if feature in self.listed:
                raise Meaningless("values of a feature are listed twice")
            self.listed[feature] = set(map(number, values))
        self.groups = [(list(c), bool(e)) for c, e in self.types.get("groups", ())]
        self.grouped = {column for columns, _ in self.groups for column in columns}
        self.changed = changed
        self.values = [self._values(feature) for feature in range(self.n)]
        if math.prod(map(len, self.values)) > MOST_POINTS:
            raise TooLarge
        self.points = np.array(list(itertools.product(*self.values))).reshape(-1, self.n)
        self.is_allowed = np.array([self.fits(point) for point in self.points], dtype=bool)
        self.scores = [evaluate.margins(model, self.points).astype(np.float64) for model in models]
        self.labels = [
            evaluate.label_indices(model, evaluate.margins(model, self.points))
            for model in models
            if model.decision.kind != "score"
        ]

    def _ends(self, words: Any) -> tuple[Table, Table]:
        def side(name: str) -> Table:
            value = words[name]
            values = value if isinstance(value, list) else [value] * self.n
            return np.array([number(v) for v in values])

        low, high = side("low"), side("high")
        if words["name"] == "LInf":
            if self.home is None:
                raise Meaningless("a ball around nothing")
            one = {"scale": 1.0 if words["scale"] is None else words["scale"]}
            scale, below, above = (
                [number(v) for v in (given if isinstance(given, list) else [given] * self.n)]
                for given in (one["scale"], words["below"], words["above"])
            )
            for f, own in enumerate(self.home):
                if math.isnan(own) or self.is_category[f]:
                    low[f], high[f] = -math.inf, math.inf
                    continue
                eps, center = Fraction(number(words["eps"])), Fraction(own)
                is_frozen = f in words["frozen"] or str(f) in words["frozen"]
                reach = [
                    0 if is_frozen else eps * Fraction(scale[f] * w[f]) for w in (below, above)
                ]
                low[f] = min(max(low[f], -_largest(reach[0] - center)), own)
                high[f] = max(min(high[f], _largest(center + reach[1])), own)
        elif words["name"] != "Box":
            raise Meaningless("no domain of properties")
        for feature, _ in self.types.get("categorical", ()):
            low[feature], high[feature] = -math.inf, math.inf
        for feature, least, most in self.types.get("ranges", ()):
            low[feature] = max(low[feature], number(least))
            high[feature] = min(high[feature], number(most))
        return low, high

    def _values(self, feature: int) -> list[float]:
        """One value of every cell, or both ends of it."""
        low, high = float(self.low[feature]), float(self.high[feature])
        home = math.nan if self.home is None else self.home[feature]
        if self.home is not None and math.isnan(home):
            return [math.nan]
        found: list[float]
        cuts = np.unique(np.concatenate([
            smallest_double_rounding_up_to(thresholds(model, feature))
            if model.input_precision == "float32" else thresholds(model, feature)
            for model in self.models
        ]))  # fmt: skip
        cuts = cuts[np.isfinite(cuts)]
        if feature in self.grouped:
            found = [0.0, 1.0]
        elif self.is_category[feature]:
            if self.home is not None and feature not in {*self.changed, *self.listed}:
                return [home]
            found = [float(code) for code in range(FAR)]
            if math.isinf(high) and feature not in self.listed:
                found = [float(code) for code in range(max(self._known(feature), 1))]
            found += [*self.listed.get(feature, ()), *([] if self.home is None else [home])]
        elif feature in self.listed:
            found = sorted(self.listed[feature])
        else:
            least = low if math.isfinite(low) else min([*cuts.tolist(), 0.0, high]) - 1.0
            most = high if math.isfinite(high) else max([*cuts.tolist(), 0.0, low]) + 1.0
            found = [least, most, *cuts.tolist(), *np.nextafter(cuts, -np.inf).tolist()]
            if feature in self.types.get("integer", ()):
                ends = (max(low, min(found) - 2.0), min(high, max(found) + 2.0))
                if not math.isfinite(ends[1] - ends[0]) or ends[1] - ends[0] > MOST_POINTS:
                    raise TooLarge
                found = [float(n) for n in range(math.ceil(ends[0]), math.floor(ends[1]) + 1)]
        found = sorted({value for value in found if self.holds(feature, value)})
        return found + ([math.nan] if feature in self.types.get("may_miss", ()) else [])

    def _known(self, feature: int) -> int:
        """How many codes the models know."""
        most = 0
        for model in self.models:
            nodes = np.flatnonzero(model.trees.feature == feature)
            sets = np.unique(model.trees.category_set[nodes])
            sets = sets[sets >= 0]
            most = max(most, len(model.categories.get(feature, ())))
            most = max(most, 1 + int(model.trees.categories_in(sets).max(initial=-1)))
        return most

    def holds(self, feature: int, value: float) -> bool:
        """Whether a feature takes a value."""
        home = math.nan if self.home is None else self.home[feature]
        if math.isnan(value):
            is_fixed = self.home is not None and math.isnan(home)
            return is_fixed or feature in self.types.get("may_miss", ())
        if self.home is not None and math.isnan(home):
            return False
        if self.is_category[feature]:
            if self.home is not None and feature not in {*self.changed, *self.listed}:
                return value == home
            if value == home:
                return True
            if value < 0.0 or value != math.floor(value):
                return False
        if feature in self.listed and value not in self.listed[feature]:
            return False
        if feature in self.types.get("integer", ()) and value != math.floor(value):
            return False
        return bool(self.low[feature] <= value <= self.high[feature])

    def fits(self, point: Any) -> bool:
        """Whether a point is a row of the domain."""
        if not all(self.holds(f, float(v)) for f, v in enumerate(point)):
            return False
        for columns, exactly in self.groups:
            chosen = [float(point[column]) for column in columns]
            if not set(chosen) <= {0.0, 1.0} or not int(exactly) <= sum(chosen) <= 1:
                return False
        return all(obeys(text, np.asarray(point)) for text in self.types.get("rules", ()))

    def by_change(self, column: Table, changed: list[int]) -> Table:
        """A column of the points as a table: rows for what is shared, columns for what changes."""
        shape = [len(axis) for axis in self.values]
        table = np.moveaxis(column.reshape(shape), changed, range(-len(changed), 0))
        return table.reshape(-1, math.prod(shape[feature] for feature in changed))

    def related(self, changed: list[int], relation: str, widths: list[Fraction]) -> Table:
        """Which changes go together: (n_changes, n_changes), the first row's first."""
        table = np.ones((1, 1), dtype=bool)
        for feature in changed:
            own = np.array(
                [[_goes(one, other, relation, widths[feature] if widths else Fraction(0))
                  for other in self.values[feature]] for one in self.values[feature]]
            )  # fmt: skip
            table = np.kron(table, own)
        return table

    def largest(
        self,
        columns: tuple[Table, Table],
        changed: list[int],
        relation: str = "",
        widths: list[Fraction] | None = None,
        sign: float = 1.0,
    ) -> Fraction | float:
        """Largest value of the second row minus that of the first one, of pairs that there are."""
        if not changed:
            return 0.0
        first, second = (self.by_change(sign * column, changed) for column in columns)
        fits = self.by_change(self.is_allowed, changed)
        if not relation:
            most = np.where(fits, second, -np.inf).max(axis=1)
            return largest_of(np.where(fits, first, np.inf).min(axis=1), most)
        if fits.shape[1] > MOST_CHANGES:
            raise TooLarge
        together = self.related(changed, relation, widths or [])
        best: Fraction | float = -math.inf
        for one, other, is_there in zip(first, second, fits, strict=True):
            both = together & is_there[:, np.newaxis] & is_there[np.newaxis]
            if both.any():
                pair = np.broadcast_arrays(one[:, np.newaxis], other[np.newaxis])
                best = max(best, largest_of(*(side[both] for side in pair)))
        return best

    def crosses(self, changed: list[int], is_one: Table, is_other: Table) -> bool:
        """Whether some change alone leads from a row of one kind to one of another kind."""
        one, other = (
            self.by_change(kind & self.is_allowed, changed).any(axis=1)
            for kind in (is_one, is_other)
        )
        return bool((one & other).any())


def _goes(one: float, other: float, relation: str, width: Fraction) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    if relation == "rising":
        return other >= one
    if math.isinf(one) or math.isinf(other):
        return one == other
    return one == other or abs(Fraction(one) - Fraction(other)) <= width


def _largest(exact: Fraction) -> float:
    """The largest double that is not above a number."""
    value = float(exact)
    return math.nextafter(value, -math.inf) if Fraction(value) > exact else value


class Claimed:
    """A claim of one model: what is said of pairs of rows."""

    def __init__(self, model: Ensemble, claim: dict[str, Any]) -> None:
        self.model, self.name = model, claim["name"]
        options = {key: value for key, value in claim.items() if key not in ("name", "scores")}
        for key in ("delta", "tolerance", "eps", "factor", "margin", "confidence", "low", "high"):
            if key in options and options[key] is not None:
                options[key] = number(options[key])
        self.options = options
        if self.name == "largest_change":
            if not {"features"} <= set(options) <= {"features", "label"}:
                raise Meaningless("other options of largest_change")
        elif self.name in PROPERTIES:
            try:
                PROPERTIES[self.name](**options)
            except (TreeproofError, TypeError, ValueError) as error:
                raise Meaningless(str(error)) from error
        else:
            raise Meaningless(f"a claim {self.name!r}")
        self.low: float | None
        self.low, self.high = None, model.decision.cut
        if options.get("confidence") is not None:
            self.low, self.high = sure_scores(model, options["confidence"], None)
            told = [number(score) for score in claim["scores"] or ()]
            if len(told) != 2 or not np.allclose([self.low, self.high], told, rtol=1e-12, atol=0.0):  # type: ignore[list-item]
                raise Meaningless("the scores are not those of the confidence")
        elif options.get("margin"):
            self.low, self.high = self.high - options["margin"], self.high + options["margin"]
        if self.is_labelled and model.decision.kind == "score":
            raise Meaningless("labels of scores")
        several = model.decision.kind == "argmax"
        if several and (self.name in ("HighConfidence", "Redundant") or self.low is not None):
            raise Meaningless("confidence of several classes")
        self.outputs = list(range(model.n_outputs))
        label = options.get("label")
        if label is not None:
            if isinstance(label, bool) or label not in model.classes:
                raise Meaningless("no such class")
            if not self.is_labelled:
                if model.n_outputs == 1:
                    raise Meaningless("the class of a model with one score")
                self.outputs = [model.classes.index(label)]
        self.groups = [self.features(group) for group in self._changing()]

    @property
    def is_labelled(self) -> bool:
        """Whether it is about labels."""
        return self.name in ("Fair", "HighConfidence", "Redundant")

    def _changing(self) -> list[Any]:
        if self.name == "SmallNeighbourhood":
            return [[f for f in range(self.model.n_features) if self.widths[f] > 0]]
        if self.name == "ScoreRange":
            return [[]]
        if self.name == "Redundant":
            return list(self.options["groups"])
        return [self.options["protected" if self.name == "Fair" else "features"]]

    @property
    def widths(self) -> list[Fraction]:
        """How far apart near rows may be in each feature."""
        scale, n = self.options["scale"], self.model.n_features
        units = scale if isinstance(scale, list) else [1.0 if scale is None else scale] * n
        if len(units) != n or any(number(unit) < 0.0 for unit in units):
            raise Meaningless("no scale")
        eps = Fraction(self.options["eps"])
        return [
            Fraction(0) if self.model.is_categorical[f] else eps * Fraction(number(units[f]))
            for f in range(n)
        ]

    def features(self, given: Any) -> list[int]:
        """Numbers of features."""
        numbers = given if isinstance(given, list) else [given]
        for item in numbers:
            if type(item) is not int or not 0 <= item < self.model.n_features:
                raise Meaningless("no features")
        if not numbers and self.name not in ("ScoreRange", "SmallNeighbourhood"):
            raise Meaningless("no features")
        return sorted(set(numbers))

    @property
    def relation(self) -> str:
        """How the rows of a pair are related."""
        if self.name == "Monotone":
            if self.model.is_categorical[self.groups[0]].any():
                raise Meaningless("categories have no order")
            return "rising"
        return "near" if self.name == "SmallNeighbourhood" else ""

    @property
    def limit(self) -> float:
        """What no value exceeds; NaN where nothing is claimed."""
        options = self.options
        if self.name == "SmallNeighbourhood":
            return float(options["factor"] * options["eps"])
        key = {"Stable": "delta", "Monotone": "tolerance"}.get(self.name)
        return math.nan if key is None else float(options[key])

    @property
    def sign(self) -> float:
        """Which way of the score counts."""
        return -1.0 if self.options.get("direction") == "increasing" else 1.0

    def kinds(self, scores: Table, labels: Table) -> list[tuple[Table, Table]]:
        """Kinds of first and second rows of which no pair may exist."""
        if self.name == "Fair" and self.low is None:
            classes = range(len(self.model.classes))
            return [(labels == a, labels == b) for a, b in itertools.permutations(classes, 2)]
        low = labels == 0 if self.low is None else scores[:, 0] <= self.low
        high = scores[:, 0] >= self.high
        if self.name == "Fair":
            return [(low, high), (high, low)]
        found, label = [], self.options.get("label")
        if label is None or label == self.model.classes[1]:
            found += [(high, labels == 0), (labels == 0, high)]
        if label is None or label == self.model.classes[0]:
            found += [(low, labels == 1), (labels == 1, low)]
        return found


_KNOWN: dict[str, tuple[Any, ...]] = {}
"""What was worked out last, by everything that it depends on."""


def falsehoods(
    document: dict[str, Any],
    answer: dict[str, Any],
    home: list[float] | None,
    models: list[Ensemble],
) -> list[str]:
    """What is false in an answer of a file about one model, or about two.

    `home` is the row that the answer is about, where it is about one.
    """
    try:
        if (home is None) != (answer["row"] < 0):
            return ["it is about a row, or about the domain"]
        if len(models) == 2:
            return _difference(document, answer, home, models)
        said = Claimed(models[0], answer["claim"])
        changed = sorted({feature for group in said.groups for feature in group})
        rows = _rows(models, document["domain"], home, changed)
        return [*_value(rows, said, answer), *_witness(rows, said, answer)]
    except Meaningless as error:
        return [f"it means nothing: {error}"]
    except TooLarge:
        return []


def _rows(models: list[Ensemble], words: Any, home: Any, changed: list[int]) -> Rows:
    key = json.dumps([[m.fingerprint for m in models], words, home, changed], default=str)
    if key not in _KNOWN:
        if len(_KNOWN) > 40:
            _KNOWN.clear()
        _KNOWN[key] = (Rows(models, words, home, changed),)
    return _KNOWN[key][0]  # type: ignore[no-any-return]


def _end(value: Any) -> float:
    return math.nan if value is None else number(value)


def _value(rows: Rows, said: Claimed, answer: dict[str, Any]) -> list[str]:
    """What is false about the verdict and both bounds."""
    lower, upper, verdict = _end(answer["lower"]), _end(answer["upper"]), answer["verdict"]
    scores, wrong = rows.scores[0], []
    if not rows.is_allowed.any():
        return ["there are no rows"] if verdict == "falsified" else []
    if said.is_labelled:
        kinds = said.kinds(scores, rows.labels[0])
        is_broken = any(rows.crosses(group, *two) for group in said.groups for two in kinds)
        wrong += [] if math.isnan(lower) and math.isnan(upper) else ["bounds of labels"]
    elif said.name == "ScoreRange":
        inside = scores[rows.is_allowed][:, said.outputs]
        low, high = said.options["low"], said.options["high"]
        is_broken = bool((inside < low).any() or (inside > high).any())
        wrong += [] if lower <= inside.min() else [f"lower: {lower}, {inside.min()}"]
        wrong += [] if upper >= inside.max() else [f"upper: {upper}, {inside.max()}"]
    else:
        (group,) = said.groups
        widths = said.widths if said.name == "SmallNeighbourhood" else []
        truth = max(
            rows.largest((scores[:, o],) * 2, group, said.relation, widths, said.sign)
            for o in said.outputs
        )
        wrong += _bounds(answer, lower, upper, truth, rows.models)
        if said.name == "largest_change":
            return wrong + (["there is nothing to break"] if verdict == "falsified" else [])
        is_broken = truth > said.limit
    if verdict != "unknown" and (verdict == "falsified") != is_broken:
        wrong.append(f"verdict: {verdict}")
    return wrong


def _bounds(
    answer: dict[str, Any], lower: float, upper: float, truth: Any, models: list[Ensemble]
) -> list[str]:
    wrong = [] if not lower > truth else [f"lower: {lower}, {truth}"]
    wrong += [] if not upper < truth else [f"upper: {upper}, {truth}"]
    size = sum(float(np.abs(m.trees.leaf_value).max()) * m.n_trees + 1.0 for m in models)
    is_near = upper - lower <= 1e-4 * size
    return wrong + ([] if is_near or not answer["exact"] else ["exact"])


def _pair(rows: Rows, answer: dict[str, Any]) -> tuple[Table | None, list[str]]:
    """The witness, and what is false of it whatever the claim."""
    shown = answer["witness"]
    if shown is None:
        return None, ["no witness"] if answer["verdict"] == "falsified" else []
    names = list(rows.models[0].feature_names) or [str(f) for f in range(rows.n)]
    if len(shown["rows"]) != 2 or any(list(row) != names for row in shown["rows"]):
        return None, ["witness: other features"]
    pair = np.array([[_end(value) for value in row.values()] for row in shown["rows"]])
    wrong = [] if all(map(rows.fits, pair)) else ["witness: it is outside of the domain"]
    models = rows.models if len(rows.models) == 2 else rows.models * 2
    own = [evaluate.margins(m, row[np.newaxis]) for m, row in zip(models, pair, strict=True)]
    width = max(score.shape[1] for score in own)
    scores = np.full((2, width), np.nan)
    for side, score in enumerate(own):
        scores[side, : score.shape[1]] = score[0]
    told = [[_end(value) for value in score] for score in shown["scores"]]
    wrong += [] if np.array_equal(told, scores, equal_nan=True) else ["witness: other scores"]
    if models[0].decision.kind != "score":
        labels = [m.classes[int(evaluate.label_indices(m, s)[0])]
                  for m, s in zip(models, own, strict=True)]  # fmt: skip
        wrong += [] if shown["labels"] == labels else ["witness: other labels"]
    is_same = (pair[0] == pair[1]) | (np.isnan(pair[0]) & np.isnan(pair[1]))
    differs = [names[f] for f in np.flatnonzero(~is_same)]
    return pair, wrong + ([] if shown["changed"] == differs else ["witness: other features change"])


def _witness(rows: Rows, said: Claimed, answer: dict[str, Any]) -> list[str]:
    pair, wrong = _pair(rows, answer)
    if pair is None:
        return wrong
    differs = {f for f in range(rows.n) if not _goes(*pair[:, f].tolist(), "", Fraction(0))}
    if not any(differs <= set(group) for group in said.groups):
        wrong.append("witness: other features differ")
    if said.relation:
        widths = said.widths if said.relation == "near" else [Fraction(0)] * rows.n
        near = [_goes(*pair[:, f].tolist(), said.relation, widths[f]) for f in differs]
        wrong += [] if all(near) else ["witness: the rows are not related so"]
    scores = evaluate.margins(rows.models[0], pair)
    wide = scores.astype(np.float64)
    if said.is_labelled:
        labels = evaluate.label_indices(rows.models[0], scores)
        kinds = said.kinds(wide, labels)
        is_broken = any(one[0] and other[1] for one, other in kinds)
        return wrong + ([] if is_broken else ["witness: it breaks nothing"])
    if said.name == "ScoreRange":
        own = wide[:, said.outputs]
        is_broken = bool((own < said.options["low"]).any() or (own > said.options["high"]).any())
    else:
        first, second = (map(Fraction, score[said.outputs].tolist()) for score in wide)
        gain = max(Fraction(said.sign) * (b - a) for a, b in zip(first, second, strict=True))
        wrong += [] if not _end(answer["lower"]) > gain else ["witness: lower"]
        is_broken = gain > said.limit
    if answer["verdict"] == "falsified" and not is_broken:
        wrong.append("witness: it breaks nothing")
    return wrong


def _difference(
    document: dict[str, Any], answer: dict[str, Any], home: Any, models: list[Ensemble]
) -> list[str]:
    """What is false in an answer about two models."""
    claim, verdict, wrong = answer["claim"], answer["verdict"], []
    rows = _rows(models, document["domain"], home, [])
    lower, upper = _end(answer["lower"]), _end(answer["upper"])
    pair, about_pair = _pair(rows, answer)
    if pair is not None and not np.array_equal(pair[0], pair[1], equal_nan=True):
        wrong.append("witness: two rows")
    if claim["name"] == "SameLabels":
        differ = (rows.labels[0] != rows.labels[1]) & rows.is_allowed
        is_broken = bool(differ.any())
        wrong += [] if math.isnan(lower) and math.isnan(upper) else ["bounds of labels"]
    elif claim["name"] == "SameScores":
        delta = number(claim["delta"])
        if delta < 0.0:
            raise Meaningless("no distance")
        outputs = [score.shape[1] for score in rows.scores]
        own = [s if len(set(outputs)) == 1 else s[:, -1:] for s in rows.scores]
        one, other = (score[rows.is_allowed] for score in own)
        truth = max(largest_of(one, other), largest_of(other, one), 0.0)
        wrong += _bounds(answer, lower, upper, truth, models)
        is_broken = truth > delta
        if pair is not None:
            both = [evaluate.margins(m, pair[:1])[0].astype(np.float64) for m in models]
            both = both if len(set(outputs)) == 1 else [score[-1:] for score in both]
            gap = max(largest_of(*both), largest_of(*both[::-1]))
            is_short = verdict == "falsified" and not gap > delta
            wrong += ["witness: lower"] if lower > gap or is_short else []
    else:
        raise Meaningless("a claim about two models")
    if verdict != "unknown" and (verdict == "falsified") != is_broken:
        wrong.append(f"verdict: {verdict}")
    if verdict == "falsified" and claim["name"] == "SameLabels" and pair is not None:
        labels = [evaluate.label_indices(m, evaluate.margins(m, pair[:1]))[0] for m in models]
        wrong += [] if labels[0] != labels[1] else ["witness: it breaks nothing"]
    return wrong + about_pair
