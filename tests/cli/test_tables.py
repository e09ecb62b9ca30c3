"""`--out answers.csv` and `--out answers.xlsx`: tables of what a command found."""

import csv
from pathlib import Path

import openpyxl
import pytest

import treeproof as tp
from tests.cli.test_shown_rows import fraud, words_of

__all__ = ["fraud"]


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("command", [["radius"], ["verify", "--eps", "500"], ["attack"]])
def test_tables_hold_what_run_files_hold(run, fraud, tmp_path, command):
    name, *options = command
    for ending in ("jsonl", "csv", "xlsx"):
        result = run(name, *words_of(fraud, *options, "--out", tmp_path / f"answers.{ending}"))
        assert result.exit_code == 0, result.output
    saved = tp.load_results(tmp_path / "answers.jsonl")
    saved.save(tmp_path / "saved.csv")
    timeless = [
        [{k: v for k, v in line.items() if k not in ("seconds",)} for line in lines_of(path)]
        for path in (tmp_path / "answers.csv", tmp_path / "saved.csv")
    ]
    if name != "attack":  # which may find another change
        assert timeless[0] == timeless[1]
    assert [line["id"] for line in timeless[0]] == saved.id.tolist()
    sheet = openpyxl.load_workbook(tmp_path / "answers.xlsx")["answers"]
    assert sheet.max_row == len(saved) + 1


def test_rows_are_chosen_and_ordered_as_they_are_shown(run, fraud, tmp_path):
    out = tmp_path / "evasions.csv"
    words = words_of(fraud, "--eps", 500, "--only", "falsified", "--sort", "-radius", "--out", out)
    assert run("verify", *words).exit_code == 0
    lines = lines_of(out)
    assert lines
    assert {line["verdict"] for line in lines} == {"falsified"}
    assert all(line["changes"] for line in lines if line["misclassified"] == "False")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "answers.xls"], "a spreadsheet (.xlsx), by the ending of the file. Got"),
        (["--out", "answers.csv", "--evidence"], "--evidence needs a run file"),
        (["--out", "answers.xlsx", "--resume"], "--resume needs a run file"),
        (["--out", "nowhere/answers.csv"], "The folder of the table"),
    ],
)
def test_what_a_table_cannot_be_is_refused(run, fraud, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    result = run("radius", *words_of(fraud, *words))
    assert result.exit_code == 2
    assert said in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_spreadsheet_without_its_library_is_refused_first(run, fraud, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    result = run("radius", *words_of(fraud, "--out", tmp_path / "answers.xlsx"))
    assert result.exit_code == 2
    assert "[excel]" in result.stderr
    assert not result.stdout
