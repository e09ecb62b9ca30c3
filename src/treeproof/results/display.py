"""Results as pictures and in notebooks. matplotlib is imported when something is drawn."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeproof.errors import InvalidInput, require_backend
from treeproof.results.changes import in_words
from treeproof.results.curves import (
    attacked_rows,
    certified_share,
    has_radii,
    resisting_share,
)
from treeproof.results.numbers import ColumnFormats, counted, digits_above, digits_below, number
from treeproof.results.results import Results
from treeproof.results.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]

_N_RADII = 400
_SHADE = 0.18
_DIGITS = 6
ROWS_SHOWN = 5
_LEFT, _TOP, _WIDE, _HIGH = 44, 8, 360, 120
"""The small curve of notebooks, in pixels."""


class VerifiedAccuracyDisplay:
    """Verified accuracy over the radius, in the manner of scikit-learn's displays.

    Parameters
    ----------
    radii : float64 (n,)
        Radii, rising.
    certified : float64 (n,)
        Share of rows that are proved to keep their claim at each radius.
    resisting : float64 (n,)
        Share of rows for which no violation is known.
    name : str or None
        Name in the legend.

    Attributes
    ----------
    ax_, figure_
        Where the curve was drawn, after `plot`.
    line_, resisting_line_, gap_
        What was drawn.
    """

    def __init__(
        self,
        radii: FloatArray,
        certified: FloatArray,
        resisting: FloatArray,
        name: str | None = None,
    ) -> None:
        self.radii = radii
        self.certified = certified
        self.resisting = resisting
        self.name = name

    @classmethod
    def from_results(
        cls,
        results: Results,
        *,
        radii: ArrayLike | None = None,
        name: str | None = None,
        ax: Axes | None = None,
        **line_options: Any,
    ) -> VerifiedAccuracyDisplay:
        """Draw the curve of some results.

        Parameters
        ----------
        results : Results
            What `treeproof.radius` or `treeproof.verify` found; not for boxes.
        radii : array-like of shape (n,), optional
            Radii to draw at; by default from 0 to beyond the largest finite one.
        name : str, optional
            Name in the legend; by default the library of the model.
        ax : matplotlib axes, optional
            Where to draw; by default a new figure.
        **line_options
            Options of the certified line, such as ``color``.

        Returns
        -------
        VerifiedAccuracyDisplay
            The display, drawn.
        """
        if not has_radii(results):
            raise InvalidInput(
                "A curve needs results with radii of at least one row. Got none: boxes have no"
                " radius, and rows with an eps of their own no common one."
            )
        at = shown_radii(results) if radii is None else np.asarray(radii, dtype=np.float64)
        if at.ndim != 1 or len(at) == 0 or not np.all(np.isfinite(at)) or np.any(at < 0.0):
            raise InvalidInput(f"'radii' must be a list of finite numbers >= 0. Got {radii!r}.")
        at = np.sort(at)
        shown = name or str(results.header.get("model", {}).get("library") or "") or None
        display = cls(at, certified_share(results, at), resisting_share(results, at), shown)
        return display.plot(ax=ax, **line_options)

    def plot(
        self, *, ax: Axes | None = None, name: str | None = None, **line_options: Any
    ) -> VerifiedAccuracyDisplay:
        """Draw the curve: certified, resisting, and the gap between them shaded.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; by default a new figure.
        name : str, optional
            Name in the legend.
        **line_options
            Options of the certified line, such as ``color``.

        Returns
        -------
        VerifiedAccuracyDisplay
            This display.
        """
        require_backend("matplotlib", "plot")
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots()
        shown = name or self.name
        label = f"{shown} (certified)" if shown else "certified"
        options: dict[str, Any] = {"drawstyle": "steps-post", "label": label} | line_options
        self.line_: Any = ax.plot(self.radii, self.certified, **options)[0]
        self.resisting_line_: Any = None
        self.gap_: Any = None
        colour = self.line_.get_color()
        if np.any(self.resisting > self.certified):
            self.resisting_line_ = ax.plot(
                self.radii,
                self.resisting,
                drawstyle="steps-post",
                color=colour,
                linestyle="--",
                label=f"{shown} (resisting)" if shown else "resisting",
            )[0]
            self.gap_ = ax.fill_between(
                self.radii, self.certified, self.resisting, step="post", color=colour, alpha=_SHADE
            )
        ax.set(xlabel="radius", ylabel="verified accuracy", ylim=(-0.02, 1.02))
        ax.legend(loc="best")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def shown_radii(results: Results) -> FloatArray:
    """Every radius at which a curve steps, or as many as can be told apart in a picture."""
    bounds = np.concatenate([results.lower, results.upper])
    steps = np.unique(bounds[np.isfinite(bounds)])
    largest = float(steps[-1]) if len(steps) and steps[-1] > 0.0 else 1.0
    if len(steps) <= _N_RADII:
        # Curves step at these radii or just beyond them, so both are drawn.
        return np.unique(
            np.concatenate([[0.0], steps, np.nextafter(steps, np.inf), [largest * 1.05]])
        )
    return np.linspace(0.0, largest * 1.05, _N_RADII)


def results_html(results: Results) -> str:
    """Results for a notebook: the summary, the curve, and the rows that break first."""
    rank: NDArray[Any] = results.lower
    # Rows that are wrong as they stand need no change, and say nothing of how near others are.
    apart = results.verdict == Verdict.FALSIFIED
    chosen = "those with the smallest lower bounds"
    if not results.asks_radius:  # verdicts say nothing about which row is nearest
        ranks = {Verdict.FALSIFIED: 0, Verdict.UNKNOWN: 1, Verdict.VERIFIED: 2}
        rank = np.array([ranks[verdict] for verdict in results.verdict.tolist()])
        chosen, apart = "broken ones first", results.misclassified
    if n_apart := int((apart & attacked_rows(results)).sum()):
        chosen += f"; {counted(n_apart, 'row')} wrong without a change come last"
    # Rows that nothing moves would stand before those that were asked about.
    order = np.lexsort((rank, apart, ~attacked_rows(results)))[:ROWS_SHOWN]
    columns = ["row", "id", "way", "label", "verdict", "exact", "eps", "lower", "upper"]
    # Beside a radius a verdict would only say that it is exact.
    columns.remove("verdict" if results.asks_radius else "exact")
    columns = [name for name in columns if _is_known(getattr(results, name))]
    rows = [
        [_cell(name, getattr(results, name)[i]) for name in columns] + list(said)
        for i, said in zip(order, _changes(results, order), strict=True)
    ]
    note = f"{len(order)} of {len(results)} rows, {chosen}." if len(order) < len(results) else ""
    picture, columns = _curve_svg(results), [*columns, "becomes", "changes"]
    return _html(results.summary(), picture, columns, rows, note)


def table_html(summary: str, columns: list[str], rows: list[list[str]], n_rows: int) -> str:
    """What was found about features for a notebook: the summary, and the first rows."""
    note = f"The first {len(rows)} of {n_rows} rows." if len(rows) < n_rows else ""
    return _html(summary, "", columns, rows, note)


def _html(summary: str, picture: str, columns: list[str], rows: list[list[str]], note: str) -> str:
    """Lines, a picture, and a table whose last column is text."""
    lines = "".join(f"<p style='margin:0'>{escape(line)}</p>" for line in summary.split("\n"))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{escape(text)}</td>" for text in first)
        + f"<td style='text-align:left'>{escape(last)}</td></tr>"
        for *first, last in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    return f"<div>{lines}{picture}{table}{note and f'<p>{note}</p>'}</div>"


def _is_known(column: NDArray[Any] | None) -> bool:
    """Whether there is anything to show: boxes have no bounds."""
    return column is not None and not (column.dtype.kind == "f" and bool(np.isnan(column).all()))


def _changes(results: Results, rows: NDArray[np.int64]) -> list[tuple[str, str]]:
    """The label of each row's witness, and what the witness changes; or why there is none."""
    if results.values is None:
        return [("", str(results.reason[i])) for i in rows]
    formats, said = ColumnFormats(results.values), []
    for i in rows.tolist():
        label = None if results.witness_label is None else results.witness_label[i]
        words = in_words(results.changes(i), formats) or str(results.reason[i])
        said.append(("" if label is None else str(label), words))
    return said


