"""`run`: rows of a source, answered batch by batch into a run file that survives."""

import contextlib
import heapq
import itertools
import operator
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from treeproof.api import AskOptions, loaded, refuse_others
from treeproof.data.sources import ArraySource, FileSource, Source
from treeproof.errors import InvalidInput, TreeproofError
from treeproof.prediction import Model
from treeproof.query.arithmetic import summary_lines
from treeproof.query.perturbations import Box, LInf, in_order, warn_of_categories
from treeproof.results.results import Results
from treeproof.results.run_file import COMPLETE, UNDERWAY, load_results, row_records
from treeproof.results.summary import RunSummary
from treeproof.runs.batches import Answer, Batch, BatchMaker, BatchSizer, check_rows, unit_rows
from treeproof.runs.executors import Executor, ThreadExecutor
from treeproof.runs.run_log import (
    NOTHING_FOUND,
    Found,
    RunLog,
    check_same,
    open_log,
    run_header,
    write_log,
)
from treeproof.search.question import Question

if TYPE_CHECKING:
    from treeproof.engines.base import Engine

_SMALLEST_BATCH = 32
"""Rows that are worth a batch of their own."""

Progress = Callable[[int, int | None], None]
"""Called with the rows answered so far, and with all rows where that is known."""


class RunOptions(AskOptions, total=False):
    """Options of `run`, which explains them."""

    engine: "str | Engine"
    label: str | None
    rows: str | None
    client: Any
    radii: Sequence[float]
    batch_rows: int | None
    on_progress: Progress | None


