import csv
import io
import json
import math
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from sklearn.datasets import load_iris

import treeproof
from treeproof.cli import run_output
from treeproof.search.question import Question

Run = Callable[..., Result]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Rows of the model `ham` below 0.5, `spam` from there on; the last label is wrong."""
    path = tmp_path / "rows.csv"
    path.write_text("width [cm],kind\n0.25,ham\n0.75,spam\n1.5,spam\n0.0,spam\n")
    return path


def shown_rows(result: Result) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(result.stdout)))


def column(result: Result, name: str) -> list[float]:
    return [float(row[name]) for row in shown_rows(result)]


def test_radii_of_a_stump(run: Run, saved_model: Path, data: Path) -> None:
    result = run("radius", saved_model, data, "--label", "kind", "--format", "csv")
    assert result.exit_code == 0
    said = "treeproof: arithmetic: float64 rows, which the deployed model takes as they are.\n"
    assert result.stderr == said
    rows = shown_rows(result)
    assert [row["row"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["label"] for row in rows] == ["ham", "spam", "spam", "spam"]
    assert [row["misclassified"] for row in rows] == ["False", "False", "False", "True"]
    assert {row["exact"] for row in rows} == {"True"}
    # Downwards, the last double below the threshold is the nearest one.
    below = 0.75 - math.nextafter(0.5, 0.0)
    assert column(result, "lower") == column(result, "upper") == [0.25, below, 1.0, 0.0]
    assert column(result, "radius") == column(result, "lower")
    assert [row["width [cm] before"] for row in rows] == ["0.25", "0.75", "1.5", ""]
    assert [row["width [cm] after"] for row in rows] == ["0.5", "0.49", "0.49", ""]


def test_without_labels_the_model_keeps_its_own(run: Run, saved_model: Path, data: Path) -> None:
    result = run("radius", saved_model, data, "--format", "csv")
    below = 0.75 - math.nextafter(0.5, 0.0)
    assert column(result, "lower") == [0.25, below, 1.0, 0.5]
    assert shown_rows(result)[3]["label"] == "ham"


def test_the_table_begins_with_the_summary(run: Run, saved_model: Path, data: Path) -> None:
    result = run("radius", saved_model, data, "--label", "kind", "--at", "0.25")
    lines = result.stdout.splitlines()
    assert lines[0] == "4 rows: radius exact on 4, already broken 1, undecided 0"
    assert "verified at radius 0.25: 50 % of the rows" in lines
    assert "width [cm]: 0.25 → 0.5" in result.stdout
    assert "broken" in lines[-2]


def test_a_table_shows_20_rows_unless_told(run: Run, saved_model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.linspace(0.0, 1.0, 25).reshape(-1, 1))
    short = run("radius", saved_model, tmp_path / "rows.npy")
    assert "… 5 more rows (--all-rows shows them)" in short.stdout
    assert "\n  24 " not in short.stdout
    everything = run("radius", saved_model, tmp_path / "rows.npy", "--all-rows")
    assert "more rows" not in everything.stdout
    assert len(everything.stdout.splitlines()) == len(short.stdout.splitlines()) + 4
    as_csv = run("radius", saved_model, tmp_path / "rows.npy", "--format", "csv")
    assert len(shown_rows(as_csv)) == 25


def test_json_holds_question_summary_and_rows(run: Run, saved_model: Path, data: Path) -> None:
    result = run(
        "radius", saved_model, data, "--label", "kind", "--format", "json", "--frozen", "0"
    )
    found = json.loads(result.stdout)
    assert found["header"]["question"]["kind"] == "radius"
    assert found["header"]["question"]["perturbation"]["frozen"] == [0]
    assert found["header"]["data"]["label"] == "kind"
    assert found["header"]["state"] == "complete"
    assert found["summary"]["rows"] == 4
    assert found["summary"]["broken"] == 1
    assert found["summary"]["mean_lower"] == "inf"
    assert [row["lower"] for row in found["rows"]] == ["inf", "inf", "inf", 0.0]
    assert found["rows"][3]["witness"] == [0.0]


@pytest.mark.parametrize(
    ("words", "lower"),
    [
        (["--frozen", "width [cm]"], [math.inf] * 4),
        (["--high", "0.4", "--rows", "0:1"], [math.inf]),
        (["--high", "1.5"], [0.25, 0.25, 1.0, 0.5]),
        (["--low", "0.5", "--rows", "1:3"], [math.inf, math.inf]),
        (["--eps-scale", "range"], [0.25 / 1.5, 0.25 / 1.5, 1.0 / 1.5, 0.5 / 1.5]),
        (["--eps-scale", "range", "--rows", "1:3"], [0.25 / 1.5, 1.0 / 1.5]),
        (["--rows", "1:3"], [0.25, 1.0]),
        (["--rows", "3:"], [0.5]),
        (["--sample", "9"], [0.25, 0.25, 1.0, 0.5]),
        (["--engine", "cliques", "--jobs", "1"], [0.25, 0.25, 1.0, 0.5]),
        (["--time-limit", "60", "--node-limit", "1000"], [0.25, 0.25, 1.0, 0.5]),
    ],
)
def test_options_of_the_question(
    run: Run, saved_model: Path, data: Path, words: list[str], lower: list[float]
) -> None:
    result = run("radius", saved_model, data, "--format", "csv", *words)
    assert result.exit_code == 0, result.stderr
    np.testing.assert_allclose(column(result, "lower"), lower, rtol=1e-15)


def test_units_by_standard_deviation(run: Run, saved_model: Path, data: Path) -> None:
    result = run("radius", saved_model, data, "--format", "csv", "--eps-scale", "std")
    unit = np.std([0.25, 0.75, 1.5, 0.0])
    np.testing.assert_allclose(column(result, "lower"), np.array([0.25, 0.25, 1, 0.5]) / unit)


def test_a_sample_is_repeatable_and_keeps_row_numbers(
    run: Run, saved_model: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "rows.npy", np.arange(100.0).reshape(-1, 1))
    words = ("radius", saved_model, tmp_path / "rows.npy", "--rows", "50:", "--format", "csv")
    first = run(*words, "--sample", "7", "--seed", "3")
    rows = column(first, "row")
    assert len(set(rows)) == 7
    assert rows == sorted(rows)
    assert min(rows) >= 50
    assert column(first, "lower") == [row - 0.5 for row in rows]
    assert column(run(*words, "--sample", "7", "--seed", "3"), "row") == rows
    assert column(run(*words, "--sample", "7", "--seed", "4"), "row") != rows


def test_blocks_and_the_library_agree_on_a_trained_model(run: Run, tmp_path: Path) -> None:
    import xgboost

    X, y = load_iris(return_X_y=True)
    classifier = xgboost.XGBClassifier(n_estimators=4, max_depth=3).fit(X, y)
    classifier.save_model(tmp_path / "model.json")
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    out = tmp_path / "run.jsonl"
    result = run("radius", tmp_path / "model.json", tmp_path / "rows.npz", "--out", out)
    assert result.exit_code == 0, result.stderr
    saved = treeproof.load_results(out)
    expected = treeproof.radius(tmp_path / "model.json", X, y)
    np.testing.assert_array_equal(saved.lower, expected.lower)
    np.testing.assert_array_equal(saved.upper, expected.upper)
    np.testing.assert_array_equal(saved.row, np.arange(150))
    assert saved.label.tolist() == y.tolist()
    assert saved.header["model"]["fingerprint"] == expected.header["model"]["fingerprint"]


@pytest.mark.parametrize(("at", "share", "status"), [(0.25, 0.5, 0), (0.25, 0.51, 1), (1, 0.3, 1)])
def test_the_gate(
    run: Run, saved_model: Path, data: Path, at: float, share: float, status: int
) -> None:
    words = ("--label", "kind", "--at", at, "--fail-under", share)
    result = run("radius", saved_model, data, *words)
    assert result.exit_code == status
    assert ("the gate failed" in result.stderr) == (status == 1)
    assert "4 rows" in result.stdout


def test_undecided_rows_matter_under_strict(run: Run, saved_model: Path, data: Path) -> None:
    words = ("radius", saved_model, data, "--label", "kind", "--engine", "multilevel")
    assert run(*words).exit_code == 0
    result = run(*words, "--strict")
    assert result.exit_code == 3
    assert result.stderr == "treeproof: 3 of 4 rows are undecided (--strict).\n"
    assert ", undecided " in result.stdout
    assert run("radius", saved_model, data, "--strict").exit_code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--fail-under", "0.5"], "--fail-under needs a radius: give it with --at."),
        (["--fail-under", "1.5", "--at", "1"], "1.5 is not in the range"),
        (["--fail-under", "nan", "--at", "1"], "'nan' is not a finite number"),
        (["--at", "-1"], "-1.0 is not in the range"),
        (["--at", "inf"], "'inf' is not a finite number"),
        (["--label", "kinds"], "has no 'kinds'. Did you mean 'kind'?"),
        (["--engine", "magic"], "'engine' must be one of exact, "),
        (["--rows", "5"], "Rows must be given as first:last, for example 0:500. Got '5'."),
        (["--rows", "3:1"], "The last row must not come before the first. Got '3:1'."),
        (["--rows", "9:"], "There must be at least one row to ask about. Got none in "),
        (["--rows", "9:", "--eps-scale", "std"], "Got none in "),
        (["--sample", "0"], "0 is not in the range"),
        (["--seed", "-1"], "-1 is not in the range"),
        (["--jobs", "0"], "0 is not in the range"),
        (["--time-limit", "0"], "0.0 is not in the range"),
        (["--time-limit", "nan"], "'nan' is not a finite number"),
        (["--node-limit", "0"], "0 is not in the range"),
        (["--format", "xml"], "'xml' is not one of"),
        (["--eps-scale", "iqr"], "'iqr' is not one of"),
        (["--frozen", "height"], "The model must have a feature named 'height'."),
        (["--frozen", "7"], "A feature number must be from 0 to 0. Got 7."),
        (["--low", "2", "--high", "1"], "'low' of LInf must not exceed 'high'"),
        (["--low", "nan"], "neither may be NaN"),
        (["--out", "absent/run.jsonl"], "The folder of the run file 'absent/run.jsonl' must exist"),
        (["--out", "."], "The run file '.' must be a file."),
        (["--decision-threshold", "2"], "must be a probability above 0 and up to 1. Got 2.0."),
    ],
)
def test_wrong_input_is_a_sentence_and_status_2(
    run: Run, saved_model: Path, data: Path, words: list[str], sentence: str
) -> None:
    result = run("radius", saved_model, data, *words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert sentence in result.stderr


def test_files_that_cannot_be_used(run: Run, saved_model: Path, data: Path) -> None:
    absent = run("radius", saved_model, data.with_name("absent.csv"))
    assert absent.exit_code == 2
    assert "absent.csv' cannot be read: No such file or directory." in absent.stderr
    assert run("radius", saved_model.with_name("absent"), data).exit_code == 2
    data.write_text("height,kind\n0.25,ham\n")
    other = run("radius", saved_model, data)
    assert other.exit_code == 2
    assert "Column names must match the model's feature names." in other.stderr
    data.write_text("width [cm],kind\n0.25,eggs\n")
    labels = run("radius", saved_model, data, "--label", "kind")
    assert labels.exit_code == 2
    assert (
        "Labels must be among the model's classes ['ham', 'spam']. Got ['eggs'], the first in row"
        in (labels.stderr)
    )


def test_ctrl_c_keeps_what_is_finished(
    run: Run,
    saved_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    np.save(tmp_path / "rows.npy", np.arange(1000.0).reshape(-1, 1))
    answer, calls, enough = Question.answer, [], 2
    # A job that was started in the background inherits Ctrl-C as ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    def interrupted(*arguments: Any, **keywords: Any) -> treeproof.Results:
        calls.append(len(arguments[2]))
        if len(calls) == enough:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.3)  # the main thread ends the run meanwhile
        return answer(*arguments, **keywords)

    monkeypatch.setattr(Question, "answer", interrupted)
    out = tmp_path / "run.jsonl"
    words = ("radius", saved_model, tmp_path / "rows.npy", "--out", out, "--jobs", "1")
    result = run(*words)
    assert result.exit_code == 130
    assert f"interrupted after {calls[0]} of 1000 rows; these are kept." in result.stderr
    assert len(treeproof.load_results(out)) == calls[0]
    out.unlink()
    calls[:], enough = [], 1
    nothing = run(*words)
    assert nothing.exit_code == 130
    assert nothing.stderr.endswith("treeproof: interrupted.\n")


def test_progress_is_shown_on_terminals_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_output.progress_bar(10) as advance:
        advance(5)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with run_output.progress_bar(10) as advance:
        advance(5)
    shown = capsys.readouterr()
    assert "5/10" in shown.err
    assert shown.out == ""


def test_models_that_give_scores(run: Run, tmp_path: Path) -> None:
    import xgboost

    X = np.random.default_rng(0).random((50, 2))
    regressor = xgboost.XGBRegressor(n_estimators=3, max_depth=2).fit(X, X[:, 0])
    regressor.save_model(tmp_path / "model.json")
    np.savez(tmp_path / "rows.npz", X=X, y=X[:, 0])
    words = ("radius", tmp_path / "model.json", tmp_path / "rows.npz")
    refused = run(*words)
    assert refused.exit_code == 2
    assert refused.stderr == (
        "treeproof: error: A model that gives scores has no label to keep."
        " Say with --score-change by how much its raw score may move.\n"
    )
    result = run(*words, "--score-change", "0.1", "--format", "csv")
    assert result.exit_code == 0, result.stderr
    expected = treeproof.radius(regressor, X, goal=treeproof.ScoreChange(0.1))
    assert column(result, "lower") == expected.lower.tolist()


def test_libsvm_files_may_leave_out_the_last_columns(run: Run, tmp_path: Path) -> None:
    import xgboost

    X = np.random.default_rng(0).random((50, 3))
    classifier = xgboost.XGBClassifier(n_estimators=3, max_depth=2).fit(X, X[:, 0] > 0.5)
    classifier.save_model(tmp_path / "model.json")
    (tmp_path / "rows.libsvm").write_text("0 1:0.25\n1 1:0.75 2:0.5\n")
    words = ("radius", tmp_path / "model.json", tmp_path / "rows.libsvm", "--format", "csv")
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    expected = treeproof.radius(classifier, [[0.25, 0, 0], [0.75, 0.5, 0]], [0, 1])
    assert column(result, "lower") == expected.lower.tolist()
