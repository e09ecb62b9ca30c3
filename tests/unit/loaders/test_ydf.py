"""YDF models: scores and labels bit-equal to YDF's, live and from directories."""

import shutil
from functools import cache

import numpy as np
import pandas as pd
import pytest

from tests.stress_rows import stress_rows
from tests.unit.loaders.sklearn_cases import TARGET, Y3, X, Y, with_missing
from treeproof.errors import BrokenModelFile, InvalidInput, TreeproofError, UnsupportedModel
from treeproof.loaders import load_ensemble
from treeproof.loaders.base import LoadOptions
from treeproof.loaders.ydf.loader import YdfLoader
from treeproof.model import evaluate
from treeproof.prediction import Model

ydf = pytest.importorskip("ydf")  # which is not there for the newest Python
LOADER = YdfLoader()


def columns(rows=X):
    return {f"f{number}": rows[:, number].astype(np.float32) for number in range(rows.shape[1])}


@cache
def frame():
    random = np.random.default_rng(0)
    n = 600
    data = pd.DataFrame(
        {
            "size": random.normal(size=n),
            "town": random.choice(
                ["Delft", "Gouda", "Leiden", "Breda"], n, p=[0.5, 0.3, 0.15, 0.05]
            ),
            "new": random.random(n) > 0.5,
            "rooms": random.integers(0, 6, n),
        }
    )
    data.loc[random.random(n) < 0.1, "size"] = np.nan
    data.loc[random.random(n) < 0.1, "town"] = ""
    score = data["size"].fillna(0) + (data["town"] == "Gouda") - data["new"] + data["rooms"] / 3
    data["sold"] = np.where(score > 0.5, "yes", "no")
    return data


def boosted(target=Y, rows=X, **given):
    settings = {"num_trees": 12, "max_depth": 5, **given}
    return trained(ydf.GradientBoostedTreesLearner, columns(rows) | {"y": target}, "y", **settings)


def forest(target=Y, rows=X, **given):
    settings = {"num_trees": 15, "max_depth": 6, **given}
    return trained(ydf.RandomForestLearner, columns(rows) | {"y": target}, "y", **settings)


def trained(learner, data, label, **given):
    ydf.verbose(0)
    return learner(label=label, num_threads=1, **given).train(data)


SCORE = {"task": ydf.Task.REGRESSION}
CASES = {
    "boosted": boosted,
    "boosted, missing": lambda: boosted(rows=with_missing()),
    "boosted, score": lambda: boosted(TARGET, **SCORE),
    "boosted, poisson": lambda: boosted(np.round(np.abs(TARGET)), loss="POISSON", **SCORE),
    "boosted, absolute error": lambda: boosted(TARGET, loss="MEAN_AVERAGE_ERROR", **SCORE),
    "boosted, large trees": lambda: boosted(TARGET, max_depth=12, min_examples=1, **SCORE),
    "boosted, logits": lambda: boosted(apply_link_function=False),
    "boosted, focal": lambda: boosted(loss="BINARY_FOCAL_LOSS"),
    "boosted, discretised": lambda: boosted(discretize_numerical_columns=True),
    "boosted, best first": lambda: boosted(growing_strategy="BEST_FIRST_GLOBAL"),
    "boosted, of a frame": lambda: trained(
        ydf.GradientBoostedTreesLearner, frame(), "sold", num_trees=9, max_depth=5
    ),
    "boosted, few categories": lambda: trained(
        ydf.GradientBoostedTreesLearner, frame(), "sold", num_trees=9, min_vocab_frequency=50
    ),
    "forest": forest,
    "forest, probabilities": lambda: forest(winner_take_all=False),
    "forest, three classes": lambda: forest(Y3),
    "forest, three classes, probabilities": lambda: forest(Y3, winner_take_all=False),
    "forest, score": lambda: forest(TARGET, **SCORE),
    "forest, of a frame": lambda: trained(
        ydf.RandomForestLearner, frame(), "sold", num_trees=9, winner_take_all=False
    ),
    "tree": lambda: trained(ydf.CartLearner, columns() | {"y": Y}, "y"),
}
QUICK = (
    "boosted",
    "boosted, missing",
    "boosted, large trees",
    "boosted, of a frame",
    "boosted, logits",
)
QUICK += ("forest, three classes, probabilities", "forest, of a frame", "boosted, discretised")
NAMES = [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in CASES]


def saved(model, folder):
    path = folder / "model"
    model.save(str(path))
    return path


def assert_same(loaded):
    ensemble, reference = loaded.ensemble, loaded.reference
    rows = reference.feedable(stress_rows(ensemble, 10_000))
    margins = evaluate.margins(ensemble, rows)
    assert np.array_equal(Model(ensemble).margins(rows).reshape(margins.shape), margins)
    assert np.array_equal(reference.shown(margins), reference.margins(rows))
    assert len(np.unique(margins)) > 5
    if reference.labels is not None:
        labels = evaluate.label_indices(ensemble, margins)
        assert np.array_equal(labels, reference.labels(rows))
        assert len(np.unique(labels)) > 1


