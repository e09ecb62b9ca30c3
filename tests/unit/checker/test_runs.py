"""Answers of whole runs: one known model, every field of answers and evidence damaged."""

import base64
import copy
import json
import zlib
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import treeproof
from tests.unit.checker.certificates import packed, unpacked, with_row
from treeproof.checker import RunChecker, check_run
from treeproof.checker.claims import LARGEST_PAYLOAD
from treeproof.errors import InvalidInput
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance
from treeproof.prediction import Model
from treeproof.results.run_file import row_records

Record = dict[str, Any]


def stumps(*, classes=("a", "b"), precision: Any = "float64", **changes: Any) -> Ensemble:
    """Three trees on two features; class b where their sum is at least 0."""
    builder = TreeBuilder(leaf_width=1)
    much = float(np.dtype(precision).type(0.7))
    for feature, threshold, left, right in ((0, 0.5, -1.0, 1.0), (1, 0.25, -much, much)):
        builder.add_tree(
            feature=[feature, -1, -1], threshold=[threshold, 0.0, 0.0], left=[1, -1, -1],
            right=[2, -1, -1], flags=[0, 0, 0], value=np.array([[0.0], [left], [right]]), output=0,
            category_set=[-1, -1, -1],
        )  # fmt: skip
    builder.add_tree(
        feature=[0, 1, -1, -1, -1], threshold=[0.75, 0.5, 0.0, 0.0, 0.0],
        left=[1, 2, -1, -1, -1], right=[4, 3, -1, -1, -1], flags=[0] * 5,
        value=np.array([[0.0], [0.0], [-0.25], [0.5], [0.125]]), output=0, category_set=[-1] * 5,
    )  # fmt: skip
    settings: dict[str, Any] = {
        "trees": builder.finish(),
        "n_features": 2,
        "n_outputs": 1,
        "input_precision": "float64",
        "aggregation": Aggregation(precision=precision, start=(0.0,)),
        "decision": Decision(kind="threshold"),
        "classes": classes,
        "feature_names": ("width", "height"),
        "provenance": Provenance(library="test"),
    }
    return Ensemble(**settings | changes)


ENSEMBLE = stumps()
ROWS = np.array([[0.1, 0.1], [0.9, 0.9], [0.45, 0.6], [0.1, 0.9]])


def run(kind: str = "radius", *more: Any, ensemble: Ensemble = ENSEMBLE, **options: Any):
    """Header and records of a run with evidence."""
    ask = treeproof.radius if kind == "radius" else treeproof.verify
    labels = options.pop("y", None)
    rows = options.pop("X", ROWS)
    found = ask(Model(ensemble), rows, labels, *more, evidence=True, **options)
    header, *records = json.loads(json.dumps([found.header, *row_records(found)]))
    return header, records


def reason(header: Record, record: Record, ensemble: Ensemble = ENSEMBLE, values=None) -> str:
    """Why a record is rejected; empty when it is accepted."""
    check = RunChecker(header, ensemble).check(record, values)
    assert check.status in ("accepted", "rejected"), check
    assert check.row == record["row"]
    return check.reason if check.status == "rejected" else ""


def changed(record: Record, **fields: Any) -> Record:
    """The record with other fields, and evidence that is signed anew where a claim's field is."""
    record = copy.deepcopy(record)
    claim, proof = unpacked(record["evidence"])
    for name, value in fields.items():
        if name == "proof":
            proof = value
        elif name in claim or name in ("keep", "avoid", "within"):
            claim[name] = value
        else:
            record[name] = value
    record["evidence"] = packed(claim, proof)
    return record


