"""Where an attacker can put each row: a box per row, from what perturbations say."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, UnsupportedQuery
from treeproof.query.perturbations import Box, LInf, PerRow, resolve

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RowBoxes:
    """Rows and the boxes around them, as doubles that decide ``x < T`` exactly.

    NaN is missing, which stays so.
    """

    rows: FloatArray
    low: FloatArray
    high: FloatArray

    def __len__(self) -> int:
        return len(self.rows)

    def taken(self, selection: Any) -> "RowBoxes":
        """The boxes of a selection of rows."""
        return RowBoxes(self.rows[selection], self.low[selection], self.high[selection])


def boxes_around(
    rows: NDArray[np.floating],
    perturbation: LInf | Box,
    names: Sequence[str] = (),
) -> RowBoxes:
    """Boxes in which a perturbation lets rows move.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        NaN is missing.
    perturbation : LInf or Box
        How rows may move; other sets are no boxes, which this needs.
    names : sequence of str
        Names of the features, where the perturbation uses them.
    """
    values = np.ascontiguousarray(rows, dtype=np.float64)
    if not isinstance(perturbation, LInf | Box):
        raise UnsupportedQuery(
            "Training takes sets in which every feature moves by itself, LInf and Box."
            f" Got {type(perturbation).__name__}; train against the LInf that contains it."
        )
    if getattr(perturbation, "domain", None) is not None or getattr(
        perturbation, "relative", False
    ):
        raise UnsupportedQuery(
            "Training takes no 'domain' and no 'relative'. Say with 'scale', 'below', 'above',"
            " 'frozen', 'low' and 'high' of LInf how far each feature moves."
        )
    radius = 0.0
    if isinstance(perturbation, LInf):
        if perturbation.eps is None or isinstance(perturbation.eps, PerRow):
            raise InvalidInput("To train, LInf must have one radius for all rows, as LInf(0.1).")
        if not isinstance(perturbation.eps, int | float) or not perturbation.eps >= 0.0:
            raise InvalidInput(
                f"'eps' of LInf must be a number of at least 0. Got {perturbation.eps!r}."
            )
        radius = float(perturbation.eps)
    reach = resolve(perturbation, values, names)
    low, high = reach.box(values, radius)
    return RowBoxes(
        values,
        np.ascontiguousarray(np.where(np.isnan(values), np.nan, low)),
        np.ascontiguousarray(np.where(np.isnan(values), np.nan, high)),
    )
