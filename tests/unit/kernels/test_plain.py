"""Kernels that run as plain Python until another process has compiled them."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests import modes
from tests.campaigns import both_modes
from treeproof.errors import InvalidInput
from treeproof.kernels.core import background, clock, interrupts, machine_code, plain
from treeproof.kernels.core.compiler import EntryPoint
from treeproof.prediction import in_slices

START = """
import os, sys, time
import numpy as np
from treeproof.kernels.core import background, plain
from treeproof.kernels.core.balls import ball_distances
plain.WORTH_COMPILING_S = 0.0
rows, points, rates = np.zeros((3, 2)), np.full((3, 2), 0.5), np.ones(2)

def ask(wanted=0.5):
    found = np.full(3, 7.0)
    ball_distances(rows, points, rates, rates, found)
    assert found.tolist() == [wanted] * 3, found

def go_over():
    for _ in range(6000):
        ask()
        if ball_distances.machine_code is not None:
            return
        time.sleep(0.02)
    raise AssertionError("nothing was compiled")
"""


def start(folder: Path, program: str, **environment: str) -> subprocess.Popen[str]:
    variables = {"TREEPROOF_PLAIN": "auto", "NUMBA_CACHE_DIR": str(folder / "kernels")}
    return subprocess.Popen(
        [sys.executable, "-c", START + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables, **environment},
    )


def run(folder: Path, program: str, **environment: str) -> str:
    output, errors = start(folder, program, **environment).communicate(timeout=300)
    assert errors == ""
    return output


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def assert_ended(process: int) -> None:
    for _ in range(500):
        if not is_running(process):
            return
        time.sleep(0.02)
    raise AssertionError("the process that compiles goes on although nobody is there to be served")


def test_a_process_begins_as_plain_python_and_goes_over_to_machine_code(tmp_path: Path) -> None:
    program = """
ask()
print("numba" in sys.modules)
go_over()
print("numba" in sys.modules, background._compiler._process.pid)
"""
    before, after, process = run(tmp_path, program).split()
    assert (before, after) == ("False", "True")
    assert_ended(int(process))
    # The next process finds it, and starts no other one.
    assert run(tmp_path, "ask(); print(background._compiler._process)") == "None\n"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_compiler_outlives_the_process_that_it_serves(tmp_path: Path, number: int) -> None:
    program = start(
        tmp_path,
        "ask(); print(background._compiler._process.pid, flush=True); time.sleep(300)",
    )
    assert program.stdout is not None
    process = int(program.stdout.readline())
    assert is_running(process)
    program.send_signal(number)
    program.communicate(timeout=60)
    assert_ended(process)
    # What was begun is no obstacle to the next process.
    assert run(tmp_path, "go_over(); print('over')") == "over\n"


def test_a_call_that_takes_too_long_is_begun_again_as_machine_code(tmp_path: Path) -> None:
    program = """
plain.CALL_S = 0.2
many = np.zeros((1_000_000, 2))
found = np.full(len(many), 7.0)
ball_distances(many, many + 0.5, rates, rates, found)
print(np.unique(found), "numba" in sys.modules)
"""
    output, errors = start(tmp_path, program).communicate(timeout=300)
    assert output == "[0.5] True\n", errors


def test_where_nothing_can_be_kept_slow_calls_compile_in_memory(tmp_path: Path) -> None:
    program = """
plain.cache_directory = background.cache_directory = lambda: None
import treeproof.kernels.core.machine_code as compiled
import treeproof.kernels.core.progress as progress
import treeproof.kernels.core.cache as cache
cache.cache_directory = compiled.cache_directory = progress.cache_directory = lambda: None
ask()
plain.CALL_S = 0.0
many = np.zeros((100_000, 2))
found = np.full(len(many), 7.0)
ball_distances(many, many + 0.5, rates, rates, found)
print(np.unique(found), background._compiler._process)
"""
    output, errors = start(tmp_path, program).communicate(timeout=300)
    assert output == "[0.5] None\n"
    assert "cannot be kept" in errors


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_leaves_the_compiler_of_the_other_one_alone(tmp_path: Path) -> None:
    program = """
ask()
first = background._compiler._process
child = os.fork()
if child == 0:
    go_over()
    assert background._compiler._process is not first
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert first.poll() is None
go_over()
print("over")
"""
    assert run(tmp_path, program) == "over\n"


def test_one_core_is_not_shared_for_long(tmp_path: Path) -> None:
    """Where there is one core, plain Python would keep the compiler from ending."""
    program = """
