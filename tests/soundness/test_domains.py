"""Costs and domains against enumeration, by HiGHS, and by the exact search many times."""

import pytest

from tests.oracle.priced_answers import WithinRules, compare
from treeproof.engines.baselines.milp import MilpEngine


@pytest.mark.parametrize("block", range(6))
def test_milp_agrees_with_enumeration(block: int) -> None:
    compared = sum(compare(seed, MilpEngine()) for seed in range(5 * block, 5 * block + 5))
    assert compared > 5


@pytest.mark.parametrize("block", range(12))
def test_rules_agree_with_enumeration(block: int) -> None:
    seeds = range(10 * block, 10 * block + 10)
    compared = sum(compare(seed, WithinRules(), with_rules=True) for seed in seeds)
    assert compared > 10


@pytest.mark.slow
def test_the_exact_search_agrees_with_enumeration_often() -> None:
    engine = WithinRules()
    plain = sum(compare(seed) for seed in range(1000, 3000))
    assert plain + sum(compare(s, engine, with_rules=True) for s in range(3000, 5000)) >= 20_000
