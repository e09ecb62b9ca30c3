"""Margins bit-equal to XGBoost's and equal labels, on rows made to tell small differences apart."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost as xgb

from tests.stress_rows import stress_rows
from tests.unit.loaders import xgboost_cases
from tests.unit.loaders.xgboost_cases import CASES, classifier, data, early_stopped, two_classes
from treeproof.errors import BrokenModelFile, InvalidInput, ModelWarning, UnsupportedModel
from treeproof.loaders import load_ensemble
from treeproof.loaders.base import LoadOptions
from treeproof.model import evaluate
from treeproof.model.ensemble import Ensemble
from treeproof.model.file_format import load_saved, save_ensemble
from treeproof.model.rows import TextTable
from treeproof.prediction import Model


def library_margins(model: Any, rows: np.ndarray) -> np.ndarray:
    if isinstance(model, xgb.Booster):
        matrix = xgb.DMatrix(rows, feature_types=model.feature_types, enable_categorical=True)
        return model.predict(matrix, output_margin=True, validate_features=False)
    return model.predict(rows, output_margin=True, validate_features=False)


def library_labels(model: Any, rows: np.ndarray) -> np.ndarray | None:
    """Labels as the library's own words give them; None where it has none."""
    if isinstance(model, xgb.XGBClassifier):
        labels = model.predict(rows, validate_features=False)
        return labels if labels.ndim == 1 else None
    if isinstance(model, xgb.Booster) and "multi:soft" in model.save_config():
        return np.argmax(model.predict(xgb.DMatrix(rows)), axis=1)
    return None


