"""Markdown pages with tables and pictures, and where they go."""

import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import treeproof

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class Page:
    """A title, paragraphs and tables, pictures by file name, and lines for a file beside it."""

    title: str
    parts: list[str]
    pictures: dict[str, "Figure"] = field(default_factory=dict)
    csv: list[list[str]] = field(default_factory=list)

    def save(self, name: str, folder: Path = RESULTS) -> Path:
        """Write the page and its pictures; returns where."""
        folder.mkdir(exist_ok=True, parents=True)
        parts = [f"# {self.title}", *self.parts]
        for picture, figure in self.pictures.items():
            figure.savefig(folder / picture, dpi=110)
            parts.append(f"![{self.title}]({picture})")
        parts.append(
            f"treeproof {treeproof.__version__}, Python {platform.python_version()},"
            f" {platform.machine()}; made by `python -m experiments.paper {name}`."
        )
        if self.csv:
            lines = "\n".join(",".join(line) for line in self.csv)
            (folder / f"{name}.csv").write_text(lines + "\n")
        path = folder / f"{name}.md"
        path.write_text("\n\n".join(part.rstrip() for part in parts) + "\n")
        return path


def table(columns: tuple[str, ...], lines: list[list[str]]) -> str:
    rows = [list(columns), ["---"] * len(columns), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def seconds_text(seconds: NDArray[np.float64]) -> str:
    """Mean over the rows that were asked."""
    asked = seconds[np.isfinite(seconds)]
    return f"{asked.mean():.3g}" if len(asked) else "–"
