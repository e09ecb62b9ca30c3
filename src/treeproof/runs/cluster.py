"""The model of a run on the workers of a Dask cluster, as a plugin that the scheduler keeps."""

import asyncio
import contextlib
import logging
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import treeproof
from treeproof.data.sources import Rows
from treeproof.errors import InvalidInput, TreeproofError, require_backend
from treeproof.model.ensemble import Ensemble
from treeproof.model.file_format import load_saved, save_ensemble
from treeproof.prediction import Model
from treeproof.runs.batches import Answer, Batch, answer_batch, failed
from treeproof.runs.questions import Question
from treeproof.runs.workers import Finished


def _packed(ensemble: Ensemble) -> bytes:
    """A model as the bytes of its file, which give the same model bit for bit."""
    with tempfile.TemporaryDirectory(prefix="treeproof-") as folder:
        path = Path(folder) / "model.treeproof"
        save_ensemble(ensemble, path)
        return path.read_bytes()


def _unpacked(content: bytes) -> Ensemble:
    with tempfile.TemporaryDirectory(prefix="treeproof-") as folder:
        path = Path(folder) / "model.treeproof"
        path.write_bytes(content)
        return load_saved(path)


class _ModelPlugin:
    """Holds the model of a run on a worker."""

    def __init__(self, name: str, ensemble: bytes) -> None:
        self.name = name
        self.idempotent = False
        self._ensemble = ensemble
        self._version = treeproof.__version__
        self.model: Model | None = None

    def setup(self, worker: Any) -> None:
        """Unpack the model when the worker starts."""
        del worker
        if self._version == treeproof.__version__:
            self.model = Model(_unpacked(self._ensemble))

    def teardown(self, worker: Any) -> None:
        """Nothing to close."""

    def loaded(self) -> Model:
        """The model; an error where its version of treeproof is another one."""
        if self.model is None:
            raise InvalidInput(
                f"Workers must have treeproof {self._version}, as the process that asks. Got"
                f" {treeproof.__version__}."
            )
        return self.model


def model_plugin(name: str, ensemble: Ensemble) -> Any:
    """The plugin as one of Dask's, whose class is known only where Dask is installed."""
    from distributed import WorkerPlugin

    kind = type("ModelPlugin", (_ModelPlugin, WorkerPlugin), {"__module__": __name__})
    return kind(name, _packed(ensemble))


_CONNECT_TIMEOUT_S = 10
_WORKERS_TIMEOUT_S = 60
_ALONE_TIMEOUT_S = 300
"""How long a run waits for new workers when all are lost."""

_FETCH_TIMEOUT_S = 30
_FORGOTTEN_S = 30
"""After so long without an answer, batches that no worker knows of are sent again."""

_TRIES = 3
"""How often a batch is sent again after the scheduler gave it up."""

_LOOK_EVERY_S = 2.0

_MOST_SHARED = 16
"""Most batches that share a task."""

