"""No compiled loop runs on: it has a bound of its own, looks at the clock, or says why it ends."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import treeproof.kernels

KERNELS = Path(treeproof.kernels.__path__[0])
CLOCKS = {"seconds_now", "count_node", "count_box"}
"""What looks at the clock, or counts towards a limit of nodes and looks at it."""
DOWN = ("nodes[node, TESTED] != NOTHING", "trees.feature[node] >= 0", "tree.left[node] >= 0")
"""Walks from a node to a leaf."""
WORD = "# Ends: "


def loops() -> Iterator[tuple[str, ast.While, str]]:
    """Every loop of the kernels with its place, and the comment before it."""
    for path in sorted(KERNELS.rglob("*.py")):
        text = path.read_text()
        if "kernel\n" not in text:  # what compiles kernels is never compiled itself
            continue
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.While):
                first = node.lineno - 1
                while lines[first - 1].strip().startswith("#"):
                    first -= 1
                comment = "\n".join(lines[first : node.lineno - 1])
                yield f"{path.relative_to(KERNELS)}:{node.lineno}", node, comment


def is_bounded(loop: ast.While, comment: str) -> bool:
    """Whether a loop counts what it tests, looks at the clock, walks down, or says why it ends."""
    inside = [node for statement in loop.body for node in ast.walk(statement)]
    called = [node.func for node in ast.walk(loop) if isinstance(node, ast.Call)]
    calls = {function.id for function in called if isinstance(function, ast.Name)}
    tested = {node.id for node in ast.walk(loop.test) if isinstance(node, ast.Name)}
    counted = {
        name for node in inside if isinstance(node, ast.AugAssign) for name in names_of(node.target)
    }
    # What is counted and set back may run on: a step that pays may do so for ever.
    assigned = {
        name
        for node in inside
        if isinstance(node, ast.Assign)
        for target in node.targets
        for name in names_of(target)
    }
    walks = any(way in ast.unparse(loop.test) for way in DOWN)
    return bool(calls & CLOCKS or tested & counted - assigned or walks or WORD in comment)


def names_of(target: ast.expr) -> set[str]:
    """The variables that an assignment changes, be it in one of their entries."""
    if isinstance(target, ast.Tuple):
        return {name for part in target.elts for name in names_of(part)}
    while isinstance(target, ast.Subscript | ast.Attribute):
        target = target.value
    return {target.id} if isinstance(target, ast.Name) else set()


def test_every_loop_of_the_kernels_ends() -> None:
    found = list(loops())
    assert len(found) > 150
    assert [place for place, loop, comment in found if not is_bounded(loop, comment)] == []


@pytest.mark.parametrize(
    ("source", "ends"),
    [
        ("while n < 3:\n    n += 1", True),
        ("while True:\n    x = f(x)", False),
        ("while failed < 2:\n    x = f(x)", False),
        ("while n < 3 and x > 0.0:\n    n += 1\n    if pays(x):\n        n = 0", False),
        ("while True:\n    if seconds_now(clock) > deadline:\n        break", True),
        ("while nodes[node, TESTED] != NOTHING:\n    node = step(node)", True),
    ],
)
def test_loops_without_an_end_are_seen(source: str, ends: bool) -> None:
    (loop,) = ast.parse(source).body
    assert isinstance(loop, ast.While)
    assert is_bounded(loop, "") == ends
