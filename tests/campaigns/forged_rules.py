"""Forged evidence within rules: none that says something false is accepted.

    python -m tests.campaigns.forged_rules [--first N] [--cases N]

Answers of random cases with rules are checked first, and compared with the truth by enumeration.
Then their trees of boxes, claims, bounds, witnesses and rules are forged, a lie or two at a time.
"""

import argparse
import copy
import dataclasses
import json
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.oracle.rule_evidence import Judged, falsehood, judged
from tests.unit.checker.certificates import packed, unpacked
from treeproof.checker import RunChecker
from treeproof.errors import InvalidInput

Nodes = list[tuple[str, bytes]]
Lie = Callable[[np.random.Generator, dict[str, Any], Nodes], Nodes]


def nodes_of(proof: bytes) -> Nodes:
    """The nodes of a tree of boxes, by letter."""
    found, at = [], 0
    while at < len(proof):
        letter, begin = chr(proof[at]), at + 1
        at = begin + {"N": 0, "U": 0, "H": 20, "C": 4}.get(letter, 0)
        if letter == "L":
            (count,) = struct.unpack_from("<I", proof, begin)
            sizes = struct.unpack_from("<II", proof, begin + 4 + 20 * count)
            at = begin + 4 + 20 * count + 8 + sum(sizes)
        found.append((letter, proof[begin:at]))
    return found


def written(nodes: Nodes) -> bytes:
    """The tree again."""
    return b"".join(letter.encode() + body for letter, body in nodes)


def _some(rng: np.random.Generator, nodes: Nodes, letter: str) -> int:
    places = [place for place, node in enumerate(nodes) if node[0] == letter]
    return int(rng.choice(places)) if places else -1


def _moved(rng: np.random.Generator, value: float) -> float:
    step = float(rng.choice([0.25, 0.5, 1.0, 2.0, -0.25, -0.5, -1.0]))
    return float(rng.choice([value + step, np.nextafter(value, step * np.inf)]))


def leave_out(rng: np.random.Generator, record: dict[str, Any], nodes: Nodes) -> Nodes:
    """A leaf is said to hold no row, or none that is cheap."""
    place = _some(rng, nodes, "L")
    if place >= 0:
        nodes[place] = (str(rng.choice(["N", "U"])), b"")
    return nodes


def move_split(rng: np.random.Generator, record: dict[str, Any], nodes: Nodes) -> Nodes:
    """A box is split elsewhere, or loses what lies between its parts."""
    place = _some(rng, nodes, "H")
    if place >= 0:
        feature, below, above = struct.unpack("<idd", nodes[place][1])
        if rng.random() < 0.5:
            below = _moved(rng, below)
        else:
            above = _moved(rng, above)
        feature = int(rng.integers(4)) if rng.random() < 0.1 else feature
        nodes[place] = ("H", struct.pack("<idd", feature, below, above))
    return nodes


def split_leaf(rng: np.random.Generator, record: dict[str, Any], nodes: Nodes) -> Nodes:
    """A leaf is split such that a part of it is gone."""
    place = _some(rng, nodes, "L")
    if place >= 0:
        feature = int(rng.integers(4))
        below = float(rng.choice([-1.0, 0.0, 0.5, 1.0]))
        above = below + float(rng.choice([0.0, 0.25, 1.0]))
        cut = ("H", struct.pack("<idd", feature, below, above))
        parts = [nodes[place], (str(rng.choice(["N", "U"])), b"")]
        nodes[place : place + 1] = [cut, *(parts if rng.random() < 0.5 else parts[::-1])]
    return nodes


def choose_rule(rng: np.random.Generator, record: dict[str, Any], nodes: Nodes) -> Nodes:
    """Comparisons of a rule are taken one by one, and some of them are not looked at."""
    place = _some(rng, nodes, str(rng.choice(["C", "L"])))
    if place >= 0:
        choice = ("C", struct.pack("<I", int(rng.integers(3))))
        parts = [nodes[place], ("N", b"")]
        added = [choice, *(parts if rng.random() < 0.5 else parts[::-1])]
        nodes[place : place + 1] = [choice] if nodes[place][0] == "C" else added
    return nodes


def shrink_leaf(rng: np.random.Generator, record: dict[str, Any], nodes: Nodes) -> Nodes:
    """The box of a leaf is another one, or has no ends."""
    place = _some(rng, nodes, "L")
    if place >= 0:
        body = bytearray(nodes[place][1])
        (count,) = struct.unpack_from("<I", body)
        if count and rng.random() < 0.8:
            at = 4 + 20 * int(rng.integers(count)) + int(rng.choice([4, 12]))
            (value,) = struct.unpack_from("<d", body, at)
            struct.pack_into("<d", body, at, _moved(rng, value if np.isfinite(value) else 0.0))
        elif count:
            body = bytearray(struct.pack("<I", count - 1)) + body[24:]
        nodes[place] = ("L", bytes(body))
    return nodes


def swap_leaves(rng: np.random.Generator, record: dict[str, Any], nodes: Nodes) -> Nodes:
    """Two nodes change places, or one is gone or there twice."""
    one, other = (int(n) for n in rng.integers(len(nodes), size=2)) if nodes else (0, 0)
    if nodes:
        nodes[one], nodes[other] = nodes[other], nodes[one]
        if rng.random() < 0.3:
            del nodes[one]
        elif rng.random() < 0.3:
            nodes.insert(one, nodes[other])
    return nodes


