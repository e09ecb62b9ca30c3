import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from treeproof.cli import demo
from treeproof.errors import install_command
from treeproof.results.run_file import load_results

Run = Callable[..., Result]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few trees, and few rows: their proofs are what takes time."""
    monkeypatch.setattr(demo, "N_TREES", 6)
    monkeypatch.setattr(demo, "N_PROVED", 30)


@pytest.mark.usefixtures("quick")
def test_the_demo_trains_proves_checks_and_reports(run: Run, tmp_path: Path) -> None:
    result = run("demo", "--out", tmp_path / "made" / "here", "--jobs", 2)
    assert result.exit_code == 0
    folder = tmp_path / "made" / "here"
    for task in demo.TASKS:
        natural, robust = (
            load_results(folder / f"{task.name}-{kind}.jsonl") for kind in ("natural", "robust")
        )
        assert robust.lower.mean() > natural.lower.mean()
        page = (folder / f"{task.name}.html").read_text(encoding="utf-8")
        assert task.title in page
        assert f"independently of the engines: {demo.N_PROVED} accepted" in page
        assert ('class="pixels"' in page) == (task.shape is not None)
        assert ("mean radius if frozen" in page) == (task.shape is None)
        assert str(folder / f"{task.name}.html") in result.stdout.replace("\n", "")
    checked = re.findall(r"proofs checked in [\d.]+ s: (.*)", result.stdout)
    assert checked == [f"{demo.N_PROVED} accepted"] * 4
    for name in demo.MODELS:
        assert re.search(rf"{name} +self-test passed: margins of .* rows equal", result.stdout)
    assert "DIFFERENT" not in result.stdout
    assert "not installed" not in result.stdout


@pytest.mark.usefixtures("quick")
def test_libraries_that_are_not_installed_are_left_out(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_boosting(name: str) -> Any:
        if name in ("xgboost", "lightgbm", "catboost"):
            raise ImportError(name)
        return import_module(name)

    monkeypatch.setattr(demo, "import_module", without_boosting)
    monkeypatch.setattr(demo, "TASKS", ())
    result = run("demo", "--out", tmp_path)
    assert result.exit_code == 0
    assert f"XGBoost       not installed ({install_command('xgboost')})" in result.stdout
    assert result.stdout.count("not installed") == 3
    assert "scikit-learn  self-test passed" in result.stdout


def test_a_folder_that_cannot_be_made_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("demo", "--out", tmp_path / "file" / "below")
    assert result.exit_code == 2
    assert "cannot be made" in result.stderr
