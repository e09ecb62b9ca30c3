"""The product's sources as syntax trees."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "treeproof"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One module."""

    name: str
    text: str
    tree: ast.Module

    @property
    def is_kernel(self) -> bool:
        return self.name.startswith("kernels/")

    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]


@cache
def sources() -> list[Source]:
    """All modules; read once."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Source(path.relative_to(PACKAGE).as_posix(), text, ast.parse(text)))
    return found


def length(function: Function) -> int:
    """Lines of a function without its docstring, which is not code."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        lines -= (first.end_lineno or 0) - first.lineno + 1
    return lines


def documented_parameters(docstring: str) -> list[str] | None:
    """Names in the Parameters section of a numpydoc docstring; None where there is none."""
    found = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", docstring, re.M | re.S)
    if found is None:
        return None
    heads = re.findall(r"^(\**\w[^:\n]*?)(?: *:|$)", found[1], re.MULTILINE)
    return [name.strip().lstrip("*") for head in heads for name in head.split(",")]
