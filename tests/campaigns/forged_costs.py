"""Forged evidence about costs and domains: none that says something false is accepted.

    python -m tests.campaigns.forged_costs [--first N] [--cases N]

Answers of random cases are checked first, and compared with the truth by enumeration. Then bounds
and verdicts are forged, with claims that fit them: which atoms are kept, and what the proof says.
"""

import copy
import math
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.campaigns.forged_rules import run
from tests.oracle.rule_evidence import Judged, falsehood, judged_answers, truths_of
from tests.random_domains import random_case
from tests.unit.checker.certificates import packed, unpacked
from treeproof.checker import RunChecker
from treeproof.checker.forest import Forest
from treeproof.model.domain import accept_float64_rows

FACTORS = (1.0 + 2.0**-52, 1.0 + 2.0**-20, 1.01, 1.3, 2.0, 10.0, 0.9)
ALL_CHOICES = (-1, 0, 1, 2, 3)


def forged_kept(rng: np.random.Generator, kept: list[Any]) -> list[Any]:
    """Kept atoms of which some, or all of some axes, or all but the dear ones are left out."""
    way, found = rng.integers(6), copy.deepcopy(kept)
    if way == 0:
        return [[] for _ in found]
    if way == 1:  # of every axis the last ones
        return [axis[-1:] for axis in found]
    for axis in found:
        if way == 2 or not axis or rng.random() < 0.5:
            continue
        if isinstance(axis[0], list) and len(axis[0]) == 2 and isinstance(axis[0][0], int):
            cells = [cell for first, last in axis for cell in range(first, last + 1)]
            some = sorted(rng.choice(cells, int(rng.integers(len(cells) + 1)), replace=False))
            axis[:] = [[int(cell), int(cell)] for cell in some]
        elif way == 3:
            axis[:] = [int(n) for n in rng.choice(ALL_CHOICES, int(rng.integers(3)))]
        else:
            del axis[int(rng.integers(len(axis)))]
    return found


def everything(found: Judged, kept: list[Any]) -> list[Any]:
    """All cells of numbers, the dearest and those that are only approached among them."""
    forest = Forest(accept_float64_rows(found.case.ensemble))
    if len(kept) != found.case.ensemble.n_features:
        return kept  # axes are no features
    is_cells = [axis and isinstance(axis[0], list) and isinstance(axis[0][0], int) for axis in kept]
    return [
        [[0, len(forest.cuts(feature))]] if is_number else axis
        for feature, (axis, is_number) in enumerate(zip(kept, is_cells, strict=True))
    ]


def forged_proof(rng: np.random.Generator, proof: bytes, n_axes: int) -> bytes:
    """The same proof, a damaged one, or one of few nodes for some ways to break the claim."""
    way = rng.integers(5)
    if way == 0 or (way == 1 and not proof):
        return proof
    if way == 1:
        at = int(rng.integers(len(proof)))
        return proof[:at] + bytes([int(rng.choice(list(b"PDELTSA\x00\x01\xff")))]) + proof[at + 1 :]
    found = b""
    for _ in range(int(rng.integers(1, 4))):
        if rng.random() < 0.3:
            found += struct.pack(
                "<cIh", b"A", int(rng.integers(1, 2**31)), int(rng.integers(-60, 9))
            )
        if rng.random() < 0.3:
            found += struct.pack(
                "<cii", b"S", *(int(n) for n in rng.integers(0, max(n_axes, 1), 2))
            )
            found += bytes([int(rng.choice(list(b"PDE")))])
        found += bytes([int(rng.choice(list(b"PDDE")))])
    return found


