"""`treeproof curve`: verified accuracy at many radii, from exact or bounded radii of the rows."""

from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.asking import Asking, finish, radii, refuse_options, run_options
from treeproof.cli.console import print_json, print_note, printable
from treeproof.errors import InvalidInput

if TYPE_CHECKING:
    from treeproof.results.results import Results
    from treeproof.results.summary import RunSummary

_FOR_BOTH = {"at", "output_format", "strict", "source_path", "data_path"}


@click.command(short_help="Show the share of rows that is verified at many radii.")
@click.argument("source_path", metavar="RUN_OR_MODEL", type=click.Path())
@click.argument("data_path", metavar="[DATA]", type=click.Path(), required=False)
@click.option(
    "--at",
    callback=radii,
    required=True,
    metavar="EPS,EPS,...",
    help="Radii, with commas between them, such as 0,0.01,0.1.",
)
@run_options
def command(source_path: str, data_path: str | None, at: tuple[float, ...], **options: Any) -> None:
    """Show verified accuracy at many radii.

    Either from the saved run RUN of `treeproof radius`, or for the rows of DATA and the model
    MODEL, whose radii are then found first. The certified side counts rows that are proved to keep
    their label at a radius, the resisting side rows that no known change breaks; the truth lies
    between, and where every radius is exact both are equal.
    """
    from treeproof.results.summary import RunSummary

    if data_path is None:
        results = _saved(source_path)
        tally = RunSummary(True, at)
        tally.add(results)
        header, is_complete = results.header, True
    else:
        from treeproof.cli.running import answered

        asking, loading = Asking.split(options)
        with answered(source_path, data_path, asking, loading, asks_radius=True, radii=at) as found:
            tally = found.run.tally
            header, is_complete = found.run.header, found.run.is_complete
    _print(header, tally, options["output_format"])
    finish(
        n_rows=tally.n_rows,
        n_undecided=tally.verdicts["unknown"],
        is_complete=is_complete,
        strict=options["strict"],
    )


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


def _point(tally: "RunSummary", eps: float) -> dict[str, Any]:
    n, certified = tally.n_rows, tally.proved[eps]
    resisting = n - tally.broken[eps]
    return {
        "eps": eps,
        "certified": certified / n,
        "resisting": resisting / n,
        "undecided": (resisting - certified) / n,
    }


def _print(header: dict[str, Any], tally: "RunSummary", output_format: str) -> None:
    from treeproof.cli.run_output import print_csv, print_table
    from treeproof.query.arithmetic import in_words

    arithmetic = in_words(header) or "not recorded"
    columns = ("eps", "certified", "resisting", "undecided")
    points = [_point(tally, eps) for eps in tally.radii]
    if output_format == "json":
        said = {"header": header, "arithmetic": arithmetic, "rows": tally.n_rows, "curve": points}
        print_json(said)
    elif output_format == "csv":
        print_note(f"arithmetic: {arithmetic}.")
        print_csv(columns, ([point[name] for name in columns] for point in points))
    else:
        labels = header.get("question", {}).get("labels", "given")
        click.echo(printable(f"{tally.n_rows} rows, labels: {labels}, arithmetic: {arithmetic}"))
        print_table(columns, ([f"{point[name]:.6g}" for name in columns] for point in points))
