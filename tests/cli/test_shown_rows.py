"""Which rows are shown and how; gates against earlier runs; what a run remembers for later."""

import contextlib
import csv
import io
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest

import treeproof as tp
from treeproof.report.reasons import load_reasons

# A job that was started in the background inherits Ctrl-C as ignored.
START = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
START += "from treeproof.cli import run; run()"
NAMES = ["amount", "hour", "income"]


@pytest.fixture(scope="module")
def fraud(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A LightGBM model of payments in whole numbers, and rows with a customer's number."""
    folder = tmp_path_factory.mktemp("fraud")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "customer": [f"C{i:04d}" for i in range(600)],
            "amount": np.round(rng.lognormal(7.0, 1.0, 600)),
            "hour": rng.integers(0, 24, 600),
            "income": np.round(rng.lognormal(11.0, 0.4, 600), 2),
        }
    )
    frame["fraud"] = ((frame["amount"] > 2000) & (frame["hour"] < 6)).astype(int)
    model = lightgbm.LGBMClassifier(n_estimators=10, min_child_samples=5, verbose=-1)
    model.fit(frame[NAMES], frame["fraud"]).booster_.save_model(folder / "model.txt")
    frame.head(40).to_csv(folder / "rows.csv", index=False)
    return folder / "model.txt", folder / "rows.csv"


def words_of(fraud: tuple[Path, Path], *more: Any) -> list[Any]:
    return [*fraud, "--label", "fraud", "--id", "customer", *more]


def test_rows_are_known_by_their_identifier(run, fraud, tmp_path):
    out = tmp_path / "run.jsonl"
    result = run("verify", *words_of(fraud, "--eps", 500, "--out", out))
    assert result.exit_code == 0, result.output
    assert "C0007" in result.stdout
    saved = tp.load_results(out)
    assert saved.id.tolist() == [f"C{row:04d}" for row in saved.row]
    assert list(saved.to_frame().columns[:2]) == ["id", "row"]
    assert saved.header["data"]["id"] == "customer"
    packed = tmp_path / "run.parquet"
    run("verify", *words_of(fraud, "--eps", 500, "--out", packed))
    assert tp.load_results(packed).id.tolist() == saved.id.tolist()
    refused = run("verify", *fraud, "--eps", 5, "--id", "costumer")
    assert refused.exit_code == 2
    assert "has no 'costumer'. Did you mean 'customer'? It has customer, amount" in refused.stderr


def test_reasons_are_known_by_the_identifier_of_their_row(run, fraud, tmp_path):
    out, plain = tmp_path / "reasons.jsonl", tmp_path / "plain.jsonl"
    words = words_of(fraud, "--rows", "3:6", "--evidence", "--out", out)
    table = run("reasons", *words)
    assert table.exit_code == 0, table.output
    known = [(row, f"C{row:04d}") for row in (3, 4, 5)]
    assert all(f"row {row} ({name}): the decision" in table.stdout for row, name in known)
    records = json.loads(run("reasons", *words, "--format", "json").stdout)["records"]
    assert [(record["row"], record["id"]) for record in records] == known
    lines = list(csv.DictReader(io.StringIO(run("reasons", *words, "--format", "csv").stdout)))
    assert [(int(line["row"]), line["id"]) for line in lines] == known
    assert list(lines[0])[:3] == ["row", "id", "label"]
    # The proofs are the same, whatever rows are called, and so are files without names.
    assert "3 accepted, 0 rejected" in run("check", out, "--model", fraud[0]).stdout
    run("reasons", *fraud, "--label", "fraud", "--rows", "3:6", "--evidence", "--out", plain)
    for path, ids in ((out, [name for _, name in known]), (plain, None)):
        found = load_reasons(path)
        assert (found.id if ids is None else found.id.tolist()) == ids
        assert found.row.tolist() == [3, 4, 5]
    assert '"C0003"' not in plain.read_text()
    refused = run("reasons", *fraud, "--id", "costumer")
    assert refused.exit_code == 2
    assert "has no 'costumer'. Did you mean 'customer'?" in refused.stderr


