"""The notebooks of the gallery run from beginning to end, and show what they are about."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from tests.docs.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs/gallery").glob("*.ipynb"))


def test_the_gallery_is_listed() -> None:
    page = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert [path.stem for path in NOTEBOOKS] == ["credit", "fraud", "images"]
    assert all(f"(gallery/{path.name})" in page for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    execute = runpy.run_path(str(ROOT / "scripts/execute-notebooks"))["execute"]
    notebook = json.loads(path.read_text(encoding="utf-8"))
    kept = shown(notebook)
    execute(notebook, path.name)
    # What is kept in the file was shown by these cells, of a notebook with a page at its end.
    assert [(place, kind) for place, kind, _ in shown(notebook)] == [
        (place, kind) for place, kind, _ in kept
    ]
    assert any("<svg" in text for _, _, text in shown(notebook))
    assert len(list(tmp_path.glob("*.html"))) == 1


def test_notebooks_are_about_what_they_say() -> None:
    kept = {path.stem: shown(json.loads(path.read_text(encoding="utf-8"))) for path in NOTEBOOKS}
    assert any(kind == "image/png" for _, kind, _ in kept["images"])
    (printed,) = [text for _, kind, text in kept["fraud"] if "payment " in text]
    moved = re.findall(r"(?:amount|hour): (\S+) → (\S+)", printed)
    assert len(moved) >= 5
    assert not any("." in value for pair in moved for value in pair)  # whole numbers stay whole


def shown(notebook: dict[str, Any]) -> list[tuple[int, str, str]]:
    """What cells print and show: their places, the kind, and the text."""
    found = []
    for place, cell in enumerate(notebook["cells"]):
        for output in cell.get("outputs", []):
            parts = output.get("data") or {output["name"]: output["text"]}
            found += [(place, kind, "".join(text)) for kind, text in parts.items()]
    return found
