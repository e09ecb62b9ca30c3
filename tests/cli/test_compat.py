"""`treeproof compat`: configuration files of treeVerification."""

import json

import numpy as np
import pytest
import xgboost as xgb
from sklearn.datasets import load_breast_cancer, load_iris

import treeproof as tp
from tests.paper_data import paper_data


def write_case(folder, X, y, *, n_classes=2, sparse=False, names=False, **changes):
    """A model dump, LIBSVM rows and a configuration; columns count from 1."""
    wide = np.hstack([np.zeros((len(X), 1)), X])
    parameters = {"max_depth": 3, "nthread": 1, "base_score": 0.5}
    parameters["objective"] = "multi:softmax" if n_classes > 2 else "binary:logistic"
    if n_classes > 2:
        parameters["num_class"] = n_classes
    booster = xgb.train(parameters, xgb.DMatrix(wide, y), 4)
    dump = [json.loads(tree) for tree in booster.get_dump(dump_format="json")]
    if not names:
        dump = json.loads(
            json.dumps(dump)
            .replace('"split": "f', '"split": ')
            .replace('", "split_condition', ', "split_condition')
        )
    (folder / "model.json").write_text(json.dumps(dump))
    lines = []
    for row, label in zip(X, y, strict=True):
        entries = [f"{k + 1}:{v!r}" for k, v in enumerate(row.tolist()) if v != 0 or not sparse]
        lines.append(" ".join([str(int(label)), *entries]))
    (folder / "rows.libsvm").write_text("\n".join(lines) + "\n")
    configuration = {
        "inputs": "rows.libsvm",
        "model": "model.json",
        "start_idx": 2,
        "num_attack": 10,
        "eps_init": 0.1,
        "max_clique": 2,
        "max_search": 10,
        "max_level": 1,
        "num_classes": n_classes,
    } | changes
    (folder / "config.json").write_text(json.dumps(configuration))
    return booster


@pytest.fixture(scope="module")
def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.min(axis=0)) / (X.max(axis=0) - X.min(axis=0))
    return np.round(X[:40, :8], 3), y[:40]


def figures(result):
    bound, error = result.stdout.splitlines()
    return float(bound.split(":")[1]), float(error.split("=")[1])


def test_the_figures_are_those_of_the_protocol(run, cancer, tmp_path):
    X, y = cancer
    booster = write_case(tmp_path, X, y)
    result = run("compat", tmp_path / "config.json", "--out", tmp_path / "run.jsonl")
    assert result.exit_code == 0
    wide = np.hstack([np.zeros((len(X), 1)), X])[2:12]
    expected = tp.radius(
        booster,
        wide,
        y[2:12],
        engine=tp.multilevel(T=2, L=1),
        search=tp.PaperProtocol(first_eps=0.1),
    )
    bound, error = figures(result)
    assert bound == pytest.approx(expected.average_lower_bound, abs=1e-5)
    assert error == pytest.approx(expected.verified_error(0.1))
    saved = tp.load_results(tmp_path / "run.jsonl")
    assert saved.row.tolist() == list(range(2, 12))
    np.testing.assert_allclose(saved.lower, expected.lower, atol=1e-6)


@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_both_spellings_of_splits_and_sparse_rows_are_read(run, cancer, tmp_path, names, sparse):
    X, y = cancer
    for folder, options in (("plain", {}), ("other", {"names": names, "sparse": sparse})):
        (tmp_path / folder).mkdir()
        write_case(tmp_path / folder, X, y, **options)
    plain = run("compat", tmp_path / "plain" / "config.json")
    other = run("compat", tmp_path / "other" / "config.json")
    assert plain.exit_code == other.exit_code == 0
    assert plain.stdout == other.stdout


def test_absent_entries_can_be_missing(run, cancer, tmp_path):
    X, y = cancer
    X = np.where(X < 0.15, 0.0, X)
    write_case(tmp_path, X, y, sparse=True, num_attack=40, start_idx=0)
    zero = run("compat", tmp_path / "config.json")
    missing = run("compat", tmp_path / "config.json", "--absent", "missing")
    assert zero.exit_code == missing.exit_code == 0
    assert zero.stdout != missing.stdout


def test_dp_follows_the_manual(run, cancer, tmp_path):
    X, y = cancer
    bounds = {}
    for dp in (None, 0, 1):
        write_case(tmp_path, X, y, **({} if dp is None else {"dp": dp}))
        bounds[dp] = figures(run("compat", tmp_path / "config.json"))[0]
    assert bounds[None] == bounds[0] <= bounds[1]


