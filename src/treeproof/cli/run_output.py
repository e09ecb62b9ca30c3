"""How the commands that ask about rows give their answers: tables, JSON, CSV, run files."""

import contextlib
import csv
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from treeproof.cli.console import console, print_json, printable
from treeproof.errors import InvalidInput

if TYPE_CHECKING:
    from treeproof.cli.asking import Answered

ROWS_SHOWN = 20
_CHANGES_SHOWN = 1
_RADIUS_STATES = {"verified": "exact", "falsified": "broken", "unknown": "bounds apart"}
_ROW_COLUMNS = (
    "row",
    "label",
    "verdict",
    "lower",
    "upper",
    "exact",
    "attained",
    "witness_distance",
    "seconds",
    "reason",
)


def print_answers(
    answered: "Answered", summary: dict[str, Any], lines: Sequence[str], asking: Any
) -> None:
    """Print answers in the form that was asked for.

    Parameters
    ----------
    answered : Answered
        What was found.
    summary : dict
        The summary as plain data, for JSON.
    lines : sequence of str
        The summary in words, for the table.
    asking : Asking
        Holds the form.
    """
    from treeproof.results.run_file import row_records

    results = answered.results
    if asking.output_format == "json":
        print_json(
            {"header": results.header, "summary": summary, "rows": list(row_records(results))}
        )
    elif asking.output_format == "csv":
        print_csv(_ROW_COLUMNS, ([r[c] for c in _ROW_COLUMNS] for r in row_records(results)))
    else:
        for line in lines:
            click.echo(printable(line))
        _print_rows(answered, len(results) if asking.all_rows else ROWS_SHOWN)


def print_csv(columns: Sequence[str], rows: Any) -> None:
    """Print comma-separated values; undefined numbers are empty cells."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([printable(cell) if isinstance(cell, str) else cell for cell in row])
    click.echo(text.getvalue(), nl=False)


def print_table(columns: Sequence[str], rows: Any) -> None:
    """Print a table whose cells are text, numbers to the right."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, pad_edge=False)
    for name in columns:
        is_text = name in ("label", "verdict", "radius", "note", "feature", "features")
        table.add_column(
            name, justify="left" if is_text else "right", overflow="fold", no_wrap=not is_text
        )
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    console().print(table)


def _print_rows(answered: "Answered", n_shown: int) -> None:
    results = answered.results
    states = _RADIUS_STATES if results.asks_radius else {name: name for name in _RADIUS_STATES}
    rows = (
        (
            results.row[i],
            results.label[i],
            states[results.verdict[i]],
            f"{results.lower[i]:.6g}",
            f"{results.upper[i]:.6g}",
            results.reason[i] if results.reason[i] else _changes(answered, i),
        )
        for i in range(min(n_shown, len(results)))
    )
    kind = "radius" if results.asks_radius else "verdict"
    print_table(("row", "label", kind, "lower", "upper", "note"), rows)
    if len(results) > n_shown:
        click.echo(f"… {len(results) - n_shown} more rows (--all-rows shows them)")


def _changes(answered: "Answered", row: int) -> str:
    """Say in a few words what the witness of a row changes."""
    import numpy as np

    ensemble = answered.model.ensemble
    witness = answered.results.witness[row]
    # A witness is in the model's precision, so the row is compared in that precision, too.
    values = answered.rows[row].astype(ensemble.input_precision).astype(np.float64)
    changed = np.flatnonzero((witness != values) & ~np.isnan(witness))
    if len(changed) == 0:
        return ""
    names = ensemble.feature_names
    said = [
        f"{names[f] if names else f'feature {f}'}: {values[f]:.7g} → {witness[f]:.7g}"
        for f in changed[:_CHANGES_SHOWN]
    ]
    more = f", and {len(changed) - _CHANGES_SHOWN} more" if len(changed) > _CHANGES_SHOWN else ""
    return ", ".join(said) + more


@contextlib.contextmanager
def progress_bar(n_rows: int) -> Iterator[Callable[[int], None]]:
    """Show rate and time left on standard error where that is a terminal; otherwise nothing."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("rows,"), TimeLeft(), "left")
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("rows", total=n_rows)
        yield lambda done: progress.update(task, completed=done)


def check_out(path: str) -> None:
    """Refuse, before any work, a run file that could not be written."""
    target = Path(path)
    if target.exists() and not target.is_file():
        raise InvalidInput(f"The run file '{path}' must be a file. Got something else there.")
    if not target.parent.is_dir():
        raise InvalidInput(f"The folder of the run file '{path}' must exist. Got none.")