plain.usable_processors = lambda: 1
ball_distances.plain_s = 2 * plain.ALONE_S
ask()
print("numba" in sys.modules)
"""
    output, _ = start(tmp_path, program).communicate(timeout=300)
    assert output == "True\n"


def test_an_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREEPROOF_PLAIN", "perhaps")
    with pytest.raises(InvalidInput, match=r"TREEPROOF_PLAIN must be .* Got 'perhaps'"):
        plain.mode()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What waited for machine code, which is a function of Python here and says so."""
    waited: list[tuple[Any, ...]] = []
    monkeypatch.setenv("TREEPROOF_PLAIN", "auto")
    monkeypatch.setattr(plain, "has_machine_code", lambda name, directory: False)
    task = SimpleNamespace(is_over=threading.Event())
    task.is_over.set()
    monkeypatch.setattr(background, "request", lambda entry, arguments: task)
    monkeypatch.setattr(background, "wait", lambda entry, arguments: waited.append(arguments))
    monkeypatch.setattr(
        machine_code, "machine_code_of", lambda entry, missing=None: lambda *_: "machine code"
    )
    return waited


class Limits(SimpleNamespace):
    """Limits of a call, as far as `plain` looks at them."""

    time_s: float


def entry_point(function: Callable[..., Any]) -> EntryPoint:
    return EntryPoint(function, is_kept=True)


@pytest.mark.parametrize("looks_at_clock", [True, False])
def test_a_time_limit_of_plain_python_is_one_of_machine_code(
    served: list[Any], looks_at_clock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "CALL_S", 0.5)

    def endless(limits: Any, table: Any) -> str:
        table[0] = 5.0
        while True:
            if looks_at_clock:
                clock.seconds_now(table)

    table = np.array([1.0, 2.0])
    assert entry_point(endless)(Limits(time_s=0.1), table) == "machine code"
    assert len(served) == 1
    assert table.tolist() == [1.0, 2.0]  # as if the first try had never been