@pytest.mark.parametrize("what", ["radius", "unimportant", "anchors"])
def test_features_are_known_by_the_identifier_of_their_row(run, fraud, tmp_path, what):
    out = tmp_path / "features.jsonl"
    words = words_of(fraud, "--rows", "3:6", "--what", what, "--out", out)
    table = run("features", *words)
    assert table.exit_code == 0, table.output
    assert re.search(r"row +id +label", table.stdout)
    records = json.loads(run("features", *words, "--format", "json").stdout)["records"]
    lines = csv.DictReader(io.StringIO(run("features", *words, "--format", "csv").stdout))
    _, *saved = map(json.loads, out.read_text().splitlines())
    for listed in (records, list(lines), saved):
        assert {(int(record["row"]), record["id"]) for record in listed} == {
            (row, f"C{row:04d}") for row in (3, 4, 5)
        }
    plain = run("features", *fraud, "--rows", "3:6", "--what", what)
    assert "id" not in re.findall(r"\w+", plain.stdout)


def test_rows_are_filtered_and_sorted(run, fraud, tmp_path):
    words = words_of(fraud, "--eps", 500, "--format", "csv", "--only", "falsified", "--sort")
    rows = list(csv.DictReader(io.StringIO(run("verify", *words, "-seconds").stdout)))
    assert rows
    assert {row["verdict"] for row in rows} == {"falsified"}
    seconds = [float(row["seconds"]) for row in rows]
    assert seconds == sorted(seconds, reverse=True)
    words = words_of(fraud, "--format", "json", "--sort", "radius", "--out")
    for out in (tmp_path / "run.jsonl", tmp_path / "run.parquet"):
        found = json.loads(run("radius", *words, out).stdout)["rows"]
        lower = [float(row["lower"]) for row in found]
        assert lower == sorted(lower)
        assert len(lower) == 40
    # The first of the sorted rows are those that the table shows, whatever the order of the file.
    table = run("radius", *words_of(fraud, "--sort", "radius", "--only", "exact")).stdout
    shown = [line.split()[0] for line in table.splitlines() if " C0" in line]
    exact = [str(row["row"]) for row in found if row["verdict"] == "verified"]
    assert shown == exact[:20]
    assert f"… {len(exact) - 20} more rows (--all-rows shows them)" in table


def test_rows_that_are_not_attacked_are_nowhere_verified(run, fraud):
    words = words_of(fraud, "--attacker-class", 1, "--all-rows")
    labels = pd.read_csv(fraud[1])["fraud"].to_numpy()
    assert 0 < labels.sum() < 40
    for command, more in (("radius", []), ("verify", ["--eps", 1])):
        table = run(command, *words, *more, "--sort", "radius").stdout
        shown = [line.split() for line in table.splitlines() if " C0" in line]
        assert len(shown) == 40
        for cells in shown:
            is_attacked = labels[int(cells[0])] == 1
            assert (cells[3:] == ["not", "attacked"]) == (not is_attacked)
        # Whatever is known of them, they come behind all that are attacked.
        assert [cells[2] for cells in shown] == ["1"] * labels.sum() + ["0"] * (labels == 0).sum()
        rows = json.loads(run(command, *words, *more, "--format", "json").stdout)["rows"]
        assert [row["attacked"] for row in rows] == (labels == 1).tolist()
        only = run(command, *words, *more, "--format", "csv", "--only", "verified").stdout
        lines = list(csv.DictReader(io.StringIO(only)))
        assert lines
        assert {(line["attacked"], line["label"]) for line in lines} == {("True", "1")}


def test_witnesses_have_names(run, fraud):
    words = words_of(fraud, "--only", "falsified", "--eps", 3000)
    found = json.loads(run("verify", *words, "--format", "json").stdout)["rows"]
    for row in found:
        moved = {
            name: {"from": old, "to": new}
            for name, old, new in zip(NAMES, row["values"], row["witness"], strict=True)
            if old != new
        }
        assert row["changes"] == moved
        assert moved
    lines = list(csv.DictReader(io.StringIO(run("verify", *words, "--format", "csv").stdout)))
    for line, row in zip(lines, found, strict=True):
        assert line["id"] == row["id"]
        assert line["becomes"] == str(row["witness_label"])
        for name, change in row["changes"].items():
            assert f"{name}: " in line["changes"]
            assert float(line[f"{name} before"]) == change["from"]
        for name in {*NAMES} - {*row["changes"]}:
            assert line.get(f"{name} after", "") == ""


