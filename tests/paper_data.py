"""Where the paper's data and models are, for the tests that use them."""

import os
from pathlib import Path

import pytest

_DEFAULT = Path(__file__).resolve().parents[2] / "shared"


def paper_data() -> Path:
    """Directory with `data`, `models` and `peers`; skips the test where there is none."""
    root = Path(os.environ.get("TREEPROOF_PAPER_DATA", _DEFAULT))
    if not (root / "models").is_dir():
        pytest.skip(f"the paper's models are not at {root}; set TREEPROOF_PAPER_DATA")
    return root
