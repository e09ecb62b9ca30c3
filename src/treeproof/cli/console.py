"""Where text goes: results on standard output, everything else on standard error.

Text from models and data files may hold anything, so it never reaches a terminal as it is.
"""

import sys
import unicodedata
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

_KEPT_CONTROLS = {"\n", "\t"}
_PLAIN_WIDTH = 120


def printable(text: str) -> str:
    """Text without characters that steer a terminal, which are spelled out instead."""
    return "".join(
        character
        if character in _KEPT_CONTROLS or unicodedata.category(character)[0] != "C"
        else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )


def console() -> "Console":
    """Return a rich console on standard output; plain where that is no terminal, or by NO_COLOR."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    # Markup and emoji codes are off: brackets and colons in names are meant as they are.
    return Console(width=width, markup=False, emoji=False, highlight=False)


def print_error(sentence: str) -> None:
    """Print one sentence on standard error."""
    click.echo(f"treeproof: error: {printable(sentence)}", err=True)


def print_note(sentence: str) -> None:
    """Print a remark on standard error, so that results on standard output stay clean."""
    click.echo(f"treeproof: {printable(sentence)}", err=True)


def print_json(value: Any) -> None:
    """Print a value as indented JSON on standard output."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    click.echo(text)
