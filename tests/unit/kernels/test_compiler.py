import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from treeproof.kernels import compiler


def find_directory(module: str = "prediction") -> Path | None:
    return compiler.cache_directory.__wrapped__(module)


def source_hash(module: str = "prediction") -> str:
    return compiler._source_hash(module)


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


def test_any_change_of_a_kernel_gives_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "kernels"
    copy.mkdir()
    for path in Path(compiler.__file__).parent.glob("*.py"):
        (copy / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(compiler, "__file__", str(copy / "compiler.py"))
    before = find_directory()
    (copy / "prediction.py").write_text("# changed\n")
    after = find_directory()
    assert before != after
    (copy / "prediction.py").rename(copy / "renamed.py")
    assert find_directory() not in (before, after)


def test_a_change_counts_for_the_modules_that_import_it_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "kernels"
    copy.mkdir()
    for path in Path(compiler.__file__).parent.glob("*.py"):
        (copy / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(compiler, "__file__", str(copy / "compiler.py"))
    user, other = find_directory("exact"), find_directory("prediction")
    with (copy / "dual.py").open("a") as file:
        file.write("# changed\n")
    assert find_directory("exact") != user  # through branching, which imports it
    assert find_directory("prediction") == other


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
        "from treeproof.kernels.compiler import cache_directory\n"
        "from treeproof.kernels.prediction import is_left\n"
        "from treeproof.prediction import Model\n"
        "from treeproof.model.file_format import load_saved\n"
        "import sys\n"
        "Model(load_saved(sys.argv[1])).margins(np.zeros((3, 1)))\n"
        "from treeproof.kernels.prediction import accumulate\n"
        "hits = sum(accumulate.stats.cache_hits.values())\n"
        "print(hits, len(list(cache_directory('prediction').rglob('*.nbi'))))\n"
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

    import numba
    import numpy as np

    assert numba.njit(whole)(np.array([3.0, 4.0])) == 7.0
    assert not double.overloads[(numba.float64,)].library._compiled
    for inner in (double, first_doubled):
        with pytest.raises(TypeError, match="only_kernels_call"):
            inner(np.array([1.0]) if inner is first_doubled else 1.0)
