"""What holds in all tests: where engine and checker disagree, a test has failed."""

from collections.abc import Sequence

from treeproof.engines import evidence
from treeproof.results.results import Results, withdraw


def _refused(results: Results, positions: Sequence[int], reasons: Sequence[str]) -> None:
    assert not reasons, reasons
    withdraw(results, positions, reasons)


evidence.withdraw = _refused
