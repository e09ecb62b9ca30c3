"""`run`: rows of a source, answered batch by batch into a run file that survives."""

import contextlib
import heapq
import itertools
import logging
import math
import operator
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from treeproof.api import loaded
from treeproof.data.sources import ArraySource, FileSource, Source
from treeproof.errors import InvalidInput, TreeproofError
from treeproof.prediction import Model
from treeproof.query.arithmetic import Arithmetic, summary_lines
from treeproof.query.goals import Goal
from treeproof.query.perturbations import (
    Ball,
    Box,
    LInf,
    PerRow,
    as_perturbation,
    asks_radius,
    in_order,
    refuse_as_labels,
    warn_of_categories,
)
from treeproof.results.numbers import ColumnFormats
from treeproof.results.results import Results
from treeproof.results.run_file import COMPLETE, UNDERWAY, load_results, row_records, table_of
from treeproof.results.summary import RunSummary
from treeproof.runs.batches import (
    Answer,
    BatchMaker,
    BatchSizer,
    check_all_rows,
    refuse_bounds_per_row,
)
from treeproof.runs.executors import Executor, Finished, ThreadExecutor
from treeproof.runs.run_log import (
    NONE_ANSWERED,
    Answered,
    Record,
    RunLog,
    check_same,
    open_log,
    run_header,
    write_log,
)
from treeproof.search.progress import checked_progress, progress_bar
from treeproof.search.question import Question

if TYPE_CHECKING:
    from treeproof.engines.base import Engine

_LOG = logging.getLogger("treeproof.runs")

_BLOCK = 4096
"""Answers that are held at a time where all are looked at."""

Progress = Callable[[int, int | None], None]
"""Called with the rows answered so far, and with all rows where that is known."""


