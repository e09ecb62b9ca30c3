"""Geometry of the report's charts; the template draws it as SVG."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.report.axes import Axis
from treeproof.report.runs import RunView
from treeproof.results.curves import certified_share, resisting_share
from treeproof.results.numbers import counted, digits_above, digits_below, number, percent_up

FloatArray = NDArray[np.float64]

_MOST_STEPS = 600
"""More steps than a chart has pixels cannot be seen."""

_N_BINS = 26

_SEEN = 1e-6
"""Least part of an axis that two sides of a curve must be apart."""

_COLUMN = 48.0
"""Least width of the outer columns, so that their words fit below them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Size of a chart and of the margins around its plot, in pixels."""

    width: float
    height: float
    left: float = 54.0
    right: float = 14.0
    top: float = 14.0
    bottom: float = 44.0
    tick_gap: float = 0.11

    @property
    def plot_width(self) -> float:
        """Width between the margins."""
        return self.width - self.left - self.right

    @property
    def plot_height(self) -> float:
        """Height between the margins."""
        return self.height - self.top - self.bottom

    def x(self, place: float) -> float:
        """Horizontal pixel of a place between 0 and 1."""
        return self.left + place * self.plot_width

    def y(self, share: float) -> float:
        """Vertical pixel of a share between 0 and 1."""
        return self.top + (1.0 - share) * self.plot_height


WIDE = Frame(width=760.0, height=330.0, top=24.0)
NARROW = Frame(width=370.0, height=290.0, left=46.0, right=10.0, top=24.0, tick_gap=0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A place on an axis, in pixels, and its text."""

    at: float
    text: str


def curve_chart(runs: list[RunView], axis: Axis, frame: Frame) -> dict[str, Any]:
    """Verified accuracy over the radius: two step lines for each run, and the area between them."""
    shares = (0, 0.25, 0.5, 0.75, 1)
    return {
        "frame": frame,
        "lines": [_line(run, axis, frame) for run in runs],
        "x_ticks": _radius_ticks(axis, frame.tick_gap, frame.x(0.0), frame.x(1.0)),
        "y_ticks": [Tick(at=_px(frame.y(share)), text=f"{share:.0%}") for share in shares],
    }


def _radius_ticks(axis: Axis, gap: float, left: float, right: float) -> list[Tick]:
    return [
        Tick(at=_px(left + axis.position(tick) * (right - left)), text=number(tick, 3))
        for tick in axis.ticks(gap)
    ]


def _line(run: RunView, axis: Axis, frame: Frame) -> dict[str, Any]:
    """The curve of one run, as paths of SVG."""
    steps = critical_radii(run, axis)
    # Just beyond a critical radius both sides have made their step there.
    beyond = np.nextafter(steps, np.inf)
    at = np.concatenate([[0.0], beyond])
    certified, resisting = certified_share(run.results, at), resisting_share(run.results, at)
    places = [axis.position(radius) for radius in steps.tolist()]
    upper = _corners(places, resisting, frame)
    lower = _corners(places, certified, frame)
    return {
        "name": run.name,
        "certified": _path(lower),
        "resisting": _path(upper),
        "gap": _path([*upper, *reversed(lower)]) + "Z",
        "has_gap": _has_gap(places, resisting - certified, 0.5 / max(run.n_attacked, 1)),
        "is_attack": run.is_attack,
    }


def _has_gap(places: list[float], gaps: FloatArray, least: float) -> bool:
    """Whether the two sides part for more than what nobody sees, such as bits of a cost."""
    ends = np.diff([0.0, *places, 1.0])
    return bool(np.any((gaps > least) & (ends > _SEEN)))


def critical_radii(run: RunView, axis: Axis) -> FloatArray:
    """Radii at which a side of the curve makes a step, thinned out to what can be seen."""
    bounds = np.concatenate([run.results.lower, run.results.upper])
    steps = np.unique(bounds[np.isfinite(bounds) & (bounds <= axis.high)])
    if len(steps) <= _MOST_STEPS:
        return steps
    places = (np.arange(_MOST_STEPS) + 1.0) / _MOST_STEPS
    return np.array([axis.radius(place) for place in places.tolist()])


def _corners(places: list[float], shares: FloatArray, frame: Frame) -> list[tuple[float, float]]:
    points = [(frame.x(0.0), frame.y(float(shares[0])))]
    for place, share in zip(places, shares[1:].tolist(), strict=True):
        x, before = frame.x(place), points[-1][1]
        points += [(x, before), (x, frame.y(share))]
    return [*points, (frame.x(1.0), points[-1][1])]


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_px(x)},{_px(y)}" for x, y in points)


