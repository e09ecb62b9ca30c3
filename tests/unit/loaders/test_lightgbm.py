"""LightGBM models, bit for bit: every configuration against the library's own predictions."""

import re
import sys
import warnings
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest

from tests.stress_rows import stress_rows
from treeproof.errors import BrokenModelFile, InvalidInput, UnsupportedModel
from treeproof.loaders.base import Loaded, LoadOptions
from treeproof.loaders.lightgbm.loader import LightGBMLoader
from treeproof.loaders.self_test import run_self_test
from treeproof.model import evaluate
from treeproof.model.ensemble import ZERO_BAND
from treeproof.prediction import Model

N_ROWS = 10_000
LOADER = LightGBMLoader()
QUIET = {"verbosity": -1, "num_threads": 1, "deterministic": True, "seed": 1}
NAN = np.nan


def table(n=900, seed=0):
    """Six numeric columns: plain, with NaN, with zeros, whole numbers, tiny and huge ones."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 6))
    X[random.random(n) < 0.25, 1] = NAN
    X[random.random(n) < 0.4, 2] = 0.0
    X[:, 3] = random.integers(0, 9, size=n)
    X[:, 4] *= 1e-35
    X[:, 5] *= 1e300
    score = X[:, 0] + np.where(np.isnan(X[:, 1]), 1.0, X[:, 1]) - 2 * (X[:, 2] == 0)
    return X, score + 0.5 * np.isin(X[:, 3], [1, 4, 7]) + np.sign(X[:, 4]) + 1e-300 * X[:, 5]


def train(rounds=12, labels=None, n=900, categorical=(), keep=False, **parameters):
    X, score = table(n)
    y = (score > np.median(score)).astype(float) if labels is None else labels(score)
    data = lgb.Dataset(X, y, categorical_feature=list(categorical))
    return lgb.train({**QUIET, **parameters}, data, rounds, keep_training_booster=keep)


def thirds(score):
    return np.digitize(score, np.quantile(score, [1 / 3, 2 / 3])).astype(float)


def positive(score):
    return np.exp(0.3 * score)


def unit(score):
    return 1 / (1 + np.exp(-score))


def ranked(rounds=8):
    X, score = table()
    data = lgb.Dataset(X, thirds(score), group=[90] * 10)
    return lgb.train({**QUIET, "objective": "lambdarank"}, data, rounds)


def custom():
    X, score = table()

    def gradient(prediction, data):
        return prediction - data.get_label(), np.ones_like(prediction)

    return lgb.train({**QUIET, "objective": gradient}, lgb.Dataset(X, score), 6)


BOOSTERS = {
    "binary, NaN is missing": lambda: train(objective="binary"),
    "binary, one leaf per tree": lambda: train(objective="binary", min_data_in_leaf=2000),
    "binary, sigmoid 2.137, deep": lambda: train(
        objective="binary", sigmoid=2.137, num_leaves=80, min_data_in_leaf=2, max_depth=20
    ),
    "binary, zero as missing": lambda: train(objective="binary", zero_as_missing=True),
    "binary, no missing values": lambda: train(objective="binary", use_missing=False),
    "binary, categories": lambda: train(
        objective="binary", categorical=[3], min_data_per_group=1, cat_smooth=0.1
    ),
    "binary, categories one by one, zero as missing": lambda: train(
        objective="binary", categorical=[3], max_cat_to_onehot=30, zero_as_missing=True
    ),
    "binary, dart": lambda: train(objective="binary", boosting="dart", drop_rate=0.5),
    "binary, goss": lambda: train(
        objective="binary", data_sample_strategy="goss", learning_rate=0.5
    ),
    "binary, averaged forest": lambda: train(
        objective="binary", boosting="rf", bagging_freq=1, bagging_fraction=0.6, rounds=7
    ),
    "multiclass": lambda: train(objective="multiclass", num_class=3, labels=thirds),
    "multiclass, averaged forest": lambda: train(
        objective="multiclass",
        num_class=3,
        labels=thirds,
        boosting="rf",
        bagging_freq=1,
        bagging_fraction=0.6,
        rounds=7,
    ),
    "one against all, sigmoid 3.3, saturated": lambda: train(
        objective="multiclassova",
        num_class=3,
        labels=thirds,
        sigmoid=3.3,
        learning_rate=2.0,
        rounds=40,
    ),
    "cross entropy": lambda: train(objective="cross_entropy", labels=unit),
    "cross entropy lambda": lambda: train(objective="cross_entropy_lambda", labels=unit),
    "regression": lambda: train(objective="regression", labels=lambda score: score),
    "regression of square roots": lambda: train(
        objective="regression", reg_sqrt=True, labels=lambda score: score
    ),
    "quantile": lambda: train(objective="quantile", alpha=0.9, labels=lambda score: score),
    "huber, extra trees": lambda: train(
        objective="huber", extra_trees=True, labels=lambda score: score
    ),
    "poisson, monotone": lambda: train(
        objective="poisson", labels=positive, monotone_constraints=[1, 0, 0, 0, 0, 0]
    ),
    "tweedie": lambda: train(objective="tweedie", labels=positive),
    "ranking": ranked,
    "objective of the user": custom,
}


@pytest.mark.parametrize("name", BOOSTERS)
def test_a_booster_and_its_file_are_loaded_bit_for_bit(name, tmp_path):
    booster = BOOSTERS[name]()
    loaded = LOADER.load_object(booster, LoadOptions())
    rows = stress_rows(loaded.ensemble, N_ROWS)
    margins = booster.predict(rows, raw_score=True).reshape(N_ROWS, -1)
    check_margins(loaded, rows, margins)
    assert np.array_equal(
        Model(loaded.ensemble).leaf_indices(rows[:500]), booster.predict(rows[:500], pred_leaf=True)
    )
    check_labels(loaded, rows, booster.predict(rows))
    file = tmp_path / "model.txt"
    booster.save_model(file)
    head = file.read_bytes()[:4096]
    assert LOADER.accepts_file(file, head)
    from_file = LOADER.load_file(file, LoadOptions())
    assert from_file.ensemble.fingerprint == loaded.ensemble.fingerprint
    assert np.array_equal(from_file.reference.margins(rows[:200]), margins[:200])


def check_margins(loaded: Loaded, rows, expected):
    margins = Model(loaded.ensemble).margins(rows).reshape(len(rows), -1)
    assert margins.dtype == np.float64
    assert np.array_equal(margins, expected)
    assert np.array_equal(evaluate.margins(loaded.ensemble, rows[:300]), expected[:300])
    assert np.array_equal(loaded.reference.margins(rows[:300]), expected[:300])


def check_labels(loaded: Loaded, rows, output):
    """What LGBMClassifier makes of LightGBM's output: the first largest probability."""
    if loaded.ensemble.decision.kind == "score":
        assert loaded.reference.labels is None
        assert loaded.ensemble.classes == ()
        return
    if output.ndim == 1:
        output = np.vstack((1.0 - output, output)).transpose()
    labels = np.argmax(output, axis=1)
    assert len(np.unique(labels)) > 1 or loaded.ensemble.n_leaves == loaded.ensemble.n_trees
    assert np.array_equal(Model(loaded.ensemble).label_indices(rows), labels)
    assert np.array_equal(loaded.reference.labels(rows[:300]), labels[:300])


