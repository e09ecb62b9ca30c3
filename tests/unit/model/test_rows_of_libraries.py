"""Data frames with categories and missing values, answered as the libraries themselves do."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import treeproof
from treeproof.errors import InvalidInput
from treeproof.model.rows import TextTable

COLOURS = ["red", "green", "blue", "black", "white"]


def frame(n_rows: int, seed: int, colours: list[str] = COLOURS) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    number = rng.normal(size=n_rows)
    number[rng.random(n_rows) < 0.1] = np.nan
    colour = pd.Series(rng.choice(colours, n_rows)).where(rng.random(n_rows) > 0.1)
    return pd.DataFrame(
        {
            "number": number,
            "count": rng.integers(0, 5, n_rows),
            "colour": pd.Categorical(colour, categories=COLOURS if colours == COLOURS else colours),
            "flag": rng.random(n_rows) < 0.5,
        }
    )


def labels(rows: pd.DataFrame) -> Any:
    strange = rows["colour"].isin(["red", "blue"]).to_numpy() ^ (rows["number"] > 0).to_numpy()
    return (strange ^ rows["flag"].to_numpy()).astype(int)


TRAIN = frame(600, 0)


def xgboost_model() -> tuple[Any, Any]:
    from xgboost import XGBClassifier

    model = XGBClassifier(n_estimators=8, max_depth=4, enable_categorical=True)
    model.fit(TRAIN, labels(TRAIN))
    return model, lambda rows: model.predict(rows, output_margin=True)


def lightgbm_model() -> tuple[Any, Any]:
    from lightgbm import LGBMClassifier

    model = LGBMClassifier(n_estimators=8, min_child_samples=5, verbosity=-1)
    model.fit(TRAIN, labels(TRAIN))
    return model, lambda rows: model.predict(rows, raw_score=True)


def sklearn_model() -> tuple[Any, Any]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(max_iter=8, categorical_features="from_dtype")
    model.fit(TRAIN, labels(TRAIN))
    return model, model.decision_function


def catboost_model() -> tuple[Any, Any]:
    from catboost import CatBoostClassifier

    model = CatBoostClassifier(
        iterations=8,
        depth=4,
        cat_features=["colour"],
        one_hot_max_size=10,
        verbose=False,
        allow_writing_files=False,
    )
    model.fit(without_missing_colours(TRAIN), labels(TRAIN))
    return model, lambda rows: model.predict(rows, prediction_type="RawFormulaVal")


def without_missing_colours(rows: pd.DataFrame) -> pd.DataFrame:
    """CatBoost demands a text in every cell of a categorical column."""
    return rows.assign(colour=rows["colour"].astype(object).fillna("none"))


LIBRARIES = [xgboost_model, lightgbm_model, sklearn_model]


@pytest.mark.parametrize("train", LIBRARIES)
def test_frames_give_the_margins_of_the_library(train: Any) -> None:
    source, margins = train()
    model = treeproof.load(source)
    assert model.inspect()["categorical_features"]
    rows = frame(500, 1)
    expected = margins(rows)
    assert model.margins(rows).tobytes() == expected.tobytes()
    assert model.margins(rows[rows.columns[::-1]]).tobytes() == expected.tobytes()
    as_objects = rows.astype({"colour": object})
    assert model.margins(as_objects).tobytes() == expected.tobytes()
    assert model.margins(pl.from_pandas(as_objects)).tobytes() == expected.tobytes()


@pytest.mark.parametrize("train", LIBRARIES)
def test_another_order_of_categories_changes_nothing(train: Any) -> None:
    source, margins = train()
    model = treeproof.load(source)
    rows = frame(300, 2)
    expected = margins(rows)
    rows["colour"] = rows["colour"].cat.reorder_categories(COLOURS[::-1])
    assert model.margins(rows).tobytes() == expected.tobytes()


@pytest.mark.parametrize("train", [lightgbm_model, sklearn_model])
def test_unknown_categories_go_where_the_library_sends_them(train: Any) -> None:
    source, margins = train()
    rows = frame(300, 3, ["red", "violet", "blue"])
    assert treeproof.load(source).margins(rows).tobytes() == margins(rows).tobytes()


@pytest.mark.parametrize("unknown", ["zzz", "violet"])
def test_unknown_categories_of_xgboost_models_are_refused(unknown: str) -> None:
    source, margins = xgboost_model()
    rows = frame(300, 3, ["red", unknown, "blue"])
    if unknown == "zzz":
        # XGBoost refuses what sorts after every known category; it takes others for a neighbour.
        with pytest.raises(Exception, match="category not in the training set"):
            margins(rows)
    with pytest.raises(InvalidInput, match="'colour' must hold categories of the training data"):
        treeproof.load(source).margins(rows)


def test_categories_of_catboost_models_are_compared_by_their_text() -> None:
    source, margins = catboost_model()
    model = treeproof.load(source)
    assert model.inspect()["categorical_features"]
    for made in (frame(300, 1), frame(300, 3, ["red", "violet", "blue"])):
        rows = without_missing_colours(made)
        assert model.margins(rows).tobytes() == margins(rows).tobytes()
        assert model.margins(pl.from_pandas(rows)).tobytes() == margins(rows).tobytes()
        cells = {name: [str(cell) for cell in rows[name]] for name in rows}
        assert model.margins(TextTable(cells)).tobytes() == margins(rows).tobytes()
    with pytest.raises(InvalidInput, match="'colour' must hold strings or whole numbers"):
        model.margins(frame(300, 1))
