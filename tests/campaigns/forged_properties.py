"""Forged answers about properties and about two models: none that says something false is accepted.

    python -m tests.campaigns.forged_properties [--first N] [--cases N]

Answers with evidence about random models that are rich in ties are checked first, and compared with
the enumeration of all pairs of rows (tests/oracle/property_claims.py). Then the file, the answer
and its evidence are forged, one to three lies at a time, mostly such that all three agree.
"""

import base64
import copy
import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import treeproof as tp
from tests.campaigns.forged_rules import run
from tests.oracle.property_claims import falsehoods
from tests.soundness.test_differences import pair_of_case
from tests.soundness.test_properties import random_domain, random_types
from tests.strategies import Sizes, random_rows, random_tree_ensemble
from tests.unit.checker.test_properties import packed, unpacked
from treeproof.checker.property_files import PropertyCheck, check_answers
from treeproof.errors import InvalidInput, UnsupportedQuery
from treeproof.model import evaluate
from treeproof.model.ensemble import Ensemble, Provenance
from treeproof.prediction import Model
from treeproof.query.description import plain
from treeproof.results.properties import PropertyResult
from treeproof.results.property_file import FORMAT

SIZES = Sizes(trees=4, depth=3, features=3, outputs=3)
STEPS = (0.25, 0.5, 1.0, 2.0, 1e-6, 0.1, 1e9)
ODD: tuple[Any, ...] = ("nan", "inf", "-inf", None, True, "0", -1.0, -0.0, [], [0.25], 1e-300, 7)


@dataclass
class Answered:
    """A file with one answer, and the models that it is about."""

    document: dict[str, Any]
    models: list[Ensemble]

    @property
    def answer(self) -> dict[str, Any]:
        """The only answer."""
        return self.document["properties"][0]  # type: ignore[no-any-return]

    def check(self) -> Any:
        """What the checker says; another model is refused."""
        try:
            return check_answers(self.models[0], self.document, *self.models[1:])[0]
        except InvalidInput as error:
            return PropertyCheck("refused", str(error))

    def falsehoods(self) -> list[str]:
        """What is false in it."""
        row = self.answer["values"]
        home = None if row is None else [math.nan if v is None else float(v) for v in row]
        return falsehoods(self.document, self.answer, home, self.models)


# Genuine answers.


def random_group_domain(rng: np.random.Generator, ensemble: Ensemble) -> tp.Box:
    """A box in which two or three columns are a group."""
    n = ensemble.n_features
    columns = rng.permutation(np.flatnonzero(~ensemble.is_categorical)).tolist()
    columns = columns[: int(rng.integers(2, 4))]
    options: dict[str, Any] = {}
    if len(columns) > 1:
        options["one_hot" if rng.random() < 0.6 else "at_most_one"] = [columns]
    high = rng.choice([1.0, 1.0, 1.0, 2.0], size=n)
    return tp.Box(np.zeros(n), high, domain=tp.Domain(**options))


def some_domain(rng: np.random.Generator, seed: int, ensemble: Ensemble) -> tp.Box:
    """A box, often with types, groups or values that may be missing."""
    n = ensemble.n_features
    if rng.random() < 0.25:
        return random_group_domain(rng, ensemble)
    box = random_domain(rng, n)
    if ensemble.is_categorical.any():
        box = tp.Box(np.zeros(n), np.full(n, 2.0))
    box, _ = random_types(seed, ensemble, box)
    if ensemble.missing_allowed and rng.random() < 0.4:
        types = box.domain or tp.Domain()
        chosen = [f for f in range(n) if rng.random() < 0.4]
        box = dataclasses.replace(box, domain=dataclasses.replace(types, may_miss=chosen))
    if rng.random() < 0.15:
        types = box.domain or tp.Domain()
        if not (types.integer or types.values):
            ranges = {0: (0.0, float(rng.choice([0.3, 1.0, np.inf])))}
            box = dataclasses.replace(box, domain=dataclasses.replace(types, ranges=ranges))
    return box


