"""Pictures of results for notebooks. matplotlib is imported when something is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, require_backend
from treeproof.results.changes import Change, Naming, in_words
from treeproof.results.curves import attacked_rows
from treeproof.results.display import VerifiedAccuracyDisplay, shown_radii
from treeproof.results.groups import group_columns, grouped
from treeproof.results.numbers import (
    ColumnFormats,
    counted,
    digits_above,
    number,
    percent_down,
    row_name,
)
from treeproof.results.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]

_LABELS = 8
"""Most classes that have a colour of their own."""

_BINS, _ROOM, _DOT = 60, 0.4, 0.08
"""Places across a picture in which dots are stacked, room for a stack, and for one dot."""

_DIGITS = 4


def draw_changed_features(results: Results, most: int, ax: Axes | None) -> Axes:
    """Dots of what the witnesses change; `Results.plot_features` explains them."""
    _check_most(most)
    rows, values = _broken(results)
    changes: dict[tuple[int, ...], list[tuple[int, Change]]] = {}
    for row in rows.tolist():
        for change in results.changes(row):
            changes.setdefault(change.features, []).append((row, change))
    chosen = sorted(changes.items(), key=lambda item: (-len(item[1]), item[0]))[:most]
    ax = _axes(ax, high=1.2 + 0.45 * len(chosen))
    naming, names, moves = Naming(results.header), [], []
    for axis, found in chosen:
        sizes = [_size(change) for _, change in found]
        typical = [size for size in sizes if size is not None]
        by = f", by {number(float(np.median(np.abs(typical))), _DIGITS)}" if typical else ""
        names.append(f"{naming.axis(axis[0])}\n{counted(len(found), 'row')}{by}")
        spread = _spread(values[:, axis[0]])
        moves.append([None if size is None else size / spread for size in sizes])
    reach = max((abs(move) for line in moves for move in line if move is not None), default=1.0)
    by_label: dict[str, list[tuple[float, float]]] = {}
    squares: list[tuple[float, float]] = []
    for line, ((_, found), own) in enumerate(zip(chosen, moves, strict=True)):
        heights = _stacked(np.array([move or 0.0 for move in own]), reach)
        for (row, _), move, height in zip(found, own, heights.tolist(), strict=True):
            place = (move or 0.0, line + height)
            label = "" if results.label[row] is None else str(results.label[row])
            (squares if move is None else by_label.setdefault(label, [])).append(place)
    one = len(by_label) > _LABELS
    for label, places in sorted(by_label.items()):
        shown: dict[str, Any] = {"color": "C0"} if one else {"label": label or None}
        across, down = zip(*places, strict=True)
        ax.scatter(across, down, s=14, alpha=0.75, linewidths=0, **shown)
    if squares:
        across, down = zip(*squares, strict=True)
        ax.scatter(across, down, s=14, marker="s", color="grey", label="no size")
    ax.axvline(0.0, color="grey", linewidth=0.8, zorder=0)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set_xlim(-1.1 * reach, 1.1 * reach)
    ax.set(xlabel="change, in standard deviations of the feature")
    if ax.get_legend_handles_labels()[1]:
        ax.legend(title="label", loc="best")
    return ax


def draw_nearest_rows(results: Results, most: int, ax: Axes | None) -> Axes:
    """Bars of least changes, with words; `Results.plot_rows` explains them."""
    _check_most(most)
    rows, values = _broken(results)
    distance = results.upper if results.asks_radius else results.witness_distance
    order = rows[np.lexsort((rows, distance[rows]))][:most]
    formats = ColumnFormats(values)
    lengths = [float(at) if np.isfinite(at) else 0.0 for at in distance[order]]
    ax = _axes(ax, high=1.0 + 0.45 * len(order))
    bars = ax.barh(range(len(order)), lengths, height=0.55, alpha=0.35)
    for place, (row, bar) in enumerate(zip(order.tolist(), bars, strict=True)):
        becomes = "" if results.witness_label is None else results.witness_label[row]
        words = in_words(results.changes(row), formats)
        words += f"; becomes {becomes}" if becomes not in (None, "") else ""
        near = number(digits_above(lengths[place], _DIGITS), _DIGITS) if lengths[place] else ""
        # Words begin at the left side, so that none of them is cut off behind a long bar.
        ax.annotate(
            "   ".join(filter(None, [near, words])),
            (0.0, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
        )
        bar.set_gid(str(row))
    ids = [None if results.id is None else results.id[row] for row in order]
    names = [f"row {row_name(results.row[row], own)}" for row, own in zip(order, ids, strict=True)]
    ax.set_yticks(range(len(order)), names)
    ax.set_ylim(len(order) - 0.5, -0.5)
    is_cost = results.header.get("question", {}).get("perturbation", {}).get("name") == "Cost"
    ax.set(xlabel=f"{'cost' if is_cost else 'size'} of the change that breaks the row")
    return ax


def draw_groups(results: Results, groups: Any, eps: float | None, ax: Axes | None) -> Axes:
    """Bars or curves of groups; `Results.plot_groups` explains them."""
    title = groups if isinstance(groups, str) else None
    if eps is None and results.asks_radius:
        parts = [(name, p) for name, p in grouped(results, groups) if attacked_rows(p).any()]
        ax = _axes(ax, high=4.8)
        radii, is_dashed = shown_radii(results), False
        for name, part in parts:
            label = f"{name}, {counted(int(attacked_rows(part).sum()), 'row')}"
            display = VerifiedAccuracyDisplay.from_results(part, radii=radii, ax=ax, label=label)
            if display.resisting_line_ is not None:
                display.resisting_line_.set_label("_resisting")
                is_dashed = True
        said = [title or "certified", *["dashed: resisting"] * is_dashed]
        ax.legend(title="\n".join(said), loc="best")
        return ax
    table = group_columns(results, groups, eps)
    lines = range(len(table["group"]))
    ax = _axes(ax, high=1.4 + 0.5 * len(lines))
    verified, resisting = (np.nan_to_num(table[name]) for name in ("verified", "resisting"))
    ax.barh(lines, verified, height=0.6, color="C0", alpha=0.45, label="verified")
    if np.any(resisting > verified):
        ax.barh(
            lines, resisting - verified, left=verified, height=0.6, color="none", hatch="///",
            edgecolor="C1", label="undecided",
        )  # fmt: skip
    if not np.isnan(table["correct"]).all():
        ax.plot(table["correct"], lines, "|", color="black", markersize=16, label="correct as is")
    names = [
        f"{name}\n{counted(n, 'row')}"
        for name, n in zip(table["group"], table["rows"], strict=True)
    ]
    ax.set_yticks(lines, names)
    for line, (n, share) in enumerate(zip(table["rows"], verified.tolist(), strict=True)):
        ax.annotate(
            percent_down(round(share * n), n),
            (0.0, line),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
        )
    ax.set_ylim(len(lines) - 0.5, -0.5)
    where = "" if eps is None else f" at {number(eps, _DIGITS)}"
    ax.set(xlabel=f"verified accuracy{where}", xlim=(0.0, 1.02), ylabel=title or "")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def _check_most(most: int) -> None:
    if not isinstance(most, int | np.integer) or most < 1:
        raise InvalidInput(f"'most' must be a whole number from 1 on. Got {most!r}.")


def _broken(results: Results) -> tuple[NDArray[np.int64], FloatArray]:
    """Places of rows whose changes are known, attacked and not wrong as they stand; all values."""
    has_witness = ~np.isnan(results.witness).all(axis=1)
    rows = np.flatnonzero(has_witness & attacked_rows(results) & ~results.misclassified)
    if results.values is None or len(rows) == 0:
        why = "hold no rows" if results.values is None else "have none"
        raise InvalidInput(
            f"A picture of changes needs rows that a change breaks. These results {why}."
        )
    return rows, results.values


def _size(change: Change) -> float | None:
    """By how much a change moves a feature; None where that is no number."""
    if len(change.features) == 1 and all(
        isinstance(side, float) for side in (change.before, change.after)
    ):
        return float(change.after - change.before)
    return None


def _spread(column: FloatArray) -> float:
    """Standard deviation of a feature among all rows; 1 where it is the same in all of them."""
    column = column[np.isfinite(column)]
    return (float(np.std(column)) if len(column) else 0.0) or 1.0


def _stacked(places: NDArray[np.float64], reach: float) -> NDArray[np.float64]:
    """Heights of dots around their line, so that those at the same place do not hide each other."""
    bins = np.round(places / (reach or 1.0) * _BINS).astype(np.int64)
    heights = np.zeros(len(places))
    for at in np.unique(bins).tolist():
        own = np.flatnonzero(bins == at)
        step = min(_DOT, 2.0 * _ROOM / max(len(own) - 1, 1))
        heights[own] = step * (np.arange(len(own)) - (len(own) - 1) / 2.0)
    return heights


def _axes(ax: Axes | None, *, high: float) -> Axes:
    """The given axes, or those of a new figure of some inches of height."""
    require_backend("matplotlib", "plot")
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(8.0, max(high, 2.4)), layout="constrained")[1]