def test_classes_have_names(run, fraud, tmp_path):
    words = words_of(fraud, "--eps", 3000, "--classes", "fine,stopped", "--evidence")
    out = tmp_path / "run.jsonl"
    result = run("verify", *words, "--out", out)  # labels of the data are 0 and 1
    assert result.exit_code == 0, result.output
    assert "stopped" in result.stdout
    found = tp.load_results(out)
    assert set(found.label.tolist()) == {"fine", "stopped"}
    plain = run("verify", *words_of(fraud, "--eps", 3000, "--format", "json"))
    labels = [row["label"] for row in json.loads(plain.stdout)["rows"]]
    assert found.label.tolist() == [["fine", "stopped"][label] for label in labels]
    checked = run("check", out, "--model", fraud[0], "--data", fraud[1])
    assert checked.exit_code == 0, checked.output
    saved = tmp_path / "model.treeproof"
    tp.load(fraud[0], classes=["fine", "stopped"]).save(saved)
    assert tp.load(saved).ensemble.provenance.own_classes == (0, 1)


def test_numbers_have_the_precision_of_their_column(run, fraud):
    table = run("radius", *words_of(fraud, "--all-rows")).stdout
    assert "e+0" not in table
    row = json.loads(run("radius", *words_of(fraud, "--format", "json")).stdout)["rows"][0]
    amounts = row["changes"]["amount"]
    shown = re.search(rf"amount: {amounts['from']:,.0f} → ([0-9,]+) ", table)
    # Rounded away from the row: the nearest whole number may not cross the threshold.
    moved = float(shown[1].replace(",", "")) - amounts["to"]
    assert abs(moved) < 1.0
    assert moved * (amounts["to"] - amounts["from"]) >= 0.0
    assert "(−" in table  # changes downwards, with their size
    assert "becomes" in table


def test_a_gate_compares_with_an_earlier_run(run, fraud, tmp_path):
    base, other = tmp_path / "base.jsonl", tmp_path / "other.jsonl"
    assert run("verify", *words_of(fraud, "--eps", 300, "--out", base)).exit_code == 0
    again = run("verify", *words_of(fraud, "--eps", 300, "--not-worse-than", base))
    assert again.exit_code == 0
    worse = run("verify", *words_of(fraud, "--eps", 300, "--not-worse-than", base,
                                    "--decision-threshold", 0.05))  # fmt: skip
    assert worse.exit_code == 1
    assert f"in '{base}'; no longer verified are rows " in worse.stderr
    # By number and identifier, of which several rows may have the same.
    named = re.findall(r"(\d+) \((C\d+)\)", worse.stderr)
    assert named
    assert all(known == f"C{int(row):04d}" for row, known in named)
    # Where one of the runs has none, the other's are taken.
    words = [*fraud, "--label", "fraud", "--eps", 300, "--not-worse-than", base]
    unnamed = run("verify", *words, "--decision-threshold", 0.05)
    assert unnamed.stderr == worse.stderr
    nameless = tmp_path / "nameless.jsonl"
    run("verify", *fraud, "--label", "fraud", "--eps", 300, "--out", nameless)
    words[-1] = nameless
    named_here = run("verify", *words, "--decision-threshold", 0.05, "--id", "customer")
    assert named_here.stderr == worse.stderr.replace(str(base), str(nameless))
    neither = run("verify", *words, "--decision-threshold", 0.05)
    assert re.search(r"no longer verified are rows \d+(, |\.)", neither.stderr)
    # Radii tell what is verified at a radius, too.
    run("radius", *words_of(fraud, "--out", other))
    words = words_of(fraud, "--eps", 300, "--not-worse-than", other)
    assert run("verify", *words).exit_code == 0
    asked = run("radius", *words_of(fraud, "--not-worse-than", base))
    assert asked.exit_code == 2
    assert "--not-worse-than needs a radius: give it with --at." in asked.stderr
    frozen = run("verify", *words_of(fraud, "--eps", 300, "--not-worse-than", base, "--frozen", 0))
    assert frozen.exit_code == 2
    assert (
        "must be about the same changes and claim. Its perturbation.frozen is []" in frozen.stderr
    )
    fewer = run("verify", *words_of(fraud, "--eps", 300, "--not-worse-than", base, "--rows", "0:9"))
    assert fewer.exit_code == 2
    assert "must be about the same rows. It has 40, this one 9." in fewer.stderr


@pytest.mark.parametrize("asked", [["verify", "--eps"], ["radius", "--at"]])
def test_a_gate_compares_at_a_radius_that_the_earlier_run_knows(run, fraud, tmp_path, asked):
    base, radii = tmp_path / "base.jsonl", tmp_path / "radii.jsonl"
    run("verify", *words_of(fraud, "--eps", 300, "--out", base))
    run("radius", *words_of(fraud, "--out", radii))
    command, name = asked
    for eps, status in ((300, 0), (200, 2), (400, 2)):
        words = words_of(fraud, name, eps, "--not-worse-than", base)
        result = run(command, *words)
        assert result.exit_code == status, result.stderr
        if status:
            assert f"at radius 300 only. Got a gate at radius {eps}:" in result.stderr
        words[-1] = radii
        assert run(command, *words).exit_code == 0


