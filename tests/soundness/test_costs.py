"""The exact search and the attack with prices against the truth by enumeration."""

import pytest

from tests.oracle.priced_answers import compare


@pytest.mark.parametrize("block", range(10))
def test_answers_are_those_of_enumeration(block: int) -> None:
    compared = sum(compare(seed) for seed in range(16 * block, 16 * block + 16))
    assert compared > 20