def some_claims(rng: np.random.Generator, ensemble: Ensemble, domain: Any) -> list[Any]:
    """Properties that the model can have; the numbers of features alone ask for the change."""
    n = ensemble.n_features
    size = 1 if n == 1 or rng.random() < 0.6 else 2
    changed = set(rng.choice(n, size=size, replace=False).tolist())
    groups = () if domain.domain is None else (*domain.domain.one_hot, *domain.domain.at_most_one)
    for group in groups:
        changed |= set(group) if changed & set(group) else set()
    features = sorted(changed)
    output = int(rng.integers(ensemble.n_outputs))
    label = ensemble.classes[output] if ensemble.n_outputs > 1 else None
    some = label if rng.random() < 0.6 else None
    level = float(rng.choice([0.0, 0.1, 0.25, 0.5, 1.0, 2.0]))
    ends = sorted(
        float(v) for v in rng.choice([-np.inf, -2.0, -0.5, 0.0, 0.3, 1.0, 3.0, np.inf], 2)
    )
    scale: Any = [float(v) for v in rng.choice([0.0, 0.1, 0.5, 1.0], size=n)]
    claims: list[Any] = [
        ("largest_change", features, some),
        tp.Stable(features, level, some),
        tp.ScoreRange(ends[0], ends[1] if ends[0] > -np.inf else 1.0, some),
        tp.SmallNeighbourhood(float(rng.choice([0.1, 0.25, 0.5])), level, scale, some),
    ]
    if not ensemble.is_categorical[features].any():
        direction: Any = rng.choice(["increasing", "decreasing"])
        claims.append(tp.Monotone(features, str(direction), 0.0, label))  # type: ignore[arg-type]
    if ensemble.decision.kind != "score":
        claims.append(tp.Fair(features))
    if ensemble.decision.kind == "threshold":
        margin = float(rng.choice([0.1, 0.25, 0.5]))
        others = [[f for f in range(n) if f not in changed] or features, features]
        claims += [
            tp.Fair(features, margin=margin),
            tp.HighConfidence(features, margin=margin, label=rng.choice([None, 0, 1])),
            tp.Redundant(others, margin=margin),
            tp.Fair(features, confidence=0.75),
            tp.HighConfidence(features, confidence=float(rng.choice([0.5, 0.75]))),
        ]
    return claims


def asked(
    model: Model, claim: Any, domain: Any, rows: Any = None
) -> PropertyResult | list[PropertyResult] | None:
    """The answer with evidence; None where there is no such question."""
    options: Any = {"evidence": True} | ({} if rows is None else {"X": rows})
    try:
        if isinstance(claim, tuple):
            return tp.largest_change(model, claim[1], domain, label=claim[2], **options)
        return tp.prove(model, claim, domain, **options)
    except (InvalidInput, UnsupportedQuery):
        return None


def filed(models: list[Ensemble], result: PropertyResult) -> Answered | None:
    """The file of an answer; None without evidence."""
    if result.evidence is None:
        return None
    own = [Model(ensemble) for ensemble in models]
    head = {"model": own[0].inspect(), "domain": result.domain}
    if len(own) == 2:
        head["other"] = own[1].inspect()
    answer = {"name": "asked"} | result.record() | {"evidence": result.evidence}
    document = {"format": FORMAT} | head | {"properties": [answer]}
    return Answered(json.loads(json.dumps(document, default=str)), models)


def genuine(seed: int) -> Iterator[Answered]:
    """Answers about one random model, over a domain and around rows, or about two."""
    rng = np.random.default_rng([23, 1, seed])
    if seed % 4 == 3:
        yield from genuine_differences(rng, seed)
        return
    ensemble = random_tree_ensemble(rng, SIZES)
    if ensemble.decision.kind == "threshold" and rng.random() < 0.5:
        known = Provenance(library="xgboost", objective="binary:logistic")
        ensemble = dataclasses.replace(ensemble, provenance=known)
    domain: Any = some_domain(rng, seed, ensemble)
    rows = None
    if seed % 4 == 2:
        rows = random_rows(rng, ensemble, 2)
        rows[:, ensemble.is_categorical] = 1.0
        domain = tp.LInf(float(rng.choice([0.1, 0.25, 0.5])))
        codes = np.flatnonzero(ensemble.is_categorical).tolist()
        if codes and rng.random() < 0.7:
            listed = tp.Domain(categorical={codes[0]: [0, 1, 2][: int(rng.integers(2, 4))]})
            domain = dataclasses.replace(domain, domain=listed)
        elif rng.random() < 0.3:
            domain = tp.Box(0.0, 1.0)
        if isinstance(domain, tp.LInf) and rng.random() < 0.4:
            units = rng.choice([0.5, 1.0, 2.0], size=ensemble.n_features)
            domain = dataclasses.replace(domain, scale=units, low=-0.25, high=1.0)
    for claim in some_claims(rng, ensemble, domain):
        found = asked(Model(ensemble), claim, domain, rows)
        for result in found if isinstance(found, list) else [found]:
            case = None if result is None else filed([ensemble], result)
            if case is not None:
                yield case


