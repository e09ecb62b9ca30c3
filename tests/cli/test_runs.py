"""Runs from the shell: resuming, merging, threat model files, and what goes wrong."""

import json
import os
import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import treeproof as tp
from tests.unit.model.test_file_format import binary_stump
from tests.unit.runs.test_runs import assert_same
from treeproof.model.file_format import save_ensemble

Run = Callable[..., Result]
N_ROWS = 300


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.npy"
    np.save(path, np.linspace(0.0, 1.5, N_ROWS).reshape(-1, 1))
    return path


@pytest.fixture
def words(saved_model: Path, rows: Path, tmp_path: Path) -> tuple[Any, ...]:
    return ("radius", saved_model, rows, "--out", tmp_path / "run.jsonl")


def test_a_run_that_was_cut_off_is_resumed(run: Run, words: Any, tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    first = run(*words)
    assert first.exit_code == 0, first.stderr
    whole = tp.load_results(out)
    text = out.read_bytes().replace(b'"state":"complete"', b'"state":"underway"')
    out.write_bytes(text[: len(text) // 2])
    refused = run(*words)
    assert refused.exit_code == 2
    assert "holds a run that is not complete. Go on with --resume, or delete it" in refused.stderr
    resumed = run(*words, "--resume")
    assert resumed.exit_code == 0, resumed.stderr
    assert_same(tp.load_results(out), whole)
    shown = [line for line in resumed.stdout.splitlines() if not line.startswith("time")]
    assert shown == [line for line in first.stdout.splitlines() if not line.startswith("time")]
    nothing_new = run(*words, "--resume", "--at", "0.25", "--format", "json")
    assert json.loads(nothing_new.stdout)["summary"]["rows"] == N_ROWS
    assert json.loads(nothing_new.stdout)["summary"]["share_verified"] == pytest.approx(
        1.0 - whole.verified_error(0.25)
    )


def test_resuming_begins_a_run_where_there_is_none(run: Run, words: Any, tmp_path: Path) -> None:
    result = run(*words, "--resume")
    assert result.exit_code == 0
    assert len(tp.load_results(tmp_path / "run.jsonl")) == N_ROWS


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            ["--frozen", "0"],
            "must be about the same question. Its perturbation.frozen is [] there, and [0] here.",
        ),
        (["--node-limit", "7"], "Its node_limit is null there, and 7 here."),
        (["--arithmetic", "real"], 'Its arithmetic is "float64" there, and "real" here'),
    ],
)
def test_another_question_is_not_resumed(
    run: Run, words: Any, tmp_path: Path, more: list[str], sentence: str
) -> None:
    run(*words)
    before = (tmp_path / "run.jsonl").read_bytes()
    result = run(*words, "--resume", *more)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Give another file with --out, or delete that one" in result.stderr
    assert (tmp_path / "run.jsonl").read_bytes() == before


@pytest.mark.parametrize("arithmetic", ["real", "float64"])
def test_runs_know_the_deployed_model_in_every_arithmetic(
    run: Run, rows: Path, tmp_path: Path, arithmetic: str
) -> None:
    ensemble = binary_stump(input_precision="float32")
    model, out = tmp_path / "rounding.treeproof", tmp_path / "run.jsonl"
    save_ensemble(ensemble, model)
    words = ("radius", model, rows, "--rows", "0:20", "--arithmetic", arithmetic, "--evidence")
    assert run(*words, "--out", out).exit_code == 0
    before = out.read_bytes()
    assert tp.load_results(out).header["model"]["fingerprint"] == ensemble.fingerprint
    resumed = run(*words, "--out", out, "--resume")
    assert resumed.exit_code == 0, resumed.stderr
    assert out.read_bytes() == before
    checked = run("check", out, "--model", model)
    assert checked.exit_code == 0, checked.output
    assert f"model {ensemble.fingerprint}" in checked.stdout
    assert "20 accepted, 0 rejected" in checked.stdout


