"""`write_trend`: one page about many runs of one question, in the order of their days."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from itertools import pairwise
from os import PathLike
from typing import Any

from treeproof.errors import InvalidInput, require_backend
from treeproof.files import replacing
from treeproof.report import text
from treeproof.report.axes import round_number
from treeproof.report.charts import NARROW, WIDE, Frame, Tick
from treeproof.report.page import asset, load_template
from treeproof.report.runs import RunView, read_run, renamed
from treeproof.results.compared import refuse_other_question
from treeproof.results.curves import clean_share
from treeproof.results.numbers import counted, number, percent_down
from treeproof.results.results import Results
from treeproof.results.run_file import unfinished
from treeproof.results.threat import movement

_LEAST = 0.05
"""Least part of the shares from 0 to 1 that a chart shows: a trend of rounding is none."""


def write_trend(
    runs: Sequence[Results | str | PathLike[str]],
    path: str | PathLike[str],
    *,
    at: float | None = None,
    title: str | None = None,
    date: datetime.date | None = None,
) -> None:
    """Write a page that shows how what is verified changes from run to run.

    Parameters
    ----------
    runs : sequence of Results or paths
        Two or more that ask the same, about one model or many, in the order of their days; those
        of one day stay in the order in which they are given.
    path : str or path
        Where the page goes, such as ``trend.html``.
    at : float, optional
        Radius or cost at which shares are compared; by default that of the runs, or a round one
        near the median of the last.
    title : str, optional
        Heading of the page.
    date : datetime.date, optional
        Day that the page is dated with; by default today.
    """
    require_backend("jinja2", "report")
    if isinstance(runs, Results | str | PathLike) or len(runs) < 2:
        n_given = 1 if isinstance(runs, Results | str | PathLike) else len(runs)
        raise InvalidInput(f"A trend needs two runs or more. Got {n_given}.")
    shown = renamed([read_run(source) for source in runs])
    shown.sort(key=lambda run: str(run.header.get("date") or ""))
    for run in shown:
        _check(run, shown[-1])
    radius = _radius(shown, at)
    page = load_template("trend.html.j2").render(
        _context(shown, radius)
        | {
            "title": title or "Verified accuracy over time",
            "styles": asset("page.css"),
            "date": text.day_words(date or datetime.date.today()),
        }
    )
    with replacing(path, "The page") as file:
        file.write(page.encode("utf-8", "replace"))


def _check(run: RunView, last: RunView) -> None:
    """Refuse runs that prove nothing, are not complete, or ask something else than the last."""
    if missing := unfinished(run.header, len(run.results)):
        raise InvalidInput(
            f"The run '{run.name}' must be complete to be compared with. {missing}"
            " Go on with it by --resume."
        )
    if run.is_attack or run.recourse:
        raise InvalidInput(
            f"The run '{run.name}' must say what is verified. Got"
            f" {'attacks' if run.is_attack else 'ways to another decision'}: give a run of"
            " treeproof radius or treeproof verify."
        )
    if run.n_attacked == 0:
        raise InvalidInput(f"The run '{run.name}' must attack at least one row. Got none.")
    refuse_other_question(run.header, last.header, run.name)
    if run.has_radii != last.has_radii:
        raise InvalidInput(
            f"The run '{run.name}' must say as the others do at which radius rows are verified."
            " Some of these runs have one radius for all rows, others one for each."
        )


def _radius(runs: list[RunView], at: float | None) -> float | None:
    """The radius at which all runs say what is verified; None of boxes, and of own radii."""
    if not runs[-1].has_radii:
        if at is not None:
            raise InvalidInput(
                f"'at' goes with runs about one radius of all rows. Got {at!r}, and boxes or radii"
                " of their own. Leave it out."
            )
        return None
    if at is not None and not (math.isfinite(at) and at >= 0.0):
        raise InvalidInput(f"'at' must be a radius, a finite number >= 0. Got {at!r}.")
    known = [(run.name, run.eps) for run in runs if run.eps is not None]
    chosen = at if at is not None else known[-1][1] if known else None
    for name, eps in known:
        if eps != chosen:
            raise InvalidInput(
                f"The run '{name}' says what is verified at radius {eps:g} only. Got a trend at"
                f" radius {chosen:g}: ask at the same one, or give a run of treeproof radius, which"
                " tells all."
            )
    if chosen is None:
        radii = runs[-1].results.lower[runs[-1].attacked]
        positive = sorted(radius for radius in radii.tolist() if 0.0 < radius < math.inf)
        chosen = round_number(positive[len(positive) // 2]) if positive else 0.0
    return chosen


def _context(runs: list[RunView], radius: float | None) -> dict[str, Any]:
    first, last = runs[0], runs[-1]
    points = [_point(run, radius) for run in runs]
    lines = [_line(run, point) for run, point in zip(runs, points, strict=True)]
    for before, (run, line) in zip([None, *runs], zip(runs, lines, strict=True), strict=False):
        line["rows_are"] = "" if before is None else _rows_words(before, run)
    changes = [after["verified"] - before["verified"] for before, after in pairwise(points)]
    for line, change in zip(lines[1:], changes, strict=True):
        line["change"] = _points_words(change)
    threat = last.threat
    moves = "" if threat is None else "".join(said for said, _ in movement(threat, radius or 0.0))
    falls = [(change, k) for k, change in enumerate(changes) if change < 0.0]
    worst = min(falls, default=None)
    return {
        "lines": lines,
        "first": lines[0],
        "last": lines[-1],
        "overall": _points_words(points[-1]["verified"] - points[0]["verified"]),
        "worst": worst and (_points_words(worst[0]), lines[worst[1]], lines[worst[1] + 1]),
        "radius": None if radius is None else number(radius),
        "measure": last.measure,
        "moves": moves,
        "charts": [_chart(runs, points, frame) for frame in (WIDE, NARROW)],
        "has_clean": any(point["correct"] is not None for point in points),
        "has_open": any(point["resisting"] > point["verified"] for point in points),
        "question": dict(text.sections(last))["The question"],
        "span": _span(first, last),
    }


def _point(run: RunView, radius: float | None) -> dict[str, Any]:
    at = 0.0 if radius is None else radius
    return {
        "verified": run.n_certified(at) / run.n_attacked,
        "resisting": run.n_resisting(at) / run.n_attacked,
        "correct": clean_share(run.results),
    }


def _line(run: RunView, point: dict[str, Any]) -> dict[str, Any]:
    """A row of the table; shares as the page shows them, rounded down."""
    n = run.n_attacked
    day = run.header.get("date")
    words = {
        name: "–" if share is None else percent_down(round(share * n), n)
        for name, share in point.items()
    }
    n_open = round((point["resisting"] - point["verified"]) * n)
    return words | {
        "name": run.name,
        "day": text.day_words(day) if day else "–",
        "rows": f"{n:,}",
        "open": f"{n_open:,}",
        "model": str(run.model.get("fingerprint") or "")[:12],
        "trees": counted(int(run.model.get("n_trees") or 0), "tree"),
        "library": text.library_words(run),
        "change": "",
    }


def _rows_words(before: RunView, run: RunView) -> str:
    """Whether a run is about the rows of the one before, as far as they were recorded."""
    if not (before.rows_digest and run.rows_digest):
        return ""
    return "the same" if before.rows_digest == run.rows_digest else "others"


def _points_words(change: float) -> str:
    """A change of a share in percentage points."""
    points = round(100.0 * change, 1)
    if points == 0.0:
        return "±0.0 points" if change == 0.0 else "less than 0.1 points"
    return f"{'+' if points > 0.0 else '−'}{abs(points):.1f} points"


def _span(first: RunView, last: RunView) -> str:
    days = [str(run.header.get("date") or "") for run in (first, last)]
    if "" in days:
        return ""
    said = [text.day_words(day) for day in days]
    return said[0] if said[0] == said[1] else f"{said[0]} to {said[1]}"


def _chart(runs: list[RunView], points: list[dict[str, Any]], frame: Frame) -> dict[str, Any]:
    """Lines of the shares over the runs, one after the other at equal distances."""
    known = [share for point in points for share in point.values() if share is not None]
    low, step = _scale(min(known), max(known))
    across = [frame.x((k + 0.5) / len(runs)) for k in range(len(runs))]

    def up(share: float) -> float:
        return round(frame.y((share - low) / (1.0 - low)), 2)

    def places(name: str) -> list[tuple[float, float, int]]:
        return [
            (round(x, 2), up(point[name]), k)
            for k, (x, point) in enumerate(zip(across, points, strict=True))
            if point[name] is not None
        ]

    # No more days than have room below the chart.
    room = 92.0
    every = max(1, math.ceil(room * len(runs) / frame.plot_width))
    ticks = [
        Tick(at=round(x, 2), text=_short_day(run))
        for k, (run, x) in enumerate(zip(runs, across, strict=True))
        if (len(runs) - 1 - k) % every == 0
    ]
    n_steps = round((1.0 - low) / step)
    shares = [low + step * k for k in range(n_steps + 1)]
    return {
        "frame": frame,
        "x_ticks": ticks,
        "y_ticks": [Tick(at=up(share), text=f"{100.0 * share:.3g}\u00a0%") for share in shares],
        **{name: places(name) for name in ("verified", "resisting", "correct")},
    }


def _scale(least: float, most: float) -> tuple[float, float]:
    """Lower end of the shares, the upper one is 1, and the step between marks."""
    reach = max(1.0 - least, _LEAST)
    step = round_number(reach / 4.0, up=True)
    step = 0.25 if step >= 0.5 else step
    low = 1.0 - step * math.ceil(reach / step - 1e-9)
    return (0.0, 0.25) if low <= 0.25 else (low, step)


def _short_day(run: RunView) -> str:
    """A day as it stands below a chart, or the name where there is none."""
    try:
        day = datetime.date.fromisoformat(str(run.header.get("date")))
    except ValueError:
        return run.name[:12]
    return f"{day.day} {day:%b} {day:%y}"
