"""Every exception that treeproof raises, its warnings, and what messages share: names, checks.

TreeproofError
├── InvalidInput (ValueError)       wrong rows, labels, options, paths
│   ├── WrongRow                    a value that its model does not take, with the row's number
│   └── BrokenModelFile             a model file that is damaged, hostile or of no known kind
├── UnsupportedModel                a model that cannot be represented exactly
├── UnsupportedQuery                a question that the chosen engine cannot answer
├── SelfTestFailed                  the loaded model and its own library disagree
├── BackendMissing (ImportError)    an optional library is not installed
├── CertificateRejected             evidence that does not prove its claim
└── InternalError                   a fault of treeproof itself, noticed before it became an answer

ModelWarning (UserWarning)          a model that says less than its users may take for granted
NoEffectWarning (UserWarning)       an option that changes nothing where it was given

Messages have one form: what, rule, got, and where known the remedy, in one sentence or two.
"""

import math
import numbers
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

_KEPT_CONTROLS = {"\n", "\t"}


class TreeproofError(Exception):
    """Base of every error that treeproof raises on purpose."""


class InvalidInput(TreeproofError, ValueError):  # noqa: N818 - reads as a statement
    """An argument, a row, a label or a path breaks a rule that the message names."""


class WrongRow(InvalidInput):
    """A row holds what its model does not take; the message names it by its number."""

    def __init__(self, before: str, row: int | None = None, after: str = ".") -> None:
        super().__init__(before if row is None else f"{before} in row {row}{after}")
        self._parts = before, row, after

    def __reduce__(self) -> tuple[Any, ...]:  # workers send it as it was made
        return WrongRow, self._parts

    def counted_from(self, first_row: int) -> "WrongRow":
        """The same where the rows that were looked at are a part that begins at a row."""
        before, row, after = self._parts
        return WrongRow(before, None if row is None else row + first_row, after)


class BrokenModelFile(InvalidInput):
    """A model file is damaged, hostile, or of no known kind."""


class UnsupportedModel(TreeproofError):  # noqa: N818
    """The model is well-formed but cannot be represented exactly."""


class UnsupportedQuery(TreeproofError):  # noqa: N818
    """The engine cannot answer this question; the message says why and what can."""


class SelfTestFailed(TreeproofError):  # noqa: N818
    """The loaded model and its source library give different answers on the same rows."""


class BackendMissing(TreeproofError, ImportError):  # noqa: N818
    """An optional library is needed; the message names the pip command that brings it."""


class CertificateRejected(TreeproofError):  # noqa: N818
    """A certificate does not prove its claim; the message names the place."""


class InternalError(TreeproofError):
    """An engine contradicted itself; nothing is claimed, and the message says what to do."""


class ModelWarning(UserWarning):
    """A loaded model leaves something open that decides its answers; the message says what."""


class NoEffectWarning(UserWarning):
    """An option was given that changes nothing; the message says why."""


_MOST_NAMED = 8


def listed(names: Sequence[Any]) -> str:
    """The first of some names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    shown = ", ".join(map(str, names[:_MOST_NAMED])) or "none"
    return f"{shown}, … and {more} more" if more > 0 else shown


def listed_values(values: Sequence[Any]) -> str:
    """The same of values such as labels, as Python writes them."""
    return f"[{listed([repr(value) for value in values])}]" if len(values) else "[]"


def nearest(name: Any, names: Iterable[Any]) -> str:
    """A sentence about the name that was perhaps meant; empty where none is near."""
    near = get_close_matches(str(name), [str(known) for known in names], n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def printable(text: str) -> str:
    """Text without characters that steer a terminal, which are spelled out instead."""
    return "".join(
        character
        if character in _KEPT_CONTROLS or unicodedata.category(character)[0] != "C"
        else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )


def require_backend(module: str, extra: str) -> None:
    """Raise `BackendMissing` with the install command when `module` cannot be imported."""
    import importlib

    try:
        importlib.import_module(module)
    except ImportError as error:
        raise BackendMissing(
            f"This needs the library '{module}', which cannot be imported ({error})."
            f" Install it with: {install_command(extra)}."
        ) from error


def install_command(extra: str) -> str:
    """The command that brings an extra: of a clone, from its folder."""
    folder = Path(__file__).resolve().parents[2]
    if (folder / "pyproject.toml").is_file():
        return f"pip install -e '{folder}[{extra}]'"
    return f"pip install 'treeproof[{extra}]'"


def check_real(
    name: str, value: Any, *, low: float, high: float = math.inf, open_low: bool = False
) -> float:
    """Return a finite number in [low, high], or in (low, high]; say what is wrong with others."""
    valid = isinstance(value, numbers.Real) and not isinstance(value, bool)
    valid = valid and math.isfinite(value) and low <= value <= high
    if not valid or (open_low and value == low):
        above = f"above {low:g}" if open_low else f"at least {low:g}"
        limit = "" if high == math.inf else f" and at most {high:g}"
        raise InvalidInput(f"'{name}' must be a number {above}{limit}. Got {value!r}.")
    return float(value)


def check_integer(name: str, value: Any, *, low: int, high: int | None = None, of: str = "") -> int:
    """Return a whole number in an interval; say what is wrong with another one, `of` an engine."""
    valid = isinstance(value, numbers.Real) and not isinstance(value, bool)
    valid = valid and float(value).is_integer()
    if not valid or value < low or (high is not None and value > high):
        owner = f" of {of}" if of else ""
        limit = "" if high is None else f" and at most {high}"
        raise InvalidInput(
            f"'{name}'{owner} must be a whole number, at least {low}{limit}. Got {value!r}."
        )
    return int(value)


def check_choice(name: str, value: Any, choices: Sequence[str], *, of: str = "") -> str:
    """Return one of the choices, or list them for an option, `of` an engine."""
    if not isinstance(value, str) or value not in choices:
        owner = f" of {of}" if of else ""
        listed = " or ".join(repr(choice) for choice in choices)
        raise InvalidInput(f"'{name}'{owner} must be {listed}. Got {value!r}.")
    return value
