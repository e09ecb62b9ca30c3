"""Dask: real worker processes, the same answers, failures that are said and survived."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier

import treeproof as tp
from tests.unit.runs.test_runs import assert_same
from treeproof.data.sources import Rows
from treeproof.runs import cluster as cluster_module
from treeproof.runs.batches import Batch
from treeproof.runs.cluster import DaskWorkers, _ModelPlugin, connected
from treeproof.runs.questions import Question

N_ROWS = 200


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
    workers = DaskWorkers(model, question, client)
    assert workers.n_at_once == 4
    numbers = np.arange(10)
    for _ in range(6):
        part = Rows(numbers, rows[0][:10], None)
        workers.submit(Batch(part, np.zeros(10, dtype=np.uint64), np.ones(10, dtype=bool)), 10)
    n_finished = 0
    while n_finished < 6:
        workers.wait()
        n_finished += workers.take() is not None
    name = workers._plugin
    models = client.run(lambda dask_worker: dask_worker.plugins[name].model.fingerprint)
    assert set(models.values()) == {model.fingerprint}
    assert len(models) == 2
    transfers = client.run(lambda dask_worker: len(dask_worker.transfer_incoming_log))
    assert sum(transfers.values()) == 0  # nothing goes from worker to worker
    workers.stop()


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
    model: tp.Model, rows: tuple[Any, Any], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import KilledWorker

    question = Question(kind="verify", perturbation=tp.LInf(0.1))
    workers = DaskWorkers(model, question, client)
    deadly = rows[0][3, 0]
    outcome = DaskWorkers._outcome
    sent: dict[str, Any] = {}
    send = DaskWorkers._send

    def remember(self: DaskWorkers, tasks: list[list[Rows]]) -> Any:
        futures = send(self, tasks)
        sent.update(zip([future.key for future in futures], tasks, strict=True))
        return futures

    def lost(self: DaskWorkers, future: Any) -> Any:
        # What the scheduler says when a task has cost it as many workers as it allows.
        if any((part.values[:, 0] == deadly).any() for part in sent[future.key]):
            return KilledWorker(future.key, None, 3)
        return outcome(self, future)

    monkeypatch.setattr(DaskWorkers, "_send", remember)
    monkeypatch.setattr(DaskWorkers, "_outcome", lost)
    part = Rows(np.arange(6), rows[0][:6], None)
    batch = Batch(part, np.zeros(6, dtype=np.uint64), np.ones(6, dtype=bool))
    workers.submit(batch, 6)
    finished = None
    while finished is None:
        workers.wait()
        finished = workers.take()
    found = tp.Results.join(finished[1].pieces)  # type: ignore[union-attr]
    assert found.reason[3] == "row failed: the workers that answered it were lost"
    expected = tp.verify(model, rows[0][:6], None, tp.LInf(0.1))
    others = np.arange(6) != 3
    np.testing.assert_array_equal(found.verdict[others], expected.verdict[others])
    workers.stop()


def test_errors_on_workers_are_sentences(
    model: tp.Model, rows: tuple[Any, Any], client: Client, tmp_path: Path
) -> None:
    with pytest.raises(tp.InvalidInput, match="'arithmetic' must be"):
        tp.run(model, *rows, client=client, arithmetic="whole")  # type: ignore[arg-type]
    question = Question(kind="verify", perturbation=tp.LInf(0.1))
    workers = DaskWorkers(model, question, client)
    workers._plugin = "another"  # which the workers do not have
    part = Rows(np.arange(6), rows[0][:6], None)
    workers.submit(Batch(part, np.zeros(6, dtype=np.uint64), np.ones(6, dtype=bool)), 6)
    workers.wait()
    finished = workers.take()
    assert finished is not None
    assert isinstance(finished[1], tp.InvalidInput)
    assert str(finished[1]).startswith("A Dask worker failed: ")
    workers.stop()


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
            tp.run(model, *rows, out=out, client=client, batch_rows=32, on_progress=gone)
        client.close(timeout=1)
    assert len(tp.load_results(out)) >= 64
    assert tp.run(model, *rows, out=out, resume=True).is_complete
    assert len(tp.load_results(out)) == N_ROWS


def test_short_batches_share_tasks_but_not_with_those_that_were_lost(
    model: tp.Model, rows: tuple[Any, Any], client: Client
) -> None:
    workers = DaskWorkers(model, Question(kind="verify", perturbation=tp.LInf(0.1)), client)
    batches = [
        Batch(
            Rows(np.arange(k, k + 10), rows[0][k : k + 10], None),
            np.zeros(10, dtype=np.uint64),
            np.ones(10, dtype=bool),
        )
        for k in range(0, 60, 10)
    ]

    def sizes(row_s: float, most_rows: int) -> list[int]:
        workers._row_s = cluster_module.Recent(row_s)
        for batch in batches:
            workers.submit(batch, most_rows)
        return [len(task) for task in workers._tasks()]

    assert sizes(1e-6, 1000) == [6]
    assert sizes(1e-6, 25) == [2, 2, 2]
    assert sizes(0.03, 1000) == [3, 3]
    assert sizes(0.06, 1000) == [1] * 6
    workers._tries[id(batches[2])] = 1
    assert sizes(1e-6, 1000) == [2, 1, 3]
    workers._tries.clear()
    workers._row_s = cluster_module.Recent(1e-6)
    for batch in batches:
        workers.submit(batch, 1000)
    found: dict[int, tp.Results] = {}
    while len(found) < len(batches):
        workers.wait()
        finished = workers.take()
        assert finished is not None
        found[int(finished[0].rows.number[0])] = finished[1].pieces[0]  # type: ignore[union-attr]
    expected = tp.verify(model, rows[0][:60], None, tp.LInf(0.1))
    together = tp.Results.join([found[k] for k in range(0, 60, 10)])
    np.testing.assert_array_equal(together.verdict, expected.verdict)
    np.testing.assert_array_equal(together.witness, expected.witness)
    workers.stop()