def assert_same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    assert got.dtype == expected.dtype == np.float32
    assert got.shape == expected.shape
    assert np.array_equal(got.view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("name", CASES)
def test_margins_and_labels_are_those_of_the_library(name: str, tmp_path: Path) -> None:
    source = CASES[name]()
    model = Model(load_ensemble(source))
    assert model.ensemble.provenance.self_test.startswith("passed")
    rows = stress_rows(model.ensemble, n=10_000)
    margins = model.margins(rows)
    assert_same_bits(margins, library_margins(source, rows))
    labels = library_labels(source, rows)
    if labels is not None:
        assert np.array_equal(model.predict(rows), labels)
        assert 0 < np.mean(labels == labels[0]) < 1 or "only leaves" in name
    plain = evaluate.margins(model.ensemble, rows[::20])
    assert_same_bits(margins[::20], plain[:, 0] if plain.shape[1] == 1 else plain)
    _check_files(source, model.ensemble, tmp_path)


def _check_files(source: Any, ensemble: Ensemble, folder: Path) -> None:
    """Files of the same model are the same trees, in both encodings."""
    booster = source if isinstance(source, xgb.Booster) else source.get_booster()
    if booster.attr("best_iteration") is not None:
        booster = booster[: booster.best_iteration + 1]
    for suffix in ("json", "ubj"):
        path = folder / f"model.{suffix}"
        booster.save_model(path)
        loaded = load_ensemble(path, self_test=suffix == "json")
        for field, ours in loaded.trees._asdict().items():
            # Of dart, files are read as Booster predicts, which is not as estimators do.
            if field != "leaf_value" or "dart" not in booster.save_config():
                assert np.array_equal(ours, getattr(ensemble.trees, field))
        assert loaded.aggregation == ensemble.aggregation
        assert loaded.categories == ensemble.categories
        assert len(loaded.provenance.file_sha256) == 64


@pytest.mark.parametrize("name", ["binary:logistic", "multi_output_tree", "early stopping"])
def test_leaf_numbers_are_those_of_the_library(name: str) -> None:
    source = CASES[name]()
    model = Model(load_ensemble(source))
    rows = data(5)
    assert np.array_equal(model.leaf_indices(rows), source.apply(rows).astype(int))


@pytest.mark.parametrize("booster", ["gbtree", "dart"])
@pytest.mark.parametrize("ending", ["json", "ubj"])
def test_a_file_uses_the_rounds_of_whoever_saved_it(
    tmp_path: Path, booster: str, ending: str
) -> None:
    estimator = early_stopped(booster=booster)
    best, rounds = estimator.best_iteration + 1, estimator.get_booster().num_boosted_rounds()
    assert best < rounds
    live = load_ensemble(estimator)
    assert live.n_trees == best
    assert live.provenance.notes[0] == (
        f"Early stopping: the first {best} of {rounds} rounds are used (as the estimator does)."
    )
    path = tmp_path / f"model.{ending}"
    estimator.save_model(path)
    with pytest.warns(ModelWarning, match=f"first {best} of {rounds} rounds .* XGB.* that saved"):
        saved_by_estimator = load_ensemble(path)
    reopened = xgb.XGBClassifier()
    reopened.load_model(path)
    rows = stress_rows(live, n=2_000)
    assert_same_bits(
        evaluate.margins(saved_by_estimator, rows)[:, 0], reopened.predict(rows, output_margin=True)
    )
    labels = Model(saved_by_estimator).predict(rows)
    assert np.array_equal(labels, reopened.predict(rows))
    estimator.get_booster().save_model(path)
    with pytest.warns(ModelWarning, match=f"all {rounds} rounds are used, as Booster.predict does"):
        saved_by_booster = load_ensemble(path)
    rows = stress_rows(saved_by_booster, n=2_000)
    assert_same_bits(
        evaluate.margins(saved_by_booster, rows)[:, 0],
        xgb.Booster(model_file=path).predict(xgb.DMatrix(rows), output_margin=True),
    )
    assert "--rounds" in saved_by_booster.provenance.notes[0]
    with pytest.warns(ModelWarning, match=f"all {rounds} rounds are used, as Booster.predict does"):
        assert load_ensemble(estimator.get_booster()).fingerprint == saved_by_booster.fingerprint


@pytest.mark.parametrize("rounds", ["best", "all"])
def test_rounds_can_be_chosen_and_then_nothing_is_warned_of(tmp_path: Path, rounds: Any) -> None:
    estimator = early_stopped()
    booster = estimator.get_booster()
    used = estimator.best_iteration + 1 if rounds == "best" else booster.num_boosted_rounds()
    estimator.save_model(tmp_path / "estimator.json")
    booster.save_model(tmp_path / "booster.json")
    paths = (tmp_path / "estimator.json", tmp_path / "booster.json")
    for source in (estimator, booster, *paths):
        ensemble = load_ensemble(source, options=LoadOptions(rounds=rounds))
        assert ensemble.provenance.self_test.startswith("passed")
        assert ensemble.n_trees == used
        assert f"(rounds='{rounds}')" in ensemble.provenance.notes[0]


def test_rounds_that_make_no_difference_are_not_mentioned() -> None:
    estimator = early_stopped()
    sliced = estimator.get_booster()[: estimator.best_iteration + 1]
    sliced.set_attr(best_iteration=str(estimator.best_iteration))
    assert load_ensemble(sliced).provenance.notes == ()


def test_rounds_that_a_model_does_not_have_are_refused() -> None:
    never_stopped = CASES["binary:logistic"]()
    assert load_ensemble(never_stopped, options=LoadOptions(rounds="all")).n_trees == 12
    with pytest.raises(InvalidInput, match=r"'best' only for a model that stopped early\."):
        load_ensemble(never_stopped, options=LoadOptions(rounds="best"))


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.7, 0.999])
@pytest.mark.parametrize("as_booster", [False, True])
def test_a_decision_threshold_is_inclusive(threshold: float, as_booster: bool) -> None:
    estimator = CASES["binary:logistic"]()
    source = estimator.get_booster() if as_booster else estimator
    ensemble = load_ensemble(source, options=LoadOptions(decision_threshold=threshold))
    rows = stress_rows(ensemble, n=2_000)
    probability = estimator.predict_proba(rows)[:, 1]
    assert np.array_equal(Model(ensemble).predict(rows), (probability >= threshold).astype(int))


def test_a_decision_threshold_that_equals_a_probability_says_one() -> None:
    estimator = CASES["binary:logistic"]()
    rows = data(11)
    probability = estimator.predict_proba(rows)[:, 1]
    for limit in np.unique(probability)[::40]:
        options = LoadOptions(decision_threshold=float(limit))
        labels = Model(load_ensemble(estimator, options=options, self_test=False)).predict(rows)
        assert np.array_equal(labels, (probability >= limit).astype(int))


@pytest.mark.parametrize("name", ["reg:squarederror", "multi:softprob, 3 classes", "binary:hinge"])
def test_a_decision_threshold_needs_a_probability_of_one_class(name: str) -> None:
    with pytest.raises(InvalidInput, match="decision threshold needs a binary classifier"):
        load_ensemble(CASES[name](), options=LoadOptions(decision_threshold=0.3))


