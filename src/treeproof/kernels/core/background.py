"""Another process that compiles kernels while this one goes on without them.

One such process serves a process, and one entry point after the other. It ends with the process
that it serves, however that one ends: its standard input closes. What it compiled is found on disk.
"""

import atexit
import contextlib
import importlib
import os
import pickle
import subprocess
import sys
import threading
import time
from typing import IO, Any, NamedTuple

import numpy as np

from treeproof.kernels.core.cache import cache_directory
from treeproof.kernels.core.compiler import EntryPoint
from treeproof.kernels.core.progress import Announcement

_POLL_S = 0.1
_NAME = "treeproof-compiler"


class _Task:
    """An entry point that is being compiled for some types of arguments."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.parts = (0, 0)
        self.telling = threading.Lock()  # held by the one who tells how far it is


class _Compiler:
    """The other process, and what it was asked for."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._tasks: dict[bytes, _Task] = {}
        self._lock = threading.Lock()

    def request(self, entry: EntryPoint, arguments: tuple[Any, ...]) -> _Task:
        """Ask for machine code, once for every entry point and types of its arguments."""
        order = pickle.dumps((*entry.place, _described(arguments)))
        with self._lock:
            task = self._tasks.get(order)
            if task is None:
                task = self._tasks[order] = _Task()
                try:
                    pipe = self._orders()
                    if pipe is None:
                        task.is_over.set()
                    else:
                        pickle.dump(order, pipe)
                        pipe.flush()
                except OSError:  # no process can be started, or it has ended
                    task.is_over.set()
        return task

    def _orders(self) -> IO[bytes] | None:
        """Where the other process takes orders; None where there can be none."""
        # Without a place for files nothing can be handed over; a frozen program is no Python.
        if cache_directory() is None or not sys.executable or hasattr(sys, "frozen"):
            return None
        if self._process is None or self._process.poll() is not None:
            path, here = [entry or os.getcwd() for entry in sys.path], __name__
            program = f"import sys; sys.path[:] = {path!r}; from {here} import serve; serve()"
            self._process = subprocess.Popen(  # noqa: S603 - this very interpreter and package
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "TREEPROOF_PLAIN": "never"},
            )
            threading.Thread(
                target=self._listen, args=(self._process.stdout,), name=_NAME, daemon=True
            ).start()
        return self._process.stdin

    def _listen(self, answers: IO[bytes]) -> None:
        with contextlib.suppress(EOFError, pickle.UnpicklingError, OSError, ValueError):
            while True:
                order, n_done, n_parts = pickle.load(answers)  # noqa: S301 - our own process
                self._tasks[order].parts = (n_done, n_parts)
                if n_done == n_parts == 0:
                    self._tasks[order].is_over.set()
        # It has ended: what it did not do is not done.
        for task in list(self._tasks.values()):
            task.is_over.set()

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a process that was forked: the compiler serves the other one."""
        if self._process is not None:
            self._process.returncode = 0  # it is no child of this process, which cannot wait for it
        # Giving it up closes its pipes here: it ends as soon as the other process does.
        self._process, self._tasks, self._lock = None, {}, threading.Lock()


_compiler = _Compiler()
atexit.register(_compiler.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_compiler.forget)


def request(entry: EntryPoint, arguments: tuple[Any, ...]) -> _Task:
    """Let another process compile an entry point for arguments of these types."""
    return _compiler.request(entry, arguments)


def wait(entry: EntryPoint, arguments: tuple[Any, ...]) -> None:
    """Wait until machine code is there or cannot be had from another process."""
    task, announcement = _compiler.request(entry, arguments), Announcement(entry.name)
    is_telling = task.telling.acquire(blocking=False)
    while not task.is_over.wait(_POLL_S):
        if is_telling:
            announcement.tell(*task.parts)
    announcement.end()


class _Array(NamedTuple):
    """What the compiler has to know of an array; content would be lost in sending it."""

    dtype: np.dtype[Any]
    n_axes: int
    order: str
    is_writeable: bool


def _described(argument: Any) -> Any:
    """What the compiler has to know of an argument."""
    if isinstance(argument, np.ndarray):
        flags = argument.flags
        order = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return _Array(argument.dtype, argument.ndim, order, flags.writeable)
    if isinstance(argument, tuple):
        return _with_parts(argument, [_described(part) for part in argument])
    return None if argument is None else type(argument)()  # a number, which one does not matter


def _example(description: Any) -> Any:
    """An argument of which `_described` says the same."""
    if isinstance(description, _Array):
        dtype, n_axes, order, is_writeable = description
        sizes = (1,) * n_axes if order == "C" else (4,) * n_axes
        array = np.zeros(sizes, dtype=dtype)
        if order == "F":
            array = array.T
        if order == "A":
            array = array[(slice(None, None, 2),) * n_axes]
        array.flags.writeable = is_writeable
        return array
    if isinstance(description, tuple):
        return _with_parts(description, [_example(part) for part in description])
    return description


def _with_parts(kind: tuple[Any, ...], parts: list[Any]) -> tuple[Any, ...]:
    """A tuple of the same kind, which may have names."""
    return type(kind)(*parts) if hasattr(kind, "_fields") else tuple(parts)


def serve() -> None:
    """Be the other process: compile what standard input asks for, until it closes."""
    from treeproof.kernels.core.machine_code import compile_for
    from treeproof.kernels.core.progress import progress

    orders: list[bytes] = []
    came = threading.Condition()
    threading.Thread(target=_receive, args=(orders, came), daemon=True).start()
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr
    while True:
        with came:
            came.wait_for(lambda: bool(orders))
            order = orders.pop()  # the last one is what somebody waits for
        progress.tell = _Teller(order, answers)
        with contextlib.suppress(Exception):
            module, name, arguments = pickle.loads(order)  # noqa: S301 - of the process we serve
            compile_for(getattr(importlib.import_module(module), name), _example(arguments))
        _answer(answers, order, 0, 0)


class _Teller:
    """Tells the other process how far it is, now and then."""

    def __init__(self, order: bytes, answers: IO[bytes]) -> None:
        self._order, self._answers, self._told = order, answers, time.monotonic()

    def __call__(self, n_done: int, n_parts: int) -> None:
        if time.monotonic() > self._told + 1.0:
            self._told = time.monotonic()
            _answer(self._answers, self._order, n_done, n_parts)


def _answer(answers: IO[bytes], order: bytes, n_done: int, n_parts: int) -> None:
    pickle.dump((order, n_done, n_parts), answers)
    answers.flush()


def _receive(orders: list[bytes], came: threading.Condition) -> None:
    source = sys.stdin.buffer
    with contextlib.suppress(Exception):
        while True:
            order = pickle.load(source)  # noqa: S301 - of the process we serve
            with came:
                orders.append(order)
                came.notify()
    os._exit(0)  # nobody is there to be served
