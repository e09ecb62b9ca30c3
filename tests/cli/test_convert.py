from collections.abc import Callable
from pathlib import Path

import numpy as np
from click.testing import Result
from sklearn.datasets import load_iris

import treeproof
from treeproof.model.file_format import load_saved

Run = Callable[..., Result]


def test_a_saved_model_can_be_saved_again(run: Run, saved_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "copy.treeproof"
    result = run("convert", saved_model, out)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert result.stderr.startswith("treeproof: saved <treeproof.Model: test 1.2, 1 trees")
    assert out.read_bytes() == saved_model.read_bytes()


def test_a_library_model_keeps_its_meaning(run: Run, tmp_path: Path) -> None:
    import xgboost

    X, y = load_iris(return_X_y=True)
    classifier = xgboost.XGBClassifier(n_estimators=5, max_depth=3).fit(X, y)
    classifier.save_model(tmp_path / "model.json")
    result = run("convert", tmp_path / "model.json", tmp_path / "model.treeproof")
    assert result.exit_code == 0, result.stderr
    model = treeproof.load(tmp_path / "model.treeproof")
    expected = classifier.predict(X, output_margin=True)
    assert model.margins(X).tobytes() == expected.tobytes()
    np.testing.assert_array_equal(model.predict(X), classifier.predict(X))


def test_out_that_cannot_be_written(run: Run, saved_model: Path, tmp_path: Path) -> None:
    result = run("convert", saved_model, tmp_path / "absent" / "out.treeproof")
    assert result.exit_code == 2
    assert "The folder of the model file" in result.stderr


def test_a_broken_model_leaves_the_old_file_alone(
    run: Run, saved_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.treeproof"
    run("convert", saved_model, out)
    before = load_saved(out).fingerprint
    saved_model.write_bytes(b"nonsense")
    assert run("convert", saved_model, out).exit_code == 2
    assert load_saved(out).fingerprint == before
