"""Cliques with classes across trees: against enumeration, in fractions, and on real forests."""

import itertools
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

import treeproof as tp
from tests.contract import engine_checks
from tests.kernels import called
from tests.oracle import brute_force
from tests.soundness.test_exact import check_grid
from tests.strategies import SMALL, Sizes, random_case
from tests.unit.engines.test_exact import model_of, stump
from treeproof.engines import exact
from treeproof.engines.base import Budget
from treeproof.kernels.core.cells import CellBox
from treeproof.kernels.core.leaves import Leaves
from treeproof.kernels.exact.forest_cliques import cover
from treeproof.kernels.exact.piece_graph import (
    MISSING,
    Graph,
    enter_frame,
    fill_mask,
    join_pieces,
    new_state,
    weigh,
)
from treeproof.kernels.exact.row import Limits
from treeproof.model.builder import TreeBuilder
from treeproof.results.verdict import UnknownReason, Verdict

weigh, new_state, join_pieces = map(called, (weigh, new_state, join_pieces))
cover, enter_frame, fill_mask = map(called, (cover, enter_frame, fill_mask))

BOX = CellBox(np.zeros(3, dtype=np.int32), np.full(3, 5, dtype=np.int32))
LARGER = Sizes(trees=8, depth=3, features=3, outputs=3, rows=2)


def use_cliques_alone(monkeypatch):
    monkeypatch.setattr(exact, "PATIENCE", 0)
    monkeypatch.setattr(exact, "CLIQUE_PATIENCE", 2**40)


@pytest.fixture
def cliques(monkeypatch):
    """The exact engine with every row answered by cliques alone."""
    use_cliques_alone(monkeypatch)
    return exact.ExactEngine()


# The questions of a row, against enumeration


def cases(ask, sizes, count):
    for seed in range(count):
        yield random_case(np.random.default_rng([seed, len(ask), sizes.trees]), sizes, ask=ask)


@pytest.mark.parametrize("sizes", [Sizes(), LARGER], ids=["small", "larger"])
def test_radii_are_those_of_enumeration(cliques, sizes):
    n_exact = 0
    for case in cases("radius", sizes, 60):
        query = case.query
        outcomes = cliques.radius(query, Budget(time_limit_s=60.0))
        for row in range(len(query)):
            truth = brute_force.radius(query, row)
            assert outcomes.lower[row] <= truth.value
            if outcomes.exact[row]:
                n_exact += 1
                attained = bool(outcomes.attained[row])
                assert truth.is_same(outcomes.upper[row], attained=attained)
            else:
                assert brute_force.has_near_tie(query, row)
    assert n_exact >= 75


def test_a_witness_beyond_the_last_ball_bounds_the_radius(cliques):
    # Cells of numbers around 1e18 hold more than the ball: the witness is farther than the radius
    # at which everything is searched.
    case = random_case(np.random.default_rng([0, 1985]), SMALL, ask="radius")
    outcomes = cliques.radius(case.query, Budget(time_limit_s=60.0))
    for row in range(len(case.query)):
        engine_checks.check_radius(cliques, case.query, row, outcomes)


@pytest.mark.usefixtures("cliques")
def test_distances_that_tie_are_those_of_enumeration():
    # Of the last one only a softmax's rounding could judge a point as far as the witness, which
    # leaves no doubt about the radius.
    for number in [*range(100), 306]:
        check_grid(np.random.default_rng([77, number]))


@pytest.mark.parametrize("ask", ["ball", "box"])
@pytest.mark.parametrize("sizes", [Sizes(), LARGER], ids=["small", "larger"])
def test_verdicts_are_those_of_enumeration(cliques, ask, sizes):
    seen = set()
    for case in cases(ask, sizes, 60):
        query = case.query
        outcomes = cliques.verify(query, Budget(time_limit_s=60.0))
        for row in range(len(query)):
            if outcomes.verdict[row] == Verdict.UNKNOWN:
                assert brute_force.has_near_tie(query, row)
                continue
            is_broken = brute_force.violation(query, row) is not None
            assert outcomes.verdict[row] == (Verdict.FALSIFIED if is_broken else Verdict.VERIFIED)
            seen.add(is_broken)
    assert seen == {False, True}


