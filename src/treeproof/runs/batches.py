"""Batches: which rows are answered together, how many at a time, and how one batch is answered."""

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeproof.data.sources import Rows, Source
from treeproof.errors import InvalidInput, TreeproofError
from treeproof.prediction import Model
from treeproof.query.perturbations import All, Box
from treeproof.results.results import Results
from treeproof.results.verdict import UnknownReason
from treeproof.runs.run_log import Answered, about, row_keys
from treeproof.search.question import Question

LARGEST_BATCH = 8192
CHECKED_TOGETHER = 1024
_GROWTH = 4
_PATIENCE = 10
"""By what factor a batch may take longer than it should before its slow rows are left out."""
_LEAST_PATIENCE_S = 0.1
"""A row is never slow below this: on a busy machine any row may wait for the processor."""


def check_rows(question: Question, model: Model, rows: Rows) -> None:
    """Refuse rows that cannot be asked about, under their numbers in the data."""
    if not _says_which_rows(question):
        return
    for first in range(0, len(rows), CHECKED_TOGETHER):
        part = rows.take(slice(first, first + CHECKED_TOGETHER))
        about(question, part).check(model, part.values, part.labels, part.number)


def check_all_rows(question: Question, model: Model, source: Source) -> None:
    """Refuse rows that cannot be asked about, before any work on the others."""
    for rows in source.parts() if _says_which_rows(question) else ():
        check_rows(question, model, rows)


def _says_which_rows(question: Question) -> bool:
    """Whether a question has bounds or a domain, within which rows must be."""
    asked = question.perturbation
    if isinstance(asked, Box):
        return asked.domain is not None
    parts = asked.parts if isinstance(asked, All) else (asked,)
    sides = [side for part in parts for side in (part.low, part.high)]
    has_bounds = not all(isinstance(side, float) and math.isinf(side) for side in sides)
    return has_bounds or asked.domain is not None