def test_all_answers_of_runs_are_accepted():
    ball = treeproof.LInf(0.1)
    frozen = treeproof.LInf(0.3, frozen=("width",), scale=[0.5, 2.0], low=0.0, high=[1.0, 0.95])
    box = treeproof.Box(ROWS - 0.05, ROWS + np.array([0.2, 0.05]))
    runs = [
        run(),
        run("radius", treeproof.LInf(scale=[0.3, 1.0], below=0.0)),
        run("verify", ball),
        run("verify", frozen),
        run("verify", box),
        run("verify", treeproof.Box([0.0, 0.0], [0.6, 0.2])),
        run(y=["a", "b", "a", "b"]),
        run("verify", ball, y=["b", "b", "a", "a"]),
        run("radius", goal=treeproof.AvoidsTarget("b")),
        run("radius", goal=treeproof.ScoreChange(0.5)),
        run("verify", ball, goal=treeproof.ScoreWithin([-2, -1, -1, -3], 2.0)),
        run("verify", ball, goal=treeproof.ScoreWithin(-np.inf, 1.0)),
        run("radius", attacker_class="a", X=np.array([[np.nan, 0.1], [0.9, 0.9], [0.6, 0.3]])),
        run("radius", arithmetic="float64"),
        run("radius", X=np.array([[np.nan, 0.3], [np.nan, np.nan]]), y=["a", "b"]),
    ]
    seen = set()
    for header, records in runs:
        for record in records:
            assert reason(header, record) == ""
            seen.add((header["question"]["kind"], record["verdict"], record["attained"]))
    assert len(seen) == 5


def test_float32_models_are_checked_in_their_own_precision():
    ensemble = stumps(precision="float32", input_precision="float32")
    for arithmetic in ("real", "float64"):
        header, records = run(ensemble=ensemble, arithmetic=arithmetic)
        assert [reason(header, record, ensemble) for record in records] == [""] * 4


def test_a_run_about_another_model_is_refused():
    header, _ = run()
    other = stumps(decision=Decision(kind="threshold", cut=5e-324))  # another tie rule
    with pytest.raises(InvalidInput, match="another model"):
        RunChecker(header, other)


def test_evidence_about_another_model_is_rejected():
    header, records = run()
    other = stumps(decision=Decision(kind="threshold", cut=5e-324))
    forged = copy.deepcopy(header)
    forged["model"]["fingerprint"] = other.fingerprint
    assert reason(forged, records[0], other) == "claim: it is about another model"
    claimed = changed(records[0], model=other.fingerprint)
    assert reason(forged, claimed, other) == "claim: other numeric semantics"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model": "00"}, "claim: it is about another model"),
        ({"semantics": "float32"}, "claim: other numeric semantics"),
        ({"set": "open"}, "claim: the set is open, the answer needs closed"),
        ({"set": "sphere"}, "claim: unknown set 'sphere'"),
        ({"radius": (-1.0).hex()}, "claim: the radius must be a number >= 0"),
        ({"radius": "nan"}, "claim: the radius must be a number >= 0"),
        ({"radius": (0.125).hex()}, "claim: the radius is 0.125, the answer says"),
        ({"radius": "wide"}, "evidence: it cannot be read"),
        ({"down": (0.5).hex()}, "claim: 'down' is not that of the question"),
        ({"up": [(1.0).hex(), (0.0).hex()]}, "claim: 'up' is not that of the question"),
        ({"up": (-1.0).hex()}, "claim: rates must be numbers >= 0"),
        ({"down": "nan"}, "claim: rates must be numbers >= 0"),
        ({"up": [(1.0).hex()] * 3}, "claim: one number per feature"),
        ({"low": (0.0).hex()}, "claim: 'low' is not that of the question"),
        ({"high": (0.5).hex()}, "claim: 'high' is not that of the question"),
        ({"high": "nan"}, "claim: bounds must not be NaN"),
        ({"low": "nan"}, "claim: bounds must not be NaN"),
        ({"keep": 1}, "claim: the goal is not ('keep', 'a')"),
        ({"keep": 2}, "claim: there is no class 2"),
        ({"keep": -1}, "claim: there is no class -1"),
        ({"keep": True}, "claim: there is no class True"),
        ({"keep": "a"}, "claim: there is no class 'a'"),
        ({"avoid": 1}, "claim: there must be one property"),
        ({"within": [(0.0).hex(), (1.0).hex()]}, "claim: there must be one property"),
        ({"row": ""}, "evidence: it cannot be read"),
        ({"row": "!"}, "evidence: it cannot be read"),
        ({"proof": b""}, "byte 0: the proof is cut off"),
        ({"proof": b"X"}, "rise, byte 0: unknown node 'X'"),
        ({"proof": b"PP"}, "byte 1: the proof goes on"),
        ({"proof": b"E"}, "rise, byte 0: tree"),
        ({"label": "b"}, "record: the model's own label is 'a'"),
        ({"label": "b", "keep": 1}, "record: the model's own label is 'a'"),
        ({"verdict": "sure"}, "record: unknown verdict"),
        ({"values": [0.1, 0.2]}, "claim: it is about another row"),
        ({"values": [0.1]}, "claim: it is about another row"),
        ({"lower": 0.5}, "record: an exact radius has bounds 0.5"),
        ({"lower": 0.5, "upper": 0.5}, "claim: the radius is"),
        ({"attained": True}, "claim: the set is closed, the answer needs open"),
        ({"exact": False, "verdict": "unknown"}, "claim: the set is closed, the answer needs open"),
        ({"verdict": "falsified"}, "record: a broken row has radius 0"),
        ({"witness": [0.1]}, "witness: one value per feature"),
        ({"witness": None}, "witness: feature 0 is beyond the set"),
        ({"witness": [0.1, 0.1]}, "witness: its label is 0"),
        ({"witness": [9.0, 9.0]}, "witness: feature 0 is beyond the set"),
        ({"witness_distance": 0.1}, "witness: feature 0 is farther than 0.1"),
        ({"witness_distance": None}, "witness: its distance is no number"),
        ({"row_number": 1}, ""),
    ],
)
def test_a_damaged_field_is_named(fields, expected):
    # The row must rise at width and height; going down in neither, its radius is attained.
    header, records = run("radius")
    record = copy.deepcopy(records[0])
    if expected and "needs closed" not in expected and "closed" not in expected:
        assert reason(header, changed(record, **fields)).startswith(expected)
        return
    # A radius that is only approached: class b breaks by falling.
    record = records[1]
    assert not record["attained"]
    found = reason(header, changed(record, **fields))
    assert found.startswith(expected) if expected else found == ""