def frame(n=600, seed=0):
    random = np.random.default_rng(seed)
    data = pd.DataFrame(
        {
            "amount": random.normal(size=n),
            "colour": pd.Categorical(random.choice(["red", "green", "blue"], n)),
            "size": pd.Categorical(
                random.choice(["S", "M", "L"], n), categories=["S", "M", "L"], ordered=True
            ),
            "zip": pd.Categorical(random.choice([10, 20, 30, 40], n)),
        }
    )
    data.loc[random.random(n) < 0.1, "colour"] = None
    y = (data["amount"] + (data["colour"] == "red") + (data["zip"] == 20) > 0.6).to_numpy()
    return data, np.where(y, "yes", "no")


ESTIMATORS = {
    "classifier, names as classes": lambda X, s: lgb.LGBMClassifier(n_estimators=9, **SK).fit(
        X, np.where(s > 0, "b", "a")
    ),
    "classifier, three classes": lambda X, s: lgb.LGBMClassifier(n_estimators=5, **SK).fit(
        X, thirds(s).astype(int) * 10 - 10
    ),
    "classifier, one against all": lambda X, s: lgb.LGBMClassifier(
        objective="multiclassova", n_estimators=5, **SK
    ).fit(X, thirds(s).astype(int)),
    "classifier, averaged forest": lambda X, s: lgb.LGBMClassifier(
        boosting_type="rf", subsample=0.5, subsample_freq=1, n_estimators=6, **SK
    ).fit(X, s > 0),
    "classifier, unbalanced": lambda X, s: lgb.LGBMClassifier(
        is_unbalance=True, n_estimators=6, **SK
    ).fit(X, s > 2),
    "regressor": lambda X, s: lgb.LGBMRegressor(n_estimators=6, **SK).fit(X, s),
    "regressor, gamma": lambda X, s: lgb.LGBMRegressor(objective="gamma", **SK).fit(X, positive(s)),
    "ranker": lambda X, s: lgb.LGBMRanker(n_estimators=6, **SK).fit(X, thirds(s), group=[90] * 10),
}
SK = {"verbosity": -1, "n_jobs": 1}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_is_loaded_bit_for_bit(name):
    estimator = ESTIMATORS[name](*table())
    loaded = LOADER.load_object(estimator, LoadOptions())
    rows = stress_rows(loaded.ensemble, N_ROWS)
    check_margins(loaded, rows, estimator.predict(rows, raw_score=True).reshape(N_ROWS, -1))
    if hasattr(estimator, "classes_"):
        assert loaded.ensemble.classes == tuple(estimator.classes_.tolist())
        assert np.array_equal(Model(loaded.ensemble).predict(rows), estimator.predict(rows))
        labels = Model(loaded.ensemble).label_indices(rows[:300])
        assert np.array_equal(loaded.reference.labels(rows[:300]), labels)
    else:
        assert loaded.ensemble.decision.kind == "score"


