"""`Tally`: a summary of answers that come block by block and are not kept."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

EXACT_UP_TO = 1_000_000
"""Medians of more numbers than this are taken from bins, to a relative 0.1 %."""

_BIN_SHIFT = 42
"""Bits of a double below its first ten binary places: what numbers of one bin may differ in."""


class Answers(Protocol):
    """The columns that a tally looks at; `Results` has them."""

    verdict: NDArray[np.str_]
    lower: FloatArray
    upper: FloatArray
    exact: NDArray[np.bool_]
    attained: NDArray[np.bool_]
    seconds: FloatArray
    reason: NDArray[np.str_]


def proved_within(answers: Answers, eps: float, *, asks_radius: bool) -> NDArray[np.bool_]:
    """Which rows are proved to keep their claim in the closed ball of a radius."""
    closed = answers.exact & ~answers.attained if asks_radius else answers.verdict == "verified"
    return np.asarray((answers.lower > eps) | (closed & (answers.lower == eps)))


def attacked_within(answers: Answers, eps: float) -> NDArray[np.bool_]:
    """Which rows are known to be broken in the closed ball of a radius."""
    # A violation is known at `upper` itself only where it is attained, else just beyond it.
    return np.asarray((answers.upper < eps) | ((answers.upper == eps) & answers.attained))


@dataclass(slots=True)
class Spread:
    """Mean, median and extremes of numbers that come in blocks."""

    count: int = 0
    total: float = 0.0
    least: float = np.inf
    largest: float = -np.inf
    _values: list[FloatArray] = field(default_factory=list)
    _bins: Counter[int] = field(default_factory=Counter)

    def add(self, values: FloatArray) -> None:
        """Take in a block; NaN is not allowed."""
        if len(values) == 0:
            return
        self.count += len(values)
        self.total += float(np.sum(values))
        self.least = min(self.least, float(np.min(values)))
        self.largest = max(self.largest, float(np.max(values)))
        self._values.append(np.array(values, dtype=np.float64))
        if self.count > EXACT_UP_TO:
            for block in self._values:
                # Doubles >= 0 are in the order of their bits.
                bins, counts = np.unique(
                    np.abs(block).view(np.int64) >> _BIN_SHIFT, return_counts=True
                )
                self._bins.update(dict(zip(bins.tolist(), counts.tolist(), strict=True)))
            self._values.clear()

    @property
    def mean(self) -> float:
        """Arithmetic mean."""
        return self.total / self.count

    @property
    def median(self) -> float:
        """The median; beyond `EXACT_UP_TO` numbers, the middle of its bin."""
        if not self._bins:
            return float(np.median(np.concatenate(self._values)))
        seen = 0
        for key in sorted(self._bins):
            seen += self._bins[key]
            if 2 * seen >= self.count:
                break
        bits = np.array([key << _BIN_SHIFT, (key + 1) << _BIN_SHIFT], dtype=np.int64)
        low, high = bits.view(np.float64).tolist()
        return float(low if low == np.inf else 0.5 * (low + high))


@dataclass(slots=True)
class Tally:
    """Counts and averages of answers.

    Attributes
    ----------
    asks_radius : bool
        Whether the minimal perturbation was asked for.
    radii : sequence of float
        Radii at which proved and attacked rows are counted.
    n_rows, n_exact : int
        Rows in all, and settled ones.
    verdicts, reasons : Counter
        Rows by verdict, and undecided ones by reason.
    lower, upper, seconds : Spread
        Of the bounds (finite ones, for `upper`) and of the time per row.
    proved, attacked : dict of float to int
        Rows at each of the radii.
    """

    asks_radius: bool
    radii: Sequence[float] = ()
    n_rows: int = 0
    n_exact: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    lower: Spread = field(default_factory=Spread)
    upper: Spread = field(default_factory=Spread)
    seconds: Spread = field(default_factory=Spread)
    proved: dict[float, int] = field(default_factory=dict)
    attacked: dict[float, int] = field(default_factory=dict)

    def add(self, answers: Answers) -> None:
        """Take in a block of answers."""
        self.n_rows += len(answers.lower)
        self.n_exact += int(answers.exact.sum())
        self.verdicts.update(answers.verdict.tolist())
        self.reasons.update(answers.reason[answers.reason != ""].tolist())
        if self.asks_radius:
            # Sound: where no bound is known, nothing is proved.
            self.lower.add(np.where(np.isnan(answers.lower), 0.0, answers.lower))
            self.upper.add(answers.upper[np.isfinite(answers.upper)])
        self.seconds.add(answers.seconds)
        for eps in self.radii:
            proved = proved_within(answers, eps, asks_radius=self.asks_radius)
            self.proved[eps] = self.proved.get(eps, 0) + int(proved.sum())
            attacked = attacked_within(answers, eps)
            self.attacked[eps] = self.attacked.get(eps, 0) + int(attacked.sum())

    def share_proved(self, eps: float) -> float:
        """Share of the rows that is proved to keep its claim at one of the radii."""
        return self.proved[eps] / self.n_rows

    def lines(self) -> list[str]:
        """Say in a few lines what was found."""
        if self.asks_radius:
            lines = [
                f"{self.n_rows} rows: radius exact on {self.n_exact}, broken as they stand"
                f" {self.verdicts['falsified']}, bounds apart {self.verdicts['unknown']}",
                f"lower bound: {_said(self.lower)}",
            ]
            if self.upper.count:
                lines.append(f"upper bound: {_said(self.upper)} ({self.upper.count} rows)")
        else:
            lines = [
                f"{self.n_rows} rows: {self.verdicts['verified']} verified,"
                f" {self.verdicts['falsified']} falsified, {self.verdicts['unknown']} unknown"
            ]
        if self.reasons:
            lines.append("unknown: " + ", ".join(f"{why} ({k})" for why, k in self.reasons.items()))
        lines.append(
            f"time per row: median {_time(self.seconds.median)}, mean {_time(self.seconds.mean)},"
            f" longest {_time(self.seconds.largest)}"
        )
        return lines


def _said(spread: Spread) -> str:
    return f"mean {spread.mean:.6g}, median {spread.median:.6g}, least {spread.least:.6g}"


def _time(seconds: Any) -> str:
    return f"{float(seconds) * 1e3:.3g} ms" if seconds < 1.0 else f"{float(seconds):.3g} s"
