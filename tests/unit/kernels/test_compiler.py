import itertools
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.runtime import _nrt_python as counters

from treeproof.kernels.core import cache, compiler

KERNELS = cache._KERNELS


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The sources of the kernels, to be changed."""
    folder = tmp_path / "kernels"
    shutil.copytree(KERNELS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(cache, "_KERNELS", folder)
    yield folder
    cache._sources_hash.cache_clear()


@pytest.fixture(autouse=True)
def no_override(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()


find_directory = cache.cache_directory.__wrapped__


def source_hash(module: str = "core.trees") -> str:
    cache._sources_hash.cache_clear()
    return cache.source_hash(f"treeproof.kernels.{module}")


def test_the_directory_belongs_to_the_user(tmp_path: Path) -> None:
    assert find_directory() == tmp_path / "cache" / "treeproof"
    assert stat.S_IMODE(find_directory().stat().st_mode) == 0o700


def test_a_change_counts_for_the_kernels_that_may_import_it_and_no_others(copy: Path) -> None:
    modules = ("core.trees", "exact.row", "exact.dual", "baselines.cliques", "training.growth")
    for changed, concerned in (("exact/dual.py", "exact"), ("core/trees.py", "")):
        before = [source_hash(module) for module in modules]
        with (copy / changed).open("a") as file:
            file.write("# changed\n")
        for module, hashed in zip(modules, before, strict=True):
            assert (source_hash(module) != hashed) == module.startswith(concerned)


def test_a_renamed_file_and_another_version_count(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = source_hash()
    (copy / "core" / "clock.py").rename(copy / "core" / "renamed.py")
    second = source_hash()
    monkeypatch.setattr(numba, "__version__", "0.0")
    assert len({first, second, source_hash()}) == 3


def test_noalloc_kernels_count_no_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """A numba that ignores the private option, or has none, gives slower kernels that work."""
    monkeypatch.setattr(cache, "cache_directory", lambda: None)

    def instructions(decorator) -> str:  # type: ignore[no-untyped-def]
        @decorator
        def largest(table):  # type: ignore[no-untyped-def]
            row = table[0]
            for number in range(1, len(table)):
                if table[number, 0] > row[0]:
                    row = table[number]
            return row[0]

        @compiler.memory_kernel
        def entry_point(table):  # type: ignore[no-untyped-def]
            return largest(table)

        assert entry_point(np.array([[1.0], [3.0], [2.0]])) == 3.0
        (compiled,) = largest.overloads.values()
        assert compiled.library._final_module is None  # parsed code takes much more memory
        return str(compiled.library._get_module_for_linking())

    counted = "NRT_incref"
    assert compiler._BORROWED == {"_nrt": False}
    assert counted in instructions(compiler.inner_kernel)
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
    assert find_directory() == tmp_path / "mine" / "treeproof"


def test_an_unusable_home_falls_back_to_the_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file in the way fails for every user, root included, as a read-only place does for others.
    (tmp_path / "cache").write_text("no directory")
    user = f"treeproof-{os.getuid()}"
    assert find_directory() == tmp_path / "temporary" / user


def test_where_nothing_is_writable_kernels_compile_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("no directory")
    (tmp_path / "temporary" / f"treeproof-{os.getuid()}").write_text("no directory")
    assert find_directory() is None
    monkeypatch.setattr(cache, "cache_directory", lambda: None)

    @compiler.kernel
    def add(a, b):  # type: ignore[no-untyped-def]
        return a + b

    assert add(1.0, 2.0) == 3.0


def test_a_directory_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    assert find_directory() is None


PROGRAM = """
import sys
import numpy as np
from treeproof.kernels.core.compiler import inner_kernel, kernel
from treeproof.kernels.core import cache
cache.Progress._QUIET = -1.0

@inner_kernel
def double(number):
    return 2.0 * number

@kernel
def doubled(numbers):
    return double(numbers[0])

