"""Link functions as the libraries compute them, with the C library's own float32 functions.

NumPy's float32 ``exp`` and ``log`` differ from libm's in the last bit on some inputs
(docs/explanation/semantics.md), and the libraries use libm; so do we, through ctypes.
"""

import ctypes
import math
import sys
from collections.abc import Callable
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray


@cache
def _libm_float32(name: str) -> Callable[[float], float]:
    """Return the C library's float32 function; rounded float64 mathematics where there is none."""
    # By name, because ctypes.util.find_library starts a compiler to find out. None is what the
    # interpreter itself is linked with.
    libraries = {"linux": ("libm.so.6", None), "win32": ("ucrtbase",)}.get(sys.platform, (None,))
    for library in libraries:
        try:
            function = getattr(ctypes.CDLL(library), name)
        except (OSError, AttributeError, TypeError):
            continue
        function.restype = ctypes.c_float
        function.argtypes = [ctypes.c_float]
        return lambda value: float(function(value))
    fallback: Callable[[float], float] = _exp_or_infinity if name == "expf" else math.log
    return lambda value: float(np.float32(fallback(value)))


def logit_float32(probability: float) -> float:
    """Margin of a probability as XGBoost computes it: ``-logf(1 / p - 1)`` in float32."""
    one = np.float32(1.0)
    with np.errstate(divide="ignore"):
        odds = one / np.float32(probability) - one
    return -_libm_float32("logf")(float(odds))


def log_float32(value: float) -> float:
    """Natural logarithm in float32 by the C library."""
    return _libm_float32("logf")(float(np.float32(value)))


def exp_float32(value: float) -> float:
    """Exponential in float32 by the C library."""
    return _libm_float32("expf")(float(np.float32(value)))


def sigmoid_float32(margin: float) -> float:
    """XGBoost's float32 sigmoid: ``1 / (expf(-x) + 1 + 1e-16)`` with x cut at -88.7."""
    x = min(-np.float32(margin), np.float32(88.7))
    denominator = np.float32(_libm_float32("expf")(float(x))) + np.float32(1.0) + np.float32(1e-16)
    return float(np.float32(1.0) / denominator)


def smallest_true(
    is_true: Callable[[float], bool], precision: Literal["float32", "float64"]
) -> float:
    """Smallest float of a precision where a rising predicate holds, by bisection over the floats.

    Returns the largest finite float when it holds nowhere else, the smallest one when it holds
    everywhere.
    """
    integer, real = (np.int32, np.float32) if precision == "float32" else (np.int64, np.float64)

    def number(rank: int) -> float:
        # Floats sort like their bit patterns once negative ones are mirrored.
        bits = rank if rank >= 0 else int(np.iinfo(integer).min) - rank - 1
        return float(np.array(bits, dtype=integer).view(real))

    largest = int(np.array(np.finfo(real).max).view(integer))
    low, high = -largest - 1, largest
    while low < high:
        middle = (low + high) // 2
        if is_true(number(middle)):
            high = middle
        else:
            low = middle + 1
    return number(low)


def sigmoid_float64(margin: float, scale: float = 1.0) -> float:
    """LightGBM's and CatBoost's sigmoid, ``1 / (1 + exp(-scale * x))`` in double."""
    exponent = -scale * margin
    # The C library's exp overflows to infinity, Python's raises.
    return 1.0 / (1.0 + (math.exp(exponent) if exponent < 709.0 else _exp_or_infinity(exponent)))


def _exp_or_infinity(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def argmax_labels(
    scores: NDArray[np.floating],
    link: Literal["identity", "softmax_float32", "softmax_float64", "sigmoid_float64"],
    *,
    divisor: float = 1.0,
    scale: float = 1.0,
) -> NDArray[np.int64]:
    """First index of the largest link(score / divisor) in each row."""
    scores = scores if divisor == 1.0 else scores / scores.dtype.type(divisor)
    labels = np.argmax(scores, axis=1)
    if link == "identity" or scores.shape[1] < 2:
        return labels
    # A link keeps the order of scores and can only merge neighbours, so only rows whose two
    # largest linked scores nearly agree need the real computation.
    ordered = np.sort(scores.astype(np.float64), axis=1)[:, -2:]
    if link == "sigmoid_float64":
        with np.errstate(over="ignore"):
            ordered = 1.0 / (1.0 + np.exp(-scale * ordered))
        # Small sigmoids merge only relative to their own size.
        near = np.flatnonzero(ordered[:, 1] - ordered[:, 0] <= 1e-6 * ordered[:, 1])
        for row in near:
            labels[row] = np.argmax([sigmoid_float64(float(s), scale) for s in scores[row]])
        return labels
    for row in np.flatnonzero(ordered[:, 1] - ordered[:, 0] < 1e-6):
        labels[row] = _softmax_label(scores[row], link)
    return labels


def _softmax_label(score: NDArray[np.floating], link: str) -> int:
    largest = score.max()
    if link == "softmax_float32":
        exponential = _libm_float32("expf")
        terms = np.array([exponential(float(s - largest)) for s in score], dtype=np.float32)
        return int(np.argmax(terms / np.float32(_sum_in_order(terms))))
    terms = np.array([math.exp(float(s - largest)) for s in score])
    return int(np.argmax(terms / _sum_in_order(terms)))


def _sum_in_order(terms: NDArray[np.floating]) -> float:
    """Sum in double from left to right, as the libraries add.

    NumPy adds in pairs, and Python's `sum` compensates for rounding since 3.12.
    """
    total = 0.0
    for term in terms.tolist():
        total += term
    return total
