"""Evidence about properties: real ones are accepted, damaged and forged ones are not."""

import base64
import dataclasses
import itertools
import json
import struct
import zlib

import numpy as np
import pytest

import treeproof as tp
from tests.soundness.test_properties import SIZES, random_domain, random_types
from tests.strategies import random_tree_ensemble
from tests.unit.checker.test_nodes import model, square, stump
from treeproof.checker.properties import PREFIX, check_answers, check_property
from treeproof.errors import CertificateRejected
from treeproof.model.ensemble import Decision
from treeproof.prediction import Model
from treeproof.results.property_file import load_property_records, save_property_results
from treeproof.results.verdict import Verdict


def answers(seed: int):
    """Some results with evidence about one random model."""
    rng = np.random.default_rng(seed)
    ensemble = random_tree_ensemble(rng, SIZES)
    if ensemble.aggregation.finish == "isolation":
        return
    n_features = ensemble.n_features
    domain = random_domain(rng, n_features)
    if ensemble.is_categorical.any():
        domain = tp.Box(np.zeros(n_features), np.full(n_features, 2.0))
    domain, _ = random_types(seed, ensemble, domain)
    changed = [int(rng.integers(n_features))]
    model = Model(ensemble)
    options = {"missing": [f for f in range(n_features) if rng.random() < 0.1], "evidence": True}
    yield ensemble, tp.largest_change(model, changed, domain, **options)
    yield ensemble, tp.prove(model, tp.Stable(changed, 0.5), domain, **options)
    if ensemble.n_outputs == 1 and not ensemble.is_categorical[changed].any():
        yield ensemble, tp.prove(model, tp.Monotone(changed), domain, **options)
        scale = np.full(n_features, 0.5)
        claim = tp.SmallNeighbourhood(0.5, 1.0, scale.tolist())
        yield ensemble, tp.prove(model, claim, domain, **options)
    if ensemble.decision.kind != "score":
        yield ensemble, tp.prove(model, tp.Fair(changed), domain, **options)
    if ensemble.decision.kind == "threshold":
        claim = tp.HighConfidence(changed, margin=0.25)
        yield ensemble, tp.prove(model, claim, domain, **options)


def unpacked(text: str) -> dict:
    return json.loads(zlib.decompress(base64.b64decode(text.removeprefix(PREFIX))))


def packed(document: dict) -> str:
    return PREFIX + base64.b64encode(zlib.compress(json.dumps(document).encode())).decode()


def test_a_tie_with_equal_rows_is_proved_where_no_bound_alone_shows_it() -> None:
    """Where feature 1 is low, one tree falls with feature 0 and the other one rises more."""
    falls = square(1, 0, [0.1, 0.0, 0.0, 0.0])
    ensemble = model(falls, square(1, 0, [0.0, 0.3, 0.0, 0.1]))
    box = tp.Box(np.zeros(4), np.ones(4))
    result = tp.prove(Model(ensemble), tp.Monotone(0), box, evidence=True)
    assert result.verdict == Verdict.VERIFIED
    assert result.upper == 0.0
    statement = unpacked(result.evidence)["statements"][0]
    proof = base64.b64decode(statement["proof"])
    assert proof.startswith(b"S")
    assert b"N" in proof
    document = unpacked(result.evidence)
    whole = statement | {"proof": base64.b64encode(b"N").decode()}
    with pytest.raises(CertificateRejected, match="a tree gains something"):
        check_property(ensemble, packed(document | {"statements": [whole]}))