def test_a_wider_claim_needs_a_wider_proof():
    header, records = run()
    for record in records:
        for factor in (1.0 + 2.0**-52, 1.5):
            lower = record["lower"] * factor
            wider = changed(record, radius=lower.hex(), lower=lower, upper=lower)
            assert "bound" in reason(header, wider) or "sums" in reason(header, wider)


def test_the_row_of_the_data_must_be_the_row_of_the_claim():
    header, records = run()
    assert reason(header, records[0], values=[0.1, 0.1]) == ""
    moved = "claim: it is about another row"
    assert reason(header, records[0], values=[0.1, 0.2]) == moved
    assert reason(header, records[0], values=[]) == moved
    swapped = records[0] | {"evidence": records[1]["evidence"]}
    assert reason(header, swapped) != ""
    unnamed = {k: v for k, v in swapped.items() if k != "values"}
    assert reason(header, unnamed) != ""


def test_a_claim_about_a_shifted_row_is_rejected():
    header, records = run()

    def shift(values: np.ndarray) -> None:
        values[0] += 0.01

    record = copy.deepcopy(records[0])
    claim, proof = unpacked(record["evidence"])
    record["evidence"] = packed(with_row(claim, shift), proof)
    record["values"] = [0.11, 0.1]
    assert reason(header, record) != ""


@pytest.mark.parametrize("cut", [1, 3, 10, -4, -1])
def test_text_that_is_cut_off_is_rejected(cut):
    header, records = run()
    record = records[0] | {"evidence": records[0]["evidence"][:cut]}
    assert reason(header, record).startswith("evidence: ")
    longer = records[0] | {"evidence": records[0]["evidence"] + "AAAA"}
    assert reason(header, longer).startswith("evidence: ")


def test_another_version_is_rejected():
    header, records = run()
    for prefix in ("E2:", "e1:", "abc"):
        other = records[0] | {"evidence": prefix + records[0]["evidence"][3:]}
        assert reason(header, other) == "evidence: the version is not E1"


