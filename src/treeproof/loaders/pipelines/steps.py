"""What each kind of fitted step does to columns, and why it is monotone in floats.

A step is known by its exact class: a subclass may transform in any way.
"""

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import BrokenModelFile, InvalidInput, UnsupportedModel
from treeproof.loaders.pipelines.flow import Column, Flow
from treeproof.loaders.pipelines.functions import FUNCTIONS, power_steps, quantile_steps
from treeproof.loaders.pipelines.rows import quietly
from treeproof.loaders.pipelines.sides import Apply, Output
from treeproof.loaders.sklearn.shared import is_nan
from treeproof.model.ensemble import FloatArray

Handler = Callable[["Place", Any, list[Column]], list[Column]]

NO_KNOTS = np.zeros(0)

MOST_COLUMNS = 1 << 16
"""More columns than pipelines have; a damaged file may ask for any number."""


class Place:
    """Where in a pipeline a step stands: the flow that it belongs to, and the names on the way."""

    def __init__(self, flow: Flow, names: tuple[str, ...] = ()) -> None:
        self.flow, self.names = flow, names

    def inside(self, name: str) -> "Place":
        """Place of a step inside this one."""
        return Place(self.flow, (*self.names, name))

    def named(self, step: Any) -> str:
        """The step in the words of an error message."""
        where = " → ".join(map(repr, self.names))
        return f"Step {where} ({type(step).__name__})" if where else type(step).__name__


def follow(place: Place, step: Any, columns: list[Column]) -> list[Column]:
    """Columns that a transformer makes of the given ones."""
    if step is None or (isinstance(step, str) and step == "passthrough"):
        return columns
    if isinstance(step, str) and step == "drop":
        return []
    kind = type(step)
    package = kind.__module__.partition(".")[0]
    handler = None
    if package == "sklearn":
        handler = _HANDLERS.get(kind.__name__)
        if handler is None and any(base.__name__ == "SelectorMixin" for base in kind.__mro__):
            handler = _select
    elif package == "imblearn":
        if hasattr(step, "fit_resample"):
            return columns  # samplers change what is trained on, and no prediction
        handler = _HANDLERS["Pipeline"] if kind.__name__ == "Pipeline" else None
    if handler is None:
        raise _refusal(place, step)
    n_columns = getattr(step, "n_features_in_", len(columns))
    if n_columns != len(columns):
        raise BrokenModelFile(
            f"{place.named(step)} must take {n_columns} columns. Got {len(columns)}."
        )
    result = handler(place, step, columns)
    if len(result) > MOST_COLUMNS:
        raise UnsupportedModel(
            f"{place.named(step)} must give at most {MOST_COLUMNS} columns. Got {len(result)}."
        )
    return result


_MIXERS = {"PCA", "IncrementalPCA", "KernelPCA", "TruncatedSVD", "FastICA", "NMF", "FactorAnalysis"}
_MIXERS |= {"PolynomialFeatures", "Normalizer", "KNNImputer", "IterativeImputer", "SparsePCA"}
_MIXERS |= {
    "LinearDiscriminantAnalysis",
    "FeatureAgglomeration",
    "RandomTreesEmbedding",
    "Nystroem",
}
_MIXERS |= {"GaussianRandomProjection", "SparseRandomProjection", "RBFSampler", "FeatureHasher"}


def _refusal(place: Place, step: Any) -> UnsupportedModel:
    if type(step).__name__ in _MIXERS:
        reason = (
            "mixes columns, so that its splits are no splits of your own columns. Load the model"
            " behind it by itself, and ask in transformed columns"
        )
    else:
        reason = (
            "cannot be folded into the trees: it is not known to treat each column by itself, in a"
            " way that is monotone in floats. Use one of scikit-learn's own transformers, or load"
            " the model behind it by itself"
        )
    return UnsupportedModel(f"{place.named(step)} {reason}.")


