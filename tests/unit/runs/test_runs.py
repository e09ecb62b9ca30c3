"""Runs: the same answers whatever the batches, the interruptions and the order of finishing."""

import json
import math
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.ensemble import GradientBoostingClassifier

import treeproof as tp
from treeproof.data.sources import Rows
from treeproof.results.run_file import read_records
from treeproof.results.summary import RunSummary
from treeproof.runs import batches as batches_module
from treeproof.runs.batches import BatchSizer
from treeproof.runs.run_log import open_log, row_keys, run_header
from treeproof.runs.runner import log_path
from treeproof.search.question import Question

N_ROWS = 150
COMPARED = (
    "row",
    "label",
    "verdict",
    "lower",
    "upper",
    "exact",
    "attained",
    "witness",
    "witness_distance",
    "reason",
    "values",
    "predicted",
    "witness_label",
)


def assert_same(found: tp.Results, expected: tp.Results) -> None:
    """Equal bit for bit, timings aside."""
    for name in COMPARED:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert set(found.statistics) == set(expected.statistics)
    for name, values in expected.statistics.items():
        np.testing.assert_array_equal(found.statistics[name], values, err_msg=name)


@pytest.fixture(scope="module")
def rows() -> tuple[Any, Any]:
    X, y = make_classification(N_ROWS, 6, n_informative=4, random_state=3)
    X[5, 2] = X[17, 0] = -0.0
    return X, y


@pytest.fixture(scope="module")
def model(rows: tuple[Any, Any]) -> tp.Model:
    return tp.load(GradientBoostingClassifier(n_estimators=6, random_state=0).fit(*rows))


