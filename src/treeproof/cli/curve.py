"""`treeproof curve`: verified accuracy at many radii, from exact or bounded radii of the rows."""

from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import print_json, print_note
from treeproof.cli.options import (
    DISTANCE,
    FILE,
    Command,
    partial_option,
    refuse_options,
    refuse_unfinished,
)
from treeproof.cli.question_options import QuestionOptions, run_options
from treeproof.errors import InvalidInput, printable

if TYPE_CHECKING:
    from treeproof.results.results import Results
    from treeproof.results.summary import RunSummary

_FOR_BOTH = {"at", "partial", "output_format", "strict", "source_path", "data_path"}


def _radii(ctx: click.Context, param: click.Parameter, value: str) -> tuple[float, ...]:
    return tuple(DISTANCE.convert(part.strip(), param, ctx) for part in value.split(","))


@click.command(cls=Command, example="treeproof curve run.jsonl --at 0,0.01,0.1")
@click.argument("source_path", metavar="RUN_OR_MODEL", type=FILE)
@click.argument("data_path", metavar="[DATA]", type=FILE, required=False)
@click.option(
    "--at",
    callback=_radii,
    required=True,
    metavar="EPS,EPS,...",
    help="Radii, with commas between them, such as 0,0.01,0.1.",
)
@partial_option
@run_options()
def command(
    source_path: str, data_path: str | None, at: tuple[float, ...], partial: bool, **given: Any
) -> None:
    """Show verified accuracy at many radii.

    Either from the saved run RUN of `treeproof radius`, or for the rows of DATA and the model
    MODEL, whose radii are then found first. The certified side counts rows that are proved to keep
    their label at a radius, the resisting side rows that no known change breaks; the truth lies
    between, and where every radius is exact both are equal.
    """
    from treeproof.cli.execute import run_question
    from treeproof.cli.run_output import finish
    from treeproof.results.summary import RunSummary

    if data_path is None:
        results = _saved(source_path)
        refuse_unfinished(results.header, len(results), source_path, partial=partial)
        tally = RunSummary(True, at)
        tally.add(results)
        header, is_complete = results.header, True
    else:
        options = QuestionOptions.parse(given)
        with run_question(source_path, data_path, options, "radius", radii=at) as (run, _):
            header, tally, is_complete = run.header, run.tally, run.is_complete
    _print(header, tally, given["output_format"])
    finish(tally, is_complete, given["strict"])


def _saved(path: str) -> "Results":
    """Radii of a saved run; options that ask anything new are refused."""
    from treeproof.results.run_file import load_results

    refuse_options(
        lambda name: name not in _FOR_BOTH,
        "has no meaning with a saved run, whose question was asked before. Give MODEL and DATA"
        " instead.",
    )
    results = load_results(path)
    if not results.asks_radius:
        raise InvalidInput(
            f"A curve needs the radii of a run of 'treeproof radius'. Got '{path}', whose question"
            " was another one."
        )
    if len(results) == 0:
        raise InvalidInput(f"The run file '{path}' must have at least one row. Got none.")
    return results


def _print(header: dict[str, Any], tally: "RunSummary", output_format: str) -> None:
    from treeproof.cli.run_output import print_csv, print_table
    from treeproof.query.arithmetic import in_words
    from treeproof.results.numbers import share_down

    arithmetic = in_words(header) or "not recorded"
    columns = ("eps", "certified", "resisting", "undecided")
    points = []
    for eps in tally.radii:
        proved, resisting = tally.proved[eps], tally.n_attacked - tally.broken[eps]
        shares = (tally.share(count) for count in (proved, resisting, resisting - proved))
        points.append(dict(zip(columns, (eps, *shares), strict=True)))
    if output_format == "json":
        said = {"header": header, "arithmetic": arithmetic, "rows": tally.n_rows}
        said |= {"attacked": tally.n_attacked, "curve": points}
        print_json(said)
    elif output_format == "csv":
        print_note(f"arithmetic: {arithmetic}.")
        print_csv(columns, ([point[name] for name in columns] for point in points))
    else:
        labels = header.get("question", {}).get("labels", "given")
        rows = tally.rows_in_words()
        click.echo(printable(f"{rows}, labels: {labels}, arithmetic: {arithmetic}"))
        cells = (
            [
                f"{point['eps']:.6g}",
                share_down(point["certified"]),
                # Where nothing is undecided, both are one share, and look so.
                f"{100.0 * point['resisting']:.6g} %"
                if point["undecided"]
                else share_down(point["resisting"]),
                f"{100.0 * point['undecided']:.6g} %",
            ]
            for point in points
        )
        print_table(columns, cells)