def genuine_differences(rng: np.random.Generator, seed: int) -> Iterator[Answered]:
    """Answers about two models that take the same rows."""
    pair = pair_of_case(rng, 3 * seed + 1)
    if pair is None:
        return
    n = pair[0].n_features
    domain = random_domain(rng, n)
    if (pair[0].is_categorical | pair[1].is_categorical).any():
        domain = tp.Box(np.zeros(n), np.full(n, 2.0))
    if pair[0].missing_allowed and pair[1].missing_allowed and rng.random() < 0.4:
        domain = dataclasses.replace(domain, domain=tp.Domain(may_miss=[int(rng.integers(n))]))
    delta = float(rng.choice([0.0, 1e-6, 0.25, 1.0]))
    try:
        result = tp.diff(
            Model(pair[0]), Model(pair[1]), domain, delta=delta, labels=bool(pair[0].classes),
            evidence=True,
        )  # fmt: skip
    except (InvalidInput, UnsupportedQuery):
        return
    for part in result.parts:
        case = filed(list(pair), part)
        if case is not None:
            yield case


# Lies: each changes the file, its answer or the evidence, which are sealed again afterwards.


class Forgery:
    """A file that is being forged; the evidence is open, and numbers of it are hexadecimal."""

    def __init__(self, rng: np.random.Generator, case: Answered, others: list[str]) -> None:
        self.rng, self.models, self.others = rng, case.models, others
        self.document = copy.deepcopy(case.document)
        self.answer = self.document["properties"][0]
        self.evidence = unpacked(self.answer["evidence"])
        self.n = case.models[0].n_features
        self.agrees = True

    def sealed(self) -> Answered:
        """The forged file: the answer says what the evidence says, unless it shall not."""
        if self.agrees:
            for name in ("claim", "verdict"):
                self.answer[name] = self.evidence[name]
            for name in ("lower", "upper"):
                self.answer[name] = plain(float.fromhex(self.evidence[name]))
            self._show()
        self.answer["evidence"] = packed(self.evidence)
        return Answered(self.document, self.models)

    def _show(self) -> None:
        """The witness of the answer is that of the evidence, with scores and labels that fit."""
        pair = self.evidence["witness"]
        if pair is None:
            self.answer["witness"] = None
            return
        names = list(self.models[0].feature_names) or [str(f) for f in range(self.n)]
        values = np.array([[float.fromhex(v) for v in row] for row in pair])
        shown = self.answer["witness"] or {"scores": None, "labels": None}
        if values.shape == (2, self.n):
            own = self.models if len(self.models) == 2 else self.models * 2
            scores = [evaluate.margins(m, row[np.newaxis])
                      for m, row in zip(own, values, strict=True)]  # fmt: skip
            width = max(score.shape[1] for score in scores)
            shown["scores"] = [[*s[0].astype(np.float64).tolist(), *[None] * (width - s.shape[1])]
                               for s in scores]  # fmt: skip
            if own[0].decision.kind != "score":
                shown["labels"] = [plain(m.classes[int(evaluate.label_indices(m, s)[0])])
                                   for m, s in zip(own, scores, strict=True)]  # fmt: skip
            one, other = values
            differs = (one != other) & ~(np.isnan(one) & np.isnan(other))
            shown["changed"] = [names[f] for f in np.flatnonzero(differs)]
        rows = [dict(zip(names, row, strict=False)) for row in values.tolist()]
        self.answer["witness"] = plain(shown | {"rows": rows})

    def pick(self, of: Any) -> Any:
        """One of several."""
        return of[int(self.rng.integers(len(of)))]

    def moved(self, value: float) -> float:
        """Another number: near, farther away, or none at all."""
        way = float(self.pick([-1.0, 1.0]))
        step = float(self.pick(STEPS))
        return float(
            self.pick([
                math.nextafter(value, way * math.inf), value * (1.0 + way * 2.0**-20), -value, 0.0,
                value * 2.0, value * 0.5, value + way * step, value + way * step,
            ])
        )  # fmt: skip


