"""The one decorator for kernels, with a cache that cannot go stale.

numba does not notice when a function imported from another file changes, and it writes beside the
sources, which fails in read-only installs. Here the cache directory of a kernel is named by a hash
of its module, of every kernel module that it imports, directly or not, and of the versions that
produce machine code, under the user's cache directory.
``NUMBA_CACHE_DIR`` overrides the place; where nothing is writable, kernels compile in memory.
"""

import hashlib
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import numba
import numpy as np
from numba import njit

ONE = np.uint32(1)
"""Positions are unsigned in inner loops, because reading at a signed one costs twice as much: it
might count from the end. Adding this keeps them unsigned; adding a plain 1 would not."""

Function = TypeVar("Function", bound=Callable[..., Any])


_IMPORT = re.compile(rb"^from treeproof\.kernels\.(\w+) import", re.MULTILINE)


def _closure(module: str) -> set[str]:
    """A kernel module and all kernel modules that it imports, directly or not."""
    directory = Path(__file__).parent
    known: set[str] = set()
    pending = {module}
    while pending:
        name = pending.pop()
        path = directory / f"{name}.py"
        if name not in known and path.exists():
            known.add(name)
            pending.update(found.decode() for found in _IMPORT.findall(path.read_bytes()))
    return known


def _source_hash(module: str) -> str:
    digest = hashlib.sha256()
    for name in sorted(_closure(module) | {"compiler"}):
        digest.update(name.encode())
        digest.update((Path(__file__).parent / f"{name}.py").read_bytes())
    versions = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
    digest.update(repr((module, versions, platform.machine())).encode())
    return digest.hexdigest()[:20]


def _user_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32" and "LOCALAPPDATA" in os.environ:
        return Path(os.environ["LOCALAPPDATA"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@cache
def cache_directory(module: str) -> Path | None:
    """Directory for compiled kernels of a module as it is now; None where nothing is writable."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return Path(os.environ["NUMBA_CACHE_DIR"]) / f"treeproof-{_source_hash(module)}"
    user = f"treeproof-{os.getuid()}" if hasattr(os, "getuid") else "treeproof"
    for parent in (_user_cache() / "treeproof", Path(tempfile.gettempdir()) / user):
        directory = parent / _source_hash(module)
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A directory of another user could hold someone else's machine code.
            if hasattr(os, "getuid") and directory.stat().st_uid != os.getuid():
                continue
            with tempfile.TemporaryFile(dir=directory):
                return directory
        except (OSError, RuntimeError):
            continue
    return None


def kernel(function: Function) -> Function:
    """Compile on first call, keep the machine code on disk, release the GIL while running."""
    return _compiled(function)


def borrowing_kernel(function: Function) -> Function:
    """Compile a kernel that neither allocates nor returns arrays.

    Its arrays are borrowed from the caller, so they are not counted: a call with structures of many
    arrays costs a tenth of what it costs a plain kernel. Slices of arguments are fine.
    """
    return _compiled(function, _nrt=False)


def inlined_kernel(function: Function) -> Function:
    """Compile a borrowing kernel into its callers: for what inner loops call.

    Handing over structures of many arrays costs more than a short kernel does.
    """
    return _compiled(function, _nrt=False, forceinline=True)


def _compiled(function: Function, **options: bool) -> Function:
    directory = cache_directory(function.__module__.rpartition(".")[2])
    if directory is None:
        return njit(nogil=True, error_model="numpy", **options)(function)
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(directory)
    try:
        return njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    finally:
        numba.config.CACHE_DIR = before