def test_another_model_is_not_resumed(run: Run, words: Any, tmp_path: Path) -> None:
    from tests.unit.model.test_file_format import binary_stump
    from treeproof.model.file_format import save_ensemble

    run(*words)
    save_ensemble(binary_stump(classes=(0, 1)), tmp_path / "other.treeproof")
    result = run("radius", tmp_path / "other.treeproof", *words[2:], "--resume")
    assert result.exit_code == 2
    assert "must be about the same model. Its classes there: " in result.stderr


def test_changed_data_is_not_resumed(run: Run, words: Any, rows: Path, tmp_path: Path) -> None:
    run(*words)
    values = np.load(rows)
    values[250] += 0.001
    np.save(rows, values)
    result = run(*words, "--resume")
    assert result.exit_code == 2
    assert "Row 250 of the data must be the one that the run file" in result.stderr


def test_wrong_use(run: Run, words: Any, saved_model: Path, rows: Path, tmp_path: Path) -> None:
    no_file = run("radius", saved_model, rows, "--resume")
    assert no_file.exit_code == 2
    assert "--resume needs a run file: give it with --out." in no_file.stderr
    (tmp_path / "run.jsonl").write_text("some,notes\n")
    taken = run(*words)
    assert taken.exit_code == 2
    assert "is there already and is no run file. Give another one with --out." in taken.stderr
    assert (tmp_path / "run.jsonl").read_text() == "some,notes\n"
    for more in (["--memory-limit", "0"], ["--arithmetic", "int"]):
        assert run(*words, *more).exit_code == 2
    stranger = run("radius", saved_model, rows, "--attacker-class", "eggs")
    assert stranger.exit_code == 2
    assert "'attacker_class' must be one of the classes ['ham', 'spam']. Got 'eggs'." in (
        stranger.stderr
    )


