"""Values of features, given by name or in the order of the model's features.

Names win: a dict, a Series or a frame is matched to the model's feature names, since rows are, too.
What has no names (arrays, lists, Series of polars, an index that only counts from 0) is in the
model's order, and everything else is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, listed, nearest
from treeproof.model.rows import without_blanks

_PLAIN = (int, float, list, tuple, np.ndarray, np.generic)


def feature_number(feature: int | str, n_features: int, names: Sequence[str]) -> int:
    """Number of a feature given by number or name."""
    if isinstance(feature, str):
        number = _numbers(names).get(without_blanks(feature))
        if number is None:
            raise InvalidInput(
                f"The model must have a feature named {feature!r}.{nearest(feature, names)}"
                f" Its names are: {listed(names)}."
            )
        return number
    is_number = isinstance(feature, int | np.integer) and not isinstance(feature, bool)
    if not is_number or not 0 <= int(feature) < n_features:
        raise InvalidInput(f"A feature number must be from 0 to {n_features - 1}. Got {feature!r}.")
    return int(feature)


def in_feature_order(
    what: str, value: Any, names: Sequence[str], n_features: int, default: float
) -> Any:
    """Values as numbers in the order of the model's features; single numbers stay as they are.

    One value, or one for each feature (of frames: in each row). A dict may leave features out,
    which get `default`; `what` they are is for messages. Where features were named, the shape is
    (n_features,), or (n_rows, n_features) for frames of several rows.
    """
    if isinstance(value, Mapping):
        return _of_dict(what, value, names, n_features, default)
    if value is None or isinstance(value, _PLAIN):
        return value
    import narwhals as nw

    try:
        given = nw.from_native(value, allow_series=True, eager_only=True, pass_through=True)
        if isinstance(given, nw.DataFrame):
            labels: Any = given.columns
        else:
            labels = nw.maybe_get_index(given) if isinstance(given, nw.Series) else None
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what} must be named once: {str(error).splitlines()[0]}.") from error
    if labels is None:
        return value
    table = numbers_of(what, given.to_numpy())
    if isinstance(given, nw.Series):
        return table[_places(what, list(labels), names, n_features)]
    table = table[:, _places(what, list(labels), names, n_features)]
    return table[0] if len(table) == 1 else table


def numbers_of(what: str, value: Any) -> NDArray[np.float64]:
    """Values as an array of float64, or a sentence."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{what} must be numbers. Got {value!r}.") from error


def _of_dict(
    what: str, value: Mapping[Any, Any], names: Sequence[str], n_features: int, default: float
) -> NDArray[np.float64]:
    numbers = [feature_number(feature, n_features, names) for feature in value]
    _refuse_twice(what, numbers, list(value))
    result = np.full(n_features, default)
    result[numbers] = numbers_of(what, list(value.values()))
    return result


def _places(
    what: str, labels: list[Any], names: Sequence[str], n_features: int
) -> NDArray[np.int64]:
    """Where among the labels each feature of the model is."""
    known = _numbers(names)
    numbers = [known.get(without_blanks(label)) for label in labels]
    if None in numbers or len(numbers) != n_features:
        are_counts = all(type(label) is int or isinstance(label, np.integer) for label in labels)
        if are_counts and labels == list(range(n_features)):
            return np.arange(n_features)
    if None in numbers:
        unknown = labels[numbers.index(None)]
        raise InvalidInput(
            f"{what} must name the model's features. Got {unknown!r}.{nearest(unknown, names)}"
            f" Its names are: {listed(names)}. Give a plain array for the model's own order."
        )
    _refuse_twice(what, numbers, labels)
    absent = [name for number, name in enumerate(names) if number not in set(numbers)]
    if absent:
        raise InvalidInput(
            f"{what} must name every feature of the model. Missing: {listed(absent)}."
            " A dict may leave features out."
        )
    return np.argsort(np.array(numbers, dtype=np.int64))


def _refuse_twice(what: str, numbers: Sequence[int | None], labels: list[Any]) -> None:
    for place, number in enumerate(numbers):
        if number in numbers[:place]:
            raise InvalidInput(f"{what} must name each feature once. Got {labels[place]!r} twice.")


def _numbers(names: Sequence[str]) -> dict[str, int]:
    return {without_blanks(name): number for number, name in reversed(list(enumerate(names)))}