def test_a_gate_does_not_compare_with_attacks(run, fraud, tmp_path):
    base = tmp_path / "base.jsonl"
    run("attack", *words_of(fraud, "--eps", 300, "--out", base))
    refused = run("verify", *words_of(fraud, "--eps", 300, "--not-worse-than", base))
    assert refused.exit_code == 2
    assert "must say what is verified. Got attacks, which verify nothing" in refused.stderr


def test_a_gate_compares_the_same_rows_and_labels(run, fraud, tmp_path):
    base, other = tmp_path / "base.jsonl", tmp_path / "other.csv"
    run("verify", *words_of(fraud, "--eps", 300, "--out", base))
    rows = pd.read_csv(fraud[1])
    rows.assign(income=rows["income"].where(rows.index != 7, 1.0)).to_csv(other, index=False)
    words = words_of((fraud[0], other), "--eps", 300, "--not-worse-than", base)
    moved = run("verify", *words)
    assert moved.exit_code == 2
    assert f"income of row 7 is {rows['income'][7]} there, and 1.0 here." in moved.stderr
    rows.assign(fraud=rows["fraud"].where(rows.index != 3, 1 - rows["fraud"])).to_csv(
        other, index=False
    )
    labelled = run("verify", *words)
    assert labelled.exit_code == 2
    assert f"The label of row 3 is {rows['fraud'][3]} there" in labelled.stderr


def test_a_refused_gate_leaves_the_files_as_they_are(run, fraud, tmp_path):
    base, out = tmp_path / "base.jsonl", tmp_path / "out.jsonl"
    run("verify", *words_of(fraud, "--eps", 300, "--out", base))
    shutil.copy(base, out)
    before = base.read_bytes()
    words = words_of(fraud, "--eps", 200, "--not-worse-than", base, "--out")
    assert run("verify", *words, out).exit_code == 2
    assert out.read_bytes() == before
    itself = run("verify", *words, tmp_path / "." / "base.jsonl")
    assert itself.exit_code == 2
    assert "--out must not replace the run of --not-worse-than." in itself.stderr
    assert base.read_bytes() == before


def test_a_run_remembers_how_the_model_was_loaded(run, fraud, tmp_path, monkeypatch):
    model, data = fraud
    out = tmp_path / "run.jsonl"
    words = words_of(fraud, "--eps", 300, "--evidence", "--decision-threshold", 0.9, "--out", out)
    assert run("verify", *words).exit_code == 0
    assert tp.load_results(out).header["model"]["loading"] == {"decision_threshold": 0.9}
    for folder in (model.parent, tmp_path):
        monkeypatch.chdir(folder)
        # Neither model, threshold nor label again; the model is here, or beside the run.
        checked = run("check", out, "--data", data)
        assert checked.exit_code == 0, checked.output
        assert "loaded with decision_threshold 0.9" in checked.stdout
        assert "40 accepted" in checked.stdout
        shutil.copy(model, out.parent)
    assert run("report", out, "--check", model, "--out", tmp_path / "r.html").exit_code == 0
    # What the command line says comes first, and the fingerprint then tells.
    other = run("check", out, "--decision-threshold", 0.5)
    assert other.exit_code != 0
    saved = tmp_path / "model.treeproof"
    tp.load(model, decision_threshold=0.9).save(saved)
    assert tp.load(saved).ensemble.provenance.options == {"decision_threshold": 0.9}
    assert run("check", out, "--model", saved).exit_code == 0


