"""Run files: JSON lines, one header record and one record per row.

Numbers are written so that reading gives the same bits. JSON has no infinity: it is written as the
text "inf"; NaN is written as null. The format is described in docs/reference/run-files.md.
"""

import itertools
import math
import operator
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache, partial
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput
from treeproof.files import prepare_records, replacing
from treeproof.model.rows import objects
from treeproof.query.description import plain
from treeproof.results.columns import array_of
from treeproof.results.numbers import counted
from treeproof.results.results import FloatArray, Results

FORMAT = 1
"""Rises when a key changes its meaning or goes away."""

AS_FINISHED = "as finished"
"""Value of the header's `order` where rows are written as they are answered."""

RUN_ENDINGS = ("", ".jsonl", ".ndjson", ".json", ".parquet")
TABLE_ENDINGS = (".csv", ".xlsx")
"""Endings of files of answers: run files, which are read back, and tables, which are not."""

UNDERWAY, COMPLETE = "underway", "complete"
"""Values of the header's `state`; equally long, so that one can be written over the other."""

_Number = Annotated[float, msgspec.Meta(ge=0.0)] | Literal["inf"] | None
_Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] | None
_Value = float | Literal["inf", "-inf"] | None


class _Row(msgspec.Struct, kw_only=True):
    """What every row record must hold, as far as readers rely on it."""

    row: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    label: str | int | float | bool | None
    verdict: Literal["verified", "falsified", "unknown"]
    lower: _Number
    upper: _Number
    exact: bool
    attained: bool
    witness: list[_Value] | None
    witness_distance: _Number
    seconds: _Number
    reason: str
    statistics: dict[str, Any]
    values: list[_Value] | None = None
    eps: _Number | msgspec.UnsetType = msgspec.UNSET
    way: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET
    cost: _Number = None
    probability: _Share = None
    witness_probability: _Share = None
    shown: dict[str, float] = {}


class _Model(msgspec.Struct, kw_only=True):
    n_features: Annotated[int, msgspec.Meta(ge=0, le=2**31)]


class _Header(msgspec.Struct, kw_only=True):
    """What readers of answers rely on in a header."""

    model: _Model
    question: dict[str, Any] = {}


prepare_records(_Header, list[_Row])


_BOUNDS = ("lower", "upper", "witness_distance", "seconds")
_OPTIONAL_NUMBERS = ("cost", "probability", "witness_probability", "eps")
_OPTIONAL = ("predicted", "witness_label", "evidence", "id", *_OPTIONAL_NUMBERS)
"""Files without them, and without `values`, are read, too."""


def header_record(model: dict[str, Any], question: dict[str, Any]) -> dict[str, Any]:
    """What a run is about: the model's identity, and what was asked, in words and numbers."""
    return {
        "record": "header",
        "format": FORMAT,
        "model": model,
        "question": question,
        # The day is enough for a reader, and leaves runs of one day equal.
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {
            "treeproof": _installed("treeproof"),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": _installed("numba"),
            "machine": platform.machine(),
        },
    }


@cache
def _installed(package: str) -> str:
    # Asked of the installation, so that reading results never imports a compiler.
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def unfinished(header: dict[str, Any], n_rows: int) -> str:
    """A sentence about a run that is not complete; nothing about one that is."""
    if header.get("state") != UNDERWAY:
        return ""
    n_asked = (header.get("data") or {}).get("n_asked")
    of_all = f" of the {n_asked:,} that were asked about" if n_asked else ""
    is_here = "is here" if n_rows == 1 else "are here"
    return f"The run is not complete: {counted(n_rows, 'row')}{of_all} {is_here}."


def row_records(results: Results) -> Iterator[dict[str, Any]]:
    """One record per row, ready for JSON."""
    # Whole columns at a time: runs write millions of rows.
    columns: dict[str, Any] = {
        name: _plain_column(getattr(results, name))
        for name in ("row", "label", "verdict", "exact", "attained", "reason", *_BOUNDS)
    }
    has_witness = np.asarray(~np.isnan(results.witness).all(axis=1))
    witnesses = iter(_plain_column(results.witness[has_witness]))
    columns["witness"] = [next(witnesses) if has_one else None for has_one in has_witness]
    for name in ("values", "way", *_OPTIONAL):
        if getattr(results, name) is not None:
            columns[name] = _plain_column(array_of(getattr(results, name)))
    if "witness_label" in columns:
        # A row without any value that breaks its own claim is written as no witness, so no label.
        labels = zip(has_witness, columns["witness_label"], strict=True)
        columns["witness_label"] = [label if has_one else None for has_one, label in labels]
    # Of the witness as it is shown only what differs from it: mostly nothing, or few features.
    as_shown = results.as_shown
    shown = (as_shown != results.witness) & ~np.isnan(as_shown)
    differs = shown.any(axis=1).tolist()
    counted = {name: _plain_column(values) for name, values in results.statistics.items()}
    names = tuple(columns)
    for i, cells in enumerate(zip(*columns.values(), strict=True)):
        record = {"record": "row"} | dict(zip(names, cells, strict=True))
        record["statistics"] = {name: values[i] for name, values in counted.items()}
        if differs[i]:
            features = np.flatnonzero(shown[i]).tolist()
            record["shown"] = {str(f): float(as_shown[i, f]) for f in features}
        yield record


