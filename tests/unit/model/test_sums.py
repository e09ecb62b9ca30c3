"""Sums that are called exact are the same in every order of the trees."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance
from treeproof.model.sums import accumulator_grid


def leaves(values: Any, precision: Any = "float64", start: float = 0.0) -> Ensemble:
    """One tree per value, each a single leaf."""
    builder = TreeBuilder()
    for value in values:
        builder.add_tree(
            feature=[-1], threshold=[0], left=[-1], right=[-1], flags=[0], value=[value], output=0
        )
    return Ensemble(
        trees=builder.finish(),
        n_features=1,
        n_outputs=1,
        input_precision="float64",
        aggregation=Aggregation(precision=precision, start=(start,)),
        decision=Decision(kind="score"),
        provenance=Provenance(library="test"),
    )


def sums(values: Any, precision: str, start: float) -> set[float]:
    real = np.dtype(precision).type
    found = set()
    for order in permutations(values):
        total = real(start)
        for value in order:
            total += real(value)
        found.add(float(total))
    return found


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(150))
def test_exact_sums_do_not_depend_on_the_order(precision: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits = 24 if precision == "float32" else 53
    scale = 2.0 ** rng.integers(-60, 60)
    whole = rng.integers(-(2**bits), 2**bits, 5)
    values = (whole >> rng.integers(0, 6)).astype(np.float64) * scale
    start = float(rng.integers(0, 2)) * scale * float(rng.choice([1.0, 0.5, 2.0 ** (bits - 4)]))
    grid = accumulator_grid(leaves(values, precision, start))
    if grid > 0.0:
        (total,) = sums(values, precision, start)
        assert total % grid == 0.0


def test_both_answers_occur() -> None:
    assert accumulator_grid(leaves([1.0, 0.5, -3.0])) == 0.5
    assert accumulator_grid(leaves([1.0, 0.5, -3.0], "float32")) == 0.5
    assert len(sums([0.1, 0.2, 0.3], "float64", 0.0)) == 2
    assert accumulator_grid(leaves([0.1, 0.2, 0.3])) == 0.0
    assert accumulator_grid(leaves([1.0, 2.0**-24, 2.0**-24], "float32")) == 0.0
    assert accumulator_grid(leaves([1.0, 2.0**-24, 2.0**-24])) == 2.0**-24
