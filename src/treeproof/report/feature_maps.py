"""Pictures of single-feature radii and of reasons: maps for images, bars for tables.

matplotlib is imported when something is drawn.
"""

import io
from os import PathLike
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from treeproof.errors import InvalidInput, listed, require_backend
from treeproof.files import replacing
from treeproof.report.images import check_shape
from treeproof.report.reasons import spans
from treeproof.results.features import KEPT_FIXED, FeatureResults
from treeproof.results.reasons import Reasons

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BARS = 30
"""Most features in a bar chart; the most sensitive ones are shown."""

_DARK, _YELLOW, _GREY, _TRACK = "#31446b", "#fde725", "#b8bcc4", "#e8e9ec"


def draw_features(
    results: FeatureResults | Reasons,
    row: int = 0,
    *,
    values: Any = None,
    shape: tuple[int, int] | None = None,
) -> "Figure":
    """Draw what was found about the features of one row.

    Parameters
    ----------
    results : FeatureResults or Reasons
        What `feature_radius`, `unimportant_features`, `anchor_features` or `reasons` returned.
    row : int
        Position of the row in the results.
    values : array-like of shape (n_features,), optional
        The row itself, drawn beside a map; that of reasons by default.
    shape : tuple of int, optional
        Height and width of an image; without it a bar chart is drawn.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; `savefig` writes it.
    """
    require_backend("matplotlib", "plot")
    if not 0 <= row < len(results):
        raise InvalidInput(f"'row' must be from 0 to {len(results) - 1}. Got {row}.")
    if shape is None:
        return _with_kept(_bar_chart(results, row), results, row)
    if isinstance(results, Reasons) and values is None:
        values = results.values[row]
    check_shape(shape, _n_features(results))
    return _with_kept(_maps(results, row, values, shape), results, row)


def _with_kept(figure: "Figure", results: FeatureResults | Reasons, row: int) -> "Figure":
    """Say below the picture which features no proof is about."""
    names = results.kept_names(row)
    if names:
        figure.supxlabel(f"{KEPT_FIXED}: {listed(names)}", fontsize=8)
    return figure


def save_figure(figure: "Figure", path: str | PathLike[str]) -> None:
    """Write a figure in one step; the ending decides the format."""
    picture = io.BytesIO()
    kind = PurePath(path).suffix[1:] or "png"
    try:
        figure.savefig(picture, format=kind, dpi=150, bbox_inches="tight", facecolor="white")
    except ValueError as error:
        raise InvalidInput(f"The picture '{path}' cannot be written: {error}.") from error
    with replacing(path, "The picture") as file:
        file.write(picture.getvalue())


def _n_features(results: FeatureResults | Reasons) -> int:
    table = results.radius if isinstance(results, FeatureResults) else results.values
    return int(table.shape[1])


def _new_figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    # Not through pyplot: no window, no global state, safe in threads.
    return Figure(figsize=(width, height), layout="constrained")


def _maps(
    results: FeatureResults | Reasons, row: int, values: Any, shape: tuple[int, int]
) -> "Figure":
    """Image on the left where the row is given, the map on the right."""
    figure = _new_figure(8.2 if values is not None else 4.6, 3.9)
    axes = figure.subplots(1, 1 if values is None else 2, squeeze=False)[0]
    if values is not None:
        image = np.asarray(values, dtype=np.float64).reshape(shape)
        axes[0].imshow(image, cmap="gray", interpolation="nearest")
        axes[0].set_title(f"row {results.row[row]}{_label(results, row)}", fontsize=10)
    if isinstance(results, Reasons):
        is_free = np.ones(shape[0] * shape[1])
        is_free[results.features[row]] = 0.0
        is_free[results.kept[row]] = np.nan
        _draw_two_colours(axes[-1], is_free, shape, f"{_anchor_title(results, row)} (dark)")
    elif np.isnan(results.radius[row]).all():
        is_free = np.where(results.examined[row], results.unimportant[row], np.nan)
        _draw_two_colours(axes[-1], is_free, shape, "cannot change the answer alone (yellow)")
    else:
        _draw_radius_map(figure, axes[-1], results, row, shape)
    for axis in axes:
        axis.set_xticks([])
        axis.set_yticks([])
    return figure


def _draw_two_colours(axis: "Axes", is_free: Any, shape: tuple[int, int], title: str) -> None:
    """Yellow where a feature is free (1), dark where not (0), grey where no proof is about it."""
    from matplotlib.colors import ListedColormap

    colours = ListedColormap([_DARK, _YELLOW]).with_extremes(bad=_GREY)
    axis.imshow(is_free.reshape(shape), cmap=colours, vmin=0, vmax=1, interpolation="nearest")
    axis.set_title(title, fontsize=10)


