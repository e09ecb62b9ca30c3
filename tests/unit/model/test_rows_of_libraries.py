"""Data frames with categories and missing values, answered as the libraries themselves do."""

import contextlib
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from xgboost import XGBClassifier

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
    model = XGBClassifier(n_estimators=8, max_depth=4, enable_categorical=True)
    model.fit(TRAIN, labels(TRAIN))
    return model, lambda rows: model.predict(rows, output_margin=True)


def lightgbm_model() -> tuple[Any, Any]:
    model = LGBMClassifier(n_estimators=8, min_child_samples=5, verbosity=-1)
    model.fit(TRAIN, labels(TRAIN))
    return model, lambda rows: model.predict(rows, raw_score=True)


def sklearn_model() -> tuple[Any, Any]:
    model = HistGradientBoostingClassifier(max_iter=8, categorical_features="from_dtype")
    model.fit(TRAIN, labels(TRAIN))
    return model, model.decision_function


def catboost_model() -> tuple[Any, Any]:
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
    as_objects = rows.astype({"colour": object})
    assert model.margins(as_objects).tobytes() == expected.tobytes()
    assert model.margins(pl.from_pandas(as_objects)).tobytes() == expected.tobytes()


@pytest.mark.parametrize("as_table", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
@pytest.mark.parametrize(
    "source",
    [
        XGBClassifier(n_estimators=4),
        LGBMClassifier(n_estimators=4, verbosity=-1),
        CatBoostClassifier(iterations=4, verbose=False, allow_writing_files=False),
        RandomForestClassifier(4, random_state=0),
        HistGradientBoostingClassifier(max_iter=4),
    ],
    ids=lambda source: type(source).__name__,
)
def test_another_order_of_columns_never_gets_another_answer(source: Any, as_table: Any) -> None:
    rows = frame(300, 1)[["number", "count", "flag"]].astype(float)
    source.fit(rows, (rows["number"] > 0).astype(int))
    model = treeproof.load(source)
    turned = as_table(rows[rows.columns[::-1]])
    answers = set()
    for predict in (source.predict, model.predict):
        # A refusal is no wrong answer; every library has its own exceptions for it.
        with contextlib.suppress(Exception):
            answers.add(np.asarray(predict(turned)).astype(int).tobytes())
    assert len(answers) <= 1


@pytest.mark.parametrize("train", [xgboost_model, lightgbm_model])
def test_another_order_of_columns_is_refused_where_names_do_not_count(train: Any) -> None:
    source, _ = train()
    model = treeproof.load(source)
    rows = frame(10, 1)
    turned = rows[["count", "number", "colour", "flag"]]
    for table in (turned, pl.from_pandas(turned.astype({"colour": object}))):
        with pytest.raises(
            InvalidInput,
            match=r"in the order of .* Got 'count' in the place of 'number'\. Reorder the columns",
        ):
            model.margins(table)
    among_others = rows.assign(id=1.0)[["number", "id", "count", "colour", "flag"]]
    assert model.margins(among_others).tobytes() == model.margins(rows).tobytes()


@pytest.mark.parametrize("train", LIBRARIES)
def test_another_order_of_categories_changes_nothing(train: Any) -> None:
    source, margins = train()
    model = treeproof.load(source)
    rows = frame(300, 2)
    expected = margins(rows)
    rows["colour"] = rows["colour"].cat.reorder_categories(COLOURS[::-1])
    assert model.margins(rows).tobytes() == expected.tobytes()


@pytest.mark.parametrize("order", [[3, 7, 11, 20], [20, 11, 3, 7]])
def test_numeric_categories_are_what_they_are_to_the_library(order: list[int]) -> None:
    rng = np.random.default_rng(0)
    values = rng.choice(order, 300)
    rows = pd.DataFrame({"size": pd.Categorical(values, categories=order), "x": rng.random(300)})
    y = np.isin(values, [3, 11]).astype(int)
    plain = np.column_stack([values, rows["x"]])
    for source in (
        HistGradientBoostingClassifier(max_iter=4, categorical_features="from_dtype").fit(rows, y),
        HistGradientBoostingClassifier(max_iter=4, categorical_features=[0]).fit(plain, y),
        XGBClassifier(n_estimators=4, enable_categorical=True).fit(rows, y),
        LGBMClassifier(n_estimators=4, verbosity=-1).fit(rows, y),
    ):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X has feature names")
            expected = source.predict(rows)
        assert np.array_equal(treeproof.load(source).predict(rows), expected)


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
