"""Rows and labels as users have them, as one float64 matrix and class indices.

Accepted are NumPy arrays, lists, data frames of pandas, polars and pyarrow, and `TextTable` (cells
as they stand in a text file).
"""

import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, WrongRow, listed, listed_values, nearest
from treeproof.model.category_hashes import category_codes
from treeproof.model.ensemble import CATEGORICAL, Ensemble, FloatArray

_BY_POSITION = {
    "lightgbm": "LightGBM takes columns by position, whatever their names are",
    "xgboost": "XGBoost refuses another order of pandas' columns, and ignores the names of others",
}
"""Libraries that do not match columns by name; a match here would answer for another model."""

_GENERIC_NAME = re.compile(r"(?:f|x|column_?|feature_?|col_?|)\d+", re.IGNORECASE)

_EXACT_LIMIT = 2**53
_MISSING_TEXT = {"", "nan", "na", "n/a", "null", "none"}
_BOOLEAN_TEXT = {"true": 1.0, "false": 0.0}

_DECIMAL_COMMA = " Write numbers with a decimal point, and without commas."
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

_NUMBERS_UNKNOWN = {"ydf"}
"""Libraries with a code of its own, 0, for every category that training never saw."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Columns of cells, as a text file has them; every column has the same length.

    Unlike the cells of a data frame, ``"1"`` may here stand for the number 1, unless they have a
    type, as in JSON.
    """

    columns: dict[str, list[Any]]
    has_types: bool = False


def numeric_rows(ensemble: Ensemble, X: Any, *, allow_empty: bool = True) -> FloatArray:
    """Rows as a checked, C-contiguous float64 matrix in the model's column order.

    Accepted are arrays, data frames and `TextTable`. Columns of frames are matched to the model's
    feature names; where either side has only generic names such as ``f0`` or ``Column_0``, by
    position. Columns in another order than the model's are refused where its library would not
    match them. Raw categories become codes. The matrix may share memory with `X`.
    """
    matrix = _matrix(ensemble, X)
    if matrix.ndim == 1:
        raise InvalidInput(
            f"Rows must form a matrix with {ensemble.n_features} columns, one per feature."
            f" Got one axis of length {len(matrix)}. Pass a single row as [row]."
        )
    if matrix.ndim != 2 or matrix.shape[1] != ensemble.n_features:
        raise InvalidInput(
            f"Rows must form a matrix with {ensemble.n_features} columns, one per feature."
            f" Got shape {matrix.shape}."
        )
    if not allow_empty and len(matrix) == 0:
        raise InvalidInput("There must be at least one row. Got none.")
    _check_special_values(ensemble, matrix)
    return matrix


def row_hash(*numbers: Any) -> str:
    """What evidence names a row, or how it may move, by: its doubles, all missing values alike."""
    told = np.concatenate(numbers, dtype="<f8") + 0.0
    told[np.isnan(told)] = np.nan
    return hashlib.sha256(told.tobytes()).hexdigest()[:32]


def label_numbers(ensemble: Ensemble, y: Any, *, n_rows: int) -> NDArray[np.int64]:
    """Index into the model's classes of each given label: int64 (n_rows,).

    Labels are those that the model's library reports; text is also compared with their spelling.
    """
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or len(labels) != n_rows:
        raise InvalidInput(
            f"Labels must form one axis with one entry per row ({n_rows})."
            f" Got shape {labels.shape}."
        )
    distinct, inverse = _distinct(labels)
    numbers = [_class_number(ensemble, value) for value in distinct]
    unknown = [value for value, number in zip(distinct, numbers, strict=True) if number < 0]
    if unknown:
        row = int(np.argmax(np.array(numbers)[inverse] < 0))
        raise WrongRow(
            f"Labels must be among the model's classes {listed_values(ensemble.classes)}."
            f" Got {listed_values(unknown)}, the first",
            row,
            f".{nearest(unknown[0], ensemble.classes)} Give labels as the model's library reports"
            " them.",
        )
    return np.array(numbers, dtype=np.int64)[inverse]


