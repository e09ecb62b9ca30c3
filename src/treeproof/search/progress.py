"""Progress: how much of a question is answered, rows or parts of it, as a bar or by a call."""

import contextlib
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from treeproof.errors import InvalidInput
from treeproof.results.numbers import counted

Progress = bool | Callable[[int, int], Any]
"""Whether to show a bar, or what is called with how much is answered, and how much there is."""

_EVERY_S = 0.2


@contextlib.contextmanager
def telling(
    progress: Progress, total: int, unit: str = "row"
) -> Iterator[Callable[[int], None] | None]:
    """Give what is told how many more are answered, from any thread; None for no progress."""
    asked = checked_progress(progress)
    if asked is False:
        yield None
        return
    lock, done = threading.Lock(), 0
    with contextlib.ExitStack() as stack:
        show = stack.enter_context(progress_bar(total, unit)) if asked is True else asked

        def tell(more: int) -> None:
            nonlocal done
            with lock:
                done += more
                show(done, total)

        yield tell
        # Engines that answer all rows in one go have told nothing, and not all is always asked.
        if done < total:
            tell(total - done)


def checked_progress(progress: Any) -> Any:
    """Refuse what shows no progress; None is False."""
    if progress is None or isinstance(progress, bool):
        return bool(progress)
    if not callable(progress):
        raise InvalidInput(
            "'progress' must be True, False or a function of two numbers: how much is answered, and"
            f" how much there is. Got {progress!r}."
        )
    return progress


@contextlib.contextmanager
def progress_bar(
    total: int | None, unit: str = "row"
) -> Iterator[Callable[[int, int | None], None]]:
    """A bar of tqdm, which notebooks draw, or a line on standard error where it is missing."""
    try:
        tqdm = importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        yield _line(unit)
        sys.stderr.write("\n")
        return
    with tqdm(total=total, unit=unit) as bar:
        yield lambda done, _: bar.update(done - bar.n)


def _line(unit: str) -> Callable[[int, int | None], None]:
    started = shown = time.monotonic()

    def show(done: int, total: int | None) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown > _EVERY_S or done == total:
            shown = now
            said = counted(done, unit) if total is None else f"{done:,} of {counted(total, unit)}"
            sys.stderr.write(f"\r{said}, {now - started:.0f} s ")
            sys.stderr.flush()

    return show
