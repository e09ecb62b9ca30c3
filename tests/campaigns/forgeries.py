"""Ways to forge a run: proofs, claims, answers, rows, labels, questions, headers, and bombs.

A good forger signs evidence anew, and makes everything that can be compared agree with the lie, so
that nothing but the proof, the witness or the model can tell.
"""

import base64
import copy
import math
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.campaigns.genuine_runs import GenuineRun, Record
from tests.unit.checker.certificates import DAMAGES, packed, unpacked
from treeproof.model.rows import row_hash

FACTORS = (0.0, 0.5, 0.9, 1.0 - 2.0**-52, 1.0 + 2.0**-52, 1.1, 2.0, 1e3, 1e300)
WRONG = (None, True, "inf", "nan", "0.5", -1.0, 10**13, [], {}, [0.0], "", "a", 3, 1e308, 0, 0.0)


IMPOSSIBLE = (
    KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, MemoryError,
    struct.error,
)  # fmt: skip
"""What a forger meets where an earlier lie has left nothing to lie about."""


class Forgery:
    """A header and a record that change while they are forged."""

    def __init__(self, rng: np.random.Generator, run: GenuineRun) -> None:
        self.rng, self.run = rng, run
        self.header: Record = run.header
        self.at = int(rng.integers(len(run.records)))
        self.record: Record = copy.deepcopy(run.records[self.at])
        self.is_new_header = False

    def question(self) -> Record:
        """The question, to be changed."""
        if not self.is_new_header:
            self.header, self.is_new_header = copy.deepcopy(self.header), True
        question: Record = self.header["question"]
        return question

    def pick(self, *choices: Any) -> Any:
        """One of some things."""
        return choices[int(self.rng.integers(len(choices)))]

    def moved(self, value: Any) -> Any:
        """Another number, often the next double."""
        if not isinstance(value, float | int) or isinstance(value, bool) or self.rng.random() < 0.2:
            return self.pick(0.0, 0.25, 1.0, "inf", 1e-300, value)
        step = self.pick(math.inf, -math.inf, None, None)
        if step is not None:
            return math.nextafter(float(value), step)
        return float(value) * self.pick(*FACTORS) if self.rng.random() < 0.8 else value + 0.05

    def has_claim(self) -> bool:
        """Whether there is evidence to open."""
        text = self.record.get("evidence")
        return isinstance(text, str) and text.startswith("E1:") and len(text) < 1 << 16

    def sign(self, **fields: Any) -> None:
        """Write other fields into the claim."""
        if self.has_claim():
            claim, proof = unpacked(self.record["evidence"])
            for name, value in fields.items():
                if value is None:
                    claim.pop(name, None)
                else:
                    claim[name] = value
            self.record["evidence"] = packed(claim, proof)

    def sign_set(self) -> None:
        """Make the claimed set the one that the answer needs."""
        record, is_radius = self.record, self.header["question"]["kind"] == "radius"
        kind, radius = "none", 0.0
        if is_radius and record["verdict"] != "falsified":
            lower = _float(record["lower"])
            open_ball = not record["exact"] or record["attained"]
            kind, radius = ("open" if open_ball else "closed"), lower
            kind = "none" if open_ball and not lower > 0.0 else kind
        elif not is_radius and record["verdict"] == "verified":
            eps = self.header["question"]["perturbation"].get("eps")
            kind, radius = ("closed", _float(eps)) if eps is not None else ("box", math.inf)
        if not math.isnan(radius):
            self.sign(set=kind, radius=radius.hex())
        if self.has_claim() and self.rng.random() < 0.4:
            # The shortest proofs that there are, one for each way to break the claim.
            n_ways = self.pick(1, 2, max(len(self.header["model"]["classes"]) - 1, 1))
            node = b"" if kind == "none" else self.pick(b"P", b"P", b"E")
            self.record["evidence"] = packed(unpacked(self.record["evidence"])[0], node * n_ways)


def forge_proof(f: Forgery) -> None:
    """Other bytes, nodes, claims; see certificates.DAMAGES."""
    if f.has_claim():
        claim, proof = unpacked(f.record["evidence"])
        with_claims = [r for r in f.run.records if str(r.get("evidence")).startswith("E1:")]
        changed = DAMAGES[f.pick(*DAMAGES)](f.rng, f.record, claim, proof, with_claims)
        if changed is not None:
            f.record["evidence"] = packed(*changed)


