"""Options and arguments that several commands share."""

from collections.abc import Callable
from typing import Any, Literal, TypedDict

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

model_argument = click.argument("model_path", metavar="MODEL", type=click.Path())

_LOAD_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--no-self-test",
        is_flag=True,
        help="Do not compare the loaded model with its own library.",
    ),
    click.option(
        "--decision-threshold",
        type=float,
        metavar="P",
        help="Probability from which a binary classifier says class 1. [default: the library's]",
    ),
    click.option(
        "--base-score",
        type=float,
        metavar="MARGIN",
        help="Margin to start from, for XGBoost text dumps, which do not carry it.",
    ),
    click.option(
        "--n-classes",
        type=click.IntRange(min=1),
        help="Number of classes, for XGBoost text dumps (1: a score).",
    ),
    click.option(
        "--n-features",
        type=click.IntRange(min=1),
        help="Number of columns of a row, for XGBoost text dumps.",
    ),
    click.option(
        "--input-precision",
        type=click.Choice(["float32", "float64"]),
        help="Precision of comparisons, for treelite checkpoints.",
    ),
    click.option(
        "--tie",
        type=click.Choice(["lower", "upper"]),
        help="Class that a tie goes to, for treelite checkpoints.",
    ),
    click.option(
        "--missing",
        type=click.Choice(["nan", "zero", "none"]),
        help="What counts as missing, for treelite checkpoints.",
    ),
    click.option(
        "--rounds",
        type=click.Choice(["best", "all"]),
        help="Rounds of an XGBoost model that stopped early. [default: as who saved the file]",
    ),
)


_LIBSVM_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--first-column",
        type=click.Choice(["0", "1"]),
        default="1",
        show_default=True,
        help="Number of the first column in LIBSVM files.",
    ),
    click.option(
        "--absent",
        type=click.Choice(["zero", "missing"]),
        default="zero",
        show_default=True,
        help="What an entry that a LIBSVM line leaves out stands for.",
    ),
)


class LibsvmReading(TypedDict):
    """What readers of LIBSVM files are told, see `treeproof.data.readers.ReadOptions`."""

    first_index: Literal[0, 1]
    absent: Literal["zero", "missing"]


def libsvm_reading(first_column: str, absent: str) -> LibsvmReading:
    """What `libsvm_options` were given, as readers take it."""
    return {
        "first_index": 0 if first_column == "0" else 1,
        "absent": "missing" if absent == "missing" else "zero",
    }


def libsvm_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what a LIBSVM file does not; as `first_column` and `absent`."""
    for option in reversed(_LIBSVM_OPTIONS):
        function = option(function)
    return function


def load_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how a model is loaded; `load_model` takes them."""
    for option in reversed(_LOAD_OPTIONS):
        function = option(function)
    return function


def load_model(model_path: str, *, no_self_test: bool, **options: Any) -> Any:
    """Load the model of a command line.

    Parameters
    ----------
    model_path : str
        The model file.
    no_self_test : bool
        Whether to skip the comparison with the source library.
    **options
        The other options of `load_options`, under the names of `treeproof.load`.

    Returns
    -------
    Model
        The loaded model.
    """
    import treeproof

    return treeproof.load(model_path, self_test=not no_self_test, **options)