def _px(value: float) -> float:
    return round(value, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of a chart, in pixels, with its words for hover and screen readers.

    `text` stands above it; one that is cut off would be higher than the chart.
    """

    x: float
    y: float
    width: float
    height: float
    run: int
    kind: str
    words: str
    text: str
    is_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Rows of one run by radius: already broken, by bin, beyond the axis, never broken."""

    broken: int
    settled: NDArray[np.int64]
    undecided: NDArray[np.int64]
    never: int


def radius_bins(run: RunView, axis: Axis) -> Bins:
    """Count rows by their radius, undecided ones by their lower bound; for attacks by the upper."""
    results = run.results
    never = np.isinf(run.shown_radius) & run.attacked
    shown = ~run.broken & ~never & run.attacked
    places = np.array([axis.position(r) for r in np.where(shown, run.shown_radius, 0.0).tolist()])
    bins = np.minimum((places * _N_BINS).astype(np.int64), _N_BINS - 1)
    exact = results.exact if results.asks_radius else results.verdict == "falsified"
    return Bins(
        broken=run.n_broken,
        settled=np.bincount(bins[shown & exact], minlength=_N_BINS),
        undecided=np.bincount(bins[shown & ~exact], minlength=_N_BINS),
        never=int(never.sum()),
    )


def radius_chart(runs: list[RunView], axis: Axis, frame: Frame) -> dict[str, Any]:
    """Distribution of the radii of some runs, side by side."""
    bins = [radius_bins(run, axis) for run in runs]
    # Outer columns are no bins of the axis, and may hold most rows: they would flatten the others,
    # so they are cut off at the top and say how many they hold.
    highest = max(int((b.settled + b.undecided).max()) for b in bins)
    highest = highest or max(max(b.broken, b.never, 1) for b in bins)
    # Two outer columns, for rows that are broken already and rows that nothing breaks.
    column = max(frame.plot_width * (0.07 if len(runs) == 1 else 0.1), _COLUMN)
    left, right = frame.left, frame.left + frame.plot_width
    groups: list[Tick] = []
    if any(b.broken for b in bins):
        left += column
        groups.append(Tick(at=_px(frame.left + column * 0.4), text="wrong"))
    if any(b.never for b in bins):
        right -= column
        text = "none" if all(run.is_attack for run in runs) else "never"
        groups.append(Tick(at=_px(right + column * 0.6), text=text))
    bars: list[Bar] = []

    def draw(
        k: int, place: tuple[float, float], count: int, kind: str, words: str, below: int = 0
    ) -> None:
        """Add a bar of run k above others, where there is anything to show."""
        if count:
            part = place[1] / len(runs)
            size = (below / highest, (below + count) / highest)
            across = (place[0] + k * part, max(part - 1.0, 0.8))
            text = f"{count:,}" if kind in ("broken", "never") else ""
            words = f"{runs[k].name}: {words}"
            bars.append(_bar(frame, across, size, run=k, kind=kind, words=words, text=text))

    for k, (run, counts) in enumerate(zip(runs, bins, strict=True)):
        width = (right - left) / _N_BINS
        for i in range(_N_BINS):
            low, high = axis.radius(i / _N_BINS), axis.radius((i + 1) / _N_BINS)
            changed = "broken by a change of" if run.is_attack else f"with {run.measure}"
            # What lies beyond the axis is in its last bin.
            words = f"{changed} {number(low, 3)} to {number(high, 3)}"
            words += " or more" if i == _N_BINS - 1 else ""
            settled, undecided = int(counts.settled[i]), int(counts.undecided[i])
            at = (left + i * width, width)
            draw(k, at, settled, "settled", f"{counted(settled, 'row')} {words}")
            words += "" if run.is_attack else " at least, undecided"
            said = f"{counted(undecided, 'row')} {words}"
            draw(k, at, undecided, "undecided", said, below=settled)
        words = f"{counted(counts.broken, 'row')} wrong without a change"
        draw(k, (frame.left, column * 0.8), counts.broken, "broken", words)
        words = f"nothing that is allowed breaks {counted(counts.never, 'row')}"
        if run.is_attack:
            words = f"no breaking change was found for {counted(counts.never, 'row')}"
        draw(k, (right + column * 0.2, column * 0.8), counts.never, "never", words)
    ticks = _radius_ticks(axis, frame.tick_gap * 1.1, left, right)
    y_ticks = _count_ticks(frame, highest)
    return {"frame": frame, "bars": bars, "x_ticks": ticks, "y_ticks": y_ticks, "groups": groups}


def _bar(frame: Frame, across: tuple[float, float], size: tuple[float, float], **facts: Any) -> Bar:
    """A bar from its left side and width, and from where to where it stands; cut off at the top."""
    top = min(size[1], 1.0)
    return Bar(
        x=_px(across[0]),
        y=_px(frame.y(top)),
        width=_px(across[1]),
        height=_px((top - size[0]) * frame.plot_height),
        is_cut=size[1] > 1.0,
        **facts,
    )


def _count_ticks(frame: Frame, highest: int) -> list[Tick]:
    step = max(1, -(-highest // 4))
    magnitude = 10 ** (len(str(step)) - 1)
    step = -(-step // magnitude) * magnitude
    return [
        Tick(at=_px(frame.y(count / highest)), text=f"{count:,}")
        for count in range(0, highest + 1, step)
    ]


def quantiles(run: RunView) -> list[tuple[str, str]]:
    """A few quantiles of the lower bounds, in words and numbers; for an attack of the upper."""
    lower = run.shown_radius[run.attacked]
    shown = [("least", 0.0), ("10 %", 0.1), ("25 %", 0.25), ("median", 0.5), ("75 %", 0.75),
             ("90 %", 0.9), ("largest", 1.0)]  # fmt: skip
    # Infinite radii are ordinary values here, so interpolation between two rows is avoided.
    # Bounds are never shown nearer than they are; where every row is settled they are radii.
    towards = digits_above if run.is_attack else digits_below

    def cell(radius: float) -> str:
        return number(radius if run.is_settled else towards(radius, 3), 3)

    cells = [
        (name, cell(float(np.quantile(lower, q, method="lower"))) if len(lower) else "–")
        for name, q in shown
    ]
    if run.is_attack:
        return [*cells, ("undecided", "–")]
    n_open = int((run.results.verdict[run.attacked] == "unknown").sum())
    return [*cells, ("undecided", percent_up(n_open, run.n_attacked))]
