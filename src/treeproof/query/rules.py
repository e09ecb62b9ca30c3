"""Relations between features, such as ``a <= b + c`` and ``a > 0 => b > 0``, read and decided."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.model.numbers import number_of
from treeproof.query.names import feature_number

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)|(?P<quoted>'[^']+'|\"[^\"]+\")"
    r"|x\[(?P<place>\d+)\]|(?P<name>[^\W\d][\w.]*)|(?P<sign><=|>=|==|=>|[<>+*-]))"
)
_OPPOSITE = {"<=": ">", "<": ">=", ">=": "<", ">": "<="}


@dataclass(frozen=True, slots=True)
class Comparison:
    """``sum(weight * feature) + constant <= 0``, or ``< 0`` where it is strict; exactly.

    Numbers that were written are doubles; sums and products of them are not rounded.
    """

    weights: tuple[tuple[int, Fraction], ...]  # by feature, none of them 0
    constant: Fraction
    is_strict: bool

    def value(self, row: Sequence[float] | FloatArray) -> Fraction:
        """The left side at a row without missing values."""
        return sum(
            (weight * Fraction(float(row[feature])) for feature, weight in self.weights),
            self.constant,
        )

    def holds(self, row: Sequence[float] | FloatArray) -> bool:
        """Whether it holds at a row without missing values."""
        value = self.value(row)
        return value < 0 or (value == 0 and not self.is_strict)


@dataclass(frozen=True, slots=True)
class Rule:
    """A relation between features: at least one of some comparisons holds."""

    text: str
    either: tuple[Comparison, ...]
    features: tuple[int, ...]  # that it names, also where their weights add up to nothing

    def holds(self, row: Sequence[float] | FloatArray) -> bool:
        """Whether a row obeys it; nothing is said of rows that miss one of its features."""
        if any(np.isnan(row[feature]) for feature in self.features):
            return True
        return any(part.holds(row) for part in self.either)

    def holds_between(self, row: FloatArray, other: FloatArray) -> bool:
        """Whether one comparison holds at both rows, and so at all rows between them."""
        if np.array_equal(row, other, equal_nan=True) or np.isnan(row[list(self.features)]).any():
            return self.holds(row)
        return any(part.holds(row) and part.holds(other) for part in self.either)


def refuse_broken_rules(
    rules: Sequence[Rule], rows: FloatArray, numbers: NDArray[np.int64] | None = None
) -> None:
    """Refuse rows that break a rule themselves, or are infinite where it looks.

    `numbers` are those of the rows in their data.
    """
    for rule in rules:
        for number, row in zip(range(len(rows)) if numbers is None else numbers, rows, strict=True):
            own = [float(row[feature]) for feature in rule.features]
            if np.isinf(own).any():
                raise InvalidInput(
                    f"Features that the rule {rule.text!r} is about must be finite. Got {own} in"
                    f" row {number}; leave it out."
                )
            if not rule.holds(row):
                raise InvalidInput(
                    f"Row {number} breaks its own domain: the rule {rule.text!r} must hold."
                    f" Got {own}. Correct the row or the rule, or leave the row out."
                )


def read_rules(texts: Any, ensemble: Ensemble) -> tuple[Rule, ...]:
    """Read relations between features of a model, or refuse them."""
    if isinstance(texts, str):
        texts = [texts]
    found: list[Rule] = []
    if not isinstance(texts, Sequence):
        raise InvalidInput(f"'rules' of Domain must be texts. Got {texts!r}.")
    for text in texts:
        if not isinstance(text, str):
            raise InvalidInput(f"'rules' of Domain must be texts. Got {text!r}.")
    for text in dict.fromkeys(texts):
        found += _Reader(text, ensemble).rules()
    return tuple(found)


class _Reader:
    """Reads one relation from left to right."""

    def __init__(self, text: str, ensemble: Ensemble) -> None:
        self.text, self.ensemble = text, ensemble
        self.tokens = list(self._tokens())
        self.place = 0

    def rules(self) -> Iterator[Rule]:
        """One rule, or two for an equation."""
        first, sign, constant = self._comparison()
        if self._peek() == "=>":
            self.place += 1
            then, then_sign, then_constant = self._comparison()
            self._end()
            if "==" in (sign, then_sign):
                raise self._error("'==' has no place in an implication")
            unless = _written(first, _OPPOSITE[sign], constant)
            yield self._rule(unless, _written(then, then_sign, then_constant))
            return
        self._end()
        for each in ("<=", ">=") if sign == "==" else (sign,):
            yield self._rule(_written(first, each, constant))

    def _rule(self, *either: Comparison) -> Rule:
        named = {value for kind, value in self.tokens if kind == "feature"}
        return Rule(self.text, either, tuple(sorted(named)))

    def _tokens(self) -> Iterator[tuple[str, Any]]:
        place = 0
        while self.text[place:].strip():
            match = _TOKEN.match(self.text, place)
            if match is None:
                raise self._error(f"'{self.text[place:].strip()}' cannot be read")
            place = match.end()
            kind = match.lastgroup or ""
            value = match[kind]
            if kind in ("name", "quoted", "place"):
                feature = int(value) if kind == "place" else value.strip("'\"")
                names = self.ensemble.feature_names
                yield "feature", feature_number(feature, self.ensemble.n_features, names)
            else:
                yield kind, value

    def _comparison(self) -> tuple[dict[int, Fraction], str, Fraction]:
        left, left_constant = self._sum()
        sign = self._peek()
        if sign not in (*_OPPOSITE, "=="):
            raise self._error("a comparison (<=, <, >=, > or ==) is missing")
        self.place += 1
        right, right_constant = self._sum()
        for feature, weight in right.items():
            left[feature] = left.get(feature, Fraction(0)) - weight
        weights = {feature: weight for feature, weight in left.items() if weight}
        if not weights:
            raise self._error("a comparison is about no feature")
        return weights, sign, left_constant - right_constant

    def _sum(self) -> tuple[dict[int, Fraction], Fraction]:
        weights: dict[int, Fraction] = {}
        constant, sign = Fraction(0), 1
        while True:
            while self._peek() in ("+", "-"):
                sign = -sign if self._peek() == "-" else sign
                self.place += 1
            weight, feature = self._term()
            if feature is None:
                constant += sign * weight
            else:
                weights[feature] = weights.get(feature, Fraction(0)) + sign * weight
            if self._peek() not in ("+", "-"):
                return weights, constant
            sign = 1

    def _term(self) -> tuple[Fraction, int | None]:
        weight = Fraction(1)
        feature: int | None = None
        while True:
            kind: str = ""
            value: Any = None
            if self.place < len(self.tokens):
                kind, value = self.tokens[self.place]
            if kind == "number":
                if not math.isfinite(number_of(value)):
                    raise self._error(f"{value} is too large a number")
                weight *= Fraction(number_of(value))
            elif kind == "feature" and feature is None:
                feature = value
            else:
                raise self._error("a number or one feature is missing where products are written")
            self.place += 1
            if self._peek() != "*":
                return weight, feature
            self.place += 1

    def _peek(self) -> Any:
        return self.tokens[self.place][1] if self.place < len(self.tokens) else None

    def _end(self) -> None:
        if self.place < len(self.tokens):
            raise self._error("it goes on after its end")

    def _error(self, what: str) -> InvalidInput:
        return InvalidInput(
            "A rule of a Domain must be like 'a <= b + 2 * c' or 'a > 0 => b > 0'."
            f" Got {self.text!r}: {what}."
        )


def _written(weights: Mapping[int, Fraction], sign: str, constant: Fraction) -> Comparison:
    """A comparison of a sum with 0, as one that something is at most 0."""
    side = 1 if sign in ("<=", "<") else -1
    return Comparison(
        tuple((feature, side * weight) for feature, weight in sorted(weights.items())),
        side * constant,
        sign in ("<", ">"),
    )
