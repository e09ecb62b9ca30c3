"""CSV and LIBSVM files, read line by line."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from treeproof.errors import InvalidInput
from treeproof.model.rows import TextTable
from treeproof.scale.readers import Chunk, ReadOptions, require_column, unreadable


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    try:
        # A byte order mark is no part of the first column's name.
        with path.open(encoding="utf-8-sig", newline="") as stream:
            yield stream
    except UnicodeDecodeError as error:
        raise InvalidInput(f"The data file '{path}' must be UTF-8 text: {error}.") from error
    except (OSError, csv.Error) as error:
        raise unreadable(path, error) from error


class CsvFile:
    """A table as text: one line per row, with or without a line of names before them."""

    n_rows = None

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._options = options
        with _opened(path) as stream:
            first_line = stream.readline()
            self._delimiter = options.delimiter or max(",;\t", key=first_line.count)
            stream.seek(0)
            first = next(csv.reader(stream, delimiter=self._delimiter), [])
        if not first:
            raise InvalidInput(f"The first line of '{path}' must hold cells. Got an empty line.")
        self._has_header = _is_header(first) if options.header is None else options.header
        self._all_columns = (
            [name.strip() for name in first]
            if self._has_header
            else [str(number) for number in range(len(first))]
        )
        if len(set(self._all_columns)) != len(first):
            raise InvalidInput(f"Column names in '{path}' must be unique. Got {first}.")
        if options.label is not None:
            require_column(options.label, self._all_columns, path)
        self.has_labels = options.label is not None
        self.columns = tuple(name for name in self._all_columns if name != options.label)

    def chunks(self) -> Iterator[Chunk]:
        """Read the chosen rows from the beginning."""
        options = self._options
        size = options.chunk_size(len(self._all_columns))
        with _opened(self.path) as stream:
            reader = csv.reader(stream, delimiter=self._delimiter)
            if self._has_header:
                next(reader, None)
            # Blank lines are no rows, as everywhere in CSV tools.
            lines = (cells for cells in reader if cells)
            wanted = islice(lines, options.first_row, options.rows.stop)
            first_row = options.first_row
            while rows := list(islice(wanted, size)):
                yield self._chunk(first_row, rows, reader.line_num)
                first_row += len(rows)

    def _chunk(self, first_row: int, rows: list[list[str]], line: int) -> Chunk:
        width = len(self._all_columns)
        for number, cells in enumerate(rows):
            if len(cells) != width:
                raise InvalidInput(
                    f"Every row of '{self.path}' must have {width} cells. Got {len(cells)} in row"
                    f" {first_row + number} (at or before line {line})."
                )
        columns = dict(zip(self._all_columns, map(list, zip(*rows, strict=True)), strict=True))
        label = self._options.label
        labels = None if label is None else [cell.strip() for cell in columns.pop(label)]
        return Chunk(first_row=first_row, values=TextTable(columns), labels=labels)


def _is_header(cells: list[str]) -> bool:
    # Frames without names are written with the header 0,1,2,...: numbers, but no row.
    if cells == [str(number) for number in range(len(cells))]:
        return True
    return not all(_is_number(cell) for cell in cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


class LibsvmFile:
    """Lines of ``label index:value index:value ...``; what is left out is zero or missing."""

    n_rows = None
    has_labels = True
    columns: tuple[str, ...] = ()

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._options = options
        self._n_features = options.n_features or self._largest_index() + 1

    def chunks(self) -> Iterator[Chunk]:
        """Read the chosen rows from the beginning."""
        options = self._options
        size = options.chunk_size(self._n_features)
        with _opened(self.path) as stream:
            wanted = islice(_lines(stream), options.first_row, options.rows.stop)
            first_row = options.first_row
            while lines := list(islice(wanted, size)):
                yield self._chunk(first_row, lines)
                first_row += len(lines)

    def _chunk(self, first_row: int, lines: list[tuple[int, list[str]]]) -> Chunk:
        filling = 0.0 if self._options.absent == "zero" else np.nan
        values = np.full((len(lines), self._n_features), filling)
        for row, (line, words) in enumerate(lines):
            for column, value in self._entries(line, words):
                if column >= self._n_features:
                    raise InvalidInput(
                        f"Line {line} of '{self.path}' must have at most {self._n_features}"
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
        largest = -1
        with _opened(self.path) as stream:
            for line, words in _lines(stream):
                for column, _ in self._entries(line, words):
                    largest = max(largest, column)
        return largest


def _lines(stream: IO[str]) -> Iterator[tuple[int, list[str]]]:
    """Line number and words of each line that is neither blank nor a comment."""
    for number, line in enumerate(stream, start=1):
        words = line.partition("#")[0].split()
        if words:
            yield number, words
