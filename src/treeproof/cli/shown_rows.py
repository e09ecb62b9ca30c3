"""Rows of a run as people and programs read them: which ones, in which order, with names."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.cli.question_options import RADIUS_STATES, QuestionOptions
from treeproof.cli.run_output import ROWS_SHOWN, print_table
from treeproof.query.description import plain
from treeproof.results.changes import Change, changes_between, in_words
from treeproof.results.numbers import ColumnFormats, digits_above, digits_below, number
from treeproof.results.run_file import as_shown
from treeproof.results.run_file import number as plain_number
from treeproof.results.sheets import csv_texts

if TYPE_CHECKING:
    from treeproof.results.sheets import Blocks
    from treeproof.runs.runner import Runner

_DIGITS = 6
Record = dict[str, Any]


def is_attacked(record: Record, header: Record) -> bool:
    """Whether a row may change at all; of others nothing is proved, whatever their verdict."""
    attacked = header["question"].get("attacker_class")
    return attacked is None or record["label"] == attacked


def is_wanted(only: Sequence[str], header: Record) -> Callable[[Record], bool] | None:
    """Whether a row is among those of some verdicts, by the words of either question."""
    if not only:
        return None
    verdicts = {word: verdict for verdict, word in RADIUS_STATES.items()}
    wanted = {verdicts.get(word, word) for word in only}
    return lambda record: record["verdict"] in wanted and is_attacked(record, header)


def order_by(sort: str, header: Record) -> Callable[[Record], Any] | None:
    """Key of a row in an order; None for the order of the rows themselves."""
    if sort == "row":
        return None
    sign = -1.0 if sort.startswith("-") else 1.0
    if not sort.endswith("radius"):
        return lambda record: sign * plain_number(record["seconds"])
    return lambda record: [
        not is_attacked(record, header),
        *(sign * plain_number(record[name]) for name in ("lower", "upper")),
    ]


def changes_of(record: Record, header: Record) -> list[Change]:
    """What the witness of a row changes, with groups of a domain as one feature."""
    if record["witness"] is None or record.get("values") is None:
        return []
    row, witness = (
        [plain_number(value) for value in record[side]] for side in ("values", "witness")
    )
    return changes_between(header, row, witness, as_shown(list(witness), record))


def _has_attacker(header: Record) -> bool:
    return header["question"].get("attacker_class") is not None


def print_json_rows(head: Record, records: Iterable[Record], header: Record) -> None:
    """Print one JSON object whose last entry, the rows, is never in memory as a whole."""
    text = msgspec.json.format(msgspec.json.encode(head), indent=2).decode()
    click.echo(text.rstrip().removesuffix("}").rstrip() + ',\n  "rows": [', nl=False)
    comma = ""
    for record in records:
        has_names = bool(header["model"]["feature_names"])
        changes = {
            change.name if has_names else str(change.features[0]): {
                "from": plain(change.before),
                "to": plain(change.after),
            }
            for change in changes_of(record, header)
        }
        said = {"attacked": is_attacked(record, header)} if _has_attacker(header) else {}
        line = msgspec.json.encode(record | said | {"changes": changes}).decode()
        click.echo(f"{comma}\n    {line}", nl=False)
        comma = ","
    click.echo("\n  ]\n}")


def print_csv_rows(blocks: "Blocks") -> None:
    """Print rows as CSV: answers, and what changes in words and before and after."""
    for text in csv_texts(blocks):
        click.echo(text, nl=False)


def print_row_table(runner: "Runner", options: QuestionOptions) -> None:
    """Print the first rows of a choice, or all of them, for a person."""
    most = None if options.all_rows else ROWS_SHOWN
    if options.only or options.sort != "row":
        chosen = runner.records(
            is_wanted(options.only, runner.header), order_by(options.sort, runner.header)
        )
        records = list(itertools.islice(chosen, most))
        n_rows = len(records) + sum(1 for _ in chosen)
    else:
        records, n_rows = list(runner.first_records(most)), runner.tally.n_rows
    if not records:
        click.echo("There is no such row.")
        return
    columns = _table_columns(records, runner)
    print_table(tuple(columns), ([cell(record) for cell in columns.values()] for record in records))
    if n_rows > len(records):
        click.echo(f"… {n_rows - len(records)} more rows (--all-rows shows them)")


def _table_columns(records: list[Record], runner: "Runner") -> dict[str, Callable[[Record], Any]]:
    """Columns of the table of some rows, and the cell of a row in each."""
    asks_radius, header = runner.tally.asks_radius, runner.header
    states = RADIUS_STATES if asks_radius else {name: name for name in RADIUS_STATES}
    formats = ColumnFormats(_values(records, header["model"]["n_features"]))

    def attacked(cell: Callable[[Record], Any], otherwise: str = "") -> Callable[[Record], Any]:
        return lambda record: cell(record) if is_attacked(record, header) else otherwise

    columns: dict[str, Callable[[Record], Any]] = {
        "row": lambda record: record["row"],
        "id": lambda record: "" if record.get("id") is None else record["id"],
        "label": lambda record: record["label"],
        "radius" if asks_radius else "verdict": attacked(
            lambda record: states[record["verdict"]], "not attacked"
        ),
        "eps": lambda record: number(plain_number(record.get("eps")), _DIGITS),
        "lower": attacked(lambda record: number(_bounds(record)[0], _DIGITS)),
        "upper": attacked(lambda record: number(_bounds(record)[1], _DIGITS)),
        "becomes": attacked(
            lambda record: "" if record["witness"] is None else record["witness_label"]
        ),
        "note": attacked(
            lambda record: record["reason"] or in_words(changes_of(record, header), formats)
        ),
    }
    for name in ("id", "label", "eps"):
        if all(record.get(name) is None for record in records):
            del columns[name]
    if not any(record.get("witness_label") is not None for record in records):
        del columns["becomes"]
    return columns


def _bounds(record: Record) -> tuple[float, float]:
    """Both bounds of a row with the digits that are shown, no nearer than proved."""
    lower, upper = (plain_number(record[name]) for name in ("lower", "upper"))
    return digits_below(lower, _DIGITS), digits_above(upper, _DIGITS)


def _values(records: list[Record], n_features: int) -> NDArray[np.float64]:
    """Values of the shown rows, whose precision numbers are written in."""
    import numpy as np

    rows = [
        [plain_number(value) for value in record["values"]]
        for record in records
        if record["values"]
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, n_features)
