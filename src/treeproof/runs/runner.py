"""`Runner`: rows of a source, answered batch by batch into a run file that survives."""

import contextlib
import itertools
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from treeproof.data.sources import Source
from treeproof.errors import InvalidInput, TreeproofError
from treeproof.prediction import Model
from treeproof.query.arithmetic import summary_lines
from treeproof.results.results import Results
from treeproof.results.run_file import COMPLETE, UNDERWAY, load_results, replacing, row_records
from treeproof.results.summary import RunSummary
from treeproof.runs.batches import Answer, Batch, BatchMaker, BatchSizer
from treeproof.runs.questions import Question
from treeproof.runs.run_log import (
    NOTHING_FOUND,
    Found,
    RunLog,
    check_same,
    header_line,
    open_log,
)
from treeproof.runs.workers import ThreadWorkers, Workers

_SMALLEST_BATCH = 32
"""Rows that are worth a batch of their own."""

Progress = Callable[[int, int | None], None]
"""Called with the rows answered so far, and with all rows where that is known."""


@dataclass(slots=True)
class Run:
    """What a run found.

    Parameters
    ----------
    header : dict
        The model, the question and the versions.
    tally : RunSummary
        Counts and averages over all rows, those of earlier sittings included.
    path : path or None
        The run file.
    n_new : int
        Rows that this sitting answered.
    is_complete : bool
        False when Ctrl-C came before the last row.
    """

    header: dict[str, Any]
    tally: RunSummary
    path: Path | None
    n_new: int
    is_complete: bool

    def __len__(self) -> int:
        return self.tally.n_rows

    def summary(self) -> str:
        """Say in a few lines what was found."""
        if len(self) == 0:
            return "0 rows"
        return "\n".join(self.tally.lines() + summary_lines(self.header))

    def load(self) -> Results:
        """Read all answers into memory."""
        if self.path is None:
            raise InvalidInput("Only a run with a file can be loaded. This one had none.")
        return load_results(self.path)