def lie_about_bounds(lie: Forgery) -> None:
    """A bound is tighter, with a proof that says the same."""
    name = str(lie.pick(["lower", "upper", "upper"]))
    value = lie.moved(float.fromhex(lie.evidence[name]))
    lie.evidence[name] = float(lie.pick([value, value, value, math.nan, -math.inf])).hex()
    if lie.rng.random() < 0.6:
        for statement in lie.evidence["statements"]:
            statement["bound"] = value.hex() if lie.rng.random() < 0.7 else (-value).hex()


def lie_about_verdict(lie: Forgery) -> None:
    """What was found out is another thing; with a proof where that needs one."""
    verdict = lie.pick(["verified", "falsified", "unknown"])
    lie.evidence["verdict"] = verdict
    if verdict != "falsified":
        lie.evidence["witness"] = lie.pick([None, lie.evidence["witness"]])
    if verdict == "falsified" and lie.evidence["witness"] is None:
        row = [float(lie.pick([0.0, 0.1, 0.3, 0.5, 1.0])).hex() for _ in range(lie.n)]
        lie.evidence["witness"] = [row, list(row)]
        if lie.rng.random() < 0.6:
            lie.evidence["statements"] = []
    if verdict == "verified" and not lie.evidence["statements"]:
        count = int(lie.pick([1, 1, 2, 3, 6]))
        lie.evidence["statements"] = [invented(lie) for _ in range(count)]
        for name in ("lower", "upper"):
            lie.evidence[name] = lie.pick([lie.evidence[name], (0.0).hex(), "nan", "inf", "-inf"])
    if verdict == "unknown" and lie.rng.random() < 0.7:
        lie.evidence["statements"] = []
        lie.evidence["upper"] = lie.pick(["inf", "nan", lie.evidence["upper"]])


def invented(lie: Forgery) -> dict[str, Any]:
    """A statement with a proof of few nodes."""
    proof = b""
    for _ in range(int(lie.pick([0, 0, 1, 2]))):
        column, cut = int(lie.rng.integers(2 * lie.n)), int(lie.rng.integers(4))
        proof += b"S" + column.to_bytes(4, "little") + cut.to_bytes(4, "little")
    for _ in range(int(lie.pick([1, 1, 2, 3]))):
        letter = lie.pick([b"N", b"E", b"L", b"P"])
        weight = b"W" + bytes(lie.pick([[0, 0], [1, 1], [0, 1], [255, 1], [3, 253]]))
        proof += weight if lie.rng.random() < 0.3 else b""
        many = int(lie.rng.integers(256)).to_bytes(1, "little") * int(lie.rng.integers(30))
        exponent = int(lie.rng.integers(-40, 5)).to_bytes(2, "little", signed=True)
        proof += letter + (exponent + b"\x01" + many if letter == b"L" else b"")
    return {
        "exponent": int(lie.rng.integers(-62, 3)),
        "bound": float(lie.pick([0.0, -1.0, 1e-9, 0.25, 1.0])).hex(),
        "proof": base64.b64encode(proof).decode(),
    }


