"""Proofs written by hand, node by node, for models whose bounds are known by hand."""

import struct
from typing import Any

import numpy as np
import pytest

import treeproof
from tests.unit.checker.test_answers import changed, reason, run
from treeproof.checker.forest import Forest
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance
from treeproof.model.sums import proof_exponent


def square(first: int, second: int, values: list[float]) -> dict[str, Any]:
    """A tree on two features, both cut at 0.5; values in the order of their cells."""
    return {
        "feature": [first, second, -1, -1, second, -1, -1],
        "threshold": [0.5, 0.5, 0.0, 0.0, 0.5, 0.0, 0.0],
        "left": [1, 2, -1, -1, 5, -1, -1],
        "right": [4, 3, -1, -1, 6, -1, -1],
        "value": np.array([[v] for v in [0.0, 0.0, *values[:2], 0.0, *values[2:]]]),
    }


def stump(feature: int, left: float, right: float) -> dict[str, Any]:
    return {
        "feature": [feature, -1, -1],
        "threshold": [0.5, 0.0, 0.0],
        "left": [1, -1, -1],
        "right": [2, -1, -1],
        "value": np.array([[0.0], [left], [right]]),
    }


def model(*trees: dict[str, Any], precision: Any = "float64") -> Ensemble:
    builder = TreeBuilder(leaf_width=1)
    for tree in trees:
        n = len(tree["feature"])
        builder.add_tree(**tree, flags=[0] * n, output=0, category_set=[-1] * n)
    return Ensemble(
        trees=builder.finish(),
        n_features=4,
        n_outputs=1,
        input_precision="float64",
        aggregation=Aggregation(precision=precision, start=(0.0,)),
        decision=Decision(kind="score"),
        provenance=Provenance(library="test"),
    )


APART = model(
    square(0, 1, [0.0, 1.0, 1.0, 0.0]), square(0, 1, [1.0, 0.0, 0.0, 1.0]), stump(2, -5.0, 0.0)
)
"""The squares add up to 1 everywhere, but only branching shows it; feature 2 low takes 5 off."""

PRICED = model(square(0, 1, [0.0, 0.0, 1.0, 1.0]), square(0, 1, [1.0, 1.0, 0.0, 0.0]))
"""Both trees depend on feature 0 alone, though they test both; a price on it shows that."""


def claim(ensemble: Ensemble, high: float, **box: float) -> Any:
    """Header and record of the claim that the score stays at or below a number in [0, 1]."""
    goal = treeproof.ScoreWithin(-np.inf, high)
    sides = treeproof.Box(box.get("low", 0.0), box.get("high", 1.0))
    header, (record,) = run("verify", sides, ensemble=ensemble, X=np.zeros((1, 4)), goal=goal)
    assert record["verdict"] == "verified"
    assert reason(header, record, ensemble) == ""
    return header, record


def outcome(ensemble: Ensemble, high: float, proof: bytes) -> str:
    header, record = claim(ensemble, high)
    return reason(header, changed(record, proof=proof), ensemble)


def priced(ensemble: Ensemble, steps: list[int], exponent: int = 0, size: int = 1) -> bytes:
    del ensemble
    form = {1: "b", 2: "h", 4: "i"}.get(size, "b")
    return struct.pack(f"<hB{len(steps)}{form}", exponent, size, *steps)


def split(feature: int, cut: int) -> bytes:
    return b"S" + struct.pack("<ii", feature, cut)


def trim(*left: tuple[int, int, int], prices: bytes = b"") -> bytes:
    prices = prices or priced(APART, [0, 0, 0, 0])
    return b"T" + prices + struct.pack("<I", len(left)) + b"".join(
        struct.pack("<iii", *item) for item in left
    )  # fmt: skip


ONE = b"L" + priced(APART, [-1, 1])
"""In half of the box, only the segments of the other feature have multipliers."""
BRANCHED = split(0, 0) + ONE + b"L" + priced(APART, [1, -1])
ACROSS = split(1, 0) + ONE + b"L" + priced(APART, [1, -1])
UNIT = proof_exponent(APART)


