"""Proofs by cliques: honest ones are accepted, and nothing is that enumeration contradicts."""

import itertools
import json
import struct
import types
from collections import Counter
from functools import cache

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

import treeproof as tp
from tests.unit.checker.certificates import packed, unpacked
from treeproof.checker import RunChecker, cliques
from treeproof.checker.cliques import Graph
from treeproof.checker.proofs import Reader
from treeproof.errors import CertificateRejected
from treeproof.results.run_file import row_records

N_CELLS, N_FEATURES = 4, 3
UNIT = 64
"""Gains are multiples of this: what rounding them may add does not tell."""
CELLS = list(itertools.product(range(N_CELLS), repeat=N_FEATURES))


def random_boxes(rng):
    """Leaves of a few trees, each a box of cells: every tree cuts one after another."""
    trees = []
    for _ in range(int(rng.integers(2, 6))):
        boxes = [((0, N_CELLS - 1),) * N_FEATURES]
        for _ in range(int(rng.integers(1, 5))):
            box = list(boxes.pop(int(rng.integers(len(boxes)))))
            axis = int(rng.integers(N_FEATURES))
            first, last = box[axis]
            if first < last:
                cut = int(rng.integers(first, last))
                for part in ((first, cut), (cut + 1, last)):
                    box[axis] = part
                    boxes.append(tuple(box))
            else:
                boxes.append(tuple(box))
        trees.append(boxes)
    return trees


def as_pieces(trees, gains):
    """The leaves as the checker gets them."""
    leaf = [(tree, box) for tree, boxes in enumerate(trees) for box in boxes]
    entries = [
        (at, feature, *cells)
        for at, (_, box) in enumerate(leaf)
        for feature, cells in enumerate(box)
        if cells != (0, N_CELLS - 1)
    ]
    columns = np.array(entries, dtype=np.int64).reshape(-1, 4).T
    gain = np.array([g for own in gains for g in own], dtype=np.int64)
    return Graph(np.arange(len(leaf)) + 7, np.array([t for t, _ in leaf]), gain, *columns)


def largest_sum(trees, gains):
    """Over all cells, by enumeration."""
    return max(
        sum(
            next(
                gain
                for box, gain in zip(boxes, own, strict=True)
                if all(low <= c <= high for c, (low, high) in zip(cell, box, strict=True))
            )
            for boxes, own in zip(trees, gains, strict=True)
        )
        for cell in CELLS
    )


def meet(one, other):
    return all(a <= d and c <= b for (a, b), (c, d) in zip(one, other, strict=True))


class Writer:
    """Writes what a prover would write who believes that no clique weighs enough."""

    def __init__(self, boxes, trees, weights):
        self.weights = weights
        self.near = [
            {v for v in range(len(boxes)) if trees[u] != trees[v] and meet(boxes[u], boxes[v])}
            for u in range(len(boxes))
        ]
        self.nodes = []

    def write(self, alive, missing):
        left, n_classes = self.classes(alive, missing)
        at = len(self.nodes)
        self.nodes.append(("B", len(left)) if left else ("K", n_classes))
        for piece in sorted(left, reverse=True):
            alive = alive - {piece}
            if missing - self.weights[piece] <= 0:
                # A lie: the branch is left out.
                self.nodes[at:] = [("K", n_classes)]
                return
            self.write(alive & self.near[piece], missing - self.weights[piece])

    def classes(self, alive, missing):
        rest, budget, count = {v: self.weights[v] for v in alive}, missing - 1, 0
        while rest and budget > 0:
            members = []
            for v in sorted(rest):
                if not any(v in self.near[u] for u in members):
                    members.append(v)
            number = min([budget, *(rest[v] for v in members)])
            rest = {v: w - number * (v in members) for v, w in rest.items()}
            rest = {v: w for v, w in rest.items() if w > 0}
            budget -= number
            count += 1
        return set(rest), count


def graph_bytes(exponent, unit, required, listed, nodes):
    head = struct.pack("<hqqI", exponent, unit, required, len(listed))
    leaves = struct.pack(f"<{len(listed)}i", *(leaf for leaf, _ in listed))
    weights = struct.pack(f"<{len(listed)}q", *(weight for _, weight in listed))
    tail = b"".join(struct.pack("<cH", letter.encode(), count) for letter, count in nodes)
    return head + leaves + weights + tail