def forge_bounds(f: Forgery) -> None:
    """Other bounds, with a claim that fits them."""
    both = f.rng.random() < 0.6
    moved = f.moved(f.record[f.pick("lower", "upper")])
    for name in ("lower", "upper") if both else (f.pick("lower", "upper"),):
        f.record[name] = moved
    if f.rng.random() < 0.5:
        f.record["attained"] = bool(f.rng.random() < 0.5)
    f.sign_set()


def forge_verdict(f: Forgery) -> None:
    """Another verdict, with all that belongs to it."""
    verdict = f.pick("verified", "falsified", "unknown")
    f.record |= {"verdict": verdict, "exact": verdict != "unknown"}
    is_radius = f.header["question"]["kind"] == "radius"
    eps = f.header["question"]["perturbation"].get("eps")
    if verdict == "verified" and not is_radius:
        f.record |= {"lower": eps, "upper": None if eps is None else "inf", "attained": False}
        f.record |= {
            "witness": None,
            "witness_distance": None,
            "witness_label": None,
            "cost": None,
            "witness_probability": None,
        }
    elif verdict == "falsified":
        f.record |= {"attained": f.pick(True, True, False)}
        if eps is not None or is_radius:
            f.record |= {"lower": 0.0, "upper": 0.0 if is_radius else f.pick(eps, 0.0)}
        if f.rng.random() < 0.5:
            f.record |= {"witness": f.record["values"], "witness_distance": 0.0}
            f.record |= {"witness_label": f.record["predicted"]}
    else:
        f.record |= {"attained": False, "lower": f.pick(0.0, None), "upper": f.pick("inf", None)}
        if f.rng.random() < 0.7:
            f.record |= {
                "witness": None,
                "witness_distance": None,
                "witness_label": None,
                "cost": None,
                "witness_probability": None,
            }
            f.record["evidence"] = None
    f.sign_set()


def forge_flags(f: Forgery) -> None:
    """Exact, attained."""
    name = f.pick("exact", "attained")
    f.record[name] = not f.record[name]
    f.sign_set()


def forge_witness(f: Forgery) -> None:
    """A witness elsewhere, with its distance and the bound that would follow."""
    other = f.pick(*f.run.records)
    kind = f.pick("value", "value", "row", "other", "distance", "missing", "bound")
    if kind == "other":
        for name in ("witness", "witness_distance", "witness_label"):
            f.record[name] = other.get(name)
    elif kind == "row":
        f.record |= {"witness": f.record["values"], "witness_distance": 0.0}
    elif kind == "distance":
        f.record["witness_distance"] = f.moved(f.record["witness_distance"])
    elif f.record["witness"]:
        at = int(f.rng.integers(len(f.record["witness"])))
        value = f.record["witness"][at]
        f.record["witness"][at] = None if kind == "missing" else f.moved(value)
        x = f.record["values"][at]
        if kind == "bound" and isinstance(f.record["witness"][at], float) and x is not None:
            distance = abs(f.record["witness"][at] - _float(x))
            f.record |= {"witness_distance": distance, "upper": distance}
            f.record["lower"] = f.pick(distance, f.record["lower"])
            f.sign_set()


def forge_labels(f: Forgery) -> None:
    """Another label of the row, with a claim that keeps it; another prediction."""
    classes = [*f.header["model"]["classes"], "c", None, 7, True]
    label = f.pick(*classes)
    name = f.pick("label", "label", "predicted", "witness_label")
    f.record[name] = label
    known = [k for k, c in enumerate(f.header["model"]["classes"]) if c == label]
    if name == "label" and known and f.has_claim() and f.rng.random() < 0.8:
        claim, _ = unpacked(f.record["evidence"])
        if "keep" in claim:
            f.sign(keep=known[0])
        if f.rng.random() < 0.5:
            f.question()["labels"] = f.pick("given", "the model's own")


def forge_row(f: Forgery) -> None:
    """Another row, in the claim too; or another number of it."""
    if f.rng.random() < 0.3:
        f.record["row"] = f.pick(0, 1, 2, 9, 10**13, -1, "0", 1.0, True, 2**70)
        return
    values = list(f.record["values"])
    at = int(f.rng.integers(len(values)))
    values[at] = f.pick(f.moved(values[at]), None, *[r["values"][at] for r in f.run.records])
    f.record["values"] = values
    numbers = np.array([_float(v) for v in values])
    f.sign(row=row_hash(numbers))