@pytest.mark.parametrize(
    ("high", "proof", "expected"),
    [
        (1.25, trim((2, 1, 1)) + BRANCHED, ""),
        (1.25, trim((2, 1, 1)) + ACROSS, ""),
        (1.25, BRANCHED, ""),
        (1.25, b"P", "rise, byte 0: bound"),
        (1.25, b"L" + priced(APART, [0, 0, 0, 0]), "rise, byte 0: bound"),
        (1.25, split(0, 0) + ONE, "byte 15: the proof is cut off"),
        (1.25, split(0, 0) + ONE + ONE, "rise, byte 15: bound"),
        (1.25, BRANCHED + b"P", "byte 21: the proof goes on"),
        (1.25, split(2, 0) + BRANCHED + b"P", "rise, byte 30: bound"),
        (1.25, split(2, 0) + b"P" + b"P", "rise, byte 10: bound"),
        (1.25, split(2, 0) + b"P" + BRANCHED, ""),
        (1.25, split(0, 1) + b"PP", "rise, byte 0: cut 1 is not inside feature 0"),
        (1.25, split(0, -1) + b"PP", "rise, byte 0: cut -1 is not inside feature 0"),
        (1.25, split(3, 0) + b"PP", "rise, byte 0: cut 0 is not inside feature 3"),
        (1.25, split(0, 0) + split(0, 0) + b"PPP", "rise, byte 9: cut 0 is not inside feature 0"),
        (1.25, split(0, 0) + ONE + split(0, 0) + b"PP", "rise, byte 15: cut 0 is not inside"),
        # Cells that the bound does not exclude must stay.
        (1.25, trim((2, 0, 0)) + BRANCHED, "rise, byte 0: feature 2,"),
        (1.25, trim((0, 0, 0)) + b"P", "rise, byte 0: feature 0,"),
        (1.25, trim((0, 1, 1)) + b"P", "rise, byte 0: feature 0,"),
        (1.25, trim((2, 1, 0)), "rise, byte 0: feature 2,"),
        (1.25, trim((2, 2, 1)), "rise, byte 0: feature 2,"),
        (1.25, trim((2, 0, -1)), "rise, byte 0: feature 2,"),
        (1.25, trim((2, 1, 1), (0, 0, 0)) + BRANCHED, "rise, byte 0: feature 0,"),
        # Every node makes the box smaller, so that there is an end.
        (1.25, trim((2, 0, 1)) + BRANCHED, "rise, byte 0: feature 2 does not shrink"),
        (1.25, trim() + BRANCHED, "rise, byte 0: nothing is trimmed"),
        (1.25, trim((2, 1, 1), (0, 0, 1)) + BRANCHED, "rise, byte 0: feature 0 does not shrink"),
        (1.25, trim((2, 1, 1), (2, 1, 1)) + BRANCHED, "rise, byte 0: feature 2 does not shrink"),
        (1.25, trim((2, 1, 1)) + trim((2, 1, 1)), "rise, byte 24: feature 2 does not shrink"),
        (1.25, trim((2, 1, 2)) + BRANCHED, "rise, byte 0: feature 2 does not shrink"),
        (1.25, trim((2, -1, 1)) + BRANCHED, "rise, byte 0: feature 2 does not shrink"),
        (1.25, trim((2, 2, 0)) + BRANCHED, "rise, byte 0: feature 2 does not shrink"),
        (1.25, trim((3, 0, 0)) + BRANCHED, "rise, byte 0: feature 3 does not move"),
        (1.25, trim((2, 1, 1)), "byte 24: the proof is cut off"),
        # Where every cell is excluded, nothing is left to prove.
        (2.5, trim((2, 1, 0)), ""),
        (2.5, trim((2, 0, -1)), ""),
        (2.5, trim((2, 2, 1)), ""),
        (2.5, trim((0, 1, 0), (2, 1, 1)), ""),
        (2.5, trim((2, 1, 0)) + b"P", "byte 24: the proof goes on"),
        # The tables of multipliers: their number, their size, their unit.
        (2.5, b"L" + priced(APART, [0, 0, 0, 0]), ""),
        (2.5, b"L" + priced(APART, [0, 0, 0, 0], size=2), ""),
        (2.5, b"L" + priced(APART, [0, 0, 0, 0], size=4), ""),
        (2.5, b"L" + priced(APART, [0, 0, 0, 0], size=3), "byte 4: no such multipliers"),
        (2.5, b"L" + priced(APART, [0, 0, 0]), "byte 4: the proof is cut off"),
        (2.5, b"L" + priced(APART, [0, 0, 0, 0, 0]), "byte 8: the proof goes on"),
        (2.5, b"L" + priced(APART, [0] * 4, exponent=UNIT), ""),
        (2.5, b"L" + priced(APART, [0] * 4, exponent=UNIT - 1), "byte 4: multipliers finer"),
        (2.5, b"L" + priced(APART, [0] * 4, exponent=2047), ""),
        (2.5, b"L" + priced(APART, [0] * 4, exponent=2048), "byte 4: no such multipliers"),
        (2.5, b"L" + priced(APART, [1, 0, 0, 0]), "rise, byte 0: bound"),
        (3.5, b"L" + priced(APART, [1, 0, 0, 0]), ""),
        # One leaf per tree, added as the model adds.
        (1.25, b"E", "rise, byte 0: tree 0 has 4 leaves here"),
        (1.25, trim((2, 1, 1)) + split(0, 0) + (split(1, 0) + b"EE") * 2, ""),
        (1.25, b"", "byte 0: the proof is cut off"),
        (1.25, b"p", "rise, byte 0: unknown node 'p'"),
        # What is said of costs, of pairs and of several conditions says nothing of a box.
        (1.25, b"D", "rise, byte 0: a point is within the limit"),
        (1.25, b"N", "rise, byte 0: what no tree gains says nothing"),
        (1.25, b"A" + struct.pack("<Ih", 1, 0) + BRANCHED, "rise, byte 0: there are no costs"),
        (1.25, b"W\1" + BRANCHED, "rise, byte 0: weights of one condition"),
        (1.25, b"C" + bytes(23), "rise, byte 0: no such unit"),
    ],
)
def test_nodes(high, proof, expected):
    found = outcome(APART, high, proof)
    assert found.startswith(expected) if expected else found == ""


