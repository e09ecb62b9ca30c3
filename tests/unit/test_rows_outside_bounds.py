"""Rows outside the bounds of a question: the set around them would not hold them."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

import treeproof as tp
from treeproof.cli.main import main

NAMES = ["age", "width", "colour"]


@pytest.fixture(scope="module")
def forest() -> Any:
    X = pd.DataFrame(np.random.default_rng(0).random((60, 3)), columns=NAMES)
    return tp.load(RandomForestClassifier(4, random_state=0).fit(X, X["age"] > 0.5))


ROWS = np.array([[0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0.1, -0.5, 0.3], [1.5, 0.0, 0.0]])
SENTENCE = (
    "Row 2 must lie within 'low' and 'high' of LInf. Its 'width' is -0.5, outside 0.0 to 1.0;"
    " so are 1 more rows. Leave such rows out, or widen the bounds."
)


@pytest.mark.parametrize(
    "ask",
    [
        lambda *given: tp.verify(*given, tp.LInf(0.1, low=0.0, high=1.0)),
        lambda *given: tp.radius(*given, tp.LInf(low=0.0, high=1.0)),
        lambda *given: tp.feature_radius(*given, tp.LInf(low=0.0, high=1.0)),
        lambda *given: tp.unimportant_features(*given, tp.LInf(0.1, low=0.0, high=1.0)),
        lambda *given: tp.anchor_features(*given, tp.LInf(0.1, low=0.0, high=1.0)),
    ],
)
def test_every_question_refuses_them(forest, ask):
    with pytest.raises(tp.InvalidInput) as refused:
        ask(forest, ROWS, None)
    assert str(refused.value) == SENTENCE
    ask(forest, ROWS[:2], None)


def test_a_run_refuses_them_too(forest):
    with pytest.raises(tp.InvalidInput) as refused:
        tp.run(forest, ROWS, None, tp.LInf(low=0.0, high=1.0))
    assert str(refused.value) == SENTENCE
    tp.run(forest, ROWS[:2], None, tp.LInf(low=0.0, high=1.0))


def test_anchors_keep_values_of_the_row_so_boxes_must_hold_it(forest):
    with pytest.raises(tp.InvalidInput, match="Row 2 must lie within 'low' and 'high' of Box"):
        tp.anchor_features(forest, ROWS, None, tp.Box(0.0, 1.0))
    assert len(tp.verify(forest, ROWS, None, tp.Box(0.0, 1.0))) == 4


def test_what_does_not_move_may_be_anything(forest):
    for ball in (
        tp.LInf(low=0.0, frozen="width"),
        tp.LInf(low=0.0, scale={"width": 0.0}),
        tp.LInf(low={"age": 0.0}),
        tp.LInf(below={"width": 0.0}, above={"width": 0.0}, low=0.0),
    ):
        assert len(tp.radius(forest, ROWS, None, ball)) == 4


def test_missing_values_and_codes_are_not_compared():
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.random(90), rng.integers(0, 5, 90).astype(float)])
    classifier = HistGradientBoostingClassifier(max_iter=3, categorical_features=[1])
    model = tp.load(classifier.fit(X, (X[:, 0] > 0.5) ^ (X[:, 1] == 3)))
    rows = np.array([[0.2, 4.0], [np.nan, 3.0]])
    assert len(tp.radius(model, rows, None, tp.LInf(low=0.0, high=1.0))) == 2


@pytest.mark.parametrize("arithmetic", ["float64", "real"])
def test_rounding_puts_no_row_outside(forest, arithmetic):
    bounds = {"low": 0.1, "high": 0.7}
    rows = np.array([[0.1, 0.7, 0.3]])
    for given in (rows, rows.astype(np.float32)):
        found = tp.radius(forest, given, None, tp.LInf(**bounds), arithmetic=arithmetic)
        assert found.lower[0] >= 0.0
    with pytest.raises(tp.InvalidInput, match=r"outside 0\.1 to 0\.7"):
        tp.radius(forest, rows + 1e-6, None, tp.LInf(**bounds), arithmetic=arithmetic)


def test_runs_name_the_row_of_the_data(forest, tmp_path: Path):
    forest.save(tmp_path / "model.treeproof")
    rows = np.tile(ROWS[:1], (300, 1))
    rows[250, 0] = 7.0
    np.save(tmp_path / "rows.npy", rows)
    model, data = str(tmp_path / "model.treeproof"), str(tmp_path / "rows.npy")
    for words in (["radius", model, data], ["features", model, data]):
        for part in ("200:", "250:", "0:"):
            asked = [*words, "--high", "1", "--rows", part]
            result = CliRunner().invoke(main, asked, catch_exceptions=False)
            assert result.exit_code == 2
            assert "Row 250 must lie within" in result.stderr
            assert "Its 'age' is 7.0, outside -inf to 1.0." in result.stderr


@pytest.mark.parametrize("domain", ["integer = ['age']", "rules = ['age <= width']"])
def test_rows_that_break_their_domain_are_told_before_any_work(forest, tmp_path: Path, domain):
    """Under their numbers in the data, whatever is answered together; and only attacked ones."""
    forest.save(tmp_path / "model.treeproof")
    rows = np.tile([[0.0, 0.5, 0.5]], (3000, 1))
    rows[1054, 0] = 0.75
    np.savez(tmp_path / "rows.npz", X=rows, y=np.arange(3000) == 1054)
    (tmp_path / "threat.toml").write_text(f"eps = 0.1\n[domain]\n{domain}\n")
    model, data, threat = (
        str(tmp_path / n) for n in ("model.treeproof", "rows.npz", "threat.toml")
    )
    words = ["verify", model, data, "--threat", threat, "--out", str(tmp_path / "run.jsonl")]
    for part in ("1000:", "1054:", "0:"):
        result = CliRunner().invoke(main, [*words, "--rows", part], catch_exceptions=False)
        assert result.exit_code == 2
        assert "Row 1054 breaks its own domain" in result.stderr
        assert not (tmp_path / "run.jsonl").exists()
    with open(threat, "r+") as file:
        text = file.read()
        file.seek(0)
        file.write("attacker_class = false\n" + text)
    result = CliRunner().invoke(main, [*words, "--rows", "1053:1056"], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
