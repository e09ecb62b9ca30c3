"""Columns of HistGradientBoosting: categories are moved first and encoded before the trees."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, UnsupportedModel
from treeproof.loaders.sklearn.shared import feature_count
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import FloatArray

LARGEST_CATEGORY = 65_535
"""Largest raw number that a category may be; every split stores one bit per number below it."""

_UNKNOWN = -1.0
_UNKNOWN_TEXT = "\x00 a category that the model has never seen"


@dataclass(frozen=True, slots=True)
class Columns:
    """How columns of a row become the columns that the trees see."""

    feature: NDArray[np.int64]
    """Feature of the model behind each column of the trees."""
    codes: dict[int, Sequence[int]] = field(default_factory=dict)
    """Per categorical column of the trees: category in rows of the model, by the library's code."""
    categories: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    """Raw values in code order for features of the model whose categories are not numbers."""
    _sets: dict[tuple[int, ...], int] = field(default_factory=dict)

    @property
    def categorical(self) -> tuple[int, ...]:
        """Features of the model that hold categories."""
        return tuple(sorted(int(self.feature[column]) for column in self.codes))

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Read the preprocessor of a fitted HistGradientBoosting estimator."""
        n_features = feature_count(estimator)
        if getattr(estimator, "_preprocessor", None) is None:
            return cls(np.arange(n_features))
        mask = np.asarray(estimator.is_categorical_, dtype=bool)
        encoder = estimator._preprocessor.named_transformers_["encoder"]
        categorical = np.flatnonzero(mask)
        if mask.shape != (n_features,) or len(encoder.categories_) != len(categorical):
            raise BrokenModelFile("Every categorical column must have its list of categories.")
        columns = cls(np.concatenate([categorical, np.flatnonzero(~mask)]))
        for column, raw in enumerate(encoder.categories_):
            feature = int(categorical[column])
            known = [value for value in np.asarray(raw).tolist() if not _is_nan(value)]
            if all(isinstance(value, Real) for value in known):
                columns.codes[column] = _whole_numbers(known, feature)
            else:
                columns.codes[column] = range(len(known))
                columns.categories[feature] = tuple(known)
        return columns

    def add_set(
        self,
        builder: TreeBuilder,
        column: int,
        left_words: NDArray[np.uint32],
        *,
        known_side_is_left: bool,
    ) -> int:
        """Store the categories of one side of a split; return the number of the set.

        Bit c of `left_words`, uint32 (8,), is set iff the library's code c goes left. Equal sets
        are stored once.
        """
        if column not in self.codes:
            raise BrokenModelFile(f"Column {column} has a categorical split but no categories.")
        chosen = tuple(
            category
            for code, category in enumerate(self.codes[column])
            if bool(int(left_words[code // 32]) >> (code % 32) & 1) == known_side_is_left
        )
        if chosen not in self._sets:
            self._sets[chosen] = builder.add_category_set(chosen)
        return self._sets[chosen]

    def raw_rows(self, rows: FloatArray) -> Any:
        """Rows of the model as the estimator takes them, with raw categories."""
        if not self.codes:
            return rows
        features = [int(self.feature[column]) for column in self.codes]
        plain = rows.copy()
        # The library refuses an infinite category outright; here it is one it does not know.
        plain[:, features] = np.where(np.isinf(rows[:, features]), _UNKNOWN, rows[:, features])
        if not self.categories:
            return plain
        raw = plain.astype(object)
        for feature, known in self.categories.items():
            raw[:, feature] = [_raw_value(known, value) for value in plain[:, feature]]
        return raw


def _raw_value(known: tuple[Any, ...], code: float) -> Any:
    if np.isnan(code):
        return np.nan
    if code.is_integer() and 0 <= code < len(known):
        return known[int(code)]
    return _UNKNOWN_TEXT


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value  # noqa: PLR0124 - true for NaN only


def _whole_numbers(known: list[Any], feature: int) -> list[int]:
    for value in known:
        if value < 0 or value > LARGEST_CATEGORY or value != int(value):
            raise UnsupportedModel(
                f"Categories of feature {feature} must be text or whole numbers from 0 to"
                f" {LARGEST_CATEGORY}. Got {value!r}. Encode the column with small numbers, or as"
                " text, and train again."
            )
    codes = [int(value) for value in known]
    if sorted(set(codes)) != codes:
        raise BrokenModelFile(f"Categories of feature {feature} must rise, each listed once.")
    return codes
