"""The GitHub Action: its inputs, and what its script does with them, run by bash."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp

ACTION = (Path(__file__).resolve().parents[3] / "action.yml").read_text(encoding="utf-8")
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")


def script() -> str:
    """The last script of the action."""
    text = ACTION.rpartition("      run: |\n")[2]
    return re.sub(r"^        ", "", text, flags=re.MULTILINE)


def inputs() -> dict[str, str]:
    """Variables of the script, by the input that each holds."""
    return dict(re.findall(r"        ([A-Z_]+): \$\{\{ inputs\.([\w-]+) \}\}", ACTION))


def test_every_input_is_used_and_none_is_part_of_a_script() -> None:
    declared = re.findall(r"^  ([\w-]+):\n    description", ACTION.partition("outputs:")[0], re.M)
    assert set(inputs().values()) == set(declared)
    assert "${{" not in script()


@pytest.mark.parametrize(("share", "status"), [("0.5", 0), ("1.0", 1)])
def test_the_gate_passes_or_fails(tmp_path: Path, share: str, status: int) -> None:
    rows = np.array([[0.0], [1.0], [4.0], [5.0]])
    tp.load(DecisionTreeClassifier().fit(rows, [0, 0, 1, 1])).save(tmp_path / "model.treeproof")
    np.save(tmp_path / "rows $(touch hacked).npy", rows)
    given = {"model": "model.treeproof", "data": "rows $(touch hacked).npy", "eps": "2.0"}
    given |= {"fail-under": share, "options": "--engine exact", "out": "run.jsonl"}
    variables = {name: given.get(what, "") for name, what in inputs().items()}
    files = {name: str(tmp_path / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    folder = tmp_path / "bin"
    folder.mkdir()
    environment = os.environ | variables | files | {"PATH": f"{folder}:{os.environ['PATH']}"}
    (folder / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "python").chmod(0o755)
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script()],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == f"passed={'false' if status else 'true'}\n"
    assert "treeproof verify" in (tmp_path / "GITHUB_STEP_SUMMARY").read_text()
    assert (tmp_path / "run.html").is_file()
    assert not (tmp_path / "hacked").exists()
