"""Wall-clock time inside kernels, for time limits."""

import sys
import time

import numba
import numpy as np
from numba import types

from treeproof.kernels.core.compiler import inner_kernel

# Called by name, so that compiled code that uses it can be kept on disk.
_MONOTONIC = np.int32(6 if sys.platform == "darwin" else 1)

if numba.config.DISABLE_JIT:

    def seconds_now(buffer):
        """Seconds of a monotonic clock; kernels run as plain Python."""
        return time.perf_counter()

elif sys.platform == "win32":
    # The C runtime's clock counts wall-clock milliseconds there.
    _clock = types.ExternalFunction("clock", types.int32())

    @inner_kernel
    def seconds_now(buffer):
        """Seconds of a monotonic clock.

        buffer  int64 (2,)   scratch
        """
        return 1e-3 * _clock()

else:
    _clock_gettime = types.ExternalFunction(
        "clock_gettime", types.int32(types.int32, types.voidptr)
    )

    @inner_kernel
    def seconds_now(buffer):
        """Seconds of a monotonic clock.

        buffer  int64 (2,)   scratch
        """
        _clock_gettime(_MONOTONIC, buffer.ctypes)
        return buffer[0] + 1e-9 * buffer[1]
