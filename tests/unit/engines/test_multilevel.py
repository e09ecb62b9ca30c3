"""Bounds against the paper's algorithms as printed, levels, options and limits."""

import dataclasses

import numpy as np
import pytest

import treeproof as tp
from tests.oracle import brute_force, paper_bounds
from tests.strategies import Sizes, random_case
from treeproof.engines.base import Budget
from treeproof.paper.multilevel import MultilevelEngine
from treeproof.results.verdict import UnknownReason, Verdict

SIZES = Sizes(trees=7, depth=3, features=3, rows=1)
OPTIONS = [(2, 1), (2, 2), (3, 1), (3, 2), (4, 1)]


def single_constraint_case(rng, **options):
    while True:
        case = random_case(rng, SIZES, kind="threshold", own_labels=True, **options)
        query = case.query
        ways = query.alternatives.of_group(int(query.group[0]))
        if len(ways) == 1 and not query.already_broken[0]:
            return query, ways[0].start


@pytest.mark.parametrize(("T", "L"), OPTIONS)
def test_sums_and_paths_are_those_of_the_printed_algorithm(T, L):
    rng = np.random.default_rng(10 * T + L)
    decided = {"sum": 0, "path": 0}
    for _ in range(40):
        query, constraint = single_constraint_case(rng, ask="ball")
        parts = paper_bounds.merge_levels(paper_bounds.parts_of(query, 0, constraint), T, L)
        missing = query.alternatives.need[constraint] - paper_bounds.base_gain(query, constraint)
        # Trees that are constant in the box enter the slack as well.
        size = np.abs(query.ensemble.trees.leaf_value).max() * query.ensemble.n_trees
        for name, bound in (
            ("sum", paper_bounds.sum_bound(parts)),
            ("path", paper_bounds.path_bound(parts)),
        ):
            if abs(bound - missing) < 1e-3 + 1e-6 * size:
                continue  # the slack for rounded sums may decide
            outcomes = MultilevelEngine(T=T, L=L, bound=name).verify(query, Budget())
            expected = Verdict.VERIFIED if bound < missing else Verdict.UNKNOWN
            assert outcomes.verdict[0] is expected
            decided[name] += expected is Verdict.VERIFIED
        excess = MultilevelEngine(T=T, L=L).verify(query, Budget()).statistics["excess"][0]
        if excess >= 0.0:
            expected_excess = paper_bounds.sum_bound(parts) - missing
            assert excess == pytest.approx(expected_excess, abs=1e-3 + 1e-6 * size)
    assert min(decided.values()) > 0


def test_paths_prove_what_sums_do_not():
    rng = np.random.default_rng(3)
    gained = 0
    for _ in range(150):
        query, _ = single_constraint_case(rng, ask="ball")
        by_sum = MultilevelEngine(T=2, L=1).verify(query, Budget()).verdict[0]
        by_path = MultilevelEngine(T=2, L=1, bound="path").verify(query, Budget()).verdict[0]
        if by_sum is Verdict.VERIFIED:
            assert by_path is Verdict.VERIFIED
        gained += by_path is not by_sum
    assert gained > 0


@pytest.mark.parametrize("grouping", ["order", "shared"])
@pytest.mark.parametrize("bound", ["sum", "path"])
def test_radii_rise_with_the_level_and_end_at_the_exact_one(bound, grouping):
    rng = np.random.default_rng(5)
    compared = 0
    for _ in range(40):
        query = random_case(rng, SIZES, ask="radius", own_labels=True).query
        before = np.zeros(len(query))
        for L in (1, 2, 3):
            engine = MultilevelEngine(T=2, L=L, bound=bound, grouping=grouping)
            lower = engine.radius(query, Budget()).lower
            assert (lower >= before).all()
            before = lower
        truth = brute_force.radius(query, 0)
        assert before[0] <= truth.value
        table = query.alternatives
        is_pairwise = len(table.need) == len(table.alternative_start) - 1
        if is_pairwise and not table.unit.any() and not table.link_slack.any():
            # Seven trees are one group of 2**3, and sums of this model do not round.
            assert truth.is_same(before[0], attained=truth.attained) or truth.is_same(
                before[0], attained=False
            )
            compared += 1
    assert compared > 5


def test_a_level_that_is_enough_is_reported():
    rng = np.random.default_rng(6)
    levels = set()
    for _ in range(80):
        query, _ = single_constraint_case(rng, ask="ball")
        outcomes = MultilevelEngine(T=2, L=3).verify(query, Budget())
        if outcomes.verdict[0] is Verdict.VERIFIED:
            level = int(outcomes.statistics["level"][0])
            levels.add(level)
            if level > 1:
                lower = MultilevelEngine(T=2, L=level - 1).verify(query, Budget())
                assert lower.verdict[0] is Verdict.UNKNOWN
    assert {0, 1} <= levels


def test_limits_return_the_last_finished_level():
    rng = np.random.default_rng(7)
    stopped = 0
    for _ in range(60):
        query, _ = single_constraint_case(rng, ask="ball")
        limited = MultilevelEngine(T=2, L=3).verify(query, Budget(node_limit=3))
        free = MultilevelEngine(T=2, L=3).verify(query, Budget())
        assert limited.statistics["level"][0] <= 3
        if limited.reason[0] is UnknownReason.NODE_LIMIT:
            stopped += 1
            assert limited.statistics["excess"][0] >= free.statistics["excess"][0] - 1e-9
    assert stopped > 0


def test_a_path_bound_keeps_to_its_memory():
    rng = np.random.default_rng(8)
    reasons = set()
    for _ in range(60):
        query, _ = single_constraint_case(rng, ask="ball")
        tiny = Budget(memory_limit_mb=1e-4)
        reasons.add(MultilevelEngine(T=2, L=1, bound="path").verify(query, tiny).reason[0])
    assert UnknownReason.MEMORY_LIMIT in reasons


