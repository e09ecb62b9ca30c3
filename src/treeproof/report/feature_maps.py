"""Pictures of single-feature radii and of anchor features: maps for images, bars for tables.

matplotlib is imported when something is drawn.
"""

import io
from os import PathLike
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from treeproof.errors import InvalidInput, require_backend
from treeproof.query.names import listed
from treeproof.report.images import check_shape
from treeproof.results.features import KEPT_FIXED, FeatureResults
from treeproof.results.reasons import Reasons
from treeproof.results.run_file import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BARS = 30
"""Most features in a bar chart; the most sensitive ones are shown."""

_DARK, _YELLOW, _GREY = "#31446b", "#fde725", "#b8bcc4"


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
        What `feature_radius`, `unimportant_features` or `anchor_features` returned.
    row : int
        Position of the row in the results.
    values : array-like of shape (n_features,), optional
        The row itself, drawn beside a map.
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
    check_shape(shape, _n_features(results, values))
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


def _n_features(results: FeatureResults | Reasons, values: Any) -> int:
    if isinstance(results, FeatureResults):
        return int(results.radius.shape[1])
    if values is None:
        raise InvalidInput("A map of anchor features needs the row itself: pass 'values'.")
    return len(values)


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
    target = axes[-1]
    if isinstance(results, FeatureResults):
        _draw_radius_map(figure, target, results, row, shape)
    else:
        fixed = np.zeros(shape[0] * shape[1])
        fixed[results.features[row]] = 1.0
        fixed[results.kept[row]] = np.nan
        from matplotlib.colors import ListedColormap

        colours = ListedColormap([_YELLOW, _DARK]).with_extremes(bad=_GREY)
        target.imshow(fixed.reshape(shape), cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        target.set_title(f"{_anchor_title(results, row)} (dark)", fontsize=10)
    for axis in axes:
        axis.set_xticks([])
        axis.set_yticks([])
    return figure


def _draw_radius_map(
    figure: "Figure", axis: "Axes", results: FeatureResults, row: int, shape: tuple[int, int]
) -> None:
    """Dark where a small movement is enough, yellow where no movement matters."""
    radius = results.radius[row].copy()
    if np.isnan(radius).all():
        from matplotlib.colors import ListedColormap

        colours = ListedColormap([_DARK, _YELLOW]).with_extremes(bad=_GREY)
        shown = np.where(results.examined[row], results.unimportant[row], np.nan)
        axis.imshow(
            shown.reshape(shape),
            cmap=colours,
            vmin=0,
            vmax=1,
            interpolation="nearest",
        )
        axis.set_title("cannot change the answer alone (yellow)", fontsize=10)
        return
    finite = np.isfinite(radius) & results.examined[row]
    largest = float(radius[finite].max()) if finite.any() and radius[finite].max() > 0.0 else 1.0
    shown = np.where(finite, radius, largest * 1.15)
    shown = np.where(results.examined[row], shown, np.nan)
    drawn = axis.imshow(
        shown.reshape(shape), cmap="viridis", vmin=0.0, vmax=largest * 1.15, interpolation="nearest"
    )
    bar = figure.colorbar(drawn, ax=axis, shrink=0.85)
    ticks = [0.0, largest / 2.0, largest, largest * 1.15]
    bar.set_ticks(ticks, labels=[f"{tick:.3g}" for tick in ticks[:3]] + ["never"])
    never = int((results.unimportant[row] & results.examined[row]).sum())
    axis.set_title(
        f"radius of each feature alone ({never} of {len(radius)} never matter)", fontsize=10
    )


def _bar_chart(results: FeatureResults | Reasons, row: int) -> "Figure":
    if isinstance(results, Reasons):
        return _anchor_bars(results, row)
    radius, examined = results.radius[row], results.examined[row]
    if np.isnan(radius).all():
        strength = np.where(results.unimportant[row] | ~examined, np.inf, 0.5)
    else:
        strength = np.where(examined, radius, np.inf)
    order = np.argsort(strength, kind="stable")
    moving = [int(f) for f in order if np.isfinite(strength[f])][:_BARS]
    n_more = int(np.isfinite(strength).sum()) - len(moving)
    n_never = int((results.unimportant[row] & examined).sum())
    figure = _new_figure(6.4, 1.2 + 0.26 * max(len(moving), 1))
    axis = figure.subplots()
    if not moving:
        axis.text(0.5, 0.5, "no feature alone changes the answer", ha="center", va="center")
        axis.set_axis_off()
        return figure
    heights = [float(strength[f]) for f in moving]
    axis.barh(range(len(moving)), heights, color=_DARK, height=0.7)
    axis.set_yticks(range(len(moving)), labels=[results.name(f) for f in moving], fontsize=8)
    axis.invert_yaxis()
    axis.set_ylim(len(moving) - 0.4, -0.6)
    if np.isnan(radius).all():
        axis.set_xticks([])
        axis.set_xlabel("features that alone can change the answer")
    else:
        for place, height in enumerate(heights):
            axis.annotate(
                f"{height:.4g}", (height, place), xytext=(4, 0), textcoords="offset points",
                va="center", fontsize=7, color="#444444",
            )  # fmt: skip
        axis.margins(x=0.12)
        axis.set_xlabel("smallest movement of the feature alone that changes the answer")
    axis.spines[["top", "right"]].set_visible(False)
    rest = f", {n_more} more change it later" if n_more else ""
    axis.set_title(
        f"row {results.row[row]}{_label(results, row)}: {n_never} features never change it{rest}",
        fontsize=9,
        loc="left",
    )
    return figure


def _anchor_bars(results: Reasons, row: int) -> "Figure":
    names = results.names(row)
    figure = _new_figure(6.4, 1.0 + 0.26 * max(len(names), 1))
    axis = figure.subplots()
    axis.barh(range(len(names)), [1.0] * len(names), color=_DARK, height=0.7)
    axis.set_yticks(range(len(names)), labels=names, fontsize=8)
    axis.invert_yaxis()
    axis.set_xticks([])
    axis.spines[["top", "right", "bottom"]].set_visible(False)
    title = f"row {results.row[row]}{_label(results, row)}: {_anchor_title(results, row)}"
    axis.set_title(title, fontsize=9, loc="left")
    return figure


def _anchor_title(results: Reasons, row: int) -> str:
    if not results.sufficient[row]:
        return "already broken"
    minimal = "a minimal set" if results.minimal[row] else "a sufficient set"
    return f"{minimal} of {len(results.features[row])} features fixes the answer"


def _label(results: FeatureResults | Reasons, row: int) -> str:
    label = results.label[row]
    return "" if label is None else f" (class {label})"
