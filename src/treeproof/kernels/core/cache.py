"""Compiled kernels on disk: found again by what they are made of, compiled once for all processes.

numba's own cache does not notice when a function imported from another file changes, and it depends
on where the package is installed. Here the directory of a kernel is named by a hash of the sources
it can be made of, and of the versions that produce machine code. It lies under the user's cache
directory; ``NUMBA_CACHE_DIR`` overrides the place. Where nothing is writable, kernels compile in
memory. A wheel may carry kernels that were compiled for a common processor (`SHIPPED`).
"""

import hashlib
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding
import numba
import numpy as np
from filelock import FileLock, Timeout
from numba.core.caching import IndexDataCacheFile, _Cache
from numba.core.compiler import CompileResult

logger = logging.getLogger("treeproof")

_KERNELS = Path(__file__).parents[1]
_PACKAGE = __name__.rsplit(".", 2)[0]

SHIPPED = _KERNELS / "compiled"
"""Kernels that came with the package, for the processors of `BASELINE`."""

BASELINE = "x86-64-v3"
"""Processors that shipped kernels are compiled for: Intel since 2013, AMD since 2015."""

BASELINE_FEATURES = (
    *("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf"),
    *("sse3", "sse4.1", "sse4.2", "ssse3"),
)


@cache
def _sources_hash(folder: str) -> bytes:
    """Hash of the core and of a subpackage beside it, as the files are now."""
    digest = hashlib.sha256()
    for file in sorted({*(_KERNELS / "core").rglob("*.py"), *(_KERNELS / folder).rglob("*.py")}):
        source = file.read_bytes()
        digest.update(f"{file.relative_to(_KERNELS).as_posix()} {len(source)}\n".encode())
        digest.update(source)
    return digest.digest()


def source_hash(module: str) -> str:
    """Name of a directory for kernels of a module: what they are made of, and all versions.

    Sound: import contracts let kernels import only their own subpackage and the core.
    """
    inside = module.startswith(f"{_PACKAGE}.")
    folder = module.removeprefix(f"{_PACKAGE}.").partition(".")[0] if inside else "core"
    versions = (sys.version_info[:2], numba.__version__, llvmlite.__version__, np.__version__)
    digest = hashlib.sha256(_sources_hash(folder))
    digest.update(repr((module, versions)).encode())
    return digest.hexdigest()[:20]


def _user_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32" and "LOCALAPPDATA" in os.environ:
        return Path(os.environ["LOCALAPPDATA"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@cache
def cache_directory() -> Path | None:
    """Directory for compiled kernels; None where nothing is writable."""
    if os.environ.get("NUMBA_CACHE_DIR"):
        return Path(os.environ["NUMBA_CACHE_DIR"]) / "treeproof"
    user = f"treeproof-{os.getuid()}" if hasattr(os, "getuid") else "treeproof"
    for parent in (_user_cache, lambda: Path(tempfile.gettempdir())):
        try:
            directory = parent() / ("treeproof" if parent is _user_cache else user)
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A directory of another user could hold someone else's machine code.
            if hasattr(os, "getuid") and directory.stat().st_uid != os.getuid():
                continue
            with tempfile.TemporaryFile(dir=directory):
                return directory
        except (OSError, RuntimeError):
            continue
    return None


@cache
def _is_baseline() -> bool:
    """Whether this processor runs what was compiled for `BASELINE`."""
    if not llvmlite.binding.get_process_triple().startswith("x86_64"):
        return False
    features = llvmlite.binding.get_host_cpu_features()
    return all(features.get(name, False) for name in BASELINE_FEATURES)


class Progress:
    """What is said while a kernel compiles for long: that it does, how far it is, where it goes."""

    _QUIET = 1.0  # seconds: shorter compilations are not worth a word
    _PAUSE = 10.0  # seconds between two lines

    def __init__(self) -> None:
        self.expected = 0  # inner kernels that were imported; most of them are compiled
        self._name: str | None = None

    def start(self, name: str) -> None:
        """Begin to count the parts of an entry point."""
        self._name, self._done, self._said = name, 0, 0.0
        self._started = time.monotonic()
        if cache_directory() is None:
            logger.warning(
                "Compiled kernels cannot be kept, because no cache directory is writable, so every"
                " process compiles them anew. Set NUMBA_CACHE_DIR to a writable directory."
            )

    def step(self) -> None:
        """Count a part."""
        if self._name is None:
            return
        self._done += 1
        elapsed = time.monotonic() - self._started
        if self._said == 0.0 and elapsed > self._QUIET:
            place = f" It is kept in '{cache_directory()}'." if cache_directory() else ""
            logger.warning(
                "Compiling %s for this machine, which can take half a minute.%s", self._name, place
            )
        elif self._said == 0.0 or elapsed < self._said + self._PAUSE:
            return
        else:
            logger.warning(
                "Compiling %s: %d of about %d parts.", self._name, self._done, self.expected
            )
        self._said = elapsed

    def end(self) -> None:
        """Say how long it took."""
        if self._name is not None and self._said > 0.0:
            logger.warning("Compiled %s in %.0f s.", self._name, time.monotonic() - self._started)
        self._name = None


progress = Progress()


class KernelCache(_Cache):  # type: ignore[misc]
    """Machine code of one entry point, one file for each signature, in place of numba's cache."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"
        # Now, because sources may change while this process goes on with what it has imported.
        self._hash = source_hash(function.__module__)
        self._lock: Any = None

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
        name = self._name.removeprefix(f"{_PACKAGE}.")
        return IndexDataCacheFile(str(directory), name, self._hash)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Find a compiled kernel; where there is none, announce and prepare its compilation."""
        target_context.refresh()
        machine = target_context.codegen().magic_tuple()
        if _is_baseline() and (SHIPPED / self._hash).is_dir():
            entries = self._entries(SHIPPED / self._hash)
            found = _load(entries, (str(signature), BASELINE), target_context)
            if found is not None:
                return found
        directory = self._directory()
        if directory is None:
            progress.start(self._name)
            return None
        entries, key = self._entries(directory), (str(signature), machine)
        found = _load(entries, key, target_context)
        if found is None:
            # Two processes that start on an empty cache: one compiles, the other waits for it.
            self._lock = _locked(directory / f"{self._name}.lock", self._name)
            found = _load(entries, key, target_context)
            if found is None:
                progress.start(self._name)
            else:
                self._release()
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
        self._release()

    def _release(self) -> None:
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
