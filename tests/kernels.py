"""Inner kernels, called from Python: compiled into an entry point of their own."""

from collections.abc import Callable
from typing import Any

from treeproof.kernels.core.compiler import memory_kernel


def called(kernel: Any) -> Callable[..., Any]:
    """Return a function that calls an inner kernel."""

    @memory_kernel
    def entry_point(*arguments):  # type: ignore[no-untyped-def]
        return kernel(*arguments)

    return entry_point  # type: ignore[no-any-return]
