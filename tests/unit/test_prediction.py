import time
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.random_ensembles import random_ensemble, random_rows
from treeproof.errors import InvalidInput, UnsupportedQuery
from treeproof.model import evaluate
from treeproof.model.ensemble import Decision, Ensemble
from treeproof.prediction import Model, accumulators, in_slices

pytestmark = pytest.mark.usefixtures("compiled")


def ensemble_with(**wanted: Any) -> Ensemble:
    """The first random ensemble that has the wanted attributes."""
    for seed in range(10_000):
        ensemble = random_ensemble(np.random.default_rng(seed))
        if all(getattr(ensemble, name) == value for name, value in wanted.items()):
            return ensemble
    raise AssertionError(f"no random ensemble has {wanted}")


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_compiled_prediction_equals_the_plain_meaning(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ensemble = random_ensemble(rng)
    rows = random_rows(rng, ensemble, 100)
    model = Model(ensemble)
    expected = evaluate.margins(ensemble, rows)
    margins = model.margins(rows)
    assert margins.dtype == expected.dtype
    assert margins.tobytes() == expected.tobytes()
    leaves = evaluate.leaf_rows(ensemble, rows)
    sums = accumulators(ensemble, evaluate.cast_rows(ensemble, rows))
    assert sums.tobytes() == evaluate.accumulate(ensemble, leaves).tobytes()
    np.testing.assert_array_equal(model.leaf_indices(rows), ensemble.trees.leaf_source[leaves])
    if ensemble.decision.kind == "score":
        assert model.predict(rows).tobytes() == expected.tobytes()
        with pytest.raises(UnsupportedQuery, match="has no labels"):
            model.label_indices(rows)
    else:
        numbers = evaluate.label_indices(ensemble, expected)
        np.testing.assert_array_equal(model.label_indices(rows), numbers)
        labels = [ensemble.classes[number] for number in numbers]
        assert [repr(label) for label in model.predict(rows).tolist()] == list(map(repr, labels))


def test_threads_change_nothing() -> None:
    rng = np.random.default_rng(4)
    ensemble = random_ensemble(rng)
    rows = random_rows(rng, ensemble, 5000)
    model = Model(ensemble)
    for n_jobs in (2, 3, -1):
        assert model.margins(rows, n_jobs=n_jobs).tobytes() == model.margins(rows).tobytes()
        np.testing.assert_array_equal(
            model.leaf_indices(rows, n_jobs=n_jobs), model.leaf_indices(rows)
        )


def test_one_output_gives_one_axis() -> None:
    one, three = ensemble_with(n_outputs=1), ensemble_with(n_outputs=3)
    assert Model(one).margins(np.zeros((4, one.n_features))).shape == (4,)
    assert Model(three).margins(np.zeros((4, three.n_features))).shape == (4, 3)
    assert Model(three).margins(np.zeros((0, three.n_features))).shape == (0, 3)


def test_frames_are_matched_by_name() -> None:
    ensemble = next(
        e
        for e in map(random_ensemble, map(np.random.default_rng, range(1000)))
        if e.feature_names and e.n_features > 3 and not e.categories
    )
    rows = random_rows(np.random.default_rng(0), ensemble, 50)
    frame = pd.DataFrame(rows, columns=list(ensemble.feature_names)).iloc[:, ::-1]
    model = Model(ensemble)
    assert model.margins(frame).tobytes() == model.margins(rows).tobytes()


@pytest.mark.parametrize("n_jobs", [0, -2])
def test_wrong_numbers_of_threads(n_jobs: int) -> None:
    model = Model(ensemble_with(n_outputs=1))
    with pytest.raises(InvalidInput, match="'n_jobs' must be"):
        model.margins(np.zeros((1, model.n_features)), n_jobs=n_jobs)


def test_how_a_model_shows_itself() -> None:
    ensemble = ensemble_with(classes=("ham", "spam", "größer [x]"))
    model = Model(ensemble.with_provenance(source="<script>alert(1)</script>"))
    assert repr(model).startswith("<treeproof.Model: random 1.0, ")
    assert "3 classes" in repr(model)
    page = model._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "größer [x]" in page
    assert model.inspect()["classes"] == ["ham", "spam", "größer [x]"]


def test_score_models_say_so() -> None:
    model = Model(ensemble_with(decision=Decision(kind="score")))
    assert "scores" in repr(model)
    assert model.classes == ()


def test_save_writes_a_file_that_loads(tmp_path: Any) -> None:
    from treeproof.model.file_format import load_saved

    model = Model(ensemble_with(n_outputs=1))
    model.save(tmp_path / "m.treeproof")
    assert load_saved(tmp_path / "m.treeproof").fingerprint == model.fingerprint


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("n_rows", "step", "smallest"), [(0, 4, 1), (1, 4, 1), (103, 16, 3)])
def test_slices_cover_every_row_once(threads: int, n_rows: int, step: int, smallest: int) -> None:
    seen: list[int] = []
    sizes: list[int] = []

    def run(part: slice) -> None:
        seen.extend(range(part.start, part.stop))
        sizes.append(part.stop - part.start)

    in_slices(range(0, n_rows, step), threads, run, smallest=smallest)
    assert sorted(seen) == list(range(n_rows))
    assert max(sizes, default=0) <= step
    assert sum(size < smallest for size in sizes) <= 1  # the last one


def test_an_error_in_a_thread_ends_the_others_and_is_raised() -> None:
    began: list[int] = []

    def run(part: slice) -> None:
        began.append(part.start)
        if part.start >= 10:
            raise IndexError("row 10")
        time.sleep(0.001)

    with pytest.raises(IndexError, match="row 10"):
        in_slices(range(0, 1000, 1), 2, run)
    assert len(began) < 20
