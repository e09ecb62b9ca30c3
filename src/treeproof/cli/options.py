"""What commands share: how help shows options, kinds of values, and how models are loaded."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import log_to, print_note
from treeproof.errors import InvalidInput

if TYPE_CHECKING:
    from treeproof.model.ensemble import Ensemble

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

FILE = click.Path()


class Integer(click.IntRange):
    """A whole number within a range."""

    name = "integer"


POSITIVE = Integer(min=1)
SEED = Integer(min=0)


class FiniteNumber(click.FloatRange):
    """A number within a range; unlike a plain FloatRange it lets neither NaN nor infinity pass."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the number, or refuse it."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


DISTANCE = FiniteNumber(min=0.0)
ABOVE_ZERO = FiniteNumber(min=0.0, min_open=True)


class Command(click.Command):
    """A command whose help shows options by subject, and ends with an example."""

    def __init__(self, *arguments: Any, example: str, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.example = example
        self.params += _MESSAGE_OPTIONS

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what it does is said where that is asked for."""
        log_to(ctx.params.pop("verbose"), ctx.params.pop("log_file"))
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each section below its title."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                title = getattr(parameter, "section", "Options")
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the example as it is typed."""
        with formatter.section("Example"):
            formatter.write(f"  $ {self.example}\n")


class _SectionOption(click.Option):
    def __init__(self, *names: Any, section: str, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.section = section


_MESSAGE_OPTIONS = [
    _SectionOption(
        ["-v", "--verbose"],
        count=True,
        section="Output",
        help="Say on standard error what is done; -vv says more.",
    ),
    _SectionOption(
        ["--log-file"],
        type=FILE,
        metavar="FILE",
        section="Output",
        help="Append to a file what is done, with times.",
    ),
]


def section(title: str) -> Callable[..., Decorator]:
    """`click.option` for options that help shows under a title of their own."""
    return partial(click.option, cls=_SectionOption, section=title)


def all_of(*decorators: Decorator) -> Decorator:
    """One decorator for several, in the order in which help shows their options."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


model_argument = click.argument("model_path", metavar="MODEL", type=FILE)
data_argument = click.argument("data_path", metavar="DATA", type=FILE)
jobs_option = click.option("--jobs", type=POSITIVE, help="Number of threads. [default: all cores]")

_row_option = section("Rows")
label_option = _row_option(
    "--label", metavar="COLUMN", help="Column of DATA with the labels of the rows."
)
id_option = _row_option(
    "--id", metavar="COLUMN", help="Column of DATA that rows are known by, such as a number."
)
rows_option = _row_option(
    "--rows", metavar="FIRST:LAST", help="Range of rows, such as 0:500, counted from 0."
)
absent_option = _row_option(
    "--absent",
    type=click.Choice(["zero", "missing"]),
    default="zero",
    help="What an entry that a LIBSVM line leaves out stands for.",
)
libsvm_options = all_of(
    _row_option(
        "--first-column",
        "first_index",
        type=click.Choice(["0", "1"]),
        default="1",
        callback=lambda ctx, parameter, value: int(value),
        help="Number of the first column in LIBSVM files.",
    ),
    absent_option,
)
"""What a LIBSVM file does not say, under the names of `treeproof.data.readers.ReadOptions`."""
by_name_option = _row_option(
    "--by-name",
    is_flag=True,
    help="Match columns by name where their order is not the model's, too.",
)


def _names(text: str) -> list[str]:
    """Names with commas between them, and perhaps blanks."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise click.BadParameter(f"names must not be empty. Got {text!r}.")
    return names


_load_option = section("Loading the model")
load_options = all_of(
    _load_option(
        "--no-self-test", is_flag=True, help="Do not compare the loaded model with its own library."
    ),
    _load_option(
        "--decision-threshold",
        type=float,
        metavar="P",
        help="Probability from which a binary classifier says class 1. [default: the library's]",
    ),
    _load_option(
        "--base-score",
        type=float,
        metavar="MARGIN",
        help="Margin to start from, for XGBoost text dumps, which do not carry it.",
    ),
    _load_option(
        "--n-classes", type=POSITIVE, help="Number of classes, for XGBoost text dumps (1: a score)."
    ),
    _load_option(
        "--n-features",
        type=POSITIVE,
        help="Number of columns of a row, for XGBoost text dumps and ONNX models without it.",
    ),
    _load_option(
        "--input-precision",
        type=click.Choice(["float32", "float64"]),
        help="Precision of comparisons, for treelite checkpoints.",
    ),
    _load_option(
        "--tie",
        type=click.Choice(["lower", "upper"]),
        help="Class that a tie goes to, for treelite checkpoints.",
    ),
    _load_option(
        "--missing",
        type=click.Choice(["nan", "zero", "none"]),
        help="What counts as missing, for treelite checkpoints.",
    ),
    _load_option(
        "--classes",
        metavar="NAME,NAME,...",
        callback=lambda ctx, parameter, value: None if value is None else _names(value),
        help="Names of the classes, in the model's order, where labels were encoded.",
    ),
    _load_option(
        "--rounds",
        type=click.Choice(["best", "all"]),
        help="Rounds of an XGBoost model that stopped early. [default: as who saved the file]",
    ),
)
"""How a model is loaded; `load_model` takes them."""


_limits = section("Limits")
_output = section("Output")


def domain_options(limited: str) -> Decorator:
    """The options of questions about every input of a domain; `limited` is what limits are for."""
    return all_of(
        _limits(
            "--time-limit",
            "time_limit_s",
            type=ABOVE_ZERO,
            default=60.0,
            show_default=True,
            metavar="SECONDS",
            help=limited,
        ),
        _limits(
            "--memory-limit",
            "memory_limit_mb",
            type=ABOVE_ZERO,
            default=4096.0,
            metavar="MB",
            help="For open boxes of the search.",
        ),
        _limits("--jobs", type=POSITIVE, default=1, help="Number of threads, over rows."),
        _output(
            "--format",
            "output_format",
            type=click.Choice(["text", "json"]),
            default="text",
            help="How answers are printed.",
        ),
        _output(
            "--out",
            metavar="FILE",
            type=FILE,
            help="Save the answers, as JSON, for treeproof report.",
        ),
        _output(
            "--evidence", is_flag=True, help="Prove every answer once more, for treeproof check."
        ),
        _output(
            "--strict", is_flag=True, help="End with exit status 3 when an answer stays unknown."
        ),
    )


def load_model(model_path: str, *, no_self_test: bool, **options: Any) -> Any:
    """Load the model of a command line, with what `load_options` were given."""
    import logging

    import treeproof

    model = treeproof.load(model_path, self_test=not no_self_test, **options)
    logging.getLogger("treeproof").info("loaded '%s': %r", model_path, model)
    return model


def load_model_of_run(
    header: dict[str, Any], model_path: str, *, no_self_test: bool = False, **options: Any
) -> "tuple[Ensemble, dict[str, Any]]":
    """Load the model of a run, without anything compiled, as the run did.

    Gives the options, too. Those of a command line come before those of the run, which are all for
    the same file; another file of the model, such as in another format, has the same threshold and
    classes, and one that treeproof wrote has them in it.
    """
    from treeproof.loaders import load_ensemble
    from treeproof.loaders.base import LoadOptions, read_model_file
    from treeproof.model.file_format import is_saved

    model, path = header["model"], Path(model_path)
    known = model.get("loading") or {}
    if not isinstance(known, dict):
        raise InvalidInput(f"The load options of the run must be a table. Got {known!r}.")
    if known and path.is_file():
        file = read_model_file(path)
        if is_saved(file.content[:16]):
            known = {}
        elif file.sha256 != model.get("file_sha256"):
            known = {n: v for n, v in known.items() if n in ("decision_threshold", "classes")}
    given = {name: value for name, value in options.items() if value is not None}
    try:
        loading = LoadOptions(**(known | given))
    except TypeError as error:
        raise InvalidInput(
            f"The run was made with load options that are unknown: {error}."
        ) from error
    ensemble = load_ensemble(model_path, options=loading, self_test=not no_self_test)
    return ensemble, known | given


partial_option = click.option(
    "--partial", is_flag=True, help="Go on with a run that is not complete, which is said first."
)


def refuse_unfinished(header: dict[str, Any], n_rows: int, path: str, *, partial: bool) -> None:
    """Say first that a run is not complete, and go on only where that is wanted."""
    from treeproof.results.run_file import unfinished

    if not (missing := unfinished(header, n_rows)):
        return
    if not partial:
        raise InvalidInput(
            f"{missing} Got '{path}': finish it with --resume, or go on with --partial."
        )
    print_note(missing)


def refuse_options(is_refused: Callable[[str], bool], why: str) -> None:
    """Refuse options that are given although they would change nothing; `why` ends the sentence."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        is_given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if is_given and is_refused(name):
            raise click.UsageError(f"{parameter.opts[0]} {why}")