def forge_ball(f: Forgery) -> None:
    """Another set in the question, with a claim that fits it."""
    question = f.question()
    perturbation = question["perturbation"]
    n = f.header["model"]["n_features"]
    if f.rng.random() < 0.15:
        question["perturbation"] = f.pick(
            {"name": "L2", **perturbation}, {**perturbation, "more": 1}, {"name": "LInf"},
            {"name": "Box", "low": "-inf", "high": "inf"}, {"name": "Box", "low": 1.0, "high": 0.0},
        )  # fmt: skip
        return
    name = f.pick(*[name for name in perturbation if name != "name"])
    if name == "eps":
        perturbation["eps"] = eps = f.moved(perturbation["eps"])
        if f.record["verdict"] == "verified" and question["kind"] == "verify":
            f.record["lower"] = eps
    elif name == "frozen":
        perturbation["frozen"] = f.pick([], [0], [n - 1], list(range(n)), ["x"], [-1], [n], ["0"])
    else:
        value = perturbation[name]
        moved = [f.moved(1.0 if v is None else v) for v in np.atleast_1d(value).tolist()]
        if name in ("low", "high") and f.rng.random() < 0.4:
            moved = [f.pick(100.0, -100.0, 0.0)]  # rows may be outside of it
        perturbation[name] = moved if isinstance(value, list) and np.ndim(value) == 1 else moved[0]
    f.sign_set()
    _sign_reach(f)


def _sign_reach(f: Forgery) -> None:
    """Write the rates and bounds of the question into the claim, as far as they are numbers."""
    words, n = f.header["question"]["perturbation"], f.header["model"]["n_features"]
    try:
        sides = [
            np.broadcast_to(np.array(words[name], dtype=float), (n,)) for name in ("low", "high")
        ]
        fields = {"low": sides[0], "high": sides[1]}
        fields |= dict.fromkeys(("down", "up"), np.full(n, np.inf))
        if words["name"] == "LInf":
            scale = np.array(1.0 if words["scale"] is None else words["scale"], dtype=float)
            for name, side in (("down", "below"), ("up", "above")):
                rates = scale * np.array(words[side], dtype=float)
                fields[name] = np.array(np.broadcast_to(rates, (n,)))
                fields[name][[int(item) for item in words["frozen"]]] = 0.0
    except (KeyError, ValueError, TypeError, IndexError):
        return
    f.sign(moves=row_hash(*(fields[name] for name in ("down", "up", "low", "high"))))


def forge_goal(f: Forgery) -> None:
    """Another goal in the question, with a claim that fits it."""
    question, classes = f.question(), f.header["model"]["classes"]
    goal = f.pick("KeepsLabel", "AvoidsTarget", "ScoreWithin", "ScoreChange", "KeepsCalm", "")
    words: Record = {"name": goal}
    if goal == "AvoidsTarget":
        words["target"] = f.pick(*classes, "c", 5, None, [0])
        known = [k for k, c in enumerate(classes) if c == words["target"]]
        f.sign(keep=None, within=None, avoid=known[0] if known else 0)
    elif goal == "ScoreWithin":
        words |= {"low": f.pick("-inf", -1.0, 0.0, 5.0), "high": f.pick("inf", 1.0, 0.0, -5.0)}
        ends = [float(words[name]).hex() for name in ("low", "high")]
        f.sign(keep=None, avoid=None, within=ends)
    elif goal == "ScoreChange":
        words["delta"] = f.pick(0.0, 0.25, 1e9, -1.0, "inf", None)
    elif goal == "KeepsLabel":
        known = [k for k, c in enumerate(classes) if c == f.record["label"]]
        f.sign(avoid=None, within=None, keep=known[0] if known else 0)
    if f.rng.random() < 0.1:
        words["more"] = 1
    question["goal"] = words


