"""`RunSummary`: counts and averages of answers that come block by block and are not kept."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import listed
from treeproof.results.curves import affordable, attacked_rows, count_broken, count_certified
from treeproof.results.numbers import counted, digits_above, digits_below, plainly

if TYPE_CHECKING:
    from treeproof.results.results import Results

FloatArray = NDArray[np.float64]

EXACT_UP_TO = 1_000_000
"""Medians of more numbers than this are taken from bins, to a relative 0.1 %."""

_DIGITS = 6

_ENOUGH = 20
"""Rows from which a column without any fraction is taken to hold whole numbers."""

_NAMED = 4
"""So many columns are named in a sentence."""

_BIN_SHIFT = 42
"""Bits of a double below its first ten binary places: what numbers of one bin may differ in."""


@dataclass(slots=True)
class RunningStats:
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
        """Arithmetic mean; NaN of nothing."""
        return self.total / self.count if self.count else float("nan")

    @property
    def median(self) -> float:
        """The median; beyond `EXACT_UP_TO` numbers, the middle of its bin; NaN of nothing."""
        if not self.count:
            return float("nan")
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
class WholeColumns:
    """Which columns hold whole numbers in every row, and fractions in some witness."""

    names: list[str] = field(default_factory=list)
    n_rows: int = 0
    _is_whole: NDArray[np.bool_] | None = None
    _has_fraction: NDArray[np.bool_] | None = None

    def add(self, results: "Results") -> None:
        """Take in a block of answers."""
        if results.values is None:
            return
        whole: NDArray[np.bool_] = np.asarray(
            (np.floor(results.values) == results.values) | np.isnan(results.values)
        )
        witness = results.witness
        fraction = np.isfinite(witness) & (np.floor(witness) != witness)
        if self._is_whole is None or self._has_fraction is None:
            model = results.header.get("model", {})
            names = model.get("feature_names") or range(whole.shape[1])
            self.names = [str(name) for name in names]
            self._is_whole = np.ones(whole.shape[1], dtype=bool)
            self._has_fraction = np.zeros(whole.shape[1], dtype=bool)
        self._is_whole &= whole.all(axis=0)
        self._has_fraction |= fraction.any(axis=0)
        self.n_rows += len(results)

    def line(self) -> str:
        """Say it, and what keeps them whole; nothing where there are too few rows to tell."""
        if self.n_rows < _ENOUGH or self._is_whole is None or self._has_fraction is None:
            return ""
        found = np.flatnonzero(self._is_whole & self._has_fraction).tolist()
        if not found:
            return ""
        named = [self.names[feature] for feature in found[:_NAMED]]
        more = [f"{len(found) - _NAMED:,} more"] if len(found) > _NAMED else []
        return (
            f"whole numbers in the rows, fractions in the answers: {listed(named + more)}; a Domain"
            " keeps them whole (Domain.from_frame guesses one)"
        )


@dataclass(slots=True)
class RunSummary:
    """Counts and averages of answers.

    Of the `n_rows` rows only those that are attacked count in all else: by verdict, by the reason
    why they are undecided, and `proved` and `broken` at each of `radii`; `upper` is over the finite
    bounds, and `n_never` rows are broken by nothing that is allowed.
    """

    asks_radius: bool
    radii: Sequence[float] = ()
    n_rows: int = 0
    n_attacked: int = 0
    n_exact: int = 0
    n_never: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    lower: RunningStats = field(default_factory=RunningStats)
    upper: RunningStats = field(default_factory=RunningStats)
    seconds: RunningStats = field(default_factory=RunningStats)
    proved: dict[float, int] = field(default_factory=dict)
    broken: dict[float, int] = field(default_factory=dict)
    whole: WholeColumns = field(default_factory=WholeColumns)
    recourse: dict[str, Any] | None = None
    cost: RunningStats = field(default_factory=RunningStats)
    n_affordable: int = 0

    def add(self, results: "Results") -> None:
        """Take in a block of answers."""
        self.n_rows += len(results)
        results = results.take(attacked_rows(results))
        self.whole.add(results)
        self.n_attacked += len(results)
        self.recourse = results.header.get("recourse")
        if self.recourse is not None:
            ways = affordable(results)
            self.n_affordable += int(ways.sum())
            self.cost.add(results.upper[ways])
        self.n_exact += int(results.exact.sum())
        self.verdicts.update(results.verdict.tolist())
        self.reasons.update(results.reason[results.reason != ""].tolist())
        if self.asks_radius:
            # Sound: where no bound is known, nothing is proved.
            self.lower.add(np.where(np.isnan(results.lower), 0.0, results.lower))
            self.n_never += int(np.isposinf(results.lower).sum())
            self.upper.add(results.upper[np.isfinite(results.upper)])
        self.seconds.add(results.seconds)
        proved = count_certified(results, self.radii)
        broken = count_broken(results, self.radii)
        for eps, n_proved, n_broken in zip(self.radii, proved, broken, strict=True):
            self.proved[eps] = self.proved.get(eps, 0) + int(n_proved)
            self.broken[eps] = self.broken.get(eps, 0) + int(n_broken)

    def share_proved(self, eps: float) -> float:
        """Share of the attacked rows that is proved to keep its claim at one of the radii."""
        return self.share(self.proved[eps])

    def share(self, count: int) -> float:
        """Share of the attacked rows; 0 where none is attacked, so that no gate passes on that."""
        return count / self.n_attacked if self.n_attacked else 0.0

    def rows_in_words(self) -> str:
        """Say how many rows there are, and how many of them are attacked where not all are."""
        if self.n_attacked == self.n_rows:
            return counted(self.n_rows, "row")
        all_rows = counted(self.n_rows, "row")
        return f"{self.n_attacked:,} of {all_rows} attacked, the others stay as they are"

    def who(self) -> str:
        """Say which rows shares are about."""
        if self.n_attacked == self.n_rows:
            return "of the rows"
        return f"of the {counted(self.n_attacked, 'attacked row')}"

    def lines(self) -> list[str]:
        """Say in a few lines what was found."""
        rows = self.rows_in_words()
        if self.recourse is not None:
            lines = self._recourse_lines(self.recourse)
        elif self.asks_radius:
            lines = [
                f"{rows}: radius exact on {self.n_exact:,}, already broken"
                f" {self.verdicts['falsified']:,}, undecided {self.verdicts['unknown']:,}",
                f"lower bound: {_format(self.lower, digits_below)}",
            ]
            if self.n_never:
                lines.append(f"no allowed change breaks {counted(self.n_never, 'row')}")
            if self.upper.count:
                over = counted(self.upper.count, "row")
                lines.append(f"upper bound: {_format(self.upper, digits_above)} ({over})")
        else:
            lines = [
                f"{rows}: {self.verdicts['verified']:,} verified,"
                f" {self.verdicts['falsified']:,} falsified, {self.verdicts['unknown']:,} unknown"
            ]
        if self.reasons:
            lines.append(
                "unknown: " + ", ".join(f"{why} ({k:,})" for why, k in self.reasons.items())
            )
        if self.n_attacked == 0:
            return lines[:1]
        lines += filter(None, [self.whole.line()])
        lines.append(
            f"time per row: median {_time(self.seconds.median)}, mean {_time(self.seconds.mean)},"
            f" longest {_time(self.seconds.largest)}"
        )
        return lines

    def _recourse_lines(self, recourse: dict[str, Any]) -> list[str]:
        """Say for how many there is a way, and what it costs."""
        n, budget, wanted = self.n_attacked, recourse["budget"], recourse["wanted"]
        kind = "a way" if budget is None else "an affordable way"
        if n == 0:
            return [f"every row is decided as {wanted}"]
        have = "has" if n == 1 else "have"
        lines = [
            f"{self.n_affordable:,} of {counted(n, 'row')} that the model does not decide as"
            f" {wanted} {have} {kind}"
            + ("" if budget is None else f", at a cost of at most {plainly(budget)}")
        ]
        if self.cost.count:
            named = {"median": self.cost.median, "least": self.cost.least}
            named["largest"] = self.cost.largest
            said = [f"{name} {plainly(digits_above(v, _DIGITS))}" for name, v in named.items()]
            lines.append(f"cost of the cheapest way: {', '.join(said)}")
        n_open = self.verdicts["unknown"]
        n_others = n - self.n_affordable - self.n_never - n_open
        if self.n_never:
            lines.append(f"no allowed change leads there: {counted(self.n_never, 'row')}, proved")
        if budget is not None and n_others > 0:
            lines.append(f"only dearer ways: {counted(n_others, 'row')}")
        if n_open:
            lines.append(f"perhaps cheaper ways: {counted(n_open, 'row')}")
        return lines


def _format(stats: RunningStats, directed: Callable[[float, int], float]) -> str:
    # A mean with infinite ones among them says nothing.
    named = {"mean": stats.mean, "median": stats.median, "least": stats.least}
    said = [
        f"{name} {plainly(directed(value, _DIGITS))}"
        for name, value in named.items()
        if name != "mean" or stats.largest < np.inf
    ]
    return ", ".join(said).replace("inf", "∞")


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1.0 else f"{seconds:.3g} s"
