"""Inner kernels, called from Python: compiled into an entry point of their own."""

from collections.abc import Callable
from typing import Any

from treeproof.kernels.core.compiler import kernel


def called(inner: Any) -> Callable[..., Any]:
    """Return a function that calls an inner kernel; kept on disk as entry points are."""

    def entry_point(*arguments: Any) -> Any:
        return inner(*arguments)

    plain = getattr(inner, "py_func", inner)  # where nothing is compiled, it is the function itself
    # By these names it is found again, as long as the sources of the inner kernel's package are
    # the same.
    entry_point.__module__ = plain.__module__
    entry_point.__qualname__ = f"called_{plain.__qualname__}"
    return kernel(entry_point)
