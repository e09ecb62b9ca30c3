"""Rows as users have them (NumPy, pandas, polars, lists) as one float64 matrix."""

import re
from typing import Any

import numpy as np

from treeproof.errors import InvalidInput
from treeproof.model.ensemble import Ensemble, FloatArray

_GENERIC_NAME = re.compile(r"(?:f|x|column_?|feature_?|col_?|)\d+", re.IGNORECASE)


def numeric_rows(ensemble: Ensemble, X: Any) -> FloatArray:
    """Rows as float64 (n_rows, n_features) in the model's column order, checked.

    Columns of data frames are matched to the model's feature names; generic names such as ``f0``
    or ``Column_0``, on either side, match by position. Raw categories become codes.
    """
    matrix = _matrix(ensemble, X)
    if matrix.ndim != 2 or matrix.shape[1] != ensemble.n_features:
        raise InvalidInput(
            f"Rows must form a matrix with {ensemble.n_features} columns, one per feature."
            f" Got shape {matrix.shape}."
        )
    if not ensemble.missing_allowed and np.isnan(matrix).any():
        row, column = np.argwhere(np.isnan(matrix))[0]
        raise InvalidInput(
            "This model has no rule for missing values, so rows must not contain NaN."
            f" Got NaN in row {row}, column {column}. Impute it as in training."
        )
    if not ensemble.infinite_allowed and np.isinf(_cast(ensemble, matrix)).any():
        row, column = np.argwhere(np.isinf(_cast(ensemble, matrix)))[0]
        raise InvalidInput(
            f"The {ensemble.provenance.library} model refuses infinite values and values beyond"
            f" {ensemble.input_precision}. Got {matrix[row, column]} in row {row}, column {column}."
        )
    return matrix


def _cast(ensemble: Ensemble, matrix: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return matrix.astype(ensemble.input_precision)


def _matrix(ensemble: Ensemble, X: Any) -> FloatArray:
    if hasattr(X, "columns") and not isinstance(X, np.ndarray):
        return _from_frame(ensemble, X)
    if hasattr(X, "toarray"):
        raise InvalidInput(
            "Rows must be dense, because libraries disagree on whether an absent entry is zero or"
            f" missing. Got {type(X).__name__}. Call .toarray() for zeros, or fill NaN for missing."
        )
    try:
        matrix = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"Rows must be numbers. Got {type(X).__name__}: {error}.") from error
    return np.ascontiguousarray(matrix)


def _from_frame(ensemble: Ensemble, X: Any) -> FloatArray:
    import narwhals as nw

    frame = nw.from_native(X, eager_only=True)
    columns = [frame[name] for name in _column_order(ensemble, list(frame.columns))]
    matrix = np.empty((len(frame), len(columns)), dtype=np.float64)
    for number, column in enumerate(columns):
        matrix[:, number] = _column_values(ensemble, number, column)
    return matrix


def _column_order(ensemble: Ensemble, columns: list[str]) -> list[str]:
    names = list(ensemble.feature_names)
    generic = all(_GENERIC_NAME.fullmatch(name) for name in names)
    if not names or generic or all(_GENERIC_NAME.fullmatch(str(name)) for name in columns):
        if len(columns) != ensemble.n_features:
            raise InvalidInput(
                f"Rows must have {ensemble.n_features} columns, one per feature."
                f" Got {len(columns)}."
            )
        return columns
    absent = [name for name in names if name not in columns]
    if absent:
        raise InvalidInput(
            "Column names must match the model's feature names."
            f" Missing: {', '.join(map(repr, absent[:5]))}{' …' if len(absent) > 5 else ''}."
            " Rename the columns, or pass a plain array in the model's order."
        )
    return names


def _column_values(ensemble: Ensemble, number: int, column: Any) -> FloatArray:
    raw = ensemble.categories.get(number)
    if raw is not None:
        code = {value: float(position) for position, value in enumerate(raw)}
        return np.array([code.get(value, np.nan) for value in column.to_list()], dtype=np.float64)
    try:
        return np.array(
            [np.nan if value is None else float(value) for value in column.to_list()],
            dtype=np.float64,
        )
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"Column {column.name!r} must hold numbers, since the model does not know it as a"
            f" categorical feature: {error}."
        ) from error
