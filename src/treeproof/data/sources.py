"""Where the rows of a run come from: a data file that is read in chunks, or arrays."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from os import PathLike
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from treeproof.data.readers import Chunk, DataFile, ReadOptions, open_data, parse_rows
from treeproof.errors import InvalidInput, WrongRow
from treeproof.model.ensemble import Ensemble, FloatArray
from treeproof.model.rows import label_numbers, numeric_rows, objects
from treeproof.model.spread import Spread


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows in the model's column order, with their numbers in the data.

    Values are float64 (n, n_features), labels those that the model's library reports, as objects,
    identifiers what the user knows rows by, and eps (n,) how far each may move where that is a
    column of the data.
    """

    number: NDArray[np.int64]
    values: FloatArray
    labels: NDArray[Any] | None
    ids: NDArray[Any] | None = None
    eps: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.number)

    def take(self, selection: Any) -> "Rows":
        """Return a selection of the rows."""
        chosen: list[Any] = [None if c is None else c[selection] for c in self._columns()]
        return Rows(*chosen)

    def _columns(self) -> list[Any]:
        return [getattr(self, part.name) for part in fields(self)]

    @staticmethod
    def join(parts: list["Rows"]) -> "Rows":
        """Return all rows of several parts, of which there is at least one."""
        if len(parts) == 1:
            return parts[0]
        columns = zip(*(part._columns() for part in parts), strict=True)
        joined: list[Any] = [None if c[0] is None else np.concatenate(c) for c in columns]
        return Rows(*joined)


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
    eps: FloatArray | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.X)

    def parts(self) -> Iterator[Rows]:
        """All rows at once: they are in memory anyway."""
        values = numeric_rows(self.ensemble, self.X, allow_empty=False)
        number = np.arange(len(values), dtype=np.int64)
        labels = class_labels(self.ensemble, self.y, len(values))
        if self.eps is not None and len(self.eps) != len(values):
            raise InvalidInput(
                f"There must be one radius or budget for each of the {len(values)} rows, or one for"
                f" all. Got {len(self.eps)}."
            )
        yield Rows(number, values, labels, eps=self.eps)

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
    eps: str | None = None
    by_name: bool = False
    _chosen: NDArray[np.int64] | None = field(default=None, init=False)

    @property
    def _range(self) -> slice:
        return slice(0, None) if self.rows is None else parse_rows(self.rows)

    def _open(self, rows: slice) -> DataFile:
        options = ReadOptions(
            label=self.label,
            id=self.id,
            eps=self.eps,
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
            values = self._matrix(chunk)
            number = np.arange(chunk.first_row, chunk.first_row + len(values), dtype=np.int64)
            try:
                labels = class_labels(self.ensemble, chunk.labels, len(values))
            except WrongRow as error:
                raise error.counted_from(chunk.first_row) from None
            eps = self._distances(chunk.eps, chunk.first_row)
            rows = Rows(number, values, labels, _plain_ids(chunk.ids), eps)
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

    def _matrix(self, chunk: Chunk) -> FloatArray:
        try:
            return chunk.matrix(self.ensemble, by_name=self.by_name)
        except InvalidInput as error:
            for what, name in (("label", self.label), ("id", self.id), ("eps", self.eps)):
                if name is not None and name in self.ensemble.feature_names:
                    raise InvalidInput(
                        f"The {what} column must not be a feature of the model. Got {name!r}."
                    ) from error
            raise

    def _distances(self, cells: Any, first_row: int) -> FloatArray | None:
        """Cells of the column of distances as numbers."""
        if cells is None:
            return None
        values = np.empty(len(cells))
        for at, cell in enumerate(cells):
            try:
                values[at] = float(cell)
            except (TypeError, ValueError):
                values[at] = np.nan
            if not 0.0 <= values[at] < np.inf:
                raise InvalidInput(
                    f"Column {self.eps!r} of '{self.path}' must hold how far each row may move, a"
                    f" number >= 0. Got {cell!r} in row {first_row + at}."
                )
        return values

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
            **({} if self.eps is None else {"eps": self.eps}),
            "rows": self.rows,
            "sample": self.sample,
            "seed": self.seed if self.sample is not None else None,
            "first_index": self.first_index,
            "absent": self.absent,
            **({"by_name": True} if self.by_name else {}),
            "n_asked": self.n_rows,
        }

    def spread(self, kind: Literal["std", "range"]) -> FloatArray:
        """Spread of each column over all rows of the file, whatever the range."""
        spread = Spread(self.ensemble.n_features)
        for chunk in self._open(slice(0, None)).chunks():
            spread.add(self._matrix(chunk))
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
    return objects(ensemble.classes)[label_numbers(ensemble, labels, n_rows=n_rows)]
