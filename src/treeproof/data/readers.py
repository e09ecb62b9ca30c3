"""Rows and labels from files of any size, chunk by chunk.

CSV, JSON lines, Parquet, Arrow, NPY, NPZ and LIBSVM files are read so that only one chunk is in
memory at a time; text may be compressed with gzip, or come from standard input.
Values keep the form of the file until a model is known: only the model can say whether a cell is a
number or a category, and which class a label means.
"""

import atexit
import csv
import gzip
import io
import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import msgspec
import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, WrongRow, listed, nearest, require_backend
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.model.rows import TextTable, column_order, numeric_rows, objects

FileKind = Literal["csv", "jsonl", "parquet", "arrow", "npy", "npz", "libsvm"]

STANDARD_INPUT = "-"

_SUFFIXES: dict[str, FileKind] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".npy": "npy",
    ".npz": "npz",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
}
_MAGIC: dict[bytes, FileKind] = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
}
_TEXT_KINDS: tuple[FileKind, ...] = ("csv", "jsonl", "libsvm")
_GZIP = b"\x1f\x8b"
_SHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
_LIBSVM_LINE = re.compile(rb"[^\s,:]+(?:[ \t]+(?:qid|\d+):[^\s:]+)+\s*(?:#|$)")
_ROWS = re.compile(r"(\d*):(\d*)")

CELLS_PER_CHUNK = 2**19
"""Cells in one chunk: a few megabytes, a few dozen as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a file does not say about itself."""

    label: str | None = None
    """Column of the labels, or their array in an NPZ file (by default ``y``)."""
    id: str | None = None
    """Column, or array, of what the user knows each row by; no feature either."""
    eps: str | None = None
    """Column, or array, of how far each row may move; no feature either."""
    rows: slice = field(default_factory=lambda: slice(0, None))
    """Range of rows, as `parse_rows` gives it."""
    n_features: int | None = None
    """Columns of a LIBSVM file; by default up to the largest index, which takes a pass."""
    first_index: Literal[0, 1] = 1
    absent: Literal["zero", "missing"] = "zero"
    """What an entry that a LIBSVM line leaves out stands for."""

    @property
    def apart(self) -> dict[str, str]:
        """Columns that are no features, by what they are of a chunk."""
        named = {"labels": self.label, "ids": self.id, "eps": self.eps}
        return {part: name for part, name in named.items() if name is not None}

    @property
    def first_row(self) -> int:
        """Number of the first row to read."""
        return int(self.rows.start or 0)

    def n_wanted(self, n_rows: int) -> int:
        """How many of a file's rows are in the range."""
        return len(range(n_rows)[self.rows])


