"""Dask: real worker processes, the same answers, failures that are said and survived."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, Future, LocalCluster
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier

import treeproof as tp
from tests.unit.runs.test_runs import assert_same
from treeproof.data.sources import Rows
from treeproof.runs import cluster as cluster_module
from treeproof.runs.batches import Batch
from treeproof.runs.cluster import DaskExecutor, _ModelPlugin, connected
from treeproof.search.question import Question

N_ROWS = 200


def batch_of(X: Any, first: int, last: int) -> Batch:
    n = last - first
    rows = Rows(np.arange(first, last), X[first:last], None)
    return Batch(rows, np.zeros(n, dtype=np.uint64), np.ones(n, dtype=bool))


def take_all(executor: DaskExecutor) -> dict[int, Any]:
    """Outcomes by the number of the first row."""
    found = {}
    while executor.n_pending:
        executor.wait()
        finished = executor.take()
        if finished is not None:
            found[int(finished[0].rows.number[0])] = finished[1]
    return found


@pytest.fixture(scope="module")
def rows() -> tuple[Any, Any]:
    return make_classification(N_ROWS, 6, n_informative=4, random_state=5)


@pytest.fixture(scope="module")
def model(rows: tuple[Any, Any]) -> tp.Model:
    return tp.load(GradientBoostingClassifier(n_estimators=6, random_state=0).fit(*rows))


@pytest.fixture(scope="module")
def local() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        yield cluster


@pytest.fixture
def client(local: LocalCluster) -> Iterator[Client]:
    with Client(local, set_as_default=False) as client:
        yield client


@pytest.mark.parametrize("batch_rows", [None, 32, 100])
@pytest.mark.parametrize("ball", [tp.LInf(), tp.LInf(0.1)])
def test_answers_are_those_of_one_machine_bit_for_bit(
    model: tp.Model,
    rows: tuple[Any, Any],
    client: Client,
    tmp_path: Path,
    batch_rows: int | None,
    ball: tp.LInf,
) -> None:
    here = tp.run(model, *rows, ball, out=tmp_path / "here.jsonl", n_jobs=2, node_limit=3)
    there = tp.run(
        model,
        *rows,
        ball,
        out=tmp_path / "there.jsonl",
        client=client,
        batch_rows=batch_rows,
        node_limit=3,
    )
    assert_same(there.load(), here.load())
    assert there.load().header == here.load().header


def test_both_workers_take_part_and_get_the_model_once(
    model: tp.Model, rows: tuple[Any, Any], client: Client
) -> None:
    question = Question(kind="verify", perturbation=tp.LInf(0.1))
    executor = DaskExecutor(model, question, client)
    assert executor.n_threads == 2
    for _ in range(6):
        executor.submit(batch_of(rows[0], 0, 10))
    take_all(executor)
    name = executor._plugin
    models = client.run(lambda dask_worker: dask_worker.plugins[name].model.fingerprint)
    assert set(models.values()) == {model.fingerprint}
    assert len(models) == 2
    transfers = client.run(lambda dask_worker: len(dask_worker.transfer_incoming_log))
    assert sum(transfers.values()) == 0  # nothing goes from worker to worker
    executor.stop()


def test_the_shell_finds_the_scheduler(
    model: tp.Model, rows: tuple[Any, Any], local: LocalCluster, tmp_path: Path
) -> None:
    from click.testing import CliRunner

    from treeproof.cli.main import main

    X, y = rows
    model.save(tmp_path / "model.treeproof")
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    files = [str(tmp_path / name) for name in ("model.treeproof", "rows.npz")]
    out = tmp_path / "run.jsonl"
    words = ["radius", *files, "--dask", local.scheduler_address, "--out", str(out)]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.stderr
    expected = tp.run(model, X, y, out=tmp_path / "here.jsonl").load()
    assert_same(tp.load_results(out), expected)
    text = out.read_bytes().replace(b'"complete"', b'"underway"', 1)
    out.write_bytes(text[: len(text) // 2])
    assert CliRunner().invoke(main, [*words, "--resume"]).exit_code == 0
    assert_same(tp.load_results(out), expected)


def test_the_scheduler_is_found_where_an_event_loop_runs(local: LocalCluster) -> None:
    async def notebook() -> None:  # its cells run inside a loop
        with connected(local.scheduler_address) as client:
            assert client.nthreads()

    with ThreadPoolExecutor(1) as pool:  # in this thread other tests may run a loop
        pool.submit(asyncio.run, notebook()).result()


def test_a_row_that_kills_its_workers_is_recorded(
    model: tp.Model, rows: tuple[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    deadly = rows[0][3, 0]

    class Deadly(Question):
        __slots__ = ()

        def answer(self, model: tp.Model, X: Any, y: Any = None, **more: Any) -> tp.Results:
            if (X[:, 0] == deadly).any():
                os.kill(os.getpid(), signal.SIGKILL)
            return Question.answer(self, model, X, y, **more)

    with (
        caplog.at_level("CRITICAL"),
        # A local cluster gives up workers that are away for long; a real one starts new ones.
        dask.config.set(
            {
                "distributed.scheduler.allowed-failures": 0,
                "distributed.deploy.lost-worker-timeout": "1 hour",
            }
        ),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        executor = DaskExecutor(model, Deadly(kind="verify", perturbation=tp.LInf(0.1)), client)
        executor.submit(batch_of(rows[0], 0, 6))
        answers = take_all(executor)
        executor.stop()
    found = tp.Results.join([answers[row].pieces[0] for row in range(6)])
    assert found.reason[3] == "row failed: the workers that answered it were lost"
    expected = tp.verify(model, rows[0][:6], None, tp.LInf(0.1))
    others = np.arange(6) != 3
    np.testing.assert_array_equal(found.verdict[others], expected.verdict[others])


def test_batches_that_were_cancelled_or_forgotten_are_sent_again(
    model: tp.Model, rows: tuple[Any, Any], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = DaskExecutor(model, Question(kind="verify", perturbation=tp.LInf(0.1)), client)
    executor.submit(batch_of(rows[0], 0, 10))
    client.cancel(list(executor._batches))
    assert len(take_all(executor)[0].pieces[0]) == 10
    monkeypatch.setattr(cluster_module, "_FORGOTTEN_S", 0.0)
    monkeypatch.setattr(cluster_module, "_LOOK_EVERY_S", 0.1)
    executor._batches[Future("treeproof-unknown", client)] = batch_of(rows[0], 0, 10)
    assert len(take_all(executor)[0].pieces[0]) == 10
    executor.stop()


def test_errors_on_workers_are_sentences(
    model: tp.Model, rows: tuple[Any, Any], client: Client, tmp_path: Path
) -> None:
    with pytest.raises(tp.InvalidInput, match="'arithmetic' must be"):
        tp.run(model, *rows, client=client, arithmetic="whole")  # type: ignore[arg-type]
    question = Question(kind="verify", perturbation=tp.LInf(0.1))
    executor = DaskExecutor(model, question, client)
    executor._plugin = "another"  # which the workers do not have
    executor.submit(batch_of(rows[0], 0, 6))
    error = take_all(executor)[0]
    assert isinstance(error, tp.InvalidInput)
    assert str(error).startswith("A Dask worker failed: ")
    executor.stop()


def test_other_versions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = _ModelPlugin("name", b"")
    monkeypatch.setattr(tp, "__version__", "0.0")
    plugin.setup(None)
    with pytest.raises(tp.InvalidInput, match=r"Workers must have treeproof .* Got 0\.0"):
        plugin.loaded()


def test_a_cluster_without_workers_is_refused(
    model: tp.Model, rows: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "_WORKERS_TIMEOUT_S", 0.2)
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as empty,
        connected(empty.scheduler_address) as client,
        pytest.raises(tp.InvalidInput, match=r"must have a worker within 0\.2 s"),
    ):
        tp.run(model, *rows, client=client)


def test_a_scheduler_that_goes_away_ends_the_run_and_keeps_what_is_finished(
    model: tp.Model, rows: tuple[Any, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "run.jsonl"
    cluster = LocalCluster(n_workers=1, processes=False, dashboard_address=":0")
    client = Client(cluster.scheduler_address, set_as_default=False, timeout=2)

    def gone(done: int, _: int | None) -> None:
        if done >= 64 and cluster.status.name == "running":
            cluster.close()
            time.sleep(0.5)

    with caplog.at_level("CRITICAL"):
        with pytest.raises(tp.InvalidInput, match=r"rows that are finished are in"):
            tp.run(model, *rows, out=out, client=client, batch_rows=32, progress=gone)
        client.close(timeout=1)
    assert len(tp.load_results(out)) >= 64
    assert tp.run(model, *rows, out=out, resume=True).is_complete
    assert len(tp.load_results(out)) == N_ROWS