def objects(values: Sequence[Any]) -> NDArray[Any]:
    """Values as they are, whatever their types."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _distinct(labels: NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    if labels.dtype.kind == "O":
        # Labels of mixed types cannot be sorted, which np.unique would do.
        position: dict[Any, int] = {}
        numbers = [position.setdefault(value, len(position)) for value in labels.tolist()]
        return list(position), np.array(numbers, dtype=np.int64)
    values, inverse = np.unique(labels, return_inverse=True)
    return values.tolist(), inverse.astype(np.int64)


def _class_number(ensemble: Ensemble, label: Any) -> int:
    """Class of a label: by the names that the classes have, then by those that they had before."""
    number = _place_of(label, ensemble.classes)
    return number if number >= 0 else _place_of(label, ensemble.provenance.own_classes)


def _place_of(label: Any, classes: tuple[Any, ...]) -> int:
    for number, known in enumerate(classes):
        if known == label and isinstance(known, str) == isinstance(label, str):
            return number
    if not isinstance(label, str):
        return -1
    for number, known in enumerate(classes):
        if not isinstance(known, str) and _same_number(label, known):
            return number
    return -1


def _same_number(text: str, known: Any) -> bool:
    if text.strip().lower() == str(known).lower():
        return True
    try:
        return float(text) == float(known)
    except (TypeError, ValueError):
        return False


def _check_special_values(ensemble: Ensemble, matrix: FloatArray) -> None:
    for column, codes in ensemble.required.items():
        wrong = np.isnan(matrix[:, column])
        if codes:
            wrong = ~np.isin(matrix[:, column], codes)
        if wrong.any():
            row = int(np.argmax(wrong))
            what = "one of the categories of training" if codes else "a number, not NaN"
            raise WrongRow(
                f"Rows must hold {what} in {_column_name(ensemble, column)}, since the model has no"
                f" answer for others. Got {_shown(matrix[row, column])}",
                row,
            )
    if not ensemble.missing_allowed and np.isnan(matrix).any():
        row, column = np.argwhere(np.isnan(matrix))[0]
        raise WrongRow(
            "This model has no rule for missing values, so rows must not contain NaN. Got NaN",
            int(row),
            f", {_column_name(ensemble, column)}. Impute it as in training.",
        )
    if not ensemble.infinite_allowed:
        with np.errstate(over="ignore"):
            infinite = np.isinf(matrix.astype(ensemble.input_precision, copy=False))
        if infinite.any():
            row, column = np.argwhere(infinite)[0]
            raise WrongRow(
                f"The {ensemble.provenance.library} model refuses infinite values and values beyond"
                f" {ensemble.input_precision}. Got {matrix[row, column]}",
                int(row),
                f", {_column_name(ensemble, column)}.",
            )


def _shown(value: float) -> str:
    return "one that is missing or unknown" if np.isnan(value) else str(value)


def _column_name(ensemble: Ensemble, column: int) -> str:
    name = f" ({ensemble.feature_names[column]!r})" if ensemble.feature_names else ""
    return f"column {column}{name}"


def _matrix(ensemble: Ensemble, X: Any) -> FloatArray:
    if isinstance(X, TextTable):
        is_text = not X.has_types
        return _from_columns(ensemble, list(X.columns), X.columns.__getitem__, is_text=is_text)
    if hasattr(X, "toarray"):
        raise InvalidInput(
            "Rows must be dense, because libraries disagree on whether an absent entry is zero or"
            f" missing. Got {type(X).__name__}. Call .toarray() for zeros, or fill NaN for missing."
        )
    if hasattr(X, "collect"):
        raise InvalidInput(
            "Rows must be an array or an eager data frame."
            f" Got a lazy one ({type(X).__name__}). Call .collect() first."
        )
    if hasattr(X, "columns") and not isinstance(X, np.ndarray):
        return _from_frame(ensemble, X)
    if isinstance(X, np.ma.MaskedArray):
        X = np.ma.filled(X.astype(np.float64), np.nan)
    try:
        array = np.asarray(X)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"Rows must form a matrix of numbers: {error}.") from error
    if array.dtype.kind in "OUS" and array.ndim == 2:
        numbers = [str(number) for number in range(array.shape[1])]
        objects = np.asarray(X, dtype=object)
        return _from_columns(
            ensemble, numbers, lambda name: objects[:, int(name)].tolist(), is_text=False
        )
    if array.dtype.kind not in "biuf":
        raise InvalidInput(f"Rows must be numbers. Got {type(X).__name__} of {array.dtype}.")
    return np.asarray(_exact_float64(array, "Rows"), order="C")


def _from_frame(ensemble: Ensemble, X: Any) -> FloatArray:
    import narwhals as nw

    try:
        frame = nw.from_native(X, eager_only=True)
        names = list(frame.columns)
    except (TypeError, ValueError) as error:
        first, *columns = str(error).split("\n- ")
        raise InvalidInput(
            "Rows must be an array or a data frame with unique column names."
            f" Got {type(X).__module__.partition('.')[0]} {type(X).__name__}:"
            f" {f'{first} {listed(columns)}' if columns else first}."
        ) from error
    return _from_columns(ensemble, names, frame.get_column, is_text=False, n_rows=len(frame))


def _from_columns(
    ensemble: Ensemble, names: list[Any], column: Any, *, is_text: bool, n_rows: int | None = None
) -> FloatArray:
    order = column_order(ensemble, names)
    if n_rows is None:
        n_rows = len(column(order[0])) if order else 0
    matrix = np.empty((n_rows, len(order)), dtype=np.float64)
    for number, name in enumerate(order):
        matrix[:, number] = _column_values(
            ensemble, number, column(name), name=str(name), is_text=is_text
        )
    return matrix


def column_order(ensemble: Ensemble, columns: list[Any], *, by_name: bool = False) -> list[Any]:
    """Which of the given columns is each feature of the model, in the model's order.

    Names are compared as they are, then with blanks as underscores (LightGBM renames so). Generic
    names, on either side, match by position. Another order is refused where the model's library
    would not match names, unless names alone shall count.
    """
    names = ensemble.feature_names
    for spelling in (str, without_blanks):
        known = {spelling(name): name for name in reversed(columns)}
        if names and all(spelling(name) in known for name in names):
            order = [known[spelling(name)] for name in names]
            if not by_name:
                _require_order(ensemble, columns, order)
            return order
    if not names or _are_generic(names) or _are_generic(columns):
        _require_counting(columns)
        if len(columns) != ensemble.n_features:
            raise InvalidInput(
                f"Rows must have {ensemble.n_features} columns, one per feature."
                f" Got {len(columns)}."
            )
        return columns
    absent = [name for name in names if without_blanks(name) not in known]
    others = [column for column in columns if column not in names]
    near = nearest(absent[0], others).replace("Did you mean", "Is it")
    raise InvalidInput(
        "Column names must match the model's feature names."
        f" Missing: {listed([repr(name) for name in absent])}.{near}"
        " Rename the columns, or pass a plain array in the model's order."
    )


def _are_generic(names: Iterable[Any]) -> bool:
    return all(_GENERIC_NAME.fullmatch(str(name)) for name in names)


def _require_counting(columns: list[Any]) -> None:
    """Refuse generic names in another order than their numbers: a position would be a guess."""
    if not _are_generic(columns):
        return
    numbers = [int(re.sub(r"\D", "", str(name))) for name in columns]
    for place, (one, other) in enumerate(itertools.pairwise(numbers)):
        if one >= other:
            raise InvalidInput(
                "Columns that are matched by position must be in the order of their numbers. Got"
                f" {columns[place + 1]!r} behind {columns[place]!r}. Reorder the columns, or pass"
                " a plain array in the model's order."
            )


def _require_order(ensemble: Ensemble, columns: list[Any], order: list[Any]) -> None:
    """Refuse columns in another order than the model's, unless its library matches names, too."""
    reason = _BY_POSITION.get(_library(ensemble))
    wanted = set(order)
    given = [name for name in dict.fromkeys(columns) if name in wanted]
    if reason is None or given == order:
        return
    place = next(place for place, name in enumerate(order) if given[place] != name)
    raise InvalidInput(
        f"Columns must be in the order of the model's features, since {reason}."
        f" Got {given[place]!r} in the place of {order[place]!r}. Reorder the columns as in"
        " Model.feature_names, pass a plain array, or match a file's columns with --by-name."
    )