def run(
    model: Any,
    data: Any,
    y: Any = None,
    perturbation: float | Ball | Box | None = None,
    *,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    n_jobs: int = -1,
    label: str | None = None,
    id: str | None = None,
    rows: str | None = None,
    engine: "str | Engine" = "exact",
    goal: Goal | None = None,
    arithmetic: Arithmetic = "float64",
    attacker_class: Any = None,
    time_limit_s: float = math.inf,
    node_limit: int = 2**62,
    memory_limit_mb: float = 4096.0,
    evidence: bool = False,
    client: Any = None,
    radii: Sequence[float] = (),
    batch_rows: int | None = None,
    progress: bool | Progress = False,
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
    perturbation : float, LInf, L1, L2, L0, Cost or Box, optional
        How a row may change. With a radius or budget, or as a box, rows are verified; otherwise the
        least radius or budget is what is asked for. By default a plain LInf.
    out : str or path, optional
        The run file: JSON lines, or Parquet where it ends in .parquet. Finished rows are on disk
        within about a second.
    resume : bool
        Resume the run in `out`: rows that it has are left out. Another model or question is
        refused.
    n_jobs : int
        Threads; -1 for all cores.
    label, id, rows : str, optional
        Columns of the labels, and of what the user knows rows by, and a range such as ``0:500``,
        for data files.
    engine, goal, arithmetic, attacker_class, time_limit_s, node_limit, memory_limit_mb, evidence
        See `verify`.
    client : distributed.Client, optional
        A Dask cluster that answers instead of threads of this process.
    radii : sequence of float
        Radii at which proved rows are counted in `Run.tally`.
    batch_rows : int, optional
        Rows per batch; by default as many as take a small part of a second.
    progress : bool or callable
        Show a bar of the rows that are answered, or call a function with their number and that of
        all rows (or None, where that is not known).

    Returns
    -------
    Run
        Summary and file; `Run.load` reads all answers.
    """
    asked = loaded(model)
    refuse_as_labels(y)
    ball = LInf() if perturbation is None else as_perturbation(perturbation)
    if isinstance(ball, LInf | Box):  # without names, so that workers need no data frames
        warn_of_categories(ball, asked.feature_names, asked.ensemble.is_categorical)
        ball = in_order(ball, asked.feature_names, asked.n_features)
    progress = checked_progress(progress)
    kind: Literal["radius", "verify"] = "radius" if asks_radius(ball) else "verify"
    question = Question(
        kind=kind, perturbation=ball, engine=engine, goal=goal, arithmetic=arithmetic,
        attacker_class=attacker_class, time_limit_s=time_limit_s, node_limit=node_limit,
        memory_limit_mb=memory_limit_mb, evidence=evidence,
    )  # fmt: skip
    limits = None if isinstance(ball, Box) else ball.eps
    own = limits if isinstance(limits, PerRow) else PerRow()
    source: Source
    if isinstance(data, str | PathLike):
        source = FileSource(asked.ensemble, data, label=label, rows=rows, id=id, eps=own.column)
    else:
        source = ArraySource(asked.ensemble, data, y, own.values)
    path = None if out is None else Path(out)
    runner = Runner(asked, question, source, out=path, resume=resume, radii=radii)
    if client is not None:
        from treeproof.runs.cluster import require_worker

        require_worker(client)  # before an earlier run file is replaced
    with contextlib.ExitStack() as stack:
        stack.enter_context(runner.opened())
        show = stack.enter_context(progress_bar(source.n_rows)) if progress is True else progress
        return runner.answer(n_jobs, client, on_progress=show or None, batch_rows=batch_rows)


@dataclass(slots=True, repr=False)
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

    def __repr__(self) -> str:
        return f"<treeproof.Run: {self.summary().splitlines()[0]}>"

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
    of the lowest numbers are kept in memory. `check` is called with the header before any file is
    touched, and may refuse it.
    """

    model: Model
    question: Question
    source: Source
    out: Path | None = None
    resume: bool = False
    radii: Sequence[float] = ()
    keeps_records: bool = False
    first_rows: int = 0
    check: Callable[[dict[str, Any]], None] | None = None
    first: list[dict[str, Any]] = field(default_factory=list)
    tally: RunSummary = None  # type: ignore[assignment] # made by `opened`
    header: dict[str, Any] = None  # type: ignore[assignment] # the same
    log: RunLog | None = None
    _found: Answered = NONE_ANSWERED
    _learned: dict[int, list[float]] = field(default_factory=dict)
    n_new: int = 0

    @contextlib.contextmanager
    def opened(self) -> Iterator["Runner"]:
        """Check the question, and open the run file."""
        refuse_bounds_per_row(self.question, "A run")
        check_all_rows(self.question, self.model, self.source)
        start = next(iter(self.source.parts()))
        look = start.take(slice(0, 1))
        self.header = run_header(self.question, self.model, look)
        self.header["data"] = self.source.describe()
        # Witnesses are shown alike in every batch.
        self.question = replace(self.question, formats=list(ColumnFormats(start.values)))
        self.tally = RunSummary(self.question.kind == "radius", self.radii)
        if self.check is not None:
            self.check(self.header)
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
        sizer = BatchSizer(executor.target_s, batch_rows or 1, batch_rows is not None)
        total = self.source.n_rows
        _LOG.info(
            "%s: %d rows are answered already, of %s; %d at a time",
            self.out or "run",
            self.tally.n_rows,
            "an unknown number" if total is None else total,
            executor.n_threads,
        )
        is_complete = False
        try:
            for _ in self._writes(executor, sizer):
                if on_progress is not None:
                    on_progress(self.tally.n_rows, total)
            is_complete = True
        except KeyboardInterrupt:
            with _interrupts_put_off():
                self._write(_take_all(executor))
            if self.tally.n_rows == 0:
                raise
        except (TreeproofError, OSError) as error:
            raise self._with_what_is_kept(error) from error
        finally:
            executor.stop()
        if is_complete:
            self._finish()
            _LOG.info("%d rows are answered, %d of them now", self.tally.n_rows, self.n_new)
        path = self.out if is_complete or self.out is None else log_path(self.out)
        return Run(self.header, self.tally, path, self.n_new, is_complete)

    def _writes(self, executor: Executor, sizer: BatchSizer) -> Iterator[None]:
        """Keep the executor busy, and write what it finishes as soon as it does."""
        maker = BatchMaker(self.source, self.question, self.header, self._found, self.out)
        has_more, guess = True, None
        while has_more or executor.n_pending:
            # One batch per thread, and one that waits for it.
            while has_more and executor.n_pending < 2 * executor.n_threads:
                if maker.begins_stage:
                    if executor.n_pending:
                        break  # what is learned must not depend on who is faster
                    guess = self._first_guess(maker.first)
                batch = maker.next_batch(sizer.n_rows)
                has_more = batch is not None
                if batch is not None and len(batch):
                    patience_s = sizer.patience_s(len(batch))
                    executor.submit(replace(batch, first_guess=guess, patience_s=patience_s))
            if not executor.n_pending:
                continue
            executor.wait()
            # From here on an answer is either still with the executor, or in file and summary.
            with _interrupts_put_off():
                finished = _take_all(executor)
                self._write(finished)
            for batch, answer in finished:
                if isinstance(answer, BaseException):
                    raise answer
                if not batch.is_alone:
                    sizer.learn(len(batch), answer.seconds)
                for row in np.flatnonzero(answer.left):
                    number, patience_s = batch.rows.number[row], batch.patience_s
                    _LOG.info("row %d takes more than %.3g s: alone", number, patience_s)
                    executor.submit(batch.alone(int(row)))
            if finished:
                yield

    def _first_guess(self, numbers: list[int]) -> tuple[float, float]:
        """Where to look first, by the first rows of the run; all of them are answered."""
        unknown = [number for number in numbers if number not in self._learned]
        if unknown and self.log is not None:  # they were answered by an earlier process
            self._learn(table_of(self.header, self.log.read(unknown)))
        known = [self._learned[number] for number in numbers if number in self._learned]
        table = np.array(known, dtype=np.float64).reshape(-1, 2)
        return self.question.first_guess(table[:, 0], table[:, 1])

    def _learn(self, piece: Results) -> None:
        """Keep what the rows of all stages but the last tell, which are written first."""
        eq6_radius = piece.statistics.get("eq6_radius")
        is_first = len(self._learned) < max(self.question.learning_stages, default=0)
        if is_first and eq6_radius is not None:
            pairs = np.column_stack([piece.upper, np.nan_to_num(eq6_radius)])
            self._learned.update(zip(piece.row.tolist(), pairs.tolist(), strict=True))

    def _write(self, finished: list[Finished]) -> None:
        pieces, keys = [], []
        for batch, answer in finished:
            if isinstance(answer, Answer):
                pieces += answer.finished(batch)
                keys.append(batch.key[~answer.left])
        if not pieces:
            return
        n_rows = sum(map(len, pieces))
        _LOG.debug("%d rows, %d in all", n_rows, self.tally.n_rows + n_rows)
        if self.log is not None:
            self.log.append(pieces, np.concatenate(keys))
        for piece in pieces:
            if len(piece):
                self.tally.add(piece)
                self.n_new += len(piece)
                self._learn(piece)
                if self.first_rows:
                    self._keep_first(piece)

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

    def records(
        self,
        keep: Callable[[Record], bool] | None = None,
        key: Callable[[Record], Any] | None = None,
    ) -> Iterator[Record]:
        """Row records where they were kept: those that a function keeps, in the order of a key."""
        if self.log is None:
            return iter(())
        if self.out is not None and not self.log.path.exists():  # packed by `_finish`
            from treeproof.results.run_parquet import parquet_records

            records = filter(keep or (lambda record: True), parquet_records(self.out)[1])
            return records if key is None else iter(sorted(records, key=key))
        return self.log.records(keep, key)

    def tables(
        self,
        keep: Callable[[Record], bool] | None = None,
        key: Callable[[Record], Any] | None = None,
    ) -> Iterator[Results]:
        """Answers of such records, some thousands at a time."""
        records = self.records(keep, key)
        while block := list(itertools.islice(records, _BLOCK)):
            yield table_of(self.header, block)

    def first_records(self, n_rows: int | None) -> Iterator[dict[str, Any]]:
        """Records of the rows of the lowest numbers; of all rows without a number."""
        if n_rows is None or self.log is not None:
            return itertools.islice(self.records(), n_rows)
        return iter(self.first)


def _take_all(executor: Executor) -> list[Finished]:
    """Everything that is finished, so that it is written in one go."""
    finished = []
    while (one := executor.take()) is not None:
        finished.append(one)
    return finished


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
