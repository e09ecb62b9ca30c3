"""What the commands that ask about the rows of a data file share: options, reading, exit status."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import print_note
from treeproof.cli.options import libsvm_options, libsvm_reading, load_options
from treeproof.errors import InvalidInput

if TYPE_CHECKING:
    from treeproof.data.sources import FileSource
    from treeproof.prediction import Model
    from treeproof.query.perturbations import LInf
    from treeproof.query.threats import ThreatModel

EXIT_GATE_FAILED = 1
EXIT_UNDECIDED = 3
EXIT_INTERRUPTED = 130
"""What shells report of a program that Ctrl-C ended."""


class FiniteNumber(click.FloatRange):
    """A number within a range; unlike a plain FloatRange it lets neither NaN nor infinity pass."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the number, or refuse it."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def radii(ctx: click.Context, param: click.Parameter, value: str) -> tuple[float, ...]:
    """Read radii with commas between them, as the callback of an option."""
    number = FiniteNumber(min=0.0)
    return tuple(number.convert(part.strip(), param, ctx) for part in value.split(","))


data_argument = click.argument("data_path", metavar="DATA", type=click.Path())

fail_under_option = click.option(
    "--fail-under",
    type=FiniteNumber(0.0, 1.0),
    metavar="SHARE",
    help="End with exit status 1 when a smaller share of the rows is verified.",
)

_QUESTION_OPTIONS = (
    click.option("--label", metavar="COLUMN", help="Column of DATA with the labels of the rows."),
    click.option("--rows", metavar="FIRST:LAST", help="Range of rows, such as 0:500, from 0."),
    click.option("--sample", type=click.IntRange(min=1), help="Take so many rows at random."),
    click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of --sample."),
    click.option(
        "--engine", default="exact", show_default=True, metavar="NAME", help="Who answers."
    ),
    click.option("--jobs", type=click.IntRange(min=1), help="Threads. [default: all cores]"),
    click.option(
        "--time-limit",
        type=FiniteNumber(min=0.0, min_open=True),
        metavar="SECONDS",
        help="Time limit per row; a row that needs more is undecided.",
    ),
    click.option(
        "--node-limit", type=click.IntRange(min=1), help="Limit of branching nodes per row."
    ),
    click.option(
        "--threat",
        metavar="FILE",
        type=click.Path(),
        help="A threat model as a TOML file; options come before what it says.",
    ),
    click.option(
        "--eps-scale",
        type=click.Choice(["one", "std", "range"]),
        help="Unit of a radius: 1, or each feature's spread over all rows of DATA. [default: one]",
    ),
    click.option(
        "--frozen",
        multiple=True,
        metavar="NAME",
        help="A feature that does not move, by name or number; may be repeated.",
    ),
    click.option("--low", type=float, help="Least value of any feature."),
    click.option("--high", type=float, help="Largest value of any feature."),
    click.option(
        "--score-change",
        type=FiniteNumber(min=0.0),
        metavar="DELTA",
        help="The claim: the raw score moves by at most DELTA, instead of the label being kept.",
    ),
    click.option(
        "--arithmetic",
        type=click.Choice(["float64", "real"]),
        help="What rows are: doubles that the model rounds, or real numbers. [default: float64]",
    ),
    click.option(
        "--domain",
        type=click.Choice(["float64", "real"]),
        hidden=True,
        help="Old name of --arithmetic.",
    ),
    click.option("--out", metavar="RUN", type=click.Path(), help="Save the answers as a run file."),
    click.option(
        "--format",
        "output_format",
        type=click.Choice(["table", "json", "csv"]),
        default="table",
        show_default=True,
        help="Form of the answers on standard output.",
    ),
    click.option("--all-rows", is_flag=True, help="Show every row in the table, not only 20."),
    click.option("--strict", is_flag=True, help="End with exit status 3 when rows are undecided."),
)

_RUN_OPTIONS = (
    click.option("--resume", is_flag=True, help="Go on with the run file of --out."),
    click.option(
        "--dask",
        metavar="ADDRESS",
        help="Have a Dask cluster answer, such as tcp://scheduler:8786.",
    ),
    click.option(
        "--memory-limit",
        type=FiniteNumber(min=0.0, min_open=True),
        metavar="MB",
        help="Limit of working memory per row; a row that needs more is undecided.",
    ),
    click.option(
        "--attacker-class",
        metavar="LABEL",
        help="Only rows of this class are attacked; all others stay as they are.",
    ),
    click.option("--evidence", is_flag=True, help="Save proofs that 'treeproof check' verifies."),
)


