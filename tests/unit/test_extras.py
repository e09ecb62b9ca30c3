"""The library works without what only its extras need, and says which extra brings it."""

import subprocess
import sys
from pathlib import Path

import pytest

from treeproof import errors
from treeproof.errors import install_command

WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(["click", "jinja2", "markupsafe", "rich"]))
"""


def run_without(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that cannot import what the extras bring."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + program], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("program", "status", "said"),
    [
        ("import treeproof as tp; [getattr(tp, name) for name in tp.__all__]", 0, ""),
        (
            "import treeproof as tp; tp.write_report([], 'page.html')",
            1,
            install_command("report"),
        ),
        ("from treeproof.cli import run; run()", 2, install_command("cli")),
    ],
)
def test_only_the_extras_need_their_libraries(program: str, status: int, said: str) -> None:
    finished = run_without(program)
    assert finished.returncode == status, finished.stderr
    assert said in finished.stderr


def test_a_clone_installs_extras_from_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(errors.__file__).resolve().parents[2]
    assert install_command("cli") == f"pip install -e '{folder}[cli]'"
    monkeypatch.setattr(errors, "__file__", "/elsewhere/site-packages/treeproof/errors.py")
    assert install_command("cli") == "pip install 'treeproof[cli]'"
