"""Claims that are false, or about something else, with evidence that proves what is beside them."""

import dataclasses
import json
import struct

import numpy as np
import pytest

import treeproof as tp
from tests.unit.checker.certificates import Record, packed, unpacked
from tests.unit.checker.test_nodes import model, stump
from tests.unit.checker.test_properties import packed as packed_property
from tests.unit.checker.test_properties import unpacked as unpacked_property
from treeproof.checker import RunChecker
from treeproof.checker.property_files import check_answers
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import CATEGORICAL, Aggregation, Decision, Ensemble, Provenance
from treeproof.prediction import Model
from treeproof.results.property_file import load_property_records, save_property_results
from treeproof.results.threat import frozen_numbers

THRESHOLD = {"decision": Decision(kind="threshold", cut=0.5), "classes": (0, 1)}


def changed_model(ensemble: Ensemble, **options: object) -> Ensemble:
    return dataclasses.replace(ensemble, **options)


def in_a_file(ensemble: Ensemble, results: list, path) -> dict:
    """The file of answers, as it is read again."""
    save_property_results(path, Model(ensemble), [("claim", result) for result in results])
    return load_property_records(path)


def statuses(ensemble: Ensemble, document: dict, *more: object) -> list[str]:
    return [check.status for check in check_answers(ensemble, document, *more)]


def run_of(results, path) -> list[Record]:
    results.save(path)
    return [json.loads(line) for line in path.read_text().splitlines()]


def status(ensemble: Ensemble, header: Record, record: Record) -> str:
    return RunChecker(header, ensemble).check(record).status


def by_category(
    codes: list[int], inside: tuple[float, float], outside: tuple[float, float]
) -> Ensemble:
    """Feature 1 is a category; feature 0 moves the score by other numbers in some of its codes."""
    builder = TreeBuilder(leaf_width=1)
    values = np.array([[0.0], [0.0], [inside[0]], [inside[1]], [0.0], [outside[0]], [outside[1]]])
    builder.add_tree(
        feature=[1, 0, -1, -1, 0, -1, -1],
        threshold=[0.0, 5.0, 0.0, 0.0, 5.0, 0.0, 0.0],
        left=[1, 2, -1, -1, 5, -1, -1],
        right=[4, 3, -1, -1, 6, -1, -1],
        value=values,
        flags=[CATEGORICAL, 0, 0, 0, 0, 0, 0],
        output=0,
        category_set=[builder.add_category_set(codes), -1, -1, -1, -1, -1, -1],
    )
    return Ensemble(
        trees=builder.finish(),
        n_features=2,
        n_outputs=1,
        input_precision="float64",
        aggregation=Aggregation(precision="float64", start=(0.0,)),
        decision=Decision(kind="score"),
        provenance=Provenance(library="test"),
        categorical=(1,),
    )


@pytest.mark.parametrize(
    "ball",
    [
        tp.LInf(domain=tp.Domain(integer=[])),
        tp.LInf(relative=True),
        tp.LInf(domain=tp.Domain(ranges={0: (-100.0, 100.0)})),
    ],
)
def test_an_infinite_radius_holds_cells_that_are_only_approached(ball, tmp_path) -> None:
    ensemble = changed_model(model(stump(0, 1.0, 0.0)), **THRESHOLD)
    found = tp.radius(Model(ensemble), np.full((1, 4), 3.0), perturbation=ball, evidence=True)
    header, record = run_of(found, tmp_path / "run.jsonl")
    assert status(ensemble, header, record) == "accepted"
    claim, proof = unpacked(record["evidence"])
    claim |= {"set": "open", "radius": "inf"}
    whole = [[[0, 1]]] + [[[0, 0]]] * 3
    for kept in (claim["kept"], whole, [[[1, 1]]] + [[[0, 0]]] * 3):
        for nodes in (b"P", b"D", b"L\0\0\1", proof):
            forged = record | {
                "lower": "inf", "upper": "inf", "attained": False, "exact": True,
                "verdict": "verified", "witness": None, "witness_distance": None,
                "cost": None, "witness_probability": None,
                "evidence": packed(claim | {"kept": kept}, nodes),
            }  # fmt: skip
            forged.pop("witness_label", None)
            assert status(ensemble, header, forged) == "rejected", (kept, nodes)


