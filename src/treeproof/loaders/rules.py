"""Rules that libraries share, in canonical form: comparisons of splits, thresholds of labels."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, UnsupportedModel
from treeproof.model.ensemble import Decision, FloatArray
from treeproof.model.links import smallest_true

SMALLEST_POSITIVE = float(np.nextafter(0.0, 1.0))
"""The cut of the rule ``score > 0``."""

Precision = Literal["float32", "float64"]

_WINDOW = 2_000


def canonical_splits(
    limit: FloatArray, precision: Precision, closed: NDArray[np.bool_] | bool = True
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Thresholds T with ``x < T`` for ``x <= limit``, or where not closed for ``x < limit``.

    The second array marks the nodes that change sides for it: every number is <= infinity, which
    no canonical threshold says, but no number is below minus infinity. Values of rows have the
    given precision.
    """
    always = np.isposinf(limit) & closed
    limit = np.where(always, 0.0, limit)
    if precision == "float64":
        canonical = np.where(closed, np.nextafter(limit, np.inf), limit)
    else:
        with np.errstate(over="ignore"):
            is_float32 = limit.astype(np.float32) == limit
        # Strictly below t is the same as below t itself where t is a float32.
        canonical = np.where(is_float32 & ~np.asarray(closed), limit, next_float32(limit))
    return np.where(always, -np.inf, canonical), always


def next_float32(limit: FloatArray) -> FloatArray:
    """Smallest float32 above a number: ``f32(x) <= t`` is ``f32(x) < next_float32(t)``."""
    with np.errstate(over="ignore"):
        nearest = limit.astype(np.float32)
    # The nearest float32 may lie above the number, and is then itself the answer.
    is_above = nearest.astype(np.float64) > limit
    above = np.where(is_above, nearest, np.nextafter(nearest, np.float32(np.inf)))
    return above.astype(np.float64)


def cut_decision(
    is_one: Callable[[NDArray[Any]], NDArray[np.bool_]], precision: Precision = "float64"
) -> Decision:
    """Decision of a binary classifier, as the smallest margin that is labelled 1.

    `is_one` is the library's own rule on an array of margins of the given precision; it must rise.
    """
    dtype = np.dtype(precision)
    with np.errstate(over="ignore"):
        cut = smallest_true(lambda margin: bool(is_one(np.array([margin], dtype))[0]), precision)
        # Exponentials are monotone only up to their last bit. The cut is exact if the rule does
        # not flicker around it; this far out, the margin has moved by many of its last bits.
        steps = np.spacing(np.abs(np.array(cut, dtype))) * np.arange(1, _WINDOW, dtype=dtype)
        near = np.concatenate([cut - steps[::-1], np.array([cut], dtype), cut + steps])
        near = near[np.isfinite(near)]
        is_sharp = np.array_equal(is_one(near), near >= cut)
    if not is_sharp:
        raise UnsupportedModel(
            "The decision threshold has no exact counterpart among the model's margins, because the"
            " exponential of its library is not monotone there. Choose a threshold nearby."
        )
    return Decision(kind="threshold", cut=cut)


def elementwise(link: Callable[[float], float]) -> Callable[[NDArray[Any]], FloatArray]:
    """Return a function of one margin as a function of an array of them."""
    return lambda margins: np.array([link(margin) for margin in margins.tolist()])


def refuse_threshold(threshold: float | None, what: str) -> None:
    """Refuse a decision threshold for a model that has no probability of class 1."""
    if threshold is not None:
        raise InvalidInput(
            "A decision threshold needs a binary classifier with probabilities."
            f" Got {what}. Leave the threshold out."
        )