def _draw_radius_map(
    figure: "Figure", axis: "Axes", results: FeatureResults, row: int, shape: tuple[int, int]
) -> None:
    """Dark where a small movement is enough, yellow where no movement matters."""
    radius, examined = results.radius[row], results.examined[row]
    finite = np.isfinite(radius) & examined
    largest = float(radius[finite].max(initial=0.0)) or 1.0
    shown = np.where(examined, np.where(finite, radius, largest * 1.15), np.nan)
    drawn = axis.imshow(
        shown.reshape(shape), cmap="viridis", vmin=0.0, vmax=largest * 1.15, interpolation="nearest"
    )
    bar = figure.colorbar(drawn, ax=axis, shrink=0.85)
    ticks = [0.0, largest / 2.0, largest, largest * 1.15]
    bar.set_ticks(ticks, labels=[f"{tick:.3g}" for tick in ticks[:3]] + ["never"])
    never = int((results.unimportant[row] & examined).sum())
    axis.set_title(
        f"radius of each feature alone ({never} of {len(radius)} never matter)", fontsize=10
    )


def _bar_chart(results: FeatureResults | Reasons, row: int) -> "Figure":
    if isinstance(results, Reasons):
        return _span_chart(results, row)
    radius, examined = results.radius[row], results.examined[row]
    has_radii = not np.isnan(radius).all()
    matters = examined if has_radii else examined & ~results.unimportant[row]
    strength = np.where(matters, radius if has_radii else 1.0, np.inf)
    n_shown = min(int(np.isfinite(strength).sum()), _BARS)
    n_more = int(np.isfinite(strength).sum()) - n_shown
    n_never = int((results.unimportant[row] & examined).sum())
    moving = np.argsort(strength, kind="stable")[:n_shown].tolist()
    rest = f", {n_more} more change it later" if n_more else ""
    title = f"{n_never} features never change it{rest}"
    names, lengths = [results.name(f) for f in moving], [float(strength[f]) for f in moving]
    figure = _bars(results, row, names, lengths, title)
    axis: Any = figure.axes[0]
    if not moving:
        axis.clear()
        axis.text(0.5, 0.5, "no feature alone changes the answer", ha="center", va="center")
        axis.set_axis_off()
    elif not has_radii:
        axis.set_xticks([])
        axis.set_xlabel("features that alone can change the answer")
    else:
        axis.bar_label(axis.containers[0], fmt="{:.4g}", padding=4, fontsize=7, color="#444444")
        axis.margins(x=0.12)
        axis.set_xlabel("smallest movement of the feature alone that changes the answer")
    return figure


def _span_chart(results: Reasons, row: int) -> "Figure":
    """A track for each feature of a set, with its interval and the row's own value."""
    found = spans(results, row)
    shown = found[:_BARS]
    more = f", {len(found) - len(shown)} more" if len(found) > len(shown) else ""
    names, lengths = [span.name for span in shown], [1.0] * len(shown)
    figure = _bars(results, row, names, lengths, f"{_anchor_title(results, row)}{more}")
    axis: Any = figure.axes[0]
    axis.spines[["bottom", "left"]].set_visible(False)
    axis.tick_params(left=False)
    axis.set_xticks([])
    axis.set_xlim(0.0, 1.0)
    for bar in axis.patches:
        bar.set(color=_TRACK, height=0.36)
        bar.set_y(bar.get_y() + 0.17)
    for place, span in enumerate(shown):
        # Open ends reach the end of the track, closed ones are marked.
        axis.barh(place, span.high - span.low, left=span.low, color=_DARK, height=0.36)
        axis.plot([span.value], [place], "o", color=_YELLOW, markeredgecolor="black", markersize=6)
        axis.annotate(
            span.condition, (1.0, place), xytext=(8, 0), textcoords="offset points",
            va="center", fontsize=8, annotation_clip=False,
        )  # fmt: skip
    return figure


def _bars(
    results: FeatureResults | Reasons,
    row: int,
    names: list[str],
    lengths: list[float],
    title: str,
) -> "Figure":
    """A bar for each of some features of a row, from the top down."""
    figure = _new_figure(6.4, 1.2 + 0.26 * max(len(names), 1))
    axis = figure.subplots()
    axis.barh(range(len(names)), lengths, color=_DARK, height=0.7)
    axis.set_yticks(range(len(names)), labels=names, fontsize=8)
    axis.set_ylim(max(len(names), 1) - 0.4, -0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title(f"row {results.row[row]}{_label(results, row)}: {title}", fontsize=9, loc="left")
    return figure


def _anchor_title(results: Reasons, row: int) -> str:
    if not results.sufficient[row]:
        return str(results.reason[row]) or "already broken"
    minimal = "a minimal set" if results.minimal[row] else "a sufficient set"
    return f"{minimal} of {results.sizes()[row]} features fixes the answer"


def _label(results: FeatureResults | Reasons, row: int) -> str:
    label = results.label[row]
    return "" if label is None else f" (class {label})"