@pytest.mark.parametrize("ask", ["ball", "box"])
@pytest.mark.parametrize("grouping", ["order", "shared"])
@pytest.mark.parametrize("bound", ["sum", "path"])
def test_nothing_is_proved_that_a_point_breaks(ask, bound, grouping):
    rng = np.random.default_rng(9)
    proved = 0
    for _ in range(60):
        query = random_case(rng, SIZES, ask=ask).query
        engine = MultilevelEngine(T=2, L=int(rng.integers(1, 4)), bound=bound, grouping=grouping)
        outcomes = engine.verify(query, Budget())
        if outcomes.verdict[0] is Verdict.VERIFIED:
            proved += 1
            assert brute_force.violation(query, 0) is None
    assert proved > 5


def test_many_leaves_need_larger_rooms():
    # More leaves than the first room holds: the answer must not depend on how room is made.
    rng = np.random.default_rng(11)
    X = rng.normal(size=(4000, 3))
    y = (X @ [1.0, -2.0, 0.5] + rng.normal(size=4000) > 0).astype(int)
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(n_estimators=12, random_state=0, n_jobs=1).fit(X, y)
    model = tp.load(forest)
    assert model.ensemble.n_leaves > 5000
    box = tp.Box(np.full(3, -np.inf), np.full(3, np.inf))
    first = tp.verify(model, X[:2], None, box, engine=tp.multilevel(T=2, L=1))
    assert set(first.verdict) == {"unknown"}
    ball = tp.radius(model, X[:4], engine=tp.multilevel(T=2, L=1))
    cliques = tp.radius(model, X[:4], engine=tp.multilevel(T=8, L=1))
    assert (ball.lower <= cliques.lower).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"T": 1}, "'T' of multilevel must be a whole number, at least 2. Got 1"),
        ({"T": 2.5}, "'T' of multilevel must be a whole number"),
        ({"L": 0}, "'L' of multilevel must be a whole number, at least 1. Got 0"),
        ({"bound": "max"}, "'bound' of multilevel must be 'sum' or 'path'"),
        ({"grouping": "random"}, "'grouping' of multilevel must be"),
    ],
)
def test_wrong_options_get_a_sentence(options, sentence):
    with pytest.raises(tp.InvalidInput, match=sentence):
        tp.multilevel(**options)


def test_protocols_start_somewhere():
    assert tp.PaperProtocol() == tp.PaperProtocol(first_eps=0.1, steps=10, cap=1.0)
    for options, sentence in (
        ({"first_eps": 0.0}, "'first_eps'"),
        ({"first_eps": np.nan}, "'first_eps'"),
        ({"first_eps": 0.1, "steps": 0}, "'steps'"),
        ({"first_eps": 0.1, "cap": 0.0}, "'cap'"),
    ):
        with pytest.raises(tp.InvalidInput, match=sentence):
            tp.PaperProtocol(**options)


def test_the_compiled_protocol_is_the_generic_one():
    from treeproof.query.paper_protocol import PaperProtocol
    from treeproof.results.results import Results
    from treeproof.search.radius import RowQuestion, _follow_protocol

    rng = np.random.default_rng(12)
    for _ in range(30):
        query = random_case(rng, SIZES, ask="radius", own_labels=True).query
        engine = MultilevelEngine(T=2, L=1)
        protocol = PaperProtocol(first_eps=0.15, steps=8)
        compiled = engine.protocol_radius(query, Budget(), protocol)
        for row in np.flatnonzero(~query.already_broken):
            generic = Results.empty(len(query), query.rows.shape[1])
            _follow_protocol(RowQuestion(engine, query, int(row), Budget()), protocol, generic, row)
            assert generic.lower[row] == compiled.lower[row]


def test_the_compiled_search_is_the_generic_one():
    from treeproof.results.results import Results
    from treeproof.search.distances import distances_of
    from treeproof.search.radius import RowQuestion, _search_list

    rng = np.random.default_rng(13)
    for _ in range(40):
        query = random_case(rng, SIZES, ask="radius", own_labels=True).query
        engine = MultilevelEngine(T=2, L=1)
        compiled = engine.radius(query, Budget())
        for row in np.flatnonzero(~query.already_broken):
            generic = Results.empty(len(query), query.rows.shape[1])
            question = RowQuestion(engine, query, int(row), Budget())
            _search_list(question, distances_of(query, int(row)), generic, int(row))
            assert generic.lower[row] == compiled.lower[row]


def test_infinite_rows_stay_where_they_are():
    rng = np.random.default_rng(14)
    for _ in range(20):
        query = random_case(rng, SIZES, ask="ball").query
        rows = query.rows.copy()
        rows[:, 0] = rng.choice([np.inf, -np.inf])
        moved = dataclasses.replace(query, rows=rows, already_broken=query.is_broken_by(rows))
        outcomes = MultilevelEngine(T=2, L=3).verify(moved, Budget())
        if outcomes.verdict[0] is Verdict.VERIFIED:
            assert brute_force.violation(moved, 0) is None


def test_a_claim_that_nothing_can_break_is_proved_everywhere():
    X = np.random.default_rng(0).normal(size=(50, 2))
    from sklearn.tree import DecisionTreeRegressor

    tree = tp.load(DecisionTreeRegressor(max_depth=3).fit(X, X[:, 0]))
    anything = tp.ScoreWithin(-np.inf, np.inf)
    found = tp.radius(tree, X[:3], goal=anything, engine=tp.multilevel())
    assert np.isinf(found.lower).all()
    assert set(found.verdict) == {"verified"}
