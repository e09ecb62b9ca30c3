"""What rows are: doubles that the deployed model rounds first, or real numbers.

The choice was called the domain in version 0.1.0; that name is still read everywhere.
"""

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

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

_P = ParamSpec("_P")
_R = TypeVar("_R")


def checked_arithmetic(given: Any) -> Arithmetic:
    """Return the arithmetic of a question, or refuse it."""
    for known in ARITHMETICS:
        if given == known:
            return known
    raise InvalidInput(f"'arithmetic' must be 'float64' or 'real'. Got {given!r}.")


def arithmetic_of(question: Mapping[str, Any]) -> str:
    """Arithmetic of a question as results and run files hold it; empty where they do not say it."""
    return str(question.get("arithmetic", question.get("domain")) or "")


def in_words(header: Mapping[str, Any]) -> str:
    """Say what rows were to the question of a header, as results and run files have them."""
    asked = arithmetic_of(header.get("question", {}))
    takes_doubles = header.get("model", {}).get("input_precision") == "float64"
    return _IN_WORDS.get((asked, takes_doubles), asked)


def summary_lines(header: Mapping[str, Any]) -> list[str]:
    """The line of a summary that says it, where the header tells."""
    said = in_words(header)
    return [f"arithmetic: {said}"] if said else []


def rename_domain(options: dict[str, Any], *, stacklevel: int = 2) -> None:
    """Give the option `domain` of a caller its present name, with a warning."""
    if "domain" not in options:
        return
    if "arithmetic" in options:
        raise InvalidInput(
            "Only one of 'arithmetic' and its old name 'domain' may be given. Got both."
        )
    warnings.warn(
        "The option 'domain' is called 'arithmetic' now, and the old name will go away.",
        DeprecationWarning,
        stacklevel=stacklevel + 1,
    )
    options["arithmetic"] = options.pop("domain")


def takes_domain(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a function with the option `arithmetic` be called with its old name."""

    @wraps(function)
    def call(*args: _P.args, **options: _P.kwargs) -> _R:
        rename_domain(options)
        return function(*args, **options)

    return call
