import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import numba
import numpy as np
import pytest

from treeproof.kernels.core import compiler

KERNELS = Path(compiler.__file__).parent


def find_directory(module: str = "prediction") -> Path | None:
    return compiler.cache_directory.__wrapped__(f"treeproof.kernels.{module}")


def source_hash(module: str = "prediction") -> str:
    return compiler._source_hash(f"treeproof.kernels.{module}")


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sources of the kernels, to be changed."""
    folder = tmp_path / "kernels"
    shutil.copytree(KERNELS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compiler, "__file__", str(folder / "compiler.py"))
    return folder


@pytest.fixture(autouse=True)
def no_override(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()


def test_the_directory_is_named_by_the_sources(tmp_path: Path) -> None:
    assert find_directory() == tmp_path / "cache" / "treeproof" / source_hash()
    assert stat.S_IMODE(find_directory().stat().st_mode) == 0o700


def test_any_change_of_a_kernel_gives_another_directory(copy: Path) -> None:
    before = find_directory()
    (copy / "prediction.py").write_text("# changed\n")
    after = find_directory()
    assert before != after
    (copy / "prediction.py").rename(copy / "renamed.py")
    assert find_directory() not in (before, after)


def test_a_change_counts_for_the_modules_that_import_it_and_no_others(copy: Path) -> None:
    user, other = find_directory("exact"), find_directory("prediction")
    with (copy / "dual.py").open("a") as file:
        file.write("# changed\n")
    assert find_directory("exact") != user  # through branching, which imports it
    assert find_directory("prediction") == other


@pytest.mark.parametrize(
    "statement",
    [
        "from treeproof.kernels.deep.inner import value",
        "from treeproof.kernels.deep.inner import *",
        "from treeproof.kernels.deep import inner",
        "from treeproof.kernels.deep import inner as other",
        "from treeproof.kernels.deep import *",
        "from treeproof.kernels import deep",
        "from treeproof import kernels",
        "from treeproof.kernels import (\n    clock,  # (a comment)\n    deep,\n)",
        "from \\\n    treeproof.kernels.deep \\\n    import inner",
        "import treeproof.kernels.deep.inner",
        "import treeproof.kernels.deep.inner as inner",
        "import math, treeproof.kernels.deep as deep",
        "import treeproof",
        "from . import deep",
        "from .deep import inner",
        "from .deep.inner import value",
        "from ..kernels.deep.inner import value",
        "from .between import value",
        "if True: from .deep import inner",
        "def late():\n    from .deep.inner import value",
        'text = """\ndef late():\n"""\nfrom .deep.inner import value',
        'from .deep.inner import value\n\ntext = """\ndef late():\n"""',
        "from importlib import import_module\n\ninner = import_module('.deep.inner', __package__)",
        "inner = __import__('treeproof.kernels.deep.inner')",
    ],
)
def test_every_form_of_import_counts(copy: Path, statement: str) -> None:
    (copy / "deep").mkdir()
    (copy / "deep" / "__init__.py").write_text("")
    inner = copy / "deep" / "inner.py"
    inner.write_text("value = 1\n")
    (copy / "between.py").write_text("from .deep.inner import value\n")
    (copy / "user.py").write_text(f"{statement}\n")
    before, other = source_hash("user"), source_hash("clock")
    inner.write_text("value = 2\n")
    assert source_hash("user") != before
    assert source_hash("clock") == other


def test_packages_of_kernels_see_their_own_modules(copy: Path) -> None:
    (copy / "deep").mkdir()
    (copy / "deep" / "__init__.py").write_text("from .inner import value\n")
    (copy / "deep" / "inner.py").write_text("value = 1\n")
    (copy / "user.py").write_text("from treeproof.kernels.deep import value\n")
    before = source_hash("user"), source_hash("deep.inner")
    (copy / "deep" / "inner.py").write_text("value = 2\n")
    assert source_hash("user") != before[0]
    assert source_hash("deep.inner") != before[1]


def test_kernels_of_other_packages_depend_on_the_ones_they_import(copy: Path) -> None:
    before = compiler._source_hash(__name__)
    with (copy / "compiler.py").open("a") as file:
        file.write("# changed\n")
    assert compiler._source_hash(__name__) != before


def test_noalloc_kernels_count_no_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """A numba that ignores the private option, or has none, gives slower kernels that work."""
    monkeypatch.setattr(compiler, "cache_directory", lambda module: None)

    def instructions(decorator) -> str:  # type: ignore[no-untyped-def]
        @decorator
        def first(table, row):  # type: ignore[no-untyped-def]
            return table[0][row]

        @decorator
        def both(table, row):  # type: ignore[no-untyped-def]
            return first(table, row) + table[1][row]

        @numba.njit
        def entry_point(table, row):  # type: ignore[no-untyped-def]
            return both(table, row)

        assert entry_point((np.ones(2), np.ones(2)), 1) == 2.0
        (compiled,) = both.overloads.values()
        return str(compiled.library.get_llvm_str())

    counted = "NRT_incref"
    assert compiler._BORROWED == {"_nrt": False}
    assert counted in instructions(compiler.kernel)
    assert counted not in instructions(compiler.noalloc_kernel)
    assert counted not in instructions(compiler.inlined_kernel)
    monkeypatch.setattr(compiler, "_BORROWED", {})
    assert counted in instructions(compiler.noalloc_kernel)


def test_only_versions_of_numba_that_were_tested_are_installed() -> None:
    """Another one may give the private option another meaning; its bound rises with the tests."""
    project = tomllib.loads((KERNELS.parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    (bounds,) = [d for d in project["project"]["dependencies"] if d.startswith("numba")]
    least, below = re.fullmatch(r"numba>=(\d+\.\d+),<(\d+\.\d+)", bounds).groups()
    installed = tuple(map(int, numba.__version__.split(".")[:2]))
    assert tuple(map(int, least.split("."))) <= installed < tuple(map(int, below.split(".")))


def test_the_environment_may_choose_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "mine"))
    directory = find_directory()
    assert directory.parent == tmp_path / "mine"
    assert source_hash() in directory.name


def test_an_unusable_home_falls_back_to_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file in the way fails for every user, root included, as a read-only place does for others.
    (tmp_path / "cache").write_text("no directory")
    user = f"treeproof-{os.getuid()}"
    assert find_directory() == tmp_path / "temporary" / user / source_hash()


def test_where_nothing_is_writable_kernels_compile_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("no directory")
    (tmp_path / "temporary" / f"treeproof-{os.getuid()}").write_text("no directory")
    assert find_directory() is None
    monkeypatch.setattr(compiler, "cache_directory", lambda module: None)

    @compiler.kernel
    def add(a, b):  # type: ignore[no-untyped-def]
        return a + b

    assert add(1.0, 2.0) == 3.0


def test_a_directory_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    assert find_directory() is None


def test_compiled_kernels_are_kept_and_found_again(tmp_path: Path) -> None:
    program = (
        "import numpy as np\n"
        "from treeproof.kernels.core.compiler import cache_directory\n"
        "from treeproof.kernels.core.trees import is_left\n"
        "from treeproof.prediction import Model\n"
        "from treeproof.model.file_format import load_saved\n"
        "import sys\n"
        "Model(load_saved(sys.argv[1])).margins(np.zeros((3, 1)))\n"
        "from treeproof.kernels.core.trees import accumulate\n"
        "hits = sum(accumulate.stats.cache_hits.values())\n"
        "folder = cache_directory('treeproof.kernels.core.trees')\n"
        "print(hits, len(list(folder.rglob('*.nbi'))))\n"
    )
    from tests.unit.model.test_file_format import binary_stump
    from treeproof.model.file_format import save_ensemble

    save_ensemble(binary_stump(), tmp_path / "model.treeproof")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    counts = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "model.treeproof")],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        counts.append([int(word) for word in done.stdout.split()])
    assert counts[0][0] == 0
    assert counts[1][0] == 1
    assert counts[0][1] >= 1


def test_inner_kernels_have_no_machine_code_of_their_own_and_refuse_python() -> None:
    @compiler.inner_kernel
    def double(number):  # type: ignore[no-untyped-def]
        return 2.0 * number

    @compiler.noalloc_kernel
    def first_doubled(numbers):  # type: ignore[no-untyped-def]
        return double(numbers[0])

    def whole(numbers):  # type: ignore[no-untyped-def]
        return first_doubled(numbers) + 1.0

    assert numba.njit(whole)(np.array([3.0, 4.0])) == 7.0
    assert not double.overloads[(numba.float64,)].library._compiled
    for inner in (double, first_doubled):
        with pytest.raises(TypeError, match="only_kernels_call"):
            inner(np.array([1.0]) if inner is first_doubled else 1.0)
