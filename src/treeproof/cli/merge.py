"""`treeproof merge`: several runs about one model and one question as one."""

import click

from treeproof.cli.options import FILE, Command
from treeproof.cli.run_output import check_out
from treeproof.errors import printable


@click.command(cls=Command, example="treeproof merge first.jsonl second.jsonl --out merged.parquet")
@click.argument("run_paths", metavar="RUN...", type=FILE, nargs=-1, required=True)
@click.option(
    "--out", metavar="RUN", type=FILE, required=True, help="The file to write, in one step."
)
def command(run_paths: tuple[str, ...], out: str) -> None:
    """Join run files about the same model and question into one, in the order of the rows.

    Where several runs have an answer for a row, a settled one is taken. Runs about another model or
    question, and rows whose values differ, are refused.
    """
    from treeproof.runs.merge import merge_runs

    check_out(out)
    n_rows = merge_runs(run_paths, out)
    click.echo(f"{n_rows} rows of {len(run_paths)} runs in {printable(out)}")
