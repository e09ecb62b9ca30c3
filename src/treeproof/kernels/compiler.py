"""The one decorator for kernels, with a cache that cannot go stale.

numba does not notice when a function imported from another file changes, and it writes beside the
sources, which fails in read-only installs. Here the cache directory is named by a hash of all
kernel sources and of the versions that produce machine code, under the user's cache directory.
``NUMBA_CACHE_DIR`` overrides the place; where nothing is writable, kernels compile in memory.
"""

import hashlib
import os
import platform
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

Function = TypeVar("Function", bound=Callable[..., Any])


def _source_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    versions = (sys.version, numba.__version__, llvmlite.__version__, np.__version__)
    digest.update(repr((versions, platform.machine())).encode())
    return digest.hexdigest()[:20]


def _user_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32" and "LOCALAPPDATA" in os.environ:
        return Path(os.environ["LOCALAPPDATA"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@cache
def cache_directory() -> Path | None:
    """Directory for compiled kernels of exactly these sources; None where nothing is writable."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return Path(os.environ["NUMBA_CACHE_DIR"]) / f"treeproof-{_source_hash()}"
    user = f"treeproof-{os.getuid()}" if hasattr(os, "getuid") else "treeproof"
    for parent in (_user_cache() / "treeproof", Path(tempfile.gettempdir()) / user):
        directory = parent / _source_hash()
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
    directory = cache_directory()
    if directory is None:
        return njit(nogil=True, error_model="numpy")(function)
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(directory)
    try:
        return njit(cache=True, nogil=True, error_model="numpy")(function)
    finally:
        numba.config.CACHE_DIR = before