def test_evidence_around_a_row_of_missing_values_says_nothing_about_a_box(tmp_path) -> None:
    ensemble = model(stump(0, 0.0, 1.0))
    box, claim = tp.Box(np.zeros(4), np.ones(4)), tp.Stable([0], 0.001)
    rows = np.full((1, 4), np.nan)
    (around,) = tp.prove(Model(ensemble), claim, box, rows, evidence=True)
    assert around.verdict == "verified"
    own = in_a_file(ensemble, [around], tmp_path / "a")
    assert statuses(ensemble, own) == ["accepted"]
    answer = own["properties"][0]
    assert answer["values"] == [None] * 4  # so that readers see what it is about
    for told in ({"row": -1, "values": None}, {"values": [0.0] * 4}, {"values": None}, {"row": -1}):
        assert statuses(ensemble, own | {"properties": [answer | told]}) == ["rejected"], told


def test_listed_categories_that_evidence_leaves_out_do_not_stay(tmp_path) -> None:
    ensemble = by_category([2], (-10.0, 10.0), (-0.5, 0.5))
    row, claim = np.array([[4.0, 0.0]]), tp.Stable([0], 2.0)
    wide = tp.LInf(2.0, domain=tp.Domain(categorical={1: [0, 1, 2]}))
    large, small = (
        tp.prove(Model(ensemble), claim, ball, row, evidence=True)[0]
        for ball in (wide, tp.LInf(2.0))
    )
    assert (large.verdict, small.verdict) == ("falsified", "verified")
    own = in_a_file(ensemble, [large], tmp_path / "a")
    other = in_a_file(ensemble, [small], tmp_path / "b")
    assert statuses(ensemble, own) == statuses(ensemble, other) == ["accepted"]
    assert statuses(ensemble, other | {"domain": own["domain"]}) == ["rejected"]


def test_a_box_without_an_end_holds_other_codes_than_one_with_an_end(tmp_path) -> None:
    ensemble = by_category([0, 1, 2], (-0.5, 0.5), (-10.0, 10.0))
    claim, low = tp.Stable([0], 2.0), [0.0, 0.0]
    boxes = [tp.Box(low, [9.0, end]) for end in (2.0, np.inf, 9.0)]
    found = [tp.prove(Model(ensemble), claim, box, evidence=True) for box in boxes]
    assert [result.verdict for result in found] == ["verified", "verified", "falsified"]
    files = [in_a_file(ensemble, [result], tmp_path / "a") for result in found]
    assert [statuses(ensemble, own) for own in files] == [["accepted"]] * 3
    for own in files[:2]:
        assert statuses(ensemble, own | {"domain": files[2]["domain"]}) == ["rejected"]


def test_listed_codes_are_those_that_there_are_whatever_the_bounds_say(tmp_path) -> None:
    """In runs and in properties: bounds are about numbers."""
    ensemble = changed_model(by_category([2], (1.0, 1.0), (0.0, 0.0)), **THRESHOLD)
    row, codes = np.array([[2.0, 0.0]]), tp.Domain(categorical={1: [0, 1, 2]})
    box = tp.Box([0.0, 0.0], [9.0, 1.0], domain=codes)
    (verdict,) = tp.verify(Model(ensemble), row, perturbation=box).verdict
    result = tp.prove(Model(ensemble), tp.ScoreRange(high=0.5), box, evidence=True)
    assert verdict == result.verdict == "falsified"
    assert statuses(ensemble, in_a_file(ensemble, [result], tmp_path / "a")) == ["accepted"]
    twice = tp.Box(0.0, 9.0, domain=tp.Domain(categorical={1: [0, 1, 2]}, ranges={1: (0, 1)}))
    with pytest.raises(tp.InvalidInput, match="'ranges' of Domain"):
        tp.verify(Model(ensemble), row, perturbation=twice)


