"""treelite checkpoints: as treelite computes them, and as the libraries behind them do."""

import struct
import sys
from functools import cache
from pathlib import Path

import lightgbm
import numpy as np
import pytest
import treelite
import xgboost
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)

from tests.stress_rows import stress_rows
from tests.unit.loaders.sklearn_cases import TARGET, Y3, X, Y, with_categories, with_missing
from treeproof.errors import BrokenModelFile, InvalidInput, TreeproofError, UnsupportedModel
from treeproof.loaders.base import LoadOptions
from treeproof.loaders.self_test import run_self_test
from treeproof.loaders.treelite.format import is_checkpoint, read_checkpoint
from treeproof.loaders.treelite.loader import TreeliteLoader
from treeproof.prediction import Model

CATEGORIES = with_categories(missing=False)
ZEROS = np.where(np.random.default_rng(4).random(X.shape) < 0.3, 0.0, X)


def from_xgboost(parameters, rows=X, target=Y, **options):
    data = xgboost.DMatrix(rows, target, **options)
    booster = xgboost.train({"max_depth": 4, "nthread": 1, **parameters}, data, 12)
    return treelite.frontend.from_xgboost(booster)


def light(parameters, rows=X, target=Y, **options):
    settings = {"verbose": -1, "min_data_in_leaf": 3, "num_threads": 1, **parameters}
    return lightgbm.train(settings, lightgbm.Dataset(rows, target, **options), 12)


def from_lightgbm(parameters, rows=X, target=Y, **options):
    return treelite.frontend.from_lightgbm(light(parameters, rows, target, **options))


def from_sklearn(estimator, target=Y, rows=X):
    return treelite.sklearn.import_model(estimator.fit(rows, target))


FLOAT32 = {"input_precision": "float32"}
FLOAT64 = {"input_precision": "float64"}
KINDS = ["q", "c", "q", "q", "c", "q"]

CASES = {
    "xgboost": lambda: (from_xgboost({"objective": "binary:logistic"}), {}),
    "xgboost, missing": lambda: (
        from_xgboost({"objective": "binary:logistic"}, with_missing()),
        FLOAT32,
    ),
    "xgboost, three classes": lambda: (
        from_xgboost({"objective": "multi:softprob", "num_class": 3}, X, Y3),
        {},
    ),
    "xgboost, vector leaves": lambda: (
        from_xgboost(
            {
                "objective": "multi:softprob",
                "num_class": 3,
                "multi_strategy": "multi_output_tree",
                "tree_method": "hist",
            },
            X,
            Y3,
        ),
        {},
    ),
    "xgboost, regression": lambda: (
        from_xgboost({"objective": "reg:squarederror"}, X, TARGET),
        {},
    ),
    "xgboost, dart": lambda: (
        from_xgboost({"objective": "binary:logistic", "booster": "dart", "rate_drop": 0.3}),
        {},
    ),
    "xgboost, categories": lambda: (
        from_xgboost(
            {"objective": "binary:logistic", "tree_method": "hist", "max_cat_to_onehot": 1},
            CATEGORIES,
            feature_types=KINDS,
            enable_categorical=True,
        ),
        {},
    ),
    "lightgbm": lambda: (from_lightgbm({"objective": "binary"}, with_missing()), FLOAT64),
    "lightgbm, nothing is missing": lambda: (
        from_lightgbm({"objective": "binary", "use_missing": False}),
        {**FLOAT64, "missing": "none"},
    ),
    "lightgbm, categories": lambda: (
        from_lightgbm(
            {"objective": "binary", "min_data_per_group": 3, "cat_smooth": 1.0},
            CATEGORIES,
            categorical_feature=[1, 4],
        ),
        FLOAT64,
    ),
    "lightgbm, one against all": lambda: (
        from_lightgbm({"objective": "multiclassova", "num_class": 3}, X, Y3),
        FLOAT64,
    ),
    "lightgbm, random forest": lambda: (
        from_lightgbm(
            {"objective": "regression", "boosting": "rf", "bagging_freq": 1, "subsample": 0.7},
            X,
            TARGET,
        ),
        FLOAT64,
    ),
    "forest": lambda: (from_sklearn(RandomForestClassifier(9, random_state=0)), FLOAT32),
    "forest, missing": lambda: (
        from_sklearn(RandomForestClassifier(9, random_state=0), Y3, with_missing()),
        FLOAT32,
    ),
    "regression forest": lambda: (
        from_sklearn(RandomForestRegressor(9, random_state=0), TARGET),
        FLOAT32,
    ),
    "extra trees": lambda: (from_sklearn(ExtraTreesClassifier(9, random_state=0)), FLOAT32),
    "boosting": lambda: (
        from_sklearn(GradientBoostingClassifier(n_estimators=9, random_state=0)),
        {**FLOAT32, "tie": "upper"},
    ),
    "boosting, three classes": lambda: (
        from_sklearn(GradientBoostingClassifier(n_estimators=5, random_state=0), Y3),
        FLOAT32,
    ),
    "histogram boosting, missing": lambda: (
        from_sklearn(
            HistGradientBoostingClassifier(max_iter=9, min_samples_leaf=5), Y, with_missing()
        ),
        FLOAT64,
    ),
    "isolation forest": lambda: (
        from_sklearn(IsolationForest(n_estimators=9, random_state=0), None),
        FLOAT32,
    ),
}