def run(
    model: Any,
    data: Any,
    y: Any = None,
    perturbation: "LInf | Box | None" = None,
    *,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    n_jobs: int = -1,
    **options: Unpack[RunOptions],
) -> "Run":
    """Answer one question about many rows, into a file that survives whatever happens.

    Parameters
    ----------
    model : Model, model object or path
        A loaded model, or anything that `load` takes.
    data : str, path, array-like or data frame
        A data file, read in chunks, or rows in memory.
    y : array-like, optional
        Labels of rows in memory.
    perturbation : LInf or Box, optional
        How a row may change. With a radius, or as a box, rows are verified; otherwise the radius
        is what is asked for.
    out : str or path, optional
        The run file: JSON lines, or Parquet where it ends in .parquet. Finished rows are on disk
        within about a second.
    resume : bool
        Resume the run in `out`: rows that it has are left out. Another model or question is
        refused.
    n_jobs : int
        Threads; -1 for all cores.
    **options
        The engine and the options of `verify`, such as ``time_limit_s`` or ``evidence``, and:

        * ``label``, ``rows`` (str): column of the labels, and a range such as ``0:500``, for data
          files.
        * ``client`` (distributed.Client): a Dask cluster that answers instead of threads of this
          process.
        * ``radii`` (sequence of float): radii at which proved rows are counted in `Run.tally`.
        * ``batch_rows`` (int): rows per batch, fewer towards the end; by default as many as take
          about half a second.
        * ``on_progress`` (callable): called with the rows answered so far, and with all rows (or
          None, where that is not known).

    Returns
    -------
    Run
        Summary and file; `Run.load` reads all answers.
    """
    refuse_others("run", options, RunOptions)
    asked = loaded(model)
    ball = LInf() if perturbation is None else perturbation
    if isinstance(ball, LInf | Box):  # without names, so that workers need no data frames
        warn_of_categories(ball, asked.feature_names, asked.ensemble.is_categorical)
        ball = in_order(ball, asked.feature_names, asked.n_features)
    client, radii = options.pop("client", None), options.pop("radii", ())
    batch_rows, on_progress = options.pop("batch_rows", None), options.pop("on_progress", None)
    label, rows = options.pop("label", None), options.pop("rows", None)
    kind: Literal["radius", "verify"] = "verify"
    if isinstance(ball, LInf) and ball.eps is None:
        kind = "radius"
    question = Question(kind=kind, perturbation=ball, **options)  # type: ignore[misc] # popped
    source: Source
    if isinstance(data, str | PathLike):
        source = FileSource(asked.ensemble, data, label=label, rows=rows)
    else:
        source = ArraySource(asked.ensemble, data, y)
    path = None if out is None else Path(out)
    runner = Runner(asked, question, source, out=path, resume=resume, radii=radii)
    if client is not None:
        from treeproof.runs.cluster import require_worker

        require_worker(client)  # before an earlier run file is replaced
    with runner.opened():
        return runner.answer(n_jobs, client, on_progress=on_progress, batch_rows=batch_rows)


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

    Without `out`, `keeps_records` keeps all records until the run is closed, and `first_rows` rows
    of the lowest numbers are kept in memory.
    """

    model: Model
    question: Question
    source: Source
    out: Path | None = None
    resume: bool = False
    radii: Sequence[float] = ()
    keeps_records: bool = False
    first_rows: int = 0
    first: list[dict[str, Any]] = field(default_factory=list)
    tally: RunSummary = None  # type: ignore[assignment] # made by `opened`
    header: dict[str, Any] = None  # type: ignore[assignment] # the same
    log: RunLog | None = None
    _found: Found = NOTHING_FOUND
    n_new: int = 0

    @contextlib.contextmanager
    def opened(self) -> Iterator["Runner"]:
        """Check the question, and open the run file."""
        _refuse_bounds_per_row(self.question)
        look = next(iter(self.source.parts())).take(slice(0, 1))
        check_rows(self.question, self.model.ensemble, look)
        self.header = run_header(self.question, self.model, look.values, look.labels)
        self.header["data"] = self.source.describe()
        self.tally = RunSummary(self.question.kind == "radius", self.radii)
        with contextlib.ExitStack() as stack:
            path = None
            if self.out is not None:
                path = log_path(self.out)
                if self.resume and path != self.out and not path.exists() and self.out.exists():
                    _unpack(self.out, path, self.header)
            elif self.keeps_records:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="treeproof-"))
                path = Path(folder) / "run.jsonl"
            if path is not None:
                is_kept = self.out is not None
                log = open_log(path, self.header, self.tally, resume=self.resume, durable=is_kept)
                self.log, self._found = stack.enter_context(log)
                self.header = self.log.header
            yield self

    def answer(
        self,
        n_jobs: int,
        client: Any,
        *,
        on_progress: Progress | None = None,
        batch_rows: int | None = None,
    ) -> Run:
        """Answer every row that is not answered yet, by threads or by a Dask cluster."""
        executor: Executor
        if client is None:
            executor = ThreadExecutor(self.model, self.question, n_jobs)
        else:
            from treeproof.runs.cluster import DaskExecutor

            executor = DaskExecutor(self.model, self.question, client)
        sizer = BatchSizer(
            unit_rows(self.question), executor.target_s, batch_rows or 0, batch_rows is not None
        )
        total = self.source.n_rows
        is_complete = False
        try:
            for done, seconds in self._finished_batches(executor, sizer, total):
                sizer.learn(done, seconds)
                if on_progress is not None:
                    on_progress(self.tally.n_rows, total)
            is_complete = True
        except KeyboardInterrupt:
            while (finished := executor.take()) is not None:
                if isinstance(finished[1], Answer):
                    self._write(finished[0], finished[1])
            if self.tally.n_rows == 0:
                raise
        except (TreeproofError, OSError) as error:
            raise self._with_what_is_kept(error) from error
        finally:
            executor.stop()
        if is_complete:
            self._finish()
        path = self.out if is_complete or self.out is None else log_path(self.out)
        return Run(self.header, self.tally, path, self.n_new, is_complete)

    def _finished_batches(
        self, executor: Executor, sizer: BatchSizer, total: int | None
    ) -> Iterator[tuple[int, float]]:
        """Keep the executor busy; write what it finishes, and say how much and how long."""
        maker = BatchMaker(self.source, self.question, self.header, self._found, self.out)
        has_more = True
        while has_more or executor.n_pending:
            # One batch per thread, and one that waits for it.
            while has_more and executor.n_pending < 2 * executor.n_threads:
                n_rows = sizer.n_rows
                if total is not None:
                    # Smaller towards the end, so that all threads end at about the same time.
                    share = (total - maker.n_seen) // (2 * executor.n_threads)
                    n_rows = min(n_rows, max(share, _SMALLEST_BATCH))
                batch = maker.next_batch(n_rows)
                has_more = batch is not None
                if batch is not None:
                    executor.submit(batch)
            if not executor.n_pending:
                return
            executor.wait()
            # From here on an answer is either still with the executor, or in file and summary.
            with _interrupts_put_off():
                finished = executor.take()
                if finished is None:
                    continue
                batch, outcome = finished
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
                if self.first_rows:
                    self._keep_first(piece)
        self.n_new += int(batch.wanted.sum())

    def _keep_first(self, piece: Results) -> None:
        if len(self.first) < self.first_rows or piece.row.min() < self.first[-1]["row"]:
            records = itertools.chain(self.first, row_records(piece))
            self.first = heapq.nsmallest(self.first_rows, records, operator.itemgetter("row"))

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
            return
        self.log.set_state(COMPLETE)

    def records(self) -> Iterator[dict[str, Any]]:
        """Row records in the order of the rows, where they were kept."""
        if self.log is None:
            return iter(())
        if self.out is not None and not self.log.path.exists():  # packed by `_finish`
            from treeproof.results.run_parquet import parquet_records

            return parquet_records(self.out)[1]
        return self.log.records()

    def first_records(self, n_rows: int | None) -> Iterator[dict[str, Any]]:
        """Records of the rows of the lowest numbers; of all rows without a number."""
        if n_rows is None or self.log is not None:
            return itertools.islice(self.records(), n_rows)
        return iter(self.first)


def _refuse_bounds_per_row(question: Question) -> None:
    bounds = [
        (side, getattr(part, name, 0.0))
        for part, side in ((question.perturbation, 1), (question.goal, 0))
        for name in ("low", "high")
    ]
    if any(np.ndim(bound) > most for most, bound in bounds):
        raise InvalidInput(
            "A run asks the same question about every row, so bounds must not be given per row."
            " Ask treeproof.verify instead."
        )


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
    write_log(path, there | {"state": UNDERWAY, "n_rows": 0}, records)