def test_raw_logits_are_cut_where_their_user_cuts_them() -> None:
    estimator = CASES["binary:logitraw"]()
    by_estimator = load_ensemble(estimator)
    by_booster = load_ensemble(estimator.get_booster())
    assert by_estimator.decision.cut == np.nextafter(np.float32(0.5), np.float32(1))
    assert by_booster.decision.cut == np.nextafter(np.float32(0), np.float32(1))
    assert "margin > 0.5" in by_estimator.provenance.notes[0]
    assert "margin > 0;" in by_booster.provenance.notes[0]


def test_the_estimator_takes_infinite_values_and_the_booster_refuses_them() -> None:
    estimator = CASES["binary:logistic"]()
    rows = np.full((2, 6), [[np.inf], [-1e300]])
    model = Model(load_ensemble(estimator))
    assert_same_bits(model.margins(rows), estimator.predict(rows, output_margin=True))
    with pytest.raises(InvalidInput, match="infinite"):
        Model(load_ensemble(estimator.get_booster())).margins(rows)
    with pytest.raises(xgb.core.XGBoostError, match="inf"):
        estimator.get_booster().predict(xgb.DMatrix(rows))


def test_a_saved_classifier_decides_like_the_classifier(tmp_path: Path) -> None:
    estimator = CASES["classifier for reg:squarederror"]()
    estimator.save_model(tmp_path / "model.ubj")
    ensemble = load_ensemble(tmp_path / "model.ubj")
    rows = data(3)
    assert np.array_equal(Model(ensemble).predict(rows), estimator.predict(rows))
    estimator.get_booster().save_model(tmp_path / "booster.ubj")
    assert load_ensemble(tmp_path / "booster.ubj").decision.kind == "score"


def test_data_frame_categories_are_matched_by_value() -> None:
    estimator = CASES["categories of a data frame"]()
    model = Model(load_ensemble(estimator))
    frame = xgboost_cases.frame()
    assert model.ensemble.categories == {1: ("blue", "green", "red"), 2: (10, 20, 40)}
    assert model.feature_names == ("age", "colour", "size")
    reordered = frame.assign(
        colour=frame["colour"].cat.reorder_categories(["red", "blue", "green"])
    )
    expected = estimator.predict(frame, output_margin=True)
    assert_same_bits(model.margins(frame), expected)
    assert_same_bits(model.margins(reordered), expected)


def test_garbled_category_names_are_refused_and_codes_are_taken(tmp_path: Path) -> None:
    frame = xgboost_cases.frame()
    frame["colour"] = frame["colour"].cat.rename_categories({"green": "grün"})
    X = frame[["age", "colour"]]
    estimator = classifier(enable_categorical=True).fit(X, (X["colour"] == "grün").astype(int))
    ensemble = load_ensemble(estimator)
    assert "not ASCII" in ensemble.provenance.notes[0]
    expected = estimator.predict(X, output_margin=True)
    save_ensemble(ensemble, tmp_path / "model.treeproof")
    for model in (Model(ensemble), Model(load_saved(tmp_path / "model.treeproof"))):
        coded = X.assign(colour=X["colour"].cat.codes.where(X["colour"].notna()))
        for rows in (coded, coded.to_numpy(), TextTable({c: [*map(str, coded[c])] for c in coded})):
            assert_same_bits(model.margins(rows), expected)
        # In the frame's own order they would be guessed; XGBoost compares the garbled names.
        for colours in (X["colour"], X["colour"].cat.reorder_categories(["grün", "red", "blue"])):
            named = X.assign(colour=colours)
            texts = TextTable({c: [*map(str, named[c])] for c in named})
            for rows in (named, named.astype({"colour": object}), texts):
                with pytest.raises(InvalidInput, match="'colour' must hold numbers, since XGBoost"):
                    model.margins(rows)


def test_dart_is_summed_as_the_given_object_sums_it() -> None:
    estimator = CASES["dart"]()
    booster = estimator.get_booster()
    rows = data(4, n=2_000)
    in_place = Model(load_ensemble(estimator)).margins(rows)
    on_matrix = Model(load_ensemble(booster)).margins(rows)
    assert_same_bits(in_place, estimator.predict(rows, output_margin=True))
    assert_same_bits(on_matrix, booster.predict(xgb.DMatrix(rows), output_margin=True))
    assert (in_place != on_matrix).any()