def test_an_answer_is_about_the_row_of_its_number(tmp_path) -> None:
    ensemble = model(stump(0, 0.0, 1.0))
    rows = np.array([[2.0] * 4, [0.5] * 4])
    found = tp.prove(Model(ensemble), tp.ScoreRange(0.5, 1.5), tp.LInf(0.1), rows, evidence=True)
    own = in_a_file(ensemble, found, tmp_path / "a")
    assert statuses(ensemble, own, None, rows) == ["accepted"] * 2
    answers = own["properties"]
    moved = own | {"properties": [answers[0] | {"row": 1}, answers[1] | {"row": 0}]}
    assert statuses(ensemble, moved, None, rows) == ["rejected"] * 2
    values = own | {"properties": [answers[0] | {"values": answers[1]["values"]}]}
    assert statuses(ensemble, values) == ["rejected"]


def test_bounds_without_evidence_are_claims(tmp_path) -> None:
    ensemble = model(stump(0, 0.0, 1.0))
    box = tp.Box(np.zeros(4), np.ones(4))
    result = tp.largest_change(Model(ensemble), [0], box, evidence=True)
    own = in_a_file(ensemble, [result], tmp_path / "a")
    bare = own["properties"][0] | {
        "verdict": "unknown", "reason": "time limit", "upper": "inf", "exact": False,
        "witness": None, "evidence": None,
    }  # fmt: skip
    for lower, expected in ((100.0, "unproved"), (1e-9, "unproved"), (0.0, "claims nothing")):
        told = own | {"properties": [bare | {"lower": lower}]}
        assert statuses(ensemble, told) == [expected]


def test_an_answer_holds_nothing_that_nobody_checks(tmp_path) -> None:
    ensemble = model(stump(0, 0.0, 1.0))
    box = tp.Box(np.zeros(4), np.ones(4))
    result = tp.largest_change(Model(ensemble), [0], box, evidence=True)
    own = in_a_file(ensemble, [result], tmp_path / "a")
    answer = own["properties"][0]
    assert statuses(ensemble, own) == ["accepted"]
    for told in (
        {"quantity": "largest change of the probability in percent"},
        {"reason": "because"},
        {"seconds": -1.0},
        {"seconds": None},
        {"certified": True},
        {"row": "x"},
        {"evidence": ["x"]},
        {"witness": {"rows": []}},
        {"claim": None},
        {"upper": [1]},
    ):
        assert statuses(ensemble, own | {"properties": [answer | told]}) == ["rejected"], told
    assert statuses(ensemble, own | {"properties": [5]}) == ["rejected"]
    with pytest.raises(tp.InvalidInput, match="must list 'properties'"):
        check_answers(ensemble, own | {"properties": 5})


def test_bounds_far_apart_are_not_exact_whatever_sums_start_with(tmp_path) -> None:
    ensemble = changed_model(
        model(stump(0, 0.0, 4.0)), aggregation=Aggregation(precision="float64", start=(1e6,))
    )
    box = tp.Box(np.zeros(4), np.ones(4))
    result = tp.largest_change(Model(ensemble), [0], box, evidence=True)
    own = in_a_file(ensemble, [result], tmp_path / "a")
    assert statuses(ensemble, own) == ["accepted"]
    evidence = unpacked_property(result.evidence) | {
        "lower": (0.0).hex(), "upper": (60.0).hex(), "witness": None,
    }  # fmt: skip
    statements = [part | {"bound": (60.0).hex()} for part in evidence["statements"]]
    for verdict in ("verified", "unknown"):
        text = packed_property(evidence | {"statements": statements, "verdict": verdict})
        answer = own["properties"][0] | {
            "lower": 0.0, "upper": 60.0, "witness": None, "verdict": verdict, "evidence": text,
        }  # fmt: skip
        assert statuses(ensemble, own | {"properties": [answer]}) == ["rejected"]