@cache
def checkpoint(name):
    model, options = CASES[name]()
    return model.serialize_bytes(), {"missing": "nan", "tie": "lower", **options}


def load_bytes(content, tmp_path, **options):
    path = tmp_path / "model.tl"
    path.write_bytes(content)
    return TreeliteLoader().load_file(path, LoadOptions(**options))


def bits(values):
    values = np.ascontiguousarray(values)
    return values.view(np.int32 if values.dtype == np.float32 else np.int64).reshape(
        len(values), -1
    )


@pytest.mark.parametrize("name", CASES)
def test_margins_are_treelites_own(name, tmp_path):
    content, options = checkpoint(name)
    loaded = load_bytes(content, tmp_path, **options)
    rows = stress_rows(loaded.ensemble)
    ours = Model(loaded.ensemble).margins(rows)
    theirs = loaded.reference.margins(rows)
    assert ours.dtype == theirs.dtype
    assert np.array_equal(bits(ours), bits(theirs))
    assert run_self_test(loaded).provenance.self_test.startswith("passed")
    if options["missing"] == "nan":  # then treelite can be asked without the loader's help
        with np.errstate(over="ignore"):
            cast = rows.astype(loaded.ensemble.input_precision)
        model = treelite.Model.deserialize_bytes(content)
        plain = treelite.gtil.predict(model, cast, nthread=1, pred_margin=True)
        assert np.array_equal(bits(ours), bits(plain))


@pytest.mark.parametrize(
    ("parameters", "missing"),
    [({"objective": "binary", "use_missing": False}, "none"), ({"objective": "binary"}, "nan")],
)
def test_the_missing_option_gives_lightgbms_own_scores(parameters, missing):
    rows = with_missing() if missing == "nan" else X
    booster = light(parameters, rows)
    model = treelite.frontend.from_lightgbm(booster)
    options = LoadOptions(input_precision="float64", missing=missing, tie="lower")
    loaded = TreeliteLoader().load_object(model, options)
    stress = stress_rows(loaded.ensemble)
    # LightGBM takes tiny numbers for zero, which no checkpoint says.
    stress = np.where(np.abs(stress) < 2e-35, 0.0, stress)
    theirs = booster.predict(stress, raw_score=True, num_threads=1)
    assert np.array_equal(bits(Model(loaded.ensemble).margins(stress)), bits(theirs))
    labels = (booster.predict(stress, num_threads=1) > 0.5).astype(int)
    assert np.array_equal(Model(loaded.ensemble).predict(stress), labels)


def test_zero_as_missing_is_lost_and_refused():
    booster = light({"objective": "binary", "zero_as_missing": True}, ZEROS)
    model = treelite.frontend.from_lightgbm(booster)
    # The reason: treelite itself no longer agrees with LightGBM on plain rows.
    theirs = treelite.gtil.predict(model, ZEROS, nthread=1, pred_margin=True).reshape(-1)
    assert np.abs(theirs - booster.predict(ZEROS, raw_score=True)).max() > 0.1
    options = LoadOptions(input_precision="float64", missing="zero", tie="lower")
    with pytest.raises(UnsupportedModel, match="Load the LightGBM model itself"):
        TreeliteLoader().load_object(model, options)


def test_the_input_precision_decides_near_thresholds():
    estimator = RandomForestClassifier(9, random_state=0).fit(X, Y)
    model = treelite.sklearn.import_model(estimator)
    by_precision = {}
    for precision in ("float32", "float64"):
        options = LoadOptions(input_precision=precision, missing="nan", tie="lower")
        by_precision[precision] = TreeliteLoader().load_object(model, options)
    rows = stress_rows(by_precision["float32"].ensemble)
    with np.errstate(over="ignore", invalid="ignore"):
        rows = rows[np.isfinite(rows.astype(np.float32)).all(axis=1)]
    ours = Model(by_precision["float32"].ensemble).margins(rows)
    with np.errstate(over="ignore", invalid="ignore"):  # scikit-learn sums rows to check them
        theirs = estimator.predict_proba(rows)
    assert np.array_equal(bits(ours), bits(theirs))
    other = Model(by_precision["float64"].ensemble).margins(rows)
    assert not np.array_equal(bits(other), bits(ours))


