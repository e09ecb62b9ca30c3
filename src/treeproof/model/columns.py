"""One column of a user's table as float64 numbers: values, or codes of categories."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput
from treeproof.model.category_hashes import category_codes
from treeproof.model.ensemble import CATEGORICAL, Ensemble, FloatArray

_EXACT_LIMIT = 2**53
_MISSING_TEXT = {"", "nan", "na", "n/a", "null", "none"}
_BOOLEAN_TEXT = {"true": 1.0, "false": 0.0}

_NOT_CATEGORICAL = "the model does not know it as a categorical feature"
_GARBLED = (
    "XGBoost garbles category names that are not ASCII and the model does not tell them; give the"
    " codes of training"
)

_REFUSES_UNKNOWN = {"xgboost"}
"""Libraries whose models refuse a category that training never saw; elsewhere it is missing.

XGBoost means to refuse such a category, but searches for it in a sorted list and takes the next one
it finds there for it (seen with 3.2), so only those after the last known one are refused.
"""


def exact_float64(array: NDArray[Any], what: str) -> FloatArray:
    """Numbers as float64; integers that would be rounded are refused."""
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size:
        largest = max(int(array.max()), -int(array.min()))
        if largest > _EXACT_LIMIT:
            raise InvalidInput(
                f"{what}: whole numbers must not exceed 2**53, beyond which floats round them."
                f" Got {largest} in absolute value. Convert to float64 yourself if that is meant."
            )
    return array.astype(np.float64, copy=False)


def column_values(
    ensemble: Ensemble, feature: int, column: Any, *, name: str, is_text: bool
) -> FloatArray:
    """Values of one feature as the model's comparisons take them.

    Parameters
    ----------
    ensemble : Ensemble
        The model.
    feature : int
        Which of its features the column is.
    column : list or narwhals Series
        The cells.
    name : str
        Name of the column, for messages.
    is_text : bool
        Whether the cells are text whose type is not known, as in a CSV file.

    Returns
    -------
    ndarray of float64
        Numbers, codes of categories, NaN where missing.
    """
    raw = ensemble.categories.get(feature)
    if raw is not None:
        cells = column if isinstance(column, list) else column.to_list()
        if raw == () and _library(ensemble) == "xgboost":
            # The order of the frame's own categories would be a guess, as XGBoost compares names.
            read = _numbers_of_text if is_text else _numbers_of_objects
            return read(cells, name, _GARBLED)
        if _library(ensemble) == "catboost":
            return category_codes(raw, cells, name=name)
        return _codes(ensemble, raw, cells, name=name, is_text=is_text)
    if is_text:
        return _numbers_of_text(column, name)
    if isinstance(column, list):
        return _numbers_of_objects(column, name)
    return _numbers_of_series(ensemble, feature, column, name)


def _numbers_of_series(ensemble: Ensemble, feature: int, column: Any, name: str) -> FloatArray:
    import narwhals as nw

    dtype = column.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        if dtype in (nw.Int64, nw.UInt64) and len(column):
            exact_float64(np.asarray(column.drop_nulls().to_numpy()), f"Column {name!r}")
        values: FloatArray = column.cast(nw.Float64).fill_null(float("nan")).to_numpy()
        return values
    is_encoded = dtype in (nw.Categorical, nw.Enum)
    if is_encoded and _library(ensemble) == "xgboost" and _is_categorical(ensemble, feature):
        return _native_codes(column, name)
    if dtype.is_temporal():
        raise InvalidInput(
            f"Column {name!r} must hold numbers. Got {dtype}. Convert it as in training."
        )
    return _numbers_of_objects(column.to_list(), name)


def _library(ensemble: Ensemble) -> str:
    """First word of the library's name: text dumps of XGBoost are XGBoost's, too."""
    return ensemble.provenance.library.partition(" ")[0].lower()


def _is_categorical(ensemble: Ensemble, feature: int) -> bool:
    trees = ensemble.trees
    return bool(((trees.feature == feature) & ((trees.flags & CATEGORICAL) > 0)).any())


def _native_codes(column: Any, name: str) -> FloatArray:
    """Position of each value among the column's own categories, which is what XGBoost takes."""
    import narwhals as nw

    if column.dtype == nw.Enum:
        order = list(column.dtype.categories)
    elif hasattr(column.to_native(), "cat") and hasattr(column.to_native().cat, "categories"):
        order = list(column.to_native().cat.categories)
    else:
        raise InvalidInput(
            f"Column {name!r} must hold category codes, since the model does not record its"
            " categories and this kind of column has no fixed order of them."
        )
    position = {value: float(number) for number, value in enumerate(order)}
    return np.array([position.get(value, math.nan) for value in column.to_list()])


