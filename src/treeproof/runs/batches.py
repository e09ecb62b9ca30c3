"""Batches: what is sent to a worker, how large it is, and how it is answered."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.data.sources import Rows, Source
from treeproof.errors import TreeproofError
from treeproof.prediction import Model
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason
from treeproof.runs.questions import Question, row_keys
from treeproof.runs.run_log import Found

LARGEST_BATCH = 8192
_GROWTH = 4


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that one worker answers in one go.

    Attributes
    ----------
    rows : Rows
        The rows, unit after unit.
    key : uint64 (n,)
        Their keys in the run.
    wanted : bool (n,)
        False for rows that the run file has already; they are asked about again only because
        others of their unit are missing.
    """

    rows: Rows
    key: NDArray[np.uint64]
    wanted: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker found for a batch.

    Attributes
    ----------
    pieces : list of Results
        Answers that follow each other in the order of the batch; `row` is not set.
    seconds : float
        Time that the worker needed.
    """

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
        self._waiting: list[Rows] = []
        self.n_seen = 0

    def batches(
        self, sizer: "BatchSizer", largest: Callable[[int], int] | None = None
    ) -> Iterator[Batch]:
        """Give batches, each as large as the sizer says at that moment.

        Parameters
        ----------
        sizer : BatchSizer
            Says how many rows.
        largest : callable, optional
            Called with the rows that were looked at so far, says how many more rows at most.
        """
        while True:
            n_rows = sizer.n_rows
            batch = self._next(n_rows if largest is None else min(n_rows, largest(self.n_seen)))
            if batch is None:
                return
            yield batch

    def _next(self, n_rows: int) -> Batch | None:
        unit = self._question.unit_rows
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
        if not taken:
            return None
        return Batch(
            Rows.join([batch.rows for batch in taken]),
            np.concatenate([batch.key for batch in taken]),
            np.concatenate([batch.wanted for batch in taken]),
        )

    def _take(self, n_rows: int) -> Rows | None:
        """The next rows of the source; fewer than asked for only at its end."""
        n_waiting = sum(map(len, self._waiting))
        while n_waiting < n_rows:
            part = next(self._parts, None)
            if part is None:
                break
            self._waiting.append(part)
            n_waiting += len(part)
        if n_waiting == 0:
            return None
        rows = Rows.join(self._waiting)
        self._waiting = [rows.take(slice(n_rows, None))] if n_waiting > n_rows else []
        rows = rows.take(slice(0, n_rows))
        self.n_seen += len(rows)
        return rows

    def _missing(self, rows: Rows) -> Batch:
        self._question.check(self._source.ensemble, rows.values, rows.number)
        keys = row_keys(self._header, rows.values, rows.labels)
        missing = self._found.missing(rows.number, keys, self._path)
        unit = self._question.unit_rows
        starts = np.arange(0, len(rows), unit)
        needed = np.repeat(np.logical_or.reduceat(missing, starts), unit)[: len(rows)]
        return Batch(rows.take(needed), keys[needed], missing[needed])


@dataclass(slots=True)
class BatchSizer:
    """Sizes batches so that each takes about the same time, by the cost that was measured.

    Attributes
    ----------
    unit_rows : int
        Batches are whole multiples of this.
    target_s : float
        Seconds that a batch should take.
    n_rows : int
        Size of the next batch.
    is_fixed : bool
        Whether the size was given and stays.
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
    try:
        pieces = [question.ask(model, rows.values, rows.labels)]
    except TreeproofError:
        raise  # about the question or its input, not about a row
    except Exception:
        pieces = _answer_in_units(model, question, rows)
    return Answer(pieces, time.perf_counter() - began)


def _answer_in_units(model: Model, question: Question, rows: Rows) -> list[Results]:
    """Answer unit by unit, so that the answers of others are the same as ever."""
    pieces: list[Results] = []
    for start in range(0, len(rows), question.unit_rows):
        part = rows.take(slice(start, start + question.unit_rows))
        try:
            pieces.append(question.ask(model, part.values, part.labels))
        except TreeproofError:
            raise
        except Exception:
            pieces += answer_singly(model, question, part)
    return pieces


def answer_singly(model: Model, question: Question, rows: Rows) -> list[Results]:
    """Answer rows one by one, so that those that fail are known."""
    pieces = []
    for i in range(len(rows)):
        row = rows.take(slice(i, i + 1))
        try:
            pieces.append(question.ask(model, row.values, row.labels))
        except TreeproofError:
            raise
        except Exception as error:
            pieces.append(failed(model, question, row, f"{type(error).__name__}: {error}"))
    return pieces


def failed(model: Model, question: Question, rows: Rows, why: str) -> Results:
    """Record that rows failed, with the reason."""
    said = why.split("\n", 1)[0].rstrip(": ")
    reason = f"{UnknownReason.ROW_FAILED.value}: {said}"
    return question.unanswered(model, rows.values, rows.labels, reason)
