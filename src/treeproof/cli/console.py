"""Where text goes: results on standard output, everything else on standard error.

Text from models and data files may hold anything, so it never reaches a terminal as it is.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from treeproof.errors import InvalidInput, printable

if TYPE_CHECKING:
    from rich.console import Console

_LOG = logging.getLogger("treeproof.cli")
"""What is said on standard error anyway; a log file has it, too."""
_LOG.addHandler(logging.NullHandler())  # not once more on standard error where nothing is logged

_PLAIN_WIDTH = 120


def console() -> "Console":
    """Return a rich console on standard output; plain where that is no terminal, or by NO_COLOR."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    # Markup and emoji codes are off: brackets and colons in names are meant as they are.
    return Console(width=width, markup=False, emoji=False, highlight=False)


def print_error(sentence: str) -> None:
    """Print one sentence on standard error."""
    _LOG.error("%s", sentence)
    click.echo(f"treeproof: error: {printable(sentence)}", err=True)


def print_note(sentence: str) -> None:
    """Print a remark on standard error, so that results on standard output stay clean."""
    _LOG.info("%s", sentence)
    click.echo(f"treeproof: {printable(sentence)}", err=True)


def print_json(value: Any) -> None:
    """Print a value as indented JSON on standard output."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    click.echo(text)


class LastingOutput:
    """Standard output or error that takes whatever is written after its reader has left.

    In ``treeproof ... | head`` the reader leaves early. The exit status is that of the answers all
    the same: a broken pipe would end the command with the status of a failed gate. A full disk is
    no such reader, and refused where the answers go there.
    """

    def __init__(self, stream: IO[str] | None, *, has_answers: bool) -> None:
        # A shell may start programs without any.
        self._stream = Path(os.devnull).open("w") if stream is None else stream  # noqa: SIM115
        self._has_answers = has_answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text, or nothing where nobody reads it."""
        if text != "":  # which click writes to try, and whatever goes wrong does not matter to it
            with self._going_on():
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or drop what nobody reads."""
        with self._going_on():
            self._stream.flush()

    @contextlib.contextmanager
    def _going_on(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # What is left in buffers goes nowhere, too, and does not fail once more at the end.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            if self._has_answers and not isinstance(error, BrokenPipeError):
                raise InvalidInput(
                    f"Standard output cannot be written: {error.strerror or error}."
                ) from error


class _LogFile(logging.FileHandler):
    """A log that ends where it cannot be written; what is logged goes on."""

    def __init__(self, path: str) -> None:
        from treeproof.files import unwritable

        try:
            super().__init__(path, encoding="utf-8")
        except OSError as error:
            raise unwritable(path, error, "The log file") from error

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's
        """Say once that the rest is not logged."""
        logging.getLogger("treeproof").removeHandler(self)
        error = sys.exception()
        reason = getattr(error, "strerror", None) or error
        print_note(f"warning: the log file '{self.baseFilename}' ends here: {reason}.")

    def close(self) -> None:
        """Close the file; of one that is full there is nothing to save."""
        with contextlib.suppress(OSError):
            super().close()


def log_to(verbosity: int, path: str | None) -> None:
    """Show what the library does on standard error, and write it to a file, until the command ends.

    Warnings are shown without being asked for, progress from one -v on, details from two.
    """
    if not verbosity and path is None:
        return
    log, handlers = logging.getLogger("treeproof"), list[logging.Handler]()
    shown = logging.StreamHandler()
    shown.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))
    shown.setFormatter(logging.Formatter("treeproof: %(message)s"))
    shown.addFilter(lambda record: record.name != _LOG.name)
    handlers.append(shown)
    if path is not None:
        handlers.append(_LogFile(path))
        form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
        handlers[-1].setFormatter(logging.Formatter(form))
    level = log.level
    log.setLevel(logging.DEBUG if path is not None else shown.level)
    for handler in handlers:
        log.addHandler(handler)

    def end() -> None:
        log.setLevel(level)
        for handler in handlers:
            log.removeHandler(handler)
            handler.close()

    click.get_current_context().call_on_close(end)