@pytest.mark.parametrize(
    "claim",
    [tp.ScoreRange(-1e38, 1e38), tp.Stable([0], 1e38), tp.Monotone([0], tolerance=1e38)],
)
def test_scores_that_overflow_are_bounded_by_nothing(claim, tmp_path) -> None:
    """Leaves of 3e38, 3e38, -3e38 and -3e38 add up to infinity in float32, not to 0."""
    large = float(np.float32(3e38))

    def of(size: float) -> Ensemble:
        signs = (1.0, 1.0, -1.0, -1.0)
        return model(*[stump(0, 0.0, sign * size) for sign in signs], precision="float32")

    small, ensemble = of(large / 64.0), of(large)
    box = tp.Box(np.zeros(4), np.ones(4))
    with pytest.raises(tp.UnsupportedQuery, match="must fit into float32"):
        tp.prove(Model(ensemble), claim, box)
    with pytest.raises(tp.UnsupportedQuery, match="must fit into float32"):
        tp.verify(Model(ensemble), np.zeros((1, 4)), perturbation=box, goal=tp.ScoreChange(1.0))
    result = tp.prove(Model(small), claim, box, evidence=True)
    own = in_a_file(small, [result], tmp_path / "a")
    assert statuses(small, own) == ["accepted"]
    evidence = unpacked_property(result.evidence) | {"model": ensemble.fingerprint}
    statements = [part | {"exponent": part["exponent"] + 6} for part in evidence["statements"]]
    answer = own["properties"][0] | {
        "evidence": packed_property(evidence | {"statements": statements})
    }
    forged = own | {"model": {"fingerprint": ensemble.fingerprint}, "properties": [answer]}
    (check,) = check_answers(ensemble, forged)
    assert check.reason.endswith("sums overflow")


def two_stumps(*names: str) -> Ensemble:
    """Both features matter; the score is -1.5, or more from a threshold of 0.5 on."""
    trees = model(stump(0, -1.0, 1.0), stump(1, -0.5, 0.5))
    return changed_model(
        trees, n_features=2, feature_names=names, decision=Decision(kind="threshold", cut=0.0),
        classes=(0, 1),
    )  # fmt: skip


def test_places_in_rules_are_no_names(tmp_path) -> None:
    ensemble = two_stumps("", "b")
    row = np.array([[0.0, 0.0]])

    def asked(rule: str):
        ball = tp.L1(9.0, domain=tp.Domain(rules=[rule]))
        return tp.verify(Model(ensemble), row, perturbation=ball, evidence=True)

    other, own = asked("x[0] <= 0.25"), asked("x[1] <= 0.25")
    assert [list(found.verdict) for found in (other, own)] == [["verified"], ["falsified"]]
    header, record = run_of(own, tmp_path / "a.jsonl")
    assert status(ensemble, header, record) == "accepted"
    (_, forged) = run_of(other, tmp_path / "b.jsonl")
    assert status(ensemble, header, forged) == "rejected"


def test_numbers_of_frozen_features_are_no_names(tmp_path) -> None:
    ensemble = two_stumps("1", "0")
    row = np.array([[0.0, 0.6]])
    found = tp.radius(Model(ensemble), row, perturbation=tp.LInf(frozen=[1]), evidence=True)
    assert found.lower[0] > 0.0
    header, record = run_of(found, tmp_path / "a.jsonl")
    assert header["question"]["perturbation"]["frozen"] == [1]
    assert status(ensemble, header, record) == "accepted"
    assert frozen_numbers(header) == [1]
    for told, number, expected in (
        ([0], 0, "rejected"),
        (["0"], 1, "accepted"),
        (["1"], 0, "rejected"),
    ):
        header["question"]["perturbation"]["frozen"] = told
        assert frozen_numbers(header) == [number]
        assert status(ensemble, header, record) == expected, told


