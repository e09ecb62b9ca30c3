"""`treeproof report`: one self-contained page from one saved run, or from two to compare."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from treeproof.cli.console import print_note
from treeproof.cli.options import (
    DISTANCE,
    FILE,
    Command,
    load_model_of_run,
    partial_option,
    refuse_unfinished,
)
from treeproof.cli.run_output import check_out
from treeproof.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treeproof.checker import RowCheck
    from treeproof.checker.property_files import PropertyCheck


@click.command(cls=Command, example="treeproof report run.jsonl --out report.html")
@click.argument("run_paths", metavar="RUN [RUN2]", nargs=-1, required=True, type=FILE)
@click.option(
    "--out", metavar="PAGE", type=FILE, default="report.html", help="Where the page goes."
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="TEXT",
    help="What the reader knows a run by; once for each run. [default: the names of the files]",
)
@click.option("--title", metavar="TEXT", help="Heading of the page.")
@click.option(
    "--at",
    type=DISTANCE,
    metavar="EPS",
    help="Radius that the page opens with. [default: a round one near the median]",
)
@click.option(
    "--shape", metavar="HxW", help="Height and width of rows that are images, such as 8x8."
)
@click.option(
    "--frozen",
    multiple=True,
    metavar="RUN",
    type=FILE,
    help="The same question with a feature frozen, to show what that changes; may be repeated.",
)
@click.option(
    "--check",
    "model_paths",
    multiple=True,
    metavar="MODEL",
    type=FILE,
    help="Check the evidence of a run with its model, and show only what is accepted; once for"
    " each run.",
)
@click.option(
    "--properties",
    multiple=True,
    metavar="ANSWERS",
    type=FILE,
    help="Answers of `treeproof prove --out` or `diff --out`, which get a section of their own;"
    " may be repeated.",
)
@click.option(
    "--reasons",
    metavar="FILE",
    type=FILE,
    help="A file of `treeproof reasons --out`, which gets a section of its own.",
)
@partial_option
def command(
    run_paths: tuple[str, ...],
    out: str,
    names: tuple[str, ...],
    title: str | None,
    at: float | None,
    shape: str | None,
    frozen: tuple[str, ...],
    model_paths: tuple[str, ...],
    properties: tuple[str, ...],
    reasons: str | None,
    partial: bool,
) -> None:
    """Write a page that shows the saved run RUN, or compares it with RUN2.

    The page is one file that works offline: what was asked, verified accuracy over the radius, how
    far rows are from breaking, which features break the model, rows with their witnesses, and a
    table of all rows.
    """
    from treeproof.report.images import parse_shape
    from treeproof.report.page import write_report
    from treeproof.results.run_file import load_results, unfinished
    from treeproof.runs.merge import header_of

    if len(run_paths) > 2:
        raise click.UsageError(f"A report shows one run or compares two. Got {len(run_paths)}.")
    check_out(out, "The report")
    if Path(out).exists() and any(Path(out).samefile(p) for p in run_paths if Path(p).exists()):
        raise InvalidInput(f"The report must not replace the run it is made from. Got '{out}'.")
    if model_paths and len(model_paths) != len(run_paths):
        raise click.UsageError(
            f"--check must be given once for each of the {len(run_paths)} runs."
            f" Got {len(model_paths)}."
        )
    for path in (*run_paths, *frozen):
        header = header_of(Path(path))
        if unfinished(header, 0):
            refuse_unfinished(header, len(load_results(path)), path, partial=partial)
    write_report(
        run_paths,
        out,
        names=names or None,
        at=at,
        shape=None if shape is None else parse_shape(shape),
        frozen=frozen,
        title=title,
        checks=[_check(*pair) for pair in zip(run_paths, model_paths, strict=True)]
        if model_paths
        else None,
        properties=properties,
        property_checks=[_check_answers(path, run_paths, model_paths) for path in properties]
        if model_paths
        else None,
        reasons=reasons,
    )
    print_note(f"the report is in {out}.")


def _check(run_path: str, model_path: str) -> "list[RowCheck]":
    """What the independent checker says of every row of a run."""
    from treeproof.checker import check_run
    from treeproof.checker.runs import read_header

    ensemble, _ = load_model_of_run(read_header(run_path), model_path)
    return list(check_run(run_path, ensemble))


def _check_answers(
    path: str, run_paths: "Sequence[str]", model_paths: "Sequence[str]"
) -> "list[PropertyCheck] | None":
    """What the checker says of answers about the models of the runs; None about others."""
    from treeproof.checker.property_files import check_answers
    from treeproof.checker.runs import read_header
    from treeproof.results.property_file import load_property_records

    known = {}
    for run_path, model_path in zip(run_paths, model_paths, strict=True):
        ensemble, _ = load_model_of_run(read_header(run_path), model_path)
        known[ensemble.fingerprint] = ensemble
    records = load_property_records(path)
    found = [
        known.get(str((records[key] or {}).get("fingerprint")))
        for key in ("model", "other")
        if key in records
    ]
    if any(ensemble is None for ensemble in found):
        return None
    return check_answers(found[0], records, *found[1:])  # type: ignore[arg-type]