@dataclass(slots=True)
class Runner:
    """Answers the rows of a source; `answer` does it, within `opened`.

    Attributes
    ----------
    model, question, source
        What is asked.
    out : path, optional
        The run file: JSON lines, or Parquet where it ends in .parquet or .pq.
    resume : bool
        Whether to go on with an earlier sitting.
    radii : sequence of float
        Radii at which the tally counts.
    keeps_records : bool
        Whether all records can be read after the run, also without `out`.
    first_rows : int
        How many rows of the lowest numbers are kept in memory.
    """

    model: Model
    question: Question
    source: Source
    out: Path | None = None
    resume: bool = False
    radii: Sequence[float] = ()
    keeps_records: bool = False
    first_rows: int = 0
    first: Results | None = None
    tally: RunSummary = None  # type: ignore[assignment] # made by `opened`
    header: dict[str, Any] = None  # type: ignore[assignment] # the same
    log: RunLog | None = None
    _found: Found = NOTHING_FOUND
    n_new: int = 0
    _is_packed: bool = False

    @contextlib.contextmanager
    def opened(self) -> Iterator["Runner"]:
        """Check the question, and open the run file."""
        look = next(iter(self.source.parts())).take(slice(0, 1))
        self.question.check(self.model.ensemble, look.values, look.number)
        self.header = self.question.header(self.model, look.values, look.labels)
        self.header["data"] = self.source.describe()
        self.tally = RunSummary(self.question.kind == "radius", self.radii)
        with contextlib.ExitStack() as stack:
            if self.out is not None:
                path = log_path(self.out)
                if self.resume and path != self.out and not path.exists() and self.out.exists():
                    _unpack(self.out, path, self.header)
                self.log, self._found = open_log(path, self.header, self.tally, resume=self.resume)
            elif self.keeps_records:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="treeproof-"))
                self.log, _ = open_log(
                    Path(folder) / "run.jsonl", self.header, self.tally, durable=False
                )
            if self.log is not None:
                stack.callback(self.log.close)
                self.header = self.log.header
            yield self

    def answer(
        self,
        workers: Workers,
        *,
        on_progress: Progress | None = None,
        batch_rows: int | None = None,
    ) -> Run:
        """Answer every row that is not answered yet.

        Parameters
        ----------
        workers : Workers
            Who answers.
        on_progress : callable, optional
            See `Progress`.
        batch_rows : int, optional
            Rows per batch, fewer towards the end; by default as many as take a while.
        """
        sizer = BatchSizer(
            self.question.unit_rows, workers.target_s, batch_rows or 0, batch_rows is not None
        )
        maker = BatchMaker(self.source, self.question, self.header, self._found, self.out)
        total = self.source.n_rows

        def largest(n_seen: int) -> int:
            """Smaller batches towards the end, so that all workers end at about the same time."""
            if total is None:
                return sys.maxsize
            return max((total - n_seen) // (2 * workers.n_threads), _SMALLEST_BATCH)

        is_complete = False
        try:
            batches = ((batch, largest(maker.n_seen)) for batch in maker.batches(sizer, largest))
            for done, seconds in self._rounds(workers, batches):
                sizer.learn(done, seconds)
                if on_progress is not None:
                    on_progress(self.tally.n_rows, total)
            is_complete = True
        except KeyboardInterrupt:
            while (finished := workers.take()) is not None:
                if isinstance(finished[1], Answer):
                    self._write(finished[0], finished[1])
            if self.tally.n_rows == 0:
                raise
        except (TreeproofError, OSError) as error:
            raise self._with_what_is_kept(error) from error
        finally:
            workers.stop()
        if is_complete:
            self._finish()
        path = self.out if is_complete or self.out is None else log_path(self.out)
        return Run(self.header, self.tally, path, self.n_new, is_complete)

    def _rounds(
        self, workers: Workers, batches: Iterator[tuple[Batch, int]]
    ) -> Iterator[tuple[int, float]]:
        """Keep all workers busy; write what they finish, and say how much and how long."""
        n_under_way = 0
        while True:
            while n_under_way < workers.n_at_once:
                more = next(batches, None)
                if more is None:
                    break
                workers.submit(*more)
                n_under_way += 1
            if n_under_way == 0:
                return
            workers.wait()
            # From here on an answer is either still with the workers, or in file and summary.
            with _interrupts_put_off():
                finished = workers.take()
                if finished is None:
                    continue
                batch, outcome = finished
                n_under_way -= 1
                if isinstance(outcome, BaseException):
                    raise outcome
                self._write(batch, outcome)
            yield len(batch), outcome.seconds

    def _write(self, batch: Batch, answer: Answer) -> None:
        pieces, start = [], 0
        for piece in answer.pieces:
            part = slice(start, start + len(piece))
            piece.row = batch.rows.number[part]
            wanted = batch.wanted[part]
            pieces.append(piece if wanted.all() else piece.take(wanted))
            start = part.stop
        if self.log is not None:
            self.log.append(pieces, batch.key[batch.wanted])
        for piece in pieces:
            if len(piece):
                self.tally.add(piece)
                self._keep_first(piece)
        self.n_new += int(batch.wanted.sum())

    def _keep_first(self, piece: Results) -> None:
        if self.first_rows == 0:
            return
        if self.first is not None:
            if len(self.first) == self.first_rows and piece.row.min() > self.first.row.max():
                return
            piece = Results.join([self.first, piece])
        order = np.argsort(piece.row, kind="stable")[: self.first_rows]
        self.first = piece.take(order)

    def _with_what_is_kept(self, error: Exception) -> InvalidInput:
        sentence = str(error) if isinstance(error, TreeproofError) else f"The run ended: {error}."
        if self.out is not None and self.tally.n_rows:
            sentence += (
                f" The {self.tally.n_rows} rows that are finished are in"
                f" '{log_path(self.out)}'; --resume goes on from there."
            )
        return InvalidInput(sentence)

    def _finish(self) -> None:
        if self.log is None:
            return
        if self.out is not None and self.log.path != self.out:
            from treeproof.results.run_parquet import save_parquet

            self.header |= {"state": COMPLETE, "n_rows": len(self.log)}
            save_parquet(self.header, self.log.records(), self.out)
            self.log.path.unlink()
            self._is_packed = True
            return
        self.log.set_state(COMPLETE)

    def records(self) -> Iterator[dict[str, Any]]:
        """Row records in the order of the rows, where they were kept."""
        if self.out is not None and self._is_packed:
            from treeproof.results.run_parquet import parquet_records

            return parquet_records(self.out)[1]
        return iter(()) if self.log is None else self.log.records()

    def first_records(self, n_rows: int | None) -> Iterator[dict[str, Any]]:
        """Records of the rows of the lowest numbers; of all rows without a number."""
        if n_rows is None or self.log is not None:
            return itertools.islice(self.records(), n_rows)
        return iter(()) if self.first is None else row_records(self.first)


@contextlib.contextmanager
def _interrupts_put_off() -> Iterator[None]:
    """Let Ctrl-C wait until answers are both in the file and in the summary."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        before(*came[0])


def log_path(out: Path) -> Path:
    """File that rows are appended to: the run file itself, or one beside a Parquet file."""
    if out.suffix.lower() in (".parquet", ".pq"):
        return out.with_name(out.name + ".part.jsonl")
    return out


def _unpack(out: Path, path: Path, header: dict[str, Any]) -> None:
    """Write the rows of a Parquet run file as JSON lines, to be continued."""
    from treeproof.results.run_parquet import parquet_records

    there, records = parquet_records(out)
    check_same(there, header, out)
    with replacing(path) as file:
        file.write(header_line(there | {"state": UNDERWAY, "n_rows": 0}))
        for record in records:
            file.write(msgspec.json.encode(record) + b"\n")


def workers_for(
    model: Model, question: Question, *, n_jobs: int = -1, client: Any = None
) -> Workers:
    """Threads of this process, or the workers of a Dask cluster."""
    if client is None:
        return ThreadWorkers(model, question, n_jobs)
    from treeproof.runs.cluster import DaskWorkers

    return DaskWorkers(model, question, client)
