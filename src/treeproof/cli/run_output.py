"""How commands end: answers, files, progress, exit statuses; `shown_rows` prints the rows."""

import contextlib
import csv
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import console, print_note
from treeproof.errors import InvalidInput, printable

if TYPE_CHECKING:
    from treeproof.cli.gate import Gate
    from treeproof.cli.question_options import QuestionOptions
    from treeproof.results.summary import RunSummary
    from treeproof.runs.runner import Run, Runner

EXIT_GATE_FAILED = 1
EXIT_UNDECIDED = EXIT_REJECTED = 3


ROWS_SHOWN = 20
_PRINT_BYTES = 1 << 16
_TEXT_COLUMNS = {
    *("id", "label", "verdict", "radius", "becomes", "note"),
    *("feature", "features", "kept_fixed"),
}


def conclude(
    run: "Run",
    runner: "Runner",
    options: "QuestionOptions",
    summary: dict[str, Any],
    lines: Sequence[str],
    *,
    gate: "Gate | None" = None,
    verified: tuple[float, float | None] | None = None,
) -> None:
    """Print answers in the form that was asked for, and end with their exit status.

    The summary is given as plain data, for JSON, and in words, for the table; `verified` is the
    share of the rows that the gate is about, and its radius, None where each row has its own.
    """
    from treeproof.cli.question_options import SUMMARIES
    from treeproof.cli.run_summary import Found, junit, markdown
    from treeproof.cli.shown_rows import (
        is_wanted,
        order_by,
        print_csv_rows,
        print_json_rows,
        print_row_table,
    )
    from treeproof.query.arithmetic import in_words
    from treeproof.results.sheets import save_table
    from treeproof.results.threat import threat_lines

    arithmetic, judged = in_words(runner.header), None
    if run.is_complete and gate is not None and gate.is_given and verified is not None:
        judged = gate.judge(runner, *verified)
    chosen = is_wanted(options.only, runner.header), order_by(options.sort, runner.header)
    if options.output_format == "json":
        head = {"header": runner.header, "summary": summary | {"arithmetic": arithmetic}}
        if judged is not None:
            head["gate"] = judged.record()
        print_json_rows(head, runner.records(*chosen), runner.header)
    elif options.output_format == "csv":
        print_note(f"arithmetic: {arithmetic}.")
        print_csv_rows(lambda: runner.tables(*chosen))
    elif options.output_format in SUMMARIES:
        found = Found(run, runner, [*lines, *threat_lines(runner.header)], judged, options.strict)
        click.echo(junit(found) if options.output_format == "junit" else markdown(found))
    else:
        for line in (*lines, *threat_lines(runner.header), f"arithmetic: {arithmetic}"):
            click.echo(printable(line))
        print_row_table(runner, options)
    if options.writes_table and run.is_complete:
        save_table(options.out or "", lambda: runner.tables(*chosen))
    failure = None if judged is None else judged.failure or None
    finish(run.tally, run.is_complete, options.strict, failure)


def finish(
    tally: "RunSummary", is_complete: bool, strict: bool, failure: str | None = None
) -> None:
    """End with the exit status that answers ask for; a failed gate comes before undecided rows."""
    from treeproof.cli.main import EXIT_INTERRUPTED

    if not is_complete:
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if failure is not None:
        print_note(f"the gate failed: {failure}.")
        raise click.exceptions.Exit(EXIT_GATE_FAILED)
    if strict and tally.verdicts["unknown"]:
        print_note(f"{tally.verdicts['unknown']} of {tally.n_rows} rows are undecided (--strict).")
        raise click.exceptions.Exit(EXIT_UNDECIDED)


def check_domain_out(out: str | None, evidence: bool) -> None:
    """Refuse, before any work, evidence that goes nowhere and a file that could not be written."""
    if evidence and out is None:
        raise click.UsageError("--evidence must come with --out, since it is kept in that file.")
    if out is not None:
        check_out(out, "The file")


def count_verdicts(results: Iterable[Any]) -> dict[str, int]:
    """How many answers about a domain have each verdict."""
    verdicts = [str(result.verdict) for result in results]
    return {verdict: verdicts.count(verdict) for verdict in ("verified", "falsified", "unknown")}


def finish_claims(counts: dict[str, int], strict: bool) -> None:
    """End with the exit status of answers about a domain: a gate that one falsified claim fails."""
    if counts["falsified"]:
        raise click.exceptions.Exit(EXIT_GATE_FAILED)
    if strict and counts["unknown"]:
        print_note(f"{counts['unknown']} answers are unknown (--strict).")
        raise click.exceptions.Exit(EXIT_UNDECIDED)


def print_csv(columns: Sequence[str], rows: Any) -> None:
    """Print comma-separated values; undefined numbers are empty cells."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([printable(column) for column in columns])
    for row in rows:
        writer.writerow([printable(cell) if isinstance(cell, str) else cell for cell in row])
        if text.tell() > _PRINT_BYTES:
            click.echo(text.getvalue(), nl=False)
            text.seek(0)
            text.truncate()
    click.echo(text.getvalue(), nl=False)


def print_table(columns: Sequence[str], rows: Any) -> None:
    """Print a table whose cells are text, numbers to the right."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, pad_edge=False)
    for name in columns:
        is_text = name in _TEXT_COLUMNS
        table.add_column(
            name, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text
        )
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    console().print(table)


@contextlib.contextmanager
def progress_bar(n_rows: int | None) -> Iterator[Callable[[int], None]]:
    """Show rate and time left on standard error where that is a terminal; otherwise nothing."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task
    from rich.progress import TimeRemainingColumn as TimeLeft
    from rich.text import Text

    class Rate(ProgressColumn):
        """Rows per second, lately."""

        def render(self, task: Task) -> Text:
            return Text("rows," if task.speed is None else f"rows, {task.speed:.3g} rows/s,")

    columns = (BarColumn(), MofNCompleteColumn(), Rate(), TimeLeft(), "left")
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("rows", total=n_rows)
        yield lambda done: progress.update(task, completed=done)


def check_out(path: str, what: str = "The run file") -> None:
    """Refuse, before any work, a file that could not be written, or not as its name promises."""
    from treeproof.files import unwritable

    target = Path(path)
    if what == "The run file":
        from treeproof.results.run_file import check_ending

        check_ending(path)
    try:
        is_other = target.exists() and not target.is_file()
        has_folder = target.parent.is_dir()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise unwritable(path, error, what) from error
    if is_other:
        raise InvalidInput(f"{what} '{path}' must be a file. Got something else there.")
    if not has_folder:
        raise InvalidInput(
            f"The folder of {what[0].lower()}{what[1:]} '{path}' must exist. Got none."
        )
    if not os.access(target.parent, os.W_OK):
        raise InvalidInput(
            f"The folder of {what[0].lower()}{what[1:]} '{path}' must be writable. It is not."
        )