@pytest.fixture(scope="module")
def whole(model: tp.Model, rows: tuple[Any, Any], tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("whole") / "run.jsonl"
    tp.run(model, *rows, out=path, n_jobs=1)
    return path


@pytest.fixture(scope="module")
def answers(whole: Path) -> tp.Results:
    return tp.load_results(whole)


def test_a_run_gives_the_bounds_of_the_library(
    model: tp.Model, rows: tuple[Any, Any], answers: tp.Results
) -> None:
    expected = tp.radius(model, *rows)
    for name in ("lower", "upper", "exact", "verdict", "label", "predicted", "values"):
        np.testing.assert_array_equal(getattr(answers, name), getattr(expected, name))
    header = {name: answers.header[name] for name in expected.header}
    assert header == expected.header
    assert answers.header["state"] == "complete"


@pytest.mark.parametrize(("n_jobs", "batch_rows"), [(1, 32), (2, 64), (3, 7), (2, None)])
def test_threads_and_batches_do_not_matter(
    model: tp.Model,
    rows: tuple[Any, Any],
    answers: tp.Results,
    tmp_path: Path,
    n_jobs: int,
    batch_rows: int | None,
) -> None:
    run = tp.run(
        model, *rows, out=tmp_path / "run.jsonl", n_jobs=n_jobs, batch_rows=batch_rows, radii=[0.1]
    )
    assert_same(run.load(), answers)
    assert len(run) == run.n_new == N_ROWS
    assert run.is_complete
    assert run.summary().split("\ntime")[0] == answers.summary().split("\ntime")[0]
    assert run.tally.share_proved(0.1) == pytest.approx(1.0 - answers.verified_error(0.1))


def test_verdicts_and_parquet(model: tp.Model, rows: tuple[Any, Any], tmp_path: Path) -> None:
    lines = tp.run(model, *rows, tp.LInf(0.1), out=tmp_path / "run.jsonl", n_jobs=1).load()
    assert lines.header["question"]["kind"] == "verify"
    table = tp.run(model, *rows, tp.LInf(0.1), out=tmp_path / "run.parquet", n_jobs=2, batch_rows=9)
    assert_same(table.load(), lines)
    assert {path.name for path in tmp_path.iterdir()} == {"run.jsonl", "run.parquet"}
    expected = tp.verify(model, *rows, tp.LInf(0.1))
    np.testing.assert_array_equal(lines.verdict, expected.verdict)
    np.testing.assert_array_equal(lines.witness, expected.witness)


def test_a_run_needs_no_file(model: tp.Model, rows: tuple[Any, Any], answers: tp.Results) -> None:
    run = tp.run(model, *rows, n_jobs=1)
    assert len(run) == N_ROWS
    assert run.tally.n_exact == answers.exact.sum()
    with pytest.raises(tp.InvalidInput, match="Only a run with a file can be loaded"):
        run.load()


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    cuts=st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), min_size=1, max_size=3),
    n_jobs=st.integers(1, 2),
)
def test_a_file_cut_off_anywhere_is_readable_and_resumed_to_the_same_answers(
    model: tp.Model,
    rows: tuple[Any, Any],
    whole: Path,
    answers: tp.Results,
    tmp_path: Path,
    cuts: list[tuple[float, bool]],
    n_jobs: int,
) -> None:
    path = tmp_path / "run.jsonl"
    shutil.copy(whole, path)
    header_bytes = path.read_bytes().index(b"\n") + 1
    for cut, is_underway in cuts:
        if is_underway:
            path.write_bytes(path.read_bytes().replace(b'"complete"', b'"underway"', 1))
        size = path.stat().st_size
        os.truncate(path, header_bytes + int(cut * (size - header_bytes)))
        n_left = sum(1 for _ in read_records(path)) - 1
        if is_underway or n_left == N_ROWS:
            assert len(tp.load_results(path)) == n_left  # readable at any moment
        else:
            with pytest.raises(tp.InvalidInput, match=f"Got {n_left}: lines are missing"):
                tp.load_results(path)
            with pytest.raises(tp.InvalidInput, match="lines are missing"):
                tp.merge_runs([path, whole], tmp_path / "merged.jsonl")
        run = tp.run(model, *rows, out=path, resume=True, n_jobs=n_jobs, batch_rows=32)
        assert run.n_new == N_ROWS - n_left
        assert json.loads(path.read_bytes().partition(b"\n")[0])["n_rows"] == N_ROWS
        assert_same(run.load(), answers)
        assert sum(1 for _ in read_records(path)) == N_ROWS + 1
        assert path.read_bytes().count(b'"state":"complete"') == 1


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_runs_over_any_ranges_merge_to_the_whole(
    model: tp.Model, rows: tuple[Any, Any], answers: tp.Results, tmp_path: Path, data: Any
) -> None:
    # Verdicts do not depend on which rows are asked together, so any ranges may be merged.
    X, y = rows
    np.savez(tmp_path / "rows.npz", X=X, y=y)
    bounds = sorted(data.draw(st.lists(st.integers(1, N_ROWS - 1), max_size=3)))
    starts, stops = [0, *bounds], [*bounds, N_ROWS]
    overlap = data.draw(st.integers(0, 20))
    suffixes = data.draw(
        st.lists(
            st.sampled_from([".jsonl", ".parquet"]), min_size=len(starts), max_size=len(starts)
        )
    )
    paths = []
    for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        if start == stop:
            continue
        paths.append(tmp_path / f"part{i}{suffixes[i]}")
        wanted = f"{max(0, start - overlap)}:{stop}"
        tp.run(model, tmp_path / "rows.npz", None, tp.LInf(0.1), rows=wanted, out=paths[-1])
    order = data.draw(st.permutations(paths))
    out = tmp_path / ("merged" + data.draw(st.sampled_from([".jsonl", ".parquet"])))
    assert tp.merge_runs(order, out) == N_ROWS
    expected = tp.verify(model, X, y, tp.LInf(0.1))
    merged = tp.load_results(out)
    for name in ("row", "verdict", "lower", "upper", "witness", "label"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(expected, name))
    for path in paths:
        path.unlink()


