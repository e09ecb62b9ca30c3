"""Batch executors: threads of this process. `runs/cluster.py` has the one for Dask clusters."""

import queue
import threading
from typing import Protocol

from treeproof.prediction import Model, thread_count
from treeproof.runs.batches import Answer, Batch, answer_batch
from treeproof.search.question import Question

Finished = tuple[Batch, Answer | BaseException]


class Executor(Protocol):
    """Answers batches, several at a time, in any order.

    Waiting and taking are two steps, so that Ctrl-C while waiting loses nothing.
    """

    target_s: float
    """Seconds that a batch should take."""

    @property
    def n_threads(self) -> int:
        """Batches that are answered at the same time."""

    @property
    def n_pending(self) -> int:
        """Batches that are submitted and not taken."""

    def submit(self, batch: Batch) -> None:
        """Have a batch answered."""

    def wait(self) -> None:
        """Wait until there may be something to take."""

    def take(self) -> Finished | None:
        """Give a finished batch, if there is one; an error is given back, not raised."""

    def stop(self) -> None:
        """Answer nothing more; what has not begun is dropped."""


class ThreadExecutor:
    """Threads of this process; compiled code runs without the interpreter's lock.

    They are daemons: a process that is told to end does not wait for rows under way.
    """

    target_s = 0.1

    def __init__(self, model: Model, question: Question, n_jobs: int) -> None:
        self._model = model
        self._question = question
        self._to_do: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Finished] = queue.SimpleQueue()
        self._arrived = threading.Semaphore(0)
        self._is_stopped = False
        self.n_threads = thread_count(n_jobs)
        self.n_pending = 0
        for _ in range(self.n_threads):
            threading.Thread(target=self._work, daemon=True).start()

    def submit(self, batch: Batch) -> None:
        """Have a batch answered."""
        self.n_pending += 1
        self._to_do.put(batch)

    def wait(self) -> None:
        """Wait until there may be something to take."""
        self._arrived.acquire()

    def take(self) -> Finished | None:
        """Give a finished batch, if there is one."""
        try:
            finished = self._done.get_nowait()
        except queue.Empty:
            return None
        self.n_pending -= 1
        return finished

    def stop(self) -> None:
        """Answer nothing more."""
        self._is_stopped = True
        for _ in range(self.n_threads):
            self._to_do.put(None)

    def _work(self) -> None:
        while True:
            batch = self._to_do.get()
            if batch is None or self._is_stopped:
                return
            outcome: Answer | BaseException
            try:
                outcome = answer_batch(self._model, self._question, batch)
            except BaseException as error:  # handed to the thread that waits for the batch
                outcome = error
            self._done.put((batch, outcome))
            self._arrived.release()