def random_proof(rng):
    """Trees, gains, what is missing, and the proof that an honest or a lying prover writes."""
    trees = random_boxes(rng)
    steps = [(0, 1), (0, 1, 2, 5), (-7, 0, 3, 40)][int(rng.integers(3))]
    gains = [[int(rng.choice(steps)) for _ in boxes] for boxes in trees]
    missing = largest_sum(trees, gains) + int(rng.integers(-3, 5))
    least = [min(own) for own in gains]
    flat = [
        (tree, box, gain - least[tree])
        for tree, boxes in enumerate(trees)
        for box, gain in zip(boxes, gains[tree], strict=True)
    ]
    unit = int(rng.choice([1, 1, 2, 3]))
    heavy = [at for at, (_, _, more) in enumerate(flat) if more > 0]
    order = [int(at) for at in rng.permutation(heavy)]
    weights = [-(-flat[at][2] // unit) for at in order]
    required = -(-(missing - sum(least)) // unit)
    # Without a finer unit, weights that are less by what rounding may add are accepted; then less
    # is required of them.
    scale = UNIT if rng.random() < 0.8 else 1
    lie = int(rng.integers(8))
    if lie == 0:
        required += 1
    elif lie == 1 and order:
        lighter = range(len(order)) if scale == 1 else [int(rng.integers(len(order)))]
        for at in lighter:
            weights[at] -= weights[at] > 1 or scale > 1
    elif lie == 2 and order:
        dropped = int(rng.integers(len(order)))
        del order[dropped], weights[dropped]
    writer = Writer([flat[at][1] for at in order], [flat[at][0] for at in order], weights)
    writer.write(set(range(len(order))), max(required, 1))
    listed = [(at + 7, weight) for at, weight in zip(order, weights, strict=True)]
    proof = graph_bytes(0, unit * scale, required, listed, writer.nodes)
    gains = [[gain * scale for gain in own] for own in gains]
    return trees, gains, missing * scale, proof, lie, unit * scale == UNIT


def is_accepted(module, trees, gains, missing, proof):
    reader = Reader(proof, 4 * len(proof) + 4)
    try:
        module.follow(reader, as_pieces(trees, gains), missing, 0, "here")
    except CertificateRejected:
        return False
    return reader.at == len(proof)


def check_many(module, n_cases, seed=0):
    """Accepted proofs hold, honest ones are accepted, and so is little that is damaged."""
    found = Counter()
    for number in range(n_cases):
        rng = np.random.default_rng([seed, number])
        trees, gains, missing, proof, lie, is_fine = random_proof(rng)
        truth = largest_sum(trees, gains) < missing
        accepted = is_accepted(module, trees, gains, missing, proof)
        assert truth or not accepted, (number, "a false claim is accepted")
        found[accepted, truth] += 1
        _, _, required, n_listed = struct.unpack_from("<hqqI", proof)
        # Weights that are rounded up may reach what leaves do not.
        if truth and lie > 2 and is_fine and n_listed > 0 and required > 0:
            assert accepted, (number, "an honest proof is rejected")
        for _ in range(6):
            changed = bytearray(proof)
            changed[int(rng.integers(len(proof)))] = int(rng.choice([0, 1, 2, 3, 66, 75, 255]))
            if is_accepted(module, trees, gains, missing, bytes(changed)):
                assert truth, (number, "a false claim is accepted after damage")
                found["damaged and accepted"] += 1
            else:
                found["damaged and rejected"] += 1
    return found


def test_what_is_accepted_is_what_enumeration_says():
    found = check_many(cliques, 600)
    assert found[True, True] > 80
    assert found[False, False] > 80
    assert found["damaged and rejected"] > 1000


BUGS = {
    "leaves that do not count are forgotten": ("all(more[at] == 0", "all(more[at] >= 0"),
    "weights may be too small": ("w * unit + 1 >= more[at]", "w * unit + 65 >= more[at]"),
    "too much may be required": (
        "(required - 1) * unit < missing",
        "(required - 2) * unit < missing",
    ),
    "a class holds leaves that meet": ("self.neighbours[piece] | 1 << piece)", "1 << piece)"),
    "leaves that touch miss each other": (
        "(low[:, None] > high) | (low > high[:, None])",
        "(low[:, None] >= high) | (low >= high[:, None])",
    ),
    "classes may reach what is missing": (
        "budget, n_classes = missing - 1",
        "budget, n_classes = missing",
    ),
    "a piece leaves with its branch": (
        "alive & self.neighbours[piece]",
        "alive & ~self.neighbours[piece]",
    ),
    "uncovered leaves are closed": (
        'require(left == 0, f"{place}: classes do not cover all leaves")',
        "left = 0",
    ),
    "the least gains are not taken off": (
        "missing -= sum(least.values()) + len(least)",
        "missing -= min(least.values()) + len(least)",
    ),
    "what rounding may add is forgotten": (
        "missing -= sum(least.values()) + len(least)",
        "missing -= sum(least.values())",
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_bugs_planted_in_the_checker_are_caught(name):
    with open(cliques.__file__, encoding="utf-8") as file:
        source = file.read()
    old, new = BUGS[name]
    assert source.count(old) == 1
    module = types.ModuleType("planted")
    exec(compile(source.replace(old, new), "planted", "exec"), module.__dict__)
    with pytest.raises(AssertionError, match=r"false claim|honest proof"):
        check_many(module, 800)


LOW, HIGH, ALL = (0, 1), (2, 3), (0, 3)
TWO_TREES = [[(LOW, ALL, ALL), (HIGH, ALL, ALL)], [(LOW, ALL, ALL), (HIGH, ALL, ALL)]]
"""Leaves 7 to 10, of which 8 and 9 have a gain of 2, and are apart."""
GRAPH = {"exponent": 6, "unit": 1, "required": 3, "listed": [(8, 2), (9, 2)], "nodes": [("K", 1)]}


def follow(leaf_numbers=(7, 8, 9, 10), missing=3, **changes):
    proof = graph_bytes(**GRAPH | changes)
    gains = [[0, 2 * UNIT], [2 * UNIT, 0]]
    pieces = as_pieces(TWO_TREES, gains)._replace(leaf=np.array(leaf_numbers))
    cliques.follow(Reader(proof, 4 * len(proof) + 4), pieces, missing * UNIT, 0, "here")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exponent": -1}, "weights finer than the unit"),
        ({"exponent": 2048}, "no such unit"),
        ({"unit": 0}, "no such unit"),
        ({"unit": -1}, "no such unit"),
        ({"listed": []}, "no such number of leaves"),
        ({"listed": [(8, 2)] * 8193}, "no such number of leaves"),
        ({"listed": [(8, 2)] * 8192}, "listed twice"),
        ({"listed": [(8, 2), (9, 2), (8, 2)]}, "listed twice"),
        ({"listed": [(8, 2), (9, 2), (11, 2)]}, "not in the box"),
        ({"leaf_numbers": (7, 8, 9, 9)}, "a leaf is no range"),
        ({"listed": [(8, 2)]}, "a leaf that counts is not listed"),
        ({"listed": [(8, 1), (9, 2)]}, "a weight is too small"),
        ({"listed": [(7, 0), (8, 2), (9, 2)]}, "a weight is too small"),
        ({"required": 4}, "too much is required"),
        ({"required": 0}, "too much is required"),
        ({"nodes": [("X", 1)]}, "unknown node 'X'"),
        ({"nodes": [("K", 2)]}, "another number of classes"),
        ({"nodes": [("B", 0)]}, "other leaves are left"),
        ({"missing": 2, "required": 2}, "classes do not cover all leaves"),
        ({"missing": 2, "required": 2, "nodes": [("B", 1)]}, "other leaves are left"),
        ({"missing": 2, "required": 2, "nodes": [("B", 2)]}, "a clique weighs enough"),
    ],
)
def test_what_is_wrong_with_a_graph_is_named(changes, words):
    follow()
    with pytest.raises(CertificateRejected, match=words):
        follow(**changes)


# End to end


@cache
def forest(kind, **options):
    rng = np.random.default_rng(3)
    X = rng.random((1200, 5)).astype(np.float32)
    noise = rng.normal(scale=0.2, size=1200)
    y = (np.sin(6.0 * X[:, 0]) + X[:, 1] * X[:, 2] - X[:, 3] + noise > 0.3) * 1
    y += (X[:, 4] + X[:, 0] + noise > 1.3) * 1
    return tp.load(kind(30, random_state=0, **options).fit(X, y), self_test=False), X[:4]


@pytest.mark.parametrize(
    ("kind", "options"),
    [(RandomForestClassifier, {}), (ExtraTreesClassifier, {"min_samples_leaf": 3})],
    ids=["votes", "weighted leaves"],
)
def test_evidence_of_forests_is_accepted_and_damaged_one_is_not(kind, options):
    model, rows = forest(kind, **options)
    found = tp.radius(model, rows, evidence=True)
    assert found.exact.all()
    header, *records = json.loads(json.dumps([found.header, *row_records(found)]))
    checker, letters = RunChecker(header, model.ensemble), set()
    for record in records:
        assert checker.check(record).status == "accepted"
        claim, proof = unpacked(record["evidence"])
        letters |= set(proof)
        if b"C" not in proof:
            continue
        wider = claim | {"radius": (1.01 * float.fromhex(claim["radius"])).hex()}
        lies = [(claim, proof[:-1]), (claim, proof + b"K\0\0"), (wider, proof)]
        for said, text in lies:
            lower = float.fromhex(said["radius"])
            lie = record | {"evidence": packed(said, text), "lower": lower}
            assert checker.check(lie).status == "rejected"
    assert letters >= set(b"CKB")
