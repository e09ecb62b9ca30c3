"""The clock of kernels, for time limits and for `STOP`.

A search that looks at the clock while `STOP` is raised reads a time after every deadline, so it
ends as at its time limit; whoever raised the flag throws its answer away.
"""

import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from treeproof.kernels.core.compiler import compiled_by
from treeproof.kernels.core.interrupts import STOP

STOP_SYMBOL = "treeproof_stop"
"""The name by which machine code reads `STOP`."""

current = threading.local()
"""Of the thread that runs a kernel as plain Python: `deadline`, after which it is `TooSlow`."""


class TooSlow(BaseException):
    """Plain Python takes too long for a call; nobody should catch it by mistake."""


def _compiled_clock() -> Callable[..., Any]:
    import llvmlite.binding
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    llvmlite.binding.add_symbol(STOP_SYMBOL, STOP.ctypes.data)

    @intrinsic
    def is_stopped(typing_context):
        def generate(context, builder, signature, arguments):
            word = ir.IntType(64)
            flag = context.get_c_value(builder, word, STOP_SYMBOL)
            return builder.icmp_signed("!=", builder.load(flag), ir.Constant(word, 0))

        return types.boolean(), generate

    # Called by name, so that compiled code that uses it can be kept on disk.
    if sys.platform == "win32":
        # The C runtime's clock counts wall-clock milliseconds there.
        clock = types.ExternalFunction("clock", types.int32())

        def seconds(buffer):
            now = 1e-3 * clock()
            return np.inf if is_stopped() else now

    else:
        clock_gettime = types.ExternalFunction(
            "clock_gettime", types.int32(types.int32, types.voidptr)
        )
        monotonic = np.int32(6 if sys.platform == "darwin" else 1)

        def seconds(buffer):
            clock_gettime(monotonic, buffer.ctypes)
            now = buffer[0] + 1e-9 * buffer[1]
            return np.inf if is_stopped() else now

    return seconds


@compiled_by(_compiled_clock)
def seconds_now(buffer):
    """Seconds of a monotonic clock; infinite where searches have to end.

    buffer  int64 (2,)   scratch
    """
    now = time.perf_counter()
    if now > getattr(current, "deadline", math.inf):
        raise TooSlow
    return np.inf if STOP[0] != 0 else now