def chunk_size(n_columns: int) -> int:
    """Rows per chunk of a file with so many columns."""
    return max(1, CELLS_PER_CHUNK // max(n_columns, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some consecutive rows of a file, with values and labels in the form of the file.

    Values are an array, whose column names are `columns`, or a table that carries its own.
    """

    first_row: int
    values: Any
    columns: tuple[str, ...] = ()
    labels: Any = None
    ids: Any = None
    eps: Any = None

    def __len__(self) -> int:
        if isinstance(self.values, TextTable):
            return len(next(iter(self.values.columns.values()), []))
        return len(self.values)

    def matrix(self, ensemble: Ensemble, *, by_name: bool = False) -> FloatArray:
        """Rows as the model takes them: float64 (n_rows, n_features).

        by_name : columns may have another order than the features, whatever the model's library
        would make of it
        """
        values = self.values
        if self.columns and isinstance(values, np.ndarray):
            position = {name: number for number, name in enumerate(self.columns)}
            order = column_order(ensemble, list(self.columns), by_name=by_name)
            values = values[:, [position[name] for name in order]]
        elif by_name and isinstance(values, TextTable):
            order = column_order(ensemble, list(values.columns), by_name=True)
            values = replace(values, columns={name: values.columns[name] for name in order})
        elif by_name and hasattr(values, "column_names"):  # a table of Arrow
            order = column_order(ensemble, values.column_names, by_name=True)
            values = values.select(order)
        try:
            return numeric_rows(ensemble, values)
        except WrongRow as error:
            raise error.counted_from(self.first_row) from None


class DataFile:
    """A data file that is known to exist and to be readable."""

    columns: tuple[str, ...] = ()
    """Names of the feature columns, or empty where there are none."""
    n_rows: int | None = None
    """Rows in the chosen range, where that is known without reading everything."""
    has_labels = False

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._options = options

    def _take_apart(self, columns: list[str]) -> None:
        """Tell features from labels and identifiers by the names of all columns."""
        if len(set(columns)) != len(columns):
            raise _repeated(columns, f"Column names in '{self.path}'")
        apart = self._options.apart
        for name in apart.values():
            require_column(name, columns, self.path)
        self.has_labels = "labels" in apart
        self.columns = tuple(name for name in columns if name not in apart.values())

    def chunks(self) -> Iterator[Chunk]:
        """Read the chosen rows from the beginning; may be called again."""
        raise NotImplementedError


def file_kind(path: Path) -> FileKind:
    """Kind of a data file, by its ending, otherwise by its content."""
    head, is_packed = _head(path)
    if not head:
        raise InvalidInput(f"The data file '{path}' is empty.")
    suffix = (Path(path.stem) if is_packed else path).suffix.lower()
    if suffix in _SHEETS:
        raise InvalidInput(
            f"A spreadsheet such as '{path}' must be saved as CSV or Parquet first: in the program"
            f" that made it, or with pandas.read_excel({path.name!r}).to_parquet('rows.parquet')."
        )
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
    if is_packed and kind is not None:
        raise InvalidInput(
            f"Only text may be compressed with gzip. Got {kind} in '{path}'. Decompress it first:"
            f" gunzip '{path}'."
        )
    if kind is not None:
        return kind
    if head.startswith(b"FEA1"):
        raise InvalidInput(
            f"The data file '{path}' is of version 1 of Feather, which pyarrow no longer reads."
            " Save it again with pandas.DataFrame.to_feather of today."
        )
    kind = _SUFFIXES.get(suffix)
    if kind is not None and kind not in _TEXT_KINDS:
        raise InvalidInput(
            f"The data file '{path}' is not of the kind that its ending says, or is damaged."
        )
    if kind is not None:
        return kind
    lines = [line for line in head.splitlines() if line.strip() and not line.startswith(b"#")]
    if lines and lines[0].lstrip().startswith(b"{"):
        return "jsonl"
    return "libsvm" if lines and _LIBSVM_LINE.match(lines[0]) else "csv"


def _head(path: Path) -> tuple[bytes, bool]:
    """First bytes of a file, unpacked; and whether it is compressed."""
    try:
        with path.open("rb") as stream:
            head = stream.read(65536)
        if not head.startswith(_GZIP):
            return head, False
        with gzip.open(path) as packed:
            return packed.read(65536), True
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from error


@cache
def standard_input() -> Path:
    """All of standard input as a file, since rows are read more than once; gone at the end."""
    if sys.stdin is None:
        raise InvalidInput("Standard input must hold the rows. Got none: it is closed.")
    folder = Path(tempfile.mkdtemp(prefix="treeproof-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "standard-input"  # as messages call it
    with _readable(path), path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def parse_rows(text: str) -> slice:
    """Read a range such as ``0:500``, ``500:`` or ``:20``; the last row is excluded."""
    found = _ROWS.fullmatch(text.strip())
    if found is None:
        raise InvalidInput(f"Rows must be given as first:last, for example 0:500. Got {text!r}.")
    first, last = (int(part) if part else None for part in found.groups())
    if last is not None and last < (first or 0):
        raise InvalidInput(f"The last row must not come before the first. Got {text!r}.")
    return slice(first or 0, last)


def unreadable(path: Path, error: Exception) -> InvalidInput:
    """Return the error for a data file that the system or a library cannot read."""
    reason = getattr(error, "strerror", None) or str(error).split("\n", 1)[0]
    return InvalidInput(f"The data file '{path}' cannot be read: {reason.rstrip('.')}.")


def require_column(name: str, columns: list[str], path: Path) -> None:
    """Raise, with the nearest name, unless a file has a column or an array."""
    if name in columns:
        return
    raise InvalidInput(
        f"The data file '{path}' has no {name!r}.{nearest(name, columns)} It has {listed(columns)}."
    )


def _repeated(names: list[str], what: str) -> InvalidInput:
    """Return the error for names of which some occur twice."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    return InvalidInput(f"{what} must be unique. Got more than once: {listed(twice)}.")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what goes wrong while a file is read into a sentence about it."""
    try:
        yield
    except InvalidInput:
        raise
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"The data file '{path}' must be UTF-8 text: {error}. Save it with that encoding."
        ) from error
    except (OSError, ValueError, EOFError, csv.Error, zipfile.BadZipFile, zlib.error) as error:
        raise unreadable(path, error) from error


