"""Processes and workers killed at random moments: the file in the end is that of a quiet run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import treeproof as tp
from tests.faults.killed_runs import cost_s, save_model, save_rows
from tests.unit.runs.test_runs import assert_same
from treeproof.results.run_file import read_records

ROOT = Path(__file__).resolve().parents[2]


def prepare(folder: Path, n_rows: int) -> tp.Results:
    """Model and rows, and what an undisturbed run finds about them."""
    save_model(folder / "model.treeproof")
    save_rows(folder / "rows.npz", n_rows)
    quiet = folder / "quiet.jsonl"
    model = tp.load(folder / "model.treeproof")
    return tp.run(model, folder / "rows.npz", None, tp.LInf(0.05), out=quiet, n_jobs=1).load()


def kill_at_random(folder: Path, out: Path, n_kills: int, seed: int) -> int:
    """Start the run again and again, killing it each time; return how often it was killed."""
    random = np.random.default_rng(seed)
    whole = (folder / "quiet.jsonl").stat().st_size
    kills = 0
    while kills < n_kills:
        program = [sys.executable, "-m", "tests.faults.killed_runs", folder, out, "0.02"]
        process = subprocess.Popen(list(map(str, program)), cwd=ROOT)
        if random.random() < 0.8:
            # By what is written and not by the clock, so that all lives together are shorter than
            # the run on a busy machine, too.
            size = size_of(out) + random.uniform(0.0, whole / n_kills)
            while process.poll() is None and size_of(out) <= size:
                time.sleep(0.002)
        else:
            time.sleep(float(random.uniform(0.0, 0.5)))
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            break  # it was done before
        kills += 1
        if out.exists():
            left = tp.load_results(out)  # readable after every kill
            assert len(set(left.row.tolist())) == len(left)
    return kills


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def check_killed_process(folder: Path, n_rows: int, n_kills: int) -> None:
    expected = prepare(folder, n_rows)
    out = folder / "run.jsonl"
    kills = kill_at_random(folder, out, n_kills, seed=n_kills)
    assert kills == n_kills
    run = tp.run(
        folder / "model.treeproof",
        folder / "rows.npz",
        None,
        tp.LInf(0.05),
        out=out,
        resume=True,
    )
    print(f"{kills} kills, {run.n_new} of {n_rows} rows left for the last life")
    assert_same(run.load(), expected)
    assert sum(1 for _ in read_records(out)) == n_rows + 1  # no row twice


def test_a_killed_process_loses_nothing_that_it_wrote(tmp_path: Path) -> None:
    check_killed_process(tmp_path, n_rows=1500, n_kills=3)


@pytest.mark.slow
def test_a_process_killed_twenty_times(tmp_path: Path) -> None:
    check_killed_process(tmp_path, n_rows=20_000, n_kills=20)


LATEST_S = 2.0
"""After this a finished row must be on disk, on a machine that has other things to do, too."""


def check_killed_with_slow_rows(folder: Path, n_rows: int, n_kills: int, kind: str) -> None:
    """Kill a run whose rows take very different times; what had ended before is in the file."""
    save_model(folder / "model.treeproof")
    save_rows(folder / "rows.npz", n_rows)
    ball = tp.LInf() if kind == "radius" else tp.LInf(0.05)
    question = (folder / "model.treeproof", folder / "rows.npz", None, ball)
    expected = tp.run(*question, out=folder / "quiet.jsonl", n_jobs=1).load()
    random = np.random.default_rng(n_kills)
    number = {repr(float(x)): row for row, x in enumerate(np.load(folder / "rows.npz")["X"][:, 0])}
    out, diary = folder / "run.jsonl", folder / "diary.txt"
    diary.touch()
    # All lives together should take about as long as the run.
    seconds = sum(cost_s(row) for row in np.load(folder / "rows.npz")["X"]) / 2 / n_kills
    lost: list[int] = []
    late = 0
    for _ in range(n_kills):
        program = [sys.executable, "-m", "tests.faults.killed_runs", folder, out, kind]
        process = subprocess.Popen(list(map(str, program)), cwd=ROOT)
        size = diary.stat().st_size
        while process.poll() is None and diary.stat().st_size <= size:
            time.sleep(0.005)  # imports and loading
        time.sleep(float(random.uniform(0.0, 2.0 * seconds)))
        killed = time.time()
        process.send_signal(signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            break
        ended = {}
        for line in diary.read_text().splitlines():
            value, when = line.split()
            ended[number[value]] = float(when)
        left = {record["row"] for record, _ in read_records(out) if record["record"] == "row"}
        missing = {row: when for row, when in ended.items() if row not in left}
        lost.append(len(missing))
        late += sum(1 for when in missing.values() if when < killed - LATEST_S)
        diary.write_text("")  # a row that was lost may be lost again in a later life
    run = tp.run(*question, out=out, resume=True)
    print(
        f"{kind}: {len(lost)} kills, {sum(lost)} answered rows lost in all, {max(lost)} at most at"
        f" once, {late} of them more than {LATEST_S:g} s old;"
        f" {run.n_new} of {n_rows} rows left for the last life"
    )
    assert len(lost) == n_kills
    assert late == 0
    assert_same(run.load(), expected)
    assert sum(1 for _ in read_records(out)) == n_rows + 1  # no row twice


def test_a_killed_run_with_slow_rows(tmp_path: Path) -> None:
    check_killed_with_slow_rows(tmp_path, n_rows=250, n_kills=2, kind="radius")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["radius", "verify"])
def test_a_run_with_slow_rows_killed_fifty_times(tmp_path: Path, kind: str) -> None:
    check_killed_with_slow_rows(tmp_path, n_rows=2500, n_kills=50, kind=kind)


def check_killed_workers(folder: Path, n_rows: int, n_kills: int) -> None:
    import dask
    from distributed import Client, LocalCluster, Status

    expected = prepare(folder, n_rows)
    random = np.random.default_rng(n_kills)
    kill_times = sorted(random.uniform(0.1, 0.9, n_kills) * n_rows)
    killed: list[int] = []

    with (
        # A local cluster gives up workers that are away for long; a real one starts new ones.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):

        def kill_some(done: int, _: int | None) -> None:
            if len(killed) < n_kills and done >= kill_times[len(killed)]:
                # A worker that dies while it starts is not started again by its nanny.
                alive = [
                    nanny.pid
                    for nanny in cluster.workers.values()
                    if nanny.process is not None and nanny.process.status is Status.running
                ]
                if alive:
                    victim = int(random.choice(alive))
                    os.kill(victim, signal.SIGKILL)
                    killed.append(victim)

        run = tp.run(
            folder / "model.treeproof",
            folder / "rows.npz",
            None,
            tp.LInf(0.05),
            out=folder / "run.jsonl",
            client=client,
            batch_rows=50,
            progress=kill_some,
        )
    assert len(killed) == n_kills
    assert_same(run.load(), expected)
    assert sum(1 for _ in read_records(folder / "run.jsonl")) == n_rows + 1


def test_batches_of_killed_workers_are_run_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("CRITICAL"):
        check_killed_workers(tmp_path, n_rows=1500, n_kills=2)


@pytest.mark.slow
def test_workers_killed_twenty_times(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("CRITICAL"):
        check_killed_workers(tmp_path, n_rows=20_000, n_kills=20)


@pytest.mark.parametrize("n_signals", [1, 2])
def test_an_interrupted_command_keeps_what_is_finished(tmp_path: Path, n_signals: int) -> None:
    """One Ctrl-C, or an impatient second one: status 130, and a file that goes on."""
    save_model(tmp_path / "model.treeproof")
    save_rows(tmp_path / "rows.npz", 600)
    model, rows, out = (tmp_path / name for name in ("model.treeproof", "rows.npz", "run.jsonl"))
    expected = tp.run(model, rows, None, tp.LInf(0.05), out=tmp_path / "quiet.jsonl").load()
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from pathlib import Path; from tests.faults.killed_runs import make_rows_slow;"
        f"make_rows_slow(Path({str(tmp_path / 'diary.txt')!r}));"
        "from treeproof.cli import run; run()"
    )
    words = ["verify", str(model), str(rows), "--eps", "0.05", "--out", str(out), "--jobs", "2"]
    process = subprocess.Popen([sys.executable, "-c", program, *words], cwd=ROOT)
    while process.poll() is None and len(_rows_of(out)) < 20:
        time.sleep(0.01)
    before = _rows_of(out)
    for _ in range(n_signals):
        process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert _rows_of(out) >= before
    run = tp.run(model, rows, None, tp.LInf(0.05), out=out, resume=True)
    assert run.n_new < 600 - 20 + 1
    assert_same(run.load(), expected)


def _rows_of(path: Path) -> set[int]:
    if not path.exists():
        return set()
    return {record["row"] for record, _ in read_records(path) if record["record"] == "row"}
