"""CatBoost models, bit for bit: every configuration against the library's own predictions."""

import json
import math
import subprocess
import sys
from pathlib import Path

import catboost as cb
import numpy as np
import pandas as pd
import pytest

from tests.stress_rows import stress_rows
from treeproof.errors import InvalidInput, UnsupportedModel
from treeproof.loaders.base import Loaded, LoadOptions
from treeproof.loaders.catboost.json import catboost_number
from treeproof.loaders.catboost.loader import CatBoostLoader
from treeproof.loaders.self_test import run_self_test
from treeproof.model import evaluate
from treeproof.model.category_hashes import category_hash, category_with_hash
from treeproof.model.domain import accept_float64_rows
from treeproof.prediction import Model

N_ROWS = 10_000
LOADER = CatBoostLoader()
QUIET = {"verbose": 0, "allow_writing_files": False, "thread_count": 1, "random_seed": 1}
NAN = np.nan


def table(n=700, missing=True, seed=0):
    """Five numeric columns: plain, with NaN, whole numbers, tiny and huge ones; and a score."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 5))
    X[:, 2] = random.integers(0, 6, size=n)
    X[:, 3] *= 1e-38
    X[:, 4] *= 1e38
    score = X[:, 0] + X[:, 1] ** 2 + 0.3 * X[:, 2] + np.sign(X[:, 3]) + (X[:, 4] > 3e37)
    if missing:
        gone = random.random(n) < 0.2
        X[gone, 1] = NAN
        score[gone] += 2.0
    return X, score


def thirds(score):
    return np.digitize(score, np.quantile(score, [1 / 3, 2 / 3]))


def classifier(iterations=8, missing=True, labels=None, n=700, **parameters):
    X, score = table(n, missing)
    y = (score > np.median(score)).astype(int) if labels is None else labels(score)
    return cb.CatBoostClassifier(iterations=iterations, **QUIET, **parameters).fit(X, y)


def regressor(iterations=8, target=lambda score: score, **parameters):
    X, score = table()
    return cb.CatBoostRegressor(iterations=iterations, **QUIET, **parameters).fit(X, target(score))


def names_of_thirds(score):
    return np.array(["low", "middle", "high"])[thirds(score)]


def scaled(model, scale, bias):
    model.set_scale_and_bias(scale, bias)
    return model


def with_threshold(model, threshold):
    model.set_probability_threshold(threshold)
    return model


def ranker():
    X, score = table()
    return cb.CatBoostRanker(iterations=6, loss_function="YetiRank", **QUIET).fit(
        X, thirds(score), group_id=np.arange(700) // 70
    )


def stopped_early(*, use_best_model):
    X, score = table()
    y = (score + np.random.default_rng(1).normal(size=700) > 2).astype(int)
    model = cb.CatBoostClassifier(iterations=60, learning_rate=1.0, od_wait=5, **QUIET)
    model.set_params(use_best_model=use_best_model)
    model.fit(X[:400], y[:400], eval_set=(X[400:], y[400:]))
    assert (model.tree_count_ == model.best_iteration_ + 1) == use_best_model
    return model


def only_missing(mode):
    """NaN alone decides, so that CatBoost splits at the largest or smallest float32."""
    X, _ = table()
    y = np.isnan(X[:, 1]).astype(int)
    return cb.CatBoostClassifier(iterations=3, depth=2, nan_mode=mode, **QUIET).fit(X, y)


MODELS = {
    "binary, NaN as smallest": lambda: classifier(nan_mode="Min"),
    "binary, NaN as largest": lambda: classifier(nan_mode="Max"),
    "binary, NaN alone, smallest": lambda: only_missing("Min"),
    "binary, NaN alone, largest": lambda: only_missing("Max"),
    "binary, no NaN in training": lambda: classifier(missing=False),
    "binary, depthwise": lambda: classifier(grow_policy="Depthwise", depth=4),
    "binary, lossguide": lambda: classifier(grow_policy="Lossguide", max_leaves=20),
    "binary, trees of depth 10": lambda: classifier(iterations=4, depth=10),
    "binary, trees without a split": lambda: classifier(depth=0),
    "binary, 200 trees": lambda: classifier(iterations=200, depth=3),
    "binary, ordered boosting": lambda: classifier(boosting_type="Ordered"),
    "binary, cross entropy": lambda: classifier(
        loss_function="CrossEntropy", labels=lambda score: 1 / (1 + np.exp(-score))
    ),
    "binary, classes are booleans": lambda: classifier(labels=lambda score: score > 1),
    "binary, probability threshold 0.3": lambda: with_threshold(classifier(), 0.3),
    "binary, scale and bias": lambda: scaled(classifier(), 0.1, 0.3),
    "binary, best iteration": lambda: stopped_early(use_best_model=True),
    "binary, beyond the best iteration": lambda: stopped_early(use_best_model=False),
    "three classes": lambda: classifier(labels=names_of_thirds),
    "three classes, one against all": lambda: classifier(
        labels=thirds, loss_function="MultiClassOneVsAll"
    ),
    "three classes, lossguide": lambda: classifier(labels=thirds, grow_policy="Lossguide"),
    "three classes, scale and bias": lambda: scaled(
        classifier(labels=thirds), 0.7, [0.1, -0.2, 0.3]
    ),
    "two classes as two outputs": lambda: classifier(loss_function="MultiClass"),
    "labels at once": lambda: classifier(
        loss_function="MultiLogloss", labels=lambda score: np.stack([score > 0, score > 2], 1) + 0
    ),
    "regression": regressor,
    "regression, depthwise": lambda: regressor(grow_policy="Depthwise"),
    "regression, scaled": lambda: scaled(regressor(), 3.3, -7.7),
    "regression, poisson": lambda: regressor(
        loss_function="Poisson", target=lambda score: np.exp(0.2 * score)
    ),
    "regression, quantile": lambda: regressor(loss_function="Quantile:alpha=0.8"),
    "regression with uncertainty": lambda: regressor(loss_function="RMSEWithUncertainty"),
    "regression of two targets": lambda: regressor(
        loss_function="MultiRMSE", target=lambda score: np.stack([score, -score], 1)
    ),
    "ranking": ranker,
}


def library_margins(model, rows):
    raw = cb.CatBoost.predict(model, rows.copy(), prediction_type="RawFormulaVal")
    return np.asarray(raw).reshape(len(rows), -1)


def library_labels(model, rows):
    found = np.asarray(cb.CatBoost.predict(model, rows.copy(), prediction_type="Class"))
    return found.reshape(-1)


def check(loaded: Loaded, model, rows):
    expected = library_margins(model, rows)
    margins = Model(loaded.ensemble).margins(rows).reshape(len(rows), -1)
    assert margins.dtype == np.float64
    assert np.array_equal(margins, expected)
    assert np.array_equal(evaluate.margins(loaded.ensemble, rows[:300]), expected[:300])
    assert np.array_equal(loaded.reference.margins(rows[:300]), expected[:300])
    if loaded.ensemble.decision.kind == "score":
        assert loaded.reference.labels is None
        return
    labels = library_labels(model, rows)
    assert np.array_equal(Model(loaded.ensemble).predict(rows), labels)
    numbers = Model(loaded.ensemble).label_indices(rows[:300])
    assert np.array_equal(loaded.reference.labels(rows[:300]), numbers)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_and_its_files_are_loaded_bit_for_bit(name, tmp_path):
    model = MODELS[name]()
    loaded = LOADER.load_object(model, LoadOptions())
    is_score = name.startswith(("regression", "ranking", "labels"))
    assert (loaded.ensemble.decision.kind == "score") == is_score
    rows = stress_rows(loaded.ensemble, N_ROWS)
    check(loaded, model, rows)
    leaves = model.calc_leaf_indexes(cb.Pool(rows[:500].copy()))
    assert np.array_equal(Model(loaded.ensemble).leaf_indices(rows[:500]), leaves)
    model.save_model(str(tmp_path / "model.cbm"))
    from_binary = load_file(tmp_path / "model.cbm")
    assert from_binary.ensemble.fingerprint == loaded.ensemble.fingerprint
    assert from_binary.ensemble.classes == loaded.ensemble.classes
    assert from_binary.ensemble.provenance.objective == loaded.ensemble.provenance.objective
    assert np.array_equal(from_binary.ensemble.trees.leaf_source, loaded.ensemble.trees.leaf_source)
    assert np.array_equal(
        from_binary.reference.margins(rows[:100]), loaded.reference.margins(rows[:100])
    )
    model.save_model(str(tmp_path / "model.json"), format="json")
    from_json = load_file(tmp_path / "model.json")
    read_back = cb.CatBoost().load_model(str(tmp_path / "model.json"), format="json")
    check(from_json, read_back, rows[-4000:])


def load_file(path, **options):
    assert LOADER.accepts_file(path, path.read_bytes()[:4096])
    return LOADER.load_file(path, LoadOptions(**options))


def test_subnormal_borders_and_values_are_compared_as_they_are():
    random = np.random.default_rng(0)
    X = random.normal(size=(500, 1)) * 1e-41
    model = cb.CatBoostRegressor(iterations=5, depth=3, **QUIET).fit(X, np.sign(X[:, 0]))
    loaded = LOADER.load_object(model, LoadOptions())
    thresholds = loaded.ensemble.trees.threshold
    assert (np.abs(thresholds[thresholds != 0]) < 1e-38).all()
    check(loaded, model, stress_rows(loaded.ensemble, N_ROWS))


def test_a_split_beyond_the_largest_float32_keeps_its_meaning_over_doubles():
    model = only_missing("Max")
    loaded = LOADER.load_object(model, LoadOptions())
    assert 2.0**128 in loaded.ensemble.trees.threshold
    over_doubles = accept_float64_rows(loaded.ensemble)
    turn = 2.0**128 - 2.0**103
    values = [turn, math.nextafter(turn, 0), math.nextafter(turn, math.inf), 1e39, math.inf, NAN]
    rows = np.zeros((len(values), 5))
    rows[:, 1] = values
    expected = library_margins(model, rows)
    assert len(np.unique(expected)) > 1
    assert np.array_equal(evaluate.margins(over_doubles, rows), expected)


def frame(n=600, seed=0):
    random = np.random.default_rng(seed)
    data = pd.DataFrame(
        {
            "amount": random.normal(size=n),
            "colour": random.choice(["red", "green", "blau", "äöü, a rather long category"], n),
            "code": random.choice([0, 3, 17, 255], n),
            "signed": random.choice([-1, 0, 1], n),
            "unused": random.choice(["x", "y"], n),
        }
    )
    y = data["amount"] + 2 * (data["colour"] == "red") - 2 * (data["code"] == 17)
    return data, ((y + (data["signed"] == -1)) > 0.4).astype(int)


CATEGORICAL = ["colour", "code", "signed", "unused"]


def with_categories(**parameters):
    data, y = frame()
    pool = cb.Pool(data, y, cat_features=CATEGORICAL)
    model = cb.CatBoostClassifier(
        iterations=12, depth=4, one_hot_max_size=255, **QUIET, **parameters
    )
    return model.fit(pool), pool


@pytest.mark.parametrize("grow_policy", ["SymmetricTree", "Lossguide"])
def test_one_hot_categories_are_loaded_bit_for_bit(grow_policy, tmp_path):
    model, pool = with_categories(grow_policy=grow_policy)
    data, _ = frame(seed=1)
    data.loc[:50, "colour"] = "never seen"
    data.loc[50:100, "code"] = 99
    loaded = LOADER.load_object(model, LoadOptions())
    check_frame(loaded, model, data)
    rows = stress_rows(loaded.ensemble, N_ROWS)
    margins = Model(loaded.ensemble).margins(rows)
    assert np.array_equal(loaded.reference.margins(rows)[:, 0], margins)
    assert np.array_equal(loaded.reference.labels(rows), Model(loaded.ensemble).label_indices(rows))
    model.save_model(str(tmp_path / "model.cbm"))
    from_binary = load_file(tmp_path / "model.cbm").ensemble
    assert from_binary.fingerprint == loaded.ensemble.fingerprint
    assert from_binary.categories == loaded.ensemble.categories
    assert from_binary.feature_names == loaded.ensemble.feature_names
    for name, saved_with in (("bare.json", None), ("pool.json", pool)):
        model.save_model(str(tmp_path / name), format="json", pool=saved_with)
        read_back = cb.CatBoost().load_model(str(tmp_path / name), format="json")
        check_frame(load_file(tmp_path / name), read_back, data)
    with_texts = load_file(tmp_path / "pool.json").ensemble.categories
    assert "red" in with_texts[1]
    assert set(with_texts[3]) <= {"-1", "0", "1"}


def check_frame(loaded, model, data):
    expected = cb.CatBoost.predict(model, data, prediction_type="RawFormulaVal")
    compiled = Model(loaded.ensemble)
    assert np.array_equal(compiled.margins(data), expected)
    assert len(np.unique(expected)) > 20
    texts = data.astype(dict.fromkeys(CATEGORICAL, str))
    assert np.array_equal(compiled.margins(texts), expected)
    columns = dict.fromkeys(CATEGORICAL, "category")
    assert np.array_equal(compiled.margins(data.astype(columns)), expected)
    assert np.array_equal(compiled.margins(data.to_numpy(dtype=object)), expected)


def test_sums_of_models_are_loaded_bit_for_bit(tmp_path):
    data, y = frame()
    parts = []
    for features in (["amount", "code"], ["amount", "signed", "colour"]):
        others = [name for name in data.columns if name not in features]
        model = cb.CatBoostClassifier(
            iterations=5, one_hot_max_size=255, ignored_features=others, **QUIET
        )
        parts.append(model.fit(cb.Pool(data, y, cat_features=CATEGORICAL)))
    for order in (parts, parts[::-1]):
        total = cb.sum_models(order, weights=[0.3, 1.7])
        check_frame(LOADER.load_object(total, LoadOptions()), total, data)
        total.save_model(str(tmp_path / "model.cbm"))
        check_frame(load_file(tmp_path / "model.cbm"), total, data)


def test_whole_numbers_are_their_own_codes():
    model, _ = with_categories()
    categories = LOADER.load_object(model, LoadOptions()).ensemble.categories
    assert categories[2] == tuple(str(number) for number in range(len(categories[2])))
    assert len(categories[2]) in (18, 256)
    assert all(isinstance(entry, int | str) for entry in categories[1])
    assert categories[4] == () or set(categories) == {1, 2, 3, 4}


def test_categories_that_catboost_refuses_are_refused():
    model, _ = with_categories()
    compiled = Model(LOADER.load_object(model, LoadOptions()).ensemble)
    data, _ = frame(5)
    for strange in (1.0, NAN, None):
        with pytest.raises(InvalidInput, match="must hold strings or whole numbers"):
            compiled.margins(data.astype({"code": object}).assign(code=strange))


def test_category_hashes_are_those_of_catboost(tmp_path):
    random = np.random.default_rng(0)
    lengths = [*range(1, 70), 100, 127, 128, 129, 192, 193, 256, 500]
    words = sorted({"".join(random.choice(list("abcä01-"), length)) for length in lengths})
    data = pd.DataFrame({"c": words * 2, "a": random.normal(size=2 * len(words))})
    y = random.integers(0, 2, len(data))
    pool = cb.Pool(data, y, cat_features=["c"])
    model = cb.CatBoostClassifier(iterations=1, **QUIET).fit(pool)
    model.save_model(str(tmp_path / "model.json"), format="json", pool=pool)
    content = json.loads((tmp_path / "model.json").read_text())
    listed = {
        entry["value"]: entry["hash"] for entry in content["features_info"]["cat_features_hash"]
    }
    assert len(listed) == len(words)
    assert {word: category_hash(word) for word in words} == listed
    for wanted in random.integers(0, 2**32, 200):
        assert category_hash(category_with_hash(int(wanted))) == wanted


def test_numbers_are_read_as_catboost_reads_them(tmp_path):
    model = classifier(iterations=1, depth=2)
    file = tmp_path / "model.json"
    model.save_model(str(file), format="json")
    content = json.loads(file.read_text())
    random = np.random.default_rng(0)
    words = [
        repr(float(x)) for x in random.normal(size=900) * 10.0 ** random.integers(-20, 20, 900)
    ]
    words += [
        repr(float(x)) for x in random.normal(size=90) * 10.0 ** random.integers(-310, -290, 90)
    ]
    words += [
        "0.1234567890123456789012",
        "-98765432109876.54321098765",
        "1e-320",
        "5E+3",
        "0",
        "-0",
    ]
    words += [
        "9007199254740992",
        "0.00000000000000000001234567890123456789",
        "1.7976931348623157e308",
    ]
    words += ["-9007199254740992", "1234567890123456", "1"] * 10
    words = words[: 4 * (len(words) // 4)]
    tree = content["oblivious_trees"][0]
    tree.pop("leaf_weights")
    tree["leaf_values"] = ["VALUES"]
    content["oblivious_trees"] = [tree] * (len(words) // 4)
    text = json.dumps(content)
    for at in range(0, len(words), 4):
        text = text.replace('"VALUES"', ", ".join(words[at : at + 4]), 1)
    file.write_text(text)
    library = cb.CatBoost().load_model(str(file), format="json").get_leaf_values()
    read = np.array([catboost_number(word) for word in words])
    assert np.array_equal(read, library)
    assert (read != [float(word) for word in words]).sum() > 20
    in_order = load_file(file).ensemble.trees
    assert np.array_equal(in_order.leaf_value[:, 0], read[: len(in_order.leaf_value)])


@pytest.mark.parametrize("threshold", [0.5, 0.3, 0.7, 0.987, 1e-9])
def test_a_probability_threshold_is_met_exactly(threshold):
    """The margin itself is set by the bias, over a model whose trees are constant."""
    model = with_threshold(classifier(depth=0, iterations=1), threshold)
    cut = LOADER.load_object(model, LoadOptions()).ensemble.decision.cut
    asked = LOADER.load_object(model, LoadOptions(decision_threshold=threshold))
    own = asked.ensemble.decision.cut
    row = np.zeros((1, 5))
    for margin in (cut, own):
        for value in (margin, math.nextafter(margin, -math.inf), math.nextafter(margin, math.inf)):
            model.set_scale_and_bias(0.0, value)
            assert library_margins(model, row)[0, 0] == value
            assert library_labels(model, row)[0] == (value >= cut)
            assert (model.predict_proba(row)[0, 1] >= threshold) == (value >= own)


def test_a_decision_threshold_labels_by_probability():
    model = classifier()
    loaded = LOADER.load_object(model, LoadOptions(decision_threshold=0.8))
    rows = stress_rows(loaded.ensemble, 2000)
    labels = (model.predict_proba(rows.copy())[:, 1] >= 0.8).astype(int)
    assert 0 < labels.sum() < 2000
    assert np.array_equal(Model(loaded.ensemble).label_indices(rows), labels)
    assert np.array_equal(loaded.reference.labels(rows), labels)
    with pytest.raises(InvalidInput, match="needs a binary classifier"):
        LOADER.load_object(MODELS["three classes"](), LoadOptions(decision_threshold=0.8))
    with pytest.raises(InvalidInput, match="needs a binary classifier"):
        LOADER.load_object(regressor(), LoadOptions(decision_threshold=0.8))


@pytest.mark.parametrize(
    ("loss", "labels"),
    [("Logloss", None), ("MultiClass", names_of_thirds), ("MultiClassOneVsAll", thirds)],
)
def test_classifiers_that_do_not_name_their_classes_number_them(loss, labels, tmp_path):
    model = classifier(loss_function=loss, labels=labels)
    model.save_model(str(tmp_path / "model.json"), format="json")
    content = json.loads((tmp_path / "model.json").read_text())
    del content["model_info"]["class_params"]
    (tmp_path / "model.json").write_text(json.dumps(content))
    loaded = load_file(tmp_path / "model.json")
    opened = cb.CatBoostClassifier().load_model(str(tmp_path / "model.json"), format="json")
    assert loaded.ensemble.classes == tuple(opened.classes_)
    assert "labels equal" in run_self_test(loaded).provenance.self_test


def test_exact_ties_of_classes_go_to_the_first():
    model = scaled(classifier(labels=thirds, depth=0, iterations=1), 1e-320, [0.5, 0.75, 0.75])
    loaded = LOADER.load_object(model, LoadOptions())
    row = np.zeros((1, 5))
    assert np.array_equal(library_margins(model, row), [[0.5, 0.75, 0.75]])
    assert library_labels(model, row)[0] == Model(loaded.ensemble).predict(row)[0] == 1


def test_what_cannot_be_represented_is_refused_with_a_remedy():
    X, score = table()
    y = (score > 2).astype(int)
    with pytest.raises(UnsupportedModel, match="not fitted"):
        LOADER.load_object(cb.CatBoostClassifier(), LoadOptions())
    random = np.random.default_rng(0)
    words = pd.DataFrame(
        {
            "a": X[:, 0],
            "t": random.choice(["the cat sat", "a dog ran"], 700),
            "c": X[:, 2].astype(int),
        }
    )
    text = cb.CatBoostClassifier(iterations=2, text_features=["t"], **QUIET).fit(words, y)
    with pytest.raises(UnsupportedModel, match="text features"):
        LOADER.load_object(text, LoadOptions())
    counted = cb.CatBoostClassifier(
        iterations=4, cat_features=["t", "c"], one_hot_max_size=1, **QUIET
    ).fit(words, y)
    with pytest.raises(UnsupportedModel, match=r"Tree \d, split \d .*one_hot_max_size"):
        LOADER.load_object(counted, LoadOptions())
    model = scaled(classifier(), -1.0, 0.0)
    with pytest.raises(UnsupportedModel, match="scale of a model must be positive"):
        LOADER.load_object(model, LoadOptions())
    with pytest.raises(UnsupportedModel, match="probability threshold"):
        LOADER.load_object(with_threshold(classifier(), 1.0), LoadOptions())
    absent = cb.CatBoostClassifier(iterations=2, class_names=[0, 1, 2, 7], **QUIET)
    with pytest.raises(UnsupportedModel, match="all occur in the training data"):
        LOADER.load_object(absent.fit(X, thirds(score)), LoadOptions())


def test_files_are_read_without_catboost(tmp_path, monkeypatch):
    model = classifier()
    rows = stress_rows(LOADER.load_object(model, LoadOptions()).ensemble, 500)
    for name, kind in (("model.cbm", "cbm"), ("model.json", "json")):
        model.save_model(str(tmp_path / name), format=kind)
    read_back = cb.CatBoost().load_model(str(tmp_path / "model.json"), format="json")
    expected = {
        "model.cbm": library_margins(model, rows)[:, 0],
        "model.json": library_margins(read_back, rows)[:, 0],
    }
    monkeypatch.setitem(sys.modules, "catboost", None)
    for name, margins in expected.items():
        loaded = load_file(tmp_path / name)
        outcome = run_self_test(loaded).provenance.self_test
        assert outcome == "not run: catboost cannot be imported"
        assert np.array_equal(Model(loaded.ensemble).margins(rows), margins)


def test_the_provenance_tells_what_was_read(tmp_path, monkeypatch):
    model = MODELS["regression, poisson"]()
    model.save_model(str(tmp_path / "model.json"), format="json")
    from_file = load_file(tmp_path / "model.json").ensemble.provenance
    assert (from_file.library, from_file.library_version) == ("catboost", cb.__version__)
    assert from_file.objective == "Poisson"
    assert len(from_file.file_sha256) == 64
    assert any("last" in note and ".cbm" in note for note in from_file.notes)
    monkeypatch.setattr(cb, "__version__", "3.0.1")
    notes = LOADER.load_object(model, LoadOptions()).ensemble.provenance.notes
    assert any("3.0.1 is newer" in note for note in notes)
    assert any("exp(x)" in note for note in notes)


def test_feature_names_come_from_the_frame():
    model, _ = with_categories()
    ensemble = LOADER.load_object(model, LoadOptions()).ensemble
    assert ensemble.feature_names == ("amount", *CATEGORICAL)
    assert LOADER.load_object(classifier(), LoadOptions()).ensemble.feature_names == ()


def test_objects_are_told_apart_without_importing_catboost():
    assert LOADER.accepts_object(cb.CatBoostRanker())
    assert not LOADER.accepts_object(pd.DataFrame())
    assert not LOADER.accepts_file(Path("model.json"), b'{"learner": {}}')
    code = "import sys, treeproof.loaders.catboost.loader; assert 'catboost' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