def applied(step: Any) -> Apply:
    """Return a fitted transformer's own function, with plain dense matrices on both sides."""

    def apply(matrix: NDArray[Any]) -> NDArray[Any]:
        with quietly():
            return dense(step.transform(matrix))

    return apply


def dense(given: Any) -> NDArray[Any]:
    """What a transformer gave (an array, a sparse matrix, a data frame) as an array."""
    if hasattr(given, "toarray"):
        given = given.toarray()
    elif hasattr(given, "to_numpy"):
        given = given.to_numpy()
    matrix = np.asarray(given)
    return matrix if matrix.dtype.kind in "OUS" else matrix.astype(np.float64)


def _each(
    place: Place, step: Any, columns: list[Column], apply: Apply | None = None
) -> list[Column]:
    """One output per column; who calls it has shown that each is monotone."""
    place.flow.use_as_numbers(columns)
    outputs = [Output(number, NO_KNOTS) for number in range(len(columns))]
    return place.flow.add_step(place.named(step), apply or applied(step), columns, outputs)


def _require_numbers(place: Place, step: Any, n: int, *names: str) -> None:
    """Check that fitted numbers are there, one for each column, and finite."""
    for name in names:
        values = getattr(step, name, None)
        if values is None:
            continue
        array = np.asarray(values)
        if array.shape != (n,) or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
            raise BrokenModelFile(
                f"{place.named(step)} must have {n} finite numbers in '{name}'."
                " Fit it again on data without infinite values."
            )


def _require_fitted(place: Place, step: Any, attribute: str) -> None:
    if not hasattr(step, attribute):
        raise InvalidInput(
            f"{place.named(step)} must be fitted. It has no '{attribute}'. Call fit first."
        )


def _scale(place: Place, step: Any, columns: list[Column]) -> list[Column]:
    """StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler.

    Sound: each computes ``(x - a) / b`` or ``x * a + b``, with a clip at most. Every operation is
    the rounding of a monotone one, and rounding is monotone.
    """
    _require_fitted(place, step, "n_features_in_")
    _require_numbers(place, step, len(columns), "mean_", "scale_", "min_", "center_", "max_abs_")
    return _each(place, step, columns)


def _binarize(place: Place, step: Any, columns: list[Column]) -> list[Column]:
    # Sound: the comparison of numbers with one number is monotone.
    return _each(place, step, columns)


def _bin(place: Place, step: Any, columns: list[Column]) -> list[Column]:
    """KBinsDiscretizer: the number of the bin, or one column per bin.

    Sound: a search among rising edges is monotone. Between two edges the bin is one, and so is
    whatever is computed from it.
    """
    _require_fitted(place, step, "bin_edges_")
    edges = [np.asarray(part, dtype=np.float64) for part in step.bin_edges_]
    rising = all(part.ndim == 1 and len(part) > 1 and np.all(np.diff(part) >= 0) for part in edges)
    if len(edges) != len(columns) or not rising:
        raise BrokenModelFile(f"{place.named(step)} must have rising edges for every column.")
    if step.encode == "ordinal":
        return _each(place, step, columns)
    counts = np.asarray(step._encoder._compute_n_features_outs(), dtype=np.int64)
    if len(counts) != len(columns):
        raise BrokenModelFile(f"{place.named(step)} must encode every column.")
    place.flow.use_as_numbers(columns)
    outputs = [
        Output(number, edges[number])
        for number, count in enumerate(counts.tolist())
        for _ in range(count)
    ]
    return place.flow.add_step(place.named(step), applied(step), columns, outputs)