def test_texts_have_one_spelling():
    header, records = run()
    text, row = records[0]["evidence"], unpacked(records[0]["evidence"])[0]["row"]
    for other in (text[:5] + "!" + text[5:], text + "\n", text + " "):
        assert reason(header, records[0] | {"evidence": other}).startswith("evidence: it cannot")
    spelled = changed(records[0], row=row[:4] + "!" + row[4:])
    assert reason(header, spelled).startswith("evidence: it cannot be read")


def test_bombs_are_rejected():
    header, records = run()
    claim, _ = unpacked(records[0]["evidence"])
    bomb = records[0] | {"evidence": packed(claim, b"P" * 1000)}
    length = len(zlib.decompress(base64.b64decode(bomb["evidence"][3:])))
    for limit, expected in (
        (length, "byte 1: the proof goes on"),
        (length - 1, "evidence: the te"),
    ):
        with mock.patch("treeproof.checker.claims.LARGEST_PAYLOAD", limit):
            assert reason(header, bomb).startswith(expected)
    assert LARGEST_PAYLOAD == 2**27


def test_verified_answers_need_the_set_of_the_question():
    header, records = run("verify", treeproof.LInf(0.1))
    record = next(r for r in records if r["verdict"] == "verified")
    assert reason(header, changed(record, lower=0.2)).startswith("record: lower is 0.2")
    smaller = changed(record, radius=(0.05).hex())
    assert reason(header, smaller).startswith("claim: the radius is 0.05")
    assert reason(header, changed(record, set="none")).startswith("claim: the set is none")
    fields = {"verdict": "falsified", "set": "none", "proof": b"", "lower": 0.0, "upper": 0.1}
    falsified = changed(record, **fields)
    assert reason(header, falsified).startswith("witness")
    wide, answers = run("verify", treeproof.LInf(0.4))
    broken = next(r for r in answers if r["verdict"] == "falsified")
    assert reason(wide, changed(broken, upper=0.01)).startswith("witness: feature")


def test_only_a_verified_ball_has_a_lower_bound():
    said = "record: nothing is said about a distance of 0.05"
    header, records = run("verify", treeproof.LInf(0.4))
    broken = next(r for r in records if r["verdict"] == "falsified")
    assert reason(header, broken | {"lower": 0.05}) == said
    assert reason(header, broken | {"lower": 0.05, "verdict": "unknown", "upper": "inf"}) == said
    boxes, records = run("verify", treeproof.Box(0.0, 0.2))
    verified = next(r for r in records if r["verdict"] == "verified")
    assert reason(boxes, verified | {"lower": 0.05}) == said
    assert reason(boxes, verified | {"lower": 0.0}) == ""


def test_boxes_and_frozen_features_are_those_of_the_question():
    header, records = run("verify", treeproof.Box([0.0, 0.0], [0.4, 0.2]))
    record = next(r for r in records if r["verdict"] == "verified")
    other = changed(record, high=[(0.3).hex(), (0.2).hex()])
    assert reason(header, other) == "claim: 'high' is not that of the question"
    header, records = run("radius", treeproof.LInf(frozen=[0, "height"]))
    assert records[0]["lower"] == "inf"
    assert reason(header, records[0]) == ""
    free = copy.deepcopy(header)
    free["question"]["perturbation"]["frozen"] = [0]
    assert reason(free, records[0]) == "claim: 'down' is not that of the question"


def test_goals_are_those_of_the_question():
    header, records = run("verify", treeproof.LInf(0.1), goal=treeproof.ScoreWithin(-5.0, 5.0))
    narrow = copy.deepcopy(header)
    narrow["question"]["goal"]["low"] = -1.0
    assert reason(narrow, records[0]) == "claim: another range"
    header, records = run("radius", goal=treeproof.ScoreChange(0.5))
    narrow = copy.deepcopy(header)
    narrow["question"]["goal"]["delta"] = 0.25
    assert reason(narrow, records[0]) == "claim: another range"
    header, records = run("radius", goal=treeproof.AvoidsTarget("b"))
    other = copy.deepcopy(header)
    other["question"]["goal"]["target"] = "a"
    assert reason(other, records[0]) == "claim: the goal is not ('avoid', 'a')"


