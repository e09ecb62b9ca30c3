"""Evidence is put to the checker when it is recorded, and packed within the checker's limits."""

import base64
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

import treeproof
from tests.unit.checker.test_answers import ENSEMBLE, ROWS, run
from treeproof.checker import check_run
from treeproof.checker.claims import LARGEST_RATIO
from treeproof.checker.proofs import NODES_PER_BYTE
from treeproof.engines import evidence
from treeproof.engines.evidence import TIGHTEST
from treeproof.prediction import Model
from treeproof.results import results as results_module


@pytest.fixture
def wrong_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Radii of the first two rows are too large, by one step of the last place and by much."""
    record = evidence.record_evidence

    def recorded(query, outcomes, budget, **options):
        record(query, outcomes, budget, **options)
        for number, row in enumerate(query.rows):
            if np.array_equal(row, ROWS[0]):
                beside = np.nextafter(outcomes.lower[number], np.inf)
                outcomes.lower[number] = outcomes.upper[number] = beside
            elif np.array_equal(row, ROWS[1]):
                outcomes.lower[number] *= 2.0

    monkeypatch.setattr(evidence, "record_evidence", recorded)
    # The tests take a disagreement for a failure (tests/conftest.py); here it is meant.
    monkeypatch.setattr(evidence, "withdraw", results_module.withdraw)


def test_an_answer_that_the_checker_does_not_accept_is_no_answer(wrong_engine, tmp_path: Path):
    found = treeproof.radius(Model(ENSEMBLE), ROWS, evidence=True)
    said = "row failed: the checker does not accept its evidence: "
    assert [reason.startswith(said) for reason in found.reason] == [True, True, False, False]
    assert found.verdict.tolist() == ["unknown", "unknown", "verified", "verified"]
    assert found.lower[:2].tolist() == [0.0, 0.0]
    assert np.isinf(found.upper[:2]).all()
    assert np.isnan(found.witness[:2]).all()
    assert found.evidence[:2].tolist() == [None, None]
    assert "row failed: the checker does not accept" in found.summary()
    found.save(tmp_path / "run.jsonl")
    checks = [check.status for check in check_run(tmp_path / "run.jsonl", ENSEMBLE)]
    assert checks == ["claims nothing", "claims nothing", "accepted", "accepted"]


def test_a_run_shows_the_rows_that_failed(wrong_engine, tmp_path: Path):
    run_ = treeproof.run(Model(ENSEMBLE), ROWS, out=tmp_path / "run.jsonl", evidence=True, n_jobs=1)
    assert run_.tally.verdicts["unknown"] == 2
    assert "row failed: the checker does not accept its evidence" in run_.summary()
    rows = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()[1:]]
    assert [row["reason"][:10] for row in rows] == ["row failed", "row failed", "", ""]


def test_a_disagreement_fails_the_tests_of_this_project(monkeypatch: pytest.MonkeyPatch):
    record = evidence.record_evidence

    def recorded(query, outcomes, budget, **options):
        record(query, outcomes, budget, **options)
        outcomes.attained[:] ^= True

    monkeypatch.setattr(evidence, "record_evidence", recorded)
    with pytest.raises(AssertionError, match="does not accept its evidence"):
        run()


@pytest.mark.parametrize("proof", [b"P" * 100_000, bytes(100_000), b"SPP" * 9, bytes(range(256))])
def test_no_few_bytes_stand_for_very_many(proof):
    packed = base64.b64decode(evidence.packed(b"{}", proof).removeprefix(evidence.PREFIX))
    assert zlib.decompress(packed) == struct.pack("<I", 2) + b"{}" + proof
    # A split and two closed halves are 3 nodes in 11 bytes; nothing is denser.
    assert 3 / 11 * len(proof) <= NODES_PER_BYTE * len(packed)
    assert len(proof) <= LARGEST_RATIO * len(packed)
    assert 3 / 11 * max(8, TIGHTEST) < NODES_PER_BYTE