def test_a_row_outside_its_bounds_has_no_radius(tmp_path) -> None:
    ensemble = changed_model(model(stump(0, 0.0, 1.0)), **THRESHOLD)
    for ball in (tp.LInf(), tp.L1()):
        found = tp.radius(Model(ensemble), np.zeros((1, 4)), perturbation=ball, evidence=True)
        header, record = run_of(found, tmp_path / "a.jsonl")
        assert status(ensemble, header, record) == "accepted"
        header["question"]["perturbation"]["low"] = 100.0
        claim, proof = unpacked(record["evidence"])
        if "low" in claim:
            claim["low"] = (100.0).hex()
        forged = record | {"evidence": packed(claim, proof, record["evidence"][:3])}
        assert status(ensemble, header, forged) == "rejected"


def test_a_row_that_breaks_the_claim_itself_is_falsified(tmp_path) -> None:
    ensemble = changed_model(model(stump(0, 0.0, 1.0)), **THRESHOLD)
    rows = np.zeros((1, 4))
    for ball in (tp.L1(), tp.LInf()):
        found = tp.radius(Model(ensemble), rows, [1], perturbation=ball, evidence=True)
        header, record = run_of(found, tmp_path / "a.jsonl")
        assert (record["verdict"], record["upper"]) == ("falsified", 0.0)
        assert status(ensemble, header, record) == "accepted"
        for told in ({"verdict": "verified"}, {"verdict": "unknown", "exact": False}):
            assert status(ensemble, header, record | told) == "rejected"


@pytest.mark.parametrize("number", ["1" * 5000, "1e99999999", "1e400"])
def test_rules_hold_numbers_that_can_be_read(number, tmp_path) -> None:
    ensemble = two_stumps("a", "b")
    ball = tp.L1(9.0, domain=tp.Domain(rules=["a <= 0.25"]))
    found = tp.verify(Model(ensemble), np.zeros((1, 2)), perturbation=ball, evidence=True)
    header, record = run_of(found, tmp_path / "a.jsonl")
    assert status(ensemble, header, record) == "accepted"
    header["question"]["perturbation"]["domain"]["rules"] = [f"a <= {number}"]
    with pytest.raises(tp.InvalidInput, match="rules with numbers"):
        status(ensemble, header, record)


def test_what_a_header_says_of_the_model_is_that_of_the_model(tmp_path) -> None:
    ensemble = changed_model(
        by_category([2], (1.0, 1.0), (0.0, 0.0)), **THRESHOLD,
        provenance=Provenance(library="test", objective="regression"),
    )  # fmt: skip
    found = tp.radius(Model(ensemble), np.zeros((1, 2)), evidence=True)
    header, record = run_of(found, tmp_path / "a.jsonl")
    assert status(ensemble, header, record) == "accepted"
    for told in (
        {"categorical": []},
        {"categories": {"1": ["red", "green"]}},
        {"decision_rule": "nothing is ever refused"},
        {"decision_cut": 0.25},
        {"objective": "binary:logistic"},
    ):
        forged = header | {"model": header["model"] | told}
        with pytest.raises(tp.InvalidInput, match=f"the model's own '{next(iter(told))}'"):
            status(ensemble, forged, record)


def test_nodes_that_change_nothing_are_no_proof(tmp_path) -> None:
    """Each would cost a bound, and a small text hold as many of them as it likes."""
    ensemble = two_stumps("a", "b")
    ball = tp.L1(0.25)
    found = tp.verify(Model(ensemble), np.zeros((1, 2)), perturbation=ball, evidence=True)
    header, record = run_of(found, tmp_path / "a.jsonl")
    claim, _ = unpacked(record["evidence"])
    claim |= {"kept": [[[0, 1]], [[0, 1]]]}
    trim = b"T\0\0\1" + struct.pack("<Iiii", 1, 0, 0, 1)
    split = b"S" + struct.pack("<ii", 0, 7)
    for proof in (trim + trim + b"P", split + b"PP", split + b"DP"):
        text = packed(claim, proof, record["evidence"][:3])
        check = RunChecker(header, ensemble).check(record | {"evidence": text})
        assert "does not shrink" in check.reason or "is not inside" in check.reason
