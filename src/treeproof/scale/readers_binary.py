"""NPY, NPZ and Parquet files."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from treeproof.errors import InvalidInput, require_backend
from treeproof.scale.readers import Chunk, ReadOptions, require_column, unreadable

_SKIP_BYTES = 2**20


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, InvalidInput):
            raise
        raise unreadable(path, error) from error


def _check_rows_array(dtype: np.dtype[Any], shape: tuple[int, ...], path: Path) -> None:
    if len(shape) != 2 or dtype.kind not in "biuf":
        raise InvalidInput(
            f"The rows in '{path}' must be a matrix of numbers. Got {dtype} with shape {shape}."
        )


class NpyFile:
    """One matrix, mapped into memory."""

    has_labels = False
    columns: tuple[str, ...] = ()

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._options = options
        array = self._array()
        self.n_rows = options.n_wanted(len(array))

    def _array(self) -> NDArray[Any]:
        with _readable(self.path):
            array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        _check_rows_array(array.dtype, array.shape, self.path)
        return np.asarray(array)

    def chunks(self) -> Iterator[Chunk]:
        """Read the chosen rows from the beginning."""
        array = self._array()
        size = self._options.chunk_size(array.shape[1])
        first = self._options.first_row
        for start in range(first, first + self.n_rows, size):
            stop = min(start + size, first + self.n_rows)
            yield Chunk(first_row=start, values=np.array(array[start:stop]))


class NpzFile:
    """Arrays ``X``, optionally ``y`` and ``feature_names``; only the labels are read whole."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._options = options
        with _readable(path), zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            require_column(options.array, names, path)
            if options.label is not None:
                require_column(options.label, names, path)
            with archive.open(f"{options.array}.npy") as stream:
                self._shape, self._fortran, self._dtype = _npy_header(stream)
        _check_rows_array(self._dtype, self._shape, path)
        label = options.label or ("y" if "y" in names else None)
        self._labels = None if label is None else self._read_labels(label)
        self.has_labels = label is not None
        self.columns = self._read_names() if "feature_names" in names else ()
        self.n_rows = options.n_wanted(self._shape[0])

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
                f"Array {name!r} of '{self.path}' must have one label per row ({self._shape[0]})."
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
        return tuple(names.tolist())

    def chunks(self) -> Iterator[Chunk]:
        """Read the chosen rows from the beginning."""
        size = self._options.chunk_size(self._shape[1])
        # Columns of a Fortran array lie one after the other: such rows cannot be streamed.
        blocks = self._whole(size) if self._fortran else self._streamed(size)
        for start, values in blocks:
            labels = None if self._labels is None else self._labels[start : start + len(values)]
            yield Chunk(first_row=start, values=values, columns=self.columns, labels=labels)

    def _whole(self, size: int) -> Iterator[tuple[int, NDArray[Any]]]:
        array = self._read(self._options.array)
        first = self._options.first_row
        for start in range(first, first + self.n_rows, size):
            yield start, array[start : min(start + size, first + self.n_rows)]

    def _streamed(self, size: int) -> Iterator[tuple[int, NDArray[Any]]]:
        row_bytes = self._shape[1] * self._dtype.itemsize
        first = self._options.first_row
        with (
            _readable(self.path),
            zipfile.ZipFile(self.path) as archive,
            archive.open(f"{self._options.array}.npy") as stream,
        ):
            _npy_header(stream)
            _skip(stream, first * row_bytes)
            for start in range(first, first + self.n_rows, size):
                n_rows = min(size, first + self.n_rows - start)
                content = stream.read(n_rows * row_bytes)
                if len(content) != n_rows * row_bytes:
                    raise InvalidInput(f"The data file '{self.path}' is cut off.")
                block = np.frombuffer(content, dtype=self._dtype)
                yield start, block.reshape(n_rows, self._shape[1])


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy_format.read_magic(stream)
    if version == (1, 0):
        return npy_format.read_array_header_1_0(stream)
    return npy_format.read_array_header_2_0(stream)


def _skip(stream: IO[bytes], n_bytes: int) -> None:
    while n_bytes > 0:
        n_bytes -= len(stream.read(min(n_bytes, _SKIP_BYTES))) or n_bytes


class ParquetFile:
    """A table in column groups, read with pyarrow batch by batch."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        require_backend("pyarrow.parquet", "parquet")
        self.path = path
        self._options = options
        with self._opened() as file:
            names = list(file.schema_arrow.names)
            n_rows = file.metadata.num_rows
        if options.label is not None:
            require_column(options.label, names, path)
        self.has_labels = options.label is not None
        # pandas stores an unnamed index as a column of this name; it is no feature.
        kept = [name for name in names if not name.startswith("__index_level_")]
        self.columns = tuple(name for name in kept if name != options.label)
        self._read_columns = kept
        self.n_rows = options.n_wanted(n_rows)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        import pyarrow
        from pyarrow import parquet

        try:
            with parquet.ParquetFile(self.path) as file:
                yield file
        except (OSError, pyarrow.ArrowException) as error:
            raise unreadable(self.path, error) from error

    def chunks(self) -> Iterator[Chunk]:
        """Read the chosen rows from the beginning."""
        import pyarrow

        if self.n_rows == 0:
            return
        first, last = self._options.first_row, self._options.first_row + self.n_rows
        size = self._options.chunk_size(len(self._read_columns))
        with self._opened() as file:
            groups, row = _groups_from(file.metadata, first)
            batches = file.iter_batches(size, row_groups=groups, columns=self._read_columns)
            for batch in batches:
                start, stop = max(first, row), min(last, row + batch.num_rows)
                if start < stop:
                    table = pyarrow.Table.from_batches([batch.slice(start - row, stop - start)])
                    yield self._chunk(start, table)
                row += batch.num_rows
                if row >= last:
                    return

    def _chunk(self, first_row: int, table: Any) -> Chunk:
        label = self._options.label
        if label is None:
            return Chunk(first_row=first_row, values=table)
        labels = np.array(table.column(label).to_pylist(), dtype=object)
        return Chunk(first_row=first_row, values=table.drop_columns([label]), labels=labels)


def _groups_from(metadata: Any, first: int) -> tuple[list[int], int]:
    """Row groups from the one that holds a row on, and the number of their first row."""
    row = 0
    for group in range(metadata.num_row_groups):
        n_rows = metadata.row_group(group).num_rows
        if first < row + n_rows:
            return list(range(group, metadata.num_row_groups)), row
        row += n_rows
    return [], row
