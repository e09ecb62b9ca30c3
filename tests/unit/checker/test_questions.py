"""Headers: a question that treeproof does not ask is refused, and so is another model."""

import copy
import math
from typing import Any

import numpy as np
import pytest

import treeproof
from tests.unit.checker.test_answers import ENSEMBLE, ROWS, Record, reason, run, stumps
from treeproof.checker import RunChecker
from treeproof.errors import InvalidInput
from treeproof.model.ensemble import Decision


def with_field(header: Record, path: str, value: Any) -> Record:
    """The header with another value at a place such as `question.goal.name`."""
    header = copy.deepcopy(header)
    inner, names = header, path.split(".")
    for name in names[:-1]:
        inner = inner[name]
    if value is GONE:
        del inner[names[-1]]
    else:
        inner[names[-1]] = value
    return header


GONE = object()
BALL = {"eps": None, "scale": None, "below": 1.0, "above": 1.0, "frozen": [], "low": "-inf",
        "high": "inf"}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("record", "row"),
        ("format", 2),
        ("format", GONE),
        ("state", "done"),
        ("n_rows", "4"),
        ("n_rows", -1),
        ("n_rows", 1e3),
        ("data", []),
        ("data", {"n_asked": "4"}),
        ("data", {"sample": -1}),
        ("data", {"merged": [3]}),
        ("model", []),
        ("model.fingerprint", 3),
        ("model.classes", ["a"]),
        ("model.classes", ["b", "a"]),
        ("model.classes", ["a", "b", "c"]),
        ("model.n_trees", 300),
        ("model.n_features", 3),
        ("model.feature_names", ["height", "width"]),
        ("model.feature_names", ["width"]),
        ("model.input_precision", "float32"),
        ("model.decision", "argmax"),
        ("question", []),
        ("question", GONE),
        ("question.kind", "attack"),
        ("question.kind", "verify"),
        ("question.kind", GONE),
        ("question.more", 1),
        ("question.engine", {"name": 7}),
        ("question.engine", {}),
        ("question.engine", "exact"),
        ("question.arithmetic", "integers"),
        ("question.arithmetic", GONE),
        ("question.arithmetic", None),
        ("question.labels", "mine"),
        ("question.labels", GONE),
        ("question.attacker_class", "c"),
        ("question.attacker_class", 0),
        ("question.attacker_class", True),
        ("question.attacker_class", ["a"]),
        ("question.attacker_class", {"a": "b"}),
        ("question.goal", {"name": "KeepsScore"}),
        ("question.goal", {"name": "KeepsLabel", "delta": 1.0}),
        ("question.goal", {}),
        ("question.goal", {"name": "AvoidsTarget", "target": "c"}),
        ("question.goal", {"name": "AvoidsTarget", "target": 1}),
        ("question.goal", {"name": "AvoidsTarget"}),
        ("question.goal", {"name": "ScoreChange", "delta": -1.0}),
        ("question.goal", {"name": "ScoreChange", "delta": None}),
        ("question.goal", {"name": "ScoreChange", "delta": "0.5"}),
        ("question.goal", {"name": "ScoreWithin", "low": 1.0, "high": 0.0}),
        ("question.goal", {"name": "ScoreWithin", "low": [1.0, 0.0], "high": [1.0]}),
        ("question.goal", {"name": "ScoreWithin", "low": [1.0, 2.0], "high": 1.5}),
        ("question.goal", {"name": "ScoreWithin", "low": None, "high": 1.0}),
        ("question.perturbation", {"name": "L3", **BALL}),
        ("question.perturbation", {"name": "LInf"}),
        ("question.perturbation", {"name": "Box", "low": 0.0, "high": 1.0}),
        ("question.perturbation.more", 1),
        ("question.perturbation.eps", 0.1),
        ("question.perturbation.scale", [1.0]),
        ("question.perturbation.scale", [1.0, -1.0]),
        ("question.perturbation.scale", [1.0, "inf"]),
        ("question.perturbation.scale", [1.0, [1.0]]),
        ("question.perturbation.below", -1.0),
        ("question.perturbation.above", None),
        ("question.perturbation.frozen", [2]),
        ("question.perturbation.frozen", [-1]),
        ("question.perturbation.frozen", ["depth"]),
        ("question.perturbation.frozen", ["-1"]),
        ("question.perturbation.frozen", ["9" * 5000]),
        ("question.perturbation.frozen", "width"),
        ("question.perturbation.low", [0.0, 1.0, 2.0]),
        ("question.perturbation", {"name": "LInf", **BALL, "low": 1.0, "high": 0.5}),
        ("question.perturbation", {"name": "LInf", **BALL, "low": [0.0, 1.0], "high": 0.5}),
        ("question.perturbation.high", [1.0, None]),
    ],
)
def test_a_header_that_treeproof_does_not_write_is_refused(path, value):
    header, records = run()
    header["question"]["arithmetic"] = "real"
    assert reason(header, records[0]) == ""
    with pytest.raises(InvalidInput, match=r"header|another model"):
        RunChecker(with_field(header, path, value), ENSEMBLE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("question.perturbation", {"name": "LInf", **BALL}),
        ("question.perturbation.eps", -0.1),
        ("question.perturbation.eps", "wide"),
        ("question.perturbation", {"name": "Box", "low": 1.0, "high": 0.0}),
        ("question.perturbation", {"name": "Box", "low": [0.0, 1.0], "high": [1.0, 0.0]}),
        ("question.perturbation", {"name": "Box", "low": [[0.0, 0.0]], "high": [[1.0, 1.0]] * 2}),
        ("question.perturbation", {"name": "Box", "low": [[0.0, 0.0], [0.0]], "high": 1.0}),
        ("question.perturbation", {"name": "Box", "low": [[0.0, 0.0], 0.0], "high": 1.0}),
        ("question.perturbation", {"name": "Box", "low": [[[0.0, 0.0]]], "high": 1.0}),
        ("question.perturbation", {"name": "Box", "low": None, "high": 1.0}),
    ],
)
def test_a_set_that_cannot_be_verified_is_refused(path, value):
    header, _ = run("verify", treeproof.LInf(0.1))
    with pytest.raises(InvalidInput, match="header"):
        RunChecker(with_field(header, path, value), ENSEMBLE)


