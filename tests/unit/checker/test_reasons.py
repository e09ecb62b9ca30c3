"""Files of reasons: genuine ones are accepted, and every forgery that claims more is not."""

import copy
import dataclasses
import json

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp
from tests.unit.checker.test_nodes import model as model_of
from tests.unit.checker.test_nodes import stump
from treeproof.checker import check_reasons
from treeproof.model.ensemble import Decision
from treeproof.prediction import Model


@pytest.fixture(scope="module")
def genuine(tmp_path_factory):
    """A model, and the lines of a file of reasons about some rows of it."""
    X, y = load_wine(return_X_y=True)
    model = tp.load(RandomForestClassifier(6, max_depth=3, random_state=0).fit(X, y))
    path = tmp_path_factory.mktemp("reasons") / "reasons.jsonl"
    domain = tp.Box(X.min(axis=0), X.max(axis=0))
    rows = X[[0, 60, 150]]
    tp.reasons(model, rows, domain=domain, intervals=True, evidence=True).save(path)
    plain = path.with_name("plain.jsonl")
    tp.reasons(model, rows, evidence=True).save(plain)
    files = [[json.loads(line) for line in p.read_text().splitlines()] for p in (path, plain)]
    return model.ensemble, files


def checked(ensemble, lines, path):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return list(check_reasons(path, ensemble))


def test_genuine_files_are_accepted(genuine, tmp_path):
    ensemble, files = genuine
    for lines in files:
        checks = checked(ensemble, lines, tmp_path / "file.jsonl")
        assert [(check.row, check.status) for check in checks] == [
            (row, "accepted") for row in range(3)
        ]


def wider_interval(lines, row):
    low, high = row["intervals"][0]
    row["intervals"][0] = ["-inf", high] if low != "-inf" else [low, "inf"]


def without_a_feature(lines, row):
    for name in ("features", "witnesses"):
        del row[name][0]
    del row["evidence"][1]
    if row["intervals"]:
        del row["intervals"][0]


def with_a_feature(lines, row):
    extra = next(f for f in range(13) if f not in row["features"])
    row["features"].append(extra)
    row["witnesses"].append(row["witnesses"][0])
    row["evidence"].append(row["evidence"][1])
    if row["intervals"]:
        row["intervals"].append(["-inf", "inf"])


def other_witness(lines, row):
    row["witnesses"][0] = row["values"]


def swapped_witnesses(lines, row):
    row["witnesses"][:2] = row["witnesses"][1::-1]
    row["evidence"][1:3] = row["evidence"][2:0:-1]


def other_values(lines, row):
    row["values"][0] += 1.0


def other_label(lines, row):
    row["label"] = (row["label"] + 1) % 3


def other_kept(lines, row):
    row["kept"] = [0]


def larger_domain(lines, row):
    lines[0]["question"]["perturbation"] |= {"low": -1e9, "high": 1e9}


def other_goal(lines, row):
    lines[0]["question"]["goal"] = {"name": "AvoidsTarget", "target": row["label"]}


def other_model(lines, row):
    lines[0]["model"]["fingerprint"] = "0" * len(lines[0]["model"]["fingerprint"])


def labels_given(lines, row):
    # Then the label of the row is one that somebody wanted, not the model's own.
    lines[0]["question"]["labels"] = "given"
    row["label"] = (row["label"] + 1) % 3


def broken_groups(lines, row):
    lines[0]["question"]["groups"] = [[0, 1], [1, 99]]


def evidence_of_another_row(lines, row):
    row["evidence"] = lines[2]["evidence"][: len(row["evidence"])]


def twice(lines, row):
    lines.append(row)


def one_missing(lines, row):
    lines.pop()


FORGERIES = [
    wider_interval, without_a_feature, with_a_feature, other_witness, swapped_witnesses,
    other_values, other_label, other_kept, larger_domain, other_goal, other_model, labels_given,
    broken_groups, evidence_of_another_row, twice, one_missing,
]  # fmt: skip


@pytest.mark.parametrize("forge", FORGERIES)
@pytest.mark.parametrize("number", [0, 1])
def test_forgeries_are_rejected(genuine, forge, number, tmp_path):
    ensemble, files = genuine
    lines = copy.deepcopy(files[number])
    if forge is wider_interval and lines[1]["intervals"] is None:
        pytest.skip("values have no intervals")
    forge(lines, lines[1])
    checks = checked(ensemble, lines, tmp_path / "file.jsonl")
    assert any(check.status == "rejected" for check in checks), checks