@pytest.mark.parametrize("n_cores", [1, 2])
def test_a_slow_call_goes_on_until_machine_code_is_there(
    served: list[Any], n_cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it may keep the compiler from its core, it waits at once."""
    monkeypatch.setattr(plain, "CALL_S", 0.1)
    monkeypatch.setattr(plain, "usable_processors", lambda: n_cores)
    is_over = background.request(None, ()).is_over  # type: ignore[arg-type]
    is_over.clear()
    is_slow = threading.Event()

    def wait(rounds: int) -> str:
        end = time.perf_counter() + 3.0 * plain.CALL_S
        while time.perf_counter() < end or rounds > 1:
            if time.perf_counter() > end:
                is_slow.set()
        return "plain"

    entry = entry_point(wait)
    assert entry(1) == ("plain" if n_cores > 1 else "machine code")
    threading.Thread(target=lambda: is_slow.wait() and is_over.set()).start()
    is_slow.set() if n_cores == 1 else None
    assert entry(2) == "machine code"
    assert is_slow.is_set()


def test_what_ends_in_time_stays_plain_and_errors_pass(served: list[Any]) -> None:
    def half(limits: Any, number: float) -> float:
        if number < 0.0:
            raise ZeroDivisionError
        return number / 2.0

    entry = entry_point(half)
    assert entry(Limits(time_s=1.0), 3.0) == 1.5
    with pytest.raises(ZeroDivisionError):
        entry(Limits(time_s=1.0), -1.0)
    assert not served
    assert not plain._watched_calls


def test_calls_of_several_threads_are_watched_each_for_itself(served: list[Any]) -> None:
    def wait(limits: Any, seconds: float) -> str:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass
        return "plain"

    entry, found = entry_point(wait), {}

    def ask(seconds: float) -> None:
        found[seconds] = entry(Limits(time_s=100.0), seconds)

    threads = [threading.Thread(target=ask, args=(seconds,)) for seconds in (0.01, 60.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0.01: "plain", 60.0: "machine code"}


def test_single_rows_are_asked_about_while_kernels_are_plain(served: list[Any]) -> None:
    entry = entry_point(lambda: None)
    turns: Iterator[slice] = plain.turns(entry, slice(2, 9))
    assert [next(turns), next(turns)] == [slice(2, 3), slice(3, 4)]
    entry.machine_code = print
    assert list(turns) == [slice(4, 9)]


def test_kinds_of_arguments_are_told_apart_and_contents_are_not() -> None:
    table = np.arange(6.0).reshape(2, 3)
    alike = [table, table + 1.0, np.zeros((5, 1))]
    others = [
        table.T,
        np.zeros((4, 4))[::2, ::2],
        table.astype(np.float32),
        table[0],
        np.broadcast_to(table, (2, 3)).copy(),
    ]
    others[-1].flags.writeable = False
    described = background._described
    assert {repr(described(one)) for one in alike} == {repr(described(table))}
    assert len({repr(described(one)) for one in (table, *others)}) == 1 + len(others)
    for one in (table, *others, (1.5, True, (table, None))):
        example = background._example(described(one))
        assert repr(described(example)) == repr(described(one))


def test_both_modes_give_the_same_bits() -> None:
    asked = [both_modes.compare(seed) for seed in range(40)]
    assert {kind for kind, _ in asked} >= {"distance", "cost"}
    assert all(is_equal for _, is_equal in asked)


def test_a_difference_between_the_modes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison itself can fail."""
    entry = modes.entry_points()["treeproof.kernels.exact.row.solve_batch"]
    function = entry.function
    seeds = iter(range(1000))
    while entry.machine_code is None:
        both_modes.compare(next(seeds))

    def planted(*arguments: Any) -> Any:
        answer = function(*arguments)
        arguments[-1].counts[:] += 1
        return answer

    monkeypatch.setattr(entry, "function", planted)
    assert not all(both_modes.compare(seed)[1] for seed in range(40))


INTERRUPTED = """
import os, signal, threading, time
import numpy as np
import treeproof as tp
from sklearn.ensemble import RandomForestClassifier
from treeproof.kernels.core.interrupts import STOP
random = np.random.default_rng(0)
rows = random.normal(size=(2000, 8))
model = tp.load(RandomForestClassifier(100, random_state=0).fit(rows, rows[:, :4].prod(1) > 0))
jobs = int(os.environ["JOBS"])
tp.radius(model, rows[:1], time_limit_s=0.01)

def interrupt():
    time.sleep(0.5)
    global sent
    sent = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    tp.radius(model, rows, n_jobs=jobs, time_limit_s=3000)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - sent < 20.0, STOP[0])
# The next question is answered as if nothing had been.
print(tp.verify(model, rows[:1], perturbation=tp.LInf(0.0)).verdict[0])
"""


@pytest.mark.parametrize("mode", ["always", "never"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_a_search(mode: str, jobs: int) -> None:
    program = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        env={**os.environ, "TREEPROOF_PLAIN": mode, "JOBS": str(jobs)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert program.stdout == "interrupted True 0\nverified\n", program.stderr


def test_ctrl_c_waits_for_a_place_where_it_can_be_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Called back by LLVM, Python only prints what its handler raised, and compiles on."""
    monkeypatch.setattr(interrupts, "_is_ours", lambda: True)  # other tests have handlers, too
    before = signal.getsignal(signal.SIGINT)
    raised = []

    def compile_for_long() -> None:
        with interrupts.noting_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                interrupts.raise_noted()
            interrupts.raise_noted()  # once was enough
            raised.append("between parts")
            os.kill(os.getpid(), signal.SIGINT)
            raised.append("not at once")

    with pytest.raises(KeyboardInterrupt):
        compile_for_long()
    assert raised == ["between parts", "not at once"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    interrupts.raise_noted()
    signal.signal(signal.SIGINT, before)


def test_a_handler_of_the_program_is_kept() -> None:
    """Whoever handles Ctrl-C, or listens for signals as asyncio does, goes on doing so."""
    before = signal.getsignal(signal.SIGINT)
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        assert interrupts.run_interruptibly(lambda: os.kill(os.getpid(), signal.SIGINT)) is None
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]
    assert interrupts.STOP[0] == 0


def test_a_slice_that_fails_ends_the_others() -> None:
    started = threading.Event()

    def run(part: slice) -> None:
        if part.start == 0:
            started.wait(60.0)
            raise ZeroDivisionError
        started.set()
        while not np.isinf(clock.seconds_now(np.zeros(2, dtype=np.int64))):
            time.sleep(0.001)

    with pytest.raises(ZeroDivisionError):
        in_slices(range(2), 2, run)
    assert interrupts.STOP[0] == 0