def _forged(document: dict) -> dict[str, dict]:
    """Changes each of which makes a claim that is not proved."""
    forged = {}
    upper = float.fromhex(document["upper"])
    if np.isfinite(upper) and upper > 0.0:
        lower = float.fromhex(document["lower"])
        least = upper - 0.05 * (abs(upper) + 1.0)
        forged["a smaller bound"] = document | {"upper": min(lower, least).hex()}
        if document["witness"] is not None:
            forged["a larger lower bound"] = document | {"lower": (upper + 1.0).hex()}
        statements = [part | {"bound": min(lower, least).hex()} for part in document["statements"]]
        nothing = base64.b64encode(b"N").decode()
        forged["no tree gains anything"] = document | {
            "lower": (0.0).hex(), "upper": (0.0).hex(), "witness": None, "verdict": "verified",
            "statements": [part | {"bound": (-1.0).hex(), "proof": nothing} for part in statements],
        }  # fmt: skip
        forged["a smaller bound on record"] = document | {
            "upper": min(lower, least).hex(), "statements": statements
        }  # fmt: skip
    if document["verdict"] == "falsified":
        forged["verified"] = document | {"verdict": "verified"}
        forged["no witness"] = document | {"witness": None}
        swapped = document["witness"][::-1]
        if document["claim"]["name"] in ("Monotone", "HighConfidence"):
            forged["rows swapped"] = document | {"witness": swapped}
        forged["one row twice"] = document | {"witness": [swapped[0], swapped[0]]}
    for feature in [*document["integer"], *(f for f, _ in document["values"])]:
        rows = [list(row) for row in document["witness"] or ()]
        for row in rows:
            row[feature] = (float.fromhex(row[feature]) + 0.03125).hex()
        if rows:
            forged["a value that there is not"] = document | {"witness": rows}
    for part in document["statements"]:
        proof = base64.b64decode(part["proof"])
        if proof:
            cut = dict(part) | {"proof": base64.b64encode(proof[:-1]).decode()}
            forged["cut off"] = document | {"statements": [cut]}
            more = dict(part) | {"proof": base64.b64encode(proof + b"L").decode()}
            forged["continued"] = document | {"statements": [more]}
    forged["another model"] = document | {"model": "0" * 64}
    return forged


def test_evidence_of_random_models_is_accepted_and_forged_evidence_rejected() -> None:
    kinds, n_asked, n_recorded = set(), 0, 0
    for ensemble, result in itertools.chain.from_iterable(map(answers, range(40))):
        n_asked += result.verdict != Verdict.UNKNOWN
        if result.evidence is None:
            continue
        document = unpacked(result.evidence)
        if result.verdict != Verdict.UNKNOWN:
            n_recorded += 1
            assert check_property(ensemble, result.evidence).verdict == result.verdict
        check_property(ensemble, packed(document))
        for name, changed in _forged(document).items():
            kinds.add(name)
            with pytest.raises(CertificateRejected):
                check_property(ensemble, packed(changed))
    assert n_recorded == n_asked > 100, (n_recorded, n_asked)
    assert len(kinds) >= 11, kinds


def test_units_whose_sums_would_not_fit_are_rejected() -> None:
    """Two gains of 2**62 units are a negative sum of 64 bits, below any bound."""
    ensemble = model(stump(0, 0.0, 1.0), stump(0, 0.0, 1.0))
    box = tp.Box(np.zeros(4), np.ones(4))
    result = tp.prove(Model(ensemble), tp.ScoreRange(-np.inf, 2.5), box, evidence=True)
    document = unpacked(result.evidence)
    check_property(ensemble, packed(document))
    for exponent in (-62, -61, -5000):
        proof = base64.b64encode(b"L" + struct.pack("<hB", exponent, 1)).decode()
        forged = document["statements"][0] | {
            "exponent": exponent, "bound": (0.5).hex(), "proof": proof
        }  # fmt: skip
        claim = document["claim"] | {"high": 0.5}
        changed = {"claim": claim, "upper": (0.5).hex(), "statements": [forged]}
        with pytest.raises(CertificateRejected, match="the unit is"):
            check_property(ensemble, packed(document | changed))


def saved(ensemble, domain: tp.Box, claim, path) -> dict:
    """The file of an answer, as it is read again."""
    result = tp.prove(Model(ensemble), claim, domain, evidence=True)
    save_property_results(path, Model(ensemble), domain, [("claim", result)])
    return load_property_records(path)


