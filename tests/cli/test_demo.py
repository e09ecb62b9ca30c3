import builtins
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from treeproof.cli.demo import MODELS

Run = Callable[..., Result]


def test_the_demo_shows_all_four_libraries(run: Run) -> None:
    result = run("demo")
    assert result.exit_code == 0
    for name in MODELS:
        assert f"{name}: trained, loaded and tested in" in result.stdout
    assert result.stdout.count("passed: margins of") == len(MODELS)
    assert result.stdout.count("rows: equal") == len(MODELS)
    assert result.stdout.count("the same bits") == len(MODELS)
    assert "DIFFERENT" not in result.stdout
    assert "left out" not in result.stdout


def test_libraries_that_are_not_installed_are_left_out(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def without_boosting(name: str, *arguments: Any, **keywords: Any) -> Any:
        if name in ("xgboost", "lightgbm", "catboost"):
            raise ImportError(name)
        return real_import(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without_boosting)
    result = run("demo")
    assert result.exit_code == 0
    assert "not installed: XGBoost (pip install 'treeproof[xgboost]')" in result.stdout
    assert result.stdout.count("left out") == 3
    assert "scikit-learn: trained" in result.stdout
