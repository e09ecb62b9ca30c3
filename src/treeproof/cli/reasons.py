"""`treeproof reasons`: which features fix the answer, how far they may move, what changes it."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import print_json, print_note
from treeproof.cli.features import check_picture
from treeproof.cli.options import (
    DISTANCE,
    FILE,
    POSITIVE,
    Command,
    data_argument,
    id_option,
    load_model,
    model_argument,
    refuse_options,
)
from treeproof.cli.question_options import QuestionOptions, question_options
from treeproof.cli.run_output import (
    EXIT_UNDECIDED,
    ROWS_SHOWN,
    check_out,
    print_csv,
    progress_bar,
)
from treeproof.errors import InvalidInput, printable

if TYPE_CHECKING:
    from treeproof.query.perturbations import Ball, Box, LInf
    from treeproof.results.reasons import Reasons


@click.command(cls=Command, example="treeproof reasons model.json rows.csv --low 0 --high 1")
@model_argument
@data_argument
@click.option("--minimum", is_flag=True, help="Find sets of minimum size. [default: minimal ones]")
@click.option(
    "--intervals/--values",
    default=True,
    help="Say how far the features may move, or only which values fix the answer.",
)
@click.option("--sets", type=POSITIVE, default=1, help="Number of different sets per row.")
@click.option(
    "--changes",
    type=click.IntRange(min=0),
    default=0,
    help="Number of different changes per row that break the claim.",
)
@click.option("--always", multiple=True, metavar="NAME", help="A feature that sets must use.")
@click.option("--never", multiple=True, metavar="NAME", help="A feature that sets must not use.")
@click.option(
    "--group",
    multiple=True,
    metavar="NAMES",
    help="Features that are one, such as red,green,blue; may be repeated.",
)
@click.option("--eps", type=DISTANCE, help="How far features may move. [default: anywhere]")
@click.option("--evidence", is_flag=True, help="Save proofs that 'treeproof check' verifies.")
@click.option(
    "--shape", metavar="HxW", help="Height and width of rows that are images, such as 8x8."
)
@click.option("--picture", metavar="FILE", type=FILE, help="Draw the first row (PNG, SVG or PDF).")
@id_option
@question_options()
def command(
    model_path: str, data_path: str, shape: str | None, picture: str | None, **given: Any
) -> None:
    """Say for the rows of DATA which features fix the answer of MODEL.

    While the features of a set keep their values, or stay in their intervals, the answer provably
    stays, whatever the others are: anything at all, or what --low, --high, --frozen and --eps leave
    open. Categories and missing values never move: they are listed, and nothing is claimed about
    other values of them.
    """
    import treeproof
    from treeproof.report.images import parse_shape

    wanted: dict[str, Any] = {
        name: given.pop(name) for name in ("minimum", "intervals", "evidence")
    }
    wanted |= {f"n_{name}": given.pop(name) for name in ("sets", "changes")}
    eps = given.pop("eps")
    wanted |= {name: [*map(_feature, given.pop(name))] for name in ("always", "never")}
    wanted["groups"] = [[*map(_feature, names.split(","))] for names in given.pop("group")]
    options = QuestionOptions.parse(given)
    pixels = None if shape is None else parse_shape(shape)
    refuse_options(("engine",).__contains__, "has no meaning here: reasons are exact.")
    if picture is not None:
        check_picture(picture)
    if options.out is not None:
        check_out(options.out, "The file")
    model = load_model(model_path, **options.loading)
    source = options.source(model, data_path)
    rows = options.read_rows(source)
    domain = _domain(options.ball(source, eps, has_radius=eps is not None))
    with progress_bar(len(rows)) as advance:
        found = treeproof.reasons(
            model,
            rows.values,
            rows.labels,
            domain,
            goal=options.goal,
            arithmetic=options.threat.arithmetic,
            n_jobs=options.jobs,
            progress=lambda done, _: advance(done),
            **wanted,
            **options.limits,
        )
    found.row, found.id = rows.number, rows.ids
    found.header["data"] = source.describe()
    if picture is not None:
        from treeproof.report.feature_maps import draw_features, save_figure

        save_figure(draw_features(found, 0, values=rows.values[0], shape=pixels), picture)
    if options.out is not None:
        found.save(options.out)
    _print(found, options)
    undecided = int((~found.minimal & found.sufficient).sum())
    if options.strict and undecided:
        print_note(f"{undecided} sets are not proved minimal (--strict).")
        raise click.exceptions.Exit(EXIT_UNDECIDED)


def _feature(item: str) -> int | str:
    item = item.strip()
    return int(item) if item.isdecimal() else item


def _domain(ball: "Ball") -> "LInf | Box":
    """What features can be: a box for all rows where nothing depends on the row."""
    from treeproof.query.perturbations import Box, LInf

    if not isinstance(ball, LInf):
        raise InvalidInput("Reasons are found with norm LInf only. Leave out the other norm.")
    if ball.eps is not None:
        return ball
    if not ball.frozen:
        return Box(ball.low, ball.high)
    return dataclasses.replace(ball, eps=math.inf, scale=None)


def _print(found: "Reasons", options: QuestionOptions) -> None:
    """Sentences for people, everything for programs."""
    from treeproof.query.description import plain
    from treeproof.results.numbers import row_name

    if options.output_format == "json":
        sentences = [{"sentence": found.sentence(i)} for i in range(len(found))]
        records = [a | b for a, b in zip(found.full_records(), sentences, strict=True)]
        print_json({"question": found.question, "records": plain(records)})
        return
    lines = found.summary().splitlines()
    if options.output_format == "csv":
        for line in lines:
            print_note(line)
        records = found.records()
        columns = [*records[0], "sentence"] if records else []
        cells = ([*map(_cell, r.values()), found.sentence(i)] for i, r in enumerate(records))
        print_csv(columns, cells)
        return
    for line in lines:
        click.echo(printable(line))
    shown = len(found) if options.all_rows else min(len(found), ROWS_SHOWN)
    for place in range(shown):
        name = row_name(*found.known(place).values())
        click.echo(printable(f"row {name}: {found.sentence(place)}"))
    if len(found) > shown:
        click.echo(f"… {len(found) - shown} more lines (--all-rows shows them)")


def _cell(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else value
