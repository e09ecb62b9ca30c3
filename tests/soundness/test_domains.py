"""Costs and domains against enumeration, by HiGHS, and by the exact search many times."""

import pytest

from tests.oracle.priced_answers import compare
from treeproof.engines.baselines.milp import MilpEngine


@pytest.mark.parametrize("block", range(6))
def test_milp_agrees_with_enumeration(block: int) -> None:
    compared = sum(compare(seed, MilpEngine()) for seed in range(5 * block, 5 * block + 5))
    assert compared > 5


@pytest.mark.slow
def test_the_exact_search_agrees_with_enumeration_often() -> None:
    assert sum(compare(seed) for seed in range(1000, 4000)) >= 20_000
