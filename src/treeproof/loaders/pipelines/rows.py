"""Rows of a folded model as the pipeline takes them, and asking a pipeline in silence."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from treeproof.loaders.base import CannotAnswer
from treeproof.loaders.sklearn.shared import UNKNOWN_TEXT
from treeproof.model.ensemble import FloatArray


@contextmanager
def quietly() -> Iterator[None]:
    """Let steps and models answer unknown categories, infinite numbers, plain arrays in silence."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True, slots=True)
class RawRows:
    """Turns float64 rows into arrays or data frames with raw categories."""

    names: tuple[str, ...]
    """Names of the columns where the pipeline goes by names; otherwise none."""
    categories: dict[int, tuple[Any, ...]]
    objects: set[int]
    """Columns of objects, be they numbers."""
    accepted: list[tuple[float, float]]
    """Numbers of each column that the pipeline answers. Sound: no test changes outside of them, so
    that a number beyond may be replaced by the nearest one among them."""

    def __call__(self, rows: FloatArray) -> Any:
        """Rows as the pipeline takes them."""
        low, high = np.array(self.accepted).T
        numbers = np.clip(rows, low, high)
        if not self.names and not self.objects and not self.categories:
            return numbers
        columns = [
            _raw_values(self.categories[number], rows[:, number])
            if number in self.categories
            else (column.astype(object) if number in self.objects else column)
            for number, column in enumerate(numbers.T)
        ]
        if not self.names:
            return np.array(columns, dtype=object).T
        try:
            import pandas as pd
        except ImportError as error:
            raise CannotAnswer("the pipeline takes data frames, and pandas is missing") from error
        return pd.DataFrame(dict(zip(self.names, columns, strict=True)))


def _raw_values(known: tuple[Any, ...], codes: FloatArray) -> np.ndarray[Any, Any]:
    raw = np.empty(len(codes), dtype=object)
    for row, code in enumerate(codes.tolist()):
        is_known = code.is_integer() and 0 <= code < len(known)
        raw[row] = known[int(code)] if is_known else UNKNOWN_TEXT
    return raw