def test_early_stopping_keeps_the_trees_that_predict_uses():
    X, score = table(1500)
    y = (score + np.random.default_rng(3).normal(size=1500) > 0).astype(int)
    estimator = lgb.LGBMClassifier(n_estimators=60, learning_rate=0.5, **SK)
    with warnings.catch_warnings():
        # Renamed in LightGBM 4.7; the old name works in all versions.
        warnings.filterwarnings("ignore", message="The argument 'eval_set' is deprecated")
        estimator.fit(
            X[:700],
            y[:700],
            eval_set=[(X[700:], y[700:])],
            callbacks=[lgb.early_stopping(5, verbose=False)],
        )
    loaded = LOADER.load_object(estimator, LoadOptions())
    assert loaded.ensemble.n_trees == estimator.best_iteration_ < 60
    rows = stress_rows(loaded.ensemble, N_ROWS)
    check_margins(loaded, rows, estimator.predict(rows, raw_score=True)[:, None])
    assert np.array_equal(Model(loaded.ensemble).predict(rows), estimator.predict(rows))


def test_a_kept_booster_predicts_with_its_best_iteration_only(tmp_path):
    booster = train(objective="binary", keep=True)
    booster.best_iteration = 5
    loaded = LOADER.load_object(booster, LoadOptions())
    assert loaded.ensemble.n_trees == 5
    assert any("5 trees" in note and "12" in note for note in loaded.ensemble.provenance.notes)
    rows = stress_rows(loaded.ensemble, N_ROWS)
    check_margins(loaded, rows, booster.predict(rows, raw_score=True)[:, None])
    # A file holds what its booster predicts with, and whoever opens it predicts with all of that.
    for n_trees in (5, 12):
        booster.save_model(tmp_path / "model.txt", num_iteration=None if n_trees == 5 else -1)
        file = LOADER.load_file(tmp_path / "model.txt", LoadOptions())
        assert file.ensemble.n_trees == n_trees
        opened = lgb.Booster(model_file=tmp_path / "model.txt")
        check_margins(file, rows, opened.predict(rows, raw_score=True)[:, None])


def test_categories_of_data_frames_become_their_codes():
    data, y = frame()
    data = data.drop(columns="size")
    estimator = lgb.LGBMClassifier(n_estimators=8, min_data_per_group=1, cat_smooth=0.1, **SK)
    estimator.fit(data, y)
    loaded = LOADER.load_object(estimator, LoadOptions())
    assert loaded.ensemble.categories == {1: ("blue", "green", "red"), 2: (10, 20, 30, 40)}
    model = Model(loaded.ensemble)
    assert np.array_equal(model.margins(data), estimator.predict(data, raw_score=True))
    assert np.array_equal(model.predict(data), estimator.predict(data))
    unseen = data.assign(colour=pd.Categorical(["violet"] * len(data)))
    assert np.array_equal(model.margins(unseen), estimator.predict(unseen, raw_score=True))
    rows = stress_rows(loaded.ensemble, N_ROWS)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        check_margins(loaded, rows, estimator.predict(rows, raw_score=True)[:, None])