def test_one_feature_alone(run, cancer, tmp_path):
    X, y = cancer
    booster = write_case(tmp_path, X, y, one_attr=3, max_search=6)
    result = run("compat", tmp_path / "config.json", "--out", tmp_path / "run.jsonl")
    assert result.exit_code == 0
    wide = np.hstack([np.zeros((len(X), 1)), X])[2:12]
    alone = tp.feature_radius(booster, wide, y[2:12]).radius[:, 4]
    assert (tp.load_results(tmp_path / "run.jsonl").lower <= alone + 1e-6).all()


def test_several_classes(run, tmp_path):
    X, y = load_iris(return_X_y=True)
    booster = write_case(tmp_path, X, y, n_classes=3, start_idx=40, num_attack=70, max_level=2)
    result = run("compat", tmp_path / "config.json", "--out", tmp_path / "run.jsonl")
    assert result.exit_code == 0
    wide = np.hstack([np.zeros((len(X), 1)), X])[40:110]
    exact = tp.radius(booster, wide, y[40:110], engine="cliques")
    lower = tp.load_results(tmp_path / "run.jsonl").lower
    assert (lower <= exact.upper + 1e-6).all()
    assert lower.max() > 0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"eps_init": None}, r"Expected `float`, got `null` - at `\$.eps_init`"),
        ({"eps_init": -0.1}, "'first_eps' of PaperProtocol"),
        ({"max_clique": 1}, "'T' of multilevel must be a whole number, at least 2"),
        ({"max_level": 0}, "'L' of multilevel must be a whole number, at least 1"),
        ({"max_search": 0}, "'steps' of PaperProtocol"),
        ({"start_idx": -1}, r"Expected `int` >= 0 - at `\$.start_idx`"),
        ({"start_idx": 1000}, "must have a row 1000"),
        ({"num_attack": 2.5}, r"Expected `int`, got `float` - at `\$.num_attack`"),
        ({"one_attr": 500}, "'one_attr' must be a feature"),
        ({"inputs": "none.libsvm"}, "none.libsvm"),
        ({"model": "none.json"}, "none.json"),
    ],
)
def test_wrong_configurations_get_a_sentence(run, cancer, tmp_path, changes, sentence):
    import re

    X, y = cancer
    write_case(tmp_path, X, y, **changes)
    result = run("compat", tmp_path / "config.json")
    assert result.exit_code == 2
    assert re.search(sentence, result.stderr)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("[1]", "got `array`"), ("{", "must be JSON"), ("{}", "missing required field `inputs`")],
)
def test_broken_configurations_get_a_sentence(run, tmp_path, text, sentence):
    (tmp_path / "config.json").write_text(text)
    result = run("compat", tmp_path / "config.json")
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert run("compat", tmp_path / "none.json").exit_code == 2


@pytest.mark.parametrize(
    ("label", "n_classes", "sentence"),
    [
        ("ham", 1, "must be numbers: could not convert string to float: 'ham'."),
        ("nan", 1, "must be finite numbers. Got NaN or infinity."),
        ("inf", 3, "must be finite numbers. Got NaN or infinity."),
        ("3", 3, "must be whole numbers from 0 to 2. Got 3."),
        ("0.5", 3, "must be whole numbers from 0 to 2. Got 0.5."),
    ],
)
def test_wrong_labels_get_a_sentence(run, cancer, tmp_path, label, n_classes, sentence):
    X, y = cancer
    y = np.arange(len(y)) % 3 if n_classes == 3 else y
    write_case(tmp_path, X, y, n_classes=n_classes)
    rows = tmp_path / "rows.libsvm"
    lines = rows.read_text().splitlines()
    lines[2] = " ".join([label, *lines[2].split()[1:]])  # the first row that is asked about
    rows.write_text("\n".join(lines) + "\n")
    result = run("compat", tmp_path / "config.json")
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_unknown_keys_are_noted(run, cancer, tmp_path):
    X, y = cancer
    write_case(tmp_path, X, y, colour="red")
    result = run("compat", tmp_path / "config.json")
    assert result.exit_code == 0
    assert "'colour' of the configuration is not known" in result.stderr


@pytest.mark.paper_data
def test_the_programs_own_example(run):
    result = run("compat", paper_data() / "peers" / "treeVerification" / "example.json")
    assert result.exit_code == 0
    assert result.stdout == (
        "clique method average bound:0.39518\nverified error at epsilon 0.3 = 0.13\n"
    )
