"""Progress: rows or questions are counted once, and answers do not depend on it."""

from functools import partial
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


def told_by(ask: Any) -> tuple[Any, list[int], int]:
    """What a question answers, and what it tells: counts that rise to the end, and how many."""
    told: list[tuple[int, int]] = []
    found = ask(progress=lambda *counts: told.append(counts))
    done, totals = zip(*told, strict=True)
    assert list(done) == sorted(set(done))
    assert set(totals) == {done[-1]}
    return found, list(done), done[-1]


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(
    ("function", "options"),
    [
        (tp.reasons, {}),
        (tp.reasons, {"domain": tp.Domain(integer=[0])}),
        (tp.anchor_features, {"engine": "multilevel"}),
        (tp.anchor_features, {}),
        (tp.feature_radius, {}),
        (tp.feature_radius, {"perturbation": tp.L1()}),
        (tp.unimportant_features, {"perturbation": tp.LInf(0.1)}),
    ],
)
def test_rows_are_counted_where_features_are_asked_about(
    model: tp.Model, rows: tuple[Any, Any], function: Any, options: dict[str, Any], n_jobs: int
) -> None:
    values = np.round(rows[0])
    labels = model.predict(values)
    labels[3] = 1 - labels[3]  # broken as it stands, so that nothing is searched
    ask = partial(function, model, values, labels, n_jobs=n_jobs, **options)
    found, done, total = told_by(ask)
    assert total == N_ROWS
    assert len(done) > 2
    timed = {"seconds"}
    plain = [{k: v for k, v in r.items() if k not in timed} for r in ask().records()]
    assert repr(plain) == repr(
        [{k: v for k, v in r.items() if k not in timed} for r in found.records()]
    )


def test_questions_are_counted_where_properties_are_asked_about(
    model: tp.Model, rows: tuple[Any, Any]
) -> None:
    X, ball = rows[0], tp.LInf(0.1)
    for ask in (
        partial(tp.prove, model, tp.Monotone(0), ball, X, n_jobs=2),
        partial(tp.largest_change, model, 0, ball, X),
    ):
        _, done, total = told_by(ask)
        assert total == N_ROWS
        assert len(done) > 2
    # Both ends, of every row.
    assert told_by(partial(tp.score_range, model, ball, X))[2] == 2 * N_ROWS
    domain = tp.Box(X.min(axis=0), X.max(axis=0))
    assert told_by(partial(tp.score_range, model, domain))[1] == [1, 2]
    rules = tp.LInf(0.1, domain=tp.Domain(rules=["x[0] + x[1] <= 1000"]))
    assert told_by(partial(tp.largest_change, model, 2, rules, X[:3]))[1] == [1, 2, 3]


def test_two_models_are_counted_to_the_end(model: tp.Model, rows: tuple[Any, Any]) -> None:
    X, y = rows
    other = tp.load(GradientBoostingClassifier(n_estimators=8, random_state=3).fit(X[:, ::-1], y))
    domain = tp.Box(X.min(axis=0), X.max(axis=0))
    # Scores above and below; labels are asked about only where scores differ, or where that is
    # wanted: otherwise they count as answered in the end.
    for second, options, counts in (
        (other, {}, [1, 2, 3]),
        (model, {}, [1, 2]),
        (model, {"labels": True}, [1, 2, 3]),
        (model, {"labels": False}, [1]),
    ):
        _, done, total = told_by(partial(tp.diff, model, second, domain, **options))
        assert done[: len(counts)] == counts
        assert total == (2 if options.get("labels") is False else 4)


def test_questions_are_shown_as_such(
    model: tp.Model, rows: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    domain = tp.Box(rows[0].min(axis=0), rows[0].max(axis=0))
    tp.largest_change(model, 0, domain, progress=True)
    shown = capsys.readouterr().err
    assert "1 of 1 question," in shown or "1/1" in shown
    tp.score_range(model, domain, progress=True)
    tp.reasons(model, rows[0][:1], progress=True)
    shown = capsys.readouterr().err
    assert "2 of 2 questions," in shown or "2/2" in shown
    assert "1 of 1 row," in shown or "1/1" in shown


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
    with pytest.raises(tp.InvalidInput, match="'progress' must be True, False or a function"):
        tp.largest_change(model, 0, tp.LInf(0.1), rows[0], progress="yes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'on_progress'"):
        tp.largest_change(model, 0, tp.LInf(0.1), rows[0], on_progress=print)  # type: ignore[call-arg]
