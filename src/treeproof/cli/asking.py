"""What the commands that ask about the rows of a data file share: options, reading, exit status."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import print_note
from treeproof.cli.options import load_model, load_options
from treeproof.errors import InvalidInput

if TYPE_CHECKING:
    from treeproof.model.ensemble import FloatArray
    from treeproof.prediction import Model
    from treeproof.results.results import Results
    from treeproof.spec.perturbations import LInf

EXIT_GATE_FAILED = 1
EXIT_UNDECIDED = 3
EXIT_INTERRUPTED = 130
"""What shells report of a program that Ctrl-C ended."""

_SECONDS_PER_BLOCK = 1.0
_LARGEST_BLOCK = 4096


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
        "--eps-scale",
        type=click.Choice(["one", "std", "range"]),
        default="one",
        show_default=True,
        help="Unit of a radius: 1, or each feature's spread over all rows of DATA.",
    ),
    click.option(
        "--frozen",
        multiple=True,
        metavar="NAME",
        help="A feature that does not move, by name or number; may be repeated.",
    ),
    click.option("--low", type=float, default=-math.inf, help="Least value of any feature."),
    click.option("--high", type=float, default=math.inf, help="Largest value of any feature."),
    click.option(
        "--score-change",
        type=FiniteNumber(min=0.0),
        metavar="DELTA",
        help="The claim: the raw score moves by at most DELTA, instead of the label being kept.",
    ),
    click.option(
        "--evidence", is_flag=True, help="Record a proof of every answer, for treeproof check."
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


def question_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a question; `Asking.split` takes them, with those of `load_options`."""
    function = load_options(function)
    for option in reversed(_QUESTION_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The options of `question_options`, under their names."""

    label: str | None
    rows: str | None
    sample: int | None
    seed: int
    engine: str
    jobs: int | None
    time_limit: float | None
    node_limit: int | None
    eps_scale: str
    frozen: tuple[str, ...]
    low: float
    high: float
    score_change: float | None
    evidence: bool
    out: str | None
    output_format: str
    all_rows: bool
    strict: bool

    @classmethod
    def split(cls, options: dict[str, Any]) -> tuple["Asking", dict[str, Any]]:
        """Part the options of a command line into those of the question and those of loading."""
        names = {field.name for field in fields(cls)}
        own = {name: value for name, value in options.items() if name in names}
        return cls(**own), {name: options[name] for name in options if name not in names}

    @property
    def limits(self) -> dict[str, Any]:
        """Limits that were given, under the names of the library."""
        given = {"time_limit_s": self.time_limit, "node_limit": self.node_limit}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a command found.

    Attributes
    ----------
    results : Results
        The answers, with the numbers that the rows have in the file.
    rows : float64 (n_rows, n_features)
        The rows themselves.
    model : Model
        The loaded model.
    is_complete : bool
        False when Ctrl-C came before the last row.
    """

    results: "Results"
    rows: "FloatArray"
    model: "Model"
    is_complete: bool


def answer(
    model_path: str, data_path: str, options: dict[str, Any], *, eps: float | None = None
) -> Answered:
    """Load, ask, and save the run where that is wanted.

    Parameters
    ----------
    model_path, data_path : str
        The files.
    options : dict
        What `question_options` gave the command.
    eps : float, optional
        Radius to verify; without it the radius is what is asked for.
    """
    from treeproof.cli.run_output import check_out

    asking, loading = Asking.split(options)
    if asking.out is not None:
        # A long run must not end with answers that have nowhere to go.
        check_out(asking.out)
    model = load_model(model_path, **loading)
    if model.ensemble.decision.kind == "score" and asking.score_change is None:
        raise InvalidInput(
            "A model that gives scores has no label to keep."
            " Say with --score-change by how much its raw score may move."
        )
    numbers, rows, labels, scale = read_rows(model, data_path, asking)
    ball = ball_of(model, asking, scale, eps)
    results, is_complete = _in_blocks(model, rows, labels, ball, asking)
    results.row = numbers[: len(results)]
    results.header["data"] = {
        "file": str(data_path),
        "label": asking.label,
        "rows": asking.rows,
        "sample": asking.sample,
        "seed": asking.seed if asking.sample is not None else None,
        "n_asked": len(rows),
    }
    if asking.out is not None:
        results.save(asking.out)
    return Answered(
        results=results, rows=rows[: len(results)], model=model, is_complete=is_complete
    )


def read_rows(model: "Model", data_path: str, asking: Asking) -> tuple[Any, Any, Any, Any]:
    """Numbers, values and labels of the chosen rows, and the unit of each feature."""
    import numpy as np

    from treeproof.scale.readers import ReadOptions, open_data, parse_rows

    chosen = slice(0, None) if asking.rows is None else parse_rows(asking.rows)
    scaled = asking.eps_scale != "one"
    # Units come from all rows, so that ranges of one file are answered alike.
    options = ReadOptions(
        label=asking.label,
        rows=slice(0, None) if scaled else chosen,
        n_features=model.ensemble.n_features,
    )
    values, labels, ensemble = [], [], model.ensemble
    for chunk in open_data(data_path, options).chunks():
        values.append(chunk.matrix(ensemble))
        found = chunk.label_numbers(ensemble, len(values[-1])) if ensemble.classes else None
        if found is not None:
            labels.append(found)
    rows = np.concatenate(values) if values else np.empty((0, ensemble.n_features))
    known = None
    if labels:
        classes = np.empty(len(ensemble.classes), dtype=object)
        classes[:] = ensemble.classes
        known = classes[np.concatenate(labels)]
    scale = _spread(rows, asking.eps_scale) if scaled else None
    first = chosen.start if scaled else 0
    selected = np.arange(len(rows))[first : chosen.stop if scaled else None]
    if len(selected) == 0:
        raise InvalidInput(
            f"There must be at least one row to ask about. Got none in '{data_path}'"
            + (f" within {asking.rows}." if asking.rows else ".")
        )
    if asking.sample is not None and asking.sample < len(selected):
        generator = np.random.default_rng(asking.seed)
        selected = np.sort(generator.choice(selected, asking.sample, replace=False))
    numbers = (selected if scaled else selected + chosen.start).astype(np.int64)
    return numbers, rows[selected], None if known is None else known[selected], scale


def _spread(rows: "FloatArray", kind: str) -> "FloatArray":
    """Spread of each column without its missing entries; 0, which freezes, where it is constant."""
    import numpy as np

    spread = np.zeros(rows.shape[1])
    for column in range(rows.shape[1]):
        present = rows[np.isfinite(rows[:, column]), column]
        if len(present):
            spread[column] = np.std(present) if kind == "std" else np.ptp(present)
    return spread


def ball_of(model: "Model", asking: Asking, scale: Any, eps: float | None) -> "LInf":
    """Ball of the question's options; without a radius where none is given."""
    from treeproof.spec.perturbations import LInf

    names = model.ensemble.feature_names
    frozen = tuple(
        int(name) if name not in names and name.isdecimal() else name for name in asking.frozen
    )
    return LInf(eps, scale=scale, frozen=frozen, low=asking.low, high=asking.high)


def _in_blocks(
    model: "Model", rows: Any, labels: Any, ball: "LInf", asking: Asking
) -> tuple["Results", bool]:
    """Answer block by block, so that progress can be shown and Ctrl-C keeps what is finished."""
    import treeproof
    from treeproof.cli.run_output import progress_bar
    from treeproof.prediction import thread_count
    from treeproof.results.results import Results
    from treeproof.spec.goals import ScoreChange

    jobs = asking.jobs or -1
    settings: dict[str, Any] = {"engine": asking.engine, "n_jobs": jobs} | asking.limits
    if asking.evidence:
        settings["evidence"] = True
    if asking.score_change is not None:
        settings["goal"] = ScoreChange(asking.score_change)
    ask: Callable[..., Results] = treeproof.radius if ball.eps is None else treeproof.verify
    parts: list[Results] = []
    done, block = 0, 4 * thread_count(jobs)
    with progress_bar(len(rows)) as advance:
        try:
            while done < len(rows):
                began = time.perf_counter()
                part = slice(done, done + block)
                y = None if labels is None else labels[part]
                parts.append(ask(model, rows[part], y, ball, **settings))
                done += len(parts[-1])
                advance(done)
                rate = len(parts[-1]) / max(time.perf_counter() - began, 1e-6)
                block = int(min(max(rate * _SECONDS_PER_BLOCK, block), _LARGEST_BLOCK))
        except KeyboardInterrupt:
            if not parts:
                raise
    if done < len(rows):
        print_note(f"interrupted after {done} of {len(rows)} rows; these are kept.")
    return Results.join(parts), done == len(rows)


def n_proved(results: "Results", eps: float) -> int:
    """Count the rows that are proved to keep their claim in the closed ball of a radius."""
    return round((1.0 - results.verified_error(eps)) * len(results))


def finish(
    answered: Answered,
    *,
    strict: bool,
    fail_under: float | None = None,
    share: float | None = None,
) -> None:
    """End the command with the exit status that its answers ask for; a failed gate comes first.

    Parameters
    ----------
    answered : Answered
        What was found.
    strict : bool
        Whether undecided rows count.
    fail_under, share : float, optional
        The gate, and the share of verified rows that it is about.
    """
    if not answered.is_complete:
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if fail_under is not None and share is not None and share < fail_under:
        print_note(f"the gate failed: {share:.6g} of the rows are verified, below {fail_under:g}.")
        raise click.exceptions.Exit(EXIT_GATE_FAILED)
    n_undecided = int((answered.results.verdict == "unknown").sum())
    if strict and n_undecided:
        print_note(f"{n_undecided} of {len(answered.results)} rows are undecided (--strict).")
        raise click.exceptions.Exit(EXIT_UNDECIDED)
