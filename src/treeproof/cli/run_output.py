"""How commands give their answers: tables, JSON, CSV, files, progress, exit statuses."""

import contextlib
import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import console, print_note, printable
from treeproof.errors import InvalidInput

if TYPE_CHECKING:
    from treeproof.cli.question_options import QuestionOptions
    from treeproof.results.summary import RunSummary
    from treeproof.runs.runner import Run, Runner

EXIT_GATE_FAILED = 1
EXIT_UNDECIDED = EXIT_REJECTED = 3
EXIT_INTERRUPTED = 130
"""What shells report of a program that Ctrl-C ended."""

ROWS_SHOWN = 20
_CHANGES_SHOWN = 1
_PRINT_BYTES = 1 << 16
_RADIUS_STATES = {"verified": "exact", "falsified": "broken", "unknown": "undecided"}
_ROW_COLUMNS = (
    *("row", "label", "verdict", "lower", "upper", "exact", "attained", "witness_distance"),
    *("seconds", "reason"),
)
_TEXT_COLUMNS = {"label", "verdict", "radius", "note", "feature", "features", "kept_fixed"}


def conclude(
    run: "Run",
    runner: "Runner",
    options: "QuestionOptions",
    summary: dict[str, Any],
    lines: Sequence[str],
    *,
    fail_under: float | None = None,
    share: float | None = None,
) -> None:
    """Print answers in the form that was asked for, and end with their exit status.

    The summary is given as plain data, for JSON, and in words, for the table; see `finish` for the
    gate.
    """
    from treeproof.query.arithmetic import in_words
    from treeproof.results.threat import threat_lines

    arithmetic = in_words(runner.header)
    if options.output_format == "json":
        head = {"header": runner.header, "summary": summary | {"arithmetic": arithmetic}}
        print_json_rows(head, runner.records())
    elif options.output_format == "csv":
        print_note(f"arithmetic: {arithmetic}.")
        print_csv(_ROW_COLUMNS, ([r[c] for c in _ROW_COLUMNS] for r in runner.records()))
    else:
        for line in (*lines, *threat_lines(runner.header), f"arithmetic: {arithmetic}"):
            click.echo(printable(line))
        _print_rows(runner, everything=options.all_rows)
    finish(run.tally, run.is_complete, options.strict, fail_under, share)


def finish(
    tally: "RunSummary",
    is_complete: bool,
    strict: bool,
    fail_under: float | None = None,
    share: float | None = None,
) -> None:
    """End with the exit status that answers ask for; a failed gate comes before undecided rows.

    The gate fails where a smaller `share` of the rows than `fail_under` is verified.
    """
    if not is_complete:
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if fail_under is not None and share is not None and share < fail_under:
        from treeproof.results.numbers import share_down

        proved = f"{share_down(share)} {tally.who()}"
        print_note(f"the gate failed: {proved} are verified, below {fail_under:g}.")
        raise click.exceptions.Exit(EXIT_GATE_FAILED)
    if strict and tally.verdicts["unknown"]:
        print_note(f"{tally.verdicts['unknown']} of {tally.n_rows} rows are undecided (--strict).")
        raise click.exceptions.Exit(EXIT_UNDECIDED)


def print_json_rows(head: dict[str, Any], records: Iterable[dict[str, Any]]) -> None:
    """Print one JSON object whose last entry, the rows, is never in memory as a whole."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(head), indent=2).decode()
    click.echo(text.rstrip().removesuffix("}").rstrip() + ',\n  "rows": [', nl=False)
    comma = ""
    for record in records:
        click.echo(f"{comma}\n    {msgspec.json.encode(record).decode()}", nl=False)
        comma = ","
    click.echo("\n  ]\n}")


def print_csv(columns: Sequence[str], rows: Any) -> None:
    """Print comma-separated values; undefined numbers are empty cells."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
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


def _print_rows(runner: "Runner", *, everything: bool) -> None:
    asks_radius = runner.tally.asks_radius
    states = _RADIUS_STATES if asks_radius else {name: name for name in _RADIUS_STATES}
    columns = ("row", "label", "radius" if asks_radius else "verdict", "lower", "upper", "note")
    names = runner.header["model"]["feature_names"]
    n_rows = runner.tally.n_rows
    records = runner.first_records(None if everything else ROWS_SHOWN)
    shown = [
        (
            record["row"],
            record["label"],
            states[record["verdict"]],
            _figure(record["lower"], 6),
            _figure(record["upper"], 6),
            record["reason"] or _changes(record, names),
        )
        for record in records
    ]
    print_table(columns, shown)
    if n_rows > len(shown):
        click.echo(f"… {n_rows - len(shown)} more rows (--all-rows shows them)")


def _figure(value: Any, n_digits: int) -> str:
    return "nan" if value is None else f"{float(value):.{n_digits}g}"


def _changes(record: dict[str, Any], names: Sequence[str]) -> str:
    """Say in a few words what the witness of a row changes."""
    if record["witness"] is None:
        return ""
    pairs = list(zip(record["values"], record["witness"], strict=True))
    changed = [f for f, (old, new) in enumerate(pairs) if old != new and new is not None]
    said = [
        f"{names[f] if names else f'feature {f}'}: "
        + " → ".join(_figure(value, 7) for value in pairs[f])
        for f in changed[:_CHANGES_SHOWN]
    ]
    more = f", and {len(changed) - _CHANGES_SHOWN} more" if len(changed) > _CHANGES_SHOWN else ""
    return ", ".join(said) + more


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
    """Refuse, before any work, a file that could not be written."""
    from treeproof.files import unwritable

    target = Path(path)
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
