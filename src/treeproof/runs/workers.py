"""Who answers batches: threads of this process. `runs/cluster.py` has the workers of Dask."""

import queue
import threading
from typing import Protocol

from treeproof.prediction import Model, thread_count
from treeproof.runs.batches import Answer, Batch, answer_batch
from treeproof.runs.questions import Question

Finished = tuple[Batch, Answer | BaseException]


class Workers(Protocol):
    """Answers batches, several at a time, in any order."""

    target_s: float
    """Seconds that a batch should take."""

    @property
    def n_threads(self) -> int:
        """Batches that are answered at the same time."""

    @property
    def n_at_once(self) -> int:
        """Batches that should be under way for all workers to be busy."""

    def submit(self, batch: Batch, most_rows: int) -> None:
        """Have a batch answered, by one who answers at most so many rows one after the other."""

    def wait(self) -> None:
        """Wait until there may be something to take."""

    def take(self) -> Finished | None:
        """Give a finished batch, if there is one; an error is given back, not raised."""

    def stop(self) -> None:
        """Answer nothing more; what has not begun is dropped."""


class ThreadWorkers:
    """Threads of this process; compiled code runs without the interpreter's lock.

    They are daemons: a process that is told to end does not wait for rows under way.
    """

    target_s = 0.5

    def __init__(self, model: Model, question: Question, n_jobs: int) -> None:
        self._model = model
        self._question = question
        self._to_do: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Finished] = queue.SimpleQueue()
        # Waiting and taking are two steps, so that Ctrl-C while waiting loses nothing.
        self._arrived = threading.Semaphore(0)
        self._is_stopped = False
        self._n_threads = thread_count(n_jobs)
        for _ in range(self.n_threads):
            threading.Thread(target=self._work, daemon=True).start()

    @property
    def n_threads(self) -> int:
        """Threads that answer."""
        return self._n_threads

    @property
    def n_at_once(self) -> int:
        """One batch per thread, and one that waits for it."""
        return 2 * self.n_threads

    def submit(self, batch: Batch, most_rows: int) -> None:
        """Have a batch answered."""
        del most_rows  # batches wait for all threads, not for one
        self._to_do.put(batch)

    def wait(self) -> None:
        """Wait until there may be something to take."""
        self._arrived.acquire()

    def take(self) -> Finished | None:
        """Give a finished batch, if there is one."""
        try:
            return self._done.get_nowait()
        except queue.Empty:
            return None

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
                outcome = answer_batch(self._model, self._question, batch.rows)
            except BaseException as error:  # handed to the thread that waits for the batch
                outcome = error
            self._done.put((batch, outcome))
            self._arrived.release()
