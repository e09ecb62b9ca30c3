"""Evidence about costs: the checker accepts what answers carry, and no forged bounds."""

import base64
import json
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp
from tests.campaigns import forged_costs
from tests.random_domains import random_case
from tests.unit.checker.certificates import packed, unpacked
from tests.unit.engines.test_exact import model_of, stump
from treeproof.checker import RunChecker
from treeproof.model.builder import TreeBuilder
from treeproof.prediction import Model
from treeproof.results.run_file import row_records


def answered(seed: int) -> tuple[Any, list[dict[str, Any]]]:
    """A random case with its answers on record."""
    rng = np.random.default_rng([22, 3, seed])
    case = random_case(rng, is_wide=True)
    ask = tp.verify if isinstance(case.perturbation, tp.Box) else tp.radius
    results = ask(
        Model(case.ensemble), case.rows, None, case.perturbation, goal=case.goal, evidence=True
    )
    return RunChecker(results.header, case.ensemble), list(row_records(results))


@pytest.mark.parametrize("block", range(4))
def test_evidence_is_accepted(block: int) -> None:
    n_accepted = 0
    for seed in range(25 * block, 25 * block + 25):
        checker, records = answered(seed)
        for check in checker.check_all(records):
            assert check.status in ("accepted", "claims nothing", "unproved"), (seed, check)
            n_accepted += check.status == "accepted"
    assert n_accepted > 15


def test_forged_bounds_are_rejected() -> None:
    """A lower bound that is moved up by a part, in the record and in its claim, has no proof."""
    n_forged = 0
    for seed in range(60):
        checker, records = answered(seed)
        for record in records:
            text, lower = record["evidence"], record["lower"]
            if text is None or not text.startswith("E1:") or not isinstance(lower, float):
                continue
            if not 0.0 < lower < np.inf or not isinstance(record["upper"], float):
                continue
            forged = {**record, "lower": 1.01 * lower, "upper": 1.01 * record["upper"]}
            forged["evidence"] = with_claim(text, radius=(1.01 * lower).hex())
            n_forged += 1
            assert checker.check(forged).status == "rejected", seed
    assert n_forged > 10


def test_kept_atoms_cannot_be_left_out() -> None:
    """A proof that does not look at what is within the limit is rejected."""
    n_forged = 0
    for seed in range(60):
        checker, records = answered(seed)
        for record in records:
            text = record["evidence"]
            if text is None or not text.startswith("E1:") or record["verdict"] != "verified":
                continue
            kept = claim_of(text)["kept"]
            if not any(len(axis) > 1 for axis in kept):
                continue
            forged = [axis[:1] for axis in kept]
            n_forged += 1
            check = checker.check({**record, "evidence": with_claim(text, kept=forged)})
            assert check.status == "rejected", seed
    assert n_forged > 5


def test_all_axes_cannot_leave_out_what_is_cheap() -> None:
    """No axis is dear because of others that leave out what is cheap, too."""
    n_forged = 0
    for seed in range(60):
        checker, records = answered(seed)
        for record in records:
            text, lower = record["evidence"], record["lower"]
            is_bounded = isinstance(lower, float) and 0.0 < lower < np.inf
            if text is None or not text.startswith("E1:") or not is_bounded:
                continue
            claim, _ = unpacked(text)
            claim |= {"kept": [[]] * len(claim["kept"]), "radius": (2.0 * lower).hex()}
            nothing = dict.fromkeys(
                ("witness", "witness_distance", "witness_label", "cost", "witness_probability")
            )
            forged = record | nothing | {"verdict": "unknown", "exact": False, "attained": False}
            forged |= {"lower": 2.0 * lower, "upper": "inf", "reason": "time limit"}
            for n_ways in (1, 2, 3):
                proof = b"D" * n_ways
                forged["evidence"] = packed(claim | {"set": "open"}, proof)
                assert checker.check(forged).status == "rejected", seed
            n_forged += 1
    assert n_forged > 10


def test_prices_that_are_left_out_are_compared_with_the_whole_limit() -> None:
    """Kept prices are multiples of 0.625; one between that and the limit is none of them."""
    builder = TreeBuilder()
    stump(builder, 0, 0.625, 0.0, 0.0)
    stump(builder, 0, 0.875, 0.0, 1.0)
    model = model_of(builder, 1, cut=0.5)
    proved, broken = (
        tp.verify(model, [[0.0]], None, tp.L1(eps), evidence=True) for eps in (0.625, 1.0)
    )
    assert [*proved.verdict, *broken.verdict] == ["verified", "falsified"]
    (record,) = row_records(proved)
    checker = RunChecker(broken.header, model.ensemble)
    claim, proof = unpacked(record["evidence"])
    assert claim["kept"] == [[[0, 1]]]
    forged = packed(claim | {"radius": (1.0).hex()}, proof)
    assert checker.check(record | {"lower": 1.0, "evidence": forged}).status == "rejected"


def test_forged_evidence_that_says_something_false_is_rejected() -> None:
    """A sample of the campaign; seed 4 holds bounds that pass where axes excuse each other."""
    said: list[str] = []
    counts = forged_costs.campaign(0, 8, says=said.append)
    assert not said
    assert counts["forged"] > 300
    assert counts["forged accepted"] > 10


