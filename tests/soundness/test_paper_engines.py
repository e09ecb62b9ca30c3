"""Long random runs of the paper's engines against the oracle; thousands of tie-rich questions."""

import numpy as np
import pytest

from tests.contract import engine_checks
from tests.oracle import brute_force
from tests.strategies import Sizes, random_case
from treeproof.engines.base import Budget
from treeproof.paper.cliques import CliqueEngine
from treeproof.paper.multilevel import MultilevelEngine
from treeproof.paper.single_tree import SingleTreeEngine
from treeproof.results.verdict import Verdict

pytestmark = pytest.mark.slow

N_CASES = 2000


@pytest.mark.parametrize("engine", [CliqueEngine(), SingleTreeEngine()], ids=lambda e: e.name)
@pytest.mark.parametrize("ask", ["ball", "box"])
def test_complete_engines_decide_every_set(engine, ask):
    engine_checks.check_verdicts(engine, np.random.default_rng(101), ask, N_CASES)


@pytest.mark.parametrize("engine", [CliqueEngine(), SingleTreeEngine()], ids=lambda e: e.name)
def test_complete_engines_find_every_radius(engine):
    engine_checks.check_radii(engine, np.random.default_rng(102), N_CASES)


@pytest.mark.parametrize("grouping", ["order", "shared"])
@pytest.mark.parametrize("bound", ["sum", "path"])
def test_levels_are_sound_and_only_rise(bound, grouping):
    rng = np.random.default_rng(103)
    sizes = Sizes(trees=8, depth=3, features=3, rows=1)
    at_the_end = 0
    for _ in range(N_CASES):
        query = random_case(rng, sizes, ask="radius").query
        truth = brute_force.radius(query, 0)
        T = int(rng.integers(2, 5))
        before = 0.0
        for L in range(1, 4):
            engine = MultilevelEngine(T=T, L=L, bound=bound, grouping=grouping)
            lower = engine.radius(query, Budget()).lower[0]
            assert before <= lower <= truth.value
            before = lower
        table = query.alternatives
        is_pairwise = len(table.need) == len(table.alternative_start) - 1
        if is_pairwise and not table.unit.any() and not table.link_slack.any():
            assert truth.is_same(before, attained=truth.attained) or truth.is_same(
                before, attained=False
            )
            at_the_end += 1
    assert at_the_end > N_CASES // 10


@pytest.mark.parametrize("ask", ["ball", "box"])
def test_nothing_is_proved_that_a_point_breaks(ask):
    rng = np.random.default_rng(104)
    sizes = Sizes(trees=8, depth=3, features=3, rows=1)
    proved = 0
    for number in range(N_CASES):
        query = random_case(rng, sizes, ask=ask).query
        engine = MultilevelEngine(
            T=int(rng.integers(2, 4)),
            L=int(rng.integers(1, 4)),
            bound=("sum", "path")[number % 2],
            grouping=("order", "shared")[number // 2 % 2],
        )
        if engine.verify(query, Budget()).verdict[0] is Verdict.VERIFIED:
            proved += 1
            assert brute_force.violation(query, 0) is None
    assert proved > N_CASES // 20
