"""`treeproof diff`: two model files, a gate, answers that can be checked."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import treeproof as tp
from tests.strategies import Sizes, random_tree_ensemble
from treeproof.prediction import Model
from treeproof.report.properties import property_section

Run = Callable[..., Result]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A model, and the same one with a leaf changed."""
    ensemble = random_tree_ensemble(
        np.random.default_rng(5), Sizes(trees=4, depth=3, features=2), plain=True, kind="threshold"
    )
    precision: Any = str(ensemble.aggregation.precision)
    rows: Any = str(ensemble.input_precision)
    sums = replace(ensemble.aggregation, precision=precision)
    ensemble = replace(ensemble, input_precision=rows, aggregation=sums)
    value = ensemble.trees.leaf_value.copy()
    value[0] += 1.0
    changed = replace(ensemble, trees=ensemble.trees._replace(leaf_value=value))
    paths = tmp_path / "first.treeproof", tmp_path / "second.treeproof"
    for path, model in zip(paths, (ensemble, changed), strict=True):
        Model(model).save(path)
    return paths


def test_the_same_model_is_proved_to_be_the_same(run: Run, files: tuple[Path, Path]) -> None:
    result = run("diff", files[0], files[0], "--delta", "0")
    assert result.exit_code == 0
    assert "the same: proved for every row" in result.output
    assert "trees are the same" in result.output


def test_a_changed_leaf_is_a_failed_gate_with_a_row(run: Run, files: tuple[Path, Path]) -> None:
    result = run("diff", *files, "--format", "json")
    assert result.exit_code == 1
    answer = json.loads(result.output)["answers"][0]
    assert answer["verdict"] == "falsified"
    assert answer["trees"]["since_round"] == 0
    rows = answer["scores"]["witness"]["rows"]
    row = np.array([list(rows[0].values())], dtype=np.float64)
    first, second = (tp.load(path) for path in files)
    difference = float(second.margins(row)[0]) - float(first.margins(row)[0])
    assert abs(difference) == pytest.approx(answer["lower"])


def test_what_the_summary_says_was_proved(files: tuple[Path, Path]) -> None:
    first, second = (tp.load(path) for path in files)
    value = second.ensemble.trees.leaf_value
    rng = np.random.default_rng(0)
    for shift in rng.uniform(0.001, 1.0, 20):
        changed = value.copy()
        changed[0, 0] = np.float32(changed[0, 0] + shift)
        trees = second.ensemble.trees._replace(leaf_value=changed)
        other = Model(replace(second.ensemble, trees=trees))
        result = tp.diff(first, other, tp.Box(-np.inf, np.inf))
        said = result.summary()
        far = re.search(r"farther than (\S+) from the decision", said)
        assert far is not None
        assert float(far[1]) >= result.upper
        bounds = re.search(r"between (\S+) and (\S+) ", said)
        if bounds is not None:
            assert float(bounds[1]) <= result.lower <= result.upper <= float(bounds[2])


def test_answers_with_evidence_are_checked_and_shown(
    run: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "diff.json"
    assert run("diff", *files, "--out", out, "--evidence", "--delta", "2").exit_code == 0
    checked = run("check", out, "--model", files[0], "--other", files[1])
    assert checked.exit_code == 0, checked.output
    said = checked.output.splitlines()
    assert said[-3].startswith(
        "1. The scores of both models differ by at most 2. verified, largest"
    )
    assert said[-3].endswith(': accepted (named "two models: scores")')
    swapped = run("check", out, "--model", files[1], "--other", files[0])
    assert swapped.exit_code == 2
    assert "Got another model under 'model'" in swapped.stderr
    alone = run("check", out, "--model", files[0])
    assert alone.exit_code == 2
    assert "--other" in alone.stderr


def test_the_report_shows_both_models(run: Run, files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "diff.json"
    assert run("diff", *files, "--out", out).exit_code == 1
    section = property_section(out, ())
    assert section["heading"] == "Difference of two models"
    assert "from round 0 on" in section["trees"]
    # With fewer digits the row might not tell the models apart.
    record = json.loads(out.read_text())["properties"][0]["witness"]["rows"][0]
    shown = {name: float(cells[0].replace(",", "").replace("−", "-"))
             for name, cells, _ in section["cards"][0]["rows"]}  # fmt: skip
    assert shown == record
    scores = section["cards"][0]
    assert scores["verdict"] == "falsified"
    assert [side.partition(":")[0] for side in scores["sides"]] == ["first model", "second model"]
    assert scores["heads"] == ["value"]
    assert all(len(values) == 1 for _, values, _ in scores["rows"])


def test_around_rows_every_row_has_an_answer(
    run: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    data = tmp_path / "rows.csv"
    n_features = tp.load(files[0]).n_features
    lines = [",".join(f"x{number}" for number in range(n_features))]
    lines += [",".join(["0.2"] * n_features), ",".join(["0.6"] * n_features)]
    data.write_text("\n".join(lines) + "\n")
    result = run("diff", *files, "--data", data, "--eps", "0.1", "--format", "json")
    assert result.exit_code in (0, 1)
    assert [answer["row"] for answer in json.loads(result.output)["answers"]] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--eps", "0.1"), "--data and --eps must come together"),
        (("--evidence",), "--evidence must come with --out"),
        (("--delta", "-1"), "--delta"),
        (("--domain", "nowhere.toml"), "cannot be read"),
        (("--gap", "1.5"), "--gap"),
    ],
)
def test_wrong_options_are_refused(
    run: Run, files: tuple[Path, Path], arguments: tuple[str, ...], words: str
) -> None:
    result = run("diff", *files, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_models_of_other_rows_or_classes_are_refused(
    run: Run, files: tuple[Path, Path], tmp_path: Path
) -> None:
    ensemble = tp.load(files[0]).ensemble
    others = {
        "same classes": replace(ensemble, classes=("no", "yes")),
        "same columns": replace(ensemble, n_features=ensemble.n_features + 1),
    }
    for words, other in others.items():
        path = tmp_path / "other.treeproof"
        Model(other).save(path)
        result = run("diff", files[0], path)
        assert result.exit_code == 2
        assert words in result.stderr
