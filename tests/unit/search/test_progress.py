"""Progress: rows are counted once, from any engine, and answers do not depend on it."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier

import treeproof as tp

N_ROWS = 60


@pytest.fixture(scope="module")
def rows() -> tuple[Any, Any]:
    return make_classification(N_ROWS, 5, n_informative=3, random_state=1)


@pytest.fixture(scope="module")
def model(rows: tuple[Any, Any]) -> tp.Model:
    return tp.load(GradientBoostingClassifier(n_estimators=8, random_state=0).fit(*rows))


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("engine", ["exact", "multilevel", "attack"])
def test_every_row_is_counted_once(
    model: tp.Model, rows: tuple[Any, Any], engine: str, n_jobs: int
) -> None:
    for ask, ball in ((tp.radius, tp.LInf()), (tp.verify, tp.LInf(0.1))):
        told: list[tuple[int, int]] = []
        options: Any = {"engine": engine, "n_jobs": n_jobs}
        with_it = ask(model, *rows, ball, progress=lambda *x, told=told: told.append(x), **options)
        without = ask(model, *rows, ball, **options)
        done = [count for count, _ in told]
        assert done == sorted(done)
        assert told[-1] == (N_ROWS, N_ROWS)
        for name in ("lower", "upper", "witness", "verdict"):
            np.testing.assert_array_equal(getattr(with_it, name), getattr(without, name))


def test_progress_comes_before_the_end(model: tp.Model, rows: tuple[Any, Any]) -> None:
    told: list[int] = []
    tp.radius(model, *rows, progress=lambda done, _: told.append(done))
    assert len(told) > 2  # stage by stage, and in between


def test_a_line_is_shown(
    model: tp.Model, rows: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    tp.radius(model, *rows, progress=True)
    tp.run(model, *rows, progress=True)
    shown = capsys.readouterr().err
    assert shown.count(f"{N_ROWS} of {N_ROWS} rows") + shown.count(f"{N_ROWS}/{N_ROWS}") >= 2


def test_wrong_values_are_refused(model: tp.Model, rows: tuple[Any, Any]) -> None:
    with pytest.raises(tp.InvalidInput, match="'progress' must be True, False or a function"):
        tp.radius(model, *rows, progress="yes")  # type: ignore[arg-type]