def _curve_svg(results: Results) -> str:
    """Verified accuracy over the radius as a small picture; nothing for boxes."""
    if not has_radii(results):
        return ""
    radii, paths = shown_radii(results), ""
    certified, resisting = certified_share(results, radii), resisting_share(results, radii)
    for colour, share in (("#888888", resisting), ("#1f77b4", certified)):
        points = [f"M{_LEFT},{_TOP + _HIGH * (1.0 - share[0]):.1f}"]
        for radius, value in zip(radii, share, strict=True):
            x = _LEFT + _WIDE * radius / radii[-1]
            points.append(f"H{x:.1f}V{_TOP + _HIGH * (1.0 - value):.1f}")
        paths += f"<path d='{''.join(points)}' fill='none' stroke='{colour}' stroke-width='1.5'/>"
    width, height = _LEFT + _WIDE + 20, _TOP + _HIGH + 24
    ticks = "".join(
        f"<text x='{_LEFT - 4}' y='{_TOP + _HIGH * (1 - share) + 4}' text-anchor='end'>{share:.0%}"
        "</text>"
        for share in (0.0, 1.0)
    )
    end = f"<text x='{_LEFT + _WIDE}' y='{height - 8}' text-anchor='end'>{number(radii[-1])}</text>"
    return (
        f"<svg width='{width}' height='{height}' font-size='11' fill='currentColor' role='img'"
        " aria-label='verified accuracy over the radius'>"
        f"<rect x='{_LEFT}' y='{_TOP}' width='{_WIDE}' height='{_HIGH}' fill='none'"
        f" stroke='currentColor' stroke-opacity='0.3'/>{paths}{ticks}{end}"
        f"<text x='{_LEFT}' y='{height - 8}'>0 — verified accuracy over the radius</text></svg>"
    )


def _cell(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    # Bounds hold as they are shown.
    directed = {"lower": digits_below, "upper": digits_above}.get(name)
    return number(directed(value, _DIGITS) if directed else value, _DIGITS)
