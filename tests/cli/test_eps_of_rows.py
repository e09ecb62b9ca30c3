"""Threat files with a column of radii, from data files to reports."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import Result

Run = Callable[..., Result]
WIDTHS, EPS = [0.25, 0.75, 3.0, -1.0], [0.2, 0.3, 1.0, 0.0]


@pytest.fixture
def threat(tmp_path: Path) -> Path:
    path = tmp_path / "threat.toml"
    path.write_text('eps = {column = "tolerance"}\n')
    return path


def data_file(tmp_path: Path, ending: str) -> Path:
    path = tmp_path / f"rows{ending}"
    frame = pd.DataFrame({"width [cm]": WIDTHS, "tolerance": EPS, "name": list("abcd")})
    if ending == ".csv":
        frame.to_csv(path, index=False)
    elif ending == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif ending == ".parquet":
        frame.to_parquet(path)
    else:
        arrays = {"X": np.array(WIDTHS)[:, np.newaxis], "tolerance": np.array(EPS)}
        np.savez(path, **arrays, feature_names=np.array(["width [cm]"]))
    return path


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet", ".npz"])
def test_every_row_is_verified_within_its_own(
    run: Run, saved_model: Path, threat: Path, tmp_path: Path, ending: str
) -> None:
    words = (saved_model, data_file(tmp_path, ending), "--threat", threat)
    result = run("verify", *words, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [float(row["eps"]) for row in rows] == EPS
    verdicts = [row["verdict"] for row in rows]
    for eps in set(EPS):
        alone = run("verify", *words, "--eps", eps, "--format", "csv")
        for row in csv.DictReader(io.StringIO(alone.stdout)):
            if EPS[int(row["row"])] == eps:
                assert verdicts[int(row["row"])] == row["verdict"]
        assert "eps" not in alone.stdout.splitlines()[0]
    assert set(verdicts) == {"verified", "falsified"}
    assert run("attack", *words).exit_code == run("radius", *words).exit_code == 0


def test_words_evidence_gate_and_report(
    run: Run, saved_model: Path, threat: Path, tmp_path: Path
) -> None:
    data, out, page = data_file(tmp_path, ".csv"), tmp_path / "run.jsonl", tmp_path / "page.html"
    words = ("verify", saved_model, data, "--threat", threat)
    result = run(*words, "--id", "name", "--out", out, "--evidence")
    assert (
        "verified each row within its own eps (column tolerance): 75 % of the rows" in result.stdout
    )
    assert "every feature moves by up to the row’s own eps" in result.stdout
    check = ("check", out, "--model", saved_model, "--data", data)
    assert "4 accepted" in run(*check).stdout
    lines = out.read_text().splitlines()
    record = json.loads(lines[1])
    lines[1] = json.dumps(record | {"eps": record["eps"] / 2, "lower": record["lower"] / 2})
    out.write_text("\n".join(lines))
    assert run(*check).exit_code == 3
    run(*words, "--id", "name", "--out", out, "--evidence")
    assert run(*words, "--not-worse-than", out).exit_code == 0
    assert run(*words, "--fail-under", "0.8").exit_code == 1
    assert run("report", out, "--check", saved_model, "--out", page).exit_code == 0
    text = page.read_text()
    assert "the row’s own eps" in text
    assert "its own eps (column tolerance)" in text
    assert "Radii</a>" not in text


def test_a_worse_model_fails_the_gate_at_the_radii_of_the_rows(
    run: Run, saved_model: Path, threat: Path, tmp_path: Path
) -> None:
    data, out = data_file(tmp_path, ".csv"), tmp_path / "run.jsonl"
    run("radius", saved_model, data, "--out", out)
    words = ("verify", saved_model, data, "--threat", threat, "--not-worse-than", out)
    assert run(*words).exit_code == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    for line in lines[1:]:
        line.update(lower=100.0, upper=100.0, verdict="verified")
    out.write_text("\n".join(map(json.dumps, lines)))
    result = run(*words)
    assert result.exit_code == 1
    assert "no longer verified are rows" in result.stderr


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ("tollerance", "Did you mean 'tolerance'?"),
        ("name", "must hold how far each row may move, a number >= 0. Got 'a' in row 0."),
    ],
)
def test_columns_that_hold_no_radius(
    run: Run, saved_model: Path, threat: Path, tmp_path: Path, column: str, sentence: str
) -> None:
    threat.write_text(f'eps = {{column = "{column}"}}')
    result = run("verify", saved_model, data_file(tmp_path, ".csv"), "--threat", threat)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_budgets_of_costs_are_costs(
    run: Run, saved_model: Path, threat: Path, tmp_path: Path
) -> None:
    threat.write_text('norm = "cost"\neps = 0.25\n')
    data = data_file(tmp_path, ".csv")
    assert "verified at cost 0.25" in run("verify", saved_model, data, "--threat", threat).stdout
    threat.write_text('norm = "cost"\neps = {column = "tolerance"}\n')
    words = run("verify", saved_model, data, "--threat", threat).stdout
    assert "verified each row within its own budget (column tolerance)" in words
