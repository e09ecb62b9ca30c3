"""Evidence end to end: what engines record is accepted, what is damaged is told apart.

A damaged record may still be a proof of what it says: any multipliers give a bound. So two other
ways decide what the checker must say: enumeration tells whether an answer is true, and dense tables
(tests/unit/checker/dense.py) whether the bytes are a proof. Damage is re-signed.
"""

import json
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import pytest

import treeproof
from tests.oracle import brute_force
from tests.strategies import SMALL
from tests.unit.checker import dense
from tests.unit.checker.certificates import (
    BUDGET,
    DEEP,
    MANY_TREES,
    Record,
    checker_of,
    claim_of,
    damaged,
    random_run,
    run_of,
    unpacked,
)
from tests.unit.checker.provers import cell_box
from treeproof.checker import RunChecker
from treeproof.engines import evidence
from treeproof.engines.registry import engine_named
from treeproof.model import evaluate
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    ZERO_IS_MISSING,
    Aggregation,
    Decision,
    Ensemble,
    Provenance,
)
from treeproof.prediction import Model
from treeproof.query.goals import AvoidsTarget, KeepsLabel, ScoreChange, ScoreWithin
from treeproof.query.perturbations import Box, LInf
from treeproof.query.query import Query, resolve_query
from treeproof.results.run_file import row_records

ASKS = ("radius", "ball", "box")
SIZES = (SMALL, MANY_TREES, DEEP)


def is_subnormal(record: Record) -> bool:
    """Radii below any number that a row can hold; products with rates then underflow."""
    return isinstance(record["lower"], float) and 0.0 < record["lower"] < 1e-300


def check_accepted(seed: int, numbers: Iterable[int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for number in numbers:
        for ask in ASKS:
            rng = np.random.default_rng([seed, number])
            query, header, records = random_run(rng, SIZES[number % 3], ask)
            checker = checker_of(query, header)
            for record in records:
                if is_subnormal(record):
                    continue
                result = checker.check(record)
                assert result.status in ("accepted", "claims nothing"), (seed, number, ask, result)
                assert not record["reason"].startswith("row failed"), (seed, number, ask, record)
                found[result.status] += 1
                if record["evidence"]:
                    proof = unpacked(record["evidence"])[1]
                    found.update(chr(letter) for letter in set(proof) & set(b"PLSTE"))
    return found


def test_evidence_of_random_answers_is_accepted():
    found = check_accepted(1, range(60))
    assert found["accepted"] > 200
    assert all(found[letter] > 3 for letter in "PLSTE")


@pytest.mark.parametrize(("seed", "number"), [(100, 59), (107, 198), (108, 76)])
def test_evidence_of_rows_without_values_and_of_near_ties_of_a_softmax_is_accepted(seed, number):
    # The first has a row that is missing as a whole and broken as it is; in the others only what
    # the softmax rounds to tells who wins, and trees add to all classes, or to one each.
    check_accepted(seed, [number])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_evidence_of_many_random_answers_is_accepted(seed):
    check_accepted(seed, range(400))


@pytest.mark.parametrize("name", ["cliques", "multilevel", "single_tree"])
def test_answers_of_other_engines_get_evidence_too(name):
    engine = engine_named(name)
    accepted = 0
    for number in range(30):
        for ask in ("ball", "box"):
            rng = np.random.default_rng([2, number])
            query, _, _ = random_run(rng, SIZES[number % 3], ask)
            if engine.refusal(query) is not None:
                continue
            header, records = run_of(query, ask, engine)
            for record in records:
                result = checker_of(query, header).check(record)
                assert result.status in ("accepted", "claims nothing"), (number, ask, result)
                accepted += result.status == "accepted"
    assert accepted > 0


def stated_query(query: Query, header: Record, record: Record) -> Query | None:
    """The question that a record answers: its own row and label; None where that is no question."""
    ensemble, question = query.ensemble, header["question"]
    values = np.array([[np.nan if v is None else v for v in record["values"]]], dtype=np.float64)
    rows = evaluate.cast_rows(ensemble, values)
    labels = None
    if ensemble.classes and question["goal"]["name"] == "KeepsLabel":
        if record["label"] not in ensemble.classes:
            return None
        labels = np.array([ensemble.classes.index(record["label"])])
    numbers = {n: np.array(v, dtype=float) for n, v in question["perturbation"].items()
               if n in ("low", "high", "scale", "below", "above") and v is not None}  # fmt: skip
    if question["perturbation"]["name"] == "Box":
        sides = [numbers[n] if numbers[n].ndim < 2 else numbers[n][record["row"]]
                 for n in ("low", "high")]  # fmt: skip
        perturbation: Box | LInf = Box(*sides)
    else:
        eps = question["perturbation"]["eps"]
        frozen = tuple(question["perturbation"]["frozen"])
        perturbation = LInf(eps if eps is None else float(eps), frozen=frozen, **numbers)
    words = question["goal"]
    kinds = {
        "KeepsLabel": KeepsLabel,
        "AvoidsTarget": lambda: AvoidsTarget(words["target"]),
        "ScoreChange": lambda: ScoreChange(float(words["delta"])),
        "ScoreWithin": lambda: ScoreWithin(
            *(np.array(words[side], dtype=float).reshape(-1)[
                record["row"] if isinstance(words[side], list) else 0]
              for side in ("low", "high"))
        ),
    }  # fmt: skip
    sums = evaluate.accumulate(ensemble, evaluate.leaf_rows(ensemble, rows))
    return resolve_query(ensemble, rows, sums, labels, perturbation, goal=kinds[words["name"]]())


def is_true(query: Query, record: Record, asks_radius: bool) -> bool:
    """Whether an answer about the only row of a query is true, by enumeration."""
    if record["verdict"] == "falsified" and not asks_radius:
        return brute_force.violation(query, 0) is not None
    if not asks_radius:
        return record["verdict"] == "unknown" or brute_force.violation(query, 0) is None
    truth = brute_force.radius(query, 0)
    lower, upper = float(record["lower"]), float(record["upper"])
    if record["exact"]:
        # To the last bit, and with the right word on whether the distance itself breaks the row.
        said = (lower, upper, record["attained"])
        broken = record["verdict"] == "falsified"
        return said == (truth.value, truth.value, truth.attained) and broken == bool(
            query.already_broken[0]
        )
    if truth.exact is None:
        return upper == np.inf
    attains = truth.exact < upper or (truth.exact == upper and truth.attained)
    return truth.exact >= Fraction(lower) and (attains or truth.value == upper or upper == np.inf)


def try_damage(seed: int, n_cases: int, per_case: int) -> Counter[str]:
    """Damage evidence at random; returns how often each kind was accepted and rejected."""
    found: Counter[str] = Counter()
    for number in range(n_cases):
        rng = np.random.default_rng([seed, number])
        query, header, records = random_run(rng, SIZES[number % 3], ASKS[number % 3])
        checker = checker_of(query, header)
        with_evidence = [i for i, r in enumerate(records) if r["evidence"]]
        tried = [
            damaged(rng, records, int(rng.choice(with_evidence)))
            for _ in range(per_case if with_evidence else 0)
        ]
        tried = [(kind, record) for kind, record in tried if not is_subnormal(record)]
        # All at once: what is wrong with one must not show, or hide, in another.
        results = checker.check_all([record for _, record in tried])
        for (kind, record), result in zip(tried, results, strict=True):
            where = (seed, number, kind, result)
            found[f"{kind}: {result.status}"] += 1
            found[result.status] += 1
            if result.status == "rejected":
                assert ":" in result.reason, where
            if result.status == "accepted":
                stated = stated_query(query, header, record)
                assert stated is not None, where
                assert is_true(stated, record, checker.question.asks_radius), where
            if not (query.ensemble.trees.flags & ZERO_IS_MISSING).any():
                _compare_with_tables(checker, query, header, record, kind, result, found)
    return found


def _compare_with_tables(checker, query, header, record, kind, result, found) -> None:
    """What only changes the proof is accepted iff dense tables find that it is one."""
    if kind not in ("bytes", "more bytes", "structure"):
        return
    stated = stated_query(query, header, record)
    assert stated is not None
    claim = claim_of(checker, record)
    if claim.kind == "none":
        expected = claim.proof == b""
    else:
        box = cell_box(checker.forest, claim, claim.kind, claim.radius)
        expected = dense.proves(stated, checker.forest, claim, box)
    assert (result.status == "accepted") == expected, (kind, result, claim.proof, expected)
    found[f"tables: {expected}"] += 1


def test_damaged_evidence_is_told_apart():
    found = try_damage(3, 60, 12)
    assert found["rejected"] > 300
    assert found["tables: True"] > 5
    assert found["tables: False"] > 60


def test_damaged_cliques_are_told_apart(monkeypatch):
    monkeypatch.setattr(evidence, "NODES", 0)
    found = try_damage(5, 40, 12)
    assert found["rejected"] > 200


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 212))
def test_much_damaged_evidence_is_told_apart(seed):
    found = try_damage(seed, 150, 12)
    print(sorted(found.items()))
    assert found["accepted"] + found["rejected"] > 1000


