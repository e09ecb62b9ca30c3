"""Evidence about two models: real ones are accepted, damaged and forged ones are not."""

import base64
from collections.abc import Iterator

import numpy as np
import pytest

from tests.soundness.test_differences import check_case, pair_of_case
from tests.unit.checker.test_properties import packed, unpacked, where
from treeproof.checker.properties import check_property
from treeproof.errors import CertificateRejected
from treeproof.model.ensemble import Ensemble
from treeproof.results.properties import PropertyResult
from treeproof.results.verdict import Verdict


def answers(seeds: range) -> Iterator[tuple[Ensemble, Ensemble, PropertyResult]]:
    """Decided parts of answers, with the two models that they are about."""
    for seed in (seed for seed in seeds if seed % 3):  # the others have large trees
        pair = pair_of_case(np.random.default_rng(seed), seed)
        result = check_case(seed, evidence=True)
        if result is None or pair is None:
            continue
        for part in result.parts:
            if part.verdict != Verdict.UNKNOWN:
                yield *pair, part


def forged(document: dict) -> dict[str, dict]:
    """Changes each of which makes a claim that is not proved."""
    found = {
        "another model": document | {"model": "0" * 64},
        "another second model": document | {"other": "0" * 64},
        "no second model": document | {"other": None},
    }
    upper, lower = float.fromhex(document["upper"]), float.fromhex(document["lower"])
    if document["claim"]["name"] == "SameScores" and upper > 0.0:
        least = min(lower, upper - 0.05 * (upper + 1.0))
        parts = [dict(part, bound=least.hex()) for part in document["statements"]]
        found["a smaller bound"] = document | {"upper": least.hex()}
        found["a smaller bound on record"] = document | {"upper": least.hex(), "statements": parts}
        found["a larger lower bound"] = document | {"lower": (upper + 1.0).hex()}
        if upper > 1e-3:
            claim = document["claim"] | {"delta": 1e-9}
            found["a smaller delta"] = document | {"claim": claim, "verdict": "verified"}
    if document["verdict"] == "falsified":
        found["verified"] = document | {"verdict": "verified"}
        found["no witness"] = document | {"witness": None}
        one, other = document["witness"]
        moved = [(float.fromhex(one[0]) + 0.5).hex(), *one[1:]]
        if moved != one:  # what is missing stays missing
            found["two rows"] = document | {"witness": [moved, other]}
    if document["verdict"] == "verified" and document["claim"]["name"] == "SameLabels":
        found["fewer parts"] = document | {"statements": document["statements"][:-1]}
    for part in document["statements"]:
        proof = base64.b64decode(part["proof"])
        if proof and upper != 0.0:
            rest = [dict(own, proof=base64.b64encode(proof[:-1]).decode())
                    for own in document["statements"]]  # fmt: skip
            found["cut off"] = document | {"statements": rest}
    return found


def test_evidence_of_random_models_is_accepted_and_forged_evidence_rejected() -> None:
    kinds, n_asked, n_recorded = set(), 0, 0
    for first, second, part in answers(range(90)):
        n_asked += 1
        if part.evidence is None:
            continue
        n_recorded += 1
        assert (
            check_property(first, part.evidence, where(part), second).evidence.verdict
            == part.verdict
        )
        document = unpacked(part.evidence)
        check_property(first, packed(document), where(part), second)
        for name, changed in forged(document).items():
            kinds.add(name)
            with pytest.raises(CertificateRejected):
                check_property(first, packed(changed), where(part), second)
        with pytest.raises(CertificateRejected):
            check_property(first, part.evidence, where(part))
        if first.fingerprint != second.fingerprint:
            with pytest.raises(CertificateRejected):
                check_property(second, part.evidence, where(part), first)
    assert n_recorded >= 0.85 * n_asked > 50, (n_recorded, n_asked)
    assert len(kinds) >= 10, kinds