class TextFile(DataFile):
    """One line per row."""

    _n_columns: int

    @contextmanager
    def _lines(self) -> Iterator[Iterator[tuple[int, list[str]]]]:
        """Line number and cells of each line; none where it is no row."""
        with (
            _readable(self.path),
            self._binary() as content,
            # A byte order mark is no part of the first column's name.
            io.TextIOWrapper(content, encoding="utf-8-sig", newline="") as stream,
        ):
            yield self._cells(stream)

    def _binary(self) -> IO[bytes]:
        with self.path.open("rb") as file:
            is_packed = file.read(2) == _GZIP
        # Buffered by far more than gzip does, which decompresses a little at a time.
        return io.BufferedReader(gzip.open(self.path)) if is_packed else self.path.open("rb")

    def _cells(self, stream: IO[str]) -> Iterator[tuple[int, Any]]:
        raise NotImplementedError

    def _chunk(self, first_row: int, lines: list[tuple[int, Any]]) -> Chunk:
        raise NotImplementedError

    def chunks(self) -> Iterator[Chunk]:
        """Read the chosen rows from the beginning."""
        first_row = self._options.first_row
        with self._lines() as lines:
            rows = (line for line in lines if line[1])
            wanted = islice(rows, first_row, self._options.rows.stop)
            while part := list(islice(wanted, chunk_size(self._n_columns))):
                yield self._chunk(first_row, part)
                first_row += len(part)