def lie_about_claim(lie: Forgery) -> None:
    """An option of the property is another one, or nonsense."""
    claim = lie.evidence["claim"]
    key = str(lie.pick(list(claim)))
    value = claim[key]
    if key == "name" and lie.rng.random() < 0.9:
        return
    if isinstance(value, float) and lie.rng.random() < 0.7:
        claim[key] = lie.moved(value)
    elif key in ("features", "protected") and lie.rng.random() < 0.8:
        claim[key] = lie.pick([
            [int(lie.rng.integers(lie.n))], list(range(lie.n)), int(lie.rng.integers(lie.n)),
            [0.7], [-1], [lie.n], value[:1],
        ])  # fmt: skip
    elif key == "groups" and lie.rng.random() < 0.8:
        claim[key] = lie.pick([value[:1], value[::-1], [], [[0]], [list(range(lie.n))]])
    elif key == "scores" and lie.rng.random() < 0.9:
        low, high = value
        claim[key] = lie.pick(
            [
                [lie.moved(low), high],
                [low, lie.moved(high)],
                [-1e9, 1e9],
                [None, high],
                [low, "-inf"],
            ]
        )
    elif key == "scale" and lie.rng.random() < 0.8:
        units = [0.0] * lie.n if value is None else list(value)
        units[int(lie.rng.integers(lie.n))] = float(lie.pick([0.0, 0.01, 0.1, 2.0, -1.0]))
        claim[key] = lie.pick([units, [0.0] * lie.n, None, 0.0, 0.1, units[:-1]])
    elif key == "direction" and lie.rng.random() < 0.8:
        claim[key] = "increasing" if value == "decreasing" else "decreasing"
    elif key == "label" and lie.rng.random() < 0.8:
        claim[key] = lie.pick([None, *lie.models[0].classes, 99])
    elif key == "eps" and lie.rng.random() < 0.8:
        claim[key] = float(lie.pick([0.0, 1e-9, 2.0]))
    else:
        claim[key] = lie.pick(ODD)
        if lie.rng.random() < 0.2:
            claim[str(lie.pick(["margin", "confidence", "label", "extra"]))] = lie.pick([0.25, 1])


def lie_about_option(lie: Forgery) -> None:
    """Another option that changes what the claim says."""
    claim = lie.evidence["claim"]
    claim[str(lie.pick(["margin", "confidence", "label", "tolerance", "delta"]))] = lie.pick(
        [0.25, 10.0, 0.75, 0, 1, None]
    )


def lie_about_ends(lie: Forgery) -> None:
    """The file names another box, or one with another end."""
    feature, side = int(lie.rng.integers(lie.n)), str(lie.pick(["low", "high"]))
    words = lie.document["domain"]
    given = words[side] if isinstance(words[side], list) else [words[side]] * lie.n
    value = float(given[feature] if given[feature] is not None else math.nan)
    value = lie.moved(value if math.isfinite(value) else 0.3)
    value = float(lie.pick([value, value, value, math.inf, -math.inf, math.nan, 9.0]))
    words[side] = [*given[:feature], plain(value), *given[feature + 1 :]]


def lie_about_types(lie: Forgery) -> None:
    """Which values features take is another thing."""
    feature = int(lie.rng.integers(lie.n))
    name = str(
        lie.pick(["integer", "values", "may_miss", "groups", "ranges", "rules", "categorical"])
    )
    words = lie.document["domain"]
    if words.get("domain") is None:
        words["domain"] = {
            "integer": [], "values": [], "ranges": [], "groups": [], "categorical": [],
            "may_miss": [], "may_fill": [], "allow_broken_rows": False,
        }  # fmt: skip
    types, added = words["domain"], lie.rng.random() < 0.6
    if name in ("integer", "may_miss"):
        types[name] = [f for f in types[name] if f != feature] + [feature] * added
    elif name in ("values", "categorical"):
        taken = sorted({float(lie.pick([0.0, 0.1, 0.3, 0.5, 1.0, 2.0])) for _ in range(3)})
        rest = [e for e in types[name] if e[0] != feature or lie.rng.random() < 0.2]
        types[name] = rest + [[feature, taken]] * added
    elif name == "groups":
        columns = sorted({int(f) for f in lie.rng.integers(lie.n, size=2)})
        types["groups"] = [[columns, bool(lie.rng.random() < 0.5)]] * added
    elif name == "ranges":
        ends = sorted(float(lie.pick([0.0, 0.2, 0.3, 1.0, 3.0])) for _ in range(2))
        types["ranges"] = [[feature, *ends]] if added else []
    else:
        types["rules"] = [f"x[{feature}] {lie.pick(['<=', '>'])} x[{int(lie.rng.integers(lie.n))}]"]


