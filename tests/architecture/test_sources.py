"""Rules of the house that hold for every module; each lists all that break it."""

import ast
import inspect
import re
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise

import treeproof
from tests.architecture.sources import (
    ROOT,
    Function,
    Source,
    documented_parameters,
    length,
    sources,
)

MAX_MODULE = 900
MAX_FUNCTION = 60
MAX_KERNEL = 90
MAX_MEDIAN_ARGUMENTS = 6
MAX_HOPS = 10

LONGER_ON_PURPOSE: dict[str, str] = {}
"""``module:function`` of functions beyond the limit, each with the reason."""

COMPILERS = {"kernels/core/machine_code.py", "kernels/core/quick_compiler.py"}
OWN_PROCESS = "kernels/core/background.py"
"""Where this package talks to a process that it has started itself, through pipes."""
FORBIDDEN_IMPORTS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {"print", "eval", "exec", "breakpoint"}


def assert_none(offenders: Iterable[str]) -> None:
    found = list(offenders)
    assert not found, "\n".join(found)


def functions() -> Iterator[tuple[str, Source, Function]]:
    for source in sources():
        for function in source.functions():
            yield f"{source.name}:{function.name}", source, function


def test_modules_are_short() -> None:
    lengths = {source.name: source.text.count("\n") for source in sources()}
    assert_none(f"{name}: {n} lines" for name, n in lengths.items() if n > MAX_MODULE)


def test_functions_are_short() -> None:
    too_long = {
        name: length(function)
        for name, source, function in functions()
        if length(function) > (MAX_KERNEL if source.is_kernel else MAX_FUNCTION)
    }
    assert set(too_long) == set(LONGER_ON_PURPOSE), too_long
    assert all(len(reason) > 20 for reason in LONGER_ON_PURPOSE.values())


def test_kernels_take_few_arguments() -> None:
    arguments = {
        name: len(signature_names(function))
        for name, source, function in functions()
        if source.is_kernel
        and any("kernel" in ast.unparse(decorator) for decorator in function.decorator_list)
    }
    assert statistics.median(arguments.values()) <= MAX_MEDIAN_ARGUMENTS


def test_modules_say_what_they_are() -> None:
    assert_none(source.name for source in sources() if not ast.get_docstring(source.tree))


def test_constants_are_set_once() -> None:
    def repeated(source: Source) -> list[str]:
        names = [
            target.id
            for node in source.tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        ]
        return sorted({name for name in names if names.count(name) > 1})

    assert_none(f"{source.name}: {name}" for source in sources() for name in repeated(source))


def forbidden(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in FORBIDDEN_CALLS
    if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
        return not (isinstance(node.value, ast.Constant) and node.value.value is False)
    return False


def imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return {(node.module or "").partition(".")[0]} if isinstance(node, ast.ImportFrom) else set()


def test_nothing_prints_or_runs_foreign_code() -> None:
    assert_none(
        f"{source.name}: {ast.unparse(node)}"
        for source in sources()
        for node in ast.walk(source.tree)
        if forbidden(node) or (imported(node) & FORBIDDEN_IMPORTS and source.name != OWN_PROCESS)
    )


def test_floating_point_is_never_relaxed() -> None:
    assert_none(source.name for source in sources() if "fastmath" in source.text)


def test_kernels_are_compiled_in_one_place() -> None:
    decorator = re.compile(r"\b(n?jit|vectorize|guvectorize)\b(?!_)")
    numba = re.compile(r"^\s*(import|from) numba\b", re.MULTILINE)
    assert_none(
        source.name
        for source in sources()
        if (decorator.search(source.text) and source.name not in COMPILERS)
        or (numba.search(source.text) and not source.is_kernel)
    )


def signature_names(function: Function) -> list[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args]
    names = [argument.arg for argument in every]
    names += [arguments.vararg.arg] if arguments.vararg else []
    names += [argument.arg for argument in arguments.kwonlyargs]
    names += [arguments.kwarg.arg] if arguments.kwarg else []
    return [name for name in names if name not in ("self", "cls")]


def test_docstrings_that_list_parameters_list_the_right_ones() -> None:
    listed = {
        name: (documented_parameters(inspect.cleandoc(docstring)), signature_names(function))
        for name, _, function in functions()
        if (docstring := ast.get_docstring(function))
    }
    assert_none(
        f"{name}: {found} instead of {expected}"
        for name, (found, expected) in listed.items()
        if found is not None and found != expected
    )


def dataclass_fields(node: ast.ClassDef) -> list[str]:
    return [
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and not item.target.id.startswith("_")
        and "ClassVar" not in ast.unparse(item.annotation)
    ]


def test_dataclasses_that_list_parameters_list_their_fields() -> None:
    def wrong(node: ast.AST) -> bool:
        if not isinstance(node, ast.ClassDef) or node.bases:  # which may have fields of their own
            return False
        listed = documented_parameters(ast.get_docstring(node) or "")
        decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
        return listed is not None and "dataclass" in decorators and listed != dataclass_fields(node)

    assert_none(
        f"{source.name}:{node.name}"
        for source in sources()
        for node in ast.walk(source.tree)
        if wrong(node)
    )


def test_classes_of_one_name_are_in_different_packages_and_public_names_mean_one_thing() -> None:
    homes: dict[str, list[str]] = {}
    for source in sources():
        package, _, module = source.name.partition("/")
        # The checker says everything in its own words, and kernels their tuples; loaders have
        # folders.
        if package not in ("checker", "kernels"):
            folder = source.name.rpartition("/")[0] if "/" in module else package
            for node in source.tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    homes.setdefault(node.name, []).append(folder)
    assert_none(
        f"{name}: {', '.join(folders)}"
        for name, folders in homes.items()
        if len(set(folders)) < len(folders) or (name in treeproof.__all__ and len(folders) > 1)
    )


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
    names = [source.name for source in sources()]
    top = {name.partition("/")[0].removesuffix(".py") for name in names} - {"__init__", "__main__"}
    assert listed == top


def test_the_walk_of_a_radius_is_the_one_that_the_architecture_page_draws() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    drawn = page.partition("The walk of `tp.radius`")[2].split("```")[1]
    steps = [word for word in re.findall(r"[\w.]+", drawn) if word not in ("Python", "compiled")]
    assert 5 < len(steps) <= MAX_HOPS + 1, steps
    bodies: dict[str, set[str]] = {}
    for source in sources():
        for node in ast.walk(source.tree):
            for function in node.body if isinstance(node, ast.Module | ast.ClassDef) else ():
                if isinstance(function, ast.FunctionDef):
                    owner = node.name if isinstance(node, ast.ClassDef) else ""
                    named = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
                    named |= {n.attr for n in ast.walk(function) if isinstance(n, ast.Attribute)}
                    bodies.setdefault(f"{owner}.{function.name}", set()).update(named)
    # Which kernel a batch is searched by is told to it.
    told = bodies["._kernel"]
    for one, other in pairwise(step.removeprefix("api") for step in steps):
        called = bodies[one if "." in one else f".{one}"]
        assert other.rpartition(".")[2] in called | (told if one == "BatchSearch.run" else set()), (
            one,
            other,
        )


def test_lines_can_be_counted() -> None:
    found = subprocess.run(
        [sys.executable, ROOT / "scripts" / "count-lines"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = int(found.stdout.splitlines()[-1].split()[2].replace(",", ""))
    assert lines == sum(len(source.text.splitlines()) for source in sources())