def question_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a question; `Asking.split` takes them, with those of `load_options`."""
    function = libsvm_options(load_options(function))
    for option in reversed(_QUESTION_OPTIONS):
        function = option(function)
    return function


def run_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a question, and those of runs over many rows."""
    for option in reversed(_RUN_OPTIONS):
        function = option(function)
    return question_options(function)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The options of `question_options` and `run_options`, under their names."""

    label: str | None
    rows: str | None
    sample: int | None
    seed: int
    engine: str
    jobs: int | None
    time_limit: float | None
    node_limit: int | None
    threat: "ThreatModel"
    out: str | None
    output_format: str
    all_rows: bool
    strict: bool
    first_column: str
    absent: str
    resume: bool = False
    dask: str | None = None
    memory_limit: float | None = None
    evidence: bool = False

    @classmethod
    def split(cls, options: dict[str, Any]) -> tuple["Asking", dict[str, Any]]:
        """Part the options of a command line into those of the question and those of loading."""
        from treeproof.query.threats import ThreatModel, load_threat

        left = dict(options)
        file = left.pop("threat")
        parts = {
            "scale": left.pop("eps_scale"),
            "low": left.pop("low"),
            "high": left.pop("high"),
            "score_change": left.pop("score_change"),
            "arithmetic": _arithmetic(left.pop("arithmetic"), left.pop("domain")),
            "attacker_class": left.pop("attacker_class", None),
        }
        given = {name: value for name, value in parts.items() if value is not None}
        threat = ThreatModel() if file is None else load_threat(file)
        threat = threat.with_options(frozen=left.pop("frozen"), **given)
        names = {field.name for field in fields(cls)}
        own = {name: value for name, value in left.items() if name in names}
        asking = cls(threat=threat, **own)
        if asking.resume and asking.out is None:
            raise click.UsageError("--resume needs a run file: give it with --out.")
        return asking, {name: value for name, value in left.items() if name not in names}

    @property
    def score_change(self) -> float | None:
        """By how much the raw score may move, where that is the claim."""
        return self.threat.score_change

    @property
    def limits(self) -> dict[str, Any]:
        """Limits that were given, under the names of the library."""
        given = {
            "time_limit_s": self.time_limit,
            "node_limit": self.node_limit,
            "memory_limit_mb": self.memory_limit,
        }
        return {name: value for name, value in given.items() if value is not None}

    def source(self, model: "Model", data_path: str) -> "FileSource":
        """The rows that were chosen."""
        from treeproof.data.sources import FileSource

        return FileSource(
            model.ensemble,
            data_path,
            label=self.label,
            rows=self.rows,
            sample=self.sample,
            seed=self.seed,
            **libsvm_reading(self.first_column, self.absent),
        )


def _arithmetic(given: str | None, old_name: str | None) -> str | None:
    """The arithmetic, also by its name in version 0.1.0."""
    if given is not None and old_name is not None:
        raise click.UsageError("--domain is the old name of --arithmetic: give only one of them.")
    return given or old_name


def refuse_options(is_refused: Callable[[str], bool], why: str) -> None:
    """Refuse options that the command line gives although they would change nothing.

    Parameters
    ----------
    is_refused : callable
        Called with the name of each option that is given.
    why : str
        Ends the sentence that begins with the option.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        is_given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if is_given and is_refused(name):
            raise click.UsageError(f"{parameter.opts[0]} {why}")


def check_has_claim(model: "Model", asking: Asking) -> None:
    """Refuse to ask about the label of a model that has none."""
    if model.ensemble.decision.kind == "score" and asking.score_change is None:
        raise InvalidInput(
            "A model that gives scores has no label to keep."
            " Say with --score-change by how much its raw score may move."
        )


def read_rows(model: "Model", data_path: str, asking: Asking) -> tuple[Any, Any, Any, Any]:
    """Numbers, values and labels of the chosen rows, all in memory, and the unit of each feature.

    For commands that answer all rows at once; `treeproof.cli.running` streams them instead.
    """
    from treeproof.data.sources import Rows

    if asking.threat.attacker_class is not None:
        raise InvalidInput(
            "'attacker_class' of a threat model is for the commands radius, verify, attack and"
            " curve only."
        )
    source = asking.source(model, data_path)
    rows = Rows.join(list(source.parts()))
    return rows.number, rows.values, rows.labels, unit_of(source, asking)


def unit_of(source: "FileSource", asking: Asking) -> Any:
    """Unit of each feature, or None; from all rows, so that ranges of a file are answered alike."""
    scale = asking.threat.scale
    if scale == "one":
        return None
    return source.spread("std" if scale == "std" else "range")


def ball_of(
    model: "Model", asking: Asking, scale: Any, eps: float | None, *, has_radius: bool | None = None
) -> "LInf":
    """Ball of the question's options.

    Parameters
    ----------
    model : Model
        The model.
    asking : Asking
        The options.
    scale : float64 (n_features,) or None
        Unit of each feature.
    eps : float or None
        The radius; None for that of the threat model.
    has_radius : bool, optional
        Whether the ball has a radius; by default when `eps` is given.
    """
    ensemble = model.ensemble
    threat = asking.threat if eps is None else asking.threat.with_options(eps=eps)
    return threat.ball(
        ensemble.feature_names,
        ensemble.n_features,
        scale,
        has_radius=eps is not None if has_radius is None else has_radius,
    )


def finish(
    *,
    n_rows: int,
    n_undecided: int,
    is_complete: bool,
    strict: bool,
    fail_under: float | None = None,
    share: float | None = None,
) -> None:
    """End the command with the exit status that its answers ask for; a failed gate comes first.

    Parameters
    ----------
    n_rows, n_undecided : int
        Rows in all, and undecided ones.
    is_complete : bool
        False when Ctrl-C came before the last row.
    strict : bool
        Whether undecided rows count.
    fail_under, share : float, optional
        The gate, and the share of verified rows that it is about.
    """
    if not is_complete:
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if fail_under is not None and share is not None and share < fail_under:
        print_note(f"the gate failed: {share:.6g} of the rows are verified, below {fail_under:g}.")
        raise click.exceptions.Exit(EXIT_GATE_FAILED)
    if strict and n_undecided:
        print_note(f"{n_undecided} of {n_rows} rows are undecided (--strict).")
        raise click.exceptions.Exit(EXIT_UNDECIDED)