assert doubled(np.array([3.0])) == 6.0
print(sum(doubled.stats.cache_hits.values()))
"""


def run_program(folder: Path, copies: int = 1) -> list[tuple[str, str]]:
    """Standard output and error of programs that start together on the same cache."""
    (folder / "program.py").write_text(PROGRAM)
    programs = [
        subprocess.Popen(
            [sys.executable, folder / "program.py"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "kernels")},
        )
        for _ in range(copies)
    ]
    return [program.communicate() for program in programs]


def test_compiled_kernels_are_announced_kept_and_found_from_anywhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    ((output, errors),) = run_program(tmp_path)
    assert output == "0\n"
    assert "Compiling __main__.doubled for this machine" in errors
    assert str(tmp_path / "kernels" / "treeproof") in errors
    (tmp_path / "kernels").rename(tmp_path / "elsewhere" / "kernels")
    assert run_program(tmp_path / "elsewhere") == [("1\n", "")]


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    assert sorted(output for output, _ in run_program(tmp_path, copies=3)) == ["0\n", "1\n", "1\n"]


def test_a_damaged_entry_is_compiled_again(tmp_path: Path) -> None:
    run_program(tmp_path)
    entries = list((tmp_path / "kernels").rglob("*.nb?"))
    assert len(entries) == 2
    for entry, n_bytes in itertools.product(entries, (0, 100)):
        entry.write_bytes(entry.read_bytes()[:n_bytes])
        assert [output for output, _ in run_program(tmp_path)] == ["0\n"]
        assert [output for output, _ in run_program(tmp_path)] == ["1\n"]


def test_kernels_that_cannot_be_kept_are_announced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cache, "cache_directory", lambda: None)
    assert compiler.kernel(lambda number: number + 1.0)(1.0) == 2.0
    assert "NUMBA_CACHE_DIR" in caplog.text


def test_inner_kernels_have_no_machine_code_of_their_own_and_refuse_python() -> None:
    @compiler.inner_kernel
    def double(number):  # type: ignore[no-untyped-def]
        return 2.0 * number

    @compiler.noalloc_kernel
    def first_doubled(numbers):  # type: ignore[no-untyped-def]
        return double(numbers[0])

    def whole(numbers):  # type: ignore[no-untyped-def]
        return first_doubled(numbers) + 1.0

    assert compiler.memory_kernel(whole)(np.array([3.0, 4.0])) == 7.0
    assert not double.overloads[(numba.float64,)].library._compiled
    for inner in (double, first_doubled):
        with pytest.raises(TypeError, match="only_kernels_call"):
            inner(np.array([1.0]) if inner is first_doubled else 1.0)


@pytest.fixture
def counted_memory() -> Iterator[None]:
    counters.memsys_enable_stats()
    yield
    counters.memsys_disable_stats()


@pytest.mark.usefixtures("counted_memory")
def test_arguments_are_borrowed_and_all_memory_is_given_back() -> None:
    @compiler.inner_kernel
    def grown(numbers):  # type: ignore[no-untyped-def]
        if len(numbers) > 16:
            return numbers
        larger = np.empty(2 * len(numbers), dtype=np.float64)
        for index in range(len(larger)):
            larger[index] = numbers[index // 2]
        return larger

    @compiler.inner_kernel
    def exchanged(pair, n_times):  # type: ignore[no-untyped-def]
        left, right = pair
        for _ in range(n_times):
            pair = (right, left)
            left, right = pair
        return pair

    @compiler.memory_kernel
    def entry_point(first, second, n_times):  # type: ignore[no-untyped-def]
        for number in range(n_times):
            first = grown(first)
            if number == 3:
                second = first
        return exchanged((first, second), n_times)

    def allocated() -> int:
        return int(counters.memsys_get_stats_alloc() - counters.memsys_get_stats_free())

    first, second = np.arange(3.0), np.arange(4.0)
    before = allocated()
    references = sys.getrefcount(first), sys.getrefcount(second)
    for n_times in (0, 1, 2, 7):
        one, other = entry_point(first, second, n_times)
        expected = first.repeat(2 ** min(n_times, 3))
        found = [expected, expected if n_times > 3 else second]
        for answer, right in zip((one, other), found[:: 1 - 2 * (n_times % 2)], strict=True):
            np.testing.assert_array_equal(answer, right)
        del one, other, answer
    assert allocated() == before
    assert (sys.getrefcount(first), sys.getrefcount(second)) == references


def test_a_kernel_is_linked_however_early_a_call_that_never_happens_names_it() -> None:
    @compiler.inner_kernel
    def increased(number):  # type: ignore[no-untyped-def]
        return number + 1

    @compiler.inner_kernel
    def doubled(number):  # type: ignore[no-untyped-def]
        return 2 * increased(number)

    @compiler.memory_kernel
    def entry_point(number):  # type: ignore[no-untyped-def]
        is_plain = False
        if is_plain:
            return increased(number)
        return doubled(number)

    assert entry_point(3) == 8
