"""The inputs that an answer about a property is about: derived from its file's words and its row.

Evidence says nothing of the domain: what is proved is proved of the one that is derived here, which
is the one that readers of the file see.
"""

import math
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.checker import schema
from treeproof.checker.claims import require
from treeproof.checker.questions import frozen_number
from treeproof.checker.witnesses import rounded_down
from treeproof.errors import CertificateRejected
from treeproof.model.ensemble import Ensemble
from treeproof.model.joined import PairModels

Floats = NDArray[np.float64]
Set = schema.LInf | schema.Box

# Now, in one thread: see the end of schema.py.
msgspec.json.Decoder(Set)


class Asked(NamedTuple):
    """Where something is asked: a domain in words, as files hold it, and the row it is around.

    `number` is that of the row, -1 without one; `values` are the row's own, missing ones None.
    """

    words: Any
    number: int = -1
    values: Any = None


class Domain(NamedTuple):
    """A box of doubles, and the row that it is around, if any.

    Some features may be missing; some take whole numbers only, or only the values that are listed.
    Of the columns of a group one is 1, or at most one.
    """

    low: Floats
    high: Floats
    missing: tuple[int, ...]
    integer: tuple[int, ...]
    values: dict[int, list[float]]
    row: Floats | None
    groups: tuple[tuple[tuple[int, ...], bool], ...] = ()

    def numbers_from(self, feature: int, least: float) -> float:
        """The smallest number that a feature takes from a number on; infinite without one."""
        least = max(least, float(self.low[feature]))
        if feature in self.values:
            least = min((v for v in self.values[feature] if v >= least), default=math.inf)
        if feature in self.integer and math.isfinite(least):
            least = float(math.ceil(least))
        return least if least <= self.high[feature] else math.inf

    def numbers_below(self, feature: int, most: float) -> float:
        """The largest number that a feature takes below a number."""
        if feature in self.values:
            return max(v for v in self.values[feature] if v < most)
        most = math.nextafter(most, -math.inf)
        return float(math.floor(most)) if feature in self.integer else most


def read_domain(models: PairModels, asked: Asked) -> Domain:
    """The inputs that are asked about, of a model or of two."""
    n = models.first.n_features
    try:
        said: Set = msgspec.convert(asked.words, Set)
        values = msgspec.convert(asked.values, list[schema.Real | None] | None)
    except msgspec.ValidationError as error:
        raise CertificateRejected(f"domain: it cannot be asked about ({error})") from error
    require(
        (values is None) == (asked.number < 0), "answer: it is about a row, or about all inputs"
    )
    types = said.domain or schema.Domain()
    known = not (types.may_fill or types.allow_broken_rows or types.rules)
    require(known, "domain: what no evidence about properties is about")
    row = None
    if values is not None:
        require(len(values) == n, "answer: one value of the row per feature")
        row = np.array([math.nan if value is None else float(value) for value in values])
    low, high = (_per_feature(side, n, asked.number) for side in (said.low, said.high))
    if isinstance(said, schema.LInf):
        require(row is not None, "domain: a ball around no row")
        if row is not None:
            low, high = _ball(models, said, row, low, high)
    listed: dict[int, list[float]] = {}
    given: list[tuple[int, Any]] = [*types.values, *types.categorical]
    for feature, numbers in given:
        is_new = feature not in listed and feature < n
        require(is_new, "domain: values of a feature that does not exist, or twice")
        listed[feature] = sorted(set(map(_listed_value, numbers)))
    for feature, _ in types.categorical:
        # Where codes are listed, bounds of numbers say nothing about them.
        low[feature], high[feature] = -math.inf, math.inf
    for feature, least, most in types.ranges:
        require(feature < n, "domain: ranges of a feature that does not exist")
        low[feature] = max(low[feature], float(least))
        high[feature] = min(high[feature], float(most))
    if row is not None:
        low[np.isnan(row)] = high[np.isnan(row)] = math.nan  # what is missing stays missing
    domain = Domain(
        low=low,
        high=high,
        missing=tuple(types.may_miss),
        integer=tuple(types.integer),
        values=listed,
        row=row,
        groups=tuple((tuple(columns), exactly) for columns, exactly in types.groups),
    )
    _check(models.joint, domain)
    return domain


def _check(ensemble: Ensemble, domain: Domain) -> None:
    """Ends and values are such that a feature can have."""
    named = {*domain.missing, *domain.integer, *domain.values}
    require(all(f < len(domain.low) for f in named), "domain: a feature does not exist")
    is_code = ensemble.is_categorical
    require(not any(is_code[f] for f in domain.integer), "domain: categories are no whole numbers")
    require(not domain.missing or ensemble.missing_allowed, "domain: nothing may be missing")
    is_there = np.ones(len(domain.low), bool) if domain.row is None else ~np.isnan(domain.row)
    has_ends = domain.low[is_there] <= domain.high[is_there]
    require(bool(has_ends.all()), "domain: a feature without ends, or without values between them")


def _listed_value(value: Any) -> float:
    is_number = isinstance(value, int | float) and math.isfinite(value)
    require(is_number, "domain: categories with transitions, or values that are no numbers")
    return float(value)


def _ball(
    models: PairModels, said: schema.LInf, home: Floats, low: Floats, high: Floats
) -> tuple[Floats, Floats]:
    """Ends of a ball around a row; its own values are always inside."""
    n = len(home)
    is_plain = isinstance(said.eps, int | float | str) and not said.relative
    require(is_plain, "domain: a ball with radii that are none for properties")
    eps = Fraction(float(said.eps))  # type: ignore[arg-type]
    scale, below, above = (
        _per_feature(side, n, -1)
        for side in (1.0 if said.scale is None else said.scale, said.below, said.above)
    )
    down, up = scale * below, scale * above
    for item in said.frozen:
        number = frozen_number(item, list(models.first.feature_names), n)
        require(number >= 0, "domain: a frozen feature that the model does not have")
        down[number] = up[number] = 0.0
    is_rate = bool((down >= 0.0).all() and (up >= 0.0).all() and eps >= 0)
    require(is_rate, "domain: radii that are no distances")
    for feature, value in enumerate(home.tolist()):
        if models.joint.is_categorical[feature]:
            low[feature], high[feature] = -math.inf, math.inf  # no distance bounds codes
        elif math.isfinite(value):
            exact = Fraction(value)
            least = exact - eps * Fraction(down[feature])
            most = exact + eps * Fraction(up[feature])
            first = -rounded_down((-least.numerator, least.denominator))
            last = rounded_down((most.numerator, most.denominator))
            low[feature] = min(max(first, low[feature]), value)
            high[feature] = max(min(last, high[feature]), value)
        elif math.isinf(value):
            low[feature] = high[feature] = value
    return low, high


def _per_feature(given: Any, n: int, row: int) -> Floats:
    """One number for each feature, of one for all, a list of them, or a list for each row."""
    if isinstance(given, list) and given and isinstance(given[0], list):
        require(0 <= row < len(given), "domain: it has no such row")
        given = given[row]
    numbers = given if isinstance(given, list) else [given] * n
    require(len(numbers) == n, "domain: one number per feature")
    return np.array([float(number) for number in numbers])
