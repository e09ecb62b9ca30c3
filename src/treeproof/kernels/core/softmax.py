"""The label that a softmax gives, with the C library's own exponentials, as libraries form it."""

import ctypes
import math
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from treeproof.kernels.core.compiler import compiled_by, noalloc_kernel

IS_KNOWN = sys.platform != "win32"
"""Whether the C library's exponentials can be called by name."""


def _compiled_exponential() -> Callable[..., Any]:
    from numba import types

    if not IS_KNOWN:
        return lambda exponent, is_single: (
            np.float64(np.float32(math.exp(np.float32(exponent))))
            if is_single
            else math.exp(exponent)
        )
    # Called by name, so that compiled code that uses them can be kept on disk.
    single = types.ExternalFunction("expf", types.float32(types.float32))
    double = types.ExternalFunction("exp", types.float64(types.float64))
    return lambda exponent, is_single: (
        np.float64(single(np.float32(exponent))) if is_single else double(exponent)
    )


@cache
def _c_library() -> Any:
    library = ctypes.CDLL(None)
    library.expf.argtypes, library.expf.restype = [ctypes.c_float], ctypes.c_float
    library.exp.argtypes, library.exp.restype = [ctypes.c_double], ctypes.c_double
    return library


@compiled_by(_compiled_exponential)
def exponential(exponent, is_single):
    """Exponential by the C library, in float32 if asked to."""
    if IS_KNOWN:
        return np.float64((_c_library().expf if is_single else _c_library().exp)(exponent))
    if is_single:
        return np.float64(np.float32(math.exp(np.float32(exponent))))
    return np.float64(math.exp(exponent))


@noalloc_kernel
def softmax_label(margins, is_single):
    """First index of the largest softmax, as `treeproof.model.links` computes it.

    margins    float64 (n_outputs,)   numbers of float32 where sums are
    is_single  bool                   in float32, with a sum in double

    Sound: differences and quotients of float32 numbers that are rounded to double and then to
    float32 are rounded as at once, since double has more than 2 * 24 + 2 bits.
    """
    largest = margins[0]
    for output in range(len(margins)):
        largest = max(largest, margins[output])
    total = 0.0
    for output in range(len(margins)):
        total += exponential(margins[output] - largest, is_single)
    if is_single:
        total = np.float64(np.float32(total))
    label = 0
    best = -1.0
    for output in range(len(margins)):
        share = exponential(margins[output] - largest, is_single) / total
        if is_single:
            share = np.float64(np.float32(share))
        if share > best:
            best = share
            label = output
    return label
