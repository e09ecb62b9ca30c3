import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from sklearn.datasets import load_iris

import treeproof as tp

Run = Callable[..., Result]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    X, y = load_iris(return_X_y=True)
    X, y = X[y > 0], y[y > 0]
    lines = ["length,width,petal length,petal width,kind"]
    lines += [",".join(map(str, row)) + f",{'ab'[k - 1]}" for row, k in zip(X, y, strict=True)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def words(data: Path, out: Path, *more: object) -> tuple[object, ...]:
    shared = ("--label", "kind", "--trees", "5", "--depth", "3", "--jobs", "1")
    return ("train", data, "--out", out, *shared, *more)


def test_a_trained_model_is_asked_as_any_other(run: Run, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.treeproof"
    result = run(*words(data, out, "--eps", "0.2", "--test", data))
    assert result.exit_code == 0, result.stderr
    assert "5 rounds on 100 rows, 4 features and 2 classes, against eps 0.2" in result.stdout
    assert f"accuracy on 100 rows of {data}" in result.stdout
    model = tp.load(out)
    assert model.classes == ("a", "b")
    assert model.feature_names == ("length", "width", "petal length", "petal width")
    asked = run("radius", out, data, "--label", "kind", "--at", "0.1", "--fail-under", "0.5")
    assert asked.exit_code == 0, asked.stderr
    natural = tmp_path / "natural.treeproof"
    run(*words(data, natural))
    both = [run("radius", path, data, "--format", "json").stdout for path in (out, natural)]
    assert both[0] != both[1]


def test_xgboost_reads_the_model_and_agrees(run: Run, data: Path, tmp_path: Path) -> None:
    import xgboost

    out = tmp_path / "model.json"
    result = run(*words(data, out, "--eps", "0.1", "--eps-scale", "std"))
    assert result.exit_code == 0, result.stderr
    assert "The file knows classes by number: 0 is 'a', 1 is 'b'." in result.stderr
    X = load_iris().data[:20].astype(np.float32)
    names = ["length", "width", "petal length", "petal width"]
    rows = xgboost.DMatrix(X, feature_names=names)
    margins = xgboost.Booster(model_file=out).predict(rows, output_margin=True)
    np.testing.assert_array_equal(tp.load(out).margins(X), margins)


def test_labels_and_rows_of_arrays(run: Run, tmp_path: Path) -> None:
    X, y = load_iris(return_X_y=True)
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    more = ("--trees", "3", "--rows", "0:100", "--frozen", "0", "--monotone", "2=1")
    result = run("train", tmp_path / "rows.npz", "--out", tmp_path / "model.ubj", *more)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""  # classes 0 and 1 need no remark
    assert "on 100 rows" in result.stdout
    assert run("verify", tmp_path / "model.ubj", tmp_path / "rows.npz", "--rows", "0:100",
               "--eps", "0.1").exit_code == 0  # fmt: skip


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--eps", "-1"], "-1.0 is not in the range"),
        (["--eps", "nan"], "'nan' is not a finite number"),
        (["--frozen", "petals"], "The model must have a feature named 'petals'."),
        (["--monotone", "length"], "--monotone must have the form NAME=1 or NAME=-1."),
        (["--rows", "500:"], "There must be at least one row to train on. Got none"),
        (["--rows", "0:3"], "Training needs rows of at least two classes."),
        (["--label", "kinds"], "has no 'kinds'. Did you mean 'kind'?"),
        (["--subsample", "0"], "0.0 is not in the range"),
        (["--out", "model.txt"], "The model file must end in .json, .ubj, .onnx, .treeproof."),
        (["--out", "absent/model.json"], "The folder of the model file"),
        (["--test", "absent.csv"], "'absent.csv' cannot be read"),
    ],
)
def test_wrong_input_is_a_sentence_and_status_2(
    run: Run, data: Path, tmp_path: Path, more: list[str], sentence: str
) -> None:
    result = run(*words(data, tmp_path / "model.json", *more))
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_labels_are_needed(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.eye(3))
    result = run("train", tmp_path / "rows.npy", "--out", tmp_path / "model.json")
    assert result.exit_code == 2
    assert "Training needs labels. Say with --label" in result.stderr


def test_labels_are_classes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,y\n1,0.5\n2,1\n")
    result = run("train", tmp_path / "rows.csv", "--label", "y", "--out", tmp_path / "model.json")
    assert result.exit_code == 2
    assert "Labels must be classes, whole numbers or texts. Got 0.5." in result.stderr


def test_cells_that_are_no_numbers_are_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,y\n1,0\nred,1\n")
    result = run("train", tmp_path / "rows.csv", "--label", "y", "--out", tmp_path / "model.json")
    assert result.exit_code == 2
    assert "'red'" in result.stderr
    assert not (tmp_path / "model.json").exists()


def test_a_model_that_cannot_be_written_leaves_the_old_one(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    out = tmp_path / "model.json"
    out.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    result = run(*words(data, out))
    assert result.exit_code == 2
    assert result.stderr.endswith("cannot be written: No space left on device.\n")
    assert out.read_text() == "old"


def test_a_threat_file_says_who_attacks_and_the_limit_is_shown(
    run: Run, data: Path, tmp_path: Path
) -> None:
    threat = tmp_path / "threat.toml"
    threat.write_text('eps = 0.3\nfrozen = ["petal width"]\n')
    out = tmp_path / "model.treeproof"
    result = run(*words(data, out, "--threat", threat, "--test", data))
    assert result.exit_code == 0, result.stderr
    assert "against the threat model" in result.stdout
    said = [line for line in result.stdout.splitlines() if line.startswith("robust error on")]
    assert len(said) == 2
    assert "least possible" in said[0]
    X = load_iris().data[50:]
    labels = ["a"] * 50 + ["b"] * 50
    found = tp.verify(tp.load(out), X, labels, tp.LInf(0.3, frozen=["petal width"]))
    error = float(said[0].split(": ")[1].split(" ")[0])
    assert error == pytest.approx(np.mean(found.verdict != "verified"), abs=0.011)


def test_a_threat_of_sums_is_trained_against_and_its_error_is_a_bound(
    run: Run, data: Path, tmp_path: Path
) -> None:
    threat = tmp_path / "threat.toml"
    threat.write_text('norm = "L1"\neps = 0.3\n')
    out = tmp_path / "model.onnx"
    result = run(*words(data, out, "--threat", threat))
    assert result.exit_code == 0, result.stderr
    said = [line for line in result.stdout.splitlines() if line.startswith("robust error on")]
    assert "at most" in said[0]
    assert "least possible" not in said[0]
    labels = ["a"] * 50 + ["b"] * 50
    found = tp.verify(tp.load(out), load_iris().data[50:], labels, tp.L1(0.3))
    error = float(said[0].split(": ")[1].split(" ")[0])
    assert 0.0 < np.mean(found.verdict != "verified") <= error


def test_a_search_is_for_an_attacker(run: Run, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.treeproof"
    result = run(*words(data, out, "--search"))
    assert result.exit_code == 2
    assert "--search needs an attacker: give --eps or --threat." in result.stderr
    threat = tmp_path / "threat.toml"
    threat.write_text("eps = 0.3\n")
    result = run(*words(data, out, "--eps", "0.1", "--threat", threat))
    assert result.exit_code == 2
    assert "--threat says all about the attacker." in result.stderr
    assert not out.exists()
