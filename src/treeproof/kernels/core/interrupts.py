"""Ctrl-C while machine code runs or is made: searches end at their next look at the clock.

Python runs its signal handlers between its own steps, so never while machine code runs. What runs
at once is the C part, which writes the signal's number to a socket: a thread reads it there and
raises `STOP`. Python's own handler then has its turn, and what the search says is thrown away.
"""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

STOP = np.zeros(1, dtype=np.int64)
"""Not 0 while all searches of this process have to end."""
_BYTES = 4096


class _Listener:
    """The socket and the thread, which there are from the first call on."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)
        self.fileno = self._write.fileno()
        threading.Thread(target=self._listen, name="treeproof-interrupts", daemon=True).start()

    def _listen(self) -> None:
        while True:
            if signal.SIGINT in self._read.recv(_BYTES):
                STOP[0] = 1


_listeners: list[_Listener] = []  # at most one


def run_interruptibly(machine_code: Callable[..., Any], *arguments: Any) -> Any:
    """Run machine code so that Ctrl-C ends it.

    In other threads nothing is to be done: Python's handlers run in the main thread, and whoever
    waits there for searches raises `STOP` for them. A program with a handler of its own, or one
    that listens in the same way, as asyncio does, keeps it.
    """
    if not _is_ours():
        return machine_code(*arguments)
    if not _listeners:
        _listeners.append(_Listener())
    other = signal.set_wakeup_fd(_listeners[0].fileno, warn_on_full_buffer=False)
    try:
        STOP[0] = 0
        if other != -1:
            signal.set_wakeup_fd(other, warn_on_full_buffer=False)
        return machine_code(*arguments)
    finally:
        try:
            _end(other)
        finally:  # once more, if Ctrl-C came in the middle of it
            _end(other)


def _is_ours() -> bool:
    """Whether Ctrl-C is for this thread to notice, and means what Python lets it mean."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


_noted = [False]
"""Whether Ctrl-C was noted where nothing may be raised."""


@contextmanager
def noting_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait for the next `raise_noted`, or for the end.

    The compiler is called back by code that is not Python, and what a handler raises there is lost:
    the user would have to know that Ctrl-C is wanted twice.
    """
    if not _is_ours():
        yield
        return

    def note(*_: Any) -> None:
        _noted[0] = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
        raise_noted()
    finally:
        _noted[0] = False
        signal.signal(signal.SIGINT, signal.default_int_handler)


def raise_noted() -> None:
    """Raise what Ctrl-C raises, if it was noted."""
    if _noted[0]:
        _noted[0] = False
        raise KeyboardInterrupt


def _end(other: int) -> None:
    signal.set_wakeup_fd(other, warn_on_full_buffer=False)
    STOP[0] = 0
