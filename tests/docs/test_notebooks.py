"""The notebooks of the gallery run from beginning to end, and show what they are about."""

import json
import runpy
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from tests.docs.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs/gallery").glob("*.ipynb"))


def test_the_gallery_is_listed() -> None:
    page = (ROOT / "docs/gallery/notebooks.md").read_text(encoding="utf-8")
    assert [path.stem for path in NOTEBOOKS] == ["credit", "fraud", "images"]
    assert all(f"({path.name})" in page for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    execute = runpy.run_path(str(ROOT / "scripts/execute-notebooks"))["execute"]
    notebook = json.loads(path.read_text(encoding="utf-8"))
    kept = shown(notebook)
    execute(notebook, path.name)
    # What is kept in the file was shown by these cells, of a notebook with a page at its end.
    assert [place for place, _ in shown(notebook)] == [place for place, _ in kept]
    assert any("<svg" in html for _, html in shown(notebook))
    assert len(list(tmp_path.glob("*.html"))) == 1


def shown(notebook: dict[str, Any]) -> list[tuple[int, str]]:
    """Cells that show HTML, by their place."""
    return [
        (place, "".join(output["data"]["text/html"]))
        for place, cell in enumerate(notebook["cells"])
        for output in cell.get("outputs", [])
        if "text/html" in output.get("data", {})
    ]
