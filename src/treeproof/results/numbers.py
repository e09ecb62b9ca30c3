"""Numbers as people read them: figures, shares, times, and values in the precision of their column.

Run files and JSON hold numbers with every bit; this is for tables and pages.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

_DIGITS = 4
"""Significant digits of an ordinary value of a column that has no grid of its own."""

_GRID = 2
"""Columns of up to so many decimals keep them all; values off the grid get as many more."""

_FINEST = 8
"""From so many decimals on, powers of ten are easier to read."""

_SAMPLE = 10_000
"""Values of a column that are looked at."""

_FEW = 16
"""So few are looked at one by one sooner than as an array."""

MOST_PLACES = 17
"""Decimals beyond those of a column after which a number is written with all its digits."""

_EXACT = Context(prec=400)

_CLOSE = 2.0**-23
"""Relative distance to the grid at which a value lies on it, since a float32 would."""


def number(value: float | None, digits: int = _DIGITS) -> str:
    """Write a number: a few digits but whole thousands, no trailing zeros, words for no number."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0.0:
        return "0"
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    exponent = int(power)
    if -5 < exponent < 15:
        text = f"{value:,.{max(digits - 1 - exponent, 0)}f}"
        return _typeset(_trimmed(text))
    return _typeset(f"{_trimmed(mantissa)}e{exponent}")


def exactly(value: float) -> str:
    """Write a number with every digit that tells it from other doubles, and whole thousands."""
    text = repr(float(value))
    if not math.isfinite(value) or "e" in text:
        return number(value) if not math.isfinite(value) else _typeset(text)
    whole, _, decimals = text.partition(".")
    grouped = f"{int(whole):,}" if int(whole) else whole
    return _typeset(grouped if decimals == "0" else f"{grouped}.{decimals}")


def plainly(value: float) -> str:
    """Write a number with every digit that tells it from other doubles, as programs read it."""
    return repr(float(value)).removesuffix(".0")


def digits_below(value: float, digits: int = _DIGITS) -> float:
    """A proved lower bound with so many digits, and whole thousands: never above what it is."""
    return _directed(value, digits, ROUND_FLOOR)


def digits_above(value: float, digits: int = _DIGITS) -> float:
    """A proved upper bound with so many digits, and whole thousands: never below what it is."""
    return _directed(value, digits, ROUND_CEILING)


def _directed(value: float, digits: int, rounding: str) -> float:
    if not math.isfinite(value) or value == 0.0:
        return value
    # Sound: reading a decimal is monotone, and the shortest one that reads back to this double is
    # rounded; of the double itself 0.3 would become 0.2999.
    shortest = Decimal(repr(float(value)))
    kept = max(digits, shortest.adjusted() + 1)
    return float(Context(prec=kept, rounding=rounding).create_decimal(shortest))


def decimal_within(near: float, low: float, high: float, places: int) -> Decimal | None:
    """The number of fewest decimals in [low, high), of those nearest to `near`; or None.

    It has `places` decimals or more. Sound: it is read back as a double and compared, so what is
    written lies inside, whatever rounding does.
    """
    if not abs(near) < 2.0**53:
        return None
    exact = Decimal(near)
    for digits in range(places, places + MOST_PLACES + 1):
        step = Decimal(1).scaleb(-digits)
        shown = exact.quantize(step, context=_EXACT)
        if not low <= float(shown) < high:
            shown += step if float(shown) < low else -step
        if low <= float(shown) < high:
            return shown
    return None


def counted(n: int, what: str) -> str:
    """Write how many there are of something: 1 row, 2,000 rows."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def row_name(row: int, known: Any = None) -> str:
    """Write what a row is known by: its number, and its identifier where there is one."""
    return f"{row}" if known in (None, "") else f"{row} ({known})"


def percent(share: float | None) -> str:
    """Write a share as a percentage with one decimal, to the nearest; not for what is proved."""
    return "–" if share is None or math.isnan(share) else f"{100.0 * share:.1f}\u00a0%"


def percent_down(part: int, whole: int) -> str:
    """Write the share of what is proved: rounded down, so that 100 % means every row."""
    return _tenths(part * 1000 // whole) if whole else "–"


def percent_up(part: int, whole: int) -> str:
    """Write the share of what is not excluded: rounded up, so that 0 % means no row."""
    return _tenths(-(-part * 1000 // whole)) if whole else "–"


def share_down(share: float) -> str:
    """Write the share of what is proved as a percentage, never above what it is."""
    nearest = round(share, 6)
    whole = nearest if nearest <= share else math.floor(share * 1e6) / 1e6
    return f"{100.0 * whole:.6g} %"


def _tenths(share: int) -> str:
    return f"{share // 10}.{share % 10}\u00a0%"


def duration(seconds: float) -> str:
    """Write a time in a unit that fits it."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1.0:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120.0:
        return f"{seconds:.3g} s"
    return f"{seconds / 60.0:.3g} min"


