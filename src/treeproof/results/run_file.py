"""Run files: JSON lines, one header record and one record per row.

Numbers are written so that reading gives the same bits. JSON has no infinity: it is written as the
text "inf"; NaN is written as null. The format is described in docs/reference/run-files.md.
"""

import math
import platform
from collections.abc import Iterator
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from treeproof.errors import InvalidInput
from treeproof.results.results import Results

FORMAT = 1
"""Rises when a key changes its meaning or goes away."""

_BOUNDS = ("lower", "upper", "witness_distance", "seconds")


def header_record(model: dict[str, Any], question: dict[str, Any]) -> dict[str, Any]:
    """What a run is about.

    Parameters
    ----------
    model : dict
        Identity of the model: fingerprint, library, classes, features.
    question : dict
        What was asked, in words and numbers.
    """
    return {
        "record": "header",
        "format": FORMAT,
        "model": model,
        "question": question,
        "versions": {
            "treeproof": _installed("treeproof"),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": _installed("numba"),
            "machine": platform.machine(),
        },
    }


def _installed(package: str) -> str:
    # Asked of the installation, so that reading results never imports a compiler.
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def row_records(results: Results) -> Iterator[dict[str, Any]]:
    """One record per row, ready for JSON."""
    for i in range(len(results)):
        record: dict[str, Any] = {
            "record": "row",
            "row": int(results.row[i]),
            "label": plain(results.label[i]),
            "verdict": str(results.verdict[i]),
            "exact": bool(results.exact[i]),
            "attained": bool(results.attained[i]),
            "witness": witness_values(results.witness[i]),
            "reason": str(results.reason[i]),
        }
        record |= {name: plain(getattr(results, name)[i]) for name in _BOUNDS}
        record["statistics"] = {k: plain(v[i]) for k, v in results.statistics.items()}
        yield record


def witness_values(witness: np.ndarray) -> list[Any] | None:
    """A witness as a list; None where there is none (all entries NaN)."""
    if np.isnan(witness).all():
        return None
    return [plain(value) for value in witness]


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def number(value: Any) -> float:
    """A float as `plain` wrote it."""
    return math.nan if value is None else float(value)


def save_results(results: Results, path: str | PathLike[str]) -> None:
    """Write a complete run file."""
    encoder = msgspec.json.Encoder()
    with Path(path).open("wb") as file:
        for record in [results.header, *row_records(results)]:
            file.write(encoder.encode(record) + b"\n")


def load_results(path: str | PathLike[str]) -> Results:
    """Read a run file back.

    Parameters
    ----------
    path : str or path
        A file that `Results.save` wrote.

    Returns
    -------
    Results
        The same answers, bit for bit.
    """
    header: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise InvalidInput(f"The run file {path} must be readable. Got: {error}.") from error
    for line_number, line in enumerate(lines, start=1):
        try:
            record = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise InvalidInput(
                f"Line {line_number} of {path} must be a JSON record. Got: {error}."
            ) from error
        if not isinstance(record, dict) or record.get("record") not in ("header", "row"):
            raise InvalidInput(f"Line {line_number} of {path} must be a header or a row record.")
        if record["record"] == "row":
            rows.append(record)
        else:
            header = record
    _check_header(header, path)
    try:
        return _results_of(header, rows)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInput(f"A row record of {path} is incomplete: {error}.") from error


def _check_header(header: dict[str, Any], path: Any) -> None:
    if not header:
        raise InvalidInput(f"The run file {path} must start with a header record. Got none.")
    if header.get("format") != FORMAT:
        raise InvalidInput(
            f"The run file {path} must have format {FORMAT}. Got {header.get('format')!r}."
            " It was written by another version of treeproof."
        )


def _results_of(header: dict[str, Any], rows: list[dict[str, Any]]) -> Results:
    n_features = int(header["model"]["n_features"])
    witness = np.full((len(rows), n_features), np.nan)
    for i, record in enumerate(rows):
        if record["witness"] is not None:
            witness[i] = [number(value) for value in record["witness"]]
    label = np.empty(len(rows), dtype=object)
    label[:] = [record["label"] for record in rows]
    names = rows[0]["statistics"] if rows else {}
    return Results(
        row=np.array([record["row"] for record in rows], dtype=np.int64),
        label=label,
        verdict=np.array([record["verdict"] for record in rows], dtype=np.str_),
        exact=np.array([record["exact"] for record in rows], dtype=bool),
        attained=np.array([record["attained"] for record in rows], dtype=bool),
        witness=witness,
        reason=np.array([record["reason"] for record in rows], dtype=np.str_),
        statistics={k: np.array([record["statistics"][k] for record in rows]) for k in names},
        header=header,
        **{name: np.array([number(record[name]) for record in rows]) for name in _BOUNDS},
    )