class CsvFile(TextFile):
    """A table as text, with or without a line of names before the rows."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        super().__init__(path, options)
        self._delimiter, self._has_header = "", False
        with self._lines() as lines:
            _, first = next(lines, (0, []))
        if not first:
            raise InvalidInput(f"The first line of '{path}' must hold cells. Got an empty line.")
        # Frames without names are written with the header 0,1,2,...: numbers, but no row.
        numbers = [str(number) for number in range(len(first))]
        self._has_header = first == numbers or not all(map(_is_number, first))
        self._n_columns = len(first)
        self._all_columns = [name.strip() for name in first] if self._has_header else numbers
        self._take_apart(self._all_columns)

    def _cells(self, stream: IO[str]) -> Iterator[tuple[int, list[str]]]:
        if not self._delimiter:
            self._delimiter = max(",;\t", key=stream.readline().count)
            stream.seek(0)
        reader = csv.reader(stream, delimiter=self._delimiter)
        if self._has_header:
            next(reader, None)
        return ((reader.line_num, cells) for cells in reader)

    def _chunk(self, first_row: int, lines: list[tuple[int, list[str]]]) -> Chunk:
        for number, (line, cells) in enumerate(lines):
            if len(cells) != self._n_columns:
                raise InvalidInput(
                    f"Every row of '{self.path}' must have {self._n_columns} cells. Got"
                    f" {len(cells)} in row {first_row + number} (line {line})."
                )
        cells_by_column = map(list, zip(*(cells for _, cells in lines), strict=True))
        columns = dict(zip(self._all_columns, cells_by_column, strict=True))
        apart: dict[str, Any] = {
            part: [cell.strip() for cell in columns[name]]
            for part, name in self._options.apart.items()
        }
        features = TextTable({name: columns[name] for name in self.columns})
        return Chunk(first_row=first_row, values=features, **apart)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


class JsonLinesFile(TextFile):
    """A JSON object in each line, which names its columns; null is missing."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        super().__init__(path, options)
        with self._lines() as lines:
            _, first = next(((line, row) for line, row in lines if row), (0, {}))
        if not first:
            raise InvalidInput(f"The first line of '{path}' must be a JSON object. Got none.")
        self._all_columns = list(first)
        self._n_columns = len(first)
        self._take_apart(self._all_columns)

    def _cells(self, stream: IO[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in enumerate(stream, start=1):
            yield number, self._object(number, line) if line.strip() else {}

    def _object(self, number: int, line: str) -> dict[str, Any]:
        try:
            row = msgspec.json.decode(line, type=dict[str, bool | float | int | str | None])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidInput(
                f"Line {number} of '{self.path}' must be a JSON object of numbers, texts, truth"
                f" values and null: {error}."
            ) from error
        if line.count(":") > len(row):  # perhaps in a text, perhaps of a key that comes twice
            keys = json.loads(line, object_pairs_hook=lambda pairs: [key for key, _ in pairs])
            if len(keys) > len(row):
                raise _repeated(keys, f"Keys in line {number} of '{self.path}'")
        return row

    def _chunk(self, first_row: int, lines: list[tuple[int, dict[str, Any]]]) -> Chunk:
        known = set(self._all_columns)
        for line, row in lines:
            if row.keys() != known:
                other = sorted(row.keys() ^ known)[0]
                raise InvalidInput(
                    f"Every line of '{self.path}' must have the keys of the first. Line {line}"
                    f" {'has another' if other in row else 'lacks one'}: {other!r}."
                )
        columns = {name: [row[name] for _, row in lines] for name in self._all_columns}
        apart: dict[str, Any] = {
            part: objects(columns[name]) for part, name in self._options.apart.items()
        }
        features = TextTable({name: columns[name] for name in self.columns}, has_types=True)
        return Chunk(first_row=first_row, values=features, **apart)


class LibsvmFile(TextFile):
    """Lines of ``label index:value index:value ...``; what is left out is zero or missing."""

    has_labels = True

    def __init__(self, path: Path, options: ReadOptions) -> None:
        super().__init__(path, options)
        self._n_columns = options.n_features or self._largest_index() + 1

    def _cells(self, stream: IO[str]) -> Iterator[tuple[int, list[str]]]:
        return enumerate((line.partition("#")[0].split() for line in stream), start=1)

    def _chunk(self, first_row: int, lines: list[tuple[int, list[str]]]) -> Chunk:
        filling = 0.0 if self._options.absent == "zero" else np.nan
        values = np.full((len(lines), self._n_columns), filling)
        for row, (line, words) in enumerate(lines):
            for column, value in self._entries(line, words):
                if column >= self._n_columns:
                    raise InvalidInput(
                        f"Line {line} of '{self.path}' must have at most {self._n_columns}"
                        f" columns, the first of which is {self._options.first_index}."
                        f" Got column {column + self._options.first_index}."
                    )
                values[row, column] = value
        labels = [words[0] for _, words in lines]
        return Chunk(first_row=first_row, values=values, labels=labels)

    def _entries(self, line: int, words: list[str]) -> Iterator[tuple[int, float]]:
        first_index = self._options.first_index
        for word in words[1:]:
            index, colon, value = word.partition(":")
            if index == "qid":
                continue
            try:
                column, number = int(index) - first_index, float(value)
            except ValueError:
                column, number = -2, 0.0
            if column == -1:
                raise InvalidInput(
                    f"Columns in '{self.path}' must be counted from 1 unless told otherwise. Got a"
                    f" column 0 in line {line}. Say --first-column 0 (in Python first_index=0)."
                )
            if column < 0 or not colon:
                raise InvalidInput(
                    f"Line {line} of '{self.path}' must have the form 'label index:value ...'."
                    f" Got {word!r}."
                )
            yield column, number

    def _largest_index(self) -> int:
        with self._lines() as lines:
            entries = (entry for line, words in lines for entry in self._entries(line, words))
            return max((column for column, _ in entries), default=-1)


class ArrayFile(DataFile):
    """A matrix of known size."""

    n_rows: int
    _shape: tuple[int, ...]

    def _set_shape(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        if len(shape) != 2 or dtype.kind not in "biuf":
            raise InvalidInput(
                f"The rows in '{self.path}' must be a matrix of numbers. Got {dtype} with shape"
                f" {shape}."
            )
        self._shape, self.n_rows = shape, self._options.n_wanted(shape[0])

    def _parts(self) -> Iterator[slice]:
        """Rows of each chunk."""
        first, size = self._options.first_row, chunk_size(self._shape[1])
        for start in range(first, first + self.n_rows, size):
            yield slice(start, min(start + size, first + self.n_rows))


class NpyFile(ArrayFile):
    """One matrix, mapped into memory."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        super().__init__(path, options)
        with _readable(path):
            self._array = np.load(path, mmap_mode="r", allow_pickle=False)
        self._set_shape(self._array.dtype, self._array.shape)

    def chunks(self) -> Iterator[Chunk]:
        """Read the chosen rows from the beginning."""
        for part in self._parts():
            yield Chunk(first_row=part.start, values=np.array(self._array[part]))


class NpzFile(ArrayFile):
    """Arrays ``X``, optionally ``y`` and ``feature_names``; only the labels are read whole."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        super().__init__(path, options)
        with _readable(path), zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            for name in ("X", *options.apart.values()):
                require_column(name, names, path)
            with archive.open("X.npy") as stream:
                shape, self._fortran, self._dtype = _npy_header(stream)
        self._set_shape(self._dtype, shape)
        label = options.label or ("y" if "y" in names else None)
        self._apart = {
            part: self._read_labels(name)
            for part, name in (options.apart | ({} if label is None else {"labels": label})).items()
        }
        self.has_labels = label is not None
        self.columns = self._read_names() if "feature_names" in names else ()

    def _read(self, name: str) -> NDArray[Any]:
        with _readable(self.path), np.load(self.path, allow_pickle=False) as arrays:
            array: NDArray[Any] = arrays[name]
        return array

    def _read_labels(self, name: str) -> NDArray[Any]:
        labels = self._read(name)
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.shape != self._shape[:1]:
            raise InvalidInput(
                f"Array {name!r} of '{self.path}' must have one entry per row ({self._shape[0]})."
                f" Got shape {labels.shape}."
            )
        return labels

    def _read_names(self) -> tuple[str, ...]:
        names = self._read("feature_names")
        if names.shape != self._shape[1:] or names.dtype.kind != "U":
            raise InvalidInput(
                f"Array 'feature_names' of '{self.path}' must have one string per column"
                f" ({self._shape[1]}). Got {names.dtype} with shape {names.shape}."
            )
        if len(set(names.tolist())) != len(names):
            raise _repeated(names.tolist(), f"Names in 'feature_names' of '{self.path}'")
        return tuple(names.tolist())

    def chunks(self) -> Iterator[Chunk]:
        """Read the chosen rows from the beginning."""
        # Columns of a Fortran array lie one after the other: such rows cannot be streamed.
        whole = self._read("X") if self._fortran else None
        blocks = self._streamed() if whole is None else (whole[part] for part in self._parts())
        for part, values in zip(self._parts(), blocks, strict=True):
            apart: dict[str, Any] = {name: array[part] for name, array in self._apart.items()}
            yield Chunk(first_row=part.start, values=values, columns=self.columns, **apart)

    def _streamed(self) -> Iterator[NDArray[Any]]:
        row_bytes = self._shape[1] * self._dtype.itemsize
        with (
            _readable(self.path),
            zipfile.ZipFile(self.path) as archive,
            archive.open("X.npy") as stream,
        ):
            _npy_header(stream)
            stream.seek(self._options.first_row * row_bytes, os.SEEK_CUR)
            for part in self._parts():
                n_rows = part.stop - part.start
                content = stream.read(n_rows * row_bytes)
                if len(content) != n_rows * row_bytes:
                    raise InvalidInput(f"The data file '{self.path}' is cut off.")
                yield np.frombuffer(content, self._dtype).reshape(n_rows, self._shape[1])


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy_format.read_magic(stream)
    if version == (1, 0):
        return npy_format.read_array_header_1_0(stream)
    return npy_format.read_array_header_2_0(stream)


class ArrowTableFile(DataFile):
    """A table that pyarrow reads batch by batch."""

    n_rows: int
    _read_columns: list[str]

    def __init__(self, path: Path, options: ReadOptions) -> None:
        require_backend("pyarrow.parquet", "parquet")
        super().__init__(path, options)

    def _set_table(self, names: list[str], n_rows: int) -> None:
        # pandas stores an unnamed index as a column of this name; it is no feature.
        kept = [name for name in names if not name.startswith("__index_level_")]
        self._take_apart(kept)
        self._read_columns = kept
        self.n_rows = self._options.n_wanted(n_rows)

    def _batches(self, first: int, size: int) -> Iterator[tuple[int, Any]]:
        """Record batches, from the one that holds a row on, with the number of their first row."""
        raise NotImplementedError

    def chunks(self) -> Iterator[Chunk]:
        """Read the chosen rows from the beginning."""
        import pyarrow

        if self.n_rows == 0:
            return
        first, last = self._options.first_row, self._options.first_row + self.n_rows
        for row, batch in self._batches(first, chunk_size(len(self._read_columns))):
            start, stop = max(first, row), min(last, row + batch.num_rows)
            if start < stop:
                table = pyarrow.Table.from_batches([batch.slice(start - row, stop - start)])
                yield self._chunk(start, table)
            if row + batch.num_rows >= last:
                return

    def _chunk(self, first_row: int, table: Any) -> Chunk:
        apart: dict[str, Any] = {
            part: objects(table.column(name).to_pylist())
            for part, name in self._options.apart.items()
        }
        return Chunk(first_row=first_row, values=table.select(list(self.columns)), **apart)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        import pyarrow

        try:
            yield
        except (OSError, pyarrow.ArrowException) as error:
            raise unreadable(self.path, error) from error


class ParquetFile(ArrowTableFile):
    """A table in column groups."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        super().__init__(path, options)
        with self._opened() as file:
            self._set_table(list(file.schema_arrow.names), file.metadata.num_rows)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        from pyarrow import parquet

        with self._reading(), parquet.ParquetFile(self.path) as file:
            yield file

    def _batches(self, first: int, size: int) -> Iterator[tuple[int, Any]]:
        with self._opened() as file:
            groups, row = _groups_from(file.metadata, first)
            for batch in file.iter_batches(size, row_groups=groups, columns=self._read_columns):
                yield row, batch
                row += batch.num_rows


class ArrowFile(ArrowTableFile):
    """Record batches as Arrow has them in memory; version 2 of Feather is the same."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        super().__init__(path, options)
        with self._opened() as file:
            sizes = [file.get_batch(n).num_rows for n in range(file.num_record_batches)]
            self._set_table(list(file.schema.names), sum(sizes))

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        import pyarrow

        with (
            self._reading(),
            pyarrow.memory_map(str(self.path)) as source,
            pyarrow.ipc.open_file(source) as file,
        ):
            yield file

    def _batches(self, first: int, size: int) -> Iterator[tuple[int, Any]]:
        row = 0
        with self._opened() as file:
            for number in range(file.num_record_batches):
                batch = file.get_batch(number)
                if first < row + batch.num_rows:
                    for start in range(0, batch.num_rows, size):
                        part = batch.slice(start, size)
                        yield row + start, part.select(self._read_columns)
                row += batch.num_rows


def _groups_from(metadata: Any, first: int) -> tuple[list[int], int]:
    """Row groups from the one that holds a row on, and the number of their first row."""
    row = 0
    for group in range(metadata.num_row_groups):
        n_rows = metadata.row_group(group).num_rows
        if first < row + n_rows:
            return list(range(group, metadata.num_row_groups)), row
        row += n_rows
    return [], row


_FILES: dict[FileKind, type[DataFile]] = {
    "csv": CsvFile,
    "jsonl": JsonLinesFile,
    "parquet": ParquetFile,
    "arrow": ArrowFile,
    "npy": NpyFile,
    "npz": NpzFile,
    "libsvm": LibsvmFile,
}


def open_data(path: Any, options: ReadOptions | None = None) -> DataFile:
    """Open a data file of any supported kind, known by its ending or else by its first bytes."""
    source = standard_input() if str(path) == STANDARD_INPUT else Path(path)
    options = options or ReadOptions()
    kind = file_kind(source)
    if options.apart and kind in ("npy", "libsvm"):
        what = "A label column" if options.label is not None else "A column of identifiers"
        raise InvalidInput(
            f"{what} can be named for CSV, JSON lines, Parquet, Arrow and NPZ files only. Got"
            f" '{path}'."
        )
    return _FILES[kind](source, options)
