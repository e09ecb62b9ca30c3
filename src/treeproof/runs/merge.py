"""Merge runs: the rows of several run files about one model and one question, in one file."""

import itertools
from array import array
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeproof.errors import InvalidInput
from treeproof.results.run_file import COMPLETE, check_count, is_parquet, read_records
from treeproof.results.run_parquet import parquet_records, save_parquet
from treeproof.runs.run_log import check_same, first_record, joined_data, write_log
from treeproof.runs.runner import log_path

IntArray = NDArray[np.int64]


def merge_runs(paths: Sequence[str | PathLike[str]], out: str | PathLike[str]) -> int:
    """Merge run files about the same model and question into one, in the order of the rows.

    Parameters
    ----------
    paths : sequence of str or path
        Run files, JSON lines or Parquet. Where several have an answer for a row, a settled one is
        taken, otherwise the first; their keys must agree.
    out : str or path
        The new run file, written in one step; JSON lines, or Parquet where it ends in .parquet.

    Returns
    -------
    int
        Number of rows in it.
    """
    if not paths:
        raise InvalidInput("There must be at least one run file to merge. Got none.")
    sources = [_Source(Path(path)) for path in paths]
    for source in sources[1:]:
        check_same(source.header, sources[0].header, source.path)
    file, place = _chosen(sources)
    header = sources[0].header | {"state": COMPLETE, "n_rows": len(file)}
    header["data"] = joined_data([source.header.get("data") for source in sources])
    target = Path(out)
    if log_path(target) != target:
        save_parquet(header, _records(sources, file, place), target)
    else:
        write_log(target, header, _records(sources, file, place))
    return len(file)


def header_of(path: Path) -> dict[str, Any]:
    """Header of a run file of either kind."""
    return parquet_records(path)[0] if is_parquet(path) else first_record(path)


class _Source:
    """One of the runs: its header, and its records one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_parquet = is_parquet(path)
        self.header = header_of(path)
        if "question_hash" not in self.header:
            raise InvalidInput(
                f"The run file '{path}' must come from a run, with a key for every row. Got one"
                " without keys, as Results.save writes."
            )

    def records(self) -> Iterator[tuple[dict[str, Any], int]]:
        """Row records with their places: bytes from the beginning, or rows for Parquet."""
        if self._is_parquet:
            yield from zip(parquet_records(self.path)[1], itertools.count(), strict=False)
            return
        for record, offset in read_records(self.path):
            if record["record"] == "row":
                yield record, offset

    def read_at(self, places: IntArray) -> Iterator[dict[str, Any]]:
        """The records at some places, in that order."""
        if self._is_parquet:
            # In row order, as the places are.
            wanted = iter(places.tolist())
            place = next(wanted, None)
            for record, number in self.records():
                if number == place:
                    yield record
                    place = next(wanted, None)
            return
        with self.path.open("rb") as file:
            for place in places.tolist():
                file.seek(place)
                yield msgspec.json.decode(file.readline())


def _chosen(sources: list[_Source]) -> tuple[IntArray, IntArray]:
    """File and place of the record that answers each row, in row order."""
    columns = [array("q") for _ in range(5)]
    for number, source in enumerate(sources):
        for record, where in source.records():
            try:
                hashed = int(record["key"], 16) - 2**63  # fits into a signed number
                line = (int(record["row"]), not record["exact"], number, where, hashed)
            except (KeyError, TypeError, ValueError) as error:
                raise InvalidInput(
                    f"A row record of {source.path} is incomplete: {error}."
                ) from error
            for column, value in zip(columns, line, strict=True):
                column.append(value)
        check_count(source.header, columns[2].count(number), source.path)
    row, is_open, file, place, key = (np.array(column, dtype=np.int64) for column in columns)
    order = np.lexsort((file, is_open, row))
    row, file, place, key = row[order], file[order], place[order], key[order]
    again = np.flatnonzero(row[1:] == row[:-1]) + 1
    differs = again[key[again] != key[again - 1]]
    if len(differs):
        first, second = (sources[file[differs[0] - back]].path for back in (1, 0))
        raise InvalidInput(
            f"Row {row[differs[0]]} must be the same in all runs. Its values or its label differ in"
            f" '{first}' and '{second}'."
        )
    is_first = np.ones(len(row), dtype=bool)
    is_first[again] = False
    return file[is_first], place[is_first]


def _records(sources: list[_Source], file: IntArray, place: IntArray) -> Iterator[dict[str, Any]]:
    readers = [source.read_at(place[file == number]) for number, source in enumerate(sources)]
    for number in file.tolist():
        yield next(readers[number])