@pytest.mark.parametrize("n_nodes", [1, 2, 5, 20])
def test_both_bounds_hold_when_a_limit_ends_the_search(cliques, n_nodes):
    n_open = 0
    for case in cases("radius", LARGER, 40):
        query = case.query
        outcomes = cliques.radius(query, Budget(time_limit_s=60.0, node_limit=n_nodes))
        for row in range(len(query)):
            truth = brute_force.radius(query, row).value
            assert outcomes.lower[row] <= truth <= outcomes.upper[row]
            n_open += not outcomes.exact[row]
    assert n_open > 0 or n_nodes > 5


@pytest.mark.parametrize("ask", ["radius", "ball", "box"])
def test_turns_of_few_nodes_lead_to_the_same_answers(monkeypatch, ask):
    engine, n_nodes = exact.ExactEngine(), 0
    monkeypatch.setattr(exact, "MORE_PATIENCE", 1)
    for case in cases(ask, LARGER, 40):
        answer = engine.radius if ask == "radius" else engine.verify
        whole = answer(case.query, Budget(time_limit_s=60.0))
        with monkeypatch.context() as change:
            change.setattr(exact, "PATIENCE", 1)
            change.setattr(exact, "FOREST_PATIENCE", 3)
            change.setattr(exact, "TARGET_PATIENCE", 1)
            change.setattr(exact, "CLIQUE_PATIENCE", 1)
            found = answer(case.query, Budget(time_limit_s=60.0, node_limit=500))
        done = found.reason != UnknownReason.NODE_LIMIT
        for name in ("verdict", "exact", "attained"):
            assert np.array_equal(getattr(found, name)[done], getattr(whole, name)[done])
        if ask == "radius":
            assert np.array_equal(found.upper[done & whole.exact], whole.upper[done & whole.exact])
            assert np.all(found.lower <= whole.upper)
        n_nodes += found.statistics["nodes"].max()
    assert n_nodes > 20


@pytest.mark.usefixtures("cliques")
def test_what_is_attained_is_nearer_than_what_is_approached():
    """Down by 0.25 and just past it, or up by exactly 0.25, in any order of features and trees."""
    for down in (0, 1):
        for order in itertools.permutations((down, 1 - down)):
            builder = TreeBuilder()
            for feature in order:
                leaves = (1.0, 0.0) if feature == down else (0.0, 1.0)
                stump(builder, feature, 0.25 if feature == down else 0.75, *leaves)
            model = model_of(builder, 2, cut=0.5)
            found = tp.radius(model, np.full((1, 2), 0.5))
            assert found.upper[0] == found.lower[0] == 0.25
            assert found.attained[0]


# Forests, against the dual search


@cache
def forest(kind, **options):
    rng = np.random.default_rng(3)
    X = rng.random((1500, 6)).astype(np.float32)
    noise = rng.normal(scale=0.2, size=1500)
    y = (np.sin(6.0 * X[:, 0]) + X[:, 1] * X[:, 2] - X[:, 3] + noise > 0.3) * 1
    y += (X[:, 4] + X[:, 0] + noise > 1.3) * 1
    model = tp.load(kind(30, random_state=0, **options).fit(X, y), self_test=False)
    return model, rng.random((4, 6)).astype(np.float32)


def dual_alone(query, budget):
    return Limits(budget.time_limit_s, budget.node_limit, 2.0**32, 2**60)


FORESTS = {
    "votes": (RandomForestClassifier, {}),
    "random splits": (ExtraTreesClassifier, {}),
    "weighted leaves": (RandomForestClassifier, {"min_samples_leaf": 4}),
}


