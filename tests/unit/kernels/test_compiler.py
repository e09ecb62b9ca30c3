import itertools
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numba.core.runtime import _nrt_python as counters

from treeproof.kernels.core import cache, compiler, machine_code, progress
from treeproof.kernels.exact.row import solve_batch

KERNELS = cache._KERNELS


pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The sources of the kernels, to be changed."""
    folder = tmp_path / "kernels"
    shutil.copytree(KERNELS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(cache, "_KERNELS", folder)
    yield folder
    forget_sources()


def forget_sources() -> None:
    cache._source.cache_clear()
    cache.source_hash.cache_clear()


@pytest.fixture(autouse=True)
def no_override(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()


find_directory = cache.cache_directory.__wrapped__


def source_hash(module: str = "core.trees") -> str:
    forget_sources()
    return cache.source_hash(f"treeproof.kernels.{module}")


def test_the_directory_belongs_to_the_user(tmp_path: Path) -> None:
    assert find_directory() == tmp_path / "cache" / "treeproof"
    assert stat.S_IMODE(find_directory().stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("changed", "concerned"),
    [
        ("exact/dual.py", {"exact.row", "exact.dual"}),
        ("core/bits.py", {"exact.row", "exact.hitting"}),
        ("paper/cliques.py", {"paper.cliques"}),
        ("core/compiler.py", {"core.trees", "exact.row", "exact.dual", "exact.hitting"}),
    ],
)
def test_a_change_counts_for_the_kernels_that_are_made_of_it_and_no_others(
    copy: Path, changed: str, concerned: set[str]
) -> None:
    modules = ("core.trees", "exact.row", "exact.dual", "exact.hitting", "paper.cliques")
    before = [source_hash(module) for module in modules]
    with (copy / changed).open("a") as file:
        file.write("# changed\n")
    found = {
        module for module, one in zip(modules, before, strict=True) if source_hash(module) != one
    }
    assert found == (set(modules) if changed == "core/compiler.py" else concerned)


def test_all_that_kernels_are_made_of_is_known_by_their_imports() -> None:
    """Whatever an entry point calls stands in a module that its hash counts."""
    machine_code.dispatcher_of(solve_batch)
    for part in machine_code._parts(solve_batch.function):
        name = part.__module__.removeprefix("treeproof.kernels.")
        assert name in cache.sources_of("exact.row")


def test_another_version_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    first = source_hash()
    monkeypatch.setattr(cache, "version", lambda name: "0.0")
    second = source_hash()
    monkeypatch.setenv("TREEPROOF_QUICK_COMPILER", "0")
    assert len({first, second, source_hash()}) == 3


def test_noalloc_kernels_count_no_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """A numba that ignores the private option, or has none, gives slower kernels that work."""
    quick = pytest.importorskip("treeproof.kernels.core.quick_compiler")

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
        (compiled,) = machine_code._KNOWN[largest].overloads.values()
        assert compiled.library._final_module is None  # parsed code takes much more memory
        return str(compiled.library._get_module_for_linking())

    counted = "NRT_incref"
    assert quick.BORROWED == {"_nrt": False}
    assert counted in instructions(compiler.inner_kernel)
    assert counted not in instructions(compiler.noalloc_kernel)
    assert counted not in instructions(compiler.inlined_kernel)
    monkeypatch.setattr(quick, "BORROWED", {})
    machine_code._options.cache_clear()
    assert counted in instructions(compiler.noalloc_kernel)
    machine_code._options.cache_clear()


@pytest.mark.parametrize(
    "reason", ["switched off", "not tested", "a part is missing", "a step is renamed"]
)
def test_without_the_quick_compiler_numba_compiles_the_same_sources(
    reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if reason == "switched off":
        monkeypatch.setenv("TREEPROOF_QUICK_COMPILER", "0")
    elif reason == "not tested":
        monkeypatch.setattr(machine_code, "TESTED", ((0, 1), (0, 2)))
    elif reason == "a part is missing":
        monkeypatch.setitem(sys.modules, "treeproof.kernels.core.quick_compiler", None)
        monkeypatch.delattr("treeproof.kernels.core.quick_compiler", raising=False)
    else:
        monkeypatch.setattr("treeproof.kernels.core.quick_compiler._STEPS", {"Renamed"})
    machine_code._options.cache_clear()
    try:
        for options in machine_code._options():
            assert "pipeline_class" not in options
    finally:
        machine_code._options.cache_clear()
    assert ("missing" in reason or "renamed" in reason) == ("which take longer" in caplog.text)


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
    for module in (cache, machine_code, progress):
        monkeypatch.setattr(module, "cache_directory", lambda: None)

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
from treeproof.kernels.core import progress
progress.QUIET_S = -1.0

@inner_kernel
def double(number):
    return 2.0 * number

@kernel
def doubled(numbers):
    return double(numbers[0])

assert doubled(np.array([3.0])) == 6.0
print(sum(doubled.machine_code.stats.cache_hits.values()))
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
            env={
                **os.environ,
                "TREEPROOF_PLAIN": "never",
                "NUMBA_CACHE_DIR": str(folder / "kernels"),
            },
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
    for module in (cache, machine_code, progress):
        monkeypatch.setattr(module, "cache_directory", lambda: None)
    assert compiler.kernel(lambda number: number + 1.0)(1.0) == 2.0
    assert "NUMBA_CACHE_DIR" in caplog.text


def test_inner_kernels_are_plain_functions_without_machine_code_of_their_own() -> None:
    @compiler.inner_kernel
    def double(number):  # type: ignore[no-untyped-def]
        return 2.0 * number

    @compiler.noalloc_kernel
    def first_doubled(numbers):  # type: ignore[no-untyped-def]
        return double(numbers[0])

    def whole(numbers):  # type: ignore[no-untyped-def]
        return first_doubled(numbers) + 1.0

    assert compiler.memory_kernel(whole)(np.array([3.0, 4.0])) == 7.0
    (compiled,) = machine_code._KNOWN[double].overloads.values()
    assert not compiled.library._compiled
    assert first_doubled(np.array([1.0])) == 2.0


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