def test_tables_of_prices_are_checked() -> None:
    """What a table lists is derived from the question; another price makes the answer wrong."""
    X = np.array([[1.0, 0.0], [0.0, 1.0]])
    ensemble = tp.load(DecisionTreeClassifier(random_state=0).fit(X, [0, 1])).ensemble
    cost = tp.Cost(table={0: {0: {1: 3.0}}}, domain=tp.Domain(one_hot=[[0, 1]]))
    results = tp.radius(Model(ensemble), X, None, cost, evidence=True)
    assert results.upper.tolist() == [3.0, 1.0]
    (record, *_) = row_records(results)
    assert RunChecker(results.header, ensemble).check(record).status == "accepted"
    for price in (2.0, 4.0):
        header = json.loads(json.dumps(results.header))
        header["question"]["perturbation"]["table"][0][3] = price
        assert RunChecker(header, ensemble).check(record).status == "rejected"


def test_targets_among_classes_have_evidence() -> None:
    """Proofs about a target are accepted; without what it must beat, they prove something else."""
    X, y = load_iris(return_X_y=True)
    ensemble = tp.load(RandomForestClassifier(5, max_depth=3, random_state=0).fit(X, y)).ensemble
    goal = tp.AvoidsTarget(2)
    results = tp.radius(Model(ensemble), X[:100:20], None, tp.L1(), goal=goal, evidence=True)
    checker = RunChecker(results.header, ensemble)
    for record in row_records(results):
        assert checker.check(record).status == "accepted"
        forged = {**record, "lower": 1.01 * record["lower"], "upper": 1.01 * record["upper"]}
        forged["evidence"] = with_claim(record["evidence"], radius=(1.01 * record["lower"]).hex())
        assert checker.check(forged).status == "rejected"


def claim_of(text: str) -> dict[str, Any]:
    """The claim of evidence."""
    payload = zlib.decompress(base64.b64decode(text[3:]))
    (length,) = struct.unpack_from("<I", payload)
    found: dict[str, Any] = json.loads(payload[4 : 4 + length])
    return found


def with_claim(text: str, **changes: Any) -> str:
    """Evidence with another claim and the same proof."""
    payload = zlib.decompress(base64.b64decode(text[3:]))
    (length,) = struct.unpack_from("<I", payload)
    claim = json.dumps({**claim_of(text), **changes}, separators=(",", ":")).encode()
    forged = struct.pack("<I", len(claim)) + claim + payload[4 + length :]
    return text[:3] + base64.b64encode(zlib.compress(forged)).decode()


def test_tiny_costs_are_more_than_none() -> None:
    """With a budget of 0, what costs next to nothing is left out, and the checker agrees."""
    X = np.array([[0.0], [1e-35]])
    ensemble = tp.load(DecisionTreeClassifier(random_state=0).fit(X, [0, 1])).ensemble
    for budget in (0.0, 5e-324):
        results = tp.verify(Model(ensemble), X[:1], None, tp.L2(budget), evidence=True)
        assert results.verdict.tolist() == ["verified"]
        (record,) = row_records(results)
        assert RunChecker(results.header, ensemble).check(record).status == "accepted"


def test_a_witness_of_a_box_lies_in_it() -> None:
    """Values of the row itself are no excuse: a box need not hold the row."""
    X = np.array([[0.0, 0.0], [1.0, 0.0]])
    ensemble = tp.load(DecisionTreeClassifier(random_state=0).fit(X, [0, 1])).ensemble
    for domain in (tp.Domain(), tp.Domain(rules=["x[0] <= x[1] + 9"])):
        box = tp.Box([0.0, -1.0], [2.0, 1.0], domain=domain)
        results = tp.verify(Model(ensemble), [[0.0, 5.0]], None, box, evidence=True)
        checker = RunChecker(results.header, ensemble)
        (record,) = row_records(results)
        assert record["verdict"] == "falsified"
        assert checker.check(record).status == "accepted"
        forged = {**record, "witness": [record["witness"][0], 5.0]}
        assert checker.check(forged).status == "rejected"


def test_a_row_that_is_not_attacked_stays_in_a_box() -> None:
    """It is a witness against itself, and a claim that keeps none of its choices is no proof."""
    X = np.array([[1.0, 0.0], [0.0, 1.0]])
    model = tp.load(DecisionTreeClassifier(random_state=0).fit(X, [0, 1]))
    box = tp.Box(-5.0, 5.0, tp.Domain(one_hot=[[0, 1]]))
    found = tp.verify(model, X, [1, 1], box, attacker_class=0, evidence=True)
    assert found.verdict.tolist() == ["falsified", "verified"]
    checker, records = RunChecker(found.header, model.ensemble), list(row_records(found))
    assert [check.status for check in checker.check_all(records)] == ["accepted", "accepted"]
    claim, _ = unpacked(records[1]["evidence"])
    own = unpacked(records[0]["evidence"])[0]["row"]
    forged = packed(claim | {"kept": [[]], "row": own}, b"D")
    said = {name: records[1][name] for name in ("verdict", "exact", "attained", "witness")}
    said |= {name: records[1].get(name) for name in ("witness_distance", "witness_label")}
    assert checker.check(records[0] | said | {"evidence": forged}).status == "rejected"
