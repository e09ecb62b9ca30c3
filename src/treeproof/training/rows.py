"""Rows to train on."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """Checked rows with their labels."""

    X: NDArray[np.float32]  # (n_rows, n_features); NaN is missing
    targets: NDArray[np.int64]  # class numbers
    weights: NDArray[np.float64]  # all above 0

    def taken(self, rows: NDArray[Any]) -> "TrainingRows":
        """Return some of the rows, by numbers or a mask."""
        return TrainingRows(self.X[rows], self.targets[rows], self.weights[rows])

    def merged(self) -> "TrainingRows":
        """Rows that are the same as one with their weight, in an order that no caller decides.

        So neither the order of rows nor copies instead of weights change what is trained.
        """
        bits = (self.X + np.float32(0.0)).view(np.uint32)  # no -0.0
        table = np.ascontiguousarray(np.column_stack([bits, self.targets.astype(np.uint32)]))
        keys = table.view(np.dtype((np.void, table.itemsize * table.shape[1]))).ravel()
        _, first, place = np.unique(keys, return_index=True, return_inverse=True)
        merged = self.taken(first)
        weights = np.bincount(place, self.weights).astype(np.float64)
        return TrainingRows(merged.X, merged.targets, weights)
