"""Decorators for kernels, with a cache that cannot go stale.

numba does not notice when a function imported from another file changes, and it writes beside the
sources, which fails in read-only installs. Here the cache directory of a kernel is named by a hash
of its module, of every kernel module that it imports, directly or not, and of the versions that
produce machine code, under the user's cache directory.
``NUMBA_CACHE_DIR`` overrides the place; where nothing is writable, kernels compile in memory.
"""

import ast
import hashlib
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import llvmlite
import numba
import numpy as np
from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering

ONE = np.uint32(1)
"""Positions are unsigned in inner loops, because reading at a signed one costs twice as much: it
might count from the end. Adding this keeps them unsigned; adding a plain 1 would not."""

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS = getattr(numba.core.cpu, "CPUTargetOptions", None)
_BORROWED = {"_nrt": False} if hasattr(_OPTIONS, "_nrt") else {}
"""numba's private option for code that counts no references. A numba without it compiles the same
code with counts, which is slower and nothing else."""

_KERNELS = __name__.rpartition(".")[0]
_DYNAMIC = {"import_module", "__import__"}
_FIRST_FUNCTION = re.compile(rb"^(?:@|def |class )", re.MULTILINE)


def _file(module: str) -> Path | None:
    """Source of a kernel module, or of another one that is loaded; None where there is none."""
    if module != _KERNELS and not module.startswith(f"{_KERNELS}."):
        name = str(getattr(sys.modules.get(module), "__file__", None))
        return Path(name) if name.endswith(".py") else None
    path = Path(__file__).parent.joinpath(*module.removeprefix(_KERNELS).split("."))
    found = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()]
    return found[0] if found else None


def _in_sight(name: str) -> set[str]:
    """Kernel modules that something with this full name is, or has as attributes."""
    if name == _KERNELS or _KERNELS.startswith(f"{name}."):
        folder, name = Path(__file__).parent, _KERNELS
    elif name.startswith(f"{_KERNELS}."):
        folder = Path(__file__).parent.joinpath(*name.removeprefix(_KERNELS).split("."))
    else:
        return set()
    below = (path.relative_to(folder).with_suffix("").parts for path in folder.rglob("*.py"))
    return {name, *(".".join([name, *parts]).removesuffix(".__init__") for parts in below)}


@cache
def _imported(module: str, is_package: bool, source: bytes) -> frozenset[str]:
    """Every kernel module that a source may see, by whatever form of import.

    Sound: a kernel sees other kernel modules by an import statement, relative or not, anywhere in
    its source, or as attributes of a package that such a statement gives a name. For packages, and
    for imports by text, all that may be meant is taken.
    """
    home = module if is_package else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                # Without "as", the outermost package gets the name.
                found |= _in_sight(alias.name if alias.asname else alias.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            above = home.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            found.add(base)
            for alias in node.names:
                found |= _in_sight(base if alias.name == "*" else f"{base}.{alias.name}")
        elif getattr(node, "id", getattr(node, "attr", None)) in _DYNAMIC:
            found |= _in_sight(_KERNELS)
    return frozenset(name for name in found if f"{name}.".startswith(f"{_KERNELS}."))


def _parsed(source: bytes) -> ast.Module:
    """Syntax tree of a source, or of its beginning where all imports are there: that is quicker.

    Sound: no import is written without the word. A beginning that ends inside a text, at a line
    that only looks like a function, does not parse.
    """
    function = _FIRST_FUNCTION.search(source)
    if function is not None and b"import" not in source[function.start() :]:
        with suppress(SyntaxError):
            return ast.parse(source[: function.start()])
    return ast.parse(source)


def _sources(module: str) -> dict[str, bytes]:
    """Sources of a module, of this one, and of the kernel modules they import, directly or not."""
    known: dict[str, bytes] = {}
    pending = {module, __name__}
    while pending:
        name = pending.pop()
        file = _file(name)
        if name not in known and file is not None:
            known[name] = file.read_bytes()
            pending |= _imported(name, file.name == "__init__.py", known[name])
    return known


def _source_hash(module: str) -> str:
    digest = hashlib.sha256()
    for name, source in sorted(_sources(module).items()):
        digest.update(f"{name} {len(source)}\n".encode())
        digest.update(source)
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
    """Directory for compiled kernels of a module as it is now; None where nothing is writable.

    Parameters
    ----------
    module : str
        Full name of the module, such as ``treeproof.kernels.exact.row``.
    """
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


class _Linked(JITCodeLibrary):  # type: ignore[misc]
    """Code of an inner kernel: LLVM's intermediate form, to be linked into its callers.

    numba optimises and translates every function together with all that it calls, once for the
    function and once more for each of its callers. What no Python code calls needs no machine code
    of its own: it is optimised and translated where it ends up, once for each entry point.
    """

    codegen = SimpleNamespace(set_env=lambda name, environment: None)  # nothing runs by itself

    def _optimize_final_module(self) -> None:
        """Leave it to the entry point."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Address of what Python calls in place of an inner kernel: it refuses all arguments."""
        self._ensure_finalized()
        return _refusal_address()


@cache
def _refusal_address() -> int:
    @njit
    def kernel_that_only_kernels_call():  # pragma: no cover - refuses its arguments
        return 0

    kernel_that_only_kernels_call.compile(())
    compiled = kernel_that_only_kernels_call.overloads[()]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cpython_wrapper_name))


