"""The package is typed: a user's `mypy --strict` knows every public name."""

import importlib.util
import re
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

import treeproof

PROGRAM = Path(__file__).with_name("program.py")
PACKAGE = Path(treeproof.__file__).parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment in which treeproof is installed, as users have it: not as sources to check."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed: pip install --group lint")
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("[Ll]ib/**/site-packages")
    places = [PACKAGE.parent, Path(np.__file__).parents[1]]
    (packages / "treeproof.pth").write_text("".join(f"{place}\n" for place in places))
    return folder


def mypy(installed: Path, program: Path) -> subprocess.CompletedProcess[str]:
    (python,) = [*installed.glob("bin/python"), *installed.glob("Scripts/python.exe")]
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python]
    command += ["--config-file=", "--cache-dir", installed / "cache", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=installed)


def test_a_program_of_a_user_is_checked(installed: Path) -> None:
    found = mypy(installed, PROGRAM)
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_public_name_has_a_type(installed: Path) -> None:
    names = treeproof.__all__
    program = installed / "names.py"
    lines = ["import treeproof", *(f"reveal_type(treeproof.{name})" for name in names)]
    program.write_text("\n".join(lines))
    found = mypy(installed, program)
    types = dict(
        re.findall(r"^names\.py:(\d+): note: Revealed type is \"(.*)\"$", found.stdout, re.M)
    )
    assert len(types) == len(names), found.stdout
    untyped = [name for line, name in enumerate(names, 2) if types[str(line)] == "Any"]
    assert not untyped
