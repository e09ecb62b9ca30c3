"""Rows of targets, from what earlier turns found about them."""

import numpy as np
import pytest

from treeproof.engines.base import Budget
from treeproof.engines.batches import BatchSearch
from treeproof.engines.exact import limits_of
from treeproof.kernels.core.status import PROVED
from treeproof.kernels.exact.row import FirstGuess, solve_targets
from treeproof.model import evaluate
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import Aggregation, Decision, Ensemble, Provenance
from treeproof.query.goals import AvoidsTarget
from treeproof.query.perturbations import LInf
from treeproof.query.query import Query, resolve_query


def two_ways() -> Query:
    """Class 1 is reached by one feature below 0.25, or by two others from 0.75 on, not by one."""
    builder = TreeBuilder()
    leaf = {"feature": 0, "threshold": 0.0, "left": -1, "right": -1, "flags": 0, "value": [0.0]}

    def add(output: int, *nodes: tuple[int, float, int, int] | float) -> None:
        columns: dict[str, list] = {name: [] for name in leaf}
        for node in nodes:
            entry = dict(leaf)
            if isinstance(node, tuple):
                entry |= dict(zip(("feature", "threshold", "left", "right"), node, strict=True))
            else:
                entry["value"] = [node]
            for name, value in entry.items():
                columns[name].append(value)
        builder.add_tree(output=output, **columns)

    add(0, 1.0)
    add(1, (0, 0.25, 1, 2), 2.0, 0.0)
    add(1, (1, 0.75, 1, 4), (2, 0.75, 2, 3), 0.0, -1.0, (2, 0.75, 5, 6), -1.0, 2.0)
    add(2, 0.0)
    ensemble = Ensemble(
        trees=builder.finish(),
        n_features=3,
        n_outputs=3,
        input_precision="float64",
        aggregation=Aggregation(precision="float64", start=(0.0,) * 3),
        decision=Decision(kind="argmax"),
        classes=(0, 1, 2),
        provenance=Provenance(library="test"),
    )
    rows = np.full((1, 3), 0.5)
    sums = evaluate.accumulate(ensemble, evaluate.leaf_rows(ensemble, rows))
    return resolve_query(ensemble, rows, sums, None, LInf(), goal=AvoidsTarget(1))


@pytest.mark.parametrize("turn", ["first", "later"])
def test_a_lower_bound_does_not_say_that_nothing_attains_it(turn):
    # The untargeted radius is such a bound; a first witness below 0.25 only approaches it.
    query = two_ways()
    search = BatchSearch(query, asks_radius=True)
    search.columns.lower[:] = 0.25
    if turn == "later":
        search.columns.upper[:] = 0.25
        search.columns.is_open[:] = True
        search.columns.witness[:] = [np.nextafter(0.25, 0.0), 0.5, 0.5]
    search.run(solve_targets, FirstGuess(0.0, 1.2), limits_of(query, Budget()))
    assert search.columns.status[0] == PROVED
    assert search.columns.lower[0] == search.columns.upper[0] == 0.25
    assert not search.columns.is_open[0]
