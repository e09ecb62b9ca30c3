import csv
import io
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import Result

from tests.cli.test_radius import data

Run = Callable[..., Result]
__all__ = ["data"]

RADII = "0,0.2,0.25,0.3,1,2"
CERTIFIED = [0.75, 0.75, 0.5, 0.25, 0.25, 0.0]
"""Share of the four rows at `RADII`: one is wrong, one ends at 0.25, one beyond 0.25 and 1."""


@pytest.fixture
def saved_run(run: Run, saved_model: Path, data: Path, tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    assert run("radius", saved_model, data, "--label", "kind", "--out", path).exit_code == 0
    return path


def points(result: Result) -> list[dict[str, float]]:
    rows = csv.DictReader(io.StringIO(result.stdout))
    return [{name: float(value) for name, value in row.items()} for row in rows]


def test_both_sides_are_equal_for_exact_radii(run: Run, saved_run: Path) -> None:
    result = run("curve", saved_run, "--at", RADII, "--format", "csv")
    assert result.exit_code == 0
    found = points(result)
    assert [point["certified"] for point in found] == CERTIFIED
    assert [point["resisting"] for point in found] == CERTIFIED
    assert all(point["undecided"] == 0.0 for point in found)


def test_both_sides_look_the_same_where_nothing_is_undecided(
    run: Run, saved_model: Path, data: Path
) -> None:
    words = (saved_model, data, "--label", "kind", "--rows", "0:3", "--at", "0,0.1,0.2,0.25,1,2")
    table = run("curve", *words).stdout
    lines = [line.split() for line in table.splitlines() if line.split()[1:] and "%" in line]
    assert len(lines) == 6
    assert any(line[1] == "66.6666" for line in lines)
    assert all(line[1] == line[3] for line in lines)


def test_a_model_and_its_data_give_the_same_curve(
    run: Run, saved_run: Path, saved_model: Path, data: Path
) -> None:
    words = ("--at", RADII, "--format", "csv")
    asked = run("curve", saved_model, data, "--label", "kind", *words)
    assert asked.exit_code == 0
    assert asked.stdout == run("curve", saved_run, *words).stdout


def test_bounds_leave_a_gap(run: Run, saved_model: Path, data: Path) -> None:
    words = ("--label", "kind", "--at", "0,2", "--format", "csv", "--engine", "multilevel")
    result = run("curve", saved_model, data, *words)
    assert result.exit_code == 0
    last = points(result)[1]
    assert last == {"eps": 2.0, "certified": 0.0, "resisting": 0.75, "undecided": 0.75}
    strict = run("curve", saved_model, data, *words, "--strict")
    assert strict.exit_code == 3
    assert "3 of 4 rows are undecided (--strict)." in strict.stderr


def test_table_and_json(run: Run, saved_run: Path) -> None:
    table = run("curve", saved_run, "--at", "0.25")
    assert table.stdout.startswith("4 rows, labels: given, arithmetic: float64 rows, which")
    assert "certified" in table.stdout
    assert table.stdout.split()[-7:] == ["0.25", "50", "%", "50", "%", "0", "%"]
    found = json.loads(run("curve", saved_run, "--at", "0.25", "--format", "json").stdout)
    assert found["rows"] == 4
    assert found["curve"] == [{"eps": 0.25, "certified": 0.5, "resisting": 0.5, "undecided": 0.0}]
    assert found["header"]["question"]["labels"] == "given"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Missing option '--at'"),
        (["--at", "0,far"], "'far' is not a valid number"),
        (["--at", "0,,1"], "'' is not a valid number"),
        (["--at", "-1"], "-1.0 is not in the range"),
        (["--at", "0,nan"], "'nan' is not a finite number"),
        (["--at", "0", "--label", "kind"], "--label has no meaning with a saved run"),
        (["--at", "0", "--out", "x"], "--out has no meaning with a saved run"),
        (["--at", "0", "--no-self-test"], "--no-self-test has no meaning with a saved run"),
    ],
)
def test_wrong_use_is_a_sentence_and_status_2(
    run: Run, saved_run: Path, words: list[str], sentence: str
) -> None:
    result = run("curve", saved_run, *words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert sentence in result.stderr


def test_runs_without_radii_are_refused(
    run: Run, saved_run: Path, saved_model: Path, data: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.jsonl"
    run("verify", saved_model, data, "--eps", "1", "--out", other)
    result = run("curve", other, "--at", "0")
    assert result.exit_code == 2
    assert "A curve needs the radii of a run of 'treeproof radius'." in result.stderr
    head = saved_run.read_text().splitlines()[0]
    saved_run.write_text(head.replace('"complete"', '"underway"'))
    empty = run("curve", saved_run, "--at", "0")
    assert empty.exit_code == 2
    assert "must have at least one row. Got none." in empty.stderr
    absent = run("curve", tmp_path / "absent.jsonl", "--at", "0")
    assert absent.exit_code == 2
    assert "absent.jsonl must be readable" in absent.stderr
    model = run("curve", data, "--at", "0")
    assert model.exit_code == 2
    assert "must be a JSON record" in model.stderr


@pytest.mark.parametrize("name", ["radius", "verify", "curve"])
def test_every_option_is_documented(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text("utf-8")
    command: click.Command = import_module(f"treeproof.cli.{name}").command
    for parameter in command.params:
        for option in parameter.opts:
            if option.startswith("--") and not getattr(parameter, "hidden", False):
                assert option in page
