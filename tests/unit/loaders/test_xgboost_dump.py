import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost as xgb

from tests.stress_rows import stress_rows
from tests.unit.loaders.xgboost_cases import CASES, booster, data
from treeproof.errors import BrokenModelFile, InvalidInput, ModelWarning, UnsupportedModel
from treeproof.loaders import load_ensemble
from treeproof.loaders.base import LoadOptions
from treeproof.model import evaluate
from treeproof.model.ensemble import Ensemble

KNOWN = LoadOptions(base_score=0.0, n_classes=2)


def dumped(model: Any, path: Path, *, as_text: bool = False, **options: Any) -> Path:
    source = model if isinstance(model, xgb.Booster) else model.get_booster()
    source.dump_model(path, dump_format="text" if as_text else "json", **options)
    return path


def assert_same_leaves(dump: Ensemble, exact: Ensemble) -> None:
    rows = stress_rows(exact, n=3_000)
    ours = dump.trees.leaf_source[evaluate.leaf_rows(dump, rows)]
    theirs = exact.trees.leaf_source[evaluate.leaf_rows(exact, rows)]
    assert np.array_equal(ours, theirs)


@pytest.mark.parametrize(
    "name", ["binary:logistic", "binary, deep, missing values", "categories, 70 codes in sets"]
)
def test_nine_digits_tell_all_float32_apart(name: str, tmp_path: Path) -> None:
    model = CASES[name]()
    exact = load_ensemble(model)
    options = LoadOptions(base_score=exact.aggregation.start[0], n_classes=2)
    dump = load_ensemble(dumped(model, tmp_path / "dump.json"), options=options)
    for name_of_array, ours in dump.trees._asdict().items():
        assert np.array_equal(ours, getattr(exact.trees, name_of_array)), name_of_array
    assert dump.aggregation == exact.aggregation
    assert dump.decision == exact.decision


def test_trees_of_several_classes_take_turns(tmp_path: Path) -> None:
    model = CASES["multi:softprob, 3 classes"]()
    exact = load_ensemble(model)
    path = dumped(model, tmp_path / "dump.json", with_stats=True)
    dump = load_ensemble(path, options=LoadOptions(n_classes=3, base_score=0.0))
    assert dump.classes == (0, 1, 2)
    assert np.array_equal(dump.trees.tree_output, exact.trees.tree_output)
    rows = data(2)
    difference = evaluate.margins(exact, rows) - evaluate.margins(dump, rows)
    assert np.allclose(difference, np.array(exact.aggregation.start), atol=1e-5)


def test_a_score_has_no_classes(tmp_path: Path) -> None:
    path = dumped(CASES["reg:squarederror"](), tmp_path / "dump.json")
    dump = load_ensemble(path, options=LoadOptions(n_classes=1, base_score=0.5))
    assert dump.decision.kind == "score"
    assert dump.aggregation.start == (0.5,)


@pytest.mark.parametrize("as_text", [False, True])
def test_what_a_dump_does_not_carry_is_warned_about(as_text: bool, tmp_path: Path) -> None:
    model = CASES["multi:softprob, 3 classes"]()
    path = dumped(model, tmp_path / "dump", as_text=as_text)
    n_trees = load_ensemble(model).n_trees
    with pytest.warns(ModelWarning) as caught:
        dump = load_ensemble(path)
    sentences = [str(warning.message) for warning in caught]
    assert sentences == list(dump.provenance.notes[:2])
    assert "no base score; margins start at 0." in sentences[0]
    assert f"taken as 2, although its {n_trees} trees fit 3" in sentences[1]
    assert "nine digits" in dump.provenance.notes[2]
    assert dump.provenance.self_test.startswith("not run: XGBoost does not load")


@pytest.mark.parametrize("as_text", [False, True])
def test_names_have_no_order_and_are_refused(as_text: bool, tmp_path: Path) -> None:
    X = data(n_features=3)
    matrix = xgb.DMatrix(X, X[:, 2] + X[:, 0], feature_names=["age", "in come", 'a "b"'])
    model = booster({"objective": "reg:squarederror"}, matrix)
    path = dumped(model, tmp_path / "dump", as_text=as_text)
    with pytest.raises(UnsupportedModel, match="must number its features"):
        load_ensemble(path, options=KNOWN)


@pytest.mark.parametrize(
    "name", ["binary:logistic", "binary, deep, missing values", "categories, 70 codes in sets"]
)
@pytest.mark.parametrize("with_stats", [False, True])
def test_plain_text_loads_like_json(name: str, with_stats: bool, tmp_path: Path) -> None:
    model = CASES[name]()
    dumps = [
        load_ensemble(
            dumped(model, tmp_path / "dump", as_text=as_text, with_stats=with_stats), options=KNOWN
        )
        for as_text in (False, True)
    ]
    assert dumps[0].fingerprint == dumps[1].fingerprint


TEXT = """booster[0]:
0:[f2<0.5] yes=1,no=2,missing=1
	1:leaf=-1
	2:[f3:{0,4}] yes=3,no=4,missing=4
		3:leaf=1e-3
		4:leaf=2
"""