def without_blanks(name: Any) -> str:
    """A name as LightGBM spells it, which writes blanks as underscores."""
    return re.sub(r"\s", "_", str(name))


def _exact_float64(array: NDArray[Any], what: str) -> FloatArray:
    """Numbers as float64; integers that would be rounded are refused."""
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size:
        largest = max(int(array.max()), -int(array.min()))
        if largest > _EXACT_LIMIT:
            raise InvalidInput(
                f"{what}: whole numbers must not exceed 2**53, beyond which floats round them."
                f" Got {largest} in absolute value. Convert to float64 yourself if that is meant."
            )
    return array.astype(np.float64, copy=False)


def _column_values(
    ensemble: Ensemble, feature: int, column: Any, *, name: str, is_text: bool
) -> FloatArray:
    """Values of one feature as the model's comparisons take them; NaN where missing.

    `is_text` says that the type of the cells is not known, as in a CSV file.
    """
    raw = ensemble.categories.get(feature)
    if raw is not None:
        cells = column if isinstance(column, list) else column.to_list()
        if raw == () and _library(ensemble) == "xgboost":
            # The order of the frame's own categories would be a guess, as XGBoost compares names.
            read = _numbers_of_text if is_text else _numbers_of_objects
            return read(cells, name, _GARBLED)
        if raw == () and _library(ensemble) == "scikit-learn":
            return _numbers_of_anything(cells)  # a column that no step of a pipeline looks at
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
            _exact_float64(np.asarray(column.drop_nulls().to_numpy()), f"Column {name!r}")
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