def test_an_output_that_cannot_be_written(run: Run, words: Any, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        (tmp_path / "run.jsonl").symlink_to("/dev/full")
    else:
        tmp_path.chmod(0o500)
    result = run(*words)
    tmp_path.chmod(0o700)
    assert result.exit_code == 2
    assert "The run file" in result.stderr
    assert result.stdout == ""


def test_a_full_disk_keeps_what_is_finished(
    run: Run, words: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def full(number: int) -> None:
        calls.append(number)
        if len(calls) == 4:  # header, some rows, and then no more
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    result = run(*words, "--jobs", "1")
    assert result.exit_code == 2
    said = re.search(r"No space left on device. The (\d+) rows that are finished", result.stderr)
    assert said is not None, result.stderr
    assert "--resume goes on from there." in result.stderr
    monkeypatch.undo()
    assert len(tp.load_results(tmp_path / "run.jsonl")) == int(said[1]) > 0
    assert run(*words, "--resume").exit_code == 0
    assert len(tp.load_results(tmp_path / "run.jsonl")) == N_ROWS


def test_an_input_that_breaks_off_keeps_what_is_finished(
    run: Run, saved_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treeproof.data.readers.CELLS_PER_CHUNK", 64)
    data, out = tmp_path / "rows.csv", tmp_path / "run.jsonl"
    good = "width [cm]\n" + "".join(f"{i / 200}\n" for i in range(200))
    data.write_text(good.replace("\n0.75\n", "\nwide\n"))
    words = ("radius", saved_model, data, "--out", out, "--jobs", "1")
    result = run(*words)
    assert result.exit_code == 2
    assert "'wide'" in result.stderr
    assert "rows that are finished are in" in result.stderr
    kept = len(tp.load_results(out))
    assert 0 < kept < 200
    data.write_text(good)
    assert run(*words, "--resume").exit_code == 0
    assert len(tp.load_results(out)) == 200


def test_an_input_that_vanishes(
    run: Run, saved_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from treeproof.data.sources import FileSource

    data = tmp_path / "rows.csv"
    data.write_text("width [cm]\n0.25\n0.75\n")
    describe = FileSource.describe

    def vanish(self: FileSource) -> dict[str, Any]:
        words = describe(self)
        data.unlink()
        return words

    monkeypatch.setattr(FileSource, "describe", vanish)
    result = run("radius", saved_model, data)
    assert result.exit_code == 2
    assert "rows.csv' cannot be read: No such file or directory." in result.stderr


def test_parquet_runs(run: Run, saved_model: Path, rows: Path, tmp_path: Path) -> None:
    lines, table = tmp_path / "run.jsonl", tmp_path / "run.parquet"
    run("verify", saved_model, rows, "--eps", "0.1", "--out", lines)
    shown = run("verify", saved_model, rows, "--eps", "0.1", "--out", table, "--format", "csv")
    assert shown.exit_code == 0, shown.stderr
    assert_same(tp.load_results(table), tp.load_results(lines))
    assert len(shown.stdout.splitlines()) == N_ROWS + 1
    again = run("verify", saved_model, rows, "--eps", "0.1", "--out", table, "--resume")
    assert again.exit_code == 0
    other = run("verify", saved_model, rows, "--eps", "0.2", "--out", table, "--resume")
    assert other.exit_code == 2
    assert "must be about the same question" in other.stderr
    foreign = tmp_path / "foreign.parquet"
    import pandas as pd

    pd.DataFrame({"x": [1]}).to_parquet(foreign)
    refused = run("verify", saved_model, rows, "--eps", "0.1", "--out", foreign, "--resume")
    assert refused.exit_code == 2
    assert "must be a Parquet file that treeproof wrote" in refused.stderr


def test_runs_are_merged(run: Run, saved_model: Path, rows: Path, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.jsonl" for name in ("whole", "first", "second", "merged")]
    base = ("verify", saved_model, rows, "--eps", "0.1")
    for path, wanted in zip(paths, ("0:", "0:200", "150:"), strict=False):
        assert run(*base, "--rows", wanted, "--out", path).exit_code == 0
    result = run("merge", paths[2], paths[1], "--out", paths[3])
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{N_ROWS} rows of 2 runs in {paths[3]}\n"
    assert_same(tp.load_results(paths[3]), tp.load_results(paths[0]))
    report = run("curve", paths[3], "--at", "0.1")
    assert report.exit_code == 2  # verdicts are no radii, merged or not
    other = tmp_path / "other.jsonl"
    run("radius", saved_model, rows, "--out", other)
    refused = run("merge", paths[0], other, "--out", tmp_path / "no.jsonl")
    assert refused.exit_code == 2
    assert "must be about the same question" in refused.stderr
    for missing in (["--out", tmp_path / "x.jsonl"], [paths[0]], [tmp_path / "absent"]):
        assert run("merge", *missing).exit_code == 2
    absent = run("merge", tmp_path / "absent", "--out", tmp_path / "x.jsonl")
    assert absent.exit_code == 2
    assert "must be readable" in absent.stderr
    folder = run("merge", paths[0], "--out", tmp_path / "absent" / "x.jsonl")
    assert folder.exit_code == 2
    assert "The folder of the run file" in folder.stderr


def test_threat_model_files(run: Run, saved_model: Path, tmp_path: Path) -> None:
    data, threat = tmp_path / "rows.csv", tmp_path / "threat.toml"
    data.write_text("width [cm],kind\n0.25,ham\n0.75,spam\n1.5,spam\n0.0,spam\n")
    words = ("verify", saved_model, data, "--label", "kind", "--threat", threat)
    threat.write_text("eps = 0.3\n")
    assert "verified at radius 0.3: 25 % of the rows" in run(*words).stdout
    assert "verified at radius 0.2: 75 % of the rows" in run(*words, "--eps", "0.2").stdout
    threat.write_text('eps = 0\n[features."width [cm]"]\neps = 0.3\ndirection = "up"\n')
    # Upwards only the first row gets across 0.5; the last one is wrong as it stands.
    assert "verified at radius 1: 50 % of the rows" in run(*words).stdout
    threat.write_text("eps = 0.3\nattacker_class = 'ham'\n")
    shown = run(*words).stdout
    assert "1 of 4 rows attacked, the others stay as they are: 0 verified, 1 falsified" in shown
    assert "verified at radius 0.3: 0 % of the 1 attacked row" in shown
    assert run(*words, "--fail-under", "0.5").exit_code == 1
    threat.write_text("low = 0.6\n")
    missing = run(*words)
    assert missing.exit_code == 2
    assert "Missing option '--eps'" in missing.stderr
    threat.write_text("epss = 1\n")
    wrong = run(*words)
    assert wrong.exit_code == 2
    assert "is no key of a threat model. Did you mean 'eps'?" in wrong.stderr
    threat.write_text("attacker_class = 'ham'\n")
    features = run("features", saved_model, data, "--threat", threat)
    assert features.exit_code == 2
    assert "is for the commands radius, verify, attack and curve only" in features.stderr


def test_a_scheduler_that_is_not_there(
    run: Run, words: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treeproof.runs.cluster._CONNECT_TIMEOUT_S", 0.2)
    assert run(*words).exit_code == 0
    before = tmp_path.joinpath("run.jsonl").read_bytes()
    result = run(*words, "--dask", "tcp://127.0.0.1:9")
    assert result.exit_code == 2
    sentence = (
        "The Dask scheduler 'tcp://127.0.0.1:9' must answer within 0.2 s, but cannot be reached:"
    )
    assert sentence in result.stderr
    assert "Give its address as tcp://HOST:PORT" in result.stderr
    nonsense = run(*words, "--dask", "no address at all")
    assert nonsense.exit_code == 2
    assert "cannot be reached: missing port number" in nonsense.stderr
    assert tmp_path.joinpath("run.jsonl").read_bytes() == before


def test_a_port_where_something_else_answers(
    run: Run, words: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dashboard of a scheduler is the usual mistake: it speaks HTTP."""
    monkeypatch.setattr("treeproof.runs.cluster._CONNECT_TIMEOUT_S", 2)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        monkeypatch.setattr(BaseHTTPRequestHandler, "log_message", lambda *_: None)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        began = time.monotonic()
        result = run(*words, "--dask", f"tcp://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert time.monotonic() - began < 8.0
    assert result.exit_code == 2
    assert "must answer within 2 s, but cannot be reached: " in result.stderr


def test_a_scheduler_without_workers(
    run: Run, words: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import LocalCluster

    assert run(*words).exit_code == 0
    before = tmp_path.joinpath("run.jsonl").read_bytes()
    monkeypatch.setattr("treeproof.runs.cluster._WORKERS_TIMEOUT_S", 0.2)
    with LocalCluster(
        n_workers=0, processes=False, dashboard_address=":0", protocol="tcp"
    ) as empty:
        address = empty.scheduler_address
        result = run(*words, "--dask", address)
    assert result.exit_code == 2
    assert "The Dask cluster must have a worker within 0.2 s. Got none." in result.stderr
    assert f"Start one: dask worker {address}." in result.stderr
    assert tmp_path.joinpath("run.jsonl").read_bytes() == before


def test_large_runs_print_rows_in_order_without_keeping_them(
    run: Run, saved_model: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "rows.npy", np.linspace(0, 1, 5000).reshape(-1, 1))
    words = ("verify", saved_model, tmp_path / "rows.npy", "--eps", "0.1", "--jobs", "3")
    lines = run(*words, "--format", "csv").stdout.splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == [str(row) for row in range(5000)]
    found = json.loads(run(*words, "--format", "json").stdout)
    assert [row["row"] for row in found["rows"]] == list(range(5000))
    assert "… 4980 more rows" in run(*words).stdout
