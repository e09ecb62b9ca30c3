"""`treeproof check`: exit status, what is said, and that nothing compiled is needed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.model.test_file_format import binary_stump
from treeproof.model.file_format import load_saved, save_ensemble

ROWS = "\n".join(["width [cm]", "0.1", "0.9", "0.3"]) + "\n"


@pytest.fixture
def asked(run, saved_model: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    """Model, data and a run with evidence."""
    data, out = tmp_path / "rows.csv", tmp_path / "run.jsonl"
    data.write_text(ROWS)
    result = run("radius", saved_model, data, "--evidence", "--out", out)
    assert result.exit_code == 0, result.output
    return saved_model, data, out


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, changed: list[dict]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in changed))


def test_a_run_with_evidence_is_accepted(run, asked):
    model, data, out = asked
    result = run("check", out, "--model", model, "--data", data)
    assert result.exit_code == 0
    said = result.stdout.splitlines()
    assert said[0] == f"model {load_saved(model).fingerprint}"
    assert said[1].startswith('question {"kind": "radius"')
    assert said[2:] == ["3 accepted, 0 rejected, 0 unproved, 0 claims nothing"]


@pytest.mark.parametrize("arithmetic", ["real", "float64"])
def test_data_files_are_compared_as_the_model_rounds_them(run, asked, tmp_path, arithmetic):
    _, data, out = asked
    model = tmp_path / "rounding.treeproof"
    save_ensemble(binary_stump(input_precision="float32"), model)
    data.write_text("0\n0.1\n0.3\n")  # neither is a float32
    run("radius", model, data, "--evidence", "--out", out, "--arithmetic", arithmetic)
    result = run("check", out, "--model", model, "--data", data)
    assert result.exit_code == 0, result.stdout
    data.write_text("0\n0.1\n0.30001\n")
    assert run("check", out, "--model", model, "--data", data).exit_code == 3


def test_verify_records_evidence_too(run, asked):
    model, data, out = asked
    run("verify", model, data, "--eps", 0.05, "--evidence", "--out", out)
    assert run("check", out, "--model", model).exit_code == 0


def test_damage_is_shown_and_ends_with_status_3(run, asked):
    model, _, out = asked
    header, *rows = records(out)
    rows[1]["lower"] = rows[1]["upper"] = 2.0 * rows[1]["lower"]
    write(out, [header, *rows])
    result = run("check", out, "--model", model)
    assert result.exit_code == 3
    assert "2 accepted, 1 rejected" in result.stdout
    assert f"row {rows[1]['row']}: rejected: claim: the radius is" in result.stdout
    shown = json.loads(run("check", out, "--model", model, "--json").stdout)
    assert shown["rejected"] == 1
    assert shown["failures"][0]["row"] == rows[1]["row"]


def test_rows_of_other_data_are_rejected(run, asked):
    model, data, out = asked
    data.write_text(ROWS.replace("0.3", "0.4"))
    result = run("check", out, "--model", model, "--data", data)
    assert result.exit_code == 3
    assert "row 2: rejected: claim: it is about another row" in result.stdout


def test_a_run_without_evidence_is_unproved(run, asked):
    model, data, out = asked
    run("radius", model, data, "--out", out)
    result = run("check", out, "--model", model)
    assert result.exit_code == 3
    assert "3 unproved" in result.stdout


def test_missing_rows_are_noticed(run, asked):
    model, _, out = asked
    header, *rows = records(out)
    header["data"]["n_asked"] = 3
    write(out, [header, *rows[:-1]])
    result = run("check", out, "--model", model)
    assert result.exit_code == 3
    assert "3 rows were asked about, 2 are here" in result.stdout


def test_a_lost_end_is_noticed_and_resumed(run, asked, tmp_path):
    model, data, out = asked
    whole = out.read_bytes()
    assert (
        json.loads(whole.partition(b"\n")[0])["data"]["n_asked"] is None
    )  # CSV files are read once
    out.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    result = run("check", out, "--model", model)
    assert result.exit_code == 3
    assert "\nrejected: run: 3 rows were asked about, 2 are here" in result.stdout
    for words in (("report", out), ("merge", out)):
        refused = run(*words, "--out", tmp_path / "other")
        assert refused.exit_code == 2
        assert "must have the 3 rows that its header counts. Got 2" in refused.stderr
    assert run("radius", model, data, "--evidence", "--out", out, "--resume").exit_code == 0
    assert run("check", out, "--model", model).exit_code == 0
    out.write_bytes(whole.replace(b'"complete"', b'"underway"', 1))
    result = run("check", out, "--model", model)
    assert result.exit_code == 3
    assert "\nrejected: run: it is not complete, 3 rows are here" in result.stdout


def test_wrong_use_ends_with_status_2(run, asked, tmp_path):
    model, data, out = asked
    assert run("check", tmp_path / "none.jsonl", "--model", model).exit_code == 2
    assert run("check", data, "--model", model).exit_code == 2
    other = tmp_path / "other.jsonl"
    changed = records(out)
    changed[0]["model"]["fingerprint"] = "0" * 64
    write(other, changed)
    result = run("check", other, "--model", model)
    assert result.exit_code == 2
    assert "another model" in result.stderr
    changed[0]["model"]["source"] = "no such file"
    write(other, changed)
    result = run("check", other)
    assert result.exit_code == 2
    assert "--model" in result.stderr


def test_many_failures_are_not_all_shown(run, asked):
    model, _, out = asked
    header, *rows = records(out)
    write(out, [header, *[rows[0] | {"evidence": None, "row": n} for n in range(25)]])
    result = run("check", out, "--model", model)
    assert "25 unproved" in result.stdout
    assert "… 5 more" in result.stdout


def test_nothing_compiled_is_imported(asked):
    model, _, out = asked
    code = (
        "import sys\n"
        "from treeproof.cli.main import main\n"
        f"words = ['check', {str(out)!r}, '--model', {str(model)!r}]\n"
        "status = main(words, standalone_mode=False)\n"
        "assert not status, status\n"
        "parts = ('numba', 'treeproof.kernels', 'treeproof.engines', 'treeproof.search')\n"
        "loaded = [m for m in sys.modules if m.startswith(parts)]\n"
        "assert not loaded, loaded\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "3 accepted" in found.stdout
