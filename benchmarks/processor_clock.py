"""Limits and times of all engines in seconds of the processor; import it before anything else.

On a machine with other work a limit in wall-clock seconds ends a row early, and times say more
about the other work. Importing this module lets the compiled clock and `time.perf_counter` read the
time that the thread has had (Linux only); kernels with that clock have a cache of their own.
"""

import os
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
if sys.platform == "linux":
    # Kernels are found by their sources, which do not tell of this change.
    os.environ["NUMBA_CACHE_DIR"] = str(Path(__file__).parents[1] / "build" / "processor_clock")

import numpy as np

from treeproof.kernels.core import clock

if sys.platform == "linux":
    clock._MONOTONIC = np.int32(3)  # CLOCK_THREAD_CPUTIME_ID
    # Deadlines are set here and looked at in kernels, so both need the same clock.
    time.perf_counter = time.thread_time
    UNIT = "seconds of the processor"
else:
    UNIT = "wall-clock seconds"
