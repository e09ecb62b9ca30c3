"""`treeproof recourse`: the cheapest ways to another decision."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import print_note
from treeproof.cli.options import (
    DISTANCE,
    POSITIVE,
    Command,
    data_argument,
    id_option,
    load_model,
    model_argument,
    refuse_options,
)
from treeproof.cli.question_options import QuestionOptions, question_options
from treeproof.cli.run_output import EXIT_UNDECIDED, ROWS_SHOWN, check_out, print_table
from treeproof.errors import printable, require_backend

if TYPE_CHECKING:
    from treeproof.results.results import Results

_DIGITS = 6


@click.command(
    cls=Command,
    example="treeproof recourse model.json rows.csv --wanted 1 --threat prices.toml --ways 3",
)
@model_argument
@data_argument
@click.option("--wanted", required=True, metavar="LABEL", help="The class that a way leads to.")
@click.option("--ways", type=POSITIVE, default=1, help="Number of different ways per row.")
@click.option(
    "--budget", type=DISTANCE, metavar="COST", help="What people can afford; the rest counts apart."
)
@click.option(
    "--step",
    "steps",
    multiple=True,
    metavar="NAME=STEP",
    help="Let a feature become multiples of a number only, such as amount=100; may be repeated.",
)
@id_option
@question_options()
def command(
    model_path: str,
    data_path: str,
    wanted: str,
    ways: int,
    budget: float | None,
    steps: tuple[str, ...],
    **given: Any,
) -> None:
    """Find the cheapest ways to a class, for the rows of DATA that MODEL decides otherwise.

    What may change, and what it costs, is said by --threat, or by --norm and the other options.
    Of several ways each next one is the cheapest that leaves some feature of each earlier one as
    it is.
    """
    import treeproof
    from treeproof.cli.execute import class_named
    from treeproof.query.perturbations import PerRow, with_limit
    from treeproof.results.run_file import check_ending

    step = read_steps(steps)
    options = QuestionOptions.parse(given)
    refuse_options(
        ("engine", "score_change", "arithmetic", "label").__contains__,
        "has no meaning here: ways are exact, and lead to another class of doubles.",
    )
    if options.out is not None:
        check_ending(options.out, or_table=True)
        check_out(options.out, "The file")
        if options.out.lower().endswith(".xlsx"):
            require_backend("openpyxl", "excel")
    model = load_model(model_path, **options.loading)
    source = options.source(model, data_path)
    rows = options.read_rows(source)
    limit = options.threat.eps if budget is None else budget
    ball = options.ball(source, None, has_radius=False)
    found = treeproof.recourse(
        model,
        rows.values,
        class_named(model, wanted),
        ball if isinstance(limit, PerRow) else with_limit(ball, limit),
        n_ways=ways,
        step=step,
        n_jobs=options.jobs,
        progress=False,
        **options.limits,
    )
    found.id = None if rows.ids is None else rows.ids[found.row]
    found.row = rows.number[found.row]
    found.header["data"] = source.describe()
    if options.out is not None:
        found.save(options.out)
    _print(found, options)
    undecided = int((found.verdict == "unknown").sum())
    if options.strict and undecided:
        print_note(f"{undecided} ways are not proved to be the cheapest (--strict).")
        raise click.exceptions.Exit(EXIT_UNDECIDED)


def read_steps(texts: Sequence[str]) -> dict[str | int, float]:
    """Steps by feature, of what `--step` was given."""
    return dict(map(_step, texts))


def _step(text: str) -> tuple[str | int, float]:
    """A feature, by name or number, and its step."""
    name, _, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not name or not math.isfinite(value):
        raise click.BadParameter(f"--step must be NAME=STEP, such as amount=100. Got {text!r}.")
    return (int(name) if name.isdecimal() else name), value


def _print(found: "Results", options: QuestionOptions) -> None:
    """A table for people, everything for programs."""
    from treeproof.cli.shown_rows import print_csv_rows, print_json_rows
    from treeproof.results.numbers import digits_above, number
    from treeproof.results.run_file import row_records

    lines = found.summary().splitlines()
    if options.output_format == "json":
        head = {"header": found.header, "summary": {"lines": lines}}
        print_json_rows(head, row_records(found), found.header)
        return
    if options.output_format == "csv":
        for line in lines:
            print_note(line)
        print_csv_rows(lambda: [found])
        return
    for line in lines:
        click.echo(printable(line))
    shown = found if options.all_rows else found[:ROWS_SHOWN]
    columns = ("row", "id", "way", "cost", "probability", "after", "note")
    cells = [
        (
            answer.row,
            "" if answer.id is None else answer.id,
            "" if way is None else way,
            number(digits_above(answer.upper, _DIGITS), _DIGITS),
            number(answer.probability),
            number(answer.witness_probability),
            answer.reason or "; ".join(map(str, answer.changes)) or "no allowed change leads there",
        )
        for answer, way in zip(shown, [] if shown.way is None else shown.way, strict=True)
    ]
    left_out = {n for n in (1, 4, 5) if all(line[n] in ("", "–") for line in cells)}
    kept = [n for n in range(len(columns)) if n not in left_out]
    print_table([columns[n] for n in kept], [[line[n] for n in kept] for line in cells])
    if len(found) > len(shown):
        click.echo(f"… {len(found) - len(shown)} more ways (--all-rows shows them)")
