"""Rules of the house that hold for every module."""

import ast
import inspect
import re

import pytest

from tests.architecture.sources import (
    ROOT,
    Function,
    Source,
    documented_parameters,
    length,
    sources,
)

SOURCES = sources()
NAMES = [source.name for source in SOURCES]

MAX_MODULE = 900
MAX_FUNCTION = 60
MAX_KERNEL = 90

LONGER_ON_PURPOSE: dict[str, str] = {}
"""``module:function`` of functions beyond the limit, each with the reason."""

FORBIDDEN_IMPORTS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {"print", "eval", "exec", "breakpoint"}

each_source = pytest.mark.parametrize("source", SOURCES, ids=NAMES)


@each_source
def test_modules_are_short(source: Source) -> None:
    assert source.text.count("\n") <= MAX_MODULE


@each_source
def test_functions_are_short(source: Source) -> None:
    limit = MAX_KERNEL if source.is_kernel else MAX_FUNCTION
    too_long = {
        f"{source.name}:{function.name}": length(function)
        for function in source.functions()
        if length(function) > limit
    }
    assert set(too_long) <= set(LONGER_ON_PURPOSE), too_long


def test_exceptions_to_the_length_are_still_needed() -> None:
    lengths = {
        f"{source.name}:{function.name}": length(function)
        for source in SOURCES
        for function in source.functions()
    }
    for name, reason in LONGER_ON_PURPOSE.items():
        assert lengths[name] > MAX_FUNCTION, name
        assert len(reason) > 20, name


@each_source
def test_modules_say_what_they_are(source: Source) -> None:
    assert ast.get_docstring(source.tree), f"{source.name} has no docstring"


@each_source
def test_constants_are_set_once(source: Source) -> None:
    names = [
        target.id
        for node in source.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    ]
    assert len(names) == len(set(names)), sorted({n for n in names if names.count(n) > 1})


@each_source
def test_nothing_prints_or_runs_foreign_code(source: Source) -> None:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in FORBIDDEN_CALLS, f"line {node.lineno}"
        if isinstance(node, ast.Import):
            imported = {alias.name.partition(".")[0] for alias in node.names}
            assert not imported & FORBIDDEN_IMPORTS, f"line {node.lineno}"
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] not in FORBIDDEN_IMPORTS, node.lineno
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            assert isinstance(node.value, ast.Constant), f"line {node.value.lineno}"
            assert node.value.value is False, f"line {node.value.lineno}"


@each_source
def test_floating_point_is_never_relaxed(source: Source) -> None:
    assert "fastmath" not in source.text


@each_source
def test_kernels_are_compiled_in_one_place(source: Source) -> None:
    if source.name != "kernels/core/compiler.py":
        assert not re.search(r"\b(n?jit|vectorize|guvectorize)\b", source.text)
    if not source.is_kernel:
        assert not re.search(r"^\s*(import|from) numba\b", source.text, re.MULTILINE)


def signature_names(function: Function) -> list[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args]
    names = [argument.arg for argument in every]
    names += [arguments.vararg.arg] if arguments.vararg else []
    names += [argument.arg for argument in arguments.kwonlyargs]
    names += [arguments.kwarg.arg] if arguments.kwarg else []
    return [name for name in names if name not in ("self", "cls")]


@each_source
def test_docstrings_that_list_parameters_list_the_right_ones(source: Source) -> None:
    for function in source.functions():
        docstring = ast.get_docstring(function)
        listed = documented_parameters(inspect.cleandoc(docstring)) if docstring else None
        if listed is not None:
            assert listed == signature_names(function), f"{source.name}:{function.name}"


@each_source
def test_dataclasses_that_list_parameters_list_their_fields(source: Source) -> None:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ClassDef):
            continue
        listed = documented_parameters(ast.get_docstring(node) or "")
        decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
        if listed is None or "dataclass" not in decorators:
            continue
        fields = [
            item.target.id
            for item in node.body
            if isinstance(item, ast.AnnAssign)
            and isinstance(item.target, ast.Name)
            and not item.target.id.startswith("_")
            and "ClassVar" not in ast.unparse(item.annotation)
        ]
        assert listed == fields, f"{source.name}:{node.name}"


def test_make_test_runs_every_check() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^test:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert recipe is not None
    for tool in ("ruff format --check", "ruff check", "mypy", "lint-imports", "pytest"):
        assert tool in recipe[1], tool
    assert recipe[1].rstrip().splitlines()[-1].strip().startswith("$(BIN)/pytest")


def test_continuous_integration_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, "must be executable"
    assert script.read_text(encoding="utf-8").rstrip().splitlines()[-1] == "make test"


def test_every_layer_of_the_architecture_page_exists_and_the_other_way_round() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    top = {name.partition("/")[0].removesuffix(".py") for name in NAMES} - {"__init__"}
    assert listed == top
