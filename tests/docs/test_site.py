"""The documentation as a site: it builds without a warning, its tables are those of the code."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.docs.support import PAGE, support_page


def test_the_support_tables_are_those_of_the_registries() -> None:
    assert PAGE.read_text(encoding="utf-8") == support_page()


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    missing = [n for n in ("sphinx", "furo", "myst_parser") if importlib.util.find_spec(n) is None]
    if missing:
        reason = f"{', '.join(missing)} not installed: pip install --group docs"
        assert "TREEPROOF_REQUIRE_BROWSER" not in os.environ, reason
        pytest.skip(reason)
    script = [sys.executable, ROOT / "scripts" / "build-docs", tmp_path / "site"]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = (tmp_path / "site" / "reference" / "python-names.html").read_text(encoding="utf-8")
    assert "The exact meaning of the source model, with compiled prediction." in names
    for name in (
        "Model.margins",
        "Results.to_frame",
        "training.RobustSearchCV",
        "checker.RowCheck",
    ):
        assert f'id="treeproof.{name}"' in names, name
    help_page = (tmp_path / "site" / "reference" / "command-help.html").read_text(encoding="utf-8")
    assert "Usage: treeproof report" in help_page