def forge_question(f: Forgery) -> None:
    """Who is attacked, the arithmetic, the kind, names and types."""
    question = f.question()
    name = f.pick(
        "attacker_class", "attacker_class", "arithmetic", "kind", "labels", "engine", "any"
    )
    if name == "attacker_class":
        own = [label for label in f.header["model"]["classes"] if label != f.record["label"]]
        question[name] = f.pick(*own, None, "x", [0], True, 0, 1.0, {}, "0", f.record["label"])
        if question[name] in own and f.rng.random() < 0.7:
            # Rows of other classes stay as they are, so anything is proved of them.
            numbers = [_float(v) for v in f.record["values"]]
            ends = [[(s if math.isnan(x) else x).hex() for x in numbers]
                    for s in (-math.inf, math.inf)]  # fmt: skip
            f.sign(low=ends[0], high=ends[1])
            claim, _ = unpacked(f.record["evidence"]) if f.has_claim() else ({}, b"")
            if claim and f.rng.random() < 0.7:
                f.record["evidence"] = packed(claim, b"P" * int(f.rng.integers(3)))
    elif name == "arithmetic":
        for key in ("domain", "arithmetic"):
            question.pop(key, None)
        for key in ("domain", "arithmetic"):
            question |= f.pick({}, {key: "real"}, {key: "float64"}, {key: "integers"})
    elif name == "kind":
        question["kind"] = f.pick("radius", "verify", "features", "", None)
        f.sign_set()
    elif name == "labels":
        question["labels"] = f.pick("given", "the model's own", "mine", None)
    elif name == "engine":
        question["engine"] = f.pick({"name": "exact"}, {"name": "mine"}, {}, None, "exact")
    else:
        question[f.pick(*question, "more")] = f.pick(*WRONG)


def forge_header(f: Forgery) -> None:
    """What the header says of the model and of itself."""
    f.question()
    model = f.header["model"]
    where = f.pick(model, model, f.header)
    name = f.pick(*where)
    if name in ("n_trees", "n_features", "n_rows", "format") and f.rng.random() < 0.5:
        where[name] = int(_float(where[name])) + f.pick(-1, 1, 10**6)
    elif name == "categorical" and f.rng.random() < 0.5:
        where[name] = f.pick([], [0], [*where[name], 0], where[name][:-1])
    elif name in ("decision_rule", "objective", "decision_cut") and f.rng.random() < 0.5:
        where[name] = f.pick("1 iff margin > 0, otherwise 0", "binary:logistic", 0.25, None, "")
    elif name in ("classes", "feature_names") and f.rng.random() < 0.5:
        where[name] = f.pick(where[name][::-1], where[name][:-1], [*where[name], "more"], [])
    else:
        where[name] = f.pick(*WRONG)


def forge_types(f: Forgery) -> None:
    """A field of the record is gone, unknown, or of another type."""
    name = f.pick(*f.record, "more")
    if f.rng.random() < 0.2:
        f.record.pop(name, None)
    else:
        f.record[name] = f.pick(*WRONG)


def forge_bomb(f: Forgery) -> None:
    """Little text that stands for very much."""
    if not f.has_claim():
        return
    claim, proof = unpacked(f.record["evidence"])
    size = int(10 ** f.rng.uniform(3, 6.3))
    feature = int(f.rng.integers(f.header["model"]["n_features"]))
    no_prices = struct.pack("<hB", 0, 1)
    bombs: list[Callable[[], bytes]] = [
        lambda: b"P" * size,
        lambda: b"T" + no_prices + struct.pack("<I", 0) + b"P" * size,
        lambda: (b"T" + no_prices + struct.pack("<I", 0)) * (size // 8),
        lambda: (b"S" + struct.pack("<ii", feature, 0)) * (size // 9),
        lambda: (b"S" + struct.pack("<ii", feature, 0) + b"P") * (size // 10),
        lambda: b"T" + no_prices + struct.pack("<I", 2**32 - 1) + bytes(size),
        lambda: b"L" + struct.pack("<hB", 2047, 4) + b"\x7f" * size,
        lambda: proof + bytes(size),
    ]
    body = bombs[int(f.rng.integers(len(bombs)))]()
    if f.rng.random() < 0.2:
        claim[f.pick("radius", "row", "kept", "model")] = f.pick("0" * size, ["0x0p0"] * size)
    text = packed(claim, body)
    if f.rng.random() < 0.1:
        text = "E1:" + base64.b64encode(zlib.compress(b"\xff\xff\xff\x7f" + bytes(size))).decode()
    f.record["evidence"] = text


FORGERS: dict[str, Callable[[Forgery], None]] = {
    "proof": forge_proof,
    "bounds": forge_bounds,
    "verdict": forge_verdict,
    "flags": forge_flags,
    "witness": forge_witness,
    "labels": forge_labels,
    "row": forge_row,
    "set": forge_ball,
    "goal": forge_goal,
    "question": forge_question,
    "header": forge_header,
    "types": forge_types,
    "bomb": forge_bomb,
}


def _float(value: Any) -> float:
    try:
        return math.nan if value is None else float(value)
    except (TypeError, ValueError):
        return math.nan
