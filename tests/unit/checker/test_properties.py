"""Evidence about properties: real ones are accepted, damaged and forged ones are not."""

import base64
import dataclasses
import itertools
import struct

import numpy as np
import pytest

import treeproof as tp
from tests.soundness.test_properties import SIZES, random_domain, random_types
from tests.strategies import random_tree_ensemble
from tests.unit.checker import certificates
from tests.unit.checker.test_nodes import model, square, stump
from treeproof.checker.domains import Asked
from treeproof.checker.properties import check_property
from treeproof.checker.property_files import check_answers
from treeproof.errors import CertificateRejected
from treeproof.model.ensemble import Decision, Provenance
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
    """What evidence holds; the bytes of statements are told with them."""
    document, proof = certificates.unpacked(text)
    for statement in document["statements"]:
        size = statement.pop("size")
        statement["proof"], proof = base64.b64encode(proof[:size]).decode(), proof[size:]
    return document


def where(result: tp.PropertyResult) -> Asked:
    """Where a result was asked about."""
    return Asked(result.domain, result.row, result.record()["values"])


def packed(document: dict) -> str:
    """Evidence that holds what a document says."""
    proofs = [base64.b64decode(statement["proof"]) for statement in document["statements"]]
    statements = [
        {key: value for key, value in statement.items() if key != "proof"} | {"size": len(proof)}
        for statement, proof in zip(document["statements"], proofs, strict=True)
    ]
    return certificates.packed(document | {"statements": statements}, b"".join(proofs))


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
        check_property(ensemble, packed(document | {"statements": [whole]}), where(result))


@pytest.mark.parametrize(
    ("proof", "said"),
    [
        (b"D", "a point is within the limit"),
        (b"A" + struct.pack("<Ih", 1, 0) + b"N", "there are no costs"),
        (b"C" + bytes(23), "there are no cliques"),
        (b"E", "exact sums have no meaning here"),
        (b"W\1\1N", "weights of one condition"),
        (b"P", "is not below"),
        (b"T", "the proof is cut off"),
        (b"S" + struct.pack("<ii", 9, 0) + b"NN", "cut 0 is not inside feature 9"),
        (b"X", "unknown node 'X'"),
    ],
)
def test_what_is_wrong_with_a_proof_about_pairs_is_named(proof, said) -> None:
    falls = square(1, 0, [0.1, 0.0, 0.0, 0.0])
    ensemble = model(falls, square(1, 0, [0.0, 0.3, 0.0, 0.1]))
    box = tp.Box(np.zeros(4), np.ones(4))
    result = tp.prove(Model(ensemble), tp.Stable(0, 0.25), box, evidence=True)
    document = unpacked(result.evidence)
    check_property(ensemble, packed(document), where(result))
    changed = document["statements"][0] | {"proof": base64.b64encode(proof).decode()}
    statements = [changed, *document["statements"][1:]]
    with pytest.raises(CertificateRejected, match=said):
        check_property(ensemble, packed(document | {"statements": statements}), where(result))


def _forged(document: dict, types: dict) -> dict[str, dict]:
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
    for feature in [*types.get("integer", ()), *(f for f, _ in types.get("values", ()))]:
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
            assert (
                check_property(ensemble, result.evidence, where(result)).evidence.verdict
                == result.verdict
            )
        check_property(ensemble, packed(document), where(result))
        for name, changed in _forged(document, result.domain.get("domain") or {}).items():
            kinds.add(name)
            with pytest.raises(CertificateRejected):
                check_property(ensemble, packed(changed), where(result))
    assert n_recorded == n_asked > 100, (n_recorded, n_asked)
    assert len(kinds) >= 11, kinds


def test_units_whose_sums_would_not_fit_are_rejected() -> None:
    """Two gains of 2**62 units are a negative sum of 64 bits, below any bound."""
    ensemble = model(stump(0, 0.0, 1.0), stump(0, 0.0, 1.0))
    box = tp.Box(np.zeros(4), np.ones(4))
    result = tp.prove(Model(ensemble), tp.ScoreRange(-np.inf, 2.5), box, evidence=True)
    document = unpacked(result.evidence)
    check_property(ensemble, packed(document), where(result))
    for exponent in (-62, -61, -5000):
        proof = base64.b64encode(b"L" + struct.pack("<hB", exponent, 1)).decode()
        forged = document["statements"][0] | {
            "exponent": exponent, "bound": (0.5).hex(), "proof": proof
        }  # fmt: skip
        claim = document["claim"] | {"high": 0.5}
        changed = {"claim": claim, "upper": (0.5).hex(), "statements": [forged]}
        with pytest.raises(CertificateRejected, match="the unit is"):
            check_property(ensemble, packed(document | changed), where(result))