def test_fixed_entries_must_not_move():
    rows = np.array([[np.nan, 0.1]])
    header, records = run("radius", X=rows, y=["a"])
    record = records[0]
    assert record["witness"] is not None
    moved = changed(record, witness=[0.9, record["witness"][1]])
    assert reason(header, moved).startswith("witness: feature 0 must not move")


def test_categories_must_not_move():
    builder = TreeBuilder(leaf_width=1)
    chosen = builder.add_category_set([1, 3])
    for feature, flags, threshold, members, size in (
        (0, 0, 0.5, -1, 1.0),
        (1, 4, 0.0, chosen, 0.1),
    ):
        builder.add_tree(
            feature=[feature, -1, -1], threshold=[threshold, 0.0, 0.0], left=[1, -1, -1],
            right=[2, -1, -1], flags=[flags, 0, 0], value=np.array([[0.0], [-size], [size]]),
            output=0, category_set=[members, -1, -1],
        )  # fmt: skip
    ensemble = stumps(trees=builder.finish())
    for ball in (treeproof.LInf(2.0), treeproof.Box(0.0, 5.0)):
        rows = np.array([[0.0, 2.0]])
        header, (record,) = run("verify", ball, ensemble=ensemble, X=rows)
        assert record["verdict"] == "falsified"
        assert reason(header, record, ensemble) == ""
        moved = changed(record, witness=[record["witness"][0], 3.0])
        assert reason(header, moved, ensemble) == "witness: feature 1 must not move"


def test_a_missing_value_is_no_witness():
    # NaN goes right everywhere, to class b; but values do not go missing by a perturbation.
    header, records = run("verify", treeproof.Box([0.0, 0.0], [9.0, 9.0]))
    record = next(r for r in records if r["verdict"] == "falsified" and r["label"] == "a")
    assert reason(header, changed(record, witness=[9.0, 9.0])) == ""
    missing = changed(record, witness=[9.0, None])
    assert reason(header, missing) == "witness: feature 1 is beyond the set"


def test_labels_that_were_given_are_taken_as_given():
    header, records = run(y=["a", "b", "a", "b"])
    other = changed(records[0], label="b")
    assert reason(header, other) == "claim: the goal is not ('keep', 'b')"
    assert reason(header, changed(records[0], label="b", keep=1)) != ""


def test_a_threshold_has_two_labels():
    # A third class is never predicted: nothing keeps it, whatever the sums do.
    ensemble = stumps(classes=("a", "b", "c"))
    header, records = run(ensemble=ensemble, y=["a", "b", "a", "b"])
    forged = changed(records[1], label="c", keep=2)
    assert reason(header, forged, ensemble) == "claim: there is no class 2"


def test_a_witness_must_lie_within_the_radius_of_the_question():
    header, records = run("verify", treeproof.LInf(0.41))
    record = next(r for r in records if r["verdict"] == "falsified")
    assert reason(header, record) == ""
    smaller = copy.deepcopy(header)
    smaller["question"]["perturbation"]["eps"] = 0.1
    found = reason(smaller, record)
    assert found == "witness: it lies beyond the radius of the question"
    # Falsified is said of the closed ball, so there is no step beyond it.
    just = changed(record, upper=0.1, attained=False)
    assert reason(smaller, just).startswith("witness: feature")


def test_a_ball_of_one_step_less_does_not_reach_the_witness():
    header, records = run(X=np.array([[0.25, 0.125], [0.375, 0.0]]))
    assert [r["attained"] for r in records] == [True, True]
    for record in records:
        less = float(np.nextafter(record["upper"], 0.0))
        nearer = changed(record, lower=less, upper=less, radius=less.hex())
        assert reason(header, nearer).startswith("witness: feature")


def test_no_answer_about_a_radius_lies_beyond_the_question():
    header, records = run("verify", treeproof.LInf(0.41))
    record = next(r for r in records if r["verdict"] == "falsified")
    smaller = copy.deepcopy(header)
    smaller["question"]["perturbation"]["eps"] = 0.1
    for attained in (False, True):
        found = reason(smaller, record | {"attained": attained})
        assert found == "witness: it lies beyond the radius of the question"


