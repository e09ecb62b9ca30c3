"""Random questions with costs and domains, rich in ties, small enough to enumerate."""

import dataclasses
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.random_ensembles import random_ensemble
from treeproof.model.ensemble import ZERO_IS_MISSING, Ensemble
from treeproof.query.domain import Domain
from treeproof.query.goals import AvoidsTarget, Goal, ScoreChange
from treeproof.query.perturbations import L0, L1, L2, Ball, Box, Cost, LInf

_CODES = (0, 1, 2, 3, 9)


@dataclass(frozen=True)
class Case:
    """A model, rows of a domain, and how they may change."""

    ensemble: Ensemble
    rows: NDArray[np.float64]
    perturbation: Ball | Box
    goal: Goal | None = None


def random_case(
    rng: np.random.Generator,
    *,
    n_rows: int = 2,
    kinds: tuple[str, ...] = (),
    is_wide: bool = False,
) -> Case:
    """A random case; the kinds of perturbations may be chosen by name.

    Wide ones also ask about targets and scores, and some of their rows break the domain, which is
    allowed.
    """
    (other,) = rng.spawn(1)  # a stream of its own, so that what else is drawn stays the same
    ensemble = random_ensemble(rng)
    while ensemble.decision.kind == "score" and (ensemble.n_outputs > 1 or not is_wide):
        ensemble = random_ensemble(rng)
    rows = _rows(rng, ensemble, n_rows)
    domain = _domain(rng, ensemble, rows)
    kind = str(rng.choice(kinds or ("L1", "L1", "L2", "L0", "Cost", "Cost", "LInf", "Box")))
    perturbation = _perturbation(rng, kind, ensemble, rows, domain)
    if domain is not None and is_wide and rng.random() < 0.2:
        broken = _broken_rows(rng, domain, rows)
        if np.all(perturbation.low <= broken) and np.all(broken <= perturbation.high):
            domain = dataclasses.replace(domain, allow_broken_rows=True)
            perturbation, rows = dataclasses.replace(perturbation, domain=domain), broken
    case = Case(ensemble, rows, perturbation, _goal(rng, ensemble) if is_wide else None)
    return _hardened(other, case) if is_wide else case


FAR, UNITS = 1.7e18, {"float64": 1024.0, "float32": 2.0**40}
"""Where numbers of the input precision lie far apart, and how far thresholds then do."""


def _hardened(rng: np.random.Generator, case: Case) -> Case:
    """The case, or one with a column where doubles lie far apart, or with an infinite value."""
    domain = case.perturbation.domain or Domain()
    taken = {f for group in (*domain.one_hot, *domain.at_most_one) for f in group}
    taken |= {*domain.integer, *domain.values, *domain.ranges, *domain.categorical}  # type: ignore[misc]
    ensemble, rows = case.ensemble, case.rows.copy()
    numbers = np.flatnonzero(~ensemble.is_categorical).tolist()
    free = [feature for feature in numbers if feature not in taken]
    way = rng.random()
    if not free or way > 0.5:
        return case
    feature = int(rng.choice(free))
    options = {name: getattr(case.perturbation, name) for name in ("low", "high")}
    if way < 0.15:
        row, end = int(rng.integers(len(rows))), float(rng.choice([-np.inf, np.inf]))
        side = np.asarray(options["low" if end < 0.0 else "high"])
        bound = side if side.ndim == 0 else side[..., feature]
        if ensemble.infinite_allowed and np.all(bound == end):
            rows[row, feature] = end
        return dataclasses.replace(case, rows=rows)
    unit, real = UNITS[ensemble.input_precision], np.dtype(ensemble.input_precision).type

    def moved(values: Any) -> Any:
        return (FAR + unit * np.asarray(values)).astype(real).astype(np.float64)

    threshold = ensemble.trees.threshold.copy()
    nodes = ensemble.trees.feature == feature
    if np.any(ensemble.trees.flags[nodes] & ZERO_IS_MISSING):
        return case
    threshold[nodes] = moved(threshold[nodes])
    rows[:, feature] = moved(rows[:, feature])
    for name, given in options.items():
        if np.ndim(given):
            options[name] = np.array(given, dtype=np.float64)
            options[name][..., feature] = moved(options[name][..., feature])
    trees = ensemble.trees._replace(threshold=threshold)
    return dataclasses.replace(
        case,
        ensemble=dataclasses.replace(ensemble, trees=trees),
        rows=rows,
        perturbation=dataclasses.replace(case.perturbation, **options),
    )


def _goal(rng: np.random.Generator, ensemble: Ensemble) -> Goal | None:
    """A target of several classes, or a change of the score; None: the label is to stay."""
    if ensemble.decision.kind == "score":
        return ScoreChange(float(rng.choice([0.0, 0.25, 0.5, 1.0])))
    if ensemble.n_classes > 2 and rng.random() < 0.4:
        return AvoidsTarget(ensemble.classes[int(rng.integers(ensemble.n_classes))])
    return None


