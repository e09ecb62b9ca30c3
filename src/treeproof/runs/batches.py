"""Batches: which rows are answered together, how many at a time, and how one batch is answered."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.data.sources import Rows, Source
from treeproof.errors import TreeproofError
from treeproof.model.ensemble import Ensemble
from treeproof.prediction import Model
from treeproof.query.build import refuse_outside
from treeproof.query.perturbations import LInf
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason
from treeproof.runs.run_log import Found, row_keys
from treeproof.search.question import Question

_RADIUS_UNIT = 32
"""Rows of one radius question. The engine learns the scale of the later ones from the first, so
that witnesses may depend on who is asked together; with units that never change they do not."""

LARGEST_BATCH = 8192
_GROWTH = 4


def unit_rows(question: Question) -> int:
    """Rows of a block that a run always asks about together; see `Query`."""
    return _RADIUS_UNIT if question.kind == "radius" else 1


def check_rows(question: Question, ensemble: Ensemble, rows: Rows) -> None:
    """Refuse rows outside the bounds of a question, under their numbers in the data."""
    if isinstance(question.perturbation, LInf):
        refuse_outside(ensemble, rows.values, question.perturbation, rows.number)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are answered in one go, unit after unit, with their keys in the run.

    Rows that are not `wanted` are in the run file already; they are asked about again only because
    others of their unit are missing.
    """

    rows: Rows
    key: NDArray[np.uint64]
    wanted: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, selection: Any) -> "Batch":
        """Return a selection of the rows."""
        return Batch(self.rows.take(selection), self.key[selection], self.wanted[selection])

    @staticmethod
    def join(parts: list["Batch"]) -> "Batch":
        """Return all rows of several batches, of which there is at least one."""
        return Batch(
            Rows.join([part.rows for part in parts]),
            np.concatenate([part.key for part in parts]),
            np.concatenate([part.wanted for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """Results that follow each other in the order of a batch (`row` is not set), and their time."""

    pieces: list[Results]
    seconds: float


class BatchMaker:
    """Cuts the rows of a source into batches, leaving out units that are answered already."""

    def __init__(
        self, source: Source, question: Question, header: dict[str, Any], found: Found, path: Any
    ) -> None:
        self._source = source
        self._parts = source.parts()
        self._question = question
        self._header = header
        self._found = found
        self._path = path
        self._left: list[Rows] = []
        self.n_seen = 0

    def next_batch(self, n_rows: int) -> Batch | None:
        """The next rows that are not answered, as many whole units as fit, at least one."""
        unit = unit_rows(self._question)
        taken: list[Batch] = []
        n_taken = 0
        while n_taken < n_rows:
            rows = self._take(max(unit, (n_rows - n_taken) // unit * unit))
            if rows is None:
                break
            batch = self._missing(rows)
            if len(batch):
                taken.append(batch)
                n_taken += len(batch)
        return Batch.join(taken) if taken else None

    def _take(self, n_rows: int) -> Rows | None:
        """The next rows of the source; fewer than asked for only at its end."""
        n_left = sum(map(len, self._left))
        while n_left < n_rows and (part := next(self._parts, None)) is not None:
            self._left.append(part)
            n_left += len(part)
        if n_left == 0:
            return None
        rows = Rows.join(self._left)
        self._left = [rows.take(slice(n_rows, None))] if n_left > n_rows else []
        rows = rows.take(slice(0, n_rows))
        self.n_seen += len(rows)
        return rows

    def _missing(self, rows: Rows) -> Batch:
        check_rows(self._question, self._source.ensemble, rows)
        keys = row_keys(self._header, rows.values, rows.labels)
        missing = self._found.missing(rows.number, keys, self._path)
        unit = unit_rows(self._question)
        starts = np.arange(0, len(rows), unit)
        needed = np.repeat(np.logical_or.reduceat(missing, starts), unit)[: len(rows)]
        return Batch(rows, keys, missing).take(needed)


@dataclass(slots=True)
class BatchSizer:
    """Sizes batches so that each takes `target_s`, by the cost that was measured.

    Sizes are whole multiples of `unit_rows`; a size that is given and `is_fixed` stays.
    """

    unit_rows: int
    target_s: float
    n_rows: int = 0
    is_fixed: bool = False

    def __post_init__(self) -> None:
        """Begin with little: nothing is known of the cost yet."""
        self.n_rows = self._rounded(self.n_rows or 32)

    def learn(self, n_rows: int, seconds: float) -> None:
        """Take in what a batch cost; growth is limited, since the next rows may be harder."""
        if self.is_fixed:
            return
        wanted = n_rows / max(seconds, 1e-6) * self.target_s
        self.n_rows = self._rounded(int(min(wanted, _GROWTH * self.n_rows, LARGEST_BATCH)))

    def _rounded(self, n_rows: int) -> int:
        return max(1, n_rows // self.unit_rows) * self.unit_rows


def answer_batch(model: Model, question: Question, rows: Rows) -> Answer:
    """Answer a batch in this thread; a row that fails is recorded, and the others go on."""
    began = time.perf_counter()
    # After a failure unit by unit, so that the answers of others are the same as ever.
    pieces = _answer_in_parts(model, question, rows, [len(rows), unit_rows(question), 1])
    return Answer(pieces, time.perf_counter() - began)


def _answer_in_parts(
    model: Model, question: Question, rows: Rows, sizes: list[int]
) -> list[Results]:
    """Answer in parts of the first size; one that fails, again in parts of the next size."""
    pieces: list[Results] = []
    for start in range(0, len(rows), sizes[0]):
        part = rows.take(slice(start, start + sizes[0]))
        try:
            unit = unit_rows(question)
            pieces.append(question.answer(model, part.values, part.labels, unit_rows=unit))
        except TreeproofError:
            raise  # about the question or its input, not about a row
        except Exception as error:
            if len(sizes) > 1:
                pieces += _answer_in_parts(model, question, part, sizes[1:])
            else:
                pieces.append(failed(model, question, part, f"{type(error).__name__}: {error}"))
    return pieces


def failed(model: Model, question: Question, rows: Rows, why: str) -> Results:
    """Record that rows failed, with the reason."""
    said = why.split("\n", 1)[0].rstrip(": ")
    reason = f"{UnknownReason.ROW_FAILED.value}: {said}"
    return question.unanswered(model, rows.values, rows.labels, reason)
