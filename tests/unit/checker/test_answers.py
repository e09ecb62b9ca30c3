"""Answers of rows: one known model, every field of answers and evidence damaged."""

import base64
import copy
import json
import struct
import tracemalloc
from typing import Any
from unittest import mock

import numpy as np
import pytest

import treeproof
from tests.unit.checker.certificates import packed, unpacked, with_row
from treeproof.checker import RunChecker
from treeproof.checker.claims import LARGEST_RATIO
from treeproof.checker.proofs import Prover
from treeproof.errors import InvalidInput
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance
from treeproof.prediction import Model
from treeproof.results.run_file import row_records

Record = dict[str, Any]


def stumps(*, classes=("a", "b"), precision: Any = "float64", **changes: Any) -> Ensemble:
    """Three trees on two features; class b where their sum is at least 0."""
    builder = TreeBuilder(leaf_width=1)
    for feature, threshold, left, right in ((0, 0.5, -1.0, 1.0), (1, 0.25, -0.7, 0.7)):
        builder.add_tree(
            feature=[feature, -1, -1], threshold=[threshold, 0.0, 0.0], left=[1, -1, -1],
            right=[2, -1, -1], flags=[0, 0, 0], value=np.array([[0.0], [left], [right]], precision),
            output=0, category_set=[-1, -1, -1],
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
    options.setdefault("arithmetic", "real")
    found = ask(Model(ensemble), rows, labels, *more, evidence=True, **options)
    header, *records = json.loads(json.dumps([found.header, *row_records(found)]))
    return header, records


def reason(header: Record, record: Record, ensemble: Ensemble = ENSEMBLE, values=None) -> str:
    """Why a record is rejected; empty when it is accepted."""
    check = RunChecker(header, ensemble).check(record, values)
    assert check.status in ("accepted", "rejected"), check
    assert check.row in (record["row"], -1)
    return check.reason if check.status == "rejected" else ""


def changed(record: Record, **fields: Any) -> Record:
    """The record with other fields, and evidence that is signed anew where a claim's field is."""
    record = copy.deepcopy(record)
    claim, proof = unpacked(record["evidence"])
    for name, value in fields.items():
        if name == "proof":
            proof = value
        elif name in claim or name in ("keep", "avoid", "within", "kept"):
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


@pytest.mark.parametrize("most_entries", [1, 20, 1 << 15])
def test_rows_are_checked_together_as_they_are_alone(most_entries):
    header, records = run("radius", treeproof.LInf(scale=[0.3, 1.0]), X=np.tile(ROWS, (3, 1)))
    proofs = [None, b"", b"P", b"PP", b"E", b"X", b"S" + struct.pack("<ii", 0, 0) + b"PP"]
    forged = [
        record if proof is None else changed(record, proof=proof)
        for record in records
        for proof in proofs
    ]
    forged += [changed(r, radius=(9.0).hex()) | {"lower": 9.0, "upper": 9.0} for r in records]
    forged += [r | {"witness": [0.1, 0.1]} for r in records] + [r | {"label": 3} for r in records]
    forged.insert(3, {"record": "row"})
    order = np.random.default_rng(0).permutation(len(forged))
    forged = [forged[number] for number in order]
    checker = RunChecker(header, ENSEMBLE)
    with mock.patch("treeproof.checker.proofs.MOST_ENTRIES", most_entries):
        together = checker.check_all(forged)
    assert together == [checker.check(record) for record in forged]
    assert len({check.reason for check in together}) > 10
    assert sum(check.status == "accepted" for check in together) >= len(records)


def test_an_error_in_one_proof_leaves_the_others_alone():
    header, records = run()
    checker, nodes = RunChecker(header, ENSEMBLE), Prover.nodes
    records[2] = changed(records[2], proof=b"PP")

    def fail(prover: Prover, row: int) -> Any:
        if prover.records[row].data == b"PP":
            raise MemoryError
        return nodes(prover, row)

    with mock.patch.object(Prover, "nodes", fail):
        checks = checker.check_all(records)
    assert [check.status for check in checks] == ["accepted", "accepted", "rejected", "accepted"]
    assert checks[2].reason == "record: it cannot be checked (MemoryError())"


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
    forged["model"] = run(ensemble=other)[0]["model"]
    assert reason(forged, records[0], other) == "claim: it is about another model"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model": "00"}, "claim: it is about another model"),
        ({"set": "open"}, "claim: the set is open, the answer needs closed"),
        ({"set": "sphere"}, "evidence: it cannot be read"),
        ({"radius": (-1.0).hex()}, "claim: the radius must be a number >= 0"),
        ({"radius": "nan"}, "claim: the radius must be a number >= 0"),
        ({"radius": (0.125).hex()}, "claim: the radius is 0.125, the answer says"),
        ({"radius": "wide"}, "evidence: it cannot be read"),
        ({"radius": None}, "evidence: it cannot be read"),
        ({"keep": 1}, "claim: the goal is not ('keep', 0)"),
        ({"keep": 2}, "claim: the goal is not ('keep', 0)"),
        ({"keep": -1}, "claim: the goal is not ('keep', 0)"),
        ({"keep": True}, "evidence: it cannot be read"),
        ({"keep": "a"}, "evidence: it cannot be read"),
        ({"keep": None}, "claim: there must be one property"),
        ({"avoid": 1}, "claim: there must be one property"),
        ({"within": [(0.0).hex(), (1.0).hex()]}, "claim: there must be one property"),
        ({"row": "00"}, "claim: it is about another row"),
        ({"row": None}, "evidence: it cannot be read"),
        ({"kept": [[[0, 1]], [[0, 1]]]}, "claim: it is not about this kind of question"),
        ({"proof": b""}, "byte 0: the proof is cut off"),
        ({"proof": b"X"}, "rise, byte 0: unknown node 'X'"),
        ({"proof": b"PP"}, "byte 1: the proof goes on"),
        ({"proof": b"E"}, "rise, byte 0: tree"),
        ({"label": "b"}, "record: the model's own label is 'a'"),
        ({"label": "b", "keep": 1}, "record: the model's own label is 'a'"),
        ({"label": "c"}, "record: there is no class 'c'"),
        ({"label": None}, "record: there is no class None"),
        ({"label": 0}, "record: there is no class 0"),
        ({"predicted": "b"}, "record: the model predicts 'a'"),
        ({"predicted": None}, "record: the model predicts 'a'"),
        ({"predicted": ["a"]}, "record: it cannot be read"),
        ({"verdict": "sure"}, "record: it cannot be read"),
        ({"values": [0.1, 0.2]}, "claim: it is about another row"),
        ({"values": [0.1]}, "record: one value per feature"),
        ({"lower": 0.5}, "record: there are no bounds 0.5 and 0.39"),
        ({"lower": 0.25}, "record: an exact radius has bounds 0.25 and"),
        ({"lower": None}, "record: there are no bounds None and"),
        ({"upper": None}, "record: there are no bounds"),
        ({"lower": "nan"}, "record: it cannot be read"),
        ({"lower": "0.4"}, "record: it cannot be read"),
        ({"lower": -0.5}, "record: there are no bounds -0.5 and"),
        ({"lower": True}, "record: it cannot be read"),
        ({"lower": 0.5, "upper": 0.5}, "claim: the radius is"),
        ({"attained": True}, "claim: the set is closed, the answer needs open"),
        ({"attained": 1}, "record: it cannot be read"),
        ({"exact": False, "verdict": "unknown"}, "claim: the set is closed, the answer needs open"),
        ({"exact": False}, "record: 'exact' is False, the row is verified"),
        ({"verdict": "unknown"}, "record: 'exact' is True, the row is unknown"),
        ({"verdict": "falsified"}, "record: 'falsified' is a row of radius 0"),
        ({"witness": [0.1]}, "witness: one value per feature"),
        ({"witness": []}, "witness: one value per feature"),
        ({"witness": None}, "witness: its label is None"),
        ({"witness": None, "witness_label": None}, "witness: its distance is inf"),
        ({"witness": [0.1, 0.1]}, "witness: its label is 0"),
        ({"witness": [], "shown": {"0": 0.1}}, "witness: one value per feature"),
        ({"shown": {"2": 0.1}}, "shown: '2' is no feature"),
        ({"shown": {"9" * 5000: 0.1}}, "shown: '999"),
        ({"shown": {"width": 0.1}}, "shown: 'width' is no feature"),
        ({"witness_label": "a"}, "witness: its label is 'b'"),
        ({"witness_label": None}, "witness: its label is 'b'"),
        ({"witness_distance": 0.1}, "witness: its distance is 0.4"),
        ({"witness_distance": 9.0}, "witness: its distance is 0.4"),
        ({"witness_distance": "inf"}, "witness: its distance is 0.4"),
        ({"witness_distance": None}, "witness: its distance is 0.4"),
        ({"cost": 0.1}, "shown: it costs 0.4"),
        ({"cost": -1.0}, "shown: it costs 0.4"),
        ({"probability": 0.5}, "record: the model tells no probabilities"),
        ({"witness_probability": 0.5}, "record: the model tells no probabilities"),
        ({"witness_probability": 1.5}, "record: it cannot be read"),
        ({"seconds": -1.0}, "record: it cannot be read"),
        ({"seconds": None}, "record: it cannot be read"),
        ({"reason": 3}, "record: it cannot be read"),
        ({"statistics": {"nodes": [1]}}, "record: it cannot be read"),
        ({"row_number": 1}, "record: it cannot be read (Object contains unknown field"),
        ({"key": "00"}, ""),
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
            assert ": bound" in reason(header, wider) or "own sums" in reason(header, wider)


def test_the_row_of_the_data_must_be_the_row_of_the_claim():
    header, records = run()
    assert reason(header, records[0], values=[0.1, 0.1]) == ""
    moved = "claim: it is about another row"
    assert reason(header, records[0], values=[0.1, 0.2]) == moved
    assert reason(header, records[0], values=[]) == moved
    swapped = records[0] | {"evidence": records[1]["evidence"]}
    assert reason(header, swapped) != ""
    unnamed = {k: v for k, v in records[0].items() if k != "values"}
    assert reason(header, unnamed) == "record: evidence needs the values of the row"
    assert reason(header, unnamed, values=[0.1, 0.1]) == ""
    assert reason(header, unnamed, values=[0.1, 0.2]) == moved


def test_a_claim_about_a_shifted_row_is_rejected():
    header, records = run()

    def shift(values: np.ndarray) -> None:
        values[0] += 0.01

    record = with_row(records[0], shift)
    assert reason(header, record) not in ("", "claim: it is about another row")
    assert reason(header, record | {"values": [0.1, 0.1]}) == "claim: it is about another row"


@pytest.mark.parametrize(
    "words", [{"scale": 2.0}, {"above": 3.0}, {"below": 3.0}, {"frozen": [0]}, {"low": 0.05}]
)
def test_evidence_is_about_the_question_of_its_run(words):
    header, records = run()
    other = copy.deepcopy(header)
    other["question"]["perturbation"] |= words
    assert {reason(other, record) for record in records} == {"claim: it is about another question"}
    claim, proof = unpacked(records[0]["evidence"])
    for side in ("down", "up", "low", "high", "domain", "semantics"):
        said = packed(claim | {side: (1.0).hex()}, proof)
        found = reason(header, records[0] | {"evidence": said})
        assert found.startswith("evidence: it cannot be read")


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
    text = records[0]["evidence"]
    for other in (text[:5] + "!" + text[5:], text + "\n", text + " "):
        assert reason(header, records[0] | {"evidence": other}).startswith("evidence: it cannot")


def test_bombs_are_rejected():
    header, records = run()
    claim, _ = unpacked(records[0]["evidence"])
    bomb = records[0] | {"evidence": packed(claim, b"P" * (1 << 20))}
    assert len(bomb["evidence"]) < 3000
    assert reason(header, bomb).startswith("evidence: the text is cut off, continued, or packed")
    n_packed = len(base64.b64decode(records[0]["evidence"][3:]))
    fits = records[0] | {"evidence": packed(claim, b"P" * (LARGEST_RATIO * n_packed))}
    assert reason(header, fits) == "byte 1: the proof goes on"
    long = changed(records[0], model=" " * 9999)
    assert reason(header, long) == "evidence: the claim is too long for this model"
    unknown = packed(claim | {"more": 1}, b"P")
    assert reason(header, records[0] | {"evidence": unknown}).startswith("evidence: it cannot be")


def test_a_proof_has_no_more_nodes_than_its_text_pays_for():
    # A thousand thresholds: splits that close nothing, as many as one likes.
    builder = TreeBuilder(leaf_width=1)
    for number in range(1000):
        builder.add_tree(
            feature=[0, -1, -1], threshold=[(number + 1) / 1024, 0.0, 0.0], left=[1, -1, -1],
            right=[2, -1, -1], flags=[0, 0, 0], value=np.array([[0.0], [-1.0], [-1.0]]), output=0,
            category_set=[-1, -1, -1],
        )  # fmt: skip
    ensemble = stumps(trees=builder.finish())
    header, (record,) = run("verify", treeproof.LInf(9.0), X=[[0.0, 0.0]], ensemble=ensemble)
    splits = [b"S" + struct.pack("<ii", 0, cut) for cut in range(999)]
    assert reason(header, changed(record, proof=b"P".join(splits) + b"PP"), ensemble) == ""
    with mock.patch("treeproof.checker.proofs.NODES_PER_BYTE", 1):
        found = reason(header, changed(record, proof=b"P".join(splits) + b"PP"), ensemble)
    assert found.endswith("more nodes than its packed form may hold")


def test_boxes_that_wait_share_what_they_have_in_common():
    # 500 features and as many splits on the way to the last box: no box is copied to wait.
    builder = TreeBuilder(leaf_width=1)
    for number in range(500):
        builder.add_tree(
            feature=[number, -1, -1], threshold=[0.5, 0.0, 0.0], left=[1, -1, -1],
            right=[2, -1, -1], flags=[0, 0, 0], value=np.array([[0.0], [-1.0], [-1.0]]), output=0,
            category_set=[-1, -1, -1],
        )  # fmt: skip
    ensemble = stumps(trees=builder.finish(), n_features=500, feature_names=())
    header, (record,) = run("verify", treeproof.LInf(9.0), X=np.zeros((1, 500)), ensemble=ensemble)
    splits = [b"S" + struct.pack("<ii", number, 0) for number in range(250)]
    tracemalloc.start()
    with mock.patch("treeproof.checker.proofs.MOST_ENTRIES", 1):
        assert reason(header, changed(record, proof=b"".join(splits) + b"P" * 251), ensemble) == ""
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6


def test_verified_answers_need_the_set_of_the_question():
    header, records = run("verify", treeproof.LInf(0.1))
    record = next(r for r in records if r["verdict"] == "verified")
    assert reason(header, changed(record, lower=0.2)) == "record: lower is 0.2, shown is 0.1"
    smaller = changed(record, radius=(0.05).hex())
    assert reason(header, smaller).startswith("claim: the radius is 0.05")
    assert reason(header, changed(record, set="none")).startswith("claim: the set is none")
    fields = {"verdict": "falsified", "set": "none", "proof": b"", "lower": 0.0, "upper": 0.1}
    falsified = changed(record, **fields, attained=True)
    assert reason(header, falsified).startswith("witness")
    wide, answers = run("verify", treeproof.LInf(0.4))
    broken = next(r for r in answers if r["verdict"] == "falsified")
    for upper in (0.01, 0.39):
        found = reason(wide, changed(broken, upper=upper))
        assert found == f"witness: it shows an upper bound of {broken['upper']!r}"
    assert reason(wide, broken | {"upper": "inf"}) == "record: upper is inf, it is falsified"
    said = "record: 'attained' is False, it is falsified"
    assert reason(wide, broken | {"attained": False}) == said


def test_only_a_verified_ball_has_a_lower_bound():
    header, records = run("verify", treeproof.LInf(0.4))
    broken = next(r for r in records if r["verdict"] == "falsified")
    assert reason(header, broken | {"lower": 0.05}) == "record: lower is 0.05, shown is 0.0"
    nothing = {"verdict": "unknown", "exact": False, "attained": False, "upper": "inf"}
    said = "record: lower is 0.05, shown is 0.0"
    assert reason(header, broken | nothing | {"lower": 0.05}) == said
    boxes, records = run("verify", treeproof.Box(0.0, 0.2))
    verified = next(r for r in records if r["verdict"] == "verified")
    for bounds in ({"lower": 0.05}, {"lower": 0.0}, {"lower": 0.0, "upper": "inf"}, {"upper": 1.0}):
        assert reason(boxes, verified | bounds) == "record: a box has no radius"


@pytest.mark.parametrize("bounds", [(None, None), (0.0, None), (None, "inf"), (None, 0.4)])
@pytest.mark.parametrize("kind", ["radius", "verify"])
def test_rows_without_bounds_do_not_pass_for_rows_that_claim_nothing(kind, bounds):
    header, records = run(kind, *([treeproof.LInf(0.1)] * (kind == "verify")))
    nothing = {"verdict": "unknown", "exact": False, "attained": False, "evidence": None,
               "witness": None, "witness_distance": None, "witness_label": None,
               "cost": None, "witness_probability": None,
               "shown": {}}  # fmt: skip
    for record in records:
        forged = record | nothing | {"lower": bounds[0], "upper": bounds[1]}
        assert reason(header, forged).startswith("record: there are no bounds")
        honest = record | nothing | {"lower": 0.0, "upper": "inf"}
        assert RunChecker(header, ENSEMBLE).check(honest).status == "claims nothing"


def test_boxes_and_frozen_features_are_those_of_the_question():
    header, records = run("verify", treeproof.Box([0.0, 0.0], [0.4, 0.2]))
    record = next(r for r in records if r["verdict"] == "verified")
    smaller = copy.deepcopy(header)
    smaller["question"]["perturbation"]["high"] = [0.3, 0.2]
    assert reason(smaller, record) == "claim: it is about another question"
    header, records = run("radius", treeproof.LInf(frozen=[0, "height"]))
    assert records[0]["lower"] == "inf"
    assert reason(header, records[0]) == ""
    free = copy.deepcopy(header)
    free["question"]["perturbation"]["frozen"] = [0]
    assert reason(free, records[0]) == "claim: it is about another question"


def test_goals_are_those_of_the_question():
    header, records = run("verify", treeproof.LInf(0.1), goal=treeproof.ScoreWithin(-5.0, 5.0))
    narrow = copy.deepcopy(header)
    narrow["question"]["goal"]["low"] = -1.0
    assert reason(narrow, records[0]) == "claim: the goal is not (-1.0, 5.0)"
    header, records = run("radius", goal=treeproof.ScoreChange(0.5))
    narrow = copy.deepcopy(header)
    narrow["question"]["goal"]["delta"] = 0.25
    assert reason(narrow, records[0]).startswith("claim: the goal is not (-")
    header, records = run("radius", goal=treeproof.AvoidsTarget("b"))
    other = copy.deepcopy(header)
    other["question"]["goal"]["target"] = "a"
    assert reason(other, records[0]) == "claim: the goal is not ('avoid', 0)"


def test_fixed_entries_must_not_move():
    rows = np.array([[np.nan, 0.1]])
    header, records = run("radius", X=rows, y=["a"])
    record = records[0]
    assert record["witness"] is not None
    moved = changed(record, witness=[0.9, record["witness"][1]], witness_distance="inf")
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
        far = 1.0 if isinstance(ball, treeproof.LInf) else 0.0
        moved = changed(record, witness=[record["witness"][0], 3.0], witness_distance=far)
        moved |= {"upper": far} if far else {}
        assert reason(header, moved, ensemble) == "witness: feature 1 must not move"


def test_a_missing_value_is_no_witness():
    # NaN goes right everywhere, to class b; but values do not go missing by a perturbation.
    header, records = run("verify", treeproof.Box([0.0, 0.0], [9.0, 9.0]))
    record = next(r for r in records if r["verdict"] == "falsified" and r["label"] == "a")
    assert reason(header, changed(record, witness=[9.0, 9.0])) == ""
    for value in (9.0 + 4e-15, 9.5):
        beyond = changed(record, witness=[9.0, value])
        assert reason(header, beyond) == "witness: feature 1 is beyond the set"
    missing = changed(record, witness=[9.0, None], witness_distance="inf")
    assert reason(header, missing) == "witness: feature 1 is beyond the set"


def test_labels_that_were_given_are_taken_as_given():
    header, records = run(y=["a", "b", "a", "b"])
    other = changed(records[0], label="b")
    assert reason(header, other) == "claim: the goal is not ('keep', 1)"
    assert reason(header, changed(records[0], label="b", keep=1)) != ""
    checker = RunChecker(header, ENSEMBLE)
    assert checker.check(records[0], label="a").status == "accepted"
    assert checker.check(records[0], label="b").reason == "record: the label of the data is 'b'"
    own, records = run()
    assert RunChecker(own, ENSEMBLE).check(records[0], label="b").status == "accepted"


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
    assert reason(smaller, record) == "witness: it shows an upper bound of 0.1"
    just = changed(record, upper=0.1)
    assert reason(smaller, just) == "witness: 'attained' is False"


def test_exact_radii_are_exact_to_the_last_bit():
    rows = np.array([[0.25, 0.125], [0.375, 0.0], [0.9, 0.9], [0.1, 0.1], [0.45, 0.6]])
    seen = set()
    for ball in (treeproof.LInf(), treeproof.LInf(scale=[0.3, 0.7]), treeproof.LInf(below=3.0)):
        header, records = run("radius", ball, X=rows)
        for record in records:
            assert reason(header, record) == ""
            seen.add(record["attained"])
            for step in (0.0, np.inf):
                for attained in (False, True):
                    other = float(np.nextafter(record["upper"], step))
                    kind = "open" if attained else "closed"
                    moved = changed(
                        record, lower=other, upper=other, radius=other.hex(), attained=attained,
                        set=kind,
                    )  # fmt: skip
                    found = reason(header, moved)
                    assert found.startswith("witness: ") or "bound" in found, found
            kind = "closed" if record["attained"] else "open"
            flipped = changed(record, attained=not record["attained"], set=kind)
            assert reason(header, flipped) != ""
    assert seen == {False, True}


def test_a_row_on_a_threshold_is_not_broken_as_it_stands():
    # Class b at the threshold itself; every smaller width is class a: the radius is 0, approached.
    rows = np.array([[0.5, 0.125]])
    header, (record,) = run(X=rows)
    assert (record["verdict"], record["upper"], record["attained"]) == ("verified", 0.0, False)
    assert reason(header, record) == ""
    for attained in (False, True):
        forged = changed(record, verdict="falsified", attained=attained, set="none", proof=b"")
        assert reason(header, forged) != ""
        itself = forged | {"witness": record["values"], "witness_distance": 0.0}
        assert reason(header, itself) != ""


def test_an_upper_bound_is_what_its_witness_shows():
    header, records = run("radius", engine="attack", X=ROWS[:2])
    for record in records:
        assert record["verdict"] == "unknown"
        assert reason(header, record) == ""
        for upper in (record["upper"] / 2, record["upper"] * 2, 1e9):
            for attained in (False, True):
                forged = record | {"upper": upper, "attained": attained}
                assert reason(header, forged).startswith("witness: ")
        missing = record | {"witness": None, "witness_distance": None, "witness_label": None}
        assert reason(header, missing).startswith("witness: ")
        assert reason(header, record | {"upper": "inf", "attained": False}).startswith("record: ")
        broken = record | {"upper": 0.0, "attained": True}
        assert reason(header, broken).startswith(("record: ", "witness: "))


def test_a_witness_moves_no_feature_for_nothing():
    ensemble = stumps(n_features=4, feature_names=(), categories={3: ("red", "green")})
    rows = np.array([[0.1, 0.1, 0.5, 0.0]])
    ball = treeproof.LInf(0.6, frozen=[2], low=0.0, high=1.0)
    header, (record,) = run("verify", ball, ensemble=ensemble, X=rows)
    assert (record["verdict"], record["upper"]) == ("falsified", 0.4)
    for feature, value in ((2, 0.6), (2, float(np.nextafter(0.5, 1.0))), (3, 1.0)):
        moved = copy.deepcopy(record)
        moved["witness"][feature] = value
        moved |= {"witness_distance": "inf" if feature == 2 else 1.0, "upper": 0.6}
        assert reason(header, moved, ensemble).startswith(f"witness: feature {feature} ")
    box = treeproof.Box([0.0, 0.0, 0.0, 0.0], [0.6, 0.6, 0.25, 1.0])
    boxed, (record,) = run("verify", box, ensemble=ensemble, X=rows)
    assert record["verdict"] == "falsified"
    for feature, value in ((2, 0.3), (2, -0.1), (0, 0.7), (3, 1.0)):
        moved = copy.deepcopy(record)
        moved["witness"] = [0.6, 0.6, 0.25, 0.0]
        moved["witness"][feature] = value
        assert reason(boxed, moved, ensemble).startswith(f"witness: feature {feature} ")


def test_a_witness_in_a_ball_may_be_the_first_float_beyond():
    # Below 0.5 lie real numbers, but no float32, within so small a radius.
    ensemble = stumps(precision="float32", input_precision="float32")
    rows = np.array([[0.5, 0.125]])
    header, (record,) = run("verify", treeproof.LInf(1e-12), ensemble=ensemble, X=rows)
    assert record["verdict"] == "falsified"
    assert reason(header, record, ensemble) == ""
    step = float(np.spacing(np.float32(0.4999)))
    assert record["witness"][0] == 0.5 - step
    beyond = copy.deepcopy(record)
    beyond["witness"][0] -= step
    beyond["witness_distance"] *= 2
    assert reason(header, beyond, ensemble) == "witness: feature 0 is beyond the set"


def test_a_witness_is_a_row_of_the_model():
    ensemble = stumps(precision="float32", input_precision="float32")
    header, records = run(ensemble=ensemble)
    moved = copy.deepcopy(records[0])
    moved["witness"][0] += 2.0**-40
    said = "witness: it is not in the model's input precision"
    assert reason(header, moved, ensemble) == said


def test_a_row_is_a_row_of_the_model():
    ensemble = stumps(input_precision="float32")
    for arithmetic in ("real", "float64"):
        header, records = run(ensemble=ensemble, arithmetic=arithmetic)
        forged = with_row(records[0], lambda values: values.__setitem__(0, 0.1 + 2.0**-40))
        said = "row: it is not in the model's input precision"
        assert (reason(header, forged, ensemble) == said) == (arithmetic == "real")
    refusing = stumps(missing_allowed=False)
    header, (record,) = run(ensemble=refusing, X=[[0.1, 0.1]])
    forged = with_row(record, lambda values: values.__setitem__(0, np.nan))
    assert reason(header, forged, refusing) == "row: the model takes no missing values"


def test_the_ends_of_a_range_belong_to_it():
    for low, high in ((-np.inf, 1.8), (-1.0, np.inf)):
        goal = treeproof.ScoreWithin(low, high)
        header, records = run("verify", treeproof.Box(0.0, 1.0), goal=goal)
        for record in records:
            assert record["verdict"] == "falsified"
            score = float(Model(ENSEMBLE).margins([record["witness"]])[0])
            ends = [score if low > -np.inf else low, score if high < np.inf else high]
            wider = copy.deepcopy(header)
            plain_ends = [end if np.isfinite(end) else str(end) for end in ends]
            wider["question"]["goal"] |= {"low": plain_ends[0], "high": plain_ends[1]}
            assert reason(header, record) == ""
            kept = changed(record, within=[end.hex() for end in ends])
            assert reason(wider, kept) == "witness: its score is in the range"


def test_distances_may_exceed_all_doubles():
    ball = treeproof.LInf(0.5, scale=[1e-300, 1.0])
    header, (record,) = run("verify", ball, X=[[0.1, 0.1]], goal=treeproof.ScoreWithin(-5.0, -1.0))
    assert record["verdict"] == "falsified"
    far = changed(record, witness=[1e200, record["witness"][1]], witness_distance="inf", upper=0.5)
    far |= {"witness_label": "b", "shown": {}}
    assert reason(header, far) == "witness: 'attained' is False"


def test_distances_are_measured_in_the_direction_of_the_move():
    header, records = run("radius", treeproof.LInf(below=0.5, above=2.0))
    directions = set()
    for record in records:
        assert reason(header, record) == ""
        nearer = record | {"witness_distance": record["witness_distance"] / 2}
        assert reason(header, nearer).startswith("witness: its distance is")
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
    seen = records[0] | nothing
    assert checker.check(seen).reason.endswith("without an upper bound has no witness")
    for name in ("witness", "witness_distance", "witness_label", "cost"):
        assert checker.check(seen).status == "rejected"
        seen |= {name: None}
    assert checker.check(seen).status == "claims nothing"
    proved = seen | {"evidence": records[0]["evidence"]}
    assert checker.check(proved).reason == "record: it has evidence, and claims nothing"
    for name in ("label", "predicted"):
        assert checker.check(seen | {name: "b"}).status == "rejected"
    unsaid = {key: value for key, value in seen.items() if key != "values"}
    assert checker.check(unsaid).reason == "record: a prediction needs the values of the row"
    assert checker.check(unsaid | {"predicted": None}).status == "claims nothing"
    assert checker.check({}).status == "rejected"
