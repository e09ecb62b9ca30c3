"""Batches answered by the workers of a Dask cluster.

Every worker has the model as a plugin, so that a task needs nothing that can be lost with a worker;
the scheduler runs the tasks of lost workers again.
"""

import asyncio
import contextlib
import logging
import time
import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import numpy as np

import treeproof
from treeproof.errors import InvalidInput, TreeproofError, require_backend
from treeproof.model.file_format import decode_ensemble, encode_ensemble
from treeproof.prediction import Model
from treeproof.runs.batches import Answer, Batch, answer_batch, failed
from treeproof.runs.executors import Finished
from treeproof.search.question import Question

_CONNECT_TIMEOUT_S = 10
_WORKERS_TIMEOUT_S = 60
_ALONE_TIMEOUT_S = 300
"""How long a run waits for new workers when all are lost."""

_FORGOTTEN_S = 30
"""After so long without an answer, batches that no worker knows of are sent again."""

_RETRIES = 3
"""How often the scheduler tries a task again that fails with an error."""

_LOOK_EVERY_S = 2.0

_SUSPECT_ROWS = 32
"""Rows that are asked about together after a batch of more has cost its workers."""


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
            self.model = Model(decode_ensemble(self._ensemble))

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


def _answer_here(plugin: str, question: Question, batch: Batch) -> Answer:
    """Answer a batch on a worker."""
    from distributed import get_worker

    return answer_batch(get_worker().plugins[plugin].loaded(), question, batch)


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Give a client of a running scheduler, such as ``tcp://scheduler:8786``."""
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
    """Wait until a cluster has a worker; refuse one that stays empty."""
    try:
        client.wait_for_workers(1, timeout=_WORKERS_TIMEOUT_S)
    except (TimeoutError, OSError) as error:
        raise InvalidInput(
            f"The Dask cluster must have a worker within {_WORKERS_TIMEOUT_S:g} s. Got none."
            f" Start one: dask worker {client.scheduler.address}."
        ) from error


class DaskExecutor:
    """Workers of a Dask cluster, by a connected `distributed.Client`."""

    target_s = 1.0

    def __init__(self, model: Model, question: Question, client: Any) -> None:
        require_backend("distributed", "dask")
        from distributed import WorkerPlugin, as_completed

        self._model = model
        self._question = question
        self._client = client
        self._n_threads, self._looked = 0, -_LOOK_EVERY_S
        self._heard = self._had_workers = time.monotonic()
        self._batches: dict[Any, Batch] = {}
        self._suspects: deque[Batch] = deque()
        self._tested: Any = None
        self._completed = as_completed(loop=client.loop, with_results=True, raise_errors=False)
        require_worker(client)
        self._plugin = f"treeproof-model-{uuid.uuid4().hex}"
        # Its class is one of Dask's only where Dask is installed.
        plugin = type("ModelPlugin", (_ModelPlugin, WorkerPlugin), {"__module__": __name__})
        client.register_plugin(plugin(self._plugin, encode_ensemble(model.ensemble)))

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
    def n_pending(self) -> int:
        """Batches that are submitted and not taken."""
        return len(self._batches) + len(self._suspects)

    def submit(self, batch: Batch) -> None:
        """Have a batch answered."""
        self._send(batch)

    def _send(self, batch: Batch) -> Any:
        future = self._client.submit(
            _answer_here, self._plugin, self._question, batch, pure=False, retries=_RETRIES
        )
        self._batches[future] = batch
        self._completed.add(future)
        return future

    def wait(self) -> None:
        """Wait until there may be something to take; a cluster that stays empty is refused."""
        news = self._completed.thread_condition
        with news:
            has_news = news.wait_for(self._completed.has_ready, _LOOK_EVERY_S)
        if not has_news:
            self._look_after_workers()

    def _look_after_workers(self) -> None:
        now = time.monotonic()
        try:
            processing = self._client.processing()
        except OSError:
            processing = {}
        if processing:
            self._had_workers = now
        elif now - self._had_workers > _ALONE_TIMEOUT_S:
            raise InvalidInput(
                f"The Dask cluster must have workers. It has had none for {_ALONE_TIMEOUT_S} s."
            )
        known = {key for keys in processing.values() for key in keys}
        is_forgotten = processing and not known & {future.key for future in self._batches}
        if is_forgotten and now - self._heard > _FORGOTTEN_S:
            self._heard = now
            batches, self._batches = list(self._batches.values()), {}
            for batch in batches:
                self.submit(batch)

    def take(self) -> Finished | None:
        """Give a finished batch, if there is one."""
        while self._completed.has_ready():
            future, outcome = next(self._completed)
            batch = self._batches.pop(future, None)
            if batch is None:
                continue  # it was sent again in the meantime
            self._heard = self._had_workers = time.monotonic()
            finished = self._judge(batch, outcome, is_tested=future is self._tested)
            if self._suspects and self._tested not in self._batches:
                self._tested = self._send(self._suspects.popleft())
            if finished is not None:
                return finished
        return None

    def _judge(self, batch: Batch, outcome: Any, *, is_tested: bool) -> Finished | None:
        """What is known of a batch now; None where it, or its parts, are sent again."""
        from distributed import KilledWorker

        if isinstance(outcome, Answer):
            return batch, outcome
        error = outcome[1] if isinstance(outcome, tuple) else outcome
        if isinstance(error, KilledWorker):
            # Batches that only waited on the lost workers are suspected, too. So suspects are sent
            # one after the other: in few parts, then row by row, until a single row is found to
            # cost all workers that it is given.
            if is_tested and len(batch) == 1:
                why = "the workers that answered it were lost"
                results = failed(self._model, self._question, batch.rows, why)
                return batch, Answer([results], 0.0, np.zeros(1, dtype=bool))
            size = _SUSPECT_ROWS if len(batch) > _SUSPECT_ROWS else 1
            parts = (slice(start, start + size) for start in range(0, len(batch), size))
            self._suspects.extend(batch.take(part) for part in parts)
            return None
        if not isinstance(error, CancelledError):
            return batch, _as_sentence(error)
        if self._client.status != "running":
            return batch, InvalidInput("The connection to the Dask scheduler was lost.")
        self.submit(batch)  # cancelled such as by a restart of the workers
        return None

    def stop(self) -> None:
        """Answer nothing more."""
        left = list(self._batches)
        self._batches.clear()
        self._suspects.clear()
        with contextlib.suppress(Exception):
            if left:
                self._client.cancel(left)
            self._client.unregister_worker_plugin(self._plugin)


def _as_sentence(error: BaseException) -> TreeproofError:
    if isinstance(error, TreeproofError):
        return error
    said = str(error).split("\n", 1)[0].rstrip(".")
    return InvalidInput(f"A Dask worker failed: {type(error).__name__}: {said}.")