@pytest.mark.parametrize("name", NAMES)
def test_scores_and_labels_are_those_of_ydf(name, tmp_path):
    model = CASES[name]()
    live = LOADER.load_object(model, LoadOptions())
    assert_same(live)
    stored = LOADER.load_file(saved(model, tmp_path), LoadOptions())
    assert stored.ensemble.fingerprint == live.ensemble.fingerprint


def test_a_directory_is_loaded_and_tested(tmp_path):
    ensemble = load_ensemble(str(saved(CASES["boosted"](), tmp_path)))
    assert ensemble.provenance.self_test == "passed: margins of 2,000 rows bit-equal, labels equal"
    assert ensemble.classes == ("0", "1")
    with pytest.raises(InvalidInput, match="a directory of YDF"):
        load_ensemble(tmp_path)


def test_compressed_nodes_are_read(tmp_path):
    model = CASES["boosted"]()
    plain = LOADER.load_object(model, LoadOptions()).ensemble
    model.set_node_format(ydf.NodeFormat.BLOB_SEQUENCE_GZIP)
    packed = LOADER.load_file(saved(model, tmp_path), LoadOptions()).ensemble
    assert packed.fingerprint == plain.fingerprint


def test_names_that_training_never_saw_are_not_missing():
    model = CASES["boosted, of a frame"]()
    data = frame().head(60).drop(columns="sold").copy()
    data.loc[:20, "town"] = "Atlantis"
    data.loc[20:40, "town"] = ""
    rows = data.assign(town=[None if name == "" else name for name in data["town"]])
    assert np.array_equal(Model(load_ensemble(model)).predict(rows), model.predict_class(data))


def test_a_decision_threshold_is_one_on_probabilities():
    model = CASES["boosted"]()
    ensemble = load_ensemble(model, options=LoadOptions(decision_threshold=0.7))
    expected = (model.predict(columns()) >= np.float32(0.7)).astype(int).astype(str)
    assert np.array_equal(Model(ensemble).predict(X), expected)


def test_files_are_read_without_ydf(tmp_path, monkeypatch):
    path = saved(CASES["boosted, of a frame"](), tmp_path)
    known = LOADER.load_file(path, LoadOptions()).ensemble.fingerprint
    monkeypatch.setitem(__import__("sys").modules, "ydf", None)
    ensemble = load_ensemble(path)
    assert ensemble.fingerprint == known
    assert ensemble.provenance.self_test == "not run: ydf cannot be imported"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: boosted(Y3, num_trees=2), "Got loss 3"),
        (lambda: boosted(split_axis="SPARSE_OBLIQUE", num_trees=2), "must compare one column"),
        (
            lambda: trained(ydf.IsolationForestLearner, columns(), None, num_trees=2),
            "must be one of GRADIENT_BOOSTED_TREES",
        ),
    ],
)
def test_what_is_not_a_sum_of_trees_is_refused(build, message):
    with pytest.raises(UnsupportedModel, match=message):
        LOADER.load_object(build(), LoadOptions())


def fuzz(folder, n, seed):
    """Damage one file of a directory at a time; each is refused, or read as YDF reads it."""
    random = np.random.default_rng(seed)
    counts = {True: 0, False: 0}
    models = [
        saved(CASES[name](), folder / str(k))
        for k, name in enumerate(("forest, of a frame", "boosted"))
    ]
    broken = folder / "broken"
    for number in range(n):
        model = models[number % len(models)]
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(model, broken)
        file = random.choice(sorted(p for p in broken.iterdir() if p.stat().st_size))
        data = bytearray(file.read_bytes())
        for _ in range(random.integers(1, 4)):
            at = int(random.integers(len(data)))
            kind = random.integers(4)
            if kind == 0:
                data[at] ^= 1 << int(random.integers(8))
            elif kind == 1:
                data[at] = int(random.integers(256))
            elif kind == 2:
                del data[at : at + int(random.integers(1, 9))]
            else:
                data[at:at] = data[at : at + int(random.integers(1, 9))]
        file.write_bytes(bytes(data))
        try:
            loaded = LOADER.load_file(broken, LoadOptions())
        except TreeproofError:
            counts[False] += 1
            continue
        counts[True] += 1
        rows = stress_rows(loaded.ensemble, 20)
        assert evaluate.margins(loaded.ensemble, rows).shape == (20, loaded.ensemble.n_outputs)
    return counts


def test_damaged_directories_are_refused_or_loaded(tmp_path, monkeypatch):
    # YDF itself stops the process on some damaged files, so it is not asked here.
    monkeypatch.setattr("treeproof.loaders.ydf.loader._is_quick", lambda *_: True)
    counts = fuzz(tmp_path, 200, 0)
    assert min(counts.values()) > 20


@pytest.mark.slow
def test_many_damaged_directories_are_refused_or_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr("treeproof.loaders.ydf.loader._is_quick", lambda *_: True)
    assert min(fuzz(tmp_path, 3_000, 1).values()) > 200


def test_parts_that_are_missing_are_named(tmp_path):
    path = saved(CASES["boosted"](), tmp_path)
    (path / "nodes-00000-of-00001").unlink()
    with pytest.raises(InvalidInput, match="nodes-00000-of-00001"):
        load_ensemble(path)
    (path / "data_spec.pb").write_bytes(b"\x0a\x05")
    with pytest.raises(BrokenModelFile, match="longer than the rest"):
        load_ensemble(path)
