"""`RowProgress`: shows how many rows of a question are answered."""

import contextlib
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from treeproof.errors import InvalidInput

Progress = bool | Callable[[int, int], Any]
"""Whether to show a bar, or what is called with the rows answered so far, and with all rows."""

_EVERY_S = 0.2


@contextlib.contextmanager
def row_progress(progress: Progress, n_rows: int) -> Iterator[Callable[[int], None] | None]:
    """Give what is told how many more rows are answered, from any thread; None for no progress."""
    asked = checked_progress(progress)
    if asked is False:
        yield None
        return
    lock, done = threading.Lock(), 0
    with contextlib.ExitStack() as stack:
        show = stack.enter_context(progress_bar(n_rows)) if asked is True else asked

        def tell(more: int) -> None:
            nonlocal done
            with lock:
                done += more
                show(done, n_rows)

        yield tell
        # Engines that answer all rows in one go have told nothing.
        if done < n_rows:
            tell(n_rows - done)


def checked_progress(progress: Any) -> Any:
    """Refuse what shows no progress; None is False."""
    if progress is None or isinstance(progress, bool):
        return bool(progress)
    if not callable(progress):
        raise InvalidInput(
            "'progress' must be True, False or a function of the rows answered and of all rows."
            f" Got {progress!r}."
        )
    return progress


@contextlib.contextmanager
def progress_bar(n_rows: int | None) -> Iterator[Callable[[int, int | None], None]]:
    """A bar of tqdm, which notebooks draw, or a line on standard error where it is missing."""
    try:
        tqdm = importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        yield _line()
        sys.stderr.write("\n")
        return
    with tqdm(total=n_rows, unit="row") as bar:
        yield lambda done, _: bar.update(done - bar.n)


def _line() -> Callable[[int, int | None], None]:
    started = shown = time.monotonic()

    def show(done: int, n_rows: int | None) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown > _EVERY_S or done == n_rows:
            shown = now
            of_all = "" if n_rows is None else f" of {n_rows}"
            sys.stderr.write(f"\r{done}{of_all} rows, {now - started:.0f} s ")
            sys.stderr.flush()

    return show
