"""What rows are: doubles that the deployed model rounds first, or real numbers."""

from collections.abc import Mapping
from typing import Any, Literal

from treeproof.errors import InvalidInput

Arithmetic = Literal["float64", "real"]
ARITHMETICS: tuple[Arithmetic, ...] = ("float64", "real")
"""The default comes first."""

_IN_WORDS = {
    ("real", True): "real numbers, of which float64 rows are some",
    ("real", False): "real numbers; how the deployed model rounds float64 rows is left out",
    ("float64", True): "float64 rows, which the deployed model takes as they are",
    ("float64", False): "float64 rows, rounded as the deployed model does",
}
"""By what was asked, and by whether the model takes doubles."""


def checked_arithmetic(given: Any) -> Arithmetic:
    """Return the arithmetic of a question, or refuse it."""
    for known in ARITHMETICS:
        if given == known:
            return known
    raise InvalidInput(f"'arithmetic' must be 'float64' or 'real'. Got {given!r}.")


def in_words(header: Mapping[str, Any]) -> str:
    """Say what rows were to the question of a header, as results and run files have them."""
    asked = str(header.get("question", {}).get("arithmetic", ""))
    takes_doubles = header.get("model", {}).get("input_precision") == "float64"
    return _IN_WORDS.get((asked, takes_doubles), asked)


def summary_lines(header: Mapping[str, Any]) -> list[str]:
    """The line of a summary that says it, where the header tells."""
    said = in_words(header)
    return [f"arithmetic: {said}"] if said else []