def saved(ensemble, domain: tp.Box, claim, path) -> dict:
    """The file of an answer, as it is read again."""
    result = tp.prove(Model(ensemble), claim, domain, evidence=True)
    save_property_results(path, Model(ensemble), [("claim", result)])
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
        tp.Box(np.full(4, -3.0), np.full(4, -2.0), types)
        for types in (tp.Domain(may_miss=[0]), tp.Domain())
    )
    claim = tp.ScoreRange(-0.5, 0.5)  # what is missing goes right, to 1
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
        check_property(ensemble, packed(document), where(result))
        with pytest.raises(CertificateRejected, match=r"claim: .*(nothing is proved of|no value)"):
            check_property(ensemble, packed(document | {end: (0.75).hex()}), where(result))


def reasons_of(ensemble, *documents: dict) -> list[str]:
    """Why each file is not accepted."""
    return [check_answers(ensemble, document)[0].reason for document in documents]


def resealed(document: dict, evidence: dict, **answer) -> dict:
    """A file with other evidence, whose answer says the same, and more."""
    given = document["properties"][0]
    own = unpacked(given["evidence"]) | evidence
    said = {key: own[key] for key in ("claim", "verdict")}
    said |= {
        key: None if own[key] == "nan" else float.fromhex(own[key]) for key in ("lower", "upper")
    }
    return document | {"properties": [given | said | answer | {"evidence": packed(own)}]}


def test_a_feature_without_ends_does_not_stay_where_it_is(tmp_path) -> None:
    """Ends that are no numbers would be one cell, and hold every number all the same."""
    ensemble = model(stump(0, 0.0, 1.0))
    box = tp.Box(np.full(4, 2.0), np.full(4, 3.0))
    own = saved(ensemble, box, tp.ScoreRange(0.5, 1.5), tmp_path / "a")
    assert reasons_of(ensemble, own) == [""]
    words = own["domain"] | {"low": -9.0, "high": 9.0}
    for low in (-9.0, ["nan", -9.0, -9.0, -9.0], [None, -9.0, -9.0, -9.0]):
        forged = own | {"domain": words | {"low": low}}
        assert check_answers(ensemble, forged)[0].status == "rejected"


def test_the_set_around_a_row_is_not_the_domain(tmp_path) -> None:
    """Evidence about one row says nothing about a box, nor about a larger ball."""
    ensemble = model(stump(0, 0.0, 1.0))
    row = np.full((1, 4), 2.0)
    (result,) = tp.prove(Model(ensemble), tp.ScoreRange(0.5, 1.5), tp.LInf(0.5), row, evidence=True)
    save_property_results(tmp_path / "a", Model(ensemble), [("claim", result)])
    own = load_property_records(tmp_path / "a")
    assert reasons_of(ensemble, own) == [""]
    box = {"name": "Box", "low": -9.0, "high": 9.0}
    for domain, number in (
        (box, -1),
        (box, 0),
        (own["domain"] | {"eps": 5.0}, 0),
        (own["domain"] | {"scale": 9.0}, 0),
        (own["domain"] | {"relative": True}, 0),
        (own["domain"] | {"eps": None}, 0),
    ):
        forged = own | {"domain": domain, "properties": [own["properties"][0] | {"row": number}]}
        assert check_answers(ensemble, forged)[0].status == "rejected", domain


@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        (tp.Stable([0], 1.5), {"delta": "nan"}),
        (tp.Stable([0], 1.5), {"delta": "-inf"}),
        (tp.Stable([0], 1.5), {"label": 0}),
        (tp.Stable([0], 1.5), {"features": [1.5]}),
        (tp.Stable([0], 1.5), {"tolerance": 0.0}),
        (tp.ScoreRange(-0.5, 1.5), {"low": "nan"}),
        (tp.ScoreRange(-0.5, 1.5), {"low": 2.0}),
        (tp.SmallNeighbourhood(0.5, 3.0, [1.0, 1.0, 1.0, 1.0]), {"scale": [1.0, 1.0, 1.0, -1.0]}),
        (tp.SmallNeighbourhood(0.5, 3.0, [1.0, 1.0, 1.0, 1.0]), {"eps": 0.0}),
    ],
)
def test_what_nobody_could_ask_is_not_answered(claim, changes, tmp_path) -> None:
    ensemble = model(stump(0, 0.0, 1.0))
    own = saved(ensemble, tp.Box(np.zeros(4), np.ones(4)), claim, tmp_path / "a")
    assert reasons_of(ensemble, own) == [""]
    said = own["properties"][0]["claim"] | changes
    assert check_answers(ensemble, resealed(own, {"claim": said}))[0].status == "rejected"


