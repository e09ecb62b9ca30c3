"""The fixture `assert_robust`, in a pytest of its own."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

TESTS = """
import numpy as np
import pytest
import treeproof as tp
from sklearn.tree import DecisionTreeClassifier

X = np.array([[0.0], [1.0], [4.0], [5.0]])
Y = np.array([0, 0, 1, 1])
TREE = DecisionTreeClassifier().fit(X, Y)


def test_at_a_radius(assert_robust):
    assert len(assert_robust(TREE, X, Y, 1.0, at_least=1.0)) == 4


def test_by_the_threat_file_of_the_project(assert_robust):
    assert_robust(TREE, X, Y)


def test_by_another_file(assert_robust):
    assert_robust(TREE, X, Y, threat="far.toml", at_least=0.5)


def test_that_must_fail(assert_robust):
    assert_robust(tp.load(TREE), X, Y, tp.L1(2.0), at_least=1.0)


def test_both(assert_robust):
    with pytest.raises(tp.InvalidInput, match="Got both"):
        assert_robust(TREE, X, Y, 1.0, threat="far.toml")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "test_model.py").write_text(TESTS)
    (tmp_path / "near.toml").write_text("eps = 0.5\n")
    (tmp_path / "far.toml").write_text("eps = 2.0\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntreeproof_threat = near.toml\n")
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    plugin = "treeproof.integrations.pytest_plugin"
    # Where treeproof is installed with its entry points, pytest has it already.
    command = [sys.executable, "-m", "pytest", "-p", "no:treeproof", "-p", plugin, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_gates_are_tests(project: Path) -> None:
    done = run(project, "--junit-xml", "out.xml", "-q", "-p", "no:cacheprovider")
    assert "1 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    assert "2 of 4 rows are verified at radius 2 (50 %), but at least 100 % must be" in done.stdout
    cases = ElementTree.parse(project / "out.xml").iter("testcase")
    shares = {
        case.get("name"): [p.get("value") for p in case.iter("property")][:1] for case in cases
    }
    assert shares["test_at_a_radius"] == ["1.0"]
    assert shares["test_by_another_file"] == ["0.5"]
    assert shares["test_that_must_fail"] == ["0.5"]


def test_a_project_without_a_file_is_told(project: Path) -> None:
    (project / "pytest.ini").unlink()
    done = run(project, "-q", "-k", "project", "-p", "no:cacheprovider")
    assert done.returncode == 1
    assert "Got no radius and no threat file" in done.stdout
