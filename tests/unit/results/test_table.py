"""Results as a table: their own index, names, probabilities, and what changes."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from lightgbm import LGBMClassifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from xgboost import XGBClassifier

import treeproof as tp
from treeproof.results.columns import LaterColumn

X, Y = load_breast_cancer(return_X_y=True, as_frame=True)
X.index = [f"patient {n}" for n in range(len(X))]
XGB = XGBClassifier(n_estimators=10, max_depth=3).fit(X, Y)
ROWS = X[::60]


@pytest.fixture(scope="module")
def found():
    return tp.radius(XGB, ROWS, Y[::60])


def test_frames_have_the_index_and_the_kind_of_the_rows(found):
    frame = found.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame.index.tolist() == ROWS.index.tolist()
    assert found[2:5].to_pandas().index.tolist() == ROWS.index[2:5].tolist()
    assert found[3].index == ROWS.index[3]
    other = tp.radius(XGB, pl.from_pandas(ROWS), Y[::60])
    assert isinstance(other.to_frame(), pl.DataFrame)
    assert isinstance(found.to_polars(), pl.DataFrame)
    assert other.to_pandas()["radius"].tolist() == frame["radius"].tolist()


def test_what_is_asked_for_comes_and_nothing_else(found):
    plain = found.to_frame().columns.tolist()
    assert plain[:4] == ["row", "label", "predicted", "probability"]
    assert {"radius", "exact", "misclassified", "becomes", "changes", "cost", "seconds"} <= {*plain}
    assert not {"eq6_radius", "sweeps", "nodes", "verdict"} & {*plain}
    verdicts = tp.verify(XGB, ROWS, None, 0.1).to_frame().columns
    assert "verdict" in verdicts
    assert "radius" not in verdicts
    wide = found.to_frame(witness=True)
    assert [f"witness.{name}" for name in X] == wide.columns[-X.shape[1] :].tolist()
    np.testing.assert_array_equal(wide.iloc[:, -X.shape[1] :], found.as_shown)


def test_before_and_after_are_those_of_the_changes(found):
    frame = found.to_frame(changes=True)
    for position, answer in enumerate(found):
        before = {change.name: change.before for change in answer.changes}
        after = {change.name: change.shown for change in answer.changes}
        line = frame.iloc[position]
        said = [name for name in X if f"{name} before" in line and line.notna()[f"{name} before"]]
        assert said == list(before)
        assert [line[f"{name} before"] for name in said] == list(before.values())
        assert [line[f"{name} after"] for name in said] == list(after.values())


MODELS = {
    "xgboost": (XGB, X),
    "lightgbm": (LGBMClassifier(n_estimators=5, verbose=-1).fit(X, Y), X),
    "averaged": (
        LGBMClassifier(
            n_estimators=5, boosting_type="rf", bagging_freq=1, bagging_fraction=0.5, verbose=-1
        ).fit(X, Y),
        X,
    ),
    "forest": (RandomForestClassifier(5, max_depth=3, random_state=0).fit(X, Y), X),
    "boosted": (GradientBoostingClassifier(n_estimators=5).fit(X, Y), X),
    "iris": (
        LGBMClassifier(n_estimators=3, verbose=-1).fit(*load_iris(return_X_y=True)),
        load_iris().data,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_are_those_of_the_library(name):
    model, rows = MODELS[name]
    found = tp.radius(model, rows[::15])
    predicted = np.searchsorted(model.classes_, found.predicted.astype(int))
    at = np.arange(len(found))
    own = model.predict_proba(rows[::15])[at, predicted]
    np.testing.assert_allclose(np.asarray(found.probability), own, rtol=1e-5)
    has_witness = np.isfinite(found.upper)
    points = np.asarray(found.shown)[has_witness]
    points = pd.DataFrame(points, columns=X.columns) if rows is X else points
    after = model.predict_proba(points)[at[: len(points)], predicted[has_witness]]
    said = np.asarray(found.witness_probability)
    np.testing.assert_allclose(said[has_witness], after, rtol=1e-5)
    assert np.isnan(said[~has_witness]).all()


def test_a_calibrated_model_does_not_tell_its_probability():
    calibrated = CalibratedClassifierCV(FrozenEstimator(XGB)).fit(X, Y)
    found = tp.radius(calibrated, ROWS)
    assert np.isnan(np.asarray(found.probability)).all()
    assert "probability" not in found.to_frame().columns
    with pytest.raises(tp.UnsupportedQuery, match="'confidence' needs a model whose score"):
        tp.prove(calibrated, tp.HighConfidence(0, confidence=0.9), tp.Box(X.min(), X.max()))


def test_what_people_are_shown_is_worked_out_when_it_is_read(found):
    fresh = tp.radius(XGB, ROWS, Y[::60])
    known = fresh.shown._known
    assert not known.is_known.any()
    assert fresh[1].changes
    assert known.is_known.sum() == 1
    part = fresh[5:8]
    assert isinstance(part.shown, LaterColumn)
    assert known.is_known.sum() == 1
    np.testing.assert_array_equal(part.as_shown, found.as_shown[5:8])
    assert known.is_known.sum() == 4
    sent = pickle.loads(pickle.dumps(fresh))
    assert isinstance(sent.shown, np.ndarray)
    np.testing.assert_array_equal(sent.shown, found.as_shown)


def test_run_files_keep_what_is_shown_of_witnesses(found, tmp_path):
    for ending in (".jsonl", ".parquet"):
        path = tmp_path / f"run{ending}"
        run = tp.run(XGB, ROWS, Y[::60], out=path)
        again = run.load()
        for name in ("cost", "probability", "witness_probability"):
            np.testing.assert_array_equal(getattr(again, name), np.asarray(getattr(found, name)))
        frame = again.to_frame()
        assert frame["radius"].tolist() == found.to_frame()["radius"].tolist()
        assert frame.index.tolist() == list(range(len(ROWS)))


def test_the_cost_is_that_of_what_is_shown(found):
    moves = np.abs(found.as_shown - found.values).max(axis=1)
    there = ~np.isnan(moves)
    np.testing.assert_allclose(np.asarray(found.cost)[there], moves[there])
    assert np.all(np.asarray(found.cost)[there] >= found.upper[there])


def test_rows_can_be_of_any_frame_that_is_not_in_memory_order():
    shuffled = ROWS.sample(frac=1.0, random_state=0)
    found = tp.verify(XGB, shuffled, None, 0.5)
    assert found.to_frame().index.tolist() == shuffled.index.tolist()
    assert found[found.verdict == "falsified"].to_frame()["becomes"].notna().all()
