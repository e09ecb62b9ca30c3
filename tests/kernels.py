"""Inner kernels, called from Python: compiled into an entry point of their own."""

from collections.abc import Callable
from typing import Any

from numba import njit


def called(kernel: Any) -> Callable[..., Any]:
    """Return a function that calls an inner kernel."""

    @njit
    def entry_point(*arguments):  # type: ignore[no-untyped-def]
        return kernel(*arguments)

    return entry_point  # type: ignore[no-any-return]