_TOGETHER_S = 0.2
"""How long answers are waited for that can be fetched together; less than workers have ahead."""


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Give a client of a running scheduler, such as ``tcp://scheduler:8786``.

    Parameters
    ----------
    address : str
        Where the scheduler listens.
    """
    require_backend("distributed", "dask")
    from distributed import Client

    try:
        # A client that fails to connect takes long to give up; a bare connection does not. In a
        # thread of its own, since notebooks run an event loop in theirs.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, _try_connection(address)).result()
        client = Client(address, timeout=_CONNECT_TIMEOUT_S, set_as_default=False)
    except Exception as error:  # what listens there may be anything, and answer anything
        said = str(error).split("\n", 1)[0].rstrip(".") or "there was no answer"
        if isinstance(error, MemoryError):  # its first bytes were taken for a length
            said = "what answers there is no scheduler"
        raise InvalidInput(
            f"The Dask scheduler '{address}' must answer within {_CONNECT_TIMEOUT_S:g} s, but"
            f" cannot be reached: {said}. Give its address as tcp://HOST:PORT; the port is 8786"
            " unless the scheduler says another one."
        ) from error
    try:
        yield client
    finally:
        # Tasks under way keep sending messages for a moment, which nobody waits for any more.
        logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
        client.close(timeout=_CONNECT_TIMEOUT_S)


async def _try_connection(address: str) -> None:
    from distributed import Security
    from distributed.comm import connect

    arguments = Security().get_connection_args("client")
    # Its own timeout is about the connection only: what answers nothing would be waited for.
    async with asyncio.timeout(_CONNECT_TIMEOUT_S):
        comm = await connect(address, timeout=_CONNECT_TIMEOUT_S, **arguments)
    await comm.close()


def require_worker(client: Any) -> None:
    """Wait until a cluster has a worker; refuse one that stays empty.

    Parameters
    ----------
    client : distributed.Client
        A connected client.
    """
    try:
        client.wait_for_workers(1, timeout=_WORKERS_TIMEOUT_S)
    except (TimeoutError, OSError) as error:
        raise InvalidInput(
            f"The Dask cluster must have a worker within {_WORKERS_TIMEOUT_S:g} s. Got none."
            f" Start one: dask worker {client.scheduler.address}."
        ) from error


@dataclass(slots=True)
class Recent:
    """A mean of numbers in which the latest ones count most.

    Attributes
    ----------
    value : float
        The mean; what is assumed until there is a number.
    is_known : bool
        Whether there was one.
    """

    value: float
    is_known: bool = False

    def learn(self, number: float) -> None:
        """Take in a number."""
        self.value = 0.5 * (self.value + number) if self.is_known else number
        self.is_known = True


def _answer_here(plugin: str, question: Question, parts: list[Rows]) -> list[Answer]:
    """Answer batches on a worker."""
    from distributed import get_worker

    model = get_worker().plugins[plugin].loaded()
    return [answer_batch(model, question, rows) for rows in parts]


class DaskWorkers:
    """Workers of a Dask cluster; see the top of the module.

    Parameters
    ----------
    model, question
        What is asked.
    client : distributed.Client
        A connected client.
    """

    target_s = 1.0

    def __init__(self, model: Model, question: Question, client: Any) -> None:
        require_backend("distributed", "dask")
        self._model = model
        self._question = question
        self._client = client
        self._run = uuid.uuid4().hex
        self._n_tasks = 0
        self._to_send: list[Batch] = []
        self._most_rows = 0
        self._done: deque[tuple[Any, list[Batch]]] = deque()
        self._news = threading.Condition()
        self._fetched: deque[tuple[Batch, Answer | BaseException]] = deque()
        self._under_way: dict[str, tuple[Any, list[Batch]]] = {}
        self._tries: dict[int, int] = {}
        self._n_threads, self._looked = 0, -_LOOK_EVERY_S
        self._batch_s, self._row_s = Recent(self.target_s), Recent(self.target_s)
        require_worker(client)
        self._plugin = f"treeproof-model-{self._run}"
        client.register_plugin(model_plugin(self._plugin, model.ensemble))

    @property
    def n_threads(self) -> int:
        """Threads of the cluster, which may grow and shrink."""
        now = time.monotonic()
        if now - self._looked > _LOOK_EVERY_S:
            self._looked = now
            with contextlib.suppress(OSError):
                self._n_threads = sum(self._client.nthreads().values())
        return max(1, self._n_threads)

    @property
    def n_at_once(self) -> int:
        """One batch per thread, and one that waits there; more of those that share a task."""
        shared = min(max(int(self.target_s / max(self._batch_s.value, 1e-3)), 1), _MOST_SHARED)
        return 2 * self.n_threads * shared

    def submit(self, batch: Batch, most_rows: int) -> None:
        """Have a batch answered; it is sent, together with others, by the next `wait`."""
        self._to_send.append(batch)
        self._most_rows = most_rows

    def _send_all(self) -> None:
        tasks = self._tasks()
        futures = self._send([[batch.rows for batch in task] for task in tasks]) if tasks else []
        for future, task in zip(futures, tasks, strict=True):
            self._under_way[str(future.key)] = (future, task)
            future.add_done_callback(partial(self._note, task))

    def _tasks(self) -> list[list[Batch]]:
        """Batches to send, short ones together: a task costs everyone some milliseconds."""
        batches, self._to_send = self._to_send, []
        most_rows = min(self._most_rows, int(self.target_s / self._row_s.value))
        tasks: list[list[Batch]] = []
        for batch in batches:
            # One that was lost before goes alone: it may be what costs the workers.
            alone = id(batch) in self._tries or not tasks or id(tasks[-1][0]) in self._tries
            if alone or sum(map(len, tasks[-1])) + len(batch) > most_rows:
                tasks.append([])
            tasks[-1].append(batch)
        return tasks

    def _note(self, task: list[Batch], future: Any) -> None:
        with self._news:
            self._done.append((future, task))
            self._news.notify_all()

    def _send(self, tasks: list[list[Rows]]) -> list[Any]:
        """Send tasks in one message: messages cost more than what they say."""
        numbers = range(self._n_tasks, self._n_tasks + len(tasks))
        self._n_tasks += len(tasks)
        futures: list[Any] = self._client.map(
            _answer_here,
            [self._plugin] * len(tasks),
            [self._question] * len(tasks),
            tasks,
            key=[f"treeproof-batch-{self._run}-{number}" for number in numbers],
            pure=False,
        )
        return futures

    def wait(self) -> None:
        """Wait until there may be something to take; a cluster that stays empty is refused."""
        if self._fetched:
            return
        self._send_all()
        started = alone_since = time.monotonic()
        while not self._are_done(1, _LOOK_EVERY_S):
            now = time.monotonic()
            try:
                processing = self._client.processing()
            except OSError:
                processing = {}
            if processing:
                alone_since = now
            if now - alone_since > _ALONE_TIMEOUT_S:
                raise InvalidInput(
                    f"The Dask cluster must have workers. It has had none for {_ALONE_TIMEOUT_S} s."
                )
            known = {str(key) for keys in processing.values() for key in keys}
            if now - started > _FORGOTTEN_S and processing and not known & set(self._under_way):
                self._send_again()
                started = now
        # Workers have other tasks that wait there, so the answers of several may come together.
        self._are_done(len(self._under_way) // 2, _TOGETHER_S)

    def _are_done(self, n_tasks: int, seconds: float) -> bool:
        """Whether so many tasks are done, or are so before the time is over."""
        with self._news:
            return self._news.wait_for(lambda: len(self._done) >= n_tasks, seconds)

    def _send_again(self) -> None:
        """Send everything under way anew, since no worker knows of it any more."""
        left, self._under_way = self._under_way, {}
        for future, task in left.values():
            future.release()
            self._to_send += task
        self._send_all()

    def take(self) -> Finished | None:
        """Give a finished batch, if there is one."""
        if not self._fetched:
            self._fetch()
        if not self._fetched:
            return None
        batch, outcome = self._fetched.popleft()
        if not isinstance(outcome, BaseException):
            self._tries.pop(id(batch), None)
            self._batch_s.learn(outcome.seconds)
            self._row_s.learn(outcome.seconds / max(len(batch), 1))
            return batch, outcome
        if isinstance(outcome, TreeproofError):
            return batch, outcome
        if not _is_loss(outcome):
            said = str(outcome).split("\n", 1)[0].rstrip(".")
            return batch, InvalidInput(f"A Dask worker failed: {type(outcome).__name__}: {said}.")
        if self._client.status != "running":
            return batch, InvalidInput("The connection to the Dask scheduler was lost.")
        self._tries[id(batch)] = self._tries.get(id(batch), 0) + 1
        if self._tries[id(batch)] > _TRIES:
            return batch, self._row_by_row(batch)
        self._to_send.append(batch)
        return None

    def _fetch(self) -> None:
        """Have what all tasks that are done found, whatever it is, sent here."""
        done = []
        while self._done:
            future, task = self._done.popleft()
            if self._under_way.pop(str(future.key), None) is not None:
                done.append((future, task))
        found = self._gathered([future for future, _ in done])
        for (future, task), answers in zip(done, found, strict=True):
            outcome = self._outcome(future) if answers is None else answers
            if isinstance(outcome, BaseException):
                self._fetched.extend((batch, outcome) for batch in task)
            else:
                self._fetched.extend(zip(task, outcome, strict=True))
            future.release()

    def _gathered(self, futures: list[Any]) -> list[list[Answer] | None]:
        """Fetch the results of several tasks in one message; None where each must be asked for."""

        async def gathered() -> list[list[Answer]]:
            async with asyncio.timeout(_FETCH_TIMEOUT_S):
                found: list[list[Answer]] = await self._client.gather(futures, asynchronous=True)
                return found

        if len(futures) > 1:
            with contextlib.suppress(Exception):  # of one of them; which one is found out later
                return list(self._client.sync(gathered))
        return [None] * len(futures)

    def _outcome(self, future: Any) -> list[Answer] | BaseException:
        try:
            # A result may be lost with its worker just now; then its batches are sent again.
            answers: list[Answer] = future.result(timeout=_FETCH_TIMEOUT_S)
        except Exception as error:
            return error
        finally:
            future.release()
        return answers

    def _row_by_row(self, batch: Batch) -> Answer:
        """Ask about every row alone; one whose workers are lost, too, is recorded as failed."""
        began = time.perf_counter()
        pieces = []
        for i in range(len(batch)):
            row = batch.rows.take(slice(i, i + 1))
            outcome = self._outcome(self._send([[row]])[0])
            if not isinstance(outcome, BaseException):
                pieces += outcome[0].pieces
            elif _is_loss(outcome):
                why = "the workers that answered it were lost"
                pieces.append(failed(self._model, self._question, row, why))
            else:
                raise outcome
        return Answer(pieces, time.perf_counter() - began)

    def stop(self) -> None:
        """Answer nothing more."""
        left = [future for future, _ in self._under_way.values()]
        self._under_way.clear()
        self._to_send.clear()
        with contextlib.suppress(Exception):
            if left:
                self._client.cancel(left)
            self._client.unregister_worker_plugin(self._plugin)


def _is_loss(error: BaseException) -> bool:
    """Whether a batch failed because workers went away."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker

    return isinstance(error, KilledWorker | CancelledError | OSError)