def lie_about_witness(lie: Forgery) -> None:
    """Rows of the pair are elsewhere, swapped, the same, or there is another number of them."""
    pair = lie.evidence["witness"]
    if pair is None:
        values = [0.0, 0.1, 0.3, 0.5, 0.75, 1.0]
        lie.evidence["witness"] = [[float(lie.pick(values)).hex() for _ in range(lie.n)]] * 2
        return
    side, feature = int(lie.rng.integers(len(pair))), int(lie.rng.integers(len(pair[0])))
    way = lie.rng.random()
    if way < 0.6:
        value = float.fromhex(pair[side][feature])
        value = lie.moved(0.3 if math.isnan(value) else value)
        value = float(lie.pick([value, value, value, math.nan, math.inf, -1.0, 5.0]))
        for number in (side, *([1 - side] if lie.rng.random() < 0.4 else [])):
            pair[number][feature] = value.hex()
    elif way < 0.75:
        lie.evidence["witness"] = pair[::-1]
    elif way < 0.85:
        lie.evidence["witness"] = [pair[side]] * 2
    elif way < 0.9:
        lie.evidence["witness"] = lie.pick([pair[:1], [*pair, pair[0]], [pair[0], pair[1][:-1]]])
    else:
        lie.evidence["witness"] = None


def lie_about_proof(lie: Forgery) -> None:
    """Nodes, multipliers, units or whole statements are others."""
    statements = lie.evidence["statements"]
    if not statements:
        return
    way = lie.rng.random()
    if way < 0.15:
        del statements[int(lie.rng.integers(len(statements)))]
        return
    if way < 0.3:
        one, other = (int(n) for n in lie.rng.integers(len(statements), size=2))
        statements[one] = dict(statements[other])
        return
    statement = statements[int(lie.rng.integers(len(statements)))]
    if way < 0.45:
        shift = int(lie.pick([-1, 1, -3, 8, 20, -20, -22, 40, -62]))
        statement["exponent"] += shift
        return
    if way < 0.5:
        statement["whole"] = not statement.get("whole", False)
        return
    proof = bytearray(base64.b64decode(statement["proof"]))
    if not proof:
        return
    at = int(lie.rng.integers(len(proof)))
    if way < 0.7:
        proof[at] = int(lie.pick([*b"LNESWPTDCA\x00\x01\x7f\x80\xff"]))
    elif way < 0.8:
        del proof[at : at + int(lie.pick([1, 1, 4, 9]))]
    elif way < 0.9:
        proof[at:at] = lie.pick([b"N", b"E", b"P", b"W\x01\x01", b"W\x00\x00", b"\x00", b"\xff"])
    else:
        statement["proof"] = invented(lie)["proof"]
        return
    statement["proof"] = base64.b64encode(bytes(proof)).decode()


def lie_about_bounds_of_proof(lie: Forgery) -> None:
    """Another bound is proved."""
    for statement in lie.evidence["statements"]:
        if lie.rng.random() < 0.7:
            statement["bound"] = lie.moved(float.fromhex(statement["bound"])).hex()


def lie_about_row(lie: Forgery) -> None:
    """The answer is about a row instead of the domain, about another one, or about none."""
    values = lie.answer["values"]
    if values is None or lie.rng.random() < 0.3:
        numbers = [0.0, 0.1, 0.3, 0.5, 1.0, None]
        lie.answer["values"] = [lie.pick(numbers) for _ in range(lie.n)]
        if lie.rng.random() < 0.2:
            lie.answer["values"] = [None] * lie.n
        lie.answer["row"] = int(lie.pick([-1, 0, 0]))
    elif lie.rng.random() < 0.6:
        feature = int(lie.rng.integers(lie.n))
        value = math.nan if values[feature] is None else float(values[feature])
        values[feature] = plain(float(lie.pick([lie.moved(value), math.nan])))
    else:
        lie.answer["values"] = None
        lie.answer["row"] = int(lie.pick([-1, 0]))


def lie_about_evidence(lie: Forgery) -> None:
    """The evidence is that of another answer about the same model, which says what that proves."""
    lie.evidence = unpacked(lie.pick(lie.others))


def lie_about_ball(lie: Forgery) -> None:
    """The file names another set around rows."""
    words = lie.document["domain"]
    if words["name"] == "LInf":
        name = str(lie.pick(["eps", "scale", "below", "above", "low", "high", "frozen", "name"]))
        words[name] = {
            "eps": lie.pick([0.0, 0.1, 0.25, 1.0, 5.0]),
            "frozen": lie.pick([[], [0]]),
            "name": "Box",
        }.get(name, lie.pick([0.5, 1.0, 2.0, -1.0]))
    elif lie.rng.random() < 0.3:
        words["name"] = "LInf"
        words |= {"eps": 0.1, "scale": None, "below": 1.0, "above": 1.0, "frozen": []}


