"""Decorators for kernels: what Python calls is compiled and kept on disk, the rest is linked in."""

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeVar

import numba
import numpy as np
from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering

from treeproof.kernels.core.cache import KernelCache, progress

ONE = np.uint32(1)
"""Positions are unsigned in inner loops, because reading at a signed one costs twice as much: it
might count from the end. Adding this keeps them unsigned; adding a plain 1 would not."""

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS = getattr(numba.core.cpu, "CPUTargetOptions", None)
_BORROWED = {"_nrt": False} if hasattr(_OPTIONS, "_nrt") else {}
"""numba's private option for code that counts no references. A numba without it compiles the same
code with counts, which is slower and nothing else."""


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
        progress.step()
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
    dispatcher = njit(**_COMMON)(function)
    dispatcher._cache = KernelCache(function)
    return dispatcher


def _inner(function: Function, **options: Any) -> Function:
    progress.expected += 1
    return njit(**options, **_INNER)(function)


def inner_kernel(function: Function) -> Function:
    """Compile what only kernels call, as a part of each `kernel` that it ends up in."""
    return _inner(function)


def noalloc_kernel(function: Function) -> Function:
    """Compile an inner kernel that neither allocates nor returns arrays.

    Its arrays are borrowed from the caller, so they are not counted: a call with structures of many
    arrays costs a tenth of what it costs a plain kernel. Slices of arguments are fine.
    """
    return _inner(function, **_BORROWED)


def inlined_kernel(function: Function) -> Function:
    """Compile a noalloc kernel into its callers: for what inner loops call.

    Handing over structures of many arrays costs more than a short kernel does.
    """
    return _inner(function, forceinline=True, **_BORROWED)
