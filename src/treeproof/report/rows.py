"""Single rows: cards of the most telling ones, and the columns of the table of all rows."""

import base64
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.query.description import plain
from treeproof.report.images import change_image, grey_image, grey_levels
from treeproof.report.runs import RunView, row_name
from treeproof.results.curves import certified_at_lower
from treeproof.results.numbers import digits_above, digits_below, number, percent
from treeproof.results.threat import units_of

CARDS = 6
"""Rows in each gallery."""

CHANGES_ON_CARD = 8
CHANGES_IN_TABLE = 12
_MOST_CHANGES = 50_000
"""Changes of all rows that a page holds; where there are more, those of each row are cut."""

_MOST_PIXELS = 2_000_000
"""Images of all rows are put into the page only up to this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pixels:
    """Images: their shape and the values that are black and white."""

    shape: tuple[int, int]
    low: float
    high: float


def pixels_of(runs: list[RunView], shape: tuple[int, int] | None) -> Pixels | None:
    """Choose black and white once for all rows, so that images can be compared."""
    values = runs[0].results.values
    if shape is None or values is None or not np.isfinite(values).any():
        return None
    finite = values[np.isfinite(values)]
    return Pixels(shape=shape, low=float(finite.min()), high=float(finite.max()))


def fragile_rows(run: RunView) -> list[int]:
    """Positions of the rows that break first, of those that hold unchanged."""
    if not run.has_radii:
        found = np.flatnonzero(run.has_witness)
    else:
        candidates = np.flatnonzero(run.has_witness & np.isfinite(run.results.upper))
        found = candidates[np.argsort(run.results.upper[candidates], kind="stable")]
    return [int(i) for i in found[:CARDS]]


def robust_rows(run: RunView) -> list[int]:
    """Positions of the attacked rows with the largest proved radii."""
    if not run.has_radii:
        found = np.flatnonzero((run.results.verdict == "verified") & run.attacked)
    else:
        candidates = np.flatnonzero(~run.broken & run.attacked & (run.results.lower > 0.0))
        # Rows with a witness come first among equals: they have something to show.
        key = np.lexsort((~run.has_witness[candidates], -run.results.lower[candidates]))
        found = candidates[key]
    return [int(i) for i in found[:CARDS]]


def largest_gains(one: RunView, other: RunView) -> list[int]:
    """Positions, in the first run, of the rows whose radius differs most between runs."""
    places = {int(row): i for i, row in enumerate(other.results.row)}
    pairs = [(i, places[int(row)]) for i, row in enumerate(one.results.row) if int(row) in places]
    gains = [
        (abs(float(other.shown_radius[j]) - float(one.shown_radius[i])), i)
        for i, j in pairs
        if one.attacked[i]
        and other.attacked[j]
        # From a radius to none is the largest difference; between two of them there is none.
        and np.isfinite([one.shown_radius[i], other.shown_radius[j]]).any()
    ]
    gains.sort(key=lambda pair: -pair[0])
    return [i for gain, i in gains[:CARDS] if gain > 0.0]


def card(runs: list[RunView], position: int, pixels: Pixels | None) -> dict[str, Any]:
    """One row with its witnesses, given by its position in the first run."""
    first = runs[0].results
    row = int(first.row[position])
    views = []
    for k, run in enumerate(runs):
        found = np.flatnonzero(run.results.row == row)
        if len(found):
            views.append(_view(run, k, int(found[0]), pixels))
    image = None
    if pixels is not None and first.values is not None:
        image = grey_image(first.values[position], pixels.shape, pixels.low, pixels.high)
    return {
        "row": row,
        "name": row_name(first, position),
        "label": text_of(first.label[position]),
        "image": image,
        "views": views,
    }


def _view(run: RunView, k: int, i: int, pixels: Pixels | None) -> dict[str, Any]:
    """What one run says about the row of a card."""
    results, has_changes = run.results, run.changed is not None and bool(run.has_witness[i])
    changes, n_changes = changes_of(run, i, CHANGES_ON_CARD)
    image = difference = None
    if pixels is not None and has_changes:
        image = grey_image(results.witness[i], pixels.shape, pixels.low, pixels.high)
        difference = change_image(run.moves[i], pixels.shape)
    becomes = results.witness_label if run.has_witness[i] else None
    return {
        "run": k,
        "run_name": run.name,
        "measure": run.measure,
        "radius": radius_words(run, i),
        "state": state_words(run, i),
        "predicted": "" if results.predicted is None else text_of(results.predicted[i]),
        "becomes": "" if becomes is None else text_of(becomes[i]),
        "likely": _likely_words(run, i),
        "changes": changes,
        "n_changes": n_changes,
        "n_features": len(run.naming.axes(results.witness.shape[1])),
        "image": image,
        "change_image": difference,
    }


def _likely_words(run: RunView, i: int) -> str:
    """Probability of the row's own label before and after; nothing where it is not known."""
    results = run.results
    if results.probability is None or results.witness_probability is None:
        return ""
    shares = float(results.probability[i]), float(results.witness_probability[i])
    if math.isnan(sum(shares)) or results.predicted is None:
        return ""
    before, after = map(percent, shares)
    return f"probability of {text_of(results.predicted[i])}: {before} → {after}"