def test_goals_must_fit_the_model():
    scores = stumps(classes=(), decision=Decision(kind="score"))
    within = treeproof.ScoreWithin(-5.0, 5.0)
    header, _ = run("verify", treeproof.LInf(0.1), ensemble=scores, goal=within)
    RunChecker(header, scores)
    for goal in ({"name": "KeepsLabel"}, {"name": "AvoidsTarget", "target": None}):
        with pytest.raises(InvalidInput, match="a goal for scores"):
            RunChecker(with_field(header, "question.goal", goal), scores)


def test_only_rows_of_the_attacked_class_move():
    header, records = run("radius", attacker_class="a", y=["a", "b", "a", "b"])
    assert [record["lower"] == "inf" for record in records] == [False, True, False, True]
    assert [reason(header, record) for record in records] == [""] * 4
    free, swapped = (with_field(header, "question.attacker_class", c) for c in (None, "b"))
    assert [reason(free, record) == "" for record in records] == [True, False, True, False]
    assert all(reason(swapped, record) for record in records)


def test_numbers_are_classes_and_truth_values_are_not():
    ensemble = stumps(classes=(0, 1))
    header, records = run("radius", attacker_class=1, ensemble=ensemble)
    for same in (1, 1.0):
        forged = with_field(header, "question.attacker_class", same)
        assert reason(forged, records[1], ensemble) == ""
    for other in (True, "1", 2, -1):
        with pytest.raises(InvalidInput, match="'attacker_class' among the classes"):
            RunChecker(with_field(header, "question.attacker_class", other), ensemble)


def test_a_question_is_that_of_its_claims():
    header, records = run("radius", treeproof.LInf(scale=[0.5, 2.0], frozen=["width"], low=0.0))
    assert reason(header, records[0]) == ""
    for path, value in (
        ("scale", None),
        ("above", 2.0),
        ("below", False),
        ("frozen", []),
        ("frozen", ["height"]),
        ("low", -1.0),
        ("high", 1.0),
    ):
        forged = with_field(header, f"question.perturbation.{path}", value)
        assert reason(forged, records[0]) == "claim: it is about another question"
    same = with_field(header, "question.perturbation.frozen", ["0", 0, "width"])
    assert reason(same, records[0]) == ""


def test_names_that_a_file_has_lost_are_the_runs_own():
    header, records = run("radius", treeproof.LInf(frozen=["height"]))
    nameless = stumps(feature_names=())
    assert [reason(header, record, nameless) for record in records] == [""] * 4
    swapped = with_field(header, "model.feature_names", ["height", "width"])
    assert reason(swapped, records[0], nameless) == "claim: it is about another question"


def test_bounds_of_each_row_are_its_own():
    box = treeproof.Box(ROWS - 0.01, ROWS + 0.01)
    header, records = run("verify", box)
    assert [reason(header, record) for record in records] == [""] * 4
    assert reason(header, records[0] | {"row": 1}) == "claim: it is about another question"
    assert reason(header, records[0] | {"row": 4}) == "record: 'low' has no row 4"
    ranges = treeproof.ScoreWithin([-2, -1, -1, -3], math.inf)
    header, records = run("verify", treeproof.LInf(0.01), goal=ranges)
    assert [reason(header, record) for record in records] == [""] * 4
    assert reason(header, records[0] | {"row": 3}).startswith("claim: the goal is not (-3.0, inf)")
    assert reason(header, records[0] | {"row": 9}) == "record: 'low' has no row 9"
    assert np.all(np.array([record["lower"] for record in records]) >= 0.0)
