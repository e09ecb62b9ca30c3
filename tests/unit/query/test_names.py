"""Units and bounds by name: as rows are matched to the model's features, whatever their order."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_iris
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp
from treeproof.query.description import describe
from treeproof.query.perturbations import Reach, in_order, resolve

NAMES = ("age", "mean_income", "height")
ROWS = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
SCALES = [1.0, 2.0, 4.0]


def reach(perturbation: tp.LInf | tp.Box, names: tuple[str, ...] = NAMES) -> Reach:
    return resolve(perturbation, ROWS, names)


@pytest.fixture(scope="module")
def iris() -> tuple[Any, pd.DataFrame]:
    X, y = load_iris(return_X_y=True, as_frame=True)
    return tp.load(DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, y)), X


@pytest.mark.parametrize("name", ["frozen", "moving"])
def test_features_are_names_or_numbers(name):
    with pytest.raises(tp.InvalidInput, match=f"'{name}' of LInf must be features by name"):
        tp.LInf(0.1, **{name: 1.5})


def test_units_follow_the_names_of_the_rows(iris):
    model, X = iris
    expected = tp.radius(model, X, None, tp.LInf(scale=X.std().to_numpy()))
    other_order = X.std().sort_index(ascending=False)
    assert list(other_order.index) != list(X.columns)
    for scale in (X.std(), other_order, other_order.to_dict()):
        found = tp.radius(model, X, None, tp.LInf(scale=scale))
        np.testing.assert_array_equal(found.lower, expected.lower)
        assert found.header["question"] == expected.header["question"]


def test_run_files_hold_the_numbers_of_every_feature(iris):
    model, X = iris
    ball = tp.LInf(0.1, scale={"petal width (cm)": 3.0}, frozen="sepal length (cm)")
    asked = {
        "verify": tp.verify(model, X[:2], None, ball).header,
        "run": tp.run(model, X[:2], None, ball).header,
    }
    for header in asked.values():
        stated = header["question"]["perturbation"]
        assert stated["scale"] == [1.0, 1.0, 1.0, 3.0]
        assert stated["frozen"] == ["sepal length (cm)"]


@pytest.mark.parametrize("field", ["scale", "below", "above", "low", "high"])
@pytest.mark.parametrize(
    "given",
    [
        pd.Series([4.0, 1.0, 2.0], index=["height", "age", "mean_income"]),
        pd.Series([4.0, 1.0, 2.0], index=["height", "age", "mean income"]),  # as LightGBM renames
        pd.Series(SCALES),
        pd.Series(SCALES, index=pd.Index([0, 1, 2])),
        pd.DataFrame({"height": [4.0], "age": [1.0], "mean_income": [2.0]}),
        pl.DataFrame({"height": [4.0], "age": [1.0], "mean_income": [2.0]}),
        pl.Series("anything", SCALES),
        {"height": 4.0, "age": 1.0, "mean_income": 2.0},
        {2: 4.0, 0: 1.0, "mean income": 2},
        np.array(SCALES),
        SCALES,
        tuple(SCALES),
    ],
    ids=lambda given: type(given).__module__.partition(".")[0] + type(given).__name__,
)
def test_every_way_to_say_one_number_per_feature(field: str, given: Any) -> None:
    ball = tp.LInf(1.0, **{field: given})
    expected = tp.LInf(1.0, **{field: np.array(SCALES)})
    assert_same(reach(ball), reach(expected))
    assert describe(in_order(ball, NAMES, 3)) == describe(expected)


@pytest.mark.parametrize(
    ("field", "default"),
    [("scale", 1.0), ("below", 1.0), ("above", 1.0), ("low", -np.inf), ("high", np.inf)],
)
def test_what_a_dict_leaves_out_is_as_if_nothing_was_said(field: str, default: float) -> None:
    ball = tp.LInf(1.0, **{field: {"age": 0.5}})
    assert_same(reach(ball), reach(tp.LInf(1.0, **{field: [0.5, default, default]})))


def test_sides_of_boxes_follow_their_names() -> None:
    low, high = ROWS - 1.0, ROWS + np.array([1.0, 2.0, 3.0])
    expected = reach(tp.Box(low, high))
    for library in (pd, pl):
        sides = []
        for side in (low, high):
            columns = dict(zip(NAMES, side.T, strict=True))
            sides.append(library.DataFrame({name: columns[name] for name in reversed(NAMES)}))
        assert_same(reach(tp.Box(*sides)), expected)
    one_row = tp.Box(pd.Series([0.0, 3.0, 1.0], index=["age", "height", "mean_income"]), 9.0)
    assert_same(reach(one_row), reach(tp.Box([0.0, 1.0, 3.0], 9.0)))
    assert_same(reach(tp.Box({"age": 0.0}, {})), reach(tp.Box([0.0, -np.inf, -np.inf], np.inf)))


def assert_same(one: Reach, other: Reach) -> None:
    for field in dataclasses.fields(Reach):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def test_one_frozen_feature_needs_no_list() -> None:
    assert reach(tp.LInf(1.0, frozen="age")).up.tolist() == [0.0, 1.0, 1.0]
    assert reach(tp.LInf(1.0, frozen=2)).up.tolist() == [1.0, 1.0, 0.0]
    assert reach(tp.LInf(1.0, frozen="mean income")).up.tolist() == [1.0, 0.0, 1.0]


def test_names_and_numbers_of_frozen_features_stay_apart() -> None:
    ball = in_order(tp.LInf(1.0, frozen=("mean income", 2)), NAMES, 3)
    assert describe(ball)["frozen"] == ["mean_income", 2]


MANY = tuple(f"feature {number}" for number in range(20))


@pytest.mark.parametrize(
    ("ball", "names", "sentence"),
    [
        (
            tp.LInf(scale={"agee": 1.0}),
            NAMES,
            "The model must have a feature named 'agee'. Did you mean 'age'?"
            " Its names are: age, mean_income, height.",
        ),
        (
            tp.LInf(frozen="fature 3"),
            MANY,
            "Did you mean 'feature 3'? Its names are: feature 0, feature 1, feature 2, feature 3,"
            " feature 4, feature 5, feature 6, feature 7, … and 12 more.",
        ),
        (
            tp.LInf(scale=pd.Series(SCALES, index=["age", "mean_income", "heigth"])),
            NAMES,
            "'scale' of LInf must name the model's features. Got 'heigth'."
            " Did you mean 'height'? Its names are: age, mean_income, height."
            " Give a plain array for the model's own order.",
        ),
        (
            tp.LInf(low=pd.Series([*SCALES, 0.0], index=[*NAMES, "target"])),
            NAMES,
            "'low' of LInf must name the model's features. Got 'target'.",
        ),
        (
            tp.LInf(high=pd.Series(SCALES[:2], index=NAMES[:2])),
            NAMES,
            "'high' of LInf must name every feature of the model. Missing: height."
            " A dict may leave features out.",
        ),
        (
            tp.LInf(above=pd.Series(SCALES, index=["age", "age", "height"])),
            NAMES,
            "'above' of LInf must name each feature once. Got 'age' twice.",
        ),
        (
            tp.LInf(below={"mean_income": 0.0, "mean income": 1.0}),
            NAMES,
            "'below' of LInf must name each feature once. Got 'mean income' twice.",
        ),
        (
            tp.LInf(scale=pd.Series(SCALES, index=[1, 2, 3])),
            NAMES,
            "'scale' of LInf must name the model's features. Got 1.",
        ),
        (
            tp.LInf(scale=pd.Series(SCALES[:2])),
            NAMES,
            "'scale' of LInf must name the model's features. Got 0.",
        ),
        (
            tp.LInf(scale=pd.Series(SCALES, index=NAMES)),
            (),
            "'scale' of LInf must name the model's features. Got 'age'. Its names are: none.",
        ),
        (
            tp.Box(pd.DataFrame(ROWS, columns=["age", "age", "height"]), 9.0),
            NAMES,
            "'low' of Box must be named once",
        ),
        (tp.LInf(scale="std"), NAMES, "'scale' of LInf must be numbers. Got 'std'."),
        (tp.LInf(scale={"age": "far"}), NAMES, "'scale' of LInf must be numbers. Got ['far']."),
        (tp.LInf(scale={3: 1.0}), NAMES, "A feature number must be from 0 to 2. Got 3."),
        (tp.LInf(scale=pd.DataFrame(ROWS, columns=NAMES)), NAMES, "one per feature (3)."),
    ],
)
def test_wrong_names_are_one_sentence(ball: Any, names: tuple[str, ...], sentence: str) -> None:
    rows = np.zeros((2, len(names) or 3))
    with pytest.raises(tp.InvalidInput) as refused:
        resolve(ball, rows, names)
    assert sentence in str(refused.value)
