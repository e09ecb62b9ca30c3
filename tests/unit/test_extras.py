"""The library works without what only its extras need, and says which extra brings it."""

import subprocess
import sys

import pytest

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
            "pip install 'treeproof[report]'",
        ),
        ("from treeproof.cli import run; run()", 2, "pip install 'treeproof[cli]'"),
    ],
)
def test_only_the_extras_need_their_libraries(program: str, status: int, said: str) -> None:
    finished = run_without(program)
    assert finished.returncode == status, finished.stderr
    assert said in finished.stderr