def forged(rng: np.random.Generator, found: Judged) -> dict[str, Any]:
    """A record that says more than what was found, with a claim that fits it."""
    record, question = copy.deepcopy(found.record), found.header["question"]
    claim, proof = unpacked(record["evidence"])
    nothing = {
        "witness": None,
        "witness_distance": None,
        "witness_label": None,
        "cost": None,
        "witness_probability": None,
        "attained": False,
    }
    if question["kind"] == "radius":
        lower = record["lower"] if isinstance(record["lower"], float) else 1.0
        lower = (lower or 1.0) * float(rng.choice(FACTORS))
        record |= {"lower": lower, "verdict": "unknown", "exact": False, "reason": "time limit"}
        if not isinstance(record["upper"], float) or record["upper"] < lower:
            record |= nothing | {"upper": "inf"}
        claim |= {"set": "open", "radius": lower.hex()}
        if found.record["upper"] == 0.0 and rng.random() < 0.5:
            # A row that is broken as it stands, or a change that costs nothing.
            record |= {name: found.record[name] for name in nothing}
            record |= {"lower": 0.0, "upper": 0.0, "exact": bool(rng.random() < 0.7)}
            record["verdict"] = str(rng.choice(["verified", "falsified", "unknown"]))
            record["exact"] = record["verdict"] != "unknown"
            claim |= {"set": "none", "radius": (0.0).hex()}
        elif rng.random() < 0.2:
            record |= nothing | {"lower": "inf", "upper": "inf", "exact": True}
            record |= {"verdict": "verified", "reason": ""}
            claim |= {"set": str(rng.choice(["open", "closed"])), "radius": math.inf.hex()}
    else:
        is_box = question["perturbation"]["name"] == "Box"
        eps = question["perturbation"].get("eps", question["perturbation"].get("budget"))
        eps = math.inf if is_box else float(eps)
        record |= nothing | {"verdict": "verified", "exact": True, "reason": ""}
        record |= {"lower": None, "upper": None} if is_box else {"lower": eps, "upper": "inf"}
        claim |= {"set": "box" if is_box else "closed", "radius": eps.hex()}
    claim["kept"] = forged_kept(rng, claim["kept"])
    if rng.random() < 0.3:
        claim["kept"] = everything(found, claim["kept"])
    record["evidence"] = packed(claim, forged_proof(rng, proof, len(claim["kept"])))
    return record


def judged_cases(first: int, cases: int) -> Iterator[tuple[int, Judged]]:
    """Answers with evidence to random cases that can be enumerated."""
    for seed in range(first, first + cases):
        rng = np.random.default_rng([22, 9, seed])
        case = random_case(rng, is_wide=True)
        arithmetic = "real" if rng.random() < 0.3 else "float64"
        if truths_of(case, arithmetic) is not None:
            for found in judged_answers(case, arithmetic):
                yield seed, found


def campaign(first: int, cases: int, per_record: int = 12, says: Any = print) -> Counter[str]:
    """Check and forge the answers of some cases; what is false is counted, and told."""
    counts: Counter[str] = Counter()
    for seed, found in judged_cases(first, cases):
        rng = np.random.default_rng([22, 10, seed, found.record["row"]])
        counts[f"genuine {found.status}"] += 1
        if found.status == "rejected" or found.wrong or "row failed" in found.record["reason"]:
            counts["false"] += 1
            says(f"seed {seed}: {found.status} {found.wrong} {found.record['reason']}")
        if not str(found.record["evidence"]).startswith("E1:"):
            continue
        checker = RunChecker(found.header, found.case.ensemble)
        arithmetic = found.header["question"]["arithmetic"]
        for _ in range(per_record):
            record = forged(rng, found)
            check = checker.check(record)
            counts["forged"] += 1
            counts[f"forged {check.status}"] += 1
            is_unknown = check.reason.startswith("record: it cannot be checked")
            wrong = check.reason if is_unknown else ""
            if check.status == "accepted":
                wrong = falsehood(found.case, arithmetic, record)
            if wrong:
                counts["false"] += 1
                says(f"seed {seed}: {check.status}: {wrong} {record}")
    return counts


if __name__ == "__main__":
    run(campaign, __doc__.partition("\n")[0])
