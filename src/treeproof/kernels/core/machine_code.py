"""numba as the compiler of kernels: `machine_code_of` gives what runs an entry point compiled.

With a numba that was not tested, or one that lacks an internal part, kernels are compiled by
numba's own steps instead of the quick compiler's: the same sources and the same answers, in more
time.
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from inspect import isfunction
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
from filelock import FileLock, Timeout
from numba import njit
from numba.core import types
from numba.core.caching import IndexDataCacheFile, _Cache
from numba.core.compiler import CompileResult

from treeproof.kernels.core.cache import (
    BASELINE,
    BASELINE_FEATURES,
    SHIPPED,
    cache_directory,
    index_name,
)
from treeproof.kernels.core.clock import seconds_now
from treeproof.kernels.core.compiler import INNER_KERNELS, EntryPoint
from treeproof.kernels.core.interrupts import noting_interrupts, run_interruptibly
from treeproof.kernels.core.progress import progress

logger = logging.getLogger("treeproof")

TESTED = ((0, 62), (0, 68))
"""The first and the last release of numba that the quick compiler was tested with."""


@cache
def _options() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Options of entry points, of inner kernels, and of those that borrow their arrays."""
    plain = {"nogil": True, "error_model": "numpy"}
    release = tuple(int(part) for part in numba.__version__.split(".")[:2])
    if os.environ.get("TREEPROOF_QUICK_COMPILER") == "0":
        return plain, plain, plain
    if not TESTED[0] <= release <= TESTED[1]:
        logger.info("numba %s was not tested: kernels compile by its own steps.", release)
        return plain, plain, plain
    try:
        from treeproof.kernels.core import quick_compiler as quick

        quick.check_steps()
    except Exception as error:
        logger.warning("Kernels compile by numba's own steps, which take longer: %s.", error)
        return plain, plain, plain
    entry = quick.COMMON | {"pipeline_class": quick.EntryCompiler}
    inner = quick.COMMON | {"no_cpython_wrapper": True, "pipeline_class": quick.LinkedCompiler}
    return entry, inner, inner | quick.BORROWED


_KNOWN: dict[Callable[..., Any], Any] = {}
"""Dispatchers of inner kernels, by the functions that plain Python calls."""


def _introduce_inner_kernels() -> None:
    """Tell numba how to compile the functions that kernels call.

    numba takes the type of a value from this attribute where it knows no other.
    """
    _, inner, borrowing = _options()
    while len(_KNOWN) < len(INNER_KERNELS):
        kernel = INNER_KERNELS[len(_KNOWN)]
        options = dict(borrowing if kernel.is_borrowing else inner)
        if kernel.is_inlined and "pipeline_class" in options:
            options["forceinline"] = True
        function = kernel.function if kernel.compiled is None else kernel.compiled()
        dispatcher = njit(**options)(function)
        _KNOWN[kernel.function] = dispatcher
        kernel.function._numba_type_ = types.Dispatcher(dispatcher)  # type: ignore[attr-defined]


def _parts(function: Callable[..., Any]) -> set[Any]:
    """All functions that an entry point is compiled of."""
    found, waiting = set(), [function]
    while waiting:
        some = waiting.pop()
        if some in found:
            continue
        found.add(some)
        compiled = _KNOWN[some].py_func if some in _KNOWN else some
        known = (compiled.__globals__.get(name) for name in compiled.__code__.co_names)
        waiting.extend(callee for callee in known if isfunction(callee) and callee in _KNOWN)
    return found


