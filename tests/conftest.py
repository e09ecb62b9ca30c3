"""What holds in all tests: where engine and checker disagree, a test has failed."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from treeproof.engines import evidence
from treeproof.results.results import Results, withdraw

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Read when a library is imported: its threads would wait for each other on the cores that other
workers of pytest are using, which takes many times as long."""

os.environ.setdefault("TREEPROOF_PLAIN", "never")
"""Which code is tested must not depend on what is compiled; `make test-plain` says otherwise."""

_MEMORY = Path("/dev/shm")
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 4 << 30:
    # Thousands of damaged models are written over each other, and run files are flushed row by
    # row: on a disk each of them waits for it.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))


def _refused(results: Results, positions: Sequence[int], reasons: Sequence[str]) -> None:
    assert not reasons, reasons
    withdraw(results, positions, reasons)


evidence.withdraw = _refused


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run as machine code, and nothing stands in for them."""
    monkeypatch.setenv("TREEPROOF_PLAIN", "never")