def test_ordered_categories_become_codes_of_a_numeric_feature():
    data, y = frame()
    booster = lgb.train(
        {**QUIET, "objective": "binary", "min_data_per_group": 1, "cat_smooth": 0.1},
        lgb.Dataset(data, (y == "yes").astype(float)),
        5,
    )
    loaded = LOADER.load_object(booster, LoadOptions())
    assert loaded.ensemble.categories[2] == ("S", "M", "L")
    model = Model(loaded.ensemble)
    assert np.array_equal(model.margins(data), booster.predict(data, raw_score=True))


def test_columns_whose_categories_cannot_be_placed_are_refused():
    data, y = frame()
    data["other"] = np.random.default_rng(0).integers(0, 3, len(data))
    booster = lgb.train(
        {**QUIET, "objective": "binary"}, lgb.Dataset(data, (y == "yes").astype(float)), 5
    )
    with pytest.raises(UnsupportedModel, match="does not tell which features"):
        LOADER.load_object(booster, LoadOptions())


def test_a_split_between_missing_and_present_values_is_exact_for_infinities():
    random = np.random.default_rng(0)
    X = random.normal(size=(800, 2))
    X[random.random(800) < 0.3, 0] = NAN
    booster = lgb.train(
        {**QUIET, "objective": "regression", "num_leaves": 4},
        lgb.Dataset(X, np.isnan(X[:, 0]) + 0.0),
        2,
    )
    assert "threshold=inf" in booster.model_to_string()
    loaded = LOADER.load_object(booster, LoadOptions())
    assert np.isneginf(loaded.ensemble.trees.threshold).any()
    rows = stress_rows(loaded.ensemble, N_ROWS)
    assert np.isinf(rows).any()
    check_margins(loaded, rows, booster.predict(rows, raw_score=True)[:, None])


def one_split(threshold, decision_type=2, leaves=("-1", "1"), objective="binary sigmoid:1"):
    """A model file with one split of one feature."""
    tree = (
        "num_leaves=2\nnum_cat=0\nsplit_feature=0\nsplit_gain=1\n"
        f"threshold={threshold}\ndecision_type={decision_type}\nleft_child=-1\nright_child=-2\n"
        f"leaf_value={' '.join(leaves)}\nis_linear=0\nshrinkage=1\n\n\n"
    )
    return header(1, objective) + "Tree=0\n" + tree + "end of trees\n"


def header(n_outputs, objective):
    return (
        f"tree\nversion=v4\nnum_class={n_outputs}\nnum_tree_per_iteration={n_outputs}\n"
        f"label_index=0\nmax_feature_idx=0\nobjective={objective}\nfeature_names=a\n"
        "feature_infos=[-1:1]\n\n"
    )


def constant_model(scores, objective):
    trees = "".join(
        f"Tree={number}\nnum_leaves=1\nnum_cat=0\nleaf_value={score!r}\nis_linear=0\nshrinkage=1\n"
        "\n\n"
        for number, score in enumerate(scores)
    )
    return header(len(scores), objective) + trees + "end of trees\n"


def load_text(text, tmp_path, **options):
    file = tmp_path / "model.txt"
    file.write_text(text)
    return LOADER.load_file(file, LoadOptions(**options))


@pytest.mark.parametrize("decision_type", [0, 2, 4, 6, 8, 10])
def test_thresholds_in_and_around_the_band_that_counts_as_zero(decision_type, tmp_path):
    band = ZERO_BAND
    above = float(np.nextafter(band, 1))
    values = [0.0, -0.0, band, -band, above, -above, 1e-36, -1e-36, 5e-324, -5e-324, 1e-34, -1e-34]
    values += [np.inf, -np.inf, 1e300, sys.float_info.max, -sys.float_info.max, NAN]
    rows = np.array(values)[:, None]
    for threshold in [*values[:15], -1.0]:
        text = one_split(repr(float(threshold)), decision_type)
        loaded = load_text(text, tmp_path)
        expected = lgb.Booster(model_str=text).predict(rows, raw_score=True)[:, None]
        check_margins(loaded, rows, expected)