def test_rows_that_do_not_differ_break_no_neighbourhood(tmp_path) -> None:
    """Without a feature that changes, a claim about differences is none about scores."""
    ensemble = model(stump(0, 0.0, 1.0))
    box = tp.Box(np.zeros(4), np.ones(4))
    own = saved(ensemble, box, tp.SmallNeighbourhood(1.0, 0.5), tmp_path / "a")
    given = own["properties"][0]
    assert given["verdict"] == "falsified"
    pair = unpacked(given["evidence"])["witness"]
    high = max(pair, key=lambda row: float.fromhex(row[0]))
    said = given["claim"] | {"scale": 0.0}
    shown = given["witness"] | {"changed": [], "scores": [[1.0], [1.0]]}
    rows = [dict(zip("0123", map(float.fromhex, high), strict=True))] * 2
    evidence = {"claim": said, "witness": [high, high], "lower": (-np.inf).hex(), "upper": "inf"}
    forged = resealed(own, evidence, witness=shown | {"rows": rows}, lower="-inf", upper="inf")
    assert check_answers(ensemble, forged)[0].status == "rejected"


def test_a_confidence_stands_for_its_own_scores(tmp_path) -> None:
    decision = Decision(kind="threshold", cut=0.0)
    known = Provenance(library="xgboost", objective="binary:logistic")
    ensemble = dataclasses.replace(
        model(stump(0, -2.0, 2.0)), decision=decision, classes=(0, 1), provenance=known
    )
    box = tp.Box(np.zeros(4), np.ones(4))
    own = saved(ensemble, box, tp.Fair([0], confidence=0.99), tmp_path / "a")
    assert own["properties"][0]["verdict"] == "verified"
    assert reasons_of(ensemble, own) == [""]
    said = own["properties"][0]["claim"]
    for changed in ({"confidence": 0.6}, {"scores": [-9.0, 9.0]}, {"scores": None}, {"margin": 9}):
        forged = resealed(own, {"claim": said | changed})
        assert check_answers(ensemble, forged)[0].status == "rejected", changed
    # Of several classes no score is sure, so that a margin would only be shown.
    several = random_tree_ensemble(np.random.default_rng(5), SIZES, kind="argmax", plain=True)
    n = several.n_features
    own = saved(several, tp.Box(np.zeros(n), np.ones(n)), tp.Fair(list(range(n))), tmp_path / "b")
    assert reasons_of(several, own) == [""]
    said = own["properties"][0]["claim"] | {"margin": 9.0}
    assert check_answers(several, resealed(own, {"claim": said}))[0].status == "rejected"


def test_what_an_answer_shows_is_checked(tmp_path) -> None:
    decision = Decision(kind="threshold", cut=0.5)
    ensemble = dataclasses.replace(
        model(stump(0, 0.0, 1.0), stump(1, 0.0, 4.0)), decision=decision, classes=(0, 1)
    )
    box = tp.Box(np.zeros(4), np.ones(4))
    own = saved(ensemble, box, tp.Stable([0, 1], 4.0), tmp_path / "a")
    given = own["properties"][0]
    shown = given["witness"]
    assert reasons_of(ensemble, own) == [""]
    swapped = [dict(zip("1023", row.values(), strict=True)) for row in shown["rows"]]
    for changed in (
        {"witness": shown | {"rows": swapped}},
        {"witness": shown | {"scores": [[0.0], [0.25]]}},
        {"witness": shown | {"labels": [1, 1]}},
        {"witness": shown | {"labels": None}},
        {"witness": shown | {"changed": ["0"]}},
        {"exact": not given["exact"]} if not given["exact"] else {"row": 0},
    ):
        forged = own | {"properties": [given | changed]}
        assert check_answers(ensemble, forged)[0].status == "rejected", changed
    other = own | {"model": own["model"] | {"fingerprint": "0" * 64}}
    with pytest.raises(tp.InvalidInput, match="Got another model"):
        check_answers(ensemble, other)
    # A pair that nobody checked is a claim, even where the verdict is open.
    bare = given | {"evidence": None, "verdict": "unknown", "upper": "inf"}
    assert check_answers(ensemble, own | {"properties": [bare]})[0].status == "unproved"
    nothing = bare | {"witness": None, "lower": 0.0, "exact": False}
    assert check_answers(ensemble, own | {"properties": [nothing]})[0].status == "claims nothing"


def test_a_largest_change_is_called_exact_where_it_is_and_never_broken() -> None:
    ensemble = model(stump(0, 0.0, 1.0))
    box = tp.Box(np.zeros(4), np.ones(4))
    result = tp.largest_change(Model(ensemble), [0], box, evidence=True)
    document = unpacked(result.evidence)
    assert check_property(ensemble, packed(document), where(result)).is_exact
    loose = document | {"lower": (0.25).hex()}
    with pytest.raises(CertificateRejected, match="not exact"):
        check_property(ensemble, packed(loose), where(result))
    assert not check_property(
        ensemble, packed(loose | {"verdict": "unknown"}), where(result)
    ).is_exact
    with pytest.raises(CertificateRejected, match="nothing to falsify"):
        check_property(ensemble, packed(document | {"verdict": "falsified"}), where(result))


def test_a_range_without_an_end_claims_nothing_and_is_refused() -> None:
    with pytest.raises(tp.InvalidInput, match="must have a 'low' or a 'high'"):
        tp.ScoreRange()