def refuse_bounds_per_row(question: Question, asking: str) -> None:
    """Refuse bounds of each row's own, which parts of the rows cannot be told apart by."""
    bounds = [
        (side, getattr(part, name, 0.0))
        for part, side in ((question.perturbation, 1), (question.goal, 0))
        for name in ("low", "high")
    ]
    if any(np.ndim(bound) > most for most, bound in bounds):
        raise InvalidInput(
            f"{asking} asks the same question about every row, so bounds must not be given per row."
            " Ask treeproof.verify instead."
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are answered in one go, with their keys in the run.

    Rows that take longer than `patience_s` are given back, so that they keep no others waiting; for
    `first_guess` see `Query`. Such a row `is_alone` when it is asked about again.
    """

    rows: Rows
    key: NDArray[np.uint64]
    first_guess: tuple[float, float] | None = None
    patience_s: float = math.inf
    is_alone: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, selection: Any) -> "Batch":
        """Return a selection of the rows."""
        return replace(self, rows=self.rows.take(selection), key=self.key[selection])

    def alone(self, row: int) -> "Batch":
        """Return one of the rows, to be answered however long it takes."""
        return replace(self.take(slice(row, row + 1)), patience_s=math.inf, is_alone=True)


@dataclass(frozen=True, slots=True)
class Answer:
    """Results that follow each other in the order of a batch (`row` is not set), and their time.

    Rows that are `left` took longer than the batch had patience for; nothing is said of them.
    """

    pieces: list[Results]
    seconds: float
    left: NDArray[np.bool_]

    def finished(self, batch: Batch) -> list[Results]:
        """Results of the rows that are not left, under their numbers."""
        pieces, start = [], 0
        for piece in self.pieces:
            part = slice(start, start + len(piece))
            piece.row = batch.rows.number[part]
            piece.id = None if batch.rows.ids is None else batch.rows.ids[part]
            left = self.left[part]
            pieces.append(piece.take(~left) if left.any() else piece)
            start = part.stop
        return pieces


class BatchMaker:
    """Cuts the rows of a source into batches, leaving out those that are answered already.

    No batch has rows of two stages, see `Question.learning_stages`; `first` are the numbers of the
    rows of all stages but the last.
    """

    def __init__(
        self, source: Source, question: Question, header: dict[str, Any], found: Answered, path: Any
    ) -> None:
        self._source = source
        self._parts = source.parts()
        self._question = question
        self._header = header
        self._found = found
        self._path = path
        self._left: list[Rows] = []
        self._stages = question.learning_stages
        self.first: list[int] = []
        self.n_seen = 0

    @property
    def begins_stage(self) -> bool:
        """Whether the next batch may learn from all rows before it."""
        return bool(self._stages) and self.n_seen in (0, *self._stages)

    def next_batch(self, n_rows: int) -> Batch | None:
        """The next rows that are not answered, perhaps none in this stage; None at the end."""
        taken: list[Batch] = []
        n_taken = 0
        end = min((stage for stage in self._stages if stage > self.n_seen), default=math.inf)
        while n_taken < n_rows and self.n_seen < end:
            rows = self._take(int(min(n_rows - n_taken, end - self.n_seen)))
            if rows is None:
                break
            if end < math.inf:
                self.first += rows.number.tolist()
            taken.append(self._missing(rows))
            n_taken += len(taken[-1])
        if not taken:
            return None
        rows, keys = Rows.join([part.rows for part in taken]), [part.key for part in taken]
        return Batch(rows, np.concatenate(keys))

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
        keys = row_keys(self._header, rows)
        return Batch(rows, keys).take(self._found.missing(rows.number, keys, self._path))


@dataclass(slots=True)
class BatchSizer:
    """Sizes batches so that each takes `target_s`, by the cost that was measured.

    A size that is given and `is_fixed` stays. Nothing is known of the cost at first, so batches
    begin with one row.
    """

    target_s: float
    n_rows: int = 1
    is_fixed: bool = False

    def learn(self, n_rows: int, seconds: float) -> None:
        """Take in what a batch cost; growth is limited, since the next rows may be harder."""
        if self.is_fixed:
            return
        wanted = n_rows / max(seconds, 1e-6) * self.target_s
        self.n_rows = max(1, int(min(wanted, _GROWTH * self.n_rows, LARGEST_BATCH)))

    def patience_s(self, n_rows: int) -> float:
        """How long a row of a batch may take before it is asked about alone.

        Rows that take far longer than the others would keep them from the disk.
        """
        if self.is_fixed or n_rows == 1:
            return math.inf
        return max(_PATIENCE * self.target_s / n_rows, _LEAST_PATIENCE_S)


def answer_batch(model: Model, question: Question, batch: Batch) -> Answer:
    """Answer a batch in this thread; a row that fails is recorded, and the others go on."""
    began = time.perf_counter()
    # Sound: what a complete engine settles before a limit does not depend on the limit; all else is
    # asked again without it.
    in_haste = batch.patience_s < question.time_limit_s and question.is_settled_in_time
    asked = replace(question, time_limit_s=batch.patience_s) if in_haste else question
    pieces = _answer_in_parts(model, asked, batch, [len(batch), 1])
    left = np.zeros(len(batch), dtype=bool)
    if in_haste:
        left = np.concatenate([_ran_out_of_time(piece) for piece in pieces])
    return Answer(pieces, time.perf_counter() - began, left)


def _ran_out_of_time(results: Results) -> NDArray[np.bool_]:
    """Rows whose search, or whose evidence, a time limit ended."""
    texts = [results.reason] if results.evidence is None else [results.reason, results.evidence]
    late = UnknownReason.TIME_LIMIT.value
    return np.array([any(late in (text or "") for text in row) for row in zip(*texts, strict=True)])


def _answer_in_parts(
    model: Model, question: Question, batch: Batch, sizes: list[int]
) -> list[Results]:
    """Answer in parts of the first size; one that fails, again in parts of the next size."""
    pieces: list[Results] = []
    for start in range(0, len(batch), sizes[0]):
        part = batch.take(slice(start, start + sizes[0]))
        values, labels = part.rows.values, part.rows.labels
        asked = about(question, part.rows)
        try:
            answer = asked.answer(model, values, labels, first_guess=batch.first_guess)
            pieces.append(answer)
        except TreeproofError:
            raise  # about the question or its input, not about a row
        except Exception as error:
            if len(sizes) > 1:
                pieces += _answer_in_parts(model, question, part, sizes[1:])
            else:
                why = f"{type(error).__name__}: {error}"
                pieces.append(failed(model, question, part.rows, why))
    return pieces


def failed(model: Model, question: Question, rows: Rows, why: str) -> Results:
    """Record that rows failed, with the reason."""
    said = why.split("\n", 1)[0].rstrip(": ")
    reason = f"{UnknownReason.ROW_FAILED.value}: {said}"
    return about(question, rows).unanswered(model, rows.values, rows.labels, reason)