@pytest.mark.parametrize(
    ("steps", "size", "exponent", "holds"),
    [
        ([-1, 0, 1, 0], 1, 0, True),
        ([-2, 0, 2, 0], 2, -1, True),
        ([-4, 0, 4, 0], 4, -2, True),
        ([1, 0, -1, 0], 1, 0, False),
        ([0, -1, 0, 1], 1, 0, False),
        ([-1, 0, 0, 0], 1, 0, False),
        ([0, 0, 1, 0], 1, 0, False),
        ([0, 0, 0, 0], 1, 0, False),
        ([-1, 1, 1, -1], 1, 0, False),
    ],
)
def test_prices(steps, size, exponent, holds):
    # With the price of 1 on feature 0 the bound is 1, without it 2.
    found = outcome(PRICED, 1.25, b"L" + priced(PRICED, steps, exponent, size))
    assert (found == "") == holds
    assert holds or "bound" in found


def test_excluded_cells_are_priced_too():
    # Feature 2 low takes 5 off, so its cell 0 goes; with a price that costs 4 it must stay.
    ensemble = model(*_trees(), stump(2, -5.0, 0.0))
    header, record = claim(ensemble, 1.25)
    exact = priced(ensemble, [-1, 0, 1, 0])
    closed = trim((2, 1, 0), prices=exact)
    assert reason(header, changed(record, proof=closed), ensemble) == ""
    assert "feature 2," in reason(
        header, changed(record, proof=trim((2, 1, 0), prices=priced(ensemble, [0] * 4))), ensemble
    )
    low = trim((2, 1, 1), prices=priced(ensemble, [4, 0, 0, 0])) + b"L" + exact
    assert reason(header, changed(record, proof=low), ensemble) == ""
    worse = trim((2, 1, 1), prices=priced(ensemble, [6, 0, 0, 0])) + b"L" + exact
    assert "feature 2," in reason(header, changed(record, proof=worse), ensemble)


def _trees() -> list[dict[str, Any]]:
    return [square(0, 1, [0.0, 0.0, 1.0, 1.0]), square(0, 1, [1.0, 1.0, 0.0, 0.0])]


def test_a_cell_is_held_in_all_trees_that_test_it():
    # Held to cell 0 of feature 0, one tree gives 1 and the other 0; to cell 1 the other way round.
    header, record = claim(PRICED, 1.25)
    free = priced(PRICED, [0, 0, 0, 0])
    assert reason(header, changed(record, proof=trim((0, 1, 0), prices=free)), PRICED) == ""
    assert reason(header, changed(record, proof=trim((0, 0, 0), prices=free) + b"P"), PRICED) == ""
    assert "feature 1," in reason(
        header, changed(record, proof=trim((1, 0, 0), prices=free) + b"P"), PRICED
    )