def test_a_range_that_ends_between_floats_is_decided_right():
    # float32(0.7) lies below 0.7: a score of that value has left the range.
    builder = TreeBuilder(leaf_width=1)
    builder.add_tree(
        feature=[0, -1, -1], threshold=[0.5, 0.0, 0.0], left=[1, -1, -1], right=[2, -1, -1],
        flags=[0, 0, 0], value=np.array([[0.0], [np.float32(0.7)], [1.0]]), output=0,
        category_set=[-1, -1, -1],
    )  # fmt: skip
    ensemble = Ensemble(
        trees=builder.finish(),
        n_features=1,
        n_outputs=1,
        input_precision="float32",
        aggregation=Aggregation(precision="float32", start=(0.0,)),
        decision=Decision(kind="score"),
        provenance=Provenance(library="test"),
    )
    found = treeproof.verify(
        Model(ensemble), [[0.7]], None, LInf(1.0), goal=ScoreWithin(0.7, 2.0), evidence=True
    )
    assert found.verdict.tolist() == ["falsified"]
    assert check_all(found, ensemble) == ["accepted"]
    wider = treeproof.verify(
        Model(ensemble), [[0.7]], None, LInf(1.0), goal=ScoreWithin(0.69, 2.0), evidence=True
    )
    assert wider.verdict.tolist() == ["verified"]
    assert check_all(wider, ensemble) == ["accepted"]


def check_all(results, ensemble) -> list[str]:
    """Status of every row of results, read back as a file would give them."""
    header, *records = json.loads(json.dumps([results.header, *row_records(results)]))
    checker = RunChecker(header, ensemble)
    return [checker.check(record).status for record in records]


def test_limits_leave_a_row_without_evidence_and_say_why():
    rng = np.random.default_rng(0)
    query, header, records = random_run(rng, SMALL, "radius")
    records[0]["evidence"] = "none: node limit"
    result = checker_of(query, header).check(records[0])
    assert (result.status, result.reason) == ("unproved", "node limit")
    assert BUDGET.time_limit_s > 0.0
