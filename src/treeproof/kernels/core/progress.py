"""What is said while kernels compile for long: that they do, how far it is, where it goes."""

import logging
import time
from collections.abc import Callable
from typing import Any

from treeproof.kernels.core.cache import cache_directory
from treeproof.kernels.core.interrupts import raise_noted

logger = logging.getLogger("treeproof")

QUIET_S = 1.0
"""Shorter compilations are not worth a word."""
PAUSE_S = 10.0
"""Between two lines."""


class Announcement:
    """Lines about one entry point that somebody waits for."""

    def __init__(self, name: str) -> None:
        self._name, self._started, self._said = name, time.monotonic(), 0.0

    def tell(self, n_done: int, n_parts: int) -> None:
        """Say how many of its parts are compiled, if it is time for a line."""
        elapsed = time.monotonic() - self._started
        if self._said == 0.0 and elapsed > QUIET_S:
            place = f" It is kept in '{cache_directory()}'." if cache_directory() else ""
            logger.warning(
                "Compiling %s for this machine, which can take half a minute.%s", self._name, place
            )
        elif self._said == 0.0 or elapsed < self._said + PAUSE_S:
            return
        else:
            logger.warning("Compiling %s: %d of %d parts.", self._name, n_done, n_parts)
        self._said = elapsed

    def end(self) -> None:
        """Say how long it took, if anything was said."""
        if self._said > 0.0:
            logger.warning("Compiled %s in %.0f s.", self._name, time.monotonic() - self._started)


class Progress:
    """How many parts of an entry point are compiled, counted by the compiler itself.

    Attributes
    ----------
    tell : callable or None
        Who is told in place of the log, with the numbers of parts that are done and of all parts:
        the process that waits for this one.
    """

    def __init__(self) -> None:
        self.tell: Callable[[int, int], None] | None = None
        self._parts: set[Any] = set()
        self._announcement: Announcement | None = None

    def start(self, name: str, parts: set[Any]) -> None:
        """Begin with an entry point that is made of some functions."""
        self._parts, self._n_parts = set(parts), len(parts)
        self._announcement = Announcement(name)
        if cache_directory() is None:
            logger.warning(
                "Compiled kernels cannot be kept, because no cache directory is writable, so every"
                " process compiles them anew. Set NUMBA_CACHE_DIR to a writable directory."
            )

    def step(self, part: Any) -> None:
        """Count a function, which may be compiled for several types of arguments."""
        raise_noted()
        if self._announcement is not None:
            self._parts.discard(part)
            tell = self.tell or self._announcement.tell
            tell(self._n_parts - len(self._parts), self._n_parts)

    def end(self) -> None:
        """End with it."""
        if self._announcement is not None and self.tell is None:
            self._announcement.end()
        self._announcement = None


progress = Progress()
