"""Results as pictures and in notebooks. matplotlib is imported when something is drawn."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from treeproof.errors import InvalidInput, require_backend
from treeproof.results.curves import certified_share, has_radii, resisting_share
from treeproof.results.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]

_N_RADII = 400
_SHADE = 0.18


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
                "A curve needs results with radii. Got none: boxes have no radius, and there must"
                " be at least one row."
            )
        at = _radii(results) if radii is None else np.asarray(radii, dtype=np.float64)
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


def _radii(results: Results) -> FloatArray:
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
    """Results for a notebook: the summary, and the rows that break first."""
    lines = "".join(
        f"<p style='margin:0'>{escape(line)}</p>" for line in results.summary().split("\n")
    )
    order = np.argsort(results.lower, kind="stable")[:5]
    names = ("row", "label", "verdict", "lower", "upper", "reason")
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(
        "<tr>"
        + "".join(f"<td>{escape(_cell(getattr(results, n)[i]))}</td>" for n in names)
        + "</tr>"
        for i in order
    )
    note = f"<p>{len(order)} of {len(results)} rows, those with the smallest lower bounds.</p>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div>{lines}{table}{note}</div>"


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
