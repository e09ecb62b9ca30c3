"""Cliques against a general enumerator, Lemmas 1 and 2, and leaves that are no ranges."""

import itertools

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import brute_force, paper_bounds
from tests.strategies import Sizes, random_case
from treeproof.engines.base import Budget
from treeproof.engines.instance import cells_of
from treeproof.kernels.core.status import FOUND
from treeproof.kernels.paper.cliques import next_clique
from treeproof.kernels.paper.leaves import Limits
from treeproof.model import evaluate
from treeproof.model.builder import TreeBuilder
from treeproof.model.ensemble import (
    ZERO_BAND,
    ZERO_IS_MISSING,
    Aggregation,
    Decision,
    Ensemble,
    Provenance,
)
from treeproof.paper.cliques import CliqueEngine, clique_search
from treeproof.paper.multilevel import MultilevelEngine
from treeproof.query.perturbations import Box
from treeproof.query.query import resolve_query
from treeproof.results.verdict import UnknownReason, Verdict

SIZES = Sizes(trees=4, depth=3, features=3, rows=1)


def all_cliques(query, constraint):
    """Gains of all cliques that the engine's search visits without a floor."""
    low, high = query.reach.box(query.rows, query.reach.radius or 0.0)
    cells = cells_of(query, 0, low[0], high[0])
    restricted, order, path = clique_search(query, 0, range(constraint, constraint + 1), cells)
    order = order._replace(floor=np.full(1, -np.inf), sure=np.full(1, np.inf))
    limits = Limits(np.array([0, 2**60]), np.full(1, np.inf), np.empty(2, dtype=np.int64))
    found = []
    while next_clique(restricted.leaves, order, path, limits) == FOUND:
        found.append(path.total[0, len(order.part_start) - 1])
    return np.sort(found)


@pytest.mark.parametrize("seed", range(40))
def test_cliques_are_those_of_the_explicit_graph(seed):
    case = random_case(np.random.default_rng(seed), SIZES, plain=True, kind="threshold")
    query = case.query
    constraint = int(query.alternatives.alternative_start[query.group[0]])
    parts = paper_bounds.parts_of(query, 0, constraint)
    graph = networkx.Graph()
    for part, nodes in enumerate(parts):
        graph.add_nodes_from((part, number) for number in range(len(nodes)))
    for (i, first), (j, second) in itertools.combinations(enumerate(parts), 2):
        for (a, node), (b, other) in itertools.product(enumerate(first), enumerate(second)):
            if paper_bounds.intersection(node.cells, other.cells) is not None:
                graph.add_edge((i, a), (j, b))
    maximal = [c for c in networkx.find_cliques(graph) if len(c) == len(parts)]
    gains = [sum(parts[part][number].gain for part, number in clique) for clique in maximal]
    constants = sum(nodes[0].gain for nodes in parts if len(nodes) == 1)
    np.testing.assert_allclose(
        all_cliques(query, constraint) + constants, np.sort(gains), rtol=1e-12, atol=1e-9
    )
    # Lemma 2: a tuple of leaves is reached by some point iff it is such a clique.
    points = brute_force._points(
        query, 0, [brute_force._cells_of_box(query, 0, f) for f in range(query.rows.shape[1])]
    )
    reached = {tuple(leaves) for leaves in evaluate.leaf_rows(query.ensemble, points).tolist()}
    expected = {
        tuple(parts[part][number].leaves[0] for part, number in sorted(clique))
        for clique in maximal
    }
    assert reached == expected


ranges = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda pair: tuple(sorted(pair)))
boxes = st.lists(ranges, min_size=3, max_size=3)


@given(st.lists(boxes, min_size=2, max_size=6))
@settings(max_examples=300, deadline=None)
def test_boxes_that_meet_pairwise_share_a_point(many):
    # Lemma 1; "meets" is asked of two boxes at a time, the common point of all at once.
    def meet(group):
        return all(
            max(low for low, _ in axis) <= min(high for _, high in axis)
            for axis in zip(*group, strict=True)
        )

    pairwise = all(meet(pair) for pair in itertools.combinations(many, 2))
    assert pairwise == meet(many)


def zero_as_missing_query(cut):
    """Three trees whose good leaves hold two of three cells: below zero, zero, above zero.

    {below, above}, {below, zero} and {zero, above} meet pairwise but not together.
    """
    builder = TreeBuilder()
    above_zero = float(np.nextafter(ZERO_BAND, np.inf))
    for threshold, flags, left, right in (
        (1e30, ZERO_IS_MISSING, 1.0, -1.0),  # every number goes left but zero
        (above_zero, 0, 1.0, -1.0),
        (-ZERO_BAND, 0, -1.0, 1.0),
    ):
        builder.add_tree(
            feature=[0, 0, 0],
            threshold=[threshold, 0, 0],
            left=[1, -1, -1],
            right=[2, -1, -1],
            flags=[flags, 0, 0],
            value=[0.0, left, right],
            output=0,
        )
    model = Ensemble(
        trees=builder.finish(),
        n_features=1,
        n_outputs=1,
        input_precision="float64",
        aggregation=Aggregation(precision="float64", start=(0.0,)),
        decision=Decision(kind="threshold", cut=cut),
        classes=(0, 1),
        provenance=Provenance(library="test"),
    )
    rows = np.zeros((1, 1))
    sums = evaluate.accumulate(model, evaluate.leaf_rows(model, rows))
    return resolve_query(model, rows, sums, np.zeros(1, dtype=np.int64), Box([-1.0], [1.0]))


def test_sets_of_cells_that_meet_pairwise_need_not_share_a_point():
    query = zero_as_missing_query(cut=2.5)
    parts = paper_bounds.parts_of(query, 0, 0)
    good = [next(node for node in part if node.gain > 0) for part in parts]
    for first, second in itertools.combinations(good, 2):
        assert paper_bounds.intersection(first.cells, second.cells) is not None
    assert brute_force.violation(query, 0) is None
    for engine in (CliqueEngine(), MultilevelEngine(T=3, L=1)):
        assert engine.verify(query, Budget()).verdict[0] is Verdict.VERIFIED


def test_sets_of_cells_do_not_hide_what_two_of_them_reach():
    query = zero_as_missing_query(cut=0.5)
    assert brute_force.violation(query, 0) is not None
    assert CliqueEngine().verify(query, Budget()).verdict[0] is Verdict.FALSIFIED


@pytest.mark.parametrize("seed", range(30))
def test_limits_end_the_search_with_a_reason(seed):
    rng = np.random.default_rng(seed)
    case = random_case(rng, Sizes(trees=4, depth=3, features=3, rows=1), ask="box")
    limited = CliqueEngine().verify(case.query, Budget(node_limit=2))
    free = CliqueEngine().verify(case.query, Budget())
    if limited.verdict[0] is Verdict.UNKNOWN:
        assert limited.reason[0] is UnknownReason.NODE_LIMIT
        assert free.statistics["cliques"][0] >= 2
    else:
        assert limited.verdict[0] is free.verdict[0]