def _by_size(run: RunView, i: int) -> list[int]:
    """Features that the witness of a row changes, largest change first, in units of the radius."""
    if run.changed is None or not run.has_witness[i]:
        return []
    changed = np.flatnonzero(run.changed[i])
    moves, scale = np.abs(run.moves[i, changed]), units_of(run.header)[changed]
    size = np.where(scale > 0.0, moves / np.where(scale > 0.0, scale, 1.0), moves)
    order = [int(f) for f in changed[np.argsort(-size, kind="stable")]]
    # The columns of a group are one feature: the first of them that changes stands for all.
    return list({run.axis_of[f]: f for f in reversed(order)}.values())[::-1]


def changes_of(run: RunView, i: int, most: int) -> tuple[list[dict[str, str]], int]:
    """The largest changes of a row's witness in words, and how many there are."""
    order = _by_size(run, i)
    return [_change(run, i, feature) for feature in order[:most]], len(order)


def _change(run: RunView, i: int, feature: int) -> dict[str, str]:
    """One feature of a row and of its witness, in words."""
    axis = run.axis_of[feature]
    rows = run.rows[i], run.results.witness[i], run.shown[i]
    said = run.naming.change(axis, *(row[list(axis)].tolist() for row in rows))
    shown = said.written(run.formats[feature])
    return {
        "name": said.name,
        "original": shown.before,
        "changed": shown.after,
        "difference": shown.difference,
    }


def radius_words(run: RunView, i: int) -> str:
    """Radius of a row, or its bounds."""
    lower, upper = float(run.results.lower[i]), float(run.results.upper[i])
    if math.isnan(lower) or (run.is_attack and math.isinf(upper)):
        return ""
    if not run.attacked[i]:
        return ""
    if run.is_attack and not run.broken[i]:
        return f"≤ {number(digits_above(upper))}"
    if run.recourse and math.isfinite(upper):
        return number(digits_above(upper))
    if run.results.asks_radius and run.results.exact[i]:
        return number(digits_below(lower))
    if math.isinf(upper):
        return f"≥ {number(digits_below(lower))}"
    if lower == 0.0:
        return f"≤ {number(digits_above(upper))}"
    return f"{number(digits_below(lower))} to {number(digits_above(upper))}"


def state_words(run: RunView, i: int) -> str:
    """Say in a word or two what is known of a row."""
    if not run.attacked[i]:
        return "not attacked"
    if run.broken[i]:
        return "wrong as it stands"
    verdict = str(run.results.verdict[i])
    if run.is_attack:
        return "broken by this change" if run.has_witness[i] else "no breaking change found"
    if verdict == "unknown":
        return f"undecided: {run.results.reason[i]}" if run.results.reason[i] else "undecided"
    if run.recourse:
        return "a way" if run.has_witness[i] else "no way, proved"
    if run.results.asks_radius:
        return "cannot be broken" if math.isinf(run.results.lower[i]) else "exact"
    return verdict


def text_of(label: Any) -> str:
    """A label as text; nothing for scores."""
    return "" if label is None else str(label)


def table_columns(run: RunView) -> dict[str, Any]:
    """Columns of one run for the page's own script: compact, but with every bit of the bounds."""
    results = run.results
    n_changes = 0 if run.changed is None else int(run.changed.sum())
    most = results.witness.shape[1] if n_changes <= _MOST_CHANGES else CHANGES_IN_TABLE
    changes = [_changes(run, i, most) for i in range(len(results))]
    used = {feature for flat in changes if flat for feature in flat[1::4]}
    return {
        "name": run.name,
        "attack": run.is_attack,
        "radii": run.has_radii,
        "features": {str(feature): run.naming.axis(feature) for feature in sorted(used)},
        "row": results.row.tolist(),
        "idName": run.id_name,
        "id": _texts(results.id),
        "eps": None if results.eps is None else results.eps.tolist(),
        "label": [text_of(label) for label in results.label],
        "predicted": _texts(results.predicted),
        "becomes": _texts(results.witness_label),
        "verdict": "".join(str(verdict)[0] for verdict in results.verdict),
        "lower": plain(results.lower.tolist()),
        "upper": plain(results.upper.tolist()),
        "closed": _flags(certified_at_lower(results)),
        "attained": _flags(results.attained),
        "broken": _flags(run.broken),
        "attacked": _flags(run.attacked),
        "exact": _flags(results.exact),
        "seconds": [float(f"{value:.3g}") for value in results.seconds],
        "reason": [str(reason) for reason in results.reason],
        "changes": changes,
    }


def _texts(labels: NDArray[Any] | None) -> list[str] | None:
    return None if labels is None else [text_of(label) for label in labels]


def _flags(values: NDArray[np.bool_]) -> str:
    return "".join("1" if value else "0" for value in values)


def _changes(run: RunView, i: int, most: int) -> list[Any] | None:
    """Number of changes, then feature, value and changed value of the largest ones."""
    if run.changed is None or not run.has_witness[i]:
        return None
    order = _by_size(run, i)
    flat: list[Any] = [len(order)]
    for feature in order[:most]:
        change = _change(run, i, feature)
        flat += [feature, change["original"], change["changed"], change["difference"]]
    return flat


def pixel_payload(run: RunView, pixels: Pixels | None) -> dict[str, Any] | None:
    """Images of all rows and witnesses as bytes in base64, where they are small enough."""
    values = run.results.values
    if pixels is None or values is None or values.size > _MOST_PIXELS:
        return None
    encoded = [
        base64.b64encode(grey_levels(part, pixels.low, pixels.high).tobytes()).decode("ascii")
        for part in (values, run.results.witness)
    ]
    return {"shape": list(pixels.shape), "values": encoded[0], "witness": encoded[1]}