def raise_bounds(rng: np.random.Generator, record: dict[str, Any], nodes: Nodes) -> Nodes:
    """Bounds are higher than what was proved."""
    factor = float(rng.choice([1.0 + 2.0**-52, 1.01, 1.5, 0.99, 0.5]))
    for name in ("lower", "upper"):
        value = record[name]
        if isinstance(value, float):
            record[name] = value * factor
    return nodes


def call_verified(rng: np.random.Generator, record: dict[str, Any], nodes: Nodes) -> Nodes:
    """A violation is left out."""
    if record["verdict"] == "falsified":
        record |= {"verdict": "verified", "attained": False, "witness": None}
        record |= {
            "witness_distance": None,
            "witness_label": None,
            "cost": None,
            "witness_probability": None,
        }
    return nodes


def move_witness(rng: np.random.Generator, record: dict[str, Any], nodes: Nodes) -> Nodes:
    """A witness elsewhere."""
    if record["witness"]:
        at = int(rng.integers(len(record["witness"])))
        value = record["witness"][at]
        own = record["values"][at]
        moved = own if value is None else _moved(rng, float(value))
        record["witness"][at] = moved if rng.random() < 0.6 else own
    return nodes


LIES: list[Lie] = [
    leave_out,
    move_split,
    split_leaf,
    choose_rule,
    shrink_leaf,
    swap_leaves,
    raise_bounds,
    call_verified,
    move_witness,
]


def forged(rng: np.random.Generator, found: Judged) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The case, header and record of a lie; the claim fits the record."""
    record = copy.deepcopy(found.record)
    header, case = found.header, found.case
    claim, proof = unpacked(record["evidence"])
    nodes = nodes_of(proof)
    for number in rng.integers(len(LIES), size=int(rng.integers(1, 3))):
        nodes = LIES[int(number)](rng, record, nodes)
    radius = record["lower"]
    if header["question"]["kind"] == "radius":
        settled = float(radius) > 0.0 and record["verdict"] != "falsified"
        claim |= {"set": "open" if settled else "none", "radius": float(radius).hex()}
        nodes = nodes if settled else []
    elif record["verdict"] == "verified" and claim["set"] == "none":
        eps = getattr(case.perturbation, "budget", getattr(case.perturbation, "eps", np.inf))
        is_box = header["question"]["perturbation"]["name"] == "Box"
        claim |= {"set": "box" if is_box else "closed", "radius": float(eps).hex()}
        record["lower"] = None if is_box else eps
        record["upper"] = None if is_box else "inf"
        nodes = [("U" if rng.random() < 0.5 else "N", b"")]
    if rng.random() < 0.25:
        domain = case.perturbation.domain
        assert domain is not None
        rules = list(domain.rules)
        place = int(rng.integers(len(rules)))
        if len(rules) > 1 and rng.random() < 0.5:
            del rules[place]
        else:
            old, new = (str(s) for s in rng.choice(["<=", ">=", " > 0", "+ x", "1"], 2))
            rules[place] = rules[place].replace(old, new, 1)
        changed = dataclasses.replace(domain, rules=rules)
        case = dataclasses.replace(
            case, perturbation=dataclasses.replace(case.perturbation, domain=changed)
        )
        header = json.loads(json.dumps(header))
        header["question"]["perturbation"]["domain"]["rules"] = rules
    record["evidence"] = packed(claim, written(nodes), record["evidence"][:3])
    return case, header, record


def campaign(first: int, cases: int, per_record: int = 6, says: Any = None) -> Counter[str]:
    """Check and forge the answers of some cases; what is false is counted, and told."""
    counts: Counter[str] = Counter()
    for seed in range(first, first + cases):
        rng = np.random.default_rng([22, 8, seed])
        for found in judged(seed):
            counts[f"genuine {found.status}"] += 1
            if found.status == "rejected" or found.wrong or "row failed" in found.record["reason"]:
                counts["false"] += 1
                if says is not None:
                    says(f"seed {seed}: {found.status} {found.wrong} {found.record['reason']}")
            if not str(found.record["evidence"]).startswith("E1:"):
                continue
            for _ in range(per_record):
                _judge_forged(rng, found, counts, says)
    return counts


def _judge_forged(rng: np.random.Generator, found: Judged, counts: Counter[str], says: Any) -> None:
    case, header, record = forged(rng, found)
    if record == found.record and header == found.header:
        return
    counts["forged"] += 1
    try:
        check = RunChecker(header, case.ensemble).check(record)
    except InvalidInput:
        counts["forged refused"] += 1
        return
    counts[f"forged {check.status}"] += 1
    if check.reason.startswith("record: it cannot be checked"):
        counts["false"] += 1
        if says is not None:
            says(f"{check.reason} {record}")
    if check.status == "accepted":
        try:
            wrong = falsehood(case, header["question"]["arithmetic"], record)
        except InvalidInput:
            return  # the row breaks a rule that was forged
        if wrong:
            counts["false"] += 1
            counts["accepted lies"] += 1
            if says is not None:
                says(f"accepted: {wrong} {header['question']} {record}")


def run(campaign: Callable[..., Counter[str]], title: str) -> None:
    """Run a campaign with the options of the shell, and print what came of it."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=500)
    options = parser.parse_args()
    began = time.monotonic()
    counts = campaign(options.first, options.cases, says=lambda text: print(text[:1500]))
    for name, number in sorted(counts.items()):
        print(f"{number:8} {name}")
    print(f"{options.cases} cases in {time.monotonic() - began:.0f} s, {counts['false']} false")
    sys.exit(bool(counts["false"]))


if __name__ == "__main__":
    run(campaign, __doc__.partition("\n")[0])