def test_the_largest_double_as_threshold_is_refused(tmp_path):
    with pytest.raises(UnsupportedModel, match="Tree 0, node 0 splits at the largest double"):
        load_text(one_split(repr(sys.float_info.max)), tmp_path)


def test_small_positive_margins_are_class_zero(tmp_path):
    """The probability 0.5 belongs to class 0, and margins up to 1.6e-16 have it."""
    cut = load_text(one_split(0.0), tmp_path).ensemble.decision.cut
    assert 1e-17 < cut < 1e-15
    for margin, label in [(cut, 1), (float(np.nextafter(cut, 0)), 0), (0.0, 0)]:
        probability = lgb.Booster(model_str=constant_model([margin], "binary sigmoid:1")).predict(
            np.zeros((1, 1))
        )
        assert np.argmax([1 - probability[0], probability[0]]) == label


def test_a_decision_threshold_is_met_exactly(tmp_path):
    for threshold in (0.5, 0.3, 0.987, 1e-9, 1.0):
        loaded = load_text(one_split(0.0), tmp_path, decision_threshold=threshold)
        cut = loaded.ensemble.decision.cut
        for margin, reached in [(cut, True), (float(np.nextafter(cut, -np.inf)), False)]:
            booster = lgb.Booster(model_str=constant_model([margin], "binary sigmoid:1"))
            assert (booster.predict(np.zeros((1, 1)))[0] >= threshold) == reached
        rows = np.array([[-1.0], [1.0]])
        assert np.array_equal(
            loaded.reference.labels(rows), Model(loaded.ensemble).label_indices(rows)
        )


@pytest.mark.parametrize("threshold", [0.0, -0.1, 1.1, NAN])
def test_a_threshold_that_is_no_probability_is_refused(threshold, tmp_path):
    with pytest.raises(InvalidInput, match="must be a probability"):
        load_text(one_split(0.0), tmp_path, decision_threshold=threshold)


@pytest.mark.parametrize("objective", ["regression", "multiclass num_class:1"])
def test_a_threshold_for_a_model_without_probability_is_refused(objective, tmp_path):
    with pytest.raises(InvalidInput, match="needs a binary classifier"):
        load_text(one_split(0.0, objective=objective), tmp_path, decision_threshold=0.5)


@pytest.mark.parametrize(
    "kind", ["multiclass num_class:{k}", "multiclassova num_class:{k} sigmoid"]
)
def test_near_ties_of_many_classes_are_decided_as_lightgbm_decides_them(kind, tmp_path):
    random = np.random.default_rng(5)
    changed = 0
    for _ in range(120):
        k = int(random.integers(2, 14))
        sigmoid = float(random.integers(100, 4000) / 1000)
        objective = kind.format(k=k) + (f":{sigmoid}" if kind.endswith("sigmoid") else "")
        scores = random.normal(size=k) * random.choice([0.05, 1.0, 30.0])
        first, second = sorted(random.choice(k, size=2, replace=False))
        scores[second] = scores.max()
        scores[first] = scores.max() - random.integers(0, 4) * np.spacing(scores.max())
        text = constant_model(scores.tolist(), objective)
        ensemble = load_text(text, tmp_path).ensemble
        expected = np.argmax(lgb.Booster(model_str=text).predict(np.zeros((1, 1)))[0])
        assert Model(ensemble).label_indices(np.zeros((1, 1)))[0] == expected
        changed += expected != np.argmax(scores)
    assert changed > 5  # otherwise the margins alone would have decided


def test_files_are_read_without_lightgbm(tmp_path, monkeypatch):
    booster = BOOSTERS["binary, categories"]()
    rows = stress_rows(LOADER.load_object(booster, LoadOptions()).ensemble, 500)
    expected = booster.predict(rows, raw_score=True)
    booster.save_model(tmp_path / "model.txt")
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    loaded = LOADER.load_file(tmp_path / "model.txt", LoadOptions())
    outcome = run_self_test(loaded).provenance.self_test
    assert outcome == "not run: lightgbm cannot be imported"
    assert np.array_equal(Model(loaded.ensemble).margins(rows), expected)


