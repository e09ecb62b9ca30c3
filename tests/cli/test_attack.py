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


@pytest.mark.parametrize("engine", ["attack", "hard_label"])
def test_changes_of_a_stump(run: Run, saved_model: Path, data: Path, engine: str) -> None:
    words = ("--engine", engine, "--label", "kind", "--format", "csv")
    result = run("attack", saved_model, data, *words)
    assert result.exit_code == 0
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    upper = [float(row["upper"]) for row in rows]
    assert upper == pytest.approx([0.25, 0.25, 1.0, 0.0], rel=1e-3)
    assert upper >= [0.25, 0.25, 1.0, 0.0]
    assert [row["exact"] for row in rows] == ["False", "False", "False", "True"]
    assert [row["misclassified"] for row in rows] == ["False", "False", "False", "True"]
    assert {row["lower"] for row in rows} == {"0"}


def test_the_table_tells_what_changes(run: Run, saved_model: Path, data: Path) -> None:
    result = run("attack", saved_model, data, "--label", "kind")
    lines = result.stdout.splitlines()
    assert lines[0] == "4 rows: changes found for 3, already broken 1, none found 0"
    assert lines[1] == "mean distance of what was found: 0.5"
    assert "width [cm]: 0.25 → 0.5" in result.stdout


def test_any_change_within_a_radius(run: Run, saved_model: Path, data: Path) -> None:
    result = run("attack", saved_model, data, "--eps", "0.3", "--label", "kind", "--format", "json")
    found = json.loads(result.stdout)
    assert found["summary"]["found"] == 3
    assert found["summary"]["none_found"] == 1
    assert found["rows"][2]["reason"] == "no witness found"


def test_runs_are_saved_with_witnesses(
    run: Run, saved_model: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run.jsonl"
    assert run("attack", saved_model, data, "--out", out).exit_code == 0
    results = treeproof.load_results(out)
    assert results.header["question"]["engine"]["name"] == "attack"
    model = treeproof.load(saved_model)
    assert model.predict(results.witness).tolist() == ["spam", "ham", "ham", "spam"]


def test_engines_that_prove_do_not_attack(run: Run, saved_model: Path, data: Path) -> None:
    result = run("attack", saved_model, data, "--engine", "exact")
    assert result.exit_code == 2
    assert "--engine of attack must be one of attack, hard_label." in result.stderr
    assert run("attack", saved_model, data, "--evidence").exit_code == 2
    assert "attack or hard_label" in run("attack", "--help").stdout
