"""Rows in chunks: the same rows, labels and units whatever the file and the chunk size."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp
from treeproof.data import readers
from treeproof.data.sources import ArraySource, FileSource, Rows
from treeproof.runs.batches import Batch, BatchMaker
from treeproof.runs.run_log import NONE_ANSWERED, Answered, run_header
from treeproof.search.question import Question

N_FEATURES = 3
NAMES = ["a", "b", "c"]


@pytest.fixture(scope="module")
def model() -> tp.Model:
    X = np.arange(12.0).reshape(4, N_FEATURES)
    frame = pd.DataFrame(X, columns=NAMES)
    return tp.load(DecisionTreeClassifier(random_state=0).fit(frame, ["u", "v", "u", "v"]))


def save_csv(path: Path, X: Any, y: Any) -> FileSource:
    frame = pd.DataFrame(X, columns=NAMES)
    frame["y"] = y
    frame[["c", "y", "a", "b"]].to_csv(path, index=False)
    return path


def save_parquet(path: Path, X: Any, y: Any) -> None:
    frame = pd.DataFrame(X, columns=NAMES)
    frame["y"] = y
    frame.to_parquet(path, row_group_size=7)


def save_npz(path: Path, X: Any, y: Any) -> None:
    np.savez(path, X=X, y=y)


KINDS: dict[str, tuple[Callable[..., Any], str | None]] = {
    "rows.csv": (save_csv, "y"),
    "rows.parquet": (save_parquet, "y"),
    "rows.npz": (save_npz, None),
}

TABLES = st.integers(1, 40).flatmap(
    lambda n: st.lists(
        st.lists(
            st.floats(-1e6, 1e6, width=32, allow_subnormal=False),
            min_size=N_FEATURES,
            max_size=N_FEATURES,
        ),
        min_size=n,
        max_size=n,
    )
)


def joined(source: Any) -> Rows:
    return Rows.join(list(source.parts()))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(table=TABLES, kind=st.sampled_from(sorted(KINDS)), cells=st.integers(1, 60), data=st.data())
def test_any_chunks_give_the_rows_of_the_file(
    model: tp.Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table: list[list[float]],
    kind: str,
    cells: int,
    data: Any,
) -> None:
    X = np.array(table)
    y = np.array(["uv"[i % 2] for i in range(len(X))])
    save, label = KINDS[kind]
    save(tmp_path / kind, X, y)
    monkeypatch.setattr(readers, "CELLS_PER_CHUNK", cells)
    first = data.draw(st.integers(0, len(X) - 1))
    last = data.draw(st.integers(first + 1, len(X) + 3))
    n_sampled = data.draw(st.one_of(st.none(), st.integers(1, len(X) + 2)))
    source = FileSource(
        model.ensemble,
        tmp_path / kind,
        label=label,
        rows=f"{first}:{last}",
        sample=n_sampled,
        seed=data.draw(st.integers(0, 3)),
    )
    found = joined(source)
    n_in_range = min(last, len(X)) - first
    assert len(found) == min(n_sampled or n_in_range, n_in_range)
    assert len(set(found.number.tolist())) == len(found)
    assert np.all(np.diff(found.number) > 0)
    assert np.all((found.number >= first) & (found.number < last))
    np.testing.assert_array_equal(found.values, X[found.number])
    assert found.labels is not None
    assert found.labels.tolist() == y[found.number].tolist()
    np.testing.assert_array_equal(joined(source).number, found.number)  # the same again
    if source.n_rows is not None:
        assert source.n_rows == len(found)
    np.testing.assert_allclose(source.spread("range"), np.ptp(X, axis=0), rtol=1e-12)
    np.testing.assert_allclose(source.spread("std"), np.std(X, axis=0), rtol=1e-9, atol=1e-9)


def test_missing_entries_do_not_count_in_units(model: tp.Model, tmp_path: Path) -> None:
    X = np.array([[1.0, np.nan, 5.0], [3.0, np.nan, 5.0], [np.nan, np.nan, 5.0]])
    np.savez(tmp_path / "rows.npz", X=X)
    source = FileSource(model.ensemble, tmp_path / "rows.npz", rows="0:1")
    assert source.spread("range").tolist() == [2.0, 0.0, 0.0]
    assert source.spread("std").tolist() == [1.0, 0.0, 0.0]


@settings(max_examples=60, deadline=None)
@given(
    n_rows=st.integers(1, 120),
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=5),
    done=st.sets(st.integers(0, 119)),
    kind=st.sampled_from(["radius", "verify"]),
)
def test_batches_hold_every_missing_row_once_stage_by_stage(
    model: tp.Model, n_rows: int, sizes: list[int], done: set[int], kind: Any
) -> None:
    X = np.arange(3.0 * n_rows).reshape(n_rows, 3)
    ball = tp.LInf() if kind == "radius" else tp.LInf(0.1)
    question = Question(kind=kind, perturbation=ball)
    source = ArraySource(model.ensemble, X)
    header = run_header(question, model, next(source.parts()))

    def batches(found: Answered, sizes: list[int]) -> Iterator[Batch]:
        maker, size = BatchMaker(source, question, header, found, ""), itertools.cycle(sizes)
        while (batch := maker.next_batch(next(size))) is not None:
            yield batch

    everything = np.concatenate([batch.key for batch in batches(NONE_ANSWERED, [200])])
    numbers = np.array(sorted(row for row in done if row < n_rows), dtype=np.int64)
    found = Answered(numbers, everything[numbers])
    seen = []
    for batch in batches(found, sizes):
        numbers = batch.rows.number
        seen += numbers.tolist()
        np.testing.assert_array_equal(batch.rows.values, X[numbers])
        for stage in question.learning_stages:
            assert len(numbers) == 0 or (numbers[0] < stage) == (numbers[-1] < stage)
    assert seen == [row for row in range(n_rows) if row not in done]


def test_changed_rows_are_found(model: tp.Model) -> None:
    found = Answered(np.array([2, 5]), np.array([7, 8], dtype=np.uint64))
    keys = np.array([1, 7], dtype=np.uint64)
    assert found.missing(np.array([1, 2]), keys, "run").tolist() == [True, False]
    with pytest.raises(tp.InvalidInput, match="Row 5 of the data must be the one"):
        found.missing(np.array([4, 5]), keys, "run")


def test_an_empty_choice_is_refused(model: tp.Model, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.zeros((4, 3)))
    source = FileSource(model.ensemble, tmp_path / "rows.npy", rows="4:")
    with pytest.raises(tp.InvalidInput, match="There must be at least one row to ask about"):
        joined(source)


def test_text_files_are_estimated_by_their_lines(model: tp.Model, tmp_path: Path) -> None:
    save_csv(tmp_path / "rows.csv", np.zeros((50, 3)), ["u"] * 50)
    whole = FileSource(model.ensemble, tmp_path / "rows.csv", label="y")
    assert whole.n_rows is None
    assert whole.estimated_rows() in (50, 51)
    part = FileSource(model.ensemble, tmp_path / "rows.csv", label="y", rows="10:20")
    assert part.estimated_rows() == 10
