"""Where compiled kernels lie on disk: found again by what they are made of.

numba's own cache does not notice when a function imported from another file changes, and it depends
on where the package is installed. Here the directory of a kernel is named by a hash of the sources
it can be made of, and of the versions that produce machine code. It lies under the user's cache
directory; ``NUMBA_CACHE_DIR`` overrides the place. Where nothing is writable, kernels compile in
memory. A wheel may carry kernels that were compiled for a common processor (`SHIPPED`).

numba is not imported here: whether machine code is there is asked before it is needed.
"""

import hashlib
import os
import re
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

_KERNELS = Path(__file__).parents[1]
_PACKAGE = __name__.rsplit(".", 2)[0]
_COMPILER = ("core.cache", "core.compiler", "core.machine_code", "core.quick_compiler")
"""What decides how machine code is made, whatever kernel it is made of."""
_IMPORT = re.compile(rf"^from {re.escape(_PACKAGE)}\.([\w.]+) import", re.MULTILINE)

SHIPPED = _KERNELS / "compiled"
"""Kernels that came with the package, for the processors of `BASELINE`."""

BASELINE = "x86-64-v3"
"""Processors that shipped kernels are compiled for: Intel since 2013, AMD since 2015."""

BASELINE_FEATURES = (
    *("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf"),
    *("sse3", "sse4.1", "sse4.2", "ssse3"),
)


@cache
def _source(module: str) -> bytes:
    return (_KERNELS / f"{module.replace('.', '/')}.py").read_bytes()


def sources_of(module: str) -> list[str]:
    """Modules of kernels that a module of kernels is made of, itself among them.

    Sound: kernels import each other by plain statements at the top of a file and nothing else from
    the package; a test of the architecture says so.
    """
    found, waiting = set(), {module, *_COMPILER}
    while waiting:
        some = waiting.pop()
        found.add(some)
        waiting |= set(_IMPORT.findall(_source(some).decode())) - found
    return sorted(found)


@cache
def source_hash(module: str) -> str:
    """Name of a directory for kernels of a module: what they are made of, and all versions."""
    inside = module.startswith(f"{_PACKAGE}.")
    own = module.removeprefix(f"{_PACKAGE}.") if inside else "core.arrays"
    releases = [version(name) for name in ("numba", "llvmlite", "numpy")]
    digest = hashlib.sha256(repr((module, sys.version_info[:2], releases)).encode())
    # Whether the quick compiler is on or off, the machine code does the same in other steps.
    digest.update(os.environ.get("TREEPROOF_QUICK_COMPILER", "").encode())
    for name in sources_of(own):
        source = _source(name)
        digest.update(f"{name} {len(source)}\n".encode())
        digest.update(source)
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


def index_name(kernel: str) -> str:
    """Name of the files of an entry point, by its module and its own name."""
    return kernel.removeprefix(f"{_PACKAGE}.")


def has_machine_code(kernel: str, directory: str) -> bool:
    """Whether some machine code of an entry point is on disk, for any types of its arguments."""
    places = (SHIPPED, cache_directory())
    file = f"{index_name(kernel)}.nbi"
    return any(place is not None and (place / directory / file).exists() for place in places)