class ShownChange(NamedTuple):
    """A value before and after a change, and the difference of what is shown of them; as texts."""

    before: str
    after: str
    difference: str


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """How values of one column are written.

    `decimals` is None for columns of tiny values, which are written with powers of ten. Of a column
    that `has_grid`, such as whole numbers or cents, all values are written out; values beside its
    grid, as witnesses may have, show so.
    """

    decimals: int | None = None
    has_grid: bool = False

    def text(self, value: float) -> str:
        """Write a value."""
        return self._text(value, self._decimals_of(value))

    def places(self, near: float) -> int:
        """Decimals that a number of this column has where no more are needed."""
        if self.decimals is not None:
            return self.decimals
        return _DIGITS - 1 - (math.floor(math.log10(abs(near))) if near else 0)

    def change(self, before: float, after: float) -> ShownChange:
        """Write two values so that they look different where they are, and their difference.

        The second is written with all its digits: whoever types it in means that very number. The
        first is the row's own, and is rounded.
        """
        last = self.in_full(after)
        decimals = max(self._decimals_of(before), len(last.partition(".")[2]))
        texts = [self._text(before, decimals), last]
        while texts[0] == texts[1] and before != after and decimals < MOST_PLACES:
            decimals += 1
            texts[0] = self._text(before, decimals)
        if texts[0] == texts[1] and before != after:
            # A step so small that no decimals show it, such as LightGBM's 1e-35 beside zero.
            texts[0] = exactly(before)
        if not (math.isfinite(before) and math.isfinite(after)):
            return ShownChange(texts[0], texts[1], number(after - before))
        shown = [Decimal(text.replace(",", "").replace("−", "-")) for text in texts]
        moved = shown[1] - shown[0]
        is_tiny = "e" in texts[0] + texts[1]
        text = number(float(moved)) if is_tiny else _typeset(_trimmed(f"{moved:,f}"))
        return ShownChange(texts[0], texts[1], text if text.startswith("−") else f"+{text}")

    def in_full(self, value: float) -> str:
        """A value with every digit that it has, padded to the decimals of the column."""
        if not math.isfinite(value):
            return self._text(value, 0)
        if self.decimals is None:
            texts = (number(value, digits) for digits in range(_DIGITS, MOST_PLACES))
            return next((text for text in texts if _read(text) == value), exactly(value))
        text = self._text(value, self.decimals)
        if _read(text) == value:
            return text
        shortest = Decimal(repr(float(value)))
        return _typeset(f"{shortest:,f}") if shortest.adjusted() > -_FINEST else exactly(value)

    def _decimals_of(self, value: float) -> int:
        """Decimals that a value needs: those of its column, or a few more beside its grid."""
        if self.decimals is None:
            return _DIGITS - 1
        if not self.has_grid or not math.isfinite(value):
            return self.decimals
        # A thousandth of a step beside the grid is on it, for a reader, and so is a float32.
        near = max(1e-3 * 10.0**-self.decimals, 2.0 * _CLOSE * abs(value))
        for decimals in range(self.decimals, self.decimals + _GRID):
            if abs(value - round(value, decimals)) <= near:
                return decimals
        return self.decimals + _GRID

    def _text(self, value: float, decimals: int) -> str:
        if math.isnan(value):
            return "missing"
        if math.isinf(value):
            return number(value)
        if self.decimals is None:
            return number(value, decimals + 1)
        text = f"{value:,.{decimals}f}"
        # Beyond the decimals of the column zeros say nothing.
        extra = max(decimals - self.decimals, 0)
        kept = len(text) - min(extra, len(text) - len(text.rstrip("0")))
        text = text[:kept].rstrip(".") if extra else text
        # Minus nothing is nothing.
        return _typeset(text if text.strip("-0.,") else text.lstrip("-"))


def column_format(values: ArrayLike) -> ColumnFormat:
    """Choose how a column is written, from the values that it has."""
    column = np.asarray(values, dtype=np.float64).ravel()
    column = column[:: max(1, len(column) // _SAMPLE)]
    column = np.abs(column[np.isfinite(column)])
    if len(column) == 0:
        return ColumnFormat(decimals=_DIGITS - 1)
    positive = column[column > 0.0]
    # The mean of two numbers that are nearly the largest double would overflow.
    exponent = math.floor(np.median(np.log10(positive))) if len(positive) else 0
    enough = max(_DIGITS - 1 - exponent, 0)
    for decimals in range(max(enough, _GRID) + 1):
        if decimals <= _FINEST and _on_grid(column, decimals):
            return ColumnFormat(decimals=decimals, has_grid=True)
    return ColumnFormat(decimals=enough if enough <= _FINEST else None)


class ColumnFormats(Sequence[ColumnFormat]):
    """The format of each column of a table (n_rows, n_features), chosen when it is asked for.

    Few columns of a row change, and to look at all of them takes longer than its search.
    """

    def __init__(self, rows: NDArray[np.float64]) -> None:
        self._rows = rows
        self._known: dict[int, ColumnFormat] = {}

    def __len__(self) -> int:
        return int(self._rows.shape[1])

    @overload
    def __getitem__(self, index: int) -> ColumnFormat: ...

    @overload
    def __getitem__(self, index: slice) -> list[ColumnFormat]: ...

    def __getitem__(self, index: int | slice) -> ColumnFormat | list[ColumnFormat]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if index not in self._known:
            self._known[index] = column_format(self._rows[:, index])
        return self._known[index]


def _on_grid(column: NDArray[np.float64], decimals: int) -> bool:
    if len(column) < _FEW:
        return all(_is_on_grid(value, decimals) for value in column.tolist())
    # Larger numbers are whole, and scaling them might overflow.
    column = column[column < 2.0**53]
    beside = np.abs(column - np.round(column, decimals))
    # Never as wide as half a step, at which every value would be on the grid.
    tolerance = np.minimum(_CLOSE * column, 1e-3 * 10.0**-decimals)
    return bool(np.all(beside <= tolerance))


def _is_on_grid(value: float, decimals: int) -> bool:
    tolerance = min(_CLOSE * value, 1e-3 * 10.0**-decimals)
    return value >= 2.0**53 or abs(value - round(value, decimals)) <= tolerance


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _read(text: str) -> float:
    """The number that a text shows."""
    return float(text.replace(",", "").replace("−", "-"))


def _typeset(text: str) -> str:
    return text.replace("-", "−")
