"""Runs with evidence of random questions, and ways to take evidence apart and to damage it."""

import base64
import copy
import dataclasses
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.strategies import Case, Sizes, random_case
from treeproof.checker import RunChecker
from treeproof.checker.claims import Claim, read_claim
from treeproof.engines.base import Budget
from treeproof.engines.exact import ExactEngine
from treeproof.model import evaluate
from treeproof.model.rows import row_hash
from treeproof.query.description import describe
from treeproof.query.perturbations import Box
from treeproof.query.query import Query, resolve_query
from treeproof.results.run_file import row_records
from treeproof.search.question import assemble_results

Record = dict[str, Any]
MANY_TREES = Sizes(trees=9, depth=2, features=2, outputs=3, rows=2)
DEEP = Sizes(trees=4, depth=4, features=3, outputs=3, rows=2)
BUDGET = Budget(time_limit_s=20.0)


def described(case: Case) -> Query:
    """The question with its words, as a run file holds them."""
    words = {
        "perturbation": describe(case.perturbation),
        "goal": describe(case.goal),
        "arithmetic": "real" if case.query.ensemble.over_reals else "float64",
        "attacker_class": None,
        "labels": "given",
    }
    return dataclasses.replace(case.query, description=words)


def inside(case: Case) -> Case:
    """The same question about rows whose values lie within the bounds; others are refused.

    Features that do not move may have any value.
    """
    query, ensemble = case.query, case.query.ensemble
    if isinstance(case.perturbation, Box):
        return case
    reach = query.reach
    clipped = np.clip(query.rows, reach.low, reach.high)
    moves = (reach.down > 0.0) | (reach.up > 0.0)
    codes = ensemble.is_categorical
    rows = evaluate.cast_rows(ensemble, np.where(moves & ~codes, clipped, query.rows))
    if np.array_equal(rows, query.rows, equal_nan=True):
        return case
    own = query.predicted is not None and np.array_equal(query.labels, query.predicted)
    sums = evaluate.accumulate(ensemble, evaluate.leaf_rows(ensemble, rows))
    labels = None if own else query.labels
    moved = resolve_query(ensemble, rows, sums, labels, case.perturbation, goal=case.goal)
    return dataclasses.replace(case, query=moved)


def run_of(query: Query, ask: str, engine: Any = None) -> tuple[Record, list[Record]]:
    """Header and row records of a run with evidence, as a file gives them back."""
    chosen = ExactEngine() if engine is None else engine
    question = {"kind": "radius" if ask == "radius" else "verify", "engine": {"name": chosen.name}}
    outcomes = (chosen.radius if ask == "radius" else chosen.verify)(query, BUDGET)
    results = assemble_results(query, outcomes, question, BUDGET)
    through_json = json.loads(json.dumps([results.header, *row_records(results)]))
    return through_json[0], through_json[1:]


def random_run(
    rng: np.random.Generator, sizes: Sizes, ask: str
) -> tuple[Query, Record, list[Record]]:
    """A random question, and its answers with evidence."""
    query = described(inside(random_case(rng, sizes, ask=ask)))
    return query, *run_of(query, ask)


def unpacked(text: str) -> tuple[Record, bytes]:
    """Claim and proof of evidence."""
    payload = zlib.decompress(base64.b64decode(text[3:]))
    (length,) = struct.unpack_from("<I", payload)
    return json.loads(payload[4 : 4 + length]), payload[4 + length :]


def packed(claim: Record, proof: bytes, version: str = "E1:") -> str:
    """Evidence of a claim and a proof, with a checksum of its own: damage is re-signed."""
    text = json.dumps(claim, separators=(",", ":")).encode()
    payload = struct.pack("<I", len(text)) + text + proof
    return version + base64.b64encode(zlib.compress(payload)).decode()


def with_row(record: Record, change: Callable[[np.ndarray], None]) -> Record:
    """The record of a changed row, with a claim that fits it."""
    claim, proof = unpacked(record["evidence"])
    values = np.array(record["values"], dtype=np.float64)
    change(values)
    stated = [None if np.isnan(v) else v for v in values.tolist()]
    return record | {
        "values": stated, "evidence": packed(claim | {"row": row_hash(values)}, proof)
    }  # fmt: skip


def claim_of(checker: RunChecker, record: Record) -> Claim:
    """The claim of a record's evidence, with how the row may move by the question."""
    values = np.array(record["values"], dtype=np.float64)
    claim = read_claim(record["evidence"], checker.forest, values)
    label = checker.question.class_number(record["label"])
    sides = checker.question.reach(record["row"], values.tolist(), label)
    return dataclasses.replace(claim, **dict(sides))


def damaged(rng: np.random.Generator, records: list[Record], number: int) -> tuple[str, Record]:
    """One row record with random damage, and what was damaged."""
    record = copy.deepcopy(records[number])
    claim, proof = unpacked(record["evidence"])
    kind = str(rng.choice(list(DAMAGES)))
    changed = DAMAGES[kind](rng, record, claim, proof, records)
    if changed is not None:
        record["evidence"] = packed(*changed, record["evidence"][:3])
    return kind, record


