"""Rules between features: read from their words, and proofs within them.

A proof within rules is a tree over boxes of values: nodes split a feature, or take the comparisons
of a rule one by one; leaves hold a proof without rules for a box that holds all that is left. What
no row within rules can have is cut off here, in fractions; nothing that evidence says of it is
taken over.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from treeproof.checker.claims import Claim, Way, require
from treeproof.checker.proofs import NODES_PER_BYTE, Reader
from treeproof.checker.questions import require_asked
from treeproof.model.numbers import number_of

Number = Fraction | float
"""A fraction, or an infinite float."""
Box = dict[int, tuple[Number, Number]]
"""By feature that rules are about, its least and its largest value."""

ROUNDS = 20
"""How often a box is cut by all rules, at most."""
LONGEST = 1000
"""Digits of a number in a rule."""
NODES_PER_LEAF = 8
"""For how many nodes a leaf counts, since its proof is prepared anew."""

_WORD = re.compile(
    r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|'([^']+)'|\"([^\"]+)\"|x\[(\d+)\]"
    r"|([^\W\d][\w.]*)|(<=|>=|==|=>|[<>+*-]))"
)


class Comparison(NamedTuple):
    """A sum of weights times features, and a constant, that is at most 0, or below it."""

    weights: tuple[tuple[int, Fraction], ...]
    constant: Fraction
    is_strict: bool

    def holds(self, row: Sequence[Number]) -> bool:
        """Whether it holds at a row of numbers."""
        total = sum((w * Fraction(row[f]) for f, w in self.weights), self.constant)
        return total < 0 or (total == 0 and not self.is_strict)

    def least(self, box: Box, but: int = -1) -> Number:
        """The least value of the sum in a box, without one of the features."""
        total: Number = self.constant
        for feature, weight in self.weights:
            if feature != but:
                end = box[feature][0 if weight > 0 else 1]
                if isinstance(end, float):
                    return -math.inf
                total += weight * end
        return total

    def is_possible(self, box: Box) -> bool:
        """Whether it holds somewhere in a box."""
        least = self.least(box)
        return least < 0 or (least == 0 and not self.is_strict)


class Rule(NamedTuple):
    """One of some comparisons holds at rows that miss none of its features."""

    either: tuple[Comparison, ...]
    features: frozenset[int]

    def is_about(self, row: Sequence[float]) -> bool:
        """Whether a row has all features of it."""
        return not any(math.isnan(row[feature]) for feature in self.features)

    def holds_between(self, row: Sequence[float], other: Sequence[float]) -> bool:
        """Whether one of its comparisons holds at two rows, and so at all rows between them."""
        return any(part.holds(row) and part.holds(other) for part in self.either)


def read_rules(texts: list[str], names: list[str], n: int) -> list[Rule]:
    """The rules of a question, one after another; an equation is two."""
    return [rule for text in dict.fromkeys(texts) for rule in _read(text, names, n)]


def _read(text: str, names: list[str], n: int) -> list[Rule]:
    words: list[tuple[str, Any]] = []
    at = 0
    while text[at:].strip():
        match = _WORD.match(text, at)
        require_asked(match is not None, "rules that can be read", text)
        if match is None:
            break
        at = match.end()
        number, single, double, place, name, sign = match.groups()
        if number is not None:
            fits = len(number) < LONGEST and math.isfinite(float(number))
            require_asked(fits, "rules with numbers that can be read", number)
            words.append(("number", Fraction(number_of(number))))
        elif sign is not None:
            words.append((sign, None))
        else:
            known = [re.sub(r"\s", "_", own) for own in names]
            named = re.sub(r"\s", "_", single or double or name or "")
            if place is not None:
                feature = int(place) if len(place) < 10 else -1
            else:
                feature = known.index(named) if named in known else -1
            require_asked(0 <= feature < n, "rules about features of the model", text)
            words.append(("feature", feature))
    features = frozenset(value for kind, value in words if kind == "feature")
    sides: list[list[tuple[str, Any]]] = [[]]
    for word in words:
        if word[0] == "=>":
            sides.append([])
        else:
            sides[-1].append(word)
    found = [_comparison(side, text) for side in sides]
    if len(found) == 1:
        (sums, sign) = found[0]
        signs = ("<=", ">=") if sign == "==" else (sign,)
        return [Rule((_at_most(sums, each),), features) for each in signs]
    fits = len(found) == 2 and "==" not in (found[0][1], found[1][1])
    require_asked(fits, "rules with one implication", text)
    opposite = {"<=": ">", "<": ">=", ">=": "<", ">": "<="}
    (sums, sign), (then, then_sign) = found
    return [Rule((_at_most(sums, opposite[sign]), _at_most(then, then_sign)), features)]


def _comparison(words: list[tuple[str, Any]], text: str) -> tuple[dict[int, Fraction], str]:
    """What stands left minus what stands right, by feature, constants at -1; and the sign."""
    signs = [place for place, word in enumerate(words) if word[0] in ("<=", "<", ">=", ">", "==")]
    require_asked(len(signs) == 1, "rules that compare two sums", text)
    sums: dict[int, Fraction] = {-1: Fraction(0)}
    for side, part in ((1, words[: signs[0]]), (-1, words[signs[0] + 1 :])):
        factor, feature, is_begun = Fraction(side), -1, False
        for place, (kind, value) in enumerate(part):
            after_product = place > 0 and part[place - 1][0] == "*"
            if kind in ("number", "feature"):
                fits = (after_product or not is_begun) and (kind == "number" or feature < 0)
                require_asked(fits, "rules of sums of numbers times one feature", text)
                factor *= value if kind == "number" else 1
                feature = value if kind == "feature" else feature
                is_begun = True
            elif kind == "*":
                require_asked(is_begun and not after_product, "rules of products", text)
            else:
                require_asked(not after_product, "rules of products", text)
                if is_begun:
                    sums[feature] = sums.get(feature, Fraction(0)) + factor
                    factor, feature, is_begun = Fraction(side), -1, False
                factor = -factor if kind == "-" else factor
        fits = is_begun and part[-1][0] != "*"
        require_asked(fits, "rules that compare two sums", text)
        sums[feature] = sums.get(feature, Fraction(0)) + factor
    is_about = any(weight for feature, weight in sums.items() if feature >= 0)
    require_asked(is_about, "rules about features", text)
    return sums, words[signs[0]][0]


def _at_most(sums: dict[int, Fraction], sign: str) -> Comparison:
    side = 1 if sign in ("<=", "<") else -1
    weights = sorted((f, side * weight) for f, weight in sums.items() if f >= 0 and weight)
    return Comparison(tuple(weights), side * sums[-1], sign in ("<", ">"))


class Values(NamedTuple):
    """The values that a feature may have: listed ones, all whole numbers, or all numbers."""

    listed: list[float] | None  # in order, the row's own among them; None: all numbers
    has_whole: bool = False

    def cut(self, ends: tuple[Number, Number]) -> tuple[Number, Number]:
        """The least and the largest value between two ends."""
        if self.listed is None:
            return ends
        least: Number = math.inf
        most: Number = -math.inf
        inside = self.listed[bisect_left(self.listed, ends[0]) : bisect_right(self.listed, ends[1])]
        if inside:
            least, most = Fraction(inside[0]), Fraction(inside[-1])
        if self.has_whole:
            whole = [
                end if isinstance(end, float) else Fraction(rounded(end))
                for end, rounded in zip(ends, (math.ceil, math.floor), strict=True)
            ]
            if whole[0] <= whole[1]:
                least, most = min(least, whole[0]), max(most, whole[1])
        return least, most

    def beyond(self, end: Fraction, *, up: bool) -> Number:
        """The first value above a number, or below it; the number itself where all are values."""
        if self.listed is None:
            return end
        sign = 1 if up else -1
        found = [Fraction(value) for value in self.listed if sign * (Fraction(value) - end) > 0]
        if self.has_whole:
            found.append(Fraction(math.floor(end) + 1 if up else math.ceil(end) - 1))
        return (min(found) if up else max(found)) if found else sign * math.inf


class RuledProof:
    """Follows the proof of one claim about costs within rules.

    Bounds are those of the row: lows and highs by feature; None where it must not change.
    """

    def __init__(self, tariff: Any, claim: Claim, bounds: Any) -> None:
        self.tariff, self.claim, self.bounds = tariff, claim, bounds
        self.row: list[float] = claim.row.tolist()
        # Sound: features of rules neither go missing nor are filled in.
        self.rules = [rule if rule.is_about(self.row) else None for rule in tariff.rules]
        about = [rule for rule in self.rules if rule is not None]
        self.values = {f: self._values(f) for rule in about for f in rule.features}

    def _values(self, feature: int) -> Values:
        tariff, own = self.tariff, self.row[feature]
        if tariff.is_group_column(feature):
            return Values(sorted({0.0, 1.0, own}))
        if feature in tariff.values:
            return Values(sorted({*tariff.values[feature], own}))
        return Values([own], has_whole=True) if feature in tariff.integer else Values(None)

    def _whole(self) -> Box:
        """All values of the features of rules; a row's own is allowed, whatever the bounds say."""
        found: Box = {}
        for feature, values in self.values.items():
            own = Fraction(self.row[feature])
            if self.bounds is None:
                found[feature] = own, own
                continue
            ends = [_number(side[feature]) for side in self.bounds[:2]]
            least, most = values.cut((ends[0], ends[1]))
            if not self.tariff.is_box:
                least, most = min(least, own), max(most, own)
            found[feature] = least, most
        return found

    def cut(self, box: Box, chosen: tuple[Comparison, ...]) -> Box | None:
        """The box without what no row within rules can have; None where nothing is left.

        Sound: where only one comparison of a rule is possible, it holds; and a comparison bounds
        each of its features by what all others can have at best.
        """
        box = dict(box)
        if any(least > most for least, most in box.values()):
            return None
        for _ in range(ROUNDS):
            before = dict(box)
            certain = list(chosen)
            for rule in self.rules:
                possible = [] if rule is None else [c for c in rule.either if c.is_possible(box)]
                if rule is not None and not possible:
                    return None
                certain += possible if len(possible) == 1 else []
            for comparison in certain:
                if not comparison.is_possible(box) or not self._cut_by(comparison, box):
                    return None
            if box == before:
                break
        return box

    def _cut_by(self, comparison: Comparison, box: Box) -> bool:
        """Cut a box by a comparison that holds; False where nothing is left."""
        whole = dict(box)
        for feature, weight in comparison.weights:
            rest = comparison.least(whole, but=feature)
            if isinstance(rest, float):
                continue
            side: Number = -rest / weight
            values, (least, most) = self.values[feature], box[feature]
            if comparison.is_strict and values.listed is not None:
                side = values.beyond(-rest / weight, up=weight < 0)
            ends = (least, min(most, side)) if weight > 0 else (max(least, side), most)
            box[feature] = values.cut(ends)
            if box[feature][0] > box[feature][1]:
                return False
        return True

    def follow(self, prove: Any, ways: list[Way]) -> None:
        """Follow the tree; `prove` follows proofs of leaves, with nodes that may still be read."""
        claim = self.claim
        reader = Reader(claim.proof, NODES_PER_BYTE * claim.n_packed + len(ways))
        pending: list[tuple[Box | None, tuple[Comparison, ...]]] = [
            (self.cut(self._whole(), ()), ())
        ]
        while pending:
            box, chosen = pending.pop()
            place = f"box at byte {reader.at}"
            letter = reader.letter()
            if letter == "N":
                require(box is None, f"{place}: rows within rules are left")
            elif letter == "U":
                require(box is None or self._is_dear(box), f"{place}: a row is within the limit")
            elif letter == "H":
                pending += self._halves(reader, box, chosen, place)
            elif letter == "C":
                pending += self._choices(reader, box, chosen, place)
            else:
                require(letter == "L", f"{place}: unknown node {letter!r}")
                reader.most_nodes -= NODES_PER_LEAF
                bounds, kept, proof = self._leaf(reader, box, place)
                if box is not None:
                    reader.most_nodes = prove(kept, proof, bounds, reader.most_nodes)
        require(reader.at == len(claim.proof), f"byte {reader.at}: the proof goes on")

    def _halves(
        self, reader: Reader, box: Box | None, chosen: tuple[Comparison, ...], place: str
    ) -> list[tuple[Box | None, tuple[Comparison, ...]]]:
        feature, below, above = reader.take("idd")
        if box is None:
            return [(None, ()), (None, ())]
        require(feature in box, f"{place}: feature {feature} is in no rule")
        require(math.isfinite(below) and math.isfinite(above), f"{place}: no such values")
        values, (least, most) = self.values[feature], box[feature]
        # Sound: no value of the feature lies between the parts.
        fits = above <= values.beyond(Fraction(below), up=True)
        require(fits, f"{place}: values from {below!r} to {above!r} are left out")
        parts = (least, min(most, Fraction(below))), (max(least, Fraction(above)), most)
        first, second = ({**box, feature: values.cut(part)} for part in parts)
        return [(self.cut(second, chosen), chosen), (self.cut(first, chosen), chosen)]

    def _choices(
        self, reader: Reader, box: Box | None, chosen: tuple[Comparison, ...], place: str
    ) -> list[tuple[Box | None, tuple[Comparison, ...]]]:
        (number,) = reader.take("I")
        require(number < len(self.rules), f"{place}: no rule {number}")
        rule = self.rules[number]
        require(rule is not None, f"{place}: rule {number} says nothing of this row")
        found: list[tuple[Box | None, tuple[Comparison, ...]]] = []
        for comparison in reversed(rule.either if rule is not None else ()):
            more = (*chosen, comparison)
            found.append((None if box is None else self.cut(box, more), more))
        return found

    def _leaf(self, reader: Reader, box: Box | None, place: str) -> tuple[Any, bytes, bytes]:
        """The box of a leaf as bounds, and its proof; the box must hold all that is left."""
        (count,) = reader.take("I")
        ends: dict[int, tuple[float, float]] = {}
        for _ in range(count):
            feature, low, high = reader.take("idd")
            require(feature not in ends, f"{place}: feature {feature} twice")
            ends[feature] = low, high
        sizes = reader.take("II")
        pieces = []
        for size in sizes:
            at = reader.at
            reader.skip(size)
            pieces.append(reader.data[at : at + size])
        if box is not None:
            require(ends.keys() <= box.keys(), f"{place}: a feature that is in no rule")
            for feature, (least, most) in ends.items():
                inside = least <= box[feature][0] and box[feature][1] <= most
                require(inside, f"{place}: values of feature {feature} are left out")
        return self._within(ends), pieces[0], pieces[1]

    def _within(self, ends: dict[int, tuple[Number, Number]] | Any) -> Any:
        """Bounds of the row within a box, and the features whose own value is not in it."""
        if self.bounds is None:
            return None
        low, high = (list(side) for side in self.bounds[:2])
        leaves = set()
        for feature, (least, most) in ends.items():
            low[feature], high[feature] = max(low[feature], least), min(high[feature], most)
            if not least <= self.row[feature] <= most:
                leaves.add(feature)
        return low, high, frozenset(leaves)

    def _is_dear(self, box: Box) -> bool:
        """Whether every row of a box costs more than the claim is about, or is not allowed."""
        tariff, claim = self.tariff, self.claim
        least = tariff.least(self.row, self._within(box))
        if least is None:
            return True
        if math.isinf(claim.radius) or tariff.is_box:
            return False
        limit = Fraction(claim.radius) ** tariff.power
        return bool(least > limit or (least == limit and claim.kind == "open"))


def _number(value: float) -> Number:
    return value if math.isinf(value) else Fraction(value)
