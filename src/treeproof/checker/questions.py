"""The question of a run in numbers; one that treeproof does not ask is refused."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from treeproof.checker import schema
from treeproof.checker.claims import require
from treeproof.errors import InvalidInput
from treeproof.model import evaluate
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.model.inspection import decision_rule, plain_value

Floats = list[float]
Ball = schema.LInf | schema.L1 | schema.L2 | schema.L0 | schema.Cost


def require_asked(condition: bool, rule: str, got: Any) -> None:
    """Refuse a header unless a condition holds."""
    if not condition:
        raise InvalidInput(f"The header of the run must have {rule}. Got {str(got)[:200]}.")


def same_label(one: schema.Label, other: schema.Label) -> bool:
    """Whether two labels are equal; truth values are no numbers, and texts are neither."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def frozen_number(item: int | str, names: list[str], n: int) -> int:
    """Number of a feature that is given by name or number; -1 where the model has none such."""
    if isinstance(item, str):
        # A name may look like a number, so names come first.
        if item in names:
            return names.index(item)
        item = int(item) if item.isdecimal() and len(item) < 10 else -1
    return item if 0 <= item < n else -1


class PerRow:
    """Bounds that all rows share, or a list of them with one entry for each row."""

    def __init__(self, name: str, entries: list[Floats], *, shared: bool) -> None:
        self.name, self.entries, self.shared = name, entries, shared

    def of(self, row: int) -> Floats:
        """Bounds of a row."""
        require(self.shared or row < len(self.entries), f"record: '{self.name}' has no row {row}")
        return self.entries[0 if self.shared else row]


