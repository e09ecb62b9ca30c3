"""The label that a softmax gives, with the C library's own exponentials, as libraries form it."""

import math
import sys

import numba
import numpy as np
from numba import types

from treeproof.kernels.core.compiler import noalloc_kernel

IS_KNOWN = sys.platform != "win32"
"""Whether the C library's exponentials can be called by name."""

if numba.config.DISABLE_JIT or not IS_KNOWN:

    @noalloc_kernel
    def exponential(exponent, is_single):
        """Exponential, rounded to float32 if asked to."""
        if is_single:
            return np.float64(np.float32(math.exp(np.float32(exponent))))
        return math.exp(exponent)

else:
    # Called by name, so that compiled code that uses them can be kept on disk.
    _expf = types.ExternalFunction("expf", types.float32(types.float32))
    _exp = types.ExternalFunction("exp", types.float64(types.float64))

    @noalloc_kernel
    def exponential(exponent, is_single):
        """Exponential by the C library, in float32 if asked to."""
        return np.float64(_expf(np.float32(exponent))) if is_single else _exp(exponent)


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