def _numbers_of_objects(cells: list[Any], name: str, reason: str = _NOT_CATEGORICAL) -> FloatArray:
    return np.array([_number(cell, name, reason) for cell in cells], dtype=np.float64)


def _number(cell: Any, name: str, reason: str) -> float:
    if is_missing(cell):
        return math.nan
    if isinstance(cell, str | bytes):
        raise InvalidInput(f"Column {name!r} must hold numbers, since {reason}. Got {cell!r}.")
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"Column {name!r} must hold numbers: {error}.") from error
    if isinstance(cell, int | np.integer) and int(value) != int(cell):
        raise InvalidInput(
            f"Column {name!r}: whole numbers must not need more than 53 bits, beyond which floats"
            f" round them. Got {cell}."
        )
    return value


def is_missing(cell: Any) -> bool:
    """Whether a cell is None, NaN, or pandas' NA or NaT."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float | np.floating) and bool(np.isnan(cell))


def _numbers_of_text(cells: list[str], name: str, reason: str = _NOT_CATEGORICAL) -> FloatArray:
    try:
        # The common case first: a column of plain numbers, without a test per cell.
        return np.array(list(map(float, cells)), dtype=np.float64)
    except ValueError:
        values = np.empty(len(cells), dtype=np.float64)
        for row, cell in enumerate(cells):
            values[row] = _number_of_text(cell, name, row, reason)
        return values


def _number_of_text(cell: str, name: str, row: int, reason: str) -> float:
    word = cell.strip().lower()
    if word in _MISSING_TEXT:
        return math.nan
    if word in _BOOLEAN_TEXT:
        return _BOOLEAN_TEXT[word]
    try:
        return float(word)
    except ValueError:
        raise InvalidInput(
            f"Column {name!r} must hold numbers, since {reason}. Got {cell!r} in row {row}."
        ) from None


def _codes(
    ensemble: Ensemble, raw: tuple[Any, ...], cells: list[Any], *, name: str, is_text: bool
) -> FloatArray:
    known: dict[Any, float] = {}
    for position, value in enumerate(raw):
        known.setdefault(None if is_missing(value) else value, float(position))
    if is_text and not any(isinstance(value, str) for value in raw):
        cells = [_category_of_text(cell) for cell in cells]
    elif is_text and "" not in known:
        cells = [None if cell == "" else cell for cell in cells]
    refuses_unknown = _library(ensemble) in _REFUSES_UNKNOWN
    codes = np.empty(len(cells), dtype=np.float64)
    for row, cell in enumerate(cells):
        key = None if is_missing(cell) else cell
        codes[row] = known.get(key, math.nan)
        if refuses_unknown and key is not None and key not in known:
            raise InvalidInput(
                f"Column {name!r} must hold categories of the training data, since the library has"
                f" no proper answer for others. Got {cell!r} in row {row}."
            )
    return codes


def _category_of_text(cell: str) -> Any:
    word = cell.strip().lower()
    if word in _MISSING_TEXT:
        return None
    if word in _BOOLEAN_TEXT:
        return bool(_BOOLEAN_TEXT[word])
    try:
        return float(word)
    except ValueError:
        return cell
