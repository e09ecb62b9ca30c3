"""Inner kernels, called from Python: compiled into an entry point of their own."""

from collections.abc import Callable
from typing import Any

from treeproof.kernels.core.compiler import kernel


def called(inner: Any) -> Callable[..., Any]:
    """Return a function that calls an inner kernel; kept on disk as entry points are."""

    def entry_point(*arguments: Any) -> Any:
        return inner(*arguments)

    # By these names it is found again, as long as the sources of the inner kernel's package are
    # the same.
    entry_point.__module__ = inner.py_func.__module__
    entry_point.__qualname__ = f"called_{inner.py_func.__qualname__}"
    return kernel(entry_point)