def test_missing_evidence_is_no_proof(genuine, tmp_path):
    ensemble, files = genuine
    lines = copy.deepcopy(files[0])
    lines[1]["evidence"] = None
    lines[2]["evidence"][1] = None
    lines[3]["sufficient"] = False
    statuses = [check.status for check in checked(ensemble, lines, tmp_path / "file.jsonl")]
    assert statuses == ["unproved", "unproved", "claims nothing"]


def test_scores_within_ranges_and_required_features_are_checked(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.random((200, 4))
    model = tp.load(
        GradientBoostingRegressor(n_estimators=8, random_state=0).fit(X, X @ [3, 2, 1, 0])
    )
    for goal in (tp.ScoreChange(1.0), tp.ScoreWithin([-9.0, -8.0], [9.0, 8.0])):
        found = tp.reasons(
            model, X[:2], domain=tp.Box(0.0, 1.0), goal=goal, always=1, evidence=True
        )
        assert found.minimal.all()
        assert all(1 in features for features in found.features)
        found.save(tmp_path / "file.jsonl")
        checks = list(check_reasons(tmp_path / "file.jsonl", model.ensemble))
        assert [check.status for check in checks] == ["accepted"] * 2


def test_what_a_group_needs_is_not_what_its_features_need(tmp_path):
    X, y = load_wine(return_X_y=True)
    model = tp.load(RandomForestClassifier(6, max_depth=3, random_state=0).fit(X, y))
    groups = [[0, 1, 2, 3], [5, 6], [9, 10, 11, 12]]
    found = tp.reasons(model, X[[0, 60, 150]], groups=groups, evidence=True)
    assert found.minimal.all()
    for features in found.features:
        for group in groups:
            assert len(np.intersect1d(features, group)) in (0, len(group))
    found.save(tmp_path / "file.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "file.jsonl").read_text().splitlines()]
    checks = checked(model.ensemble, lines, tmp_path / "file.jsonl")
    assert [check.status for check in checks] == ["accepted"] * 3
    # Without groups, every single column would be claimed to be needed.
    del lines[0]["question"]["groups"]
    checks = checked(model.ensemble, lines, tmp_path / "file.jsonl")
    assert "rejected" in [check.status for check in checks]


def test_an_interval_ends_at_the_number_that_it_names(tmp_path):
    """0.7 is no float32, and the float32 below it belongs to an interval that ends there."""
    threshold = np.float32(0.7)
    assert float(threshold) < 0.7
    # Half way between both lies just below the threshold.
    width = np.float32(0.0625)
    X = np.array([[threshold - width], [np.nextafter(threshold + width, np.float32(0.0))]])
    model = tp.load(DecisionTreeClassifier(random_state=0).fit(X, [0, 1]))
    box = tp.Box(0.0, 1.0, tp.Domain())
    found = tp.reasons(
        model, [[0.25]], domain=box, intervals=True, arithmetic="real", evidence=True
    )
    path = tmp_path / "file.jsonl"
    found.save(path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [check.status for check in checked(model.ensemble, lines, path)] == ["accepted"]
    assert lines[1]["intervals"][0][1] == float(threshold)
    lines[1]["intervals"][0][1] = 0.7
    assert [check.status for check in checked(model.ensemble, lines, path)] == ["rejected"]


def test_a_row_may_start_at_infinity(tmp_path):
    """From there no move has a length, which the run that a set stands for says, too."""
    decision = Decision(kind="threshold", cut=0.5)
    ensemble = dataclasses.replace(model_of(stump(0, 0.0, 1.0)), decision=decision, classes=(0, 1))
    rows = [[-np.inf, 0.0, 0.0, 0.0]]
    found = tp.reasons(Model(ensemble), rows, domain=tp.Box(-np.inf, np.inf), evidence=True)
    assert found.minimal.all()
    assert found.witnesses[0][0][0] > -np.inf
    found.save(tmp_path / "file.jsonl")
    checks = list(check_reasons(tmp_path / "file.jsonl", ensemble))
    assert [check.status for check in checks] == ["accepted"]
