"""Where an attacker can put each row: a box per row, from what perturbations say."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, UnsupportedQuery
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance
from treeproof.query.domain import ColumnTypes, column_types
from treeproof.query.perturbations import (
    L1,
    L2,
    All,
    Ball,
    Box,
    Cost,
    LInf,
    Part,
    PerRow,
    Reach,
    require_perturbation,
    resolve,
    tariff_of,
)
from treeproof.query.prices import Tariff

FloatArray = NDArray[np.float64]

_OUTWARD = 1.0 + 2.0**-40
"""Sound: more than all rounding of a distance that is worked out here."""


@dataclass(frozen=True, slots=True)
class RowBoxes:
    """Rows and the boxes around them, as doubles that decide ``x < T`` exactly.

    NaN is missing, which stays so. Where `holds_more`, rows cannot get everywhere in their boxes:
    the boxes hold sets of another form.
    """

    rows: FloatArray
    low: FloatArray
    high: FloatArray
    holds_more: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def taken(self, selection: Any) -> "RowBoxes":
        """The boxes of a selection of rows."""
        return RowBoxes(
            self.rows[selection], self.low[selection], self.high[selection], self.holds_more
        )


def columns_only(n_features: int, names: Sequence[str]) -> Ensemble:
    """A model of one leaf, which stands for the columns of rows where there is no model yet."""
    builder = TreeBuilder()
    nothing = np.array([-1])
    builder.add_tree(
        feature=nothing,
        threshold=np.zeros(1),
        left=nothing,
        right=nothing,
        flags=np.zeros(1, dtype=np.uint8),
        value=np.zeros(1),
        output=0,
    )
    return Ensemble(
        trees=builder.finish(),
        n_features=n_features,
        n_outputs=1,
        input_precision="float32",
        aggregation=Aggregation(precision="float32", start=(0.0,)),
        decision=Decision(kind="score"),
        feature_names=tuple(names),
        infinite_allowed=False,
        provenance=Provenance(library="treeproof"),
    )


def boxes_around(
    rows: NDArray[np.floating],
    perturbation: Ball | Box,
    names: Sequence[str] = (),
    *,
    model: Ensemble | None = None,
) -> RowBoxes:
    """Boxes in which a perturbation lets rows move.

    Trees see one feature at a time, so this is how far each gets alone: of sums of moves, counts
    and costs, with all that may be spent. Of a domain, whole and listed numbers, ranges, groups
    and categories are seen; rules between features are not.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        NaN is missing.
    perturbation : LInf, L1, L2, L0, Cost, All or Box
        How rows may move, with a limit.
    names : sequence of str
        Names of the features, where the perturbation uses them.
    model : Ensemble, optional
        Whose rows they are; its categories change only as a domain says.
    """
    values = np.ascontiguousarray(rows, dtype=np.float64)
    require_perturbation(perturbation)
    columns = columns_only(values.shape[1], names) if model is None else model
    parts = perturbation.parts if isinstance(perturbation, All) else (perturbation,)
    types = column_types(perturbation.domain, columns)
    if types.may_miss.any() or types.may_fill.any():
        raise UnsupportedQuery(
            "Training takes no domain in which values go missing or are filled in."
            " Leave 'may_miss' and 'may_fill' out, and verify with them."
        )
    low, high = np.full(values.shape, -np.inf), np.full(values.shape, np.inf)
    changes = np.ones(values.shape[1], dtype=bool)
    for part in parts:
        least, most, is_enough = _reached(part, values, columns.feature_names)
        low, high, changes = np.maximum(low, least), np.minimum(high, most), changes & is_enough
    if columns.is_categorical.any() or perturbation.domain is not None:
        low, high = _within_domain(types, values, low, high, changes)
    is_choice = columns.is_categorical.copy()
    is_choice[list(types.may_become)] = False
    with np.errstate(invalid="ignore"):
        # A ball holds the row itself, whatever bounds and the domain say of it.
        kept = is_choice | ~(low <= high)
        if not isinstance(perturbation, Box):
            low, high = np.minimum(low, values), np.maximum(high, values)
    return RowBoxes(
        values,
        np.ascontiguousarray(np.where(kept, values, low)),
        np.ascontiguousarray(np.where(kept, values, high)),
        holds_more=not all(isinstance(part, LInf | Box) for part in parts)
        or bool(types.values or types.groups or types.may_become or types.rules),
    )


def _reached(
    part: Part | Box, rows: FloatArray, names: Sequence[str]
) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """The ends of each feature alone, and whether it gets as far as a change of a choice."""
    if isinstance(part, Box):
        reach = resolve(part, rows, names)
        return reach.low, reach.high, np.ones(rows.shape[1], dtype=bool)
    what, limit = type(part).__name__, part.eps
    if limit is None or isinstance(limit, PerRow):
        raise InvalidInput(f"To train, {what} must have one radius for all rows, as {what}(0.1).")
    if not isinstance(limit, int | float | np.number) or not limit >= 0.0:
        raise InvalidInput(f"'eps' of {what} must be a number of at least 0. Got {limit!r}.")
    reach, radius = resolve(part, rows, names), float(limit)
    far, is_enough = _distances(part, tariff_of(part, reach, names), radius)
    if isinstance(part, L1 | L2 | LInf) and not part.relative:
        return *_ball_boxes(reach, rows, radius), is_enough
    size = np.abs(rows) if part.relative else 1.0
    with np.errstate(invalid="ignore"):
        moved = [np.where((side == 0.0) | (size == 0.0), 0.0, side * size) for side in far]
    low = np.where(moved[0] > 0.0, np.nextafter(rows - moved[0], -np.inf), rows)
    high = np.where(moved[1] > 0.0, np.nextafter(rows + moved[1], np.inf), rows)
    low, high = np.maximum(low, reach.low), np.minimum(high, reach.high)
    return np.minimum(low, rows), np.maximum(high, rows), is_enough


def _ball_boxes(reach: Reach, rows: FloatArray, radius: float) -> tuple[FloatArray, FloatArray]:
    """`Reach.box`, worked out once for every value of a feature: pixels have few."""
    low, high = np.empty_like(rows), np.empty_like(rows)
    for feature in range(rows.shape[1]):
        own = slice(feature, feature + 1)
        values, place = np.unique(rows[:, feature], return_inverse=True)
        one = replace(
            reach, down=reach.down[own], up=reach.up[own],
            low=reach.low[:1, own], high=reach.high[:1, own],
        )  # fmt: skip
        least, most = one.box(values[:, None], radius)
        low[:, feature], high[:, feature] = least[place, 0], most[place, 0]
    return low, high


def _distances(
    part: Part, tariff: Tariff, limit: float
) -> tuple[list[FloatArray], NDArray[np.bool_]]:
    """How far each feature gets down and up in its units, and whether that is a choice's change."""
    found = []
    for multiple, weight in (
        (tariff.below, tariff.weight_down), (tariff.above, tariff.weight_up)
    ):  # fmt: skip
        is_allowed = (multiple > 0.0) & (tariff.scale > 0.0) & np.isfinite(weight + tariff.fixed)
        with np.errstate(divide="ignore", invalid="ignore"):
            if tariff.is_count:
                far = np.where(limit * _OUTWARD * tariff.scale >= 1.0, np.inf, 0.0)
            else:
                far = (limit - tariff.fixed) * tariff.scale * multiple / weight * _OUTWARD
                far = np.where(weight == 0.0, np.inf, far)
                far = np.where(limit < tariff.fixed, 0.0, far)
        found.append(np.where(is_allowed, far, 0.0))
    is_enough: NDArray[np.bool_] = np.maximum(*found) >= 1.0
    if isinstance(part, Cost) and part.table:
        is_enough[:] = True  # what tables list may cost less than a move
    return found, is_enough