def test_merging_prefers_settled_answers(
    model: tp.Model, rows: tuple[Any, Any], whole: Path, answers: tp.Results, tmp_path: Path
) -> None:
    header, *records = map(json.loads, whole.read_text().splitlines())
    for record in records[::2]:
        record |= {"exact": False, "verdict": "unknown", "reason": "time limit"}
    path = tmp_path / "undecided.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in [header, *records]))
    for order in ([path, whole], [whole, path]):
        tp.merge_runs(order, tmp_path / "merged.jsonl")
        assert_same(tp.load_results(tmp_path / "merged.jsonl"), answers)


def test_what_cannot_be_merged(
    model: tp.Model, rows: tuple[Any, Any], whole: Path, tmp_path: Path
) -> None:
    X, y = rows
    out = tmp_path / "merged.jsonl"
    other = tmp_path / "other.jsonl"
    tp.run(model, X, y, tp.LInf(0.1), out=other)
    with pytest.raises(tp.InvalidInput, match=r"same question\. Its kind is \"verify\" there"):
        tp.merge_runs([whole, other], out)
    moved = tmp_path / "moved.jsonl"
    tp.run(model, X + 1.0, y, out=moved)
    with pytest.raises(tp.InvalidInput, match="Row 0 must be the same in all runs"):
        tp.merge_runs([whole, moved], out)
    saved = tmp_path / "saved.jsonl"
    tp.radius(model, X[:3]).save(saved)
    with pytest.raises(tp.InvalidInput, match="one without keys"):
        tp.merge_runs([saved, whole], out)
    with pytest.raises(tp.InvalidInput, match="at least one run file"):
        tp.merge_runs([], out)
    with pytest.raises(tp.InvalidInput, match="must be readable"):
        tp.merge_runs([tmp_path / "absent.jsonl"], out)
    assert not out.exists()


def test_another_model_or_question_or_row_is_refused(
    model: tp.Model, rows: tuple[Any, Any], whole: Path, tmp_path: Path
) -> None:
    X, y = rows
    path = tmp_path / "run.jsonl"
    path.write_bytes(whole.read_bytes())
    again: dict[str, Any] = {"out": path, "resume": True}
    other = tp.load(GradientBoostingClassifier(n_estimators=7, random_state=0).fit(X, y))
    with pytest.raises(tp.InvalidInput, match="must be about the same model"):
        tp.run(other, X, y, **again)
    with pytest.raises(tp.InvalidInput, match=r"Its kind is \"radius\" there, and \"verify\" here"):
        tp.run(model, X, y, tp.LInf(0.1), **again)
    with pytest.raises(tp.InvalidInput, match=r"Its perturbation.frozen is .* there"):
        tp.run(model, X, y, tp.LInf(frozen=[1]), **again)
    with pytest.raises(tp.InvalidInput, match=r"Its time_limit_s is null there, and 9.0 here"):
        tp.run(model, X, y, time_limit_s=9.0, **again)
    with pytest.raises(tp.InvalidInput, match='Its labels is "given" there'):
        tp.run(model, X, **again)
    changed = X.copy()
    changed[77, 3] += 1e-9
    with pytest.raises(tp.InvalidInput, match="Row 77 of the data must be the one"):
        tp.run(model, changed, y, **again)
    with pytest.raises(tp.InvalidInput, match="Row 0 of the data must be the one"):
        tp.run(model, X, 1 - y, **again)
    (there, _, lines), (_, _, before) = (p.read_bytes().partition(b"\n") for p in (path, whole))
    assert b'"state":"underway"' in there
    assert lines == before
    same = X.copy()
    same[5, 2] = 0.0  # the same number as -0.0
    assert tp.run(model, same, y, **again).n_new == 0
    assert path.read_bytes() == whole.read_bytes()


def test_more_rows_can_be_added_to_a_complete_run(
    model: tp.Model, rows: tuple[Any, Any], answers: tp.Results, tmp_path: Path
) -> None:
    X, y = rows
    for name in ("run.jsonl", "run.parquet"):
        out = tmp_path / name
        tp.run(model, X[:64], y[:64], out=out)
        assert tp.load_results(out).header["n_rows"] == 64
        run = tp.run(model, X, y, out=out, resume=True)
        assert run.n_new == N_ROWS - 64
        assert run.header["n_rows"] == run.load().header["n_rows"] == N_ROWS
        assert_same(run.load(), answers)