@pytest.mark.parametrize(
    "types",
    [
        None,
        tp.Domain(integer=[0]),
        tp.Domain(values={0: [2.0, 3.0]}),
        tp.Domain(one_hot=[[0, 1]]),
        tp.Domain(may_miss=[1]),
        tp.Domain(ranges={0: (2.0, 3.0)}),
    ],
)
def test_answers_are_about_the_domain_that_their_file_names(types, tmp_path) -> None:
    ensemble = model(stump(0, 0.0, 1.0))
    ends = (0.0, 3.0) if types is not None and types.ranges else (2.0, 3.0)
    if types is not None and types.one_hot:
        ends = (0.0, 1.0)
    named = tp.Box(np.full(4, ends[0]), np.full(4, ends[1]), types)
    wide = tp.Box(np.full(4, -3.5), np.full(4, 3.5))
    claim = tp.ScoreRange(0.5, 1.5)
    own, other = (saved(ensemble, domain, claim, tmp_path / "a") for domain in (named, wide))
    assert [check.status for check in check_answers(ensemble, own)] == ["accepted"]
    assert [check.status for check in check_answers(ensemble, other)] == ["accepted"]
    assert other["properties"][0]["verdict"] == "falsified"
    # A witness that is no input of the domain says nothing about it.
    (check,) = check_answers(ensemble, other | {"domain": own["domain"]})
    assert check.status == "rejected"


def test_what_may_be_missing_is_proved_too(tmp_path) -> None:
    ensemble = model(stump(0, 0.0, 1.0))
    domains = (
        tp.Box(np.full(4, 2.0), np.full(4, 3.0), types)
        for types in (tp.Domain(may_miss=[0]), tp.Domain())
    )
    claim = tp.ScoreRange(0.5, 1.5)
    whole, part = (saved(ensemble, domain, claim, tmp_path / "a") for domain in domains)
    assert part["properties"][0]["verdict"] == "verified"
    assert [check.status for check in check_answers(ensemble, whole)] == ["accepted"]
    assert [check.status for check in check_answers(ensemble, part)] == ["accepted"]
    (check,) = check_answers(ensemble, part | {"domain": whole["domain"]})
    assert check.status == "rejected"


def test_a_witness_within_rules_is_not_accepted(tmp_path) -> None:
    """Rules are not recorded as evidence: a file that names some has witnesses nobody checked."""
    ensemble = model(stump(0, 0.0, 1.0))
    box = tp.Box(np.full(4, -3.0), np.full(4, 3.0), tp.Domain(integer=[3]))
    found = saved(ensemble, box, tp.ScoreRange(0.5, 1.5), tmp_path / "a")
    assert [check.status for check in check_answers(ensemble, found)] == ["accepted"]
    found["domain"]["domain"]["rules"] = ["x[0] >= 1"]
    assert [check.status for check in check_answers(ensemble, found)] == ["rejected"]


def test_ends_of_a_range_are_stated_where_they_are_proved() -> None:
    scores = model(stump(0, 0.0, 1.0))
    decision = Decision(kind="threshold", cut=0.5)
    labels = dataclasses.replace(scores, decision=decision, classes=(0, 1))
    box = tp.Box(np.zeros(4), np.ones(4))
    for ensemble, claim, end in (
        (scores, tp.ScoreRange(-np.inf, 1.5), "lower"),
        (scores, tp.ScoreRange(-0.5, np.inf), "upper"),
        (scores, tp.ScoreRange(0.5, 1.5), "lower"),
        (scores, tp.ScoreRange(0.5, 1.5), "upper"),
        (labels, tp.Fair([0]), "upper"),
    ):
        result = tp.prove(Model(ensemble), claim, box, evidence=True)
        document = unpacked(result.evidence)
        check_property(ensemble, packed(document))
        with pytest.raises(CertificateRejected, match=r"claim: .*(nothing is proved of|no value)"):
            check_property(ensemble, packed(document | {end: (0.75).hex()}))