def _plain_column(values: NDArray[Any]) -> list[Any]:
    is_finite = values.dtype.kind == "f" and bool(np.isfinite(values).all())
    if values.dtype.kind in "biuUS" or is_finite:
        return list(values.tolist())
    return [_plain_column(v) if values.ndim == 2 else plain(v) for v in values]


def number(value: Any) -> float:
    """A float as `plain` wrote it."""
    return math.nan if value is None else float(value)


def check_ending(path: str | PathLike[str], *, or_table: bool = False) -> None:
    """Refuse a file whose ending promises another kind than a run file, or also than a table."""
    ending = Path(path).suffix.lower()
    if ending in (*RUN_ENDINGS, *(TABLE_ENDINGS if or_table else ())):
        return
    kinds = "JSON lines (.jsonl) or Parquet (.parquet)"
    if or_table:
        kinds = "JSON lines (.jsonl), Parquet (.parquet), CSV (.csv) or a spreadsheet (.xlsx)"
    raise InvalidInput(f"Answers are saved as {kinds}, by the ending of the file. Got '{path}'.")


def save_results(results: Results, path: str | PathLike[str]) -> None:
    """Write a complete run file; an existing one is replaced in one step."""
    encoder = msgspec.json.Encoder()
    header = results.header | {"n_rows": len(results)}
    if Path(path).suffix.lower() == ".parquet":
        from treeproof.results.run_parquet import save_parquet

        save_parquet(header, row_records(results), Path(path))
        return
    with replacing(path) as file:
        for record in itertools.chain([header], row_records(results)):
            file.write(encoder.encode(record) + b"\n")


def load_results(path: str | PathLike[str]) -> Results:
    """Read a run file back.

    Parameters
    ----------
    path : str or path
        A file that `Results.save` or a run wrote, JSON lines or Parquet. Of a run that was killed
        while it wrote, everything but a torn last line is read.

    Returns
    -------
    Results
        The same answers, bit for bit. Those of a run come in the order of the rows, whatever the
        order in which they were found.
    """
    source = Path(path)
    if is_parquet(source):
        from treeproof.results.run_parquet import load_parquet

        return load_parquet(source)
    header: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for record, offset in read_records(source):
        if record["record"] == "row":
            rows.append(record)
        elif offset > 0:
            raise InvalidInput(
                f"The run file {path} must have one header. Got another at {offset}."
            )
        else:
            header = record
    return results_of(header, rows, path)


def is_parquet(path: Path) -> bool:
    """Whether a run file is a Parquet file, by its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: str | PathLike[str], error: OSError) -> InvalidInput:
    """Return the error for a run file that the system does not let us read."""
    return InvalidInput(f"The run file {path} must be readable. Got: {error}.")


def read_records(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Every record of a run file with its place in bytes; a torn last line is left out."""
    try:
        with path.open("rb") as file:
            offset = 0
            for line_number, line in enumerate(file, start=1):
                record = _decoded(line, line_number, path)
                if record is not None:
                    yield record, offset
                offset += len(line)
    except OSError as error:
        raise unreadable(path, error) from error


def _decoded(line: bytes, line_number: int, path: Path) -> dict[str, Any] | None:
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # Only a line that was being written when everything ended has no end of line.
        if line_number > 1 and not line.endswith(b"\n"):
            return None
        raise InvalidInput(
            f"Line {line_number} of {path} must be a JSON record. Got: {error}."
        ) from error
    if not isinstance(record, dict) or record.get("record") not in ("header", "row"):
        raise InvalidInput(f"Line {line_number} of {path} must be a header or a row record.")
    return record


def results_of(header: dict[str, Any], rows: list[dict[str, Any]], path: Any) -> Results:
    """Answers of decoded records, in the order of the rows where the run says it had none."""
    check_header(header, path)
    check_count(header, len(rows), path)
    try:
        msgspec.convert(header, _Header)
        msgspec.convert(rows, list[_Row])
        if header.get("order") == AS_FINISHED:
            rows = sorted(rows, key=operator.itemgetter("row"))
        results = table_of(header, rows)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"A record of {path} is incomplete: {error}.") from error
    check_bounds(results, path)
    return results


