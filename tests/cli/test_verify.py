import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import treeproof
from tests.cli.test_radius import data

Run = Callable[..., Result]
__all__ = ["data"]


@pytest.mark.parametrize(
    ("eps", "verdicts"),
    [
        (0.2, ["verified", "verified", "verified", "falsified"]),
        # The first row reaches the threshold at 0.25 itself, the second passes it only beyond.
        (0.25, ["falsified", "verified", "verified", "falsified"]),
        (0.3, ["falsified", "falsified", "verified", "falsified"]),
    ],
)
def test_verdicts_of_a_stump(
    run: Run, saved_model: Path, data: Path, eps: float, verdicts: list[str]
) -> None:
    words = ("--eps", eps, "--label", "kind", "--format", "csv")
    result = run("verify", saved_model, data, *words)
    assert result.exit_code == 0
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["verdict"] for row in rows] == verdicts


def test_the_table_begins_with_the_summary(run: Run, saved_model: Path, data: Path) -> None:
    result = run("verify", saved_model, data, "--eps", "0.3", "--label", "kind")
    lines = result.stdout.splitlines()
    assert lines[0] == "4 rows: 1 verified, 3 falsified, 0 unknown"
    assert "verified at radius 0.3: 25 % of the rows" in lines
    assert "verdict" in result.stdout


def test_json_and_run_file(run: Run, saved_model: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    words = ("--eps", "0.3", "--format", "json", "--out", out, "--frozen", "width [cm]")
    found = json.loads(run("verify", saved_model, data, *words).stdout)
    assert found["summary"] == {
        "rows": 4,
        "attacked": 4,
        "verified": 4,
        "falsified": 0,
        "unknown": 0,
        "at": 0.3,
        "share_verified": 1.0,
        "arithmetic": "float64 rows, which the deployed model takes as they are",
    }
    saved = treeproof.load_results(out)
    assert saved.header == found["header"]
    assert saved.header["question"]["perturbation"]["eps"] == 0.3
    assert saved.verdict.tolist() == ["verified"] * 4


@pytest.mark.parametrize(("share", "status"), [(0.75, 0), (0.76, 1)])
def test_the_gate(run: Run, saved_model: Path, data: Path, share: float, status: int) -> None:
    words = ("--eps", "0.2", "--label", "kind", "--fail-under", share)
    result = run("verify", saved_model, data, *words)
    assert result.exit_code == status
    sentence = "treeproof: the gate failed: 75 % of the rows are verified, below 76 %.\n"
    assert result.stderr == (sentence if status else "")


def test_undecided_rows_matter_under_strict(run: Run, saved_model: Path, data: Path) -> None:
    words = ("verify", saved_model, data, "--eps", "0.3", "--engine", "multilevel")
    assert run(*words).exit_code == 0
    result = run(*words, "--strict")
    assert result.exit_code == 3
    assert "rows are undecided (--strict)." in result.stderr
    gate_first = run(*words, "--strict", "--fail-under", "1")
    assert gate_first.exit_code == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Missing option '--eps'"),
        (["--eps", "-0.1"], "-0.1 is not in the range"),
        (["--eps", "nan"], "'nan' is not a finite number"),
        (["--eps", "wide"], "'wide' is not a valid number"),
        (["--eps", "1", "--at", "1"], "No such option"),
        (["--eps", "1", "--fail-under", "2"], "2.0 is not in the range"),
        (["--eps", "1", "--label", "absent"], "has no 'absent'."),
        (["--eps", "1", "--rows", "x"], "Rows must be given as first:last"),
        (["--eps", "1", "--engine", "magic"], "'engine' must be one of exact, "),
    ],
)
def test_wrong_input_is_a_sentence_and_status_2(
    run: Run, saved_model: Path, data: Path, words: list[str], sentence: str
) -> None:
    result = run("verify", saved_model, data, *words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert sentence in result.stderr