def _impute(place: Place, step: Any, columns: list[Column]) -> list[Column]:
    """SimpleImputer: numbers stay as they are but for the one that stands for a missing value."""
    _require_fitted(place, step, "statistics_")
    statistics = np.asarray(step.statistics_)
    if statistics.shape != (len(columns),):
        raise BrokenModelFile(f"{place.named(step)} must have one statistic per column.")
    marker = step.missing_values
    knots, is_plain = _missing_knots(place, step, columns, marker)
    kept = [
        number
        for number, value in enumerate(statistics.tolist())
        if step.keep_empty_features or not is_nan(value)
    ]
    outputs = [Output(number, knots, is_plain=is_plain) for number in kept]
    if step.add_indicator:
        outputs += [Output(number, knots) for number in _indicated(step.indicator_, len(columns))]
    if not is_plain:
        place.flow.use_as_numbers(columns)
    return place.flow.add_step(place.named(step), applied(step), columns, outputs)


def _missing_knots(
    place: Place, step: Any, columns: list[Column], marker: Any
) -> tuple[FloatArray, bool]:
    """Pieces on which a test for the marker is the same, and whether no number is the marker.

    Sound: a number is a piece of its own; to either side of it numbers are left as they are.
    """
    if isinstance(marker, str):
        for column in columns:
            place.flow.use_as_categories(column, [marker])
        return NO_KNOTS, True
    if isinstance(marker, Real):
        number = float(marker)
        if np.isnan(number):
            return NO_KNOTS, True
        if np.isfinite(number):
            return np.array([number, np.nextafter(number, np.inf)]), False
    raise UnsupportedModel(
        f"{place.named(step)} must mark missing values by NaN, a number or a text."
        f" Got missing_values={marker!r}. Use np.nan."
    )


def _indicate(place: Place, step: Any, columns: list[Column]) -> list[Column]:
    """MissingIndicator: whether a value is missing."""
    _require_fitted(place, step, "features_")
    knots, _ = _missing_knots(place, step, columns, step.missing_values)
    outputs = [Output(number, knots) for number in _indicated(step, len(columns))]
    return place.flow.add_step(place.named(step), applied(step), columns, outputs)


def _indicated(step: Any, n_columns: int) -> list[int]:
    features = np.asarray(step.features_)
    if features.dtype.kind not in "iu" or np.any((features < 0) | (features >= n_columns)):
        raise BrokenModelFile(f"Indicators must be of one of the {n_columns} columns.")
    return [int(number) for number in features]


def _encode(place: Place, step: Any, columns: list[Column]) -> list[Column]:
    """OrdinalEncoder, OneHotEncoder, TargetEncoder: a table from categories to numbers.

    Sound: where the categories are numbers, each is a piece of its own, and all numbers between
    two of them are unknown alike.
    """
    _require_fitted(place, step, "categories_")
    categories = [np.asarray(known) for known in step.categories_]
    if len(categories) != len(columns) or any(known.ndim != 1 for known in categories):
        raise BrokenModelFile(f"{place.named(step)} must have a list of categories per column.")
    if type(step).__name__ == "OneHotEncoder":
        counts = [int(count) for count in step._compute_n_features_outs()]
    else:
        n_classes = len(getattr(step, "classes_", ()))
        counts = [n_classes if n_classes > 2 else 1] * len(columns)
    if len(counts) != len(columns) or not all(0 <= count < 1 << 20 for count in counts):
        raise BrokenModelFile(f"{place.named(step)} must encode every column.")
    outputs = []
    for number, (column, known) in enumerate(zip(columns, categories, strict=True)):
        place.flow.use_as_categories(column, known.tolist())
        if known.dtype.kind == "O":
            place.flow.objects.add(column.raw)
        outputs += [Output(number, _category_knots(known))] * counts[number]
    return place.flow.add_step(place.named(step), applied(step), columns, outputs, encodes=True)


def _category_knots(known: NDArray[Any]) -> FloatArray:
    if not all(isinstance(value, Real) for value in known.tolist()):
        return NO_KNOTS
    numbers = known.astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    return np.concatenate([numbers, np.nextafter(numbers, np.inf)])