def test_pruned_nodes_are_dropped() -> None:
    booster = CASES["binary, exact, pruned"]().get_booster()
    document = json.loads(booster.save_raw("json"))
    trees = document["learner"]["gradient_booster"]["model"]["trees"]
    assert any(int(tree["tree_param"]["num_deleted"]) for tree in trees)
    n_stored = sum(len(tree["left_children"]) for tree in trees)
    assert len(load_ensemble(booster).trees.feature) < n_stored


def edited(booster: xgb.Booster, path: Path, **params: Any) -> Path:
    """File of a booster with other entries in its table of parameters."""
    document = json.loads(booster.save_raw("json"))
    document["learner"]["learner_model_param"] |= params
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("spelling", ["2.5E-1", "[2.5E-1]", "0.25", "[ 0.25 ]"])
def test_both_spellings_of_the_base_score(spelling: str, tmp_path: Path) -> None:
    path = edited(
        CASES["binary:logistic"]().get_booster(), tmp_path / "m.json", base_score=spelling
    )
    ensemble = load_ensemble(path)
    assert ensemble.provenance.self_test.startswith("passed")
    assert ensemble.aggregation.start[0] == pytest.approx(np.log(1 / 3))


@pytest.mark.parametrize("base_score", ["0E0", "1E-9", "9.9999994E-1", "1E0"])
def test_extreme_base_scores_are_moved_as_the_library_moves_them(
    base_score: str, tmp_path: Path
) -> None:
    path = edited(
        CASES["binary:logistic"]().get_booster(), tmp_path / "m.json", base_score=base_score
    )
    assert load_ensemble(path).provenance.self_test.startswith("passed")
    document = json.loads(path.read_text())
    document["version"] = [3, 1, 0]
    path.write_text(json.dumps(document))
    with pytest.raises(UnsupportedModel, match=r"before 3\.2"):
        load_ensemble(path)


def test_random_base_scores_have_the_library_s_logarithms(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name in ("binary:logistic", "count:poisson"):
        booster = CASES[name]().get_booster()
        rows = data(1, n=3)
        for score in random.random(15).astype(np.float32):
            path = edited(booster, tmp_path / "m.json", base_score=f"[{score!s}]")
            ensemble = load_ensemble(path, self_test=False)
            expected = xgb.Booster(model_file=path).predict(xgb.DMatrix(rows), output_margin=True)
            assert_same_bits(evaluate.margins(ensemble, rows)[:, 0], expected)


def test_softmax_merges_margins_that_differ() -> None:
    """Rows whose margins differ but whose float32 probabilities do not go to the first class."""
    ensemble = load_ensemble(CASES["multi:softprob, 3 classes"]())
    scores = np.array([[0.1, 0.10000001, -3.0], [0.1, 0.2, -3.0]], dtype=np.float32)
    assert scores[0, 0] < scores[0, 1]
    assert evaluate.label_indices(ensemble, scores).tolist() == [0, 1]


def test_missing_other_than_nan_is_refused() -> None:
    X = data()
    estimator = classifier(missing=-999.0).fit(X, two_classes(X))
    with pytest.raises(UnsupportedModel, match=r"missing=-999\.0"):
        load_ensemble(estimator)


def test_linear_boosters_are_refused() -> None:
    X = data()
    linear = xgb.train({"booster": "gblinear"}, xgb.DMatrix(X, X[:, 0]), 2)
    with pytest.raises(UnsupportedModel, match="gblinear"):
        load_ensemble(linear)


def test_an_unfitted_estimator_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must be fitted"):
        load_ensemble(classifier())


def test_a_model_without_trees_is_refused() -> None:
    X = data()
    empty = xgb.train({}, xgb.DMatrix(X, X[:, 0]), 0)
    with pytest.raises(UnsupportedModel, match="at least one tree"):
        load_ensemble(empty)


def test_an_unknown_objective_is_refused(tmp_path: Path) -> None:
    document = json.loads(CASES["binary:logistic"]().get_booster().save_raw("json"))
    document["learner"]["objective"]["name"] = "reg:fancy"
    (tmp_path / "m.json").write_text(json.dumps(document))
    with pytest.raises(UnsupportedModel, match="reg:fancy"):
        load_ensemble(tmp_path / "m.json")


def test_a_newer_version_is_noted_and_loaded(tmp_path: Path) -> None:
    document = json.loads(CASES["binary:logistic"]().get_booster().save_raw("json"))
    document["version"] = [9, 1, 0]
    (tmp_path / "m.json").write_text(json.dumps(document))
    ensemble = load_ensemble(tmp_path / "m.json", self_test=False)
    assert "XGBoost 9.1.0 is newer than the tested versions" in ensemble.provenance.notes[0]


def test_expectiles_are_scores_as_they_are(tmp_path: Path) -> None:
    model = CASES["reg:squarederror"]()
    source = model if isinstance(model, xgb.Booster) else model.get_booster()
    document = json.loads(source.save_raw("json"))
    document["learner"]["objective"] = {"name": "reg:expectileerror"}
    (tmp_path / "m.json").write_text(json.dumps(document))
    ensemble = load_ensemble(tmp_path / "m.json", self_test=False)
    assert ensemble.fingerprint == load_ensemble(model).fingerprint


def old_binary(objective: bytes, booster: bytes) -> bytes:
    """The begin of a file as XGBoost wrote them before there was JSON: parameters, two names."""
    parameters = struct.pack("<fIi", 0.5, 4, 0) + bytes(124)
    names = [struct.pack("<Q", len(name)) + name for name in (objective, booster)]
    return parameters + b"".join(names) + bytes(200)


@pytest.mark.parametrize(
    "content",
    [
        b"binf" + bytes(100),
        b"bs64\tAAAA",
        old_binary(b"binary:logistic", b"gbtree"),
        old_binary(b"reg:linear", b"gblinear"),
        old_binary(b"multi:softprob", b"dart"),
    ],
)
def test_the_old_binary_format_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.model").write_bytes(content)
    with pytest.raises(UnsupportedModel, match=r"old binary format.*save it as \.json or \.ubj"):
        load_ensemble(tmp_path / "m.model")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("parents", 7, "'parents' must be those of the children"),
        ("parents", -1, "'parents' must be those of the children"),
        ("default_left", 2, "'default_left' must hold 0 and 1"),
        ("split_type", 3, "'split_type' must hold 0 and 1"),
        ("left_children", -2, "left child must be -1 or a node"),
        ("right_children", 1, "the right child must follow the left one"),
    ],
)
def test_what_would_take_the_library_down_never_reaches_it(
    field: str, value: int, message: str, tmp_path: Path
) -> None:
    document = json.loads(CASES["binary:logistic"]().get_booster().save_raw("json"))
    tree = document["learner"]["gradient_booster"]["model"]["trees"][1]
    tree[field][2] = value
    (tmp_path / "m.json").write_text(json.dumps(document))
    with pytest.raises(BrokenModelFile, match=message):
        load_ensemble(tmp_path / "m.json")


