"""The pages of the documentation, and what is in their fenced blocks."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")],
    key=lambda path: path.relative_to(ROOT).as_posix(),
)
PAGE_NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and the line on which its text begins."""

    language: str
    text: str
    first_line: int


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    return [
        Block(found[1], found[2], page.count("\n", 0, found.start(2)) + 1)
        for found in _FENCE.finditer(page)
    ]


def without_blocks(page: str) -> str:
    """The prose of a page."""
    return _FENCE.sub("", page)


def anchors(page: str) -> set[str]:
    """Targets of links into a page, as Markdown readers make them from headings."""
    headings = re.findall(r"^#+ +(.+?)\s*$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
