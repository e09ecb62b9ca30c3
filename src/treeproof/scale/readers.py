"""Rows and labels from files of any size, chunk by chunk.

CSV, Parquet, NPY, NPZ and LIBSVM files are read so that only one chunk is in memory at a time.
Values keep the form of the file until a model is known: only the model can say whether a cell is a
number or a category, and which class a label means.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.model.rows import TextTable, column_order, label_numbers, numeric_rows

FileKind = Literal["csv", "parquet", "npy", "npz", "libsvm"]

_SUFFIXES: dict[str, FileKind] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npy": "npy",
    ".npz": "npz",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
}
_MAGIC: dict[bytes, FileKind] = {b"PAR1": "parquet", b"\x93NUMPY": "npy", b"PK\x03\x04": "npz"}
_LIBSVM_LINE = re.compile(rb"[^\s,:]+(?:[ \t]+(?:qid|\d+):[^\s:]+)+\s*(?:#|$)")
_ROWS = re.compile(r"(\d*):(\d*)")

CELLS_PER_CHUNK = 2**19
"""Cells in one chunk unless the caller says otherwise: a few megabytes, a few dozen as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a file does not say about itself.

    Attributes
    ----------
    label : str or None
        Column of the labels (CSV, Parquet), or the array of an NPZ file that holds them (default
        ``y`` where there is one).
    rows : slice
        Which rows to read, without a step; numbers start at 0.
    chunk_rows : int or None
        Rows per chunk; by default as many as keep a chunk small.
    array : str
        Array of an NPZ file that holds the rows.
    header : bool or None
        Whether a CSV file begins with column names; by default found out from its first line.
    delimiter : str or None
        Sign between CSV cells; by default the most frequent of comma, semicolon and tab.
    n_features : int or None
        Columns of a LIBSVM file; by default up to the largest index, which takes a pass of its own.
    first_index : {0, 1}
        Index of the first column in a LIBSVM file.
    absent : {"zero", "missing"}
        What an entry that a LIBSVM line leaves out stands for.
    """

    label: str | None = None
    rows: slice = field(default_factory=lambda: slice(0, None))
    chunk_rows: int | None = None
    array: str = "X"
    header: bool | None = None
    delimiter: str | None = None
    n_features: int | None = None
    first_index: Literal[0, 1] = 1
    absent: Literal["zero", "missing"] = "zero"

    def __post_init__(self) -> None:
        """Check what later code relies on."""
        start, stop = self.rows.start or 0, self.rows.stop
        if start < 0 or (stop is not None and stop < start) or self.rows.step not in (None, 1):
            raise InvalidInput(f"'rows' must be a range that counts up. Got {self.rows}.")
        if self.chunk_rows is not None and self.chunk_rows < 1:
            raise InvalidInput(f"'chunk_rows' must be at least 1. Got {self.chunk_rows}.")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise InvalidInput(f"'delimiter' must be one character. Got {self.delimiter!r}.")

    @property
    def first_row(self) -> int:
        """Number of the first row to read."""
        return int(self.rows.start or 0)

    def chunk_size(self, n_columns: int) -> int:
        """Rows per chunk of a file with so many columns."""
        return self.chunk_rows or max(1, CELLS_PER_CHUNK // max(n_columns, 1))

    def n_wanted(self, n_rows: int) -> int:
        """How many of a file's rows are in the range."""
        stop = n_rows if self.rows.stop is None else min(self.rows.stop, n_rows)
        return max(0, stop - self.first_row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some consecutive rows of a file.

    Attributes
    ----------
    first_row : int
        Number of the first of them in the file, counted from 0.
    values : ndarray, TextTable or data frame
        The rows in the form of the file.
    columns : tuple of str
        Column names of an array, or empty; tables carry their own.
    labels : sequence or None
        One label per row as the file has it, or None.
    """

    first_row: int
    values: Any
    columns: tuple[str, ...] = ()
    labels: Any = None

    def __len__(self) -> int:
        if isinstance(self.values, TextTable):
            return len(next(iter(self.values.columns.values()), []))
        return len(self.values)

    def matrix(self, ensemble: Ensemble) -> FloatArray:
        """Rows as the model takes them: float64 (n_rows, n_features)."""
        values = self.values
        if self.columns and isinstance(values, np.ndarray):
            position = {name: number for number, name in enumerate(self.columns)}
            order = [position[name] for name in column_order(ensemble, list(self.columns))]
            values = values[:, order]
        return numeric_rows(ensemble, values)

    def label_numbers(self, ensemble: Ensemble, n_rows: int) -> NDArray[np.int64] | None:
        """Index into the model's classes of each label, or None where the file has none."""
        if self.labels is None:
            return None
        return label_numbers(ensemble, self.labels, n_rows=n_rows)


class DataFile(Protocol):
    """A data file that is known to exist and to be readable."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the feature columns, or empty where there are none."""

    @property
    def n_rows(self) -> int | None:
        """Rows in the chosen range, where that is known without reading everything."""

    @property
    def has_labels(self) -> bool:
        """Whether chunks carry labels."""

    def chunks(self) -> Iterator[Chunk]:
        """Read the chosen rows from the beginning; may be called again."""


def open_data(path: Any, options: ReadOptions | None = None) -> DataFile:
    """Open a data file of any supported kind.

    Parameters
    ----------
    path : str or path
        A CSV, Parquet, NPY, NPZ or LIBSVM file, known by its ending or else by its first bytes.
    options : ReadOptions, optional
        What the file does not say about itself.

    Returns
    -------
    DataFile
        Gives its rows in chunks.
    """
    from treeproof.scale import readers_binary, readers_text

    source = Path(path)
    options = options or ReadOptions()
    kind = file_kind(source)
    if kind == "csv":
        return readers_text.CsvFile(source, options)
    if options.label is not None and kind in ("npy", "libsvm"):
        raise InvalidInput(
            f"A label column can be named for CSV, Parquet and NPZ files only. Got '{source.name}'."
        )
    if kind == "libsvm":
        return readers_text.LibsvmFile(source, options)
    if kind == "parquet":
        return readers_binary.ParquetFile(source, options)
    if kind == "npz":
        return readers_binary.NpzFile(source, options)
    return readers_binary.NpyFile(source, options)


def file_kind(path: Path) -> FileKind:
    """Kind of a data file, by its ending, otherwise by its content."""
    try:
        with path.open("rb") as stream:
            head = stream.read(65536)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    if not head:
        raise InvalidInput(f"The data file '{path}' is empty.")
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    kind_by_suffix = _SUFFIXES.get(path.suffix.lower())
    if kind_by_suffix in ("parquet", "npy", "npz"):
        raise InvalidInput(
            f"The data file '{path}' is not of the kind that its ending says, or is damaged."
        )
    if kind_by_suffix is not None:
        return kind_by_suffix
    lines = [line for line in head.splitlines() if line.strip() and not line.startswith(b"#")]
    return "libsvm" if lines and _LIBSVM_LINE.match(lines[0]) else "csv"


def parse_rows(text: str) -> slice:
    """Read a range such as ``0:500``, ``500:`` or ``:20``.

    Parameters
    ----------
    text : str
        Two row numbers with a colon between them, the second one excluded; either may be left out.

    Returns
    -------
    slice
        The range.
    """
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
    near = get_close_matches(name, columns, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else f" It has {', '.join(columns[:10])}."
    raise InvalidInput(f"The data file '{path}' has no {name!r}.{hint}")
