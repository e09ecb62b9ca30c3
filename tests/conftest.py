"""What holds in all tests: where engine and checker disagree, a test has failed."""

import os
from collections.abc import Sequence

from treeproof.engines import evidence
from treeproof.results.results import Results, withdraw

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Read when a library is imported: its threads would wait for each other on the cores that other
workers of pytest are using, which takes many times as long."""


def _refused(results: Results, positions: Sequence[int], reasons: Sequence[str]) -> None:
    assert not reasons, reasons
    withdraw(results, positions, reasons)


evidence.withdraw = _refused
