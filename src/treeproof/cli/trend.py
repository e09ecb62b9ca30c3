"""`treeproof trend`: one page about many runs of one question."""

from pathlib import Path

import click

from treeproof.cli.console import print_note
from treeproof.cli.options import DISTANCE, FILE, Command
from treeproof.cli.run_output import check_out
from treeproof.errors import InvalidInput


@click.command(cls=Command, example="treeproof trend week-*.jsonl --at 0.1 --out trend.html")
@click.argument("run_paths", metavar="RUN...", nargs=-1, required=True, type=FILE)
@click.option("--out", metavar="PAGE", type=FILE, default="trend.html", help="Where the page goes.")
@click.option("--title", metavar="TEXT", help="Heading of the page.")
@click.option(
    "--at",
    type=DISTANCE,
    metavar="EPS",
    help="Radius at which runs are compared."
    " [default: that of the runs, or a round one near the median of the last]",
)
def command(run_paths: tuple[str, ...], out: str, title: str | None, at: float | None) -> None:
    """Write a page that shows how what is verified changes over many saved runs.

    The runs must ask the same; they stand in the order of their days. The page is one file that
    works offline.
    """
    from treeproof.report.trend import write_trend

    check_out(out, "The page")
    if Path(out).exists() and any(Path(out).samefile(p) for p in run_paths if Path(p).exists()):
        raise InvalidInput(f"The page must not replace a run that it is made from. Got '{out}'.")
    write_trend(run_paths, out, at=at, title=title)
    print_note(f"the trend of {len(run_paths)} runs is in {out}.")
