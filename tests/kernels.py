"""Inner kernels, called from Python: compiled into an entry point of their own."""

from collections.abc import Callable
from typing import Any

from treeproof.kernels.core.compiler import kernel


def called(inner: Any) -> Callable[..., Any]:
    """Return a function that calls an inner kernel; kept on disk as entry points are."""

    def entry_point(*arguments: Any) -> Any:
        return inner(*arguments)

    # By these names it is found again, as long as what the inner kernel is made of is the same.
    entry_point.__module__ = inner.__module__
    entry_point.__qualname__ = f"called_{inner.__qualname__}"
    return kernel(entry_point)
