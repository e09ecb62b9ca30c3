"""Run files: every row of a run, and that none is missing."""

import re
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.checker import schema
from treeproof.checker.answers import MOST_ROWS, RowCheck, RunChecker
from treeproof.checker.questions import same_label
from treeproof.errors import InvalidInput
from treeproof.model.ensemble import Ensemble

MOST_BYTES = 1 << 20
"""Of lines that are read at a time, where there are several."""

_RANGE = re.compile(r"(\d{0,15}):(\d{0,15})")
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def check_run(
    path: str | PathLike[str],
    ensemble: Ensemble,
    rows: NDArray[np.float64] | None = None,
    labels: Sequence[schema.Label] | None = None,
    eps: Sequence[float] | NDArray[np.float64] | None = None,
    ids: Sequence[Any] | None = None,
) -> Iterator[RowCheck]:
    """Check a run file of JSON lines, reading some lines at a time.

    Parameters
    ----------
    path : str or path
        The run file.
    ensemble : Ensemble
        The model as loaded.
    rows : float64 (n_rows, n_features), optional
        The data that the run must be about, in the model's input precision.
    labels : sequence, optional
        Their labels, which a run that was given labels must have been given.
    eps : sequence of float, optional
        Their own radii or budgets, which a run that has such must have been given.
    ids : sequence, optional
        Their identifiers, which the rows of the run must have.
    """
    checker, seen = RunChecker(read_header(path), ensemble), set[tuple[int, int]]()
    with Path(path).open("rb") as file:
        file.readline()
        waiting: list[RowCheck | tuple[Any, ...]] = []
        size = 0
        for number, line in enumerate(file, start=2):
            waiting.append(_opened(line, number, seen, (rows, labels, eps, ids)))
            size += len(line)
            if size > MOST_BYTES or len(waiting) == MOST_ROWS:
                yield from _checked(checker, waiting)
                waiting, size = [], 0
        yield from _checked(checker, waiting)
    reason = _miscounted(checker.header, seen, None if rows is None else len(rows))
    if reason:
        yield RowCheck(-1, "rejected", reason)


def _opened(
    line: bytes, number: int, seen: set[tuple[int, int]], data: tuple[Any, Any, Any, Any]
) -> RowCheck | tuple[Any, ...]:
    """A line as the checker takes it: record, values, label; or what is wrong with it."""
    try:
        row = msgspec.json.decode(line, type=schema.Row)
    except _UNREADABLE as error:
        return RowCheck(-1, "rejected", f"line {number}: this is no row record ({error})")
    if (row.row, row.way) in seen:
        return RowCheck(row.row, "rejected", f"line {number}: row {row.row} is here twice")
    seen.add((row.row, row.way))
    rows, labels, eps, ids = data
    if rows is not None and row.row >= len(rows):
        return RowCheck(row.row, "rejected", f"record: the data have {len(rows)} rows")
    if eps is not None and row.eps != eps[row.row]:
        return RowCheck(
            row.row, "rejected", f"record: the eps of the data is {float(eps[row.row])!r}"
        )
    if ids is not None and not same_label(row.id, ids[row.row]):
        return RowCheck(row.row, "rejected", f"record: the data call it {ids[row.row]!r}")
    values = None if rows is None else rows[row.row]
    return row, values, None if labels is None else labels[row.row]


def _checked(checker: RunChecker, waiting: list[RowCheck | tuple[Any, ...]]) -> Iterator[RowCheck]:
    """What comes out for lines, in their order."""
    given = [entry for entry in waiting if not isinstance(entry, RowCheck)]
    checks = iter(checker.check_all(*zip(*given, strict=True)) if given else ())
    for entry in waiting:
        yield entry if isinstance(entry, RowCheck) else next(checks)


def read_header(path: str | PathLike[str]) -> dict[str, Any]:
    """The header of a run file, which has all that the checker reads of it."""
    try:
        with Path(path).open("rb") as file:
            line = file.readline()
        if line.startswith(b"PAR1"):
            raise InvalidInput(
                f"A run file must be JSON lines to be checked. Got Parquet in '{path}'."
                f" Turn it into JSON lines: treeproof merge {path} --out RUN.jsonl."
            )
        header: dict[str, Any] = msgspec.json.decode(line)
        msgspec.convert(header, schema.Header)
    except OSError as error:
        raise InvalidInput(f"The run file '{path}' must be readable. Got: {error}.") from error
    except _UNREADABLE as error:
        raise InvalidInput(
            f"The run file '{path}' must start with a header record. Got: {error}."
        ) from error
    return header


def _miscounted(header: schema.Header, seen: set[tuple[int, int]], n_data: int | None) -> str:
    """Say what is wrong with the number of rows; nothing where all are here."""
    if header.state == "underway":
        return f"run: it is not complete, {len(seen)} rows are here"
    data = header.data or schema.Data()
    for count in (header.n_rows, data.n_asked):
        if count not in (None, len(seen)):
            return f"run: {count} rows were asked about, {len(seen)} are here"
    if header.n_rows is None:
        return "run: its header does not count the rows"
    if n_data is None:
        return ""
    parts = [part or schema.Data() for part in data.merged] or [data]
    asked = set().union(*(range(n_data)[chosen_rows(part)] for part in parts))
    samples = [part.sample for part in parts if part.sample is not None]
    most = min(len(asked), sum(samples)) if len(samples) == len(parts) else len(asked)
    # Samples of several runs may have rows in common; otherwise their number is known.
    least = most if len(parts) == 1 or not samples else 0
    rows = {row for row, _ in seen}
    if rows <= asked and least <= len(rows) <= most:
        return ""
    return f"run: {most} rows of the data were asked about, {len(rows & asked)} are here"


def chosen_rows(data: schema.Data) -> slice:
    """The range of rows that a run says it asked about; all where it says nothing."""
    found = _RANGE.fullmatch(data.rows or ":")
    first, last = found.groups() if found else ("", "")
    return slice(int(first or 0), int(last) if last else None)