@register_pass(mutates_CFG=True, analysis_only=False)
class _LinkedLowering(NativeLowering):  # type: ignore[misc]
    """numba's last step, with a library of our own."""

    _name = "linked_lowering"

    def run_pass(self, state: Any) -> bool:
        """Translate a typed function."""
        if state.library is None:
            state.library = _Linked(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
        return bool(super().run_pass(state))


_STEPS = {
    "TranslateByteCode",
    "FixupArgs",
    "IRProcessing",
    "GenericRewrites",
    "ReconstructSSA",
    "NopythonTypeInference",
    "PreLowerStripPhis",
    "IRLegalization",
    "NativeLowering",
    "NoPythonBackend",
}
"""The steps of numba that plain loops over arrays need; others look for what no kernel has, such as
closures, contexts, exceptions with values and expressions over whole arrays."""


class _LinkedCompiler(CompilerBase):  # type: ignore[misc]
    """numba's own steps, without those that kernels do not need and with another last one."""

    def define_pipelines(self) -> list[Any]:
        """List the steps."""
        steps = DefaultPassBuilder.define_nopython_pipeline(self.state)
        steps.passes = [
            (_LinkedLowering if step is NativeLowering else step, words)
            for step, words in steps.passes
            if step.__name__ in _STEPS
        ]
        steps.finalize()
        return [steps]


_COMMON = {"nogil": True, "error_model": "numpy"}
_INNER = _COMMON | {
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": _LinkedCompiler,
}


def kernel(function: Function) -> Function:
    """Compile what Python calls: on its first call, kept on disk; the GIL is free while it runs."""
    directory = cache_directory(function.__module__)
    if directory is None:
        return njit(**_COMMON)(function)
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(directory)
    try:
        return njit(cache=True, **_COMMON)(function)
    finally:
        numba.config.CACHE_DIR = before


def inner_kernel(function: Function) -> Function:
    """Compile what only kernels call, as a part of each `kernel` that it ends up in."""
    return njit(**_INNER)(function)


def noalloc_kernel(function: Function) -> Function:
    """Compile an inner kernel that neither allocates nor returns arrays.

    Its arrays are borrowed from the caller, so they are not counted: a call with structures of many
    arrays costs a tenth of what it costs a plain kernel. Slices of arguments are fine.
    """
    return njit(**_BORROWED, **_INNER)(function)


def inlined_kernel(function: Function) -> Function:
    """Compile a noalloc kernel into its callers: for what inner loops call.

    Handing over structures of many arrays costs more than a short kernel does.
    """
    return njit(**_BORROWED, forceinline=True, **_INNER)(function)