STEPS = model(
    {
        "feature": [0, -1, 0, -1, -1],
        "threshold": [0.25, 0.0, 0.5, 0.0, 0.0],
        "left": [1, -1, 3, -1, -1],
        "right": [2, -1, 4, -1, -1],
        "value": np.array([[0.0], [0.0], [0.0], [5.0], [0.0]]),
    }
)
"""Three cells; only the one in the middle has a large score."""


@pytest.mark.parametrize(
    "proof",
    [
        split(0, 0) + b"PP",
        split(0, 1) + b"PP",
        split(0, 0) + b"P" + split(0, 1) + b"PP",
        split(0, 1) + split(0, 0) + b"PPP",
        *[trim((0, low, low), prices=priced(APART, [])) + b"P" for low in (0, 1, 2)],
        *[trim((0, low, 1), prices=priced(APART, [])) + b"P" for low in (0, 1, 2)],
    ],
)
def test_no_cell_is_skipped(proof):
    goal = treeproof.ScoreWithin(-np.inf, 1.0)
    rows = np.zeros((1, 4))
    header, (record,) = run("verify", treeproof.Box(0.0, 1.0), ensemble=STEPS, X=rows, goal=goal)
    assert record["verdict"] == "falsified"
    false = changed(
        record, verdict="verified", set="box", radius="inf", attained=False, witness=None,
        witness_distance=None, cost=None, witness_probability=None,
    )  # fmt: skip
    found = reason(header, changed(false, proof=proof), STEPS)
    assert "bound" in found or "feature 0," in found
    assert outcome(STEPS, 6.0, split(0, 0) + b"P" + split(0, 1) + b"PP") == ""


@pytest.mark.parametrize(("precision", "size"), [("float32", 2.0**126), ("float64", 5e307)])
def test_sums_that_may_overflow_are_not_bounded(precision, size):
    small = model(
        stump(3, 1.0, 0.0), *[stump(k, size / 8, 0.0) for k in range(3)], precision=precision
    )
    header, record = claim(
        small, float(np.float32(0.9 * size)) if "32" in precision else 0.9 * size
    )
    large = model(stump(3, 1.0, 0.0), *[stump(k, size, 0.0) for k in range(3)], precision=precision)
    forged = dict(header)
    forged["model"] = header["model"] | {"fingerprint": large.fingerprint}
    found = reason(forged, changed(record, model=large.fingerprint), large)
    assert found == "rise: sums overflow"


def test_floors_stand_on_the_grid_where_sums_are_exact():
    # Sums are multiples of 1: above 1.25 means at least 2, and 1.75 is below that.
    ensemble = model(stump(0, 0.0, 1.0))
    header, record = claim(ensemble, 1.25)
    assert Forest(ensemble).grid * Forest(ensemble).unit == 1
    assert reason(header, changed(record, proof=b"P"), ensemble) == ""


def test_rounded_sums_lower_the_floor():
    # In float32 1 and 2**-24 make 1; the real sum lies above 1, the rounded one does not.
    ensemble = model(stump(0, 0.0, 1.0), stump(1, 0.0, 2.0**-24), precision="float32")
    header, record = claim(ensemble, 1.0)
    assert "bound" in reason(header, changed(record, proof=b"P"), ensemble)
    cells = split(0, 0) + b"P" + split(1, 0) + b"EE"
    assert reason(header, changed(record, proof=cells), ensemble) == ""
    broken = split(0, 0) + b"P" + split(1, 0) + b"EP"
    assert "bound" in reason(header, changed(record, proof=broken), ensemble)


def test_sums_of_the_model_decide_what_rounding_leaves_open():
    ensemble = model(stump(0, 0.0, 1.0), stump(1, 0.0, 2.0**-22), precision="float32")
    goal = treeproof.ScoreWithin(-np.inf, 1.0)
    sides = treeproof.Box(0.0, 1.0)
    header, (record,) = run("verify", sides, ensemble=ensemble, X=np.zeros((1, 4)), goal=goal)
    assert record["verdict"] == "falsified"
    false = changed(
        record, verdict="verified", set="box", radius="inf", attained=False, witness=None,
        witness_distance=None, cost=None, witness_probability=None, shown={},
    )  # fmt: skip
    false = changed(false, proof=split(0, 0) + b"P" + split(1, 0) + b"EE")
    assert "the model's own sums break it" in reason(header, false, ensemble)