class Question:
    """What a run asks of a model, about every row."""

    def __init__(self, header: schema.Header, ensemble: Ensemble) -> None:
        asked, self.n = header.question, ensemble.n_features
        self.classes = [plain_value(label) for label in ensemble.classes]
        self._check_model(header.model, ensemble)
        self.asks_radius = asked.kind == "radius"
        self.own_labels = asked.labels == "the model's own"
        self.goal = asked.goal
        self.is_float64 = asked.arithmetic == "float64"
        is_named = isinstance(asked.engine.get("name"), str)  # a proof holds whoever found it
        require_asked(is_named, "an engine with a name", asked.engine)
        self.attacked = -1
        if asked.attacker_class is not None:
            self.attacked = self.class_number(asked.attacker_class)
            rule = f"an 'attacker_class' among the classes {self.classes}"
            require_asked(self.attacked >= 0, rule, repr(asked.attacker_class))
        self.is_box = isinstance(asked.perturbation, schema.Box)
        self.eps, self.has_own_eps = math.inf, False
        if isinstance(asked.perturbation, schema.Box):
            require_asked(not self.asks_radius, "an LInf where it asks for radii", "a Box")
            self.down = self.up = [math.inf] * self.n
        else:
            self._read_ball(asked.perturbation)
        self.low = self._side("low", asked.perturbation.low)
        self.high = self._side("high", asked.perturbation.high)
        _check_order(self.low, self.high)
        self.ranges = self._read_goal(ensemble)

    def _check_model(self, stated: schema.Model, ensemble: Ensemble) -> None:
        """Compare what the header says of the model, since reports show it."""
        for name, own in (
            ("n_trees", ensemble.n_trees),
            ("n_features", self.n),
            ("input_precision", ensemble.input_precision),
            ("decision", ensemble.decision.kind),
        ):
            got = getattr(stated, name)
            require_asked(got == own, f"the model's '{name}', {own!r}", repr(got))
        cut = ensemble.decision.cut if ensemble.decision.kind == "threshold" else None
        codes = np.flatnonzero(ensemble.is_categorical).tolist()
        told = None if stated.decision_cut is None else float(stated.decision_cut)
        known_names = {str(f): list(names) for f, names in ensemble.categories.items()}
        for name, fits in (
            ("categorical", stated.categorical in (None, codes)),
            ("categories", all(
                [plain_value(label) for label in known_names.get(feature, ())] == names
                for feature, names in stated.categories.items()
            )),
            ("decision_rule", stated.decision_rule in (None, decision_rule(ensemble))),
            ("decision_cut", told in (None, cut)),
            ("objective", stated.objective in ("", ensemble.provenance.objective)),
        ):  # fmt: skip
            require_asked(fits, f"the model's own '{name}'", getattr(stated, name))
        same = len(self.classes) == len(stated.classes)
        same = same and all(map(same_label, self.classes, stated.classes))
        require_asked(same, f"the model's classes {self.classes}", stated.classes)
        # A file may have lost the names that the model had.
        own_names = list(ensemble.feature_names)
        self.names = own_names or stated.feature_names
        known = not stated.feature_names or not own_names or stated.feature_names == own_names
        known = known and len(self.names) in (0, self.n)
        require_asked(known, "the model's feature names", stated.feature_names)

    def class_number(self, label: schema.Label) -> int:
        """Number of a class, or -1 where none has that label."""
        found = [k for k, known in enumerate(self.classes) if same_label(known, label)]
        return found[0] if found else -1

    def _read_ball(self, ball: Ball) -> None:
        eps = ball.budget if isinstance(ball, schema.Cost) else ball.eps
        fits = (eps is None) == self.asks_radius
        require_asked(fits, "a radius to verify, or none where it asks for it", eps)
        self.has_own_eps = isinstance(eps, schema.PerRow)
        if eps is not None and not isinstance(eps, schema.PerRow):
            self.eps = float(eps)
        require_asked(self.eps >= 0.0, "an 'eps' >= 0", self.eps)
        if isinstance(ball, schema.Cost):
            scale, self.down, self.up = ([1.0] * self.n for _ in range(3))
        else:
            scale = self.features("scale", 1.0 if ball.scale is None else ball.scale)
            below, above = self.features("below", ball.below), self.features("above", ball.above)
            self.down = [s * b for s, b in zip(scale, below, strict=True)]
            self.up = [s * a for s, a in zip(scale, above, strict=True)]
        for rate in (*scale, *self.down, *self.up):
            require_asked(0.0 <= rate < math.inf, "rates that are finite and >= 0", rate)
        self.frozen = set()
        for item in ball.frozen:
            number = frozen_number(item, self.names, self.n)
            require_asked(number >= 0, "frozen features that the model has", item)
            self.down[number] = self.up[number] = 0.0
            self.frozen.add(number)

    def features(self, name: str, value: Any) -> Floats:
        """One number for each feature, of a list of them or of one for all."""
        numbers = value if isinstance(value, list) else [value] * self.n
        plain = len(numbers) == self.n and not any(isinstance(v, list) for v in numbers)
        require_asked(plain, f"one number per feature in '{name}'", f"{len(numbers)}")
        return [float(number) for number in numbers]

    def _side(self, name: str, value: Any) -> PerRow:
        if isinstance(value, list) and value and all(isinstance(item, list) for item in value):
            return PerRow(name, [self.features(name, item) for item in value], shared=False)
        return PerRow(name, [self.features(name, value)], shared=True)

    def check_inside(self, ensemble: Ensemble, row: int, values: FloatArray, label: int) -> None:
        """Reject a row outside of bounds: sets around it would not hold it.

        What only the rounding to the model's input precision parts is inside; what does not move
        may be anything.
        """
        reach = dict(self.reach(row, values.tolist(), label))
        if self.is_box:
            return
        low, high = (
            evaluate.cast_rows(ensemble, np.array([reach[side]]))[0] for side in ("low", "high")
        )
        moves = (np.array(self.down) > 0.0) | (np.array(self.up) > 0.0)
        outside = moves & ~ensemble.is_categorical & ((values < low) | (values > high))
        for feature in np.flatnonzero(outside)[:1].tolist():
            require(False, f"row: feature {feature} lies outside of its bounds")

    def eps_of(self, row: schema.Row) -> float:
        """Radius or budget of a row: that of all, or its own where the question says so."""
        if not self.has_own_eps:
            require(row.eps is None, "record: the question has one 'eps' for all rows")
            return self.eps
        eps = math.nan if row.eps is None else float(row.eps)
        require(eps >= 0.0, f"record: there is no radius {row.eps!r} of its own")
        return eps

    def _read_goal(self, ensemble: Ensemble) -> list[PerRow]:
        """Check the goal; returns the ends of ranges of scores, where it is about these."""
        goal = self.goal
        if isinstance(goal, schema.KeepsLabel | schema.AvoidsTarget):
            require_asked(bool(self.classes), "a goal for scores", goal)
            if isinstance(goal, schema.AvoidsTarget):
                known = self.class_number(goal.target) >= 0
                require_asked(known, f"a target among {self.classes}", repr(goal.target))
            return []
        require_asked(ensemble.n_outputs == 1, "a goal for several outputs", goal)
        if isinstance(goal, schema.ScoreChange):
            require_asked(float(goal.delta) >= 0.0, "a 'delta' >= 0", goal.delta)
            return []
        ends = []
        for name, side in (("low", goal.low), ("high", goal.high)):
            values = side if isinstance(side, list) else [side]
            entries = [[float(value)] for value in values]
            ends.append(PerRow(name, entries, shared=not isinstance(side, list)))
        _check_order(*ends)
        return ends

    def check_row_number(self, row: int) -> None:
        """Reject a row for which the question has no bounds."""
        for side in (self.low, self.high, *self.ranges):
            side.of(row)

    def reach(self, row: int, values: Iterable[float], label: int) -> Iterable[tuple[str, Floats]]:
        """Rates and bounds of a row, by the names that a claim has for them."""
        low, high = self.low.of(row), self.high.of(row)
        if self.attacked not in (-1, label):
            # Only rows of one class are attacked: all others stay as they are.
            values = list(values)
            low = [-math.inf if math.isnan(x) else x for x in values]
            high = [math.inf if math.isnan(x) else x for x in values]
        return ("down", self.down), ("up", self.up), ("low", low), ("high", high)


def _check_order(low: PerRow, high: PerRow) -> None:
    n_rows = max(len(low.entries), len(high.entries))
    fits = all(side.shared or len(side.entries) == n_rows for side in (low, high))
    require_asked(fits, "as many rows in 'low' as in 'high'", n_rows)
    for row in range(n_rows):
        for least, most in zip(low.of(row), high.of(row), strict=True):
            require_asked(least <= most, "a 'low' that does not exceed 'high'", (least, most))
