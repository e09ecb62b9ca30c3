"""`Spread`: how far the columns of rows spread, block by block."""

from typing import Literal

import numpy as np

from treeproof.model.ensemble import FloatArray


class Spread:
    """Standard deviation and range of each column of rows that come in blocks.

    Missing entries are left out; a constant column has spread 0, which freezes it.
    """

    def __init__(self, n_features: int) -> None:
        self._count, self._mean, self._squares = np.zeros((3, n_features))
        self._least = np.full(n_features, np.inf)
        self._largest = np.full(n_features, -np.inf)

    def add(self, values: FloatArray) -> None:
        """Take in a block of rows."""
        present = np.isfinite(values)
        added = present.sum(axis=0)
        values = np.where(present, values, 0.0)
        mean = values.sum(axis=0) / np.maximum(added, 1)
        deviation = np.where(present, values - mean, 0.0)
        # Means and squares of two parts are joined as Chan, Golub and LeVeque do.
        total = np.maximum(self._count + added, 1)
        shift = np.where(added > 0, mean - self._mean, 0.0)
        self._squares += (deviation**2).sum(axis=0) + shift**2 * self._count * added / total
        self._mean += shift * added / total
        self._count += added
        self._least = np.minimum(self._least, np.where(present, values, np.inf).min(axis=0))
        self._largest = np.maximum(self._largest, np.where(present, values, -np.inf).max(axis=0))

    def of(self, kind: Literal["std", "range"]) -> FloatArray:
        """Spread of each column so far."""
        if kind == "range":
            return np.where(self._count > 0, self._largest - self._least, 0.0)
        deviation = np.sqrt(self._squares / np.maximum(self._count, 1))
        return np.where(self._largest > self._least, deviation, 0.0)