@pytest.mark.parametrize("threshold", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "boosting"])
def test_a_decision_threshold_is_a_probability(name, threshold, tmp_path):
    content, options = checkpoint(name)
    loaded = load_bytes(content, tmp_path, **options, decision_threshold=threshold)
    rows = stress_rows(loaded.ensemble)
    model = treelite.Model.deserialize_bytes(content)
    with np.errstate(over="ignore"):
        cast = rows.astype(loaded.ensemble.input_precision)
    probability = treelite.gtil.predict(model, cast, nthread=1).reshape(-1)
    labels = (probability >= threshold).astype(int)
    assert np.array_equal(Model(loaded.ensemble).predict(rows), labels)


def test_ties_go_where_the_option_says(tmp_path):
    content, options = checkpoint("boosting")
    upper = load_bytes(content, tmp_path, **{**options, "tie": "upper"}).ensemble.decision
    lower = load_bytes(content, tmp_path, **{**options, "tie": "lower"}).ensemble.decision
    assert upper.cut == 0.0
    assert lower.cut == 5e-324


def test_all_comparisons_are_understood():
    builder = treelite.model_builder
    for operator, goes_left in (
        ("<", [True, False, False]),
        ("<=", [True, True, False]),
        (">", [False, False, True]),
        (">=", [False, True, True]),
    ):
        for precision in ("float32", "float64"):
            made = builder.ModelBuilder(
                threshold_type=precision,
                leaf_output_type=precision,
                metadata=builder.Metadata(
                    num_feature=1,
                    task_type="kRegressor",
                    average_tree_output=False,
                    num_target=1,
                    num_class=[1],
                    leaf_vector_shape=(1, 1),
                ),
                tree_annotation=builder.TreeAnnotation(num_tree=1, target_id=[0], class_id=[0]),
                postprocessor=builder.PostProcessorFunc(name="identity"),
                base_scores=[0.25],
            )
            made.start_tree()
            made.start_node(0)
            made.numerical_test(
                feature_id=0,
                threshold=1.5,
                default_left=True,
                opname=operator,
                left_child_key=1,
                right_child_key=2,
            )
            made.end_node()
            for key, value in ((1, 10.0), (2, 20.0)):
                made.start_node(key)
                made.leaf(value)
                made.end_node()
            made.end_tree()
            options = LoadOptions(input_precision=precision, missing="nan")
            loaded = TreeliteLoader().load_object(made.commit(), options)
            kind = np.dtype(precision).type
            below = float(np.nextafter(kind(1.5), kind(0)))
            above = float(np.nextafter(kind(1.5), kind(2)))
            rows = np.array([[below], [1.5], [above], [np.nan], [np.inf], [-np.inf]])
            expected = [10.25 if left else 20.25 for left in goes_left]
            margins = Model(loaded.ensemble).margins(rows)
            assert margins[:4].tolist() == [*expected, 10.25]
            assert np.array_equal(bits(margins), bits(loaded.reference.margins(rows)))


@pytest.mark.parametrize(
    ("name", "left_out", "message"),
    [
        ("lightgbm", "input_precision", "'input_precision'"),
        ("lightgbm", "missing", "'missing'"),
        ("lightgbm", "tie", "'tie'"),
        ("forest", "tie", "'tie'"),
        ("xgboost", "missing", "'missing'"),
    ],
)
def test_what_the_format_does_not_carry_must_be_given(name, left_out, message, tmp_path):
    content, options = checkpoint(name)
    given = {key: value for key, value in options.items() if key != left_out}
    with pytest.raises(InvalidInput, match=rf"does not say.*{message}"):
        load_bytes(content, tmp_path, **given)


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("xgboost", {"input_precision": "float64"}, "must be 'float32'"),
        ("xgboost, three classes", {"tie": "upper"}, "must be 'lower'"),
        ("xgboost, three classes", {"decision_threshold": 0.5}, "needs a binary classifier"),
        ("xgboost, regression", {"decision_threshold": 0.5}, "needs a binary classifier"),
        ("forest", {"decision_threshold": 0.5}, "needs a binary classifier"),
        ("xgboost", {"decision_threshold": 0.0}, "above 0 and up to 1"),
    ],
)
def test_options_that_contradict_the_model(name, option, message, tmp_path):
    content, options = checkpoint(name)
    with pytest.raises(InvalidInput, match=message):
        load_bytes(content, tmp_path, **{**options, **option})


