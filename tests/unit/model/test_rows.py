from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from treeproof.errors import InvalidInput
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import CATEGORICAL, Aggregation, Decision, Ensemble, Provenance
from treeproof.model.rows import TextTable, label_numbers, numeric_rows

NAMES = ("age", "income", "colour")


def ensemble(*, categorical: bool = False, library: str = "test", **changes: Any) -> Ensemble:
    """Three features; the third one is tested by value or by category."""
    builder = TreeBuilder()
    number = builder.add_category_set([0, 2])
    builder.add_tree(
        feature=[2, 0, 0],
        threshold=[0.5, 0, 0],
        left=[1, -1, -1],
        right=[2, -1, -1],
        flags=[CATEGORICAL if categorical else 0, 0, 0],
        value=[0, -1.0, 1.0],
        output=0,
        category_set=[number if categorical else -1, -1, -1],
    )
    arguments: dict[str, Any] = {
        "trees": builder.finish(),
        "n_features": 3,
        "n_outputs": 1,
        "input_precision": "float32",
        "aggregation": Aggregation(precision="float64", start=(0.0,)),
        "decision": Decision(kind="threshold"),
        "classes": (0, 1),
        "provenance": Provenance(library=library),
    }
    return Ensemble(**{**arguments, **changes})


ROWS = np.array([[1.0, 2.5, 0.0], [4.0, np.nan, 1.0]])


@pytest.mark.parametrize(
    "X",
    [
        ROWS,
        ROWS.tolist(),
        np.asfortranarray(ROWS),
        ROWS.astype(np.float32),
        ROWS.astype(object),
        np.ma.masked_invalid(ROWS),
        [[1, 2.5, False], [4, None, True]],
        pd.DataFrame(ROWS),
        pd.DataFrame(ROWS, columns=list(NAMES)),
        pd.DataFrame(ROWS[:, ::-1], columns=list(NAMES[::-1])),
        pd.DataFrame({"id": ["a", "b"], **dict(zip(NAMES, ROWS.T, strict=True))}),
        pd.DataFrame(ROWS, columns=["f0", "f1", "f2"]),
        pd.DataFrame(ROWS, columns=["Column_0", "Column_1", "Column_2"]),
        pd.DataFrame(
            {
                "age": pd.array([1, 4], dtype="Int64"),
                "income": pd.array([2.5, None], dtype="Float64"),
                "colour": pd.array([False, True], dtype="boolean"),
            }
        ),
        pd.DataFrame(
            {
                "age": pd.array([1, 4], dtype="int8[pyarrow]"),
                "income": np.array([2.5, pd.NA], dtype=object),
                "colour": [False, True],
            }
        ),
        pl.DataFrame({"colour": [False, True], "age": [1, 4], "income": [2.5, None]}),
        pa.table({"colour": [False, True], "age": [1, 4], "income": [2.5, None]}),
        TextTable({"income": ["2.5", ""], "age": ["1", "4e0"], "colour": ["False", "TRUE"]}),
    ],
)
def test_every_kind_of_table_gives_the_same_matrix(X: Any) -> None:
    matrix = numeric_rows(ensemble(feature_names=NAMES), X)
    np.testing.assert_array_equal(matrix, ROWS)
    assert matrix.dtype == np.float64
    assert matrix.flags.c_contiguous


def test_names_match_before_positions_even_when_generic() -> None:
    frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["f2", "f0", "f1"])
    matrix = numeric_rows(ensemble(feature_names=("f0", "f1", "f2")), frame)
    assert matrix.tolist() == [[2.0, 3.0, 1.0]]


def test_generic_names_of_the_model_match_by_position() -> None:
    frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=list(NAMES))
    assert numeric_rows(ensemble(feature_names=("f0", "f1", "f2")), frame).tolist() == [[1, 2, 3]]
    assert numeric_rows(ensemble(), frame).tolist() == [[1, 2, 3]]


def test_generic_names_of_a_frame_count_up_or_are_refused() -> None:
    frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["x1", "x2", "x10"])
    for names in ((), ("f0", "f1", "f2"), NAMES):
        model = ensemble(feature_names=names)
        assert numeric_rows(model, frame).tolist() == [[1, 2, 3]]
        with pytest.raises(InvalidInput, match=r"order of their numbers. Got 'x2' behind 'x10'"):
            numeric_rows(model, frame[["x1", "x10", "x2"]])


def test_underscores_stand_for_blanks() -> None:
    frame = pd.DataFrame([[3.0, 1.0, 2.0]], columns=["c", "a a", "b b"])
    assert numeric_rows(ensemble(feature_names=("a_a", "b_b", "c")), frame).tolist() == [[1, 2, 3]]


