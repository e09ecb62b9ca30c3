"""Scores that mean different things are not compared, nor claimed of sums that come before them."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from lightgbm import LGBMRegressor
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from xgboost import XGBRegressor

import treeproof as tp
from treeproof.errors import UnsupportedQuery

ROWS = np.random.default_rng(0).integers(0, 4, (60, 2)).astype(np.float32)
Y = np.random.default_rng(1).poisson(2.0, 60) + 1.0
INPUTS = [("x", FloatTensorType([None, 2]))]


def xgboost(objective: str) -> tuple[Any, Any]:
    source = XGBRegressor(n_estimators=3, max_depth=2, objective=objective).fit(ROWS, Y)
    return source, convert_xgboost(source, initial_types=INPUTS)


def lightgbm(objective: str) -> tuple[Any, Any]:
    source = LGBMRegressor(n_estimators=3, objective=objective, verbose=-1).fit(ROWS, Y)
    return source, convert_lightgbm(source, initial_types=INPUTS)


@pytest.mark.parametrize("make", [xgboost, lightgbm])
def test_an_export_of_sums_is_compared_and_predicts_what_onnxruntime_gives(make: Any) -> None:
    source, export = make("reg:squarederror" if make is xgboost else "regression")
    model = tp.load(export)
    session = onnxruntime.InferenceSession(export.SerializeToString())
    given = session.run(None, {session.get_inputs()[0].name: ROWS})[0].ravel()
    assert np.array_equal(model.predict(ROWS), given)
    # LightGBM compares doubles, its export floats: whole numbers are the same to both.
    whole = tp.Box(0.0, 3.0, tp.Domain(integer=[0, 1]))
    assert tp.diff(source, export, whole).verdict == "verified"


@pytest.mark.parametrize("make", [xgboost, lightgbm])
def test_steps_after_the_trees_are_part_of_what_a_score_means(make: Any, tmp_path: Any) -> None:
    source, export = make("count:poisson" if make is xgboost else "poisson")
    tp.load(export).save(tmp_path / "model.treeproof")
    for model in (tp.load(export), tp.load(tmp_path / "model.treeproof")):
        for ask in (
            lambda m: m.predict(ROWS),
            lambda m: tp.verify(m, ROWS, None, tp.LInf(0.0), goal=tp.ScoreWithin(1.9, 2.2)),
            lambda m: tp.radius(m, ROWS, None, goal=tp.ScoreChange(0.1)),
            lambda m: tp.score_range(m, tp.Box(0.0, 3.0)),
            lambda m: tp.largest_change(m, 0, tp.Box(0.0, 3.0)),
            lambda m: tp.prove(m, tp.Stable(0, 1.0), tp.Box(0.0, 3.0)),
            lambda m: tp.diff(source, m, tp.Box(0.0, 3.0)),
        ):
            with pytest.raises(UnsupportedQuery, match="sums after Exp"):
                ask(model)
        assert len(model.margins(ROWS)) == 60


def test_logarithms_are_not_compared_with_values() -> None:
    with pytest.raises(UnsupportedQuery, match="the logarithm of the predicted value"):
        tp.diff(xgboost("reg:squarederror")[0], lightgbm("poisson")[0], tp.Box(0.0, 3.0))


def test_the_same_scores_of_other_trees_are_no_contradiction() -> None:
    one = tp.load(
        XGBRegressor(n_estimators=1, max_depth=1, learning_rate=1.0).fit(ROWS, ROWS[:, 0])
    )
    two = tp.load(LGBMRegressor(n_estimators=1, verbose=-1, min_child_samples=1).fit(ROWS, Y))
    said = tp.diff(one, two, tp.Box(0.0, 3.0)).summary()
    assert "0 of 1 and 1 trees have the same splits and leaves" in said