def _within_domain(
    types: ColumnTypes,
    rows: FloatArray,
    low: FloatArray,
    high: FloatArray,
    changes: NDArray[np.bool_],
) -> tuple[FloatArray, FloatArray]:
    """The parts of boxes between the first and the last value of a domain; rows stay in them."""
    low, high = np.maximum(low, types.low), np.minimum(high, types.high)
    low[:, types.integer] = np.ceil(low[:, types.integer])
    high[:, types.integer] = np.floor(high[:, types.integer])
    for feature, values in types.values.items():
        bounded = np.concatenate([[-np.inf], values, [np.inf]])
        first = np.searchsorted(values, low[:, feature], side="left")
        last = np.searchsorted(values, high[:, feature], side="right")
        low[:, feature], high[:, feature] = bounded[first + 1], bounded[last]
    for group, _ in types.groups:
        for feature in group:
            if changes[feature]:
                low[:, feature] = np.where(types.low[feature] > 0.0, 1.0, 0.0)
                high[:, feature] = np.where(types.high[feature] < 1.0, 0.0, 1.0)
            else:
                low[:, feature] = high[:, feature] = rows[:, feature]
    for feature, codes in types.may_become.items():
        low[:, feature] = high[:, feature] = rows[:, feature]
        for before, after in codes.items() if isinstance(codes, dict) else [(None, codes)]:
            own = changes[feature] & ((rows[:, feature] == before) | (before is None))
            if len(after):
                low[own, feature], high[own, feature] = after.min(), after.max()
    return low, high
