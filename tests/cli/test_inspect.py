import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from tests.random_ensembles import random_ensemble
from tests.unit.loaders.xgboost_cases import early_stopped
from treeproof.model.ensemble import Provenance
from treeproof.model.file_format import load_saved, save_ensemble
from treeproof.model.inspection import describe, summary_lines

Run = Callable[..., Result]
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "model-file.md"


def test_the_table_shows_what_was_understood(run: Run, saved_model: Path) -> None:
    result = run("inspect", saved_model)
    assert result.exit_code == 0
    assert result.stderr == ""
    shown = " ".join(result.stdout.split())
    for text in (
        "test 1.2",
        "ham, spam",
        "1 trees, 2 leaves",
        "1 used of 1",
        "width [cm]",
        "left iff x < T in float64; a value equal to T goes right",
        "'spam' iff margin >= 0.0, otherwise 'ham'",
        "Look here.",
        "not run",
    ):
        assert text in shown
    assert "\x1b" not in result.stdout


def test_json_holds_every_documented_key(run: Run, saved_model: Path) -> None:
    result = run("inspect", saved_model, "--json")
    assert result.exit_code == 0
    described = json.loads(result.stdout)
    assert described == describe(load_saved(saved_model))
    page = REFERENCE.read_text(encoding="utf-8").partition("## What `inspect` shows")[2]
    documented = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert documented == list(described)
    assert described["classes"] == ["ham", "spam"]
    assert described["notes"] == ["Look here."]


@pytest.mark.parametrize("seed", range(20))
def test_any_model_can_be_shown_in_both_forms(run: Run, tmp_path: Path, seed: int) -> None:
    ensemble = random_ensemble(np.random.default_rng(seed))
    save_ensemble(ensemble, tmp_path / "m")
    described = json.loads(run("inspect", tmp_path / "m", "--json").stdout)
    assert described["fingerprint"] == ensemble.fingerprint
    table = run("inspect", tmp_path / "m").stdout
    for caption, text in summary_lines(described):
        assert caption in table
        assert text.split()[0].strip(",;:")[:20] in table


def test_names_cannot_steer_the_terminal_or_the_table(run: Run, tmp_path: Path) -> None:
    ensemble = load_saved_with("\x1b]0;owned\x07[red]x[/red] :smile:", tmp_path)
    result = run("inspect", ensemble)
    assert "\x1b" not in result.stdout
    assert "\x07" not in result.stdout
    assert "[red]x[/red] :smile:" in result.stdout


def load_saved_with(source: str, folder: Path) -> Path:
    ensemble = random_ensemble(np.random.default_rng(0))
    save_ensemble(ensemble.with_provenance(source=source), folder / "m")
    return folder / "m"


def test_options_that_a_file_answers_itself_are_refused(run: Run, saved_model: Path) -> None:
    result = run("inspect", saved_model, "--decision-threshold", "0.7")
    assert result.exit_code == 2
    assert "'decision_threshold' has no meaning" in result.stderr
    result = run("inspect", saved_model, "--decision-threshold", "1.7")
    assert result.exit_code == 2
    assert "must be a probability above 0 and up to 1. Got 1.7" in result.stderr


def test_a_damaged_file_gets_a_sentence(run: Run, saved_model: Path) -> None:
    saved_model.write_bytes(saved_model.read_bytes()[:-1])
    result = run("inspect", saved_model)
    assert result.exit_code == 2
    assert result.stderr.startswith("treeproof: error: model.treeproof: ")
    assert "damaged or cut off" in result.stderr


def test_a_closed_pipe_is_no_traceback(saved_model: Path) -> None:
    program = Path(sys.executable).with_name("treeproof")
    done = subprocess.run(
        f"{program} inspect {saved_model} --json | head -c 1",
        shell=True,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr


def test_long_lists_are_shortened() -> None:
    ensemble = random_ensemble(np.random.default_rng(0))
    described = describe(ensemble) | {"feature_names": [f"n{i}" for i in range(100)]}
    lines = dict(summary_lines(described))
    assert lines["feature names"] == "n0, n1, n2, n3, n4, n5, … (100 in all)"
    assert "file SHA-256" not in dict(
        summary_lines(describe(ensemble.with_provenance(file_sha256="")))
    )
    assert Provenance(library="x").self_test == "not run"


def test_what_a_model_leaves_open_is_a_line_on_standard_error(run: Run, tmp_path: Path) -> None:
    estimator = early_stopped()
    path, best = tmp_path / "model.json", estimator.best_iteration + 1
    estimator.save_model(path)
    result = run("inspect", path, "--json")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"treeproof: warning: Early stopping: the first {best} of ")
    assert json.loads(result.stdout)["notes"] == [line.removeprefix("treeproof: warning: ")]
    chosen = run("inspect", path, "--json", "--rounds", "all")
    assert chosen.stderr == ""
    assert json.loads(chosen.stdout)["n_trees"] == estimator.get_booster().num_boosted_rounds()
