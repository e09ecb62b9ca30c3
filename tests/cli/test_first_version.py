"""Run files and options of version 0.1.0, which called the arithmetic the domain."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import treeproof as tp
from tests.unit.model.test_file_format import binary_stump
from treeproof.model.file_format import save_ensemble

Run = Callable[..., Result]

HEADER: dict[str, Any] = {
    "record": "header",
    "format": 1,
    "model": {
        "fingerprint": "4828eb2e5aa01c1d4a8b5fe307c8e1b1ae3784eed631fde4852d5d2e9e2e86b6",
        "library": "test",
        "library_version": "unknown",
        "source": "",
        "file_sha256": "",
        "self_test": "not run",
        "classes": ["ham", "spam"],
        "n_trees": 1,
        "n_features": 1,
        "feature_names": ["width"],
        "input_precision": "float32",
        "decision": "threshold",
    },
    "question": {
        "kind": "radius",
        "engine": {"name": "exact"},
        "perturbation": {
            "name": "LInf",
            "eps": None,
            "scale": None,
            "below": 1.0,
            "above": 1.0,
            "frozen": [],
            "low": 0.0,
            "high": 1.0,
        },
        "goal": {"name": "KeepsLabel"},
        "domain": "real",
        "attacker_class": None,
        "labels": "the model's own",
    },
    "versions": {"treeproof": "0.1.0"},
    "limits": {"time_limit_s": None, "node_limit": None, "memory_limit_mb": 4096.0},
    "question_hash": "218d95455625ccc509adc09c77e60832d0bff9b1ef501b3d96bbace295d87ca8",
    "order": "as finished",
    "data": {"file": "rows.npy"},
}
STATE = ',"state":"complete","n_rows":              1}'
ROW: dict[str, Any] = {
    "record": "row",
    "row": 1,
    "label": "spam",
    "verdict": "verified",
    "exact": True,
    "attained": False,
    "reason": "",
    "lower": 0.25,
    "upper": 0.25,
    "witness_distance": 0.2500000298023224,
    "seconds": 0.1,
    "witness": [0.4999999701976776],
    "values": [0.75],
    "predicted": "spam",
    "witness_label": "ham",
    "statistics": {"nodes": 1, "sweeps": 1, "points": 1, "restrictions": 1},
    "key": "82dc165fca6d7227",
}
"""What 0.1.0 wrote of the second of the three rows below."""


@pytest.fixture
def words(tmp_path: Path) -> tuple[Any, ...]:
    """The question of that run; its file is there."""
    model, rows, out = (tmp_path / name for name in ("m.treeproof", "rows.npy", "run.jsonl"))
    names: dict[str, Any] = {"classes": ("ham", "spam"), "feature_names": ("width",)}
    save_ensemble(binary_stump(input_precision="float32", **names), model)
    np.save(rows, np.array([[0.25], [0.75], [0.125]]))
    out.write_text(f"{json.dumps(HEADER)[:-1]}{STATE}\n{json.dumps(ROW)}\n")
    return ("radius", model, rows, "--low", "0", "--high", "1", "--out", out)


@pytest.mark.parametrize("option", ["--arithmetic", "--domain"])
def test_its_runs_go_on(run: Run, words: tuple[Any, ...], option: str) -> None:
    result = run(*words, "--resume", option, "real")
    assert result.exit_code == 0, result.stderr
    found = tp.load_results(words[-1])
    assert found.lower.tolist() == [0.25, 0.25, 0.375]
    assert found.seconds[1] == 0.1  # not asked again
    left_out = "real numbers; how the deployed model rounds float64 rows is left out"
    assert f"arithmetic: {left_out}" in found.summary()
    assert f"arithmetic: {left_out}" in result.stdout


def test_its_runs_do_not_go_on_in_another_arithmetic(run: Run, words: tuple[Any, ...]) -> None:
    result = run(*words, "--resume")
    assert result.exit_code == 2
    assert (
        'Its arithmetic is "real" there, and "float64" here (--arithmetic real asks as it does).'
        in result.stderr
    )


def test_its_runs_are_merged_with_new_ones(
    run: Run, words: tuple[Any, ...], tmp_path: Path
) -> None:
    new, both = tmp_path / "new.jsonl", tmp_path / "both.jsonl"
    assert run(*words[:-1], new, "--arithmetic", "real").exit_code == 0
    assert "arithmetic" in tp.load_results(new).header["question"]
    merged = run("merge", words[-1], new, "--out", both)
    assert merged.exit_code == 0, merged.stderr
    assert len(tp.load_results(both)) == 3


def test_its_runs_have_curves_and_reports(run: Run, words: tuple[Any, ...], tmp_path: Path) -> None:
    curve = run("curve", words[-1], "--at", "0.1", "--format", "json")
    assert json.loads(curve.stdout)["arithmetic"].startswith("real numbers;")
    page = tmp_path / "page.html"
    assert run("report", words[-1], "--out", page).exit_code == 0
    assert "real numbers" in page.read_text("utf-8")


def test_one_of_the_names_is_given(run: Run, words: tuple[Any, ...]) -> None:
    result = run(*words, "--arithmetic", "real", "--domain", "real")
    assert result.exit_code == 2
    assert "--domain is the old name of --arithmetic: give only one of them." in result.stderr
    assert "--domain" not in run("radius", "--help").stdout


def test_threat_files_may_say_domain(run: Run, words: tuple[Any, ...], tmp_path: Path) -> None:
    threat = tmp_path / "threat.toml"
    asked = (*words[:-2], "--threat", threat, "--format", "json")
    for text, arithmetic in (("domain = 'real'", "real"), ("", "float64")):
        threat.write_text(text)
        found = json.loads(run(*asked).stdout)
        assert found["header"]["question"]["arithmetic"] == arithmetic
    threat.write_text("domain = 'real'")
    found = json.loads(run(*asked, "--arithmetic", "float64").stdout)
    assert found["header"]["question"]["arithmetic"] == "float64"
    assert found["summary"]["arithmetic"] == "float64 rows, rounded as the deployed model does"