def test_files_that_are_not_written_over(
    model: tp.Model, rows: tuple[Any, Any], whole: Path, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(whole.read_bytes().replace(b'"complete"', b'"underway"', 1))
    with pytest.raises(tp.InvalidInput, match=r"a run that is not complete. Go on with --resume"):
        tp.run(model, *rows, out=path)
    path.write_text("precious,data\n1,2\n")
    for resume in (False, True):
        with pytest.raises(tp.InvalidInput, match=r"no run file|must be a JSON record"):
            tp.run(model, *rows, out=path, resume=resume)
    assert path.read_text() == "precious,data\n1,2\n"
    path.write_bytes(whole.read_bytes())
    assert tp.run(model, *rows, out=path).n_new == N_ROWS  # a complete run is replaced


def some_rows(X: Any, y: Any = None) -> Rows:
    return Rows(np.arange(len(X)), X, y)


def test_a_run_file_has_one_writer(model: tp.Model, rows: tuple[Any, Any], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    question = Question(kind="radius", perturbation=tp.LInf())
    header = run_header(question, model, some_rows(rows[0][:1]))
    with open_log(path, header, RunSummary(True)) as (_, found):
        assert len(found.row) == 0
        for resume in (False, True):
            refused = pytest.raises(tp.InvalidInput, match="Another process is writing it")
            with refused, open_log(path, header, RunSummary(True), resume=resume):
                pass
    with open_log(path, header, RunSummary(True), resume=True):
        assert len(list(tmp_path.iterdir())) == 2
    assert list(tmp_path.iterdir()) == [path]  # nothing of the lock is left


def test_a_row_that_fails_is_recorded_and_the_run_goes_on(
    model: tp.Model,
    rows: tuple[Any, Any],
    answers: tp.Results,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = rows
    answer = Question.answer

    def failing(question: Question, model: tp.Model, asked: Any, y: Any, **more: Any) -> tp.Results:
        if (asked[:, 0] == X[70, 0]).any():
            raise MemoryError("no more memory\nfor this row")
        return answer(question, model, asked, y, **more)

    monkeypatch.setattr(Question, "answer", failing)
    found = tp.run(model, X, y, out=tmp_path / "run.jsonl", n_jobs=2).load()
    assert found.reason[70] == "row failed: MemoryError: no more memory"
    assert found.verdict[70] == "unknown"
    assert (found.lower[70], found.upper[70]) == (0.0, np.inf)
    others = np.arange(N_ROWS) != 70
    np.testing.assert_array_equal(found.lower[others], answers.lower[others])
    assert np.isnan(found.statistics["nodes"][70])


def test_errors_about_the_question_end_the_run(
    model: tp.Model, rows: tuple[Any, Any], tmp_path: Path
) -> None:
    X, y = rows
    with pytest.raises(tp.InvalidInput, match="'engine' must be one of"):
        tp.run(model, X, y, out=tmp_path / "run.jsonl", engine="magic")
    with pytest.raises(tp.UnsupportedQuery):
        tp.run(model, X, y, out=tmp_path / "run.jsonl", engine="single_tree")
    with pytest.raises(tp.InvalidInput, match="'node_limit' must be positive"):
        tp.run(model, X, y, out=tmp_path / "run.jsonl", node_limit=0)
    with pytest.raises(tp.InvalidInput, match="bounds must not be given per row"):
        tp.run(model, X, y, tp.Box(X - 1, X + 1))
    with pytest.raises(tp.InvalidInput, match="'perturbation' must be a radius such as 0"):
        tp.run(model, X, y, "near", out=tmp_path / "run.jsonl")
    with pytest.raises(tp.InvalidInput, match="'progress' must be True, False or a function"):
        tp.run(model, X, y, out=tmp_path / "run.jsonl", progress="yes")
    assert not (tmp_path / "run.jsonl").exists()


@pytest.mark.parametrize("kind", [tp.L1, tp.L2, tp.L0, tp.Cost])
def test_without_a_limit_runs_ask_for_the_least_one(
    kind: type[tp.L1], model: tp.Model, rows: tuple[Any, Any], tmp_path: Path
) -> None:
    X, y = rows[0][:8], rows[1][:8]
    found = tp.run(model, X, y, kind(), out=tmp_path / "run.jsonl").load()
    results = tp.radius(model, X, y, kind())
    assert found.header["question"]["kind"] == "radius"
    assert found.lower.tolist() == results.lower.tolist()
    assert found.upper.tolist() == results.upper.tolist()


def test_a_full_disk_keeps_what_is_finished(
    model: tp.Model,
    rows: tuple[Any, Any],
    answers: tp.Results,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "run.jsonl"
    calls = []

    def full(number: int) -> None:
        calls.append(number)
        if len(calls) == 4:  # header, two stages, and then no more
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(
        tp.InvalidInput, match=r"No space left on device. The 16 rows that are finished are in"
    ):
        tp.run(model, *rows, out=path, batch_rows=32, n_jobs=1)
    monkeypatch.undo()
    assert len(tp.load_results(path)) == 16
    assert path.read_bytes().endswith(b"\n")
    run = tp.run(model, *rows, out=path, resume=True)
    assert run.n_new == N_ROWS - 16
    assert_same(run.load(), answers)


def test_keys_tell_rows_labels_and_questions_apart(model: tp.Model, rows: tuple[Any, Any]) -> None:
    X, y = rows
    question = Question(kind="radius", perturbation=tp.LInf())
    header = run_header(question, model, some_rows(X[:1]))
    keys = row_keys(header, some_rows(X))
    assert len(set(keys.tolist())) == N_ROWS
    assert not np.any(keys == row_keys(header, some_rows(X, y)))
    other = Question(kind="radius", perturbation=tp.LInf(), node_limit=5)
    assert not np.any(keys == row_keys(run_header(other, model, some_rows(X[:1])), some_rows(X)))
    missing = X.copy()
    missing[0, 0] = np.nan
    other_nan = missing.copy()
    other_nan.view(np.uint64)[0, 0] ^= 1  # NaN with another payload
    assert np.isnan(other_nan[0, 0])
    known, same = (row_keys(header, some_rows(some))[0] for some in (missing, other_nan))
    assert known == same != keys[0]


def test_batches_grow_with_speed_and_shrink_with_cost() -> None:
    sizer = BatchSizer(target_s=0.5)
    assert sizer.n_rows == 1
    assert sizer.patience_s(1) == math.inf
    for _ in range(10):
        sizer.learn(sizer.n_rows, sizer.n_rows * 1e-4)
    assert sizer.n_rows == 5000  # half a second
    assert sizer.patience_s(5000) == pytest.approx(0.1)
    assert sizer.patience_s(4) == pytest.approx(1.25)  # no batch takes longer than five seconds
    sizer.learn(sizer.n_rows, 1e-9)
    assert sizer.n_rows == batches_module.LARGEST_BATCH
    sizer.learn(sizer.n_rows, 1e6)
    assert sizer.n_rows == 1
    fixed = BatchSizer(target_s=0.5, n_rows=100, is_fixed=True)
    fixed.learn(100, 1e-9)
    assert fixed.n_rows == 100
    assert fixed.patience_s(100) == math.inf


def test_progress_counts_all_rows(model: tp.Model, rows: tuple[Any, Any], tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    out = tmp_path / "run.jsonl"
    tp.run(model, rows[0][:96], rows[1][:96], out=out)
    tp.run(
        model,
        *rows,
        out=out,
        resume=True,
        batch_rows=32,
        n_jobs=1,
        progress=lambda *x: seen.append(x),
    )
    done = [count for count, _ in seen]
    assert done == sorted(set(done))
    assert done[0] > 96
    assert done[-1] == N_ROWS
    assert {total for _, total in seen} == {N_ROWS}


def test_runs_work_outside_the_main_thread(
    model: tp.Model, rows: tuple[Any, Any], answers: tp.Results
) -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(tp.run(model, *rows, n_jobs=2)))
    thread.start()
    thread.join()
    assert found[0].tally.n_exact == answers.exact.sum()


def test_parquet_runs_wait_in_a_run_file_beside(tmp_path: Path) -> None:
    assert log_path(tmp_path / "run.parquet").name == "run.parquet.part.jsonl"
    assert log_path(tmp_path / "run.jsonl") == tmp_path / "run.jsonl"


@pytest.mark.parametrize("engine", ["exact", "multilevel"])
def test_rows_are_answered_the_same_together_and_alone(
    model: tp.Model, rows: tuple[Any, Any], engine: str
) -> None:
    question = Question(kind="radius", perturbation=tp.LInf(), engine=engine)
    X, y = np.asarray(rows[0][:75], dtype=np.float64), rows[1][:75]
    guess = (0.2, 1.1)
    together = question.answer(model, X, y, first_guess=guess)
    alone = [
        question.answer(model, X[k : k + 1], y[k : k + 1], first_guess=guess) for k in range(75)
    ]
    expected = tp.Results.join(alone)
    for name in ("lower", "upper", "verdict", "exact", "attained", "witness", "witness_distance"):
        np.testing.assert_array_equal(getattr(together, name), getattr(expected, name))
    for name, counted in expected.statistics.items():
        np.testing.assert_array_equal(counted, together.statistics[name])


class SlowRows:
    """Has some rows take until they are let go, and engines run out of time before that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, slow: set[float]) -> None:
        self.slow, self.is_free, self.asked_alone = slow, threading.Event(), []
        self._answer = Question.answer
        monkeypatch.setattr(Question, "answer", lambda *a, **k: self.answer(*a, **k))  # noqa: PLW0108 - binds

    def answer(self, question: Question, model: Any, X: Any, y: Any = None, **how: Any) -> Any:
        results = self._answer(question, model, X, y, **how)
        is_slow = np.isin(X[:, 0], list(self.slow))
        if math.isfinite(question.time_limit_s):
            results.reason[is_slow] = "time limit"
            results.verdict[is_slow] = "unknown"
        elif is_slow.any():
            self.asked_alone += X[:, 0].tolist()
            assert self.is_free.wait(60)
        return results


@pytest.mark.parametrize("kind", ["radius", "verify"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_finished_rows_are_on_disk_while_slow_rows_go_on(
    model: tp.Model,
    rows: tuple[Any, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    n_jobs: int,
) -> None:
    ball = tp.LInf() if kind == "radius" else tp.LInf(0.1)
    quiet = tp.run(model, *rows, ball, out=tmp_path / "quiet.jsonl", n_jobs=1).load()
    slow = [60, 149] if n_jobs == 1 else [60]
    patched = SlowRows(monkeypatch, set(rows[0][slow, 0].tolist()))
    # Rows cost nothing, so that batches grow as fast as they may.
    monkeypatch.setattr(batches_module.time, "perf_counter", lambda: 0.0)
    out = tmp_path / "run.jsonl"
    options = {"out": out, "n_jobs": n_jobs}
    thread = threading.Thread(target=lambda: tp.run(model, *rows, ball, **options))
    thread.start()

    def answered() -> set[int]:
        return {r["row"] for r, _ in read_records(out) if r["record"] == "row"}

    def wait_for(condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not condition() and time.monotonic() < end:
            time.sleep(0.01)
        assert condition()

    # The rows of its batch are not kept waiting; with another thread, no rows are.
    wait_for(lambda: bool(patched.asked_alone) and out.exists())
    if n_jobs == 2:
        wait_for(lambda: answered() == set(range(N_ROWS)) - {60})
    else:
        wait_for(lambda: len(answered()) > 60)
        assert not answered() & set(slow)
    patched.is_free.set()
    thread.join()
    assert sorted(patched.asked_alone) == sorted(rows[0][slow, 0].tolist())
    assert_same(tp.load_results(out), quiet)