def _quantile(place: Place, step: Any, columns: list[Column]) -> list[Column]:
    _require_fitted(place, step, "quantiles_")
    place.flow.use_as_numbers(columns)
    return quantile_steps(place.flow, place.named(step), step, columns, applied(step))


def _power(place: Place, step: Any, columns: list[Column]) -> list[Column]:
    _require_fitted(place, step, "lambdas_")
    place.flow.use_as_numbers(columns)
    return power_steps(place.flow, place.named(step), step, columns, applied(step))


def _function(place: Place, step: Any, columns: list[Column]) -> list[Column]:
    """FunctionTransformer with no function, or one of NumPy's that is monotone in pieces."""
    if step.func is None:
        return columns
    known = next((entry for entry in FUNCTIONS if step.func is entry.function), None)
    if known is None or step.kw_args:
        name = getattr(step.func, "__name__", repr(step.func))
        raise UnsupportedModel(
            f"{place.named(step)} applies {name!r}, which cannot be shown to be monotone in floats."
            f" Supported are NumPy's {', '.join(entry.function.__name__ for entry in FUNCTIONS)}."
        )
    place.flow.use_as_numbers(columns)
    return known.add_steps(place.flow, place.named(step), columns, applied(step))


def _select(place: Place, step: Any, columns: list[Column]) -> list[Column]:
    """SelectKBest and every other selector: some of the columns, as they are."""
    mask = np.asarray(step.get_support())
    if mask.shape != (len(columns),) or mask.dtype != bool:
        raise BrokenModelFile(f"{place.named(step)} must choose among {len(columns)} columns.")
    # A step all the same, because most selectors refuse missing values.
    outputs = [Output(int(number), NO_KNOTS, is_plain=True) for number in np.flatnonzero(mask)]
    return place.flow.add_step(place.named(step), applied(step), columns, outputs)


def _pipeline(place: Place, step: Any, columns: list[Column]) -> list[Column]:
    for name, inner in step.steps:
        columns = follow(place.inside(str(name)), inner, columns)
    return columns


def _union(place: Place, step: Any, columns: list[Column]) -> list[Column]:
    _refuse_weights(place, step)
    parts = [
        follow(place.inside(str(name)), inner, columns) for name, inner in step.transformer_list
    ]
    return [column for part in parts for column in part]


def _choose_columns(place: Place, step: Any, columns: list[Column]) -> list[Column]:
    """ColumnTransformer: its parts side by side, each on columns of its own."""
    _require_fitted(place, step, "transformers_")
    _refuse_weights(place, step)
    result = []
    for name, inner, _ in step.transformers_:
        chosen = _chosen(place, step, str(name), len(columns))
        if chosen:
            result += follow(place.inside(str(name)), inner, [columns[i] for i in chosen])
    return result


def _chosen(place: Place, step: Any, name: str, n_columns: int) -> Sequence[int]:
    chosen = [int(number) for number in step._transformer_to_input_indices[name]]
    if any(not 0 <= number < n_columns for number in chosen):
        raise BrokenModelFile(f"{place.named(step)} must choose among {n_columns} columns.")
    return chosen


def _refuse_weights(place: Place, step: Any) -> None:
    if step.transformer_weights:
        raise UnsupportedModel(
            f"{place.named(step)} must not weigh its parts, which trees would not need."
            " Got transformer_weights. Leave them out and fit again."
        )


_HANDLERS: dict[str, Handler] = {
    "Pipeline": _pipeline,
    "ColumnTransformer": _choose_columns,
    "FeatureUnion": _union,
    **dict.fromkeys(("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"), _scale),
    "Binarizer": _binarize,
    "KBinsDiscretizer": _bin,
    "SimpleImputer": _impute,
    "MissingIndicator": _indicate,
    **dict.fromkeys(("OrdinalEncoder", "OneHotEncoder", "TargetEncoder"), _encode),
    "QuantileTransformer": _quantile,
    "PowerTransformer": _power,
    "FunctionTransformer": _function,
}