def test_scores_need_no_tie_rule(tmp_path):
    content, options = checkpoint("xgboost, regression")
    loaded = load_bytes(content, tmp_path, missing=options["missing"])
    assert loaded.ensemble.decision.kind == "score"


def test_several_targets_are_refused(tmp_path):
    estimator = RandomForestRegressor(2, max_depth=2).fit(X, np.column_stack([TARGET, -TARGET]))
    content = treelite.sklearn.import_model(estimator).serialize_bytes()
    with pytest.raises(UnsupportedModel, match="one target"):
        load_bytes(content, tmp_path, **FLOAT32, missing="nan")


def test_checkpoints_are_known_by_name_or_first_bytes(tmp_path):
    loader = TreeliteLoader()
    content, _ = checkpoint("xgboost")
    assert loader.accepts_file(Path("model.TL"), b"")
    assert loader.accepts_file(Path("model.bin"), content[:4096])
    assert is_checkpoint(content)
    for other in (
        b"",
        b"tree\nversion=v4",
        b"{}",
        b"PK\x03\x04" * 9,
        struct.pack("<iiiBB", 4, 1, 0, 1, 1),
    ):
        assert not loader.accepts_file(Path("model.bin"), other)
    assert not loader.accepts_object(content)
    assert loader.accepts_object(treelite.Model.deserialize_bytes(content))


def test_files_load_without_treelite(tmp_path, monkeypatch):
    content, options = checkpoint("lightgbm, categories")
    expected = load_bytes(content, tmp_path, **options).ensemble.fingerprint
    monkeypatch.setitem(sys.modules, "treelite", None)
    loaded = load_bytes(content, tmp_path, **options)
    assert loaded.ensemble.fingerprint == expected
    assert "cannot be imported" in run_self_test(loaded).provenance.self_test


def test_another_version_of_the_format(tmp_path):
    content, options = checkpoint("xgboost")
    old = struct.pack("<i", 3) + content[4:]
    with pytest.raises(UnsupportedModel, match=r"version 4. Got 3\."):
        load_bytes(old, tmp_path, **options)
    newer = content[:4] + struct.pack("<i", 99) + content[8:]
    notes = load_bytes(newer, tmp_path, **options).ensemble.provenance.notes
    assert any("newer" in note for note in notes)


@pytest.mark.parametrize("name", ["xgboost, categories", "forest"])
def test_every_truncation_is_refused(name, tmp_path):
    content, _ = checkpoint(name)
    ends = np.unique(np.linspace(0, len(content) - 1, 400).astype(int))
    for end in ends:
        with pytest.raises(TreeproofError):
            read_checkpoint(content[:end])
    with pytest.raises(BrokenModelFile, match="3 more bytes"):
        read_checkpoint(content + b"abc")


@pytest.mark.parametrize(
    "name", ["xgboost, categories", "xgboost, vector leaves", "forest", "lightgbm"]
)
def test_flipped_bits_are_errors_or_models_that_treelite_confirms(name, tmp_path):
    content, options = checkpoint(name)
    random = np.random.default_rng(1)
    outcomes = []
    for number in range(120):
        damaged = bytearray(content)
        # Half of the damage goes to the header, where every byte has a meaning.
        span = len(content) if number % 2 else 300
        for place in random.integers(span, size=random.integers(1, 4)):
            damaged[place] ^= 1 << random.integers(8)
        try:
            loaded = load_bytes(bytes(damaged), tmp_path, **options)
            rows = stress_rows(loaded.ensemble, 50)
            if loaded.reference is None:  # a minor version that treelite does not read
                outcomes.append("unconfirmed")
                continue
            ours = bits(Model(loaded.ensemble).margins(rows))
            with np.errstate(all="ignore"):
                assert np.array_equal(ours, bits(loaded.reference.margins(rows)))
            outcomes.append("confirmed")
        except TreeproofError:
            outcomes.append("refused")
    assert outcomes.count("refused") > 20
    assert "confirmed" in outcomes


@pytest.mark.parametrize("count", [0, -1, 2**31 - 1])
def test_counts_that_lie(count, tmp_path):
    content, options = checkpoint("xgboost")
    huge = content[:14] + struct.pack("<q", count) + content[22:]
    with pytest.raises(TreeproofError):
        load_bytes(huge, tmp_path, **options)
    features = content[:22] + struct.pack("<i", count) + content[26:]
    with pytest.raises(TreeproofError):
        load_bytes(features, tmp_path, **options)
