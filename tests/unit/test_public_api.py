import importlib
import inspect
import pydoc
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import treeproof
from tests.architecture.sources import documented_parameters
from treeproof.loaders.base import LoadOptions
from treeproof.search.question import Question

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = [name for name in treeproof.__all__ if name != "__version__"]


def test_the_list_is_sorted_and_every_name_resolves() -> None:
    # As ruff sorts them: names in capitals come first.
    assert treeproof.__all__ == sorted(treeproof.__all__, key=lambda n: (not n.isupper(), n))
    assert len(set(treeproof.__all__)) == len(treeproof.__all__)
    for name in treeproof.__all__:
        assert getattr(treeproof, name) is not None


def test_nothing_else_is_public() -> None:
    # Modules of the package appear as attributes once something has imported them.
    others = {
        name
        for name, value in vars(treeproof).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert others - {"Any", "TYPE_CHECKING", "import_module"} <= set(treeproof.__all__)
    assert set(treeproof._HOME_OF) <= set(treeproof.__all__)
    assert set(treeproof.__all__) <= set(dir(treeproof))


def test_what_the_package_offers_is_all_that_is_listed() -> None:
    assert dir(treeproof) == sorted(treeproof.__all__)


def test_the_command_line_is_a_module_too() -> None:
    command = [sys.executable, "-m", "treeproof", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"treeproof, version {treeproof.__version__}", done.stderr


def test_unknown_names_fail_as_usual() -> None:
    text = "module 'treeproof' has no attribute 'verfy'"
    with pytest.raises(AttributeError, match=text) as caught:
        treeproof.verfy  # noqa: B018 - the access is the test
    # From these two Python suggests 'verify'.
    assert caught.value.name == "verfy"
    assert caught.value.obj is treeproof


def test_every_public_name_is_documented() -> None:
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .+? \| (`.+) \|$", page, re.MULTILINE)
    listed = re.findall(r"`(\w+)`", " ".join(rows))
    assert sorted(listed) == sorted(PUBLIC)


def is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def public_functions() -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name in PUBLIC:
        value = getattr(treeproof, name)
        found.append((name, value))
        # What engines do with a query is between them and the search.
        is_engine = hasattr(value, "refusal")
        if inspect.isclass(value) and not is_error(value) and not is_engine:
            found += [
                (f"{name}.{member}", function)
                for member, function in vars(value).items()
                if not member.startswith("_") and inspect.isfunction(function)
            ]
    return found


@pytest.mark.parametrize(("name", "value"), public_functions())
def test_docstrings_state_every_parameter(name: str, value: Any) -> None:
    assert value.__doc__, name
    if inspect.isclass(value) and issubclass(value, Exception):
        return
    names = [parameter for parameter in inspect.signature(value).parameters if parameter != "self"]
    assert documented_parameters(inspect.getdoc(value) or "") == (names or None), name


THREATS = {"Cost", "Domain", "L0", "L1", "L2", "LInf"}


def test_functions_have_few_arguments_by_position() -> None:
    lengths = {
        name: sum(p.kind != p.KEYWORD_ONLY for p in inspect.signature(value).parameters.values())
        for name, value in public_functions()
        if not is_error(value)
    }
    # Threats have one for everything that is to be said of features.
    assert {name for name, length in lengths.items() if length > 8} <= THREATS


def test_help_can_be_read() -> None:
    for name, value in public_functions():
        text = pydoc.render_doc(value, renderer=pydoc.plaintext)
        assert "numpy._typing" not in text, name
        # Every keyword is in one line of the signature, and tables have a field for every column.
        assert max(map(len, text.splitlines())) < 1200, name


def test_load_offers_every_option_of_the_loaders() -> None:
    names = set(inspect.signature(treeproof.load).parameters) - {"source", "self_test"}
    assert names == {field.name for field in fields(LoadOptions)}


def test_questions_have_every_option_that_functions_offer() -> None:
    names = {field.name for field in fields(Question)} - {"formats"}
    assert {"model", *names} == set(inspect.signature(treeproof.prepare).parameters)
    for function in (treeproof.verify, treeproof.radius):
        asked = set(inspect.signature(function).parameters) - {"X", "y", "n_jobs", "progress"}
        assert asked | {"kind", "search"} == {"model", *names}
    shared = names - {"kind", "search"}
    assert shared <= set(inspect.signature(treeproof.run).parameters)
    assert shared - {"evidence"} <= set(inspect.signature(treeproof.FrameMapper).parameters)
    gates = (treeproof.verified_accuracy_score, treeproof.verified_accuracy_scorer)
    for gate in (*gates, treeproof.assert_robust):
        assert shared - {"evidence"} <= set(inspect.signature(gate).parameters), gate.__name__


def test_functions_list_their_options() -> None:
    """`help`, editors and signatures show them."""
    # Lines of a figure look as matplotlib can draw them.
    asked = [(n, v) for n, v in public_functions() if not (is_error(v) or n.endswith(".plot"))]
    for name, value in asked:
        kinds = {parameter.kind for parameter in inspect.signature(value).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds, name


def test_the_version_is_stated_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == treeproof.__version__


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = (
        "import sys, treeproof;"
        "heavy = {'numpy', 'numba', 'rich', 'click', 'msgspec', 'narwhals', 'sklearn'};"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_loading_a_saved_model_needs_no_kernels() -> None:
    program = "import sys; import treeproof.model.file_format; sys.exit('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0
    assert importlib.import_module("treeproof.api").load is treeproof.load


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan")])
def test_decision_thresholds_are_probabilities(threshold: float) -> None:
    with pytest.raises(treeproof.InvalidInput, match="must be a probability above 0 and up to 1"):
        treeproof.load("model.json", decision_threshold=threshold)
