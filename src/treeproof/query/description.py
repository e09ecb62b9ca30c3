"""Questions as plain data, as run files and reports hold them."""

import dataclasses
import math
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """A value as JSON can hold it: infinities as text, NaN as null; lists and dicts entry by entry.

    Reading numbers back gives the same bits.
    """
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def describe(thing: Any) -> dict[str, Any]:
    """Name a perturbation, goal, engine or search with its options, as plain data.

    Of several limits the first is named, with what no part lets move, and the others in ``also``.
    """
    if hasattr(thing, "parts"):
        first, *also = map(describe, thing.parts)
        frozen = dict.fromkeys(name for part in (first, *also) for name in part["frozen"])
        return first | {"frozen": list(frozen), "also": also}
    words: dict[str, Any] = {"name": getattr(thing, "name", None) or type(thing).__name__}
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        for field in dataclasses.fields(thing):
            value = getattr(thing, field.name)
            is_said = field.metadata.get("described", True)
            if not is_said or (field.name in _LATER and value == field.default):
                continue
            is_part = dataclasses.is_dataclass(value)
            words[field.name] = describe(value) if is_part else plain(_without_arrays(value))
    return words


_LATER = ("relative", "domain")
"""Options that the first questions did not have: left out where they say nothing."""


def _without_arrays(value: Any) -> Any:
    # Columns of data frames are arrays to NumPy, but not to JSON.
    if not isinstance(value, list | tuple) and not hasattr(value, "__array__"):
        return value
    if isinstance(value, list | tuple) and any(isinstance(part, list | tuple) for part in value):
        return [_without_arrays(part) for part in value]  # such as groups of several sizes
    try:
        array = np.asarray(value)
    except ValueError:  # groups of different sizes
        return [_without_arrays(part) for part in value]
    # Names and numbers side by side would all become text.
    return array.tolist() if array.dtype.kind in "biuf" else list(value)