@pytest.mark.parametrize(
    "fields", [{"verdict": "unknown"}, {"verdict": "verified", "exact": False}, {"verdict": "sure"}]
)
def test_settled_radii_have_equal_bounds(fields):
    header, records = run()
    assert records[0]["exact"]
    apart = records[0] | {"lower": records[0]["lower"] / 2} | fields
    said = "record: unknown verdict" if "sure" in fields.values() else "record: an exact radius has"
    assert reason(header, apart).startswith(said)


def test_a_witness_is_a_row_of_the_model():
    ensemble = stumps(precision="float32", input_precision="float32")
    header, records = run(ensemble=ensemble, arithmetic="real")
    moved = copy.deepcopy(records[0])
    moved["witness"][0] += 2.0**-40
    said = "witness: it is not in the model's input precision"
    assert reason(header, moved, ensemble) == said


def test_the_ends_of_a_range_belong_to_it():
    for low, high in ((-np.inf, 1.8), (-1.0, np.inf)):
        goal = treeproof.ScoreWithin(low, high)
        header, records = run("verify", treeproof.Box(0.0, 1.0), goal=goal)
        for record in records:
            assert record["verdict"] == "falsified"
            score = float(Model(ENSEMBLE).margins([record["witness"]])[0])
            ends = [score if low > -np.inf else low, score if high < np.inf else high]
            wider = copy.deepcopy(header)
            wider["question"]["goal"] |= {"low": str(ends[0]), "high": str(ends[1])}
            assert reason(header, record) == ""
            kept = changed(record, within=[end.hex() for end in ends])
            assert reason(wider, kept) == "witness: its score is in the range"


def test_distances_are_measured_in_the_direction_of_the_move():
    header, records = run("radius", treeproof.LInf(below=0.5, above=2.0))
    directions = set()
    for record in records:
        assert reason(header, record) == ""
        nearer = record | {"witness_distance": record["witness_distance"] / 2}
        assert "is farther than" in reason(header, nearer)
        pairs = zip(record["values"], record["witness"], strict=True)
        directions |= {w > x for x, w in pairs if x != w}
    assert directions == {False, True}


def test_rows_without_evidence_are_told_apart():
    header, records = run()
    checker = RunChecker(header, ENSEMBLE)
    missing = checker.check(records[0] | {"evidence": None})
    assert (missing.status, missing.reason) == ("unproved", "no evidence")
    limited = checker.check(records[0] | {"evidence": "none: time limit"})
    assert (limited.status, limited.reason) == ("unproved", "time limit")
    nothing = {"verdict": "unknown", "exact": False, "lower": 0.0, "upper": "inf", "evidence": None}
    assert checker.check(records[0] | nothing).status == "claims nothing"
    assert checker.check({}).status == "rejected"
    assert checker.check({"row": 3}).row == 3


def lines(header: Record, records: list[Record]) -> list[str]:
    return [json.dumps(record) for record in [header, *records]]


def check_text(tmp_path: Path, text: Any, **options: Any) -> list[Any]:
    path = tmp_path / "run.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(check_run(path, ENSEMBLE, **options))


def test_run_files_are_checked_line_by_line(tmp_path):
    header, records = run()
    header["data"] = {"n_asked": 4}
    whole = lines(header, records)
    assert [c.status for c in check_text(tmp_path, "\n".join(whole))] == ["accepted"] * 4
    torn = check_text(tmp_path, "\n".join(whole)[:-40])
    assert [c.status for c in torn] == ["accepted"] * 3 + ["rejected"] * 2
    assert torn[3].reason.startswith("line 5: ")
    assert torn[4].reason == "run: 4 rows were asked about, 3 are here"
    for text in ("\n".join(whole[1:]), "", "[]", "{", '{"record": "header"}'):
        with pytest.raises(InvalidInput, match="header record"):
            check_text(tmp_path, text)
    twice = check_text(tmp_path, "\n".join([whole[0], *whole]))
    assert twice[0].reason == "line 2: this is no row record"
    odd = check_text(tmp_path, "\n".join([whole[0], "[]", '{"record": "row"}', "{}", "[" * 9999]))
    assert [c.status for c in odd] == ["rejected"] * 5
    assert [c.reason[:6] for c in odd[:4]] == ["line 2", "record", "line 4", "line 5"]
    assert [c.row for c in odd] == [-1] * 5
    del header["data"]
    assert check_text(tmp_path, json.dumps(header)) == []