def lie_about_what_is_shown(lie: Forgery) -> None:
    """Names, scores and labels of the witness, whether bounds are exact, or the model."""
    lie.agrees = False
    shown, way = lie.answer["witness"], lie.rng.random()
    if way < 0.2:
        lie.answer["exact"] = not lie.answer["exact"]
    elif way < 0.3:
        lie.answer["verdict"] = lie.pick(["verified", "falsified", "unknown"])
    elif way < 0.4:
        name = str(lie.pick(["lower", "upper"]))
        lie.answer[name] = lie.pick([0.0, 1.0, None, "inf", "-inf"])
    elif way < 0.45:
        lie.answer["claim"] = lie.answer["claim"] | {"delta": 0.0}
    elif way < 0.5:
        lie.document["model"]["fingerprint"] = "0" * 64
    elif shown is not None and way < 0.65:
        names = [list(row)[::-1] for row in shown["rows"]]
        shown["rows"] = [dict(zip(own, row.values(), strict=True))
                         for own, row in zip(names, shown["rows"], strict=True)]  # fmt: skip
    elif shown is not None and way < 0.8:
        shown["scores"] = [[7.0 for _ in score] for score in shown["scores"]]
    elif shown is not None and way < 0.9:
        shown["labels"] = lie.pick([None, ["a", "b"], [0, 0], [1, 0]])
    elif shown is not None:
        shown["changed"] = lie.pick([[], ["0"], ["1", "0"]])


def lie_about_models(lie: Forgery) -> None:
    """The evidence is about another model."""
    name = str(lie.pick(["model", "other"]))
    lie.evidence[name] = lie.pick(
        [None, "0" * 64, lie.evidence["model"], lie.models[-1].fingerprint]
    )


Lie = Callable[[Forgery], None]
LIES: list[Lie] = [
    lie_about_bounds, lie_about_verdict, lie_about_claim, lie_about_option, lie_about_ends,
    lie_about_types, lie_about_witness, lie_about_proof, lie_about_bounds_of_proof, lie_about_row,
    lie_about_evidence,     lie_about_ball, lie_about_what_is_shown, lie_about_models,
]  # fmt: skip


def forged(
    rng: np.random.Generator, case: Answered, others: list[str]
) -> tuple[Answered, list[str]]:
    """A forged file, and what was forged; `others` are texts of evidence about the same model."""
    lie, told = Forgery(rng, case, others), []
    for _ in range(int(rng.choice([1, 1, 2, 2, 3]))):
        one = lie.pick(LIES)
        told.append(one.__name__)
        try:
            one(lie)
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError):
            continue  # an earlier lie has left nothing to lie about
    try:
        return lie.sealed(), told
    except (LookupError, TypeError, ValueError, OverflowError):
        lie.agrees = False  # what it says cannot be shown
        return lie.sealed(), told


def campaign(first: int, cases: int, per_answer: int = 24, says: Any = print) -> Counter[str]:
    """Check and forge the answers of some cases; what is false is counted, and told."""
    counts: Counter[str] = Counter()
    for seed in range(first, first + cases):
        cases_of_seed = list(genuine(seed))
        others = [case.answer["evidence"] for case in cases_of_seed]
        for number, case in enumerate(cases_of_seed):
            rng = np.random.default_rng([23, 2, seed, number])
            check, wrong = case.check(), case.falsehoods()
            counts[f"genuine {case.answer['claim']['name']} {check.status}"] += 1
            if check.status != "accepted" or wrong:
                counts["false"] += 1
                says(f"seed {seed}: genuine {check} {wrong} {case.answer}")
            for _ in range(per_answer):
                file, told = forged(rng, case, others)
                if file.document == case.document:
                    continue
                counts["forged"] += 1
                check = file.check()
                counts[f"forged {check.status}"] += 1
                if check.status in ("accepted", "claims nothing"):
                    wrong = file.falsehoods()
                    if wrong:
                        counts["false"] += 1
                        counts[f"lie: {told}"] += 1
                        says(f"seed {seed}: accepted {told}: {wrong} {file.document['domain']}"
                             f" {file.answer} {unpacked(file.answer['evidence'])}")  # fmt: skip
    return counts


if __name__ == "__main__":
    run(campaign, __doc__.partition("\n")[0])
