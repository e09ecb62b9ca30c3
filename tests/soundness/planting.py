"""Bugs planted in a copy of the package: how they get there, and what has to notice them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import treeproof

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(treeproof.__file__).parent


@dataclass(frozen=True)
class Bug:
    """A text of the package, which must occur, and what is planted in its place."""

    name: str
    text: str
    planted: str


def assert_passes(program: str, folder: Path, *arguments: int) -> None:
    """A program finds nothing wrong with a copy of the package as it is."""
    done = run_copy(program, copy_package(folder), *arguments)
    assert done.stdout.strip() == "PASSED", done.stderr


def assert_passes_with(change: Bug, program: str, folder: Path, *arguments: int) -> None:
    """A program finds nothing wrong with a copy of the package with a change that is no bug."""
    plant(change, copy_package(folder))
    done = run_copy(program, folder / PACKAGE.name, *arguments)
    assert done.stdout.strip() == "PASSED", done.stderr


def assert_caught(bug: Bug, program: str, folder: Path, *arguments: int) -> None:
    """A program notices a bug that is planted in a copy of the package."""
    plant(bug, copy_package(folder))
    done = run_copy(program, folder / PACKAGE.name, *arguments)
    assert done.returncode != 0, "the planted bug went unnoticed"
    # A crash is no finding: the oracle has to contradict the engine.
    assert done.stderr.startswith("CAUGHT"), done.stderr


def assert_all_have_a_place(bugs: Sequence[Bug]) -> None:
    """Every bug would change some source."""
    texts = [path.read_text() for path in PACKAGE.rglob("*.py")]
    for bug in bugs:
        assert bug.planted != bug.text
        assert any(bug.text in text for text in texts), f"plant {bug.name!r} elsewhere"


def copy_package(folder: Path) -> Path:
    package = folder / PACKAGE.name
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    return package


def plant(bug: Bug, package: Path) -> None:
    homes = [path for path in sorted(package.rglob("*.py")) if bug.text in path.read_text()]
    assert homes, f"the package no longer holds {bug.text!r}; plant the bug elsewhere"
    for path in homes:
        path.write_text(path.read_text().replace(bug.text, bug.planted))


def run_copy(program: str, package: Path, *arguments: int) -> subprocess.CompletedProcess[str]:
    """Run a program with a copy of the package, interpreted, so that nothing is compiled."""
    path = f"{package.parent}{os.pathsep}{ROOT}"
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *map(str, arguments)],
        cwd=ROOT,
        env=dict(os.environ, TREEPROOF_PLAIN="always", PYTHONPATH=path),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