@pytest.mark.parametrize("number", ["0", 0.0, -1, None, True, [0], float("inf")])
def test_a_row_number_is_a_number(tmp_path, number):
    header, records = run("verify", treeproof.Box(ROWS - 0.01, ROWS + 0.01))
    found = check_text(tmp_path, "\n".join(lines(header, [records[0] | {"row": number}])))
    assert [(c.row, c.reason) for c in found] == [(-1, "record: it has no row number")]
    found = check_text(
        tmp_path, "\n".join(lines(header, [records[0] | {"row": number}])), rows={-1: [0.1, 0.1]}
    )
    assert [(c.row, c.reason) for c in found] == [(-1, "record: it has no row number")]


def test_no_row_is_counted_twice(tmp_path):
    header, records = run()
    header["data"] = {"n_asked": 4}
    found = check_text(tmp_path, "\n".join(lines(header, [*records[:3], records[0]])))
    assert [c.status for c in found] == ["accepted"] * 3 + ["rejected"] * 2
    assert (found[3].row, found[3].reason) == (0, "line 5: row 0 is here twice")
    assert found[4].reason == "run: 4 rows were asked about, 3 are here"


@pytest.mark.parametrize(
    ("header_fields", "expected"),
    [
        ({"state": "complete", "n_rows": 3}, []),
        ({"state": "complete", "n_rows": 4}, ["run: 4 rows were asked about, 3 are here"]),
        ({"n_rows": 4}, ["run: 4 rows were asked about, 3 are here"]),
        ({"state": "underway", "n_rows": 0}, ["run: it is not complete, 3 rows are here"]),
        ({"data": {"n_asked": 2}, "n_rows": 3}, []),
        ({"data": {"n_asked": 5}, "n_rows": 4}, ["run: 5 rows were asked about, 3 are here"]),
        ({"data": {"n_asked": None}, "n_rows": "4"}, []),
    ],
)
def test_lines_that_are_missing_are_noticed(tmp_path, header_fields, expected):
    header, records = run()
    found = check_text(tmp_path, "\n".join(lines(header | header_fields, records[:3])))
    assert [c.reason for c in found if c.status != "accepted"] == expected
    assert [c.row for c in found] == [0, 1, 2, *[-1] * len(expected)]


def test_bytes_that_are_no_text_are_rejected(tmp_path):
    header, records = run()
    first, second = (line.encode() for line in lines(header, records[:1]))
    found = check_text(tmp_path, first + b"\n" + second + b"\n\xff\xfe\n")
    assert [c.status for c in found] == ["accepted", "rejected"]
    with pytest.raises(InvalidInput, match="makes JSON lines of a Parquet file"):
        check_text(tmp_path, b"PAR1\x15\xff\n" + second)


@pytest.mark.parametrize("header", [{"data": []}, {"question": []}, {"model": {"fingerprint": 3}}])
def test_odd_headers_are_refused(tmp_path, header):
    good, records = run()
    with pytest.raises(InvalidInput, match="start with a header record"):
        check_text(tmp_path, "\n".join(lines(good | header, records)))


def test_rows_of_a_data_file_are_compared(tmp_path):
    header, records = run()
    text = "\n".join(lines(header, records))
    data = dict(enumerate(ROWS.tolist()))
    assert {c.status for c in check_text(tmp_path, text, rows=data)} == {"accepted"}
    data[2] = [0.0, 0.0]
    del data[3]
    found = check_text(tmp_path, text, rows=data)
    assert [c.status for c in found] == ["accepted", "accepted", "rejected", "rejected"]