def _broken_rows(
    rng: np.random.Generator, domain: Domain, rows: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Rows some of whose integers, listed values and groups are not of the domain."""
    broken = rows.copy()
    for feature in (*domain.integer, *domain.values):  # type: ignore[misc]
        broken[:, feature] += rng.choice([0.0, 0.25], len(rows))
    for group in (*domain.one_hot, *domain.at_most_one):
        if rng.random() < 0.5:
            broken[int(rng.integers(len(rows))), list(group)] = rng.choice([0.0, 1.0, 0.5])
    return broken


def _rows(rng: np.random.Generator, ensemble: Ensemble, n_rows: int) -> NDArray[np.float64]:
    cuts = ensemble.trees.threshold[np.isfinite(ensemble.trees.threshold)]
    pool = np.concatenate([[0.0, 0.5, 1.0, 2.0, -1.0], cuts, cuts + 0.25, rng.normal(size=3)])
    rows = rng.choice(pool, size=(n_rows, ensemble.n_features))
    codes = ensemble.is_categorical
    rows[:, codes] = rng.choice(_CODES, size=(n_rows, int(codes.sum())))
    if ensemble.input_precision == "float32":
        rows = rows.astype(np.float32).astype(np.float64)
    return rows


def _domain(
    rng: np.random.Generator, ensemble: Ensemble, rows: NDArray[np.float64]
) -> Domain | None:
    """A random domain; the rows are changed in place so that they are of it."""
    if rng.random() < 0.15:
        return None
    n_features, n_rows = ensemble.n_features, len(rows)
    is_code = ensemble.is_categorical
    numbers = rng.permutation(np.flatnonzero(~is_code)).tolist()
    one_hot, at_most_one, integer, values = [], [], [], {}
    categorical: dict[int, Any] = {}
    for share in (0.5, 0.3):
        if len(numbers) < 2 or rng.random() >= share:
            continue
        size = int(rng.integers(2, min(len(numbers), 4) + 1))
        group, numbers = numbers[:size], numbers[size:]
        exactly = bool(rng.random() < 0.6)
        (one_hot if exactly else at_most_one).append(group)
        rows[:, group] = 0.0
        for row in range(n_rows):
            if exactly or rng.random() < 0.7:
                rows[row, rng.choice(group)] = 1.0
    for feature in numbers:
        way = rng.random()
        if way < 0.35:
            integer.append(feature)
            rows[:, feature] = np.round(rows[:, feature])
        elif way < 0.5:
            allowed = np.unique(
                np.concatenate([rows[:, feature], rng.choice([-1.0, 0.0, 0.5, 0.3, 0.7], 2)])
            )
            values[feature] = allowed.tolist()
        elif way < 0.6:
            codes = [0, 1, 2]
            rows[:, feature] = rng.choice(codes, n_rows)
            categorical[feature] = codes
    for feature in np.flatnonzero(is_code).tolist():
        named = len(ensemble.categories.get(feature, ()))
        if rng.random() < 0.7 and not named:
            codes = sorted(
                {*rng.choice([0, 1, 2, 3, 5, 7], 3).tolist()} | {int(v) for v in rows[:, feature]}
            )
            categorical[feature] = codes
            if rng.random() < 0.4:
                categorical[feature] = {
                    code: rng.choice(codes, int(rng.integers(1, 3)), replace=True).tolist()
                    for code in codes[:2]
                }
    grouped = {feature for group in one_hot + at_most_one for feature in group}
    lonely = [f for f in range(n_features) if f not in grouped]
    may_miss, may_fill = [], []
    if ensemble.missing_allowed:
        may_miss = [f for f in lonely if rng.random() < 0.25]
        may_fill = [f for f in lonely if rng.random() < 0.4]
        for feature in lonely:
            if rng.random() < 0.3:
                rows[rng.integers(n_rows), feature] = np.nan
    ranges = {
        feature: (rows[:, feature].min() - rng.choice([0.0, 0.5]), rows[:, feature].max() + 0.75)
        for feature in integer
        if rng.random() < 0.15 and not np.isnan(rows[:, feature]).any()
    }
    return Domain(
        integer=integer,
        values=values,
        ranges=ranges,
        one_hot=one_hot,
        at_most_one=at_most_one,
        categorical=categorical,
        may_miss=may_miss,
        may_fill=may_fill,
    )


def random_rules(rng: np.random.Generator, case: Case, n_rules: int) -> list[str]:
    """Relations between features with few values, which the rows of a case obey."""
    domain, rows, found = case.perturbation.domain, case.rows, []
    if domain is None:
        return []
    groups = [feature for group in (*domain.one_hot, *domain.at_most_one) for feature in group]
    kept = {*domain.may_miss, *domain.may_fill}  # type: ignore[misc]
    features = [f for f in (*domain.integer, *domain.values, *groups) if f not in kept]  # type: ignore[misc]
    if len(features) < 2:
        return []
    for _ in range(n_rules):
        a, b, c = (int(f) for f in rng.choice(features, 3))
        known = np.nan_to_num(rows)
        # As tight as the rows allow, in halves, which are exact.
        apart = np.ceil(2.0 * (known[:, a] - known[:, b]).max()) / 2.0
        together = np.ceil(2.0 * (known[:, a] + known[:, b]).max()) / 2.0
        text = str(
            rng.choice(
                [
                    f"x[{a}] <= x[{b}] + {apart}",
                    f"x[{a}] + x[{b}] <= {together}",
                    f"x[{a}] <= x[{b}] + x[{c}]",
                    f"x[{a}] > 0 => x[{b}] > 0",
                    f"x[{a}] + 2 * x[{b}] >= -1",
                    f"x[{a}] >= 1 => x[{b}] <= 0",
                    f"x[{a}] >= {known[:, a].min()}",
                    f"x[{a}] <= {known[:, a].max()}",
                ]
            )
        )
        if a != b and all(obeys(text, row) for row in rows):
            found.append(text)
    return found


_NUMBER = re.compile(r"(?<!\[)\b(\d+(?:\.\d+)?(?:e[-+]?\d+)?)\b(?!\])")


def obeys(text: str, row: NDArray[np.float64]) -> bool:
    """Whether a row obeys a rule, which is Python but for the arrow; what is missing is 0.

    Numbers are doubles, and added up in fractions, since sums of doubles round.
    """
    known = np.where(np.isnan(row), 0.0, row).tolist()
    x = [Fraction(value) if np.isfinite(value) else value for value in known]
    names = {"x": x, "Fraction": Fraction}
    before, _, after = _NUMBER.sub(r"Fraction(\1)", text).partition("=>")
    holds = bool(eval(before, names))
    return holds if not after else not holds or bool(eval(after, names))


def _perturbation(
    rng: np.random.Generator,
    kind: str,
    ensemble: Ensemble,
    rows: NDArray[np.float64],
    domain: Domain | None,
) -> Ball | Box:
    n_features = ensemble.n_features
    if kind == "Box":
        low = rng.choice([-np.inf, -1.0, 0.0], (len(rows), n_features), p=[0.5, 0.3, 0.2])
        high = rng.choice([np.inf, 1.0, 2.0], (len(rows), n_features), p=[0.5, 0.3, 0.2])
        return Box(low, high, domain if domain is not None else Domain())
    options: dict[str, Any] = {"domain": domain}
    if rng.random() < 0.3:
        finite = np.where(np.isfinite(rows), rows, 0.0)
        options["low"] = np.minimum(
            finite.min(axis=0), rng.choice([-1.0, 0.0, -np.inf], n_features)
        )
        options["high"] = np.maximum(finite.max(axis=0), rng.choice([1.0, 2.0, np.inf], n_features))
    if rng.random() < 0.2:
        options["frozen"] = [int(rng.integers(n_features))]
    if rng.random() < 0.2:
        options["relative"] = True
    if kind == "Cost":
        options["up"] = rng.choice(
            [1.0, 2.0, 0.0, 0.3, np.inf], n_features, p=[0.5, 0.2, 0.1, 0.1, 0.1]
        )
        options["down"] = rng.choice(
            [1.0, 0.5, 0.0, 0.7, np.inf], n_features, p=[0.5, 0.2, 0.1, 0.1, 0.1]
        )
        options["fixed"] = rng.choice([0.0, 1.0, 0.25], n_features)
        options["table"] = _table(rng, domain)
        return Cost(**options)
    if rng.random() < 0.6:
        options["scale"] = rng.choice([1.0, 2.0, 0.5, 3.0], n_features)
    if rng.random() < 0.3:
        options["below"] = rng.choice([1.0, 0.0, 0.5], n_features)
        options["above"] = rng.choice([1.0, 0.0, 2.0], n_features, p=[0.7, 0.1, 0.2])
    if kind == "LInf":
        options["domain"] = domain if domain is not None else Domain()
    return {"L1": L1, "L2": L2, "L0": L0, "LInf": LInf}[kind](**options)


def _table(rng: np.random.Generator, domain: Domain | None) -> dict[Any, Any]:
    table: dict[Any, Any] = {}
    if domain is None:
        return table
    assert isinstance(domain.categorical, dict)
    for feature, codes in domain.categorical.items():
        if rng.random() < 0.5:
            known = sorted(codes)
            table[feature] = {
                before: {
                    after: float(rng.choice([0.5, 1.0, 3.0])) for after in known if after != before
                }
                for before in known[:2]
            }
    for group in (*domain.one_hot, *domain.at_most_one):
        if rng.random() < 0.5:
            table[group[0]] = {group[0]: {group[1]: 0.5}, group[-1]: {group[0]: 2.0}}
    return table
