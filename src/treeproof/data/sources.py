"""Where the rows of a run come from: a data file that is read in chunks, or arrays."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from treeproof.data.readers import DataFile, ReadOptions, objects, open_data, parse_rows
from treeproof.errors import InvalidInput
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.model.rows import label_numbers, numeric_rows
from treeproof.model.spread import Spread


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows in the model's column order, with their numbers in the data.

    Values are float64 (n, n_features), labels those that the model's library reports, as objects,
    identifiers what the user knows rows by.
    """

    number: NDArray[np.int64]
    values: FloatArray
    labels: NDArray[Any] | None
    ids: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.number)

    def take(self, selection: Any) -> "Rows":
        """Return a selection of the rows."""
        labels, ids = (None if a is None else a[selection] for a in (self.labels, self.ids))
        return Rows(self.number[selection], self.values[selection], labels, ids)

    @staticmethod
    def join(parts: list["Rows"]) -> "Rows":
        """Return all rows of several parts, of which there is at least one."""
        if len(parts) == 1:
            return parts[0]
        joined: dict[str, Any] = {}
        for name in ("number", "values", "labels", "ids"):
            columns = [getattr(part, name) for part in parts]
            joined[name] = None if columns[0] is None else np.concatenate(columns)
        return Rows(**joined)


class Source(Protocol):
    """Rows of a run, always the same and in the same order."""

    @property
    def ensemble(self) -> Ensemble:
        """The model that they are for."""

    @property
    def n_rows(self) -> int | None:
        """How many there are, where that is known without reading them."""

    def parts(self) -> Iterator[Rows]:
        """Give the rows from the beginning, a few thousand at a time."""

    def describe(self) -> dict[str, Any]:
        """What a run file says about the data."""


@dataclass(frozen=True, slots=True)
class ArraySource:
    """Rows in memory: an array or a data frame, and labels."""

    ensemble: Ensemble
    X: Any
    y: Any = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.X)

    def parts(self) -> Iterator[Rows]:
        """All rows at once: they are in memory anyway."""
        values = numeric_rows(self.ensemble, self.X, allow_empty=False)
        number = np.arange(len(values), dtype=np.int64)
        yield Rows(number, values, class_labels(self.ensemble, self.y, len(values)))

    def describe(self) -> dict[str, Any]:
        """Arrays have no name."""
        return {"file": None, "n_asked": self.n_rows}


@dataclass(slots=True)
class FileSource:
    """Chosen rows of a data file: a range such as ``0:500``, or a random sample of it."""

    ensemble: Ensemble
    path: str | PathLike[str]
    label: str | None = None
    rows: str | None = None
    sample: int | None = None
    seed: int = 0
    first_index: Literal[0, 1] = 1
    absent: Literal["zero", "missing"] = "zero"
    id: str | None = None
    _chosen: NDArray[np.int64] | None = field(default=None, init=False)

    @property
    def _range(self) -> slice:
        return slice(0, None) if self.rows is None else parse_rows(self.rows)

    def _open(self, rows: slice) -> DataFile:
        options = ReadOptions(
            label=self.label,
            id=self.id,
            rows=rows,
            n_features=self.ensemble.n_features,
            first_index=self.first_index,
            absent=self.absent,
        )
        return open_data(self.path, options)

    @property
    def n_rows(self) -> int | None:
        """How many rows are asked about, where the file says how many it has."""
        in_range = self._open(self._range).n_rows
        if self.sample is None:
            return in_range
        return None if in_range is None else min(self.sample, in_range)

    def estimated_rows(self) -> int | None:
        """How many rows are asked about, for progress: text files are taken by their lines."""
        known = self.n_rows
        if known is not None:
            return known
        with self._open(slice(0, None)).path.open("rb") as file:
            lines = sum(block.count(b"\n") for block in iter(lambda: file.read(2**20), b""))
        in_range = len(range(lines)[self._range])
        return in_range if self.sample is None else min(self.sample, in_range)

    def parts(self) -> Iterator[Rows]:
        """Read the chosen rows, chunk by chunk."""
        chosen = None if self.sample is None else self._sampled()
        is_empty = True
        for chunk in self._open(self._range).chunks():
            values = chunk.matrix(self.ensemble)
            number = np.arange(chunk.first_row, chunk.first_row + len(values), dtype=np.int64)
            labels = class_labels(self.ensemble, chunk.labels, len(values))
            rows = Rows(number, values, labels, _plain_ids(chunk.ids))
            if chosen is not None:
                rows = rows.take(np.isin(rows.number, chosen, assume_unique=True))
            if len(rows):
                is_empty = False
                yield rows
        if is_empty:
            raise InvalidInput(
                f"There must be at least one row to ask about. Got none in '{self.path}'"
                + (f" within {self.rows}." if self.rows else ".")
            )

    def _sampled(self) -> NDArray[np.int64] | None:
        """Numbers of the sampled rows; None for all. Files that do not say it are counted first."""
        if self._chosen is None:
            file = self._open(self._range)
            n_rows = file.n_rows
            if n_rows is None:
                n_rows = sum(len(chunk) for chunk in file.chunks())
            if self.sample is None or self.sample >= n_rows:
                return None
            numbers = self._range.start + np.arange(n_rows, dtype=np.int64)
            generator = np.random.default_rng(self.seed)
            self._chosen = np.sort(generator.choice(numbers, self.sample, replace=False))
        return self._chosen

    def describe(self) -> dict[str, Any]:
        """File, label column, range and sample."""
        return {
            # Names may hold bytes that are no text, which JSON cannot hold as they are.
            "file": str(self.path).encode("utf-8", "backslashreplace").decode(),
            "label": self.label,
            "id": self.id,
            "rows": self.rows,
            "sample": self.sample,
            "seed": self.seed if self.sample is not None else None,
            "first_index": self.first_index,
            "absent": self.absent,
            "n_asked": self.n_rows,
        }

    def spread(self, kind: Literal["std", "range"]) -> FloatArray:
        """Spread of each column over all rows of the file, whatever the range."""
        spread = Spread(self.ensemble.n_features)
        for chunk in self._open(slice(0, None)).chunks():
            spread.add(chunk.matrix(self.ensemble))
        return spread.of(kind)


def _plain_ids(ids: Any) -> NDArray[Any] | None:
    """Identifiers as run files hold them: numbers and texts."""
    if ids is None:
        return None
    known = (bool, int, float, str, type(None))
    values = ids.tolist() if isinstance(ids, np.ndarray) else ids
    return objects([value if isinstance(value, known) else str(value) for value in values])


def class_labels(ensemble: Ensemble, labels: Any, n_rows: int) -> NDArray[Any] | None:
    """Given labels as the model's classes; None without labels, and for scores."""
    if not ensemble.classes or labels is None:
        return None
    classes = np.empty(len(ensemble.classes), dtype=object)
    classes[:] = ensemble.classes
    return classes[label_numbers(ensemble, labels, n_rows=n_rows)]