def _claim_field(rng: np.random.Generator, record: Record, claim: Record, *_: Any) -> Record:
    if rng.random() < 0.5:
        other = np.array(record["values"], dtype=np.float64) + 1.0
        return claim | {str(rng.choice(["row", "moves"])): row_hash(other)}
    factor = float(rng.choice([0.0, 0.5, 0.99, 1.01, 2.0]))
    new = float.fromhex(claim["radius"]) * factor if factor else 0.0
    return claim | {"radius": (0.0).hex() if np.isnan(new) else new.hex()}


def _both_radii(rng: np.random.Generator, record: Record, claim: Record, *_: Any) -> Record:
    """A wider claim that the record makes, too: only the proof can tell."""
    step = float(rng.choice([1.0 + 2.0**-52, 1.001, 1.3, 3.0, 0.9]))
    for name in ("lower", "upper"):
        if isinstance(record[name], float) and (name == "lower" or rng.random() < 0.5):
            record[name] *= step
    return claim | {"radius": (float.fromhex(claim["radius"]) * step).hex()}


def _kind(rng: np.random.Generator, record: Record, claim: Record, *_: Any) -> Record:
    record["attained"] = bool(rng.random() < 0.5)
    record["exact"] = bool(rng.random() < 0.8)
    return claim | {"set": str(rng.choice(["open", "closed", "none", "box"]))}


def _goal(rng: np.random.Generator, record: Record, claim: Record, *_: Any) -> Record:
    for name in ("keep", "avoid"):
        if name in claim:
            return claim | {name: int(rng.integers(-1, 5))}
    ends = [float.fromhex(text) for text in claim["within"]]
    ends[int(rng.integers(2))] += float(rng.choice([-0.5, 2.0**-40, 0.5]))
    return claim | {"within": [end.hex() for end in ends]}


def _row(rng: np.random.Generator, record: Record, claim: Record, *_: Any) -> Record:
    def change(values: np.ndarray) -> None:
        values[int(rng.integers(len(values)))] += float(rng.choice([-0.2, 1e-9, 0.3]))

    moved = with_row(record, change)
    if rng.random() < 0.7:
        record["values"] = moved["values"]
    return unpacked(moved["evidence"])[0]


def _bytes(rng: np.random.Generator, proof: bytes) -> bytes:
    data = bytearray(proof)
    at = int(rng.integers(len(data)))
    data[at] = int(rng.integers(256)) if rng.random() < 0.5 else (data[at] + 1) % 256
    return bytes(data)


def _structure(rng: np.random.Generator, proof: bytes) -> bytes:
    """Cut off, continued, a piece left out or doubled, or a node replaced by another letter."""
    first, last = sorted(rng.integers(0, len(proof) + 1, 2).tolist())
    letter = bytes([int(rng.choice(list(b"PLSTE")))])
    choices = [
        proof[:first],
        proof + letter,
        proof[:first] + proof[last:],
        proof[:last] + proof[first:],
        letter + proof[1:],
        letter,
        letter * 3,
    ]
    return choices[int(rng.integers(len(choices)))]


def _swapped(rng: np.random.Generator, record: Record, claim: Record, proof: bytes,
             records: list[Record]) -> None:  # fmt: skip
    record["evidence"] = records[int(rng.integers(len(records)))]["evidence"]


def _answer(rng: np.random.Generator, record: Record, *_: Any) -> None:
    """Another answer with the same evidence."""
    name = str(rng.choice(["lower", "upper", "verdict", "label", "attained", "witness", "exact"]))
    if name in ("lower", "upper"):
        record[name] = (
            record[name] * float(rng.choice([0.5, 1.0 + 2.0**-52, 2.0]))
            if isinstance(record[name], float)
            else 0.25
        )
    elif name == "verdict":
        record[name] = str(rng.choice(["verified", "falsified", "unknown", "sure"]))
    elif name in ("attained", "exact"):
        record[name] = not record[name]
    elif name == "label":
        record[name] = rng.choice([0, 1, 2, 3]).item()
    elif record["witness"] is not None:
        values = record["witness"]
        at = int(rng.integers(len(values)))
        if isinstance(values[at], float):
            values[at] += float(rng.choice([-0.5, 1e-3, 0.5]))


DAMAGES: dict[str, Callable[..., Any]] = {
    "claim": lambda *a: (_claim_field(*a), a[3]),
    "model": lambda rng, r, c, p, s: (c | {"model": c["model"][::-1]}, p),
    "domain": lambda rng, r, c, p, s: (c | {"down": (0.0).hex()}, p),
    "radius": lambda *a: (_both_radii(*a), a[3]),
    "set": lambda *a: (_kind(*a), a[3]),
    "goal": lambda *a: (_goal(*a), a[3]),
    "row": lambda *a: (_row(*a), a[3]),
    "bytes": lambda rng, r, c, p, s: (c, _bytes(rng, p)) if p else None,
    "more bytes": lambda rng, r, c, p, s: (c, _bytes(rng, p)) if p else None,
    "structure": lambda rng, r, c, p, s: (c, _structure(rng, p)),
    "swapped": _swapped,
    "answer": _answer,
}


def checker_of(query: Query, header: Record) -> RunChecker:
    """The checker of a run."""
    return RunChecker(header, query.ensemble)