def shell(*words: Any, **options: Any) -> subprocess.Popen[str]:
    program = [sys.executable, "-c", START, *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(program, **(pipes | options))


@pytest.mark.parametrize("ending", [".csv", ".npz"])
def test_runs_in_parts_remember_what_they_asked_about(run, fraud, tmp_path, ending):
    out, whole = tmp_path / "run.jsonl", tmp_path / "whole.jsonl"
    rows, named = pd.read_csv(fraud[1]), []
    if ending == ".csv":
        data, named = fraud[1], ["--label", "fraud", "--id", "customer"]
    else:
        data = tmp_path / "rows.npz"
        np.savez(data, X=rows[NAMES].to_numpy(), y=rows["fraud"].to_numpy())
    words = ["verify", fraud[0], data, *named, "--eps", 300, "--evidence", "--out"]
    check = ["check", "--model", fraud[0], "--data", data]
    for more in (["--rows", "30:"], ["--rows", "20:30"], ["--rows", "20:30"]):
        assert run(*words, out, "--resume", *more).exit_code == 0
        checked = run(*check, out)
        assert checked.exit_code == 0, checked.stdout
    assert "20 accepted" in checked.stdout
    parts = tp.load_results(out).header["data"]
    assert [part["rows"] for part in parts["merged"]] == ["30:", "20:30"]
    assert parts.get("id") == ("customer" if named else None)
    run(*words, tmp_path / "rest.jsonl", "--rows", ":25")
    assert run("merge", out, tmp_path / "rest.jsonl", "--out", whole).exit_code == 0
    checked = run(*check, whole)
    assert checked.exit_code == 0, checked.stdout
    assert "labels compared with the data" in checked.stdout
    assert "40 accepted" in checked.stdout
    # A row that is left out is noticed all the same.
    lines = whole.read_text().splitlines()
    n_rows = tp.load_results(whole).header["n_rows"]
    lines[0] = lines[0].replace(f"{n_rows:>15}", f"{n_rows - 1:>15}")
    whole.write_text("\n".join([lines[0], *lines[2:]]))
    assert run(*check, whole).exit_code == 3
    assert run(*words, out, "--resume").exit_code == 0
    assert run(*check, out).exit_code == 0


@pytest.mark.parametrize(("share", "status"), [("0", 0), ("1", 1)])
def test_a_reader_that_leaves_is_no_failed_gate(fraud, share, status):
    words = words_of(fraud, "--eps", 3000, "--format", "json", "--fail-under", share)
    with shell("verify", *words) as process:
        process.stdout.close()  # as head does, before anything is written
        said = process.stderr.read()
        assert process.wait() == status, said
    assert "Traceback" not in said
    assert "Broken pipe" not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_no_failed_gate(fraud, tmp_path):
    out = tmp_path / "run.jsonl"
    words = words_of(fraud, "--eps", 300, "--out", out)
    with Path("/dev/full").open("w") as full:
        with shell("verify", *words, stdout=full) as process:
            said = process.stderr.read()
        assert process.returncode == 2
        assert (
            said
            == "treeproof: error: Standard output cannot be written: No space left on device.\n"
        )
        assert len(tp.load_results(out)) == 40
        # What goes to standard error is no answer.
        with shell("verify", *words, "--fail-under", 1, stderr=full) as process:
            assert "40 rows" in process.stdout.read()
        assert process.returncode == 1
    with shell("verify", *words, "--log-file", "/dev/full") as process:
        assert "40 rows" in process.stdout.read()
        said = process.stderr.read()
    assert process.returncode == 0
    ended = "treeproof: warning: the log file '/dev/full' ends here: No space left on device.\n"
    assert said == ended


def test_a_shell_may_close_standard_streams(fraud):
    words = [sys.executable, "-c", START, "verify", *map(str, words_of(fraud, "--eps", 300))]

    def closed(stream: str) -> "subprocess.CompletedProcess[str]":
        shell_words = ["sh", "-c", f'exec "$0" "$@" {stream}&-', *words]
        return subprocess.run(shell_words, capture_output=True, text=True, check=False)

    for stream in ("0<", "1>", "2>"):
        ended = closed(stream)
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr == ""
        assert ("40 rows" in ended.stdout) == (stream != "1>")
    words[5] = "-"
    refused = closed("0<")
    assert refused.returncode == 2
    assert "Standard input must hold the rows. Got none" in refused.stderr


def test_an_interrupt_is_no_failed_gate(fraud, tmp_path):
    fifo = tmp_path / "rows.csv"
    os.mkfifo(fifo)
    with shell("verify", fraud[0], fifo, "--eps", 1) as process:
        writer = None
        while writer is None and process.poll() is None:
            with contextlib.suppress(OSError):  # nobody reads yet
                writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 130, process.stderr.read()
        finally:
            process.kill()
            os.close(writer)


def test_rows_come_from_standard_input(fraud):
    words = words_of((fraud[0], "-"), "--eps", 300, "--format", "csv", "--sort", "row")
    with fraud[1].open() as rows, shell("verify", *words, stdin=rows) as process:
        piped = list(csv.DictReader(io.StringIO(process.stdout.read())))
    assert process.returncode == 0
    assert [row["id"] for row in piped] == [f"C{row:04d}" for row in range(40)]


def test_what_is_done_is_logged(run, fraud, tmp_path):
    log = tmp_path / "log.txt"
    quiet = run("verify", *words_of(fraud, "--eps", 300))
    told = run("verify", *words_of(fraud, "--eps", 300, "-v"))
    assert "treeproof: loaded '" in told.stderr
    assert "treeproof: loaded '" not in quiet.stderr
    assert run("verify", *words_of(fraud, "--eps", 300, "--log-file", log)).exit_code == 0
    lines = log.read_text().splitlines()
    assert any("INFO treeproof: loaded '" in line for line in lines)
    assert any("DEBUG treeproof.runs: " in line for line in lines)
    refused = run("verify", *words_of(fraud, "--eps", 300, "--only", "falsified", "--frozen", "x",
                                      "--log-file", log))  # fmt: skip
    assert refused.exit_code == 2
    assert logging.getLogger("treeproof").handlers == []
    nowhere = run("verify", *words_of(fraud, "--eps", 300, "--log-file", tmp_path / "no" / "log"))
    assert nowhere.exit_code == 2
    assert "cannot be written: No such file or directory." in nowhere.stderr


def test_spreadsheets_get_a_remedy(run, fraud, tmp_path):
    sheet = tmp_path / "rows.xlsx"
    sheet.write_bytes(b"PK\x03\x04 and more")
    refused = run("verify", fraud[0], sheet, "--eps", 1)
    assert refused.exit_code == 2
    assert "must be saved as CSV or Parquet first" in refused.stderr
    assert "pandas.read_excel('rows.xlsx').to_parquet" in refused.stderr


def test_options_without_effect_are_warned_of(run, fraud):
    told = run("verify", *words_of(fraud, "--eps", 300, "--seed", 3, "--absent", "zero"))
    assert told.exit_code == 0
    assert "warning: --seed has no effect without --sample." in told.stderr
    assert "--first-column and --absent have no effect on" in told.stderr
    quiet = run("verify", *words_of(fraud, "--eps", 300, "--seed", 3, "--sample", 5))
    assert "no effect" not in quiet.stderr
    words = words_of(fraud, "--eps", 300, "--rows", "0:3", "--evidence", "--format")
    for form, is_lost in (("table", True), ("csv", True), ("json", False)):
        told = run("verify", *words, form)
        assert ("--evidence has no effect without --out" in told.stderr) == is_lost


def test_names_of_classes_may_have_blanks_between_them(run, fraud):
    words = words_of(fraud, "--eps", 300, "--attacker-class", "stopped", "--classes")
    assert run("verify", *words, "fine, stopped").exit_code == 0
    refused = run("verify", *words, "stopped,")
    assert refused.exit_code == 2
    assert "names must not be empty. Got 'stopped,'." in refused.stderr


def test_warnings_are_shown_once(run, tmp_path):
    frame = pd.DataFrame({"size": np.arange(60.0), "kind": pd.Categorical(list("ab") * 30)})
    model = lightgbm.LGBMClassifier(n_estimators=5, min_child_samples=5, verbose=-1)
    model.fit(frame, frame["size"] % 7 < 3).booster_.save_model(tmp_path / "model.txt")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    told = run("radius", tmp_path / "model.txt", tmp_path / "rows.csv", "--moving", "kind")
    assert told.stderr.count("'moving' of LInf has no effect on kind") == 1


def test_a_gate_by_the_models_own_labels_compares_no_classes(run, fraud, tmp_path):
    """A model that finds no fraud would be asked about no fraud, and pass."""
    base, threat = tmp_path / "base.jsonl", tmp_path / "threat.toml"
    threat.write_text("attacker_class = 1\neps = 300\n")
    words = ["verify", *fraud, "--threat", threat]
    assert run(*words, "--out", base).exit_code == 0
    refused = run(*words, "--not-worse-than", base)
    assert refused.exit_code == 2
    assert "needs the true labels of the rows" in refused.stderr
    words += ["--label", "fraud"]
    assert run(*words, "--out", base).exit_code == 0
    passed = run(*words, "--not-worse-than", base)
    assert passed.exit_code == 0, passed.stderr
    assert re.search(r"verified here .* of \d+ rows?, in '.*' .* of \d+ rows?\.", passed.stderr)