def check_bounds(results: Results, name: Any) -> None:
    """Refuse answers without bounds, but for boxes, and rows that occur twice."""
    named = np.column_stack([results.row, np.ones_like(results.row)])
    if results.way is not None:
        named[:, 1] = results.way
    _, first, counts = np.unique(named, axis=0, return_index=True, return_counts=True)
    if np.any(counts > 1):
        row = results.row[first[counts > 1][0]]
        raise InvalidInput(f"Every row of {name} must be there once. Got row {row} again.")
    perturbation = results.header.get("question", {}).get("perturbation") or {}
    undefined = np.isnan(results.lower) | np.isnan(results.upper)
    if undefined.any() and perturbation.get("name") != "Box":
        row = results.row[np.flatnonzero(undefined)[0]]
        raise InvalidInput(
            f"Every row of {name} must have bounds, unless boxes were asked about. Got none for"
            f" row {row}."
        )


def check_header(header: dict[str, Any], path: Any) -> None:
    """Refuse what is no header of this format."""
    if not header:
        raise InvalidInput(f"The run file {path} must start with a header record. Got none.")
    if header.get("format") != FORMAT:
        raise InvalidInput(
            f"The run file {path} must have format {FORMAT}. Got {header.get('format')!r}."
            " It was written by another version of treeproof."
        )


def check_count(header: dict[str, Any], n_found: int, path: Any) -> None:
    """Refuse a complete run file that has lost rows, or got more."""
    n_rows = header.get("n_rows")
    if header.get("state") != UNDERWAY and isinstance(n_rows, int) and n_found != n_rows:
        lost = "lines are missing. A run answers them again with --resume."
        raise InvalidInput(
            f"The run file {path} must have the {n_rows} rows that its header counts."
            f" Got {n_found}: {lost if n_found < n_rows else 'lines were added.'}"
        )


def table_of(header: dict[str, Any], rows: list[dict[str, Any]]) -> Results:
    """Answers of row records that are not checked here."""
    n_features = int(header["model"]["n_features"])
    names = dict.fromkeys(name for record in rows for name in record["statistics"])
    witness = _matrix(rows, "witness", n_features)
    columns: dict[str, Any] = {name: _numbers(rows, name) for name in _BOUNDS}
    if rows and _all_have(rows, "way"):
        columns["way"] = np.array([record["way"] for record in rows], dtype=np.int64)
    for name in filter(partial(_all_have, rows), _OPTIONAL):
        read = _numbers if name in _OPTIONAL_NUMBERS else _objects
        columns[name] = read(rows, name)
    return Results(
        row=np.array([record["row"] for record in rows], dtype=np.int64),
        label=_objects(rows, "label"),
        verdict=_objects(rows, "verdict"),
        exact=np.array([record["exact"] for record in rows], dtype=bool),
        attained=np.array([record["attained"] for record in rows], dtype=bool),
        witness=witness,
        shown=_shown(rows, witness),
        reason=_objects(rows, "reason"),
        statistics={name: _counted(rows, name) for name in names},
        header=header,
        values=_matrix(rows, "values", n_features) if _all_have(rows, "values") else None,
        **columns,
    )


def as_shown(witness: Any, record: dict[str, Any]) -> Any:
    """Replace in the witness of a record, in place, what is shown shorter."""
    for feature, value in (record.get("shown") or {}).items():
        witness[int(feature)] = value
    return witness


def _shown(rows: list[dict[str, Any]], witness: FloatArray) -> FloatArray:
    shown = witness.copy()
    for values, record in zip(shown, rows, strict=True):
        as_shown(values, record)
    return shown


def _counted(rows: list[dict[str, Any]], name: str) -> NDArray[Any]:
    values = [record["statistics"].get(name) for record in rows]
    # A row that failed has no counts; NaN stands for them.
    return np.array([math.nan if value is None else value for value in values])


def _all_have(rows: list[dict[str, Any]], name: str) -> bool:
    return all(name in record for record in rows)


def _matrix(rows: list[dict[str, Any]], name: str, n_features: int) -> FloatArray:
    matrix = np.full((len(rows), n_features), np.nan)
    for i, record in enumerate(rows):
        if record[name] is not None:
            values = [number(value) for value in record[name]]
            if len(values) != n_features:
                raise ValueError(f"{len(values)} numbers in '{name}', for {n_features} features")
            matrix[i] = values
    return matrix


def _numbers(rows: list[dict[str, Any]], name: str) -> FloatArray:
    return np.array([number(record[name]) for record in rows])


def _objects(rows: list[dict[str, Any]], name: str) -> NDArray[Any]:
    return objects([record[name] for record in rows])
