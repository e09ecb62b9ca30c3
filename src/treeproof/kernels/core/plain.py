"""Whether a kernel runs as plain Python or as machine code: nobody should wait for a compiler.

An entry point whose machine code is not there runs as plain Python, with the same answers. When
that has taken a while, another process compiles it (`treeproof.kernels.core.background`), and the
next call that finds machine code runs it. A call that is still running when machine code comes is
begun again with it. One that reaches its time limit waits for machine code: a limit means the same
in both modes.

``TREEPROOF_PLAIN`` is ``auto``, ``never`` (compile at once, as before a long run) or ``always``
(never compile, for contributors: breakpoints and profilers work in kernels).
"""

import ctypes
import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from treeproof.errors import InvalidInput
from treeproof.kernels.core.cache import has_machine_code
from treeproof.kernels.core.clock import TooSlow, current
from treeproof.kernels.core.compiler import EntryPoint
from treeproof.kernels.core.processors import usable_processors

CALL_S = 1.0
"""A call that takes longer as plain Python may be begun again as machine code."""
WORTH_COMPILING_S = 2.0
"""Processor seconds of an entry point in plain Python after which another process compiles it, a
tenth of what that takes: shorter work ends before the compiler would."""
ALONE_S = 3.0
"""The same where there is one core, after which everything waits: the compiler needs that core."""
MOST_COPIED_BYTES = 1 << 26
"""Calls that might write more than this wait for machine code: so large a model takes long anyway,
and to be able to begin again costs a copy."""
LIMIT_SHARE = 0.9
"""Part of a time limit after which a call is begun again as machine code."""


def mode() -> str:
    """What ``TREEPROOF_PLAIN`` says."""
    said = os.environ.get("TREEPROOF_PLAIN", "auto") or "auto"
    if said not in {"auto", "never", "always"}:
        raise InvalidInput(f"TREEPROOF_PLAIN must be 'auto', 'never' or 'always'. Got {said!r}.")
    return said


@contextmanager
def compiled_at_once() -> Iterator[None]:
    """Let kernels compile where they are called, whatever the environment says."""
    before = os.environ.get("TREEPROOF_PLAIN")
    os.environ["TREEPROOF_PLAIN"] = "never"
    try:
        yield
    finally:
        del os.environ["TREEPROOF_PLAIN"]
        if before is not None:
            os.environ["TREEPROOF_PLAIN"] = before


def is_plain(entry: Any) -> bool:
    """Whether the next call of an entry point will run as plain Python, or begin so."""
    if entry.machine_code is not None or not entry.is_kept:
        return False
    said = mode()
    return said == "always" or (
        said == "auto" and not has_machine_code(entry.name, entry.directory)
    )


def turns(entry: Any, part: slice) -> Iterator[slice]:
    """Rows for one call of an entry point after the other.

    Single rows as long as it runs as plain Python, so that no call takes long and machine code is
    used as soon as it is there; all of the slice that is left where it is there.
    """
    first = part.start
    while first < part.stop:
        stop = first + 1 if is_plain(entry) else part.stop
        yield slice(first, stop)
        first = stop


def call(entry: EntryPoint, arguments: tuple[Any, ...]) -> Any:
    """Call an entry point that has no machine code in this process."""
    said = mode()
    if said == "always":
        return _run_plain(entry, arguments)
    if entry.is_kept and said == "auto" and not has_machine_code(entry.name, entry.directory):
        return _begin(entry, *arguments)
    from treeproof.kernels.core.machine_code import machine_code_of

    missing = partial(_begin, entry) if entry.is_kept and said == "auto" else None
    entry.machine_code = machine_code_of(entry, missing)
    return entry(*arguments)


def _run_plain(entry: EntryPoint, arguments: tuple[Any, ...]) -> Any:
    # Machine code divides by zero and overflows without a word.
    with np.errstate(all="ignore"):
        return entry.function(*arguments)


def _begin(entry: EntryPoint, *arguments: Any) -> Any:
    """Run a call as plain Python, or, when that takes too long, wait for machine code."""
    written = [array for array in _arrays(arguments) if array.flags.writeable]
    is_small = sum(array.nbytes for array in written) <= MOST_COPIED_BYTES
    if is_small and (entry.plain_s <= ALONE_S or usable_processors() > 1):
        before = [(array, array.copy()) for array in written]
        began, worked = time.perf_counter(), time.thread_time()
        limits = [LIMIT_SHARE * each.time_s for each in arguments if hasattr(each, "time_s")]
        try:
            with _watched(_Call(entry, arguments, began, began + min(limits, default=math.inf))):
                return _run_plain(entry, arguments)
        except TooSlow:
            for array, content in before:
                array[...] = content
        finally:
            spent(entry, arguments, time.thread_time() - worked)
    from treeproof.kernels.core import background
    from treeproof.kernels.core.machine_code import machine_code_of

    background.wait(entry, arguments)
    # Compiles here where the other process could not.
    answer = machine_code_of(entry)(*arguments)
    if entry.machine_code is None and has_machine_code(entry.name, entry.directory):
        entry.machine_code = machine_code_of(entry, partial(_begin, entry))
    return answer


def spent(entry: Any, arguments: tuple[Any, ...], seconds: float) -> None:
    """Count time that was spent without machine code; have it made when that is worth it."""
    entry.plain_s += seconds
    if entry.plain_s > WORTH_COMPILING_S and mode() == "auto":
        from treeproof.kernels.core import background

        background.request(entry, arguments)


def _arrays(arguments: Any) -> Iterator[np.ndarray]:
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            yield argument
        elif isinstance(argument, tuple):
            yield from _arrays(argument)


class _Call(NamedTuple):
    """A call that runs as plain Python."""

    entry: EntryPoint
    arguments: tuple[Any, ...]
    began: float
    deadline: float  # by its time limit

    def is_lost(self, now: float) -> bool:
        """Whether it has to be begun again: machine code would be done sooner."""
        if now < self.began + CALL_S or now > self.deadline:
            return now > self.deadline
        from treeproof.kernels.core import background

        # Where there is one core, the compiler needs it.
        task = background.request(self.entry, self.arguments)
        return usable_processors() == 1 or task.is_over.is_set()


_watched_calls: dict[int, _Call] = {}
_lock = threading.Lock()


@contextmanager
def _watched(call: _Call) -> Iterator[None]:
    """Raise `TooSlow` in this thread when its call is lost, wherever it is.

    Kernels that look at the clock see a time limit themselves; all else is seen by a thread.
    """
    thread = threading.get_ident()
    with _lock:
        if not _watched_calls:
            threading.Thread(target=_watch, name="treeproof-watch", daemon=True).start()
        _watched_calls[thread] = call
    outer = getattr(current, "deadline", math.inf)
    current.deadline = call.deadline
    try:
        yield
    finally:
        current.deadline = outer
        with _lock:
            _watched_calls.pop(thread, None)


def _watch() -> None:
    """Look after calls as long as there are any; `TooSlow` is raised once for each."""
    while True:
        time.sleep(0.05)
        with _lock:
            now = time.perf_counter()
            for thread, call in list(_watched_calls.items()):
                if call.is_lost(now):
                    del _watched_calls[thread]
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(thread), ctypes.py_object(TooSlow)
                    )
            if not _watched_calls:
                return
