"""Run files as Parquet: one line per row, the header in the file's metadata.

Written in one step from the JSON lines of a finished run, since a Parquet file cannot grow.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from treeproof.errors import InvalidInput, require_backend
from treeproof.files import replacing
from treeproof.query.description import plain
from treeproof.results.results import Results
from treeproof.results.run_file import number, results_of

_HEADER_KEY = b"treeproof"
_ROWS_PER_GROUP = 4096
_FLOATS = ("lower", "upper", "witness_distance", "seconds")
_LISTS = ("values", "witness")
_TEXTS = ("verdict", "reason", "key")
_FLAGS = ("exact", "attained")
_ANY = (
    *("label", "predicted", "witness_label", "statistics", "evidence", "id", "eps", "shown"),
    *("way", "cost", "probability", "witness_probability"),
)
"""Values of any kind, as JSON text: a label may be a number, a text or a truth value."""


def _schema(header: dict[str, Any]) -> Any:
    import pyarrow as pa

    fields = [("row", pa.int64())]
    fields += [(name, pa.string()) for name in _TEXTS + _ANY]
    fields += [(name, pa.float64()) for name in _FLOATS]
    fields += [(name, pa.bool_()) for name in _FLAGS]
    fields += [(name, pa.list_(pa.float64())) for name in _LISTS]
    return pa.schema(fields, metadata={_HEADER_KEY: msgspec.json.encode(header)})


def save_parquet(header: dict[str, Any], records: Iterable[dict[str, Any]], path: Path) -> None:
    """Write a Parquet run file in one step; only a few thousand records are held at a time."""
    require_backend("pyarrow", "parquet")
    import pyarrow as pa
    from pyarrow import parquet

    schema = _schema(header)
    with replacing(path) as file, parquet.ParquetWriter(file, schema) as writer:
        block: list[dict[str, Any]] = []
        for record in records:
            block.append(_flat(record))
            if len(block) == _ROWS_PER_GROUP:
                writer.write_table(pa.Table.from_pylist(block, schema=schema))
                block = []
        if block:
            writer.write_table(pa.Table.from_pylist(block, schema=schema))


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    line = {name: record.get(name) for name in ("row", *_TEXTS, *_FLAGS)}
    line |= {name: number(record[name]) for name in _FLOATS}
    for name in _LISTS:
        values = record.get(name)
        line[name] = None if values is None else [number(value) for value in values]
    return line | {
        name: msgspec.json.encode(record[name]).decode() for name in _ANY if name in record
    }


def parquet_records(path: Path) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """Header and row records of a Parquet run file, as JSON lines have them."""
    require_backend("pyarrow", "parquet")
    import pyarrow
    from pyarrow import parquet

    try:
        metadata = parquet.read_schema(path).metadata or {}
        header: dict[str, Any] = msgspec.json.decode(metadata[_HEADER_KEY])
    except (KeyError, OSError, pyarrow.ArrowException, msgspec.DecodeError) as error:
        raise InvalidInput(
            f"The run file {path} must be a Parquet file that treeproof wrote. Got another one."
        ) from error

    def records() -> Iterator[dict[str, Any]]:
        try:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(_ROWS_PER_GROUP):
                    yield from map(_record, batch.to_pylist())
        except (OSError, pyarrow.ArrowException, msgspec.DecodeError, KeyError) as error:
            raise InvalidInput(f"The run file {path} is damaged: {error}.") from error

    return header, records()


def _record(line: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {"record": "row", "row": line["row"]}
    record |= {name: line[name] for name in (*_TEXTS, *_FLAGS) if line[name] is not None}
    record |= {name: plain(line[name]) for name in _FLOATS}
    for name in _LISTS:
        values = line[name]
        if values is not None or name == "witness":
            record[name] = None if values is None else [plain(value) for value in values]
    for name in _ANY:
        if line[name] is not None:
            record[name] = msgspec.json.decode(line[name])
    return record


def load_parquet(path: Path) -> Results:
    """Read a Parquet run file whole."""
    header, records = parquet_records(path)
    return results_of(header, list(records), path)