@pytest.mark.parametrize("field", ["sum_hessian", "loss_changes", "base_weights", "parents"])
def test_fields_that_only_the_library_needs_must_be_there(field: str, tmp_path: Path) -> None:
    document = json.loads(CASES["binary:logistic"]().get_booster().save_raw("json"))
    del document["learner"]["gradient_booster"]["model"]["trees"][1][field]
    (tmp_path / "m.json").write_text(json.dumps(document))
    with pytest.raises(BrokenModelFile, match=f"Tree 1: '{field}' must have"):
        load_ensemble(tmp_path / "m.json")
    assert load_ensemble(tmp_path / "m.json", self_test=False).n_trees == 12


def old_vector_leaves(booster: xgb.Booster) -> dict[str, Any]:
    """The same model as XGBoost before 3.2 wrote it: leaves in base_weights, NaN as condition."""
    document = json.loads(booster.save_raw("json"))
    for tree in document["learner"]["gradient_booster"]["model"]["trees"]:
        width = int(tree["tree_param"]["size_leaf_vector"])
        weights = np.array(tree.pop("leaf_weights")).reshape(-1, width)
        base = np.array(tree["base_weights"]).reshape(-1, width)
        for node, child in enumerate(tree["left_children"]):
            if child == -1:
                base[node] = weights[tree["right_children"][node]]
                tree["right_children"][node] = -1
                tree["split_conditions"][node] = float("nan")
        tree["base_weights"] = base.ravel().tolist()
    document["version"] = [2, 1, 4]
    return document


def test_vector_leaves_of_older_versions(tmp_path: Path) -> None:
    booster = CASES["multi_output_tree"]().get_booster()
    (tmp_path / "m.json").write_text(json.dumps(old_vector_leaves(booster)))
    assert "NaN" in (tmp_path / "m.json").read_text()
    old, new = load_ensemble(tmp_path / "m.json"), load_ensemble(booster)
    assert old.provenance.self_test.startswith("not run: XGBoost 3.2")
    for ours, theirs in zip(old.trees, new.trees, strict=True):
        assert np.array_equal(ours, theirs)