@pytest.mark.parametrize("name", FORESTS)
def test_forests_have_the_radii_that_the_dual_search_finds(name, monkeypatch):
    kind, options = FORESTS[name]
    model, rows = forest(kind, **options)
    monkeypatch.setattr(exact, "limits_of", dual_alone)
    expected = tp.radius(model, rows)
    monkeypatch.undo()
    use_cliques_alone(monkeypatch)
    found = tp.radius(model, rows)
    assert expected.exact.all()
    assert found.exact.all()
    assert np.array_equal(found.upper, expected.upper)
    assert np.array_equal(found.attained, expected.attained)
    again = tp.radius(model, rows, n_jobs=2)
    assert np.array_equal(again.statistics["nodes"], found.statistics["nodes"])
    monkeypatch.setattr(exact, "CLIQUE_PATIENCE", 10)
    for worth_staying in (exact.WORTH_STAYING, np.inf):
        monkeypatch.setattr(exact, "WORTH_STAYING", worth_staying)
        in_turns = tp.radius(model, rows)
        assert in_turns.exact.all()
        assert np.array_equal(in_turns.upper, expected.upper)
        assert np.any(in_turns.statistics["sweeps"] > 0) == (worth_staying == np.inf)


@pytest.mark.parametrize("name", FORESTS)
def test_a_turn_that_ends_without_a_witness_climbs_to_one(name):
    kind, options = FORESTS[name]
    model, rows = forest(kind, **options)
    exactly = tp.radius(model, rows)
    soon = tp.radius(model, rows, node_limit=1)
    assert not soon.exact.any()
    assert np.isfinite(soon.upper).all()
    assert np.all(soon.upper >= exactly.upper)
    assert np.all(model.predict(soon.witness) != model.predict(rows))
    eps = float(2.0 * soon.upper.max())
    in_box = tp.verify(model, rows, perturbation=tp.LInf(eps), node_limit=1)
    assert np.all(in_box.verdict == Verdict.FALSIFIED)


def test_bounds_of_a_forest_close_in_as_nodes_are_allowed(monkeypatch):
    model, rows = forest(ExtraTreesClassifier)
    use_cliques_alone(monkeypatch)
    done = tp.radius(model, rows)
    lower = np.zeros(len(rows))
    for n_nodes in (10, 100, 1000):
        found = tp.radius(model, rows, node_limit=n_nodes)
        assert np.all(found.lower <= done.upper)
        assert np.all(found.upper >= done.upper)
        assert np.all(found.lower >= lower)
        lower = found.lower
    assert np.all(lower > 0.0)


# The parts that a proof rests on


def random_leaves(rng, gains):
    """Leaves of a few trees over three features of six cells: each tree cuts one after another."""
    n_trees = int(rng.integers(1, 6))
    start, gain, range_start, feature, low, high = [0], [], [0], [], [], []
    for _ in range(n_trees):
        boxes = [[(0, 5)] * 3]
        for _ in range(int(rng.integers(0, 4))):
            box = boxes.pop(int(rng.integers(len(boxes))))
            axis = int(rng.integers(3))
            first, last = box[axis]
            if first == last:
                boxes.append(box)
                continue
            cut = int(rng.integers(first, last))
            parts = ((first, cut), (cut + 1, last))
            boxes += [[*box[:axis], part, *box[axis + 1 :]] for part in parts]
        for box in boxes:
            gain.append(float(rng.choice(gains)))
            for axis, (first, last) in enumerate(box):
                if (first, last) != (0, 5):
                    feature.append(axis)
                    low.append(first)
                    high.append(last)
            range_start.append(len(feature))
        start.append(len(gain))
    return Leaves(
        np.array(start),
        np.array(gain),
        np.arange(len(gain), dtype=np.int32),
        np.array(range_start),
        *(np.array(column, dtype=np.int32) for column in (feature, low, high)),
    )


GAINS = [(-1.0, 1.0), (0.1, 0.2, 0.3, -0.7), (1e7, -1e7, 1e-9, 1.0), (0.0,), (1e-300, -3e-300)]


@pytest.mark.parametrize("gains", GAINS)
def test_weights_lose_no_violation(gains):
    rng = np.random.default_rng(7)
    n_reached = 0
    for _ in range(40):
        leaves = random_leaves(rng, gains)
        base = float(rng.choice([0.0, 0.3, -1.7]))
        floor = float(rng.choice([0.0, 0.1, 1.0, 2.3, 1e-9]))
        weight, required, _, _ = weigh(leaves, base, floor)
        trees = [range(*pair) for pair in itertools.pairwise(leaves.leaf_start)]
        for leaf_tuple in itertools.product(*trees):
            value = Fraction(base) + sum(Fraction(leaves.leaf_gain[k]) for k in leaf_tuple)
            if value >= Fraction(floor):
                n_reached += 1
                assert sum(int(weight[leaf]) for leaf in leaf_tuple) >= required
    assert n_reached > 0


