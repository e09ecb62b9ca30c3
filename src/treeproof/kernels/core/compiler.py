"""Decorators for kernels: plain Python functions that a compiler can turn into machine code.

A decorated inner kernel is the Python function that it decorates: where it runs as plain Python it
can be called, stepped through and profiled as any other. What Python calls is an `EntryPoint`,
which runs machine code where that is there and plain Python until then
(`treeproof.kernels.core.plain` decides). numba is imported when machine code is loaded or made, and
not before.
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, NamedTuple, TypeVar

import numpy as np

from treeproof.kernels.core.cache import source_hash

ONE = np.uint32(1)
"""Positions are unsigned in inner loops, because reading at a signed one costs twice as much: it
might count from the end. Adding this keeps them unsigned; adding a plain 1 would not."""

Function = TypeVar("Function", bound=Callable[..., Any])


class InnerKernel(NamedTuple):
    """How a function that only kernels call is compiled."""

    function: Callable[..., Any]
    is_borrowing: bool  # neither allocates nor returns arrays: its arguments are not counted
    is_inlined: bool
    compiled: Callable[[], Callable[..., Any]] | None  # what stands for it in machine code


INNER_KERNELS: list[InnerKernel] = []
"""All inner kernels of the modules that were imported, for the compiler to know."""


class EntryPoint:
    """A kernel that Python calls: machine code where it is there, plain Python until then.

    Attributes
    ----------
    function : callable
        The kernel as plain Python.
    machine_code : callable or None
        What runs in its place, once it is loaded in this process.
    is_kept : bool
        Whether machine code is kept on disk.
    name, directory : str
        By which its machine code is found on disk.
    place : tuple of str
        Its module, and its name there.
    plain_s : float
        Processor seconds that this process has spent in the kernel as plain Python.
    """

    def __init__(self, function: Callable[..., Any], *, is_kept: bool) -> None:
        update_wrapper(self, function)
        self.function, self.is_kept = function, is_kept
        self.place = (function.__module__, function.__qualname__)
        self.name = ".".join(self.place)
        # Now, because sources may change while this process goes on with what it has imported.
        self.directory = source_hash(function.__module__) if is_kept else ""
        self.machine_code: Callable[..., Any] | None = None
        self.plain_s = 0.0

    def __call__(self, *arguments: Any) -> Any:
        """Run the kernel."""
        if self.machine_code is not None:
            return self.machine_code(*arguments)
        from treeproof.kernels.core import plain

        return plain.call(self, arguments)


def kernel(function: Function) -> Function:
    """Make an entry point of what Python calls; its machine code is kept on disk."""
    return EntryPoint(function, is_kept=True)  # type: ignore[return-value]


def memory_kernel(function: Function) -> Function:
    """Make an entry point whose machine code is made anew in every process."""
    return EntryPoint(function, is_kept=False)  # type: ignore[return-value]


def inner_kernel(function: Function) -> Function:
    """Compile what only kernels call, as a part of each `kernel` that it ends up in."""
    INNER_KERNELS.append(InnerKernel(function, False, False, None))
    return function


def noalloc_kernel(function: Function) -> Function:
    """Compile an inner kernel that neither allocates nor returns arrays.

    Its arrays are borrowed from the caller, so they are not counted: a call with structures of many
    arrays costs a tenth of what it costs a plain kernel. Slices of arguments are fine.
    """
    INNER_KERNELS.append(InnerKernel(function, True, False, None))
    return function


def inlined_kernel(function: Function) -> Function:
    """Compile a noalloc kernel into its callers: for what inner loops call.

    Handing over structures of many arrays costs more than a short kernel does.
    """
    INNER_KERNELS.append(InnerKernel(function, True, True, None))
    return function


def compiled_by(make: Callable[[], Callable[..., Any]]) -> Callable[[Function], Function]:
    """Let another function stand for an inner kernel in machine code.

    For what plain Python and machine code have to do in different ways, with the same results. The
    other function is made when numba is there.
    """

    def decorate(function: Function) -> Function:
        INNER_KERNELS.append(InnerKernel(function, True, True, make))
        return function

    return decorate


def at_once_by(
    function: Callable[..., Any], *, allocates: bool = False
) -> Callable[[Function], Function]:
    """Let another function stand for a noalloc kernel in plain Python: with whole arrays at once.

    Where loops over many numbers would take plain Python too long, and sums are the same in any
    order; the other way round from `compiled_by`. With `allocates` it is an `inner_kernel`.
    """

    def decorate(loops: Function) -> Any:
        at_once = update_wrapper(function, loops, assigned=("__doc__",), updated=())
        INNER_KERNELS.append(InnerKernel(at_once, not allocates, False, lambda: loops))
        return at_once

    return decorate