def machine_code_of(
    entry: EntryPoint, when_missing: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """What runs an entry point as machine code.

    Where there is none for the types of some arguments, `when_missing` is called with them, if
    given; otherwise the kernel is compiled at once.
    """
    dispatcher = dispatcher_of(entry, when_missing)
    if seconds_now in _parts(entry.function):  # others have nowhere to stop
        return partial(run_interruptibly, dispatcher)
    return dispatcher


def dispatcher_of(entry: EntryPoint, when_missing: Callable[..., Any] | None = None) -> Any:
    """Numba's own object for an entry point; see `machine_code_of`."""
    _introduce_inner_kernels()
    dispatcher = njit(**_options()[0])(entry.function)
    if not entry.is_kept:
        return dispatcher
    dispatcher._cache = kept = KernelCache(entry)
    compile_signature = dispatcher.compile

    def compile_and_release(signature: Any) -> Any:
        try:
            with noting_interrupts():
                return compile_signature(signature)
        finally:
            kept.release()

    dispatcher.compile = compile_and_release
    if when_missing is not None:
        compile_at_once = dispatcher._compile_for_args

        def compile_for_args(*arguments: Any) -> Any:
            signature = tuple(dispatcher.typeof_pyval(argument) for argument in arguments)
            found = kept.find(signature, dispatcher.targetctx)
            return when_missing if found is None else compile_at_once(*arguments)

        dispatcher._compile_for_args = compile_for_args
    return dispatcher


def compile_for(entry: EntryPoint, arguments: tuple[Any, ...]) -> None:
    """Compile an entry point for arguments of some types, and keep its machine code."""
    dispatcher = dispatcher_of(entry)
    dispatcher.compile(tuple(dispatcher.typeof_pyval(argument) for argument in arguments))


@cache
def _is_baseline() -> bool:
    """Whether this processor runs what was compiled for `BASELINE`."""
    if not llvmlite.binding.get_process_triple().startswith("x86_64"):
        return False
    features = llvmlite.binding.get_host_cpu_features()
    return all(features.get(name, False) for name in BASELINE_FEATURES)


class KernelCache(_Cache):  # type: ignore[misc]
    """Machine code of one entry point, one file for each signature, in place of numba's cache."""

    def __init__(self, entry: EntryPoint) -> None:
        self._name, self._hash, self._function = entry.name, entry.directory, entry.function
        self._lock: Any = None
        self._found: dict[Any, Any] = {}

    @property
    def cache_path(self) -> str:
        """Where this entry point is kept; numba shows it in statistics."""
        return str(self._directory())

    def _directory(self) -> Path | None:
        place = cache_directory()
        return None if place is None else place / self._hash

    def enable(self) -> None:
        """Nothing to do: it is always on."""

    def disable(self) -> None:
        """Nothing to do: it is always on."""

    def flush(self) -> None:
        """Nothing to do: an entry is a file that never changes."""

    def _entries(self, directory: Path) -> IndexDataCacheFile:
        return IndexDataCacheFile(str(directory), index_name(self._name), self._hash)

    def find(self, signature: Any, target_context: Any) -> Any:
        """Machine code for a signature, as it is on disk; None where there is none."""
        if signature in self._found:
            return self._found[signature]
        target_context.refresh()
        directory = self._directory()
        found = None
        if _is_baseline() and (SHIPPED / self._hash).is_dir():
            entries = self._entries(SHIPPED / self._hash)
            found = _load(entries, (str(signature), BASELINE), target_context)
        if found is None and directory is not None:
            machine = target_context.codegen().magic_tuple()
            found = _load(self._entries(directory), (str(signature), machine), target_context)
        if found is not None:
            self._found[signature] = found
        return found

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Find a compiled kernel; where there is none, announce and prepare its compilation."""
        found, directory = self.find(signature, target_context), self._directory()
        if found is None and directory is not None:
            # Two processes that start on an empty cache: one compiles, the other waits for it.
            self._lock = _locked(directory / f"{self._name}.lock", self._name)
            found = self.find(signature, target_context)
            if found is not None:
                self.release()
        if found is None:
            parts = _parts(self._function) - {self._function}
            progress.start(self._name, {self._function, *(_KNOWN[part].py_func for part in parts)})
        return found

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a compiled kernel, and let other processes have it."""
        progress.end()
        directory = self._directory()
        if directory is not None:
            is_baseline = os.environ.get("NUMBA_CPU_NAME") == BASELINE
            machine = BASELINE if is_baseline else compiled.codegen.magic_tuple()
            with suppress(OSError):
                self._entries(directory).save((str(signature), machine), compiled._reduce())
        self.release()

    def release(self) -> None:
        """Let other processes compile, whatever became of it here."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _load(entries: IndexDataCacheFile, key: tuple[str, Any], target_context: Any) -> Any:
    # The directory is the user's own, or the package's: nobody else can write there.
    try:
        content = entries.load(key)
    except Exception:  # a damaged entry may fail in any way; it is compiled again
        entries.flush()
        return None
    return None if content is None else CompileResult._rebuild(target_context, *content)


def _locked(path: Path, name: str) -> FileLock | None:
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.warning("Waiting for another process that compiles %s.", name)
            lock.acquire()
        return lock
    return None
