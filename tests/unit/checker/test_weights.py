"""Weights of the classes that a target must beat: any are a proof, but only those in whole."""

import numpy as np
import pytest
from xgboost import XGBClassifier

import treeproof
from tests.unit.checker.certificates import packed, unpacked
from treeproof.checker import RunChecker
from treeproof.results.run_file import row_records


@pytest.fixture(scope="module")
def asked():
    """A model of four classes, and targeted radii with evidence."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 4)).astype(np.float32)
    y = (2 * (X[:, 0] + X[:, 1] > 1) + (X[:, 2] + 0.5 * X[:, 3] > 0.75)).astype(int)
    model = treeproof.load(XGBClassifier(n_estimators=12, max_depth=3, n_jobs=1).fit(X, y))
    results = treeproof.radius(model, X[:12], goal=treeproof.AvoidsTarget(2), evidence=True)
    return model.ensemble, results


def records_of(results):
    return [record for record in row_records(results) if record["lower"] > 0.0]


def verdict(asked, record, change):
    """What the checker says of a record with a changed proof."""
    ensemble, results = asked
    claim, proof = unpacked(record["evidence"])
    text = packed(claim, change(proof))
    return RunChecker(results.header, ensemble).check(dict(record, evidence=text))


def test_every_answer_is_accepted_and_some_name_weights(asked):
    ensemble, results = asked
    assert results.exact.all()
    checker = RunChecker(results.header, ensemble)
    assert all(checker.check(record).status == "accepted" for record in row_records(results))
    proofs = [unpacked(record["evidence"])[1] for record in records_of(results)]
    assert sum(proof.startswith(b"W") for proof in proofs) > 3


def test_only_a_proof_with_its_own_weights_holds(asked):
    records = [r for r in records_of(asked[1]) if unpacked(r["evidence"])[1].startswith(b"W")]
    rejected = 0
    for record in records:
        assert verdict(asked, record, lambda proof: proof).status == "accepted"
        # Naming weights twice is idle, but no lie.
        assert verdict(asked, record, lambda proof: proof[:4] + proof).status == "accepted"
        for weights in (b"\x0f\0\0", b"\0\x0f\0", b"\0\0\x0f"):
            said = verdict(asked, record, lambda proof, w=weights: b"W" + w + b"P")
            rejected += said.status == "rejected"
    assert rejected > len(records)


@pytest.mark.parametrize("weights", [b"\0\0\0", b"\x10\1\1", b"\xff\0\0"])
def test_weights_out_of_range_are_rejected(asked, weights):
    said = verdict(asked, records_of(asked[1])[0], lambda proof: b"W" + weights + proof)
    assert said.status == "rejected"
    assert "no such weights" in said.reason


def test_exact_sums_need_all_classes(asked):
    said = verdict(asked, records_of(asked[1])[0], lambda proof: b"W\1\0\1E")
    assert said.status == "rejected"
    assert "some classes have no weight" in said.reason