def test_votes_need_whole_votes():
    """Weights of 1, and what is missing is rounded up to a vote."""
    start = np.arange(0, 9, 2)
    gain = np.tile([-1.0, 1.0], 4)
    nothing = np.zeros(0, dtype=np.int32)
    leaf_row = np.arange(8, dtype=np.int32)
    leaves = Leaves(start, gain, leaf_row, np.zeros(9, dtype=np.int64), nothing, nothing, nothing)
    weight, required, _, _ = weigh(leaves, 0.0, 1e-9)
    assert weight.tolist() == [0, 1] * 4
    assert required == 3


def graph_of(leaves, weight, n):
    """Every leaf as a piece, in an order of its own."""
    return Graph(
        leaves,
        BOX,
        weight,
        np.int64(1),
        np.int64(1),
        np.int64(0),
        np.int64(1),
        np.int64(len(leaves.leaf_start)),
        np.arange(n, dtype=np.int32),
        np.arange(n, dtype=np.float64),
        np.zeros(n, dtype=np.bool_),
        weight,
    )


def neighbours_of(state, frame, vertex):
    start, size, width = state.frames[frame, :3]
    row = state.words[start + vertex * width : start + (vertex + 1) * width]
    return {u for u in range(size) if int(row[u // 64]) >> (u % 64) & 1}


def boxes_of(leaves, leaf):
    box = [(0, 5)] * 3
    for entry in range(leaves.range_start[leaf], leaves.range_start[leaf + 1]):
        box[leaves.feature[entry]] = (leaves.low[entry], leaves.high[entry])
    return box


@pytest.mark.parametrize("seed", range(12))
def test_neighbours_are_the_pieces_that_meet(seed):
    rng = np.random.default_rng([seed, 1])
    leaves = random_leaves(rng, (0.0, 1.0))
    n = len(leaves.leaf_gain)
    graph = graph_of(leaves, rng.integers(1, 4, n), n)
    state = new_state(graph)
    join_pieces(graph, state)
    for one, other in itertools.permutations(range(n), 2):
        meet = all(
            low <= last and first <= high
            for (low, high), (first, last) in zip(
                boxes_of(leaves, one), boxes_of(leaves, other), strict=True
            )
        )
        assert (other in neighbours_of(state, 0, one)) == meet
    # A frame is the same graph under other numbers.
    fill_mask(state.alive[0], n)
    assert enter_frame(state, state.alive[0], np.int64(0))
    piece = state.labels[0, n : 2 * n].tolist()
    assert sorted(piece) == list(range(n))
    for vertex in range(n):
        renamed = {piece[u] for u in neighbours_of(state, 1, vertex)}
        assert renamed == neighbours_of(state, 0, piece[vertex])


@pytest.mark.parametrize("seed", range(25))
def test_every_clique_that_weighs_enough_has_an_uncovered_piece(seed):
    rng = np.random.default_rng([seed, 2])
    leaves = random_leaves(rng, (0.0, 1.0))
    n = len(leaves.leaf_gain)
    weight = rng.integers(1, 5, n)
    graph = graph_of(leaves, weight, n)
    state = new_state(graph)
    join_pieces(graph, state)
    near = [neighbours_of(state, 0, vertex) for vertex in range(n)]
    fill_mask(state.alive[0], n)
    cliques = [
        clique
        for size in range(1, len(leaves.leaf_start))
        for clique in itertools.combinations(range(n), size)
        if all(v in near[u] for u, v in itertools.combinations(clique, 2))
    ]
    heaviest = max(weight[list(clique)].sum() for clique in cliques)
    for missing in range(1, int(heaviest) + 4):
        state.levels[0, MISSING] = missing
        cover(state, state.frames[0], state.alive[0], missing, state.branch[0])
        left = {v for v in range(n) if int(state.branch[0, v // 64]) >> (v % 64) & 1}
        for clique in cliques:
            assert weight[list(clique)].sum() < missing or left & set(clique)