def _numbers_of_anything(cells: list[Any]) -> FloatArray:
    """Numbers where there are such, and missing values for all else."""
    numbers = [isinstance(cell, Real) and not _is_missing(cell) for cell in cells]
    pairs = zip(cells, numbers, strict=True)
    return np.array([float(cell) if is_number else math.nan for cell, is_number in pairs])


def _number(cell: Any, name: str, reason: str) -> float:
    if _is_missing(cell):
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


def _is_missing(cell: Any) -> bool:
    """Whether a cell is None, NaN, or pandas' NA or NaT."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float | np.floating) and bool(np.isnan(cell))


def _numbers_of_text(cells: list[str], name: str, reason: str = _NOT_CATEGORICAL) -> FloatArray:
    try:
        # The common case first: a column of plain numbers, without a test per cell.
        values = np.array(list(map(float, cells)), dtype=np.float64)
    except ValueError:
        values = np.empty(len(cells), dtype=np.float64)
        for row, cell in enumerate(cells):
            values[row] = _number_of_text(cell, name, row, reason)
    for large in np.flatnonzero(np.abs(values) >= _EXACT_LIMIT).tolist():
        _require_exact(cells[large], float(values[large]), name, large)
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
        remedy = _DECIMAL_COMMA if _is_figures(word) else ""
        raise WrongRow(
            f"Column {name!r} must hold numbers, since {reason}. Got {cell!r}", row, f".{remedy}"
        ) from None


def _is_figures(word: str) -> bool:
    """Whether a text is a number with commas."""
    return "," in word and word.lstrip("+-").replace(",", "").replace(".", "").isdecimal()


def _require_exact(cell: str, value: float, name: str, row: int) -> None:
    """Refuse whole numbers that floats round, and numbers beyond all floats."""
    digits = cell.strip().lstrip("+-").replace("_", "")
    is_rounded = digits.isdecimal() and (math.isinf(value) or Decimal(digits) != abs(value))
    if is_rounded or (math.isinf(value) and "inf" not in digits.lower()):
        raise WrongRow(
            f"Column {name!r} must hold whole numbers that floats do not round beyond 2**53, and"
            f" none beyond the largest float. Got {cell.strip()[:40]}",
            row,
        )


def _codes(
    ensemble: Ensemble, raw: tuple[Any, ...], cells: list[Any], *, name: str, is_text: bool
) -> FloatArray:
    known: dict[Any, float] = {}
    for position, value in enumerate(raw):
        known.setdefault(None if _is_missing(value) else value, float(position))
    if is_text and not any(isinstance(value, str) for value in raw):
        cells = [_category_of_text(cell) for cell in cells]
    elif is_text and "" not in known:
        cells = [None if cell == "" else cell for cell in cells]
    refuses_unknown = _library(ensemble) in _REFUSES_UNKNOWN
    numbers_unknown = _library(ensemble) in _NUMBERS_UNKNOWN
    codes = np.empty(len(cells), dtype=np.float64)
    for row, cell in enumerate(cells):
        key = None if _is_missing(cell) else cell
        if numbers_unknown and key is not None:
            codes[row] = known.get(key if isinstance(key, str) else str(key), 0.0)
            continue
        codes[row] = known.get(key, math.nan)
        if refuses_unknown and key is not None and key not in known:
            raise WrongRow(
                f"Column {name!r} must hold categories of the training data, since the library has"
                f" no proper answer for others. Got {cell!r}",
                row,
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