def test_unsigned_and_signed_limits_are_exact() -> None:
    for value in (2**53, -(2**53)):
        assert numeric_rows(ensemble(), np.array([[value, 0, 0]]))[0, 0] == value
    for rows in (
        np.array([[2**53 + 1, 0, 0]]),
        np.array([[-(2**63), 0, 0]]),
        np.array([[2**64 - 1, 0, 0]], dtype=np.uint64),
        pd.DataFrame(np.array([[2**53 + 1, 0, 0]])),
        [[2**53 + 1, None, 0]],
    ):
        with pytest.raises(InvalidInput, match="round them"):
            numeric_rows(ensemble(), rows)


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        (np.zeros(3), r"Got one axis of length 3\. Pass a single row as \[row\]"),
        ([], "Got one axis of length 0"),
        (np.zeros((2, 4)), r"with 3 columns.*Got shape \(2, 4\)"),
        (np.zeros((2, 3, 1)), r"Got shape \(2, 3, 1\)"),
        (5.0, r"Got shape \(\)"),
        (sparse.csr_matrix(ROWS), "must be dense"),
        ([[1, 2, 3], [1, 2]], "must form a matrix of numbers"),
        (np.zeros((1, 3), dtype=complex), "must be numbers. Got ndarray of complex128"),
        (np.zeros((1, 3), dtype="datetime64[s]"), "must be numbers"),
        ([[1, 2, "red"]], "Column '2' must hold numbers.*Got 'red'"),
        ([["1", "2", "3"]], "Column '0' must hold numbers"),
        ([[1, 2, [3]]], "must form a matrix"),
        (pd.Series([1.0, 2.0, 3.0]), "Got one axis of length 3"),
        (pl.LazyFrame({"age": [1]}), "Got a lazy one .LazyFrame"),
        (pd.DataFrame([[1, 2, 3]], columns=["a", "a", "b"]), "unique .*got: 'a' 2 times"),
        (pd.DataFrame({"age": [1], "salary": [2]}), "Missing: 'income', 'colour'"),
        (pd.DataFrame([[1, 2]], columns=["f0", "f1"]), "must have 3 columns.*Got 2"),
        (pd.DataFrame([["a", 1, 2]], columns=list(NAMES)), "Column 'age' must hold numbers"),
        (
            pd.DataFrame({"age": pd.to_datetime(["2020"]), "income": 1, "colour": 1}),
            "Column 'age' must hold numbers. Got Datetime",
        ),
        (
            pd.DataFrame({"age": pd.Categorical(["a"]), "income": 1, "colour": 1}),
            "Column 'age' must hold numbers",
        ),
        (
            TextTable({"age": ["1", "x"], "income": ["1", "2"], "colour": ["1", "2"]}),
            "Column 'age' must hold numbers.*Got 'x' in row 1",
        ),
    ],
)
def test_wrong_rows_get_a_sentence(X: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        numeric_rows(ensemble(feature_names=NAMES), X)


def test_no_rows() -> None:
    for X in (np.zeros((0, 3)), pd.DataFrame(np.zeros((0, 3)), columns=list(NAMES))):
        assert numeric_rows(ensemble(feature_names=NAMES), X).shape == (0, 3)
        with pytest.raises(InvalidInput, match="at least one row"):
            numeric_rows(ensemble(feature_names=NAMES), X, allow_empty=False)


def test_values_that_the_library_refuses() -> None:
    strict = ensemble(missing_allowed=False, infinite_allowed=False, feature_names=NAMES)
    with pytest.raises(InvalidInput, match=r"Got NaN in row 1, column 1 \('income'\)"):
        numeric_rows(strict, ROWS)
    for value in (np.inf, -np.inf, 1e39):
        with pytest.raises(InvalidInput, match="refuses infinite values"):
            numeric_rows(strict, [[0.0, 0.0, value]])
    assert numeric_rows(ensemble(), [[np.inf, np.nan, 1e39]])[0, 0] == np.inf


CATEGORIES = {2: ("red", "green", "blue")}


@pytest.mark.parametrize(
    "column",
    [
        ["blue", "red", None, "violet"],
        pd.Categorical(["blue", "red", None, "violet"], ["violet", "red", "green", "blue"]),
        pd.array(["blue", "red", None, "violet"], dtype="string"),
    ],
)
def test_raw_categories_become_codes_whatever_their_order(column: Any) -> None:
    model = ensemble(categorical=True, feature_names=NAMES, categories=CATEGORIES)
    frame = pd.DataFrame({"age": np.zeros(4), "income": np.zeros(4), "colour": column})
    expected = [2.0, 0.0, np.nan, np.nan]
    np.testing.assert_array_equal(numeric_rows(model, frame)[:, 2], expected)
    np.testing.assert_array_equal(numeric_rows(model, pl.from_pandas(frame))[:, 2], expected)
    table = {name: frame[name].fillna("").astype(str).tolist() for name in NAMES[:2]}
    text = TextTable({**table, "colour": ["blue", "red", "", "violet"]})
    np.testing.assert_array_equal(numeric_rows(model, text)[:, 2], expected)


def test_unknown_categories_are_treated_as_their_library_does() -> None:
    frame = pd.DataFrame({"age": [0.0], "income": [0.0], "colour": ["violet"]})

    def model(library: str) -> Ensemble:
        return ensemble(
            categorical=True, library=library, feature_names=NAMES, categories=CATEGORIES
        )

    assert np.isnan(numeric_rows(model("lightgbm"), frame)[0, 2])
    assert numeric_rows(model("CatBoost"), frame)[0, 2] == 3.0
    with pytest.raises(InvalidInput, match=r"'colour' must hold categories.*'violet' in row 0"):
        numeric_rows(model("XGBoost"), frame)


def test_numeric_categories() -> None:
    model = ensemble(categorical=True, categories={2: (10, 5, np.nan)})
    matrix = numeric_rows(model, [[0, 0, 5], [0, 0, 10.0], [0, 0, None], [0, 0, 7]])
    np.testing.assert_array_equal(matrix[:, 2], [1.0, 0.0, 2.0, np.nan])
    # In a text file "5" is the number; in a frame of strings it is another category.
    text = TextTable({"a": ["0", "0"], "b": ["0", "0"], "c": ["5", "10.0"]})
    np.testing.assert_array_equal(numeric_rows(model, text)[:, 2], [1.0, 0.0])
    assert np.isnan(numeric_rows(model, [[0, 0, "5"]])[0, 2])


def test_categorical_columns_without_recorded_categories_give_their_own_codes_to_xgboost() -> None:
    model = ensemble(categorical=True, library="xgboost", feature_names=NAMES)
    values = ["b", None, "a"]
    frame = pd.DataFrame({"age": 0.0, "income": 0.0, "colour": pd.Categorical(values, ["b", "a"])})
    np.testing.assert_array_equal(numeric_rows(model, frame)[:, 2], [0.0, np.nan, 1.0])
    enum = pl.from_pandas(frame).with_columns(
        pl.Series("colour", values, dtype=pl.Enum(["b", "a"]))
    )
    np.testing.assert_array_equal(numeric_rows(model, enum)[:, 2], [0.0, np.nan, 1.0])
    with pytest.raises(InvalidInput, match=r"'colour' must hold category codes"):
        numeric_rows(model, pa.Table.from_pandas(frame))


@pytest.mark.parametrize(
    ("classes", "labels", "numbers"),
    [
        ((0, 1), [1, 0, 1], [1, 0, 1]),
        ((0, 1), np.array([1.0, 0.0]), [1, 0]),
        ((0, 1), [True, False], [1, 0]),
        ((0, 1), ["1", "0", "1.0", "+1"], [1, 0, 1, 1]),
        ((False, True), ["true", "False"], [1, 0]),
        (("ham", "spam"), pd.Series(["spam", "ham"]), [1, 0]),
        (("ham", "spam"), pd.Categorical(["spam", "ham"]), [1, 0]),
        (("ham", "spam"), np.array(["spam"], dtype=object), [1]),
        (("1", "0"), ["0", "1"], [1, 0]),
        ((-1, 1), np.array([[1], [-1]]), [1, 0]),
        ((0, 1), [], []),
    ],
)
def test_labels_become_class_numbers(
    classes: tuple[Any, ...], labels: Any, numbers: list[int]
) -> None:
    found = label_numbers(ensemble(classes=classes), labels, n_rows=len(numbers))
    assert found.dtype == np.int64
    assert found.tolist() == numbers


@pytest.mark.parametrize(
    ("classes", "labels", "sentence"),
    [
        ((0, 1), [0, 2], r"classes \[0, 1\]\. Got \[2\]"),
        ((0, 1), [-1, 1], r"Got \[-1\]"),
        (("0", "1"), [0, 1], r"classes \['0', '1'\]\. Got \[0, 1\]"),
        ((0, 1), [0.0, np.nan], r"Got \[nan\]"),
        ((0, 1), ["yes", "0"], r"Got \['yes'\]"),
        ((0, 1), [0, 1, 1], r"one entry per row \(2\)\. Got shape \(3,\)"),
        ((0, 1), [[0, 1], [1, 0]], r"Got shape \(2, 2\)"),
    ],
)
def test_wrong_labels_get_a_sentence(classes: tuple[Any, ...], labels: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        label_numbers(ensemble(classes=classes), labels, n_rows=2)
