"""Costs and domains against enumeration, by HiGHS, and by the exact search many times."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import treeproof as tp
from tests.oracle.priced_answers import WithinRules, compare
from treeproof.checker.runs import RunChecker
from treeproof.comparisons.milp import MilpEngine
from treeproof.results.run_file import row_records


@pytest.mark.parametrize("block", range(6))
def test_milp_agrees_with_enumeration(block: int) -> None:
    compared = sum(compare(seed, MilpEngine()) for seed in range(5 * block, 5 * block + 5))
    assert compared > 5


@pytest.mark.parametrize("block", range(12))
def test_rules_agree_with_enumeration(block: int) -> None:
    seeds = range(10 * block, 10 * block + 10)
    compared = sum(compare(seed, WithinRules(), with_rules=True) for seed in seeds)
    assert compared > 10


@pytest.mark.parametrize("rules", [(), "x[0] + x[1] <= 3"])
@pytest.mark.parametrize("engine", ["exact", "milp"])
def test_a_box_need_not_hold_a_row_that_breaks_its_domain(engine: str, rules: str) -> None:
    """In a box nothing is privileged: a group that is no choice must become one, as numbers do."""
    X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    model = tp.load(DecisionTreeClassifier(random_state=0).fit(X, [0, 0, 0, 1]))
    domains = {"group": {"one_hot": [[0, 1]]}, "numbers": {"values": {0: [0.0], 1: [0.0]}}}
    for parts in domains.values():
        domain = tp.Domain(**parts, rules=rules, allow_broken_rows=True)
        # The row's own answer is 1; every row of the domain has the answer 0.
        for label, verdict in ((0, "verified"), (1, "falsified")):
            found = tp.verify(
                model,
                [[1.0, 1.0]],
                [label],
                tp.Box(-5.0, 5.0, domain),
                engine=engine,
                evidence=engine == "exact",
            )
            assert found.verdict.tolist() == [verdict]
            if engine == "exact":
                (record,) = row_records(found)
                assert RunChecker(found.header, model.ensemble).check(record).status == "accepted"
    # In a ball a row may stay as it is.
    found = tp.radius(model, [[1.0, 1.0]], [0], tp.L1(domain=domain), engine=engine)
    assert found.upper.tolist() == [0.0]


@pytest.mark.slow
def test_the_exact_search_agrees_with_enumeration_often() -> None:
    engine = WithinRules()
    plain = sum(compare(seed) for seed in range(1000, 3000))
    assert plain + sum(compare(s, engine, with_rules=True) for s in range(3000, 5000)) >= 20_000