def test_plain_text_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "dump.txt"
    path.write_text(TEXT)
    dump = load_ensemble(path, options=KNOWN)
    rows = np.array([[0, 0, 0.4, 0], [0, 0, 0.5, 4], [0, 0, 0.5, 1], [0, 0, np.nan, 0]])
    assert evaluate.margins(dump, rows)[:, 0].tolist() == [-1.0, float(np.float32(1e-3)), 2.0, -1.0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("2:[f3", "1:[f3", "repeats node 1"),
        ("no=2", "no=7", "must be nodes of the tree"),
        ("no=4,", "no=0,", "must be nodes of the tree"),
        ("yes=3,no=4", "yes=3,no=3", "must be nodes of the tree"),
        ("0:[f2<0.5]", "5:[f2<0.5]", "must have a node 0"),
        ("leaf=2", "leaf=two", "must be a leaf or a split"),
        ("<0.5", "<0,5", "must be a leaf or a split"),
        ("missing=1", "missing=9", "must name its two children"),
        ("leaf=-1", "leaf=nan", "leaf value must be finite"),
        ("[f3:{0,4}]", "[f3]", "indicator"),
        ("\t1:leaf=-1\n", "", "must be nodes of the tree"),
    ],
)
def test_damaged_text_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "dump.txt"
    assert old in TEXT
    path.write_text(TEXT.replace(old, new))
    with pytest.raises((BrokenModelFile, UnsupportedModel), match=message):
        load_ensemble(path, options=KNOWN)


def one_tree(**changes: Any) -> list[dict[str, Any]]:
    root = {
        "nodeid": 0,
        "depth": 0,
        "split": 7,
        "split_condition": 0.5,
        "yes": 1,
        "no": 2,
        "missing": 1,
        "children": [{"nodeid": 1, "leaf": -1.0}, {"nodeid": 2, "leaf": 1.0}],
    }
    return [root | changes]


def written(trees: Any, folder: Path) -> Path:
    path = folder / "dump.json"
    path.write_text(json.dumps(trees))
    return path


@pytest.mark.parametrize("split", [7, "7", "f7"])
def test_features_by_position(split: Any, tmp_path: Path) -> None:
    path = written(one_tree(split=split), tmp_path)
    assert load_ensemble(path, options=KNOWN).n_features == 8
    assert load_ensemble(path, options=replace(KNOWN, n_features=11)).n_features == 11
    with pytest.raises(InvalidInput, match="'n_features' must be at least 8"):
        load_ensemble(path, options=replace(KNOWN, n_features=7))


def test_the_split_is_strict_and_missing_has_its_own_way(tmp_path: Path) -> None:
    dump = load_ensemble(written(one_tree(missing=2), tmp_path), options=KNOWN)
    rows = np.zeros((4, 8))
    rows[:, 7] = [0.5, np.nextafter(np.float32(0.5), np.float32(0)), np.nan, 0.4]
    assert evaluate.margins(dump, rows)[:, 0].tolist() == [1.0, -1.0, 1.0, -1.0]


@pytest.mark.parametrize(
    ("trees", "message"),
    [
        (one_tree(yes=2, no=2), "must name its two children"),
        (one_tree(yes=3), "must name its two children"),
        (one_tree(missing=0), "must name its two children"),
        (one_tree(missing=None), "must name its two children"),
        (one_tree(children=[]), "must name its two children"),
        (one_tree(split=None), "must have a leaf value or a split"),
        (one_tree(split=-1), "no XGBoost dump"),
        (one_tree(split=2**40), "no XGBoost dump"),
        (one_tree(split=2**30), "must be below"),
        (one_tree(split_condition="x"), "no XGBoost dump"),
        (one_tree(split_condition=1e300), "threshold must be finite"),
        (one_tree(children=[{"nodeid": 1, "leaf": 1e39}, {"nodeid": 2, "leaf": 1}]), "leaf value"),
        (one_tree(children=[{"nodeid": 1, "leaf": [1.0]}, {"nodeid": 2, "leaf": 1}]), "no XGBoost"),
        ([{"nodeid": 0, "leaf": True}], "no XGBoost dump"),
        ([5, {"nodeid": 0}], "no XGBoost dump"),
    ],
)
def test_damaged_dumps_are_refused(trees: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(BrokenModelFile, match=message):
        load_ensemble(written(trees, tmp_path), options=KNOWN)


def test_indicators_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="indicator"):
        load_ensemble(written(one_tree(split_condition=None), tmp_path), options=KNOWN)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_classes": 0}, "'n_classes' must be between"),
        ({"n_classes": 10**9}, "'n_classes' must be between"),
        ({"n_classes": 3, "decision_threshold": 0.2}, "decision threshold needs a binary"),
        ({"n_classes": 1, "decision_threshold": 0.2}, "decision threshold needs a binary"),
        ({"base_score": 1e60}, "finite float32"),
        ({"base_score": [0.1, 0.2, 0.3]}, "one number. Got 3. Save the model with save_model"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_ensemble(written(one_tree(), tmp_path), options=replace(KNOWN, **options))


def test_a_chosen_threshold_moves_the_cut(tmp_path: Path) -> None:
    path = written(one_tree(), tmp_path)
    dump = load_ensemble(path, options=replace(KNOWN, decision_threshold=0.9))
    assert dump.decision.cut == pytest.approx(np.log(9), rel=1e-6)