def test_the_provenance_tells_what_was_read(tmp_path):
    booster = BOOSTERS["poisson, monotone"]()
    booster.save_model(tmp_path / "model.txt")
    from_object = LOADER.load_object(booster, LoadOptions()).ensemble.provenance
    assert (from_object.library, from_object.library_version) == ("lightgbm", lgb.__version__)
    assert from_object.objective == "poisson"
    assert any("exp(x)" in note for note in from_object.notes)
    from_file = LOADER.load_file(tmp_path / "model.txt", LoadOptions()).ensemble.provenance
    assert len(from_file.file_sha256) == 64
    assert from_file.source == "model.txt"


def test_a_newer_library_is_noted(monkeypatch):
    booster = BOOSTERS["ranking"]()
    monkeypatch.setattr(lgb, "__version__", "9.1.0")
    notes = LOADER.load_object(booster, LoadOptions()).ensemble.provenance.notes
    assert any("9.1.0 is newer" in note for note in notes)


def test_an_old_file_format_is_noted_and_an_unknown_one_refused(tmp_path):
    old = one_split(0.5).replace("version=v4", "version=v3")
    notes = load_text(old, tmp_path).ensemble.provenance.notes
    assert any("format v3" in note for note in notes)
    with pytest.raises(UnsupportedModel, match="must be v3 or v4"):
        load_text(old.replace("version=v3", "version=v5"), tmp_path)


def test_linear_trees_are_refused_with_tree_and_remedy():
    booster = train(objective="regression", linear_tree=True, labels=lambda score: score)
    with pytest.raises(UnsupportedModel, match=r"Tree \d+, leaf 0 .*linear_tree=false"):
        LOADER.load_object(booster, LoadOptions())


def test_what_is_no_fixed_sum_of_trees_is_refused():
    X, score = table()
    with pytest.raises(UnsupportedModel, match="not fitted"):
        LOADER.load_object(lgb.LGBMClassifier(), LoadOptions())
    stopping = lgb.LGBMClassifier(n_estimators=3, pred_early_stop=True, **SK).fit(X, score > 0)
    with pytest.raises(UnsupportedModel, match="pred_early_stop"):
        LOADER.load_object(stopping, LoadOptions())
    folds = lgb.cv(
        {**QUIET, "objective": "regression"},
        lgb.Dataset(X, score),
        2,
        stratified=False,
        return_cvbooster=True,
    )["cvbooster"]
    with pytest.raises(UnsupportedModel, match="Pass one of its boosters"):
        LOADER.load_object(folds, LoadOptions())
    untrained = lgb.Booster({**QUIET, "objective": "binary"}, lgb.Dataset(X, score > 0))
    with pytest.raises(UnsupportedModel, match="at least one tree"):
        LOADER.load_object(untrained, LoadOptions())
    regressing = lgb.LGBMClassifier(objective="regression", n_estimators=2, **SK).fit(X, score > 0)
    with pytest.raises(UnsupportedModel, match="gives no probabilities"):
        LOADER.load_object(regressing, LoadOptions())


def test_a_classifier_with_an_objective_of_the_user_gives_scores():
    X, score = table()

    def gradient(labels, prediction):
        return prediction - labels, np.ones_like(prediction)

    estimator = lgb.LGBMClassifier(objective=gradient, n_estimators=4, **SK).fit(X, score > 0)
    loaded = LOADER.load_object(estimator, LoadOptions())
    assert loaded.ensemble.decision.kind == "score"
    rows = stress_rows(loaded.ensemble, 2000)
    check_margins(loaded, rows, estimator.predict(rows, raw_score=True)[:, None])


def test_objects_are_told_apart_without_importing_lightgbm():
    assert LOADER.accepts_object(lgb.LGBMRegressor())
    assert LOADER.accepts_object(train(rounds=1, objective="binary"))
    assert not LOADER.accepts_object(pd.DataFrame())
    assert not LOADER.accepts_file(Path("model.txt"), b"treetop\n")
    code = "import sys, treeproof.loaders.lightgbm.loader; assert 'lightgbm' not in sys.modules"
    import subprocess

    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_edited_file_is_refused_as_lightgbm_refuses_it(tmp_path):
    text = BOOSTERS["regression"]().model_to_string()
    longer = re.sub(r"leaf_value=(\S)", r"leaf_value= \1", text, count=1)
    with pytest.raises(BrokenModelFile, match="tree_sizes"):
        load_text(longer, tmp_path)
